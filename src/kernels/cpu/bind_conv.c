/* bind_conv.c - the convolution ops on the CPU kernels of conv.h. */
#include "kernels/cpu/conv.h"
#include "kernels/kernels.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels_conv.def"
#undef KERNEL

/* x, w and y are the types of the convolution that the call refers to. */
static weft_status plan(struct wf_kplan *p, enum wf_conv_dir dir, const struct wf_type *x,
                        const struct wf_type *w, const struct wf_type *y)
{
    struct wf_conv_desc d = {.dir = dir,
                             .type_a = wf_gemm_type_of(p->in[0].dtype),
                             .type_b = wf_gemm_type_of(p->in[1].dtype),
                             .type_out = wf_gemm_type_of(p->out[0].dtype)};
    struct wf_conv *c;
    weft_status st;

    if (d.type_a < 0 || d.type_b < 0 || d.type_out < 0)
        return WEFT_ENOSUP;
    wf_conv_geom_of(p->op, p->attr, x, w, y, &d.geom);
    st = wf_conv_plan(&d, p->ctx->simd, p->n_threads, p->arena, &c, &p->scratch_bytes);
    if (st)
        return st;
    p->state = c;
    p->impl = wf_conv_algo_name(c);
    return WEFT_OK;
}

weft_status wf_plan_conv(struct wf_kplan *p)
{
    return plan(p, WF_CONV_FORWARD, &p->in[0], &p->in[1], &p->out[0]);
}

weft_status wf_plan_conv_grad_input(struct wf_kplan *p)
{
    return plan(p, WF_CONV_GRAD_INPUT, &p->out[0], &p->in[1], &p->in[0]);
}

weft_status wf_plan_conv_grad_filter(struct wf_kplan *p)
{
    return plan(p, WF_CONV_GRAD_FILTER, &p->in[0], &p->out[0], &p->in[1]);
}

weft_status wf_plan_conv_transpose(struct wf_kplan *p)
{
    return plan(p, WF_CONV_GRAD_INPUT, &p->out[0], &p->in[1], &p->in[0]);
}

weft_status wf_run_conv(const struct wf_call *c)
{
    wf_conv_run(c->state, c->pool, c->in[0].data, c->in[1].data, c->out[0].data, c->scratch);
    return WEFT_OK;
}
