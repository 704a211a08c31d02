/* softmax.c - softmax regression of a million samples of 64 numbers in ten classes, which lie in
 * ten files: the job of softmax.yaml as a program.
 *
 *   softmax [--generate] [FOLDER [SAMPLES [EPOCHS]]]
 *
 * FOLDER has part-0.npz to part-9.npz and test.npz; they are made when they are not there, 264 MB
 * for a million samples, the same bytes on every machine. --generate makes them anew and does no
 * more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <weft/weft.h>

enum { WIDTH = 64, CLASSES = 10, SLICES = 10, TEST_SAMPLES = 10000 };

static int failed(const char *what)
{
    fprintf(stderr, "softmax: %s: %s\n", what, weft_error());
    return 1;
}

/* ---- the slices ------------------------------------------------------------------------------ */

/* Nearly normal: four pieces of a random word, added. Exact, so that every machine makes the
 * same. */
static float draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    int64_t sum;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    sum = (int64_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536);
}

/* The class whose direction fits best, with some doubt. */
static int32_t class_of(const float *x, const float *w, uint64_t *state)
{
    float best = 0;
    int32_t at = 0;

    for (int k = 0; k < CLASSES; k++) {
        double fit = 3 * draw(state);

        for (int i = 0; i < WIDTH; i++)
            fit += (double)w[k * WIDTH + i] * (double)x[i];
        if (k == 0 || (float)fit > best) {
            best = (float)fit;
            at = k;
        }
    }
    return at;
}

/* A file of n samples, whose numbers follow from the slice's. */
static weft_status make_slice(weft_ctx *ctx, const char *path, int slice, int64_t n)
{
    float *x = malloc((size_t)n * WIDTH * sizeof *x), w[CLASSES * WIDTH];
    int32_t *label = malloc((size_t)n * sizeof *label);
    uint64_t state = 1;
    weft_tensor t[2] = {
        {.dtype = WEFT_F32, .rank = 2, .dim = {n, WIDTH}, .data = x},
        {.dtype = WEFT_I32, .rank = 1, .dim = {n}, .data = label},
    };
    weft_status st = x && label ? WEFT_OK : WEFT_ENOMEM;

    for (int i = 0; i < CLASSES * WIDTH; i++)
        w[i] = draw(&state);
    state = (uint64_t)(slice + 2) << 40;
    for (int64_t i = 0; i < n && !st; i++) {
        for (int k = 0; k < WIDTH; k++)
            x[i * WIDTH + k] = draw(&state);
        label[i] = class_of(x + i * WIDTH, w, &state);
    }
    if (!st)
        st = weft_npz_write(ctx, path, 2, (const char *const[]){"x", "label"}, t);
    free(x);
    free(label);
    return st;
}

/* What is missing, or all. */
static weft_status generate(weft_ctx *ctx, const char *folder, int64_t samples, bool all)
{
    char path[512];
    struct stat s;
    weft_status st = WEFT_OK;

    mkdir(folder, 0777); /* where that fails, writing says why */
    for (int i = 0; i <= SLICES && !st; i++) {
        snprintf(path, sizeof path, i < SLICES ? "%s/part-%d.npz" : "%s/test.npz", folder, i);
        if (!all && stat(path, &s) == 0)
            continue;
        printf("making %s\n", path);
        fflush(stdout);
        st = make_slice(ctx, path, i, i < SLICES ? samples / SLICES : TEST_SAMPLES);
    }
    return st;
}

/* ---- training -------------------------------------------------------------------------------- */

/* All files that a pattern names, one after the other, with random access. */
static weft_ds open_files(weft_data *d, const char *folder, const char *pattern)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    return weft_ds_open(d, path, WEFT_OPTS(weft_open_opts, .label = "label"));
}

static weft_status build(weft_ctx *ctx, weft_model **m)
{
    weft_sym x;
    weft_status st = weft_model_new(ctx, NULL, m);

    if (st)
        return st;
    x = weft_input(*m, "x", WEFT_F32, 1, (int64_t[]){WIDTH});
    weft_model_output(*m, weft_apply(*m, "Dense", "units=10", x));
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
    bool only = argc > 1 && strcmp(argv[1], "--generate") == 0;
    char **arg = argv + 1 + only;
    int n_args = argc - 1 - only;
    const char *folder = n_args > 0 ? arg[0] : "examples/data/slices";
    int64_t samples = n_args > 1 ? atoll(arg[1]) : 1000000, epochs = n_args > 2 ? atoll(arg[2]) : 2;
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_ds train, test;
    weft_logs logs;
    weft_times times;
    int rc = 1;

    if (folder[0] == '-') {
        fprintf(stderr, "usage: softmax [--generate] [FOLDER [SAMPLES [EPOCHS]]]\n");
        return 2;
    }
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx) || weft_data_new(ctx, &d))
        return failed("context");
    if (generate(ctx, folder, samples, only)) {
        failed("slices");
        goto out;
    }
    if (only) {
        rc = 0;
        goto out;
    }
    train = open_files(d, folder, "part-*.npz");
    test = open_files(d, folder, "test.npz");
    if (weft_data_status(d)) {
        failed("data");
        goto out;
    }
    if (build(ctx, &m) ||
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0.01",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .metrics = "accuracy"),
                     &t)) {
        failed("model");
        goto out;
    }
    samples = weft_ds_count(d, train); /* those that are there */
    printf("%lld samples in %d slices\n", (long long)samples, SLICES);
    if (weft_fit(t, d, train,
                 WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 32, .seed = 1, .verbose = 2,
                           .print = print),
                 NULL)) {
        failed("fit");
        goto out;
    }
    weft_trainer_times(t, NULL, &times);
    if (weft_evaluate(t, d, test, NULL, &logs)) {
        failed("evaluate");
        goto out;
    }
    printf("test accuracy: %.4f\n", weft_logs_get(&logs, "accuracy"));
    printf("%.2f s, %.0f samples/s\n", times.total_s, (double)(samples * epochs) / times.total_s);
    rc = 0;
out:
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return rc;
}
