/* bind_rnn.c - recurrent nets. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/rnn.h"

weft_status wfc_plan_rnn(struct wf_kplan *p);
weft_status wfc_plan_rnn_grad(struct wf_kplan *p);
wf_kernel_fn wfc_run_rnn, wfc_run_rnn_grad;

enum { RNN_THREADS = 512 };

/* ---- recurrent nets -------------------------------------------------------------------------- */

static bool same_floats(const struct wf_kplan *p)
{
    for (int i = 0; i < p->n_in; i++)
        if (i != WF_RNN_STEPS && p->in[i].dtype && p->in[i].dtype != p->in[0].dtype)
            return false;
    return wf_is_float(p->in[0].dtype);
}

/* What a call keeps in scratch, and its products; those of f32 are cuBLASLt's where it can. */
struct rnn_plan {
    const struct wfc_mm *xw, *dx, *dw, *dr; /* NULL: our own kernels */
    size_t xw_at, da_at, rt_at, states_at, sums_at;
};

static size_t take(struct wf_kplan *p, int64_t bytes)
{
    size_t at = p->scratch_bytes;

    p->scratch_bytes += (size_t)wf_round_up(bytes, 256);
    return at;
}

/* A product of f32, or NULL. */
static weft_status try_mm(struct wf_kplan *p, const struct wfc_mm_sizes *z,
                          const struct wfc_mm **out)
{
    weft_status st =
        p->in[0].dtype == WEFT_F32 ? wfc_plan_mm(p, z, WEFT_F32, WEFT_F32, out) : WEFT_ENOSUP;

    return st == WEFT_ENOSUP ? WEFT_OK : st;
}

static weft_status check_rnn(const struct wf_kplan *p)
{
    return p->in[WF_RNN_R].dim[0] > WFC_RNN_UNITS || !same_floats(p) || !wfc_fits(p) ? WEFT_ENOSUP
                                                                                     : WEFT_OK;
}

weft_status wfc_plan_rnn(struct wf_kplan *p)
{
    const int64_t *x = p->in[WF_RNN_X].dim, *r = p->in[WF_RNN_R].dim;
    struct rnn_plan *s = wf_kplan_state(p, sizeof *s);
    weft_status st = check_rnn(p);

    if (!s)
        return wf_kplan_nomem(p);
    if (!st)
        st = try_mm(p, &(struct wfc_mm_sizes){.m = x[0] * x[1], .n = r[1], .k = x[2]}, &s->xw);
    if (!st)
        s->xw_at = take(p, s->xw ? x[0] * x[1] * r[1] * (int64_t)sizeof(float) : 0);
    return st;
}

static int da_parts(enum wf_rnn_kind kind, bool reset_after)
{
    return kind == WF_RNN_LSTM ? 4 : kind == WF_RNN_SIMPLE ? 1 : reset_after ? 4 : 3;
}

static const void *operand(const struct wf_call *c, int i)
{
    return i < c->n_in && c->in[i].type.dtype ? c->in[i].data : NULL;
}

static struct wfc_rnn rnn_args(const struct wf_call *c)
{
    enum wf_rnn_kind kind = wf_rnn_kind(c->op);
    struct wfc_rnn a = {.n_batch = (uint32_t)c->in[WF_RNN_X].type.dim[0],
                        .n_time = (uint32_t)c->in[WF_RNN_X].type.dim[1],
                        .n_in = (uint32_t)c->in[WF_RNN_X].type.dim[2],
                        .n_units = (uint32_t)c->in[WF_RNN_R].type.dim[0],
                        .n_cols = (uint32_t)c->in[WF_RNN_R].type.dim[1],
                        .kind = (int32_t)kind,
                        .reverse = (int32_t)wf_call_int(c, "reverse"),
                        .dtype = (int32_t)c->in[WF_RNN_X].type.dtype,
                        .x = c->in[WF_RNN_X].data,
                        .w = c->in[WF_RNN_W].data,
                        .r = c->in[WF_RNN_R].data,
                        .bias = operand(c, WF_RNN_BIAS),
                        .h0 = operand(c, WF_RNN_H0),
                        .steps = operand(c, WF_RNN_STEPS),
                        .c0 = kind == WF_RNN_LSTM ? operand(c, WF_RNN_C0) : NULL,
                        .fault = wfc_fault(c)};

    a.reset_after = kind == WF_RNN_GRU && wf_call_int(c, "reset_after");
    a.relu = kind == WF_RNN_SIMPLE && !strcmp(wf_attr_str(c->op, c->attr, "activation"), "relu");
    a.n_saved = kind == WF_RNN_LSTM ? 4 : kind == WF_RNN_SIMPLE ? 0 : a.reset_after ? 4 : 3;
    a.n_da = da_parts(kind, a.reset_after);
    if (a.steps) {
        a.steps_dtype = (int32_t)c->in[WF_RNN_STEPS].type.dtype;
        a.steps_rank = c->in[WF_RNN_STEPS].type.rank;
    }
    return a;
}

/* dev/lstm.inl: all weights of a row of the batch are on one multiprocessor. */
static bool is_small_lstm(const struct wfc_rnn *a)
{
    return a->kind == WF_RNN_LSTM && a->dtype == WFC_F32 && a->n_units <= WFC_LSTM_UNITS;
}

weft_status wfc_run_rnn(const struct wf_call *c)
{
    const struct rnn_plan *s = c->state;
    struct wfc_rnn a = rnn_args(c);

    a.y = c->out[WF_RNN_OUT_Y].data;
    a.h = c->out[WF_RNN_OUT_H].data;
    if (a.kind == WF_RNN_LSTM) {
        a.c = c->out[WF_LSTM_OUT_C].data;
        a.gates = c->out[WF_LSTM_OUT_GATES].data;
        a.cells = c->out[WF_LSTM_OUT_CELLS].data;
    } else if (a.kind == WF_RNN_GRU) {
        a.gates = c->out[WF_GRU_OUT_GATES].data;
    }
    if (s->xw) {
        void *xw = (char *)c->scratch + s->xw_at;
        weft_status st = wfc_run_mm(c, s->xw, a.x, a.w, xw);

        if (st)
            return st;
        a.xw = xw;
    }
    if (a.xw && is_small_lstm(&a))
        return wfc_launch(c, WFC_K_wfc_lstm, a.n_batch, 1, 4 * WFC_LSTM_UNITS, &a);
    return wfc_launch(c, WFC_K_wfc_rnn + wfc_wide(c), a.n_batch, 1, RNN_THREADS, &a);
}

weft_status wfc_plan_rnn_grad(struct wf_kplan *p)
{
    enum wf_rnn_kind kind = wf_rnn_kind(p->op);
    bool reset_after = kind == WF_RNN_GRU && wf_kplan_int(p, "reset_after");
    const int64_t *x = p->in[WF_RNN_X].dim, *r = p->in[WF_RNN_R].dim;
    int64_t rows = x[0] * x[1], real = p->in[0].dtype == WEFT_F64 ? 8 : 4;
    struct rnn_plan *s = wf_kplan_state(p, sizeof *s);
    weft_status st = check_rnn(p);

    if (!s)
        return wf_kplan_nomem(p);
    if (st)
        return st;
    s->da_at = take(p, rows * r[0] * da_parts(kind, reset_after) * real);
    s->rt_at = take(p, r[0] * r[1] * weft_dtype_size(p->in[WF_RNN_R].dtype));
    if (kind == WF_RNN_GRU) /* its parts of da are not the columns of the weights */
        return WEFT_OK;
    st = try_mm(p, &(struct wfc_mm_sizes){.m = rows, .n = x[2], .k = r[1], .tb = true}, &s->dx);
    if (!st)
        st = try_mm(p, &(struct wfc_mm_sizes){.m = x[2], .n = r[1], .k = rows, .ta = true}, &s->dw);
    if (!st)
        st = try_mm(p, &(struct wfc_mm_sizes){.m = r[0], .n = r[1], .k = rows, .ta = true}, &s->dr);
    if (!st && s->dr) {
        s->states_at = take(p, rows * r[0] * real);
        s->sums_at = take(p, (int64_t)wfc_column_sums_scratch(rows, r[1]));
    }
    return st;
}

static void *wanted(const struct wf_call *c, int i)
{
    return i < c->n_out && wf_count(&c->out[i]) ? c->out[i].data : NULL;
}

/* The gradients of the weights as products: those of lstm and simple_rnn in f32. */
static weft_status run_weight_products(const struct wf_call *c, const struct rnn_plan *s,
                                       struct wfc_rnn *a)
{
    int64_t rows = (int64_t)a->n_batch * a->n_time;
    struct wf_tensor da = {{WEFT_F32, 2, {rows, a->n_cols}}, a->da};
    weft_status st = WEFT_OK;

    a->states = (char *)c->scratch + s->states_at;
    if (a->dw)
        st = wfc_run_mm(c, s->dw, a->x, a->da, a->dw);
    if (!st && a->dr)
        st = wfc_launch_each(c, WFC_K_wfc_rnn_states, rows * a->n_units, a);
    if (!st && a->dr)
        st = wfc_run_mm(c, s->dr, a->states, a->da, a->dr);
    if (!st && a->dbias)
        st = wfc_column_sums(c, &da, rows, a->n_cols, &c->out[WF_RNN_DBIAS],
                             (char *)c->scratch + s->sums_at);
    return st;
}

static weft_status transpose_r(const struct wf_call *c, const struct wfc_rnn *a, void *to)
{
    int64_t dim[2] = {a->n_cols, a->n_units}, stride[2] = {1, a->n_cols};
    struct wfc_copy t = {.count = a->n_cols * a->n_units,
                         .size = (int32_t)weft_dtype_size(c->in[WF_RNN_R].type.dtype),
                         .from = a->r,
                         .to = to,
                         .from_box = wfc_box_of(2, dim, stride)};

    return wfc_launch_each(c, WFC_K_wfc_copy, t.count, &t);
}

weft_status wfc_run_rnn_grad(const struct wf_call *c)
{
    const struct rnn_plan *s = c->state;
    struct wfc_rnn a = rnn_args(c);
    int wide = wfc_wide(c);
    int64_t most = (int64_t)wf_max_i64(a.n_in, a.n_units) * a.n_cols;
    void *rt = (char *)c->scratch + s->rt_at;
    weft_status st = transpose_r(c, &a, rt);

    a.rt = rt;
    a.y = c->in[WF_RNN_Y].data;
    a.gates = a.kind == WF_RNN_SIMPLE ? NULL : c->in[WF_RNN_GATES].data;
    a.cells = a.kind == WF_RNN_LSTM ? c->in[WF_RNN_CELLS].data : NULL;
    a.dy = operand(c, WF_RNN_DY);
    a.dh = operand(c, WF_RNN_DH);
    a.dc = a.kind == WF_RNN_LSTM ? operand(c, WF_RNN_DC) : NULL;
    a.da = (char *)c->scratch + s->da_at;
    a.dx = wanted(c, WF_RNN_DX);
    a.dw = wanted(c, WF_RNN_DW);
    a.dr = wanted(c, WF_RNN_DR);
    a.dbias = wanted(c, WF_RNN_DBIAS);
    a.dh0 = wanted(c, WF_RNN_DH0);
    a.dc0 = a.kind == WF_RNN_LSTM ? wanted(c, WF_RNN_DC0) : NULL;
    if (!st)
        st = is_small_lstm(&a)
                 ? wfc_launch(c, WFC_K_wfc_lstm_back, a.n_batch, 1, 4 * WFC_LSTM_UNITS, &a)
                 : wfc_launch(c, WFC_K_wfc_rnn_back + wide, a.n_batch, 1, RNN_THREADS, &a);
    if (!st && a.dx)
        st = s->dx ? wfc_run_mm(c, s->dx, a.da, a.w, a.dx)
                   : wfc_launch_each(c, WFC_K_wfc_rnn_dx + wide, wf_count(&c->out[WF_RNN_DX]), &a);
    if (st || !(a.dw || a.dr || a.dbias))
        return st;
    if (s->dw && s->dr)
        return run_weight_products(c, s, &a);
    return wfc_launch(c, WFC_K_wfc_rnn_weights + wide,
                      wf_min_i64((most + WFC_THREADS - 1) / WFC_THREADS, 4096), 3, WFC_THREADS, &a);
}

#endif
