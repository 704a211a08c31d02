/* stages.c - the table of stages, and a stage by its name and the text of its arguments. */
#include <stdio.h>

#include "data/stage/stages.h"

#define STATS WF_STAGE_STATS
#define WORDS WF_STAGE_WORDS
#define ROWS WF_STAGE_ROWS
#define STACKS WF_STAGE_STACKS
#define READS WF_STAGE_READS
#define AFTER WF_STAGE_AFTER
#define TRAIN WF_STAGE_TRAIN
static const struct wf_stage_row rows[] = {
#define STAGE(name, attrs, flags, call, doc) {#name, attrs, wf_add_##name, flags, #call, doc},
#define CODE(call, reason)
#include "data/stage/stages.def"
#undef STAGE
#undef CODE
};

static const struct {
    const char *call, *reason;
} code[] = {
#define STAGE(name, attrs, flags, call, doc)
#define CODE(call, reason) {#call, reason},
#include "data/stage/stages.def"
#undef STAGE
#undef CODE
};

const struct wf_stage_row *wf_stage_row_at(int i)
{
    return i >= 0 && i < WF_COUNT(rows) ? &rows[i] : NULL;
}

const char *wf_stage_code_at(int i, const char **reason)
{
    if (i < 0 || i >= WF_COUNT(code))
        return NULL;
    *reason = code[i].reason;
    return code[i].call;
}

bool weft_ds_stage_at(int i, const char **name, const char **attrs, const char **call,
                      const char **doc)
{
    const struct wf_stage_row *row = wf_stage_row_at(i);

    if (!row)
        return false;
    if (name)
        *name = row->name;
    if (attrs)
        *attrs = row->attrs;
    if (call)
        *call = row->call;
    if (doc)
        *doc = row->doc;
    return true;
}

weft_status wf_stage_find(const char *name, const struct wf_stage_row **out)
{
    const char *names[WF_COUNT(rows)];

    for (int i = 0; i < WF_COUNT(rows); i++) {
        names[i] = rows[i].name;
        if (strcmp(rows[i].name, name) == 0) {
            *out = &rows[i];
            return WEFT_OK;
        }
    }
    return wf_err(WEFT_ENOENT, "no stage '%.64s'%s", name,
                  wf_did_you_mean(name, names, WF_COUNT(rows)).text);
}

/* ---- what a stage learns --------------------------------------------------------------------- */

bool wf_next_name(const char **at, const char **name, size_t *n)
{
    const char *p = *at;

    do {
        p += strspn(p, " ,");
        *name = p;
        p += strcspn(p, ",");
        *n = (size_t)(p - *name);
    } while (*p && !*n);
    while (*n && (*name)[*n - 1] == ' ')
        --*n;
    *at = p;
    return *n > 0;
}

static weft_status name_words(struct wf_arena *arena, const struct wf_stage_row *row,
                              const char *list, int64_t top, struct wf_stage_items *out)
{
    const char *name;
    size_t n;

    while (wf_next_name(&list, &name, &n)) {
        size_t room = strlen(row->name) + n + 32;
        char *column = wf_arena_alloc(arena, n + 1), *text = wf_arena_alloc(arena, room);
        int len;

        if (!column || !text)
            return wf_err_nomem(arena->ctx, room, "a stage");
        memcpy(column, name, n);
        len = snprintf(text, room, "%s %s", row->name, column);
        if (top)
            snprintf(text + len, room - (size_t)len, " top=%lld", (long long)top);
        out->column[out->n] = column;
        out->name[out->n++] = text;
    }
    return WEFT_OK;
}

static weft_status name_stats(struct wf_arena *arena, const struct wf_stage_row *row,
                              const char *list, struct wf_stage_items *out)
{
    size_t room = strlen(row->name) + strlen(list) + 2, at, n;
    char *text = wf_arena_alloc(arena, room);
    const char *name;

    if (!text)
        return wf_err_nomem(arena->ctx, room, "a stage");
    out->column[0] = list;
    at = (size_t)snprintf(text, room, "%s ", row->name);
    for (bool first = true; wf_next_name(&list, &name, &n); first = false)
        at += (size_t)snprintf(text + at, room - at, "%s%.*s", first ? "" : ",", (int)n, name);
    out->name[0] = text;
    out->n = 1;
    return WEFT_OK;
}

weft_status wf_stage_items(struct wf_arena *arena, const struct wf_stage_row *row,
                           const struct wf_attr_spec *spec, int n_specs,
                           const struct wf_attr *value, struct wf_stage_items *out)
{
    const char *list = wf_attr_find(spec, n_specs, value, "columns")->s, *at = list, *name;
    size_t n, n_names = 0;

    *out = (struct wf_stage_items){0};
    if (!(row->flags & WF_STAGE_LEARNS))
        return WEFT_OK;
    while (wf_next_name(&at, &name, &n))
        n_names++;
    if (!n_names)
        return wf_err(WEFT_EINVAL, "%s: '%s' names no column", row->name, list);
    out->name = wf_arena_alloc(arena, (n_names + 1) * sizeof *out->name);
    out->column = wf_arena_alloc(arena, (n_names + 1) * sizeof *out->column);
    if (!out->name || !out->column)
        return wf_err_nomem(arena->ctx, n_names * sizeof *out->name, "a stage");
    return row->flags & WF_STAGE_STATS
               ? name_stats(arena, row, list, out)
               : name_words(arena, row, list, wf_attr_find(spec, n_specs, value, "top")->i, out);
}

/* ---- for builders ---------------------------------------------------------------------------- */

int wf_stage_arg_word(const struct wf_adding *a, const char *name, const char *words)
{
    const char *given = wf_stage_arg_text(a, name);
    size_t len = strlen(given), n;
    int i = 0;

    for (const char *p = words; *p; p += n + (p[n] == ' '), i++) {
        n = strcspn(p, " ");
        if (n == len && memcmp(p, given, n) == 0)
            return i;
    }
    wf_ds_fail(a->d, a->row->name,
               wf_err(WEFT_EINVAL, "%s is one of: %s; not '%.64s'", name, words, given));
    return -1;
}

/* A path as the process sees it, with a suffix; "" stays. */
static const char *path_of(const struct wf_adding *a, const char *path, const char *suffix)
{
    bool inside = a->dir && *a->dir && *path != '/';
    size_t room = strlen(path) + strlen(suffix) + (inside ? strlen(a->dir) : 0) + 2;
    char *full;

    if (!*path || (!inside && !*suffix))
        return path;
    full = wf_arena_alloc(&a->d->arena, room);
    if (full)
        snprintf(full, room, "%s%s%s%s", inside ? a->dir : "", inside ? "/" : "", path, suffix);
    else
        wf_ds_fail(a->d, a->row->name, wf_err_nomem(a->d->ctx, room, "a path"));
    return full;
}

const char *wf_stage_arg_output(const struct wf_adding *a, const char *name)
{
    const char *path = path_of(a, wf_stage_arg_text(a, name), a->suffix ? a->suffix : "");

    return path && *path ? path : NULL;
}

/* ---- a stage by its name --------------------------------------------------------------------- */

static bool is_learned(const weft_learned *l, const char *name)
{
    return weft_learned_vocab(l, name) || weft_learned_stats(l, name);
}

/* What is missing is read from the file of words, or learned from a->s. */
static weft_status learn_missing(struct wf_adding *a, weft_learned *l)
{
    const struct wf_stage_items *items = &a->items;
    const char *file = path_of(a, wf_stage_arg_text(a, "vocabulary"), "");
    weft_learn *what;
    int n = 0, bad;
    weft_status st = file ? WEFT_OK : WEFT_ENOMEM;

    what = wf_alloc_n(a->d->ctx, items->n + 1, sizeof *what);
    if (!what)
        return wf_err_nomem(a->d->ctx, sizeof *what, "what a stage learns");
    for (int k = 0; k < items->n && !st; k++) {
        weft_vocab *v = NULL;

        if (is_learned(l, items->name[k]))
            continue;
        if (*file) {
            st = weft_vocab_read(a->d->ctx, file, &v);
            if (!st)
                st = weft_learned_add_vocab(l, items->name[k], v);
            continue;
        }
        what[n++] = (weft_learn){.name = items->name[k],
                                 .kind = a->row->flags & WF_STAGE_STATS ? WEFT_LEARNED_STATS
                                                                        : WEFT_LEARNED_VOCAB,
                                 .columns = items->column[k],
                                 .top = wf_stage_arg_int(a, "top")};
    }
    if (!st && n)
        st = wf_learned_from(l, a->d, a->s, n, what, &bad);
    wf_free(a->d->ctx, what);
    return st;
}

static weft_status learn(struct wf_adding *a, weft_learned *l)
{
    weft_status st;

    if (!(a->row->flags & WF_STAGE_LEARNS))
        return WEFT_OK;
    if (!l)
        return wf_err(WEFT_EINVAL,
                      "the stage learns from data: give weft_stage_opts.learned, or "
                      "call %s",
                      a->row->call);
    st = wf_stage_items(&a->d->arena, a->row, a->spec, a->n_specs, a->value, &a->items);
    return st ? st : learn_missing(a, l);
}

weft_ds weft_ds_stage(weft_data *d, weft_ds s, const char *stage, const char *args,
                      const weft_stage_opts *opts)
{
    weft_stage_opts o;
    struct wf_attr_spec spec[WF_MAX_ATTRS];
    struct wf_attr value[WF_MAX_ATTRS];
    struct wf_adding a = {.d = d, .s = s, .spec = spec, .value = value};
    weft_status st = weft_data_status(d);

    if (st)
        return (weft_ds){0};
    st = wf_opts_take(&o, sizeof o, opts, "weft_stage_opts");
    if (!st)
        st = wf_stage_find(stage ? stage : "", &a.row);
    if (st)
        return wf_ds_fail(d, "stage", st);
    memset(spec, 0, sizeof spec);
    st = wf_attr_specs(&d->arena, stage, a.row->attrs, spec, &a.n_specs);
    if (!st)
        st = wf_attr_values(&d->arena, stage, spec, a.n_specs, args, value);
    if (st)
        return wf_ds_fail(d, "stage", st);
    a.learned = o.learned;
    a.seed = o.seed;
    a.dir = o.dir;
    st = learn(&a, o.learned);
    return st ? wf_ds_fail(d, stage, st) : a.row->add(&a);
}
