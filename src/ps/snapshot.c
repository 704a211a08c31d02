/* snapshot.c - copies of a version, and the items of a checkpoint that they are. */
#include "ps/snapshot.h"

#include "ps/held.h"

#include <stdio.h>

/* ---- items ----------------------------------------------------------------------------------- */

enum { KEPT = WF_SNAP_FIRST, KEPT_IDS, SEEN, IDS };

bool wf_snap_has(const struct wf_var *v, int64_t kept, int k)
{
    return k >= 0 || (v->table && (k == IDS ? true : k == SEEN ? v->evict.every > 0 : kept >= 0));
}

int wf_snap_at(const struct wf_rules *r, int var, int k)
{
    return k <= KEPT_IDS ? r->n_vars + var : var;
}

const char *wf_snap_section(int k)
{
    return k > 0 || k <= SEEN ? "slot" : "param";
}

char *wf_snap_name(struct wf_arena *mem, const struct wf_var *v, int k)
{
    size_t room = strlen(v->name) + 32;
    static const char *const suffix[] = {"best:rows", "best:ids", "seen", "ids"};
    char *name = wf_arena_alloc(mem, room);

    if (!name)
        return NULL;
    if (k < 0)
        snprintf(name, room, "%s:%s", v->name, suffix[k - WF_SNAP_FIRST]);
    else if (k == 0)
        snprintf(name, room, "%s%s", v->name, v->table ? ":rows" : "");
    else
        snprintf(name, room, "%s%s:slot%d", v->name, v->table ? ":rows" : "", k - 1);
    return name;
}

bool wf_snap_is_slot(const struct wf_rules *r, const struct wf_var *v)
{
    const char *end = strrchr(v->name, ':');
    size_t n = end ? (size_t)(end - v->name) : 0;

    if (!end || strncmp(end, ":slot", 5) != 0)
        return false;
    for (int i = 0; i < r->n_vars; i++)
        if (strlen(r->var[i].name) == n && memcmp(r->var[i].name, v->name, n) == 0)
            return true;
    return false;
}

weft_tensor wf_snap_type(const struct wf_var *v, int k, int64_t total)
{
    bool whole = k == SEEN || k == KEPT_IDS || k == IDS;
    int64_t rows[2] = {total, whole ? 2 : v->table ? v->dim[1] : 0};

    if (!v->table)
        return weft_view(WEFT_F32, NULL, v->rank, v->dim);
    return weft_view(whole ? WEFT_I64 : WEFT_F32, NULL, k == IDS ? 1 : 2, rows);
}

static weft_status add(struct wf_arena *mem, const struct wf_snap_list *l, int var, int k,
                       struct wf_snap_item *it)
{
    const struct wf_var *v = &l->rules->var[var];

    it->var = var;
    it->k = k;
    it->piece.name = wf_snap_name(mem, v, k);
    it->piece.section = wf_snap_is_slot(l->rules, v) ? "slot" : wf_snap_section(k);
    it->piece.whole =
        wf_snap_type(v, k, v->table ? l->rows[wf_snap_at(l->rules, var, k)].total : 0);
    return it->piece.name ? WEFT_OK : wf_err(WEFT_ENOMEM, "names of a checkpoint");
}

static weft_status add_table(struct wf_arena *mem, const struct wf_snap_list *l, int var, int k,
                             struct wf_snap_item *it)
{
    const struct wf_snap_rows *rows = &l->rows[wf_snap_at(l->rules, var, k)];
    int64_t width = k == IDS ? 1 : k == SEEN || k == KEPT_IDS ? 2 : l->rules->var[var].dim[1];

    it->cut_piece = -1;
    it->piece.first = rows->first * width;
    it->piece.count = rows->n * width;
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
    int64_t max = 1 + (int64_t)l->rules->n_vars * (1 - WF_SNAP_FIRST + l->n_slots);
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
        for (int k = WF_SNAP_FIRST; k <= l->n_slots && l->rules->var[v].table && !st; k++) {
            const struct wf_snap_rows *rows = &l->rows[wf_snap_at(l->rules, v, k)];

            if (wf_snap_has(&l->rules->var[v], rows->total, k) &&
                (rows->n > 0 || (first && !rows->total)))
                st = add_table(mem, l, v, k, &it[(*n)++]);
        }
    *out = it;
    return st;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The rows of a table. Of values that are kept: an id, and whether the row existed. */
struct rows {
    int64_t n; /* -1: nothing is kept */
    int64_t *id;
    float *data[1 + WF_OPTIM_MAX_SLOTS]; /* values and slots: [n][width] */
    struct wf_seen *seen;                /* of a table that forgets rows */
};

struct wf_ps_snapshot {
    weft_ctx *ctx;
    const struct wf_rules *rules;
    const struct wf_cut *cut;
    int n_slots, n_pieces;
    int *piece;
    float **dense;     /* by place in the list: [1 + n_slots][count] */
    struct rows *rows; /* as in struct wf_snap_list */
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
    for (int v = 0; s->rows && v < 2 * s->rules->n_vars; v++) {
        wf_free(s->ctx, s->rows[v].id);
        wf_free(s->ctx, s->rows[v].seen);
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
    if (p->to->seen)
        memcpy(&p->to->seen[p->to->n], row + (p->n_slots + 1) * p->width, sizeof *p->to->seen);
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
    if (ok && s->rules->var[var].evict.every) {
        p.to->seen = wf_alloc_n(s->ctx, n + 1, sizeof *p.to->seen);
        ok = p.to->seen;
    }
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

static void count_kept(void *arg, int64_t id, bool existed, const float *row)
{
    (void)existed;
    count_row(arg, id, row);
}

static void put_kept(void *arg, int64_t id, bool existed, const float *row)
{
    const struct putting *p = arg;

    p->to->id[2 * p->to->n] = id;
    p->to->id[2 * p->to->n + 1] = existed;
    memcpy(p->to->data[0] + p->to->n * p->width, row, (size_t)p->width * sizeof *row);
    p->to->n++;
}

static weft_status copy_kept(struct wf_ps_snapshot *s, const struct wf_ps_store *store, int var)
{
    struct putting p = {&s->rows[s->rules->n_vars + var], s->rules->var[var].dim[1], 0};
    int64_t n = 0;
    bool any = false;

    for (int i = 0; i < s->n_pieces; i++) {
        const struct wf_tables *t = store->held[s->piece[i]].tables;

        any |= t && wf_tables_keeps(t);
        if (t)
            wf_tables_each_kept(t, var, count_kept, &n);
    }
    p.to->id = wf_alloc_n(s->ctx, 2 * n + 1, sizeof *p.to->id);
    p.to->data[0] = wf_alloc_n(s->ctx, n * p.width + 1, sizeof *p.to->data[0]);
    if (!p.to->id || !p.to->data[0])
        return wf_err_nomem(s->ctx, (size_t)(n * p.width) * sizeof(float),
                            "copy of a table's best values for a checkpoint");
    for (int i = 0; i < s->n_pieces; i++)
        if (store->held[s->piece[i]].tables)
            wf_tables_each_kept(store->held[s->piece[i]].tables, var, put_kept, &p);
    if (!any)
        p.to->n = -1;
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
    s->rows = wf_alloc_n(ctx, 2 * s->rules->n_vars + 1, sizeof *s->rows);
    if (!s->piece || !s->dense || !s->rows)
        st = wf_err_nomem(ctx, (size_t)n_pieces * sizeof *s->dense, "checkpoint");
    for (int i = 0; i < n_pieces && !st; i++) {
        s->piece[s->n_pieces++] = pieces[i];
        st = copy_dense(s, i, &store->held[pieces[i]]);
    }
    for (int v = 0; v < s->rules->n_vars && !st; v++)
        if (s->rules->var[v].table) {
            st = copy_table(s, store, v);
            st = st ? st : copy_kept(s, store, v);
        }
    if (st) {
        wf_ps_snapshot_free(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

int64_t wf_ps_snapshot_rows(const struct wf_ps_snapshot *s, int at)
{
    return s->rows[at].n;
}

/* Whether a run of a list is what this server has. */
static weft_status check_rows(const struct wf_ps_snapshot *s, int at, const struct wf_snap_rows *r)
{
    int64_t n = wf_max_i64(s->rows[at].n, 0);
    bool none = at >= s->rules->n_vars && r->total == -1 && s->rows[at].n < 0;

    if (none || (r->n == n && r->first >= 0 && r->total >= 0 && r->first <= r->total - n))
        return WEFT_OK;
    return wf_err(WEFT_EPEER, "table '%s' has %lld rows here: not %lld of %lld from %lld",
                  s->rules->var[at % s->rules->n_vars].name, (long long)s->rows[at].n,
                  (long long)r->n, (long long)r->total, (long long)r->first);
}

weft_status wf_ps_snapshot_place(struct wf_ps_snapshot *s, const struct wf_snap_rows *rows)
{
    struct wf_snap_list l = {s->rules, s->cut, s->n_slots, s->n_pieces, s->piece, rows};
    weft_status st = WEFT_OK;
    int i = 0;

    if (s->item)
        return WEFT_OK;
    for (int at = 0; at < 2 * s->rules->n_vars && !st; at++)
        if (s->rules->var[at % s->rules->n_vars].table)
            st = check_rows(s, at, &rows[at]);
    if (!st)
        st = wf_snap_items(&s->mem, &l, &s->item, &s->n_items);
    if (st) {
        s->item = NULL;
        return st;
    }
    for (int64_t j = 0; j < s->n_items; j++) {
        struct wf_snap_item *it = &s->item[j];

        if (it->cut_piece < 0) {
            const struct rows *of = &s->rows[wf_snap_at(s->rules, it->var, it->k)];

            it->piece.data = it->k == SEEN ? (const void *)of->seen
                             : it->k == IDS || it->k == KEPT_IDS
                                 ? (const void *)of->id
                                 : (const void *)of->data[wf_max_i64(it->k, 0)];
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
