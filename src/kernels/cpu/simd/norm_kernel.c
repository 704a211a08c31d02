/* norm_kernel.c - normalization of one tile, at one SIMD level. */
#include "kernels/cpu/norm.h"
#include "kernels/cpu/simd/cols_inl.h"

/* ---- rows -------------------------------------------------------------------------------- */

WF_SIMD_INLINE float row_sum(const float *x, int64_t n)
{
    vf s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();
    int64_t i = 0;

    for (; i + 4 * VF_N <= n; i += 4 * VF_N) {
        s0 = s0 + vf_load(x + i);
        s1 = s1 + vf_load(x + i + VF_N);
        s2 = s2 + vf_load(x + i + 2 * VF_N);
        s3 = s3 + vf_load(x + i + 3 * VF_N);
    }
    for (; i < n; i += VF_N)
        s0 = s0 + vf_load_to(x + i, n - i);
    return vf_hsum((s0 + s1) + (s2 + s3));
}

/* The sum of (x - mean)^2. */
WF_SIMD_INLINE float row_square_sum(const float *x, int64_t n, float mean)
{
    vf m = vf_set1(mean), s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();
    int64_t i = 0;

    for (; i + 4 * VF_N <= n; i += 4 * VF_N) {
        vf d0 = vf_load(x + i) - m, d1 = vf_load(x + i + VF_N) - m;
        vf d2 = vf_load(x + i + 2 * VF_N) - m, d3 = vf_load(x + i + 3 * VF_N) - m;

        s0 = vf_fma(d0, d0, s0);
        s1 = vf_fma(d1, d1, s1);
        s2 = vf_fma(d2, d2, s2);
        s3 = vf_fma(d3, d3, s3);
    }
    for (; i + VF_N <= n; i += VF_N) {
        vf d = vf_load(x + i) - m;

        s0 = vf_fma(d, d, s0);
    }
    if (i < n) {
        vf d = vf_keep(vm_first(n - i), vf_loadn(x + i, n - i) - m);

        s1 = vf_fma(d, d, s1);
    }
    return vf_hsum((s0 + s1) + (s2 + s3));
}

WF_SIMD_INLINE void layer_column(const struct wf_layer_norm *p, const float *x, float *y, int64_t c,
                                 int64_t left, vf mean, vf rstd)
{
    vf h = (vf_load_to(x + c, left) - mean) * rstd;

    if (p->gamma)
        h = p->beta ? vf_fma(h, vf_load_to(p->gamma + c, left), vf_load_to(p->beta + c, left))
                    : h * vf_load_to(p->gamma + c, left);
    else if (p->beta)
        h = h + vf_load_to(p->beta + c, left);
    vf_store_to(y + c, h, left);
}

/* Four rows at a time: while one waits for its sum to be folded, the others add. */
static void layer(const struct wf_layer_norm *p, int64_t begin, int64_t end)
{
    enum { ROWS = 4 };
    int64_t n = p->width;
    float count = n ? (float)n : 1.0f; /* rows without elements have mean and variance 0 */

    for (int64_t r = begin; r < end; r += ROWS) {
        int n_rows = end - r < ROWS ? (int)(end - r) : ROWS;
        float mean[ROWS], rstd[ROWS];

        for (int j = 0; j < n_rows; j++)
            mean[j] = p->rms ? 0.0f : row_sum(p->x + (r + j) * n, n) / count;
        for (int j = 0; j < n_rows; j++)
            rstd[j] = row_square_sum(p->x + (r + j) * n, n, mean[j]) / count + p->eps;
        for (int j = 0; j < n_rows; j++) {
            const float *x = p->x + (r + j) * n;
            float *y = p->y + (r + j) * n;
            int64_t c = 0;

            rstd[j] = 1.0f / __builtin_sqrtf(rstd[j]);
            for (; c + VF_N <= n; c += VF_N)
                layer_column(p, x, y, c, VF_N, vf_set1(mean[j]), vf_set1(rstd[j]));
            if (c < n)
                layer_column(p, x, y, c, n - c, vf_set1(mean[j]), vf_set1(rstd[j]));
            if (p->mean && !p->rms)
                p->mean[r + j] = mean[j];
            if (p->rstd)
                p->rstd[r + j] = rstd[j];
        }
    }
}

enum { GRAD_ROWS = 4 }; /* rows that share one pass over the sums of their columns */

/* What the gradient of a row needs: its mean and rstd, and the averages of dy gamma and dy gamma
 * xhat. */
struct row_consts {
    float mean, rstd, avg, avg_hat;
};

WF_SIMD_INLINE void layer_grad_sums(const struct wf_layer_norm_grad *p, int64_t r,
                                    struct row_consts *k)
{
    int64_t n = p->width, c = 0;
    const float *x = p->x + r * n, *dy = p->dy + r * n;
    vf m, rstd, s0 = vf_zero(), s1 = vf_zero(), h0 = vf_zero(), h1 = vf_zero();

    k->mean = p->rms ? 0.0f : p->mean[r];
    k->rstd = p->rstd[r];
    m = vf_set1(k->mean);
    rstd = vf_set1(k->rstd);
    for (; c + 2 * VF_N <= n; c += 2 * VF_N) {
        vf d0 = vf_load(dy + c), d1 = vf_load(dy + c + VF_N);

        if (p->gamma) {
            d0 = d0 * vf_load(p->gamma + c);
            d1 = d1 * vf_load(p->gamma + c + VF_N);
        }
        s0 = s0 + d0;
        s1 = s1 + d1;
        h0 = vf_fma(d0, (vf_load(x + c) - m) * rstd, h0);
        h1 = vf_fma(d1, (vf_load(x + c + VF_N) - m) * rstd, h1);
    }
    for (; c < n; c += VF_N) {
        vf d = vf_load_to(dy + c, n - c); /* zero past the end */

        if (p->gamma)
            d = d * vf_load_to(p->gamma + c, n - c);
        s0 = s0 + d;
        h0 = vf_fma(d, (vf_load_to(x + c, n - c) - m) * rstd, h0);
    }
    k->avg = p->rms ? 0.0f : vf_hsum(s0 + s1) / (float)n;
    k->avg_hat = vf_hsum(h0 + h1) / (float)n;
}

/* dx of columns c.. of n_rows rows, with their parts of dgamma and dbeta summed. */
WF_SIMD_INLINE void layer_grad_column(const struct wf_layer_norm_grad *p, int64_t r0, int n_rows,
                                      int64_t c, int64_t left, const struct row_consts *k,
                                      float *part)
{
    int64_t n = p->width;
    vf gamma = p->gamma ? vf_load_to(p->gamma + c, left) : vf_set1(1.0f);
    vf dg = vf_zero(), db = vf_zero();

    for (int j = 0; j < n_rows; j++) {
        int64_t at = (r0 + j) * n + c;
        vf rstd = vf_set1(k[j].rstd), dy = vf_load_to(p->dy + at, left);
        vf h = (vf_load_to(p->x + at, left) - vf_set1(k[j].mean)) * rstd;
        vf d = vf_fms(dy, gamma, vf_set1(k[j].avg));

        dg = vf_fma(dy, h, dg);
        db = db + dy;
        d = vf_fnma(h, vf_set1(k[j].avg_hat), d) * rstd;
        if (p->add)
            d = d + vf_load_to(p->add + at, left);
        vf_store_to(p->dx + at, d, left);
    }
    if (part) {
        vf_store_to(part + c, vf_load_to(part + c, left) + dg, left);
        vf_store_to(part + n + c, vf_load_to(part + n + c, left) + db, left);
    }
}

static void layer_grad(const struct wf_layer_norm_grad *p, int64_t begin, int64_t end, float *part)
{
    int64_t n = p->width;

    if (part)
        memset(part, 0, (size_t)(2 * n) * sizeof *part);
    for (int64_t r = begin; r < end; r += GRAD_ROWS) {
        int n_rows = end - r < GRAD_ROWS ? (int)(end - r) : GRAD_ROWS;
        struct row_consts k[GRAD_ROWS];
        int64_t c;

        for (int j = 0; j < n_rows; j++)
            layer_grad_sums(p, r + j, &k[j]);
        for (c = 0; n_rows == GRAD_ROWS && c + VF_N <= n; c += VF_N)
            layer_grad_column(p, r, GRAD_ROWS, c, VF_N, k, part);
        for (; c < n; c += VF_N)
            layer_grad_column(p, r, n_rows, c, n - c, k, part);
    }
}

/* ---- columns ----------------------------------------------------------------------------- */

struct cols_arg {
    const float *x, *dy, *y, *mean;
};

WF_SIMD_INLINE vf term_x(const void *arg, int64_t at, int64_t c, int64_t left)
{
    (void)c;
    return vf_load_to(((const struct cols_arg *)arg)->x + at, left);
}

WF_SIMD_INLINE vf term_square(const void *arg, int64_t at, int64_t c, int64_t left)
{
    const struct cols_arg *a = arg;
    vf d = vf_load_to(a->x + at, left) - vf_load_to(a->mean + c, left);

    return d * d;
}

/* dy where the output was positive; all of it without a fused relu. */
WF_SIMD_INLINE vf load_dy(const float *dy, const float *y, int64_t at, int64_t left)
{
    vf d = vf_load_to(dy + at, left);

    return y ? vf_keep(vm_gt(vf_load_to(y + at, left), vf_zero()), d) : d;
}

WF_SIMD_INLINE vf term_dy(const void *arg, int64_t at, int64_t c, int64_t left)
{
    const struct cols_arg *a = arg;

    (void)c;
    return load_dy(a->dy, NULL, at, left);
}
WF_SIMD_INLINE vf term_dy_relu(const void *arg, int64_t at, int64_t c, int64_t left)
{
    const struct cols_arg *a = arg;

    (void)c;
    return load_dy(a->dy, a->y, at, left);
}
WF_SIMD_INLINE vf term_dyx(const void *arg, int64_t at, int64_t c, int64_t left)
{
    const struct cols_arg *a = arg;

    return load_dy(a->dy, NULL, at, left) *
           (vf_load_to(a->x + at, left) - vf_load_to(a->mean + c, left));
}
WF_SIMD_INLINE vf term_dyx_relu(const void *arg, int64_t at, int64_t c, int64_t left)
{
    const struct cols_arg *a = arg;

    return load_dy(a->dy, a->y, at, left) *
           (vf_load_to(a->x + at, left) - vf_load_to(a->mean + c, left));
}

static void stats(struct wf_cols s, const float *x, float *mean, float *m2)
{
    float pattern[VF_N * VF_N] = {0}; /* gcc cannot see that only what was written is read */
    struct cols_arg a = {.x = x};
    vf inverse = vf_set1(1.0f / (float)s.n_rows);

    wf_cols_fold(term_x, wf_join_add, &a, s.n_rows, s.n_cols, s.ld, mean);
    for (int64_t c = 0; c < s.n_cols; c += VF_N)
        vf_store_to(mean + c, vf_load_to(mean + c, s.n_cols - c) * inverse, s.n_cols - c);
    a.mean = mean;
    if (s.n_cols < VF_N) {
        for (int64_t i = 0; i < s.n_cols * VF_N; i++)
            pattern[i] = mean[i % s.n_cols];
        a.mean = pattern;
    }
    wf_cols_fold(term_square, wf_join_add, &a, s.n_rows, s.n_cols, s.ld, m2);
}

static void grad_sums(struct wf_cols s, const float *x, const float *dy, const float *y,
                      const float *mean, float *sum_dy, float *sum_dyx)
{
    struct cols_arg a = {x, dy, y, mean};

    if (y) {
        wf_cols_fold(term_dy_relu, wf_join_add, &a, s.n_rows, s.n_cols, s.ld, sum_dy);
        wf_cols_fold(term_dyx_relu, wf_join_add, &a, s.n_rows, s.n_cols, s.ld, sum_dyx);
    } else {
        wf_cols_fold(term_dy, wf_join_add, &a, s.n_rows, s.n_cols, s.ld, sum_dy);
        wf_cols_fold(term_dyx, wf_join_add, &a, s.n_rows, s.n_cols, s.ld, sum_dyx);
    }
}

/* Narrow rows are one flat run, and a per-column array repeats after `period` elements. */
struct walk {
    int64_t n_runs, run, ld, period;
};

static struct walk walk_of(struct wf_cols s)
{
    if (s.n_cols < VF_N)
        return (struct walk){1, s.n_rows * s.n_cols, 0, s.n_cols * VF_N};
    return (struct walk){s.n_rows, s.n_cols, s.ld, s.n_cols};
}

WF_SIMD_INLINE void affine_run(int64_t n, int64_t period, const float *x, const float *mean,
                               const float *scale, const float *shift, bool relu, float *y)
{
    int64_t c = 0;

    for (int64_t i = 0; i < n; i += VF_N, c = c + VF_N < period ? c + VF_N : 0) {
        int64_t left = n - i;
        vf v = vf_fma(vf_load_to(x + i, left) - vf_load_to(mean + c, left),
                      vf_load_to(scale + c, left), vf_load_to(shift + c, left));

        vf_store_to(y + i, relu ? vf_max2(vf_zero(), v) : v, left);
    }
}

static void affine(struct wf_cols s, const float *x, const float *mean, const float *scale,
                   const float *shift, bool relu, float *y)
{
    struct walk w = walk_of(s);

    for (int64_t r = 0; r < w.n_runs; r++)
        affine_run(w.run, w.period, x + r * w.ld, mean, scale, shift, relu, y + r * w.ld);
}

static void grad_dx(struct wf_cols s, const float *x, const float *dy, const float *y,
                    const float *mean, const float *k1, const float *k2, const float *k3, float *dx)
{
    struct walk w = walk_of(s);

    for (int64_t r = 0; r < w.n_runs; r++) {
        int64_t c = 0, base = r * w.ld;

        for (int64_t i = 0; i < w.run; i += VF_N, c = c + VF_N < w.period ? c + VF_N : 0) {
            int64_t left = w.run - i, at = base + i;
            vf d = vf_fms(load_dy(dy, y, at, left), vf_load_to(k1 + c, left),
                          vf_load_to(k2 + c, left));

            d = vf_fnma(vf_load_to(x + at, left) - vf_load_to(mean + c, left),
                        vf_load_to(k3 + c, left), d);
            vf_store_to(dx + at, d, left);
        }
    }
}

static void add_parts(int64_t n, int64_t stride, int64_t n_cols, const float *parts, float *out)
{
    enum { CHUNK = 64 };

    for (int64_t c = 0; c < n_cols; c += CHUNK) {
        int64_t w = n_cols - c < CHUNK ? n_cols - c : CHUNK;
        double sum[CHUNK] = {0};

        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < w; j++)
                sum[j] += parts[i * stride + c + j];
        for (int64_t j = 0; j < w; j++)
            out[c + j] = (float)sum[j];
    }
}

/* Merges the tiles' means and sums of squared distances into those of all rows; the tiles have
 * `rows` rows each, the last one what is left of n_rows. */
static void merge_stats(int64_t n_rows, int64_t rows, int64_t stride, int64_t m2_at, int64_t n_cols,
                        const float *parts, float *mean_out, float *m2_out)
{
    enum { CHUNK = 64 };

    for (int64_t c = 0; c < n_cols; c += CHUNK) {
        int64_t w = n_cols - c < CHUNK ? n_cols - c : CHUNK;
        double mean[CHUNK] = {0}, m2[CHUNK] = {0};
        const float *p = parts + c;

        for (int64_t r = 0; r < n_rows; r += rows, p += stride) {
            double here = (double)(n_rows - r < rows ? n_rows - r : rows),
                   k = here / ((double)r + here);

            for (int64_t j = 0; j < w; j++) {
                double d = p[j] - mean[j];

                mean[j] += d * k;
                m2[j] += p[m2_at + j] + d * d * (double)r * k;
            }
        }
        for (int64_t j = 0; j < w; j++) {
            mean_out[c + j] = (float)mean[j];
            m2_out[c + j] = (float)m2[j];
        }
    }
}

const struct wf_norm_fns WF_LEVELED(wf_norm_fns) = {
    .vector = VF_N,
    .layer = layer,
    .layer_grad = layer_grad,
    .stats = stats,
    .affine = affine,
    .grad_sums = grad_sums,
    .grad_dx = grad_dx,
    .add_parts = add_parts,
    .merge_stats = merge_stats,
};
