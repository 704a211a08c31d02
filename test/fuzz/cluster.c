/* Fuzz target: descriptions of clusters. The first byte chooses the source; variables are lines
 * "NAME=VALUE". Whatever the text, reading ends with a status and a message; a description that was
 * accepted reads back as itself. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static weft_ctx *ctx;

/* The text of the tasks gives the same text again. */
static void check(const weft_cluster *c)
{
    weft_cluster again;

    wf_cluster_init(&again, ctx, NULL);
    if (wf_from_text(&again, c->text.data) || wf_cluster_finish(&again) ||
        again.n_tasks != c->n_tasks || strcmp(again.text.data, c->text.data) != 0)
        abort();
    wf_cluster_clear(&again);
    if (c->process >= c->n_processes)
        abort();
}

static weft_status from_env(char *text, weft_cluster **out)
{
    const char *env[65];
    int n = 0;

    for (char *line = text; line && n < 64; n++) {
        char *end = strchr(line, '\n');

        env[n] = line;
        if (end)
            *end++ = '\0';
        line = end;
    }
    env[n] = NULL;
    return weft_cluster_find(ctx,
                             WEFT_OPTS(weft_cluster_opts, .env = env,
                                       .hosts = wf_env_get(env, "HOSTS"),
                                       .ps = wf_env_get(env, "TWO") ? 2 : 0),
                             out);
}

static weft_status read_one(int source, char *text, size_t n, weft_cluster *c)
{
    struct wf_hosts h;
    int64_t count[64], got;
    bool there = true;
    weft_status st;

    switch (source) {
    case 't': return wf_from_text(c, text);
    case 'y': return wf_from_yaml(c, "cluster.yaml", text, (int64_t)n);
    case 'j':
        st = wf_from_tf_config(c, text, &there);
        return st || there ? st : wf_err(WEFT_ENOENT, "nothing there");
    case 'h':
        st = wf_hosts_parse(ctx, text, &h);
        wf_hosts_free(&h);
        return st ? st : wf_err(WEFT_ENOENT, "a list only");
    default:
        st = wf_hosts_counts(text, count, 64, &got);
        if (!st && (got < 1 || got > 64))
            abort();
        return st ? st : wf_err(WEFT_ENOENT, "a list only");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_cluster c, *found = NULL;
    weft_status st;
    char *text;

    if (size < 1 || size > 1 << 16)
        return 0;
    if (!ctx && weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    wf_cluster_init(&c, ctx, NULL);
    if (data[0] == 'e') {
        st = from_env(text, &found);
        if (!st)
            check(found);
        weft_cluster_free(found);
    } else {
        st = read_one(data[0], text, size - 1, &c);
        if (!st)
            st = wf_cluster_finish(&c);
        if (!st)
            check(&c);
    }
    if (st && !weft_error()[0])
        abort();
    wf_cluster_clear(&c);
    free(text);
    return 0;
}
