/* Lines of text and records of a fixed length, plain and packed. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "files_support.h"
#include "iter_support.h"

static weft_ctx *ctx;
static int64_t at_rest;

static int setup(void **state)
{
    (void)state;
    scratch_make();
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return -1;
    at_rest = weft_ctx_memory(ctx);
    return 0;
}

static int teardown(void **state)
{
    int64_t left = weft_ctx_memory(ctx) - at_rest;

    (void)state;
    scratch_drop();
    weft_ctx_free(ctx);
    return left != 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

struct lines {
    const char *files;
    weft_lines_opts opts;
};

static weft_ds make_lines(weft_data *d, void *arg)
{
    struct lines *l = arg;

    l->opts.size = sizeof l->opts;
    return weft_ds_lines(d, l->files, &l->opts);
}

/* All lines, joined with |; or the error. */
static const char *lines_of(struct lines l, int threads)
{
    static char out[4096];
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    int n = 0;
    weft_status st;

    out[0] = 0;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    assert_int_equal(
        weft_iter_new(d, make_lines(d, &l),
                      WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it),
        WEFT_OK);
    while (!(st = weft_iter_next(it, &b)) && b) {
        const weft_str *s = b->col[0].data;

        n += snprintf(out + n, sizeof out - (size_t)n, "%.*s|", (int)s->n, s->data);
        weft_batch_free(b);
    }
    if (st)
        snprintf(out + n, sizeof out - (size_t)n, "! %s", weft_error());
    weft_iter_free(it);
    weft_data_free(d);
    return out;
}

static const char *put_text(const char *name, const char *text)
{
    return put_file(name, text, strlen(text));
}

static void lines_end_in_every_way(void **state)
{
    static const struct {
        const char *text, *lines;
    } cases[] = {
        {"", ""},
        {"a", "a|"},
        {"a\n", "a|"},
        {"a\nb", "a|b|"},
        {"a\r\nb\r\n", "a|b|"},
        {"a\rb\n", "a\rb|"},
        {"\n", "|"},
        {"\n\nx", "||x|"},
        {"\r\n", "|"},
        {"\r", "|"},
        {"\xef\xbb\xbfx\ny", "x|y|"},
        {"\xef\xbb\xbf", ""},
        {"\xef\xbb", "\xef\xbb|"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = put_text("t.txt", cases[i].text);

        assert_string_equal(lines_of((struct lines){.files = path}, 0), cases[i].lines);
    }
}

static void empty_lines_comments_and_headers_can_be_left_out(void **state)
{
    const char *path = put_text("o.txt", "name\n\n#c\na\n\n#\nb");
    struct lines l = {.files = path};

    (void)state;
    assert_string_equal(lines_of(l, 0), "name||#c|a||#|b|");
    l.opts.skip_empty = true;
    assert_string_equal(lines_of(l, 0), "name|#c|a|#|b|");
    l.opts.comment = "#";
    assert_string_equal(lines_of(l, 1), "name|a|b|");
    l.opts.header = 1;
    assert_string_equal(lines_of(l, 2), "a|b|");
    put_text("o2.txt", "name\nc");
    l.files = in_scratch("o*.txt");
    assert_string_equal(lines_of(l, 3), "a|b|c|");
}

static void a_line_over_the_cap_is_an_error_or_left_out(void **state)
{
    const char *path = put_text("cap.txt", "1234\n12345\n123\n1234567890123\r\n1234\r\n12345");
    struct lines l = {.files = path, .opts.max_line = 4};

    (void)state;
    assert_non_null(strstr(lines_of(l, 0), "1234|! "));
    assert_non_null(strstr(lines_of(l, 0), "cap.txt: line 2 (byte 5): longer than 4 bytes"));
    l.opts.on_error = WEFT_ON_ERROR_SKIP;
    for (int threads = 0; threads < 3; threads++)
        assert_string_equal(lines_of(l, threads), "1234|123|1234|");
}

static void long_lines_cross_chunks(void **state)
{
    size_t n = 5 << 20;
    char *text = malloc(n);
    struct dump a, b;
    struct lines l;

    (void)state;
    for (size_t i = 0; i < n; i++)
        text[i] =
            (char)(i % 700001 == 700000 || (i > 3000000 && i % 97 == 0) ? '\n' : 'a' + i % 26);
    l = (struct lines){.files = put_file("long.txt", text, n)};
    a = dump_of(ctx, make_lines, &l, 0);
    assert_int_equal(a.st, WEFT_OK);
    b = dump_of(ctx, make_lines, &l, 3);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    dump_free(&b);
    if (can_pack(WEFT_COMPRESSION_ZSTD)) {
        size_t m;
        char *packed = pack(WEFT_COMPRESSION_ZSTD, text, n, &m);

        l.files = put_file("long.zst", packed, m);
        b = dump_of(ctx, make_lines, &l, 2);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.p, b.p, a.n);
        dump_free(&b);
        free(packed);
    }
    dump_free(&a);
    free(text);
}

static void lines_continue_from_any_position(void **state)
{
    struct lines l = {.files = in_scratch("r-*"), .opts = {.header = 1, .skip_empty = true}};

    (void)state;
    put_text("r-1.txt", "h\n1\n2\n\n3\r\n4");
    put_text("r-2.txt", "h\n");
    put_text("r-3.txt", "h\n5\n\n6\n");
    if (can_pack(WEFT_COMPRESSION_GZIP)) {
        size_t n;
        char *packed = pack(WEFT_COMPRESSION_GZIP, "h\n7\n8\n9\n", 8, &n);

        put_file("r-4.gz", packed, n);
        free(packed);
    } else {
        put_text("r-4.txt", "h\n7\n8\n9\n");
    }
    assert_string_equal(lines_of(l, 0), "1|2|3|4|5|6|7|8|9|");
    l.opts.files.shuffle = true;
    for (int threads = 0; threads < 3; threads++)
        assert_int_equal(check_restore(ctx, make_lines, &l, threads), 10);
}

/* ---- fixed ----------------------------------------------------------------------------------- */

struct fixed {
    const char *files;
    int64_t bytes;
    weft_fixed_opts opts;
    bool shuffle;
};

static weft_ds make_fixed(weft_data *d, void *arg)
{
    struct fixed *f = arg;
    weft_ds s;

    f->opts.size = sizeof f->opts;
    s = weft_ds_fixed(d, f->files, f->bytes, &f->opts);
    return f->shuffle ? weft_ds_shuffle_all(d, s, NULL) : s;
}

/* Pairs (i, -i) of big-endian f32 for i = first, … between HEAD and TAIL. */
static void put_pairs(const char *name, int first, int n, weft_compression how)
{
    unsigned char p[4096] = "HEAD";
    int at = 4;
    size_t m;
    char *packed;

    for (int i = first; i < first + n; i++) {
        float v[2] = {(float)i, (float)-i};

        for (int k = 0; k < 2; k++)
            for (int j = 3; j >= 0; j--)
                p[at++] = ((unsigned char *)&v[k])[j];
    }
    memcpy(p + at, "TAIL!", 5);
    packed = pack(how, p, (size_t)at + 5, &m);
    put_file(name, packed, m);
    free(packed);
}

static void fixed_records_of_both_byte_orders(void **state)
{
    struct fixed f = {.files = in_scratch("f-*"),
                      .opts = {.header = 4,
                               .footer = 5,
                               .dtype = WEFT_F32,
                               .rank = 1,
                               .dim = {2},
                               .big_endian = true}};
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)state;
    put_pairs("f-1", 0, 30, WEFT_COMPRESSION_NONE);
    put_pairs("f-2", 30, 0, WEFT_COMPRESSION_NONE);
    put_pairs("f-3", 30, 25, WEFT_COMPRESSION_NONE);
    for (int packed = 0; packed < 2; packed++) {
        weft_ds s;

        if (packed && !can_pack(WEFT_COMPRESSION_GZIP))
            continue;
        if (packed)
            put_pairs("f-3", 30, 25, WEFT_COMPRESSION_GZIP);
        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        s = make_fixed(d, &f);
        assert_int_equal(weft_ds_addressable(d, s), !packed);
        assert_int_equal(weft_ds_count(d, s), packed ? WEFT_UNKNOWN : 55);
        assert_int_equal(weft_iter_new(d, s, NULL, &it), WEFT_OK);
        for (int i = 0; i < 55; i++) {
            assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
            assert_non_null(b);
            assert_true(((float *)b->col[0].data)[0] == (float)i);
            assert_true(((float *)b->col[0].data)[1] == (float)-i);
            assert_int_equal(b->id[0], i);
            weft_batch_free(b);
        }
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        assert_null(b);
        weft_iter_free(it);
        weft_data_free(d);
        for (int threads = 0; threads < 3; threads++)
            assert_int_equal(check_restore(ctx, make_fixed, &f, threads), 56);
        f.opts.dtype = WEFT_NONE;
        f.opts.rank = 0;
        f.bytes = 8;
        assert_int_equal(check_restore(ctx, make_fixed, &f, 2), 56);
        f.shuffle = !packed;
        assert_int_equal(check_restore(ctx, make_fixed, &f, 2), 56);
        f.shuffle = false;
        f.opts.dtype = WEFT_F32;
        f.opts.rank = 1;
        f.bytes = 0;
    }
}

static void a_piece_of_a_record_is_an_error_or_left_out(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        char bytes[100];
        weft_compression how = packed ? WEFT_COMPRESSION_GZIP : WEFT_COMPRESSION_NONE;

        if (!can_pack(how))
            continue;
        memset(bytes, 'x', sizeof bytes);
        for (size_t n = 0; n < 40; n++) {
            size_t m;
            char *p = pack(how, bytes, n, &m);
            struct fixed f = {
                .files = put_file("piece", p, m), .bytes = 10, .opts = {.header = 3, .footer = 2}};
            struct dump got = dump_of(ctx, make_fixed, &f, 0);
            bool whole = n >= 5 && (n - 5) % 10 == 0;

            assert_int_equal(got.st, whole ? WEFT_OK : WEFT_EDATA);
            if (!whole)
                assert_non_null(strstr(got.error, "piece"));
            dump_free(&got);
            f.opts.on_error = WEFT_ON_ERROR_SKIP;
            got = dump_of(ctx, make_fixed, &f, 2);
            assert_int_equal(got.st, WEFT_OK);
            assert_int_equal(got.n_elements, n < 5 ? 0 : (n - 5) / 10);
            dump_free(&got);
            free(p);
        }
    }
}

static void fixed_options_that_make_no_sense_are_refused(void **state)
{
    const char *path = put_text("sense", "0123456789");
    struct fixed bad[] = {
        {.files = path, .bytes = 0},
        {.files = path, .bytes = -1},
        {.files = path, .bytes = 3, .opts = {.dtype = WEFT_F32}},
        {.files = path, .bytes = 5, .opts = {.header = -1}},
        {.files = path, .bytes = 4, .opts = {.dtype = WEFT_F32, .rank = 1, .dim = {WEFT_ANY}}},
        {.files = path, .bytes = 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dump got = dump_of(ctx, make_fixed, &bad[i], 0);

        assert_true(got.st != WEFT_OK);
        assert_non_null(strstr(got.error, "fixed: "));
        dump_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_in_every_way),
        cmocka_unit_test(empty_lines_comments_and_headers_can_be_left_out),
        cmocka_unit_test(a_line_over_the_cap_is_an_error_or_left_out),
        cmocka_unit_test(long_lines_cross_chunks),
        cmocka_unit_test(lines_continue_from_any_position),
        cmocka_unit_test(fixed_records_of_both_byte_orders),
        cmocka_unit_test(a_piece_of_a_record_is_an_error_or_left_out),
        cmocka_unit_test(fixed_options_that_make_no_sense_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
