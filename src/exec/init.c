/* init.c - initial values of variables, as Keras defines them. */
#include <math.h>

#include "exec/exec.h"

/* Fan-in and fan-out: dense [in, out], convolutions [space…, in, out]. */
static void fans(const struct wf_type *t, double *fan_in, double *fan_out)
{
    double space = 1;

    for (int i = 0; i < t->rank - 2; i++)
        space *= (double)t->dim[i];
    *fan_in = t->rank == 0 ? 1 : t->rank == 1 ? (double)t->dim[0] : space * (double)t->dim[t->rank - 2];
    *fan_out = t->rank == 0 ? 1 : t->rank == 1 ? (double)t->dim[0] : space * (double)t->dim[t->rank - 1];
}

static void fill(const struct wf_type *t, void *data, double v)
{
    for (int64_t i = 0, n = wf_type_count(t); i < n; i++)
        wf_set(data, t->dtype, i, v);
}

static weft_status identity(const struct wf_type *t, void *data, double gain)
{
    if (t->rank != 2)
        return wf_err(WEFT_ESHAPE, "identity: needs rank 2, has %d", t->rank);
    fill(t, data, 0);
    for (int64_t i = 0; i < t->dim[0] && i < t->dim[1]; i++)
        wf_set(data, t->dtype, i * t->dim[1] + i, gain);
    return WEFT_OK;
}

weft_status wf_init_variable(weft_ctx *ctx, const struct wf_node *n, const struct wf_type *t, void *data)
{
    const char *init = wf_attr_str(n->op, n->attr, "init");
    const struct wf_attr *p = wf_attr(n->op, n->attr, "init_params");
    double a = p->n > 0 ? p->floats[0] : 0, fan_in, fan_out;

    (void)ctx;
    fans(t, &fan_in, &fan_out);
    if (!strcmp(init, "zeros"))
        fill(t, data, 0);
    else if (!strcmp(init, "ones"))
        fill(t, data, 1);
    else if (!strcmp(init, "constant"))
        fill(t, data, a);
    else if (!strcmp(init, "identity"))
        return identity(t, data, a ? a : 1);
    else
        fill(t, data, 0.01);
    return WEFT_OK;
}
