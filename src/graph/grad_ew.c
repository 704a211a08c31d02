/* grad_ew.c - gradient rules of element-wise ops. */
#include "graph/grad.h"

weft_status grad_add(struct wf_grad *r)
{
    for (int i = 0; i < 2; i++)
        if (r->need[i])
            r->din[i] = wf_reduce_to_like(r->g, r->dout[0], r->in[i]);
    return r->g->st;
}

weft_status grad_mul(struct wf_grad *r)
{
    for (int i = 0; i < 2; i++)
        if (r->need[i])
            r->din[i] = wf_reduce_to_like(r->g, wf_binary(r->g, WF_OP_mul, r->dout[0], r->in[1 - i]), r->in[i]);
    return r->g->st;
}

weft_status grad_relu(struct wf_grad *r)
{
    r->din[0] = wf_binary(r->g, WF_OP_relu_grad, r->dout[0], r->out[0]);
    return r->g->st;
}

/* Linear in dy, flat in y. */
weft_status grad_relu_grad(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_binary(r->g, WF_OP_relu_grad, r->dout[0], r->in[1]);
    return r->g->st;
}
