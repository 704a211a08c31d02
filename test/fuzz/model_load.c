/* model_load.c - model files from anybody: the architecture in it is built and compiled, its
 * weights are loaded, and it predicts; its weights are also offered to a model that is already
 * there. A status is fine. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <weft/weft.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void predict(weft_trainer *t, weft_model *m)
{
    static float zeros[1 << 14];
    weft_tensor x, out = {0};

    if (weft_model_n_inputs(m) != 1 || weft_model_n_outputs(m) != 1 ||
        weft_sym_type(m, weft_model_input_at(m, 0), &x))
        return;
    for (int i = 0; i < x.rank; i++)
        x.dim[i] = x.dim[i] < 0 ? 2 : x.dim[i];
    x.data = zeros;
    if (weft_tensor_bytes(&x) >= 0 && weft_tensor_bytes(&x) <= (int64_t)sizeof zeros)
        (void)weft_predict_on_batch(t, &x, &out);
}

static void load(weft_ctx *ctx, const char *path, weft_model *m)
{
    weft_trainer *t = NULL;

    if (!weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "sgd", .loss = "mse"), &t)) {
        (void)weft_trainer_load_weights(t, path, NULL, NULL);
        (void)weft_trainer_load_weights(t, path, WEFT_OPTS(weft_load_opts, .by_name = true), NULL);
        predict(t, m);
    }
    weft_trainer_free(t);
    t = NULL;
    if (!weft_compile(m, WEFT_OPTS(weft_compile_opts, .like = path), &t)) /* its own settings */
        predict(t, m);
    weft_trainer_free(t);
    (void)ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_model *m = NULL, *there = NULL;
    int fd = memfd_create("model", 0);
    char path[64];

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size) ||
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &ctx))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!weft_model_load(ctx, path, &m))
        load(ctx, path, m);
    if (weft_model_new(ctx, NULL, &there))
        abort();
    (void)weft_input(there, "features", WEFT_F32, 1, (int64_t[]){2});
    (void)weft_model_add(there, "Dense", "units=16 activation=relu");
    (void)weft_model_add(there, "Dense", "units=3");
    load(ctx, path, there);
    weft_model_free(there);
    weft_model_free(m);
    weft_ctx_free(ctx);
    close(fd);
    return 0;
}
