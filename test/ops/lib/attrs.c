/* attrs.c - "axis=-1 perm=[1,0] dtype=f32" to a node. Written apart from the library's reader on
 * purpose. */
#include <stdio.h>
#include <stdlib.h>

#include "ops/harness.h"

#define MAX_LIST 64

struct parsed {
    struct wf_set set[WF_MAX_ATTRS];
    char name[WF_MAX_ATTRS][64], text[WF_MAX_ATTRS][256];
    int64_t ints[WF_MAX_ATTRS][MAX_LIST];
    double floats[WF_MAX_ATTRS][MAX_LIST];
};

static int read_list(const char *text, int64_t *ints, double *floats)
{
    int n = 0;

    for (const char *p = text; *p && *p != ']' && n < MAX_LIST;) {
        char *end;

        if (*p == '[' || *p == ',') {
            p++;
            continue;
        }
        floats[n] = strtod(p, &end);
        ints[n] = strtoll(p, NULL, 10);
        if (end == p)
            break;
        n++;
        p = end;
    }
    return n;
}

static weft_status read_value(struct parsed *p, int i, enum wf_attr_kind kind)
{
    struct wf_attr *a = &p->set[i].value;
    const char *t = p->text[i];
    weft_dtype d = WEFT_NONE;

    a->kind = kind;
    switch (kind) {
    case WF_INT: a->i = strtoll(t, NULL, 10); break;
    case WF_BOOL: a->i = !strcmp(t, "true") || !strcmp(t, "1"); break;
    case WF_FLOAT: a->f = strtod(t, NULL); break;
    case WF_STR: a->s = t; break;
    case WF_DTYPE:
        if (weft_dtype_parse(t, &d))
            return WEFT_EPARSE;
        a->i = d;
        break;
    default:
        a->n = read_list(t, p->ints[i], p->floats[i]);
        a->ints = p->ints[i];
        a->floats = p->floats[i];
    }
    return WEFT_OK;
}

weft_val op_build_text(weft_graph *g, const char *op, int n_in, const weft_val *in,
                       const char *attrs)
{
    const struct wf_op *row = wf_op_find(g->ctx, op);
    struct parsed *p = calloc(1, sizeof *p);
    weft_val v = WEFT_NIL;
    int n = 0, used;

    if (!row || !p) {
        wf_graph_fail(g, wf_err(WEFT_ENOENT, "no op '%s'", op));
        goto out;
    }
    for (const char *t = attrs ? attrs : ""; n < WF_MAX_ATTRS; t += used, n++) {
        int k = 0;

        if (sscanf(t, " %63[^= ]=%255[^ ]%n", p->name[n], p->text[n], &used) < 2)
            break;
        while (k < row->n_attrs && strcmp(row->attr[k].name, p->name[n]))
            k++;
        p->set[n].name = p->name[n];
        if (read_value(p, n, k < row->n_attrs ? row->attr[k].value.kind : WF_INT)) {
            wf_graph_fail(g, WEFT_EPARSE);
            goto out;
        }
    }
    v = wf_build_row(g, row, n_in, in, n, p->set);
out:
    free(p);
    return v;
}
