/* grad_ew.c - gradient rules of element-wise ops.
 * A fused rule f_grad(dy, x) = dy f'(x) is linear in dy, so its own gradient is f_grad(g, x) for dy and g dy f''(x)
 * for x, with f'' written in primitives. */
#include "graph/grad.h"

static weft_val mul(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_mul, a, b);
}

static weft_val add(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_add, a, b);
}

static weft_val sub(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_sub, a, b);
}

static weft_val scale(weft_graph *g, double k, weft_val x)
{
    return g->st ? WEFT_NIL : mul(g, x, wf_const_like(g, k, x));
}

static weft_val shift(weft_graph *g, double k, weft_val x)
{
    return g->st ? WEFT_NIL : add(g, x, wf_const_like(g, k, x));
}

static weft_val where(weft_graph *g, weft_val cond, weft_val a, weft_val b)
{
    return wf_build(g, WF_OP_where, 3, (weft_val[]){cond, a, b}, 0, NULL);
}

static weft_val zero_where_not(weft_graph *g, weft_val cond, weft_val a)
{
    return g->st ? WEFT_NIL : where(g, cond, a, wf_const_like(g, 0, a));
}

/* Nothing reaches the inputs: the op is flat, or has no float input. */
weft_status wf_grad_zero(struct wf_grad *r)
{
    (void)r;
    return WEFT_OK;
}

/* ---- unary ----------------------------------------------------------------------------------- */

/* RULE(name, dx in terms of g, x, y, dy). */
#define RULE(name, expr)                                       \
    weft_status wf_grad_##name(struct wf_grad *r)              \
    {                                                          \
        weft_graph *g = r->g;                                  \
        weft_val x = r->in[0], y = r->out[0], dy = r->dout[0]; \
                                                               \
        (void)x;                                               \
        (void)y;                                               \
        r->din[0] = expr;                                      \
        return g->st;                                          \
    }

RULE(neg, wf_unary(g, WF_OP_neg, dy))
RULE(abs, mul(g, dy, wf_unary(g, WF_OP_sign, x)))
RULE(square, scale(g, 2, mul(g, dy, x)))
RULE(exp, mul(g, dy, y))
RULE(expm1, mul(g, dy, shift(g, 1, y)))
RULE(log, wf_binary(g, WF_OP_div, dy, x))
RULE(log1p, wf_binary(g, WF_OP_div, dy, shift(g, 1, x)))
RULE(sqrt, scale(g, 0.5, wf_binary(g, WF_OP_div, dy, y)))
RULE(rsqrt, scale(g, -0.5, mul(g, dy, mul(g, y, wf_unary(g, WF_OP_square, y)))))
RULE(reciprocal, wf_unary(g, WF_OP_neg, mul(g, dy, wf_unary(g, WF_OP_square, y))))
RULE(sin, mul(g, dy, wf_unary(g, WF_OP_cos, x)))
RULE(cos, wf_unary(g, WF_OP_neg, mul(g, dy, wf_unary(g, WF_OP_sin, x))))
RULE(erf, mul(g, dy,
              scale(g, 1.1283791670955125739, /* 2 / sqrt(pi) */
                    wf_unary(g, WF_OP_exp, wf_unary(g, WF_OP_neg, wf_unary(g, WF_OP_square, x))))))
RULE(tanh, wf_binary(g, WF_OP_tanh_grad, dy, y))
RULE(sigmoid, wf_binary(g, WF_OP_sigmoid_grad, dy, y))
RULE(relu, wf_binary(g, WF_OP_relu_grad, dy, y))
RULE(relu6, wf_binary(g, WF_OP_relu6_grad, dy, y))
RULE(selu, wf_binary(g, WF_OP_selu_grad, dy, y))
RULE(gelu, wf_binary(g, WF_OP_gelu_grad, dy, x))
RULE(gelu_tanh, wf_binary(g, WF_OP_gelu_tanh_grad, dy, x))
RULE(silu, wf_binary(g, WF_OP_silu_grad, dy, x))
RULE(mish, wf_binary(g, WF_OP_mish_grad, dy, x))
RULE(softplus, wf_binary(g, WF_OP_softplus_grad, dy, x))
RULE(softsign, wf_binary(g, WF_OP_softsign_grad, dy, x))
RULE(hard_sigmoid, wf_binary(g, WF_OP_hard_sigmoid_grad, dy, x))
RULE(hard_swish, wf_binary(g, WF_OP_hard_swish_grad, dy, x))

static weft_val with_alpha(struct wf_grad *r, int op_id, weft_val dy, weft_val x)
{
    struct wf_set sets[] = {WF_SET_FLOAT("alpha", wf_grad_float(r, "alpha"))};

    return wf_build(r->g, op_id, 2, (weft_val[]){dy, x}, 1, sets);
}

static weft_val clip_grad(struct wf_grad *r, weft_val dy, weft_val x)
{
    struct wf_set sets[] = {WF_SET_FLOAT("min", wf_grad_float(r, "min")),
                            WF_SET_FLOAT("max", wf_grad_float(r, "max"))};

    return wf_build(r->g, WF_OP_clip_grad, 2, (weft_val[]){dy, x}, 2, sets);
}

RULE(leaky_relu, with_alpha(r, WF_OP_leaky_relu_grad, dy, x))
RULE(elu, with_alpha(r, WF_OP_elu_grad, dy, y))
RULE(clip, clip_grad(r, dy, x))

/* ---- fused gradients ------------------------------------------------------------------------- */

/* RULE2(name, for dy, for x), in terms of gr (arriving here), dy and x (y where the op takes y). */
#define RULE2(name, d_dy, d_x)                                 \
    weft_status wf_grad_##name##_grad(struct wf_grad *r)       \
    {                                                          \
        weft_graph *g = r->g;                                  \
        weft_val dy = r->in[0], x = r->in[1], gr = r->dout[0]; \
                                                               \
        (void)dy;                                              \
        if (r->need[0])                                        \
            r->din[0] = d_dy;                                  \
        if (r->need[1])                                        \
            r->din[1] = d_x;                                   \
        return g->st;                                          \
    }
#define SAME(name) wf_binary(g, WF_OP_##name##_grad, gr, x)

static weft_val sigmoid(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_sigmoid, x);
}

/* g dy where y <= 0: there elu' = y + alpha. */
static weft_val elu_curve(weft_graph *g, weft_val gr, weft_val dy, weft_val y)
{
    weft_val zero;

    if (g->st)
        return WEFT_NIL;
    zero = wf_const_like(g, 0, y);
    return where(g, wf_binary(g, WF_OP_gt, y, zero), zero, mul(g, gr, dy));
}

/* phi(x) (2 - x^2). */
static weft_val gelu_curve(weft_graph *g, weft_val x)
{
    weft_val x2 = wf_unary(g, WF_OP_square, x);
    weft_val density = scale(g, 0.39894228040143267794, wf_unary(g, WF_OP_exp, scale(g, -0.5, x2)));

    return mul(g, density, shift(g, 2, wf_unary(g, WF_OP_neg, x2)));
}

/* With t = tanh(u), u = k (x + a x^3): (1 - t^2) (u' + x/2 (u'' - 2 t u'^2)). */
static weft_val gelu_tanh_curve(weft_graph *g, weft_val x)
{
    const double k = 0.79788456080286535588, a = 0.044715;
    weft_val x2 = wf_unary(g, WF_OP_square, x);
    weft_val u = mul(g, x, shift(g, k, scale(g, k * a, x2))), t = wf_unary(g, WF_OP_tanh, u);
    weft_val u1 = shift(g, k, scale(g, 3 * k * a, x2)), u2 = scale(g, 6 * k * a, x);
    weft_val inner = sub(g, u2, scale(g, 2, mul(g, t, wf_unary(g, WF_OP_square, u1))));
    weft_val slope = shift(g, 1, wf_unary(g, WF_OP_neg, wf_unary(g, WF_OP_square, t)));

    return mul(g, slope, add(g, u1, scale(g, 0.5, mul(g, x, inner))));
}

/* With s = sigmoid(x): s (1 - s) (2 + x (1 - 2 s)). */
static weft_val silu_curve(weft_graph *g, weft_val x)
{
    weft_val s = sigmoid(g, x), p = sub(g, s, wf_unary(g, WF_OP_square, s));

    return mul(g, p, shift(g, 2, mul(g, x, shift(g, 1, scale(g, -2, s)))));
}

/* With t = tanh(softplus(x)), s = sigmoid(x): (1 - t^2) s (2 + x (1 - s - 2 t s)). */
static weft_val mish_curve(weft_graph *g, weft_val x)
{
    weft_val s = sigmoid(g, x), t = wf_unary(g, WF_OP_tanh, wf_unary(g, WF_OP_softplus, x));
    weft_val slope = mul(g, s, shift(g, 1, wf_unary(g, WF_OP_neg, wf_unary(g, WF_OP_square, t))));
    weft_val inner = sub(g, shift(g, 1, wf_unary(g, WF_OP_neg, s)), scale(g, 2, mul(g, t, s)));

    return mul(g, slope, shift(g, 2, mul(g, x, inner)));
}

/* -2 sign(x) / (1 + |x|)^3. */
static weft_val softsign_curve(weft_graph *g, weft_val x)
{
    weft_val d = shift(g, 1, wf_unary(g, WF_OP_abs, x));

    return wf_binary(g, WF_OP_div, scale(g, -2, wf_unary(g, WF_OP_sign, x)),
                     mul(g, d, wf_unary(g, WF_OP_square, d)));
}

RULE2(tanh, SAME(tanh), scale(g, -2, mul(g, mul(g, gr, dy), x)))
RULE2(sigmoid, SAME(sigmoid), mul(g, mul(g, gr, dy), shift(g, 1, scale(g, -2, x))))
RULE2(relu, SAME(relu), WEFT_NIL)
RULE2(relu6, SAME(relu6), WEFT_NIL)
RULE2(leaky_relu, with_alpha(r, WF_OP_leaky_relu_grad, gr, x), WEFT_NIL)
RULE2(clip, clip_grad(r, gr, x), WEFT_NIL)
RULE2(hard_sigmoid, SAME(hard_sigmoid), WEFT_NIL)
/* f'' is 1/3 between -3 and 3. */
RULE2(hard_swish, SAME(hard_swish),
      wf_binary(g, WF_OP_hard_sigmoid_grad, scale(g, 2, mul(g, gr, dy)), x))
RULE2(elu, with_alpha(r, WF_OP_elu_grad, gr, x), elu_curve(g, gr, dy, x))
RULE2(selu, SAME(selu), elu_curve(g, gr, dy, x))
RULE2(gelu, SAME(gelu), mul(g, mul(g, gr, dy), gelu_curve(g, x)))
RULE2(gelu_tanh, SAME(gelu_tanh), mul(g, mul(g, gr, dy), gelu_tanh_curve(g, x)))
RULE2(silu, SAME(silu), mul(g, mul(g, gr, dy), silu_curve(g, x)))
RULE2(mish, SAME(mish), mul(g, mul(g, gr, dy), mish_curve(g, x)))
RULE2(softplus, SAME(softplus), wf_binary(g, WF_OP_sigmoid_grad, mul(g, gr, dy), sigmoid(g, x)))
RULE2(softsign, SAME(softsign), mul(g, mul(g, gr, dy), softsign_curve(g, x)))

/* ---- binary ---------------------------------------------------------------------------------- */

/* BINARY_RULE(name, for a, for b): in terms of a, b, y, dy; each is summed to its operand's shape. */
#define BINARY_RULE(name, d_a, d_b)                                          \
    weft_status wf_grad_##name(struct wf_grad *r)                            \
    {                                                                        \
        weft_graph *g = r->g;                                                \
        weft_val a = r->in[0], b = r->in[1], y = r->out[0], dy = r->dout[0]; \
                                                                             \
        (void)y;                                                             \
        if (r->need[0])                                                      \
            r->din[0] = wf_reduce_to_like(g, d_a, a);                        \
        if (r->need[1])                                                      \
            r->din[1] = wf_reduce_to_like(g, d_b, b);                        \
        return g->st;                                                        \
    }

BINARY_RULE(add, dy, dy)
BINARY_RULE(sub, dy, wf_unary(g, WF_OP_neg, dy))
BINARY_RULE(mul, mul(g, dy, b), mul(g, dy, a))
BINARY_RULE(div, wf_binary(g, WF_OP_div, dy, b),
            wf_unary(g, WF_OP_neg, mul(g, dy, wf_binary(g, WF_OP_div, y, b))))
BINARY_RULE(mod, dy,
            wf_unary(g, WF_OP_neg,
                     mul(g, dy, wf_unary(g, WF_OP_floor, wf_binary(g, WF_OP_div, a, b)))))

/* A tie's gradient goes to the first operand, as in TensorFlow. */
BINARY_RULE(min, zero_where_not(g, wf_binary(g, WF_OP_le, a, b), dy),
            zero_where_not(g, wf_binary(g, WF_OP_gt, a, b), dy))
BINARY_RULE(max, zero_where_not(g, wf_binary(g, WF_OP_ge, a, b), dy),
            zero_where_not(g, wf_binary(g, WF_OP_lt, a, b), dy))
BINARY_RULE(prelu, where(g, wf_binary(g, WF_OP_gt, a, wf_const_like(g, 0, a)), dy, mul(g, dy, b)),
            mul(g, dy, wf_binary(g, WF_OP_min, a, wf_const_like(g, 0, a))))

/* b a^(b-1), and 0 where b is 0 (not 0 * infinity at a = 0). */
static weft_val pow_slope(weft_graph *g, weft_val a, weft_val b)
{
    weft_val zero = wf_const_like(g, 0, b);
    weft_val s = mul(g, b, wf_binary(g, WF_OP_pow, a, shift(g, -1, b)));

    return zero_where_not(g, wf_binary(g, WF_OP_ne, b, zero), s);
}

/* ln a, and 0 where a is not positive. */
static weft_val log_or_zero(weft_graph *g, weft_val a)
{
    weft_val positive = wf_binary(g, WF_OP_gt, a, wf_const_like(g, 0, a));

    return zero_where_not(g, positive,
                          wf_unary(g, WF_OP_log, where(g, positive, a, wf_const_like(g, 1, a))));
}

BINARY_RULE(pow, mul(g, dy, pow_slope(g, a, b)), mul(g, dy, mul(g, y, log_or_zero(g, a))))

/* ---- the rest -------------------------------------------------------------------------------- */

weft_status wf_grad_where(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val cond = r->in[0], dy = r->dout[0], zero = wf_const_like(g, 0, dy);

    if (r->need[1])
        r->din[1] = wf_reduce_to_like(g, where(g, cond, dy, zero), r->in[1]);
    if (r->need[2])
        r->din[2] = wf_reduce_to_like(g, where(g, cond, zero, dy), r->in[2]);
    return g->st;
}

weft_status wf_grad_cast(struct wf_grad *r)
{
    weft_dtype from = wf_val_type_of(r->g, r->in[0])->dtype;
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", from)};

    if (wf_is_float(from) && wf_is_float(wf_val_type_of(r->g, r->dout[0])->dtype))
        r->din[0] = wf_build(r->g, WF_OP_cast, 1, r->dout, 1, sets);
    return r->g->st;
}

weft_status wf_grad_add_n(struct wf_grad *r)
{
    for (int i = 0; i < r->n_in; i++)
        r->din[i] = r->dout[0];
    return r->g->st;
}
