/* gemm_test.c - matrix products: every element is the sum the header promises, bit for bit, at
 * every SIMD level and for any number of threads; nothing outside the matrices is touched. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/gemm.h"
#include "support/guarded.h"
#include "support/levels.h"

/* ---- operands -------------------------------------------------------------------------------- */

static uint32_t seed;

static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8) / (1 << 23) - 1.0f;
}

static float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;

    memcpy(&x, &bits, 4);
    return x;
}

/* Normal numbers and zero only, which is what the tests use. */
static float from_f16(uint16_t h)
{
    float x = ldexpf((float)((h & 0x3ff) | 0x400), (h >> 10 & 31) - 25);

    return h & 0x7fff ? (h & 0x8000 ? -x : x) : 0.0f;
}

static uint16_t random_half(int type)
{
    seed = seed * 1664525u + 1013904223u;
    if (type == WF_GEMM_BF16)
        return (uint16_t)((seed >> 16 & 0x807f) | (120 + (seed >> 8 & 7)) << 7);
    return (uint16_t)((seed >> 16 & 0x83ff) | (10 + (seed >> 8 & 3)) << 10);
}

static size_t bytes_of(int type)
{
    return type == WF_GEMM_F32 ? 4 : 2;
}

static float value_at(const void *p, int type, int64_t i)
{
    return type == WF_GEMM_F32    ? ((const float *)p)[i]
           : type == WF_GEMM_BF16 ? from_bf16(((const uint16_t *)p)[i])
                                  : from_f16(((const uint16_t *)p)[i]);
}

static void fill(void *p, int type, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (type == WF_GEMM_F32)
            ((float *)p)[i] = draw();
        else
            ((uint16_t *)p)[i] = random_half(type);
}

/* Elements from the first to the last one of a batched matrix. */
static int64_t extent(int64_t batch, int64_t stride, int64_t rows, int64_t cols, int64_t ld)
{
    return batch && rows && cols ? (batch - 1) * stride + (rows - 1) * ld + cols : 0;
}

/* ---- one case -------------------------------------------------------------------------------- */

struct shape {
    int64_t m, n, k, batch;
    int pad; /* added to every leading dimension and batch stride */
};

struct operands {
    struct wf_gemm_desc d;
    struct guarded a, b, c, scratch, sums;
    float *c_old; /* as f32, with its gaps */
    int64_t n_c;
};

static struct wf_gemm_desc describe(const struct shape *s, int flags, int types)
{
    struct wf_gemm_desc d = {.m = s->m, .n = s->n, .k = s->k, .batch = s->batch};

    d.trans_a = flags & 1;
    d.trans_b = flags & 2;
    d.accumulate = flags & 4;
    d.col_sums = flags & 8;
    d.type_a = types & 3;
    d.type_b = types >> 2 & 3;
    d.type_c = types >> 4 & 3;
    d.lda = (d.trans_a ? d.m : d.k) + s->pad;
    d.ldb = (d.trans_b ? d.k : d.n) + s->pad;
    d.ldc = d.n + s->pad;
    d.stride_a = (d.trans_a ? d.k : d.m) * d.lda + s->pad;
    d.stride_b = (d.trans_b ? d.n : d.k) * d.ldb + s->pad;
    d.stride_c = d.m * d.ldc + s->pad;
    return d;
}

static void operands_new(struct operands *o, const struct wf_gemm_desc *d)
{
    int64_t n_a =
        extent(d->batch, d->stride_a, d->trans_a ? d->k : d->m, d->trans_a ? d->m : d->k, d->lda);
    int64_t n_b =
        extent(d->batch, d->stride_b, d->trans_b ? d->n : d->k, d->trans_b ? d->k : d->n, d->ldb);

    seed = (uint32_t)(d->m * 31 + d->n * 17 + d->k);
    o->d = *d;
    o->n_c = extent(d->batch, d->stride_c, d->m, d->n, d->ldc);
    o->a = guarded_new((size_t)n_a * bytes_of(d->type_a));
    o->b = guarded_new((size_t)n_b * bytes_of(d->type_b));
    o->c = guarded_new((size_t)o->n_c * bytes_of(d->type_c));
    o->sums = guarded_new((size_t)(d->batch * d->n) * sizeof(float));
    o->c_old = malloc((size_t)(o->n_c + 1) * sizeof(float));
    fill(o->a.p, d->type_a, n_a);
    fill(o->b.p, d->type_b, n_b);
}

static void operands_free(struct operands *o)
{
    guarded_free(&o->a);
    guarded_free(&o->b);
    guarded_free(&o->c);
    guarded_free(&o->sums);
    free(o->c_old);
}

static void reset_c(struct operands *o)
{
    seed = 7;
    fill(o->c.p, o->d.type_c, o->n_c);
    for (int64_t i = 0; i < o->n_c; i++)
        o->c_old[i] = value_at(o->c.p, o->d.type_c, i);
}

/* Epilogue: y = 2 y + column; counts its visits. */
struct visits {
    int64_t n, m;
    unsigned char *seen;
};

static void double_and_add_column(void *arg, int thread, int64_t b, int64_t row, int64_t n_rows,
                                  int64_t col, int64_t n_cols, float *c, int64_t ldc)
{
    struct visits *v = arg;

    (void)thread;
    if (v->n <= WF_GEMM_WHOLE_ROWS)
        assert_true(col == 0 && n_cols == v->n);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_cols; j++) {
            c[i * ldc + j] = 2 * c[i * ldc + j] + (float)(col + j);
            v->seen[(b * v->m + row + i) * v->n + col + j]++;
        }
}

static float mul_add(const struct wf_gemm_fns *fns, float a, float b, float c)
{
    volatile float p = a * b; /* rounded on its own */

    return strcmp(fns->name, "portable") ? fmaf(a, b, c) : p + c;
}

/* The promise of the header: products in the order of k, block by block, chunk by chunk. */
static float expected(const struct wf_gemm *g, const struct operands *o, int64_t b, int64_t i,
                      int64_t j)
{
    const struct wf_gemm_desc *d = &g->d;
    float old = d->accumulate ? o->c_old[b * d->stride_c + i * d->ldc + j] : 0.0f, sum = 0,
          part = 0;
    int64_t unit = g->pairs ? 2 : 1, kc = g->kc * unit, chunk_k = g->chunk_k * unit;
    bool started = false;

    for (int64_t k = 0; k < d->k; k += kc) {
        float acc = 0;

        for (int64_t at = k; at < d->k && at < k + kc; at++) {
            int64_t p = g->pairs && (at ^ 1) < d->k ? at ^ 1 : at; /* the second of a pair first */

            acc =
                mul_add(g->fns,
                        value_at(o->a.p, d->type_a,
                                 b * d->stride_a + (d->trans_a ? p * d->lda + i : i * d->lda + p)),
                        value_at(o->b.p, d->type_b,
                                 b * d->stride_b + (d->trans_b ? j * d->ldb + p : p * d->ldb + j)),
                        acc);
        }
        if (k % chunk_k == 0) {
            sum = started ? sum + part : 0;
            if (started && k == chunk_k)
                sum = part;
            part = g->n_chunks == 1 && d->accumulate && !g->swap ? old + acc : acc;
            started = true;
        } else {
            part += acc;
        }
    }
    if (g->n_chunks == 1 && !g->swap)
        return d->k ? part : old;
    sum += part;
    return d->accumulate ? old + sum : sum;
}

/* Of large products only every few elements are looked at, in a step that meets every row and
 * column. */
static void check_c(const struct wf_gemm *g, const struct operands *o)
{
    const struct wf_gemm_desc *d = &g->d;
    unsigned char *inside = calloc((size_t)(o->n_c + 1), 1);
    int64_t step = 1 + d->m * d->n * d->k / 40000;

    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t i = 0; i < d->m; i++)
            for (int64_t j = 0; j < d->n; j++) {
                int64_t at = b * d->stride_c + i * d->ldc + j;
                float want, got = value_at(o->c.p, d->type_c, at);

                inside[at] = 1;
                if ((i + j) % step)
                    continue;
                want = expected(g, o, b, i, j);
                if (d->epilogue)
                    want = 2 * want + (float)j;
                if (d->type_c == WF_GEMM_F32 ? got != want
                                             : fabsf(got - want) > 0.005f * fabsf(want) + 1e-3f)
                    fail_msg("%s %lldx%lldx%lld%s%s: C[%lld][%lld] is %.9g, not %.9g", g->fns->name,
                             (long long)d->m, (long long)d->n, (long long)d->k,
                             d->trans_a ? " At" : "", d->trans_b ? " Bt" : "", (long long)i,
                             (long long)j, got, want);
            }
    for (int64_t i = 0; i < o->n_c; i++)
        if (!inside[i])
            assert_true(value_at(o->c.p, d->type_c, i) == o->c_old[i]);
    free(inside);
}

static void check_sums(const struct wf_gemm *g, const struct operands *o)
{
    const struct wf_gemm_desc *d = &g->d;

    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t j = 0; j < d->n; j++) {
            double want = 0;

            for (int64_t p = 0; p < d->k; p++)
                want += value_at(o->b.p, d->type_b,
                                 b * d->stride_b + (d->trans_b ? j * d->ldb + p : p * d->ldb + j));
            assert_true(fabs(((float *)o->sums.p)[b * d->n + j] - want) <=
                        1e-5 * (1 + (double)d->k));
        }
}

static struct wf_pool *pools[8];
static weft_ctx *ctx;
static const int thread_counts[] = {1, 2, 3, 7};

/* A cut forced on the plan; NULL leaves it alone. */
struct recut {
    int64_t tile_m, tile_n, n_chunks;
    int read_a, read_b;
};

static void run_case(const struct wf_gemm_fns *fns, const struct shape *s, int flags, int types,
                     bool epilogue, const struct recut *re)
{
    struct wf_gemm_desc d = describe(s, flags, types);
    struct operands o;
    struct wf_gemm g;
    struct visits v = {d.n, d.m, NULL};
    size_t n_elements = (size_t)(d.batch * d.m * d.n), c_bytes,
           sum_bytes = (size_t)(d.batch * d.n) * 4;
    unsigned char *first_c, *first_sums;

    if (epilogue) {
        d.epilogue = double_and_add_column;
        d.epilogue_arg = &v;
    }
    operands_new(&o, &d);
    c_bytes = (size_t)o.n_c * bytes_of(d.type_c);
    first_c = malloc(c_bytes + 1);
    first_sums = malloc(sum_bytes + 1);
    for (int t = 0; t < WF_COUNT(thread_counts); t++) {
        size_t bytes;

        wf_gemm_plan(&g, &d, fns, thread_counts[t], &bytes);
        if (re)
            wf_gemm_recut(&g, re->tile_m, re->tile_n, re->n_chunks, re->read_a, re->read_b, &bytes);
        bytes = (bytes + 63) / 64 * 64;
        o.scratch = guarded_new(bytes);
        memset(o.scratch.p, 0xff, bytes); /* NaN: scratch is never read before it is written */
        reset_c(&o);
        v.seen = calloc(n_elements + 1, 1);
        wf_gemm_run(&g, pools[thread_counts[t]], o.a.p, o.b.p, o.c.p, o.sums.p, o.scratch.p);
        for (size_t i = 0; epilogue && i < n_elements; i++)
            assert_int_equal(v.seen[i], 1);
        free(v.seen);
        guarded_free(&o.scratch);
        if (t == 0) {
            check_c(&g, &o);
            if (d.col_sums)
                check_sums(&g, &o);
            memcpy(first_c, o.c.p, c_bytes);
            memcpy(first_sums, o.sums.p, sum_bytes);
        } else {
            assert_memory_equal(first_c, o.c.p, c_bytes);
            if (d.col_sums)
                assert_memory_equal(first_sums, o.sums.p, sum_bytes);
        }
    }
    free(first_c);
    free(first_sums);
    operands_free(&o);
}

static const struct shape shapes[] = {
    {1, 1, 1, 1, 0},      {1, 1, 300, 1, 0},    {3, 5, 7, 1, 1},      {14, 32, 16, 1, 0},
    {15, 33, 17, 1, 3},   {13, 31, 15, 3, 2},   {29, 65, 40, 1, 0},   {64, 10, 1024, 1, 0},
    {128, 10, 128, 1, 0}, {10, 128, 128, 1, 0}, {33, 129, 520, 1, 0}, {5, 700, 33, 1, 1},
    {300, 1, 50, 1, 0},   {1, 300, 50, 1, 0},   {40, 24, 1024, 2, 0}, {7, 9, 5000, 1, 0},
    {130, 200, 70, 1, 0}, {16, 48, 513, 4, 0},  {257, 40, 30, 1, 0},  {20, 530, 1024, 1, 0},
};
static const struct shape empties[] = {
    {0, 5, 3, 1, 0}, {5, 0, 3, 1, 0},   {5, 3, 0, 1, 0},    {0, 0, 0, 1, 0},
    {5, 3, 4, 0, 0}, {0, 40, 70, 2, 0}, {40, 300, 0, 2, 1},
};

static const struct wf_gemm_fns *levels[4];
static int n_levels;

/* Threads meet in the same ways at every level and with every type: the thread sanitizer sees a
 * quarter of the cases, another one at each level. All of them run in the other builds. */
#ifdef __SANITIZE_THREAD__
enum { EVERY = 4 };
#else
enum { EVERY = 1 };
#endif

static bool is_tried(int level, int number)
{
    return (level + number) % EVERY == 0;
}

/* In f32 the level that multiplies bf16 is the one below it, compiled again. */
static bool is_own(int level)
{
    return level == 0 || !levels[level]->pairs;
}

static void every_element_is_its_sum_in_order_of_k(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < WF_COUNT(shapes); i++)
            for (int flags = 0; flags < 16; flags++)
                if (is_tried(l, i + flags))
                    run_case(levels[l], &shapes[i], flags, 0, flags % 3 == 0, NULL);
}

/* Large products of a column and a row are written past the caches, in rows that begin anywhere. */
static void a_column_times_a_row_has_the_same_sums(void **state)
{
    static const struct shape some[] = {
        {600, 512, 1, 1, 0}, {513, 519, 1, 2, 3}, {3, 300000, 1, 1, 1}, {300000, 1, 1, 1, 0}};

    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < WF_COUNT(some); i++)
            for (int flags = 0; flags < 16; flags++) {
                struct wf_gemm_desc d = describe(&some[i], flags, 0);
                struct wf_gemm g;
                size_t bytes;

                if (!is_tried(l, i + flags))
                    continue;
                wf_gemm_plan(&g, &d, levels[l], 2, &bytes);
                assert_int_equal(g.outer, !d.trans_b && !d.accumulate && d.n > 64);
                run_case(levels[l], &some[i], flags, 0, flags % 3 == 0, NULL);
            }
}

static void empty_sizes_give_zeros_and_the_epilogue(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < WF_COUNT(empties); i++)
            for (int flags = 0; flags < 16; flags++)
                run_case(levels[l], &empties[i], flags, 0, true, NULL);
}

static void halves_are_converted_and_summed_in_f32(void **state)
{
    static const struct shape some[] = {
        {33, 37, 70, 2, 1}, {64, 10, 1024, 1, 0}, {30, 200, 40, 1, 0}};
    static const int types[] = {
        1, 2, 4, 8, 1 << 4, 2 << 4, 1 | 1 << 2 | 1 << 4, 2 | 2 << 2 | 2 << 4};

    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < WF_COUNT(some); i++)
            for (int t = 0; t < WF_COUNT(types); t++)
                for (int flags = 0; flags < 16; flags++)
                    if (is_tried(l, t + flags))
                        run_case(levels[l], &some[i], flags, types[t], flags & 1, NULL);
}

/* The level that multiplies bf16; NULL, and the test is skipped, if this CPU has none. */
static const struct wf_gemm_fns *level_of_pairs(void)
{
    if (levels[n_levels - 1]->pairs)
        return levels[n_levels - 1];
    skip();
    return NULL;
}

enum { BOTH_BF16 = WF_GEMM_BF16 | WF_GEMM_BF16 << 2 };

static void products_of_bf16_add_pairs(void **state)
{
    const struct wf_gemm_fns *f = level_of_pairs();

    (void)state;
    for (int i = 0; i < WF_COUNT(shapes); i++)
        for (int flags = 0; flags < 16; flags++) {
            struct shape s = shapes[i];

            s.k ^= (i + flags) & 1;
            if (is_tried(i / 2, flags))
                run_case(f, &s, flags, BOTH_BF16 | (flags / 2 % 3) << 4, flags % 3 == 0, NULL);
        }
    for (int i = 0; i < WF_COUNT(empties); i++)
        for (int flags = 0; flags < 16; flags++)
            run_case(f, &empties[i], flags, BOTH_BF16, true, NULL);
}

static void every_cut_of_bf16_keeps_the_promise(void **state)
{
    static const struct shape some[] = {
        {33, 70, 301, 2, 1}, {29, 40, 2200, 1, 0}, {33, 70, 300, 2, 2}};
    static const int64_t cuts[][3] = {
        {7, 32, 1}, {30, 128, 1}, {16, 200, 4}, {512, 1024, 1}, {20, 64, 3}};
    const struct wf_gemm_fns *f = level_of_pairs();

    (void)state;
    for (int i = 0; i < WF_COUNT(some) * WF_COUNT(cuts) * 4 * 4; i++) {
        const int64_t *c = cuts[i % WF_COUNT(cuts)];
        const struct shape *s = &some[i / 4 / 4 / WF_COUNT(cuts)];
        int j = i / WF_COUNT(cuts), flags = j % 4;
        bool in_place = !(flags & 1) && s->k % 2 == 0 && s->pad % 2 == 0 && j / 4 % 2;
        struct recut re = {c[0], c[1], c[2], in_place ? WF_GEMM_DIRECT : WF_GEMM_PRIVATE,
                           j / 8 % 2 ? WF_GEMM_SHARED : WF_GEMM_PRIVATE};

        if (is_tried(0, i))
            run_case(f, s, flags | (i % 4) << 2, BOTH_BF16, i % 2, &re);
    }
}

static float product_of(const struct wf_gemm_fns *f, int64_t m, int64_t n, int64_t k,
                        const uint16_t *a, const uint16_t *b, float *c)
{
    struct shape s = {m, n, k, 1, 0};
    struct wf_gemm_desc d = describe(&s, 0, BOTH_BF16);
    struct wf_gemm g;
    struct guarded scratch;
    size_t bytes;

    wf_gemm_plan(&g, &d, f, 1, &bytes);
    assert_ptr_equal(g.pairs, f->pairs);
    scratch = guarded_new((bytes + 63) / 64 * 64);
    memset(scratch.p, 0xff, (bytes + 63) / 64 * 64);
    wf_gemm_run(&g, pools[1], a, b, c, NULL, scratch.p);
    guarded_free(&scratch);
    return c[0];
}

/* NaN and infinity come out as IEEE 754 says, in the elements they belong to and no others, also
 * next to the zero that ends an odd K. Denormals are zeros. */
static void bf16_keeps_nan_and_infinity_and_flushes_denormals(void **state)
{
    enum { M = 17, N = 35, K = 7, ONE = 0x3f80, INF = 0x7f80, NAN16 = 0x7fc0, TINY = 0x0040 };
    const struct wf_gemm_fns *f = level_of_pairs();
    uint16_t a[M * K], b[K * N];
    float c[M * N];

    (void)state;
    for (int i = 0; i < M * K; i++)
        a[i] = ONE;
    for (int i = 0; i < K * N; i++)
        b[i] = ONE;
    a[3 * K + 6] = INF;
    a[5 * K + 2] = NAN16;
    a[8 * K + 6] = TINY;
    b[6 * N + 33] = 0;
    product_of(f, M, N, K, a, b, c);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float x = c[i * N + j], want = (float)(K - (j == 33 || i == 8));

            if (i == 5 || (i == 3 && j == 33))
                assert_true(isnan(x));
            else if (i == 3)
                assert_true(isinf(x) && x > 0);
            else
                assert_true(x == want);
        }
    a[0] = TINY; /* 2^-127, times 2^120 */
    b[0] = 0x7b80;
    assert_true(product_of(f, 1, 1, 1, a, b, c) == 0);
    a[0] = 0x1f80; /* 2^-64, squared: a denormal result */
    assert_true(product_of(f, 1, 1, 1, a, a, c) == 0);
}

static void training_shapes_with_far_apart_rows(void **state)
{
    static const struct shape some[] = {
        {128, 128, 300, 1, 0}, {30, 130, 1024, 1, 0}, {150, 96, 512, 1, 0}, {400, 128, 64, 1, 0}};

    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < WF_COUNT(some); i++)
            for (int flags = 0; flags < 4; flags++)
                run_case(levels[l], &some[i], flags, 0, true, NULL);
}

/* Whatever the planner prefers, every cut it may choose keeps the promise. */
static void every_cut_keeps_the_promise(void **state)
{
    static const struct shape some[] = {
        {45, 150, 300, 2, 1}, {64, 130, 1100, 1, 0}, {100, 20, 70, 1, 0}};
    static const int64_t cuts[][3] = {
        {7, 32, 1}, {30, 128, 1}, {16, 200, 4}, {512, 1024, 1}, {20, 64, 3}};

    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < WF_COUNT(some) * WF_COUNT(cuts) * 4 * 2 * 3 && is_own(l); i++) {
            const int64_t *c = cuts[i % WF_COUNT(cuts)];
            int j = i / WF_COUNT(cuts), flags = j % 4, way = j / 4 % 6;
            struct recut re = {c[0], c[1], c[2], way % 2, way / 2};

            if ((re.read_b == WF_GEMM_DIRECT && flags & 2) || !is_tried(l, i))
                continue;
            run_case(levels[l], &some[j / 24], flags | (i % 4) << 2, 0, i % 2, &re);
        }
}

static void one_b_serves_every_batch_item(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int flags = 0; flags < 4; flags++) {
            struct shape s = {40, 50, 60, 5, 0};
            struct wf_gemm_desc d = describe(&s, flags, 0);
            struct operands o;
            struct wf_gemm g;
            size_t bytes;

            operands_new(&o, &d);
            o.d.stride_b = d.stride_b = 0;
            reset_c(&o);
            wf_gemm_plan(&g, &d, levels[l], 2, &bytes);
            o.scratch = guarded_new((bytes + 63) / 64 * 64);
            wf_gemm_run(&g, pools[2], o.a.p, o.b.p, o.c.p, NULL, o.scratch.p);
            check_c(&g, &o);
            guarded_free(&o.scratch);
            operands_free(&o);
        }
}

/* The pieces, as other kernels use them: strided A, packed A, a part of a longer K. */
static void blocks_take_any_strides_and_packed_operands(void **state)
{
    enum { M = 37, N = 45, K = 50, K0 = 20 };
    static float a[M * K], at[K * M], b[K * N], want[M * N];

    (void)state;
    seed = 1;
    fill(a, WF_GEMM_F32, M * K);
    fill(b, WF_GEMM_F32, K * N);
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++)
            at[k * M + i] = a[i * K + k];
    for (int l = 0; l < n_levels; l++) {
        const struct wf_gemm_fns *f = levels[l];
        struct guarded pa = guarded_new((size_t)wf_gemm_packed_a(f, K0, M) * 4);
        struct guarded pb = guarded_new((size_t)wf_gemm_packed_b(f, K, N) * 4);
        struct guarded c = guarded_new(M * N * 4);
        struct wf_gemm_block blk = {.m = M,
                                    .n = N,
                                    .k = K0,
                                    .a = at,
                                    .a_rs = 1,
                                    .a_cs = M,
                                    .b = pb.p,
                                    .b_ps = (int64_t)K * f->nr,
                                    .c = c.p,
                                    .ldc = N};

        for (int i = 0; i < M * N; i++) {
            want[i] = 0;
            for (int k = 0; k < K0; k++)
                want[i] = mul_add(f, a[i / N * K + k], b[k * N + i % N], want[i]);
        }
        f->pack_b(pb.p, b, WF_GEMM_F32, N, false, K, N);
        f->block(&blk);
        assert_memory_equal(c.p, want, sizeof want);
        blk.a = a;
        blk.a_rs = K;
        blk.a_cs = 1;
        blk.b = b;
        blk.b_ld = N;
        f->block(&blk);
        assert_memory_equal(c.p, want, sizeof want);
        f->pack_a(pa.p, at, WF_GEMM_F32, M, K0, M);
        blk.a = pa.p;
        blk.a_packed = true;
        f->block(&blk);
        assert_memory_equal(c.p, want, sizeof want);
        guarded_free(&pa);
        guarded_free(&pb);
        guarded_free(&c);
    }
}

/* x[m,k] W[k,n]: a weight that an optimizer writes between two runs is cut along its rows, as the
 * gradient's product is, where that saves more than the partial sums cost. */
static void narrow_weights_are_cut_along_their_rows(void **state)
{
    static const struct {
        int64_t m, n, k, n_chunks;
    } cases[] = {{128, 128, 784, 2}, {8192, 128, 784, 1}, {128, 10, 128, 1}};

    (void)state;
    for (int i = 0; i < n_levels * WF_COUNT(cases); i++) {
        int l = i / WF_COUNT(cases), c = i % WF_COUNT(cases);
        struct wf_gemm_desc d = {.m = cases[c].m,
                                 .n = cases[c].n,
                                 .k = cases[c].k,
                                 .batch = 1,
                                 .lda = cases[c].k,
                                 .ldb = cases[c].n,
                                 .ldc = cases[c].n};
        struct wf_gemm g;
        size_t bytes;

        wf_gemm_plan(&g, &d, levels[l], 2, &bytes);
        assert_int_equal(g.n_chunks, cases[c].n_chunks);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return -1;
    for (int i = 0; i < WF_COUNT(thread_counts); i++)
        if (wf_pool_new(ctx, thread_counts[i], -1, &pools[thread_counts[i]]))
            return -1;
    for (int level = (int)first_level(); level <= (int)weft_simd_best(); level++)
        levels[n_levels++] = wf_gemm_fns_of((weft_simd)level);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(thread_counts); i++)
        wf_pool_free(pools[thread_counts[i]]);
    weft_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_its_sum_in_order_of_k),
        cmocka_unit_test(a_column_times_a_row_has_the_same_sums),
        cmocka_unit_test(empty_sizes_give_zeros_and_the_epilogue),
        cmocka_unit_test(halves_are_converted_and_summed_in_f32),
        cmocka_unit_test(products_of_bf16_add_pairs),
        cmocka_unit_test(every_cut_of_bf16_keeps_the_promise),
        cmocka_unit_test(bf16_keeps_nan_and_infinity_and_flushes_denormals),
        cmocka_unit_test(training_shapes_with_far_apart_rows),
        cmocka_unit_test(every_cut_keeps_the_promise),
        cmocka_unit_test(narrow_weights_are_cut_along_their_rows),
        cmocka_unit_test(one_b_serves_every_batch_item),
        cmocka_unit_test(blocks_take_any_strides_and_packed_operands),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
