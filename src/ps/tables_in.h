/* tables_in.h - the rows of a piece, for the files that make them: tables.c (updates, reads),
 * tables_kept.c (values that can be restored), tables_copies.c (copies, rows by hand). */
#ifndef WF_PS_TABLES_IN_H
#define WF_PS_TABLES_IN_H

#include "ps/tables.h"

/* The rows of one table that a step updates. */
struct touched {
    int64_t n, cap_id, cap_at, cap_block, cap_from, cap_first, cap_row, cap_order;
    int64_t *id, *at;      /* at: in its set, -1: it is new */
    int32_t *block, *from; /* from: its place among the rows that were given */
    float *first;          /* of new rows: their values before the step */
    /* Block after block: at, from. */
    int64_t *row;
    int32_t *order;
};

/* Rows that were looked for together. */
struct found {
    int64_t cap_at, cap_block, cap_row;
    int64_t *at;
    int32_t *block;
    const float **row;
};

/* What rows of a block are as of: rows are forgotten at steps of training, and versions count other
 * steps of the servers, too. */
struct as_of {
    int64_t version, step, before; /* the newest version, its step, that of the version before it */
    int64_t swept;                 /* rows forgotten at this step are not in memory any more */
};

/* A row of a table that forgets has a struct wf_seen after its slots. */
enum { SEEN_FLOATS = sizeof(struct wf_seen) / sizeof(float) };

/* Values of rows of a block as they were at version `at`: of those that have changed since. Of a
 * row that did not exist its initial value; `changed` of the set is 1 where it did. */
struct kept {
    int64_t at; /* -1: nothing is kept */
    struct wf_rowset rows;
};

struct wf_tables {
    weft_ctx *ctx;
    struct wf_tables_opts o;
    int piece, n_slots;
    float slot_init[WF_OPTIM_MAX_SLOTS];
    struct wf_rowset *set;   /* [n_blocks][n_vars] */
    struct as_of *as_of;     /* [n_blocks][n_vars] */
    struct kept *kept;       /* likewise */
    struct touched *touched; /* by variable */
    int64_t *n_set;          /* by block: rows that a step updates, and those that are new */
    int32_t *alone;          /* -1: a row has one gradient */
    int64_t cap_alone;
    struct found found;
};

static inline struct wf_rowset *set_of(const struct wf_tables *t, int var, int block)
{
    return &t->set[(int64_t)block * t->o.rules->n_vars + var];
}

static inline struct as_of *as_of(const struct wf_tables *t, int var, int block)
{
    return &t->as_of[(int64_t)block * t->o.rules->n_vars + var];
}

static inline struct kept *kept_of(const struct wf_tables *t, int var, int block)
{
    return &t->kept[(int64_t)block * t->o.rules->n_vars + var];
}

static inline const struct wf_evict *rule_of(const struct wf_tables *t, int var)
{
    return &t->o.rules->var[var].evict;
}

static inline int block_of(const struct wf_tables *t, int var, int64_t id)
{
    return wf_cut_block_of(t->o.cut, var, id, t->o.n_blocks);
}

static inline struct wf_seen seen_of(const struct wf_rowset *s, const float *row)
{
    struct wf_seen seen;

    memcpy(&seen, row + (1 + s->n_slots) * s->width, sizeof seen);
    return seen;
}

/* Whether a row in memory is as if it had never been updated, after step `step`. */
static inline bool is_gone(const struct wf_tables *t, int var, const struct wf_rowset *s,
                           const float *row, int64_t step)
{
    struct wf_seen seen;

    if (!s->n_more)
        return false;
    seen = seen_of(s, row);
    return wf_evicted(rule_of(t, var), &seen, step);
}

/* Since when a row that does not exist at a version may have its initial value: since rows were
 * last forgotten. Every step made at least one version, so it was not after this one. */
static inline int64_t initial_since(const struct wf_tables *t, int var, int64_t version,
                                    int64_t step)
{
    int64_t every = rule_of(t, var)->every, ago = every ? step % every : 0;

    return every && step >= every ? wf_max_i64(version - ago, 0) : 0;
}

static inline weft_status initial(const struct wf_tables *t, int var, int64_t id, float *row)
{
    const struct wf_var *v = &t->o.rules->var[var];
    struct wf_type type = wf_type_of(WEFT_F32, 2, v->dim);

    return wf_initial_rows(t->ctx, &v->init, &type, 1, &id, row);
}

/* A block is at the next version, after step `step` of training. */
static inline void set_as_of(struct wf_tables *t, int var, int block, int64_t version, int64_t step,
                             int64_t before)
{
    struct as_of *a = as_of(t, var, block);

    a->version = version;
    a->step = step;
    a->before = before;
}

static inline int64_t i64_at(const char *p, int64_t i)
{
    int64_t v;

    memcpy(&v, p + 8 * i, sizeof v);
    return v;
}

/* A row was updated by step `step`. */
static inline void count_step(const struct wf_rowset *s, float *row, bool is_new, int64_t step)
{
    struct wf_seen seen = {0, 0};

    if (!is_new)
        seen = seen_of(s, row);
    wf_see(&seen, step);
    memcpy(row + (1 + s->n_slots) * s->width, &seen, sizeof seen);
}

/* tables.c: before a version is made, rows that are gone in this one leave the memory. */
weft_status wf_tables_sweep(struct wf_tables *t, int block);
/* tables_kept.c: room for n more rows of a block. Then, before a row changes: it had this value
 * since version `changed`, or it is a new one. */
weft_status wf_kept_reserve(struct wf_tables *t, int var, int block, int64_t n);
void wf_kept_add(struct kept *k, int64_t id, const float *was, bool existed);
static inline void wf_kept_note(struct wf_tables *t, int var, int block, int64_t id,
                                const float *was, bool existed, int64_t changed)
{
    struct kept *k = kept_of(t, var, block);

    if (k->at >= 0 && changed <= k->at)
        wf_kept_add(k, id, was, existed);
}
/* Nothing is kept of these blocks, or what they are at this version. */
void wf_kept_begin(struct wf_tables *t, int block, int64_t at);

#endif
