/* grad_shape.c - gradient rules of ops that move or re-read elements. */
#include "graph/grad.h"

weft_val wf_expand_axes(weft_graph *g, weft_val x, int n, const int64_t *axes, int rank)
{
    int64_t positive[WEFT_MAX_RANK];

    for (int i = 0; i < n; i++)
        positive[i] = axes[i] < 0 ? axes[i] + rank : axes[i];
    struct wf_set sets[] = {WF_SET_INTS("axes", n, positive)};

    return wf_build(g, WF_OP_expand_dims, 1, &x, 1, sets);
}

weft_status grad_reshape(struct wf_grad *r)
{
    r->din[0] = wf_binary(r->g, WF_OP_reshape_like, r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status grad_reshape_like(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_binary(r->g, WF_OP_reshape_like, r->dout[0], r->in[0]);
    return r->g->st;
}
