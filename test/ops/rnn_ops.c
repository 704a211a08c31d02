/* rnn_ops.c - the op table test of recurrent nets.
 *
 * A row's operands are those of the op: x, w, r, bias, h0, steps (a mask or lengths), and c0 of an
 * LSTM. Its result is y and the last states in one value, [batch, time + 1 or 2, units], so that
 * every output that a user sees is checked and gets a gradient. */
#include "ops/harness.h"
#include "weft/ops_rnn.h"
#include "weft/ops_shape.h"

static weft_val joined(weft_graph *g, weft_val y, int n_states)
{
    weft_val parts[3] = {y};

    for (int i = 1; i <= n_states; i++)
        parts[i] = weft_expand_dims(g, weft_output(g, y, i), 1);
    return weft_concat(g, 1 + n_states, parts, 1);
}

static bool is_mask(const weft_graph *g, weft_val v)
{
    return v.id && wf_val_type_of(g, v)->dtype == WEFT_BOOL;
}

static weft_val lstm(weft_graph *g, const weft_val *in, bool reverse)
{
    bool mask = is_mask(g, in[5]);
    weft_lstm_opts o = {.size = sizeof o,
                        .bias = in[3],
                        .h0 = in[4],
                        .c0 = in[6],
                        .mask = mask ? in[5] : WEFT_NIL,
                        .lengths = mask ? WEFT_NIL : in[5],
                        .reverse = reverse};

    return weft_lstm(g, in[0], in[1], in[2], &o);
}

static weft_val build_lstm(weft_graph *g, const weft_val *in)
{
    return joined(g, lstm(g, in, false), 2);
}

static weft_val build_lstm_reverse(weft_graph *g, const weft_val *in)
{
    return joined(g, lstm(g, in, true), 2);
}

/* Only the last state: what a classifier takes. */
static weft_val build_lstm_last(weft_graph *g, const weft_val *in)
{
    return weft_expand_dims(g, weft_output(g, lstm(g, in, false), 1), 0);
}

/* Only the sequence. */
static weft_val build_lstm_sequence(weft_graph *g, const weft_val *in)
{
    return weft_expand_dims(g, lstm(g, in, false), 0);
}

/* One value as both initial states, and as the recurrent input of a second layer. */
static weft_val build_lstm_shared(weft_graph *g, const weft_val *in)
{
    weft_val y = weft_lstm(g, in[0], in[1], in[2],
                           WEFT_OPTS(weft_lstm_opts, .bias = in[3], .h0 = in[4], .c0 = in[4]));

    return joined(g, weft_lstm(g, y, in[2], in[2], WEFT_OPTS(weft_lstm_opts, .h0 = in[4])), 2);
}

static weft_val gru(weft_graph *g, const weft_val *in, bool reverse, bool before)
{
    bool mask = is_mask(g, in[5]);
    weft_gru_opts o = {.size = sizeof o,
                       .bias = in[3],
                       .h0 = in[4],
                       .mask = mask ? in[5] : WEFT_NIL,
                       .lengths = mask ? WEFT_NIL : in[5],
                       .reverse = reverse,
                       .reset_before = before};

    return joined(g, weft_gru(g, in[0], in[1], in[2], &o), 1);
}

static weft_val build_gru(weft_graph *g, const weft_val *in)
{
    return gru(g, in, false, false);
}

static weft_val build_gru_reverse(weft_graph *g, const weft_val *in)
{
    return gru(g, in, true, false);
}

static weft_val build_gru_before(weft_graph *g, const weft_val *in)
{
    return gru(g, in, false, true);
}

static weft_val build_gru_before_reverse(weft_graph *g, const weft_val *in)
{
    return gru(g, in, true, true);
}

static weft_val simple(weft_graph *g, const weft_val *in, bool reverse, weft_rnn_act act)
{
    bool mask = is_mask(g, in[5]);
    weft_simple_rnn_opts o = {.size = sizeof o,
                              .bias = in[3],
                              .h0 = in[4],
                              .mask = mask ? in[5] : WEFT_NIL,
                              .lengths = mask ? WEFT_NIL : in[5],
                              .reverse = reverse,
                              .act = act};

    return joined(g, weft_simple_rnn(g, in[0], in[1], in[2], &o), 1);
}

static weft_val build_simple(weft_graph *g, const weft_val *in)
{
    return simple(g, in, false, WEFT_RNN_TANH);
}

static weft_val build_simple_relu(weft_graph *g, const weft_val *in)
{
    return simple(g, in, true, WEFT_RNN_RELU);
}

/* The public options refuse both. */
static weft_val build_both(weft_graph *g, const weft_val *in)
{
    return weft_lstm(g, in[0], in[1], in[2],
                     WEFT_OPTS(weft_lstm_opts, .lengths = in[3], .mask = in[4]));
}

/* Numbers of Keras 3.15 (TensorFlow, f64) for these operands; y of reverse turned round again. */
static const double keras_x[] = {-0.45, -0.65, -0.85, 1,    0.8,  0.6, 0.4,  0.2,
                                 0,     -0.2,  -0.4,  -0.6, -0.8, -1,  0.85, 0.65};
static const double keras_h0[] = {-0.3, -0.5, -0.7, -0.9, 0.95, 0.75};
static const double keras_c0[] = {0.25, 0.05, -0.15, -0.35, -0.55, -0.75};
static const double keras_mask[] = {0, 1, 0, 1, 1, 1, 0, 0};
static const double keras_w[] = {0.1,  -0.1, -0.3, -0.5,  -0.7,  -0.9,  0.95,  0.75,
                                 0.55, 0.35, 0.15, -0.05, -0.25, -0.45, -0.65, -0.85,
                                 1,    0.8,  0.6,  0.4,   0.2,   0,     -0.2,  -0.4};
static const double keras_r[] = {0.65,  0.45,  0.25, 0.05, -0.15, -0.35, -0.55, -0.75, -0.95,
                                 0.9,   0.7,   0.5,  0.3,  0.1,   -0.1,  -0.3,  -0.5,  -0.7,
                                 -0.9,  0.95,  0.75, 0.55, 0.35,  0.15,  -0.05, -0.25, -0.45,
                                 -0.65, -0.85, 1,    0.8,  0.6,   0.4,   0.2,   0,     -0.2};
static const double keras_b[] = {-0.85, 1,    0.8, 0.6,  0.4,  0.2,  0,    -0.2, -0.4,
                                 -0.6,  -0.8, -1,  0.85, 0.65, 0.45, 0.25, 0.05, -0.15};
static const double keras_lstm[] = {0,
                                    0,
                                    0,
                                    0.0241900611,
                                    -0.0799688112,
                                    -0.108158746,
                                    0.0241900611,
                                    -0.0799688112,
                                    -0.108158746,
                                    0.0792181625,
                                    -0.0838083538,
                                    -0.113198385,
                                    0.0792181625,
                                    -0.0838083538,
                                    -0.113198385,
                                    0.213516384,
                                    -0.275426019,
                                    -0.479639314,
                                    -0.0455903513,
                                    0.105096168,
                                    0.0100057397,
                                    -0.1029304,
                                    -0.0647660954,
                                    -0.122784733,
                                    -0.1029304,
                                    -0.0647660954,
                                    -0.122784733,
                                    -0.1029304,
                                    -0.0647660954,
                                    -0.122784733,
                                    -0.1029304,
                                    -0.0647660954,
                                    -0.122784733,
                                    -0.325702169,
                                    -0.202578523,
                                    -0.402947928};
static const double keras_lstm_reverse[] = {0.0304313762,
                                            -0.135339391,
                                            -0.134042251,
                                            0.0304313762,
                                            -0.135339391,
                                            -0.134042251,
                                            0.0687732658,
                                            -0.0650278211,
                                            -0.0877817049,
                                            0.0687732658,
                                            -0.0650278211,
                                            -0.0877817049,
                                            0.0304313762,
                                            -0.135339391,
                                            -0.134042251,
                                            0.104838572,
                                            -0.608093435,
                                            -0.747193513,
                                            -0.0923193058,
                                            0.0500586452,
                                            -0.0406512358,
                                            -0.0947635051,
                                            0.107212994,
                                            0.0160764415,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            -0.0923193058,
                                            0.0500586452,
                                            -0.0406512358,
                                            -0.270906245,
                                            0.161619152,
                                            -0.147295264};
static const double keras_gru[] = {0,
                                   0,
                                   0,
                                   -0.712491141,
                                   0.227053978,
                                   0.105748217,
                                   -0.712491141,
                                   0.227053978,
                                   0.105748217,
                                   0.37559494,
                                   0.375731402,
                                   0.143072574,
                                   0.37559494,
                                   0.375731402,
                                   0.143072574,
                                   0.321257321,
                                   0.639364935,
                                   0.25937735,
                                   0.0866003583,
                                   0.216542831,
                                   -0.18674732,
                                   0.0866003583,
                                   0.216542831,
                                   -0.18674732,
                                   0.0866003583,
                                   0.216542831,
                                   -0.18674732,
                                   0.0866003583,
                                   0.216542831,
                                   -0.18674732};
static const double keras_gru_reverse[] = {-0.529813605,
                                           0.179412496,
                                           -0.131235786,
                                           -0.529813605,
                                           0.179412496,
                                           -0.131235786,
                                           0.367783063,
                                           0.309498448,
                                           0.140283476,
                                           0.367783063,
                                           0.309498448,
                                           0.140283476,
                                           -0.529813605,
                                           0.179412496,
                                           -0.131235786,
                                           0.147764242,
                                           0.183245532,
                                           -0.209651396,
                                           0.327387132,
                                           0.525299052,
                                           0.233173221,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0.147764242,
                                           0.183245532,
                                           -0.209651396};
static const double keras_gru_before[] = {0,
                                          0,
                                          0,
                                          -0.685767226,
                                          -0.0267015932,
                                          -0.172123808,
                                          -0.685767226,
                                          -0.0267015932,
                                          -0.172123808,
                                          0.121571846,
                                          0.189472284,
                                          0.0507742836,
                                          0.121571846,
                                          0.189472284,
                                          0.0507742836,
                                          0.0605760282,
                                          0.789994328,
                                          0.538487464,
                                          -0.050445311,
                                          0.594495959,
                                          0.322057349,
                                          -0.050445311,
                                          0.594495959,
                                          0.322057349,
                                          -0.050445311,
                                          0.594495959,
                                          0.322057349,
                                          -0.050445311,
                                          0.594495959,
                                          0.322057349};
static const double keras_simple[] = {0,
                                      0,
                                      0,
                                      -0.853797653,
                                      0.69106947,
                                      0.725897415,
                                      -0.853797653,
                                      0.69106947,
                                      0.725897415,
                                      -0.949792664,
                                      -0.209159685,
                                      -0.568244459,
                                      -0.949792664,
                                      -0.209159685,
                                      -0.568244459,
                                      -0.935409071,
                                      0.0299910032,
                                      -0.282134813,
                                      -0.778417535,
                                      0.847205698,
                                      0.902154978,
                                      -0.778417535,
                                      0.847205698,
                                      0.902154978,
                                      -0.778417535,
                                      0.847205698,
                                      0.902154978,
                                      -0.778417535,
                                      0.847205698,
                                      0.902154978};
static const double keras_simple_relu[] = {0,     0,     0, 0, 0, 0, 0,     1.285, 1.265, 0,
                                           1.285, 1.265, 0, 0, 0, 0, 0.945, 0.677, 0,     0.35,
                                           0.19,  0,     0, 0, 0, 0, 0,     0,     0.945, 0.677};

#define KERAS(gates, ...)                                                              \
    DATA(WEFT_F32, keras_x, 2, 4, 2), DATA(WEFT_F32, keras_w, 2, 3 * (gates)),         \
        DATA(WEFT_F32, keras_r, 3, 3 * (gates)), DATA(WEFT_F32, keras_b, __VA_ARGS__), \
        DATA(WEFT_F32, keras_h0, 2, 3), DATA(WEFT_BOOL, keras_mask, 2, 4)
#define WANT(a) .want = a, .n_want = OP_COUNT(a)

/* batch, time, in, units; then bias, h0, steps and c0 as the row says. */
#define XWR(b, t, i, u, gates) \
    F32(-1, 1, b, t, i), F32(-0.6, 0.6, i, (gates) * (u)), F32(-0.6, 0.6, u, (gates) * (u))
#define VEC(...) F32(-0.5, 0.5, __VA_ARGS__)
#define BUILT(f) .build = f, .name = #f
/* Second gradients need a known time; sizes are symbolic without them. */
#define TWICE .flags = OP_STATIC
#define ONCE .flags = OP_NO_GRAD2
#define ROUGH .tol = 3e-5, .tol_half = 4
#define LONG .flags = OP_NO_GRAD2 | OP_NO_HALF, .tol = 1e-4

static const struct op_case cases[] = {
    /* against Keras */
    {BUILT(build_lstm), .n_in = 7, .in = {KERAS(4, 12), DATA(WEFT_F32, keras_c0, 2, 3)},
     WANT(keras_lstm), TWICE, ROUGH},
    {BUILT(build_lstm_reverse), .n_in = 7, .in = {KERAS(4, 12), DATA(WEFT_F32, keras_c0, 2, 3)},
     WANT(keras_lstm_reverse), TWICE, ROUGH},
    {BUILT(build_gru), .n_in = 6, .in = {KERAS(3, 2, 9)}, WANT(keras_gru), TWICE, ROUGH},
    {BUILT(build_gru_reverse), .n_in = 6, .in = {KERAS(3, 2, 9)}, WANT(keras_gru_reverse), TWICE,
     ROUGH},
    {BUILT(build_gru_before), .n_in = 6, .in = {KERAS(3, 9)}, WANT(keras_gru_before), TWICE, ROUGH},
    {BUILT(build_simple), .n_in = 6, .in = {KERAS(1, 3)}, WANT(keras_simple), TWICE, ROUGH},
    {BUILT(build_simple_relu), .n_in = 6, .in = {KERAS(1, 3)}, WANT(keras_simple_relu), ONCE,
     ROUGH},

    /* every operand alone and together, symbolic sizes */
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 4, 2, 3, 4)}, ONCE, ROUGH},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 4, 2, 3, 4), VEC(12)}, ONCE, ROUGH},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 4, 2, 3, 4), ABSENT, VEC(3, 3)}, ONCE, ROUGH},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 4, 2, 3, 4), ABSENT, ABSENT, ABSENT, VEC(3, 3)},
     ONCE, ROUGH},
    {BUILT(build_lstm), .n_in = 7,
     .in = {XWR(5, 6, 3, 4, 4), VEC(16), VEC(5, 4), BOOLS(5, 6), VEC(5, 4)}, ONCE, ROUGH},
    {BUILT(build_lstm_reverse), .n_in = 7,
     .in = {XWR(5, 6, 3, 4, 4), VEC(16), VEC(5, 4), IDS(I32, 0, 6, 5), VEC(5, 4)}, ONCE, ROUGH},
    {BUILT(build_lstm_last), .n_in = 7, .in = {XWR(4, 3, 2, 5, 4), VEC(20), ABSENT, ABSENT, ABSENT},
     ONCE, ROUGH},
    {BUILT(build_lstm_sequence), .n_in = 7, .in = {XWR(4, 3, 2, 5, 4), VEC(20)}, TWICE, ROUGH},
    {BUILT(build_gru), .n_in = 6, .in = {XWR(3, 4, 2, 3, 3)}, ONCE, ROUGH},
    {BUILT(build_gru), .n_in = 6,
     .in = {XWR(5, 6, 3, 4, 3), VEC(2, 12), VEC(5, 4), IDS(I64, 0, 6, 5)}, ONCE, ROUGH},
    {BUILT(build_gru_reverse), .n_in = 6,
     .in = {XWR(4, 3, 2, 5, 3), VEC(2, 15), ABSENT, BOOLS(4, 3)}, ONCE, ROUGH},
    {BUILT(build_gru_before), .n_in = 6, .in = {XWR(3, 4, 2, 3, 3)}, ONCE, ROUGH},
    {BUILT(build_gru_before_reverse), .n_in = 6,
     .in = {XWR(4, 5, 2, 3, 3), VEC(9), VEC(4, 3), IDS(I32, 0, 5, 4)}, ONCE, ROUGH},
    {BUILT(build_simple), .n_in = 6, .in = {XWR(3, 4, 2, 3, 1)}, ONCE, ROUGH},
    {BUILT(build_simple_relu), .n_in = 6,
     .in = {XWR(3, 5, 2, 4, 1), VEC(4), VEC(3, 4), IDS(I32, 0, 5, 3)}, ONCE, ROUGH},

    /* second gradients: lengths, reverse, all operands; one operand in several places */
    {BUILT(build_lstm), .n_in = 7,
     .in = {XWR(3, 4, 2, 3, 4), VEC(12), VEC(3, 3), IDS(I32, 0, 4, 3), VEC(3, 3)}, TWICE, ROUGH},
    {BUILT(build_lstm_reverse), .n_in = 7, .in = {XWR(2, 3, 2, 2, 4)}, TWICE, ROUGH},
    {BUILT(build_lstm_shared), .n_in = 5, .in = {XWR(2, 3, 3, 3, 4), VEC(12), VEC(2, 3)}, TWICE,
     ROUGH},
    {BUILT(build_gru), .n_in = 6,
     .in = {XWR(3, 4, 2, 3, 3), VEC(2, 9), VEC(3, 3), IDS(I32, 0, 4, 3)}, TWICE, ROUGH},
    {BUILT(build_gru_before_reverse), .n_in = 6,
     .in = {XWR(3, 3, 2, 3, 3), VEC(9), VEC(3, 3), BOOLS(3, 3)}, TWICE, ROUGH},
    {BUILT(build_simple), .n_in = 6,
     .in = {XWR(3, 3, 2, 3, 1), VEC(3), VEC(3, 3), IDS(I32, 0, 3, 3)}, TWICE, ROUGH},

    /* gradients that arrive at what is saved for the backward pass */
    {.op = "lstm",
     .n_in = 7,
     .in = {XWR(2, 3, 2, 3, 4), VEC(12), VEC(2, 3), BOOLS(2, 3), VEC(2, 3)},
     TWICE,
     ROUGH},
    {.op = "gru",
     .n_in = 6,
     .in = {XWR(2, 3, 2, 3, 3), VEC(2, 9), VEC(2, 3), BOOLS(2, 3)},
     TWICE,
     ROUGH},
    {.op = "gru",
     .attrs = "reset_after=false reverse=true",
     .n_in = 5,
     .in = {XWR(2, 3, 2, 3, 3), VEC(9), VEC(2, 3)},
     TWICE,
     ROUGH},

    /* nothing of something */
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(0, 4, 2, 3, 4), VEC(12)}, ONCE},
    {BUILT(build_lstm), .n_in = 7,
     .in = {XWR(3, 0, 2, 3, 4), VEC(12), VEC(3, 3), ABSENT, VEC(3, 3)}, TWICE},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 0, 2, 3, 4), VEC(12), ABSENT, IDS(I32, 0, 0, 3)},
     ONCE},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 4, 0, 3, 4), VEC(12)}, ONCE, ROUGH},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(3, 4, 2, 0, 4), VEC(0)}, ONCE, ROUGH},
    {BUILT(build_gru), .n_in = 6, .in = {XWR(3, 0, 2, 3, 3), VEC(2, 9), VEC(3, 3)}, ONCE},
    {BUILT(build_gru_before), .n_in = 6, .in = {XWR(0, 2, 2, 3, 3)}, ONCE},
    {BUILT(build_gru), .n_in = 6, .in = {XWR(2, 2, 2, 0, 3)}, ONCE},
    {BUILT(build_simple), .n_in = 6, .in = {XWR(3, 0, 2, 3, 1), VEC(3), VEC(3, 3)}, ONCE},
    {BUILT(build_lstm), .n_in = 7, .in = {XWR(1, 1, 1, 1, 4), VEC(4)}, TWICE, ROUGH},
    {BUILT(build_lstm), .n_in = 7,
     .in = {XWR(2, 3, 2, 3, 4), ABSENT, VEC(2, 3), IDS(I32, 0, 0, 2), VEC(2, 3)}, ONCE},

    /* sizes that are not multiples of a vector, of a panel, of a tile */
    {BUILT(build_lstm), .n_in = 7,
     .in = {XWR(37, 3, 19, 45, 4), VEC(180), VEC(37, 45), IDS(I32, 0, 3, 37), VEC(37, 45)}, LONG},
    {BUILT(build_lstm_reverse), .n_in = 7,
     .in = {XWR(33, 5, 28, 33, 4), VEC(132), ABSENT, BOOLS(33, 5)}, LONG},
    {BUILT(build_gru), .n_in = 6,
     .in = {XWR(37, 3, 19, 45, 3), VEC(2, 135), VEC(37, 45), IDS(I32, 0, 3, 37)}, LONG},
    {BUILT(build_gru_before), .n_in = 6,
     .in = {XWR(37, 3, 19, 45, 3), VEC(135), VEC(37, 45), BOOLS(37, 3)}, LONG},
    {BUILT(build_simple), .n_in = 6,
     .in = {XWR(37, 3, 19, 45, 1), VEC(45), VEC(37, 45), BOOLS(37, 3)}, LONG},
    {BUILT(build_lstm_last), .n_in = 7, .in = {XWR(64, 4, 28, 64, 4), VEC(256)}, LONG},

    /* what is refused */
    {.op = "lstm",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 3, 4), F32(-1, 1, 4, 20), F32(-1, 1, 6, 20)},
     .fails = WEFT_ESHAPE,
     .text = "w must be f32[4,24]"},
    {.op = "lstm",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 3, 4), F32(-1, 1, 5, 24), F32(-1, 1, 6, 24)},
     .fails = WEFT_ESHAPE,
     .text = "sizes of the input"},
    {.op = "lstm",
     .n_in = 3,
     .in = {F32(-1, 1, 2, 4), F32(-1, 1, 4, 24), F32(-1, 1, 6, 24)},
     .fails = WEFT_ESHAPE,
     .text = "x must have rank 3"},
    {.op = "gru",
     .n_in = 4,
     .in = {XWR(2, 3, 2, 3, 3), VEC(9)},
     .fails = WEFT_ESHAPE,
     .text = "bias"},
    {.op = "gru",
     .attrs = "reset_after=false",
     .n_in = 4,
     .in = {XWR(2, 3, 2, 3, 3), VEC(2, 9)},
     .fails = WEFT_ESHAPE,
     .text = "bias"},
    {.op = "lstm",
     .n_in = 5,
     .in = {XWR(2, 3, 2, 3, 4), ABSENT, VEC(3, 3)},
     .fails = WEFT_ESHAPE,
     .text = "h0 must be f32[2,3]"},
    {.op = "lstm",
     .n_in = 6,
     .in = {XWR(2, 3, 2, 3, 4), ABSENT, ABSENT, BOOLS(2, 4)},
     .fails = WEFT_ESHAPE,
     .text = "times of x and mask"},
    {.op = "lstm",
     .n_in = 6,
     .in = {XWR(2, 3, 2, 3, 4), ABSENT, ABSENT, F32(0, 1, 2)},
     .fails = WEFT_EDTYPE,
     .text = "steps must be a mask"},
    {.op = "simple_rnn",
     .attrs = "activation=exp",
     .n_in = 3,
     .in = {XWR(2, 3, 2, 3, 1)},
     .fails = WEFT_EINVAL,
     .text = "activation 'exp'"},
    {.op = "lstm",
     .n_in = 6,
     .in = {XWR(2, 3, 2, 3, 4), ABSENT, ABSENT, DATA(WEFT_I32, ((double[]){3, 4}), 2)},
     .fails = WEFT_EDATA,
     .text = "length 4 of row 1"},
    {.op = "gru",
     .n_in = 6,
     .in = {XWR(2, 3, 2, 3, 3), ABSENT, ABSENT, DATA(WEFT_I64, ((double[]){-1, 3}), 2)},
     .fails = WEFT_EDATA,
     .text = "length -1 of row 0"},
    {BUILT(build_both), .n_in = 5, .in = {XWR(2, 3, 2, 3, 4), IDS(I32, 0, 3, 2), BOOLS(2, 3)},
     .fails = WEFT_EINVAL, .text = "cannot be given together"},
};

int main(int argc, char **argv)
{
    return op_main(argc, argv, "recurrent ops", cases, OP_COUNT(cases));
}
