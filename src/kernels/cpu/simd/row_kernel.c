/* row_kernel.c - softmax and cross-entropy on rows, at one SIMD level.
 *
 * Rows are done in groups of VF_N so that what is needed once per row (a logarithm, a division) is
 * done for the whole group in one vector. Narrow rows are transposed first: a vector then has one
 * column of the group, and nothing is folded across lanes. Either way each row is computed
 * separately: groups do not affect results. */
#include "kernels/cpu/rowops.h"
#include "kernels/cpu/simd/cols_inl.h"
#include "kernels/cpu/simd/math_inl.h"
#include "kernels/cpu/simd/trans_inl.h"

#define NEG_INF (-__builtin_inff())

/* The first n elements, -inf in the other lanes: neutral for the maximum, zero after exp. */
WF_SIMD_INLINE vf load_low(const float *p, int64_t n)
{
    return n >= VF_N ? vf_load(p) : vf_select(vm_first(n), vf_loadn(p, n), vf_set1(NEG_INF));
}

/* ---- passes over one row ----------------------------------------------------------------- */

/* The maximum; a NaN may be lost, but comes back through exp. */
WF_SIMD_INLINE float row_max(const float *x, int64_t n)
{
    vf m0 = vf_set1(NEG_INF), m1 = m0, m2 = m0, m3 = m0;
    int64_t i = 0;

    for (; i + 4 * VF_N <= n; i += 4 * VF_N) {
        m0 = vf_max2(m0, vf_load(x + i));
        m1 = vf_max2(m1, vf_load(x + i + VF_N));
        m2 = vf_max2(m2, vf_load(x + i + 2 * VF_N));
        m3 = vf_max2(m3, vf_load(x + i + 3 * VF_N));
    }
    for (; i + VF_N <= n; i += VF_N)
        m0 = vf_max2(m0, vf_load(x + i));
    if (i < n)
        m1 = vf_max2(m1, load_low(x + i, n - i));
    return vf_hmax2(vf_max2(vf_max2(m0, m1), vf_max2(m2, m3)));
}

/* The sum of exp(x - m); the terms go to y unless it is NULL. */
WF_SIMD_INLINE float row_exp(const float *x, int64_t n, float m, float *y)
{
    vf max = vf_set1(m), s0 = vf_zero(), s1 = vf_zero();
    int64_t i = 0;

    for (; i + 2 * VF_N <= n; i += 2 * VF_N) {
        vf e0 = vexp_neg(vf_load(x + i) - max), e1 = vexp_neg(vf_load(x + i + VF_N) - max);

        s0 = s0 + e0;
        s1 = s1 + e1;
        if (y) {
            vf_store(y + i, e0);
            vf_store(y + i + VF_N, e1);
        }
    }
    for (; i < n; i += VF_N) {
        int64_t left = n - i;
        vf e = vexp_neg(load_low(x + i, left) - max);

        s0 = s0 + e;
        if (y)
            vf_store_to(y + i, e, left);
    }
    return vf_hsum(s0 + s1);
}

WF_SIMD_INLINE void row_scale(float *y, int64_t n, float by)
{
    vf k = vf_set1(by);
    int64_t i = 0;

    for (; i + VF_N <= n; i += VF_N)
        vf_store(y + i, vf_load(y + i) * k);
    if (i < n)
        vf_storen(y + i, vf_loadn(y + i, n - i) * k, n - i);
}

/* ---- groups of rows ---------------------------------------------------------------------- */

/* The rows of a group: maxima, sums of exp; for narrow rows also the columns. */
struct group {
    float max[VF_N], sum[VF_N];
    vf col[WF_NARROW];
};

WF_SIMD_INLINE vf narrow_max(const vf *col, int64_t width)
{
    vf max = col[0];

    for (int64_t c = 1; c < width; c++)
        max = vf_max2(max, col[c]);
    return max;
}

/* The sum of exp(col - max), which replace the columns. */
WF_SIMD_INLINE vf narrow_exp(vf *col, int64_t width, vf max)
{
    vf sum = vf_zero();

    for (int64_t c = 0; c < width; c++) {
        col[c] = vexp_neg(col[c] - max);
        sum = sum + col[c];
    }
    return sum;
}

/* The maxima of n <= VF_N rows. */
WF_SIMD_INLINE void group_max(struct group *g, int64_t n, int64_t width, const float *x)
{
    if (width <= WF_NARROW && width > 0) {
        wf_narrow_load(g->col, n, width, x);
        vf_store(g->max, narrow_max(g->col, width));
        return;
    }
    for (int64_t r = 0; r < n; r++)
        g->max[r] = row_max(x + r * width, width);
}

/* After group_max: the sums of exp(x - max). The terms stay in g->col (narrow rows) or go to y (if
 * not NULL). */
WF_SIMD_INLINE void group_exp(struct group *g, int64_t n, int64_t width, const float *x, float *y)
{
    if (width <= WF_NARROW) {
        vf_store(g->sum, narrow_exp(g->col, width, vf_load(g->max)));
        return;
    }
    for (int64_t r = 0; r < n; r++)
        g->sum[r] = row_exp(x + r * width, width, g->max[r], y ? y + r * width : NULL);
}

/* y = terms * by[row] */
WF_SIMD_INLINE void group_scale(struct group *g, int64_t n, int64_t width, const float *by,
                                float *y)
{
    if (width <= WF_NARROW) {
        for (int64_t c = 0; c < width; c++)
            g->col[c] = g->col[c] * vf_load(by);
        wf_narrow_store(g->col, n, width, y);
        return;
    }
    for (int64_t r = 0; r < n; r++)
        row_scale(y + r * width, width, by[r]);
}

static void softmax(int64_t n_rows, int64_t width, const float *x, float *y)
{
    struct group g;
    float inverse[VF_N];

    for (int64_t r = 0; r < n_rows; r += VF_N, x += VF_N * width, y += VF_N * width) {
        int64_t n = n_rows - r < VF_N ? n_rows - r : VF_N;

        group_max(&g, n, width, x);
        group_exp(&g, n, width, x, y);
        vf_store(inverse, vf_set1(1.0f) / vf_loadn(g.sum, n));
        group_scale(&g, n, width, inverse, y);
    }
}

static void log_softmax(int64_t n_rows, int64_t width, const float *x, float *y)
{
    struct group g;
    float log_sum[VF_N];

    for (int64_t r = 0; r < n_rows; r += VF_N, x += VF_N * width, y += VF_N * width) {
        int64_t n = n_rows - r < VF_N ? n_rows - r : VF_N;

        group_max(&g, n, width, x);
        group_exp(&g, n, width, x, NULL);
        vf_store(log_sum, vlog(vf_loadn(g.sum, n)));
        for (int64_t j = 0; j < n; j++) {
            vf max = vf_set1(g.max[j]), l = vf_set1(log_sum[j]);

            for (int64_t c = 0; c < width; c += VF_N) {
                int64_t left = width - c;

                vf_store_to(y + j * width + c, (vf_load_to(x + j * width + c, left) - max) - l,
                            left);
            }
        }
    }
}

static void logsumexp(int64_t n_rows, int64_t width, const float *x, float *out)
{
    struct group g;

    for (int64_t r = 0; r < n_rows; r += VF_N, x += VF_N * width) {
        int64_t n = n_rows - r < VF_N ? n_rows - r : VF_N;
        vf max, result;

        group_max(&g, n, width, x);
        group_exp(&g, n, width, x, NULL);
        max = vf_loadn(g.max, n);
        result = max + vlog(vf_loadn(g.sum, n));
        /* An infinite maximum is itself the result, unless the row also has a NaN. */
        for (int64_t j = 0; j < n; j++)
            if (vf_abs(vf_set1(g.max[j]))[0] == __builtin_inff()) {
                int nan = 0;

                for (int64_t c = 0; c < width; c++)
                    nan |= x[j * width + c] != x[j * width + c];
                if (!nan)
                    result[j] = g.max[j];
            }
        vf_storen(out + r, result, n);
    }
}

/* ---- gradients --------------------------------------------------------------------------- */

static void softmax_grad(int64_t n_rows, int64_t width, const float *y, const float *dy, float *dx)
{
    for (int64_t r = 0; r < n_rows; r++, y += width, dy += width, dx += width) {
        vf sum0 = vf_zero(), sum1 = vf_zero(), dot;
        int64_t c = 0;

        for (; c + 2 * VF_N <= width; c += 2 * VF_N) {
            sum0 = vf_fma(vf_load(y + c), vf_load(dy + c), sum0);
            sum1 = vf_fma(vf_load(y + c + VF_N), vf_load(dy + c + VF_N), sum1);
        }
        for (; c < width; c += VF_N) {
            int64_t left = width - c;

            sum0 = vf_fma(vf_load_to(y + c, left), vf_load_to(dy + c, left), sum0);
        }
        dot = vf_set1(vf_hsum(sum0 + sum1));
        for (c = 0; c + VF_N <= width; c += VF_N)
            vf_store(dx + c, vf_load(y + c) * (vf_load(dy + c) - dot));
        if (c < width)
            vf_storen(dx + c, vf_loadn(y + c, width - c) * (vf_loadn(dy + c, width - c) - dot),
                      width - c);
    }
}

static void log_softmax_grad(int64_t n_rows, int64_t width, const float *y, const float *dy,
                             float *dx)
{
    for (int64_t r = 0; r < n_rows; r++, y += width, dy += width, dx += width) {
        vf sum0 = vf_zero(), sum1 = vf_zero(), sum;
        int64_t c = 0;

        for (; c + 2 * VF_N <= width; c += 2 * VF_N) {
            sum0 = sum0 + vf_load(dy + c);
            sum1 = sum1 + vf_load(dy + c + VF_N);
        }
        for (; c < width; c += VF_N)
            sum0 = sum0 + vf_load_to(dy + c, width - c);
        sum = vf_set1(vf_hsum(sum0 + sum1));
        for (c = 0; c + VF_N <= width; c += VF_N)
            vf_store(dx + c, vf_fnma(vexp_neg(vf_load(y + c)), sum, vf_load(dy + c)));
        if (c < width)
            vf_storen(
                dx + c,
                vf_fnma(vexp_neg(vf_loadn(y + c, width - c)), sum, vf_loadn(dy + c, width - c)),
                width - c);
    }
}

/* ---- cross-entropies --------------------------------------------------------------------- */

static int64_t label_at(const struct wf_xent *p, int64_t r)
{
    return p->wide ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r];
}

/* The factor of each gradient row of a group. */
WF_SIMD_INLINE void group_factors(const struct wf_xent *p, int64_t r, int64_t n, float *s)
{
    vf scale = vf_set1(p->scale);

    vf_store(s, p->row_scale ? scale * vf_loadn(p->row_scale + r, n) : scale);
}

/* Labels of a group: those ignored or out of range become -1; returns the first one out of
 * range. */
WF_SIMD_INLINE int64_t group_labels(const struct wf_xent *p, int64_t r, int64_t n, int64_t *label)
{
    int64_t bad = -1;

    for (int64_t j = n; j-- > 0;) {
        label[j] = label_at(p, r + j);
        if (p->has_ignore && label[j] == p->ignore) {
            label[j] = -1;
        } else if (label[j] < 0 || label[j] >= p->width) {
            label[j] = -1;
            bad = r + j;
        }
    }
    return bad;
}

/* Labels of a group of narrow rows in one vector, -1 if ignored or out of range. */
WF_SIMD_INLINE vi narrow_labels(const struct wf_xent *p, int64_t r, int64_t n, int64_t *bad)
{
    int64_t label[VF_N];
    int32_t narrow[VF_N];

    if (!p->wide && !p->has_ignore) {
        vi l = vi_loadn((const int32_t *)p->labels + r, n);
        vm in = vm_and(vm_gti(vi_set1((int32_t)p->width), l), vm_gti(l, vi_set1(-1)));
        uint32_t out = vm_bits(vm_not(in)) & ((1u << n) - 1u);

        if (!out)
            return l;
    }
    *bad = group_labels(p, r, n, label);
    for (int64_t j = 0; j < VF_N; j++)
        narrow[j] = j < n ? (int32_t)label[j] : -1;
    return vi_load(narrow);
}

static int64_t xent_sparse_narrow(const struct wf_xent *p, int64_t begin, int64_t end)
{
    int64_t width = p->width, bad = -1;
    vf col[WF_NARROW];

    for (int64_t r = begin; r < end; r += VF_N) {
        int64_t n = end - r < VF_N ? end - r : VF_N, bad_here = -1;
        vi label = narrow_labels(p, r, n, &bad_here);
        vm counts = vm_gti(label, vi_set1(-1));
        vf max, sum, k, s = vf_set1(p->scale), picked = vf_zero();

        if (bad < 0)
            bad = bad_here;
        wf_narrow_load(col, n, width, p->x + r * width);
        max = narrow_max(col, width);
        for (int64_t c = 0; c < width; c++)
            picked = vf_select(vm_eqi(label, vi_set1((int32_t)c)), col[c], picked);
        sum = narrow_exp(col, width, max);
        if (p->loss)
            vf_store_to(p->loss + r, vf_keep(counts, vlog(sum) - (picked - max)), n);
        if (!p->dx)
            continue;
        if (p->row_scale)
            s = s * vf_load_to(p->row_scale + r, n);
        k = s / sum;
        for (int64_t c = 0; c < width; c++) {
            vf hot = vf_keep(vm_eqi(label, vi_set1((int32_t)c)), s);

            col[c] = vf_keep(counts, vf_fms(col[c], k, hot));
        }
        wf_narrow_store(col, n, width, p->dx + r * width);
    }
    return bad;
}

static int64_t xent_sparse(const struct wf_xent *p, int64_t begin, int64_t end)
{
    int64_t width = p->width, bad = -1;
    struct group g;

    if (width <= WF_NARROW)
        return xent_sparse_narrow(p, begin, end);
    for (int64_t r = begin; r < end; r += VF_N) {
        int64_t n = end - r < VF_N ? end - r : VF_N, label[VF_N],
                bad_here = group_labels(p, r, n, label);
        const float *x = p->x + r * width;
        float *dx = p->dx ? p->dx + r * width : NULL, s[VF_N], inverse[VF_N], picked[VF_N];
        vf sum;

        if (bad < 0)
            bad = bad_here;
        for (int64_t j = 0; j < n; j++) /* before dx, which may be x, is written */
            picked[j] = label[j] < 0 ? 0.0f : x[j * width + label[j]];
        group_max(&g, n, width, x);
        group_exp(&g, n, width, x, dx);
        sum = vf_loadn(g.sum, n);
        if (p->loss)
            vf_storen(p->loss + r, vlog(sum) - (vf_loadn(picked, n) - vf_loadn(g.max, n)), n);
        if (dx) {
            group_factors(p, r, n, s);
            vf_store(inverse, vf_load(s) / sum);
            group_scale(&g, n, width, inverse, dx);
        }
        for (int64_t j = 0; j < n; j++) {
            if (label[j] >= 0) {
                if (dx)
                    dx[j * width + label[j]] -= s[j];
                continue;
            }
            if (p->loss)
                p->loss[r + j] = 0.0f;
            if (dx)
                memset(dx + j * width, 0, (size_t)width * sizeof *dx);
        }
    }
    return bad;
}

/* sum t and sum t (x - m) of one row. */
WF_SIMD_INLINE void dense_sums(int64_t width, const float *x, const float *t, float max,
                               float *t_sum, float *tx_sum)
{
    vf ts = vf_zero(), txs = vf_zero(), m = vf_set1(max);

    for (int64_t c = 0; c < width; c += VF_N) {
        int64_t left = width - c;
        vf tv = vf_load_to(t + c, left), product = tv * (vf_load_to(x + c, left) - m);

        ts = ts + tv;
        txs = txs + vf_keep(vm_ne(tv, vf_zero()), product);
    }
    *t_sum = vf_hsum(ts);
    *tx_sum = vf_hsum(txs);
}

static void xent_dense(const struct wf_xent *p, int64_t begin, int64_t end)
{
    int64_t width = p->width;
    struct group g;

    for (int64_t r = begin; r < end; r += VF_N) {
        int64_t n = end - r < VF_N ? end - r : VF_N;
        const float *x = p->x + r * width, *t = p->targets + r * width;
        float *dx = p->dx ? p->dx + r * width : NULL;
        float t_sum[VF_N], tx_sum[VF_N], s[VF_N], inverse[VF_N];

        group_max(&g, n, width, x);
        for (int64_t j = 0; j < n; j++) /* before dx, which may be x, is written */
            dense_sums(width, x + j * width, t + j * width, g.max[j], &t_sum[j], &tx_sum[j]);
        group_exp(&g, n, width, x, dx);
        if (p->loss)
            vf_storen(p->loss + r,
                      vf_fms(vlog(vf_loadn(g.sum, n)), vf_loadn(t_sum, n), vf_loadn(tx_sum, n)), n);
        if (!dx)
            continue;
        group_factors(p, r, n, s);
        vf_store(inverse, vf_load(s) * vf_loadn(t_sum, n) / vf_loadn(g.sum, n));
        group_scale(&g, n, width, inverse, dx);
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < width; c += VF_N) {
                int64_t left = width - c;
                float *d = dx + j * width + c;

                vf_store_to(d,
                            vf_fnma(vf_load_to(t + j * width + c, left), vf_set1(s[j]),
                                    vf_load_to(d, left)),
                            left);
            }
    }
}

static void xent_sigmoid(const struct wf_sigmoid_xent *p, int64_t begin, int64_t end)
{
    vf one = vf_set1(1.0f), scale = vf_set1(p->scale);

    for (int64_t i = begin; i < end; i += VF_N) {
        int64_t left = end - i;
        vf x = vf_load_to(p->x + i, left), t = vf_load_to(p->targets + i, left);
        vf e = vexp_neg(vf_neg(vf_abs(x)));

        if (p->loss)
            vf_store_to(p->loss + i, vf_fnma(x, t, vf_max2(vf_zero(), x)) + vlog1p(e), left);
        if (p->dx) {
            vf sigmoid = vf_select(vm_lt(x, vf_zero()), e, one) / (one + e);
            vf s = p->weight ? scale * vf_load_to(p->weight + i, left) : scale;

            vf_store_to(p->dx + i, (sigmoid - t) * s, left);
        }
    }
}

const struct wf_row_fns WF_LEVELED(wf_row_fns) = {
    .softmax = softmax,
    .log_softmax = log_softmax,
    .logsumexp = logsumexp,
    .softmax_grad = softmax_grad,
    .log_softmax_grad = log_softmax_grad,
    .xent_sparse = xent_sparse,
    .xent_dense = xent_dense,
    .xent_sigmoid = xent_sigmoid,
};
