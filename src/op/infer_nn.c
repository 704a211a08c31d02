/* infer_nn.c - shape rules of softmax, its losses, updates of variables and the global norm. */
#include "op/infer.h"

/* Merge the sizes of b into a: both must have the same shape. */
static weft_status same_shape(struct wf_infer *r, struct wf_type *a, const struct wf_type *b,
                              const char *what)
{
    if (a->rank != b->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "%s: ranks %d and %d differ", what, a->rank, b->rank);
    for (int i = 0; i < a->rank; i++) {
        weft_status st = wf_same_dim(r, a->dim[i], b->dim[i], what, &a->dim[i]);

        if (st)
            return st;
    }
    return WEFT_OK;
}

weft_status wf_infer_softmax(struct wf_infer *r)
{
    int axis;

    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    r->out[0] = r->in[0];
    return wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank, &axis);
}

weft_status wf_infer_softmax_grad(struct wf_infer *r)
{
    weft_status st = wf_infer_softmax(r);

    if (st)
        return st;
    if (r->in[0].dtype != r->in[1].dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "operands must have the same type");
    return same_shape(r, &r->out[0], &r->in[1], "sizes of dy and y");
}

/* loss: the logits without their last axis; backprop: like the logits. */
static weft_status xent_outputs(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "logits need a float type");
    if (r->in[0].rank < 1)
        return wf_infer_err(r, WEFT_ESHAPE, "logits need a last axis of classes");
    r->out[0] = r->out[1] = r->in[0];
    r->out[0].rank--;
    r->out[0].dim[r->out[0].rank] = 0;
    return WEFT_OK;
}

weft_status wf_infer_sparse_softmax_xent(struct wf_infer *r)
{
    weft_status st = xent_outputs(r);

    if (st)
        return st;
    if (!wf_is_int(r->in[1].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "labels need an integer type");
    st = same_shape(r, &r->out[0], &r->in[1], "labels have one axis less than logits; their sizes");
    for (int i = 0; i < r->out[0].rank; i++)
        r->out[1].dim[i] = r->out[0].dim[i];
    return st;
}

weft_status wf_infer_softmax_xent(struct wf_infer *r)
{
    weft_status st = xent_outputs(r);

    if (st)
        return st;
    if (r->in[0].dtype != r->in[1].dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "logits and labels must have the same type");
    st = same_shape(r, &r->out[1], &r->in[1], "sizes of logits and labels");
    for (int i = 0; i < r->out[0].rank; i++)
        r->out[0].dim[i] = r->out[1].dim[i];
    return st;
}

weft_status wf_infer_sigmoid_xent(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype) || r->in[0].dtype != r->in[1].dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "logits and targets must have the same float type");
    return wf_broadcast(r, &r->in[0], &r->in[1], &r->out[0]);
}

weft_status wf_infer_assign(struct wf_infer *r)
{
    if (r->in[0].dtype != r->in[1].dtype)
        return wf_infer_err(r, WEFT_EDTYPE,
                            "variable and value must have the same type (cast the value)");
    if (r->op->id == WF_OP_assign_ema && !wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "a moving average needs a float type");
    r->out[0] = r->in[0];
    return same_shape(r, &r->out[0], &r->in[1], "sizes of variable and value");
}

weft_status wf_infer_global_norm(struct wf_infer *r)
{
    r->out[0] = (struct wf_type){.dtype = WEFT_F32};
    for (int i = 0; i < r->n_in; i++) {
        if (!wf_is_float(r->in[i].dtype))
            return wf_infer_err(r, WEFT_EDTYPE, "input %d has no float type", i);
        if (r->in[i].dtype == WEFT_F64)
            r->out[0].dtype = WEFT_F64;
    }
    return WEFT_OK;
}
