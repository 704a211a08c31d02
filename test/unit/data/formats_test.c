/* The table of formats: each has a name and a doc, what is written is found out and read back,
 * and an option that a format does not take is an error. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drain_support.h"

static weft_ctx *ctx;
static char dir[64];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-formats-XXXXXX");
    return !mkdtemp(dir) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx) ? -1 : 0;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void each_row_is_found_by_its_name(void **state)
{
    const char *name, *suffixes, *takes, *doc;
    int n = 0;

    (void)state;
    for (; weft_format_at(n, &name, &suffixes, &takes, &doc); n++) {
        weft_format f = weft_format_parse(name);

        assert_int_equal(f, n + 1);
        assert_string_equal(weft_format_name(f), name);
        assert_non_null(strstr(weft_format_list(), name));
        assert_true(strlen(doc) > 10);
    }
    assert_true(n >= WEFT_N_FORMATS - 1);
    assert_int_equal(weft_format_parse("cvs"), WEFT_FORMAT_UNKNOWN);
    assert_string_equal(weft_format_name((weft_format)(n + 1)), "unknown");
    assert_string_equal(weft_format_name((weft_format)-1), "unknown");
}

static void an_option_that_a_format_does_not_take_is_refused(void **state)
{
    static const char *const options[] = {"types", "query",    "index",   "height",
                                          "width", "channels", "classes", "on_error"};
    static const char *const classes[] = {"a"};
    const char *name, *takes;
    int n_refused = 0, n_taken = 0;

    (void)state;
    for (int i = 0; weft_format_at(i, &name, NULL, &takes, NULL); i++)
        for (int k = 0; k < 8; k++) {
            weft_open_opts o = {.size = sizeof o,
                                .format = (weft_format)(i + 1),
                                .types = k == 0 ? "x:f32" : NULL,
                                .query = k == 1 ? "select 1" : NULL,
                                .index = k == 2,
                                .height = k == 3,
                                .width = k == 4,
                                .channels = k == 5,
                                .n_classes = k == 6,
                                .classes = classes,
                                .on_error = k == 7 ? WEFT_ON_ERROR_SKIP : WEFT_ON_ERROR_STOP};
            weft_data *d = NULL;
            char text[128];
            bool taken = strstr(takes, options[k]) != NULL;

            ok(weft_data_new(ctx, &d));
            weft_ds_open(d, "/nonexistent/file", &o);
            assert_int_not_equal(weft_data_status(d), WEFT_OK);
            snprintf(text, sizeof text, "the format %s does not take the option %s", name,
                     options[k]);
            assert_int_equal(strstr(weft_error(), text) != NULL, !taken);
            if (!taken)
                assert_int_equal(weft_data_status(d), WEFT_EINVAL);
            n_refused += !taken;
            n_taken += taken;
            weft_data_free(d);
        }
    assert_true(n_refused > 20 && n_taken > 10);
}

/* Two columns of three elements. */
static weft_ds source(weft_data *d)
{
    static float x[3][2] = {{1, 2}, {3, 4.5f}, {-5, 6}};
    static int32_t k[3] = {7, 8, 9};

    return weft_ds_tensors(d, 2,
                           (weft_column[]){{.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}},
                                           {.name = "k", .dtype = WEFT_I32}},
                           (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){3, 2}),
                                           weft_view(WEFT_I32, k, 1, (int64_t[]){3})});
}

static void write_all(weft_data *d, weft_ds s, const char *path)
{
    const weft_column *col;
    weft_file_writer *w = NULL;
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    int n;

    ok(weft_ds_columns(d, s, &n, &col));
    ok(weft_file_writer_new(ctx, path, n, col, &w));
    ok(weft_iter_new(d, s, NULL, &it));
    for (;;) {
        ok(weft_iter_next(it, &b));
        if (!b)
            break;
        ok(weft_file_writer_add(w, b->col));
        weft_batch_free(b);
    }
    weft_iter_free(it);
    ok(weft_file_writer_close(w));
}

static void what_is_written_is_found_out_and_read_back(void **state)
{
    const char *name, *suffixes;
    int n_written = 0;

    (void)state;
    for (int i = 0; weft_format_at(i, &name, &suffixes, NULL, NULL); i++) {
        size_t n;

        for (const char *p = suffixes; *p; p += n + (p[n] == ' ')) {
            bool one = !strcmp(name, "npy") || !strcmp(name, "idx");
            char path[128];
            weft_data *d = NULL;
            weft_format f;
            weft_ds s;

            n = strcspn(p, " ");
            snprintf(path, sizeof path, "%s/file%.*s", dir, (int)n, p);
            assert_int_equal(weft_format_written(path), i + 1);
            ok(weft_data_new(ctx, &d));
            s = weft_ds_select(d, source(d), "k");
            write_all(d, s, path);
            ok(weft_format_of(ctx, path, &f));
            assert_int_equal(f, !strcmp(name, "csv") ? WEFT_FORMAT_LINES : i + 1);
            s = weft_ds_open(d, path, WEFT_OPTS(weft_open_opts, .format = (weft_format)(i + 1)));
            {
                weft_iter *it = NULL;
                weft_batch *b = NULL;
                int64_t sum = 0, rows = 0;

                s = weft_ds_cast(d, s, one ? "file" : "k", WEFT_I64);
                ok(weft_iter_new(d, s, NULL, &it));
                for (;;) {
                    ok(weft_iter_next(it, &b));
                    if (!b)
                        break;
                    sum = sum * 10 + *(const int64_t *)b->col[0].data;
                    rows++;
                    weft_batch_free(b);
                }
                weft_iter_free(it);
                assert_int_equal(rows, 3);
                assert_int_equal(sum, 789);
            }
            weft_data_free(d);
            n_written++;
        }
    }
    assert_true(n_written >= 9);
}

static void what_a_format_cannot_hold_is_refused(void **state)
{
    const weft_column *col;
    weft_column text = {.name = "t", .dtype = WEFT_STR};
    weft_file_writer *w = NULL;
    weft_data *d = NULL;
    int n;

    (void)state;
    ok(weft_data_new(ctx, &d));
    ok(weft_ds_columns(d, source(d), &n, &col));
    assert_int_equal(weft_file_writer_new(ctx, "a.xls", n, col, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "the name 'a.xls' tells no format: .tfrecord"));
    assert_int_equal(weft_file_writer_new(ctx, "a.npy", n, col, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "holds one column, there are 2"));
    assert_int_equal(weft_file_writer_new(ctx, "a.npz", 1, &text, &w), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "column 't' is text"));
    assert_int_equal(weft_format_written(".csv"), WEFT_FORMAT_UNKNOWN);
    assert_null(w);
    weft_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_found_by_its_name),
        cmocka_unit_test(an_option_that_a_format_does_not_take_is_refused),
        cmocka_unit_test(what_is_written_is_found_out_and_read_back),
        cmocka_unit_test(what_a_format_cannot_hold_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
