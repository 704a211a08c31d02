/* bind_reduce.c - reductions on the kernels of reduce.h.
 *
 * The axes of x, neighbours of one kind joined, alternate between kept and reduced. Each reduced group is one
 * stage, [n_outer, n, n_inner] over n, the innermost first; every reduction here may be done so in stages. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/reduce.h"
#include "kernels/ref/ref.h"

enum { TILE = 16384, COLUMNS = 256 };

weft_status wf_plan_reduce(struct wf_kplan *p);
weft_status wf_plan_any_all(struct wf_kplan *p);
weft_status wf_plan_along(struct wf_kplan *p);
weft_status wf_plan_segment_sum(struct wf_kplan *p);
wf_kernel_fn wf_run_reduce, wf_run_any_all, wf_run_arg, wf_run_cumsum, wf_run_segment_sum;

struct reduce {
    const struct wf_reduce_fns *f;
    enum wf_reduce_op op;
    int n_stages;
    struct wf_reduce_shape stage[WEFT_MAX_RANK];
    int64_t n_in, n_out;
    /* scratch, in floats: x as f32, two results between stages, the result as f32, what the kernel wants */
    int64_t at_x, at_between[2], at_out, at_kernel;
    wf_cvt_fn *to_f32, *from_f32; /* for half types */
    int64_t in_size;
    bool all, min, exclusive, reverse;
};

/* ---- planning -------------------------------------------------------------------------------- */

static void gone_axes(const struct wf_kplan *p, bool gone[WEFT_MAX_RANK])
{
    const struct wf_type *x = &p->in[0], *y = &p->out[0];
    const struct wf_attr *axes;

    if (p->op->id == WF_OP_reduce_to_like) {
        for (int i = 0, skip = x->rank - y->rank; i < x->rank; i++)
            gone[i] = i < skip || y->dim[i - skip] == 1;
        return;
    }
    axes = wf_attr(p->op, p->attr, "axes");
    for (int i = 0; i < x->rank; i++)
        gone[i] = axes->n == 0;
    for (int i = 0; i < axes->n; i++)
        gone[axes->ints[i] < 0 ? axes->ints[i] + x->rank : axes->ints[i]] = true;
}

/* The stages, innermost group first. Sizes of 1 belong to either kind. */
static void cut_stages(struct reduce *s, const struct wf_type *x, const bool gone[WEFT_MAX_RANK])
{
    int64_t size[WEFT_MAX_RANK + 1], inner = 1;
    bool is_gone[WEFT_MAX_RANK + 1];
    int n = 0;

    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] == 1)
            continue;
        if (n && is_gone[n - 1] == gone[i]) {
            size[n - 1] *= x->dim[i];
            continue;
        }
        size[n] = x->dim[i];
        is_gone[n++] = gone[i];
    }
    for (int i = n - 1; i >= 0; i--) {
        struct wf_reduce_shape *g = &s->stage[s->n_stages];

        if (!is_gone[i]) {
            inner *= size[i];
            continue;
        }
        *g = (struct wf_reduce_shape){1, size[i], inner};
        for (int k = 0; k < i; k++)
            g->n_outer *= size[k];
        s->n_stages++;
    }
    if (!s->n_stages) /* only sizes of 1: reduce one of them */
        s->stage[s->n_stages++] = (struct wf_reduce_shape){s->n_in, 1, 1};
}

static enum wf_reduce_op reduce_op(int op_id)
{
    switch (op_id) {
    case WF_OP_mean: return WF_REDUCE_MEAN;
    case WF_OP_reduce_max: return WF_REDUCE_MAX;
    case WF_OP_reduce_min: return WF_REDUCE_MIN;
    case WF_OP_prod: return WF_REDUCE_PROD;
    case WF_OP_norm_l1: return WF_REDUCE_L1;
    case WF_OP_norm_l2: return WF_REDUCE_L2;
    case WF_OP_logsumexp: return WF_REDUCE_LOGSUMEXP;
    default: return WF_REDUCE_SUM;
    }
}

static weft_status new_state(struct wf_kplan *p, struct reduce **out)
{
    struct reduce *s = wf_arena_alloc(p->arena, sizeof *s);

    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, p->op->name);
    s->f = wf_reduce_fns_at(p->ctx->simd);
    s->n_in = wf_type_count(&p->in[0]);
    s->n_out = wf_type_count(&p->out[0]);
    p->state = s;
    *out = s;
    return WEFT_OK;
}

static int64_t after(const struct reduce *s, int stage)
{
    return s->stage[stage].n_outer * s->stage[stage].n_inner;
}

/* Where everything stands in scratch; a multiple of 16 floats each. */
static int64_t place(struct reduce *s)
{
    int64_t at = 0, kernel = 0;

    s->at_x = at;
    at += s->to_f32 ? wf_round_up(s->n_in, 16) : 0;
    for (int i = 0; i < 2; i++) {
        s->at_between[i] = at;
        at += i < s->n_stages - 1 ? wf_round_up(after(s, i), 16) : 0;
    }
    s->at_out = at;
    at += s->from_f32 ? wf_round_up(s->n_out, 16) : 0;
    s->at_kernel = at;
    for (int i = 0; i < s->n_stages; i++)
        kernel = wf_max_i64(kernel, wf_reduce_scratch(s->op, &s->stage[i]));
    return at + kernel;
}

weft_status wf_plan_reduce(struct wf_kplan *p)
{
    weft_dtype t = p->in[0].dtype;
    bool gone[WEFT_MAX_RANK], half = t == WEFT_F16 || t == WEFT_BF16;
    struct reduce *s;
    weft_status st;

    /* An empty x, of whose other sizes nothing is known, is left to the reference. */
    if ((t != WEFT_F32 && !half) || wf_type_count(&p->in[0]) == 0)
        return WEFT_ENOSUP;
    st = new_state(p, &s);
    if (st)
        return st;
    s->op = reduce_op(p->op->id);
    gone_axes(p, gone);
    cut_stages(s, &p->in[0], gone);
    if (half) {
        s->to_f32 = wf_cvt_fns_of(p->ctx->simd)->to_f32[t];
        s->from_f32 = wf_cvt_fns_of(p->ctx->simd)->from_f32[t];
        s->in_size = weft_dtype_size(t);
    }
    p->scratch_bytes = (size_t)place(s) * sizeof(float);
    return WEFT_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

struct widen {
    const struct wf_call *c;
    float *to;
};

static void widen_tile(void *arg, int64_t tile, int thread)
{
    const struct widen *w = arg;
    const struct reduce *s = w->c->state;
    int64_t first = tile * TILE;

    (void)thread;
    s->to_f32(w->to + first, (const char *)w->c->in[0].data + first * s->in_size,
              wf_min_i64(TILE, s->n_in - first));
}

weft_status wf_run_reduce(const struct wf_call *c)
{
    const struct reduce *s = c->state;
    float *mem = c->scratch, *to = NULL;
    const float *x = c->in[0].data;

    if (s->to_f32) {
        struct widen w = {c, mem + s->at_x};

        wf_pool_for(c->pool, (s->n_in + TILE - 1) / TILE, widen_tile, &w);
        x = w.to;
    }
    for (int i = 0; i < s->n_stages; i++) {
        to = i < s->n_stages - 1 ? mem + s->at_between[i % 2]
             : s->from_f32       ? mem + s->at_out
                                 : (float *)c->out[0].data;
        wf_reduce(s->f, c->pool, s->op, &s->stage[i], x, to, mem + s->at_kernel);
        x = to;
    }
    if (s->from_f32)
        s->from_f32(c->out[0].data, to, s->n_out);
    return WEFT_OK;
}

/* ---- booleans -------------------------------------------------------------------------------- */

weft_status wf_plan_any_all(struct wf_kplan *p)
{
    bool gone[WEFT_MAX_RANK];
    struct reduce *s;
    weft_status st;

    if (wf_type_count(&p->in[0]) == 0)
        return WEFT_ENOSUP;
    st = new_state(p, &s);
    if (st)
        return st;
    gone_axes(p, gone);
    cut_stages(s, &p->in[0], gone);
    s->all = p->op->id == WF_OP_all;
    return s->n_stages == 1 ? WEFT_OK : WEFT_ENOSUP;
}

weft_status wf_run_any_all(const struct wf_call *c)
{
    const struct reduce *s = c->state;

    (s->all ? wf_all : wf_any)(s->f, c->pool, &s->stage[0], c->in[0].data, c->out[0].data);
    return WEFT_OK;
}

/* ---- along one axis --------------------------------------------------------------------------- */

weft_status wf_plan_along(struct wf_kplan *p)
{
    const struct wf_type *x = &p->in[0];
    int64_t axis = wf_kplan_int(p, "axis");
    struct reduce *s;
    weft_status st;

    if (x->dtype != WEFT_F32 || wf_type_count(x) == 0)
        return WEFT_ENOSUP;
    axis += axis < 0 ? x->rank : 0;
    if (x->dim[axis] > INT32_MAX)
        return WEFT_ENOSUP;
    st = new_state(p, &s);
    if (st)
        return st;
    s->stage[0] = (struct wf_reduce_shape){1, x->dim[axis], 1};
    for (int64_t i = 0; i < x->rank; i++)
        *(i < axis ? &s->stage[0].n_outer : &s->stage[0].n_inner) *= i == axis ? 1 : x->dim[i];
    s->min = p->op->id == WF_OP_argmin;
    if (p->op->id == WF_OP_cumsum) {
        s->exclusive = wf_kplan_int(p, "exclusive");
        s->reverse = wf_kplan_int(p, "reverse");
    }
    return WEFT_OK;
}

weft_status wf_run_arg(const struct wf_call *c)
{
    const struct reduce *s = c->state;

    (s->min ? wf_argmin : wf_argmax)(s->f, c->pool, &s->stage[0], c->in[0].data, true,
                                     c->out[0].data);
    return WEFT_OK;
}

weft_status wf_run_cumsum(const struct wf_call *c)
{
    const struct reduce *s = c->state;

    wf_cumsum(s->f, c->pool, &s->stage[0], s->exclusive, s->reverse, c->in[0].data, c->out[0].data);
    return WEFT_OK;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Rows are added in f32 by blocks, and blocks in f64 (in scratch): a sum of very many small values keeps growing. A block is long
 * enough for adding it up to cost little, and a function of the shape. */
enum { BLOCK_ROWS = 512 };

struct segments {
    wf_ew_fn *add;
    int64_t n, n_segments, width, block;
    bool wide;
};

weft_status wf_plan_segment_sum(struct wf_kplan *p)
{
    const struct wf_type *x = &p->in[0];
    struct segments *s;

    if (x->dtype != WEFT_F32 || wf_type_count(x) == 0 || wf_type_count(&p->out[0]) == 0)
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, "segment_sum");
    *s = (struct segments){wf_ew_fns_of(p->ctx->simd)->fn[WF_EW_add],
                           x->dim[0],
                           p->out[0].dim[0],
                           wf_type_count(x) / x->dim[0],
                           wf_max_i64(BLOCK_ROWS, 16 * p->out[0].dim[0]),
                           p->in[1].dtype == WEFT_I64};
    if (s->n > s->block)
        p->scratch_bytes = (size_t)wf_type_count(&p->out[0]) * sizeof(double);
    p->state = s;
    return WEFT_OK;
}

static int64_t id_at(const struct segments *s, const void *ids, int64_t i)
{
    return s->wide ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}

static void clear_columns(const struct segments *s, float *y, int64_t n)
{
    for (int64_t r = 0; r < s->n_segments; r++)
        memset(y + r * s->width, 0, (size_t)n * sizeof *y);
}

/* The sums of a block to those of the blocks before; last: all of them into y. */
static void add_block(const struct segments *s, float *y, double *total, int64_t n, bool first,
                      bool last)
{
    for (int64_t r = 0; r < s->n_segments; r++)
        for (int64_t k = r * s->width; k < r * s->width + n; k++) {
            total[k] = first ? (double)y[k] : total[k] + (double)y[k];
            if (last)
                y[k] = (float)total[k];
        }
}

/* A tile owns columns: rows are added in their order whatever the threads. */
static void segment_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_call *c = arg;
    const struct segments *s = c->state;
    int64_t first = tile * COLUMNS, n = wf_min_i64(COLUMNS, s->width - first);
    const float *x = (const float *)c->in[0].data + first;
    float *y = (float *)c->out[0].data + first;

    (void)thread;
    for (int64_t from = 0; from < s->n; from += s->block) {
        int64_t end = wf_min_i64(from + s->block, s->n);

        clear_columns(s, y, n);
        for (int64_t i = from; i < end; i++) {
            float *to = y + id_at(s, c->in[1].data, i) * s->width;

            s->add(to, to, x + i * s->width, NULL, n, NULL);
        }
        if (s->n > s->block)
            add_block(s, y, (double *)c->scratch + first, n, from == 0, end == s->n);
    }
}

weft_status wf_run_segment_sum(const struct wf_call *c)
{
    const struct segments *s = c->state;

    for (int64_t i = 0; i < s->n; i++) {
        int64_t id = id_at(s, c->in[1].data, i);

        if (id < 0 || id >= s->n_segments)
            return wf_err(WEFT_EDATA, "segment_sum: ids[%lld] is %lld, there are %lld segments",
                          (long long)i, (long long)id, (long long)s->n_segments);
    }
    wf_pool_for(c->pool, (s->width + COLUMNS - 1) / COLUMNS, segment_tile, (void *)(uintptr_t)c);
    return WEFT_OK;
}
