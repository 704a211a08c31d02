/* fuse_test.c - products with element-wise epilogues, in the shapes that are easy to get wrong:
 * whatever is fused, the numbers are those of the unfused graph. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "weft/weft.h"

enum { ROWS = 37, DEPTH = 5, MAX_OUT = 3 };

typedef int build_fn(weft_graph *g, weft_val x, weft_val w, weft_val *out);

static void fill(float *to, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((i * 7 + seed) % 23) / 11.0f - 1.0f;
}

/* Everything that the function gives must be the same with and without fusion. */
static void compare(build_fn *build)
{
    float x[ROWS * DEPTH] = {0}, w[DEPTH * DEPTH] = {0};
    weft_tensor feeds[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){ROWS, DEPTH}),
                            weft_view(WEFT_F32, w, 2, (int64_t[]){DEPTH, DEPTH})};
    weft_tensor got[2][MAX_OUT] = {{{0}}};
    weft_val in[2], out[MAX_OUT];
    weft_fn *fn[2] = {NULL, NULL};
    weft_graph *g = NULL;
    weft_ctx *ctx = NULL;
    int n;

    fill(x, ROWS * DEPTH, 3);
    fill(w, DEPTH * DEPTH, 8);
    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
    in[0] = weft_placeholder(g, "x", WEFT_F32, 2, feeds[0].dim);
    in[1] = weft_placeholder(g, "w", WEFT_F32, 2, feeds[1].dim);
    n = build(g, in[0], in[1], out);
    for (int k = 0; k < 2; k++) {
        if (weft_fn_new(g,
                        WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in, .n_fetches = n,
                                  .fetches = out, .passes_off = k ? WEFT_PASS_ALL : 0u),
                        &fn[k]) ||
            weft_fn_run(fn[k], feeds, got[k]))
            fail_msg("%s", weft_error());
    }
    for (int i = 0; i < n; i++)
        for (int64_t e = 0; e < weft_tensor_count(&got[0][i]); e++) {
            float a = ((float *)got[0][i].data)[e], b = ((float *)got[1][i].data)[e];

            if (!(fabsf(a - b) <= 1e-5f * (1 + fabsf(b))))
                fail_msg("output %d, element %lld: %g fused, %g unfused", i, (long long)e,
                         (double)a, (double)b);
        }
    weft_fn_free(fn[0]);
    weft_fn_free(fn[1]);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* The product is read again besides its epilogue. */
static int product_goes_out(weft_graph *g, weft_val x, weft_val w, weft_val *out)
{
    weft_val y = weft_matmul(g, x, w, NULL);

    out[0] = weft_mul(g, y, weft_scalar(g, 3));
    out[1] = y;
    return 2;
}

/* The same through a gradient: d/ds of s·y needs y. */
static int gradient_of_a_scale(weft_graph *g, weft_val x, weft_val w, weft_val *out)
{
    weft_val s = weft_variable(g, "s", 0, NULL,
                               WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT, .a = 3));
    weft_val y = weft_softmax(g, weft_mul(g, weft_matmul(g, x, w, NULL), s), -1);
    weft_val loss = weft_sum(g, weft_mul(g, y, x), NULL);

    assert_int_equal(weft_grad(g, loss, 2, (weft_val[]){s, w}, out), WEFT_OK);
    out[2] = loss;
    return 3;
}

/* What feeds the product is read again after it, as a state kept by a mask is. */
static int operand_is_read_again(weft_graph *g, weft_val x, weft_val w, weft_val *out)
{
    weft_val h = weft_tanh(g, x), y = weft_softsign(g, weft_add(g, weft_matmul(g, h, w, NULL), x));

    out[0] = weft_where(g, weft_gt(g, x, weft_scalar(g, 0)), y, h);
    return 1;
}

static void a_product_may_leave_beside_its_epilogue(void **state)
{
    (void)state;
    compare(product_goes_out);
    compare(gradient_of_a_scale);
}

static void an_epilogue_may_read_what_the_product_read(void **state)
{
    (void)state;
    compare(operand_is_read_again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_may_leave_beside_its_epilogue),
        cmocka_unit_test(an_epilogue_may_read_what_the_product_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
