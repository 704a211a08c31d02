/* weft/ops_reduce.h - reductions, sums along an axis, values shaped like another.
 *
 * A reduction removes the given axes (negative: from the end; none: all), or keeps them with size
 * 1. Each axis may be given once. Floats are summed in more than their precision and in an order
 * that depends only on the shape. Errors: WEFT_ERANGE for an axis that does not exist,
 * WEFT_EDTYPE. */
#ifndef WEFT_OPS_REDUCE_H
#define WEFT_OPS_REDUCE_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* weft_mean(g, x, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1})) */
typedef struct weft_reduce_opts {
    size_t size;
    int n_axes; /* 0: all axes */
    int64_t axes[WEFT_MAX_RANK];
    bool keepdims;
} weft_reduce_opts;

WEFT_API weft_val weft_sum(weft_graph *g, weft_val x,
                           const weft_reduce_opts *opts); /* numbers; 0 if empty */
WEFT_API weft_val weft_mean(weft_graph *g, weft_val x,
                            const weft_reduce_opts *opts); /* floats; NaN if empty */
/* Keras' max and min: numbers; NaN if any element is NaN; if empty, the lowest (highest) value of
 * the type. Equal elements share the gradient evenly, as in TensorFlow. */
WEFT_API weft_val weft_reduce_max(weft_graph *g, weft_val x, const weft_reduce_opts *opts);
WEFT_API weft_val weft_reduce_min(weft_graph *g, weft_val x, const weft_reduce_opts *opts);
/* Product; numbers; 1 if empty. Second gradients only if no factor is 0. */
WEFT_API weft_val weft_prod(weft_graph *g, weft_val x, const weft_reduce_opts *opts);
WEFT_API weft_val weft_any(weft_graph *g, weft_val x,
                           const weft_reduce_opts *opts); /* bool; false if empty */
WEFT_API weft_val weft_all(weft_graph *g, weft_val x,
                           const weft_reduce_opts *opts); /* bool; true if empty */
WEFT_API weft_val weft_norm_l1(weft_graph *g, weft_val x,
                               const weft_reduce_opts *opts); /* sum of |x|, floats */
/* sqrt(sum of x²), floats; the gradient at the origin is 0. */
WEFT_API weft_val weft_norm_l2(weft_graph *g, weft_val x, const weft_reduce_opts *opts);
/* ln(sum of e^x) without overflow, floats; -infinity if empty. */
WEFT_API weft_val weft_logsumexp(weft_graph *g, weft_val x, const weft_reduce_opts *opts);

typedef struct weft_arg_opts {
    size_t size;
    bool keepdims;
} weft_arg_opts;
/* The index along `axis` of the first largest (smallest) element, as i64; NaN counts as largest
 * (smallest). Numbers. WEFT_ESHAPE if the axis is empty. No gradient. */
WEFT_API weft_val weft_argmax(weft_graph *g, weft_val x, int axis, const weft_arg_opts *opts);
WEFT_API weft_val weft_argmin(weft_graph *g, weft_val x, int axis, const weft_arg_opts *opts);

typedef struct weft_cumsum_opts {
    size_t size;
    bool exclusive; /* each result excludes its own element */
    bool reverse;   /* from the end */
} weft_cumsum_opts;
/* y[i] = x[0] + … + x[i] along axis; numbers. */
WEFT_API weft_val weft_cumsum(weft_graph *g, weft_val x, int axis, const weft_cumsum_opts *opts);

/* x [n, …], ids [n] of i32 or i64 in [0, n_segments), in any order -> [n_segments, …]: y[s] = sum
 * of x[i] with ids[i] = s; 0 if there is none. Numbers. An id out of range fails the run with
 * WEFT_EDATA. */
WEFT_API weft_val weft_segment_sum(weft_graph *g, weft_val x, weft_val ids, int64_t n_segments);

/* x broadcast to a shape, or to that of `like`; any type. */
WEFT_API weft_val weft_broadcast_to(weft_graph *g, weft_val x, int rank, const int64_t *dim);
WEFT_API weft_val weft_broadcast_like(weft_graph *g, weft_val x, weft_val like);
/* x summed to the shape of `like`, the inverse of broadcasting; numbers. */
WEFT_API weft_val weft_reduce_to_like(weft_graph *g, weft_val x, weft_val like);

typedef struct weft_size_of_opts {
    size_t size;
    int n_axes; /* 0: all axes */
    int64_t axes[WEFT_MAX_RANK];
    weft_dtype dtype; /* of the result; 0: f32 */
} weft_size_of_opts;
/* The number of elements along axes as a scalar, for sizes that are known only when a plan is made.
 * No gradient. */
WEFT_API weft_val weft_size_of(weft_graph *g, weft_val x, const weft_size_of_opts *opts);

/* Constants in the shape and dtype of x, or of a given shape (dtype 0: f32). No gradient. */
WEFT_API weft_val weft_zeros_like(weft_graph *g, weft_val x);
WEFT_API weft_val weft_ones_like(weft_graph *g, weft_val x);
WEFT_API weft_val weft_full(weft_graph *g, double value, weft_dtype dtype, int rank,
                            const int64_t *dim);

#ifdef __cplusplus
}
#endif
#endif
