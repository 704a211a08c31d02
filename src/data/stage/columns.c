/* columns.c - columns chosen, named, copied and given roles: select, rename, copy, role. */
#include "data/data.h"

struct columns {
    int *from; /* column i of the output is from[i] of the input */
};

static weft_status columns_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                 struct wf_block **out)
{
    const struct columns *p = ds->param;
    struct wf_block *b = NULL;
    weft_status st = wf_block_slice(in, 0, in->n, &b);
    const struct wf_col *col = in->col;

    (void)w;
    if (!st && ds->n_cols > b->n_cols) {
        void *room = NULL;

        st = wf_block_alloc(b, ds->n_cols * (int64_t)sizeof *b->col, &room);
        b->col = room;
    }
    if (st) {
        wf_block_free(b);
        wf_block_free(in);
        return st;
    }
    for (int c = 0; c < ds->n_cols; c++)
        b->col[c] = col[p->from[c]];
    b->n_cols = ds->n_cols;
    b->sample = in->sample;
    b->n_samples = in->n_samples;
    wf_block_free(in);
    *out = b;
    return WEFT_OK;
}

static void columns_text(const struct wf_ds *ds, struct wf_buf *out)
{
    static const char *const roles[] = {"", ":label", ":weight"};
    const struct columns *p = ds->param;

    for (int c = 0; c < ds->n_cols; c++) {
        wf_buf_printf(out, "%s%s%s", c ? "," : "", ds->col[c].name, roles[ds->col[c].role]);
        if (c >= ds->in[0]->n_cols) /* a copy */
            wf_buf_printf(out, "=%s", ds->col[p->from[c]].name);
    }
}

static int64_t columns_ids(const struct wf_ds *ds, int col, int *from)
{
    *from = ((const struct columns *)ds->param)->from[col];
    return WF_IDS_AS_INPUT;
}

static const struct wf_ds_kind select_kind = {
    .name = "select",
    .apply = columns_apply,
    .ids = columns_ids,
    .text = columns_text,
    .row_wise = true,
};

/* A select node over all columns of s, to be changed. */
static struct wf_ds *columns_new(weft_data *d, weft_ds s)
{
    struct wf_ds *ds = wf_ds_new(d, &select_kind, 1, &s, sizeof(struct columns));
    struct columns *p;

    if (!ds)
        return NULL;
    p = ds->param;
    p->from = wf_arena_alloc(&d->arena, (size_t)(ds->n_cols + 1) * sizeof *p->from);
    if (!p->from || wf_ds_set_columns(ds, ds->n_cols, ds->col)) {
        wf_ds_fail(d, "select", wf_err_nomem(d->ctx, 0, "the pipeline"));
        return NULL;
    }
    for (int c = 0; c < ds->n_cols; c++)
        p->from[c] = c;
    return ds;
}

int wf_names_split(const char *list, char names[][WF_NAME_MAX], int max)
{
    int n = 0;

    while (*list) {
        size_t len = strcspn(list, ","), skip = strspn(list, " \t");
        size_t end = len;

        while (end > skip && (list[end - 1] == ' ' || list[end - 1] == '\t'))
            end--;
        if (end > skip) {
            if (n == max || end - skip >= WF_NAME_MAX)
                return -1;
            memcpy(names[n], list + skip, end - skip);
            names[n++][end - skip] = 0;
        }
        list += len + (list[len] == ',');
    }
    return n;
}

void wf_ds_names_text(const struct wf_ds *ds, int n, const int *col, struct wf_buf *out)
{
    for (int k = 0; k < n; k++)
        wf_buf_printf(out, "%s%s", k ? "," : "", ds->col[col[k]].name);
}

/* The numbers of the columns named in a list; *n of them. */
weft_status wf_ds_columns_named(const struct wf_ds *ds, const char *list, int **out, int *n)
{
    struct wf_arena *arena = &ds->data->arena;
    int max = ds->n_cols;
    char(*names)[WF_NAME_MAX] = wf_arena_alloc(arena, (size_t)(max + 1) * WF_NAME_MAX);
    int *number = wf_arena_alloc(arena, (size_t)(max + 1) * sizeof *number);

    if (!names || !number)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    if (!list)
        return wf_err(WEFT_EINVAL, "no columns are named");
    *n = wf_names_split(list, names, max);
    if (*n <= 0)
        return wf_err(WEFT_EINVAL, "'%s' names %s", list, *n ? "too many columns" : "no column");
    for (int i = 0; i < *n; i++) {
        number[i] = wf_ds_find(ds, names[i]);
        if (number[i] < 0)
            return wf_ds_err_column(ds, names[i]);
    }
    *out = number;
    return WEFT_OK;
}

weft_ds weft_ds_select(weft_data *d, weft_ds s, const char *columns)
{
    struct wf_ds *ds = columns_new(d, s);
    struct columns *p;
    weft_column *col;
    int n = 0;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    st = wf_ds_columns_named(ds, columns, &p->from, &n);
    if (st)
        return wf_ds_fail(d, "select", st);
    col = wf_arena_alloc(&d->arena, (size_t)n * sizeof *col);
    if (!col)
        return wf_ds_fail(d, "select", wf_err_nomem(d->ctx, 0, "the pipeline"));
    for (int i = 0; i < n; i++)
        col[i] = ds->in[0]->col[p->from[i]];
    st = wf_ds_set_columns(ds, n, col);
    return st ? wf_ds_fail(d, "select", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_rename(weft_data *d, weft_ds s, const char *column, const char *name)
{
    struct wf_ds *ds = columns_new(d, s);
    int c = ds ? wf_ds_find(ds, column) : 0;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    if (c < 0)
        return wf_ds_fail(d, "rename", wf_ds_err_column(ds, column));
    ds->col[c].name = name;
    st = wf_ds_set_columns(ds, ds->n_cols, ds->col);
    return st ? wf_ds_fail(d, "rename", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_copy(weft_data *d, weft_ds s, const char *column, const char *name)
{
    struct wf_ds *ds = columns_new(d, s);
    struct columns *p = ds ? ds->param : NULL;
    int c = ds ? wf_ds_find(ds, column) : 0, n = ds ? ds->n_cols : 0;
    weft_column *col = ds ? wf_arena_alloc(&d->arena, (size_t)(n + 1) * sizeof *col) : NULL;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    if (c < 0)
        return wf_ds_fail(d, "copy", wf_ds_err_column(ds, column));
    if (!col)
        return wf_ds_fail(d, "copy", wf_err_nomem(d->ctx, 0, "the pipeline"));
    memcpy(col, ds->col, (size_t)n * sizeof *col);
    col[n] = col[c];
    col[n].name = name;
    p->from[n] = c;
    st = wf_ds_set_columns(ds, n + 1, col);
    return st ? wf_ds_fail(d, "copy", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_role(weft_data *d, weft_ds s, const char *columns, weft_role role)
{
    struct wf_ds *ds = columns_new(d, s);
    int *number = NULL, n = 0;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    if (role < WEFT_FEATURE || role > WEFT_WEIGHT)
        return wf_ds_fail(d, "role", wf_err(WEFT_EINVAL, "role %d does not exist", (int)role));
    st = wf_ds_columns_named(ds, columns, &number, &n);
    for (int i = 0; i < n && !st; i++)
        ds->col[number[i]].role = role;
    return st ? wf_ds_fail(d, "role", st) : wf_ds_handle(ds);
}
