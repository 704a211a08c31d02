/* snapshot.c - copies of a version, and the items of a checkpoint that they are. */
#include "ps/snapshot.h"

#include "ps/held.h"

#include <stdio.h>

/* ---- items ----------------------------------------------------------------------------------- */

char *wf_snap_name(struct wf_arena *mem, const struct wf_var *v, int k)
{
    size_t room = strlen(v->name) + 32;
    char *name = wf_arena_alloc(mem, room);

    if (!name)
        return NULL;
    if (k < 0)
        snprintf(name, room, "%s:ids", v->name);
    else if (k == 0)
        snprintf(name, room, "%s%s", v->name, v->table ? ":rows" : "");
    else
        snprintf(name, room, "%s%s:slot%d", v->name, v->table ? ":rows" : "", k - 1);
    return name;
}

weft_tensor wf_snap_type(const struct wf_var *v, int k, int64_t total)
{
    int64_t rows[2] = {total, v->table ? v->dim[1] : 0};

    if (!v->table)
        return weft_view(WEFT_F32, NULL, v->rank, v->dim);
    return weft_view(k < 0 ? WEFT_I64 : WEFT_F32, NULL, k < 0 ? 1 : 2, rows);
}

static weft_status add(struct wf_arena *mem, const struct wf_snap_list *l, int var, int k,
                       struct wf_snap_item *it)
{
    const struct wf_var *v = &l->rules->var[var];

    it->var = var;
    it->k = k;
    it->piece.name = wf_snap_name(mem, v, k);
    it->piece.section = k > 0 ? "slot" : "param";
    it->piece.whole = wf_snap_type(v, k, v->table ? l->rows[var].total : 0);
    return it->piece.name ? WEFT_OK : wf_err(WEFT_ENOMEM, "names of a checkpoint");
}

static weft_status add_table(struct wf_arena *mem, const struct wf_snap_list *l, int var, int k,
                             struct wf_snap_item *it)
{
    int64_t width = k < 0 ? 1 : l->rules->var[var].dim[1];

    it->cut_piece = -1;
    it->piece.first = l->rows[var].first * width;
    it->piece.count = l->rows[var].n * width;
    return add(mem, l, var, k, it);
}

static weft_status add_run(struct wf_arena *mem, const struct wf_snap_list *l, int piece,
                           const struct wf_piece *run, int k, struct wf_snap_item *it)
{
    it->cut_piece = piece;
    it->at = run->at;
    it->piece.first = run->first;
    it->piece.count = run->n;
    return add(mem, l, run->var, k, it);
}

weft_status wf_snap_items(struct wf_arena *mem, const struct wf_snap_list *l,
                          struct wf_snap_item **out, int64_t *n)
{
    int64_t max = 1 + (int64_t)l->rules->n_vars * (2 + l->n_slots);
    struct wf_snap_item *it;
    bool first = l->n_pieces && l->piece[0] == 0; /* who also says that a table has no rows */
    weft_status st = WEFT_OK;

    for (int i = 0; i < l->n_pieces; i++)
        max += (int64_t)l->cut->piece[l->piece[i]].n_runs * (1 + l->n_slots);
    it = wf_arena_alloc(mem, (size_t)max * sizeof *it);
    if (!it)
        return wf_err(WEFT_ENOMEM, "a checkpoint of %lld items", (long long)max);
    memset(it, 0, (size_t)max * sizeof *it);
    *n = 0;
    for (int i = 0; i < l->n_pieces; i++) {
        const struct wf_cut_piece *p = &l->cut->piece[l->piece[i]];

        for (int r = 0; r < p->n_runs; r++)
            for (int k = 0; k <= l->n_slots && !st; k++)
                st = add_run(mem, l, l->piece[i], &p->run[r], k, &it[(*n)++]);
    }
    for (int v = 0; v < l->rules->n_vars; v++)
        for (int k = -1; k <= l->n_slots && !st; k++)
            if (l->rules->var[v].table && (l->rows[v].n || (first && !l->rows[v].total)))
                st = add_table(mem, l, v, k, &it[(*n)++]);
    *out = it;
    return st;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The rows of a table. */
struct rows {
    int64_t n;
    int64_t *id;
    float *data[1 + WF_OPTIM_MAX_SLOTS]; /* values and slots: [n][width] */
};

struct wf_ps_snapshot {
    weft_ctx *ctx;
    const struct wf_rules *rules;
    const struct wf_cut *cut;
    int n_slots, n_pieces;
    int *piece;
    float **dense; /* by place in the list: [1 + n_slots][count] */
    struct rows *rows;
    struct wf_arena mem;
    struct wf_snap_item *item;
    int64_t n_items;
};

void wf_ps_snapshot_free(struct wf_ps_snapshot *s)
{
    if (!s)
        return;
    for (int i = 0; s->dense && i < s->n_pieces; i++)
        wf_free(s->ctx, s->dense[i]);
    for (int v = 0; s->rows && v < s->rules->n_vars; v++) {
        wf_free(s->ctx, s->rows[v].id);
        for (int k = 0; k <= WF_OPTIM_MAX_SLOTS; k++)
            wf_free(s->ctx, s->rows[v].data[k]);
    }
    wf_arena_free(&s->mem);
    wf_free(s->ctx, s->dense);
    wf_free(s->ctx, s->rows);
    wf_free(s->ctx, s->piece);
    wf_free(s->ctx, s);
}

static weft_status copy_dense(struct wf_ps_snapshot *s, int i, const struct wf_held *h)
{
    int64_t n = s->cut->piece[s->piece[i]].count;
    float *to = wf_alloc_n(s->ctx, (1 + s->n_slots) * n + 1, sizeof *to);

    if (!to)
        return wf_err_nomem(s->ctx, (size_t)((1 + s->n_slots) * n) * sizeof *to,
                            "copy of parameters for a checkpoint");
    s->dense[i] = to;
    for (int k = 0; k <= s->n_slots && n; k++)
        memcpy(to + k * n, k ? h->slot[k - 1] : h->params[h->now], (size_t)n * sizeof *to);
    return WEFT_OK;
}

/* One row, by wf_tables_each. */
struct putting {
    struct rows *to;
    int64_t width;
    int n_slots;
};

static void count_row(void *arg, int64_t id, const float *row)
{
    (void)id;
    (void)row;
    ++*(int64_t *)arg;
}

static void put_row(void *arg, int64_t id, const float *row)
{
    const struct putting *p = arg;

    p->to->id[p->to->n] = id;
    for (int k = 0; k <= p->n_slots; k++)
        memcpy(p->to->data[k] + p->to->n * p->width, row + k * p->width,
               (size_t)p->width * sizeof *row);
    p->to->n++;
}

static weft_status copy_table(struct wf_ps_snapshot *s, const struct wf_ps_store *store, int var)
{
    struct putting p = {&s->rows[var], s->rules->var[var].dim[1], s->n_slots};
    int64_t n = 0;
    bool ok;

    for (int i = 0; i < s->n_pieces; i++)
        if (store->held[s->piece[i]].tables)
            wf_tables_each(store->held[s->piece[i]].tables, var, count_row, &n);
    p.to->id = wf_alloc_n(s->ctx, n + 1, sizeof *p.to->id);
    ok = p.to->id;
    for (int k = 0; k <= s->n_slots && ok; k++) {
        p.to->data[k] = wf_alloc_n(s->ctx, n * p.width + 1, sizeof *p.to->data[k]);
        ok = p.to->data[k];
    }
    if (!ok)
        return wf_err_nomem(s->ctx, (size_t)(n * p.width) * sizeof(float),
                            "copy of a table for a checkpoint");
    for (int i = 0; i < s->n_pieces; i++)
        if (store->held[s->piece[i]].tables)
            wf_tables_each(store->held[s->piece[i]].tables, var, put_row, &p);
    return WEFT_OK;
}

weft_status wf_ps_snapshot_new(weft_ctx *ctx, struct wf_ps_store *store, int n_pieces,
                               const int *pieces, struct wf_ps_snapshot **out)
{
    struct wf_ps_snapshot *s = wf_alloc(ctx, sizeof *s);
    weft_status st = WEFT_OK;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "checkpoint");
    s->ctx = ctx;
    s->rules = store->rules;
    s->cut = store->opts.cut;
    s->n_slots = store->n_slots;
    wf_arena_init(&s->mem, ctx);
    s->piece = wf_alloc_n(ctx, n_pieces + 1, sizeof *s->piece);
    s->dense = wf_alloc_n(ctx, n_pieces + 1, sizeof *s->dense);
    s->rows = wf_alloc_n(ctx, s->rules->n_vars + 1, sizeof *s->rows);
    if (!s->piece || !s->dense || !s->rows)
        st = wf_err_nomem(ctx, (size_t)n_pieces * sizeof *s->dense, "checkpoint");
    for (int i = 0; i < n_pieces && !st; i++) {
        s->piece[s->n_pieces++] = pieces[i];
        st = copy_dense(s, i, &store->held[pieces[i]]);
    }
    for (int v = 0; v < s->rules->n_vars && !st; v++)
        if (s->rules->var[v].table)
            st = copy_table(s, store, v);
    if (st) {
        wf_ps_snapshot_free(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

int64_t wf_ps_snapshot_rows(const struct wf_ps_snapshot *s, int var)
{
    return s->rows[var].n;
}

weft_status wf_ps_snapshot_place(struct wf_ps_snapshot *s, const struct wf_snap_rows *rows)
{
    struct wf_snap_list l = {s->rules, s->cut, s->n_slots, s->n_pieces, s->piece, rows};
    weft_status st;
    int i = 0;

    if (s->item)
        return WEFT_OK;
    for (int v = 0; v < s->rules->n_vars; v++)
        if (s->rules->var[v].table &&
            (rows[v].n != s->rows[v].n || rows[v].first < 0 || rows[v].total < 0 ||
             rows[v].first > rows[v].total - rows[v].n))
            return wf_err(WEFT_EPEER, "table '%s' has %lld rows here: not %lld of %lld from %lld",
                          s->rules->var[v].name, (long long)s->rows[v].n, (long long)rows[v].n,
                          (long long)rows[v].total, (long long)rows[v].first);
    st = wf_snap_items(&s->mem, &l, &s->item, &s->n_items);
    if (st) {
        s->item = NULL;
        return st;
    }
    for (int64_t j = 0; j < s->n_items; j++) {
        struct wf_snap_item *it = &s->item[j];

        if (it->cut_piece < 0) {
            it->piece.data = it->k < 0 ? (const void *)s->rows[it->var].id
                                       : (const void *)s->rows[it->var].data[it->k];
            continue;
        }
        while (s->piece[i] != it->cut_piece)
            i++;
        it->piece.data = s->dense[i] + it->k * s->cut->piece[it->cut_piece].count + it->at;
    }
    return WEFT_OK;
}

const struct wf_snap_item *wf_ps_snapshot_items(const struct wf_ps_snapshot *s, int64_t *n)
{
    *n = s->n_items;
    return s->item;
}
