/* lstm.inl - LSTM in f32 with at most LSTM_UNITS units: a block runs all steps of a row of the
 * batch in one launch. A thread has a column of the recurrent weights, the first LSTM_HELD of
 * them in registers; the others stay in the multiprocessor's cache. x w is a product before, the
 * gradients of the weights are products after. */

enum { LSTM_UNITS = WFC_LSTM_UNITS, LSTM_HELD = 64, LSTM_GATES = 4 * LSTM_UNITS };

/* sum over i in [0, n) of v[i] w[i]: the first LSTM_HELD from `held`, the others at more[i * step].
 * Four chains, whose order does not depend on anything else. */
DEV float lstm_dot(const float *v, const float *held, const float *more, int step, int n)
{
    float s[4] = {0, 0, 0, 0};

    UNROLL_ALL
    for (int i = 0; i < LSTM_HELD; i++)
        s[i & 3] = fmaf(v[i], held[i], s[i & 3]);
    if (n == LSTM_UNITS) {
        UNROLL_ALL
        for (int i = LSTM_HELD; i < LSTM_UNITS; i++)
            s[i & 3] = fmaf(v[i], more[i * step], s[i & 3]);
    } else {
        for (int i = LSTM_HELD; i < n; i++)
            s[i & 3] = fmaf(v[i], more[i * step], s[i & 3]);
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* A step that does not count: y repeats, the gates are zero, the cell is kept. */
DEV void lstm_skip(const struct wfc_rnn *A, int64_t b, int64_t time, int t, float y, float c)
{
    int64_t n = A->n_units;

    ((float *)A->gates)[(time * A->n_batch + b) * 4 * n + t] = 0;
    if (t < n) {
        ((float *)A->y)[(b * A->n_time + time) * n + t] = y;
        ((float *)A->cells)[(time * A->n_batch + b) * n + t] = c;
    }
}

KERNEL_OF(wfc_lstm, wfc_rnn, LSTM_GATES)
{
    SHARED float h[LSTM_UNITS], a[LSTM_GATES];
    KEEP(float, w, LSTM_HELD);
    KEEP(float, c, 1);
    int64_t b = BX, first;
    int n = (int)A->n_units;
    const float *r = (const float *)A->r;

    if (rnn_bad_length_f(A, b))
        return;
    first = rnn_first_f(A, b);
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < LSTM_HELD; i++)
            KEPT(w, t)[i] = t < 4 * n && i < n ? r[(int64_t)i * 4 * n + t] : 0;
        KEPT(c, t)[0] = 0;
        if (t < LSTM_UNITS)
            h[t] = t < n ? rnn_in_f(A, A->h0, b * n + t) : 0;
        if (t < n)
            KEPT(c, t)[0] = rnn_in_f(A, A->c0, b * n + t);
    }
    SYNC();
    for (int64_t k = 0; k < A->n_time; k++) {
        int64_t time = rnn_time_f(A, k), at = (time * A->n_batch + b) * n;

        if (!rnn_counts_f(A, b, time)) {
            EACH_THREAD(t)
            {
                if (t < 4 * n)
                    lstm_skip(A, b, time, t, k > first && t < n ? h[t] : 0, KEPT(c, t)[0]);
            }
            continue;
        }
        EACH_THREAD(t)
        {
            if (t < 4 * n) {
                float v = ((const float *)A->xw)[(b * A->n_time + time) * 4 * n + t] +
                          rnn_in_f(A, A->bias, t);

                v += lstm_dot(h, KEPT(w, t), r + t, 4 * n, n);
                v = t / n == 2 ? tanh_f(v) : rnn_sigmoid_f(v);
                a[t] = v;
                ((float *)A->gates)[at * 4 + t] = v;
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (t < n) {
                float v = a[n + t] * KEPT(c, t)[0] + a[t] * a[2 * n + t];

                KEPT(c, t)[0] = v;
                ((float *)A->cells)[at + t] = v;
                v = a[3 * n + t] * tanh_f(v);
                h[t] = v;
                ((float *)A->y)[(b * A->n_time + time) * n + t] = v;
            }
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        if (t < n) {
            ((float *)A->h)[b * n + t] = h[t];
            ((float *)A->c)[b * n + t] = KEPT(c, t)[0];
        }
    }
}

/* What the gradient of a step reads: the gates, the cell, dy. */
DEV void lstm_fetch(const struct wfc_rnn *A, int64_t b, int64_t k, int u, float *v)
{
    int64_t n = A->n_units, time = rnn_time_f(A, k), at = (time * A->n_batch + b) * n;

    for (int g = 0; g < 4; g++)
        v[g] = ((const float *)A->gates)[at * 4 + g * n + u];
    v[4] = ((const float *)A->cells)[at + u];
    v[5] = rnn_in_f(A, A->dy, (b * A->n_time + time) * n + u);
}

KERNEL_OF(wfc_lstm_back, wfc_rnn, LSTM_GATES)
{
    SHARED float da[LSTM_GATES], part[LSTM_GATES];
    KEEP(float, w, LSTM_HELD);
    KEEP(float, v, 6);
    KEEP(float, d, 2); /* dh, dc */
    int64_t b = BX, first;
    int n = (int)A->n_units, last = (int)A->n_time - 1;
    const float *rt = (const float *)A->rt;

    if (rnn_bad_length_f(A, b))
        return;
    first = rnn_first_f(A, b);
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < LSTM_HELD; i++) /* thread g n + u: of gate g, what unit u gave */
            KEPT(w, t)[i] = t < 4 * n && i < n ? rt[(int64_t)(t / n * n + i) * n + t % n] : 0;
        da[t] = 0;
        KEPT(d, t)[0] = t < n ? rnn_in_f(A, A->dh, b * n + t) : 0;
        KEPT(d, t)[1] = t < n ? rnn_in_f(A, A->dc, b * n + t) : 0;
        if (t < n && last >= 0)
            lstm_fetch(A, b, last, t, KEPT(v, t));
    }
    SYNC();
    for (int64_t k = last; k >= 0; k--) {
        int64_t time = rnn_time_f(A, k), at = (b * A->n_time + time) * n;
        bool counted = rnn_counts_f(A, b, time);

        EACH_THREAD(t)
        {
            if (t < n) {
                float *x = KEPT(v, t), *e = KEPT(d, t), c0, th, dcell;
                float i = x[0], f = x[1], g = x[2], o = x[3], cell = x[4];

                if (k >= first)
                    e[0] += x[5];
                if (k > 0)
                    lstm_fetch(A, b, k - 1, t, x);
                c0 = k > 0 ? x[4] : rnn_in_f(A, A->c0, b * n + t);
                th = tanh_f(cell);
                dcell = e[1] + e[0] * o * (1 - th * th);
                da[t] = counted ? dcell * g * i * (1 - i) : 0;
                da[n + t] = counted ? dcell * c0 * f * (1 - f) : 0;
                da[2 * n + t] = counted ? dcell * i * (1 - g * g) : 0;
                da[3 * n + t] = counted ? e[0] * th * o * (1 - o) : 0;
                if (counted) {
                    e[1] = dcell * f;
                    e[0] = 0;
                }
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (t < 4 * n) {
                int g = t / n;

                ((float *)A->da)[at * 4 + t] = da[t];
                part[t] = lstm_dot(da + g * n, KEPT(w, t), rt + (int64_t)g * n * n + t % n, n, n);
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (t < n && counted)
                KEPT(d, t)[0] += (part[t] + part[n + t]) + (part[2 * n + t] + part[3 * n + t]);
        }
    }
    EACH_THREAD(t)
    {
        if (t < n && A->dh0)
            ((float *)A->dh0)[b * n + t] = KEPT(d, t)[0];
        if (t < n && A->dc0)
            ((float *)A->dc0)[b * n + t] = KEPT(d, t)[1];
    }
}
