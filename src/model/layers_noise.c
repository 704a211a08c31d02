/* layers_noise.c - layers that perturb, scale or penalize values: dropout, noise, rescaling,
 * activity. Dropout and noise are active in every training step, frozen or not, as in Keras: they
 * have nothing to train. */
#include <math.h>
#include <stdio.h>

#include "model/core.h"
#include "model/layers.h"

/* ---- dropout and noise ----------------------------------------------------------------------- */

static weft_status check_rate(weft_layer_call *c, double rate, bool one_too)
{
    if (rate >= 0 && (rate < 1 || (one_too && rate == 1)))
        return WEFT_OK;
    return weft_lc_fail(c, WEFT_EINVAL, "rate must be between 0 and 1, got %g", rate);
}

static weft_status dropout(weft_layer_call *c, int n_shared, const int64_t *shared)
{
    weft_dropout_opts o = {.size = sizeof o, .n_shared = n_shared};
    double rate = weft_lc_float(c, "rate");
    weft_val x = weft_lc_in(c, 0);
    weft_status st = check_rate(c, rate, true);

    if (st)
        return st;
    for (int i = 0; i < n_shared; i++)
        o.shared_axes[i] = shared[i];
    if (c->b->training && rate > 0)
        x = weft_dropout(weft_lc_graph(c), x, rate, &o);
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}

weft_status wf_layer_dropout(weft_layer_call *c)
{
    const int64_t *shape;
    int64_t shared[WEFT_MAX_RANK];
    int n = weft_lc_ints(c, "noise_shape", &shape), rank = weft_lc_rank(c, weft_lc_in(c, 0)),
        n_shared = 0;

    if (n && n != rank)
        return weft_lc_fail(c, WEFT_EINVAL, "noise_shape needs %d numbers, got %d", rank, n);
    for (int i = 0; i < n; i++)
        if (shape[i] == 1)
            shared[n_shared++] = i;
        else if (shape[i] > 0 && shape[i] != weft_lc_dim(c, weft_lc_in(c, 0), i))
            return weft_lc_fail(c, WEFT_ESHAPE,
                                "noise_shape has %lld at axis %d: it must be 1, the size or -1",
                                (long long)shape[i], i);
    return dropout(c, n_shared, shared);
}

static weft_status spatial(weft_layer_call *c, int n, const char *meaning)
{
    weft_status st = wf_lc_need_rank(c, n + 2, meaning);

    return st ? st : dropout(c, n, (int64_t[]){1, 2, 3});
}

weft_status wf_layer_spatial_dropout1d(weft_layer_call *c)
{
    return spatial(c, 1, "[batch, time, channels]");
}

weft_status wf_layer_spatial_dropout2d(weft_layer_call *c)
{
    return spatial(c, 2, "[batch, height, width, channels]");
}

weft_status wf_layer_spatial_dropout3d(weft_layer_call *c)
{
    return spatial(c, 3, "[batch, depth, height, width, channels]");
}

static weft_val noise(weft_layer_call *c, double mean, double stddev)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0);

    return weft_random_normal(
        g, mean, stddev,
        WEFT_OPTS(weft_random_opts, .like = x, .dtype = wf_val_type_of(g, x)->dtype));
}

weft_status wf_layer_gaussian_dropout(weft_layer_call *c)
{
    double rate = weft_lc_float(c, "rate");
    weft_val x = weft_lc_in(c, 0);
    weft_status st = check_rate(c, rate, false);

    if (st)
        return st;
    if (c->b->training && rate > 0)
        x = weft_mul(weft_lc_graph(c), x, noise(c, 1, sqrt(rate / (1 - rate))));
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}

/* Dropped elements get the limit value of selu; then mean and variance are restored to 0 and 1. */
weft_status wf_layer_alpha_dropout(weft_layer_call *c)
{
    const double low = -1.6732632423543772 * 1.0507009873554805;
    weft_graph *g = weft_lc_graph(c);
    double rate = weft_lc_float(c, "rate"), a;
    weft_val x = weft_lc_in(c, 0), kept;
    weft_status st = check_rate(c, rate, false);

    if (st)
        return st;
    if (c->b->training && rate > 0) {
        a = 1 / sqrt((1 - rate) * (1 + rate * low * low));
        kept = weft_random_bernoulli(g, 1 - rate,
                                     WEFT_OPTS(weft_random_opts, .like = x, .dtype = WEFT_BOOL));
        x = weft_where(g, kept, x, wf_const_like(g, low, x));
        x = weft_add(g, weft_mul(g, x, wf_const_like(g, a, x)),
                     wf_const_like(g, -a * low * rate, x));
    }
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}

weft_status wf_layer_gaussian_noise(weft_layer_call *c)
{
    double stddev = weft_lc_float(c, "stddev");
    weft_val x = weft_lc_in(c, 0);

    if (!(stddev >= 0 && stddev <= 1))
        return weft_lc_fail(c, WEFT_EINVAL, "stddev must be between 0 and 1, got %g", stddev);
    if (c->b->training && stddev > 0)
        x = weft_add(weft_lc_graph(c), x, noise(c, 0, stddev));
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}

weft_status wf_layer_activity_regularization(weft_layer_call *c)
{
    char word[96];

    wf_snprintf(word, sizeof word, "l1_l2(%.17g,%.17g)", weft_lc_float(c, "l1"),
                weft_lc_float(c, "l2"));
    weft_lc_out(c, 0, weft_lc_in(c, 0));
    return wf_lc_activity(c, word, weft_lc_in(c, 0));
}

/* ---- scaling --------------------------------------------------------------------------------- */

/* One number for all, or one per channel. */
static weft_val per_channel(weft_layer_call *c, const char *attr, weft_val like)
{
    const double *v;
    int n = weft_lc_floats(c, attr, &v);

    if (n == 1)
        return wf_const_like(weft_lc_graph(c), v[0], like);
    if (n != weft_lc_dim(c, like, -1)) {
        weft_lc_fail(c, WEFT_EINVAL, "%s needs one number or one per channel, got %d", attr, n);
        return WEFT_NIL;
    }
    return wf_lc_vector(c, n, v);
}

weft_status wf_layer_rescaling(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = wf_lc_float_input(c, weft_lc_in(c, 0));

    x = weft_mul(g, x, per_channel(c, "scale", x));
    weft_lc_out(c, 0, weft_add(g, x, per_channel(c, "offset", x)));
    return WEFT_OK;
}

/* Mean or variance in a shape that broadcasts over x: given, or kept as state. */
static weft_val statistic(weft_layer_call *c, const char *name, const char *init, int n_kept,
                          const int64_t *kept, int rank, const int64_t *shape)
{
    const double *v;
    int n = weft_lc_floats(c, name, &v);
    int64_t count = 1;
    weft_val s;

    for (int i = 0; i < n_kept; i++)
        count *= kept[i];
    if (n && n != 1 && n != count) {
        weft_lc_fail(c, WEFT_EINVAL, "%s needs one number or %lld, got %d", name, (long long)count,
                     n);
        return WEFT_NIL;
    }
    s = n ? wf_lc_vector(c, n, v)
          : weft_lc_weight(c, name, n_kept, kept,
                           WEFT_OPTS(weft_weight_opts, .initializer = init, .state = true));
    return n == 1 ? s : weft_reshape(weft_lc_graph(c), s, rank, shape);
}

weft_status wf_layer_normalization(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = wf_lc_float_input(c, weft_lc_in(c, 0)), mean, deviation;
    const int64_t *axes;
    const double *given;
    int n = weft_lc_ints(c, "axis", &axes), rank = weft_lc_rank(c, x), n_kept = 0;
    int64_t shape[WEFT_MAX_RANK], kept[WEFT_MAX_RANK];
    bool keep[WEFT_MAX_RANK] = {false};

    if (!weft_lc_floats(c, "mean", &given) != !weft_lc_floats(c, "variance", &given))
        return weft_lc_fail(c, WEFT_EINVAL, "mean and variance must be given together");
    for (int i = 0; i < n; i++) {
        int axis = wf_lc_axis(c, "axis", axes[i], rank);

        if (axis < 0)
            return WEFT_ERANGE;
        keep[axis] = true;
    }
    for (int i = 0; i < rank; i++) {
        shape[i] = keep[i] ? weft_lc_dim(c, x, i) : 1;
        if (keep[i])
            kept[n_kept++] = shape[i];
    }
    mean = statistic(c, "mean", "zeros", n_kept, kept, rank, shape);
    deviation = weft_sqrt(g, statistic(c, "variance", "ones", n_kept, kept, rank, shape));
    deviation = weft_max(g, deviation, wf_const_like(g, 1e-7, deviation));
    if (weft_lc_bool(c, "invert"))
        x = weft_add(g, weft_mul(g, x, deviation), mean);
    else
        x = weft_div(g, weft_sub(g, x, mean), deviation);
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}
