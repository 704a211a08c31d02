/* simd.h - one vector of floats at three widths.
 *
 * Files in src/kernels/cpu/simd/ are compiled once per level; the build defines one of
 *   WF_LEVEL_PORTABLE   4 floats, compiler vectors on the baseline instruction set, no FMA
 *   WF_LEVEL_AVX2       8 floats, AVX2 + FMA + F16C
 *   WF_LEVEL_AVX512     16 floats, AVX-512 F, BW, DQ, VL
 *   WF_LEVEL_AVX512BF16 the same and AVX-512 BF16; only gemm_kernel.c is compiled for it
 * and the file sees the same names at each:
 *   vf   VF_N floats           vi, vu  VF_N int32_t, uint32_t       vm  a truth value per lane
 * vf, vi and vu take the C operators + - * / (vi, vu also & | ^ ~ << >> and unary -), lane by lane;
 * a cast between them reinterprets bits. Loads and stores need no alignment.
 *
 * Invariants:
 * - every operation is IEEE 754 single precision, round to nearest even, except vf_fma and its
 *   relatives, which round once with AVX2 and AVX-512 and twice (product, then sum) in portable;
 *   so portable code gives the same bits on every machine, x86 or not. This does not include the
 *   sign and payload of a NaN: processors differ;
 * - a function ending in n touches only the first n elements in memory (0 <= n <= VF_N);
 *   loads fill the other lanes with zero;
 * - vf_hsum adds lane i and lane i + half, halving until one lane is left. */
#ifndef WF_KERNELS_CPU_SIMD_H
#define WF_KERNELS_CPU_SIMD_H
/* clang-format off: most of this file is one-line wrappers, easier to compare as a table */

#include <stdint.h>
#include <string.h>

#if defined(WF_LEVEL_AVX512BF16)
#define WF_LEVEL_AVX512
#define WF_LEVEL_SUFFIX _avx512bf16
#define WF_LEVEL_NAME "avx512bf16"
#elif defined(WF_LEVEL_AVX512)
#define WF_LEVEL_SUFFIX _avx512
#define WF_LEVEL_NAME "avx512"
#endif

#if defined(WF_LEVEL_AVX512)
#include <immintrin.h>
#define VF_N 16
#elif defined(WF_LEVEL_AVX2)
#include <immintrin.h>
#define VF_N 8
#define WF_LEVEL_SUFFIX _avx2
#define WF_LEVEL_NAME "avx2"
#elif defined(WF_LEVEL_PORTABLE)
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#define VF_N 4
#define WF_LEVEL_SUFFIX _portable
#define WF_LEVEL_NAME "portable"
#else
#error "simd.h is for files that are compiled once per level: define one of WF_LEVEL_*"
#endif

/* WF_LEVELED(name): name_portable, name_avx2, name_avx512 or name_avx512bf16. */
#define WF_LEVEL_PASTE2(a, b) a##b
#define WF_LEVEL_PASTE(a, b) WF_LEVEL_PASTE2(a, b)
#define WF_LEVELED(name) WF_LEVEL_PASTE(name, WF_LEVEL_SUFFIX)

#define WF_SIMD_INLINE static inline __attribute__((always_inline, unused))

/* Wrappers are on one line if they fit. */
/* clang-format off */

typedef float vf __attribute__((vector_size(VF_N * 4)));
typedef int32_t vi __attribute__((vector_size(VF_N * 4)));
typedef uint32_t vu __attribute__((vector_size(VF_N * 4)));
#if defined(WF_LEVEL_AVX512)
typedef __mmask16 vm;
#else
typedef vi vm;                  /* all bits of a lane set, or none */
#endif

/* ---- constants and reinterpretation ---------------------------------------------------- */

#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE vf vf_set1(float x) { return (vf)_mm512_set1_ps(x); }
WF_SIMD_INLINE vi vi_set1(int32_t x) { return (vi)_mm512_set1_epi32(x); }
#elif defined(WF_LEVEL_AVX2)
WF_SIMD_INLINE vf vf_set1(float x) { return (vf)_mm256_set1_ps(x); }
WF_SIMD_INLINE vi vi_set1(int32_t x) { return (vi)_mm256_set1_epi32(x); }
#else
WF_SIMD_INLINE vf vf_set1(float x) { return (vf){ x, x, x, x }; }
WF_SIMD_INLINE vi vi_set1(int32_t x) { return (vi){ x, x, x, x }; }
#endif
WF_SIMD_INLINE vu vu_set1(uint32_t x) { return (vu)vi_set1((int32_t)x); }
WF_SIMD_INLINE vf vf_zero(void) { return vf_set1(0.0f); }
WF_SIMD_INLINE vi vi_zero(void) { return vi_set1(0); }
WF_SIMD_INLINE vi vi_bits(vf x) { return (vi)x; }           /* the bits of a float, and back */
WF_SIMD_INLINE vf vf_bits(vi x) { return (vf)x; }

/* 0, 1, 2, ... */
WF_SIMD_INLINE vi vi_iota(void)
{
#if VF_N == 16
    return (vi){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
#elif VF_N == 8
    return (vi){ 0, 1, 2, 3, 4, 5, 6, 7 };
#else
    return (vi){ 0, 1, 2, 3 };
#endif
}

/* ---- loads and stores ------------------------------------------------------------------ */

#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE __mmask16 wf_mask16(int64_t n) { return (__mmask16)((1u << n) - 1u); }
WF_SIMD_INLINE vf vf_load(const float *p) { return (vf)_mm512_loadu_ps(p); }
WF_SIMD_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, (__m512)x); }
WF_SIMD_INLINE vi vi_load(const int32_t *p) { return (vi)_mm512_loadu_si512(p); }
WF_SIMD_INLINE void vi_store(int32_t *p, vi x) { _mm512_storeu_si512(p, (__m512i)x); }
WF_SIMD_INLINE vf vf_loadn(const float *p, int64_t n)
{
    return (vf)_mm512_maskz_loadu_ps(wf_mask16(n), p);
}
WF_SIMD_INLINE void vf_storen(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, wf_mask16(n), (__m512)x);
}
WF_SIMD_INLINE vi vi_loadn(const int32_t *p, int64_t n)
{
    return (vi)_mm512_maskz_loadu_epi32(wf_mask16(n), p);
}
WF_SIMD_INLINE void vi_storen(int32_t *p, vi x, int64_t n)
{
    _mm512_mask_storeu_epi32(p, wf_mask16(n), (__m512i)x);
}
/* Bypasses the caches; p must be aligned to the vector, and wf_stream_end must come before others
 * read. */
WF_SIMD_INLINE void vf_stream(float *p, vf x) { _mm512_stream_ps(p, (__m512)x); }
WF_SIMD_INLINE void wf_stream_end(void) { _mm_sfence(); }
#elif defined(WF_LEVEL_AVX2)
WF_SIMD_INLINE __m256i wf_mask8(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), (__m256i)vi_iota());
}
WF_SIMD_INLINE vf vf_load(const float *p) { return (vf)_mm256_loadu_ps(p); }
WF_SIMD_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, (__m256)x); }
WF_SIMD_INLINE vi vi_load(const int32_t *p)
{
    return (vi)_mm256_loadu_si256((const __m256i *)(const void *)p);
}
WF_SIMD_INLINE void vi_store(int32_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)x);
}
WF_SIMD_INLINE vf vf_loadn(const float *p, int64_t n)
{
    return (vf)_mm256_maskload_ps(p, wf_mask8(n));
}
WF_SIMD_INLINE void vf_storen(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, wf_mask8(n), (__m256)x);
}
WF_SIMD_INLINE vi vi_loadn(const int32_t *p, int64_t n)
{
    return (vi)_mm256_maskload_epi32(p, wf_mask8(n));
}
WF_SIMD_INLINE void vi_storen(int32_t *p, vi x, int64_t n)
{
    _mm256_maskstore_epi32(p, wf_mask8(n), (__m256i)x);
}
WF_SIMD_INLINE void vf_stream(float *p, vf x) { _mm256_stream_ps(p, (__m256)x); }
WF_SIMD_INLINE void wf_stream_end(void) { _mm_sfence(); }
#else
WF_SIMD_INLINE vf vf_load(const float *p)
{
    vf x;

    memcpy(&x, p, sizeof x);
    return x;
}
WF_SIMD_INLINE void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
WF_SIMD_INLINE vi vi_load(const int32_t *p)
{
    vi x;

    memcpy(&x, p, sizeof x);
    return x;
}
WF_SIMD_INLINE void vi_store(int32_t *p, vi x) { memcpy(p, &x, sizeof x); }
WF_SIMD_INLINE vf vf_loadn(const float *p, int64_t n)
{
    vf x = { n > 0 ? p[0] : 0.0f, n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f,
             n > 3 ? p[3] : 0.0f };

    return x;
}
WF_SIMD_INLINE void vf_storen(float *p, vf x, int64_t n)
{
    if (n > 0)
        p[0] = x[0];
    if (n > 1)
        p[1] = x[1];
    if (n > 2)
        p[2] = x[2];
    if (n > 3)
        p[3] = x[3];
}
WF_SIMD_INLINE vi vi_loadn(const int32_t *p, int64_t n)
{
    vi x = { n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0 };

    return x;
}
WF_SIMD_INLINE void vi_storen(int32_t *p, vi x, int64_t n)
{
    if (n > 0)
        p[0] = x[0];
    if (n > 1)
        p[1] = x[1];
    if (n > 2)
        p[2] = x[2];
    if (n > 3)
        p[3] = x[3];
}
WF_SIMD_INLINE void vf_stream(float *p, vf x) { vf_store(p, x); }
WF_SIMD_INLINE void wf_stream_end(void) {}
#endif
WF_SIMD_INLINE vf vf_load1(const float *p) { return vf_set1(*p); }      /* one float, every lane */
WF_SIMD_INLINE void wf_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }
WF_SIMD_INLINE void wf_prefetch_write(const void *p) { __builtin_prefetch(p, 1, 3); }

/* ---- arithmetic ------------------------------------------------------------------------ */

WF_SIMD_INLINE vf vf_add(vf a, vf b) { return a + b; }
WF_SIMD_INLINE vf vf_sub(vf a, vf b) { return a - b; }
WF_SIMD_INLINE vf vf_mul(vf a, vf b) { return a * b; }
WF_SIMD_INLINE vf vf_div(vf a, vf b) { return a / b; }

/* a*b + c, c - a*b, a*b - c: one rounding with FMA, two without. */
#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
WF_SIMD_INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return (vf)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
WF_SIMD_INLINE vf vf_fms(vf a, vf b, vf c)
{
    return (vf)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c);
}
WF_SIMD_INLINE vf vf_sqrt(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
#elif defined(WF_LEVEL_AVX2)
WF_SIMD_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
WF_SIMD_INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return (vf)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
WF_SIMD_INLINE vf vf_fms(vf a, vf b, vf c)
{
    return (vf)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)c);
}
WF_SIMD_INLINE vf vf_sqrt(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
#else
WF_SIMD_INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
WF_SIMD_INLINE vf vf_fnma(vf a, vf b, vf c) { return c - a * b; }
WF_SIMD_INLINE vf vf_fms(vf a, vf b, vf c) { return a * b - c; }
WF_SIMD_INLINE vf vf_sqrt(vf x)
{
#if defined(__SSE2__)
    return (vf)_mm_sqrt_ps((__m128)x);
#else
    return (vf){ __builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]),
                 __builtin_sqrtf(x[3]) };
#endif
}
#endif

/* ---- comparison, masks, selection ------------------------------------------------------ */

/* Comparisons with a NaN are false, except vm_ne, which is true. */
#if defined(WF_LEVEL_AVX512)
#define WF_CMP_(name, op) \
    WF_SIMD_INLINE vm name(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, op); }
WF_CMP_(vm_eq, _CMP_EQ_OQ)
WF_CMP_(vm_ne, _CMP_NEQ_UQ)
WF_CMP_(vm_lt, _CMP_LT_OQ)
WF_CMP_(vm_le, _CMP_LE_OQ)
WF_CMP_(vm_gt, _CMP_GT_OQ)
WF_CMP_(vm_ge, _CMP_GE_OQ)
#undef WF_CMP_
WF_SIMD_INLINE vm vm_eqi(vi a, vi b) { return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b); }
WF_SIMD_INLINE vm vm_gti(vi a, vi b) { return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b); }
WF_SIMD_INLINE vm vm_and(vm a, vm b) { return (vm)(a & b); }
WF_SIMD_INLINE vm vm_or(vm a, vm b) { return (vm)(a | b); }
WF_SIMD_INLINE vm vm_xor(vm a, vm b) { return (vm)(a ^ b); }
WF_SIMD_INLINE vm vm_not(vm a) { return (vm)~a; }
WF_SIMD_INLINE uint32_t vm_bits(vm m) { return m; }
WF_SIMD_INLINE vf vf_select(vm m, vf a, vf b)
{
    return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a);
}
WF_SIMD_INLINE vi vi_select(vm m, vi a, vi b)
{
    return (vi)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a);
}
/* m ? x : 0 */
WF_SIMD_INLINE vf vf_keep(vm m, vf x) { return (vf)_mm512_maskz_mov_ps(m, (__m512)x); }
WF_SIMD_INLINE vi vi_keep(vm m, vi x) { return (vi)_mm512_maskz_mov_epi32(m, (__m512i)x); }
/* Lane i is true if i < n. */
WF_SIMD_INLINE vm vm_first(int64_t n) { return n >= VF_N ? (vm)0xffff : wf_mask16(n < 0 ? 0 : n); }
#else
WF_SIMD_INLINE vm vm_eq(vf a, vf b) { return (vm)(a == b); }
WF_SIMD_INLINE vm vm_ne(vf a, vf b) { return (vm)(a != b); }
WF_SIMD_INLINE vm vm_lt(vf a, vf b) { return (vm)(a < b); }
WF_SIMD_INLINE vm vm_le(vf a, vf b) { return (vm)(a <= b); }
WF_SIMD_INLINE vm vm_gt(vf a, vf b) { return (vm)(a > b); }
WF_SIMD_INLINE vm vm_ge(vf a, vf b) { return (vm)(a >= b); }
WF_SIMD_INLINE vm vm_eqi(vi a, vi b) { return (vm)(a == b); }
WF_SIMD_INLINE vm vm_gti(vi a, vi b) { return (vm)(a > b); }
WF_SIMD_INLINE vm vm_and(vm a, vm b) { return a & b; }
WF_SIMD_INLINE vm vm_or(vm a, vm b) { return a | b; }
WF_SIMD_INLINE vm vm_xor(vm a, vm b) { return a ^ b; }
WF_SIMD_INLINE vm vm_not(vm a) { return ~a; }
WF_SIMD_INLINE uint32_t vm_bits(vm m)
{
#if defined(WF_LEVEL_AVX2)
    return (uint32_t)_mm256_movemask_ps((__m256)m);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)m);
#else
    return (uint32_t)((m[0] & 1) | (m[1] & 2) | (m[2] & 4) | (m[3] & 8));
#endif
}
WF_SIMD_INLINE vi vi_select(vm m, vi a, vi b)
{
#if defined(WF_LEVEL_AVX2)
    return (vi)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
#else
    return (a & m) | (b & ~m);
#endif
}
WF_SIMD_INLINE vf vf_select(vm m, vf a, vf b)
{
#if defined(WF_LEVEL_AVX2)
    return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m);
#else
    return (vf)(((vi)a & m) | ((vi)b & ~m));
#endif
}
WF_SIMD_INLINE vf vf_keep(vm m, vf x) { return (vf)((vi)x & m); }
WF_SIMD_INLINE vi vi_keep(vm m, vi x) { return x & m; }
WF_SIMD_INLINE vm vm_first(int64_t n)
{
    return vm_gti(vi_set1((int32_t)(n < 0 ? 0 : n > VF_N ? VF_N : n)), vi_iota());
}
#endif
WF_SIMD_INLINE int vm_any(vm m) { return vm_bits(m) != 0; }
WF_SIMD_INLINE int vm_all(vm m) { return vm_bits(m) == (1u << VF_N) - 1u; }
WF_SIMD_INLINE vm vm_isnan(vf x) { return vm_ne(x, x); }

/* ---- sign, minimum, maximum ------------------------------------------------------------ */

WF_SIMD_INLINE vf vf_abs(vf x) { return (vf)((vi)x & vi_set1(0x7fffffff)); }
WF_SIMD_INLINE vf vf_neg(vf x) { return (vf)((vi)x ^ vi_set1(INT32_MIN)); }
WF_SIMD_INLINE vi vi_signbit(vf x) { return (vi)x & vi_set1(INT32_MIN); }
WF_SIMD_INLINE vf vf_copysign(vf size, vf sign)
{
    return (vf)(((vi)size & vi_set1(0x7fffffff)) | vi_signbit(sign));
}

/* One instruction on x86: a > b ? a : b, hence b if they are equal or either is NaN (so a constant
 * first and the data second keeps a NaN of the data). */
WF_SIMD_INLINE vf vf_max2(vf a, vf b)
{
#if defined(WF_LEVEL_AVX512)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(WF_LEVEL_AVX2)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vf_select(vm_gt(a, b), a, b);
#endif
}
WF_SIMD_INLINE vf vf_min2(vf a, vf b)
{
#if defined(WF_LEVEL_AVX512)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(WF_LEVEL_AVX2)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vf_select(vm_lt(a, b), a, b);
#endif
}

/* NaN if either is NaN, as in numpy.maximum and keras.ops.maximum; b if they are equal (so the
 * maximum of +0 and -0 is the second). */
WF_SIMD_INLINE vf vf_max(vf a, vf b) { return vf_select(vm_isnan(a), a, vf_max2(a, b)); }
WF_SIMD_INLINE vf vf_min(vf a, vf b) { return vf_select(vm_isnan(a), a, vf_min2(a, b)); }
WF_SIMD_INLINE vi vi_max(vi a, vi b) { return vi_select(vm_gti(a, b), a, b); }
WF_SIMD_INLINE vi vi_min(vi a, vi b) { return vi_select(vm_gti(a, b), b, a); }

/* ---- rounding to whole numbers, integers ----------------------------------------------- */

/* vf_round: to nearest, halves to even. Signs of zero are kept; NaN and infinities stay. */
#if defined(WF_LEVEL_AVX512)
#define WF_ROUND_(x, how) ((vf)_mm512_roundscale_ps((__m512)(x), (how) | _MM_FROUND_NO_EXC))
WF_SIMD_INLINE vf vf_round(vf x) { return WF_ROUND_(x, _MM_FROUND_TO_NEAREST_INT); }
WF_SIMD_INLINE vf vf_floor(vf x) { return WF_ROUND_(x, _MM_FROUND_TO_NEG_INF); }
WF_SIMD_INLINE vf vf_ceil(vf x) { return WF_ROUND_(x, _MM_FROUND_TO_POS_INF); }
#undef WF_ROUND_
WF_SIMD_INLINE vi vi_round(vf x) { return (vi)_mm512_cvtps_epi32((__m512)x); }
WF_SIMD_INLINE vi vi_trunc(vf x) { return (vi)_mm512_cvttps_epi32((__m512)x); }
WF_SIMD_INLINE vf vf_from_vi(vi x) { return (vf)_mm512_cvtepi32_ps((__m512i)x); }
#elif defined(WF_LEVEL_AVX2)
#define WF_ROUND_(x, how) ((vf)_mm256_round_ps((__m256)(x), (how) | _MM_FROUND_NO_EXC))
WF_SIMD_INLINE vf vf_round(vf x) { return WF_ROUND_(x, _MM_FROUND_TO_NEAREST_INT); }
WF_SIMD_INLINE vf vf_floor(vf x) { return WF_ROUND_(x, _MM_FROUND_TO_NEG_INF); }
WF_SIMD_INLINE vf vf_ceil(vf x) { return WF_ROUND_(x, _MM_FROUND_TO_POS_INF); }
#undef WF_ROUND_
WF_SIMD_INLINE vi vi_round(vf x) { return (vi)_mm256_cvtps_epi32((__m256)x); }
WF_SIMD_INLINE vi vi_trunc(vf x) { return (vi)_mm256_cvttps_epi32((__m256)x); }
WF_SIMD_INLINE vf vf_from_vi(vi x) { return (vf)_mm256_cvtepi32_ps((__m256i)x); }
#else
/* Adding and subtracting 2^23 leaves a whole number; from 2^23 on every float is one. */
WF_SIMD_INLINE vf vf_round(vf x)
{
    vf big = vf_copysign(vf_set1(8388608.0f), x);
    vf r = vf_copysign((x + big) - big, x);

    return vf_select(vm_lt(vf_abs(x), vf_set1(8388608.0f)), r, x);
}
WF_SIMD_INLINE vf vf_floor(vf x)
{
    vf r = vf_round(x);

    return vf_copysign(r - vf_keep(vm_gt(r, x), vf_set1(1.0f)), x);
}
WF_SIMD_INLINE vf vf_ceil(vf x)
{
    vf r = vf_round(x);

    return vf_copysign(r + vf_keep(vm_lt(r, x), vf_set1(1.0f)), x);
}
/* vi_round and vi_trunc need |x| < 2^31. */
WF_SIMD_INLINE vi vi_round(vf x)
{
#if defined(__SSE2__)
    return (vi)_mm_cvtps_epi32((__m128)x);
#else
    return __builtin_convertvector(vf_round(x), vi);
#endif
}
WF_SIMD_INLINE vi vi_trunc(vf x)
{
#if defined(__SSE2__)
    return (vi)_mm_cvttps_epi32((__m128)x);
#else
    return __builtin_convertvector(x, vi);
#endif
}
WF_SIMD_INLINE vf vf_from_vi(vi x) { return __builtin_convertvector(x, vf); }
#endif

/* Toward zero for any x: NaN gives 0, too large or small the largest or smallest integer. */
WF_SIMD_INLINE vi vi_trunc_sat(vf x)
{
    vm high = vm_ge(x, vf_set1(2147483648.0f)), low = vm_lt(x, vf_set1(-2147483648.0f));
    vm out = vm_or(vm_or(high, low), vm_isnan(x));
    vi r = vi_trunc(vf_select(out, vf_zero(), x));

    r = vi_select(high, vi_set1(INT32_MAX), r);
    return vi_select(low, vi_set1(INT32_MIN), r);
}

/* Shifts by a constant; vi_shr keeps the sign, vi_srl brings in zeros. */
#define vi_shl(x, k) ((vi)((vu)(x) << (k)))
#define vi_shr(x, k) ((vi)(x) >> (k))
#define vi_srl(x, k) ((vi)((vu)(x) >> (k)))

/* ---- across lanes ---------------------------------------------------------------------- */

#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE __m256 wf_high8(__m512 x) { return _mm512_extractf32x8_ps(x, 1); }
#define WF_FOLD_(name, f8, f4, f1) \
    WF_SIMD_INLINE float name(vf x) \
    { \
        __m256 a = f8(_mm512_castps512_ps256((__m512)x), wf_high8((__m512)x)); \
        __m128 b = f4(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); \
        b = f4(b, _mm_movehl_ps(b, b)); \
        return _mm_cvtss_f32(f1(b, _mm_shuffle_ps(b, b, 1))); \
    }
WF_FOLD_(vf_hsum, _mm256_add_ps, _mm_add_ps, _mm_add_ss)
WF_FOLD_(vf_hmax2, _mm256_max_ps, _mm_max_ps, _mm_max_ss)
WF_FOLD_(vf_hmin2, _mm256_min_ps, _mm_min_ps, _mm_min_ss)
#undef WF_FOLD_
#elif defined(WF_LEVEL_AVX2)
#define WF_FOLD_(name, f4, f1) \
    WF_SIMD_INLINE float name(vf x) \
    { \
        __m128 b = f4(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1)); \
        b = f4(b, _mm_movehl_ps(b, b)); \
        return _mm_cvtss_f32(f1(b, _mm_shuffle_ps(b, b, 1))); \
    }
WF_FOLD_(vf_hsum, _mm_add_ps, _mm_add_ss)
WF_FOLD_(vf_hmax2, _mm_max_ps, _mm_max_ss)
WF_FOLD_(vf_hmin2, _mm_min_ps, _mm_min_ss)
#undef WF_FOLD_
#else
WF_SIMD_INLINE float vf_hsum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
#define WF_PICK_(a, op, b) ((a) op (b) ? (a) : (b))
#define WF_FOLD_(name, op) \
    WF_SIMD_INLINE float name(vf x) \
    { \
        float a = WF_PICK_(x[0], op, x[2]), b = WF_PICK_(x[1], op, x[3]); \
        return WF_PICK_(a, op, b); \
    }
WF_FOLD_(vf_hmax2, >)
WF_FOLD_(vf_hmin2, <)
#undef WF_FOLD_
#undef WF_PICK_
#endif

/* vf_hmax2 and vf_hmin2 fold with vf_max2 and vf_min2 and may lose a NaN; these keep it. */
WF_SIMD_INLINE float vf_hmax(vf x)
{
    return vm_any(vm_isnan(x)) ? __builtin_nanf("") : vf_hmax2(x);
}
WF_SIMD_INLINE float vf_hmin(vf x)
{
    return vm_any(vm_isnan(x)) ? __builtin_nanf("") : vf_hmin2(x);
}

/* ---- narrow types ---------------------------------------------------------------------- */

/* Low halves of the lanes from and to memory. */
WF_SIMD_INLINE vi vi_load_u16(const uint16_t *p)
{
#if defined(WF_LEVEL_AVX512)
    return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(WF_LEVEL_AVX2)
    return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#else
    return (vi){ p[0], p[1], p[2], p[3] };
#endif
}
WF_SIMD_INLINE void vi_store_u16(uint16_t *p, vi x)
{
#if defined(WF_LEVEL_AVX512)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)x));
#elif defined(WF_LEVEL_AVX2)
    __m256i low = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff));
    __m256i q = _mm256_packus_epi32(low, low);

    q = _mm256_permute4x64_epi64(q, 0xd8);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(q));
#else
    for (int i = 0; i < VF_N; i++)
        p[i] = (uint16_t)x[i];
#endif
}
WF_SIMD_INLINE vi vi_load_u16n(const uint16_t *p, int64_t n)
{
#if defined(WF_LEVEL_AVX512)
    return (vi)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(wf_mask16(n), p));
#else
    uint16_t all[VF_N] = { 0 };

    for (int64_t i = 0; i < n; i++)
        all[i] = p[i];
    return vi_load_u16(all);
#endif
}
WF_SIMD_INLINE void vi_store_u16n(uint16_t *p, vi x, int64_t n)
{
#if defined(WF_LEVEL_AVX512)
    _mm256_mask_storeu_epi16(p, wf_mask16(n), _mm512_cvtepi32_epi16((__m512i)x));
#else
    uint16_t all[VF_N];

    vi_store_u16(all, x);
    for (int64_t i = 0; i < n; i++)
        p[i] = all[i];
#endif
}

/* bfloat16, in the low half of each lane: exact one way, nearest even the other; a NaN stays a
 * (quiet) NaN. */
WF_SIMD_INLINE vf vf_from_bf16(vi h) { return (vf)vi_shl(h, 16); }
WF_SIMD_INLINE vi vi_to_bf16(vf x)
{
    vi b = (vi)x;
    vu rounded = (vu)b + (vu)vi_set1(0x7fff) + (vu)(vi_srl(b, 16) & 1); /* a NaN may wrap around */
    vi r = vi_srl((vi)rounded, 16);

    return vi_select(vm_isnan(x), vi_srl(b, 16) | vi_set1(0x40), r);
}

/* IEEE half precision, the same way; too large becomes infinity. */
WF_SIMD_INLINE vf vf_from_f16(vi h)
{
#if defined(WF_LEVEL_AVX512)
    return (vf)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)h));
#elif defined(WF_LEVEL_AVX2)
    __m256i q = _mm256_packus_epi32((__m256i)h, (__m256i)h);

    q = _mm256_permute4x64_epi64(q, 0xd8);
    return (vf)_mm256_cvtph_ps(_mm256_castsi256_si128(q));
#else
    vi top = vi_set1(0x0f800000);                       /* exponent 31, moved to its new place */
    vi x = vi_shl(h & vi_set1(0x7fff), 13);
    vi exponent = x & top, fraction = x & vi_set1(0x007fe000);
    vi normal = x + vi_set1(112 << 23);
    vi special = (x + vi_set1(224 << 23)) | (~(vi)(fraction == 0) & vi_set1(0x00400000));
    vi tiny = (vi)((vf)(x + vi_set1(113 << 23)) - vf_set1(6.103515625e-5f));     /* less 2^-14 */
    vi r = vi_select(vm_eqi(exponent, top), special, normal);

    r = vi_select(vm_eqi(exponent, vi_zero()), tiny, r);
    return (vf)(r | vi_shl(h & vi_set1(0x8000), 16));
#endif
}
WF_SIMD_INLINE vi vi_to_f16(vf f)
{
#if defined(WF_LEVEL_AVX512)
    return (vi)_mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT));
#elif defined(WF_LEVEL_AVX2)
    return (vi)_mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT));
#else
    vi x = (vi)vf_abs(f);
    vi sign = vi_srl((vi)f, 16) & vi_set1(0x8000);
    vi normal = vi_srl(x - vi_set1(112 << 23) + vi_set1(0xfff) + (vi_srl(x, 13) & 1), 13);
    vi tiny = (vi)((vf)x + vf_set1(0.5f)) - vi_set1(0x3f000000); /* 0.5 counts in 2^-24 */
    vi nan = vi_set1(0x7e00) | (vi_srl(x, 13) & vi_set1(0x3ff));
    vi r = vi_select(vm_gti(vi_set1(0x38800000), x), tiny, normal);

    r = vi_select(vm_gti(x, vi_set1(0x477fffff)), vi_set1(0x7c00), r);
    r = vi_select(vm_gti(x, vi_set1(0x7f800000)), nan, r);
    return r | sign;
#endif
}

WF_SIMD_INLINE vf vf_load_bf16(const uint16_t *p) { return vf_from_bf16(vi_load_u16(p)); }
WF_SIMD_INLINE vf vf_load_bf16n(const uint16_t *p, int64_t n)
{
    return vf_from_bf16(vi_load_u16n(p, n));
}
#if defined(WF_LEVEL_AVX512BF16)
/* c + a[1] b[1] + a[0] b[0], of lanes that are pairs of bf16: two fused multiply-adds in this order,
 * each rounded to nearest. Denormals are zeros, as operands and as results, whatever MXCSR says. */
WF_SIMD_INLINE vf vf_dot_bf16(vi a, vi b, vf c)
{
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
/* The first n of 32 halves as pairs; the others are 0. */
WF_SIMD_INLINE vi vi_load_pairsn(const uint16_t *p, int64_t n)
{
    return (vi)_mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p);
}
#endif
WF_SIMD_INLINE void vf_store_bf16(uint16_t *p, vf x) { vi_store_u16(p, vi_to_bf16(x)); }
WF_SIMD_INLINE void vf_store_bf16n(uint16_t *p, vf x, int64_t n)
{
    vi_store_u16n(p, vi_to_bf16(x), n);
}
WF_SIMD_INLINE vf vf_load_f16(const uint16_t *p) { return vf_from_f16(vi_load_u16(p)); }
WF_SIMD_INLINE vf vf_load_f16n(const uint16_t *p, int64_t n)
{
    return vf_from_f16(vi_load_u16n(p, n));
}
WF_SIMD_INLINE void vf_store_f16(uint16_t *p, vf x) { vi_store_u16(p, vi_to_f16(x)); }
WF_SIMD_INLINE void vf_store_f16n(uint16_t *p, vf x, int64_t n)
{
    vi_store_u16n(p, vi_to_f16(x), n);
}

WF_SIMD_INLINE vf vf_load_i32(const int32_t *p) { return vf_from_vi(vi_load(p)); }
WF_SIMD_INLINE vf vf_load_i32n(const int32_t *p, int64_t n) { return vf_from_vi(vi_loadn(p, n)); }
WF_SIMD_INLINE vf vf_load_i8(const int8_t *p)
{
#if defined(WF_LEVEL_AVX512)
    return vf_from_vi((vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
#elif defined(WF_LEVEL_AVX2)
    return vf_from_vi((vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#else
    return vf_from_vi((vi){ p[0], p[1], p[2], p[3] });
#endif
}
WF_SIMD_INLINE vf vf_load_u8(const uint8_t *p)
{
#if defined(WF_LEVEL_AVX512)
    return vf_from_vi((vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
#elif defined(WF_LEVEL_AVX2)
    return vf_from_vi((vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#else
    return vf_from_vi((vi){ p[0], p[1], p[2], p[3] });
#endif
}
WF_SIMD_INLINE vf vf_load_i8n(const int8_t *p, int64_t n)
{
    int8_t all[VF_N] = { 0 };

    for (int64_t i = 0; i < n; i++)
        all[i] = p[i];
    return vf_load_i8(all);
}
WF_SIMD_INLINE vf vf_load_u8n(const uint8_t *p, int64_t n)
{
    uint8_t all[VF_N] = { 0 };

    for (int64_t i = 0; i < n; i++)
        all[i] = p[i];
    return vf_load_u8(all);
}

/* clang-format on */

#endif
