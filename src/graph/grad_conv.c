/* wf_grad_conv.c - gradient rules of convolution, pooling and resizing.
 *
 * conv(x, w) is linear in x and in w, and so are its two gradients in their operands: the three are
 * each other's rules, to any order. */
#include "graph/grad.h"

/* A node of another op with the same attributes (those that it has). */
static weft_val build_alike(const struct wf_grad *r, int op_id, int n_in, const weft_val *in)
{
    const struct wf_op *to = wf_op_row(r->g->ctx, op_id);
    struct wf_set sets[WF_MAX_ATTRS];
    int n = 0;

    for (int i = 0; i < r->op->n_attrs; i++)
        for (int k = 0; k < to->n_attrs; k++)
            if (!strcmp(r->op->attr[i].name, to->attr[k].name))
                sets[n++] = (struct wf_set){to->attr[k].name, r->attr[i]};
    return wf_build(r->g, op_id, n_in, in, n, sets);
}

static weft_val conv(const struct wf_grad *r, weft_val x, weft_val w)
{
    return build_alike(r, WF_OP_conv, 2, (weft_val[]){x, w});
}

static weft_val grad_input(const struct wf_grad *r, weft_val dy, weft_val w, weft_val x)
{
    return build_alike(r, WF_OP_conv_grad_input, 3, (weft_val[]){dy, w, x});
}

static weft_val grad_filter(const struct wf_grad *r, weft_val x, weft_val dy, weft_val w)
{
    return build_alike(r, WF_OP_conv_grad_filter, 3, (weft_val[]){x, dy, w});
}

weft_status wf_grad_conv(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = grad_input(r, r->dout[0], r->in[1], r->in[0]);
    if (r->need[1])
        r->din[1] = grad_filter(r, r->in[0], r->dout[0], r->in[1]);
    return r->g->st;
}

weft_status wf_grad_conv_grad_input(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = conv(r, r->dout[0], r->in[1]);
    if (r->need[1])
        r->din[1] = grad_filter(r, r->dout[0], r->in[0], r->in[1]);
    return r->g->st;
}

weft_status wf_grad_conv_grad_filter(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = grad_input(r, r->in[1], r->dout[0], r->in[0]);
    if (r->need[1])
        r->din[1] = conv(r, r->in[0], r->dout[0]);
    return r->g->st;
}

weft_status wf_grad_conv_transpose(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = conv(r, r->dout[0], r->in[1]);
    if (r->need[1])
        r->din[1] = grad_filter(r, r->dout[0], r->in[0], r->in[1]);
    return r->g->st;
}

weft_status wf_grad_max_pool(struct wf_grad *r)
{
    if (r->dout[0].id)
        r->din[0] =
            build_alike(r, WF_OP_max_pool_grad, 3, (weft_val[]){r->dout[0], r->out[1], r->in[0]});
    return r->g->st;
}

weft_status wf_grad_max_pool_grad(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = build_alike(r, WF_OP_max_pool_pick, 2, (weft_val[]){r->dout[0], r->in[1]});
    return r->g->st;
}

weft_status wf_grad_max_pool_pick(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] =
            build_alike(r, WF_OP_max_pool_grad, 3, (weft_val[]){r->dout[0], r->in[1], r->in[0]});
    return r->g->st;
}

weft_status wf_grad_avg_pool(struct wf_grad *r)
{
    r->din[0] = build_alike(r, WF_OP_avg_pool_grad, 2, (weft_val[]){r->dout[0], r->in[0]});
    return r->g->st;
}

weft_status wf_grad_avg_pool_grad(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = build_alike(r, WF_OP_avg_pool, 1, &r->dout[0]);
    return r->g->st;
}

weft_status wf_grad_resize(struct wf_grad *r)
{
    r->din[0] = build_alike(r, WF_OP_resize_grad, 2, (weft_val[]){r->dout[0], r->in[0]});
    return r->g->st;
}

weft_status wf_grad_resize_grad(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = build_alike(r, WF_OP_resize, 1, &r->dout[0]);
    return r->g->st;
}
