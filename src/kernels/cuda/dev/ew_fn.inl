/* ew_fn.inl - the element-wise functions for one precision: REAL, and R(name), which names its
 * functions. The formulas are those of ops_ew.def. Included once for f32 and once for f64. */

DEV REAL R(sigmoid)(REAL x)
{
    REAL e = R(exp)(-R(fabs)(x));

    return (x < 0 ? e : (REAL)1) / (1 + e);
}

DEV REAL R(softplus)(REAL x)
{
    return (x > 0 ? x : (REAL)0) + R(log1p)(R(exp)(-R(fabs)(x)));
}

DEV REAL R(relu6)(REAL x)
{
    return x < 0 ? 0 : x > 6 ? (REAL)6 : x;
}

DEV REAL R(gelu_tanh_t)(REAL x)
{
    return R(tanh)((REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x));
}

DEV REAL R(gelu_tanh_slope)(REAL x)
{
    REAL t = R(gelu_tanh_t)(x);

    return (REAL)0.5 * (1 + t) + (REAL)0.5 * x * (1 - t * t) * (REAL)0.79788456080286535588 *
                                     (1 + (REAL)(3 * 0.044715) * x * x);
}

DEV REAL R(mod)(REAL a, REAL b)
{
    REAL m = R(fmod)(a, b);

    if (m == 0)
        return R(copysign)(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

/* Function `code` of operands a, b, c and numbers p, q. */
DEV REAL R(ew)(int code, REAL a, REAL b, REAL c, REAL p, REAL q)
{
    switch (code) {
    case WFC_EW_copy: return a;
    case WFC_EW_neg: return -a;
    case WFC_EW_abs: return R(fabs)(a);
    case WFC_EW_sign: return a > 0 ? 1 : a < 0 ? (REAL)-1 : a;
    case WFC_EW_square: return a * a;
    case WFC_EW_exp: return R(exp)(a);
    case WFC_EW_expm1: return R(expm1)(a);
    case WFC_EW_log: return R(log)(a);
    case WFC_EW_log1p: return R(log1p)(a);
    case WFC_EW_sqrt: return R(sqrt)(a);
    case WFC_EW_rsqrt: return 1 / R(sqrt)(a);
    case WFC_EW_reciprocal: return 1 / a;
    case WFC_EW_sin: return R(sin)(a);
    case WFC_EW_cos: return R(cos)(a);
    case WFC_EW_erf: return R(erf)(a);
    case WFC_EW_floor: return R(floor)(a);
    case WFC_EW_ceil: return R(ceil)(a);
    case WFC_EW_round: return R(rint)(a);
    case WFC_EW_clip: return a < p ? p : a > q ? q : a;
    case WFC_EW_logical_not: return a == 0;
    case WFC_EW_is_finite: return a - a == 0;
    case WFC_EW_tanh: return R(tanh)(a);
    case WFC_EW_sigmoid: return R(sigmoid)(a);
    case WFC_EW_relu: return a < 0 ? 0 : a;
    case WFC_EW_relu6: return R(relu6)(a);
    case WFC_EW_leaky_relu: return a > 0 ? a : p * a;
    case WFC_EW_prelu: return a > 0 ? a : a * b;
    case WFC_EW_elu: return a > 0 ? a : p * R(expm1)(a);
    case WFC_EW_selu:
        return (REAL)1.0507009873554804934 *
               (a > 0 ? a : (REAL)1.6732632423543772848 * R(expm1)(a));
    case WFC_EW_gelu: return (REAL)0.5 * a * (1 + R(erf)(a * (REAL)0.70710678118654752440));
    case WFC_EW_gelu_tanh: return (REAL)0.5 * a * (1 + R(gelu_tanh_t)(a));
    case WFC_EW_silu: return a * R(sigmoid)(a);
    case WFC_EW_mish: return a * R(tanh)(R(softplus)(a));
    case WFC_EW_softplus: return a != a ? a : R(softplus)(a);
    case WFC_EW_softsign: return a / (1 + R(fabs)(a));
    case WFC_EW_hard_sigmoid: return R(relu6)(a + 3) / 6;
    case WFC_EW_hard_swish: return a * R(relu6)(a + 3) / 6;
    case WFC_EW_clip_grad: return b >= p && b <= q ? a : 0;
    case WFC_EW_tanh_grad: return a * (1 - b * b);
    case WFC_EW_sigmoid_grad: return a * b * (1 - b);
    case WFC_EW_relu_grad: return b > 0 ? a : 0;
    case WFC_EW_relu6_grad: return b > 0 && b < 6 ? a : 0;
    case WFC_EW_leaky_relu_grad: return b > 0 ? a : p * a;
    case WFC_EW_elu_grad: return b > 0 ? a : a * (b + p);
    case WFC_EW_selu_grad:
        return b > 0 ? (REAL)1.0507009873554804934 * a
                     : a * (b + (REAL)(1.0507009873554804934 * 1.6732632423543772848));
    case WFC_EW_gelu_grad:
        return a * ((REAL)0.5 * (1 + R(erf)(b * (REAL)0.70710678118654752440)) +
                    b * (REAL)0.39894228040143267794 * R(exp)((REAL)-0.5 * b * b));
    case WFC_EW_gelu_tanh_grad: return a * R(gelu_tanh_slope)(b);
    case WFC_EW_silu_grad: {
        REAL s = R(sigmoid)(b);

        return a * s * (1 + b * (1 - s));
    }
    case WFC_EW_mish_grad: {
        REAL t = R(tanh)(R(softplus)(b));

        return a * (t + b * (1 - t * t) * R(sigmoid)(b));
    }
    case WFC_EW_softplus_grad: return a * R(sigmoid)(b);
    case WFC_EW_softsign_grad: return a / ((1 + R(fabs)(b)) * (1 + R(fabs)(b)));
    case WFC_EW_hard_sigmoid_grad: return b > -3 && b < 3 ? a / 6 : 0;
    case WFC_EW_hard_swish_grad: return b <= -3 ? 0 : b >= 3 ? a : a * (2 * b + 3) / 6;
    case WFC_EW_add: return a + b;
    case WFC_EW_sub: return a - b;
    case WFC_EW_mul: return a * b;
    case WFC_EW_div: return a / b;
    case WFC_EW_pow: return R(pow)(a, b);
    case WFC_EW_mod: return R(mod)(a, b);
    case WFC_EW_min: return a != a || a < b ? a : b;
    case WFC_EW_max: return a != a || a > b ? a : b;
    case WFC_EW_eq: return a == b;
    case WFC_EW_ne: return a != b;
    case WFC_EW_lt: return a < b;
    case WFC_EW_le: return a <= b;
    case WFC_EW_gt: return a > b;
    case WFC_EW_ge: return a >= b;
    case WFC_EW_logical_and: return a != 0 && b != 0;
    case WFC_EW_logical_or: return a != 0 || b != 0;
    case WFC_EW_logical_xor: return (a != 0) != (b != 0);
    case WFC_EW_where: return a != 0 ? b : c;
    case WFC_EW_sigmoid_xent: return (a > 0 ? a : (REAL)0) - a * b + R(log1p)(R(exp)(-R(fabs)(a)));
    default: return 0;
    }
}
