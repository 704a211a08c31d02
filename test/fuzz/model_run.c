/* model_run.c - architectures from anybody, compiled and trained for a batch: what reads must run
 * or end with a status. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "tensor/tensor.h"

#define MAX_SIDES 8
#define MAX_BYTES (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Two samples of small numbers in the shape of the symbol; unknown sizes are 2. False where that is
 * too much. */
static bool sample(const weft_model *m, weft_sym x, weft_tensor *out)
{
    int64_t bytes;

    if (weft_sym_type(m, x, out))
        return false;
    for (int i = 0; i < out->rank; i++)
        out->dim[i] = out->dim[i] < 0 ? 2 : out->dim[i];
    bytes = weft_tensor_bytes(out);
    if (bytes < 0 || bytes > MAX_BYTES)
        return false;
    out->data = malloc((size_t)bytes + !bytes);
    for (int64_t i = 0, n = weft_tensor_count(out); i < n; i++)
        wf_set(out->data, out->dtype, i, (double)(i % 3 % 2));
    return true;
}

static void train(weft_ctx *ctx, weft_model *m)
{
    weft_tensor x[MAX_SIDES] = {{0}}, y[MAX_SIDES] = {{0}};
    int n_x = weft_model_n_inputs(m), n_y = weft_model_n_outputs(m);
    weft_trainer *t = NULL;
    weft_logs logs;
    bool ok = n_x <= MAX_SIDES && n_y <= MAX_SIDES;

    (void)ctx;
    for (int i = 0; i < n_x && ok; i++)
        ok = sample(m, weft_model_input_at(m, i), &x[i]);
    for (int i = 0; i < n_y && ok; i++)
        ok = sample(m, weft_model_output_at(m, i), &y[i]);
    if (ok && !weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "sgd", .loss = "mse"), &t))
        for (int i = 0; i < 2; i++)
            (void)weft_train_on_batch(t, x, y, NULL, &logs);
    weft_trainer_free(t);
    for (int i = 0; i < MAX_SIDES; i++) {
        free(x[i].data);
        free(y[i].data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_model *m = NULL;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &ctx))
        abort();
    if (!weft_model_parse(ctx, (const char *)data, (int64_t)size, &m))
        train(ctx, m);
    weft_model_free(m);
    weft_ctx_free(ctx);
    return 0;
}
