/* onednn.c - our matrix products next to oneDNN's (dnnl_sgemm of version 2.x or 3.x).
 *
 * One JSON line per shape: microseconds of our product and of oneDNN's, and the ratio of ours to
 * theirs. Rounds alternate between the two and over all shapes; each round repeats a product for a
 * few milliseconds. Both run on one thread, in processor time of the process, which other work on
 * the machine disturbs less than the clock on the wall. Medians; of the ratios, which are taken
 * within a round, the lower quartile too. Built where CMake finds oneDNN; the library does not use
 * it.
 *   OMP_NUM_THREADS=1 bench/onednn [--rounds N] [--only M,N,K,ops] */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/gemm.h"

struct product {
    const char *where; /* the workload, or grid */
    int64_t m, n, k, batch;
    const char *ops; /* n or t for A and B */
};

/* The products of the workloads, forward and both gradients, then a grid. */
static const struct product products[] = {
    {"softmax64", 1024, 10, 64, 1, "nn"},  {"softmax64", 64, 10, 1024, 1, "tn"},
    {"mlp-s", 128, 128, 784, 1, "nn"},     {"mlp-s", 784, 128, 128, 1, "tn"},
    {"mlp-s", 128, 10, 128, 1, "nn"},      {"mlp-s", 128, 128, 10, 1, "nt"},
    {"mlp-s", 128, 10, 128, 1, "tn"},      {"mlp-l", 256, 1024, 784, 1, "nn"},
    {"mlp-l", 784, 1024, 256, 1, "tn"},    {"mlp-l", 256, 1024, 1024, 1, "nn"},
    {"mlp-l", 256, 1024, 1024, 1, "nt"},   {"mlp-l", 1024, 1024, 256, 1, "tn"},
    {"mlp-l", 256, 10, 1024, 1, "nn"},     {"mlp-l", 256, 1024, 10, 1, "nt"},
    {"mlp-l", 1024, 10, 256, 1, "tn"},     {"cnn", 64, 128, 9216, 1, "nn"},
    {"cnn", 9216, 128, 64, 1, "tn"},       {"cnn", 64, 9216, 128, 1, "nt"},
    {"cnn", 64, 10, 128, 1, "nn"},         {"cnn", 64, 128, 10, 1, "nt"},
    {"cnn", 128, 10, 64, 1, "tn"},         {"lstm", 1792, 512, 28, 1, "nn"},
    {"lstm", 28, 512, 1792, 1, "tn"},      {"lstm", 128, 512, 1792, 1, "tn"},
    {"widedeep", 2048, 512, 429, 1, "nn"}, {"widedeep", 429, 512, 2048, 1, "tn"},
    {"widedeep", 2048, 429, 512, 1, "nt"}, {"widedeep", 2048, 256, 512, 1, "nn"},
    {"widedeep", 512, 256, 2048, 1, "tn"}, {"widedeep", 2048, 512, 256, 1, "nt"},
    {"widedeep", 2048, 1, 256, 1, "nn"},   {"widedeep", 256, 1, 2048, 1, "tn"},
    {"widedeep", 2048, 256, 1, 1, "nt"},   {"gpt-s", 1024, 768, 256, 1, "nn"},
    {"gpt-s", 256, 768, 1024, 1, "tn"},    {"gpt-s", 1024, 256, 768, 1, "nt"},
    {"gpt-s", 1024, 256, 256, 1, "nn"},    {"gpt-s", 256, 256, 1024, 1, "tn"},
    {"gpt-s", 1024, 256, 256, 1, "nt"},    {"gpt-s", 1024, 1024, 256, 1, "nn"},
    {"gpt-s", 256, 1024, 1024, 1, "tn"},   {"gpt-s", 1024, 256, 1024, 1, "nn"},
    {"gpt-s", 1024, 256, 1024, 1, "tn"},   {"gpt-s", 1024, 1024, 256, 1, "nt"},
    {"gpt-s", 1024, 256, 1024, 1, "nt"},   {"gpt-s", 128, 128, 64, 32, "nt"},
    {"gpt-s", 128, 64, 128, 32, "nn"},     {"gpt-s", 128, 64, 128, 32, "tn"},
    {"grid", 32, 32, 32, 1, "nn"},         {"grid", 32, 256, 256, 1, "nn"},
    {"grid", 1, 1024, 1024, 1, "nn"},      {"grid", 16, 1024, 1024, 1, "nn"},
    {"grid", 64, 512, 512, 1, "nn"},       {"grid", 64, 512, 512, 1, "nt"},
    {"grid", 64, 512, 512, 1, "tn"},       {"grid", 64, 512, 512, 1, "tt"},
    {"grid", 512, 512, 512, 1, "nn"},      {"grid", 512, 512, 512, 1, "nt"},
    {"grid", 512, 512, 512, 1, "tn"},      {"grid", 512, 512, 512, 1, "tt"},
    {"grid", 100, 100, 100, 1, "nn"},      {"grid", 300, 300, 300, 1, "nt"},
    {"grid", 2048, 2048, 512, 1, "nn"},
};
enum { N_PRODUCTS = sizeof products / sizeof products[0], MAX_ROUNDS = 99 };

struct timing {
    struct wf_gemm ours;
    float *a, *b, *c, *scratch;
    int64_t reps;
    double our_us[MAX_ROUNDS], their_us[MAX_ROUNDS], ratio[MAX_ROUNDS];
};

static weft_ctx *ctx;
static struct timing timings[N_PRODUCTS];

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static struct wf_gemm_desc describe(const struct product *p)
{
    bool ta = p->ops[0] == 't', tb = p->ops[1] == 't';

    return (struct wf_gemm_desc){.m = p->m,
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
}

/* False, with the error printed, when something is missing. */
static bool set_up(struct timing *t, const struct product *p)
{
    struct wf_gemm_desc d = describe(p);
    size_t bytes;

    wf_gemm_plan(&t->ours, &d, wf_gemm_fns_of(ctx->simd), 1, &bytes);
    t->a = wf_alloc_n(ctx, p->batch * p->m * p->k, sizeof(float));
    t->b = wf_alloc_n(ctx, p->batch * p->k * p->n, sizeof(float));
    t->c = wf_alloc_n(ctx, p->batch * p->m * p->n, sizeof(float));
    t->scratch = wf_alloc(ctx, bytes + 64);
    if (!t->a || !t->b || !t->c || !t->scratch) {
        fprintf(stderr, "onednn: out of memory\n");
        return false;
    }
    for (int64_t i = 0; i < p->batch * p->m * p->k; i++)
        t->a[i] = (float)(i % 7) * 0.25f - 0.75f;
    for (int64_t i = 0; i < p->batch * p->k * p->n; i++)
        t->b[i] = (float)(i % 5) * 0.5f - 1.0f;
    t->reps = 1 + (int64_t)(3e8 / (2.0 * (double)(p->m * p->n * p->k * p->batch) + 1e6));
    return true;
}

static void run_theirs(const struct timing *t)
{
    const struct wf_gemm_desc *d = &t->ours.d;

    for (int64_t i = 0; i < d->batch; i++)
        dnnl_sgemm(d->trans_a ? 'T' : 'N', d->trans_b ? 'T' : 'N', d->m, d->n, d->k, 1,
                   t->a + i * d->stride_a, d->lda, t->b + i * d->stride_b, d->ldb, 0,
                   t->c + i * d->stride_c, d->ldc);
}

static double time_one(struct timing *t, bool ours)
{
    double start = 0;

    for (int64_t r = -1; r < t->reps; r++) { /* the first warms up */
        if (r == 0)
            start = now_us();
        if (ours)
            wf_gemm_run(&t->ours, ctx->pool, t->a, t->b, t->c, NULL, t->scratch);
        else
            run_theirs(t);
    }
    return (now_us() - start) / (double)t->reps;
}

/* Who goes first changes from round to round. */
static void time_round(struct timing *t, int round)
{
    for (int i = 0; i < 2; i++) {
        bool ours = (round + i) % 2 == 0;

        *(ours ? &t->our_us[round] : &t->their_us[round]) = time_one(t, ours);
    }
    t->ratio[round] = t->our_us[round] / t->their_us[round];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double quantile(double *x, int n, int quarter)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n * quarter / 4];
}

static void print_line(struct timing *t, const struct product *p, int n)
{
    const dnnl_version_t *v = dnnl_version();

    printf("{\"bench\":\"onednn\",\"simd\":\"%s\",\"m\":%" PRId64 ",\"n\":%" PRId64
           ",\"k\":%" PRId64 ",\"batch\":%" PRId64 ",\"ops\":\"%s\",\"where\":\"%s\","
           "\"gemm_us\":%.2f,\"onednn_us\":%.2f,\"ratio\":%.3f,\"ratio_low\":%.3f,"
           "\"version\":\"%d.%d.%d\",\"rounds\":%d}\n",
           weft_simd_name(ctx->simd), p->m, p->n, p->k, p->batch, p->ops, p->where,
           quantile(t->our_us, n, 2), quantile(t->their_us, n, 2), quantile(t->ratio, n, 2),
           quantile(t->ratio, n, 1), v->major, v->minor, v->patch, n);
    fflush(stdout);
}

static bool wanted(const struct product *p, const char *only)
{
    char name[96];

    snprintf(name, sizeof name, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s", p->m, p->n, p->k, p->ops);
    return !only || strstr(name, only);
}

static void run_all(int n_rounds)
{
    for (int r = 0; r < n_rounds; r++)
        for (int i = 0; i < N_PRODUCTS; i++)
            if (timings[i].scratch)
                time_round(&timings[i], r);
    for (int i = 0; i < N_PRODUCTS; i++)
        if (timings[i].scratch)
            print_line(&timings[i], &products[i], n_rounds);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    int n_rounds = 15;
    bool ok = true;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds"))
            n_rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
    }
    n_rounds = n_rounds < 1 ? 1 : n_rounds > MAX_ROUNDS ? MAX_ROUNDS : n_rounds;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx)) {
        fprintf(stderr, "%s\n", weft_error());
        return 1;
    }
    for (int i = 0; i < N_PRODUCTS && ok; i++)
        if (wanted(&products[i], only))
            ok = set_up(&timings[i], &products[i]);
    if (ok)
        run_all(n_rounds);
    for (int i = 0; i < N_PRODUCTS; i++) {
        wf_free(ctx, timings[i].a);
        wf_free(ctx, timings[i].b);
        wf_free(ctx, timings[i].c);
        wf_free(ctx, timings[i].scratch);
    }
    weft_ctx_free(ctx);
    return ok ? 0 : 1;
}
