/* fit.c - what does fit add to a training step? mlp-s (784 -> 128 ReLU -> 10, batch 128, Adam) by
 * weft_fit from memory: batches in order (borrowed), shuffled, and with a checkpoint every 100
 * steps, on the disk and in memory (/dev/shm); compared with the same graph run by weft_fn_run in a
 * bare loop. All alternate; one JSON line each with the medians over the blocks: microseconds a
 * step, and that over the bare step of the same block.
 *
 *   bench/fit [BLOCKS] */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weft/weft.h"

enum { SAMPLES = 128 * 400, BATCH = 128, MAX_BLOCKS = 101 };

static float *x;
static int32_t *y;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double p = *(const double *)a, q = *(const double *)b;

    return (p > q) - (p < q);
}

static void check(weft_status st)
{
    if (st) {
        fprintf(stderr, "fit: %s\n", weft_error());
        exit(1);
    }
}

struct setup {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static struct setup make(weft_ctx *ctx, const char *metrics)
{
    struct setup u;
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){SAMPLES, 784}),
                           weft_view(WEFT_I32, y, 1, (int64_t[]){SAMPLES})};
    weft_sym v;

    check(weft_model_new(ctx, NULL, &u.m));
    v = weft_input(u.m, "x", WEFT_F32, 1, (int64_t[]){784});
    v = weft_apply(u.m, "Dense", "units=128 activation=relu", v);
    v = weft_apply(u.m, "Dense", "units=10", v);
    weft_model_output(u.m, v);
    check(weft_compile(u.m,
                       WEFT_OPTS(weft_compile_opts, .optimizer = "adam",
                                 .loss = "sparse_categorical_crossentropy from_logits=true",
                                 .metrics = metrics),
                       &u.t));
    check(weft_data_new(ctx, &u.d));
    u.s = weft_ds_tensors(u.d, 2, col, rows);
    return u;
}

/* Seconds an epoch of fit takes, planning aside. */
struct stamp {
    double first, last;
};
static weft_status begin(void *arg, weft_trainer *t, int64_t epoch)
{
    struct stamp *s = arg;

    (void)t;
    if (epoch == 1)
        s->first = now_s();
    return WEFT_OK;
}
static weft_status end(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct stamp *s = arg;

    (void)t;
    (void)epoch;
    (void)logs;
    s->last = now_s();
    return WEFT_OK;
}

static double fit_us(weft_ctx *ctx, bool shuffled, const char *metrics, const char *checkpoint)
{
    struct setup u = make(ctx, metrics);
    struct stamp s = {0, 0};
    weft_callback cb = {
        .size = sizeof cb, .arg = &s, .name = "stamp", .epoch_begin = begin, .epoch_end = end};

    check(weft_fit(u.t, u.d, u.s,
                   WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = BATCH, .no_shuffle = !shuffled,
                             .n_callbacks = 1, .callbacks = &cb, .checkpoint = checkpoint,
                             .checkpoint_steps = checkpoint ? 100 : 0),
                   NULL));
    weft_trainer_free(u.t);
    weft_model_free(u.m);
    weft_data_free(u.d);
    return (s.last - s.first) * 1e6 / (2.0 * SAMPLES / BATCH);
}

/* The same net as a bare graph. */
static double bare_us(weft_ctx *ctx)
{
    weft_graph *g;
    weft_fn *fn;
    weft_optim o;
    weft_val in[2], w[4], h, loss, updates[8];
    weft_tensor out = {.data = NULL};
    int n = 0;
    double t;

    check(weft_graph_new(ctx, &g));
    in[0] = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 784});
    in[1] = weft_placeholder(g, "y", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    w[0] = weft_variable(g, "w0", 2, (int64_t[]){784, 128}, NULL);
    w[1] = weft_variable(g, "b0", 1, (int64_t[]){128}, NULL);
    w[2] = weft_variable(g, "w1", 2, (int64_t[]){128, 10}, NULL);
    w[3] = weft_variable(g, "b1", 1, (int64_t[]){10}, NULL);
    h = weft_relu(g, weft_add(g, weft_matmul(g, in[0], w[0], NULL), w[1]));
    h = weft_add(g, weft_matmul(g, h, w[2], NULL), w[3]);
    loss = weft_loss_sparse_softmax_xent(g, h, in[1], NULL);
    check(weft_optim_init(&o, "adam", NULL));
    check(weft_minimize(g, loss, &o, 4, w, 8, updates, &n));
    check(weft_fn_new(g,
                      WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in, .n_fetches = 1,
                                .fetches = &loss, .n_updates = n, .updates = updates),
                      &fn));
    t = 0;
    for (int64_t i = 0; i < 3 * SAMPLES / BATCH; i++) {
        int64_t first = i * BATCH % SAMPLES;
        weft_tensor feeds[2] = {weft_view(WEFT_F32, x + first * 784, 2, (int64_t[]){BATCH, 784}),
                                weft_view(WEFT_I32, y + first, 1, (int64_t[]){BATCH})};

        if (i == SAMPLES / BATCH)
            t = now_s();
        out = (weft_tensor){.data = NULL};
        check(weft_fn_run(fn, feeds, &out));
    }
    t = (now_s() - t) * 1e6 / (2.0 * SAMPLES / BATCH);
    weft_fn_free(fn);
    weft_graph_free(g);
    return t;
}

static double checkpoint_us(weft_ctx *ctx, const char *place)
{
    char dir[64], rm[80];
    double us;

    snprintf(dir, sizeof dir, "%s/weft-fit-XXXXXX", place);
    if (!mkdtemp(dir))
        exit(1);
    us = fit_us(ctx, false, NULL, dir);
    snprintf(rm, sizeof rm, "rm -r %s", dir);
    if (system(rm))
        exit(1);
    return us;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"bare",
                                        "fit",
                                        "fit_accuracy",
                                        "fit_shuffled",
                                        "fit_checkpoint_100",
                                        "fit_checkpoint_100_memory"};
    static double us[6][MAX_BLOCKS], ratio[6][MAX_BLOCKS];
    int blocks = argc > 1 ? atoi(argv[1]) : 9;
    weft_ctx *ctx;

    blocks = blocks < 1 ? 1 : blocks > MAX_BLOCKS ? MAX_BLOCKS : blocks;
    x = malloc(sizeof *x * SAMPLES * 784);
    y = malloc(sizeof *y * SAMPLES);
    if (!x || !y)
        return 1;
    srand(1);
    for (int64_t i = 0; i < (int64_t)SAMPLES * 784; i++)
        x[i] = (float)rand() / (float)RAND_MAX;
    for (int i = 0; i < SAMPLES; i++)
        y[i] = rand() % 10;
    check(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx));
    for (int b = 0; b < blocks; b++) {
        us[0][b] = bare_us(ctx);
        us[1][b] = fit_us(ctx, false, NULL, NULL);
        us[2][b] = fit_us(ctx, false, "accuracy", NULL);
        us[3][b] = fit_us(ctx, true, NULL, NULL);
        us[4][b] = checkpoint_us(ctx, "/tmp");
        us[5][b] = checkpoint_us(ctx, "/dev/shm");
    }
    for (int k = 0; k < 6; k++)
        for (int b = 0; b < blocks; b++)
            ratio[k][b] = us[k][b] / us[0][b];
    for (int k = 0; k < 6; k++) {
        qsort(us[k], (size_t)blocks, sizeof us[k][0], by_size);
        qsort(ratio[k], (size_t)blocks, sizeof ratio[k][0], by_size);
        printf("{\"bench\": \"fit\", \"what\": \"%s\", \"us_step\": %.1f, \"over_bare\": %.3f}\n",
               names[k], us[k][blocks / 2], ratio[k][blocks / 2]);
    }
    weft_ctx_free(ctx);
    free(x);
    free(y);
    return 0;
}
