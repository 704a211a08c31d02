/* wf_grad_rnn.c - gradient rules of the recurrent ops.
 *
 * First gradients are one op. Second gradients, and first ones that arrive at the saved gates or
 * cells, unroll the sequence into primitives and differentiate those; the number of steps must be
 * known for that. */
#include "graph/grad.h"
#include "graph/shape.h"
#include "op/rnn.h"
#include "weft/ops_rnn.h"
#include "weft/ops_shape.h"

/* ---- unrolling ------------------------------------------------------------------------------- */

/* A sequence being unrolled. Values of a step are [batch, columns]. */
struct unroll {
    weft_graph *g;
    const struct wf_op *op;
    const struct wf_attr *attr;
    enum wf_rnn_kind kind;
    const weft_val *in; /* WF_RNN_X … WF_RNN_C0 */
    int n_time;
    bool reverse, reset_after;
    weft_val zero;             /* [batch, units] */
    weft_val bias1;            /* gru with reset_after: of the recurrent sums */
    weft_val h, c, y;          /* now: state, cell, last output */
    weft_val *x, *mask;        /* of each step: x w + bias; whether it counts [batch, 1] */
    weft_val *ys, *gates, *cs; /* results of each step */
};

static weft_val mul(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_mul, a, b);
}

static weft_val add(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_add, a, b);
}

static weft_val one_minus(weft_graph *g, weft_val a)
{
    return wf_binary(g, WF_OP_sub, wf_const_like(g, 1, a), a);
}

static weft_val select(const struct unroll *u, int t, weft_val yes, weft_val no)
{
    if (!u->mask)
        return yes;
    return wf_build(u->g, WF_OP_where, 3, (weft_val[]){u->mask[t], yes, no}, 0, NULL);
}

static weft_val times_r(const struct unroll *u, weft_val h, weft_val r)
{
    return weft_matmul(u->g, h, r, NULL);
}

static weft_val lstm_cell(struct unroll *u, int t, weft_val *gates)
{
    weft_graph *g = u->g;
    weft_val a[4], c;

    weft_split(g, add(g, u->x[t], times_r(u, u->h, u->in[WF_RNN_R])), 4, 1, a);
    for (int i = 0; i < 4; i++)
        a[i] = wf_unary(g, i == 2 ? WF_OP_tanh : WF_OP_sigmoid, a[i]);
    c = add(g, mul(g, a[1], u->c), mul(g, a[0], a[2]));
    u->c = select(u, t, c, u->c);
    *gates = weft_concat(g, 4, a, 1);
    return mul(g, a[3], wf_unary(g, WF_OP_tanh, c));
}

static weft_val gru_cell(struct unroll *u, int t, weft_val *gates)
{
    weft_graph *g = u->g;
    weft_val x[3], r[3], a[4], inner;

    weft_split(g, u->x[t], 3, 1, x);
    weft_split(g, u->in[WF_RNN_R], 3, 1, r);
    if (u->reset_after) {
        weft_val s = times_r(u, u->h, u->in[WF_RNN_R]);

        weft_split(g, u->bias1.id ? add(g, s, u->bias1) : s, 3, 1, r);
    } else {
        for (int i = 0; i < 2; i++)
            r[i] = times_r(u, u->h, r[i]);
    }
    for (int i = 0; i < 2; i++)
        a[i] = wf_unary(g, WF_OP_sigmoid, add(g, x[i], r[i]));
    inner = u->reset_after ? mul(g, a[1], r[2]) : times_r(u, mul(g, a[1], u->h), r[2]);
    a[2] = wf_unary(g, WF_OP_tanh, add(g, x[2], inner));
    a[3] = r[2];
    *gates = weft_concat(g, u->reset_after ? 4 : 3, a, 1);
    return add(g, mul(g, a[0], u->h), mul(g, one_minus(g, a[0]), a[2]));
}

static weft_val simple_cell(struct unroll *u, int t)
{
    bool relu = !strcmp(wf_attr_str(u->op, u->attr, "activation"), "relu");

    return wf_unary(u->g, relu ? WF_OP_relu : WF_OP_tanh,
                    add(u->g, u->x[t], times_r(u, u->h, u->in[WF_RNN_R])));
}

static weft_status unroll_inputs(struct unroll *u)
{
    weft_graph *g = u->g;
    weft_val x = weft_matmul(g, u->in[WF_RNN_X], u->in[WF_RNN_W], NULL), bias = u->in[WF_RNN_BIAS];
    weft_val first[4], steps = u->in[WF_RNN_STEPS];
    weft_status st;

    if (bias.id && u->reset_after) {
        weft_val rows[2];

        weft_unstack(g, bias, 2, 0, rows);
        bias = rows[0];
        u->bias1 = rows[1];
    }
    if (bias.id)
        x = add(g, x, bias);
    st = wf_unstack_all(g, x, u->n_time, 1, u->x);
    if (!st)
        st = weft_split(g, u->x[0], wf_rnn_gates(u->kind), 1, first);
    if (st)
        return st;
    u->zero = wf_broadcast_like(g, wf_const_like(g, 0, first[0]), first[0]);
    if (steps.id && wf_val_type_of(g, steps)->rank == 2)
        st = wf_unstack_all(g, steps, u->n_time, 1, u->mask);
    for (int t = 0; t < u->n_time && steps.id && !st; t++) {
        if (wf_val_type_of(g, steps)->rank == 1)
            u->mask[t] = wf_binary(g, WF_OP_gt, steps, wf_const_like(g, t, steps));
        u->mask[t] = weft_expand_dims(g, u->mask[t], 1);
    }
    return st ? st : g->st;
}

static void unroll_steps(struct unroll *u)
{
    for (int k = 0; k < u->n_time; k++) {
        int t = u->reverse ? u->n_time - 1 - k : k;
        weft_val gates = WEFT_NIL, h = u->kind == WF_RNN_LSTM  ? lstm_cell(u, t, &gates)
                                       : u->kind == WF_RNN_GRU ? gru_cell(u, t, &gates)
                                                               : simple_cell(u, t);

        u->h = select(u, t, h, u->h);
        u->y = select(u, t, h, u->y);
        u->ys[t] = u->y;
        u->cs[t] = u->c;
        u->gates[t] = !gates.id
                          ? gates
                          : select(u, t, gates,
                                   wf_broadcast_like(u->g, wf_const_like(u->g, 0, gates), gates));
    }
}

/* The outputs of the forward op from primitives. */
static weft_status unroll(struct unroll *u, weft_val *out)
{
    bool masked = u->in[WF_RNN_STEPS].id != 0;
    weft_val *mem = wf_alloc_n(u->g->ctx, 5 * (int64_t)u->n_time, sizeof *mem);
    weft_status st;

    if (!mem)
        return wf_err_nomem(u->g->ctx, (size_t)u->n_time * 5 * sizeof *mem, u->op->name);
    u->x = mem;
    u->ys = u->x + u->n_time;
    u->gates = u->ys + u->n_time;
    u->cs = u->gates + u->n_time;
    u->mask = masked ? u->cs + u->n_time : NULL;
    st = unroll_inputs(u);
    if (st)
        goto out;
    u->h = u->in[WF_RNN_H0].id ? u->in[WF_RNN_H0] : u->zero;
    u->c = u->in[WF_RNN_C0].id ? u->in[WF_RNN_C0] : u->zero;
    u->y = u->zero;
    unroll_steps(u);
    out[WF_RNN_OUT_Y] = weft_stack(u->g, u->n_time, u->ys, 1);
    out[WF_RNN_OUT_H] = u->h;
    if (u->kind == WF_RNN_LSTM) {
        out[WF_LSTM_OUT_C] = u->c;
        out[WF_LSTM_OUT_GATES] = weft_stack(u->g, u->n_time, u->gates, 0);
        out[WF_LSTM_OUT_CELLS] = weft_stack(u->g, u->n_time, u->cs, 0);
    } else if (u->kind == WF_RNN_GRU) {
        out[WF_GRU_OUT_GATES] = weft_stack(u->g, u->n_time, u->gates, 0);
    }
    st = u->g->st;
out:
    wf_free(u->g->ctx, mem);
    return st;
}

/* The same for operands of any time; in[] are the operands up to C0, NIL where absent. */
static weft_status expand(const struct wf_grad *r, const weft_val *in, weft_val *out)
{
    enum { MOST_STEPS = 4096 };
    struct unroll u = {
        .g = r->g, .op = r->op, .attr = r->attr, .kind = wf_rnn_kind(r->op), .in = in};
    int64_t n_time = wf_val_type_of(r->g, in[WF_RNN_X])->dim[1];

    if (n_time < 0 && in[WF_RNN_STEPS].id && wf_val_type_of(r->g, in[WF_RNN_STEPS])->rank == 2)
        n_time = wf_val_type_of(r->g, in[WF_RNN_STEPS])->dim[1];
    if (n_time < 0)
        return wf_err(WEFT_ENOSUP,
                      "gradients of gradients need a time that is known when the graph "
                      "is built; x has a symbolic one");
    if (n_time > MOST_STEPS)
        return wf_err(WEFT_ELIMIT,
                      "gradients of gradients over %lld steps, at most %d are possible",
                      (long long)n_time, MOST_STEPS);
    u.reverse = wf_grad_int(r, "reverse");
    u.reset_after = u.kind == WF_RNN_GRU && wf_grad_int(r, "reset_after");
    u.n_time = (int)n_time;
    if (n_time)
        return unroll(&u, out);
    out[WF_RNN_OUT_H] = in[WF_RNN_H0];
    if (u.kind == WF_RNN_LSTM)
        out[WF_LSTM_OUT_C] = in[WF_RNN_C0];
    return WEFT_OK;
}

/* Values of their own for the operands, so that one that is used twice gets each part of its
 * gradient once. */
static void alias_all(const struct wf_grad *r, int n, weft_val *alias)
{
    for (int i = 0; i < n; i++)
        alias[i] = i < r->n_in && r->in[i].id ? weft_identity(r->g, r->in[i]) : WEFT_NIL;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static weft_status grad_expanded(struct wf_grad *r)
{
    weft_val alias[WF_RNN_C0 + 1], out[WF_LSTM_N_OUT] = {WEFT_NIL};
    struct wf_grad e = *r;
    weft_status st;

    alias_all(r, WF_COUNT(alias), alias);
    e.in = alias;
    st = r->g->st ? r->g->st : expand(r, alias, out);
    return st ? st : wf_grad_expanded(&e, out);
}

static int set_attrs(const struct wf_grad *r, struct wf_set *sets)
{
    enum wf_rnn_kind kind = wf_rnn_kind(r->op);
    bool lstm = kind == WF_RNN_LSTM;
    const bool *need = r->need;
    int n = 0;

    sets[n++] = (struct wf_set)WF_SET_BOOL("reverse", wf_grad_int(r, "reverse"));
    sets[n++] = (struct wf_set)WF_SET_BOOL("need_dx", need[WF_RNN_X]);
    sets[n++] =
        (struct wf_set)WF_SET_BOOL("need_dw", need[WF_RNN_W] || need[WF_RNN_R] ||
                                                  (r->n_in > WF_RNN_BIAS && need[WF_RNN_BIAS]));
    sets[n++] = (struct wf_set)WF_SET_BOOL("need_dh0",
                                           (r->n_in > WF_RNN_H0 && need[WF_RNN_H0]) ||
                                               (lstm && r->n_in > WF_RNN_C0 && need[WF_RNN_C0]));
    if (kind == WF_RNN_GRU)
        sets[n++] = (struct wf_set)WF_SET_BOOL("reset_after", wf_grad_int(r, "reset_after"));
    if (kind == WF_RNN_SIMPLE)
        sets[n++] =
            (struct wf_set)WF_SET_STR("activation", wf_attr_str(r->op, r->attr, "activation"));
    return n;
}

weft_status wf_grad_rnn(struct wf_grad *r)
{
    static const int from[] = {WF_RNN_X, WF_RNN_W, WF_RNN_R, WF_RNN_BIAS, WF_RNN_H0, WF_RNN_C0};
    enum wf_rnn_kind kind = wf_rnn_kind(r->op);
    bool lstm = kind == WF_RNN_LSTM, gru = kind == WF_RNN_GRU;
    weft_val in[WF_RNN_N_IN] = {WEFT_NIL}, d;
    struct wf_set sets[8];
    int n = set_attrs(r, sets);

    if ((lstm && (r->dout[WF_LSTM_OUT_GATES].id || r->dout[WF_LSTM_OUT_CELLS].id)) ||
        (gru && r->dout[WF_GRU_OUT_GATES].id))
        return grad_expanded(r);
    memcpy(in, r->in, (size_t)r->n_in * sizeof *in);
    in[WF_RNN_Y] = r->out[WF_RNN_OUT_Y];
    in[WF_RNN_DY] = r->dout[WF_RNN_OUT_Y];
    in[WF_RNN_DH] = r->dout[WF_RNN_OUT_H];
    if (lstm) {
        in[WF_RNN_GATES] = r->out[WF_LSTM_OUT_GATES];
        in[WF_RNN_CELLS] = r->out[WF_LSTM_OUT_CELLS];
        in[WF_RNN_DC] = r->dout[WF_LSTM_OUT_C];
    } else if (gru) {
        in[WF_RNN_GATES] = r->out[WF_GRU_OUT_GATES];
    }
    d = wf_build(r->g,
                 lstm  ? WF_OP_lstm_grad
                 : gru ? WF_OP_gru_grad
                       : WF_OP_simple_rnn_grad,
                 WF_RNN_N_IN, in, n, sets);
    for (int i = 0; i < (lstm ? 6 : 5) && d.id; i++)
        if (from[i] < r->n_in && r->need[from[i]])
            r->din[from[i]] = weft_output(r->g, d, i);
    return r->g->st;
}

/* The gradient op again from primitives: unroll the forward op, differentiate it with the
 * cotangents as values, and differentiate the result. What the forward op saved follows from its
 * operands and is taken as that, so no gradient goes there. */
weft_status wf_grad_rnn_grad(struct wf_grad *r)
{
    static const int from[] = {WF_RNN_X, WF_RNN_W, WF_RNN_R, WF_RNN_BIAS, WF_RNN_H0, WF_RNN_C0};
    bool need[WF_RNN_C0 + 1], lstm = wf_rnn_kind(r->op) == WF_RNN_LSTM;
    weft_val alias[WF_RNN_N_IN], d[WF_RNN_C0 + 1] = {WEFT_NIL}, out[WF_LSTM_N_OUT] = {WEFT_NIL};
    weft_val dout[WF_LSTM_N_OUT] = {WEFT_NIL}, grads[WF_COUNT(from)];
    struct wf_grad first = *r, second = *r;
    weft_status st;

    alias_all(r, WF_COUNT(alias), alias);
    st = r->g->st ? r->g->st : expand(r, alias, out);
    if (st)
        return st;
    dout[WF_RNN_OUT_Y] = alias[WF_RNN_DY];
    dout[WF_RNN_OUT_H] = alias[WF_RNN_DH];
    dout[WF_LSTM_OUT_C] = lstm ? alias[WF_RNN_DC] : WEFT_NIL;
    for (int i = 0; i <= WF_RNN_C0; i++)
        need[i] = alias[i].id && i != WF_RNN_STEPS;
    first.n_in = WF_RNN_C0 + 1;
    first.n_out = WF_LSTM_N_OUT;
    first.in = alias;
    first.out = out;
    first.dout = dout;
    first.need = need;
    first.din = d;
    st = wf_grad_expanded(&first, out);
    if (st)
        return st;
    for (int i = 0; i < WF_COUNT(from); i++)
        grads[i] = d[from[i]];
    second.in = alias;
    return wf_grad_expanded(&second, grads);
}
