/* bind_ew.c - element-wise ops by themselves: one-step programs (prog.h), casts, sums of many, constants. */
#include "kernels/cpu/prog.h"

enum { TILE = 16384, BLOCK = 1024 };

weft_status wf_plan_ew(struct wf_kplan *p);
weft_status wf_plan_broadcast(struct wf_kplan *p);
weft_status wf_plan_add_n(struct wf_kplan *p);
weft_status wf_plan_cast(struct wf_kplan *p);
weft_status wf_plan_fill(struct wf_kplan *p);
wf_kernel_fn wf_run_add_n, wf_run_cast, wf_run_fill;

static int64_t n_tiles(int64_t count)
{
    return (count + TILE - 1) / TILE;
}

static int64_t tile_size(int64_t count, int64_t tile)
{
    return wf_min_i64(TILE, count - tile * TILE);
}

/* ---- programs of one step -------------------------------------------------------------------- */

/* What a register of floats holds without loss. */
static bool fits_f32(weft_dtype t)
{
    return t == WEFT_F32 || t == WEFT_F16 || t == WEFT_BF16 || t == WEFT_BOOL;
}

static struct wf_attr *slot(const struct wf_op *op, struct wf_attr *attr, const char *name)
{
    int i = 0;

    while (i < op->n_attrs - 1 && strcmp(op->attr[i].name, name))
        i++;
    return &attr[i];
}

/* The program that applies `op_id` to the first n_in operands; its numbers are p's, in the order of the row. */
static weft_status plan_step(struct wf_kplan *p, int op_id, int n_in)
{
    const struct wf_op *fused = wf_op_row(p->ctx, WF_OP_fused);
    struct wf_attr attr[WF_MAX_ATTRS] = {{0}};
    int64_t prog[] = {op_id, 0, n_in > 1 ? 1 : -1, n_in > 2 ? 2 : -1, 0}, outs[] = {n_in};
    double params[WF_MAX_ATTRS];
    int n_params = 0;
    struct wf_kplan q = *p;
    struct wf_prog *g = NULL;
    weft_status st;

    for (int i = 0; i < n_in; i++)
        if (!fits_f32(p->in[i].dtype))
            return WEFT_ENOSUP;
    if (!fits_f32(p->out[0].dtype))
        return WEFT_ENOSUP;
    for (int i = 0; i < p->op->n_attrs; i++)
        if (p->attr[i].kind == WF_FLOAT)
            params[n_params++] = p->attr[i].f;
    *slot(fused, attr, "prog") =
        (struct wf_attr){.kind = WF_INTS, .n = WF_COUNT(prog), .ints = prog};
    *slot(fused, attr, "params") =
        (struct wf_attr){.kind = WF_FLOATS, .n = n_params, .floats = params};
    *slot(fused, attr, "outs") =
        (struct wf_attr){.kind = WF_INTS, .n = WF_COUNT(outs), .ints = outs};
    q.op = fused;
    q.attr = attr;
    st = wf_prog_compile(&q, n_in, p->in, false, &p->out[0], &g);
    if (st)
        return st;
    p->state = g;
    p->scratch_bytes = (size_t)(g->thread_floats * p->n_threads) * sizeof(float);
    return WEFT_OK;
}

weft_status wf_plan_ew(struct wf_kplan *p)
{
    return plan_step(p, p->op->id, p->n_in);
}

weft_status wf_plan_broadcast(struct wf_kplan *p)
{
    return plan_step(p, WF_OP_identity, 1);
}

/* ---- add_n ----------------------------------------------------------------------------------- */

struct add_n {
    wf_ew_fn *add;
    int64_t count;
};

weft_status wf_plan_add_n(struct wf_kplan *p)
{
    struct add_n *s;

    if (!wf_kplan_all(p, WEFT_F32))
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, "add_n");
    s->add = wf_ew_fns_of(p->ctx->simd)->fn[WF_EW_add];
    s->count = wf_type_count(&p->out[0]);
    p->state = s;
    return WEFT_OK;
}

/* The sum grows in a block of its own: an operand may stand twice, once where the result goes. */
static void add_n_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_call *c = arg;
    const struct add_n *s = c->state;
    int64_t end = tile * TILE + tile_size(s->count, tile);
    float sum[BLOCK];

    (void)thread;
    for (int64_t at = tile * TILE; at < end; at += BLOCK) {
        int64_t n = wf_min_i64(BLOCK, end - at);

        memcpy(sum, (const float *)c->in[0].data + at, (size_t)n * sizeof *sum);
        for (int i = 1; i < c->n_in; i++)
            s->add(sum, sum, (const float *)c->in[i].data + at, NULL, n, NULL);
        memcpy((float *)c->out[0].data + at, sum, (size_t)n * sizeof *sum);
    }
}

weft_status wf_run_add_n(const struct wf_call *c)
{
    const struct add_n *s = c->state;

    wf_pool_for(c->pool, n_tiles(s->count), add_n_tile, (void *)(uintptr_t)c);
    return WEFT_OK;
}

/* ---- cast ------------------------------------------------------------------------------------ */

struct cast {
    wf_cvt_fn *direct;            /* from one to the other, or NULL: */
    wf_cvt_fn *to_f32, *from_f32; /* through f32, where that loses nothing */
    int64_t count, from_size, to_size;
};

/* Between integers, wrapping around; to bool by comparing with 0. */
#define INT_CAST(from, to, expr)                                          \
    static void cast_##from##_##to(void *dst, const void *src, int64_t n) \
    {                                                                     \
        const from##_t *x = src;                                          \
        to##_t *y = dst;                                                  \
                                                                          \
        for (int64_t i = 0; i < n; i++)                                   \
            y[i] = expr;                                                  \
    }
#define INT_CASTS(from)                                                     \
    INT_CAST(from, int8, (int8_t)x[i])                                      \
    INT_CAST(from, uint8, (uint8_t)x[i])                                    \
    INT_CAST(from, int32, (int32_t)x[i])                                    \
    INT_CAST(from, int64, (int64_t)x[i])                                    \
    static void cast_##from##_bool(void *dst, const void *src, int64_t n)   \
    {                                                                       \
        const from##_t *x = src;                                            \
        uint8_t *y = dst;                                                   \
                                                                            \
        for (int64_t i = 0; i < n; i++)                                     \
            y[i] = x[i] != 0;                                               \
    }                                                                       \
    static wf_cvt_fn *const from_##from[WEFT_N_DTYPES] = {                  \
        [WEFT_I8] = cast_##from##_int8,   [WEFT_U8] = cast_##from##_uint8,  \
        [WEFT_I32] = cast_##from##_int32, [WEFT_I64] = cast_##from##_int64, \
        [WEFT_BOOL] = cast_##from##_bool,                                   \
    };

INT_CASTS(int8)
INT_CASTS(uint8)
INT_CASTS(int32)
INT_CASTS(int64)

static wf_cvt_fn *int_cast(weft_dtype from, weft_dtype to)
{
    switch (from) {
    case WEFT_I8: return from_int8[to];
    case WEFT_U8:
    case WEFT_BOOL: return from_uint8[to];
    case WEFT_I32: return from_int32[to];
    case WEFT_I64: return from_int64[to];
    default: return NULL;
    }
}

weft_status wf_plan_cast(struct wf_kplan *p)
{
    weft_dtype from = p->in[0].dtype, to = p->out[0].dtype;
    const struct wf_cvt_fns *cvt = wf_cvt_fns_of(p->ctx->simd);
    struct cast *s = wf_arena_alloc(p->arena, sizeof *s);

    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, "cast");
    s->direct = to == WEFT_F32     ? cvt->to_f32[from]
                : from == WEFT_F32 ? cvt->from_f32[to]
                                   : int_cast(from, to);
    if (!s->direct && (fits_f32(from) || from == WEFT_I8 || from == WEFT_U8)) {
        s->to_f32 = cvt->to_f32[from];
        s->from_f32 = cvt->from_f32[to];
    } else if (!s->direct) {
        return WEFT_ENOSUP;
    }
    s->count = wf_type_count(&p->out[0]);
    s->from_size = weft_dtype_size(from);
    s->to_size = weft_dtype_size(to);
    p->state = s;
    return WEFT_OK;
}

static void cast_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_call *c = arg;
    const struct cast *s = c->state;
    int64_t end = tile * TILE + tile_size(s->count, tile);
    float x[BLOCK];

    (void)thread;
    for (int64_t at = tile * TILE; at < end; at += BLOCK) {
        int64_t n = wf_min_i64(BLOCK, end - at);
        const char *src = (const char *)c->in[0].data + at * s->from_size;
        char *dst = (char *)c->out[0].data + at * s->to_size;

        if (s->direct) {
            s->direct(dst, src, n);
        } else {
            s->to_f32(x, src, n);
            s->from_f32(dst, x, n);
        }
    }
}

weft_status wf_run_cast(const struct wf_call *c)
{
    const struct cast *s = c->state;

    wf_pool_for(c->pool, n_tiles(s->count), cast_tile, (void *)(uintptr_t)c);
    return WEFT_OK;
}

/* ---- constants ------------------------------------------------------------------------------- */

struct fill {
    int64_t count, size;
    char pattern[64]; /* the element, repeated */
};

weft_status wf_plan_fill(struct wf_kplan *p)
{
    double v = p->op->id == WF_OP_zeros_like  ? 0
               : p->op->id == WF_OP_ones_like ? 1
                                              : wf_kplan_float(p, "value");
    struct fill *s = wf_arena_alloc(p->arena, sizeof *s);

    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, "fill");
    s->count = wf_type_count(&p->out[0]);
    s->size = weft_dtype_size(p->out[0].dtype);
    for (int64_t i = 0; i < (int64_t)sizeof s->pattern / s->size; i++)
        wf_set(s->pattern, p->out[0].dtype, i, v);
    p->state = s;
    return WEFT_OK;
}

static void fill_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_call *c = arg;
    const struct fill *s = c->state;
    char *to = (char *)c->out[0].data + tile * TILE * s->size;
    int64_t bytes = tile_size(s->count, tile) * s->size, at = 0;

    (void)thread;
    for (; at + (int64_t)sizeof s->pattern <= bytes; at += (int64_t)sizeof s->pattern)
        memcpy(to + at, s->pattern, sizeof s->pattern);
    memcpy(to + at, s->pattern, (size_t)(bytes - at));
}

weft_status wf_run_fill(const struct wf_call *c)
{
    const struct fill *s = c->state;

    wf_pool_for(c->pool, n_tiles(s->count), fill_tile, (void *)(uintptr_t)c);
    return WEFT_OK;
}
