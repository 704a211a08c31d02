/* The callback LearningRateScheduler, by a function and by a text, through interruptions; and
 * custom callbacks that stop training, at a batch and at an epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/ckpt_sample.h"
#include "train/loop/checkpoint.h"
#include "weft/weft.h"

#define N 40
#define D 4
#define EPOCHS 6

static weft_ctx *ctx;
static float x[N][D], y[N];

struct job {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static struct job open_job(const char *schedule)
{
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                           weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1})};
    struct job j;
    weft_sym s;

    assert_int_equal(weft_model_new(ctx, NULL, &j.m), 0);
    s = weft_input(j.m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_output(j.m, weft_apply(j.m, "Dense", "units=1", s));
    assert_int_equal(weft_compile(j.m,
                                  WEFT_OPTS(weft_compile_opts, .loss = "mse",
                                            .optimizer = "sgd learning_rate=0.1 momentum=0.5",
                                            .schedule = schedule),
                                  &j.t),
                     0);
    assert_int_equal(weft_data_new(ctx, &j.d), 0);
    j.s = weft_ds_tensors(j.d, 2, col, rows);
    return j;
}

static void close_job(struct job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
}

/* Writes down the rate that each epoch was trained with, and stops where it is told. */
struct watch {
    double rate[EPOCHS + 1];
    int64_t stop_step, stop_epoch; /* -1: never */
    int64_t stop_begin;            /* when this epoch begins; 0: never */
    int64_t save_step;             /* ask for a checkpoint; 0: never */
    bool interrupt;                /* to go on later, not for good */
    int64_t batches, epochs, ends;
};

static weft_status on_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct watch *w = arg;

    assert_true(isfinite(weft_logs_get(logs, "loss")));
    assert_true(batch >= 0);
    w->batches++;
    if (weft_trainer_step(t) == w->save_step)
        weft_trainer_checkpoint(t);
    if (weft_trainer_step(t) == w->stop_step && w->interrupt)
        weft_trainer_interrupt(t);
    else if (weft_trainer_step(t) == w->stop_step)
        weft_trainer_stop(t);
    return WEFT_OK;
}

static weft_status on_begin(void *arg, weft_trainer *t, int64_t epoch)
{
    const struct watch *w = arg;

    if (epoch > 0 && epoch == w->stop_begin && w->interrupt)
        weft_trainer_interrupt(t);
    else if (epoch > 0 && epoch == w->stop_begin)
        weft_trainer_stop(t);
    return WEFT_OK;
}

static weft_status on_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct watch *w = arg;

    assert_true(isfinite(weft_logs_get(logs, "loss")));
    w->rate[epoch] = weft_trainer_rate(t);
    w->epochs++;
    if (epoch == w->stop_epoch)
        weft_trainer_stop(t);
    return WEFT_OK;
}

static weft_status on_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    (void)t;
    (void)logs;
    ((struct watch *)arg)->ends++;
    return WEFT_OK;
}

static weft_callback watching(struct watch *w)
{
    return (weft_callback){.size = sizeof(weft_callback),
                           .arg = w,
                           .name = "watch",
                           .epoch_begin = on_begin,
                           .batch_end = on_batch,
                           .epoch_end = on_epoch,
                           .train_end = on_end};
}

/* Trains with a scheduler, interrupted after `stop` steps and started again. */
static void run(const char *dir, weft_callback *scheduler, int64_t stop, struct watch *w,
                float *kernel)
{
    *w = (struct watch){.stop_step = stop, .stop_epoch = -1, .interrupt = true};
    if (stop < -1) { /* -k: when epoch k begins */
        w->stop_begin = -stop;
        w->stop_step = -1;
    }
    for (bool done = false; !done; w->stop_step = -1, w->stop_begin = 0) {
        struct job j = open_job(NULL);
        weft_callback cb[2] = {*scheduler, watching(w)};
        weft_tensor v;
        weft_status st = weft_fit(j.t, j.d, j.s,
                                  WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 8, .seed = 4,
                                            .n_callbacks = 2, .callbacks = cb, .checkpoint = dir),
                                  NULL);

        if (st)
            fail_msg("%s", weft_error());
        done = !weft_trainer_stopped(j.t);
        assert_int_equal(weft_trainer_weight(j.t, "dense/kernel", &v), 0);
        memcpy(kernel, v.data, D * sizeof *kernel);
        close_job(&j);
    }
}

static double halve_twice(void *arg, int64_t epoch, double rate)
{
    ++*(int *)arg;
    return epoch == 2 || epoch == 4 ? rate / 2 : rate;
}

static void check_rates(weft_callback *cb, const double *expect)
{
    static const int64_t stops[] = {-1, 1, 5, 10, 12, 15, 29, -2, -4};
    float whole[D], again[D];
    struct watch w;

    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        char dir[64];

        temp_make(dir);
        run(dir, cb, stops[i], &w, i ? again : whole);
        temp_remove(dir);
        for (int e = 0; e < EPOCHS; e++)
            assert_float_equal(w.rate[e], expect[e], 1e-8);
        assert_int_equal(w.epochs, EPOCHS);
        if (i)
            assert_memory_equal(whole, again, sizeof whole);
    }
}

static void a_function_sets_the_rate_of_each_epoch(void **state)
{
    weft_callback cb;
    int asked = 0;

    (void)state;
    assert_int_equal(weft_callback_rate(ctx, halve_twice, &asked, &cb), 0);
    check_rates(&cb, (double[]){0.1, 0.1, 0.05, 0.05, 0.025, 0.025});
    assert_int_equal(asked, 9 * EPOCHS); /* an epoch that is gone on with is not begun again */
    weft_callback_free(&cb);
    assert_int_equal(weft_callback_rate(ctx, NULL, NULL, &cb), WEFT_EINVAL);
}

static void a_text_sets_the_rate_of_each_epoch(void **state)
{
    weft_callback cb;

    (void)state;
    assert_int_equal(
        weft_callback_new(ctx, "LearningRateScheduler epochs=[1,4] rates=[0.2,0.02,0.002]", &cb),
        0);
    check_rates(&cb, (double[]){0.2, 0.02, 0.02, 0.02, 0.002, 0.002});
    weft_callback_free(&cb);
    assert_int_equal(
        weft_callback_new(ctx, "LearningRateScheduler factor=0.5 every=2 min_lr=0.04", &cb), 0);
    check_rates(&cb, (double[]){0.1, 0.1, 0.05, 0.05, 0.04, 0.04});
    weft_callback_free(&cb);
}

static double below_zero(void *arg, int64_t epoch, double rate)
{
    (void)arg;
    return epoch ? -1 : rate;
}

static double beyond_floats(void *arg, int64_t epoch, double rate)
{
    (void)arg;
    return epoch ? 1e39 : rate;
}

static void wrong_rates_are_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"LearningRateScheduler", "rates"},
        {"LearningRateScheduler epochs=[3] rates=[0.1]", "need 2 rates"},
        {"LearningRateScheduler epochs=[3,3] rates=[1,1,1]", "must be increasing"},
        {"LearningRateScheduler epochs=[0] rates=[1,1]", "must be increasing"},
        {"LearningRateScheduler rates=[-1]", "rate -1"},
        {"LearningRateScheduler rates=[1] factor=0.5", "either rates or a factor"},
        {"LearningRateScheduler factor=0", "factor 0"},
        {"LearningRateScheduler factor=0.1 every=0", "every 0"},
        {"LearningRateSchedular factor=0.1", "did you mean 'LearningRateScheduler'"},
        {"LearningRateScheduler facto=0.1", "factor"},
    };
    struct job j = open_job("exponential_decay decay_steps=3 decay_rate=0.5"), plain;
    weft_callback cb;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(weft_callback_new(ctx, wrong[i][0], &cb) < 0);
        if (!strstr(weft_error(), wrong[i][1]))
            fail_msg("'%s': %s", wrong[i][0], weft_error());
    }
    assert_int_equal(weft_callback_new(ctx, "LearningRateScheduler factor=0.5", &cb), 0);
    assert_int_equal(
        weft_fit(j.t, j.d, j.s, WEFT_OPTS(weft_fit_opts, .n_callbacks = 1, .callbacks = &cb), NULL),
        WEFT_ESTATE);
    assert_non_null(strstr(weft_error(), "exponential_decay"));
    weft_callback_free(&cb);
    close_job(&j);
    for (int i = 0; i < 2; i++) {
        plain = open_job(NULL);
        assert_int_equal(weft_callback_rate(ctx, i ? beyond_floats : below_zero, NULL, &cb), 0);
        assert_int_equal(
            weft_fit(plain.t, plain.d, plain.s,
                     WEFT_OPTS(weft_fit_opts, .epochs = 3, .n_callbacks = 1, .callbacks = &cb),
                     NULL),
            WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "LearningRateScheduler"));
        weft_callback_free(&cb);
        close_job(&plain);
    }
}

/* ---- stopping -------------------------------------------------------------------------------- */

/* Without checkpoints the epoch under way ends with the batch; its logs are recorded, and training
 * ends in good order. */
static void a_callback_stops_at_a_batch_and_at_an_epoch(void **state)
{
    struct job j = open_job(NULL);
    struct watch w = {.stop_step = 7, .stop_epoch = -1};
    weft_callback cb = watching(&w);
    weft_history *h = NULL;

    (void)state;
    assert_int_equal(weft_fit(j.t, j.d, j.s,
                              WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 8,
                                        .n_callbacks = 1, .callbacks = &cb),
                              &h),
                     0);
    assert_int_equal(weft_trainer_step(j.t), 7);
    assert_int_equal(w.batches, 7);
    assert_int_equal(h->n_epochs, 2);
    assert_int_equal(w.ends, 1);
    assert_true(weft_trainer_stopped(j.t));
    weft_history_free(h);
    w = (struct watch){.stop_step = -1, .stop_epoch = 3}; /* the trainer continues where it is */
    assert_int_equal(weft_fit(j.t, j.d, j.s,
                              WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 8,
                                        .n_callbacks = 1, .callbacks = &cb),
                              &h),
                     0);
    assert_int_equal(h->n_epochs, 4);
    assert_int_equal(w.epochs, 4);
    assert_int_equal(w.batches, 20);
    weft_history_free(h);
    close_job(&j);
}

/* As in Keras: an epoch that was begun has a batch and a row of its own, and more epochs follow
 * it. */
static void a_callback_stops_when_an_epoch_begins(void **state)
{
    char dir[64];

    (void)state;
    temp_make(dir);
    for (int64_t i = 0; i < 2; i++) {
        struct job j = open_job(NULL);
        struct watch w = {.stop_step = -1, .stop_epoch = -1, .stop_begin = i ? 0 : 2};
        weft_callback cb = watching(&w);
        weft_history *h = NULL;

        if (weft_fit(j.t, j.d, j.s,
                     WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS + i, .batch = 8, .n_callbacks = 1,
                               .callbacks = &cb, .checkpoint = dir),
                     &h))
            fail_msg("%s", weft_error());
        assert_int_equal(h->n_epochs, i ? EPOCHS + 1 : 3);
        assert_int_equal(w.batches, i ? 5 * (EPOCHS + 1 - 3) : 11);
        weft_history_free(h);
        close_job(&j);
    }
    temp_remove(dir);
}

static void *stop(void *t)
{
    weft_trainer_stop(t);
    return NULL;
}

static weft_status stop_elsewhere(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    pthread_t thread;

    (void)logs;
    if (epoch != *(int64_t *)arg)
        return WEFT_OK;
    assert_int_equal(pthread_create(&thread, NULL, stop, t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return WEFT_OK;
}

/* Another thread interrupts, even while a callback runs: the next run goes on. */
static void another_thread_does_not_end_a_run(void **state)
{
    char dir[64];

    (void)state;
    temp_make(dir);
    for (int64_t epoch = 2; epoch >= -1; epoch -= 3) {
        struct job j = open_job(NULL);
        weft_callback cb = {
            .size = sizeof cb, .arg = &epoch, .name = "stop", .epoch_end = stop_elsewhere};
        weft_history *h = NULL;

        if (weft_fit(j.t, j.d, j.s,
                     WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 8, .n_callbacks = 1,
                               .callbacks = &cb, .checkpoint = dir),
                     &h))
            fail_msg("%s", weft_error());
        assert_int_equal(h->n_epochs, epoch < 0 ? EPOCHS : 3);
        weft_history_free(h);
        close_job(&j);
    }
    temp_remove(dir);
}

/* It is of the batch whose end the callback saw. */
static void a_callback_asks_for_a_checkpoint(void **state)
{
    struct job j = open_job(NULL);
    struct watch w = {.stop_step = -1, .stop_epoch = -1, .save_step = 3};
    weft_callback cb = watching(&w);
    weft_ckpt_list *l = NULL;
    char dir[64];

    (void)state;
    temp_make(dir);
    if (weft_fit(j.t, j.d, j.s,
                 WEFT_OPTS(weft_fit_opts, .batch = 8, .n_callbacks = 1, .callbacks = &cb,
                           .checkpoint = dir),
                 NULL))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_ckpt_list_new(ctx, dir, NULL, &l), 0);
    assert_int_equal(l->n, 2);
    assert_int_equal(l->entry[0].step, 3);
    assert_int_equal(l->entry[1].step, 5);
    weft_ckpt_list_free(ctx, l);
    temp_remove(dir);
    close_job(&j);
}

/* ---- checkpoints of something else ----------------------------------------------------------- */

/* Outputs with long names, of which the last has another end. */
static weft_status fit_named(const char *dir, char end)
{
    enum { OUTPUTS = 5 };
    char attrs[120], label[OUTPUTS][2];
    weft_column col[OUTPUTS + 1] = {{.name = "x"}};
    weft_tensor rows[OUTPUTS + 1] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D})};
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_sym s;
    weft_status st;

    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(m, "Dense", "units=1", s);
    for (int i = 0; i < OUTPUTS; i++) {
        snprintf(attrs, sizeof attrs, "activation=tanh name=out%d%050d%c", i, 0,
                 i == OUTPUTS - 1 ? end : 'a');
        weft_model_output(m, weft_apply(m, "Activation", attrs, s));
        label[i][0] = (char)('a' + i);
        label[i][1] = 0;
        col[i + 1] = (weft_column){.name = label[i], .role = WEFT_LABEL};
        rows[i + 1] = weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1});
    }
    if (weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "mse", .optimizer = "sgd"), &t))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_data_new(ctx, &d), 0);
    st = weft_fit(t, d, weft_ds_tensors(d, OUTPUTS + 1, col, rows),
                  WEFT_OPTS(weft_fit_opts, .checkpoint = dir), NULL);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    return st;
}

static void other_logs_and_other_versions_are_refused(void **state)
{
    static const char old[9] = {2};
    weft_history *h = NULL;
    int64_t batch;
    char dir[64];

    (void)state;
    temp_make(dir);
    if (fit_named(dir, 'a') || fit_named(dir, 'a'))
        fail_msg("%s", weft_error());
    assert_int_equal(fit_named(dir, 'b'), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "the checkpoint logs"));
    temp_remove(dir);
    assert_int_equal(wf_resume_parse(ctx, old, 8, &batch, &h), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "another version"));
    assert_int_equal(wf_resume_parse(ctx, old, 7, &batch, &h), WEFT_EPARSE);
}

static int set_up(void **state)
{
    (void)state;
    srand(9);
    for (int i = 0; i < N; i++) {
        y[i] = 0;
        for (int k = 0; k < D; k++) {
            x[i][k] = (float)rand() / (float)RAND_MAX - 0.5f;
            y[i] += x[i][k] * (float)k;
        }
    }
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_sets_the_rate_of_each_epoch),
        cmocka_unit_test(a_text_sets_the_rate_of_each_epoch),
        cmocka_unit_test(wrong_rates_are_refused),
        cmocka_unit_test(a_callback_stops_at_a_batch_and_at_an_epoch),
        cmocka_unit_test(a_callback_stops_when_an_epoch_begins),
        cmocka_unit_test(another_thread_does_not_end_a_run),
        cmocka_unit_test(a_callback_asks_for_a_checkpoint),
        cmocka_unit_test(other_logs_and_other_versions_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
