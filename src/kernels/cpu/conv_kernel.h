/* conv_kernel.h - pieces of convolution in vectors over channels, one set per SIMD level. */
#ifndef WF_KERNELS_CPU_CONV_KERNEL_H
#define WF_KERNELS_CPU_CONV_KERNEL_H

#include "base/base.h"

/* The source pixels that a destination pixel sees, as offsets along the three axes. Taps come in
 * rows: run[t] counts the taps from t on that are adjacent along the last axis. */
struct wf_conv_taps {
    int64_t n;
    const int64_t *offset[3];
    const int64_t *run;
};

/* One image: sizes, channels of a pixel. */
struct wf_conv_image {
    const float *data;
    int64_t n[3], channels;
};

/* A row of output pixels, straight from the source: pixel i sees the k floats x[i * step +
 * offset[.]]. w is packed as by pack_b of the same level, panels w_ps floats apart. */
struct wf_conv_row {
    const float *x;
    int64_t step, k;
    const int64_t *offset;
    const float *w;
    int64_t w_ps;
    float *y;
    int64_t ldy, n, n_c; /* pixels, channels */
};

/* Channel by channel: n pixels that see the same taps. Tap t of pixel i is x[i * x_step +
 * offset[t]] with the filter at w[tap[t]]; `channels` floats from each. */
struct wf_depth_row {
    const float *x, *w;
    int64_t x_step;
    float *y;
    int64_t y_step, n, channels;
    int64_t n_taps;
    const int64_t *offset, *tap;
};

struct wf_conv_fns {
    int nr; /* columns of a panel that `row` expects */
    /* y[i][c] = sum over k, in order, of x[i * step + offset[k]] w[k][c] */
    void (*row)(const struct wf_conv_row *r);
    /* Gathers what one pixel sees: for taps [from, to), n_c channels from channel c of source pixel
     * at + offset, zeros if there is none, side by side into dst. */
    void (*gather)(float *dst, const struct wf_conv_image *src, const struct wf_conv_taps *taps,
                   int64_t from, int64_t to, const int64_t at[3], int64_t c, int64_t n_c);
    int narrow; /* up to this many columns `dots` is the better product */
    /* c[i][j] (+)= sum over k of a[i][k] b[j][k], in VF_N interleaved chains, which are then
     * added. */
    void (*dots)(float *c, int64_t ldc, const float *a, int64_t lda, int64_t m, const float *b,
                 int64_t ldb, int64_t n, int64_t k, bool accumulate);
    /* y[i] = sum over taps, in order, of x w */
    void (*depth)(const struct wf_depth_row *r);
    /* dw[tap[t]] += sum over pixels, in order, of x y; reads y, not w. */
    void (*depth_filter)(const struct wf_depth_row *r, float *dw);
    /* dst[i * mult + j] = src[i], and dst[i] = sum over j of src[i * mult + j]: n of the shorter
     * one. */
    void (*expand)(float *dst, const float *src, int64_t n, int64_t mult);
    void (*fold)(float *dst, const float *src, int64_t n, int64_t mult);
    /* Prefetches memory into the cache. */
    void (*fetch)(const void *p, int64_t bytes);
    /* dst[i] += src[i] */
    void (*add)(float *dst, const float *src, int64_t n);
};

/* The functions of a level; the portable ones if the build has nothing better. */
const struct wf_conv_fns *wf_conv_fns_of(weft_simd level);

#endif
