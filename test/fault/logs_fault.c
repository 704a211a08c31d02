/* logs_fault.c - every file call on the logs of a run (CSVLogger, TensorBoard, the report) fails in
 * turn: the error names the file, no file is left incomplete, and the next run resumes and ends
 * with identical weights and logs.
 * ctest-timeout: 300 */
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

#include "../support/ckpt_sample.h"
#include "base/base.h"
#include "data/record/record.h"
#include "weft/weft.h"

enum { EPOCHS = 3, MAX_FD = 256 };

static char folder[64], logs[80];
static struct sample_log said;

/* ---- a disk on which one call on a log fails ------------------------------------------------- */

enum how { FAIL, SHORT }; /* SHORT: a write stores half of its bytes first */

static enum how how;
static _Atomic int64_t n_calls;
static int64_t fail_at;
static _Atomic bool is_log[MAX_FD]; /* by descriptor: a file or directory of the logs */

static bool below_logs(const char *path)
{
    return strstr(path, "/logs") != NULL;
}

static bool fails(bool counts)
{
    return counts && atomic_fetch_add(&n_calls, 1) + 1 == fail_at;
}

static int opened(int fd, bool log)
{
    if (fd >= 0) {
        assert_true(fd < MAX_FD);
        is_log[fd] = log;
    }
    return fd;
}

static int bad_open(void *arg, const char *path, int flags, int mode)
{
    bool log = below_logs(path);

    return fails(log) ? -EIO : opened(wf_fs_posix.open(arg, path, flags, mode), log);
}
static int bad_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    bool log = is_log[dir];

    return fails(log) ? -EIO : opened(wf_fs_posix.open_at(arg, dir, name, flags, mode), log);
}
static int64_t bad_write(void *arg, int fd, const void *buf, int64_t n)
{
    static int half = -1; /* the descriptor whose next write fails */

    if (half == fd) {
        half = -1;
        return -ENOSPC;
    }
    if (fails(is_log[fd])) {
        if (how == FAIL || n < 2)
            return -ENOSPC;
        half = fd;
        n /= 2;
    }
    return wf_fs_posix.write(arg, fd, buf, n);
}
static int64_t bad_size(void *arg, int fd)
{
    return fails(is_log[fd]) ? -EIO : wf_fs_posix.size(arg, fd);
}
static int64_t bad_seek(void *arg, int fd, int64_t at)
{
    return fails(is_log[fd]) ? -EIO : wf_fs_posix.seek(arg, fd, at);
}
static int bad_truncate(void *arg, int fd, int64_t size)
{
    return fails(is_log[fd]) ? -EIO : wf_fs_posix.truncate(arg, fd, size);
}
static int bad_sync(void *arg, int fd)
{
    return fails(is_log[fd]) ? -EIO : wf_fs_posix.sync(arg, fd);
}
static int bad_close(void *arg, int fd)
{
    bool failed = fails(is_log[fd]);
    int rc = wf_fs_posix.close(arg, fd);

    is_log[fd] = false;
    return failed ? -EIO : rc;
}
static int bad_unlink(void *arg, const char *path)
{
    return fails(below_logs(path)) ? -EIO : wf_fs_posix.unlink(arg, path);
}
static int bad_mkdir(void *arg, const char *path, int mode)
{
    return fails(below_logs(path)) ? -EACCES : wf_fs_posix.mkdir(arg, path, mode);
}
static int bad_stat(void *arg, const char *path, struct wf_file_info *out)
{
    return fails(below_logs(path)) ? -EIO : wf_fs_posix.stat(arg, path, out);
}
static int bad_stat_at(void *arg, int dir, const char *name, struct wf_file_info *out)
{
    return fails(is_log[dir]) ? -EIO : wf_fs_posix.stat_at(arg, dir, name, out);
}
static int bad_rename_at(void *arg, int dir, const char *from, const char *to)
{
    return fails(is_log[dir]) ? -EIO : wf_fs_posix.rename_at(arg, dir, from, to);
}
static int bad_unlink_at(void *arg, int dir, const char *name, bool is_folder)
{
    return fails(is_log[dir]) ? -EIO : wf_fs_posix.unlink_at(arg, dir, name, is_folder);
}
static int bad_mkdir_at(void *arg, int dir, const char *name, int mode)
{
    return fails(is_log[dir]) ? -EACCES : wf_fs_posix.mkdir_at(arg, dir, name, mode);
}

static struct wf_fs bad_disk(void)
{
    struct wf_fs fs = wf_fs_posix;

    fs.open = bad_open;
    fs.open_at = bad_open_at;
    fs.write = bad_write;
    fs.size = bad_size;
    fs.seek = bad_seek;
    fs.truncate = bad_truncate;
    fs.sync = bad_sync;
    fs.close = bad_close;
    fs.unlink = bad_unlink;
    fs.mkdir = bad_mkdir;
    fs.stat = bad_stat;
    fs.stat_at = bad_stat_at;
    fs.rename_at = bad_rename_at;
    fs.unlink_at = bad_unlink_at;
    fs.mkdir_at = bad_mkdir_at;
    return fs;
}

/* ---- a training ------------------------------------------------------------------------------ */

static const char job_text[] = "data:\n"
                               "  train: {path: rows.csv, label: kind, index: true}\n"
                               "  pipeline: [{join: {columns: \"a, b\", to: x}}]\n"
                               "  batch: 4\n"
                               "  validation_split: 0.3\n"
                               "model:\n"
                               "  - Dense: {units: 3, activation: tanh}\n"
                               "  - Dense: {units: 2}\n"
                               "train:\n"
                               "  loss: sparse_categorical_crossentropy from_logits=true\n"
                               "  metrics: accuracy\n"
                               "  epochs: 3\n"
                               "resources: {data_threads: 1, threads: 1}\n"
                               "checkpoint: {dir: ckpt, steps: 1}\n"
                               "log: {dir: logs, steps: 1, histograms: 1}\n";

static weft_status train(weft_ctx *ctx, float kernel[6])
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
    if (!st) {
        assert_int_equal(h->n_epochs, EPOCHS);
        assert_int_equal(weft_trainer_weight(weft_job_trainer(run), "dense/kernel", &w), 0);
        memcpy(kernel, w.data, 6 * sizeof *kernel);
    }
    weft_history_free(h);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

/* With the n-th call on a log failing; 0: none. */
static weft_status train_failing(int64_t n, float kernel[6])
{
    struct wf_fs fs = bad_disk();
    weft_ctx *ctx;
    weft_status st;

    n_calls = 0;
    fail_at = n;
    said.text[0] = 0;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = sample_log_fn,
                                            .log_arg = &said, .seed = 5),
                                  &ctx),
                     0);
    ctx->fs = &fs;
    st = train(ctx, kernel);
    ctx->fs = &wf_fs_posix;
    weft_ctx_free(ctx);
    return st;
}

static void forget(void)
{
    char dir[96];

    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    temp_remove(dir);
    temp_remove(logs);
}

/* ---- what is in the logs --------------------------------------------------------------------- */

struct content {
    char *csv; /* NULL: no file */
    int64_t n_csv;
    bool report;
    int n_epoch_loss; /* values of this tag in train/ */
};

static int count(const char *bytes, int64_t n, const char *word)
{
    int found = 0;

    for (const char *p = bytes; (p = memmem(p, (size_t)(bytes + n - p), word, strlen(word))); p++)
        found++;
    return found;
}

static void look_at_events(const char *path, bool train, struct content *out, int64_t at)
{
    struct wf_record_index x;
    enum wf_damage damage;
    weft_ctx *ctx;
    int64_t n;
    char *bytes = file_get(path, &n);

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(wf_record_walk(ctx, path, INT64_MAX, &damage, &x), 0);
    if (damage != WF_DAMAGE_NONE)
        fail_msg("call %lld: %s ends with an incomplete record", (long long)at, path);
    if (train)
        out->n_epoch_loss += count(bytes, n, "epoch_loss");
    wf_record_index_free(ctx, &x);
    weft_ctx_free(ctx);
    free(bytes);
}

static void look_in(const char *dir, bool train, struct content *out, int64_t at)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int64_t n;

    while (d && (e = readdir(d))) {
        char path[400];

        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.' && strstr(e->d_name, ".tmp"))
            fail_msg("call %lld: %s was left", (long long)at, path);
        if (strstr(e->d_name, "tfevents"))
            look_at_events(path, train, out, at);
        if (!strcmp(e->d_name, "history.csv"))
            out->csv = file_get(path, &out->n_csv);
        if (!strcmp(e->d_name, "report.html")) {
            char *page = file_get(path, &n);

            out->report = true;
            if (n < 16 || memcmp(page + n - 15, "</body></html>\n", 15))
                fail_msg("call %lld: half a report", (long long)at);
            free(page);
        }
    }
    if (d)
        closedir(d);
}

static struct content look(int64_t at)
{
    struct content c = {0};
    char dir[96];

    look_in(logs, false, &c, at);
    snprintf(dir, sizeof dir, "%s/train", logs);
    look_in(dir, true, &c, at);
    snprintf(dir, sizeof dir, "%s/validation", logs);
    look_in(dir, false, &c, at);
    return c;
}

/* The file has only complete rows, and those that it must have. */
static void expect_rows(const struct content *c, const struct content *whole, int64_t at)
{
    if (c->n_csv > whole->n_csv || memcmp(c->csv ? c->csv : "", whole->csv, (size_t)c->n_csv))
        fail_msg("call %lld: history.csv has other rows", (long long)at);
    if (c->n_csv && c->csv[c->n_csv - 1] != '\n')
        fail_msg("call %lld: history.csv ends with half a row", (long long)at);
}

/* ---- promises -------------------------------------------------------------------------------- */

static void expect_resumable(const struct content *whole, const float kernel[6], int64_t at)
{
    struct content c;
    float again[6] = {0};

    if (train_failing(0, again))
        fail_msg("call %lld: the next run fails: %s", (long long)at, weft_error());
    if (memcmp(kernel, again, sizeof again))
        fail_msg("call %lld: the next run ends with other weights", (long long)at);
    c = look(at);
    if (c.n_csv != whole->n_csv || memcmp(c.csv, whole->csv, (size_t)c.n_csv))
        fail_msg("call %lld: the next run leaves another history.csv", (long long)at);
    if (c.n_epoch_loss != EPOCHS)
        fail_msg("call %lld: %d values of epoch_loss", (long long)at, c.n_epoch_loss);
    if (!c.report)
        fail_msg("call %lld: the next run leaves no report", (long long)at);
    free(c.csv);
}

/* An error that names the file; a failure that is only a warning, or has no effect at all. */
static void expect_said(weft_status st, const struct content *c, const struct content *whole,
                        int64_t at)
{
    bool all = c->n_csv == whole->n_csv && c->report && c->n_epoch_loss == EPOCHS;

    if (st && !strstr(weft_error(), "logs"))
        fail_msg("call %lld: the error does not name the file: %s", (long long)at, weft_error());
    if (st && !strstr(weft_error(), strerror(EIO)) && !strstr(weft_error(), strerror(ENOSPC)) &&
        !strstr(weft_error(), strerror(EACCES)))
        fail_msg("call %lld: the error does not say why: %s", (long long)at, weft_error());
    if (!st && !all && !strstr(said.text, "logs"))
        fail_msg("call %lld: something is missing in the logs, and no message", (long long)at);
}

static void fail_every_call(void)
{
    struct content whole;
    float kernel[6] = {0};
    int64_t at = 1;

    forget();
    assert_int_equal(train_failing(0, kernel), 0);
    whole = look(0);
    assert_int_equal(whole.n_epoch_loss, EPOCHS);
    assert_true(whole.report && count(whole.csv, whole.n_csv, "\n") == EPOCHS + 1);
    for (;; at++) {
        float other[6];
        struct content c;
        weft_status st;
        bool reached;

        forget();
        st = train_failing(at, other);
        reached = n_calls >= at;
        c = look(at);
        expect_said(st, &c, &whole, at);
        expect_rows(&c, &whole, at);
        free(c.csv);
        expect_resumable(&whole, kernel, at);
        if (!reached)
            break;
    }
    assert_true(at > 60);
    free(whole.csv);
}

static void every_call_on_a_log_fails_in_turn(void **state)
{
    (void)state;
    how = FAIL;
    fail_every_call();
}

static void every_write_to_a_log_stops_halfway_in_turn(void **state)
{
    (void)state;
    how = SHORT;
    fail_every_call();
}

/* A run that was stopped, and whose continuation then meets a disk that fails. */
static void every_call_of_a_resumed_run_fails_in_turn(void **state)
{
    struct content whole;
    float kernel[6] = {0}, other[6];
    int64_t n;

    (void)state;
    how = FAIL;
    forget();
    assert_int_equal(train_failing(0, kernel), 0);
    whole = look(0);
    n = n_calls;
    for (int64_t at = 1; at < n; at++) {
        forget();
        (void)train_failing(n / 2, other); /* stops in the middle */
        (void)train_failing(at, other);
        expect_resumable(&whole, kernel, at);
        if (n_calls < at)
            break;
    }
    free(whole.csv);
}

static int set_up(void **state)
{
    static const char rows[] = "a,b,kind\n1,2,0\n3,1,1\n2,2,0\n4,0,1\n5,1,1\n0,3,0\n1,1,0\n4,2,1\n"
                               "2,3,0\n5,3,1\n";
    char path[96];

    (void)state;
    temp_make(folder);
    snprintf(logs, sizeof logs, "%s/logs", folder);
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
        cmocka_unit_test(every_call_on_a_log_fails_in_turn),
        cmocka_unit_test(every_write_to_a_log_stops_halfway_in_turn),
        cmocka_unit_test(every_call_of_a_resumed_run_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
