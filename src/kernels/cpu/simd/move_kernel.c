/* move_kernel.c - moving one tile of elements, at one SIMD level. */
#include "kernels/cpu/move.h"
#include "kernels/cpu/simd/trans_inl.h"

enum { VECTOR_BYTES = VF_N * 4 };

/* ---- runs of bytes ----------------------------------------------------------------------- */

WF_SIMD_INLINE void copy_vector(char *dst, const char *src)
{
    vf x;

    memcpy(&x, src, sizeof x);
    memcpy(dst, &x, sizeof x);
}

/* At least a vector: whole vectors, the last one shifted back to the end. */
WF_SIMD_INLINE void copy_long(char *dst, const char *src, int64_t bytes)
{
    int64_t i = 0;

    for (; i + VECTOR_BYTES <= bytes; i += VECTOR_BYTES)
        copy_vector(dst + i, src + i);
    if (i < bytes)
        copy_vector(dst + bytes - VECTOR_BYTES, src + bytes - VECTOR_BYTES);
}

WF_SIMD_INLINE void copy_short(char *dst, const char *src, int64_t bytes)
{
    if (bytes >= 8) {
        uint64_t last;

        memcpy(&last, src + bytes - 8, 8);
        for (int64_t i = 0; i + 8 < bytes; i += 8)
            memcpy(dst + i, src + i, 8);
        memcpy(dst + bytes - 8, &last, 8);
        return;
    }
    for (int64_t i = 0; i < bytes; i++)
        dst[i] = src[i];
}

#define RUNS_OF(n_bytes)                                               \
    case n_bytes:                                                      \
        for (int64_t i = 0; i < n; i++)                                \
            memcpy(dst + i * dst_bytes, src + i * src_bytes, n_bytes); \
        break

static void copy_runs(int64_t n, int64_t bytes, const char *src, int64_t src_bytes, char *dst,
                      int64_t dst_bytes)
{
    enum { LARGE = 2048 }; /* from here on the C library's copy is as fast or faster */

    switch (bytes) {
        RUNS_OF(4);
        RUNS_OF(8);
        RUNS_OF(16);
        RUNS_OF(32);
        RUNS_OF(64);
    default:
        for (int64_t i = 0; i < n; i++, src += src_bytes, dst += dst_bytes) {
            if (bytes >= LARGE)
                memcpy(dst, src, (size_t)bytes);
            else if (bytes >= VECTOR_BYTES)
                copy_long(dst, src, bytes);
            else
                copy_short(dst, src, bytes);
        }
    }
}

/* ---- transposing ------------------------------------------------------------------------- */

#define PLAIN_TRANSPOSE(name, type)                                                           \
    WF_SIMD_INLINE void name(int64_t n_rows, int64_t n_cols, const type *src, int64_t src_ld, \
                             type *dst, int64_t dst_ld)                                       \
    {                                                                                         \
        for (int64_t c = 0; c < n_cols; c++)                                                  \
            for (int64_t r = 0; r < n_rows; r++)                                              \
                dst[c * dst_ld + r] = src[r * src_ld + c];                                    \
    }
PLAIN_TRANSPOSE(plain8, uint8_t)
PLAIN_TRANSPOSE(plain16, uint16_t)
PLAIN_TRANSPOSE(plain32, uint32_t)
PLAIN_TRANSPOSE(plain64, uint64_t)

/* Squares of 16 elements a side keep both sides' cache lines in use until they are full. */
#define BLOCKED_TRANSPOSE(name, plain, type)                                                     \
    static void name(int64_t n_rows, int64_t n_cols, const void *src, int64_t src_ld, void *dst, \
                     int64_t dst_ld)                                                             \
    {                                                                                            \
        enum { SIDE = 16 };                                                                      \
        const type *s = src;                                                                     \
        type *d = dst;                                                                           \
        for (int64_t c = 0; c < n_cols; c += SIDE)                                               \
            for (int64_t r = 0; r < n_rows; r += SIDE)                                           \
                plain(n_rows - r < SIDE ? n_rows - r : SIDE,                                     \
                      n_cols - c < SIDE ? n_cols - c : SIDE, s + r * src_ld + c, src_ld,         \
                      d + c * dst_ld + r, dst_ld);                                               \
    }
BLOCKED_TRANSPOSE(transpose8, plain8, uint8_t)
BLOCKED_TRANSPOSE(transpose16, plain16, uint16_t)
BLOCKED_TRANSPOSE(transpose64, plain64, uint64_t)

/* One square of VF_N per side. Floats only in name: loads, shuffles and stores keep any bits. */
WF_SIMD_INLINE void square(const float *src, int64_t src_ld, float *dst, int64_t dst_ld)
{
    vf v[VF_N];

    for (int i = 0; i < VF_N; i++)
        v[i] = vf_load(src + i * src_ld);
    wf_transpose(v);
    for (int i = 0; i < VF_N; i++)
        vf_store(dst + i * dst_ld, v[i]);
}

static void transpose32(int64_t n_rows, int64_t n_cols, const void *src, int64_t src_ld, void *dst,
                        int64_t dst_ld)
{
    enum { SIDE = 16 };
    const float *s = src;
    float *d = dst;
    int64_t full_rows = n_rows - n_rows % SIDE, full_cols = n_cols - n_cols % SIDE;

    for (int64_t c = 0; c < full_cols; c += SIDE)
        for (int64_t r = 0; r < full_rows; r += SIDE)
            for (int64_t i = r; i < r + SIDE; i += VF_N)
                for (int64_t k = c; k < c + SIDE; k += VF_N)
                    square(s + i * src_ld + k, src_ld, d + k * dst_ld + i, dst_ld);
    if (full_cols < n_cols)
        plain32(full_rows, n_cols - full_cols, (const uint32_t *)src + full_cols, src_ld,
                (uint32_t *)dst + full_cols * dst_ld, dst_ld);
    if (full_rows < n_rows)
        plain32(n_rows - full_rows, n_cols, (const uint32_t *)src + full_rows * src_ld, src_ld,
                (uint32_t *)dst + full_rows, dst_ld);
}

/* ---- single elements --------------------------------------------------------------------- */

#define STRIDED(name, type)                                                           \
    static void name(int64_t n, const void *src, int64_t from, void *dst, int64_t to) \
    {                                                                                 \
        const type *s = src;                                                          \
        type *d = dst;                                                                \
        if (to == 1 && from == 0)                                                     \
            for (int64_t i = 0; i < n; i++)                                           \
                d[i] = s[0];                                                          \
        else if (to == 1)                                                             \
            for (int64_t i = 0; i < n; i++)                                           \
                d[i] = s[i * from];                                                   \
        else                                                                          \
            for (int64_t i = 0; i < n; i++)                                           \
                d[i * to] = s[i * from];                                              \
    }
STRIDED(strided8, uint8_t)
STRIDED(strided16, uint16_t)
STRIDED(strided32, uint32_t)
STRIDED(strided64, uint64_t)

const struct wf_move_fns WF_LEVELED(wf_move_fns) = {
    .copy_runs = copy_runs,
    .transpose = {transpose8, transpose16, transpose32, transpose64},
    .strided = {strided8, strided16, strided32, strided64},
};
