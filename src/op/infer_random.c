/* infer_random.c - shape rules of random ops. */
#include <math.h>

#include "op/infer.h"

static weft_status shape_of(struct wf_infer *r)
{
    weft_dtype dtype = (weft_dtype)wf_in_int(r, "dtype");

    if (!r->n_in)
        return wf_infer_sizes(r, dtype, &r->out[0]);
    if (dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES)
        return wf_infer_err(r, WEFT_EDTYPE, "dtype %d does not exist", (int)dtype);
    r->out[0] = r->in[0];
    r->out[0].dtype = dtype;
    return wf_infer_fits(r, &r->out[0]);
}

static weft_status float_shape(struct wf_infer *r)
{
    weft_status st = shape_of(r);

    if (!st && !wf_is_float(r->out[0].dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "dtype must be a float type (cast the result)");
    return st;
}

weft_status wf_infer_random_uniform(struct wf_infer *r)
{
    double lo = wf_in_float(r, "lo"), hi = wf_in_float(r, "hi");

    if (!(lo <= hi) || !isfinite(lo) || !isfinite(hi))
        return wf_infer_err(r, WEFT_EINVAL, "[%g, %g) is not a range", lo, hi);
    return float_shape(r);
}

weft_status wf_infer_random_normal(struct wf_infer *r)
{
    double mean = wf_in_float(r, "mean"), stddev = wf_in_float(r, "stddev");

    if (!isfinite(mean) || !(stddev >= 0) || !isfinite(stddev))
        return wf_infer_err(r, WEFT_EINVAL, "mean %g or standard deviation %g is not valid", mean,
                            stddev);
    return float_shape(r);
}

weft_status wf_infer_random_bernoulli(struct wf_infer *r)
{
    double p = wf_in_float(r, "p");

    if (!(p >= 0 && p <= 1))
        return wf_infer_err(r, WEFT_EINVAL, "p %g is not a probability", p);
    return shape_of(r);
}

/* The attribute, and the operand that may replace it. */
static weft_status check_rate(struct wf_infer *r, int operand)
{
    double rate = wf_in_float(r, "rate");

    if (!(rate >= 0 && rate <= 1))
        return wf_infer_err(r, WEFT_EINVAL, "rate %g is not in 0..1", rate);
    if (r->n_in > operand && r->in[operand].dtype != WEFT_NONE &&
        (r->in[operand].rank || !wf_is_float(r->in[operand].dtype)))
        return wf_infer_err(r, WEFT_ESHAPE, "the rate must be a float scalar");
    return WEFT_OK;
}

weft_status wf_infer_dropout(struct wf_infer *r)
{
    const struct wf_attr *shared = wf_in_attr(r, "shared_axes");
    weft_status st = check_rate(r, 1);
    int a;

    if (!st && !wf_is_float(r->in[0].dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    if (st)
        return st;
    r->out[0] = r->out[1] = r->in[0];
    r->out[1].dtype = WEFT_BOOL;
    for (int i = 0; i < shared->n; i++) {
        st = wf_axis(r, shared->ints[i], r->in[0].rank, &a);
        if (st)
            return st;
        r->out[1].dim[a] = 1;
    }
    return WEFT_OK;
}

weft_status wf_infer_dropout_grad(struct wf_infer *r)
{
    const struct wf_type *dy = &r->in[0], *kept = &r->in[1];
    weft_status st = check_rate(r, 2);

    if (!st && (!wf_is_float(dy->dtype) || kept->dtype != WEFT_BOOL))
        st = wf_infer_err(r, WEFT_EDTYPE, "needs a float type and bool");
    if (!st && dy->rank != kept->rank)
        st = wf_infer_err(r, WEFT_ESHAPE, "ranks differ");
    for (int i = 0; i < dy->rank && !st; i++)
        if (dy->dim[i] >= 0 && kept->dim[i] >= 0 && kept->dim[i] != 1 && kept->dim[i] != dy->dim[i])
            st = wf_infer_err(r, WEFT_ESHAPE, "sizes differ at axis %d", i);
    r->out[0] = *dy;
    return st;
}
