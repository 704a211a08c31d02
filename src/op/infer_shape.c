/* infer_shape.c - shape rules of ops that move or re-read elements. */
#include "op/infer.h"

weft_status infer_reshape(struct wf_infer *r)
{
    const struct wf_attr *shape = wf_in_attr(r, "shape");
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = shape->n};
    int64_t count = wf_type_count(&r->in[0]), rest = 1;
    int hole = -1;

    if (shape->n > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d, at most %d is possible", shape->n, WEFT_MAX_RANK);
    for (int i = 0; i < shape->n; i++) {
        t.dim[i] = shape->ints[i];
        if (shape->ints[i] < -1 || (shape->ints[i] == -1 && hole >= 0))
            return wf_infer_err(r, WEFT_ESHAPE, "a new shape may have one size of -1 and none below");
        if (shape->ints[i] == -1)
            hole = i;
        else if (!wf_mul_i64(rest, shape->ints[i], &rest))
            return wf_infer_err(r, WEFT_ESHAPE, "the new shape's size overflows");
    }
    if (count >= 0 && hole >= 0 && rest > 0 && count % rest == 0)
        t.dim[hole] = count / rest;
    else if (count >= 0 && (hole >= 0 || count != rest))
        return wf_infer_err(r, WEFT_ESHAPE, "%lld elements do not fill the new shape (%lld)", (long long)count,
                            (long long)rest);
    r->out[0] = t;
    return WEFT_OK;
}

weft_status infer_reshape_like(struct wf_infer *r)
{
    int64_t a = wf_type_count(&r->in[0]), b = wf_type_count(&r->in[1]);

    if (a >= 0 && b >= 0 && a != b)
        return wf_infer_err(r, WEFT_ESHAPE, "%lld and %lld elements", (long long)a, (long long)b);
    r->out[0] = r->in[1];
    r->out[0].dtype = r->in[0].dtype;
    return WEFT_OK;
}

weft_status infer_expand_dims(struct wf_infer *r)
{
    const struct wf_attr *axes = wf_in_attr(r, "axes");
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = r->in[0].rank + axes->n};
    bool is_new[WEFT_MAX_RANK] = {false};
    int a;

    if (t.rank > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d, at most %d is possible", t.rank, WEFT_MAX_RANK);
    for (int i = 0; i < axes->n; i++) {
        weft_status st = wf_axis(r, axes->ints[i], t.rank, &a);

        if (st)
            return st;
        if (is_new[a])
            return wf_infer_err(r, WEFT_EINVAL, "axis %d is given twice", a);
        is_new[a] = true;
    }
    for (int i = 0, k = 0; i < t.rank; i++)
        t.dim[i] = is_new[i] ? 1 : r->in[0].dim[k++];
    r->out[0] = t;
    return WEFT_OK;
}
