/* pool.inl - pooling in pieces of 8 channels, and the rows of a convolution with few channels. */

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

/* ---- windows of k x k with the same step on two axes: k and the step are constants where these are
 * called, and all that a window needs is on its way at the same time ------------------------------ */

DEV bool in_range(int i, int n)
{
    return i >= 0 && i < n;
}

enum { POOL_TAPS = 9, POOL_MEET = 4 };

DEV void pool_forward_of(const struct wfc_pool *A, int dtype, int k, int64_t n, uint32_t o,
                         int64_t c, int64_t to)
{
    const struct wfc_window *w = &A->w;
    int y0 = (int)(o / (uint32_t)w->out[2]) * w->stride[1] - w->lo[1],
        x0 = (int)(o % (uint32_t)w->out[2]) * w->stride[2] - w->lo[2];
    struct raw8 raw[POOL_TAPS];
    uint64_t arg = 0;
    float most[8];
    int at[8];

    UNROLL_ALL
    for (int j = 0; j < k * k; j++) {
        int y = y0 + j / k, x = x0 + j % k;

        if (in_range(y, w->in[1]) && in_range(x, w->in[2]))
            get_raw8(A->x, dtype, ((n * w->in[1] + y) * w->in[2] + x) * A->channels + c, &raw[j]);
    }
    UNROLL_ALL
    for (int e = 0; e < 8; e++) {
        most[e] = 0;
        at[e] = -1;
    }
    UNROLL_ALL
    for (int j = 0; j < k * k; j++) {
        float v[8];

        if (!in_range(y0 + j / k, w->in[1]) || !in_range(x0 + j % k, w->in[2]))
            continue;
        of_raw8(&raw[j], dtype, v);
        UNROLL_ALL
        for (int e = 0; e < 8; e++)
            if (at[e] < 0 || v[e] > most[e] || (v[e] != v[e] && most[e] == most[e])) {
                most[e] = v[e];
                at[e] = j;
            }
    }
    UNROLL_ALL
    for (int e = 0; e < 8; e++)
        arg |= (uint64_t)(uint8_t)at[e] << (8 * e);
    put_bytes8(A->arg, to, arg);
    put8(A->y, dtype, to, most);
}

/* Whether the 8 positions are those of elements of output (oy, ox)'s window. */
DEV void pool_check_of(const struct wfc_pool *A, int k, int oy, int ox, uint64_t arg)
{
    const struct wfc_window *w = &A->w;
    int y0 = oy * w->stride[1] - w->lo[1], x0 = ox * w->stride[2] - w->lo[2];

    UNROLL_ALL
    for (int e = 0; e < 8; e++) {
        int j = (int)(arg >> (8 * e) & 255);

        if (j >= k * k || !in_range(y0 + j / k, w->in[1]) || !in_range(x0 + j % k, w->in[2]))
            set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, j, A->n_k);
    }
}

/* Of the inputs, with their padding, a thread has squares of 2 x 2. The windows that have one of
 * them begin in its own square (by, bx) or, of 3 x 3, in the one before on an axis: all positions
 * within windows are constants. The square in which a window begins checks its positions. */
DEV void pool_back_of(const struct wfc_pool *A, int dtype, int k, int64_t n, int by, int bx,
                      int64_t c)
{
    const struct wfc_window *w = &A->w;
    const int meet = (k + 1) / 2;
    struct raw8 raw[POOL_MEET];
    uint64_t arg[POOL_MEET];
    bool in[POOL_MEET];

    UNROLL_ALL
    for (int j = 0; j < meet * meet; j++) { /* outputs in ascending order */
        int oy = by - (meet - 1 - j / meet), ox = bx - (meet - 1 - j % meet);
        int64_t o = ((n * w->out[1] + oy) * w->out[2] + ox) * A->channels + c;

        in[j] = in_range(oy, w->out[1]) && in_range(ox, w->out[2]);
        if (in[j]) {
            get_raw8(A->x, dtype, o, &raw[j]);
            arg[j] = bytes8(A->arg, o);
        }
    }
    if (in[meet * meet - 1])
        pool_check_of(A, k, by, bx, arg[meet * meet - 1]);
    UNROLL_ALL
    for (int i = 0; i < 4; i++) {
        int py = 2 * by + i / 2 - w->lo[1], px = 2 * bx + i % 2 - w->lo[2];
        float sum[8], d[8];

        if (!in_range(py, w->in[1]) || !in_range(px, w->in[2]))
            continue;
        UNROLL_ALL
        for (int e = 0; e < 8; e++)
            sum[e] = 0;
        UNROLL_ALL
        for (int j = 0; j < meet * meet; j++) {
            const int y = i / 2 + 2 * (meet - 1 - j / meet), x = i % 2 + 2 * (meet - 1 - j % meet);

            if (y >= k || x >= k || !in[j])
                continue;
            of_raw8(&raw[j], dtype, d);
            UNROLL_ALL
            for (int e = 0; e < 8; e++)
                sum[e] += (uint32_t)(arg[j] >> (8 * e) & 255) == (uint32_t)(y * k + x) ? d[e] : 0;
        }
        put8(A->y, dtype, ((n * w->in[1] + py) * w->in[2] + px) * A->channels + c, sum);
    }
}

/* Maxima with step 2, of 2 x 2 and (bf16) 3 x 3. */
KERNEL_ON(wfc_pool_square, wfc_pool, WFC_THREADS, 2)
{
    uint32_t pieces = A->channels / 8;
    int64_t total = (int64_t)A->batch * A->n_out * pieces;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < total; j += GX * NT) {
            uint32_t rest = (uint32_t)j / pieces, n = rest / A->n_out, p = rest % A->n_out;
            int64_t c = (int64_t)((uint32_t)j % pieces) * 8, to = (int64_t)rest * A->channels + c;

            if (A->dtype == WFC_BF16 && A->w.k[1] == 2)
                pool_forward_of(A, WFC_BF16, 2, n, p, c, to);
            else if (A->dtype == WFC_BF16)
                pool_forward_of(A, WFC_BF16, 3, n, p, c, to);
            else
                pool_forward_of(A, WFC_F32, 2, n, p, c, to);
        }
    }
}

/* And their gradients: n_across x n_down squares of the input. */
KERNEL_ON(wfc_pool_squares, wfc_pool, WFC_THREADS, 2)
{
    uint32_t pieces = A->channels / 8, across = A->n_across, all = A->n_down * across;
    int64_t total = (int64_t)A->batch * all * pieces;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < total; j += GX * NT) {
            uint32_t rest = (uint32_t)j / pieces, n = rest / all, p = rest % all;
            int64_t c = (int64_t)((uint32_t)j % pieces) * 8;
            int by = (int)(p / across), bx = (int)(p % across);

            if (A->dtype == WFC_BF16 && A->w.k[1] == 2)
                pool_back_of(A, WFC_BF16, 2, n, by, bx, c);
            else if (A->dtype == WFC_BF16)
                pool_back_of(A, WFC_BF16, 3, n, by, bx, c);
            else
                pool_back_of(A, WFC_F32, 2, n, by, bx, c);
        }
    }
}

/* ---- the matrix of what each window reads, of halves with few channels: 8 values a thread ------ */

/* The taps of the last axis and their channels are neighbors in memory. */
KERNEL(wfc_im2col8, wfc_im2col8)
{
    const struct wfc_window *w = &A->w;
    uint32_t row = (uint32_t)w->k[2] * A->c_in, n_taps = (uint32_t)(w->k[0] * w->k[1]);
    uint32_t pieces = A->width / 8, line = (uint32_t)w->in[2] * A->c_in;
    int64_t total = (int64_t)A->n_rows * pieces;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < total; at += GX * NT) {
            uint32_t to = (uint32_t)at / pieces, e = ((uint32_t)at - to * pieces) * 8;
            uint32_t n = to / A->n_out, o = to - n * A->n_out, q = e / row, r = e - q * row;
            int first = (box_index(o, w->out, 2) * w->stride[2] - w->lo[2]) * (int)A->c_in;
            int z0 = box_index(o, w->out, 0) * w->stride[0] - w->lo[0],
                y0 = box_index(o, w->out, 1) * w->stride[1] - w->lo[1];
            ALIGN16 uint32_t v[4] = {0, 0, 0, 0};

            UNROLL_ALL
            for (int i = 0; i < 8; i++) {
                int z = z0 + (int)(q / (uint32_t)w->k[1]) * w->dilation[0],
                    y = y0 + (int)(q % (uint32_t)w->k[1]) * w->dilation[1];
                int x = first + (int)r;

                if (q < n_taps && in_range(z, w->in[0]) && in_range(y, w->in[1]) &&
                    in_range(x, (int)line))
                    v[i / 2] |=
                        (uint32_t)A->x[(((int64_t)n * w->in[0] + z) * w->in[1] + y) * line + x]
                        << (16 * (i % 2));
                r++;
                q += r == row;
                r = r == row ? 0 : r;
            }
            move16(A->y, at, v, 0);
        }
    }
}

/* The same for windows of two axes whose lines are multiples of 16 bytes: a block has a line of
 * outputs. All lines of the input that it reads are put into shared memory, with zeros where the
 * border is; then a thread has the same 8 columns of the matrix of every few outputs. */
KERNEL(wfc_im2col_line, wfc_im2col8)
{
    SHARED ALIGN16 uint16_t lines[WFC_LINE_HALVES];
    const struct wfc_window *w = &A->w;
    uint32_t row = (uint32_t)w->k[2] * A->c_in, n_real = (uint32_t)w->k[1] * row;
    uint32_t pieces = A->width / 8, n_out = (uint32_t)w->out[2];
    int step = w->stride[2] * (int)A->c_in;

    EACH_THREAD(t)
    {
        int64_t n = BX / w->out[1];
        int y0 = (int)(BX % w->out[1]) * w->stride[1] - w->lo[1];
        int length = w->in[2] * (int)A->c_in, across = A->pitch / 8;

        for (int i = t; i < w->k[1] * across; i += NT) {
            int q = i / across, x = (i - q * across) * 8 - A->left, y = y0 + q * w->dilation[1];
            ALIGN16 uint32_t zero[4] = {0, 0, 0, 0};

            if (in_range(y, w->in[1]) && in_range(x, length))
                move16(lines, i, A->x + ((n * w->in[1] + y) * length + x), 0);
            else
                move16(lines, i, zero, 0);
        }
    }
    SYNC();
    EACH_THREAD(t)
    {
        uint32_t p = (uint32_t)t % pieces, every = (uint32_t)NT / pieces, e = p * 8;
        int at[8];

        UNROLL_ALL
        for (uint32_t i = 0; i < 8; i++)
            at[i] = (int)((e + i) / row) * A->pitch + (int)((e + i) % row) + A->left -
                    w->lo[2] * (int)A->c_in;
        for (uint32_t o = (uint32_t)t / pieces; o < n_out && (uint32_t)t < every * pieces;
             o += every) {
            ALIGN16 uint32_t v[4] = {0, 0, 0, 0};

            UNROLL_ALL
            for (uint32_t i = 0; i < 8; i++)
                if (e + i < n_real)
                    v[i / 2] |= (uint32_t)lines[at[i] + (int)o * step] << (16 * (i % 2));
            move16(A->y, (BX * n_out + o) * pieces + p, v, 0);
        }
    }
}
