/* gradcheck.c - gradients against finite differences, in f64 on the reference kernels. */
#include <math.h>

#include "exec/exec.h"
#include "weft/check.h"
#include "weft/optim.h"

struct check {
    weft_ctx *ctx;
    weft_graph *g;      /* the f64 copy */
    weft_fn *fn;        /* fetches the loss, then the gradients */
    weft_fn *loss_only; /* shares its variables */
    weft_tensor *feeds; /* as f64 */
    int n_feeds, n_vars;
    weft_val loss, *vars, *grads, *feed_vals;
};

static void free_check(struct check *c)
{
    for (int i = 0; c->feeds && i < c->n_feeds; i++)
        wf_free(c->ctx, c->feeds[i].data);
    wf_free(c->ctx, c->feeds);
    wf_free(c->ctx, c->vars);
    weft_fn_free(c->loss_only);
    weft_fn_free(c->fn);
    weft_graph_free(c->g);
}

static weft_status widen_feeds(struct check *c, const weft_tensor *data)
{
    c->feeds = wf_alloc_n(c->ctx, c->n_feeds + 1, sizeof *c->feeds);
    if (!c->feeds)
        return wf_err_nomem(c->ctx, sizeof *c->feeds, "gradient check");
    for (int i = 0; i < c->n_feeds; i++) {
        int64_t n = weft_tensor_count(&data[i]);
        weft_dtype t = wf_is_float(data[i].dtype) ? WEFT_F64 : data[i].dtype;

        if (n < 0)
            return wf_err(WEFT_ESHAPE, "gradient check: feed %d has no valid shape", i);
        c->feeds[i] = data[i];
        c->feeds[i].dtype = t;
        c->feeds[i].data = wf_alloc(c->ctx, (size_t)(n * weft_dtype_size(t)) + 1);
        if (!c->feeds[i].data)
            return wf_err_nomem(c->ctx, (size_t)n * 8, "gradient check");
        for (int64_t k = 0; k < n; k++)
            if (t == WEFT_F64)
                ((double *)c->feeds[i].data)[k] = wf_get(data[i].data, data[i].dtype, k);
            else
                wf_set_int(c->feeds[i].data, t, k, wf_get_int(data[i].data, t, k));
    }
    return WEFT_OK;
}

/* The f64 graph with its gradients, and the two functions. */
static weft_status prepare(struct check *c, weft_graph *g, weft_val loss, const weft_val *feeds,
                           const weft_val *vars)
{
    int n = 1 + c->n_feeds + c->n_vars;
    int32_t *roots;
    weft_status st = WEFT_OK;

    c->vars = wf_alloc_n(c->ctx, 2 * (int64_t)n + c->n_vars, sizeof *c->vars);
    if (!c->vars)
        return wf_err_nomem(c->ctx, (size_t)n * sizeof *c->vars, "gradient check");
    c->grads = c->vars + c->n_vars;
    c->feed_vals = c->grads + c->n_vars + 1;
    roots = (int32_t *)(void *)(c->feed_vals + c->n_feeds);
    roots[0] = loss.id;
    for (int i = 0; i < c->n_feeds; i++)
        roots[1 + i] = feeds[i].id;
    for (int i = 0; i < c->n_vars; i++)
        roots[1 + c->n_feeds + i] = vars[i].id;
    st = wf_pass_as_f64(g, n, roots, &c->g);
    if (st)
        return st;
    c->loss.id = roots[0];
    for (int i = 0; i < c->n_feeds; i++)
        c->feed_vals[i].id = roots[1 + i];
    for (int i = 0; i < c->n_vars; i++)
        c->vars[i].id = roots[1 + c->n_feeds + i];
    c->grads[0] = c->loss;
    st = weft_grad(c->g, c->loss, c->n_vars, c->vars, c->grads + 1);
    for (int i = 0; i < c->n_vars && !st; i++)
        if (!c->grads[1 + i].id)
            c->grads[1 + i] = weft_op(c->g, "zeros_like", 1, &c->vars[i], NULL);
    if (!st)
        st = weft_fn_new(c->g,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = c->n_feeds, .feeds = c->feed_vals,
                                   .n_fetches = 1 + c->n_vars, .fetches = c->grads,
                                   .reference_kernels = true, .device = "cpu:0"),
                         &c->fn);
    if (!st)
        st = weft_fn_new(c->g,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = c->n_feeds, .feeds = c->feed_vals,
                                   .n_fetches = 1, .fetches = &c->loss, .reference_kernels = true,
                                   .share = c->fn, .device = "cpu:0"),
                         &c->loss_only);
    return st;
}

static weft_status loss_at(struct check *c, double *x, double value, double *out)
{
    double old = *x;
    weft_tensor t = {.data = NULL};
    weft_status st;

    *x = value;
    st = weft_fn_run(c->loss_only, c->feeds, &t);
    *x = old;
    if (!st)
        *out = *(const double *)t.data;
    return st;
}

static weft_status check_variable(struct check *c, int v, const double *grad,
                                  const weft_grad_check_opts *o, weft_grad_check_result *r)
{
    int64_t most = o->max_elements ? o->max_elements : 64, n, stride;
    const char *name = weft_val_name(c->g, c->vars[v]);
    weft_tensor t;
    weft_status st = weft_fn_view(c->fn, name, &t);

    if (st)
        return st;
    n = weft_tensor_count(&t);
    stride = most > 0 && n > most ? n / most : 1;
    for (int64_t i = 0; i < n && !st; i += stride) {
        double *x = (double *)t.data + i, h = (o->step ? o->step : 1e-5) * fmax(1, fabs(*x)),
               up = 0, down = 0, d, err;

        st = loss_at(c, x, *x + h, &up);
        if (!st)
            st = loss_at(c, x, *x - h, &down);
        d = (up - down) / (2 * h);
        err = fabs(d - grad[i]) / fmax(1, fmax(fabs(d), fabs(grad[i])));
        r->n_checked++;
        if (!(err <= r->worst)) { /* NaN is the worst */
            r->worst = err;
            r->variable = wf_val_node(c->g, c->vars[v])->name;
            r->element = i;
            r->analytic = grad[i];
            r->numeric = d;
        }
    }
    return st;
}

/* The variable's name in the caller's graph, which outlives the copy. */
static void settle_name(const weft_graph *g, weft_grad_check_result *r)
{
    weft_val v;

    if (r->variable)
        r->variable = weft_find(g, r->variable, &v) ? "" : weft_val_name(g, v);
}

static weft_status run_check(struct check *c, const weft_grad_check_opts *o,
                             weft_grad_check_result *r)
{
    weft_tensor *out = wf_alloc_n(c->ctx, c->n_vars + 1, sizeof *out);
    weft_status st = out ? weft_fn_run(c->fn, c->feeds, out)
                         : wf_err_nomem(c->ctx, sizeof *out, "gradient check");

    for (int i = 0; i < c->n_vars && !st; i++)
        st = check_variable(c, i, out[1 + i].data, o, r);
    wf_free(c->ctx, out);
    return st;
}

weft_status weft_grad_check(weft_graph *g, weft_val loss, int n_feeds, const weft_val *feeds,
                            const weft_tensor *data, int n_vars, const weft_val *vars,
                            const weft_grad_check_opts *opts, weft_grad_check_result *out)
{
    weft_grad_check_opts o = {.size = 0};
    struct check c = {
        .ctx = g->ctx, .n_feeds = n_feeds, .n_vars = n_vars ? n_vars : weft_trainable(g, 0, NULL)};
    double tolerance = 0;
    weft_grad_check_result r = {.worst = 0};
    weft_val *all = NULL;
    weft_status st = weft_graph_status(g);

    if (!st)
        st = wf_opts_take(&o, sizeof o, opts, "weft_grad_check_opts");
    if (!st)
        tolerance = o.tolerance ? o.tolerance : 1e-5;
    if (!st && n_vars == 0) {
        all = wf_alloc_n(g->ctx, c.n_vars + 1, sizeof *all);
        if (!all)
            return wf_err_nomem(g->ctx, sizeof *all, "gradient check");
        weft_trainable(g, c.n_vars, all);
        vars = all;
    }
    if (!st)
        st = widen_feeds(&c, data);
    if (!st)
        st = prepare(&c, g, loss, feeds, vars);
    if (!st)
        st = run_check(&c, &o, &r);
    settle_name(g, &r);
    if (!st && out)
        *out = r;
    if (!st && !(r.worst <= tolerance))
        st = wf_err(WEFT_ENUMERIC,
                    "gradient of '%s' at element %lld: %.9g, finite differences say %.9g",
                    r.variable, (long long)r.element, r.analytic, r.numeric);
    free_check(&c);
    wf_free(g->ctx, all);
    return st;
}
