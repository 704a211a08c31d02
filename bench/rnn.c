/* rnn.c - how near do recurrent nets come to the multiply-add peak?
 *
 * One JSON line per layer: milliseconds of the forward and of the backward pass (the median round,
 * and the best call), and the fraction of a loop of multiply-adds in registers that was timed just
 * before on the same threads. FLOP are those of the products alone. Rounds alternate over all
 * layers.
 *   bench/rnn [--threads N] [--rounds N] [--simd portable|avx2|avx512] [--only NAME] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/rnn.h"
#include "peak.h"

struct layer {
    const char *name;
    enum wf_rnn_cell cell;
    int64_t n_batch, n_time, n_in, n_units;
    bool whole; /* dy of every step and dx; otherwise the last state's gradient only, and no dx */
};

static const struct layer layers[] = {
    {"lstm", WF_CELL_LSTM, 64, 28, 28, 128, false},
    {"lstm-whole", WF_CELL_LSTM, 64, 28, 28, 128, true},
    {"lstm-256", WF_CELL_LSTM, 64, 50, 256, 256, true},
    {"lstm-512", WF_CELL_LSTM, 32, 20, 512, 512, true},
    {"lstm-b8", WF_CELL_LSTM, 8, 50, 64, 128, true},
    {"lstm-b512", WF_CELL_LSTM, 512, 10, 64, 64, true},
    {"gru", WF_CELL_GRU_AFTER, 64, 28, 28, 128, false},
    {"gru-before", WF_CELL_GRU_BEFORE, 64, 28, 28, 128, false},
    {"simple", WF_CELL_TANH, 64, 28, 28, 128, false},
};
enum { N_LAYERS = sizeof layers / sizeof layers[0], MAX_ROUNDS = 99, N_BUFFERS = 20 };

struct timing {
    struct wf_rnn forward, backward;
    struct wf_rnn_data t;
    void *scratch, *buffers[N_BUFFERS];
    int n_buffers;
    int64_t reps;
    double ms[2][MAX_ROUNDS], best_ms[2], peak[MAX_ROUNDS];
};

static weft_ctx *ctx;
static const struct wf_gemm_fns *gemm;
static weft_simd level;
static struct timing timings[N_LAYERS];

/* Multiply-adds count twice. direction: 0 forward, 1 backward. */
static double flop_of(const struct layer *l, const struct timing *t, int direction)
{
    double steps = (double)(l->n_batch * l->n_time),
           n_cols = t->forward.n_gates * (double)l->n_units;
    double u = (double)l->n_units, in = (double)l->n_in;

    return 2 * steps * n_cols * (direction == 0 ? u + in : u + u + in + (l->whole ? in : 0));
}

static float *buffer(struct timing *t, int64_t n, float scale)
{
    float *p = wf_alloc_n(ctx, n + 16, sizeof *p);

    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * ((float)(i * 7919 % 1000) / 500.0f - 1.0f);
    return t->buffers[t->n_buffers++] = p;
}

static void set_up(struct timing *t, const struct layer *l, int n_threads)
{
    struct wf_rnn_desc d = {.cell = l->cell,
                            .n_batch = l->n_batch,
                            .n_time = l->n_time,
                            .n_in = l->n_in,
                            .n_units = l->n_units,
                            .need_dx = l->whole,
                            .need_dw = true};
    int64_t n = l->n_units, steps = l->n_batch * l->n_time, n_cols;

    if (!wf_rnn_plan(&t->forward, &d, level, false, n_threads) ||
        !wf_rnn_plan(&t->backward, &d, level, true, n_threads))
        exit(1);
    n_cols = t->forward.n_gates * n;
    t->t = (struct wf_rnn_data){.x = buffer(t, steps * l->n_in, 1),
                                .w = buffer(t, l->n_in * n_cols, 0.1f),
                                .r = buffer(t, n * n_cols, 0.1f),
                                .bias = buffer(t, 2 * n_cols, 0.1f),
                                .y = buffer(t, steps * n, 0),
                                .gates = buffer(t, steps * n * 4, 0),
                                .cells = buffer(t, steps * n, 0),
                                .h_last = buffer(t, l->n_batch * n, 0),
                                .c_last = buffer(t, l->n_batch * n, 0),
                                .dh_last = buffer(t, l->n_batch * n, 0.01f),
                                .dw = buffer(t, l->n_in * n_cols, 0),
                                .dr = buffer(t, n * n_cols, 0),
                                .dbias = buffer(t, 2 * n_cols, 0)};
    if (l->cell != WF_CELL_LSTM)
        t->t.cells = t->t.c_last = NULL;
    if (l->whole) {
        t->t.dy = buffer(t, steps * n, 0.01f);
        t->t.dx = buffer(t, steps * l->n_in, 0);
    }
    t->scratch = wf_alloc(ctx, t->forward.scratch_bytes > t->backward.scratch_bytes
                                   ? t->forward.scratch_bytes
                                   : t->backward.scratch_bytes);
    t->reps = 1 + (int64_t)(2e9 / (flop_of(l, t, 0) + flop_of(l, t, 1)));
}

static void time_round(struct timing *t, int round)
{
    double sum[2] = {0, 0};

    t->peak[round] = peak(ctx, gemm);
    for (int64_t r = 0; r <= t->reps; r++) /* the first warms the caches */
        for (int i = 0; i < 2; i++) {
            double start = seconds(ctx), ms;

            if (i == 0)
                wf_rnn_forward(&t->forward, ctx->pool, &t->t, t->scratch);
            else
                wf_rnn_backward(&t->backward, ctx->pool, &t->t, t->scratch);
            ms = (seconds(ctx) - start) * 1e3;
            sum[i] += r ? ms : 0;
            if (t->best_ms[i] == 0 || ms < t->best_ms[i])
                t->best_ms[i] = ms;
        }
    for (int i = 0; i < 2; i++)
        t->ms[i][round] = sum[i] / (double)t->reps;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_line(struct timing *t, const struct layer *l, int n_threads, int n_rounds)
{
    double f0 = flop_of(l, t, 0), f1 = flop_of(l, t, 1), *ms[2] = {t->ms[0], t->ms[1]};
    int mid = n_rounds / 2;
    double best, top;

    qsort(ms[0], (size_t)n_rounds, sizeof(double), by_value);
    qsort(ms[1], (size_t)n_rounds, sizeof(double), by_value);
    qsort(t->peak, (size_t)n_rounds, sizeof(double), by_value);
    best = t->best_ms[0] + t->best_ms[1];
    top = t->peak[n_rounds - 1];
    printf("{\"bench\":\"rnn\",\"layer\":\"%s\",\"simd\":\"%s\",\"threads\":%d,\"shape\":[%" PRId64
           ",%" PRId64 ",%" PRId64 ",%" PRId64 "],\"forward_ms\":%.3f,\"backward_ms\":%.3f,"
           "\"best_forward_ms\":%.3f,\"best_backward_ms\":%.3f,\"peak_gflops\":%.1f,"
           "\"peak_fraction\":%.3f,\"best_fraction\":%.3f,\"best_fraction_forward\":%.3f,"
           "\"best_fraction_backward\":%.3f}\n",
           l->name, gemm->name, n_threads, l->n_batch, l->n_time, l->n_in, l->n_units, ms[0][mid],
           ms[1][mid], t->best_ms[0], t->best_ms[1], top,
           (f0 + f1) / (ms[0][mid] + ms[1][mid]) / 1e6 / t->peak[mid], (f0 + f1) / best / 1e6 / top,
           f0 / t->best_ms[0] / 1e6 / top, f1 / t->best_ms[1] / 1e6 / top);
    fflush(stdout);
}

static weft_simd level_named(const char *name)
{
    for (int l = WEFT_SIMD_PORTABLE; l <= WEFT_SIMD_AVX512BF16; l++)
        if (name && !strcmp(name, weft_simd_name((weft_simd)l)))
            return (weft_simd)l;
    return weft_simd_best();
}

int main(int argc, char **argv)
{
    int n_threads = 2, n_rounds = 9;
    const char *only = NULL, *simd = NULL;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads"))
            n_threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            n_rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--simd"))
            simd = argv[i + 1];
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
    }
    n_rounds = n_rounds < 1 ? 1 : n_rounds > MAX_ROUNDS ? MAX_ROUNDS : n_rounds;
    level = level_named(simd);
    gemm = wf_gemm_fns_of(level);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = n_threads), &ctx)) {
        fprintf(stderr, "%s\n", weft_error());
        return 1;
    }
    for (int i = 0; i < N_LAYERS; i++)
        if (!only || !strcmp(layers[i].name, only))
            set_up(&timings[i], &layers[i], n_threads);
    for (int r = 0; r < n_rounds; r++)
        for (int i = 0; i < N_LAYERS; i++)
            if (timings[i].scratch)
                time_round(&timings[i], r);
    for (int i = 0; i < N_LAYERS; i++) {
        if (timings[i].scratch)
            print_line(&timings[i], &layers[i], n_threads, n_rounds);
        for (int k = 0; k < timings[i].n_buffers; k++)
            wf_free(ctx, timings[i].buffers[k]);
        wf_free(ctx, timings[i].scratch);
    }
    weft_ctx_free(ctx);
    return 0;
}
