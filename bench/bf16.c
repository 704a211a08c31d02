/* bf16.c - how much faster than f32 are products of bf16, by the CPU's own instruction and widened?
 *
 * One JSON line per shape: GFLOP/s of f32, of bf16 widened to f32 (the level avx512), of bf16
 * multiplied by the CPU (the level avx512bf16), and how many times as fast as the first two the
 * last is. C is f32. Rounds alternate over the three; ratios are medians of those of the rounds.
 *   bench/bf16 [--threads N] [--rounds N] [--only M,N,K,ops] */
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
    {256, 256, 256, 1, "nn"},    {512, 512, 512, 1, "nn"},    {1024, 1024, 1024, 1, "nn"},
    {1024, 1024, 1024, 1, "nt"}, {1024, 1024, 1024, 1, "tn"}, {2048, 2048, 2048, 1, "nn"},
    {128, 128, 784, 1, "nn"},    {784, 128, 128, 1, "tn"},    {128, 10, 128, 1, "nn"},
    {256, 1024, 1024, 1, "nn"},  {256, 1024, 1024, 1, "nt"},  {1024, 1024, 256, 1, "tn"},
    {256, 10, 1024, 1, "nn"},    {256, 1024, 10, 1, "nt"},    {1024, 10, 256, 1, "tn"},
    {1024, 256, 256, 1, "nn"},   {1024, 1024, 256, 1, "nn"},  {256, 1024, 1024, 1, "tn"},
    {1024, 256, 1024, 1, "nt"},  {1, 1024, 1024, 1, "nn"},    {8, 1024, 1024, 1, "nn"},
    {1024, 1024, 1, 1, "nn"},    {1024, 1024, 3, 1, "nn"},    {511, 513, 515, 1, "nn"},
    {128, 128, 64, 32, "nt"},    {128, 64, 128, 32, "nn"},    {128, 64, 128, 32, "tn"},
};
enum { N_PRODUCTS = sizeof products / sizeof products[0], MAX_ROUNDS = 99 };
enum { F32, WIDENED, NATIVE, N_WAYS };

struct timing {
    struct wf_gemm plan[N_WAYS];
    void *a[2], *b[2]; /* as f32, as bf16 */
    float *c, *scratch;
    int64_t reps;
    double gflops[N_WAYS][MAX_ROUNDS], ratio[N_WAYS][MAX_ROUNDS];
};

static weft_ctx *ctx;

static double flop_of(const struct product *p)
{
    return 2.0 * (double)(p->m * p->n * p->k * p->batch);
}

/* Small integers and halves: exact in both types. */
static bool fill(void **as_f32, void **as_bf16, int64_t n, int64_t period)
{
    float *x = wf_alloc_n(ctx, n, sizeof *x);
    uint16_t *y = wf_alloc_n(ctx, n, sizeof *y);

    *as_f32 = x;
    *as_bf16 = y;
    if (!x || !y)
        return false;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        x[i] = (float)(i % period) * 0.5f - 1.0f;
        memcpy(&bits, &x[i], sizeof bits);
        y[i] = (uint16_t)(bits >> 16);
    }
    return true;
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
    size_t bytes, most = 0;

    for (int w = 0; w < N_WAYS; w++) {
        d.type_a = d.type_b = w == F32 ? WF_GEMM_F32 : WF_GEMM_BF16;
        wf_gemm_plan(&t->plan[w], &d,
                     wf_gemm_fns_of(w == NATIVE ? WEFT_SIMD_AVX512BF16 : WEFT_SIMD_AVX512),
                     n_threads, &bytes);
        most = bytes > most ? bytes : most;
    }
    t->c = wf_alloc_n(ctx, p->batch * p->m * p->n, sizeof(float));
    t->scratch = wf_alloc(ctx, most + 64);
    t->reps = 1 + (int64_t)(2e8 / (flop_of(p) + 1e6));
    return fill(&t->a[0], &t->a[1], p->batch * p->m * p->k, 7) &&
           fill(&t->b[0], &t->b[1], p->batch * p->k * p->n, 5) && t->c && t->scratch;
}

static void clean_up(struct timing *t)
{
    for (int i = 0; i < 2; i++) {
        wf_free(ctx, t->a[i]);
        wf_free(ctx, t->b[i]);
    }
    wf_free(ctx, t->c);
    wf_free(ctx, t->scratch);
}

static void time_round(struct timing *t, const struct product *p, int round)
{
    for (int w = 0; w < N_WAYS; w++) {
        const void *a = t->a[w != F32], *b = t->b[w != F32];
        double start;

        wf_gemm_run(&t->plan[w], ctx->pool, a, b, t->c, NULL, t->scratch); /* warm */
        start = seconds(ctx);
        for (int64_t r = 0; r < t->reps; r++)
            wf_gemm_run(&t->plan[w], ctx->pool, a, b, t->c, NULL, t->scratch);
        t->gflops[w][round] = flop_of(p) * (double)t->reps / (seconds(ctx) - start) / 1e9;
    }
    for (int w = 0; w < NATIVE; w++)
        t->ratio[w][round] = t->gflops[NATIVE][round] / t->gflops[w][round];
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
    const struct wf_gemm *g = &t->plan[NATIVE];
    double gflops[N_WAYS], best[N_WAYS];

    for (int w = 0; w < N_WAYS; w++) {
        gflops[w] = median(t->gflops[w], n_rounds);
        best[w] = t->gflops[w][n_rounds - 1];
    }
    printf("{\"bench\":\"bf16\",\"threads\":%d,\"m\":%" PRId64 ",\"n\":%" PRId64 ",\"k\":%" PRId64
           ",\"batch\":%" PRId64 ",\"ops\":\"%s\",\"f32\":%.1f,\"widened\":%.1f,\"native\":%.1f,"
           "\"over_f32\":%.2f,\"over_widened\":%.2f,\"best_over_f32\":%.2f,"
           "\"best_over_widened\":%.2f,\"tile\":[%" PRId64 ",%" PRId64 ",%" PRId64
           "],\"chunks\":%" PRId64 ",\"read_a\":%d,\"read_b\":%d}\n",
           n_threads, p->m, p->n, p->k, p->batch, p->ops, gflops[F32], gflops[WIDENED],
           gflops[NATIVE], median(t->ratio[F32], n_rounds), median(t->ratio[WIDENED], n_rounds),
           best[NATIVE] / best[F32], best[NATIVE] / best[WIDENED], g->tile_m, g->tile_n, g->kc,
           g->n_chunks, g->read_a, g->read_b);
    fflush(stdout);
}

static bool wanted(const struct product *p, const char *only)
{
    char name[96];

    snprintf(name, sizeof name, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s", p->m, p->n, p->k, p->ops);
    return !only || strstr(name, only);
}

static struct timing timings[N_PRODUCTS];

int main(int argc, char **argv)
{
    int n_threads = 2, n_rounds = 9;
    const char *only = NULL;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads"))
            n_threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            n_rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
    }
    n_rounds = n_rounds < 1 ? 1 : n_rounds > MAX_ROUNDS ? MAX_ROUNDS : n_rounds;
    if (weft_simd_best() < WEFT_SIMD_AVX512BF16) {
        fprintf(stderr, "this CPU does not multiply bf16\n");
        return 1;
    }
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
            if (timings[i].a[0])
                time_round(&timings[i], &products[i], r);
    for (int i = 0; i < N_PRODUCTS; i++) {
        if (timings[i].a[0])
            print_line(&timings[i], &products[i], n_threads, n_rounds);
        clean_up(&timings[i]);
    }
    weft_ctx_free(ctx);
    return 0;
}
