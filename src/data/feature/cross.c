/* cross.c - columns of text or integers together, as buckets. */
#include "data/feature/feature.h"

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

/* Items of column k go into the hashes of the columns before it. */
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

/* The crossed column, shaped as the first of its parts. */
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

/* The crossed column is the last. */
static int64_t cross_ids(const struct wf_ds *ds, int col, int *from)
{
    *from = col;
    return col == ds->n_cols - 1 ? ((const struct cross *)ds->param)->n_buckets : WF_IDS_AS_INPUT;
}

static const struct wf_ds_kind cross_kind = {
    .name = "cross", .apply = cross_apply, .ids = cross_ids, .text = cross_text};

static weft_status cross_columns(struct wf_ds *ds, const struct cross *o, const char *name)
{
    weft_column *col = wf_arena_alloc(&ds->data->arena, (size_t)(ds->n_cols + 1) * sizeof *col);

    if (!col)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
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
        st = wf_err(WEFT_EINVAL, "'%s' is one column; hash takes one", columns);
    if (!st)
        st = cross_columns(ds, o, name);
    return st ? wf_ds_fail(d, "cross", st) : wf_ds_handle(ds);
}
