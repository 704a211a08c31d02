/* fmath_scalar.h - the operations of fmath_inl.h on one float, as simd.h has them for vectors.
 *
 * Included before it by the .c files of base that instantiate it, and by code for GPUs, which
 * defines FM_INLINE, and FM_SMALL_ANGLES because it cannot call wf_rem_pio2f. Without FMA:
 * results depend only on IEEE 754. */
#ifndef WF_BASE_FMATH_SCALAR_H
#define WF_BASE_FMATH_SCALAR_H

#include "base/fmath.h"

#include <string.h>

typedef float vf;
typedef int32_t vi;
typedef int vm;
typedef double vd;
typedef int64_t vl;

#ifndef FM_INLINE
#define FM_INLINE static inline __attribute__((unused))
#endif
#define FM_FMA(a, b, c) ((a) * (b) + (c))
#define FM_FUSED 0

FM_INLINE vf vf_set1(float x)
{
    return x;
}
FM_INLINE vi vi_set1(int32_t x)
{
    return x;
}
FM_INLINE vd vd_set1(double x)
{
    return x;
}
FM_INLINE vl vl_set1(int64_t x)
{
    return x;
}

FM_INLINE vi vi_bits(vf x)
{
    vi b;

    memcpy(&b, &x, sizeof b);
    return b;
}

FM_INLINE vf vf_bits(vi b)
{
    vf x;

    memcpy(&x, &b, sizeof x);
    return x;
}

FM_INLINE vl vl_bits(vd x)
{
    vl b;

    memcpy(&b, &x, sizeof b);
    return b;
}

FM_INLINE vd vd_bits(vl b)
{
    vd x;

    memcpy(&x, &b, sizeof x);
    return x;
}

FM_INLINE vm vm_eq(vf a, vf b)
{
    return a == b;
}
FM_INLINE vm vm_ne(vf a, vf b)
{
    return a != b;
}
FM_INLINE vm vm_lt(vf a, vf b)
{
    return a < b;
}
FM_INLINE vm vm_gt(vf a, vf b)
{
    return a > b;
}
FM_INLINE vm vm_ge(vf a, vf b)
{
    return a >= b;
}
FM_INLINE vm vm_eqi(vi a, vi b)
{
    return a == b;
}
FM_INLINE vm vm_and(vm a, vm b)
{
    return a & b;
}
FM_INLINE vm vm_or(vm a, vm b)
{
    return a | b;
}
FM_INLINE vm vm_not(vm a)
{
    return !a;
}
FM_INLINE int vm_any(vm a)
{
    return a;
}
FM_INLINE vm vm_isnan(vf x)
{
    return x != x;
}
FM_INLINE vf vf_select(vm m, vf a, vf b)
{
    return m ? a : b;
}
FM_INLINE vf vf_max2(vf a, vf b)
{
    return a > b ? a : b;
}
FM_INLINE vf vf_min2(vf a, vf b)
{
    return a < b ? a : b;
}
FM_INLINE vd vd_max2(vd a, vd b)
{
    return a > b ? a : b;
}
FM_INLINE vd vd_min2(vd a, vd b)
{
    return a < b ? a : b;
}
FM_INLINE vf vf_abs(vf x)
{
    return vf_bits(vi_bits(x) & 0x7fffffff);
}
FM_INLINE vf vf_neg(vf x)
{
    return vf_bits(vi_bits(x) ^ INT32_MIN);
}
FM_INLINE vi vi_signbit(vf x)
{
    return vi_bits(x) & INT32_MIN;
}
FM_INLINE vf vf_from_vi(vi x)
{
    return (float)x;
}
FM_INLINE vi vi_addw(vi a, vi b)
{
    return (vi)((uint32_t)a + (uint32_t)b);
}
FM_INLINE vi vi_subw(vi a, vi b)
{
    return (vi)((uint32_t)a - (uint32_t)b);
}
#define vi_shl(x, k) ((vi)((uint32_t)(x) << (k)))
#define vi_shr(x, k) ((x) >> (k))
#define vl_shl(x, k) ((vl)((uint64_t)(x) << (k)))

FM_INLINE vf vf_copysign(vf size, vf sign)
{
    return vf_bits((vi_bits(size) & 0x7fffffff) | (vi_bits(sign) & INT32_MIN));
}

/* To the nearest whole number, halves to even. */
FM_INLINE vf vf_round(vf x)
{
    vf big = vf_copysign(8388608.0f, x);

    return vf_abs(x) < 8388608.0f ? vf_copysign((x + big) - big, x) : x;
}

FM_INLINE vf fm_split(vf x, vf *k)
{
    int tiny = x < 0x1p-126f;
    vi b = vi_bits(tiny ? x * 0x1p23f : x);
    vi e = vi_subw(b, 0x3f400000) & (vi)0xff800000;

    *k = (float)vi_shr(e, 23) - (tiny ? 23.0f : 0.0f);
    return vf_bits(vi_subw(b, e));
}

FM_INLINE vf fm_scale(vf p, vf t, vf n)
{
    vi e = vi_subw(vi_bits(t), vi_bits(12582912.0f)), half = vi_shr(e, 1);

    (void)n;
    p = p * vf_bits(vi_shl(half + 127, 23));
    return p * vf_bits(vi_shl(vi_subw(e, half) + 127, 23));
}

FM_INLINE vf fm_scale_neg(vf p, vf t, vf n)
{
    (void)n;
    return p * vf_bits(vi_addw(vi_shl(vi_bits(t), 23), (127 + 64) << 23)) * 0x1p-64f;
}

FM_INLINE vf fm_reduce_big(vf x, vm big, vf r, vi *q)
{
    (void)big;
#ifdef FM_SMALL_ANGLES
    (void)x;
    (void)q;
    return r;
#else
    (void)r;
    return wf_rem_pio2f(x, q);
#endif
}

FM_INLINE vf fm_pow_pos(vf m, vf k, vf y);

#include "base/fmath_inl.h"

FM_INLINE vf fm_pow_pos(vf m, vf k, vf y)
{
    return (float)fm_pow_core(m, k, y);
}

#endif
