/* Files as streams: every byte once, in contiguous windows, from any saved position, packed or not;
 * damage is an error that names the place, never a short file. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "data/file/files.h"
#include "files_support.h"

static weft_ctx *ctx;
static weft_data *d;
static struct wf_env *env;
static int64_t at_rest;

static int setup(void **state)
{
    (void)state;
    scratch_make();
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
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

static int begin(void **state)
{
    (void)state;
    return weft_data_new(ctx, &d) || wf_env_new(d, 64 << 20, NULL, &env);
}

static int end(void **state)
{
    (void)state;
    wf_env_close(env);
    weft_data_free(d);
    return 0;
}

static struct wf_files list_of(const char *patterns, const weft_file_opts *opts)
{
    struct wf_files f;

    assert_int_equal(wf_files_find(d, patterns, opts, &f), WEFT_OK);
    return f;
}

static void fill(char *p, size_t n)
{
    uint32_t x = 7;

    /* Compressible, but not by much. */
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        p[i] = (char)('a' + ((x >> 24) & 15));
    }
}

/* Read all that is left through windows of at least `need` bytes; appends to out. */
static weft_status drain(struct wf_stream *s, int64_t need, char *out, int64_t *n)
{
    bool more = true;
    weft_status st = WEFT_OK;

    while (!st && more) {
        st = wf_stream_need(s, need);
        if (!st && !s->n) {
            st = wf_stream_next_file(s, &more);
        } else if (!st) {
            int64_t k = s->n < need ? s->n : need;

            assert_true(s->n >= need || s->ended);
            memcpy(out + *n, s->p, (size_t)k);
            *n += k;
            wf_stream_take(s, k);
        }
    }
    return st;
}

static const struct {
    weft_compression how;
    const char *name;
} packings[] = {
    {WEFT_COMPRESSION_NONE, "a.txt"},
    {WEFT_COMPRESSION_GZIP, "a.gz"},
    {WEFT_COMPRESSION_ZLIB, "a.zlib"},
    {WEFT_COMPRESSION_ZSTD, "a.zst"},
};

static void windows_give_every_byte_once(void **state)
{
    enum { N = 3333333 };
    char *text = malloc(N), *out = malloc(N + 1);
    int64_t needs[] = {1000, 4097, 100000, 1 << 20, 2500000, 5000000};

    (void)state;
    fill(text, N);
    for (int i = 0; i < 4; i++) {
        size_t n;
        char *packed;

        if (!can_pack(packings[i].how))
            continue;
        packed = pack(packings[i].how, text, N, &n);
        put_file(packings[i].name, packed, n);
        put_file("nameless", packed, n);
        for (int k = 0; k < 2 * WF_COUNT(needs); k++) {
            struct wf_files f = list_of(in_scratch(k % 2 ? "nameless" : packings[i].name), NULL);
            struct wf_stream *s;
            int64_t got = 0;

            assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
            assert_int_equal(drain(s, needs[k / 2], out, &got), WEFT_OK);
            assert_int_equal(got, N);
            assert_memory_equal(out, text, N);
            wf_stream_close(s);
        }
        free(packed);
    }
    free(text);
    free(out);
}

static void a_kept_window_never_changes(void **state)
{
    enum { N = 4 << 20 };
    char *text = malloc(N);
    struct wf_files f;
    struct wf_stream *s;
    struct {
        struct wf_chunk *chunk;
        const char *p;
    } kept[64];
    int n_kept = 0;
    bool more;

    (void)state;
    fill(text, N);
    put_file("kept", text, N);
    f = list_of(in_scratch("kept"), NULL);
    assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
    assert_int_equal(wf_stream_next_file(s, &more), WEFT_OK);
    for (int64_t at = 0; at < N; at += 65536) {
        assert_int_equal(wf_stream_need(s, 65536), WEFT_OK);
        kept[n_kept].chunk = wf_chunk_ref(s->chunk);
        kept[n_kept++].p = s->p;
        wf_stream_take(s, 65536);
    }
    for (int i = 0; i < n_kept; i++) {
        assert_memory_equal(kept[i].p, text + i * 65536, 65536);
        wf_chunk_unref(kept[i].chunk);
    }
    wf_stream_close(s);
    free(text);
}

static void a_saved_position_goes_on_with_the_same_bytes(void **state)
{
    enum { N = 5000 };
    char text[N], out[2 * N + 1];

    (void)state;
    fill(text, N);
    for (int i = 0; i < 4; i++) {
        char name[3][32];
        struct wf_files f;
        weft_file_opts opts = {.shuffle = true, .seed = 3};

        if (!can_pack(packings[i].how))
            continue;
        for (int k = 0; k < 3; k++) {
            size_t n;
            char *packed = pack(packings[i].how, text + k * 1000, 1000, &n);

            snprintf(name[k], sizeof name[k], "part-%d-%s", k, packings[i].name);
            put_file(name[k], packed, n);
            free(packed);
        }
        snprintf(out, sizeof out, "%s/part-*-%s", scratch, packings[i].name);
        f = list_of(out, &opts);
        assert_int_equal(f.n, 3);
        for (int64_t stop = 0; stop <= 3000; stop += 50) {
            struct wf_stream *a, *b;
            struct wf_buf saved;
            struct wf_reader r;
            char first[3001], second[3001];
            int64_t n = 0, m = 0;
            bool more;

            assert_int_equal(wf_stream_open(env, &f, 0, NULL, &a), WEFT_OK);
            assert_int_equal(wf_stream_open(env, &f, 0, NULL, &b), WEFT_OK);
            wf_stream_reset(a, 5);
            while (n < stop) {
                assert_int_equal(wf_stream_need(a, 50), WEFT_OK);
                if (!a->n) {
                    assert_int_equal(wf_stream_next_file(a, &more), WEFT_OK);
                } else {
                    wf_stream_take(a, 50);
                    n += 50;
                }
            }
            wf_buf_init(&saved, ctx, 1 << 20);
            wf_stream_save(a, &saved);
            r = (struct wf_reader){saved.data, saved.data + saved.len, WEFT_OK};
            assert_int_equal(wf_stream_restore(b, &r), WEFT_OK);
            n = 0;
            assert_int_equal(drain(a, 7, first, &n), WEFT_OK);
            assert_int_equal(drain(b, 11, second, &m), WEFT_OK);
            assert_int_equal(n, 3000 - stop);
            assert_int_equal(m, n);
            assert_memory_equal(first, second, (size_t)n);
            wf_buf_free(&saved);
            wf_stream_close(a);
            wf_stream_close(b);
        }
    }
}

static void members_and_frames_follow_each_other(void **state)
{
    char text[3000], joined[20000], out[3001];

    (void)state;
    fill(text, sizeof text);
    for (int i = 1; i < 4; i += 2) {
        size_t n, at = 0;
        struct wf_files f;
        struct wf_stream *s;
        int64_t got = 0;

        if (!can_pack(packings[i].how))
            continue;
        for (int k = 0; k < 3; k++) {
            char *packed = pack(packings[i].how, text + 1000 * k, 1000, &n);

            memcpy(joined + at, packed, n);
            at += n;
            free(packed);
        }
        f = list_of(put_file(packings[i].name, joined, at), NULL);
        assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
        assert_int_equal(drain(s, 10, out, &got), WEFT_OK);
        assert_int_equal(got, 3000);
        assert_memory_equal(out, text, 3000);
        wf_stream_close(s);
        /* gzip files are padded with zeros by some tapes; anything else is damage. */
        memset(joined + at, 0, 100);
        f = list_of(put_file(packings[i].name, joined, at + 100), NULL);
        assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
        got = 0;
        assert_int_equal(drain(s, 10, out, &got),
                         packings[i].how == WEFT_COMPRESSION_GZIP ? WEFT_OK : WEFT_EDATA);
        assert_int_equal(got, 3000);
        wf_stream_close(s);
        joined[at + 50] = 'x';
        f = list_of(put_file(packings[i].name, joined, at + 100), NULL);
        assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
        got = 0;
        assert_int_equal(drain(s, 10, out, &got), WEFT_EDATA);
        wf_stream_close(s);
    }
}

static weft_status read_all(const char *path, char *out, int64_t *n)
{
    struct wf_files f = list_of(path, NULL);
    struct wf_stream *s;
    weft_status st;

    *n = 0;
    assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
    st = drain(s, 100, out, n);
    wf_stream_close(s);
    return st;
}

static void truncated_at_every_byte_is_an_error(void **state)
{
    char text[600], out[100000];

    (void)state;
    fill(text, sizeof text);
    for (int i = 1; i < 4; i++) {
        size_t n;
        int64_t got;
        char *packed;

        if (!can_pack(packings[i].how))
            continue;
        packed = pack(packings[i].how, text, sizeof text, &n);
        for (size_t cut = 0; cut < n; cut++) {
            put_file(packings[i].name, packed, cut);
            assert_int_equal(read_all(in_scratch(packings[i].name), out, &got), WEFT_EDATA);
            assert_non_null(strstr(weft_error(), cut ? "byte" : "empty"));
            assert_memory_equal(out, text, (size_t)got); /* what was readable came first */
        }
        free(packed);
    }
}

static void a_flipped_bit_is_an_error_or_changes_nothing(void **state)
{
    char text[600], out[100000];

    (void)state;
    fill(text, sizeof text);
    for (int i = 1; i < 4; i++) {
        size_t n;
        int64_t got;
        char *packed;

        if (!can_pack(packings[i].how))
            continue;
        packed = pack(packings[i].how, text, sizeof text, &n);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            weft_status st;

            packed[bit / 8] ^= (char)(1 << bit % 8);
            put_file(packings[i].name, packed, n);
            st = read_all(in_scratch(packings[i].name), out, &got);
            packed[bit / 8] ^= (char)(1 << bit % 8);
            /* zlib's own check is weak: changes of +1, -2, +1 in neighbors escape it. */
            if (st == WEFT_OK && packings[i].how != WEFT_COMPRESSION_ZLIB) {
                assert_int_equal(got, sizeof text);
                assert_memory_equal(out, text, sizeof text);
            }
        }
        free(packed);
    }
}

static void a_bomb_is_refused(void **state)
{
    size_t n, zeros = 100 << 20;
    char *text = calloc(1, zeros), *out = malloc(zeros + 1);
    weft_file_opts strict = {.max_ratio = 10};

    (void)state;
    for (int i = 1; i < 4; i++) {
        char *packed;
        struct wf_files f;
        struct wf_stream *s;
        int64_t got = 0;

        if (!can_pack(packings[i].how))
            continue;
        packed = pack(packings[i].how, text, zeros, &n);
        f = list_of(put_file(packings[i].name, packed, n), &strict);
        assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
        assert_int_equal(drain(s, 1000, out, &got), WEFT_ELIMIT);
        assert_true(got <= 70 << 20);
        wf_stream_close(s);
        free(packed);
    }
    free(text);
    free(out);
}

static void plain_files_that_look_packed_are_read_as_they_are(void **state)
{
    const char *texts[] = {"x^2 + y^2 = z^2, and so on\n", "x\001 is not zlib", "\x1f\x8b", "x"};
    char out[100], record[400] = {0x78, 0x01};
    int64_t got;

    (void)state;
    for (int i = 0; i < 4; i++) {
        put_file("odd", texts[i], strlen(texts[i]));
        assert_int_equal(read_all(in_scratch("odd"), out, &got), WEFT_OK);
        assert_int_equal(got, strlen(texts[i]));
        assert_memory_equal(out, texts[i], strlen(texts[i]));
    }
    put_file("record", record, sizeof record); /* a TFRecord of 376 bytes begins like zlib */
    {
        char big[400];

        assert_int_equal(read_all(in_scratch("record"), big, &got), WEFT_OK);
        assert_int_equal(got, 400);
    }
}

static void a_length_nobody_has_is_not_allocated(void **state)
{
    struct wf_files f = list_of(put_file("small", "abc", 3), NULL);
    struct wf_stream *s;
    bool more;
    int64_t before;

    (void)state;
    assert_int_equal(wf_stream_open(env, &f, (int64_t)1 << 50, NULL, &s), WEFT_OK);
    assert_int_equal(wf_stream_next_file(s, &more), WEFT_OK);
    before = weft_ctx_memory(ctx);
    assert_int_equal(wf_stream_need(s, (int64_t)1 << 49), WEFT_OK);
    assert_int_equal(s->n, 3);
    assert_true(s->ended);
    assert_true(weft_ctx_memory(ctx) - before < 2 << 20);
    wf_stream_close(s);
    assert_int_equal(wf_stream_open(env, &f, 2, NULL, &s), WEFT_OK);
    assert_int_equal(wf_stream_next_file(s, &more), WEFT_OK);
    assert_int_equal(wf_stream_need(s, 3), WEFT_ELIMIT);
    wf_stream_close(s);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void patterns_are_sorted_and_kept_in_order(void **state)
{
    struct wf_files f;
    char patterns[512];
    const char *want[] = {"l-b.x", "l-a.y", "l-c.y", "l,d.z"};

    (void)state;
    put_file("l-c.y", "", 0);
    put_file("l-a.y", "", 0);
    put_file("l-b.x", "", 0);
    put_file("l,d.z", "", 0);
    snprintf(patterns, sizeof patterns, "%s/l-*.x, %s/l-*.y,%s/l-?.[xy],%s/l\\,d.z", scratch,
             scratch, scratch, scratch);
    f = list_of(patterns, NULL);
    assert_int_equal(f.n, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(f.path[i], in_scratch(want[i]));
}

static void a_literal_name_may_hold_pattern_characters(void **state)
{
    struct wf_files f;

    (void)state;
    put_file("odd[1]*.txt", "", 0);
    f = list_of(in_scratch("odd[1]*.txt"), NULL);
    assert_int_equal(f.n, 1);
}

static void no_match_and_folders_are_errors(void **state)
{
    struct wf_files f;

    (void)state;
    assert_int_equal(wf_files_find(d, in_scratch("nothing-*"), NULL, &f), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "nothing-*"));
    assert_int_equal(wf_files_find(d, "no-such-folder-at-all/*", NULL, &f), WEFT_ENOENT);
    assert_int_equal(wf_files_find(d, scratch, NULL, &f), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "directory"));
    assert_int_equal(wf_files_find(d, "", NULL, &f), WEFT_EINVAL);
    assert_int_equal(wf_files_find(d, NULL, NULL, &f), WEFT_EINVAL);
}

static void shuffled_files_differ_by_epoch_and_repeat(void **state)
{
    struct wf_files f;
    weft_file_opts opts = {.shuffle = true, .seed = 11};
    char order[3][9] = {{0}};
    struct wf_stream *s;
    int64_t epochs[] = {0, 1, 0};

    (void)state;
    for (int i = 0; i < 8; i++) {
        char name[16], c = (char)('A' + i);

        snprintf(name, sizeof name, "s-%d", i);
        put_file(name, &c, 1);
    }
    f = list_of(in_scratch("s-*"), &opts);
    assert_int_equal(wf_stream_open(env, &f, 0, NULL, &s), WEFT_OK);
    for (int k = 0; k < 3; k++) {
        int64_t n = 0;
        int seen = 0;

        wf_stream_reset(s, epochs[k]);
        assert_int_equal(drain(s, 1, order[k], &n), WEFT_OK);
        assert_int_equal(n, 8);
        for (int i = 0; i < 8; i++)
            seen |= 1 << (order[k][i] - 'A');
        assert_int_equal(seen, 255);
    }
    assert_memory_equal(order[0], order[2], 8);
    assert_true(memcmp(order[0], order[1], 8) != 0);
    wf_stream_close(s);
}

/* ---- a file system that fails ---------------------------------------------------------------- */

static int calls_left;

static bool fails(void)
{
    return calls_left-- == 0;
}

static int fail_open(void *arg, const char *path, int flags, int mode)
{
    return fails() ? -EMFILE : wf_fs_posix.open(arg, path, flags, mode);
}
static int64_t fail_read(void *arg, int fd, void *buf, int64_t n)
{
    return fails() ? -EIO : wf_fs_posix.read(arg, fd, buf, n > 100 ? 100 : n);
}
static int64_t fail_size(void *arg, int fd)
{
    return fails() ? -EIO : wf_fs_posix.size(arg, fd);
}
static int fail_stat(void *arg, const char *path, struct wf_file_info *out)
{
    return fails() ? -EACCES : wf_fs_posix.stat(arg, path, out);
}
static int fail_glob(void *arg, const char *pattern, int (*each)(void *, const char *), void *e)
{
    return fails() ? -EACCES : wf_fs_posix.glob(arg, pattern, each, e);
}

static void every_failing_call_is_an_error_or_makes_no_difference(void **state)
{
    struct wf_fs fs = wf_fs_posix;
    char text[500], out[501];
    size_t n;
    weft_compression how =
        can_pack(WEFT_COMPRESSION_GZIP) ? WEFT_COMPRESSION_GZIP : WEFT_COMPRESSION_NONE;
    char *packed;
    int n_failed = 0;

    (void)state;
    fill(text, sizeof text);
    packed = pack(how, text, sizeof text, &n);
    put_file("fault", packed, n);
    free(packed);
    fs.open = fail_open;
    fs.read = fail_read;
    fs.size = fail_size;
    fs.stat = fail_stat;
    fs.glob = fail_glob;
    ctx->fs = &fs;
    for (int k = 0;; k++) {
        struct wf_files f;
        struct wf_stream *s = NULL;
        int64_t got = 0;
        weft_status st;

        calls_left = k;
        st = wf_files_find(d, in_scratch("faul*"), NULL, &f);
        if (!st)
            st = wf_stream_open(env, &f, 0, NULL, &s);
        if (!st)
            st = drain(s, 10, out, &got);
        wf_stream_close(s);
        if (!st) {
            assert_int_equal(got, sizeof text);
            assert_memory_equal(out, text, sizeof text);
        } else {
            assert_true(weft_error()[0] != 0);
            n_failed++;
        }
        if (calls_left >= 0)
            break;
    }
    ctx->fs = &wf_fs_posix;
    assert_true(n_failed >= 6);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(windows_give_every_byte_once),
        CASE(a_kept_window_never_changes),
        CASE(a_saved_position_goes_on_with_the_same_bytes),
        CASE(members_and_frames_follow_each_other),
        CASE(truncated_at_every_byte_is_an_error),
        CASE(a_flipped_bit_is_an_error_or_changes_nothing),
        CASE(a_bomb_is_refused),
        CASE(plain_files_that_look_packed_are_read_as_they_are),
        CASE(a_length_nobody_has_is_not_allocated),
        CASE(patterns_are_sorted_and_kept_in_order),
        CASE(a_literal_name_may_hold_pattern_characters),
        CASE(no_match_and_folders_are_errors),
        CASE(shuffled_files_differ_by_epoch_and_repeat),
        CASE(every_failing_call_is_an_error_or_makes_no_difference),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
