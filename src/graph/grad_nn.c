/* grad_nn.c - gradient rules of softmax, its losses and the global norm. */
#include "graph/grad.h"
#include "graph/nn.h"

static weft_val mul(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_mul, a, b);
}

static weft_val sub(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_sub, a, b);
}

/* a + b, where either may be absent. */
static weft_val add(weft_graph *g, weft_val a, weft_val b)
{
    return !a.id ? b : !b.id ? a : wf_binary(g, WF_OP_add, a, b);
}

static weft_val along(weft_graph *g, int op_id, int n_in, const weft_val *in, int64_t axis)
{
    struct wf_set sets[] = {WF_SET_INT("axis", axis)};

    return wf_build(g, op_id, n_in, in, 1, sets);
}

static weft_val sum_along(weft_graph *g, weft_val x, int64_t axis)
{
    struct wf_set sets[] = {WF_SET_INTS("axes", 1, &axis), WF_SET_BOOL("keepdims", true)};

    return wf_build(g, WF_OP_sum, 1, &x, 2, sets);
}

/* x[…] as x[…,1], to go with a value of `rank`. */
static weft_val as_column(weft_graph *g, weft_val x, int rank)
{
    return wf_expand_axes(g, x, 1, (int64_t[]){rank - 1}, rank);
}

/* ---- softmax --------------------------------------------------------------------------------- */

weft_status wf_grad_softmax(struct wf_grad *r)
{
    r->din[0] = along(r->g, WF_OP_softmax_grad, 2, (weft_val[]){r->dout[0], r->out[0]},
                      wf_grad_int(r, "axis"));
    return r->g->st;
}

/* dx = y (dy - Σ dy y).  For u = the gradient of dx:
 *   to dy: y (u - Σ u y);   to y: u (dy - Σ dy y) - dy Σ u y. */
weft_status wf_grad_softmax_grad(struct wf_grad *r)
{
    weft_graph *g = r->g;
    int64_t axis = wf_grad_int(r, "axis");
    weft_val dy = r->in[0], y = r->in[1], u = r->dout[0];

    if (r->need[0])
        r->din[0] = along(g, WF_OP_softmax_grad, 2, (weft_val[]){u, y}, axis);
    if (r->need[1]) {
        weft_val centred = sub(g, dy, sum_along(g, mul(g, dy, y), axis));

        r->din[1] = sub(g, mul(g, u, centred), mul(g, dy, sum_along(g, mul(g, u, y), axis)));
    }
    return g->st;
}

weft_status wf_grad_log_softmax(struct wf_grad *r)
{
    r->din[0] = along(r->g, WF_OP_log_softmax_grad, 2, (weft_val[]){r->dout[0], r->out[0]},
                      wf_grad_int(r, "axis"));
    return r->g->st;
}

/* dx = dy - exp(y) Σ dy.  To dy: u - Σ u exp(y);  to y: -u exp(y) Σ dy. */
weft_status wf_grad_log_softmax_grad(struct wf_grad *r)
{
    weft_graph *g = r->g;
    int64_t axis = wf_grad_int(r, "axis");
    weft_val dy = r->in[0], u = r->dout[0], up = mul(g, u, wf_unary(g, WF_OP_exp, r->in[1]));

    if (r->need[0])
        r->din[0] = sub(g, u, sum_along(g, up, axis));
    if (r->need[1])
        r->din[1] = wf_unary(g, WF_OP_neg, mul(g, up, sum_along(g, dy, axis)));
    return g->st;
}

/* p = softmax(x + mask), l its log-sum-exp: dx = p (dp - Σ dp p) + dl p; where p is 0 nothing
 * flows. */
weft_status wf_grad_masked_softmax(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val dx = WEFT_NIL;
    int rank = wf_val_type_of(g, r->in[0])->rank;

    if (r->dout[0].id)
        dx = along(g, WF_OP_softmax_grad, 2, (weft_val[]){r->dout[0], r->out[0]}, -1);
    if (r->dout[1].id) {
        weft_val dl = wf_cast_like(g, as_column(g, r->dout[1], rank), r->in[0]);

        dx = add(g, dx, mul(g, dl, r->out[0]));
    }
    r->din[0] = dx;
    if (r->n_in > 1 && r->need[1] && wf_is_float(wf_val_type_of(g, r->in[1])->dtype))
        r->din[1] = wf_reduce_to_like(g, dx, r->in[1]);
    return g->st;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* 1 where the label counts, 0 where it is ignored; a column of the type of the logits. */
static weft_val counted(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val ignored = wf_const_like(g, (double)wf_grad_int(r, "ignore_index"), r->in[1]);
    weft_val keep = wf_binary(g, WF_OP_ne, r->in[1], ignored);

    return as_column(g, wf_cast_like(g, keep, r->in[0]), wf_val_type_of(g, r->in[0])->rank);
}

/* loss = -log_softmax(x)[label], whose gradient is the backprop output at scale 1;
 * backprop = scale (softmax(x) - one_hot), whose gradient is that of a softmax. */
weft_status wf_grad_sparse_softmax_xent(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val x = r->in[0], b = r->out[1], dx = WEFT_NIL;
    bool ignore = wf_grad_int(r, "ignore");
    double scale = wf_grad_float(r, "scale");

    if (r->dout[0].id && scale != 1) {
        struct wf_set sets[] = {WF_SET_BOOL("ignore", ignore),
                                WF_SET_INT("ignore_index", wf_grad_int(r, "ignore_index"))};

        b = weft_output(g, wf_build(g, WF_OP_sparse_softmax_xent, 2, r->in, 2, sets), 1);
    }
    if (r->dout[0].id)
        dx = mul(g, as_column(g, r->dout[0], wf_val_type_of(g, x)->rank), b);
    if (r->dout[1].id) {
        weft_val p = along(g, WF_OP_softmax, 1, &x, -1);
        weft_val d = along(g, WF_OP_softmax_grad, 2, (weft_val[]){r->dout[1], p}, -1);

        if (ignore)
            d = mul(g, d, counted(r));
        if (scale != 1)
            d = mul(g, d, wf_const_like(g, scale, d));
        dx = add(g, dx, d);
    }
    r->din[0] = dx;
    return g->st;
}

/* loss = -Σ t log_softmax(x), backprop = softmax(x) Σt - t.
 * With u = the gradient of backprop, p = softmax(x):
 *   to x: dloss backprop + Σt p (u - Σ u p);   to t: -dloss log_softmax(x) + Σ u p - u. */
weft_status wf_grad_softmax_xent(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val x = r->in[0], t = r->in[1], u = r->dout[1], dx = WEFT_NIL, dt = WEFT_NIL;

    if (r->dout[0].id) {
        weft_val dl = as_column(g, r->dout[0], wf_val_type_of(g, x)->rank);

        if (r->need[0])
            dx = mul(g, dl, r->out[1]);
        if (r->need[1])
            dt = wf_unary(g, WF_OP_neg, mul(g, dl, along(g, WF_OP_log_softmax, 1, &x, -1)));
    }
    if (u.id) {
        weft_val p = along(g, WF_OP_softmax, 1, &x, -1);

        if (r->need[0]) {
            weft_val d = along(g, WF_OP_softmax_grad, 2, (weft_val[]){u, p}, -1);

            dx = add(g, dx, mul(g, d, sum_along(g, t, -1)));
        }
        if (r->need[1])
            dt = add(g, dt, sub(g, sum_along(g, mul(g, u, p), -1), u));
    }
    r->din[0] = dx;
    r->din[1] = dt;
    return g->st;
}

weft_status wf_grad_sigmoid_xent(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val x = r->in[0], t = r->in[1], dy = r->dout[0];

    if (r->need[0]) {
        weft_val d = sub(g, wf_unary(g, WF_OP_sigmoid, x), t);

        r->din[0] = wf_reduce_to_like(g, mul(g, dy, d), x);
    }
    if (r->need[1])
        r->din[1] = wf_reduce_to_like(g, wf_unary(g, WF_OP_neg, mul(g, dy, x)), t);
    return g->st;
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* d sqrt(Σ x²) = x / norm; where the norm is 0 so is x, and the gradient is taken as 0. */
weft_status wf_grad_global_norm(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val tiny = wf_const_like(g, 1e-30, r->out[0]);
    weft_val over = wf_binary(g, WF_OP_div, r->dout[0], wf_binary(g, WF_OP_max, r->out[0], tiny));

    for (int i = 0; i < r->n_in; i++)
        if (r->need[i])
            r->din[i] = mul(g, r->in[i], wf_cast_like(g, over, r->in[i]));
    return g->st;
}
