/* build_nn.c - builders of softmax, losses, attention, updates of variables and norms of many
 * values. */
#include "graph/nn.h"
#include "weft/ops_nn.h"

weft_val wf_cast_to(weft_graph *g, weft_val x, weft_dtype dtype)
{
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", dtype)};

    if (g->st || wf_val_type_of(g, x)->dtype == dtype)
        return x;
    return wf_build(g, WF_OP_cast, 1, &x, 1, sets);
}

weft_val wf_cast_like(weft_graph *g, weft_val x, weft_val like)
{
    return g->st ? x : wf_cast_to(g, x, wf_val_type_of(g, like)->dtype);
}

/* ---- softmax --------------------------------------------------------------------------------- */

static weft_val along(weft_graph *g, int op_id, weft_val x, int axis)
{
    struct wf_set sets[] = {WF_SET_INT("axis", axis)};

    return wf_build(g, op_id, 1, &x, 1, sets);
}

weft_val weft_softmax(weft_graph *g, weft_val x, int axis)
{
    return along(g, WF_OP_softmax, x, axis);
}

weft_val weft_log_softmax(weft_graph *g, weft_val x, int axis)
{
    return along(g, WF_OP_log_softmax, x, axis);
}

weft_val weft_masked_softmax(weft_graph *g, weft_val x, const weft_masked_softmax_opts *opts)
{
    weft_masked_softmax_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_masked_softmax_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("causal", o.causal)};
    return wf_build(g, WF_OP_masked_softmax, 2, (weft_val[]){x, o.mask}, 1, sets);
}

/* ---- losses ---------------------------------------------------------------------------------- */

weft_val weft_sparse_softmax_xent(weft_graph *g, weft_val logits, weft_val labels,
                                  const weft_sparse_softmax_xent_opts *opts)
{
    weft_sparse_softmax_xent_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_sparse_softmax_xent_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("ignore", o.ignore),
                            WF_SET_INT("ignore_index", o.ignore ? o.ignore_index : -1)};
    return wf_build(g, WF_OP_sparse_softmax_xent, 2, (weft_val[]){logits, labels}, 2, sets);
}

weft_val weft_softmax_xent(weft_graph *g, weft_val logits, weft_val labels)
{
    return wf_binary(g, WF_OP_softmax_xent, logits, labels);
}

weft_val weft_sigmoid_xent(weft_graph *g, weft_val logits, weft_val targets)
{
    return wf_binary(g, WF_OP_sigmoid_xent, logits, targets);
}

static weft_val mean_all(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_mean, x);
}

weft_val weft_loss_sparse_softmax_xent(weft_graph *g, weft_val logits, weft_val labels,
                                       const weft_sparse_softmax_xent_opts *opts)
{
    weft_sparse_softmax_xent_opts o;
    weft_val loss, keep, n;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_sparse_softmax_xent_opts"))
        return WEFT_NIL;
    loss = weft_sparse_softmax_xent(g, logits, labels, &o);
    if (g->st || !o.ignore)
        return mean_all(g, loss);
    keep = wf_binary(g, WF_OP_ne, labels, wf_const_like(g, (double)o.ignore_index, labels));
    n = wf_unary(g, WF_OP_sum, wf_cast_like(g, keep, loss));
    n = wf_binary(g, WF_OP_max, n, wf_const_like(g, 1, n));
    return wf_binary(g, WF_OP_div, wf_unary(g, WF_OP_sum, loss), n);
}

weft_val weft_loss_softmax_xent(weft_graph *g, weft_val logits, weft_val labels)
{
    return mean_all(g, weft_softmax_xent(g, logits, labels));
}

weft_val weft_loss_sigmoid_xent(weft_graph *g, weft_val logits, weft_val targets)
{
    return mean_all(g, weft_sigmoid_xent(g, logits, targets));
}

weft_val weft_loss_mse(weft_graph *g, weft_val x, weft_val target)
{
    return mean_all(g, wf_unary(g, WF_OP_square, wf_binary(g, WF_OP_sub, x, target)));
}

weft_val weft_loss_mae(weft_graph *g, weft_val x, weft_val target)
{
    return mean_all(g, wf_unary(g, WF_OP_abs, wf_binary(g, WF_OP_sub, x, target)));
}

/* With c = min(e, delta) both branches are c * (e - c/2). */
weft_val weft_loss_huber(weft_graph *g, weft_val x, weft_val target, double delta)
{
    weft_val e = wf_unary(g, WF_OP_abs, wf_binary(g, WF_OP_sub, x, target)), c, half;

    if (g->st)
        return WEFT_NIL;
    c = wf_binary(g, WF_OP_min, e, wf_const_like(g, delta == 0 ? 1 : delta, e));
    half = wf_binary(g, WF_OP_mul, c, wf_const_like(g, 0.5, c));
    return mean_all(g, wf_binary(g, WF_OP_mul, c, wf_binary(g, WF_OP_sub, e, half)));
}

weft_val weft_l2_loss(weft_graph *g, int n, const weft_val *values)
{
    weft_val total = WEFT_NIL;

    if (n < 1)
        wf_graph_fail(g, wf_err(WEFT_EINVAL, "l2_loss: needs at least one value"));
    for (int i = 0; i < n; i++) {
        weft_val s = wf_unary(g, WF_OP_sum, wf_unary(g, WF_OP_square, values[i]));

        total = i ? wf_binary(g, WF_OP_add, total, wf_cast_like(g, s, total)) : s;
    }
    return g->st ? WEFT_NIL : wf_binary(g, WF_OP_mul, total, wf_const_like(g, 0.5, total));
}

/* ---- attention ------------------------------------------------------------------------------- */

weft_val weft_attention(weft_graph *g, weft_val q, weft_val k, weft_val v,
                        const weft_attention_opts *opts)
{
    weft_attention_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_attention_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_STR("layout", o.time_first ? "bthd" : "bhtd"),
                            WF_SET_BOOL("causal", o.causal), WF_SET_FLOAT("scale", o.scale)};
    return wf_build(g, WF_OP_attention, 4, (weft_val[]){q, k, v, o.mask}, 3, sets);
}

weft_val weft_attention_packed(weft_graph *g, weft_val qkv, const weft_attention_opts *opts)
{
    weft_attention_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_attention_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("causal", o.causal), WF_SET_FLOAT("scale", o.scale)};
    return wf_build(g, WF_OP_attention_packed, 2, (weft_val[]){qkv, o.mask}, 2, sets);
}

/* ---- updates of variables -------------------------------------------------------------------- */

static bool is_variable(weft_graph *g, weft_val v, const char *what)
{
    if (!wf_check_val(g, v, what))
        return false;
    if (wf_val_node(g, v)->op->id == WF_OP_variable)
        return true;
    wf_graph_fail(g, wf_err(WEFT_EINVAL, "%s: '%s' is not a variable", what, weft_val_name(g, v)));
    return false;
}

weft_val weft_assign(weft_graph *g, weft_val variable, weft_val value)
{
    return is_variable(g, variable, "assign") ? wf_binary(g, WF_OP_assign, variable, value)
                                              : WEFT_NIL;
}

weft_val weft_assign_add(weft_graph *g, weft_val variable, weft_val value)
{
    return is_variable(g, variable, "assign_add") ? wf_binary(g, WF_OP_assign_add, variable, value)
                                                  : WEFT_NIL;
}

weft_val weft_assign_ema(weft_graph *g, weft_val variable, weft_val value, double momentum)
{
    struct wf_set sets[] = {WF_SET_FLOAT("momentum", momentum)};

    if (!is_variable(g, variable, "assign_ema"))
        return WEFT_NIL;
    return wf_build(g, WF_OP_assign_ema, 2, (weft_val[]){variable, value}, 1, sets);
}

/* ---- norms of many values -------------------------------------------------------------------- */

weft_val weft_global_norm(weft_graph *g, int n, const weft_val *values)
{
    return wf_build(g, WF_OP_global_norm, n, values, 0, NULL);
}

weft_val weft_clip_by_global_norm(weft_graph *g, int n, const weft_val *values, double clip_norm,
                                  weft_val *out)
{
    weft_val norm, clip, scale;

    if (!g->st && !(clip_norm > 0))
        wf_graph_fail(g, wf_err(WEFT_EINVAL, "clip_by_global_norm: clip_norm %g must be positive",
                                clip_norm));
    norm = weft_global_norm(g, n, values);
    if (g->st)
        return WEFT_NIL;
    clip = wf_const_like(g, clip_norm, norm);
    scale = wf_binary(g, WF_OP_div, clip, wf_binary(g, WF_OP_max, norm, clip));
    for (int i = 0; i < n; i++)
        out[i] = wf_binary(g, WF_OP_mul, values[i], wf_cast_like(g, scale, values[i]));
    return g->st ? WEFT_NIL : norm;
}
