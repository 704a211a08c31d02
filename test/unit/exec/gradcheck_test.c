/* gradcheck_test.c - the public gradient check: finds right gradients right, and wrong ones
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include <weft/sys/op.h>
#include <weft/weft.h>

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static weft_status infer_cube(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    out[0] = in[0];
    return WEFT_OK;
}

static weft_status run_cube(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    for (int64_t i = 0; i < weft_tensor_count(&in[0]); i++)
        if (in[0].dtype == WEFT_F64)
            ((double *)out[0].data)[i] =
                ((double *)in[0].data)[i] * ((double *)in[0].data)[i] * ((double *)in[0].data)[i];
        else
            ((float *)out[0].data)[i] =
                ((float *)in[0].data)[i] * ((float *)in[0].data)[i] * ((float *)in[0].data)[i];
    return WEFT_OK;
}

/* 3 x² dy */
static weft_status grad_right(weft_graph *g, const weft_val *in, const weft_val *out,
                              const weft_val *dout, weft_val *din)
{
    weft_val x2 = weft_square(g, in[0]);

    (void)out;
    din[0] = weft_mul(g, dout[0], weft_add(g, x2, weft_add(g, x2, x2)));
    return WEFT_OK;
}

/* 2 x² dy: a mistake */
static weft_status grad_wrong(weft_graph *g, const weft_val *in, const weft_val *out,
                              const weft_val *dout, weft_val *din)
{
    weft_val x2 = weft_square(g, in[0]);

    (void)out;
    din[0] = weft_mul(g, dout[0], weft_add(g, x2, x2));
    return WEFT_OK;
}

static weft_status check(bool wrong, weft_grad_check_result *r)
{
    float xs[6] = {.1f, -.2f, .3f, .4f, -.5f, .6f};
    weft_tensor data = weft_view(WEFT_F32, xs, 2, (int64_t[]){2, 3});
    weft_ctx *ctx;
    weft_graph *g;
    weft_val x, w, y, loss;
    weft_status st;

    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 3), &ctx));
    ok(weft_op_register(ctx, WEFT_OPTS(weft_user_op, .name = "cube", .n_in = 1, .n_out = 1,
                                       .infer = infer_cube, .run = run_cube,
                                       .grad = wrong ? grad_wrong : grad_right)));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 3});
    w = weft_variable(g, "w", 2, (int64_t[]){3, 4}, NULL);
    y = weft_tanh(g, weft_matmul(g, x, w, NULL));
    y = weft_op(g, "cube", 1, &y, NULL);
    loss = weft_op(g, "sum", 1, &y, NULL);
    st = weft_grad_check(g, loss, 1, &x, &data, 0, NULL, NULL, r);
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return st;
}

static void a_right_gradient_passes(void **state)
{
    weft_grad_check_result r;

    (void)state;
    ok(check(false, &r));
    assert_int_equal(r.n_checked, 12);
    assert_true(r.worst < 1e-8);
}

static void a_wrong_gradient_is_named(void **state)
{
    weft_grad_check_result r;

    (void)state;
    assert_int_equal(check(true, &r), WEFT_ENUMERIC);
    assert_non_null(strstr(weft_error(), "gradient of 'w' at element"));
    assert_true(r.worst > 1e-3);
}

/* One value as two operands of an op whose gradient is taken from an expansion: it counts once for
 * each. */
static void a_value_that_is_two_operands_gets_both_gradients_once(void **state)
{
    static const struct {
        const char *op, *attrs;
        int rank, n_in, in[4]; /* 0: x, 1: w */
        int64_t dim[4];
    } rows[] = {
        {"batch_norm", NULL, 2, 3, {0, 1, 1}, {5, 3}},
        {"layer_norm", NULL, 2, 3, {0, 1, 1}, {5, 3}},
        {"attention", NULL, 4, 3, {0, 0, 0}, {2, 2, 3, 4}},
        {"attention", "layout=bthd causal=true", 4, 3, {0, 0, 0}, {1, 3, 2, 4}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_ctx *ctx;
        weft_graph *g;
        weft_val v[2], in[4], y, loss;

        ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &ctx));
        ok(weft_graph_new(ctx, &g));
        v[0] = weft_variable(g, "x", rows[i].rank, rows[i].dim,
                             WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_NORMAL, .b = 1));
        v[1] = weft_variable(g, "w", 1, (int64_t[]){rows[i].dim[rows[i].rank - 1]},
                             WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_NORMAL, .b = 1));
        for (int k = 0; k < rows[i].n_in; k++)
            in[k] = v[rows[i].in[k]];
        y = weft_op(g, rows[i].op, rows[i].n_in, in, rows[i].attrs);
        /* The second output keeps the gradient from taking the short way. */
        loss = weft_add(g, weft_sum(g, weft_square(g, y), NULL),
                        weft_sum(g, weft_square(g, weft_output(g, y, 1)), NULL));
        ok(weft_grad_check(g, loss, 0, NULL, NULL, 1 + (rows[i].in[1] == 1), v, NULL, NULL));
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_gradient_passes),
        cmocka_unit_test(a_wrong_gradient_is_named),
        cmocka_unit_test(a_value_that_is_two_operands_gets_both_gradients_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
