/* grad_random.c - gradient rules of random ops. A dropout keeps what it kept as its second output, so that the
 * gradient drops the same elements. */
#include "graph/grad.h"

static weft_val dropped(struct wf_grad *r, weft_val dy, weft_val kept, weft_val rate)
{
    struct wf_set sets[] = {WF_SET_FLOAT("rate", wf_grad_float(r, "rate"))};

    return wf_build(r->g, WF_OP_dropout_grad, 3, (weft_val[]){dy, kept, rate}, 1, sets);
}

weft_status wf_grad_dropout(struct wf_grad *r)
{
    if (r->need[0] && r->dout[0].id)
        r->din[0] = dropped(r, r->dout[0], r->out[1], r->n_in > 1 ? r->in[1] : WEFT_NIL);
    return r->g->st;
}

weft_status wf_grad_dropout_grad(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = dropped(r, r->dout[0], r->in[1], r->n_in > 2 ? r->in[2] : WEFT_NIL);
    return r->g->st;
}
