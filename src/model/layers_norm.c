/* layers_norm.c - normalizations. A frozen BatchNormalization runs as in inference and does not
 * update its moving averages. */
#include "model/core.h"
#include "model/layers.h"

static double explicit_zero(double v)
{
    return v == 0 ? WEFT_ZERO : v;
}

/* gamma and beta if the layer has them. */
static void center_scale(weft_layer_call *c, int rank, const int64_t *dim, weft_val *gamma,
                         weft_val *beta)
{
    *gamma = weft_lc_bool(c, "scale") ? wf_lc_param(c, "gamma", rank, dim) : WEFT_NIL;
    *beta = weft_lc_bool(c, "center") ? wf_lc_param(c, "beta", rank, dim) : WEFT_NIL;
}

/* ---- axes ------------------------------------------------------------------------------------ */

struct axes {
    int n, rank;
    int64_t axis[WEFT_MAX_RANK];  /* from the front, in order */
    int64_t dim[WEFT_MAX_RANK];   /* sizes of those axes, if requested */
    int64_t shape[WEFT_MAX_RANK]; /* a shape that broadcasts over the input: 1 elsewhere */
    bool trailing;                /* the last n axes */
};

static weft_status read_axes(weft_layer_call *c, weft_val x, bool sizes, struct axes *a)
{
    const int64_t *given;
    int n = weft_lc_ints(c, "axis", &given);
    bool in[WEFT_MAX_RANK] = {false};

    *a = (struct axes){.rank = weft_lc_rank(c, x)};
    for (int i = 0; i < n; i++) {
        int axis = wf_lc_axis(c, "axis", given[i], a->rank);

        if (axis < 0)
            return WEFT_ERANGE;
        in[axis] = true;
    }
    for (int i = 0; i < a->rank; i++) {
        a->shape[i] = 1;
        if (!in[i])
            continue;
        a->axis[a->n] = i;
        if (sizes)
            a->dim[a->n] = a->shape[i] = weft_lc_dim(c, x, i);
        a->n++;
    }
    if (!a->n)
        return weft_lc_fail(c, WEFT_EINVAL, "axis must name at least one axis");
    a->trailing = a->axis[0] == a->rank - a->n;
    return WEFT_OK;
}

static weft_reduce_opts along(const struct axes *a)
{
    weft_reduce_opts o = {.size = sizeof o, .n_axes = a->n, .keepdims = true};

    memcpy(o.axes, a->axis, sizeof o.axes);
    return o;
}

static weft_val spread(weft_layer_call *c, weft_val v, const struct axes *a)
{
    return v.id ? weft_reshape(weft_lc_graph(c), v, a->rank, a->shape) : v;
}

/* gamma * (x - mean) / sqrt(variance + epsilon) + beta, from values that broadcast. */
static weft_val normalised(weft_graph *g, weft_val x, weft_val mean, weft_val variance,
                           double epsilon, weft_val gamma, weft_val beta)
{
    weft_val inv = weft_rsqrt(g, weft_add(g, variance, wf_const_like(g, epsilon, variance)));
    weft_val y = weft_mul(g, weft_sub(g, x, mean), gamma.id ? weft_mul(g, inv, gamma) : inv);

    return beta.id ? weft_add(g, y, beta) : y;
}

/* ---- batch ----------------------------------------------------------------------------------- */

/* Statistics of the steps that are not masked, as in Keras. x is [batch, time, channels]. */
static weft_val masked_batch_norm(weft_layer_call *c, weft_val x, weft_val gamma, weft_val beta,
                                  weft_val mean, weft_val variance)
{
    weft_graph *g = weft_lc_graph(c);
    int rank = weft_lc_rank(c, x);
    weft_reduce_opts all = {.size = sizeof all, .n_axes = rank - 1};
    weft_val step, n, batch_mean, batch_var, d;
    double momentum = weft_lc_float(c, "momentum");

    for (int i = 0; i < rank - 1; i++)
        all.axes[i] = i;
    step = weft_expand_dims(g, weft_cast(g, weft_lc_mask(c, 0), WEFT_F32), -1);
    n = weft_sum(g, step, NULL);
    n = weft_add(g, n, wf_const_like(g, 1e-7, n));
    batch_mean = weft_div(g, weft_sum(g, weft_mul(g, x, step), &all), n);
    d = weft_square(g, weft_sub(g, weft_mul(g, x, step), batch_mean));
    batch_var = weft_div(g, weft_sum(g, weft_mul(g, d, step), &all), n);
    weft_lc_update(c, weft_assign_ema(g, mean, batch_mean, momentum));
    weft_lc_update(c, weft_assign_ema(g, variance, batch_var, momentum));
    return normalised(g, x, batch_mean, batch_var, weft_lc_float(c, "epsilon"), gamma, beta);
}

weft_status wf_layer_batch_norm(weft_layer_call *c)
{
    weft_val x = weft_lc_in(c, 0), gamma, beta, moving[2], updates[2] = {WEFT_NIL, WEFT_NIL}, y;
    weft_val mask = weft_lc_mask(c, 0);
    int rank = weft_lc_rank(c, x), axis = wf_lc_axis(c, "axis", weft_lc_int(c, "axis"), rank);
    int64_t n = axis < 0 ? 0 : weft_lc_dim(c, x, axis);
    bool training = weft_lc_training(c);

    if (axis < 0)
        return WEFT_ERANGE;
    center_scale(c, 1, &n, &gamma, &beta);
    moving[0] = weft_lc_weight(c, "moving_mean", 1, &n,
                               WEFT_OPTS(weft_weight_opts,
                                         .initializer = weft_lc_text(c, "moving_mean_initializer"),
                                         .state = true));
    moving[1] = weft_lc_weight(
        c, "moving_variance", 1, &n,
        WEFT_OPTS(weft_weight_opts, .initializer = weft_lc_text(c, "moving_variance_initializer"),
                  .state = true));
    if (mask.id && (weft_lc_rank(c, mask) != rank - 1 || axis != rank - 1))
        return weft_lc_fail(c, WEFT_ESHAPE,
                            "with a mask, its rank must be one less than the input's and the axis "
                            "must be the last");
    if (training && mask.id) {
        y = masked_batch_norm(c, x, gamma, beta, moving[0], moving[1]);
    } else {
        y = weft_batch_norm(
            weft_lc_graph(c), wf_lc_axis_last(c, x, axis, false), gamma, beta, moving[0], moving[1],
            WEFT_OPTS(weft_batch_norm_opts, .training = training,
                      .momentum = explicit_zero(weft_lc_float(c, "momentum")),
                      .epsilon = explicit_zero(weft_lc_float(c, "epsilon")), .updates = updates));
        y = wf_lc_axis_last(c, y, axis, true);
        for (int i = 0; i < 2 && training; i++)
            weft_lc_update(c, updates[i]);
    }
    weft_lc_out(c, 0, y);
    return WEFT_OK;
}

/* ---- layer, group, root mean square, unit ---------------------------------------------------- */

weft_status wf_layer_layer_norm(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), gamma, beta, mean, variance;
    double epsilon = weft_lc_float(c, "epsilon");
    struct axes a;
    weft_reduce_opts o;
    weft_status st = read_axes(c, x, true, &a);

    if (st)
        return st;
    center_scale(c, a.n, a.dim, &gamma, &beta);
    if (a.trailing) {
        weft_lc_out(c, 0,
                    weft_layer_norm(g, x, gamma, beta,
                                    WEFT_OPTS(weft_layer_norm_opts, .n_axes = a.n,
                                              .epsilon = explicit_zero(epsilon))));
        return WEFT_OK;
    }
    o = along(&a);
    mean = weft_mean(g, x, &o);
    variance = weft_mean(g, weft_square(g, weft_sub(g, x, mean)), &o);
    weft_lc_out(
        c, 0, normalised(g, x, mean, variance, epsilon, spread(c, gamma, &a), spread(c, beta, &a)));
    return WEFT_OK;
}

weft_status wf_layer_rms_norm(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), scale, inv;
    double epsilon = weft_lc_float(c, "epsilon");
    struct axes a;
    weft_reduce_opts o;
    weft_status st = read_axes(c, x, true, &a);

    if (st)
        return st;
    scale =
        weft_lc_weight(c, "scale", a.n, a.dim, WEFT_OPTS(weft_weight_opts, .initializer = "ones"));
    if (a.trailing) {
        weft_lc_out(c, 0,
                    weft_rms_norm(g, x, scale,
                                  WEFT_OPTS(weft_rms_norm_opts, .n_axes = a.n,
                                            .epsilon = explicit_zero(epsilon))));
        return WEFT_OK;
    }
    o = along(&a);
    inv = weft_mean(g, weft_square(g, x), &o);
    inv = weft_rsqrt(g, weft_add(g, inv, wf_const_like(g, epsilon, inv)));
    weft_lc_out(c, 0, weft_mul(g, weft_mul(g, x, inv), spread(c, scale, &a)));
    return WEFT_OK;
}

weft_status wf_layer_group_norm(weft_layer_call *c)
{
    weft_val x = weft_lc_in(c, 0), gamma, beta, y;
    int rank = weft_lc_rank(c, x), axis = wf_lc_axis(c, "axis", weft_lc_int(c, "axis"), rank);
    int64_t n = axis < 0 ? 0 : weft_lc_dim(c, x, axis), groups = weft_lc_int(c, "groups");

    if (axis < 0)
        return WEFT_ERANGE;
    if (axis == 0)
        return weft_lc_fail(c, WEFT_EINVAL, "the batch cannot be divided into groups");
    if (groups == -1)
        groups = n;
    if (groups < 1 || n % groups)
        return weft_lc_fail(c, WEFT_EINVAL, "%lld channels cannot be divided into %lld groups",
                            (long long)n, (long long)groups);
    center_scale(c, 1, &n, &gamma, &beta);
    y = weft_group_norm(weft_lc_graph(c), wf_lc_axis_last(c, x, axis, false), gamma, beta,
                        WEFT_OPTS(weft_group_norm_opts, .groups = groups,
                                  .epsilon = explicit_zero(weft_lc_float(c, "epsilon"))));
    weft_lc_out(c, 0, wf_lc_axis_last(c, y, axis, true));
    return WEFT_OK;
}

weft_status wf_layer_unit_norm(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), norm;
    struct axes a;
    weft_reduce_opts o;
    weft_status st = read_axes(c, x, false, &a);

    if (st)
        return st;
    o = along(&a);
    norm = weft_norm_l2(g, x, &o);
    weft_lc_out(c, 0, weft_div(g, x, weft_max(g, norm, wf_const_like(g, 1e-12, norm))));
    return WEFT_OK;
}
