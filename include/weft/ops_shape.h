/* weft/ops_shape.h - ops that move or rearrange elements: shapes, joining and splitting, slices,
 * padding.
 *
 * Every op takes every dtype and keeps the elements' bits. A negative axis counts from the end.
 * Sizes may be symbolic unless stated otherwise; what cannot be checked before sizes are known is
 * checked when a plan is made. All are differentiable any number of times. */
#ifndef WEFT_OPS_SHAPE_H
#define WEFT_OPS_SHAPE_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- another shape for the same elements (no data moves) ------------------------------------- */

/* x in a new shape with the same number of elements; one size may be -1 and follows from the
 * others. */
WEFT_API weft_val weft_reshape(weft_graph *g, weft_val x, int rank, const int64_t *shape);
/* x in the shape of `like`, which must have the same number of elements. */
WEFT_API weft_val weft_reshape_like(weft_graph *g, weft_val x, weft_val like);
/* Inserts an axis of size 1 at `axis` of the result: [a, b] -> [a, 1, b] for axis 1. */
WEFT_API weft_val weft_expand_dims(weft_graph *g, weft_val x, int axis);
/* Removes the given axes, which must have size 1. n_axes 0: removes every axis of size 1 (sizes
 * must be known). */
WEFT_API weft_val weft_squeeze(weft_graph *g, weft_val x, int n_axes, const int64_t *axes);
/* [batch, …] -> [batch, all others joined]; [batch] -> [batch, 1]. */
WEFT_API weft_val weft_flatten(weft_graph *g, weft_val x);

/* ---- order ----------------------------------------------------------------------------------- */

/* Axis i of the result is axis perm[i] of x. n 0: the axes in reverse order. */
WEFT_API weft_val weft_transpose(weft_graph *g, weft_val x, int n, const int64_t *perm);
/* x reversed along the axes. */
WEFT_API weft_val weft_reverse(weft_graph *g, weft_val x, int n_axes, const int64_t *axes);

/* ---- joining and splitting ------------------------------------------------------------------- */

/* Joins values along an axis; their other sizes and their types must be equal. Any number. */
WEFT_API weft_val weft_concat(weft_graph *g, int n, const weft_val *xs, int axis);
/* Stacks values, all of one shape, along a new axis of size n: n × [a, b] -> [a, n, b] for axis
 * 1. */
WEFT_API weft_val weft_stack(weft_graph *g, int n, const weft_val *xs, int axis);
/* n equal parts along an axis, whose size must be a multiple of n (at most 64 when that size is
 * symbolic). */
WEFT_API weft_status weft_split(weft_graph *g, weft_val x, int n, int axis, weft_val *out);
/* n parts of the given sizes, which must add up to the axis' size. */
WEFT_API weft_status weft_split_sizes(weft_graph *g, weft_val x, int n, const int64_t *sizes,
                                      int axis, weft_val *out);
/* The n slices of an axis of size n, without that axis. */
WEFT_API weft_status weft_unstack(weft_graph *g, weft_val x, int n, int axis, weft_val *out);

/* ---- slices, copies, padding ----------------------------------------------------------------- */

/* x[begin[i] : begin[i] + size[i]] in each of the `rank` axes of x; a size of -1 reaches to the
 * end. A slice outside x is WEFT_ERANGE. */
WEFT_API weft_val weft_slice(weft_graph *g, weft_val x, int rank, const int64_t *begin,
                             const int64_t *size);
/* The same along one axis, all others whole. */
WEFT_API weft_val weft_slice_axis(weft_graph *g, weft_val x, int axis, int64_t begin, int64_t size);

/* An omitted begin or end, as in x[:3] and x[3:]. */
#define WEFT_OMIT INT64_MIN
/* x[begin:end:stride, …] with NumPy's meaning in the first n axes, the others whole: negative ends
 * count from the end, ends beyond the axis are clamped, strides may be negative. strides NULL:
 * 1. x[::-1] is weft_strided_slice(g, x, 1, (int64_t[]){WEFT_OMIT}, (int64_t[]){WEFT_OMIT},
 *   (int64_t[]){-1}). */
WEFT_API weft_val weft_strided_slice(weft_graph *g, weft_val x, int n, const int64_t *begin,
                                     const int64_t *end, const int64_t *strides);

typedef enum weft_pad_mode {
    WEFT_PAD_CONSTANT,
    WEFT_PAD_REFLECT,  /* mirrored without the edge: 3 2 | 1 2 3 | 2 1; at most size - 1 */
    WEFT_PAD_SYMMETRIC /* mirrored with the edge: 2 1 | 1 2 3 | 3 2; at most size */
} weft_pad_mode;
typedef struct weft_pad_opts {
    size_t size;
    weft_pad_mode mode;
    double value; /* of the constant padding */
} weft_pad_opts;
/* Pads x with paddings[2·i] elements before and paddings[2·i + 1] after it along each of its `rank`
 * axes. */
WEFT_API weft_val weft_pad(weft_graph *g, weft_val x, int rank, const int64_t *paddings,
                           const weft_pad_opts *opts);

/* repeats[i] copies of x along each of its `rank` axes: [a, b] -> [a·repeats[0], b·repeats[1]]. */
WEFT_API weft_val weft_tile(weft_graph *g, weft_val x, int rank, const int64_t *repeats);

#ifdef __cplusplus
}
#endif
#endif
