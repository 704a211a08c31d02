/* word.c - a name with arguments, as activations, initializers, regularizers and constraints are
 * written: "l2", "l2(0.01)", "truncated_normal(mean=0,stddev=0.1)". */
#include <stdio.h>

#include "model/core.h"

enum { MAX_WORD = 256, MAX_NAMES = 64 };

bool wf_word_none(const char *text)
{
    return !text || !*text || !strcmp(text, "none") || !strcmp(text, "None");
}

/* The same name, ignoring case and underscores. */
static bool same_name(const char *a, const char *b, size_t n_b)
{
    const char *end = b + n_b;

    for (;;) {
        while (*a == '_')
            a++;
        while (b < end && *b == '_')
            b++;
        if (!*a || b == end)
            return !*a && b == end;
        if (wf_to_lower(*a++) != wf_to_lower(*b++))
            return false;
    }
}

static const struct wf_word *row_at(const struct wf_words *t, int i)
{
    return (const struct wf_word *)(const void *)((const char *)t->rows + (size_t)i * t->row_size);
}

static weft_status unknown(const struct wf_words *t, const char *text, size_t n)
{
    const char *names[MAX_NAMES];
    char word[64];
    int n_names = t->n_rows < MAX_NAMES ? t->n_rows : MAX_NAMES;

    for (int i = 0; i < n_names; i++)
        names[i] = row_at(t, i)->name;
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
    return wf_err(WEFT_ENOENT, "no %s '%s'%s", t->what, word,
                  wf_did_you_mean(word, names, n_names).text);
}

/* "0,0.05" or "mean=0,stddev=0.05" as attribute text; a list in brackets is one argument. */
static weft_status arguments(const struct wf_word_args *a, const char *name, const char *p,
                             size_t n, char out[2 * MAX_WORD])
{
    size_t at = 0;
    int k = 0;

    out[0] = '\0';
    while (n) {
        size_t len = 0;
        bool keyword = false;
        int depth = 0;

        for (; len < n && (depth || p[len] != ','); len++) {
            depth += (p[len] == '[' || p[len] == '(') - (p[len] == ']' || p[len] == ')');
            keyword |= p[len] == '=';
        }
        while (len && *p == ' ') {
            p++;
            len--;
            n--;
        }
        if (!keyword && k >= a->n_specs)
            return wf_err(WEFT_EPARSE, "%s: takes %d arguments", name, a->n_specs);
        at += (size_t)snprintf(out + at, 2 * MAX_WORD - at, "%s%s%.*s ",
                               keyword ? "" : a->spec[k].name, keyword ? "" : "=", (int)len, p);
        if (at >= 2 * MAX_WORD)
            return wf_err(WEFT_ELIMIT, "%s: its arguments are too long", name);
        k++;
        p += len + (len < n);
        n -= len + (len < n);
    }
    return WEFT_OK;
}

weft_status wf_word_parse(const struct wf_words *t, struct wf_arena *arena, const char *text,
                          struct wf_word_args *out)
{
    size_t n = strcspn(text, "("), len = strlen(text);
    const struct wf_word *w = NULL;
    char args[2 * MAX_WORD] = "";
    weft_status st;

    if (len >= MAX_WORD || (n < len && text[len - 1] != ')'))
        return wf_err(WEFT_EPARSE, "%s: expected name or name(arguments) at '%.24s'", t->what,
                      text);
    for (int i = 0; i < t->n_rows && !w; i++)
        if (same_name(row_at(t, i)->name, text, n))
            w = row_at(t, i);
    if (!w)
        return unknown(t, text, n);
    memset(out, 0, sizeof *out);
    out->row = w;
    st = wf_attr_specs(arena, w->name, w->attrs, out->spec, &out->n_specs);
    if (!st && n < len)
        st = arguments(out, w->name, text + n + 1, len - n - 2, args);
    if (!st)
        st = wf_attr_values(arena, w->name, out->spec, out->n_specs, args, out->value);
    return wf_err_wrap(st, "%s", t->what);
}
