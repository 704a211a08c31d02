/* winograd.h - the transforms of Winograd convolution F(4x4, 3x3), one set per SIMD level.
 *
 * A tile is 4 x 4 outputs and the 6 x 6 inputs that they see. With the points 0, ±a, ±b, ∞, where a
 * = 1/√2 and b = √2 (half the rounding error of the usual 0, ±1, ±2, ∞):
 *   y  = Aᵀ [ (G w Gᵀ) ⊙ (Bᵀ x B) ] A          forward
 *   dx = B [ (G w Gᵀ) ⊙ (A dy Aᵀ) ] Bᵀ          summed where tiles overlap
 *   dw = Gᵀ [ sum over tiles (Bᵀ x B) ⊙ (A dy Aᵀ) ] G
 * The 36 elements of the products are stored separately: element (i, j) of a transformed tile is at
 * [(6 i + j) * ps]. All functions work on n adjacent channels, and touch nothing else. */
#ifndef WF_KERNELS_CPU_WINOGRAD_H
#define WF_KERNELS_CPU_WINOGRAD_H

#include "base/base.h"

struct wf_winograd_fns {
    /* v = Bᵀ x B: pixel (i, j) of the 6 x 6 is at x[i * rs + j * cs]. */
    void (*input)(float *v, int64_t v_ps, const float *x, int64_t rs, int64_t cs, int64_t n);
    /* y = Aᵀ m A: 4 x 4 pixels, overwritten. */
    void (*output)(float *y, int64_t rs, int64_t cs, const float *m, int64_t m_ps, int64_t n);
    /* m = A dy Aᵀ. */
    void (*grad_output)(float *m, int64_t m_ps, const float *dy, int64_t rs, int64_t cs, int64_t n);
    /* dx += B v Bᵀ: 6 x 6 pixels. */
    void (*grad_input)(float *dx, int64_t rs, int64_t cs, const float *v, int64_t v_ps, int64_t n);
    /* u = G w Gᵀ: tap (i, j) of the 3 x 3 is at w[(3 i + j) * ts]. */
    void (*filter)(float *u, int64_t u_ps, const float *w, int64_t ts, int64_t n);
    /* dw = Gᵀ u G. */
    void (*grad_filter)(float *dw, int64_t ts, const float *u, int64_t u_ps, int64_t n);
};

/* The transforms of a level; the portable ones if the build has nothing better. */
const struct wf_winograd_fns *wf_winograd_fns_of(weft_simd level);

#endif
