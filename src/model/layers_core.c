/* layers_core.c - shared functions, dense layers, activations as layers. */
#include <stdio.h>

#include "model/core.h"
#include "model/layers.h"

/* ---- shared ---------------------------------------------------------------------------------- */

weft_val wf_lc_param_fans(weft_layer_call *c, const char *name, const char *prefix, int rank,
                          const int64_t *dim, double fan_in, double fan_out)
{
    char init[64], regularizer[64], constraint[64];

    snprintf(init, sizeof init, "%s_initializer", prefix);
    snprintf(regularizer, sizeof regularizer, "%s_regularizer", prefix);
    snprintf(constraint, sizeof constraint, "%s_constraint", prefix);
    return weft_lc_weight(c, name, rank, dim,
                          WEFT_OPTS(weft_weight_opts, .initializer = weft_lc_text(c, init),
                                    .regularizer = weft_lc_text(c, regularizer),
                                    .constraint = weft_lc_text(c, constraint), .fan_in = fan_in,
                                    .fan_out = fan_out));
}

weft_val wf_lc_param_as(weft_layer_call *c, const char *name, const char *prefix, int rank,
                        const int64_t *dim)
{
    return wf_lc_param_fans(c, name, prefix, rank, dim, 0, 0);
}

weft_val wf_lc_param(weft_layer_call *c, const char *name, int rank, const int64_t *dim)
{
    return wf_lc_param_as(c, name, name, rank, dim);
}

weft_val wf_lc_finish(weft_layer_call *c, weft_val y, int64_t n)
{
    if (weft_lc_bool(c, "use_bias"))
        y = weft_add(weft_lc_graph(c), y, wf_lc_param(c, "bias", 1, &n));
    return weft_lc_activation(c, weft_lc_text(c, "activation"), y);
}

int wf_lc_choice(weft_layer_call *c, const char *attr, int n, const char *const *words)
{
    const char *given = weft_lc_text(c, attr);
    char list[256] = "";
    int at = 0;

    for (int i = 0; i < n; i++) {
        if (!strcmp(given, words[i]))
            return i;
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", i ? ", " : "", words[i]);
    }
    weft_lc_fail(c, WEFT_EINVAL, "%s '%.32s' is not one of %s%s", attr, given, list,
                 wf_did_you_mean(given, words, n).text);
    return -1;
}

int wf_lc_axis(weft_layer_call *c, const char *attr, int64_t axis, int rank)
{
    int64_t a = axis < 0 ? axis + rank : axis;

    if (a >= 0 && a < rank)
        return (int)a;
    weft_lc_fail(c, WEFT_ERANGE, "%s %lld does not exist in rank %d", attr, (long long)axis, rank);
    return -1;
}

weft_status wf_lc_need_rank(weft_layer_call *c, int rank, const char *meaning)
{
    int has = weft_lc_rank(c, weft_lc_in(c, 0));

    if (has == rank)
        return WEFT_OK;
    return weft_lc_fail(c, WEFT_ESHAPE, "needs an input of rank %d, %s, got rank %d", rank, meaning,
                        has);
}

weft_status wf_lc_positive(weft_layer_call *c, const char *attr, int64_t v)
{
    return v > 0
               ? WEFT_OK
               : weft_lc_fail(c, WEFT_EINVAL, "%s must be positive, got %lld", attr, (long long)v);
}

weft_status wf_lc_channels_last(weft_layer_call *c)
{
    if (!strcmp(weft_lc_text(c, "data_format"), "channels_last"))
        return WEFT_OK;
    return weft_lc_fail(
        c, WEFT_ENOSUP,
        "data_format '%.32s': channels must be last; add a Permute before the layer to move them",
        weft_lc_text(c, "data_format"));
}

weft_val wf_lc_vector(weft_layer_call *c, int n, const double *values)
{
    weft_graph *g = weft_lc_graph(c);
    float *data = wf_arena_alloc(&g->arena, sizeof *data * (size_t)(n + 1));
    int64_t dim = n;
    weft_tensor t = weft_view(WEFT_F32, data, 1, &dim);

    if (!data) {
        wf_lc_failed(c, wf_err_nomem(g->ctx, sizeof *data * (size_t)n, "constant"));
        return WEFT_NIL;
    }
    for (int i = 0; i < n; i++)
        data[i] = (float)values[i];
    return weft_constant(g, &t);
}

weft_val wf_lc_float_input(weft_layer_call *c, weft_val x)
{
    weft_graph *g = weft_lc_graph(c);

    if (g->st || wf_is_float(wf_val_type_of(g, x)->dtype))
        return x;
    return weft_cast(g, x, WEFT_F32);
}

weft_val wf_lc_axis_last(weft_layer_call *c, weft_val x, int axis, bool back)
{
    int64_t perm[WEFT_MAX_RANK];
    int rank = weft_lc_rank(c, x), n = 0;

    if (axis == rank - 1)
        return x;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            perm[n++] = i;
    perm[n] = axis;
    if (back) {
        n = 0;
        for (int i = 0; i < rank; i++)
            perm[i] = i == axis ? rank - 1 : n++;
    }
    return weft_transpose(weft_lc_graph(c), x, rank, perm);
}

/* ---- dense ----------------------------------------------------------------------------------- */

weft_status wf_layer_dense(weft_layer_call *c)
{
    weft_val x = wf_lc_float_input(c, weft_lc_in(c, 0)), kernel;
    int64_t units = weft_lc_int(c, "units"), n_in;
    weft_status st = wf_lc_positive(c, "units", units);

    if (st)
        return st;
    if (weft_lc_rank(c, x) < 2)
        return weft_lc_fail(c, WEFT_ESHAPE,
                            "needs an input of rank 2 or more, [batch, …, features]");
    n_in = weft_lc_dim(c, x, -1);
    kernel = wf_lc_param(c, "kernel", 2, (int64_t[]){n_in, units});
    weft_lc_out(c, 0, wf_lc_finish(c, weft_matmul(weft_lc_graph(c), x, kernel, NULL), units));
    return WEFT_OK;
}

/* The three terms of "ab,bc->ac"; the leading "..." of a term, if any, is skipped and recorded. */
struct equation {
    char in[32], kernel[32], out[32];
    bool dots_left, dots_right;
};

static bool take_term(const char **p, const char *end, char out[32], bool *left, bool *right)
{
    int n = 0;

    for (; *p < end; (*p)++) {
        if (!strncmp(*p, "...", 3)) {
            *(n ? right : left) = true;
            *p += 2;
        } else if (n < 31 && ((**p >= 'a' && **p <= 'z') || (**p >= 'A' && **p <= 'Z'))) {
            out[n++] = **p;
        } else {
            return false;
        }
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_equation(const char *text, struct equation *e)
{
    const char *comma = strchr(text, ','), *arrow = strstr(text, "->"), *p = text;
    bool none[2] = {false, false};

    if (!comma || !arrow || arrow < comma)
        return false;
    if (!take_term(&p, comma, e->in, &e->dots_left, &e->dots_right))
        return false;
    p = comma + 1;
    if (!take_term(&p, arrow, e->kernel, &none[0], &none[1]) || none[0] || none[1])
        return false;
    p = arrow + 2;
    return take_term(&p, p + strlen(p), e->out, &e->dots_left, &e->dots_right) &&
           !(e->dots_left && e->dots_right);
}

/* The size of a letter: the input's, or that of output_shape (which excludes the batch and the
 * dots). */
static int64_t letter_size(weft_layer_call *c, const struct equation *e, char letter)
{
    const char *in = strchr(e->in, letter), *out = strchr(e->out, letter);
    const int64_t *shape;
    int n = weft_lc_ints(c, "output_shape", &shape), rank = weft_lc_rank(c, weft_lc_in(c, 0));
    int64_t at = out ? out - e->out - !e->dots_left : -1;

    if (in)
        return weft_lc_dim(c, weft_lc_in(c, 0),
                           e->dots_left ? rank - (int)strlen(in) : (int)(in - e->in));
    if (at < 0 || at >= n || shape[at] <= 0) {
        weft_lc_fail(c, WEFT_EINVAL, "output_shape does not give the size of '%c'", letter);
        return 0;
    }
    return shape[at];
}

/* The bias has the output's axes from the first named letter on, with size 1 for letters that are
 * not named. */
static weft_val add_bias(weft_layer_call *c, const struct equation *e, const char *axes, weft_val y)
{
    int64_t dim[WEFT_MAX_RANK];
    int n = (int)strlen(e->out), first = (int)strcspn(e->out, axes), rank = 0;

    if (strspn(axes, e->out) != strlen(axes)) {
        weft_lc_fail(c, WEFT_EINVAL, "not all of bias_axes '%.32s' are in the result", axes);
        return WEFT_NIL;
    }
    if (weft_lc_rank(c, y) < n)
        return WEFT_NIL; /* the product has failed */
    for (int i = first; i < n; i++)
        dim[rank++] = strchr(axes, e->out[i]) ? letter_size(c, e, e->out[i]) : 1;
    for (int i = n; e->dots_right && i < weft_lc_rank(c, y); i++)
        dim[rank++] = 1;
    return weft_add(weft_lc_graph(c), y, wf_lc_param(c, "bias", rank, dim));
}

weft_status wf_layer_einsum_dense(weft_layer_call *c)
{
    const char *text = weft_lc_text(c, "equation"), *axes = weft_lc_text(c, "bias_axes");
    struct equation e = {.in = ""};
    weft_graph *g = weft_lc_graph(c);
    int64_t dim[WEFT_MAX_RANK];
    double fan_in = 1, fan_out = 1;
    weft_val y;
    int rank;

    if (!parse_equation(text, &e))
        return weft_lc_fail(c, WEFT_EINVAL, "equation '%.64s' does not have the form ab,bc->ac",
                            text);
    if (strlen(e.in) > (size_t)weft_lc_rank(c, weft_lc_in(c, 0)) ||
        strlen(e.kernel) > WEFT_MAX_RANK)
        return weft_lc_fail(c, WEFT_ESHAPE, "equation '%.64s' does not fit an input of rank %d",
                            text, weft_lc_rank(c, weft_lc_in(c, 0)));
    rank = (int)strlen(e.kernel);
    for (int i = 0; i < rank; i++) {
        dim[i] = letter_size(c, &e, e.kernel[i]);
        *(strchr(e.out, e.kernel[i]) ? &fan_out : &fan_in) *= (double)dim[i];
    }
    y = weft_einsum(g, text, wf_lc_float_input(c, weft_lc_in(c, 0)),
                    wf_lc_param_fans(c, "kernel", "kernel", rank, dim, fan_in, fan_out));
    if (*axes)
        y = add_bias(c, &e, axes, y);
    weft_lc_out(c, 0, weft_lc_activation(c, weft_lc_text(c, "activation"), y));
    return WEFT_OK;
}

/* ---- activations ----------------------------------------------------------------------------- */

weft_status wf_layer_activation(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_lc_activation(c, weft_lc_text(c, "activation"), weft_lc_in(c, 0)));
    return WEFT_OK;
}

static weft_status by_word(weft_layer_call *c, const char *word)
{
    weft_lc_out(c, 0, weft_lc_activation(c, word, weft_lc_in(c, 0)));
    return WEFT_OK;
}

weft_status wf_layer_relu(weft_layer_call *c)
{
    double max = weft_lc_float(c, "max_value"), slope = weft_lc_float(c, "negative_slope");
    char word[128];

    if (!(max >= 0) || !(slope >= 0))
        return weft_lc_fail(c, WEFT_EINVAL, "max_value and negative_slope must not be negative");
    wf_snprintf(word, sizeof word, "relu(%.17g,%.17g,%.17g)", slope, max,
                weft_lc_float(c, "threshold"));
    return by_word(c, word);
}

weft_status wf_layer_leaky_relu(weft_layer_call *c)
{
    char word[64];

    wf_snprintf(word, sizeof word, "leaky_relu(%.17g)", weft_lc_float(c, "negative_slope"));
    return by_word(c, word);
}

weft_status wf_layer_elu(weft_layer_call *c)
{
    char word[64];

    wf_snprintf(word, sizeof word, "elu(%.17g)", weft_lc_float(c, "alpha"));
    return by_word(c, word);
}

weft_status wf_layer_prelu(weft_layer_call *c)
{
    weft_val x = weft_lc_in(c, 0);
    const int64_t *shared;
    int n = weft_lc_ints(c, "shared_axes", &shared), rank = weft_lc_rank(c, x);
    int64_t dim[WEFT_MAX_RANK] = {0};

    for (int i = 0; i < n; i++) {
        int axis = wf_lc_axis(c, "shared_axes", shared[i], rank);

        if (axis < 1)
            return weft_lc_fail(c, WEFT_ERANGE, "the batch axis is always shared");
        dim[axis] = 1;
    }
    for (int i = 1; i < rank; i++)
        if (!dim[i])
            dim[i] = weft_lc_dim(c, x, i);
    weft_lc_out(c, 0, weft_prelu(weft_lc_graph(c), x, wf_lc_param(c, "alpha", rank - 1, dim + 1)));
    return WEFT_OK;
}

weft_status wf_layer_softmax(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), mask = weft_lc_mask(c, 0), zero = WEFT_NIL, y;
    weft_reduce_opts along = {.size = sizeof along, .keepdims = true};
    const int64_t *axis;
    int n = weft_lc_ints(c, "axis", &axis), rank = weft_lc_rank(c, x);

    if (n < 1 || n > rank)
        return weft_lc_fail(c, WEFT_EINVAL, "axis needs 1 to %d numbers, got %d", rank, n);
    if (mask.id && weft_lc_rank(c, mask) != rank)
        return weft_lc_fail(c, WEFT_ESHAPE, "its mask of rank %d does not fit an input of rank %d",
                            weft_lc_rank(c, mask), rank);
    if (mask.id) {
        double low = wf_val_type_of(g, x)->dtype == WEFT_F16 ? -3e4 : -1e9;

        zero = weft_zeros_like(g, x);
        x = weft_where(g, mask, x, weft_add(g, zero, wf_const_like(g, low, x)));
    }
    along.n_axes = n;
    memcpy(along.axes, axis, sizeof *axis * (size_t)n);
    y = n == 1 ? weft_softmax(g, x, (int)axis[0])
               : weft_exp(g, weft_sub(g, x, weft_logsumexp(g, x, &along)));
    weft_lc_out(c, 0, mask.id ? weft_where(g, mask, y, zero) : y);
    return WEFT_OK;
}

weft_status wf_layer_identity(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_lc_in(c, 0));
    return WEFT_OK;
}
