/* optim.c - reference kernels of updates: the portable optimizer functions, one thread.
 * Their formulas stand in op/optim.h and are tested against plain double code. */
#include "kernels/cpu/apply.h"
#include "kernels/ref/ref.h"

weft_status ref_apply(const struct wf_call *c)
{
    int64_t blocks = wf_norm_blocks(wf_count(&c->in[0]));
    double *sums = wf_alloc_n(c->ctx, 2 * blocks + 1, sizeof *sums);
    struct wf_apply a;

    if (!sums)
        return wf_err_nomem(c->ctx, (size_t)blocks * 16, "update");
    wf_apply_init(&a, c->op, c->attr, WEFT_SIMD_PORTABLE);
    wf_apply_run(&a, c, NULL, sums);
    wf_free(c->ctx, sums);
    return WEFT_OK;
}

weft_status ref_apply_rows(const struct wf_call *c)
{
    void *scratch = wf_alloc(c->ctx, wf_apply_rows_scratch(wf_count(&c->in[1])) + 1);
    struct wf_apply a;
    weft_status st;

    if (!scratch)
        return wf_err_nomem(c->ctx, 0, "update");
    wf_apply_init(&a, c->op, c->attr, WEFT_SIMD_PORTABLE);
    st = wf_apply_rows_run(&a, c, NULL, scratch);
    wf_free(c->ctx, scratch);
    return st;
}

/* Plans of reference kernels are made without fusion. */
weft_status ref_fused(const struct wf_call *c)
{
    return wf_err(WEFT_ENOSUP, "%s: a step of the program has no kernel", c->op->name);
}

weft_status ref_matmul_fused(const struct wf_call *c)
{
    return ref_fused(c);
}

weft_status ref_conv_fused(const struct wf_call *c)
{
    return ref_fused(c);
}

weft_status ref_matmul_sums(const struct wf_call *c)
{
    return ref_fused(c);
}

weft_status ref_matmul_apply(const struct wf_call *c)
{
    return ref_fused(c);
}
