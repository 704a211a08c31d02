/* transfer.c - transfer learning in C: a base is trained on half of the classes of Fashion-MNIST
 * and saved; its layers are frozen, and a new head learns the other half from their features; then
 * everything is fine-tuned with a small learning rate.
 *
 *   transfer [FOLDER [EPOCHS [SAMPLES [OUT]]]]
 *
 * FOLDER holds the four IDX files (Debian package dataset-fashion-mnist); SAMPLES reads only the
 * first so many. OUT (default: transfer-run) gets the saved models and the event files: tensorboard
 * --logdir OUT. The jobs transfer_base.yaml, transfer.yaml and transfer_tune.yaml do the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <weft/weft.h>

enum { BATCH = 128 };
#define LOSS "sparse_categorical_crossentropy from_logits=true"

struct program {
    const char *folder, *out;
    int64_t epochs, samples;
    weft_ctx *ctx;
    weft_data *data;
};

static void print(void *arg, const char *text, bool last)
{
    (void)arg;
    (void)last;
    fputs(text, stdout);
    fflush(stdout);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Images of classes first to first + 4, as classes 0 to 4. */
static weft_ds images(const struct program *p, const char *part, double first)
{
    weft_data *d = p->data;
    double last = first + 4;
    char x[512], y[512];
    weft_ds s;

    snprintf(x, sizeof x, "%s/%s-images-idx3-ubyte.gz", p->folder, part);
    snprintf(y, sizeof y, "%s/%s-labels-idx1-ubyte.gz", p->folder, part);
    s = weft_ds_idx(d, 2, (weft_array_file[]){{"image", x}, {"label", y}}, NULL);
    s = weft_ds_take(d, s, p->samples);
    s = weft_ds_where(d, s, "label", WEFT_OPTS(weft_where_opts, .min = &first, .max = &last));
    s = weft_ds_rescale(d, s, "label", 1, -first, WEFT_I32);
    s = weft_ds_rescale(d, s, "image", 1.0 / 255, 0, WEFT_F32);
    return weft_ds_role(d, s, "label", WEFT_LABEL);
}

/* ---- training -------------------------------------------------------------------------------- */

static weft_status compile(weft_model *m, const char *optimizer, weft_trainer **t)
{
    return weft_compile(
        m,
        WEFT_OPTS(weft_compile_opts, .optimizer = optimizer, .loss = LOSS, .metrics = "accuracy"),
        t);
}

/* Trains with validation after each epoch and summaries for TensorBoard in OUT/name. */
static weft_status train(const struct program *p, weft_trainer *t, const char *name, weft_ds data,
                         weft_ds validation)
{
    weft_callback board = {0};
    char spec[600];
    weft_status st;

    printf("%s:\n", name);
    snprintf(spec, sizeof spec, "TensorBoard log_dir=\"%s/%s\" histogram_freq=1", p->out, name);
    st = weft_callback_new(p->ctx, spec, &board);
    if (!st)
        st = weft_fit(t, p->data, data,
                      WEFT_OPTS(weft_fit_opts, .epochs = p->epochs, .batch = BATCH, .seed = 1,
                                .validation = validation, .n_callbacks = 1, .callbacks = &board,
                                .verbose = 2, .print = print),
                      NULL);
    weft_callback_free(&board);
    return st;
}

/* ---- the base: classes 0 to 4 ---------------------------------------------------------------- */

static weft_status base(const struct program *p, const char *path)
{
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_status st = weft_model_new(p->ctx, WEFT_OPTS(weft_model_opts, .name = "base"), &m);

    if (st)
        return st;
    weft_input(m, "image", WEFT_F32, 3, (int64_t[]){28, 28, 1});
    weft_model_add(m, "Conv2D", "filters=16 kernel_size=3 padding=same activation=relu");
    weft_model_add(m, "MaxPooling2D", NULL);
    weft_model_add(m, "Conv2D", "filters=32 kernel_size=3 padding=same use_bias=false");
    weft_model_add(m, "BatchNormalization", NULL);
    weft_model_add(m, "ReLU", NULL);
    weft_model_add(m, "MaxPooling2D", NULL);
    weft_model_add(m, "Flatten", NULL);
    weft_model_add(m, "Dense", "units=64 activation=relu name=features");
    weft_model_add(m, "Dense", "units=5 name=classes");
    st = compile(m, "adam learning_rate=0.001", &t);
    if (!st)
        st = train(p, t, "base", images(p, "train", 0), images(p, "t10k", 0));
    if (!st)
        st = weft_trainer_save(t, path);
    weft_trainer_free(t);
    weft_model_free(m);
    return st;
}

/* ---- the head: classes 5 to 9 ---------------------------------------------------------------- */

/* The saved model up to its layer "features", with a new head where asked for; everything of the
 * file is frozen. */
static weft_status cut(const struct program *p, const char *path, bool head, weft_model **m)
{
    weft_model *whole = NULL;
    weft_status st = weft_model_load(p->ctx, path, &whole);

    if (!st)
        st = weft_model_cut(whole, WEFT_OPTS(weft_cut_opts, .until = "features"), m);
    weft_model_free(whole);
    if (st)
        return st;
    weft_model_freeze(*m, "*", true);
    if (head)
        weft_model_add(*m, "Dense", "units=5 name=new_classes");
    return weft_model_status(*m);
}

/* A frozen base gives the same features in each epoch: they are computed once and kept. */
static weft_status train_head(const struct program *p, const char *path, weft_trainer *to)
{
    weft_model *below = NULL, *m = NULL;
    weft_trainer *t = NULL, *features = NULL;
    weft_data *d = p->data;
    weft_ds part[2];
    weft_status st = cut(p, path, false, &below);

    if (!st)
        st = weft_compile(below, NULL, &features);
    if (!st)
        st = weft_trainer_load_weights(features, path, WEFT_OPTS(weft_load_opts, .by_name = true),
                                       NULL);
    if (!st)
        st = weft_model_new(p->ctx, WEFT_OPTS(weft_model_opts, .name = "head"), &m);
    if (st)
        goto out;
    weft_input(m, "features", WEFT_F32, 1, (int64_t[]){64});
    weft_model_add(m, "Dense", "units=5 name=new_classes");
    st = compile(m, "adam learning_rate=0.005", &t);
    for (int i = 0; i < 2 && !st; i++) {
        part[i] = images(p, i ? "t10k" : "train", 5);
        part[i] =
            weft_ds_map_model(d, part[i], features, WEFT_OPTS(weft_map_graph_opts, .batch = 256));
        part[i] = weft_ds_cache(d, weft_ds_unbatch(d, part[i]), NULL);
    }
    if (!st)
        st = train(p, t, "head", weft_ds_shuffle(d, part[0], 10000, NULL), part[1]);
    if (!st)
        st = weft_trainer_copy_weights(to, t, WEFT_OPTS(weft_load_opts, .by_name = true), NULL);
out:
    weft_trainer_free(t);
    weft_trainer_free(features);
    weft_model_free(m);
    weft_model_free(below);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static weft_status summary(const struct program *p, const weft_model *m)
{
    char *text = NULL;
    weft_status st = weft_model_summary(m, 0, &text);

    if (!st)
        fputs(text, stdout);
    weft_text_free(p->ctx, text);
    return st;
}

static weft_status transfer(const struct program *p, const char *path, const char *tuned)
{
    weft_ds test = images(p, "t10k", 5);
    weft_model *m = NULL;
    weft_trainer *head = NULL, *all = NULL;
    weft_logs logs;
    weft_status st = cut(p, path, true, &m);

    if (!st)
        st = summary(p, m);
    if (!st)
        st = compile(m, NULL, &head);
    if (!st)
        st =
            weft_trainer_load_weights(head, path, WEFT_OPTS(weft_load_opts, .by_name = true), NULL);
    if (!st)
        st = train_head(p, path, head);
    if (!st)
        st = weft_evaluate(head, p->data, test, NULL, &logs);
    if (st)
        goto out;
    printf("new head: accuracy %.4f\n", weft_logs_get(&logs, "accuracy"));

    weft_model_freeze(m, "*", false); /* which takes effect with the next trainer */
    st = compile(m, "adam learning_rate=0.0001", &all);
    if (!st)
        st = weft_trainer_copy_weights(all, head, NULL, NULL);
    if (!st)
        st = train(p, all, "tune", images(p, "train", 5), test);
    if (!st)
        st = weft_evaluate(all, p->data, test, NULL, &logs);
    if (!st)
        st = weft_trainer_save(all, tuned);
    if (!st)
        printf("fine-tuned: accuracy %.4f, saved as %s\n", weft_logs_get(&logs, "accuracy"), tuned);
out:
    weft_trainer_free(all);
    weft_trainer_free(head);
    weft_model_free(m);
    return st;
}

int main(int argc, char **argv)
{
    struct program p = {.folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist",
                        .epochs = argc > 2 ? atoll(argv[2]) : 3,
                        .samples = argc > 3 ? atoll(argv[3]) : 60000,
                        .out = argc > 4 ? argv[4] : "transfer-run"};
    char path[512], tuned[512];
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &p.ctx);

    mkdir(p.out, 0777);
    snprintf(path, sizeof path, "%s/base.safetensors", p.out);
    snprintf(tuned, sizeof tuned, "%s/tuned.safetensors", p.out);
    if (!st)
        st = weft_data_new(p.ctx, &p.data);
    if (!st)
        st = base(&p, path);
    if (!st)
        st = transfer(&p, path, tuned);
    if (st)
        fprintf(stderr, "transfer: %s\n", weft_error());
    weft_data_free(p.data);
    weft_ctx_free(p.ctx);
    return st != WEFT_OK;
}
