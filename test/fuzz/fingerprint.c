/* fingerprint.c - the reader of fingerprints, on anything, with a right checksum added: what
 * it reads is written and reads back as itself, and does not differ from itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fprint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(void *arg, const struct wf_fp_diff *d)
{
    char text[512];

    (void)arg;
    wf_fp_say(d, "there", text, sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    struct wf_fprint f, again, none;
    char *a = NULL, *b = NULL, *text = malloc(size + 32);
    int64_t n = (int64_t)size, bare;
    unsigned found;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    bare = weft_ctx_memory(ctx);
    if (!text)
        abort();
    memcpy(text, data, size);
    n += snprintf(text + size, 32, "hash %016llx\n", (unsigned long long)wf_hash64(data, size, 0));
    if (!wf_fp_parse(ctx, text, n, &f)) {
        if (wf_fp_text(&f, &a) || wf_fp_parse(ctx, a, (int64_t)strlen(a), &again) ||
            wf_fp_text(&again, &b) || strcmp(a, b) != 0)
            abort();
        if (wf_fp_compare(&f, &again, ~0u, note, NULL, &found) || found)
            abort();
        wf_fp_init(&none, ctx);
        if (wf_fp_compare(&f, &none, ~0u, note, NULL, &found))
            abort();
        wf_fp_free(&again);
        wf_free(ctx, a);
        wf_free(ctx, b);
    }
    wf_fp_free(&f);
    free(text);
    if (weft_ctx_memory(ctx) != bare)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
