/* conv_kernel.c - pieces of convolution at one SIMD level. */
#include "kernels/cpu/conv_kernel.h"
#include "kernels/cpu/simd/block_inl.h"

/* ---- rows of pixels -------------------------------------------------------------------------- */

/* mr pixels by nv vectors of channels in registers; n_last channels of the last vector are
 * stored. */
WF_SIMD_INLINE void pixels(const int mr, const int nv, const struct wf_conv_row *r, const float *x,
                           const float *w, float *y, int64_t n_last)
{
    const int64_t step = r->step;
    const float *at[(MR + 2) / 3];
    vf acc[MR][2];

    UNROLL for (int i = 0; i < (mr + 2) / 3; i++) at[i] = x + 3 * i * step;
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = vf_zero();
    for (int64_t p = 0; p < r->k; p++, w += 2 * VF_N) {
        const int64_t offset = r->offset[p];
        vf b[2];

        UNROLL for (int j = 0; j < nv; j++) b[j] = vf_load(w + j * VF_N);
        UNROLL for (int i = 0; i < mr; i++)
        {
            /* cppcheck-suppress uninitvar ; mr is at least 1 */
            vf a = vf_load1(at[i / 3] + i % 3 * step + offset);

            UNROLL for (int j = 0; j < nv; j++) acc[i][j] = vf_fma(a, b[j], acc[i][j]);
        }
    }
    UNROLL for (int i = 0; i < mr; i++)
        UNROLL for (int j = 0; j < nv; j++) if (j == nv - 1 && n_last < VF_N)
            vf_storen(y + i * r->ldy + j * VF_N, acc[i][j], n_last);
    else vf_store(y + i * r->ldy + j * VF_N, acc[i][j]);
}

typedef void pixels_fn(const struct wf_conv_row *r, const float *x, const float *w, float *y,
                       int64_t n_last);

#define PIXELS(mr)                                                                           \
    static void pixels_##mr##_1(const struct wf_conv_row *r, const float *x, const float *w, \
                                float *y, int64_t n_last)                                    \
    {                                                                                        \
        pixels(mr, 1, r, x, w, y, n_last);                                                   \
    }                                                                                        \
    static void pixels_##mr##_2(const struct wf_conv_row *r, const float *x, const float *w, \
                                float *y, int64_t n_last)                                    \
    {                                                                                        \
        pixels(mr, 2, r, x, w, y, n_last);                                                   \
    }
#define PIXELS_ROW(mr) {pixels_##mr##_1, pixels_##mr##_2},

FOR_EACH_MR(PIXELS)

static pixels_fn *const pixels_of[MR][2] = {FOR_EACH_MR(PIXELS_ROW)};

static void row(const struct wf_conv_row *r)
{
    const int64_t n_groups = (r->n + MR - 1) / MR;

    for (int64_t c = 0; c < r->n_c; c += 2 * VF_N) {
        int64_t n_c = r->n_c - c < 2 * VF_N ? r->n_c - c : 2 * VF_N, nv = n_c > VF_N ? 2 : 1;
        const float *w = r->w + c / (2 * VF_N) * r->w_ps;

        for (int64_t g = 0, i = 0; g < n_groups; g++) {
            int64_t m = r->n * (g + 1) / n_groups - i;

            pixels_of[m - 1][nv - 1](r, r->x + i * r->step, w, r->y + i * r->ldy + c,
                                     n_c - (nv - 1) * VF_N);
            i += m;
        }
    }
}

/* ---- gathering ------------------------------------------------------------------------------- */

WF_SIMD_INLINE void copy(float *dst, const float *src, int64_t n)
{
    for (; n >= VF_N; n -= VF_N, dst += VF_N, src += VF_N)
        vf_store(dst, vf_load(src));
    if (n)
        vf_storen(dst, vf_loadn(src, n), n);
}

WF_SIMD_INLINE void clear(float *dst, int64_t n)
{
    for (; n >= VF_N; n -= VF_N, dst += VF_N)
        vf_store(dst, vf_zero());
    if (n)
        vf_storen(dst, vf_zero(), n);
}

static void gather(float *dst, const struct wf_conv_image *src, const struct wf_conv_taps *taps,
                   int64_t from, int64_t to, const int64_t at[3], int64_t c, int64_t n_c)
{
    bool side_by_side = n_c == src->channels;

    for (int64_t t = from; t < to;) {
        int64_t d = at[0] + taps->offset[0][t], h = at[1] + taps->offset[1][t],
                w = at[2] + taps->offset[2][t];
        int64_t run = taps->run[t] < to - t ? taps->run[t] : to - t, n = run;
        bool outside = d < 0 || d >= src->n[0] || h < 0 || h >= src->n[1] || w >= src->n[2];

        if (!outside && w < 0) {
            n = n < -w ? n : -w;
            outside = true;
        } else if (!outside) {
            n = n < src->n[2] - w ? n : src->n[2] - w;
        }
        if (outside) {
            clear(dst, n * n_c);
        } else {
            const float *p = src->data + ((d * src->n[1] + h) * src->n[2] + w) * src->channels + c;

            if (side_by_side)
                copy(dst, p, n * n_c);
            else
                for (int64_t i = 0; i < n; i++)
                    copy(dst + i * n_c, p + i * src->channels, n_c);
        }
        dst += n * n_c;
        t += n;
    }
}

/* ---- narrow products ------------------------------------------------------------------------- */

/* mi rows by nj columns of C. */
WF_SIMD_INLINE void dots_block(const int mi, const int nj, float *c, int64_t ldc, const float *a,
                               int64_t lda, const float *b, int64_t ldb, int64_t k, bool accumulate)
{
    vf acc[4][2];

    UNROLL for (int i = 0; i < mi; i++) UNROLL for (int j = 0; j < nj; j++) acc[i][j] = vf_zero();
    for (int64_t p = 0; p < k; p += VF_N) {
        int64_t w = k - p < VF_N ? k - p : VF_N;
        vf bv[2];

        UNROLL for (int j = 0; j < nj; j++) bv[j] = vf_load_part(b + j * ldb + p, w);
        UNROLL for (int i = 0; i < mi; i++)
        {
            vf av = vf_load_part(a + i * lda + p, w);

            UNROLL for (int j = 0; j < nj; j++) acc[i][j] = vf_fma(av, bv[j], acc[i][j]);
        }
    }
    UNROLL for (int i = 0; i < mi; i++) UNROLL for (int j = 0; j < nj; j++) c[i * ldc + j] =
        vf_hsum(acc[i][j]) + (accumulate ? c[i * ldc + j] : 0.0f);
}

static void dots(float *c, int64_t ldc, const float *a, int64_t lda, int64_t m, const float *b,
                 int64_t ldb, int64_t n, int64_t k, bool accumulate)
{
    int64_t i = 0;

    for (; i + 4 <= m; i += 4) {
        int64_t j = 0;

        for (; j + 2 <= n; j += 2)
            dots_block(4, 2, c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, ldb, k,
                       accumulate);
        if (j < n)
            dots_block(4, 1, c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, ldb, k,
                       accumulate);
    }
    for (; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            dots_block(1, 1, c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, ldb, k,
                       accumulate);
}

/* ---- channel by channel ---------------------------------------------------------------------- */

#if defined(WF_LEVEL_PORTABLE)
#define TAPS 6
#else
#define TAPS 9 /* of a filter gradient in registers */
#endif

/* m pixels from pixel i on, w channels from c on. */
WF_SIMD_INLINE void depth_pixels(const struct wf_depth_row *r, int64_t i, const int m, int64_t c,
                                 int64_t w)
{
    vf acc[4];

    UNROLL for (int j = 0; j < m; j++) acc[j] = vf_zero();
    for (int64_t t = 0; t < r->n_taps; t++) {
        const float *x = r->x + i * r->x_step + r->offset[t] + c;
        vf f = vf_load_part(r->w + r->tap[t] + c, w);

        UNROLL for (int j = 0; j < m; j++) acc[j] =
            vf_fma(vf_load_part(x + j * r->x_step, w), f, acc[j]);
    }
    UNROLL for (int j = 0; j < m; j++) vf_store_part(r->y + (i + j) * r->y_step + c, acc[j], w);
}

WF_SIMD_INLINE void depth_channels(const struct wf_depth_row *r, int64_t c, int64_t w)
{
    int64_t i = 0;

    for (; i + 4 <= r->n; i += 4)
        depth_pixels(r, i, 4, c, w);
    for (; i < r->n; i++)
        depth_pixels(r, i, 1, c, w);
}

static void depth(const struct wf_depth_row *r)
{
    int64_t c = 0;

    for (; c + VF_N <= r->channels; c += VF_N)
        depth_channels(r, c, VF_N);
    if (c < r->channels)
        depth_channels(r, c, r->channels - c);
}

/* m taps from tap t on. */
WF_SIMD_INLINE void depth_filter_taps(const struct wf_depth_row *r, float *dw, int64_t t,
                                      const int m, int64_t c, int64_t w)
{
    vf acc[TAPS];

    UNROLL for (int j = 0; j < m; j++) acc[j] = vf_load_part(dw + r->tap[t + j] + c, w);
    for (int64_t i = 0; i < r->n; i++) {
        vf y = vf_load_part(r->y + i * r->y_step + c, w);

        UNROLL for (int j = 0; j < m; j++) acc[j] =
            vf_fma(vf_load_part(r->x + i * r->x_step + r->offset[t + j] + c, w), y, acc[j]);
    }
    UNROLL for (int j = 0; j < m; j++) vf_store_part(dw + r->tap[t + j] + c, acc[j], w);
}

WF_SIMD_INLINE void depth_filter_channels(const struct wf_depth_row *r, float *dw, int64_t c,
                                          int64_t w)
{
    int64_t t = 0;

    for (; t + TAPS <= r->n_taps; t += TAPS)
        depth_filter_taps(r, dw, t, TAPS, c, w);
    for (; t + 3 <= r->n_taps; t += 3)
        depth_filter_taps(r, dw, t, 3, c, w);
    for (; t < r->n_taps; t++)
        depth_filter_taps(r, dw, t, 1, c, w);
}

static void depth_filter(const struct wf_depth_row *r, float *dw)
{
    int64_t c = 0;

    for (; c + VF_N <= r->channels; c += VF_N)
        depth_filter_channels(r, dw, c, VF_N);
    if (c < r->channels)
        depth_filter_channels(r, dw, c, r->channels - c);
}

static void expand(float *dst, const float *src, int64_t n, int64_t mult)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < mult; j++)
            *dst++ = src[i];
}

static void fold(float *dst, const float *src, int64_t n, int64_t mult)
{
    for (int64_t i = 0; i < n; i++, src += mult) {
        float sum = src[0];

        for (int64_t j = 1; j < mult; j++)
            sum += src[j];
        dst[i] = sum;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void fetch(const void *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        wf_prefetch((const char *)p + i);
}

static void add(float *dst, const float *src, int64_t n)
{
    for (; n >= VF_N; n -= VF_N, dst += VF_N, src += VF_N)
        vf_store(dst, vf_add(vf_load(dst), vf_load(src)));
    if (n)
        vf_storen(dst, vf_add(vf_loadn(dst, n), vf_loadn(src, n)), n);
}

extern const struct wf_conv_fns WF_LEVELED(wf_conv_fns);
const struct wf_conv_fns WF_LEVELED(wf_conv_fns) = {
    .nr = 2 * VF_N,
    .row = row,
    .gather = gather,
    .narrow = VF_N / 2,
    .dots = dots,
    .depth = depth,
    .depth_filter = depth_filter,
    .expand = expand,
    .fold = fold,
    .fetch = fetch,
    .add = add,
};
