/* pool_kernel.h - pooling and resizing in vectors over channels, one set per SIMD level. */
#ifndef WF_KERNELS_CPU_POOL_KERNEL_H
#define WF_KERNELS_CPU_POOL_KERNEL_H

#include "base/base.h"

/* A row of n windows that have the same taps, [from, to) of k along each axis; tap 0 of the first
 * window is at x[at] (possibly outside, if its taps begin later), the next window is x_step floats
 * further. */
struct wf_max_row {
    const float *x;
    int64_t at, x_step;
    int64_t plane,
        line; /* floats between taps along the first two axes; one pixel along the last */
    int64_t from[3], to[3], k[3];
    int64_t n, channels;
    float *y;
    uint8_t *arg; /* the tap, counted row by row over all k; may be NULL */
};

/* Windows that do not overlap: dx at each tap is dy if arg is that tap, otherwise 0. */
struct wf_max_spread {
    float *dx;
    int64_t plane, line, k[3];
    int64_t n, channels;
    const float *dy;
    const uint8_t *arg;
};

struct wf_pool_fns {
    /* The largest element of each window; the first of equal ones, the first NaN. */
    void (*max)(const struct wf_max_row *r);
    void (*max_spread)(const struct wf_max_spread *r);
    /* dst[c] = sum over j, in order, of dy[j][c] where arg[j][c] == tap[j]; pixel j at
     * offset[j]. */
    void (*max_collect)(float *dst, const float *dy, const uint8_t *arg, int64_t n,
                        const int64_t *offset, const int32_t *tap, int64_t channels);
    /* dst[c] = sum over j, in order, of weight[j] * src[offset[j] + c] */
    void (*blend)(float *dst, const float *src, int64_t n, const int64_t *offset,
                  const float *weight, int64_t channels);
};

/* The functions of a level; the portable ones if the build has nothing better. */
const struct wf_pool_fns *wf_pool_fns_of(weft_simd level);

#endif
