/* attention.c - how fast is attention, compared with a large matrix product in the same run? One
 * JSON line a case: name, threads, level, median time in microseconds forward and backward, GFLOP/s
 * of the products that the mask leaves (backward: five of them), and the fraction of the large
 * product's rate. Usage: attention [threads] [level]. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/attention.h"

enum { BLOCKS = 15 };

static weft_ctx *ctx;

static double now_us(void)
{
    return (double)wf_now(ctx) * 1e-3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *t)
{
    qsort(t, BLOCKS, sizeof *t, by_size);
    return t[BLOCKS / 2];
}

static void *memory(size_t bytes)
{
    void *p = wf_alloc(ctx, bytes + 64);

    if (!p) {
        fprintf(stderr, "attention: out of memory\n");
        exit(1);
    }
    return p;
}

static float *floats(int64_t n)
{
    float *x = memory((size_t)n * sizeof *x);
    uint32_t s = 12345;

    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) * 0x1p-24f - .5f;
    }
    return x;
}

/* The time of one call, from a block of calls that takes a few milliseconds. */
static double time_call(void (*call)(void *), void *arg)
{
    static const double enough = 3000;
    double start = now_us(), spent;
    int n = 0;

    do {
        call(arg);
        n++;
        spent = now_us() - start;
    } while (spent < enough);
    return spent / n;
}

/* ---- the yardstick --------------------------------------------------------------------------- */

struct product {
    struct wf_gemm g;
    float *a, *b, *c;
    void *scratch;
};

static void call_product(void *arg)
{
    struct product *p = arg;

    wf_gemm_run(&p->g, ctx->pool, p->a, p->b, p->c, NULL, p->scratch);
}

static void make_product(struct product *p)
{
    enum { M = 512, N = 512, K = 512 };
    struct wf_gemm_desc d = {.m = M, .n = N, .k = K, .batch = 1, .lda = K, .ldb = N, .ldc = N};
    size_t bytes;

    wf_gemm_plan(&p->g, &d, wf_gemm_fns_of(ctx->simd), weft_ctx_threads(ctx), &bytes);
    p->a = floats(M * K);
    p->b = floats(K * N);
    p->c = floats(M * N);
    p->scratch = memory(bytes);
}

static double product_flop(const struct product *p)
{
    return 2.0 * (double)p->g.d.m * (double)p->g.d.n * (double)p->g.d.k;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct task {
    struct wf_attention forward, backward;
    float *qkv, *dqkv, *y, *dy, *lse;
    void *scratch;
    int64_t part; /* from q to k and from k to v */
};

static void call_forward(void *arg)
{
    struct task *t = arg;

    wf_attention_run(&t->forward, ctx->pool, t->qkv, t->qkv + t->part, t->qkv + 2 * t->part, NULL,
                     t->y, t->lse, t->scratch);
}

static void call_backward(void *arg)
{
    struct task *t = arg;
    struct wf_attention_grad g = {
        t->dy,  t->qkv, t->qkv + t->part, t->qkv + 2 * t->part, t->y,
        t->lse, NULL,   t->dqkv,          t->dqkv + t->part,    t->dqkv + 2 * t->part};

    wf_attention_grad_run(&t->backward, ctx->pool, &g, t->scratch);
}

/* Pairs of query and key that count. */
static double pairs(const struct wf_attention_desc *d)
{
    double t = (double)d->n_q;

    return (double)(d->n_b * d->n_h) * (d->causal ? t * (t + 1) / 2 : t * t);
}

static void bench(struct product *p, int64_t b, int64_t h, int64_t t, int64_t d, bool causal)
{
    struct wf_attention_strides packed = {t * 3 * h * d, d, 3 * h * d},
                                plain = {t * h * d, d, h * d};
    struct wf_attention_desc desc = {.n_b = b,
                                     .n_h = h,
                                     .n_q = t,
                                     .n_k = t,
                                     .d = d,
                                     .dv = d,
                                     .q = packed,
                                     .k = packed,
                                     .v = packed,
                                     .y = plain,
                                     .causal = causal,
                                     .scale = 0.125f};
    struct task task = {.part = h * d};
    size_t forward_bytes, backward_bytes;
    double tp[BLOCKS], tf[BLOCKS], tb[BLOCKS], rate, flop = 2 * pairs(&desc) * (double)d;

    wf_attention_plan(&task.forward, &desc, ctx->simd, false, weft_ctx_threads(ctx),
                      &forward_bytes);
    wf_attention_plan(&task.backward, &desc, ctx->simd, true, weft_ctx_threads(ctx),
                      &backward_bytes);
    task.scratch = memory(forward_bytes > backward_bytes ? forward_bytes : backward_bytes);
    task.qkv = floats(3 * b * t * h * d);
    task.dqkv = floats(3 * b * t * h * d);
    task.y = floats(b * t * h * d);
    task.dy = floats(b * t * h * d);
    task.lse = floats(b * h * t);
    for (int i = 0; i < BLOCKS; i++) {
        tp[i] = time_call(call_product, p);
        tf[i] = time_call(call_forward, &task);
        tb[i] = time_call(call_backward, &task);
    }
    rate = product_flop(p) / median(tp);
    printf(
        "{\"bench\": \"attention b%lld h%lld t%lld d%lld%s\", \"threads\": %d, \"level\": \"%s\", "
        "\"us_forward\": %.1f, \"us_backward\": %.1f, \"gflop_s_forward\": %.1f, "
        "\"gflop_s_backward\": %.1f, "
        "\"gflop_s_product\": %.1f, \"of_product_forward\": %.2f, \"of_product_backward\": %.2f}\n",
        (long long)b, (long long)h, (long long)t, (long long)d, causal ? " causal" : "",
        weft_ctx_threads(ctx), weft_simd_name(ctx->simd), median(tf), median(tb),
        2 * flop / median(tf) * 1e-3, 5 * flop / median(tb) * 1e-3, rate * 1e-3,
        2 * flop / median(tf) / rate, 5 * flop / median(tb) / rate);
    fflush(stdout);
    wf_free(ctx, task.scratch);
    wf_free(ctx, task.qkv);
    wf_free(ctx, task.dqkv);
    wf_free(ctx, task.y);
    wf_free(ctx, task.dy);
    wf_free(ctx, task.lse);
}

int main(int argc, char **argv)
{
    weft_simd level = WEFT_SIMD_AUTO;
    struct product p;

    for (int l = WEFT_SIMD_PORTABLE; argc > 2 && l <= WEFT_SIMD_AVX512BF16; l++)
        if (!strcmp(argv[2], weft_simd_name((weft_simd)l)))
            level = (weft_simd)l;
    if (weft_ctx_new(
            WEFT_OPTS(weft_ctx_opts, .threads = argc > 1 ? atoi(argv[1]) : 0, .simd = level),
            &ctx)) {
        fprintf(stderr, "attention: %s\n", weft_error());
        return 1;
    }
    make_product(&p);
    bench(&p, 8, 4, 128, 64, true);
    bench(&p, 8, 4, 128, 64, false);
    bench(&p, 1, 4, 1024, 64, true);
    bench(&p, 4, 8, 512, 32, false);
    wf_free(ctx, p.a);
    wf_free(ctx, p.b);
    wf_free(ctx, p.c);
    wf_free(ctx, p.scratch);
    weft_ctx_free(ctx);
    return 0;
}
