/* tensor.c - dtypes, shapes and element access. */
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *name;
    int64_t size;
} dtypes[WEFT_N_DTYPES] = {
    [WEFT_NONE] = {"none", 0}, [WEFT_F32] = {"f32", 4},   [WEFT_F64] = {"f64", 8},
    [WEFT_F16] = {"f16", 2},   [WEFT_BF16] = {"bf16", 2}, [WEFT_I8] = {"i8", 1},
    [WEFT_U8] = {"u8", 1},     [WEFT_I32] = {"i32", 4},   [WEFT_I64] = {"i64", 8},
    [WEFT_BOOL] = {"bool", 1},
};

const char *weft_dtype_name(weft_dtype t)
{
    return t >= 0 && t < WEFT_N_DTYPES ? dtypes[t].name : "unknown";
}

int64_t weft_dtype_size(weft_dtype t)
{
    return t >= 0 && t < WEFT_N_DTYPES ? dtypes[t].size : 0;
}

weft_status weft_dtype_parse(const char *name, weft_dtype *out)
{
    for (int i = 1; i < WEFT_N_DTYPES; i++)
        if (!strcmp(dtypes[i].name, name)) {
            *out = (weft_dtype)i;
            return WEFT_OK;
        }
    return wf_err(WEFT_EPARSE, "'%.32s' is not a dtype (f32 f64 f16 bf16 i8 u8 i32 i64 bool)",
                  name);
}

weft_tensor weft_view(weft_dtype dtype, const void *data, int rank, const int64_t *dim)
{
    weft_tensor t = {.dtype = dtype, .rank = rank};

    for (int i = 0; i < rank && i < WEFT_MAX_RANK; i++)
        t.dim[i] = dim[i];
    memcpy(&t.data, &data, sizeof data); /* the view is read-only if weft only reads it */
    return t;
}

int64_t weft_tensor_count(const weft_tensor *t)
{
    struct wf_type type = wf_type_of(t->dtype, t->rank, t->dim);

    return wf_type_count(&type);
}

int64_t weft_tensor_bytes(const weft_tensor *t)
{
    struct wf_type type = wf_type_of(t->dtype, t->rank, t->dim);

    return wf_type_bytes(&type);
}

struct wf_type wf_type_of(weft_dtype dtype, int rank, const int64_t *dim)
{
    struct wf_type t = {.dtype = dtype, .rank = rank};

    for (int i = 0; i < rank && i < WEFT_MAX_RANK; i++)
        t.dim[i] = dim[i];
    return t;
}

bool wf_type_known(const struct wf_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0)
            return false;
    return true;
}

bool wf_type_same_shape(const struct wf_type *a, const struct wf_type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i] || a->dim[i] == WEFT_ANY)
            return false;
    return true;
}

int64_t wf_type_count(const struct wf_type *t)
{
    int64_t n = 1;

    if (t->rank < 0 || t->rank > WEFT_MAX_RANK)
        return -1;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || !wf_mul_i64(n, t->dim[i], &n))
            return -1;
    return n;
}

int64_t wf_type_bytes(const struct wf_type *t)
{
    int64_t n = wf_type_count(t);

    if (n < 0 || !wf_mul_i64(n, weft_dtype_size(t->dtype), &n))
        return -1;
    return n;
}

bool wf_type_fits(const struct wf_type *t)
{
    const int64_t most = (int64_t)1 << 56;
    int64_t bytes = 8;

    if (t->rank < 0 || t->rank > WEFT_MAX_RANK)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] > 0 && (!wf_mul_i64(bytes, t->dim[i], &bytes) || bytes > most))
            return false;
    return true;
}

char *wf_type_text(const struct wf_type *t, char buf[WF_TYPE_TEXT])
{
    int at = snprintf(buf, WF_TYPE_TEXT, "%s[", weft_dtype_name(t->dtype));

    for (int i = 0; i < t->rank && at < WF_TYPE_TEXT - 24; i++)
        if (t->dim[i] < 0)
            at += snprintf(buf + at, (size_t)(WF_TYPE_TEXT - at), "%s?", i ? "," : "");
        else
            at += snprintf(buf + at, (size_t)(WF_TYPE_TEXT - at), "%s%lld", i ? "," : "",
                           (long long)t->dim[i]);
    snprintf(buf + at, (size_t)(WF_TYPE_TEXT - at), "]");
    return buf;
}

/* ---- half precision -------------------------------------------------------------------------- */

float wf_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 1023, u;
    float f;

    if (exp == 31) {
        u = sign | 0x7f800000u | man << 13;
    } else if (exp) {
        u = sign | (exp + 112) << 23 | man << 13;
    } else {
        f = (float)man * 0x1p-24f; /* exact: a denormal half is a normal float */
        memcpy(&u, &f, sizeof u);
        u |= sign;
    }
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t wf_f32_to_f16(float f)
{
    uint32_t u, sign, mag;

    memcpy(&u, &f, sizeof u);
    sign = u >> 16 & 0x8000;
    mag = u & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff)); /* NaN stays NaN */
    if (mag >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (mag < 0x38800000) {               /* denormal or zero: units of 2^-24, ties to even */
        float a;
        uint32_t v = mag;

        memcpy(&a, &v, sizeof a);
        return (uint16_t)(sign | (uint32_t)nearbyintf(a * 0x1p24f));
    }
    mag += 0xfff + (mag >> 13 & 1);
    return (uint16_t)(sign | (mag - 0x38000000) >> 13);
}

uint16_t wf_f32_to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- element access -------------------------------------------------------------------------- */

double wf_get(const void *data, weft_dtype t, int64_t i)
{
    switch (t) {
    case WEFT_F32: return ((const float *)data)[i];
    case WEFT_F64: return ((const double *)data)[i];
    case WEFT_F16: return wf_f16_to_f32(((const uint16_t *)data)[i]);
    case WEFT_BF16: return wf_bf16_to_f32(((const uint16_t *)data)[i]);
    default: return (double)wf_get_int(data, t, i);
    }
}

int64_t wf_get_int(const void *data, weft_dtype t, int64_t i)
{
    switch (t) {
    case WEFT_I8: return ((const int8_t *)data)[i];
    case WEFT_U8: return ((const uint8_t *)data)[i];
    case WEFT_BOOL: return ((const uint8_t *)data)[i] != 0;
    case WEFT_I32: return ((const int32_t *)data)[i];
    case WEFT_I64: return ((const int64_t *)data)[i];
    case WEFT_NONE: return 0;
    default: return (int64_t)wf_get(data, t, i);
    }
}

static int64_t saturate(double v, int64_t lo, int64_t hi)
{
    if (isnan(v))
        return 0;
    if (v <= (double)lo)
        return lo;
    if (v >= (double)hi)
        return hi;
    return (int64_t)v;
}

void wf_set(void *data, weft_dtype t, int64_t i, double v)
{
    switch (t) {
    case WEFT_F32: ((float *)data)[i] = (float)v; break;
    case WEFT_F64: ((double *)data)[i] = v; break;
    case WEFT_F16: ((uint16_t *)data)[i] = wf_f32_to_f16((float)v); break;
    case WEFT_BF16: ((uint16_t *)data)[i] = wf_f32_to_bf16((float)v); break;
    case WEFT_I8: ((int8_t *)data)[i] = (int8_t)saturate(v, INT8_MIN, INT8_MAX); break;
    case WEFT_U8: ((uint8_t *)data)[i] = (uint8_t)saturate(v, 0, UINT8_MAX); break;
    case WEFT_BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case WEFT_I32: ((int32_t *)data)[i] = (int32_t)saturate(v, INT32_MIN, INT32_MAX); break;
    case WEFT_I64: ((int64_t *)data)[i] = saturate(v, INT64_MIN, INT64_MAX); break;
    default: break;
    }
}

void wf_set_int(void *data, weft_dtype t, int64_t i, int64_t v)
{
    switch (t) {
    case WEFT_I8: ((int8_t *)data)[i] = (int8_t)v; break;
    case WEFT_U8: ((uint8_t *)data)[i] = (uint8_t)v; break;
    case WEFT_BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case WEFT_I32: ((int32_t *)data)[i] = (int32_t)v; break;
    case WEFT_I64: ((int64_t *)data)[i] = v; break;
    case WEFT_F64: wf_set(data, t, i, (double)v); break;
    default: wf_set(data, t, i, (double)(float)v); break; /* rounded once, not by way of a double */
    }
}

void wf_set_clipped(void *data, weft_dtype t, int64_t i, int64_t v)
{
    switch (t) {
    case WEFT_I8: v = wf_max_i64(INT8_MIN, wf_min_i64(v, INT8_MAX)); break;
    case WEFT_U8: v = wf_max_i64(0, wf_min_i64(v, UINT8_MAX)); break;
    case WEFT_I32: v = wf_max_i64(INT32_MIN, wf_min_i64(v, INT32_MAX)); break;
    default: break;
    }
    wf_set_int(data, t, i, v);
}

void wf_convert_ints(const void *from, weft_dtype t, int64_t n, void *to, weft_dtype to_type)
{
    if (t == WEFT_U8 && to_type == WEFT_I32) /* labels of images */
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)to)[i] = ((const uint8_t *)from)[i];
    else
        for (int64_t i = 0; i < n; i++)
            wf_set_clipped(to, to_type, i, wf_get_int(from, t, i));
}
