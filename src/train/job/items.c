/* items.c - items of a job's lists with their arguments: "- Dense: {units: 10}". */
#define _GNU_SOURCE
#include <string.h>

#include "train/job/job.h"

/* Whether it can be passed unquoted in a list of attributes. */
static bool is_plain(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || strchr("\"[]\\", *p) || *p == 127)
            return false;
    return *text;
}

void wf_job_put_value(struct wf_buf *b, const struct wf_yaml_node *n)
{
    if (n->kind == WF_YAML_LIST) {
        wf_buf_printf(b, "[");
        for (int64_t i = 0; i < n->n; i++) {
            wf_buf_printf(b, "%s", i ? "," : "");
            wf_job_put_value(b, n->item[i]);
        }
        wf_buf_printf(b, "]");
    } else if (n->quoted || !is_plain(n->text)) {
        wf_attr_quote(b, n->text);
    } else {
        wf_buf_printf(b, "%s", n->text);
    }
}

/* Whether a text of words separated by blanks has this one. */
static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = words; p && *p; p += strspn(p, " ")) {
        if (strcspn(p, " ") == n && strncmp(p, word, n) == 0)
            return true;
        p += strcspn(p, " ");
    }
    return false;
}

weft_status wf_job_attrs(const weft_job *job, const struct wf_yaml_node *map, const char *skip,
                         const char **out)
{
    struct wf_arena *a = (struct wf_arena *)&job->yaml.arena;
    struct wf_buf b;
    weft_status st = WEFT_OK;

    *out = NULL;
    if (!map)
        return WEFT_OK;
    if (map->kind != WF_YAML_MAP)
        return wf_yaml_err(&job->yaml, map, WEFT_EINVAL,
                           "arguments must be a map: {name: value, …}");
    wf_buf_init(&b, job->ctx, 1 << 20);
    for (int64_t i = 0; i < map->n && !st; i++) {
        if (has_word(skip, map->key[i]->text))
            continue;
        if (map->item[i]->kind == WF_YAML_MAP)
            st = wf_yaml_err(&job->yaml, map->item[i], WEFT_EINVAL, "'%s' takes a value, not a map",
                             map->key[i]->text);
        wf_buf_printf(&b, "%s%s=", b.len ? " " : "", map->key[i]->text);
        wf_job_put_value(&b, map->item[i]);
    }
    if (!st && (b.st || !(*out = wf_arena_strdup(a, b.data ? b.data : ""))))
        st = wf_err_nomem(job->ctx, 0, "the job");
    wf_buf_free(&b);
    return st;
}

weft_status wf_job_item(const weft_job *job, const struct wf_yaml_node *item, const char **name,
                        struct wf_yaml_node **args)
{
    *args = NULL;
    if (item->kind == WF_YAML_SCALAR && *item->text) {
        *name = item->text;
        return WEFT_OK;
    }
    if (item->kind != WF_YAML_MAP || item->n != 1)
        return wf_yaml_err(
            &job->yaml, item, WEFT_EINVAL,
            "an item must be a name, or a name with arguments: \"- Dense: {units: 10}\"");
    *name = item->key[0]->text;
    if (item->item[0]->kind == WF_YAML_MAP)
        *args = item->item[0];
    else if (item->item[0]->kind != WF_YAML_SCALAR || *item->item[0]->text)
        return wf_yaml_err(&job->yaml, item->item[0], WEFT_EINVAL,
                           "the arguments of '%s' must be a map: {name: value, …}", *name);
    return WEFT_OK;
}
