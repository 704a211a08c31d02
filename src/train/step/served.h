/* served.h - tables that parameter servers hold, as a worker has them in memory: rows of a
 * checkpoint, before the first step, and for the next one. */
#ifndef WF_TRAIN_STEP_SERVED_H
#define WF_TRAIN_STEP_SERVED_H

#include "ps/tables.h"
#include "train/step/work.h"

struct wf_served {
    weft_ctx *ctx;
    struct wf_cut *cut;
    struct wf_tables_opts opts;
    struct wf_tables **tables; /* by piece of tables */
    bool filled;               /* there may be rows */
};

/* The rules are borrowed. *out NULL: they have no tables. */
weft_status wf_served_new(weft_ctx *ctx, const struct wf_rules *rules, int64_t piece_bytes,
                          struct wf_served **out);
void wf_served_free(struct wf_served *s);
/* The variable of this name that is a table; -1: there is none. */
int wf_served_var(const struct wf_rules *rules, const char *name);
/* Rows as they are here, or initial ones. */
weft_status wf_served_rows(const struct wf_served *s, int var, const weft_table *table, int64_t n,
                           const int64_t *ids, float *rows);
weft_status wf_served_set(struct wf_served *s, int var, int64_t t, int64_t n, const int64_t *ids,
                          const float *rows, const float *const *slot);
/* Values that are kept; ids as in wf_tables_set_kept. n 0: the others are. */
weft_status wf_served_set_kept(struct wf_served *s, int var, int64_t t, int64_t n,
                               const int64_t *ids, const float *rows);
void wf_served_each(const struct wf_served *s, int var, wf_tables_fn *fn, void *arg);
/* The rows are not needed any more. */
void wf_served_clear(struct wf_served *s);

#endif
