/* nn_ops.c - the op table test of softmax and its losses, normalizations, attention and updates
 * of variables. */
#include "ops/harness.h"
#include "weft/ops_nn.h"

/* ---- builders -------------------------------------------------------------------------------- */

static weft_val build_softmax(weft_graph *g, const weft_val *in)
{
    return weft_softmax(g, in[0], -2);
}

static weft_val build_log_softmax(weft_graph *g, const weft_val *in)
{
    return weft_log_softmax(g, in[0], 0);
}

static weft_val build_masked(weft_graph *g, const weft_val *in)
{
    return weft_masked_softmax(g, in[0],
                               WEFT_OPTS(weft_masked_softmax_opts, .mask = in[1], .causal = true));
}

static weft_val build_sparse_loss(weft_graph *g, const weft_val *in)
{
    return weft_loss_sparse_softmax_xent(g, in[0], in[1], NULL);
}

static weft_val build_sparse_loss_ignore(weft_graph *g, const weft_val *in)
{
    return weft_loss_sparse_softmax_xent(
        g, in[0], in[1],
        WEFT_OPTS(weft_sparse_softmax_xent_opts, .ignore = true, .ignore_index = 0));
}

static weft_val build_dense_loss(weft_graph *g, const weft_val *in)
{
    return weft_loss_softmax_xent(g, in[0], in[1]);
}

static weft_val build_sigmoid_loss(weft_graph *g, const weft_val *in)
{
    return weft_loss_sigmoid_xent(g, in[0], in[1]);
}

static weft_val build_mse(weft_graph *g, const weft_val *in)
{
    return weft_loss_mse(g, in[0], in[1]);
}

static weft_val build_mae(weft_graph *g, const weft_val *in)
{
    return weft_loss_mae(g, in[0], in[1]);
}

static weft_val build_huber(weft_graph *g, const weft_val *in)
{
    return weft_loss_huber(g, in[0], in[1], 0);
}

static weft_val build_l2(weft_graph *g, const weft_val *in)
{
    return weft_l2_loss(g, 2, in);
}

static weft_val build_clip(weft_graph *g, const weft_val *in)
{
    weft_val out[2];

    weft_clip_by_global_norm(g, 2, in, 1.5, out);
    return out[0];
}

static weft_val build_bn_training(weft_graph *g, const weft_val *in)
{
    return weft_batch_norm(g, in[0], in[1], in[2], WEFT_NIL, WEFT_NIL,
                           WEFT_OPTS(weft_batch_norm_opts, .training = true));
}

static weft_val build_bn_inference(weft_graph *g, const weft_val *in)
{
    return weft_batch_norm(g, in[0], in[1], in[2], in[3], in[4], NULL);
}

static weft_val build_bn_inference_plain(weft_graph *g, const weft_val *in)
{
    return weft_batch_norm(g, in[0], WEFT_NIL, WEFT_NIL, in[1], in[2],
                           WEFT_OPTS(weft_batch_norm_opts, .epsilon = WEFT_ZERO));
}

static weft_val build_layer_norm(weft_graph *g, const weft_val *in)
{
    return weft_layer_norm(g, in[0], in[1], in[2], NULL);
}

static weft_val build_rms_norm(weft_graph *g, const weft_val *in)
{
    return weft_rms_norm(g, in[0], in[1], NULL);
}

static weft_val build_group_norm(weft_graph *g, const weft_val *in)
{
    return weft_group_norm(g, in[0], in[1], in[2], WEFT_OPTS(weft_group_norm_opts, .groups = 2));
}

static weft_val build_instance_norm(weft_graph *g, const weft_val *in)
{
    return weft_instance_norm(g, in[0], in[1], in[2], NULL);
}

static weft_val build_attention(weft_graph *g, const weft_val *in)
{
    return weft_attention(
        g, in[0], in[1], in[2],
        WEFT_OPTS(weft_attention_opts, .causal = true, .time_first = true, .scale = 0.5));
}

static weft_val build_attention_packed(weft_graph *g, const weft_val *in)
{
    return weft_attention_packed(g, in[0], WEFT_OPTS(weft_attention_opts, .mask = in[1]));
}

static weft_val build_assign_to_value(weft_graph *g, const weft_val *in)
{
    return weft_assign(g, in[0], in[1]);
}

/* The fused gradients, on statistics of the right type: the inputs are dy and those of the op. */
static weft_val vjp(weft_graph *g, weft_val y, weft_val dy, int n, const weft_val *of)
{
    weft_val out[4] = {{0}};

    return weft_vjp(g, 1, &y, &dy, n, of, out) ? WEFT_NIL : out[0];
}

static weft_val build_bn_grad(weft_graph *g, const weft_val *in)
{
    return vjp(g, build_bn_training(g, in + 1), in[0], 3, in + 1);
}

static weft_val build_layer_norm_grad(weft_graph *g, const weft_val *in)
{
    return vjp(g, build_layer_norm(g, in + 1), in[0], 3, in + 1);
}

static weft_val build_rms_norm_grad(weft_graph *g, const weft_val *in)
{
    return vjp(g, build_rms_norm(g, in + 1), in[0], 2, in + 1);
}

static weft_val build_group_norm_grad(weft_graph *g, const weft_val *in)
{
    return vjp(g, build_group_norm(g, in + 1), in[0], 3, in + 1);
}

static weft_val build_attention_grad(weft_graph *g, const weft_val *in)
{
    return vjp(g, build_attention(g, in + 1), in[0], 3, in + 1);
}

static weft_val build_packed_grad(weft_graph *g, const weft_val *in)
{
    return vjp(g, weft_attention_packed(g, in[1], WEFT_OPTS(weft_attention_opts, .causal = true)),
               in[0], 1, in + 1);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Results of others for the same inputs. */
static const double logits3[] = {1, 2, 3};
static const double softmax3[] = {0.09003057317038046, 0.24472847105479767, 0.6652409557748219};
static const double log_softmax3[] = {-2.4076059644443806, -1.4076059644443806,
                                      -0.4076059644443806};
static const double label2[] = {2};
static const double labels_some[] = {0, 2, 0, 1};
static const double labels_bad[] = {1, 0, 3, 1};
static const double labels_negative[] = {1, -1, 2, 1};
static const double two_rows[] = {1, 2, 3, 4, 10, 20, 30, 40};
static const double layer_norm_rows[] = {-1.341104, -0.447035, 0.447035, 1.341104,
                                         -1.341635, -0.447212, 0.447212, 1.341635};
static const double batch_norm_rows[] = {-0.999975, -0.999994, -0.999997, -0.999998,
                                         0.999975,  0.999994,  0.999997,  0.999998};
static const double rms_norm_rows[] = {0.365148, 0.730297, 1.095445, 1.460593,
                                       0.365148, 0.730297, 1.095445, 1.460593};
static const double xent_at[] = {-2, 0, 3};
static const double xent_to[] = {1, 0.5, 0};
static const double sigmoid_xent3[] = {2.1269280110429727, 0.6931471805599453, 3.048587351573742};
static const double eye_q[] = {1, 0, 0, 1};
static const double eye_v[] = {1, 2, 3, 4};
/* scores q·k' = 1 on the diagonal: weights e/(e+1) and 1/(e+1) */
static const double eye_y[] = {1.5378828427399902, 2.5378828427399904, 2.4621171572600096,
                               3.4621171572600096};
static const double eye_causal[] = {1, 2, 2.4621171572600096, 3.4621171572600096};
static const double ones_then[] = {3, 4};
static const double five[] = {5};
static const double half[] = {0.5}, penalized[] = {2, 2.5}; /* of 3 and 4: 0.5 + 0.5 w */

static const struct op_case cases[] = {
    /* softmax */
    {.op = "softmax", .n_in = 1, .in = {DATA(WEFT_F32, logits3, 3)}, .want = softmax3, .n_want = 3},
    {.op = "softmax", .n_in = 1, .in = {F32(-4, 4, 3, 5)}},
    {.op = "softmax", .attrs = "axis=0", .n_in = 1, .in = {F32(-4, 4, 3, 5)}},
    {.op = "softmax", .attrs = "axis=1", .n_in = 1, .in = {F32(-4, 4, 2, 3, 4)}},
    {.op = "softmax", .attrs = "axis=1", .n_in = 1, .in = {F32(-4, 4, 2, 7, 1)}},
    {.op = "softmax", .n_in = 1, .in = {F32(-4, 4, 0, 5)}},
    {.op = "softmax", .n_in = 1, .in = {F32(-4, 4, 5, 0)}},
    {.op = "softmax", .n_in = 1, .in = {F32(-4, 4, 6, 1)}},
    {.op = "softmax", .n_in = 1, .in = {F32(-80, 80, 3, 33)}, .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "softmax", .n_in = 1, .in = {F32(-4, 4, 257, 1000)}, .flags = OP_NO_GRAD},
    {.op = "softmax",
     .attrs = "axis=2",
     .n_in = 1,
     .in = {F32(-4, 4, 3, 5)},
     .fails = WEFT_ERANGE,
     .text = "axis 2"},
    {.op = "softmax", .n_in = 1, .in = {IDS(I32, 0, 3, 5)}, .fails = WEFT_EDTYPE, .text = "float"},
    {.name = "builder softmax", .build = build_softmax, .n_in = 1, .in = {F32(-4, 4, 3, 4)}},
    {.op = "log_softmax",
     .n_in = 1,
     .in = {DATA(WEFT_F32, logits3, 3)},
     .want = log_softmax3,
     .n_want = 3},
    {.op = "log_softmax", .n_in = 1, .in = {F32(-4, 4, 3, 5)}},
    {.op = "log_softmax", .attrs = "axis=0", .n_in = 1, .in = {F32(-4, 4, 3, 5)}},
    {.op = "log_softmax", .n_in = 1, .in = {F32(-4, 4, 130, 517)}, .flags = OP_NO_GRAD},
    {.op = "log_softmax", .n_in = 1, .in = {F32(-4, 4, 0, 0)}},
    {.name = "builder log_softmax",
     .build = build_log_softmax,
     .n_in = 1,
     .in = {F32(-4, 4, 3, 4)}},
    {.op = "softmax_grad", .n_in = 2, .in = {F32(-1, 1, 3, 5), ROWS_SUM1(3, 5)}},
    {.op = "softmax_grad", .attrs = "axis=0", .n_in = 2, .in = {F32(-1, 1, 3, 5), F32(0, 1, 3, 5)}},
    {.op = "softmax_grad",
     .n_in = 2,
     .in = {F32(-1, 1, 130, 300), ROWS_SUM1(130, 300)},
     .flags = OP_NO_GRAD},
    {.op = "softmax_grad",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 5), F32(-1, 1, 3, 4)},
     .fails = WEFT_ESHAPE,
     .text = "sizes"},
    {.op = "log_softmax_grad", .n_in = 2, .in = {F32(-1, 1, 3, 5), F32(-3, 0, 3, 5)}},
    {.op = "log_softmax_grad",
     .attrs = "axis=0",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 5), F32(-3, 0, 3, 5)}},
    {.op = "log_softmax_grad",
     .n_in = 2,
     .in = {F32(-1, 1, 130, 300), F32(-9, -4, 130, 300)},
     .flags = OP_NO_GRAD,
     .tol = 3e-5},
    {.op = "masked_softmax", .n_in = 1, .in = {F32(-2, 2, 2, 3, 4)}},
    {.op = "masked_softmax", .attrs = "causal=true", .n_in = 1, .in = {F32(-2, 2, 3, 4)}},
    {.op = "masked_softmax", .n_in = 2, .in = {F32(-2, 2, 2, 3, 4), F32(-1, 1, 3, 1)}},
    {.op = "masked_softmax", .n_in = 2, .in = {F32(-2, 2, 2, 3, 4), F32(-1, 1, 2, 1, 4)}},
    {.op = "masked_softmax",
     .attrs = "causal=true",
     .n_in = 2,
     .in = {F32(-2, 2, 3, 40, 50), BOOLS(3, 1, 50)},
     .flags = OP_NO_GRAD},
    {.op = "masked_softmax", .n_in = 2, .in = {F32(-2, 2, 0, 3, 4), BOOLS(4)}},
    {.op = "masked_softmax",
     .n_in = 2,
     .in = {F32(-2, 2, 3, 4), F32(-1, 1, 2, 3, 4)},
     .fails = WEFT_ESHAPE,
     .text = "larger"},
    {.name = "builder masked_softmax",
     .build = build_masked,
     .n_in = 2,
     .in = {F32(-2, 2, 3, 4), F32(-1, 1, 4)}},
    /* losses */
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {DATA(WEFT_F32, logits3, 1, 3), DATA(WEFT_I64, label2, 1)},
     .want = (const double[]){0.4076059644443806},
     .n_want = 1},
    {.op = "sparse_softmax_xent", .n_in = 2, .in = {F32(-3, 3, 4, 5), IDS(I32, 0, 4, 4)}},
    {.op = "sparse_softmax_xent", .n_in = 2, .in = {F32(-3, 3, 2, 3, 4), IDS(I64, 0, 3, 2, 3)}},
    {.op = "sparse_softmax_xent",
     .attrs = "ignore=true ignore_index=0",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), DATA(WEFT_I32, labels_some, 4)}},
    {.op = "sparse_softmax_xent",
     .attrs = "ignore=true ignore_index=-1 scale=0.25",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), DATA(WEFT_I64, labels_negative, 4)}},
    {.op = "sparse_softmax_xent", .n_in = 2, .in = {F32(-3, 3, 4, 3), IDS(U8, 0, 2, 4)}},
    {.op = "sparse_softmax_xent", .n_in = 2, .in = {F32(-3, 3, 5), IDS(I64, 0, 4, )}},
    /* a block for each row */
    {.op = "sparse_softmax_xent",
     .attrs = "ignore=true ignore_index=3 scale=0.5",
     .n_in = 2,
     .in = {F32(-3, 3, 5, 2056), IDS(I32, 0, 9, 5)},
     .flags = OP_NO_GRAD},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-9, 9, 3, 5000), IDS(I64, 0, 4999, 3)},
     .flags = OP_NO_GRAD},
    {.op = "sparse_softmax_xent", .n_in = 2, .in = {F32(-3, 3, 0, 5), IDS(I64, 0, 4, 0)}},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 300, 1024), IDS(I32, 0, 1023, 300)},
     .flags = OP_NO_GRAD},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 1030, 10), IDS(I32, 0, 9, 1030)},
     .flags = OP_NO_GRAD},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), DATA(WEFT_I64, labels_bad, 4)},
     .fails = WEFT_EDATA,
     .text = "label 3 at position 2"},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), DATA(WEFT_I32, labels_negative, 4)},
     .fails = WEFT_EDATA,
     .text = "label -1 at position 1"},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), IDS(I32, 0, 2, 5)},
     .fails = WEFT_ESHAPE,
     .text = "labels"},
    {.op = "sparse_softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), F32(0, 2, 4)},
     .fails = WEFT_EDTYPE,
     .text = "integer"},
    {.op = "softmax_xent", .n_in = 2, .in = {F32(-1, 1, 3, 0), F32(-1, 1, 3, 0)}}, /* no class */
    {.op = "softmax_xent", .n_in = 2, .in = {F32(-3, 3, 4, 5), ROWS_SUM1(4, 5)}},
    {.op = "softmax_xent", .n_in = 2, .in = {F32(-3, 3, 2, 2, 3), F32(0.1, 1, 2, 2, 3)}},
    {.op = "softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 200, 100), ROWS_SUM1(200, 100)},
     .flags = OP_NO_GRAD},
    {.op = "softmax_xent",
     .n_in = 2,
     .in = {F32(-3, 3, 4, 5), ROWS_SUM1(4, 6)},
     .fails = WEFT_ESHAPE,
     .text = "sizes"},
    {.op = "sigmoid_xent",
     .n_in = 2,
     .in = {DATA(WEFT_F32, xent_at, 3), DATA(WEFT_F32, xent_to, 3)},
     .want = sigmoid_xent3,
     .n_want = 3},
    {.op = "sigmoid_xent", .n_in = 2, .in = {F32(-5, 5, 4, 5), F32(0, 1, 4, 5)}},
    {.op = "sigmoid_xent", .n_in = 2, .in = {F32(-5, 5, 4, 5), F32(0, 1, 5)}},
    {.op = "sigmoid_xent",
     .n_in = 2,
     .in = {F32(-5, 5, 100000), F32(0, 1, 100000)},
     .flags = OP_NO_GRAD},
    {.name = "mean of sparse_softmax_xent",
     .build = build_sparse_loss,
     .n_in = 2,
     .in = {F32(-3, 3, 4, 5), IDS(I32, 0, 4, 4)}},
    {.name = "mean of sparse_softmax_xent with ignore",
     .build = build_sparse_loss_ignore,
     .n_in = 2,
     .in = {F32(-3, 3, 4, 3), DATA(WEFT_I64, labels_some, 4)}},
    {.name = "mean of softmax_xent",
     .build = build_dense_loss,
     .n_in = 2,
     .in = {F32(-3, 3, 4, 5), ROWS_SUM1(4, 5)}},
    {.name = "mean of sigmoid_xent",
     .build = build_sigmoid_loss,
     .n_in = 2,
     .in = {F32(-3, 3, 7), F32(0, 1, 7)}},
    {.name = "mse", .build = build_mse, .n_in = 2, .in = {F32(-3, 3, 2, 5), F32(-1, 1, 2, 5)}},
    {.name = "mae", .build = build_mae, .n_in = 2, .in = {F32(2, 3, 2, 5), F32(-1, 1, 2, 5)}},
    {.name = "huber", .build = build_huber, .n_in = 2, .in = {F32(2, 3, 2, 5), F32(0, 0.5, 2, 5)}},
    {.name = "huber, near",
     .build = build_huber,
     .n_in = 2,
     .in = {F32(1, 1.5, 2, 5), F32(0.6, 0.9, 2, 5)}},
    {.name = "l2_loss", .build = build_l2, .n_in = 2, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 7)}},
    /* batch norm */
    {.op = "batch_norm",
     .n_in = 1,
     .in = {DATA(WEFT_F32, two_rows, 2, 4)},
     .want = batch_norm_rows,
     .n_want = 8,
     .tol_want = 1e-5},
    {.op = "batch_norm", .n_in = 3, .in = {F32(-2, 2, 5, 3), F32(0.5, 1.5, 3), F32(-1, 1, 3)}},
    {.op = "batch_norm", .n_in = 3, .in = {F32(-2, 2, 2, 3, 2, 3), F32(0.5, 1.5, 3), ABSENT}},
    {.op = "batch_norm", .n_in = 3, .in = {F32(-2, 2, 4, 3), ABSENT, F32(-1, 1, 3)}},
    {.op = "batch_norm", .attrs = "epsilon=0.1", .n_in = 1, .in = {F32(-2, 2, 6, 2)}},
    /* channels in pieces of 8 */
    {.op = "batch_norm", .n_in = 3, .in = {F32(-2, 2, 5, 8), F32(0.5, 1.5, 8), F32(-1, 1, 8)}},
    {.op = "batch_norm",
     .attrs = "epsilon=0.1",
     .n_in = 3,
     .in = {F32(3, 5, 2, 3, 2, 24), ABSENT, F32(-1, 1, 24)},
     .tol_half = 4},
    {.op = "batch_norm",
     .n_in = 1,
     .in = {F32(99, 101, 700, 5, 40)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 1e-3},
    {.op = "batch_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 5000, 264), F32(0.5, 1.5, 264), F32(-1, 1, 264)},
     .flags = OP_NO_GRAD,
     .tol = 2e-5},
    {.op = "batch_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 1, 3), F32(0.5, 1.5, 3), F32(-1, 1, 3)},
     .flags = OP_NO_GRAD},
    {.op = "batch_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 16, 9, 7, 33), F32(0.5, 1.5, 33), F32(-1, 1, 33)},
     .flags = OP_NO_GRAD},
    {.op = "batch_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 5, 3), F32(0.5, 1.5, 4), F32(-1, 1, 3)},
     .fails = WEFT_ESHAPE,
     .text = "gamma"},
    {.op = "batch_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 5, 3), F32(-2, 2, 5, 3), F32(-1, 1, 3), F32(0.5, 1.5, 3), F32(0.5, 1.5, 3)},
     .flags = OP_NO_HALF},
    {.op = "batch_norm_grad",
     .n_in = 4,
     .in = {F32(-1, 1, 2, 2, 3), F32(-2, 2, 2, 2, 3), F32(-1, 1, 3), F32(0.5, 1.5, 3)},
     .flags = OP_NO_HALF},
    {.op = "batch_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 500, 33), F32(-2, 2, 500, 33), F32(-1, 1, 33), F32(0.5, 1.5, 33),
            F32(0.5, 1.5, 33)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 5e-5},
    {.op = "batch_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 3000, 72), F32(-2, 2, 3000, 72), F32(-0.1, 0.1, 72), F32(1, 2, 72),
            F32(0.5, 1.5, 72)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 3e-5},
    {.name = "builder batch_norm, training",
     .build = build_bn_training,
     .n_in = 3,
     .in = {F32(-2, 2, 5, 3), F32(0.5, 1.5, 3), F32(-1, 1, 3)}},
    {.name = "builder batch_norm, inference",
     .build = build_bn_inference,
     .n_in = 5,
     .in = {F32(-2, 2, 5, 3), F32(0.5, 1.5, 3), F32(-1, 1, 3), F32(-1, 1, 3), F32(0.5, 1.5, 3)}},
    {.name = "builder batch_norm, inference without scale",
     .build = build_bn_inference_plain,
     .n_in = 3,
     .in = {F32(-2, 2, 5, 3), F32(-1, 1, 3), F32(0.5, 1.5, 3)}},
    /* layer norm, RMS norm */
    {.op = "layer_norm",
     .n_in = 1,
     .in = {DATA(WEFT_F32, two_rows, 2, 4)},
     .want = layer_norm_rows,
     .n_want = 8,
     .tol_want = 2e-6},
    {.op = "layer_norm", .n_in = 3, .in = {F32(-2, 2, 3, 5), F32(0.5, 1.5, 5), F32(-1, 1, 5)}},
    {.op = "layer_norm",
     .attrs = "n_axes=2 epsilon=0.00001",
     .n_in = 3,
     .in = {F32(-2, 2, 2, 3, 2), F32(0.5, 1.5, 3, 2), F32(-1, 1, 3, 2)}},
    {.op = "layer_norm", .n_in = 3, .in = {F32(-2, 2, 2, 2, 4), ABSENT, F32(-1, 1, 4)}},
    {.op = "layer_norm", .n_in = 1, .in = {F32(-2, 2, 7)}},
    /* a warp for each row */
    {.op = "layer_norm", .n_in = 3, .in = {F32(-2, 2, 3, 16), F32(0.5, 1.5, 16), F32(-1, 1, 16)}},
    {.op = "layer_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 19, 776), F32(0.5, 1.5, 776), F32(-1, 1, 776)},
     .flags = OP_NO_GRAD,
     .tol = 2e-5},
    {.op = "rms_norm",
     .n_in = 2,
     .in = {F32(-2, 2, 3, 1024), F32(0.5, 1.5, 1024)},
     .flags = OP_NO_GRAD,
     .tol = 2e-5},
    {.op = "layer_norm", .n_in = 1, .in = {F32(-2, 2, 0, 5)}},
    {.op = "layer_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 300, 256), F32(0.5, 1.5, 256), F32(-1, 1, 256)},
     .flags = OP_NO_GRAD},
    {.op = "layer_norm",
     .n_in = 3,
     .in = {F32(-2, 2, 37, 83), F32(0.5, 1.5, 83), F32(-1, 1, 83)},
     .flags = OP_NO_GRAD},
    {.op = "layer_norm",
     .attrs = "n_axes=3",
     .n_in = 1,
     .in = {F32(-2, 2, 3, 5)},
     .fails = WEFT_ERANGE,
     .text = "n_axes 3"},
    {.op = "layer_norm",
     .n_in = 2,
     .in = {F32(-2, 2, 3, 5), F32(-2, 2, 3)},
     .fails = WEFT_ESHAPE,
     .text = "gamma"},
    {.op = "layer_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 3, 5), F32(-2, 2, 3, 5), F32(-1, 1, 3), F32(0.5, 1.5, 3), F32(0.5, 1.5, 5)},
     .flags = OP_NO_HALF},
    {.op = "layer_norm_grad",
     .attrs = "n_axes=2",
     .n_in = 4,
     .in = {F32(-1, 1, 2, 3, 2), F32(-2, 2, 2, 3, 2), F32(-1, 1, 2), F32(0.5, 1.5, 2)},
     .flags = OP_NO_HALF},
    {.op = "layer_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 300, 83), F32(-2, 2, 300, 83), F32(-1, 1, 300), F32(0.5, 1.5, 300),
            F32(0.5, 1.5, 83)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 5e-5},
    {.op = "layer_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 70, 264), F32(-2, 2, 70, 264), F32(-1, 1, 70), F32(0.5, 1.5, 70),
            F32(0.5, 1.5, 264)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 5e-5},
    {.op = "layer_norm_grad",
     .n_in = 5,
     .in = {F32(-1, 1, 9, 1024), F32(-2, 2, 9, 1024), F32(-1, 1, 9), F32(0.5, 1.5, 9),
            F32(0.5, 1.5, 1024)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 5e-5},
    {.name = "builder layer_norm",
     .build = build_layer_norm,
     .n_in = 3,
     .in = {F32(-2, 2, 3, 5), F32(0.5, 1.5, 5), F32(-1, 1, 5)}},
    {.op = "rms_norm",
     .n_in = 1,
     .in = {DATA(WEFT_F32, two_rows, 2, 4)},
     .want = rms_norm_rows,
     .n_want = 8,
     .tol_want = 2e-6},
    {.op = "rms_norm", .n_in = 2, .in = {F32(-2, 2, 3, 5), F32(0.5, 1.5, 5)}},
    {.op = "rms_norm", .attrs = "n_axes=2 epsilon=0.01", .n_in = 1, .in = {F32(-2, 2, 2, 3, 2)}},
    {.op = "rms_norm",
     .n_in = 2,
     .in = {F32(-2, 2, 100, 130), F32(0.5, 1.5, 130)},
     .flags = OP_NO_GRAD},
    {.op = "rms_norm_grad",
     .n_in = 4,
     .in = {F32(-1, 1, 3, 5), F32(-2, 2, 3, 5), F32(0.5, 1.5, 3), F32(0.5, 1.5, 5)},
     .flags = OP_NO_HALF},
    {.op = "rms_norm_grad",
     .n_in = 4,
     .in = {F32(-1, 1, 200, 70), F32(-2, 2, 200, 70), F32(0.5, 1.5, 200), F32(0.5, 1.5, 70)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 5e-5},
    {.name = "builder rms_norm",
     .build = build_rms_norm,
     .n_in = 2,
     .in = {F32(-2, 2, 3, 5), F32(0.5, 1.5, 5)}},
    /* group norm, instance norm */
    {.op = "group_norm",
     .attrs = "groups=2",
     .n_in = 3,
     .in = {F32(-2, 2, 2, 3, 4), F32(0.5, 1.5, 4), F32(-1, 1, 4)}},
    {.op = "group_norm", .attrs = "groups=1", .n_in = 1, .in = {F32(-2, 2, 2, 4)}},
    {.op = "group_norm",
     .attrs = "groups=-1 epsilon=0.01",
     .n_in = 3,
     .in = {F32(-2, 2, 2, 4, 3), ABSENT, F32(-1, 1, 3)}},
    {.op = "group_norm",
     .attrs = "groups=4",
     .n_in = 3,
     .in = {F32(-2, 2, 3, 11, 9, 36), F32(0.5, 1.5, 36), F32(-1, 1, 36)},
     .flags = OP_NO_GRAD},
    {.op = "group_norm",
     .attrs = "groups=3",
     .n_in = 1,
     .in = {F32(-2, 2, 2, 3, 4)},
     .fails = WEFT_ESHAPE,
     .text = "3 groups"},
    {.op = "group_norm_grad",
     .attrs = "groups=2",
     .n_in = 5,
     .in = {F32(-1, 1, 2, 3, 4), F32(-2, 2, 2, 3, 4), F32(-1, 1, 2, 2), F32(0.5, 1.5, 2, 2),
            F32(0.5, 1.5, 4)},
     .flags = OP_NO_HALF},
    {.op = "group_norm_grad",
     .attrs = "groups=4",
     .n_in = 5,
     .in = {F32(-1, 1, 3, 40, 36), F32(-2, 2, 3, 40, 36), F32(-1, 1, 3, 4), F32(0.5, 1.5, 3, 4),
            F32(0.5, 1.5, 36)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 5e-5},
    {.name = "builder group_norm",
     .build = build_group_norm,
     .n_in = 3,
     .in = {F32(-2, 2, 2, 3, 4), F32(0.5, 1.5, 4), F32(-1, 1, 4)}},
    {.name = "builder instance_norm",
     .build = build_instance_norm,
     .n_in = 3,
     .in = {F32(-2, 2, 2, 4, 3), F32(0.5, 1.5, 3), F32(-1, 1, 3)}},
    {.op = "split_last",
     .attrs = "parts=2",
     .n_in = 1,
     .in = {F32(-2, 2, 3, 6)},
     .flags = OP_EXACT},
    {.op = "split_last", .attrs = "size=2", .n_in = 1, .in = {F32(-2, 2, 3, 6)}, .flags = OP_EXACT},
    {.op = "split_last",
     .attrs = "parts=4",
     .n_in = 1,
     .in = {F32(-2, 2, 3, 6)},
     .fails = WEFT_ESHAPE,
     .text = "multiple"},
    /* attention */
    {.op = "attention",
     .attrs = "scale=1",
     .n_in = 3,
     .in = {DATA(WEFT_F32, eye_q, 1, 1, 2, 2), DATA(WEFT_F32, eye_q, 1, 1, 2, 2),
            DATA(WEFT_F32, eye_v, 1, 1, 2, 2)},
     .want = eye_y,
     .n_want = 4},
    {.op = "attention",
     .attrs = "scale=1 causal=true",
     .n_in = 3,
     .in = {DATA(WEFT_F32, eye_q, 1, 1, 2, 2), DATA(WEFT_F32, eye_q, 1, 1, 2, 2),
            DATA(WEFT_F32, eye_v, 1, 1, 2, 2)},
     .want = eye_causal,
     .n_want = 4},
    {.op = "attention",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 2, 3, 2), F32(-1, 1, 2, 2, 4, 2), F32(-1, 1, 2, 2, 4, 3)}},
    {.op = "attention",
     .attrs = "layout=bthd causal=true",
     .n_in = 3,
     .in = {F32(-1, 1, 1, 4, 2, 3), F32(-1, 1, 1, 4, 2, 3), F32(-1, 1, 1, 4, 2, 3)}},
    {.op = "attention",
     .attrs = "scale=0.3",
     .n_in = 4,
     .in = {F32(-1, 1, 1, 2, 3, 2), F32(-1, 1, 1, 2, 4, 2), F32(-1, 1, 1, 2, 4, 3),
            F32(-1, 1, 3, 4)}},
    {.op = "attention",
     .n_in = 4,
     .in = {F32(-1, 1, 2, 1, 3, 2), F32(-1, 1, 2, 1, 4, 2), F32(-1, 1, 2, 1, 4, 3),
            DATA(WEFT_BOOL, ((const double[]){1, 0, 1, 1, 0, 1, 1, 0}), 2, 1, 1, 4)}},
    {.op = "attention",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 3, 70, 16), F32(-1, 1, 2, 3, 300, 16), F32(-1, 1, 2, 3, 300, 20)},
     .flags = OP_NO_GRAD,
     .tol = 2e-5},
    {.op = "attention",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 3, 128, 64), F32(-1, 1, 2, 3, 192, 64), F32(-1, 1, 2, 3, 192, 64)},
     .flags = OP_NO_GRAD,
     .tol = 2e-5},
    {.op = "attention",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 2, 0, 2), F32(-1, 1, 2, 2, 4, 2), F32(-1, 1, 2, 2, 4, 3)},
     .flags = OP_NO_GRAD},
    {.op = "attention",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 2, 3, 2), F32(-1, 1, 2, 2, 0, 2), F32(-1, 1, 2, 2, 0, 3)},
     .flags = OP_NO_GRAD},
    {.op = "attention",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 2, 3, 2), F32(-1, 1, 2, 2, 4, 3), F32(-1, 1, 2, 2, 4, 3)},
     .fails = WEFT_ESHAPE,
     .text = "depths"},
    {.op = "attention",
     .attrs = "layout=htbd",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 2, 3, 2), F32(-1, 1, 2, 2, 4, 2), F32(-1, 1, 2, 2, 4, 3)},
     .fails = WEFT_EINVAL,
     .text = "layout"},
    {.op = "attention",
     .n_in = 4,
     .in = {F32(-1, 1, 2, 1, 3, 2), F32(-1, 1, 2, 1, 4, 2), F32(-1, 1, 2, 1, 4, 3), BOOLS(3, 3)},
     .fails = WEFT_ESHAPE,
     .text = "mask"},
    {.op = "attention_grad",
     .attrs = "layout=bthd causal=true",
     .n_in = 6,
     .in = {F32(-1, 1, 2, 40, 2, 9), F32(-1, 1, 2, 40, 2, 8), F32(-1, 1, 2, 40, 2, 8),
            F32(-1, 1, 2, 40, 2, 9), F32(-1, 1, 2, 40, 2, 9), F32(2, 3, 2, 2, 40)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 3e-5},
    {.name = "builder attention",
     .build = build_attention,
     .n_in = 3,
     .in = {F32(-1, 1, 1, 3, 2, 2), F32(-1, 1, 1, 4, 2, 2), F32(-1, 1, 1, 4, 2, 3)}},
    {.op = "attention_packed",
     .attrs = "causal=true",
     .n_in = 1,
     .in = {F32(-1, 1, 2, 4, 3, 2, 3)}},
    {.op = "attention_packed",
     .attrs = "scale=0.4",
     .n_in = 2,
     .in = {F32(-1, 1, 2, 3, 3, 2, 2), F32(-1, 1, 2, 1, 3)}},
    {.op = "attention_packed",
     .attrs = "causal=true",
     .n_in = 1,
     .in = {F32(-1, 1, 2, 130, 3, 3, 32)},
     .flags = OP_NO_GRAD},
    {.op = "attention_packed",
     .n_in = 1,
     .in = {F32(-1, 1, 2, 4, 2, 2, 3)},
     .fails = WEFT_ESHAPE,
     .text = "qkv"},
    {.op = "attention_packed_grad",
     .attrs = "causal=true",
     .n_in = 4,
     .in = {F32(-1, 1, 2, 40, 3, 8), F32(-1, 1, 2, 40, 3, 3, 8), F32(-1, 1, 2, 40, 3, 8),
            F32(2, 3, 2, 3, 40)},
     .flags = OP_NO_GRAD | OP_NO_HALF,
     .tol = 3e-5},
    {.name = "builder attention_packed",
     .build = build_attention_packed,
     .n_in = 2,
     .in = {F32(-1, 1, 1, 3, 3, 2, 2),
            DATA(WEFT_BOOL, ((const double[]){1, 0, 1, 1, 1, 0, 0, 0, 1}), 3, 3)}},
    /* fused gradients */
    {.name = "gradient of batch_norm",
     .build = build_bn_grad,
     .n_in = 4,
     .tol_half = 4,
     .in = {F32(-1, 1, 5, 3), F32(-2, 2, 5, 3), F32(0.5, 1.5, 3), F32(-1, 1, 3)}},
    {.name = "gradient of layer_norm",
     .build = build_layer_norm_grad,
     .n_in = 4,
     .tol_half = 4,
     .in = {F32(-1, 1, 3, 5), F32(-2, 2, 3, 5), F32(0.5, 1.5, 5), F32(-1, 1, 5)}},
    {.name = "gradient of rms_norm",
     .build = build_rms_norm_grad,
     .n_in = 3,
     .tol_half = 4,
     .in = {F32(-1, 1, 3, 5), F32(-2, 2, 3, 5), F32(0.5, 1.5, 5)}},
    {.name = "gradient of layer_norm",
     .build = build_layer_norm_grad,
     .n_in = 4,
     .tol_half = 4,
     .in = {F32(-1, 1, 11, 24), F32(-2, 2, 11, 24), F32(0.5, 1.5, 24), F32(-1, 1, 24)}},
    {.name = "gradient of layer_norm",
     .build = build_layer_norm_grad,
     .n_in = 4,
     .flags = OP_NO_GRAD,
     .tol = 3e-5,
     .tol_half = 16, /* sums over 4500 rows */
     .in = {F32(-1, 1, 4500, 72), F32(-2, 2, 4500, 72), F32(0.5, 1.5, 72), F32(-1, 1, 72)}},
    {.name = "gradient of rms_norm",
     .build = build_rms_norm_grad,
     .n_in = 3,
     .tol_half = 4,
     .in = {F32(-1, 1, 9, 40), F32(-2, 2, 9, 40), F32(0.5, 1.5, 40)}},
    {.name = "gradient of group_norm",
     .build = build_group_norm_grad,
     .n_in = 4,
     .tol_half = 4,
     .in = {F32(-1, 1, 2, 3, 4), F32(-2, 2, 2, 3, 4), F32(0.5, 1.5, 4), F32(-1, 1, 4)}},
    {.name = "gradient of attention",
     .build = build_attention_grad,
     .n_in = 4,
     .tol_half = 4,
     .in = {F32(-1, 1, 1, 3, 2, 3), F32(-1, 1, 1, 3, 2, 2), F32(-1, 1, 1, 4, 2, 2),
            F32(-1, 1, 1, 4, 2, 3)}},
    {.name = "gradient of attention_packed",
     .build = build_packed_grad,
     .n_in = 2,
     .tol_half = 4,
     .in = {F32(-1, 1, 2, 3, 2, 2), F32(-1, 1, 2, 3, 3, 2, 2)}},
    /* several tiles of queries and keys */
    {.name = "gradient of attention_packed",
     .build = build_packed_grad,
     .n_in = 2,
     .flags = OP_NO_GRAD,
     .tol = 3e-5,
     .tol_half = 4,
     .in = {F32(-1, 1, 2, 150, 2, 24), F32(-1, 1, 2, 150, 3, 2, 24)}},
    {.name = "gradient of attention_packed",
     .build = build_packed_grad,
     .n_in = 2,
     .flags = OP_NO_GRAD,
     .tol = 3e-5,
     .tol_half = 4,
     .in = {F32(-1, 1, 1, 70, 1, 61), F32(-1, 1, 1, 70, 3, 1, 61)}},
    {.name = "gradient of attention",
     .build = build_attention_grad,
     .n_in = 4,
     .flags = OP_NO_GRAD,
     .tol = 3e-5,
     .tol_half = 4,
     .in = {F32(-1, 1, 1, 90, 2, 64), F32(-1, 1, 1, 90, 2, 17), F32(-1, 1, 1, 140, 2, 17),
            F32(-1, 1, 1, 140, 2, 64)}},
    {.name = "gradient of attention",
     .build = build_attention_grad,
     .n_in = 4,
     .flags = OP_NO_GRAD,
     .tol = 3e-5,
     .tol_half = 4,
     .in = {F32(-1, 1, 2, 90, 2, 64), F32(-1, 1, 2, 90, 2, 128), F32(-1, 1, 2, 140, 2, 128),
            F32(-1, 1, 2, 140, 2, 64)}},
    {.name = "gradient of attention_packed",
     .build = build_packed_grad,
     .n_in = 2,
     .flags = OP_NO_GRAD,
     .tol = 3e-5,
     .tol_half = 4,
     .in = {F32(-1, 1, 1, 256, 3, 64), F32(-1, 1, 1, 256, 3, 3, 64)}},
    /* updates of variables, norms */
    {.op = "assign",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 4), F32(-1, 1, 3, 4)},
     .flags = OP_NO_GRAD | OP_EXACT},
    {.op = "assign",
     .n_in = 2,
     .in = {IDS(I64, 0, 9, 5), IDS(I64, 0, 9, 5)},
     .flags = OP_NO_GRAD | OP_EXACT},
    {.op = "assign",
     .n_in = 2,
     .in = {F32(-1, 1, 300000), F32(-1, 1, 300000)},
     .flags = OP_NO_GRAD | OP_EXACT},
    {.op = "assign",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 4), F32(-1, 1, 4)},
     .fails = WEFT_ESHAPE,
     .text = "ranks"},
    {.op = "assign_add",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 4), F32(-1, 1, 3, 4)},
     .flags = OP_NO_GRAD},
    {.op = "assign_add",
     .n_in = 2,
     .in = {IDS(I32, 0, 9, 5), IDS(I32, 0, 9, 5)},
     .flags = OP_NO_GRAD | OP_EXACT},
    {.op = "assign_ema",
     .attrs = "momentum=0.9",
     .n_in = 2,
     .in = {F32(-1, 1, 33), F32(-1, 1, 33)},
     .flags = OP_NO_GRAD},
    {.name = "assign to what is not a variable",
     .build = build_assign_to_value,
     .n_in = 2,
     .in = {F32(-1, 1, 3), F32(-1, 1, 3)},
     .fails = WEFT_EINVAL,
     .text = "not a variable"},
    {.op = "global_norm",
     .n_in = 1,
     .in = {DATA(WEFT_F32, ones_then, 2)},
     .want = five,
     .n_want = 1},
    {.op = "global_norm", .n_in = 3, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 5), F32(-1, 1, )}},
    {.op = "global_norm",
     .n_in = 2,
     .in = {F32(-1, 1, 10000), F32(-1, 1, 4096)},
     .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "global_norm", .n_in = 2, .in = {F32(-1, 1, 0), F32(-1, 1, 3)}},
    {.op = "global_norm",
     .n_in = 1,
     .in = {IDS(I32, 0, 3, 3)},
     .fails = WEFT_EDTYPE,
     .text = "float"},
    {.name = "clip_by_global_norm",
     .build = build_clip,
     .n_in = 2,
     .in = {F32(-1, 1, 3, 4), F32(-2, 2, 5)}},
    {.op = "clip_factor",
     .attrs = "limit=2.5",
     .n_in = 1,
     .in = {DATA(WEFT_F32, ones_then, 2)},
     .want = half,
     .n_want = 1,
     .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "clip_factor",
     .attrs = "limit=0.5",
     .n_in = 3,
     .in = {F32(-1, 1, 5000), F32(-1, 1, 3, 4), F32(-1, 1, 0)},
     .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "clip_factor",
     .attrs = "limit=0",
     .n_in = 1,
     .in = {F32(-1, 1, 3)},
     .fails = WEFT_EINVAL,
     .text = "positive"},
    {.op = "penalty_grad",
     .attrs = "l1=0.5 l2=0.25",
     .n_in = 1,
     .in = {DATA(WEFT_F32, ones_then, 2)},
     .want = penalized,
     .n_want = 2,
     .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "penalty_grad",
     .attrs = "orthogonal=0.5 columns=true",
     .n_in = 1,
     .in = {F32(-1, 1, 7, 5)},
     .flags = OP_NO_GRAD | OP_NO_HALF},
    {.op = "penalty_grad",
     .attrs = "orthogonal=0.5",
     .n_in = 1,
     .in = {F32(-1, 1, 7)},
     .fails = WEFT_ESHAPE,
     .text = "matrix"},
    {.name = "clip_by_global_norm, small",
     .build = build_clip,
     .n_in = 2,
     .in = {F32(-0.1, 0.1, 3), F32(0, 0.1, 5)}},
};

int main(int argc, char **argv)
{
    return op_main(argc, argv, "nn ops", cases, OP_COUNT(cases));
}
