/* postgres.c - rows of PostgreSQL queries, from a server of our own.
 *
 * The server is made by initdb in a folder below /tmp, listens on a Unix socket in it and nowhere
 * else, and runs as an unprivileged user when we are root. Skipped with a message where the
 * server's programs are not installed. ctest-timeout: 180 */
#define _GNU_SOURCE
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
#include "weft/weft.h"

static weft_ctx *ctx;
static char dir[] = "/tmp/weft-pg-XXXXXX", conninfo[200];
static bool running;

/* ---- the server ------------------------------------------------------------------------------ */

/* Run shell text with $dir, $bin and the function `as`, which runs a command as the server's
 * user. */
static int shell(const char *text)
{
    char *command;
    int rc;

    if (asprintf(&command,
                 "dir=%s\n"
                 "bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)\n"
                 "[ -n \"$bin\" ] || bin=$(pg_config --bindir 2>/dev/null)\n"
                 "user=nobody; id postgres >/dev/null 2>&1 && user=postgres\n"
                 "as() { if [ $(id -u) = 0 ]; then\n"
                 "  setpriv --reuid=$user --regid=$(id -g $user) --clear-groups env HOME=$dir "
                 "LC_ALL=C \"$@\"\n"
                 "else LC_ALL=C \"$@\"; fi; }\n"
                 "cd /\n%s",
                 dir, text) < 0)
        return -1;
    rc = system(command);
    free(command);
    return rc;
}

static const char start_server[] = "[ -x \"$bin/initdb\" ] && [ -x \"$bin/pg_ctl\" ] || exit 77\n"
                                   "if [ $(id -u) = 0 ]; then chown $user $dir; fi\n"
                                   "as \"$bin/initdb\" -D $dir/data -A trust -U weft --no-sync "
                                   ">$dir/log 2>&1 || { cat $dir/log; exit 1; }\n"
                                   "as \"$bin/pg_ctl\" -D $dir/data -l $dir/data/log -w -t 60 -o "
                                   "\"-k $dir -h '' -c fsync=off\" start "
                                   ">$dir/log 2>&1 || { cat $dir/log $dir/data/log; exit 1; }\n";

static int set_up(void **s)
{
    int rc;

    (void)s;
    if (!mkdtemp(dir) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
#ifndef WF_HAVE_PQ
    print_message("skipped: this build has no PostgreSQL (libpq-dev)\n");
    return 0;
#endif
    rc = shell(start_server);
    if (rc != 0 && WEXITSTATUS(rc) == 77) {
        print_message(
            "skipped: the programs of PostgreSQL's server are not installed (postgresql)\n");
        return 0;
    }
    running = rc == 0;
    snprintf(conninfo, sizeof conninfo, "host=%s user=weft dbname=postgres password=sekret", dir);
    return rc != 0;
}

static int tear_down(void **s)
{
    (void)s;
    weft_ctx_free(ctx);
    if (running)
        shell("as \"$bin/pg_ctl\" -D $dir/data -m immediate stop >/dev/null 2>&1");
    return shell("rm -rf $dir");
}

/* ---- helpers --------------------------------------------------------------------------------- */

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
        case WEFT_BOOL: wf_buf_printf(out, "%s", *(bool *)t->data ? "yes" : "no"); break;
        default: wf_buf_printf(out, "<%.*s>", (int)s->n, s->data);
        }
    }
    wf_buf_printf(out, "\n");
}

static weft_status query(const char *info, const char *sql, const weft_sql_opts *opts, int threads,
                         struct wf_buf *out)
{
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    weft_status st;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    wf_buf_init(out, ctx, 16 << 20);
    wf_buf_printf(out, "%s", "");
    st = weft_iter_new(d, weft_ds_postgres(d, info, sql, opts),
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
        if (query(conninfo, sql, opts, threads, &out))
            fail_msg("%s", weft_error());
        assert_string_equal(out.data, want);
        wf_buf_free(&out);
    }
}

static void expect_error(const char *info, const char *sql, const weft_sql_opts *opts,
                         const char *want)
{
    struct wf_buf out;

    assert_int_not_equal(query(info, sql, opts, 2, &out), 0);
    if (!strstr(weft_error(), want))
        fail_msg("error is: %s\nand should have: %s", weft_error(), want);
    assert_null(strstr(weft_error(), "sekret"));
    wf_buf_free(&out);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void types_come_from_the_result(void **s)
{
    (void)s;
    if (!running)
        skip();
    expect("SELECT 1::int AS a, 2::bigint AS b, 0.5::float4 AS c, 0.1::float8 AS d, 2.25::numeric "
           "AS e, true AS f, "
           "'Ulm'::text AS g, '\\x41ff'::bytea AS h, '2020-01-02'::date AS i;",
           WEFT_OPTS(weft_sql_opts, .types = "d:f64"),
           "1|2|0.5|0.10000000000000001|2.25|yes|<Ulm>|<A\xff>|<2020-01-02>\n");
}

static void bytes_are_bytes(void **s)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)s;
    if (!running)
        skip();
    assert_int_equal(weft_data_new(ctx, &d), 0);
    assert_int_equal(
        weft_iter_new(d, weft_ds_postgres(d, conninfo, "SELECT '\\x00414aff'::bytea AS h", NULL),
                      NULL, &it),
        0);
    assert_int_equal(weft_iter_next(it, &b), 0);
    assert_int_equal(((weft_str *)b->col[0].data)->n, 4);
    assert_memory_equal(((weft_str *)b->col[0].data)->data, "\0AJ\xff", 4);
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
}

static void null_takes_defaults(void **s)
{
    const char *sql = "SELECT * FROM (VALUES (1, 2.5, 'x'), (NULL, NULL, NULL)) AS t(a, b, c)";

    (void)s;
    if (!running)
        skip();
    expect(sql, WEFT_OPTS(weft_sql_opts, .defaults = "a:-1"), "1|2.5|<x>\n-1|nan|<>\n");
    expect(sql, WEFT_OPTS(weft_sql_opts, .defaults = "a:0, b:9, c:none"),
           "1|2.5|<x>\n0|9|<none>\n");
    expect_error(conninfo, sql, NULL, "row 1: column 'a': the value is NULL");
}

static void errors_are_clear_and_keep_the_password(void **s)
{
    char info[300];

    (void)s;
    if (!running)
        skip();
    expect_error(conninfo, "SELECT nope", NULL, "column \"nope\" does not exist");
    expect_error(conninfo, "DROP TABLE x", NULL, "syntax error");
    expect_error(conninfo, "SELECT 1; SELECT 2", NULL, "multiple commands");
    expect_error(conninfo, "SELECT 1 / (3 - i) FROM generate_series(1, 5) i", NULL,
                 "division by zero");
    expect_error("host=/nowhere password=sekret", "SELECT 1", NULL, "cannot connect");
    expect_error("sekret in the wrong place", "SELECT 1", NULL, "connection string");
    expect_error("postgresql://u:sekret@[broken", "SELECT 1", NULL, "connection string");
    snprintf(info, sizeof info, "host=%s user=weft dbname=absent_sekret password=sekret", dir);
    expect_error(info, "SELECT 1", NULL, "absent_");
}

static long peak_kb(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss;
}

static void two_hundred_thousand_rows_stream_in_little_memory(void **s)
{
    const char *sql = "SELECT i AS id, i * 0.5::float8 AS x, repeat('x', 400) AS pad FROM "
                      "generate_series(0, 199999) i "
                      "ORDER BY i";
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    int64_t n = 0;
    long before;

    (void)s;
    if (!running)
        skip();
    before = peak_kb();
    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (weft_iter_new(d, weft_ds_batch(d, weft_ds_postgres(d, conninfo, sql, NULL), 128, NULL),
                      WEFT_OPTS(weft_iter_opts, .threads = 2, .memory = 8 << 20), &it))
        fail_msg("%s", weft_error());
    while (!weft_iter_next(it, &b) && b) {
        for (int64_t i = 0; i < b->n; i++, n++) {
            assert_int_equal(((int64_t *)b->col[0].data)[i], n);
            assert_int_equal(b->id[i], n);
            assert_true(((float *)b->col[1].data)[i] == (float)n * 0.5f);
            assert_int_equal(((weft_str *)b->col[2].data)[i].n, 400);
        }
        weft_batch_free(b);
    }
    assert_int_equal(n, 200000);
    weft_iter_free(it);
    weft_data_free(d);
    if (!getenv("WEFT_TEST_QUICK"))
        assert_true(peak_kb() - before < 48 << 10); /* of 80 MB */
}

static void positions_are_saved_and_restored_in_every_epoch(void **s)
{
    weft_data *d;
    weft_ds ds;

    (void)s;
    if (!running)
        skip();
    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_postgres(
        d, conninfo, "SELECT i::int8 AS id FROM generate_series(0, 9) i ORDER BY i DESC", NULL);
    ds = weft_ds_repeat(d, ds, 2);
    for (int k = 0; k <= 20; k++) {
        weft_iter_opts o = {.size = sizeof o, .threads = k % 2 ? 2 : WEFT_ZERO};
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
            assert_int_equal(*(int64_t *)b->col[0].data, 9 - i % 10);
            weft_batch_free(b);
            i++;
        }
        assert_int_equal(i, 20);
        weft_iter_free(it);
        weft_iter_free(again);
    }
    weft_data_free(d);
}

static void closing_interrupts_a_long_query(void **s)
{
    const char *sql =
        "SELECT i, CASE WHEN i > 300 THEN pg_sleep(100) END FROM generate_series(1, 1000) i";
    struct timespec t0, t1;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)s;
    if (!running)
        skip();
    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (weft_iter_new(d, weft_ds_batch(d, weft_ds_postgres(d, conninfo, sql, NULL), 100, NULL),
                      WEFT_OPTS(weft_iter_opts, .threads = 1), &it))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_iter_next(it, &b), 0);
    weft_batch_free(b);
    usleep(50000);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    weft_iter_free(it);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_true(t1.tv_sec - t0.tv_sec < 5);
    weft_data_free(d);
}

/* Last: the server is gone afterwards. */
static void a_server_that_dies_in_mid_query_is_a_clear_error(void **s)
{
    const char *sql = "SELECT i, repeat('x', 400) AS pad FROM generate_series(1, 2000000) i";
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_status st;
    int n = 0;

    (void)s;
    if (!running)
        skip();
    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (weft_iter_new(d, weft_ds_batch(d, weft_ds_postgres(d, conninfo, sql, NULL), 100, NULL),
                      WEFT_OPTS(weft_iter_opts, .threads = 2), &it))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_iter_next(it, &b), 0);
    weft_batch_free(b);
    assert_int_equal(shell("as \"$bin/pg_ctl\" -D $dir/data -m immediate stop >/dev/null 2>&1"), 0);
    running = false;
    while (!(st = weft_iter_next(it, &b)) && b) {
        weft_batch_free(b);
        n++;
    }
    assert_int_equal(st, WEFT_EIO);
    assert_non_null(strstr(weft_error(), "connection is lost"));
    assert_null(strstr(weft_error(), "sekret"));
    print_message("after %d batches: %s\n", n, weft_error());
    weft_iter_free(it);
    weft_data_free(d);
    expect_error(conninfo, "SELECT 1", NULL, "cannot connect");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_come_from_the_result),
        cmocka_unit_test(bytes_are_bytes),
        cmocka_unit_test(null_takes_defaults),
        cmocka_unit_test(errors_are_clear_and_keep_the_password),
        cmocka_unit_test(two_hundred_thousand_rows_stream_in_little_memory),
        cmocka_unit_test(positions_are_saved_and_restored_in_every_epoch),
        cmocka_unit_test(closing_interrupts_a_long_query),
        cmocka_unit_test(a_server_that_dies_in_mid_query_is_a_clear_error),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
