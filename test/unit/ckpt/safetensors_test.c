/* safetensors_test.c - files that are right are read, files that are wrong are refused with a
 * reason, and what is written is laid out as the format says. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../support/ckpt_sample.h"
#include "../../support/faultfs.h"
#include "ckpt/ckpt.h"

struct room {
    weft_ctx *ctx;
    char dir[64], path[128];
    int64_t memory;
};

static int open_room(void **state)
{
    struct room *r = calloc(1, sizeof *r);

    temp_make(r->dir);
    snprintf(r->path, sizeof r->path, "%s/x.safetensors", r->dir);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &r->ctx))
        return -1;
    r->memory = weft_ctx_memory(r->ctx);
    *state = r;
    return 0;
}

static int close_room(void **state)
{
    struct room *r = *state;

    assert_int_equal(weft_ctx_memory(r->ctx), r->memory);
    weft_ctx_free(r->ctx);
    temp_remove(r->dir);
    free(r);
    return 0;
}

/* A file of this header (its length in front, which may be given) and n bytes 0, 1, 2, … of
 * data. */
static void put_file(const struct room *r, const char *header, uint64_t length, int64_t n)
{
    int64_t h = (int64_t)strlen(header);
    char *all = malloc((size_t)(8 + h + n) + 1);

    for (int i = 0; i < 8; i++)
        all[i] = (char)(length >> (8 * i));
    memcpy(all + 8, header, (size_t)h);
    for (int64_t i = 0; i < n; i++)
        all[8 + h + i] = (char)i;
    file_put(r->path, all, 8 + h + n);
    free(all);
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define A(type, shape, b, e) \
    "\"a\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" b "," e "]}"
#define B(type, shape, b, e) \
    ",\"b\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" b "," e "]}"

static const struct bad {
    const char *header;
    int64_t n_data;
    const char *why; /* part of the text */
} bad[] = {
    {"", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"{", 0, "header"},
    {"{}x", 0, "header"},
    {"{} \x01", 0, "header"},
    {"{\"a\":1}", 0, "not an object"},
    {"{\"a\":{}}", 0, "\"dtype\" is missing"},
    {"{\"\xff\":{}}", 0, "header"},
    {"{\"a\\u0000\":{}}", 0, "header"},
    {"{\"__metadata__\":1}", 0, "\"__metadata__\" is not an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "is not a string"},
    {"{\"__metadata__\":{\"k\":{}}}", 0, "is not a string"},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, "duplicate"},
    {"{" A("F32", "[1]", "0", "4") "," A("F32", "[1]", "4", "8") "}", 8, "duplicate"},
    {"{" A("F33", "[1]", "0", "4") "}", 4, "'F33' is not a safetensors dtype"},
    {"{" A("f32", "[1]", "0", "4") "}", 4, "'f32' is not a safetensors dtype"},
    {"{" A("F32", "1", "0", "4") "}", 4, "\"shape\" is not a list"},
    {"{" A("F32", "[-1]", "0", "4") "}", 4, "something other than sizes"},
    {"{" A("F32", "[1.0]", "0", "4") "}", 4, "something other than sizes"},
    {"{" A("F32", "[\"1\"]", "0", "4") "}", 4, "something other than sizes"},
    {"{" A("F32", "[18446744073709551616]", "0", "4") "}", 4, "header"},
    {"{" A("F32", "[9223372036854775807]", "0", "4") "}", 4, "overflow"},
    {"{" A("F32", "[4294967296,4294967296]", "0", "4") "}", 4, "overflows"},
    {"{" A("F32", "[4294967296,4294967296,0]", "0", "0") "}", 0, "overflows"},
    {"{" A("F32", "[4611686018427387905]", "0", "4") "}", 4, "overflow"}, /* 4·n wraps to 4 */
    {"{" A("F32", "[2]", "0", "4") "}", 4, "do not fill the 4 bytes"},
    {"{" A("F32", "[1]", "0", "8") "}", 8, "do not fill the 8 bytes"},
    {"{" A("F32", "[0]", "0", "4") "}", 4, "do not fill the 4 bytes"},
    {"{" A("F4", "[3]", "0", "1") "}", 1, "do not fill"},
    {"{" A("F32", "[1]", "4", "0") "}", 4, "is not a range"},
    {"{" A("F32", "[1]", "-4", "0") "}", 4, "is not a range"},
    {"{" A("F32", "[1]", "0", "4.0") "}", 4, "not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
     "not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4}}", 4, "is not a list"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\" is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "\"shape\" is missing"},
    {"{" A("F32", "[1]", "4", "8") "}", 8, "leaves a hole from 0"},
    {"{" A("F32", "[1]", "0", "4") B("F32", "[1]", "8", "12") "}", 12, "leaves a hole from 4"},
    {"{" A("F32", "[2]", "0", "8") B("F32", "[1]", "4", "8") "}", 8, "inside one that ends at 8"},
    {"{" A("F32", "[1]", "0", "4") B("F32", "[1]", "0", "4") "}", 4, "inside one that ends at 4"},
    {"{" A("F32", "[1]", "0", "4") "}", 5, "take 4 bytes, but the file has 5"},
    {"{" A("F32", "[2]", "0", "8") "}", 4, "take 8 bytes, but the file has 4"},
    {"{}", 1, "take 0 bytes, but the file has 1"},
};

static void wrong_files_are_refused_with_a_reason(void **state)
{
    struct room *r = *state;

    for (int i = 0; i < WF_COUNT(bad); i++) {
        weft_st *s = NULL;
        weft_status st;

        put_file(r, bad[i].header, strlen(bad[i].header), bad[i].n_data);
        st = weft_st_open(r->ctx, r->path, &s);
        if (st != WEFT_EPARSE || s)
            fail_msg("%s: got %s", bad[i].header, weft_status_name(st));
        if (!strstr(weft_error(), bad[i].why) || !strstr(weft_error(), r->path))
            fail_msg("%s: the text is '%s', '%s' is not in it", bad[i].header, weft_error(),
                     bad[i].why);
    }
}

static void lengths_of_the_header_are_not_believed(void **state)
{
    static const uint64_t length[] = {
        3,          9, 100000001, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX, UINT64_MAX - 7,
        0xffffffff, 0};
    struct room *r = *state;
    weft_st *s = NULL;

    for (int i = 0; i < WF_COUNT(length); i++) {
        put_file(r, "{}", length[i], 0);
        assert_int_equal(weft_st_open(r->ctx, r->path, &s), WEFT_EPARSE);
    }
    for (int n = 0; n < 8; n++) {
        file_put(r->path, "\x02\0\0\0\0\0\0\0{}", n);
        assert_int_equal(weft_st_open(r->ctx, r->path, &s), WEFT_EPARSE);
        assert_non_null(strstr(weft_error(), "too few"));
    }
    assert_int_equal(weft_st_open(r->ctx, r->dir, &s), WEFT_EIO);
    assert_int_equal(weft_st_open(r->ctx, "no such file", &s), WEFT_ENOENT);
}

/* A header of 100 000 000 bytes and more is refused before it is read; one as deep as a well,
 * too. */
static void nesting_has_a_limit(void **state)
{
    struct room *r = *state;
    enum { DEPTH = 100000 };
    char *deep = malloc(2 * DEPTH + 16);
    weft_st *s = NULL;

    strcpy(deep, "{\"a\":");
    memset(deep + 5, '[', DEPTH);
    memset(deep + 5 + DEPTH, ']', DEPTH);
    strcpy(deep + 5 + 2 * DEPTH, "}");
    put_file(r, deep, strlen(deep), 0);
    free(deep);
    assert_int_equal(weft_st_open(r->ctx, r->path, &s), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "depth"));
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void odd_but_right_files_are_read(void **state)
{
    struct room *r = *state;
    static const char header[] =
        "{\"z\":{\"data_offsets\":[3,5],\"shape\":[],\"dtype\":\"I16\",\"more\":[1]},"
        "\"f\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[5,9]},"
        "\"e\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[3,3]},"
        "\"d\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]},"
        "\"u\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9,17]},"
        "\"__metadata__\":{\"\xc3\xa4\":\"\\u00e4 \\\"\",\"\":\"\"}}   ";
    weft_tensor t = {.data = NULL};
    weft_st *s = NULL;
    const char *name = NULL, *key, *value;
    unsigned char two[2];

    put_file(r, header, strlen(header), 17);
    assert_int_equal(weft_st_open(r->ctx, r->path, &s), 0);
    assert_int_equal(weft_st_n(s), 5);
    assert_string_equal(weft_st_metadata(s, "\xc3\xa4"), "\xc3\xa4 \"");
    assert_string_equal(weft_st_metadata(s, ""), "");
    assert_null(weft_st_metadata(s, "a"));
    assert_int_equal(weft_st_n_metadata(s), 2);
    assert_int_equal(weft_st_metadata_at(s, 1, &key, &value), 0);
    assert_string_equal(key, "");
    assert_int_equal(weft_st_metadata_at(s, 2, &key, &value), WEFT_ERANGE);
    /* dtypes and ranks that weft does not have: named, and their bytes can be had */
    assert_int_equal(weft_st_type(s, weft_st_find(s, "z"), &name, &t), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "'z' has type I16"));
    assert_string_equal(name, "z");
    assert_int_equal(weft_st_read(s, weft_st_find(s, "z"), two, 2), 0);
    assert_true(two[0] == 3 && two[1] == 4);
    assert_int_equal(weft_st_read(s, weft_st_find(s, "z"), two, 1), WEFT_ESHAPE);
    assert_int_equal(weft_st_tensor(s, weft_st_find(s, "f"), NULL, &t), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "rank 9"));
    assert_int_equal(weft_st_tensor(s, weft_st_find(s, "d"), NULL, &t), WEFT_ENOSUP);
    /* an empty one */
    assert_int_equal(weft_st_tensor(s, weft_st_find(s, "e"), NULL, &t), 0);
    assert_true(t.dtype == WEFT_F64 && t.rank == 2 && t.dim[0] == 3 && t.dim[1] == 0 && t.data);
    /* one that lies at an odd place in the file is aligned in memory */
    assert_int_equal(weft_st_tensor(s, weft_st_find(s, "u"), &name, &t), 0);
    assert_int_equal((uintptr_t)t.data % 16, 0);
    assert_memory_equal(t.data, "\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", 8);
    assert_int_equal(weft_st_find(s, "nope"), -1);
    assert_int_equal(weft_st_type(s, 5, &name, &t), WEFT_ERANGE);
    assert_int_equal(weft_st_type(s, -1, &name, &t), WEFT_ERANGE);
    assert_int_equal(weft_st_read(s, 5, two, 2), WEFT_ERANGE);
    weft_st_close(s);
    weft_st_close(NULL);
}

static void an_empty_file_of_no_tensors_is_right(void **state)
{
    struct room *r = *state;
    weft_st *s = NULL;

    put_file(r, "{}", 2, 0);
    assert_int_equal(weft_st_open(r->ctx, r->path, &s), 0);
    assert_int_equal(weft_st_n(s), 0);
    assert_int_equal(weft_st_n_metadata(s), 0);
    weft_st_close(s);
}

static void a_file_cut_while_open_is_a_status(void **state)
{
    struct room *r = *state;
    weft_tensor t;
    weft_st *s = NULL;

    put_file(r, "{" A("F32", "[4]", "0", "16") "}", strlen("{" A("F32", "[4]", "0", "16") "}"), 16);
    assert_int_equal(weft_st_open(r->ctx, r->path, &s), 0);
    assert_int_equal(truncate(r->path, 60), 0);
    assert_int_equal(weft_st_tensor(s, 0, NULL, &t), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "more were expected"));
    weft_st_close(s);
}

static void a_view_is_read_once(void **state)
{
    struct room *r = *state;
    weft_tensor a, b;
    weft_st *s = NULL;
    float x = 1.5f;

    a = weft_view(WEFT_F32, &x, 0, NULL);
    assert_int_equal(weft_st_write(r->ctx, r->path, 1, (const char *[]){"x"}, &a, 0, NULL, NULL),
                     0);
    assert_int_equal(weft_st_open(r->ctx, r->path, &s), 0);
    assert_int_equal(weft_st_tensor(s, 0, NULL, &a), 0);
    assert_int_equal(weft_st_tensor(s, 0, NULL, &b), 0);
    assert_ptr_equal(a.data, b.data);
    assert_true(*(float *)b.data == 1.5f);
    weft_st_close(s);
}

/* ---- what is written ------------------------------------------------------------------------- */

static void the_layout_is_the_formats(void **state)
{
    struct room *r = *state;
    static const char want[] = "{\"__metadata__\":{\"k\":\"v\\\"\\u000a\"},"
                               "\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                               "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
                               "\"b\":{\"dtype\":\"F32\",\"shape\":[0,2],\"data_offsets\":[12,12]},"
                               "\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[12,14]},"
                               "\"t\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[14,15]}}";
    int64_t one[] = {1}, none[] = {0, 2}, big = 0x1122334455667788;
    float f = 1;
    uint16_t h = 0x3f80;
    uint8_t yes = 1;
    const char *const names[] = {"t", "b", "a", "h", "i"};
    const weft_tensor t[] = {
        weft_view(WEFT_BOOL, &yes, 1, one), weft_view(WEFT_F32, NULL, 2, none),
        weft_view(WEFT_F32, &f, 1, one),    weft_view(WEFT_BF16, &h, 1, one),
        weft_view(WEFT_I64, &big, 0, NULL),
    };
    int64_t n, length = 0;
    char *all;

    assert_int_equal(weft_st_write(r->ctx, r->path, 5, names, t, 1, (const char *[]){"k"},
                                   (const char *[]){"v\"\n"}),
                     0);
    all = file_get(r->path, &n);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (unsigned char)all[i];
    assert_int_equal((8 + length) % 64, 0);
    assert_int_equal(n, 8 + length + 15);
    assert_memory_equal(all + 8, want, strlen(want));
    for (int64_t i = 8 + (int64_t)strlen(want); i < 8 + length; i++)
        assert_int_equal(all[i], ' ');
    assert_memory_equal(all + 8 + length,
                        "\x88\x77\x66\x55\x44\x33\x22\x11\x00\x00\x80\x3f\x80\x3f\x01", 15);
    free(all);
}

static void every_dtype_comes_back(void **state)
{
    struct room *r = *state;
    struct sample s;
    const char *names[SAMPLE_TENSORS];
    weft_tensor t[SAMPLE_TENSORS];
    weft_st *f = NULL;

    sample_make(&s, 42);
    for (int i = 0; i < SAMPLE_TENSORS; i++) {
        names[i] = s.tensor[i].name;
        t[i] = s.tensor[i].tensor;
    }
    assert_int_equal(weft_st_write(r->ctx, r->path, SAMPLE_TENSORS, names, t, 0, NULL, NULL), 0);
    assert_int_equal(weft_st_open(r->ctx, r->path, &f), 0);
    assert_int_equal(weft_st_n(f), SAMPLE_TENSORS);
    for (int i = 0; i < SAMPLE_TENSORS; i++) {
        weft_tensor have;

        assert_int_equal(weft_st_tensor(f, weft_st_find(f, names[i]), NULL, &have), 0);
        assert_int_equal(have.dtype, t[i].dtype);
        assert_int_equal(have.rank, t[i].rank);
        assert_memory_equal(have.dim, t[i].dim, sizeof(int64_t) * (size_t)t[i].rank);
        if (weft_tensor_bytes(&have))
            assert_memory_equal(have.data, t[i].data, (size_t)weft_tensor_bytes(&have));
    }
    weft_st_close(f);
}

static void what_cannot_be_written_is_refused_and_leaves_the_old_file(void **state)
{
    struct room *r = *state;
    int64_t one[] = {1}, unknown[] = {WEFT_ANY};
    float x = 1;
    const struct {
        const char *name;
        weft_tensor t;
        weft_status want;
    } rows[] = {
        {"__metadata__", weft_view(WEFT_F32, &x, 1, one), WEFT_EINVAL},
        {"\xed\xa0\x80", weft_view(WEFT_F32, &x, 1, one), WEFT_EINVAL},
        {"\xe2\x82", weft_view(WEFT_F32, &x, 1, one), WEFT_EINVAL},
        {"\xf4\x90\x80\x80", weft_view(WEFT_F32, &x, 1, one), WEFT_EINVAL},
        {"x", weft_view(WEFT_F32, &x, 1, unknown), WEFT_ESHAPE},
        {"x", weft_view(WEFT_F32, NULL, 1, one), WEFT_EINVAL},
        {"x", weft_view((weft_dtype)77, &x, 1, one), WEFT_EDTYPE},
    };
    weft_tensor two[] = {weft_view(WEFT_F32, &x, 1, one), weft_view(WEFT_U8, &x, 1, one)};
    char tmp[160];

    file_put(r->path, "old", 3);
    for (int i = 0; i < WF_COUNT(rows); i++)
        assert_int_equal(
            weft_st_write(r->ctx, r->path, 1, &rows[i].name, &rows[i].t, 0, NULL, NULL),
            rows[i].want);
    assert_int_equal(
        weft_st_write(r->ctx, r->path, 2, (const char *[]){"x", "x"}, two, 0, NULL, NULL),
        WEFT_EEXIST);
    assert_int_equal(weft_st_write(r->ctx, r->path, -1, NULL, NULL, 0, NULL, NULL), WEFT_EINVAL);
    snprintf(tmp, sizeof tmp, "%s.tmp", r->path);
    assert_int_equal(access(tmp, F_OK), -1);
    int64_t n;
    char *old = file_get(r->path, &n);
    assert_string_equal(old, "old");
    free(old);
}

static void each_call_of_a_write_may_fail_and_the_old_file_stays(void **state)
{
    struct room *r = *state;
    static struct faultfs disk;
    float x[64] = {1};
    weft_tensor t = weft_view(WEFT_F32, x, 1, (int64_t[]){64});
    int64_t total = 1;

    for (int64_t i = 0; i <= total; i++) {
        weft_status st;
        int64_t n;
        char *now, tmp[160];

        file_put(r->path, "old", 3);
        faultfs_init(&disk);
        disk.fail_at = i;
        r->ctx->fs = &disk.fs;
        st = weft_st_write(r->ctx, r->path, 1, (const char *[]){"x"}, &t, 0, NULL, NULL);
        r->ctx->fs = &wf_fs_posix;
        if (!i) {
            assert_int_equal(st, 0);
            total = disk.n_calls;
        }
        now = file_get(r->path, &n);
        if (st && strcmp(now, "old") && !strstr(weft_error(), r->dir))
            fail_msg("call %lld: %s", (long long)i, weft_error());
        if (!strcmp(now, "old") ? !st : n != 256 + 128)
            fail_msg("call %lld of %lld: %s, %lld bytes", (long long)i, (long long)total,
                     weft_status_name(st), (long long)n);
        free(now);
        snprintf(tmp, sizeof tmp, "%s.tmp", r->path);
        assert_int_equal(access(tmp, F_OK), -1);
    }
    assert_true(total >= 8);
}

#define IN_ROOM(f) cmocka_unit_test_setup_teardown(f, open_room, close_room)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOM(wrong_files_are_refused_with_a_reason),
        IN_ROOM(lengths_of_the_header_are_not_believed),
        IN_ROOM(nesting_has_a_limit),
        IN_ROOM(odd_but_right_files_are_read),
        IN_ROOM(an_empty_file_of_no_tensors_is_right),
        IN_ROOM(a_file_cut_while_open_is_a_status),
        IN_ROOM(a_view_is_read_once),
        IN_ROOM(the_layout_is_the_formats),
        IN_ROOM(every_dtype_comes_back),
        IN_ROOM(what_cannot_be_written_is_refused_and_leaves_the_old_file),
        IN_ROOM(each_call_of_a_write_may_fail_and_the_old_file_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
