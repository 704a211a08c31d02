/* bench.c - weft bench train: how long a training step takes. */
#define _GNU_SOURCE
#include <math.h>
#include <sys/resource.h>

#include <weft/sys/machine.h>

#include "cli.h"

enum { WARM_UP = 5, MIN_STEPS = 5, MAX_BLOCKS = 1000 };
static const double BLOCK_SECONDS = 0.3;

struct result {
    double us_step, loss, peak;
    const char *device;
    int64_t device_peak; /* bytes of the device's memory; 0: it has none of its own */
    uint64_t params;     /* hash of the parameters' bits at the end */
    weft_plan_info plan;
};

/* What to measure, and how. */
struct setup {
    int blocks, n_steps;
    weft_dtype compute; /* what layers compute in; WEFT_NONE: as the workload says */
    bool tf32;
    const char *without;
};

/* FNV-1a over the bits: equal for two runs if and only if all parameters are identical. */
static uint64_t hash_params(weft_fn *fn)
{
    uint64_t h = 14695981039346656037u;

    for (int64_t k = 0; k < weft_fn_n_segments(fn); k++) {
        weft_segment seg;
        weft_tensor t;
        const unsigned char *p;
        int64_t n;

        if (weft_fn_segment(fn, k, &seg) || weft_fn_view(fn, seg.name, &t))
            return 0;
        p = t.data;
        n = weft_tensor_bytes(&t);
        for (int64_t i = 0; i < n; i++)
            h = (h ^ p[i]) * 1099511628211u;
    }
    return h;
}

static weft_status steps(weft_fn *fn, const struct workload *w, int n, float *loss)
{
    weft_tensor out = {.data = NULL};
    weft_status st = weft_fn_repeat(fn, n, w->data, &out);

    if (!st)
        *loss = *(const float *)out.data;
    return st;
}

/* n steps per block; 0: as many as take about 0.3 s, after a warm-up. */
static weft_status measure(weft_fn *fn, const struct workload *w, int blocks, int n,
                           struct result *r)
{
    double t, times[MAX_BLOCKS];
    float loss = 0;
    weft_status st = WEFT_OK;

    if (n == 0) {
        st = steps(fn, w, WARM_UP, &loss);
        t = wall_clock();
        if (!st)
            st = steps(fn, w, 1, &loss);
        n = (int)(BLOCK_SECONDS / fmax(1e-6, wall_clock() - t));
        n = n < MIN_STEPS ? MIN_STEPS : n;
    }
    for (int b = 0; b < blocks && !st; b++) {
        t = wall_clock();
        st = steps(fn, w, n, &loss);
        times[b] = (wall_clock() - t) / n;
    }
    if (st)
        return st;
    r->us_step = 1e6 * median_of(times, blocks);
    r->loss = loss;
    r->params = hash_params(fn);
    r->plan.size = sizeof r->plan;
    return weft_fn_plan_info(fn, w->data, &r->plan);
}

static weft_status bench_one(weft_ctx *ctx, const char *name, const struct setup *s,
                             struct result *r, int64_t *batch)
{
    struct workload w;
    weft_fn *fn = NULL;
    weft_status st = workload_build_in(ctx, name, s->compute, &w);

    if (st)
        return st;
    *batch = w.batch;
    st = weft_fn_new(w.graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = w.n_feeds, .feeds = w.feed, .n_fetches = 1,
                               .fetches = &w.loss, .n_updates = w.n_updates, .updates = w.updates,
                               .tf32 = s->tf32, .without = s->without),
                     &fn);
    if (!st)
        st = measure(fn, &w, s->blocks, s->n_steps, r);
    weft_fn_free(fn);
    workload_free(&w);
    return st;
}

/* The most memory of its own that a device of the context had in use. */
static int64_t device_peak(const weft_ctx *ctx)
{
    int64_t peak = 0;

    for (int i = 0; i < weft_ctx_n_devices(ctx); i++) {
        weft_device d = {.size = sizeof d};

        if (!weft_ctx_device(ctx, i, &d) && d.memory_peak > peak)
            peak = d.memory_peak;
    }
    return peak;
}

static void print_result(FILE *to, bool json, const char *name, int threads, int64_t batch,
                         const struct result *r)
{
    struct rusage u;
    double fraction = r->peak > 0 ? r->plan.flop / (r->us_step * 1e-6) / r->peak : 0;
    char peak[32] = "null";

    if (r->peak > 0)
        snprintf(peak, sizeof peak, "%.3f", fraction);
    getrusage(RUSAGE_SELF, &u);
    if (json)
        fprintf(to,
                "{\"workload\": \"%s\", \"peer\": \"weft\", \"version\": \"%s\", "
                "\"device\": \"%s\", \"threads\": %d, \"us_step\": %.1f, "
                "\"samples_s\": %.0f, \"rss_mb\": %ld, \"device_mb\": %lld, \"flop\": %.0f, "
                "\"peak_fraction\": %s, "
                "\"plan_ms\": %.3f, "
                "\"loss\": %.9g, \"params_hash\": \"%016llx\"}\n",
                name, weft_version(), r->device, threads, r->us_step,
                (double)batch / (r->us_step * 1e-6), u.ru_maxrss / 1024,
                (long long)(r->device_peak >> 20), r->plan.flop, peak, r->plan.plan_ms, r->loss,
                (unsigned long long)r->params);
    else
        fprintf(
            to,
            "%-10s %10.1f us/step %10.0f samples/s  %5.1f %% of peak  plan %6.2f ms  rss %ld MB\n",
            name, r->us_step, (double)batch / (r->us_step * 1e-6), 100 * fraction, r->plan.plan_ms,
            u.ru_maxrss / 1024);
    fflush(to);
}

static int unknown_workload(const char *name)
{
    char all[256] = "";

    for (int i = 0; i < n_workloads(); i++) {
        strcat(all, " ");
        strcat(all, workload_name(i));
    }
    return fail(EXIT_USAGE, "bench train: no workload '%s'; there are: all%s", name, all);
}

static bool parse_precision(const char *text, struct setup *s)
{
    s->tf32 = strcmp(text, "tf32") == 0;
    if (s->tf32 || !*text)
        return true;
    return !weft_dtype_parse(text, &s->compute) &&
           (s->compute == WEFT_F32 || s->compute == WEFT_BF16 || s->compute == WEFT_F16);
}

static int run(int argc, char **argv)
{
    struct machine_flags m = {.kernels = "best", .simd = "auto"};
    const char *workload = "all", *json = NULL, *precision = "";
    struct setup s = {.blocks = 9};
    int n;
    const struct flag flags[] = {
        {"workload", FLAG_TEXT, "NAME|all",
         "softmax64 mlp-s mlp-l cnn lstm widedeep gpt-s resnet-s, for GPUs mlp-xl cnn-512 "
         "resnet50 gpt2, or all (default)",
         &workload},
        {"threads", FLAG_INT, "N", "number of threads; default: all cores", &m.threads},
        {"blocks", FLAG_INT, "N", "measured blocks of about 0.3 s; reports the median; default 9",
         &s.blocks},
        {"steps", FLAG_INT, "N",
         "exactly N steps per block, no warm-up: to compare results bit for bit (params_hash)",
         &s.n_steps},
        {"precision", FLAG_TEXT, "TYPE",
         "what layers compute in: f32, tf32, bf16 or f16; default: f32, of mlp-xl, resnet50 "
         "and gpt2 bf16",
         &precision},
        {"without", FLAG_TEXT, "WORDS",
         "for developers: what plans for a GPU leave out: mixed, norms, epilogues, overlap, "
         "attention, casts, residuals",
         &s.without},
        {"kernels", FLAG_TEXT, "best|portable",
         "portable kernels give identical results on every machine", &m.kernels},
        {"simd", FLAG_TEXT, "LEVEL", "auto, portable, avx2, avx512 or avx512bf16", &m.simd},
        {"device", FLAG_TEXT, "LIST", "device to train on: cpu (default), gpu:0", &m.devices},
        {"device-cache", FLAG_TEXT, "DIR", "existing directory for kernels that a GPU compiles",
         &m.device_cache},
        {"json", FLAG_TEXT, "FILE|-", "write JSON, one object per line", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    FILE *to = stdout;
    weft_ctx *ctx;
    weft_status st;
    double peak;

    n = parse_flags(&command_bench_train, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 0)
        return fail(EXIT_USAGE, "bench train: unexpected argument '%s'", argv[0]);
    if (strcmp(workload, "all") && !is_workload(workload))
        return unknown_workload(workload);
    if (!parse_precision(precision, &s))
        return fail(EXIT_USAGE, "bench train: --precision takes f32, tf32, bf16 or f16, not '%s'",
                    precision);
    if (s.blocks < 1 || s.blocks > MAX_BLOCKS)
        return fail(EXIT_USAGE, "bench train: --blocks takes 1 to %d", MAX_BLOCKS);
    st = open_context(&m, &ctx);
    if (st)
        return fail_status(st, "bench train");
    if (json && strcmp(json, "-") && !(to = fopen(json, "w"))) {
        weft_ctx_free(ctx);
        return fail(EXIT_INPUT, "cannot write %s", json);
    }
    /* of the cpu; a fixed number of steps is for comparing bits and start-up */
    peak = s.n_steps || m.devices ? 0 : weft_fma_peak(ctx, 0.3);
    if (!json && peak > 0)
        printf("%d threads, %s, multiply-add peak %.1f GFLOP/s\n", weft_ctx_threads(ctx),
               weft_simd_name(weft_ctx_simd(ctx)), peak / 1e9);
    for (int i = 0; i < n_workloads() && !st; i++) {
        struct result r = {.peak = peak, .device = m.devices ? m.devices : "cpu"};
        int64_t batch = 0;

        if (strcmp(workload, "all") ? strcmp(workload, workload_name(i)) != 0
                                    : workload_is_large(i) && !m.devices)
            continue;
        st = bench_one(ctx, workload_name(i), &s, &r, &batch);
        r.device_peak = device_peak(ctx);
        if (st)
            fail_status(st, workload_name(i));
        else
            print_result(to, json != NULL, workload_name(i), weft_ctx_threads(ctx), batch, &r);
    }
    if (to != stdout)
        fclose(to);
    weft_ctx_free(ctx);
    return st ? EXIT_FAILED : EXIT_DONE;
}

const struct command command_bench_train = {
    .name = "bench train",
    .args = "",
    .summary = "measure training steps of the benchmark workloads",
    .text = "Data is synthetic and in memory; a step is forward, backward and update. The result "
            "is the\nmedian over blocks of steps after a warm-up, also as a percentage of the "
            "machine's\nmultiply-add peak, which is measured first.\n",
    .run = run,
};
