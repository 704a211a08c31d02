/* csv.c - tables in text files: RFC 4180 and what people write instead. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/base.h"
#include "weft/weft.h"
#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

static weft_ctx *ctx;
static char dir[] = "csv-XXXXXX";

/* ---- helpers --------------------------------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char path[4][256];
    static int i;

    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static const char *put(const char *name, const char *text)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return path;
}

static void show_item(const weft_tensor *t, int64_t i, struct wf_buf *out)
{
    const weft_str *s = t->data;

    switch ((int)t->dtype) {
    case WEFT_F32: wf_buf_printf(out, "%.9g", (double)((float *)t->data)[i]); break;
    case WEFT_F64: wf_buf_printf(out, "%.17g", ((double *)t->data)[i]); break;
    case WEFT_I64: wf_buf_printf(out, "%lld", (long long)((int64_t *)t->data)[i]); break;
    case WEFT_I32: wf_buf_printf(out, "%d", ((int32_t *)t->data)[i]); break;
    case WEFT_I8: wf_buf_printf(out, "%d", ((int8_t *)t->data)[i]); break;
    case WEFT_U8: wf_buf_printf(out, "%d", ((uint8_t *)t->data)[i]); break;
    case WEFT_BOOL: wf_buf_printf(out, "%s", ((bool *)t->data)[i] ? "yes" : "no"); break;
    default: wf_buf_printf(out, "<%.*s>", (int)s[i].n, s[i].data);
    }
}

static void show_batch(const weft_batch *b, struct wf_buf *out)
{
    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];
        int64_t n = weft_tensor_count(t);

        wf_buf_printf(out, "%s", c ? "|" : "");
        for (int64_t i = 0; i < n; i++) {
            wf_buf_printf(out, "%s", i ? " " : "");
            show_item(t, i, out);
        }
    }
    wf_buf_printf(out, "\n");
}

/* All elements as text; the status at the end. */
static weft_status read_all(weft_data *d, weft_ds s, int threads, struct wf_buf *out)
{
    weft_iter *it;
    weft_batch *b;
    weft_status st = weft_iter_new(
        d, s, WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it);

    if (st)
        return st;
    while (!(st = weft_iter_next(it, &b)) && b) {
        show_batch(b, out);
        weft_batch_free(b);
    }
    weft_iter_free(it);
    return st;
}

static void expect(const char *file, const weft_csv_opts *opts, const char *want)
{
    weft_data *d;
    weft_ds s;
    struct wf_buf out;

    for (int threads = 0; threads <= 3; threads += threads ? 2 : 1) {
        assert_int_equal(weft_data_new(ctx, &d), 0);
        wf_buf_init(&out, ctx, 1 << 20);
        wf_buf_printf(&out, "%s", "");
        s = weft_ds_csv(d, file, opts);
        if (weft_data_status(d) || read_all(d, s, threads, &out))
            fail_msg("%s", weft_error());
        assert_string_equal(out.data, want);
        wf_buf_free(&out);
        weft_data_free(d);
    }
}

static void expect_error(const char *file, const weft_csv_opts *opts, const char *want)
{
    weft_data *d;
    weft_ds s;
    struct wf_buf out;
    weft_status st;

    for (int threads = 0; threads <= 2; threads += 2) {
        assert_int_equal(weft_data_new(ctx, &d), 0);
        wf_buf_init(&out, ctx, 1 << 20);
        s = weft_ds_csv(d, file, opts);
        st = weft_data_status(d);
        if (!st)
            st = read_all(d, s, threads, &out);
        assert_int_not_equal(st, 0);
        if (!strstr(weft_error(), want))
            fail_msg("error is: %s\nand should have: %s", weft_error(), want);
        wf_buf_free(&out);
        weft_data_free(d);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void plain_rows_with_inferred_types(void **s)
{
    (void)s;
    expect(put("a.csv", "id,price,city\n1,2.5,Ulm\n-7,3,New York\n"), NULL,
           "1|2.5|<Ulm>\n-7|3|<New York>\n");
    expect(put("a.csv", "id,price,city\n1,2.5,Ulm\n-7,3,x"), NULL, "1|2.5|<Ulm>\n-7|3|<x>\n");
}

static void quotes_hide_delimiters_newlines_and_quotes(void **s)
{
    (void)s;
    expect(put("a.csv",
               "a,b\n\"x,y\",1\n\"two\nlines\",2\n\"say \"\"hi\"\"\",3\n\"\",4\n\"\"\"\",5\n"
               "\"12\",6\n\"a\"\"\",\"7\"\n"),
           NULL, "<x,y>|1\n<two\nlines>|2\n<say \"hi\">|3\n<>|4\n<\">|5\n<12>|6\n<a\">|7\n");
}

static void a_quote_inside_a_field_is_a_character(void **s)
{
    (void)s;
    expect(put("a.csv", "a,b\n5\" pipe,1\nx\"y\"z,2\n \"q\",3\n"), NULL,
           "<5\" pipe>|1\n<x\"y\"z>|2\n< \"q\">|3\n");
    expect(put("a.csv", "a,b\n\"p,1\nq\",2\n"), WEFT_OPTS(weft_csv_opts, .no_quotes = true),
           "<\"p>|1\n<q\">|2\n");
    expect(put("a.csv", "a,b\n'p,1',1\n"), WEFT_OPTS(weft_csv_opts, .quote = '\''), "<p,1>|1\n");
}

static void lines_may_end_with_crlf(void **s)
{
    (void)s;
    expect(put("a.csv", "a,b\r\n1,x\r\n\r\n2,\"y\"\r\n3,\"z\r\n\""), NULL,
           "1|<x>\n2|<y>\n3|<z\r\n>\n");
    expect(put("a.csv", "a,b\r\n1,2\r\n3,4"), NULL, "1|2\n3|4\n");
}

static void empty_lines_comments_and_marks_are_left_out(void **s)
{
    (void)s;
    expect(put("a.csv", "\xef\xbb\xbf\n\na,b\n\n1,2\n\n\n3,4\n\n"), NULL, "1|2\n3|4\n");
    expect(put("a.csv", "# it's \"odd\na,b\n# c\n1,2\n#,\"\n3,4\n# end"),
           WEFT_OPTS(weft_csv_opts, .comment = '#'), "1|2\n3|4\n");
    expect(put("a.csv", "\xef\xbb\xbf"
                        "1,2\n3,4\n"),
           WEFT_OPTS(weft_csv_opts, .no_header = true), "1|2\n3|4\n");
}

static void other_delimiters(void **s)
{
    (void)s;
    expect(put("a.csv", "a\tb\n1\tx,y\n"), WEFT_OPTS(weft_csv_opts, .delimiter = '\t'),
           "1|<x,y>\n");
    expect(put("a.csv", "a;b\n1;\"x;y\"\n"), WEFT_OPTS(weft_csv_opts, .delimiter = ';'),
           "1|<x;y>\n");
    expect(put("a.csv", "a b\n1 2\n"), WEFT_OPTS(weft_csv_opts, .delimiter = ' '), "1|2\n");
}

static void without_header_columns_are_numbered_or_named(void **s)
{
    (void)s;
    expect(put("a.csv", "1,x\n2,y\n"),
           WEFT_OPTS(weft_csv_opts, .no_header = true, .select = "c1, c0"), "<x>|1\n<y>|2\n");
    expect(put("a.csv", "1,x\n2,y\n"),
           WEFT_OPTS(weft_csv_opts, .no_header = true, .names = "n, s", .select = "s"),
           "<x>\n<y>\n");
    expect(put("a.csv", "q,q\n1,x\n"), WEFT_OPTS(weft_csv_opts, .names = "n,s"), "1|<x>\n");
    expect(put("a.csv", "a,b,c\n1,2,3\n"), WEFT_OPTS(weft_csv_opts, .select = "#2,#0"), "3|1\n");
    expect(put("a.csv", "a, b ,,\"d\"\"\"\n1,2,3,4\n"),
           WEFT_OPTS(weft_csv_opts, .select = "b, c2, d\""), "2|3|4\n");
}

static void a_table_of_one_column(void **s)
{
    (void)s;
    expect(put("a.csv", "x\n1\n2\n\n3\n"), NULL, "1\n2\n3\n");
    expect(put("a.csv", "x\n1"), NULL, "1\n");
    expect(put("a.csv", "x\n"), NULL, "");
    expect(put("a.csv", "x"), NULL, "");
}

/* ---- types and missing values ---------------------------------------------------------------- */

static void declared_types(void **s)
{
    (void)s;
    expect(
        put("a.csv", "a,b,c,d,e,f,g,h,i\n1,2,3,4,5,true,ff,x,0.1\n0,-2,-3,200,-5,0,10,y,1e300\n"),
        WEFT_OPTS(weft_csv_opts, .types = "a:f32,b:i64,c:i32,d:u8,e:i8,f:bool,g:hex,h:str,i:f64"),
        "1|2|3|4|5|yes|255|<x>|0.10000000000000001\n0|-2|-3|200|-5|no|16|<y>|1.0000000000000001e+"
        "300\n");
    expect(put("a.csv", "a,b,c\n1,2,3\n"), WEFT_OPTS(weft_csv_opts, .types = "*:str, b:f32"),
           "<1>|2|<3>\n");
    expect(put("a.csv", "a,b\n 1 , 2.5\t\n\" 3\",4\n"), NULL, "1|2.5\n3|4\n");
}

static void missing_values_take_defaults(void **s)
{
    (void)s;
    expect(put("a.csv", "a,b,c\n1,2,x\n,NA,\n"), NULL, "1|2|<x>\nnan|nan|<>\n");
    expect(put("a.csv", "a,b,c\n1,2,x\n,NaN,\n\"\",null,\"\"\n"),
           WEFT_OPTS(weft_csv_opts, .types = "a:i64", .defaults = "a:-1, b:0.5, c:none"),
           "1|2|<x>\n-1|0.5|<none>\n-1|0.5|<none>\n");
    expect(put("a.csv", "a,b\n1,2\n-999,?\n"),
           WEFT_OPTS(weft_csv_opts, .missing = "?, -999", .defaults = "*:0"), "1|2\n0|0\n");
    expect_error(put("a.csv", "a\n1\n\"\"\n"), WEFT_OPTS(weft_csv_opts, .types = "a:i64"),
                 "a.csv: record 1 (byte 4): column 'a': the value is missing");
}

static void groups_stack_columns(void **s)
{
    (void)s;
    expect(put("a.csv", "y,n0,n1,n2,c0,c1\n1,0.5,2,3,7,8\n0,1,,9,10,11\n"),
           WEFT_OPTS(weft_csv_opts, .groups = "num = n0..n2; cat = c0, c1", .label = "y"),
           "1|0.5 2 3|7 8\n0|1 nan 9|10 11\n");
    expect(put("a.csv", "y,n0,n1,n2\n1,1,2,3\n"),
           WEFT_OPTS(weft_csv_opts, .groups = "n = n2, n0", .select = "n, y", .types = "n:f64"),
           "3 1|1\n");
    expect_error(put("a.csv", "a,b\n1,x\n"), WEFT_OPTS(weft_csv_opts, .groups = "g = a..b"),
                 "group 'g': column 'b' is str");
    expect_error(path_of("a.csv"), WEFT_OPTS(weft_csv_opts, .groups = "g = a..q"), "no column 'q'");
    expect_error(path_of("a.csv"), WEFT_OPTS(weft_csv_opts, .groups = "g = a; h = a"),
                 "two groups");
}

static void roles_are_set(void **s)
{
    weft_data *d;
    weft_ds ds;
    const weft_column *col;
    int n;

    (void)s;
    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_csv(d, put("a.csv", "x0,x1,y,w\n1,2,3,4\n"),
                     WEFT_OPTS(weft_csv_opts, .label = "y", .weight = "w", .groups = "x=x0..x1"));
    assert_int_equal(weft_ds_columns(d, ds, &n, &col), 0);
    assert_int_equal(n, 3);
    assert_string_equal(col[0].name, "x");
    assert_int_equal(col[0].rank, 1);
    assert_int_equal(col[0].dim[0], 2);
    assert_int_equal(col[1].role, WEFT_LABEL);
    assert_int_equal(col[2].role, WEFT_WEIGHT);
    weft_data_free(d);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void errors_name_file_record_byte_column_and_text(void **s)
{
    (void)s;
    expect_error(put("a.csv", "a,b\n1,2\n3\n"), NULL,
                 "a.csv: record 1 (byte 8): 1 column; 2 are expected: no 'b'");
    expect_error(put("a.csv", "a,b\n1,2\n3,4,5,6\n"), NULL, "record 1 (byte 8): 4 columns; 2");
    expect_error(put("a.csv", "a,b\n1,2\n3,x4\n"), WEFT_OPTS(weft_csv_opts, .infer_rows = 1),
                 "record 1 (byte 8): column 'b': 'x4' is not a valid i64");
    expect_error(put("a.csv", "a,b\n1,2\n3,4.5\n"), WEFT_OPTS(weft_csv_opts, .infer_rows = 1),
                 "'4.5' is not an i64: declare the column f32");
    expect_error(put("a.csv", "a,b\n1,2\n3,\"4\n5,6\n"), NULL,
                 "column 'b': a quote is never closed");
    expect_error(put("a.csv", "a,b\n1,2\n\"3\"x,4\n"), NULL,
                 "column 'a': text after a closing quote");
    expect_error(put("a.csv", "a\n99999999999999999999\n"),
                 WEFT_OPTS(weft_csv_opts, .types = "a:i64"),
                 "'99999999999999999999' is not an i64");
    expect_error(put("a.csv", "a\n300\n"), WEFT_OPTS(weft_csv_opts, .types = "a:u8"),
                 "'300' is not a valid u8");
}

static void builders_refuse_what_makes_no_sense(void **s)
{
    const char *file = put("a.csv", "alpha,beta\n1,2\n");

    (void)s;
    expect_error(file, WEFT_OPTS(weft_csv_opts, .label = "bet"), "did you mean");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .select = "gamma"), "no column 'gamma'");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .select = "alpha, alpha"), "twice");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .types = "alpha:f99"), "'f99' is not one of");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .delimiter = '"'), "must differ");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .delimiter = '.'), "cannot be delimiter");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .defaults = "alpha:x"), "'x' is not a valid i64");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .names = "a,b,c"), "3 names are given");
    expect_error(put("b.csv", "a,a\n1,2\n"), NULL, "two columns are named 'a'");
    expect_error(put("b.csv", ""), NULL, "has no rows");
    expect_error(path_of("absent.csv"), NULL, "absent.csv");
    expect_error(file, WEFT_OPTS(weft_csv_opts, .index = true, .on_error = WEFT_ON_ERROR_SKIP),
                 "index");
}

static void bad_rows_can_be_skipped_and_are_counted(void **s)
{
    weft_data *d;
    weft_ds ds;
    weft_iter *it;
    weft_batch *b;
    weft_stage_stats stats;
    struct wf_buf out;

    (void)s;
    put("a.csv", "a,b\n1,2\n3\n4,x\n\"5\"y,6\n7,8,9\n10,11\n\"\n12,13\n");
    for (int threads = 0; threads <= 2; threads++) {
        assert_int_equal(weft_data_new(ctx, &d), 0);
        wf_buf_init(&out, ctx, 1 << 20);
        ds =
            weft_ds_csv(d, path_of("a.csv"),
                        WEFT_OPTS(weft_csv_opts, .on_error = WEFT_ON_ERROR_SKIP, .types = "*:i64"));
        ds = weft_ds_batch(d, ds, 2, NULL);
        assert_int_equal(
            weft_iter_new(d, ds,
                          WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it),
            0);
        while (!weft_iter_next(it, &b) && b) {
            show_batch(b, &out);
            assert_int_equal(b->id[0], 0);
            assert_int_equal(b->id[1], 5);
            weft_batch_free(b);
        }
        assert_string_equal(out.data, "1 10|2 11\n");
        assert_int_equal(weft_iter_stage(it, 0, &stats), 0);
        assert_string_equal(stats.name, "csv");
        assert_int_equal(stats.n_skipped, 5);
        weft_iter_free(it);
        wf_buf_free(&out);
        weft_data_free(d);
    }
}

/* ---- many rows, files, positions ------------------------------------------------------------- */

enum { N_ROWS = 20000 };

static void write_parts(const char *stem, int n_files, int n_rows, bool gz)
{
    int id = 0;

    for (int k = 0; k < n_files; k++) {
        char name[64];
        FILE *f;
#ifdef WF_HAVE_ZLIB
        gzFile g = NULL;
#endif
        char row[512];

        snprintf(name, sizeof name, "%s-%d.csv%s", stem, k, gz ? ".gz" : "");
#ifdef WF_HAVE_ZLIB
        if (gz)
            g = gzopen(path_of(name), "wb1");
#endif
        f = gz ? NULL : fopen(path_of(name), "wb");
        for (int r = -1; r < n_rows; r++) {
            int n = r < 0 ? snprintf(row, sizeof row, "id,x,s\n")
                          : wf_snprintf(row, sizeof row, "%d,%.6g,\"%s%d\"%s", id, sin(id),
                                        id % 7 ? "" : "\"\"\n", id % 1000 * (id % 1000) % 1000,
                                        r == n_rows - 1 ? ""
                                        : id % 11       ? "\n"
                                                        : "\r\n\n");

            id += r >= 0;
#ifdef WF_HAVE_ZLIB
            if (gz)
                assert_int_equal(gzwrite(g, row, (unsigned)n), n);
#endif
            if (!gz)
                assert_int_equal(fwrite(row, 1, (size_t)n, f), n);
        }
#ifdef WF_HAVE_ZLIB
        if (gz)
            gzclose(g);
#endif
        if (!gz)
            fclose(f);
    }
}

static void check_parts(const char *pattern, const weft_csv_opts *opts, int threads, int n_rows)
{
    weft_data *d;
    weft_ds ds;
    weft_iter *it;
    weft_batch *b;
    int64_t id = 0;
    weft_status st;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_batch(d, weft_ds_csv(d, pattern, opts), 96, NULL);
    st = weft_iter_new(d, ds, WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO),
                       &it);
    if (st)
        fail_msg("%s", weft_error());
    while (!(st = weft_iter_next(it, &b)) && b) {
        const int64_t *ids = b->col[0].data;
        const float *x = b->col[1].data;
        const weft_str *text = b->col[2].data;

        for (int64_t i = 0; i < b->n; i++, id++) {
            char want[64], number[32];
            wf_locale plain;
            float v;

            if (ids[i] != id)
                fail_msg("threads %d, index %d: row %lld where %lld should be", threads,
                         opts && opts->index, (long long)ids[i], (long long)id);
            assert_int_equal(b->id[i], id);
            wf_snprintf(number, sizeof number, "%.6g", sin((double)id));
            plain = wf_plain_locale_enter();
            v = strtof(number, NULL);
            wf_plain_locale_leave(plain);
            assert_true(x[i] == v);
            snprintf(want, sizeof want, "%s%lld", id % 7 ? "" : "\"\n",
                     (long long)(id % 1000 * (id % 1000) % 1000));
            assert_int_equal(text[i].n, strlen(want));
            assert_memory_equal(text[i].data, want, strlen(want));
        }
        weft_batch_free(b);
    }
    if (st)
        fail_msg("%s", weft_error());
    assert_int_equal(id, n_rows);
    weft_iter_free(it);
    weft_data_free(d);
}

static void many_rows_over_many_chunks_and_files(void **s)
{
    (void)s;
    write_parts("part", 3, N_ROWS, false);
    for (int threads = 0; threads <= 3; threads += threads ? 2 : 1) {
        check_parts(path_of("part-*.csv"), NULL, threads, 3 * N_ROWS);
        check_parts(path_of("part-*.csv"), WEFT_OPTS(weft_csv_opts, .index = true), threads,
                    3 * N_ROWS);
    }
#ifdef WF_HAVE_ZLIB
    write_parts("pack", 2, N_ROWS, true);
    for (int threads = 0; threads <= 2; threads += 2)
        check_parts(path_of("pack-*.csv.gz"), NULL, threads, 2 * N_ROWS);
    expect_error(path_of("pack-0.csv.gz"), WEFT_OPTS(weft_csv_opts, .index = true),
                 "uncompressed files, but");
#endif
}

static void files_must_have_the_same_header(void **s)
{
    char both[600];

    (void)s;
    snprintf(both, sizeof both, "%s,%s", put("h0.csv", "a,b\n1,2\n"), put("h1.csv", "a,c\n3,4\n"));
    expect_error(both, NULL, "h1.csv: the header differs");
    expect_error(both, WEFT_OPTS(weft_csv_opts, .index = true), "h1.csv: the header differs");
    snprintf(both, sizeof both, "%s,%s,%s", put("h0.csv", "a,b\n1,2"), put("h2.csv", ""),
             put("h1.csv", "\xef\xbb\xbf"
                           "a,b\r\n3,4\n"));
    expect(both, NULL, "1|2\n3|4\n");
    expect(both, WEFT_OPTS(weft_csv_opts, .index = true), "1|2\n3|4\n");
}

/* Save behind every element; a new iterator restored there yields the rest. */
static void every_position_can_be_saved_and_restored(void **s)
{
    weft_csv_opts plain = {.size = sizeof plain}, index = {.size = sizeof index, .index = true};

    (void)s;
    write_parts("save", 3, 20, false);
    for (int kind = 0; kind < 2; kind++) {
        for (int threads = 0; threads <= 3; threads += 3) {
            weft_data *d;
            weft_ds ds;
            weft_iter *it, *again;
            weft_batch *b;
            struct wf_buf all, rest;
            char *state;
            int64_t n;

            assert_int_equal(weft_data_new(ctx, &d), 0);
            ds = weft_ds_csv(d, path_of("save-*.csv"), kind ? &index : &plain);
            wf_buf_init(&all, ctx, 1 << 20);
            assert_int_equal(read_all(d, ds, threads, &all), 0);
            for (int k = 0; k <= 60; k++) {
                weft_iter_opts o = {.size = sizeof o, .threads = threads ? threads : WEFT_ZERO};

                wf_buf_init(&rest, ctx, 1 << 20);
                assert_int_equal(weft_iter_new(d, ds, &o, &it), 0);
                assert_int_equal(weft_iter_new(d, ds, &o, &again), 0);
                for (int i = 0; i < k; i++) {
                    assert_int_equal(weft_iter_next(it, &b), 0);
                    show_batch(b, &rest);
                    weft_batch_free(b);
                }
                assert_int_equal(weft_iter_save(it, &state, &n), 0);
                assert_int_equal(weft_iter_restore(again, state, n), 0);
                weft_text_free(ctx, state);
                while (!weft_iter_next(again, &b) && b) {
                    show_batch(b, &rest);
                    weft_batch_free(b);
                }
                assert_string_equal(rest.data, all.data);
                weft_iter_free(it);
                weft_iter_free(again);
                wf_buf_free(&rest);
            }
            wf_buf_free(&all);
            weft_data_free(d);
        }
    }
}

static void an_index_makes_rows_addressable(void **s)
{
    weft_data *d;
    weft_ds ds;
    weft_iter *it;
    weft_batch *b;
    bool seen[300] = {false};
    int n = 0, moved = 0;

    (void)s;
    write_parts("idx", 3, 100, false);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_csv(d, path_of("idx-*.csv"), WEFT_OPTS(weft_csv_opts, .index = true));
    assert_true(weft_ds_addressable(d, ds));
    assert_int_equal(weft_ds_count(d, ds), 300);
    ds = weft_ds_shuffle_all(d, ds, WEFT_OPTS(weft_shuffle_opts, .seed = 3));
    ds = weft_ds_batch(d, ds, 7, NULL);
    assert_int_equal(weft_iter_new(d, ds, WEFT_OPTS(weft_iter_opts, .threads = 2), &it), 0);
    while (!weft_iter_next(it, &b) && b) {
        const int64_t *id = b->col[0].data;
        const weft_str *text = b->col[2].data;

        for (int64_t i = 0; i < b->n; i++, n++) {
            char want[64];

            assert_false(seen[id[i]]);
            seen[id[i]] = true;
            assert_int_equal(b->id[i], id[i]);
            moved += id[i] != n;
            snprintf(want, sizeof want, "%s%d", id[i] % 7 ? "" : "\"\n",
                     (int)(id[i] * id[i] % 1000));
            assert_int_equal(text[i].n, strlen(want));
            assert_memory_equal(text[i].data, want, strlen(want));
        }
        weft_batch_free(b);
    }
    assert_int_equal(n, 300);
    assert_true(moved > 200);
    weft_iter_free(it);
    weft_data_free(d);
}

/* Read the file by an index; the sum of its first column. */
static int64_t indexed_sum(const char *file, const weft_csv_opts *opts)
{
    weft_data *d;
    weft_ds ds;
    weft_iter *it;
    weft_batch *b;
    int64_t sum = 0;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    ds = weft_ds_shuffle_all(d, weft_ds_csv(d, file, opts), NULL);
    if (weft_iter_new(d, weft_ds_batch(d, ds, 100, NULL), NULL, &it))
        fail_msg("%s", weft_error());
    while (!weft_iter_next(it, &b) && b) {
        for (int64_t i = 0; i < b->n; i++)
            sum += ((int64_t *)b->col[0].data)[i];
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return sum;
}

static void a_kept_list_of_rows_is_used_while_it_fits(void **s)
{
    weft_csv_opts o = {.size = sizeof o, .index = true};
    const char *file = path_of("large.csv");
    char kept[300], pad[1025];
    FILE *f = fopen(file, "wb");
    int64_t sum;

    (void)s;
    snprintf(kept, sizeof kept, "%s.weftrows", file);
    memset(pad, 'x', sizeof pad - 1);
    pad[sizeof pad - 1] = 0;
    fprintf(f, "id,pad\n");
    for (int i = 0; i < 17000; i++)
        fprintf(f, "%d,%s\n", i, pad);
    fclose(f);
    sum = indexed_sum(file, &o);
    assert_int_equal(access(kept, F_OK), 0);
    assert_int_equal(indexed_sum(file, &o), sum);
    f = fopen(kept, "r+b"); /* damaged: found out, and made again */
    fseek(f, 1000, SEEK_SET);
    fputc(0x5a, f);
    fclose(f);
    assert_int_equal(indexed_sum(file, &o), sum);
    f = fopen(file, "ab"); /* the table has grown */
    fprintf(f, "17000,x\n");
    fclose(f);
    assert_int_equal(indexed_sum(file, &o), sum + 17000);
    o.quote = '\''; /* other rules */
    assert_int_equal(indexed_sum(file, &o), sum + 17000);
    unlink(kept);
    o.index_dir = dir;
    sum = indexed_sum(file, &o);
    assert_int_not_equal(access(kept, F_OK), 0);
    assert_int_equal(indexed_sum(file, &o), sum);
    o.index_dir = "no/such/folder";
    assert_int_equal(indexed_sum(file, &o), sum);
}

static void a_row_longer_than_a_chunk(void **s)
{
    size_t n = 3 << 20;
    char *text = malloc(n + 64), *big = malloc(n + 128);
    const char *path;
    FILE *f;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)s;
    memset(text, 'x', n);
    path = put("long.csv", "a,b\n1,short\n");
    f = fopen(path, "ab");
    fprintf(f, "2,\"");
    fwrite(text, 1, n, f);
    fprintf(f, "\"\n3,end\n");
    fclose(f);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    assert_int_equal(weft_iter_new(d, weft_ds_csv(d, path, NULL), NULL, &it), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_iter_next(it, &b), 0);
        assert_int_equal(*(int64_t *)b->col[0].data, i + 1);
        assert_int_equal(((weft_str *)b->col[1].data)->n, i == 1 ? (int64_t)n : i ? 3 : 5);
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    expect_error(path, WEFT_OPTS(weft_csv_opts, .max_row_bytes = 2 << 20), "the row is too long");
    free(text);
    free(big);
}

/* ---- Criteo ---------------------------------------------------------------------------------- */

static void criteo_rows(void **s)
{
    weft_data *d;
    weft_ds ds;
    struct wf_buf out;
    char text[2000] = "";

    (void)s;
    for (int r = 0; r < 2; r++) {
        strcat(text, r ? "0" : "1");
        for (int i = 0; i < 13; i++)
            sprintf(text + strlen(text), i == 3 ? "\t" : "\t%d", i - 1);
        for (int i = 0; i < 26; i++)
            sprintf(text + strlen(text),
                    i == 5   ? "\t"
                    : i == 6 ? "\tFFFFFFFF"
                             : "\t%08x",
                    i * 0x1234567);
        strcat(text, "\n");
    }
    put("criteo.tsv", text);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    wf_buf_init(&out, ctx, 1 << 20);
    ds = weft_ds_criteo(d, path_of("criteo.tsv"), NULL);
    if (weft_data_status(d) || read_all(d, ds, 2, &out))
        fail_msg("%s", weft_error());
    assert_non_null(strstr(
        out.data,
        "1|-1 0 1 nan 3 4 5 6 7 8 9 10 11|0 19088743 38177486 57266229 76354972 -1 4294967295"));
    assert_non_null(strstr(out.data, "\n0|-1 0 1 nan 3"));
    wf_buf_free(&out);
    weft_data_free(d);

    put("test.tsv", strchr(text, '\t') + 1);
    *strchr(strchr(text, '\n'), '\n') = 0;
    put("test.tsv", strchr(text, '\t') + 1);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    wf_buf_init(&out, ctx, 1 << 20);
    ds = weft_ds_criteo(
        d, path_of("test.tsv"),
        WEFT_OPTS(weft_criteo_opts, .no_label = true, .missing_num = "0", .missing_cat = "0"));
    if (weft_data_status(d) || read_all(d, ds, 0, &out))
        fail_msg("%s", weft_error());
    assert_int_equal(
        strncmp(out.data,
                "-1 0 1 0 3 4 5 6 7 8 9 10 11|0 19088743 38177486 57266229 76354972 0 4294967295",
                70),
        0);
    wf_buf_free(&out);
    weft_data_free(d);
}

/* ---- writing --------------------------------------------------------------------------------- */

static char *slurp(const char *path)
{
    char *text;
    int64_t n;

    assert_int_equal(wf_file_read(ctx, path, 1 << 20, &text, &n), 0);
    return text;
}

static void written_fields_are_quoted_where_they_must_be(void **s)
{
    weft_column col[] = {{.name = "a,b", .dtype = WEFT_STR},
                         {.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}},
                         {.name = "n", .dtype = WEFT_U8}};
    weft_str text[] = {{"plain", 5}, {"a,b", 3}, {"say \"hi\"", 8}, {"two\nlines", 9}, {"", 0}};
    float x[] = {0.1f,     NAN,           1e-10f, 16777216.f,      -0.0f,
                 INFINITY, 3.4028235e38f, 1,      1.17549435e-38f, 2};
    uint8_t n[] = {0, 1, 2, 254, 255};
    weft_tensor batch[] = {weft_view(WEFT_STR, text, 1, (int64_t[]){4}),
                           weft_view(WEFT_F32, x, 2, (int64_t[]){4, 2}),
                           weft_view(WEFT_U8, n, 1, (int64_t[]){4})};
    weft_tensor row[] = {weft_view(WEFT_STR, &text[4], 0, NULL),
                         weft_view(WEFT_F32, &x[8], 1, (int64_t[]){2}),
                         weft_view(WEFT_U8, &n[4], 0, NULL)};
    weft_csv_writer *w;
    char *got;

    (void)s;
    assert_int_equal(weft_csv_writer_new(ctx, path_of("w.csv"), 3, col, NULL, &w), 0);
    assert_int_equal(weft_csv_writer_add_batch(w, batch), 0);
    assert_int_equal(weft_csv_writer_add(w, row), 0);
    assert_int_not_equal(access(path_of("w.csv"), F_OK), 0);
    assert_int_equal(weft_csv_writer_close(w), 0);
    got = slurp(path_of("w.csv"));
    assert_string_equal(got, "\"a,b\",x0,x1,n\nplain,0.1,,0\n\"a,b\",1e-10,16777216,1\n"
                             "\"say \"\"hi\"\"\",-0,inf,2\n\"two\nlines\",3.4028235e+38,1,254\n"
                             ",1.1754944e-38,2,255\n");
    wf_free(ctx, got);
    expect(path_of("w.csv"), WEFT_OPTS(weft_csv_opts, .names = "t,x0,x1,n", .groups = "x=x0..x1"),
           "<plain>|0.100000001 nan|0\n<a,b>|1.00000001e-10 16777216|1\n<say \"hi\">|-0 inf|2\n"
           "<two\nlines>|3.40282347e+38 1|254\n<>|1.17549435e-38 2|255\n");
    row[2].dtype = WEFT_I64;
    assert_int_equal(weft_csv_writer_new(ctx, path_of("w.csv"), 3, col, NULL, &w), 0);
    assert_int_equal(weft_csv_writer_add(w, row), WEFT_ESHAPE);
    assert_int_equal(weft_csv_writer_close(w), WEFT_ESHAPE);
    expect(path_of("w.csv"), WEFT_OPTS(weft_csv_opts, .names = "t,x0,x1,n", .select = "n"),
           "0\n1\n2\n254\n255\n");
}

static void a_writer_can_be_abandoned(void **s)
{
    weft_column col = {.name = "x", .dtype = WEFT_F32};
    float v = NAN;
    weft_tensor row = weft_view(WEFT_F32, &v, 0, NULL);
    weft_csv_writer *w;
    char *got;

    (void)s;
    put("kept.csv", "old");
    assert_int_equal(weft_csv_writer_new(ctx, path_of("kept.csv"), 1, &col, NULL, &w), 0);
    weft_csv_writer_free(w);
    got = slurp(path_of("kept.csv"));
    assert_string_equal(got, "old");
    wf_free(ctx, got);
    assert_int_equal(weft_csv_writer_new(
                         ctx, path_of("kept.csv"), 1, &col,
                         WEFT_OPTS(weft_csv_writer_opts, .delimiter = ';', .no_header = true), &w),
                     0);
    assert_int_equal(weft_csv_writer_add(w, &row), 0);
    v = 2;
    assert_int_equal(weft_csv_writer_add(w, &row), 0);
    assert_int_equal(weft_csv_writer_close(w), 0);
    expect(path_of("kept.csv"), WEFT_OPTS(weft_csv_opts, .no_header = true), "nan\n2\n");
    assert_int_equal(weft_csv_writer_new(ctx, path_of("kept.csv"), 1, &col,
                                         WEFT_OPTS(weft_csv_writer_opts, .missing = "NA"), &w),
                     0);
    v = NAN;
    assert_int_equal(weft_csv_writer_add(w, &row), 0);
    assert_int_equal(weft_csv_writer_close(w), 0);
    got = slurp(path_of("kept.csv"));
    assert_string_equal(got, "x\nNA\n");
    wf_free(ctx, got);
    assert_int_not_equal(weft_csv_writer_new(ctx, "no/such/folder.csv", 1, &col, NULL, &w), 0);
}

static int set_up(void **s)
{
    (void)s;
    return !mkdtemp(dir) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
}

static int tear_down(void **s)
{
    char command[64];

    (void)s;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rows_with_inferred_types),
        cmocka_unit_test(quotes_hide_delimiters_newlines_and_quotes),
        cmocka_unit_test(a_quote_inside_a_field_is_a_character),
        cmocka_unit_test(lines_may_end_with_crlf),
        cmocka_unit_test(empty_lines_comments_and_marks_are_left_out),
        cmocka_unit_test(other_delimiters),
        cmocka_unit_test(without_header_columns_are_numbered_or_named),
        cmocka_unit_test(a_table_of_one_column),
        cmocka_unit_test(declared_types),
        cmocka_unit_test(missing_values_take_defaults),
        cmocka_unit_test(groups_stack_columns),
        cmocka_unit_test(roles_are_set),
        cmocka_unit_test(errors_name_file_record_byte_column_and_text),
        cmocka_unit_test(builders_refuse_what_makes_no_sense),
        cmocka_unit_test(bad_rows_can_be_skipped_and_are_counted),
        cmocka_unit_test(many_rows_over_many_chunks_and_files),
        cmocka_unit_test(files_must_have_the_same_header),
        cmocka_unit_test(every_position_can_be_saved_and_restored),
        cmocka_unit_test(an_index_makes_rows_addressable),
        cmocka_unit_test(a_kept_list_of_rows_is_used_while_it_fits),
        cmocka_unit_test(a_row_longer_than_a_chunk),
        cmocka_unit_test(criteo_rows),
        cmocka_unit_test(written_fields_are_quoted_where_they_must_be),
        cmocka_unit_test(a_writer_can_be_abandoned),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
