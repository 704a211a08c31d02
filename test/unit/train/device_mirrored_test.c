/* device_mirrored_test.c - the strategy `mirrored` on several devices with memory of their own
 * (test/support/fake.c): the bits of `local` on one of them with the same number of shards, for any
 * number of devices, with copies from one to another or through the host, whatever is late; and a
 * copy or a wait that is left out is noticed. strategy_test draws further cases.
 * ctest-timeout: 300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device.h"
#include "support/ckpt_sample.h"
#include "support/fake.h"
#include "support/fake_cuda.h"
#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 43, D = 5, T = 3, WORDS = 9 };

static float x[N][D];
static int32_t ids[N][T], y[N];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)((i * D + k) * 7919 % 1000) / 500 - 1;
        for (int k = 0; k < T; k++)
            ids[i][k] = (i * 5 + k * k) % WORDS;
        y[i] = x[i][0] + x[i][1] > 0.4f ? 2 : ids[i][0] > 4;
    }
    return 0;
}

/* Dropout, moving averages, penalties, constraints; with no_sparse also a table that is updated as
 * a whole. */
static weft_sym build_plain(weft_model *m)
{
    weft_sym in = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_sym words = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}), all[2];

    all[0] = weft_apply(m, "Dense",
                        "units=96 activation=tanh kernel_regularizer=l1_l2(0.001,0.01) "
                        "bias_regularizer=l2(0.02) kernel_constraint=max_norm(0.9)",
                        in);
    all[0] = weft_apply(m, "BatchNormalization", "momentum=0.8", all[0]);
    all[1] = weft_apply(m, "Embedding", "input_dim=9 output_dim=4", words);
    all[1] = weft_apply(m, "Flatten", "", all[1]);
    all[0] = weft_apply_n(m, "Concatenate", NULL, 2, all);
    all[0] = weft_apply(m, "Dropout", "rate=0.25", all[0]);
    all[0] = weft_apply(m, "Dense",
                        "units=200 activation=relu kernel_regularizer=orthogonal(0.01) "
                        "bias_constraint=non_neg",
                        all[0]);
    return weft_apply(m, "Dense", "units=3 kernel_constraint=unit_norm", all[0]);
}

/* Tables alone: the dense layer is not trained. */
static weft_sym build_frozen(weft_model *m)
{
    weft_sym in = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_sym words = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}), all[2];
    weft_sym out;

    all[0] =
        weft_apply(m, "Flatten", "", weft_apply(m, "Embedding", "input_dim=9 output_dim=4", words));
    all[1] = in;
    out =
        weft_apply(m, "Dense", "units=3 name=frozen", weft_apply_n(m, "Concatenate", NULL, 2, all));
    assert_int_equal(weft_model_freeze(m, "frozen", true), 1);
    return out;
}

/* A table whose rows are read with a mask. */
static weft_sym build(weft_model *m)
{
    weft_sym in = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_sym words = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}), all[2];

    all[0] = weft_apply(m, "Embedding", "input_dim=9 output_dim=4 mask_zero=true", words);
    all[0] = weft_apply(m, "LSTM", "units=6", all[0]);
    all[1] = weft_apply(m, "Dense", "units=24 activation=tanh kernel_regularizer=l2(0.01)", in);
    all[1] = weft_apply(m, "BatchNormalization", "momentum=0.8", all[1]);
    all[1] = weft_apply(m, "Dropout", "rate=0.25", all[1]);
    all[0] = weft_apply_n(m, "Concatenate", NULL, 2, all);
    all[0] =
        weft_apply(m, "Dense", "units=160 activation=relu kernel_constraint=max_norm(0.8)", all[0]);
    return weft_apply(m, "Dense", "units=3", all[0]);
}

struct job {
    const char *devices, *strategy, *optimizer, *precision;
    int shards, accumulate;
    int64_t batch;
    const char *checkpoint;           /* a directory; NULL: none */
    int epochs;                       /* 0: 2 */
    weft_sym (*build)(weft_model *m); /* NULL: build, or build_plain */
    bool plain;                       /* tables are updated as a whole */
    const weft_device_driver *driver; /* NULL: the fake one */
};

struct result {
    char *bytes;
    size_t n;
    double log[16];
    int n_logs;
    weft_status st;
};

static struct result train(struct fake *f, const struct job *j)
{
    const weft_device_driver *driver = j->driver ? j->driver : &f->driver;
    weft_column col[3] = {{.name = "x"}, {.name = "ids"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[3] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})};
    struct result r = {.st = WEFT_OK};
    weft_history *h = NULL;
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_trainer *trainer = NULL;
    weft_data *d = NULL;

    fake_init(f);
    f->n_devices = 3;
    r.st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5, .devices = j->devices,
                                  .kernels = WEFT_KERNELS_PORTABLE, .n_drivers = 1,
                                  .drivers = &driver),
                        &ctx);
    if (!r.st)
        r.st = weft_model_new(ctx, NULL, &m);
    if (!r.st) {
        weft_model_output(m, j->build ? j->build(m) : j->plain ? build_plain(m) : build(m));
        r.st = weft_compile(m,
                            WEFT_OPTS(weft_compile_opts, .optimizer = j->optimizer,
                                      .loss = "sparse_categorical_crossentropy from_logits=true",
                                      .metrics = "accuracy", .precision = j->precision,
                                      .shards = j->shards, .accumulate = j->accumulate,
                                      .no_sparse = j->plain, .strategy = j->strategy),
                            &trainer);
    }
    if (!r.st)
        r.st = weft_data_new(ctx, &d);
    if (!r.st)
        r.st = weft_fit(trainer, d, weft_ds_tensors(d, 3, col, t),
                        WEFT_OPTS(weft_fit_opts, .epochs = j->epochs ? j->epochs : 2,
                                  .batch = j->batch, .checkpoint = j->checkpoint,
                                  .threads = WEFT_ZERO),
                        &h);
    for (int i = 0; h && i < h->n_epochs * h->n_names && i < 16; i++)
        r.log[r.n_logs++] = h->value[i];
    if (!r.st)
        r.bytes = trainer_bytes(trainer, &r.n);
    weft_history_free(h);
    weft_trainer_free(trainer);
    weft_data_free(d);
    weft_model_free(m);
    weft_ctx_free(ctx);
    if (f->allocated || f->n_streams)
        fail_msg("%s: %lld bytes and %d streams of devices are left", j->devices,
                 (long long)f->allocated, f->n_streams);
    return r;
}

static bool same(const struct result *a, const struct result *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0 && a->n_logs == b->n_logs &&
           memcmp(a->log, b->log, (size_t)a->n_logs * sizeof a->log[0]) == 0;
}

static void expect_same(const struct result *want, const struct result *got, const struct job *j)
{
    ok(want->st);
    ok(got->st);
    if (!same(want, got))
        fail_msg("%s %s, %s, %s, %d shards, batches of %lld: not the bits of local", j->strategy,
                 j->devices, j->optimizer, j->precision, j->shards, (long long)j->batch);
}

/* The same job in the trainer's own function, or shard by shard, on one device. */
static struct result local(const struct job *j)
{
    struct fake f = {.no_capture = false};
    struct job one = *j;

    one.strategy = "local";
    one.devices = j->driver ? "gpu:0" : "fake:0";
    return train(&f, &one);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static const struct job jobs[] = {
    {.optimizer = "sgd learning_rate=0.1 momentum=0.9", .shards = 2, .batch = 16},
    {.optimizer = "adam learning_rate=0.01", .shards = 3, .batch = 10},
    {.optimizer = "adam learning_rate=0.01 clipnorm=0.5", .shards = 1, .batch = 16},
    {.optimizer = "adam learning_rate=0.01 global_clipnorm=0.5", .shards = 8, .batch = 20},
    {.optimizer = "lamb learning_rate=0.01", .shards = 4, .batch = 16},
    {.optimizer = "rmsprop learning_rate=0.01", .shards = 8, .batch = 5}, /* fewer than shards */
    {.optimizer = "sgd learning_rate=0.1", .shards = 5, .batch = 8, .accumulate = 3},
    {.optimizer = "adamw learning_rate=0.01", .shards = 7, .batch = 43, .accumulate = 2},
    {.optimizer = "sgd learning_rate=0.05", .shards = 3, .batch = 16, .precision = "f16"},
    {.optimizer = "adam", .shards = 4, .batch = 16, .build = build_frozen},
    {.optimizer = "sgd clipnorm=0.1", .shards = 2, .batch = 16, .build = build_frozen},
    {.optimizer = "adagrad", .shards = 3, .batch = 7, .precision = "f16"},
    {.optimizer = "sgd learning_rate=0.1 momentum=0.9", .shards = 2, .batch = 16, .plain = true},
    {.optimizer = "adam clipnorm=0.1", .shards = 1, .batch = 10, .plain = true},
    {.optimizer = "adam global_clipnorm=0.2", .shards = 4, .batch = 20, .plain = true},
    {.optimizer = "lamb learning_rate=0.01", .shards = 8, .batch = 5, .plain = true},
    {.optimizer = "ftrl", .shards = 3, .batch = 16, .precision = "f16", .plain = true},
    {.optimizer = "adamw", .shards = 2, .batch = 8, .accumulate = 3, .plain = true},
};

static void any_number_of_devices_has_the_bits_of_one(void **state)
{
    static const char *const devices[] = {"fake:0", "fake:0, fake:1", "fake:2, fake:0, fake:1"};

    (void)state;
    for (size_t i = 0; i < WF_COUNT(jobs); i++) {
        struct result want = local(&jobs[i]);

        for (size_t k = 0; k < WF_COUNT(devices); k++) {
            struct fake f = {.delays = i + k};
            struct job j = jobs[i];
            struct result got;

            j.strategy = "mirrored";
            j.devices = devices[k];
            got = train(&f, &j);
            expect_same(&want, &got, &j);
            assert_true(!k == !f.n_peers); /* parameters, at least */
            free(got.bytes);
        }
        free(want.bytes);
    }
}

/* One device that is used as several, also next to another one; and the word strict. */
static void virtual_devices_have_the_same_bits(void **state)
{
    static const char *const devices[] = {"fake:0*2", "fake:1*4, strict", "fake:0 , fake:1*2"};

    (void)state;
    for (size_t k = 0; k < WF_COUNT(devices); k++) {
        struct fake f = {.delays = 7 + k};
        struct job j = jobs[k];
        struct result want = local(&j), got;

        j.strategy = "mirrored";
        j.devices = devices[k];
        got = train(&f, &j);
        expect_same(&want, &got, &j);
        free(got.bytes);
        free(want.bytes);
    }
}

/* A driver without copies between devices: through the host's memory. */
static void copies_through_the_host_have_the_same_bits(void **state)
{
    (void)state;
    for (int seed = 0; seed < 3; seed++) {
        struct fake f = {.delays = (uint64_t)seed, .no_peers = true, .no_capture = seed == 1};
        struct job j = jobs[1 + seed];
        struct result want = local(&j), got;

        j.strategy = "mirrored";
        j.devices = "fake:0, fake:1, fake:2";
        got = train(&f, &j);
        expect_same(&want, &got, &j);
        assert_int_equal(f.n_peers, 0);
        free(got.bytes);
        free(want.bytes);
    }
}

/* As groups of cores, whose gradients are computed on the device by the same kernels. */
static void groups_of_cores_have_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct fake f = {.delays = 1}, g = {.delays = 2};
        struct job j = jobs[i];
        struct result cores, devices;

        j.strategy = "mirrored";
        j.devices = "cpu:0, cpu:1, fake:0";
        cores = train(&f, &j);
        j.devices = "fake:0, fake:1";
        devices = train(&g, &j);
        expect_same(&cores, &devices, &j);
        free(cores.bytes);
        free(devices.bytes);
    }
}

/* NVIDIA's driver, on emulated libraries. */
static void gpus_have_the_bits_of_one(void **state)
{
    static const char *const devices[] = {"gpu:0, gpu:1", "gpu:1*3"};
    const weft_device_driver *driver = fake_cuda_driver();

    (void)state;
    if (!driver)
        skip();
    for (size_t k = 0; k < WF_COUNT(devices); k++) {
        struct fake unused = {.no_capture = false};
        struct job j = jobs[k];
        struct result want, got;

        j.driver = driver;
        want = local(&j);
        j.strategy = "mirrored";
        j.devices = devices[k];
        got = train(&unused, &j);
        expect_same(&want, &got, &j);
        assert_int_equal(fake_cuda_allocations(), 0);
        free(got.bytes);
        free(want.bytes);
    }
}

/* Each epoch in a process of its own, with other devices. */
static void a_resumed_run_has_the_bits_of_one_run(void **state)
{
    static const char *const devices[] = {"fake:0, fake:1", "fake:0", "fake:2, fake:1, fake:0",
                                          "fake:1*2"};
    struct job j = jobs[1];
    struct result want, got = {.bytes = NULL};
    char dir[64];

    (void)state;
    j.epochs = 4;
    want = local(&j);
    temp_make(dir);
    for (int epoch = 1; epoch <= 4; epoch++) {
        struct fake f = {.delays = (uint64_t)epoch};

        j.epochs = epoch;
        j.devices = devices[epoch - 1];
        j.strategy = "mirrored";
        j.checkpoint = dir;
        free(got.bytes);
        got = train(&f, &j);
        ok(got.st);
    }
    assert_int_equal(want.n, got.n);
    assert_memory_equal(want.bytes, got.bytes, want.n);
    free(want.bytes);
    free(got.bytes);
    temp_remove(dir);
}

/* Of a job: as many shards as devices, unless it says otherwise. */
static void replicas_are_counted(void **state)
{
    (void)state;
    assert_int_equal(wf_dist_count("mirrored", "fake:0, fake:1"), 2);
    assert_int_equal(wf_dist_count("mirrored", "gpu:0*3,strict"), 3);
    assert_int_equal(wf_dist_count("mirrored", "gpu:0*2, gpu:1"), 3);
    assert_int_equal(wf_dist_count("mirrored", "gpu:0"), 1);
    assert_int_equal(wf_dist_count("mirrored", "cpu:0, cpu:1,gpu:0"), 2);
    assert_int_equal(wf_dist_count("mirrored", "cpu:0,cpu:1"), 2);
    assert_int_equal(wf_dist_count("mirrored", NULL), 1);
    assert_int_equal(wf_dist_count("local", "fake:0, fake:1"), 1);
}

static void lists_of_devices_are_checked(void **state)
{
    static const struct {
        const char *list, *says;
    } bad[] = {{"fake:0*0", "a number from 1 on"},   {"fake:0*", "a number from 1 on"},
               {"fake:0*x", "a number from 1 on"},   {"cpu:0*2", "listed one by one"},
               {"fake:0*2, fake:0", "listed twice"}, {"fake:0, fake:3", "there are 3"},
               {"fake:0*65", "at most 64"}};
    struct fake f = {.no_capture = false};
    const weft_device_driver *driver = &f.driver;
    weft_device d = {.size = sizeof d};
    weft_ctx *ctx;
    int at;

    (void)state;
    fake_init(&f);
    f.n_devices = 3;
    for (size_t i = 0; i < WF_COUNT(bad); i++) {
        if (!weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .devices = bad[i].list, .n_drivers = 1,
                                    .drivers = &driver),
                          &ctx))
            fail_msg("'%s' was taken", bad[i].list);
        if (!strstr(weft_error(), bad[i].says))
            fail_msg("'%s': %s", bad[i].list, weft_error());
    }
    ok(weft_ctx_new(
        WEFT_OPTS(weft_ctx_opts, .devices = "fake:1*3", .n_drivers = 1, .drivers = &driver), &ctx));
    assert_int_equal(weft_ctx_n_devices(ctx), 4);
    ok(weft_ctx_device(ctx, 3, &d));
    assert_string_equal(d.name, "fake:1.2");
    ok(wf_device_find(ctx, "/device:FAKE:1.1", &at));
    assert_int_equal(at, 2);
    weft_ctx_free(ctx);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A small job of two steps in eight shards: two devices, sums on each and between them. */
static const struct job short_job[] = {{.devices = "fake:0, fake:1",
                                        .strategy = "mirrored",
                                        .optimizer = "sgd learning_rate=0.1 momentum=0.9",
                                        .shards = 8,
                                        .batch = 22,
                                        .epochs = 1},
                                       {.devices = "fake:0, fake:1",
                                        .strategy = "mirrored",
                                        .optimizer = "sgd learning_rate=0.1 momentum=0.9",
                                        .shards = 8,
                                        .batch = 22,
                                        .epochs = 1,
                                        .plain = true}};

enum fault { COPIES, ORDERS, READS, N_FAULTS };
static const char *const fault_name[] = {"copy", "wait of a stream", "wait of the host"};

static int *fault_of(struct fake *f, enum fault what)
{
    return what == COPIES ? &f->drop_copy : what == ORDERS ? &f->drop_order : &f->drop_read;
}

static int n_faults(const struct fake *f, enum fault what)
{
    return what == COPIES ? f->n_copies : what == ORDERS ? f->n_orders : f->n_reads;
}

/* Every eighth copy, each wait of a stream for another one, and each wait before the host reads is
 * left out in turn. Small copies are not all missed: words of trouble when there is none, step
 * blocks of which nothing is read, and numbers that are there already. */
static void leave_out(const struct job *j, enum fault what, int first)
{
    struct fake all = {.no_capture = true};
    struct result want = local(j), r = train(&all, j);
    int n = n_faults(&all, what), step = getenv("WEFT_TEST_QUICK") ? 5 : what == COPIES ? 8 : 1;

    expect_same(&want, &r, j);
    free(r.bytes);
    assert_true(n > 3);
    for (int i = first; i <= n; i += step) {
        struct fake f = {.no_capture = true};

        *fault_of(&f, what) = i;
        r = train(&f, j);
        if (!r.st && same(&want, &r) && (what != COPIES || f.dropped > 96))
            fail_msg("nobody noticed that %s %d of %d was left out (%zu bytes)", fault_name[what],
                     i, n, f.dropped);
        free(r.bytes);
    }
    free(want.bytes);
}

static void what_is_left_out_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < WF_COUNT(short_job); i++)
        for (enum fault what = 0; what < N_FAULTS; what++)
            leave_out(&short_job[i], what, what == COPIES ? 1 + 4 * (int)i : 1);
}

/* Every call to a device fails in turn: a clear error, nothing leaks, nothing hangs. */
static void failing_calls_are_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < WF_COUNT(short_job); i++) {
        struct fake all = {.no_capture = false};
        struct result r = train(&all, &short_job[i]);
        int n_failed = 0;

        ok(r.st);
        free(r.bytes);
        for (int n = 1; n <= all.n_calls; n += 1 + n / 10) {
            struct fake f = {.fail_call = n};

            r = train(&f, &short_job[i]);
            n_failed += r.st != WEFT_OK;
            if (r.st && !strstr(weft_error(), "the fake device fails call"))
                fail_msg("call %d: %s", n, weft_error());
            free(r.bytes);
        }
        assert_true(n_failed > 20);
    }
}

/* What the host and the devices exchange in a step is less than the parameters; they are saved once
 * in an epoch. */
static void stays_there(const char *optimizer, const char *precision, int shards)
{
    struct job j = {.devices = "fake:0, fake:1",
                    .strategy = "mirrored",
                    .optimizer = optimizer,
                    .precision = precision,
                    .shards = shards,
                    .batch = 1,
                    .plain = true};
    int64_t moved[2], n_steps = N, params = (96 * 6 + (96 + 12) * 200) * 4;

    for (int k = 0; k < 2; k++) { /* one epoch, two */
        struct fake f = {.delays = 0};
        struct result r;

        j.epochs = k + 1;
        r = train(&f, &j);
        ok(r.st);
        free(r.bytes);
        moved[k] = f.bytes_in + f.bytes_out;
    }
    assert_true(moved[1] > moved[0]);
    if (moved[1] - moved[0] > n_steps * params / 4)
        fail_msg("%s, %s, %d shards: %lld bytes a step, parameters have %lld", optimizer, precision,
                 shards, (long long)((moved[1] - moved[0]) / n_steps), (long long)params);
}

static void parameters_stay_on_the_devices(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 4; shards += 3)
        for (int half = 0; half < 2; half++) {
            stays_there("adam", half ? "f16" : "f32", shards);
            stays_there("adam global_clipnorm=0.1", half ? "f16" : "f32", shards);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_devices_has_the_bits_of_one),
        cmocka_unit_test(virtual_devices_have_the_same_bits),
        cmocka_unit_test(copies_through_the_host_have_the_same_bits),
        cmocka_unit_test(groups_of_cores_have_the_same_bits),
        cmocka_unit_test(gpus_have_the_bits_of_one),
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_run),
        cmocka_unit_test(replicas_are_counted),
        cmocka_unit_test(lists_of_devices_are_checked),
        cmocka_unit_test(what_is_left_out_is_noticed),
        cmocka_unit_test(failing_calls_are_reported),
        cmocka_unit_test(parameters_stay_on_the_devices),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
