/* generic.c - any op by its name, with attributes as text: "axis=-1 keepdims=true perm=[1,0] dtype=f32". */
#include <stdlib.h>

#include "graph/graph.h"

enum { MAX_LIST = 4096, MAX_STRING = 256 };

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
    return c == '\0' || c == ' ' || c == '\t' || c == ',' || c == ']' || c == '\n';
}

static weft_status parse_int(const char *name, const char **p, int64_t *out)
{
    char *end;

    *out = strtoll(*p, &end, 10);
    if (end == *p || !ends(*end))
        return bad_value(name, *p, "an integer");
    *p = end;
    return WEFT_OK;
}

static weft_status parse_float(const char *name, const char **p, double *out)
{
    char *end;

    *out = strtod(*p, &end);
    if (end == *p || !ends(*end))
        return bad_value(name, *p, "a number");
    *p = end;
    return WEFT_OK;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A bare word, or a quoted string in which \xx stands for a byte. */
static weft_status parse_word(const char *name, const char **p, char out[MAX_STRING])
{
    bool quoted = **p == '"';
    const char *from = *p + quoted;
    size_t n = quoted ? strcspn(from, "\"\n") : strcspn(from, " \t\n,]"), at = 0;

    if (n >= MAX_STRING || (quoted && from[n] != '"'))
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
    char word[MAX_STRING];
    const char *at = *p;
    weft_status st = parse_word(name, p, word);

    if (st)
        return st;
    *out = !strcmp(word, "true") || !strcmp(word, "1");
    if (!*out && strcmp(word, "false") && strcmp(word, "0"))
        return bad_value(name, at, "true or false");
    return WEFT_OK;
}

static weft_status parse_list(weft_graph *g, const char *name, const char **p, struct wf_attr *a)
{
    int64_t *ints = wf_arena_alloc(&g->arena, MAX_LIST * sizeof *ints);
    double *floats = (double *)(void *)ints; /* one of the two views is used */
    weft_status st = WEFT_OK;

    if (!ints)
        return wf_err_nomem(g->ctx, MAX_LIST * sizeof *ints, "attribute");
    if (**p != '[')
        return bad_value(name, *p, "a list like [1,2]");
    (*p)++;
    skip_spaces(p);
    while (**p != ']') {
        if (a->n == MAX_LIST)
            return wf_err(WEFT_ELIMIT, "attribute '%s': over %d items", name, MAX_LIST);
        st = a->kind == WF_INTS ? parse_int(name, p, &ints[a->n])
                                : parse_float(name, p, &floats[a->n]);
        if (st)
            return st;
        a->n++;
        skip_spaces(p);
        if (**p == ',')
            (*p)++;
        else if (**p != ']')
            return bad_value(name, *p, "',' or ']'");
        skip_spaces(p);
    }
    (*p)++;
    if (a->kind == WF_INTS)
        a->ints = ints;
    else
        a->floats = floats;
    return st;
}

static weft_status parse_value(weft_graph *g, const char *name, const char **p, struct wf_attr *a)
{
    char word[MAX_STRING];
    weft_dtype t;
    weft_status st;

    switch (a->kind) {
    case WF_INT: return parse_int(name, p, &a->i);
    case WF_BOOL: return parse_bool(name, p, &a->i);
    case WF_FLOAT: return parse_float(name, p, &a->f);
    case WF_STR:
        st = parse_word(name, p, word);
        if (st)
            return st;
        a->s = wf_arena_strdup(&g->arena, word);
        return a->s ? WEFT_OK : wf_err_nomem(g->ctx, sizeof word, "attribute");
    case WF_DTYPE:
        st = parse_word(name, p, word);
        if (!st)
            st = weft_dtype_parse(word, &t);
        if (!st)
            a->i = t;
        return st;
    default: return parse_list(g, name, p, a);
    }
}

weft_status wf_parse_attrs(weft_graph *g, const struct wf_op *op, const char *text,
                           const char **end, struct wf_set sets[WF_MAX_ATTRS], int *n_sets)
{
    const char *p = text;

    *n_sets = 0;
    for (skip_spaces(&p); *p && !strchr("\n\"@^#{", *p); skip_spaces(&p)) {
        size_t n = strcspn(p, "= \t\n");
        int i = 0;
        struct wf_set *s;
        weft_status st;

        if (p[n] != '=')
            return wf_err(WEFT_EPARSE, "%s: expected attribute=value at '%.24s'", op->name, p);
        while (i < op->n_attrs &&
               (strlen(op->attr[i].name) != n || strncmp(op->attr[i].name, p, n)))
            i++;
        if (i == op->n_attrs)
            return wf_err(WEFT_ENOENT, "%s: has no attribute '%.*s'", op->name,
                          (int)(n < 32 ? n : 32), p);
        if (*n_sets == WF_MAX_ATTRS)
            return wf_err(WEFT_ELIMIT, "%s: too many attributes", op->name);
        s = &sets[(*n_sets)++];
        *s = (struct wf_set){op->attr[i].name, {.kind = op->attr[i].value.kind}};
        p += n + 1;
        st = parse_value(g, s->name, &p, &s->value);
        if (st)
            return wf_err_wrap(st, "%s", op->name);
    }
    *end = p;
    return WEFT_OK;
}

weft_val weft_op(weft_graph *g, const char *name, int n_in, const weft_val *in, const char *attrs)
{
    const struct wf_op *op;
    struct wf_set sets[WF_MAX_ATTRS];
    const char *end = "";
    int n_sets = 0;
    weft_status st = WEFT_OK;

    if (g->st)
        return WEFT_NIL;
    op = wf_op_find(g->ctx, name);
    if (!op)
        st = wf_err(WEFT_ENOENT, "no op '%s' (a user op must be registered in this context)", name);
    else if (op->flags & WF_LEAF)
        st = wf_err(WEFT_EINVAL, "'%s' is built by a function of its own", name);
    else if (attrs)
        st = wf_parse_attrs(g, op, attrs, &end, sets, &n_sets);
    if (!st && *end)
        st = wf_err(WEFT_EPARSE, "%s: unexpected text at '%.24s'", name, end);
    if (st) {
        wf_graph_fail(g, st);
        return WEFT_NIL;
    }
    return wf_build_row(g, op, n_in, in, n_sets, sets);
}
