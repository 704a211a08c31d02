/* history.c - histories from anything: as the text of a CSV file, and as the state of a checkpoint.
 * What reads has all its values, and nothing is leaked. */
#include <stdint.h>
#include <stdlib.h>

#include "train/loop/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static double sum;

static void look(weft_history *h)
{
    if (h->n_names < 0 || h->n_epochs < 0 || h->first_epoch < 0)
        abort();
    for (int i = 0; i < h->n_names; i++)
        sum += (double)strlen(h->name[i]);
    for (int64_t i = 0; i < h->n_epochs * h->n_names; i++)
        sum += h->value[i];
    weft_history_free(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_history *h;
    int64_t bare, batch;
    char *text = malloc(size + 1);

    if (!text || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    bare = weft_ctx_memory(ctx);
    memcpy(text, data, size);
    text[size] = 0;
    if (!wf_history_parse(ctx, "history.csv", text, &h))
        look(h);
    if (!wf_resume_parse(ctx, (const char *)data, (int64_t)size, &batch, &h))
        look(h);
    if (weft_ctx_memory(ctx) != bare)
        abort();
    weft_ctx_free(ctx);
    free(text);
    return 0;
}
