/* resize.c - resizing, separable, one pass over the source.
 *
 * Each row of the source is resized along x into a ring of a few rows; a row of the result is a
 * blend of rows of the ring, written directly to the result. Results do not depend on the SIMD
 * level: the vector versions do the same multiplications and additions, in the same order, without
 * fusing any. */
#include <math.h>

#include "data/image/pixels.h"

#if defined(__x86_64__)
#define TARGET_AVX2 __attribute__((target("avx2")))
#define HAVE_AVX2 1
#endif

/* ---- taps ------------------------------------------------------------------------------------ */

void wf_resizer_init(struct wf_resizer *r, weft_ctx *ctx)
{
    *r = (struct wf_resizer){.ctx = ctx, .simd = ctx->simd};
}

static void taps_free(weft_ctx *ctx, struct wf_taps *t)
{
    wf_free(ctx, t->first);
    wf_free(ctx, t->second);
    wf_free(ctx, t->weight);
}

void wf_resizer_free(struct wf_resizer *r)
{
    if (!r->ctx)
        return;
    taps_free(r->ctx, &r->x);
    taps_free(r->ctx, &r->y);
    wf_free(r->ctx, r->ring);
    wf_free(r->ctx, r->line);
    *r = (struct wf_resizer){0};
}

/* Replaces a smaller block by memory for `need` items; contents are lost. */
static weft_status renew(weft_ctx *ctx, void *array_ptr, int64_t *cap, int64_t need, size_t size)
{
    void **p = array_ptr;

    if (need <= *cap && *p)
        return WEFT_OK;
    wf_free(ctx, *p);
    *cap = 0;
    *p = wf_alloc_n(ctx, need, size);
    if (!*p)
        return wf_err_nomem(ctx, (size_t)need * size, "resizing an image");
    *cap = need;
    return WEFT_OK;
}

static void set_two_taps(struct wf_taps *t)
{
    float scale = (float)t->n_in / (float)t->n_out;

    t->n_taps = 2;
    for (int64_t i = 0; i < t->n_out; i++) {
        float at = ((float)i + 0.5f) * scale - 0.5f, below = floorf(at);

        t->first[i] = wf_min_i64(wf_max_i64((int64_t)below, 0), t->n_in - 1);
        t->second[i] = wf_min_i64(wf_max_i64((int64_t)ceilf(at), 0), t->n_in - 1);
        /* At the border both taps are the same pixel: its neighbor does not matter. */
        t->weight[i] = t->first[i] == t->second[i] ? 0.0f : at - below;
    }
}

static void set_nearest(struct wf_taps *t)
{
    float scale = (float)t->n_in / (float)t->n_out;

    t->n_taps = 1;
    for (int64_t i = 0; i < t->n_out; i++) {
        int64_t at = (int64_t)floorf(((float)i + 0.5f) * scale);

        t->first[i] = t->second[i] = wf_min_i64(at, t->n_in - 1);
        t->weight[i] = 0.0f;
    }
}

/* A triangle as wide as the area of a pixel of the result; weights sum to one. second[] is the last
 * tap. */
static void set_triangle(struct wf_taps *t, double scale, double reach)
{
    for (int64_t i = 0; i < t->n_out; i++) {
        double at = ((double)i + 0.5) * scale, sum = 0.0;
        int64_t lo = wf_max_i64((int64_t)ceil(at - reach - 0.5), 0);
        int64_t hi = wf_min_i64((int64_t)floor(at + reach - 0.5), t->n_in - 1);
        float *w = t->weight + i * t->n_taps;

        lo = wf_min_i64(lo, t->n_in - 1);
        hi = wf_min_i64(wf_max_i64(hi, lo), lo + t->n_taps - 1);
        for (int64_t k = lo; k <= hi; k++)
            sum += fmax(0.0, 1.0 - fabs((double)k + 0.5 - at) / reach);
        for (int64_t k = lo; k <= hi; k++)
            w[k - lo] = sum > 0.0
                            ? (float)(fmax(0.0, 1.0 - fabs((double)k + 0.5 - at) / reach) / sum)
                            : k == lo;
        t->first[i] = lo;
        t->second[i] = hi;
    }
}

static weft_status taps_set(weft_ctx *ctx, struct wf_taps *t, int64_t n_in, int64_t n_out,
                            weft_image_filter filter, bool antialias)
{
    double scale = (double)n_in / (double)n_out, reach = scale > 1.0 ? scale : 1.0;
    bool triangle = antialias && filter == WEFT_IMAGE_BILINEAR && scale > 1.0;
    int64_t cap = t->cap;
    int n_taps = triangle ? (int)(2.0 * reach) + 2 : 1;
    weft_status st;

    if (t->n_in == n_in && t->n_out == n_out && t->filter == filter && t->antialias == antialias)
        return WEFT_OK;
    t->n_in = 0; /* not valid until everything is filled in */
    st = renew(ctx, &t->first, &cap, n_out, sizeof *t->first);
    if (!st)
        st = renew(ctx, &t->second, &t->cap, n_out, sizeof *t->second);
    if (!st)
        st = renew(ctx, &t->weight, &t->cap_weights, n_out * n_taps, sizeof *t->weight);
    if (st)
        return st;
    t->n_out = n_out;
    t->n_in = n_in;
    t->n_taps = n_taps;
    t->filter = filter;
    t->antialias = antialias;
    if (triangle)
        set_triangle(t, scale, reach);
    else if (filter == WEFT_IMAGE_NEAREST)
        set_nearest(t);
    else
        set_two_taps(t);
    return WEFT_OK;
}

weft_status wf_resizer_set(struct wf_resizer *r, int64_t h, int64_t w, int c,
                           weft_image_filter filter, bool antialias, const struct wf_image *to)
{
    weft_status st = taps_set(r->ctx, &r->x, w, to->w, filter, antialias);

    if (!st)
        st = taps_set(r->ctx, &r->y, h, to->h, filter, antialias);
    r->row = to->w * c;
    r->n_ring = r->y.n_taps;
    r->c = c;
    r->to = *to;
    r->next_in = r->next_out = 0;
    /* Vector stores may write three values past a row. */
    if (!st)
        st = renew(r->ctx, &r->ring, &r->cap_ring, r->n_ring * r->row + 8, sizeof *r->ring);
    if (!st)
        st = renew(r->ctx, &r->line, &r->cap_line, r->row + 8, sizeof *r->line);
    return st;
}

/* ---- along x --------------------------------------------------------------------------------- */

static float pixel(const void *row, weft_dtype dtype, int64_t i)
{
    return dtype == WEFT_U8 ? (float)((const uint8_t *)row)[i] : ((const float *)row)[i];
}

/* Results [from, to) of a row, for any number of channels: the definition. */
static void x_plain(const struct wf_taps *t, int c, const void *row, weft_dtype dtype, int64_t from,
                    int64_t to, float *out)
{
    for (int64_t i = from; i < to; i++) {
        int64_t a = t->first[i] * c, b = t->second[i] * c;

        for (int k = 0; k < c; k++) {
            float left = pixel(row, dtype, a + k), sum = 0.0f;

            if (t->n_taps == 1) {
                sum = left;
            } else if (t->n_taps == 2) {
                sum = left + (pixel(row, dtype, b + k) - left) * t->weight[i];
            } else {
                const float *w = t->weight + i * t->n_taps;

                for (int64_t j = a; j <= b; j += c)
                    sum += pixel(row, dtype, j + k) * *w++;
            }
            out[i * c + k] = sum;
        }
    }
}

/* Results for which the pixel after the first tap and two more items are within the row, and which
 * are followed by at least four more: there vector code may read and write past its pixel. */
static int64_t x_inside(const struct wf_taps *t, int c)
{
    int64_t n = wf_max_i64(0, t->n_out - 4);

    while (n > 0 && wf_max_i64(t->second[n - 1] + 1, t->first[n - 1] + 2) * c + 2 > t->n_in * c)
        n--;
    return n;
}

/* Pixels of two to four channels, two taps. */
WF_PIXELS void x_two_bytes(const struct wf_taps *t, int c, const uint8_t *row, int64_t n,
                           float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = row + t->first[i] * c;
        wf_v4 a = wf_load_bytes(p), b = wf_load_bytes(p + c);
        float f = t->weight[i];

        a += (b - a) * (wf_v4){f, f, f, f};
        memcpy(out + i * c, &a, sizeof a);
    }
}

WF_PIXELS void x_two_floats(const struct wf_taps *t, int c, const float *row, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const float *p = row + t->first[i] * c;
        wf_v4 a = wf_load_floats(p), b = wf_load_floats(p + c);
        float f = t->weight[i];

        a += (b - a) * (wf_v4){f, f, f, f};
        memcpy(out + i * c, &a, sizeof a);
    }
}

WF_PIXELS void x_many_bytes(const struct wf_taps *t, int c, const uint8_t *row, int64_t n,
                            float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const float *w = t->weight + i * t->n_taps;
        wf_v4 sum = {0};

        for (int64_t j = t->first[i] * c; j <= t->second[i] * c; j += c, w++)
            sum += wf_load_bytes(row + j) * (wf_v4){*w, *w, *w, *w};
        memcpy(out + i * c, &sum, sizeof sum);
    }
}

#ifdef HAVE_AVX2
/* RGB, two results at a time: both taps of one are six contiguous bytes. */
TARGET_AVX2 static void x_two_rgb_avx2(const struct wf_taps *t, const uint8_t *row, int64_t n,
                                       float *out)
{
    const __m128i order = _mm_setr_epi8(0, 1, 2, -1, 8, 9, 10, -1, 3, 4, 5, -1, 11, 12, 13, -1);
    int64_t i = 0;

    for (; i + 2 <= n; i += 2, out += 6) {
        __m128i p = _mm_loadl_epi64((const __m128i *)(const void *)(row + t->first[i] * 3));
        __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(row + t->first[i + 1] * 3));
        __m256 f = _mm256_setr_m128(_mm_load1_ps(t->weight + i), _mm_load1_ps(t->weight + i + 1));
        __m256 a, b;

        p = _mm_shuffle_epi8(_mm_unpacklo_epi64(p, q), order);
        a = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(p));
        b = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(p, 8)));
        a = _mm256_add_ps(a, _mm256_mul_ps(_mm256_sub_ps(b, a), f));
        _mm_storeu_ps(out, _mm256_castps256_ps128(a));
        _mm_storeu_ps(out + 3, _mm256_extractf128_ps(a, 1));
    }
    for (; i < n; i++, out += 3) {
        const uint8_t *p = row + t->first[i] * 3;

        for (int k = 0; k < 3; k++)
            out[k] = (float)p[k] + ((float)p[k + 3] - (float)p[k]) * t->weight[i];
    }
}
#endif

WF_PIXELS void x_fast(const struct wf_taps *t, int c, const void *row, weft_dtype dtype, int64_t n,
                      float *out)
{
    if (t->n_taps == 2 && dtype == WEFT_U8)
        x_two_bytes(t, c, row, n, out);
    else if (t->n_taps == 2)
        x_two_floats(t, c, row, n, out);
    else
        x_many_bytes(t, c, row, n, out);
}

static void x_fast_base(const struct wf_taps *t, int c, const void *row, weft_dtype dtype,
                        int64_t n, float *out)
{
    x_fast(t, c, row, dtype, n, out);
}

#ifdef HAVE_AVX2
TARGET_AVX2 static void x_fast_avx2(const struct wf_taps *t, int c, const void *row,
                                    weft_dtype dtype, int64_t n, float *out)
{
    if (t->n_taps == 2 && dtype == WEFT_U8 && c == 3)
        x_two_rgb_avx2(t, row, n, out);
    else
        x_fast(t, c, row, dtype, n, out);
}
#endif

static void resize_x(const struct wf_resizer *r, const void *row, weft_dtype dtype, float *out)
{
    const struct wf_taps *t = &r->x;
    bool fast = r->c >= 2 && r->c <= 4 && (t->n_taps == 2 || (t->n_taps > 2 && dtype == WEFT_U8));
    int64_t n = fast ? x_inside(t, r->c) : 0;

    if (n) {
#ifdef HAVE_AVX2
        if (r->simd >= WEFT_SIMD_AVX2)
            x_fast_avx2(t, r->c, row, dtype, n, out);
        else
#endif
            x_fast_base(t, r->c, row, dtype, n, out);
    }
    x_plain(t, r->c, row, dtype, n, t->n_out, out);
}

/* ---- along y --------------------------------------------------------------------------------- */

WF_PIXELS void blend(const float *a, const float *b, float f, int64_t n, float *out)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        wf_v8 x, y;

        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        x += (y - x) * (wf_v8){f, f, f, f, f, f, f, f};
        memcpy(out + i, &x, sizeof x);
    }
    for (; i < n; i++)
        out[i] = a[i] + (b[i] - a[i]) * f;
}

/* out (+)= a * f */
WF_PIXELS void accumulate(const float *a, float f, bool first, int64_t n, float *out)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        wf_v8 x, y = {0};

        memcpy(&x, a + i, sizeof x);
        if (!first)
            memcpy(&y, out + i, sizeof y);
        x *= (wf_v8){f, f, f, f, f, f, f, f};
        if (!first)
            x = y + x;
        memcpy(out + i, &x, sizeof x);
    }
    for (; i < n; i++)
        out[i] = first ? a[i] * f : out[i] + a[i] * f;
}

WF_PIXELS void resize_y(struct wf_resizer *r, int64_t i)
{
    const struct wf_taps *t = &r->y;
    int64_t n = r->row, a = t->first[i], b = t->second[i];
    float *out = r->to.dtype == WEFT_F32 ? (float *)r->to.data + i * n : r->line;

    if (t->n_taps == 1) {
        memcpy(out, r->ring + a % r->n_ring * n, (size_t)n * sizeof *out);
    } else if (t->n_taps == 2) {
        blend(r->ring + a % r->n_ring * n, r->ring + b % r->n_ring * n, t->weight[i], n, out);
    } else {
        for (int64_t k = a; k <= b; k++)
            accumulate(r->ring + k % r->n_ring * n, t->weight[i * t->n_taps + k - a], k == a, n,
                       out);
    }
    if (r->to.dtype == WEFT_U8)
        wf_to_levels(out, n, (uint8_t *)r->to.data + i * n);
}

static void resize_y_base(struct wf_resizer *r, int64_t i)
{
    resize_y(r, i);
}

#ifdef HAVE_AVX2
TARGET_AVX2 static void resize_y_avx2(struct wf_resizer *r, int64_t i)
{
    resize_y(r, i);
}
#endif

/* ---- rows ------------------------------------------------------------------------------------ */

bool wf_resizer_wants(const struct wf_resizer *r, int64_t y)
{
    return r->next_out < r->y.n_out && r->y.first[r->next_out] <= y;
}

void wf_resizer_row(struct wf_resizer *r, const void *row, weft_dtype dtype)
{
    int64_t y = r->next_in++;

    if (row && wf_resizer_wants(r, y))
        resize_x(r, row, dtype, r->ring + y % r->n_ring * r->row);
    for (; r->next_out < r->y.n_out && r->y.second[r->next_out] <= y; r->next_out++) {
#ifdef HAVE_AVX2
        if (r->simd >= WEFT_SIMD_AVX2)
            resize_y_avx2(r, r->next_out);
        else
#endif
            resize_y_base(r, r->next_out);
    }
}

weft_status wf_image_resize(struct wf_resizer *r, const struct wf_image *from,
                            const struct wf_box *box, weft_image_filter filter, bool antialias,
                            const struct wf_image *to)
{
    struct wf_box all = {0, 0, from->h, from->w};
    int64_t item = from->dtype == WEFT_U8 ? 1 : 4;
    weft_status st;

    if (!box)
        box = &all;
    st = wf_resizer_set(r, box->h, box->w, from->c, filter, antialias, to);
    for (int64_t y = 0; y < box->h && !st; y++)
        wf_resizer_row(
            r, (const char *)from->data + ((box->y + y) * from->w + box->x) * from->c * item,
            from->dtype);
    return st;
}
