/* lists.c - rows of tables as bytes: what is pushed to a piece, and how that is checked. */
#include "ps/tables.h"

/* The new bytes are not cleared: who asks for them writes them. */
weft_status wf_payload_grow(weft_ctx *ctx, struct wf_payload *b, int64_t more)
{
    int64_t cap = wf_max_i64(b->n + more, 2 * b->cap);
    char *p;

    if (b->n + more <= b->cap)
        return WEFT_OK;
    p = wf_alloc_raw(ctx, (size_t)cap);
    if (!p)
        return wf_err_nomem(ctx, (size_t)cap, "a message");
    if (b->n)
        memcpy(p, b->p, (size_t)b->n);
    wf_free(ctx, b->p);
    b->p = p;
    b->cap = cap;
    return WEFT_OK;
}

/* ---- sorting --------------------------------------------------------------------------------- */

enum { DIGIT = 11, BUCKETS = 1 << DIGIT };

void wf_tables_sort_free(weft_ctx *ctx, struct wf_tables_sort *s)
{
    wf_free(ctx, s->key);
    wf_free(ctx, s->at);
    *s = (struct wf_tables_sort){.key = NULL};
}

/* One digit: from the first half of the arrays to the second, or back. */
static void sort_digit(const int64_t *key, const int32_t *at, int64_t n, int shift, int64_t *to_key,
                       int32_t *to_at)
{
    int32_t first[BUCKETS + 1] = {0};

    for (int64_t i = 0; i < n; i++)
        first[(key[i] >> shift & (BUCKETS - 1)) + 1]++;
    for (int b = 0; b < BUCKETS; b++)
        first[b + 1] += first[b];
    for (int64_t i = 0; i < n; i++) {
        int32_t to = first[key[i] >> shift & (BUCKETS - 1)]++;

        to_key[to] = key[i];
        to_at[to] = at[i];
    }
}

weft_status wf_tables_sort_ids(weft_ctx *ctx, struct wf_tables_sort *s, int64_t n,
                               const int64_t *ids, int64_t end, const int64_t **key,
                               const int32_t **at)
{
    weft_status st = wf_grow(ctx, &s->key, &s->cap_key, 2 * n + 2, sizeof *s->key);
    int64_t from = 0;

    if (!st)
        st = wf_grow(ctx, &s->at, &s->cap_at, 2 * n + 2, sizeof *s->at);
    if (st)
        return st;
    for (int64_t i = 0; i < n; i++) {
        s->key[i] = ids[i];
        s->at[i] = (int32_t)i;
    }
    for (int shift = 0; shift < 63 && end >> shift > 0; shift += DIGIT) {
        sort_digit(s->key + from, s->at + from, n, shift, s->key + (n - from), s->at + (n - from));
        from = n - from;
    }
    *key = s->key + from;
    *at = s->at + from;
    return WEFT_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_i64(struct wf_payload *b, int64_t v)
{
    memcpy(b->p + b->n, &v, sizeof v);
    b->n += (int64_t)sizeof v;
}

/* Where the ids and rows of a list go: n, ids, rows, padded to 8 bytes. */
struct place {
    int64_t n, at;
    char *ids, *rows;
};

static int64_t list_bytes(int64_t n, int64_t width)
{
    return 8 + n * 8 + wf_round_up(n * width * (int64_t)sizeof(float), 8);
}

static void begin_list(struct wf_payload *b, struct place *p, int64_t width)
{
    int64_t rows = p->n * width * (int64_t)sizeof(float);
    char *end = b->p + b->n + list_bytes(p->n, width);

    put_i64(b, p->n);
    p->ids = b->p + b->n;
    p->rows = p->ids + p->n * 8;
    memset(p->rows + rows, 0, (size_t)(end - (p->rows + rows)));
    b->n = end - b->p;
    p->at = 0;
}

/* How many rows of a list go to each piece. */
static void count_rows(const struct wf_tables_opts *o, int only, int var, const struct wf_rows *r,
                       struct place *place)
{
    for (int k = 0; k < WF_MAX_TABLE_PIECES; k++)
        place[k].n = 0;
    if (only >= 0)
        place[0].n = r->n;
    for (int64_t i = 0; i < r->n && only < 0; i++)
        place[wf_cut_piece_of(o->cut, var, r->id[i]) - o->cut->first_table].n++;
}

/* One table of one group; there is room for it. */
static weft_status split_list(weft_ctx *ctx, const struct wf_tables_opts *o, int only, int var,
                              const struct wf_rows *r, struct wf_tables_sort *sort,
                              struct wf_payload *out)
{
    int64_t width = o->rules->var[var].dim[1];
    int n_out = only >= 0 ? 1 : o->cut->n_table_pieces;
    struct place place[WF_MAX_TABLE_PIECES];
    const int64_t *key;
    const int32_t *at;
    weft_status st =
        wf_tables_sort_ids(ctx, sort, r->n, r->id, o->rules->var[var].dim[0], &key, &at);

    if (st)
        return st;
    count_rows(o, only, var, r, place);
    for (int k = 0; k < n_out; k++)
        begin_list(&out[k], &place[k], width);
    for (int64_t i = 0; i < r->n; i++) {
        struct place *p =
            &place[only >= 0 ? 0 : wf_cut_piece_of(o->cut, var, key[i]) - o->cut->first_table];

        if (i + WF_ROWS_AHEAD < r->n)
            wf_row_soon(r->row + at[i + WF_ROWS_AHEAD] * width, width);
        memcpy(p->ids + p->at * 8, &key[i], sizeof key[i]);
        wf_row_copy((float *)(void *)p->rows + p->at * width, r->row + at[i] * width, width);
        p->at++;
    }
    return WEFT_OK;
}

/* Room for all lists at once: they are long, and are not moved when another one is added. */
static weft_status reserve_lists(weft_ctx *ctx, const struct wf_tables_opts *o, int only,
                                 int n_groups, const struct wf_rows *rows, struct wf_payload *out)
{
    int n_out = only >= 0 ? 1 : o->cut->n_table_pieces, n_vars = o->rules->n_vars;
    int64_t bytes[WF_MAX_TABLE_PIECES] = {0};
    struct place place[WF_MAX_TABLE_PIECES];
    weft_status st = WEFT_OK;

    for (int i = 0; i < n_groups * n_vars; i++) {
        if (!o->rules->var[i % n_vars].table)
            continue;
        count_rows(o, only, i % n_vars, &rows[i], place);
        for (int k = 0; k < n_out; k++)
            bytes[k] += list_bytes(place[k].n, o->rules->var[i % n_vars].dim[1]);
    }
    for (int k = 0; k < n_out && !st; k++)
        st = wf_payload_grow(ctx, &out[k], bytes[k]);
    return st;
}

weft_status wf_tables_split(weft_ctx *ctx, const struct wf_tables_opts *o, int only, int n_groups,
                            const struct wf_rows *rows, const double *sums, int64_t n_sums,
                            struct wf_tables_sort *sort, struct wf_payload *out)
{
    int n_out = only >= 0 ? 1 : o->cut->n_table_pieces;
    int64_t bytes = n_sums * (int64_t)sizeof *sums;
    weft_status st = WEFT_OK;

    for (int k = 0; k < n_out && !st; k++) {
        out[k].n = 0;
        st = wf_payload_grow(ctx, &out[k], bytes);
        if (!st)
            memcpy(out[k].p, sums, (size_t)bytes);
        out[k].n = bytes;
    }
    if (!st)
        st = reserve_lists(ctx, o, only, n_groups, rows, out);
    for (int g = 0; g < n_groups; g++)
        for (int v = 0; v < o->rules->n_vars && !st; v++)
            if (o->rules->var[v].table)
                st = split_list(ctx, o, only, v, &rows[g * o->rules->n_vars + v], sort, out);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status bad(int piece, const char *what)
{
    return wf_err(WEFT_EPEER, "piece %d: %s", piece, what);
}

/* A list at *at of n bytes: its number of rows. */
static weft_status take_list(const struct wf_tables_opts *o, int piece, int var, const char *p,
                             int64_t n, int64_t *at, int64_t *rows)
{
    const struct wf_var *v = &o->rules->var[var];
    int64_t width = v->dim[1], last = -1;

    if (n - *at < 8)
        return bad(piece, "rows of a table are cut off");
    memcpy(rows, p + *at, sizeof *rows);
    *at += 8;
    if (*rows < 0 || *rows > v->dim[0] || *rows > (n - *at) / 8)
        return wf_err(WEFT_EPEER, "piece %d: %lld rows of table '%s' in %lld bytes", piece,
                      (long long)*rows, v->name, (long long)(n - *at));
    if (n - *at < *rows * 8 + wf_round_up(*rows * width * (int64_t)sizeof(float), 8))
        return bad(piece, "rows of a table are cut off");
    for (int64_t i = 0; i < *rows; i++) {
        int64_t id;

        memcpy(&id, p + *at + i * 8, sizeof id);
        if (id < 0 || id >= v->dim[0])
            return wf_err(WEFT_EPEER, "piece %d: table '%s' has no row %lld", piece, v->name,
                          (long long)id);
        if (id <= last)
            return wf_err(WEFT_EPEER, "piece %d: row %lld of table '%s' comes %s", piece,
                          (long long)id, v->name, id == last ? "twice" : "out of order");
        if (wf_cut_piece_of(o->cut, var, id) != piece)
            return wf_err(WEFT_EPEER, "piece %d: row %lld of table '%s' belongs to piece %d", piece,
                          (long long)id, v->name, wf_cut_piece_of(o->cut, var, id));
        last = id;
    }
    return WEFT_OK;
}

weft_status wf_tables_read(const struct wf_tables_opts *o, int piece, int n_groups, const char *p,
                           int64_t n, struct wf_contribution *c)
{
    int64_t at = c->rules->n_sums * (int64_t)sizeof *c->sums;
    weft_status st = WEFT_OK;

    if (n < at)
        return bad(piece, "sums are cut off");
    memcpy(c->sums, p, (size_t)at);
    for (int i = 0; i < n_groups * o->rules->n_vars && !st; i++) {
        int var = i % o->rules->n_vars;
        int64_t width = o->rules->var[var].dim[1], rows = 0;
        struct wf_rows *r = &c->rows[i];

        if (!o->rules->var[var].table)
            continue;
        st = take_list(o, piece, var, p, n, &at, &rows);
        if (!st)
            st = wf_rows_reserve(c->ctx, r, rows + 1, width);
        if (st)
            break;
        r->n = rows;
        if (rows == 0)
            continue;
        memcpy(r->id, p + at, (size_t)rows * sizeof *r->id);
        memcpy(r->row, p + at + rows * 8, (size_t)(rows * width) * sizeof *r->row);
        at += rows * 8 + wf_round_up(rows * width * (int64_t)sizeof(float), 8);
    }
    if (!st && at != n)
        st = bad(piece, "more bytes than rows");
    return st;
}
