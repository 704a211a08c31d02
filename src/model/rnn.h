/* rnn.h - shared by the files of recurrent layers: a recurrent call, and the step of a cell. */
#ifndef WF_MODEL_RNN_H
#define WF_MODEL_RNN_H

#include "model/core.h"
#include "model/layers.h"

enum { WF_MAX_STATES = 32, WF_MAX_CELL_MASKS = 64 };

/* ---- a call over time (rnn.c) ---------------------------------------------------------------- */

/* A recurrent call while it is built; cells and inner layers see it as builder->rnn. */
struct wf_rnn {
    weft_layer_call *c;
    weft_val x, mask; /* [batch, time, …]; bool [batch, time] or nil */
    int n_states;
    int64_t size[WF_MAX_STATES];
    weft_val init[WF_MAX_STATES]; /* nil: zeros */
    bool sequences, stateful;
    bool backwards; /* from the last step to the first */
    bool flip;      /* then leave the outputs in the order of x */
    bool zero;      /* outputs of masked steps are zeros */
    /* what an outer call requests of the inner one */
    bool ask_flip, ask_zero;
    /* results, in the order of x */
    weft_val y;                    /* [batch, time, units]; nil: only the last one was computed */
    weft_val last;                 /* the output of the last step */
    weft_val final[WF_MAX_STATES]; /* the states after it */
    /* dropout masks that all steps of this call share */
    int n_masks;
    struct wf_cell_mask {
        weft_layer layer;
        bool recurrent;
        weft_val mask;
    } masks[WF_MAX_CELL_MASKS];
    struct wf_rnn *outer;
};

/* Inputs, arguments, initial states: the caller's, kept from the previous batch, or none. */
weft_status wf_rnn_begin(weft_layer_call *c, int n_states, const int64_t *size, struct wf_rnn *r);
/* Outputs, masks and kept states from y (or last) and final. */
weft_status wf_rnn_end(struct wf_rnn *r);

/* One step: from x_t and states to y and new states. */
typedef weft_status wf_rnn_step(struct wf_rnn *r, void *arg, weft_val x, const weft_val *state,
                                weft_val *new_state, weft_val *y);
/* Step by step over xs [batch, time, …], under the mask; fills y, last and final. The number of
 * steps must be known. */
weft_status wf_rnn_scan(struct wf_rnn *r, weft_val xs, wf_rnn_step *step, void *arg);

/* The states of a cell: their number, or 0 after an error. */
int wf_cell_states(weft_layer_call *c, weft_layer cell, int64_t size[WF_MAX_STATES]);

/* ---- cells (cell.c) -------------------------------------------------------------------------- */

enum wf_cell_kind { WF_CELL_SIMPLE, WF_CELL_LSTM, WF_CELL_GRU };

struct wf_cell {
    weft_layer_call *c;
    enum wf_cell_kind kind;
    int64_t units, n_gates;
    weft_val kernel, recurrent, bias; /* bias may be nil */
    const char *act, *gate_act;
    bool reset_after;
    weft_val state_mask; /* dropout of the recurrent state; nil: none */
};
/* Arguments and weights, for inputs of n_in features. */
weft_status wf_cell_open(weft_layer_call *c, enum wf_cell_kind kind, int64_t n_in,
                         struct wf_cell *out);
/* x . kernel + bias, for one step or for all. */
weft_val wf_cell_project(const struct wf_cell *cell, weft_val x);
void wf_cell_step(const struct wf_cell *cell, weft_val projected, const weft_val *state,
                  weft_val *new_state);
/* A dropout mask in the shape of `like`, [batch, n], the same for all steps of a recurrent call;
 * nil without dropout. */
weft_val wf_cell_dropout(weft_layer_call *c, const char *attr, weft_val like);

#endif
