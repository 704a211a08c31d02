/* bind_core.c - matmul on our own matrix product. */
#include "kernels/cpu/matmul.h"

weft_status wf_plan_matmul(struct wf_kplan *p);
wf_kernel_fn wf_run_matmul;

/* Whether a type has one matrix for every batch item, or one for all; and their number. */
static bool batch_stride(const struct wf_type *t, const struct wf_type *y, int64_t *stride)
{
    int64_t size = t->dim[t->rank - 2] * t->dim[t->rank - 1], n = 1, all = 1;

    for (int i = 0; i < t->rank - 2; i++)
        n *= t->dim[i];
    for (int i = 0; i < y->rank - 2; i++)
        all *= y->dim[i];
    *stride = n == all ? size : 0;
    return n == all || n == 1;
}

weft_status wf_matmul_desc(const struct wf_type *a, const struct wf_type *b,
                           const struct wf_type *y, bool trans_a, bool trans_b,
                           struct wf_gemm_desc *d)
{
    int ta = wf_gemm_type_of(a->dtype), tb = wf_gemm_type_of(b->dtype),
        ty = wf_gemm_type_of(y->dtype);

    if (ta < 0 || tb < 0 || ty < 0)
        return WEFT_ENOSUP;
    *d = (struct wf_gemm_desc){
        .m = y->dim[y->rank - 2],
        .n = y->dim[y->rank - 1],
        .k = a->dim[a->rank - (trans_a ? 2 : 1)],
        .batch = 1,
        .trans_a = trans_a,
        .trans_b = trans_b,
        .type_a = ta,
        .type_b = tb,
        .type_c = ty,
        .lda = a->dim[a->rank - 1],
        .ldb = b->dim[b->rank - 1],
        .ldc = y->dim[y->rank - 1],
    };
    for (int i = 0; i < y->rank - 2; i++)
        d->batch *= y->dim[i];
    d->stride_c = d->m * d->n;
    if (!batch_stride(a, y, &d->stride_a) || !batch_stride(b, y, &d->stride_b))
        return WEFT_ENOSUP;
    if (d->batch > 1 && d->stride_b == 0 && d->stride_a && !trans_a) { /* one tall product */
        d->m *= d->batch;
        d->batch = 1;
    }
    return WEFT_OK;
}

weft_status wf_matmul_plan(struct wf_kplan *p, bool sums)
{
    struct wf_gemm_desc d;
    struct wf_gemm *g;
    weft_status st = wf_matmul_desc(&p->in[0], &p->in[1], &p->out[0], wf_kplan_int(p, "trans_a"),
                                    wf_kplan_int(p, "trans_b"), &d);

    if (st)
        return st;
    g = wf_kplan_state(p, sizeof *g);
    if (!g)
        return wf_kplan_nomem(p);
    d.col_sums = sums;
    wf_gemm_plan(g, &d, wf_gemm_fns_of(p->ctx->simd), p->n_threads, &p->scratch_bytes);
    return WEFT_OK;
}

weft_status wf_plan_matmul(struct wf_kplan *p)
{
    return wf_matmul_plan(p, false);
}

weft_status wf_run_matmul(const struct wf_call *c)
{
    wf_gemm_run(c->state, c->pool, c->in[0].data, c->in[1].data, c->out[0].data, NULL, c->scratch);
    return WEFT_OK;
}
