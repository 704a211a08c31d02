/* layers_core.c - what layers share, dense layers, and activations as layers. */
#include <stdio.h>

#include "model/layers.h"

/* ---- shared ---------------------------------------------------------------------------------- */

weft_val wf_lc_param(weft_layer_call *c, const char *name, int rank, const int64_t *dim)
{
    char init[64], regularizer[64], constraint[64];

    snprintf(init, sizeof init, "%s_initializer", name);
    snprintf(regularizer, sizeof regularizer, "%s_regularizer", name);
    snprintf(constraint, sizeof constraint, "%s_constraint", name);
    return weft_lc_weight(c, name, rank, dim,
                          WEFT_OPTS(weft_weight_opts, .initializer = weft_lc_text(c, init),
                                    .regularizer = weft_lc_text(c, regularizer),
                                    .constraint = weft_lc_text(c, constraint)));
}

weft_val wf_lc_finish(weft_layer_call *c, weft_val y, int64_t n)
{
    if (weft_lc_bool(c, "use_bias"))
        y = weft_add(weft_lc_graph(c), y, wf_lc_param(c, "bias", 1, &n));
    return weft_lc_activation(c, weft_lc_text(c, "activation"), y);
}

int wf_lc_choice(weft_layer_call *c, const char *attr, int n, const char *const *words)
{
    const char *given = weft_lc_text(c, attr), *near;
    char list[256] = "";
    int at = 0;

    for (int i = 0; i < n; i++) {
        if (!strcmp(given, words[i]))
            return i;
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", i ? ", " : "", words[i]);
    }
    near = weft_nearest(given, words, n);
    if (near)
        weft_lc_fail(c, WEFT_EINVAL, "%s '%.32s' is none of %s (did you mean '%s'?)", attr, given,
                     list, near);
    else
        weft_lc_fail(c, WEFT_EINVAL, "%s '%.32s' is none of %s", attr, given, list);
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

static weft_status positive(weft_layer_call *c, const char *attr, int64_t v)
{
    return v > 0 ? WEFT_OK
                 : weft_lc_fail(c, WEFT_EINVAL, "%s must be positive, got %lld", attr,
                                (long long)v);
}

/* ---- dense ----------------------------------------------------------------------------------- */

weft_status wf_layer_dense(weft_layer_call *c)
{
    weft_val x = weft_lc_in(c, 0), kernel;
    int64_t units = weft_lc_int(c, "units"), n_in;
    weft_status st = positive(c, "units", units);

    if (st)
        return st;
    if (weft_lc_rank(c, x) < 2)
        return weft_lc_fail(c, WEFT_ESHAPE, "needs an input of rank 2 or more, [batch, …, features]");
    n_in = weft_lc_dim(c, x, -1);
    kernel = wf_lc_param(c, "kernel", 2, (int64_t[]){n_in, units});
    weft_lc_out(c, 0, wf_lc_finish(c, weft_matmul(weft_lc_graph(c), x, kernel, NULL), units));
    return WEFT_OK;
}

/* ---- activations ----------------------------------------------------------------------------- */

weft_status wf_layer_activation(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_lc_activation(c, weft_lc_text(c, "activation"), weft_lc_in(c, 0)));
    return WEFT_OK;
}

weft_status wf_layer_flatten(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_flatten(weft_lc_graph(c), weft_lc_in(c, 0)));
    return WEFT_OK;
}
