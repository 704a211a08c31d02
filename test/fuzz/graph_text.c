/* graph_text.c - the reader of saved graphs, on anything. What reads must print, and read back as
 * itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_graph *g = NULL, *again = NULL;
    char *a = NULL, *b = NULL;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 256 << 20), &ctx))
        abort();
    if (!weft_graph_parse(ctx, (const char *)data, (int64_t)size, &g) && !weft_graph_text(g, &a)) {
        if (weft_graph_parse(ctx, a, (int64_t)strlen(a), &again) || weft_graph_text(again, &b) ||
            strcmp(a, b))
            abort();
    }
    weft_text_free(ctx, a);
    weft_text_free(ctx, b);
    weft_graph_free(g);
    weft_graph_free(again);
    weft_ctx_free(ctx);
    return 0;
}
