/* fit, evaluate, predict: what they compute, log, stop at; and runs that resume where they were
 * interrupted. */
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

#define N 200
#define D 4

static weft_ctx *ctx;
static float x[N][D];
static int32_t y[N];
static float w[N];
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
        float s = 0;

        for (int k = 0; k < D; k++) {
            x[i][k] = (float)rand() / (float)RAND_MAX * 2 - 1;
            s += x[i][k] * (float)(k + 1) * (k % 2 ? 1.0f : -1.0f);
        }
        y[i] = s > 0.5f ? 2 : s > -0.5f ? 1 : 0;
        w[i] = i % 3 ? 1.0f : 0.25f;
    }
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5, .log = note), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static weft_ds samples(weft_data *d, bool weights)
{
    weft_column col[3] = {
        {.name = "x"}, {.name = "y", .role = WEFT_LABEL}, {.name = "w", .role = WEFT_WEIGHT}};
    weft_tensor t[3] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N}),
                        weft_view(WEFT_F32, w, 1, (int64_t[]){N})};

    return weft_ds_tensors(d, weights ? 3 : 2, col, t);
}

static weft_model *small_model(void)
{
    weft_model *m;
    weft_sym s;

    assert_int_equal(weft_model_new(ctx, NULL, &m), WEFT_OK);
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(m, "Dense", "units=16 activation=tanh", s);
    s = weft_apply(m, "Dense", "units=3", s);
    weft_model_output(m, s);
    return m;
}

struct job {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static struct job open_job(const weft_compile_opts *o)
{
    struct job j = {.m = small_model()};
    weft_status st = weft_compile(j.m, o, &j.t);

    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
    assert_int_equal(weft_data_new(ctx, &j.d), WEFT_OK);
    j.s = samples(j.d, false);
    return j;
}

static void close_job(struct job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
}

#define COMPILE                                                          \
    WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.02", \
              .loss = "sparse_categorical_crossentropy from_logits=true", .metrics = "accuracy")

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

/* ---- what fit does --------------------------------------------------------------------------- */

static void fit_learns_and_logs_every_epoch(void **state)
{
    struct job j = open_job(COMPILE);
    weft_history *h = NULL;
    weft_logs logs;

    (void)state;
    ok(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .epochs = 20, .batch = 16, .seed = 3), &h));
    assert_int_equal(h->n_epochs, 20);
    assert_int_equal(h->n_names, 2);
    assert_string_equal(h->name[0], "loss");
    assert_string_equal(h->name[1], "accuracy");
    assert_true(h->value[19 * 2] < 0.5 * h->value[0]);
    assert_true(h->value[19 * 2 + 1] > 0.85);
    assert_int_equal(weft_trainer_step(j.t), 20 * 13); /* 200 / 16, the last batch short */
    ok(weft_evaluate(j.t, j.d, j.s, NULL, &logs));
    assert_true(weft_logs_get(&logs, "accuracy") > 0.85);
    weft_history_free(h);
    close_job(&j);
}

static void validation_split_takes_the_last_samples(void **state)
{
    struct job j = open_job(COMPILE);
    weft_history *h = NULL;
    weft_logs logs;

    (void)state;
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 32, .validation_split = 0.25), &h));
    assert_int_equal(h->n_names, 4);
    assert_string_equal(h->name[2], "val_loss");
    assert_int_equal(weft_trainer_step(j.t), 2 * 5); /* 150 samples */
    ok(weft_evaluate(j.t, j.d, weft_ds_skip(j.d, j.s, 150), NULL, &logs));
    assert_float_equal(weft_logs_get(&logs, "loss"), h->value[1 * 4 + 2], 1e-6);
    weft_history_free(h);
    close_job(&j);
}

/* What is held out in one epoch would be trained on in the next. */
static void validation_split_is_refused_where_the_order_changes(void **state)
{
    struct job j = open_job(COMPILE);
    const weft_fit_opts *split = WEFT_OPTS(weft_fit_opts, .batch = 32, .validation_split = 0.25);
    weft_ds all = weft_ds_shuffle_all(j.d, j.s, NULL);
    weft_ds changing[] = {all, weft_ds_take(j.d, all, 100),
                          weft_ds_shuffle(j.d, j.s, 50, WEFT_OPTS(weft_shuffle_opts, .seed = 1)),
                          weft_ds_sample(j.d, j.s, 100, NULL)};
    weft_ds fixed[] = {
        weft_ds_shuffle_all(j.d, j.s, WEFT_OPTS(weft_shuffle_opts, .same_each_epoch = true)),
        weft_ds_cache(j.d, all, NULL)};

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weft_fit(j.t, j.d, changing[i], split, NULL), WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "reordered in each epoch"));
    }
    for (int i = 0; i < 2; i++)
        ok(weft_fit(j.t, j.d, fixed[i], split, NULL));
    close_job(&j);
}

/* The epoch's loss is the mean over samples: a short last batch weighs less. */
static void epoch_average_weighs_batches_by_samples(void **state)
{
    struct job j = open_job(WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0",
                                      .loss = "sparse_categorical_crossentropy from_logits=true"));
    weft_history *h = NULL;
    weft_logs logs;

    (void)state;
    ok(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .batch = 64), &h));
    ok(weft_evaluate(j.t, j.d, j.s, WEFT_OPTS(weft_eval_opts, .batch = N), &logs));
    assert_float_equal(h->value[0], weft_logs_get(&logs, "loss"), 1e-5);
    weft_history_free(h);
    close_job(&j);
}

static void sample_weights_scale_the_loss(void **state)
{
    struct job j = open_job(COMPILE);
    weft_logs logs;
    double sum = 0, plain[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        weft_tensor xi = weft_view(WEFT_F32, x[i], 2, (int64_t[]){1, D});
        weft_tensor yi = weft_view(WEFT_I32, &y[i], 1, (int64_t[]){1});

        ok(weft_test_on_batch(j.t, &xi, &yi, NULL, &logs));
        plain[i] = weft_logs_get(&logs, "loss");
        sum += plain[i] * (double)w[i];
    }
    ok(weft_evaluate(j.t, j.d, samples(j.d, true), WEFT_OPTS(weft_eval_opts, .batch = N), &logs));
    assert_float_equal(weft_logs_get(&logs, "loss"), sum / N, 1e-5);
    close_job(&j);
}

/* As in Keras: they change what is trained, not what is measured. */
static void class_weights_count_in_training_alone(void **state)
{
    const double weights[3] = {1, 2, 5};
    struct job j = open_job(WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0",
                                      .loss = "sparse_categorical_crossentropy from_logits=true",
                                      .weighted_metrics = "scce from_logits=true",
                                      .n_class_weights = 3, .class_weights = weights));
    double plain = 0, weighted = 0, sum = 0;
    weft_logs logs;

    (void)state;
    for (int i = 0; i < N; i++) {
        weft_tensor xi = weft_view(WEFT_F32, x[i], 2, (int64_t[]){1, D});
        weft_tensor yi = weft_view(WEFT_I32, &y[i], 1, (int64_t[]){1});

        ok(weft_test_on_batch(j.t, &xi, &yi, NULL, &logs));
        plain += weft_logs_get(&logs, "loss");
        ok(weft_train_on_batch(j.t, &xi, &yi, NULL, &logs));
        weighted += weft_logs_get(&logs, "loss");
        assert_float_equal(weft_logs_get(&logs, "loss"),
                           weights[y[i]] * weft_logs_get(&logs, "scce"), 1e-4);
        sum += weights[y[i]];
    }
    assert_true(sum > N); /* so that they could be told apart */
    assert_true(weighted > 1.2 * plain);
    ok(weft_evaluate(j.t, j.d, samples(j.d, false), WEFT_OPTS(weft_eval_opts, .batch = N), &logs));
    assert_float_equal(weft_logs_get(&logs, "loss"), plain / N, 1e-5);
    assert_float_equal(weft_logs_get(&logs, "scce"), plain / N, 1e-5);
    close_job(&j);
}

/* Their values are zero and they are not counted: the mean is over the others. */
static void ignored_labels_do_not_count(void **state)
{
    struct job j = open_job(
        WEFT_OPTS(weft_compile_opts, .optimizer = "sgd",
                  .loss = "sparse_categorical_crossentropy from_logits=true ignore_class=1"));
    weft_logs logs;
    double sum = 0;
    int n = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        weft_tensor xi = weft_view(WEFT_F32, x[i], 2, (int64_t[]){1, D});
        weft_tensor yi = weft_view(WEFT_I32, &y[i], 1, (int64_t[]){1});

        ok(weft_test_on_batch(j.t, &xi, &yi, NULL, &logs));
        sum += weft_logs_get(&logs, "loss");
        n += y[i] != 1;
    }
    assert_true(n > 0 && n < N);
    ok(weft_evaluate(j.t, j.d, j.s, WEFT_OPTS(weft_eval_opts, .batch = N), &logs));
    assert_float_equal(weft_logs_get(&logs, "loss"), sum / n, 1e-5);
    close_job(&j);
}

static weft_status collect(void *arg, const weft_batch *b, int n, const weft_tensor *out)
{
    float **to = arg;

    assert_int_equal(n, 1);
    assert_int_equal(out[0].dim[0], b->n);
    memcpy(*to, out[0].data, (size_t)weft_tensor_bytes(&out[0]));
    *to += weft_tensor_count(&out[0]);
    return WEFT_OK;
}

static void predict_gives_every_sample_in_order(void **state)
{
    struct job j = open_job(COMPILE);
    static float all[N][3], one[3];
    float *to = all[0];
    weft_tensor xi = weft_view(WEFT_F32, x[137], 2, (int64_t[]){1, D});
    weft_tensor out = weft_view(WEFT_F32, one, 2, (int64_t[]){1, 3});

    (void)state;
    ok(weft_predict(j.t, j.d, j.s, WEFT_OPTS(weft_eval_opts, .batch = 48), collect, &to));
    assert_ptr_equal(to, all[0] + N * 3);
    ok(weft_predict_on_batch(j.t, &xi, &out));
    for (int k = 0; k < 3; k++)
        assert_float_equal(one[k], all[137][k], 1e-6);
    close_job(&j);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void mistakes_are_named(void **state)
{
    weft_model *m = small_model();
    weft_trainer *t;
    weft_data *d;
    weft_ds s;

    (void)state;
    assert_int_not_equal(weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "adma"), &t), 0);
    assert_non_null(strstr(weft_error(), "adam"));
    assert_int_not_equal(
        weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "mean_squared_eror"), &t), 0);
    assert_non_null(strstr(weft_error(), "MeanSquaredError"));
    ok(weft_compile(m, COMPILE, &t));
    ok(weft_data_new(ctx, &d));
    s = weft_ds_role(d, samples(d, false), "y", WEFT_FEATURE);
    assert_int_not_equal(weft_fit(t, d, s, NULL, NULL), 0);
    assert_non_null(strstr(weft_error(), "label"));
    s = weft_ds_repeat(d, samples(d, false), 0);
    assert_int_equal(weft_fit(t, d, s, NULL, NULL), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "steps_per_epoch"));
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static void early_stopping_stops_and_restores_the_best(void **state)
{
    struct job j = open_job(WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=5",
                                      .loss = "sparse_categorical_crossentropy from_logits=true"));
    weft_callback cb;
    weft_history *h = NULL;
    weft_logs logs;
    double best = INFINITY;

    (void)state;
    ok(weft_callback_new(ctx, "EarlyStopping monitor=val_loss patience=2 restore_best_weights=true",
                         &cb));
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 60, .batch = 16, .validation = j.s,
                          .n_callbacks = 1, .callbacks = &cb),
                &h));
    assert_true(h->n_epochs < 60);
    for (int64_t e = 0; e < h->n_epochs; e++)
        best = fmin(best, h->value[e * h->n_names + 1]);
    ok(weft_evaluate(j.t, j.d, j.s, NULL, &logs));
    assert_float_equal(weft_logs_get(&logs, "loss"), best, 1e-5);
    weft_callback_free(&cb);
    weft_history_free(h);
    close_job(&j);
}

static void csv_logger_writes_a_row_an_epoch(void **state)
{
    struct job j = open_job(COMPILE);
    char dir[] = "csv-XXXXXX", spec[128], line[256];
    weft_callback cb;
    FILE *f;
    int n = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(spec, sizeof spec, "CSVLogger filename=%s/log.csv", dir);
    ok(weft_callback_new(ctx, spec, &cb));
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 3, .n_callbacks = 1, .callbacks = &cb), NULL));
    weft_callback_free(&cb);
    snprintf(line, sizeof line, "%s/log.csv", dir);
    f = fopen(line, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "epoch,accuracy,loss,val_accuracy,val_loss\n");
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(atoi(line), n++);
        assert_non_null(strstr(line, ",NA,NA\n"));
    }
    assert_int_equal(n, 3);
    fclose(f);
    close_job(&j);
}

static weft_status cut_rows(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)t;
    (void)logs;
    if (epoch == 2)
        assert_int_equal(truncate(arg, 45), 0); /* the names, and a part of a row */
    return WEFT_OK;
}

/* Another worker that believed that it decides has removed rows of a file that is open here. */
static void csv_logger_writes_rows_again_that_were_cut_off(void **state)
{
    struct job j = open_job(COMPILE);
    char dir[] = "csv-XXXXXX", path[64], spec[128], line[256];
    weft_callback cb[2] = {{.size = sizeof *cb, .name = "cut", .arg = path, .epoch_end = cut_rows}};
    FILE *f;
    int n = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log.csv", dir);
    snprintf(spec, sizeof spec, "CSVLogger filename=%s", path);
    ok(weft_callback_new(ctx, spec, &cb[1]));
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 4, .n_callbacks = 2, .callbacks = cb), NULL));
    weft_callback_free(&cb[1]);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "epoch,accuracy,loss,val_accuracy,val_loss\n");
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(atoi(line), n++);
        assert_int_equal(strlen(line), strcspn(line, "\n") + 1);
    }
    assert_int_equal(n, 4);
    fclose(f);
    close_job(&j);
}

/* ---- interrupted runs ------------------------------------------------------------------------ */

struct stopper {
    int64_t at, seen; /* batches */
};

static weft_status stop_at(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct stopper *s = arg;

    (void)batch;
    (void)logs;
    if (++s->seen == s->at)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

#define EPOCHS 4

/* Trains, being stopped at batch `stop` (0: never), and started again until it is done; history and
 * weights. */
static void run(const char *dir, int accumulate, int64_t stop, double *history, float *weights)
{
    bool done = false;

    while (!done) {
        struct job j =
            open_job(WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.02",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .metrics = "accuracy", .accumulate = accumulate));
        struct stopper s = {stop, 0};
        weft_callback cb = {.size = sizeof cb, .arg = &s, .name = "stopper", .batch_end = stop_at};
        weft_history *h = NULL;
        weft_tensor k;

        ok(weft_fit(j.t, j.d, j.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 16, .seed = 11,
                              .validation = j.s, .n_callbacks = 1, .callbacks = &cb,
                              .checkpoint = dir, .checkpoint_steps = 7),
                    &h));
        done = !weft_trainer_stopped(j.t);
        if (done) {
            assert_int_equal(h->n_epochs, EPOCHS);
            memcpy(history, h->value, sizeof(double) * EPOCHS * 4);
            ok(weft_trainer_weight(j.t, "dense/kernel", &k));
            memcpy(weights, k.data, (size_t)weft_tensor_bytes(&k));
        }
        stop = 0;
        weft_history_free(h);
        close_job(&j);
    }
}

static void check_interruptions(int accumulate)
{
    static const int64_t stops[] = {1, 7, 13, 20, 26, 51, 52};
    double expect[EPOCHS * 4], got[EPOCHS * 4];
    float weights[D * 16], again[D * 16];
    char dir[32];

    strcpy(dir, "run-XXXXXX");
    assert_non_null(mkdtemp(dir));
    run(dir, accumulate, 0, expect, weights);
    for (int i = 0; i < 7; i++) {
        strcpy(dir, "run-XXXXXX");
        assert_non_null(mkdtemp(dir));
        log_text[0] = 0;
        run(dir, accumulate, stops[i], got, again);
        assert_true(strstr(log_text, "resuming from") || strstr(log_text, "this run is complete"));
        assert_memory_equal(weights, again, sizeof weights);
        assert_memory_equal(expect, got, sizeof got);
    }
}

/* Ctrl-C may come before fit has begun: it is for this fit, and for no later one. */
static void an_interruption_before_fit_is_not_lost(void **state)
{
    struct job j = open_job(WEFT_OPTS(weft_compile_opts, .optimizer = "sgd",
                                      .loss = "sparse_categorical_crossentropy from_logits=true"));

    (void)state;
    weft_trainer_interrupt(j.t);
    ok(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 16), NULL));
    assert_true(weft_trainer_stopped(j.t));
    assert_int_equal(weft_trainer_step(j.t), 0);
    ok(weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 16), NULL));
    assert_false(weft_trainer_stopped(j.t));
    assert_true(weft_trainer_step(j.t) > 0);
    close_job(&j);
}

static void an_interrupted_run_ends_with_the_same_bits(void **state)
{
    (void)state;
    check_interruptions(1);
}

/* A step of several batches is finished before anything is saved. */
static void so_does_one_that_adds_batches_up(void **state)
{
    (void)state;
    check_interruptions(3);
}

static weft_status stop_early(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)arg;
    (void)logs;
    if (epoch == 1)
        weft_trainer_stop(t);
    return WEFT_OK;
}

/* What a callback ends is over: the same call finds nothing to do, one with more epochs goes on. */
static void a_run_that_a_callback_ended_stays_ended(void **state)
{
    static const int64_t epochs[] = {4, 4, 5}, rows[] = {2, 2, 5}, steps[] = {26, 26, 65};
    weft_callback cb = {.size = sizeof cb, .name = "mine", .epoch_end = stop_early};
    char dir[] = "end-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        struct job j = open_job(COMPILE);
        weft_history *h = NULL;
        weft_times all;

        ok(weft_fit(j.t, j.d, j.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = epochs[i], .batch = 16, .n_callbacks = 1,
                              .callbacks = &cb, .checkpoint = dir, .checkpoint_steps = 1000),
                    &h));
        assert_int_equal(h->n_epochs, rows[i]);
        assert_int_equal(weft_trainer_step(j.t), steps[i]);
        weft_trainer_times(j.t, NULL, &all);
        assert_int_equal(all.steps, i == 0 ? 26 : i == 1 ? 0 : 39);
        assert_int_equal(all.checkpoints, i == 1 ? 0 : 1);
        weft_history_free(h);
        close_job(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_learns_and_logs_every_epoch),
        cmocka_unit_test(validation_split_takes_the_last_samples),
        cmocka_unit_test(validation_split_is_refused_where_the_order_changes),
        cmocka_unit_test(epoch_average_weighs_batches_by_samples),
        cmocka_unit_test(sample_weights_scale_the_loss),
        cmocka_unit_test(class_weights_count_in_training_alone),
        cmocka_unit_test(ignored_labels_do_not_count),
        cmocka_unit_test(predict_gives_every_sample_in_order),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(early_stopping_stops_and_restores_the_best),
        cmocka_unit_test(csv_logger_writes_a_row_an_epoch),
        cmocka_unit_test(csv_logger_writes_rows_again_that_were_cut_off),
        cmocka_unit_test(an_interruption_before_fit_is_not_lost),
        cmocka_unit_test(an_interrupted_run_ends_with_the_same_bits),
        cmocka_unit_test(so_does_one_that_adds_batches_up),
        cmocka_unit_test(a_run_that_a_callback_ended_stays_ended),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
