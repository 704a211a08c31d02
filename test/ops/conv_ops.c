/* conv_ops.c - convolution, pooling, resizing: one row per op and shape. Wanted values come from
 * Keras 3. */
#include <math.h>

#include "ops/harness.h"
#include "weft/ops_conv.h"

/* clang-format off */
static double x40[] = {-5, 2,  -2, 5,  1,  -3, 4,  0,  -4, 3,  -1, -5, 2,  -2, 5, 1,  -3, 4, 0,  -4,
                       3,  -1, -5, 2,  -2, 5,  1,  -3, 4,  0,  -4, 3,  -1, -5, 2, -2, 5,  1, -3, 4};
static double w24[] = {-3, 2, 0, -2, 3, 1, -1, -3, 2, 0, -2, 3, 1, -1, -3, 2, 0, -2, 3, 1, -1, -3, 2, 0};

/* clang-format on */

static weft_val build_depthwise(weft_graph *g, const weft_val *in)
{
    return weft_depthwise_conv(g, in[0], in[1],
                               WEFT_OPTS(weft_conv_opts, .padding = WEFT_PAD_SAME));
}

static weft_val build_separable(weft_graph *g, const weft_val *in)
{
    return weft_separable_conv(g, in[0], in[1], in[2], WEFT_OPTS(weft_conv_opts, .strides = {2}));
}

static weft_val build_causal(weft_graph *g, const weft_val *in)
{
    return weft_conv(g, in[0], in[1],
                     WEFT_OPTS(weft_conv_opts, .padding = WEFT_PAD_CAUSAL, .dilations = {2}));
}

static weft_val build_transpose(weft_graph *g, const weft_val *in)
{
    return weft_conv_transpose(g, in[0], in[1],
                               WEFT_OPTS(weft_conv_transpose_opts, .strides = {2},
                                         .padding = WEFT_PAD_SAME, .output_padding = {1}));
}

static weft_val build_transpose_zero(weft_graph *g, const weft_val *in)
{
    return weft_conv_transpose(
        g, in[0], in[1],
        WEFT_OPTS(weft_conv_transpose_opts, .strides = {3}, .output_padding = {WEFT_ZERO}));
}

static weft_val build_max_pool(weft_graph *g, const weft_val *in)
{
    return weft_max_pool(g, in[0], NULL);
}

static weft_val build_avg_pool(weft_graph *g, const weft_val *in)
{
    return weft_avg_pool(
        g, in[0],
        WEFT_OPTS(weft_pool_opts, .window = {3, 2}, .strides = {2}, .padding = WEFT_PAD_SAME));
}

static weft_val build_global_max(weft_graph *g, const weft_val *in)
{
    return weft_global_max_pool(g, in[0], NULL);
}

static weft_val build_global_avg(weft_graph *g, const weft_val *in)
{
    return weft_global_avg_pool(g, in[0], WEFT_OPTS(weft_global_pool_opts, .keepdims = true));
}

static weft_val build_up(weft_graph *g, const weft_val *in)
{
    return weft_resize(g, in[0],
                       WEFT_OPTS(weft_resize_opts, .scale = {2}, .method = WEFT_RESIZE_BILINEAR));
}

#define BIG .flags = OP_NO_GRAD | OP_F32_ONLY /* differences for every element would take long */

/* clang-format off */
static const struct op_case cases[] = {
    /* values */
    {.op = "conv", .attrs = "strides=[2] padding=same", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 5, 4, 2), DATA(WEFT_F32, w24, 3, 2, 2, 2)},
     .want = (double[]){-31, 32, 3, -34, 20, 10, 15, 20, 28, -25, -34, 9}, .n_want = 12},
    {.op = "conv", .attrs = "groups=2", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 5, 4), DATA(WEFT_F32, w24, 2, 2, 2)},
     .want = (double[]){21, -10, -18, 22, 20, 10, -19, 20}, .n_want = 8},
    {.op = "conv_transpose", .attrs = "strides=[2,2] padding=same", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 2, 3, 1), DATA(WEFT_F32, w24, 3, 3, 2, 1)},
     .want = (double[]){15,  -10, 0,  10,  -21, -1, 0,  -4, 12, -2, 0, 4, 5,  15,  -10, 0,
                        8,   -21, 4,  0,   -2,  12, -4, 0,  -20, 15, 15, -20, 14, 15, -6, 2,
                        10,  -7,  6,  2,   -5,  -15, 10, 0, -11, 12, 2, 0, 1,  12,  -6,  0},
     .n_want = 48},
    {.op = "conv_transpose", .attrs = "strides=[3]", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 3, 1), DATA(WEFT_F32, w24, 2, 1, 1)},
     .want = (double[]){15, -10, 0, -6, 4, 0, 6, -4, 0}, .n_want = 9},
    {.build = build_transpose_zero, .name = "conv_transpose without output padding", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 3, 1), DATA(WEFT_F32, w24, 2, 1, 1)},
     .want = (double[]){15, -10, 0, -6, 4, 0, 6, -4}, .n_want = 8},
    {.build = build_transpose, .name = "conv_transpose same with output padding", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 3, 2), DATA(WEFT_F32, w24, 4, 1, 2)},
     .want = (double[]){-4, 3, -11, -10, -7}, .n_want = 5},
    {.op = "conv_transpose", .attrs = "strides=[2] output_padding=[1]", .n_in = 2,
     .in = {DATA(WEFT_F32, x40, 1, 3, 2), DATA(WEFT_F32, w24, 3, 1, 2)},
     .want = (double[]){19, -4, 3, -10, -10, 6, 0, 0}, .n_want = 8},
    {.build = build_depthwise, .name = "depthwise", .n_in = 2, .flags = OP_STATIC,
     .in = {DATA(WEFT_F32, x40, 1, 5, 3, 2), DATA(WEFT_F32, w24, 3, 2, 2, 2)},
     .want = (double[]){-8,  6,   -13, 16,  -2, 10, -2, 12, 2,   2,  -9,  -14, 8,  -27, -18, -15, 3,  -3, 23, -1,
                        -5,  8,   22,  -5,  -18, -10, -16, -17, 21, 3, -8, 19, -3, 8, -2, 24, 11, 7, 19, -8,
                        -27, -2,  -17, -16, -1, -14, -4, -2, 6,   2,  0,   20,  -18, -3, 4, -13, 23, -10, 0, -4},
     .n_want = 60},
    {.op = "max_pool", .attrs = "window=[3,2] strides=[2,2] padding=same", .n_in = 1, .flags = OP_NO_GRAD,
     .in = {DATA(WEFT_F32, x40, 1, 5, 3, 2)}, .want = (double[]){4, 5, 1, -3, 5, 3, -1, 4, 3, 5, 4, 2}, .n_want = 12},
    {.build = build_avg_pool, .name = "avg_pool", .n_in = 1, .in = {DATA(WEFT_F32, x40, 1, 5, 3, 2)},
     .want = (double[]){-1.75, 2.5, 0, -4, 1.666667, -0.5, -3, 0.3333333, 0.5, -0.75, -0.5, 1}, .n_want = 12},
    {.op = "resize", .attrs = "size=[5,3]", .n_in = 1, .in = {DATA(WEFT_F32, x40, 1, 3, 4, 1)},
     .want = (double[]){-5, -2, 5, -5, -2, 5, 1, 4, 0, -4, -1, -5, -4, -1, -5}, .n_want = 15},
    {.op = "resize", .attrs = "size=[5,3] method=bilinear", .n_in = 1, .in = {DATA(WEFT_F32, x40, 1, 3, 4, 1)},
     .want = (double[]){-3.833333, 0, 3.833334, -2.166667, 0.2, 2.566667, 0.3333333, 0.5, 0.666666, -1.566667,
                        0.8000001, -2.333335, -2.833333, 1, -4.333334}, .n_want = 15},
    {.build = build_up, .name = "upsampling", .n_in = 1, .in = {DATA(WEFT_F32, ((double[]){-5, 2, 1, -3}), 1, 2, 2, 1)},
     .want = (double[]){-5, -3.25, 0.25, 2, -3.5, -2.4375, -0.3125, 0.75, -0.5, -0.8125, -1.4375, -1.75, 1, 0, -2, -3},
     .n_want = 16},

    /* convolution: every option, 1 to 3 axes */
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 7, 3), F32(-1, 1, 3, 3, 4)}},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 5, 6, 3), F32(-1, 1, 3, 2, 3, 4)}},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 1, 3, 4, 3, 2), F32(-1, 1, 2, 2, 2, 2, 3)}},
    {.op = "conv", .attrs = "padding=same strides=[2,1]", .n_in = 2,
     .in = {F32(-1, 1, 1, 5, 4, 2), F32(-1, 1, 3, 3, 2, 3)}},
    {.op = "conv", .attrs = "padding=explicit pads=[1,2,0,3] strides=[2,3] dilations=[2,1]", .n_in = 2,
     .in = {F32(-1, 1, 2, 6, 5, 2), F32(-1, 1, 2, 3, 2, 2)}},
    {.op = "conv", .attrs = "padding=same dilations=[2]", .n_in = 2,
     .in = {F32(-1, 1, 1, 4, 5, 2), F32(-1, 1, 3, 3, 2, 2)}},
    {.op = "conv", .attrs = "groups=3 padding=same", .n_in = 2,
     .in = {F32(-1, 1, 2, 4, 3, 6), F32(-1, 1, 2, 2, 2, 9)}},
    {.op = "conv", .attrs = "groups=5 strides=[2]", .n_in = 2, .in = {F32(-1, 1, 1, 5, 5, 5), F32(-1, 1, 3, 3, 1, 10)}},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 3, 3, 4), F32(-1, 1, 1, 1, 4, 3)}},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 0, 5, 5, 2), F32(-1, 1, 3, 3, 2, 4)}},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 5, 5, 0), F32(-1, 1, 3, 3, 0, 4)}},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 5, 5, 2), F32(-1, 1, 3, 3, 2, 0)}},
    {.op = "conv", .attrs = "padding=same", .n_in = 2, .in = {F32(-1, 1, 1, 1, 1, 1), F32(-1, 1, 3, 3, 1, 1)}},
    {.build = build_causal, .name = "causal", .n_in = 2, .flags = OP_STATIC,
     .in = {F32(-1, 1, 2, 6, 2), F32(-1, 1, 3, 2, 3)}},
    {.build = build_separable, .name = "separable", .n_in = 3, .flags = OP_STATIC,
     .in = {F32(-1, 1, 1, 5, 6, 3), F32(-1, 1, 3, 3, 3, 2), F32(-1, 1, 1, 1, 6, 4)}},
    {.op = "conv_grad_input", .attrs = "strides=[2] padding=same", .n_in = 3, .no_grad = 4,
     .in = {F32(-1, 1, 1, 3, 2, 3), F32(-1, 1, 3, 2, 2, 3), F32(0, 1, 1, 5, 4, 2)}},
    {.op = "conv_grad_filter", .attrs = "groups=2 dilations=[1,2]", .n_in = 3, .no_grad = 4,
     .in = {F32(-1, 1, 2, 4, 5, 4), F32(-1, 1, 2, 3, 3, 2), F32(0, 1, 2, 2, 2, 2)}},
    {.op = "conv_transpose", .attrs = "strides=[2,1] groups=2 dilations=[1,2]", .n_in = 2,
     .in = {F32(-1, 1, 1, 2, 3, 4), F32(-1, 1, 3, 2, 1, 4)}},
    {.op = "conv_transpose", .attrs = "strides=[2] padding=explicit pads=[1,1,0,1] output_padding=[1,0]", .n_in = 2,
     .in = {F32(-1, 1, 1, 3, 2, 2), F32(-1, 1, 3, 4, 3, 2)}},
    {.op = "conv_transpose", .attrs = "strides=[2] padding=same", .n_in = 2,
     .in = {F32(-1, 1, 1, 2, 2, 2, 2), F32(-1, 1, 3, 2, 3, 1, 2)}},

    /* pooling */
    {.build = build_max_pool, .name = "max_pool", .n_in = 1, .in = {DISTINCT(-1, 1, 2, 6, 5, 3)}, .flags = OP_NO_HALF},
    {.op = "max_pool", .attrs = "window=[3] strides=[1] padding=same", .n_in = 1, .flags = OP_NO_HALF,
     .in = {DISTINCT(-1, 1, 2, 7, 3)}},
    {.op = "max_pool", .attrs = "window=[2,3,2] strides=[2,1,1] padding=explicit pads=[1,0,2,2,0,1]", .n_in = 1,
     .flags = OP_NO_HALF, .in = {DISTINCT(-1, 1, 1, 4, 3, 3, 2)}},
    {.op = "max_pool", .attrs = "window=[17,16]", .n_in = 1, .in = {DISTINCT(-1, 1, 1, 17, 18, 2)}, .flags = OP_NO_HALF},
    {.op = "max_pool", .attrs = "window=[3] strides=[1]", .n_in = 1, .flags = OP_NO_GRAD | OP_F32_ONLY | OP_EXACT,
     .in = {DATA(WEFT_F32, ((double[]){1, 2, 2, NAN, 0, NAN, 3, -0.0, 0.0}), 1, 9, 1)},
     .want = (double[]){2, NAN, NAN, NAN, NAN, NAN, 3}, .n_want = 7},
    {.op = "max_pool", .attrs = "window=[2]", .n_in = 1, .in = {F32(-1, 1, 0, 4, 4, 3)}},
    {.op = "max_pool", .attrs = "window=[2]", .n_in = 1, .in = {F32(-1, 1, 2, 4, 4, 0)}},
    {.op = "max_pool_grad", .attrs = "window=[2] strides=[1,1]", .n_in = 3, .no_grad = 6,
     .in = {F32(-1, 1, 2, 3, 2, 3), IDS(U8, 0, 3, 2, 3, 2, 3), F32(0, 1, 2, 4, 3, 3)}},
    {.op = "max_pool_pick", .attrs = "window=[2] strides=[1,1]", .n_in = 2, .no_grad = 2,
     .in = {F32(-1, 1, 2, 4, 3, 3), IDS(U8, 0, 3, 2, 3, 2, 3)}},
    /* channels in pieces of 8 */
    {.op = "max_pool", .attrs = "window=[3] strides=[2] padding=explicit pads=[1,1,1,1]", .n_in = 1,
     .flags = OP_NO_HALF, .in = {DISTINCT(-1, 1, 2, 7, 6, 16)}},
    {.op = "max_pool", .attrs = "window=[2]", .n_in = 1, .flags = OP_NO_HALF, .in = {DISTINCT(-1, 1, 2, 5, 4, 24)}},
    {.op = "max_pool", .attrs = "window=[2]", .n_in = 1, .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 4, 4, 16)}},
    {.op = "max_pool_grad", .attrs = "window=[2] strides=[1,1]", .n_in = 3, .no_grad = 6,
     .in = {F32(-1, 1, 2, 3, 2, 8), IDS(U8, 0, 3, 2, 3, 2, 8), F32(0, 1, 2, 4, 3, 8)}},
    {.op = "max_pool", .attrs = "window=[3] strides=[2] padding=explicit pads=[1,1,1,1]", .n_in = 1,
     .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 9, 8, 16)}},
    {.op = "max_pool", .attrs = "window=[2] padding=explicit pads=[1,0,0,1]", .n_in = 1, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 7, 8)}},
    {.op = "max_pool_grad", .attrs = "window=[3] strides=[2]", .n_in = 3, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 6, 5, 16), IDS(U8, 0, 8, 2, 6, 5, 16), F32(0, 1, 2, 13, 12, 16)}},
    {.op = "max_pool_grad", .attrs = "window=[3] strides=[2] padding=explicit pads=[1,1,1,1]", .n_in = 3,
     .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 3, 4, 8), IDS(U8, 4, 4, 2, 3, 4, 8), F32(0, 1, 2, 5, 7, 8)}},
    {.op = "max_pool_grad", .attrs = "window=[2]", .n_in = 3, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 3, 2, 8), IDS(U8, 0, 3, 2, 3, 2, 8), F32(0, 1, 2, 7, 5, 8)}},
    {.op = "max_pool_grad", .attrs = "window=[3] strides=[2] padding=explicit pads=[1,0,1,0]", .n_in = 3,
     .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 3, 3, 8), IDS(U8, 4, 5, 2, 3, 3, 8), F32(0, 1, 2, 6, 6, 8)}},
    {.op = "max_pool_grad", .attrs = "window=[2] padding=explicit pads=[1,1,0,0]", .n_in = 3,
     .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 4, 2, 8), IDS(U8, 2, 2, 2, 4, 2, 8), F32(0, 1, 2, 7, 5, 8)}},
    {.op = "avg_pool", .attrs = "window=[3] strides=[2] padding=same", .n_in = 1, .in = {F32(-1, 1, 2, 4, 5, 16)}},
    /* few channels, large windows */
    {.op = "conv", .attrs = "padding=explicit pads=[3,3,3,3] strides=[2]", .n_in = 2, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 11, 3), F32(-1, 1, 7, 7, 3, 8)}},
    {.op = "conv", .attrs = "padding=explicit pads=[2,1,0,3] strides=[1,2] dilations=[3,1]", .n_in = 2,
     .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 12, 10, 5), F32(-1, 1, 3, 5, 5, 8)}},
    {.op = "conv_grad_filter", .attrs = "padding=explicit pads=[3,3,3,3] strides=[2]", .n_in = 3,
     .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 11, 3), F32(-1, 1, 2, 5, 6, 8), F32(0, 1, 7, 7, 3, 8)}},
    /* with lines that are multiples of 16 bytes: small borders, large ones, none, and few lines */
    {.op = "conv", .attrs = "padding=explicit pads=[3,3,3,3] strides=[2]", .n_in = 2, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 16, 3), F32(-1, 1, 7, 7, 3, 8)}},
    {.op = "conv", .attrs = "padding=explicit pads=[2,1,4,3] strides=[1,2] dilations=[3,1]", .n_in = 2,
     .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 12, 8, 5), F32(-1, 1, 3, 5, 5, 8)}},
    {.op = "conv", .n_in = 2, .flags = OP_NO_GRAD, .in = {F32(-1, 1, 3, 4, 24, 1), F32(-1, 1, 3, 23, 1, 16)}},
    {.op = "conv", .attrs = "strides=[3]", .n_in = 2, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 1, 11, 40, 7), F32(-1, 1, 4, 4, 7, 8)}},
    {.op = "conv_grad_filter", .attrs = "padding=explicit pads=[3,3,3,3] strides=[2]", .n_in = 3,
     .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 16, 3), F32(-1, 1, 2, 5, 8, 8), F32(0, 1, 7, 7, 3, 8)}},
    {.op = "avg_pool", .attrs = "window=[2,3,2] strides=[1,2,1] padding=explicit pads=[1,0,2,1,0,1]", .n_in = 1,
     .in = {F32(-1, 1, 1, 3, 5, 4, 8)}},
    {.op = "avg_pool", .attrs = "window=[2]", .n_in = 1, .in = {F32(-1, 1, 2, 6, 5, 3)}},
    {.op = "avg_pool", .attrs = "window=[3] strides=[2] padding=same", .n_in = 1, .in = {F32(-1, 1, 1, 4, 5, 4, 2)}},
    {.op = "avg_pool", .attrs = "window=[3] strides=[1] padding=explicit pads=[2,1]", .n_in = 1,
     .in = {F32(-1, 1, 2, 5, 3)}},
    {.op = "avg_pool_grad", .attrs = "window=[3,2] strides=[1,2] padding=same", .n_in = 2, .no_grad = 2,
     .in = {F32(-1, 1, 1, 4, 3, 2), F32(0, 1, 1, 4, 5, 2)}},

    {.build = build_global_max, .name = "global max pool", .n_in = 1, .in = {DISTINCT(-1, 1, 2, 3, 4, 3)},
     .flags = OP_NO_HALF},
    {.build = build_global_avg, .name = "global avg pool", .n_in = 1, .in = {F32(-1, 1, 2, 3, 2, 2, 3)}},
    {.build = build_global_avg, .name = "global avg pool, values", .n_in = 1,
     .in = {DATA(WEFT_F32, ((double[]){1, -1, 3, -5}), 1, 2, 2)}, .want = (double[]){2, -3}, .n_want = 2},

    /* resizing */
    {.op = "resize", .attrs = "scale=[3]", .n_in = 1, .in = {F32(-1, 1, 2, 4, 3)}},
    {.op = "resize", .attrs = "scale=[2,3] method=bilinear", .n_in = 1, .in = {F32(-1, 1, 2, 3, 4, 3)}},
    {.op = "resize", .attrs = "size=[3,2,5] method=bilinear", .n_in = 1, .in = {F32(-1, 1, 1, 4, 3, 3, 2)}},
    {.op = "resize", .attrs = "size=[2,9]", .n_in = 1, .in = {F32(-1, 1, 1, 5, 4, 2)}},
    {.op = "resize_grad", .attrs = "size=[5,3] method=bilinear", .n_in = 2, .no_grad = 2,
     .in = {F32(-1, 1, 1, 5, 3, 2), F32(0, 1, 1, 3, 4, 2)}},

    /* whole vectors and what is left of them, several tasks: the fast kernels compared with the
     * definition */
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 3, 14, 14, 32), F32(-1, 1, 3, 3, 32, 40)}, BIG, .tol = 3e-5},
    {.op = "conv_grad_input", .attrs = "padding=same", .n_in = 3, BIG, .tol = 3e-5,
     .in = {F32(-1, 1, 3, 16, 12, 24), F32(-1, 1, 3, 3, 17, 24), F32(0, 1, 3, 16, 12, 17)}},
    {.op = "conv_grad_filter", .attrs = "padding=same", .n_in = 3, BIG, .tol = 3e-5,
     .in = {F32(-1, 1, 5, 12, 8, 20), F32(-1, 1, 5, 12, 8, 33), F32(0, 1, 3, 3, 20, 33)}},
    {.op = "conv", .attrs = "padding=same strides=[2]", .n_in = 2, BIG,
     .in = {F32(-1, 1, 2, 21, 19, 3), F32(-1, 1, 7, 7, 3, 35)}},
    {.op = "conv_grad_filter", .attrs = "padding=same strides=[2]", .n_in = 3, BIG, .tol = 3e-5,
     .in = {F32(-1, 1, 2, 21, 19, 3), F32(-1, 1, 2, 11, 10, 35), F32(0, 1, 7, 7, 3, 35)}},
    {.op = "conv", .n_in = 2, .flags = OP_NO_GRAD, .in = {F32(-1, 1, 2, 9, 11, 37), F32(-1, 1, 1, 1, 37, 50)}},
    {.op = "conv_grad_input", .n_in = 3, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 11, 50), F32(-1, 1, 1, 1, 37, 50), F32(0, 1, 2, 9, 11, 37)}},
    {.op = "conv_grad_filter", .n_in = 3, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 2, 9, 11, 37), F32(-1, 1, 2, 9, 11, 50), F32(0, 1, 1, 1, 37, 50)}},
    {.op = "conv_transpose", .attrs = "padding=same strides=[2]", .n_in = 2, BIG,
     .in = {F32(-1, 1, 2, 9, 7, 40), F32(-1, 1, 5, 5, 3, 40)}},
    {.op = "conv", .attrs = "padding=same strides=[2] groups=37", .n_in = 2, BIG,
     .in = {F32(-1, 1, 2, 13, 14, 37), F32(-1, 1, 3, 3, 1, 74)}},
    {.op = "max_pool", .attrs = "window=[2]", .n_in = 1, .in = {DISTINCT(-1, 1, 3, 13, 14, 37)}, BIG},
    {.op = "max_pool", .attrs = "window=[3] strides=[2] padding=same", .n_in = 1,
     .in = {DISTINCT(-1, 1, 2, 13, 14, 19)}, BIG},
    {.op = "max_pool_grad", .attrs = "window=[2]", .n_in = 3, .flags = OP_NO_GRAD | OP_F32_ONLY | OP_EXACT,
     .in = {F32(-1, 1, 3, 6, 7, 37), IDS(U8, 0, 3, 3, 6, 7, 37), F32(0, 1, 3, 13, 15, 37)}},
    {.op = "max_pool_grad", .attrs = "window=[3] strides=[2]", .n_in = 3, BIG,
     .in = {F32(-1, 1, 2, 6, 5, 21), IDS(U8, 0, 8, 2, 6, 5, 21), F32(0, 1, 2, 13, 12, 21)}},
    {.op = "avg_pool", .attrs = "window=[3] strides=[2] padding=same", .n_in = 1, .in = {F32(-1, 1, 2, 13, 14, 37)}, BIG},
    {.op = "avg_pool_grad", .attrs = "window=[3] strides=[2] padding=same", .n_in = 2, BIG,
     .in = {F32(-1, 1, 2, 7, 7, 37), F32(0, 1, 2, 13, 14, 37)}},
    {.op = "resize", .attrs = "size=[19,9] method=bilinear", .n_in = 1, .in = {F32(-1, 1, 2, 13, 14, 37)}, BIG},
    {.op = "resize_grad", .attrs = "size=[19,9] method=bilinear", .n_in = 2, BIG,
     .in = {F32(-1, 1, 2, 19, 9, 37), F32(0, 1, 2, 13, 14, 37)}},

    /* what is refused */
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 5, 3), F32(-1, 1, 3, 4, 3)}, .fails = WEFT_ESHAPE,
     .text = "input channels of a group differ (3, 4)"},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 2, 2, 3), F32(-1, 1, 3, 3, 3)}, .fails = WEFT_ESHAPE,
     .text = "larger than the padded input"},
    {.op = "conv", .n_in = 2, .in = {F32(-1, 1, 5, 3), F32(-1, 1, 3, 3)}, .fails = WEFT_ESHAPE, .text = "expected"},
    {.op = "conv", .attrs = "groups=2", .n_in = 2, .in = {F32(-1, 1, 2, 5, 3), F32(-1, 1, 3, 1, 2)},
     .fails = WEFT_ESHAPE, .text = "do not divide"},
    {.op = "conv", .attrs = "strides=[0]", .n_in = 2, .in = {F32(-1, 1, 2, 5, 3), F32(-1, 1, 3, 3, 2)},
     .fails = WEFT_ESHAPE, .text = "strides"},
    {.op = "conv", .attrs = "padding=explicit pads=[9223372036854775807,1]", .n_in = 2,
     .in = {F32(-1, 1, 2, 5, 3), F32(-1, 1, 3, 3, 2)}, .fails = WEFT_ESHAPE, .text = "pads"},
    {.op = "conv", .attrs = "padding=most", .n_in = 2, .in = {F32(-1, 1, 2, 5, 3), F32(-1, 1, 3, 3, 2)},
     .fails = WEFT_ESHAPE, .text = "valid, same or explicit"},
    {.op = "conv_grad_input", .n_in = 3, .in = {F32(-1, 1, 2, 4, 2), F32(-1, 1, 3, 3, 2), F32(-1, 1, 2, 5, 3)},
     .fails = WEFT_ESHAPE, .text = "sizes of the convolution's output differ (3, 4)"},
    {.op = "conv_transpose", .attrs = "strides=[2] output_padding=[2]", .n_in = 2,
     .in = {F32(-1, 1, 2, 5, 3), F32(-1, 1, 3, 2, 3)}, .fails = WEFT_EINVAL, .text = "less than the stride"},
    {.op = "max_pool", .attrs = "window=[2] padding=explicit pads=[2,0]", .n_in = 1, .in = {F32(-1, 1, 2, 5, 3)},
     .fails = WEFT_ESHAPE, .text = "smaller than the window"},
    {.op = "max_pool_pick", .attrs = "window=[2]", .n_in = 2, .in = {F32(-1, 1, 1, 2, 1), IDS(U8, 9, 9, 1, 1, 1)},
     .fails = WEFT_EDATA, .text = "argmax[0] is 9"},
    {.op = "max_pool_grad", .attrs = "window=[2]", .n_in = 3, .fails = WEFT_EDATA, .text = "argmax",
     .in = {F32(-1, 1, 1, 2, 2, 8), IDS(U8, 4, 4, 1, 2, 2, 8), F32(0, 1, 1, 4, 4, 8)}},
    {.op = "resize", .n_in = 1, .in = {F32(-1, 1, 2, 5, 3)}, .fails = WEFT_EINVAL, .text = "size or scale"},
};
/* clang-format on */

int main(int argc, char **argv)
{
    return op_main(argc, argv, "convolution ops", cases, OP_COUNT(cases));
}
