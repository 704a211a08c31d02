/* reduce_ops.c - reductions, sums along an axis, values that follow another's shape. */
#include <math.h>

#include "ops/harness.h"
#include "weft/ops_reduce.h"

/* Every kind of axes: all, last, first, middle, several, kept; of scalars, empty ones and ones of
 * several tiles. */
#define REDUCE(op_, fill, lo, hi, ...)                                                         \
    {.op = op_, .n_in = 1, .in = {fill(lo, hi, 3, 7)}, __VA_ARGS__},                           \
        {.op = op_, .n_in = 1, .in = {fill(lo, hi)}, __VA_ARGS__},                             \
        {.op = op_, .attrs = "axes=[-1]", .n_in = 1, .in = {fill(lo, hi, 4, 7)}, __VA_ARGS__}, \
        {.op = op_, .attrs = "axes=[0]", .n_in = 1, .in = {fill(lo, hi, 4, 7)}, __VA_ARGS__},  \
        {.op = op_,                                                                            \
         .attrs = "axes=[1] keepdims=true",                                                    \
         .n_in = 1,                                                                            \
         .in = {fill(lo, hi, 2, 3, 4)},                                                        \
         __VA_ARGS__},                                                                         \
        {.op = op_,                                                                            \
         .attrs = "axes=[0,-1]",                                                               \
         .n_in = 1,                                                                            \
         .in = {fill(lo, hi, 2, 3, 5)},                                                        \
         __VA_ARGS__},                                                                         \
        {.op = op_,                                                                            \
         .attrs = "axes=[2,1] keepdims=true",                                                  \
         .n_in = 1,                                                                            \
         .in = {fill(lo, hi, 2, 3, 2, 2)},                                                     \
         __VA_ARGS__},                                                                         \
        {.op = op_,                                                                            \
         .attrs = "axes=[1,3]",                                                                \
         .n_in = 1,                                                                            \
         .in = {fill(lo, hi, 2, 3, 2, 3, 2)},                                                  \
         __VA_ARGS__},                                                                         \
        {.op = op_,                                                                            \
         .attrs = "keepdims=true",                                                             \
         .n_in = 1,                                                                            \
         .in = {fill(lo, hi, 3, 1, 4)},                                                        \
         __VA_ARGS__},                                                                         \
        {.op = op_,                                                                            \
         .attrs = "axes=[0]",                                                                  \
         .n_in = 1,                                                                            \
         .in = {fill(lo, hi, 0, 3)},                                                           \
         .flags = OP_NO_GRAD2,                                                                 \
         __VA_ARGS__},                                                                         \
        {.op = op_, .attrs = "axes=[0]", .n_in = 1, .in = {fill(lo, hi, 3, 0)}, __VA_ARGS__},  \
    {                                                                                          \
        .op = op_, .attrs = "axes=[0]", .n_in = 1, .in = {fill(lo, hi, 1, 5)}, __VA_ARGS__     \
    }

#define LARGE(op_, fill, lo, hi, ...)                                                   \
    {.op = op_, .impl = "stages", .n_in = 1, .in = {fill(lo, hi, 70001)}, __VA_ARGS__}, \
        {.op = op_,                                                                     \
         .impl = "stages",                                                              \
         .attrs = "axes=[-1]",                                                          \
         .n_in = 1,                                                                     \
         .in = {fill(lo, hi, 301, 173)},                                                \
         __VA_ARGS__},                                                                  \
        {.op = op_,                                                                     \
         .impl = "stages",                                                              \
         .attrs = "axes=[0]",                                                           \
         .n_in = 1,                                                                     \
         .in = {fill(lo, hi, 301, 173)},                                                \
         __VA_ARGS__},                                                                  \
        {.op = op_,                                                                     \
         .impl = "stages",                                                              \
         .attrs = "axes=[0]",                                                           \
         .n_in = 1,                                                                     \
         .in = {fill(lo, hi, 20011, 3)},                                                \
         __VA_ARGS__},                                                                  \
        {.op = op_,                                                                     \
         .impl = "stages",                                                              \
         .attrs = "axes=[1]",                                                           \
         .n_in = 1,                                                                     \
         .in = {fill(lo, hi, 3, 20011)},                                                \
         __VA_ARGS__},                                                                  \
        {.op = op_,                                                                     \
         .impl = "stages",                                                              \
         .attrs = "axes=[1]",                                                           \
         .n_in = 1,                                                                     \
         .in = {fill(lo, hi, 7, 211, 37)},                                              \
         __VA_ARGS__},                                                                  \
    {                                                                                   \
        .op = op_, .impl = "stages", .attrs = "axes=[0,2]", .n_in = 1,                  \
        .in = {fill(lo, hi, 17, 31, 67)}, __VA_ARGS__                                   \
    }

#define ALONG(op_, attrs_, fill, lo, hi, ...)                                                      \
    {.op = op_, .attrs = "axis=-1" attrs_, .n_in = 1, .in = {fill(lo, hi, 4, 7)}, __VA_ARGS__},    \
        {.op = op_, .attrs = "axis=0" attrs_, .n_in = 1, .in = {fill(lo, hi, 4, 7)}, __VA_ARGS__}, \
        {.op = op_,                                                                                \
         .attrs = "axis=1" attrs_,                                                                 \
         .n_in = 1,                                                                                \
         .in = {fill(lo, hi, 2, 5, 3)},                                                            \
         __VA_ARGS__},                                                                             \
        {.op = op_, .attrs = "axis=0" attrs_, .n_in = 1, .in = {fill(lo, hi, 1)}, __VA_ARGS__},    \
        {.op = op_, .attrs = "axis=1" attrs_, .n_in = 1, .in = {fill(lo, hi, 0, 5)}, __VA_ARGS__}, \
        {.op = op_,                                                                                \
         .attrs = "axis=-1" attrs_,                                                                \
         .n_in = 1,                                                                                \
         .in = {fill(lo, hi, 300, 171)},                                                           \
         __VA_ARGS__},                                                                             \
        {.op = op_,                                                                                \
         .attrs = "axis=0" attrs_,                                                                 \
         .n_in = 1,                                                                                \
         .in = {fill(lo, hi, 300, 171)},                                                           \
         __VA_ARGS__},                                                                             \
    {                                                                                              \
        .op = op_, .attrs = "axis=1" attrs_, .n_in = 1, .in = {fill(lo, hi, 3, 191, 67)},          \
        __VA_ARGS__                                                                                \
    }

#define GIVEN(n, ...) DATA(WEFT_F32, ((double[]){__VA_ARGS__}), n)
#define WANT(n, ...) .want = (double[]){__VA_ARGS__}, .n_want = n

static weft_val build_mean(weft_graph *g, const weft_val *in)
{
    return weft_mean(g, in[0],
                     WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}, .keepdims = true));
}

static weft_val build_too_many(weft_graph *g, const weft_val *in)
{
    return weft_sum(g, in[0], WEFT_OPTS(weft_reduce_opts, .n_axes = 9));
}

static weft_val build_full(weft_graph *g, const weft_val *in)
{
    return wf_binary(g, WF_OP_mul, in[0], weft_full(g, 2.5, WEFT_F32, 1, (int64_t[]){3}));
}

static weft_val build_argmax(weft_graph *g, const weft_val *in)
{
    return weft_argmax(g, in[0], -1, WEFT_OPTS(weft_arg_opts, .keepdims = true));
}

static weft_val build_cumsum(weft_graph *g, const weft_val *in)
{
    return weft_cumsum(g, in[0], 0,
                       WEFT_OPTS(weft_cumsum_opts, .exclusive = true, .reverse = true));
}

static weft_val build_size(weft_graph *g, const weft_val *in)
{
    return weft_size_of(g, in[0], WEFT_OPTS(weft_size_of_opts, .n_axes = 2, .axes = {0, -1}));
}

static weft_val build_segment(weft_graph *g, const weft_val *in)
{
    return weft_segment_sum(g, in[0], in[1], 5);
}

static weft_val build_broadcast(weft_graph *g, const weft_val *in)
{
    return weft_broadcast_to(g, in[0], 3, (int64_t[]){2, 4, 3});
}

static const struct op_case cases[] = {
    REDUCE("sum", F32, -2, 2),
    /* columns in pieces of 8: one chunk of rows, several, and a piece past the end */
    {.op = "sum", .attrs = "axes=[0]", .n_in = 1, .in = {F32(-2, 2, 70, 24)}},
    {.op = "sum", .attrs = "axes=[0]", .n_in = 1, .in = {F32(-2, 2, 3000, 8)}, .tol = 5e-6},
    {.op = "mean", .attrs = "axes=[0,1]", .n_in = 1, .in = {F32(-2, 2, 5, 40, 272)}},
    LARGE("sum", F32, 0, 1),
    REDUCE("mean", F32, -2, 2),
    LARGE("mean", F32, -2, 2),
    REDUCE("reduce_max", DISTINCT, -9, 9),
    LARGE("reduce_max", DISTINCT, -9, 9, .flags = OP_NO_HALF | OP_NO_GRAD),
    REDUCE("reduce_min", DISTINCT, -9, 9),
    LARGE("reduce_min", DISTINCT, -9, 9, .flags = OP_NO_HALF | OP_NO_GRAD),
    REDUCE("prod", F32, 0.5, 1.5),
    {.op = "prod", .attrs = "axes=[-1]", .n_in = 1, .in = {F32(0.99, 1.01, 301, 173)}},
    {.op = "prod", .attrs = "axes=[0]", .n_in = 1, .in = {F32(0.99, 1.01, 301, 173)}},
    REDUCE("norm_l1", SMOOTH, -2, 2),
    LARGE("norm_l1", SMOOTH, -1, 1),
    REDUCE("norm_l2", SMOOTH, 0.2, 2),
    LARGE("norm_l2", SMOOTH, -2, 2),
    REDUCE("logsumexp", F32, -3, 3),
    LARGE("logsumexp", F32, -3, 3),
    ALONG("argmax", "", DISTINCT, -9, 9, .flags = OP_NO_HALF),
    ALONG("argmin", " keepdims=true", DISTINCT, -9, 9, .flags = OP_NO_HALF),
    ALONG("cumsum", "", F32, 0, 1),
    ALONG("cumsum", " exclusive=true", F32, 0, 1),
    ALONG("cumsum", " reverse=true", F32, 0, 1),
    ALONG("cumsum", " exclusive=true reverse=true", F32, 0, 1),
    {.op = "cumsum", .attrs = "axis=0", .n_in = 1, .in = {F32(0, 1, 50001)}, .tol = 3e-5},

    {.op = "any", .n_in = 1, .in = {BOOLS(4, 5)}, .attrs = "axes=[1]", .flags = OP_EXACT},
    {.op = "all",
     .n_in = 1,
     .in = {BOOLS(4, 2)},
     .attrs = "axes=[1] keepdims=true",
     .flags = OP_EXACT},
    {.op = "any", .n_in = 1, .in = {BOOLS(0)}, .flags = OP_EXACT, WANT(1, 0)},
    {.op = "all", .n_in = 1, .in = {BOOLS(0)}, .flags = OP_EXACT, WANT(1, 1)},
    {.op = "all", .n_in = 1, .in = {BOOLS(70001)}, .flags = OP_EXACT, WANT(1, 0)},
    {.op = "any", .n_in = 1, .in = {F32(0, 1, 3)}, .fails = WEFT_EDTYPE, .text = "bool"},

    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 9, 3), IDS(I64, 0, 3, 9)}},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 9), SORTED(I32, 0, 3, 9)}},
    {.op = "segment_sum",
     .attrs = "n_segments=3",
     .n_in = 2,
     .in = {F32(-1, 1, 0, 2), IDS(I64, 0, 2, 0)}},
    {.op = "segment_sum",
     .attrs = "n_segments=0",
     .n_in = 2,
     .in = {F32(-1, 1, 0, 2), IDS(I64, 0, 2, 0)}},
    {.op = "segment_sum",
     .attrs = "n_segments=40",
     .n_in = 2,
     .in = {F32(-1, 1, 901, 33), IDS(I64, 0, 39, 901)}},
    {.op = "segment_sum", /* blocks of rows, tiles of columns */
     .attrs = "n_segments=6",
     .n_in = 2,
     .in = {F32(-1, 1, 1301, 300), IDS(I32, 1, 4, 1301)}},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 9, 2, 3), IDS(I64, 0, 3, 9)}},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {IDS(I64, -9, 9, 9, 2), IDS(I64, 0, 3, 9)}},
    {.build = build_segment,
     .name = "weft_segment_sum",
     .n_in = 2,
     .in = {F32(-1, 1, 9, 3), IDS(I64, 0, 4, 9)}},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 3), DATA(WEFT_I64, ((double[]){0, 4, 1}), 3)},
     .fails = WEFT_EDATA,
     .text = "ids[1] is 4"},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 3), DATA(WEFT_I32, ((double[]){0, 3, -1}), 3)},
     .fails = WEFT_EDATA,
     .text = "ids[2] is -1"},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 3), IDS(I64, 0, 3, 4)},
     .fails = WEFT_ESHAPE,
     .text = "rows"},
    {.op = "segment_sum",
     .attrs = "n_segments=-1",
     .n_in = 2,
     .in = {F32(-1, 1, 3), IDS(I64, 0, 3, 3)},
     .fails = WEFT_EINVAL},
    {.op = "segment_sum",
     .attrs = "n_segments=4",
     .n_in = 2,
     .in = {F32(-1, 1, 3), F32(0, 3, 3)},
     .fails = WEFT_EDTYPE},

    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 4, 5), F32(-1, 1, 5)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 4, 5), F32(-1, 1, 4, 1)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 4, 5), F32(-1, 1)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 3, 4, 5), F32(-1, 1, 1, 5)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 3, 4, 5), F32(-1, 1, 3, 4, 5)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 0, 5), F32(-1, 1, 5)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 301, 173), F32(-1, 1, 173)}},
    {.op = "reduce_to_like", .n_in = 2, .in = {F32(-1, 1, 7, 43, 173), F32(-1, 1, 43, 1)}},
    {.op = "reduce_to_like",
     .n_in = 2,
     .in = {F32(-1, 1, 4, 5), F32(-1, 1, 4)},
     .fails = WEFT_ESHAPE},
    {.op = "reduce_to_like",
     .n_in = 2,
     .in = {F32(-1, 1, 5), F32(-1, 1, 4, 5)},
     .fails = WEFT_ESHAPE,
     .text = "rank"},
    {.op = "broadcast_like", .n_in = 2, .in = {F32(-1, 1, 5), F32(-1, 1, 4, 5)}, .flags = OP_EXACT},
    {.op = "broadcast_like",
     .n_in = 2,
     .in = {F32(-1, 1, 4, 1), F32(-1, 1, 3, 4, 5)},
     .flags = OP_EXACT},
    {.op = "broadcast_like", .n_in = 2, .in = {F32(-1, 1), F32(-1, 1, 4, 5)}, .flags = OP_EXACT},
    {.op = "broadcast_like", .n_in = 2, .in = {F32(-1, 1, 5), F32(-1, 1, 0, 5)}, .flags = OP_EXACT},
    {.op = "broadcast_like",
     .n_in = 2,
     .in = {F32(-1, 1, 173), F32(-1, 1, 301, 173)},
     .flags = OP_EXACT},
    {.op = "broadcast_like",
     .n_in = 2,
     .in = {F32(-1, 1, 301, 1), F32(-1, 1, 301, 173)},
     .flags = OP_EXACT},
    {.op = "broadcast_like",
     .n_in = 2,
     .in = {F32(-1, 1), F32(-1, 1, 301, 173)},
     .flags = OP_EXACT},
    {.op = "broadcast_like", .n_in = 2, .in = {BOOLS(5), F32(-1, 1, 4, 5)}, .flags = OP_EXACT},
    {.op = "broadcast_like",
     .n_in = 2,
     .in = {F32(-1, 1, 4), F32(-1, 1, 4, 5)},
     .fails = WEFT_ESHAPE},
    {.build = build_broadcast,
     .name = "weft_broadcast_to",
     .n_in = 1,
     .in = {F32(-1, 1, 4, 1)},
     .flags = OP_EXACT},
    {.op = "broadcast_to",
     .attrs = "shape=[2,-1]",
     .n_in = 1,
     .in = {F32(-1, 1, 3)},
     .fails = WEFT_ESHAPE},
    {.op = "broadcast_to",
     .attrs = "shape=[4,3000000000,3000000000]",
     .n_in = 1,
     .in = {F32(-1, 1)},
     .fails = WEFT_ESHAPE,
     .text = "overflows"},
    {.op = "size_of", .attrs = "axes=[0,2]", .n_in = 1, .in = {F32(-1, 1, 4, 3, 5)}, WANT(1, 20)},
    {.op = "size_of",
     .attrs = "dtype=i64",
     .n_in = 1,
     .in = {F32(-1, 1, 4, 3, 0)},
     WANT(1, 0),
     .flags = OP_F32_ONLY},
    {.op = "size_of", .n_in = 1, .in = {F32(-1, 1)}, WANT(1, 1)},
    {.op = "size_of", .attrs = "dtype=bool", .n_in = 1, .in = {F32(-1, 1)}, .fails = WEFT_EDTYPE},
    {.build = build_size,
     .name = "weft_size_of",
     .n_in = 1,
     .in = {F32(-1, 1, 4, 3, 5)},
     WANT(1, 20)},
    {.op = "zeros_like", .n_in = 1, .in = {F32(-1, 1, 4, 3)}, .flags = OP_EXACT},
    {.op = "ones_like", .n_in = 1, .in = {IDS(I64, 4, 9, 3)}, .flags = OP_EXACT, WANT(3, 1, 1, 1)},
    {.op = "ones_like", .n_in = 1, .in = {F32(4, 9, 50001)}, .flags = OP_EXACT},
    {.op = "full",
     .attrs = "shape=[2,2] value=1.5",
     .n_in = 0,
     .flags = OP_EXACT | OP_F32_ONLY,
     WANT(4, 1.5, 1.5, 1.5, 1.5)},
    {.op = "full",
     .attrs = "shape=[3] value=7 dtype=i64",
     .n_in = 0,
     .flags = OP_EXACT,
     WANT(3, 7, 7, 7)},
    {.op = "full", .attrs = "shape=[-3] value=7", .n_in = 0, .fails = WEFT_ESHAPE},
    {.build = build_full,
     .name = "weft_full",
     .n_in = 1,
     .in = {F32(-1, 1, 2, 3)},
     .flags = OP_F32_ONLY | OP_NO_GRAD},

    /* integers */
    {.op = "sum", .attrs = "axes=[1]", .n_in = 1, .in = {IDS(I32, -9, 9, 4, 9)}, .flags = OP_EXACT},
    {.op = "sum", .n_in = 1, .in = {IDS(I64, -9, 9, 4, 9)}, .flags = OP_EXACT},
    {.op = "prod", .n_in = 1, .in = {IDS(I64, 1, 3, 9)}, .flags = OP_EXACT},
    {.op = "reduce_max",
     .attrs = "axes=[0]",
     .n_in = 1,
     .in = {IDS(I8, -9, 9, 4, 9)},
     .flags = OP_EXACT},
    {.op = "reduce_min",
     .attrs = "axes=[0]",
     .n_in = 1,
     .in = {IDS(U8, 3, 9, 0, 2)},
     .flags = OP_EXACT,
     WANT(2, 255, 255)},
    {.op = "argmax", .n_in = 1, .in = {IDS(I32, -9, 9, 4, 9)}, .flags = OP_EXACT},
    {.op = "cumsum",
     .attrs = "axis=0",
     .n_in = 1,
     .in = {IDS(I32, -9, 9, 4, 9)},
     .flags = OP_EXACT},
    {.op = "sum", .n_in = 1, .in = {BOOLS(3)}, .fails = WEFT_EDTYPE},
    {.op = "mean", .n_in = 1, .in = {IDS(I32, 0, 1, 3)}, .fails = WEFT_EDTYPE, .text = "float"},

    /* errors */
    {.op = "sum",
     .attrs = "axes=[2]",
     .n_in = 1,
     .in = {F32(-1, 1, 3, 4)},
     .fails = WEFT_ERANGE,
     .text = "axis 2"},
    {.op = "sum",
     .attrs = "axes=[1,-1]",
     .n_in = 1,
     .in = {F32(-1, 1, 3, 4)},
     .fails = WEFT_EINVAL,
     .text = "twice"},
    {.op = "argmax", .attrs = "axis=3", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ERANGE},
    {.op = "argmax", .n_in = 1, .in = {F32(-1, 1, 3, 0)}, .fails = WEFT_ESHAPE, .text = "empty"},
    {.op = "cumsum", .attrs = "axis=-3", .n_in = 1, .in = {F32(-1, 1, 3, 4)}, .fails = WEFT_ERANGE},
    {.build = build_too_many,
     .name = "weft_sum",
     .n_in = 1,
     .in = {F32(-1, 1, 3, 4)},
     .fails = WEFT_EINVAL},

    /* values at the edges */
    {.build = build_mean,
     .name = "weft_mean",
     .n_in = 1,
     .in = {DATA(WEFT_F32, ((double[]){1, 2, 3, 5}), 2, 2)},
     WANT(2, 1.5, 4)},
    {.build = build_argmax,
     .name = "weft_argmax",
     .n_in = 1,
     .in = {DATA(WEFT_F32, ((double[]){1, 7, 7, 9, NAN, 10}), 2, 3)},
     WANT(2, 1, 1),
     .flags = OP_EXACT},
    {.build = build_cumsum,
     .name = "weft_cumsum",
     .n_in = 1,
     .in = {GIVEN(4, 1, 2, 3, 4)},
     WANT(4, 9, 7, 4, 0)},
    {.op = "argmin", .n_in = 1, .in = {GIVEN(5, 3, 1, 1, 2, 5)}, WANT(1, 1), .flags = OP_EXACT},
    {.op = "reduce_max", .n_in = 1, .in = {GIVEN(3, 1, NAN, 7)}, WANT(1, NAN), .flags = OP_NO_GRAD},
    {.op = "reduce_min", .n_in = 1, .in = {GIVEN(3, 1, NAN, 7)}, WANT(1, NAN), .flags = OP_NO_GRAD},
    {.op = "reduce_max", .n_in = 1, .in = {F32(0, 1, 0)}, WANT(1, -INFINITY), .flags = OP_NO_GRAD},
    {.op = "mean", .n_in = 1, .in = {F32(0, 1, 0)}, WANT(1, NAN), .flags = OP_NO_GRAD},
    {.op = "logsumexp",
     .n_in = 1,
     .in = {GIVEN(3, 1000, 1000, -INFINITY)},
     WANT(1, 1000.6931471805599),
     .tol_want = 1e-5,
     .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "logsumexp",
     .n_in = 1,
     .in = {GIVEN(2, -INFINITY, -INFINITY)},
     WANT(1, -INFINITY),
     .flags = OP_NO_GRAD},
    {.op = "logsumexp", .n_in = 1, .in = {GIVEN(2, 3, NAN)}, WANT(1, NAN), .flags = OP_NO_GRAD},
    {.op = "logsumexp",
     .n_in = 1,
     .in = {GIVEN(2, 3, INFINITY)},
     WANT(1, INFINITY),
     .flags = OP_NO_GRAD},
    {.op = "norm_l2", .n_in = 1, .in = {GIVEN(2, 3, -4)}, WANT(1, 5)},
    /* gradients of products with zeros: one, two */
    {.op = "prod", .n_in = 1, .in = {GIVEN(3, 2, 0, 3)}, WANT(1, 0), .flags = OP_NO_GRAD2},
    {.op = "prod", .n_in = 1, .in = {GIVEN(3, 0, 0, 3)}, WANT(1, 0), .flags = OP_NO_GRAD2},
    /* the sum of many f32 keeps its digits: 0.1 a hundred thousand times */
    {.op = "sum", .n_in = 1, .in = {F32(0.1, 0.1000001, 100000)}, .tol = 5e-6, .flags = OP_NO_HALF},
};

int main(int argc, char **argv)
{
    return op_main(argc, argv, "reductions", cases, OP_COUNT(cases));
}
