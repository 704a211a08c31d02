/* fmath.c - the scalar elementary functions, and those without a vector form: the reduction of
 * large angles and exact remainders. */
#include "base/fmath_scalar.h"

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
