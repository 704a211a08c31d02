/* build_rnn.c - builders of the recurrent ops. */
#include "graph/graph.h"
#include "op/rnn.h"
#include "weft/ops_rnn.h"

static weft_val refuse(weft_graph *g, const char *what, const char *why)
{
    wf_graph_fail(g, wf_err(WEFT_EINVAL, "%s: %s", what, why));
    return WEFT_NIL;
}

/* Lengths or mask, whichever is given. */
static bool pick_steps(weft_graph *g, const char *what, weft_val lengths, weft_val mask,
                       weft_val *steps)
{
    if (lengths.id && mask.id) {
        refuse(g, what, "lengths and a mask cannot be given together");
        return false;
    }
    *steps = lengths.id ? lengths : mask;
    if (!steps->id)
        return !g->st;
    if (!wf_check_val(g, *steps, what))
        return false;
    if ((wf_val_type_of(g, *steps)->dtype == WEFT_BOOL) != (mask.id != 0)) {
        refuse(g, what,
               mask.id ? "a mask must be bool [batch, time]"
                       : "lengths must be i32 or i64 [batch]");
        return false;
    }
    return true;
}

weft_val weft_lstm(weft_graph *g, weft_val x, weft_val w, weft_val r, const weft_lstm_opts *opts)
{
    weft_lstm_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_lstm_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("reverse", o.reverse)};
    weft_val in[] = {x, w, r, o.bias, o.h0, WEFT_NIL, o.c0};

    if (!pick_steps(g, "lstm", o.lengths, o.mask, &in[WF_RNN_STEPS]))
        return WEFT_NIL;
    return wf_build(g, WF_OP_lstm, WF_COUNT(in), in, WF_COUNT(sets), sets);
}

weft_val weft_gru(weft_graph *g, weft_val x, weft_val w, weft_val r, const weft_gru_opts *opts)
{
    weft_gru_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_gru_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("reverse", o.reverse),
                            WF_SET_BOOL("reset_after", !o.reset_before)};
    weft_val in[] = {x, w, r, o.bias, o.h0, WEFT_NIL};

    if (!pick_steps(g, "gru", o.lengths, o.mask, &in[WF_RNN_STEPS]))
        return WEFT_NIL;
    return wf_build(g, WF_OP_gru, WF_COUNT(in), in, WF_COUNT(sets), sets);
}

weft_val weft_simple_rnn(weft_graph *g, weft_val x, weft_val w, weft_val r,
                         const weft_simple_rnn_opts *opts)
{
    weft_simple_rnn_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_simple_rnn_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("reverse", o.reverse),
                            WF_SET_STR("activation", o.act == WEFT_RNN_RELU ? "relu" : "tanh")};
    weft_val in[] = {x, w, r, o.bias, o.h0, WEFT_NIL};

    if (o.act != WEFT_RNN_TANH && o.act != WEFT_RNN_RELU)
        return refuse(g, "simple_rnn", "the activation must be tanh or relu");
    if (!pick_steps(g, "simple_rnn", o.lengths, o.mask, &in[WF_RNN_STEPS]))
        return WEFT_NIL;
    return wf_build(g, WF_OP_simple_rnn, WF_COUNT(in), in, WF_COUNT(sets), sets);
}
