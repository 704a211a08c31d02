/* rescale.c - columns of numbers multiplied, shifted and converted, a whole block at a time.
 * Results do not depend on the SIMD level: a multiplication and an addition, never fused. */
#include "data/data.h"
#include "weft/data_feature.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

struct rescale {
    int n, *col; /* which columns */
    double scale, offset;
    weft_dtype dtype;
};

/* ---- u8 to f32: images ----------------------------------------------------------------------- */

static void levels_base(const uint8_t *from, int64_t n, float scale, float offset, float *to)
{
    int64_t i = 0;

#if defined(__x86_64__)
    const __m128 s = _mm_set1_ps(scale), o = _mm_set1_ps(offset);
    const __m128i zero = _mm_setzero_si128();

    for (; i + 8 <= n; i += 8) {
        __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(from + i));
        __m128 x, y;

        b = _mm_unpacklo_epi8(b, zero);
        x = _mm_mul_ps(_mm_cvtepi32_ps(_mm_unpacklo_epi16(b, zero)), s);
        y = _mm_mul_ps(_mm_cvtepi32_ps(_mm_unpackhi_epi16(b, zero)), s);
        _mm_storeu_ps(to + i, offset != 0.0f ? _mm_add_ps(x, o) : x);
        _mm_storeu_ps(to + i + 4, offset != 0.0f ? _mm_add_ps(y, o) : y);
    }
#endif
    for (; i < n; i++)
        to[i] = offset != 0.0f ? (float)from[i] * scale + offset : (float)from[i] * scale;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void levels_avx2(const uint8_t *from, int64_t n, float scale,
                                                        float offset, float *to)
{
    const __m256 s = _mm256_set1_ps(scale), o = _mm256_set1_ps(offset);
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b));
        __m256 y = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)));

        x = _mm256_mul_ps(x, s);
        y = _mm256_mul_ps(y, s);
        _mm256_storeu_ps(to + i, offset != 0.0f ? _mm256_add_ps(x, o) : x);
        _mm256_storeu_ps(to + i + 8, offset != 0.0f ? _mm256_add_ps(y, o) : y);
    }
    levels_base(from + i, n - i, scale, offset, to + i);
}
#endif

/* ---- any to any ------------------------------------------------------------------------------ */

static void convert(const weft_ctx *ctx, const struct rescale *p, const void *from,
                    weft_dtype dtype, int64_t n, void *to)
{
    float scale = (float)p->scale, offset = (float)p->offset;

    if (dtype == WEFT_U8 && p->dtype == WEFT_F32) {
#if defined(__x86_64__)
        if (ctx->simd >= WEFT_SIMD_AVX2) {
            levels_avx2(from, n, scale, offset, to);
            return;
        }
#endif
        (void)ctx;
        levels_base(from, n, scale, offset, to);
    } else if (dtype == WEFT_F32 && p->dtype == WEFT_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = offset != 0.0f ? ((const float *)from)[i] * scale + offset
                                              : ((const float *)from)[i] * scale;
    } else if (p->scale == 1.0 && p->offset == 0.0 && !wf_is_float(dtype) &&
               !wf_is_float(p->dtype)) {
        wf_convert_ints(from, dtype, n, to, p->dtype);
    } else if (p->dtype == WEFT_F64) {
        for (int64_t i = 0; i < n; i++) {
            double v = wf_get(from, dtype, i) * p->scale;

            ((double *)to)[i] = p->offset != 0.0 ? v + p->offset : v;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            float v = (float)wf_get(from, dtype, i) * scale;

            wf_set(to, p->dtype, i, (double)(offset != 0.0f ? v + offset : v));
        }
    }
}

static weft_status rescale_column(struct wf_block *b, const struct rescale *p, struct wf_col *c)
{
    struct wf_col from;
    const void *items;
    int64_t n;
    weft_status st = wf_col_renew(b, c, p->dtype, &from, &items, &n);

    if (!st)
        convert(b->env->ctx, p, items, from.type.dtype, n, c->data);
    return st;
}

static weft_status rescale_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                 struct wf_block **out)
{
    const struct rescale *p = ds->param;
    weft_status st = WEFT_OK;

    (void)w;
    for (int i = 0; i < p->n && !st; i++)
        st = rescale_column(in, p, &in->col[p->col[i]]);
    if (st)
        wf_block_free(in);
    else
        *out = in;
    return st;
}

static void rescale_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct rescale *p = ds->param;

    wf_ds_names_text(ds, p->n, p->col, out);
    wf_buf_printf(out, " * %.17g + %.17g %s", p->scale, p->offset, weft_dtype_name(p->dtype));
}

static int64_t rescale_ids(const struct wf_ds *ds, int col, int *from)
{
    const struct rescale *p = ds->param;

    for (int k = 0; k < p->n; k++)
        if (p->col[k] == col)
            return 0;
    *from = col;
    return WF_IDS_AS_INPUT;
}

static const struct wf_ds_kind rescale_kind = {
    .name = "rescale",
    .apply = rescale_apply,
    .ids = rescale_ids,
    .text = rescale_text,
    .row_wise = true,
};

weft_ds weft_ds_rescale(weft_data *d, weft_ds s, const char *columns, double scale, double offset,
                        weft_dtype dtype)
{
    struct wf_ds *ds = wf_ds_new(d, &rescale_kind, 1, &s, sizeof(struct rescale));
    struct rescale *p;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    *p = (struct rescale){.scale = scale, .offset = offset, .dtype = dtype};
    st = wf_ds_columns_named(ds, columns, &p->col, &p->n);
    if (!st && (dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES))
        st = wf_err(WEFT_EDTYPE, "dtype %d does not exist", (int)dtype);
    if (!st && (scale - scale != 0.0 || offset - offset != 0.0))
        st = wf_err(WEFT_EINVAL, "scale %g, offset %g", scale, offset);
    if (!st)
        st = wf_ds_set_columns(ds, ds->n_cols, ds->col); /* our own copy */
    for (int i = 0; i < p->n && !st; i++) {
        weft_column *c = &ds->col[p->col[i]];

        if (c->dtype == WEFT_STR)
            st = wf_err(WEFT_EDTYPE, "column '%s' is text", c->name);
        c->dtype = dtype;
    }
    return st ? wf_ds_fail(d, "rescale", st) : wf_ds_handle(ds);
}
