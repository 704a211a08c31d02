/* batch_norm_test.c - batch norm in functions: training moves the averages as Keras does, inference
 * with shared parameters reads them; assign and assign_add keep what they are given. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "weft/fn.h"
#include "weft/ops.h"

enum { N = 4, C = 2 };
static const float batch[N][C] = {{1, 10}, {2, 20}, {3, 30}, {4, 60}};

struct nets {
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *train, *infer;
};

static void build(struct nets *n)
{
    int64_t c[] = {C}, x_dim[] = {WEFT_ANY, C};
    weft_val x, gamma, beta, mean, var, y[2], updates[2];

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &n->ctx), 0);
    assert_int_equal(weft_graph_new(n->ctx, &n->g), 0);
    x = weft_placeholder(n->g, "x", WEFT_F32, 2, x_dim);
    gamma =
        weft_variable(n->g, "gamma", 1, c, WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES));
    beta = weft_variable(n->g, "beta", 1, c, NULL);
    mean = weft_variable(n->g, "mean", 1, c, WEFT_OPTS(weft_variable_opts, .not_trainable = true));
    var =
        weft_variable(n->g, "var", 1, c,
                      WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES, .not_trainable = true));
    y[0] = weft_batch_norm(
        n->g, x, gamma, beta, mean, var,
        WEFT_OPTS(weft_batch_norm_opts, .training = true, .momentum = 0.9, .updates = updates));
    y[1] = weft_batch_norm(n->g, x, gamma, beta, mean, var, NULL);
    assert_int_equal(weft_graph_status(n->g), 0);
    assert_int_equal(weft_fn_new(n->g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                                           .fetches = &y[0], .n_updates = 2, .updates = updates),
                                 &n->train),
                     0);
    assert_int_equal(weft_fn_new(n->g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                                           .fetches = &y[1], .share = n->train),
                                 &n->infer),
                     0);
}

static void drop(struct nets *n)
{
    weft_fn_free(n->infer);
    weft_fn_free(n->train);
    weft_graph_free(n->g);
    weft_ctx_free(n->ctx);
}

static void channel_statistics(double *mean, double *var)
{
    for (int c = 0; c < C; c++) {
        mean[c] = var[c] = 0;
        for (int i = 0; i < N; i++)
            mean[c] += (double)batch[i][c] / N;
        for (int i = 0; i < N; i++)
            var[c] += ((double)batch[i][c] - mean[c]) * ((double)batch[i][c] - mean[c]) / N;
    }
}

static void read_variable(weft_fn *fn, const char *name, float *to)
{
    weft_tensor t = weft_view(WEFT_F32, to, 1, (int64_t[]){C});

    assert_int_equal(weft_fn_get(fn, name, &t), 0);
}

static void training_moves_the_averages_and_inference_reads_them(void **state)
{
    struct nets n;
    weft_tensor x = weft_view(WEFT_F32, batch, 2, (int64_t[]){N, C});
    double mean[C], var[C], moving_mean[C] = {0, 0}, moving_var[C] = {1, 1};
    float got_mean[C], got_var[C], y[N][C];

    (void)state;
    build(&n);
    channel_statistics(mean, var);
    for (int step = 0; step < 3; step++) {
        weft_tensor out = weft_view(WEFT_F32, y, 2, (int64_t[]){N, C});

        assert_int_equal(weft_fn_run(n.train, &x, &out), 0);
        for (int c = 0; c < C; c++) {
            moving_mean[c] = 0.9 * moving_mean[c] + 0.1 * mean[c];
            moving_var[c] = 0.9 * moving_var[c] + 0.1 * var[c];
        }
        read_variable(n.train, "mean", got_mean);
        read_variable(n.train, "var", got_var);
        for (int c = 0; c < C; c++) {
            assert_true(fabs((double)got_mean[c] - moving_mean[c]) < 1e-5 * (1 + moving_mean[c]));
            assert_true(fabs((double)got_var[c] - moving_var[c]) < 1e-5 * (1 + moving_var[c]));
        }
        for (int i = 0; i < N; i++)
            for (int c = 0; c < C; c++)
                assert_true(fabs((double)y[i][c] -
                                 ((double)batch[i][c] - mean[c]) / sqrt(var[c] + 1e-3)) < 1e-5);
    }
    weft_tensor out = weft_view(WEFT_F32, y, 2, (int64_t[]){N, C});
    assert_int_equal(weft_fn_run(n.infer, &x, &out), 0);
    for (int i = 0; i < N; i++)
        for (int c = 0; c < C; c++)
            assert_true(fabs((double)y[i][c] - ((double)batch[i][c] - moving_mean[c]) /
                                                   sqrt(moving_var[c] + 1e-3)) < 1e-4);
    drop(&n);
}

static void assign_and_assign_add_change_the_variable(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    int64_t c[] = {C};
    weft_val v, w, two, updates[2];
    float got[C];

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    v = weft_variable(g, "v", 1, c, WEFT_OPTS(weft_variable_opts, .not_trainable = true));
    w = weft_variable(g, "w", 1, c,
                      WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES, .not_trainable = true));
    two = weft_add(g, w, w);
    updates[0] = weft_assign(g, v, two);
    updates[1] = weft_assign_add(g, w, two);
    assert_int_equal(
        weft_fn_new(g, WEFT_OPTS(weft_fn_opts, .n_updates = 2, .updates = updates), &fn), 0);
    for (int step = 1, was = 1; step < 4; step++, was *= 3) {
        assert_int_equal(weft_fn_run(fn, NULL, NULL), 0);
        read_variable(fn, "v", got);
        assert_true(got[0] == (float)(2 * was) && got[1] == got[0]);
        read_variable(fn, "w", got);
        assert_true(got[0] == (float)(3 * was) && got[1] == got[0]);
    }
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_moves_the_averages_and_inference_reads_them),
        cmocka_unit_test(assign_and_assign_add_change_the_variable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
