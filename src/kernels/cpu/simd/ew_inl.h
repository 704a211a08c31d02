/* ew_inl.h - the element-wise functions of ew.h on one vector, for use inside other kernels:
 * vf ew_NAME(a, b, c, p, q), where p and q are the parameters in every lane. Arguments that the
 * function does not have are ignored. Formulas are in ew.h. */
#ifndef WF_KERNELS_CPU_SIMD_EW_INL_H
#define WF_KERNELS_CPU_SIMD_EW_INL_H

#include "kernels/cpu/simd/math_inl.h"

#define EW_UNUSED __attribute__((unused))
#define EW(name)                                                                                \
    WF_SIMD_INLINE vf ew_##name(vf a EW_UNUSED, vf b EW_UNUSED, vf c EW_UNUSED, vf p EW_UNUSED, \
                                vf q EW_UNUSED)
#define EW_IS(name, value) \
    EW(name)               \
    {                      \
        return value;      \
    }

/* Names for which C or simd.h has no shorter form. */
#define EW_ZERO vf_zero()
#define EW_ONE vf_set1(1.0f)
#define EW_TRUE(mask) vf_keep(mask, EW_ONE)
#define EW_IF(x) vm_ne(x, EW_ZERO)
#define EW_SELU_SCALE 1.05070098735548049342f
#define EW_SELU_LOW 1.75809934084737685994f /* times 1.67326324235437728481 */

/* ---- one operand -------------------------------------------------------------------------- */

EW_IS(fill, p)
EW_IS(copy, a)
EW_IS(neg, vf_neg(a))
EW_IS(abs, vf_abs(a))
EW_IS(exp, vexp(a))
EW_IS(log, vlog(a))
EW_IS(log1p, vlog1p(a))
EW_IS(expm1, vexpm1(a))
EW_IS(sqrt, vf_sqrt(a))
EW_IS(rsqrt, EW_ONE / vf_sqrt(a))
EW_IS(square, a *a)
EW_IS(reciprocal, EW_ONE / a)
EW_IS(sin, vsin(a))
EW_IS(cos, vcos(a))
EW_IS(tanh, vtanh(a))
EW_IS(sigmoid, vsigmoid(a))
EW_IS(erf, verf(a))
EW_IS(relu, vf_max2(EW_ZERO, a))
EW_IS(relu6, vf_min2(vf_set1(6.0f), vf_max2(EW_ZERO, a)))
EW_IS(leaky_relu, vf_select(vm_gt(a, EW_ZERO), a, p *a))
EW_IS(elu, vf_select(vm_gt(a, EW_ZERO), a, p *vexpm1(a)))
EW_IS(gelu, a *vnormcdf(a))
EW_IS(silu, a / (EW_ONE + vexp(vf_neg(a))))
EW_IS(softplus, vsoftplus(a))
EW_IS(softsign, a / (EW_ONE + vf_abs(a)))
EW_IS(hard_sigmoid, ew_relu6(a + vf_set1(3.0f), b, c, p, q) * vf_set1(1.0f / 6.0f))
EW_IS(hard_swish, a *ew_hard_sigmoid(a, b, c, p, q))
EW_IS(floor, vf_floor(a))
EW_IS(ceil, vf_ceil(a))
EW_IS(round, vf_round(a))
EW_IS(clip, vf_min2(q, vf_max2(p, a)))
EW_IS(is_finite, EW_TRUE(vm_lt(vf_abs(a), vf_set1(FM_INF))))
EW_IS(logical_not, EW_TRUE(vm_eq(a, EW_ZERO)))

EW(sign)
{
    vf one = vf_bits(vi_signbit(a) | vi_bits(EW_ONE));

    a = vf_select(vm_ne(vf_abs(a), EW_ZERO), a, EW_ZERO); /* -0 gives 0 */
    return vf_select(vm_gt(vf_abs(a), EW_ZERO), one, a);
}

EW(selu)
{
    vf low = vf_set1(EW_SELU_LOW) * vexpm1(a);

    return vf_select(vm_gt(a, EW_ZERO), vf_set1(EW_SELU_SCALE) * a, low);
}

/* 2^v, for 1 / (1 + 2^v): v is clamped to [-126, 128], where that is 1 or 0. Error 2^-25. */
WF_SIMD_INLINE vf ew_exp2_cut(vf v)
{
    vf t, n, r, p;

    v = vf_max2(vf_set1(-126.0f), vf_min2(vf_set1(128.0f), v));
    t = v + vf_set1(FM_MAGIC);
    n = t - vf_set1(FM_MAGIC);
    r = v - n;
    p = vf_fma(r, vf_set1(0x1.17955p-13f), vf_set1(0x1.5ef4dep-10f));
    p = vf_fma(p, r, vf_set1(0x1.3b681ap-7f));
    p = vf_fma(p, r, vf_set1(0x1.c6af9ep-5f));
    p = vf_fma(p, r, vf_set1(0x1.ebfb94p-3f));
    p = vf_fma(p, r, vf_set1(0x1.62e43p-1f));
    p = vf_fma(p, r, EW_ONE);
#if defined(WF_LEVEL_AVX512)
    return fm_scale(p, t, n);
#else
    return p * fm_pow2(t); /* infinite at n = 128 */
#endif
}

/* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u): one exponential, no cancellation for negative a. The
 * constants give -2u / ln2. */
#define EW_GELU_K0 -2.30220819814f /* -2 sqrt(2/pi) / ln2 */
#define EW_GELU_K1 -0.10294323958f /* times 0.044715 */

EW(gelu_tanh)
{
    vf k = vf_fma(a * a, vf_set1(EW_GELU_K1), vf_set1(EW_GELU_K0));

    return a / (EW_ONE + ew_exp2_cut(a * k));
}

/* tanh(ln(1 + e)) = n / (n + 2) with n = e (e + 2); 1 from a = 20 on. */
EW(mish)
{
    vf e = vexp(vf_min2(vf_set1(20.0f), a));
    vf n = e * (e + vf_set1(2.0f));

    return a * (n / (n + vf_set1(2.0f)));
}

/* ---- two and three operands --------------------------------------------------------------- */

EW_IS(add, a + b)
EW_IS(sub, a - b)
EW_IS(mul, a *b)
EW_IS(div, a / b)
EW_IS(pow, vpow(a, b))
EW_IS(min, vf_min(a, b))
EW_IS(max, vf_max(a, b))
EW_IS(eq, EW_TRUE(vm_eq(a, b)))
EW_IS(ne, EW_TRUE(vm_ne(a, b)))
EW_IS(lt, EW_TRUE(vm_lt(a, b)))
EW_IS(le, EW_TRUE(vm_le(a, b)))
EW_IS(gt, EW_TRUE(vm_gt(a, b)))
EW_IS(ge, EW_TRUE(vm_ge(a, b)))
EW_IS(logical_and, EW_TRUE(vm_and(EW_IF(a), EW_IF(b))))
EW_IS(logical_or, EW_TRUE(vm_or(EW_IF(a), EW_IF(b))))
EW_IS(logical_xor, EW_TRUE(vm_xor(EW_IF(a), EW_IF(b))))
EW_IS(prelu, vf_select(vm_gt(a, EW_ZERO), a, b *a))
EW_IS(where, vf_select(EW_IF(a), b, c))

/* The remainder with x's sign, for |x / y| < 2^28: the quotient has at most 29 bits, so its product
 * with y and the difference are exact. */
WF_SIMD_INLINE vd ew_fmod_core(vd x, vd y)
{
    vd t = x / y + vd_set1(6755399441055744.0), n = t - vd_set1(6755399441055744.0);
    vd r = x - n * y, zero = vd_set1(0.0);
    vl high = (vl)(r < zero) & (vl)(x > zero), low = (vl)(r > zero) & (vl)(x < zero);
    vd size = vd_select((vl)(y < zero), -y, y);

    r = vd_select(high, r + size, r);
    return vd_select(low, r - size, r);
}

EW(mod)
{
    vf size = vf_abs(b), r, y;
    vm plain = vm_and(vm_lt(vf_abs(a), size * vf_set1(0x1p28f)), vm_lt(size, vf_set1(FM_INF)));
    uint32_t rest = ~vm_bits(plain) & ((1u << VF_N) - 1);

    r = vf_join(ew_fmod_core(vd_low(a), vd_low(b)), ew_fmod_core(vd_high(a), vd_high(b)));
    y = vf_select(vm_xor(vm_lt(r, EW_ZERO), vm_lt(b, EW_ZERO)), r + b, r);
    y = vf_select(vm_eq(r, EW_ZERO), vf_copysign(EW_ZERO, b), y);
    for (int i = 0; rest; i++, rest >>= 1)
        if (rest & 1)
            y[i] = wf_floormodf(a[i], b[i]);
    return y;
}

/* ---- with scalars ------------------------------------------------------------------------- */

EW_IS(scale, p *a)
EW_IS(axpy, vf_fma(p, a, b))
EW_IS(div_scalar, a / p)
EW_IS(eq_scalar, EW_TRUE(vm_eq(a, p)))

/* ---- gradients: a = dy, b = x or y -------------------------------------------------------- */

EW_IS(relu_grad, vf_keep(vm_gt(b, EW_ZERO), a))
EW_IS(relu6_grad, vf_keep(vm_and(vm_gt(b, EW_ZERO), vm_lt(b, vf_set1(6.0f))), a))
EW_IS(leaky_relu_grad, vf_select(vm_gt(b, EW_ZERO), a, p *a))
EW_IS(elu_grad, vf_select(vm_gt(b, EW_ZERO), a, a *(b + p)))
EW_IS(softplus_grad, a *vsigmoid(b))
EW_IS(tanh_grad, a *vf_fnma(b, b, EW_ONE))
EW_IS(sigmoid_grad, a *(b *(EW_ONE - b)))
EW_IS(clip_grad, vf_keep(vm_and(vm_ge(b, p), vm_le(b, q)), a))

EW(selu_grad)
{
    vf k = vf_set1(EW_SELU_SCALE), low = b + vf_set1(EW_SELU_LOW);

    return a * vf_select(vm_gt(b, EW_ZERO), k, low);
}

EW(softsign_grad)
{
    vf d = EW_ONE + vf_abs(b);

    return a / (d * d);
}

EW(hard_sigmoid_grad)
{
    return vf_keep(vm_lt(vf_abs(b), vf_set1(3.0f)), a * vf_set1(1.0f / 6.0f));
}

EW(hard_swish_grad)
{
    vf mid = a * vf_fma(b, vf_set1(1.0f / 3.0f), vf_set1(0.5f));

    mid = vf_select(vm_ge(b, vf_set1(3.0f)), a, mid);
    return vf_keep(vm_gt(b, vf_set1(-3.0f)), mid);
}

/* Phi(x) + x phi(x) */
EW(gelu_grad)
{
    vf density = vf_set1(0.398942280f) * vexp_neg(vf_set1(-0.5f) * (b * b));

    return a * vf_fma(b, density, vnormcdf(b));
}

/* With s = 1 / (1 + e), e = e^-2u: s + x e s^2 2u'. Beyond 10 s is exactly 0 or 1, and all products
 * are finite. */
EW(gelu_tanh_grad)
{
    vf x = vf_max2(vf_set1(-10.0f), vf_min2(vf_set1(10.0f), b)), z = x * x;
    vf k = vf_fma(z, vf_set1(EW_GELU_K1), vf_set1(EW_GELU_K0));
    vf k3 = vf_fma(z, vf_set1(-2.07944154f * EW_GELU_K1), vf_set1(-0.693147181f * EW_GELU_K0));
    vf e = ew_exp2_cut(x * k), s = EW_ONE / (EW_ONE + e);

    return a * vf_fma(x * k3, (e * s) * s, s);
}

/* s + x s (1 - s) */
EW(silu_grad)
{
    vf x = vf_max2(vf_set1(-104.0f), vf_min2(vf_set1(104.0f), b));
    vf e = vexp_neg(vf_neg(vf_abs(x))), d = EW_ONE / (EW_ONE + e);
    vf ed = e * d, s = vf_select(vm_lt(x, EW_ZERO), ed, d);

    return a * vf_fma(x, ed * d, s);
}

/* With e = e^x and n = e (e + 2): (n (n + 2) + 4 x e (1 + e)) / (n + 2)^2. */
EW(mish_grad)
{
    vf x = vf_min2(vf_set1(20.0f), b), e = vexp(x), two = vf_set1(2.0f);
    vf n = e * (e + two), d = n + two;
    vf up = vf_fma(vf_set1(4.0f) * x, e * (EW_ONE + e), n * d);

    return a * (up / (d * d));
}

#endif
