/* shape.c - the arithmetic of axes and indices that shape rules and kernels share. */
#include "op/shape.h"

static int64_t clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

struct wf_range wf_strided_range(const int64_t *begin, const int64_t *end, int64_t stride,
                                 int64_t n)
{
    /* With a negative stride the ends are between -1 (before the first element) and n - 1. */
    int64_t lo = stride > 0 ? 0 : -1, hi = stride > 0 ? n : n - 1;
    int64_t b = begin ? clamp(*begin < 0 ? *begin + n : *begin, lo, hi) : stride > 0 ? lo : hi;
    int64_t e = end ? clamp(*end < 0 ? *end + n : *end, lo, hi) : stride > 0 ? hi : lo;
    struct wf_range r = {b, stride, 0};

    if (stride > 0 && e > b)
        r.count = (e - b - 1) / stride + 1;
    else if (stride < 0 && b > e)
        r.count = 1 - (b - e - 1) / stride;
    return r;
}

struct wf_range wf_strided_axis(const struct wf_op *op, const struct wf_attr *attr, int axis,
                                int64_t n)
{
    const struct wf_attr *begin = wf_attr(op, attr, "begin"), *end = wf_attr(op, attr, "end");
    const struct wf_attr *strides = wf_attr(op, attr, "strides");
    bool no_begin = wf_attr_int(op, attr, "begin_mask") >> axis & 1;
    bool no_end = wf_attr_int(op, attr, "end_mask") >> axis & 1;

    return wf_strided_range(axis < begin->n && !no_begin ? &begin->ints[axis] : NULL,
                            axis < end->n && !no_end ? &end->ints[axis] : NULL,
                            axis < strides->n ? strides->ints[axis] : 1, n);
}

bool wf_pad_mode_parse(const char *text, enum wf_pad_mode *out)
{
    static const char *const names[] = {"constant", "reflect", "symmetric"};

    for (int i = 0; i < WF_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            *out = (enum wf_pad_mode)i;
            return true;
        }
    return false;
}

bool wf_combiner_parse(const char *text, enum wf_combiner *out)
{
    static const char *const names[] = {"sum", "mean", "sqrtn"};

    for (int i = 0; i < WF_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            *out = (enum wf_combiner)i;
            return true;
        }
    return false;
}

struct wf_gather_dims wf_gather_dims(const struct wf_type *x, const struct wf_type *indices,
                                     int64_t axis, int64_t batch_dims)
{
    int a = wf_axis_of(axis, x->rank), b = (int)batch_dims;

    return (struct wf_gather_dims){
        .batch = wf_type_part(x, 0, b),
        .outer = wf_type_part(x, b, a),
        .n = x->dim[a],
        .k = wf_type_part(indices, b, indices->rank),
        .inner = wf_type_part(x, a + 1, x->rank),
    };
}
