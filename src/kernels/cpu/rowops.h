/* rowops.h - softmax, its logarithm and gradients, and the fused cross-entropies, on rows of f32.
 *
 * Every function works on [n_rows, width] contiguous rows, each separately, so rows may be divided
 * into ranges anywhere without changing results. An output may be the same array as the input of
 * the same shape. A NaN in a row makes the row's results NaN; so does a row of only -inf.
 * Conventions of `f` and `pool` as in optim.h. */
#ifndef WF_KERNELS_CPU_ROWOPS_H
#define WF_KERNELS_CPU_ROWOPS_H

#include "base/base.h"

/* Softmax cross-entropy with its gradient in one pass over the logits x:
 *   sparse   loss[r] = log sum_c exp(x[r,c]) - x[r,label]         dx = (softmax - onehot) * s[r]
 *   dense    loss[r] = sum_c t[r,c] (log sum exp - x[r,c])        dx = (softmax * sum t - t) * s[r]
 * with s[r] = scale * row_scale[r]. Entries with t = 0 add nothing, for any x. A row whose label is
 * `ignore` has loss and gradient 0. */
struct wf_xent {
    int64_t n_rows, width;
    const float *x;
    const void *labels; /* sparse: [n_rows], int64_t if wide, otherwise int32_t */
    bool wide;
    bool has_ignore;
    int64_t ignore;
    const float *targets; /* dense: [n_rows, width] */
    float scale;
    const float *row_scale; /* NULL: 1 */
    float *loss;            /* [n_rows] or NULL */
    float *dx;              /* [n_rows, width] or NULL; may be x */
};

/* Sigmoid cross-entropy, element by element:
 *   loss = max(x,0) - x t + log(1 + exp(-|x|))        dx = (sigmoid(x) - t) * scale * weight */
struct wf_sigmoid_xent {
    int64_t n;
    const float *x, *targets;
    float scale;
    const float *weight; /* [n] or NULL: 1 */
    float *loss, *dx;    /* either may be NULL; dx may be x */
};

/* The members work on a range of rows in the calling thread; pointers are to the first row. */
struct wf_row_fns {
    void (*softmax)(int64_t n_rows, int64_t width, const float *x, float *y);
    void (*log_softmax)(int64_t n_rows, int64_t width, const float *x, float *y);
    void (*logsumexp)(int64_t n_rows, int64_t width, const float *x, float *out);
    void (*softmax_grad)(int64_t n_rows, int64_t width, const float *y, const float *dy, float *dx);
    void (*log_softmax_grad)(int64_t n_rows, int64_t width, const float *y, const float *dy,
                             float *dx);
    /* Rows [begin, end) of p. Returns the first row with a label out of range, or -1. */
    int64_t (*xent_sparse)(const struct wf_xent *p, int64_t begin, int64_t end);
    void (*xent_dense)(const struct wf_xent *p, int64_t begin, int64_t end);
    /* Elements [begin, end). */
    void (*xent_sigmoid)(const struct wf_sigmoid_xent *p, int64_t begin, int64_t end);
};

const struct wf_row_fns *wf_row_fns_at(weft_simd level);

/* y = exp(x - max) / sum */
void wf_softmax(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows, int64_t width,
                const float *x, float *y);
void wf_log_softmax(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows, int64_t width,
                    const float *x, float *y);
/* out[r] = log sum_c exp(x[r,c]); -inf for an empty row or one of only -inf, +inf for one with
 * +inf. */
void wf_logsumexp(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows, int64_t width,
                  const float *x, float *out);
/* From the outputs y: dx = y (dy - sum(dy y)), and dx = dy - exp(y) sum(dy). */
void wf_softmax_grad(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows,
                     int64_t width, const float *y, const float *dy, float *dx);
void wf_log_softmax_grad(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows,
                         int64_t width, const float *y, const float *dy, float *dx);

/* The first row whose label is out of [0, width), or -1. The results are invalid if there is
 * one. */
int64_t wf_xent_sparse(const struct wf_row_fns *f, struct wf_pool *pool, const struct wf_xent *p);
void wf_xent_dense(const struct wf_row_fns *f, struct wf_pool *pool, const struct wf_xent *p);
void wf_xent_sigmoid(const struct wf_row_fns *f, struct wf_pool *pool,
                     const struct wf_sigmoid_xent *p);

#endif
