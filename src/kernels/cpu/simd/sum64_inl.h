/* sum64_inl.h - sums of f32 data in f64, with the same bits at every SIMD level.
 *
 * Element i of a run goes to lane i % 16; lanes are folded i and i + 8, then 4, 2, 1. The square of
 * an f32 is exact in f64, so it does not matter whether a level multiplies and adds in one
 * operation. */
#ifndef WF_KERNELS_CPU_SUM64_INL_H
#define WF_KERNELS_CPU_SUM64_INL_H

#include "kernels/cpu/simd.h"

#define WF_SUM64_LANES 16
#define WF_SUM64_N (VF_N / 2)
#define WF_SUM64_VECS (WF_SUM64_LANES / WF_SUM64_N)

typedef double wf_vd __attribute__((vector_size(WF_SUM64_N * 8)));
typedef float wf_vfh __attribute__((vector_size(WF_SUM64_N * 4))); /* half a vf */

struct wf_sum64 {
    wf_vd v[WF_SUM64_VECS];
};

WF_SIMD_INLINE void wf_sum64_zero(struct wf_sum64 *s)
{
    memset(s, 0, sizeof *s);
}

WF_SIMD_INLINE wf_vd wf_vd_load(const float *p)
{
    wf_vfh h;

    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, wf_vd);
}

/* Add 16 elements, or their squares. */
WF_SIMD_INLINE void wf_sum64_add(struct wf_sum64 *s, const float *p)
{
    for (int j = 0; j < WF_SUM64_VECS; j++)
        s->v[j] += wf_vd_load(p + j * WF_SUM64_N);
}
WF_SIMD_INLINE void wf_sum64_add_sq(struct wf_sum64 *s, const float *p)
{
    for (int j = 0; j < WF_SUM64_VECS; j++) {
        wf_vd x = wf_vd_load(p + j * WF_SUM64_N);

        s->v[j] += x * x;
    }
}

WF_SIMD_INLINE double wf_sum64_fold(const struct wf_sum64 *s)
{
    double lane[WF_SUM64_LANES];

    memcpy(lane, s, sizeof lane); /* v is all there is */
    for (int half = WF_SUM64_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* The last n < 16 elements of a run, padded with zeros into buf[16]. */
WF_SIMD_INLINE const float *wf_sum64_tail(float *buf, const float *p, int64_t n)
{
    memset(buf, 0, WF_SUM64_LANES * sizeof *buf);
    for (int64_t i = 0; i < n; i++)
        buf[i] = p[i];
    return buf;
}

#endif
