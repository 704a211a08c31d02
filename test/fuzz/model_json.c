/* model_json.c - the reader of architectures, on anything. What reads must print, and read back as
 * itself; and it must become a graph, in training too, or say why not. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void build(weft_ctx *ctx, weft_model *m, bool training)
{
    weft_graph *g = NULL;
    struct wf_arena arena;
    struct wf_built built;

    wf_arena_init(&arena, ctx);
    if (!weft_graph_new(ctx, &g) && wf_model_build(m, g, training, &arena, &built) &&
        !*weft_error())
        abort();
    weft_graph_free(g);
    wf_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_model *m = NULL, *again = NULL;
    char *a = NULL, *b = NULL, *table = NULL;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 256 << 20), &ctx))
        abort();
    if (!weft_model_parse(ctx, (const char *)data, (int64_t)size, &m)) {
        if (weft_model_json(m, &a) || weft_model_parse(ctx, a, (int64_t)strlen(a), &again) ||
            weft_model_json(again, &b) || strcmp(a, b) || weft_model_summary(m, 0, &table))
            abort();
        build(ctx, m, false);
        build(ctx, m, true);
    }
    weft_text_free(ctx, a);
    weft_text_free(ctx, b);
    weft_text_free(ctx, table);
    weft_model_free(m);
    weft_model_free(again);
    weft_ctx_free(ctx);
    return 0;
}
