/* infer_core.c - shape rules of leaves, identities and matrix products. */
#include "op/infer.h"

weft_status wf_infer_declared(struct wf_infer *r)
{
    const struct wf_attr *shape = wf_in_attr(r, "shape");

    if (r->op->id != WF_OP_placeholder)
        return wf_infer_sizes(r, (weft_dtype)wf_in_int(r, "dtype"), &r->out[0]);
    if (shape->n > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", shape->n,
                            WEFT_MAX_RANK);
    r->out[0] = wf_type_of((weft_dtype)wf_in_int(r, "dtype"), shape->n, shape->ints);
    return WEFT_OK;
}

weft_status wf_infer_same(struct wf_infer *r)
{
    r->out[0] = r->in[0];
    return WEFT_OK;
}

weft_status wf_infer_matmul(struct wf_infer *r)
{
    const struct wf_type *a = &r->in[0], *b = &r->in[1];
    bool ta = wf_in_int(r, "trans_a"), tb = wf_in_int(r, "trans_b");
    struct wf_type x, y, out;
    int64_t k;
    weft_status st;

    if (a->dtype != b->dtype || !wf_is_float(a->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "both operands must have the same float type");
    if (a->rank < 2 || b->rank < 2)
        return wf_infer_err(r, WEFT_ESHAPE, "both operands need a rank of at least 2");
    st = wf_same_dim(r, a->dim[a->rank - (ta ? 2 : 1)], b->dim[b->rank - (tb ? 1 : 2)],
                     "inner sizes", &k);
    if (st)
        return st;
    x = *a;
    y = *b;
    x.rank -= 2;
    y.rank -= 2;
    st = wf_broadcast(r, &x, &y, &out);
    if (st)
        return st;
    if (out.rank + 2 > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank above %d", WEFT_MAX_RANK);
    out.dim[out.rank++] = a->dim[a->rank - (ta ? 1 : 2)];
    out.dim[out.rank++] = b->dim[b->rank - (tb ? 2 : 1)];
    r->out[0] = out;
    return WEFT_OK;
}
