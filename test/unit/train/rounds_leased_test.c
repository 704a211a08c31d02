/* rounds_leased_test.c - rounds of workers as leases, in one process: one worker that reads what it
 * wrote has the bits of a plain loop, in which one logical worker after the other trains on a copy
 * and is merged; and what a round is in the numbers of steps. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/rounds.h"
#include "train/step/servers.h"

/* ---- the plain definition -------------------------------------------------------------------- */

enum { MAX_STATE = 256 };

/* State, as servers have it: sums over the samples of the last lease. */
struct state {
    double sum[MAX_STATE], samples;
};

static void take_state(const struct view *v, struct state *s)
{
    int n = 0;

    s->samples = 1;
    for (int p = 0; p < v->n; p++)
        for (int64_t i = 0; i < v->part[p].n && v->part[p].state; i++)
            s->sum[n++] = (double)v->part[p].at[i];
    assert_true(n <= MAX_STATE);
}

/* What the copy of a logical worker with n of `total` samples makes of all. */
static void merge(const struct setting *s, const struct view *all, const struct view *copy,
                  int64_t n, int64_t total, struct state *state)
{
    bool models = s->merge && strcmp(s->merge, "models") == 0,
         sums = s->merge && strcmp(s->merge, "sum") == 0;
    double whole = (double)n / (double)total;
    float share = (float)whole;
    int k = 0;

    for (int p = 0; p < all->n; p++)
        for (int64_t i = 0; i < all->part[p].n; i++) {
            float *v = &all->part[p].at[i], x = copy->part[p].at[i];

            if (all->part[p].state) {
                double was = state->sum[k] / state->samples;

                state->sum[k] = (1 - whole) * (double)n * was + whole * ((double)n * (double)x);
                *v = (float)(state->sum[k++] / (double)n);
            } else if (models) {
                *v = (1 - share) * *v + share * x;
            } else {
                *v = *v - (sums && !all->part[p].slot ? 1 : share) * (*v - x);
            }
        }
    state->samples = (double)n;
}

static int64_t samples_of(const struct setting *s, int64_t from, int64_t to)
{
    return (to * BATCH < s->n ? to * BATCH : s->n) - from * BATCH;
}

static struct outcome define(struct setting s)
{
    struct world all, one;
    struct view sum, copy;
    struct state state;
    struct outcome out = {0};
    int64_t step = 0, batches = (s.n + BATCH - 1) / BATCH;

    s.servers = 0;
    s.rounds = false;
    assert_int_equal(rounds_open(&s, &all), 0);
    assert_int_equal(rounds_open(&s, &one), 0);
    rounds_look(all.t, &sum);
    take_state(&sum, &state);
    for (int epoch = 0; epoch < s.epochs; epoch++)
        for (int64_t b = 0; b < batches; b += s.every) {
            int64_t end = b + s.every < batches ? b + s.every : batches;

            for (int l = 0; l < s.workers; l++) {
                int64_t n = 0;

                rounds_look(one.t, &copy);
                rounds_hand_over(&sum, &copy);
                for (int64_t k = b; k < end; k++) {
                    weft_fn_set_step(one.t->bound->fit, step + k - b);
                    n += rounds_train(&s, one.t, l, k * BATCH);
                }
                if (n)
                    merge(&s, &sum, &copy, n, samples_of(&s, b, end), &state);
            }
            step += end - b;
        }
    weft_fn_set_step(all.t->bound->fit, step);
    rounds_keep(&all, &out);
    rounds_close(&one);
    rounds_close(&all);
    return out;
}

/* Over one server, and over three with copies on others. */
static void compare(struct setting s)
{
    struct outcome plain;

    s.rounds = true;
    s.epochs = s.epochs ? s.epochs : 3;
    s.n = s.n ? s.n : N;
    plain = define(s);
    for (s.servers = 1; s.servers <= 3; s.servers += 2) {
        struct outcome leased;

        s.consistency = s.servers == 1 ? "async" : "stale(1)";
        leased = rounds_fit(&s);
        rounds_same(&leased, &plain, &s, s.consistency);
        free(leased.bytes);
    }
    free(plain.bytes);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void leases_are_what_the_definition_says(void **state)
{
    (void)state;
    compare((struct setting){.workers = 1, .every = 2, .optimizer = "sgd learning_rate=0.1"});
    compare((struct setting){.workers = 2, .every = 2, .optimizer = "sgd momentum=0.9"});
    compare((struct setting){.workers = 3, .every = 3, .optimizer = "adam learning_rate=0.01"});
    compare((struct setting){
        .workers = 4, .every = 3, .optimizer = "adam learning_rate=0.01", .merge = "models"});
    compare((struct setting){.workers = 3,
                             .every = 1,
                             .optimizer = "adam learning_rate=0.001 global_clipnorm=0.5",
                             .merge = "sum"});
    compare((struct setting){.workers = 2,
                             .every = 100, /* longer than an epoch */
                             .optimizer = "rmsprop",
                             .schedule = "exponential_decay initial_learning_rate=0.01 "
                                         "decay_steps=5 decay_rate=0.5"});
}

/* 49 samples: the last batch has one, and logical workers that have none of it. */
static void leases_without_samples_change_nothing(void **state)
{
    (void)state;
    compare((struct setting){
        .workers = 4, .every = 1, .n = 49, .optimizer = "adam learning_rate=0.01"});
    compare((struct setting){.workers = 3,
                             .every = 2,
                             .n = 2, /* the whole epoch */
                             .merge = "models",
                             .optimizer = "adam learning_rate=0.01"});
}

static void tables_are_copied_whole(void **state)
{
    (void)state;
    compare((struct setting){
        .workers = 3, .every = 2, .table = true, .optimizer = "adam learning_rate=0.01"});
    compare((struct setting){.workers = 2,
                             .every = 3,
                             .table = true,
                             .merge = "models",
                             .optimizer = "adagrad learning_rate=0.05"});
}

/* Nobody else changes anything: there is no difference to synchronous rounds, dropout, constraints
 * and logs included. */
static void one_logical_worker_has_the_bits_of_synchronous_rounds(void **state)
{
    static const char *const merge[] = {"mean", "models", "sum"};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct setting s = {.workers = 1,
                            .every = 2 + k,
                            .epochs = 4,
                            .n = N,
                            .drops = true,
                            .rounds = true,
                            .constraint = k ? "max_norm(0.8)" : "non_neg",
                            .merge = merge[k],
                            .optimizer = "adam learning_rate=0.02 clipnorm=0.4"};
        struct outcome sync = rounds_fit(&s), leased;

        s.servers = 2;
        s.replicas = 1;
        s.consistency = "stale(2)";
        leased = rounds_fit(&s);
        rounds_same(&leased, &sync, &s, "leases");
        assert_true(leased.loss == sync.loss && leased.accuracy == sync.accuracy);
        free(leased.bytes);
        free(sync.bytes);
    }
}

/* With whole models it is training without rounds. */
static void one_logical_worker_with_models_trains_as_without_rounds(void **state)
{
    struct setting s = {.workers = 1,
                        .every = 3,
                        .epochs = 3,
                        .n = N,
                        .drops = true,
                        .merge = "models",
                        .rounds = true,
                        .servers = 1,
                        .consistency = "async",
                        .optimizer = "adam learning_rate=0.01"};
    struct outcome leased = rounds_fit(&s), plain;

    (void)state;
    s.rounds = false;
    s.servers = 0;
    plain = rounds_fit(&s);
    rounds_same(&leased, &plain, &s, "plain training");
    assert_true(leased.loss == plain.loss && leased.accuracy == plain.accuracy);
    free(leased.bytes);
    free(plain.bytes);
}

/* ---- around rounds --------------------------------------------------------------------------- */

static weft_status keep_all(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    (void)in;
    *keep = true;
    return WEFT_OK;
}

static weft_status on_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    static const int64_t last[] = {1, 3, 4}; /* of each round */
    int *calls = arg;

    (void)t;
    (void)logs;
    assert_int_equal(batch, last[*calls % 3]);
    ++*calls;
    return WEFT_OK;
}

/* Three epochs; calls: NULL, or counted by a callback. streams: samples have no numbers. */
static struct outcome around(const struct setting *s, int *calls, bool streams)
{
    weft_callback cb = {.size = sizeof cb, .name = "mine", .arg = calls, .batch_end = on_batch};
    struct outcome out = {0};
    weft_history *h = NULL;
    struct world w;

    assert_int_equal(rounds_open(s, &w), 0);
    if (streams)
        w.ds = weft_ds_repeat(w.d, weft_ds_filter(w.d, w.ds, keep_all, NULL), 0);
    if (weft_fit(w.t, w.d, w.ds,
                 WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = 10, .no_shuffle = true,
                           .steps_per_epoch = streams ? 5 : 0, .callbacks = &cb,
                           .n_callbacks = calls != NULL),
                 &h))
        fail_msg("%s", weft_error());
    out.loss = h->value[(h->n_epochs - 1) * h->n_names];
    rounds_keep(&w, &out);
    weft_history_free(h);
    rounds_close(&w);
    return out;
}

/* Callbacks after batches make each round wait for a decision; streams are read in order, and kept
 * until all rounds of a batch are done. Neither changes anything. */
static void callbacks_and_streams_have_the_same_bits(void **state)
{
    struct setting s = {.workers = 3,
                        .every = 2,
                        .n = N,
                        .drops = true,
                        .rounds = true,
                        .servers = 2,
                        .consistency = "stale(1)",
                        .optimizer = "adam learning_rate=0.01"};
    struct outcome plain = around(&s, NULL, false), called, read;
    int calls = 0;

    (void)state;
    called = around(&s, &calls, false);
    assert_int_equal(calls, 9);
    rounds_same(&called, &plain, &s, "with callbacks");
    read = around(&s, NULL, true);
    rounds_same(&read, &plain, &s, "from a stream");
    assert_true(called.loss == plain.loss && read.loss == plain.loss);
    free(plain.bytes);
    free(called.bytes);
    free(read.bytes);
}

/* Every epoch begins with a step of the leases of its own, whatever the last round is short of. */
static void steps_of_rounds_have_numbers_that_all_can_tell(void **state)
{
    static const struct {
        int64_t epoch_steps, every, first;
    } of[] = {{10, 3, 0}, {10, 3, 7}, {10, 10, 0}, {10, 64, 9}, {1, 1, 0}, {7, 1, 3}, {12, 4, 1}};

    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct wf_servers s = {
            .epoch_steps = of[k].epoch_steps, .every = of[k].every, .first_step = of[k].first};
        int64_t step = of[k].first, at = wf_servers_lease_at(&s, step);

        for (int epoch = 0; epoch < 5; epoch++)
            for (int64_t b = 0; b < s.epoch_steps; b += s.every, at++) {
                int64_t n = b + s.every < s.epoch_steps ? s.every : s.epoch_steps - b;

                assert_int_equal(wf_servers_lease_at(&s, step), at);
                assert_int_equal(wf_servers_step_at(&s, at), step);
                step += n;
            }
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

static weft_status resume(struct setting s, const char *dir, int epochs, char why[300])
{
    struct world w;
    weft_status st;

    assert_int_equal(rounds_open(&s, &w), 0);
    st = weft_fit(w.t, w.d, w.ds,
                  WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = BATCH, .no_shuffle = true,
                            .checkpoint = dir, .checkpoint_steps = 1),
                  NULL);
    snprintf(why, 300, "%s", st ? weft_error() : "");
    rounds_close(&w);
    return st;
}

static weft_status stop(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    (void)arg;
    (void)logs;
    if (batch == 1)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

/* A checkpoint in the middle of a round: rounds of another length, or none, were trained before. */
static void the_middle_of_a_round_is_no_place_to_resume(void **state)
{
    struct setting s = {.workers = 1, .n = N, .optimizer = "sgd"};
    weft_callback cb = {.size = sizeof cb, .name = "stop", .batch_end = stop};
    char dir[] = "/tmp/weft-rounds-XXXXXX", command[64], why[300];
    struct world w;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(rounds_open(&s, &w), 0);
    assert_int_equal(weft_fit(w.t, w.d, w.ds,
                              WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = BATCH,
                                        .no_shuffle = true, .checkpoint = dir,
                                        .checkpoint_steps = 1, .callbacks = &cb, .n_callbacks = 1),
                              NULL),
                     0);
    assert_int_equal(weft_trainer_step(w.t), 2);
    rounds_close(&w);
    s.rounds = true;
    s.servers = 1;
    s.consistency = "async";
    s.every = 3;
    assert_int_equal(resume(s, dir, 2, why), WEFT_ENOSUP);
    assert_non_null(strstr(why, "after batch 2 of an epoch, in the middle of a round"));
    s.every = 2;
    assert_int_equal(resume(s, dir, 2, why), 0);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_are_what_the_definition_says),
        cmocka_unit_test(leases_without_samples_change_nothing),
        cmocka_unit_test(tables_are_copied_whole),
        cmocka_unit_test(one_logical_worker_has_the_bits_of_synchronous_rounds),
        cmocka_unit_test(one_logical_worker_with_models_trains_as_without_rounds),
        cmocka_unit_test(callbacks_and_streams_have_the_same_bits),
        cmocka_unit_test(steps_of_rounds_have_numbers_that_all_can_tell),
        cmocka_unit_test(the_middle_of_a_round_is_no_place_to_resume)};

    rounds_fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
