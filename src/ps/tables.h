/* tables.h - pieces of looked-up tables: the rows that a server holds, and how rows travel.
 *
 * A piece has rows of all tables (pieces.h). Only those that were updated are in memory; the others
 * have their initial values, which are computed on demand. The rows of a piece are in
 * blocks, which are sent to a new copy one by one.
 *
 * docs/formats/ps.md has the bytes. Whatever arrives is checked completely before it is used. */
#ifndef WF_PS_TABLES_H
#define WF_PS_TABLES_H

#include "ps/pieces.h"
#include "ps/rows.h"

/* Bytes that are sent; the memory is used again. */
struct wf_payload {
    char *p;
    int64_t n, cap;
};

/* What all tables of a job have in common; borrowed. */
struct wf_tables_opts {
    const struct wf_rules *rules;
    const struct wf_cut *cut;
    int n_blocks;
};

/* ---- contributions --------------------------------------------------------------------------- */

/* Memory for sorting. */
struct wf_tables_sort {
    int64_t *key;
    int32_t *at;
    int64_t cap_key, cap_at;
};
void wf_tables_sort_free(weft_ctx *ctx, struct wf_tables_sort *s);

/* Ids in [0, end) in rising order, those that are equal in the order they had, and where each was;
 * valid until the next call. */
weft_status wf_tables_sort_ids(weft_ctx *ctx, struct wf_tables_sort *s, int64_t n,
                               const int64_t *ids, int64_t end, const int64_t **key,
                               const int32_t **at);

/* Rows [n_groups][n_vars] and sums as they are pushed: out[k] is for the k-th piece of tables.
 * only >= 0: all rows belong to that piece, and there is one out. */
weft_status wf_tables_split(weft_ctx *ctx, const struct wf_tables_opts *o, int only, int n_groups,
                            const struct wf_rows *rows, const double *sums, int64_t n_sums,
                            struct wf_tables_sort *sort, struct wf_payload *out);
/* Reads what was pushed to a piece into an empty contribution. WEFT_EPEER with what is wrong: sizes
 * that do not fit, ids that are out of range, of another piece, twice or not in order. */
weft_status wf_tables_read(const struct wf_tables_opts *o, int piece, int n_groups, const char *p,
                           int64_t n, struct wf_contribution *c);

/* ---- the rows of a piece --------------------------------------------------------------------- */

struct wf_tables;
weft_status wf_tables_new(weft_ctx *ctx, const struct wf_tables_opts *o, int piece,
                          struct wf_tables **out);
void wf_tables_free(struct wf_tables *t);
/* Step t with this mean: version t + 1. block -1: all of them. scale: by variable. */
weft_status wf_tables_apply(struct wf_tables *t, struct wf_merge *merge,
                            const struct wf_contribution *mean, const struct wf_step *step,
                            const float *scale, int block, int64_t version);
/* A step that sets rows: version + 1 has these values, of all tables; slots stay. block: as above.
 * A row that may be forgotten counts as updated by `step`, the last one of training. */
weft_status wf_tables_replace(struct wf_tables *t, const struct wf_contribution *rows, int block,
                              int64_t version, int64_t step);
/* The same; and the values of version + 1 are kept: what was kept before is dropped. */
weft_status wf_tables_keep(struct wf_tables *t, const struct wf_contribution *rows, int block,
                           int64_t version, int64_t step);
/* A step after which all rows have the values that were kept, and nothing else is another one:
 * slots stay. A row that was forgotten since counts as updated by `step`. They stay kept. */
weft_status wf_tables_restore(struct wf_tables *t, int block, int64_t version, int64_t step);
/* A step that updates nothing: version + 1 has the same rows. */
void wf_tables_pass(struct wf_tables *t, int block, int64_t version);
/* Whether a request for rows is valid: WEFT_EPEER with what is wrong. And its answer, at version t:
 * the newest one, or the previous one. */
weft_status wf_tables_check(const struct wf_tables_opts *o, int piece, const char *p, int64_t n);
weft_status wf_tables_answer(struct wf_tables *t, int64_t version, const char *p, int64_t n,
                             struct wf_payload *out);
/* The rows of a block, -1: of all, with slots, and what those that version changed were before;
 * kept: and the values that are kept. Taking them replaces those of the block. */
weft_status wf_tables_dump(struct wf_tables *t, int block, int64_t version, bool kept,
                           struct wf_payload *out);
weft_status wf_tables_take(struct wf_tables *t, int block, const char *p, int64_t n);
/* Rows and slots of a table become these, as of version and step t. slot: by slot, [n][width]; if
 * the table forgets rows, slot[n_slots] is struct wf_seen [n]. */
weft_status wf_tables_set(struct wf_tables *t, int var, int64_t version, int64_t n,
                          const int64_t *ids, const float *rows, const float *const *slot);
/* The newest value of a row, then its slots, then struct wf_seen, if the table forgets rows; NULL:
 * it was never updated, or is forgotten. */
const float *wf_tables_find(const struct wf_tables *t, int var, int64_t id);
typedef void wf_tables_fn(void *arg, int64_t id, const float *row);
void wf_tables_each(const struct wf_tables *t, int var, wf_tables_fn *fn, void *arg);
/* Whether values are kept; those of a table that are not the newest ones. existed: when they were
 * kept. And as they are in checkpoints: ids [n][2], each with whether it existed; n 0: the newest
 * ones are kept. version: of the rows. */
bool wf_tables_keeps(const struct wf_tables *t);
typedef void wf_tables_kept_fn(void *arg, int64_t id, bool existed, const float *row);
void wf_tables_each_kept(const struct wf_tables *t, int var, wf_tables_kept_fn *fn, void *arg);
weft_status wf_tables_set_kept(struct wf_tables *t, int var, int64_t version, int64_t n,
                               const int64_t *ids, const float *rows);
int64_t wf_tables_count(const struct wf_tables *t); /* rows in memory */

weft_status wf_payload_grow(weft_ctx *ctx, struct wf_payload *b, int64_t more);

#endif
