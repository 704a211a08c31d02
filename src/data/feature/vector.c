/* vector.c - features that change shapes: one-hot vectors, and columns joined into one. */
#include "data/feature/feature.h"

/* ---- one_hot --------------------------------------------------------------------------------- */

struct one_hot {
    int n, *col;
    int64_t depth;
    weft_dtype dtype;
    bool lenient;
};

static weft_status set_ones(const struct one_hot *o, const struct wf_col *from, int64_t first,
                            int64_t n, void *to, int64_t *bad)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t id = wf_get_int(from->data, from->type.dtype, first + i);

        if (id >= 0 && id < o->depth) {
            if (o->dtype == WEFT_F32)
                ((float *)to)[i * o->depth + id] = 1;
            else
                wf_set(to, o->dtype, i * o->depth + id, 1);
        } else if (!o->lenient) {
            *bad = i;
            return wf_err(WEFT_EDATA, "id %lld is not in 0..%lld", (long long)id,
                          (long long)o->depth - 1);
        }
    }
    return WEFT_OK;
}

/* Offsets and shapes with the new axis at the end. */
static weft_status deepen(struct wf_block *b, const struct wf_col *from, int64_t depth,
                          struct wf_col *to)
{
    int rank = from->type.rank;
    void *p = NULL;
    weft_status st = wf_block_alloc(b, (b->n + 1) * 8, &p);

    to->offset = p;
    if (!st)
        st = wf_block_alloc(b, b->n * (rank + 1) * 8, &p);
    to->shape = p;
    for (int64_t i = 0; i <= b->n && !st; i++)
        to->offset[i] = (from->offset[i] - from->offset[0]) * depth;
    for (int64_t i = 0; i < b->n && !st; i++) {
        memcpy(to->shape + i * (rank + 1), from->shape + i * rank, (size_t)rank * 8);
        to->shape[i * (rank + 1) + rank] = depth;
    }
    return st;
}

static weft_status one_hot_column(struct wf_ds *ds, struct wf_block *b, int c)
{
    const struct one_hot *o = ds->param;
    const struct wf_col from = b->col[c];
    struct wf_col to = {.type = from.type};
    int64_t n = wf_col_item_count(&from, b->n), bytes, bad = 0, i = 0;
    weft_status st;

    if (!wf_mul_i64(n, o->depth * weft_dtype_size(o->dtype), &bytes))
        return wf_err(WEFT_ERANGE, "column '%s': %lld vectors of %lld", ds->col[c].name,
                      (long long)n, (long long)o->depth);
    st = wf_block_alloc(b, bytes, &to.data);
    if (st)
        return st;
    memset(to.data, 0, (size_t)bytes);
    st = set_ones(o, &from, from.offset ? from.offset[0] : 0, n, to.data, &bad);
    if (st) {
        while (i + 1 < b->n && wf_col_item_count(&from, i + 1) <= bad)
            i++;
        return wf_block_err(b, i, wf_err_wrap(st, "column '%s'", ds->col[c].name));
    }
    to.type.dtype = o->dtype;
    to.type.dim[to.type.rank++] = o->depth;
    to.cap = n * o->depth;
    if (from.offset)
        st = deepen(b, &from, o->depth, &to);
    b->col[c] = to;
    return st;
}

static weft_status one_hot_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                 struct wf_block **out)
{
    const struct one_hot *o = ds->param;
    weft_status st = WEFT_OK;

    (void)w;
    for (int k = 0; k < o->n && !st; k++)
        st = one_hot_column(ds, in, o->col[k]);
    if (st)
        wf_block_free(in);
    else
        *out = in;
    return st;
}

static void one_hot_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct one_hot *o = ds->param;

    wf_ds_names_text(ds, o->n, o->col, out);
    wf_buf_printf(out, " %lld %s%s", (long long)o->depth, weft_dtype_name(o->dtype),
                  o->lenient ? " lenient" : "");
}

static const struct wf_ds_kind one_hot_kind = {
    .name = "one_hot", .apply = one_hot_apply, .text = one_hot_text};

weft_ds weft_ds_one_hot(weft_data *d, weft_ds s, const char *columns, int64_t depth,
                        const weft_ds_one_hot_opts *opts)
{
    struct wf_ds *ds = wf_ds_new(d, &one_hot_kind, 1, &s, sizeof(struct one_hot));
    struct one_hot *o;
    weft_status st = wf_opts_check(opts, sizeof *opts, "weft_ds_one_hot_opts");

    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    o->depth = depth;
    o->dtype = !st && opts && opts->dtype ? opts->dtype : WEFT_F32;
    o->lenient = !st && opts && opts->lenient;
    if (!st && (depth < 1 || depth > (int64_t)1 << 32))
        st = wf_err(WEFT_EINVAL, "vectors of %lld", (long long)depth);
    if (!st && (o->dtype < WEFT_NONE || o->dtype >= WEFT_N_DTYPES))
        st = wf_err(WEFT_EDTYPE, "dtype %d is not numeric", (int)o->dtype);
    if (!st)
        st = wf_ds_columns_named(ds, columns, &o->col, &o->n);
    if (!st)
        st = wf_ds_set_columns(ds, ds->n_cols, ds->col);
    for (int k = 0; k < o->n && !st; k++) {
        weft_column *c = &ds->col[o->col[k]];

        if (!wf_is_int(c->dtype) && c->dtype != WEFT_BOOL)
            st = wf_err(WEFT_EDTYPE, "column '%s' does not hold integers", c->name);
        else if (c->rank == WEFT_MAX_RANK)
            st = wf_err(WEFT_ESHAPE, "column '%s' has %d axes already", c->name, c->rank);
        else
            c->dim[c->rank++] = depth;
        c->dtype = o->dtype;
    }
    return st ? wf_ds_fail(d, "one_hot", st) : wf_ds_handle(ds);
}

/* ---- join ------------------------------------------------------------------------------------ */

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
        return wf_err(WEFT_ENOMEM, "out of memory");
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
        return wf_err(WEFT_ENOMEM, "out of memory");
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
