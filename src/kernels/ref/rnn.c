/* rnn.c - reference kernels of the recurrent ops and their gradients.
 *
 * Batch rows are independent: each runs alone through time. A step that does not count repeats
 * state and output of the step before; before the first step that counts the state is the initial
 * one and the output zero. States are read back from what was written, so they have the precision
 * of the dtype. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "op/rnn.h"

weft_status wf_plan_ref_rnn_grad(struct wf_kplan *p);

struct seq {
    const struct wf_call *c;
    enum wf_rnn_kind kind;
    bool reverse, reset_after, relu;
    int64_t n_batch, n_time, n_in, n_units, n_cols; /* n_cols: of the weights */
};

static struct seq seq_of(const struct wf_call *c)
{
    struct seq q = {.c = c, .kind = wf_rnn_kind(c->op), .reverse = wf_call_int(c, "reverse")};

    q.reset_after = q.kind == WF_RNN_GRU && wf_call_int(c, "reset_after");
    q.relu = q.kind == WF_RNN_SIMPLE && !strcmp(wf_call_attr(c, "activation")->s, "relu");
    q.n_batch = c->in[WF_RNN_X].type.dim[0];
    q.n_time = c->in[WF_RNN_X].type.dim[1];
    q.n_in = c->in[WF_RNN_X].type.dim[2];
    q.n_units = c->in[WF_RNN_R].type.dim[0];
    q.n_cols = c->in[WF_RNN_R].type.dim[1];
    return q;
}

static bool given(const struct seq *q, int i)
{
    return i < q->c->n_in && q->c->in[i].type.dtype != WEFT_NONE;
}

/* An operand's element, 0 where the operand is absent. */
static double in_at(const struct seq *q, int i, int64_t at)
{
    return given(q, i) ? ref_get(&q->c->in[i], at) : 0;
}

static weft_status check_lengths(const struct seq *q)
{
    if (!given(q, WF_RNN_STEPS) || q->c->in[WF_RNN_STEPS].type.rank == 2)
        return WEFT_OK;
    for (int64_t b = 0; b < q->n_batch; b++) {
        int64_t n = wf_get_int(q->c->in[WF_RNN_STEPS].data, q->c->in[WF_RNN_STEPS].type.dtype, b);

        if (n < 0 || n > q->n_time)
            return wf_err(WEFT_EDATA, "%s: length %lld of row %lld is outside 0..%lld",
                          q->c->op->name, (long long)n, (long long)b, (long long)q->n_time);
    }
    return WEFT_OK;
}

static bool counts(const struct seq *q, int64_t b, int64_t t)
{
    const struct wf_tensor *s = &q->c->in[WF_RNN_STEPS];

    if (!given(q, WF_RNN_STEPS))
        return true;
    return s->type.rank == 2 ? ref_get(s, b * q->n_time + t) != 0
                             : t < wf_get_int(s->data, s->type.dtype, b);
}

/* The time of the k-th step in the order of processing. */
static int64_t time_of(const struct seq *q, int64_t k)
{
    return q->reverse ? q->n_time - 1 - k : k;
}

/* The first step of row b that counts, in the order of processing; n_time when there is none. */
static int64_t first_step(const struct seq *q, int64_t b)
{
    int64_t k = 0;

    while (k < q->n_time && !counts(q, b, time_of(q, k)))
        k++;
    return k;
}

/* Where the units of row b at time t begin in y, and in cells and gates (times the values per
 * unit). */
static int64_t y_at(const struct seq *q, int64_t b, int64_t t)
{
    return (b * q->n_time + t) * q->n_units;
}

static int64_t saved_at(const struct seq *q, int64_t b, int64_t t)
{
    return (t * q->n_batch + b) * q->n_units;
}

/* Unit u of the state before step k; `first` is first_step. y is the op's output or the gradient's
 * operand. */
static double h_before(const struct seq *q, const struct wf_tensor *y, int64_t first, int64_t b,
                       int64_t k, int64_t u)
{
    if (k <= first)
        return in_at(q, WF_RNN_H0, b * q->n_units + u);
    return ref_get(y, y_at(q, b, time_of(q, k - 1)) + u);
}

static double c_before(const struct seq *q, const struct wf_tensor *cells, int64_t b, int64_t k,
                       int64_t u)
{
    if (k == 0)
        return in_at(q, WF_RNN_C0, b * q->n_units + u);
    return ref_get(cells, saved_at(q, b, time_of(q, k - 1)) + u);
}

/* Column j of x_t w + bias. */
static double x_dot(const struct seq *q, int64_t b, int64_t t, int64_t j)
{
    double sum = in_at(q, WF_RNN_BIAS, j);

    for (int64_t i = 0; i < q->n_in; i++)
        sum += ref_get(&q->c->in[WF_RNN_X], (b * q->n_time + t) * q->n_in + i) *
               ref_get(&q->c->in[WF_RNN_W], i * q->n_cols + j);
    return sum;
}

/* Column j of h r, h being the state before step k, times the gate q in `by` when given. */
static double h_dot(const struct seq *q, const struct wf_tensor *y, int64_t first, int64_t b,
                    int64_t k, int64_t j, const struct wf_tensor *by)
{
    int64_t row = saved_at(q, b, time_of(q, k)) * 3 + q->n_units;
    double sum = 0;

    for (int64_t u = 0; u < q->n_units; u++)
        sum += h_before(q, y, first, b, k, u) * (by ? ref_get(by, row + u) : 1) *
               ref_get(&q->c->in[WF_RNN_R], u * q->n_cols + j);
    return sum;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One step of one row. */
typedef void step_fn(const struct seq *q, int64_t b, int64_t k, int64_t first);

static void lstm_step(const struct seq *q, int64_t b, int64_t k, int64_t first)
{
    const struct wf_tensor *y = &q->c->out[WF_RNN_OUT_Y], *cells = &q->c->out[WF_LSTM_OUT_CELLS];
    int64_t n = q->n_units, t = time_of(q, k), at = saved_at(q, b, t);

    for (int64_t u = 0; u < n; u++) {
        double a[4], c;

        for (int g = 0; g < 4; g++) {
            a[g] = x_dot(q, b, t, g * n + u) + h_dot(q, y, first, b, k, g * n + u, NULL);
            a[g] = g == 2 ? tanh(a[g]) : sigmoid(a[g]);
            ref_set(&q->c->out[WF_LSTM_OUT_GATES], at * 4 + g * n + u, a[g]);
        }
        c = a[1] * c_before(q, cells, b, k, u) + a[0] * a[2];
        ref_set(cells, at + u, c);
        ref_set(y, y_at(q, b, t) + u, a[3] * tanh(c));
    }
}

static void gru_step(const struct seq *q, int64_t b, int64_t k, int64_t first)
{
    const struct wf_tensor *y = &q->c->out[WF_RNN_OUT_Y], *gates = &q->c->out[WF_GRU_OUT_GATES];
    int64_t n = q->n_units, t = time_of(q, k), n_saved = q->reset_after ? 4 : 3;
    int64_t at = saved_at(q, b, t);

    for (int64_t j = 0; j < 2 * n; j++) {
        double inner = h_dot(q, y, first, b, k, j, NULL);

        if (q->reset_after)
            inner += in_at(q, WF_RNN_BIAS, q->n_cols + j);
        ref_set(gates, at * n_saved + j, sigmoid(x_dot(q, b, t, j) + inner));
    }
    for (int64_t u = 0; u < n; u++) {
        double z = ref_get(gates, at * n_saved + u), reset = ref_get(gates, at * n_saved + n + u);
        double inner = h_dot(q, y, first, b, k, 2 * n + u, q->reset_after ? NULL : gates), h;

        if (q->reset_after) {
            inner += in_at(q, WF_RNN_BIAS, q->n_cols + 2 * n + u);
            ref_set(gates, at * n_saved + 3 * n + u, inner);
            inner *= reset;
        }
        h = tanh(x_dot(q, b, t, 2 * n + u) + inner);
        ref_set(gates, at * n_saved + 2 * n + u, h);
        ref_set(y, y_at(q, b, t) + u, z * h_before(q, y, first, b, k, u) + (1 - z) * h);
    }
}

static void simple_step(const struct seq *q, int64_t b, int64_t k, int64_t first)
{
    const struct wf_tensor *y = &q->c->out[WF_RNN_OUT_Y];
    int64_t t = time_of(q, k);

    for (int64_t u = 0; u < q->n_units; u++) {
        double a = x_dot(q, b, t, u) + h_dot(q, y, first, b, k, u, NULL);

        ref_set(y, y_at(q, b, t) + u, q->relu ? (a < 0 ? 0 : a) : tanh(a));
    }
}

/* A step that does not count: y repeats, gates are zero, the cell is carried. */
static void skip_step(const struct seq *q, int64_t b, int64_t k, int64_t first)
{
    const struct wf_tensor *y = &q->c->out[WF_RNN_OUT_Y];
    int gates = q->kind == WF_RNN_LSTM ? WF_LSTM_OUT_GATES : WF_GRU_OUT_GATES;
    int64_t n_saved = q->kind == WF_RNN_SIMPLE ? 0 : q->c->out[gates].type.dim[2];
    int64_t t = time_of(q, k), row = t * q->n_batch + b;

    for (int64_t u = 0; u < q->n_units; u++)
        ref_set(y, y_at(q, b, t) + u, k > first ? h_before(q, y, first, b, k, u) : 0);
    for (int64_t j = 0; j < n_saved; j++)
        ref_set(&q->c->out[gates], row * n_saved + j, 0);
    for (int64_t u = 0; q->kind == WF_RNN_LSTM && u < q->n_units; u++) {
        const struct wf_tensor *cells = &q->c->out[WF_LSTM_OUT_CELLS];

        ref_set(cells, row * q->n_units + u, c_before(q, cells, b, k, u));
    }
}

static weft_status forward(const struct wf_call *c, step_fn *step)
{
    struct seq q = seq_of(c);
    weft_status st = check_lengths(&q);

    if (st)
        return st;
    for (int64_t b = 0; b < q.n_batch; b++) {
        int64_t first = first_step(&q, b);

        for (int64_t k = 0; k < q.n_time; k++)
            (counts(&q, b, time_of(&q, k)) ? step : skip_step)(&q, b, k, first);
        for (int64_t u = 0; u < q.n_units; u++) {
            ref_set(&c->out[WF_RNN_OUT_H], b * q.n_units + u,
                    h_before(&q, &c->out[WF_RNN_OUT_Y], first, b, q.n_time, u));
            if (q.kind == WF_RNN_LSTM)
                ref_set(&c->out[WF_LSTM_OUT_C], b * q.n_units + u,
                        c_before(&q, &c->out[WF_LSTM_OUT_CELLS], b, q.n_time, u));
        }
    }
    return WEFT_OK;
}

weft_status wf_ref_lstm(const struct wf_call *c)
{
    return forward(c, lstm_step);
}

weft_status wf_ref_gru(const struct wf_call *c)
{
    return forward(c, gru_step);
}

weft_status wf_ref_simple_rnn(const struct wf_call *c)
{
    return forward(c, simple_step);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* da: the gradients of the sums before the activations, [batch, time, n_da * units]; dh, dc: of
 * the state before the step at hand, where dh and dc of the state after it came in. GRU with
 * reset_after has a fourth part: of the recurrent sum that the reset gate multiplies. */
struct back {
    struct seq q;
    int64_t n_da;
    double *da, *dh, *dc, *dq; /* dq: of q h, gru without reset_after */
};

static int64_t parts_of_da(enum wf_rnn_kind kind, bool reset_after)
{
    return kind == WF_RNN_LSTM ? 4 : kind == WF_RNN_SIMPLE ? 1 : reset_after ? 4 : 3;
}

static double saved(const struct back *s, int i, int64_t at)
{
    return ref_get(&s->q.c->in[i], at);
}

static void lstm_back(struct back *s, int64_t b, int64_t k, double *da)
{
    int64_t n = s->q.n_units, at = saved_at(&s->q, b, time_of(&s->q, k));

    for (int64_t u = 0; u < n; u++) {
        double i = saved(s, WF_RNN_GATES, at * 4 + u), f = saved(s, WF_RNN_GATES, at * 4 + n + u);
        double g = saved(s, WF_RNN_GATES, at * 4 + 2 * n + u);
        double o = saved(s, WF_RNN_GATES, at * 4 + 3 * n + u);
        double th = tanh(saved(s, WF_RNN_CELLS, at + u));
        double dc = s->dc[u] + s->dh[u] * o * (1 - th * th);

        da[u] = dc * g * i * (1 - i);
        da[n + u] = dc * c_before(&s->q, &s->q.c->in[WF_RNN_CELLS], b, k, u) * f * (1 - f);
        da[2 * n + u] = dc * i * (1 - g * g);
        da[3 * n + u] = s->dh[u] * th * o * (1 - o);
        s->dc[u] = dc * f;
        s->dh[u] = 0;
    }
}

/* Leaves in dh what reaches the state before the step other than through da. */
static void gru_back(struct back *s, int64_t b, int64_t k, int64_t first, double *da)
{
    int64_t n = s->q.n_units, row = saved_at(&s->q, b, time_of(&s->q, k)) * s->n_da;
    const struct wf_tensor *r = &s->q.c->in[WF_RNN_R], *y = &s->q.c->in[WF_RNN_Y];

    for (int64_t u = 0; u < n; u++) {
        double z = saved(s, WF_RNN_GATES, row + u), h = saved(s, WF_RNN_GATES, row + 2 * n + u);

        da[u] = s->dh[u] * (h_before(&s->q, y, first, b, k, u) - h) * z * (1 - z);
        da[2 * n + u] = s->dh[u] * (1 - z) * (1 - h * h);
        s->dh[u] *= z;
    }
    for (int64_t u = 0; u < n && !s->q.reset_after; u++) {
        s->dq[u] = 0;
        for (int64_t j = 0; j < n; j++)
            s->dq[u] += da[2 * n + j] * ref_get(r, u * s->q.n_cols + 2 * n + j);
    }
    for (int64_t u = 0; u < n; u++) {
        double reset = saved(s, WF_RNN_GATES, row + n + u), d;

        if (s->q.reset_after) {
            d = da[2 * n + u] * saved(s, WF_RNN_GATES, row + 3 * n + u);
            da[3 * n + u] = da[2 * n + u] * reset;
        } else {
            d = s->dq[u] * h_before(&s->q, y, first, b, k, u);
            s->dh[u] += s->dq[u] * reset;
        }
        da[n + u] = d * reset * (1 - reset);
    }
}

static void simple_back(struct back *s, int64_t at, double *da)
{
    for (int64_t u = 0; u < s->q.n_units; u++) {
        double y = saved(s, WF_RNN_Y, at + u);

        da[u] = s->q.relu ? (y > 0 ? s->dh[u] : 0) : s->dh[u] * (1 - y * y);
        s->dh[u] = 0;
    }
}

/* Which part of da belongs to gate g of r; -1 where r multiplies q h instead of h. */
static int64_t recurrent_part(const struct back *s, int64_t g)
{
    if (s->q.kind == WF_RNN_GRU && g == 2)
        return s->q.reset_after ? 3 : -1;
    return g;
}

/* dh += da r^T, over the gates whose recurrent sum is h r. */
static void through_r(struct back *s, const double *da)
{
    int64_t n = s->q.n_units;

    for (int64_t g = 0; g < wf_rnn_gates(s->q.kind); g++)
        for (int64_t u = 0; recurrent_part(s, g) >= 0 && u < n; u++)
            for (int64_t j = 0; j < n; j++)
                s->dh[u] += da[recurrent_part(s, g) * n + j] *
                            ref_get(&s->q.c->in[WF_RNN_R], u * s->q.n_cols + g * n + j);
}

static void row_back(struct back *s, int64_t b)
{
    const struct seq *q = &s->q;
    int64_t first = first_step(q, b), n = q->n_units;

    for (int64_t u = 0; u < n; u++) {
        s->dh[u] = in_at(q, WF_RNN_DH, b * n + u);
        s->dc[u] = in_at(q, WF_RNN_DC, b * n + u);
    }
    for (int64_t k = q->n_time - 1; k >= 0; k--) {
        int64_t t = time_of(q, k), at = y_at(q, b, t);
        double *da = s->da + at * s->n_da;

        for (int64_t u = 0; k >= first && u < n; u++)
            s->dh[u] += in_at(q, WF_RNN_DY, at + u);
        for (int64_t j = 0; j < s->n_da * n; j++)
            da[j] = 0;
        if (!counts(q, b, t))
            continue;
        if (q->kind == WF_RNN_LSTM)
            lstm_back(s, b, k, da);
        else if (q->kind == WF_RNN_GRU)
            gru_back(s, b, k, first, da);
        else
            simple_back(s, at, da);
        through_r(s, da);
    }
    for (int64_t u = 0; u < n; u++) {
        if (wf_count(&q->c->out[WF_RNN_DH0]))
            ref_set(&q->c->out[WF_RNN_DH0], b * n + u, s->dh[u]);
        if (q->kind == WF_RNN_LSTM && wf_count(&q->c->out[WF_RNN_DC0]))
            ref_set(&q->c->out[WF_RNN_DC0], b * n + u, s->dc[u]);
    }
}

/* dx = da w^T */
static void input_grads(const struct back *s)
{
    const struct seq *q = &s->q;
    int64_t n_rows = q->n_batch * q->n_time;

    for (int64_t p = 0; p < n_rows; p++)
        for (int64_t i = 0; i < q->n_in; i++) {
            double sum = 0;

            for (int64_t j = 0; j < q->n_cols; j++)
                sum += s->da[p * s->n_da * q->n_units + j] *
                       ref_get(&q->c->in[WF_RNN_W], i * q->n_cols + j);
            ref_set(&q->c->out[WF_RNN_DX], p * q->n_in + i, sum);
        }
}

/* What a column of weights was multiplied with; its gradient is the sum over batch and time of that
 * times da. */
enum what { INPUT, STATE, ONE, ONE_RECURRENT };

static double factor(const struct back *s, enum what what, int64_t i, int64_t b, int64_t k,
                     int64_t first, bool through_q)
{
    const struct seq *q = &s->q;
    int64_t row = b * q->n_time + time_of(q, k);
    double h;

    if (what == INPUT)
        return ref_get(&q->c->in[WF_RNN_X], row * q->n_in + i);
    if (what != STATE)
        return 1;
    h = h_before(q, &q->c->in[WF_RNN_Y], first, b, k, i);
    return through_q
               ? h * saved(s, WF_RNN_GATES, saved_at(q, b, time_of(q, k)) * 3 + q->n_units + i)
               : h;
}

static double weight_grad(const struct back *s, enum what what, int64_t i, int64_t j)
{
    const struct seq *q = &s->q;
    int64_t n = q->n_units, part = j / n;
    bool through_q = false;
    double sum = 0;

    if (what == STATE || what == ONE_RECURRENT) {
        part = recurrent_part(s, j / n);
        through_q = part < 0;
        part = through_q ? j / n : part;
    }
    for (int64_t b = 0; b < q->n_batch; b++) {
        int64_t first = first_step(q, b);

        for (int64_t k = first; k < q->n_time; k++)
            sum += factor(s, what, i, b, k, first, through_q) *
                   s->da[((b * q->n_time + time_of(q, k)) * s->n_da + part) * n + j % n];
    }
    return sum;
}

static void weight_grads(const struct back *s)
{
    const struct wf_call *c = s->q.c;
    int64_t n = s->q.n_cols;

    for (int64_t p = 0; p < wf_count(&c->out[WF_RNN_DW]); p++)
        ref_set(&c->out[WF_RNN_DW], p, weight_grad(s, INPUT, p / n, p % n));
    for (int64_t p = 0; p < wf_count(&c->out[WF_RNN_DR]); p++)
        ref_set(&c->out[WF_RNN_DR], p, weight_grad(s, STATE, p / n, p % n));
    for (int64_t p = 0; p < wf_count(&c->out[WF_RNN_DBIAS]); p++)
        ref_set(&c->out[WF_RNN_DBIAS], p, weight_grad(s, p < n ? ONE : ONE_RECURRENT, 0, p % n));
}

/* Doubles of scratch memory; false on overflow. */
static bool scratch_doubles(const struct wf_type *x, const struct wf_type *r, int64_t n_da,
                            int64_t *out)
{
    int64_t n, rows;

    return wf_mul_i64(x->dim[0], x->dim[1], &rows) && wf_mul_i64(r->dim[0], n_da, &n) &&
           wf_mul_i64(rows, n, &n) && wf_add_i64(n, 3 * r->dim[0], &n) &&
           wf_mul_i64(n, sizeof(double), &rows) && (*out = n, true);
}

weft_status wf_plan_ref_rnn_grad(struct wf_kplan *p)
{
    enum wf_rnn_kind kind = wf_rnn_kind(p->op);
    bool reset_after = kind == WF_RNN_GRU && wf_kplan_int(p, "reset_after");
    int64_t n;

    if (!scratch_doubles(&p->in[WF_RNN_X], &p->in[WF_RNN_R], parts_of_da(kind, reset_after), &n))
        return wf_err(WEFT_ESHAPE, "%s: too large", p->op->name);
    p->scratch_bytes = (size_t)n * sizeof(double);
    return WEFT_OK;
}

weft_status wf_ref_rnn_grad(const struct wf_call *c)
{
    struct back s = {.q = seq_of(c)};
    weft_status st = check_lengths(&s.q);
    double *mem = c->scratch, *own = NULL;
    int64_t n;

    if (st)
        return st;
    s.n_da = parts_of_da(s.q.kind, s.q.reset_after);
    if (!scratch_doubles(&c->in[WF_RNN_X].type, &c->in[WF_RNN_R].type, s.n_da, &n))
        return wf_err(WEFT_ESHAPE, "%s: too large", c->op->name);
    if (!mem) /* outside a plan: constants are folded */
        mem = own = wf_alloc(c->ctx, (size_t)n * sizeof(double));
    if (!mem)
        return wf_err_nomem(c->ctx, (size_t)n * sizeof(double), c->op->name);
    s.dh = mem;
    s.dc = s.dh + s.q.n_units;
    s.dq = s.dc + s.q.n_units;
    s.da = s.dq + s.q.n_units;
    for (int64_t b = 0; b < s.q.n_batch; b++)
        row_back(&s, b);
    if (wf_count(&c->out[WF_RNN_DX]))
        input_grads(&s);
    weight_grads(&s);
    wf_free(c->ctx, own);
    return WEFT_OK;
}
