/* tfrecord.c - TFRecord files, on anything: plain or packed, as a stream or by an index, with and
 * without skipping. What is read without an error must be the same by every way, and written again
 * must be read again. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <weft/weft.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct read {
    weft_status st;
    int64_t n, bytes;
    uint64_t sum;
};

static struct read read_all(weft_ctx *ctx, const char *path, bool skip, bool index,
                            weft_record_writer *w)
{
    struct read r = {0};
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b = NULL;

    if (weft_data_new(ctx, &d))
        abort();
    r.st = weft_iter_new(
        d,
        weft_ds_tfrecord(d, path,
                         WEFT_OPTS(weft_tfrecord_opts, .index = index, .max_record = 1 << 20,
                                   .on_error = skip ? WEFT_ON_ERROR_SKIP : WEFT_ON_ERROR_STOP)),
        WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO, .memory = 8 << 20), &it);
    while (!r.st && !(r.st = weft_iter_next(it, &b)) && b) {
        const weft_str *s = b->col[0].data;

        for (int64_t i = 0; i < s->n; i++)
            r.sum = r.sum * 31 + (unsigned char)s->data[i];
        r.n++;
        r.bytes += s->n;
        if (w && weft_record_writer_add(w, s->data, s->n))
            abort();
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return r;
}

static int file_of(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("tfrecord", 0);

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    char path[64], again[64] = "/tmp/weft-fuzz-XXXXXX"; /* writers follow no link: a real file */
    int fd = file_of(data, size, path), to = mkstemp(again);
    weft_record_writer *w;
    struct read stop, skip, index, copy;

    if (to < 0 ||
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 256 << 20), &ctx) ||
        weft_record_writer_new(ctx, again, NULL, &w))
        abort();
    stop = read_all(ctx, path, false, false, w);
    if (weft_record_writer_close(w))
        abort();
    skip = read_all(ctx, path, true, false, NULL);
    index = read_all(ctx, path, false, true, NULL);
    copy = read_all(ctx, again, false, false, NULL);
    if (copy.st || copy.n != stop.n || copy.bytes != stop.bytes || copy.sum != stop.sum)
        abort();
    if (!stop.st && (skip.st || skip.n != stop.n || skip.sum != stop.sum))
        abort();
    if (!stop.st && !index.st && (index.n != stop.n || index.sum != stop.sum))
        abort();
    if (stop.st && !index.st)
        abort();
    weft_ctx_free(ctx);
    close(fd);
    close(to);
    unlink(again);
    return 0;
}
