/* rnn.h - positions of the operands and results of the recurrent ops, for graph and kernels. */
#ifndef WF_OP_RNN_H
#define WF_OP_RNN_H

#include "op/op.h"

/* Operands of lstm, gru and simple_rnn; the gradient ops take the same ones first. */
enum wf_rnn_in {
    WF_RNN_X,     /* [batch, time, in] */
    WF_RNN_W,     /* [in, gates * units] */
    WF_RNN_R,     /* [units, gates * units] */
    WF_RNN_BIAS,  /* [gates * units]; gru with reset_after: [2, gates * units] */
    WF_RNN_H0,    /* [batch, units] */
    WF_RNN_STEPS, /* bool [batch, time]: the steps that count; or integers [batch]: lengths */
    WF_RNN_C0,    /* [batch, units], lstm only */
    /* of the gradient ops */
    WF_RNN_Y,
    WF_RNN_GATES, /* [time, batch, values * units]: a step of some rows is contiguous */
    WF_RNN_CELLS, /* [time, batch, units], lstm only */
    WF_RNN_DY,
    WF_RNN_DH,
    WF_RNN_DC, /* lstm only */
    WF_RNN_N_IN
};

/* Results. */
enum wf_rnn_out {
    WF_RNN_OUT_Y,
    WF_RNN_OUT_H,
    WF_LSTM_OUT_C = 2,
    WF_LSTM_OUT_GATES,
    WF_LSTM_OUT_CELLS,
    WF_LSTM_N_OUT,
    WF_GRU_OUT_GATES = 2,
    WF_GRU_N_OUT,
    WF_SIMPLE_RNN_N_OUT = 2
};

/* Results of the gradient ops: empty (f32[0]) if they were not requested. */
enum wf_rnn_grad_out { WF_RNN_DX, WF_RNN_DW, WF_RNN_DR, WF_RNN_DBIAS, WF_RNN_DH0, WF_RNN_DC0 };

enum wf_rnn_kind { WF_RNN_LSTM, WF_RNN_GRU, WF_RNN_SIMPLE };

static inline enum wf_rnn_kind wf_rnn_kind(const struct wf_op *op)
{
    return op->id == WF_OP_lstm || op->id == WF_OP_lstm_grad ? WF_RNN_LSTM
           : op->id == WF_OP_gru || op->id == WF_OP_gru_grad ? WF_RNN_GRU
                                                             : WF_RNN_SIMPLE;
}

/* Columns of the weights per unit. */
static inline int wf_rnn_gates(enum wf_rnn_kind kind)
{
    return kind == WF_RNN_LSTM ? 4 : kind == WF_RNN_GRU ? 3 : 1;
}

#endif
