/* compare.c - weft compare: compares runs. */
#include <math.h>

#include "compare.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* For a job file: its checkpoints, which have the most information, or else its log. */
static weft_status read_job_run(weft_ctx *ctx, const char *path, weft_run **out)
{
    weft_job *job = NULL;
    weft_status st = weft_job_load(ctx, path, 0, NULL, &job);
    const char *dir = st ? NULL : weft_job_text(job, "checkpoint.dir");
    const char *log = st ? NULL : weft_job_text(job, "log.dir");

    if (!st)
        st = dir && *dir ? weft_run_read(ctx, dir, out) : WEFT_ENOENT;
    if (st && job && log && *log)
        st = weft_run_read(ctx, log, out);
    if (st && job && !(dir && *dir) && !(log && *log)) {
        fail(EXIT_INPUT, "%s has neither log.dir nor checkpoint.dir: its runs leave no history",
             path);
        st = WEFT_ENOENT;
    }
    weft_job_free(job);
    return st;
}

int read_runs(weft_ctx *ctx, int n, char **paths, weft_run **runs)
{
    for (int i = 0; i < n; i++) {
        weft_status st = ends_with(paths[i], ".yaml") || ends_with(paths[i], ".yml")
                             ? read_job_run(ctx, paths[i], &runs[i])
                             : weft_run_read(ctx, paths[i], &runs[i]);

        if (st)
            return fail_status(st, "");
    }
    return EXIT_DONE;
}

void free_runs(int n, weft_run **runs)
{
    for (int i = 0; i < n; i++)
        weft_run_free(runs[i]);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { NAME = 32, LEAST = 22, MOST = 30 };

struct table {
    int n, width; /* of a column */
    weft_run **run;
    char **name;
    int n_settings;
};

static int find_log(const weft_history *h, const char *name)
{
    for (int i = 0; i < h->n_names; i++)
        if (strcmp(h->name[i], name) == 0)
            return i;
    return -1;
}

/* Text in a column; if it is too long, its end or its start is kept. */
static void put_cell(const struct table *t, const char *text, bool keep_end)
{
    int n = (int)strlen(text), room = t->width - 2;

    if (n <= room)
        printf("  %-*s", room, text);
    else if (keep_end)
        printf("  …%-*s", room - 1, text + n - room + 1);
    else
        printf("  %.*s…", room - 1, text);
}

static void put_setting(void *arg, const char *key, const char *const *values)
{
    struct table *t = arg;
    bool fits = true;

    if (!t->n_settings++)
        printf("\nsettings that differ\n");
    for (int i = 0; i < t->n; i++)
        fits = fits && (!values[i] || (int)strlen(values[i]) <= t->width - 2);
    printf("%-*s", NAME, key);
    for (int i = 0; i < t->n && fits; i++)
        put_cell(t, values[i] ? values[i] : "?", false);
    printf("\n");
    for (int i = 0; i < t->n && !fits; i++) /* long values get lines of their own */
        printf("  %s: %s\n", t->name[i], values[i] ? values[i] : "?");
}

/* The last finite value, and the best of all epochs; false if there is none. */
static bool values_of(const weft_history *h, const char *name, double *last, double *best,
                      int64_t *epoch)
{
    int k = find_log(h, name), direction = weft_log_direction(name);
    bool any = false;

    for (int64_t e = 0; e < h->n_epochs && k >= 0; e++) {
        double v = h->value[e * h->n_names + k];

        if (isnan(v))
            continue;
        *last = v;
        if (!any || direction * (v - *best) > 0) {
            *best = v;
            *epoch = h->first_epoch + e + 1;
        }
        any = true;
    }
    return any;
}

/* The last value of each run, and on the next line the best one with its epoch. */
static void put_log(const struct table *t, const char *name)
{
    int n_lines = weft_log_direction(name) ? 2 : 1;

    for (int best_too = 0; best_too < n_lines; best_too++) {
        char head[64];

        snprintf(head, sizeof head, best_too ? "  best of %s" : "%s", name);
        printf("%-*s", NAME, head);
        for (int i = 0; i < t->n; i++) {
            double last, best;
            int64_t epoch;
            char text[64] = "-";

            if (values_of(t->run[i]->history, name, &last, &best, &epoch))
                snprintf(text, sizeof text, best_too ? "%.5g (epoch %lld)" : "%.5g",
                         best_too ? best : last, (long long)epoch);
            put_cell(t, text, false);
        }
        printf("\n");
    }
}

static void put_table(weft_ctx *ctx, struct table *t)
{
    char text[64];

    printf("%-*s", NAME, "");
    for (int i = 0; i < t->n; i++)
        put_cell(t, t->name[i], true);
    printf("\n%-*s", NAME, "epochs");
    for (int i = 0; i < t->n; i++) {
        const weft_history *h = t->run[i]->history;

        snprintf(text, sizeof text, "%lld", (long long)(h->first_epoch + h->n_epochs));
        put_cell(t, text, false);
    }
    printf("\n%-*s", NAME, "steps");
    for (int i = 0; i < t->n; i++) {
        snprintf(text, sizeof text, t->run[i]->steps < 0 ? "-" : "%lld",
                 (long long)t->run[i]->steps);
        put_cell(t, text, false);
    }
    printf("\n%-*s", NAME, "seconds");
    for (int i = 0; i < t->n; i++) {
        snprintf(text, sizeof text, isnan(t->run[i]->seconds) ? "-" : "%.4g", t->run[i]->seconds);
        put_cell(t, text, false);
    }
    printf("\n");
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->run[i]->history->n_names; k++) {
            const char *name = t->run[i]->history->name[k];
            int before = 0;

            while (before < i && find_log(t->run[before]->history, name) < 0)
                before++;
            if (before == i)
                put_log(t, name);
        }
    weft_runs_differ(ctx, t->n, (const weft_run *const *)t->run, put_setting, t);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            printf("\\u%04x", (unsigned char)*text);
        else
            putchar(*text);
    putchar('"');
}

static void put_json(const weft_run *r, const char *name)
{
    const weft_history *h = r->history;

    printf("{\"run\": ");
    put_json_text(name);
    printf(", \"epochs\": %lld, \"steps\": ", (long long)(h->first_epoch + h->n_epochs));
    printf(r->steps < 0 ? "null" : "%lld", (long long)r->steps);
    printf(isnan(r->seconds) ? ", \"seconds\": null" : ", \"seconds\": %.6g", r->seconds);
    printf(", \"values\": {");
    for (int i = 0, n = 0; i < h->n_names; i++) {
        double last, best;
        int64_t epoch;

        if (!values_of(h, h->name[i], &last, &best, &epoch) || !isfinite(last))
            continue;
        printf("%s\"%s\": {\"last\": %.17g", n++ ? ", " : "", h->name[i], last);
        if (weft_log_direction(h->name[i]) && isfinite(best))
            printf(", \"best\": %.17g, \"best_epoch\": %lld", best, (long long)epoch);
        printf("}");
    }
    printf("}, \"settings\": {");
    for (int i = 0; i < r->n_settings; i++) {
        printf("%s", i ? ", " : "");
        put_json_text(r->key[i]);
        printf(": ");
        put_json_text(r->value[i]);
    }
    printf("}}\n");
}

static int compare(int argc, char **argv)
{
    bool json = false;
    const struct flag flags[] = {
        {"json", FLAG_BOOL, NULL, "print a JSON object for each run, one per line", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_compare, flags, argc, argv), rc;
    weft_run *runs[MAX_COMPARED] = {0};
    struct table t = {.n = n, .run = runs, .name = argv};
    weft_ctx *ctx = NULL;
    weft_status st;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n < 1 || n > MAX_COMPARED)
        return fail(EXIT_USAGE,
                    "compare: needs 1 to %d runs: job files, checkpoint or log directories",
                    MAX_COMPARED);
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    rc = st ? fail_status(st, "") : read_runs(ctx, n, argv, runs);
    t.width = (screen_columns() - NAME) / n;
    t.width = t.width < LEAST ? LEAST : t.width > MOST ? MOST : t.width;
    if (!rc && json)
        for (int i = 0; i < n; i++)
            put_json(runs[i], argv[i]);
    else if (!rc)
        put_table(ctx, &t);
    free_runs(n, runs);
    weft_ctx_free(ctx);
    return rc;
}

const struct command command_compare = {
    .name = "compare",
    .args = "RUN…",
    .summary = "compare runs: last and best values, times, settings that differ",
    .text = "  weft compare job.yaml ckpt.1 ckpt.2\n"
            "\n"
            "RUN is a job file, a checkpoint directory or a log directory. Only checkpoints "
            "contain the\nsettings. `weft report RUN…` writes a page with the curves of all runs "
            "in one plot.\n",
    .run = compare,
};
