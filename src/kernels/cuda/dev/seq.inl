/* seq.inl - attention and recurrent nets in one precision (REAL, R()), after both.inl. */

/* ---- attention: a block for each query, or key; scores of at most ATT_MAX keys in shared
 * memory */

DEV int64_t R(att_at)(const struct wfc_att_view *v, int64_t b, int64_t h, int64_t t, int64_t i)
{
    return v->at + b * v->sb + h * v->sh + t * v->st + i;
}

DEV REAL R(att_dot)(const struct wfc_att *A, const struct wfc_att_view *x,
                    const struct wfc_att_view *y, int64_t b, int64_t h, int64_t i, int64_t j,
                    uint32_t n)
{
    int64_t xi = R(att_at)(x, b, h, i, 0), yj = R(att_at)(y, b, h, j, 0);
    REAL sum = 0;

    for (uint32_t e = 0; e < n; e++)
        sum += R(get)(x->data, A->dtype, xi + e) * R(get)(y->data, A->dtype, yj + e);
    return sum;
}

/* The score of query i and key j; -inf if it may not attend. */
DEV REAL R(att_score)(const struct wfc_att *A, int64_t b, int64_t h, int64_t i, int64_t j)
{
    REAL m = 0;

    if (A->causal && j > i)
        return -R(huge)();
    if (A->mask) {
        m = R(get)(A->mask, A->mask_dtype,
                   b * A->mask_step[0] + h * A->mask_step[1] + i * A->mask_step[2] +
                       j * A->mask_step[3]);
        if (A->mask_dtype == WFC_BOOL) {
            if (m == 0)
                return -R(huge)();
            m = 0;
        }
    }
    return R(att_dot)(A, &A->q, &A->k, b, h, i, j, A->d) * (REAL)A->scale + m;
}

KERNEL(R(wfc_att), wfc_att)
{
    SHARED REAL p[WFC_ATT_MAX], s[WFC_THREADS], most;
    int64_t i = BX % A->n_q, h = BX / A->n_q % A->n_h, b = BX / A->n_q / A->n_h;

    EACH_THREAD(t)
    {
        REAL m = -R(huge)();

        for (uint32_t j = (uint32_t)t; j < A->n_k; j += (uint32_t)NT) {
            REAL x = R(att_score)(A, b, h, i, j);

            p[j] = x;
            m = x > m || x != x ? x : m;
        }
        s[t] = m;
    }
    SYNC();
    R(fold)(s, WFC_MAX, NT, 1);
    EACH_THREAD(t)
    {
        if (t == 0)
            most = s[0];
    }
    SYNC();
    EACH_THREAD(t)
    {
        REAL sum = 0;

        for (uint32_t j = (uint32_t)t; j < A->n_k; j += (uint32_t)NT) {
            p[j] = p[j] == -R(huge)() ? 0 : R(exp)(p[j] - most);
            sum += p[j];
        }
        s[t] = sum;
    }
    SYNC();
    R(fold)(s, WFC_SUM, NT, 1);
    EACH_THREAD(t)
    {
        bool none = most == -R(huge)();

        if (t == 0)
            R(put)(A->lse, A->lse_dtype, BX, none ? most : most + R(log)(s[0]));
        for (uint32_t e = (uint32_t)t; e < A->dv; e += (uint32_t)NT) {
            REAL sum = 0;

            for (uint32_t j = 0; j < A->n_k; j++)
                sum += p[j] * R(get)(A->v.data, A->dtype, R(att_at)(&A->v, b, h, j, e));
            R(put)(A->y.data, A->dtype, R(att_at)(&A->y, b, h, i, e), none ? 0 : sum / s[0]);
        }
    }
}

/* p, and ds = p (dp - delta) with dp = dy·v and delta = dy·y, of query i and key j. */
DEV REAL R(att_pair)(const struct wfc_att *A, int64_t b, int64_t h, int64_t i, int64_t j, REAL *p)
{
    REAL x = R(att_score)(A, b, h, i, j),
         lse = R(get)(A->lse, A->lse_dtype, (b * A->n_h + h) * A->n_q + i);

    *p = x == -R(huge)() ? 0 : R(exp)(x - lse);
    if (*p == 0)
        return 0;
    return *p * (R(att_dot)(A, &A->dy, &A->v, b, h, i, j, A->dv) -
                 R(att_dot)(A, &A->dy, &A->y, b, h, i, i, A->dv));
}

KERNEL(R(wfc_att_dq), wfc_att)
{
    SHARED REAL ds[WFC_ATT_MAX];
    int64_t i = BX % A->n_q, h = BX / A->n_q % A->n_h, b = BX / A->n_q / A->n_h;

    EACH_THREAD(t)
    {
        REAL p;

        for (uint32_t j = (uint32_t)t; j < A->n_k; j += (uint32_t)NT)
            ds[j] = R(att_pair)(A, b, h, i, j, &p);
    }
    SYNC();
    EACH_THREAD(t)
    {
        for (uint32_t e = (uint32_t)t; e < A->d; e += (uint32_t)NT) {
            REAL sum = 0;

            for (uint32_t j = 0; j < A->n_k; j++)
                sum += ds[j] * R(get)(A->k.data, A->dtype, R(att_at)(&A->k, b, h, j, e));
            R(put)(A->dq.data, A->dtype, R(att_at)(&A->dq, b, h, i, e), sum * (REAL)A->scale);
        }
    }
}

KERNEL(R(wfc_att_dkv), wfc_att)
{
    SHARED REAL ds[WFC_ATT_MAX], ps[WFC_ATT_MAX];
    int64_t j = BX % A->n_k, h = BX / A->n_k % A->n_h, b = BX / A->n_k / A->n_h;
    uint32_t n = A->d > A->dv ? A->d : A->dv;

    EACH_THREAD(t)
    {
        for (uint32_t i = (uint32_t)t; i < A->n_q; i += (uint32_t)NT)
            ds[i] = R(att_pair)(A, b, h, i, j, &ps[i]);
    }
    SYNC();
    EACH_THREAD(t)
    {
        for (uint32_t e = (uint32_t)t; e < n; e += (uint32_t)NT) {
            REAL dk = 0, dv = 0;

            for (uint32_t i = 0; i < A->n_q; i++) {
                if (e < A->d)
                    dk += ds[i] * R(get)(A->q.data, A->dtype, R(att_at)(&A->q, b, h, i, e));
                if (e < A->dv)
                    dv += ps[i] * R(get)(A->dy.data, A->dtype, R(att_at)(&A->dy, b, h, i, e));
            }
            if (e < A->d)
                R(put)(A->dk.data, A->dtype, R(att_at)(&A->dk, b, h, j, e), dk * (REAL)A->scale);
            if (e < A->dv)
                R(put)(A->dv_out.data, A->dtype, R(att_at)(&A->dv_out, b, h, j, e), dv);
        }
    }
}

/* ---- recurrent nets: a block for each row of the batch --------------------------------------- */

/* An operand's element, 0 if the operand is absent. */
DEV REAL R(rnn_in)(const struct wfc_rnn *A, const void *p, int64_t at)
{
    return p ? R(get)(p, A->dtype, at) : 0;
}

DEV bool R(rnn_counts)(const struct wfc_rnn *A, int64_t b, int64_t t)
{
    if (!A->steps)
        return true;
    return A->steps_rank == 2 ? get_int(A->steps, A->steps_dtype, b * A->n_time + t) != 0
                              : t < get_int(A->steps, A->steps_dtype, b);
}

DEV int64_t R(rnn_time)(const struct wfc_rnn *A, int64_t k)
{
    return A->reverse ? A->n_time - 1 - k : k;
}

DEV int64_t R(rnn_first)(const struct wfc_rnn *A, int64_t b)
{
    int64_t k = 0;

    while (k < A->n_time && !R(rnn_counts)(A, b, R(rnn_time)(A, k)))
        k++;
    return k;
}

DEV bool R(rnn_bad_length)(const struct wfc_rnn *A, int64_t b)
{
    int64_t n = A->steps && A->steps_rank != 2 ? get_int(A->steps, A->steps_dtype, b) : 0;

    if (n >= 0 && n <= A->n_time)
        return false;
    set_trouble(&A->fault, WF_TROUBLE_INDEX, 5, n, (int64_t)A->n_time + 1);
    return true;
}

/* Unit u of the state before step k. */
DEV REAL R(rnn_h)(const struct wfc_rnn *A, int64_t first, int64_t b, int64_t k, int64_t u)
{
    if (k <= first)
        return R(rnn_in)(A, A->h0, b * A->n_units + u);
    return R(get)(A->y, A->dtype, (b * A->n_time + R(rnn_time)(A, k - 1)) * A->n_units + u);
}

DEV REAL R(rnn_c)(const struct wfc_rnn *A, int64_t b, int64_t k, int64_t u)
{
    if (k == 0)
        return R(rnn_in)(A, A->c0, b * A->n_units + u);
    return R(get)(A->cells, A->dtype, (R(rnn_time)(A, k - 1) * A->n_batch + b) * A->n_units + u);
}

DEV REAL R(rnn_x_dot)(const struct wfc_rnn *A, int64_t b, int64_t time, int64_t j)
{
    REAL sum = R(rnn_in)(A, A->bias, j);

    if (A->xw) /* from a product before */
        return sum + (REAL)((const float *)A->xw)[(b * A->n_time + time) * A->n_cols + j];
    for (int64_t i = 0; i < A->n_in; i++)
        sum += R(get)(A->x, A->dtype, (b * A->n_time + time) * A->n_in + i) *
               R(get)(A->w, A->dtype, i * A->n_cols + j);
    return sum;
}

DEV REAL R(rnn_h_dot)(const struct wfc_rnn *A, const REAL *h, int64_t j)
{
    REAL sum = 0;

    if (A->dtype == WFC_F32) {
        const float *r = (const float *)A->r + j;

        UNROLL
        for (uint32_t u = 0; u < A->n_units; u++)
            sum += h[u] * (REAL)r[u * A->n_cols];
        return sum;
    }
    for (int64_t u = 0; u < A->n_units; u++)
        sum += h[u] * R(get)(A->r, A->dtype, u * A->n_cols + j);
    return sum;
}

DEV REAL R(rnn_sigmoid)(REAL x)
{
    return 1 / (1 + R(exp)(-x));
}

/* A step that does not count: y repeats, gates are zero, the cell is kept. */
DEV void R(rnn_skip)(const struct wfc_rnn *A, int64_t first, int64_t b, int64_t k, int t)
{
    int64_t time = R(rnn_time)(A, k), row = time * A->n_batch + b;

    for (int64_t u = t; u < A->n_units; u += NT) {
        R(put)
        (A->y, A->dtype, (b * A->n_time + time) * A->n_units + u,
         k > first ? R(rnn_h)(A, first, b, k, u) : 0);
        if (A->kind == 0)
            R(put)(A->cells, A->dtype, row * A->n_units + u, R(rnn_c)(A, b, k, u));
    }
    for (int64_t j = t; j < (int64_t)A->n_saved * A->n_units; j += NT)
        R(put)(A->gates, A->dtype, row * A->n_saved * A->n_units + j, 0);
}

DEV void R(lstm_unit)(const struct wfc_rnn *A, const REAL *ax, int64_t b, int64_t k, int64_t u)
{
    int64_t n = A->n_units, time = R(rnn_time)(A, k), at = (time * A->n_batch + b) * n;
    REAL a[4], c;

    for (int g = 0; g < 4; g++) {
        a[g] = g == 2 ? R(tanh)(ax[g * n + u]) : R(rnn_sigmoid)(ax[g * n + u]);
        R(put)(A->gates, A->dtype, at * 4 + g * n + u, a[g]);
    }
    c = a[1] * R(rnn_c)(A, b, k, u) + a[0] * a[2];
    R(put)(A->cells, A->dtype, at + u, c);
    R(put)(A->y, A->dtype, (b * A->n_time + time) * n + u, a[3] * R(tanh)(c));
}

DEV void R(gru_unit)(const struct wfc_rnn *A, const REAL *ax, const REAL *ah, int64_t first,
                     int64_t b, int64_t k, int64_t u)
{
    int64_t n = A->n_units, time = R(rnn_time)(A, k), at = (time * A->n_batch + b) * A->n_saved * n;
    REAL z = R(get)(A->gates, A->dtype, at + u), reset = R(get)(A->gates, A->dtype, at + n + u);
    REAL inner = ah[2 * n + u], h;

    if (A->reset_after) {
        inner += R(rnn_in)(A, A->bias, A->n_cols + 2 * n + u);
        R(put)(A->gates, A->dtype, at + 3 * n + u, inner);
        inner *= reset;
    }
    h = R(tanh)(ax[2 * n + u] + inner);
    R(put)(A->gates, A->dtype, at + 2 * n + u, h);
    R(put)
    (A->y, A->dtype, (b * A->n_time + time) * n + u, z * R(rnn_h)(A, first, b, k, u) + (1 - z) * h);
}

/* Columns [from, to) of the sums of step k: x w + bias in ax, h r in ah. */
DEV void R(rnn_sums)(const struct wfc_rnn *A, REAL *ax, REAL *ah, const REAL *h, int64_t b,
                     int64_t time, int64_t from, int64_t to, bool with_x, int t)
{
    for (int64_t j = from + t; j < to; j += NT) {
        if (with_x)
            ax[j] = R(rnn_x_dot)(A, b, time, j);
        ah[j] = R(rnn_h_dot)(A, h, j);
    }
}

KERNEL(R(wfc_rnn), wfc_rnn)
{
    SHARED REAL h[WFC_RNN_UNITS], ax[4 * WFC_RNN_UNITS], ah[3 * WFC_RNN_UNITS];
    int64_t b = BX, n = A->n_units, first;

    if (R(rnn_bad_length)(A, b))
        return;
    first = R(rnn_first)(A, b);
    for (int64_t k = 0; k < A->n_time; k++) {
        int64_t time = R(rnn_time)(A, k), at = (time * A->n_batch + b) * A->n_saved * n;

        if (!R(rnn_counts)(A, b, time)) {
            EACH_THREAD(t)
            {
                R(rnn_skip)(A, first, b, k, t);
            }
            SYNC();
            continue;
        }
        EACH_THREAD(t)
        {
            for (int64_t u = t; u < n; u += NT)
                h[u] = R(rnn_h)(A, first, b, k, u);
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (A->kind == 0) /* both sums in one */
                for (int64_t j = t; j < 4 * n; j += NT)
                    ax[j] = R(rnn_x_dot)(A, b, time, j) + R(rnn_h_dot)(A, h, j);
            else
                R(rnn_sums)(A, ax, ah, h, b, time, 0, A->n_cols, true, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t j = t; A->kind == 1 && j < 2 * n; j += NT)
                R(put)
            (A->gates, A->dtype, at + j,
             R(rnn_sigmoid)(ax[j] + ah[j] +
                            (A->reset_after ? R(rnn_in)(A, A->bias, A->n_cols + j) : 0)));
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t u = t; A->kind == 1 && !A->reset_after && u < n; u += NT)
                h[u] = h[u] * R(get)(A->gates, A->dtype, at + n + u);
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (A->kind == 1 && !A->reset_after)
                R(rnn_sums)(A, ax, ah, h, b, time, 2 * n, 3 * n, false, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t u = t; u < n; u += NT)
                if (A->kind == 0) {
                    R(lstm_unit)(A, ax, b, k, u);
                } else if (A->kind == 1) {
                    R(gru_unit)(A, ax, ah, first, b, k, u);
                } else {
                    REAL a = ax[u] + ah[u];

                    R(put)
                    (A->y, A->dtype, (b * A->n_time + time) * n + u,
                     A->relu ? (a < 0 ? 0 : a) : R(tanh)(a));
                }
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        for (int64_t u = t; u < n; u += NT) {
            R(put)(A->h, A->dtype, b * n + u, R(rnn_h)(A, first, b, A->n_time, u));
            if (A->kind == 0)
                R(put)(A->c, A->dtype, b * n + u, R(rnn_c)(A, b, A->n_time, u));
        }
    }
}

/* ---- their gradients ------------------------------------------------------------------------- */

/* Which part of da belongs to gate g of r; -1 if r multiplies q h instead of h. */
DEV int64_t R(rnn_part)(const struct wfc_rnn *A, int64_t g)
{
    return A->kind == 1 && g == 2 ? (A->reset_after ? 3 : -1) : g;
}

DEV void R(lstm_back)(const struct wfc_rnn *A, REAL *da, REAL *dh, REAL *dc, int64_t b, int64_t k,
                      int64_t u)
{
    int64_t n = A->n_units, at = (R(rnn_time)(A, k) * A->n_batch + b) * n;
    REAL i = R(get)(A->gates, A->dtype, at * 4 + u), f = R(get)(A->gates, A->dtype, at * 4 + n + u);
    REAL g = R(get)(A->gates, A->dtype, at * 4 + 2 * n + u);
    REAL o = R(get)(A->gates, A->dtype, at * 4 + 3 * n + u);
    REAL th = R(tanh)(R(get)(A->cells, A->dtype, at + u));
    REAL d = dc[u] + dh[u] * o * (1 - th * th);

    da[u] = d * g * i * (1 - i);
    da[n + u] = d * R(rnn_c)(A, b, k, u) * f * (1 - f);
    da[2 * n + u] = d * i * (1 - g * g);
    da[3 * n + u] = dh[u] * th * o * (1 - o);
    dc[u] = d * f;
    dh[u] = 0;
}

/* A share of da r^T for unit u, over the gates whose recurrent sum is h r: columns `share`, share +
 * n_shares, …; rt is r with its axes exchanged, so that neighboring units are neighbors. */
DEV REAL R(rnn_through_r)(const struct wfc_rnn *A, const REAL *da, int64_t u, int64_t share,
                          int64_t n_shares)
{
    int64_t n = A->n_units, n_gates = A->kind == 0 ? 4 : A->kind == 1 ? 3 : 1;
    REAL sum = 0;

    for (int64_t g = 0; g < n_gates; g++) {
        int64_t part = R(rnn_part)(A, g);

        if (part >= 0 && A->dtype == WFC_F32) {
            const float *rt = (const float *)A->rt + g * n * n + u;

            UNROLL
            for (int64_t j = share; j < n; j += n_shares)
                sum += da[part * n + j] * (REAL)rt[j * n];
        } else if (part >= 0) {
            for (int64_t j = share; j < n; j += n_shares)
                sum += da[part * n + j] * R(get)(A->rt, A->dtype, (g * n + j) * n + u);
        }
    }
    return sum;
}

/* The gradients of the sums before the activations, of row b, back through time. */
KERNEL(R(wfc_rnn_back), wfc_rnn)
{
    SHARED REAL da[4 * WFC_RNN_UNITS], dh[WFC_RNN_UNITS], dc[WFC_RNN_UNITS], dq[WFC_RNN_UNITS];
    SHARED REAL through[1024];
    int64_t b = BX, n = A->n_units, first, n_shares = n && NT / n ? NT / n : 1;

    if (R(rnn_bad_length)(A, b))
        return;
    first = R(rnn_first)(A, b);
    EACH_THREAD(t)
    {
        for (int64_t u = t; u < n; u += NT) {
            dh[u] = R(rnn_in)(A, A->dh, b * n + u);
            dc[u] = R(rnn_in)(A, A->dc, b * n + u);
        }
    }
    SYNC();
    for (int64_t k = (int64_t)A->n_time - 1; k >= 0; k--) {
        int64_t time = R(rnn_time)(A, k), at = (b * A->n_time + time) * n;
        int64_t row = (time * A->n_batch + b) * A->n_saved * n;
        bool counted = R(rnn_counts)(A, b, time);

        EACH_THREAD(t)
        {
            for (int64_t u = t; u < n; u += NT) {
                if (k >= first)
                    dh[u] += R(rnn_in)(A, A->dy, at + u);
                if (!counted) {
                    for (int64_t g = 0; g < A->n_da; g++)
                        da[g * n + u] = 0;
                } else if (A->kind == 0) {
                    R(lstm_back)(A, da, dh, dc, b, k, u);
                } else if (A->kind == 1) {
                    REAL z = R(get)(A->gates, A->dtype, row + u),
                         h = R(get)(A->gates, A->dtype, row + 2 * n + u);

                    da[u] = dh[u] * (R(rnn_h)(A, first, b, k, u) - h) * z * (1 - z);
                    da[2 * n + u] = dh[u] * (1 - z) * (1 - h * h);
                    dh[u] *= z;
                } else {
                    REAL y = R(get)(A->y, A->dtype, at + u);

                    da[u] = A->relu ? (y > 0 ? dh[u] : 0) : dh[u] * (1 - y * y);
                    dh[u] = 0;
                }
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t u = t; counted && A->kind == 1 && !A->reset_after && u < n; u += NT) {
                REAL sum = 0;

                for (int64_t j = 0; j < n; j++)
                    sum += da[2 * n + j] * R(get)(A->r, A->dtype, u * A->n_cols + 2 * n + j);
                dq[u] = sum;
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t u = t; counted && A->kind == 1 && u < n; u += NT) {
                REAL reset = R(get)(A->gates, A->dtype, row + n + u), d;

                if (A->reset_after) {
                    d = da[2 * n + u] * R(get)(A->gates, A->dtype, row + 3 * n + u);
                    da[3 * n + u] = da[2 * n + u] * reset;
                } else {
                    d = dq[u] * R(rnn_h)(A, first, b, k, u);
                    dh[u] += dq[u] * reset;
                }
                da[n + u] = d * reset * (1 - reset);
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t p = t; counted && p < n * n_shares; p += NT)
                through[p] = R(rnn_through_r)(A, da, p % n, p / n, n_shares);
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int64_t u = t; u < n; u += NT) {
                for (int64_t k2 = 0; counted && k2 < n_shares; k2++)
                    dh[u] += through[k2 * n + u];
                for (int64_t g = 0; g < A->n_da; g++)
                    ((REAL *)A->da)[at * A->n_da + g * n + u] = da[g * n + u];
            }
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        for (int64_t u = t; u < n; u += NT) {
            if (A->dh0)
                R(put)(A->dh0, A->dtype, b * n + u, dh[u]);
            if (A->dc0)
                R(put)(A->dc0, A->dtype, b * n + u, dc[u]);
        }
    }
}

/* dx = da w^T */
KERNEL(R(wfc_rnn_dx), wfc_rnn)
{
    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < (int64_t)A->n_batch * A->n_time * A->n_in;
             at += GX * NT) {
            int64_t p = at / A->n_in, i = at % A->n_in;
            REAL sum = 0;

            for (int64_t j = 0; j < A->n_cols; j++)
                sum += ((const REAL *)A->da)[p * A->n_da * A->n_units + j] *
                       R(get)(A->w, A->dtype, i * A->n_cols + j);
            R(put)(A->dx, A->dtype, at, sum);
        }
    }
}

/* The gradient of row i, column j of w, r or (a row of ones) bias: the sum over batch and time of
 * what the weight was multiplied with times da. Row y of blocks: 0 w, 1 r, 2 bias. */
DEV REAL R(rnn_weight)(const struct wfc_rnn *A, int what, bool recurrent, int64_t i, int64_t j)
{
    int64_t n = A->n_units, part = j / n;
    bool through_q = false;
    REAL sum = 0;

    if (recurrent) {
        part = R(rnn_part)(A, j / n);
        through_q = part < 0;
        part = through_q ? j / n : part;
    }
    for (int64_t b = 0; b < A->n_batch; b++) {
        int64_t first = R(rnn_first)(A, b);

        for (int64_t k = first; k < A->n_time; k++) {
            int64_t time = R(rnn_time)(A, k), row = b * A->n_time + time;
            REAL f = 1;

            if (what == 0)
                f = R(get)(A->x, A->dtype, row * A->n_in + i);
            else if (what == 1)
                f = R(rnn_h)(A, first, b, k, i);
            if (what == 1 && through_q)
                f *= R(get)(A->gates, A->dtype, (time * A->n_batch + b) * 3 * n + n + i);
            sum += f * ((const REAL *)A->da)[(row * A->n_da + part) * n + j % n];
        }
    }
    return sum;
}

KERNEL(R(wfc_rnn_weights), wfc_rnn)
{
    int64_t n = A->n_cols, total = BY == 0   ? (int64_t)A->n_in * n
                                   : BY == 1 ? (int64_t)A->n_units * n
                                             : n * (A->reset_after ? 2 : 1);
    void *to = BY == 0 ? A->dw : BY == 1 ? A->dr : A->dbias;

    EACH_THREAD(t)
    {
        for (int64_t p = BX * NT + t; p < total && to; p += GX * NT)
            R(put)
        (to, A->dtype, p, R(rnn_weight)(A, (int)BY, BY == 1 || (BY == 2 && p >= n), p / n, p % n));
    }
}

/* The state before each step, [batch][time][units]: what the recurrent weights were multiplied
 * with. */
KERNEL(R(wfc_rnn_states), wfc_rnn)
{
    int64_t n = A->n_units;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < (int64_t)A->n_batch * A->n_time * n; at += GX * NT) {
            int64_t b = at / n / A->n_time, time = at / n % A->n_time;
            int64_t k = A->reverse ? A->n_time - 1 - time : time;

            ((REAL *)A->states)[at] = R(rnn_h)(A, R(rnn_first)(A, b), b, k, at % n);
        }
    }
}
