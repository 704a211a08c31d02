/* scan.c - a body unrolled over time. */
#include "graph/shape.h"
#include "weft/ops_shape.h"
#include "weft/scan.h"

#define MAX_STEPS 4096
#define MAX_VALUES 256 /* of states, xs or ys */

struct scan {
    int n_steps, n_state, n_xs, n_ys, axis;
    bool reverse;
    weft_scan_fn *body;
    void *arg;
    weft_val *x;     /* [n_steps][n_xs] */
    weft_val *y;     /* [n_ys][n_steps] */
    weft_val *state; /* [2][n_state]: before and after a step */
};

static weft_status check(weft_graph *g, const struct scan *s, const weft_val *init,
                         const weft_val *xs)
{
    if (s->n_steps < 1 || s->n_steps > MAX_STEPS)
        return wf_err(WEFT_EINVAL, "scan: %d steps; 1 to %d are supported", s->n_steps, MAX_STEPS);
    if (s->n_state < 0 || s->n_state > MAX_VALUES || s->n_xs < 0 || s->n_xs > MAX_VALUES ||
        s->n_ys < 0 || s->n_ys > MAX_VALUES || !s->body)
        return wf_err(WEFT_EINVAL,
                      "scan: %d states, %d xs, %d ys: needs 0 to %d of each, and a body",
                      s->n_state, s->n_xs, s->n_ys, MAX_VALUES);
    for (int i = 0; i < s->n_state; i++)
        if (!wf_check_val(g, init[i], "scan: a state"))
            return weft_graph_status(g);
    for (int i = 0; i < s->n_xs; i++)
        if (!wf_check_val(g, xs[i], "scan: an x"))
            return weft_graph_status(g);
    return weft_graph_status(g);
}

/* x[t] of every x; uses y as scratch for handles. */
static weft_status unstack_xs(weft_graph *g, struct scan *s, const weft_val *xs, weft_val *row)
{
    for (int i = 0; i < s->n_xs; i++) {
        weft_status st = weft_unstack(g, xs[i], s->n_steps, s->axis, row);

        if (st)
            return wf_err_wrap(st, "scan: x %d", i);
        for (int t = 0; t < s->n_steps; t++)
            s->x[(int64_t)t * s->n_xs + i] = row[t];
    }
    return WEFT_OK;
}

/* A state must keep its type, so that every step sees the same one. */
static weft_status check_state(weft_graph *g, int t, int i, weft_val before, weft_val after)
{
    const struct wf_type *a, *b;
    char ta[WF_TYPE_TEXT], tb[WF_TYPE_TEXT];
    bool same;

    if (!wf_check_val(g, after, "scan: a new state"))
        return weft_graph_status(g);
    a = wf_val_type_of(g, before);
    b = wf_val_type_of(g, after);
    same = a->dtype == b->dtype && a->rank == b->rank;
    for (int k = 0; k < a->rank && same; k++)
        same = a->dim[k] == b->dim[k] || a->dim[k] < 0 || b->dim[k] < 0;
    if (!same)
        return wf_err(WEFT_ESHAPE, "scan: step %d makes state %d %s instead of %s", t, i,
                      wf_type_text(b, tb), wf_type_text(a, ta));
    return WEFT_OK;
}

static weft_status run_step(weft_graph *g, struct scan *s, int t)
{
    weft_val y[MAX_VALUES] = {{0}}, *next = s->state + s->n_state;
    weft_status st;

    for (int i = 0; i < s->n_state; i++)
        next[i] = WEFT_NIL;
    st = s->body(g, s->arg, t, s->state, s->x + (int64_t)t * s->n_xs, next, y);
    if (!st)
        st = weft_graph_status(g);
    if (st)
        return wf_err_wrap(st, "scan: step %d", t);
    for (int i = 0; i < s->n_state && !st; i++) {
        st = check_state(g, t, i, s->state[i], next[i]);
        s->state[i] = next[i];
    }
    for (int i = 0; i < s->n_ys && !st; i++) {
        if (!wf_check_val(g, y[i], "scan: a y"))
            st = weft_graph_status(g);
        s->y[(int64_t)i * s->n_steps + t] = y[i];
    }
    return st;
}

static weft_status run(weft_graph *g, struct scan *s, const weft_val *init, const weft_val *xs,
                       weft_val *row)
{
    weft_status st = unstack_xs(g, s, xs, row);

    for (int i = 0; i < s->n_state; i++)
        s->state[i] = init[i];
    for (int k = 0; k < s->n_steps && !st; k++)
        st = run_step(g, s, s->reverse ? s->n_steps - 1 - k : k);
    return st;
}

weft_status weft_scan(weft_graph *g, int n_steps, int n_state, const weft_val *init, int n_xs,
                      const weft_val *xs, int n_ys, weft_scan_fn *body, void *arg,
                      const weft_scan_opts *opts, weft_val *final, weft_val *ys)
{
    weft_scan_opts o = {.size = 0};
    struct scan s = {n_steps, n_state, n_xs, n_ys, 0, false, body, arg, NULL, NULL, NULL};
    weft_val *mem = NULL;
    weft_status st = weft_graph_status(g);

    for (int i = 0; final && i < n_state; i++)
        final[i] = WEFT_NIL;
    for (int i = 0; i < n_ys; i++)
        ys[i] = WEFT_NIL;
    if (!st)
        st = wf_opts_take(&o, sizeof o, opts, "weft_scan_opts");
    if (!st) {
        s.axis = o.axis;
        s.reverse = o.reverse;
        st = check(g, &s, init, xs);
    }
    if (st)
        goto out;
    mem = wf_alloc_n(g->ctx, (int64_t)n_steps * (n_xs + n_ys + 1) + 2 * n_state + 1, sizeof *mem);
    if (!mem) {
        st = wf_err_nomem(g->ctx, 0, "scan");
        goto out;
    }
    s.x = mem + n_steps;
    s.y = s.x + (int64_t)n_steps * n_xs;
    s.state = s.y + (int64_t)n_steps * n_ys;
    st = run(g, &s, init, xs, mem);
    for (int i = 0; i < n_ys && !st; i++) {
        ys[i] = weft_stack(g, n_steps, s.y + (int64_t)i * n_steps, s.axis);
        st = weft_graph_status(g);
    }
    for (int i = 0; final && i < n_state && !st; i++)
        final[i] = s.state[i];
out:
    wf_free(g->ctx, mem);
    for (int i = 0; i < n_ys && st; i++)
        ys[i] = WEFT_NIL;
    return wf_graph_fail(g, st);
}
