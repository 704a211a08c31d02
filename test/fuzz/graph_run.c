/* graph_run.c - saved graphs from anybody, planned and run: whatever reads must run or end with a
 * status. */
#include <stdint.h>
#include <stdlib.h>

#include "support/run_graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &ctx))
        abort();
    (void)run_graph_text(ctx, (const char *)data, (int64_t)size);
    weft_ctx_free(ctx);
    return 0;
}
