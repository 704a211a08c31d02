/* activation.c - activations by Keras' names, with their arguments: "relu", "leaky_relu(0.1)". */
#include <math.h>

#include "model/core.h"
#include "weft/ops.h"

typedef weft_val activation_fn(weft_graph *g, weft_val x, const struct wf_word_args *a);

static double number(const struct wf_word_args *a, const char *name)
{
    return wf_word_arg(a, name)->f;
}

/* An explicit zero where zero would mean the default. */
static double explicit_zero(double v)
{
    return v == 0 ? WEFT_ZERO : v;
}

#define PLAIN(name, expression)                                                         \
    static weft_val act_##name(weft_graph *g, weft_val x, const struct wf_word_args *a) \
    {                                                                                   \
        (void)a;                                                                        \
        return expression;                                                              \
    }

static weft_val act_linear(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    (void)g;
    (void)a;
    return x;
}

PLAIN(relu6, weft_relu6(g, x))
PLAIN(selu, weft_selu(g, x))
PLAIN(silu, weft_silu(g, x))
PLAIN(mish, weft_mish(g, x))
PLAIN(tanh, weft_tanh(g, x))
PLAIN(sigmoid, weft_sigmoid(g, x))
PLAIN(hard_sigmoid, weft_hard_sigmoid(g, x))
PLAIN(hard_silu, weft_hard_swish(g, x))
PLAIN(hard_tanh, weft_clip(g, x, -1, 1))
PLAIN(softplus, weft_softplus(g, x))
PLAIN(softsign, weft_softsign(g, x))
PLAIN(exponential, weft_exp(g, x))
PLAIN(tanh_shrink, weft_sub(g, x, weft_tanh(g, x)))
PLAIN(log_sigmoid, weft_neg(g, weft_softplus(g, weft_neg(g, x))))
/* min(max((x + 1) / 2, 0), 1) */
PLAIN(sparse_sigmoid,
      weft_clip(g, weft_mul(g, weft_add(g, x, wf_const_like(g, 1, x)), wf_const_like(g, 0.5, x)), 0,
                1))

static weft_val act_leaky_relu(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return weft_leaky_relu(
        g, x, WEFT_OPTS(weft_leaky_relu_opts, .alpha = explicit_zero(number(a, "negative_slope"))));
}

/* x above the threshold (at most max_value), slope * (x - threshold) below it. */
static weft_val act_relu(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    double slope = number(a, "negative_slope"), max = number(a, "max_value"),
           threshold = number(a, "threshold");
    weft_val y, below = WEFT_NIL;

    if (slope != 0 && threshold == 0 && isinf(max))
        return act_leaky_relu(g, x, a);
    if (slope != 0)
        below = weft_relu(g, threshold == 0 ? weft_neg(g, x)
                                            : weft_sub(g, wf_const_like(g, threshold, x), x));
    if (threshold != 0)
        y = weft_where(g, weft_gt(g, x, wf_const_like(g, threshold, x)), x, weft_zeros_like(g, x));
    else
        y = max == 6 ? weft_relu6(g, x) : weft_relu(g, x);
    if (!isinf(max) && !(threshold == 0 && max == 6))
        y = weft_clip(g, y, 0, max);
    return slope != 0 ? weft_sub(g, y, weft_mul(g, wf_const_like(g, slope, x), below)) : y;
}

static weft_val act_elu(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return weft_elu(g, x, WEFT_OPTS(weft_elu_opts, .alpha = explicit_zero(number(a, "alpha"))));
}

/* max(x, 0) + min(alpha (e^(x/alpha) - 1), 0) */
static weft_val act_celu(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    weft_val alpha = wf_const_like(g, number(a, "alpha"), x);

    return weft_mul(g, weft_elu(g, weft_div(g, x, alpha), NULL), alpha);
}

static weft_val act_gelu(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return weft_gelu(g, x,
                     WEFT_OPTS(weft_gelu_opts, .approximate = wf_word_arg(a, "approximate")->i));
}

static weft_val act_softmax(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return weft_softmax(g, x, (int)wf_word_arg(a, "axis")->i);
}

static weft_val act_log_softmax(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return weft_log_softmax(g, x, (int)wf_word_arg(a, "axis")->i);
}

static weft_val act_glu(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    weft_val half[2] = {WEFT_NIL, WEFT_NIL};

    weft_split(g, x, 2, (int)wf_word_arg(a, "axis")->i, half);
    return weft_mul(g, half[0], weft_sigmoid(g, half[1]));
}

static weft_val act_threshold(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return weft_where(g, weft_gt(g, x, wf_const_like(g, number(a, "threshold"), x)), x,
                      wf_const_like(g, number(a, "default_value"), x));
}

/* (x + sqrt(x² + b)) / 2 */
static weft_val act_squareplus(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    weft_val root =
        weft_sqrt(g, weft_add(g, weft_square(g, x), wf_const_like(g, number(a, "b"), x)));

    return weft_mul(g, weft_add(g, x, root), wf_const_like(g, 0.5, x));
}

static weft_val shrink(weft_graph *g, weft_val x, double threshold, double offset)
{
    weft_val t = wf_const_like(g, threshold, x), o = wf_const_like(g, offset, x);
    weft_val low =
        weft_where(g, weft_lt(g, x, weft_neg(g, t)), weft_add(g, x, o), weft_zeros_like(g, x));

    return weft_where(g, weft_gt(g, x, t), weft_sub(g, x, o), low);
}

static weft_val act_soft_shrink(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return shrink(g, x, number(a, "threshold"), number(a, "threshold"));
}

static weft_val act_hard_shrink(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    return shrink(g, x, number(a, "threshold"), 0);
}

/* 0 up to -1, (x + 1)² / 4 up to 1, then x. */
static weft_val act_sparse_plus(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    weft_val one = wf_const_like(g, 1, x);
    weft_val arc = weft_mul(g, weft_square(g, weft_add(g, x, one)), wf_const_like(g, 0.25, x));
    weft_val above = weft_where(g, weft_lt(g, x, one), arc, x);

    (void)a;
    return weft_where(g, weft_le(g, x, weft_neg(g, one)), weft_zeros_like(g, x), above);
}

/* max(x - tau, 0), with tau such that the result sums to 1: of the sorted elements, only those
 * above (cumsum - 1) / rank count. */
static weft_val act_sparsemax(weft_graph *g, weft_val x, const struct wf_word_args *a)
{
    int axis = (int)wf_word_arg(a, "axis")->i;
    weft_reduce_opts along = {.size = sizeof along, .n_axes = 1, .axes = {axis}, .keepdims = true};
    weft_val zero = weft_zeros_like(g, x), one = weft_ones_like(g, x);
    weft_val sorted = weft_sort(
        g, x, WEFT_OPTS(weft_sort_opts, .axis = axis ? axis : WEFT_ZERO, .descending = true));
    weft_val rank = weft_cumsum(g, one, axis, NULL);
    weft_val bound = weft_div(g, weft_sub(g, weft_cumsum(g, sorted, axis, NULL), one), rank);
    weft_val support = weft_gt(g, sorted, bound);
    weft_val n = weft_sum(g, weft_where(g, support, one, zero), &along);
    weft_val sum = weft_sum(g, weft_where(g, support, sorted, zero), &along);
    weft_val tau = weft_div(g, weft_sub(g, sum, wf_const_like(g, 1, sum)), n);

    return weft_relu(g, weft_sub(g, x, tau));
}

static const struct activation {
    struct wf_word word;
    activation_fn *build;
} activations[] = {
    {{"linear", ""}, act_linear},
    {{"relu", "negative_slope:f=0 max_value:f=inf threshold:f=0"}, act_relu},
    {{"relu6", ""}, act_relu6},
    {{"leaky_relu", "negative_slope:f=0.2"}, act_leaky_relu},
    {{"elu", "alpha:f=1"}, act_elu},
    {{"selu", ""}, act_selu},
    {{"celu", "alpha:f=1"}, act_celu},
    {{"gelu", "approximate:b=0"}, act_gelu},
    {{"silu", ""}, act_silu},
    {{"swish", ""}, act_silu},
    {{"mish", ""}, act_mish},
    {{"tanh", ""}, act_tanh},
    {{"sigmoid", ""}, act_sigmoid},
    {{"hard_sigmoid", ""}, act_hard_sigmoid},
    {{"hard_silu", ""}, act_hard_silu},
    {{"hard_swish", ""}, act_hard_silu},
    {{"hard_tanh", ""}, act_hard_tanh},
    {{"softmax", "axis:i=-1"}, act_softmax},
    {{"log_softmax", "axis:i=-1"}, act_log_softmax},
    {{"softplus", ""}, act_softplus},
    {{"softsign", ""}, act_softsign},
    {{"exponential", ""}, act_exponential},
    {{"glu", "axis:i=-1"}, act_glu},
    {{"threshold", "threshold:f default_value:f"}, act_threshold},
    {{"sparsemax", "axis:i=-1"}, act_sparsemax},
    {{"squareplus", "b:f=4"}, act_squareplus},
    {{"soft_shrink", "threshold:f=0.5"}, act_soft_shrink},
    {{"hard_shrink", "threshold:f=0.5"}, act_hard_shrink},
    {{"tanh_shrink", ""}, act_tanh_shrink},
    {{"log_sigmoid", ""}, act_log_sigmoid},
    {{"sparse_plus", ""}, act_sparse_plus},
    {{"sparse_sigmoid", ""}, act_sparse_sigmoid},
};
const struct wf_words wf_activations = {"activation", activations, sizeof activations[0],
                                        WF_COUNT(activations)};

weft_status wf_activation_build(weft_graph *g, const char *activation, weft_val x, weft_val *out)
{
    struct wf_word_args a;
    weft_status st = weft_graph_status(g);

    if (wf_word_none(activation) && !st) {
        *out = x;
        return WEFT_OK;
    }
    if (!st)
        st = wf_word_parse(&wf_activations, &g->arena, activation, &a);
    if (st)
        return st;
    *out = ((const struct activation *)a.row)->build(g, x, &a);
    return weft_graph_status(g);
}

weft_val weft_lc_activation(weft_layer_call *c, const char *activation, weft_val x)
{
    weft_val y = WEFT_NIL;
    weft_status st;

    if (c->st || c->b->g->st)
        return WEFT_NIL;
    st = wf_lc_failed(c, wf_activation_build(c->b->g, activation, x, &y));
    return st ? WEFT_NIL : y;
}
