/* one_hot.c - ids as vectors with a 1 at the id. */
#include "data/feature/feature.h"

struct one_hot {
    int n, *col;
    int64_t *depth; /* of each */
    weft_dtype dtype;
    bool lenient;
};

static weft_status set_ones(const struct one_hot *o, int64_t depth, const struct wf_col *from,
                            int64_t first, int64_t n, void *to, int64_t *bad)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t id = wf_get_int(from->data, from->type.dtype, first + i);

        if (id >= 0 && id < depth) {
            if (o->dtype == WEFT_F32)
                ((float *)to)[i * depth + id] = 1;
            else
                wf_set(to, o->dtype, i * depth + id, 1);
        } else if (!o->lenient) {
            *bad = i;
            return wf_err(WEFT_EDATA, "id %lld is not in 0..%lld", (long long)id,
                          (long long)depth - 1);
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

static weft_status one_hot_column(struct wf_ds *ds, struct wf_block *b, int k)
{
    const struct one_hot *o = ds->param;
    int c = o->col[k];
    const struct wf_col from = b->col[c];
    struct wf_col to = {.type = from.type};
    int64_t depth = o->depth[k], n = wf_col_item_count(&from, b->n), bytes, bad = 0, i = 0;
    weft_status st;

    if (!wf_mul_i64(n, depth * weft_dtype_size(o->dtype), &bytes))
        return wf_err(WEFT_ERANGE, "column '%s': %lld vectors of %lld", ds->col[c].name,
                      (long long)n, (long long)depth);
    st = wf_block_alloc(b, bytes, &to.data);
    if (st)
        return st;
    memset(to.data, 0, (size_t)bytes);
    st = set_ones(o, depth, &from, from.offset ? from.offset[0] : 0, n, to.data, &bad);
    if (st) {
        while (i + 1 < b->n && wf_col_item_count(&from, i + 1) <= bad)
            i++;
        return wf_block_err(b, i, wf_err_wrap(st, "column '%s'", ds->col[c].name));
    }
    to.type.dtype = o->dtype;
    to.type.dim[to.type.rank++] = depth;
    to.cap = n * depth;
    if (from.offset)
        st = deepen(b, &from, depth, &to);
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
        st = one_hot_column(ds, in, k);
    if (st)
        wf_block_free(in);
    else
        *out = in;
    return st;
}

static void one_hot_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct one_hot *o = ds->param;
    bool same = true;

    wf_ds_names_text(ds, o->n, o->col, out);
    for (int k = 1; k < o->n; k++)
        same = same && o->depth[k] == o->depth[0];
    for (int k = 0; k < (same ? 1 : o->n); k++)
        wf_buf_printf(out, "%s%lld", k ? "," : " ", (long long)o->depth[k]);
    wf_buf_printf(out, " %s%s", weft_dtype_name(o->dtype), o->lenient ? " lenient" : "");
}

static int64_t one_hot_ids(const struct wf_ds *ds, int col, int *from)
{
    const struct one_hot *o = ds->param;

    for (int k = 0; k < o->n; k++)
        if (o->col[k] == col)
            return 0;
    *from = col;
    return WF_IDS_AS_INPUT;
}

static const struct wf_ds_kind one_hot_kind = {
    .name = "one_hot", .apply = one_hot_apply, .ids = one_hot_ids, .text = one_hot_text};

/* Column k of the list: its depth, as it is given (0: as many ids as it may hold), and its
 * shape. */
static weft_status deepen_column(struct wf_ds *ds, int k, int64_t depth)
{
    struct one_hot *o = ds->param;
    weft_column *c = &ds->col[o->col[k]];

    if (!wf_is_int(c->dtype) && c->dtype != WEFT_BOOL)
        return wf_err(WEFT_EDTYPE, "column '%s' has no integers", c->name);
    if (c->rank == WEFT_MAX_RANK)
        return wf_err(WEFT_ESHAPE, "column '%s' has %d axes already", c->name, c->rank);
    o->depth[k] = depth ? depth : wf_ds_ids(ds->in[0], o->col[k]);
    if (!o->depth[k])
        return wf_err(WEFT_EINVAL,
                      "column '%s': how many ids it has is not known: give the depth, or put "
                      "lookup, hash or bucketize before it",
                      c->name);
    c->dim[c->rank++] = o->depth[k];
    c->dtype = o->dtype;
    return WEFT_OK;
}

weft_ds weft_ds_one_hot(weft_data *d, weft_ds s, const char *columns, int64_t depth,
                        const weft_ds_one_hot_opts *opts)
{
    weft_ds_one_hot_opts given;
    struct wf_ds *ds = wf_ds_new(d, &one_hot_kind, 1, &s, sizeof(struct one_hot));
    struct one_hot *o;
    weft_status st = wf_opts_take(&given, sizeof given, opts, "weft_ds_one_hot_opts");

    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    o->dtype = !st && given.dtype ? given.dtype : WEFT_F32;
    o->lenient = !st && given.lenient;
    if (!st && (depth < 0 || depth > (int64_t)1 << 32))
        st = wf_err(WEFT_EINVAL, "vectors of %lld", (long long)depth);
    if (!st && (o->dtype < WEFT_NONE || o->dtype >= WEFT_N_DTYPES))
        st = wf_err(WEFT_EDTYPE, "no dtype %d of numbers", (int)o->dtype);
    if (!st)
        st = wf_ds_columns_named(ds, columns, &o->col, &o->n);
    if (!st)
        st = wf_ds_set_columns(ds, ds->n_cols, ds->col);
    if (!st) {
        o->depth = wf_arena_alloc(&d->arena, (size_t)(o->n + 1) * sizeof *o->depth);
        st = o->depth ? WEFT_OK : wf_err_nomem(d->ctx, (size_t)o->n * sizeof *o->depth, "one_hot");
    }
    for (int k = 0; k < o->n && !st; k++)
        st = deepen_column(ds, k, depth);
    return st ? wf_ds_fail(d, "one_hot", st) : wf_ds_handle(ds);
}
