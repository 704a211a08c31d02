/* train_fault.c - every allocation of reading a job, building it and training fails in turn, and
 * every file call of its checkpoints: a clear status, nothing leaked, and a run that resumes with
 * the same bits.
 * ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../support/ckpt_sample.h"
#include "../support/counting.h"
#include "base/base.h"
#include "weft/weft.h"

static char folder[64], job_text[2048];

static const char rows[] = "a,b,kind\n1,2,0\n3,1,1\n2,2,0\n4,0,1\n5,1,1\n0,3,0\n";

/* Reads the job, trains two epochs; a status. weights: the first kernel when it went well. */
static weft_status run_job(weft_ctx *ctx, float *weights)
{
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    weft_history *h = NULL;
    weft_tensor w;
    weft_status st =
        weft_job_parse(ctx, "job.yaml", job_text, (int64_t)strlen(job_text), 0, NULL, &job);

    if (!st)
        st = weft_job_open(job, ctx, &run);
    if (!st)
        st = weft_job_fit(run, NULL, &h);
    if (!st)
        st = weft_trainer_weight(weft_job_trainer(run), "dense/kernel", &w);
    if (!st && weights)
        memcpy(weights, w.data, (size_t)weft_tensor_bytes(&w));
    weft_history_free(h);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

static void make_job(const char *checkpoint)
{
    snprintf(job_text, sizeof job_text,
             "data:\n"
             "  train: {path: %s/rows.csv, label: kind, index: true}\n"
             "  pipeline:\n"
             "    - standardize: {columns: a}\n"
             "    - fill_mean: {columns: a}\n"
             "    - lookup: {columns: b}\n"
             "    - join: {columns: \"a, b\", to: x}\n"
             "  batch: 4\n"
             "  validation_split: 0.2\n"
             "model:\n"
             "  - Dense: {units: 3, activation: tanh, kernel_regularizer: l2(0.01)}\n"
             "  - BatchNormalization\n"
             "  - Dense: {units: 2}\n"
             "train:\n"
             "  loss: sparse_categorical_crossentropy from_logits=true\n"
             "  metrics: accuracy\n"
             "  epochs: 2\n"
             "  callbacks: [EarlyStopping: {monitor: loss, restore_best_weights: true}]\n"
             "resources: {data_threads: 1}\n"
             "%s%s%s",
             folder, checkpoint ? "checkpoint: {steps: 1, dir: " : "", checkpoint ? checkpoint : "",
             checkpoint ? "}\n" : "");
}

/* The same on a part of a saved model, some of it frozen, with a new head; half of the rows; the
 * result saved. */
static void make_transfer(const char *checkpoint)
{
    snprintf(job_text, sizeof job_text,
             "data:\n"
             "  train: {path: %s/rows.csv, label: kind, index: true}\n"
             "  pipeline:\n"
             "    - filter: {column: a, min: 1}\n"
             "    - join: {columns: \"a, b\", to: x}\n"
             "  batch: 4\n"
             "model:\n"
             "  file: %s/base.safetensors\n"
             "  until: batch_normalization\n"
             "  freeze: [batch*]\n"
             "  layers:\n"
             "    - Dense: {units: 2, name: head}\n"
             "  weights: {file: %s/base.safetensors, by_name: true, prefix: dense/}\n"
             "train:\n"
             "  loss: sparse_categorical_crossentropy from_logits=true\n"
             "  epochs: 2\n"
             "save: %s/saved.safetensors\n"
             "resources: {data_threads: 1}\n"
             "%s%s%s",
             folder, folder, folder, folder, checkpoint ? "checkpoint: {steps: 1, dir: " : "",
             checkpoint ? checkpoint : "", checkpoint ? "}\n" : "");
}

/* In f16 with a scale that is too large at first, weights of classes, metrics in a list, data that
 * is validated with without weights. */
static void make_halves(const char *checkpoint)
{
    snprintf(job_text, sizeof job_text,
             "data:\n"
             "  train: {path: %s/rows.csv, label: kind, weight: b, index: true}\n"
             "  validation: {path: %s/rows.csv, label: kind, columns: \"a, kind\"}\n"
             "  pipeline:\n"
             "    - join: {columns: a, to: x}\n"
             "  batch: 4\n"
             "model:\n"
             "  - Dense: {units: 3, activation: tanh}\n"
             "  - BatchNormalization\n"
             "  - Dense: {units: 1, activation: sigmoid}\n"
             "train:\n"
             "  loss: bce\n"
             "  metrics: Precision thresholds=[0.2,0.4], AUC, AUC curve=PR\n"
             "  weighted_metrics: accuracy\n"
             "  class_weights: [1, 2]\n"
             "  precision: f16\n"
             "  loss_scale: 4294967296\n"
             "  sparse: false\n"
             "  epochs: 2\n"
             "resources: {data_threads: 1}\n"
             "%s%s%s",
             folder, folder, checkpoint ? "checkpoint: {steps: 1, dir: " : "",
             checkpoint ? checkpoint : "", checkpoint ? "}\n" : "");
}

static void allocations(void (*make)(const char *checkpoint))
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL, done = false;

    make(NULL);
    for (int64_t n = 1; !done; n += quick ? 7 : 1) {
        struct counting c = {.fail_at = n};
        weft_allocator a = counting_allocator(&c);
        weft_ctx *ctx;
        weft_status st =
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx);

        if (!st) {
            st = run_job(ctx, NULL);
            weft_ctx_free(ctx);
        }
        done = !st && c.n_allocs < n;
        if (st && (!weft_error()[0] || (st != WEFT_ENOMEM && st != WEFT_ELIMIT)))
            print_error("allocation %d: %s %s\n", (int)n, weft_status_name(st), weft_error());
        if (st)
            assert_true(st == WEFT_ENOMEM || st == WEFT_ELIMIT);
        assert_int_equal(c.n_live, 0);
        if (done)
            assert_true(n > 300); /* the loop saw the whole run */
    }
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    allocations(make_job);
}

static void every_allocation_fails_in_turn_in_f16(void **state)
{
    (void)state;
    allocations(make_halves);
}

static void every_allocation_fails_in_turn_on_a_saved_base(void **state)
{
    (void)state;
    allocations(make_transfer);
}

static weft_status no_more(void *arg, const weft_batch *batch, int n_outputs,
                           const weft_tensor *out)
{
    (void)arg;
    (void)batch;
    (void)out;
    return n_outputs == 1 ? WEFT_OK : WEFT_EINVAL;
}

/* A model that carries its pipeline is asked about data of another day. */
static weft_status ask(weft_ctx *ctx, const char *path)
{
    char test[160];
    const char *sets[] = {test};
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    weft_ds s;
    weft_status st;

    snprintf(test, sizeof test, "data.test=%s/rows.csv", folder);
    st = weft_job_of_model(ctx, path, 1, sets, &job);
    if (!st)
        st = weft_job_open_trained(job, ctx, &run);
    if (!st)
        st = weft_job_open_part(run, "test", &s);
    if (!st)
        st = weft_job_load_weights(run);
    if (!st)
        st = weft_predict(weft_job_trainer(run), weft_job_data(run), s,
                          WEFT_OPTS(weft_eval_opts, .threads = 1), no_more, NULL);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

static void every_allocation_of_asking_a_trained_model_fails_in_turn(void **state)
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL;
    char dir[96], file[96];
    weft_job *job;
    weft_job_run *run;
    weft_ctx *ctx;

    (void)state;
    snprintf(dir, sizeof dir, "%s/asked", folder);
    snprintf(file, sizeof file, "%s/asked.safetensors", folder);
    make_job(dir);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(
        weft_job_parse(ctx, "job.yaml", job_text, (int64_t)strlen(job_text), 0, NULL, &job), 0);
    assert_int_equal(weft_job_open(job, ctx, &run), 0);
    assert_int_equal(weft_job_fit(run, NULL, NULL), 0);
    assert_int_equal(weft_trainer_save(weft_job_trainer(run), file), 0);
    weft_job_close(run);
    weft_job_free(job);
    weft_ctx_free(ctx);
    for (int k = 0; k < 2; k++) {
        bool done = false;

        for (int64_t n = 1; !done; n += quick ? 7 : 1) {
            struct counting c = {.fail_at = n};
            weft_allocator a = counting_allocator(&c);
            weft_status st =
                weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx);

            if (!st) {
                st = ask(ctx, k ? dir : file);
                weft_ctx_free(ctx);
            }
            done = !st && c.n_allocs < n;
            if (st && st != WEFT_ENOMEM && st != WEFT_ELIMIT)
                print_error("allocation %d: %s %s\n", (int)n, weft_status_name(st), weft_error());
            assert_true(!st || st == WEFT_ENOMEM || st == WEFT_ELIMIT);
            assert_int_equal(c.n_live, 0);
            if (done)
                assert_true(n > 300);
        }
    }
}

/* A model as a stage of a pipeline, read through. */
static weft_status run_stage(weft_ctx *ctx)
{
    static float x[20][3];
    weft_column col = {.name = "x"};
    weft_tensor t = weft_view(WEFT_F32, x, 2, (int64_t[]){20, 3});
    weft_model *m = NULL;
    weft_trainer *base = NULL;
    weft_data *d = NULL;
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_ds s;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (st)
        return st;
    weft_input(m, "x", WEFT_F32, 1, (int64_t[]){3});
    weft_model_add(m, "Dense", "units=4");
    st = weft_compile(m, NULL, &base);
    if (!st)
        st = weft_data_new(ctx, &d);
    if (!st) {
        s = weft_ds_map_model(d, weft_ds_tensors(d, 1, &col, &t), base,
                              WEFT_OPTS(weft_map_graph_opts, .batch = 6, .outputs = "h"));
        s = weft_ds_where(d, weft_ds_enumerate(d, weft_ds_unbatch(d, s), 0), "index",
                          WEFT_OPTS(weft_where_opts, .max = &(double){15}));
        st = weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    }
    while (!st && !(st = weft_iter_next(it, &b)) && b)
        weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
    weft_trainer_free(base);
    weft_model_free(m);
    return st;
}

static void every_allocation_of_a_model_in_a_pipeline_fails_in_turn(void **state)
{
    bool done = false;

    (void)state;
    for (int64_t n = 1; !done; n++) {
        struct counting c = {.fail_at = n};
        weft_allocator a = counting_allocator(&c);
        weft_ctx *ctx;
        weft_status st =
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx);

        if (!st) {
            st = run_stage(ctx);
            weft_ctx_free(ctx);
        }
        done = !st && c.n_allocs < n;
        if (st && st != WEFT_ENOMEM && st != WEFT_ELIMIT)
            print_error("allocation %d: %s %s\n", (int)n, weft_status_name(st), weft_error());
        assert_true(!st || st == WEFT_ENOMEM || st == WEFT_ELIMIT);
        assert_int_equal(c.n_live, 0);
        if (done)
            assert_true(n > 100);
    }
}

/* A file seam whose n-th call fails; training has threads that write and read, so it counts
 * atomically. */
static _Atomic int64_t n_calls, fail_at;

static bool fails(void)
{
    return atomic_fetch_add(&n_calls, 1) + 1 == fail_at;
}
static int bad_open(void *arg, const char *path, int flags, int mode)
{
    return fails() ? -5 : wf_fs_posix.open(arg, path, flags, mode);
}
static int64_t bad_write(void *arg, int fd, const void *buf, int64_t n)
{
    return fails() ? -28 : wf_fs_posix.write(arg, fd, buf, n);
}
static int64_t bad_read(void *arg, int fd, void *buf, int64_t n)
{
    return fails() ? -5 : wf_fs_posix.read(arg, fd, buf, n);
}
static int bad_sync(void *arg, int fd)
{
    return fails() ? -5 : wf_fs_posix.sync(arg, fd);
}
static int bad_rename(void *arg, const char *from, const char *to)
{
    return fails() ? -5 : wf_fs_posix.rename(arg, from, to);
}
static int bad_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    return fails() ? -5 : wf_fs_posix.open_at(arg, dir, name, flags, mode);
}
static int bad_rename_at(void *arg, int dir, const char *from, const char *to)
{
    return fails() ? -5 : wf_fs_posix.rename_at(arg, dir, from, to);
}
static int bad_mkdir_at(void *arg, int dir, const char *name, int mode)
{
    return fails() ? -13 : wf_fs_posix.mkdir_at(arg, dir, name, mode);
}

/* Whatever file call of the checkpoints fails, training ends well or with a status; started again
 * it ends with the bits of an undisturbed run. */
static void file_calls(void (*make)(const char *checkpoint))
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL, done = false;
    float whole[6], again[6];
    char dir[128];
    weft_ctx *ctx;

    make(NULL);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(run_job(ctx, whole), 0);
    weft_ctx_free(ctx);
    for (int64_t n = 1; !done; n += quick ? 7 : 1) {
        struct wf_fs fs = wf_fs_posix;
        weft_status st;

        snprintf(dir, sizeof dir, "%s/%s-%d", folder, make == make_job ? "run" : "transfer",
                 (int)n);
        make(dir);
        fs.open = bad_open;
        fs.write = bad_write;
        fs.read = bad_read;
        fs.sync = bad_sync;
        fs.rename = bad_rename;
        fs.open_at = bad_open_at;
        fs.rename_at = bad_rename_at;
        fs.mkdir_at = bad_mkdir_at;
        n_calls = 0;
        fail_at = n;
        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
        ctx->fs = &fs;
        st = run_job(ctx, again);
        if (st)
            assert_true(weft_error()[0] != 0);
        done = n_calls < n;
        ctx->fs = &wf_fs_posix;
        st = run_job(ctx, again);
        if (st)
            print_error("file call %d: %s\n", (int)n, weft_error());
        assert_int_equal(st, 0);
        assert_memory_equal(whole, again, sizeof whole);
        weft_ctx_free(ctx);
        if (done)
            assert_true(n > 50);
    }
}

static void every_file_call_fails_in_turn(void **state)
{
    (void)state;
    file_calls(make_job);
}

static void every_file_call_fails_in_turn_on_a_saved_base(void **state)
{
    (void)state;
    file_calls(make_transfer);
}

static int set_up(void **state)
{
    char path[96];
    weft_ctx *ctx;
    weft_status st;

    (void)state;
    temp_make(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    file_put(path, rows, (int64_t)sizeof rows - 1);
    make_job(NULL);
    snprintf(job_text + strlen(job_text), sizeof job_text - strlen(job_text),
             "save: %s/base.safetensors\n", folder);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &ctx))
        return -1;
    st = run_job(ctx, NULL);
    weft_ctx_free(ctx);
    return st;
}

static int tear_down(void **state)
{
    (void)state;
    temp_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_in_turn),
        cmocka_unit_test(every_allocation_fails_in_turn_in_f16),
        cmocka_unit_test(every_allocation_of_asking_a_trained_model_fails_in_turn),
        cmocka_unit_test(every_file_call_fails_in_turn),
        cmocka_unit_test(every_allocation_fails_in_turn_on_a_saved_base),
        cmocka_unit_test(every_file_call_fails_in_turn_on_a_saved_base),
        cmocka_unit_test(every_allocation_of_a_model_in_a_pipeline_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
