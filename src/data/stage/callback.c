/* callback.c - samples as a user's function sees them. */
#include "data/stage/callback.h"

#define TEXT_ROOM 16384

weft_status wf_filling_begin(struct wf_filling *f, struct wf_env *env, struct wf_ds *ds, int64_t n)
{
    void *p = NULL;
    weft_status st;

    *f = (struct wf_filling){.ds = ds};
    st = wf_block_new(env, ds->n_cols, n, &f->block);
    for (int c = 0; c < ds->n_cols && !st; c++) {
        struct wf_type t = wf_column_type(&ds->col[c]);

        st = wf_block_col(f->block, c, &t, 0);
        if (!st && wf_type_fixed(&t)) /* what a callback does not set is zero */
            memset(f->block->col[c].data, 0,
                   (size_t)(wf_col_item_count(&f->block->col[c], n) * wf_item_bytes(t.dtype)));
    }
    if (!st)
        st = wf_block_alloc(f->block, ds->n_cols * (int64_t)sizeof(weft_tensor), &p);
    f->sample = (weft_sample){.n_cols = ds->n_cols, .col = p, .inside = f};
    return st;
}

/* Closes sample i: columns of free shape must have been given one. */
static weft_status close_sample(struct wf_filling *f)
{
    for (int c = 0; c < f->ds->n_cols && f->n > 0; c++)
        if (f->block->col[c].offset && !f->sample.col[c].data)
            return wf_err(WEFT_EINVAL, "column '%s' has no shape: call weft_sample_shape",
                          f->ds->col[c].name);
    return WEFT_OK;
}

weft_status wf_filling_next(struct wf_filling *f, struct wf_at at)
{
    int64_t i = f->n;
    weft_status st = close_sample(f);

    if (st)
        return st;
    f->n++;
    f->block->at[i] = at;
    f->sample.epoch = at.epoch;
    f->sample.id = at.id;
    for (int c = 0; c < f->ds->n_cols; c++) {
        struct wf_col *col = &f->block->col[c];

        if (col->offset)
            f->sample.col[c] = (weft_tensor){.dtype = col->type.dtype, .rank = col->type.rank};
        else
            f->sample.col[c] = wf_col_element(col, i);
    }
    return WEFT_OK;
}

weft_status wf_filling_end(struct wf_filling *f, weft_status st, struct wf_block **out)
{
    if (!st && f->n == f->block->n)
        st = close_sample(f);
    if (st) {
        wf_block_free(f->block);
        return st;
    }
    f->block->n = f->n;
    *out = f->block;
    return WEFT_OK;
}

weft_status weft_sample_shape(weft_sample *s, int c, int rank, const int64_t *dim)
{
    static const char nothing; /* where an empty tensor points */
    struct wf_filling *f = s->inside;
    struct wf_col *col;
    weft_tensor t = {.rank = rank};
    int64_t n = 1, first, size, bytes, cap;
    void *p = NULL;
    weft_status st;

    if (!f || c < 0 || c >= s->n_cols || !f->block->col[c].offset || rank < 0 ||
        rank > WEFT_MAX_RANK)
        return wf_err(WEFT_EINVAL, "weft_sample_shape: column %d has no free shape here", c);
    col = &f->block->col[c];
    t.dtype = col->type.dtype;
    for (int k = 0; k < rank; k++) {
        bool fits = rank == col->type.rank && dim[k] >= 0 &&
                    (col->type.dim[k] < 0 || col->type.dim[k] == dim[k]);

        if (!fits || !wf_mul_i64(n, dim[k], &n))
            return wf_err(WEFT_ESHAPE, "column '%s': size %lld of axis %d does not fit",
                          f->ds->col[c].name, (long long)dim[k], k);
        t.dim[k] = dim[k];
    }
    first = col->offset[f->n - 1];
    size = wf_item_bytes(t.dtype);
    if (first + n > col->cap) {
        cap = wf_max_i64(first + n, col->cap * 2);
        if (!wf_mul_i64(cap, size, &bytes))
            return wf_err(WEFT_ERANGE, "column '%s' is too large", f->ds->col[c].name);
        st = wf_block_alloc(f->block, bytes, &p);
        if (st)
            return st;
        if (first)
            memcpy(p, col->data, (size_t)(first * size));
        col->data = p;
        col->cap = cap;
    }
    col->offset[f->n] = first + n;
    for (int k = 0; k < rank; k++)
        col->shape[(f->n - 1) * rank + k] = dim[k];
    t.data = n ? (char *)col->data + first * size : (char *)&nothing;
    if (n)
        memset(t.data, 0, (size_t)(n * size));
    s->col[c] = t;
    return WEFT_OK;
}

weft_status weft_sample_text(weft_sample *s, int c, int64_t item, const char *bytes, int64_t n)
{
    struct wf_filling *f = s->inside;
    void *p = NULL;
    weft_status st;

    if (!f || c < 0 || c >= s->n_cols || s->col[c].dtype != WEFT_STR || !s->col[c].data ||
        item < 0 || item >= weft_tensor_count(&s->col[c]) || n < 0)
        return wf_err(WEFT_EINVAL, "weft_sample_text: column %d has no text item %lld here", c,
                      (long long)item);
    if (n > f->n_text) { /* many texts share a chunk */
        int64_t room = wf_max_i64(n, TEXT_ROOM);

        st = wf_block_alloc(f->block, room, &p);
        if (st)
            return st;
        f->text = p;
        f->n_text = room;
    }
    if (!n) {
        ((weft_str *)s->col[c].data)[item] = (weft_str){"", 0};
        return WEFT_OK;
    }
    memcpy(f->text, bytes, (size_t)n);
    ((weft_str *)s->col[c].data)[item] = (weft_str){f->text, n};
    f->text += n;
    f->n_text -= n;
    return WEFT_OK;
}

weft_sample wf_sample_of(const struct wf_block *b, int64_t i, weft_tensor *col)
{
    for (int c = 0; c < b->n_cols; c++)
        col[c] = wf_col_element(&b->col[c], i);
    return (weft_sample){
        .n_cols = b->n_cols, .col = col, .epoch = b->at[i].epoch, .id = b->at[i].id};
}
