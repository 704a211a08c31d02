/* wide.inl - batch normalization and sums of columns of f32 and halves in pieces of 8 channels (16 or
 * 32 bytes): channels last, their number a multiple of 8. All sums are in f32. */

#ifdef __CUDACC__

DEV void get8(const void *p, int dtype, int64_t at, float *v)
{
    if (dtype == WFC_F32) {
        float4 a = *(const float4 *)((const float *)p + at),
               b = *(const float4 *)((const float *)p + at + 4);

        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        uint4 w = *(const uint4 *)((const uint16_t *)p + at);
        uint32_t u[4] = {w.x, w.y, w.z, w.w};

        for (int i = 0; i < 4; i++)
            if (dtype == WFC_BF16) {
                v[2 * i] = __uint_as_float(u[i] << 16);
                v[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
            } else {
                v[2 * i] = f16_get(&u[i], 0);
                v[2 * i + 1] = f16_get(&u[i], 1);
            }
    }
}

DEV void put8(void *p, int dtype, int64_t at, const float *v)
{
    if (dtype == WFC_F32) {
        *(float4 *)((float *)p + at) = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)((float *)p + at + 4) = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        uint32_t u[4];

        for (int i = 0; i < 4; i++)
            u[i] = dtype == WFC_BF16 ? pack_bf16(v[2 * i], v[2 * i + 1])
                                     : pack_f16(v[2 * i], v[2 * i + 1]);
        *(uint4 *)((uint16_t *)p + at) = make_uint4(u[0], u[1], u[2], u[3]);
    }
}

DEV uint64_t bytes8(const void *p, int64_t at)
{
    return *(const uint64_t *)((const uint8_t *)p + at);
}

DEV void put_bytes8(void *p, int64_t at, uint64_t v)
{
    *(uint64_t *)((uint8_t *)p + at) = v;
}

/* 8 values as they are in memory: many of them can be on their way at the same time. */
struct raw8 {
    uint4 w[2];
};

DEV void get_raw8(const void *p, int dtype, int64_t at, struct raw8 *r)
{
    if (dtype == WFC_F32) {
        r->w[0] = *(const uint4 *)((const float *)p + at);
        r->w[1] = *(const uint4 *)((const float *)p + at + 4);
    } else {
        r->w[0] = *(const uint4 *)((const uint16_t *)p + at);
    }
}

DEV void of_raw8(const struct raw8 *r, int dtype, float *v)
{
    get8(r->w, dtype, 0, v);
}

DEV void put_raw8(void *p, int dtype, int64_t at, const struct raw8 *r)
{
    if (dtype == WFC_F32) {
        *(uint4 *)((float *)p + at) = r->w[0];
        *(uint4 *)((float *)p + at + 4) = r->w[1];
    } else {
        *(uint4 *)((uint16_t *)p + at) = r->w[0];
    }
}

#else

DEV void get8(const void *p, int dtype, int64_t at, float *v)
{
    for (int i = 0; i < 8; i++)
        v[i] = get_f32(p, dtype, at + i);
}

DEV void put8(void *p, int dtype, int64_t at, const float *v)
{
    for (int i = 0; i < 8; i++)
        put_f32(p, dtype, at + i, v[i]);
}

DEV uint64_t bytes8(const void *p, int64_t at)
{
    uint64_t v;

    memcpy(&v, (const uint8_t *)p + at, sizeof v);
    return v;
}

DEV void put_bytes8(void *p, int64_t at, uint64_t v)
{
    memcpy((uint8_t *)p + at, &v, sizeof v);
}

struct raw8 {
    float v[8];
};

DEV void get_raw8(const void *p, int dtype, int64_t at, struct raw8 *r)
{
    get8(p, dtype, at, r->v);
}

DEV void of_raw8(const struct raw8 *r, int dtype, float *v)
{
    (void)dtype;
    memcpy(v, r->v, sizeof r->v);
}

DEV void put_raw8(void *p, int dtype, int64_t at, const struct raw8 *r)
{
    put8(p, dtype, at, r->v);
}

#endif

/* ---- batch normalization ---------------------------------------------------------------------
 * A block has A->cols pieces of channels; its threads are NT / cols rows of cols pieces. The rows
 * are cut into tiles, and the blocks above each other (BY) take them in turn, so that all of them
 * read neighbors at the same time. The sums go from the last tile to the first and begin with what
 * the kernel before them wrote last; what is applied goes from the first to the last and begins
 * with what the sums read last: both are still in the cache. */

struct bn_place {
    int64_t c, row, step; /* a channel; this thread's row in a tile; rows to its next one */
};

DEV struct bn_place bn_place(const struct wfc_bn *A, int t)
{
    return (struct bn_place){(BX * A->cols + t % A->cols) * 8, t / A->cols, NT / A->cols};
}

DEV float bn_rate(const struct wfc_bn *A, int64_t c)
{
    float g = A->gamma ? get_f32(A->gamma, A->param_dtype, c) : 1;

    return (float)(g / sqrt((double)A->var[c] + A->epsilon));
}

/* The rates of a block's channels, each computed by one thread: at most WFC_THREADS. */
DEV void bn_rates(const struct wfc_bn *A, int t, float *rates)
{
    int64_t c = BX * A->cols * 8 + t;

    rates[t] = t < A->cols * 8 && c < A->channels ? bn_rate(A, c) : 0;
}

/* 8 values of a parameter, or zeros. */
DEV void bn_param(const struct wfc_bn *A, const void *p, int64_t c, float *v)
{
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        v[i] = 0;
    if (p)
        get8(p, A->param_dtype, c, v);
}

enum { BN_SUMS_AHEAD = 8 };

/* Sums over the rows of a thread: of x - k and its square, or (of the gradient) of dy and
 * dy (x - mean). k is the first row: sums of squares of what is small lose little. After a ReLU dy
 * counts where the normalized value, computed as it was forward, is above 0. dtype, grad and relu
 * are constants where this is called, so that the loop has no branches. */
DEV void bn_sums_of(const struct wfc_bn *A, const struct bn_place *p, const float *rates, int dtype,
                    bool grad, bool relu, float *s, float *q)
{
    /* rows that are on their way to a thread at the same time */
    const int ahead = (dtype == WFC_F32 ? BN_SUMS_AHEAD / 2 : BN_SUMS_AHEAD) / (grad ? 2 : 1);
    const int64_t tile = ahead * p->step, n_tiles = (A->n_rows + tile - 1) / tile;
    float k[8], rate[8], beta[8];

    get8(grad ? A->mean : A->x, grad ? WFC_F32 : dtype, p->c, k);
    bn_param(A, relu ? A->beta : 0, p->c, beta);
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        rate[i] = rates[i];
    for (int64_t g = n_tiles - 1 - BY; g >= 0; g -= GY) {
        int64_t r0 = g * tile + p->row;
        struct raw8 rx[BN_SUMS_AHEAD], rd[BN_SUMS_AHEAD];

        UNROLL_ALL
        for (int j = 0; j < ahead; j++) {
            int64_t r = r0 + j * p->step;

            if (r < A->n_rows) {
                get_raw8(A->x, dtype, r * A->channels + p->c, &rx[j]);
                if (grad)
                    get_raw8(A->dy, dtype, r * A->channels + p->c, &rd[j]);
            }
        }
        UNROLL_ALL
        for (int j = 0; j < ahead; j++) {
            float x[8], d[8];

            if (r0 + j * p->step >= A->n_rows)
                continue;
            of_raw8(&rx[j], dtype, x);
            if (grad)
                of_raw8(&rd[j], dtype, d);
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                float z = x[i] - k[i], w = grad ? d[i] : z;

                if (relu)
                    w = fmaf(z, rate[i], beta[i]) > 0 ? w : 0;
                s[i] += w;
                q[i] = fmaf(w, z, q[i]);
            }
        }
    }
}

/* The parts of the blocks of a column. */
KERNEL_ON(wfc_bn_sums, wfc_bn, WFC_THREADS, 2)
{
    SHARED float part[16][WFC_THREADS];
    SHARED float rates[WFC_THREADS];

    if (A->dy && A->relu) {
        EACH_THREAD(t)
        {
            bn_rates(A, t, rates);
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        struct bn_place p = bn_place(A, t);
        const float *r = rates + t % A->cols * 8;
        float s[8], q[8];

        for (int i = 0; i < 8; i++)
            s[i] = q[i] = 0;
        if (p.c >= A->channels)
            ;
        else if (A->dtype == WFC_BF16 && A->dy && A->relu)
            bn_sums_of(A, &p, r, WFC_BF16, true, true, s, q);
        else if (A->dtype == WFC_BF16 && A->dy)
            bn_sums_of(A, &p, r, WFC_BF16, true, false, s, q);
        else if (A->dtype == WFC_BF16)
            bn_sums_of(A, &p, r, WFC_BF16, false, false, s, q);
        else if (A->dtype == WFC_F32)
            bn_sums_of(A, &p, r, WFC_F32, A->dy != 0, A->dy && A->relu, s, q);
        else
            bn_sums_of(A, &p, r, WFC_F16, A->dy != 0, A->dy && A->relu, s, q);
        for (int i = 0; i < 8; i++) {
            part[i][t] = s[i];
            part[8 + i][t] = q[i];
        }
    }
    SYNC();
    EACH_THREAD(t)
    {
        for (int i = t; i < 16 * A->cols; i += NT) {
            int col = i % A->cols, v = i / A->cols;
            int64_t c = (BX * A->cols + col) * 8 + v % 8;
            float sum = 0;

            for (int r = col; r < NT; r += A->cols)
                sum += part[v][r];
            if (c < A->channels)
                A->part[(BY * 2 + v / 8) * A->channels + c] = sum;
        }
    }
}

/* 8 channels a block: the parts are added by 32 threads each. */
KERNEL(wfc_bn_end, wfc_bn)
{
    SHARED double part[2][WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t c = BX * 8 + t % 8;
        double s = 0, q = 0;

        UNROLL
        for (int64_t k = t / 8; k < A->n_chunks; k += NT / 8) {
            s += A->part[k * 2 * A->channels + c];
            q += A->part[(k * 2 + 1) * A->channels + c];
        }
        part[0][t] = s;
        part[1][t] = q;
    }
    SYNC();
    EACH_THREAD(t)
    {
        int64_t c = BX * 8 + t;
        double n = A->n_rows, s = 0, q = 0;

        for (int k = t; t < 8 && k < NT; k += 8) {
            s += part[0][k];
            q += part[1][k];
        }
        if (t < 8 && !A->dy) {
            double d = s / n, var = q / n - d * d;

            A->mean[c] = (float)(get_f32(A->x, A->dtype, c) + d);
            A->var[c] = (float)(var > 0 || var != var ? var : 0);
        } else if (t < 8) {
            double rate = 1 / sqrt((double)A->var[c] + A->epsilon);

            put_f32(A->dgamma, A->param_dtype, c, (float)(q * rate));
            put_f32(A->dbeta, A->param_dtype, c, (float)s);
            A->coef[c] = (float)(s / n);
            A->coef[A->channels + c] = (float)(q * rate * rate / n);
        }
    }
}

enum { BN_AHEAD = 4 };

DEV void bn_apply_to(const struct wfc_bn *A, const struct bn_place *p, const float *rates,
                     int dtype, bool grad, bool relu, bool skip)
{
    /* rows that are on their way to a thread at the same time, as many as its registers hold */
    const int ahead = dtype == WFC_F32 ? BN_AHEAD / 2 : BN_AHEAD;
    const int64_t tile = ahead * p->step, n_tiles = (A->n_rows + tile - 1) / tile;
    float rate[8], mean[8], add[8], by[8], beta[8];

    get8(A->mean, WFC_F32, p->c, mean);
    bn_param(A, A->beta, p->c, beta);
    UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        rate[i] = rates[i];
        add[i] = beta[i];
        by[i] = 0;
    }
    if (grad) {
        get8(A->coef, WFC_F32, p->c, add);
        get8(A->coef, WFC_F32, A->channels + p->c, by);
    }
    /* all reads of these rows before the first write, of which the compiler cannot know that it
     * is elsewhere */
    for (int64_t g = BY; g < n_tiles; g += GY) {
        int64_t r0 = g * tile + p->row;
        struct raw8 rx[BN_AHEAD], rd[BN_AHEAD];

        UNROLL_ALL
        for (int k = 0; k < ahead; k++) {
            int64_t r = r0 + k * p->step;

            if (r < A->n_rows) {
                get_raw8(A->x, dtype, r * A->channels + p->c, &rx[k]);
                if (grad || skip)
                    get_raw8(grad ? A->dy : A->skip, dtype, r * A->channels + p->c, &rd[k]);
            }
        }
        UNROLL_ALL
        for (int k = 0; k < ahead; k++) {
            int64_t r = r0 + k * p->step;
            float x[8], d[8];

            if (r >= A->n_rows)
                continue;
            of_raw8(&rx[k], dtype, x);
            if (grad || skip)
                of_raw8(&rd[k], dtype, d);
            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                float z = x[i] - mean[i];

                if (grad && relu)
                    d[i] = fmaf(z, rate[i], beta[i]) > 0 ? d[i] : 0;
                x[i] = grad ? rate[i] * (d[i] - add[i] - z * by[i]) : fmaf(z, rate[i], add[i]);
                if (!grad && skip)
                    x[i] += d[i];
                if (!grad && relu)
                    x[i] = x[i] < 0 ? 0 : x[i];
            }
            put8(A->y, dtype, r * A->channels + p->c, x);
        }
    }
}

KERNEL_ON(wfc_bn_apply, wfc_bn, WFC_THREADS, 2)
{
    SHARED float rates[WFC_THREADS];

    EACH_THREAD(t)
    {
        bn_rates(A, t, rates);
    }
    SYNC();
    EACH_THREAD(t)
    {
        struct bn_place p = bn_place(A, t);
        const float *r = rates + t % A->cols * 8;

        if (p.c >= A->channels)
            ;
        else if (A->dtype == WFC_BF16 && A->dy && A->relu)
            bn_apply_to(A, &p, r, WFC_BF16, true, true, false);
        else if (A->dtype == WFC_BF16 && A->dy)
            bn_apply_to(A, &p, r, WFC_BF16, true, false, false);
        else if (A->dtype == WFC_BF16 && A->skip)
            bn_apply_to(A, &p, r, WFC_BF16, false, true, true);
        else if (A->dtype == WFC_BF16)
            bn_apply_to(A, &p, r, WFC_BF16, false, A->relu, false);
        else if (A->dtype == WFC_F32)
            bn_apply_to(A, &p, r, WFC_F32, A->dy != 0, A->relu, A->skip != 0);
        else
            bn_apply_to(A, &p, r, WFC_F16, A->dy != 0, A->relu, A->skip != 0);
    }
}

/* ---- casts --------------------------------------------------------------------------------------- */

DEV void casts_of(const float *from, void *to, int dtype, int64_t first, int64_t last, int t)
{
    UNROLL4
    for (int64_t i = first + 8 * t; i < last; i += 8 * NT) {
        float v[8];

        if (i + 8 > last) {
            for (int64_t j = i; j < last; j++)
                put_f32(to, dtype, j, from[j]);
            continue;
        }
        get8(from, WFC_F32, i, v);
        put8(to, dtype, i, v);
    }
}

KERNEL(wfc_casts, wfc_casts)
{
    uint32_t lo = 0, hi = A->n;

    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;

        if (A->one[mid].first <= BX)
            lo = mid;
        else
            hi = mid;
    }
    EACH_THREAD(t)
    {
        int64_t first = (BX - A->one[lo].first) * (int64_t)A->each, last = first + A->each;

        last = last < A->one[lo].n ? last : A->one[lo].n;
        if (A->one[lo].dtype == WFC_BF16)
            casts_of(A->one[lo].from, A->one[lo].to, WFC_BF16, first, last, t);
        else
            casts_of(A->one[lo].from, A->one[lo].to, WFC_F16, first, last, t);
    }
}

/* ---- sums of columns ------------------------------------------------------------------------- */

enum { COLS_AHEAD = 8 };

/* The rows of a thread, in tiles as of batch normalization: from the last, which was written last
 * and may still be in the cache, to the first. */
DEV void cols_of(const struct wfc_cols *A, int64_t c, int t, int dtype, float *s)
{
    /* rows that are on their way to a thread at the same time */
    const int ahead = dtype == WFC_F32 ? COLS_AHEAD / 2 : COLS_AHEAD;
    const int64_t step = NT / A->cols, tile = ahead * step, n_tiles = (A->n_rows + tile - 1) / tile;

    for (int64_t g = n_tiles - 1 - BY; g >= 0; g -= GY) {
        int64_t r0 = g * tile + t / A->cols;
        struct raw8 raw[COLS_AHEAD];

        UNROLL_ALL
        for (int j = 0; j < ahead; j++)
            if (r0 + j * step < A->n_rows)
                get_raw8(A->x, dtype, (r0 + j * step) * A->n_cols + c, &raw[j]);
        UNROLL_ALL
        for (int j = 0; j < ahead; j++) {
            float x[8];

            if (r0 + j * step >= A->n_rows)
                continue;
            of_raw8(&raw[j], dtype, x);
            UNROLL_ALL
            for (int i = 0; i < 8; i++)
                s[i] += x[i];
        }
    }
}

/* A block has A->cols pieces of 8 columns, and shares the rows with those above it. */
KERNEL_ON(wfc_cols, wfc_cols, WFC_THREADS, 3)
{
    SHARED float part[8][WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t c = (BX * A->cols + t % A->cols) * 8;
        float s[8];

        UNROLL_ALL
        for (int i = 0; i < 8; i++)
            s[i] = 0;
        if (c >= A->n_cols)
            ;
        else if (A->dtype == WFC_BF16)
            cols_of(A, c, t, WFC_BF16, s);
        else if (A->dtype == WFC_F32)
            cols_of(A, c, t, WFC_F32, s);
        else
            cols_of(A, c, t, WFC_F16, s);
        UNROLL_ALL
        for (int i = 0; i < 8; i++)
            part[i][t] = s[i];
    }
    SYNC();
    EACH_THREAD(t)
    {
        for (int i = t; i < 8 * A->cols; i += NT) {
            int col = i % A->cols, v = i / A->cols;
            int64_t c = (BX * A->cols + col) * 8 + v;
            float sum = 0;

            for (int r = col; r < NT; r += A->cols)
                sum += part[v][r];
            if (c < A->n_cols)
                A->part[BY * A->n_cols + c] = sum;
        }
    }
}

/* 8 columns a block: the parts are added by 32 threads each. */
KERNEL(wfc_cols_end, wfc_cols)
{
    SHARED double part[WFC_THREADS];

    EACH_THREAD(t)
    {
        double s = 0;

        UNROLL
        for (int64_t k = t / 8; k < A->n_chunks; k += NT / 8)
            s += A->part[k * A->n_cols + BX * 8 + t % 8];
        part[t] = s;
    }
    SYNC();
    EACH_THREAD(t)
    {
        double s = 0;

        for (int k = t; t < 8 && k < NT; k += 8)
            s += part[k];
        if (t < 8)
            put_f32(A->y, A->y_dtype, BX * 8 + t, (float)(A->mean ? s / A->n_rows : s));
    }
}
