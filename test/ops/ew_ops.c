/* ew_ops.c - element-wise ops: rows for every op; shapes odd, empty, scalar, broadcast and large;
 * values at the edges against numbers from NumPy and Keras. */
#include <math.h>

#include "ops/harness.h"
#include "weft/ops_ew.h"

/* An op over a vector, an odd matrix, a scalar, an empty one and one of several tiles. */
#define UNARY(op_, lo, hi, ...)                                                               \
    {.op = op_, .impl = "program", .n_in = 1, .in = {SMOOTH(lo, hi, 3, 7)}, __VA_ARGS__},     \
        {.op = op_, .impl = "program", .n_in = 1, .in = {SMOOTH(lo, hi)}, __VA_ARGS__},       \
        {.op = op_, .impl = "program", .n_in = 1, .in = {SMOOTH(lo, hi, 0, 4)}, __VA_ARGS__}, \
        {.op = op_, .impl = "program", .n_in = 1, .in = {SMOOTH(lo, hi, 1)}, __VA_ARGS__},    \
    {                                                                                         \
        .op = op_, .impl = "program", .n_in = 1, .in = {SMOOTH(lo, hi, 3, 5503)}, __VA_ARGS__ \
    }

#define FUSED(op_, lo, hi, ...)                                           \
    {.op = op_,                                                           \
     .impl = "program",                                                   \
     .n_in = 2,                                                           \
     .in = {F32(-1, 1, 3, 7), SMOOTH(lo, hi, 3, 7)},                      \
     __VA_ARGS__},                                                        \
    {                                                                     \
        .op = op_, .impl = "program", .n_in = 2,                          \
        .in = {F32(-1, 1, 2, 8209), SMOOTH(lo, hi, 2, 8209)}, __VA_ARGS__ \
    }

/* Every way to broadcast: same, scalars, row vectors, columns, both ways, leading axes, empty. */
#define BINARY(op_, alo, ahi, blo, bhi, ...)                                                    \
    {.op = op_,                                                                                 \
     .impl = "program",                                                                         \
     .n_in = 2,                                                                                 \
     .in = {F32(alo, ahi, 4, 9), F32(blo, bhi, 4, 9)},                                          \
     __VA_ARGS__},                                                                              \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi), F32(blo, bhi)},                                                  \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi, 4, 9), F32(blo, bhi)},                                            \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi), F32(blo, bhi, 4, 9)},                                            \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi, 2, 4, 9), F32(blo, bhi, 9)},                                      \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi, 9), F32(blo, bhi, 2, 4, 9)},                                      \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi, 2, 4, 9), F32(blo, bhi, 4, 1)},                                   \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .impl = "program",                                                                     \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi, 5, 1, 3), F32(blo, bhi, 4, 1)},                                   \
         __VA_ARGS__},                                                                          \
        {.op = op_,                                                                             \
         .n_in = 2,                                                                             \
         .in = {F32(alo, ahi, 2, 1, 3, 1, 2), F32(blo, bhi, 2, 4, 1, 3, 2)},                    \
         __VA_ARGS__},                                                                          \
    {                                                                                           \
        .op = op_, .impl = "program", .n_in = 2, .in = {F32(alo, ahi, 0, 3), F32(blo, bhi, 3)}, \
        __VA_ARGS__                                                                             \
    }

/* Several tiles. */
#define LARGE(op_, alo, ahi, blo, bhi, ...)                              \
    {.op = op_,                                                          \
     .impl = "program",                                                  \
     .n_in = 2,                                                          \
     .in = {F32(alo, ahi, 127, 131), F32(blo, bhi, 127, 131)},           \
     __VA_ARGS__},                                                       \
        {.op = op_,                                                      \
         .impl = "program",                                              \
         .n_in = 2,                                                      \
         .in = {F32(alo, ahi, 127, 131), F32(blo, bhi, 131)},            \
         __VA_ARGS__},                                                   \
        {.op = op_,                                                      \
         .n_in = 2,                                                      \
         .in = {F32(alo, ahi, 127, 131), F32(blo, bhi, 127, 1)},         \
         __VA_ARGS__},                                                   \
        {.op = op_,                                                      \
         .impl = "program",                                              \
         .n_in = 2,                                                      \
         .in = {F32(alo, ahi, 1), F32(blo, bhi, 127, 131)},              \
         __VA_ARGS__},                                                   \
    {                                                                    \
        .op = op_, .impl = "program", .n_in = 2,                         \
        .in = {F32(alo, ahi, 3, 5923), F32(blo, bhi, 5923)}, __VA_ARGS__ \
    }

#define GIVEN(n, ...) DATA(WEFT_F32, ((double[]){__VA_ARGS__}), n)
#define WANT(n, ...) .want = (double[]){__VA_ARGS__}, .n_want = n
#define EDGE(op_, flags_, n, given, ...)                                                  \
    {                                                                                     \
        .op = op_, .n_in = 1, .in = {given}, .flags = OP_NO_GRAD | OP_NO_HALF | (flags_), \
        WANT(n, __VA_ARGS__)                                                              \
    }
#define INTS(op_, dtype, ...)                                                       \
    {                                                                               \
        .op = op_, .n_in = 2, .in = {IDS(dtype, -9, 9, 3, 5), IDS(dtype, 1, 9, 5)}, \
        .flags = OP_EXACT, __VA_ARGS__                                              \
    }

static weft_val build_leaky(weft_graph *g, const weft_val *in)
{
    return weft_leaky_relu(g, in[0], WEFT_OPTS(weft_leaky_relu_opts, .alpha = WEFT_ZERO));
}

static weft_val build_leaky_default(weft_graph *g, const weft_val *in)
{
    return weft_leaky_relu(g, in[0], NULL);
}

static weft_val build_elu(weft_graph *g, const weft_val *in)
{
    return weft_elu(g, in[0], WEFT_OPTS(weft_elu_opts, .alpha = 0.5));
}

static weft_val build_gelu(weft_graph *g, const weft_val *in)
{
    return weft_gelu(g, in[0], WEFT_OPTS(weft_gelu_opts, .approximate = true));
}

static weft_val build_old_opts(weft_graph *g, const weft_val *in)
{
    weft_elu_opts o = {.size = 3};

    return weft_elu(g, in[0], &o);
}

static weft_val build_clip(weft_graph *g, const weft_val *in)
{
    return weft_clip(g, in[0], -0.75, 1.25);
}

/* The same operand twice: gradients add up. */
static weft_val build_twice(weft_graph *g, const weft_val *in)
{
    return weft_mul(g, in[0], weft_pow(g, in[0], in[0]));
}

static weft_val build_cast_f64(weft_graph *g, const weft_val *in)
{
    return weft_cast(g, weft_square(g, in[0]), WEFT_F64);
}

static weft_val build_add_n(weft_graph *g, const weft_val *in)
{
    return weft_add_n(g, 5, (weft_val[]){in[0], in[1], in[2], in[0], in[1]});
}

static const struct op_case cases[] = {
    UNARY("neg", -2, 2),
    UNARY("abs", -2, 2),
    UNARY("sign", -2, 2),
    UNARY("square", -2, 2),
    UNARY("exp", -3, 3),
    UNARY("expm1", -3, 3),
    UNARY("log", 0.1, 9),
    UNARY("log1p", -0.6, 9),
    UNARY("sqrt", 0.1, 9),
    UNARY("rsqrt", 0.1, 9),
    UNARY("reciprocal", 0.2, 9),
    UNARY("sin", -9, 9),
    UNARY("cos", -9, 9),
    UNARY("erf", -3, 3),
    UNARY("floor", -9, 9),
    UNARY("ceil", -9, 9),
    UNARY("round", -9, 9),
    UNARY("is_finite", -9, 9),
    UNARY("tanh", -4, 4),
    UNARY("sigmoid", -6, 6),
    UNARY("relu", -3, 3),
    UNARY("relu6", -3, 9),
    UNARY("leaky_relu", -3, 3),
    UNARY("leaky_relu", -3, 3, .attrs = "alpha=0.01"),
    UNARY("elu", -3, 3),
    UNARY("elu", -3, 3, .attrs = "alpha=0.3"),
    UNARY("selu", -3, 3),
    UNARY("gelu", -4, 4),
    UNARY("gelu_tanh", -4, 4),
    UNARY("silu", -6, 6),
    UNARY("mish", -6, 6),
    UNARY("softplus", -6, 6),
    UNARY("softsign", -6, 6),
    UNARY("hard_sigmoid", -5, 5),
    UNARY("hard_swish", -5, 5),
    UNARY("clip", -5, 5, .attrs = "min=-1 max=2"),
    UNARY("clip", -5, 5, .attrs = "max=2"),

    FUSED("tanh_grad", -1, 1),
    FUSED("sigmoid_grad", 0, 1),
    FUSED("relu_grad", -1, 1),
    FUSED("relu6_grad", -1, 8),
    FUSED("leaky_relu_grad", -1, 1, .attrs = "alpha=0.1"),
    FUSED("elu_grad", -2, 2, .attrs = "alpha=0.7"),
    FUSED("selu_grad", -2, 2),
    FUSED("gelu_grad", -4, 4),
    FUSED("gelu_tanh_grad", -4, 4),
    FUSED("silu_grad", -6, 6),
    FUSED("mish_grad", -6, 6),
    FUSED("softplus_grad", -6, 6),
    FUSED("softsign_grad", -6, 6),
    FUSED("hard_sigmoid_grad", -5, 5),
    FUSED("hard_swish_grad", -5, 5),
    FUSED("clip_grad", -5, 5, .attrs = "min=-1 max=2"),

    BINARY("add", -2, 2, -2, 2),
    LARGE("add", -2, 2, -2, 2),
    BINARY("sub", -2, 2, -2, 2),
    LARGE("sub", -2, 2, -2, 2),
    BINARY("mul", -2, 2, -2, 2),
    LARGE("mul", -2, 2, -2, 2),
    BINARY("div", -2, 2, 0.5, 2),
    LARGE("div", -2, 2, 0.5, 2),
    BINARY("pow", 0.5, 2, -2, 2),
    LARGE("pow", 0.5, 2, -2, 2),
    BINARY("mod", 0.1, 0.9, 1, 2),
    LARGE("mod", 0.1, 0.9, 1, 2),
    BINARY("min", -2, 2, -2, 2),
    LARGE("min", -2, 2, -2, 2, .flags = OP_NO_GRAD),
    BINARY("max", -2, 2, -2, 2),
    LARGE("max", -2, 2, -2, 2, .flags = OP_NO_GRAD),
    BINARY("eq", -2, 2, -2, 2),
    LARGE("eq", -2, 2, -2, 2),
    BINARY("ne", -2, 2, -2, 2),
    LARGE("ne", -2, 2, -2, 2),
    BINARY("lt", -2, 2, -2, 2),
    LARGE("lt", -2, 2, -2, 2),
    BINARY("le", -2, 2, -2, 2),
    LARGE("le", -2, 2, -2, 2),
    BINARY("gt", -2, 2, -2, 2),
    LARGE("gt", -2, 2, -2, 2),
    BINARY("ge", -2, 2, -2, 2),
    LARGE("ge", -2, 2, -2, 2),
    {.op = "prelu", .n_in = 2, .in = {SMOOTH(-2, 2, 4, 9), F32(-1, 1, 9)}},
    {.op = "prelu", .n_in = 2, .in = {SMOOTH(-2, 2, 4, 9), F32(-1, 1, 4, 9)}},
    {.op = "prelu", .n_in = 2, .in = {SMOOTH(-2, 2, 3, 4, 9), F32(-1, 1, 4, 1)}},
    {.op = "prelu", .n_in = 2, .in = {SMOOTH(-2, 2, 200, 211), F32(-1, 1, 211)}},
    {.op = "prelu",
     .n_in = 2,
     .in = {F32(-2, 2, 9), F32(-1, 1, 4, 9)},
     .fails = WEFT_ESHAPE,
     .text = "slope"},
    {.op = "prelu",
     .n_in = 2,
     .in = {F32(-2, 2, 1, 9), F32(-1, 1, 4, 9)},
     .fails = WEFT_ESHAPE,
     .text = "axis 0"},

    {.op = "where", .n_in = 3, .in = {BOOLS(4, 9), F32(-1, 1, 4, 9), F32(-1, 1, 4, 9)}},
    {.op = "where", .n_in = 3, .in = {BOOLS(4, 1), F32(-1, 1, 9), F32(-1, 1)}},
    {.op = "where", .n_in = 3, .in = {BOOLS(), F32(-1, 1, 3, 9), F32(-1, 1, 9)}},
    {.op = "where", .n_in = 3, .in = {BOOLS(2, 1, 3), F32(-1, 1, 5, 1), F32(-1, 1, 2, 5, 3)}},
    {.op = "where", .n_in = 3, .in = {BOOLS(0, 9), F32(-1, 1, 9), F32(-1, 1)}},
    {.op = "where", .n_in = 3, .in = {BOOLS(211, 200), F32(-1, 1, 211, 200), F32(-1, 1, 211, 200)}},
    {.op = "where", .n_in = 3, .in = {BOOLS(211, 200), F32(-1, 1, 211, 200), F32(-1, 1)}},
    {.op = "where",
     .n_in = 3,
     .in = {BOOLS(6), IDS(I64, -9, 9, 6), IDS(I64, -9, 9, 6)},
     .flags = OP_EXACT},
    {.op = "where",
     .n_in = 3,
     .in = {F32(0, 1, 6), F32(-1, 1, 6), F32(-1, 1, 6)},
     .fails = WEFT_EDTYPE},
    {.op = "where",
     .n_in = 3,
     .in = {BOOLS(6), F32(-1, 1, 6), IDS(I32, 0, 1, 6)},
     .fails = WEFT_EDTYPE},

    {.op = "logical_and", .n_in = 2, .in = {BOOLS(4, 9), BOOLS(9)}, .flags = OP_EXACT},
    {.op = "logical_or", .n_in = 2, .in = {BOOLS(4, 1), BOOLS(9)}, .flags = OP_EXACT},
    {.op = "logical_xor", .n_in = 2, .in = {BOOLS(40000), BOOLS(40000)}, .flags = OP_EXACT},
    {.op = "logical_not", .n_in = 1, .in = {BOOLS(4, 9)}, .flags = OP_EXACT},
    {.op = "logical_and",
     .n_in = 2,
     .in = {F32(0, 1, 3), F32(0, 1, 3)},
     .fails = WEFT_EDTYPE,
     .text = "bool"},

    {.build = build_add_n,
     .name = "add_n",
     .n_in = 3,
     .in = {F32(-1, 1, 3, 5), F32(-1, 1, 3, 5), F32(-1, 1, 3, 5)}},
    {.build = build_add_n,
     .name = "add_n",
     .n_in = 3,
     .in = {F32(-1, 1, 40001), F32(-1, 1, 40001), F32(-1, 1, 40001)}},
    {.op = "add_n", .n_in = 1, .in = {F32(-1, 1, 3, 5)}},
    {.op = "add_n",
     .n_in = 3,
     .in = {IDS(I32, -9, 9, 7), IDS(I32, -9, 9, 7), IDS(I32, -9, 9, 7)},
     .flags = OP_EXACT},
    {.op = "add_n",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 5), F32(-1, 1, 5)},
     .fails = WEFT_ESHAPE,
     .text = "rank"},
    {.op = "add_n", .n_in = 2, .in = {F32(-1, 1, 3), F32(-1, 1, 5)}, .fails = WEFT_ESHAPE},

    {.build = build_leaky,
     .name = "weft_leaky_relu zero",
     .n_in = 1,
     .in = {GIVEN(2, -1, 2)},
     WANT(2, 0, 2)},
    {.build = build_leaky_default,
     .name = "weft_leaky_relu",
     .n_in = 1,
     .in = {GIVEN(2, -1, 2)},
     WANT(2, -0.2, 2)},
    {.build = build_elu,
     .name = "weft_elu",
     .n_in = 1,
     .in = {GIVEN(2, -1, 2)},
     WANT(2, -0.31606028, 2)},
    {.build = build_gelu,
     .name = "weft_gelu tanh",
     .n_in = 1,
     .in = {GIVEN(2, -1, 2)},
     WANT(2, -0.15880801, 1.9545977)},
    {.build = build_old_opts,
     .name = "weft_elu",
     .n_in = 1,
     .in = {GIVEN(2, -1, 2)},
     .fails = WEFT_EINVAL},
    {.build = build_clip,
     .name = "weft_clip",
     .n_in = 1,
     .in = {GIVEN(3, -1, 1, 2)},
     WANT(3, -0.75, 1, 1.25)},
    {.build = build_twice, .name = "x x^x", .n_in = 1, .in = {F32(0.5, 2, 3, 3)}},
    {.build = build_cast_f64,
     .name = "cast f64",
     .n_in = 1,
     .in = {F32(-2, 2, 3, 3)},
     .flags = OP_NO_FAST_GRAD},

    /* integers */
    INTS("add", I32),
    INTS("sub", I8),
    INTS("mul", I64),
    INTS("mod", I32),
    INTS("min", I64),
    INTS("max", I8),
    INTS("eq", I32),
    INTS("lt", I64),
    INTS("ge", I8),
    {.op = "neg", .n_in = 1, .in = {IDS(I32, -9, 9, 7)}, .flags = OP_EXACT},
    {.op = "abs", .n_in = 1, .in = {IDS(I64, -9, 9, 7)}, .flags = OP_EXACT},
    {.op = "sign", .n_in = 1, .in = {IDS(I8, -2, 2, 7)}, .flags = OP_EXACT},
    {.op = "square", .n_in = 1, .in = {IDS(I32, -9, 9, 7)}, .flags = OP_EXACT},
    {.op = "clip",
     .attrs = "min=-3 max=4",
     .n_in = 1,
     .in = {IDS(I32, -9, 9, 7)},
     .flags = OP_EXACT},
    {.op = "mod",
     .n_in = 2,
     .in = {DATA(WEFT_I32, ((double[]){7, -7, 7, -7}), 4),
            DATA(WEFT_I32, ((double[]){3, 3, -3, -3}), 4)},
     .flags = OP_EXACT,
     WANT(4, 1, 2, -2, -1)},
    {.op = "mod",
     .n_in = 2,
     .in = {IDS(I32, 1, 9, 3), DATA(WEFT_I32, ((double[]){3, 0, 1}), 3)},
     .fails = WEFT_EDATA,
     .text = "element 1"},
    {.op = "add",
     .n_in = 2,
     .in = {DATA(WEFT_U8, ((double[]){250}), 1), DATA(WEFT_U8, ((double[]){10}), 1)},
     .flags = OP_EXACT,
     WANT(1, 4)},
    {.op = "div",
     .n_in = 2,
     .in = {IDS(I32, 1, 9, 3), IDS(I32, 1, 9, 3)},
     .fails = WEFT_EDTYPE,
     .text = "float"},
    {.op = "add", .n_in = 2, .in = {BOOLS(3), BOOLS(3)}, .fails = WEFT_EDTYPE},
    {.op = "add",
     .n_in = 2,
     .in = {F32(0, 1, 3), IDS(I32, 0, 1, 3)},
     .fails = WEFT_EDTYPE,
     .text = "same type"},
    {.op = "add",
     .n_in = 2,
     .in = {F32(-1, 1, 3), F32(-1, 1, 4)},
     .fails = WEFT_ESHAPE,
     .text = "broadcast"},
    {.op = "exp", .n_in = 1, .in = {IDS(I32, 0, 3, 3)}, .fails = WEFT_EDTYPE},
    {.op = "clip",
     .attrs = "min=2 max=1",
     .n_in = 1,
     .in = {F32(0, 1, 3)},
     .fails = WEFT_EINVAL,
     .text = "above"},
    {.op = "gelu_grad", .n_in = 2, .in = {F32(-1, 1, 3), F32(-1, 1, 4)}, .fails = WEFT_ESHAPE},

    /* values at the edges */
    EDGE("round", 0, 6, GIVEN(6, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5), -2, -2, 0, 0, 2, 2),
    EDGE("sign", 0, 5, GIVEN(5, -INFINITY, -0.1, 0, 3, NAN), -1, -1, 0, 1, NAN),
    EDGE("relu", 0, 4, GIVEN(4, -INFINITY, INFINITY, NAN, 0), 0, INFINITY, NAN, 0),
    EDGE("relu6", 0, 4, GIVEN(4, -1, 7, NAN, 6), 0, 6, NAN, 6),
    EDGE("exp", 0, 5, GIVEN(5, -INFINITY, INFINITY, NAN, 0, 1), 0, INFINITY, NAN, 1,
         2.7182818284590452),
    EDGE("log", 0, 4, GIVEN(4, 0, INFINITY, -1, 1), -INFINITY, INFINITY, NAN, 0),
    EDGE("sqrt", 0, 4, GIVEN(4, 0, INFINITY, -1, 4), 0, INFINITY, NAN, 2),
    EDGE("sigmoid", 0, 5, GIVEN(5, -INFINITY, INFINITY, NAN, 0, -80), 0, 1, NAN, 0.5,
         1.8048513e-35),
    EDGE("tanh", 0, 4, GIVEN(4, -INFINITY, INFINITY, NAN, 0.5), -1, 1, NAN, 0.46211716),
    EDGE("softplus", 0, 4, GIVEN(4, -100, 100, NAN, 0), 0, 100, NAN, 0.69314718),
    EDGE("is_finite", 0, 4, GIVEN(4, -INFINITY, 1, NAN, INFINITY), 0, 1, 0, 0),
    EDGE("clip", 0, 4, GIVEN(4, -INFINITY, 1, NAN, INFINITY), -INFINITY, 1, NAN, INFINITY),
    EDGE("gelu", 0, 4, GIVEN(4, -1, 0, 1, 20), -0.15865525, 0, 0.84134475, 20),
    EDGE("selu", 0, 3, GIVEN(3, -1, 0, 1), -1.1113307, 0, 1.050701),
    EDGE("silu", 0, 3, GIVEN(3, -1, 0, 1), -0.26894142, 0, 0.73105858),
    EDGE("mish", 0, 3, GIVEN(3, -1, 0, 1), -0.30340146, 0, 0.86509839),
    EDGE("hard_sigmoid", 0, 4, GIVEN(4, -4, -1.5, 0, 3), 0, 0.25, 0.5, 1),
    EDGE("hard_swish", 0, 4, GIVEN(4, -4, -1.5, 1, 3), 0, -0.375, 0.66666667, 3),
    {.op = "mod",
     .n_in = 2,
     .in = {GIVEN(4, 7.5, -7.5, 7.5, -7.5), GIVEN(4, 2, 2, -2, -2)},
     WANT(4, 1.5, 0.5, -0.5, -1.5),
     .flags = OP_NO_GRAD},
    {.op = "min",
     .n_in = 2,
     .in = {GIVEN(4, NAN, 1, 2, 3), GIVEN(4, 1, NAN, 1, 4)},
     WANT(4, NAN, NAN, 1, 3),
     .flags = OP_NO_GRAD},
    {.op = "max",
     .n_in = 2,
     .in = {GIVEN(4, NAN, 1, 2, 3), GIVEN(4, 1, NAN, 1, 4)},
     WANT(4, NAN, NAN, 2, 4),
     .flags = OP_NO_GRAD},
    {.op = "pow",
     .n_in = 2,
     .in = {GIVEN(4, 0, -2, -2, 4), GIVEN(4, 0, 2, 0.5, 0.5)},
     WANT(4, 1, 4, NAN, 2),
     .flags = OP_NO_GRAD},
    /* a tie: all to the first operand */
    {.build = NULL,
     .op = "ne",
     .n_in = 2,
     .in = {GIVEN(3, 1, NAN, 2), GIVEN(3, 1, NAN, 3)},
     WANT(3, 0, 1, 1)},

    /* casts */
    {.op = "cast",
     .attrs = "dtype=f32",
     .n_in = 1,
     .in = {IDS(I64, -9, 9, 30001)},
     .flags = OP_EXACT},
    {.op = "cast",
     .attrs = "dtype=f32",
     .n_in = 1,
     .in = {IDS(U8, 0, 255, 30001)},
     .flags = OP_EXACT},
    {.op = "cast",
     .attrs = "dtype=f32",
     .n_in = 1,
     .in = {IDS(I32, -9, 9, 3, 11)},
     .flags = OP_EXACT},
    {.op = "cast", .attrs = "dtype=f32", .n_in = 1, .in = {BOOLS(3, 11)}, .flags = OP_EXACT},
    {.op = "cast",
     .attrs = "dtype=f16",
     .n_in = 1,
     .in = {F32(-9, 9, 30001)},
     .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "cast",
     .attrs = "dtype=bf16",
     .n_in = 1,
     .in = {F32(-9, 9, 30001)},
     .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "cast",
     .attrs = "dtype=i32",
     .n_in = 1,
     .in = {GIVEN(6, -1.9, 1.9, NAN, 1e20, -1e20, 0)},
     .flags = OP_EXACT | OP_F32_ONLY,
     WANT(6, -1, 1, 0, 2147483647, -2147483648.0, 0)},
    {.op = "cast",
     .attrs = "dtype=u8",
     .n_in = 1,
     .in = {GIVEN(4, -1, 255.5, 256, 7)},
     .flags = OP_EXACT | OP_F32_ONLY,
     WANT(4, 0, 255, 255, 7)},
    {.op = "cast",
     .attrs = "dtype=i8",
     .n_in = 1,
     .in = {DATA(WEFT_I32, ((double[]){300, -129, 5}), 3)},
     .flags = OP_EXACT,
     WANT(3, 44, 127, 5)},
    {.op = "cast",
     .attrs = "dtype=bool",
     .n_in = 1,
     .in = {GIVEN(4, 0, 0.5, -1, NAN)},
     .flags = OP_EXACT,
     WANT(4, 0, 1, 1, 1)},
    {.op = "cast",
     .attrs = "dtype=f32",
     .n_in = 1,
     .in = {F32(-9, 9, 0)},
     .flags = OP_EXACT | OP_F32_ONLY},
};

int main(int argc, char **argv)
{
    return op_main(argc, argv, "element-wise ops", cases, OP_COUNT(cases));
}
