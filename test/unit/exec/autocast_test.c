/* autocast_test.c - mixed precision: f32 masters, half products, and results near those of f32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

enum { N = 48, IN = 24, HID = 40, OUT = 5, STEPS = 30 };

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static weft_val dense(weft_graph *g, const char *name, weft_val x, int64_t in, int64_t out)
{
    weft_val w, b;

    weft_scope_push(g, name);
    w = weft_variable(g, "w", 2, (int64_t[]){in, out}, NULL);
    b = weft_variable(g, "b", 1, &out, NULL);
    weft_scope_pop(g);
    return weft_add(g, weft_matmul(g, x, w, NULL), b);
}

/* Losses of a classifier whose products are in `half` (F32: none); *plan gets the explanation. */
static void train(weft_dtype half, unsigned passes_off, int threads, float loss_of[STEPS],
                  char plan[4096])
{
    float xs[N * IN];
    int32_t ys[N];
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_val x, y, h, logits, loss, updates[8];
    weft_tensor feeds[2];
    weft_optim o;
    char *text;
    int n;

    for (int i = 0; i < N * IN; i++)
        xs[i] = (float)((i * 29) % 83) / 41 - 1;
    for (int i = 0; i < N; i++)
        ys[i] = (i * 7) % OUT;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads, .seed = 2), &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, IN});
    y = weft_placeholder(g, "y", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    weft_autocast_push(g, half);
    h = weft_gelu(g, dense(g, "a", x, IN, HID), NULL);
    logits = dense(g, "b", h, HID, OUT);
    loss = weft_loss_sparse_softmax_xent(g, logits, y, NULL);
    ok(weft_optim_init(&o, "adam", "learning_rate=0.01"));
    ok(weft_minimize(g, loss, &o, 0, NULL, 8, updates, &n));
    weft_autocast_pop(g);
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, y},
                             .n_fetches = 1, .fetches = &loss, .n_updates = n, .updates = updates,
                             .passes_off = passes_off),
                   &fn));
    feeds[0] = weft_view(WEFT_F32, xs, 2, (int64_t[]){N, IN});
    feeds[1] = weft_view(WEFT_I32, ys, 1, (int64_t[]){N});
    for (int i = 0; i < STEPS; i++) {
        weft_tensor out = {.data = NULL};

        ok(weft_fn_run(fn, feeds, &out));
        assert_int_equal(out.dtype, WEFT_F32);
        loss_of[i] = *(const float *)out.data;
    }
    ok(weft_fn_explain(fn, feeds, NULL, &text));
    snprintf(plan, 4096, "%s", text);
    weft_text_free(ctx, text);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

static void near_f32(weft_dtype half, const char *name, float tolerance)
{
    float want[STEPS], got[STEPS], again[STEPS];
    char plan[4096];

    train(WEFT_F32, 0, 2, want, plan);
    assert_null(strstr(plan, name));
    train(half, 0, 2, got, plan);
    assert_non_null(strstr(plan, name)); /* halves really flow */
    for (int i = 0; i < STEPS; i++)
        if (!(fabsf(got[i] - want[i]) < tolerance * want[i]))
            fail_msg("%s step %d: %g, f32 has %g", name, i, (double)got[i], (double)want[i]);
    assert_true(got[STEPS - 1] < 0.8f * got[0]);
    train(half, 0, 3, again, plan);
    assert_memory_equal(got, again, sizeof got);
    train(half, WEFT_PASS_ALL, 2, again, plan);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabsf(again[i] - want[i]) < 2 * tolerance * want[i]);
}

static void bf16_trains_near_f32(void **state)
{
    (void)state;
    near_f32(WEFT_BF16, "bf16[", 0.03f);
}

static void f16_trains_near_f32(void **state)
{
    (void)state;
    near_f32(WEFT_F16, "f16[", 0.01f);
}

static weft_dtype dtype_of(const weft_graph *g, weft_val v)
{
    weft_tensor t = {.data = NULL};

    ok(weft_val_type(g, v, &t));
    return t.dtype;
}

/* A bias follows the product, so that what a layer computes stays a half; an f32 value does not. */
static void biases_follow_products(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_val x, w, b, product, other;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){2, 4});
    w = weft_variable(g, "w", 2, (int64_t[]){4, 3}, NULL);
    b = weft_variable(g, "b", 1, (int64_t[]){3}, NULL);
    other = weft_placeholder(g, "other", WEFT_F32, 1, (int64_t[]){3});
    weft_autocast_push(g, WEFT_BF16);
    product = weft_matmul(g, x, w, NULL);
    assert_int_equal(dtype_of(g, weft_add(g, product, b)), WEFT_BF16);
    assert_int_equal(dtype_of(g, weft_add(g, product, weft_reshape(g, b, 2, (int64_t[]){1, 3}))),
                     WEFT_BF16);
    assert_int_equal(dtype_of(g, weft_add(g, product, other)), WEFT_F32);
    assert_int_equal(dtype_of(g, weft_mul(g, b, other)), WEFT_F32);
    weft_autocast_pop(g);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* A convolution in half precision runs on the f32 kernel between conversions. */
static void convolutions_are_widened(void **state)
{
    float xs[2 * 8 * 8 * 8], ws[3 * 3 * 8 * 8], *f32, got[2 * 6 * 6 * 8];
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_val x, w, y[2];
    weft_tensor feeds[2], out[2] = {{.data = NULL}, {.data = NULL}};

    (void)state;
    for (int i = 0; i < 2 * 8 * 8 * 8; i++)
        xs[i] = (float)((i * 31) % 17) / 8 - 1; /* exact in half precision */
    for (int i = 0; i < 3 * 3 * 8 * 8; i++)
        ws[i] = (float)((i * 13) % 9) / 4 - 1;
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 4, (int64_t[]){2, 8, 8, 8});
    w = weft_placeholder(g, "w", WEFT_F32, 4, (int64_t[]){3, 3, 8, 8});
    y[0] = weft_conv(g, x, w, NULL);
    weft_autocast_push(g, WEFT_BF16);
    y[1] = weft_conv(g, x, w, NULL);
    weft_autocast_pop(g);
    y[1] = weft_cast(g, y[1], WEFT_F32);
    feeds[0] = weft_view(WEFT_F32, xs, 4, (int64_t[]){2, 8, 8, 8});
    feeds[1] = weft_view(WEFT_F32, ws, 4, (int64_t[]){3, 3, 8, 8});
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, w},
                             .n_fetches = 2, .fetches = y),
                   &fn));
    ok(weft_fn_run(fn, feeds, out));
    f32 = out[0].data;
    memcpy(got, out[1].data, sizeof got);
    for (int i = 0; i < 2 * 6 * 6 * 8; i++)
        assert_true(fabsf(got[i] - f32[i]) <= 0.005f * fabsf(f32[i]) + 1e-5f);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* Einsum sums one operand in f32 before the product; the other one stays as it is. */
static void halves_of_another_type_keep_theirs(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_val a, b, y;
    weft_tensor t;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    a = weft_placeholder(g, "a", WEFT_BF16, 1, (int64_t[]){2});
    b = weft_placeholder(g, "b", WEFT_BF16, 3, (int64_t[]){3, 2, 4});
    weft_autocast_push(g, WEFT_F16);
    y = weft_einsum(g, "b,abX->X", a, b);
    weft_autocast_pop(g);
    ok(weft_graph_status(g));
    ok(weft_val_type(g, y, &t));
    assert_int_equal(t.dtype, WEFT_BF16);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_trains_near_f32),
        cmocka_unit_test(f16_trains_near_f32),
        cmocka_unit_test(biases_follow_products),
        cmocka_unit_test(convolutions_are_widened),
        cmocka_unit_test(halves_of_another_type_keep_theirs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
