/* manifest_test.c - manifests: written and read back alike; every edit that breaks a promise is
 * refused and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/ckpt_sample.h"
#include "ckpt/ckpt.h"

static int new_ctx(void **state)
{
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), (weft_ctx **)state);
}

static int free_ctx(void **state)
{
    weft_ctx_free(*state);
    return 0;
}

/* A small manifest without its closing lines; rows below edit it. */
static const char body[] = "{\n"
                           "  \"format\": \"weft checkpoint\",\n"
                           "  \"version\": 1,\n"
                           "  \"library\": \"0.1.0\",\n"
                           "  \"step\": 12,\n"
                           "  \"epoch\": 3,\n"
                           "  \"time_ns\": 1700000000000000000,\n"
                           "  \"seed\": \"00000000000000ff\",\n"
                           "  \"fingerprint\": \"fedcba9876543210\",\n"
                           "  \"metrics\": {\"loss\": 0.25, \"acc\": \"nan\"},\n"
                           "  \"metadata\": {\"k\": \"v\"},\n"
                           "  \"files\": [\n"
                           "    {\"name\": \"t.safetensors\", \"bytes\": 96, "
                           "\"xxh64\": \"0123456789abcdef\"},\n"
                           "    {\"name\": \"u.safetensors\", \"bytes\": 4, "
                           "\"xxh64\": \"0123456789abcdef\"}],\n"
                           "  \"blobs\": [\n"
                           "    {\"name\": \"pos.bin\", \"bytes\": 4, \"file\": 1, "
                           "\"xxh64\": \"0123456789abcdef\"}],\n"
                           "  \"tensors\": [\n"
                           "    {\"name\": \"w\", \"section\": \"param\", \"dtype\": \"f32\", "
                           "\"shape\": [2, 3], \"file\": 0, \"xxh64\": \"0123456789abcdef\"},\n"
                           "    {\"name\": \"c\", \"section\": \"state\", \"dtype\": \"i64\", "
                           "\"shape\": [], \"file\": 0, \"xxh64\": \"0123456789abcdef\"}]";

/* The body with the first `from` replaced, sealed, and parsed. */
static weft_status parse_edited(weft_ctx *ctx, const char *from, const char *to,
                                struct wf_manifest *m)
{
    const char *at = strstr(body, from);
    struct wf_buf b;
    weft_status st;

    if (!at)
        fail_msg("'%s' is not in the manifest", from);
    wf_buf_init(&b, ctx, 1 << 20);
    wf_buf_add(&b, body, at - body);
    wf_buf_add(&b, to, (int64_t)strlen(to));
    wf_buf_add(&b, at + strlen(from), (int64_t)strlen(at + strlen(from)));
    wf_manifest_seal(&b);
    assert_int_equal(b.st, 0);
    wf_manifest_init(m, ctx);
    st = wf_manifest_parse(m, b.data, b.len);
    wf_buf_free(&b);
    return st;
}

static void what_it_says_is_read(void **state)
{
    struct wf_manifest m;
    const weft_ckpt_data *d = &m.data;

    assert_int_equal(parse_edited(*state, "v", "v", &m), 0);
    assert_true(d->step == 12 && d->epoch == 3 && d->time_ns == 1700000000000000000);
    assert_true(d->seed == 0xff && d->fingerprint == 0xfedcba9876543210u);
    assert_string_equal(m.library, "0.1.0");
    assert_int_equal(d->n_metrics, 2);
    assert_true(d->metrics[0].value == 0.25 && isnan(d->metrics[1].value));
    assert_string_equal(d->meta[0].value, "v");
    assert_int_equal(m.n_files, 2);
    assert_int_equal(m.bytes, 100);
    assert_int_equal(d->n_blobs, 1);
    assert_string_equal(d->blobs[0].name, "pos.bin");
    assert_int_equal(d->blobs[0].bytes, 4);
    assert_int_equal(d->n_tensors, 2);
    assert_true(d->tensors[0].tensor.dtype == WEFT_F32 && d->tensors[0].tensor.dim[1] == 3);
    assert_true(d->tensors[1].tensor.rank == 0 && !d->tensors[1].tensor.data);
    assert_true(m.place[0].n == 1 && m.place[2].n == 1);
    assert_true(m.piece[m.place[0].first].hash == 0x0123456789abcdefu);
    assert_true(m.piece[m.place[2].first].file == 1);
    assert_true(m.piece[m.place[2].first].hash == 0x0123456789abcdefu);
    wf_manifest_free(&m);
    /* what a later minor version may add is passed over */
    assert_int_equal(parse_edited(*state, "\"epoch\": 3", "\"epoch\": 3, \"new\": [1, {}]", &m), 0);
    wf_manifest_free(&m);
}

/* Where w is, all of it. */
#define WHOLE "\"file\": 0, \"xxh64\": \"0123456789abcdef\"},"

static const struct edit {
    const char *from, *to, *why;
    weft_status st;
} edits[] = {
    {"weft checkpoint", "weft model", "\"format\" is 'weft model'", WEFT_EPARSE},
    {"\"format\"", "\"formt\"", "\"format\" is missing", WEFT_EPARSE},
    {"\"version\": 1", "\"version\": 3", "version 3", WEFT_ENOSUP},
    {"\"version\": 1", "\"version\": 0", "\"version\" is 0", WEFT_EPARSE},
    {"\"version\": 1", "\"version\": \"1\"", "\"version\" is not a whole number", WEFT_EPARSE},
    {"\"step\": 12", "\"step\": -1", "\"step\" is -1", WEFT_EPARSE},
    {"\"step\": 12", "\"step\": 1.5", "\"step\" is not a whole number", WEFT_EPARSE},
    {"\"step\": 12", "\"step\": 9223372036854775808", "line", WEFT_EPARSE},
    {"\"step\": 12", "\"step\": 12, \"step\": 13", "duplicate", WEFT_EPARSE},
    {"\"epoch\": 3,", "", "\"epoch\" is missing", WEFT_EPARSE},
    {"00000000000000ff", "ff", "16 hexadecimal digits", WEFT_EPARSE},
    {"00000000000000ff", "00000000000000fg", "16 hexadecimal digits", WEFT_EPARSE},
    {"00000000000000ff", "00000000000000FF", "16 hexadecimal digits", WEFT_EPARSE},
    {"\"00000000000000ff\"", "255", "\"seed\" is not", WEFT_EPARSE},
    {"0.25", "\"NaN\"", "metric 'loss'", WEFT_EPARSE},
    {"0.25", "null", "metric 'loss'", WEFT_EPARSE},
    {"0.25", "1e999", "line", WEFT_EPARSE},
    {"{\"k\": \"v\"}", "{\"k\": 1}", "metadata 'k' is not a string", WEFT_EPARSE},
    {"{\"k\": \"v\"}", "[]", "\"metadata\" is not an object", WEFT_EPARSE},
    {"t.safetensors", "../t", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", "/etc/passwd", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", "..", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", ".t", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", "", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", "a b", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", "manifest.json", "not a valid name for a file", WEFT_EPARSE},
    {"t.safetensors", "u.safetensors", "listed twice", WEFT_EPARSE},
    {"pos.bin", "w", "'w' is listed twice", WEFT_EPARSE},
    {"\"name\": \"pos.bin\", \"bytes\": 4", "\"name\": \"pos.bin\", \"bytes\": -4",
     "blob 'pos.bin': \"bytes\" is -4", WEFT_EPARSE},
    {"\"file\": 1", "\"file\": 2", "blob 'pos.bin': \"file\" is 2", WEFT_EPARSE},
    {"\"blobs\"", "\"blob\"", "\"blobs\" is missing", WEFT_EPARSE},
    {"\"bytes\": 96", "\"bytes\": -96", "\"bytes\" is -96", WEFT_EPARSE},
    {"\"bytes\": 96", "\"bytes\": 9223372036854775807", "overflow", WEFT_EPARSE},
    {"\"f32\"", "\"f31\"", "is not a dtype", WEFT_EPARSE},
    {"\"f32\"", "32", "\"dtype\" is not a text", WEFT_EPARSE},
    {"[2, 3]", "[2, -3]", "something other than sizes", WEFT_EPARSE},
    {"[2, 3]", "[2, 3.0]", "something other than sizes", WEFT_EPARSE},
    {"[2, 3]", "[4294967296, 4294967296]", "overflows", WEFT_EPARSE},
    {"[2, 3]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", "rank is 9", WEFT_EPARSE},
    {"\"file\": 0", "\"file\": 2", "\"file\" is 2", WEFT_EPARSE},
    {"\"file\": 0", "\"file\": -1", "\"file\" is -1", WEFT_EPARSE},
    {"\"name\": \"w\"", "\"name\": \"c\"", "'c' is listed twice", WEFT_EPARSE},
    {"\"name\": \"w\"", "\"name\": 7", "\"name\" is not a text", WEFT_EPARSE},
    {"\"name\": \"w\"", "\"name\": \"\\u0000\"", "line", WEFT_EPARSE},
    {"\"name\": \"w\"", "\"name\": \"\xc3\"", "line", WEFT_EPARSE},
    {"\"tensors\": [", "\"tensors\": [7, ", "\"name\" is missing", WEFT_EPARSE},
    {"\"files\": [", "\"files\": [[], ", "file 0: \"name\" is missing", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 2, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}, {\"first\": 3, \"count\": 3, \"file\": 0, \"offset\": 72, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "'w': elements 2 to 2 are in no piece", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 4, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}, {\"first\": 3, \"count\": 3, \"file\": 0, \"offset\": 80, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "elements from 3 on are in two pieces", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 4, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "elements 4 to 5 are in no piece", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 7, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "has 6 elements, its pieces 7", WEFT_EPARSE},
    {WHOLE, "\"pieces\": []},", "'w' is in no piece", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 6, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}, {\"first\": 6, \"count\": 0, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "an empty piece at 6", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 6, \"file\": 0, \"offset\": 76, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "is not in its file", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 6, \"file\": 2, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "piece 0: \"file\" is 2", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 6, \"file\": 0, \"offset\": -1, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "\"offset\" is -1", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": -1, \"count\": 6, \"file\": 0, \"offset\": 64, \"xxh64\": "
     "\"0123456789abcdef\"}]},",
     "\"first\" is -1", WEFT_EPARSE},
    {WHOLE,
     "\"pieces\": [{\"first\": 0, \"count\": 9223372036854775807, \"file\": 0, \"offset\": 64, "
     "\"xxh64\": \"0123456789abcdef\"}]},",
     "is not in its file", WEFT_EPARSE},
    {WHOLE, "\"pieces\": 7},", "\"pieces\" is not", WEFT_EPARSE},
    {WHOLE, "\"pieces\": [7]},", "piece 0: \"file\" is missing", WEFT_EPARSE},
    {"{\n", "[\n", "line", WEFT_EPARSE},
};

static void every_edit_that_breaks_a_promise_is_refused(void **state)
{
    weft_ctx *ctx = *state;
    int64_t memory = weft_ctx_memory(ctx);

    for (int i = 0; i < WF_COUNT(edits); i++) {
        struct wf_manifest m;
        weft_status st = parse_edited(ctx, edits[i].from, edits[i].to, &m);

        if (st != edits[i].st || !strstr(weft_error(), edits[i].why))
            fail_msg("%s -> %s: %s: %s", edits[i].from, edits[i].to, weft_status_name(st),
                     weft_error());
        assert_int_equal(m.n_files + m.data.n_tensors, 0);
        assert_int_equal(weft_ctx_memory(ctx), memory);
    }
}

/* Two pieces in two files are one tensor. */
static void a_tensor_may_be_in_pieces(void **state)
{
    struct wf_manifest m;

    assert_int_equal(
        parse_edited(*state, WHOLE,
                     "\"pieces\": [{\"first\": 0, \"count\": 1, \"file\": 1, \"offset\": 8, "
                     "\"xxh64\": \"0123456789abcdef\"}, {\"first\": 1, \"count\": 5, \"file\": 0, "
                     "\"offset\": 64, \"xxh64\": \"0123456789abcdef\"}]},",
                     &m),
        WEFT_EPARSE); /* file 1 is too short for it */
    assert_int_equal(
        parse_edited(*state, WHOLE,
                     "\"pieces\": [{\"first\": 0, \"count\": 1, \"file\": 0, \"offset\": 92, "
                     "\"xxh64\": \"0123456789abcdef\"}, {\"first\": 1, \"count\": 5, \"file\": 0, "
                     "\"offset\": 64, \"xxh64\": \"0123456789abcdef\"}]},",
                     &m),
        0);
    assert_int_equal(m.place[0].n, 2);
    assert_int_equal(m.piece[1].first, 1);
    assert_int_equal(m.piece[1].offset, 64);
    assert_int_equal(m.piece[m.place[1].first].offset, -1);
    wf_manifest_free(&m);
}

static void a_manifest_that_is_not_sealed_is_refused(void **state)
{
    weft_ctx *ctx = *state;
    struct wf_manifest m;
    struct wf_buf b;

    wf_buf_init(&b, ctx, 1 << 20);
    wf_buf_add(&b, body, (int64_t)strlen(body));
    wf_manifest_seal(&b);
    wf_manifest_init(&m, ctx);
    for (int64_t n = 0; n < b.len; n++)
        assert_int_equal(wf_manifest_parse(&m, b.data, n), WEFT_EPARSE);
    for (int64_t i = 0; i < b.len; i++) {
        b.data[i] ^= 4;
        assert_int_equal(wf_manifest_parse(&m, b.data, b.len), WEFT_EPARSE);
        b.data[i] ^= 4;
    }
    assert_int_equal(wf_manifest_parse(&m, b.data, b.len), 0);
    wf_manifest_free(&m);
    wf_buf_free(&b);
}

/* Numbers come back as they were, whatever the locale writes for a point. */
static void numbers_read_back_as_themselves(void **state)
{
    static const double values[] = {0.1,      -0.0,     1,         5e-324, 1.7976931348623157e308,
                                    -1.0 / 3, INFINITY, -INFINITY, 1e22,   123456789.125};
    weft_ctx *ctx = *state;
    struct wf_buf b;

    setlocale(LC_NUMERIC, "de_DE.UTF-8"); /* where there is one */
    for (int i = 0; i < WF_COUNT(values); i++) {
        json_t *v;
        double back = 0;

        wf_buf_init(&b, ctx, 100);
        wf_json_real(&b, values[i]);
        v = json_loadb(b.data, (size_t)b.len, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        assert_int_equal(wf_json_to_real(v, &back), 0);
        assert_memory_equal(&back, &values[i], sizeof back);
        json_decref(v);
        wf_buf_free(&b);
    }
    setlocale(LC_NUMERIC, "C");
}

static void texts_are_escaped_and_checked(void **state)
{
    static const struct {
        const char *text, *json; /* NULL: not UTF-8 */
    } rows[] = {
        {"", "\"\""},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
        {"\x01\n\x1f\x7f", "\"\\u0001\\u000a\\u001f\x7f\""},
        {"\xc2\x80\xdf\xbf", "\"\xc2\x80\xdf\xbf\""},
        {"\xe0\xa0\x80\xef\xbf\xbf", "\"\xe0\xa0\x80\xef\xbf\xbf\""},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
        {"\x80", NULL},
        {"\xc0\x80", NULL},
        {"\xc1\xbf", NULL},
        {"\xe0\x80\x80", NULL},
        {"\xed\xa0\x80", NULL},
        {"\xf0\x80\x80\x80", NULL},
        {"\xf4\x90\x80\x80", NULL},
        {"\xf8\x88\x80\x80\x80", NULL},
        {"\xc3", NULL},
        {"\xe2\x82", NULL},
        {"a\xff", NULL},
    };
    weft_ctx *ctx = *state;

    for (int i = 0; i < WF_COUNT(rows); i++) {
        struct wf_buf b;

        wf_buf_init(&b, ctx, 100);
        wf_json_text(&b, rows[i].text);
        assert_int_equal(b.st, rows[i].json ? 0 : WEFT_EINVAL);
        assert_int_equal(wf_utf8_ok(rows[i].text), rows[i].json != NULL);
        if (rows[i].json)
            assert_string_equal(b.data, rows[i].json);
        wf_buf_free(&b);
    }
}

#define IN_CTX(f) cmocka_unit_test_setup_teardown(f, new_ctx, free_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CTX(what_it_says_is_read),
        IN_CTX(every_edit_that_breaks_a_promise_is_refused),
        IN_CTX(a_tensor_may_be_in_pieces),
        IN_CTX(a_manifest_that_is_not_sealed_is_refused),
        IN_CTX(numbers_read_back_as_themselves),
        IN_CTX(texts_are_escaped_and_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
