/* npz.c - zip archives of arrays, on anything: every entry that is accepted is read through to its
 * last byte, and says the same in memory and in a file. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/array/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every entry that is accepted; a hash of what they say. */
static uint64_t read_entries(weft_ctx *ctx, struct wf_zip *z)
{
    struct wf_zip_entry e;
    bool more = true;
    uint64_t hash = 0;

    for (int i = 0; i < 64 && !wf_zip_next(z, &e, &more) && more; i++) {
        struct wf_array a = {.fd = -1};

        if (!wf_npz_array(&e, &a)) {
            int64_t bytes = wf_type_bytes(&a.head.type);
            char *to = bytes < 64 << 20 ? malloc((size_t)bytes + 1) : NULL;

            if (to) {
                wf_array_convert_all(&a.head, a.data, to);
                hash = wf_hash64(to, (size_t)bytes, hash + 1);
            }
            free(to);
        }
        wf_free(ctx, a.owned);
    }
    wf_zip_close(z);
    return hash;
}

/* The same archive as a file. */
static uint64_t read_file(weft_ctx *ctx, const uint8_t *data, size_t size)
{
    struct wf_array file;
    struct wf_zip z;
    char path[64];
    uint64_t hash = 0;
    int fd = memfd_create("npz", 0);
    int64_t bytes;

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!wf_array_open_file(ctx, path, &file, &bytes) && !wf_zip_open_file(&z, ctx, &file, bytes))
        hash = read_entries(ctx, &z);
    wf_array_close(ctx, &file);
    close(fd);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_zip z;
    weft_ctx *ctx;
    uint64_t hash = 0;
    int64_t before;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &ctx))
        abort();
    before = weft_ctx_memory(ctx);
    if (!wf_zip_open(&z, ctx, (const char *)data, (int64_t)size))
        hash = read_entries(ctx, &z);
    if (hash != read_file(ctx, data, size))
        abort();
    if (weft_ctx_memory(ctx) != before)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
