/* conv_test.c - convolution: every algorithm gives the sums of the definition in every direction,
 * at every SIMD level; the same bits for any number of threads, whatever the scratch memory held;
 * nothing outside the tensors is touched; the epilogue sees every output once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/conv.h"
#include "support/guarded.h"
#include "support/levels.h"

static weft_ctx *ctx;
static struct wf_pool *pools[8];
static const int thread_counts[] = {1, 2, 3, 7};
enum { MOST_THREADS = 7 };

static uint32_t seed;

static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8) / (1 << 23) - 1.0f;
}

static struct guarded filled(int64_t n)
{
    struct guarded g = guarded_new((size_t)n * sizeof(float));

    for (int64_t i = 0; i < n; i++)
        ((float *)g.p)[i] = draw();
    return g;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

struct shape {
    int64_t batch, in[3], k[3], c_in, c_out, groups;
    int64_t stride[3], dilation[3], lo[3], hi[3];
};

/* A 2-D shape with one number for both axes. */
#define SQUARE(n, h, w, ci, co, k_, s, d, lo_, hi_, g)                             \
    {                                                                              \
        n, {1, h, w}, {1, k_, k_}, ci, co, g, {1, s, s}, {1, d, d}, {0, lo_, lo_}, \
        {                                                                          \
            0, hi_, hi_                                                            \
        }                                                                          \
    }

static const struct shape odd_shapes[] = {
    SQUARE(2, 7, 5, 3, 5, 3, 1, 1, 0, 0, 1),
    SQUARE(3, 6, 9, 1, 33, 3, 1, 1, 1, 1, 1),
    SQUARE(1, 9, 11, 4, 7, 5, 2, 1, 1, 2, 1),
    SQUARE(2, 13, 8, 2, 17, 3, 3, 2, 0, 3, 1),
    SQUARE(2, 5, 5, 6, 9, 2, 1, 1, 1, 0, 3),
    SQUARE(1, 11, 7, 40, 12, 3, 2, 1, 0, 1, 4),
    SQUARE(5, 4, 3, 19, 35, 1, 1, 1, 0, 0, 1),
    SQUARE(2, 6, 7, 20, 9, 1, 2, 1, 0, 0, 1),
    SQUARE(2, 4, 4, 3, 2, 2, 3, 1, 0, 0, 1),
    SQUARE(1, 3, 3, 530, 3, 3, 1, 1, 1, 1, 1),
    SQUARE(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1),
    SQUARE(1, 20, 22, 5, 70, 7, 1, 3, 9, 9, 1),
    {2, {1, 1, 17}, {1, 1, 4}, 3, 6, 1, {1, 1, 3}, {1, 1, 2}, {0, 0, 2}, {0, 0, 1}},
    {1, {4, 5, 6}, {2, 3, 2}, 3, 8, 1, {1, 2, 1}, {2, 1, 1}, {1, 1, 0}, {0, 1, 1}},
    {1, {5, 3, 4}, {3, 2, 2}, 4, 4, 2, {2, 1, 2}, {1, 1, 1}, {2, 0, 1}, {1, 1, 0}},
};

/* Three by three: whole and ragged tiles, paddings, several chunks of channels, strips inside an
 * image. */
static const struct shape winograd_shapes[] = {
    SQUARE(2, 10, 10, 32, 64, 3, 1, 1, 0, 0, 1), SQUARE(3, 7, 9, 5, 3, 3, 1, 1, 1, 1, 1),
    SQUARE(1, 3, 3, 1, 1, 3, 1, 1, 0, 0, 1),     SQUARE(9, 6, 5, 17, 33, 3, 1, 1, 1, 0, 1),
    SQUARE(2, 5, 6, 130, 70, 3, 1, 1, 2, 2, 1),  SQUARE(1, 50, 41, 9, 8, 3, 1, 1, 1, 1, 1),
    SQUARE(2, 79, 18, 8, 19, 3, 1, 1, 0, 1, 1),  SQUARE(1, 8, 330, 3, 4, 3, 1, 1, 1, 1, 1),
    SQUARE(1, 15, 330, 2, 3, 3, 1, 1, 1, 1, 1),  SQUARE(1, 4, 4, 4, 4, 3, 1, 1, 7, 6, 1),
    SQUARE(40, 7, 7, 8, 8, 3, 1, 1, 1, 1, 1),
};

static const struct shape depthwise_shapes[] = {
    SQUARE(2, 7, 5, 3, 3, 3, 1, 1, 1, 1, 3),
    SQUARE(1, 9, 12, 37, 37, 3, 2, 1, 0, 1, 37),
    SQUARE(2, 8, 8, 20, 20, 5, 1, 2, 4, 4, 20),
    SQUARE(1, 6, 6, 5, 15, 3, 1, 1, 1, 1, 5),
    SQUARE(2, 5, 6, 19, 38, 2, 3, 1, 0, 0, 19),
    SQUARE(1, 3, 3, 1, 1, 3, 1, 1, 0, 0, 1),
    {2, {4, 5, 6}, {2, 3, 2}, 6, 6, 6, {1, 2, 1}, {2, 1, 1}, {1, 1, 0}, {0, 1, 1}},
};

static struct wf_conv_geom geom_of(const struct shape *s)
{
    struct wf_conv_geom g = {
        .batch = s->batch, .c_in = s->c_in, .c_out = s->c_out, .groups = s->groups};

    g.w.n = 3;
    for (int a = 0; a < 3; a++) {
        g.w.in[a] = s->in[a];
        g.w.k[a] = s->k[a];
        g.w.stride[a] = s->stride[a];
        g.w.dilation[a] = s->dilation[a];
        g.w.lo[a] = s->lo[a];
        g.w.out[a] =
            (s->in[a] + s->lo[a] + s->hi[a] - (s->k[a] - 1) * s->dilation[a] - 1) / s->stride[a] +
            1;
    }
    return g;
}

static int64_t volume(const int64_t n[3])
{
    return n[0] * n[1] * n[2];
}

static int64_t count_x(const struct wf_conv_geom *g)
{
    return g->batch * volume(g->w.in) * g->c_in;
}

static int64_t count_y(const struct wf_conv_geom *g)
{
    return g->batch * volume(g->w.out) * g->c_out;
}

static int64_t count_w(const struct wf_conv_geom *g)
{
    return volume(g->w.k) * (g->c_in / g->groups) * g->c_out;
}

/* ---- the definition -------------------------------------------------------------------------- */

/* Visit every product of the convolution: x, w, y indices. One of the three gets the sum of the
 * other two's products; `size` sums their absolute values, which bounds the rounding error. */
static void define(const struct wf_conv_geom *g, int dir, const float *a, const float *b,
                   double *sum, double *size)
{
    const struct wf_window *w = &g->w;
    int64_t ci_g = g->c_in / g->groups, co_g = g->c_out / g->groups, n_out = volume(w->out);

    for (int64_t p = 0; p < g->batch * n_out; p++)
        for (int64_t k = 0; k < volume(w->k); k++) {
            int64_t o[3] = {p % n_out / w->out[2] / w->out[1], p / w->out[2] % w->out[1],
                            p % w->out[2]};
            int64_t t[3] = {k / w->k[2] / w->k[1], k / w->k[2] % w->k[1], k % w->k[2]},
                    i = p / n_out;
            bool inside = true;

            for (int d = 0; d < 3; d++) {
                int64_t at = o[d] * w->stride[d] - w->lo[d] + t[d] * w->dilation[d];

                inside = inside && at >= 0 && at < w->in[d];
                i = i * w->in[d] + at;
            }
            for (int64_t co = 0; inside && co < g->c_out; co++)
                for (int64_t ci = 0; ci < ci_g; ci++) {
                    int64_t x_at = i * g->c_in + co / co_g * ci_g + ci,
                            w_at = (k * ci_g + ci) * g->c_out + co;
                    int64_t y_at = p * g->c_out + co;
                    int64_t to = dir == WF_CONV_FORWARD      ? y_at
                                 : dir == WF_CONV_GRAD_INPUT ? x_at
                                                             : w_at;
                    double v = (double)a[dir == WF_CONV_GRAD_INPUT ? y_at : x_at] *
                               (double)b[dir == WF_CONV_GRAD_FILTER ? y_at : w_at];

                    sum[to] += v;
                    size[to] += fabs(v);
                }
        }
}

/* ---- one case -------------------------------------------------------------------------------- */

static void count_visits(void *arg, int thread, int64_t b, int64_t row, int64_t n_rows, int64_t col,
                         int64_t n_cols, float *c, int64_t ldc)
{
    unsigned char *seen = arg;

    (void)thread;
    assert_int_equal(b, 0);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_cols; j++) {
            c[i * ldc + j] = 2 * c[i * ldc + j] + 1;
            seen[(row + i) * ldc + col + j]++;
        }
}

struct operands {
    struct wf_conv_geom g;
    int dir;
    int64_t n_out;
    struct guarded a, b, out;
    double *sum, *size;
};

static void operands_new(struct operands *o, const struct shape *s, int dir)
{
    seed = (uint32_t)(s->c_in * 31 + s->c_out * 17 + s->in[2] + dir);
    o->g = geom_of(s);
    o->dir = dir;
    o->a = filled(dir == WF_CONV_GRAD_INPUT ? count_y(&o->g) : count_x(&o->g));
    o->b = filled(dir == WF_CONV_GRAD_FILTER ? count_y(&o->g) : count_w(&o->g));
    o->n_out = dir == WF_CONV_FORWARD      ? count_y(&o->g)
               : dir == WF_CONV_GRAD_INPUT ? count_x(&o->g)
                                           : count_w(&o->g);
    o->out = guarded_new((size_t)o->n_out * sizeof(float));
    o->sum = calloc((size_t)o->n_out + 1, sizeof *o->sum);
    o->size = calloc((size_t)o->n_out + 1, sizeof *o->size);
    assert_true(o->sum && o->size);
    define(&o->g, dir, o->a.p, o->b.p, o->sum, o->size);
}

static void operands_free(struct operands *o)
{
    guarded_free(&o->a);
    guarded_free(&o->b);
    guarded_free(&o->out);
    free(o->sum);
    free(o->size);
}

/* Run with `threads`, garbage in the result and NaN in the scratch memory. */
static void run(const struct operands *o, weft_simd level, int algo, int threads,
                unsigned char *seen)
{
    struct wf_conv_desc d = {.geom = o->g,
                             .dir = (enum wf_conv_dir)o->dir,
                             .algo = (enum wf_conv_algo)algo,
                             .epilogue = seen ? count_visits : NULL,
                             .epilogue_arg = seen};
    struct wf_arena arena;
    struct wf_conv *plan;
    struct guarded scratch;
    size_t bytes;

    wf_arena_init(&arena, ctx);
    assert_int_equal(wf_conv_plan(&d, level, threads, &arena, &plan, &bytes), WEFT_OK);
    scratch = guarded_new((bytes + 63) / 64 * 64);
    memset(scratch.p, 0xff, bytes);
    memset(o->out.p, 0xff, (size_t)o->n_out * sizeof(float));
    wf_conv_run(plan, pools[threads], o->a.p, o->b.p, o->out.p, scratch.p);
    guarded_free(&scratch);
    wf_arena_free(&arena);
}

/* Every sum within `tol` of the size of its products; Winograd's errors follow the largest in the
 * neighbourhood. */
static void check_sums(const struct operands *o, int algo, double tol, const char *what)
{
    const float *out = o->out.p;
    double largest = 0;

    for (int64_t i = 0; i < o->n_out && algo == WF_CONV_WINOGRAD; i++)
        largest = fmax(largest, o->size[i]);
    for (int64_t i = 0; i < o->n_out; i++)
        if (!(fabs(out[i] - o->sum[i]) <= tol * fmax(o->size[i], largest)))
            fail_msg("%s dir %d: [%lld] is %.9g, not %.9g (of size %.3g)", what, o->dir,
                     (long long)i, (double)out[i], o->sum[i], o->size[i]);
}

static void check_case(const struct shape *s, int algo, int dir, double tol)
{
    struct operands o;
    float *first;

    operands_new(&o, s, dir);
    first = malloc((size_t)o.n_out * sizeof *first + 1);
    assert_non_null(first);
    for (int level = (int)first_level(); level <= (int)weft_simd_best(); level++) {
        for (int t = 0; t < WF_COUNT(thread_counts); t++) {
            run(&o, (weft_simd)level, algo, thread_counts[t], NULL);
            if (t == 0) {
                check_sums(&o, algo, tol, weft_simd_name((weft_simd)level));
                memcpy(first, o.out.p, (size_t)o.n_out * sizeof *first);
            }
            assert_memory_equal(first, o.out.p, (size_t)o.n_out * sizeof *first);
        }
        if (dir == WF_CONV_FORWARD) {
            unsigned char *seen = calloc((size_t)o.n_out + 1, 1);

            assert_non_null(seen);
            run(&o, (weft_simd)level, algo, 3, seen);
            for (int64_t i = 0; i < o.n_out; i++) {
                assert_int_equal(seen[i], 1);
                assert_true(((float *)o.out.p)[i] == 2 * first[i] + 1);
            }
            free(seen);
        }
    }
    free(first);
    operands_free(&o);
}

static void general_sums_any_shape(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(odd_shapes); i++)
        for (int dir = 0; dir < 3; dir++)
            check_case(&odd_shapes[i], WF_CONV_GENERAL, dir, 3e-6);
    for (int i = 0; i < WF_COUNT(depthwise_shapes); i++)
        for (int dir = 0; dir < 3; dir++)
            check_case(&depthwise_shapes[i], WF_CONV_GENERAL, dir, 3e-6);
}

static void winograd_sums_three_by_three(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(winograd_shapes); i++)
        for (int dir = 0; dir < 3; dir++)
            check_case(&winograd_shapes[i], WF_CONV_WINOGRAD, dir, 3e-6);
}

static void depthwise_sums_channel_by_channel(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(depthwise_shapes); i++)
        for (int dir = 0; dir < 3; dir++)
            check_case(&depthwise_shapes[i], WF_CONV_DEPTHWISE, dir, 3e-6);
}

static void few_channels_are_read_in_place(void **state)
{
    int n = 0;

    (void)state;
    for (int i = 0; i < WF_COUNT(odd_shapes); i++)
        if (odd_shapes[i].c_in <= 4 && odd_shapes[i].groups == 1) {
            check_case(&odd_shapes[i], WF_CONV_FEW, WF_CONV_FORWARD, 3e-6);
            check_case(&odd_shapes[i], WF_CONV_FEW, WF_CONV_GRAD_FILTER, 3e-6);
            n++;
        }
    assert_true(n > 5);
}

static void products_where_one_tap_moves_with_the_output(void **state)
{
    static const struct shape s = SQUARE(5, 4, 3, 19, 35, 1, 1, 1, 0, 0, 1);

    (void)state;
    for (int dir = 0; dir < 3; dir++)
        check_case(&s, WF_CONV_PRODUCT, dir, 3e-6);
}

/* The rule of conv.h. */
static void the_algorithm_follows_from_the_shape(void **state)
{
    static const struct {
        struct shape s;
        const char *algo[3];
    } rows[] = {
        {SQUARE(64, 26, 26, 32, 64, 3, 1, 1, 0, 0, 1),
         {"conv-winograd", "conv-winograd", "conv-winograd"}},
        {SQUARE(64, 28, 28, 1, 32, 3, 1, 1, 0, 0, 1), {"conv-few", "conv-general", "conv-few"}},
        {SQUARE(2, 8, 8, 32, 64, 1, 1, 1, 0, 0, 1),
         {"conv-product", "conv-product", "conv-product"}},
        {SQUARE(2, 8, 8, 32, 64, 1, 2, 1, 0, 0, 1),
         {"conv-general", "conv-general", "conv-general"}},
        {SQUARE(2, 8, 8, 32, 64, 3, 2, 1, 0, 1, 1),
         {"conv-general", "conv-general", "conv-general"}},
        {SQUARE(2, 8, 8, 32, 64, 3, 1, 2, 2, 2, 1),
         {"conv-general", "conv-general", "conv-general"}},
        {SQUARE(2, 8, 8, 32, 64, 3, 2, 1, 1, 1, 32),
         {"conv-depthwise", "conv-depthwise", "conv-depthwise"}},
        {SQUARE(2, 5, 5, 32, 64, 3, 1, 1, 1, 1, 1),
         {"conv-general", "conv-general", "conv-general"}},
        {SQUARE(2, 8, 8, 32, 64, 3, 1, 1, 1, 1, 2),
         {"conv-general", "conv-general", "conv-general"}},
    };
    struct wf_arena arena;

    (void)state;
    wf_arena_init(&arena, ctx);
    for (int i = 0; i < WF_COUNT(rows); i++)
        for (int dir = 0; dir < 3; dir++) {
            struct wf_conv_desc d = {.geom = geom_of(&rows[i].s), .dir = (enum wf_conv_dir)dir};
            struct wf_conv *plan;
            size_t bytes;

            assert_int_equal(wf_conv_plan(&d, weft_simd_best(), 2, &arena, &plan, &bytes), WEFT_OK);
            assert_string_equal(wf_conv_algo_name(plan), rows[i].algo[dir]);
        }
    wf_arena_free(&arena);
}

static void an_algorithm_that_does_not_apply_is_refused(void **state)
{
    static const struct shape s = SQUARE(2, 8, 8, 32, 64, 3, 2, 1, 0, 1, 1);
    struct wf_conv_desc d = {.geom = geom_of(&s), .algo = WF_CONV_WINOGRAD};
    struct wf_arena arena;
    struct wf_conv *plan;
    size_t bytes;

    (void)state;
    wf_arena_init(&arena, ctx);
    assert_int_equal(wf_conv_plan(&d, weft_simd_best(), 2, &arena, &plan, &bytes), WEFT_ENOSUP);
    wf_arena_free(&arena);
}

/* Relative to the size of the results, over all of them: near the error of a plain sum. */
static void winograd_rounds_about_as_well_as_a_plain_sum(void **state)
{
    static const struct shape s = SQUARE(2, 18, 18, 32, 32, 3, 1, 1, 0, 0, 1);

    (void)state;
    for (int dir = 0; dir < 3; dir++) {
        struct operands o;
        double error = 0, size = 0;

        operands_new(&o, &s, dir);
        run(&o, weft_simd_best(), WF_CONV_WINOGRAD, 1, NULL);
        for (int64_t i = 0; i < o.n_out; i++) {
            double e = ((float *)o.out.p)[i] - o.sum[i];

            error += e * e;
            size += o.sum[i] * o.sum[i];
        }
        if (getenv("VERBOSE"))
            print_message("dir %d: rms error %.2e\n", dir, sqrt(error / size));
        assert_true(sqrt(error / size) < 1e-6);
        operands_free(&o);
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
        cmocka_unit_test(general_sums_any_shape),
        cmocka_unit_test(winograd_sums_three_by_three),
        cmocka_unit_test(depthwise_sums_channel_by_channel),
        cmocka_unit_test(few_channels_are_read_in_place),
        cmocka_unit_test(products_where_one_tap_moves_with_the_output),
        cmocka_unit_test(the_algorithm_follows_from_the_shape),
        cmocka_unit_test(an_algorithm_that_does_not_apply_is_refused),
        cmocka_unit_test(winograd_rounds_about_as_well_as_a_plain_sum),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
