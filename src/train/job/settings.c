/* settings.c - settings of a run compared with those of a later command, key by key. */
#include <stdlib.h>

#include "train/job/settings.h"

/* The first row whose name is the key, or a prefix of it, decides; all others are about
 * training. */
static const struct use {
    const char *name;
    enum wf_setting_use use;
} uses[] = {
    {"name", WF_SET_FREE},
    {"save", WF_SET_FREE},
    {"log", WF_SET_FREE},
    {"checkpoint", WF_SET_FREE},
    {"data.test", WF_SET_FREE},
    {"train.epochs", WF_SET_FREE},
    {"train.trap_numerics", WF_SET_FREE},
    {"train.strategy", WF_SET_FREE},
    {"cluster", WF_SET_FREE},
    {"train.total_num_replicas", WF_SET_FREE},
    {"resources.threads", WF_SET_FREE},
    {"resources.data_threads", WF_SET_FREE},
    {"resources.spin_us", WF_SET_FREE},
    {"resources.memory", WF_SET_FREE},
    {"resources.device_memory", WF_SET_FREE},
    {"resources.device_preallocate", WF_SET_FREE},
    {"resources.device_cache", WF_SET_FREE},
    {"resources.soft_placement", WF_SET_FREE},
    {"model.file", WF_SET_START},
    {"model.weights", WF_SET_START},
    {"model", WF_SET_MODEL},
    {"data.pipeline", WF_SET_MODEL},
    {"train.loss", WF_SET_MODEL},
};

enum wf_setting_use wf_setting_use(const char *key)
{
    for (int i = 0; i < WF_COUNT(uses); i++) {
        size_t n = strlen(uses[i].name);

        if (strncmp(key, uses[i].name, n) == 0 && (!key[n] || key[n] == '.'))
            return uses[i].use;
    }
    return WF_SET_TRAINING;
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct line {
    const char *key, *value;
};

struct lines {
    char *text; /* split in place */
    int64_t n;
    struct line *line; /* by key */
};

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->key, ((const struct line *)b)->key);
}

static weft_status cut_lines(weft_ctx *ctx, const char *text, struct lines *out)
{
    int64_t n = 0;
    char *p;

    for (const char *c = text; *c; c++)
        n += *c == '\n';
    out->text = wf_strdup(ctx, text);
    out->line = wf_alloc_n(ctx, n + 2, sizeof *out->line);
    if (!out->text || !out->line)
        return wf_err_nomem(ctx, 0, "settings");
    for (p = out->text; *p;) {
        char *end = p + strcspn(p, "\n"), *eq;

        if (*end)
            *end++ = 0;
        eq = strchr(p, '=');
        if (eq) {
            *eq = 0;
            out->line[out->n++] = (struct line){p, eq + 1};
        }
        p = end;
    }
    if (out->n)
        qsort(out->line, (size_t)out->n, sizeof *out->line, by_key);
    return WEFT_OK;
}

bool wf_setting_content(const char *key)
{
    size_t n = strlen(key), m = strlen(WF_SET_CONTENT);

    return n > m && strcmp(key + n - m, WF_SET_CONTENT) == 0;
}

weft_status wf_settings_compare(weft_ctx *ctx, const char *then, const char *now, wf_setting_fn *fn,
                                void *arg)
{
    struct lines a = {0}, b = {0};
    weft_status st = cut_lines(ctx, then, &a);
    int64_t i = 0, k = 0;

    if (!st)
        st = cut_lines(ctx, now, &b);
    while (!st && (i < a.n || k < b.n)) {
        int order = i == a.n ? 1 : k == b.n ? -1 : strcmp(a.line[i].key, b.line[k].key);
        const char *key = order <= 0 ? a.line[i].key : b.line[k].key;
        const char *absent = wf_setting_content(key) ? NULL : wf_job_key_default(key);
        const char *was = order <= 0 ? a.line[i].value : absent;
        const char *is = order >= 0 ? b.line[k].value : absent;

        if (was && is && strcmp(was, is) != 0 && wf_setting_use(key) != WF_SET_FREE)
            fn(arg, key, wf_setting_use(key), was, is);
        i += order <= 0;
        k += order >= 0;
    }
    wf_free(ctx, a.text);
    wf_free(ctx, a.line);
    wf_free(ctx, b.text);
    wf_free(ctx, b.line);
    return st;
}
