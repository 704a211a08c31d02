/* shape.h - the arithmetic of axes and indices that shape rules and kernels share, so that they
 * always agree. */
#ifndef WF_SHAPE_H
#define WF_SHAPE_H

#include "op/op.h"

/* Elements first, first + stride, … (count of them) of one axis. */
struct wf_range {
    int64_t first, stride, count;
};

/* What begin:end:stride picks from an axis of n elements, as in NumPy: negative ends count from the
 * end, ends beyond the axis are clamped, an omitted end is that of the axis. `stride` is not 0. */
struct wf_range wf_strided_range(const int64_t *begin, const int64_t *end, int64_t stride,
                                 int64_t n);
/* Axis `axis` of a strided_slice with these attributes; n is its size. */
struct wf_range wf_strided_axis(const struct wf_op *op, const struct wf_attr *attr, int axis,
                                int64_t n);

/* Where position i of an axis padded to before + n + after comes from: 0..n-1, or -1 for the
 * constant. */
/* constant; reflect: c b | a b c | b a; symmetric: b a | a b c | c b. */
enum wf_pad_mode { WF_PAD_CONSTANT, WF_PAD_REFLECT, WF_PAD_SYMMETRIC };
bool wf_pad_mode_parse(const char *text, enum wf_pad_mode *out);
static inline int64_t wf_pad_source(enum wf_pad_mode mode, int64_t i, int64_t before, int64_t n)
{
    int64_t j = i - before;

    if (j >= 0 && j < n)
        return j;
    if (mode == WF_PAD_CONSTANT)
        return -1;
    if (j < 0)
        return mode == WF_PAD_REFLECT ? -j : -j - 1;
    return mode == WF_PAD_REFLECT ? 2 * n - 2 - j : 2 * n - 1 - j;
}

/* How embedding bags are combined. */
enum wf_combiner { WF_BAG_SUM, WF_BAG_MEAN, WF_BAG_SQRTN };
bool wf_combiner_parse(const char *text, enum wf_combiner *out);

/* The product of sizes [from, to) of a known type. */
static inline int64_t wf_type_part(const struct wf_type *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

/* axis, counted from the end if negative; the shape rule has checked it. */
static inline int wf_axis_of(int64_t axis, int rank)
{
    return (int)(axis < 0 ? axis + rank : axis);
}

/* gather: x [batch][outer][n][inner], indices [batch][k], y [batch][outer][k][inner]. */
struct wf_gather_dims {
    int64_t batch, outer, n, k, inner;
};
struct wf_gather_dims wf_gather_dims(const struct wf_type *x, const struct wf_type *indices,
                                     int64_t axis, int64_t batch_dims);

#endif
