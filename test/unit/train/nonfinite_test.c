/* A loss that is NaN or infinite: the column or op that made it is named, and evaluating nothing is
 * no result. */
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

#include "weft/weft.h"

#define N 96
#define D 4

static weft_ctx *ctx;
static float x[N][D], y[N], w[N];
static const char *precision; /* of the trainers that are made; NULL: f32 */
static char log_text[1 << 16];

static void note(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    strncat(log_text, line, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

static int set_up(void **state)
{
    (void)state;
    srand(7);
    for (int i = 0; i < N; i++) {
        y[i] = 0;
        w[i] = 1;
        for (int k = 0; k < D; k++) {
            x[i][k] = (float)rand() / (float)RAND_MAX * 2 - 1;
            y[i] += x[i][k] * (float)(k + 1);
        }
    }
    log_text[0] = 0;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5, .log = note), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

struct job {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static struct job open_job(const char *optimizer, int shards, int accumulate)
{
    struct job j = {0};
    weft_column col[3] = {
        {.name = "x"}, {.name = "truth", .role = WEFT_LABEL}, {.name = "w", .role = WEFT_WEIGHT}};
    weft_tensor t[3] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1}),
                        weft_view(WEFT_F32, w, 1, (int64_t[]){N})};
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &j.m));
    s = weft_input(j.m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(j.m, "Dense", "units=8 name=first", s);
    s = weft_apply(j.m, "Dense", "units=1 name=second", s);
    weft_model_output(j.m, s);
    ok(weft_compile(j.m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = optimizer, .loss = "mse",
                              .shards = shards, .accumulate = accumulate, .precision = precision),
                    &j.t));
    ok(weft_data_new(ctx, &j.d));
    j.s = weft_ds_tensors(j.d, 3, col, t);
    return j;
}

static void close_job(struct job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
}

/* What is said of a fit of these data. */
static void expect(const char *optimizer, int shards, int accumulate, bool shuffle,
                   const char *since, const char *why)
{
    struct job j = open_job(optimizer, shards, accumulate);
    const char *said;

    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = 8, .no_shuffle = !shuffle), NULL));
    said = weft_trainer_nonfinite(j.t);
    assert_non_null(said);
    if (!strstr(said, since) || !strstr(said, why))
        print_error("wanted '%s' and '%s', got: %s\n", since, why, said);
    assert_non_null(strstr(said, since));
    assert_non_null(strstr(said, why));
    assert_non_null(strstr(log_text, said));
    close_job(&j);
}

static void a_column_with_a_nan_is_named(void **state)
{
    (void)state;
    x[21][2] = NAN;
    expect("sgd", 1, 1, false,
           "since epoch 1, batch 2:", "column 'x' of the data is nan in sample 21");
    expect("sgd", 2, 1, false,
           "since epoch 1, batch 2:", "column 'x' of the data is nan in sample 21");
    x[21][2] = 0;
    y[13] = INFINITY;
    expect("sgd", 1, 1, false,
           "since epoch 1, batch 1:", "column 'truth' of the data is inf in sample 13");
    y[13] = 0;
    w[5] = -INFINITY;
    expect("sgd", 1, 1, false,
           "since epoch 1, batch 0:", "column 'w' of the data is -inf in sample 5");
}

/* The rate makes each update a little larger than the previous one, until a product overflows. */
static void the_op_that_overflows_is_named(void **state)
{
    (void)state;
    expect("sgd learning_rate=20", 1, 1, false, "the loss is inf since epoch 1, batch",
           "produced inf");
    expect("sgd learning_rate=20", 2, 1, false, "since epoch 1, batch", "produced inf");
    expect("sgd learning_rate=20", 1, 2, false, "since epoch", "produced inf");
    expect("sgd learning_rate=20", 1, 1, true, "since epoch 1, batch", "produced inf");
    expect("sgd learning_rate=5", 1, 1, true, "since epoch 1, batch", "produced inf");
    expect("sgd learning_rate=2", 1, 1, true, "since epoch", "produced inf");
    expect("adam learning_rate=1e37", 1, 1, false, "since epoch 1, batch 1: '", "): produced inf");
}

/* Half precision overflows in a layer, where the loss is scaled, too: its gradients do not
 * count. */
static void the_op_that_overflows_in_f16_is_named(void **state)
{
    (void)state;
    precision = "f16";
    expect("sgd learning_rate=100", 1, 1, false, "the loss is nan since epoch", "produced ");
    expect("sgd learning_rate=100", 2, 1, true, "since epoch", "produced ");
    precision = "bf16";
    expect("sgd learning_rate=100", 1, 1, false, "since epoch", "produced ");
    precision = NULL;
}

/* An update that overflows shows in the loss of the next batch. */
static void what_was_made_in_the_batch_before_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < D; k++)
            x[i][k] *= 1e6f;
    expect("sgd learning_rate=1e38", 1, 1, false, "since epoch 1, batch 1: in the previous batch, ",
           "produced ");
}

struct stopper {
    int64_t left;
};

static weft_status stop_at(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct stopper *s = arg;

    (void)batch;
    (void)logs;
    if (--s->left == 0)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

/* A run that was resumed in the middle of an epoch begins there when it looks for the op. */
static void the_op_is_found_in_a_resumed_epoch(void **state)
{
    char dir[] = "nonfinite-XXXXXX";
    struct stopper s = {3};
    weft_callback cb = {.size = sizeof cb, .arg = &s, .name = "stopper", .batch_end = stop_at};

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        struct job j = open_job("sgd learning_rate=20", 1, 1);

        ok(weft_fit(j.t, j.d, j.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 8, .checkpoint = dir,
                              .n_callbacks = 1, .callbacks = &cb),
                    NULL));
        assert_int_equal(weft_trainer_nonfinite(j.t) != NULL, i);
        if (i)
            assert_non_null(strstr(weft_trainer_nonfinite(j.t), "produced inf"));
        close_job(&j);
    }
}

static void terminate_on_nan_ends_after_that_batch(void **state)
{
    struct job j = open_job("sgd learning_rate=20", 1, 1);
    weft_callback cb;
    weft_history *h = NULL;

    (void)state;
    ok(weft_callback_new(ctx, "TerminateOnNaN", &cb));
    ok(weft_fit(
        j.t, j.d, j.s,
        WEFT_OPTS(weft_fit_opts, .epochs = 9, .batch = 8, .n_callbacks = 1, .callbacks = &cb), &h));
    assert_int_equal(h->n_epochs, 1);
    assert_true(weft_trainer_step(j.t) < N / 8);
    assert_non_null(weft_trainer_nonfinite(j.t));
    weft_history_free(h);
    weft_callback_free(&cb);
    close_job(&j);
}

static void a_finite_loss_says_nothing(void **state)
{
    struct job j = open_job("sgd learning_rate=20", 1, 1);

    (void)state;
    ok(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 8), NULL));
    assert_non_null(weft_trainer_nonfinite(j.t));
    close_job(&j);
    j = open_job("sgd", 1, 1);
    ok(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 8), NULL));
    assert_null(weft_trainer_nonfinite(j.t));
    close_job(&j);
}

static void evaluating_no_data_is_an_error(void **state)
{
    struct job j = open_job("sgd", 1, 1);
    weft_ds none = weft_ds_take(j.d, j.s, 0);
    weft_logs logs = {0};

    (void)state;
    assert_int_equal(weft_evaluate(j.t, j.d, none, NULL, &logs), WEFT_EDATA);
    assert_non_null(strstr(weft_error(), "evaluate: the dataset returned no samples"));
    assert_int_equal(logs.n, 0);
    assert_int_equal(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .validation = none), NULL),
                     WEFT_EDATA);
    assert_non_null(strstr(weft_error(), "validation: the dataset has no batches"));
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_column_with_a_nan_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_op_that_overflows_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_op_that_overflows_in_f16_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_made_in_the_batch_before_is_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_op_is_found_in_a_resumed_epoch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(terminate_on_nan_ends_after_that_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_finite_loss_says_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(evaluating_no_data_is_an_error, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
