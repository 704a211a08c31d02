/* explain.c - what a job will do on a cluster, as text: for `weft launch --explain` and `weft node
 * --explain`. Nothing is started; the data is opened, to count it. */
#include "job.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static int64_t number(const weft_job *job, const char *key)
{
    double v = 0;

    return weft_job_number(job, key, &v) ? 0 : (int64_t)v;
}

static weft_placement placement(const weft_job *job)
{
    const char *word = weft_job_text(job, "cluster.placement");

    if (word && !strcmp(word, "greedy"))
        return WEFT_PLACE_GREEDY;
    return word && !strcmp(word, "round_robin") ? WEFT_PLACE_ROUND_ROBIN : WEFT_PLACE_EVEN;
}

static int explain_servers(const weft_job *job, const struct explained *e, weft_ctx *ctx,
                           const weft_job_run *run)
{
    int copies = e->replicas ? e->replicas : e->servers > 1 ? 2 : 1;
    char *text = NULL;
    weft_status st =
        weft_ps_explain(weft_job_model(run),
                        WEFT_OPTS(weft_ps_opts, .servers = e->servers, .replicas = e->replicas,
                                  .placement = placement(job)),
                        &text);

    if (st)
        return fail_job(st);
    printf("\nparameters, in %d cop%s; the optimizer's state lies with them:\n%s", copies,
           copies == 1 ? "y" : "ies", text);
    weft_text_free(ctx, text);
    return EXIT_DONE;
}

/* "480 samples" */
static void count_text(int64_t n, char text[48])
{
    if (n == WEFT_UNKNOWN || n == WEFT_ENDLESS)
        snprintf(text, 48, "%s samples", n == WEFT_ENDLESS ? "endless" : "an unknown number of");
    else
        snprintf(text, 48, "%lld sample%s", (long long)n, plural(n));
}

static int explain_data(const weft_job *job, const struct explained *e, const weft_job_run *run)
{
    int64_t batch = number(job, "data.batch") * number(job, "train.accumulate");
    int64_t shards = e->shards ? e->shards : e->workers, n = 0;
    weft_data *d = weft_job_data(run);
    weft_ds part;
    char text[48];

    printf("\ndata: ");
    if (weft_job_open_part((weft_job_run *)(uintptr_t)run, "train", &part))
        return fail_job(weft_data_status(d));
    n = weft_ds_count(d, part);
    count_text(n, text);
    printf("%s to train on", text);
    part = weft_job_dataset(run, "validation");
    if (part.id) {
        count_text(weft_ds_count(d, part), text);
        printf(", %s to validate on, dealt out to all workers", text);
    }
    printf("\n");
    printf("a step of %lld sample%s is %lld shard%s", (long long)batch, plural(batch),
           (long long)shards, plural(shards));
    if (shards == 1)
        printf(": all of them\n");
    else if (batch % shards == 0)
        printf(" of %lld sample%s\n", (long long)(batch / shards), plural(batch / shards));
    else
        printf(" of %lld to %lld samples\n", (long long)(batch / shards),
               (long long)((batch + shards - 1) / shards));
    printf("which samples a shard has follows from the seed, the step and its number, not from who "
           "computes it;\neach worker reads those of its shards\n");
    return EXIT_DONE;
}

int explain_job(const weft_job *job, const struct explained *e)
{
    weft_job_run *run = NULL;
    weft_ctx *ctx = NULL;
    weft_status st = weft_job_context(job, NULL, NULL, &ctx);
    int rc;

    if (!st)
        st = weft_job_open_with(job, ctx, NULL, &run);
    rc = st ? fail_job(st) : explain_servers(job, e, ctx, run);
    if (!rc)
        rc = explain_data(job, e, run);
    weft_job_close(run);
    weft_ctx_free(ctx);
    return rc;
}
