/* TFRecord files: written and read back, damaged in every way, indexed, appended to, from any
 * position. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "data/record/record.h"
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

/* Record i of these tests: i bytes and some, that tell i. */
static int64_t record(int64_t i, char *out)
{
    int64_t n = (i * 7) % 40;

    for (int64_t k = 0; k < n; k++)
        out[k] = (char)(i * 31 + k);
    return n;
}

static void write_records(const char *path, int64_t first, int64_t n,
                          const weft_record_writer_opts *opts)
{
    weft_record_writer *w;
    char bytes[64];

    assert_int_equal(weft_record_writer_new(ctx, path, opts, &w), WEFT_OK);
    for (int64_t i = first; i < first + n; i++) {
        int64_t len = record(i, bytes);

        assert_int_equal(weft_record_writer_add(w, bytes, len), WEFT_OK);
    }
    assert_int_equal(weft_record_writer_count(w), n);
    assert_int_equal(weft_record_writer_close(w), WEFT_OK);
}

struct source {
    const char *files;
    weft_tfrecord_opts opts;
    int64_t batch; /* 0: none */
    bool shuffle;
};

static weft_ds make(weft_data *d, void *arg)
{
    struct source *s = arg;
    weft_ds ds;

    s->opts.size = sizeof s->opts;
    ds = weft_ds_tfrecord(d, s->files, &s->opts);
    if (s->shuffle)
        ds = weft_ds_shuffle_all(d, ds, NULL);
    return s->batch ? weft_ds_batch(d, ds, s->batch, NULL) : ds;
}

/* What unbatched records [first, first + n) look like, when they are numbered from id on. */
static void expect(struct dump *d, int64_t first, int64_t n, int64_t id)
{
    char bytes[64];
    weft_str s = {bytes, 0};

    for (int64_t i = 0; i < n; i++) {
        int64_t number = id + i;
        weft_batch b = {.n_cols = 1, .n = 1, .id = &number};
        weft_tensor t = {.dtype = WEFT_STR, .data = &s};

        s.n = record(first + i, bytes);
        b.col = &t;
        dump_batch(d, &b);
    }
}

static bool same(const struct dump *a, const struct dump *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n));
}

static bool begins_with(const struct dump *a, const struct dump *front)
{
    return a->n >= front->n && (!front->n || !memcmp(a->p, front->p, front->n));
}

/* ---- writing and reading --------------------------------------------------------------------- */

static void golden_bytes(void **state)
{
    static const unsigned char want[] = {
        3,    0, 0, 0, 0, 0, 0, 0, 0xb0, 0x99, 0x49, 0x0e, 'a',  'b',  'c',  0x6e, 0x57, 0xf1,
        0x21, 0, 0, 0, 0, 0, 0, 0, 0,    0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2};
    const char *path = in_scratch("golden.tfrecord");
    weft_record_writer *w;
    size_t n;
    char *got;

    (void)state;
    assert_int_equal(weft_record_writer_new(ctx, path, NULL, &w), WEFT_OK);
    assert_int_equal(weft_record_writer_add(w, "abc", 3), WEFT_OK);
    assert_int_equal(weft_record_writer_add(w, NULL, 0), WEFT_OK);
    assert_int_equal(weft_record_writer_close(w), WEFT_OK);
    got = get_file(path, &n);
    assert_int_equal(n, sizeof want);
    assert_memory_equal(got, want, n);
    free(got);
}

static void what_was_written_is_read_by_any_number_of_threads(void **state)
{
    static const struct {
        const char *ending;
        weft_compression how;
    } kinds[] = {{"tfrecord", WEFT_COMPRESSION_NONE},
                 {"gz", WEFT_COMPRESSION_GZIP},
                 {"zlib", WEFT_COMPRESSION_ZLIB}};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct dump want = {0};
        char pattern[128], name[64];

        if (!can_pack(kinds[k].how))
            continue;
        for (int f = 0; f < 5; f++) { /* the fourth is empty */
            snprintf(name, sizeof name, "w-%d.%s", f, kinds[k].ending);
            write_records(in_scratch(name), f * 1000, f == 3 ? 0 : 1000, NULL);
            expect(&want, f * 1000, f == 3 ? 0 : 1000, (f > 3 ? f - 1 : f) * 1000);
        }
        snprintf(pattern, sizeof pattern, "%s/w-*.%s", scratch, kinds[k].ending);
        for (int threads = 0; threads < 4; threads++) {
            struct dump got = dump_of(ctx, make, &(struct source){.files = pattern}, threads);

            assert_int_equal(got.st, WEFT_OK);
            assert_int_equal(got.n_elements, 4000);
            assert_true(same(&got, &want));
            dump_free(&got);
        }
        dump_free(&want);
    }
}

static void records_longer_than_a_chunk_are_whole(void **state)
{
    const char *path = in_scratch("long.tfrecord");
    int64_t len[] = {3000000, 10, 1 << 20, (1 << 20) - 16, 0, 5000000};
    char *bytes = malloc(5000000);
    weft_record_writer *w;
    weft_data *d;
    weft_iter *it;

    (void)state;
    for (int64_t i = 0; i < 5000000; i++)
        bytes[i] = (char)(i * 7 + i / 1000);
    assert_int_equal(weft_record_writer_new(ctx, path, NULL, &w), WEFT_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(weft_record_writer_add(w, bytes, len[i]), WEFT_OK);
    assert_int_equal(weft_record_writer_close(w), WEFT_OK);
    for (int index = 0; index < 2; index++) {
        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        assert_int_equal(
            weft_iter_new(
                d, weft_ds_tfrecord(d, path, WEFT_OPTS(weft_tfrecord_opts, .index = index == 1)),
                NULL, &it),
            WEFT_OK);
        for (int i = 0; i < 6; i++) {
            weft_batch *b;
            const weft_str *s;

            assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
            s = b->col[0].data;
            assert_int_equal(s->n, len[i]);
            assert_memory_equal(s->data, bytes, (size_t)len[i]);
            weft_batch_free(b);
        }
        weft_iter_free(it);
        weft_data_free(d);
    }
    free(bytes);
}

static void a_saved_position_continues_at_every_record(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        char pattern[128];
        struct source s = {.files = pattern, .opts.files = {.shuffle = true, .seed = 5}};

        if (k && !can_pack(WEFT_COMPRESSION_GZIP))
            continue;
        for (int f = 0; f < 3; f++) {
            char name[32];

            snprintf(name, sizeof name, "p-%d.%s", f, k ? "gz" : "tfrecord");
            write_records(in_scratch(name), f * 10, 10, NULL);
        }
        snprintf(pattern, sizeof pattern, "%s/p-*.%s", scratch, k ? "gz" : "tfrecord");
        assert_int_equal(check_restore(ctx, make, &s, 0), 31);
        s.batch = 4;
        assert_int_equal(check_restore(ctx, make, &s, 2), 9);
        s.opts.index = k == 0;
        s.opts.files.shuffle = false;
        assert_int_equal(check_restore(ctx, make, &s, 2), 9);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

enum { N_SMALL = 7 };

/* The first records of a small file, all of it, and where each ends. */
static char *small_file(size_t *n, struct dump *want, size_t ends[N_SMALL + 1])
{
    const char *path = in_scratch("small.tfrecord");
    char bytes[64];

    write_records(path, 0, N_SMALL, NULL);
    expect(want, 0, N_SMALL, 0);
    ends[0] = 0;
    for (int i = 0; i < N_SMALL; i++)
        ends[i + 1] = ends[i] + WF_RECORD_FRAME + (size_t)record(i, bytes);
    return get_file(path, n);
}

static void truncated_at_every_byte(void **state)
{
    struct dump want = {0};
    size_t n, ends[N_SMALL + 1];
    char *file = small_file(&n, &want, ends);

    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        const char *path = put_file("cut.tfrecord", file, cut);
        int64_t whole = 0;
        bool clean;

        while (ends[whole + 1] <= cut)
            whole++;
        clean = ends[whole] == cut;
        for (int threads = 0; threads < 2; threads++) {
            struct source s = {.files = path};
            struct dump got = dump_of(ctx, make, &s, threads), skip;

            assert_int_equal(got.st, clean ? WEFT_OK : WEFT_EDATA);
            assert_int_equal(got.n_elements, whole);
            assert_true(begins_with(&want, &got));
            if (!clean) {
                char place[64];

                snprintf(place, sizeof place, "cut.tfrecord: record %d (byte %zu)", (int)whole,
                         ends[whole]);
                assert_non_null(strstr(got.error, place));
            }
            s.opts.on_error = WEFT_ON_ERROR_SKIP;
            skip = dump_of(ctx, make, &s, threads);
            assert_int_equal(skip.st, WEFT_OK);
            assert_true(same(&skip, &got));
            assert_int_equal(skip.n_skipped, !clean);
            dump_free(&skip);
            s.opts.index = true;
            s.opts.on_error = WEFT_ON_ERROR_STOP;
            skip = dump_of(ctx, make, &s, threads);
            assert_int_equal(skip.st, clean ? WEFT_OK : WEFT_EDATA);
            dump_free(&skip);
            dump_free(&got);
        }
    }
    free(file);
    dump_free(&want);
}

static void every_flipped_bit_is_found(void **state)
{
    struct dump want = {0};
    size_t n, ends[N_SMALL + 1];
    char *file = small_file(&n, &want, ends);

    (void)state;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        size_t byte = bit / 8, at = 0;
        bool in_length;
        struct source s;
        struct dump got;

        while (ends[at + 1] <= byte)
            at++;
        in_length = byte - ends[at] < WF_RECORD_HEAD;
        file[byte] ^= (char)(1 << bit % 8);
        s = (struct source){.files = put_file("flip.tfrecord", file, n)};
        file[byte] ^= (char)(1 << bit % 8);
        got = dump_of(ctx, make, &s, 0);
        assert_int_equal(got.st, WEFT_EDATA);
        assert_true(begins_with(&want, &got));
        assert_non_null(strstr(got.error, in_length ? "length" : "crc of the data"));
        dump_free(&got);
        s.opts.on_error = WEFT_ON_ERROR_SKIP;
        got = dump_of(ctx, make, &s, 1);
        assert_int_equal(got.st, WEFT_OK);
        assert_int_equal(got.n_skipped, 1);
        assert_int_equal(got.n_elements, in_length ? (int)at : N_SMALL - 1);
        dump_free(&got);
    }
    free(file);
    dump_free(&want);
}

static void an_absurd_length_allocates_nothing(void **state)
{
    char head[WF_RECORD_HEAD + 40] = {0};
    const uint64_t lengths[] = {1ull << 62, UINT64_MAX, 1ull << 40, 100};

    (void)state;
    for (int i = 0; i < 4; i++) {
        uint32_t crc;
        struct dump got;
        int64_t peak;

        memcpy(head, &lengths[i], 8);
        crc = wf_crc_mask(wf_crc32c(0, head, 8));
        memcpy(head + 8, &crc, 4);
        got = dump_of(ctx, make,
                      &(struct source){.files = put_file("absurd.tfrecord", head, sizeof head)}, 0);
        peak = weft_ctx_memory_peak(ctx);
        assert_int_equal(got.st, WEFT_EDATA);
        assert_true(peak < 400 << 20);
        dump_free(&got);
        if (can_pack(WEFT_COMPRESSION_GZIP)) {
            size_t n;
            char *packed = pack(WEFT_COMPRESSION_GZIP, head, sizeof head, &n);

            got =
                dump_of(ctx, make, &(struct source){.files = put_file("absurd.gz", packed, n)}, 0);
            assert_int_equal(got.st, WEFT_EDATA);
            dump_free(&got);
            free(packed);
        }
    }
}

static void damage_in_one_file_leaves_the_others(void **state)
{
    struct dump got, want = {0};
    size_t n;
    char *file, pattern[128];
    struct source s = {.files = pattern, .opts.on_error = WEFT_ON_ERROR_SKIP};

    (void)state;
    for (int f = 0; f < 3; f++) {
        char name[32];

        snprintf(name, sizeof name, "d-%d.tfrecord", f);
        write_records(in_scratch(name), f * 100, 100, NULL);
    }
    file = get_file(in_scratch("d-1.tfrecord"), &n);
    file[3] ^= 1; /* a length: nothing of this file can be found */
    put_file("d-1.tfrecord", file, n);
    free(file);
    snprintf(pattern, sizeof pattern, "%s/d-*.tfrecord", scratch);
    expect(&want, 0, 100, 0);
    expect(&want, 200, 100, 100);
    for (int threads = 0; threads < 4; threads++) {
        got = dump_of(ctx, make, &s, threads);
        assert_int_equal(got.st, WEFT_OK);
        assert_int_equal(got.n_skipped, 1);
        assert_true(same(&got, &want));
        dump_free(&got);
    }
    dump_free(&want);
}

static void a_file_that_disappears_is_an_error(void **state)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    (void)state;
    write_records(in_scratch("gone.tfrecord"), 0, 3, NULL);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_tfrecord(d, in_scratch("gone.tfrecord"), NULL);
    unlink(in_scratch("gone.tfrecord"));
    assert_int_equal(weft_iter_new(d, s, NULL, &it), WEFT_OK);
    assert_int_equal(weft_iter_next(it, &b), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "gone.tfrecord"));
    weft_iter_free(it);
    weft_data_free(d);
}

static void a_file_that_disappears_can_be_left_out(void **state)
{
    weft_data *d;
    weft_iter *it;
    struct dump got = {0}, want = {0};
    weft_ds s;

    (void)state;
    for (int f = 0; f < 3; f++) {
        char name[32];

        snprintf(name, sizeof name, "g-%d.tfrecord", f);
        write_records(in_scratch(name), f * 10, 10, NULL);
    }
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_tfrecord(d, in_scratch("g-*.tfrecord"),
                         WEFT_OPTS(weft_tfrecord_opts, .on_error = WEFT_ON_ERROR_SKIP));
    unlink(in_scratch("g-1.tfrecord"));
    assert_int_equal(weft_iter_new(d, s, NULL, &it), WEFT_OK);
    dump_iter(&got, it, INT64_MAX);
    expect(&want, 0, 10, 0);
    expect(&want, 20, 10, 10);
    assert_int_equal(got.st, WEFT_OK);
    assert_int_equal(got.n_skipped, 1);
    assert_true(same(&got, &want));
    dump_free(&got);
    dump_free(&want);
    weft_iter_free(it);
    weft_data_free(d);
}

/* ---- the index ------------------------------------------------------------------------------- */

static int64_t count_of(const char *path, const char *dir)
{
    weft_data *d;
    weft_ds s;
    int64_t n;

    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_tfrecord(d, path, WEFT_OPTS(weft_tfrecord_opts, .index = true, .index_dir = dir));
    assert_int_equal(weft_data_status(d), WEFT_OK);
    assert_true(weft_ds_addressable(d, s));
    n = weft_ds_count(d, s);
    weft_data_free(d);
    return n;
}

static void an_index_gives_the_same_records_in_any_order(void **state)
{
    char pattern[128];
    struct source s = {.files = pattern, .opts.index = true};
    struct dump a, b = {0}, c, e;

    (void)state;
    for (int f = 0; f < 3; f++) {
        char name[32];

        snprintf(name, sizeof name, "i-%d.tfrecord", f);
        write_records(in_scratch(name), f * 150, 150, NULL);
    }
    snprintf(pattern, sizeof pattern, "%s/i-*.tfrecord", scratch);
    expect(&b, 0, 450, 0);
    a = dump_of(ctx, make, &s, 2);
    assert_int_equal(a.st, WEFT_OK);
    assert_true(same(&a, &b));
    s.shuffle = true;
    c = dump_of(ctx, make, &s, 0);
    e = dump_of(ctx, make, &s, 3);
    assert_int_equal(c.st, WEFT_OK);
    assert_int_equal(c.n_elements, 450);
    assert_int_equal(c.n, a.n);
    assert_true(same(&c, &e));
    assert_false(same(&c, &a));
    dump_free(&a);
    dump_free(&b);
    dump_free(&c);
    dump_free(&e);
}

static void an_index_is_kept_and_made_anew_when_stale(void **state)
{
    const char *path = in_scratch("k.tfrecord");
    char kept[128], dir[128];
    struct stat first, second;
    char *index;
    size_t n;

    (void)state;
    snprintf(kept, sizeof kept, "%s.weftidx", path);
    write_records(path, 0, 100, NULL);
    assert_int_equal(count_of(path, NULL), 100);
    assert_int_equal(stat(kept, &first), 0);
    assert_int_equal(count_of(path, NULL), 100);
    assert_int_equal(stat(kept, &second), 0);
    assert_true(first.st_ino == second.st_ino); /* used, not written again */
    write_records(path, 0, 130, NULL);
    assert_int_equal(count_of(path, NULL), 130);
    /* A damaged index is as good as none, at every byte. */
    index = get_file(kept, &n);
    for (size_t i = 0; i < n; i++) {
        FILE *f = fopen(kept, "wb");

        index[i] ^= 4;
        assert_int_equal(fwrite(index, 1, n, f), n);
        fclose(f);
        index[i] ^= 4;
        assert_int_equal(count_of(path, NULL), 130);
    }
    free(index);
    /* A folder of indexes; one that does not exist costs time, no failure. */
    unlink(kept);
    assert_int_equal(mkdir(in_scratch("indexes"), 0777), 0);
    snprintf(dir, sizeof dir, "%s/indexes", scratch);
    assert_int_equal(count_of(path, dir), 130);
    assert_int_equal(stat(kept, &first), -1);
    assert_int_equal(count_of(path, "no/such/folder"), 130);
}

static void an_index_of_a_packed_file_is_refused(void **state)
{
    weft_data *d;

    (void)state;
    if (!can_pack(WEFT_COMPRESSION_GZIP))
        return;
    write_records(in_scratch("packed.gz"), 0, 10, NULL);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    weft_ds_tfrecord(d, in_scratch("packed.gz"), WEFT_OPTS(weft_tfrecord_opts, .index = true));
    assert_int_equal(weft_data_status(d), WEFT_ENOSUP);
    weft_data_free(d);
}

static void a_file_that_shrinks_behind_its_index_is_an_error(void **state)
{
    const char *path = in_scratch("shrink.tfrecord");
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    (void)state;
    write_records(path, 0, 100, NULL);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_tfrecord(d, path, WEFT_OPTS(weft_tfrecord_opts, .index = true));
    assert_int_equal(truncate(path, 500), 0);
    assert_int_equal(weft_iter_new(d, s, NULL, &it), WEFT_OK);
    assert_int_equal(weft_iter_next(it, &b), WEFT_EDATA);
    weft_iter_free(it);
    weft_data_free(d);
}

/* ---- the writer ------------------------------------------------------------------------------ */

static void appending_goes_on_behind_whole_records(void **state)
{
    const char *path = in_scratch("append.tfrecord");
    const weft_record_writer_opts *append = WEFT_OPTS(weft_record_writer_opts, .append = true);
    struct dump want = {0}, got;
    size_t n;
    char *file;

    (void)state;
    unlink(path);
    write_records(path, 0, 5, append);
    file = get_file(path, &n);
    expect(&want, 0, 12, 0);
    for (size_t tail = 0; tail < 12; tail++) {
        /* A record that was being written when the machine stopped: part of its head, then
         * nothing. */
        char torn[400];

        memcpy(torn, file, n);
        memcpy(torn + n, file, tail);
        put_file("append.tfrecord", torn, n + tail);
        write_records(path, 5, 7, append);
        got = dump_of(ctx, make, &(struct source){.files = path}, 0);
        assert_int_equal(got.st, WEFT_OK);
        assert_true(same(&got, &want));
        dump_free(&got);
    }
    free(file);
    dump_free(&want);
}

static void appending_behind_damage_is_refused(void **state)
{
    const char *path = in_scratch("bad.tfrecord");
    weft_record_writer *w;
    size_t n, m;
    char *file, *after;

    (void)state;
    write_records(path, 0, 5, NULL);
    file = get_file(path, &n);
    file[1] ^= 1;
    put_file("bad.tfrecord", file, n);
    assert_int_equal(
        weft_record_writer_new(ctx, path, WEFT_OPTS(weft_record_writer_opts, .append = true), &w),
        WEFT_EDATA);
    after = get_file(path, &m);
    assert_int_equal(m, n);
    assert_memory_equal(after, file, n);
    free(file);
    free(after);
}

static int64_t disk_room;

static int64_t small_write(void *arg, int fd, const void *buf, int64_t n)
{
    int64_t put;

    if (disk_room <= 0)
        return -ENOSPC;
    put = wf_fs_posix.write(arg, fd, buf, n < disk_room ? n : disk_room);
    disk_room -= put;
    return put;
}

static void a_full_disk_leaves_whole_records(void **state)
{
    struct wf_fs fs = wf_fs_posix;
    const char *path = in_scratch("full.tfrecord");

    (void)state;
    fs.write = small_write;
    for (int64_t size = 0; size < 700; size += 13) {
        weft_record_writer *w;
        weft_status st = WEFT_OK;
        char bytes[64];
        struct dump got, want = {0};

        disk_room = size;
        ctx->fs = &fs;
        assert_int_equal(weft_record_writer_new(ctx, path, NULL, &w), WEFT_OK);
        for (int64_t i = 0; i < 30 && !st; i++) {
            int64_t n = record(i, bytes);

            st = weft_record_writer_add(w, bytes, n);
            if (!st)
                st = weft_record_writer_flush(w, i % 5 == 0);
        }
        assert_int_equal(st, WEFT_ENOSPC);
        assert_int_equal(weft_record_writer_add(w, "x", 1), WEFT_ENOSPC);
        assert_int_equal(weft_record_writer_close(w), WEFT_ENOSPC);
        assert_non_null(strstr(weft_error(), "full.tfrecord"));
        ctx->fs = &wf_fs_posix;
        got = dump_of(ctx, make, &(struct source){.files = path}, 0);
        assert_int_equal(got.st, WEFT_OK);
        expect(&want, 0, got.n_elements, 0);
        assert_true(same(&got, &want));
        dump_free(&got);
        dump_free(&want);
    }
}

static void flushed_records_can_be_read_while_writing(void **state)
{
    const char *names[] = {"live.tfrecord", "live.gz"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *path = in_scratch(names[k]);
        weft_record_writer *w;
        char bytes[64];

        if (k && !can_pack(WEFT_COMPRESSION_GZIP))
            continue;
        assert_int_equal(weft_record_writer_new(ctx, path, NULL, &w), WEFT_OK);
        for (int64_t i = 0; i < 10; i++) {
            int64_t n = record(i, bytes);
            struct dump got, want = {0};

            assert_int_equal(weft_record_writer_add(w, bytes, n), WEFT_OK);
            assert_int_equal(weft_record_writer_flush(w, false), WEFT_OK);
            got = dump_of(ctx, make, &(struct source){.files = path}, 0);
            expect(&want, 0, i + 1, 0);
            assert_true(same(&got, &want));
            assert_int_equal(got.st, k ? WEFT_EDATA : WEFT_OK); /* gzip: not finished */
            dump_free(&got);
            dump_free(&want);
        }
        assert_int_equal(weft_record_writer_close(w), WEFT_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes),
        cmocka_unit_test(what_was_written_is_read_by_any_number_of_threads),
        cmocka_unit_test(records_longer_than_a_chunk_are_whole),
        cmocka_unit_test(a_saved_position_continues_at_every_record),
        cmocka_unit_test(truncated_at_every_byte),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(an_absurd_length_allocates_nothing),
        cmocka_unit_test(damage_in_one_file_leaves_the_others),
        cmocka_unit_test(a_file_that_disappears_is_an_error),
        cmocka_unit_test(a_file_that_disappears_can_be_left_out),
        cmocka_unit_test(an_index_gives_the_same_records_in_any_order),
        cmocka_unit_test(an_index_is_kept_and_made_anew_when_stale),
        cmocka_unit_test(an_index_of_a_packed_file_is_refused),
        cmocka_unit_test(a_file_that_shrinks_behind_its_index_is_an_error),
        cmocka_unit_test(appending_goes_on_behind_whole_records),
        cmocka_unit_test(appending_behind_damage_is_refused),
        cmocka_unit_test(a_full_disk_leaves_whole_records),
        cmocka_unit_test(flushed_records_can_be_read_while_writing),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
