/* sqlite.c - rows of SQLite queries. Skipped with a message if SQLite is missing. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/base.h"
#include "base/library.h"
#include "weft/weft.h"

static weft_ctx *ctx;
static char dir[] = "sqlite-XXXXXX", path[64];

/* Just enough of SQLite to make a database. */
struct calls {
    int (*open)(const char *, void **);
    int (*exec)(void *, const char *, void *, void *, char **);
    int (*close)(void *);
};

static bool make_database(const char *const *sql)
{
    static const struct wf_dl_call list[] = {{"sqlite3_open", offsetof(struct calls, open)},
                                             {"sqlite3_exec", offsetof(struct calls, exec)},
                                             {"sqlite3_close", offsetof(struct calls, close)}};
    static const char *const files[] = {"libsqlite3.so.0", NULL};
    struct calls f;
    void *db;

#ifndef WF_HAVE_SQLITE
    print_message("skipped: this build has no SQLite\n");
    return false;
#endif
    if (wf_dl_load(files, "libsqlite3-0", list, 3, &f)) {
        print_message("skipped: %s\n", weft_error());
        return false;
    }
    unlink(path);
    assert_int_equal(f.open(path, &db), 0);
    for (; *sql; sql++)
        assert_int_equal(f.exec(db, *sql, NULL, NULL, NULL), 0);
    f.close(db);
    return true;
}

static void show(const weft_batch *b, struct wf_buf *out)
{
    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];
        const weft_str *s = t->data;

        wf_buf_printf(out, "%s", c ? "|" : "");
        switch ((int)t->dtype) {
        case WEFT_F32: wf_buf_printf(out, "%.9g", (double)*(float *)t->data); break;
        case WEFT_F64: wf_buf_printf(out, "%.17g", *(double *)t->data); break;
        case WEFT_I64: wf_buf_printf(out, "%lld", (long long)*(int64_t *)t->data); break;
        case WEFT_U8: wf_buf_printf(out, "%d", *(uint8_t *)t->data); break;
        case WEFT_BOOL: wf_buf_printf(out, "%s", *(bool *)t->data ? "yes" : "no"); break;
        default: wf_buf_printf(out, "<%.*s>", (int)s->n, s->data);
        }
    }
    wf_buf_printf(out, "\n");
}

static weft_status query(const char *sql, const weft_sql_opts *opts, int threads,
                         struct wf_buf *out)
{
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    weft_status st;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    wf_buf_init(out, ctx, 16 << 20);
    wf_buf_printf(out, "%s", "");
    st = weft_iter_new(d, weft_ds_sqlite(d, path, sql, opts),
                       WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it);
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        show(b, out);
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return st;
}

static void expect(const char *sql, const weft_sql_opts *opts, const char *want)
{
    struct wf_buf out;

    for (int threads = 0; threads <= 3; threads += threads ? 2 : 1) {
        if (query(sql, opts, threads, &out))
            fail_msg("%s", weft_error());
        assert_string_equal(out.data, want);
        wf_buf_free(&out);
    }
}

static void expect_error(const char *sql, const weft_sql_opts *opts, const char *want)
{
    struct wf_buf out;

    assert_int_not_equal(query(sql, opts, 2, &out), 0);
    if (!strstr(weft_error(), want))
        fail_msg("error is: %s\nand should have: %s", weft_error(), want);
    wf_buf_free(&out);
}

static const char *const small[] = {
    "CREATE TABLE t(id INTEGER PRIMARY KEY, x REAL, name TEXT, raw BLOB, n NUMERIC, ok BOOLEAN)",
    "INSERT INTO t VALUES(1, 0.5, 'Ulm', x'414243', 7, 1), (2, 3, 'a''b', x'', 2.5, 0)",
    "CREATE TABLE holes(a INT, b REAL, c TEXT)",
    "INSERT INTO holes VALUES(1, 2.5, 'x'), (NULL, NULL, NULL)",
    "CREATE TABLE mixed(v INT)",
    "INSERT INTO mixed VALUES(1), (2.5), ('x')",
    NULL};

static void types_come_from_the_result(void **s)
{
    (void)s;
    if (!make_database(small))
        return;
    expect("SELECT * FROM t ORDER BY id", NULL, "1|0.5|<Ulm>|<ABC>|7|1\n2|3|<a'b>|<>|2.5|0\n");
    expect("SELECT id * 2 AS d, x + 0.25 AS y, name || '!' AS s FROM t ORDER BY id;", NULL,
           "2|0.75|<Ulm!>\n4|3.25|<a'b!>\n");
    expect("SELECT id, n, ok FROM t ORDER BY id",
           WEFT_OPTS(weft_sql_opts, .types = "id:u8, n:f64, ok:bool"), "1|7|yes\n2|2.5|no\n");
    expect("SELECT id AS a, x AS b FROM t WHERE id > 100", NULL, "");
}

static void null_takes_defaults(void **s)
{
    (void)s;
    if (!make_database(small))
        return;
    expect("SELECT * FROM holes", WEFT_OPTS(weft_sql_opts, .defaults = "a:-1"),
           "1|2.5|<x>\n-1|nan|<>\n");
    expect("SELECT * FROM holes", WEFT_OPTS(weft_sql_opts, .defaults = "a:0, b:9, c:none"),
           "1|2.5|<x>\n0|9|<none>\n");
    expect_error("SELECT a FROM holes", NULL, "row 1: column 'a': the value is NULL");
}

static void errors_are_clear(void **s)
{
    (void)s;
    if (!make_database(small))
        return;
    expect_error("SELECT nope FROM t", NULL, "no such column: nope");
    expect_error("SELEC 1", NULL, "syntax error");
    expect_error("SELECT 1; SELECT 2", NULL, "one statement");
    expect_error("DELETE FROM t", NULL, "");
    expect_error("  ;", NULL, "empty");
    expect_error("SELECT v FROM mixed", WEFT_OPTS(weft_sql_opts, .types = "v:i64"),
                 "column 'v': '2.5' is not a valid i64");
    expect_error("SELECT name FROM t", WEFT_OPTS(weft_sql_opts, .types = "name:f32"),
                 "'Ulm' is not a valid f32");
    expect_error("SELECT id FROM t", WEFT_OPTS(weft_sql_opts, .label = "idd"), "did you mean");
    unlink(path);
    expect_error("SELECT 1", NULL, "cannot open");
    assert_int_not_equal(access(path, F_OK), 0);
}

static const char *const large[] = {
    "CREATE TABLE big(id INTEGER PRIMARY KEY, x REAL, pad TEXT)",
    "WITH RECURSIVE k(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 49999) "
    "INSERT INTO big SELECT i, i * 0.5, printf('%01000d', i) FROM k",
    NULL};

static long peak_kb(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss;
}

static void a_large_table_streams_in_little_memory(void **s)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    int64_t n = 0;
    long before;

    (void)s;
    if (!make_database(large))
        return;
    before = peak_kb();
    assert_int_equal(weft_data_new(ctx, &d), 0);
    assert_int_equal(
        weft_iter_new(d,
                      weft_ds_batch(d,
                                    weft_ds_sqlite(d, path, "SELECT * FROM big ORDER BY id", NULL),
                                    100, NULL),
                      WEFT_OPTS(weft_iter_opts, .threads = 2, .memory = 8 << 20), &it),
        0);
    while (!weft_iter_next(it, &b) && b) {
        assert_int_equal(((int64_t *)b->col[0].data)[0], n);
        assert_int_equal(b->id[0], n);
        assert_true(((float *)b->col[1].data)[0] == (float)n * 0.5f);
        assert_int_equal(((weft_str *)b->col[2].data)[99].n, 1000);
        n += b->n;
        weft_batch_free(b);
    }
    assert_int_equal(n, 50000);
    weft_iter_free(it);
    weft_data_free(d);
    if (!getenv("WEFT_TEST_QUICK"))
        assert_true(peak_kb() - before < 40 << 10); /* of 50 MB */
}

static void positions_are_saved_and_restored_in_every_epoch(void **s)
{
    const char *sql = "SELECT id FROM big WHERE id < 30 ORDER BY id DESC";
    weft_data *d;
    weft_ds ds;

    (void)s;
    if (!make_database(large))
        return;
    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_repeat(d, weft_ds_sqlite(d, path, sql, NULL), 2);
    for (int threads = 0; threads <= 2; threads += 2) {
        for (int k = 0; k <= 60; k++) {
            weft_iter_opts o = {.size = sizeof o, .threads = threads ? threads : WEFT_ZERO};
            weft_iter *it, *again;
            weft_batch *b;
            char *state;
            int64_t n;
            int i = k;

            assert_int_equal(weft_iter_new(d, ds, &o, &it), 0);
            assert_int_equal(weft_iter_new(d, ds, &o, &again), 0);
            for (int j = 0; j < k; j++) {
                assert_int_equal(weft_iter_next(it, &b), 0);
                weft_batch_free(b);
            }
            assert_int_equal(weft_iter_save(it, &state, &n), 0);
            assert_int_equal(weft_iter_restore(again, state, n), 0);
            weft_text_free(ctx, state);
            while (!weft_iter_next(again, &b) && b) {
                assert_int_equal(*(int64_t *)b->col[0].data, 29 - i % 30);
                weft_batch_free(b);
                i++;
            }
            assert_int_equal(i, 60);
            weft_iter_free(it);
            weft_iter_free(again);
        }
    }
    weft_data_free(d);
}

/* A query that would run for hours ends when its iterator is freed. */
static void closing_interrupts_a_long_query(void **s)
{
    const char *sql = "SELECT 1 AS one UNION ALL SELECT count(*) FROM big a, big b, big c WHERE "
                      "a.x + b.x = c.x * 3.7";
    struct timespec t0, t1;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)s;
    if (!make_database(large))
        return;
    assert_int_equal(weft_data_new(ctx, &d), 0);
    assert_int_equal(weft_iter_new(d, weft_ds_batch(d, weft_ds_sqlite(d, path, sql, NULL), 1, NULL),
                                   WEFT_OPTS(weft_iter_opts, .threads = 1), &it),
                     0);
    assert_int_equal(weft_iter_next(it, &b), 0);
    weft_batch_free(b);
    usleep(50000);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    weft_iter_free(it);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_true(t1.tv_sec - t0.tv_sec < 5);
    weft_data_free(d);
}

static int set_up(void **s)
{
    (void)s;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/t.db", dir);
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
}

static int tear_down(void **s)
{
    (void)s;
    weft_ctx_free(ctx);
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_come_from_the_result),
        cmocka_unit_test(null_takes_defaults),
        cmocka_unit_test(errors_are_clear),
        cmocka_unit_test(a_large_table_streams_in_little_memory),
        cmocka_unit_test(positions_are_saved_and_restored_in_every_epoch),
        cmocka_unit_test(closing_interrupts_a_long_query),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
