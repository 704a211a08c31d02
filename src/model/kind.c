/* kind.c - layer types: the table of layers.def, and those that a user registered in a model.
 *
 * Argument texts are parsed once per model and type, when the first layer of the type is
 * created. */
#include <stdio.h>

#include "model/core.h"
#include "model/layers.h"

static const weft_layer_kind builtin[] = {
#define LAYER(name, in_min, in_max, attrs, flags, build, doc) \
    {sizeof(weft_layer_kind), name, in_min, in_max, attrs, flags, build, doc},
#include "model/layers.def"
#undef LAYER
};

bool weft_layer_kind_at(int i, const char **name, const char **attrs, const char **doc)
{
    if (i < 0 || i >= WF_COUNT(builtin))
        return false;
    if (name)
        *name = builtin[i].name;
    if (attrs)
        *attrs = builtin[i].attrs;
    if (doc)
        *doc = builtin[i].doc;
    return true;
}

bool weft_layer_kind_wraps(int i)
{
    return i >= 0 && i < WF_COUNT(builtin) && builtin[i].flags & WEFT_LAYER_WRAPS;
}

static const weft_layer_kind *find_kind(const weft_model *m, const char *name)
{
    for (int64_t i = 0; i < m->n_user; i++)
        if (!strcmp(m->user_kinds[i].name, name))
            return &m->user_kinds[i];
    for (int i = 0; i < WF_COUNT(builtin); i++)
        if (!strcmp(builtin[i].name, name))
            return &builtin[i];
    return NULL;
}

static weft_status unknown(const weft_model *m, const char *name)
{
    const char *names[WF_COUNT(builtin) + 64];
    struct wf_hint hint;
    int n = 0;

    for (int i = 0; i < WF_COUNT(builtin); i++)
        names[n++] = builtin[i].name;
    for (int64_t i = 0; i < m->n_user && i < 64; i++)
        names[n++] = m->user_kinds[i].name;
    hint = wf_did_you_mean(name, names, n);
    return wf_err(WEFT_ENOENT, "no layer type '%.64s'%s", name,
                  *hint.text ? hint.text : " (register your own with weft_layer_register)");
}

static weft_status make_row(weft_model *m, const weft_layer_kind *kind,
                            const struct wf_layer_row **out)
{
    struct wf_layer_row *row = wf_arena_alloc(&m->arena, sizeof *row);
    size_t room = strlen(kind->attrs ? kind->attrs : "") + 32;
    char *text = wf_arena_alloc(&m->arena, room);
    weft_status st;

    if (!row || !text)
        return wf_err_nomem(m->ctx, sizeof *row, "layer kind");
    snprintf(text, room, "name:s= trainable:b=1 %s", kind->attrs ? kind->attrs : "");
    row->kind = *kind;
    st = wf_attr_specs(&m->arena, kind->name, text, row->spec, &row->n_specs);
    if (!st)
        st = wf_grow(m->ctx, &m->rows, &m->cap_rows, m->n_rows + 1, sizeof *m->rows);
    if (st)
        return st;
    m->rows[m->n_rows++] = row;
    *out = row;
    return WEFT_OK;
}

weft_status wf_kind_find(weft_model *m, const char *name, const struct wf_layer_row **out)
{
    const weft_layer_kind *kind;

    if (!name)
        return wf_err(WEFT_EINVAL, "needs a layer type");
    for (int64_t i = 0; i < m->n_rows; i++)
        if (!strcmp(m->rows[i]->kind.name, name)) {
            *out = m->rows[i];
            return WEFT_OK;
        }
    kind = find_kind(m, name);
    return kind ? make_row(m, kind, out) : unknown(m, name);
}

weft_status weft_layer_register(weft_model *m, const weft_layer_kind *given)
{
    weft_layer_kind kind;
    weft_status st = wf_opts_take(&kind, sizeof kind, given, "weft_layer_kind");

    if (st)
        return st;
    if (!kind.name || !*kind.name || strlen(kind.name) > 64 || !kind.build)
        return wf_err(WEFT_EINVAL, "a layer kind needs a name of 1 to 64 characters and a build "
                                   "function");
    if (find_kind(m, kind.name))
        return wf_err(WEFT_EEXIST, "layer kind '%s': the name is taken", kind.name);
    st = wf_grow(m->ctx, &m->user_kinds, &m->cap_user, m->n_user + 1, sizeof *m->user_kinds);
    if (!st)
        m->user_kinds[m->n_user++] = kind;
    return st;
}
