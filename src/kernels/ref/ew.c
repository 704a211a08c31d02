/* ew.c - reference kernels of element-wise ops: the formula of each is its definition.
 * Floats are computed in double and rounded once; integers in int64, wrapping around. */
#include <math.h>

#include "kernels/ref/ref.h"

typedef double unary_fn(double x, double p);
typedef double binary_fn(double a, double b, double p);
typedef int64_t unary_int_fn(int64_t x);
typedef int64_t binary_int_fn(int64_t a, int64_t b);

static int64_t get_int(const struct wf_tensor *t, int64_t i)
{
    return wf_get_int(t->data, t->type.dtype, i);
}

static void set_int(const struct wf_tensor *t, int64_t i, int64_t v)
{
    wf_set_int(t->data, t->type.dtype, i, v);
}

static weft_status unary(const struct wf_call *c, unary_fn *f, unary_int_fn *fi, double p)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        if (fi && !wf_is_float(c->in[0].type.dtype))
            set_int(&c->out[0], i, fi(get_int(&c->in[0], i)));
        else
            ref_set(&c->out[0], i, f(ref_get(&c->in[0], i), p));
    return WEFT_OK;
}

static weft_status binary(const struct wf_call *c, binary_fn *f, binary_int_fn *fi, double p)
{
    const struct wf_type *to = &c->out[0].type;
    bool plain_a = wf_type_same_shape(&c->in[0].type, to),
         plain_b = wf_type_same_shape(&c->in[1].type, to);
    int64_t n = wf_type_count(to);

    for (int64_t i = 0; i < n; i++) {
        int64_t ia = plain_a ? i : wf_ref_broadcast_index(&c->in[0].type, to, i);
        int64_t ib = plain_b ? i : wf_ref_broadcast_index(&c->in[1].type, to, i);

        if (fi && !wf_is_float(c->in[0].type.dtype))
            set_int(&c->out[0], i, fi(get_int(&c->in[0], ia), get_int(&c->in[1], ib)));
        else
            ref_set(&c->out[0], i, f(ref_get(&c->in[0], ia), ref_get(&c->in[1], ib), p));
    }
    return WEFT_OK;
}

/* UNARY(name, formula in x), UNARY_P with p = an attribute, UNARY_NUM with a second formula for integers;
 * BINARY likewise in a and b. */
#define REF_KERNEL(name, call)                         \
    weft_status wf_ref_##name(const struct wf_call *c) \
    {                                                  \
        return call;                                   \
    }
#define UNARY_F(name, expr)                    \
    static double f_##name(double x, double p) \
    {                                          \
        (void)p;                               \
        return expr;                           \
    }
#define UNARY_I(name, expr)            \
    static int64_t i_##name(int64_t x) \
    {                                  \
        return expr;                   \
    }
#define UNARY(name, expr) UNARY_F(name, expr) REF_KERNEL(name, unary(c, f_##name, NULL, 0))
#define UNARY_P(name, attr, expr) \
    UNARY_F(name, expr) REF_KERNEL(name, unary(c, f_##name, NULL, wf_call_float(c, attr)))
#define UNARY_NUM(name, expr, int_expr) \
    UNARY_F(name, expr) UNARY_I(name, int_expr) REF_KERNEL(name, unary(c, f_##name, i_##name, 0))
#define BINARY_F(name, expr)                             \
    static double f_##name(double a, double b, double p) \
    {                                                    \
        (void)p;                                         \
        return expr;                                     \
    }
#define BINARY_I(name, expr)                      \
    static int64_t i_##name(int64_t a, int64_t b) \
    {                                             \
        return expr;                              \
    }
#define BINARY(name, expr) BINARY_F(name, expr) REF_KERNEL(name, binary(c, f_##name, NULL, 0))
#define BINARY_P(name, attr, expr) \
    BINARY_F(name, expr) REF_KERNEL(name, binary(c, f_##name, NULL, wf_call_float(c, attr)))
#define BINARY_NUM(name, expr, int_expr) \
    BINARY_F(name, expr) BINARY_I(name, int_expr) REF_KERNEL(name, binary(c, f_##name, i_##name, 0))

/* ---- unary ----------------------------------------------------------------------------------- */

static const double inv_sqrt_2 = 0.70710678118654752440, inv_sqrt_2pi = 0.39894228040143267794,
                    sqrt_2_over_pi = 0.79788456080286535588, selu_scale = 1.0507009873554804934,
                    selu_alpha = 1.6732632423543772848;

static int64_t wrap(uint64_t v)
{
    int64_t out;

    memcpy(&out, &v, sizeof out);
    return out;
}

UNARY_NUM(neg, -x, wrap(0 - (uint64_t)x))
UNARY_NUM(abs, fabs(x), x < 0 ? wrap(0 - (uint64_t)x) : x)
UNARY_NUM(sign, x > 0 ? 1 : x < 0 ? -1 : x, (x > 0) - (x < 0))
UNARY_NUM(square, x *x, wrap((uint64_t)x *(uint64_t)x))
UNARY(exp, exp(x))
UNARY(expm1, expm1(x))
UNARY(log, log(x))
UNARY(log1p, log1p(x))
UNARY(sqrt, sqrt(x))
UNARY(rsqrt, 1 / sqrt(x))
UNARY(reciprocal, 1 / x)
UNARY(sin, sin(x))
UNARY(cos, cos(x))
UNARY(erf, erf(x))
UNARY(floor, floor(x))
UNARY(ceil, ceil(x))
UNARY(round, nearbyint(x))
UNARY_NUM(logical_not, !x, !x)
UNARY(is_finite, isfinite(x))

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double relu6(double x)
{
    return x < 0 ? 0 : x > 6 ? 6 : x;
}

UNARY(tanh, tanh(x))
UNARY(sigmoid, isnan(x) ? x : sigmoid(x))
UNARY(relu, x < 0 ? 0 : x)
UNARY(relu6, relu6(x))
UNARY_P(leaky_relu, "alpha", x > 0 ? x : p * x)
UNARY_P(elu, "alpha", x > 0 ? x : p * expm1(x))
UNARY(selu, selu_scale *(x > 0 ? x : selu_alpha * expm1(x)))
UNARY(gelu, 0.5 * x * (1 + erf(x * inv_sqrt_2)))
UNARY(gelu_tanh, 0.5 * x * (1 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x))))
UNARY(silu, x *sigmoid(x))
UNARY(mish, x *tanh(softplus(x)))
UNARY(softplus, isnan(x) ? x : softplus(x))
UNARY(softsign, x / (1 + fabs(x)))
UNARY(hard_sigmoid, relu6(x + 3) / 6)
UNARY(hard_swish, x *relu6(x + 3) / 6)

/* Two numbers, so not by UNARY_P. */
weft_status wf_ref_clip(const struct wf_call *c)
{
    double lo = wf_call_float(c, "min"), hi = wf_call_float(c, "max");
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(&c->in[0], i);

        if (x < lo || x > hi)
            ref_set(&c->out[0], i, x < lo ? lo : hi);
        else if (wf_is_float(c->in[0].type.dtype))
            ref_set(&c->out[0], i, x);
        else
            set_int(&c->out[0], i, get_int(&c->in[0], i));
    }
    return WEFT_OK;
}

/* ---- gradients: a is dy, b is x (or y) --------------------------------------------------------- */

static double gelu_tanh_slope(double x)
{
    double t = tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * 0.044715 * x * x);
}

static double mish_slope(double x)
{
    double t = tanh(softplus(x));

    return t + x * (1 - t * t) * sigmoid(x);
}

BINARY(tanh_grad, a *(1 - b * b))
BINARY(sigmoid_grad, a *b *(1 - b))
BINARY(relu_grad, b > 0 ? a : 0)
BINARY(relu6_grad, b > 0 && b < 6 ? a : 0)
BINARY_P(leaky_relu_grad, "alpha", b > 0 ? a : p * a)
BINARY_P(elu_grad, "alpha", b > 0 ? a : a * (b + p))
BINARY(selu_grad, b > 0 ? selu_scale * a : a * (b + selu_scale * selu_alpha))
BINARY(gelu_grad, a *(0.5 * (1 + erf(b * inv_sqrt_2)) + b * inv_sqrt_2pi * exp(-0.5 * b * b)))
BINARY(gelu_tanh_grad, a *gelu_tanh_slope(b))
BINARY(silu_grad, a *sigmoid(b) * (1 + b * (1 - sigmoid(b))))
BINARY(mish_grad, a *mish_slope(b))
BINARY(softplus_grad, a *sigmoid(b))
BINARY(softsign_grad, a / ((1 + fabs(b)) * (1 + fabs(b))))
BINARY(hard_sigmoid_grad, b > -3 && b < 3 ? a / 6 : 0)
BINARY(hard_swish_grad, b <= -3 ? 0 : b >= 3 ? a : a * (2 * b + 3) / 6)

weft_status wf_ref_clip_grad(const struct wf_call *c)
{
    double lo = wf_call_float(c, "min"), hi = wf_call_float(c, "max");
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(&c->in[1], i);

        ref_set(&c->out[0], i, x >= lo && x <= hi ? ref_get(&c->in[0], i) : 0);
    }
    return WEFT_OK;
}

/* ---- binary ---------------------------------------------------------------------------------- */

/* a - b floor(a / b), exactly; a zero takes the sign of b, as in NumPy. */
static double floored_mod(double a, double b)
{
    double m = fmod(a, b);

    if (m == 0)
        return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

static int64_t floored_mod_int(int64_t a, int64_t b)
{
    int64_t m = b == -1 ? 0 : a % b; /* the quotient of the smallest number and -1 overflows */

    return m && (m < 0) != (b < 0) ? m + b : m;
}

BINARY_NUM(add, a + b, wrap((uint64_t)a + (uint64_t)b))
BINARY_NUM(sub, a - b, wrap((uint64_t)a - (uint64_t)b))
BINARY_NUM(mul, a *b, wrap((uint64_t)a *(uint64_t)b))
BINARY(div, a / b)
BINARY(pow, pow(a, b))
BINARY_NUM(min, isnan(a) || a < b ? a : b, a < b ? a : b)
BINARY_NUM(max, isnan(a) || a > b ? a : b, a > b ? a : b)
BINARY(prelu, a > 0 ? a : a * b)
BINARY_NUM(eq, a == b, a == b)
BINARY_NUM(ne, a != b, a != b)
BINARY_NUM(lt, a < b, a < b)
BINARY_NUM(le, a <= b, a <= b)
BINARY_NUM(gt, a > b, a > b)
BINARY_NUM(ge, a >= b, a >= b)
BINARY_NUM(logical_and, a != 0 && b != 0, a &&b)
BINARY_NUM(logical_or, a != 0 || b != 0, a || b)
BINARY_NUM(logical_xor, (a != 0) != (b != 0), !a != !b)
BINARY_F(mod, floored_mod(a, b))
BINARY_I(mod, floored_mod_int(a, b))

weft_status wf_ref_mod(const struct wf_call *c)
{
    int64_t n = wf_count(&c->in[1]);

    for (int64_t i = 0; i < n && wf_count(&c->out[0]) && !wf_is_float(c->in[1].type.dtype); i++)
        if (get_int(&c->in[1], i) == 0)
            return wf_err(WEFT_EDATA, "mod: the divisor's element %lld is 0", (long long)i);
    return binary(c, f_mod, i_mod, 0);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Copy element `from` of `src` to element `i` of `dst`, converting. */
static void convert(const struct wf_tensor *dst, int64_t i, const struct wf_tensor *src,
                    int64_t from)
{
    if (wf_is_float(src->type.dtype))
        ref_set(dst, i, ref_get(src, from));
    else
        set_int(dst, i, get_int(src, from));
}

weft_status wf_ref_where(const struct wf_call *c)
{
    const struct wf_type *to = &c->out[0].type;
    int64_t n = wf_type_count(to);

    for (int64_t i = 0; i < n; i++) {
        bool yes = get_int(&c->in[0], wf_ref_broadcast_index(&c->in[0].type, to, i));
        const struct wf_tensor *src = &c->in[yes ? 1 : 2];

        convert(&c->out[0], i, src, wf_ref_broadcast_index(&src->type, to, i));
    }
    return WEFT_OK;
}

weft_status wf_ref_cast(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        convert(&c->out[0], i, &c->in[0], i);
    return WEFT_OK;
}

weft_status wf_ref_add_n(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);
    bool floats = wf_is_float(c->out[0].type.dtype);

    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        uint64_t whole = 0;

        for (int k = 0; k < c->n_in; k++)
            if (floats)
                sum = k ? sum + ref_get(&c->in[k], i) : ref_get(&c->in[k], i);
            else
                whole += (uint64_t)get_int(&c->in[k], i);
        if (floats)
            ref_set(&c->out[0], i, sum);
        else
            set_int(&c->out[0], i, wrap(whole));
    }
    return WEFT_OK;
}
