/* shape_ops.c - the op table test of ops that move or re-read elements. */
#include "ops/harness.h"
#include "weft/ops_shape.h"

#define WANT(...) .want = (double[]){__VA_ARGS__}, .n_want = OP_RANK(__VA_ARGS__)
/* Integers and bytes: moves only. */
#define MOVES .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY
#define SIX ((double[]){0, 1, 2, 3, 4, 5})
#define TWELVE ((double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})

static weft_val build_split3(weft_graph *g, const weft_val *in)
{
    weft_val out[3];

    weft_split(g, in[0], 3, 1, out);
    return out[0];
}

/* The middle part only: the others get no gradient. */
static weft_val build_split_middle(weft_graph *g, const weft_val *in)
{
    weft_val out[3];

    weft_split_sizes(g, in[0], 3, (int64_t[]){1, 4, 2}, 0, out);
    return wf_binary(g, WF_OP_mul, out[1], out[1]);
}

/* More parts than a node has outputs, joined again in another order. */
static weft_val build_split_many(weft_graph *g, const weft_val *in)
{
    weft_val out[150], back[150];

    weft_split(g, in[0], 150, 1, out);
    for (int i = 0; i < 150; i++)
        back[i] = out[149 - i];
    return weft_concat(g, 150, back, 0);
}

static weft_val build_unstack_many(weft_graph *g, const weft_val *in)
{
    weft_val out[130], back[130];

    weft_unstack(g, in[0], 130, -2, out);
    for (int i = 0; i < 130; i++)
        back[i] = out[(i * 7) % 130];
    return weft_stack(g, 130, back, 1);
}

static weft_val build_stack_many(weft_graph *g, const weft_val *in)
{
    weft_val xs[600];

    for (int i = 0; i < 600; i++)
        xs[i] = in[i % 2];
    return weft_stack(g, 600, xs, -1);
}

/* One operand of concat is a constant: its gradient is not wanted. */
static weft_val build_concat_constant(weft_graph *g, const weft_val *in)
{
    weft_val zero = wf_const_like(g, 3, in[0]);

    return weft_concat(g, 2, (weft_val[]){in[0], weft_reshape(g, zero, 2, (int64_t[]){1, 1})}, 1);
}

static weft_val build_concat_square(weft_graph *g, const weft_val *in)
{
    weft_val y = weft_concat(g, 3, in, 1);

    return wf_binary(g, WF_OP_mul, y, y);
}

static weft_val build_slice_axis(weft_graph *g, const weft_val *in)
{
    weft_val y = weft_slice_axis(g, in[0], -1, 2, 3);

    return wf_binary(g, WF_OP_mul, y, y);
}

static weft_val build_omitted(weft_graph *g, const weft_val *in)
{
    return weft_strided_slice(g, in[0], 2, (int64_t[]){WEFT_OMIT, -2}, (int64_t[]){-1, WEFT_OMIT},
                              NULL);
}

static weft_val build_pad(weft_graph *g, const weft_val *in)
{
    weft_val y = weft_pad(g, in[0], 2, (int64_t[]){1, 0, 2, 1},
                          WEFT_OPTS(weft_pad_opts, .mode = WEFT_PAD_SYMMETRIC));

    return wf_binary(g, WF_OP_mul, y, y);
}

static weft_val build_flatten(weft_graph *g, const weft_val *in)
{
    return weft_flatten(g, in[0]);
}

static weft_val build_squeeze_expand(weft_graph *g, const weft_val *in)
{
    return weft_squeeze(g, weft_expand_dims(g, in[0], -1), 1, (int64_t[]){-1});
}

/* clang-format off */
static const struct op_case cases[] = {
    /* reshape, squeeze, expand, flatten */
    {.op = "reshape", .attrs = "shape=[4,6]", .n_in = 1, .in = {F32(-1, 1, 2, 3, 4)}, .flags = OP_EXACT},
    {.op = "reshape", .attrs = "shape=[-1,6]", .n_in = 1, .in = {F32(-1, 1, 2, 3, 4)}, .flags = OP_EXACT},
    {.op = "reshape", .attrs = "shape=[]", .n_in = 1, .in = {F32(-1, 1, 1, 1)}, .flags = OP_EXACT},
    {.op = "reshape", .attrs = "shape=[0,7]", .n_in = 1, .in = {F32(-1, 1, 3, 0)}, .flags = OP_EXACT},
    {.op = "reshape", .attrs = "shape=[5,5]", .n_in = 1, .in = {F32(-1, 1, 3, 8)}, .fails = WEFT_ESHAPE, .text = "24"},
    {.op = "reshape", .attrs = "shape=[-1,-1]", .n_in = 1, .in = {F32(-1, 1, 3, 8)}, .fails = WEFT_ESHAPE, .text = "one"},
    {.op = "reshape_like", .n_in = 2, .in = {F32(-1, 1, 6, 4), F32(-1, 1, 3, 8)}, .no_grad = 2, .flags = OP_EXACT},
    {.op = "reshape_like", .n_in = 2, .in = {F32(-1, 1, 6), F32(-1, 1, 5)}, .fails = WEFT_ESHAPE, .text = "6 and 5"},
    {.op = "expand_dims", .attrs = "axes=[0,-1]", .n_in = 1, .in = {F32(-1, 1, 3)}, .flags = OP_EXACT},
    {.op = "expand_dims", .attrs = "axes=[1,1]", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_EINVAL, .text = "twice"},
    {.op = "squeeze", .attrs = "axes=[1]", .n_in = 1, .in = {F32(-1, 1, 3, 1, 1)}, .flags = OP_EXACT},
    {.op = "squeeze", .n_in = 1, .in = {F32(-1, 1, 1, 3, 1)}, .flags = OP_EXACT | OP_STATIC},
    {.op = "squeeze", .attrs = "axes=[0]", .n_in = 1, .in = {F32(-1, 1, 3, 1)}, .fails = WEFT_ESHAPE, .text = "not 1"},
    {.op = "flatten", .n_in = 1, .in = {F32(-1, 1, 3, 2, 5)}, .flags = OP_EXACT},
    {.op = "flatten", .n_in = 1, .in = {F32(-1, 1, 3)}, .flags = OP_EXACT},
    {.op = "flatten", .attrs = "axis=0", .n_in = 1, .in = {F32(-1, 1)}, .flags = OP_EXACT},
    {.op = "flatten", .attrs = "axis=4", .n_in = 1, .in = {F32(-1, 1, 3, 2)}, .fails = WEFT_ERANGE, .text = "axis 4"},
    {.name = "flatten builder", .build = build_flatten, .n_in = 1, .in = {F32(-1, 1, 4, 1, 3)}},
    {.name = "expand and squeeze", .build = build_squeeze_expand, .n_in = 1, .in = {F32(-1, 1, 4, 3)}},

    /* transpose */
    {.op = "transpose", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 2, 3)}, .flags = OP_EXACT, WANT(0, 3, 1, 4, 2, 5)},
    {.op = "transpose", .n_in = 1, .in = {F32(-1, 1, 1, 1)}, .flags = OP_EXACT},
    {.op = "transpose", .n_in = 1, .in = {F32(-1, 1)}, .flags = OP_EXACT},
    {.op = "transpose", .n_in = 1, .in = {F32(-1, 1, 0, 3)}, .flags = OP_EXACT},
    {.op = "transpose", .n_in = 1, .in = {F32(-1, 1, 67, 131)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[0,2,1,3]", .n_in = 1, .in = {F32(-1, 1, 2, 5, 3, 16)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[0,2,1,3]", .n_in = 1, .in = {F32(-1, 1, 3, 7, 4, 3)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[0,3,1,2]", .n_in = 1, .in = {F32(-1, 1, 2, 9, 11, 5)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[0,2,3,1]", .n_in = 1, .in = {F32(-1, 1, 2, 5, 9, 11)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[-1,0,1]", .n_in = 1, .in = {F32(-1, 1, 3, 4, 5)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[1,0,2]", .n_in = 1, .in = {F32(-1, 1, 70, 50, 33)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[4,2,0,5,3,1]", .n_in = 1, .in = {F32(-1, 1, 2, 3, 2, 3, 4, 2)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[7,6,5,4,3,2,1,0]", .n_in = 1, .in = {F32(-1, 1, 2, 1, 2, 3, 2, 1, 2, 2)}, .flags = OP_EXACT},
    {.op = "transpose", .attrs = "perm=[1,0]", .n_in = 1, .in = {IDS(I64, -9, 9, 45, 70)}, MOVES},
    {.op = "transpose", .attrs = "perm=[1,0]", .n_in = 1, .in = {IDS(U8, 0, 255, 45, 70)}, MOVES},
    {.op = "transpose", .attrs = "perm=[2,0,1]", .n_in = 1, .in = {IDS(I32, -99, 99, 17, 7, 19)}, MOVES},
    {.op = "transpose", .attrs = "perm=[0,0]", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .fails = WEFT_EINVAL, .text = "twice"},
    {.op = "transpose", .attrs = "perm=[0]", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .fails = WEFT_EINVAL, .text = "perm"},
    {.op = "transpose", .attrs = "perm=[0,2]", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .fails = WEFT_ERANGE, .text = "axis 2"},

    /* reverse */
    {.op = "reverse", .attrs = "axes=[1]", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 2, 3)}, .flags = OP_EXACT, WANT(2, 1, 0, 5, 4, 3)},
    {.op = "reverse", .attrs = "axes=[0,-1]", .n_in = 1, .in = {F32(-1, 1, 4, 3, 5)}, .flags = OP_EXACT},
    {.op = "reverse", .attrs = "axes=[1]", .n_in = 1, .in = {F32(-1, 1, 9, 20, 40)}, .flags = OP_EXACT},
    {.op = "reverse", .attrs = "axes=[0]", .n_in = 1, .in = {F32(-1, 1, 0, 4)}, .flags = OP_EXACT},
    {.op = "reverse", .attrs = "axes=[0]", .n_in = 1, .in = {IDS(I8, -100, 100, 300)}, MOVES},

    /* concat, stack */
    {.op = "concat", .attrs = "axis=1", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 2, 3), DATA(WEFT_F32, SIX, 2, 1)},
     .flags = OP_EXACT, WANT(0, 1, 2, 0, 3, 4, 5, 1)},
    {.op = "concat", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .flags = OP_EXACT},
    {.op = "concat", .n_in = 3, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 0, 4), F32(-1, 1, 2, 4)}, .flags = OP_EXACT},
    {.op = "concat", .attrs = "axis=-1", .n_in = 4, .in = {F32(-1, 1, 5, 2, 3), F32(-1, 1, 5, 2, 1), F32(-1, 1, 5, 2, 16), F32(-1, 1, 5, 2, 7)}, .flags = OP_EXACT},
    {.op = "concat", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 2, 3, 2, 2), F32(-1, 1, 2, 1, 2, 2)}, .flags = OP_EXACT},
    {.op = "concat", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 130, 300), F32(-1, 1, 130, 100)}, .flags = OP_EXACT},
    {.op = "concat", .attrs = "axis=1", .n_in = 2, .in = {BOOLS(20, 3), BOOLS(20, 9)}, MOVES},
    {.op = "concat", .n_in = 2, .in = {IDS(I64, -5, 5, 3), IDS(I64, -5, 5, 4)}, MOVES},
    {.op = "concat", .n_in = 2, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 3, 5)}, .fails = WEFT_ESHAPE, .text = "4, 5"},
    {.op = "concat", .n_in = 2, .in = {F32(-1, 1, 3), IDS(I32, 0, 1, 3)}, .fails = WEFT_EDTYPE, .text = "i32"},
    {.op = "concat", .n_in = 1, .in = {F32(-1, 1)}, .fails = WEFT_ERANGE, .text = "axis"},
    {.name = "concat of a constant", .build = build_concat_constant, .n_in = 1, .in = {F32(-1, 1, 1, 4)}},
    {.name = "concat squared", .build = build_concat_square, .n_in = 3, .in = {F32(-1, 1, 2, 3), F32(-1, 1, 2, 1), F32(-1, 1, 2, 4)}},
    {.op = "concat_part", .attrs = "index=1 axis=1", .n_in = 4, .in = {F32(-1, 1, 2, 6), F32(-1, 1, 2, 1), F32(-1, 1, 2, 3), F32(-1, 1, 2, 2)},
     .no_grad = 14, .flags = OP_EXACT},
    {.op = "stack", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 3), DATA(WEFT_F32, SIX, 3)}, .attrs = "axis=1", .flags = OP_EXACT,
     WANT(0, 0, 1, 1, 2, 2)},
    {.op = "stack", .n_in = 3, .in = {F32(-1, 1, 2, 5), F32(-1, 1, 2, 5), F32(-1, 1, 2, 5)}, .attrs = "axis=-1", .flags = OP_EXACT},
    {.op = "stack", .n_in = 2, .in = {F32(-1, 1), F32(-1, 1)}, .flags = OP_EXACT},
    {.op = "stack", .n_in = 2, .in = {F32(-1, 1, 2), F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "2, 3"},
    {.op = "stack", .n_in = 1, .in = {F32(-1, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, .fails = WEFT_ESHAPE, .text = "rank"},
    {.name = "stack of 600", .build = build_stack_many, .n_in = 2, .in = {F32(-1, 1, 2), F32(-1, 1, 2)}},

    /* split, unstack */
    {.op = "split", .attrs = "n=3 axis=1", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 2, 3)}, .flags = OP_EXACT, WANT(0, 3)},
    {.op = "split", .attrs = "n=2 axis=0 sizes=[1,3]", .n_in = 1, .in = {F32(-1, 1, 4, 3)}, .flags = OP_EXACT},
    {.op = "split", .attrs = "n=3 axis=-1 sizes=[0,5,2]", .n_in = 1, .in = {F32(-1, 1, 3, 7)}, .flags = OP_EXACT},
    {.op = "split", .attrs = "n=4 axis=1", .n_in = 1, .in = {F32(-1, 1, 33, 64)}, .flags = OP_EXACT},
    {.op = "split", .attrs = "n=2 axis=1", .n_in = 1, .in = {IDS(U8, 0, 9, 3, 8)}, MOVES},
    {.op = "split", .attrs = "n=2", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "2 equal parts"},
    {.op = "split", .attrs = "n=2 sizes=[1,1]", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "add up to 2"},
    {.op = "split", .attrs = "n=2 sizes=[4,-1]", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_EINVAL, .text = "-1"},
    {.name = "split builder", .build = build_split3, .n_in = 1, .in = {F32(-1, 1, 4, 6)}},
    {.name = "split, one part used", .build = build_split_middle, .n_in = 1, .in = {F32(-1, 1, 7, 3)}},
    {.name = "split into 150", .build = build_split_many, .n_in = 1, .in = {F32(-1, 1, 2, 300)}, .flags = OP_STATIC | OP_NO_GRAD2},
    {.op = "unstack", .attrs = "n=3 axis=0", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .flags = OP_EXACT},
    {.op = "unstack", .attrs = "n=2 axis=-1", .n_in = 1, .in = {F32(-1, 1, 3, 2)}, .flags = OP_EXACT},
    {.op = "unstack", .attrs = "n=3 axis=1", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .fails = WEFT_ESHAPE, .text = "4, 3"},
    {.name = "unstack 130", .build = build_unstack_many, .n_in = 1, .in = {F32(-1, 1, 130, 2)}, .flags = OP_NO_GRAD2},

    /* slice, strided_slice */
    {.op = "slice", .attrs = "begin=[1,1] size=[1,2]", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 2, 3)}, .flags = OP_EXACT, WANT(4, 5)},
    {.op = "slice", .attrs = "begin=[2,0,1] size=[3,-1,-1]", .n_in = 1, .in = {F32(-1, 1, 6, 2, 4)}, .flags = OP_EXACT},
    {.op = "slice", .attrs = "begin=[0,0] size=[-1,-1]", .n_in = 1, .in = {F32(-1, 1, 6, 4)}, .flags = OP_EXACT},
    {.op = "slice", .attrs = "begin=[6] size=[0]", .n_in = 1, .in = {F32(-1, 1, 6)}, .flags = OP_EXACT},
    {.op = "slice", .attrs = "begin=[] size=[]", .n_in = 1, .in = {F32(-1, 1)}, .flags = OP_EXACT},
    {.op = "slice", .attrs = "begin=[3,5] size=[60,70]", .n_in = 1, .in = {F32(-1, 1, 70, 90)}, .flags = OP_EXACT},
    {.op = "slice", .attrs = "begin=[3] size=[4]", .n_in = 1, .in = {IDS(I64, -9, 9, 9)}, MOVES},
    {.op = "slice", .attrs = "begin=[5] size=[2]", .n_in = 1, .in = {F32(-1, 1, 6)}, .fails = WEFT_ERANGE, .text = "is outside 0..6"},
    {.op = "slice", .attrs = "begin=[-1] size=[1]", .n_in = 1, .in = {F32(-1, 1, 6)}, .fails = WEFT_ERANGE, .text = "begin -1"},
    {.op = "slice", .attrs = "begin=[1] size=[1]", .n_in = 1, .in = {F32(-1, 1, 6, 2)}, .fails = WEFT_EINVAL, .text = "2 numbers"},
    {.name = "slice of one axis", .build = build_slice_axis, .n_in = 1, .in = {F32(-1, 1, 3, 6)}},
    {.op = "slice_grad", .attrs = "begin=[1,0] size=[2,-1]", .n_in = 2, .in = {F32(-1, 1, 2, 3), F32(-1, 1, 5, 3)}, .no_grad = 2, .flags = OP_EXACT},
    {.op = "slice_grad", .attrs = "begin=[1,0] size=[2,-1]", .n_in = 2, .in = {F32(-1, 1, 3, 3), F32(-1, 1, 5, 3)}, .fails = WEFT_ESHAPE, .text = "3, 2"},
    {.op = "strided_slice", .attrs = "begin=[1] end=[-1] strides=[2]", .n_in = 1, .in = {DATA(WEFT_F32, TWELVE, 12)}, .flags = OP_EXACT,
     WANT(1, 3, 5, 7, 9)},
    {.op = "strided_slice", .attrs = "begin=[100] end=[-100] strides=[-5]", .n_in = 1, .in = {DATA(WEFT_F32, TWELVE, 12)}, .flags = OP_EXACT,
     WANT(11, 6, 1)},
    {.op = "strided_slice", .attrs = "begin=[-3] end=[0] strides=[-4] end_mask=1", .n_in = 1, .in = {DATA(WEFT_F32, TWELVE, 12)}, .flags = OP_EXACT,
     WANT(9, 5, 1)},
    {.op = "strided_slice", .attrs = "begin=[0,2] end=[0,0] strides=[-1,-2] begin_mask=1 end_mask=3", .n_in = 1, .in = {DATA(WEFT_F32, TWELVE, 4, 3)},
     .flags = OP_EXACT, WANT(11, 9, 8, 6, 5, 3, 2, 0)},
    {.op = "strided_slice", .attrs = "begin=[3] end=[3]", .n_in = 1, .in = {F32(-1, 1, 5, 2)}, .flags = OP_EXACT},
    {.op = "strided_slice", .attrs = "begin=[] end=[]", .n_in = 1, .in = {F32(-1, 1, 5, 2)}, .flags = OP_EXACT},
    {.op = "strided_slice", .attrs = "begin=[1,0,1] end=[5,9,8] strides=[1,3,2]", .n_in = 1, .in = {F32(-1, 1, 6, 10, 9)}, .flags = OP_EXACT},
    {.op = "strided_slice", .attrs = "begin=[0] end=[0] strides=[9223372036854775807] end_mask=1", .n_in = 1, .in = {F32(-1, 1, 6)}, .flags = OP_EXACT},
    {.op = "strided_slice", .attrs = "begin=[0] end=[0] strides=[-2] begin_mask=1 end_mask=1", .n_in = 1, .in = {IDS(I32, 0, 99, 101)}, MOVES},
    {.op = "strided_slice", .attrs = "begin=[0] end=[1] strides=[0]", .n_in = 1, .in = {F32(-1, 1, 6)}, .fails = WEFT_EINVAL, .text = "stride"},
    {.op = "strided_slice", .attrs = "begin=[0,0] end=[1,1]", .n_in = 1, .in = {F32(-1, 1, 6)}, .fails = WEFT_EINVAL, .text = "begin"},
    {.op = "strided_slice_grad", .attrs = "begin=[4] end=[0] strides=[-2]", .n_in = 2, .in = {F32(-1, 1, 2, 3), F32(-1, 1, 5, 3)}, .no_grad = 2, .flags = OP_EXACT},
    {.name = "x[:-1, -2:]", .build = build_omitted, .n_in = 1, .in = {DATA(WEFT_F32, SIX, 2, 3)}, WANT(1, 2)},

    /* pad */
    {.op = "pad", .attrs = "paddings=[1,0,0,2] value=7", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 1, 2)}, .flags = OP_EXACT, WANT(7, 7, 7, 7, 0, 1, 7, 7)},
    {.op = "pad", .attrs = "paddings=[2,2] mode=reflect", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 3)}, .flags = OP_EXACT, WANT(2, 1, 0, 1, 2, 1, 0)},
    {.op = "pad", .attrs = "paddings=[2,3] mode=symmetric", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 3)}, .flags = OP_EXACT, WANT(1, 0, 0, 1, 2, 2, 1, 0)},
    {.op = "pad", .attrs = "paddings=[0,0,1,2,3,0]", .n_in = 1, .in = {F32(-1, 1, 2, 3, 4)}, .flags = OP_EXACT},
    {.op = "pad", .attrs = "paddings=[1,1,2,1] mode=reflect", .n_in = 1, .in = {F32(-1, 1, 2, 4)}},
    {.op = "pad", .attrs = "paddings=[2,1,3,4] mode=symmetric", .n_in = 1, .in = {F32(-1, 1, 2, 4)}},
    {.op = "pad", .attrs = "paddings=[0,0,1,1,1,1,0,0]", .n_in = 1, .in = {F32(-1, 1, 2, 28, 28, 16)}, .flags = OP_EXACT | OP_NO_GRAD2 | OP_NO_GRAD},
    {.op = "pad", .attrs = "paddings=[2,3]", .n_in = 1, .in = {F32(-1, 1, 0)}, .flags = OP_EXACT},
    {.op = "pad", .attrs = "paddings=[]", .n_in = 1, .in = {F32(-1, 1)}, .flags = OP_EXACT},
    {.op = "pad", .attrs = "paddings=[1,2,0,1] value=-3", .n_in = 1, .in = {IDS(I64, -9, 9, 3, 5)}, MOVES},
    {.op = "pad", .attrs = "paddings=[2,2,1,1] mode=reflect", .n_in = 1, .in = {IDS(U8, 0, 255, 3, 5)}, MOVES},
    {.op = "pad", .attrs = "paddings=[3,0] mode=reflect", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ERANGE, .text = "at most 2"},
    {.op = "pad", .attrs = "paddings=[-1,0]", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_EINVAL, .text = "-1"},
    {.op = "pad", .attrs = "paddings=[1,0] mode=wrap", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_EINVAL, .text = "wrap"},
    {.op = "pad", .attrs = "paddings=[9223372036854775807,0]", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "overflow"},
    {.op = "pad_grad", .attrs = "paddings=[1,1] mode=reflect", .n_in = 2, .in = {F32(-1, 1, 5), F32(-1, 1, 3)}, .no_grad = 2},
    {.name = "pad builder squared", .build = build_pad, .n_in = 1, .in = {F32(-1, 1, 2, 3)}},

    /* tile */
    {.op = "tile", .attrs = "repeats=[2,1]", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 1, 3)}, .flags = OP_EXACT, WANT(0, 1, 2, 0, 1, 2)},
    {.op = "tile", .attrs = "repeats=[1,3]", .n_in = 1, .in = {DATA(WEFT_F32, SIX, 2, 2)}, .flags = OP_EXACT, WANT(0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3)},
    {.op = "tile", .attrs = "repeats=[2,1,3]", .n_in = 1, .in = {F32(-1, 1, 2, 4, 1)}},
    {.op = "tile", .attrs = "repeats=[0,2]", .n_in = 1, .in = {F32(-1, 1, 2, 4)}},
    {.op = "tile", .attrs = "repeats=[50,3]", .n_in = 1, .in = {F32(-1, 1, 3, 40)}, .flags = OP_NO_GRAD2},
    {.op = "tile", .attrs = "repeats=[2,2,2,2,2,2,2,2]", .n_in = 1, .in = {F32(-1, 1, 1, 2, 1, 2, 1, 1, 2, 1)}, .flags = OP_NO_GRAD2},
    {.op = "tile", .attrs = "repeats=[3]", .n_in = 1, .in = {IDS(I64, -9, 9, 5)}, MOVES},
    {.op = "tile", .attrs = "repeats=[-1]", .n_in = 1, .in = {F32(-1, 1, 5)}, .fails = WEFT_EINVAL, .text = "-1"},
    {.op = "tile", .attrs = "repeats=[4611686018427387904]", .n_in = 1, .in = {F32(-1, 1, 5)}, .fails = WEFT_ESHAPE, .text = "overflow"},
    {.op = "tile_grad", .attrs = "repeats=[2,3]", .n_in = 2, .in = {F32(-1, 1, 4, 9), F32(-1, 1, 2, 3)}, .no_grad = 2},
};
/* clang-format on */

int main(int argc, char **argv)
{
    return op_main(argc, argv, "shape ops", cases, OP_COUNT(cases));
}
