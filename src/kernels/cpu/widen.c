/* widen.c - half-precision calls on f32 kernels.
 *
 * Sums are always f32; only operands and results of the call are rounded. */
#include "kernels/cpu/widen.h"

#include "kernels/cpu/ew.h"

enum { TILE = 1 << 15 };

struct place {
    int64_t offset; /* of the f32 copy in scratch; -1: the operand is used in place */
    int64_t count;
};

struct widened {
    const struct wf_kernel *kernel;
    const void *state;
    const struct wf_cvt_fns *cvt;
    struct place *in, *out;
    struct wf_tensor *tin, *tout; /* the call in f32, filled by each run */
    int64_t inner_offset;         /* of the kernel's own scratch */
};

static bool is_half(weft_dtype t)
{
    return t == WEFT_F16 || t == WEFT_BF16;
}

static wf_kernel_fn run_widened;

/* The wrapped call does not belong to one op: its row is not in the table. */
static const struct wf_kernel widened_kernel = {-1, "widened", NULL, run_widened};

/* Types with halves widened, and the offsets of the copies. */
static int64_t widen_types(int n, const struct wf_type *from, struct wf_type *to,
                           struct place *places, int64_t at)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
        places[i] = (struct place){-1, 0};
        if (!is_half(from[i].dtype))
            continue;
        to[i].dtype = WEFT_F32;
        places[i] = (struct place){at, wf_type_count(&from[i])};
        at += wf_round_up(places[i].count * (int64_t)sizeof(float), 64);
    }
    return at;
}

weft_status wf_plan_widened(struct wf_kplan *p, wf_choose_fn *choose, const struct wf_kernel **out)
{
    struct widened *w;
    struct wf_type *types;
    struct wf_kplan inner = *p;
    int64_t bytes, n = p->n_in + p->n_out;
    bool any = false;
    weft_status st;

    for (int i = 0; i < p->n_in; i++)
        any |= is_half(p->in[i].dtype);
    for (int i = 0; i < p->n_out; i++)
        any |= is_half(p->out[i].dtype);
    if (!any || p->op->user || (p->op->flags & WF_STATE_IN0))
        return WEFT_OK;
    w = wf_arena_alloc(p->arena, sizeof *w);
    types = wf_arena_alloc(p->arena, sizeof *types * (size_t)n);
    if (!w || !types)
        return wf_err_nomem(p->ctx, sizeof *w, p->op->name);
    w->in = wf_arena_alloc(p->arena, sizeof *w->in * (size_t)n);
    w->tin = wf_arena_alloc(p->arena, sizeof *w->tin * (size_t)n);
    if (!w->in || !w->tin)
        return wf_err_nomem(p->ctx, sizeof *w, p->op->name);
    w->out = w->in + p->n_in;
    w->tout = w->tin + p->n_in;
    bytes = widen_types(p->n_in, p->in, types, w->in, 0);
    bytes = widen_types(p->n_out, p->out, types + p->n_in, w->out, bytes);
    inner.in = types;
    inner.out = types + p->n_in;
    st = choose(&inner, &w->kernel);
    if (st || !w->kernel)
        return st;
    for (int64_t i = 0; i < n; i++)
        w->tin[i].type = types[i];
    w->state = inner.state;
    w->cvt = wf_cvt_fns_of(p->ctx->simd);
    w->inner_offset = bytes;
    p->state = w;
    p->scratch_bytes = (size_t)bytes + inner.scratch_bytes;
    p->impl = inner.impl;
    *out = &widened_kernel;
    return WEFT_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

struct convert {
    wf_cvt_fn *fn;
    char *to;
    const char *from;
    int64_t to_size, from_size, n;
};

static void convert_tile(void *arg, int64_t tile, int thread)
{
    const struct convert *c = arg;
    int64_t first = tile * TILE;

    (void)thread;
    c->fn(c->to + first * c->to_size, c->from + first * c->from_size,
          wf_min_i64(TILE, c->n - first));
}

static void convert(struct wf_pool *pool, struct convert c)
{
    wf_pool_for(pool, (c.n + TILE - 1) / TILE, convert_tile, &c);
}

static weft_status run_widened(const struct wf_call *c)
{
    const struct widened *w = c->state;
    struct wf_call inner = *c;
    char *scratch = c->scratch;
    weft_status st;

    for (int i = 0; i < c->n_in; i++) {
        w->tin[i].data = w->in[i].offset < 0 ? c->in[i].data : scratch + w->in[i].offset;
        if (w->in[i].offset >= 0)
            convert(c->pool, (struct convert){w->cvt->to_f32[c->in[i].type.dtype], w->tin[i].data,
                                              c->in[i].data, 4, 2, w->in[i].count});
    }
    for (int i = 0; i < c->n_out; i++)
        w->tout[i].data = w->out[i].offset < 0 ? c->out[i].data : scratch + w->out[i].offset;
    inner.in = w->tin;
    inner.out = w->tout;
    inner.state = w->state;
    inner.scratch = scratch + w->inner_offset;
    st = w->kernel->run(&inner);
    for (int i = 0; i < c->n_out && !st; i++)
        if (w->out[i].offset >= 0)
            convert(c->pool,
                    (struct convert){w->cvt->from_f32[c->out[i].type.dtype], c->out[i].data,
                                     w->tout[i].data, 2, 4, w->out[i].count});
    return st;
}
