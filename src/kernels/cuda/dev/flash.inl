/* flash.inl - attention of halves with heads of up to TILE_D: tiles of keys pass by, the softmax is
 * rescaled as its maximum grows, and the scores never leave the registers. The gradients compute
 * the scores again, once for dq and once for dk and dv, so that nothing is added by two blocks.
 * Included for each half type. */

/* Columns 2 c and 2 c + 1 of rows g and g + 8 of tile nt are s[4 nt] ... s[4 nt + 3]. */

DEV float H(half_at)(const uint16_t *p, int i)
{
    return H_BF16 ? bf16_get(p, i) : f16_get(p, i);
}

/* The sums of a row tile as operand a of the next product: 16 columns from tile 2 k on. */
DEV void H(fl_as_a)(const float *s, int k, uint32_t *a)
{
    for (int i = 0; i < 4; i++)
        a[i] = H(pack)(s[8 * k + i / 2 * 4 + i % 2 * 2], s[8 * k + i / 2 * 4 + i % 2 * 2 + 1]);
}

/* Writes 16 rows of sums, times f[0] and f[1] for rows g and g + 8. */
DEV void H(fl_store)(const struct wfc_att_view *v, int64_t b, int64_t h, int64_t row, int64_t limit,
                     int d, const float *s, float f0, float f1, int lane)
{
    uint16_t *to = (uint16_t *)v->data + v->at + b * v->sb + h * v->sh;
    bool even = ((v->at | v->sb | v->sh | v->st) & 1) == 0 && ((uintptr_t)v->data & 3) == 0;

    UNROLL_ALL
    for (int i = 0; i < 16; i++) { /* pairs */
        int64_t r = row + lane / 4 + i % 2 * 8;
        int c = i / 2 * 8 + lane % 4 * 2;
        float f = i % 2 ? f1 : f0;
        uint32_t w = H(pack)(s[i / 2 * 4 + i % 2 * 2] * f, s[i / 2 * 4 + i % 2 * 2 + 1] * f);

        if (r < limit && c + 1 < d && even) {
            *(uint32_t *)(void *)(to + r * v->st + c) = w;
        } else if (r < limit && c < d) {
            to[r * v->st + c] = (uint16_t)w;
            if (c + 1 < d)
                to[r * v->st + c + 1] = (uint16_t)(w >> 16);
        }
    }
}

/* The tiles of 64 keys and their values. */
DEV void H(fl_keys)(const struct wfc_att *A, uint16_t *to, int64_t b, int64_t h, int64_t j0, int t)
{
    tile_load(to, 64, &A->k, b, h, j0, A->n_k, (int)A->d, A->wide, t);
    tile_load(to + 64 * TILE_LD, 64, &A->v, b, h, j0, A->n_k, (int)A->dv, A->wide, t);
}

/* 128 queries a block, 32 a warp. */
KERNEL_OF(H(wfc_flash), wfc_att, 128)
{
    SHARED ALIGN16 uint16_t tiles[2][128 * TILE_LD]; /* keys, then values; at first the queries */
    KEEP(uint32_t, q, 32);
    KEEP(uint32_t, p, 32);
    KEEP(uint32_t, f, 4);
    KEEP(float, o, 64);
    KEEP(float, s, 64);
    KEEP(float, top, 4);
    KEEP(float, mx, 4);
    KEEP(float, sum, 4);
    int64_t n_bh = (int64_t)A->n_b * A->n_h, bh = BX % n_bh, b = bh / A->n_h, h = bh % A->n_h;
    int64_t i0 = ((A->n_q + 127) / 128 - 1 - BX / n_bh) * 128, end = A->n_k;
    float scale = (float)(A->scale * 1.4426950408889634);

    if (A->causal && i0 + 128 < end)
        end = i0 + 128;
    EACH_THREAD(t)
    {
        tile_load(tiles[1], 128, &A->q, b, h, i0, A->n_q, (int)A->d, A->wide, t);
        H(fl_keys)(A, tiles[0], b, h, 0, t);
        tiles_wait();
        UNROLL_ALL
        for (int i = 0; i < 64; i++)
            KEPT(o, t)[i] = 0;
        for (int i = 0; i < 4; i++) {
            KEPT(top, t)[i] = -huge_f();
            KEPT(sum, t)[i] = 0;
        }
    }
    SYNC();
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < 8; i++)
            tile_a(tiles[1], t / 32 * 32 + i / 4 * 16, i % 4 * 16, t % 32, KEPT(q, t) + 4 * i);
    }
    for (int64_t j0 = 0; j0 < end; j0 += 64) {
        const uint16_t *ks = tiles[j0 / 64 % 2], *vs = ks + 64 * TILE_LD;

        EACH_THREAD(t)
        {
            tiles_wait();
            UNROLL_ALL
            for (int i = 0; i < 64; i++)
                KEPT(s, t)[i] = 0;
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (j0 + 64 < end) /* the other tile is not read any more */
                H(fl_keys)(A, tiles[(j0 / 64 + 1) % 2], b, h, j0 + 64, t);
        }
        UNROLL_ALL
        for (int i = 0; i < 16; i++) { /* 16 of d, 16 keys */
            EACH_THREAD(t)
            {
                tile_b(ks, i % 4 * 16, i / 4 * 16, t % 32, KEPT(f, t));
            }
            UNROLL_ALL
            for (int m = 0; m < 2; m++) {
                MMA(s, (m * 8 + i % 4 * 2) * 4, q, (m * 4 + i / 4) * 4, f, 0);
                MMA(s, (m * 8 + i % 4 * 2 + 1) * 4, q, (m * 4 + i / 4) * 4, f, 2);
            }
        }
        EACH_THREAD(t)
        {
            bool edge = j0 + 64 > A->n_k || (A->causal && j0 + 63 > i0);

            UNROLL_ALL
            for (int r = 0; r < 4; r++) { /* rows of this thread */
                float most = -huge_f();

                UNROLL_ALL
                for (int i = 0; i < 16; i++) {
                    int at = r / 2 * 32 + i / 2 * 4 + r % 2 * 2 + i % 2;
                    float x = KEPT(s, t)[at] * scale;

                    if (edge) {
                        int64_t col = j0 + i / 2 * 8 + t % 4 * 2 + i % 2,
                                row = i0 + t / 32 * 32 + r * 8 + t % 32 / 4;

                        if (col >= A->n_k || (A->causal && col > row))
                            x = -huge_f();
                    }
                    KEPT(s, t)[at] = x;
                    most = fmaxf(most, x);
                }
                KEPT(mx, t)[r] = most;
            }
        }
        UNROLL_ALL
        for (int r = 0; r < 4; r++)
            QUAD_MAX(mx, r);
        EACH_THREAD(t)
        {
            UNROLL_ALL
            for (int r = 0; r < 4; r++) {
                float top1 = fmaxf(KEPT(top, t)[r], KEPT(mx, t)[r]), part = 0;
                float less = exp2_near(KEPT(top, t)[r] - top1);

                UNROLL_ALL
                for (int i = 0; i < 16; i++) {
                    int at = r / 2 * 32 + i / 2 * 4 + r % 2 * 2 + i % 2;
                    float x = exp2_near(KEPT(s, t)[at] - top1);

                    KEPT(s, t)[at] = x;
                    part += x;
                    KEPT(o, t)[at] *= less;
                }
                KEPT(top, t)[r] = top1;
                KEPT(sum, t)[r] = KEPT(sum, t)[r] * less + part;
            }
            UNROLL_ALL
            for (int i = 0; i < 8; i++)
                H(fl_as_a)(KEPT(s, t) + i / 4 * 32, i % 4, KEPT(p, t) + 4 * i);
        }
        UNROLL_ALL
        for (int i = 0; i < 16; i++) { /* 16 keys, 16 of dv */
            EACH_THREAD(t)
            {
                tile_bt(vs, i / 4 * 16, i % 4 * 16, t % 32, KEPT(f, t));
            }
            UNROLL_ALL
            for (int m = 0; m < 2; m++) {
                MMA(o, (m * 8 + i % 4 * 2) * 4, p, (m * 4 + i / 4) * 4, f, 0);
                MMA(o, (m * 8 + i % 4 * 2 + 1) * 4, p, (m * 4 + i / 4) * 4, f, 2);
            }
        }
    }
    UNROLL_ALL
    for (int r = 0; r < 4; r++)
        QUAD_SUM(sum, r);
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int m = 0; m < 2; m++)
            H(fl_store)
        (&A->y, b, h, i0 + t / 32 * 32 + m * 16, A->n_q, (int)A->dv, KEPT(o, t) + 32 * m,
         1 / KEPT(sum, t)[2 * m], 1 / KEPT(sum, t)[2 * m + 1], t % 32);
        for (int r = 0; r < 4 && t % 4 == 0; r++) {
            int64_t row = i0 + t / 32 * 32 + r * 8 + t % 32 / 4;

            if (row < A->n_q)
                ((float *)A->lse)[bh * A->n_q + row] =
                    (KEPT(top, t)[r] + log2f(KEPT(sum, t)[r])) * 0.69314718f;
        }
    }
}

/* dq of 64 queries, and delta = dy y of each, which the next kernel reads. */
KERNEL_ON(H(wfc_flash_dq), wfc_att, 128, 3)
{
    SHARED ALIGN16 uint16_t tiles[2][128 * TILE_LD]; /* keys, then values; at first q, dy and y */
    SHARED float part[128], delta[64], lse[64];
    KEEP(uint32_t, q, 16);
    KEEP(uint32_t, dy, 16);
    KEEP(uint32_t, p, 16);
    KEEP(uint32_t, f, 4);
    KEEP(float, o, 32);
    KEEP(float, s, 32);
    KEEP(float, dp, 32);
    int64_t n_bh = (int64_t)A->n_b * A->n_h, bh = BX % n_bh, b = bh / A->n_h, h = bh % A->n_h;
    int64_t i0 = ((A->n_q + 63) / 64 - 1 - BX / n_bh) * 64, end = A->n_k;
    float scale = (float)(A->scale * 1.4426950408889634);

    if (A->causal && i0 + 64 < end)
        end = i0 + 64;
    EACH_THREAD(t)
    {
        tile_load(tiles[1], 64, &A->q, b, h, i0, A->n_q, (int)A->d, A->wide, t);
        tile_load(tiles[1] + 64 * TILE_LD, 64, &A->dy, b, h, i0, A->n_q, (int)A->dv, A->wide, t);
        tile_load(tiles[0], 64, &A->y, b, h, i0, A->n_q, (int)A->dv, A->wide, t);
        tiles_wait();
        if (t < 64)
            lse[t] = i0 + t < A->n_q ? ((const float *)A->lse)[bh * A->n_q + i0 + t] * 1.44269504f
                                     : huge_f();
        UNROLL_ALL
        for (int i = 0; i < 32; i++)
            KEPT(o, t)[i] = 0;
    }
    SYNC();
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < 4; i++) {
            tile_a(tiles[1], t / 32 * 16, i * 16, t % 32, KEPT(q, t) + 4 * i);
            tile_a(tiles[1] + 64 * TILE_LD, t / 32 * 16, i * 16, t % 32, KEPT(dy, t) + 4 * i);
        }
    }
    EACH_THREAD(t)
    {
        float sum = 0;

        for (int i = t % 2 * 32; i < t % 2 * 32 + 32; i++)
            sum = fmaf(H(half_at)(tiles[0], t / 2 * TILE_LD + i),
                       H(half_at)(tiles[1], (64 + t / 2) * TILE_LD + i), sum);
        part[t] = sum;
    }
    SYNC();
    EACH_THREAD(t)
    {
        if (t < 64) {
            delta[t] = part[2 * t] + part[2 * t + 1];
            if (i0 + t < A->n_q)
                A->delta[bh * A->n_q + i0 + t] = delta[t];
        }
        H(fl_keys)(A, tiles[0], b, h, 0, t);
    }
    for (int64_t j0 = 0; j0 < end; j0 += 64) {
        const uint16_t *ks = tiles[j0 / 64 % 2], *vs = ks + 64 * TILE_LD;

        EACH_THREAD(t)
        {
            tiles_wait();
            UNROLL_ALL
            for (int i = 0; i < 32; i++)
                KEPT(s, t)[i] = KEPT(dp, t)[i] = 0;
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (j0 + 64 < end)
                H(fl_keys)(A, tiles[(j0 / 64 + 1) % 2], b, h, j0 + 64, t);
        }
        UNROLL_ALL
        for (int i = 0; i < 16; i++) {
            EACH_THREAD(t)
            {
                tile_b(ks, i % 4 * 16, i / 4 * 16, t % 32, KEPT(f, t));
            }
            MMA(s, i % 4 * 8, q, i / 4 * 4, f, 0);
            MMA(s, i % 4 * 8 + 4, q, i / 4 * 4, f, 2);
            EACH_THREAD(t)
            {
                tile_b(vs, i % 4 * 16, i / 4 * 16, t % 32, KEPT(f, t));
            }
            MMA(dp, i % 4 * 8, dy, i / 4 * 4, f, 0);
            MMA(dp, i % 4 * 8 + 4, dy, i / 4 * 4, f, 2);
        }
        EACH_THREAD(t)
        {
            bool edge = j0 + 64 > A->n_k || (A->causal && j0 + 63 > i0);

            UNROLL_ALL
            for (int i = 0; i < 32; i++) {
                int row = t / 32 * 16 + i / 2 % 2 * 8 + t % 32 / 4;
                int64_t col = j0 + i / 4 * 8 + t % 4 * 2 + i % 2;
                float x = exp2_near(fmaf(KEPT(s, t)[i], scale, -lse[row]));

                if (edge && (col >= A->n_k || (A->causal && col > i0 + row)))
                    x = 0;
                KEPT(s, t)[i] = x * (KEPT(dp, t)[i] - delta[row]);
            }
            UNROLL_ALL
            for (int i = 0; i < 4; i++)
                H(fl_as_a)(KEPT(s, t), i, KEPT(p, t) + 4 * i);
        }
        UNROLL_ALL
        for (int i = 0; i < 16; i++) {
            EACH_THREAD(t)
            {
                tile_bt(ks, i / 4 * 16, i % 4 * 16, t % 32, KEPT(f, t));
            }
            MMA(o, i % 4 * 8, p, i / 4 * 4, f, 0);
            MMA(o, i % 4 * 8 + 4, p, i / 4 * 4, f, 2);
        }
    }
    EACH_THREAD(t)
    {
        H(fl_store)
        (&A->dq, b, h, i0 + t / 32 * 16, A->n_q, (int)A->d, KEPT(o, t), (float)A->scale,
         (float)A->scale, t % 32);
    }
}

/* The tiles of 64 queries and their dy, and the numbers of their rows. */
DEV void H(fl_queries)(const struct wfc_att *A, uint16_t *to, float *rows, int64_t b, int64_t h,
                       int64_t i0, int t)
{
    tile_load(to, 64, &A->q, b, h, i0, A->n_q, (int)A->d, A->wide, t);
    tile_load(to + 64 * TILE_LD, 64, &A->dy, b, h, i0, A->n_q, (int)A->dv, A->wide, t);
    if (t < 64) {
        int64_t at = (b * A->n_h + h) * A->n_q + i0 + t;
        bool in = i0 + t < A->n_q;

        rows[t] = in ? ((const float *)A->lse)[at] * 1.44269504f : huge_f();
        rows[64 + t] = in ? A->delta[at] : 0;
    }
}

/* dk and dv of 64 keys; queries pass by, 32 columns of scores at a time. */
KERNEL_ON(H(wfc_flash_dkv), wfc_att, 128, 3)
{
    SHARED ALIGN16 uint16_t tiles[2][128 * TILE_LD]; /* queries, then dy; at first k and v */
    SHARED float rows[2][128];                       /* lse and delta of the queries */
    KEEP(uint32_t, k, 16);
    KEEP(uint32_t, v, 16);
    KEEP(uint32_t, p, 8);
    KEEP(uint32_t, f, 4);
    KEEP(float, dk, 32);
    KEEP(float, dv, 32);
    KEEP(float, s, 16);
    KEEP(float, dp, 16);
    int64_t n_bh = (int64_t)A->n_b * A->n_h, bh = BX % n_bh, b = bh / A->n_h, h = bh % A->n_h;
    int64_t j0 = BX / n_bh * 64, from = A->causal ? j0 : 0;
    float scale = (float)(A->scale * 1.4426950408889634);

    EACH_THREAD(t)
    {
        H(fl_keys)(A, tiles[1], b, h, j0, t);
        H(fl_queries)(A, tiles[0], rows[0], b, h, from, t);
        tiles_wait();
        UNROLL_ALL
        for (int i = 0; i < 32; i++)
            KEPT(dk, t)[i] = KEPT(dv, t)[i] = 0;
    }
    SYNC();
    EACH_THREAD(t)
    {
        UNROLL_ALL
        for (int i = 0; i < 4; i++) {
            tile_a(tiles[1], t / 32 * 16, i * 16, t % 32, KEPT(k, t) + 4 * i);
            tile_a(tiles[1] + 64 * TILE_LD, t / 32 * 16, i * 16, t % 32, KEPT(v, t) + 4 * i);
        }
    }
    for (int64_t i0 = from; i0 < A->n_q; i0 += 64) {
        int now = (int)((i0 - from) / 64 % 2);
        const uint16_t *qs = tiles[now], *ys = qs + 64 * TILE_LD;
        const float *lse = rows[now], *delta = lse + 64;

        EACH_THREAD(t)
        {
            tiles_wait();
        }
        SYNC();
        EACH_THREAD(t)
        {
            if (i0 + 64 < A->n_q)
                H(fl_queries)(A, tiles[1 - now], rows[1 - now], b, h, i0 + 64, t);
        }
        for (int c0 = 0; c0 < 64; c0 += 32) {
            EACH_THREAD(t)
            {
                UNROLL_ALL
                for (int i = 0; i < 16; i++)
                    KEPT(s, t)[i] = KEPT(dp, t)[i] = 0;
            }
            UNROLL_ALL
            for (int i = 0; i < 8; i++) { /* 16 of d, 16 queries */
                EACH_THREAD(t)
                {
                    tile_b(qs, c0 + i % 2 * 16, i / 2 * 16, t % 32, KEPT(f, t));
                }
                MMA(s, i % 2 * 8, k, i / 2 * 4, f, 0);
                MMA(s, i % 2 * 8 + 4, k, i / 2 * 4, f, 2);
                EACH_THREAD(t)
                {
                    tile_b(ys, c0 + i % 2 * 16, i / 2 * 16, t % 32, KEPT(f, t));
                }
                MMA(dp, i % 2 * 8, v, i / 2 * 4, f, 0);
                MMA(dp, i % 2 * 8 + 4, v, i / 2 * 4, f, 2);
            }
            EACH_THREAD(t)
            {
                bool edge = A->causal && i0 < j0 + 64;

                UNROLL_ALL
                for (int i = 0; i < 16; i++) {
                    int row = t / 32 * 16 + i / 2 % 2 * 8 + t % 32 / 4;
                    int col = c0 + i / 4 * 8 + t % 4 * 2 + i % 2;
                    float x = exp2_near(fmaf(KEPT(s, t)[i], scale, -lse[col]));

                    if (edge && j0 + row > i0 + col)
                        x = 0;
                    KEPT(s, t)[i] = x;
                    KEPT(dp, t)[i] = x * (KEPT(dp, t)[i] - delta[col]);
                }
                UNROLL_ALL
                for (int i = 0; i < 2; i++)
                    H(fl_as_a)(KEPT(s, t), i, KEPT(p, t) + 4 * i);
            }
            UNROLL_ALL
            for (int i = 0; i < 8; i++) { /* 16 queries, 16 of dv */
                EACH_THREAD(t)
                {
                    tile_bt(ys, c0 + i / 4 * 16, i % 4 * 16, t % 32, KEPT(f, t));
                }
                MMA(dv, i % 4 * 8, p, i / 4 * 4, f, 0);
                MMA(dv, i % 4 * 8 + 4, p, i / 4 * 4, f, 2);
            }
            EACH_THREAD(t)
            {
                UNROLL_ALL
                for (int i = 0; i < 2; i++)
                    H(fl_as_a)(KEPT(dp, t), i, KEPT(p, t) + 4 * i);
            }
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                EACH_THREAD(t)
                {
                    tile_bt(qs, c0 + i / 4 * 16, i % 4 * 16, t % 32, KEPT(f, t));
                }
                MMA(dk, i % 4 * 8, p, i / 4 * 4, f, 0);
                MMA(dk, i % 4 * 8 + 4, p, i / 4 * 4, f, 2);
            }
        }
    }
    EACH_THREAD(t)
    {
        H(fl_store)
        (&A->dk, b, h, j0 + t / 32 * 16, A->n_k, (int)A->d, KEPT(dk, t), (float)A->scale,
         (float)A->scale, t % 32);
        H(fl_store)
        (&A->dv_out, b, h, j0 + t / 32 * 16, A->n_k, (int)A->dv, KEPT(dv, t), 1, 1, t % 32);
    }
}
