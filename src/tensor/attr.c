/* attr.c - attributes as text: what a row takes ("axis:i=-1 keepdims:b=0"), and the values given to
 * it ("axis=0 keepdims=true perm=[1,0]"). Ops, layers and stages of data use the same two.
 *
 * Everything kept is in the arena; a value is written only when it is complete. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "tensor/attr.h"

enum { MAX_LIST = 4096, MAX_WORD = 256, MAX_TEXT = 1 << 20, MAX_DEPTH = 4 };

static bool kind_of(char c, enum wf_attr_kind *out)
{
    static const char letters[] = "ifbslFt";
    static const enum wf_attr_kind kinds[] = {WF_INT,  WF_FLOAT,  WF_BOOL, WF_STR,
                                              WF_INTS, WF_FLOATS, WF_DTYPE};
    const char *p = c ? strchr(letters, c) : NULL;

    if (!p)
        return false;
    *out = kinds[p - letters];
    return true;
}

/* ---- one value ------------------------------------------------------------------------------- */

static void skip_spaces(const char **p)
{
    while (**p == ' ' || **p == '\t')
        (*p)++;
}

static weft_status bad_value(const char *name, const char *at, const char *what)
{
    return wf_err(WEFT_EPARSE, "attribute '%s': expected %s at '%.24s'", name, what, at);
}

static bool ends(char c)
{
    return c == '\0' || strchr(" \t\n,])", c);
}

/* Length of the text up to the next end, after skipping leading spaces. */
static int64_t number_length(const char **p)
{
    int64_t n = 0;

    while (wf_is_space(**p))
        (*p)++;
    while (!ends((*p)[n]))
        n++;
    return n;
}

static weft_status parse_int(const char *name, const char **p, int64_t *out)
{
    int64_t n = number_length(p);

    if (!wf_parse_i64(*p, n, out))
        return bad_value(name, *p, "an integer");
    *p += n;
    return WEFT_OK;
}

static weft_status parse_float(const char *name, const char **p, double *out)
{
    int64_t n = number_length(p);

    if (!wf_parse_f64(*p, n, out))
        return bad_value(name, *p, "a number");
    *p += n;
    return WEFT_OK;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The length of a bare word: up to a space, but spaces in parentheses belong to it:
 * random_normal(0, 0.05). */
static size_t word_length(const char *p)
{
    size_t n = 0;
    int depth = 0;

    for (; p[n] && p[n] != '\n'; n++) {
        if (!depth && strchr(" \t", p[n]))
            break;
        depth += (p[n] == '(') - (p[n] == ')');
    }
    return depth ? strcspn(p, " \t\n") : n;
}

/* A bare word, or a quoted string in which \xx means a byte. */
static size_t text_length(const char *p)
{
    return *p == '"' ? strcspn(p + 1, "\"\n") : word_length(p);
}

static weft_status parse_word(const char *name, const char **p, char *out, size_t max)
{
    bool quoted = **p == '"';
    const char *from = *p + quoted;
    size_t n = text_length(*p), at = 0;

    if (n >= max)
        return bad_value(name, *p, "a shorter text");
    if (quoted && from[n] != '"')
        return bad_value(name, *p, "a word or a quoted string");
    for (size_t i = 0; i < n; i++) {
        if (from[i] == '\\') {
            if (i + 2 >= n || hex(from[i + 1]) < 0 || hex(from[i + 2]) < 0 ||
                !(hex(from[i + 1]) | hex(from[i + 2])))
                return bad_value(name, from + i, "two hexadecimal digits after a backslash");
            out[at++] = (char)(hex(from[i + 1]) << 4 | hex(from[i + 2]));
            i += 2;
        } else {
            out[at++] = from[i];
        }
    }
    out[at] = '\0';
    *p = from + n + quoted;
    return WEFT_OK;
}

static weft_status parse_bool(const char *name, const char **p, int64_t *out)
{
    static const char *const words[] = {"false", "true", "0", "1", "False", "True"};
    char word[MAX_WORD];
    const char *at = *p;
    weft_status st = parse_word(name, p, word, sizeof word);

    for (int i = 0; i < WF_COUNT(words) && !st; i++)
        if (!strcmp(word, words[i])) {
            *out = i % 2;
            return WEFT_OK;
        }
    return st ? st : bad_value(name, at, "true or false");
}

/* The maximum number of items in the list at p: commas up to its end. */
static int64_t list_room(const char *p)
{
    int64_t n = 1;
    int depth = 0;

    for (; *p && *p != '\n'; p++) {
        depth += (*p == '[' || *p == '(') - (*p == ']' || *p == ')');
        n += *p == ',';
        if (depth <= 0)
            break;
    }
    return n;
}

static weft_status list_item(const char *name, const char **p, struct wf_attr *a, int64_t room,
                             void *items)
{
    if (a->n == MAX_LIST || a->n == room)
        return wf_err(WEFT_ELIMIT, "attribute '%s': more than %d items", name, MAX_LIST);
    return a->kind == WF_INTS ? parse_int(name, p, (int64_t *)items + a->n++)
                              : parse_float(name, p, (double *)items + a->n++);
}

/* [1,2] or (1,2); inner brackets are ignored: ((1,1),(2,2)) is 1,1,2,2. A single number means a
 * list of one. */
static weft_status parse_list(struct wf_arena *arena, const char *name, const char **p,
                              struct wf_attr *a)
{
    char close[MAX_DEPTH];
    int depth = 0;
    int64_t room = list_room(*p);
    void *items;
    weft_status st = WEFT_OK;

    if (room > MAX_LIST)
        return wf_err(WEFT_ELIMIT, "attribute '%s': more than %d items", name, MAX_LIST);
    items = wf_arena_alloc(arena, (size_t)room * sizeof(int64_t));
    if (!items)
        return wf_err_nomem(arena->ctx, (size_t)room * sizeof(int64_t), "attribute");
    a->n = 0;
    do {
        while (**p == '[' || **p == '(') {
            if (depth == MAX_DEPTH)
                return bad_value(name, *p, "fewer brackets");
            close[depth++] = **p == '[' ? ']' : ')';
            (*p)++;
            skip_spaces(p);
        }
        if (!(depth && **p == close[depth - 1]))
            st = list_item(name, p, a, room, items);
        if (st)
            return st;
        while (depth) {
            skip_spaces(p);
            if (**p != close[depth - 1])
                break;
            depth--;
            (*p)++;
        }
        if (depth && **p != ',')
            return bad_value(name, *p, close[depth - 1] == ']' ? "',' or ']'" : "',' or ')'");
        if (depth) {
            (*p)++;
            skip_spaces(p);
        }
    } while (depth);
    if (a->kind == WF_INTS)
        a->ints = items;
    else
        a->floats = items;
    return st;
}

static weft_status parse_dtype(const char *name, const char **p, struct wf_attr *a)
{
    char word[MAX_WORD];
    weft_dtype t;
    weft_status st = parse_word(name, p, word, sizeof word);

    if (!st)
        st = weft_dtype_parse(word, &t);
    if (!st)
        a->i = t;
    return st;
}

static weft_status parse_value(struct wf_arena *arena, const char *name, const char **p,
                               struct wf_attr *a)
{
    size_t room;
    char *text;
    weft_status st;

    switch (a->kind) {
    case WF_INT: return parse_int(name, p, &a->i);
    case WF_BOOL: return parse_bool(name, p, &a->i);
    case WF_FLOAT: return parse_float(name, p, &a->f);
    case WF_DTYPE: return parse_dtype(name, p, a);
    case WF_STR:
        room = text_length(*p) + 1;
        room = room < MAX_TEXT ? room : MAX_TEXT;
        text = wf_arena_alloc(arena, room);
        if (!text)
            return wf_err_nomem(arena->ctx, room, "attribute");
        st = parse_word(name, p, text, room);
        a->s = text;
        return st;
    default: return parse_list(arena, name, p, a);
    }
}

/* ---- declarations ---------------------------------------------------------------------------- */

static weft_status parse_default(struct wf_arena *arena, struct wf_attr_spec *s, const char *text)
{
    const char *end = text;
    weft_status st;

    s->value.given = true;
    if (s->value.kind == WF_STR) {
        s->value.s = text;
        return WEFT_OK;
    }
    if (!*text && (s->value.kind == WF_INTS || s->value.kind == WF_FLOATS))
        return WEFT_OK;
    st = parse_value(arena, s->name, &end, &s->value);
    return st || !*end ? st : bad_value(s->name, end, "nothing more");
}

weft_status wf_attr_specs(struct wf_arena *arena, const char *what, const char *text,
                          struct wf_attr_spec spec[WF_MAX_ATTRS], int *n_specs)
{
    char *copy = wf_arena_strdup(arena, text ? text : ""), *save = NULL;

    *n_specs = 0;
    if (!copy)
        return wf_err_nomem(arena->ctx, 0, "attributes");
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(w, ':'), *eq = strchr(w, '=');
        struct wf_attr_spec *s = &spec[*n_specs];
        enum wf_attr_kind kind;

        if (*n_specs == WF_MAX_ATTRS || !colon || !kind_of(colon[1], &kind) ||
            (colon[2] && eq != colon + 2))
            return wf_err(WEFT_EPARSE, "%s: attribute text '%s' is malformed", what, w);
        *colon = '\0';
        *s = (struct wf_attr_spec){.name = w, .value.kind = kind};
        if (eq && parse_default(arena, s, eq + 1))
            return wf_err_wrap(WEFT_EPARSE, "%s", what);
        ++*n_specs;
    }
    return WEFT_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static weft_status no_attribute(const char *what, const struct wf_attr_spec *spec, int n_specs,
                                const char *given, size_t n)
{
    const char *names[WF_MAX_ATTRS];
    char word[33];

    for (int i = 0; i < n_specs; i++)
        names[i] = spec[i].name;
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), given);
    return wf_err(WEFT_ENOENT, "%s: has no attribute '%s'%s", what, word,
                  wf_did_you_mean(word, names, n_specs).text);
}

static bool is_space(char c, const char *stop)
{
    return c == ' ' || c == '\t' || (c == '\n' && !strchr(stop, '\n'));
}

weft_status wf_attr_parse(struct wf_arena *arena, const char *what, const struct wf_attr_spec *spec,
                          int n_specs, const char *text, const char *stop, const char **end,
                          struct wf_set sets[WF_MAX_ATTRS], int *n_sets)
{
    const char *p = text;

    for (*n_sets = 0;;) {
        size_t n;
        int i = 0;
        struct wf_set *s;
        weft_status st;

        while (is_space(*p, stop))
            p++;
        if (!*p || strchr(stop, *p))
            break;
        n = strcspn(p, "= \t\n");
        if (p[n] != '=')
            return wf_err(WEFT_EPARSE, "%s: expected attribute=value at '%.24s'", what, p);
        while (i < n_specs && (strlen(spec[i].name) != n || strncmp(spec[i].name, p, n)))
            i++;
        if (i == n_specs)
            return no_attribute(what, spec, n_specs, p, n);
        for (int k = 0; k < *n_sets; k++)
            if (sets[k].name == spec[i].name)
                return wf_err(WEFT_EPARSE, "%s: attribute '%s' is given twice", what, spec[i].name);
        s = &sets[(*n_sets)++];
        *s = (struct wf_set){spec[i].name, {.kind = spec[i].value.kind, .given = true}};
        p += n + 1;
        st = parse_value(arena, s->name, &p, &s->value);
        if (!st && !is_space(*p, stop) && *p && !strchr(stop, *p))
            st = bad_value(s->name, p, "a space");
        if (st)
            return wf_err_wrap(st, "%s", what);
    }
    *end = p;
    return WEFT_OK;
}

weft_status wf_attr_values(struct wf_arena *arena, const char *what,
                           const struct wf_attr_spec *spec, int n_specs, const char *text,
                           struct wf_attr values[WF_MAX_ATTRS])
{
    struct wf_set sets[WF_MAX_ATTRS];
    const char *end;
    int n_sets = 0;
    weft_status st =
        wf_attr_parse(arena, what, spec, n_specs, text ? text : "", "", &end, sets, &n_sets);

    if (st)
        return st;
    for (int i = 0; i < n_specs; i++) {
        int k = 0;

        while (k < n_sets && sets[k].name != spec[i].name)
            k++;
        if (k == n_sets && !spec[i].value.given)
            return wf_err(WEFT_EINVAL, "%s: attribute '%s' must be given", what, spec[i].name);
        values[i] = k < n_sets ? sets[k].value : spec[i].value;
        values[i].given = k < n_sets;
    }
    return WEFT_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A word that reads back without quotes. */
static bool is_bare(const char *s)
{
    if (!*s || *s == '[' || *s == '(')
        return false;
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p <= ' ' || strchr("\"\\@^#{", *p) || *p == 127)
            return false;
    return word_length(s) == strlen(s);
}

void wf_attr_quote(struct wf_buf *b, const char *s)
{
    wf_buf_add(b, "\"", 1);
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\' || *s == 127)
            wf_buf_printf(b, "\\%02x", (unsigned char)*s);
        else
            wf_buf_add(b, s, 1);
    wf_buf_add(b, "\"", 1);
}

/* The fewest digits that read back as the same number. */
static void write_float(struct wf_buf *b, double v)
{
    char text[WF_NUMBER_TEXT];

    wf_buf_printf(b, "%s", wf_g_text(v, text));
}

bool wf_attr_is_default(const struct wf_attr *a, const struct wf_attr *d)
{
    if (!d->given)
        return false;
    switch (a->kind) {
    case WF_STR: return !strcmp(a->s ? a->s : "", d->s ? d->s : "");
    case WF_FLOAT: return !memcmp(&a->f, &d->f, sizeof a->f);
    case WF_INTS:
        return a->n == d->n && (!a->n || !memcmp(a->ints, d->ints, (size_t)a->n * sizeof *a->ints));
    case WF_FLOATS:
        return a->n == d->n &&
               (!a->n || !memcmp(a->floats, d->floats, (size_t)a->n * sizeof *a->floats));
    default: return a->i == d->i;
    }
}

void wf_attr_write(struct wf_buf *b, const char *name, const struct wf_attr *a, bool quote)
{
    const char *s = a->s ? a->s : "";

    wf_buf_printf(b, " %s=", name);
    switch (a->kind) {
    case WF_INT: wf_buf_printf(b, "%lld", (long long)a->i); break;
    case WF_BOOL: wf_buf_printf(b, a->i ? "true" : "false"); break;
    case WF_FLOAT: write_float(b, a->f); break;
    case WF_DTYPE: wf_buf_printf(b, "%s", weft_dtype_name((weft_dtype)a->i)); break;
    case WF_STR:
        if (quote || !is_bare(s))
            wf_attr_quote(b, s);
        else
            wf_buf_printf(b, "%s", s);
        break;
    case WF_INTS:
    case WF_FLOATS:
        wf_buf_add(b, "[", 1);
        for (int i = 0; i < a->n; i++) {
            wf_buf_printf(b, "%s", i ? "," : "");
            if (a->kind == WF_INTS)
                wf_buf_printf(b, "%lld", (long long)a->ints[i]);
            else
                write_float(b, a->floats[i]);
        }
        wf_buf_add(b, "]", 1);
        break;
    }
}

/* ---- values by name -------------------------------------------------------------------------- */

const struct wf_attr *wf_attr_find(const struct wf_attr_spec *spec, int n_specs,
                                   const struct wf_attr *values, const char *name)
{
    static const struct wf_attr none;

    for (int i = 0; i < n_specs; i++)
        if (!strcmp(spec[i].name, name))
            return &values[i];
    return &none;
}
