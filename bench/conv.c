/* conv.c - how long do convolutions take, in each direction?
 *
 * One JSON line per shape and direction: milliseconds, GFLOP/s counted as a direct convolution (so
 * that Winograd may exceed the peak), and the fraction of a loop of multiply-adds in registers that
 * was timed just before on the same threads. Rounds alternate over all shapes; the line gives
 * medians and the best.
 *   bench/conv [--threads N] [--rounds N] [--simd portable|avx2|avx512] [--only NAME]
 *              [--algo auto|product|winograd|depthwise|few|general] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/conv.h"
#include "peak.h"

struct shape {
    const char *name;
    int64_t batch, in, c_in, c_out, k, stride, groups;
    bool same;
};

static const struct shape shapes[] = {
    {"cnn1", 64, 28, 1, 32, 3, 1, 1, false},         {"cnn2", 64, 26, 32, 64, 3, 1, 1, false},
    {"rgb7s2", 8, 112, 3, 64, 7, 2, 1, true},        {"res56", 8, 56, 64, 64, 3, 1, 1, true},
    {"res28", 8, 28, 128, 128, 3, 1, 1, true},       {"res14", 8, 14, 256, 256, 3, 1, 1, true},
    {"res7", 8, 7, 512, 512, 3, 1, 1, true},         {"res28s2", 8, 56, 128, 128, 3, 2, 1, true},
    {"one56", 8, 56, 64, 256, 1, 1, 1, true},        {"one28s2", 8, 56, 256, 128, 1, 2, 1, true},
    {"five14", 32, 14, 32, 64, 5, 1, 1, true},       {"depth56", 8, 56, 128, 128, 3, 1, 128, true},
    {"depth28s2", 8, 56, 128, 128, 3, 2, 128, true}, {"group28", 8, 28, 128, 128, 3, 1, 4, true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0], N_DIRS = 3, MAX_ROUNDS = 99 };

struct timing {
    struct wf_conv *plan;
    float *a, *b, *out;
    void *scratch;
    double flop;
    int64_t reps;
    double ms[MAX_ROUNDS], fraction[MAX_ROUNDS];
};

static weft_ctx *ctx;
static struct wf_arena arena;
static const struct wf_gemm_fns *fns;
static weft_simd level;
static struct timing timings[N_SHAPES][N_DIRS];

static struct wf_conv_geom geom_of(const struct shape *s)
{
    int64_t out = s->same ? (s->in + s->stride - 1) / s->stride : (s->in - s->k) / s->stride + 1;
    int64_t pad = s->same ? wf_max_i64((out - 1) * s->stride + s->k - s->in, 0) : 0;
    struct wf_conv_geom g = {
        .batch = s->batch, .c_in = s->c_in, .c_out = s->c_out, .groups = s->groups};

    g.w.n = 2;
    for (int a = 0; a < 3; a++) {
        g.w.in[a] = a ? s->in : 1;
        g.w.out[a] = a ? out : 1;
        g.w.k[a] = a ? s->k : 1;
        g.w.stride[a] = a ? s->stride : 1;
        g.w.dilation[a] = 1;
        g.w.lo[a] = a ? pad / 2 : 0;
    }
    return g;
}

static float *filled(int64_t n)
{
    float *p = wf_alloc_n(ctx, n + 16, sizeof *p);
    uint32_t x = 12345;

    for (int64_t i = 0; p && i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (float)(x >> 8) / (float)(1 << 24) - 0.5f;
    }
    return p;
}

static bool set_up(struct timing *t, const struct shape *s, int dir, int algo, int n_threads)
{
    struct wf_conv_desc d = {
        .geom = geom_of(s), .dir = (enum wf_conv_dir)dir, .algo = (enum wf_conv_algo)algo};
    int64_t n_x = s->batch * s->in * s->in * s->c_in;
    int64_t n_y = s->batch * d.geom.w.out[1] * d.geom.w.out[2] * s->c_out;
    int64_t n_w = s->k * s->k * (s->c_in / s->groups) * s->c_out;
    size_t bytes;

    if (wf_conv_plan(&d, level, n_threads, &arena, &t->plan, &bytes))
        return false;
    t->a = filled(dir == WF_CONV_GRAD_INPUT ? n_y : n_x);
    t->b = filled(dir == WF_CONV_GRAD_FILTER ? n_y : n_w);
    t->out = filled(dir == WF_CONV_FORWARD ? n_y : dir == WF_CONV_GRAD_INPUT ? n_x : n_w);
    t->scratch = wf_alloc(ctx, bytes + 64);
    t->flop = 2.0 * (double)n_y * (double)(s->k * s->k * s->c_in / s->groups);
    t->reps = 1 + (int64_t)(1e9 / (t->flop + 2e7));
    return t->a && t->b && t->out && t->scratch;
}

static void time_round(struct timing *t, int round)
{
    double start, top;

    wf_conv_run(t->plan, ctx->pool, t->a, t->b, t->out, t->scratch); /* warm */
    top = peak(ctx, fns);
    start = seconds(ctx);
    for (int64_t r = 0; r < t->reps; r++)
        wf_conv_run(t->plan, ctx->pool, t->a, t->b, t->out, t->scratch);
    start = (seconds(ctx) - start) / (double)t->reps;
    t->ms[round] = start * 1e3;
    t->fraction[round] = t->flop / start / 1e9 / top;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_line(struct timing *t, const struct shape *s, int dir, int n_threads,
                       int n_rounds)
{
    static const char *const dirs[] = {"forward", "grad_input", "grad_filter"};
    double ms;

    qsort(t->ms, (size_t)n_rounds, sizeof t->ms[0], by_value);
    qsort(t->fraction, (size_t)n_rounds, sizeof t->fraction[0], by_value);
    ms = t->ms[n_rounds / 2];
    printf("{\"bench\":\"conv\",\"simd\":\"%s\",\"threads\":%d,\"shape\":\"%s\",\"dir\":\"%s\","
           "\"algo\":\"%s\","
           "\"ms\":%.3f,\"best_ms\":%.3f,\"gflops\":%.1f,\"peak_fraction\":%.3f}\n",
           fns->name, n_threads, s->name, dirs[dir], wf_conv_algo_name(t->plan), ms, t->ms[0],
           t->flop / ms / 1e6, t->fraction[n_rounds / 2]);
}

static int algo_named(const char *name)
{
    static const char *const names[] = {"auto",      "product", "winograd",
                                        "depthwise", "few",     "general"};

    for (int i = 0; i < WF_COUNT(names); i++)
        if (!strcmp(name, names[i]))
            return i;
    return WF_CONV_AUTO;
}

int main(int argc, char **argv)
{
    int n_threads = 2, n_rounds = 9, algo = WF_CONV_AUTO;
    const char *only = NULL;

    level = weft_simd_best();
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads"))
            n_threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            n_rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
        else if (!strcmp(argv[i], "--algo"))
            algo = algo_named(argv[i + 1]);
        else if (!strcmp(argv[i], "--simd"))
            for (int l = WEFT_SIMD_PORTABLE; l <= (int)weft_simd_best(); l++)
                if (!strcmp(argv[i + 1], weft_simd_name((weft_simd)l)))
                    level = (weft_simd)l;
    }
    n_rounds = n_rounds < 1 ? 1 : n_rounds > MAX_ROUNDS ? MAX_ROUNDS : n_rounds;
    fns = wf_gemm_fns_of(level);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = n_threads), &ctx)) {
        fprintf(stderr, "%s\n", weft_error());
        return 1;
    }
    wf_arena_init(&arena, ctx);
    for (int i = 0; i < N_SHAPES; i++)
        for (int dir = 0; dir < N_DIRS; dir++)
            if ((only && strcmp(only, shapes[i].name)) ||
                !set_up(&timings[i][dir], &shapes[i], dir, algo, n_threads))
                timings[i][dir].plan = NULL;
    for (int round = 0; round < n_rounds; round++)
        for (int i = 0; i < N_SHAPES; i++)
            for (int dir = 0; dir < N_DIRS; dir++)
                if (timings[i][dir].plan)
                    time_round(&timings[i][dir], round);
    for (int i = 0; i < N_SHAPES; i++)
        for (int dir = 0; dir < N_DIRS; dir++) {
            struct timing *t = &timings[i][dir];

            if (t->plan)
                print_line(t, &shapes[i], dir, n_threads, n_rounds);
            wf_free(ctx, t->a);
            wf_free(ctx, t->b);
            wf_free(ctx, t->out);
            wf_free(ctx, t->scratch);
        }
    wf_arena_free(&arena);
    weft_ctx_free(ctx);
    return 0;
}
