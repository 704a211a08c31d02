/* rows.c - how fast are optimizer updates, sparse rows, row-wise functions, reductions and data
 * movement? One JSON line a case: name, threads, level, best and median time in microseconds, GB/s
 * of the bytes that must move at least once. Usage: rows [threads] [name part]. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "kernels/cpu/move.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/optim.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/rowops.h"

enum { BLOCKS = 15 };

static weft_ctx *ctx;
static const char *only;

static double now_us(void)
{
    return (double)wf_now(ctx) * 1e-3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of BLOCKS blocks, each of as many calls as take about 4 ms. */
static void measure(const char *name, double bytes, void (*call)(void *), void *arg)
{
    double t[BLOCKS], start;
    int reps = 1;

    if (only && !strstr(name, only))
        return;
    for (;; reps *= 2) {
        start = now_us();
        for (int i = 0; i < reps; i++)
            call(arg);
        if (now_us() - start > 4000 || reps > 1 << 20)
            break;
    }
    for (int b = 0; b < BLOCKS; b++) {
        start = now_us();
        for (int i = 0; i < reps; i++)
            call(arg);
        t[b] = (now_us() - start) / reps;
    }
    qsort(t, BLOCKS, sizeof *t, by_size);
    printf("{\"bench\": \"%s\", \"threads\": %d, \"level\": \"%s\", \"us_best\": %.2f, \"us\": "
           "%.2f, \"gb_s\": %.1f}\n",
           name, weft_ctx_threads(ctx), weft_simd_name(ctx->simd), t[0], t[BLOCKS / 2],
           bytes / t[BLOCKS / 2] * 1e-3);
    fflush(stdout);
}

static float *floats(int64_t n)
{
    float *x = wf_alloc_n(ctx, n, sizeof *x);
    uint32_t s = 12345;

    for (int64_t i = 0; x && i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) * 0x1p-24f - .5f;
    }
    if (!x) {
        fprintf(stderr, "rows: out of memory\n");
        exit(1);
    }
    return x;
}

/* ---- optimizers -------------------------------------------------------------------------- */

struct optim {
    const struct wf_optim_fns *f;
    struct wf_optim_scalars k;
    int64_t n;
    float *w, *g, *slot[3];
};

static void call_update(void *arg)
{
    struct optim *o = arg;

    wf_optim_update(o->f, ctx->pool, &o->k, o->n, o->w, o->g, o->slot);
}

static void call_sumsq(void *arg)
{
    struct optim *o = arg;
    static double blocks[1024];

    wf_block_sumsq(o->f, ctx->pool, o->n, o->w, blocks);
}

static void bench_optim(const char *name, double momentum, int64_t n)
{
    const struct wf_optim_row *row = wf_optim_find(name);
    struct optim o = {.f = wf_optim_fns_at(ctx->simd), .n = n, .w = floats(n), .g = floats(n)};
    double attrs[WF_OPTIM_MAX_ATTRS];
    char text[64];
    int n_slots, at = wf_optim_attr_find(row, "momentum");

    wf_optim_defaults(row, attrs);
    if (at >= 0)
        attrs[at] = momentum;
    n_slots = wf_optim_slots(row, attrs, NULL, NULL);
    for (int s = 0; s < n_slots; s++) {
        o.slot[s] = floats(n);
        for (int64_t i = 0; i < n; i++)
            o.slot[s][i] += 1;
    }
    wf_optim_prepare(row, attrs, 1e-6, 10, 1, &o.k);
    snprintf(text, sizeof text, "%s%s %lldk", name, momentum > 0 ? "+momentum" : "",
             (long long)n / 1000);
    measure(text, (double)(n * 4 * (3 + 2 * n_slots)), call_update, &o);
    if (!strcmp(name, "adam")) {
        snprintf(text, sizeof text, "sumsq %lldk", (long long)n / 1000);
        measure(text, (double)(n * 4), call_sumsq, &o);
    }
    for (int s = 0; s < 3; s++)
        wf_free(ctx, o.slot[s]);
    wf_free(ctx, o.w);
    wf_free(ctx, o.g);
}

enum { TABLES = 26, TABLE_ROWS = 100000, WIDTH = 16, SAMPLES = 2048, STRIDE = 429 };

struct sparse {
    const struct wf_optim_fns *f;
    struct wf_optim_scalars k;
    struct wf_dedupe d[TABLES];
    struct wf_optim_table t[TABLES];
    int32_t *ids; /* [32, SAMPLES, TABLES]: another batch each call, so that rows come from
                   * memory */
    int batch;
};

static void call_dedupe(void *arg)
{
    struct sparse *s = arg;

    s->batch = (s->batch + 1) % 32;
    for (int t = 0; t < TABLES; t++)
        s->d[t].ids = s->ids + (int64_t)s->batch * SAMPLES * TABLES + t;
    if (wf_dedupe_run(ctx->pool, s->d, TABLES) >= 0)
        exit(1);
}

static void call_rows(void *arg)
{
    struct sparse *s = arg;

    call_dedupe(s);
    for (int t = 0; t < TABLES; t++)
        s->t[t].n = s->d[t].n_distinct;
    wf_optim_update_tables(s->f, ctx->pool, &s->k, s->t, TABLES);
}

static void bench_sparse(void)
{
    static struct sparse s;
    int64_t n = (int64_t)TABLES * TABLE_ROWS * WIDTH;
    float *w = floats(n), *slot = floats(n), *g = floats((int64_t)SAMPLES * STRIDE);
    uint64_t x = 1;
    double bytes = (double)TABLES * SAMPLES * (WIDTH * 4.0 * 5 + 4);

    s.f = wf_optim_fns_at(ctx->simd);
    s.k = (struct wf_optim_scalars){
        .form = WF_OPTIM_ADAGRAD, .grad_scale = 1, .lr = 1e-6f, .eps = 1e-7f};
    s.ids = wf_alloc_n(ctx, (int64_t)32 * SAMPLES * TABLES, sizeof *s.ids);
    for (int64_t i = 0; i < n; i++)
        slot[i] += 1;
    for (int64_t i = 0; i < (int64_t)32 * SAMPLES * TABLES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        s.ids[i] = (int32_t)((x >> 33) % TABLE_ROWS);
    }
    for (int t = 0; t < TABLES; t++) {
        s.d[t] = (struct wf_dedupe){.id_stride = TABLES,
                                    .n = SAMPLES,
                                    .n_rows = TABLE_ROWS,
                                    .scratch = wf_alloc(ctx, (size_t)wf_dedupe_scratch(SAMPLES)),
                                    .rows = wf_alloc_n(ctx, SAMPLES, 8),
                                    .first = wf_alloc_n(ctx, SAMPLES, 4),
                                    .next = wf_alloc_n(ctx, SAMPLES, 4)};
        s.t[t] = (struct wf_optim_table){.w = w + (int64_t)t * TABLE_ROWS * WIDTH,
                                         .slot = {slot + (int64_t)t * TABLE_ROWS * WIDTH},
                                         .width = WIDTH,
                                         .rows = s.d[t].rows,
                                         .g = g + 13 + t * WIDTH,
                                         .g_stride = STRIDE,
                                         .first = s.d[t].first,
                                         .next = s.d[t].next};
    }
    measure("dedupe 26x2048", (double)TABLES * SAMPLES * 4, call_dedupe, &s);
    measure("dedupe+adagrad 26x2048x16", bytes, call_rows, &s);
    for (int t = 0; t < TABLES; t++) {
        wf_free(ctx, s.d[t].scratch);
        wf_free(ctx, s.d[t].rows);
        wf_free(ctx, s.d[t].first);
        wf_free(ctx, s.d[t].next);
    }
    wf_free(ctx, s.ids);
    wf_free(ctx, w);
    wf_free(ctx, slot);
    wf_free(ctx, g);
}

/* ---- rows -------------------------------------------------------------------------------- */

struct rows {
    const struct wf_row_fns *f;
    const struct wf_norm_fns *nf;
    struct wf_xent xent;
    struct wf_layer_norm norm;
    struct wf_layer_norm_grad grad;
    struct wf_chan_shape shape;
    struct wf_chan_norm chan;
    struct wf_chan_grad chan_grad;
    float *mean, *var;
};

static void call_xent(void *arg)
{
    struct rows *r = arg;

    if (wf_xent_sparse(r->f, ctx->pool, &r->xent) >= 0)
        exit(1);
}

static void call_softmax(void *arg)
{
    struct rows *r = arg;

    wf_softmax(r->f, ctx->pool, r->xent.n_rows, r->xent.width, r->xent.x, r->xent.dx);
}

static void call_layer(void *arg)
{
    struct rows *r = arg;

    wf_layer_norm(r->nf, ctx->pool, &r->norm);
}

static void call_layer_grad(void *arg)
{
    struct rows *r = arg;

    wf_layer_norm_grad(r->nf, ctx->pool, &r->grad);
}

static void call_stats(void *arg)
{
    struct rows *r = arg;

    wf_chan_stats(r->nf, ctx->pool, &r->shape, r->chan.x, r->mean, r->var, r->chan.scratch);
}

static void call_chan(void *arg)
{
    struct rows *r = arg;

    wf_chan_norm(r->nf, ctx->pool, &r->chan);
}

static void call_chan_grad(void *arg)
{
    struct rows *r = arg;

    wf_chan_grad(r->nf, ctx->pool, &r->chan_grad);
}

static void bench_xent(int64_t n_rows, int64_t width)
{
    int64_t n = n_rows * width;
    float *x = floats(n), *dx = floats(n), *loss = floats(n_rows);
    int32_t *labels = wf_alloc_n(ctx, n_rows, sizeof *labels);
    struct rows r = {.f = wf_row_fns_at(ctx->simd),
                     .xent = {.n_rows = n_rows,
                              .width = width,
                              .x = x,
                              .labels = labels,
                              .scale = 1,
                              .loss = loss,
                              .dx = dx}};
    char text[64];

    for (int64_t i = 0; i < n_rows; i++)
        labels[i] = (int32_t)(i * 7 % width);
    snprintf(text, sizeof text, "xent %lldx%lld", (long long)n_rows, (long long)width);
    measure(text, (double)n * 8, call_xent, &r);
    snprintf(text, sizeof text, "softmax %lldx%lld", (long long)n_rows, (long long)width);
    measure(text, (double)n * 8, call_softmax, &r);
    wf_free(ctx, x);
    wf_free(ctx, dx);
    wf_free(ctx, loss);
    wf_free(ctx, labels);
}

static void bench_layer(int64_t n_rows, int64_t width)
{
    int64_t n = n_rows * width;
    float *x = floats(n), *y = floats(n), *gamma = floats(width), *beta = floats(width);
    float *mean = floats(n_rows), *rstd = floats(n_rows), *dgamma = floats(width);
    float *scratch = floats(wf_layer_norm_scratch(n_rows, width)), *dx = floats(n);
    struct rows r = {.nf = wf_norm_fns_at(ctx->simd),
                     .norm = {n_rows, width, false, 1e-3f, x, gamma, beta, y, mean, rstd},
                     .grad = {.n_rows = n_rows,
                              .width = width,
                              .x = x,
                              .dy = y,
                              .mean = mean,
                              .rstd = rstd,
                              .gamma = gamma,
                              .dx = dx,
                              .dgamma = dgamma,
                              .dbeta = beta,
                              .scratch = scratch}};
    char text[64];

    snprintf(text, sizeof text, "layer norm %lldx%lld", (long long)n_rows, (long long)width);
    measure(text, (double)n * 8, call_layer, &r);
    snprintf(text, sizeof text, "layer norm grad %lldx%lld", (long long)n_rows, (long long)width);
    measure(text, (double)n * 12, call_layer_grad, &r);
    wf_free(ctx, x);
    wf_free(ctx, y);
    wf_free(ctx, dx);
    wf_free(ctx, gamma);
    wf_free(ctx, beta);
    wf_free(ctx, mean);
    wf_free(ctx, rstd);
    wf_free(ctx, dgamma);
    wf_free(ctx, scratch);
}

static void bench_channels(int64_t n_rows, int64_t n_channels)
{
    int64_t n = n_rows * n_channels;
    struct wf_chan_shape s = {1, n_rows, n_channels, n_channels};
    float *x = floats(n), *y = floats(n), *dx = floats(n), *gamma = floats(n_channels);
    float *mean = floats(n_channels), *var = floats(n_channels), *dgamma = floats(n_channels);
    float *scratch = floats(wf_chan_scratch(&s));
    struct rows r = {
        .nf = wf_norm_fns_at(ctx->simd),
        .shape = s,
        .mean = mean,
        .var = var,
        .chan = {s, x, mean, var, 1e-3f, gamma, NULL, true, y, scratch},
        .chan_grad = {s, x, y, mean, var, 1e-3f, gamma, y, false, dx, dgamma, NULL, scratch}};
    char text[64];

    snprintf(text, sizeof text, "channel stats %lldx%lld", (long long)n_rows,
             (long long)n_channels);
    measure(text, (double)n * 4, call_stats, &r);
    snprintf(text, sizeof text, "channel norm %lldx%lld", (long long)n_rows, (long long)n_channels);
    measure(text, (double)n * 8, call_chan, &r);
    snprintf(text, sizeof text, "channel grad %lldx%lld", (long long)n_rows, (long long)n_channels);
    measure(text, (double)n * 20, call_chan_grad, &r);
    wf_free(ctx, x);
    wf_free(ctx, y);
    wf_free(ctx, dx);
    wf_free(ctx, gamma);
    wf_free(ctx, mean);
    wf_free(ctx, var);
    wf_free(ctx, dgamma);
    wf_free(ctx, scratch);
}

/* ---- reductions -------------------------------------------------------------------------- */

struct reduction {
    const struct wf_reduce_fns *f;
    enum wf_reduce_op op;
    struct wf_reduce_shape s;
    float *x, *out, *scratch;
};

static void call_reduce(void *arg)
{
    struct reduction *r = arg;

    wf_reduce(r->f, ctx->pool, r->op, &r->s, r->x, r->out, r->scratch);
}

static void call_argmax(void *arg)
{
    struct reduction *r = arg;

    wf_argmax(r->f, ctx->pool, &r->s, r->x, false, r->out);
}

static void bench_reduce(const char *name, enum wf_reduce_op op, int64_t outer, int64_t n,
                         int64_t inner)
{
    struct reduction r = {.f = wf_reduce_fns_at(ctx->simd), .op = op, .s = {outer, n, inner}};
    char text[64];

    r.x = floats(outer * n * inner);
    r.out = floats(outer * inner);
    r.scratch = floats(wf_reduce_scratch(op, &r.s) + 1);
    snprintf(text, sizeof text, "%s %lldx%lldx%lld", name, (long long)outer, (long long)n,
             (long long)inner);
    measure(text, (double)(outer * n * inner) * 4,
            strcmp(name, "argmax") ? call_reduce : call_argmax, &r);
    wf_free(ctx, r.x);
    wf_free(ctx, r.out);
    wf_free(ctx, r.scratch);
}

static void bench_reductions(void)
{
    bench_reduce("sum", WF_REDUCE_SUM, 1, 1024, 1024);
    bench_reduce("sum", WF_REDUCE_SUM, 1, 256, 1024);
    bench_reduce("sum", WF_REDUCE_SUM, 1, 128, 10);
    bench_reduce("sum", WF_REDUCE_SUM, 1, 1024, 10);
    bench_reduce("sum", WF_REDUCE_SUM, 1024, 1024, 1);
    bench_reduce("sum", WF_REDUCE_SUM, 100000, 10, 1);
    bench_reduce("max", WF_REDUCE_MAX, 1024, 1024, 1);
    bench_reduce("argmax", WF_REDUCE_MAX, 1024, 10, 1);
    bench_reduce("argmax", WF_REDUCE_MAX, 64, 50304, 1);
}

/* ---- movement ---------------------------------------------------------------------------- */

struct movement {
    const struct wf_move_fns *f;
    struct wf_box box;
    float *src, *dst;
    struct wf_gather g[TABLES];
    int32_t *ids; /* [32, SAMPLES, TABLES] as above */
    int batch;
    void *scratch;
};

static void call_box(void *arg)
{
    struct movement *m = arg;

    wf_copy_box(m->f, ctx->pool, 4, &m->box, m->src, m->dst);
}

static void bench_transpose(const char *name, int rank, const int64_t *dim, const int *perm)
{
    struct movement m = {.f = wf_move_fns_at(ctx->simd)};
    int64_t n = 1;

    for (int a = 0; a < rank; a++)
        n *= dim[a];
    m.src = floats(n);
    m.dst = floats(n);
    wf_box_transpose(rank, dim, perm, &m.box);
    measure(name, (double)n * 8, call_box, &m);
    wf_free(ctx, m.src);
    wf_free(ctx, m.dst);
}

static void call_gather(void *arg)
{
    struct movement *m = arg;

    m->batch = (m->batch + 1) % 32;
    for (int t = 0; t < TABLES; t++)
        m->g[t].ids = m->ids + (int64_t)m->batch * SAMPLES * TABLES + t;
    if (wf_gather_rows(m->f, ctx->pool, m->g, TABLES, SAMPLES, NULL) >= 0)
        exit(1);
}

static void bench_gather(void)
{
    static struct movement m;
    int64_t n = (int64_t)TABLES * TABLE_ROWS * WIDTH;
    uint64_t x = 1;

    m.f = wf_move_fns_at(ctx->simd);
    m.src = floats(n);
    m.dst = floats((int64_t)SAMPLES * STRIDE);
    m.ids = wf_alloc_n(ctx, (int64_t)32 * SAMPLES * TABLES, sizeof *m.ids);
    for (int64_t i = 0; i < (int64_t)32 * SAMPLES * TABLES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        m.ids[i] = (int32_t)((x >> 33) % TABLE_ROWS);
    }
    for (int t = 0; t < TABLES; t++)
        m.g[t] = (struct wf_gather){m.src + (int64_t)t * TABLE_ROWS * WIDTH,
                                    TABLE_ROWS,
                                    WIDTH * 4,
                                    NULL,
                                    false,
                                    TABLES,
                                    m.dst + 13 + t * WIDTH,
                                    STRIDE * 4};
    measure("gather 26x2048x16", (double)TABLES * SAMPLES * (WIDTH * 8 + 4), call_gather, &m);
    wf_free(ctx, m.src);
    wf_free(ctx, m.dst);
    wf_free(ctx, m.ids);
}

static void call_sort(void *arg)
{
    struct movement *m = arg;

    wf_sort(ctx->pool, WF_SORT_F32, false, 1, 100000, 1, m->src, m->dst, false, NULL, m->scratch);
}

static void call_top_k(void *arg)
{
    struct movement *m = arg;

    wf_top_k(ctx->pool, WF_SORT_F32, 64, 1000, 5, m->src, m->dst, false, NULL, m->scratch);
}

static void bench_order(void)
{
    struct movement m = {.src = floats(100000), .dst = floats(100000)};

    m.scratch = wf_alloc(ctx, (size_t)(wf_sort_scratch(100000) * weft_ctx_threads(ctx)));
    measure("sort 100k", 100000 * 8.0, call_sort, &m);
    measure("top_k 64x1000 5", 64000 * 4.0, call_top_k, &m);
    wf_free(ctx, m.src);
    wf_free(ctx, m.dst);
    wf_free(ctx, m.scratch);
}

static void bench_moves(void)
{
    bench_transpose("transpose 1024x1024", 2, (int64_t[]){1024, 1024}, (int[]){1, 0});
    bench_transpose("transpose 1000x77", 2, (int64_t[]){1000, 77}, (int[]){1, 0});
    bench_transpose("heads 8x128x3x4x64", 5, (int64_t[]){8, 128, 3, 4, 64}, (int[]){2, 0, 3, 1, 4});
    bench_transpose("copy 1M", 1, (int64_t[]){1 << 20}, (int[]){0});
    bench_gather();
    bench_order();
}

/* ---- main -------------------------------------------------------------------------------- */

static void run_all(void)
{
    static const int64_t sizes[] = {100000, 2000000};

    for (int i = 0; i < 2; i++) {
        bench_optim("sgd", 0, sizes[i]);
        bench_optim("sgd", .9, sizes[i]);
        bench_optim("adam", 0, sizes[i]);
        bench_optim("adagrad", 0, sizes[i]);
    }
    bench_sparse();
    bench_xent(1024, 10);
    bench_xent(1024, 1024);
    bench_xent(64, 50304);
    bench_layer(1024, 256);
    bench_channels(36864, 64);
    bench_channels(100000, 3);
    bench_reductions();
    bench_moves();
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;

    only = argc > 2 ? argv[2] : NULL;
    for (weft_simd level = weft_simd_best(); level >= WEFT_SIMD_PORTABLE;
         level = (weft_simd)(level - 1)) {
        if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads, .simd = level), &ctx)) {
            fprintf(stderr, "rows: %s\n", weft_error());
            return 1;
        }
        run_all();
        weft_ctx_free(ctx);
    }
    return 0;
}
