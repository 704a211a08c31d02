/* gemm.c - how near do matrix products come to the multiply-add peak?
 *
 * One JSON line per shape: GFLOP/s, and the fraction of a loop of multiply-adds in registers
 * that was timed just before it on the same threads. Rounds alternate over all shapes; the line
 * gives medians, and the best round of the one over the best round of the other, which other
 * work on the machine disturbs less.
 *   bench/gemm [--threads N] [--rounds N] [--simd portable|avx2|avx512] [--only M,N,K,ops] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peak.h"

struct product {
    int64_t m, n, k, batch;
    const char *ops; /* n or t for A and B */
};

static const struct product products[] = {
    {128, 128, 784, 1, "nn"},    {784, 128, 128, 1, "tn"},   {128, 10, 128, 1, "nn"},
    {128, 128, 10, 1, "nt"},     {128, 10, 128, 1, "tn"},    {256, 1024, 784, 1, "nn"},
    {784, 1024, 256, 1, "tn"},   {256, 1024, 1024, 1, "nn"}, {256, 1024, 1024, 1, "nt"},
    {1024, 1024, 256, 1, "tn"},  {256, 10, 1024, 1, "nn"},   {256, 1024, 10, 1, "nt"},
    {1024, 10, 256, 1, "tn"},    {1024, 10, 64, 1, "nn"},    {64, 10, 1024, 1, "tn"},
    {2048, 512, 429, 1, "nn"},   {429, 512, 2048, 1, "tn"},  {2048, 429, 512, 1, "nt"},
    {2048, 256, 512, 1, "nn"},   {512, 256, 2048, 1, "tn"},  {2048, 512, 256, 1, "nt"},
    {2048, 1, 256, 1, "nn"},     {256, 1, 2048, 1, "tn"},    {2048, 256, 1, 1, "nt"},
    {1024, 768, 256, 1, "nn"},   {256, 768, 1024, 1, "tn"},  {1024, 256, 768, 1, "nt"},
    {1024, 256, 256, 1, "nn"},   {256, 256, 1024, 1, "tn"},  {1024, 256, 256, 1, "nt"},
    {1024, 1024, 256, 1, "nn"},  {256, 1024, 1024, 1, "tn"}, {1024, 256, 1024, 1, "nn"},
    {1024, 256, 1024, 1, "tn"},  {1024, 1024, 256, 1, "nt"}, {1024, 256, 1024, 1, "nt"},
    {64, 128, 9216, 1, "nn"},    {9216, 128, 64, 1, "tn"},   {64, 9216, 128, 1, "nt"},
    {1792, 512, 28, 1, "nn"},    {28, 512, 1792, 1, "tn"},   {128, 512, 1792, 1, "tn"},
    {128, 128, 64, 32, "nt"},    {128, 64, 128, 32, "nn"},   {128, 64, 128, 32, "tn"},
    {2048, 2048, 2048, 1, "nn"},
};
enum { N_PRODUCTS = sizeof products / sizeof products[0], MAX_ROUNDS = 99 };

struct timing {
    struct wf_gemm plan;
    float *a, *b, *c, *scratch;
    int64_t reps;
    double gflops[MAX_ROUNDS], peak[MAX_ROUNDS], fraction[MAX_ROUNDS];
};

static weft_ctx *ctx;
static const struct wf_gemm_fns *fns;

static double flop_of(const struct product *p)
{
    return 2.0 * (double)(p->m * p->n * p->k * p->batch);
}

static bool set_up(struct timing *t, const struct product *p, int n_threads)
{
    bool ta = p->ops[0] == 't', tb = p->ops[1] == 't';
    struct wf_gemm_desc d = {.m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .batch = p->batch,
                             .trans_a = ta,
                             .trans_b = tb,
                             .lda = ta ? p->m : p->k,
                             .ldb = tb ? p->k : p->n,
                             .ldc = p->n,
                             .stride_a = p->m * p->k,
                             .stride_b = p->k * p->n,
                             .stride_c = p->m * p->n};
    size_t bytes;

    wf_gemm_plan(&t->plan, &d, fns, n_threads, &bytes);
    t->a = wf_alloc_n(ctx, p->batch * p->m * p->k, sizeof(float));
    t->b = wf_alloc_n(ctx, p->batch * p->k * p->n, sizeof(float));
    t->c = wf_alloc_n(ctx, p->batch * p->m * p->n, sizeof(float));
    t->scratch = wf_alloc(ctx, bytes + 64);
    if (!t->a || !t->b || !t->c || !t->scratch)
        return false;
    for (int64_t i = 0; i < p->batch * p->m * p->k; i++)
        t->a[i] = (float)(i % 7) * 0.25f - 0.75f;
    for (int64_t i = 0; i < p->batch * p->k * p->n; i++)
        t->b[i] = (float)(i % 5) * 0.5f - 1.0f;
    t->reps = 1 + (int64_t)(3e8 / (flop_of(p) + 1e6));
    return true;
}

static void clean_up(struct timing *t)
{
    wf_free(ctx, t->a);
    wf_free(ctx, t->b);
    wf_free(ctx, t->c);
    wf_free(ctx, t->scratch);
}

static void time_round(struct timing *t, const struct product *p, int round)
{
    double start;

    wf_gemm_run(&t->plan, ctx->pool, t->a, t->b, t->c, NULL, t->scratch); /* warm */
    t->peak[round] = peak(ctx, fns);
    start = seconds(ctx);
    for (int64_t r = 0; r < t->reps; r++)
        wf_gemm_run(&t->plan, ctx->pool, t->a, t->b, t->c, NULL, t->scratch);
    start = seconds(ctx) - start;
    t->gflops[round] = flop_of(p) * (double)t->reps / start / 1e9;
    t->fraction[round] = t->gflops[round] / t->peak[round];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void print_line(struct timing *t, const struct product *p, int n_threads, int n_rounds)
{
    const struct wf_gemm *g = &t->plan;
    double gflops = median(t->gflops, n_rounds), fraction = median(t->fraction, n_rounds), best;

    median(t->peak, n_rounds);
    best = t->gflops[n_rounds - 1] / t->peak[n_rounds - 1];

    printf("{\"bench\":\"gemm\",\"simd\":\"%s\",\"threads\":%d,\"m\":%" PRId64 ",\"n\":%" PRId64
           ",\"k\":%" PRId64 ",\"batch\":%" PRId64
           ",\"ops\":\"%s\",\"gflops\":%.1f,\"peak_fraction\":%.3f,"
           "\"best_fraction\":%.3f,\"us\":%.2f,\"tile\":[%" PRId64 ",%" PRId64 ",%" PRId64
           "],\"chunks\":%" PRId64 ",\"read_a\":%d,\"read_b\":%d}\n",
           fns->name, n_threads, p->m, p->n, p->k, p->batch, p->ops, gflops, fraction, best,
           flop_of(p) / gflops / 1e3, g->tile_m, g->tile_n, g->kc, g->n_chunks, g->read_a,
           g->read_b);
    fflush(stdout);
}

static bool wanted(const struct product *p, const char *only)
{
    char name[96];

    snprintf(name, sizeof name, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s", p->m, p->n, p->k, p->ops);
    return !only || strstr(name, only);
}

static weft_simd level_named(const char *name)
{
    for (int l = WEFT_SIMD_PORTABLE; l <= WEFT_SIMD_AVX512BF16; l++)
        if (name && !strcmp(name, weft_simd_name((weft_simd)l)))
            return (weft_simd)l;
    return weft_simd_best();
}

static struct timing timings[N_PRODUCTS];

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
    fns = wf_gemm_fns_of(level_named(simd));
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = n_threads), &ctx)) {
        fprintf(stderr, "%s\n", weft_error());
        return 1;
    }
    for (int i = 0; i < N_PRODUCTS; i++)
        if (wanted(&products[i], only) && !set_up(&timings[i], &products[i], n_threads)) {
            fprintf(stderr, "out of memory\n");
            return 1;
        }
    for (int r = 0; r < n_rounds; r++)
        for (int i = 0; i < N_PRODUCTS; i++)
            if (timings[i].a)
                time_round(&timings[i], &products[i], r);
    for (int i = 0; i < N_PRODUCTS; i++) {
        if (timings[i].a)
            print_line(&timings[i], &products[i], n_threads, n_rounds);
        clean_up(&timings[i]);
    }
    weft_ctx_free(ctx);
    return 0;
}
