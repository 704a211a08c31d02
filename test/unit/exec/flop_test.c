/* flop_test.c - a plan counts the operations of all its products, also of those that passes have
 * joined with others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <weft/weft.h>

enum { BATCH = 2, SIZE = 8, IN = 3, OUT = 4, TAPS = 3 };

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

/* The operations of the loss sum(layer(x, w) + b)^2 and of its gradients by w and b. */
static double count(bool transpose, int64_t c_in, int64_t c_out)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_val x, w, b, y, loss, grads[2], fetches[3];
    float data[BATCH * SIZE * SIZE * OUT] = {0};
    const int64_t dim[] = {BATCH, SIZE, SIZE, c_in};
    weft_tensor feed = weft_view(WEFT_F32, data, 4, dim);
    weft_plan_info info = {.size = sizeof info};

    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 4, dim);
    w = weft_variable(g, "w", 4,
                      (int64_t[]){TAPS, TAPS, transpose ? c_out : c_in, transpose ? c_in : c_out},
                      NULL);
    b = weft_variable(g, "b", 1, &c_out, NULL);
    y = transpose ? weft_conv_transpose(g, x, w, NULL) : weft_conv(g, x, w, NULL);
    loss = weft_sum(g, weft_square(g, weft_add(g, y, b)), NULL);
    ok(weft_grad(g, loss, 2, (weft_val[]){w, b}, grads));
    fetches[0] = loss;
    fetches[1] = grads[0];
    fetches[2] = grads[1];
    ok(weft_fn_new(
        g, WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 3, .fetches = fetches),
        &fn));
    ok(weft_fn_plan_info(fn, &feed, &info));
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return info.flop;
}

/* Each weight meets each output pixel once, forward and in its own gradient. */
static void a_filter_gradient_that_also_sums_a_bias_counts(void **state)
{
    double weights = TAPS * TAPS * IN * OUT, pixels = BATCH * 6 * 6;

    (void)state;
    assert_float_equal(count(false, IN, OUT), 2 * 2 * weights * pixels, 0);
}

/* Here it meets each input pixel once. */
static void a_transposed_convolution_counts(void **state)
{
    double weights = TAPS * TAPS * IN * OUT, pixels = BATCH * SIZE * SIZE;

    (void)state;
    assert_float_equal(count(true, OUT, IN), 2 * 2 * weights * pixels, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filter_gradient_that_also_sums_a_bias_counts),
        cmocka_unit_test(a_transposed_convolution_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
