/* layers_rnn.c - SimpleRNN, LSTM and GRU over whole sequences, and the wrappers Bidirectional and
 * TimeDistributed.
 *
 * With Keras' usual activations and without recurrent dropout one op runs the whole sequence;
 * otherwise it is built step by step, and the number of steps must be known. */
#include "model/rnn.h"

/* ---- whole sequences ------------------------------------------------------------------------- */

static bool fits_the_op(const struct wf_cell *cell)
{
    bool tanh_act = !strcmp(cell->act, "tanh");

    if (cell->state_mask.id)
        return false;
    if (cell->kind == WF_CELL_SIMPLE)
        return tanh_act || !strcmp(cell->act, "relu");
    return tanh_act && !strcmp(cell->gate_act, "sigmoid");
}

static void run_op(struct wf_rnn *r, const struct wf_cell *cell, weft_val x)
{
    weft_graph *g = weft_lc_graph(r->c);

    if (cell->kind == WF_CELL_LSTM)
        r->y = weft_lstm(g, x, cell->kernel, cell->recurrent,
                         WEFT_OPTS(weft_lstm_opts, .bias = cell->bias, .h0 = r->init[0],
                                   .c0 = r->init[1], .mask = r->mask, .reverse = r->backwards));
    else if (cell->kind == WF_CELL_GRU)
        r->y =
            weft_gru(g, x, cell->kernel, cell->recurrent,
                     WEFT_OPTS(weft_gru_opts, .bias = cell->bias, .h0 = r->init[0], .mask = r->mask,
                               .reverse = r->backwards, .reset_before = !cell->reset_after));
    else
        r->y = weft_simple_rnn(
            g, x, cell->kernel, cell->recurrent,
            WEFT_OPTS(weft_simple_rnn_opts, .bias = cell->bias, .h0 = r->init[0], .mask = r->mask,
                      .act = !strcmp(cell->act, "relu") ? WEFT_RNN_RELU : WEFT_RNN_TANH,
                      .reverse = r->backwards));
    for (int i = 0; i < r->n_states; i++)
        r->final[i] = weft_output(g, r->y, 1 + i);
    /* The last state is the last output, except for rows where no step counts: those repeat
     * zeros. */
    if (!r->mask.id || !r->init[0].id)
        r->last = r->final[0];
}

static weft_status cell_step(struct wf_rnn *r, void *arg, weft_val x, const weft_val *state,
                             weft_val *new_state, weft_val *y)
{
    const struct wf_cell *cell = arg;

    wf_cell_step(cell, x, state, new_state);
    *y = new_state[0];
    return weft_lc_graph(r->c)->st;
}

/* One mask for the states of all steps: drawn in the shape of a state. */
static weft_val state_dropout(struct wf_rnn *r, const struct wf_cell *cell, weft_val projected)
{
    weft_graph *g = weft_lc_graph(r->c);
    weft_val like = weft_slice_axis(g, projected, 1, 0, 1); /* [batch, 1, gates * units] */

    like = weft_squeeze(g, weft_slice_axis(g, like, 2, 0, cell->units), 1, (int64_t[]){1});
    return wf_cell_dropout(r->c, "recurrent_dropout", like);
}

static weft_status recurrent(weft_layer_call *c, enum wf_cell_kind kind)
{
    int n_states = kind == WF_CELL_LSTM ? 2 : 1;
    int64_t units = weft_lc_int(c, "units");
    bool drops = c->b->training && weft_lc_float(c, "recurrent_dropout") > 0;
    weft_graph *g = weft_lc_graph(c);
    double rate = weft_lc_float(c, "dropout");
    struct wf_cell cell;
    struct wf_rnn r;
    weft_val x;
    weft_status st = wf_lc_need_rank(c, 3, "[batch, time, features]");

    if (!st)
        st = wf_cell_open(c, kind, weft_lc_dim(c, weft_lc_in(c, 0), -1), &cell);
    if (!st)
        st = wf_rnn_begin(c, n_states, (int64_t[]){units, units}, &r);
    if (st)
        return st;
    x = r.x;
    if (rate > 0 && c->b->training)
        x = weft_dropout(g, x, rate,
                         WEFT_OPTS(weft_dropout_opts, .n_shared = 1, .shared_axes = {1}));
    if (!drops && fits_the_op(&cell)) {
        run_op(&r, &cell, x);
    } else {
        /* A misspelled word should be reported before an unknown number of steps. */
        weft_lc_activation(c, cell.act, cell.kernel);
        weft_lc_activation(c, cell.gate_act, cell.kernel);
        x = wf_cell_project(&cell, x);
        if (drops)
            cell.state_mask = state_dropout(&r, &cell, x);
        st = wf_rnn_scan(&r, x, cell_step, &cell);
    }
    return st ? st : wf_rnn_end(&r);
}

weft_status wf_layer_simple_rnn(weft_layer_call *c)
{
    return recurrent(c, WF_CELL_SIMPLE);
}

weft_status wf_layer_lstm(weft_layer_call *c)
{
    return recurrent(c, WF_CELL_LSTM);
}

weft_status wf_layer_gru(weft_layer_call *c)
{
    return recurrent(c, WF_CELL_GRU);
}

/* ---- both directions ------------------------------------------------------------------------- */

enum merge { MERGE_CONCAT, MERGE_SUM, MERGE_MUL, MERGE_AVE, MERGE_NONE };

static bool inner_flag(weft_layer_call *c, const char *attr)
{
    const struct wf_layer *l = wf_layer_at(c->b->m, wf_layer_at(c->b->m, c->layer)->inner);

    return wf_attr_find(l->row->spec, l->row->n_specs, l->attr, attr)->i != 0;
}

static weft_status check_inner(weft_layer_call *c)
{
    weft_layer inner = wf_layer_at(c->b->m, c->layer)->inner;
    const weft_layer_kind *k = inner.id ? &wf_layer_at(c->b->m, inner)->row->kind : NULL;

    if (!k || (k->build != wf_layer_lstm && k->build != wf_layer_gru &&
               k->build != wf_layer_simple_rnn && k->build != wf_layer_rnn))
        return weft_lc_fail(c, WEFT_EINVAL, "wraps SimpleRNN, LSTM, GRU or RNN, not %s",
                            k ? k->name : "nothing");
    if (inner_flag(c, "go_backwards"))
        return weft_lc_fail(
            c, WEFT_EINVAL,
            "the wrapped layer has go_backwards=true; remove it, both directions are run anyway");
    return WEFT_OK;
}

/* The inner layer in one direction, on its half of the states. */
static weft_status one_way(weft_layer_call *c, bool backwards, weft_layer_call *out)
{
    int half = (weft_lc_n_in(c) - 1) / 2;
    weft_val in[1 + WF_MAX_STATES] = {weft_lc_in(c, 0)}, mask[1 + WF_MAX_STATES] = {{0}};
    struct wf_rnn ask = {
        .c = c, .ask_flip = backwards, .ask_zero = inner_flag(c, "return_sequences")};
    weft_status st;

    mask[0] = weft_lc_mask(c, 0);
    for (int i = 0; i < half; i++)
        in[1 + i] = weft_lc_in(c, 1 + i + (backwards ? half : 0));
    ask.outer = c->b->rnn;
    c->b->rnn = &ask;
    st = wf_lc_inner_call(c, backwards, 1 + half, in, mask, out);
    c->b->rnn = ask.outer;
    return st;
}

static weft_val merged(weft_graph *g, enum merge how, weft_val a, weft_val b)
{
    weft_val sum;

    switch (how) {
    case MERGE_CONCAT: return weft_concat(g, 2, (weft_val[]){a, b}, -1);
    case MERGE_MUL: return weft_mul(g, a, b);
    default:
        sum = weft_add(g, a, b);
        return how == MERGE_AVE ? weft_mul(g, sum, wf_const_like(g, 0.5, sum)) : sum;
    }
}

weft_status wf_layer_bidirectional(weft_layer_call *c)
{
    static const char *const words[] = {"concat", "sum", "mul", "ave", "none", "None"};
    int how = wf_lc_choice(c, "merge_mode", WF_COUNT(words), words), at = 0;
    weft_layer_call forward, backward;
    weft_status st = how < 0 ? c->st : check_inner(c);

    if (!st && (weft_lc_n_in(c) % 2 == 0 || weft_lc_n_in(c) > WF_MAX_STATES))
        st = weft_lc_fail(
            c, WEFT_EINVAL,
            "its inputs must be a sequence, or a sequence and the states of both directions");
    if (!st)
        st = one_way(c, false, &forward);
    if (!st)
        st = one_way(c, true, &backward);
    if (st)
        return st;
    if (how >= MERGE_NONE) {
        weft_lc_out_mask(c, at, forward.out_mask[0]);
        weft_lc_out(c, at++, forward.out[0]);
        weft_lc_out_mask(c, at, backward.out_mask[0]);
        weft_lc_out(c, at++, backward.out[0]);
    } else {
        weft_lc_out_mask(c, at, forward.out_mask[0]);
        weft_lc_out(c, at++,
                    merged(weft_lc_graph(c), (enum merge)how, forward.out[0], backward.out[0]));
    }
    for (int i = 1; i < forward.n_out; i++)
        weft_lc_out(c, at++, forward.out[i]);
    for (int i = 1; i < backward.n_out; i++)
        weft_lc_out(c, at++, backward.out[i]);
    return WEFT_OK;
}

/* ---- every step alike ------------------------------------------------------------------------ */

/* y [batch * time, …] as [batch, time, …], the two first sizes being those of x. */
static weft_val unfold(weft_layer_call *c, weft_val y, weft_val x)
{
    weft_graph *g = weft_lc_graph(c);
    int64_t dim[WEFT_MAX_RANK] = {-1, wf_val_type_of(g, x)->dim[1]};
    const struct wf_type *t = wf_val_type_of(g, y);
    weft_reduce_opts o = {.size = sizeof o};
    weft_val like;
    int rank = t->rank + 1;

    if (rank > WEFT_MAX_RANK) {
        weft_lc_fail(c, WEFT_ESHAPE, "the result would have rank %d", rank);
        return WEFT_NIL;
    }
    for (int i = 1; i < t->rank; i++) {
        dim[i + 1] = weft_lc_dim(c, y, i);
        if (c->st)
            return WEFT_NIL;
    }
    if (dim[1] >= 0)
        return weft_reshape(g, y, rank, dim);
    /* Two sizes are unknown: a value of the right shape provides both. */
    for (int i = 2; i < wf_val_type_of(g, x)->rank; i++)
        o.axes[o.n_axes++] = i;
    like =
        weft_zeros_like(g, wf_val_type_of(g, x)->dtype == WEFT_F32 ? x : weft_cast(g, x, WEFT_F32));
    like = o.n_axes ? weft_sum(g, like, &o) : like;
    for (int i = 2; i < rank; i++)
        like = weft_expand_dims(g, like, -1);
    like = weft_add(g, like, weft_full(g, 0, WEFT_F32, rank - 2, dim + 2));
    return weft_reshape_like(g, y, like);
}

weft_status wf_layer_time_distributed(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), y;
    int rank = weft_lc_rank(c, x);
    int64_t dim[WEFT_MAX_RANK] = {-1};
    weft_layer_call call;

    if (rank < 3)
        return weft_lc_fail(c, WEFT_ESHAPE, "needs an input of rank 3 or more, [batch, time, …]");
    for (int i = 2; i < rank; i++)
        dim[i - 1] = weft_lc_dim(c, x, i);
    if (c->st)
        return c->st;
    y = weft_reshape(g, x, rank - 1, dim);
    if (wf_lc_inner_call(c, 0, 1, &y, NULL, &call))
        return c->st;
    for (int i = 0; i < call.n_out; i++)
        weft_lc_out(c, i, unfold(c, call.out[i], x));
    return c->st;
}
