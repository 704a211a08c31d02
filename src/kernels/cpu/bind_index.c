/* bind_index.c - reading and adding by index, one_hot and order, on the functions of move.h.
 *
 * Indices are i32 or i64; other integer types are left to the reference. Any tile may find a bad
 * index; the first one is reported. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/move.h"
#include "kernels/kernels.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels_index.def"
#undef KERNEL

/* Elements or rows per tile: enough work to be worth distributing. */
static int64_t per_tile(int64_t bytes)
{
    return wf_max_i64(1, 32768 / wf_max_i64(1, bytes));
}

static int64_t n_tiles(int64_t n, int64_t a_tile)
{
    return (n + a_tile - 1) / a_tile;
}

/* ---- gather ---------------------------------------------------------------------------------- */

struct gather_state {
    const struct wf_move_fns *f;
    struct wf_gather_dims d;
    bool wide;
    int64_t row_bytes, rows_per_tile;
};

struct gather_job {
    const struct gather_state *s;
    const char *x;
    const void *ids;
    char *y;
    _Atomic int64_t bad; /* the first position of a bad index */
};

static weft_status plan_rows(struct wf_kplan *p, struct wf_gather_dims d)
{
    struct gather_state *s;

    if (!wf_fast_ids(p->in[1].dtype))
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->f = wf_move_fns_at(p->ctx->simd);
    s->d = d;
    s->wide = p->in[1].dtype == WEFT_I64;
    s->row_bytes = d.inner * weft_dtype_size(p->in[0].dtype);
    s->rows_per_tile = per_tile(s->row_bytes);
    return WEFT_OK;
}

weft_status wf_plan_gather(struct wf_kplan *p)
{
    return plan_rows(p, wf_gather_dims(&p->in[0], &p->in[1], wf_kplan_int(p, "axis"),
                                       wf_kplan_int(p, "batch_dims")));
}

weft_status wf_plan_embedding(struct wf_kplan *p)
{
    return plan_rows(p, wf_gather_dims(&p->in[0], &p->in[1], 0, 0));
}

/* Copies a row of any length; single elements without a call. */
static inline void copy_row(const struct wf_move_fns *f, char *to, const char *from, int64_t bytes)
{
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else
        f->copy_runs(1, bytes, from, 0, to, 0);
}

/* Rows of y, counted over batch, outer and k. */
static void gather_tile(void *arg, int64_t tile, int thread)
{
    struct gather_job *j = arg;
    const struct gather_state *s = j->s;
    const struct wf_gather_dims *d = &s->d;
    int64_t row = tile * s->rows_per_tile;
    int64_t end = wf_min_i64(row + s->rows_per_tile, d->batch * d->outer * d->k);
    int64_t pair = row / d->k, k = row % d->k;

    (void)thread;
    for (; row < end; row++) {
        int64_t at = pair / d->outer * d->k + k, id = wf_id_at(j->ids, s->wide, at);

        if (id < 0 || id >= d->n)
            wf_lower(&j->bad, at);
        else
            copy_row(s->f, j->y + row * s->row_bytes, j->x + (pair * d->n + id) * s->row_bytes,
                     s->row_bytes);
        if (++k == d->k) {
            k = 0;
            pair++;
        }
    }
}

weft_status wf_run_gather(const struct wf_call *c)
{
    const struct gather_state *s = c->state;
    int64_t pairs = s->d.batch * s->d.outer, bad;
    struct gather_job j = {s, c->in[0].data, c->in[1].data, c->out[0].data, INT64_MAX};
    struct wf_gather g = {c->in[0].data, s->d.n, s->row_bytes,   c->in[1].data,
                          s->wide,       1,      c->out[0].data, s->row_bytes};

    if (!s->d.k)
        return WEFT_OK;
    if (pairs == 1) {
        bad = wf_gather_rows(s->f, c->pool, &g, 1, s->d.k, NULL);
    } else {
        wf_pool_for(c->pool, n_tiles(pairs * s->d.k, s->rows_per_tile), gather_tile, &j);
        bad = j.bad == INT64_MAX ? -1 : j.bad;
    }
    return bad < 0 ? WEFT_OK : wf_bad_index(c, &c->in[1], bad, s->d.n);
}

/* ---- gather_nd ------------------------------------------------------------------------------- */

/* Vectors of `depth` indices into the first axes of a type, as row numbers. */
struct vectors {
    bool wide;
    int depth;
    int64_t dim[WEFT_MAX_RANK];
};

static struct vectors vectors_of(const struct wf_type *ids, const struct wf_type *into)
{
    struct vectors v = {.wide = ids->dtype == WEFT_I64, .depth = (int)ids->dim[ids->rank - 1]};

    memcpy(v.dim, into->dim, sizeof v.dim);
    return v;
}

/* The row that vector k names; -1 if one of its indices, *at, is out of range. */
static int64_t row_of_vector(const struct vectors *v, const void *ids, int64_t k, int *at)
{
    int64_t row = 0;

    for (int a = 0; a < v->depth; a++) {
        int64_t id = wf_id_at(ids, v->wide, k * v->depth + a);

        if (id < 0 || id >= v->dim[a]) {
            *at = a;
            return -1;
        }
        row = row * v->dim[a] + id;
    }
    return row;
}

static weft_status bad_vector(const struct wf_call *c, const struct vectors *v, const void *ids,
                              int64_t k)
{
    int a = 0;

    row_of_vector(v, ids, k, &a);
    return wf_err(WEFT_EDATA, "%s: index %lld at position [%lld,%d] is not in 0..%lld", c->op->name,
                  (long long)wf_id_at(ids, v->wide, k * v->depth + a), (long long)k, a,
                  (long long)v->dim[a] - 1);
}

struct gather_nd_state {
    const struct wf_move_fns *f;
    struct vectors v;
    int64_t n, row_bytes, rows_per_tile;
};

struct gather_nd_job {
    const struct gather_nd_state *s;
    const char *x;
    const void *ids;
    char *y;
    _Atomic int64_t bad;
};

weft_status wf_plan_gather_nd(struct wf_kplan *p)
{
    const struct wf_type *x = &p->in[0], *ids = &p->in[1];
    struct gather_nd_state *s;

    if (!wf_fast_ids(ids->dtype))
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->f = wf_move_fns_at(p->ctx->simd);
    s->v = vectors_of(ids, x);
    s->n = wf_type_part(ids, 0, ids->rank - 1);
    s->row_bytes = wf_type_part(x, s->v.depth, x->rank) * weft_dtype_size(x->dtype);
    s->rows_per_tile = per_tile(s->row_bytes);
    return WEFT_OK;
}

static void gather_nd_tile(void *arg, int64_t tile, int thread)
{
    struct gather_nd_job *j = arg;
    const struct gather_nd_state *s = j->s;
    int64_t end = wf_min_i64((tile + 1) * s->rows_per_tile, s->n);

    (void)thread;
    for (int64_t k = tile * s->rows_per_tile; k < end; k++) {
        int a;
        int64_t row = row_of_vector(&s->v, j->ids, k, &a);

        if (row < 0)
            wf_lower(&j->bad, k);
        else
            copy_row(s->f, j->y + k * s->row_bytes, j->x + row * s->row_bytes, s->row_bytes);
    }
}

weft_status wf_run_gather_nd(const struct wf_call *c)
{
    const struct gather_nd_state *s = c->state;
    struct gather_nd_job j = {s, c->in[0].data, c->in[1].data, c->out[0].data, INT64_MAX};

    wf_pool_for(c->pool, n_tiles(s->n, s->rows_per_tile), gather_nd_tile, &j);
    return j.bad == INT64_MAX ? WEFT_OK : bad_vector(c, &s->v, j.ids, j.bad);
}

/* ---- scatter --------------------------------------------------------------------------------- */

/* y[ids[k]] += x[k], rows of `width` floats. In `scratch`: what wf_dedupe needs, one after
 * another. */
struct scatter_state {
    const struct wf_optim_fns *f;
    bool wide, by_vector; /* by_vector: ids are vectors of indices */
    int ids, x;           /* operands */
    struct vectors v;
    int64_t n, n_rows, width;
    size_t rows_at, first_at, next_at, table_at; /* in scratch; the rows of vectors are at 0 */
};

static weft_status plan_scatter(struct wf_kplan *p, int ids, int x, int64_t n, int64_t n_rows)
{
    struct scatter_state *s;
    size_t at = 0;

    if (!wf_fast_ids(p->in[ids].dtype) || p->in[x].dtype != WEFT_F32 || n >= 1 << 30)
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->f = wf_optim_fns_at(p->ctx->simd);
    s->wide = p->in[ids].dtype == WEFT_I64;
    s->ids = ids;
    s->x = x;
    s->n = n;
    s->n_rows = n_rows;
    s->width = n_rows ? wf_type_count(&p->out[0]) / n_rows : 0;
    s->rows_at = at = (size_t)wf_round_up(n * 8, 64);
    s->first_at = at += (size_t)wf_round_up(n * 8, 64);
    s->next_at = at += (size_t)wf_round_up(n * 4, 64);
    s->table_at = at += (size_t)wf_round_up(n * 4, 64);
    p->scratch_bytes = at + (size_t)wf_dedupe_scratch(wf_max_i64(n, 1));
    return WEFT_OK;
}

weft_status wf_plan_scatter_add(struct wf_kplan *p)
{
    return plan_scatter(p, 0, 1, wf_type_count(&p->in[0]), p->out[0].dim[0]);
}

weft_status wf_plan_embedding_grad(struct wf_kplan *p)
{
    return wf_plan_scatter_add(p);
}

/* Without batch and outer axes: whole rows. */
weft_status wf_plan_gather_grad_rows(struct wf_kplan *p)
{
    struct wf_gather_dims d = wf_gather_dims(&p->out[0], &p->in[1], wf_kplan_int(p, "axis"),
                                             wf_kplan_int(p, "batch_dims"));

    if (d.batch != 1 || d.outer != 1)
        return WEFT_ENOSUP;
    return plan_scatter(p, 1, 0, d.k, d.n);
}

weft_status wf_plan_scatter_nd_add(struct wf_kplan *p)
{
    const struct wf_type *ids = &p->in[0], *y = &p->out[0];
    struct vectors v = vectors_of(ids, y);
    weft_status st =
        plan_scatter(p, 0, 1, wf_type_part(ids, 0, ids->rank - 1), wf_type_part(y, 0, v.depth));

    if (!st) {
        struct scatter_state *s = (struct scatter_state *)(uintptr_t)p->state;

        s->by_vector = true;
        s->v = v;
    }
    return st;
}

/* The rows of all vectors into scratch. */
static weft_status rows_of_vectors(const struct wf_call *c, const struct scatter_state *s,
                                   const void *ids, int64_t *rows)
{
    for (int64_t k = 0; k < s->n; k++) {
        int a;

        rows[k] = row_of_vector(&s->v, ids, k, &a);
        if (rows[k] < 0)
            return bad_vector(c, &s->v, ids, k);
    }
    return WEFT_OK;
}

weft_status wf_run_scatter(const struct wf_call *c)
{
    const struct scatter_state *s = c->state;
    char *scratch = c->scratch;
    float *y = c->out[0].data;
    struct wf_dedupe d = {
        .ids = s->by_vector ? c->scratch : c->in[s->ids].data,
        .wide = s->wide || s->by_vector,
        .id_stride = 1,
        .n = s->n,
        .n_rows = s->n_rows,
        .scratch = scratch + s->table_at,
        .rows = (int64_t *)(void *)(scratch + s->rows_at),
        .first = (int32_t *)(void *)(scratch + s->first_at),
        .next = (int32_t *)(void *)(scratch + s->next_at),
    };
    weft_status st = WEFT_OK;

    if (s->by_vector)
        st = rows_of_vectors(c, s, c->in[s->ids].data, c->scratch);
    if (!st && s->n && wf_dedupe_run(c->pool, &d, 1) >= 0)
        st = wf_bad_index(c, &c->in[s->ids], d.bad, s->n_rows);
    if (st)
        return st;
    wf_fill(c->pool, 4, s->n_rows * s->width, &(float){0}, y);
    if (s->n && s->width)
        wf_scatter_add_rows(s->f, c->pool, &d, s->width, c->in[s->x].data, s->width, y);
    return WEFT_OK;
}

/* ---- gather's gradient, batched -------------------------------------------------------------- */

struct gather_grad_state {
    wf_ew_fn *add;
    struct wf_gather_dims d;
    bool wide;
};

struct gather_grad_job {
    const struct gather_grad_state *s;
    const float *dy;
    const void *ids;
    float *dx;
};

weft_status wf_plan_gather_grad(struct wf_kplan *p)
{
    struct gather_grad_state *s;

    if (!wf_fast_ids(p->in[1].dtype) || p->in[0].dtype != WEFT_F32)
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->add = wf_ew_fns_of(p->ctx->simd)->fn[WF_EW_add];
    s->d = wf_gather_dims(&p->out[0], &p->in[1], wf_kplan_int(p, "axis"),
                          wf_kplan_int(p, "batch_dims"));
    s->wide = p->in[1].dtype == WEFT_I64;
    return WEFT_OK;
}

/* One batch item and outer index: n rows of dx, k of dy, added in order. */
static void gather_grad_tile(void *arg, int64_t pair, int thread)
{
    const struct gather_grad_job *j = arg;
    const struct wf_gather_dims *d = &j->s->d;
    float *dx = j->dx + pair * d->n * d->inner;
    const float *dy = j->dy + pair * d->k * d->inner;
    int64_t at = pair / d->outer * d->k;

    (void)thread;
    memset(dx, 0, (size_t)(d->n * d->inner) * sizeof *dx);
    for (int64_t k = 0; k < d->k; k++) {
        float *to = dx + wf_id_at(j->ids, j->s->wide, at + k) * d->inner;

        if (d->inner == 1)
            *to += dy[k];
        else
            j->s->add(to, to, dy + k * d->inner, NULL, d->inner, NULL);
    }
}

weft_status wf_run_gather_grad(const struct wf_call *c)
{
    const struct gather_grad_state *s = c->state;
    struct gather_grad_job j = {s, c->in[0].data, c->in[1].data, c->out[0].data};
    int64_t bad = wf_find_bad(j.ids, s->wide, s->d.batch * s->d.k, s->d.n);

    if (bad >= 0)
        return wf_bad_index(c, &c->in[1], bad, s->d.n);
    if (s->d.inner)
        wf_pool_for(c->pool, s->d.batch * s->d.outer, gather_grad_tile, &j);
    return WEFT_OK;
}

/* ---- take_along ------------------------------------------------------------------------------ */

/* x [outer][n][inner], ids and y [outer][k][inner]. */
struct take_state {
    int64_t outer, n, k, inner;
    bool wide;
    int size;
    int64_t rows_per_tile; /* rows are the inner axes of ids */
};

struct take_job {
    const struct take_state *s;
    const char *x;
    const void *ids;
    char *y;
    _Atomic int64_t bad;
};

static weft_status plan_take(struct wf_kplan *p, const struct wf_type *x, const struct wf_type *ids)
{
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), x->rank);
    struct take_state *s;

    if (!wf_fast_ids(ids->dtype))
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    *s = (struct take_state){
        .outer = wf_type_part(x, 0, axis),
        .n = x->dim[axis],
        .k = ids->dim[axis],
        .inner = wf_type_part(x, axis + 1, x->rank),
        .wide = ids->dtype == WEFT_I64,
        .size = (int)weft_dtype_size(p->in[0].dtype),
    };
    s->rows_per_tile = per_tile(s->inner * s->size);
    return WEFT_OK;
}

weft_status wf_plan_take_along(struct wf_kplan *p)
{
    return plan_take(p, &p->in[0], &p->in[1]);
}

weft_status wf_plan_take_along_grad(struct wf_kplan *p)
{
    return p->in[0].dtype == WEFT_F32 ? plan_take(p, &p->out[0], &p->in[1]) : WEFT_ENOSUP;
}

/* Elements [at, end) of ids and y, all of one outer index, whose elements of x start at `base`.
 * Inlined with what is constant. */
static inline __attribute__((always_inline)) void take(struct take_job *j, int64_t at, int64_t end,
                                                       int64_t base, int64_t inner, bool wide,
                                                       size_t size)
{
    const char *x = j->x + (size_t)(base * inner) * size;
    int64_t n = j->s->n, i = at % inner;

    for (; at < end; at++) {
        int64_t id = wf_id_at(j->ids, wide, at);

        if (id < 0 || id >= n)
            wf_lower(&j->bad, at);
        else
            memcpy(j->y + (size_t)at * size, x + (size_t)(id * inner + i) * size, size);
        if (++i == inner)
            i = 0;
    }
}

static void take_tile(void *arg, int64_t tile, int thread)
{
    struct take_job *j = arg;
    const struct take_state *s = j->s;
    int64_t row = tile * s->rows_per_tile,
            end = wf_min_i64(row + s->rows_per_tile, s->outer * s->k);

    (void)thread;
    while (row < end) {
        int64_t outer = row / s->k, stop = wf_min_i64((outer + 1) * s->k, end);

        if (s->size == 4 && s->inner == 1 && !s->wide)
            take(j, row, stop, outer * s->n, 1, false, 4);
        else if (s->size == 4)
            take(j, row * s->inner, stop * s->inner, outer * s->n, s->inner, s->wide, 4);
        else
            take(j, row * s->inner, stop * s->inner, outer * s->n, s->inner, s->wide,
                 (size_t)s->size);
        row = stop;
    }
}

weft_status wf_run_take_along(const struct wf_call *c)
{
    const struct take_state *s = c->state;
    struct take_job j = {s, c->in[0].data, c->in[1].data, c->out[0].data, INT64_MAX};

    if (s->inner)
        wf_pool_for(c->pool, n_tiles(s->outer * s->k, s->rows_per_tile), take_tile, &j);
    return j.bad == INT64_MAX ? WEFT_OK : wf_bad_index(c, &c->in[1], j.bad, s->n);
}

struct take_grad_job {
    const struct take_state *s;
    const float *dy;
    const void *ids;
    float *dx;
};

/* One outer index; addends of one position come in the order of k. */
static void take_grad_tile(void *arg, int64_t outer, int thread)
{
    const struct take_grad_job *j = arg;
    const struct take_state *s = j->s;
    float *dx = j->dx + outer * s->n * s->inner;

    (void)thread;
    memset(dx, 0, (size_t)(s->n * s->inner) * sizeof *dx);
    for (int64_t k = 0; k < s->k; k++)
        for (int64_t i = 0; i < s->inner; i++) {
            int64_t at = (outer * s->k + k) * s->inner + i;

            dx[wf_id_at(j->ids, s->wide, at) * s->inner + i] += j->dy[at];
        }
}

weft_status wf_run_take_along_grad(const struct wf_call *c)
{
    const struct take_state *s = c->state;
    struct take_grad_job j = {s, c->in[0].data, c->in[1].data, c->out[0].data};
    int64_t bad = wf_find_bad(j.ids, s->wide, s->outer * s->k * s->inner, s->n);

    if (bad >= 0)
        return wf_bad_index(c, &c->in[1], bad, s->n);
    if (s->n && s->inner)
        wf_pool_for(c->pool, s->outer, take_grad_tile, &j);
    return WEFT_OK;
}

/* ---- one_hot --------------------------------------------------------------------------------- */

struct one_hot_state {
    int size;
    int64_t outer, depth, inner;
    bool wide, allow_outside;
    uint64_t on, off;
};

weft_status wf_plan_one_hot(struct wf_kplan *p)
{
    const struct wf_type *y = &p->out[0];
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), y->rank);
    struct one_hot_state *s;

    if (!wf_fast_ids(p->in[0].dtype))
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->size = (int)weft_dtype_size(y->dtype);
    s->outer = wf_type_part(y, 0, axis);
    s->depth = y->dim[axis];
    s->inner = wf_type_part(y, axis + 1, y->rank);
    s->wide = p->in[0].dtype == WEFT_I64;
    s->allow_outside = wf_kplan_int(p, "allow_outside");
    wf_set(&s->on, y->dtype, 0, wf_kplan_float(p, "on"));
    wf_set(&s->off, y->dtype, 0, wf_kplan_float(p, "off"));
    return WEFT_OK;
}

weft_status wf_run_one_hot(const struct wf_call *c)
{
    const struct one_hot_state *s = c->state;
    int64_t bad = wf_one_hot(c->pool, s->size, s->outer, s->depth, s->inner, c->in[0].data, s->wide,
                             s->allow_outside, &s->on, &s->off, c->out[0].data);

    return bad < 0 ? WEFT_OK : wf_bad_index(c, &c->in[0], bad, s->depth);
}

/* ---- order ----------------------------------------------------------------------------------- */

struct order_state {
    enum wf_sort_type type;
    bool descending;
    int64_t outer, n, k, inner;
};

static weft_status plan_order(struct wf_kplan *p, int axis)
{
    const struct wf_type *x = &p->in[0];
    struct order_state *s;

    if (x->dtype != WEFT_F32 && x->dtype != WEFT_I32)
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->type = x->dtype == WEFT_F32 ? WF_SORT_F32 : WF_SORT_I32;
    s->outer = wf_type_part(x, 0, axis);
    s->n = x->dim[axis];
    s->k = p->out[0].dim[axis];
    s->inner = wf_type_part(x, axis + 1, x->rank);
    p->scratch_bytes = (size_t)wf_sort_scratch(s->n) * (size_t)p->n_threads;
    return WEFT_OK;
}

weft_status wf_plan_top_k(struct wf_kplan *p)
{
    return plan_order(p, p->in[0].rank - 1);
}

weft_status wf_plan_sort(struct wf_kplan *p)
{
    weft_status st = plan_order(p, wf_axis_of(wf_kplan_int(p, "axis"), p->in[0].rank));

    if (!st)
        ((struct order_state *)(uintptr_t)p->state)->descending = wf_kplan_int(p, "descending");
    return st;
}

weft_status wf_run_top_k(const struct wf_call *c)
{
    const struct order_state *s = c->state;

    if (s->k)
        wf_top_k(c->pool, s->type, s->outer, s->n, s->k, c->in[0].data, c->out[0].data, false,
                 c->out[1].data, c->scratch);
    return WEFT_OK;
}

weft_status wf_run_sort(const struct wf_call *c)
{
    const struct order_state *s = c->state;

    if (s->n)
        wf_sort(c->pool, s->type, s->descending, s->outer, s->n, s->inner, c->in[0].data,
                c->out[0].data, false, c->out[1].data, c->scratch);
    return WEFT_OK;
}
