/* contribution.c - what one shard gives to a step. */
#include "merge/lane.h"

static int64_t n_lists(const struct wf_rules *r)
{
    return (int64_t)r->n_groups * r->n_vars;
}

/* Memory for the dense gradients, if there is none. */
static weft_status get_dense(struct wf_contribution *c)
{
    int64_t n = c->rules->n_groups * c->rules->n_dense;

    if (!c->dense)
        c->dense = wf_alloc_n(c->ctx, n + 1, sizeof *c->dense);
    return c->dense ? WEFT_OK : wf_err_nomem(c->ctx, (size_t)n * sizeof *c->dense, "gradients");
}

weft_status wf_contribution_own(struct wf_contribution *c)
{
    int64_t n = c->rules->n_dense;
    weft_status st = get_dense(c);

    for (int k = 0; k < c->rules->n_groups && c->lent && !st; k++)
        memcpy(c->dense + k * n, wf_contribution_group(c, k), (size_t)n * sizeof *c->dense);
    if (!st)
        c->lent = NULL;
    return st;
}

static weft_status make(weft_ctx *ctx, const struct wf_rules *rules, bool lent,
                        struct wf_contribution **out)
{
    struct wf_contribution *c = wf_alloc(ctx, sizeof *c);
    weft_status st;

    if (!c)
        return wf_err_nomem(ctx, sizeof *c, "gradients");
    c->ctx = ctx;
    c->rules = rules;
    c->finite = true;
    c->rows = wf_alloc_n(ctx, n_lists(rules) + 1, sizeof *c->rows);
    c->sums = wf_alloc_n(ctx, rules->n_sums + 1, sizeof *c->sums);
    st = c->rows && c->sums
             ? WEFT_OK
             : wf_err_nomem(ctx, (size_t)rules->n_sums * sizeof *c->sums, "gradients");
    if (!st && !lent)
        st = wf_contribution_own(c);
    if (st) {
        wf_contribution_free(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

weft_status wf_contribution_new(weft_ctx *ctx, const struct wf_rules *rules,
                                struct wf_contribution **out)
{
    return make(ctx, rules, false, out);
}

weft_status wf_contribution_new_away(weft_ctx *ctx, const struct wf_rules *rules,
                                     struct wf_lane *lane, struct wf_contribution **out)
{
    struct wf_contribution *c;
    weft_status st = make(ctx, rules, true, &c);

    if (st)
        return st;
    st = wf_lane_get(lane, c);
    if (st) {
        wf_contribution_free(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

weft_status wf_contribution_new_lent(weft_ctx *ctx, const struct wf_rules *rules,
                                     struct wf_contribution **out)
{
    return make(ctx, rules, true, out);
}

void wf_contribution_free(struct wf_contribution *c)
{
    if (!c)
        return;
    for (int64_t i = 0; c->rows && i < n_lists(c->rules); i++) {
        wf_free(c->ctx, c->rows[i].id);
        wf_free(c->ctx, c->rows[i].row);
    }
    wf_free(c->ctx, c->rows);
    wf_lane_give(c);
    if (c->memory)
        c->memory->put(c->memory->arg, c->dense);
    else
        wf_free(c->ctx, c->dense);
    wf_free(c->ctx, c->sums);
    wf_free(c->ctx, c->scratch.mem);
    wf_free(c->ctx, c);
}

void wf_contribution_clear(struct wf_contribution *c)
{
    const struct wf_rules *r = c->rules;

    c->lent = NULL;

    memset(c->sums, 0, (size_t)r->n_sums * sizeof *c->sums);
    for (int64_t i = 0; i < n_lists(r); i++)
        c->rows[i].n = 0;
    c->finite = true;
}

weft_status wf_rows_reserve(weft_ctx *ctx, struct wf_rows *r, int64_t n, int64_t width)
{
    weft_status st = wf_grow(ctx, &r->id, &r->cap_ids, n, sizeof *r->id);

    return st ? st : wf_grow(ctx, &r->row, &r->cap_rows, n * width, sizeof *r->row);
}

weft_status wf_contribution_copy(struct wf_contribution *to, const struct wf_contribution *from)
{
    const struct wf_rules *r = to->rules;

    for (int64_t i = 0; i < n_lists(r); i++) {
        const struct wf_rows *x = &from->rows[i];
        int64_t width = r->var[i % r->n_vars].dim[1];
        weft_status st = x->n ? wf_rows_reserve(to->ctx, &to->rows[i], x->n, width) : WEFT_OK;

        if (st)
            return st;
        to->rows[i].n = x->n;
        if (x->n == 0)
            continue;
        memcpy(to->rows[i].id, x->id, (size_t)x->n * sizeof *x->id);
        memcpy(to->rows[i].row, x->row, (size_t)(x->n * width) * sizeof *x->row);
    }
    for (int k = 0; k < r->n_groups; k++)
        memcpy(to->dense + k * r->n_dense, wf_contribution_group(from, k),
               (size_t)r->n_dense * sizeof *to->dense);
    memcpy(to->sums, from->sums, (size_t)r->n_sums * sizeof *to->sums);
    to->finite = from->finite;
    return WEFT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A hash from id to position, a quarter full at most. */
struct places {
    int64_t size;
    int32_t *at; /* -1: free */
    int shift;
};

static weft_status places_new(weft_ctx *ctx, struct wf_scratch *scratch, int64_t n,
                              struct places *p)
{
    weft_status st;

    p->size = 16;
    while (p->size < 4 * n)
        p->size *= 2;
    p->shift = 64 - __builtin_ctzll((unsigned long long)p->size);
    st = wf_grow(ctx, &scratch->mem, &scratch->cap, p->size * (int64_t)sizeof *p->at, 1);
    if (st)
        return st;
    p->at = (int32_t *)(void *)scratch->mem;
    memset(p->at, 0xff, (size_t)p->size * sizeof *p->at);
    return WEFT_OK;
}

/* The slot of an id: its position, or a free one. */
static int32_t *place(struct places *p, const struct wf_rows *r, int64_t id)
{
    uint64_t h = (uint64_t)id * 0x9e3779b97f4a7c15u >> p->shift;

    while (p->at[h] >= 0 && r->id[p->at[h]] != id)
        h = (h + 1) & ((uint64_t)p->size - 1);
    return &p->at[h];
}

weft_status wf_rows_add(weft_ctx *ctx, struct wf_scratch *scratch, struct wf_rows *to,
                        const struct wf_rows *from, int64_t width, float factor)
{
    const struct wf_optim_fns *f = wf_optim_fns_at(ctx->simd);
    struct places p;
    weft_status st;

    if (from->n == 0)
        return WEFT_OK;
    st = wf_rows_reserve(ctx, to, to->n + from->n, width);
    if (!st)
        st = places_new(ctx, scratch, to->n + from->n, &p);
    if (st)
        return st;
    for (int64_t i = 0; i < to->n; i++)
        *place(&p, to, to->id[i]) = (int32_t)i;
    for (int64_t i = 0; i < from->n; i++) {
        int32_t *slot = place(&p, to, from->id[i]);
        const float *x = from->row + i * width;

        if (*slot < 0) {
            *slot = (int32_t)to->n;
            to->id[to->n] = from->id[i];
            f->scale_to(width, to->row + to->n++ * width, x, factor);
        } else {
            f->add_scaled(width, to->row + *slot * width, x, factor);
        }
    }
    return WEFT_OK;
}

weft_status wf_rows_collect(weft_ctx *ctx, struct wf_scratch *scratch, struct wf_pool *pool,
                            const weft_tensor *ids, const weft_tensor *rows, int64_t n_rows,
                            struct wf_rows *r)
{
    int64_t n = weft_tensor_count(ids), width = rows->rank ? rows->dim[rows->rank - 1] : 0;
    struct wf_dedupe d = {
        .ids = ids->data, .wide = ids->dtype == WEFT_I64, .id_stride = 1, .n = n, .n_rows = n_rows};
    int64_t links = wf_round_up(n * 4, 64);
    char *mem;
    weft_status st = wf_rows_reserve(ctx, r, n + 1, width);

    if (!st)
        st = wf_grow(ctx, &scratch->mem, &scratch->cap, 2 * links + wf_dedupe_scratch(n) + 64, 1);
    if (st)
        return st;
    mem = scratch->mem;
    d.rows = r->id;
    d.first = (int32_t *)(void *)mem;
    d.next = (int32_t *)(void *)(mem + links);
    d.scratch = mem + 2 * links;
    if (wf_dedupe_run(pool, &d, 1) >= 0) {
        st = wf_err(WEFT_EDATA, "id %lld at position %lld is not in [0, %lld)",
                    (long long)wf_get_int(ids->data, ids->dtype, d.bad), (long long)d.bad,
                    (long long)n_rows);
    } else {
        r->n = d.n_distinct;
        wf_dedupe_sum(wf_optim_fns_at(ctx->simd), pool, &d, width, rows->data, width, r->row);
    }
    return st;
}

enum { TILE = 4 * WF_NORM_BLOCK };

struct add_job {
    const struct wf_optim_fns *f;
    float *to;
    const float *from;
    int64_t n;
};

static void add_tile(void *arg, int64_t tile, int thread)
{
    const struct add_job *j = arg;
    int64_t at = tile * TILE;

    (void)thread;
    j->f->add(wf_min_i64(TILE, j->n - at), j->to + at, j->from + at);
}

static void add_dense(struct wf_pool *pool, struct add_job *j)
{
    wf_pool_for(pool, (j->n + TILE - 1) / TILE, add_tile, j);
}

weft_status wf_contribution_add(struct wf_pool *pool, struct wf_contribution *to,
                                struct wf_contribution *from)
{
    const struct wf_rules *r = to->rules;
    struct add_job j = {wf_optim_fns_at(to->ctx->simd), to->dense, from->dense,
                        r->n_groups * r->n_dense};

    for (int64_t i = 0; i < n_lists(r); i++) { /* first what may fail */
        weft_status st = wf_rows_add(to->ctx, &to->scratch, &to->rows[i], &from->rows[i],
                                     r->var[i % r->n_vars].dim[1], 1);

        if (st)
            return st;
    }
    if (to->away.lane) {
        weft_status st = wf_lane_add(to, from);

        if (st)
            return st;
    } else if (!from->lent) {
        add_dense(pool, &j);
    }
    for (int k = 0; k < r->n_groups && from->lent; k++) {
        j.to = to->dense + k * r->n_dense;
        j.from = wf_contribution_group(from, k);
        j.n = r->n_dense;
        add_dense(pool, &j);
    }
    for (int64_t i = 0; i < r->n_sums; i++)
        to->sums[i] += from->sums[i];
    to->finite &= from->finite;
    return WEFT_OK;
}
