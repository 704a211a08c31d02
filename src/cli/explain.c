/* explain.c - weft explain: the plan of a workload, instruction by instruction. */
#include "cli.h"

static weft_status explain_workload(weft_ctx *ctx, const char *name, int runs, bool trace, char **text)
{
    struct workload w;
    weft_fn *fn = NULL;
    weft_status st = workload_build(ctx, name, &w);

    if (st)
        return st;
    st = weft_fn_new(w.graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = w.n_feeds, .feeds = w.feed, .n_fetches = 1, .fetches = &w.loss,
                               .n_updates = w.n_updates, .updates = w.updates),
                     &fn);
    if (!st)
        st = trace ? weft_fn_trace(fn, w.data, text)
                   : weft_fn_explain(fn, w.data, WEFT_OPTS(weft_explain_opts, .time_runs = runs), text);
    weft_fn_free(fn);
    workload_free(&w);
    return st;
}

static int run(int argc, char **argv)
{
    struct machine_flags m = {.kernels = "best", .simd = "auto"};
    const char *workload = NULL;
    int runs = 0, n;
    bool trace = false;
    const struct flag flags[] = {
        {"workload", FLAG_TEXT, "NAME", "a workload of `weft bench train`", &workload},
        {"time", FLAG_INT, "N", "run N times and print the time of each instruction", &runs},
        {"trace", FLAG_BOOL, NULL, "one run as Chrome trace JSON instead (chrome://tracing, Perfetto)", &trace},
        {"threads", FLAG_INT, "N", "threads of the pool; default: all cores", &m.threads},
        {"kernels", FLAG_TEXT, "best|portable", "portable ones give the same bits on every machine", &m.kernels},
        {"simd", FLAG_TEXT, "LEVEL", "auto, portable, avx2 or avx512", &m.simd},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    char *text = NULL;
    weft_ctx *ctx;
    weft_status st;

    n = parse_flags(&command_explain, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 0 || !workload)
        return fail(EXIT_USAGE, "explain: --workload NAME is needed");
    st = open_context(&m, &ctx);
    if (st)
        return fail_status(st, "explain");
    st = explain_workload(ctx, workload, runs, trace, &text);
    if (st)
        fail_status(st, workload);
    else
        fputs(text, stdout);
    weft_text_free(ctx, text);
    weft_ctx_free(ctx);
    return st ? EXIT_FAILED : EXIT_DONE;
}

const struct command command_explain = {
    .name = "explain",
    .args = "",
    .summary = "print the plan of a graph: instructions, shapes, kernels, memory, times",
    .run = run,
};
