/* remote.c - tables that the trainer's strategy holds: how rows are requested and updated. */
#include "train/step/dist.h"

_Static_assert(WEFT_MAX_SLOTS >= WF_OPTIM_MAX_SLOTS, "slots of a table");

#define SOME_FLOATS ((int64_t)1 << 20) /* of a table, read at a time */

/* Rows of one table in the strategy's memory. */
struct wf_remote_rows {
    bool held;
    weft_table table;
    weft_table_memory memory;
    int64_t n, cap;
    int64_t *at;   /* their positions */
    float *before; /* rows and slots from before the step, while numerics are trapped */
    int64_t cap_before;
};

/* ---- asking ---------------------------------------------------------------------------------- */

/* Those that are updated as a whole are in memory. */
static bool holds(void *arg, const char *name)
{
    const weft_trainer *t = arg;

    for (int i = 0; i < wf_model_n_weights(t->model); i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);

        if (strcmp(w->name, name) == 0)
            return !w->regularizer && !wf_weight_dense(t, i);
    }
    return false;
}

weft_table wf_table_of(weft_ctx *ctx, const struct wf_segment *seg)
{
    weft_table t = {.name = seg->name,
                    .n_rows = seg->type.dim[0],
                    .width = seg->type.dim[1],
                    .n_slots = seg->n_slots,
                    .inside = {ctx, seg},
                    .counted = seg->evict.every > 0};

    memcpy(t.slot_init, seg->slot_init, sizeof seg->slot_init);
    return t;
}

/* For evaluation and predictions. */
static weft_status need_rows(void *arg, const struct wf_segment *seg, int64_t n, const int64_t *ids,
                             float *rows)
{
    weft_trainer *t = arg;
    weft_table table = wf_table_of(t->ctx, seg);
    weft_status st =
        t->dist->kind.need_rows(t->dist->self, &table, weft_trainer_step(t), -1, n, ids, rows);

    return st || !wf_dist_together(t) ? st : wf_dist_read_set(t, seg, n, ids, rows);
}

const struct wf_remote *wf_trainer_remote(weft_trainer *t, struct wf_remote *r)
{
    *r = (struct wf_remote){t, holds, need_rows};
    return t->dist->kind.need_rows && !t->rounds ? r : NULL; /* of rounds, workers have copies */
}

weft_status weft_table_init(const weft_table *table, int64_t n, const int64_t *ids, float *rows)
{
    weft_ctx *ctx = (weft_ctx *)(uintptr_t)table->inside[0];
    const struct wf_segment *seg = table->inside[1];
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && !st; i++)
        if (ids[i] < 0 || ids[i] >= table->n_rows)
            st = wf_err(WEFT_ERANGE, "table '%s' has no row %lld: it has %lld", table->name,
                        (long long)ids[i], (long long)table->n_rows);
    if (!st)
        st = wf_init_rows(ctx, seg->node, &seg->type, n, ids, rows);
    return st ? wf_err_wrap(st, "variable '%s'", table->name) : WEFT_OK;
}

/* ---- whole tables ---------------------------------------------------------------------------- */

struct dense {
    int64_t width;
    int n_slots;
    float *rows, *const *slot;
    struct wf_seen *seen; /* NULL: not wanted */
};

static void put_row(void *arg, int64_t id, const float *row)
{
    const struct dense *d = arg;
    size_t bytes = (size_t)d->width * sizeof *row;

    memcpy(d->rows + id * d->width, row, bytes);
    for (int k = 0; k < d->n_slots; k++)
        memcpy(d->slot[k] + id * d->width, row + (k + 1) * d->width, bytes);
    if (d->seen)
        memcpy(&d->seen[id], row + (d->n_slots + 1) * d->width, sizeof *d->seen);
}

weft_status wf_table_dense(weft_trainer *t, const struct wf_segment *seg, float *rows,
                           float *const *slot, struct wf_seen *seen)
{
    const weft_dist *dist = t->dist;
    weft_table table = wf_table_of(t->ctx, seg);
    struct dense d = {table.width, table.n_slots, rows, slot, table.counted ? seen : NULL};
    weft_status st;

    if (!dist->kind.each_row)
        return wf_err(WEFT_ENOSUP, "table '%s' is held by strategy '%s', which does not give it",
                      seg->name, dist->kind.name);
    st = wf_init_variable(t->ctx, seg->node, &seg->type, rows);
    for (int k = 0; k < table.n_slots; k++)
        for (int64_t i = 0; i < seg->count; i++)
            slot[k][i] = table.slot_init[k];
    if (d.seen)
        memset(d.seen, 0, (size_t)table.n_rows * sizeof *d.seen);
    return st ? st : dist->kind.each_row(dist->self, &table, put_row, &d);
}

/* Whether a row is not as it was before its first update. */
static bool is_changed(const weft_table *t, int64_t id, const float *initial, const float *rows,
                       const float *const *slot)
{
    int64_t at = id * t->width;

    if (memcmp(initial, rows + at, (size_t)t->width * sizeof *rows) != 0)
        return true;
    for (int k = 0; k < t->n_slots; k++)
        for (int64_t i = 0; i < t->width; i++)
            if (memcmp(&slot[k][at + i], &t->slot_init[k], sizeof(float)) != 0)
                return true;
    return false;
}

weft_status wf_table_store(weft_trainer *t, const struct wf_segment *seg, const float *rows,
                           const float *const *slot)
{
    const weft_dist *dist = t->dist;
    weft_table table = wf_table_of(t->ctx, seg);
    float *initial = wf_alloc_n(t->ctx, table.width + 1, sizeof *initial);
    struct wf_work *w;
    weft_status st = initial ? wf_work_get(t, &w) : wf_err_nomem(t->ctx, 0, "a table");

    if (!st && !dist->kind.set_rows)
        st = wf_err(WEFT_ENOSUP, "table '%s' is held by strategy '%s', which does not take values",
                    seg->name, dist->kind.name);
    for (int64_t id = 0; id < table.n_rows && !st; id++) {
        const float *at[WF_OPTIM_MAX_SLOTS + 1] = {NULL};

        st = weft_table_init(&table, 1, &id, initial);
        if (st || !is_changed(&table, id, initial, rows, slot))
            continue;
        for (int k = 0; k < table.n_slots; k++)
            at[k] = slot[k] + id * table.width;
        st = dist->kind.set_rows(dist->self, w, &table, weft_trainer_step(t), 1, &id,
                                 rows + id * table.width, at);
    }
    wf_free(t->ctx, initial);
    return st;
}

weft_status wf_table_values(weft_trainer *t, const struct wf_segment *seg, float *rows)
{
    int64_t width = wf_max_i64(seg->type.dim[1], 1), some = wf_max_i64(SOME_FLOATS / width, 1);
    int64_t *ids = wf_alloc_n(t->ctx, some, sizeof *ids);
    weft_status st = ids ? WEFT_OK : wf_err_nomem(t->ctx, (size_t)some * sizeof *ids, "a table");

    for (int64_t at = 0; at < seg->type.dim[0] && !st; at += some) {
        int64_t n = wf_min_i64(some, seg->type.dim[0] - at);

        for (int64_t i = 0; i < n; i++)
            ids[i] = at + i;
        st = weft_trainer_rows(t, seg->name, n, ids, rows + at * width);
    }
    wf_free(t->ctx, ids);
    return st;
}

/* Rows that are as they were are left out: servers hold only those that are not initial ones. */
static weft_status set_changed(weft_trainer *t, struct wf_work *w, const weft_table *table,
                               const float *rows, const float *was, float *const *slot)
{
    const weft_dist *dist = t->dist;
    weft_status st = WEFT_OK;

    for (int64_t id = 0; id < table->n_rows && !st; id++) {
        const float *at[WF_OPTIM_MAX_SLOTS + 1] = {NULL};
        int64_t first = id * table->width;

        if (memcmp(rows + first, was + first, (size_t)table->width * sizeof *rows) == 0)
            continue;
        for (int k = 0; k < table->n_slots; k++)
            at[k] = slot[k] + first;
        st = dist->kind.set_rows(dist->self, w, table, weft_trainer_step(t), 1, &id, rows + first,
                                 at);
    }
    return st;
}

weft_status wf_table_set_values(weft_trainer *t, const struct wf_segment *seg, const float *rows)
{
    weft_table table;
    float *was, *slot[WF_OPTIM_MAX_SLOTS] = {NULL};
    struct wf_work *w;
    bool ok;
    weft_status st = wf_work_get(t, &w); /* it knows how many slots a row has */

    if (st)
        return st;
    table = wf_table_of(t->ctx, seg);
    if (!t->dist->kind.set_rows)
        return wf_err(WEFT_ENOSUP,
                      "table '%s' is held by strategy '%s', which does not take values", seg->name,
                      t->dist->kind.name);
    if (table.counted)
        return wf_err(WEFT_ENOSUP,
                      "table '%s' forgets rows (evict), and servers hold it: they take its rows "
                      "from a checkpoint of training, which says when each was updated",
                      seg->name);
    was = wf_alloc_n(t->ctx, seg->count + 1, sizeof *was);
    ok = was;
    for (int k = 0; k < table.n_slots && ok; k++) {
        slot[k] = wf_alloc_n(t->ctx, seg->count + 1, sizeof *slot[k]);
        ok = slot[k];
    }
    st = ok ? wf_table_dense(t, seg, was, slot, NULL)
            : wf_err_nomem(t->ctx, (size_t)seg->count * sizeof *was, "a table");
    if (!st)
        st = set_changed(t, w, &table, rows, was, slot);
    for (int k = 0; k < table.n_slots; k++)
        wf_free(t->ctx, slot[k]);
    wf_free(t->ctx, was);
    return st;
}

/* ---- updating -------------------------------------------------------------------------------- */

weft_status wf_remote_new(struct wf_work *w)
{
    const struct wf_store *s = w->b->fit->store;
    int n = w->rules.n_vars;
    bool any = false;

    for (int v = 0; v < n; v++)
        any |= s->seg[s->by_number[w->segment[v]]].remote;
    if (!any)
        return WEFT_OK;
    w->remote = wf_alloc_n(w->ctx, n + 1, sizeof *w->remote);
    w->moved = wf_alloc_n(w->ctx, n + 1, sizeof *w->moved);
    if (!w->remote || !w->moved)
        return wf_err_nomem(w->ctx, (size_t)n * sizeof *w->remote, "tables");
    for (int v = 0; v < n; v++) {
        const struct wf_segment *seg = &s->seg[s->by_number[w->segment[v]]];

        w->remote[v].held = seg->remote;
        w->remote[v].table = wf_table_of(w->ctx, seg);
        if (seg->remote && w->rules.var[v].constraint.kind != WF_CONSTRAINT_NONE)
            return wf_err(WEFT_ENOSUP,
                          "weight '%s' has a constraint, which needs the whole table, but strategy "
                          "'%s' holds it elsewhere: remove the constraint",
                          seg->name, w->t->dist->kind.name);
        if (seg->remote && seg->evict.every && w->t->dist->kind.rows_at)
            return wf_err(WEFT_ENOSUP,
                          "weight '%s' forgets rows (evict), and strategy '%s', which holds it, "
                          "does not: remove evict",
                          seg->name, w->t->dist->kind.name);
    }
    return WEFT_OK;
}

void wf_remote_free(struct wf_work *w)
{
    for (int v = 0; w->remote && v < w->rules.n_vars; v++) {
        wf_free(w->ctx, w->remote[v].at);
        wf_free(w->ctx, w->remote[v].before);
    }
    wf_free(w->ctx, w->remote);
    wf_free(w->ctx, w->moved);
}

/* Copies rows and slots, or copies them back. */
static void copy_rows(const struct wf_remote_rows *r, bool back)
{
    int64_t width = r->table.width;
    float *copy = r->before;

    for (int k = -1; k < r->table.n_slots; k++) {
        float *base = k < 0 ? r->memory.rows : r->memory.slot[k];

        for (int64_t i = 0; i < r->n; i++, copy += width) {
            float *row = base + r->at[i] * width;

            memcpy(back ? row : copy, back ? copy : row, (size_t)width * sizeof *row);
        }
    }
}

static weft_status find_rows(struct wf_work *w, int v, const struct wf_rows *rows, int64_t t)
{
    struct wf_remote_rows *r = &w->remote[v];
    const weft_dist *d = w->t->dist;
    int64_t copied = rows->n * r->table.width * (1 + r->table.n_slots);
    weft_status st = wf_grow(w->ctx, &r->at, &r->cap, rows->n, sizeof *r->at);

    r->n = 0;
    if (!st && w->t->trap)
        st = wf_grow(w->ctx, &r->before, &r->cap_before, copied, sizeof *r->before);
    if (!st && rows->n)
        st = d->kind.rows_at(d->self, &r->table, t, rows->n, rows->id, &r->memory, r->at);
    if (st)
        return wf_err_wrap(st, "rows of '%s'", r->table.name);
    r->n = rows->n;
    if (w->t->trap)
        copy_rows(r, false);
    w->now.table[v].w = r->memory.rows;
    memcpy(w->now.table[v].slot, r->memory.slot, sizeof w->now.table[v].slot);
    w->moved[v] = *rows;
    w->moved[v].id = r->at;
    return WEFT_OK;
}

/* Norms are taken by the rows' numbers, updates are made at their positions. */
weft_status wf_remote_step(struct wf_work *w, const struct wf_contribution *mean,
                           const struct wf_step *step)
{
    struct wf_merge *m = w->merge;
    struct wf_contribution by_position = *mean;
    weft_status st = WEFT_OK;

    if (!w->t->dist->kind.rows_at)
        return wf_err(WEFT_EINVAL,
                      "strategy '%s' holds tables and does not say where their rows are (rows_at)",
                      w->t->dist->kind.name);
    st = wf_merge_norms(m, mean, step);
    if (st)
        return st;
    wf_merge_scales(m->rules, m->first_block, m->n_partials, m->partial, m->clip);
    by_position.rows = w->moved;
    for (int v = 0; v < w->rules.n_vars && !st; v++) {
        w->moved[v] = mean->rows[v];
        w->remote[v].n = 0;
        if (w->remote[v].held && (!step->chosen || step->chosen[v]))
            st = find_rows(w, v, &mean->rows[v], step->iteration - 1);
    }
    if (!st)
        st = wf_merge_update(m, &by_position, step, m->clip, &w->now);
    if (!st)
        wf_merge_finish(m, step, m->n_partials, m->partial, m->clip, &w->now);
    return st;
}

weft_status wf_remote_check(const struct wf_work *w)
{
    for (int v = 0; w->remote && v < w->rules.n_vars; v++) {
        const struct wf_remote_rows *r = &w->remote[v];

        for (int64_t i = 0; i < r->n; i++)
            for (int64_t k = 0; k < r->table.width; k++) {
                float x = r->memory.rows[r->at[i] * r->table.width + k];

                if (!(x - x == 0))
                    return wf_err(WEFT_ENUMERIC, "after the update, '%s' is %g in a row",
                                  r->table.name, (double)x);
            }
    }
    return WEFT_OK;
}

void wf_remote_restore(struct wf_work *w)
{
    for (int v = 0; w->remote && v < w->rules.n_vars; v++)
        copy_rows(&w->remote[v], true);
}
