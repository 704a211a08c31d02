/* outside_test.c - what a step leaves alone: the C library's heap and the caller's floating-point
 * mode. Allocations are counted from outside, by taking the place of malloc, so that libraries
 * below weft count too. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_COUNT 1
static _Atomic int64_t n_calls;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    atomic_fetch_add(&n_calls, 1);
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}
#else
#define CAN_COUNT 0
static int64_t n_calls;
#endif

/* A small classifier with a convolution, a norm and dropout: many kinds of kernels. */
static weft_fn *make(weft_ctx *ctx, weft_graph **graph, weft_tensor feeds[2])
{
    static float xs[8 * 12 * 12 * 2];
    static int32_t ys[8];
    weft_graph *g;
    weft_val x, y, h, loss, updates[16];
    weft_fn *fn = NULL;
    weft_optim o;
    int n;

    for (int i = 0; i < 8 * 12 * 12 * 2; i++)
        xs[i] = (float)((i * 37) % 91) / 45 - 1;
    for (int i = 0; i < 8; i++)
        ys[i] = i % 5;
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 4, (int64_t[]){8, 12, 12, 2});
    y = weft_placeholder(g, "y", WEFT_I32, 1, (int64_t[]){8});
    h = weft_relu(g,
                  weft_conv(g, x, weft_variable(g, "k", 4, (int64_t[]){3, 3, 2, 16}, NULL), NULL));
    h = weft_max_pool(g, h, NULL);
    h = weft_reshape(g, h, 2, (int64_t[]){8, 400});
    h = weft_layer_norm(g, h, weft_variable(g, "gamma", 1, (int64_t[]){400}, NULL), WEFT_NIL, NULL);
    h = weft_matmul(g, h, weft_variable(g, "w", 2, (int64_t[]){400, 5}, NULL), NULL);
    loss = weft_loss_sparse_softmax_xent(g, h, y, NULL);
    ok(weft_optim_init(&o, "adam", "global_clipnorm=1"));
    ok(weft_minimize(g, loss, &o, 0, NULL, 16, updates, &n));
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, y},
                             .n_fetches = 1, .fetches = &loss, .n_updates = n, .updates = updates),
                   &fn));
    feeds[0] = weft_view(WEFT_F32, xs, 4, (int64_t[]){8, 12, 12, 2});
    feeds[1] = weft_view(WEFT_I32, ys, 1, (int64_t[]){8});
    *graph = g;
    return fn;
}

static void steps(weft_fn *fn, const weft_tensor *feeds, int n)
{
    for (int i = 0; i < n; i++) {
        weft_tensor out = {.data = NULL};

        ok(weft_fn_run(fn, feeds, &out));
    }
}

static void nothing_allocates_in_a_step(void **state)
{
    static const weft_kernels kinds[] = {WEFT_KERNELS_PORTABLE, WEFT_KERNELS_BEST};

    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_tensor feeds[2];
        weft_ctx *ctx;
        weft_graph *g;
        weft_fn *fn;
        int64_t before;

        ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 3, .kernels = kinds[i]), &ctx));
        fn = make(ctx, &g, feeds);
        ok(weft_fn_prepare(fn, feeds));
        before = n_calls;
        steps(fn, feeds, 5);
        assert_int_equal(n_calls, before);
        assert_true(!CAN_COUNT || before > 0); /* the counter counts */
        weft_fn_free(fn);
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
}

static void the_callers_floating_point_mode_is_kept(void **state)
{
    weft_tensor feeds[2];
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    float up, near;

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 4), &ctx));
    fn = make(ctx, &g, feeds);
    steps(fn, feeds, 2);
    {
        weft_tensor w;

        ok(weft_fn_view(fn, "w", &w));
        near = ((const float *)w.data)[7];
    }
    ok(weft_fn_reset(fn));
    assert_int_equal(fesetround(FE_UPWARD), 0);
    steps(fn, feeds, 2);
    assert_int_equal(fegetround(), FE_UPWARD);
    assert_int_equal(fesetround(FE_TONEAREST), 0);
    {
        weft_tensor w;

        ok(weft_fn_view(fn, "w", &w));
        up = ((const float *)w.data)[7];
    }
    assert_true(up == near); /* and the kernels did not run in it */
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_allocates_in_a_step),
        cmocka_unit_test(the_callers_floating_point_mode_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
