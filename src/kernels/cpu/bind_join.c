/* bind_join.c - products that also sum columns or update the variable whose gradient they are. */
#include "kernels/cpu/apply.h"
#include "kernels/cpu/matmul.h"

weft_status wf_plan_matmul_sums(struct wf_kplan *p);
weft_status wf_plan_matmul_apply(struct wf_kplan *p);
wf_kernel_fn wf_run_matmul_sums, wf_run_matmul_apply;

weft_status wf_plan_matmul_sums(struct wf_kplan *p)
{
    return wf_matmul_plan(p, true);
}

weft_status wf_run_matmul_sums(const struct wf_call *c)
{
    wf_gemm_run(c->state, c->pool, c->in[0].data, c->in[1].data, c->out[0].data, c->out[1].data,
                c->scratch);
    return WEFT_OK;
}

/* ---- with the update ------------------------------------------------------------------------- */

struct run {
    struct wf_optim_scalars k;
    float *w, *slot[WF_OPTIM_MAX_SLOTS];
};

struct joined {
    struct wf_gemm gemm;
    struct wf_apply apply;
    struct run *run; /* filled by each call before the product starts */
    size_t product_offset;
};

static float *at(float *p, int64_t i)
{
    return p ? p + i : NULL;
}

static void update_piece(void *arg, int thread, int64_t b, int64_t row, int64_t n_rows, int64_t col,
                         int64_t n_cols, float *c, int64_t ldc)
{
    const struct joined *f = arg;
    const struct run *r = f->run;
    int64_t n = f->gemm.d.n;
    bool whole = n_cols == n && ldc == n;

    (void)thread;
    (void)b;
    for (int64_t i = 0; i < (whole ? 1 : n_rows); i++) {
        int64_t first = (row + i) * n + col;

        f->apply.fns->update[r->k.form](&r->k, whole ? n_rows * n : n_cols, r->w + first,
                                        c + i * ldc, at(r->slot[0], first), at(r->slot[1], first),
                                        at(r->slot[2], first));
    }
}

weft_status wf_plan_matmul_apply(struct wf_kplan *p)
{
    struct joined *f = wf_arena_alloc(p->arena, sizeof *f);
    struct wf_gemm_desc d;
    weft_status st;

    if (!f || !(f->run = wf_arena_alloc(p->arena, sizeof *f->run)))
        return wf_err_nomem(p->ctx, sizeof *f, "matmul");
    st = wf_matmul_desc(&p->in[1], &p->in[2], &p->out[0], wf_kplan_int(p, "trans_a"),
                        wf_kplan_int(p, "trans_b"), &d);
    if (st)
        return st;
    d.col_sums = p->n_out > 1;
    d.epilogue = update_piece;
    d.epilogue_arg = f;
    wf_apply_init(&f->apply, p->op, p->attr, p->ctx->simd);
    wf_gemm_plan(&f->gemm, &d, wf_gemm_fns_of(p->ctx->simd), p->n_threads, &p->scratch_bytes);
    f->product_offset = (size_t)wf_round_up((int64_t)p->scratch_bytes, 64);
    p->scratch_bytes = f->product_offset + (size_t)(d.m * d.n) * sizeof(float);
    p->state = f;
    return WEFT_OK;
}

weft_status wf_run_matmul_apply(const struct wf_call *c)
{
    const struct joined *f = c->state;

    wf_apply_scalars(&f->apply, c, 3, &f->run->k);
    f->run->w = c->in[0].data;
    for (int i = 0; i < WF_OPTIM_MAX_SLOTS; i++)
        f->run->slot[i] = c->in[c->n_in - WF_OPTIM_MAX_SLOTS + i].data;
    wf_gemm_run(&f->gemm, c->pool, c->in[1].data, c->in[2].data,
                (char *)c->scratch + f->product_offset, c->n_out > 1 ? c->out[1].data : NULL,
                c->scratch);
    return WEFT_OK;
}
