/* conv_sizes_test.c - convolutions of small sizes: an axis smaller than the stride, the window or
 * the dilation. Every kind, padding and number of axes; outputs and both gradients of the fast
 * kernels are those of the plain definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

enum kind { CONV, GROUPED, DEPTHWISE, TRANSPOSE, TRANSPOSE_GROUPED, N_KINDS };
enum { MAX_AXES = 3, WIDE = 9 };

struct shape {
    enum kind kind;
    int axes;
    int64_t in[MAX_AXES], k[MAX_AXES], stride[MAX_AXES], dilation[MAX_AXES], pads[2 * MAX_AXES];
    int64_t c_in, c_out, batch;
    weft_padding padding;
};

static weft_ctx *ctx;
static int n_run;

static void ok(weft_status st, const struct shape *s)
{
    if (st)
        fail_msg("kind %d, %d axes, in %lld %lld %lld, k %lld, stride %lld: %s", (int)s->kind,
                 s->axes, (long long)s->in[0], (long long)s->in[1], (long long)s->in[2],
                 (long long)s->k[0], (long long)s->stride[0], weft_error());
}

static weft_val build(weft_graph *g, const struct shape *s, weft_val x, weft_val w)
{
    weft_conv_opts o = {.size = sizeof o, .padding = s->padding};
    weft_conv_transpose_opts t = {.size = sizeof t, .padding = s->padding};

    memcpy(o.strides, s->stride, sizeof o.strides);
    memcpy(o.dilations, s->dilation, sizeof o.dilations);
    memcpy(t.strides, s->stride, sizeof t.strides);
    memcpy(t.dilations, s->dilation, sizeof t.dilations);
    if (s->padding == WEFT_PAD_EXPLICIT) {
        memcpy(o.pads, s->pads, sizeof o.pads);
        memcpy(t.pads, s->pads, sizeof t.pads);
    }
    o.groups = s->kind == GROUPED ? 2 : 0;
    t.groups = s->kind == TRANSPOSE_GROUPED ? 2 : 0;
    if (s->kind == DEPTHWISE)
        return weft_depthwise_conv(g, x, w, &o);
    return s->kind >= TRANSPOSE ? weft_conv_transpose(g, x, w, &t) : weft_conv(g, x, w, &o);
}

/* The sizes of x and of w. */
static void sizes(const struct shape *s, int64_t x[5], int64_t w[5])
{
    int64_t groups = s->kind == GROUPED || s->kind == TRANSPOSE_GROUPED ? 2 : 1;

    x[0] = s->batch;
    memcpy(x + 1, s->in, (size_t)s->axes * sizeof *x);
    x[s->axes + 1] = s->c_in;
    memcpy(w, s->k, (size_t)s->axes * sizeof *w);
    w[s->axes] = s->kind >= TRANSPOSE ? s->c_out / groups : s->c_in / groups;
    w[s->axes + 1] = s->kind >= TRANSPOSE ? s->c_in : s->kind == DEPTHWISE ? 2 : s->c_out;
}

static float *whole_numbers(int rank, const int64_t *dim, int range, weft_tensor *t)
{
    int64_t n = 1;
    float *v;

    for (int i = 0; i < rank; i++)
        n *= dim[i];
    v = malloc((size_t)n * sizeof *v + 1);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((i * 7 + i / 5 * 3) % (2 * range + 1) - range);
    *t = weft_view(WEFT_F32, v, rank, dim);
    return v;
}

/* Sums of whole numbers are exact in any order; Winograd's transformed ones nearly so. */
static void check_equal(const struct shape *s, const weft_tensor *want, const weft_tensor *got,
                        const char *what)
{
    const float *a = want->data, *b = got->data;

    assert_int_equal(weft_tensor_count(want), weft_tensor_count(got));
    for (int64_t i = 0; i < weft_tensor_count(want); i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(a[i]))))
            fail_msg("kind %d, %d axes, in %lld %lld %lld, k %lld %lld %lld, stride %lld %lld "
                     "%lld, padding %d: %s[%lld] is %g, not %g",
                     (int)s->kind, s->axes, (long long)s->in[0], (long long)s->in[1],
                     (long long)s->in[2], (long long)s->k[0], (long long)s->k[1],
                     (long long)s->k[2], (long long)s->stride[0], (long long)s->stride[1],
                     (long long)s->stride[2], (int)s->padding, what, (long long)i, (double)b[i],
                     (double)a[i]);
}

static void check(const struct shape *s)
{
    static const char *const names[] = {"y", "dx", "dw"};
    int64_t xd[5], wd[5];
    weft_tensor feeds[2], got[2][3] = {{{.data = NULL}}};
    weft_fn *fn[2] = {NULL, NULL};
    weft_graph *g = NULL;
    weft_val in[2], fetch[3];
    float *x, *w;

    sizes(s, xd, wd);
    ok(weft_graph_new(ctx, &g), s);
    in[0] = weft_placeholder(g, "x", WEFT_F32, s->axes + 2, xd);
    in[1] = weft_placeholder(g, "w", WEFT_F32, s->axes + 2, wd);
    fetch[0] = build(g, s, in[0], in[1]);
    if (weft_graph_status(g)) { /* the window does not fit */
        if (!strstr(weft_error(), "larger than the padded") && !strstr(weft_error(), "negative"))
            fail_msg("%s", weft_error());
        weft_graph_free(g);
        return;
    }
    ok(weft_grad(g, weft_op(g, "sum", 1, (weft_val[]){weft_mul(g, fetch[0], fetch[0])}, NULL), 2,
                 in, fetch + 1),
       s);
    x = whole_numbers(s->axes + 2, xd, 3, &feeds[0]);
    w = whole_numbers(s->axes + 2, wd, 2, &feeds[1]);
    for (int ref = 0; ref < 2; ref++) {
        ok(weft_fn_new(g,
                       WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in, .n_fetches = 3,
                                 .fetches = fetch, .reference_kernels = ref != 0),
                       &fn[ref]),
           s);
        ok(weft_fn_run(fn[ref], feeds, got[ref]), s);
    }
    for (int i = 0; i < 3; i++)
        check_equal(s, &got[1][i], &got[0][i], names[i]);
    n_run++;
    for (int ref = 0; ref < 2; ref++)
        weft_fn_free(fn[ref]);
    free(x);
    free(w);
    weft_graph_free(g);
}

static void channels(struct shape *s, int64_t c_in, int64_t c_out)
{
    bool grouped = s->kind == GROUPED || s->kind == TRANSPOSE_GROUPED;

    s->c_in = grouped ? 2 * c_in : c_in;
    s->c_out = grouped ? 2 * c_out : c_out;
}

static void every_small_sequence(void **state)
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL;

    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int64_t in = 1; in <= 5; in++)
            for (int64_t k = 1; k <= 4; k++)
                for (int64_t stride = 1; stride <= 6; stride += quick ? 2 : 1)
                    for (int64_t dilation = 1; dilation <= 3; dilation += 2)
                        for (int pad = WEFT_PAD_VALID; pad <= WEFT_PAD_CAUSAL; pad++) {
                            struct shape s = {.kind = (enum kind)kind,
                                              .axes = 1,
                                              .in = {in},
                                              .k = {k},
                                              .stride = {stride},
                                              .dilation = {dilation},
                                              .pads = {in % 3, k % 4},
                                              .batch = 2,
                                              .padding = (weft_padding)pad};

                            if (pad == WEFT_PAD_CAUSAL && kind >= TRANSPOSE)
                                continue;
                            channels(&s, 1 + (in + k) % 3, 1 + k % 2);
                            check(&s);
                        }
    assert_true(n_run > (quick ? 900 : 2000));
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* Images and volumes: each axis with a size, window, stride and dilation of its own. */
static void many_small_images_and_volumes(void **state)
{
    int n = getenv("WEFT_TEST_QUICK") ? 600 : 4000;
    uint32_t seed = 12345;

    (void)state;
    n_run = 0;
    for (int i = 0; i < n; i++) {
        struct shape s = {.kind = (enum kind)draw(&seed, N_KINDS)};
        bool deep = draw(&seed, 4) == 0;

        s.axes = 2 + (int)draw(&seed, 2);
        s.batch = 1 + draw(&seed, 2);
        s.padding = (weft_padding)draw(&seed, 3);
        for (int a = 0; a < s.axes; a++) {
            s.in[a] = 1 + draw(&seed, 4);
            s.k[a] = 1 + draw(&seed, 3);
            s.stride[a] = 1 + draw(&seed, 5);
            s.dilation[a] = 1 + draw(&seed, 2);
            s.pads[2 * a] = draw(&seed, 3);
            s.pads[2 * a + 1] = draw(&seed, 3);
        }
        channels(&s, deep ? WIDE : 1 + draw(&seed, 3), deep ? 2 * WIDE : 1 + draw(&seed, 3));
        check(&s);
    }
    assert_true(n_run > n / 2);
}

/* A deep strided stack ends in maps of 1 x 1. */
static void a_stride_of_two_on_one_pixel(void **state)
{
    (void)state;
    for (int64_t c = 1; c <= 70; c += 23) {
        struct shape s = {.kind = CONV,
                          .axes = 2,
                          .in = {1, 1},
                          .k = {3, 3},
                          .stride = {2, 2},
                          .dilation = {1, 1},
                          .c_in = c,
                          .c_out = c,
                          .batch = 3,
                          .padding = WEFT_PAD_SAME};

        check(&s);
    }
}

static int setup(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stride_of_two_on_one_pixel),
        cmocka_unit_test(every_small_sequence),
        cmocka_unit_test(many_small_images_and_volumes),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
