/* weft/ops_index.h - ops that find elements by index: gather, scatter, top_k, sort, embeddings.
 *
 * Indices are integers of any type. An index outside its axis fails the run with WEFT_EDATA and a
 * text with its position and value; negative indices are outside. If several indices name the same
 * position, their addends are summed in the order of the indices, so the result does not depend on
 * the number of threads. */
#ifndef WEFT_OPS_INDEX_H
#define WEFT_OPS_INDEX_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading by index ------------------------------------------------------------------------ */

typedef struct weft_gather_opts {
    size_t size;
    int axis;       /* of x; negative: counted from the end */
    int batch_dims; /* leading axes that x and the indices share */
} weft_gather_opts;
/* y[b…, o…, k…, i…] = x[b…, o…, indices[b…, k…], i…]: the slices of x at the indices along an axis.
 * Shape: x up to the axis, indices without their batch axes, x after the axis. */
WEFT_API weft_val weft_gather(weft_graph *g, weft_val x, weft_val indices,
                              const weft_gather_opts *opts);
/* y[k…, i…] = x[indices[k…, 0], …, indices[k…, d - 1], i…]; d, the last size of indices, must be
 * known. */
WEFT_API weft_val weft_gather_nd(weft_graph *g, weft_val x, weft_val indices);
/* y[o…, k, i…] = x[o…, indices[o…, k, i…], i…]: one index per element; x and indices have the same
 * sizes along all other axes. */
WEFT_API weft_val weft_take_along(weft_graph *g, weft_val x, weft_val indices, int axis);

/* ---- adding by index ------------------------------------------------------------------------- */

/* Zeros of n_rows rows, to which row k of `rows` is added at row ids[k]: ids [k…], rows [k…, i…] ->
 * [n_rows, i…]. */
WEFT_API weft_val weft_scatter_add(weft_graph *g, weft_val ids, weft_val rows, int64_t n_rows);
/* The same into zeros of the shape of `like`. */
WEFT_API weft_val weft_scatter_add_like(weft_graph *g, weft_val ids, weft_val rows, weft_val like);
/* Zeros of the shape, y[indices[k…], i…] += updates[k…, i…]; the reverse of weft_gather_nd. */
WEFT_API weft_val weft_scatter_nd_add(weft_graph *g, weft_val indices, weft_val updates, int rank,
                                      const int64_t *shape);
WEFT_API weft_val weft_scatter_nd_add_like(weft_graph *g, weft_val indices, weft_val updates,
                                           weft_val like);

/* ---- sorting --------------------------------------------------------------------------------- */

typedef struct weft_one_hot_opts {
    size_t size;
    int axis;         /* of the result; 0: the last one, WEFT_ZERO: the first */
    weft_dtype dtype; /* 0: f32 */
    double on;        /* 0: 1 */
    double off;
    bool allow_outside; /* an id outside 0..depth-1 makes a row of `off`, as in Keras */
} weft_one_hot_opts;
/* `on` at the position given by each id along a new axis of size depth, `off` elsewhere. */
WEFT_API weft_val weft_one_hot(weft_graph *g, weft_val ids, int64_t depth,
                               const weft_one_hot_opts *opts);

/* The k largest elements along the last axis, in descending order: [.., n] -> [.., k]. *indices
 * (may be NULL) gets their positions, i32. Equal elements are ordered by position; NaN is below
 * every number. */
WEFT_API weft_val weft_top_k(weft_graph *g, weft_val x, int64_t k, weft_val *indices);

typedef struct weft_sort_opts {
    size_t size;
    int axis; /* 0: the last one, WEFT_ZERO: the first */
    bool descending;
} weft_sort_opts;
/* x sorted along an axis; equal elements keep their order, NaN comes last in either direction. */
WEFT_API weft_val weft_sort(weft_graph *g, weft_val x, const weft_sort_opts *opts);
/* The positions, i32, that weft_sort takes its elements from. */
WEFT_API weft_val weft_argsort(weft_graph *g, weft_val x, const weft_sort_opts *opts);

/* ---- embeddings ------------------------------------------------------------------------------ */

/* table[ids[k…], :]: table [rows, width], ids of any shape -> [k…, width]. The gradient touches the
 * rows looked up; if a table is used in no other way, optimizers update only those rows. */
WEFT_API weft_val weft_embedding(weft_graph *g, weft_val table, weft_val ids);

typedef enum weft_combiner {
    WEFT_COMBINER_MEAN, /* Σ w·row / Σ w */
    WEFT_COMBINER_SUM,  /* Σ w·row */
    WEFT_COMBINER_SQRTN /* Σ w·row / √(Σ w²) */
} weft_combiner;
typedef struct weft_embedding_bag_opts {
    size_t size;
    weft_combiner combiner;
    weft_val weights; /* w [n], of the table's type; absent: all 1 */
} weft_embedding_bag_opts;
/* One row per bag of ids: table [rows, width], ids [n], offsets [bags + 1] (i32 or i64, ascending
 * from 0 to n) -> [bags, width]. Bag b holds the ids offsets[b] .. offsets[b + 1] - 1. An empty
 * bag, or one whose denominator is 0, gives a row of zeros. Differentiable in table and weights. */
WEFT_API weft_val weft_embedding_bag(weft_graph *g, weft_val table, weft_val ids, weft_val offsets,
                                     const weft_embedding_bag_opts *opts);
/* The offsets [n_bags + 1] of bags given by the ascending bag numbers (i32 or i64) of their
 * elements: segments [n]. */
WEFT_API weft_val weft_segment_offsets(weft_graph *g, weft_val segments, int64_t n_bags);
/* As many bags as `like` has rows. */
WEFT_API weft_val weft_segment_offsets_like(weft_graph *g, weft_val segments, weft_val like);

#ifdef __cplusplus
}
#endif
#endif
