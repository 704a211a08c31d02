/* rounds_test.c - updates in the workers: fit has the bits of the plain definition, which trains
 * each logical worker by itself and merges the copies in a loop; and of parameter servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/rounds.h"
#include "train/step/dist.h"
#include "weft/weft.h"

/* ---- the plain definition -------------------------------------------------------------------- */

/* ((v0 + v1) + (v2 + v3)), absent ones left out. */
static float add_up(const float *v, const bool *there, int from, int n, bool *any)
{
    bool left = false, right = false;
    float a = 0, b = 0;

    if (n == 1) {
        *any = from < MAX_WORKERS && there[from];
        return *any ? v[from] : 0;
    }
    a = add_up(v, there, from, n / 2, &left);
    b = add_up(v, there, from + n / 2, n / 2, &right);
    *any = left || right;
    return left && right ? a + b : left ? a : b;
}

static void merge(const struct setting *s, const struct view *all, const struct view *copy,
                  const int64_t *samples)
{
    bool there[MAX_WORKERS] = {false}, models = s->merge && strcmp(s->merge, "models") == 0,
         sums = s->merge && strcmp(s->merge, "sum") == 0, any;
    int64_t total = 0;

    for (int l = 0; l < s->workers; l++) {
        total += samples[l];
        there[l] = samples[l] > 0;
    }
    for (int p = 0; p < all->n; p++)
        for (int64_t i = 0; i < all->part[p].n; i++) {
            float was = all->part[p].at[i], v[MAX_WORKERS] = {0};
            double mean = 0;

            for (int l = 0; l < s->workers; l++) {
                float share = (float)((double)samples[l] / (double)total);
                float is = copy[l].part[p].at[i];

                mean += (double)samples[l] * (double)is;
                if (sums && !all->part[p].slot)
                    share = 1;
                v[l] = models ? share * is : share * (was - is);
            }
            all->part[p].at[i] = all->part[p].state ? (float)(mean / (double)total)
                                 : models           ? add_up(v, there, 0, MAX_WORKERS, &any)
                                                    : was - add_up(v, there, 0, MAX_WORKERS, &any);
        }
}

static struct outcome define(struct setting s)
{
    struct world all, one[MAX_WORKERS];
    struct view sum, copy[MAX_WORKERS];
    struct outcome out = {0};
    int64_t step = 0, batches = (s.n + BATCH - 1) / BATCH;

    s.rounds = false;
    assert_int_equal(rounds_open(&s, &all), 0);
    for (int l = 0; l < s.workers; l++)
        assert_int_equal(rounds_open(&s, &one[l]), 0);
    for (int epoch = 0; epoch < s.epochs; epoch++)
        for (int64_t b = 0; b < batches; b += s.every) {
            int64_t samples[MAX_WORKERS] = {0}, end = b + s.every < batches ? b + s.every : batches;

            for (int l = 0; l < s.workers; l++) {
                rounds_look(all.t, &sum);
                rounds_look(one[l].t, &copy[l]);
                rounds_hand_over(&sum, &copy[l]);
                for (int64_t k = b; k < end; k++) {
                    weft_fn_set_step(one[l].t->bound->fit, step + k - b);
                    samples[l] += rounds_train(&s, one[l].t, l, k * BATCH);
                }
            }
            merge(&s, &sum, copy, samples);
            step += end - b;
            weft_fn_set_step(all.t->bound->fit, step);
        }
    rounds_keep(&all, &out);
    for (int l = 0; l < s.workers; l++)
        rounds_close(&one[l]);
    rounds_close(&all);
    return out;
}

static void compare(struct setting s, bool defined)
{
    struct outcome fitted, plain;

    s.rounds = true;
    if (!s.epochs)
        s.epochs = 3;
    if (!s.n)
        s.n = N;
    fitted = rounds_fit(&s);
    if (defined) {
        plain = define(s);
        rounds_same(&fitted, &plain, &s, "definition");
        free(plain.bytes);
    }
    for (s.servers = 1; s.servers <= 3; s.servers += 2) {
        struct outcome served = rounds_fit(&s);

        rounds_same(&fitted, &served, &s, "servers");
        assert_true(fitted.loss == served.loss && fitted.accuracy == served.accuracy);
        free(served.bytes);
    }
    free(fitted.bytes);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void rounds_are_what_the_definition_says(void **state)
{
    (void)state;
    compare((struct setting){.workers = 2, .every = 2, .optimizer = "sgd learning_rate=0.1"}, true);
    compare((struct setting){.workers = 3, .every = 2, .optimizer = "adam learning_rate=0.01"},
            true);
    compare(
        (struct setting){
            .workers = 4, .every = 3, .optimizer = "sgd momentum=0.9", .merge = "models"},
        true);
    compare((struct setting){.workers = 3,
                             .every = 1,
                             .optimizer = "adam learning_rate=0.001 global_clipnorm=0.5",
                             .merge = "sum"},
            true);
    compare((struct setting){.workers = 2,
                             .every = 100, /* longer than an epoch */
                             .optimizer = "rmsprop",
                             .schedule = "exponential_decay initial_learning_rate=0.01 "
                                         "decay_steps=5 decay_rate=0.5"},
            true);
}

/* 49 samples: the last batch has one, and logical workers that have none of it. */
static void workers_without_samples_are_absent(void **state)
{
    (void)state;
    compare(
        (struct setting){.workers = 4, .every = 1, .n = 49, .optimizer = "adam learning_rate=0.01"},
        true);
    compare((struct setting){.workers = 3,
                             .every = 2,
                             .n = 2, /* the whole epoch */
                             .merge = "models",
                             .optimizer = "adam learning_rate=0.01"},
            true);
}

static void tables_are_copied_whole(void **state)
{
    (void)state;
    compare(
        (struct setting){
            .workers = 3, .every = 2, .table = true, .optimizer = "adam learning_rate=0.01"},
        true);
    compare((struct setting){.workers = 2,
                             .every = 3,
                             .table = true,
                             .merge = "models",
                             .optimizer = "adagrad learning_rate=0.05"},
            true);
}

static void dropout_and_constraints(void **state)
{
    (void)state;
    compare((struct setting){.workers = 3,
                             .every = 2,
                             .drops = true,
                             .constraint = "max_norm(0.8)",
                             .optimizer = "adam learning_rate=0.02"},
            false);
    compare((struct setting){.workers = 3,
                             .every = 2,
                             .drops = true,
                             .constraint = "non_neg",
                             .merge = "models",
                             .optimizer = "adam learning_rate=0.02"},
            false);
}

/* With one worker and whole models it is plain training, dropout included. */
static void one_worker_trains_as_without_rounds(void **state)
{
    for (int every = 1; every < 8; every += 3) {
        struct setting s = {.workers = 1,
                            .every = every,
                            .epochs = 3,
                            .n = N,
                            .drops = true,
                            .merge = "models",
                            .rounds = true,
                            .optimizer = "adam learning_rate=0.01 clipnorm=0.4"};
        struct outcome in_rounds = rounds_fit(&s), plain;

        (void)state;
        s.rounds = false;
        plain = rounds_fit(&s);
        rounds_same(&in_rounds, &plain, &s, "plain training");
        assert_true(in_rounds.loss == plain.loss && in_rounds.accuracy == plain.accuracy);
        free(in_rounds.bytes);
        free(plain.bytes);
    }
}

/* What no sample changes keeps its bits: the rows of a table that are never looked up. */
static void means_leave_alone_what_nobody_changes(void **state)
{
    struct setting s = {.workers = 3,
                        .every = 2,
                        .epochs = 2,
                        .n = 21,
                        .table = true,
                        .rounds = true,
                        .optimizer = "sgd learning_rate=0.1"};
    struct world w;
    weft_tensor before, after;
    float first[4];

    (void)state;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++)
            rounds_ids[i][k] = 1 + (i + k) % 8;
    assert_int_equal(rounds_open(&s, &w), 0);
    assert_int_equal(weft_trainer_weight(w.t, "embedding/embeddings", &before), 0);
    memcpy(first, before.data, sizeof first);
    assert_int_equal(
        weft_fit(w.t, w.d, w.ds, WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 6), NULL), 0);
    assert_int_equal(weft_trainer_weight(w.t, "embedding/embeddings", &after), 0);
    assert_memory_equal(first, after.data, sizeof first);
    rounds_close(&w);
    rounds_fill();
}

/* A session stops at its step, in the middle of a round; the next one begins another. */
static void a_round_ends_with_the_last_step(void **state)
{
    struct setting s = {.workers = 2,
                        .every = 4,
                        .n = N,
                        .drops = true,
                        .rounds = true,
                        .optimizer = "adam learning_rate=0.01"};
    struct outcome out[3] = {{0}};

    (void)state;
    for (s.servers = 0; s.servers < 3; s.servers++) {
        weft_session *session;
        struct world w;

        assert_int_equal(rounds_open(&s, &w), 0);
        assert_int_equal(
            weft_session_open(w.t, w.d, w.ds,
                              WEFT_OPTS(weft_session_opts, .batch = BATCH, .last_step = 12),
                              &session),
            0);
        while (!weft_session_should_stop(session))
            assert_int_equal(weft_session_run(session, NULL), 0);
        assert_int_equal(weft_session_step(session), 12); /* 4 + 1, 4 + 1, 2 */
        assert_int_equal(weft_session_close(session), 0);
        rounds_keep(&w, &out[s.servers]);
        rounds_close(&w);
        rounds_same(&out[0], &out[s.servers], &s, "a session");
        assert_int_equal(out[s.servers].step, 12);
    }
    for (int i = 0; i < 3; i++)
        free(out[i].bytes);
}

static void expect_refused(weft_compile_opts o, weft_status want, const char *text)
{
    struct setting s = {.n = N};
    weft_trainer *t = NULL;
    weft_model *m;
    weft_ctx *ctx;
    weft_status st;

    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    weft_model_new(ctx, NULL, &m);
    rounds_build(m, &s);
    o.size = sizeof o;
    o.loss = "sparse_categorical_crossentropy from_logits=true";
    st = weft_compile(m, &o, &t);
    if (!st) { /* a batch finds out */
        weft_tensor in = weft_view(WEFT_F32, rounds_x, 2, (int64_t[]){8, F});
        weft_tensor out = weft_view(WEFT_I32, rounds_y, 1, (int64_t[]){8});

        st = weft_train_on_batch(t, &in, &out, NULL, NULL);
    }
    if (st != want || !strstr(weft_error(), text))
        fail_msg("%d %s; expected %s", st, weft_error(), text);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_ctx_free(ctx);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    expect_refused((weft_compile_opts){.update = "workers"}, WEFT_EINVAL, "'workers' is not");
    expect_refused((weft_compile_opts){.every = 4}, WEFT_EINVAL, "need update=worker");
    expect_refused((weft_compile_opts){.merge = "sum"}, WEFT_EINVAL, "need update=worker");
    expect_refused((weft_compile_opts){.update = "worker", .merge = "max"}, WEFT_EINVAL,
                   "'max' is not mean, models or sum");
    expect_refused((weft_compile_opts){.update = "worker", .every = -2}, WEFT_EINVAL, "every -2");
    expect_refused((weft_compile_opts){.update = "worker", .accumulate = 2}, WEFT_EINVAL,
                   "use every");
    expect_refused((weft_compile_opts){.update = "worker", .precision = "f16"}, WEFT_ENOSUP,
                   "with f16");
    expect_refused((weft_compile_opts){.update = "worker", .every = 2}, WEFT_ENOSUP,
                   "batches by hand");
    expect_refused((weft_compile_opts){.update = "worker", .strategy = "mirrored"}, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounds_are_what_the_definition_says),
                                       cmocka_unit_test(workers_without_samples_are_absent),
                                       cmocka_unit_test(tables_are_copied_whole),
                                       cmocka_unit_test(dropout_and_constraints),
                                       cmocka_unit_test(one_worker_trains_as_without_rounds),
                                       cmocka_unit_test(means_leave_alone_what_nobody_changes),
                                       cmocka_unit_test(a_round_ends_with_the_last_step),
                                       cmocka_unit_test(what_cannot_be_is_refused)};

    rounds_fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
