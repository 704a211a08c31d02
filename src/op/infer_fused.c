/* wf_infer_fused.c - shape rules of the ops that only plans contain. */
#include "op/infer.h"

static weft_status fill_outputs(struct wf_infer *r, const struct wf_type *shape)
{
    const struct wf_attr *types = wf_in_attr(r, "out_types");

    if (types->n != r->n_out || wf_in_attr(r, "outs")->n != r->n_out ||
        wf_in_attr(r, "prog")->n % 5)
        return wf_infer_err(r, WEFT_EINVAL, "malformed program");
    for (int i = 0; i < r->n_out; i++) {
        r->out[i] = *shape;
        r->out[i].dtype = (weft_dtype)types->ints[i];
    }
    return WEFT_OK;
}

weft_status wf_infer_fused(struct wf_infer *r)
{
    const struct wf_attr *shape = wf_in_attr(r, "shape");
    struct wf_type t = wf_type_of(WEFT_F32, shape->n, shape->ints);

    return fill_outputs(r, &t);
}

static weft_status after(struct wf_infer *r, wf_infer_fn *anchor)
{
    weft_status st = anchor(r);
    struct wf_type t = r->out[0];

    return st ? st : fill_outputs(r, &t);
}

weft_status wf_infer_matmul_fused(struct wf_infer *r)
{
    return after(r, wf_infer_matmul);
}

weft_status wf_infer_conv_fused(struct wf_infer *r)
{
    return after(r, wf_infer_conv);
}

weft_status wf_infer_matmul_sums(struct wf_infer *r)
{
    weft_status st = wf_infer_matmul(r);

    r->out[1] = wf_type_of(r->in[1].dtype, 1, &r->in[1].dim[r->in[1].rank - 1]);
    return st;
}

weft_status wf_infer_matmul_apply(struct wf_infer *r)
{
    struct wf_type product[2];
    struct wf_infer m = *r;
    weft_status st;

    m.in = r->in + 1;
    m.n_in = 2;
    m.out = product;
    st = wf_infer_matmul_sums(&m);
    if (st)
        return st;
    if (!wf_type_same_shape(&product[0], &r->in[0]))
        return wf_infer_err(r, WEFT_ESHAPE, "the product's shape differs from the variable's");
    r->out[0] = r->in[0];
    if (r->n_out > 1)
        r->out[1] = product[1];
    return WEFT_OK;
}

/* Plans give the types, which need not be these. */
weft_status wf_infer_layer_norm_grad_add(struct wf_infer *r)
{
    for (int i = 0; i < r->n_out; i++)
        r->out[i] = r->in[i == 1 || i == 2 ? 4 : 1];
    return WEFT_OK;
}
