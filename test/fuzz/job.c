/* Fuzz target: job files. Whatever the text, parsing ends with a status and a message. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_ctx *ctx;
    static const char *const sets[] = {"train.epochs=3", "model.0=Dense"};
    weft_job *job = NULL;

    if (!ctx && weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    for (int n = 0; n <= 2; n += 2) {
        weft_status st =
            weft_job_parse(ctx, "job.yaml", (const char *)data, (int64_t)size, n, sets, &job);

        if (st && !weft_error()[0])
            abort();
        if (!st)
            weft_job_free(job);
        job = NULL;
    }
    return 0;
}
