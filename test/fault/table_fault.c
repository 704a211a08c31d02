/* table_fault.c - reading and writing tables while every allocation, then every file call, fails in
 * turn. Whatever fails: a clear status, nothing leaked, a file being replaced as it was, and the
 * next try works. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/counting.h"
#include "base/base.h"
#include "base/library.h"
#include "weft/weft.h"

static char dir[] = "table-XXXXXX", csv_path[64], svm_path[64], out_path[64], db_path[64];
static bool has_sqlite;

/* ---- a file system whose n-th call fails ----------------------------------------------------- */

struct faulty {
    struct wf_fs fs;
    int64_t n_calls, fail_at;
    int n_open;
};

static bool fails(void *arg)
{
    struct faulty *f = arg;

    return ++f->n_calls == f->fail_at;
}

static int f_open(void *arg, const char *path, int flags, int mode)
{
    struct faulty *f = arg;
    int fd = fails(arg) ? -EMFILE : wf_fs_posix.open(NULL, path, flags, mode);

    f->n_open += fd >= 0;
    return fd;
}

static int64_t f_read(void *arg, int fd, void *buf, int64_t n)
{
    return fails(arg) ? -EIO : wf_fs_posix.read(NULL, fd, buf, n);
}

static int64_t f_write(void *arg, int fd, const void *buf, int64_t n)
{
    return fails(arg) ? -ENOSPC : wf_fs_posix.write(NULL, fd, buf, n);
}

static int64_t f_pread(void *arg, int fd, void *buf, int64_t n, int64_t offset)
{
    return fails(arg) ? -EIO : wf_fs_posix.pread(NULL, fd, buf, n, offset);
}

static int64_t f_seek(void *arg, int fd, int64_t offset)
{
    return fails(arg) ? -EIO : wf_fs_posix.seek(NULL, fd, offset);
}

static int f_sync(void *arg, int fd)
{
    return fails(arg) ? -EIO : wf_fs_posix.sync(NULL, fd);
}

static int f_close(void *arg, int fd)
{
    struct faulty *f = arg;

    f->n_open--;
    return wf_fs_posix.close(NULL, fd);
}

static int f_rename(void *arg, const char *from, const char *to)
{
    return fails(arg) ? -EACCES : wf_fs_posix.rename(NULL, from, to);
}

static int f_open_at(void *arg, int at, const char *name, int flags, int mode)
{
    struct faulty *f = arg;
    int fd = fails(arg) ? -EMFILE : wf_fs_posix.open_at(NULL, at, name, flags, mode);

    f->n_open += fd >= 0;
    return fd;
}

static int f_rename_at(void *arg, int at, const char *from, const char *to)
{
    return fails(arg) ? -EACCES : wf_fs_posix.rename_at(NULL, at, from, to);
}

static void faulty_init(struct faulty *f)
{
    memset(f, 0, sizeof *f);
    f->fs = wf_fs_posix;
    f->fs.arg = f;
    f->fs.open = f_open;
    f->fs.read = f_read;
    f->fs.write = f_write;
    f->fs.pread = f_pread;
    f->fs.seek = f_seek;
    f->fs.sync = f_sync;
    f->fs.close = f_close;
    f->fs.rename = f_rename;
    f->fs.open_at = f_open_at;
    f->fs.rename_at = f_rename_at;
}

/* ---- what is tried --------------------------------------------------------------------------- */

static weft_status drain(weft_data *d, weft_ds s, int64_t want)
{
    weft_iter *it = NULL;
    weft_batch *b;
    int64_t n = 0;
    weft_status st = weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);

    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        n += b->n;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    if (!st)
        assert_int_equal(n, want);
    return st;
}

static weft_ds build(weft_data *d, int what)
{
    switch (what) {
    case 0:
        return weft_ds_csv(
            d, csv_path,
            WEFT_OPTS(weft_csv_opts, .groups = "g = a..b", .label = "s", .defaults = "a:1"));
    case 1:
        return weft_ds_csv(d, csv_path, WEFT_OPTS(weft_csv_opts, .index = true, .types = "*:str"));
    case 2: return weft_ds_libsvm(d, svm_path, NULL);
    case 3: return weft_ds_libsvm(d, svm_path, WEFT_OPTS(weft_libsvm_opts, .dense_width = 20));
    default:
        return weft_ds_sqlite(d, db_path, "SELECT * FROM t ORDER BY a",
                              WEFT_OPTS(weft_sql_opts, .defaults = "s:none", .label = "a"));
    }
}

static weft_status write_some(weft_ctx *ctx)
{
    weft_column col[] = {{.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}},
                         {.name = "s", .dtype = WEFT_STR}};
    float x[] = {1, 2};
    weft_str s = {"a,b", 3};
    weft_tensor row[] = {weft_view(WEFT_F32, x, 1, (int64_t[]){2}),
                         weft_view(WEFT_STR, &s, 0, NULL)};
    weft_csv_writer *w = NULL;
    weft_status st = weft_csv_writer_new(ctx, out_path, 2, col,
                                         WEFT_OPTS(weft_csv_writer_opts, .missing = "NA"), &w);

    for (int i = 0; i < 3 && !st; i++)
        st = weft_csv_writer_add(w, row);
    if (st) {
        weft_csv_writer_free(w);
        return st;
    }
    return weft_csv_writer_close(w);
}

static weft_status whole_life(const weft_allocator *mem, const struct wf_fs *fs, int what)
{
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = mem), &ctx);

    if (st)
        return st;
    if (fs)
        ctx->fs = fs;
    if (what == 4) {
        st = write_some(ctx);
    } else {
        st = weft_data_new(ctx, &d);
        if (!st)
            st = drain(
                d, weft_ds_batch(d, build(d, what), 16, WEFT_OPTS(weft_batch_opts, .ragged = true)),
                100);
    }
    weft_data_free(d);
    weft_ctx_free(ctx);
    return st;
}

enum { N_KINDS = 5 }; /* and SQLite, which reads files by itself */

static void check_output(bool written)
{
    FILE *f = fopen(out_path, "rb");
    char text[64] = "";

    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_string_equal(text, written ? "x0,x1,s\n1,2,\"a,b\"\n1,2,\"a,b\"\n1,2,\"a,b\"\n" : "old");
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void every_allocation_fails_in_turn(void **s)
{
    (void)s;
    for (int what = 0; what < N_KINDS + has_sqlite; what++) {
        struct counting c = {0};
        weft_allocator mem = counting_allocator(&c);
        int64_t total;

        put(out_path, "old");
        assert_int_equal(whole_life(&mem, NULL, what), WEFT_OK);
        assert_int_equal(c.n_live, 0);
        total = c.n_allocs;
        assert_true(total > 5);
        put(out_path, "old");
        for (int64_t i = 1; i <= total; i++) {
            c = (struct counting){.fail_at = i};
            weft_status st = whole_life(&mem, NULL, what);

            if (st != WEFT_ENOMEM)
                fail_msg("%d: allocation %lld of %lld failed: got %s (%s)", what, (long long)i,
                         (long long)total, weft_status_name(st), weft_error());
            assert_int_equal(c.n_live, 0);
            check_output(false);
        }
    }
}

static void every_file_call_fails_in_turn(void **s)
{
    (void)s;
    for (int what = 0; what < N_KINDS; what++) {
        struct counting c = {0};
        weft_allocator mem = counting_allocator(&c);
        struct faulty f;
        int64_t total;

        faulty_init(&f);
        assert_int_equal(whole_life(&mem, &f.fs, what), WEFT_OK);
        if (what == 4)
            check_output(true);
        total = f.n_calls;
        assert_true(total > 2);
        put(out_path, "old");
        for (int64_t i = 1; i <= total; i++) {
            weft_status st;

            faulty_init(&f);
            f.fail_at = i;
            st = whole_life(&mem, &f.fs, what);
            if (st != WEFT_EIO && st != WEFT_ENOSPC)
                fail_msg("%d: file call %lld of %lld failed: got %s (%s)", what, (long long)i,
                         (long long)total, weft_status_name(st), weft_error());
            assert_non_null(strstr(weft_error(), dir));
            assert_int_equal(c.n_live, 0);
            assert_int_equal(f.n_open, 0);
            check_output(false);
        }
    }
}

static bool make_database(void)
{
    struct calls {
        int (*open)(const char *, void **);
        int (*exec)(void *, const char *, void *, void *, char **);
        int (*close)(void *);
    } f;
    static const struct wf_dl_call list[] = {{"sqlite3_open", offsetof(struct calls, open)},
                                             {"sqlite3_exec", offsetof(struct calls, exec)},
                                             {"sqlite3_close", offsetof(struct calls, close)}};
    static const char *const files[] = {"libsqlite3.so.0", NULL};
    void *db;

#ifndef WF_HAVE_SQLITE
    print_message("skipped: this build has no SQLite\n");
    return false;
#endif
    if (wf_dl_load(files, "libsqlite3-0", list, 3, &f)) {
        print_message("without SQLite: %s\n", weft_error());
        return false;
    }
    assert_int_equal(f.open(db_path, &db), 0);
    assert_int_equal(
        f.exec(
            db,
            "CREATE TABLE t(a INT, x REAL, s TEXT); WITH RECURSIVE k(i) AS (SELECT 0 UNION ALL "
            "SELECT i + 1 FROM k WHERE i < 99) INSERT INTO t SELECT i, i / 2.0, 'text' || i FROM k",
            NULL, NULL, NULL),
        0);
    f.close(db);
    return true;
}

static int set_up(void **s)
{
    FILE *f;

    (void)s;
    if (!mkdtemp(dir))
        return 1;
    snprintf(csv_path, sizeof csv_path, "%s/t.csv", dir);
    snprintf(svm_path, sizeof svm_path, "%s/t.svm", dir);
    snprintf(out_path, sizeof out_path, "%s/o.csv", dir);
    snprintf(db_path, sizeof db_path, "%s/t.db", dir);
    has_sqlite = make_database();
    f = fopen(csv_path, "wb");
    fprintf(f, "a,b,s\n");
    for (int i = 0; i < 100; i++)
        fprintf(f, "%d,%d.5,\"say \"\"%d\"\"\"\n", i, i, i);
    fclose(f);
    f = fopen(svm_path, "wb");
    for (int i = 0; i < 100; i++)
        fprintf(f, "%d 1:%d 7:0.5\n", i, i);
    return fclose(f);
}

static int tear_down(void **s)
{
    (void)s;
    unlink(csv_path);
    unlink(svm_path);
    unlink(out_path);
    unlink(db_path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_in_turn),
        cmocka_unit_test(every_file_call_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
