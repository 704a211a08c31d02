/* npz.c - zip archives of arrays, on anything: every entry that is accepted is read through to its last byte. */
#include <stdint.h>
#include <stdlib.h>

#include "data/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_zip z;
    struct wf_zip_entry e;
    bool more = true;
    weft_ctx *ctx;
    int64_t before;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &ctx))
        abort();
    before = weft_ctx_memory(ctx);
    if (!wf_zip_open(&z, (const char *)data, (int64_t)size))
        for (int i = 0; i < 64 && !wf_zip_next(&z, &e, &more) && more; i++) {
            struct wf_array a = {.fd = -1};

            if (!wf_npz_array(ctx, &e, &a)) {
                int64_t bytes = wf_type_bytes(&a.head.type);
                void *to = bytes < 64 << 20 ? malloc((size_t)bytes + 1) : NULL;

                if (to)
                    wf_array_convert_all(&a.head, a.data, to);
                free(to);
            }
            wf_free(ctx, a.owned);
        }
    if (weft_ctx_memory(ctx) != before)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
