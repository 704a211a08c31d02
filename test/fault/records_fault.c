/* records_fault.c - every allocation and every file call fails in turn while records are written,
 * indexed, read and parsed: a clear status or the same elements, and nothing leaked. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "../support/counting.h"
#include "../unit/data/files_support.h"
#include "base/base.h"
#include <weft/weft.h>

enum { N = 60 };

static const weft_example_feature features[] = {
    {.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {3}},
    {.name = "v", .dtype = WEFT_I32, .rank = 1, .dim = {WEFT_ANY}},
    {.name = "t", .dtype = WEFT_STR},
};

static weft_status write_file(weft_ctx *ctx, const char *path, bool append)
{
    weft_record_writer *w = NULL;
    weft_status st =
        weft_record_writer_new(ctx, path, WEFT_OPTS(weft_record_writer_opts, .append = append), &w);

    for (int64_t i = 0; i < N && !st; i++) {
        float x[3] = {(float)i, 1, 2};
        int64_t v[20];
        weft_str t = {"text", i % 5};

        for (int k = 0; k < 20; k++)
            v[k] = i * 100 + k;
        st = weft_record_writer_example(
            w, 3,
            (weft_example_value[]){{"x", weft_view(WEFT_F32, x, 1, (int64_t[]){3}), false},
                                   {"v", weft_view(WEFT_I64, v, 1, (int64_t[]){i % 20}), false},
                                   {"t", {WEFT_STR, 0, {0}, &t}, false}});
        if (!st && i == N / 2)
            st = weft_record_writer_flush(w, true);
    }
    if (st) {
        weft_record_writer_close(w);
        return st;
    }
    return weft_record_writer_close(w);
}

/* The sum of all values, and how many records there were. */
static weft_status read_file(weft_ctx *ctx, const char *path, bool index, int64_t *n, double *sum)
{
    weft_data *d = NULL;
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_ds s;
    weft_status st = weft_data_new(ctx, &d);

    *n = 0;
    *sum = 0;
    if (st)
        return st;
    s = weft_ds_tfrecord(d, path, WEFT_OPTS(weft_tfrecord_opts, .index = index));
    s = weft_ds_example(d, s, 3, features, NULL);
    st = weft_iter_new(d, weft_ds_batch(d, s, 16, WEFT_OPTS(weft_batch_opts, .ragged = true)),
                       WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        const weft_tensor *x = weft_batch_find(b, "x"), *v = weft_batch_find(b, "v");

        for (int64_t i = 0; i < weft_tensor_count(x); i++)
            *sum += (double)((const float *)x->data)[i];
        for (int64_t i = 0; i < weft_tensor_count(v); i++)
            *sum += ((const int32_t *)v->data)[i];
        *n += b->n;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return st;
}

static const char *const names[] = {"a.tfrecord", "a.tfrecord.gz"};

/* Write, then read as a stream and by an index; the outcome of reading. */
static weft_status whole_life(weft_ctx *ctx, int kind, int64_t *n, double *sum)
{
    const char *path = in_scratch(names[kind]);
    int64_t m;
    double again;
    weft_status st = write_file(ctx, path, false);

    if (!st)
        st = read_file(ctx, path, false, n, sum);
    if (!st && kind == 0) {
        st = read_file(ctx, path, true, &m, &again);
        if (!st && (m != *n || again != *sum))
            st = WEFT_EBUG;
    }
    if (!st && kind == 0) {
        st = write_file(ctx, path, true);
        if (!st)
            st = read_file(ctx, path, true, &m, &again);
        if (!st && (m != 2 * *n || again != 2 * *sum))
            st = WEFT_EBUG;
    }
    return st;
}

static void every_allocation_fails_in_turn(void **state)
{
    int64_t n_want = 0, n;
    double want = 0, sum;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        if (kind && !can_pack(WEFT_COMPRESSION_GZIP))
            continue;
        for (int64_t fail_at = 0; fail_at < 100000; fail_at++) {
            struct counting c = {.fail_at = fail_at, .sticky = fail_at % 2};
            weft_allocator mem = counting_allocator(&c);
            weft_ctx *ctx = NULL;
            weft_status st =
                weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &mem), &ctx);

            if (!st)
                st = whole_life(ctx, kind, &n, &sum);
            weft_ctx_free(ctx);
            assert_int_equal(c.n_live, 0);
            assert_true(st == WEFT_OK || st == WEFT_ENOMEM);
            if (!fail_at) {
                assert_int_equal(st, WEFT_OK);
                assert_int_equal(n, N);
                n_want = n;
                want = sum;
            } else if (!st) {
                assert_int_equal(n, n_want);
                assert_true(sum == want);
                if (c.n_allocs < fail_at)
                    break; /* no call is left to fail */
            }
        }
    }
}

/* ---- file calls ------------------------------------------------------------------------------ */

static int64_t calls, fail_at;

static bool fails(void)
{
    return ++calls == fail_at;
}
static int f_open(void *arg, const char *path, int flags, int mode)
{
    return fails() ? -EMFILE : wf_fs_posix.open(arg, path, flags, mode);
}
static int64_t f_read(void *arg, int fd, void *buf, int64_t n)
{
    return fails() ? -EIO : wf_fs_posix.read(arg, fd, buf, n > 700 ? 700 : n);
}
static int64_t f_write(void *arg, int fd, const void *buf, int64_t n)
{
    return fails() ? -ENOSPC : wf_fs_posix.write(arg, fd, buf, n > 700 ? 700 : n);
}
static int64_t f_pread(void *arg, int fd, void *buf, int64_t n, int64_t offset)
{
    return fails() ? -EIO : wf_fs_posix.pread(arg, fd, buf, n > 700 ? 700 : n, offset);
}
static int64_t f_seek(void *arg, int fd, int64_t offset)
{
    return fails() ? -EIO : wf_fs_posix.seek(arg, fd, offset);
}
static int64_t f_size(void *arg, int fd)
{
    return fails() ? -EIO : wf_fs_posix.size(arg, fd);
}
static int f_truncate(void *arg, int fd, int64_t size)
{
    return fails() ? -EIO : wf_fs_posix.truncate(arg, fd, size);
}
static int f_sync(void *arg, int fd)
{
    return fails() ? -EIO : wf_fs_posix.sync(arg, fd);
}
static int f_close(void *arg, int fd)
{
    int rc = wf_fs_posix.close(arg, fd);

    return fails() ? -EIO : rc;
}
static int f_rename(void *arg, const char *from, const char *to)
{
    return fails() ? -EIO : wf_fs_posix.rename(arg, from, to);
}
static int f_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    return fails() ? -EMFILE : wf_fs_posix.open_at(arg, dir, name, flags, mode);
}
static int f_rename_at(void *arg, int dir, const char *from, const char *to)
{
    return fails() ? -EIO : wf_fs_posix.rename_at(arg, dir, from, to);
}
static int f_stat_at(void *arg, int dir, const char *name, struct wf_file_info *out)
{
    return fails() ? -EIO : wf_fs_posix.stat_at(arg, dir, name, out);
}
static int f_lock(void *arg, int fd)
{
    return fails() ? -ENOLCK : wf_fs_posix.lock(arg, fd);
}
static int f_list_at(void *arg, int dir, int (*each)(void *, const char *), void *each_arg)
{
    return fails() ? -EIO : wf_fs_posix.list_at(arg, dir, each, each_arg);
}
static int f_stat(void *arg, const char *path, struct wf_file_info *out)
{
    return fails() ? -EIO : wf_fs_posix.stat(arg, path, out);
}

static void every_file_call_fails_in_turn(void **state)
{
    const struct wf_fs fs = {
        .open = f_open,
        .read = f_read,
        .write = f_write,
        .pread = f_pread,
        .seek = f_seek,
        .size = f_size,
        .truncate = f_truncate,
        .sync = f_sync,
        .close = f_close,
        .rename = f_rename,
        .unlink = wf_fs_posix.unlink,
        .stat = f_stat,
        .glob = wf_fs_posix.glob,
        .lock = f_lock,
        .open_at = f_open_at,
        .rename_at = f_rename_at,
        .unlink_at = wf_fs_posix.unlink_at,
        .stat_at = f_stat_at,
        .list_at = f_list_at,
        .unique = wf_fs_posix.unique,
    };
    int64_t n;
    double sum;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        int64_t n_failed = 0;

        if (kind && !can_pack(WEFT_COMPRESSION_GZIP))
            continue;
        for (fail_at = 1; fail_at < 10000; fail_at++) {
            weft_ctx *ctx;
            weft_status st;
            int64_t rest;

            unlink(in_scratch("a.tfrecord.weftidx"));
            assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
            rest = weft_ctx_memory(ctx);
            ctx->fs = &fs;
            calls = 0;
            st = whole_life(ctx, kind, &n, &sum);
            assert_int_equal(weft_ctx_memory(ctx), rest);
            assert_true(st != WEFT_EBUG);
            if (st) {
                assert_true(weft_error()[0] != 0);
                n_failed++;
            }
            weft_ctx_free(ctx);
            if (calls < fail_at)
                break;
        }
        assert_true(n_failed > 10 && fail_at < 10000);
    }
}

static int setup(void **state)
{
    (void)state;
    scratch_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_drop();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_in_turn),
        cmocka_unit_test(every_file_call_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
