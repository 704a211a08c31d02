/* cell.c - one step of SimpleRNN, LSTM and GRU, and the cells as layers.
 *
 * With recurrent dropout Keras draws one mask per gate; here one mask is used for all gates. Both
 * stay the same for all steps. */
#include <stdio.h>

#include "model/rnn.h"

/* ---- weights --------------------------------------------------------------------------------- */

static weft_val recurrent_weight(weft_layer_call *c, const int64_t dim[2])
{
    return weft_lc_weight(c, "recurrent_kernel", 2, dim,
                          WEFT_OPTS(weft_weight_opts,
                                    .initializer = weft_lc_text(c, "recurrent_initializer"),
                                    .regularizer = weft_lc_text(c, "recurrent_regularizer"),
                                    .constraint = weft_lc_text(c, "recurrent_constraint")));
}

/* The forget gate starts open: ones in its part of the bias. */
static weft_val forget_bias(weft_layer_call *c, int64_t n)
{
    const char *init = weft_lc_text(c, "bias_initializer");

    if (!weft_lc_bool(c, "unit_forget_bias") || !strcmp(init, "ones"))
        return wf_lc_param(c, "bias", 1, &n);
    if (strcmp(init, "zeros")) {
        weft_lc_fail(c, WEFT_ENOSUP,
                     "unit_forget_bias=true needs bias_initializer zeros or ones, not '%.32s'",
                     init);
        return WEFT_NIL;
    }
    return weft_lc_weight(c, "bias", 1, &n,
                          WEFT_OPTS(weft_weight_opts, .initializer = "band(0.25,0.5)",
                                    .regularizer = weft_lc_text(c, "bias_regularizer"),
                                    .constraint = weft_lc_text(c, "bias_constraint")));
}

static weft_val bias_weight(const struct wf_cell *cell)
{
    weft_layer_call *c = cell->c;
    int64_t n = cell->n_gates * cell->units;

    if (!weft_lc_bool(c, "use_bias"))
        return WEFT_NIL;
    if (cell->kind == WF_CELL_LSTM)
        return forget_bias(c, n);
    if (cell->kind == WF_CELL_GRU && cell->reset_after)
        return wf_lc_param(c, "bias", 2, (int64_t[]){2, n});
    return wf_lc_param(c, "bias", 1, &n);
}

weft_status wf_cell_open(weft_layer_call *c, enum wf_cell_kind kind, int64_t n_in,
                         struct wf_cell *out)
{
    static const int64_t gates[] = {1, 4, 3};
    struct wf_cell cell = {.c = c, .kind = kind, .n_gates = gates[kind]};
    double drop = weft_lc_float(c, "dropout"), state_drop = weft_lc_float(c, "recurrent_dropout");

    cell.units = weft_lc_int(c, "units");
    if (cell.units < 1)
        return weft_lc_fail(c, WEFT_EINVAL, "units must be positive, got %lld",
                            (long long)cell.units);
    if (!(drop >= 0 && drop <= 1) || !(state_drop >= 0 && state_drop <= 1))
        return weft_lc_fail(c, WEFT_EINVAL, "dropout and recurrent_dropout must be in [0, 1]");
    cell.act = weft_lc_text(c, "activation");
    cell.gate_act = kind == WF_CELL_SIMPLE ? "" : weft_lc_text(c, "recurrent_activation");
    cell.reset_after = kind == WF_CELL_GRU && weft_lc_bool(c, "reset_after");
    cell.kernel = wf_lc_param(c, "kernel", 2, (int64_t[]){n_in, cell.n_gates * cell.units});
    cell.recurrent = recurrent_weight(c, (int64_t[]){cell.units, cell.n_gates * cell.units});
    cell.bias = bias_weight(&cell);
    if (c->st || weft_lc_graph(c)->st)
        return c->st ? c->st : weft_lc_graph(c)->st;
    *out = cell;
    return WEFT_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Row i of a GRU's two biases. */
static weft_val bias_row(const struct wf_cell *cell, int i)
{
    weft_graph *g = weft_lc_graph(cell->c);

    return weft_squeeze(g, weft_slice_axis(g, cell->bias, 0, i, 1), 1, (int64_t[]){0});
}

weft_val wf_cell_project(const struct wf_cell *cell, weft_val x)
{
    weft_graph *g = weft_lc_graph(cell->c);
    weft_val z = weft_matmul(g, x, cell->kernel, NULL);

    if (!cell->bias.id)
        return z;
    return weft_add(g, z, cell->reset_after ? bias_row(cell, 0) : cell->bias);
}

static weft_val act(const struct wf_cell *cell, weft_val x)
{
    return weft_lc_activation(cell->c, cell->act, x);
}

static weft_val gate(const struct wf_cell *cell, weft_val x)
{
    return weft_lc_activation(cell->c, cell->gate_act, x);
}

static void lstm_step(const struct wf_cell *cell, weft_val z, weft_val h, weft_val memory,
                      weft_val *out)
{
    weft_graph *g = weft_lc_graph(cell->c);
    weft_val part[4], i, f;

    z = weft_add(g, z, weft_matmul(g, h, cell->recurrent, NULL));
    if (weft_split(g, z, 4, -1, part))
        return;
    i = gate(cell, part[0]);
    f = gate(cell, part[1]);
    out[1] = weft_add(g, weft_mul(g, f, memory), weft_mul(g, i, act(cell, part[2])));
    out[0] = weft_mul(g, gate(cell, part[3]), act(cell, out[1]));
}

static void gru_step(const struct wf_cell *cell, weft_val projected, weft_val old, weft_val h,
                     weft_val *out)
{
    weft_graph *g = weft_lc_graph(cell->c);
    int64_t u = cell->units;
    weft_val x[3], r[3], z, reset, n;

    if (weft_split(g, projected, 3, -1, x))
        return;
    if (cell->reset_after) {
        n = weft_matmul(g, h, cell->recurrent, NULL);
        if (cell->bias.id)
            n = weft_add(g, n, bias_row(cell, 1));
        if (weft_split(g, n, 3, -1, r))
            return;
    } else {
        n = weft_matmul(g, h, weft_slice_axis(g, cell->recurrent, 1, 0, 2 * u), NULL);
        if (weft_split(g, n, 2, -1, r))
            return;
    }
    z = gate(cell, weft_add(g, x[0], r[0]));
    reset = gate(cell, weft_add(g, x[1], r[1]));
    n = cell->reset_after ? weft_mul(g, reset, r[2])
                          : weft_matmul(g, weft_mul(g, reset, h),
                                        weft_slice_axis(g, cell->recurrent, 1, 2 * u, u), NULL);
    n = act(cell, weft_add(g, x[2], n));
    /* z h + (1 - z) n */
    out[0] = weft_add(g, n, weft_mul(g, z, weft_sub(g, old, n)));
}

void wf_cell_step(const struct wf_cell *cell, weft_val projected, const weft_val *state,
                  weft_val *new_state)
{
    weft_graph *g = weft_lc_graph(cell->c);
    weft_val h = cell->state_mask.id ? weft_mul(g, state[0], cell->state_mask) : state[0];

    new_state[0] = WEFT_NIL;
    if (cell->kind == WF_CELL_LSTM)
        lstm_step(cell, projected, h, state[1], new_state);
    else if (cell->kind == WF_CELL_GRU)
        gru_step(cell, projected, state[0], h, new_state);
    else
        new_state[0] = act(cell, weft_add(g, projected, weft_matmul(g, h, cell->recurrent, NULL)));
}

weft_val wf_cell_dropout(weft_layer_call *c, const char *attr, weft_val like)
{
    struct wf_rnn *r = c->b->rnn;
    double rate = weft_lc_float(c, attr);
    bool recurrent = attr[0] == 'r';
    weft_val mask;

    if (!(rate > 0) || !c->b->training)
        return WEFT_NIL;
    for (int i = 0; r && i < r->n_masks; i++)
        if (r->masks[i].layer.id == c->layer.id && r->masks[i].recurrent == recurrent)
            return r->masks[i].mask;
    mask = weft_dropout(weft_lc_graph(c), weft_ones_like(weft_lc_graph(c), like), rate, NULL);
    if (r && r->n_masks == WF_MAX_CELL_MASKS)
        weft_lc_fail(c, WEFT_ELIMIT, "more than %d cells with dropout in one layer",
                     WF_MAX_CELL_MASKS / 2);
    else if (r)
        r->masks[r->n_masks++] = (struct wf_cell_mask){c->layer, recurrent, mask};
    return mask;
}

/* ---- cells as layers ------------------------------------------------------------------------- */

static weft_status cell_layer(weft_layer_call *c, enum wf_cell_kind kind)
{
    weft_graph *g = weft_lc_graph(c);
    int n_states = kind == WF_CELL_LSTM ? 2 : 1;
    weft_val x = weft_lc_in(c, 0), state[2] = {weft_lc_in(c, 1), weft_lc_in(c, 2)}, out[2], mask;
    struct wf_cell cell;
    weft_status st = wf_lc_need_rank(c, 2, "[batch, features] of one step");

    if (!st)
        st = wf_cell_open(c, kind, weft_lc_dim(c, x, -1), &cell);
    if (st)
        return st;
    mask = wf_cell_dropout(c, "dropout", x);
    if (mask.id)
        x = weft_mul(g, x, mask);
    cell.state_mask = wf_cell_dropout(c, "recurrent_dropout", state[0]);
    wf_cell_step(&cell, wf_cell_project(&cell, x), state, out);
    weft_lc_out(c, 0, out[0]);
    for (int i = 0; i < n_states; i++)
        weft_lc_out(c, i + 1, out[i]);
    return WEFT_OK;
}

weft_status wf_layer_simple_rnn_cell(weft_layer_call *c)
{
    return cell_layer(c, WF_CELL_SIMPLE);
}

weft_status wf_layer_lstm_cell(weft_layer_call *c)
{
    return cell_layer(c, WF_CELL_LSTM);
}

weft_status wf_layer_gru_cell(weft_layer_call *c)
{
    return cell_layer(c, WF_CELL_GRU);
}

/* ---- several cells as one -------------------------------------------------------------------- */

/* The next word of the list, or false. */
static bool next_name(const char **p, char name[128])
{
    size_t n;

    *p += strspn(*p, " ,\t");
    n = strcspn(*p, " ,\t");
    if (!n || n >= 128)
        return false;
    snprintf(name, 128, "%.*s", (int)n, *p);
    *p += n;
    return true;
}

static weft_layer cell_named(weft_layer_call *c, const char *name)
{
    int64_t id;

    if (wf_map_get(&c->b->m->names, name, &id) && id > 0 && id != c->layer.id)
        return (weft_layer){(int32_t)id};
    weft_lc_fail(c, WEFT_ENOENT, "cells: the model has no layer '%s' to use as a cell", name);
    return (weft_layer){0};
}

static const char *cells_of(weft_layer_call *c, weft_layer cell)
{
    const struct wf_layer *l = wf_layer_at(c->b->m, cell);

    return wf_attr_find(l->row->spec, l->row->n_specs, l->attr, "cells")->s;
}

int wf_cell_states(weft_layer_call *c, weft_layer cell, int64_t size[WF_MAX_STATES])
{
    const struct wf_layer *l = wf_layer_at(c->b->m, cell);
    const struct wf_attr *sizes =
        wf_attr_find(l->row->spec, l->row->n_specs, l->attr, "state_size");
    int64_t units = wf_attr_find(l->row->spec, l->row->n_specs, l->attr, "units")->i;
    const char *p = cells_of(c, cell);
    char name[128];
    int n = 0;

    if (l->row->kind.build == wf_layer_stacked_cells) {
        while (!c->st && next_name(&p, name)) {
            int64_t part[WF_MAX_STATES];
            weft_layer one = cell_named(c, name);
            int k = one.id ? wf_cell_states(c, one, part) : 0;

            for (int i = 0; i < k && n < WF_MAX_STATES; i++)
                size[n++] = part[i];
        }
    } else if (sizes->n) {
        for (; n < sizes->n && n < WF_MAX_STATES; n++)
            size[n] = sizes->ints[n];
    } else if (units > 0) {
        size[n++] = units;
        if (l->row->kind.build == wf_layer_lstm_cell)
            size[n++] = units;
    }
    if (!n && !c->st)
        weft_lc_fail(c, WEFT_EINVAL,
                     "'%s' is not a cell: it has neither units nor state_size among its arguments",
                     l->name);
    return c->st ? 0 : n;
}

weft_status wf_layer_stacked_cells(weft_layer_call *c)
{
    const char *p = weft_lc_text(c, "cells");
    weft_val in[1 + WF_MAX_STATES] = {weft_lc_in(c, 0)};
    weft_layer_call call;
    char name[128];
    int at = 0;

    while (next_name(&p, name)) {
        int64_t size[WF_MAX_STATES];
        weft_layer cell = cell_named(c, name);
        int n = cell.id ? wf_cell_states(c, cell, size) : 0;

        if (!n)
            return c->st;
        if (at + n >= weft_lc_n_in(c))
            return weft_lc_fail(c, WEFT_EINVAL, "its cells have more states than the %d given",
                                weft_lc_n_in(c) - 1);
        for (int i = 0; i < n; i++)
            in[i + 1] = weft_lc_in(c, 1 + at + i);
        if (wf_lc_other_call(c, cell, n + 1, in, &call))
            return c->st;
        if (call.n_out != n + 1)
            return weft_lc_fail(c, WEFT_EINVAL, "cell '%s' returns %d values instead of %d", name,
                                call.n_out, n + 1);
        in[0] = call.out[0];
        for (int i = 0; i < n; i++)
            weft_lc_out(c, 1 + at + i, call.out[1 + i]);
        at += n;
    }
    if (at + 1 != weft_lc_n_in(c))
        return weft_lc_fail(c, WEFT_EINVAL, "its cells have %d states, but %d were given", at,
                            weft_lc_n_in(c) - 1);
    weft_lc_out(c, 0, in[0]);
    return WEFT_OK;
}
