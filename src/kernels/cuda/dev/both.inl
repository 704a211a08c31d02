/* both.inl - kernels written once for f32 sums (of f32, f16, bf16) and once for f64: REAL, R(). */

/* ---- element-wise ---------------------------------------------------------------------------- */

DEV int64_t R(operand_at)(const struct wfc_operand *o, uint32_t i)
{
    return o->kind == WFC_FULL ? i : o->kind == WFC_SCALAR ? 0 : box_at(&o->box, i);
}

KERNEL(R(wfc_one), wfc_one)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            REAL v[3] = {0, 0, 0};

            for (int k = 0; k < A->n_operands; k++)
                v[k] = R(get)(A->operand[k].data, A->operand[k].dtype,
                              R(operand_at)(&A->operand[k], (uint32_t)i));
            R(put)
            (A->out, A->out_dtype, i, R(ew)(A->code, v[0], v[1], v[2], (REAL)A->p, (REAL)A->q));
        }
    }
}

KERNEL(R(wfc_add_n), wfc_add_n)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->count; i += GX * NT) {
            REAL sum = A->onto ? R(get)(A->out, A->dtype, i) : R(get)(A->in[0], A->dtype, i);

            for (int k = !A->onto; k < A->n; k++)
                sum += R(get)(A->in[k], A->dtype, i);
            R(put)(A->out, A->dtype, i, sum);
        }
    }
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* What an element counts for, and two sums into one. */
DEV REAL R(reduce_of)(int code, REAL x)
{
    return code == WFC_NORM_L1 ? R(fabs)(x) : code == WFC_NORM_L2 || code == WFC_SUM_SQ ? x * x : x;
}

DEV REAL R(reduce_two)(int code, REAL a, REAL b)
{
    switch (code) {
    case WFC_MAX: return a != a || a > b ? a : b;
    case WFC_MIN: return a != a || a < b ? a : b;
    case WFC_PROD: return a * b;
    default: return a + b;
    }
}

DEV REAL R(reduce_none)(int code)
{
    return code == WFC_MAX ? -R(huge)() : code == WFC_MIN ? R(huge)() : code == WFC_PROD ? 1 : 0;
}

/* s[t] = all of s[t], s[t + step], … s[t + (n - 1) step], for n a power of two. */
DEV void R(fold)(REAL *s, int code, int n, int step)
{
    for (int half = n / 2; half > 0; half /= 2) {
        EACH_THREAD(t)
        {
            if (t / step % n < half)
                s[t] = R(reduce_two)(code, s[t], s[t + half * step]);
        }
        SYNC();
    }
}

KERNEL(R(wfc_reduce), wfc_reduce_args)
{
    SHARED REAL s[1024];
    uint32_t n_x = A->n_x, n_y = (uint32_t)NT / n_x;

    EACH_THREAD(t)
    {
        uint32_t i = (uint32_t)BX * n_x + (uint32_t)t % n_x, from = (uint32_t)BY * A->chunk;
        uint32_t to = from + A->chunk < A->n_each ? from + A->chunk : A->n_each;
        REAL sum = R(reduce_none)(A->code);

        if (i < A->n_out) {
            int64_t at = box_at(&A->kept, i);
            uint32_t k = from + (uint32_t)t / n_x;

            /* four at a time, so that loads do not wait for each other; added in their order */
            for (; A->gone.rank == 1 && k + 3 * n_y < to; k += 4 * n_y) {
                REAL v[4];

                UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    v[j] =
                        R(get)(A->in, A->in_dtype, at + (int64_t)(k + j * n_y) * A->gone.stride[0]);
                UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    sum = R(reduce_two)(A->code, sum, R(reduce_of)(A->code, v[j]));
            }
            for (; k < to; k += n_y)
                sum = R(reduce_two)(
                    A->code, sum,
                    R(reduce_of)(A->code, R(get)(A->in, A->in_dtype, at + box_at(&A->gone, k))));
        }
        s[t] = sum;
    }
    SYNC();
    R(fold)(s, A->code, (int)n_y, (int)n_x);
    EACH_THREAD(t)
    {
        uint32_t i = (uint32_t)BX * n_x + (uint32_t)t;

        if ((uint32_t)t < n_x && i < A->n_out) {
            REAL v = s[t];

            if (A->last && A->code == WFC_MEAN)
                v /= (REAL)A->count;
            if (A->last && A->code == WFC_NORM_L2)
                v = R(sqrt)(v);
            if (A->last)
                R(put)(A->out, A->out_dtype, i, v);
            else
                ((REAL *)A->part)[BY * A->n_out + i] = v;
        }
    }
}

/* The partial results of all rows of blocks, in their order. */
KERNEL(R(wfc_reduce_parts), wfc_reduce_args)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n_out; i += GX * NT) {
            REAL v = ((const REAL *)A->part)[i];

            UNROLL
            for (uint32_t k = 1; k < A->n_each; k++)
                v = R(reduce_two)(A->code, v, ((const REAL *)A->part)[k * (int64_t)A->n_out + i]);
            if (A->code == WFC_MEAN)
                v /= (REAL)A->count;
            if (A->code == WFC_NORM_L2)
                v = R(sqrt)(v);
            R(put)(A->out, A->out_dtype, i, v);
        }
    }
}

/* A block for each result: the largest, then the sum of exp(x - largest). */
KERNEL(R(wfc_logsumexp), wfc_reduce_args)
{
    SHARED REAL s[1024];
    SHARED REAL most;

    for (int64_t i = BX; i < A->n_out; i += GX) {
        int64_t at = box_at(&A->kept, (uint32_t)i);

        EACH_THREAD(t)
        {
            REAL m = -R(huge)();

            for (uint32_t k = (uint32_t)t; k < A->n_each; k += (uint32_t)NT)
                m = R(reduce_two)(WFC_MAX, m, R(get)(A->in, A->in_dtype, at + box_at(&A->gone, k)));
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

            for (uint32_t k = (uint32_t)t; k < A->n_each && most - most == 0; k += (uint32_t)NT)
                sum += R(exp)(R(get)(A->in, A->in_dtype, at + box_at(&A->gone, k)) - most);
            s[t] = sum;
        }
        SYNC();
        R(fold)(s, WFC_SUM, NT, 1);
        EACH_THREAD(t)
        {
            if (t == 0)
                R(put)(A->out, A->out_dtype, i, most - most == 0 ? most + R(log)(s[0]) : most);
        }
        SYNC();
    }
}

KERNEL(R(wfc_prod_grad), wfc_prod_grad)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n_out; i += GX * NT) {
            REAL rest = R(get)(A->dy, A->dtype, i);
            int64_t at = box_at(&A->kept, (uint32_t)i);
            uint32_t n_zeros = 0;

            for (uint32_t k = 0; k < A->n_each; k++) {
                REAL v = R(get)(A->x, A->dtype, at + box_at(&A->gone, k));

                n_zeros += v == 0;
                rest *= v == 0 ? 1 : v;
            }
            for (uint32_t k = 0; k < A->n_each; k++) {
                int64_t to = at + box_at(&A->gone, k);
                REAL v = R(get)(A->x, A->dtype, to);

                R(put)(A->out, A->dtype, to, n_zeros > (v == 0) ? 0 : v == 0 ? rest : rest / v);
            }
        }
    }
}

KERNEL(R(wfc_cumsum), wfc_cumsum)
{
    EACH_THREAD(t)
    {
        for (int64_t r = BX * NT + t; r < A->n_rows; r += GX * NT) {
            int64_t at = r / A->stride * A->n * A->stride + r % A->stride;
            REAL sum = 0;

            for (uint32_t k = 0; k < A->n; k++) {
                int64_t i = at + (int64_t)(A->reverse ? A->n - 1 - k : k) * A->stride;
                REAL before = sum;

                sum += R(get)(A->in, A->dtype, i);
                R(put)(A->out, A->dtype, i, A->exclusive ? before : sum);
            }
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The value whose maximum and sum of exponentials are taken. */
DEV REAL R(row_score)(const struct wfc_rows_args *A, uint32_t row, uint32_t j, int64_t at)
{
    REAL x = R(get)(A->x, A->x_dtype, at);

    if (A->code != WFC_MASKED_SOFTMAX)
        return x;
    if (A->causal && j > row % (uint32_t)A->n_q)
        return -R(huge)();
    if (A->b) {
        REAL m = R(get)(A->b, A->b_dtype, box_at(&A->mask, row * A->n + j));

        if (A->b_dtype == WFC_BOOL)
            return m == 0 ? -R(huge)() : x;
        x += m;
    }
    return x;
}

/* What row and lane thread t has; -1 if none. */
DEV int64_t R(row_of)(const struct wfc_rows_args *A, int t)
{
    int64_t row = BX * (NT / A->lanes) + t / A->lanes;

    return row < A->n_rows ? row : -1;
}

DEV int64_t R(row_at)(const struct wfc_rows_args *A, int64_t row)
{
    uint32_t r = (uint32_t)row;

    if (A->stride == 1)
        return row * A->n;
    return (int64_t)(r / A->stride) * A->n * A->stride + r % A->stride;
}

DEV void R(xent_write)(const struct wfc_rows_args *A, int64_t row, int t, REAL max, REAL sum,
                       REAL total)
{
    int64_t at = row * A->n, label = 0;
    bool skip = false;

    if (A->code == WFC_SPARSE_XENT) {
        label = get_int(A->b, A->b_dtype, row);
        skip = A->ignore && label == A->ignored;
        if (!skip && (label < 0 || label >= A->n)) {
            set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, label, A->n);
            label = 0;
        }
        if (t % A->lanes == 0)
            R(put)
        (A->loss, A->loss_dtype, row, skip ? 0 : max - R(get)(A->x, A->x_dtype, at + label) + sum);
    }
    for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
        REAL p = R(exp)(R(get)(A->x, A->x_dtype, at + j) - max - sum);

        if (A->code == WFC_SPARSE_XENT)
            R(put)
        (A->y, A->y_dtype, at + j,
         skip ? 0 : (REAL)A->scale * (p - (j == label ? (REAL)1 : (REAL)0)));
        else R(put)(A->y, A->y_dtype, at + j, p * total - R(get)(A->b, A->b_dtype, at + j));
    }
}

DEV void R(softmax_write)(const struct wfc_rows_args *A, int64_t row, int t, REAL max, REAL sum)
{
    int64_t at = R(row_at)(A, row);
    REAL log_sum = R(log)(sum);

    for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
        int64_t i = at + (int64_t)j * A->stride;
        REAL x = R(row_score)(A, (uint32_t)row, j, i), y;

        if (A->code == WFC_MASKED_SOFTMAX)
            y = x == -R(huge)() ? 0 : R(exp)(x - max) / sum;
        else
            y = A->code == WFC_SOFTMAX ? R(exp)(x - max - log_sum) : x - max - log_sum;
        R(put)(A->y, A->y_dtype, i, y);
    }
    if (A->code == WFC_MASKED_SOFTMAX && t % A->lanes == 0)
        R(put)(A->loss, A->loss_dtype, row, max == -R(huge)() ? max : max + log_sum);
}

/* softmax and what is built on it: three passes over a row. */
KERNEL(R(wfc_softmax), wfc_rows_args)
{
    SHARED REAL s[WFC_THREADS], most[WFC_THREADS], extra[WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);
        REAL m = -R(huge)();

        if (row >= 0)
            for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
                REAL x =
                    R(row_score)(A, (uint32_t)row, j, R(row_at)(A, row) + (int64_t)j * A->stride);

                m = x > m || x != x ? x : m;
            }
        s[t] = m;
    }
    SYNC();
    R(fold)(s, WFC_MAX, A->lanes, 1);
    EACH_THREAD(t)
    {
        most[t] = s[t / A->lanes * A->lanes];
    }
    SYNC();
    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);
        REAL sum = 0, total = 0;

        if (row >= 0)
            for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
                int64_t i = R(row_at)(A, row) + (int64_t)j * A->stride;
                REAL x = R(row_score)(A, (uint32_t)row, j, i);

                sum += A->code == WFC_MASKED_SOFTMAX && x == -R(huge)() ? 0 : R(exp)(x - most[t]);
                if (A->code == WFC_DENSE_XENT)
                    total += R(get)(A->b, A->b_dtype, i);
            }
        s[t] = sum;
        extra[t] = total;
    }
    SYNC();
    R(fold)(s, WFC_SUM, A->lanes, 1);
    R(fold)(extra, WFC_SUM, A->lanes, 1);
    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);
        int first = t / A->lanes * A->lanes;

        if (row >= 0 && (A->code == WFC_SPARSE_XENT || A->code == WFC_DENSE_XENT))
            R(xent_write)(A, row, t, most[t], R(log)(s[first]), extra[first]);
        else if (row >= 0)
            R(softmax_write)(A, row, t, most[t], s[first]);
    }
    if (A->code != WFC_DENSE_XENT)
        return;
    SYNC(); /* the loss of targets that are weights */
    EACH_THREAD(t)
    {
        extra[t] = R(log)(s[t / A->lanes * A->lanes]);
    }
    SYNC();
    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);
        REAL loss = 0;

        if (row >= 0)
            for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
                REAL v = R(get)(A->b, A->b_dtype, row * A->n + j);

                if (v != 0)
                    loss += v * (most[t] - R(get)(A->x, A->x_dtype, row * A->n + j) + extra[t]);
            }
        s[t] = loss;
    }
    SYNC();
    R(fold)(s, WFC_SUM, A->lanes, 1);
    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);

        if (row >= 0 && t % A->lanes == 0)
            R(put)(A->loss, A->loss_dtype, row, s[t]);
    }
}

/* (dy, y): y (dy - sum(dy y)), or dy - exp(y) sum(dy). */
KERNEL(R(wfc_softmax_grad), wfc_rows_args)
{
    SHARED REAL s[WFC_THREADS];
    bool logs = A->code == WFC_LOG_SOFTMAX_GRAD;

    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);
        REAL sum = 0;

        if (row >= 0)
            for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
                int64_t i = R(row_at)(A, row) + (int64_t)j * A->stride;

                sum += R(get)(A->x, A->x_dtype, i) * (logs ? 1 : R(get)(A->b, A->b_dtype, i));
            }
        s[t] = sum;
    }
    SYNC();
    R(fold)(s, WFC_SUM, A->lanes, 1);
    EACH_THREAD(t)
    {
        int64_t row = R(row_of)(A, t);
        REAL sum = s[t / A->lanes * A->lanes];

        if (row >= 0)
            for (uint32_t j = (uint32_t)(t % A->lanes); j < A->n; j += (uint32_t)A->lanes) {
                int64_t i = R(row_at)(A, row) + (int64_t)j * A->stride;
                REAL dy = R(get)(A->x, A->x_dtype, i), y = R(get)(A->b, A->b_dtype, i);

                R(put)(A->y, A->y_dtype, i, logs ? dy - R(exp)(y) * sum : y * (dy - sum));
            }
    }
}

/* ---- normalization --------------------------------------------------------------------------- */

DEV int64_t R(norm_at)(const struct wfc_norm *A, int64_t set, uint32_t k)
{
    int64_t o = set / A->n_groups, g = set % A->n_groups;
    uint32_t s = k / A->n_in_group, i = k - s * A->n_in_group;

    return ((o * A->n_space + s) * A->n_groups + g) * A->n_in_group + i;
}

DEV int64_t R(norm_set)(const struct wfc_norm *A, int t)
{
    int64_t set = BX * (NT / A->lanes) + t / A->lanes;

    return set < (int64_t)A->n_outer * A->n_groups ? set : -1;
}

DEV REAL R(norm_param)(const void *p, int dtype, int64_t channel, REAL absent)
{
    return p ? R(get)(p, dtype, channel) : absent;
}

KERNEL(R(wfc_norm), wfc_norm)
{
    SHARED REAL s[WFC_THREADS], mean[WFC_THREADS], rstd[WFC_THREADS];
    uint32_t n = A->n_space * A->n_in_group;

    EACH_THREAD(t)
    {
        int64_t set = R(norm_set)(A, t);
        REAL sum = 0;

        if (set >= 0 && A->centered)
            for (uint32_t k = (uint32_t)(t % A->lanes); k < n; k += (uint32_t)A->lanes)
                sum += R(get)(A->x, A->dtype, R(norm_at)(A, set, k));
        s[t] = sum;
    }
    SYNC();
    R(fold)(s, WFC_SUM, A->lanes, 1);
    EACH_THREAD(t)
    {
        mean[t] = n && A->centered ? s[t / A->lanes * A->lanes] / (REAL)n : 0;
    }
    SYNC();
    EACH_THREAD(t)
    {
        int64_t set = R(norm_set)(A, t);
        REAL sum = 0;

        if (set >= 0)
            for (uint32_t k = (uint32_t)(t % A->lanes); k < n; k += (uint32_t)A->lanes) {
                REAL d = R(get)(A->x, A->dtype, R(norm_at)(A, set, k)) - mean[t];

                sum += d * d;
            }
        s[t] = sum;
    }
    SYNC();
    R(fold)(s, WFC_SUM, A->lanes, 1);
    EACH_THREAD(t)
    {
        int64_t set = R(norm_set)(A, t);
        REAL var = n ? s[t / A->lanes * A->lanes] / (REAL)n : 0;

        rstd[t] = 1 / R(sqrt)(var + (REAL)A->epsilon);
        if (set >= 0 && t % A->lanes == 0) {
            if (A->centered)
                R(put)(A->mean, A->stat_dtype, set, mean[t]);
            R(put)(A->spread, A->stat_dtype, set, A->want_var ? var : rstd[t]);
        }
    }
    EACH_THREAD(t)
    {
        int64_t set = R(norm_set)(A, t);

        if (set >= 0)
            for (uint32_t k = (uint32_t)(t % A->lanes); k < n; k += (uint32_t)A->lanes) {
                int64_t at = R(norm_at)(A, set, k), channel = at % A->n_channels;

                R(put)
                (A->y, A->dtype, at,
                 (R(get)(A->x, A->dtype, at) - mean[t]) * rstd[t] *
                         R(norm_param)(A->gamma, A->param_dtype, channel, 1) +
                     R(norm_param)(A->beta, A->param_dtype, channel, 0));
            }
    }
}

DEV REAL R(norm_rstd)(const struct wfc_norm *A, int64_t set)
{
    REAL v = R(get)(A->spread_in, A->stat_dtype, set);

    return A->want_var ? 1 / R(sqrt)(v + (REAL)A->epsilon) : v;
}

DEV REAL R(norm_mean)(const struct wfc_norm *A, int64_t set)
{
    return A->centered ? R(get)(A->mean_in, A->stat_dtype, set) : 0;
}

KERNEL(R(wfc_norm_grad), wfc_norm)
{
    SHARED REAL g_sum[WFC_THREADS], gh_sum[WFC_THREADS];
    uint32_t n = A->n_space * A->n_in_group;

    EACH_THREAD(t)
    {
        int64_t set = R(norm_set)(A, t);
        REAL gs = 0, ghs = 0;

        if (set >= 0) {
            REAL mean = R(norm_mean)(A, set), rstd = R(norm_rstd)(A, set);

            for (uint32_t k = (uint32_t)(t % A->lanes); k < n; k += (uint32_t)A->lanes) {
                int64_t at = R(norm_at)(A, set, k);
                REAL g = R(get)(A->dy, A->dtype, at) *
                         R(norm_param)(A->gamma, A->param_dtype, at % A->n_channels, 1);

                gs += A->centered ? g : 0;
                ghs += g * (R(get)(A->x, A->dtype, at) - mean) * rstd;
            }
        }
        g_sum[t] = gs;
        gh_sum[t] = ghs;
    }
    SYNC();
    R(fold)(g_sum, WFC_SUM, A->lanes, 1);
    R(fold)(gh_sum, WFC_SUM, A->lanes, 1);
    EACH_THREAD(t)
    {
        int64_t set = R(norm_set)(A, t);
        int first = t / A->lanes * A->lanes;

        if (set >= 0) {
            REAL mean = R(norm_mean)(A, set), rstd = R(norm_rstd)(A, set);

            for (uint32_t k = (uint32_t)(t % A->lanes); k < n; k += (uint32_t)A->lanes) {
                int64_t at = R(norm_at)(A, set, k);
                REAL g = R(get)(A->dy, A->dtype, at) *
                         R(norm_param)(A->gamma, A->param_dtype, at % A->n_channels, 1);
                REAL h = (R(get)(A->x, A->dtype, at) - mean) * rstd;

                R(put)
                (A->y, A->dtype, at, rstd * (g - (g_sum[first] + h * gh_sum[first]) / (REAL)n));
            }
        }
    }
}

/* Partial sums of dy h and of dy for each channel: a block has 32 channels and a chunk of rows,
 * where x is [n_rows][n_channels]. part is [2][n_chunks][n_channels]. */
KERNEL(R(wfc_norm_params), wfc_norm)
{
    SHARED REAL dg[WFC_THREADS], db[WFC_THREADS];

    EACH_THREAD(t)
    {
        int64_t channel = BX * 32 + t % 32, from = BY * A->chunk;
        int64_t to = from + A->chunk < A->n_rows ? from + A->chunk : A->n_rows;
        REAL g = 0, b = 0;

        for (int64_t r = from + t / 32; r < to && channel < A->n_channels; r += NT / 32) {
            int64_t at = r * A->n_channels + channel;
            int64_t outer = at / ((int64_t)A->n_space * A->n_groups * A->n_in_group);
            int64_t set = outer * A->n_groups + at / A->n_in_group % A->n_groups;
            REAL dy = R(get)(A->dy, A->dtype, at);

            g += dy * (R(get)(A->x, A->dtype, at) - R(norm_mean)(A, set)) * R(norm_rstd)(A, set);
            b += dy;
        }
        dg[t] = g;
        db[t] = b;
    }
    SYNC();
    R(fold)(dg, WFC_SUM, NT / 32, 32);
    R(fold)(db, WFC_SUM, NT / 32, 32);
    EACH_THREAD(t)
    {
        int64_t channel = BX * 32 + t;

        if (t < 32 && channel < A->n_channels) {
            ((REAL *)A->part)[BY * A->n_channels + channel] = dg[t];
            ((REAL *)A->part)[(A->n_chunks + BY) * A->n_channels + channel] = db[t];
        }
    }
}

KERNEL(R(wfc_norm_params_end), wfc_norm)
{
    EACH_THREAD(t)
    {
        for (int64_t c = BX * NT + t; c < A->n_channels; c += GX * NT) {
            REAL g = 0, b = 0;

            for (uint32_t k = 0; k < A->n_chunks; k++) {
                g += ((const REAL *)A->part)[k * (int64_t)A->n_channels + c];
                b += ((const REAL *)A->part)[(A->n_chunks + k) * (int64_t)A->n_channels + c];
            }
            R(put)(A->dgamma, A->param_dtype, c, g);
            if (A->dbeta)
                R(put)(A->dbeta, A->param_dtype, c, b);
        }
    }
}

/* ---- products of any type -------------------------------------------------------------------- */

KERNEL(R(wfc_gemm), wfc_gemm)
{
    int64_t total = (int64_t)A->batch * A->m * A->n;

    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < total; at += GX * NT) {
            int64_t j = at % A->n, i = at / A->n % A->m, s = at / A->n / A->m;
            int64_t a0 = box_at(&A->a_batch, (uint32_t)s) * A->m * A->k,
                    b0 = box_at(&A->b_batch, (uint32_t)s) * A->k * A->n;
            REAL sum = 0;

            for (int64_t p = 0; p < A->k; p++)
                sum += R(get)(A->a, A->a_dtype, a0 + (A->ta ? p * A->m + i : i * A->k + p)) *
                       R(get)(A->b, A->b_dtype, b0 + (A->tb ? j * A->k + p : p * A->n + j));
            R(put)(A->y, A->y_dtype, at, sum);
        }
    }
}

/* ---- updates --------------------------------------------------------------------------------- */

KERNEL(R(wfc_assign), wfc_assign)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n && !troubled(&A->fault); i += GX * NT) {
            REAL v = R(get)(A->var, A->dtype, i), x = R(get)(A->value, A->dtype, i);

            R(put)
            (A->out, A->dtype, i,
             A->ema ? v * (REAL)A->momentum + x * (REAL)(1 - A->momentum) : v + x);
        }
    }
}

KERNEL(R(wfc_penalty), wfc_penalty)
{
    EACH_THREAD(t)
    {
        for (int64_t i = BX * NT + t; i < A->n; i += GX * NT) {
            REAL x = R(get)(A->w, A->dtype, i);

            R(put)
            (A->out, A->dtype, i,
             (REAL)A->l1 * (x > 0   ? 1
                            : x < 0 ? (REAL)-1
                                    : 0) +
                 2 * (REAL)A->l2 * x);
        }
    }
}

/* ---- sums by index --------------------------------------------------------------------------- */

DEV int64_t R(place_of)(const struct wfc_scatter *A, int64_t batch, uint32_t k)
{
    int64_t at = 0, base = (batch * A->k + k) * A->depth;

    for (int d = 0; d < A->depth; d++) {
        int64_t id = get_int(A->ids, A->id_dtype, base + d);

        if (id < 0 || id >= A->dim[d]) {
            set_trouble(&A->fault, WF_TROUBLE_INDEX, A->id_input, id, A->dim[d]);
            return -1;
        }
        at = at * A->dim[d] + id;
    }
    return at;
}

/* Block (k, batch and outer): nothing unless addend k is the first of its place. The flags of an
 * earlier one are gathered by the threads. */
KERNEL(R(wfc_scatter), wfc_scatter)
{
    SHARED int earlier[WFC_THREADS];
    uint32_t k = (uint32_t)BX;
    int64_t table = BY, batch = BY / A->outer, place = R(place_of)(A, batch, k);

    EACH_THREAD(t)
    {
        int found = 0;

        for (uint32_t j = (uint32_t)t; j < k && !found; j += (uint32_t)NT)
            found = R(place_of)(A, batch, j) == place;
        earlier[t] = found;
    }
    SYNC();
    for (int half = NT / 2; half > 0; half /= 2) {
        EACH_THREAD(t)
        {
            if (t < half)
                earlier[t] |= earlier[t + half];
        }
        SYNC();
    }
    EACH_THREAD(t)
    {
        if (!earlier[0] && place >= 0)
            for (uint32_t i = (uint32_t)t; i < A->inner; i += (uint32_t)NT) {
                REAL sum = 0;

                for (uint32_t j = k; j < A->k; j++)
                    if (R(place_of)(A, batch, j) == place)
                        sum += R(get)(A->x, A->dtype, (table * A->k + j) * A->inner + i);
                R(put)(A->y, A->dtype, (table * A->n + place) * A->inner + i, sum);
            }
    }
}

/* The sums of rows with the same id, of sorted keys: as wfc_apply_rows. */
KERNEL(R(wfc_sum_rows), wfc_sum_rows)
{
    EACH_THREAD(t)
    {
        uint32_t p = (uint32_t)BX * ((uint32_t)NT / A->lanes) + (uint32_t)t / A->lanes;

        if (p < A->n_ids && (p == 0 || A->keys[p - 1] >> 32 != A->keys[p] >> 32)) {
            uint64_t id = A->keys[p] >> 32;

            for (uint32_t i = (uint32_t)t % A->lanes; i < A->width; i += A->lanes) {
                REAL sum = 0;

                for (uint32_t q = p; q < A->n_ids && A->keys[q] >> 32 == id; q++)
                    sum += R(get)(A->x, A->dtype, (int64_t)(uint32_t)A->keys[q] * A->width + i);
                R(put)(A->y, A->dtype, (int64_t)id * A->width + i, sum);
            }
        }
    }
}

KERNEL(R(wfc_take_grad), wfc_take)
{
    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < A->count; at += GX * NT) {
            int64_t i = at % A->inner, p = at / A->inner % A->n, o = at / A->inner / A->n;
            REAL sum = 0;

            for (uint32_t j = 0; j < A->k; j++) {
                int64_t from = (o * A->k + j) * A->inner + i;
                int64_t id = get_int(A->ids, A->id_dtype, from);

                if (id < 0 || id >= A->n)
                    set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, id, A->n);
                if (id == p)
                    sum += R(get)(A->x, A->dtype, from);
            }
            R(put)(A->y, A->dtype, at, sum);
        }
    }
}

/* 1 over the bag's denominator, or 0. */
DEV REAL R(bag_inverse)(const struct wfc_bag *A, int64_t from, int64_t to)
{
    REAL sum = 0;

    if (A->combiner == 0)
        return 1;
    for (int64_t j = from; j < to; j++) {
        REAL w = A->weights ? R(get)(A->weights, A->weight_dtype, j) : 1;

        sum += A->combiner == 1 ? w : w * w;
    }
    if (sum == 0)
        return 0;
    return A->combiner == 1 ? 1 / sum : 1 / R(sqrt)(sum);
}

/* what: 0 rows by ids or in order to bags; 1 bags to rows. */
KERNEL(R(wfc_bag), wfc_bag)
{
    EACH_THREAD(t)
    {
        for (int64_t at = BX * NT + t; at < (int64_t)A->n_bags * A->width; at += GX * NT) {
            int64_t b = at / A->width, i = at % A->width;
            int64_t from = get_int(A->offsets, A->offset_dtype, b),
                    to = get_int(A->offsets, A->offset_dtype, b + 1);
            REAL scale, sum = 0;

            if ((b == 0 && from != 0) || from > to || to > A->n ||
                (b == A->n_bags - 1 && to != A->n) || from < 0) {
                set_trouble(&A->fault, WF_TROUBLE_INDEX, A->offsets_input, from, to + 1);
                continue;
            }
            scale = R(bag_inverse)(A, from, to);
            for (int64_t j = from; j < to; j++) {
                REAL w = A->weights ? R(get)(A->weights, A->weight_dtype, j) : 1;
                int64_t row = A->ids ? get_int(A->ids, A->id_dtype, j) : j;

                if (row < 0 || row >= A->n_rows) {
                    set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, row, A->n_rows);
                    continue;
                }
                if (A->what)
                    R(put)
                (A->y, A->dtype, j * A->width + i,
                 w * scale * R(get)(A->x, A->dtype, b * A->width + i));
                else sum += w * R(get)(A->x, A->dtype, row * A->width + i);
            }
            if (!A->what)
                R(put)(A->y, A->dtype, at, sum * scale);
        }
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

KERNEL(R(wfc_pool), wfc_pool)
{
    bool back = A->code == WFC_MAX_POOL_GRAD || A->code == WFC_AVG_POOL_GRAD;
    int64_t total = (int64_t)A->batch * (back ? A->n_in : A->n_out) * A->channels;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < total; j += GX * NT) {
            uint32_t rest = (uint32_t)(j / A->channels), n_side = back ? A->n_in : A->n_out;
            uint32_t o = rest % n_side;
            int64_t ch = j % A->channels, n = rest / n_side, best = -1, n_met = 0;
            REAL most = 0, sum = 0;

            for (uint32_t k = 0; k < A->n_k; k++) {
                int64_t i = back ? met_by(&A->w, o, k) : meets(&A->w, o, k), at;
                REAL v;

                if (i < 0)
                    continue;
                n_met++;
                at = (n * (back ? A->n_out : A->n_in) + i) * A->channels + ch;
                if (A->code == WFC_MAX_POOL_PICK) {
                    if (get_int(A->arg, A->arg_dtype, j) == k) {
                        best = k;
                        most = R(get)(A->x, A->dtype, at);
                    }
                    continue;
                }
                v = R(get)(A->x, A->dtype, at);
                if (A->code == WFC_MAX_POOL_GRAD)
                    sum += get_int(A->arg, A->arg_dtype, at) == k ? v : 0;
                else if (A->code == WFC_AVG_POOL_GRAD)
                    sum += v / (REAL)met_count(&A->w, (uint32_t)i, A->n_k);
                else if (A->code == WFC_AVG_POOL)
                    sum += v;
                else if (best < 0 || v > most || (v != v && most == most)) {
                    best = k;
                    most = v;
                }
            }
            if (A->code == WFC_MAX_POOL)
                put_int(A->arg, A->arg_dtype, j, best);
            if (A->code == WFC_MAX_POOL_PICK && best < 0)
                set_trouble(&A->fault, WF_TROUBLE_INDEX, 1, get_int(A->arg, A->arg_dtype, j),
                            A->n_k);
            R(put)
            (A->y, A->dtype, j,
             A->code == WFC_MAX_POOL || A->code == WFC_MAX_POOL_PICK ? most
             : A->code == WFC_AVG_POOL                               ? sum / (REAL)n_met
                                                                     : sum);
        }
    }
}

KERNEL(R(wfc_resize), wfc_resize)
{
    uint32_t n_in = A->in[0] * A->in[1] * A->in[2], n_out = A->out[0] * A->out[1] * A->out[2];

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < (int64_t)A->batch * n_out * A->channels; j += GX * NT) {
            int64_t ch = j % A->channels, n = j / A->channels / n_out;
            uint32_t o = (uint32_t)(j / A->channels % n_out);
            uint32_t p[3] = {o / A->out[2] / A->out[1], o / A->out[2] % A->out[1], o % A->out[2]};
            REAL sum = 0;

            for (int k = 0; k < 8; k++) {
                double weight = 1;
                int64_t i = 0;

                for (int a = 0; a < 3; a++) {
                    struct resize_at s = resize_source(A->bilinear, A->in[a], A->out[a], p[a]);
                    bool second = k >> a & 1;

                    weight *= second ? s.f : 1 - s.f;
                    i = i * A->in[a] + (second ? s.b : s.a);
                }
                if (weight != 0)
                    sum += (REAL)weight * R(get)(A->x, A->dtype, (n * n_in + i) * A->channels + ch);
            }
            R(put)(A->y, A->dtype, j, sum);
        }
    }
}

DEV REAL R(resize_share)(const struct wfc_resize *A, int a, int64_t o, int64_t i)
{
    struct resize_at s = resize_source(A->bilinear, A->in[a], A->out[a], o);

    return (s.a == i ? (REAL)(1 - s.f) : 0) + (s.b == i ? (REAL)s.f : 0);
}

KERNEL(R(wfc_resize_grad), wfc_resize)
{
    uint32_t n_in = A->in[0] * A->in[1] * A->in[2], n_out = A->out[0] * A->out[1] * A->out[2];

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < (int64_t)A->batch * n_in * A->channels; j += GX * NT) {
            int64_t ch = j % A->channels, n = j / A->channels / n_in, from[3], to[3];
            uint32_t i = (uint32_t)(j / A->channels % n_in);
            int64_t p[3] = {i / A->in[2] / A->in[1], i / A->in[2] % A->in[1], i % A->in[2]};
            REAL sum = 0;

            for (int a = 0; a < 3; a++) {
                double ratio = (double)A->out[a] / (double)A->in[a];

                from[a] = (int64_t)((double)(p[a] - 1) * ratio) - 1;
                from[a] = from[a] < 0 ? 0 : from[a];
                to[a] = (int64_t)((double)(p[a] + 2) * ratio) + 1;
                to[a] = to[a] > (int64_t)A->out[a] - 1 ? (int64_t)A->out[a] - 1 : to[a];
            }
            for (int64_t d = from[0]; d <= to[0]; d++)
                for (int64_t h = from[1]; h <= to[1]; h++)
                    for (int64_t w = from[2]; w <= to[2]; w++) {
                        REAL weight = R(resize_share)(A, 0, d, p[0]) *
                                      R(resize_share)(A, 1, h, p[1]) *
                                      R(resize_share)(A, 2, w, p[2]);
                        int64_t o = (d * A->out[1] + h) * A->out[2] + w;

                        if (weight != 0)
                            sum +=
                                weight * R(get)(A->x, A->dtype, (n * n_out + o) * A->channels + ch);
                    }
            R(put)(A->y, A->dtype, j, sum);
        }
    }
}

/* A thread for each element of the result: the definition. */
KERNEL(R(wfc_conv), wfc_conv)
{
    uint32_t ci_g = A->c_in / A->groups, co_g = A->c_out / A->groups;
    int64_t total = A->code == WFC_CONV         ? (int64_t)A->batch * A->n_out * A->c_out
                    : A->code == WFC_CONV_INPUT ? (int64_t)A->batch * A->n_in * A->c_in
                                                : (int64_t)A->n_k * ci_g * A->c_out;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < total; j += GX * NT) {
            REAL sum = 0;

            if (A->code == WFC_CONV) {
                int64_t co = j % A->c_out, n = j / A->c_out / A->n_out;
                uint32_t o = (uint32_t)(j / A->c_out % A->n_out);

                for (uint32_t k = 0; k < A->n_k; k++) {
                    int64_t i = meets(&A->w, o, k);

                    for (int64_t ci = 0; i >= 0 && ci < ci_g; ci++)
                        sum += R(get)(A->x, A->x_dtype,
                                      (n * A->n_in + i) * A->c_in + co / co_g * ci_g + ci) *
                               R(get)(A->f, A->x_dtype, (k * (int64_t)ci_g + ci) * A->c_out + co);
                }
            } else if (A->code == WFC_CONV_INPUT) {
                int64_t ci = j % A->c_in, n = j / A->c_in / A->n_in, group = ci / ci_g;
                uint32_t i = (uint32_t)(j / A->c_in % A->n_in);

                for (uint32_t k = 0; k < A->n_k; k++) {
                    int64_t o = met_by(&A->w, i, k);

                    for (int64_t co = group * co_g; o >= 0 && co < (group + 1) * co_g; co++)
                        sum += R(get)(A->x, A->x_dtype, (n * A->n_out + o) * A->c_out + co) *
                               R(get)(A->f, A->x_dtype,
                                      (k * (int64_t)ci_g + ci % ci_g) * A->c_out + co);
                }
            } else {
                int64_t co = j % A->c_out, ci = j / A->c_out % ci_g;
                uint32_t k = (uint32_t)(j / A->c_out / ci_g);

                for (int64_t n = 0; n < A->batch; n++)
                    for (uint32_t o = 0; o < A->n_out; o++) {
                        int64_t i = meets(&A->w, o, k);

                        if (i >= 0)
                            sum += R(get)(A->x, A->x_dtype,
                                          (n * A->n_in + i) * A->c_in + co / co_g * ci_g + ci) *
                                   R(get)(A->f, A->x_dtype, (n * A->n_out + o) * A->c_out + co);
                    }
            }
            R(put)(A->y, A->y_dtype, j, sum);
        }
    }
}

/* The gradient of the input from that of wfc_im2col's matrix: the sum over the windows that read an
 * element, in the order of their taps. */
KERNEL(R(wfc_col2im), wfc_conv)
{
    int64_t width = (int64_t)A->n_k * A->c_in;

    EACH_THREAD(t)
    {
        for (int64_t j = BX * NT + t; j < (int64_t)A->batch * A->n_in * A->c_in; j += GX * NT) {
            uint32_t pixel = (uint32_t)(j / A->c_in), ci = (uint32_t)(j - (int64_t)pixel * A->c_in);
            uint32_t n = pixel / A->n_in, i = pixel - n * A->n_in;
            REAL sum = 0;

            for (uint32_t k = 0; k < A->n_k; k++) {
                int64_t o = met_by(&A->w, i, k);

                if (o >= 0)
                    sum += R(get)(A->x, A->x_dtype,
                                  ((int64_t)n * A->n_out + o) * width + (int64_t)k * A->c_in + ci);
            }
            R(put)(A->y, A->y_dtype, j, sum);
        }
    }
}
