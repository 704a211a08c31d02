/* norm.c - reference kernels of the normalisations.
 *
 * All of them are one thing: the elements of x fall into sets that are normalised together, and
 * each has a channel that says which scale and offset it gets. A struct norm says which element
 * belongs where; the loops over it are shared. An empty set has mean 0 and variance 0. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Element (o, s, g, i) of [n_outer][n_space][n_groups][n_in_group]: its set is (o, g), or (g)
 * when the samples are normalised together; its channel is the position in the last `n_channels`
 * elements. */
struct norm {
    int64_t n_outer, n_space, n_groups, n_in_group, n_channels;
};

static int64_t product(const struct wf_type *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

static struct norm batch_sets(const struct wf_type *x)
{
    int64_t c = x->dim[x->rank - 1];

    return (struct norm){1, product(x, 0, x->rank - 1), c, 1, c};
}

static struct norm last_sets(const struct wf_type *x, int64_t n_axes)
{
    int cut = x->rank - (int)n_axes;
    int64_t n = product(x, cut, x->rank);

    return (struct norm){product(x, 0, cut), 1, 1, n, n};
}

static struct norm group_sets(const struct wf_type *x, int64_t groups)
{
    int64_t c = x->dim[x->rank - 1];

    if (groups < 0)
        groups = c;
    return (struct norm){x->dim[0], product(x, 1, x->rank - 1), groups, groups ? c / groups : 0, c};
}

static int64_t set_size(const struct norm *m)
{
    return m->n_space * m->n_in_group;
}

/* Where the k-th element of set (o, g) stands. */
static int64_t place(const struct norm *m, int64_t set, int64_t k)
{
    int64_t o = set / m->n_groups, g = set % m->n_groups, s = k / m->n_in_group,
            i = k % m->n_in_group;

    return ((o * m->n_space + s) * m->n_groups + g) * m->n_in_group + i;
}

static double param(const struct wf_call *c, int i, int64_t channel, double absent)
{
    return i < c->n_in && c->in[i].data ? ref_get(&c->in[i], channel) : absent;
}

/* y, with mean and spread of each set: spread is the variance when want_var, else 1/sqrt(var +
 * epsilon). mean_out < 0: not centred (RMS). */
static void forward(const struct wf_call *c, const struct norm *m, int mean_out, int spread_out,
                    bool want_var)
{
    double epsilon = wf_call_float(c, "epsilon");
    int64_t n = set_size(m);

    for (int64_t set = 0; set < m->n_outer * m->n_groups; set++) {
        double mean = 0, var = 0, rstd;

        for (int64_t k = 0; k < n && mean_out >= 0; k++)
            mean += ref_get(&c->in[0], place(m, set, k)) / (double)n;
        for (int64_t k = 0; k < n; k++) {
            double d = ref_get(&c->in[0], place(m, set, k)) - mean;

            var += d * d / (double)n;
        }
        rstd = 1 / sqrt(var + epsilon);
        if (mean_out >= 0)
            ref_set(&c->out[mean_out], set, mean);
        ref_set(&c->out[spread_out], set, want_var ? var : rstd);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = place(m, set, k), channel = at % m->n_channels;

            ref_set(&c->out[0], at,
                    (ref_get(&c->in[0], at) - mean) * rstd * param(c, 1, channel, 1) +
                        param(c, 2, channel, 0));
        }
    }
}

/* With h = (x - mean) * rstd and g = dy * gamma:
 *   dx = rstd * (g - mean(g) - h * mean(g * h)), without mean(g) where x is not centred;
 *   dgamma = sum(dy * h), dbeta = sum(dy) over all elements of a channel. */
static void backward(const struct wf_call *c, const struct norm *m, bool centred, bool is_var,
                     int gamma)
{
    const struct wf_tensor *dy = &c->in[0], *x = &c->in[1];
    double epsilon = is_var ? wf_call_float(c, "epsilon") : 0;
    int64_t n = set_size(m);

    for (int64_t set = 0; set < m->n_outer * m->n_groups; set++) {
        double mean = centred ? ref_get(&c->in[2], set) : 0,
               rstd = ref_get(&c->in[centred ? 3 : 2], set);
        double g_sum = 0, gh_sum = 0;

        if (is_var)
            rstd = 1 / sqrt(rstd + epsilon);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = place(m, set, k);
            double g = ref_get(dy, at) * param(c, gamma, at % m->n_channels, 1);

            g_sum += centred ? g : 0;
            gh_sum += g * (ref_get(x, at) - mean) * rstd;
        }
        for (int64_t k = 0; k < n; k++) {
            int64_t at = place(m, set, k);
            double g = ref_get(dy, at) * param(c, gamma, at % m->n_channels, 1);
            double h = (ref_get(x, at) - mean) * rstd;

            ref_set(&c->out[0], at, rstd * (g - (g_sum + h * gh_sum) / (double)n));
        }
    }
}

static void backward_params(const struct wf_call *c, const struct norm *m, bool centred,
                            bool is_var)
{
    const struct wf_tensor *dy = &c->in[0], *x = &c->in[1];
    double epsilon = is_var ? wf_call_float(c, "epsilon") : 0;
    int64_t n = wf_count(x);

    for (int64_t channel = 0; channel < m->n_channels; channel++) {
        double dgamma = 0, dbeta = 0;

        for (int64_t at = channel; at < n; at += m->n_channels) {
            int64_t outer = at / (m->n_space * m->n_groups * m->n_in_group);
            int64_t set = outer * m->n_groups + at / m->n_in_group % m->n_groups;
            double mean = centred ? ref_get(&c->in[2], set) : 0,
                   rstd = ref_get(&c->in[centred ? 3 : 2], set);

            if (is_var)
                rstd = 1 / sqrt(rstd + epsilon);
            dgamma += ref_get(dy, at) * (ref_get(x, at) - mean) * rstd;
            dbeta += ref_get(dy, at);
        }
        ref_set(&c->out[1], channel, dgamma);
        if (c->n_out > 2)
            ref_set(&c->out[2], channel, dbeta);
    }
}

weft_status wf_ref_batch_norm(const struct wf_call *c)
{
    struct norm m = batch_sets(&c->in[0].type);

    forward(c, &m, 1, 2, true);
    return WEFT_OK;
}

weft_status wf_ref_batch_norm_grad(const struct wf_call *c)
{
    struct norm m = batch_sets(&c->in[1].type);

    backward(c, &m, true, true, 4);
    backward_params(c, &m, true, true);
    return WEFT_OK;
}

weft_status wf_ref_layer_norm(const struct wf_call *c)
{
    struct norm m = last_sets(&c->in[0].type, wf_call_int(c, "n_axes"));

    forward(c, &m, 1, 2, false);
    return WEFT_OK;
}

weft_status wf_ref_layer_norm_grad(const struct wf_call *c)
{
    struct norm m = last_sets(&c->in[1].type, wf_call_int(c, "n_axes"));

    backward(c, &m, true, false, 4);
    backward_params(c, &m, true, false);
    return WEFT_OK;
}

weft_status wf_ref_rms_norm(const struct wf_call *c)
{
    struct norm m = last_sets(&c->in[0].type, wf_call_int(c, "n_axes"));

    forward(c, &m, -1, 1, false);
    return WEFT_OK;
}

weft_status wf_ref_rms_norm_grad(const struct wf_call *c)
{
    struct norm m = last_sets(&c->in[1].type, wf_call_int(c, "n_axes"));

    backward(c, &m, false, false, 3);
    backward_params(c, &m, false, false);
    return WEFT_OK;
}

weft_status wf_ref_group_norm(const struct wf_call *c)
{
    struct norm m = group_sets(&c->in[0].type, wf_call_int(c, "groups"));

    forward(c, &m, 1, 2, true);
    return WEFT_OK;
}

weft_status wf_ref_group_norm_grad(const struct wf_call *c)
{
    struct norm m = group_sets(&c->in[1].type, wf_call_int(c, "groups"));

    backward(c, &m, true, true, 4);
    backward_params(c, &m, true, true);
    return WEFT_OK;
}
