/* reduce.h - reductions of a contiguous tensor seen as [n_outer, n, n_inner] over n.
 *
 * Sums are f32 over small pieces in a fixed order (at most a few thousand elements), and f64 over
 * pieces, in order; pieces depend only on the shape and the SIMD level, so results do not depend on
 * threads. Maximum and minimum are NaN if an element is, as in NumPy. Conventions of `f` and `pool`
 * as in optim.h; the output has [n_outer, n_inner] elements. */
#ifndef WF_KERNELS_CPU_REDUCE_H
#define WF_KERNELS_CPU_REDUCE_H

#include "base/base.h"

/* Over no elements: 0, NaN, -inf, +inf, 1, 0, 0, 0, -inf. */
enum wf_reduce_op {
    WF_REDUCE_SUM,
    WF_REDUCE_MEAN,
    WF_REDUCE_MAX,
    WF_REDUCE_MIN,
    WF_REDUCE_PROD,
    WF_REDUCE_SUMSQ,
    WF_REDUCE_L1, /* sum of |x| */
    WF_REDUCE_L2, /* square root of the sum of squares */
    WF_REDUCE_LOGSUMEXP,
    WF_REDUCE_N_OPS
};

struct wf_reduce_shape {
    int64_t n_outer, n, n_inner;
};

/* One thread, one piece. Rows of a matrix are ld apart; ld == n_cols if n_cols is below `vector`.
 * Only any_all may be called with n or n_rows 0. */
struct wf_reduce_fns {
    int vector;
    /* MEAN and L2 are done as SUM and SUMSQ up to here; LOGSUMEXP is separate. */
    float (*run)(enum wf_reduce_op op, int64_t n, const float *x);
    void (*narrow_rows)(enum wf_reduce_op op, int64_t n_rows, int64_t n, const float *x,
                        float *out);
    void (*cols)(enum wf_reduce_op op, int64_t n_rows, int64_t n_cols, int64_t ld, const float *x,
                 float *out);
    /* out[c] = the parts i at parts[i * stride + c] joined in order, in f64. */
    void (*join)(enum wf_reduce_op op, int64_t n_parts, int64_t stride, int64_t n_cols,
                 const float *parts, float *out);
    void (*logsumexp_rows)(int64_t n_rows, int64_t n, const float *x, float *out);
    void (*logsumexp_cols)(int64_t n_rows, int64_t n_cols, int64_t ld, const float *x, float *out);
    void (*arg_rows)(bool min, int64_t n_rows, int64_t n, const float *x, bool wide, void *out);
    void (*arg_cols)(bool min, int64_t n_rows, int64_t n_cols, int64_t ld, const float *x,
                     bool wide, void *out);
    void (*cumsum_cols)(bool exclusive, bool reverse, int64_t n_rows, int64_t n_cols, int64_t ld,
                        const float *x, float *y);
    void (*any_all)(bool all, int64_t n_rows, int64_t n_cols, const uint8_t *x, uint8_t *out);
};

const struct wf_reduce_fns *wf_reduce_fns_at(weft_simd level);

/* Scratch in floats; 0 if none is needed. */
int64_t wf_reduce_scratch(enum wf_reduce_op op, const struct wf_reduce_shape *s);
void wf_reduce(const struct wf_reduce_fns *f, struct wf_pool *pool, enum wf_reduce_op op,
               const struct wf_reduce_shape *s, const float *x, float *out, float *scratch);

/* The index of the largest (smallest) element, the first of equal ones; of the first NaN if there
 * is one. n must be positive and below 2^31. Indices are int64_t if wide, otherwise int32_t. */
void wf_argmax(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
               const float *x, bool wide, void *out);
void wf_argmin(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
               const float *x, bool wide, void *out);

/* Running sums along n, added one after the other in f32. exclusive: y[k] is the sum before x[k];
 * reverse: from the end. y may be x. */
void wf_cumsum(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
               bool exclusive, bool reverse, const float *x, float *y);

/* Booleans in bytes, any non-zero byte counts as true; the output is 0 or 1. */
void wf_any(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
            const uint8_t *x, uint8_t *out);
void wf_all(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
            const uint8_t *x, uint8_t *out);

#endif
