/* trans_inl.h - transposing a square of VF_N x VF_N 32-bit elements held in VF_N vectors, and a
 * group of narrow rows into vectors of columns, so that nothing has to be folded across lanes. */
#ifndef WF_KERNELS_CPU_TRANS_INL_H
#define WF_KERNELS_CPU_TRANS_INL_H

#include "kernels/cpu/simd/cols_inl.h"

#if defined(WF_LEVEL_AVX512)
/* Pairs of rows, then pairs of pairs within 128-bit lanes; the lanes themselves in two more
 * rounds. */
WF_SIMD_INLINE void wf_transpose(vf *v)
{
    __m512 t[16], u[16];

    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);

            u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* u[4q + c] holds columns c, c+4, c+8, c+12 of rows 4q to 4q+3, one column a lane. */
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
        t[8 + c] = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
    }
    for (int c = 0; c < 4; c++) {
        v[c] = (vf)_mm512_shuffle_f32x4(t[c], t[8 + c], 0x88);
        v[4 + c] = (vf)_mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0x88);
        v[8 + c] = (vf)_mm512_shuffle_f32x4(t[c], t[8 + c], 0xdd);
        v[12 + c] = (vf)_mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0xdd);
    }
}
#elif defined(WF_LEVEL_AVX2)
WF_SIMD_INLINE void wf_transpose(vf *v)
{
    __m256 t[8], u[8];

    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            u[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            u[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
        }
    for (int c = 0; c < 4; c++) {
        v[c] = (vf)_mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        v[4 + c] = (vf)_mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
}
#else
WF_SIMD_INLINE void wf_transpose(vf *v)
{
    vf a = {v[0][0], v[1][0], v[2][0], v[3][0]}, b = {v[0][1], v[1][1], v[2][1], v[3][1]};
    vf c = {v[0][2], v[1][2], v[2][2], v[3][2]}, d = {v[0][3], v[1][3], v[2][3], v[3][3]};

    v[0] = a;
    v[1] = b;
    v[2] = c;
    v[3] = d;
}
#endif

enum { WF_NARROW = 16 }; /* columns at most; a multiple of VF_N */

/* A row's part of up to VF_N elements: in_row of them belong to the row, in_group to the group.
 * With AVX-512 a mask costs nothing; elsewhere a load may extend into the next row, but not past
 * the group: the extra elements are in columns past the width, which are never read. */
WF_SIMD_INLINE vf wf_narrow_part(const float *x, int64_t in_row, int64_t in_group)
{
#if defined(WF_LEVEL_AVX512)
    (void)in_group;
    return vf_loadn(x, in_row);
#else
    (void)in_row;
    return vf_load_to(x, in_group);
#endif
}

/* n <= VF_N narrow rows as columns; lanes past n repeat the last row. */
WF_SIMD_INLINE void wf_narrow_load(vf *col, int64_t n, int64_t width, const float *x)
{
    for (int64_t c = 0; c < width; c += VF_N) {
        int64_t in_row = width - c < VF_N ? width - c : VF_N, last = (n - 1) * width + c;
        vf v[VF_N];

        if (n == VF_N)
            for (int r = 0; r < VF_N; r++)
                v[r] = wf_narrow_part(x + r * width + c, in_row, (VF_N - r) * width - c);
        else
            for (int r = 0; r < VF_N; r++)
                v[r] = r < n ? wf_narrow_part(x + r * width + c, in_row, (n - r) * width - c)
                             : vf_loadn(x + last, in_row);
        wf_transpose(v);
        for (int r = 0; r < VF_N; r++)
            col[c + r] = v[r];
    }
}

/* And back; the columns are lost. A store may extend into the next row, which is written later. */
WF_SIMD_INLINE void wf_narrow_store(vf *col, int64_t n, int64_t width, float *y)
{
#if defined(WF_LEVEL_AVX512)
    vf v[VF_N];

    for (int r = 0; r < VF_N; r++)
        v[r] = col[r];
    wf_transpose(v);
    if (n == VF_N)
        for (int r = 0; r < VF_N; r++)
            vf_storen(y + r * width, v[r], width);
    else
        for (int r = 0; r < VF_N; r++)
            if (r < n)
                vf_storen(y + r * width, v[r], width);
#else
    int64_t left = n * width;

    for (int64_t c = 0; c < width; c += VF_N)
        wf_transpose(col + c);
    for (int64_t r = 0; r < n; r++, left -= width)
        for (int64_t c = 0; c < width; c += VF_N)
            vf_store_to(y + r * width + c, col[c + r], left - c);
#endif
}

#endif
