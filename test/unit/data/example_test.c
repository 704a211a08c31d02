/* Examples: what others write is parsed, in every form protobuf allows; what is broken is an error;
 * what we write is parsed back. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/record/varint.h"
#include "iter_support.h"
#include "wire_support.h"

static weft_ctx *ctx;
static int64_t at_rest;

static int setup(void **state)
{
    (void)state;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return -1;
    at_rest = weft_ctx_memory(ctx);
    return 0;
}

static int teardown(void **state)
{
    int64_t left = weft_ctx_memory(ctx) - at_rest;

    (void)state;
    weft_ctx_free(ctx);
    return left != 0;
}

/* ---- parsing them ---------------------------------------------------------------------------- */

struct source {
    int n_records;
    const weft_str *records;
    int n_features;
    const weft_example_feature *features;
    weft_example_opts opts;
    int64_t batch;
    bool ragged;
};

static weft_ds make(weft_data *d, void *arg)
{
    struct source *s = arg;
    weft_column col = {.name = "bytes", .dtype = WEFT_STR};
    weft_tensor t = {WEFT_STR, 1, {s->n_records}, (void *)s->records};
    weft_ds ds = weft_ds_tensors(d, 1, &col, &t);

    s->opts.size = sizeof s->opts;
    ds = weft_ds_example(d, ds, s->n_features, s->features, &s->opts);
    if (s->batch)
        ds = weft_ds_batch(d, ds, s->batch, WEFT_OPTS(weft_batch_opts, .ragged = s->ragged));
    return ds;
}

/* One record, its columns copied into `out`; the status. */
struct parsed {
    weft_status st;
    char error[512];
    int n;
    weft_tensor col[8];
    char data[8][2000]; /* strings: joined with | */
};

static struct parsed parse(const void *bytes, int64_t n, int n_features,
                           const weft_example_feature *features)
{
    /* An exact copy, so that the address sanitizer sees any read outside. */
    char *copy = malloc(n ? (size_t)n : 1);
    weft_str record = {copy, n};
    struct source s = {
        .n_records = 1, .records = &record, .n_features = n_features, .features = features};
    struct parsed out = {.st = WEFT_OK};
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b = NULL;

    if (n)
        memcpy(copy, bytes, (size_t)n);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    out.st = weft_iter_new(d, make(d, &s), WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    if (!out.st)
        out.st = weft_iter_next(it, &b);
    if (out.st)
        snprintf(out.error, sizeof out.error, "%s", weft_error());
    for (int c = 0; b && c < b->n_cols && c < 8; c++) {
        out.n++;
        out.col[c] = b->col[c];
        out.col[c].data = out.data[c];
        if (b->col[c].dtype != WEFT_STR && weft_tensor_bytes(&b->col[c]) <= 2000)
            memcpy(out.data[c], b->col[c].data, (size_t)weft_tensor_bytes(&b->col[c]));
        for (int64_t i = 0, at = 0;
             b->col[c].dtype == WEFT_STR && i < weft_tensor_count(&b->col[c]); i++) {
            const weft_str *t = (const weft_str *)b->col[c].data + i;

            memcpy(out.data[c] + at, t->data, (size_t)t->n);
            at += t->n;
            out.data[c][at++] = '|';
        }
    }
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
    free(copy);
    return out;
}

static struct parsed parse_wire(struct wire w, int n, const weft_example_feature *features)
{
    return parse(w.p, w.n, n, features);
}

static int64_t int_at(const struct parsed *p, int c, int i)
{
    return ((const int64_t *)(const void *)p->data[c])[i];
}

static float float_at(const struct parsed *p, int c, int i)
{
    return ((const float *)(const void *)p->data[c])[i];
}

static const weft_example_feature xy[] = {
    {.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}},
    {.name = "y", .dtype = WEFT_I64},
};

/* ---- the usual form -------------------------------------------------------------------------- */

static const unsigned char golden[] = {0x0a, 0x1f, 0x0a, 0x11, 0x0a, 0x01, 0x78, 0x12, 0x0c,
                                       0x12, 0x0a, 0x0a, 0x08, 0x00, 0x00, 0x80, 0x3f, 0x00,
                                       0x00, 0x00, 0x40, 0x0a, 0x0a, 0x0a, 0x01, 0x79, 0x12,
                                       0x05, 0x1a, 0x03, 0x0a, 0x01, 0x03};

static void golden_bytes_are_parsed_and_written(void **state)
{
    struct parsed p = parse(golden, sizeof golden, 2, xy);
    float x[2] = {1, 2};
    int64_t y = 3, n;
    weft_example_value v[] = {{"x", weft_view(WEFT_F32, x, 1, (int64_t[]){2}), false},
                              {"y", weft_view(WEFT_I64, &y, 0, NULL), false}};
    char *bytes;

    (void)state;
    assert_int_equal(p.st, WEFT_OK);
    assert_true(float_at(&p, 0, 0) == 1 && float_at(&p, 0, 1) == 2);
    assert_int_equal(int_at(&p, 1, 0), 3);
    assert_int_equal(p.col[1].rank, 0);
    assert_int_equal(weft_example_encode(ctx, 2, v, &bytes, &n), WEFT_OK);
    assert_int_equal(n, sizeof golden);
    assert_memory_equal(bytes, golden, (size_t)n);
    weft_text_free(ctx, bytes);
}

static void every_dtype_goes_round(void **state)
{
    float f32[3] = {1.5f, -0.0f, 3e38f};
    double f64[3] = {0.5, -2, 1e30};
    int64_t i64[5] = {0, -1, INT64_MIN, INT64_MAX, 300};
    int32_t i32[2] = {INT32_MIN, INT32_MAX};
    uint8_t u8[2] = {0, 255}, b[3] = {1, 0, 1};
    int8_t i8[2] = {-128, 127};
    weft_str s[3] = {{"ab", 2}, {"", 0}, {"\0x", 2}};
    weft_example_value v[] = {
        {"f32", weft_view(WEFT_F32, f32, 1, (int64_t[]){3}), false},
        {"f64", weft_view(WEFT_F64, f64, 1, (int64_t[]){3}), false},
        {"i64", weft_view(WEFT_I64, i64, 1, (int64_t[]){5}), false},
        {"i32", weft_view(WEFT_I32, i32, 1, (int64_t[]){2}), false},
        {"u8", weft_view(WEFT_U8, u8, 1, (int64_t[]){2}), false},
        {"i8", weft_view(WEFT_I8, i8, 1, (int64_t[]){2}), false},
        {"b", weft_view(WEFT_BOOL, b, 1, (int64_t[]){3}), false},
        {"s", {WEFT_STR, 1, {3}, s}, false},
    };
    weft_example_feature f[] = {
        {.name = "f32", .dtype = WEFT_F32, .rank = 1, .dim = {3}},
        {.name = "f64", .dtype = WEFT_F64, .rank = 1, .dim = {3}},
        {.name = "i64", .dtype = WEFT_I64, .rank = 1, .dim = {5}},
        {.name = "i32", .dtype = WEFT_I32, .rank = 1, .dim = {2}},
        {.name = "u8", .dtype = WEFT_U8, .rank = 1, .dim = {2}},
        {.name = "i8", .dtype = WEFT_I8, .rank = 1, .dim = {2}},
        {.name = "b", .dtype = WEFT_BOOL, .rank = 1, .dim = {3}},
        {.name = "s", .dtype = WEFT_STR, .rank = 1, .dim = {3}},
    };
    float f64_as_f32 = (float)1e30;
    struct parsed p;
    char *bytes;
    int64_t n;

    (void)state;
    assert_int_equal(weft_example_encode(ctx, 8, v, &bytes, &n), WEFT_OK);
    p = parse(bytes, n, 8, f);
    weft_text_free(ctx, bytes);
    assert_int_equal(p.st, WEFT_OK);
    assert_memory_equal(p.data[0], f32, sizeof f32);
    assert_true(((double *)(void *)p.data[1])[2] == (double)f64_as_f32);
    assert_memory_equal(p.data[2], i64, sizeof i64);
    assert_memory_equal(p.data[3], i32, sizeof i32);
    assert_memory_equal(p.data[4], u8, sizeof u8);
    assert_memory_equal(p.data[5], i8, sizeof i8);
    assert_memory_equal(p.data[6], b, sizeof b);
    assert_memory_equal(p.data[7], "ab||\0x|", 7);
}

static void packed_integers_of_every_length(void **state)
{
    enum { N = 300 };
    uint64_t x = 88172645463325252ull;

    (void)state;
    for (int round = 0; round < 300; round++) {
        struct wire w = {.n = 20};
        int64_t want[N], got[N + 1];
        int n = round % N;

        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            want[i] = (int64_t)(x >> (round & 1 ? x & 63 : x >> 8 & 31));
            want[i] = x & 1024 && round % 3 == 0 ? -want[i] : want[i];
            put_varint(&w, (uint64_t)want[i]);
        }
        assert_int_equal(wf_varints(w.p + 20, w.n - 20, w.p, got, N), n);
        assert_memory_equal(got, want, (size_t)n * 8);
        if (n) {
            assert_int_equal(wf_varints(w.p + 20, w.n - 20, w.p, got, n - 1), n);
            assert_int_equal(wf_varints(w.p + 20, w.n - 20, w.p + 12, got, N), n);
            assert_memory_equal(got, want, (size_t)n * 8);
            w.p[w.n - 1] |= 128;
            assert_int_equal(wf_varints(w.p + 20, w.n - 20, w.p, got, N), -1);
        }
    }
}

/* ---- every other form ------------------------------------------------------------------------ */

static void unpacked_and_split_lists_are_joined(void **state)
{
    struct wire list = {.n = 0}, flist = {.n = 0}, feature = {.n = 0}, ff = {.n = 0}, e[2];
    float a[2] = {5, 6};
    struct parsed p;
    weft_example_feature f[] = {{.name = "i", .dtype = WEFT_I64, .rank = 1, .dim = {4}},
                                {.name = "f", .dtype = WEFT_F32, .rank = 1, .dim = {2}}};

    (void)state;
    /* 1 unpacked, 2 3 packed, and 4 in a second list of the same kind. */
    put_varint(&list, 1 << 3);
    put_varint(&list, 1);
    put_bytes(&list, 1, "\x02\x03", 2);
    put_wire(&feature, 3, &list);
    put_bytes(&feature, 3, "\x08\x04", 2);
    for (int i = 0; i < 2; i++) {
        put_varint(&flist, 1 << 3 | 5);
        memcpy(flist.p + flist.n, &a[i], 4);
        flist.n += 4;
    }
    put_wire(&ff, 2, &flist);
    e[0] = entry("i", feature);
    e[1] = entry("f", ff);
    p = parse_wire(example(2, e), 2, f);
    assert_int_equal(p.st, WEFT_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(int_at(&p, 0, i), i + 1);
    assert_true(float_at(&p, 1, 0) == 5 && float_at(&p, 1, 1) == 6);
}

static void of_a_key_that_comes_twice_the_last_counts(void **state)
{
    int64_t one = 1, two[2] = {2, 22};
    float x[2] = {1, 2};
    weft_example_feature f[] = {{.name = "y", .dtype = WEFT_I64, .rank = 1, .dim = {WEFT_ANY}},
                                {.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}}};
    struct wire e[3] = {entry("y", ints(1, &one)), entry("x", floats(2, x)),
                        entry("y", ints(2, two))};
    struct wire none = {.n = 0}, first, second;
    struct parsed p = parse_wire(example(3, e), 2, f);

    (void)state;
    assert_int_equal(p.st, WEFT_OK);
    assert_int_equal(p.col[0].dim[0], 2);
    assert_int_equal(int_at(&p, 0, 0), 2);
    assert_int_equal(int_at(&p, 0, 1), 22);
    /* Also when the features come in two pieces. */
    first = example(2, e);
    second = example(1, e + 2);
    memcpy(first.p + first.n, second.p, (size_t)second.n);
    first.n += second.n;
    p = parse_wire(first, 2, f);
    assert_int_equal(p.st, WEFT_OK);
    assert_int_equal(p.col[0].dim[0], 2);
    /* A last one without a list means missing. */
    e[2] = entry("x", none);
    p = parse_wire(example(3, e), 2, f);
    assert_int_equal(p.st, WEFT_EDATA);
    assert_non_null(strstr(p.error, "'x' is missing"));
}

static void unknown_fields_and_other_orders_are_passed_over(void **state)
{
    int64_t y = 7;
    float x[2] = {1, 2};
    struct wire e = {.n = 0}, value = ints(1, &y), fx = floats(2, x), map = {.n = 0},
                all = {.n = 0};
    struct parsed p;

    (void)state;
    /* Before and after the list, in the entry, in the map, in the record; the value before
     * the key. */
    put_varint(&value, 9 << 3);
    put_varint(&value, 1u << 30);
    put_wire(&e, 2, &value);
    put_varint(&e, 100 << 3 | 1);
    memset(e.p + e.n, 1, 8);
    e.n += 8;
    put_bytes(&e, 1, "wrong", 5);
    put_bytes(&e, 1, "y", 1);
    put_wire(&map, 1, &e);
    put_bytes(&map, 5, "what", 4);
    e = entry("x", fx);
    put_wire(&map, 1, &e);
    put_varint(&all, 3 << 3 | 5);
    memset(all.p + all.n, 1, 4);
    all.n += 4;
    put_wire(&all, 1, &map);
    put_bytes(&all, 2, "", 0);
    p = parse_wire(all, 2, xy);
    assert_int_equal(p.st, WEFT_OK);
    assert_int_equal(int_at(&p, 1, 0), 7);
    assert_true(float_at(&p, 0, 1) == 2);
}

static void of_several_kinds_the_last_counts(void **state)
{
    int64_t y[2] = {7, 8};
    float x[2] = {1, 2};
    struct wire a = ints(2, y), b = floats(2, x), e[2];
    struct parsed p;

    (void)state;
    memcpy(a.p + a.n, b.p, (size_t)b.n);
    a.n += b.n;
    e[0] = entry("x", a);
    e[1] = entry("y", ints(1, y));
    p = parse_wire(example(2, e), 2, xy);
    assert_int_equal(p.st, WEFT_OK);
    assert_true(float_at(&p, 0, 0) == 1);
    e[1] = entry("y", a);
    p = parse_wire(example(2, e), 2, xy);
    assert_int_equal(p.st, WEFT_EDATA);
    assert_non_null(strstr(p.error, "'y': holds floats, but i64 is declared"));
}

/* ---- shapes and missing values --------------------------------------------------------------- */

static void missing_features_take_their_values(void **state)
{
    float one = 0.5f;
    int64_t three[3] = {4, 5, 6}, two[2] = {8, 9};
    weft_str text = {"none", 4};
    weft_example_feature f[] = {
        {.name = "a", .dtype = WEFT_F32, .rank = 1, .dim = {3}, .missing = &one, .n_missing = 1},
        {.name = "b", .dtype = WEFT_I64, .rank = 1, .dim = {3}, .missing = three, .n_missing = 3},
        {.name = "c", .dtype = WEFT_STR, .missing = &text},
        {.name = "d",
         .dtype = WEFT_I64,
         .rank = 1,
         .dim = {WEFT_ANY},
         .missing = two,
         .n_missing = 2},
        {.name = "e", .dtype = WEFT_I64, .rank = 1, .dim = {WEFT_ANY}},
        {.name = "f", .dtype = WEFT_I64, .rank = 2, .dim = {WEFT_ANY, 2}, .sequence = true},
    };
    struct parsed p = parse("", 0, 6, f);

    (void)state;
    assert_int_equal(p.st, WEFT_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(float_at(&p, 0, i) == 0.5f);
        assert_int_equal(int_at(&p, 1, i), 4 + i);
    }
    assert_string_equal(p.data[2], "none|");
    assert_int_equal(p.col[3].dim[0], 2);
    assert_int_equal(int_at(&p, 3, 1), 9);
    assert_int_equal(p.col[4].dim[0], 0);
    assert_int_equal(p.col[5].dim[0], 0);
    assert_int_equal(p.col[5].dim[1], 2);
    f[0].missing = NULL;
    f[0].n_missing = 0;
    p = parse("", 0, 1, f);
    assert_int_equal(p.st, WEFT_EDATA);
    assert_non_null(strstr(p.error, "'a' is missing"));
}

static void what_does_not_fit_is_an_error(void **state)
{
    int64_t v[3] = {1, 2, 300};
    float x[3] = {1, 2, 3};
    const char *t[1] = {"t"};
    struct wire e[3] = {entry("i", ints(3, v)), entry("f", floats(3, x)), entry("s", texts(1, t))};
    struct wire w = example(3, e);
    const struct {
        weft_example_feature f;
        const char *text;
    } cases[] = {
        {{.name = "i", .dtype = WEFT_I64}, "'i': 2 or more values, but 1 are declared"},
        {{.name = "i", .dtype = WEFT_I64, .rank = 1, .dim = {4}},
         "'i': 3 values, but 4 are declared"},
        {{.name = "f", .dtype = WEFT_F32, .rank = 1, .dim = {2}}, "3 or more values, but 2"},
        {{.name = "f", .dtype = WEFT_F32, .rank = 1, .dim = {4}}, "3 values, but 4"},
        {{.name = "i", .dtype = WEFT_U8, .rank = 1, .dim = {3}}, "'i': 300 does not fit u8"},
        {{.name = "i", .dtype = WEFT_F32, .rank = 1, .dim = {3}}, "holds integers, but f32"},
        {{.name = "f", .dtype = WEFT_I64, .rank = 1, .dim = {3}}, "holds floats, but i64"},
        {{.name = "s", .dtype = WEFT_I64, .rank = 1, .dim = {3}}, "holds bytes, but i64"},
        {{.name = "i", .dtype = WEFT_STR}, "holds integers, but str"},
        {{.name = "i", .dtype = WEFT_I64, .rank = 2, .dim = {WEFT_ANY, 2}},
         "3 values are not a multiple of rows of 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse_wire(w, 1, &cases[i].f);

        assert_int_equal(p.st, WEFT_EDATA);
        if (!strstr(p.error, cases[i].text))
            print_error("%s\n", p.error);
        assert_non_null(strstr(p.error, cases[i].text));
        assert_non_null(strstr(p.error, "sample 0"));
    }
}

static void declarations_that_make_no_sense_are_refused(void **state)
{
    int64_t v = 0;
    const weft_example_feature bad[] = {
        {.name = "a", .dtype = WEFT_NONE},
        {.name = NULL, .dtype = WEFT_F32},
        {.name = "a", .dtype = WEFT_F32, .rank = 9},
        {.name = "a", .dtype = WEFT_F32, .rank = 1, .dim = {0}},
        {.name = "a", .dtype = WEFT_F32, .rank = 2, .dim = {2, WEFT_ANY}},
        {.name = "a", .dtype = WEFT_F32, .sequence = true},
        {.name = "a", .dtype = WEFT_I64, .rank = 1, .dim = {3}, .missing = &v, .n_missing = 2},
        {.name = "a", .dtype = WEFT_I64, .n_missing = 1},
        {.name = "a", .dtype = WEFT_F32, .rank = 3, .dim = {1 << 20, 1 << 20, 1 << 20}},
    };
    const weft_example_feature twice[] = {{.name = "a", .dtype = WEFT_F32},
                                          {.name = "a", .dtype = WEFT_I64, .column = "b"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(parse("", 0, 1, &bad[i]).st != WEFT_OK);
    assert_int_equal(parse("", 0, 2, twice).st, WEFT_EEXIST);
    assert_int_equal(parse("", 0, 0, twice).st, WEFT_EINVAL);
}

static void variable_lengths_become_ragged(void **state)
{
    struct wire w[5];
    weft_str records[5];
    weft_example_feature f[] = {{.name = "v", .dtype = WEFT_I32, .rank = 1, .dim = {WEFT_ANY}}};
    struct source s = {.n_records = 5,
                       .records = records,
                       .n_features = 1,
                       .features = f,
                       .batch = 5,
                       .ragged = true};
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    const weft_tensor *values, *offsets;

    (void)state;
    for (int i = 0; i < 5; i++) {
        int64_t v[100];
        int n = i * i * 6;
        struct wire e;

        for (int k = 0; k < n; k++)
            v[k] = i * 1000 + k;
        e = entry("v", ints(n, v));
        w[i] = example(i != 1, &e); /* the second has none */
        records[i] = (weft_str){(char *)w[i].p, w[i].n};
    }
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    assert_int_equal(weft_iter_new(d, make(d, &s), NULL, &it), WEFT_OK);
    assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
    values = weft_batch_find(b, "v");
    offsets = weft_batch_find(b, "v:offsets");
    assert_non_null(values);
    assert_non_null(offsets);
    assert_int_equal(values->dim[0], 24 + 54 + 96);
    for (int i = 0; i < 5; i++) {
        int64_t from = ((int64_t *)offsets->data)[i], to = ((int64_t *)offsets->data)[i + 1];

        assert_int_equal(to - from, i == 1 ? 0 : i * i * 6);
        for (int64_t k = from; k < to; k++)
            assert_int_equal(((int32_t *)values->data)[k], i * 1000 + (k - from));
    }
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
}

/* ---- SequenceExample ------------------------------------------------------------------------- */

static void sequences_have_one_row_a_step(void **state)
{
    float steps[6] = {1, 2, 3, 4, 5, 6};
    int64_t id = 42, tags[4] = {7, 8, 9, 10}, n;
    weft_str words[3] = {{"a", 1}, {"bb", 2}, {"", 0}};
    weft_example_value v[] = {
        {"id", weft_view(WEFT_I64, &id, 0, NULL), false},
        {"step", weft_view(WEFT_F32, steps, 2, (int64_t[]){3, 2}), true},
        {"tags", weft_view(WEFT_I64, tags, 2, (int64_t[]){2, 2}), true},
        {"words", {WEFT_STR, 1, {3}, words}, true},
        {"none", weft_view(WEFT_F32, steps, 1, (int64_t[]){0}), true},
    };
    weft_example_feature f[] = {
        {.name = "id", .dtype = WEFT_I64},
        {.name = "step", .dtype = WEFT_F32, .rank = 2, .dim = {WEFT_ANY, 2}, .sequence = true},
        {.name = "tags",
         .dtype = WEFT_I64,
         .rank = 2,
         .dim = {WEFT_ANY, WEFT_ANY},
         .sequence = true},
        {.name = "words", .dtype = WEFT_STR, .rank = 1, .dim = {3}, .sequence = true},
        {.name = "none", .dtype = WEFT_F32, .rank = 1, .dim = {WEFT_ANY}, .sequence = true},
        {.name = "step", .dtype = WEFT_F32, .rank = 1, .dim = {WEFT_ANY}, .column = "context"},
    };
    struct parsed p;
    char *bytes;

    (void)state;
    assert_int_equal(weft_example_encode(ctx, 5, v, &bytes, &n), WEFT_OK);
    p = parse(bytes, n, 6, f);
    assert_int_equal(p.st, WEFT_OK);
    assert_int_equal(int_at(&p, 0, 0), 42);
    assert_int_equal(p.col[1].dim[0], 3);
    assert_int_equal(p.col[1].dim[1], 2);
    assert_memory_equal(p.data[1], steps, sizeof steps);
    assert_int_equal(p.col[2].dim[0], 2);
    assert_int_equal(p.col[2].dim[1], 2);
    assert_memory_equal(p.data[2], tags, sizeof tags);
    assert_string_equal(p.data[3], "a|bb||");
    assert_int_equal(p.col[4].dim[0], 0);
    assert_int_equal(p.col[5].dim[0], 0); /* the context has no "step" */
    f[1].dim[1] = 3;
    assert_int_equal(parse(bytes, n, 2, f).st, WEFT_EDATA);
    f[3].dim[0] = 4;
    assert_int_equal(parse(bytes, n, 1, f + 3).st, WEFT_EDATA);
    f[2].dim[0] = 3;
    assert_int_equal(parse(bytes, n, 1, f + 2).st, WEFT_EDATA);
    weft_text_free(ctx, bytes);
}

static void steps_of_differing_lengths_are_an_error(void **state)
{
    int64_t v[3] = {1, 2, 3};
    struct wire a = ints(3, v), b = ints(2, v), list = {.n = 0}, e, map = {.n = 0}, all = {.n = 0};
    weft_example_feature f = {
        .name = "s", .dtype = WEFT_I64, .rank = 2, .dim = {WEFT_ANY, WEFT_ANY}, .sequence = true};
    struct parsed p;

    (void)state;
    put_wire(&list, 1, &a);
    put_wire(&list, 1, &b);
    e = entry("s", list);
    put_wire(&map, 1, &e);
    put_wire(&all, 2, &map);
    p = parse_wire(all, 1, &f);
    assert_int_equal(p.st, WEFT_EDATA);
    assert_non_null(strstr(p.error, "step 1 has 2 values, not 3"));
}

/* ---- damage ---------------------------------------------------------------------------------- */

static struct wire rich_record(void)
{
    int64_t v[5] = {1, -1, 1 << 20, 5, 1ll << 60}, y = 3;
    float x[2] = {1, 2};
    const char *t[2] = {"hello", ""};
    struct wire e[4] = {entry("x", floats(2, x)), entry("v", ints(5, v)), entry("t", texts(2, t)),
                        entry("y", ints(1, &y))};
    struct wire list = {.n = 0}, map = {.n = 0}, all = example(4, e), step = ints(2, v);

    put_wire(&list, 1, &step);
    put_wire(&list, 1, &step);
    e[0] = entry("s", list);
    put_wire(&map, 1, &e[0]);
    put_wire(&all, 2, &map);
    return all;
}

static const weft_example_feature rich[] = {
    {.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}},
    {.name = "v", .dtype = WEFT_I64, .rank = 1, .dim = {WEFT_ANY}},
    {.name = "t", .dtype = WEFT_STR, .rank = 1, .dim = {2}},
    {.name = "y", .dtype = WEFT_I32},
    {.name = "s", .dtype = WEFT_I64, .rank = 2, .dim = {WEFT_ANY, WEFT_ANY}, .sequence = true},
};

static void broken_records_never_crash(void **state)
{
    struct wire w = rich_record();

    (void)state;
    assert_int_equal(parse(w.p, w.n, 5, rich).st, WEFT_OK);
    for (int cut = 0; cut < w.n; cut++) {
        weft_status st = parse(w.p, cut, 5, rich).st;

        assert_true(st == WEFT_EDATA || st == WEFT_OK);
        if (cut > 0 && cut < w.p[1] + 2)
            assert_int_equal(st, WEFT_EDATA);
    }
    for (int bit = 0; bit < 8 * w.n; bit++) {
        weft_status st;

        w.p[bit / 8] ^= (unsigned char)(1 << bit % 8);
        st = parse(w.p, w.n, 5, rich).st;
        assert_true(st == WEFT_EDATA || st == WEFT_OK);
        w.p[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void groups_and_overlong_numbers_are_errors(void **state)
{
    const struct {
        const char *bytes;
        int n;
    } bad[] = {
        {"\x0b\x0c", 2},                                          /* a group */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},     /* a length of 2^64 - 1 */
        {"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12}, /* a number of eleven bytes */
        {"\x02\x00", 2},                                          /* field 0 */
        {"\x0f", 1},                                              /* wire type 7 */
        {"\x09\x01", 2},                                          /* eight bytes cut off */
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(bad[i].bytes, bad[i].n, 2, xy).st, WEFT_EDATA);
}

static void bad_ones_are_left_out_and_counted_when_asked(void **state)
{
    enum { N = 500 };
    static struct wire w[N];
    weft_str records[N];
    struct source s = {.n_records = N,
                       .records = records,
                       .n_features = 4,
                       .features = rich,
                       .batch = 7,
                       .ragged = true,
                       .opts.on_error = WEFT_ON_ERROR_SKIP};
    struct dump a, b;
    int n_bad = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        w[i] = rich_record();
        if (i % 11 == 3) {
            w[i].n -= 3;
            n_bad++;
        }
        records[i] = (weft_str){(char *)w[i].p, w[i].n};
    }
    a = dump_of(ctx, make, &s, 0);
    assert_int_equal(a.st, WEFT_OK);
    assert_int_equal(a.n_skipped, n_bad);
    assert_int_equal(a.n_elements, (N - n_bad + 6) / 7);
    b = dump_of(ctx, make, &s, 3);
    assert_int_equal(b.n, a.n);
    assert_memory_equal(b.p, a.p, a.n);
    dump_free(&a);
    dump_free(&b);
}

static void records_of_any_order_of_keys_are_the_same(void **state)
{
    enum { N = 600 };
    static struct wire w[N];
    weft_str records[N];
    struct source s = {
        .n_records = N, .records = records, .n_features = 2, .features = xy, .batch = 50};

    (void)state;
    for (int i = 0; i < N; i++) {
        int64_t y = i * 1000;
        float x[2] = {(float)i, (float)-i};
        struct wire e[3] = {entry("x", floats(2, x)), entry("other", ints(1, &y)),
                            entry("y", ints(1, &y))};
        struct wire turned[3] = {e[i % 3], e[(i + 1) % 3], e[(i + 2) % 3]};

        w[i] = example(3, turned);
        records[i] = (weft_str){(char *)w[i].p, w[i].n};
    }
    for (int threads = 0; threads < 4; threads++) {
        weft_data *d;
        weft_iter *it;
        weft_batch *b;

        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        assert_int_equal(
            weft_iter_new(d, make(d, &s),
                          WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it),
            WEFT_OK);
        for (int i = 0; i < N; i += 50) {
            assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
            for (int k = 0; k < 50; k++) {
                assert_true(((float *)b->col[0].data)[2 * k + 1] == (float)-(i + k));
                assert_int_equal(((int64_t *)b->col[1].data)[k], (i + k) * 1000);
            }
            weft_batch_free(b);
        }
        weft_iter_free(it);
        weft_data_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_are_parsed_and_written),
        cmocka_unit_test(every_dtype_goes_round),
        cmocka_unit_test(packed_integers_of_every_length),
        cmocka_unit_test(unpacked_and_split_lists_are_joined),
        cmocka_unit_test(of_a_key_that_comes_twice_the_last_counts),
        cmocka_unit_test(unknown_fields_and_other_orders_are_passed_over),
        cmocka_unit_test(of_several_kinds_the_last_counts),
        cmocka_unit_test(missing_features_take_their_values),
        cmocka_unit_test(what_does_not_fit_is_an_error),
        cmocka_unit_test(declarations_that_make_no_sense_are_refused),
        cmocka_unit_test(variable_lengths_become_ragged),
        cmocka_unit_test(sequences_have_one_row_a_step),
        cmocka_unit_test(steps_of_differing_lengths_are_an_error),
        cmocka_unit_test(broken_records_never_crash),
        cmocka_unit_test(groups_and_overlong_numbers_are_errors),
        cmocka_unit_test(bad_ones_are_left_out_and_counted_when_asked),
        cmocka_unit_test(records_of_any_order_of_keys_are_the_same),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
