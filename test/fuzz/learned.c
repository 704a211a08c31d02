/* learned.c - the reader of learned values, on anything: what reads is formatted, and reads back as
 * itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const weft_learned *l)
{
    const char *name;
    weft_learned_kind kind;

    for (int i = 0; weft_learned_at(l, i, &name, &kind); i++) {
        int n = 0;
        const weft_vocab *v = weft_learned_vocab(l, name);
        const weft_stats *s = weft_learned_stats(l, name);
        const weft_column *c = weft_learned_columns(l, name, &n);

        if ((v != NULL) + (s != NULL) + (c != NULL) + (weft_learned_text(l, name) != NULL) != 1)
            abort();
        for (int64_t k = 0; v && k < weft_vocab_size(v); k++) {
            weft_str w = weft_vocab_word(v, k);

            if (weft_vocab_find(v, w.data, w.n) != k)
                abort();
        }
        for (int k = 0; s && k < weft_stats_columns(s); k++)
            if (weft_stats_column(s, k)->n < 1 || weft_stats_column(s, k)->count[0] < 0)
                abort();
        for (int k = 0; c && k < n; k++)
            if (c[k].rank < 0 || c[k].rank > WEFT_MAX_RANK || !c[k].name)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_learned *l = NULL, *again = NULL;
    char *a = NULL, *b = NULL;
    int64_t n_a, n_b, bare;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    bare = weft_ctx_memory(ctx);
    if (!weft_learned_parse(ctx, (const char *)data, (int64_t)size, &l)) {
        look(l);
        if (weft_learned_format(l, &a, &n_a) || weft_learned_parse(ctx, a, n_a, &again) ||
            weft_learned_format(again, &b, &n_b) || n_a != n_b || memcmp(a, b, (size_t)n_a) != 0)
            abort();
    }
    weft_text_free(ctx, a);
    weft_text_free(ctx, b);
    weft_learned_free(l);
    weft_learned_free(again);
    if (weft_ctx_memory(ctx) != bare)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
