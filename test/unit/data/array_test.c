/* Arrays in files: IDX, npy and npz as datasets, written and read back; heads that lie are
 * refused. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/array/array.h"
#include "drain_support.h"
#include "files_support.h"
#include "weft/data_open.h"

static weft_ctx *ctx;
static weft_data *d;

#define N 50

/* ---- reading rows ---------------------------------------------------------------------------- */

/* The first element's column as a view of the batch. */
static weft_batch *first_batch(weft_ds s, int64_t n, weft_iter **it)
{
    weft_batch *b = NULL;

    if (weft_data_status(d))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_iter_new(d, weft_ds_batch(d, s, n, NULL), NULL, it), 0);
    if (weft_iter_next(*it, &b))
        fail_msg("%s", weft_error());
    assert_non_null(b);
    return b;
}

static void check_rows(weft_ds s, const char *column, const weft_tensor *want)
{
    weft_iter *it;
    weft_batch *b = first_batch(s, want->dim[0], &it);
    const weft_tensor *t = weft_batch_find(b, column);

    assert_non_null(t);
    assert_int_equal(t->dtype, want->dtype);
    assert_int_equal(t->rank, want->rank);
    assert_memory_equal(t->dim, want->dim, (size_t)t->rank * 8);
    assert_memory_equal(t->data, want->data, (size_t)weft_tensor_bytes(want));
    weft_batch_free(b);
    weft_iter_free(it);
}

/* Values that need every byte of their type. */
static void *filled(weft_dtype t, int64_t n)
{
    void *p = calloc((size_t)n, 8);

    for (int64_t i = 0; i < n; i++) {
        if (t == WEFT_BOOL)
            ((char *)p)[i] = i % 3 == 0;
        else if (t == WEFT_I64)
            ((uint64_t *)p)[i] = (uint64_t)i * 0x0123456789abcdefull;
        else
            wf_set(p, t, i, t == WEFT_I32 ? (double)i * 12345678 - 3e8 : (double)i * 1.25 - 20);
    }
    return p;
}

static void idx_rows_come_back_as_written(void **state)
{
    static const weft_dtype types[] = {WEFT_U8, WEFT_I8, WEFT_I32, WEFT_F32, WEFT_F64};

    (void)state;
    for (int i = 0; i < 5; i++) {
        void *p = filled(types[i], N * 6);
        weft_tensor t = weft_view(types[i], p, 3, (int64_t[]){N, 2, 3}), back;
        const char *path = in_scratch("a.idx");

        assert_int_equal(weft_idx_write(ctx, path, &t), 0);
        check_rows(weft_ds_idx(d, 1, &(weft_array_file){"x", path}, NULL), "x", &t);
        assert_int_equal(weft_idx_read(ctx, path, &back), 0);
        assert_memory_equal(back.data, p, (size_t)weft_tensor_bytes(&t));
        weft_array_free(ctx, &back);
        free(p);
    }
}

static void idx_is_the_format_of_mnist(void **state)
{
    static const unsigned char file[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    static const unsigned char shorts[] = {0, 0, 0xb, 1, 0, 0, 0, 2, 0xff, 0xfe, 1, 0};
    static const int32_t wide[] = {-2, 256};
    weft_tensor t = weft_view(WEFT_U8, file + 12, 2, (int64_t[]){2, 3}), back;
    size_t n;
    char *written;

    (void)state;
    check_rows(
        weft_ds_idx(d, 1, &(weft_array_file){"x", put_file("m.idx", file, sizeof file)}, NULL), "x",
        &t);
    assert_int_equal(weft_idx_write(ctx, in_scratch("w.idx"), &t), 0);
    written = get_file(in_scratch("w.idx"), &n);
    assert_int_equal(n, sizeof file);
    assert_memory_equal(written, file, n);
    free(written);
    assert_int_equal(weft_idx_read(ctx, put_file("s.idx", shorts, sizeof shorts), &back), 0);
    assert_int_equal(back.dtype, WEFT_I32);
    assert_memory_equal(back.data, wide, sizeof wide);
    weft_array_free(ctx, &back);
}

static void npy_rows_come_back_as_written(void **state)
{
    static const weft_dtype types[] = {WEFT_U8,  WEFT_I8,  WEFT_I32, WEFT_I64,
                                       WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BOOL};

    (void)state;
    for (int i = 0; i < 8; i++) {
        void *p = filled(types[i], N * 4);
        weft_tensor t = weft_view(types[i], p, 2, (int64_t[]){N, 4}), back;
        const char *path = in_scratch("a.npy");

        assert_int_equal(weft_npy_write(ctx, path, &t), 0);
        check_rows(weft_ds_npy(d, 1, &(weft_array_file){"x", path}, NULL), "x", &t);
        assert_int_equal(weft_npy_read(ctx, path, &back), 0);
        assert_int_equal(back.dtype, types[i]);
        assert_memory_equal(back.data, p, (size_t)weft_tensor_bytes(&t));
        weft_array_free(ctx, &back);
        free(p);
    }
}

static const char *put_npy(const char *name, int version, const char *header, const void *data,
                           size_t n)
{
    char file[4096];
    size_t len = strlen(header), at = version == 1 ? 10 : 12;

    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)version;
    file[7] = 0;
    for (int i = 0; i < 4; i++)
        file[8 + i] = (char)(len >> 8 * i);
    memcpy(file + at, header, len);
    memcpy(file + at + len, data, n);
    return put_file(name, file, at + len + n);
}

static void npy_of_other_orders_is_converted(void **state)
{
    static const unsigned char big[] = {0, 1, 0xff, 0xff, 0x80, 0};
    static const int32_t from_i16[] = {1, -1, -32768}, from_u16[] = {1, 65535, 32768};
    static const float columns[] = {0, 3, 1, 4, 2, 5}, rows[] = {0, 1, 2, 3, 4, 5};
    weft_tensor t;
    const char *path;

    (void)state;
    path =
        put_npy("b.npy", 1, "{'descr': '>i2', 'fortran_order': False, 'shape': (3,), }\n", big, 6);
    t = weft_view(WEFT_I32, from_i16, 1, (int64_t[]){3});
    check_rows(weft_ds_npy(d, 1, &(weft_array_file){"x", path}, NULL), "x", &t);
    path = put_npy("u.npy", 2, "{'descr':\">u2\",'fortran_order':False,'shape':(3L,)}", big, 6);
    t = weft_view(WEFT_I32, from_u16, 1, (int64_t[]){3});
    check_rows(weft_ds_npy(d, 1, &(weft_array_file){"x", path}, NULL), "x", &t);
    path = put_npy("f.npy", 3, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), } ",
                   columns, sizeof columns);
    t = weft_view(WEFT_F32, rows, 2, (int64_t[]){2, 3});
    check_rows(weft_ds_npy(d, 1, &(weft_array_file){"x", path}, NULL), "x", &t);
}

static void npz_arrays_are_columns(void **state)
{
    float *x = filled(WEFT_F32, N * 3);
    int64_t *y = filled(WEFT_I64, N);
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, 3}),
                        weft_view(WEFT_I64, y, 1, (int64_t[]){N})};
    const char *path = in_scratch("a.npz");
    const weft_column *col;
    int n;
    weft_ds s;

    (void)state;
    assert_int_equal(weft_npz_write(ctx, path, 2, (const char *[]){"x", "y"}, t), 0);
    s = weft_ds_npz(d, path, NULL, NULL);
    assert_int_equal(weft_ds_count(d, s), N);
    check_rows(s, "x", &t[0]);
    check_rows(s, "y", &t[1]);
    s = weft_ds_npz(d, path, " y ", NULL);
    assert_int_equal(weft_ds_columns(d, s, &n, &col), 0);
    assert_int_equal(n, 1);
    assert_string_equal(col[0].name, "y");
    weft_ds_npz(d, path, "z", NULL);
    assert_int_equal(weft_data_status(d), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "no array 'z'"));
    free(x);
    free(y);
}

static void npz_files_stand_one_behind_the_other_when_opened(void **state)
{
    float *x = filled(WEFT_F32, 3 * N);
    weft_tensor all = weft_view(WEFT_F32, x, 2, (int64_t[]){N, 3}),
                part[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){20, 3}),
                           weft_view(WEFT_F32, x + 60, 2, (int64_t[]){N - 20, 3})};
    weft_ds s;

    (void)state;
    assert_int_equal(
        weft_npz_write(ctx, in_scratch("part-0.npz"), 1, (const char *[]){"x"}, &part[0]), 0);
    assert_int_equal(
        weft_npz_write(ctx, in_scratch("part-1.npz"), 1, (const char *[]){"x"}, &part[1]), 0);
    s = weft_ds_open(d, in_scratch("part-*.npz"), NULL);
    assert_int_equal(weft_ds_count(d, s), N);
    assert_true(weft_ds_addressable(d, s));
    check_rows(s, "x", &all);
    assert_int_equal(
        weft_npz_write(ctx, in_scratch("part-2.npz"), 1, (const char *[]){"z"}, &part[1]), 0);
    weft_ds_open(d, in_scratch("part-*.npz"), NULL);
    assert_int_not_equal(weft_data_status(d), WEFT_OK);
    free(x);
}

static void bytes_are_numbers_with_random_access(void **state)
{
    const char *path = put_file("text.txt", "abc\nde", 6);
    uint8_t want[6] = {'a', 'b', 'c', '\n', 'd', 'e'};
    weft_tensor t = weft_view(WEFT_U8, want, 1, (int64_t[]){6});
    weft_ds s = weft_ds_open(d, path, WEFT_OPTS(weft_open_opts, .format = WEFT_FORMAT_BYTES));

    (void)state;
    assert_int_equal(weft_format_parse("bytes"), WEFT_FORMAT_BYTES);
    assert_int_equal(weft_ds_count(d, s), 6);
    assert_true(weft_ds_addressable(d, s));
    check_rows(s, "byte", &t);
}

static void packed_files_are_unpacked(void **state)
{
    static const weft_compression how[] = {WEFT_COMPRESSION_GZIP, WEFT_COMPRESSION_ZSTD};
    float *x = filled(WEFT_F32, N * 100);
    weft_tensor t = weft_view(WEFT_F32, x, 2, (int64_t[]){N, 100});
    size_t n, n_packed;
    char *plain;

    (void)state;
    assert_int_equal(weft_idx_write(ctx, in_scratch("p.idx"), &t), 0);
    plain = get_file(in_scratch("p.idx"), &n);
    for (int i = 0; i < 2; i++) {
        char *packed = pack(how[i], plain, n, &n_packed);
        const char *path = put_file("p.packed", packed, n_packed);
        weft_tensor back;

        if (!can_pack(how[i]))
            continue;
        check_rows(weft_ds_idx(d, 1, &(weft_array_file){"x", path}, NULL), "x", &t);
        /* Cut or changed anywhere it is an error. */
        for (size_t cut = 20; cut < n_packed; cut += n_packed / 7) {
            put_file("p.packed", packed, cut);
            assert_int_not_equal(weft_idx_read(ctx, path, &back), 0);
        }
        packed[n_packed / 2] ^= 0x10;
        put_file("p.packed", packed, n_packed);
        assert_int_not_equal(weft_idx_read(ctx, path, &back), 0);
        free(packed);
    }
    free(plain);
    free(x);
}

static void bombs_are_refused(void **state)
{
    /* 2 GB of zeros are promised by a few bytes. */
    static const unsigned char head[] = {0, 0, 8, 2, 0, 0, 0x80, 0, 0, 1, 0, 0};
    size_t n;
    char *packed = pack(WEFT_COMPRESSION_GZIP, head, sizeof head, &n);
    weft_tensor back;
    int64_t before = weft_ctx_memory_peak(ctx);

    (void)state;
    if (!can_pack(WEFT_COMPRESSION_GZIP))
        skip();
    assert_int_equal(weft_idx_read(ctx, put_file("bomb.gz", packed, n), &back), WEFT_ELIMIT);
    assert_non_null(strstr(weft_error(), "bomb"));
    assert_true(weft_ctx_memory_peak(ctx) - before < 10 << 20);
    free(packed);
}

static void unpacking_stays_within_the_memory_limit(void **state)
{
    float *x = filled(WEFT_F32, 200000);
    weft_tensor t = weft_view(WEFT_F32, x, 1, (int64_t[]){200000}), back;
    size_t n, n_packed;
    char *plain, *packed;
    weft_ctx *small;

    (void)state;
    if (!can_pack(WEFT_COMPRESSION_GZIP))
        skip();
    assert_int_equal(weft_idx_write(ctx, in_scratch("limit.idx"), &t), 0);
    plain = get_file(in_scratch("limit.idx"), &n);
    packed = pack(WEFT_COMPRESSION_GZIP, plain, n, &n_packed);
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 600000), &small), 0);
    assert_int_equal(weft_idx_read(small, put_file("limit.gz", packed, n_packed), &back),
                     WEFT_ELIMIT);
    assert_non_null(strstr(weft_error(), "limit.gz"));
    weft_ctx_free(small);
    free(packed);
    free(plain);
    free(x);
}

/* ---- views, order, positions ----------------------------------------------------------------- */

static void consecutive_rows_are_views(void **state)
{
    uint8_t *x = filled(WEFT_U8, N * 784);
    weft_tensor t = weft_view(WEFT_U8, x, 3, (int64_t[]){N, 28, 28});
    weft_iter *it;
    weft_batch *b;
    int64_t before;
    weft_ds s;

    (void)state;
    assert_int_equal(weft_idx_write(ctx, in_scratch("v.idx"), &t), 0);
    s = weft_ds_idx(d, 1, &(weft_array_file){"x", in_scratch("v.idx")}, NULL);
    before = weft_ctx_memory(ctx);
    b = first_batch(s, N, &it);
    assert_memory_equal(b->col[0].data, x, N * 784);
    /* Nowhere is there memory for so many rows, but where the file was read to. */
    assert_true(weft_ctx_memory(ctx) - before < N * 784);
    weft_batch_free(b);
    weft_iter_free(it);
    free(x);
}

static void same_elements_everywhere(void **state)
{
    float *x = filled(WEFT_F32, N * 5);
    uint8_t *y = filled(WEFT_U8, N);
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, 5}),
                        weft_view(WEFT_U8, y, 1, (int64_t[]){N})};
    weft_array_file idx[2] = {{"x", in_scratch("x.idx")}, {"y", in_scratch("y.idx")}};
    weft_ds s;

    (void)state;
    assert_int_equal(weft_idx_write(ctx, idx[0].path, &t[0]), 0);
    assert_int_equal(weft_idx_write(ctx, idx[1].path, &t[1]), 0);
    s = weft_ds_idx(d, 2, idx, NULL);
    assert_true(weft_ds_addressable(d, s));
    assert_int_equal(check_same_everywhere(ctx, d, s), N);
    s = weft_ds_shuffle_all(d, s, WEFT_OPTS(weft_shuffle_opts, .seed = 5));
    s = weft_ds_rescale(d, s, "y", 1.0 / 255, 0.5, WEFT_F32);
    s = weft_ds_batch(d, weft_ds_repeat(d, s, 2), 8, NULL);
    assert_int_equal(check_same_everywhere(ctx, d, s), 13);
    free(x);
    free(y);
}

/* A file of arrays in any format, of N rows: x f32 [5], big-endian in an IDX file. */
static weft_ds open_rows(weft_data *e, int format, const char *path)
{
    const weft_array_file file = {"x", path};

    return format == 0   ? weft_ds_idx(e, 1, &file, NULL)
           : format == 1 ? weft_ds_npy(e, 1, &file, NULL)
                         : weft_ds_npz(e, path, NULL, NULL);
}

static const char *write_rows(int format, const weft_tensor *t)
{
    const char *path = in_scratch(format == 0 ? "rows.idx" : format == 1 ? "rows.npy" : "rows.npz");
    weft_status st = format == 0   ? weft_idx_write(ctx, path, t)
                     : format == 1 ? weft_npy_write(ctx, path, t)
                                   : weft_npz_write(ctx, path, 1, (const char *[]){"x"}, t);

    assert_int_equal(st, 0);
    return path;
}

static void rows_are_the_same_in_memory_and_in_the_file(void **state)
{
    float *x = filled(WEFT_F32, N * 5);
    weft_tensor t = weft_view(WEFT_F32, x, 2, (int64_t[]){N, 5});

    (void)state;
    for (int format = 0; format < 3; format++)
        for (int in_file = 0; in_file < 2; in_file++) {
            const char *path = write_rows(format, &t);
            weft_data *e;
            weft_iter *it;
            weft_batch *b;
            weft_ds s;

            assert_int_equal(weft_data_new(ctx, &e), 0);
            if (in_file)
                e->array_room = 0;
            s = open_rows(e, format, path);
            assert_int_equal(weft_data_status(e), 0);
            assert_int_equal(wf_arrays_in_memory(wf_ds_node(e, s)), !in_file);
            assert_int_equal(weft_iter_new(e, weft_ds_batch(e, s, 7, NULL), NULL, &it), 0);
            for (int64_t at = 0; !weft_iter_next(it, &b) && b; at += 7) {
                assert_memory_equal(b->col[0].data, x + at * 5, (size_t)b->n * 20);
                weft_batch_free(b);
            }
            weft_iter_free(it);
            s = weft_ds_shuffle_all(e, s, WEFT_OPTS(weft_shuffle_opts, .seed = 3));
            assert_int_equal(weft_iter_new(e, weft_ds_batch(e, s, N, NULL), NULL, &it), 0);
            assert_int_equal(weft_iter_next(it, &b), 0);
            for (int64_t i = 0; i < N; i++)
                assert_memory_equal((float *)b->col[0].data + i * 5, x + b->id[i] * 5, 20);
            weft_batch_free(b);
            weft_iter_free(it);
            assert_int_equal(check_same_everywhere(ctx, e, weft_ds_batch(e, s, 8, NULL)),
                             (N + 7) / 8);
            weft_data_free(e);
        }
    free(x);
}

/* Rows in Fortran order are put in order also when they come from the file. */
static void fortran_rows_come_from_the_file(void **state)
{
    static const char head[] = "\x93NUMPY\1\0\x76\0{'descr': '>f4', 'fortran_order': True, "
                               "'shape': (3, 2), }";
    char file[128 + 24], *p = file + 128;

    (void)state;
    memset(file, ' ', 128);
    memcpy(file, head, sizeof head - 1);
    file[127] = '\n';
    for (int i = 0; i < 6; i++, p += 4) /* 1 2 3, 4 5 6 by columns */
        memcpy(p,
               (const char *[]){"\x3f\x80\0\0", "\x40\0\0\0", "\x40\x40\0\0", "\x40\x80\0\0",
                                "\x40\xa0\0\0", "\x40\xc0\0\0"}[i],
               4);
    put_file("fortran.npy", file, sizeof file);
    for (int in_file = 0; in_file < 2; in_file++) {
        weft_data *e;
        weft_iter *it;
        weft_batch *b;

        assert_int_equal(weft_data_new(ctx, &e), 0);
        if (in_file)
            e->array_room = 0;
        assert_int_equal(
            weft_iter_new(e, weft_ds_batch(e, open_rows(e, 1, in_scratch("fortran.npy")), 3, NULL),
                          NULL, &it),
            0);
        assert_int_equal(weft_iter_next(it, &b), 0);
        assert_memory_equal(b->col[0].data, ((const float[]){1, 4, 2, 5, 3, 6}), 24);
        weft_batch_free(b);
        weft_iter_free(it);
        weft_data_free(e);
    }
}

/* Cut while it is being read: rows that were read into memory stay, those in the file are an error,
 * never a signal. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    float *x = filled(WEFT_F32, N * 5);
    weft_tensor t = weft_view(WEFT_F32, x, 2, (int64_t[]){N, 5});

    (void)state;
    for (int format = 0; format < 3; format++)
        for (int in_file = 0; in_file < 2; in_file++)
            for (int shuffled = 0; shuffled < 2; shuffled++) {
                const char *path = write_rows(format, &t);
                weft_data *e;
                weft_iter *it;
                weft_batch *b = NULL, *kept;
                weft_status st = 0;
                weft_ds s;
                int n = 0;

                assert_int_equal(weft_data_new(ctx, &e), 0);
                if (in_file)
                    e->array_room = 0;
                s = open_rows(e, format, path);
                if (shuffled)
                    s = weft_ds_shuffle_all(e, s, NULL);
                assert_int_equal(weft_iter_new(e, weft_ds_batch(e, s, 5, NULL),
                                               WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO),
                                               &it),
                                 0);
                assert_int_equal(weft_iter_next(it, &kept), 0);
                assert_int_equal(truncate(path, 30), 0);
                /* What was given before can still be read. */
                for (int64_t i = 0; i < kept->n; i++)
                    assert_memory_equal((float *)kept->col[0].data + i * 5, x + kept->id[i] * 5,
                                        20);
                while (!(st = weft_iter_next(it, &b)) && b && ++n)
                    weft_batch_free(b);
                assert_int_equal(st, in_file ? WEFT_EIO : WEFT_OK);
                if (in_file)
                    assert_non_null(strstr(weft_error(), path));
                else
                    assert_int_equal(n, (N + 4) / 5 - 1);
                weft_batch_free(kept);
                weft_iter_free(it);
                weft_data_free(e);
            }
    free(x);
}

/* More than is read into memory: as large as that, but with holes. */
static void a_large_file_is_read_by_rows(void **state)
{
    const int64_t n_rows = 300 << 20;
    char head[128];
    const char *path;
    weft_data *e;
    weft_iter *it;
    weft_batch *b;
    int64_t before = weft_ctx_memory(ctx);

    (void)state;
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
    head[10 + snprintf(head + 10, 100,
                       "{'descr': '<i2', 'fortran_order': False, 'shape': (%lld,), }",
                       (long long)n_rows)] = ' ';
    head[127] = '\n';
    path = put_file("large.npy", head, sizeof head);
    assert_int_equal(truncate(path, 128 + 2 * n_rows), 0);
    assert_int_equal(weft_data_new(ctx, &e), 0);
    assert_int_equal(weft_iter_new(e, weft_ds_batch(e, open_rows(e, 1, path), 1000, NULL),
                                   WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it),
                     0);
    assert_int_equal(weft_iter_next(it, &b), 0);
    assert_int_equal(b->n, 1000);
    assert_true(weft_ctx_memory(ctx) - before < 64 << 20);
    weft_batch_free(b);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(weft_iter_next(it, &b), WEFT_EIO);
    weft_iter_free(it);
    weft_data_free(e);
}

/* Some rows that hold nothing are rows like others; more than anybody can read are refused. */
static void rows_without_items(void **state)
{
    static const int64_t counts[] = {3, 1000000000000};

    (void)state;
    for (int k = 0; k < 2; k++) {
        weft_tensor t = weft_view(WEFT_F32, NULL, 2, (int64_t[]){counts[k], 0});
        weft_data *e;
        weft_iter *it = NULL;
        weft_batch *b;
        int n = 0;
        weft_status st;

        assert_int_equal(weft_npy_write(ctx, in_scratch("none.npy"), &t), 0);
        assert_int_equal(weft_data_new(ctx, &e), 0);
        st = weft_iter_new(e, open_rows(e, 1, in_scratch("none.npy")), NULL, &it);
        assert_int_equal(st, k ? WEFT_ELIMIT : WEFT_OK);
        if (k)
            assert_non_null(strstr(weft_error(), "1000000000000 rows without items"));
        while (!st && !weft_iter_next(it, &b) && b && ++n)
            weft_batch_free(b);
        assert_int_equal(n, k ? 0 : 3);
        weft_iter_free(it);
        weft_data_free(e);
    }
}

/* ---- heads that lie -------------------------------------------------------------------------- */

static void idx_heads_are_checked(void **state)
{
    static const struct {
        const char *bytes;
        int64_t n, total;
    } bad[] = {
        {"", 0, 0},
        {"\0\0\x08", 3, 3},
        {"\1\0\x08\1\0\0\0\1x", 9, 9},
        {"\0\0\x07\1\0\0\0\1x", 9, 9},                                     /* no such type */
        {"\0\0\x08\0x", 5, 5},                                             /* rank 0 */
        {"\0\0\x08\x09\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1x", 25, 25}, /* rank 9 */
        {"\0\0\x08\1\0\0\0\2x", 9, 9}, /* shorter than it says */
        {"\0\0\x08\2\xff\xff\xff\xff\xff\xff\xff\xffxxxx", 16, 16},
        {"\0\0\x0e\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, -1}, /* overflows */
    };
    char buf[64];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct wf_array_head h;

        memset(buf, 0, sizeof buf);
        memcpy(buf, bad[i].bytes, (size_t)bad[i].n);
        assert_int_equal(wf_idx_head(buf, bad[i].n, bad[i].total, &h), WEFT_EPARSE);
    }
}

static void npy_heads_are_checked(void **state)
{
    static const struct {
        const char *header;
        weft_status st;
    } bad[] = {
        {"", WEFT_EPARSE},
        {"{}", WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False}", WEFT_EPARSE},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", WEFT_ENOSUP},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", WEFT_ENOSUP},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", WEFT_ENOSUP},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", WEFT_ENOSUP},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", WEFT_ENOSUP},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", WEFT_EPARSE}, /* too short */
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", WEFT_EPARSE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", WEFT_EPARSE},
        {"{'descr': '<f4", WEFT_EPARSE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weft_tensor t;
        const char *path = put_npy("bad.npy", 1, bad[i].header, "abcd", 4);
        weft_status st = weft_npy_read(ctx, path, &t);

        if (st != bad[i].st)
            fail_msg("%s: %s (%s)", bad[i].header, weft_status_name(st), weft_error());
        assert_non_null(strstr(weft_error(), "bad.npy: "));
    }
}

static void zip_archives_are_checked(void **state)
{
    uint8_t bytes[16] = {1, 2, 3};
    weft_tensor t = weft_view(WEFT_U8, bytes, 1, (int64_t[]){16});
    size_t n;
    char *whole;
    int n_refused = 0;

    (void)state;
    assert_int_equal(weft_npz_write(ctx, in_scratch("z.npz"), 1, (const char *[]){"x"}, &t), 0);
    whole = get_file(in_scratch("z.npz"), &n);
    /* Cut anywhere: an error. One byte changed: an error, or the same contents. */
    for (size_t i = 0; i < 2 * n; i++) {
        struct wf_zip z;
        struct wf_zip_entry e;
        struct wf_array a = {.fd = -1};
        bool more = false;
        size_t len = i < n ? i : n;
        char *copy = malloc(len + 1);
        weft_status st;

        memcpy(copy, whole, len);
        if (i >= n)
            copy[i - n] ^= 0x41;
        st = wf_zip_open(&z, ctx, copy, (int64_t)len);
        if (!st)
            st = wf_zip_next(&z, &e, &more);
        if (!st && more)
            st = wf_npz_array(&e, &a);
        if (!st && more)
            assert_memory_equal(a.data, bytes, 16);
        n_refused += st != 0;
        if (i < n)
            assert_int_not_equal(st, 0);
        wf_free(ctx, a.owned);
        free(copy);
    }
    assert_true(n_refused > (int)n);
    free(whole);
}

static void builders_say_what_is_wrong(void **state)
{
    float x[6] = {0};
    weft_tensor a = weft_view(WEFT_F32, x, 1, (int64_t[]){3}),
                b = weft_view(WEFT_F32, x, 1, (int64_t[]){4});
    weft_data *e;
    weft_array_file f[2] = {{"a", in_scratch("a3.npy")}, {"b", in_scratch("b4.npy")}};

    (void)state;
    assert_int_equal(weft_npy_write(ctx, f[0].path, &a), 0);
    assert_int_equal(weft_npy_write(ctx, f[1].path, &b), 0);
    assert_int_equal(weft_data_new(ctx, &e), 0);
    weft_ds_npy(e, 2, f, NULL);
    assert_int_equal(weft_data_status(e), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "3 rows"));
    weft_data_free(e);
    assert_int_equal(weft_data_new(ctx, &e), 0);
    weft_ds_idx(e, 1, &(weft_array_file){"a", in_scratch("missing")}, NULL);
    assert_int_equal(weft_data_status(e), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "idx: "));
    weft_data_free(e);
    a.dtype = WEFT_BF16;
    assert_int_equal(weft_npy_write(ctx, in_scratch("bf.npy"), &a), WEFT_EDTYPE);
    assert_int_not_equal(access(in_scratch("bf.npy"), F_OK), 0);
}

/* ---- rescale --------------------------------------------------------------------------------- */

static void rescale_multiplies_then_adds_at_every_level(void **state)
{
    static const weft_simd levels[] = {WEFT_SIMD_PORTABLE, WEFT_SIMD_AVX2, WEFT_SIMD_AVX512};
    enum { ROWS = 37, WIDTH = 13 };
    uint8_t x[ROWS * WIDTH];

    (void)state;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (uint8_t)(i * 7);
    for (int l = 0; l < 3; l++) {
        weft_ctx *c = NULL;
        weft_data *e;
        weft_iter *it;
        weft_batch *b;
        weft_column col = {.name = "x"};
        weft_tensor t = weft_view(WEFT_U8, x, 2, (int64_t[]){ROWS, WIDTH});
        const float *y, *z;
        weft_ds s;

        if (levels[l] > weft_simd_best())
            continue;
        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .simd = levels[l]), &c), 0);
        assert_int_equal(weft_data_new(c, &e), 0);
        s = weft_ds_tensors(e, 1, &col, &t);
        s = weft_ds_zip(e, 2,
                        (weft_ds[]){weft_ds_rescale(e, s, "x", 1.0 / 255, 0, WEFT_F32),
                                    weft_ds_rename(e, weft_ds_rescale(e, s, "x", 0.1, -3, WEFT_F32),
                                                   "x", "y")});
        s = weft_ds_batch(e, s, ROWS, NULL);
        assert_int_equal(weft_iter_new(e, s, NULL, &it), 0);
        assert_int_equal(weft_iter_next(it, &b), 0);
        y = b->col[0].data;
        z = b->col[1].data;
        for (int i = 0; i < ROWS * WIDTH; i++) {
            volatile float product = (float)x[i] * 0.1f;

            assert_true(y[i] == (float)x[i] * (float)(1.0 / 255));
            assert_true(z[i] == product + -3.0f);
        }
        weft_batch_free(b);
        weft_iter_free(it);
        weft_data_free(e);
        weft_ctx_free(c);
    }
}

/* ---------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
    (void)state;
    return weft_data_new(ctx, &d);
}

static int teardown(void **state)
{
    (void)state;
    weft_data_free(d);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(idx_rows_come_back_as_written),
        TEST(idx_is_the_format_of_mnist),
        TEST(npy_rows_come_back_as_written),
        TEST(npy_of_other_orders_is_converted),
        TEST(npz_arrays_are_columns),
        TEST(npz_files_stand_one_behind_the_other_when_opened),
        TEST(bytes_are_numbers_with_random_access),
        TEST(packed_files_are_unpacked),
        TEST(bombs_are_refused),
        TEST(unpacking_stays_within_the_memory_limit),
        TEST(consecutive_rows_are_views),
        TEST(same_elements_everywhere),
        TEST(rows_are_the_same_in_memory_and_in_the_file),
        TEST(fortran_rows_come_from_the_file),
        TEST(a_file_that_shrinks_is_an_error),
        TEST(a_large_file_is_read_by_rows),
        TEST(rows_without_items),
        TEST(idx_heads_are_checked),
        TEST(npy_heads_are_checked),
        TEST(zip_archives_are_checked),
        TEST(builders_say_what_is_wrong),
        TEST(rescale_multiplies_then_adds_at_every_level),
    };
    int64_t before;
    int failed;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
    before = weft_ctx_memory(ctx);
    scratch_make();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_drop();
    if (!failed && weft_ctx_memory(ctx) != before) {
        fprintf(stderr, "%lld bytes leaked\n", (long long)(weft_ctx_memory(ctx) - before));
        failed = 1;
    }
    weft_ctx_free(ctx);
    return failed;
}
