/* rows.c - rows of tables that a program reads and sets, wherever the table is. */
#include "ps/tables.h"
#include "train/step/dist.h"

static weft_status find_table(weft_trainer *t, const char *name, struct wf_segment **out)
{
    struct wf_segment *seg;

    if (!t->bound || !t->bound->fit)
        return wf_err(WEFT_ESTATE,
                      "rows of '%s': the model has not been trained or fitted yet, so "
                      "its tables do not exist",
                      name);
    seg = wf_store_find(t->bound->fit->store, name);
    if (!seg)
        return wf_err(WEFT_ENOENT, "no variable '%s'", name);
    if (!seg->table)
        return wf_err(WEFT_EINVAL, "'%s' is not a table: not only rows of it are looked up", name);
    *out = seg;
    return wf_evict_open(t);
}

static weft_status check_ids(weft_ctx *ctx, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids)
{
    struct wf_tables_sort sort = {.key = NULL};
    const int64_t *key = NULL;
    const int32_t *at;
    weft_status st = WEFT_OK;

    if (n < 0 || n > seg->type.dim[0])
        return wf_err(WEFT_EINVAL, "%lld rows of '%s', which has %lld", (long long)n, seg->name,
                      (long long)seg->type.dim[0]);
    for (int64_t i = 0; i < n && !st; i++)
        if (ids[i] < 0 || ids[i] >= seg->type.dim[0])
            st = wf_err(WEFT_ERANGE, "'%s' has no row %lld: it has %lld", seg->name,
                        (long long)ids[i], (long long)seg->type.dim[0]);
    if (!st)
        st = wf_tables_sort_ids(ctx, &sort, n, ids, seg->type.dim[0], &key, &at);
    for (int64_t i = 1; i < n && !st; i++)
        if (key[i] == key[i - 1])
            st = wf_err(WEFT_EINVAL, "row %lld of '%s' is named twice", (long long)key[i],
                        seg->name);
    wf_tables_sort_free(ctx, &sort);
    return st;
}

const struct wf_segment *wf_weight_segment(const weft_trainer *t, const char *name)
{
    return t->bound && t->bound->fit ? wf_store_find(t->bound->fit->store, name) : NULL;
}

weft_status weft_trainer_rows(weft_trainer *t, const char *name, int64_t n, const int64_t *ids,
                              float *rows)
{
    struct wf_segment *seg;
    weft_status st = find_table(t, name, &seg);
    weft_table table;
    const float *from;
    int64_t width;

    if (!st)
        st = check_ids(t->ctx, seg, n, ids);
    if (st)
        return st;
    table = wf_table_of(t->ctx, seg);
    if (seg->remote) {
        st = t->dist->kind.need_rows(t->dist->self, &table, weft_trainer_step(t), -1, n, ids, rows);
        return st || !wf_dist_together(t) ? st : wf_dist_read_set(t, seg, n, ids, rows);
    }
    st = wf_store_pull(t->bound->fit->store, WF_PART_TABLES);
    from = wf_store_data(t->bound->fit->store, seg);
    width = table.width;
    for (int64_t i = 0; i < n && !st; i++)
        memcpy(rows + i * width, from + ids[i] * width, (size_t)width * sizeof *rows);
    return st;
}

/* In this process's memory. A row that forgetting tables count counts as updated by the last
 * step. */
static weft_status set_here(weft_trainer *t, const struct wf_segment *seg, int64_t n,
                            const int64_t *ids, const float *rows)
{
    struct wf_store *s = t->bound->fit->store;
    int64_t width = seg->type.dim[1];
    float *to = wf_store_data(s, seg);
    weft_status st = wf_store_pull(s, WF_PART_TABLES);

    if (st)
        return st;
    wf_store_touch(s, WF_PART_TABLES);
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + ids[i] * width, rows + i * width, (size_t)width * sizeof *to);
        if (seg->seen)
            wf_see(&seg->seen[ids[i]], weft_trainer_step(t));
    }
    return WEFT_OK;
}

weft_status weft_trainer_set_rows(weft_trainer *t, const char *name, int64_t n, const int64_t *ids,
                                  const float *rows)
{
    struct wf_segment *seg;
    weft_status st = find_table(t, name, &seg);

    if (!st)
        st = check_ids(t->ctx, seg, n, ids);
    if (st)
        return st;
    if (!seg->remote)
        return set_here(t, seg, n, ids, rows);
    if (!wf_dist_together(t))
        return wf_err(WEFT_ENOSUP,
                      "table '%s' is held by strategy '%s', which does not take values", name,
                      t->dist->kind.name);
    return wf_dist_set_rows(t, seg, n, ids, rows);
}
