/* custom_loss_test.c - custom losses and metrics: trained with, saved, loaded, and named when they
 * are missing. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft/sys/loss.h"
#include "weft/weft.h"

#define N 48
#define D 3

static weft_ctx *ctx;
static float x[N][D], y[N], weight[N];
static int32_t class[N];
static char path[64];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static void says(const char *text)
{
    if (!strstr(weft_error(), text))
        fail_msg("'%s' is not in: %s", text, weft_error());
}

static int set_up(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX * 2 - 1;
        y[i] = 2 * x[i][0] - x[i][1] + 0.3f;
        weight[i] = i % 3 ? 1 : 0.25f;
        class[i] = y[i] > 0.5f ? 2 : y[i] > 0;
    }
    snprintf(path, sizeof path, "/tmp/weft-loss-%ld.safetensors", (long)getpid());
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    unlink(path);
    return 0;
}

/* ---- the kinds ------------------------------------------------------------------------------- */

/* by * (y - p)^2 where the prediction is too large, (y - p)^2 elsewhere. */
static weft_val build_asymmetric(weft_loss_call *c)
{
    weft_graph *g = weft_loss_graph(c);
    weft_val d = weft_sub(g, weft_loss_pred(c), weft_loss_label(c)), zero = weft_scalar(g, 0);
    weft_val over = weft_max(g, d, zero), under = weft_min(g, d, zero);
    weft_val by = weft_scalar(g, weft_loss_float(c, "over"));

    if (weft_loss_float(c, "over") < 0)
        return weft_loss_fail(c, WEFT_EINVAL, "over=%g must not be negative",
                              weft_loss_float(c, "over"));
    return weft_mean(g, weft_add(g, weft_mul(g, by, weft_square(g, over)), weft_square(g, under)),
                     WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
}

/* The cross-entropy of class numbers, written down once more. */
static weft_val build_numbers(weft_loss_call *c)
{
    weft_graph *g = weft_loss_graph(c);
    weft_val p = weft_log_softmax(g, weft_loss_pred(c), -1);
    weft_val own = weft_take_along(g, p, weft_expand_dims(g, weft_loss_label(c), -1), -1);

    return weft_neg(g, weft_squeeze(g, own, 1, (int64_t[]){-1}));
}

/* Is the error at most `tolerance`? A mean over samples. */
static weft_val build_within(weft_loss_call *c)
{
    weft_graph *g = weft_loss_graph(c);
    weft_val d = weft_abs(g, weft_sub(g, weft_loss_pred(c), weft_loss_label(c)));

    return weft_le(g, d, weft_scalar(g, weft_loss_float(c, "tolerance")));
}

/* Mean and spread of the error from three sums. */
static weft_val build_spread(weft_loss_call *c)
{
    weft_graph *g = weft_loss_graph(c);
    weft_val d = weft_sub(g, weft_loss_pred(c), weft_loss_label(c)), n = weft_size_of(g, d, NULL);

    if (weft_loss_weight(c).id)
        return weft_loss_fail(c, WEFT_EINVAL, "it is not made for weights");
    return weft_stack(g, 3,
                      (weft_val[]){weft_cast(g, n, WEFT_F32), weft_sum(g, d, NULL),
                                   weft_sum(g, weft_square(g, d), NULL)},
                      0);
}

static double spread(const weft_loss_call *c, const double *s)
{
    double mean = s[1] / s[0];

    return sqrt(s[2] / s[0] - mean * mean) * weft_loss_float(c, "factor");
}

static weft_val build_nothing(weft_loss_call *c)
{
    (void)c;
    return WEFT_NIL;
}

static const weft_loss_kind asymmetric = {.size = sizeof asymmetric,
                                          .name = "Asymmetric",
                                          .attrs = "over:f=1",
                                          .build = build_asymmetric,
                                          .doc = "too much is worse than too little"},
                            numbers = {.size = sizeof numbers,
                                       .name = "numbers_loss",
                                       .labels = WEFT_LABELS_NUMBERS,
                                       .build = build_numbers};
static const weft_metric_kind within = {.size = sizeof within,
                                        .name = "WithinTolerance",
                                        .attrs = "tolerance:f=0.5",
                                        .direction = 1,
                                        .build = build_within},
                              sums = {.size = sizeof sums,
                                      .name = "spread",
                                      .attrs = "factor:f=1",
                                      .direction = -1,
                                      .n_sums = 3,
                                      .build = build_spread,
                                      .result = spread};

/* ---- the net --------------------------------------------------------------------------------- */

static weft_model *empty(bool registered)
{
    weft_model *m;

    ok(weft_model_new(ctx, NULL, &m));
    if (registered) {
        ok(weft_loss_register(m, &asymmetric));
        ok(weft_loss_register(m, &numbers));
        ok(weft_metric_register(m, &within));
        ok(weft_metric_register(m, &sums));
    }
    return m;
}

static weft_model *net(const char *units)
{
    weft_model *m = empty(true);

    weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_add(m, "Dense", "units=4 activation=tanh");
    weft_model_add(m, "Dense", units);
    ok(weft_model_status(m));
    return m;
}

static weft_tensor features(void)
{
    return weft_view(WEFT_F32, x, 2, (int64_t[]){N, D});
}

static weft_tensor values(void)
{
    return weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1});
}

/* 20 steps; the loss of the last. */
static double train(weft_trainer *t, const weft_tensor *labels, const weft_tensor *weights)
{
    weft_tensor in = features();
    weft_logs logs;

    for (int i = 0; i < 20; i++)
        ok(weft_train_on_batch(t, &in, labels, weights, &logs));
    return weft_logs_get(&logs, "loss");
}

static weft_trainer *compiled(weft_model *m, const char *loss, const char *metrics)
{
    weft_trainer *t;

    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0.1", .loss = loss,
                              .metrics = metrics),
                    &t));
    return t;
}

static double trained(const char *units, const char *loss, const weft_tensor *labels,
                      const weft_tensor *weights)
{
    weft_model *m = net(units);
    weft_trainer *t = compiled(m, loss, NULL);
    double last = train(t, labels, weights);

    weft_trainer_free(t);
    weft_model_free(m);
    return last;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_loss_of_ones_own_trains_like_the_built_in_one(void **state)
{
    weft_tensor v = values(), k = weft_view(WEFT_I32, class, 1, (int64_t[]){N}),
                w = weft_view(WEFT_F32, weight, 1, (int64_t[]){N});

    (void)state;
    assert_true(fabs(trained("units=1", "asymmetric", &v, NULL) -
                     trained("units=1", "mse", &v, NULL)) < 1e-5);
    assert_true(fabs(trained("units=1", "asymmetric", &v, &w) - trained("units=1", "mse", &v, &w)) <
                1e-5);
    assert_true(fabs(trained("units=3", "numbers_loss", &k, NULL) -
                     trained("units=3", "scce from_logits=true", &k, NULL)) < 1e-5);
}

static void arguments_reach_the_function(void **state)
{
    weft_model *m = net("units=1");
    weft_trainer *t = compiled(m, "Asymmetric over=4", NULL);
    weft_tensor in = features(), v = values(), p = {.data = NULL};
    weft_logs logs;
    double want = 0;

    (void)state;
    ok(weft_predict_on_batch(t, &in, &p));
    for (int i = 0; i < N; i++) {
        double d = ((float *)p.data)[i] - y[i];

        want += d * d * (d > 0 ? 4 : 1) / N;
    }
    ok(weft_test_on_batch(t, &in, &v, NULL, &logs));
    assert_true(fabs(weft_logs_get(&logs, "loss") - want) < 1e-5);
    weft_trainer_free(t);
    weft_model_free(m);
}

static void metrics_of_ones_own_are_logged(void **state)
{
    weft_model *m = net("units=1");
    weft_trainer *t = compiled(m, "mse", "WithinTolerance tolerance=0.25, spread factor=2");
    weft_tensor in = features(), v = values(), p = {.data = NULL};
    weft_logs logs;
    double n_near = 0, s1 = 0, s2 = 0;

    (void)state;
    train(t, &v, NULL);
    ok(weft_test_on_batch(t, &in, &v, NULL, &logs));
    ok(weft_predict_on_batch(t, &in, &p));
    for (int i = 0; i < N; i++) {
        double d = ((float *)p.data)[i] - y[i];

        n_near += fabs(d) <= 0.25;
        s1 += d;
        s2 += d * d;
    }
    assert_true(fabs(weft_logs_get(&logs, "within_tolerance") - n_near / N) < 1e-6);
    assert_true(fabs(weft_logs_get(&logs, "spread") - 2 * sqrt(s2 / N - s1 / N * s1 / N)) < 1e-4);
    weft_trainer_free(t);
    weft_model_free(m);
}

static void a_saved_model_loads_with_its_loss_where_it_is_registered(void **state)
{
    weft_model *m = net("units=1"), *again = empty(true);
    weft_trainer *t = compiled(m, "asymmetric over=4", "within_tolerance"), *u = NULL;
    weft_tensor in = features(), v = values();
    weft_logs logs;
    double loss, share;

    (void)state;
    train(t, &v, NULL);
    ok(weft_trainer_save(t, path));
    ok(weft_test_on_batch(t, &in, &v, NULL, &logs));
    loss = weft_logs_get(&logs, "loss");
    share = weft_logs_get(&logs, "within_tolerance");
    weft_trainer_free(t);
    weft_model_free(m);

    ok(weft_model_load_into(again, path));
    ok(weft_compile(again, WEFT_OPTS(weft_compile_opts, .like = path), &u));
    ok(weft_trainer_load_weights(u, path, NULL, NULL));
    ok(weft_test_on_batch(u, &in, &v, NULL, &logs));
    assert_true(weft_logs_get(&logs, "loss") == loss);
    assert_true(weft_logs_get(&logs, "within_tolerance") == share);
    weft_trainer_free(u);
    weft_model_free(again);
}

static void a_saved_model_names_the_loss_that_is_missing(void **state)
{
    weft_model *stranger = NULL;
    weft_trainer *t = NULL;
    weft_tensor in = features(), p = {.data = NULL};

    (void)state; /* of the test before */
    ok(weft_model_load(ctx, path, &stranger));
    assert_int_equal(weft_compile(stranger, WEFT_OPTS(weft_compile_opts, .like = path), &t),
                     WEFT_ENOENT);
    says(path);
    says("no loss 'asymmetric'");
    says("weft_loss_register");
    assert_null(t);
    assert_int_equal(
        weft_compile(stranger, WEFT_OPTS(weft_compile_opts, .like = path, .loss = "mse"), &t),
        WEFT_ENOENT);
    says("no metric 'within_tolerance'");
    says("weft_metric_register");
    ok(weft_compile(stranger, NULL, &t)); /* predictions need neither */
    ok(weft_trainer_load_weights(t, path, NULL, NULL));
    ok(weft_predict_on_batch(t, &in, &p));
    weft_trainer_free(t);
    weft_model_free(stranger);
}

static void settings_of_a_saved_model_are_those_it_was_compiled_with(void **state)
{
    weft_model *m = empty(false), *again = NULL;
    weft_trainer *t = NULL, *u = NULL;
    weft_tensor in = features(), v[2] = {values(), values()};
    weft_logs logs;
    double loss;
    weft_sym s;

    (void)state;
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_output(m, weft_apply(m, "Dense", "units=1 name=a", s));
    weft_model_output(m, weft_apply(m, "Dense", "units=1 name=b", s));
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = "adam", .loss = "mse; mae",
                              .loss_weights = (double[]){0.1, 3}),
                    &t));
    ok(weft_test_on_batch(t, &in, v, NULL, &logs));
    loss = weft_logs_get(&logs, "loss");
    ok(weft_trainer_save(t, path));
    ok(weft_model_load(ctx, path, &again));
    ok(weft_compile(again, WEFT_OPTS(weft_compile_opts, .like = path), &u));
    ok(weft_trainer_load_weights(u, path, NULL, NULL));
    ok(weft_test_on_batch(u, &in, v, NULL, &logs));
    assert_true(weft_logs_get(&logs, "loss") == loss);
    weft_trainer_free(t);
    weft_trainer_free(u);
    weft_model_free(m);
    weft_model_free(again);
}

static void what_is_wrong_with_a_kind_is_said(void **state)
{
    weft_model *m = empty(true);
    weft_loss_kind l = asymmetric;
    weft_metric_kind k = within;

    (void)state;
    assert_int_equal(weft_loss_register(m, &l), WEFT_EEXIST);
    l.name = "asym_metric"; /* the same when it is looked up */
    assert_int_equal(weft_loss_register(m, &l), WEFT_EEXIST);
    l.name = "mse";
    assert_int_equal(weft_loss_register(m, &l), WEFT_EEXIST);
    l.name = "CrossEntropy";
    assert_int_equal(weft_loss_register(m, &l), WEFT_EEXIST);
    l.name = "two words";
    assert_int_equal(weft_loss_register(m, &l), WEFT_EINVAL);
    l.name = "new";
    l.labels = 3;
    assert_int_equal(weft_loss_register(m, &l), WEFT_EINVAL);
    l.labels = 0;
    l.attrs = "over:q";
    assert_int_not_equal(weft_loss_register(m, &l), WEFT_OK);
    l.attrs = NULL;
    l.build = NULL;
    assert_int_equal(weft_loss_register(m, &l), WEFT_EINVAL);
    l.build = build_nothing;
    l.size = 8;
    assert_int_equal(weft_loss_register(m, &l), WEFT_EINVAL);
    k.name = "accuracy";
    assert_int_equal(weft_metric_register(m, &k), WEFT_EEXIST);
    k.name = "new";
    k.n_sums = 2;
    assert_int_equal(weft_metric_register(m, &k), WEFT_EINVAL);
    says("result");
    k.n_sums = -1;
    assert_int_equal(weft_metric_register(m, &k), WEFT_EINVAL);
    weft_model_free(m);
}

static void a_function_that_fails_is_named(void **state)
{
    static const weft_loss_kind nothing = {
        .size = sizeof nothing, .name = "nothing", .build = build_nothing};
    weft_model *m = net("units=1");
    weft_tensor in = features(), v = values();
    weft_trainer *t = compiled(m, "asymmetric over=-1", NULL);

    (void)state;
    assert_int_equal(weft_train_on_batch(t, &in, &v, NULL, NULL), WEFT_EINVAL);
    says("loss Asymmetric: over=-1 must not be negative");
    weft_trainer_free(t);
    ok(weft_loss_register(m, &nothing));
    t = compiled(m, "nothing", NULL);
    assert_int_equal(weft_train_on_batch(t, &in, &v, NULL, NULL), WEFT_EINVAL);
    says("loss nothing: its build function returned no value");
    weft_trainer_free(t);
    assert_int_equal(weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "asymetric"), &t),
                     WEFT_ENOENT);
    says("did you mean 'Asymmetric'?");
    weft_model_free(m);
}

static void a_model_that_was_cut_keeps_them(void **state)
{
    weft_model *m = net("units=1"), *part = NULL;
    weft_trainer *t;

    (void)state;
    ok(weft_model_cut(m, NULL, &part));
    weft_model_free(m);
    t = compiled(part, "asymmetric", "within_tolerance");
    weft_trainer_free(t);
    weft_model_free(part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_of_ones_own_trains_like_the_built_in_one),
        cmocka_unit_test(arguments_reach_the_function),
        cmocka_unit_test(metrics_of_ones_own_are_logged),
        cmocka_unit_test(a_saved_model_loads_with_its_loss_where_it_is_registered),
        cmocka_unit_test(a_saved_model_names_the_loss_that_is_missing),
        cmocka_unit_test(settings_of_a_saved_model_are_those_it_was_compiled_with),
        cmocka_unit_test(what_is_wrong_with_a_kind_is_said),
        cmocka_unit_test(a_function_that_fails_is_named),
        cmocka_unit_test(a_model_that_was_cut_keeps_them),
    };

    return cmocka_run_group_tests_name("custom losses and metrics", tests, set_up, tear_down);
}
