/* rows.inl - layer normalization and cross-entropy, a warp or a block for a row, 8 values at a time. */

/* ---- layer normalization: a warp for each row of at most 32 * 8 * LN_PIECES values ------------ */

enum { LN_PIECES = WFC_LN_WIDTH / 256 };

#ifdef __CUDACC__

#define WARP_SUM(v, i) ((v)[i] = warp_sum((v)[i]))

DEV float warp_sum(float v)
{
    for (int k = 16; k > 0; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

#else

#define WARP_SUM(v, i) warp_sum_all(&v[0][i], sizeof v[0] / 4)

DEV void warp_sum_all(float *v, size_t step)
{
    for (int w = 0; w < gpu_at.nt; w += 32)
        for (int k = 16; k > 0; k /= 2) {
            float now[32];

            for (int t = 0; t < 32; t++)
                now[t] = v[(size_t)(w + t) * step] + v[(size_t)(w + (t ^ k)) * step];
            for (int t = 0; t < 32; t++)
                v[(size_t)(w + t) * step] = now[t];
        }
}

#endif

KERNEL(wfc_ln, wfc_ln)
{
    KEEP(float, x, 8 * LN_PIECES);
    KEEP(float, s, 2);

    EACH_THREAD(t)
    {
        int64_t row = BX * (NT / 32) + t / 32;

        KEPT(s, t)[0] = KEPT(s, t)[1] = 0;
        UNROLL_ALL
        for (int i = 0; i < LN_PIECES; i++) {
            int c = (i * 32 + t % 32) * 8;
            float *v = KEPT(x, t) + 8 * i;

            for (int e = 0; e < 8; e++)
                v[e] = 0;
            if (row < A->n_rows && c < (int)A->width)
                get8(A->x, A->dtype, row * A->width + c, v);
            for (int e = 0; e < 8; e++)
                KEPT(s, t)[0] += v[e];
        }
    }
    WARP_SUM(s, 0);
    EACH_THREAD(t)
    {
        float mean = A->centered ? KEPT(s, t)[0] / (float)A->width : 0;

        KEPT(s, t)[0] = mean;
        UNROLL_ALL
        for (int i = 0; i < LN_PIECES; i++)
            for (int e = 0; e < 8 && (i * 32 + t % 32) * 8 < (int)A->width; e++) {
                float d = KEPT(x, t)[8 * i + e] - mean;

                KEPT(s, t)[1] = fmaf(d, d, KEPT(s, t)[1]);
            }
    }
    WARP_SUM(s, 1);
    EACH_THREAD(t)
    {
        int64_t row = BX * (NT / 32) + t / 32;
        float mean = KEPT(s, t)[0],
              rate = 1 / sqrtf(KEPT(s, t)[1] / (float)A->width + (float)A->epsilon);

        if (row < A->n_rows && t % 32 == 0) {
            if (A->centered)
                A->mean[row] = mean;
            A->rate[row] = rate;
        }
        UNROLL_ALL
        for (int i = 0; i < LN_PIECES; i++) {
            int c = (i * 32 + t % 32) * 8;
            float y[8], g[8], b[8];

            if (row >= A->n_rows || c >= (int)A->width)
                continue;
            for (int e = 0; e < 8; e++) {
                g[e] = 1;
                b[e] = 0;
            }
            if (A->gamma)
                get8(A->gamma, A->param_dtype, c, g);
            if (A->beta)
                get8(A->beta, A->param_dtype, c, b);
            for (int e = 0; e < 8; e++)
                y[e] = fmaf((KEPT(x, t)[8 * i + e] - mean) * rate, g[e], b[e]);
            put8(A->y, A->y_dtype, row * A->width + c, y);
        }
    }
}

/* 8 values of dx, to which `other` is added if there is something to add. */
DEV void ln_put(const struct wfc_ln *A, int64_t at, float *y, const struct raw8 *other)
{
    if (A->other) {
        float v[8];

        of_raw8(other, WFC_F32, v);
        UNROLL_ALL
        for (int e = 0; e < 8; e++)
            y[e] += v[e];
    }
    put8(A->y, A->y_dtype, at, y);
    if (A->rounded)
        put8(A->rounded, A->round_dtype, at, y);
}

/* dx of a block's rows, and the sums over them for the gradients of gamma and beta. */
KERNEL_OF(wfc_ln_back, wfc_ln, WFC_THREADS)
{
    SHARED float part[WFC_THREADS / 32][WFC_LN_WIDTH];
    KEEP(float, x, 8 * LN_PIECES);
    KEEP(float, d, 8 * LN_PIECES);
    KEEP(float, dg, 8 * LN_PIECES);
    KEEP(float, db, 8 * LN_PIECES);
    KEEP(float, s, 2);
    int64_t first = BX * A->chunk,
            last = first + A->chunk < A->n_rows ? first + A->chunk : A->n_rows;

    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < 8 * LN_PIECES; i++)
            KEPT(dg, t)[i] = KEPT(db, t)[i] = 0;
    }
    for (int64_t r0 = first; r0 < last; r0 += NT / 32) {
        EACH_THREAD(t)
        {
            int64_t row = r0 + t / 32;
            bool in = row < last;
            float mean = in && A->centered ? A->mean[row] : 0, rate = in ? A->rate[row] : 0;

            KEPT(s, t)[0] = KEPT(s, t)[1] = 0;
            UNROLL_ALL
            for (int i = 0; i < LN_PIECES; i++) {
                int c = (i * 32 + t % 32) * 8;
                float *v = KEPT(x, t) + 8 * i, *w = KEPT(d, t) + 8 * i, g[8];

                for (int e = 0; e < 8; e++) {
                    v[e] = w[e] = 0;
                    g[e] = 1;
                }
                if (!in || c >= (int)A->width)
                    continue;
                get8(A->x, A->dtype, row * A->width + c, v);
                get8(A->dy, A->dy_dtype, row * A->width + c, w);
                if (A->gamma)
                    get8(A->gamma, A->param_dtype, c, g);
                for (int e = 0; e < 8; e++) {
                    v[e] = (v[e] - mean) * rate;
                    KEPT(dg, t)[8 * i + e] = fmaf(w[e], v[e], KEPT(dg, t)[8 * i + e]);
                    KEPT(db, t)[8 * i + e] += w[e];
                    w[e] *= g[e];
                    KEPT(s, t)[0] += w[e];
                    KEPT(s, t)[1] = fmaf(w[e], v[e], KEPT(s, t)[1]);
                }
            }
        }
        WARP_SUM(s, 0);
        WARP_SUM(s, 1);
        EACH_THREAD(t)
        {
            int64_t row = r0 + t / 32;
            float m1 = A->centered ? KEPT(s, t)[0] / (float)A->width : 0,
                  m2 = KEPT(s, t)[1] / (float)A->width;

            UNROLL_ALL
            for (int i = 0; i < LN_PIECES; i++) {
                int c = (i * 32 + t % 32) * 8;
                struct raw8 other;
                float y[8];

                if (row >= last || c >= (int)A->width)
                    continue;
                if (A->other)
                    get_raw8(A->other, WFC_F32, row * A->width + c, &other);
                for (int e = 0; e < 8; e++)
                    y[e] = A->rate[row] * (KEPT(d, t)[8 * i + e] - m1 - KEPT(x, t)[8 * i + e] * m2);
                ln_put(A, row * A->width + c, y, &other);
            }
        }
    }
    for (int what = 0; what < 2; what++) { /* gamma, beta */
        SYNC();
        EACH_THREAD(t)
        {
            UNROLL_ALL
            for (int i = 0; i < 8 * LN_PIECES; i++)
                part[t / 32][(i / 8 * 32 + t % 32) * 8 + i % 8] =
                    what ? KEPT(db, t)[i] : KEPT(dg, t)[i];
        }
        SYNC();
        EACH_THREAD(t)
        {
            for (int c = t; c < (int)A->width; c += NT) {
                float sum = 0;

                for (int k = 0; k < WFC_THREADS / 32; k++)
                    sum += part[k][c];
                A->part[(BX * 2 + what) * A->width + c] = sum;
            }
        }
    }
}

enum { LN_BACK_ROWS = 4, LN_BACK_OTHERS = 2 };

/* The same for rows of more than 256 values: a thread has the same 8 of every row, LN_BACK_ROWS of
 * which are read at a time. */
KERNEL_ON(wfc_ln_back_wide, wfc_ln, WFC_LN_BACK_THREADS, 4)
{
    SHARED float part[2][WFC_LN_BACK_THREADS / 32][2 * LN_BACK_ROWS];
    KEEP(float, x, 8 * LN_BACK_ROWS);
    KEEP(float, d, 8 * LN_BACK_ROWS);
    KEEP(float, dg, 8);
    KEEP(float, db, 8);
    KEEP(float, g, 8);
    KEEP(float, s, 2 * LN_BACK_ROWS);
    int64_t first = BX * A->chunk,
            last = first + A->chunk < A->n_rows ? first + A->chunk : A->n_rows;
    int turn = 0;

    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int e = 0; e < 8; e++) {
            KEPT(dg, t)[e] = KEPT(db, t)[e] = 0;
            KEPT(g, t)[e] = 1;
        }
        if (A->gamma && t * 8 < (int)A->width)
            get8(A->gamma, A->param_dtype, t * 8, KEPT(g, t));
    }
    for (int64_t r0 = first; r0 < last; r0 += LN_BACK_ROWS) {
        EACH_THREAD(t)
        {
            bool in = t * 8 < (int)A->width;
            float mean[LN_BACK_ROWS], rate[LN_BACK_ROWS];

            UNROLL_ALL
            for (int k = 0; k < LN_BACK_ROWS; k++) {
                UNROLL_ALL
                for (int e = 0; e < 8; e++)
                    KEPT(x, t)[8 * k + e] = KEPT(d, t)[8 * k + e] = 0;
                mean[k] = rate[k] = 0;
                if (in && r0 + k < last) {
                    get8(A->x, A->dtype, (r0 + k) * A->width + t * 8, KEPT(x, t) + 8 * k);
                    get8(A->dy, A->dy_dtype, (r0 + k) * A->width + t * 8, KEPT(d, t) + 8 * k);
                    mean[k] = A->centered ? A->mean[r0 + k] : 0;
                    rate[k] = A->rate[r0 + k];
                }
            }
            UNROLL_ALL
            for (int k = 0; k < LN_BACK_ROWS; k++) {
                float *v = KEPT(x, t) + 8 * k, *w = KEPT(d, t) + 8 * k;
                float a = 0, b = 0;

                UNROLL_ALL
                for (int e = 0; e < 8; e++) {
                    v[e] = (v[e] - mean[k]) * rate[k];
                    KEPT(dg, t)[e] = fmaf(w[e], v[e], KEPT(dg, t)[e]);
                    KEPT(db, t)[e] += w[e];
                    w[e] *= KEPT(g, t)[e];
                    a += w[e];
                    b = fmaf(w[e], v[e], b);
                }
                KEPT(s, t)[2 * k] = a;
                KEPT(s, t)[2 * k + 1] = b;
            }
        }
        for (int i = 0; i < 2 * LN_BACK_ROWS; i++)
            WARP_SUM(s, i);
        EACH_THREAD(t)
        {
            UNROLL_ALL
            for (int i = 0; i < 2 * LN_BACK_ROWS; i++)
                if (t % 32 == 0)
                    part[turn][t / 32][i] = KEPT(s, t)[i];
        }
        SYNC(); /* two parts in turn, so that this is the only one */
        EACH_THREAD(t)
        {
            struct raw8 other[LN_BACK_OTHERS];

            UNROLL_ALL
            for (int k = 0; k < LN_BACK_ROWS; k++) {
                float m1 = 0, m2 = 0, rate, y[8];

                /* of a few rows at a time, before the first of them is written */
                UNROLL_ALL
                for (int j = 0; j < LN_BACK_OTHERS; j++)
                    if (A->other && k % LN_BACK_OTHERS == 0 && r0 + k + j < last &&
                        t * 8 < (int)A->width)
                        get_raw8(A->other, WFC_F32, (r0 + k + j) * A->width + t * 8, &other[j]);
                if (r0 + k >= last || t * 8 >= (int)A->width)
                    continue;
                UNROLL_ALL
                for (int w = 0; w < WFC_LN_BACK_THREADS / 32; w++) {
                    m1 += part[turn][w][2 * k];
                    m2 += part[turn][w][2 * k + 1];
                }
                m1 = A->centered ? m1 / (float)A->width : 0;
                m2 = m2 / (float)A->width;
                rate = A->rate[r0 + k];
                UNROLL_ALL
                for (int e = 0; e < 8; e++)
                    y[e] = rate * (KEPT(d, t)[8 * k + e] - m1 - KEPT(x, t)[8 * k + e] * m2);
                ln_put(A, (r0 + k) * A->width + t * 8, y, &other[k % LN_BACK_OTHERS]);
            }
        }
        turn = 1 - turn;
    }
    EACH_THREAD(t)
    {
        float *to = A->part + BX * 2 * A->width;

        if (t * 8 < (int)A->width) {
            put8(to, WFC_F32, t * 8, KEPT(dg, t));
            put8(to, WFC_F32, A->width + t * 8, KEPT(db, t));
        }
    }
}

KERNEL(wfc_ln_end, wfc_ln)
{
    SHARED double part[2][WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t c = BX * 8 + t % 8;
        double g = 0, b = 0;

        UNROLL
        for (int64_t k = t / 8; k < A->n_chunks; k += NT / 8) {
            g += A->part[k * 2 * A->width + c];
            b += A->part[(k * 2 + 1) * A->width + c];
        }
        part[0][t] = g;
        part[1][t] = b;
    }
    SYNC();
    EACH_THREAD(t)
    {
        int64_t c = BX * 8 + t;
        double g = 0, b = 0;

        for (int k = t; t < 8 && k < NT; k += 8) {
            g += part[0][k];
            b += part[1][k];
        }
        if (t < 8) {
            put_f32(A->dgamma, A->param_dtype, c, (float)g);
            if (A->dbeta)
                put_f32(A->dbeta, A->param_dtype, c, (float)b);
        }
    }
}

/* ---- cross-entropy of many classes: a block for each row, which is read twice, or once and kept in
 * shared memory ----------------------------------------------------------------------------------- */

enum { XENT_AHEAD = 4 };

/* e to the power of x; of halves by the instruction for powers of two. */
DEV float xent_exp(float x, int dtype)
{
    return dtype == WFC_F32 ? exp_f(x) : exp2_near(x * 1.44269504f);
}

/* The maximum m and the sum s of exp(x - m) over the values of a thread; keep: they are kept there,
 * or NULL. */
DEV void xent_read(const struct wfc_rows_args *A, int64_t at, int dtype, int t, void *keep,
                   float *m, float *s)
{
    uint32_t step = (uint32_t)NT * 8;

    for (uint32_t j0 = (uint32_t)t * 8; j0 < A->n; j0 += XENT_AHEAD * step) {
        struct raw8 raw[XENT_AHEAD];

        UNROLL_ALL
        for (uint32_t k = 0; k < XENT_AHEAD; k++)
            if (j0 + k * step < A->n)
                get_raw8(A->x, dtype, at + j0 + k * step, &raw[k]);
        UNROLL_ALL
        for (uint32_t k = 0; k < XENT_AHEAD; k++) {
            float x[8], top = *m, sum = 0;

            if (j0 + k * step >= A->n)
                continue;
            if (keep)
                put_raw8(keep, dtype, j0 + k * step, &raw[k]);
            of_raw8(&raw[k], dtype, x);
            UNROLL_ALL
            for (int e = 0; e < 8; e++)
                top = fmaxf(top, x[e]);
            UNROLL_ALL
            for (int e = 0; e < 8; e++)
                sum += x[e] == -huge_f() ? 0 : xent_exp(x[e] - top, dtype);
            *s = (*s > 0 ? *s * xent_exp(*m - top, dtype) : *s) + sum;
            *m = top;
        }
    }
}

/* x_row: the row, in memory or kept. */
DEV void xent_back(const struct wfc_rows_args *A, const void *x_row, int64_t at, int x_dtype,
                   int y_dtype, int t, int64_t label, bool skip, float lse)
{
    float scale = (float)A->scale;
    uint32_t step = (uint32_t)NT * 8;

    for (uint32_t j0 = (uint32_t)t * 8; j0 < A->n; j0 += XENT_AHEAD * step) {
        struct raw8 raw[XENT_AHEAD];

        UNROLL_ALL
        for (uint32_t k = 0; k < XENT_AHEAD; k++)
            if (j0 + k * step < A->n)
                get_raw8(x_row, x_dtype, j0 + k * step, &raw[k]);
        UNROLL_ALL
        for (uint32_t k = 0; k < XENT_AHEAD; k++) {
            uint32_t j = j0 + k * step;
            float x[8];

            if (j >= A->n)
                continue;
            of_raw8(&raw[k], x_dtype, x);
            UNROLL_ALL
            for (int e = 0; e < 8; e++)
                x[e] = skip ? 0
                            : scale * (xent_exp(x[e] - lse, x_dtype) -
                                       (j + (uint32_t)e == label ? 1.0f : 0.0f));
            put8(A->y, y_dtype, at + j, x);
        }
    }
}

KERNEL_ON(wfc_xent_wide, wfc_rows_args, WFC_XENT_THREADS, 2)
{
    SHARED float most[WFC_XENT_THREADS], sums[WFC_XENT_THREADS];
    DYNAMIC(held, WFC_XENT_KEPT);
    const bool kept = A->kept != 0;
    int64_t row = BX, at = BX * A->n;

    EACH_THREAD(t)
    {
        float m = -huge_f(), s = 0;

        if (A->x_dtype == WFC_F32)
            xent_read(A, at, WFC_F32, t, NULL, &m, &s);
        else if (A->x_dtype == WFC_BF16)
            xent_read(A, at, WFC_BF16, t, kept ? held : NULL, &m, &s);
        else
            xent_read(A, at, WFC_F16, t, kept ? held : NULL, &m, &s);
        most[t] = m;
        sums[t] = s;
    }
    SYNC();
    for (int half = NT / 2; half > 0; half /= 2) {
        EACH_THREAD(t)
        {
            if (t < half) {
                float a = most[t], b = most[t + half], m = fmaxf(a, b);
                float p = sums[t], q = sums[t + half];

                sums[t] = (p > 0 ? p * exp_f(a - m) : p) + (q > 0 ? q * exp_f(b - m) : q);
                most[t] = m;
            }
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        float log_sum = log_f(sums[0]), lse = most[0] + log_sum;
        int64_t label = get_int(A->b, A->b_dtype, row);
        bool skip = A->ignore && label == A->ignored;

        if (!skip && (label < 0 || label >= A->n)) {
            set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, label, A->n);
            label = 0;
        }
        if (t == 0)
            put_f32(A->loss, A->loss_dtype, row,
                    skip ? 0 : most[0] - get_f32(A->x, A->x_dtype, at + label) + log_sum);
        if (kept && A->x_dtype == WFC_BF16 && A->y_dtype == WFC_BF16)
            xent_back(A, held, at, WFC_BF16, WFC_BF16, t, label, skip, lse);
        else if (kept)
            xent_back(A, held, at, A->x_dtype == WFC_BF16 ? WFC_BF16 : WFC_F16, A->y_dtype, t, label,
                      skip, lse);
        else if (A->x_dtype == WFC_F32 && A->y_dtype == WFC_F32)
            xent_back(A, (const float *)A->x + at, at, WFC_F32, WFC_F32, t, label, skip, lse);
        else if (A->x_dtype == WFC_F32)
            xent_back(A, (const float *)A->x + at, at, WFC_F32, A->y_dtype, t, label, skip, lse);
        else
            xent_back(A, (const uint16_t *)A->x + at, at, A->x_dtype, A->y_dtype, t, label, skip,
                      lse);
    }
}
