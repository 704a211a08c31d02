/* What outlives one fit: callbacks that serve a second one, runs that are extended, and checkpoints
 * that do not fit. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "weft/weft.h"

#define N 96
#define D 4

static weft_ctx *ctx;
static float x[N][D];
static int32_t y[N];
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
    }
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .log = note), &ctx);
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

/* n: samples. */
static struct job open_job(int64_t n, const char *optimizer)
{
    struct job j = {0};
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){n, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){n})};
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &j.m));
    s = weft_input(j.m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(j.m, "Dense", "units=16 activation=tanh", s);
    s = weft_apply(j.m, "Dense", "units=3", s);
    weft_model_output(j.m, s);
    ok(weft_compile(j.m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = optimizer,
                              .loss = "sparse_categorical_crossentropy from_logits=true"),
                    &j.t));
    ok(weft_data_new(ctx, &j.d));
    j.s = weft_ds_tensors(j.d, 2, col, t);
    return j;
}

static void close_job(struct job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
}

static char *read_text(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    assert_non_null(f);
    fclose(f);
    text[n] = 0;
    assert_int_equal(strlen(text), n); /* no NUL among it */
    return text;
}

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* ---- a second fit ---------------------------------------------------------------------------- */

/* The loss of a trained model hardly falls: a callback that remembered the first fit would end the
 * second at once. */
static void early_stopping_forgets_the_fit_before(void **state)
{
    struct job j = open_job(N, "sgd learning_rate=0.5");
    weft_callback cb;
    weft_history *h = NULL, *again = NULL;
    weft_tensor k;

    (void)state;
    ok(weft_callback_new(
        ctx, "EarlyStopping monitor=loss patience=2 min_delta=0.05 restore_best_weights=true",
        &cb));
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 40, .n_callbacks = 1, .callbacks = &cb), &h));
    assert_true(h->n_epochs < 40);
    ok(weft_trainer_weight(j.t, "dense/kernel", &k)); /* another model begins: its loss is worse */
    memset(k.data, 0, (size_t)weft_tensor_bytes(&k));
    ok(weft_trainer_weight(j.t, "dense_1/bias", &k));
    ((float *)k.data)[0] = 9;
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 2, .n_callbacks = 1, .callbacks = &cb), &again));
    assert_int_equal(again->n_epochs, 2);
    assert_true(again->value[1] > h->value[h->n_epochs - 1]);
    ok(weft_trainer_weight(j.t, "dense_1/bias", &k)); /* and its weights are its own */
    assert_true(((float *)k.data)[0] > 1);
    weft_history_free(h);
    weft_history_free(again);
    weft_callback_free(&cb);
    close_job(&j);
}

static void a_plateau_is_measured_anew_in_a_second_fit(void **state)
{
    struct job j = open_job(N, "sgd learning_rate=0.01");
    weft_callback cb;

    (void)state;
    ok(weft_callback_new(ctx, "ReduceLROnPlateau monitor=loss patience=2 min_delta=9 factor=0.5",
                         &cb));
    /* the first epoch is the best, the second waits; the third would lower the rate */
    for (int i = 0; i < 3; i++) {
        ok(weft_fit(j.t, j.d, j.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = 2, .n_callbacks = 1, .callbacks = &cb),
                    NULL));
        assert_float_equal(weft_trainer_rate(j.t), 0.01, 1e-8);
    }
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 3, .n_callbacks = 1, .callbacks = &cb), NULL));
    assert_float_equal(weft_trainer_rate(j.t), 0.005, 1e-8);
    assert_float_equal(weft_trainer_used_rate(j.t), 0.01, 1e-8);
    weft_callback_free(&cb);
    close_job(&j);
}

static void csv_logger_begins_a_table_with_each_fit(void **state)
{
    struct job j = open_job(N, "sgd");
    char dir[] = "lives-XXXXXX", spec[128], path[64];
    weft_callback cb;
    const char *text;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log.csv", dir);
    snprintf(spec, sizeof spec, "CSVLogger filename=%s", path);
    ok(weft_callback_new(ctx, spec, &cb));
    for (int i = 3; i > 0; i--) {
        ok(weft_fit(j.t, j.d, j.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = i, .n_callbacks = 1, .callbacks = &cb),
                    NULL));
        text = read_text(path);
        assert_ptr_equal(strstr(text, "epoch,loss,val_loss\n0,"), text);
        assert_int_equal(count_lines(text), i + 1);
    }
    weft_callback_free(&cb);
    snprintf(spec, sizeof spec, "CSVLogger filename=%s append=true", path);
    ok(weft_callback_new(ctx, spec, &cb));
    for (int i = 0; i < 2; i++)
        ok(weft_fit(j.t, j.d, j.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = 2, .n_callbacks = 1, .callbacks = &cb),
                    NULL));
    text = read_text(path);
    assert_int_equal(count_lines(text), 6); /* one head, one row, and two of each */
    assert_null(strstr(text + 1, "epoch"));
    weft_callback_free(&cb);
    close_job(&j);
}

/* ---- a run that is extended ------------------------------------------------------------------ */

static void train_to(const char *dir, int epochs, bool append)
{
    struct job j = open_job(N, "adam learning_rate=0.01");
    char spec[128], ckpt[64];
    weft_callback cb;

    snprintf(spec, sizeof spec, "CSVLogger filename=%s/log.csv append=%s", dir,
             append ? "true" : "false");
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    ok(weft_callback_new(ctx, spec, &cb));
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = epochs, .n_callbacks = 1, .callbacks = &cb,
                          .checkpoint = ckpt),
                NULL));
    weft_callback_free(&cb);
    close_job(&j);
}

/* What an uninterrupted run of this many epochs writes. */
static void expect_table(int epochs, char *out, size_t size)
{
    char dir[] = "lives-XXXXXX", path[64];

    assert_non_null(mkdtemp(dir));
    train_to(dir, epochs, false);
    snprintf(path, sizeof path, "%s/log.csv", dir);
    snprintf(out, size, "%s", read_text(path));
}

static void a_table_survives_more_epochs_loss_and_damage(void **state)
{
    static char whole[5][1 << 12];
    char dir[32], path[64];

    (void)state;
    for (int epochs = 3; epochs < 5; epochs++)
        expect_table(epochs, whole[epochs], sizeof whole[epochs]);
    for (int harm = 0; harm < 4; harm++) { /* none, lost, cut, a row that no checkpoint knows */
        FILE *f;

        strcpy(dir, "lives-XXXXXX");
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof path, "%s/log.csv", dir);
        train_to(dir, 3, false);
        assert_string_equal(read_text(path), whole[3]);
        log_text[0] = 0;
        if (harm == 1)
            assert_int_equal(unlink(path), 0);
        if (harm == 2)
            assert_int_equal(truncate(path, 30), 0);
        if (harm == 3) {
            f = fopen(path, "a");
            fputs("3,1,NA\n", f);
            fclose(f);
        }
        train_to(dir, 4, false);
        assert_string_equal(read_text(path), whole[4]);
        assert_int_equal(strstr(log_text, "written again from the checkpoint") != NULL,
                         harm == 1 || harm == 2);
        assert_int_equal(unlink(path), 0); /* nothing to train: the table is written again */
        train_to(dir, 4, false);
        assert_string_equal(read_text(path), whole[4]);
    }
}

static void rows_of_other_runs_stay_in_a_table_that_is_appended_to(void **state)
{
    static char whole[1 << 12];
    char dir[] = "lives-XXXXXX", path[64];
    const char *text;
    FILE *f;

    (void)state;
    expect_table(4, whole, sizeof whole);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log.csv", dir);
    f = fopen(path, "w");
    fputs("epoch,loss,val_loss\n0,7,NA\n", f);
    fclose(f);
    train_to(dir, 3, true);
    assert_int_equal(truncate(path, 40), 0); /* after the other run's row */
    train_to(dir, 4, true);
    text = read_text(path);
    assert_ptr_equal(strstr(text, "epoch,loss,val_loss\n0,7,NA\n"), text);
    assert_string_equal(strchr(strchr(text, '\n') + 1, '\n') + 1, strchr(whole, '\n') + 1);
}

/* ---- checkpoints that do not fit ------------------------------------------------------------- */

static weft_status refuse(void *arg, const char *state, int64_t n)
{
    (void)state;
    (void)n;
    *(bool *)arg = true;
    return WEFT_EPARSE;
}

/* Weights, step and rate of a trainer are as they were when a resume is refused, whatever the
 * reason. */
static void a_resume_that_fails_leaves_the_model_alone(void **state)
{
    char dir[] = "lives-XXXXXX", ckpt[64];
    struct job j = open_job(N, "adam learning_rate=0.01");
    bool asked = false;
    weft_callback made, cb;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    ok(weft_callback_new(ctx, "EarlyStopping monitor=loss patience=9", &made));
    ok(weft_fit(j.t, j.d, j.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 2, .n_callbacks = 1, .callbacks = &made,
                          .checkpoint = ckpt),
                NULL));
    close_job(&j);
    for (int why = 0; why < 2; why++) { /* a callback's state; a place in other data */
        float before[D * 16];
        weft_tensor k;
        weft_status st;

        j = open_job(why == 1 ? N / 2 : N, "adam learning_rate=0.01");
        ok(weft_trainer_weight(j.t, "dense/kernel", &k));
        memcpy(before, k.data, sizeof before);
        cb = made;
        cb.arg = &asked;
        cb.restore = refuse;
        cb.train_begin = NULL;
        cb.epoch_end = NULL;
        cb.train_end = NULL;
        st = weft_fit(j.t, j.d, j.s,
                      WEFT_OPTS(weft_fit_opts, .epochs = 3, .n_callbacks = 1,
                                .callbacks = why == 0 ? &cb : &made, .checkpoint = ckpt),
                      NULL);
        assert_true(st < 0);
        ok(weft_trainer_weight(j.t, "dense/kernel", &k));
        assert_memory_equal(before, k.data, sizeof before);
        assert_int_equal(weft_trainer_step(j.t), 0);
        close_job(&j);
    }
    assert_true(asked);
    weft_callback_free(&made);
}

/* ---- a job whose last checkpoint cannot be written ------------------------------------------- */

/* When training has ended, the folder of checkpoints becomes a file. */
static weft_status spoil(void *arg, weft_trainer *t, const weft_logs *logs)
{
    char away[64];
    FILE *f;

    (void)t;
    (void)logs;
    snprintf(away, sizeof away, "%s-away", (char *)arg);
    assert_int_equal(rename(arg, away), 0);
    f = fopen(arg, "w");
    assert_non_null(f);
    fclose(f);
    return WEFT_OK;
}

static void the_model_is_saved_though_the_last_checkpoint_is_not(void **state)
{
    static const char text[] = "data:\n"
                               "  train: {path: data.csv, label: k}\n"
                               "  pipeline: [{join: {columns: \"a, b\", to: features}}]\n"
                               "model: [{Dense: {units: 1}}]\n"
                               "train: {loss: mse, epochs: 2}\n"
                               "checkpoint: {dir: ckpt}\n"
                               "save: model.safetensors\n";
    char dir[] = "lives-XXXXXX", path[64], ckpt[64];
    weft_callback cb = {.size = sizeof cb, .name = "spoil", .arg = ckpt, .train_end = spoil};
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    weft_model *m = NULL;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/data.csv", dir);
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    f = fopen(path, "w");
    fputs("a,b,k\n", f);
    for (int i = 0; i < 32; i++)
        fprintf(f, "%d.5,%d.5,%d.25\n", i % 7, i % 5, i % 3);
    fclose(f);
    snprintf(path, sizeof path, "%s/job.yaml", dir);
    ok(weft_job_parse(ctx, path, text, sizeof text - 1, 0, NULL, &job));
    ok(weft_job_open(job, ctx, &run));
    assert_true(weft_job_fit(run, WEFT_OPTS(weft_job_fit_opts, .n_callbacks = 1, .callbacks = &cb),
                             NULL) < 0);
    assert_non_null(strstr(weft_error(), "checkpoint"));
    assert_non_null(strstr(weft_error(), "the trained model is in"));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ok(weft_model_load(ctx, path, &m));
    weft_model_free(m);
    weft_job_close(run);
    weft_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(early_stopping_forgets_the_fit_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_plateau_is_measured_anew_in_a_second_fit, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(csv_logger_begins_a_table_with_each_fit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_table_survives_more_epochs_loss_and_damage, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rows_of_other_runs_stay_in_a_table_that_is_appended_to,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resume_that_fails_leaves_the_model_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_model_is_saved_though_the_last_checkpoint_is_not,
                                        set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
