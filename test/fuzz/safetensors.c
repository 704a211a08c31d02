/* safetensors.c - the reader of safetensors files, on anything. What opens can be read whole,
 * covers its data exactly, and is written and read back as itself. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ckpt/ckpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file_of(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("safetensors", 0);

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* Every tensor by its name; those that weft can hold go into items. Returns their number. */
static int64_t read_all(weft_ctx *ctx, weft_st *s, size_t size, struct wf_st_item *items)
{
    int64_t n = 0, sum = 0, begin, end;

    for (int64_t i = 0; i < weft_st_n(s); i++) {
        weft_tensor t;
        const char *name = NULL;
        weft_status st = weft_st_tensor(s, i, &name, &t);
        void *raw;

        wf_st_range(s, i, &begin, &end);
        sum += end - begin;
        if (weft_st_find(s, name) != i || begin < 10 || end < begin || end > (int64_t)size)
            abort();
        raw = wf_alloc(ctx, (size_t)(end - begin));
        if (!raw || weft_st_read(s, i, raw, end - begin))
            abort();
        if (!st &&
            (weft_tensor_bytes(&t) != end - begin || memcmp(raw, t.data, (size_t)(end - begin))))
            abort();
        if (st && st != WEFT_ENOSUP)
            abort();
        if (!st)
            items[n++] = (struct wf_st_item){
                .name = name, .type = wf_type_of(t.dtype, t.rank, t.dim), .data = t.data};
        wf_free(ctx, raw);
    }
    if (sum > (int64_t)size)
        abort();
    return n;
}

static void write_and_read_back(weft_ctx *ctx, const weft_st *s, int64_t n,
                                struct wf_st_item *items)
{
    char path[64];
    int fd = file_of(NULL, 0, path);
    int64_t n_meta = weft_st_n_metadata(s);
    weft_ckpt_pair *meta = wf_alloc_n(ctx, n_meta, sizeof *meta);
    struct wf_out o = {.ctx = ctx, .path = path, .fd = dup(fd)};
    weft_st *back = NULL;

    for (int64_t i = 0; i < n_meta; i++)
        if (weft_st_metadata_at(s, i, &meta[i].key, &meta[i].value))
            abort();
    if (o.fd < 0 || wf_out_close(&o, wf_st_stream(&o, n, items, n_meta, meta, NULL)) ||
        weft_st_open(ctx, path, &back) || weft_st_n(back) != n ||
        weft_st_n_metadata(back) != n_meta)
        abort();
    for (int64_t i = 0; i < n; i++) {
        weft_tensor t;
        struct wf_type type;

        if (weft_st_tensor(back, weft_st_find(back, items[i].name), NULL, &t))
            abort();
        type = wf_type_of(t.dtype, t.rank, t.dim);
        if (type.dtype != items[i].type.dtype || !wf_type_same_shape(&type, &items[i].type) ||
            memcmp(t.data, items[i].data, (size_t)wf_type_bytes(&type)))
            abort();
    }
    weft_st_close(back);
    wf_free(ctx, meta);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_st *s = NULL;
    char path[64];
    int fd = file_of(data, size, path);

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    if (!weft_st_open(ctx, path, &s)) {
        struct wf_st_item *items = wf_alloc_n(ctx, weft_st_n(s), sizeof *items);
        int64_t n = read_all(ctx, s, size, items);

        write_and_read_back(ctx, s, n, items);
        wf_free(ctx, items);
        weft_st_close(s);
    } else if (s || !*weft_error()) {
        abort();
    }
    weft_ctx_free(ctx);
    close(fd);
    return 0;
}
