/* attention_kernel.c - the rows of attention: softmax with a running maximum, and its gradient.
 *
 * Compiled once per SIMD level. Sums of a row are taken in vectors from its first column on,
 * then across lanes. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd/math_inl.h"

static int64_t valid_columns(const struct wf_attention_rows *r, int64_t row)
{
    int64_t n = r->n_valid + row * r->valid_step;

    return n < 0 ? 0 : n > r->n ? r->n : n;
}

/* scale * s + bias at column j; lanes beyond w are 0. */
WF_SIMD_INLINE vf score(const float *s, const float *bias, int64_t j, int64_t w, vf scale)
{
    vf x = w < VF_N ? vf_loadn(s + j, w) : vf_load(s + j);

    if (!bias)
        return vf_mul(x, scale);
    return vf_fma(x, scale, w < VF_N ? vf_loadn(bias + j, w) : vf_load(bias + j));
}

/* The largest score, -inf if there is none; NaN if one is NaN. */
WF_SIMD_INLINE float row_max(const float *s, const float *bias, int64_t n, vf scale)
{
    const vf low = vf_set1(-__builtin_inff());
    vf max = low, nan = vf_zero();
    int64_t j = 0;

    for (; j + VF_N <= n; j += VF_N) {
        vf x = score(s, bias, j, VF_N, scale);

        max = vf_max2(max, x);
        nan = vf_add(nan, vf_keep(vm_isnan(x), x));
    }
    if (j < n) {
        vf x = vf_select(vm_first(n - j), score(s, bias, j, n - j, scale), low);

        max = vf_max2(max, x);
        nan = vf_add(nan, vf_keep(vm_isnan(x), x));
    }
    return vm_any(vm_isnan(nan)) ? __builtin_nanf("") : vf_hmax2(max);
}

/* s = exp(score - max) for n columns, 0 up to n_all; returns the sum. */
WF_SIMD_INLINE float row_exp(float *s, const float *bias, int64_t n, int64_t n_all, vf scale,
                             float max)
{
    const vf m = vf_set1(max);
    vf sum = vf_zero();
    int64_t j = 0;

    for (; j + VF_N <= n; j += VF_N) {
        vf p = vexp_neg(vf_sub(score(s, bias, j, VF_N, scale), m));

        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    for (; j < n_all; j += VF_N) {
        int64_t w = n_all - j < VF_N ? n_all - j : VF_N;
        vf p = vf_keep(vm_first(n - j), vexp_neg(vf_sub(score(s, bias, j, w, scale), m)));

        vf_storen(s + j, p, w);
        sum = vf_add(sum, p);
    }
    return vf_hsum(sum);
}

static void scale_row(float *y, int64_t n, float by)
{
    for (int64_t j = 0; j < n; j += VF_N) {
        int64_t w = n - j < VF_N ? n - j : VF_N;

        vf_storen(y + j, vf_mul(vf_loadn(y + j, w), vf_set1(by)), w);
    }
}

/* exp of one number, with the same instructions as for the rows. */
static float exp1(float x)
{
    float out[VF_N];

    vf_store(out, vexp_neg(vf_set1(x)));
    return out[0];
}

static void softmax(const struct wf_attention_rows *r)
{
    const vf scale = vf_set1(r->scale);

    for (int64_t i = 0; i < r->n_rows; i++) {
        const float *bias = r->bias ? r->bias + i * r->bias_ld : NULL;
        float *s = r->s + i * r->ld, max, sum = 0;
        int64_t n = valid_columns(r, i);

        max = row_max(s, bias, n, scale);
        if (!r->first && !(max > r->max[i]) && !(max != max))
            max = r->max[i];
        if (max == -__builtin_inff()) { /* nothing to attend to so far */
            memset(s, 0, sizeof *s * (size_t)r->n);
        } else {
            sum = row_exp(s, bias, n, r->n, scale, max);
        }
        if (!r->first && r->max[i] != max) {
            float by = exp1(r->max[i] - max);

            scale_row(r->y + i * r->y_ld, r->dv, by);
            sum += r->sum[i] * by;
        } else if (!r->first) {
            sum += r->sum[i];
        }
        r->max[i] = max;
        r->sum[i] = sum;
    }
}

static void finish(const struct wf_attention_rows *r, float *lse)
{
    for (int64_t i = 0; i < r->n_rows; i += VF_N) {
        int64_t w = r->n_rows - i < VF_N ? r->n_rows - i : VF_N;

        vf_storen(lse + i, vf_add(vf_loadn(r->max + i, w), vlog(vf_loadn(r->sum + i, w))), w);
    }
    for (int64_t i = 0; i < r->n_rows; i++)
        if (r->sum[i] != 0)
            scale_row(r->y + i * r->y_ld, r->dv, 1.0f / r->sum[i]);
}

static void grad(const struct wf_attention_rows *r)
{
    const vf scale = vf_set1(r->scale);

    for (int64_t i = 0; i < r->n_rows; i++) {
        const float *bias = r->bias ? r->bias + i * r->bias_ld : NULL;
        float *s = r->s + i * r->ld, *ds = r->ds + i * r->ld;
        /* a row without keys has p = 0 */
        const vf lse = vf_set1(r->lse[i] == -__builtin_inff() ? __builtin_inff() : r->lse[i]);
        const vf delta = vf_set1(r->delta[i]);
        int64_t n = valid_columns(r, i), j = 0;

        for (; j + VF_N <= n; j += VF_N) {
            vf p = vexp(vf_sub(score(s, bias, j, VF_N, scale), lse));

            vf_store(s + j, p);
            vf_store(ds + j, vf_mul(vf_mul(p, vf_sub(vf_load(ds + j), delta)), scale));
        }
        for (; j < r->n; j += VF_N) {
            int64_t w = r->n - j < VF_N ? r->n - j : VF_N;
            vm in = vm_first(n - j);
            vf p = vf_keep(in, vexp(vf_sub(score(s, bias, j, w, scale), lse)));
            vf d = vf_keep(in, vf_mul(vf_mul(p, vf_sub(vf_loadn(ds + j, w), delta)), scale));

            vf_storen(s + j, p, w);
            vf_storen(ds + j, d, w);
        }
    }
}

static void dots(float *out, int64_t n_rows, int64_t n, const float *a, int64_t a_ld,
                 const float *b, int64_t b_ld)
{
    for (int64_t i = 0; i < n_rows; i++) {
        vf sum = vf_zero();

        for (int64_t j = 0; j < n; j += VF_N) {
            int64_t w = n - j < VF_N ? n - j : VF_N;

            sum = vf_fma(vf_loadn(a + i * a_ld + j, w), vf_loadn(b + i * b_ld + j, w), sum);
        }
        out[i] = vf_hsum(sum);
    }
}

extern const struct wf_attention_fns WF_LEVELED(wf_attention_fns);
const struct wf_attention_fns WF_LEVELED(wf_attention_fns) = {
    .softmax = softmax,
    .finish = finish,
    .grad = grad,
    .dots = dots,
};
