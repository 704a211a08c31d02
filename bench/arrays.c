/* arrays.c - how fast are shuffled images from IDX files? Images a second through idx, full
 * shuffle, / 255, batch 128: of CPU time of one thread doing all the work, and of wall time with
 * two threads. One JSON line each, the median of nine epochs.
 *
 *   bench/arrays IMAGES LABELS */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "weft/weft.h"

enum { EPOCHS = 9 };

static double now_s(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double epoch(weft_iter *it, int64_t number, clockid_t clock)
{
    weft_batch *b = NULL;
    int64_t n = 0;
    double t = now_s(clock);

    if (weft_iter_reset(it, number))
        return 0;
    while (!weft_iter_next(it, &b) && b) {
        n += b->n;
        weft_batch_free(b);
    }
    return (double)n / (now_s(clock) - t);
}

static weft_status measure(weft_ctx *ctx, char **paths, int threads)
{
    weft_array_file files[2] = {{"image", paths[0]}, {"label", paths[1]}};
    clockid_t clock = threads ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    weft_iter_opts opts = {.size = sizeof opts, .threads = threads ? threads : WEFT_ZERO};
    double rate[EPOCHS];
    weft_data *d = NULL;
    weft_iter *it = NULL;
    weft_ds s;
    weft_status st = weft_data_new(ctx, &d);

    if (st)
        return st;
    s = weft_ds_idx(d, 2, files, NULL);
    s = weft_ds_shuffle_all(d, s, NULL);
    s = weft_ds_rescale(d, s, "image", 1.0 / 255, 0, WEFT_F32);
    s = weft_ds_rescale(d, s, "label", 1, 0, WEFT_I32);
    s = weft_ds_batch(d, s, 128, NULL);
    st = weft_iter_new(d, s, &opts, &it);
    for (int e = -1; e < EPOCHS && !st; e++) {
        double r = epoch(it, e + 1, clock);

        if (e >= 0)
            rate[e] = r;
    }
    if (!st) {
        qsort(rate, EPOCHS, sizeof rate[0], by_size);
        printf("{\"threads\": %d, \"images_s\": %.0f}\n", threads, rate[EPOCHS / 2]);
        for (int i = 0; i < weft_iter_n_stages(it); i++) {
            weft_stage_stats stage;

            weft_iter_stage(it, i, &stage);
            printf("  {\"stage\": \"%s\", \"ns_per_element\": %.1f}\n", stage.name,
                   stage.busy_s * 1e9 / (double)stage.n_elements);
        }
    }
    weft_iter_free(it);
    weft_data_free(d);
    return st;
}

int main(int argc, char **argv)
{
    weft_ctx *ctx = NULL;
    weft_status st = WEFT_EINVAL;

    if (argc == 3)
        st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
    if (!st)
        st = measure(ctx, argv + 1, 0);
    if (!st)
        st = measure(ctx, argv + 1, 2);
    if (st)
        fprintf(stderr, "arrays IMAGES LABELS: %s\n", weft_error());
    weft_ctx_free(ctx);
    return st != 0;
}
