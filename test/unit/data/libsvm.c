/* libsvm.c - sparse rows in text: LibSVM, ranking and LibFFM lines. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/base.h"
#include "weft/weft.h"

static weft_ctx *ctx;
static char dir[] = "libsvm-XXXXXX", path[64];

static void put(const char *text)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void show(const weft_batch *b, struct wf_buf *out)
{
    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];
        int64_t n = weft_tensor_count(t);

        wf_buf_printf(out, "%s", c ? "|" : "");
        for (int64_t i = 0; i < n; i++) {
            if (t->dtype == WEFT_F32)
                wf_buf_printf(out, "%s%.9g", i ? " " : "", (double)((float *)t->data)[i]);
            else
                wf_buf_printf(out, "%s%lld", i ? " " : "", (long long)((int64_t *)t->data)[i]);
        }
    }
    wf_buf_printf(out, "\n");
}

static weft_status read_all(const weft_libsvm_opts *opts, int threads, struct wf_buf *out,
                            int64_t *n_skipped)
{
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    weft_stage_stats stats;
    weft_status st;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    wf_buf_init(out, ctx, 16 << 20);
    wf_buf_printf(out, "%s", "");
    st = weft_iter_new(d, weft_ds_libsvm(d, path, opts),
                       WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it);
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        show(b, out);
        weft_batch_free(b);
    }
    if (it && n_skipped && !weft_iter_stage(it, 0, &stats))
        *n_skipped = stats.n_skipped;
    weft_iter_free(it);
    weft_data_free(d);
    return st;
}

static void expect(const weft_libsvm_opts *opts, const char *want)
{
    struct wf_buf out;

    for (int threads = 0; threads <= 3; threads += threads ? 2 : 1) {
        if (read_all(opts, threads, &out, NULL))
            fail_msg("%s", weft_error());
        assert_string_equal(out.data, want);
        wf_buf_free(&out);
    }
}

static void expect_error(const weft_libsvm_opts *opts, const char *want)
{
    struct wf_buf out;

    assert_int_not_equal(read_all(opts, 2, &out, NULL), 0);
    if (!strstr(weft_error(), want))
        fail_msg("error is: %s\nand should have: %s", weft_error(), want);
    wf_buf_free(&out);
}

static void sparse_lines(void **s)
{
    (void)s;
    put("+1 1:0.5 7:-2 10:1e3\n-1\n# a comment\n\n0.25 3:1 # behind\r\n1 4 6:2\t8:3\n2 1:1");
    expect(NULL, "1|0 6 9|0.5 -2 1000\n-1||\n0.25|2|1\n1|3 5 7|1 2 3\n2|0|1\n");
}

static void zero_based_and_dense(void **s)
{
    (void)s;
    put("1 0:0.5 3:2\n0\n1 1:9\n");
    expect(WEFT_OPTS(weft_libsvm_opts, .zero_based = true, .dense_width = 4),
           "1|0.5 0 0 2\n0|0 0 0 0\n1|0 9 0 0\n");
    expect(WEFT_OPTS(weft_libsvm_opts, .zero_based = true), "1|0 3|0.5 2\n0||\n1|1|9\n");
    expect_error(NULL, "record 0 (byte 0): '0:0.5': indices start at 1");
    put("1 5:1\n");
    expect_error(WEFT_OPTS(weft_libsvm_opts, .dense_width = 4),
                 "'5:1': the index is beyond dense_width");
}

static void queries_and_fields(void **s)
{
    (void)s;
    put("2 qid:7 1:0.5 2:1\n1 qid:8 3:2\n");
    expect(WEFT_OPTS(weft_libsvm_opts, .qid = true), "2|7|0 1|0.5 1\n1|8|2|2\n");
    expect(NULL, "2|0 1|0.5 1\n1|2|2\n");
    put("1 0:5:0.5 3:6:1\n0 1:7:2\n");
    expect(WEFT_OPTS(weft_libsvm_opts, .fields = true), "1|0 3|4 5|0.5 1\n0|1|6|2\n");
    expect_error(NULL, "'0:5:0.5': expected index:value (set fields for LibFFM)");
    put("1 1:2\n");
    expect_error(WEFT_OPTS(weft_libsvm_opts, .qid = true), "no qid:N after the label");
}

static void malformed_lines(void **s)
{
    static const char *const bad[][2] = {
        {"x 1:2\n", "'x': the label is not a number"},
        {"1 a:2\n", "'a:2': the index is not a number"},
        {"1 1:b\n", "'1:b': the value is not a number"},
        {"1 1:\n", "'1:': the value is not a number"},
        {"1 :1\n", "':1': the index is not a number"},
        {"1 1:2:3:4\n", "too many colons"},
        {"1 -5:1\n", "indices start at 1"},
        {"1 99999999999999999999:1\n", "the index is not a number"},
        {"1 qid:x 1:1\n", "the qid is not a number"},
    };
    int64_t n_skipped = 0;
    struct wf_buf out;

    (void)s;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put(bad[i][0]);
        expect_error(NULL, bad[i][1]);
    }
    put("1 1:1\nx\n2 2:b\n3 3:3\n");
    assert_int_equal(
        read_all(WEFT_OPTS(weft_libsvm_opts, .on_error = WEFT_ON_ERROR_SKIP), 2, &out, &n_skipped),
        0);
    assert_string_equal(out.data, "1|0|1\n3|2|3\n");
    assert_int_equal(n_skipped, 2);
    wf_buf_free(&out);
}

/* Long lines and many of them, batched with offsets; a position inside. */
static void many_lines(void **s)
{
    enum { N = 3000 };
    FILE *f = fopen(path, "wb");
    weft_data *d;
    weft_ds ds;

    (void)s;
    for (int i = 0; i < N; i++) {
        fprintf(f, "%d", i);
        for (int k = 0; k < i % 97; k++) {
            char text[32];

            wf_snprintf(text, sizeof text, " %d:%.6g", k * 3 + 1, (double)(i + k) / 8);
            fputs(text, f);
        }
        fprintf(f, "\n");
    }
    fclose(f);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_batch(d, weft_ds_libsvm(d, path, NULL), 50,
                       WEFT_OPTS(weft_batch_opts, .ragged = true));
    for (int threads = 0; threads <= 3; threads += 3) {
        weft_iter_opts o = {.size = sizeof o, .threads = threads ? threads : WEFT_ZERO};
        weft_iter *it, *again;
        weft_batch *b;
        char *state;
        int64_t n;
        int i = 0;

        assert_int_equal(weft_iter_new(d, ds, &o, &it), 0);
        assert_int_equal(weft_iter_new(d, ds, &o, &again), 0);
        while (!weft_iter_next(it, &b) && b) {
            const weft_tensor *off = weft_batch_find(b, "index:offsets");
            const weft_tensor *index = weft_batch_find(b, "index"),
                              *value = weft_batch_find(b, "value");

            assert_non_null(off);
            for (int64_t r = 0; r < b->n; r++, i++) {
                int64_t at = ((int64_t *)off->data)[r], len = ((int64_t *)off->data)[r + 1] - at;

                assert_true(((float *)b->col[0].data)[r] == (float)i);
                assert_int_equal(len, i % 97);
                for (int64_t k = 0; k < len; k++) {
                    assert_int_equal(((int64_t *)index->data)[at + k], 3 * k);
                    assert_true(((float *)value->data)[at + k] == (float)(i + k) / 8);
                }
            }
            weft_batch_free(b);
            if (i == N / 2) {
                assert_int_equal(weft_iter_save(it, &state, &n), 0);
                assert_int_equal(weft_iter_restore(again, state, n), 0);
                weft_text_free(ctx, state);
                weft_iter_free(it);
                it = again;
            }
        }
        assert_int_equal(i, N);
        weft_iter_free(it);
    }
    weft_data_free(d);
}

static int set_up(void **s)
{
    (void)s;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/t.svm", dir);
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
        cmocka_unit_test(sparse_lines),       cmocka_unit_test(zero_based_and_dense),
        cmocka_unit_test(queries_and_fields), cmocka_unit_test(malformed_lines),
        cmocka_unit_test(many_lines),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
