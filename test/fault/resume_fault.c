/* resume_fault.c - a training that is killed at every file call that changes something, killed
 * again, and then left alone, ends with the same losses and weights, bit for bit, as one that
 * nobody disturbed; so does one whose disk is full from any write on, and one whose newest
 * checkpoint is damaged.
 * ctest-timeout: 120 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/ckpt_sample.h"
#include "base/base.h"
#include "weft/weft.h"

enum { KILLED = 77, EPOCHS = 3, LOGS = 4 };

static char folder[64];
static struct sample_log said;

/* What a run ends with. */
struct result {
    double history[EPOCHS * LOGS];
    float kernel[2 * 3], bias[2];
};

/* ---- a disk that kills, or that is full ------------------------------------------------------ */

static _Atomic int64_t n_calls;
static int64_t kill_at, full_at; /* 0: never */

static int64_t counted(void)
{
    int64_t n = atomic_fetch_add(&n_calls, 1) + 1;

    if (kill_at && n >= kill_at)
        _exit(KILLED);
    return n;
}
static _Atomic bool was_full;
static bool is_full(int64_t n)
{
    bool full = full_at && n >= full_at;

    if (full)
        was_full = true;
    return full;
}
static int try_open(void *arg, const char *path, int flags, int mode)
{
    bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;

    if (writes && is_full(counted()))
        return -ENOSPC;
    return wf_fs_posix.open(arg, path, flags, mode);
}
static int64_t try_write(void *arg, int fd, const void *buf, int64_t n)
{
    return is_full(counted()) ? -ENOSPC : wf_fs_posix.write(arg, fd, buf, n);
}
static int try_mkdir(void *arg, const char *path, int mode)
{
    return is_full(counted()) ? -ENOSPC : wf_fs_posix.mkdir(arg, path, mode);
}
static int try_rename(void *arg, const char *from, const char *to)
{
    counted();
    return wf_fs_posix.rename(arg, from, to);
}
static int try_unlink(void *arg, const char *path)
{
    counted();
    return wf_fs_posix.unlink(arg, path);
}
static int try_rmdir(void *arg, const char *path)
{
    counted();
    return wf_fs_posix.rmdir(arg, path);
}
static int try_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;

    if (writes && is_full(counted()))
        return -ENOSPC;
    return wf_fs_posix.open_at(arg, dir, name, flags, mode);
}
static int try_mkdir_at(void *arg, int dir, const char *name, int mode)
{
    return is_full(counted()) ? -ENOSPC : wf_fs_posix.mkdir_at(arg, dir, name, mode);
}
static int try_rename_at(void *arg, int dir, const char *from, const char *to)
{
    counted();
    return wf_fs_posix.rename_at(arg, dir, from, to);
}
static int try_unlink_at(void *arg, int dir, const char *name, bool is_folder)
{
    counted();
    return wf_fs_posix.unlink_at(arg, dir, name, is_folder);
}
static int try_sync(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    counted();
    return 0;
}

/* ---- a training ------------------------------------------------------------------------------ */

static const char job_text[] =
    "data:\n"
    "  train: {path: rows.csv, label: kind, index: true}\n"
    "  pipeline:\n"
    "    - lookup: {columns: b, top: 2}\n"
    "    - standardize: {columns: a}\n"
    "    - join: {columns: \"a, b\", to: x}\n"
    "  batch: 4\n"
    "  validation_split: 0.3\n"
    "model:\n"
    "  - Dense: {units: 3, activation: tanh}\n"
    "  - Dropout: {rate: 0.2}\n"
    "  - Dense: {units: 2}\n"
    "train:\n"
    "  loss: sparse_categorical_crossentropy from_logits=true\n"
    "  metrics: accuracy\n"
    "  epochs: 3\n"
    "  callbacks: [{ReduceLROnPlateau: {monitor: loss, patience: 1, min_delta: 10, factor: 0.5}}]\n"
    "resources: {data_threads: 1, threads: 1}\n"
    "checkpoint: {dir: ckpt, steps: 1, keep_last: 2, keep_best: 1}\n";

static weft_status train(weft_ctx *ctx, struct result *out)
{
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    weft_history *h = NULL;
    char name[96];
    weft_tensor w;
    weft_status st;

    snprintf(name, sizeof name, "%s/job.yaml", folder);
    st = weft_job_parse(ctx, name, job_text, (int64_t)sizeof job_text - 1, 0, NULL, &job);
    if (!st)
        st = weft_job_open(job, ctx, &run);
    if (!st)
        st = weft_job_fit(run, NULL, &h);
    if (!st && out) {
        assert_int_equal(h->n_epochs, EPOCHS);
        assert_int_equal(h->n_names, LOGS);
        memcpy(out->history, h->value, sizeof out->history);
        assert_int_equal(weft_trainer_weight(weft_job_trainer(run), "dense/kernel", &w), 0);
        memcpy(out->kernel, w.data, sizeof out->kernel);
        assert_int_equal(weft_trainer_weight(weft_job_trainer(run), "dense_1/bias", &w), 0);
        memcpy(out->bias, w.data, sizeof out->bias);
    }
    weft_history_free(h);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

/* With a disk of that kind; the counts start again. */
static weft_status train_on(int64_t kill, int64_t full, struct result *out)
{
    struct wf_fs fs = wf_fs_posix;
    weft_ctx *ctx;
    weft_status st;

    fs.open = try_open;
    fs.write = try_write;
    fs.mkdir = try_mkdir;
    fs.rename = try_rename;
    fs.sync = try_sync;
    fs.unlink = try_unlink;
    fs.rmdir = try_rmdir;
    fs.open_at = try_open_at;
    fs.mkdir_at = try_mkdir_at;
    fs.rename_at = try_rename_at;
    fs.unlink_at = try_unlink_at;
    n_calls = 0;
    was_full = false;
    kill_at = kill;
    full_at = full;
    said.text[0] = 0;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = sample_log_fn,
                                            .log_arg = &said, .seed = 5),
                                  &ctx),
                     0);
    ctx->fs = &fs;
    st = train(ctx, out);
    ctx->fs = &wf_fs_posix;
    weft_ctx_free(ctx);
    return st;
}

/* In a child that dies at that call; false: it came to its end before. */
static bool dies(int64_t at)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (!pid)
        _exit(train_on(at, 0, NULL) ? 2 : 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == KILLED);
    return WEXITSTATUS(status) == KILLED;
}

static void forget(void)
{
    char dir[96];

    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    temp_remove(dir);
}

static void expect_same(const struct result *a, const char *what, int64_t at)
{
    struct result b = {0};

    if (train_on(0, 0, &b))
        fail_msg("%s %lld: the next run fails: %s", what, (long long)at, weft_error());
    if (memcmp(a, &b, sizeof b) != 0)
        fail_msg("%s %lld: the next run ends otherwise", what, (long long)at);
}

/* ---- promises -------------------------------------------------------------------------------- */

static void undisturbed(struct result *out)
{
    *out = (struct result){0};
    forget();
    assert_int_equal(train_on(0, 0, out), 0);
    forget();
}

static void killed_at_every_call_and_again_it_ends_with_the_same_bits(void **state)
{
    struct result expect;
    int64_t at = 1;

    (void)state;
    undisturbed(&expect);
    for (;; at++) {
        bool died = dies(at);

        dies(1 + at * 7 % 41);
        expect_same(&expect, "killed at call", at);
        forget();
        if (!died)
            break;
    }
    assert_true(at > 60);
}

static void with_a_full_disk_it_says_so_and_ends_with_the_same_bits_later(void **state)
{
    struct result expect;
    int64_t at = 1;

    (void)state;
    undisturbed(&expect);
    for (;; at += 3) {
        weft_status st = train_on(0, at, NULL);
        bool reached = n_calls >= at;

        if (was_full && (!st || !*weft_error()) && !strstr(said.text, "No space left"))
            fail_msg("full at call %lld: nobody says so", (long long)at);
        expect_same(&expect, "full at call", at);
        forget();
        if (!reached)
            break;
    }
    assert_true(at > 60);
}

/* Name of the newest checkpoint's shard. */
static void newest_shard(char *path, size_t size)
{
    char dir[128], best[64] = "";
    struct dirent *e;
    DIR *d;

    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)))
        if (strncmp(e->d_name, "ckpt-", 5) == 0 && strcmp(e->d_name, best) > 0)
            snprintf(best, sizeof best, "%.60s", e->d_name);
    closedir(d);
    snprintf(path, size, "%s/%s/tensors-00001-of-00001.safetensors", dir, best);
}

static void a_damaged_newest_checkpoint_is_gone_round_with_the_same_bits(void **state)
{
    struct result expect;
    char path[256], *bytes;
    int64_t n;

    (void)state;
    undisturbed(&expect);
    assert_int_equal(train_on(0, 0, NULL), 0);
    newest_shard(path, sizeof path);
    bytes = file_get(path, &n);
    bytes[n - 3] ^= 4;
    file_put(path, bytes, n);
    free(bytes);
    expect_same(&expect, "damaged", 0);
    assert_non_null(strstr(said.text, "is damaged; skipping it"));
    assert_non_null(strstr(said.text, "falling back to the newest valid checkpoint"));
    forget();
}

static int set_up(void **state)
{
    static const char rows[] = "a,b,kind\n1,2,0\n3,1,1\n2,2,0\n4,0,1\n5,1,1\n0,3,0\n1,1,0\n4,2,1\n"
                               "2,3,0\n5,3,1\n";
    char path[96];

    (void)state;
    temp_make(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    file_put(path, rows, (int64_t)sizeof rows - 1);
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
        cmocka_unit_test(killed_at_every_call_and_again_it_ends_with_the_same_bits),
        cmocka_unit_test(with_a_full_disk_it_says_so_and_ends_with_the_same_bits_later),
        cmocka_unit_test(a_damaged_newest_checkpoint_is_gone_round_with_the_same_bits),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
