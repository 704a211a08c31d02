/* math_inl.h - the elementary functions on vectors: vexp vexp_neg vexpm1 vlog vlog1p vtanh vsigmoid
 * vsoftplus verf vnormcdf vsin vcos vpow.
 *
 * The functions are in base/fmath_inl.h; here are the operations it needs, at the level of simd.h.
 * A file that must give the same bits at every level defines WF_MATH_NO_FMA first: all functions
 * then use the portable order of operations (and vpow always does). */
#ifndef WF_KERNELS_CPU_SIMD_MATH_INL_H
#define WF_KERNELS_CPU_SIMD_MATH_INL_H

#include "base/fmath.h"
#include "kernels/cpu/simd.h"

#define FM_INLINE WF_SIMD_INLINE
#if defined(WF_MATH_NO_FMA)
#define FM_FMA(a, b, c) ((a) * (b) + (c))
#define FM_FUSED 0
#else
#define FM_FMA(a, b, c) vf_fma(a, b, c)
#define FM_FUSED (VF_N > 4)
#endif

/* VF_N / 2 doubles, and integers of their size. */
typedef double vd __attribute__((vector_size(VF_N * 4)));
typedef int64_t vl __attribute__((vector_size(VF_N * 4)));
typedef uint64_t vul __attribute__((vector_size(VF_N * 4)));

WF_SIMD_INLINE vi vi_addw(vi a, vi b)
{
    return (vi)((vu)a + (vu)b);
}
WF_SIMD_INLINE vi vi_subw(vi a, vi b)
{
    return (vi)((vu)a - (vu)b);
}
WF_SIMD_INLINE vl vl_set1(int64_t x)
{
    return x - (vl){0};
}
WF_SIMD_INLINE vd vd_set1(double x)
{
    return x - (vd){0};
}
WF_SIMD_INLINE vl vl_bits(vd x)
{
    return (vl)x;
}
WF_SIMD_INLINE vd vd_bits(vl x)
{
    return (vd)x;
}
#define vl_shl(x, k) ((vl)((vul)(x) << (k)))
WF_SIMD_INLINE vd vd_select(vl m, vd a, vd b)
{
    return (vd)(((vl)a & m) | ((vl)b & ~m));
}
WF_SIMD_INLINE vd vd_max2(vd a, vd b)
{
    return vd_select((vl)(a > b), a, b);
}
WF_SIMD_INLINE vd vd_min2(vd a, vd b)
{
    return vd_select((vl)(a < b), a, b);
}

/* Half a vector widened, and two halves narrowed. */
#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE vd vd_low(vf x)
{
    return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
}
WF_SIMD_INLINE vd vd_high(vf x)
{
    return (vd)_mm512_cvtps_pd(wf_high8((__m512)x));
}
WF_SIMD_INLINE vf vf_join(vd low, vd high)
{
    __m512 x = _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low));

    return (vf)_mm512_insertf32x8(x, _mm512_cvtpd_ps((__m512d)high), 1);
}
#elif defined(WF_LEVEL_AVX2)
WF_SIMD_INLINE vd vd_low(vf x)
{
    return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
}
WF_SIMD_INLINE vd vd_high(vf x)
{
    return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
}
WF_SIMD_INLINE vf vf_join(vd low, vd high)
{
    return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)high), _mm256_cvtpd_ps((__m256d)low));
}
#else
WF_SIMD_INLINE vd vd_low(vf x)
{
    return (vd){x[0], x[1]};
}
WF_SIMD_INLINE vd vd_high(vf x)
{
    return (vd){x[2], x[3]};
}
WF_SIMD_INLINE vf vf_join(vd low, vd high)
{
    return (vf){(float)low[0], (float)low[1], (float)high[0], (float)high[1]};
}
#endif

/* What fmath_inl.h needs; see there. */
#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE vf fm_split(vf x, vf *k)
{
    __m512 m = _mm512_getmant_ps((__m512)x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_zero);

    *k = (vf)_mm512_sub_ps(_mm512_getexp_ps((__m512)x), _mm512_getexp_ps(m));
    return (vf)m;
}

WF_SIMD_INLINE vf fm_scale(vf p, vf t, vf n)
{
    (void)t;
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
}

WF_SIMD_INLINE vf fm_scale_neg(vf p, vf t, vf n)
{
    return fm_scale(p, t, n);
}
#else
WF_SIMD_INLINE vf fm_split(vf x, vf *k)
{
    vm tiny = vm_lt(x, vf_set1(0x1p-126f));
    vi b = vi_bits(vf_select(tiny, x * vf_set1(0x1p23f), x));
    vi e = vi_subw(b, vi_set1(0x3f400000)) & vi_set1((int32_t)0xff800000);

    *k = vf_from_vi(vi_shr(e, 23)) - vf_keep(tiny, vf_set1(23.0f));
    return vf_bits(vi_subw(b, e));
}

/* In two steps, of which only the second can round. */
WF_SIMD_INLINE vf fm_scale(vf p, vf t, vf n)
{
    vi e = vi_subw(vi_bits(t), vi_bits(vf_set1(12582912.0f))), half = vi_shr(e, 1);

    (void)n;
    p = p * vf_bits(vi_shl(half + vi_set1(127), 23));
    return p * vf_bits(vi_shl(vi_subw(e, half) + vi_set1(127), 23));
}

WF_SIMD_INLINE vf fm_scale_neg(vf p, vf t, vf n)
{
    vi e = vi_addw(vi_shl(vi_bits(t), 23), vi_set1((127 + 64) << 23));

    (void)n;
    return p * vf_bits(e) * vf_set1(0x1p-64f);
}
#endif

WF_SIMD_INLINE vf fm_reduce_big(vf x, vm big, vf r, vi *q)
{
    uint32_t bits = vm_bits(big);

    for (int i = 0; i < VF_N; i++) {
        if (bits >> i & 1) {
            int32_t turns;

            r[i] = wf_rem_pio2f(x[i], &turns);
            (*q)[i] = turns;
        }
    }
    return r;
}

WF_SIMD_INLINE vf fm_pow_pos(vf m, vf k, vf y);

#include "base/fmath_inl.h"

WF_SIMD_INLINE vf fm_pow_pos(vf m, vf k, vf y)
{
    vd low = fm_pow_core(vd_low(m), vd_low(k), vd_low(y));
    vd high = fm_pow_core(vd_high(m), vd_high(k), vd_high(y));

    return vf_join(low, high);
}

#endif
