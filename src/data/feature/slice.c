/* slice.c - parts of columns along their first axis.
 * The axis is the first one of a sample: after the axis of samples where elements are batches. */
#include "data/feature/feature.h"

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
