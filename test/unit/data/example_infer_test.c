/* The columns of TFRecord files of Examples, found out from the first records: also when some of
 * them are odd. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "files_support.h"
#include "weft/weft.h"
#include "wire_support.h"

static weft_ctx *ctx;
static char logged[4096];

static void keep_log(void *arg, int level, const char *line)
{
    (void)arg;
    if (level >= WEFT_LOG_WARN)
        snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", line);
}

static int set_up(void **state)
{
    (void)state;
    scratch_make();
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = keep_log), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    scratch_drop();
    return 0;
}

/* A file of these records. */
static const char *write_records(int n, const struct wire *records)
{
    const char *path = in_scratch("infer.tfrecord");
    weft_record_writer *w;

    assert_int_equal(weft_record_writer_new(ctx, path, NULL, &w), WEFT_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(weft_record_writer_add(w, records[i].p, records[i].n), WEFT_OK);
    assert_int_equal(weft_record_writer_close(w), WEFT_OK);
    return path;
}

struct found {
    weft_status st;
    char columns[256]; /* "a f32[], b str[?]" */
    int64_t n, n_skipped;
    char error[512];
};

static void describe(weft_data *d, weft_ds s, char *to, size_t room)
{
    const weft_column *col;
    int n = 0;

    *to = 0;
    if (weft_ds_columns(d, s, &n, &col))
        return;
    for (int c = 0; c < n; c++) {
        size_t at = strlen(to);

        at += (size_t)snprintf(to + at, room - at, "%s%s %s[", c ? ", " : "", col[c].name,
                               col[c].dtype == WEFT_STR ? "str" : weft_dtype_name(col[c].dtype));
        for (int k = 0; k < col[c].rank; k++)
            at += (size_t)(col[c].dim[k] < 0 ? snprintf(to + at, room - at, "%s?", k ? "," : "")
                                             : snprintf(to + at, room - at, "%s%d", k ? "," : "",
                                                        (int)col[c].dim[k]));
        snprintf(to + at, room - at, "]");
    }
}

/* What opening and reading the file gives. */
static struct found open_file(const char *path, weft_on_error on_error)
{
    struct found f = {0};
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    weft_ds s;

    logged[0] = 0;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_open(d, path, WEFT_OPTS(weft_open_opts, .on_error = on_error));
    f.st = weft_data_status(d);
    if (!f.st)
        describe(d, s, f.columns, sizeof f.columns);
    if (!f.st)
        f.st = weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    while (!f.st && !(f.st = weft_iter_next(it, &b)) && b) {
        f.n++;
        weft_batch_free(b);
    }
    if (f.st)
        snprintf(f.error, sizeof f.error, "%s", weft_error());
    for (int i = 0; it && i < weft_iter_n_stages(it); i++) {
        weft_stage_stats stats;

        if (!weft_iter_stage(it, i, &stats))
            f.n_skipped += stats.n_skipped;
    }
    weft_iter_free(it);
    weft_data_free(d);
    return f;
}

/* {a: 1 float, b: 1 integer} */
static struct wire usual(int i)
{
    struct wire e[2] = {entry("a", floats(1, (float[]){(float)i})),
                        entry("b", ints(1, (int64_t[]){i}))};

    return example(2, e);
}

static void the_usual_ones_have_fixed_shapes(void **state)
{
    struct wire r[3] = {usual(0), usual(1), usual(2)};
    struct found f = open_file(write_records(3, r), WEFT_ON_ERROR_STOP);

    (void)state;
    assert_int_equal(f.st, WEFT_OK);
    assert_string_equal(f.columns, "a f32[], b i64[]");
    assert_int_equal(f.n, 3);
    assert_string_equal(logged, "");
}

/* Unknown fields, at every level: skipped, as protobuf does. */
static void unknown_fields_are_passed_over(void **state)
{
    struct wire feature = floats(1, (float[]){2}), e, map = {.n = 0}, r[3] = {usual(0), usual(1)};
    struct found f;

    (void)state;
    put_varint(&feature, 9 << 3); /* a number */
    put_varint(&feature, 7);
    put_bytes(&feature, 7, "later", 5);
    e = entry("a", feature);
    put_bytes(&e, 12, "new", 3);
    put_wire(&map, 1, &e);
    e = entry("b", ints(1, (int64_t[]){5}));
    put_wire(&map, 1, &e);
    put_varint(&map, 3 << 3);
    put_varint(&map, 1);
    put_bytes(&r[2], 15, "unknown", 7);
    put_wire(&r[2], 1, &map);
    put_varint(&r[2], 16 << 3 | 5); /* four bytes */
    memcpy(r[2].p + r[2].n, "1234", 4);
    r[2].n += 4;
    f = open_file(write_records(3, r), WEFT_ON_ERROR_STOP);
    assert_string_equal(f.error, "");
    assert_string_equal(f.columns, "a f32[], b i64[]");
    assert_int_equal(f.n, 3);
}

/* One record with another kind of list, wherever it is: an error that names both, or skipped and
 * counted. */
static void a_mistyped_record_is_named_or_left_out(void **state)
{
    (void)state;
    for (int at = 0; at < 5; at++) {
        struct wire r[5], e[2] = {entry("a", texts(1, (const char *[]){"1.5"})),
                                  entry("b", ints(1, (int64_t[]){at}))};
        char record[32];
        struct found f;

        for (int i = 0; i < 5; i++)
            r[i] = i == at ? example(2, e) : usual(i);
        f = open_file(write_records(5, r), WEFT_ON_ERROR_STOP);
        snprintf(record, sizeof record, "record %d: feature 'a'", at);
        assert_int_equal(f.st, WEFT_EDATA);
        assert_non_null(strstr(f.error, record));
        assert_non_null(strstr(f.error, "holds bytes, but floats in record"));
        f = open_file(in_scratch("infer.tfrecord"), WEFT_ON_ERROR_SKIP);
        assert_string_equal(f.error, "");
        assert_string_equal(f.columns, "a f32[], b i64[]");
        assert_int_equal(f.n, 4);
        assert_int_equal(f.n_skipped, 1);
    }
}

static void a_record_that_is_no_example_is_named_or_left_out(void **state)
{
    struct wire r[4] = {usual(0), usual(1), usual(2), usual(3)};
    struct found f;

    (void)state;
    memcpy(r[2].p, "\x0a\xffgarbage", 9);
    r[2].n = 9;
    f = open_file(write_records(4, r), WEFT_ON_ERROR_STOP);
    assert_int_equal(f.st, WEFT_EDATA);
    assert_non_null(strstr(f.error, "record 2 is not a tf.train.Example"));
    f = open_file(in_scratch("infer.tfrecord"), WEFT_ON_ERROR_SKIP);
    assert_string_equal(f.columns, "a f32[], b i64[]");
    assert_int_equal(f.n, 3);
    assert_int_equal(f.n_skipped, 1);
}

/* Damage among the records that are looked at first is covered by on_error, too. */
static void a_damaged_record_is_left_out_when_asked(void **state)
{
    struct wire r[4] = {usual(0), usual(1), usual(2), usual(3)};
    const char *path = write_records(4, r);
    size_t n;
    char *bytes = get_file(path, &n);
    struct found f;

    (void)state;
    bytes[n / 4 + 20] ^= 1; /* in the data of record 1 */
    put_file("infer.tfrecord", bytes, n);
    free(bytes);
    f = open_file(path, WEFT_ON_ERROR_STOP);
    assert_int_equal(f.st, WEFT_EDATA);
    f = open_file(path, WEFT_ON_ERROR_SKIP);
    assert_string_equal(f.error, "");
    assert_string_equal(f.columns, "a f32[], b i64[]");
    assert_int_equal(f.n, 3);
    assert_int_equal(f.n_skipped, 1);
}

static void other_records_are_bytes_and_the_log_says_so(void **state)
{
    struct wire r[2] = {{.p = "one", .n = 3}, {.p = "two", .n = 3}};
    struct found f = open_file(write_records(2, r), WEFT_ON_ERROR_STOP);

    (void)state;
    assert_string_equal(f.columns, "record str[]");
    assert_int_equal(f.n, 2);
    assert_non_null(strstr(logged, "the first 2 records are not tf.train.Example"));
}

/* Empty here, not there: a length that differs, so that every record can be read. */
static void an_empty_feature_has_no_fixed_shape(void **state)
{
    struct wire nothing = {.n = 0}, e[2] = {entry("a", nothing), entry("b", ints(0, NULL))}, r[3];
    struct found f;

    (void)state;
    r[0] = usual(0);
    r[1] = example(2, e);
    r[2] = example(0, NULL);
    f = open_file(write_records(3, r), WEFT_ON_ERROR_STOP);
    assert_string_equal(f.error, "");
    assert_string_equal(f.columns, "a f32[?], b i64[?]");
    assert_int_equal(f.n, 3);
    r[0] = r[1];
    f = open_file(write_records(2, r), WEFT_ON_ERROR_STOP);
    assert_string_equal(f.error, "");
    assert_string_equal(f.columns, "b i64[?]");
}

/* Thousands of features are columns; more than can be taken is an error, not one column of
 * bytes. */
static void very_many_features(void **state)
{
    static const int counts[] = {4097, 10000, 10001};
    const int64_t one = 1;

    (void)state;
    for (int k = 0; k < 3; k++) {
        weft_example_value *v = calloc((size_t)counts[k], sizeof *v);
        char(*names)[16] = calloc((size_t)counts[k], sizeof *names);
        const char *path = in_scratch("many.tfrecord");
        weft_record_writer *w;
        weft_data *d;
        const weft_column *col;
        int n = 0;
        weft_ds s;

        for (int i = 0; i < counts[k]; i++) {
            snprintf(names[i], sizeof names[i], "feature %d", i);
            v[i] = (weft_example_value){.name = names[i],
                                        .tensor = weft_view(WEFT_I64, (void *)&one, 0, NULL)};
        }
        assert_int_equal(weft_record_writer_new(ctx, path, NULL, &w), WEFT_OK);
        for (int i = 0; i < 30; i++)
            assert_int_equal(weft_record_writer_example(w, counts[k], v), WEFT_OK);
        assert_int_equal(weft_record_writer_close(w), WEFT_OK);
        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        s = weft_ds_open(d, path, NULL);
        if (counts[k] <= 10000) {
            assert_int_equal(weft_ds_columns(d, s, &n, &col), WEFT_OK);
            assert_int_equal(n, counts[k]);
        } else {
            assert_int_equal(weft_data_status(d), WEFT_ELIMIT);
            assert_non_null(strstr(weft_error(), "more than 10000 features"));
        }
        weft_data_free(d);
        free(v);
        free(names);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_ones_have_fixed_shapes),
        cmocka_unit_test(unknown_fields_are_passed_over),
        cmocka_unit_test(a_mistyped_record_is_named_or_left_out),
        cmocka_unit_test(a_record_that_is_no_example_is_named_or_left_out),
        cmocka_unit_test(a_damaged_record_is_left_out_when_asked),
        cmocka_unit_test(other_records_are_bytes_and_the_log_says_so),
        cmocka_unit_test(an_empty_feature_has_no_fixed_shape),
        cmocka_unit_test(very_many_features),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
