/* history.c - weft history: the epochs of a run as a table. */
#include <math.h>

#include "cli.h"

/* Checkpoints are authoritative, the log is a view of the run: a log that is damaged or has lost
 * rows is ignored. */
weft_status read_epochs(weft_ctx *ctx, const weft_job *job, weft_history **out)
{
    const char *log = weft_job_text(job, "log.dir"), *dir = weft_job_text(job, "checkpoint.dir");
    weft_history *logged = NULL, *saved = NULL;
    weft_status st = log ? weft_history_read(ctx, log, &logged) : WEFT_ENOENT;
    bool damaged = st == WEFT_EPARSE;

    if (damaged && dir)
        fprintf(stderr, "weft: warning: %s; the epochs are those of the checkpoints\n",
                weft_error());
    if (dir && weft_history_read(ctx, dir, &saved) == WEFT_OK)
        st = WEFT_OK;
    *out = saved && (!logged || saved->n_epochs > logged->n_epochs) ? saved : logged;
    weft_history_free(*out == saved ? logged : saved);
    if (!log && !dir)
        fprintf(
            stderr,
            "weft: the job has neither log.dir nor checkpoint.dir: its runs leave no history\n");
    return st;
}

static weft_status read_job(weft_ctx *ctx, const char *path, weft_history **out)
{
    weft_job *job = NULL;
    weft_status st = weft_job_load(ctx, path, 0, NULL, &job);

    if (!st)
        st = read_epochs(ctx, job, out);
    weft_job_free(job);
    return st;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

static void print_json(const weft_history *h)
{
    for (int64_t e = 0; e < h->n_epochs; e++) {
        printf("{\"epoch\": %lld", (long long)(h->first_epoch + e + 1));
        for (int i = 0; i < h->n_names; i++) {
            double v = h->value[e * h->n_names + i];

            printf(isfinite(v) ? ", \"%s\": %.17g" : ", \"%s\": null", h->name[i], v);
        }
        printf("}\n");
    }
}

static void print_table(const weft_history *h)
{
    printf("epoch");
    for (int i = 0; i < h->n_names; i++)
        printf("  %*s", strlen(h->name[i]) > 10 ? (int)strlen(h->name[i]) : 10, h->name[i]);
    printf("\n");
    for (int64_t e = 0; e < h->n_epochs; e++) {
        printf("%5lld", (long long)(h->first_epoch + e + 1));
        for (int i = 0; i < h->n_names; i++) {
            int width = strlen(h->name[i]) > 10 ? (int)strlen(h->name[i]) : 10;
            double v = h->value[e * h->n_names + i];

            if (isnan(v))
                printf("  %*s", width, "-");
            else
                printf("  %*.5g", width, v);
        }
        printf("\n");
    }
}

static int history(int argc, char **argv)
{
    bool json = false;
    const struct flag flags[] = {
        {"json", FLAG_BOOL, NULL, "print a JSON object for each epoch, one per line", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_history, flags, argc, argv);
    weft_ctx *ctx = NULL;
    weft_history *h = NULL;
    weft_status st;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "history: needs a directory or a job file");
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    if (!st)
        st = ends_with(argv[0], ".yaml") || ends_with(argv[0], ".yml")
                 ? read_job(ctx, argv[0], &h)
                 : weft_history_read(ctx, argv[0], &h);
    if (!st && json)
        print_json(h);
    else if (!st)
        print_table(h);
    n = st ? fail_status(st, "") : EXIT_DONE;
    weft_history_free(h);
    weft_ctx_free(ctx);
    return n;
}

const struct command command_history = {
    .name = "history",
    .args = "DIR|JOB.yaml",
    .summary = "print the epochs of a run as a table",
    .text = "DIR is the log.dir or checkpoint.dir of a job. For a job file both are read, and the "
            "one with\nmore epochs is printed.\n",
    .run = history,
};
