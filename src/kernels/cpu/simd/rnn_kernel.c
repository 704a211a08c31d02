/* rnn_kernel.c - the cells of recurrent nets: what happens to the sums of a step, forward and
 * backward.
 *
 * Compiled once per SIMD level. Each function walks over the rows of a tile with one vector of
 * units. A row whose step does not count keeps its state, repeats its output and has no gates and
 * no gradient. */
#include "kernels/cpu/rnn.h"
#include "kernels/cpu/simd/math_inl.h"

/* A whole vector, or the first n of one. */
struct lanes {
    bool whole;
    int64_t n;
};

WF_SIMD_INLINE vf get(const struct lanes l, const float *p)
{
    return l.whole ? vf_load(p) : vf_loadn(p, l.n);
}

WF_SIMD_INLINE void put(const struct lanes l, float *p, vf x)
{
    if (l.whole)
        vf_store(p, x);
    else
        vf_storen(p, x, l.n);
}

WF_SIMD_INLINE vf get_or_zero(const struct lanes l, const float *p)
{
    return p ? get(l, p) : vf_zero();
}

WF_SIMD_INLINE vf one_minus(vf x)
{
    return vf_set1(1.0f) - x;
}

/* x (1 - x), 1 - x^2 */
WF_SIMD_INLINE vf sigmoid_slope(vf x)
{
    return x * one_minus(x);
}

WF_SIMD_INLINE vf tanh_slope(vf x)
{
    return vf_fma(vf_neg(x), x, vf_set1(1.0f));
}

/* Calls body(s, lanes, first unit) for each vector of units; the body is inlined for whole and
 * last vectors. */
#define OVER_UNITS(type, name, body)                             \
    static void name(const type *s)                              \
    {                                                            \
        const type local = *s; /* no store can change it */      \
        int64_t u = 0;                                           \
                                                                 \
        for (; u + VF_N <= local.n; u += VF_N)                   \
            body(&local, (struct lanes){true, VF_N}, u);         \
        if (u < local.n)                                         \
            body(&local, (struct lanes){false, local.n - u}, u); \
    }

/* ---- forward --------------------------------------------------------------------------------- */

/* One row, one vector of units, of a step that does not count. */
WF_SIMD_INLINE void skip(const struct wf_rnn_step *s, const struct lanes l, int64_t row, int64_t u,
                         int n_gates)
{
    vf h = get(l, s->h + row * s->h_ld + u);

    put(l, s->h_next + row * s->h_ld + u, h);
    put(l, s->y + row * s->y_ld + u, s->flags[row] & WF_STEP_SEEN ? h : vf_zero());
    for (int g = 0; g < n_gates; g++)
        put(l, s->gates + row * s->gates_ld + g * s->n_units + u, vf_zero());
    if (s->cells)
        put(l, s->cells + row * s->n_units + u, get(l, s->c + row * s->c_ld + u));
}

WF_SIMD_INLINE bool is_on(const uint8_t *flags, int64_t row)
{
    return !flags || (flags[row] & WF_STEP_ON);
}

WF_SIMD_INLINE void load_bias(const struct lanes l, const float *bias, int64_t n_units, int64_t u,
                              int n, vf *b)
{
    for (int g = 0; g < n; g++)
        b[g] = get_or_zero(l, bias ? bias + g * n_units + u : NULL);
}

WF_SIMD_INLINE void lstm_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u)
{
    vf b[4];

    load_bias(l, s->bias, s->n_units, u, 4, b);
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *sums = s->sums + row * s->sums_ld + u;
        float *gates = s->gates + row * s->gates_ld + u, *c_at = s->c + row * s->c_ld + u;
        vf i, f, g, o, c, h;

        if (!is_on(s->flags, row)) {
            skip(s, l, row, u, 4);
            continue;
        }
        i = vsigmoid(get(l, sums) + b[0]);
        f = vsigmoid(get(l, sums + s->part) + b[1]);
        g = vtanh(get(l, sums + 2 * s->part) + b[2]);
        o = vsigmoid(get(l, sums + 3 * s->part) + b[3]);
        c = vf_fma(f, get(l, c_at), i * g);
        h = o * vtanh(c);
        put(l, gates, i);
        put(l, gates + s->n_units, f);
        put(l, gates + 2 * s->n_units, g);
        put(l, gates + 3 * s->n_units, o);
        put(l, c_at, c);
        put(l, s->cells + row * s->n_units + u, c);
        put(l, s->y + row * s->y_ld + u, h);
        put(l, s->h_next + row * s->h_ld + u, h);
    }
}
OVER_UNITS(struct wf_rnn_step, lstm_step, lstm_units)

/* Sums: z, q, x wn, h rn. */
WF_SIMD_INLINE void gru_after_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u)
{
    vf b[3], b1[3];

    load_bias(l, s->bias, s->n_units, u, 3, b);
    load_bias(l, s->bias1, s->n_units, u, 3, b1);
    b[0] = b[0] + b1[0];
    b[1] = b[1] + b1[1];
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *sums = s->sums + row * s->sums_ld + u;
        float *gates = s->gates + row * s->gates_ld + u;
        vf z, q, n, inner, h;

        if (!is_on(s->flags, row)) {
            skip(s, l, row, u, 4);
            continue;
        }
        z = vsigmoid(get(l, sums) + b[0]);
        q = vsigmoid(get(l, sums + s->part) + b[1]);
        inner = get(l, sums + 3 * s->part) + b1[2];
        n = vtanh(vf_fma(q, inner, get(l, sums + 2 * s->part) + b[2]));
        h = vf_fma(z, get(l, s->h + row * s->h_ld + u) - n, n);
        put(l, gates, z);
        put(l, gates + s->n_units, q);
        put(l, gates + 2 * s->n_units, n);
        put(l, gates + 3 * s->n_units, inner);
        put(l, s->y + row * s->y_ld + u, h);
        put(l, s->h_next + row * s->h_ld + u, h);
    }
}
OVER_UNITS(struct wf_rnn_step, gru_after_step, gru_after_units)

/* Sums: z, q. */
WF_SIMD_INLINE void gru_reset_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u)
{
    vf b[2];

    load_bias(l, s->bias, s->n_units, u, 2, b);
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *sums = s->sums + row * s->sums_ld + u;
        float *gates = s->gates + row * s->gates_ld + u;
        vf q = vsigmoid(get(l, sums + s->part) + b[1]);

        put(l, gates, vsigmoid(get(l, sums) + b[0]));
        put(l, gates + s->n_units, q);
        put(l, s->rh + row * s->h_ld + u, q * get(l, s->h + row * s->h_ld + u));
    }
}
OVER_UNITS(struct wf_rnn_step, gru_reset, gru_reset_units)

/* Sums: n; z is already among the gates. */
WF_SIMD_INLINE void gru_before_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u)
{
    vf b = get_or_zero(l, s->bias ? s->bias + 2 * s->n_units + u : NULL);

    for (int64_t row = 0; row < s->n_rows; row++) {
        float *gates = s->gates + row * s->gates_ld + u;
        vf n, h;

        if (!is_on(s->flags, row)) {
            skip(s, l, row, u, 3);
            continue;
        }
        n = vtanh(get(l, s->sums + row * s->sums_ld + u) + b);
        h = vf_fma(get(l, gates), get(l, s->h + row * s->h_ld + u) - n, n);
        put(l, gates + 2 * s->n_units, n);
        put(l, s->y + row * s->y_ld + u, h);
        put(l, s->h_next + row * s->h_ld + u, h);
    }
}
OVER_UNITS(struct wf_rnn_step, gru_before_step, gru_before_units)

WF_SIMD_INLINE void simple_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u,
                                 const bool relu)
{
    vf b = get_or_zero(l, s->bias ? s->bias + u : NULL);

    for (int64_t row = 0; row < s->n_rows; row++) {
        vf a, h;

        if (!is_on(s->flags, row)) {
            skip(s, l, row, u, 0);
            continue;
        }
        a = get(l, s->sums + row * s->sums_ld + u) + b;
        h = relu ? vf_max2(vf_zero(), a) : vtanh(a);
        put(l, s->y + row * s->y_ld + u, h);
        put(l, s->h_next + row * s->h_ld + u, h);
    }
}

WF_SIMD_INLINE void tanh_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u)
{
    simple_units(s, l, u, false);
}

WF_SIMD_INLINE void relu_units(const struct wf_rnn_step *s, const struct lanes l, int64_t u)
{
    simple_units(s, l, u, true);
}
OVER_UNITS(struct wf_rnn_step, tanh_step, tanh_units)
OVER_UNITS(struct wf_rnn_step, relu_step, relu_units)

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient of the state after the step: what came from later steps, plus that of this step's
 * output. */
WF_SIMD_INLINE vf dh_of(const struct wf_rnn_back *s, const struct lanes l, int64_t row, int64_t u)
{
    vf dh = get(l, s->dh + row * s->dh_ld + u);

    if (!s->dy || (s->flags && !(s->flags[row] & WF_STEP_SEEN)))
        return dh;
    return dh + get(l, s->dy + row * s->y_ld + u);
}

/* Where part p of da goes: the row, the packed panel, and the sum for the bias. */
WF_SIMD_INLINE void put_da(const struct wf_rnn_back *s, const struct lanes l, int64_t row,
                           int64_t u, int part, vf x, vf *sum)
{
    put(l, s->da + row * s->da_ld + part * s->n_units + u, x);
    if (s->panel)
        vf_store(s->panel + row * s->panel_ld + part * s->panel_part + u, x);
    *sum = *sum + x;
}

WF_SIMD_INLINE void add_bias(const struct wf_rnn_back *s, const struct lanes l, int64_t u,
                             int first, int n, const vf *sum)
{
    for (int i = 0; s->bias && i < n; i++) {
        float *at = s->bias + (first + i) * s->n_units + u;

        put(l, at, get(l, at) + sum[i]);
    }
}

/* A step that does not count: parts first .. first + n - 1 are zero, dh is passed on. */
WF_SIMD_INLINE void skip_back(const struct wf_rnn_back *s, const struct lanes l, int64_t row,
                              int64_t u, int first, int n)
{
    vf unused = vf_zero();

    for (int i = 0; i < n; i++)
        put_da(s, l, row, u, first + i, vf_zero(), &unused);
}

WF_SIMD_INLINE void lstm_back_units(const struct wf_rnn_back *s, const struct lanes l, int64_t u)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};

    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *gates = s->gates + row * s->gates_ld + u;
        float *dc_at = s->dc + row * s->dh_ld + u, *dh_at = s->dh + row * s->dh_ld + u;
        vf i, f, g, o, th, c, dc, dh = dh_of(s, l, row, u);

        if (!is_on(s->flags, row)) {
            skip_back(s, l, row, u, 0, 4);
            put(l, dh_at, dh);
            continue;
        }
        i = get(l, gates);
        f = get(l, gates + s->n_units);
        g = get(l, gates + 2 * s->n_units);
        o = get(l, gates + 3 * s->n_units);
        c = get_or_zero(l, s->c_prev ? s->c_prev + row * s->n_units + u : NULL);
        th = vtanh(get(l, s->cells + row * s->n_units + u));
        dc = vf_fma(dh * o, tanh_slope(th), get(l, dc_at));
        put_da(s, l, row, u, 0, dc * g * sigmoid_slope(i), &sum[0]);
        put_da(s, l, row, u, 1, dc * c * sigmoid_slope(f), &sum[1]);
        put_da(s, l, row, u, 2, dc * i * tanh_slope(g), &sum[2]);
        put_da(s, l, row, u, 3, dh * th * sigmoid_slope(o), &sum[3]);
        put(l, dc_at, dc * f);
        if (s->flags)
            put(l, dh_at, vf_zero());
    }
    add_bias(s, l, u, 0, 4, sum);
}
OVER_UNITS(struct wf_rnn_back, lstm_back, lstm_back_units)

/* Parts 0 (n) and 1 (z); with `after` also 2 (q) and 3 (h rn). */
WF_SIMD_INLINE void gru_back_units(const struct wf_rnn_back *s, const struct lanes l, int64_t u,
                                   const bool after)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};

    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *gates = s->gates + row * s->gates_ld + u;
        float *dh_at = s->dh + row * s->dh_ld + u;
        vf z, n, dn, dh = dh_of(s, l, row, u);

        if (!is_on(s->flags, row)) {
            skip_back(s, l, row, u, 0, after ? 4 : 2);
            put(l, dh_at, dh);
            continue;
        }
        z = get(l, gates);
        n = get(l, gates + 2 * s->n_units);
        dn = dh * one_minus(z) * tanh_slope(n);
        put_da(s, l, row, u, 0, dn, &sum[0]);
        put_da(s, l, row, u, 1,
               dh * (get(l, s->h_prev + row * s->h_prev_ld + u) - n) * sigmoid_slope(z), &sum[1]);
        if (after) {
            vf q = get(l, gates + s->n_units), inner = get(l, gates + 3 * s->n_units);

            put_da(s, l, row, u, 2, dn * inner * sigmoid_slope(q), &sum[2]);
            put_da(s, l, row, u, 3, dn * q, &sum[3]);
        }
        put(l, dh_at, dh * z);
    }
    add_bias(s, l, u, 0, after ? 4 : 2, sum);
}

WF_SIMD_INLINE void gru_after_back_units(const struct wf_rnn_back *s, const struct lanes l,
                                         int64_t u)
{
    gru_back_units(s, l, u, true);
}

WF_SIMD_INLINE void gru_before_back_units(const struct wf_rnn_back *s, const struct lanes l,
                                          int64_t u)
{
    gru_back_units(s, l, u, false);
}
OVER_UNITS(struct wf_rnn_back, gru_after_back, gru_after_back_units)
OVER_UNITS(struct wf_rnn_back, gru_before_back, gru_before_back_units)

/* Part 2 (q), from the gradient of q h. */
WF_SIMD_INLINE void gru_reset_back_units(const struct wf_rnn_back *s, const struct lanes l,
                                         int64_t u)
{
    vf sum = vf_zero();

    for (int64_t row = 0; row < s->n_rows; row++) {
        float *dh_at = s->dh + row * s->dh_ld + u;
        vf q, d;

        if (!is_on(s->flags, row)) {
            skip_back(s, l, row, u, 2, 1);
            continue;
        }
        q = get(l, s->gates + row * s->gates_ld + s->n_units + u);
        d = get(l, s->drh + row * s->dh_ld + u);
        put_da(s, l, row, u, 2, d * get(l, s->h_prev + row * s->h_prev_ld + u) * sigmoid_slope(q),
               &sum);
        put(l, dh_at, vf_fma(d, q, get(l, dh_at)));
    }
    add_bias(s, l, u, 2, 1, &sum);
}
OVER_UNITS(struct wf_rnn_back, gru_reset_back, gru_reset_back_units)

WF_SIMD_INLINE void simple_back_units(const struct wf_rnn_back *s, const struct lanes l, int64_t u,
                                      const bool relu)
{
    vf sum = vf_zero();

    for (int64_t row = 0; row < s->n_rows; row++) {
        float *dh_at = s->dh + row * s->dh_ld + u;
        vf y, dh = dh_of(s, l, row, u);

        if (!is_on(s->flags, row)) {
            skip_back(s, l, row, u, 0, 1);
            put(l, dh_at, dh);
            continue;
        }
        y = get(l, s->y + row * s->y_ld + u);
        put_da(s, l, row, u, 0, relu ? vf_keep(vm_gt(y, vf_zero()), dh) : dh * tanh_slope(y), &sum);
        if (s->flags)
            put(l, dh_at, vf_zero());
    }
    add_bias(s, l, u, 0, 1, &sum);
}

WF_SIMD_INLINE void tanh_back_units(const struct wf_rnn_back *s, const struct lanes l, int64_t u)
{
    simple_back_units(s, l, u, false);
}

WF_SIMD_INLINE void relu_back_units(const struct wf_rnn_back *s, const struct lanes l, int64_t u)
{
    simple_back_units(s, l, u, true);
}
OVER_UNITS(struct wf_rnn_back, tanh_back, tanh_back_units)
OVER_UNITS(struct wf_rnn_back, relu_back, relu_back_units)

extern const struct wf_rnn_fns WF_LEVELED(wf_rnn_fns);
const struct wf_rnn_fns WF_LEVELED(wf_rnn_fns) = {
    .step = {[WF_CELL_LSTM] = lstm_step,
             [WF_CELL_GRU_AFTER] = gru_after_step,
             [WF_CELL_GRU_BEFORE] = gru_before_step,
             [WF_CELL_TANH] = tanh_step,
             [WF_CELL_RELU] = relu_step},
    .gru_reset = gru_reset,
    .back = {[WF_CELL_LSTM] = lstm_back,
             [WF_CELL_GRU_AFTER] = gru_after_back,
             [WF_CELL_GRU_BEFORE] = gru_before_back,
             [WF_CELL_TANH] = tanh_back,
             [WF_CELL_RELU] = relu_back},
    .gru_reset_back = gru_reset_back,
};
