/* infer_ew.c - shape rules of element-wise ops. */
#include <math.h>

#include "op/infer.h"

static bool is_number(weft_dtype t)
{
    return wf_is_float(t) || wf_is_int(t);
}

/* Broadcasts all operands from `first` on; the result has the dtype of operand `first`. */
static weft_status broadcast_from(struct wf_infer *r, int first)
{
    struct wf_type t = r->in[first];

    for (int i = 0; i < r->n_in; i++) {
        weft_status st = wf_broadcast(r, &t, &r->in[i], &t);

        if (st)
            return st;
    }
    r->out[0] = t;
    return wf_infer_fits(r, &t);
}

static weft_status same_dtype(struct wf_infer *r)
{
    for (int i = 1; i < r->n_in; i++)
        if (r->in[i].dtype != r->in[0].dtype)
            return wf_infer_err(r, WEFT_EDTYPE, "operands must have the same type (cast one)");
    return WEFT_OK;
}

weft_status wf_infer_unary(struct wf_infer *r)
{
    if (!is_number(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast it)");
    r->out[0] = r->in[0];
    return WEFT_OK;
}

weft_status wf_infer_unary_float(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    r->out[0] = r->in[0];
    return WEFT_OK;
}

weft_status wf_infer_clip(struct wf_infer *r)
{
    double lo = wf_in_float(r, "min"), hi = wf_in_float(r, "max");

    if (!(lo <= hi))
        return wf_infer_err(r, WEFT_EINVAL, "min %g is above max %g", lo, hi);
    return wf_infer_unary(r);
}

/* The gradient is computed from the result, whose sign must be that of x. */
weft_status wf_infer_elu(struct wf_infer *r)
{
    double alpha = wf_in_float(r, "alpha");

    if (!(alpha >= 0))
        return wf_infer_err(r, WEFT_EINVAL, "alpha %g must not be negative", alpha);
    return wf_infer_unary_float(r);
}

weft_status wf_infer_is_finite(struct wf_infer *r)
{
    weft_status st = wf_infer_unary_float(r);

    r->out[0].dtype = WEFT_BOOL;
    return st;
}

weft_status wf_infer_binary(struct wf_infer *r)
{
    weft_status st = same_dtype(r);

    if (!st && !is_number(r->in[0].dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast them)");
    return st ? st : broadcast_from(r, 0);
}

weft_status wf_infer_binary_float(struct wf_infer *r)
{
    weft_status st = same_dtype(r);

    if (!st && !wf_is_float(r->in[0].dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs float types (cast them)");
    return st ? st : broadcast_from(r, 0);
}

/* The slope is broadcast to x; it must not enlarge it. */
weft_status wf_infer_prelu(struct wf_infer *r)
{
    weft_status st = wf_infer_binary_float(r);

    if (st)
        return st;
    if (r->out[0].rank != r->in[0].rank)
        return wf_infer_err(r, WEFT_ESHAPE, "the slope has more axes than x");
    for (int i = 0; i < r->in[0].rank; i++)
        if (r->in[0].dim[i] >= 0 && r->out[0].dim[i] != r->in[0].dim[i])
            return wf_infer_err(r, WEFT_ESHAPE, "the slope is larger than x at axis %d", i);
    r->out[0] = r->in[0];
    return WEFT_OK;
}

/* (dy, x): the same shape. */
weft_status wf_infer_pair(struct wf_infer *r)
{
    struct wf_type t = r->in[0];
    weft_status st = same_dtype(r);

    if (!st && (!wf_is_float(t.dtype)))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs float types");
    if (!st && r->in[0].rank != r->in[1].rank)
        st = wf_infer_err(r, WEFT_ESHAPE, "ranks differ");
    for (int i = 0; i < t.rank && !st; i++)
        st = wf_same_dim(r, r->in[0].dim[i], r->in[1].dim[i], "sizes", &t.dim[i]);
    if (!st)
        r->out[0] = t;
    return st;
}

weft_status wf_infer_compare(struct wf_infer *r)
{
    weft_status st = same_dtype(r);

    if (!st)
        st = broadcast_from(r, 0);
    r->out[0].dtype = WEFT_BOOL;
    return st;
}

weft_status wf_infer_logical(struct wf_infer *r)
{
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i].dtype != WEFT_BOOL)
            return wf_infer_err(r, WEFT_EDTYPE, "needs bool (compare, or cast)");
    return broadcast_from(r, 0);
}

weft_status wf_infer_where(struct wf_infer *r)
{
    if (r->in[0].dtype != WEFT_BOOL)
        return wf_infer_err(r, WEFT_EDTYPE, "the condition must be bool (compare, or cast)");
    if (r->in[1].dtype != r->in[2].dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "both values must have the same type (cast one)");
    return broadcast_from(r, 1);
}

weft_status wf_infer_cast(struct wf_infer *r)
{
    r->out[0] = r->in[0];
    r->out[0].dtype = (weft_dtype)wf_in_int(r, "dtype");
    if (r->out[0].dtype <= WEFT_NONE || r->out[0].dtype >= WEFT_N_DTYPES)
        return wf_infer_err(r, WEFT_EDTYPE, "dtype %d does not exist", (int)r->out[0].dtype);
    return wf_infer_fits(r, &r->out[0]);
}

weft_status wf_infer_add_n(struct wf_infer *r)
{
    struct wf_type t = r->in[0];
    weft_status st = same_dtype(r);

    if (!st && !is_number(t.dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast them)");
    for (int i = 1; i < r->n_in && !st; i++) {
        if (r->in[i].rank != t.rank)
            st = wf_infer_err(r, WEFT_ESHAPE, "operand %d has rank %d, the first %d", i,
                              r->in[i].rank, t.rank);
        for (int d = 0; d < t.rank && !st; d++)
            st = wf_same_dim(r, t.dim[d], r->in[i].dim[d], "sizes", &t.dim[d]);
    }
    if (!st)
        r->out[0] = t;
    return st;
}
