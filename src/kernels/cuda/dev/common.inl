/* common.inl - kernels and helpers that exist once: programs in f32, integers, moves, indices,
 * random numbers, updates. */

/* ---- integers -------------------------------------------------------------------------------- */

DEV int64_t mod_int(int64_t a, int64_t b)
{
    int64_t m = b == -1 || b == 0 ? 0 : a % b;

    return m && (m < 0) != (b < 0) ? m + b : m;
}

DEV int64_t ew_int(int code, int64_t a, int64_t b, int64_t c)
{
    switch (code) {
    case WFC_EW_copy: return a;
    case WFC_EW_neg: return (int64_t)(0 - (uint64_t)a);
    case WFC_EW_abs: return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
    case WFC_EW_sign: return (a > 0) - (a < 0);
    case WFC_EW_square: return (int64_t)((uint64_t)a * (uint64_t)a);
    case WFC_EW_logical_not: return !a;
    case WFC_EW_is_finite: return 1;
    case WFC_EW_add: return (int64_t)((uint64_t)a + (uint64_t)b);
    case WFC_EW_sub: return (int64_t)((uint64_t)a - (uint64_t)b);
    case WFC_EW_mul: return (int64_t)((uint64_t)a * (uint64_t)b);
    case WFC_EW_mod: return mod_int(a, b);
    case WFC_EW_min: return a < b ? a : b;
    case WFC_EW_max: return a > b ? a : b;
    case WFC_EW_eq: return a == b;
    case WFC_EW_ne: return a != b;
    case WFC_EW_lt: return a < b;
    case WFC_EW_le: return a <= b;
    case WFC_EW_gt: return a > b;
    case WFC_EW_ge: return a >= b;
    case WFC_EW_logical_and: return a && b;
    case WFC_EW_logical_or: return a || b;
    case WFC_EW_logical_xor: return !a != !b;
    case WFC_EW_where: return a ? b : c;
    default: return 0;
    }
}

KERNEL(wfc_one_int, wfc_one)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            int64_t v[3] = {0, 0, 0};

            for (int k = 0; k < A->n_operands; k++)
                v[k] = get_int(A->operand[k].data, A->operand[k].dtype,
                               operand_at_f(&A->operand[k], (uint32_t)i));
            if (A->code == WFC_EW_mod && v[1] == 0)
                set_trouble(&A->fault, WF_TROUBLE_OTHER, i, 0, 0);
            if (A->code == WFC_EW_clip) {
                double x = (double)v[0];

                if (x < A->p || x > A->q)
                    put_f64(A->out, A->out_dtype, i, x < A->p ? A->p : A->q);
                else
                    put_int(A->out, A->out_dtype, i, v[0]);
            } else {
                put_int(A->out, A->out_dtype, i, ew_int(A->code, v[0], v[1], v[2]));
            }
        }
    }
}

KERNEL(wfc_add_n_int, wfc_add_n)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            uint64_t sum = A->onto ? (uint64_t)get_int(A->out, A->dtype, i) : 0;

            for (int k = 0; k < A->n; k++)
                sum += (uint64_t)get_int(A->in[k], A->dtype, i);
            put_int(A->out, A->dtype, i, (int64_t)sum);
        }
    }
}

/* The same sums as wfc_assign's. */
KERNEL(wfc_assigns, wfc_assigns)
{
    uint32_t n = A->one[BY].n;

    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < n && !troubled(&A->fault); i += GX * NT) {
            float v = A->one[BY].var[i], x = A->one[BY].value[i];

            A->one[BY].out[i] =
                A->ema ? v * (float)A->momentum + x * (float)(1 - A->momentum) : v + x;
        }
    }
}

KERNEL(wfc_assign_int, wfc_assign)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n && !troubled(&A->fault); i += GX * NT)
            put_int(A->out, A->dtype, i,
                    (int64_t)((uint64_t)get_int(A->var, A->dtype, i) +
                              (uint64_t)get_int(A->value, A->dtype, i)));
    }
}

DEV int64_t reduce_int(int code, int64_t a, int64_t x)
{
    switch (code) {
    case WFC_MAX: return a > x ? a : x;
    case WFC_MIN: return a < x ? a : x;
    case WFC_PROD: return (int64_t)((uint64_t)a * (uint64_t)x);
    default: return (int64_t)((uint64_t)a + (uint64_t)x);
    }
}

KERNEL(wfc_reduce_int, wfc_reduce_args)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n_out; i += GX * NT) {
            int64_t acc = A->start_int, at = box_at(&A->kept, (uint32_t)i);

            for (uint32_t k = 0; k < A->n_each; k++)
                acc =
                    reduce_int(A->code, acc, get_int(A->in, A->in_dtype, at + box_at(&A->gone, k)));
            put_int(A->out, A->out_dtype, i, acc);
        }
    }
}

KERNEL(wfc_cumsum_int, wfc_cumsum)
{
    EACH_THREAD(t)
    {
        for (int64_t r = BX * NT + t; r < A->n_rows; r += GX * NT) {
            int64_t at = r / A->stride * A->n * A->stride + r % A->stride;
            uint64_t sum = 0;

            for (uint32_t k = 0; k < A->n; k++) {
                int64_t i = at + (int64_t)(A->reverse ? A->n - 1 - k : k) * A->stride;
                uint64_t before = sum;

                sum += (uint64_t)get_int(A->in, A->dtype, i);
                put_int(A->out, A->dtype, i, (int64_t)(A->exclusive ? before : sum));
            }
        }
    }
}

/* The first largest or smallest along an axis; NaN counts as such. */
KERNEL(wfc_arg, wfc_reduce_args)
{
    bool max = A->code == WFC_ARGMAX, floats = is_float(A->in_dtype);

    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n_out; i += GX * NT) {
            int64_t at = box_at(&A->kept, (uint32_t)i), best = 0, most_int = 0;
            double most = 0;

            for (uint32_t k = 0; k < A->n_each; k++) {
                int64_t from = at + box_at(&A->gone, k);
                bool better;

                if (floats) {
                    double v = get_f64(A->in, A->in_dtype, from);

                    better = k == 0 || (most == most && (v != v || (max ? v > most : v < most)));
                    most = better ? v : most;
                } else {
                    int64_t v = get_int(A->in, A->in_dtype, from);

                    better = k == 0 || (max ? v > most_int : v < most_int);
                    most_int = better ? v : most_int;
                }
                best = better ? k : best;
            }
            put_int(A->out, A->out_dtype, i, best);
        }
    }
}

/* ---- programs, in f32 ------------------------------------------------------------------------ */

enum { PROG_WIDE = 4 }; /* elements of a thread, a block apart */

KERNEL(wfc_prog, wfc_prog)
{
    EACH_THREAD(t)
    {
        for (int64_t base = BX * NT * PROG_WIDE + t; base < A->count; base += GX * NT * PROG_WIDE) {
            float r[WFC_OPERANDS + WFC_STEPS][PROG_WIDE];

            for (int k = 0; k < A->n_operands; k++)
                for (int v = 0; v < PROG_WIDE; v++) {
                    int64_t i = base + (int64_t)v * NT;

                    r[k][v] = i < A->count ? get_f32(A->operand[k].data, A->operand[k].dtype,
                                                     operand_at_f(&A->operand[k], (uint32_t)i))
                                           : 0;
                }
            for (int k = 0; k < A->n_steps; k++) {
                const struct wfc_ew_step *s = &A->step[k];

                for (int v = 0; v < PROG_WIDE; v++)
                    r[A->n_operands + k][v] =
                        ew_f(s->code, r[s->a][v], r[s->b][v], r[s->c][v], s->p, s->q);
            }
            for (int k = 0; k < A->n_outs; k++)
                for (int v = 0; v < PROG_WIDE; v++)
                    if (base + (int64_t)v * NT < A->count)
                        put_f32(A->out[k].data, A->out[k].dtype, base + (int64_t)v * NT,
                                r[A->out[k].reg][v]);
        }
    }
}

/* x in another type. */
/* Cross-entropies of short rows of f32: a thread for each row, which it reads once. */
KERNEL(wfc_xent_small, wfc_rows_args)
{
    EACH_THREAD(t)
    {
        int64_t row = BX * NT + t;

        if (row < A->n_rows) {
            const float *x = (const float *)A->x + row * A->n;
            float *y = (float *)A->y + row * A->n;
            int64_t label = get_int(A->b, A->b_dtype, row);
            float v[WFC_SHORT_ROW], most = -huge_f(), sum = 0, at_label = 0, log_sum;
            bool skip = A->ignore && label == A->ignored;

            UNROLL_ALL
            for (uint32_t j = 0; j < WFC_SHORT_ROW; j++) {
                v[j] = j < A->n ? x[j] : -huge_f();
                most = v[j] > most || v[j] != v[j] ? v[j] : most;
            }
            if (!skip && (label < 0 || label >= A->n)) {
                set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, label, A->n);
                label = 0;
            }
            UNROLL_ALL
            for (uint32_t j = 0; j < WFC_SHORT_ROW; j++)
                if (j < A->n) {
                    sum += exp_f(v[j] - most);
                    at_label = j == label ? v[j] : at_label;
                }
            log_sum = log_f(sum);
            ((float *)A->loss)[row] = skip ? 0 : most - at_label + log_sum;
            UNROLL_ALL
            for (uint32_t j = 0; j < WFC_SHORT_ROW; j++)
                if (j < A->n)
                    y[j] = skip ? 0
                                : (float)A->scale *
                                      (exp_f(v[j] - most - log_sum) - (j == label ? 1.0f : 0.0f));
        }
    }
}

/* Row i of the result, from every WFC_NARROW_ROWS-th row; `ahead` rows at a time, so that loads do
 * not wait for each other, added in their order. n and ahead are constants where this is called. */
DEV void narrow_sums(const struct wfc_narrow *A, uint32_t i, uint32_t first, uint32_t n,
                     uint32_t ahead, float *sum)
{
    for (uint32_t r = first; r < A->k; r += ahead * WFC_NARROW_ROWS) {
        float x[16], v[16][WFC_NARROW];

        UNROLL_ALL
        for (uint32_t q = 0; q < ahead; q++) {
            uint32_t row = r + q * WFC_NARROW_ROWS;
            bool in = row < A->k;

            x[q] = in && i < A->m ? A->a[row * A->m + i] : in && i == A->m ? 1.0f : 0.0f;
            UNROLL_ALL
            for (uint32_t j = 0; j < n; j++)
                v[q][j] = in && j < A->n ? A->b[row * A->n + j] : 0;
        }
        UNROLL_ALL
        for (uint32_t q = 0; q < ahead; q++) {
            UNROLL_ALL
            for (uint32_t j = 0; j < n; j++)
                sum[j] += x[q] * v[q][j];
        }
    }
}

/* y = a' b [m, n] and the sums of b's columns [n], for a [k, m] and b [k, n] of f32, n at most
 * WFC_NARROW: block BX has WFC_NARROW_M columns of a, and its threads share the rows. The column
 * after a's last is all ones: its products are the sums. */
KERNEL_OF(wfc_narrow, wfc_narrow, WFC_NARROW_M *WFC_NARROW_ROWS)
{
    SHARED float s[WFC_NARROW_ROWS * WFC_NARROW_M * WFC_NARROW];

    EACH_THREAD(t)
    {
        uint32_t c = (uint32_t)t % WFC_NARROW_M, i = (uint32_t)BX * WFC_NARROW_M + c;
        uint32_t first = (uint32_t)t / WFC_NARROW_M;
        float sum[WFC_NARROW];

        UNROLL_ALL
        for (uint32_t j = 0; j < WFC_NARROW; j++)
            sum[j] = 0;
        if (A->n == 1)
            narrow_sums(A, i, first, 1, 16, sum);
        else if (A->n <= 12 && A->k > 4 * WFC_NARROW_ROWS)
            narrow_sums(A, i, first, 12, 8, sum);
        else
            narrow_sums(A, i, first, WFC_NARROW, 4, sum);
        UNROLL_ALL
        for (uint32_t j = 0; j < WFC_NARROW; j++)
            s[t * WFC_NARROW + (int)j] = sum[j];
    }
    SYNC();
    for (int half = WFC_NARROW_ROWS / 2; half > 0; half /= 2) {
        EACH_THREAD(t)
        {
            for (int e = t; e < half * WFC_NARROW_M * WFC_NARROW; e += NT)
                s[e] += s[half * WFC_NARROW_M * WFC_NARROW + e];
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        uint32_t i = (uint32_t)BX * WFC_NARROW_M + (uint32_t)t / WFC_NARROW;
        uint32_t j = (uint32_t)t % WFC_NARROW;

        if (t < WFC_NARROW_M * WFC_NARROW && i < A->m && j < A->n)
            A->y[i * A->n + j] = s[t];
        if (t < WFC_NARROW_M * WFC_NARROW && i == A->m && j < A->n)
            A->sums[j] = s[t];
    }
}

KERNEL(wfc_cast, wfc_one)
{
    int from = A->operand[0].dtype;

    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            int64_t at = operand_at_f(&A->operand[0], (uint32_t)i);

            if (is_float(from))
                put_f64(A->out, A->out_dtype, i, get_f64(A->operand[0].data, from, at));
            else
                put_int(A->out, A->out_dtype, i, get_int(A->operand[0].data, from, at));
        }
    }
}

KERNEL(wfc_fill, wfc_fill)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT)
            put_f64(A->out, A->dtype, i, A->value);
    }
}

KERNEL(wfc_finite, wfc_finite)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            double v = get_f64(A->x, A->dtype, i);

            if (!(v - v == 0))
                set_trouble(&A->fault, WF_TROUBLE_NOT_FINITE, i, 0, 0);
            if (A->y != A->x)
                put_f64(A->y, A->dtype, i, v);
        }
    }
}

/* ---- moves ----------------------------------------------------------------------------------- */

KERNEL(wfc_copy, wfc_copy)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count && !troubled(&A->fault); i += GX * NT)
            move_elem(
                A->to, A->to_at + (A->to_box.rank ? box_at(&A->to_box, (uint32_t)i) : i), A->from,
                A->from_at + (A->from_box.rank ? box_at(&A->from_box, (uint32_t)i) : i), A->size);
    }
}

/* A block moves a square of 32 x 32 elements, row by row on both sides. */
KERNEL(wfc_turn, wfc_turn)
{
    SHARED uint64_t square[32][33];
    int64_t c0 = BX * 32, r0 = BY * 32;

    EACH_THREAD(t)
    {
        int64_t c = c0 + t % 32;

        for (int64_t i = t / 32; i < 32; i += NT / 32)
            if (r0 + i < A->n_rows && c < A->n_cols)
                move_elem(&square[i][t % 32], 0, A->from, (r0 + i) * A->n_cols + c, A->size);
    }
    SYNC();
    EACH_THREAD(t)
    {
        int64_t r = r0 + t % 32;

        for (int64_t i = t / 32; i < 32; i += NT / 32)
            if (r >= A->n_rows || c0 + i >= A->n_cols)
                ;
            else if (A->half)
                ((float *)A->to)[(c0 + i) * A->n_rows + r] =
                    get_f32(&square[t % 32][i], A->half, 0);
            else
                move_elem(A->to, (c0 + i) * A->n_rows + r, &square[t % 32][i], 0, A->size);
    }
}

/* Row y of blocks is a part. */
KERNEL(wfc_parts, wfc_parts)
{
    uint32_t len = A->part[BY].n * A->inner, at = A->part[BY].at * A->inner;
    int64_t count = (int64_t)A->outer * len, pitch = (int64_t)A->total * A->inner;

    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < count; i += GX * NT) {
            int64_t o = i / len, k = o * pitch + at + (i - o * len);

            if (A->to_whole)
                move_elem(A->whole, k, A->part[BY].data, i, A->size);
            else
                move_elem(A->part[BY].data, i, A->whole, k, A->size);
        }
    }
}

/* Where position i of a padded axis comes from; -1: the constant. */
DEV int64_t pad_source(int mode, int64_t i, int64_t before, int64_t n)
{
    int64_t j = i - before;

    if (j >= 0 && j < n)
        return j;
    if (mode == 0)
        return -1;
    if (j < 0)
        return mode == 1 ? -j : -j - 1;
    return mode == 1 ? 2 * n - 2 - j : 2 * n - 1 - j;
}

KERNEL(wfc_pad, wfc_pad)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            int64_t rest = i, from = 0, step = 1;

            for (int a = A->rank - 1; a >= 0 && from >= 0; a--) {
                int64_t j = pad_source(A->mode, rest % A->out_dim[a], A->before[a], A->in_dim[a]);

                from = j < 0 ? -1 : from + j * step;
                step *= A->in_dim[a];
                rest /= A->out_dim[a];
            }
            if (from < 0)
                put_f64(A->out, A->dtype, i, A->value);
            else
                move_elem(A->out, i, A->in, from, A->size);
        }
    }
}

/* The sum of the elements of dy that pad read from element i: on each axis its own copy, and what
 * was mirrored. out_dim is dy's, in_dim that of the result. */
KERNEL(wfc_pad_grad, wfc_pad)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            int64_t at[WFC_RANK], rest = i;
            double sum = 0;
            uint32_t n_images = 1;

            for (int a = A->rank - 1; a >= 0; a--) {
                at[a] = rest % A->in_dim[a];
                rest /= A->in_dim[a];
                n_images *= A->mode ? 3 : 1;
            }
            for (uint32_t m = 0; m < n_images; m++) {
                uint32_t which = m;
                int64_t from = 0;
                bool valid = true;

                for (int a = A->rank - 1; a >= 0; a--) {
                    /* 0: before, 1: itself, 2: after, so that images come in index order */
                    int side = A->mode ? (int)(which % 3) : 1;
                    int64_t n = A->in_dim[a], j = at[a], p;

                    which /= A->mode ? 3 : 1;
                    p = side == 1   ? j
                        : side == 0 ? (A->mode == 1 ? -j : -j - 1)
                                    : (A->mode == 1 ? 2 * n - 2 - j : 2 * n - 1 - j);
                    if ((side == 0 && p >= 0) || (side == 2 && p < n))
                        valid = false;
                    p += A->before[a];
                    valid = valid && p >= 0 && p < A->out_dim[a];
                    at[a] = j;
                    if (a == A->rank - 1)
                        from = p;
                    else {
                        int64_t step = 1;

                        for (int b = a + 1; b < A->rank; b++)
                            step *= A->out_dim[b];
                        from += p * step;
                    }
                }
                if (valid)
                    sum += get_f64(A->in, A->dtype, from);
            }
            put_f64(A->out, A->dtype, i, sum);
        }
    }
}

/* Row (image, output) of a matrix: what the window of that output reads, tap by tap. */
KERNEL(wfc_im2col, wfc_conv)
{
    uint32_t width = A->n_k * A->c_in;
    int64_t total = (int64_t)A->batch * A->n_out * width;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < total; at += GX * NT) {
            uint32_t row = (uint32_t)(at / width), j = (uint32_t)(at - (int64_t)row * width);
            uint32_t k = j / A->c_in, ci = j - k * A->c_in, n = row / A->n_out;
            int64_t i = meets(&A->w, row - n * A->n_out, k);

            if (i < 0)
                put_f64(A->y, A->y_dtype, at, 0);
            else
                move_elem(A->y, at, A->x, ((int64_t)n * A->n_in + i) * A->c_in + ci, A->size);
        }
    }
}

/* ---- indices --------------------------------------------------------------------------------- */

KERNEL(wfc_gather, wfc_gather)
{
    int64_t total = (int64_t)A->batch * A->outer * A->k * A->inner;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < total; at += GX * NT) {
            int64_t i = at % A->inner, k = at / A->inner % A->k, bo = at / A->inner / A->k;
            int64_t id = get_int(A->ids, A->id_dtype, bo / A->outer * A->k + k);

            if (id < 0 || id >= A->n) {
                set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, id, A->n);
                continue;
            }
            move_elem(A->y, at, A->x, (bo * A->n + id) * A->inner + i, A->size);
        }
    }
}

KERNEL(wfc_lookups, wfc_lookups)
{
    int64_t total = (int64_t)A->k * A->inner;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < total; at += GX * NT) {
            uint32_t k = (uint32_t)at / A->inner, i = (uint32_t)at % A->inner;
            int64_t id = get_int(A->one[BY].ids, A->id_dtype, k);

            if (id < 0 || id >= A->one[BY].n_rows) {
                struct wfc_fault f = {A->words, A->one[BY].instr};

                set_trouble(&f, WF_TROUBLE_INDEX, 1, id, A->one[BY].n_rows);
                continue;
            }
            move_elem(A->one[BY].y, at, A->one[BY].x, id * A->inner + i, A->size);
        }
    }
}

KERNEL(wfc_gather_nd, wfc_gather_nd)
{
    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < (int64_t)A->n * A->width; at += GX * NT) {
            int64_t k = at / A->width, from = 0;
            bool valid = true;

            for (int d = 0; d < A->depth; d++) {
                int64_t id = get_int(A->ids, A->id_dtype, k * A->depth + d);

                if (id < 0 || id >= A->dim[d]) {
                    set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, id, A->dim[d]);
                    valid = false;
                }
                from = from * A->dim[d] + id;
            }
            if (valid)
                move_elem(A->y, at, A->x, from * A->width + at % A->width, A->size);
        }
    }
}

KERNEL(wfc_take, wfc_take)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            int64_t id = get_int(A->ids, A->id_dtype, i);

            if (id < 0 || id >= A->n) {
                set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, id, A->n);
                continue;
            }
            move_elem(A->y, i, A->x,
                      (i / ((int64_t)A->k * A->inner) * A->n + id) * A->inner + i % A->inner,
                      A->size);
        }
    }
}

KERNEL(wfc_one_hot, wfc_one_hot)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            int64_t id = get_int(A->ids, A->id_dtype,
                                 i / ((int64_t)A->depth * A->inner) * A->inner + i % A->inner);

            if (!A->anywhere && (id < 0 || id >= A->depth))
                set_trouble(&A->fault, WF_TROUBLE_INDEX, 0, id, A->depth);
            put_f64(A->y, A->dtype, i, id == i / A->inner % A->depth ? A->on : A->off);
        }
    }
}

/* The sums of integers; as wfc_scatter, a thread for each element of each first addend. */
KERNEL(wfc_scatter_int, wfc_scatter)
{
    uint32_t k = (uint32_t)BX;
    int64_t table = BY, batch = BY / A->outer, place = place_of_f(A, batch, k);
    bool first = place >= 0;

    for (uint32_t j = 0; j < k && first; j++)
        first = place_of_f(A, batch, j) != place;
    EACH_THREAD(t)
    {
        for (uint32_t i = (uint32_t)t; i < A->inner && first; i += (uint32_t)NT) {
            uint64_t sum = 0;

            for (uint32_t j = k; j < A->k; j++)
                if (place_of_f(A, batch, j) == place)
                    sum += (uint64_t)get_int(A->x, A->dtype, (table * A->k + j) * A->inner + i);
            put_int(A->y, A->dtype, (table * A->n + place) * A->inner + i, (int64_t)sum);
        }
    }
}

KERNEL(wfc_take_grad_int, wfc_take)
{
    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < A->count; at += GX * NT) {
            int64_t i = at % A->inner, p = at / A->inner % A->n, o = at / A->inner / A->n;
            uint64_t sum = 0;

            for (uint32_t j = 0; j < A->k; j++) {
                int64_t from = (o * A->k + j) * A->inner + i;
                int64_t id = get_int(A->ids, A->id_dtype, from);

                if (id < 0 || id >= A->n)
                    set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, id, A->n);
                if (id == p)
                    sum += (uint64_t)get_int(A->x, A->dtype, from);
            }
            put_int(A->y, A->dtype, at, (int64_t)sum);
        }
    }
}

/* Whether element i comes before element j of a line; NaN is last either way. */
DEV bool sorts_before(const struct wfc_sort *A, int64_t line, uint32_t p, uint32_t q)
{
    int64_t i = line + (int64_t)p * A->inner, j = line + (int64_t)q * A->inner;

    if (is_float(A->dtype)) {
        double a = get_f64(A->x, A->dtype, i), b = get_f64(A->x, A->dtype, j);

        if (a != a || b != b)
            return a != a && b != b ? p < q : b != b;
        if (a != b)
            return A->descending ? a > b : a < b;
    } else {
        int64_t a = get_int(A->x, A->dtype, i), b = get_int(A->x, A->dtype, j);

        if (a != b)
            return A->descending ? a > b : a < b;
    }
    return p < q;
}

/* The rank of each element is the number of those before it: no order of work matters. */
KERNEL(wfc_sort, wfc_sort)
{
    int64_t total = (int64_t)A->n_lines * A->n;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < total; at += GX * NT) {
            int64_t i = at % A->inner, o = at / A->inner / A->n, line = o * A->n * A->inner + i;
            uint32_t p = (uint32_t)(at / A->inner % A->n), rank = 0;
            int64_t to;

            for (uint32_t q = 0; q < A->n && rank < A->k; q++)
                rank += q != p && sorts_before(A, line, q, p);
            if (rank >= A->k)
                continue;
            to = (o * A->k + rank) * A->inner + i;
            move_elem(A->y, to, A->x, line + (int64_t)p * A->inner,
                      A->dtype == WFC_F64 || A->dtype == WFC_I64    ? 8
                      : A->dtype == WFC_F32 || A->dtype == WFC_I32  ? 4
                      : A->dtype == WFC_F16 || A->dtype == WFC_BF16 ? 2
                                                                    : 1);
            A->places[to] = (int32_t)p;
        }
    }
}

/* ---- random numbers -------------------------------------------------------------------------- */

DEV void philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];

    for (int i = 0; i < WF_PHILOX_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)WF_PHILOX_M0 * c0, p1 = (uint64_t)WF_PHILOX_M1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += WF_PHILOX_W0;
        k1 += WF_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

DEV void random_stream(const struct wf_step_block *s, uint32_t node, uint32_t stream[4])
{
    const uint32_t ctr[4] = {(uint32_t)s->step, (uint32_t)(s->step >> 32), s->shard, node};
    const uint32_t seed[2] = {(uint32_t)s->seed, (uint32_t)(s->seed >> 32)};

    philox(ctr, seed, stream);
}

/* Element i before scale and shift. */
DEV float random_at(const uint32_t stream[4], int kind, int64_t i)
{
    uint64_t b = (uint64_t)(i / 64 * 16 + i % 16);
    int k = (int)(i / 16 % 4);

    for (uint32_t attempt = 0;; attempt++) {
        const uint32_t ctr[4] = {(uint32_t)b, (uint32_t)(b >> 32), stream[2], stream[3] + attempt};
        uint32_t w[4];
        float z[2], v;

        philox(ctr, stream, w);
        if (kind == WF_RANDOM_UNIFORM || kind == WF_RANDOM_BERNOULLI)
            return rnd_uniform((vi)w[k]);
        rnd_normal((vi)w[k & 2], (vi)w[(k & 2) + 1], &z[0], &z[1]);
        v = z[k & 1];
        if (kind == WF_RANDOM_NORMAL || vf_abs(v) <= 2.0f)
            return v;
    }
}

KERNEL(wfc_random, wfc_random)
{
    EACH_THREAD(t)
    {
        uint32_t stream[4];

        random_stream(A->step, A->node, stream);
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            float x = random_at(stream, A->kind, i);

            if (A->kind == WF_RANDOM_BERNOULLI)
                x = x < A->p0 ? 1.0f : 0.0f;
            else if (A->kind == WF_RANDOM_UNIFORM)
                x = vf_min2(A->below, A->p0 + (A->p1 - A->p0) * x);
            else
                x = A->p0 + A->p1 * x;
            put_f32(A->out, A->dtype, i, x);
        }
    }
}

DEV float dropout_rate(const struct wfc_dropout *A)
{
    float rate = A->given_rate ? get_f32(A->given_rate, A->rate_dtype, 0) : A->rate;

    if (!(rate >= 0 && rate <= 1)) {
        set_trouble(&A->fault, WF_TROUBLE_OTHER, 0, 0, 0);
        rate = 1;
    }
    return rate;
}

KERNEL(wfc_dropout_keep, wfc_dropout)
{
    EACH_THREAD(t)
    {
        uint32_t stream[4];
        float rate = dropout_rate(A);

        random_stream(A->step, A->node, stream);
        for (int64_t i = BX * NT + t; i < A->n_kept; i += GX * NT)
            put_int(A->kept, WFC_BOOL, i, !(random_at(stream, WF_RANDOM_BERNOULLI, i) < rate));
    }
}

KERNEL(wfc_dropout, wfc_dropout)
{
    EACH_THREAD(t)
    {
        float rate = dropout_rate(A);

        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            bool kept = get_int(A->kept, WFC_BOOL,
                                A->kept_box.rank ? box_at(&A->kept_box, (uint32_t)i) : i);

            if (!kept || rate == 1)
                put_f64(A->y, A->dtype, i, 0);
            else if (A->dtype == WFC_F64)
                put_f64(A->y, A->dtype, i, get_f64(A->x, A->dtype, i) / (1 - (double)rate));
            else
                put_f32(A->y, A->dtype, i, get_f32(A->x, A->dtype, i) / (1 - rate));
        }
    }
}

/* ---- updates --------------------------------------------------------------------------------- */

struct opt_elem {
    float w, s0, s1, s2;
};

DEV float clip_to(float x, float limit)
{
    return vf_min2(limit, vf_max2(-limit, x));
}

DEV void opt_ftrl(const struct wf_optim_scalars *k, float g, float sum, float p_old, float p_new,
                  struct opt_elem *e)
{
    float z = e->s1 + ((k->shrink * e->w + g) - (p_new - p_old) * k->inv_lr * e->w);

    e->w = (clip_to(z, k->l1) - z) / (p_new * k->inv_lr + k->l2);
    e->s0 = sum;
    e->s1 = z;
}

DEV float opt_decayed(float average, float x, float keep, float take)
{
    return average * keep + x * take;
}

/* The gradient after scaling and clipping; the weight decays. */
DEV float opt_before(const struct wf_optim_scalars *k, float g, struct opt_elem *e)
{
    g = g * k->grad_scale;
    if (k->clip > 0)
        g = clip_to(g, k->clip);
    if (k->decay != 0)
        e->w = e->w - e->w * k->decay;
    return g;
}

DEV void opt_adam_slots(const struct wf_optim_scalars *k, float g, struct opt_elem *e)
{
    e->s0 = (g - e->s0) * k->c1 + e->s0;
    e->s1 = (g * g - e->s1) * k->c2 + e->s1;
}

DEV void opt_rmsprop(const struct wf_optim_scalars *k, float g, struct opt_elem *e)
{
    bool centered =
        k->form == WF_OPTIM_RMSPROP_CENTERED || k->form == WF_OPTIM_RMSPROP_CENTERED_MOM;
    bool mom = k->form == WF_OPTIM_RMSPROP_MOM || k->form == WF_OPTIM_RMSPROP_CENTERED_MOM;
    float *average = mom ? &e->s2 : &e->s1, d;

    e->s0 = opt_decayed(e->s0, g * g, k->b2, k->c2);
    if (centered)
        *average = opt_decayed(*average, g, k->b2, k->c2);
    d = g * k->lr / sqrt_f((centered ? e->s0 - *average * *average : e->s0) + k->eps);
    if (mom)
        e->s1 = e->s1 * k->momentum + d;
    e->w = e->w - (mom ? e->s1 : d);
}

DEV void opt_step(const struct wf_optim_scalars *k, float g, struct opt_elem *e)
{
    float d;

    switch (k->form) {
    case WF_OPTIM_SGD: e->w = e->w - g * k->lr; break;
    case WF_OPTIM_MOMENTUM:
        e->s0 = e->s0 * k->momentum - g * k->lr;
        e->w = e->w + e->s0;
        break;
    case WF_OPTIM_NESTEROV:
        d = g * k->lr;
        e->s0 = e->s0 * k->momentum - d;
        e->w = e->w + (e->s0 * k->momentum - d);
        break;
    case WF_OPTIM_ADAM:
        opt_adam_slots(k, g, e);
        e->w = e->w - e->s0 * k->lr / (sqrt_f(e->s1) + k->eps);
        break;
    case WF_OPTIM_AMSGRAD:
        opt_adam_slots(k, g, e);
        e->s2 = e->s2 != e->s2 || e->s2 > e->s1 ? e->s2 : e->s1;
        e->w = e->w - e->s0 * k->lr / (sqrt_f(e->s2) + k->eps);
        break;
    case WF_OPTIM_ADAMAX:
        e->s0 = (g - e->s0) * k->c1 + e->s0;
        d = e->s1 * k->b2;
        e->s1 = d != d || d > vf_abs(g) ? d : vf_abs(g);
        e->w = e->w - e->s0 * k->lr / (e->s1 + k->eps);
        break;
    case WF_OPTIM_NADAM:
        opt_adam_slots(k, g, e);
        e->w = e->w - (e->s0 * k->k1 + g * k->k2) * k->lr / (sqrt_f(e->s1 * k->k3) + k->eps);
        break;
    case WF_OPTIM_ADAGRAD:
        e->s0 = g * g + e->s0;
        e->w = e->w - g * k->lr / sqrt_f(e->s0 + k->eps);
        break;
    case WF_OPTIM_ADADELTA:
        e->s0 = opt_decayed(e->s0, g * g, k->b2, k->c2);
        d = sqrt_f(e->s1 + k->eps) * g / sqrt_f(e->s0 + k->eps);
        e->s1 = opt_decayed(e->s1, d * d, k->b2, k->c2);
        e->w = e->w - d * k->lr;
        break;
    case WF_OPTIM_FTRL:
        d = g * g + e->s0;
        opt_ftrl(k, g, d, sqrt_f(e->s0), sqrt_f(d), e);
        break;
    case WF_OPTIM_FTRL_POWER:
        d = g * g + e->s0;
        opt_ftrl(k, g, d, pow_f(e->s0, k->power), pow_f(d, k->power), e);
        break;
    case WF_OPTIM_LION:
        d = e->s0 * k->b1 + g * k->c1;
        e->w = e->w - (d == 0 || d != d ? d : copysign_f(1.0f, d)) * k->lr;
        e->s0 = e->s0 * k->b2 + g * k->c2;
        break;
    default: opt_rmsprop(k, g, e); break;
    }
}

/* The scalars with the operands' rate and scale applied. */
DEV struct wf_optim_scalars opt_scalars_of(const struct wfc_scalars *own, const float *rate,
                                           const float *scale)
{
    struct wf_optim_scalars k = own->k;

    if (rate) {
        k.lr *= *rate;
        k.decay *= *rate;
        k.inv_lr = 1 / *rate;
        k.l2 = own->two_l2 + own->beta / *rate;
    }
    if (scale)
        k.grad_scale *= *scale;
    return k;
}

DEV struct wf_optim_scalars opt_scalars(const struct wfc_apply *A)
{
    return opt_scalars_of(A->own, A->rate, A->scale);
}

DEV void opt_at(float *w, float *const *slot, const struct wf_optim_scalars *k, int64_t i, float g)
{
    struct opt_elem e;

    e.w = w[i];
    e.s0 = slot[0] ? slot[0][i] : 0;
    e.s1 = slot[1] ? slot[1][i] : 0;
    e.s2 = slot[2] ? slot[2][i] : 0;
    g = opt_before(k, g, &e);
    opt_step(k, g, &e);
    w[i] = e.w;
    if (slot[0])
        slot[0][i] = e.s0;
    if (slot[1])
        slot[1][i] = e.s1;
    if (slot[2])
        slot[2][i] = e.s2;
}

KERNEL(wfc_apply, wfc_apply)
{
    EACH_THREAD(t)
    {
        struct wf_optim_scalars k = opt_scalars(A);
        bool off = troubled(&A->fault);

        for (int64_t i = BX * NT + t; i < A->n && !off; i += GX * NT)
            opt_at(A->w, A->slot, &k, i, A->g[i]);
    }
}

/* Elements from `from` to `to` of an update, four at a time. form, n_slots: constants of the
 * caller, so that only one optimizer's code is in the loop. */
DEV void opt_range(const struct wfc_update_one *u, const struct wf_optim_scalars *given, int form,
                   int n_slots, int64_t from, int64_t to, int t)
{
    struct wf_optim_scalars k = *given;
    float *pw = u->w, *p0 = u->slot[0], *p1 = u->slot[1], *p2 = u->slot[2];
    const float *pg = u->g;

    k.form = (enum wf_optim_form)form;
    for (int64_t i = from + 4 * t; i < to; i += 4 * NT) {
        float w[4], g[4], s0[4] = {0, 0, 0, 0}, s1[4] = {0, 0, 0, 0}, s2[4] = {0, 0, 0, 0};

        if (i + 4 > to) {
            for (int64_t j = i; j < to; j++)
                opt_at(pw, u->slot, &k, j, pg[j]);
            continue;
        }
        load4(g, pg + i);
        load4(w, pw + i);
        if (n_slots > 0)
            load4(s0, p0 + i);
        if (n_slots > 1)
            load4(s1, p1 + i);
        if (n_slots > 2)
            load4(s2, p2 + i);
        UNROLL_ALL
        for (int j = 0; j < 4; j++) {
            struct opt_elem e;
            float d;

            e.w = w[j];
            e.s0 = s0[j];
            e.s1 = s1[j];
            e.s2 = s2[j];
            d = opt_before(&k, g[j], &e);
            opt_step(&k, d, &e);
            w[j] = e.w;
            s0[j] = e.s0;
            s1[j] = e.s1;
            s2[j] = e.s2;
        }
        store4(pw + i, w);
        if (n_slots > 0)
            store4(p0 + i, s0);
        if (n_slots > 1)
            store4(p1 + i, s1);
        if (n_slots > 2)
            store4(p2 + i, s2);
    }
}

KERNEL(wfc_update, wfc_update)
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
        const struct wfc_update_one *u = &A->one[lo];
        bool off = troubled(&A->fault);
        struct wf_optim_scalars k = opt_scalars_of(u->own, u->rate, u->scale);
        int64_t from = (BX - u->first) * (int64_t)A->each, to = from + A->each;
        int n_slots = u->slot[2] ? 3 : u->slot[1] ? 2 : u->slot[0] ? 1 : 0;

        to = off ? from : to < u->n ? to : u->n;
        if (k.form == WF_OPTIM_SGD && n_slots == 0)
            opt_range(u, &k, WF_OPTIM_SGD, 0, from, to, t);
        else if (k.form == WF_OPTIM_MOMENTUM && n_slots == 1)
            opt_range(u, &k, WF_OPTIM_MOMENTUM, 1, from, to, t);
        else if (k.form == WF_OPTIM_ADAM && n_slots == 2)
            opt_range(u, &k, WF_OPTIM_ADAM, 2, from, to, t);
        else if (k.form == WF_OPTIM_ADAGRAD && n_slots == 1)
            opt_range(u, &k, WF_OPTIM_ADAGRAD, 1, from, to, t);
        else
            opt_range(u, &k, (int)k.form, n_slots, from, to, t);
    }
}

/* ---- rows with equal ids --------------------------------------------------------------------- */

/* The key of position i: its id, then the position, so that sorting is stable. A bad id is noted,
 * and the keys are not used. */
DEV uint64_t row_key(const struct wfc_tables *A, const struct wfc_table *r, uint32_t i)
{
    int64_t id = get_int(r->ids, r->id_dtype, i);

    if (id < 0 || id >= r->n_rows) {
        struct wfc_fault f = {A->words, r->instr};

        set_trouble(&f, WF_TROUBLE_INDEX, r->id_input, id, r->n_rows);
        id = 0;
    }
    return (uint64_t)id << 32 | i;
}

/* Chunk BX of table BY, by a bitonic network. */
KERNEL(wfc_sort_ids, wfc_tables)
{
    SHARED uint64_t s[WFC_SORTED];
    const struct wfc_table *r = &A->one[BY];
    uint32_t from = (uint32_t)BX * WFC_SORTED, n = 1;

    while (n < WFC_SORTED && from + n < r->n_ids)
        n *= 2;
    EACH_THREAD(t)
    {
        for (uint32_t i = (uint32_t)t; i < n; i += (uint32_t)NT)
            s[i] = from + i < r->n_ids ? row_key(A, r, from + i) : ~(uint64_t)0;
    }
    SYNC();
    for (uint32_t size = 2; size <= n; size *= 2)
        for (uint32_t half = size / 2; half > 0; half /= 2) {
            EACH_THREAD(t)
            {
                for (uint32_t p = (uint32_t)t; p < n / 2; p += (uint32_t)NT) {
                    uint32_t i = 2 * p - (p & (half - 1)), j = i + half;
                    bool up = (i & size) == 0;

                    if ((s[i] > s[j]) == up) {
                        uint64_t was = s[i];

                        s[i] = s[j];
                        s[j] = was;
                    }
                }
            }
            SYNC();
        }
    EACH_THREAD(t)
    {
        for (uint32_t i = (uint32_t)t; i < n && from + i < r->n_ids; i += (uint32_t)NT)
            r->chunks[from + i] = s[i];
    }
}

/* Each key's place: its place in its chunk, and how many of each other chunk are less. */
KERNEL(wfc_merge_ids, wfc_tables)
{
    const struct wfc_table *r = &A->one[BY];

    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < r->n_ids && r->keys != r->chunks; i += GX * NT) {
            uint64_t key = r->chunks[i];
            uint32_t place = (uint32_t)i % WFC_SORTED;

            for (uint32_t from = 0; from < r->n_ids; from += WFC_SORTED) {
                uint32_t lo = from,
                         hi = from + WFC_SORTED < r->n_ids ? from + WFC_SORTED : r->n_ids;

                if (from == (uint32_t)i / WFC_SORTED * WFC_SORTED)
                    continue;
                while (lo < hi) {
                    uint32_t mid = lo + (hi - lo) / 2;

                    if (r->chunks[mid] < key)
                        lo = mid + 1;
                    else
                        hi = mid;
                }
                place += lo - from;
            }
            r->keys[place] = key;
        }
    }
}

/* Each id's first key takes the sum of the gradients of all of its keys, in the order of their
 * positions. */
KERNEL(wfc_apply_rows, wfc_tables)
{
    const struct wfc_table *r = &A->one[BY];

    EACH_THREAD(t)
    {
        uint32_t p = (uint32_t)BX * ((uint32_t)NT / A->lanes) + (uint32_t)t / A->lanes;
        bool off = A->words && A->words[WF_TROUBLE_CODE] != 0;

        if (p < r->n_ids && !off && (p == 0 || r->keys[p - 1] >> 32 != r->keys[p] >> 32)) {
            struct wf_optim_scalars k = opt_scalars_of(r->own, r->rate, r->scale);
            uint64_t id = r->keys[p] >> 32;

            for (uint32_t i = (uint32_t)t % A->lanes; i < r->width; i += A->lanes) {
                float g = r->g[(int64_t)(uint32_t)r->keys[p] * r->width + i];

                for (uint32_t q = p + 1; q < r->n_ids && r->keys[q] >> 32 == id; q++)
                    g += r->g[(int64_t)(uint32_t)r->keys[q] * r->width + i];
                opt_at(r->w, r->slot, &k, (int64_t)id * r->width + i, g);
            }
        }
    }
}

DEV float lamb_direction(const struct wf_optim_scalars *k, float m, float v)
{
    return m * k->k1 / (sqrt_f(v * k->k3) + k->eps);
}

enum { NORM_BLOCK = 4096 };

/* A block of 4096 elements: decay, slots, and the sums of squares of w and of the direction. */
KERNEL(wfc_lamb_slots, wfc_apply)
{
    SHARED double ws[WFC_THREADS], qs[WFC_THREADS];

    EACH_THREAD(t)
    {
        struct wf_optim_scalars k = opt_scalars(A);
        double w_sum = 0, q_sum = 0;

        for (int64_t i = BX * NORM_BLOCK + t;
             i < A->n && i < (BX + 1) * NORM_BLOCK && !troubled(&A->fault); i += NT) {
            struct opt_elem e;
            float g, q;

            e.w = A->w[i];
            e.s0 = A->slot[0][i];
            e.s1 = A->slot[1][i];
            g = opt_before(&k, A->g[i], &e);
            opt_adam_slots(&k, g, &e);
            A->w[i] = e.w;
            A->slot[0][i] = e.s0;
            A->slot[1][i] = e.s1;
            q = lamb_direction(&k, e.s0, e.s1);
            w_sum += (double)e.w * e.w;
            q_sum += (double)q * q;
        }
        ws[t] = w_sum;
        qs[t] = q_sum;
    }
    SYNC();
    fold_d(ws, WFC_SUM, NT, 1);
    fold_d(qs, WFC_SUM, NT, 1);
    EACH_THREAD(t)
    {
        if (t == 0) {
            A->sums[2 * BX] = ws[0];
            A->sums[2 * BX + 1] = qs[0];
        }
    }
}

KERNEL(wfc_lamb_apply, wfc_apply)
{
    SHARED float step;

    EACH_THREAD(t)
    {
        if (t == 0) {
            struct wf_optim_scalars k = opt_scalars(A);
            double w = 0, q = 0;

            for (uint32_t b = 0; b < A->n_blocks; b++) {
                w += A->sums[2 * b];
                q += A->sums[2 * b + 1];
            }
            step = (float)((double)k.lr * (w > 0 && q > 0 ? sqrt_d(w / q) : 1.0));
        }
    }
    SYNC();
    EACH_THREAD(t)
    {
        struct wf_optim_scalars k = opt_scalars(A);

        for (int64_t i = BX * NT + t; i < A->n && !troubled(&A->fault); i += GX * NT)
            A->w[i] = A->w[i] - lamb_direction(&k, A->slot[0][i], A->slot[1][i]) * step;
    }
}

/* ---- norms of many tensors ------------------------------------------------------------------- */

KERNEL(wfc_sumsq, wfc_sumsq)
{
    SHARED double s[WFC_THREADS];

    EACH_THREAD(t)
    {
        int k = 0;
        double sum = 0;
        int64_t from;

        while (k + 1 < A->n && BX >= A->first[k + 1])
            k++;
        from = (BX - A->first[k]) * NORM_BLOCK;
        for (int64_t i = from + t; i < A->count[k] && i < from + NORM_BLOCK; i += NT) {
            double v = get_f64(A->in[k], A->dtype, i);

            sum += v * v;
        }
        s[t] = sum;
    }
    SYNC();
    fold_d(s, WFC_SUM, NT, 1);
    EACH_THREAD(t)
    {
        if (t == 0)
            A->blocks[BX] = s[0];
    }
}

KERNEL(wfc_norm_end, wfc_norm_end)
{
    SHARED double s[WFC_THREADS];

    EACH_THREAD(t)
    {
        double sum = 0;

        for (uint32_t b = (uint32_t)t; b < A->n_blocks; b += (uint32_t)NT)
            sum += A->blocks[b];
        s[t] = sum;
    }
    SYNC();
    fold_d(s, WFC_SUM, NT, 1);
    EACH_THREAD(t)
    {
        if (t == 0) {
            double norm = sqrt_d(s[0]);

            if (A->clip)
                norm = !(norm < huge_d()) ? norm - norm : norm > A->limit ? A->limit / norm : 1;
            put_f64(A->out, A->dtype, 0, norm);
        }
    }
}
