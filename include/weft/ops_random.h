/* weft/ops_random.h - random values in a graph.
 *
 * Element i of a random value is a pure function of the context's seed, the step, the logical
 * shard, the node and i: threads, SIMD level and machine do not affect it, and repeating a step
 * draws the same values. Two nodes are never merged. Random values have no gradient. */
#ifndef WEFT_OPS_RANDOM_H
#define WEFT_OPS_RANDOM_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_random_opts {
    size_t size;
    weft_val like; /* the result has its shape; rank and dim are then ignored */
    int rank;      /* otherwise these */
    int64_t dim[WEFT_MAX_RANK];
    weft_dtype dtype; /* 0: f32. A float type; for weft_random_bernoulli any type */
} weft_random_opts;

/* Uniform in [lo, hi): weft_random_uniform(g, -1, 1, WEFT_OPTS(weft_random_opts, .rank = 1, .dim =
 * {10})). NULL options give a scalar. */
WEFT_API weft_val weft_random_uniform(weft_graph *g, double lo, double hi,
                                      const weft_random_opts *opts);
WEFT_API weft_val weft_random_normal(weft_graph *g, double mean, double stddev,
                                     const weft_random_opts *opts);
/* Redrawn until within two standard deviations. */
WEFT_API weft_val weft_random_truncated_normal(weft_graph *g, double mean, double stddev,
                                               const weft_random_opts *opts);
/* 1 with probability p, else 0. */
WEFT_API weft_val weft_random_bernoulli(weft_graph *g, double p, const weft_random_opts *opts);

typedef struct weft_dropout_opts {
    size_t size;
    weft_val rate; /* a float scalar instead of the number: feed 0 when not training */
    int n_shared;  /* axes along which elements are dropped together (Keras' noise_shape with 1
                    * there) */
    int64_t shared_axes[WEFT_MAX_RANK];
} weft_dropout_opts;
/* x / (1 - rate) for the elements that are kept, 0 for the others; each is dropped with probability
 * `rate`, in 0..1. Floats. The gradient drops the same elements; weft_output(g, y, 1) says which
 * were kept, as bool. A fed rate out of range fails the run with WEFT_EDATA. */
WEFT_API weft_val weft_dropout(weft_graph *g, weft_val x, double rate,
                               const weft_dropout_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
