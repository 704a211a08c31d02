/* report_fault.c - every allocation, and every file call, of a run that logs all it can fails in
 * turn: events, history, page, model files, and reading them back. A clear status, nothing
 * leaked.
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

static char folder[64], job_text[2048], model[128];

static const char rows[] = "a,b,kind\n1,2,0\n3,1,1\n2,2,0\n4,0,1\n5,1,1\n0,3,0\n1,1,1\n2,0,0\n";

/* The history and the model of the run, read back. */
static weft_status read_back(weft_ctx *ctx, weft_trainer *t)
{
    weft_history *h = NULL;
    weft_model *m = NULL;
    char dir[96];
    int n;
    weft_status st;

    snprintf(dir, sizeof dir, "%s/logs", folder);
    st = weft_history_read(ctx, dir, &h);
    if (!st)
        st = weft_model_load(ctx, model, &m);
    if (!st)
        st = weft_trainer_load_weights(t, model, WEFT_OPTS(weft_load_opts, .by_name = true), &n);
    weft_model_free(m);
    weft_history_free(h);
    return st;
}

static weft_status run_job(weft_ctx *ctx)
{
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    weft_history *h = NULL;
    char page[96];
    weft_status st =
        weft_job_parse(ctx, "job.yaml", job_text, (int64_t)strlen(job_text), 0, NULL, &job);

    snprintf(page, sizeof page, "%s/page.html", folder);
    if (!st)
        st = weft_job_open(job, ctx, &run);
    if (!st)
        st = weft_job_fit(run, NULL, &h);
    if (!st)
        st = weft_job_report(run, h, page);
    if (!st)
        st = read_back(ctx, weft_job_trainer(run));
    weft_history_free(h);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

/* A page about a model of quantities that was never trained. */
static weft_status run_page(weft_ctx *ctx)
{
    static const char *const sets[] = {"train.loss=mean_squared_error", "model.1.Dense.units=1",
                                       "train.metrics=", "train.callbacks=", "log.dir="};
    weft_history none = {0};
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    char page[96];
    weft_status st =
        weft_job_parse(ctx, "job.yaml", job_text, (int64_t)strlen(job_text), 5, sets, &job);

    snprintf(page, sizeof page, "%s/page.html", folder);
    if (!st)
        st = weft_job_open(job, ctx, &run);
    if (!st)
        st = weft_job_report(run, &none, page);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

static void fail_every_allocation(weft_status (*work)(weft_ctx *ctx), int64_t at_least)
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL, done = false;

    for (int64_t n = 1; !done; n += quick ? 7 : 1) {
        struct counting c = {.fail_at = n};
        weft_allocator a = counting_allocator(&c);
        weft_ctx *ctx;
        weft_status st =
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx);

        if (!st) {
            st = work(ctx);
            weft_ctx_free(ctx);
        }
        done = !st && c.n_allocs < n;
        if (st && (!weft_error()[0] || (st != WEFT_ENOMEM && st != WEFT_ELIMIT)))
            print_error("allocation %d: %s %s\n", (int)n, weft_status_name(st), weft_error());
        if (st)
            assert_true(st == WEFT_ENOMEM || st == WEFT_ELIMIT);
        if (c.n_live)
            print_error("allocation %d leaks %d\n", (int)n, (int)c.n_live);
        assert_int_equal(c.n_live, 0);
        if (done)
            assert_true(n > at_least); /* the loop saw the whole run */
    }
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    fail_every_allocation(run_job, 600);
}

static void every_allocation_of_a_page_of_quantities_fails_in_turn(void **state)
{
    (void)state;
    fail_every_allocation(run_page, 200);
}

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
static int bad_mkdir(void *arg, const char *path, int mode)
{
    return fails() ? -13 : wf_fs_posix.mkdir(arg, path, mode);
}
static int bad_close(void *arg, int fd)
{
    int rc = wf_fs_posix.close(arg, fd);

    return fails() ? -5 : rc;
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

static void every_file_call_fails_in_turn(void **state)
{
    bool done = false;
    weft_ctx *ctx;

    (void)state;
    for (int64_t n = 1; !done; n++) {
        struct counting c = {0};
        weft_allocator a = counting_allocator(&c);
        struct wf_fs fs = wf_fs_posix;
        weft_status st;

        fs.open = bad_open;
        fs.write = bad_write;
        fs.mkdir = bad_mkdir;
        fs.close = bad_close;
        fs.rename = bad_rename;
        fs.open_at = bad_open_at;
        fs.rename_at = bad_rename_at;
        fs.mkdir_at = bad_mkdir_at;
        n_calls = 0;
        fail_at = n;
        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx), 0);
        ctx->fs = &fs;
        st = run_job(ctx);
        if (st)
            assert_true(weft_error()[0] != 0);
        done = n_calls < n;
        ctx->fs = &wf_fs_posix;
        weft_ctx_free(ctx);
        assert_int_equal(c.n_live, 0);
        if (done) {
            assert_int_equal(st, 0);
            assert_true(n > 40);
        }
    }
}

static int set_up(void **state)
{
    char path[96];

    (void)state;
    temp_make(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    file_put(path, rows, (int64_t)sizeof rows - 1);
    snprintf(model, sizeof model, "%s/models/m.safetensors", folder);
    snprintf(job_text, sizeof job_text,
             "data:\n"
             "  train: {path: %s/rows.csv, label: kind, index: true}\n"
             "  pipeline: [{join: {columns: \"a, b\", to: x}}]\n"
             "  batch: 3\n"
             "  validation_split: 0.25\n"
             "model:\n"
             "  - Dense: {units: 3, activation: tanh}\n"
             "  - Dense: {units: 2}\n"
             "train:\n"
             "  loss: sparse_categorical_crossentropy from_logits=true\n"
             "  metrics: accuracy\n"
             "  callbacks: [ModelCheckpoint: {filepath: %s}]\n"
             "resources: {data_threads: 1}\n"
             "log: {dir: %s/logs, steps: 1, histograms: 1, seconds: 3600}\n",
             folder, model, folder);
    return 0;
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
        cmocka_unit_test(every_allocation_of_a_page_of_quantities_fails_in_turn),
        cmocka_unit_test(every_file_call_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
