/* history.c - weft history: the epochs of a run as a table. */
#include <math.h>

#include "cli.h"

/* Where a job's epochs are to be found: what it logged, else its checkpoints. */
static weft_status read_job(weft_ctx *ctx, const char *path, weft_history **out)
{
    static const char *const keys[] = {"log.dir", "checkpoint.dir"};
    weft_job *job = NULL;
    weft_status st = weft_job_load(ctx, path, 0, NULL, &job);
    bool given = false;

    if (st)
        return st;
    st = WEFT_ENOENT;
    for (int i = 0; i < 2 && st == WEFT_ENOENT; i++) {
        const char *dir = weft_job_text(job, keys[i]);

        if (dir)
            st = weft_history_read(ctx, dir, out);
        given = given || dir;
    }
    weft_job_free(job);
    if (!given)
        fprintf(stderr, "weft: %s has neither log.dir nor checkpoint.dir: its runs leave nothing\n",
                path);
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
        {"json", FLAG_BOOL, NULL, "an object an epoch, a line each", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_history, flags, argc, argv);
    weft_ctx *ctx = NULL;
    weft_history *h = NULL;
    weft_status st;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "history: needs a folder or a job file");
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
    .args = "FOLDER|JOB.yaml",
    .summary = "the epochs of a run, from its log or its checkpoints",
    .text = "The folder is a job's log.dir or checkpoint.dir; of a job file, both are tried.\n",
    .run = history,
};
