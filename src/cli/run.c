/* run.c - weft run, weft explain: compute or explain a saved graph or a workload. */
#define _GNU_SOURCE
#include <math.h>

#include "cli.h"

#define MAX_IO 64

/* Everything a saved graph needs to become a function. */
struct job {
    weft_ctx *ctx;
    weft_graph *graph;
    weft_fn *fn;
    weft_val feed[MAX_IO], fetch[MAX_IO];
    weft_tensor data[MAX_IO], result[MAX_IO];
    const char *to[MAX_IO]; /* where each fetch is written */
    bool from_file[MAX_IO]; /* whether a feed's data is owned by a file */
    int n_feeds, n_fetches;
};

static void job_free(struct job *j)
{
    for (int i = 0; i < j->n_feeds; i++)
        if (j->from_file[i])
            weft_array_free(j->ctx, &j->data[i]);
        else
            free(j->data[i].data);
    weft_fn_free(j->fn);
    weft_graph_free(j->graph);
    weft_ctx_free(j->ctx);
}

/* "name=rest": splits the item; NULL if there is no '='. */
static char *cut(char *item)
{
    char *eq = strrchr(item, '=');

    if (eq)
        *eq++ = '\0';
    return eq;
}

/* "name" or "name:2" for a later output. */
static int find_value(struct job *j, char *name, weft_val *out)
{
    char *colon = strrchr(name, ':');
    weft_val v;

    if (!weft_find(j->graph, name, out))
        return EXIT_DONE;
    if (colon && colon[1] >= '0' && colon[1] <= '9') {
        *colon = '\0';
        if (!weft_find(j->graph, name, &v)) {
            *out = weft_output(j->graph, v, atoi(colon + 1));
            if (out->id)
                return EXIT_DONE;
            return fail(EXIT_USAGE, "'%s' has no output %s", name, colon + 1);
        }
    }
    return fail(EXIT_USAGE, "%s", weft_error());
}

/* x=file.npy, or for explain also x=32,784 (a shape, zeros). */
static int add_feed(struct job *j, const char *text, bool shapes)
{
    char *item = strdup(text), *rest = item ? cut(item) : NULL;
    weft_tensor *d = &j->data[j->n_feeds];
    int rc = EXIT_DONE;

    if (!rest)
        rc = fail(EXIT_USAGE, "--feed takes name=%s, not '%s'",
                  shapes ? "SHAPE or name=FILE.npy" : "FILE.npy", text);
    else if (j->n_feeds == MAX_IO)
        rc = fail(EXIT_USAGE, "more than %d feeds", MAX_IO);
    if (!rc)
        rc = find_value(j, item, &j->feed[j->n_feeds]);
    if (!rc && shapes && strspn(rest, "0123456789,") == strlen(rest)) {
        weft_val_type(j->graph, j->feed[j->n_feeds], d);
        d->rank = 0;
        for (char *p = rest; *p && d->rank < WEFT_MAX_RANK; p += *p == ',')
            d->dim[d->rank++] = strtoll(p, &p, 10);
        d->data = weft_tensor_bytes(d) >= 0 ? calloc(1, (size_t)weft_tensor_bytes(d) + 1) : NULL;
        if (!d->data)
            rc = fail(EXIT_USAGE, "--feed %s: the shape is too large", text);
    } else if (!rc) {
        j->from_file[j->n_feeds] = true;
        rc = weft_npy_read(j->ctx, rest, d) ? fail(EXIT_INPUT, "%s", weft_error()) : EXIT_DONE;
    }
    if (!rc)
        j->n_feeds++;
    free(item);
    return rc;
}

static int add_fetch(struct job *j, const char *text)
{
    char *item = strdup(text);
    const char *eq = strrchr(text, '=');
    int rc;

    if (!item || j->n_fetches == MAX_IO)
        return fail(EXIT_USAGE, "more than %d fetches", MAX_IO);
    cut(item);
    rc = find_value(j, item, &j->fetch[j->n_fetches]);
    j->to[j->n_fetches] = eq ? eq + 1 : "-";
    if (!rc)
        j->n_fetches++;
    free(item);
    return rc;
}

static int open_job(struct job *j, const struct machine_flags *m, const char *path,
                    const struct text_list *feeds, const struct text_list *fetches, bool shapes)
{
    weft_status st = open_context(m, &j->ctx);
    int rc = EXIT_DONE;

    if (!st)
        st = weft_graph_load(j->ctx, path, &j->graph);
    if (st)
        return fail_status(st, "");
    for (int i = 0; i < feeds->n && !rc; i++)
        rc = add_feed(j, feeds->item[i], shapes);
    for (int i = 0; i < fetches->n && !rc; i++)
        rc = add_fetch(j, fetches->item[i]);
    if (rc)
        return rc;
    st = weft_fn_new(j->graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = j->n_feeds, .feeds = j->feed,
                               .n_fetches = j->n_fetches, .fetches = j->fetch),
                     &j->fn);
    return st ? fail_status(st, "") : EXIT_DONE;
}

/* ---- printing -------------------------------------------------------------------------------- */

static double element(const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_F32: return ((const float *)t->data)[i];
    case WEFT_F64: return ((const double *)t->data)[i];
    case WEFT_I8: return ((const int8_t *)t->data)[i];
    case WEFT_U8:
    case WEFT_BOOL: return ((const uint8_t *)t->data)[i];
    case WEFT_I32: return ((const int32_t *)t->data)[i];
    case WEFT_I64: return (double)((const int64_t *)t->data)[i];
    default: return NAN;
    }
}

/* One row per line, elements separated by spaces. */
static void print_tensor(const weft_tensor *t)
{
    int64_t n = weft_tensor_count(t), row = t->rank ? t->dim[t->rank - 1] : 1;

    for (int64_t i = 0; i < n; i++)
        printf("%.9g%c", element(t, i), (i + 1) % row ? ' ' : '\n');
}

/* ---- weft run -------------------------------------------------------------------------------- */

static int run(int argc, char **argv)
{
    struct machine_flags m = {.kernels = "best", .simd = "auto"};
    struct text_list feeds = {0}, fetches = {0};
    const struct flag flags[] = {
        {"feed", FLAG_LIST, "NAME=FILE.npy", "the value of a placeholder; once for each", &feeds},
        {"fetch", FLAG_LIST, "NAME=FILE.npy|-",
         "a value to compute, into a file or printed; NAME:1 is a second output", &fetches},
        {"threads", FLAG_INT, "N", "number of threads; default: all cores", &m.threads},
        {"memory", FLAG_INT, "MB", "memory limit", &m.memory_mb},
        {"kernels", FLAG_TEXT, "best|portable",
         "portable kernels give identical results on every machine", &m.kernels},
        {"devices", FLAG_TEXT, "LIST",
         "devices to compute on: cpu, groups of cores (cpu:0,cpu:1), gpu:0", &m.devices},
        {"soft-placement", FLAG_BOOL, NULL,
         "run nodes of devices that do not exist on the default device", &m.soft_placement},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    struct job j = {0};
    weft_status st;
    int rc, n = parse_flags(&command_run, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1 || !fetches.n)
        return fail(EXIT_USAGE,
                    "run: needs a graph and at least one --fetch; see `weft run --help`");
    rc = open_job(&j, &m, argv[0], &feeds, &fetches, false);
    if (!rc) {
        st = weft_fn_run(j.fn, j.data, j.result);
        rc = st ? fail_status(st, "") : EXIT_DONE;
    }
    for (int i = 0; i < j.n_fetches && !rc; i++)
        if (!strcmp(j.to[i], "-"))
            print_tensor(&j.result[i]);
        else if (weft_npy_write(j.ctx, j.to[i], &j.result[i]))
            rc = fail(EXIT_FAILED, "%s", weft_error());
    job_free(&j);
    return rc;
}

const struct command command_run = {
    .name = "run",
    .args = "GRAPH",
    .summary = "compute values of a saved graph",
    .text = "  weft run model.graph --feed x=images.npy --fetch logits=out.npy --fetch loss=-\n",
    .run = run,
};

/* ---- weft explain ---------------------------------------------------------------------------- */

static weft_status explain_workload(weft_ctx *ctx, const char *name, int runs, bool trace,
                                    char **text)
{
    struct workload w;
    weft_fn *fn = NULL;
    weft_status st = workload_build(ctx, name, &w);

    if (st)
        return st;
    st = weft_fn_new(w.graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = w.n_feeds, .feeds = w.feed, .n_fetches = 1,
                               .fetches = &w.loss, .n_updates = w.n_updates, .updates = w.updates),
                     &fn);
    if (!st)
        st = trace ? weft_fn_trace(fn, w.data, text)
                   : weft_fn_explain(fn, w.data, WEFT_OPTS(weft_explain_opts, .time_runs = runs),
                                     text);
    weft_fn_free(fn);
    workload_free(&w);
    return st;
}

static int explain(int argc, char **argv)
{
    struct machine_flags m = {.kernels = "best", .simd = "auto"};
    struct text_list feeds = {0}, fetches = {0};
    const char *workload = NULL;
    int runs = 0;
    bool trace = false;
    const struct flag flags[] = {
        {"workload", FLAG_TEXT, "NAME", "a workload of `weft bench train` instead of a saved graph",
         &workload},
        {"feed", FLAG_LIST, "NAME=SHAPE", "the shape of a placeholder, as 32,784, or a .npy file",
         &feeds},
        {"fetch", FLAG_LIST, "NAME", "a value to compute", &fetches},
        {"time", FLAG_INT, "N", "run N times and print the time of each instruction", &runs},
        {"trace", FLAG_BOOL, NULL,
         "write one run as Chrome trace JSON instead (chrome://tracing, Perfetto)", &trace},
        {"threads", FLAG_INT, "N", "number of threads; default: all cores", &m.threads},
        {"kernels", FLAG_TEXT, "best|portable",
         "portable kernels give identical results on every machine", &m.kernels},
        {"simd", FLAG_TEXT, "LEVEL", "auto, portable, avx2, avx512 or avx512bf16", &m.simd},
        {"devices", FLAG_TEXT, "LIST",
         "devices to compute on: cpu, groups of cores (cpu:0,cpu:1), gpu:0", &m.devices},
        {"soft-placement", FLAG_BOOL, NULL,
         "run nodes of devices that do not exist on the default device", &m.soft_placement},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    struct job j = {0};
    char *text = NULL;
    weft_status st = WEFT_OK;
    int rc = EXIT_DONE, n = parse_flags(&command_explain, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (workload ? n != 0 : n != 1 || !fetches.n)
        return fail(EXIT_USAGE,
                    "explain: needs --workload NAME, or a graph with --feed and --fetch");
    if (!workload)
        rc = open_job(&j, &m, argv[0], &feeds, &fetches, true);
    else if ((st = open_context(&m, &j.ctx)) != 0)
        rc = fail_status(st, "explain");
    else if (!is_workload(workload))
        rc = fail(EXIT_USAGE, "explain: no workload '%s'", workload);
    if (!rc) {
        st = workload ? explain_workload(j.ctx, workload, runs, trace, &text)
             : trace  ? weft_fn_trace(j.fn, j.data, &text)
                      : weft_fn_explain(j.fn, j.data,
                                        WEFT_OPTS(weft_explain_opts, .time_runs = runs), &text);
        rc = st ? fail_status(st, "explain") : EXIT_DONE;
    }
    if (!rc)
        fputs(text, stdout);
    if (j.ctx)
        weft_text_free(j.ctx, text);
    job_free(&j);
    return rc;
}

const struct command command_explain = {
    .name = "explain",
    .args = "[GRAPH]",
    .summary = "print the plan of a graph: instructions, shapes, kernels, memory, times",
    .text = "  weft explain --workload mlp-s --time 100\n"
            "  weft explain model.graph --feed x=32,784 --fetch logits\n",
    .run = explain,
};
