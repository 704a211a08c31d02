/* bind_rnn.c - the recurrent ops on the kernels of rnn.h. */
#include "kernels/cpu/rnn.h"
#include "kernels/kernels.h"
#include "op/rnn.h"

weft_status wf_plan_rnn(struct wf_kplan *p);
weft_status wf_plan_rnn_grad(struct wf_kplan *p);
wf_kernel_fn wf_run_rnn, wf_run_rnn_grad;

static bool present(const struct wf_kplan *p, int i)
{
    return i < p->n_in && p->in[i].dtype != WEFT_NONE;
}

static enum wf_rnn_cell cell_of(const struct wf_kplan *p)
{
    enum wf_rnn_kind kind = wf_rnn_kind(p->op);

    if (kind == WF_RNN_LSTM)
        return WF_CELL_LSTM;
    if (kind == WF_RNN_GRU)
        return wf_kplan_int(p, "reset_after") ? WF_CELL_GRU_AFTER : WF_CELL_GRU_BEFORE;
    return strcmp(wf_attr_str(p->op, p->attr, "activation"), "relu") ? WF_CELL_TANH : WF_CELL_RELU;
}

static weft_status plan(struct wf_kplan *p, bool gradient)
{
    const struct wf_type *x = &p->in[WF_RNN_X];
    struct wf_rnn_desc d = {.cell = cell_of(p),
                            .reverse = wf_kplan_int(p, "reverse"),
                            .n_batch = x->dim[0],
                            .n_time = x->dim[1],
                            .n_in = x->dim[2],
                            .n_units = p->in[WF_RNN_R].dim[0]};
    struct wf_rnn *plan;

    if (x->dtype != WEFT_F32)
        return WEFT_ENOSUP;
    if (gradient) {
        d.need_dx = wf_kplan_int(p, "need_dx");
        d.need_dw = wf_kplan_int(p, "need_dw");
        d.need_dh0 = wf_kplan_int(p, "need_dh0") && present(p, WF_RNN_H0);
    }
    plan = wf_arena_alloc(p->arena, sizeof *plan);
    if (!plan)
        return wf_err_nomem(p->ctx, sizeof *plan, p->op->name);
    if (!wf_rnn_plan(plan, &d, p->ctx->simd, gradient, p->n_threads))
        return wf_err(WEFT_ESHAPE, "%s: too large", p->op->name);
    p->state = plan;
    p->scratch_bytes = plan->scratch_bytes;
    return WEFT_OK;
}

weft_status wf_plan_rnn(struct wf_kplan *p)
{
    return plan(p, false);
}

weft_status wf_plan_rnn_grad(struct wf_kplan *p)
{
    return plan(p, true);
}

/* The memory of an operand; NULL when it is absent or not so far. */
static void *in_data(const struct wf_call *c, int i)
{
    return i < c->n_in && c->in[i].type.dtype != WEFT_NONE ? c->in[i].data : NULL;
}

/* The operands that both directions read. */
static weft_status operands(const struct wf_call *c, struct wf_rnn_data *t)
{
    const struct wf_type *s = &c->in[c->n_in > WF_RNN_STEPS ? WF_RNN_STEPS : 0].type;
    void *steps = in_data(c, WF_RNN_STEPS);
    int64_t n_batch = c->in[WF_RNN_X].type.dim[0], n_time = c->in[WF_RNN_X].type.dim[1];

    *t = (struct wf_rnn_data){.x = in_data(c, WF_RNN_X),
                              .w = in_data(c, WF_RNN_W),
                              .r = in_data(c, WF_RNN_R),
                              .bias = in_data(c, WF_RNN_BIAS),
                              .h0 = in_data(c, WF_RNN_H0),
                              .c0 = in_data(c, WF_RNN_C0)};
    if (!steps)
        return WEFT_OK;
    if (s->dtype == WEFT_BOOL) {
        t->mask = steps;
        return WEFT_OK;
    }
    t->lengths = steps;
    t->lengths64 = s->dtype == WEFT_I64;
    for (int64_t b = 0; b < n_batch; b++) {
        int64_t n = wf_get_int(steps, s->dtype, b);

        if (n < 0 || n > n_time)
            return wf_err(WEFT_EDATA, "%s: length %lld of row %lld is outside 0..%lld", c->op->name,
                          (long long)n, (long long)b, (long long)n_time);
    }
    return WEFT_OK;
}

weft_status wf_run_rnn(const struct wf_call *c)
{
    enum wf_rnn_kind kind = wf_rnn_kind(c->op);
    struct wf_rnn_data t;
    weft_status st = operands(c, &t);

    if (st)
        return st;
    t.y = c->out[WF_RNN_OUT_Y].data;
    t.h_last = c->out[WF_RNN_OUT_H].data;
    if (kind == WF_RNN_LSTM) {
        t.c_last = c->out[WF_LSTM_OUT_C].data;
        t.gates = c->out[WF_LSTM_OUT_GATES].data;
        t.cells = c->out[WF_LSTM_OUT_CELLS].data;
    } else if (kind == WF_RNN_GRU) {
        t.gates = c->out[WF_GRU_OUT_GATES].data;
    }
    wf_rnn_forward(c->state, c->pool, &t, c->scratch);
    return WEFT_OK;
}

static float *out_data(const struct wf_call *c, int i)
{
    return i < c->n_out && wf_count(&c->out[i]) ? c->out[i].data : NULL;
}

weft_status wf_run_rnn_grad(const struct wf_call *c)
{
    struct wf_rnn_data t;
    weft_status st = operands(c, &t);

    if (st)
        return st;
    t.y = in_data(c, WF_RNN_Y);
    t.gates = in_data(c, WF_RNN_GATES);
    t.cells = in_data(c, WF_RNN_CELLS);
    t.dy = in_data(c, WF_RNN_DY);
    t.dh_last = in_data(c, WF_RNN_DH);
    t.dc_last = in_data(c, WF_RNN_DC);
    t.dx = out_data(c, WF_RNN_DX);
    t.dw = out_data(c, WF_RNN_DW);
    t.dr = out_data(c, WF_RNN_DR);
    t.dbias = out_data(c, WF_RNN_DBIAS);
    t.dh0 = out_data(c, WF_RNN_DH0);
    t.dc0 = out_data(c, WF_RNN_DC0);
    wf_rnn_backward(c->state, c->pool, &t, c->scratch);
    return WEFT_OK;
}
