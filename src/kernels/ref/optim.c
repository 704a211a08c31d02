/* optim.c - reference kernels of updates: the portable optimizer functions, one thread. Their
 * formulas are in op/optim.h and are tested against plain double code. */
#include "kernels/cpu/apply.h"
#include "kernels/ref/ref.h"

weft_status wf_plan_ref_apply(struct wf_kplan *p);
weft_status wf_plan_ref_apply_rows(struct wf_kplan *p);

weft_status wf_plan_ref_apply(struct wf_kplan *p)
{
    p->scratch_bytes = (size_t)wf_norm_blocks(wf_type_count(&p->in[0])) * 2 * sizeof(double);
    return WEFT_OK;
}

weft_status wf_plan_ref_apply_rows(struct wf_kplan *p)
{
    p->scratch_bytes = wf_apply_rows_scratch(wf_type_count(&p->in[1]));
    return WEFT_OK;
}

weft_status wf_ref_apply(const struct wf_call *c)
{
    struct wf_apply a;

    wf_apply_init(&a, c->op, c->attr, WEFT_SIMD_PORTABLE);
    wf_apply_run(&a, c, NULL, c->scratch);
    return WEFT_OK;
}

weft_status wf_ref_apply_rows(const struct wf_call *c)
{
    struct wf_apply a;

    wf_apply_init(&a, c->op, c->attr, WEFT_SIMD_PORTABLE);
    return wf_apply_rows_run(&a, c, NULL, c->scratch);
}

weft_status wf_ref_clip_factor(const struct wf_call *c)
{
    wf_clip_factor(c, wf_optim_fns_at(WEFT_SIMD_PORTABLE), NULL);
    return WEFT_OK;
}

weft_status wf_ref_penalty_grad(const struct wf_call *c)
{
    wf_penalty_gradient(c, wf_optim_fns_at(WEFT_SIMD_PORTABLE), NULL);
    return WEFT_OK;
}

/* Plans of reference kernels are made without fusion. */
weft_status wf_ref_fused(const struct wf_call *c)
{
    return wf_err(WEFT_ENOSUP, "%s: a step of the program has no kernel", c->op->name);
}

weft_status wf_ref_matmul_fused(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_conv_fused(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_matmul_sums(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_matmul_apply(const struct wf_call *c)
{
    return wf_ref_fused(c);
}
