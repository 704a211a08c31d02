/* served.c - rows of tables that a worker of parameter servers has in memory. */
#include "train/step/served.h"

weft_status wf_served_new(weft_ctx *ctx, const struct wf_rules *rules, int64_t piece_bytes,
                          struct wf_served **out)
{
    struct wf_served *s = wf_alloc(ctx, sizeof *s);
    weft_status st;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "tables");
    s->ctx = ctx;
    st = wf_cut_new(ctx, rules, piece_bytes, &s->cut);
    if (!st) {
        s->opts = (struct wf_tables_opts){rules, s->cut, wf_cut_blocks(rules)};
        s->tables = wf_alloc_n(ctx, s->cut->n_table_pieces + 1, sizeof *s->tables);
        st = s->tables ? WEFT_OK : wf_err_nomem(ctx, sizeof *s->tables, "tables");
    }
    for (int k = 0; !st && k < s->cut->n_table_pieces; k++)
        st = wf_tables_new(ctx, &s->opts, s->cut->first_table + k, &s->tables[k]);
    if (st || s->cut->n_table_pieces == 0) {
        wf_served_free(s);
        s = NULL;
    }
    *out = s;
    return st;
}

void wf_served_free(struct wf_served *s)
{
    if (!s)
        return;
    for (int k = 0; s->tables && k < s->cut->n_table_pieces; k++)
        wf_tables_free(s->tables[k]);
    wf_free(s->ctx, s->tables);
    wf_cut_free(s->cut);
    wf_free(s->ctx, s);
}

int wf_served_var(const struct wf_rules *rules, const char *name)
{
    for (int v = 0; v < rules->n_vars; v++)
        if (rules->var[v].table && strcmp(rules->var[v].name, name) == 0)
            return v;
    return -1;
}

static struct wf_tables *tables_of(const struct wf_served *s, int var, int64_t id)
{
    return s->tables[wf_cut_piece_of(s->cut, var, id) - s->cut->first_table];
}

weft_status wf_served_rows(const struct wf_served *s, int var, const weft_table *table, int64_t n,
                           const int64_t *ids, float *rows)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && !st; i++) {
        const float *row =
            s && var >= 0 ? wf_tables_find(tables_of(s, var, ids[i]), var, ids[i]) : NULL;

        if (row)
            memcpy(rows + i * table->width, row, (size_t)table->width * sizeof *row);
        else
            st = weft_table_init(table, 1, &ids[i], rows + i * table->width);
    }
    return st;
}

weft_status wf_served_set(struct wf_served *s, int var, int64_t t, int64_t n, const int64_t *ids,
                          const float *rows, const float *const *slot)
{
    int64_t width = s->opts.rules->var[var].dim[1];
    bool counted = s->opts.rules->var[var].evict.every > 0;
    int n_slots = wf_optim_slots(s->opts.rules->optim, s->opts.rules->attrs, NULL,
                                 (float[WF_OPTIM_MAX_SLOTS]){0});
    const float *at[WF_OPTIM_MAX_SLOTS + 1] = {NULL};
    weft_status st = WEFT_OK;

    s->filled = true;
    for (int64_t i = 0; i < n && !st; i++) {
        for (int k = 0; k < n_slots; k++)
            at[k] = slot[k] + i * width;
        if (counted)
            at[n_slots] = slot[n_slots] + i * (int64_t)(sizeof(struct wf_seen) / sizeof(float));
        st = wf_tables_set(tables_of(s, var, ids[i]), var, t, 1, &ids[i], rows + i * width, at);
    }
    return st;
}

weft_status wf_served_set_kept(struct wf_served *s, int var, int64_t t, int64_t n,
                               const int64_t *ids, const float *rows)
{
    int64_t width = s->opts.rules->var[var].dim[1];
    weft_status st = WEFT_OK;

    s->filled = true;
    for (int k = 0; k < s->cut->n_table_pieces && !st; k++)
        st = wf_tables_set_kept(s->tables[k], var, t, 0, NULL, NULL);
    for (int64_t i = 0; i < n && !st; i++)
        st = wf_tables_set_kept(tables_of(s, var, ids[2 * i]), var, t, 1, &ids[2 * i],
                                rows + i * width);
    return st;
}

void wf_served_each(const struct wf_served *s, int var, wf_tables_fn *fn, void *arg)
{
    for (int k = 0; k < s->cut->n_table_pieces; k++)
        wf_tables_each(s->tables[k], var, fn, arg);
}

void wf_served_clear(struct wf_served *s)
{
    if (!s || !s->filled)
        return;
    for (int k = 0; k < s->cut->n_table_pieces; k++)
        wf_tables_take(s->tables[k], -1, NULL, 0);
    s->filled = false;
}
