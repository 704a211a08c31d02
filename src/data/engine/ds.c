/* ds.c - pipelines as recipes: nodes, columns, text. A node is changed only by its builder;
 * iterators read it from many threads. */
#include <stdio.h>

#include "data/data.h"

#define ARRAY_BYTES ((int64_t)512 << 20) /* of array files, read into memory by a pipeline */

weft_status weft_data_new(weft_ctx *ctx, weft_data **out)
{
    weft_data *d = wf_alloc(ctx, sizeof *d);

    if (!d)
        return wf_err_nomem(ctx, sizeof *d, "a pipeline");
    d->ctx = ctx;
    d->array_room = ARRAY_BYTES;
    wf_arena_init(&d->arena, ctx);
    *out = d;
    return WEFT_OK;
}

void weft_data_free(weft_data *d)
{
    if (!d)
        return;
    for (int64_t i = d->n; i >= 1; i--)
        if (d->ds[i]->kind->free)
            d->ds[i]->kind->free(d->ds[i]);
    wf_free(d->ctx, d->ds);
    wf_arena_free(&d->arena);
    wf_free(d->ctx, d);
}

weft_status weft_data_status(const weft_data *d)
{
    if (d->st)
        wf_err_set(d->error ? d->error : "out of memory");
    return d->st;
}

weft_ds wf_ds_fail(weft_data *d, const char *builder, weft_status st)
{
    if (d->st == WEFT_OK) {
        wf_err_wrap(st, "%s", builder);
        d->st = st;
        d->error = wf_arena_strdup(&d->arena, weft_error());
    }
    return (weft_ds){0};
}

weft_ds wf_ds_handle(const struct wf_ds *ds)
{
    return (weft_ds){ds ? ds->id : 0};
}

struct wf_ds *wf_ds_node(const weft_data *d, weft_ds s)
{
    return s.id >= 1 && s.id <= d->n ? d->ds[s.id] : NULL;
}

static void inherit(struct wf_ds *ds)
{
    const struct wf_ds *in = ds->in[0];

    ds->count = in->inexact ? WEFT_UNKNOWN : in->count;
    ds->addressable = wf_ds_addressable(in) && (ds->kind->get || ds->kind->apply);
    ds->batched = in->batched;
    for (int i = 0; i < ds->n_in; i++)
        ds->reordered = ds->reordered || ds->in[i]->reordered;
    ds->n_cols = in->n_cols;
    ds->col = in->col;
}

struct wf_ds *wf_ds_new(weft_data *d, const struct wf_ds_kind *kind, int n_in, const weft_ds *in,
                        size_t param_bytes)
{
    struct wf_ds *ds;

    if (d->st)
        return NULL;
    if (wf_grow(d->ctx, &d->ds, &d->cap, d->n + 2, sizeof *d->ds))
        goto nomem;
    ds = wf_arena_alloc(&d->arena, sizeof *ds);
    if (!ds)
        goto nomem;
    ds->in = wf_arena_alloc(&d->arena, (size_t)(n_in + 1) * sizeof(struct wf_ds *));
    ds->param = wf_arena_alloc(&d->arena, param_bytes + 1);
    if (!ds->in || !ds->param)
        goto nomem;
    ds->kind = kind;
    ds->data = d;
    ds->name = kind->name;
    ds->n_in = n_in;
    ds->count = WEFT_UNKNOWN;
    for (int i = 0; i < n_in; i++) {
        ds->in[i] = wf_ds_node(d, in[i]);
        if (!ds->in[i]) {
            wf_ds_fail(d, kind->name,
                       wf_err(WEFT_EINVAL, "input %d is not a dataset of this pipeline", i));
            return NULL;
        }
    }
    if (n_in)
        inherit(ds);
    ds->id = (int)++d->n;
    d->ds[ds->id] = ds;
    return ds;
nomem:
    wf_ds_fail(d, kind->name, wf_err_nomem(d->ctx, 0, "the pipeline"));
    return NULL;
}

/* ---- columns --------------------------------------------------------------------------------- */

static weft_status check_column(const weft_column *c)
{
    if (!c->name || !*c->name || strchr(c->name, ','))
        return wf_err(WEFT_EINVAL, "column name '%s' is empty or has a comma",
                      c->name ? c->name : "");
    if (wf_item_bytes(c->dtype) <= 0)
        return wf_err(WEFT_EDTYPE, "column '%s': dtype %d does not exist", c->name, (int)c->dtype);
    if (c->rank < 0 || c->rank > WEFT_MAX_RANK)
        return wf_err(WEFT_ESHAPE, "column '%s': rank %d is not in 0..%d", c->name, c->rank,
                      WEFT_MAX_RANK);
    for (int k = 0; k < c->rank; k++)
        if (c->dim[k] < WEFT_ANY)
            return wf_err(WEFT_ESHAPE, "column '%s': size %lld", c->name, (long long)c->dim[k]);
    return WEFT_OK;
}

weft_status wf_ds_set_columns(struct wf_ds *ds, int n, const weft_column *col)
{
    struct wf_arena *a = &ds->data->arena;
    weft_column *copy;
    struct wf_map names;
    weft_status st = WEFT_OK;

    if (n < 0 || n > WF_COLUMNS_MAX)
        return wf_err(WEFT_EINVAL, "%d columns; at most %d are supported", n, WF_COLUMNS_MAX);
    copy = wf_arena_alloc(a, (size_t)(n + 1) * sizeof *copy);
    if (!copy)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    wf_map_init(&names, ds->data->ctx);
    for (int i = 0; i < n && !st; i++) {
        st = check_column(&col[i]);
        if (st)
            break;
        copy[i] = col[i];
        copy[i].name = wf_arena_strdup(a, col[i].name);
        if (!copy[i].name)
            st = wf_err_nomem(ds->data->ctx, 0, "the pipeline");
        else if (wf_map_get(&names, copy[i].name, NULL))
            st = wf_err(WEFT_EEXIST, "two columns are named '%s'", copy[i].name);
        else
            st = wf_map_put(&names, copy[i].name, i);
    }
    wf_map_free(&names);
    if (st)
        return st;
    ds->n_cols = n;
    ds->col = copy;
    return WEFT_OK;
}

int wf_ds_find(const struct wf_ds *ds, const char *name)
{
    for (int i = 0; i < ds->n_cols; i++)
        if (strcmp(ds->col[i].name, name) == 0)
            return i;
    return -1;
}

int64_t wf_ids_unknown(const struct wf_ds *ds, int col, int *from)
{
    (void)ds;
    (void)col;
    (void)from;
    return 0;
}

int64_t wf_ds_ids(const struct wf_ds *ds, int col)
{
    int64_t n = WF_IDS_AS_INPUT;

    while (ds && n == WF_IDS_AS_INPUT) {
        const struct wf_ds *in = ds->n_in == 1 ? ds->in[0] : NULL;
        int from = -1;

        if (ds->kind->ids)
            n = ds->kind->ids(ds, col, &from);
        else if (in)
            from = wf_ds_find(in, ds->col[col].name);
        if (n == WF_IDS_AS_INPUT && (from < 0 || in->col[from].dtype != ds->col[col].dtype))
            n = 0;
        ds = in;
        col = from;
    }
    return n == WF_IDS_AS_INPUT ? 0 : n;
}

weft_status wf_ds_err_column(const struct wf_ds *ds, const char *name)
{
    enum { SHOWN = 12 };
    char list[512] = "";
    const char *names[256];
    int n = ds->n_cols < 256 ? ds->n_cols : 256;
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        names[i] = ds->col[i].name;
        if (i < SHOWN && at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    }
    return wf_err(WEFT_ENOENT, "no column '%s'%s (there are %s%s)", name,
                  wf_did_you_mean(name, names, n).text, list, ds->n_cols > SHOWN ? ", …" : "");
}

struct wf_type wf_column_type(const weft_column *c)
{
    return wf_type_of(c->dtype, c->rank, c->dim);
}

weft_column wf_column_of(const char *name, weft_dtype dtype, int rank, const int64_t *dim)
{
    weft_column c = {.name = name, .dtype = dtype, .rank = rank};

    for (int k = 0; k < rank; k++)
        c.dim[k] = dim[k];
    return c;
}

/* ---- what a user may ask --------------------------------------------------------------------- */

weft_status weft_ds_columns(const weft_data *d, weft_ds s, int *n, const weft_column **columns)
{
    const struct wf_ds *ds = wf_ds_node(d, s);

    if (d->st)
        return weft_data_status(d);
    if (!ds)
        return wf_err(WEFT_EINVAL, "not a dataset of this pipeline");
    *n = ds->n_cols;
    *columns = ds->col;
    return WEFT_OK;
}

int64_t weft_ds_count(const weft_data *d, weft_ds s)
{
    const struct wf_ds *ds = wf_ds_node(d, s);

    return ds && !ds->inexact ? ds->count : WEFT_UNKNOWN;
}

bool weft_ds_addressable(const weft_data *d, weft_ds s)
{
    const struct wf_ds *ds = wf_ds_node(d, s);

    return ds && wf_ds_addressable(ds);
}

/* Lines are numbered as they are printed, so that equal pipelines have equal text. */
static void print_node(const struct wf_ds *ds, struct wf_map *seen, char (*key)[24], int64_t *line,
                       struct wf_buf *out)
{
    int64_t number;

    snprintf(key[ds->id], sizeof key[0], "%d", ds->id);
    if (wf_map_get(seen, key[ds->id], &number))
        return;
    for (int i = 0; i < ds->n_in; i++)
        print_node(ds->in[i], seen, key, line, out);
    number = ++*line;
    if (wf_map_put(seen, key[ds->id], number))
        out->st = WEFT_ENOMEM;
    wf_buf_printf(out, "%lld: %s", (long long)number, ds->kind->name);
    if (strcmp(ds->name, ds->kind->name) != 0)
        wf_buf_printf(out, " '%s'", ds->name);
    if (ds->kind->text) {
        wf_buf_printf(out, " ");
        ds->kind->text(ds, out);
    }
    for (int i = 0; i < ds->n_in; i++) {
        wf_map_get(seen, key[ds->in[i]->id], &number);
        wf_buf_printf(out, "%s%lld", i ? ", " : " <- ", (long long)number);
    }
    wf_buf_printf(out, "\n");
}

weft_status weft_ds_text(const weft_data *d, weft_ds s, char **out)
{
    const struct wf_ds *ds = wf_ds_node(d, s);
    struct wf_map seen;
    struct wf_buf buf;
    char(*key)[24];
    int64_t line = 0;
    weft_status st;

    if (d->st)
        return weft_data_status(d);
    if (!ds)
        return wf_err(WEFT_EINVAL, "not a dataset of this pipeline");
    key = wf_alloc_n(d->ctx, d->n + 1, sizeof *key);
    if (!key)
        return wf_err_nomem(d->ctx, (size_t)d->n * sizeof *key, "the text of a pipeline");
    wf_map_init(&seen, d->ctx);
    wf_buf_init(&buf, d->ctx, 16 << 20);
    print_node(ds, &seen, key, &line, &buf);
    st = buf.st;
    if (st)
        st = wf_err(st, "the text of a pipeline: out of memory");
    if (!st) {
        *out = buf.data;
        buf.data = NULL;
    }
    wf_buf_free(&buf);
    wf_map_free(&seen);
    wf_free(d->ctx, key);
    return st;
}
