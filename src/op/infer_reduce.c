/* wf_infer_reduce.c - shape rules of reductions and of ops shaped like another value. */
#include "op/infer.h"

/* gone[a]: axis a of x is reduced. */
static weft_status mark_axes(const struct wf_infer *r, const struct wf_type *x,
                             bool gone[WEFT_MAX_RANK])
{
    const struct wf_attr *axes = wf_in_attr(r, "axes");
    int a;

    for (int i = 0; i < WEFT_MAX_RANK; i++)
        gone[i] = axes->n == 0;
    for (int i = 0; i < axes->n; i++) {
        weft_status st = wf_axis(r, axes->ints[i], x->rank, &a);

        if (st)
            return st;
        if (gone[a])
            return wf_infer_err(r, WEFT_EINVAL, "axis %d is given twice", a);
        gone[a] = true;
    }
    return WEFT_OK;
}

static weft_status reduced(struct wf_infer *r, const bool gone[WEFT_MAX_RANK], weft_dtype dtype)
{
    bool keep = wf_in_int(r, "keepdims");
    struct wf_type t = {.dtype = dtype};

    for (int i = 0; i < r->in[0].rank; i++)
        if (!gone[i] || keep)
            t.dim[t.rank++] = gone[i] ? 1 : r->in[0].dim[i];
    r->out[0] = t;
    return wf_infer_fits(r, &t);
}

static weft_status reduce_axes(struct wf_infer *r)
{
    bool gone[WEFT_MAX_RANK];
    weft_status st = mark_axes(r, &r->in[0], gone);

    return st ? st : reduced(r, gone, r->in[0].dtype);
}

weft_status wf_infer_reduce(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype) && !wf_is_int(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast it)");
    return reduce_axes(r);
}

weft_status wf_infer_reduce_float(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    return reduce_axes(r);
}

weft_status wf_infer_reduce_bool(struct wf_infer *r)
{
    if (r->in[0].dtype != WEFT_BOOL)
        return wf_infer_err(r, WEFT_EDTYPE, "needs bool (compare, or cast)");
    return reduce_axes(r);
}

weft_status wf_infer_prod_grad(struct wf_infer *r)
{
    const struct wf_type *dy = &r->in[0], *x = &r->in[1];
    bool gone[WEFT_MAX_RANK];
    int64_t d;
    weft_status st = mark_axes(r, x, gone);

    if (st)
        return st;
    if (dy->dtype != x->dtype || !wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "both operands must have the same float type");
    if (dy->rank != x->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "ranks differ");
    for (int i = 0; i < x->rank && !st; i++)
        st = wf_same_dim(r, dy->dim[i], gone[i] ? 1 : x->dim[i], "sizes", &d);
    r->out[0] = *x;
    return st;
}

weft_status wf_infer_arg(struct wf_infer *r)
{
    bool gone[WEFT_MAX_RANK] = {false};
    int a;
    weft_status st;

    if (!wf_is_float(r->in[0].dtype) && !wf_is_int(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast it)");
    st = wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank, &a);
    if (st)
        return st;
    if (r->in[0].dim[a] == 0)
        return wf_infer_err(r, WEFT_ESHAPE, "axis %d is empty", a);
    gone[a] = true;
    return reduced(r, gone, WEFT_I64);
}

weft_status wf_infer_cumsum(struct wf_infer *r)
{
    int a;

    if (!wf_is_float(r->in[0].dtype) && !wf_is_int(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast it)");
    r->out[0] = r->in[0];
    return wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank, &a);
}

weft_status wf_infer_segment_sum(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0], *ids = &r->in[1];
    int64_t n = wf_in_int(r, "n_segments"), d;
    weft_status st;

    if (!wf_is_float(x->dtype) && !wf_is_int(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "x must be numbers (cast it)");
    if (ids->dtype != WEFT_I32 && ids->dtype != WEFT_I64)
        return wf_infer_err(r, WEFT_EDTYPE, "ids must be i32 or i64");
    if (x->rank < 1 || ids->rank != 1)
        return wf_infer_err(r, WEFT_ESHAPE, "x needs an axis of rows and ids must be a vector");
    if (n < 0)
        return wf_infer_err(r, WEFT_EINVAL, "n_segments is %lld", (long long)n);
    st = wf_same_dim(r, x->dim[0], ids->dim[0], "numbers of rows and ids", &d);
    if (st)
        return st;
    r->out[0] = *x;
    r->out[0].dim[0] = n;
    return wf_infer_fits(r, &r->out[0]);
}

/* Whether `small` can be broadcast to `large`, as far as sizes are known. */
static weft_status check_broadcast(struct wf_infer *r, const struct wf_type *small,
                                   const struct wf_type *large)
{
    int skip = large->rank - small->rank;

    if (skip < 0)
        return wf_infer_err(r, WEFT_ESHAPE, "cannot broadcast rank %d to rank %d", small->rank,
                            large->rank);
    for (int i = 0; i < small->rank; i++) {
        int64_t a = small->dim[i], b = large->dim[i + skip];

        if (a >= 0 && b >= 0 && a != 1 && a != b)
            return wf_infer_err(r, WEFT_ESHAPE, "cannot broadcast size %lld to %lld", (long long)a,
                                (long long)b);
    }
    return WEFT_OK;
}

static weft_status like(struct wf_infer *r, const struct wf_type *t)
{
    r->out[0] = *t;
    r->out[0].dtype = r->in[0].dtype;
    return wf_infer_fits(r, &r->out[0]);
}

weft_status wf_infer_reduce_to_like(struct wf_infer *r)
{
    weft_status st = check_broadcast(r, &r->in[1], &r->in[0]);

    if (!st && !wf_is_float(r->in[0].dtype) && !wf_is_int(r->in[0].dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs numbers (cast it)");
    return st ? st : like(r, &r->in[1]);
}

weft_status wf_infer_broadcast_like(struct wf_infer *r)
{
    weft_status st = check_broadcast(r, &r->in[0], &r->in[1]);

    return st ? st : like(r, &r->in[1]);
}

weft_status wf_infer_broadcast_to(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = wf_infer_sizes(r, r->in[0].dtype, &t);

    if (!st)
        st = check_broadcast(r, &r->in[0], &t);
    return st ? st : like(r, &t);
}

weft_status wf_infer_full(struct wf_infer *r)
{
    return wf_infer_sizes(r, (weft_dtype)wf_in_int(r, "dtype"), &r->out[0]);
}

weft_status wf_infer_size_of(struct wf_infer *r)
{
    bool gone[WEFT_MAX_RANK];
    weft_dtype t = (weft_dtype)wf_in_int(r, "dtype");

    if (!wf_is_float(t) && !wf_is_int(t))
        return wf_infer_err(r, WEFT_EDTYPE, "dtype must be numeric");
    r->out[0] = (struct wf_type){.dtype = t};
    return mark_axes(r, &r->in[0], gone);
}
