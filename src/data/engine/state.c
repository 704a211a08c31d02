/* state.c - positions as bytes: little-endian numbers and counted bytes.
 * A reader trusts nothing: every length is checked against what is left. */
#include "data/data.h"

void wf_put_i64(struct wf_buf *b, int64_t v)
{
    unsigned char le[8];

    for (int i = 0; i < 8; i++)
        le[i] = (unsigned char)((uint64_t)v >> (8 * i));
    wf_buf_add(b, le, 8);
}

void wf_put_bytes(struct wf_buf *b, const void *bytes, int64_t n)
{
    wf_put_i64(b, n);
    if (n)
        wf_buf_add(b, bytes, n);
}

static void fail(struct wf_reader *r, const char *what)
{
    if (!r->st)
        r->st = wf_err(WEFT_EPARSE, "saved position: %s", what);
}

int64_t wf_get_i64(struct wf_reader *r)
{
    uint64_t v = 0;

    if (r->st)
        return 0;
    if (r->end - r->p < 8) {
        fail(r, "truncated");
        return 0;
    }
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)(unsigned char)r->p[i] << (8 * i);
    r->p += 8;
    return (int64_t)v;
}

int64_t wf_get_range(struct wf_reader *r, int64_t lo, int64_t hi, const char *what)
{
    int64_t v = wf_get_i64(r);

    if (!r->st && (v < lo || v > hi)) {
        r->st = wf_err(WEFT_EPARSE, "saved position: %s is %lld, not in %lld..%lld", what,
                       (long long)v, (long long)lo, (long long)hi);
        return lo;
    }
    return r->st ? lo : v;
}

const char *wf_get_bytes(struct wf_reader *r, int64_t *n)
{
    const char *p;

    *n = wf_get_range(r, 0, INT64_MAX, "a length");
    if (!r->st && *n > r->end - r->p)
        fail(r, "truncated");
    if (r->st) {
        *n = 0;
        return NULL;
    }
    p = r->p;
    r->p += *n;
    return p;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void save_column(const struct wf_col *col, int64_t n, struct wf_buf *out)
{
    int64_t items = wf_col_item_count(col, n), first = col->offset ? col->offset[0] : 0;
    int64_t size = wf_item_bytes(col->type.dtype);
    const char *data = (const char *)col->data + first * size;

    wf_put_i64(out, col->type.dtype);
    wf_put_i64(out, col->type.rank);
    for (int k = 0; k < col->type.rank; k++)
        wf_put_i64(out, col->type.dim[k]);
    wf_put_i64(out, col->offset != NULL);
    for (int64_t i = 0; i < n && col->offset; i++)
        for (int k = 0; k < col->type.rank; k++)
            wf_put_i64(out, col->shape[i * col->type.rank + k]);
    if (col->type.dtype != WEFT_STR) {
        wf_put_bytes(out, data, items * size);
        return;
    }
    for (int64_t i = 0; i < items; i++) {
        const weft_str *s = (const weft_str *)(const void *)data + i;

        wf_put_bytes(out, s->data, s->n);
    }
}

weft_status wf_block_save(const struct wf_block *b, struct wf_buf *out)
{
    wf_put_i64(out, b->n);
    wf_put_i64(out, b->n_cols);
    for (int64_t i = 0; i < b->n; i++) {
        wf_put_i64(out, b->at[i].epoch);
        wf_put_i64(out, b->at[i].id);
    }
    wf_put_i64(out, b->sample ? b->n_samples : 0);
    for (int64_t i = 0; i < b->n_samples && b->sample; i++) {
        wf_put_i64(out, b->sample[i].epoch);
        wf_put_i64(out, b->sample[i].id);
    }
    for (int c = 0; c < b->n_cols; c++)
        save_column(&b->col[c], b->n, out);
    return out->st;
}

static weft_status load_type(struct wf_reader *r, struct wf_type *t, bool *varies)
{
    memset(t, 0, sizeof *t);
    t->dtype = (weft_dtype)wf_get_range(r, 1, WEFT_STR, "a dtype");
    t->rank = (int)wf_get_range(r, 0, WEFT_MAX_RANK, "a rank");
    for (int k = 0; k < t->rank; k++)
        t->dim[k] = wf_get_range(r, WEFT_ANY, (int64_t)1 << 40, "a size");
    *varies = wf_get_range(r, 0, 1, "a flag");
    if (!r->st && wf_item_bytes(t->dtype) <= 0)
        fail(r, "a dtype that does not exist");
    return r->st;
}

/* Reads shapes into col, whose data comes later; returns the total number of items. */
static weft_status load_shapes(struct wf_reader *r, int64_t n, const struct wf_type *t,
                               int64_t **shape, weft_ctx *ctx, int64_t *items)
{
    int64_t *s;

    *items = 0;
    if (n > (r->end - r->p) / 8 && t->rank)
        fail(r, "truncated");
    if (r->st)
        return r->st;
    s = wf_alloc_n(ctx, n * t->rank + 1, 8);
    if (!s)
        return wf_err_nomem(ctx, (size_t)(n * t->rank) * 8, "a saved position");
    for (int64_t i = 0; i < n; i++) {
        int64_t m = 1;

        for (int k = 0; k < t->rank; k++) {
            s[i * t->rank + k] = wf_get_range(r, 0, (int64_t)1 << 40, "a size");
            if (!r->st && !wf_mul_i64(m, s[i * t->rank + k], &m))
                fail(r, "an element too large");
        }
        if (!r->st && !wf_add_i64(*items, m, items))
            fail(r, "a column too large");
    }
    *shape = s;
    return r->st;
}

/* All bytes into one chunk. */
static weft_status load_text(struct wf_block *b, struct wf_reader *r, weft_str *s, int64_t items)
{
    struct wf_reader ahead = *r;
    int64_t n, bytes = 0;
    const char *p;
    void *room = NULL;
    char *to;
    weft_status st;

    for (int64_t i = 0; i < items && !ahead.st; i++) {
        wf_get_bytes(&ahead, &n);
        bytes += n; /* below the length of the state */
    }
    if (ahead.st)
        return r->st = ahead.st;
    st = wf_block_alloc(b, bytes, &room);
    if (st)
        return st;
    to = room;
    for (int64_t i = 0; i < items; i++) {
        p = wf_get_bytes(r, &n);
        if (n)
            memcpy(to, p, (size_t)n);
        s[i] = (weft_str){to, n};
        to += n;
    }
    return WEFT_OK;
}

static weft_status load_items(struct wf_block *b, struct wf_reader *r, struct wf_col *col,
                              int64_t items)
{
    int64_t n, size = wf_item_bytes(col->type.dtype);
    const char *p;

    if (col->type.dtype != WEFT_STR) {
        p = wf_get_bytes(r, &n);
        if (!r->st && n != items * size)
            fail(r, "a column of the wrong size");
        if (!r->st && n)
            memcpy(col->data, p, (size_t)n);
        return r->st;
    }
    return load_text(b, r, col->data, items);
}

static weft_status load_column(struct wf_block *b, int c, struct wf_reader *r)
{
    struct wf_type t;
    struct wf_col *col = &b->col[c];
    bool varies, any = false;
    int64_t *shape = NULL, items = 0;
    weft_status st = load_type(r, &t, &varies);

    if (st)
        return st;
    for (int k = 0; k < t.rank; k++)
        any = any || t.dim[k] < 0;
    if (any != varies)
        fail(r, varies ? "sizes of a fixed column" : "a fixed column without sizes");
    if (varies) {
        st = load_shapes(r, b->n, &t, &shape, b->env->ctx, &items);
    } else {
        items = b->n;
        for (int k = 0; k < t.rank && !r->st; k++)
            if (!wf_mul_i64(items, t.dim[k], &items))
                fail(r, "a column too large");
    }
    /* An item takes at least eight bytes of length if it is text, its size if it is a number. */
    if (!r->st && items > (r->end - r->p) / (t.dtype == WEFT_STR ? 8 : wf_item_bytes(t.dtype)))
        fail(r, "truncated");
    st = st ? st : r->st;
    if (!st)
        st = wf_block_col(b, c, &t, items);
    for (int64_t i = 0; i < b->n && varies && !st; i++) {
        int64_t m = 1;

        for (int k = 0; k < t.rank; k++)
            m *= col->shape[i * t.rank + k] = shape[i * t.rank + k];
        col->offset[i + 1] = col->offset[i] + m;
    }
    if (!st)
        st = load_items(b, r, col, items);
    wf_free(b->env->ctx, shape);
    return st;
}

static weft_status load_at(struct wf_reader *r, struct wf_at *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        at[i].epoch = wf_get_i64(r);
        at[i].id = wf_get_i64(r);
    }
    return r->st;
}

static bool fits(const struct wf_block *b, const struct wf_ds *ds)
{
    bool same = b->n_cols == ds->n_cols;

    for (int c = 0; c < b->n_cols && same; c++) {
        const struct wf_col *col = &b->col[c];
        const weft_column *want = &ds->col[c];

        same = col->type.dtype == want->dtype && col->type.rank == want->rank;
        for (int k = 0; k < want->rank && same; k++) {
            same = want->dim[k] < 0 || col->type.dim[k] < 0 || col->type.dim[k] == want->dim[k];
            for (int64_t i = 0; i < b->n && same && col->offset && want->dim[k] >= 0; i++)
                same = col->shape[i * want->rank + k] == want->dim[k];
        }
    }
    return same;
}

weft_status wf_block_load(struct wf_env *env, const struct wf_ds *ds, struct wf_reader *r,
                          struct wf_block **out)
{
    struct wf_block *b = NULL;
    int64_t n = wf_get_range(r, 0, (r->end - r->p) / 16, "a number of elements");
    int64_t n_cols = wf_get_range(r, 0, (r->end - r->p) / 8, "a number of columns");
    void *p = NULL;
    weft_status st;

    if (r->st)
        return r->st;
    st = wf_block_new(env, (int)n_cols, n, &b);
    if (!st)
        st = load_at(r, b->at, n);
    if (st)
        goto out;
    n = wf_get_range(r, 0, (r->end - r->p) / 16, "a number of samples");
    if (n > 0 && !r->st) {
        st = wf_block_alloc(b, n * (int64_t)sizeof *b->sample, &p);
        if (st)
            goto out;
        b->sample = p;
        b->n_samples = n;
        st = load_at(r, b->sample, n);
    }
    for (int c = 0; c < b->n_cols && !st; c++)
        st = load_column(b, c, r);
    st = st ? st : r->st;
    if (!st && !fits(b, ds)) {
        fail(r, "elements with other columns");
        st = r->st;
    }
    if (st)
        goto out;
    *out = b;
    b = NULL;
out:
    wf_block_free(b);
    return st;
}
