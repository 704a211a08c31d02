/* join.c - columns end to end as one vector. */
#include "data/feature/feature.h"

struct join {
    int n, *col;
    int64_t *items; /* per element of each */
    int64_t total;
    int to, *rest; /* position of the vector, and which other columns are kept */
    weft_dtype dtype;
};

/* Row by row: the items of each column after those of the previous one. */
static void join_rows(const struct join *o, const struct wf_block *in, int64_t rows, void *to)
{
    int64_t at = 0;

    for (int k = 0; k < o->n; k++) {
        const struct wf_col *c = &in->col[o->col[k]];
        int64_t m = o->items[k], first = c->offset ? c->offset[0] : 0;

        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < m; j++) {
                int64_t from = first + i * m + j, place = i * o->total + at + j;

                if (o->dtype == WEFT_F32 && c->type.dtype == WEFT_F32)
                    ((float *)to)[place] = ((const float *)c->data)[from];
                else if (!wf_is_float(o->dtype) && !wf_is_float(c->type.dtype))
                    wf_set_clipped(to, o->dtype, place, wf_get_int(c->data, c->type.dtype, from));
                else
                    wf_set(to, o->dtype, place, wf_get(c->data, c->type.dtype, from));
            }
        at += m;
    }
}

/* The column of vectors; for batched elements one row each, and as many rows as the first column
 * has. */
static weft_status vector_column(struct wf_ds *ds, struct wf_block *in, struct wf_col *to)
{
    const struct join *o = ds->param;
    const struct wf_col *lead = &in->col[o->col[0]];
    int64_t rows = 0;
    void *p = NULL;
    weft_status st;

    *to = (struct wf_col){.type = wf_type_of(o->dtype, 1, &o->total)};
    for (int k = 0; k < o->n; k++) {
        int64_t n = wf_col_item_count(&in->col[o->col[k]], in->n) / wf_max_i64(o->items[k], 1);

        if (k == 0)
            rows = n;
        if (o->items[k] && n != rows)
            return wf_err(WEFT_ESHAPE, "columns '%s' and '%s' have %lld and %lld rows",
                          ds->in[0]->col[o->col[0]].name, ds->in[0]->col[o->col[k]].name,
                          (long long)rows, (long long)n);
    }
    st = wf_block_alloc(in, rows * o->total * weft_dtype_size(o->dtype), &to->data);
    if (st)
        return st;
    join_rows(o, in, rows, to->data);
    to->cap = rows * o->total;
    if (!ds->batched)
        return WEFT_OK;
    to->type.rank = 2;
    to->type.dim[1] = o->total;
    to->type.dim[0] = lead->type.dim[0];
    if (!lead->offset)
        return WEFT_OK;
    to->type.dim[0] = WEFT_ANY;
    st = wf_block_alloc(in, (in->n + 1) * 8, &p);
    to->offset = p;
    if (!st)
        st = wf_block_alloc(in, in->n * 16 + 8, &p);
    to->shape = p;
    if (!st)
        to->offset[0] = 0;
    for (int64_t i = 0; i < in->n && !st; i++) {
        int64_t m = lead->shape[i * lead->type.rank];

        to->offset[i + 1] = to->offset[i] + m * o->total;
        to->shape[2 * i] = m;
        to->shape[2 * i + 1] = o->total;
    }
    return st;
}

static weft_status join_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                              struct wf_block **out)
{
    const struct join *o = ds->param;
    struct wf_col vector = {.data = NULL};
    void *room = NULL;
    weft_status st = vector_column(ds, in, &vector);

    (void)w;
    if (!st)
        st = wf_block_alloc(in, ds->n_cols * (int64_t)sizeof *in->col, &room);
    if (st) {
        wf_block_free(in);
        return st;
    }
    for (int c = 0; c < ds->n_cols; c++)
        ((struct wf_col *)room)[c] = c == o->to ? vector : in->col[o->rest[c]];
    in->col = room;
    in->n_cols = ds->n_cols;
    *out = in;
    return WEFT_OK;
}

static void join_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct join *o = ds->param;

    for (int k = 0; k < o->n; k++)
        wf_buf_printf(out, "%s%s", k ? "," : "", ds->in[0]->col[o->col[k]].name);
    wf_buf_printf(out, " as %s %s", ds->col[o->to].name, weft_dtype_name(o->dtype));
}

static const struct wf_ds_kind join_kind = {.name = "join", .apply = join_apply, .text = join_text};

/* Items per element of each column, without the sample axis. */
static weft_status join_sizes(struct wf_ds *ds, struct join *o)
{
    o->items = wf_arena_alloc(&ds->data->arena, (size_t)(o->n + 1) * 8);
    if (!o->items)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int k = 0; k < o->n; k++) {
        const weft_column *c = &ds->in[0]->col[o->col[k]];

        if (c->dtype == WEFT_STR)
            return wf_err(WEFT_EDTYPE, "column '%s' is text", c->name);
        for (int i = 0; i < k; i++)
            if (o->col[i] == o->col[k])
                return wf_err(WEFT_EINVAL, "column '%s' is given twice", c->name);
        o->items[k] = 1;
        for (int i = ds->batched ? 1 : 0; i < c->rank; i++)
            if (c->dim[i] < 0 || !wf_mul_i64(o->items[k], c->dim[i], &o->items[k]))
                return wf_err(WEFT_ESHAPE, "column '%s' has no fixed shape", c->name);
        if (!wf_add_i64(o->total, o->items[k], &o->total))
            return wf_err(WEFT_ESHAPE, "the vector is too long");
    }
    return WEFT_OK;
}

/* The resulting columns: the vector in place of the first joined column, and the columns that are
 * not joined. */
static weft_status join_columns(struct wf_ds *ds, struct join *o, const char *name)
{
    struct wf_arena *a = &ds->data->arena;
    const struct wf_ds *in = ds->in[0];
    weft_column *col = wf_arena_alloc(a, (size_t)(in->n_cols + 1) * sizeof *col);
    int first = in->n_cols, n = 0;

    o->rest = wf_arena_alloc(a, (size_t)(in->n_cols + 1) * sizeof *o->rest);
    if (!col || !o->rest)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int k = 0; k < o->n; k++)
        first = o->col[k] < first ? o->col[k] : first;
    for (int c = 0; c < in->n_cols; c++) {
        bool joined = false;

        for (int k = 0; k < o->n; k++)
            joined = joined || o->col[k] == c;
        if (joined && c != first)
            continue;
        col[n] = in->col[c];
        o->rest[n] = c;
        if (joined) {
            o->to = n;
            col[n] = wf_column_of(name, o->dtype, 1, &o->total);
            col[n].role = in->col[c].role;
            if (ds->batched) {
                col[n].rank = 2;
                col[n].dim[1] = o->total;
                col[n].dim[0] = in->col[o->col[0]].dim[0];
            }
        }
        n++;
    }
    return wf_ds_set_columns(ds, n, col);
}

weft_ds weft_ds_join(weft_data *d, weft_ds s, const char *columns, const char *name,
                     weft_dtype dtype)
{
    struct wf_ds *ds = wf_ds_new(d, &join_kind, 1, &s, sizeof(struct join));
    struct join *o;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    o->dtype = dtype;
    st = dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES
             ? wf_err(WEFT_EDTYPE, "dtype %d is not numeric", (int)dtype)
             : wf_ds_columns_named(ds, columns, &o->col, &o->n);
    if (!st)
        st = join_sizes(ds, o);
    if (!st)
        st = join_columns(ds, o, name);
    return st ? wf_ds_fail(d, "join", st) : wf_ds_handle(ds);
}
