/* Fuzz target: finding out which features the records of a file have. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "data/record/example.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_ctx *ctx;
    struct wf_arena arena;
    const char *record[2] = {(const char *)data, (const char *)data + size / 2};
    int64_t bytes[2] = {(int64_t)(size / 2), (int64_t)(size - size / 2)};
    struct wf_example_sample sample = {record, bytes, 0};
    weft_example_feature *f = NULL;
    int n = 0;

    if (!ctx && weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    wf_arena_init(&arena, ctx);
    for (int k = 0; k < 4; k++) {
        sample.n = 1 + k % 2;
        if (!wf_example_look(&arena, &sample, k < 2 ? WEFT_ON_ERROR_STOP : WEFT_ON_ERROR_SKIP, &n,
                             &f))
            for (int i = 0; i < n; i++)
                if (!f[i].name || f[i].rank < 0 || f[i].rank > 2)
                    abort();
    }
    wf_arena_free(&arena);
    return 0;
}
