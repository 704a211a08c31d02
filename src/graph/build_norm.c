/* build_norm.c - builders of the normalizations. */
#include "graph/nn.h"
#include "weft/ops_nn.h"

/* A numeric option: 0 means its default, WEFT_ZERO means 0. */
static double option(double given, double otherwise)
{
    return given == 0 ? otherwise : given == (double)WEFT_ZERO ? 0 : given;
}

/* gamma * (x - mean) * rsqrt(var + epsilon) + beta, as one product and one sum per element: scale
 * and offset of a channel are computed first. */
static weft_val normalise(weft_graph *g, weft_val x, weft_val gamma, weft_val beta, weft_val mean,
                          weft_val var, double epsilon)
{
    weft_val scale, offset, y;

    scale = wf_unary(g, WF_OP_rsqrt, wf_binary(g, WF_OP_add, var, wf_const_like(g, epsilon, var)));
    if (gamma.id)
        scale = wf_binary(g, WF_OP_mul, scale, wf_cast_like(g, gamma, var));
    offset = wf_binary(g, WF_OP_mul, wf_cast_like(g, mean, var), scale);
    y = wf_binary(g, WF_OP_mul, wf_cast_like(g, x, var), scale);
    if (beta.id) {
        offset = wf_binary(g, WF_OP_sub, wf_cast_like(g, beta, var), offset);
        y = wf_binary(g, WF_OP_add, y, offset);
    } else {
        y = wf_binary(g, WF_OP_sub, y, offset);
    }
    return wf_cast_like(g, y, x);
}

weft_val weft_batch_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                         weft_val moving_mean, weft_val moving_var,
                         const weft_batch_norm_opts *opts)
{
    weft_batch_norm_opts o;
    double epsilon, momentum;
    weft_val y, updates[2];

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_batch_norm_opts") ||
        !wf_check_val(g, x, "batch_norm"))
        return WEFT_NIL;
    epsilon = option(o.epsilon, 1e-3);
    momentum = option(o.momentum, 0.99);
    struct wf_set sets[] = {WF_SET_FLOAT("epsilon", epsilon)};

    if (!o.training) {
        if (!wf_check_val(g, moving_mean, "batch_norm: moving_mean") ||
            !wf_check_val(g, moving_var, "batch_norm: moving_var"))
            return WEFT_NIL;
        return normalise(g, x, gamma, beta, moving_mean, moving_var, epsilon);
    }
    y = wf_build(g, WF_OP_batch_norm, 3, (weft_val[]){x, gamma, beta}, 1, sets);
    if (!moving_mean.id && !moving_var.id)
        return y;
    updates[0] = weft_assign_ema(g, moving_mean, weft_output(g, y, 1), momentum);
    updates[1] = weft_assign_ema(g, moving_var, weft_output(g, y, 2), momentum);
    if (g->st)
        return WEFT_NIL;
    if (o.updates)
        memcpy(o.updates, updates, sizeof updates);
    return y;
}

weft_val weft_layer_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                         const weft_layer_norm_opts *opts)
{
    weft_layer_norm_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_layer_norm_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("n_axes", o.n_axes ? o.n_axes : 1),
                            WF_SET_FLOAT("epsilon", option(o.epsilon, 1e-3))};
    return wf_build(g, WF_OP_layer_norm, 3, (weft_val[]){x, gamma, beta}, 2, sets);
}

weft_val weft_rms_norm(weft_graph *g, weft_val x, weft_val gamma, const weft_rms_norm_opts *opts)
{
    weft_rms_norm_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_rms_norm_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("n_axes", o.n_axes ? o.n_axes : 1),
                            WF_SET_FLOAT("epsilon", option(o.epsilon, 1e-6))};
    return wf_build(g, WF_OP_rms_norm, 2, (weft_val[]){x, gamma}, 2, sets);
}

weft_val weft_group_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                         const weft_group_norm_opts *opts)
{
    weft_group_norm_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_group_norm_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("groups", o.groups ? o.groups : 32),
                            WF_SET_FLOAT("epsilon", option(o.epsilon, 1e-3))};
    return wf_build(g, WF_OP_group_norm, 3, (weft_val[]){x, gamma, beta}, 2, sets);
}

weft_val weft_instance_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                            const weft_instance_norm_opts *opts)
{
    weft_instance_norm_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_instance_norm_opts"))
        return WEFT_NIL;
    return weft_group_norm(g, x, gamma, beta,
                           WEFT_OPTS(weft_group_norm_opts, .groups = -1, .epsilon = o.epsilon));
}
