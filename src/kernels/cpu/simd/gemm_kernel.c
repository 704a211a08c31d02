/* gemm_kernel.c - the inner parts of matrix products: packing, and blocks of C in registers.
 *
 * Compiled once per SIMD level. A register block is up to MR rows by two vectors of columns; it
 * walks over K once, with a broadcast element of A against two vectors of B, so each element of C
 * is one chain of multiply-adds in the order of k, whichever block it is in. At the level with
 * products of bf16 there is a second set of register blocks, whose elements are pairs of bf16. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/block_inl.h"

#define NR (2 * VF_N)

/* ---- register blocks ------------------------------------------------------------------------- */

struct micro {
    int64_t k;
    const float *a;
    int64_t a_rs, a_cs;
    const float *b;
    int64_t b_rs;
    float *c;
    int64_t ldc;
    bool accumulate;
    uintptr_t soon; /* one cache line is prefetched per row of B: from here, soon_bytes apart */
    int64_t soon_bytes;
    int64_t n_b, n_c; /* columns of the last vector that may be read in B, written in C */
};
typedef void micro_fn(const struct micro *t);

/* Two vectors; two, the last in part; one in part. */
enum shape { WIDE, WIDE_TAIL, NARROW, N_SHAPES };

/* How A lies: anyhow; each row's elements one after another; or packed. The last two save the
 * address arithmetic of most steps in K. */
enum walk { ANY, ALONG, PACKED, N_WALKS };
enum { UNROLL_K = 2 }; /* more, and registers run out */

/* An element of A and of B: a float, or two bf16 that follow each other along K. */
enum unit { FLOATS, PAIRS };

/* clang-format off: it would move UNROLL away from its loops */

/* Where row i and column p of a block of A begin. The pointers to rows are kept for every third row; the
 * compiler then addresses the two between with the row stride as index, which saves registers. */
struct rows {
    const float *a[(MR + 2) / 3];
    int64_t rs, cs;
};

WF_SIMD_INLINE struct rows rows_of(const int mr, const enum walk walk, const struct micro *t)
{
    struct rows r = {.rs = walk == PACKED ? 1 : t->a_rs,
                     .cs = walk == PACKED  ? mr
                           : walk == ALONG ? 1
                                           : t->a_cs};

    r.a[0] = t->a;
    UNROLL for (int i = 1; i < (mr + 2) / 3; i++) r.a[i] = r.a[i - 1] + 3 * r.rs;
    return r;
}

/* Rows of bf16 need not begin at a multiple of 4 bytes. */
WF_SIMD_INLINE vf load1(const enum unit unit, const float *p)
{
    int32_t pair;

    if (unit == FLOATS)
        return vf_load1(p);
    memcpy(&pair, p, sizeof pair);
    return vf_bits(vi_set1(pair));
}

WF_SIMD_INLINE vf mul_add(const enum unit unit, vf a, vf b, vf c)
{
#if defined(WF_LEVEL_AVX512BF16)
    if (unit == PAIRS)
        return vf_dot_bf16(vi_bits(a), vi_bits(b), c);
#endif
    (void)unit;
    return vf_fma(a, b, c);
}

/* One step in K: column p of A against a row of B. */
WF_SIMD_INLINE void step_k(const enum unit unit, const int mr, const enum shape shape,
                           const struct rows *r, int64_t p, const float *b, int64_t n_b,
                           vf acc[MR][2])
{
    const int nv = shape == NARROW ? 1 : 2;
    vf bv[2];

    UNROLL for (int j = 0; j < nv; j++) bv[j] =
        shape != WIDE && j == nv - 1 ? vf_loadn(b + j * VF_N, n_b) : vf_load(b + j * VF_N);
    UNROLL for (int i = 0; i < mr; i++)
    {
        vf av = load1(unit, r->a[i / 3] + i % 3 * r->rs + p * r->cs);

        UNROLL for (int j = 0; j < nv; j++) acc[i][j] = mul_add(unit, av, bv[j], acc[i][j]);
    }
}

WF_SIMD_INLINE void micro(const enum unit unit, const int mr, const enum shape shape,
                          const enum walk walk, const struct micro *t)
{
    const int nv = shape == NARROW ? 1 : 2, n_unroll = walk == ANY ? 1 : UNROLL_K;
    const int64_t k = t->k, b_rs = t->b_rs, n_b = t->n_b;
    const uintptr_t soon_bytes = (uintptr_t)t->soon_bytes;
    const float *b = t->b;
    uintptr_t soon = t->soon;
    struct rows r = rows_of(mr, walk, t);
    vf acc[MR][2];
    int64_t p = 0;

    UNROLL for (int i = 0; i < mr; i++)
    {
        wf_prefetch_write(t->c + i * t->ldc);
        UNROLL for (int j = 0; j < nv; j++) acc[i][j] = vf_zero();
    }
    for (; p + n_unroll <= k; p += n_unroll) {
        UNROLL for (int u = 0; u < n_unroll; u++)
        {
            step_k(unit, mr, shape, &r, u, b, n_b, acc);
            b += b_rs;
            wf_prefetch((const void *)soon);
            soon += soon_bytes;
        }
        UNROLL for (int i = 0; i < (mr + 2) / 3; i++) r.a[i] += n_unroll * r.cs;
    }
    for (; n_unroll > 1 && p < k; p++) {
        step_k(unit, mr, shape, &r, 0, b, n_b, acc);
        b += b_rs;
        UNROLL for (int i = 0; i < (mr + 2) / 3; i++) r.a[i] += r.cs;
    }
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++)
    {
        float *c = t->c + i * t->ldc + j * VF_N;
        vf x = acc[i][j];

        if (shape != WIDE && j == nv - 1) {
            if (t->accumulate)
                x = vf_add(vf_loadn(c, t->n_c), x);
            vf_storen(c, x, t->n_c);
        } else {
            if (t->accumulate)
                x = vf_add(vf_load(c), x);
            vf_store(c, x);
        }
    }
}

#define MICRO(unit, mr)                                     \
    static void unit##_##mr##_wide(const struct micro *t)   \
    {                                                       \
        micro(unit, mr, WIDE, ANY, t);                      \
    }                                                       \
    static void unit##_##mr##_along(const struct micro *t)  \
    {                                                       \
        micro(unit, mr, WIDE, ALONG, t);                    \
    }                                                       \
    static void unit##_##mr##_packed(const struct micro *t) \
    {                                                       \
        micro(unit, mr, WIDE, PACKED, t);                   \
    }                                                       \
    static void unit##_##mr##_tail(const struct micro *t)   \
    {                                                       \
        micro(unit, mr, WIDE_TAIL, ANY, t);                 \
    }                                                       \
    static void unit##_##mr##_narrow(const struct micro *t) \
    {                                                       \
        micro(unit, mr, NARROW, ANY, t);                    \
    }
#define MICRO_ROW(unit, mr)                                           \
    {{unit##_##mr##_wide, unit##_##mr##_tail, unit##_##mr##_narrow},  \
     {unit##_##mr##_along, unit##_##mr##_tail, unit##_##mr##_narrow}, \
     {unit##_##mr##_packed, unit##_##mr##_tail, unit##_##mr##_narrow}},
#define OF_FLOATS(mr) MICRO(FLOATS, mr)
#define FLOATS_ROW(mr) MICRO_ROW(FLOATS, mr)
#define OF_PAIRS(mr) MICRO(PAIRS, mr)
#define PAIRS_ROW(mr) MICRO_ROW(PAIRS, mr)

/* clang-format on */

typedef micro_fn *const micro_table[MR][N_WALKS][N_SHAPES];

FOR_EACH_MR(OF_FLOATS)

static micro_table micros = {FOR_EACH_MR(FLOATS_ROW)};

#if defined(WF_LEVEL_AVX512BF16)
FOR_EACH_MR(OF_PAIRS)

static micro_table pair_micros = {FOR_EACH_MR(PAIRS_ROW)};
#endif

/* ---- blocks ---------------------------------------------------------------------------------- */

/* m rows are divided into as few groups of at most `most` as possible, of nearly equal size: the
 * first `longer` groups have one more row. */
struct groups {
    int64_t n, rows, longer;
};

static struct groups cut_rows(int64_t m, int64_t most)
{
    int64_t n = (m + most - 1) / most;

    return n ? (struct groups){n, m / n, m % n} : (struct groups){0, 0, 0};
}

/* Rows of A that are a multiple of 4 KiB apart share one set of the L1 cache, which has 8 ways or
 * more: walk over no more of them at a time. Results do not depend on it. */
static int64_t most_rows(const struct wf_gemm_block *p)
{
    return !p->a_packed && p->a_rs % 1024 == 0 && MR > 7 ? 7 : MR;
}

/* The first register blocks prefetch what the caller will read; the others, and all without a hint,
 * the next rows of B. */
WF_SIMD_INLINE void ask_soon(struct micro *t, const struct wf_gemm_block *p, int64_t call)
{
    if (p->soon && call < p->soon_n) {
        t->soon = (uintptr_t)p->soon + (uintptr_t)(call * p->soon_next);
        t->soon_bytes = p->soon_bytes;
    } else {
        t->soon_bytes = t->b_rs * 4;
        t->soon = (uintptr_t)t->b + (uintptr_t)(8 * t->soon_bytes);
    }
}

/* One panel of B against one group of rows. */
WF_SIMD_INLINE void step_panel(micro_table table, const struct wf_gemm_block *p, struct micro *t,
                               int64_t rows, int64_t row, int64_t col, int64_t call)
{
    const bool plain = p->b_ld > 0;
    int64_t n = p->n - col < NR ? p->n - col : NR;
    enum shape shape = n == NR ? WIDE : n > VF_N ? WIDE_TAIL : NARROW;
    enum walk walk = p->a_packed ? PACKED : p->a_cs == 1 ? ALONG : ANY;

    t->n_c = shape == NARROW ? n : n - VF_N;
    t->n_b = plain ? t->n_c : VF_N;
    t->b = p->b + (plain ? col : col / NR * p->b_ps);
    t->c = p->c + row * p->ldc + col;
    ask_soon(t, p, call);
    table[rows - 1][walk][shape](t);
}

/* A group of rows is multiplied with all panels before the next group: its part of A stays in the
 * L1 cache, and B is one long stream. */
WF_SIMD_INLINE void all_groups(micro_table table, const struct wf_gemm_block *p)
{
    const struct groups groups = cut_rows(p->m, most_rows(p));
    struct micro t = {.k = p->k,
                      .a_rs = p->a_rs,
                      .a_cs = p->a_cs,
                      .b_rs = p->b_ld > 0 ? p->b_ld : NR,
                      .ldc = p->ldc,
                      .accumulate = p->accumulate};
    int64_t row = 0, call = 0;

    for (int64_t g = 0; g < groups.n; g++) {
        int64_t rows = groups.rows + (g < groups.longer);

        t.a = p->a + row * (p->a_packed ? p->k : p->a_rs);
        if (p->a_packed) {
            t.a_rs = 1;
            t.a_cs = rows;
        }
        for (int64_t col = 0; col < p->n; col += NR)
            step_panel(table, p, &t, rows, row, col, call++);
        row += rows;
    }
}

static void block(const struct wf_gemm_block *p)
{
    all_groups(micros, p);
}

static void col_sums(float *dst, const struct wf_gemm_block *p)
{
    const bool plain = p->b_ld > 0;
    const int64_t b_rs = plain ? p->b_ld : NR;

    for (int64_t col = 0; col < p->n; col += VF_N) {
        int64_t n = p->n - col < VF_N ? p->n - col : VF_N, n_b = plain ? n : VF_N;
        const float *b = p->b + (plain ? col : col / NR * p->b_ps + col % NR);
        vf s[4], sum;

        for (int i = 0; i < 4; i++)
            s[i] = vf_zero();
        for (int64_t row = 0; row < p->k; row++)
            s[row & 3] = vf_add(s[row & 3], vf_loadn(b + row * b_rs, n_b));
        sum = vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3]));
        vf_storen(dst + col, p->accumulate ? vf_add(vf_loadn(dst + col, n), sum) : sum, n);
    }
}

/* Adds to zero as a register block does, which decides the sign of a zero. */
static void outer(float *c, int64_t ldc, const float *a, int64_t a_rs, const float *b, int64_t m,
                  int64_t n)
{
    for (int64_t i = 0; i < m; i++, a += a_rs, c += ldc) {
        const vf av = vf_load1(a);
        const bool whole = (uintptr_t)c % sizeof av == 0;
        int64_t j = 0;

        for (; whole && j + VF_N <= n; j += VF_N)
            vf_stream(c + j, vf_fma(av, vf_load(b + j), vf_zero()));
        for (; j + VF_N <= n; j += VF_N)
            vf_store(c + j, vf_fma(av, vf_load(b + j), vf_zero()));
        if (j < n)
            vf_storen(c + j, vf_fma(av, vf_loadn(b + j, n - j), vf_zero()), n - j);
    }
    wf_stream_end();
}

/* ---- typed rows ------------------------------------------------------------------------------ */

WF_SIMD_INLINE int64_t type_bytes(const int type)
{
    return type == WF_GEMM_F32 ? 4 : 2;
}

WF_SIMD_INLINE vf load_typed(const int type, const void *p)
{
    return type == WF_GEMM_F32    ? vf_load(p)
           : type == WF_GEMM_BF16 ? vf_load_bf16(p)
                                  : vf_load_f16(p);
}

WF_SIMD_INLINE vf loadn_typed(const int type, const void *p, int64_t n)
{
    return type == WF_GEMM_F32    ? vf_loadn(p, n)
           : type == WF_GEMM_BF16 ? vf_load_bf16n(p, n)
                                  : vf_load_f16n(p, n);
}

WF_SIMD_INLINE void storen_typed(const int type, void *p, vf x, int64_t n)
{
    if (type == WF_GEMM_F32)
        vf_storen(p, x, n);
    else if (type == WF_GEMM_BF16)
        vf_store_bf16n(p, x, n);
    else
        vf_store_f16n(p, x, n);
}

WF_SIMD_INLINE const void *at(const int type, const void *p, int64_t i)
{
    return (const char *)p + i * type_bytes(type);
}

/* Prefetches what will be read soon: rows are too far apart for the hardware to guess the next one.
 * The address may be beyond the matrix, where prefetching is harmless. */
WF_SIMD_INLINE void ask(const int type, const void *p, int64_t i)
{
    wf_prefetch((const void *)((uintptr_t)p + (uintptr_t)(i * type_bytes(type))));
}

/* ---- packing --------------------------------------------------------------------------------- */

/* clang-format off */

/* Transpose VF_N vectors of VF_N lanes in place. */
#if defined(WF_LEVEL_AVX512)
WF_SIMD_INLINE void transpose(vf r[VF_N])
{
    __m512 t[16], u[16];

    UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps((__m512)r[i], (__m512)r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps((__m512)r[i], (__m512)r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
        UNROLL for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);

            u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* Lane group l of u[4g + c] holds rows 4g to 4g + 3 of column 4l + c. */
    UNROLL for (int c = 0; c < 4; c++) {
        __m512 lo02 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
        __m512 lo13 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
        __m512 hi02 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
        __m512 hi13 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);

        r[c] = (vf)_mm512_shuffle_f32x4(lo02, hi02, 0x88);
        r[8 + c] = (vf)_mm512_shuffle_f32x4(lo02, hi02, 0xdd);
        r[4 + c] = (vf)_mm512_shuffle_f32x4(lo13, hi13, 0x88);
        r[12 + c] = (vf)_mm512_shuffle_f32x4(lo13, hi13, 0xdd);
    }
}
#elif defined(WF_LEVEL_AVX2)
WF_SIMD_INLINE void transpose(vf r[VF_N])
{
    __m256 t[8], u[8];

    UNROLL for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
        UNROLL for (int j = 0; j < 2; j++) {
            __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);

            u[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    UNROLL for (int c = 0; c < 4; c++) {
        r[c] = (vf)_mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        r[4 + c] = (vf)_mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
}
#else
WF_SIMD_INLINE void transpose(vf r[VF_N])
{
    vf t[VF_N];

    for (int i = 0; i < VF_N; i++)
        t[i] = (vf){ r[0][i], r[1][i], r[2][i], r[3][i] };
    for (int i = 0; i < VF_N; i++)
        r[i] = t[i];
}
#endif

/* One square from rows of B's transpose. */
WF_SIMD_INLINE void pack_square(const int type, float *dst, const void *src, int64_t ld)
{
    vf r[VF_N];

    UNROLL for (int i = 0; i < VF_N; i++)
        r[i] = load_typed(type, at(type, src, i * ld));
    transpose(r);
    UNROLL for (int i = 0; i < VF_N; i++)
        vf_store(dst + i * NR, r[i]);
}

/* clang-format on */

/* A few rows of a panel: n <= NR columns. */
WF_SIMD_INLINE void pack_rows(const int type, float *dst, const void *src, int64_t ld, int64_t k,
                              int64_t n)
{
    int64_t n0 = n < VF_N ? n : VF_N, n1 = n - n0;

    if (n == NR) {
        for (int64_t p = 0; p < k; p++) {
            vf_store(dst + p * NR, load_typed(type, at(type, src, p * ld)));
            vf_store(dst + p * NR + VF_N, load_typed(type, at(type, src, p * ld + VF_N)));
        }
        return;
    }
    for (int64_t p = 0; p < k; p++) {
        vf_store(dst + p * NR, loadn_typed(type, at(type, src, p * ld), n0));
        vf_store(dst + p * NR + VF_N,
                 n1 ? loadn_typed(type, at(type, src, p * ld + VF_N), n1) : vf_zero());
    }
}

/* Half a panel from rows of B's transpose: n <= VF_N columns. */
WF_SIMD_INLINE void pack_cols(const int type, float *dst, const void *src, int64_t ld, int64_t k,
                              int64_t n)
{
    int64_t p = 0;

    if (n == VF_N)
        for (; p + VF_N <= k; p += VF_N)
            pack_square(type, dst + p * NR, at(type, src, p), ld);
    for (; p < k; p += VF_N) {
        int64_t n_k = k - p < VF_N ? k - p : VF_N;
        vf r[VF_N];

        for (int i = 0; i < VF_N; i++)
            r[i] = i < n ? loadn_typed(type, at(type, src, i * ld + p), n_k) : vf_zero();
        transpose(r);
        for (int64_t i = 0; i < n_k; i++)
            vf_store(dst + (p + i) * NR, r[i]);
    }
}

/* Rows that go over all panels or groups before the next ones, so that the caches and prefetchers
 * see a few long streams at a time, for any distance of the rows. */
enum { PACK_ROWS = 8 };

WF_SIMD_INLINE void pack_b_typed(const int type, float *dst, int64_t ps, const void *src,
                                 int64_t ld, bool trans, int64_t k, int64_t n)
{
    if (!trans) {
        for (int64_t p = 0; p < k; p += PACK_ROWS)
            for (int64_t col = 0; col < n; col += NR)
                pack_rows(type, dst + col / NR * ps + p * NR, at(type, src, p * ld + col), ld,
                          k - p < PACK_ROWS ? k - p : PACK_ROWS, n - col < NR ? n - col : NR);
        return;
    }
    for (int64_t col = 0; col < n; col += NR, dst += ps) {
        int64_t n_cols = n - col < NR ? n - col : NR, n0 = n_cols < VF_N ? n_cols : VF_N;

        pack_cols(type, dst, at(type, src, col * ld), ld, k, n0);
        pack_cols(type, dst + VF_N, at(type, src, (col + n0) * ld), ld, k, n_cols - n0);
    }
}

static void pack_b_part(float *dst, int64_t ps, const void *src, int type, int64_t ld, bool trans,
                        int64_t k, int64_t n)
{
    if (type == WF_GEMM_F32)
        pack_b_typed(WF_GEMM_F32, dst, ps, src, ld, trans, k, n);
    else if (type == WF_GEMM_BF16)
        pack_b_typed(WF_GEMM_BF16, dst, ps, src, ld, trans, k, n);
    else
        pack_b_typed(WF_GEMM_F16, dst, ps, src, ld, trans, k, n);
}

static void pack_b(float *dst, const void *src, int type, int64_t ld, bool trans, int64_t k,
                   int64_t n)
{
    pack_b_part(dst, k * NR, src, type, ld, trans, k, n);
}

/* Whole vectors are stored if the next rows of the group overwrite the lanes beyond this one. */
WF_SIMD_INLINE void pack_a_typed(const int type, float *dst, const void *src, int64_t ld, int64_t k,
                                 int64_t m)
{
    const struct groups groups = cut_rows(m, MR);

    for (int64_t p0 = 0; p0 < k; p0 += PACK_ROWS) {
        int64_t n_p = k - p0 < PACK_ROWS ? k - p0 : PACK_ROWS, row = 0;

        for (int64_t g = 0; g < groups.n; g++) {
            int64_t rows = groups.rows + (g < groups.longer);
            float *to = dst + row * k + p0 * rows;

            for (int64_t p = p0; p < p0 + n_p; p++, to += rows) {
                vf x = loadn_typed(type, at(type, src, p * ld + row), rows);

                if ((k - p) * rows >= VF_N)
                    vf_store(to, x);
                else
                    vf_storen(to, x, rows);
            }
            row += rows;
        }
    }
}

static void pack_a(float *dst, const void *src, int type, int64_t ld, int64_t k, int64_t m)
{
    _Static_assert(MR <= VF_N, "a group of rows is one vector");
    if (type == WF_GEMM_F32)
        pack_a_typed(WF_GEMM_F32, dst, src, ld, k, m);
    else if (type == WF_GEMM_BF16)
        pack_a_typed(WF_GEMM_BF16, dst, src, ld, k, m);
    else
        pack_a_typed(WF_GEMM_F16, dst, src, ld, k, m);
}

/* ---- rectangles ------------------------------------------------------------------------------ */

WF_SIMD_INLINE void load_rows(const int type, float *dst, int64_t dst_ld, const void *src,
                              int64_t ld, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        int64_t j = 0;

        for (; j + VF_N <= n; j += VF_N) {
            ask(type, src, (i + 1) * ld + j);
            vf_store(dst + i * dst_ld + j, load_typed(type, at(type, src, i * ld + j)));
        }
        if (j < n)
            vf_storen(dst + i * dst_ld + j, loadn_typed(type, at(type, src, i * ld + j), n - j),
                      n - j);
    }
}

static void load(float *dst, int64_t dst_ld, const void *src, int type, int64_t ld, int64_t m,
                 int64_t n)
{
    if (type == WF_GEMM_F32)
        load_rows(WF_GEMM_F32, dst, dst_ld, src, ld, m, n);
    else if (type == WF_GEMM_BF16)
        load_rows(WF_GEMM_BF16, dst, dst_ld, src, ld, m, n);
    else
        load_rows(WF_GEMM_F16, dst, dst_ld, src, ld, m, n);
}

WF_SIMD_INLINE void save_rows(const int type, void *dst, int64_t dst_ld, const float *src,
                              int64_t ld, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += VF_N) {
            int64_t w = n - j < VF_N ? n - j : VF_N;

            storen_typed(type, (char *)dst + (i * dst_ld + j) * type_bytes(type),
                         vf_loadn(src + i * ld + j, w), w);
        }
}

static void save(void *dst, int type, int64_t dst_ld, const float *src, int64_t ld, int64_t m,
                 int64_t n)
{
    if (type == WF_GEMM_F32)
        save_rows(WF_GEMM_F32, dst, dst_ld, src, ld, m, n);
    else if (type == WF_GEMM_BF16)
        save_rows(WF_GEMM_BF16, dst, dst_ld, src, ld, m, n);
    else
        save_rows(WF_GEMM_F16, dst, dst_ld, src, ld, m, n);
}

static void add(float *dst, int64_t dst_ld, const float *src, int64_t ld, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += VF_N) {
            int64_t w = n - j < VF_N ? n - j : VF_N;
            float *d = dst + i * dst_ld + j;

            vf_storen(d, vf_add(vf_loadn(d, w), vf_loadn(src + i * ld + j, w)), w);
        }
}

static void flip(float *dst, int64_t dst_ld, const float *src, int64_t ld, int64_t m, int64_t n,
                 bool accumulate)
{
    for (int64_t i = 0; i < m; i += VF_N) {
        int64_t w = m - i < VF_N ? m - i : VF_N;
        vf r[VF_N];

        for (int j = 0; j < VF_N; j++)
            r[j] = j < n ? vf_loadn(src + j * ld + i, w) : vf_zero();
        transpose(r);
        for (int64_t q = 0; q < w; q++) {
            float *d = dst + (i + q) * dst_ld;

            vf_storen(d, accumulate ? vf_add(vf_loadn(d, n), r[q]) : r[q], n);
        }
    }
}

#if defined(WF_LEVEL_AVX512BF16)
#include "kernels/cpu/simd/pairs_inl.h"
#endif

/* ---- yardstick ------------------------------------------------------------------------------- */

#define N_CHAINS 12

/* clang-format off */
static double peak_loop(int64_t n_rounds)
{
    const vf x = vf_set1(0.999f), y = vf_set1(0.001f);
    vf chain[N_CHAINS], sum = vf_zero();
    volatile float keep;

    UNROLL for (int i = 0; i < N_CHAINS; i++)
        chain[i] = vf_set1((float)i);
    for (int64_t r = 0; r < n_rounds; r++)
        UNROLL for (int i = 0; i < N_CHAINS; i++)
            chain[i] = vf_fma(chain[i], x, y);
    UNROLL for (int i = 0; i < N_CHAINS; i++)
        sum = vf_add(sum, chain[i]);
    keep = vf_hsum(sum);
    (void)keep;
    return 2.0 * N_CHAINS * VF_N * (double)n_rounds;
}
/* clang-format on */

extern const struct wf_gemm_fns WF_LEVELED(wf_gemm_fns);
const struct wf_gemm_fns WF_LEVELED(wf_gemm_fns) = {
    .name = WF_LEVEL_NAME,
    .mr = MR,
    .nr = NR,
    .block = block,
    .pack_b = pack_b,
    .pack_b_part = pack_b_part,
    .pack_a = pack_a,
    .load = load,
    .save = save,
    .add = add,
    .flip = flip,
    .col_sums = col_sums,
    .outer = outer,
    .peak_loop = peak_loop,
#if defined(WF_LEVEL_AVX512BF16)
    .pairs = &pair_fns,
#endif
};
