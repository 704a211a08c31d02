/* cvt_kernel.c - conversions between f32 and the other dtypes, one table per level. Every
 * conversion is defined exactly (ew.h), so all levels agree. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/simd.h"

#define TO_F32(name, type, load, loadn)                              \
    static void name##_to_f32(void *dst, const void *src, int64_t n) \
    {                                                                \
        const type *s = src;                                         \
        float *d = dst;                                              \
        int64_t i = 0;                                               \
                                                                     \
        for (; i + VF_N <= n; i += VF_N)                             \
            vf_store(d + i, load(s + i));                            \
        if (i < n)                                                   \
            vf_storen(d + i, loadn(s + i, n - i), n - i);            \
    }

#define FROM_F32(name, type, store, storen)                          \
    static void f32_to_##name(void *dst, const void *src, int64_t n) \
    {                                                                \
        const float *s = src;                                        \
        type *d = dst;                                               \
        int64_t i = 0;                                               \
                                                                     \
        for (; i + VF_N <= n; i += VF_N)                             \
            store(d + i, vf_load(s + i));                            \
        if (i < n)                                                   \
            storen(d + i, vf_loadn(s + i, n - i), n - i);            \
    }

/* Plain loops, which the compiler vectorizes if the level has the instructions. */
#define EACH(fn, from, to, value)                         \
    static void fn(void *dst, const void *src, int64_t n) \
    {                                                     \
        const from *s = src;                              \
        to *d = dst;                                      \
                                                          \
        for (int64_t i = 0; i < n; i++) {                 \
            from x = s[i];                                \
                                                          \
            d[i] = value;                                 \
        }                                                 \
    }

static void f32_to_f32(void *dst, const void *src, int64_t n)
{
    if (dst != src && n > 0)
        memcpy(dst, src, (size_t)n * sizeof(float));
}

static void store_i32(int32_t *d, vf x)
{
    vi_store(d, vi_trunc_sat(x));
}

static void storen_i32(int32_t *d, vf x, int64_t n)
{
    vi_storen(d, vi_trunc_sat(x), n);
}

/* To 8 bits through integers that are already within range. */
WF_SIMD_INLINE void store_byte(uint8_t *d, vf x, float low, float high, int64_t n)
{
    int32_t lane[VF_N];

    x = vf_select(vm_isnan(x), vf_zero(), x);
    x = vf_min2(vf_set1(high), vf_max2(vf_set1(low), x));
    vi_store(lane, vi_trunc(x));
    for (int64_t i = 0; i < n; i++)
        d[i] = (uint8_t)lane[i];
}

static void store_i8(int8_t *d, vf x)
{
    store_byte((uint8_t *)d, x, -128.0f, 127.0f, VF_N);
}

static void storen_i8(int8_t *d, vf x, int64_t n)
{
    store_byte((uint8_t *)d, x, -128.0f, 127.0f, n);
}

static void store_u8(uint8_t *d, vf x)
{
    store_byte(d, x, 0.0f, 255.0f, VF_N);
}

static void storen_u8(uint8_t *d, vf x, int64_t n)
{
    store_byte(d, x, 0.0f, 255.0f, n);
}

static void store_bool(uint8_t *d, vf x)
{
    store_byte(d, vf_keep(vm_ne(x, vf_zero()), vf_set1(1.0f)), 0.0f, 1.0f, VF_N);
}

static void storen_bool(uint8_t *d, vf x, int64_t n)
{
    store_byte(d, vf_keep(vm_ne(x, vf_zero()), vf_set1(1.0f)), 0.0f, 1.0f, n);
}

TO_F32(f16, uint16_t, vf_load_f16, vf_load_f16n)
TO_F32(bf16, uint16_t, vf_load_bf16, vf_load_bf16n)
TO_F32(i8, int8_t, vf_load_i8, vf_load_i8n)
TO_F32(u8, uint8_t, vf_load_u8, vf_load_u8n)
TO_F32(i32, int32_t, vf_load_i32, vf_load_i32n)
EACH(f64_to_f32, double, float, (float)x)
EACH(i64_to_f32, int64_t, float, (float)x)
EACH(bool_to_f32, uint8_t, float, x ? 1.0f : 0.0f)

FROM_F32(f16, uint16_t, vf_store_f16, vf_store_f16n)
FROM_F32(bf16, uint16_t, vf_store_bf16, vf_store_bf16n)
FROM_F32(i8, int8_t, store_i8, storen_i8)
FROM_F32(u8, uint8_t, store_u8, storen_u8)
FROM_F32(bool, uint8_t, store_bool, storen_bool)
FROM_F32(i32, int32_t, store_i32, storen_i32)
EACH(f32_to_f64, float, double, (double)x)
EACH(f32_to_i64, float, int64_t,
     x >= 0x1p63f   ? INT64_MAX
     : x < -0x1p63f ? INT64_MIN
     : x == x       ? (int64_t)x
                    : 0)

const struct wf_cvt_fns WF_LEVELED(wf_cvt_fns) = {
    .to_f32 =
        {
            [WEFT_F32] = f32_to_f32,
            [WEFT_F64] = f64_to_f32,
            [WEFT_F16] = f16_to_f32,
            [WEFT_BF16] = bf16_to_f32,
            [WEFT_I8] = i8_to_f32,
            [WEFT_U8] = u8_to_f32,
            [WEFT_I32] = i32_to_f32,
            [WEFT_I64] = i64_to_f32,
            [WEFT_BOOL] = bool_to_f32,
        },
    .from_f32 =
        {
            [WEFT_F32] = f32_to_f32,
            [WEFT_F64] = f32_to_f64,
            [WEFT_F16] = f32_to_f16,
            [WEFT_BF16] = f32_to_bf16,
            [WEFT_I8] = f32_to_i8,
            [WEFT_U8] = f32_to_u8,
            [WEFT_I32] = f32_to_i32,
            [WEFT_I64] = f32_to_i64,
            [WEFT_BOOL] = f32_to_bool,
        },
};
