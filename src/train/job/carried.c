/* carried.c - the part of a job that is saved with a model, so that the file alone is enough for
 * predictions: how the data is read, the pipeline, loss and metrics. As YAML in one line, among the
 * learned values. */
#include <stdio.h>

#include "train/job/data.h"

#define NO_PATH "the training data" /* instead of its path, which should not be published */

/* A word that means the same without quotes. */
static bool is_plain(const struct wf_yaml_node *n)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-";

    return !n->quoted && *n->text && n->text[strspn(n->text, plain)] == 0 &&
           strcmp(n->text, "-") != 0;
}

static void put_text(struct wf_buf *b, const char *text)
{
    wf_buf_add(b, "\"", 1);
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if (c == '"' || c == '\\')
            wf_buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            wf_buf_printf(b, "\\x%02x", c);
        else
            wf_buf_add(b, p, 1);
    }
    wf_buf_add(b, "\"", 1);
}

static void put_node(struct wf_buf *b, const struct wf_yaml_node *n)
{
    bool map = n->kind == WF_YAML_MAP;

    if (n->kind == WF_YAML_SCALAR && is_plain(n)) {
        wf_buf_printf(b, "%s", n->text);
        return;
    }
    if (n->kind == WF_YAML_SCALAR) {
        put_text(b, n->text);
        return;
    }
    wf_buf_add(b, map ? "{" : "[", 1);
    for (int64_t i = 0; i < n->n; i++) {
        wf_buf_add(b, ", ", i ? 2 : 0);
        if (map) {
            put_node(b, n->key[i]);
            wf_buf_add(b, ": ", 2);
        }
        put_node(b, n->item[i]);
    }
    wf_buf_add(b, map ? "}" : "]", 1);
}

/* The source of the training data, without its location. */
static void put_source(struct wf_buf *b, const struct wf_yaml_node *n)
{
    wf_buf_printf(b, "{path: \"%s\"", NO_PATH);
    for (int64_t i = 0; n->kind == WF_YAML_MAP && i < n->n; i++) {
        const char *key = n->key[i]->text;

        if (!strcmp(key, "path") || !strcmp(key, "query") || !strcmp(key, "skip") ||
            !strcmp(key, "take"))
            continue;
        wf_buf_printf(b, ", %s: ", key);
        put_node(b, n->item[i]);
    }
    wf_buf_add(b, "}", 1);
}

weft_status wf_job_carry(weft_job_run *run)
{
    static const char *const keys[] = {"loss", "metrics", "weighted_metrics", "precision"};
    const weft_job *job = run->job;
    const struct wf_yaml_node *train = wf_yaml_get(job->yaml.root, "train"), *v;
    struct wf_buf b;
    int n = 0;
    weft_status st;

    wf_buf_init(&b, run->ctx, 16 << 20);
    wf_buf_printf(&b, "{data: {train: ");
    put_source(&b, job->train.node);
    if (job->pipeline) {
        wf_buf_printf(&b, ", pipeline: ");
        put_node(&b, job->pipeline);
    }
    wf_buf_printf(&b, "}, train: {");
    for (int i = 0; i < WF_COUNT(keys); i++) {
        v = train ? wf_yaml_get(train, keys[i]) : NULL;
        if (!v)
            continue;
        wf_buf_printf(&b, "%s%s: ", n++ ? ", " : "", keys[i]);
        put_node(&b, v);
    }
    wf_buf_printf(&b, "}}\n");
    st = b.st ? b.st : weft_learned_add_text(run->learned, WF_LEARNED_JOB, b.data);
    wf_buf_free(&b);
    return st;
}

/* model={file: "path"}, with the path relative to the process. */
static weft_status model_set(weft_ctx *ctx, const char *path, struct wf_buf *b)
{
    wf_buf_init(b, ctx, 1 << 16);
    wf_buf_printf(b, "model={file: ");
    put_text(b, path);
    wf_buf_printf(b, "}");
    return b->st;
}

weft_status weft_job_of_model(weft_ctx *ctx, const char *path, int n_sets, const char *const *sets,
                              weft_job **out)
{
    const char **all = wf_alloc_n(ctx, n_sets + 1, sizeof *all), *text;
    weft_learned *l = NULL;
    struct wf_buf model = {.ctx = ctx};
    weft_status st = all ? weft_learned_load(ctx, path, &l) : wf_err_nomem(ctx, 0, "a job");

    text = st ? NULL : weft_learned_text(l, WF_LEARNED_JOB);
    if (st == WEFT_ENOENT || (!st && !text))
        st = wf_err_wrap(
            st ? st : wf_err(WEFT_ENOENT, "%s: it has no saved job", path),
            "this model was saved without its pipeline: give the job file, and --model");
    if (!st)
        st = model_set(ctx, path, &model);
    if (!st) {
        all[0] = model.data;
        for (int i = 0; i < n_sets; i++)
            all[i + 1] = sets[i];
        /* a name without a directory: paths start from the process's own */
        st = weft_job_parse(ctx, "model", text, (int64_t)strlen(text), n_sets + 1, all, out);
    }
    wf_buf_free(&model);
    weft_learned_free(l);
    wf_free(ctx, all);
    return st;
}
