/* weft/ops_rnn.h - recurrent nets over whole sequences: LSTM, GRU, simple RNN.
 *
 * x is [batch, time, in]; w [in, gates * units] and r [units, gates * units] are the weights, in
 * Keras' order of gates. All operands have x's float type. Each builder returns y [batch, time,
 * units], the state after every step; weft_output(g, y, 1) is the last state [batch, units], and of
 * an LSTM weft_output(g, y, 2) the last cell state. Further outputs hold values for the gradients.
 *
 * Which steps count: all, or those below a row's length, or those that are true in a mask. A step
 * that does not count leaves the state unchanged, and its output repeats the previous one (zeros if
 * no step has counted yet, even with an initial state), as in Keras. A length outside 0 … time is
 * WEFT_EDATA.
 *
 * With `reverse` the last step comes first. y stays in the order of x: y[:, t] is the state after
 * reading x[:, t] (Keras' go_backwards returns the reversed sequence; weft_reverse does that), and
 * the last state is the one after step 0.
 *
 * Sizes may be symbolic. Gradients of gradients are built from single steps and need a time size
 * that is known when the graph is built (WEFT_ENOSUP otherwise). */
#ifndef WEFT_OPS_RNN_H
#define WEFT_OPS_RNN_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_lstm_opts {
    size_t size;
    weft_val bias;    /* [4 * units]; none: zero */
    weft_val h0, c0;  /* initial states [batch, units]; none: zero */
    weft_val lengths; /* i32 or i64 [batch] */
    weft_val mask;    /* bool [batch, time]; not together with lengths */
    bool reverse;
} weft_lstm_opts;
/* Gates in the order i, f, g, o, s being the logistic function:
 *   [i f g o] = x_t w + h r + bias;  c = s(f) c + s(i) tanh(g);  h = s(o) tanh(c) */
WEFT_API weft_val weft_lstm(weft_graph *g, weft_val x, weft_val w, weft_val r,
                            const weft_lstm_opts *opts);

typedef struct weft_gru_opts {
    size_t size;
    weft_val bias; /* [2, 3 * units]: of x w and of h r; with reset_before [3 * units] */
    weft_val h0;
    weft_val lengths, mask; /* as for an LSTM */
    bool reverse;
    bool reset_before; /* multiply h by q before the product (Keras: reset_after=False) */
} weft_gru_opts;
/* Gates in the order z (update), q (reset), n:
 *   z = s(x_t wz + h rz + …), q = s(x_t wq + h rq + …);  h = z h + (1 - z) n
 *   n = tanh(x_t wn + bias[0] + q (h rn + bias[1]))
 * with reset_before: n = tanh(x_t wn + (q h) rn + bias) */
WEFT_API weft_val weft_gru(weft_graph *g, weft_val x, weft_val w, weft_val r,
                           const weft_gru_opts *opts);

typedef enum weft_rnn_act { WEFT_RNN_TANH, WEFT_RNN_RELU } weft_rnn_act;
typedef struct weft_simple_rnn_opts {
    size_t size;
    weft_val bias; /* [units] */
    weft_val h0;
    weft_val lengths, mask; /* as for an LSTM */
    weft_rnn_act act;
    bool reverse;
} weft_simple_rnn_opts;
/* h = act(x_t w + h r + bias) */
WEFT_API weft_val weft_simple_rnn(weft_graph *g, weft_val x, weft_val w, weft_val r,
                                  const weft_simple_rnn_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
