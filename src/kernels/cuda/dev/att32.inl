/* att32.inl - attention in f32 with heads of up to TILE_D: as flash.inl, but with multiply-adds of
 * f32. A block of 256 threads has 64 rows; thread 16 i + j has rows 4 i ... 4 i + 3, and columns j,
 * j + 16, … of the tile of 32 that passes by. */

enum { A32_ROWS = 64, A32_COLS = 32, A32_LD = TILE_D + 1, A32_P = A32_COLS + 1 };

/* Rows [first, first + n) of a view; what is not there is zero. */
DEV void a32_load(float *tile, int n, const struct wfc_att_view *v, int64_t b, int64_t h,
                  int64_t first, int64_t limit, int d, int t)
{
    const float *from = (const float *)v->data + v->at + b * v->sb + h * v->sh;

    for (int i = t; i < n * TILE_D; i += NT) {
        int r = i / TILE_D, c = i % TILE_D;

        tile[r * A32_LD + c] = first + r < limit && c < d ? from[(first + r) * v->st + c] : 0;
    }
}

/* s[2 r + c] = row 4 i + r of a times row j + 16 c of b. */
DEV void a32_dots(const float *a, const float *b, int d, int t, float *s)
{
    const float *x = a + t / 16 * 4 * A32_LD, *y = b + t % 16 * A32_LD;

    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        s[i] = 0;
    UNROLL4
    for (int e = 0; e < d; e++) {
        float y0 = y[e], y1 = y[16 * A32_LD + e];

        UNROLL_ALL
        for (int r = 0; r < 4; r++) {
            s[2 * r] = fmaf(x[r * A32_LD + e], y0, s[2 * r]);
            s[2 * r + 1] = fmaf(x[r * A32_LD + e], y1, s[2 * r + 1]);
        }
    }
}

/* o[4 r + c] += row 4 i + r of p times column j + 16 c of v. */
DEV void a32_add(const float *p, const float *v, int t, float *o)
{
    const float *x = p + t / 16 * 4 * A32_P;

    UNROLL4
    for (int k = 0; k < A32_COLS; k++)
        UNROLL_ALL
    for (int i = 0; i < 16; i++)
        o[i] = fmaf(x[i / 4 * A32_P + k], v[k * A32_LD + t % 16 + i % 4 * 16], o[i]);
}

DEV void a32_store(const struct wfc_att_view *v, int64_t b, int64_t h, int64_t first, int64_t limit,
                   int d, int t, const float *o, float f)
{
    float *to = (float *)v->data + v->at + b * v->sb + h * v->sh;

    UNROLL_ALL
    for (int i = 0; i < 16; i++) {
        int64_t r = first + t / 16 * 4 + i / 4;
        int c = t % 16 + i % 4 * 16;

        if (r < limit && c < d)
            to[r * v->st + c] = o[i] * f;
    }
}

KERNEL_OF(wfc_att32, wfc_att, 256)
{
    SHARED float qs[A32_ROWS * A32_LD], ks[A32_COLS * A32_LD], vs[A32_COLS * A32_LD];
    SHARED float ps[A32_ROWS * A32_P], less[A32_ROWS];
    KEEP(float, o, 16);
    KEEP(float, m, 4); /* of row t / 4: maximum so far, sum, those of a tile */
    int64_t n_bh = (int64_t)A->n_b * A->n_h, bh = BX % n_bh, b = bh / A->n_h, h = bh % A->n_h;
    int64_t i0 = BX / n_bh * A32_ROWS, end = A->n_k;

    if (A->causal && i0 + A32_ROWS < end)
        end = i0 + A32_ROWS;
    EACH_THREAD(t)
    {
        a32_load(qs, A32_ROWS, &A->q, b, h, i0, A->n_q, (int)A->d, t);
        for (int i = 0; i < 16; i++)
            KEPT(o, t)[i] = 0;
        KEPT(m, t)[0] = -huge_f();
        KEPT(m, t)[1] = 0;
    }
    for (int64_t j0 = 0; j0 < end; j0 += A32_COLS) {
        SYNC();
        EACH_THREAD(t)
        {
            a32_load(ks, A32_COLS, &A->k, b, h, j0, A->n_k, (int)A->d, t);
            a32_load(vs, A32_COLS, &A->v, b, h, j0, A->n_k, (int)A->dv, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            float s[8];

            a32_dots(qs, ks, (int)A->d, t, s);
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                int r = t / 16 * 4 + i / 2, c = t % 16 + i % 2 * 16;

                ps[r * A32_P + c] = j0 + c >= A->n_k || (A->causal && j0 + c > i0 + r)
                                        ? -huge_f()
                                        : s[i] * (float)A->scale;
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            float most = -huge_f();

            for (int i = t % 4; i < A32_COLS; i += 4)
                most = fmaxf(most, ps[t / 4 * A32_P + i]);
            KEPT(m, t)[2] = most;
        }
        QUAD_MAX(m, 2);
        EACH_THREAD(t)
        {
            float top = fmaxf(KEPT(m, t)[0], KEPT(m, t)[2]), sum = 0;
            float rate = exp_f(KEPT(m, t)[0] - top);

            for (int i = t % 4; i < A32_COLS; i += 4) {
                float p = exp_f(ps[t / 4 * A32_P + i] - top);

                ps[t / 4 * A32_P + i] = p;
                sum += p;
            }
            KEPT(m, t)[0] = top;
            KEPT(m, t)[1] *= rate;
            KEPT(m, t)[3] = sum;
            less[t / 4] = rate;
        }
        QUAD_SUM(m, 3);
        SYNC();
        EACH_THREAD(t)
        {
            KEPT(m, t)[1] += KEPT(m, t)[3];
            UNROLL_ALL
            for (int i = 0; i < 16; i++)
                KEPT(o, t)[i] *= less[t / 16 * 4 + i / 4];
            a32_add(ps, vs, t, KEPT(o, t));
        }
    }
    SYNC();
    EACH_THREAD(t)
    {
        if (t % 4 == 0) {
            less[t / 4] = 1 / KEPT(m, t)[1];
            if (i0 + t / 4 < A->n_q)
                ((float *)A->lse)[bh * A->n_q + i0 + t / 4] = KEPT(m, t)[0] + log_f(KEPT(m, t)[1]);
        }
    }
    SYNC();
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < 16; i++)
            KEPT(o, t)[i] *= less[t / 16 * 4 + i / 4];
        a32_store(&A->y, b, h, i0, A->n_q, (int)A->dv, t, KEPT(o, t), 1);
    }
}

/* dq of 64 queries; keys pass by. */
KERNEL_OF(wfc_att32_dq, wfc_att, 256)
{
    SHARED float xs[A32_ROWS * A32_LD], ks[A32_COLS * A32_LD];
    SHARED float ps[A32_ROWS * A32_P], delta[A32_ROWS], lse[A32_ROWS];
    KEEP(float, o, 16);
    KEEP(float, s, 8);
    KEEP(float, dp, 8);
    KEEP(float, e, 1);
    int64_t n_bh = (int64_t)A->n_b * A->n_h, bh = BX % n_bh, b = bh / A->n_h, h = bh % A->n_h;
    int64_t i0 = BX / n_bh * A32_ROWS, end = A->n_k;

    if (A->causal && i0 + A32_ROWS < end)
        end = i0 + A32_ROWS;
    EACH_THREAD(t)
    {
        int64_t row = i0 + t / 4;
        float sum = 0;

        for (int c = t % 4; row < A->n_q && c < (int)A->dv; c += 4)
            sum = fmaf(((const float *)A->dy.data)[att_at_f(&A->dy, b, h, row, c)],
                       ((const float *)A->y.data)[att_at_f(&A->y, b, h, row, c)], sum);
        KEPT(e, t)[0] = sum;
        for (int i = 0; i < 16; i++)
            KEPT(o, t)[i] = 0;
    }
    QUAD_SUM(e, 0);
    EACH_THREAD(t)
    {
        int64_t row = i0 + t / 4;

        if (t % 4 == 0) {
            delta[t / 4] = KEPT(e, t)[0];
            lse[t / 4] = row < A->n_q ? ((const float *)A->lse)[bh * A->n_q + row] : huge_f();
            if (row < A->n_q)
                A->delta[bh * A->n_q + row] = KEPT(e, t)[0];
        }
    }
    for (int64_t j0 = 0; j0 < end; j0 += A32_COLS) {
        SYNC();
        EACH_THREAD(t)
        {
            a32_load(xs, A32_ROWS, &A->dy, b, h, i0, A->n_q, (int)A->dv, t);
            a32_load(ks, A32_COLS, &A->v, b, h, j0, A->n_k, (int)A->dv, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_dots(xs, ks, (int)A->dv, t, KEPT(dp, t));
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_load(xs, A32_ROWS, &A->q, b, h, i0, A->n_q, (int)A->d, t);
            a32_load(ks, A32_COLS, &A->k, b, h, j0, A->n_k, (int)A->d, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_dots(xs, ks, (int)A->d, t, KEPT(s, t));
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                int r = t / 16 * 4 + i / 2, c = t % 16 + i % 2 * 16;
                float p = exp_f(KEPT(s, t)[i] * (float)A->scale - lse[r]);

                if (j0 + c >= A->n_k || (A->causal && j0 + c > i0 + r))
                    p = 0;
                ps[r * A32_P + c] = p * (KEPT(dp, t)[i] - delta[r]);
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_add(ps, ks, t, KEPT(o, t));
        }
    }
    EACH_THREAD(t)
    {
        a32_store(&A->dq, b, h, i0, A->n_q, (int)A->d, t, KEPT(o, t), (float)A->scale);
    }
}

/* dk and dv of 64 keys; queries pass by. */
KERNEL_OF(wfc_att32_dkv, wfc_att, 256)
{
    SHARED float xs[A32_ROWS * A32_LD], qs[A32_COLS * A32_LD];
    SHARED float ps[A32_ROWS * A32_P], delta[A32_COLS], lse[A32_COLS];
    KEEP(float, dk, 16);
    KEEP(float, dv, 16);
    KEEP(float, p, 8);
    int64_t n_bh = (int64_t)A->n_b * A->n_h, bh = BX % n_bh, b = bh / A->n_h, h = bh % A->n_h;
    int64_t j0 = BX / n_bh * A32_ROWS;

    EACH_THREAD(t)
    {
        for (int i = 0; i < 16; i++)
            KEPT(dk, t)[i] = KEPT(dv, t)[i] = 0;
    }
    for (int64_t i0 = A->causal ? j0 : 0; i0 < A->n_q; i0 += A32_COLS) {
        SYNC();
        EACH_THREAD(t)
        {
            a32_load(xs, A32_ROWS, &A->k, b, h, j0, A->n_k, (int)A->d, t);
            a32_load(qs, A32_COLS, &A->q, b, h, i0, A->n_q, (int)A->d, t);
            if (t < A32_COLS) {
                bool in = i0 + t < A->n_q;

                lse[t] = in ? ((const float *)A->lse)[bh * A->n_q + i0 + t] : huge_f();
                delta[t] = in ? A->delta[bh * A->n_q + i0 + t] : 0;
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_dots(xs, qs, (int)A->d, t, KEPT(p, t));
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                int r = t / 16 * 4 + i / 2, c = t % 16 + i % 2 * 16;
                float x = exp_f(KEPT(p, t)[i] * (float)A->scale - lse[c]);

                if (A->causal && j0 + r > i0 + c)
                    x = 0;
                KEPT(p, t)[i] = x;
                ps[r * A32_P + c] = x;
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_load(xs, A32_ROWS, &A->v, b, h, j0, A->n_k, (int)A->dv, t);
            a32_load(qs, A32_COLS, &A->dy, b, h, i0, A->n_q, (int)A->dv, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_add(ps, qs, t, KEPT(dv, t));
        }
        SYNC();
        EACH_THREAD(t)
        {
            float s[8];

            a32_dots(xs, qs, (int)A->dv, t, s);
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                int r = t / 16 * 4 + i / 2, c = t % 16 + i % 2 * 16;

                ps[r * A32_P + c] = KEPT(p, t)[i] * (s[i] - delta[c]);
            }
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_load(qs, A32_COLS, &A->q, b, h, i0, A->n_q, (int)A->d, t);
        }
        SYNC();
        EACH_THREAD(t)
        {
            a32_add(ps, qs, t, KEPT(dk, t));
        }
    }
    EACH_THREAD(t)
    {
        a32_store(&A->dk, b, h, j0, A->n_k, (int)A->d, t, KEPT(dk, t), (float)A->scale);
        a32_store(&A->dv_out, b, h, j0, A->n_k, (int)A->dv, t, KEPT(dv, t), 1);
    }
}
