/* yaml.c - libyaml's events into a tree. Errors have line and column. */
#define _GNU_SOURCE
#include "base/yaml.h"

#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

#define MAX_DEPTH 64
#define MAX_NODES 200000

struct reader {
    struct wf_yaml *y;
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    int64_t n_nodes;
};

weft_status wf_yaml_wrap(const struct wf_yaml *y, const struct wf_yaml_node *n, weft_status st)
{
    if (n && n->line)
        return wf_err_wrap(st, "%s:%d:%d", y->name, n->line, n->column);
    return n ? wf_err_wrap(st, "--set") : wf_err_wrap(st, "%s", y->name);
}

weft_status wf_yaml_err(const struct wf_yaml *y, const struct wf_yaml_node *n, weft_status st,
                        const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    wf_errv(st, fmt, args);
    va_end(args);
    return wf_yaml_wrap(y, n, st);
}

const char *wf_yaml_kind_name(const struct wf_yaml_node *n)
{
    return n->kind == WF_YAML_MAP ? "a map" : n->kind == WF_YAML_LIST ? "a list" : "a value";
}

static weft_status nomem(const struct wf_yaml *y)
{
    return wf_err(WEFT_ENOMEM, "%s: out of memory", y->name);
}

static struct wf_yaml_node *new_node(struct wf_yaml *y, enum wf_yaml_kind kind, yaml_mark_t mark)
{
    struct wf_yaml_node *n = wf_arena_alloc(&y->arena, sizeof *n);

    if (!n)
        return NULL;
    n->kind = kind;
    n->line = (int)mark.line + 1;
    n->column = (int)mark.column + 1;
    n->text = "";
    return n;
}

/* Room in the arena for one more item; the old array is abandoned. */
static bool add_item(struct wf_yaml *y, struct wf_yaml_node *n, struct wf_yaml_node *key,
                     struct wf_yaml_node *item)
{
    if (n->n == n->cap) {
        int64_t cap = n->cap ? n->cap * 2 : 8;
        struct wf_yaml_node **items = wf_arena_alloc(&y->arena, (size_t)cap * sizeof *items);
        struct wf_yaml_node **keys = wf_arena_alloc(&y->arena, (size_t)cap * sizeof *keys);

        if (!items || !keys)
            return false;
        if (n->n) {
            memcpy(items, n->item, (size_t)n->n * sizeof *items);
            memcpy(keys, n->key, (size_t)n->n * sizeof *keys);
        }
        n->item = items;
        n->key = keys;
        n->cap = cap;
    }
    n->key[n->n] = key;
    n->item[n->n++] = item;
    return true;
}

struct wf_yaml_node *wf_yaml_get(const struct wf_yaml_node *map, const char *key)
{
    for (int64_t i = 0; map && map->kind == WF_YAML_MAP && i < map->n; i++)
        if (strcmp(map->key[i]->text, key) == 0)
            return map->item[i];
    return NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status next_event(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;

    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
    if (yaml_parser_parse(&r->parser, &r->event)) {
        r->has_event = true;
        return WEFT_OK;
    }
    if (p->error == YAML_MEMORY_ERROR)
        return nomem(r->y);
    return wf_err(WEFT_EPARSE, "%s:%d:%d: %s%s%s", r->y->name, (int)p->problem_mark.line + 1,
                  (int)p->problem_mark.column + 1, p->problem ? p->problem : "not YAML",
                  p->context ? " " : "", p->context ? p->context : "");
}

static weft_status read_node(struct reader *r, int depth, struct wf_yaml_node **out);

static weft_status read_scalar(struct reader *r, struct wf_yaml_node *n)
{
    const char *text = (const char *)r->event.data.scalar.value;
    size_t len = r->event.data.scalar.length;
    char *copy;

    if (memchr(text, 0, len))
        return wf_yaml_err(r->y, n, WEFT_EPARSE, "a NUL character in a value");
    n->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    copy = wf_arena_alloc(&r->y->arena, len + 1);
    if (!copy)
        return nomem(r->y);
    memcpy(copy, text, len);
    n->text = !n->quoted && (strcmp(copy, "~") == 0 || strcmp(copy, "null") == 0) ? "" : copy;
    return WEFT_OK;
}

/* A key of a map; `seen` has those before it. */
static weft_status read_key(struct reader *r, int depth, struct wf_map *seen,
                            struct wf_yaml_node **out)
{
    weft_status st = read_node(r, depth + 1, out);
    const struct wf_yaml_node *key = *out;

    if (st)
        return st;
    if (key->kind != WF_YAML_SCALAR)
        return wf_yaml_err(r->y, key, WEFT_EPARSE, "a key must be a word");
    if (wf_map_get(seen, key->text, NULL))
        return wf_yaml_err(r->y, key, WEFT_EPARSE, "'%s' is given twice", key->text);
    st = wf_map_put(seen, key->text, 0);
    return st ? nomem(r->y) : next_event(r);
}

/* Items until the end event; those of maps come as key and value. */
static weft_status read_items(struct reader *r, int depth, struct wf_yaml_node *n)
{
    yaml_event_type_t end =
        n->kind == WF_YAML_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    struct wf_map seen;
    weft_status st = next_event(r);

    wf_map_init(&seen, r->y->arena.ctx);
    while (!st && r->event.type != end) {
        struct wf_yaml_node *key = NULL, *item = NULL;

        if (n->kind == WF_YAML_MAP)
            st = read_key(r, depth, &seen, &key);
        if (!st)
            st = read_node(r, depth + 1, &item);
        if (!st && !add_item(r->y, n, key, item))
            st = nomem(r->y);
        if (!st)
            st = next_event(r);
    }
    wf_map_free(&seen);
    return st;
}

/* The node that the current event begins. */
static weft_status read_node(struct reader *r, int depth, struct wf_yaml_node **out)
{
    yaml_mark_t mark = r->event.start_mark;
    enum wf_yaml_kind kind = r->event.type == YAML_MAPPING_START_EVENT    ? WF_YAML_MAP
                             : r->event.type == YAML_SEQUENCE_START_EVENT ? WF_YAML_LIST
                                                                          : WF_YAML_SCALAR;
    struct wf_yaml_node *n = new_node(r->y, kind, mark);

    if (!n)
        return nomem(r->y);
    if (depth > MAX_DEPTH || ++r->n_nodes > MAX_NODES)
        return wf_yaml_err(r->y, n, WEFT_ELIMIT, "nested too deeply, or too large");
    *out = n;
    switch (r->event.type) {
    case YAML_SCALAR_EVENT: return read_scalar(r, n);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT: return read_items(r, depth, n);
    case YAML_ALIAS_EVENT:
        return wf_yaml_err(r->y, n, WEFT_ENOSUP, "aliases (*name) are not supported");
    default: return wf_yaml_err(r->y, n, WEFT_EPARSE, "unexpected content here");
    }
}

static weft_status read_document(struct reader *r)
{
    weft_status st = next_event(r);

    while (!st &&
           (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_START_EVENT))
        st = next_event(r);
    if (st)
        return st;
    if (r->event.type == YAML_STREAM_END_EVENT) {
        r->y->root = new_node(r->y, WF_YAML_MAP, (yaml_mark_t){0, 0, 0});
        return r->y->root ? WEFT_OK : nomem(r->y);
    }
    st = read_node(r, 0, &r->y->root);
    if (!st)
        st = next_event(r);
    if (!st && r->event.type == YAML_DOCUMENT_END_EVENT)
        st = next_event(r);
    if (!st && r->event.type != YAML_STREAM_END_EVENT)
        st = wf_err(WEFT_EPARSE, "%s:%d: a second document begins", r->y->name,
                    (int)r->event.start_mark.line + 1);
    return st;
}

weft_status wf_yaml_parse(weft_ctx *ctx, const char *name, const char *text, int64_t n,
                          struct wf_yaml *out)
{
    struct reader r = {.y = out};
    weft_status st;

    *out = (struct wf_yaml){.name = name};
    wf_arena_init(&out->arena, ctx);
    if (!yaml_parser_initialize(&r.parser))
        return nomem(out);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, (size_t)n);
    st = read_document(&r);
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}

void wf_yaml_free(struct wf_yaml *y)
{
    if (y->arena.ctx)
        wf_arena_free(&y->arena);
}

/* ---- overrides ------------------------------------------------------------------------------- */

static void forget_places(struct wf_yaml_node *n)
{
    n->line = 0;
    for (int64_t i = 0; i < n->n; i++) {
        forget_places(n->item[i]);
        if (n->key[i])
            n->key[i]->line = 0;
    }
}

/* The text after '=' as a tree in y's arena. */
static weft_status parse_value(struct wf_yaml *y, const char *text, struct wf_yaml_node **out)
{
    struct reader r = {.y = y};
    struct wf_yaml_node *root = y->root;
    weft_status st;

    if (!yaml_parser_initialize(&r.parser))
        return nomem(y);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, strlen(text));
    st = read_document(&r);
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (!st) {
        *out = y->root;
        if (!*text) /* "key=": an empty value, not an empty map */
            (*out)->kind = WF_YAML_SCALAR;
        forget_places(*out);
    }
    y->root = root;
    return st;
}

/* The child with this name or number, added to a map if missing. */
static weft_status step(struct wf_yaml *y, struct wf_yaml_node *at, const char *word,
                        struct wf_yaml_node ***out)
{
    struct wf_yaml_node *key, *made;

    if (at->kind == WF_YAML_LIST) {
        int64_t i = -1;

        if (!wf_text_i64(word, &i) || i < 0 || i >= at->n)
            return wf_err(WEFT_EINVAL, "--set: '%s' is not one of the %lld items of a list", word,
                          (long long)at->n);
        *out = &at->item[i];
        return WEFT_OK;
    }
    if (at->kind == WF_YAML_SCALAR) { /* a value is replaced by a map */
        at->kind = WF_YAML_MAP;
        at->text = "";
    }
    for (int64_t i = 0; i < at->n; i++)
        if (strcmp(at->key[i]->text, word) == 0) {
            *out = &at->item[i];
            return WEFT_OK;
        }
    key = new_node(y, WF_YAML_SCALAR, (yaml_mark_t){0, 0, 0});
    made = new_node(y, WF_YAML_MAP, (yaml_mark_t){0, 0, 0});
    if (!key || !made || !(key->text = wf_arena_strdup(&y->arena, word)) ||
        !add_item(y, at, key, made))
        return nomem(y);
    key->line = made->line = 0;
    *out = &at->item[at->n - 1];
    return WEFT_OK;
}

weft_status wf_yaml_set(struct wf_yaml *y, const char *assignment)
{
    const char *eq = strchr(assignment, '=');
    struct wf_yaml_node **at = &y->root, *value = NULL;
    char path[512], *save = NULL;
    weft_status st = WEFT_OK;

    if (!eq || eq == assignment || eq - assignment >= (int64_t)sizeof path)
        return wf_err(WEFT_EINVAL, "--set takes key=value, not '%.60s'", assignment);
    memcpy(path, assignment, (size_t)(eq - assignment));
    path[eq - assignment] = 0;
    if (path[0] == '.' || eq[-1] == '.' || strstr(path, ".."))
        return wf_err(WEFT_EINVAL, "--set: '%.60s' has a dot with no word next to it", path);
    for (char *word = strtok_r(path, ".", &save); word && !st; word = strtok_r(NULL, ".", &save))
        st = step(y, *at, word, &at);
    if (!st)
        st = parse_value(y, eq + 1, &value);
    if (!st)
        *at = value;
    return st;
}
