/* wf_infer_rnn.c - shape rules of the recurrent ops and their gradients. */
#include "op/infer.h"
#include "op/rnn.h"

/* The sizes of a call; any may be symbolic. */
struct sizes {
    weft_dtype dtype;
    int64_t n_batch, n_time, n_in, n_units;
    int n_gates;
};

static bool present(const struct wf_infer *r, int i)
{
    return i < r->n_in && r->in[i].dtype != WEFT_NONE;
}

static weft_status check_rank(const struct wf_infer *r, int i, int rank, const char *what)
{
    if (r->in[i].rank != rank)
        return wf_infer_err(r, WEFT_ESHAPE, "%s must have rank %d, it has %d", what, rank,
                            r->in[i].rank);
    return WEFT_OK;
}

/* An operand of the op's float type and the given shape. */
static weft_status check_shape(const struct wf_infer *r, const struct sizes *s, int i, int rank,
                               const int64_t *dim, const char *what)
{
    char text[WF_TYPE_TEXT];
    int64_t d;

    if (!present(r, i))
        return WEFT_OK;
    if (r->in[i].dtype != s->dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "%s is %s, x is %s", what,
                            weft_dtype_name(r->in[i].dtype), weft_dtype_name(s->dtype));
    if (check_rank(r, i, rank, what))
        return WEFT_ESHAPE;
    for (int k = 0; k < rank; k++)
        if (wf_same_dim(r, r->in[i].dim[k], dim[k], what, &d)) {
            struct wf_type want = wf_type_of(s->dtype, rank, dim);

            return wf_infer_err(r, WEFT_ESHAPE, "%s must be %s", what, wf_type_text(&want, text));
        }
    return WEFT_OK;
}

/* units * n, or a symbol. */
static weft_status times(const struct wf_infer *r, int64_t n_units, int n, int64_t *out)
{
    *out = WEFT_ANY;
    if (n_units >= 0 && !wf_mul_i64(n_units, n, out))
        return wf_infer_err(r, WEFT_ESHAPE, "too many units");
    return WEFT_OK;
}

/* The number of units, from whichever size says it. */
static weft_status find_units(const struct wf_infer *r, struct sizes *s)
{
    const int64_t said[] = {r->in[WF_RNN_R].dim[1], r->in[WF_RNN_W].dim[1]};

    s->n_units = r->in[WF_RNN_R].dim[0];
    for (int i = 0; i < WF_COUNT(said); i++) {
        if (said[i] < 0 || s->n_units >= 0)
            continue;
        if (said[i] % s->n_gates)
            return wf_infer_err(r, WEFT_ESHAPE, "%lld columns of weights are not a multiple of %d",
                                (long long)said[i], s->n_gates);
        s->n_units = said[i] / s->n_gates;
    }
    return WEFT_OK;
}

static weft_status check_weights(const struct wf_infer *r, struct sizes *s)
{
    bool two = wf_rnn_kind(r->op) == WF_RNN_GRU && wf_in_int(r, "reset_after");
    int64_t n;
    weft_status st = find_units(r, s);

    if (!st)
        st = times(r, s->n_units, s->n_gates, &n);
    if (!st)
        st = check_shape(r, s, WF_RNN_W, 2, (int64_t[]){s->n_in, n}, "w");
    if (!st)
        st = check_shape(r, s, WF_RNN_R, 2, (int64_t[]){s->n_units, n}, "r");
    if (!st)
        st = two ? check_shape(r, s, WF_RNN_BIAS, 2, (int64_t[]){2, n}, "bias")
                 : check_shape(r, s, WF_RNN_BIAS, 1, (int64_t[]){n}, "bias");
    return st;
}

static weft_status check_steps(const struct wf_infer *r, struct sizes *s)
{
    const struct wf_type *t = &r->in[WF_RNN_STEPS];
    weft_status st;

    if (!present(r, WF_RNN_STEPS))
        return WEFT_OK;
    if (t->dtype == WEFT_BOOL ? t->rank != 2
                              : (t->dtype != WEFT_I32 && t->dtype != WEFT_I64) || t->rank != 1) {
        char text[WF_TYPE_TEXT];

        return wf_infer_err(r, WEFT_EDTYPE,
                            "steps are a mask bool[batch,time] or lengths i32[batch], not %s",
                            wf_type_text(t, text));
    }
    st = wf_same_dim(r, t->dim[0], s->n_batch, "batch sizes of x and steps", &s->n_batch);
    if (!st && t->rank == 2)
        st = wf_same_dim(r, t->dim[1], s->n_time, "times of x and mask", &s->n_time);
    return st;
}

/* Everything that forward and gradient ops share. */
static weft_status check_operands(const struct wf_infer *r, struct sizes *s)
{
    const struct wf_type *x = &r->in[WF_RNN_X];
    weft_status st;

    *s = (struct sizes){.dtype = x->dtype, .n_gates = wf_rnn_gates(wf_rnn_kind(r->op))};
    if (!wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "x must have a float type");
    if (check_rank(r, WF_RNN_X, 3, "x") || check_rank(r, WF_RNN_W, 2, "w") ||
        check_rank(r, WF_RNN_R, 2, "r"))
        return WEFT_ESHAPE;
    s->n_batch = x->dim[0];
    s->n_time = x->dim[1];
    st = wf_same_dim(r, x->dim[2], r->in[WF_RNN_W].dim[0], "sizes of the input", &s->n_in);
    if (!st)
        st = check_weights(r, s);
    if (!st)
        st = check_steps(r, s);
    if (!st)
        st = check_shape(r, s, WF_RNN_H0, 2, (int64_t[]){s->n_batch, s->n_units}, "h0");
    if (!st)
        st = check_shape(r, s, WF_RNN_C0, 2, (int64_t[]){s->n_batch, s->n_units}, "c0");
    if (!st && wf_rnn_kind(r->op) == WF_RNN_SIMPLE) {
        const char *act = wf_in_attr(r, "activation")->s;

        if (!act || (strcmp(act, "tanh") && strcmp(act, "relu")))
            st = wf_infer_err(r, WEFT_EINVAL, "activation '%s': tanh and relu are possible",
                              act ? act : "");
    }
    return st;
}

static struct wf_type state_type(const struct sizes *s)
{
    return wf_type_of(s->dtype, 2, (int64_t[]){s->n_batch, s->n_units});
}

/* What is saved for the gradient: n values for each step and row. */
static struct wf_type saved_type(const struct sizes *s, int64_t n)
{
    return wf_type_of(s->dtype, 3, (int64_t[]){s->n_time, s->n_batch, n});
}

/* Values kept per unit: lstm's gates; gru's z, q, n and with reset_after what q multiplies. */
static int saved_gates(const struct wf_infer *r)
{
    enum wf_rnn_kind kind = wf_rnn_kind(r->op);

    return kind == WF_RNN_LSTM ? 4 : kind == WF_RNN_GRU ? (wf_in_int(r, "reset_after") ? 4 : 3) : 0;
}

weft_status wf_infer_rnn(struct wf_infer *r)
{
    enum wf_rnn_kind kind = wf_rnn_kind(r->op);
    struct sizes s;
    int64_t n_saved;
    weft_status st = check_operands(r, &s);

    if (!st)
        st = times(r, s.n_units, saved_gates(r), &n_saved);
    if (st)
        return st;
    r->out[WF_RNN_OUT_Y] = wf_type_of(s.dtype, 3, (int64_t[]){s.n_batch, s.n_time, s.n_units});
    r->out[WF_RNN_OUT_H] = state_type(&s);
    if (kind == WF_RNN_LSTM) {
        r->out[WF_LSTM_OUT_C] = state_type(&s);
        r->out[WF_LSTM_OUT_GATES] = saved_type(&s, n_saved);
        r->out[WF_LSTM_OUT_CELLS] = saved_type(&s, s.n_units);
    } else if (kind == WF_RNN_GRU) {
        r->out[WF_GRU_OUT_GATES] = saved_type(&s, n_saved);
    }
    return WEFT_OK;
}

static weft_status check_saved(const struct wf_infer *r, const struct sizes *s)
{
    enum wf_rnn_kind kind = wf_rnn_kind(r->op);
    int64_t sequence[] = {s->n_batch, s->n_time, s->n_units}, gates[] = {s->n_time, s->n_batch, 0};
    int64_t cells[] = {s->n_time, s->n_batch, s->n_units};
    weft_status st;

    if (!present(r, WF_RNN_Y) || (kind != WF_RNN_SIMPLE && !present(r, WF_RNN_GATES)) ||
        (kind == WF_RNN_LSTM && !present(r, WF_RNN_CELLS)))
        return wf_infer_err(r, WEFT_EINVAL, "what the forward pass saved must be given");
    if ((kind == WF_RNN_SIMPLE && present(r, WF_RNN_GATES)) ||
        (kind != WF_RNN_LSTM &&
         (present(r, WF_RNN_C0) || present(r, WF_RNN_CELLS) || present(r, WF_RNN_DC))))
        return wf_infer_err(r, WEFT_EINVAL, "an operand of another recurrent op was given");
    st = times(r, s->n_units, saved_gates(r), &gates[2]);
    if (!st)
        st = check_shape(r, s, WF_RNN_Y, 3, sequence, "y");
    if (!st)
        st = check_shape(r, s, WF_RNN_GATES, 3, gates, "gates");
    if (!st)
        st = check_shape(r, s, WF_RNN_CELLS, 3, cells, "cells");
    if (!st)
        st = check_shape(r, s, WF_RNN_DY, 3, sequence, "dy");
    if (!st)
        st = check_shape(r, s, WF_RNN_DH, 2, (int64_t[]){s->n_batch, s->n_units}, "dh");
    if (!st)
        st = check_shape(r, s, WF_RNN_DC, 2, (int64_t[]){s->n_batch, s->n_units}, "dc");
    return st;
}

weft_status wf_infer_rnn_grad(struct wf_infer *r)
{
    static const struct {
        int out, in;
        const char *need;
    } rows[] = {{WF_RNN_DX, WF_RNN_X, "need_dx"},    {WF_RNN_DW, WF_RNN_W, "need_dw"},
                {WF_RNN_DR, WF_RNN_R, "need_dw"},    {WF_RNN_DBIAS, WF_RNN_BIAS, "need_dw"},
                {WF_RNN_DH0, WF_RNN_H0, "need_dh0"}, {WF_RNN_DC0, WF_RNN_C0, "need_dh0"}};
    struct sizes s;
    weft_status st = check_operands(r, &s);

    if (!st)
        st = check_saved(r, &s);
    if (st)
        return st;
    for (int i = 0; i < r->n_out; i++)
        r->out[i] = wf_in_int(r, rows[i].need) && present(r, rows[i].in)
                        ? r->in[rows[i].in]
                        : wf_type_of(s.dtype, 1, (int64_t[]){0});
    return WEFT_OK;
}
