/* fashion.c - image classification in C: the job of fashion_mnist.yaml as a program.
 *
 *   fashion [FOLDER [EPOCHS [SAMPLES]]]
 *
 * FOLDER holds the four IDX files (Debian package dataset-fashion-mnist); SAMPLES trains on the
 * first so many only. */
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

static int failed(const char *what)
{
    fprintf(stderr, "fashion: %s: %s\n", what, weft_error());
    return 1;
}

static weft_ds images(weft_data *d, const char *folder, const char *part)
{
    char x[512], y[512];
    weft_ds s;

    snprintf(x, sizeof x, "%s/%s-images-idx3-ubyte.gz", folder, part);
    snprintf(y, sizeof y, "%s/%s-labels-idx1-ubyte.gz", folder, part);
    s = weft_ds_idx(d, 2, (weft_array_file[]){{"image", x}, {"label", y}}, NULL);
    s = weft_ds_rescale(d, s, "image", 1.0 / 255, 0, WEFT_F32);
    return weft_ds_role(d, s, "label", WEFT_LABEL);
}

static weft_status build(weft_ctx *ctx, weft_model **m)
{
    weft_sym x;
    weft_status st = weft_model_new(ctx, NULL, m);

    if (st)
        return st;
    x = weft_input(*m, "image", WEFT_F32, 2, (int64_t[]){28, 28});
    x = weft_apply(*m, "Reshape", "target_shape=[28,28,1]", x);
    x = weft_apply(*m, "Conv2D", "filters=32 kernel_size=3 padding=same activation=relu", x);
    x = weft_apply(*m, "MaxPooling2D", NULL, x);
    x = weft_apply(*m, "Conv2D", "filters=64 kernel_size=3 padding=same activation=relu", x);
    x = weft_apply(*m, "MaxPooling2D", NULL, x);
    x = weft_apply(*m, "Flatten", NULL, x);
    x = weft_apply(*m, "Dense", "units=128 activation=relu", x);
    x = weft_apply(*m, "Dropout", "rate=0.3", x);
    x = weft_apply(*m, "Dense", "units=10", x);
    weft_model_output(*m, x);
    return weft_model_status(*m);
}

static void print(void *arg, const char *text, bool last)
{
    (void)arg;
    (void)last;
    fputs(text, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    int64_t epochs = argc > 2 ? atoll(argv[2]) : 5, samples = argc > 3 ? atoll(argv[3]) : 60000;
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_ds train, test;
    weft_logs logs;
    char *text = NULL;
    int rc = 1;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx) || weft_data_new(ctx, &d))
        return failed("context");
    train = weft_ds_take(d, images(d, folder, "train"), samples);
    test = weft_ds_take(d, images(d, folder, "t10k"), samples);
    if (weft_data_status(d)) {
        failed("data");
        goto out;
    }
    if (build(ctx, &m) || weft_model_summary(m, 0, &text)) {
        failed("model");
        goto out;
    }
    fputs(text, stdout);
    if (weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.001",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .metrics = "accuracy"),
                     &t)) {
        failed("compile");
        goto out;
    }
    if (weft_fit(t, d, train,
                 WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 128, .seed = 1,
                           .validation_split = 0.1, .verbose = 2, .print = print),
                 NULL)) {
        failed("fit");
        goto out;
    }
    if (weft_evaluate(t, d, test, NULL, &logs)) {
        failed("evaluate");
        goto out;
    }
    printf("test accuracy: %.4f\n", weft_logs_get(&logs, "accuracy"));
    rc = 0;
out:
    weft_text_free(ctx, text);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return rc;
}
