/* cache_row.c - elements as checksummed bytes. Reading trusts nothing: every length is checked
 * against what is left. */
#include "data/stage/cache_row.h"

uint64_t wf_row_sum(const void *bytes, int64_t n)
{
    const char *p = bytes;
    uint64_t h = (uint64_t)n * 0x9e3779b97f4a7c15u + 1, x;

    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&x, p, 8);
        h = (h ^ x) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    x = 0;
    memcpy(&x, p, (size_t)n);
    h = (h ^ x) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 29);
}

static bool declared_fixed(const weft_column *c)
{
    for (int k = 0; k < c->rank; k++)
        if (c->dim[k] < 0)
            return false;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_at(const struct wf_at *at, struct wf_buf *out)
{
    wf_put_i64(out, at->epoch);
    wf_put_i64(out, at->id);
}

static weft_status put_column(const weft_column *c, const struct wf_col *col, int64_t i,
                              struct wf_buf *out)
{
    weft_tensor t = wf_col_element(col, i);
    int64_t n = weft_tensor_count(&t);

    if (t.dtype != c->dtype || t.rank != c->rank)
        return wf_err(WEFT_EBUG, "column '%s' differs from its declaration", c->name);
    for (int k = 0; k < t.rank; k++) {
        if (c->dim[k] >= 0 && t.dim[k] != c->dim[k])
            return wf_err(WEFT_ESHAPE, "column '%s': size %lld of axis %d, but %lld is declared",
                          c->name, (long long)t.dim[k], k, (long long)c->dim[k]);
        if (!declared_fixed(c))
            wf_put_i64(out, t.dim[k]);
    }
    if (t.dtype != WEFT_STR) {
        if (n)
            wf_buf_add(out, t.data, n * wf_item_bytes(t.dtype));
        return WEFT_OK;
    }
    for (int64_t j = 0; j < n; j++)
        wf_put_bytes(out, ((const weft_str *)t.data)[j].data, ((const weft_str *)t.data)[j].n);
    return WEFT_OK;
}

weft_status wf_row_put(const struct wf_ds *ds, const struct wf_block *b, int64_t i,
                       struct wf_buf *out)
{
    int64_t start = out->len, n, n_samples = b->n == 1 && b->sample ? b->n_samples : 0;
    uint64_t sum;
    weft_status st = WEFT_OK;

    wf_put_i64(out, 0);
    wf_put_i64(out, 0);
    put_at(&b->at[i], out);
    wf_put_i64(out, n_samples);
    for (int64_t j = 0; j < n_samples; j++)
        put_at(&b->sample[j], out);
    for (int c = 0; c < ds->n_cols && !st; c++)
        st = put_column(&ds->col[c], &b->col[c], i, out);
    if (st || out->st)
        return st ? st : out->st;
    n = out->len - start - WF_ROW_HEAD;
    sum = wf_row_sum(out->data + start + WF_ROW_HEAD, n);
    memcpy(out->data + start, &sum, 8);
    memcpy(out->data + start + 8, &n, 8);
    return WEFT_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool wf_rows_check(const char *p, int64_t n, int64_t *n_rows)
{
    int64_t rows = 0;

    while (n > 0) {
        uint64_t sum;
        int64_t m;

        if (n < WF_ROW_HEAD)
            return false;
        memcpy(&sum, p, 8);
        memcpy(&m, p + 8, 8);
        if (m < 0 || m > n - WF_ROW_HEAD || wf_row_sum(p + WF_ROW_HEAD, m) != sum)
            return false;
        p += WF_ROW_HEAD + m;
        n -= WF_ROW_HEAD + m;
        rows++;
    }
    *n_rows = rows;
    return true;
}

static weft_status bad_row(void)
{
    return wf_err(WEFT_EPARSE, "a stored row does not have the columns of this dataset");
}

/* One column of a row: its sizes and number of items; its bytes are skipped. */
static weft_status read_column(struct wf_reader *r, const weft_column *c, int64_t *dim,
                               int64_t *items, const char **bytes)
{
    int64_t n = 1, size = wf_item_bytes(c->dtype), m;

    for (int k = 0; k < c->rank; k++) {
        dim[k] = declared_fixed(c) ? c->dim[k] : wf_get_i64(r);
        if (r->st || dim[k] < 0 || (c->dim[k] >= 0 && dim[k] != c->dim[k]) ||
            !wf_mul_i64(n, dim[k], &n))
            return bad_row();
    }
    *items = n;
    *bytes = r->p;
    if (n > (r->end - r->p) / (c->dtype == WEFT_STR ? 8 : size))
        return bad_row();
    if (c->dtype != WEFT_STR) {
        r->p += n * size;
        return WEFT_OK;
    }
    for (int64_t j = 0; j < n; j++)
        wf_get_bytes(r, &m);
    return r->st ? bad_row() : WEFT_OK;
}

static weft_status read_head(struct wf_reader *r, struct wf_at *at, int64_t *n_samples)
{
    at->epoch = wf_get_i64(r);
    at->id = wf_get_i64(r);
    *n_samples = wf_get_i64(r);
    if (r->st || *n_samples < 0 || *n_samples > (r->end - r->p) / 16)
        return bad_row();
    return WEFT_OK;
}

/* A reader for one row, and the position after it. */
static weft_status next_row(const char **p, const char *end, struct wf_reader *r)
{
    int64_t m;

    if (end - *p < WF_ROW_HEAD)
        return bad_row();
    memcpy(&m, *p + 8, 8);
    if (m < 0 || m > end - *p - WF_ROW_HEAD)
        return bad_row();
    *r = (struct wf_reader){*p + WF_ROW_HEAD, *p + WF_ROW_HEAD + m, WEFT_OK};
    *p = r->end;
    return WEFT_OK;
}

/* Items of all rows, column by column. */
static weft_status count_items(const struct wf_ds *ds, const char *p, const char *end, int64_t n,
                               int64_t *items)
{
    int64_t dim[WEFT_MAX_RANK], m, n_samples;
    const char *bytes;
    struct wf_at at;
    struct wf_reader r;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && !st; i++) {
        st = next_row(&p, end, &r);
        if (!st)
            st = read_head(&r, &at, &n_samples);
        if (!st)
            r.p += 16 * n_samples;
        for (int c = 0; c < ds->n_cols && !st; c++) {
            st = read_column(&r, &ds->col[c], dim, &m, &bytes);
            if (!st && !wf_add_i64(items[c], m, &items[c]))
                st = bad_row();
        }
        if (!st && r.p != r.end)
            st = bad_row();
    }
    return st ? st : p == end ? WEFT_OK : bad_row();
}

static void fill_items(struct wf_col *col, int64_t first, const char *bytes, int64_t n)
{
    int64_t size = wf_item_bytes(col->type.dtype);

    if (col->type.dtype != WEFT_STR) {
        if (n)
            memcpy((char *)col->data + first * size, bytes, (size_t)(n * size));
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t m;

        memcpy(&m, bytes, 8);
        ((weft_str *)col->data)[first + j] = (weft_str){bytes + 8, m};
        bytes += 8 + m;
    }
}

static weft_status fill_row(const struct wf_ds *ds, struct wf_block *b, int64_t i,
                            struct wf_reader *r, int64_t *filled)
{
    int64_t dim[WEFT_MAX_RANK], m, n_samples;
    const char *bytes;
    void *p = NULL;
    weft_status st = read_head(r, &b->at[i], &n_samples);

    if (!st && n_samples && b->n == 1) {
        st = wf_block_alloc(b, n_samples * (int64_t)sizeof *b->sample, &p);
        if (st)
            return st;
        b->sample = p;
        b->n_samples = n_samples;
        memcpy(p, r->p, (size_t)n_samples * sizeof *b->sample);
    }
    if (!st)
        r->p += 16 * n_samples;
    for (int c = 0; c < ds->n_cols && !st; c++) {
        struct wf_col *col = &b->col[c];

        st = read_column(r, &ds->col[c], dim, &m, &bytes);
        if (st)
            break;
        fill_items(col, filled[c], bytes, m);
        filled[c] += m;
        if (!col->offset)
            continue;
        col->offset[i + 1] = filled[c];
        memcpy(col->shape + i * col->type.rank, dim, (size_t)col->type.rank * 8);
    }
    return st;
}

weft_status wf_rows_block(struct wf_env *env, const struct wf_ds *ds, struct wf_chunk *chunk,
                          const char *p, int64_t n, int64_t n_rows, struct wf_block **out)
{
    struct wf_block *b = NULL;
    int64_t *items = wf_alloc_n(env->ctx, 2 * ds->n_cols + 1, 8);
    const char *end = p + n;
    struct wf_reader r;
    bool text = false;
    weft_status st = items ? count_items(ds, p, end, n_rows, items)
                           : wf_env_nomem(env, 16 * ds->n_cols, "stored rows");

    if (!st)
        st = wf_block_new(env, ds->n_cols, n_rows, &b);
    for (int c = 0; c < ds->n_cols && !st; c++) {
        struct wf_type t = wf_column_type(&ds->col[c]);

        st = wf_block_col(b, c, &t, items[c]);
        text = text || t.dtype == WEFT_STR;
    }
    if (!st && text)
        st = wf_block_keep(b, chunk);
    for (int64_t i = 0; i < n_rows && !st; i++) {
        st = next_row(&p, end, &r);
        if (!st)
            st = fill_row(ds, b, i, &r, items + ds->n_cols);
    }
    wf_free(env->ctx, items);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}
