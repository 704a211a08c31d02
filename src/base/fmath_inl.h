/* fmath_inl.h - the elementary functions, written once for scalars and vectors.
 *
 * fmath.c includes this text with vf = float, the SIMD kernels with vf = a vector of floats
 * (kernels/cpu/simd/math_inl.h); so the scalar functions and the portable vector ones are identical
 * by construction. Before including, define
 *   the types vf, vi, vm, vd, vl and the vf_, vi_, vm_, vd_, vl_ operations used below, as simd.h
 *   describes them; vd and vl are double and int64_t;
 *   FM_INLINE, the linkage;  FM_FMA(a, b, c), a*b + c with one rounding (FM_FUSED 1) or two (0);
 *   fm_split(x, &k): x = 2^k m for positive finite x, returns m in [3/4, 3/2);
 *   fm_scale(p, t, n): 2^n p, rounded once, for -151 <= n <= 128 (t as from fm_exp_split);
 *   fm_scale_neg(p, t, n): the same for n <= 60;
 *   fm_reduce_big(x, big, r, &q): r and q (see fm_reduce) for the lanes of big, the others kept;
 *   fm_pow_pos(m, k, y): fm_pow_core through double precision.
 *
 * Errors are at most 2.5 ulp (normcdf 3.5, exp 1.2, log and log1p 0.9, pow 0.6), special values
 * those of C's <math.h>, denormals are kept. The polynomials are minimax fits with coefficients
 * rounded to single precision. No operation here depends on a neighboring lane. */

#define FM_LOG2E 1.44269504f
#define FM_LN2_HI 0.693359375f /* 9 bits: exact times any exponent */
#define FM_LN2_LO -2.12194442e-4f
#define FM_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */
#define FM_INF __builtin_inff()
#define FM_NAN __builtin_nanf("")

/* ---- exp ------------------------------------------------------------------------------- */

/* Split x into n ln2 + r with |r| <= ln2/2; the low bits of the returned t hold n. |x| < 2^21. */
FM_INLINE vf fm_exp_split(vf x, vf *r, vf *n)
{
    vf t = FM_FMA(x, vf_set1(FM_LOG2E), vf_set1(FM_MAGIC));

    *n = t - vf_set1(FM_MAGIC);
    *r = FM_FMA(*n, vf_set1(-FM_LN2_HI), x);
    *r = FM_FMA(*n, vf_set1(-FM_LN2_LO), *r);
    return t;
}

/* exp(r) for |r| <= ln2/2, error 2^-28. */
FM_INLINE vf fm_exp_poly(vf r)
{
    vf p = FM_FMA(r, vf_set1(0x1.6ad148p-10f), vf_set1(0x1.123f32p-7f));

    p = FM_FMA(p, r, vf_set1(0x1.55584ep-5f));
    p = FM_FMA(p, r, vf_set1(0x1.55548ap-3f));
    p = FM_FMA(p, r, vf_set1(0x1.fffffcp-2f));
    p = FM_FMA(p, r, vf_set1(1.0f));
    return FM_FMA(p, r, vf_set1(1.0f));
}

/* expm1(r) for |r| <= ln2/2, relative error 2^-28. */
FM_INLINE vf fm_expm1_poly(vf r)
{
    vf p = FM_FMA(r, vf_set1(0x1.a1a378p-13f), vf_set1(0x1.6d75f2p-10f));

    p = FM_FMA(p, r, vf_set1(0x1.11108ep-7f));
    p = FM_FMA(p, r, vf_set1(0x1.5554acp-5f));
    p = FM_FMA(p, r, vf_set1(0x1.555556p-3f));
    p = FM_FMA(p, r, vf_set1(0.5f));
    return FM_FMA(p, r * r, r);
}

/* 2^n from the t of fm_exp_split, for -126 <= n <= 127. */
FM_INLINE vf fm_pow2(vf t)
{
    return vf_bits(vi_addw(vi_shl(vi_bits(t), 23), vi_set1(127 << 23)));
}

FM_INLINE vf vexp(vf x)
{
    vf r, n, t;

    x = vf_max2(vf_set1(-104.0f), vf_min2(vf_set1(89.0f), x));
    t = fm_exp_split(x, &r, &n);
    return fm_scale(fm_exp_poly(r), t, n);
}

/* exp(x) for x <= 0 (and up to 40), a little cheaper where scaling is costly. */
FM_INLINE vf vexp_neg(vf x)
{
    vf r, n, t;

    x = vf_max2(vf_set1(-104.0f), x);
    t = fm_exp_split(x, &r, &n);
    return fm_scale_neg(fm_exp_poly(r), t, n);
}

FM_INLINE vf vexpm1(vf x)
{
    vf r, n, t, p, s, y;

    /* From 2^n p + 2^n - 1, halved so that 2^128 need not exist. Below -20 the result is -1. */
    vf c = vf_max2(vf_set1(-20.0f), vf_min2(vf_set1(89.0f), x));

    t = fm_exp_split(c, &r, &n);
    p = fm_expm1_poly(r);
    s = fm_pow2(t - vf_set1(1.0f));
    y = FM_FMA(s, p, s - vf_set1(0.5f));
    y = y + y;
    y = vf_select(vm_eq(n, vf_set1(0.0f)), p, y);
    return vf_select(vm_lt(vf_abs(x), vf_set1(0x1p-25f)), x, y);
}

/* ---- log ------------------------------------------------------------------------------- */

/* log(1 + f) + k ln2 for -1/4 <= f <= 1/2 and whole k. */
FM_INLINE vf fm_log_poly(vf f, vf k)
{
    vf z = f * f;
    vf p = FM_FMA(f, vf_set1(0x1.326b42p-5f), vf_set1(-0x1.743b3ap-4f));

    p = FM_FMA(p, f, vf_set1(0x1.df0f5cp-4f));
    p = FM_FMA(p, f, vf_set1(-0x1.04bbf2p-3f));
    p = FM_FMA(p, f, vf_set1(0x1.24657ap-3f));
    p = FM_FMA(p, f, vf_set1(-0x1.55190ep-3f));
    p = FM_FMA(p, f, vf_set1(0x1.999752p-3f));
    p = FM_FMA(p, f, vf_set1(-0x1.00007p-2f));
    p = FM_FMA(p, f, vf_set1(0x1.55555ap-2f));
    p = p * f * z;
    p = FM_FMA(k, vf_set1(FM_LN2_LO), p);
    p = FM_FMA(z, vf_set1(-0.5f), p);
    return FM_FMA(k, vf_set1(FM_LN2_HI), f + p);
}

FM_INLINE vf vlog(vf x)
{
    vf k, m = fm_split(x, &k);
    vf y = fm_log_poly(m - vf_set1(1.0f), k);
    vf edge = vf_select(vm_eq(x, vf_set1(0.0f)), vf_set1(-FM_INF), vf_set1(FM_NAN));

    y = vf_select(vm_lt(x, vf_set1(FM_INF)), y, x);
    return vf_select(vm_gt(x, vf_set1(0.0f)), y, edge);
}

FM_INLINE vf vlog1p(vf x)
{
    /* 1 + x = 2^k (1 + f) with k from the rounded sum; f = 2^-k x + (2^-k - 1) is rounded once.
     * From 2^60 on the 1 makes no difference, and x is scaled so that 2^-k exists. */
    vm big = vm_ge(x, vf_set1(0x1p60f));
    vf one = vf_select(big, vf_set1(0.0f), vf_set1(1.0f));
    vf w = vf_select(big, x * vf_set1(0x1p-64f), x);
    vi e = vi_subw(vi_bits(w + one), vi_set1(0x3f400000)) & vi_set1((int32_t)0xff800000);
    vf s = vf_bits(vi_subw(vi_set1(0x3f800000), e));
    vf f = FM_FMA(w, s, one * s - vf_set1(1.0f));
    vf k = vf_from_vi(vi_shr(e, 23)) + vf_select(big, vf_set1(64.0f), vf_set1(0.0f));
    vf y = fm_log_poly(f, k);
    vf edge = vf_select(vm_eq(x, vf_set1(-1.0f)), vf_set1(-FM_INF), vf_set1(FM_NAN));

    y = vf_select(vm_lt(x, vf_set1(FM_INF)), y, x);
    y = vf_select(vm_gt(x, vf_set1(-1.0f)), y, edge);
    return vf_select(vm_eq(x, vf_set1(0.0f)), x, y);
}

/* ---- tanh, sigmoid, softplus ----------------------------------------------------------- */

/* tanh(x) = h / (h + 1) with h = (e^2x - 1) / 2 = 2^n expm1(2r) / 2 + (2^n - 1) / 2, x = n ln2/2 +
 * r: no cancellation for small x, one division, and exactly odd. */
FM_INLINE vf vtanh(vf x)
{
    vf a = vf_min2(vf_set1(10.0f), vf_abs(x)), half = vf_set1(0.5f);
    vf t = FM_FMA(a, vf_set1(2.0f * FM_LOG2E), vf_set1(FM_MAGIC)), n = t - vf_set1(FM_MAGIC);
    vf s = fm_pow2(t), p, r;

#if FM_FUSED
    r = FM_FMA(n, vf_set1(-0.346573591f), a); /* ln2/2 is accurate to 2^-30, and large n matter
                                               * less */
#else
    r = FM_FMA(n, vf_set1(-0.5f * FM_LN2_HI), a);
    r = FM_FMA(n, vf_set1(-0.5f * FM_LN2_LO), r);
#endif
    /* fm_expm1_poly(2r) / 2 */
    p = FM_FMA(r, vf_set1(0x1.a1a378p-13f * 64), vf_set1(0x1.6d75f2p-10f * 32));
    p = FM_FMA(p, r, vf_set1(0x1.11108ep-7f * 16));
    p = FM_FMA(p, r, vf_set1(0x1.5554acp-5f * 8));
    p = FM_FMA(p, r, vf_set1(0x1.555556p-3f * 4));
    p = FM_FMA(p, r, vf_set1(1.0f));
    p = FM_FMA(p, r * r, r);
    p = FM_FMA(s, p, FM_FMA(s, half, vf_neg(half)));
    p = p / (p + vf_set1(1.0f));
    return vf_bits(vi_bits(p) | vi_signbit(x));
}

FM_INLINE vf vsigmoid(vf x)
{
    vf e = vexp_neg(vf_neg(vf_abs(x)));
    vf one = vf_set1(1.0f);

    return vf_select(vm_lt(x, vf_set1(0.0f)), e, one) / (e + one);
}

/* log(1 + e^x) = max(x, 0) + log1p(e^-|x|), with the sum in the logarithm's last step. */
FM_INLINE vf vsoftplus(vf x)
{
    vf e = vexp_neg(vf_neg(vf_abs(x)));
    vf u = e + vf_set1(1.0f); /* in [1, 2]: k is 0 or 1 */
    vm high = vm_ge(u, vf_set1(1.5f));
    vf f = vf_select(high, FM_FMA(e, vf_set1(0.5f), vf_set1(-0.5f)), e);
    vf y = fm_log_poly(f, vf_select(high, vf_set1(1.0f), vf_set1(0.0f)));

    return y + vf_max2(vf_set1(0.0f), x);
}

/* ---- erf and the normal distribution --------------------------------------------------- */

/* Below 1 an odd polynomial, above it 1 - e^-g(|x|) with g a fit of -log erfc; beyond 4 g keeps
 * growing, and the result is 1. */
FM_INLINE vf verf(vf x)
{
    vf z = x * x, t = vf_min2(vf_set1(11.0f), vf_abs(x)), p, g;

    p = FM_FMA(z, vf_set1(0x1.477204p-14f), vf_set1(-0x1.a3515ep-11f));
    p = FM_FMA(p, z, vf_set1(0x1.53f224p-8f));
    p = FM_FMA(p, z, vf_set1(-0x1.b7f71ap-6f));
    p = FM_FMA(p, z, vf_set1(0x1.ce2ce6p-4f));
    p = FM_FMA(p, z, vf_set1(-0x1.81273ep-2f));
    p = FM_FMA(p, z, vf_set1(0x1.06eba8p-3f));
    p = FM_FMA(p, x, x);
    g = FM_FMA(t, vf_set1(0x1.d9385ap-17f), vf_set1(-0x1.5bceb6p-12f));
    g = FM_FMA(g, t, vf_set1(0x1.d02efap-9f));
    g = FM_FMA(g, t, vf_set1(-0x1.79759ep-6f));
    g = FM_FMA(g, t, vf_set1(0x1.ab1f8cp-4f));
    g = FM_FMA(g, t, vf_set1(0x1.46903p-1f));
    g = FM_FMA(g, t, vf_set1(0x1.2077c6p+0f));
    g = FM_FMA(g, t, vf_set1(0x1.03c764p-11f));
    g = vf_copysign(vf_set1(1.0f) - vexp_neg(vf_neg(g)), x);
    return vf_select(vm_lt(t, vf_set1(1.0f)), p, g);
}

/* P(N <= x) for a standard normal N: half of e^-g(|x|), or 1 minus that, with g a fit of -log 2P(N
 * <= -|x|) on [0, 5]. The lower tail keeps its relative precision (2^-17) down to -5, and goes to
 * zero below. */
FM_INLINE vf vnormcdf(vf x)
{
    vf t = vf_min2(vf_set1(20.0f), vf_abs(x)), half = vf_set1(0.5f), g;

    g = FM_FMA(t, vf_set1(0x1.93636ep-26f), vf_set1(-0x1.61a10ap-21f));
    g = FM_FMA(g, t, vf_set1(0x1.0d8d74p-17f));
    g = FM_FMA(g, t, vf_set1(-0x1.c6fa1ep-15f));
    g = FM_FMA(g, t, vf_set1(0x1.978a3ep-13f));
    g = FM_FMA(g, t, vf_set1(0x1.79bc76p-18f));
    g = FM_FMA(g, t, vf_set1(-0x1.3c72acp-8f));
    g = FM_FMA(g, t, vf_set1(0x1.29e04ep-5f));
    g = FM_FMA(g, t, vf_set1(0x1.45f134p-2f));
    g = FM_FMA(g, t, vf_set1(0x1.988468p-1f));
    g = half * vexp_neg(vf_neg(g * t));
    return vf_select(vm_lt(x, vf_set1(0.0f)), g, vf_set1(1.0f) - g);
}

/* ---- sin, cos -------------------------------------------------------------------------- */

#define FM_TRIG_LIMIT 12000.0f /* from here on fm_reduce_big */

/* x = q pi/2 + r, |r| <= pi/4; q modulo 4. pi/2 in parts of 11 bits, whose products with a q of
 * 13 bits are exact. */
FM_INLINE vf fm_reduce(vf x, vi *q)
{
    vf t = FM_FMA(x, vf_set1(0.636619772f), vf_set1(FM_MAGIC));
    vf n = t - vf_set1(FM_MAGIC), r;
    vm big = vm_not(vm_lt(vf_abs(x), vf_set1(FM_TRIG_LIMIT)));

    r = FM_FMA(n, vf_set1(-0x1.92p+0f), x);
    r = FM_FMA(n, vf_set1(-0x1.fbp-12f), r);
    r = FM_FMA(n, vf_set1(-0x1.51p-22f), r);
    r = FM_FMA(n, vf_set1(-0x1.0b4612p-34f), r);
    *q = vi_bits(t);
    if (vm_any(big))
        r = fm_reduce_big(x, big, r, q);
    return r;
}

/* sin(r + q pi/2) */
FM_INLINE vf fm_sin_poly(vf r, vi q)
{
    vf z = r * r, s, c, y;

    s = FM_FMA(z, vf_set1(-0x1.991be8p-13f), vf_set1(0x1.1106c6p-7f));
    s = FM_FMA(s, z, vf_set1(-0x1.555544p-3f));
    s = FM_FMA(s * z, r, r);
    c = FM_FMA(z, vf_set1(0x1.99e714p-16f), vf_set1(-0x1.6c0c26p-10f));
    c = FM_FMA(c, z, vf_set1(0x1.55554ap-5f));
    c = FM_FMA(c, z * z, FM_FMA(z, vf_set1(-0.5f), vf_set1(1.0f)));
    y = vf_select(vm_eqi(q & vi_set1(1), vi_set1(0)), s, c);
    return vf_bits(vi_bits(y) ^ vi_shl(q & vi_set1(2), 30));
}

FM_INLINE vf vsin(vf x)
{
    vi q;
    vf r = fm_reduce(x, &q);

    return vf_select(vm_eq(x, vf_set1(0.0f)), x, fm_sin_poly(r, q));
}

FM_INLINE vf vcos(vf x)
{
    vi q;
    vf r = fm_reduce(x, &q);

    return fm_sin_poly(r, q + vi_set1(1));
}

/* ---- pow ------------------------------------------------------------------------------- */

/* (2^k m)^y in double precision, for 3/4 <= m < 3/2; overflows to infinity, underflows to 0. */
FM_INLINE vd fm_pow_core(vd m, vd k, vd y)
{
    vd s = (m - vd_set1(1.0)) / (m + vd_set1(1.0)), z = s * s, p, t, n, r;

    p = z * vd_set1(0.29080336002158591) + vd_set1(0.31928751914862752);
    p = p * z + vd_set1(0.41222609793609205);
    p = p * z + vd_set1(0.57707775649406334);
    p = p * z + vd_set1(0.96179669482205188);
    p = p * z + vd_set1(2.885390081777425);
    y = y * (p * s + k); /* log2 of the result */
    y = vd_max2(vd_set1(-400.0), vd_min2(vd_set1(400.0), y));
    t = y + vd_set1(6755399441055744.0); /* 1.5 * 2^52 */
    n = t - vd_set1(6755399441055744.0);
    r = y - n;
    p = r * vd_set1(1.5201909763790532e-05) + vd_set1(0.00015469291184865965);
    p = p * r + vd_set1(0.001333392261694078);
    p = p * r + vd_set1(0.0096180272538699922);
    p = p * r + vd_set1(0.055504103533729754);
    p = p * r + vd_set1(0.24022651198148992);
    p = p * r + vd_set1(0.69314718072848613);
    p = p * r + vd_set1(0.99999999996168742);
    return p * vd_bits(vl_shl(vl_bits(t) + vl_set1(1023), 52));
}

FM_INLINE vf vpow(vf x, vf y)
{
    vf zero = vf_set1(0.0f), one = vf_set1(1.0f), inf = vf_set1(FM_INF);
    vf a = vf_abs(x), k, m, w, sign;
    vm whole, odd;

    m = fm_split(vf_select(vm_lt(a, inf), a, one), &k);
    w = fm_pow_pos(m, k, y);
    /* |x| is 0 or infinite: 0 or infinity, by the sign of y. */
    w = vf_select(vm_eq(a, zero), vf_select(vm_gt(y, zero), zero, inf), w);
    w = vf_select(vm_eq(a, inf), vf_select(vm_gt(y, zero), inf, zero), w);
    /* A negative x needs a whole y; an odd one restores its sign (also for -0). */
    whole = vm_eq(vf_round(y), y);
    odd = vm_and(whole, vm_ne(vf_round(y * vf_set1(0.5f)) * vf_set1(2.0f), y));
    sign = vf_select(odd, x, one);
    w = vf_copysign(w, sign);
    w = vf_select(vm_and(vm_and(vm_lt(x, zero), vm_lt(a, inf)), vm_not(whole)), vf_set1(FM_NAN), w);
    /* NaN in gives NaN out, except for x^0 and 1^y; (-1)^+-inf is 1. */
    w = vf_select(vm_or(vm_isnan(x), vm_isnan(y)), x + y, w);
    w = vf_select(vm_and(vm_eq(a, one), vm_eq(vf_abs(y), inf)), one, w);
    return vf_select(vm_or(vm_eq(y, zero), vm_eq(x, one)), one, w);
}
