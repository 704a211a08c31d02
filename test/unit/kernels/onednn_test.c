/* onednn_test.c - products by oneDNN: the same numbers as our own within rounding, the same bits for
 * any number of threads, nothing written beside C, and OpenMP left as it was. Where the library
 * cannot be used the tests that run it are skipped, with the reason. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/onednn.h"
#include "weft/sys/machine.h"

wf_kernel_fn wf_run_matmul_onednn;

struct shape {
    int64_t m, n, k, batch;
    bool shared_a, shared_b;
    int pad; /* added to every leading dimension and batch stride */
};

static const struct shape shapes[] = {
    {.m = 1, .n = 1, .k = 1, .batch = 1},
    {.m = 1, .n = 17, .k = 33, .batch = 1},
    {.m = 17, .n = 1, .k = 33, .batch = 1},
    {.m = 7, .n = 5, .k = 1, .batch = 1},
    {.m = 31, .n = 33, .k = 65, .batch = 1, .pad = 3},
    {.m = 128, .n = 10, .k = 128, .batch = 1},
    {.m = 131, .n = 129, .k = 127, .batch = 1},
    {.m = 131, .n = 129, .k = 127, .batch = 1, .pad = 5},
    {.m = 300, .n = 257, .k = 301, .batch = 1},
    {.m = 64, .n = 64, .k = 5000, .batch = 1},
    {.m = 33, .n = 40, .k = 50, .batch = 6},
    {.m = 130, .n = 40, .k = 70, .batch = 3, .pad = 1},
    {.m = 65, .n = 48, .k = 96, .batch = 4, .shared_b = true},
    {.m = 65, .n = 48, .k = 96, .batch = 4, .shared_a = true, .pad = 2},
};

static struct wf_gemm_desc describe(const struct shape *s, int trans)
{
    struct wf_gemm_desc d = {.m = s->m, .n = s->n, .k = s->k, .batch = s->batch};

    d.trans_a = trans & 1;
    d.trans_b = trans & 2;
    d.lda = (d.trans_a ? d.m : d.k) + s->pad;
    d.ldb = (d.trans_b ? d.k : d.n) + s->pad;
    d.ldc = d.n + s->pad;
    d.stride_a = s->shared_a ? 0 : (d.trans_a ? d.k : d.m) * d.lda + s->pad;
    d.stride_b = s->shared_b ? 0 : (d.trans_b ? d.n : d.k) * d.ldb + s->pad;
    d.stride_c = d.m * d.ldc + s->pad;
    return d;
}

static weft_ctx *context(int n_threads)
{
    weft_ctx *ctx = NULL;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = n_threads), &ctx), 0);
    return ctx;
}

/* Is the library there, and does it run at our level? */
static bool usable(void)
{
    weft_ctx *ctx = context(1);
    struct wf_gemm_desc d = describe(&shapes[5], 0);
    const struct wf_onednn_matmul *p;
    const char *why = NULL, *impl, *version = wf_onednn_version(ctx, &why);
    struct wf_arena arena;
    size_t bytes;
    weft_status st;

    wf_arena_init(&arena, ctx);
    st = wf_onednn_matmul_plan(ctx, &arena, &d, 1, &p, &bytes, &impl);
    if (st)
        print_message("skipped: oneDNN %s: %s\n", version ? version : "",
                      why ? why : "this machine's SIMD level is not one it is used for");
    wf_arena_free(&arena);
    weft_ctx_free(ctx);
    return !st;
}

static float *random_floats(int64_t n, uint32_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)(seed >> 8) / (1 << 23) - 1.0f;
    }
    return x;
}

/* Elements that matrices of the given rows take, gaps included. */
static int64_t extent(const struct wf_gemm_desc *d, int64_t stride, int64_t n_rows, int64_t ld)
{
    return (d->batch - 1) * stride + n_rows * ld;
}

struct operands {
    struct wf_gemm_desc d;
    int64_t n_c;
    float *a, *b, *c;
};

static struct operands operands_new(const struct shape *s, int trans)
{
    struct operands o = {.d = describe(s, trans)};
    const struct wf_gemm_desc *d = &o.d;

    o.a = random_floats(extent(d, d->stride_a, d->trans_a ? d->k : d->m, d->lda), 1);
    o.b = random_floats(extent(d, d->stride_b, d->trans_b ? d->n : d->k, d->ldb), 2);
    o.n_c = extent(d, d->stride_c, d->m, d->ldc);
    o.c = random_floats(o.n_c, 3);
    return o;
}

static void operands_free(struct operands *o)
{
    free(o->a);
    free(o->b);
    free(o->c);
}

/* C as oneDNN makes it with that many threads. The caller frees it. */
static float *by_onednn(const struct operands *o, int n_threads)
{
    weft_ctx *ctx = context(n_threads);
    const struct wf_onednn_matmul *p = NULL;
    const char *impl = NULL;
    struct wf_arena arena;
    size_t bytes = 0;
    void *scratch;
    float *c = random_floats(o->n_c, 3);

    wf_arena_init(&arena, ctx);
    assert_int_equal(wf_onednn_matmul_plan(ctx, &arena, &o->d, n_threads, &p, &bytes, &impl), 0);
    assert_int_equal(strncmp(impl, "onednn-", 7), 0);
    scratch = wf_alloc(ctx, bytes);
    assert_non_null(scratch);
    memset(scratch, 0xa5, bytes);
    for (int i = 0; i < 2; i++) /* a plan can be run again */
        assert_int_equal(wf_onednn_matmul_run(p, ctx->pool, o->a, o->b, c, scratch), 0);
    wf_free(ctx, scratch);
    wf_arena_free(&arena);
    weft_ctx_free(ctx);
    return c;
}

static void by_gemm(struct operands *o)
{
    weft_ctx *ctx = context(1);
    struct wf_gemm g;
    size_t bytes;
    void *scratch;

    wf_gemm_plan(&g, &o->d, wf_gemm_fns_of(ctx->simd), 1, &bytes);
    scratch = wf_alloc(ctx, bytes + 64);
    assert_non_null(scratch);
    wf_gemm_run(&g, ctx->pool, o->a, o->b, o->c, NULL, scratch);
    wf_free(ctx, scratch);
    weft_ctx_free(ctx);
}

/* ---- without the library ---------------------------------------------------------------------- */

static void build_and_machine_agree_on_what_is_there(void **state)
{
    weft_ctx *ctx = context(1);
    weft_library l;
    bool named = false;

    (void)state;
    for (int i = 0; weft_build_feature(i); i++)
        named |= !strncmp(weft_build_feature(i), "oneDNN", 6);
    assert_true(weft_library_find(ctx, 0, &l));
    assert_string_equal(l.name, "oneDNN");
    assert_int_equal(named, l.file != NULL);
    assert_true((l.version == NULL) != (l.why == NULL));
    assert_non_null(l.package);
    assert_false(weft_library_find(ctx, 1, &l));
    weft_ctx_free(ctx);
}

static void what_it_cannot_do_is_declined(void **state)
{
    weft_ctx *ctx = context(1), *portable = NULL;
    struct wf_gemm_desc good = describe(&shapes[5], 0), d;
    const struct wf_onednn_matmul *p;
    struct wf_arena arena;
    const char *impl;
    size_t bytes;

    (void)state;
    wf_arena_init(&arena, ctx);
#define DECLINED(change) \
    d = good;            \
    change;              \
    assert_int_equal(wf_onednn_matmul_plan(ctx, &arena, &d, 1, &p, &bytes, &impl), WEFT_ENOSUP)
    DECLINED(d.m = 0);
    DECLINED(d.n = 0);
    DECLINED(d.k = 0);
    DECLINED(d.batch = 0);
    DECLINED(d.accumulate = true);
    DECLINED(d.col_sums = true);
    DECLINED(d.type_b = WF_GEMM_BF16);
#undef DECLINED
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .kernels = WEFT_KERNELS_PORTABLE), &portable), 0);
    assert_int_equal(wf_onednn_matmul_plan(portable, &arena, &good, 1, &p, &bytes, &impl),
                     WEFT_ENOSUP);
    wf_arena_free(&arena);
    weft_ctx_free(portable);
    weft_ctx_free(ctx);
}

static void the_table_is_matched_by_shape_level_and_transposes(void **state)
{
    static const struct wf_tune_row rows[] = {
        {WF_OP_matmul, WEFT_SIMD_AVX2, 3, 4, 5, true, false, "one"},
        {WF_OP_matmul, WEFT_SIMD_AVX512, 3, 4, 5, true, false, "two"},
        {-1, WEFT_SIMD_AUTO, 0, 0, 0, false, false, NULL},
    };

    (void)state;
    assert_string_equal(wf_tune_matmul(rows, WEFT_SIMD_AVX2, 3, 4, 5, true, false), "one");
    assert_string_equal(wf_tune_matmul(rows, WEFT_SIMD_AVX512, 3, 4, 5, true, false), "two");
    assert_null(wf_tune_matmul(rows, WEFT_SIMD_PORTABLE, 3, 4, 5, true, false));
    assert_null(wf_tune_matmul(rows, WEFT_SIMD_AVX2, 4, 3, 5, true, false));
    assert_null(wf_tune_matmul(rows, WEFT_SIMD_AVX2, 3, 4, 6, true, false));
    assert_null(wf_tune_matmul(rows, WEFT_SIMD_AVX2, 3, 4, 5, false, false));
    assert_null(wf_tune_matmul(rows, WEFT_SIMD_AVX2, 3, 4, 5, true, true));
    for (const struct wf_tune_row *r = wf_tune_rows; r->op_id >= 0; r++)
        assert_string_equal(r->impl, "onednn"); /* every name in the table is an implementation */
}

/* ---- with it ---------------------------------------------------------------------------------- */

static void results_are_those_of_our_product_within_rounding(void **state)
{
    (void)state;
    if (!usable())
        skip();
    for (int i = 0; i < WF_COUNT(shapes); i++)
        for (int trans = 0; trans < 4; trans++) {
            struct operands o = operands_new(&shapes[i], trans);
            double size = sqrt((double)o.d.k);
            float *c = by_onednn(&o, 1);

            by_gemm(&o); /* gaps keep what was there, in both */
            for (int64_t e = 0; e < o.n_c; e++)
                if (fabs((double)c[e] - (double)o.c[e]) > 1e-5 * size)
                    fail_msg("shape %d, transposes %d, element %lld: %.9g, ours %.9g", i, trans,
                             (long long)e, (double)c[e], (double)o.c[e]);
            free(c);
            operands_free(&o);
        }
}

static void bits_are_the_same_for_1_2_3_and_7_threads(void **state)
{
    static const int n_threads[] = {2, 3, 7};

    (void)state;
    if (!usable())
        skip();
    for (int i = 4; i < WF_COUNT(shapes); i++)
        for (int trans = 0; trans < 4; trans++) {
            struct operands o = operands_new(&shapes[i], trans);
            float *want = by_onednn(&o, 1);

            for (int t = 0; t < WF_COUNT(n_threads); t++) {
                float *c = by_onednn(&o, n_threads[t]);

                if (memcmp(c, want, (size_t)o.n_c * sizeof *c) != 0)
                    fail_msg("shape %d, transposes %d: %d threads", i, trans, n_threads[t]);
                free(c);
            }
            free(want);
            operands_free(&o);
        }
}

/* The number that the program chose for OpenMP neither changes bits nor is changed. */
static void openmp_threads_are_as_before_after_a_run(void **state)
{
    struct operands o = operands_new(&shapes[8], 1);
    void *omp = NULL;
    int (*get)(void) = NULL;
    void (*set)(int) = NULL;
    float *want, *c;

    (void)state;
    if (!usable()) {
        operands_free(&o);
        skip();
    }
    omp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!omp) {
        operands_free(&o);
        print_message("skipped: the library does not use libgomp\n");
        skip();
    }
    *(void **)(void *)&get = dlsym(omp, "omp_get_max_threads");
    *(void **)(void *)&set = dlsym(omp, "omp_set_num_threads");
    assert_true(get && set);
    set(1);
    want = by_onednn(&o, 2);
    assert_int_equal(get(), 1);
    set(5);
    c = by_onednn(&o, 2);
    assert_int_equal(get(), 5);
    assert_memory_equal(c, want, (size_t)o.n_c * sizeof *c);
    free(c);
    free(want);
    operands_free(&o);
    dlclose(omp);
}

/* The kernel as a plan meets it: chosen by a row, named with the version, and run through a call. */
static void a_row_of_the_table_chooses_it_and_the_name_has_the_version(void **state)
{
    weft_ctx *ctx = context(2);
    const struct wf_tune_row rows[] = {
        {WF_OP_matmul, ctx->simd, 6, 3, 4, false, true, "onednn"},
        {-1, WEFT_SIMD_AUTO, 0, 0, 0, false, false, NULL},
    };
    const struct wf_type in[] = {{.dtype = WEFT_F32, .rank = 3, .dim = {2, 3, 4}},
                                 {.dtype = WEFT_F32, .rank = 2, .dim = {3, 4}}};
    const struct wf_type out = {.dtype = WEFT_F32, .rank = 3, .dim = {2, 3, 3}};
    struct wf_attr attr[WF_MAX_ATTRS] = {{0}};
    struct wf_arena arena;
    struct wf_kplan p = {.ctx = ctx, .arena = &arena, .n_in = 2, .n_out = 1, .in = in, .out = &out};
    struct operands o = operands_new(&(struct shape){.m = 6, .n = 3, .k = 4, .batch = 1}, 2);
    struct wf_tensor x[] = {{.type = in[0], .data = o.a}, {.type = in[1], .data = o.b}};
    float c[18];
    struct wf_tensor y = {.type = out, .data = c};
    struct wf_call call = {
        .ctx = ctx, .pool = ctx->pool, .n_in = 2, .n_out = 1, .in = x, .out = &y};
    const char *why, *version;

    (void)state;
    if (!usable()) {
        operands_free(&o);
        weft_ctx_free(ctx);
        skip();
    }
    assert_int_equal(wf_ops_ensure(ctx), 0);
    wf_arena_init(&arena, ctx);
    p.op = call.op = wf_op_find(ctx, "matmul");
    p.attr = call.attr = attr;
    p.n_threads = 2;
    ((struct wf_attr *)(uintptr_t)wf_attr(p.op, attr, "trans_b"))->i = 1;
    assert_int_equal(wf_onednn_plan_call(&p, &rows[1]), WEFT_ENOSUP);
    ctx->kernels = WEFT_KERNELS_PORTABLE;
    assert_int_equal(wf_onednn_plan_call(&p, rows), WEFT_ENOSUP);
    ctx->kernels = WEFT_KERNELS_BEST;
    assert_int_equal(wf_onednn_plan_call(&p, rows), 0);
    version = wf_onednn_version(ctx, &why);
    assert_int_equal(strncmp(p.impl, "onednn-", 7), 0);
    assert_int_equal(strncmp(p.impl + 7, version, strlen(version)), 0);
    call.state = p.state;
    call.scratch = wf_alloc(ctx, p.scratch_bytes);
    assert_non_null(call.scratch);
    assert_int_equal(wf_run_matmul_onednn(&call), 0);
    by_gemm(&o);
    for (int i = 0; i < 18; i++)
        assert_true(fabs((double)c[i] - (double)o.c[i]) < 1e-5);
    wf_free(ctx, call.scratch);
    wf_arena_free(&arena);
    operands_free(&o);
    weft_ctx_free(ctx);
}

/* Every allocation of loading and planning fails in turn. */
struct failing {
    int64_t n_left;
    int64_t n_live;
};

static void *failing_alloc(void *arg, size_t bytes, size_t align)
{
    struct failing *f = arg;
    void *p = NULL;

    if (f->n_left-- <= 0 || posix_memalign(&p, align, bytes))
        return NULL;
    f->n_live++;
    return p;
}

static void failing_free(void *arg, void *p, size_t bytes)
{
    (void)bytes;
    ((struct failing *)arg)->n_live--;
    free(p);
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct wf_gemm_desc d = describe(&shapes[8], 0);
    weft_status st = WEFT_ENOMEM;

    (void)state;
    if (!usable())
        skip();
    for (int64_t n = 0; st && n < 100; n++) {
        struct failing f = {.n_left = 1000};
        weft_allocator mem = {failing_alloc, failing_free, &f};
        const struct wf_onednn_matmul *p;
        struct wf_arena arena;
        weft_ctx *ctx = NULL;
        const char *impl;
        size_t bytes;

        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .allocator = &mem, .threads = 1), &ctx), 0);
        wf_arena_init(&arena, ctx);
        f.n_left = n;
        st = wf_onednn_matmul_plan(ctx, &arena, &d, 1, &p, &bytes, &impl);
        assert_true(st == WEFT_OK || st == WEFT_ENOMEM);
        assert_true(st == WEFT_OK || n < 99);
        wf_arena_free(&arena);
        weft_ctx_free(ctx);
        assert_int_equal(f.n_live, 0);
    }
    assert_int_equal(st, WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_and_machine_agree_on_what_is_there),
        cmocka_unit_test(what_it_cannot_do_is_declined),
        cmocka_unit_test(the_table_is_matched_by_shape_level_and_transposes),
        cmocka_unit_test(results_are_those_of_our_product_within_rounding),
        cmocka_unit_test(bits_are_the_same_for_1_2_3_and_7_threads),
        cmocka_unit_test(openmp_threads_are_as_before_after_a_run),
        cmocka_unit_test(a_row_of_the_table_chooses_it_and_the_name_has_the_version),
        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
