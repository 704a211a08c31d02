/* rnn.c - calls over time: initial and kept states, steps under a mask, outputs as in Keras.
 *
 * A step that does not count leaves the states unchanged, and its output repeats the previous one
 * (zeros if none has counted yet). */
#include <stdio.h>

#include "model/rnn.h"

/* ---- beginning ------------------------------------------------------------------------------- */

/* The states left by the previous batch. */
static weft_status kept_states(struct wf_rnn *r)
{
    weft_layer_call *c = r->c;
    int64_t batch = weft_lc_int(c, "batch_size");

    if (batch < 1)
        return weft_lc_fail(c, WEFT_EINVAL,
                            "stateful=true needs batch_size, the number of samples in every batch");
    for (int i = 0; i < r->n_states; i++) {
        char name[32];
        weft_val v;

        snprintf(name, sizeof name, "rnn_state_%d", i);
        v = weft_lc_weight(c, name, 2, (int64_t[]){batch, r->size[i]},
                           WEFT_OPTS(weft_weight_opts, .initializer = "zeros", .state = true));
        if (!r->init[i].id)
            r->init[i] = v;
    }
    return c->st;
}

weft_status wf_rnn_begin(weft_layer_call *c, int n_states, const int64_t *size, struct wf_rnn *r)
{
    weft_val x = weft_lc_in(c, 0);

    *r = (struct wf_rnn){.c = c, .x = x, .mask = weft_lc_mask(c, 0), .n_states = n_states};
    r->outer = c->b->rnn;
    if (weft_lc_rank(c, x) < 3)
        return weft_lc_fail(c, WEFT_ESHAPE,
                            "needs an input of rank 3, [batch, time, features], got rank %d",
                            weft_lc_rank(c, x));
    if (weft_lc_n_in(c) != 1 && weft_lc_n_in(c) != 1 + n_states)
        return weft_lc_fail(
            c, WEFT_EINVAL,
            "its inputs must be a sequence, or a sequence and %d state%s, got %d values", n_states,
            n_states == 1 ? "" : "s", weft_lc_n_in(c));
    for (int i = 0; i < n_states; i++) {
        r->size[i] = size[i];
        r->init[i] = weft_lc_in(c, 1 + i);
    }
    r->sequences = weft_lc_bool(c, "return_sequences");
    r->stateful = weft_lc_bool(c, "stateful");
    r->flip = r->outer && r->outer->ask_flip;
    r->zero = weft_lc_bool(c, "zero_output_for_mask") || (r->outer && r->outer->ask_zero);
    r->backwards = r->flip || weft_lc_bool(c, "go_backwards");
    return r->stateful ? kept_states(r) : WEFT_OK;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The output of the step that was run last. */
static weft_val last_of(struct wf_rnn *r)
{
    weft_graph *g = weft_lc_graph(r->c);
    weft_val y = r->y;

    if (r->last.id)
        return r->last;
    if (r->backwards)
        y = weft_slice_axis(g, y, 1, 0, 1);
    else
        y = weft_strided_slice(g, y, 2, (int64_t[]){WEFT_OMIT, -1},
                               (int64_t[]){WEFT_OMIT, WEFT_OMIT}, NULL);
    return weft_squeeze(g, y, 1, (int64_t[]){1});
}

static weft_val sequence_of(struct wf_rnn *r)
{
    weft_graph *g = weft_lc_graph(r->c);
    weft_val y = r->y;

    if (r->mask.id && r->zero)
        y = weft_where(g, weft_expand_dims(g, r->mask, -1), y, wf_const_like(g, 0, y));
    return r->backwards && !r->flip ? weft_reverse(g, y, 1, (int64_t[]){1}) : y;
}

weft_status wf_rnn_end(struct wf_rnn *r)
{
    weft_layer_call *c = r->c;
    weft_graph *g = weft_lc_graph(c);

    weft_lc_out(c, 0, r->sequences ? sequence_of(r) : last_of(r));
    if (r->sequences)
        weft_lc_out_mask(c, 0, r->mask);
    for (int i = 0; i < r->n_states && weft_lc_bool(c, "return_state"); i++)
        weft_lc_out(c, 1 + i, r->final[i]);
    for (int i = 0; i < r->n_states && r->stateful; i++) {
        char name[32];
        weft_val v;

        snprintf(name, sizeof name, "rnn_state_%d", i);
        v = weft_lc_weight(c, name, 2, (int64_t[]){weft_lc_int(c, "batch_size"), r->size[i]},
                           WEFT_OPTS(weft_weight_opts, .initializer = "zeros", .state = true));
        wf_lc_carry(c, weft_assign(g, v, weft_stop_gradient(g, r->final[i])));
    }
    return c->st ? c->st : g->st;
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* Zeros [batch, n] for the batch of x [batch, …]. */
static weft_val zero_state(weft_graph *g, weft_val x, int64_t n)
{
    weft_reduce_opts o = {.size = sizeof o};
    weft_val rows;

    if (g->st)
        return WEFT_NIL;
    for (int i = 1; i < wf_val_type_of(g, x)->rank; i++)
        o.axes[o.n_axes++] = i;
    rows = weft_sum(g, weft_zeros_like(g, x), &o); /* [batch] */
    return weft_add(g, weft_expand_dims(g, rows, -1),
                    weft_full(g, 0, wf_val_type_of(g, x)->dtype, 1, &n));
}

struct scan {
    struct wf_rnn *r;
    wf_rnn_step *step;
    void *arg;
};

/* State n_states, if there is a mask, is the previous output. */
static weft_status scan_body(weft_graph *g, void *arg, int t, const weft_val *state,
                             const weft_val *x, weft_val *new_state, weft_val *y)
{
    struct scan *s = arg;
    int n = s->r->n_states;
    weft_status st = s->step(s->r, s->arg, x[0], state, new_state, y);

    (void)t;
    if (st || !s->r->mask.id)
        return st;
    for (int i = 0; i < n; i++)
        new_state[i] = weft_where(g, weft_expand_dims(g, x[1], -1), new_state[i], state[i]);
    if (state[n].id)
        *y = weft_where(g, weft_expand_dims(g, x[1], -1), *y, state[n]);
    new_state[n] = *y;
    return WEFT_OK;
}

/* The size of the outputs is known only after the first step: it is built to find out. */
static weft_status first_output(struct wf_rnn *r, weft_val xs, wf_rnn_step *step, void *arg,
                                const weft_val *init, int64_t *n)
{
    weft_graph *g = weft_lc_graph(r->c);
    weft_val x = weft_slice_axis(g, xs, 1, 0, 1), new_state[WF_MAX_STATES], y = WEFT_NIL;
    weft_status st;

    x = weft_squeeze(g, x, 1, (int64_t[]){1});
    st = step(r, arg, x, init, new_state, &y);
    if (st || g->st)
        return st ? st : g->st;
    *n = weft_lc_dim(r->c, y, -1);
    return r->c->st;
}

weft_status wf_rnn_scan(struct wf_rnn *r, weft_val xs, wf_rnn_step *step, void *arg)
{
    weft_graph *g = weft_lc_graph(r->c);
    struct scan s = {r, step, arg};
    int64_t n_steps = weft_lc_dim(r->c, xs, 1), n_out = 0;
    weft_val init[WF_MAX_STATES + 1] = {{0}}, final[WF_MAX_STATES + 1] = {{0}};
    weft_val in[2] = {xs, r->mask};
    int n = r->n_states;
    weft_status st = r->c->st;

    for (int i = 0; i < n; i++)
        init[i] = r->init[i].id ? r->init[i] : zero_state(g, xs, r->size[i]);
    if (!st && r->mask.id)
        st = first_output(r, xs, step, arg, init, &n_out);
    if (st)
        return st;
    if (r->mask.id)
        init[n] = zero_state(g, xs, n_out);
    st = weft_scan(g, (int)n_steps, n + (r->mask.id ? 1 : 0), init, r->mask.id ? 2 : 1, in, 1,
                   scan_body, &s, WEFT_OPTS(weft_scan_opts, .axis = 1, .reverse = r->backwards),
                   final, &r->y);
    for (int i = 0; i < n; i++)
        r->final[i] = final[i];
    return st;
}

/* ---- any cell -------------------------------------------------------------------------------- */

static weft_status inner_step(struct wf_rnn *r, void *arg, weft_val x, const weft_val *state,
                              weft_val *new_state, weft_val *y)
{
    weft_val in[1 + WF_MAX_STATES] = {x};
    weft_layer_call call;
    weft_status st;

    (void)arg;
    memcpy(in + 1, state, sizeof *in * (size_t)r->n_states);
    st = wf_lc_inner_call(r->c, 0, 1 + r->n_states, in, NULL, &call);
    if (st)
        return st;
    if (call.n_out != 1 + r->n_states)
        return weft_lc_fail(r->c, WEFT_EINVAL,
                            "its cell returns %d values; an output and %d state%s are needed",
                            call.n_out, r->n_states, r->n_states == 1 ? "" : "s");
    *y = call.out[0];
    memcpy(new_state, call.out + 1, sizeof *in * (size_t)r->n_states);
    return WEFT_OK;
}

weft_status wf_layer_rnn(weft_layer_call *c)
{
    weft_layer inner = wf_layer_at(c->b->m, c->layer)->inner;
    int64_t size[WF_MAX_STATES];
    struct wf_rnn r;
    weft_status st;
    int n;

    if (!inner.id)
        return weft_lc_fail(c, WEFT_EINVAL, "it does not wrap a cell");
    n = wf_cell_states(c, inner, size);
    if (!n)
        return c->st;
    st = wf_rnn_begin(c, n, size, &r);
    if (st)
        return st;
    c->b->rnn = &r;
    st = wf_rnn_scan(&r, r.x, inner_step, NULL);
    c->b->rnn = r.outer;
    return st ? st : wf_rnn_end(&r);
}

int wf_model_next_state(const weft_model *m, int i)
{
    for (i = i < 0 ? 0 : i; i < m->n_weights; i++)
        if (m->weights[i]->is.state && strstr(m->weights[i]->is.name, "/rnn_state_"))
            return i;
    return -1;
}
