/* leased_fit_test.c - asynchronous training and bounded staleness in one process: one worker that
 * reads what it wrote has the bits of `local`; what cannot be trained so is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 90, V = 31, F = 6, T = 3, WORDS = 500, MAX_LOGS = 64 };

/* What a fit does. */
enum {
    PLAIN = 0,
    TABLE = 1,      /* looked-up rows */
    SCALED = 2,     /* f16: leases are skipped */
    VALIDATES = 4,  /* by whoever decides */
    BATCHES = 8,    /* a callback after each batch */
    PLATEAU = 16,   /* the learning rate depends on the validation */
    NO_RANDOM = 32, /* no dropout, no normalization */
    SETS = 64,      /* a callback changes weights */
    UNKNOWN = 128,  /* of the data it is not known how many batches there are */
    STOPS = 256,    /* early, with the best weights */
    STREAM = 512    /* samples have no numbers: they are read in order, without an end */
};

struct setting {
    const char *consistency; /* NULL: local */
    const char *optimizer, *schedule;
    unsigned does;
    int servers, replicas, shards, batch, epochs, accumulate;
};

struct result {
    weft_status st;
    uint32_t sum;
    int64_t step;
    int n_logs, batches;
    double log[MAX_LOGS];
    char why[300];
};

struct mine {
    int batches;
    double n;
};

static weft_status on_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct mine *m = arg;

    (void)batch;
    m->batches++;
    m->n += weft_logs_get(logs, "loss");
    return weft_trainer_set_rate(t, 0.001 * (1 + fmod(m->n, 5)));
}

static weft_status on_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    weft_tensor w;
    weft_status st = weft_trainer_weight(t, "dense/kernel", &w);

    (void)arg;
    (void)epoch;
    (void)logs;
    if (!st)
        ((float *)w.data)[0] += 1;
    return st;
}

static weft_status keep_all(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    (void)in;
    *keep = true;
    return WEFT_OK;
}

static weft_status build(weft_model *m, unsigned does)
{
    weft_sym v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    weft_sym ids = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});

    v = weft_apply(m, "Dense", "units=40 activation=relu kernel_regularizer=l2(0.01)", v);
    if (!(does & NO_RANDOM)) {
        v = weft_apply(m, "BatchNormalization", NULL, v);
        v = weft_apply(m, "Dropout", "rate=0.2", v);
    }
    v = weft_apply(m, "Dense", "units=129 activation=tanh kernel_constraint=max_norm(2)", v);
    if (does & TABLE)
        ids = weft_apply(m, "Embedding",
                         "input_dim=500 output_dim=4 embeddings_initializer=random_normal(0,0.1)",
                         ids);
    else
        ids = weft_apply(m, "Embedding",
                         "input_dim=500 output_dim=4 embeddings_regularizer=l2(0.001)", ids);
    ids = weft_apply(m, "Flatten", NULL, ids);
    v = weft_apply_n(m, "Concatenate", NULL, 2, (weft_sym[]){v, ids});
    weft_model_output(m, weft_apply(m, "Dense", "units=3", v));
    return weft_model_status(m);
}

static weft_ds tensors(weft_data *d, int n, int seed)
{
    static float x[2][N][F];
    static int32_t ids[2][N][T], y[2][N];
    int of = seed & 1;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < F; k++)
            x[of][i][k] = (float)((i * 31 + k * 17 + seed * 7) % 23) / 11 - 1;
        for (int k = 0; k < T; k++)
            ids[of][i][k] = (i * 37 + k * 101 + seed) % WORDS;
        y[of][i] = (i * (31 + seed) / 7) % 3;
    }
    return weft_ds_tensors(
        d, 3, (weft_column[]){{.name = "x"}, {.name = "ids"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){weft_view(WEFT_F32, x[of], 2, (int64_t[]){n, F}),
                        weft_view(WEFT_I32, ids[of], 2, (int64_t[]){n, T}),
                        weft_view(WEFT_I32, y[of], 1, (int64_t[]){n})});
}

static int callbacks_of(weft_ctx *ctx, const struct setting *s, struct mine *m, weft_callback *cb)
{
    int n = 0;

    if (s->does & PLATEAU)
        assert_int_equal(weft_callback_new(ctx,
                                           "ReduceLROnPlateau monitor=val_loss patience=1 "
                                           "factor=0.5 min_delta=0.02",
                                           &cb[n++]),
                         0);
    if (s->does & STOPS)
        assert_int_equal(weft_callback_new(ctx,
                                           "EarlyStopping monitor=val_loss patience=1 "
                                           "min_delta=0.5 restore_best_weights=true",
                                           &cb[n++]),
                         0);
    if (s->does & SETS)
        cb[n++] = (weft_callback){.size = sizeof *cb, .name = "sets", .epoch_end = on_epoch};
    if (s->does & BATCHES)
        cb[n++] =
            (weft_callback){.size = sizeof *cb, .arg = m, .name = "mine", .batch_end = on_batch};
    return n;
}

static void fit(weft_ctx *ctx, const struct setting *s, weft_trainer *t, struct result *r)
{
    weft_history *h = NULL;
    weft_data *d;
    weft_callback cb[4];
    weft_ds samples;
    struct mine m = {0};
    weft_fit_opts o = {.size = sizeof o,
                       .epochs = s->epochs,
                       .batch = s->batch,
                       .seed = 3,
                       .callbacks = cb,
                       .n_callbacks = callbacks_of(ctx, s, &m, cb)};

    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (s->does & (VALIDATES | PLATEAU))
        o.validation = tensors(d, V, 1);
    samples = tensors(d, N, 0);
    if (s->does & (UNKNOWN | STREAM))
        samples = weft_ds_filter(d, samples, keep_all, NULL);
    if (s->does & STREAM) {
        samples = weft_ds_repeat(d, samples, 0);
        o.steps_per_epoch = 7;
    }
    r->st = weft_fit(t, d, samples, &o, &h);
    if (r->st)
        snprintf(r->why, sizeof r->why, "%s", weft_error());
    for (int i = 0; h && i < h->n_epochs * h->n_names && i < MAX_LOGS; i++)
        r->log[r->n_logs++] = h->value[i];
    r->step = weft_trainer_step(t);
    r->batches = m.batches;
    for (int64_t i = 0; i < o.n_callbacks; i++)
        weft_callback_free(&cb[i]);
    weft_history_free(h);
    weft_data_free(d);
}

static struct result run(struct setting s)
{
    struct result r = {0};
    weft_dist *dist = NULL;
    weft_trainer *t;
    weft_model *m;
    weft_ctx *ctx;
    size_t n;
    char *bytes;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx), 0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    assert_int_equal(build(m, s.does), 0);
    if (s.consistency) {
        r.st =
            weft_dist_open_ps(ctx,
                              WEFT_OPTS(weft_ps_opts, .servers = s.servers, .replicas = s.replicas,
                                        .piece_bytes = 4096, .consistency = s.consistency),
                              &dist);
        if (!r.st)
            assert_int_equal(weft_dist_scope(dist, m), 0);
        else
            snprintf(r.why, sizeof r.why, "%s", weft_error());
    }
    if (!r.st) {
        r.st = weft_compile(
            m,
            WEFT_OPTS(weft_compile_opts, .optimizer = s.optimizer, .schedule = s.schedule,
                      .loss = "sparse_categorical_crossentropy from_logits=true",
                      .metrics = "accuracy", .shards = s.shards, .accumulate = s.accumulate,
                      .precision = s.does & SCALED ? "f16" : NULL,
                      .loss_scale = s.does & SCALED ? 0x1p22 : 0,
                      .loss_scale_steps = s.does & SCALED ? 3 : 0),
            &t);
        if (r.st)
            print_error("%s\n", weft_error());
        assert_int_equal(r.st, 0);
        fit(ctx, &s, t, &r);
        if (!r.st) {
            assert_int_equal(wf_dist_bring(t), 0);
            bytes = trainer_bytes(t, &n);
            r.sum = wf_crc32c(0, bytes, (int64_t)n);
            free(bytes);
        }
        weft_trainer_free(t);
    }
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return r;
}

static void expect_same(const struct result *a, const struct result *b)
{
    if (a->st || b->st)
        print_error("%s; %s\n", a->why, b->why);
    assert_int_equal(a->st, 0);
    assert_int_equal(b->st, 0);
    assert_int_equal(a->n_logs, b->n_logs);
    for (int i = 0; i < a->n_logs; i++)
        if (a->log[i] != b->log[i])
            print_error("log %d: %.17g, %.17g\n", i, a->log[i], b->log[i]);
    assert_int_equal(a->sum, b->sum);
    assert_memory_equal(a->log, b->log, sizeof a->log);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->batches, b->batches);
}

/* ---- one worker ------------------------------------------------------------------------------ */

static void one_worker_has_the_bits_of_local(void **state)
{
    static const char *const optimizer[] = {"sgd learning_rate=0.05 momentum=0.9",
                                            "adam learning_rate=0.01",
                                            "lamb learning_rate=0.01",
                                            "adam learning_rate=0.01 global_clipnorm=0.05",
                                            "sgd learning_rate=0.05 clipnorm=0.02",
                                            "adamw weight_decay=0.01"};
    static const unsigned does[] = {VALIDATES, PLAIN,           VALIDATES | PLATEAU,
                                    TABLE,     TABLE | BATCHES, VALIDATES};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct setting s = {.optimizer = optimizer[i],
                            .schedule = i == 5 ? "cosine_decay decay_steps=20" : NULL,
                            .does = does[i],
                            .servers = 1,
                            .shards = 1,
                            .batch = 16,
                            .epochs = 3};
        struct result local = run(s), async;

        s.consistency = "async";
        async = run(s);
        expect_same(&local, &async);
    }
}

/* It has one push in flight, and waits for backups. */
static void so_has_one_with_backups_that_reads_its_own_writes(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers++) {
        struct setting s = {.optimizer = "lamb learning_rate=0.01",
                            .does = servers == 2 ? TABLE | VALIDATES : BATCHES,
                            .servers = servers,
                            .replicas = servers > 1 ? 2 : 1,
                            .shards = 1,
                            .batch = 16,
                            .epochs = 3};
        struct result local = run(s), stale;

        s.consistency = "stale(1)";
        stale = run(s);
        expect_same(&local, &stale);
    }
}

/* A server that is late gets the first version from the worker, which has read other pieces by
 * then: the more often a job begins, the likelier one is. */
static void a_job_begins_though_a_server_is_late(void **state)
{
    (void)state;
    for (int i = 0; i < 25; i++) {
        struct setting s = {.consistency = "stale(1)",
                            .optimizer = "sgd",
                            .does = NO_RANDOM,
                            .servers = 3,
                            .replicas = 2,
                            .shards = 1,
                            .batch = 90,
                            .epochs = 1};

        assert_int_equal(run(s).st, 0);
    }
}

/* A shard of a batch of 15 in three is a batch of 5 samples, in the same order. */
static void shards_are_leases_of_their_own(void **state)
{
    struct setting s = {.optimizer = "adam learning_rate=0.01",
                        .does = NO_RANDOM | VALIDATES,
                        .servers = 2,
                        .replicas = 1,
                        .shards = 1,
                        .batch = 5,
                        .epochs = 2};
    struct result local = run(s), stale;

    (void)state;
    s.consistency = "stale(3)";
    s.shards = 3;
    s.batch = 15;
    stale = run(s);
    assert_int_equal(stale.st, 0);
    assert_int_equal(local.step, 3 * stale.step);
    assert_int_equal(local.n_logs, stale.n_logs);
    for (int i = 0; i < local.n_logs; i++) /* gradients of sums are divided: other bits */
        assert_true(fabs(local.log[i] - stale.log[i]) < 1e-4 * fabs(local.log[i]));
}

/* The loss scale is too large at first. Skipped leases count as steps. */
static void scaled_losses_skip_leases(void **state)
{
    struct setting s = {.optimizer = "sgd learning_rate=0.05 momentum=0.9",
                        .does = SCALED | NO_RANDOM,
                        .servers = 1,
                        .shards = 1,
                        .batch = 16,
                        .epochs = 3};
    struct result local = run(s), async;

    (void)state;
    s.consistency = "async";
    async = run(s);
    assert_int_equal(async.step, 18);
    assert_true(local.step < 18);
    local.step = async.step;
    expect_same(&local, &async);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void what_is_not_a_consistency_is_refused(void **state)
{
    static const char *const bad[] = {"stale",    "stale(0)", "stale(-1)", "stale(2",
                                      "stale(x)", "fast",     ""};

    (void)state;
    for (int i = 0; i < 7; i++) {
        struct setting s = {.consistency = bad[i], .servers = 1};
        struct result r = run(s);

        assert_int_equal(r.st, WEFT_EINVAL);
        assert_non_null(strstr(r.why, "sync, async, or stale(S)"));
    }
}

/* The reason names what is to be changed. */
static void what_cannot_be_leased_is_refused(void **state)
{
    static const struct {
        const char *why;
        unsigned does;
        int accumulate;
    } bad[] = {{"are accumulated for a step", PLAIN, 2},
               {"a callback has changed parameters", SETS, 1},
               {"steps_per_epoch", UNKNOWN, 1}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct setting s = {.consistency = "async",
                            .optimizer = "sgd",
                            .does = bad[i].does,
                            .accumulate = bad[i].accumulate,
                            .servers = 1,
                            .shards = 1,
                            .batch = 16,
                            .epochs = 3};
        struct result r = run(s);

        assert_int_equal(r.st, WEFT_ENOSUP);
        if (!strstr(r.why, bad[i].why))
            fail_msg("%s", r.why);
    }
}

static void streams_are_dealt_out_in_order(void **state)
{
    struct setting s = {.optimizer = "adam learning_rate=0.01",
                        .does = STREAM | VALIDATES,
                        .servers = 1,
                        .shards = 1,
                        .batch = 16,
                        .epochs = 5};
    struct result local = run(s), async;

    (void)state;
    s.consistency = "async";
    async = run(s);
    expect_same(&local, &async);
}

/* Where nothing more is trained, servers need not take them. */
static void the_best_weights_are_restored_at_the_end(void **state)
{
    struct setting s = {.optimizer = "adam learning_rate=0.05",
                        .does = VALIDATES | STOPS,
                        .servers = 2,
                        .shards = 1,
                        .batch = 16,
                        .epochs = 12};
    struct result local = run(s), stale;

    (void)state;
    s.consistency = "stale(1)";
    stale = run(s);
    assert_true(local.step < 72);
    expect_same(&local, &stale);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_has_the_bits_of_local),
        cmocka_unit_test(so_has_one_with_backups_that_reads_its_own_writes),
        cmocka_unit_test(a_job_begins_though_a_server_is_late),
        cmocka_unit_test(shards_are_leases_of_their_own),
        cmocka_unit_test(scaled_losses_skip_leases),
        cmocka_unit_test(what_is_not_a_consistency_is_refused),
        cmocka_unit_test(what_cannot_be_leased_is_refused),
        cmocka_unit_test(streams_are_dealt_out_in_order),
        cmocka_unit_test(the_best_weights_are_restored_at_the_end)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
