/* events.c - weft's side of the checks of what a run leaves: event files, a saved model.
 *   events FOLDER   trains a small model on pictures for 4 epochs, event files in FOLDER; prints
 *                   the history, a line an epoch; the model is FOLDER/model.safetensors */
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

#define N 96
#define SIDE 8

static float image[N][SIDE][SIDE][1];
static int32_t label[N];

static int fail(void)
{
    fprintf(stderr, "%s\n", weft_error());
    return 1;
}

static void fill(void)
{
    uint32_t seed = 1;

    for (int i = 0; i < N; i++) {
        label[i] = i % 3;
        for (int k = 0; k < SIDE * SIDE; k++) {
            seed = seed * 1664525u + 1013904223u;
            image[i][k / SIDE][k % SIDE][0] =
                (float)(seed >> 8) / 33554432.0f + (k % 3 == label[i] ? 0.5f : 0.0f);
        }
    }
}

static weft_status build(weft_ctx *ctx, weft_model **m, weft_trainer **t)
{
    weft_sym s;
    weft_status st = weft_model_new(ctx, NULL, m);

    if (st)
        return st;
    s = weft_input(*m, "image", WEFT_F32, 3, (int64_t[]){SIDE, SIDE, 1});
    s = weft_apply(*m, "Conv2D", "filters=4 kernel_size=3 activation=relu name=conv", s);
    s = weft_apply(*m, "Flatten", NULL, s);
    s = weft_apply(*m, "Dense", "units=3 name=head", s);
    weft_model_output(*m, s);
    return weft_compile(*m,
                        WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.01",
                                  .loss = "sparse_categorical_crossentropy from_logits=true",
                                  .metrics = "accuracy"),
                        t);
}

int main(int argc, char **argv)
{
    weft_column col[2] = {{.name = "image"}, {.name = "label", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, image, 4, (int64_t[]){N, SIDE, SIDE, 1}),
                        weft_view(WEFT_I32, label, 1, (int64_t[]){N})};
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_trainer *trainer = NULL;
    weft_data *d = NULL;
    weft_history *h = NULL;
    weft_callback cb;
    char spec[4096];

    if (argc != 2)
        return 2;
    fill();
    snprintf(spec, sizeof spec,
             "TensorBoard log_dir=\"%s\" histogram_freq=1 write_images=true input_images=4 "
             "update_freq=batch write_steps_per_second=true",
             argv[1]);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) || build(ctx, &m, &trainer) ||
        weft_callback_new(ctx, spec, &cb) || weft_data_new(ctx, &d) ||
        weft_fit(trainer, d, weft_ds_tensors(d, 2, col, t),
                 WEFT_OPTS(weft_fit_opts, .epochs = 4, .batch = 24, .validation_split = 0.25,
                           .n_callbacks = 1, .callbacks = &cb),
                 &h))
        return fail();
    snprintf(spec, sizeof spec, "%s/model.safetensors", argv[1]);
    if (weft_trainer_save(trainer, spec))
        return fail();
    for (int64_t e = 0; e < h->n_epochs; e++)
        for (int i = 0; i < h->n_names; i++)
            printf("%s\"%s\": %.17g%s", i ? ", " : "{", h->name[i], h->value[e * h->n_names + i],
                   i == h->n_names - 1 ? "}\n" : "");
    weft_history_free(h);
    weft_callback_free(&cb);
    weft_trainer_free(trainer);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return 0;
}
