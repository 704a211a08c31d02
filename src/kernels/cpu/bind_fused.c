/* bind_fused.c - standalone element-wise programs, and programs as epilogues of matrix products. */
#include "kernels/cpu/conv.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/prog.h"

weft_status wf_plan_fused(struct wf_kplan *p);
weft_status wf_plan_matmul_fused(struct wf_kplan *p);
weft_status wf_plan_conv_fused(struct wf_kplan *p);
wf_kernel_fn wf_run_fused, wf_run_matmul_fused, wf_run_conv_fused;

weft_status wf_plan_fused(struct wf_kplan *p)
{
    struct wf_prog *g;
    weft_status st = wf_prog_compile(p, p->n_in, p->in, false, &p->out[0], &g);

    if (st)
        return st;
    p->state = g;
    p->scratch_bytes = (size_t)(g->thread_floats * p->n_threads) * sizeof(float);
    return WEFT_OK;
}

static void bind_run(struct wf_prog_run *r, const struct wf_prog *g, const struct wf_call *c,
                     int first_in, int to, void *scratch)
{
    r->prog = g;
    for (int i = to; i < g->n_operands; i++)
        r->operand[i] = c->in[first_in + i - to].data;
    for (int i = 0; i < g->n_outs; i++)
        r->out[i] = c->out[i].data;
    r->scratch = scratch;
    wf_prog_start(r, wf_pool_size(c->pool));
}

static void fused_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_prog_run *r = arg;
    int64_t first = tile * WF_PROG_TILE;

    wf_prog_range(r, thread, first, wf_min_i64(WF_PROG_TILE, r->prog->count - first), NULL);
}

weft_status wf_run_fused(const struct wf_call *c)
{
    const struct wf_prog *g = c->state;
    struct wf_prog_run r;

    bind_run(&r, g, c, 0, 0, c->scratch);
    wf_pool_for(c->pool, (g->count + WF_PROG_TILE - 1) / WF_PROG_TILE, fused_tile, &r);
    return WEFT_OK;
}

/* ---- products with a program as their epilogue ----------------------------------------------- */

struct anchored {
    int64_t rows, cols; /* of one matrix of the product */
    struct wf_prog *prog;
    struct wf_prog_run *run; /* filled by each call before the product starts */
    size_t prog_offset;      /* in scratch */
    struct wf_gemm gemm;     /* the product: one of these two */
    struct wf_conv *conv;
};

static void epilogue(void *arg, int thread, int64_t b, int64_t row, int64_t n_rows, int64_t col,
                     int64_t n_cols, float *c, int64_t ldc)
{
    const struct anchored *f = arg;
    int64_t n = f->cols, first = (b * f->rows + row) * n + col;

    if (n_cols == n && ldc == n) { /* whole rows are contiguous */
        wf_prog_range(f->run, thread, first, n_rows * n, c);
        return;
    }
    for (int64_t i = 0; i < n_rows; i++)
        wf_prog_range(f->run, thread, first + i * n, n_cols, c + i * ldc);
}

/* A product writes its result in the requested type, rounding f32 sums; a convolution writes f32,
 * and runs on widened copies if its operands are halves. */
bool wf_kernel_can_anchor(const struct wf_op *op, const struct wf_attr *attr,
                          const struct wf_type *in, const struct wf_type *product, weft_dtype last)
{
    bool is_half = last == WEFT_F16 || last == WEFT_BF16;
    struct wf_gemm_desc d;
    struct wf_type y = *product;

    y.dtype = last;
    switch (op->id) {
    case WF_OP_matmul:
        return !wf_matmul_desc(&in[0], &in[1], &y, wf_attr_int(op, attr, "trans_a"),
                               wf_attr_int(op, attr, "trans_b"), &d);
    case WF_OP_conv:
        return in[0].dtype == WEFT_F32 ? last == WEFT_F32
                                       : in[0].dtype != WEFT_F64 && (last == WEFT_F32 || is_half);
    default: return false;
    }
}

/* The program of p, whose register 0 is the product. */
static weft_status plan_program(struct wf_kplan *p, struct anchored **out)
{
    struct anchored *f = wf_arena_alloc(p->arena, sizeof *f);
    struct wf_type *operands = wf_arena_alloc(p->arena, sizeof *operands * (size_t)p->n_in);

    if (!f || !operands || !(f->run = wf_arena_alloc(p->arena, sizeof *f->run)))
        return wf_err_nomem(p->ctx, sizeof *f, p->op->name);
    operands[0] = p->out[0];
    for (int i = 2; i < p->n_in; i++)
        operands[i - 1] = p->in[i];
    *out = f;
    return wf_prog_compile(p, p->n_in - 1, operands, true, &p->out[0], &f->prog);
}

/* The program's scratch follows the product's. */
static void add_scratch(struct wf_kplan *p, struct anchored *f)
{
    f->prog_offset = (size_t)wf_round_up((int64_t)p->scratch_bytes, 64);
    p->scratch_bytes =
        f->prog_offset + (size_t)(f->prog->thread_floats * p->n_threads) * sizeof(float);
    p->state = f;
}

weft_status wf_plan_matmul_fused(struct wf_kplan *p)
{
    struct anchored *f = NULL;
    struct wf_gemm_desc d;
    weft_status st = wf_matmul_desc(&p->in[0], &p->in[1], &p->out[0], wf_kplan_int(p, "trans_a"),
                                    wf_kplan_int(p, "trans_b"), &d);

    if (!st)
        st = plan_program(p, &f);
    if (st)
        return st;
    f->rows = d.m;
    f->cols = d.n;
    d.epilogue = epilogue;
    d.epilogue_arg = f;
    wf_gemm_plan(&f->gemm, &d, wf_gemm_fns_of(p->ctx->simd), p->n_threads, &p->scratch_bytes);
    add_scratch(p, f);
    return WEFT_OK;
}

weft_status wf_run_matmul_fused(const struct wf_call *c)
{
    const struct anchored *f = c->state;

    bind_run(f->run, f->prog, c, 2, 1, (char *)c->scratch + f->prog_offset);
    wf_gemm_run(&f->gemm, c->pool, c->in[0].data, c->in[1].data, c->out[0].data, NULL, c->scratch);
    return WEFT_OK;
}

weft_status wf_plan_conv_fused(struct wf_kplan *p)
{
    struct wf_conv_desc d = {.dir = WF_CONV_FORWARD,
                             .type_a = wf_gemm_type_of(p->in[0].dtype),
                             .type_b = wf_gemm_type_of(p->in[1].dtype),
                             .type_out = wf_gemm_type_of(p->out[0].dtype),
                             .epilogue = epilogue};
    struct anchored *f = NULL;
    weft_status st;

    if (d.type_a < 0 || d.type_b < 0 || d.type_out < 0)
        return WEFT_ENOSUP;
    st = plan_program(p, &f);
    if (st)
        return st;
    f->cols = p->out[0].dim[p->out[0].rank - 1];
    d.epilogue_arg = f;
    wf_conv_geom_of(p->op, p->attr, &p->in[0], &p->in[1], &p->out[0], &d.geom);
    st = wf_conv_plan(&d, p->ctx->simd, p->n_threads, p->arena, &f->conv, &p->scratch_bytes);
    if (st)
        return st;
    p->impl = wf_conv_algo_name(f->conv);
    add_scratch(p, f);
    return WEFT_OK;
}

weft_status wf_run_conv_fused(const struct wf_call *c)
{
    const struct anchored *f = c->state;

    bind_run(f->run, f->prog, c, 2, 1, (char *)c->scratch + f->prog_offset);
    wf_conv_run(f->conv, c->pool, c->in[0].data, c->in[1].data, c->out[0].data, c->scratch);
    return WEFT_OK;
}
