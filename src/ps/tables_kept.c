/* tables_kept.c - values of rows that can be restored: what a callback keeps of the best epoch.
 *
 * From the version at which they are kept on, the first change of a row leaves its value here: so
 * keeping costs nothing by itself, and at most the values of the rows that changed. Slots and
 * counts of rows are not kept.
 *
 * Kept true: the values of that version are those here, and for every other id those of the newest
 * version. */
#include "ps/tables_in.h"

static int end_of(const struct wf_tables *t, int block)
{
    return block < 0 ? t->o.n_blocks : block + 1;
}

void wf_kept_begin(struct wf_tables *t, int block, int64_t at)
{
    for (int b = wf_max_i64(block, 0); b < end_of(t, block); b++)
        for (int v = 0; v < t->o.rules->n_vars; v++) {
            wf_rowset_free(t->ctx, &kept_of(t, v, b)->rows);
            kept_of(t, v, b)->at = t->o.rules->var[v].table ? at : -1;
        }
}

weft_status wf_kept_reserve(struct wf_tables *t, int var, int block, int64_t n)
{
    struct kept *k = kept_of(t, var, block);

    return k->at < 0 ? WEFT_OK : wf_rowset_reserve(t->ctx, &k->rows, n, 0);
}

void wf_kept_add(struct kept *k, int64_t id, const float *was, bool existed)
{
    int64_t at;

    if (wf_rowset_find(&k->rows, id) >= 0)
        return;
    at = wf_rowset_add(&k->rows, id);
    k->rows.changed[at] = existed;
    wf_row_copy(wf_rowset_row(&k->rows, at), was, k->rows.width);
}

/* ---- steps ----------------------------------------------------------------------------------- */

weft_status wf_tables_keep(struct wf_tables *t, const struct wf_contribution *rows, int block,
                           int64_t version, int64_t step)
{
    weft_status st = wf_tables_replace(t, rows, block, version, step);

    if (!st)
        wf_kept_begin(t, block, version + 1);
    return st;
}

/* Room for all that restoring a block changes; what follows cannot fail. */
static weft_status reserve(struct wf_tables *t, int var, int block)
{
    const struct wf_rowset *k = &kept_of(t, var, block)->rows;
    struct wf_rowset *s = set_of(t, var, block);
    int64_t n = 0, n_new = 0;

    for (int64_t i = 0; i < k->n; i++) {
        bool is_new = wf_rowset_find(s, k->id[i]) < 0;

        n += !is_new || k->changed[i];
        n_new += is_new && k->changed[i];
    }
    return n ? wf_rowset_reserve(t->ctx, s, n_new, n) : WEFT_OK;
}

/* A row that was forgotten meanwhile exists again, as if this step had updated it for the first
 * time. */
static weft_status add_row(struct wf_tables *t, int var, int block, int64_t id, int64_t version,
                           int64_t step)
{
    struct wf_rowset *s = set_of(t, var, block);
    int64_t since = initial_since(t, var, version, as_of(t, var, block)->step);
    int64_t at = wf_rowset_add(s, id);
    float *row = wf_rowset_row(s, at);
    weft_status st = initial(t, var, id, row);

    wf_rowset_keep(s, at, row, since, version + 1);
    for (int64_t i = 0; i < t->n_slots * s->width; i++)
        row[s->width + i] = t->slot_init[i / s->width];
    if (s->n_more)
        count_step(s, row, true, step);
    return st;
}

static weft_status restore_block(struct wf_tables *t, int var, int block, int64_t version,
                                 int64_t step)
{
    const struct wf_rowset *k = &kept_of(t, var, block)->rows;
    struct wf_rowset *s = set_of(t, var, block);
    weft_status st = reserve(t, var, block);

    if (k->n && !st)
        wf_rowset_begin(s);
    for (int64_t i = 0; i < k->n && !st; i++) {
        int64_t at = wf_rowset_find(s, k->id[i]);

        if (at >= 0)
            wf_rowset_keep(s, at, wf_rowset_row(s, at), s->changed[at], version + 1);
        else if (k->changed[i])
            st = add_row(t, var, block, k->id[i], version, step);
        else /* it did not exist then, and does not now */
            continue;
        at = wf_rowset_find(s, k->id[i]);
        wf_row_copy(wf_rowset_row(s, at), wf_rowset_row(k, i), s->width);
    }
    return st;
}

/* What a kept value says that the row does not say itself after it was restored. */
struct remaining {
    const struct wf_rowset *kept, *set;
};

static bool is_restored(void *arg, const float *row)
{
    const struct remaining *r = arg;
    int64_t i = (row - r->kept->data) / wf_rowset_floats(r->kept);

    return r->kept->changed[i] || wf_rowset_find(r->set, r->kept->id[i]) < 0;
}

/* Those of version + 1 are kept, which are the same; a row that did not exist when they were kept
 * first, and does now, is known as such. */
static void stay_kept(struct wf_tables *t, int var, int block, int64_t version)
{
    struct kept *k = kept_of(t, var, block);
    struct remaining r = {&k->rows, set_of(t, var, block)};

    wf_rowset_remove(t->ctx, &k->rows, is_restored, &r);
    k->at = version + 1;
}

weft_status wf_tables_restore(struct wf_tables *t, int block, int64_t version, int64_t step)
{
    weft_status st = wf_tables_sweep(t, block);

    for (int b = wf_max_i64(block, 0); b < end_of(t, block) && !st; b++)
        for (int v = 0; v < t->o.rules->n_vars && !st; v++) {
            if (t->o.rules->var[v].table && kept_of(t, v, b)->at < 0)
                st = wf_err(WEFT_EPEER,
                            "piece %d: values of table '%s' are to be restored, and none were kept",
                            t->piece, t->o.rules->var[v].name);
            if (!st && t->o.rules->var[v].table)
                st = restore_block(t, v, b, version, step);
            if (!st && t->o.rules->var[v].table)
                stay_kept(t, v, b, version);
            set_as_of(t, v, b, version + 1, step, step);
        }
    return st;
}

/* ---- as they are in checkpoints -------------------------------------------------------------- */

bool wf_tables_keeps(const struct wf_tables *t)
{
    for (int v = 0; v < t->o.rules->n_vars; v++)
        if (t->o.rules->var[v].table)
            return kept_of(t, v, 0)->at >= 0;
    return false;
}

/* Rows that are gone, but still in memory: a checkpoint does not have them. */
static void each_gone(const struct wf_tables *t, int var, int block, wf_tables_kept_fn *fn,
                      void *arg)
{
    const struct wf_rowset *s = set_of(t, var, block);
    const struct kept *k = kept_of(t, var, block);
    int64_t step = as_of(t, var, block)->step;

    for (int64_t i = 0; i < s->n; i++)
        if (s->changed[i] <= k->at && is_gone(t, var, s, wf_rowset_row(s, i), step) &&
            wf_rowset_find(&k->rows, s->id[i]) < 0)
            fn(arg, s->id[i], true, wf_rowset_row(s, i));
}

void wf_tables_each_kept(const struct wf_tables *t, int var, wf_tables_kept_fn *fn, void *arg)
{
    for (int b = 0; b < t->o.n_blocks; b++) {
        const struct wf_rowset *k = &kept_of(t, var, b)->rows;

        for (int64_t i = 0; i < k->n; i++)
            fn(arg, k->id[i], k->changed[i], wf_rowset_row(k, i));
        if (rule_of(t, var)->every)
            each_gone(t, var, b, fn, arg);
    }
}

weft_status wf_tables_set_kept(struct wf_tables *t, int var, int64_t version, int64_t n,
                               const int64_t *ids, const float *rows)
{
    int64_t width = t->o.rules->var[var].dim[1];
    weft_status st = WEFT_OK;

    if (!wf_tables_keeps(t))
        wf_kept_begin(t, -1, version);
    for (int64_t i = 0; i < n && !st; i++) {
        int block = block_of(t, var, ids[2 * i]);

        st = wf_kept_reserve(t, var, block, 1);
        if (!st)
            wf_kept_note(t, var, block, ids[2 * i], rows + i * width, ids[2 * i + 1], -1);
    }
    return st;
}
