/* build_ew.c - builders of element-wise ops. */
#include "graph/graph.h"
#include "weft/ops_ew.h"

#define UNARY(name)                                 \
    weft_val weft_##name(weft_graph *g, weft_val x) \
    {                                               \
        return wf_unary(g, WF_OP_##name, x);        \
    }
#define BINARY(name)                                            \
    weft_val weft_##name(weft_graph *g, weft_val a, weft_val b) \
    {                                                           \
        return wf_binary(g, WF_OP_##name, a, b);                \
    }

UNARY(neg)
UNARY(abs)
UNARY(sign)
UNARY(square)
UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log1p)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(reciprocal)
UNARY(sin)
UNARY(cos)
UNARY(erf)
UNARY(floor)
UNARY(ceil)
UNARY(round)
UNARY(logical_not)
UNARY(is_finite)
UNARY(tanh)
UNARY(sigmoid)
UNARY(relu)
UNARY(relu6)
UNARY(selu)
UNARY(silu)
UNARY(mish)
UNARY(softplus)
UNARY(softsign)
UNARY(hard_sigmoid)
UNARY(hard_swish)

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(pow)
BINARY(mod)
BINARY(min)
BINARY(max)
BINARY(eq)
BINARY(ne)
BINARY(lt)
BINARY(le)
BINARY(gt)
BINARY(ge)
BINARY(logical_and)
BINARY(logical_or)
BINARY(logical_xor)
BINARY(prelu)

weft_val weft_clip(weft_graph *g, weft_val x, double min, double max)
{
    struct wf_set sets[] = {WF_SET_FLOAT("min", min), WF_SET_FLOAT("max", max)};

    return wf_build(g, WF_OP_clip, 1, &x, 2, sets);
}

weft_val weft_cast(weft_graph *g, weft_val x, weft_dtype dtype)
{
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", dtype)};

    return wf_build(g, WF_OP_cast, 1, &x, 1, sets);
}

static weft_val with_alpha(weft_graph *g, int op_id, weft_val x, double alpha, double preset)
{
    struct wf_set sets[] = {WF_SET_FLOAT("alpha", alpha == 0           ? preset
                                                  : alpha == WEFT_ZERO ? 0
                                                                       : alpha)};

    return wf_build(g, op_id, 1, &x, 1, sets);
}

weft_val weft_leaky_relu(weft_graph *g, weft_val x, const weft_leaky_relu_opts *opts)
{
    weft_leaky_relu_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_leaky_relu_opts"))
        return WEFT_NIL;
    return with_alpha(g, WF_OP_leaky_relu, x, o.alpha, 0.2);
}

weft_val weft_elu(weft_graph *g, weft_val x, const weft_elu_opts *opts)
{
    weft_elu_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_elu_opts"))
        return WEFT_NIL;
    return with_alpha(g, WF_OP_elu, x, o.alpha, 1);
}

weft_val weft_gelu(weft_graph *g, weft_val x, const weft_gelu_opts *opts)
{
    weft_gelu_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_gelu_opts"))
        return WEFT_NIL;
    return wf_unary(g, o.approximate ? WF_OP_gelu_tanh : WF_OP_gelu, x);
}

weft_val weft_where(weft_graph *g, weft_val cond, weft_val a, weft_val b)
{
    return wf_build(g, WF_OP_where, 3, (weft_val[]){cond, a, b}, 0, NULL);
}

weft_val weft_add_n(weft_graph *g, int n, const weft_val *x)
{
    return wf_build(g, WF_OP_add_n, n, x, 0, NULL);
}
