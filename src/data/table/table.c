/* table.c - from a table's options to the columns of a dataset. */
#include <math.h>

#include "data/table/table.h"

weft_status wf_table_alloc(weft_data *d, int64_t n, size_t size, void *out)
{
    int64_t bytes;
    void *p = NULL;

    if (wf_mul_i64(n, (int64_t)size, &bytes))
        p = wf_arena_alloc(&d->arena, (size_t)bytes + 1);
    if (!p)
        return wf_err_nomem(d->ctx, (size_t)n * size, "the columns of a table");
    memcpy(out, &p, sizeof p);
    return WEFT_OK;
}

const char *wf_table_text(weft_data *d, const char *p, int64_t n)
{
    char *s = NULL;

    if (wf_table_alloc(d, n + 1, 1, &s))
        return NULL;
    if (n)
        memcpy(s, p, (size_t)n);
    s[n] = 0;
    return s;
}

/* ---- groups and types ------------------------------------------------------------------------ */

/* Adds the columns in `list` to a group. */
static weft_status add_members(struct wf_table *t, struct wf_columns_group *g, weft_str list,
                               bool *taken)
{
    const char *text = wf_table_text(t->d, list.data, list.n), *at = text;
    weft_str item;
    weft_status st = text ? WEFT_OK : WEFT_ENOMEM;

    while (!st && wf_columns_next(&at, ',', &item)) {
        int first, last;

        st = wf_columns_range(&t->names, item, &first, &last);
        for (int f = first; f <= last && !st; f++) {
            if (taken[f])
                st = wf_err(WEFT_EINVAL, "column '%s' is in two groups", t->names.name[f]);
            taken[f] = true;
            g->member[g->n++] = f;
        }
    }
    return st;
}

static weft_status read_groups(struct wf_table *t)
{
    int n = 1;
    weft_str item, name, list;
    bool *taken = NULL;
    weft_status st;

    for (const char *p = t->groups; p && *p; p++)
        n += *p == ';';
    st = wf_table_alloc(t->d, n, sizeof *t->names.group, &t->names.group);
    if (!st)
        st = wf_table_alloc(t->d, t->names.n, sizeof *taken, &taken);
    for (const char *at = t->groups; !st && wf_columns_next(&at, ';', &item);) {
        struct wf_columns_group *g = &t->names.group[t->names.n_groups];

        wf_columns_cut(item, "=", &name, &list);
        if (!name.n || !list.n)
            return wf_err(WEFT_EINVAL, "group '%.*s': write \"name = column, column..column\"",
                          (int)item.n, item.data);
        g->name = wf_table_text(t->d, name.data, name.n);
        st =
            g->name ? wf_table_alloc(t->d, t->names.n, sizeof *g->member, &g->member) : WEFT_ENOMEM;
        if (!st)
            st = add_members(t, g, list, taken);
        if (st)
            return wf_err_wrap(st, "group '%.*s'", (int)name.n, name.data);
        t->names.n_groups++;
    }
    return st;
}

static weft_status declare(void *arg, int column, weft_str value)
{
    struct wf_table *t = arg;

    for (int k = WF_FIELD_F32; k < WF_FIELD_N_KINDS; k++) {
        if (value.data && wf_str_is(value, wf_field_kind_name[k])) {
            t->kind[column] = (enum wf_field_kind)k;
            t->declared[column] = true;
            return WEFT_OK;
        }
    }
    return wf_err(WEFT_EDTYPE,
                  "types: column '%s': '%.*s' is not one of f32 f64 i64 i32 i8 u8 bool str hex",
                  t->names.name[column], (int)value.n, value.data ? value.data : "");
}

weft_status wf_table_begin(struct wf_table *t)
{
    weft_status st = wf_table_alloc(t->d, t->names.n, sizeof *t->kind, &t->kind);

    if (!st)
        st = wf_table_alloc(t->d, t->names.n, sizeof *t->declared, &t->declared);
    if (!st)
        st = read_groups(t);
    return st ? st : wf_columns_each(&t->names, t->types, declare, t);
}

/* One kind for all members: if it was inferred, i64 becomes f32. */
static weft_status unify(struct wf_table *t, const struct wf_columns_group *g)
{
    enum wf_field_kind kind = t->kind[g->member[0]];

    for (int i = 0; i < g->n; i++)
        if (t->declared[g->member[i]] || t->kind[g->member[i]] == WF_FIELD_F32)
            kind = t->kind[g->member[i]];
    for (int i = 0; i < g->n; i++) {
        int f = g->member[i];

        if (!t->declared[f] && t->kind[f] == WF_FIELD_I64 &&
            (kind == WF_FIELD_F32 || kind == WF_FIELD_F64))
            t->kind[f] = kind;
        if (wf_field_dtype(t->kind[f]) != wf_field_dtype(kind))
            return wf_err(WEFT_EDTYPE,
                          "group '%s': column '%s' is %s, but others are %s: declare one type",
                          g->name, t->names.name[f], wf_field_kind_name[t->kind[f]],
                          wf_field_kind_name[kind]);
    }
    return WEFT_OK;
}

/* ---- columns --------------------------------------------------------------------------------- */

/* The columns to yield: fields, and groups. */
struct picked {
    int n;
    int *field, *group;          /* one of them is -1 */
    bool *has_field, *has_group; /* which are picked */
};

static weft_status pick(struct wf_table *t, struct picked *p, int field, int group)
{
    bool *has = group >= 0 ? &p->has_group[group] : &p->has_field[field];

    if (*has)
        return wf_err(WEFT_EEXIST, "'%s' is selected twice",
                      group >= 0 ? t->names.group[group].name : t->names.name[field]);
    *has = true;
    p->field[p->n] = field;
    p->group[p->n++] = group;
    return WEFT_OK;
}

/* All columns in the order of the file that are not yet picked, groups at the position of their
 * first member. */
static weft_status pick_rest(struct wf_table *t, struct picked *p)
{
    int *group_of = NULL;
    weft_status st = wf_table_alloc(t->d, t->names.n, sizeof *group_of, &group_of);

    for (int f = 0; f < t->names.n && !st; f++)
        group_of[f] = -1;
    for (int g = 0; g < t->names.n_groups && !st; g++)
        for (int i = 0; i < t->names.group[g].n; i++)
            group_of[t->names.group[g].member[i]] = g;
    for (int f = 0; f < t->names.n && !st; f++) {
        int g = group_of[f];

        if (!(g >= 0 ? p->has_group[g] : p->has_field[f]))
            st = pick(t, p, g >= 0 ? -1 : f, g);
    }
    return st;
}

static weft_status pick_item(struct wf_table *t, struct picked *p, weft_str item)
{
    int g = wf_columns_find_group(&t->names, item), first, last;
    weft_status st;

    if (g >= 0)
        return pick(t, p, -1, g);
    st = wf_columns_range(&t->names, item, &first, &last);
    for (int f = first; f <= last && !st; f++)
        st = pick(t, p, f, -1);
    return st;
}

static weft_status pick_columns(struct wf_table *t, struct picked *p)
{
    weft_str item;
    bool rest = !t->select;
    weft_status st = wf_table_alloc(t->d, t->names.n + t->names.n_groups, sizeof(int), &p->field);

    if (!st)
        st = wf_table_alloc(t->d, t->names.n + t->names.n_groups, sizeof(int), &p->group);
    if (!st)
        st = wf_table_alloc(t->d, t->names.n, sizeof(bool), &p->has_field);
    if (!st)
        st = wf_table_alloc(t->d, t->names.n_groups, sizeof(bool), &p->has_group);
    for (const char *at = t->select; !st && wf_columns_next(&at, ',', &item);) {
        if (wf_str_is(item, "*"))
            rest = true;
        else
            st = pick_item(t, p, item);
    }
    if (!st && rest)
        st = pick_rest(t, p);
    if (!st && p->n == 0)
        st = wf_err(WEFT_EINVAL, "no column is selected");
    return st;
}

/* Field f is item `item` of column c. */
static weft_status assign(struct wf_table *t, struct wf_row_layout *l, int f, int c, int64_t item)
{
    if (l->field[f].col >= 0)
        return wf_err(
            WEFT_EINVAL,
            "column '%s' is selected both alone and in a group: a field can go to one place only",
            t->names.name[f]);
    l->field[f].kind = t->kind[f];
    l->field[f].col = c;
    l->field[f].item = item;
    return WEFT_OK;
}

static weft_status set_roles(struct wf_ds *ds, const char *list, weft_role role)
{
    weft_str item;

    for (const char *at = list; wf_columns_next(&at, ',', &item);) {
        bool found = false;

        for (int c = 0; c < ds->n_cols; c++) {
            if (wf_str_is(item, ds->col[c].name)) {
                ds->col[c].role = role;
                found = true;
            }
        }
        if (!found) {
            const char *name = wf_table_text(ds->data, item.data, item.n);

            return name ? wf_ds_err_column(ds, name) : WEFT_ENOMEM;
        }
    }
    return WEFT_OK;
}

struct defaults {
    struct wf_table *t;
    struct wf_row_layout *l;
};

static weft_status set_default(void *arg, int column, weft_str value)
{
    struct defaults *s = arg;
    struct wf_field *f = &s->l->field[column];
    const char *text;

    if (f->kind == WF_FIELD_SKIP)
        return WEFT_OK;
    text = value.data ? wf_table_text(s->t->d, value.data, value.n) : NULL;
    if (!value.data || !text)
        return value.data ? WEFT_ENOMEM
                          : wf_err(WEFT_EINVAL, "defaults: column '%s' has no value", f->name);
    if (f->kind ==
        WF_FIELD_HEX) /* the point of a default is a value that no hexadecimal text has */
        f->has_default = wf_field_convert(WF_FIELD_I64, text, value.n, &f->missing);
    else
        f->has_default = wf_field_convert(f->kind, text, value.n, &f->missing);
    if (!f->has_default)
        return wf_err(WEFT_EINVAL, "defaults: column '%s': '%s' is not a valid %s", f->name, text,
                      wf_field_kind_name[f->kind]);
    return WEFT_OK;
}

/* Consecutive fields of one kind become runs. */
static weft_status make_runs(weft_data *d, struct wf_row_layout *l)
{
    weft_status st = wf_table_alloc(d, l->n_fields, sizeof *l->run, &l->run);

    for (int f = 0; f < l->n_fields && !st; f++) {
        if (l->n_runs == 0 || l->run[l->n_runs - 1].kind != l->field[f].kind)
            l->run[l->n_runs++] = (struct wf_field_run){l->field[f].kind, f, f};
        l->run[l->n_runs - 1].last = f + 1;
    }
    return st;
}

static weft_status make_columns(struct wf_table *t, struct wf_ds *ds, struct wf_row_layout *l,
                                const struct picked *p)
{
    weft_column *col = NULL;
    weft_status st = wf_table_alloc(t->d, p->n, sizeof *col, &col);

    for (int c = 0; c < p->n && !st; c++) {
        int64_t dim = 1;

        if (p->group[c] < 0) {
            col[c] = wf_column_of(t->names.name[p->field[c]], wf_field_dtype(t->kind[p->field[c]]),
                                  0, NULL);
            st = assign(t, l, p->field[c], c, 0);
            continue;
        }
        const struct wf_columns_group *g = &t->names.group[p->group[c]];

        dim = g->n;
        st = unify(t, g);
        col[c] = wf_column_of(g->name, wf_field_dtype(t->kind[g->member[0]]), 1, &dim);
        for (int i = 0; i < g->n && !st; i++)
            st = assign(t, l, g->member[i], c, i);
    }
    return st ? st : wf_ds_set_columns(ds, p->n, col);
}

weft_status wf_table_finish(struct wf_table *t, struct wf_ds *ds, struct wf_row_layout *l)
{
    struct picked p = {0};
    struct defaults defaults = {t, l};
    weft_status st = wf_table_alloc(t->d, t->names.n, sizeof *l->field, &l->field);

    if (st)
        return st;
    l->n_fields = t->names.n;
    for (int f = 0; f < l->n_fields; f++)
        l->field[f] = (struct wf_field){.name = t->names.name[f], .col = -1};
    st = pick_columns(t, &p);
    if (!st)
        st = make_columns(t, ds, l, &p);
    for (int f = 0; f < l->n_fields && !st; f++) {
        l->field[f].has_default =
            l->field[f].kind == WF_FIELD_F32 || l->field[f].kind == WF_FIELD_F64;
        l->field[f].missing.f = NAN;
    }
    if (!st)
        st = wf_columns_each(&t->names, t->defaults, set_default, &defaults);
    if (!st)
        st = set_roles(ds, t->weight, WEFT_WEIGHT);
    if (!st)
        st = set_roles(ds, t->label, WEFT_LABEL);
    for (int f = 0; f < l->n_fields && !st; f++) {
        struct wf_field *field = &l->field[f];

        field->needed = field->col >= 0 && ds->col[field->col].role == WEFT_LABEL &&
                        field->kind == WF_FIELD_STR && !t->d->empty_labels;
    }
    return st ? st : make_runs(t->d, l);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

weft_status wf_table_block(struct wf_ds *ds, struct wf_env *env, int64_t n, bool origins,
                           struct wf_block **out)
{
    struct wf_block *b = NULL;
    weft_status st = wf_block_new(env, ds->n_cols, n, &b);

    for (int c = 0; c < ds->n_cols && !st; c++) {
        struct wf_type type = wf_column_type(&ds->col[c]);

        st = wf_block_col(b, c, &type, 0);
    }
    if (!st && origins)
        st = wf_block_origins(b);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

weft_status wf_table_places(const struct wf_row_layout *l, struct wf_block *b,
                            struct wf_field_place **out)
{
    struct wf_field_place *place;
    void *memory = NULL;
    weft_status st = wf_block_alloc(b, l->n_fields * (int64_t)sizeof *place, &memory);

    if (st)
        return st;
    place = memory;
    for (int f = 0; f < l->n_fields; f++) {
        const struct wf_field *field = &l->field[f];

        place[f] = (struct wf_field_place){
            .stop = f + 1 == l->n_fields ? '\n' : l->format.delimiter,
        };
        if (field->col >= 0) {
            const struct wf_col *c = &b->col[field->col];
            int64_t size = wf_item_bytes(c->type.dtype);

            place[f].data = (char *)c->data + field->item * size;
            place[f].stride = size * (c->type.rank ? c->type.dim[0] : 1);
        }
    }
    *out = place;
    return WEFT_OK;
}
