/* autocast.c - the policy that inserts casts while a graph is built. */
#include "graph/graph.h"
#include "weft/autocast.h"

enum cast_class {
    FOLLOW, /* mixed operands become f32, others stay */
    HALF,   /* f32 operands become halves */
    FULL,   /* halves become f32 */
    LEAVE   /* the op declares the types it takes: never cast */
};

static const struct {
    int op;
    enum cast_class class;
} classes[] = {
    {WF_OP_matmul, HALF},
    {WF_OP_conv, HALF},
    {WF_OP_conv_transpose, HALF},
    {WF_OP_exp, FULL},
    {WF_OP_log, FULL},
    {WF_OP_log1p, FULL},
    {WF_OP_expm1, FULL},
    {WF_OP_pow, FULL},
    {WF_OP_sum, FULL},
    {WF_OP_mean, FULL},
    {WF_OP_prod, FULL},
    {WF_OP_logsumexp, FULL},
    {WF_OP_cumsum, FULL},
    {WF_OP_norm_l1, FULL},
    {WF_OP_norm_l2, FULL},
    {WF_OP_softmax, FULL},
    {WF_OP_log_softmax, FULL},
    {WF_OP_sparse_softmax_xent, FULL},
    {WF_OP_softmax_xent, FULL},
    {WF_OP_sigmoid_xent, FULL},
    {WF_OP_batch_norm, FULL},
    {WF_OP_layer_norm, FULL},
    {WF_OP_rms_norm, FULL},
    {WF_OP_group_norm, FULL},
    {WF_OP_attention, FULL},
    {WF_OP_attention_packed, FULL},
    {WF_OP_lstm, FULL},
    {WF_OP_gru, FULL},
    {WF_OP_simple_rnn, FULL},
    {WF_OP_global_norm, FULL},
    {WF_OP_cast, LEAVE},
    {WF_OP_identity, LEAVE},
    {WF_OP_apply, FULL},
    {WF_OP_apply_rows, FULL},
    {WF_OP_assign, LEAVE},
    {WF_OP_assign_add, LEAVE},
    {WF_OP_assign_ema, LEAVE},
};

static enum cast_class class_of(const struct wf_op *op)
{
    if (op->user)
        return LEAVE;
    for (int i = 0; i < WF_COUNT(classes); i++)
        if (classes[i].op == op->id)
            return classes[i].class;
    return FOLLOW;
}

static bool is_half(weft_dtype t)
{
    return t == WEFT_BF16 || t == WEFT_F16;
}

static weft_val cast_to(weft_graph *g, weft_val x, weft_dtype t)
{
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", t)};

    return wf_build(g, WF_OP_cast, 1, &x, 1, sets);
}

void wf_autocast(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in, weft_val *out)
{
    enum cast_class class = class_of(op);
    bool any_half = false, any_full = false;

    for (int i = 0; i < n_in; i++) {
        weft_dtype t = wf_val_type_of(g, in[i])->dtype;

        out[i] = in[i];
        any_half |= is_half(t);
        any_full |= t == WEFT_F32;
    }
    for (int i = 0; i < n_in && class != LEAVE; i++) {
        weft_dtype t = wf_val_type_of(g, in[i])->dtype;

        if (class == HALF && t == WEFT_F32)
            out[i] = cast_to(g, in[i], g->autocast);
        else if (is_half(t) && (class == FULL || (class == FOLLOW && any_half && any_full)))
            out[i] = cast_to(g, in[i], WEFT_F32);
    }
}

void weft_autocast_push(weft_graph *g, weft_dtype dtype)
{
    if (dtype != WEFT_F32 && !is_half(dtype)) {
        wf_graph_fail(
            g, wf_err(WEFT_EDTYPE, "autocast: %s is not f32, f16 or bf16", weft_dtype_name(dtype)));
        return;
    }
    if (g->n_autocast == WF_COUNT(g->autocasts)) {
        wf_graph_fail(g, wf_err(WEFT_ELIMIT, "autocast: more than %d policies are open",
                                WF_COUNT(g->autocasts)));
        return;
    }
    g->autocasts[g->n_autocast++] = g->autocast;
    g->autocast = dtype;
}

void weft_autocast_pop(weft_graph *g)
{
    if (!g->n_autocast) {
        wf_graph_fail(g, wf_err(WEFT_ESTATE, "weft_autocast_pop: no policy is open"));
        return;
    }
    g->autocast = g->autocasts[--g->n_autocast];
}
