/* clip_norm_test.c - the global norm of very many variables: more than an ordinary op has
 * inputs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

#include "support/gradients.h"

enum { N = 1300, WIDTH = 3 };

static weft_val updates[N];

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

/* The loss is x times the sum of all variables, so that every gradient is x. */
static weft_graph *many(weft_ctx *ctx, weft_val *x, weft_val *loss)
{
    weft_graph *g = NULL;
    weft_optim o;
    weft_val all = WEFT_NIL;
    char name[16];
    int n = 0;

    ok(weft_graph_new(ctx, &g));
    *x = weft_placeholder(g, "x", WEFT_F32, 0, NULL);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "v%d", i);
        weft_val v = weft_variable(g, name, 1, (int64_t[]){WIDTH}, NULL);

        all = i ? weft_add(g, all, v) : v;
    }
    *loss = weft_mul(g, *x, weft_op(g, "sum", 1, &all, NULL));
    ok(weft_optim_init(&o, "sgd", "learning_rate=1 global_clipnorm=2"));
    ok(weft_minimize(g, *loss, &o, 0, NULL, N, updates, &n));
    assert_int_equal(n, N);
    return g;
}

static void check(weft_graph *g, weft_val x, weft_val loss, bool ref, bool flat, unsigned off)
{
    float value = 5, want = 2 / sqrtf((float)N * WIDTH);
    weft_tensor feed = weft_view(WEFT_F32, &value, 0, NULL), out = {.data = NULL}, before, after;
    static weft_gradient gradients[N];
    weft_fn *fn = NULL;
    float was[WIDTH];
    int n_gradients = flat ? gradients_of_updates(g, N, updates, N, gradients) : 0;

    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                             .fetches = &loss, .n_updates = N, .updates = updates,
                             .reference_kernels = ref, .passes_off = off,
                             .n_gradients = n_gradients, .gradients = gradients),
                   &fn));
    ok(weft_fn_view(fn, "v1234", &before));
    memcpy(was, before.data, sizeof was);
    ok(weft_fn_run(fn, &feed, &out));
    ok(weft_fn_view(fn, "v1234", &after));
    for (int i = 0; i < WIDTH; i++)
        if (fabsf(was[i] - ((float *)after.data)[i] - want) > 1e-6f)
            fail_msg("moved by %g, not %g", (double)(was[i] - ((float *)after.data)[i]),
                     (double)want);
    weft_fn_free(fn);
}

static void gradients_of_many_variables_are_clipped_together(void **state)
{
    weft_ctx *ctx = NULL;
    weft_val x, loss;
    weft_graph *g, *back = NULL;
    char *text = NULL;

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx));
    g = many(ctx, &x, &loss);
    check(g, x, loss, false, false, 0);
    check(g, x, loss, false, true, 0);
    check(g, x, loss, false, false, WEFT_PASS_ALL);
    check(g, x, loss, true, false, WEFT_PASS_ALL);
    ok(weft_graph_text(g, &text));
    ok(weft_graph_parse(ctx, text, (int64_t)strlen(text), &back));
    weft_text_free(ctx, text);
    weft_graph_free(back);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

static void the_norm_of_many_half_precision_values(void **state)
{
    static uint16_t ones[N];
    weft_ctx *ctx = NULL;
    weft_graph *g = NULL;
    weft_fn *fn = NULL;
    weft_val x, parts[N], norm;
    weft_tensor feed, out = {.data = NULL};
    int64_t n = N;

    (void)state;
    for (int i = 0; i < N; i++)
        ones[i] = 0x3c00;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F16, 1, &n);
    for (int i = 0; i < N; i++)
        parts[i] = x;
    weft_autocast_push(g, WEFT_F16);
    norm = weft_global_norm(g, N, parts);
    weft_autocast_pop(g);
    ok(weft_graph_status(g));
    ok(weft_fn_new(
        g, WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1, .fetches = &norm),
        &fn));
    feed = weft_view(WEFT_F16, ones, 1, &n);
    ok(weft_fn_run(fn, &feed, &out));
    assert_int_equal(out.dtype, WEFT_F32);
    assert_true(*(const float *)out.data == (float)N);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_many_variables_are_clipped_together),
        cmocka_unit_test(the_norm_of_many_half_precision_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
