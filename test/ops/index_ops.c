/* index_ops.c - the op table test of ops that find elements by index. */
#include <math.h>

#include "ops/harness.h"
#include "weft/ops_index.h"
#include "weft/ops_shape.h"

#define WANT(...) .want = (double[]){__VA_ARGS__}, .n_want = OP_RANK(__VA_ARGS__)
#define NUMBERS(...) ((double[]){__VA_ARGS__})
#define MOVES .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY
#define OFFSETS(dtype, ...) DATA(WEFT_##dtype, NUMBERS(__VA_ARGS__), OP_RANK(__VA_ARGS__))
#define SIX NUMBERS(0, 1, 2, 3, 4, 5)

static weft_val square(weft_graph *g, weft_val v)
{
    return wf_binary(g, WF_OP_mul, v, v);
}

static weft_val build_gather_square(weft_graph *g, const weft_val *in)
{
    return square(g, weft_gather(g, in[0], in[1], WEFT_OPTS(weft_gather_opts, .axis = -1)));
}

static weft_val build_two_lookups(weft_graph *g, const weft_val *in)
{
    return wf_binary(g, WF_OP_mul, weft_embedding(g, in[0], in[1]),
                     weft_embedding(g, in[0], in[2]));
}

static weft_val build_top_k(weft_graph *g, const weft_val *in)
{
    weft_val places, v = weft_top_k(g, in[0], 3, &places);

    return wf_binary(g, WF_OP_mul, v, weft_take_along(g, in[0], places, -1));
}

static weft_val build_sort_first(weft_graph *g, const weft_val *in)
{
    return square(
        g, weft_sort(g, in[0], WEFT_OPTS(weft_sort_opts, .axis = WEFT_ZERO, .descending = true)));
}

static weft_val build_argsort(weft_graph *g, const weft_val *in)
{
    return weft_identity(g, weft_argsort(g, in[0], NULL));
}

static weft_val build_one_hot(weft_graph *g, const weft_val *in)
{
    return weft_one_hot(
        g, in[0], 3,
        WEFT_OPTS(weft_one_hot_opts, .axis = WEFT_ZERO, .off = -1, .allow_outside = true));
}

static weft_val build_bag_squared(weft_graph *g, const weft_val *in)
{
    return square(g, weft_embedding_bag(g, in[0], in[1], in[2],
                                        WEFT_OPTS(weft_embedding_bag_opts, .weights = in[3],
                                                  .combiner = WEFT_COMBINER_SQRTN)));
}

static weft_val build_bag_of_segments(weft_graph *g, const weft_val *in)
{
    weft_val offsets = weft_segment_offsets_like(g, in[2], in[3]);

    return wf_binary(g, WF_OP_add, weft_embedding_bag(g, in[0], in[1], offsets, NULL), in[3]);
}

static weft_val build_scatter_square(weft_graph *g, const weft_val *in)
{
    return square(g, weft_scatter_add_like(g, in[0], in[1], in[2]));
}

static weft_val build_scatter_rows(weft_graph *g, const weft_val *in)
{
    return square(g, weft_scatter_add(g, in[0], in[1], 4));
}

static weft_val build_scatter_nd(weft_graph *g, const weft_val *in)
{
    return square(g, weft_scatter_nd_add(g, in[0], in[1], 2, (int64_t[]){3, 4}));
}

/* clang-format off */
static const struct op_case cases[] = {
    /* gather */
    {.op = "gather", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 3, 2), DATA(WEFT_I32, NUMBERS(2, 0), 2)}, .flags = OP_EXACT, WANT(4, 5, 0, 1)},
    {.op = "gather", .attrs = "axis=1", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 2, 3), DATA(WEFT_I64, NUMBERS(2, 0, 2), 3)},
     WANT(2, 0, 2, 5, 3, 5)},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 7, 3), IDS(I64, 0, 6, 4)}},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 7, 3), IDS(I32, 0, 6)}},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 7), IDS(I32, 0, 6, 2, 5)}},
    {.op = "gather", .attrs = "axis=-1", .n_in = 2, .in = {F32(-1, 1, 3, 4), IDS(U8, 0, 3, 2, 3)}},
    {.op = "gather", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 2, 5, 3, 2), IDS(I32, 0, 4, 4)}},
    {.op = "gather", .attrs = "axis=1 batch_dims=1", .n_in = 2, .in = {F32(-1, 1, 4, 5, 3), IDS(I32, 0, 4, 4, 2)}},
    {.op = "gather", .attrs = "axis=2 batch_dims=1", .n_in = 2, .in = {F32(-1, 1, 2, 3, 5), IDS(I64, 0, 4, 2, 4)}},
    {.op = "gather", .attrs = "axis=2 batch_dims=2", .n_in = 2, .in = {F32(-1, 1, 2, 3, 5, 2), IDS(I64, 0, 4, 2, 3)}},
    {.op = "gather", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 1, 5, 3), IDS(I32, 0, 4, 4)}},
    {.op = "gather", .attrs = "axis=2 batch_dims=1", .n_in = 2, .in = {F32(-1, 1, 1, 1, 9), IDS(I64, 0, 8, 1, 2)}},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 5, 4), IDS(I32, 0, 4, 0)}},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 5, 0), IDS(I32, 0, 4, 3)}},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 300, 70), IDS(I32, 0, 299, 500)}, .flags = OP_NO_GRAD | OP_NO_GRAD2},
    {.op = "gather", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 70, 40, 9), IDS(I64, 0, 39, 50)}, .flags = OP_NO_GRAD},
    {.op = "gather", .attrs = "axis=1 batch_dims=1", .n_in = 2, .in = {F32(-1, 1, 90, 60), IDS(I32, 0, 59, 90, 70)}, .flags = OP_NO_GRAD},
    {.op = "gather_grad", .attrs = "axis=1 batch_dims=1", .n_in = 3, .in = {F32(-1, 1, 90, 70), IDS(I32, 0, 59, 90, 70), F32(0, 1, 90, 60)}, .flags = OP_NO_GRAD, .tol_half = 8},
    {.op = "gather", .n_in = 2, .in = {IDS(I64, -99, 99, 9, 3), IDS(I32, 0, 8, 5)}, MOVES},
    {.op = "gather", .n_in = 2, .in = {BOOLS(9, 3), IDS(I8, 0, 8, 5)}, MOVES},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 3, 2), DATA(WEFT_I32, NUMBERS(0, 3), 2)}, .fails = WEFT_EDATA, .text = "index 3 at position 1"},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 3, 2), DATA(WEFT_I64, NUMBERS(0, 1, -1), 3)}, .fails = WEFT_EDATA, .text = "index -1 at position 2"},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 0, 2), DATA(WEFT_I64, NUMBERS(0), 1)}, .fails = WEFT_EDATA, .text = "index 0"},
    {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 3, 2), F32(0, 2, 2)}, .fails = WEFT_EDTYPE, .text = "integers"},
    {.op = "gather", .attrs = "axis=2", .n_in = 2, .in = {F32(-1, 1, 3, 2), IDS(I32, 0, 1, 2)}, .fails = WEFT_ERANGE, .text = "axis 2"},
    {.op = "gather", .attrs = "axis=1 batch_dims=1", .n_in = 2, .in = {F32(-1, 1, 3, 2), IDS(I32, 0, 1, 2)}, .fails = WEFT_ESHAPE, .text = "batch sizes"},
    {.op = "gather", .attrs = "axis=0 batch_dims=1", .n_in = 2, .in = {F32(-1, 1, 3, 2), IDS(I32, 0, 1, 3)}, .fails = WEFT_ERANGE, .text = "batch_dims 1"},
    {.name = "gather squared", .build = build_gather_square, .n_in = 2, .in = {F32(-1, 1, 2, 4), IDS(I32, 0, 3, 3)}},
    {.op = "gather_grad", .attrs = "axis=1", .n_in = 3, .in = {F32(-1, 1, 2, 3), DATA(WEFT_I32, NUMBERS(1, 1, 0), 3), F32(-1, 1, 2, 4)}, .no_grad = 4},

    /* gather_nd, scatter_nd_add */
    {.op = "gather_nd", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 2, 3), DATA(WEFT_I32, NUMBERS(1, 2, 0, 0), 2, 2)}, .flags = OP_EXACT | OP_STATIC, WANT(5, 0)},
    {.op = "gather_nd", .n_in = 2, .in = {F32(-1, 1, 4, 3, 5), IDS(I64, 0, 2, 6, 2)}, .flags = OP_STATIC},
    {.op = "gather_nd", .n_in = 2, .in = {F32(-1, 1, 4, 3), IDS(I32, 0, 3, 2, 3, 1)}, .flags = OP_STATIC},
    {.op = "gather_nd", .n_in = 2, .in = {F32(-1, 1, 2, 3), IDS(I32, 0, 0, 3, 0)}, .flags = OP_STATIC},
    {.op = "gather_nd", .n_in = 2, .in = {IDS(U8, 0, 200, 4, 3), IDS(I32, 0, 2, 5, 2)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY | OP_STATIC},
    {.op = "gather_nd", .n_in = 2, .in = {F32(-1, 1, 2, 3), DATA(WEFT_I32, NUMBERS(1, 2, 0, 3), 2, 2)}, .fails = WEFT_EDATA, .text = "index 3 at position [1,1]", .flags = OP_STATIC},
    {.op = "gather_nd", .n_in = 2, .in = {F32(-1, 1, 2), IDS(I32, 0, 1, 2, 2)}, .fails = WEFT_ESHAPE, .text = "at most 1", .flags = OP_STATIC},
    {.op = "scatter_nd_add", .attrs = "shape=[2,2]", .n_in = 2, .in = {DATA(WEFT_I32, NUMBERS(1, 0, 1, 0, 0, 1), 3, 2), DATA(WEFT_F32, SIX, 3)},
     .flags = OP_STATIC, WANT(0, 2, 1, 0)},
    {.op = "scatter_nd_add", .n_in = 3, .in = {IDS(I64, 0, 2, 5, 1), F32(-1, 1, 5, 4), F32(-1, 1, 3, 4)}, .no_grad = 4, .flags = OP_STATIC},
    {.op = "scatter_nd_add", .attrs = "shape=[20,30,7]", .n_in = 2, .in = {IDS(I64, 0, 19, 900, 2), F32(-1, 1, 900, 7)}, .flags = OP_STATIC | OP_NO_GRAD, .tol_half = 8},
    {.op = "gather_nd", .n_in = 2, .in = {F32(-1, 1, 20, 30, 7), IDS(I64, 0, 19, 3000, 2)}, .flags = OP_STATIC | OP_NO_GRAD},
    {.op = "scatter_nd_add", .attrs = "shape=[3]", .n_in = 2, .in = {DATA(WEFT_I32, NUMBERS(3), 1, 1), F32(-1, 1, 1)}, .fails = WEFT_EDATA, .text = "index 3", .flags = OP_STATIC},
    {.op = "scatter_nd_add", .attrs = "shape=[3]", .n_in = 2, .in = {IDS(I32, 0, 2, 4, 1), F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "addends", .flags = OP_STATIC},
    {.op = "scatter_nd_add", .attrs = "shape=[-3]", .n_in = 2, .in = {IDS(I32, 0, 2, 3, 1), F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "size -3", .flags = OP_STATIC},
    {.name = "scatter_nd_add squared", .build = build_scatter_nd, .n_in = 2, .in = {IDS(I32, 0, 2, 6, 2), F32(-1, 1, 6)}, .flags = OP_STATIC},

    /* scatter_add */
    {.op = "scatter_add", .attrs = "rows=3", .n_in = 2, .in = {DATA(WEFT_I32, NUMBERS(2, 0, 2), 3), DATA(WEFT_F32, SIX, 3, 2)}, WANT(2, 3, 0, 0, 4, 6)},
    {.op = "scatter_add", .attrs = "rows=5", .n_in = 2, .in = {IDS(I64, 0, 4, 3, 4), F32(-1, 1, 3, 4, 6)}},
    {.op = "scatter_add", .attrs = "rows=5", .n_in = 2, .in = {IDS(I64, 0, 4, 9), F32(-1, 1, 9)}},
    {.op = "scatter_add", .attrs = "rows=5", .n_in = 2, .in = {IDS(I64, 0, 4), F32(-1, 1, 3)}},
    {.op = "scatter_add", .attrs = "rows=0", .n_in = 2, .in = {IDS(I64, 0, 4, 0), F32(-1, 1, 0, 3)}},
    {.op = "scatter_add", .n_in = 3, .in = {IDS(I32, 0, 99, 700), F32(-1, 1, 700, 33), F32(-1, 1, 100, 33)}, .flags = OP_NO_GRAD | OP_NO_GRAD2, .tol = 2e-5, .tol_half = 8},
    {.op = "scatter_add", .attrs = "rows=4", .n_in = 2, .in = {IDS(I32, 0, 3, 20), IDS(I64, -1000000, 1000000, 20, 2)}, MOVES},
    {.op = "scatter_add", .attrs = "rows=2", .n_in = 2, .in = {DATA(WEFT_I32, NUMBERS(0, 2), 2), F32(-1, 1, 2)}, .fails = WEFT_EDATA, .text = "index 2 at position 1"},
    {.op = "scatter_add", .n_in = 2, .in = {IDS(I32, 0, 1, 2), F32(-1, 1, 2)}, .fails = WEFT_EINVAL, .text = "rows"},
    {.op = "scatter_add", .attrs = "rows=2", .n_in = 2, .in = {IDS(I32, 0, 1, 2), F32(-1, 1, 3)}, .fails = WEFT_ESHAPE, .text = "2, 3"},
    {.op = "scatter_add", .attrs = "rows=2", .n_in = 2, .in = {IDS(I32, 0, 1, 2), BOOLS(2)}, .fails = WEFT_EDTYPE, .text = "bool"},
    {.name = "scatter_add like, squared", .build = build_scatter_square, .n_in = 3, .in = {IDS(I32, 0, 3, 6), F32(-1, 1, 6, 2), F32(-1, 1, 4, 2)}, .no_grad = 4},
    {.name = "scatter_add of rows, squared", .build = build_scatter_rows, .n_in = 2, .in = {IDS(I32, 0, 3, 6), F32(-1, 1, 6, 2)}},

    /* take_along */
    {.op = "take_along", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 2, 3), DATA(WEFT_I32, NUMBERS(2, 0, 1, 1), 2, 2)}, .flags = OP_EXACT, WANT(2, 0, 4, 4)},
    {.op = "take_along", .attrs = "axis=0", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 2, 3), DATA(WEFT_I64, NUMBERS(1, 0, 1), 1, 3)}, .flags = OP_EXACT, WANT(3, 1, 5)},
    {.op = "take_along", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 3, 4, 5), IDS(I32, 0, 3, 3, 6, 5)}},
    {.op = "take_along", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 3, 4), IDS(I32, 0, 3, 3, 0)}},
    {.op = "take_along", .n_in = 2, .in = {F32(-1, 1, 40, 70), IDS(I32, 0, 69, 40, 90)}, .flags = OP_NO_GRAD | OP_NO_GRAD2},
    {.op = "take_along", .attrs = "axis=1", .n_in = 2, .in = {F32(-1, 1, 20, 30, 41), IDS(I64, 0, 29, 20, 25, 41)}, .flags = OP_NO_GRAD},
    {.op = "take_along_grad", .attrs = "axis=1", .n_in = 3, .in = {F32(-1, 1, 20, 25, 41), IDS(I64, 0, 29, 20, 25, 41), F32(0, 1, 20, 30, 41)}, .flags = OP_NO_GRAD, .tol_half = 8},
    {.op = "take_along", .n_in = 2, .in = {IDS(I8, -9, 9, 4, 7), IDS(I32, 0, 6, 4, 9)}, MOVES},
    {.op = "take_along", .n_in = 2, .in = {F32(-1, 1, 2, 3), DATA(WEFT_I32, NUMBERS(2, 0, 1, 5), 2, 2)}, .fails = WEFT_EDATA, .text = "index 5 at position 3"},
    {.op = "take_along", .n_in = 2, .in = {F32(-1, 1, 2, 3), IDS(I32, 0, 2, 3, 3)}, .fails = WEFT_ESHAPE, .text = "2, 3"},
    {.op = "take_along_grad", .n_in = 3, .in = {F32(-1, 1, 2, 4), IDS(I32, 0, 2, 2, 4), F32(-1, 1, 2, 3)}, .no_grad = 4},

    /* one_hot */
    {.op = "one_hot", .attrs = "depth=3", .n_in = 1, .in = {DATA(WEFT_I32, NUMBERS(2, 0), 2)}, .flags = OP_EXACT | OP_NO_GRAD, WANT(0, 0, 1, 1, 0, 0)},
    {.op = "one_hot", .attrs = "depth=3 axis=0 on=5 off=-1", .n_in = 1, .in = {DATA(WEFT_I64, NUMBERS(2, 0), 2)}, .flags = OP_EXACT | OP_NO_GRAD, WANT(-1, 5, -1, -1, 5, -1)},
    {.op = "one_hot", .attrs = "depth=10 axis=1 dtype=bf16", .n_in = 1, .in = {IDS(U8, 0, 9, 5, 7)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "one_hot", .attrs = "depth=100 dtype=i32", .n_in = 1, .in = {IDS(I32, 0, 99, 70)}, MOVES},
    {.op = "one_hot", .attrs = "depth=5 dtype=bool", .n_in = 1, .in = {IDS(I32, 0, 4)}, MOVES},
    {.op = "one_hot", .attrs = "depth=5", .n_in = 1, .in = {IDS(I32, 0, 4, 0)}, .flags = OP_EXACT | OP_NO_GRAD},
    {.op = "one_hot", .attrs = "depth=1000", .n_in = 1, .in = {IDS(I32, 0, 999, 300)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "one_hot", .attrs = "depth=50 axis=1 dtype=f64", .n_in = 1, .in = {IDS(I64, 0, 49, 60, 33)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "one_hot", .attrs = "depth=3", .n_in = 1, .in = {DATA(WEFT_I32, NUMBERS(2, 3), 2)}, .fails = WEFT_EDATA, .text = "index 3 at position 1"},
    {.op = "one_hot", .attrs = "depth=-3", .n_in = 1, .in = {IDS(I32, 0, 1, 2)}, .fails = WEFT_EINVAL, .text = "depth -3"},
    {.op = "one_hot", .attrs = "depth=3", .n_in = 1, .in = {F32(0, 1, 2)}, .fails = WEFT_EDTYPE, .text = "integers"},
    {.name = "one_hot builder", .build = build_one_hot, .n_in = 1, .in = {DATA(WEFT_I32, NUMBERS(1, -1), 2)}, .flags = OP_EXACT | OP_NO_GRAD,
     WANT(-1, -1, 1, -1, -1, -1)},

    /* top_k, sort */
    {.op = "top_k", .attrs = "k=2", .n_in = 1, .in = {DATA(WEFT_F32, NUMBERS(1, 5, 3, 2, 2, 7), 2, 3)}, .flags = OP_EXACT | OP_NO_GRAD, WANT(5, 3, 7, 2)},
    {.op = "top_k", .attrs = "k=3", .n_in = 1, .in = {DISTINCT(-2, 2, 4, 9)}, .flags = OP_EXACT},
    {.op = "top_k", .attrs = "k=5", .n_in = 1, .in = {DISTINCT(-2, 2, 5)}, .flags = OP_EXACT},
    {.op = "top_k", .attrs = "k=0", .n_in = 1, .in = {DISTINCT(-2, 2, 3, 5)}, .flags = OP_EXACT},
    {.op = "top_k", .attrs = "k=7", .n_in = 1, .in = {F32(-2, 2, 50, 300)}, .flags = OP_EXACT | OP_NO_GRAD | OP_NO_HALF},
    {.op = "top_k", .attrs = "k=4", .n_in = 1, .in = {IDS(I64, -3, 3, 6, 20)}, MOVES},
    {.op = "top_k", .attrs = "k=4", .n_in = 1, .in = {IDS(U8, 0, 3, 6, 20)}, MOVES},
    {.op = "top_k", .attrs = "k=3", .n_in = 1, .in = {DATA(WEFT_F32, NUMBERS(1, NAN, 3, NAN), 4)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "top_k", .attrs = "k=4", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ERANGE, .text = "4 largest of 3"},
    {.op = "top_k", .attrs = "k=-1", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ERANGE, .text = "-1"},
    {.name = "top_k builder", .build = build_top_k, .n_in = 1, .in = {DISTINCT(-2, 2, 3, 7)}},
    {.op = "sort", .n_in = 1, .in = {DATA(WEFT_F32, NUMBERS(3, 1, 2, 5, -INFINITY, 4), 2, 3)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY, WANT(1, 2, 3, -INFINITY, 4, 5)},
    {.op = "sort", .attrs = "axis=0 descending=true", .n_in = 1, .in = {DISTINCT(-2, 2, 9, 4)}, .flags = OP_EXACT},
    {.op = "sort", .attrs = "axis=1", .n_in = 1, .in = {DISTINCT(-2, 2, 2, 5, 3)}, .flags = OP_EXACT},
    {.op = "sort", .n_in = 1, .in = {DISTINCT(-2, 2, 1)}, .flags = OP_EXACT},
    {.op = "sort", .n_in = 1, .in = {DISTINCT(-2, 2, 3, 0)}, .flags = OP_EXACT},
    {.op = "sort", .n_in = 1, .in = {F32(-2, 2, 7, 1500)}, .flags = OP_EXACT | OP_NO_GRAD | OP_NO_HALF},
    {.op = "sort", .attrs = "descending=true", .n_in = 1, .in = {IDS(I32, -5, 5, 40, 60)}, MOVES},
    {.op = "sort", .attrs = "axis=0", .n_in = 1, .in = {IDS(I64, -5, 5, 40, 60)}, MOVES},
    {.op = "sort", .n_in = 1, .in = {IDS(I8, -128, 127, 2, 400)}, MOVES},
    {.op = "sort", .n_in = 1, .in = {BOOLS(3, 30)}, MOVES},
    {.op = "sort", .attrs = "descending=true", .n_in = 1, .in = {DATA(WEFT_F32, NUMBERS(1, NAN, 3, NAN, -0.0, 0.0), 6)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY},
    {.op = "sort", .attrs = "axis=1", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_ERANGE, .text = "axis 1"},
    {.name = "sort along the first axis, squared", .build = build_sort_first, .n_in = 1, .in = {DISTINCT(-2, 2, 5, 3)}},
    {.name = "argsort keeps the order of ties and puts NaN last", .build = build_argsort, .n_in = 1,
     .in = {DATA(WEFT_F32, NUMBERS(2, NAN, 1, 2, 1, NAN, -0.0, 0.0), 8)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY, WANT(6, 7, 2, 4, 0, 3, 1, 5)},

    /* embedding */
    {.op = "embedding", .n_in = 2, .in = {DATA(WEFT_F32, SIX, 3, 2), DATA(WEFT_I64, NUMBERS(2, 0, 2), 3)}, WANT(4, 5, 0, 1, 4, 5)},
    {.op = "embedding", .n_in = 2, .in = {F32(-1, 1, 6, 5), IDS(I32, 0, 5, 3, 4)}},
    {.op = "embedding", .n_in = 2, .in = {F32(-1, 1, 6, 16), IDS(I32, 0, 5)}},
    {.op = "embedding", .n_in = 2, .in = {F32(-1, 1, 6, 1), IDS(I32, 0, 5, 0)}},
    {.op = "embedding", .n_in = 2, .in = {F32(-1, 1, 1000, 16), IDS(I32, 0, 999, 64, 26)}, .flags = OP_NO_GRAD | OP_NO_GRAD2},
    {.op = "embedding", .n_in = 2, .in = {F32(-1, 1, 6, 5), DATA(WEFT_I64, NUMBERS(1, 6), 2)}, .fails = WEFT_EDATA, .text = "index 6 at position 1"},
    {.op = "embedding", .n_in = 2, .in = {F32(-1, 1, 6, 5, 2), IDS(I32, 0, 5, 3)}, .fails = WEFT_ESHAPE, .text = "rank 2"},
    {.op = "embedding", .n_in = 2, .in = {IDS(I32, 0, 1, 6, 5), IDS(I32, 0, 5, 3)}, .fails = WEFT_EDTYPE, .text = "floats"},
    {.name = "two lookups of a table", .build = build_two_lookups, .n_in = 3, .in = {F32(-1, 1, 4, 3), IDS(I32, 0, 3, 5), IDS(I64, 0, 3, 5)}},
    {.op = "embedding_grad", .n_in = 3, .in = {DATA(WEFT_I32, NUMBERS(1, 1, 0), 3), DATA(WEFT_F32, SIX, 3, 2), F32(-1, 1, 3, 2)}, .no_grad = 4, WANT(4, 5, 2, 4, 0, 0)},
    {.op = "embedding_grad", .n_in = 3, .in = {IDS(I32, 0, 49, 40, 20), F32(-1, 1, 40, 20, 16), F32(-1, 1, 50, 16)}, .flags = OP_NO_GRAD, .tol = 2e-5, .tol_half = 8},

    /* embedding_bag */
    {.op = "embedding_bag", .attrs = "combiner=sum", .n_in = 3, .in = {DATA(WEFT_F32, SIX, 3, 2), DATA(WEFT_I32, NUMBERS(2, 0, 2), 3), OFFSETS(I32, 0, 2, 2, 3)},
     WANT(4, 6, 0, 0, 4, 5)},
    {.op = "embedding_bag", .n_in = 3, .in = {DATA(WEFT_F32, SIX, 3, 2), DATA(WEFT_I32, NUMBERS(2, 0, 2), 3), OFFSETS(I32, 0, 2, 2, 3)}, WANT(2, 3, 0, 0, 4, 5)},
    {.op = "embedding_bag", .attrs = "combiner=sqrtn", .n_in = 4,
     .in = {DATA(WEFT_F32, SIX, 3, 2), DATA(WEFT_I64, NUMBERS(2, 0), 2), OFFSETS(I64, 0, 2), DATA(WEFT_F32, NUMBERS(3, 4), 2)}, WANT(2.4, 3.8)},
    {.op = "embedding_bag", .attrs = "combiner=sum", .n_in = 4, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 7), OFFSETS(I32, 0, 3, 3, 7), F32(0.5, 1.5, 7)}},
    {.op = "embedding_bag", .attrs = "combiner=mean", .n_in = 4, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 7), OFFSETS(I64, 0, 3, 3, 7), F32(0.5, 1.5, 7)}},
    {.op = "embedding_bag", .attrs = "combiner=sqrtn", .n_in = 4, .in = {F32(-1, 1, 5, 3), IDS(I64, 0, 4, 7), OFFSETS(I32, 0, 3, 3, 7), F32(0.5, 1.5, 7)}},
    {.op = "embedding_bag", .attrs = "combiner=sqrtn", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I64, 0, 4, 7), OFFSETS(I32, 0, 0, 3, 7)}},
    {.op = "embedding_bag", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I64, 0, 4, 0), OFFSETS(I32, 0, 0, 0)}},
    {.op = "embedding_bag", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I64, 0, 4, 0), OFFSETS(I32, 0)}},
    {.op = "embedding_bag", .n_in = 4, .in = {F32(-1, 1, 5, 3), IDS(I64, 0, 4, 2), OFFSETS(I32, 0, 2), DATA(WEFT_F32, NUMBERS(1, -1), 2)}, .flags = OP_NO_GRAD, WANT(0, 0, 0)},
    {.op = "embedding_bag", .n_in = 3, .in = {F32(-1, 1, 5, 3), DATA(WEFT_I32, NUMBERS(1, 5), 2), OFFSETS(I32, 0, 2)}, .fails = WEFT_EDATA, .text = "id 5 at position 1"},
    {.op = "embedding_bag", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 2), OFFSETS(I32, 0, 2, 1, 2)}, .fails = WEFT_EDATA, .text = "offset 1 at position 2"},
    {.op = "embedding_bag", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 2), OFFSETS(I32, 0, 1)}, .fails = WEFT_EDATA, .text = "offset 1 at position 1"},
    {.op = "embedding_bag", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 2), OFFSETS(I32, 1, 2)}, .fails = WEFT_EDATA, .text = "offset 1 at position 0"},
    {.op = "embedding_bag", .attrs = "combiner=max", .n_in = 3, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 2), OFFSETS(I32, 0, 2)}, .fails = WEFT_EINVAL, .text = "combiner 'max'"},
    {.op = "embedding_bag", .n_in = 4, .in = {F32(-1, 1, 5, 3), IDS(I32, 0, 4, 2), OFFSETS(I32, 0, 2), F32(0, 1, 3)}, .fails = WEFT_ESHAPE, .text = "3, 2"},
    {.name = "embedding_bag builder, squared", .build = build_bag_squared, .n_in = 4, .in = {F32(-1, 1, 4, 2), IDS(I32, 0, 3, 5), OFFSETS(I32, 0, 3, 5), F32(0.5, 1.5, 5)}},
    {.name = "embedding_bag of segments", .build = build_bag_of_segments, .n_in = 4,
     .in = {F32(-1, 1, 4, 2), IDS(I32, 0, 3, 5), DATA(WEFT_I32, NUMBERS(0, 0, 2, 2, 2), 5), F32(0.5, 1.5, 4, 2)}},
    {.name = "embedding_bag of many segments", .build = build_bag_of_segments, .n_in = 4, .flags = OP_NO_GRAD,
     .in = {F32(-1, 1, 200, 20), IDS(I64, 0, 199, 700), SORTED(I64, 0, 99, 700), F32(0.5, 1.5, 100, 20)}},
    {.op = "bag_reduce", .attrs = "combiner=mean", .n_in = 3, .in = {F32(-1, 1, 6, 3), OFFSETS(I32, 0, 2, 2, 6), F32(0.5, 1.5, 6)}},
    {.op = "bag_reduce", .attrs = "combiner=sqrtn", .n_in = 2, .in = {F32(-1, 1, 6, 3), OFFSETS(I32, 0, 2, 2, 6)}},
    {.op = "bag_spread", .attrs = "combiner=sqrtn", .n_in = 4, .in = {F32(-1, 1, 3, 2), OFFSETS(I32, 0, 2, 2, 6), IDS(I32, 0, 9, 6), F32(0.5, 1.5, 6)}},
    {.op = "bag_spread", .attrs = "combiner=sum", .n_in = 3, .in = {F32(-1, 1, 3, 2), OFFSETS(I32, 0, 2, 2, 6), IDS(I32, 0, 9, 6)}},
    {.op = "bag_inverse", .attrs = "combiner=mean", .n_in = 2, .in = {OFFSETS(I32, 0, 2, 2, 6), F32(0.5, 1.5, 6)}},
    {.op = "bag_inverse", .attrs = "combiner=sqrtn", .n_in = 2, .in = {OFFSETS(I32, 0, 2, 2, 6), F32(0.5, 1.5, 6)}},
    {.op = "bag_segments", .n_in = 2, .in = {OFFSETS(I64, 0, 2, 2, 5), IDS(I32, 0, 1, 5)}, .flags = OP_EXACT | OP_NO_GRAD | OP_F32_ONLY, WANT(0, 0, 2, 2, 2)},
    {.op = "segment_offsets", .attrs = "bags=4", .n_in = 1, .in = {DATA(WEFT_I32, NUMBERS(0, 0, 2), 3)}, MOVES, WANT(0, 2, 2, 3, 3)},
    {.op = "segment_offsets", .n_in = 2, .in = {SORTED(I64, 0, 5, 9), F32(0, 1, 6, 2)}, MOVES},
    {.op = "segment_offsets", .attrs = "bags=2", .n_in = 1, .in = {DATA(WEFT_I32, NUMBERS(0, 2), 2)}, .fails = WEFT_EDATA, .text = "bag 2 at position 1"},
    {.op = "segment_offsets", .attrs = "bags=2", .n_in = 1, .in = {DATA(WEFT_I32, NUMBERS(1, 0), 2)}, .fails = WEFT_EDATA, .text = "bag 0 at position 1"},
};
/* clang-format on */

int main(int argc, char **argv)
{
    return op_main(argc, argv, "index ops", cases, OP_COUNT(cases));
}
