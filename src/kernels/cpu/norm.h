/* norm.h - layer, RMS, batch, instance and group normalization, forward and backward, f32.
 *
 * Sums over a row are f32 in a fixed order. Sums over rows are f32 within a tile of rows and f64
 * over tiles, in tile order; tiles depend only on the shape. Conventions of `f` and `pool` as in
 * optim.h. Scratch is in floats, 64-byte aligned, its size a function of the shape. */
#ifndef WF_KERNELS_CPU_NORM_H
#define WF_KERNELS_CPU_NORM_H

#include "base/base.h"

/* ---- over each row: layer norm, RMS norm ------------------------------------------------- */

/*   layer   xhat = (x - mean) rstd,  rstd = 1 / sqrt(var + eps), var biased
 *   rms     xhat = x rstd,           rstd = 1 / sqrt(mean(x^2) + eps)
 *           y = xhat gamma + beta                                                          */
struct wf_layer_norm {
    int64_t n_rows, width;
    bool rms;
    float eps;
    const float *x;            /* [n_rows, width] */
    const float *gamma, *beta; /* [width]; NULL: 1, 0 */
    float *y;                  /* may be x */
    float *mean, *rstd;        /* [n_rows] or NULL; mean is not written for rms */
};

/* dx = rstd (dy gamma - mean(dy gamma) - xhat mean(dy gamma xhat)) + add, without the first mean
 * for rms;  dgamma = sum over rows of dy xhat,  dbeta = sum of dy. */
struct wf_layer_norm_grad {
    int64_t n_rows, width;
    bool rms;
    const float *x, *dy, *mean, *rstd; /* mean is not read for rms */
    const float *gamma;                /* NULL: 1 */
    const float *add;      /* [n_rows, width] or NULL: the gradient that bypasses the norm */
    float *dx;             /* may be dy or add */
    float *dgamma, *dbeta; /* [width] or NULL */
    float *scratch;        /* wf_layer_norm_scratch floats; not needed without dgamma, dbeta */
};

/* ---- over rows, for each channel or group of channels ------------------------------------ */

/* x is seen as [n_outer, n_rows, n_channels], the channels as n_groups equal runs. Statistics are
 * taken for each (outer, group) over n_rows * n_channels / n_groups elements:
 *   batch norm      [N,H,W,C]  n_outer 1, n_rows N*H*W, n_groups C
 *   instance norm   [N,H,W,C]  n_outer N, n_rows H*W,   n_groups C
 *   group norm      [N,H,W,C]  n_outer N, n_rows H*W,   n_groups as given */
struct wf_chan_shape {
    int64_t n_outer, n_rows, n_channels, n_groups;
};

struct wf_chan_norm {
    struct wf_chan_shape shape;
    const float *x;
    const float *mean, *var; /* [n_outer, n_groups], var biased; the moving ones for inference */
    float eps;
    const float *gamma, *beta; /* [n_channels]; NULL: 1, 0 */
    bool relu;                 /* y = max(y, 0) */
    float *y;                  /* may be x */
    float *scratch;            /* wf_chan_scratch floats */
};

/* With xhat = (x - mean) / sqrt(var + eps), dy masked by y > 0 for relu, averages over (outer,
 * group):
 *   dx = rstd (dy gamma - avg(dy gamma) - xhat avg(dy gamma xhat)),   frozen: dx = rstd dy gamma
 *   dgamma = sum over outer and rows of dy xhat,   dbeta = sum of dy */
struct wf_chan_grad {
    struct wf_chan_shape shape;
    const float *x, *dy, *mean, *var;
    float eps;
    const float *gamma;    /* NULL: 1 */
    const float *y;        /* the output, if relu was fused; otherwise NULL */
    bool frozen;           /* mean and var are constants, not statistics of x */
    float *dx;             /* may be dy; NULL: not requested */
    float *dgamma, *dbeta; /* [n_channels] or NULL */
    float *scratch;
};

/* ---- one tile, one thread ---------------------------------------------------------------- */

/* n_rows rows of n_cols columns, rows ld apart. Rows narrower than a vector are contiguous, and the
 * arrays of per-column values that affine, grad_sums and grad_dx read repeat them `vector`
 * times. */
struct wf_cols {
    int64_t n_rows, n_cols, ld;
};

struct wf_norm_fns {
    int vector; /* VF_N */
    void (*layer)(const struct wf_layer_norm *p, int64_t begin, int64_t end);
    /* dgamma and dbeta of these rows go to part[2 * width] (NULL: not requested). */
    void (*layer_grad)(const struct wf_layer_norm_grad *p, int64_t begin, int64_t end, float *part);
    /* The means of the columns, and the sums of squared distances from them. n_rows >= 1. */
    void (*stats)(struct wf_cols s, const float *x, float *mean, float *m2);
    /* y = (x - mean) scale + shift */
    void (*affine)(struct wf_cols s, const float *x, const float *mean, const float *scale,
                   const float *shift, bool relu, float *y);
    /* Column sums of dy and of dy (x - mean); y as in wf_chan_grad. */
    void (*grad_sums)(struct wf_cols s, const float *x, const float *dy, const float *y,
                      const float *mean, float *sum_dy, float *sum_dyx);
    /* dx = dy k1 - k2 - (x - mean) k3 */
    void (*grad_dx)(struct wf_cols s, const float *x, const float *dy, const float *y,
                    const float *mean, const float *k1, const float *k2, const float *k3,
                    float *dx);
    /* out[c] = the f64 sum over i < n of parts[i * stride + c], in order. */
    void (*add_parts)(int64_t n, int64_t stride, int64_t n_cols, const float *parts, float *out);
    /* Means and sums of squared distances of tiles of `rows` rows, merged in f64, in order; tile i
     * has them at parts + i*stride and parts + i*stride + m2_at. */
    void (*merge_stats)(int64_t n_rows, int64_t rows, int64_t stride, int64_t m2_at, int64_t n_cols,
                        const float *parts, float *mean, float *m2);
};

const struct wf_norm_fns *wf_norm_fns_at(weft_simd level);

/* ---- whole tensors ----------------------------------------------------------------------- */

void wf_layer_norm(const struct wf_norm_fns *f, struct wf_pool *pool,
                   const struct wf_layer_norm *p);
int64_t wf_layer_norm_scratch(int64_t n_rows, int64_t width);
void wf_layer_norm_grad(const struct wf_norm_fns *f, struct wf_pool *pool,
                        const struct wf_layer_norm_grad *p);

int64_t wf_chan_scratch(const struct wf_chan_shape *s);
/* mean and biased variance, [n_outer, n_groups]; 0 and 0 if there are no elements. */
void wf_chan_stats(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_chan_shape *s,
                   const float *x, float *mean, float *var, float *scratch);
void wf_chan_norm(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_chan_norm *p);
void wf_chan_grad(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_chan_grad *p);

#endif
