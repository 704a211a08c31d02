/* device_flight_test.c - batches in flight on a device: started and not waited for, while the feeds
 * of the next one are copied. The bits are those of a training whose batches are waited for one by
 * one, whatever happens in between; a failed batch is named and changes nothing. */
#include "flight_job.h"

#include "support/ckpt_sample.h"
#include "support/fake_cuda.h"

static struct flight_data data;

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    data = flight_data();
    return 0;
}

static void open_job(struct flight_job *j, const struct fake *f, const struct flight_how *how)
{
    *j = (struct flight_job){.ctx = NULL};
    if (f)
        j->fake = *f;
    ok(flight_build(j, &data, how));
}

static void close_job(struct flight_job *j)
{
    flight_close(j);
    assert_int_equal(j->fake.allocated, 0);
    assert_int_equal(j->fake.n_streams, 0);
}

static void same(const struct flight_result *a, const struct flight_result *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->n_epochs, b->n_epochs);
    assert_int_equal(a->n_names, b->n_names);
    assert_memory_equal(a->history, b->history, sizeof a->history);
    assert_memory_equal(a->weights, b->weights, sizeof a->weights);
    assert_memory_equal(a->logs, b->logs, sizeof a->logs);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static const struct fake devices[] = {
    {.delays = 0},
    {.delays = 1},
    {.delays = 77},
    {.delays = 0, .no_capture = true},
    {.delays = 5, .no_capture = true},
};
enum { N_DEVICES = sizeof devices / sizeof *devices };

static const struct flight_how hows[] = {
    {.optimizer = NULL},
    {.class_weights = true, .optimizer = "sgd learning_rate=0.1 momentum=0.9"},
};
enum { N_HOWS = sizeof hows / sizeof *hows };

/* The last batch of an epoch has 10 samples, that of the validation 2. */
static void a_training_has_the_bits_of_one_that_is_waited_for(void **state)
{
    const weft_fit_opts opts = {.epochs = 4, .validation_split = 0.2};

    (void)state;
    for (int h = 0; h < N_HOWS; h++)
        for (int d = 0; d < N_DEVICES; d++) {
            struct flight_how looks = hows[h];
            struct flight_result a, b;
            struct flight_job j;

            looks.looks = true;
            open_job(&j, &devices[d], &looks);
            ok(flight_fit(&j, &looks, &opts, &a));
            ok(flight_finish(&j, &a));
            close_job(&j);
            open_job(&j, &devices[d], &hows[h]);
            ok(flight_fit(&j, &hows[h], &opts, &b));
            assert_true(j.fake.n_orders > 10); /* it did fly */
            ok(flight_finish(&j, &b));
            close_job(&j);
            same(&a, &b);
        }
}

/* NVIDIA's libraries as functions of this process (test/support/fake_cuda.h). */
static void emulated_gpus_give_the_bits_of_one_that_is_waited_for(void **state)
{
    const weft_fit_opts opts = {.epochs = 4, .validation_split = 0.2};
    struct flight_result r[2];

    (void)state;
    if (!fake_cuda_driver())
        skip();
    for (int looks = 0; looks < 2; looks++) {
        struct flight_how how = {.looks = looks, .gpu = fake_cuda_driver()};
        struct flight_job j;

        open_job(&j, NULL, &how);
        ok(flight_fit(&j, &how, &opts, &r[looks]));
        ok(flight_finish(&j, &r[looks]));
        data.id[50][0] = IDS;
        assert_int_equal(flight_finish(&j, &r[looks]), WEFT_EDATA);
        assert_non_null(strstr(weft_error(), "id 11 at position"));
        data = flight_data();
        ok(flight_finish(&j, &r[looks]));
        close_job(&j);
        assert_int_equal(fake_cuda_allocations(), 0);
    }
    same(&r[0], &r[1]);
}

static void early_stopping_restores_the_same_weights(void **state)
{
    struct flight_result r[2];

    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        struct flight_how how = {.looks = looks, .optimizer = "sgd learning_rate=1.5"};
        weft_callback cb;
        struct flight_job j;

        open_job(&j, &devices[1], &how);
        ok(weft_callback_new(j.ctx, "EarlyStopping patience=1 restore_best_weights=true", &cb));
        ok(flight_fit(
            &j, &how,
            &(weft_fit_opts){
                .epochs = EPOCHS, .validation_split = 0.2, .n_callbacks = 1, .callbacks = &cb},
            &r[looks]));
        assert_true(r[looks].n_epochs < EPOCHS);
        ok(flight_finish(&j, &r[looks]));
        weft_callback_free(&cb);
        close_job(&j);
    }
    same(&r[0], &r[1]);
}

/* A clock that somebody looks at after each batch, which interrupts the training. */
struct interrupting {
    weft_trainer **t;
    _Atomic int64_t now;
    int64_t at;
};

static int64_t interrupt(void *arg)
{
    struct interrupting *c = arg;
    int64_t now = ++c->now;

    if (now == c->at && *c->t)
        weft_trainer_interrupt(*c->t);
    return now;
}

/* Checkpoints are written between batches in flight; a run that is interrupted anywhere, and one
 * that fails, is continued. */
static void a_resumed_run_has_the_bits_of_one_run(void **state)
{
    weft_fit_opts opts = {.epochs = 4, .checkpoint_seconds = 1e6};
    struct flight_result whole, got;
    struct flight_job j;
    struct interrupting clock = {.t = &j.t};
    struct flight_how plain = {.optimizer = NULL}, looks = {.looks = true},
                      stops = {.now = interrupt, .now_arg = &clock};
    int n_paused = 0;

    (void)state;
    open_job(&j, &devices[1], &looks);
    ok(flight_fit(&j, &looks, &opts, &whole));
    ok(flight_finish(&j, &whole));
    close_job(&j);
    for (int at = 60; at < 260; at += 19) {
        char dir[64];

        temp_make(dir);
        opts.checkpoint = dir;
        opts.checkpoint_steps = at % 3 * 2;
        clock.now = 0;
        clock.at = at;
        open_job(&j, &devices[at % N_DEVICES], &stops);
        ok(flight_fit(&j, &stops, &opts, &got));
        n_paused += weft_trainer_step(j.t) % STEPS != 0;
        close_job(&j);
        data.id[50][1] = IDS + 7; /* in some batch of each epoch, which is shuffled */
        open_job(&j, &devices[at % N_DEVICES], &plain);
        (void)flight_fit(&j, &plain, &opts, &got); /* it may be trained to its end */
        close_job(&j);
        data = flight_data();
        open_job(&j, &devices[at % N_DEVICES], &plain);
        ok(flight_fit(&j, &plain, &opts, &got));
        ok(flight_finish(&j, &got));
        close_job(&j);
        same(&whole, &got);
        temp_remove(dir);
    }
    assert_true(n_paused > 2);
}

/* Time flies: somebody watches after each batch, and sees what a callback would see. */
struct seen {
    double logs[4 * STEPS][2];
    int n;
};

static void watch(void *arg, const weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct seen *s = arg;

    (void)t, (void)epoch;
    assert_true(logs->n == 2 && s->n < 4 * STEPS);
    memcpy(s->logs[s->n++], logs->value, sizeof s->logs[0]);
}

static int64_t half_seconds(void *arg)
{
    return *(_Atomic int64_t *)arg += 500000000;
}

static void whoever_watches_sees_each_batch(void **state)
{
    static struct seen seen[3];
    struct flight_result r[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        _Atomic int64_t now = 0;
        struct flight_how how = {
            .looks = i == 0, .now = i < 2 ? half_seconds : NULL, .now_arg = &now};
        struct flight_job j;

        open_job(&j, &devices[i], &how);
        ok(flight_fit(&j, &how,
                      &(weft_fit_opts){.epochs = 3, .watch = watch, .watch_arg = &seen[i]}, &r[i]));
        ok(flight_finish(&j, &r[i]));
        close_job(&j);
    }
    assert_int_equal(seen[0].n, 3 * STEPS);
    assert_int_equal(seen[1].n, 3 * STEPS);
    assert_memory_equal(seen[0].logs, seen[1].logs, sizeof seen[0].logs);
    assert_true(seen[2].n >= 3); /* the last of each epoch */
    same(&r[0], &r[1]);
    same(&r[0], &r[2]);
}

/* ---- batches that fail ----------------------------------------------------------------------- */

static weft_status fit_once(struct flight_job *j, const struct flight_how *how, char *error,
                            struct flight_result *r)
{
    weft_status st = flight_fit(j, how, &(weft_fit_opts){.epochs = 3, .no_shuffle = true}, r);

    snprintf(error, 512, "%s", st ? weft_error() : "");
    ok(flight_weights(j, r->weights, &r->n));
    r->step = weft_trainer_step(j->t);
    return st;
}

static void a_failed_batch_is_named_and_changes_nothing(void **state)
{
    (void)state;
    for (int at = 0; at < N; at += 7)
        for (int d = 0; d < N_DEVICES; d++) {
            struct fake f = devices[d];
            struct flight_result r[2];
            char error[2][512];
            weft_status st[2];

            f.words = at % 2;
            data.id[at][at % 2] = -2;
            data.id[N - 1][0] = -3; /* and one more, which may be in flight already */
            for (int looks = 0; looks < 2; looks++) {
                struct flight_how how = {.looks = looks};
                struct flight_job j;

                open_job(&j, &f, &how);
                st[looks] = fit_once(&j, &how, error[looks], &r[looks]);
                close_job(&j);
            }
            data = flight_data();
            assert_int_equal(st[0], WEFT_EDATA);
            assert_int_equal(st[1], WEFT_EDATA);
            assert_string_equal(error[0], error[1]);
            assert_non_null(strstr(error[0], "epoch 1, batch "));
            assert_int_equal(r[0].step, at / BATCH);
            same(&r[0], &r[1]);
        }
}

/* After the failure the trainer is as it was before that batch, and trains on. */
static void a_trainer_goes_on_after_a_failed_batch(void **state)
{
    struct flight_result r[2];

    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        struct flight_how how = {.looks = looks};
        struct flight_job j;
        char error[512];

        open_job(&j, &devices[1], &how);
        data.id[70][0] = 99;
        assert_int_equal(fit_once(&j, &how, error, &r[looks]), WEFT_EDATA);
        data = flight_data();
        assert_int_equal(fit_once(&j, &how, error, &r[looks]), WEFT_OK);
        ok(flight_finish(&j, &r[looks]));
        assert_int_equal(r[looks].step, 4 + 3 * STEPS);
        close_job(&j);
    }
    same(&r[0], &r[1]);
}

/* Also of data without random access, whose batches are kept until they have landed. */
static void a_loss_that_is_not_finite_is_explained_alike(void **state)
{
    (void)state;
    for (int at = 0; at < N; at += 11) {
        char said[2][512];

        data.x[at][1] = NAN;
        for (int looks = 0; looks < 2; looks++) {
            struct flight_how how = {.looks = looks};
            struct flight_result r;
            struct flight_job j;
            char error[512];

            open_job(&j, &devices[at % N_DEVICES], &how);
            if (at % 2)
                j.s = weft_ds_batch(j.d, weft_ds_shuffle(j.d, j.s, 3, NULL), BATCH, NULL);
            assert_int_equal(fit_once(&j, &how, error, &r), WEFT_OK);
            snprintf(said[looks], sizeof said[looks], "%s", weft_trainer_nonfinite(j.t));
            close_job(&j);
        }
        data = flight_data();
        assert_string_equal(said[0], said[1]);
        assert_non_null(strstr(said[0], "column 'x' of the data is nan in sample"));
    }
}

/* A trap must stop at the op: such a run is waited for. */
static void trapped_numerics_are_waited_for(void **state)
{
    struct flight_how how = {.trap = true};
    struct flight_result r;
    struct flight_job j;
    char error[512];

    (void)state;
    open_job(&j, &devices[0], &how);
    assert_int_equal(fit_once(&j, &how, error, &r), WEFT_OK);
    assert_int_equal(j.fake.n_orders, 0);
    data.x[40][1] = NAN;
    assert_int_equal(fit_once(&j, &how, error, &r), WEFT_ENUMERIC);
    assert_int_equal(r.step, 3 * STEPS + 40 / BATCH);
    close_job(&j);
    data = flight_data();
}

/* Evaluating finds the bad id, and gives no result. */
static void a_bad_id_fails_evaluation(void **state)
{
    struct flight_how how = {.optimizer = NULL};
    struct flight_result r;
    struct flight_job j;

    (void)state;
    open_job(&j, &devices[0], &how);
    ok(flight_fit(&j, &how, &(weft_fit_opts){.epochs = 1}, &r));
    ok(flight_finish(&j, &r));
    for (int at = 0; at < N; at += 13) {
        data.id[at][0] = IDS;
        assert_int_equal(flight_finish(&j, &r), WEFT_EDATA);
        data = flight_data();
        ok(flight_finish(&j, &r));
        assert_int_equal(r.step, STEPS);
    }
    close_job(&j);
}

/* ---- what a step costs ----------------------------------------------------------------------- */

/* An endless training of so many steps. */
static void steps(struct flight_job *j, const struct flight_how *how, int64_t n)
{
    struct flight_result r;
    weft_ds s = weft_ds_take(j->d, j->s, 80);

    j->s = weft_ds_repeat(j->d, s, 0);
    ok(flight_fit(j, how, &(weft_fit_opts){.epochs = 1, .steps_per_epoch = n, .no_shuffle = true},
                  &r));
}

/* Pinned memory on both ends, one wait of the host, one of the stream, no allocation. */
static void a_step_waits_once_and_allocates_nothing(void **state)
{
    struct flight_how how = {.optimizer = NULL};
    struct fake f[2];
    int64_t n_allocs[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct counting c = {0};
        weft_allocator mem = counting_allocator(&c);
        struct flight_job j;

        how.mem = &mem;
        open_job(&j, NULL, &how);
        steps(&j, &how, i ? 50 : 10);
        f[i] = j.fake;
        n_allocs[i] = c.n_allocs;
        close_job(&j);
        assert_int_equal(c.n_live, 0);
    }
    assert_int_equal(f[1].n_replays - f[0].n_replays, 40);
    assert_int_equal(f[1].n_orders - f[0].n_orders, 40);
    assert_int_equal(f[1].n_waits - f[0].n_waits, 2 * 40);
    assert_int_equal(f[1].n_unpinned, f[0].n_unpinned);
    assert_int_equal(n_allocs[1], n_allocs[0]);
}

/* Without memory for it, batches are waited for. */
static void without_memory_batches_are_waited_for(void **state)
{
    struct flight_result r[2];

    (void)state;
    for (int full = 0; full < 2; full++) {
        struct flight_how how = {.looks = true};
        struct flight_job j;

        open_job(&j, NULL, &how);
        ok(flight_fit(&j, &how, &(weft_fit_opts){.epochs = 1}, &r[full]));
        if (full)
            j.fake.memory = j.fake.allocated;
        how.looks = false;
        ok(flight_fit(&j, &how, &(weft_fit_opts){.epochs = 2}, &r[full]));
        assert_int_equal(j.fake.n_orders > 0, !full);
        j.fake.memory = 0;
        ok(flight_finish(&j, &r[full]));
        close_job(&j);
    }
    same(&r[0], &r[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_has_the_bits_of_one_that_is_waited_for),
        cmocka_unit_test(emulated_gpus_give_the_bits_of_one_that_is_waited_for),
        cmocka_unit_test(early_stopping_restores_the_same_weights),
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_run),
        cmocka_unit_test(whoever_watches_sees_each_batch),
        cmocka_unit_test(a_failed_batch_is_named_and_changes_nothing),
        cmocka_unit_test(a_trainer_goes_on_after_a_failed_batch),
        cmocka_unit_test(a_loss_that_is_not_finite_is_explained_alike),
        cmocka_unit_test(trapped_numerics_are_waited_for),
        cmocka_unit_test(a_bad_id_fails_evaluation),
        cmocka_unit_test(a_step_waits_once_and_allocates_nothing),
        cmocka_unit_test(without_memory_batches_are_waited_for),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
