/* slice.c - parts of columns along their first axis, and columns crossed into one. The axis is the
 * first one of a sample: after the sample axis if elements are batches. */
#include "data/feature/feature.h"

/* ---- slice ----------------------------------------------------------------------------------- */

struct slice {
    int n, *col;
    int64_t first, rows; /* first < 0 counts from the end; 0 rows: all that follow */
};

/* Which rows of `length` are selected. */
static weft_status rows_of(const struct slice *o, int64_t length, int64_t *first, int64_t *rows)
{
    *first = o->first < 0 ? length + o->first : o->first;
    *rows = o->rows ? o->rows : length - *first;
    if (*first < 0 || *rows < 1 || *rows > length - *first)
        return wf_err(WEFT_ESHAPE, "rows %lld to %lld do not exist: there are %lld",
                      (long long)*first, (long long)(*first + *rows - 1), (long long)length);
    return WEFT_OK;
}

/* How an element is sliced: `outer` pieces of `length` rows of `inner` items each. */
struct cut {
    int64_t outer, length, inner, first, rows;
};

static weft_status cut_of(const struct slice *o, const weft_tensor *t, int axis, struct cut *c)
{
    c->outer = c->inner = 1;
    for (int k = 0; k < axis; k++)
        c->outer *= t->dim[k];
    for (int k = axis + 1; k < t->rank; k++)
        c->inner *= t->dim[k];
    c->length = t->dim[axis];
    return rows_of(o, c->length, &c->first, &c->rows);
}

/* Copies the rows of one element; returns how many items. */
static int64_t copy_rows(const struct cut *c, const char *from, int64_t item, char *to)
{
    size_t bytes = (size_t)(c->rows * c->inner * item);

    for (int64_t i = 0; i < c->outer && bytes; i++)
        memcpy(to + (size_t)i * bytes, from + (i * c->length + c->first) * c->inner * item, bytes);
    return c->outer * c->rows * c->inner;
}

/* Offsets, shapes and items of all elements, for a result of varying sizes. */
static weft_status size_elements(const struct slice *o, struct wf_block *b, struct wf_col *to,
                                 const struct wf_col *from, int axis, int64_t *n_items)
{
    int rank = from->type.rank;
    void *offset = NULL, *shape = NULL;
    weft_status st = wf_block_alloc(b, (b->n + 1) * 8, &offset);

    if (!st)
        st = wf_block_alloc(b, (b->n * rank + 1) * 8, &shape);
    to->offset = offset;
    to->shape = shape;
    *n_items = 0;
    for (int64_t i = 0; i < b->n && !st; i++) {
        weft_tensor t = wf_col_element(from, i);
        struct cut c;

        st = cut_of(o, &t, axis, &c);
        if (st)
            return wf_block_err(b, i, st);
        to->offset[i] = *n_items;
        *n_items += c.outer * c.rows * c.inner;
        for (int k = 0; k < rank; k++)
            to->shape[i * rank + k] = k == axis ? c.rows : t.dim[k];
    }
    if (!st)
        to->offset[b->n] = *n_items;
    return st;
}

static weft_status slice_column(struct wf_ds *ds, struct wf_block *b, int column)
{
    const struct slice *o = ds->param;
    const struct wf_col from = b->col[column];
    int axis = ds->batched ? 1 : 0;
    int64_t item = wf_item_bytes(from.type.dtype), at = 0, n_items;
    struct wf_col to = {.type = wf_column_type(&ds->col[column])};
    void *data = NULL;
    weft_status st = WEFT_OK;

    if (wf_type_fixed(&to.type)) {
        n_items = b->n;
        for (int k = 0; k < to.type.rank; k++)
            n_items *= to.type.dim[k];
    } else {
        st = size_elements(o, b, &to, &from, axis, &n_items);
    }
    if (!st)
        st = wf_block_alloc(b, n_items * item, &data);
    for (int64_t i = 0; i < b->n && !st; i++) {
        weft_tensor t = wf_col_element(&from, i);
        struct cut c;

        st = cut_of(o, &t, axis, &c);
        if (st)
            return wf_block_err(b, i, st);
        at += copy_rows(&c, t.data, item, (char *)data + at * item);
    }
    to.data = data;
    to.cap = n_items;
    if (!st)
        b->col[column] = to;
    return st;
}

static weft_status slice_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                               struct wf_block **out)
{
    const struct slice *o = ds->param;
    weft_status st = WEFT_OK;

    (void)w;
    for (int k = 0; k < o->n && !st; k++) {
        st = slice_column(ds, in, o->col[k]);
        if (st)
            wf_err_wrap(st, "column '%s'", ds->col[o->col[k]].name);
    }
    if (st)
        wf_block_free(in);
    else
        *out = in;
    return st;
}

static void slice_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct slice *o = ds->param;

    wf_ds_names_text(ds, o->n, o->col, out);
    wf_buf_printf(out, " %lld+%lld", (long long)o->first, (long long)o->rows);
}

static const struct wf_ds_kind slice_kind = {
    .name = "slice", .apply = slice_apply, .text = slice_text};

static weft_status slice_columns(struct wf_ds *ds, const struct slice *o)
{
    int axis = ds->batched ? 1 : 0;
    weft_status st = wf_ds_set_columns(ds, ds->n_cols, ds->col); /* our own copy */

    for (int k = 0; k < o->n && !st; k++) {
        weft_column *c = &ds->col[o->col[k]];
        int64_t first, rows = 0;

        for (int j = 0; j < k; j++) /* sliced twice it would have other rows than declared */
            if (o->col[j] == o->col[k])
                return wf_err(WEFT_EINVAL, "column '%s' is named twice", c->name);
        if (c->rank <= axis)
            return wf_err(WEFT_ESHAPE,
                          "column '%s' has one item per sample: there is nothing to cut", c->name);
        if (c->dim[axis] >= 0)
            st = rows_of(o, c->dim[axis], &first, &rows);
        if (st)
            return wf_err_wrap(st, "column '%s'", c->name);
        c->dim[axis] = rows ? rows : o->rows ? o->rows : WEFT_ANY;
    }
    return st;
}

weft_ds weft_ds_slice(weft_data *d, weft_ds s, const char *columns, int64_t first, int64_t n)
{
    struct wf_ds *ds = wf_ds_new(d, &slice_kind, 1, &s, sizeof(struct slice));
    struct slice *o;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    o->first = first;
    o->rows = n;
    st = n < 0 || n > WF_MANY || first > WF_MANY || first < -WF_MANY
             ? wf_err(WEFT_EINVAL, "%lld rows from row %lld", (long long)n, (long long)first)
             : wf_ds_columns_named(ds, columns, &o->col, &o->n);
    if (!st)
        st = slice_columns(ds, o);
    return st ? wf_ds_fail(d, "slice", st) : wf_ds_handle(ds);
}

/* ---- cross ----------------------------------------------------------------------------------- */

struct cross {
    int n, *col;
    int64_t n_buckets;
    uint64_t seed;
};

static weft_status misfit(const struct wf_ds *ds, int a, int b)
{
    return wf_err(WEFT_ESHAPE, "columns '%s' and '%s' differ in shape", ds->col[a].name,
                  ds->col[b].name);
}

/* Adds the items of column k to the hashes of the columns before it. */
static void add_items(const struct wf_col *c, int64_t n, uint64_t *hash)
{
    int64_t first = c->offset ? c->offset[0] : 0;

    for (int64_t i = 0; i < n; i++) {
        const weft_str *s = (const weft_str *)c->data + first + i;

        hash[i] = c->type.dtype == WEFT_STR
                      ? wf_hash64(s->data, (size_t)s->n, hash[i])
                      : wf_hash_int(wf_get_int(c->data, c->type.dtype, first + i), hash[i]);
    }
}

/* Whether each element has as many items in both. */
static bool fit_items(const struct wf_col *a, const struct wf_col *b, int64_t n)
{
    for (int64_t i = 0; i < n && (a->offset || b->offset); i++) {
        weft_tensor x = wf_col_element(a, i), y = wf_col_element(b, i);

        if (weft_tensor_count(&x) != weft_tensor_count(&y))
            return false;
    }
    return true;
}

/* The crossed column, with the shape of its first part. */
static weft_status cross_column(struct wf_ds *ds, struct wf_block *b, struct wf_col *to)
{
    const struct cross *o = ds->param;
    const struct wf_col *lead = &b->col[o->col[0]];
    int64_t n = wf_col_item_count(lead, b->n), first = lead->offset ? lead->offset[0] : 0;
    void *data = NULL, *offset = NULL;
    weft_status st;

    for (int k = 1; k < o->n; k++)
        if (!fit_items(lead, &b->col[o->col[k]], b->n))
            return misfit(ds, o->col[0], o->col[k]);
    st = wf_block_alloc(b, n * 8, &data);
    if (!st && first)
        st = wf_block_alloc(b, (b->n + 1) * 8, &offset);
    if (st)
        return st;
    *to = *lead;
    to->type.dtype = WEFT_I64;
    to->data = data;
    to->cap = n;
    for (int64_t i = 0; i < n; i++)
        ((uint64_t *)data)[i] = o->seed;
    for (int k = 0; k < o->n; k++)
        add_items(&b->col[o->col[k]], n, data);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)data)[i] = (int64_t)(((uint64_t *)data)[i] % (uint64_t)o->n_buckets);
    if (first) {
        to->offset = offset;
        for (int64_t i = 0; i <= b->n; i++)
            to->offset[i] = lead->offset[i] - first;
    }
    return WEFT_OK;
}

static weft_status cross_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                               struct wf_block **out)
{
    struct wf_col col = {.data = NULL};
    void *room = NULL;
    weft_status st = cross_column(ds, in, &col);

    (void)w;
    if (!st)
        st = wf_block_alloc(in, ds->n_cols * (int64_t)sizeof *in->col, &room);
    if (st) {
        wf_block_free(in);
        return st;
    }
    memcpy(room, in->col, (size_t)in->n_cols * sizeof *in->col);
    in->col = room;
    in->col[in->n_cols++] = col;
    *out = in;
    return WEFT_OK;
}

static void cross_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct cross *o = ds->param;

    wf_ds_names_text(ds, o->n, o->col, out);
    wf_buf_printf(out, " as %s n=%lld seed=%llu", ds->col[ds->n_cols - 1].name,
                  (long long)o->n_buckets, (unsigned long long)o->seed);
}

static const struct wf_ds_kind cross_kind = {
    .name = "cross", .apply = cross_apply, .text = cross_text};

static weft_status cross_columns(struct wf_ds *ds, const struct cross *o, const char *name)
{
    weft_column *col = wf_arena_alloc(&ds->data->arena, (size_t)(ds->n_cols + 1) * sizeof *col);

    if (!col)
        return wf_err(WEFT_ENOMEM, "out of memory");
    if (ds->n_cols)
        memcpy(col, ds->col, (size_t)ds->n_cols * sizeof *col);
    for (int k = 0; k < o->n; k++) {
        const weft_column *c = &ds->col[o->col[k]], *lead = &ds->col[o->col[0]];

        if (wf_is_float(c->dtype))
            return wf_err(WEFT_EDTYPE,
                          "column '%s' is %s: only text and integers can be crossed; "
                          "bucketize it first",
                          c->name, weft_dtype_name(c->dtype));
        if (c->rank != lead->rank ||
            (c->rank && memcmp(c->dim, lead->dim, (size_t)c->rank * sizeof c->dim[0]) != 0))
            return misfit(ds, o->col[0], o->col[k]);
    }
    col[ds->n_cols] = ds->col[o->col[0]];
    col[ds->n_cols].name = name;
    col[ds->n_cols].dtype = WEFT_I64;
    col[ds->n_cols].role = WEFT_FEATURE;
    return wf_ds_set_columns(ds, ds->n_cols + 1, col);
}

weft_ds weft_ds_cross(weft_data *d, weft_ds s, const char *columns, int64_t n, uint64_t seed,
                      const char *name)
{
    struct wf_ds *ds = wf_ds_new(d, &cross_kind, 1, &s, sizeof(struct cross));
    struct cross *o;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    o->n_buckets = n;
    o->seed = seed;
    st = n < 1 ? wf_err(WEFT_EINVAL, "%lld buckets", (long long)n)
               : wf_ds_columns_named(ds, columns, &o->col, &o->n);
    if (!st && o->n < 2)
        st = wf_err(WEFT_EINVAL, "'%s' is one column; use hash, which takes one", columns);
    if (!st)
        st = cross_columns(ds, o, name);
    return st ? wf_ds_fail(d, "cross", st) : wf_ds_handle(ds);
}
