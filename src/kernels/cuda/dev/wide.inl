/* wide.inl - batch normalization and pooling of f32 and halves in pieces of 8 channels (16 or 32
 * bytes): channels last, their number a multiple of 8. All sums are in f32. */

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

#endif

/* ---- batch normalization ---------------------------------------------------------------------
 * A block has A->cols pieces of channels and a chunk of the rows; its threads are NT / cols rows of
 * cols pieces. */

struct bn_place {
    int64_t c, first, last, step; /* a channel; rows of this thread */
};

DEV struct bn_place bn_place(const struct wfc_bn *A, int t)
{
    struct bn_place p = {(BX * A->cols + t % A->cols) * 8, BY * A->chunk + t / A->cols,
                         (BY + 1) * A->chunk, NT / A->cols};

    if (p.last > A->n_rows)
        p.last = A->n_rows;
    if (p.c >= A->channels)
        p.last = 0;
    return p;
}

DEV float bn_rate(const struct wfc_bn *A, int64_t c)
{
    float g = A->gamma ? get_f32(A->gamma, A->param_dtype, c) : 1;

    return (float)(g / sqrt((double)A->var[c] + A->epsilon));
}

/* What a ReLU after the normalization needs of 8 channels: the rate and beta. */
DEV void bn_edge(const struct wfc_bn *A, int64_t c, bool relu, float *rate, float *beta)
{
    UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        rate[i] = relu ? bn_rate(A, c + i) : 0;
        beta[i] = relu && A->beta ? get_f32(A->beta, A->param_dtype, c + i) : 0;
    }
}

/* Sums over the rows of a thread: of x - k and its square, or (of the gradient) of dy and
 * dy (x - mean). k is the first row: sums of squares of what is small lose little. After a ReLU dy
 * counts where the normalized value, computed as it was forward, is above 0. dtype, grad and relu
 * are constants where this is called, so that the loop has no branches. */
DEV void bn_sums_of(const struct wfc_bn *A, const struct bn_place *p, int dtype, bool grad,
                    bool relu, float *s, float *q)
{
    float k[8], rate[8], beta[8];

    get8(grad ? A->mean : A->x, grad ? WFC_F32 : dtype, p->c, k);
    bn_edge(A, p->c, relu, rate, beta);
    UNROLL4
    for (int64_t r = p->first; r < p->last; r += p->step) {
        float x[8], d[8];

        get8(A->x, dtype, r * A->channels + p->c, x);
        if (grad)
            get8(A->dy, dtype, r * A->channels + p->c, d);
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

/* The parts of one chunk. */
KERNEL_ON(wfc_bn_sums, wfc_bn, WFC_THREADS, 3)
{
    SHARED float part[16][WFC_THREADS];

    EACH_THREAD(t)
    {
        struct bn_place p = bn_place(A, t);
        float s[8], q[8];

        for (int i = 0; i < 8; i++)
            s[i] = q[i] = 0;
        if (p.first >= p.last)
            ;
        else if (A->dtype == WFC_BF16 && A->dy && A->relu)
            bn_sums_of(A, &p, WFC_BF16, true, true, s, q);
        else if (A->dtype == WFC_BF16 && A->dy)
            bn_sums_of(A, &p, WFC_BF16, true, false, s, q);
        else if (A->dtype == WFC_BF16)
            bn_sums_of(A, &p, WFC_BF16, false, false, s, q);
        else if (A->dtype == WFC_F32)
            bn_sums_of(A, &p, WFC_F32, A->dy != 0, A->dy && A->relu, s, q);
        else
            bn_sums_of(A, &p, WFC_F16, A->dy != 0, A->dy && A->relu, s, q);
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

/* 8 channels a block: the chunks' parts are added by 32 threads each. */
KERNEL(wfc_bn_end, wfc_bn)
{
    SHARED double part[2][WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t c = BX * 8 + t % 8;
        double s = 0, q = 0;

        UNROLL4
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

DEV void bn_apply_to(const struct wfc_bn *A, const struct bn_place *p, int dtype, bool grad,
                     bool relu, bool skip)
{
    float rate[8], mean[8], add[8], by[8], beta[8];

    UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        rate[i] = bn_rate(A, p->c + i);
        mean[i] = A->mean[p->c + i];
        by[i] = grad ? A->coef[A->channels + p->c + i] : 0;
        add[i] = grad      ? A->coef[p->c + i]
                 : A->beta ? get_f32(A->beta, A->param_dtype, p->c + i)
                           : 0;
        beta[i] = grad && relu && A->beta ? get_f32(A->beta, A->param_dtype, p->c + i) : 0;
    }
    UNROLL4
    for (int64_t r = p->first; r < p->last; r += p->step) {
        float x[8], d[8];

        get8(A->x, dtype, r * A->channels + p->c, x);
        if (grad || skip)
            get8(grad ? A->dy : A->skip, dtype, r * A->channels + p->c, d);
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

KERNEL_ON(wfc_bn_apply, wfc_bn, WFC_THREADS, 3)
{
    EACH_THREAD(t)
    {
        struct bn_place p = bn_place(A, t);

        if (p.first >= p.last)
            ;
        else if (A->dtype == WFC_BF16 && A->dy && A->relu)
            bn_apply_to(A, &p, WFC_BF16, true, true, false);
        else if (A->dtype == WFC_BF16 && A->dy)
            bn_apply_to(A, &p, WFC_BF16, true, false, false);
        else if (A->dtype == WFC_BF16 && A->skip)
            bn_apply_to(A, &p, WFC_BF16, false, true, true);
        else if (A->dtype == WFC_BF16)
            bn_apply_to(A, &p, WFC_BF16, false, A->relu, false);
        else if (A->dtype == WFC_F32)
            bn_apply_to(A, &p, WFC_F32, A->dy != 0, A->relu, A->skip != 0);
        else
            bn_apply_to(A, &p, WFC_F16, A->dy != 0, A->relu, A->skip != 0);
    }
}

/* ---- sums of columns ------------------------------------------------------------------------- */

DEV void cols_of(const struct wfc_cols *A, int64_t c, int64_t first, int64_t last, int64_t step,
                 int dtype, float *s)
{
    UNROLL4
    for (int64_t r = first; r < last; r += step) {
        float x[8];

        get8(A->x, dtype, r * A->n_cols + c, x);
        UNROLL_ALL
        for (int i = 0; i < 8; i++)
            s[i] += x[i];
    }
}

/* A block has A->cols pieces of 8 columns and a chunk of the rows, as of batch normalization. */
KERNEL(wfc_cols, wfc_cols)
{
    SHARED float part[8][WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t c = (BX * A->cols + t % A->cols) * 8, first = BY * A->chunk + t / A->cols,
                last = (BY + 1) * A->chunk, step = NT / A->cols;
        float s[8];

        if (last > A->n_rows)
            last = A->n_rows;
        for (int i = 0; i < 8; i++)
            s[i] = 0;
        if (c >= A->n_cols)
            ;
        else if (A->dtype == WFC_BF16)
            cols_of(A, c, first, last, step, WFC_BF16, s);
        else if (A->dtype == WFC_F32)
            cols_of(A, c, first, last, step, WFC_F32, s);
        else
            cols_of(A, c, first, last, step, WFC_F16, s);
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

/* 8 columns a block: the chunks' parts are added by 32 threads each. */
KERNEL(wfc_cols_end, wfc_cols)
{
    SHARED double part[WFC_THREADS];

    EACH_THREAD(t)
    {
        double s = 0;

        UNROLL4
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

/* ---- pooling --------------------------------------------------------------------------------- */

/* Positions [first, last] of taps along an axis that reach into [0, n) of `base` + tap * step. */
struct tap_range {
    int first, last;
};

DEV struct tap_range taps_of(int base, int step, int n, int k)
{
    struct tap_range r = {0, k - 1};

    while (r.first < k && base + r.first * step < 0)
        r.first++;
    while (r.last >= 0 && base + r.last * step >= n)
        r.last--;
    return r;
}

/* Output o: the window's maximum and its position, or the mean. */
DEV void pool8_forward(const struct wfc_pool *A, int dtype, int64_t n, uint32_t o, int64_t c,
                       int64_t to)
{
    const struct wfc_window *w = &A->w;
    int base[3], n_met = 0;
    struct tap_range r[3];
    float most[8], x[8];
    int at[8];

    for (int a = 0; a < 3; a++) {
        base[a] = box_index(o, w->out, a) * w->stride[a] - w->lo[a];
        r[a] = taps_of(base[a], w->dilation[a], w->in[a], w->k[a]);
    }
    for (int i = 0; i < 8; i++) {
        most[i] = 0;
        at[i] = -1;
    }
    for (int i = r[0].first; i <= r[0].last; i++)
        for (int j = r[1].first; j <= r[1].last; j++)
            for (int k = r[2].first; k <= r[2].last; k++) {
                int64_t from = ((n * w->in[0] + base[0] + i * w->dilation[0]) * w->in[1] + base[1] +
                                j * w->dilation[1]) *
                                   w->in[2] +
                               base[2] + k * w->dilation[2];
                int tap = (i * w->k[1] + j) * w->k[2] + k;

                get8(A->x, dtype, from * A->channels + c, x);
                n_met++;
                for (int e = 0; e < 8; e++)
                    if (A->code == WFC_AVG_POOL) {
                        most[e] += x[e];
                    } else if (at[e] < 0 || x[e] > most[e] ||
                               (x[e] != x[e] && most[e] == most[e])) {
                        most[e] = x[e];
                        at[e] = tap;
                    }
            }
    for (int e = 0; e < 8; e++)
        if (A->code == WFC_AVG_POOL)
            most[e] /= (float)n_met;
        else
            ((uint8_t *)A->arg)[to + e] = (uint8_t)at[e];
    put8(A->y, dtype, to, most);
}

/* Input at place p: what the outputs whose windows have it give. */
DEV void pool8_back(const struct wfc_pool *A, int dtype, int64_t n, uint32_t p, int64_t c,
                    int64_t to)
{
    const struct wfc_window *w = &A->w;
    int first[3], last[3], place[3];
    float sum[8], d[8];

    for (int a = 0; a < 3;
         a++) { /* outputs o with 0 <= place + lo - o stride <= (k - 1) dilation */
        int reach, top;

        place[a] = box_index(p, w->in, a) + w->lo[a];
        reach = place[a] - (w->k[a] - 1) * w->dilation[a];
        top = place[a] / w->stride[a];
        first[a] = reach <= 0 ? 0 : (reach + w->stride[a] - 1) / w->stride[a];
        last[a] = top < w->out[a] - 1 ? top : w->out[a] - 1;
    }
    for (int e = 0; e < 8; e++)
        sum[e] = 0;
    for (int i = first[0]; i <= last[0]; i++)
        for (int j = first[1]; j <= last[1]; j++)
            for (int k = first[2]; k <= last[2]; k++) {
                int64_t o = ((n * w->out[0] + i) * w->out[1] + j) * w->out[2] + k;
                int d0 = place[0] - i * w->stride[0], d1 = place[1] - j * w->stride[1],
                    d2 = place[2] - k * w->stride[2];
                uint32_t tap =
                    (uint32_t)((d0 / w->dilation[0] * w->k[1] + d1 / w->dilation[1]) * w->k[2] +
                               d2 / w->dilation[2]);
                uint64_t arg;

                if (d0 % w->dilation[0] || d1 % w->dilation[1] || d2 % w->dilation[2])
                    continue;
                get8(A->x, dtype, o * A->channels + c, d);
                if (A->code == WFC_AVG_POOL_GRAD) {
                    float met = (float)met_count(w, (uint32_t)(o - n * A->n_out), A->n_k);

                    for (int e = 0; e < 8; e++)
                        sum[e] += d[e] / met;
                } else {
                    arg = bytes8(A->arg, o * A->channels + c);
                    for (int e = 0; e < 8; e++)
                        sum[e] += (uint32_t)(arg >> (8 * e) & 255) == tap ? d[e] : 0;
                }
            }
    put8(A->y, dtype, to, sum);
}

KERNEL(wfc_pool8, wfc_pool)
{
    bool back = A->code == WFC_MAX_POOL_GRAD || A->code == WFC_AVG_POOL_GRAD;
    uint32_t n_side = back ? A->n_in : A->n_out, pieces = A->channels / 8;
    int64_t total = (int64_t)A->batch * n_side * pieces;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < total; j += GX * NT) {
            uint32_t rest = (uint32_t)j / pieces, n = rest / n_side, p = rest % n_side;
            int64_t c = (int64_t)((uint32_t)j % pieces) * 8;

            int64_t to = (int64_t)rest * A->channels + c;

            if (back && A->dtype == WFC_F32)
                pool8_back(A, WFC_F32, n, p, c, to);
            else if (back)
                pool8_back(A, A->dtype == WFC_BF16 ? WFC_BF16 : WFC_F16, n, p, c, to);
            else if (A->dtype == WFC_F32)
                pool8_forward(A, WFC_F32, n, p, c, to);
            else
                pool8_forward(A, A->dtype == WFC_BF16 ? WFC_BF16 : WFC_F16, n, p, c, to);
        }
    }
}

/* Every position must be that of an element of its window. Windows of at most 64 taps: a bit for
 * each tap that is not padding. */
KERNEL(wfc_pool_check, wfc_pool)
{
    int64_t total = (int64_t)A->batch * A->n_out;
    uint32_t pieces = A->arg_dtype == WFC_U8 && A->channels % 8 == 0 ? A->channels / 8 : 0;
    uint32_t parts = pieces ? pieces : A->channels;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < total * parts; j += GX * NT) {
            int64_t row = j / parts, at = row * A->channels + j % parts * (pieces ? 8 : 1);
            uint32_t o = (uint32_t)row % A->n_out;
            uint64_t arg = pieces ? bytes8(A->arg, at) : 0, met = 0;

            for (uint32_t k = 0; pieces && A->n_k <= 64 && k < A->n_k; k++)
                met |= (uint64_t)(meets(&A->w, o, k) >= 0) << k;
            for (int e = 0; e < (pieces ? 8 : 1); e++) {
                int64_t k =
                    pieces ? (int64_t)(arg >> (8 * e) & 255) : get_int(A->arg, A->arg_dtype, at);

                if (k < 0 || k >= A->n_k ||
                    (pieces && A->n_k <= 64 ? !(met >> k & 1) : meets(&A->w, o, (uint32_t)k) < 0))
                    set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, k, A->n_k);
            }
        }
    }
}

/* ---- layer normalization: a warp for each row of at most 32 * 8 * LN_PIECES values
 * ------------ */

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
                float y[8];

                if (row >= last || c >= (int)A->width)
                    continue;
                for (int e = 0; e < 8; e++)
                    y[e] = A->rate[row] * (KEPT(d, t)[8 * i + e] - m1 - KEPT(x, t)[8 * i + e] * m2);
                put8(A->y, A->dtype, row * A->width + c, y);
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

KERNEL(wfc_ln_end, wfc_ln)
{
    SHARED double part[2][WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t c = BX * 8 + t % 8;
        double g = 0, b = 0;

        UNROLL4
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

/* ---- cross-entropy of many classes: a block for each row, which is read twice
 * ------------------ */

/* The maximum m and the sum s of exp(x - m) over the values of a thread. */
DEV void xent_read(const struct wfc_rows_args *A, int64_t at, int dtype, int t, float *m, float *s)
{
    UNROLL4
    for (uint32_t j = (uint32_t)t * 8; j < A->n; j += (uint32_t)NT * 8) {
        float x[8], top = *m, sum = 0;

        get8(A->x, dtype, at + j, x);
        UNROLL_ALL
        for (int e = 0; e < 8; e++)
            top = fmaxf(top, x[e]);
        UNROLL_ALL
        for (int e = 0; e < 8; e++)
            sum += x[e] == -huge_f() ? 0 : exp_f(x[e] - top);
        *s = (*s > 0 ? *s * exp_f(*m - top) : *s) + sum;
        *m = top;
    }
}

DEV void xent_back(const struct wfc_rows_args *A, int64_t at, int x_dtype, int y_dtype, int t,
                   int64_t label, bool skip, float lse)
{
    float scale = (float)A->scale;

    UNROLL4
    for (uint32_t j = (uint32_t)t * 8; j < A->n; j += (uint32_t)NT * 8) {
        float x[8];

        get8(A->x, x_dtype, at + j, x);
        UNROLL_ALL
        for (int e = 0; e < 8; e++)
            x[e] =
                skip ? 0 : scale * (exp_f(x[e] - lse) - (j + (uint32_t)e == label ? 1.0f : 0.0f));
        put8(A->y, y_dtype, at + j, x);
    }
}

KERNEL(wfc_xent_wide, wfc_rows_args)
{
    SHARED float most[WFC_THREADS], sums[WFC_THREADS];
    int64_t row = BX, at = BX * A->n;

    EACH_THREAD(t)
    {
        float m = -huge_f(), s = 0;

        if (A->x_dtype == WFC_F32)
            xent_read(A, at, WFC_F32, t, &m, &s);
        else if (A->x_dtype == WFC_BF16)
            xent_read(A, at, WFC_BF16, t, &m, &s);
        else
            xent_read(A, at, WFC_F16, t, &m, &s);
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
        float lse = most[0] + log_f(sums[0]);
        int64_t label = get_int(A->b, A->b_dtype, row);
        bool skip = A->ignore && label == A->ignored;

        if (!skip && (label < 0 || label >= A->n)) {
            set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, label, A->n);
            label = 0;
        }
        if (t == 0)
            put_f32(A->loss, A->loss_dtype, row,
                    skip ? 0 : lse - get_f32(A->x, A->x_dtype, at + label));
        if (A->x_dtype == WFC_F32 && A->y_dtype == WFC_F32)
            xent_back(A, at, WFC_F32, WFC_F32, t, label, skip, lse);
        else if (A->x_dtype == WFC_BF16 && A->y_dtype == WFC_BF16)
            xent_back(A, at, WFC_BF16, WFC_BF16, t, label, skip, lse);
        else
            xent_back(A, at, A->x_dtype, A->y_dtype, t, label, skip, lse);
    }
}
