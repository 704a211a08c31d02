/* lookup.c - rows that a worker looks up. In its sets, `changed` is the version that a row is known
 * to have, -1: none yet; `undo` is 0 while it is being requested, otherwise -1. */
#include "ps/lookup.h"

/* Ids of one table that are to be requested, and where their rows go in the young set. */
struct wanted {
    int64_t n, cap_id, cap_at;
    int64_t *id, *at;
};

/* What was requested of a piece. */
struct request {
    struct wf_payload body;
    int64_t *at; /* of its rows, one after the other */
    int64_t n, cap;
};

struct wf_lookup {
    weft_ctx *ctx;
    struct wf_tables_opts o;
    int64_t limit, bytes;     /* of the young generation */
    struct wf_rowset *set[2]; /* by variable: young, old */
    struct wanted *wanted;    /* by variable */
    struct wf_tables_sort sort;
    struct request request[WF_MAX_TABLE_PIECES];
    struct wf_payload body[WF_MAX_TABLE_PIECES];
    struct wf_lookup_counts counts;
};

weft_status wf_lookup_new(weft_ctx *ctx, const struct wf_tables_opts *o, int64_t bytes,
                          struct wf_lookup **out)
{
    struct wf_lookup *l = wf_alloc(ctx, sizeof *l);
    int n = o->rules->n_vars;

    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "lookups");
    l->ctx = ctx;
    l->o = *o;
    l->limit = bytes ? bytes : 32 << 20;
    l->set[0] = wf_alloc_n(ctx, n + 1, sizeof *l->set[0]);
    l->set[1] = wf_alloc_n(ctx, n + 1, sizeof *l->set[1]);
    l->wanted = wf_alloc_n(ctx, n + 1, sizeof *l->wanted);
    if (!l->set[0] || !l->set[1] || !l->wanted) {
        wf_lookup_free(l);
        return wf_err_nomem(ctx, (size_t)n * sizeof *l->wanted, "lookups");
    }
    for (int v = 0; v < n; v++)
        for (int g = 0; g < 2; g++)
            wf_rowset_init(&l->set[g][v], o->rules->var[v].dim[1], 0, 0);
    *out = l;
    return WEFT_OK;
}

static void drop(struct wf_lookup *l, int generation)
{
    for (int v = 0; l->set[generation] && v < l->o.rules->n_vars; v++)
        wf_rowset_free(l->ctx, &l->set[generation][v]);
}

void wf_lookup_free(struct wf_lookup *l)
{
    if (!l)
        return;
    drop(l, 0);
    drop(l, 1);
    for (int v = 0; l->wanted && v < l->o.rules->n_vars; v++) {
        wf_free(l->ctx, l->wanted[v].id);
        wf_free(l->ctx, l->wanted[v].at);
    }
    wf_tables_sort_free(l->ctx, &l->sort);
    for (int k = 0; k < WF_MAX_TABLE_PIECES; k++) {
        wf_free(l->ctx, l->request[k].body.p);
        wf_free(l->ctx, l->request[k].at);
    }
    wf_free(l->ctx, l->set[0]);
    wf_free(l->ctx, l->set[1]);
    wf_free(l->ctx, l->wanted);
    wf_free(l->ctx, l);
}

void wf_lookup_forget(struct wf_lookup *l)
{
    drop(l, 0);
    drop(l, 1);
    l->bytes = 0;
    for (int v = 0; v < l->o.rules->n_vars; v++)
        l->wanted[v].n = 0;
    for (int k = 0; k < WF_MAX_TABLE_PIECES; k++)
        l->request[k].n = l->request[k].body.n = 0;
}

/* ---- wanting --------------------------------------------------------------------------------- */

/* The young generation becomes the old one, unless rows are wanted whose places in it are noted. */
static void age(struct wf_lookup *l)
{
    struct wf_rowset *young = l->set[0];

    for (int v = 0; v < l->o.rules->n_vars; v++)
        if (l->wanted[v].n)
            return;
    drop(l, 1);
    l->set[0] = l->set[1];
    l->set[1] = young;
    l->bytes = 0;
}

/* Where the row is in the young set; what the old one has of it is taken over. */
static int64_t place(struct wf_lookup *l, int var, int64_t id)
{
    struct wf_rowset *s = &l->set[0][var], *old = &l->set[1][var];
    int64_t at = wf_rowset_find(s, id), was;

    if (at >= 0)
        return at;
    at = wf_rowset_add(s, id);
    l->bytes += s->width * (int64_t)sizeof(float) + 32;
    was = wf_rowset_find(old, id);
    if (was >= 0 && old->changed[was] >= 0) {
        s->changed[at] = old->changed[was];
        wf_row_copy(wf_rowset_row(s, at), wf_rowset_row(old, was), s->width);
    }
    return at;
}

weft_status wf_lookup_want(struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids)
{
    struct wanted *w = &l->wanted[var];
    struct wf_rowset *s;
    weft_status st;

    if (l->bytes > l->limit)
        age(l);
    s = &l->set[0][var];
    st = wf_rowset_reserve(l->ctx, s, n, 0);
    if (!st)
        st = wf_grow(l->ctx, &w->id, &w->cap_id, w->n + n, sizeof *w->id);
    if (!st)
        st = wf_grow(l->ctx, &w->at, &w->cap_at, w->n + n, sizeof *w->at);
    for (int64_t i = 0; i < n && !st; i++)
        wf_rowset_soon(s, ids[i]);
    for (int64_t i = 0; i < n && !st; i++)
        wf_rowset_next(s, ids[i]);
    for (int64_t i = 0; i < n && !st; i++) {
        int64_t at;

        if (ids[i] < 0 || ids[i] >= l->o.rules->var[var].dim[0])
            continue;
        at = place(l, var, ids[i]);
        if (s->changed[at] == t || s->undo[at] == 0)
            continue;
        s->undo[at] = 0;
        w->id[w->n] = ids[i];
        w->at[w->n++] = at;
    }
    return st;
}

/* The rows of one table: var, n, ids, versions; to each piece those that it has. */
static weft_status request_table(struct wf_lookup *l, int var)
{
    struct wanted *w = &l->wanted[var];
    struct wf_rowset *s = &l->set[0][var];
    int64_t n[WF_MAX_TABLE_PIECES] = {0}, first[WF_MAX_TABLE_PIECES];
    const int64_t *id;
    const int32_t *from;
    weft_status st =
        wf_tables_sort_ids(l->ctx, &l->sort, w->n, w->id, l->o.rules->var[var].dim[0], &id, &from);

    for (int64_t i = 0; i < w->n && !st; i++)
        n[wf_cut_piece_of(l->o.cut, var, id[i]) - l->o.cut->first_table]++;
    for (int k = 0; k < l->o.cut->n_table_pieces && !st; k++) {
        struct request *r = &l->request[k];
        int64_t head[2] = {var, n[k]};

        if (!n[k])
            continue;
        st = wf_payload_grow(l->ctx, &r->body, 16 + 16 * n[k]);
        if (!st)
            st = wf_grow(l->ctx, &r->at, &r->cap, r->n + n[k], sizeof *r->at);
        if (st)
            break;
        memcpy(r->body.p + r->body.n, head, sizeof head);
        first[k] = r->body.n + 16;
        r->body.n += 16 + 16 * n[k];
    }
    for (int64_t i = 0; i < w->n && !st; i++) {
        int k = wf_cut_piece_of(l->o.cut, var, id[i]) - l->o.cut->first_table;
        struct request *r = &l->request[k];
        int64_t at = w->at[from[i]];

        memcpy(r->body.p + first[k], &id[i], 8);
        memcpy(r->body.p + first[k] + 8 * n[k], &s->changed[at], 8);
        first[k] += 8;
        r->at[r->n++] = at;
    }
    l->counts.asked += w->n;
    w->n = 0;
    return st;
}

weft_status wf_lookup_request(struct wf_lookup *l, const struct wf_payload **body)
{
    weft_status st = WEFT_OK;

    for (int k = 0; k < WF_MAX_TABLE_PIECES; k++)
        l->request[k].n = l->request[k].body.n = 0;
    for (int v = 0; v < l->o.rules->n_vars && !st; v++)
        if (l->wanted[v].n)
            st = request_table(l, v);
    for (int k = 0; k < WF_MAX_TABLE_PIECES; k++)
        l->body[k] = l->request[k].body;
    *body = l->body;
    return st;
}

const struct wf_payload *wf_lookup_asked(const struct wf_lookup *l, int k)
{
    return &l->request[k].body;
}

/* ---- answers --------------------------------------------------------------------------------- */

static weft_status bad(const struct wf_lookup *l, int k)
{
    return wf_err(WEFT_EPEER, "piece %d: rows that do not answer what was asked",
                  l->o.cut->first_table + k);
}

/* One list of an answer: var, n, rows that follow; a byte for each, 1: its row follows; rows. */
static weft_status take_list(struct wf_lookup *l, int k, int64_t t, const int64_t *head,
                             const char *p, int64_t first)
{
    struct wf_rowset *s = &l->set[0][head[0]];
    const char *row = p + wf_round_up(head[1], 8);
    int64_t bytes = s->width * (int64_t)sizeof(float), seen = 0;

    for (int64_t i = 0; i < head[1]; i++) {
        const int64_t *places = l->request[k].at + first;
        int64_t at = places[i];

        if (i + WF_ROWS_AHEAD < head[1]) {
            int64_t next = places[i + WF_ROWS_AHEAD];

            wf_row_soon(wf_rowset_row(s, next), s->width);
            __builtin_prefetch(&s->changed[next], 1);
            __builtin_prefetch(&s->undo[next], 1);
        }
        if (p[i] && seen++ < head[2]) {
            wf_row_copy(wf_rowset_row(s, at), (const float *)(const void *)row, s->width);
            row += bytes;
        } else if (p[i] || s->changed[at] < 0) {
            return bad(l, k);
        }
        s->changed[at] = t;
        s->undo[at] = -1;
    }
    l->counts.sent += seen;
    return seen == head[2] ? WEFT_OK : bad(l, k);
}

weft_status wf_lookup_take(struct wf_lookup *l, int k, int64_t t, const char *p, int64_t n)
{
    const struct request *r = &l->request[k];
    int64_t at = 0, first = 0;
    weft_status st = WEFT_OK;

    for (int64_t asked = 0; asked < r->body.n && !st;) {
        int64_t own[2], head[3], bytes;

        memcpy(own, r->body.p + asked, sizeof own);
        if (n - at < 24)
            return bad(l, k);
        memcpy(head, p + at, sizeof head);
        if (head[0] != own[0] || head[1] != own[1] || head[2] < 0 || head[2] > head[1])
            return bad(l, k);
        bytes = 24 + wf_round_up(head[1], 8) +
                wf_round_up(head[2] * l->set[0][own[0]].width * (int64_t)sizeof(float), 8);
        if (n - at < bytes)
            return bad(l, k);
        st = take_list(l, k, t, head, p + at + 24, first);
        at += bytes;
        first += own[1];
        asked += 16 + 16 * own[1];
    }
    return st ? st : at == n ? WEFT_OK : bad(l, k);
}

static const float *row_at(const struct wf_lookup *l, int generation, int var, int64_t id,
                           int64_t t)
{
    const struct wf_rowset *s = &l->set[generation][var];
    int64_t at = wf_rowset_find(s, id);

    return at >= 0 && s->changed[at] == t ? wf_rowset_row(s, at) : NULL;
}

enum { CHUNK = 512 };

/* At most CHUNK rows; false: at least one of them has not arrived. */
static bool copy_some(const struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids,
                      float *rows)
{
    int64_t width = l->o.rules->var[var].dim[1];
    const float *row[CHUNK];
    bool all = true;

    for (int64_t i = 0; i < n; i++)
        wf_rowset_soon(&l->set[0][var], ids[i]);
    for (int64_t i = 0; i < n; i++)
        wf_rowset_next(&l->set[0][var], ids[i]);
    for (int64_t i = 0; i < n; i++) {
        row[i] = row_at(l, 0, var, ids[i], t);
        if (!row[i])
            row[i] = row_at(l, 1, var, ids[i], t); /* others were wanted after it */
        all &= row[i] != NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        if (i + WF_ROWS_AHEAD < n)
            wf_row_soon(row[i + WF_ROWS_AHEAD], width);
        if (row[i])
            wf_row_copy(rows + i * width, row[i], width);
        else
            memset(rows + i * width, 0, (size_t)width * sizeof *rows);
    }
    return all;
}

bool wf_lookup_copy(struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids,
                    float *rows)
{
    int64_t width = l->o.rules->var[var].dim[1];
    bool all = true;

    for (int64_t i = 0; i < n; i += CHUNK)
        all &= copy_some(l, t, var, wf_min_i64(n - i, CHUNK), ids + i, rows + i * width);
    return all;
}

bool wf_lookup_has(const struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids,
                   float *rows)
{
    int64_t width = l->o.rules->var[var].dim[1];
    bool all = true;

    for (int64_t i = 0; i < n && all; i += CHUNK)
        all = copy_some(l, t, var, wf_min_i64(n - i, CHUNK), ids + i, rows + i * width);
    return all;
}

struct wf_lookup_counts wf_lookup_counts(const struct wf_lookup *l)
{
    return l->counts;
}
