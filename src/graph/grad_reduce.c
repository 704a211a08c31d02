/* grad_reduce.c - gradient rules of reductions, and of the ops that follow another value's shape. */
#include "graph/grad.h"

weft_val wf_reduce_to_like(weft_graph *g, weft_val x, weft_val like)
{
    if (g->st || wf_type_same_shape(wf_val_type_of(g, x), wf_val_type_of(g, like)))
        return x;
    return wf_binary(g, WF_OP_reduce_to_like, x, like);
}

weft_val wf_broadcast_like(weft_graph *g, weft_val x, weft_val like)
{
    if (g->st || wf_type_same_shape(wf_val_type_of(g, x), wf_val_type_of(g, like)))
        return x;
    return wf_binary(g, WF_OP_broadcast_like, x, like);
}

weft_status grad_reduce_to_like(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_broadcast_like(r->g, r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status grad_broadcast_like(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_reduce_to_like(r->g, r->dout[0], r->in[0]);
    return r->g->st;
}

/* dx = dy broadcast back; the summed axes must stand as 1 first. */
weft_status grad_sum(struct wf_grad *r)
{
    weft_val dy = r->dout[0], x = r->in[0];
    const struct wf_attr *axes = wf_attr(r->op, r->attr, "axes");

    if (!wf_grad_int(r, "keepdims") && axes->n)
        dy = wf_expand_axes(r->g, dy, axes->n, axes->ints, wf_val_type_of(r->g, x)->rank);
    r->din[0] = wf_broadcast_like(r->g, dy, x);
    return r->g->st;
}
