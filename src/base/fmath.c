/* fmath.c - the scalar elementary functions: fmath_inl.h with a vector of one float.
 *
 * Without FMA and without libm: the bits depend on IEEE 754 alone. */
#include "base/fmath.h"

#include <string.h>

typedef float vf;
typedef int32_t vi;
typedef int vm;
typedef double vd;
typedef int64_t vl;

#define FM_INLINE static inline __attribute__((unused))
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
    (void)r;
    return wf_rem_pio2f(x, q);
}

static vf fm_pow_pos(vf m, vf k, vf y);

#include "base/fmath_inl.h"

static vf fm_pow_pos(vf m, vf k, vf y)
{
    return (float)fm_pow_core(m, k, y);
}

float wf_expf(float x)
{
    return vexp(x);
}
float wf_expm1f(float x)
{
    return vexpm1(x);
}
float wf_logf(float x)
{
    return vlog(x);
}
float wf_log1pf(float x)
{
    return vlog1p(x);
}
float wf_tanhf(float x)
{
    return vtanh(x);
}
float wf_sigmoidf(float x)
{
    return vsigmoid(x);
}
float wf_softplusf(float x)
{
    return vsoftplus(x);
}
float wf_erff(float x)
{
    return verf(x);
}
float wf_normcdff(float x)
{
    return vnormcdf(x);
}
float wf_sinf(float x)
{
    return vsin(x);
}
float wf_cosf(float x)
{
    return vcos(x);
}
float wf_powf(float x, float y)
{
    return vpow(x, y);
}

/* |x| = f 2^(e-23) with f of 24 bits. Of f 2^(e-23) 2/pi, modulo 4, the bits of 2/pi above weight
 * 2^(25-e) give only multiples of 4; 96 bits from there give a fraction good to 2^-70. */
float wf_rem_pio2f(float x, int32_t *q)
{
    static const uint32_t two_over_pi[8] = {
        0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1,
        0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
    };
    uint32_t b = (uint32_t)vi_bits(x), f, w[3];
    int e = (int)(b >> 23 & 0xff) - 127, at, shift;
    uint64_t high, low, fraction;
    int64_t r;

    *q = 0;
    if (e < -1) /* below 1/2 */
        return x;
    if (e == 128)
        return x - x;
    f = (b & 0x7fffff) | 0x800000;
    at = (e + 7) / 32;
    shift = (e + 7) % 32;
    for (int i = 0; i < 3; i++) {
        uint64_t two = (uint64_t)two_over_pi[at + i] << 32 | two_over_pi[at + i + 1];

        w[i] = (uint32_t)(two << shift >> 32);
    }
    /* f times w modulo 2^96, of which the top two bits count quarter turns. */
    low = (uint64_t)f * w[2];
    high = ((uint64_t)(f * w[0]) << 32) + (uint64_t)f * w[1] + (low >> 32);
    *q = (int32_t)(high >> 62);
    fraction = high << 2 | (low & 0xffffffff) >> 30;
    r = (int64_t)fraction; /* from the nearest quarter turn */
    if (r < 0)
        *q = (*q + 1) & 3;
    x = (float)((double)r * (0x1p-64 * 1.5707963267948966));
    if (b >> 31) {
        *q = -*q & 3;
        x = -x;
    }
    return x;
}

float wf_fmodf(float x, float y)
{
    uint32_t bx = (uint32_t)vi_bits(x) & 0x7fffffff, by = (uint32_t)vi_bits(y) & 0x7fffffff;
    int ex = (int)(bx >> 23), ey = (int)(by >> 23);
    uint32_t mx = bx & 0x7fffff, my = by & 0x7fffff;

    if (by == 0 || bx >= 0x7f800000 || by > 0x7f800000)
        return (x * y) / (x * y); /* NaN */
    if (bx < by)
        return x;
    /* Mantissas as integers at a common exponent; a denormal's is that of exponent 1. */
    mx |= ex ? 0x800000 : 0;
    my |= ey ? 0x800000 : 0;
    ex = ex ? ex : 1;
    ey = ey ? ey : 1;
    for (uint64_t r = mx;; ex -= 32) { /* 32 bits of the quotient at a time */
        int step = ex - ey < 32 ? ex - ey : 32;

        r = (r << step) % my;
        if (step < 32 || ex - ey == 32) {
            mx = (uint32_t)r;
            break;
        }
    }
    /* mx < 2^24 in units of y's last place: exact. */
    while (ey > 1 && mx && mx < 0x800000) {
        mx <<= 1;
        ey--;
    }
    if (mx >= 0x800000)
        mx = (mx & 0x7fffff) | (uint32_t)ey << 23;
    return vf_bits((vi)(mx | ((uint32_t)vi_bits(x) & 0x80000000u)));
}

float wf_floormodf(float x, float y)
{
    float r = wf_fmodf(x, y);

    if (r == 0.0f)
        return vf_copysign(0.0f, y);
    return (r < 0.0f) != (y < 0.0f) ? r + y : r;
}
