/* bind_random.c - random numbers and dropout: the same numbers as on the CPU. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "base/random.h"
#include "kernels/cuda/dev.h"

wf_kernel_fn wfc_run_random, wfc_run_dropout, wfc_run_dropout_grad;

weft_status wfc_run_random(const struct wf_call *c)
{
    struct wfc_random a = {.count = (uint32_t)wf_count(&c->out[0]),
                           .dtype = (int32_t)c->out[0].type.dtype,
                           .node = c->rng.node,
                           .step = c->step,
                           .out = c->out[0].data};

    switch (c->op->id) {
    case WF_OP_random_uniform:
        a.kind = WF_RANDOM_UNIFORM;
        a.p0 = (float)wf_call_float(c, "lo");
        a.p1 = (float)wf_call_float(c, "hi");
        a.below = wf_random_below(a.p1, a.p0);
        break;
    case WF_OP_random_bernoulli:
        a.kind = WF_RANDOM_BERNOULLI;
        a.p0 = (float)wf_call_float(c, "p");
        break;
    default:
        a.kind = c->op->id == WF_OP_random_normal ? WF_RANDOM_NORMAL : WF_RANDOM_TRUNCATED_NORMAL;
        a.p0 = (float)wf_call_float(c, "mean");
        a.p1 = (float)wf_call_float(c, "stddev");
    }
    return wfc_launch_each(c, WFC_K_wfc_random, a.count, &a);
}

static struct wfc_dropout dropout_args(const struct wf_call *c, int rate,
                                       const struct wf_tensor *kept)
{
    struct wfc_dropout a = {.count = (uint32_t)wf_count(&c->in[0]),
                            .n_kept = (uint32_t)wf_count(kept),
                            .dtype = (int32_t)c->in[0].type.dtype,
                            .rate = (float)wf_call_float(c, "rate"),
                            .node = c->rng.node,
                            .step = c->step,
                            .x = c->in[0].data,
                            .y = c->out[0].data,
                            .kept = kept->data,
                            .fault = wfc_fault(c)};

    if (rate < c->n_in && c->in[rate].data) {
        a.given_rate = c->in[rate].data;
        a.rate_dtype = (int32_t)c->in[rate].type.dtype;
    }
    if (!wf_type_same_shape(&kept->type, &c->in[0].type))
        a.kept_box = wfc_broadcast_box(&kept->type, &c->in[0].type);
    return a;
}

weft_status wfc_run_dropout(const struct wf_call *c)
{
    struct wfc_dropout a = dropout_args(c, 1, &c->out[1]);
    weft_status st = wfc_launch_each(c, WFC_K_wfc_dropout_keep, a.n_kept, &a);

    return st ? st : wfc_launch_each(c, WFC_K_wfc_dropout, a.count, &a);
}

weft_status wfc_run_dropout_grad(const struct wf_call *c)
{
    struct wfc_dropout a = dropout_args(c, 2, &c->in[1]);

    return wfc_launch_each(c, WFC_K_wfc_dropout, a.count, &a);
}

#endif
