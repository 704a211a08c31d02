/* table_rows.c - tables that parameter servers hold, in checkpoints: only the rows that exist.
 *
 * Table `x` is the tensors `x:ids`, `x:rows` and `x:rows:slot<k>`; every other row is as its
 * initializer makes it. One that forgets rows has `x:seen`, too, as a whole or by rows: the last
 * step that has updated a row, and how many have. Values that servers keep for a callback are
 * `x:best:ids` and `x:best:rows`: of rows that changed since, and whether they existed. Any
 * strategy reads the others: as a whole, or row by row to the servers. Tables of checkpoints that
 * have them as a whole go to servers likewise. */
#include <stdio.h>

#include "train/loop/checkpoint.h"
#include "train/step/dist.h"

#define CHUNK_BYTES ((int64_t)64 << 20) /* read at a time: as much as has one checksum */

/* Tensors of a table in a checkpoint, -1: not there. Of a whole one there are no ids. */
struct stored {
    weft_ckpt *c;
    int64_t ids, rows, slot[WF_OPTIM_MAX_SLOTS], seen;
    int64_t n, width;
};

static int64_t find(weft_ckpt *c, const char *name, const char *suffix, int k)
{
    char full[600];

    if (k < 0)
        snprintf(full, sizeof full, "%s%s", name, suffix);
    else
        snprintf(full, sizeof full, "%s%s:slot%d", name, suffix, k);
    return weft_ckpt_find(c, full);
}

static weft_status wrong(const char *name, const char *what)
{
    return wf_err(WEFT_ESHAPE, "table '%s': the checkpoint has %s", name, what);
}

static weft_status check_type(const struct stored *s, const char *name, int64_t i, int64_t width)
{
    const weft_tensor *t;

    if (i < 0)
        return wf_err(WEFT_ENOENT, "table '%s': the checkpoint lacks a tensor of it", name);
    t = &weft_ckpt_info(s->c)->tensors[i].tensor;
    if (t->dtype != WEFT_F32 || t->rank != 2 || t->dim[0] != s->n || t->dim[1] != width)
        return wrong(name, "rows of another width, or another number of them than ids");
    return WEFT_OK;
}

static weft_status check_seen(const struct stored *s, const char *name)
{
    const weft_tensor *t;

    if (s->seen < 0)
        return wf_err(WEFT_EINVAL,
                      "table '%s' forgets rows (evict), and the checkpoint does not say when its "
                      "rows were updated: resume without evict, or start anew",
                      name);
    t = &weft_ckpt_info(s->c)->tensors[s->seen].tensor;
    if (t->dtype != WEFT_I64 || t->rank != 2 || t->dim[0] != s->n || t->dim[1] != 2)
        return wrong(name, "counts of rows that are not two whole numbers for each");
    return WEFT_OK;
}

/* n_slots: that are needed. */
static weft_status open_table(weft_ckpt *c, const struct wf_segment *seg, int n_slots, bool counted,
                              struct stored *s)
{
    const weft_tensor *ids;
    const char *suffix;
    weft_status st;

    *s = (struct stored){.c = c, .width = seg->type.dim[1], .n = seg->type.dim[0]};
    s->ids = find(c, seg->name, ":ids", -1);
    suffix = s->ids >= 0 ? ":rows" : "";
    s->rows = find(c, seg->name, suffix, -1);
    if (s->ids >= 0) {
        ids = &weft_ckpt_info(c)->tensors[s->ids].tensor;
        if (ids->dtype != WEFT_I64 || ids->rank != 1)
            return wrong(seg->name, "ids that are not a list of whole numbers");
        s->n = ids->dim[0];
    }
    s->seen = counted ? find(c, seg->name, ":seen", -1) : -1;
    st = check_type(s, seg->name, s->rows, s->width);
    if (!st && counted)
        st = check_seen(s, seg->name);
    for (int k = 0; k < n_slots && !st; k++) {
        s->slot[k] = find(c, seg->name, suffix, k);
        st = check_type(s, seg->name, s->slot[k], s->width);
    }
    return st;
}

/* ---- in parts -------------------------------------------------------------------------------- */

/* Some rows, with their numbers. */
struct some {
    int64_t n, max;
    int64_t *id;
    float *rows, *slot[WF_OPTIM_MAX_SLOTS];
    struct wf_seen *seen; /* NULL: not needed */
};

static void free_some(weft_ctx *ctx, struct some *m)
{
    wf_free(ctx, m->id);
    wf_free(ctx, m->seen);
    wf_free(ctx, m->rows);
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        wf_free(ctx, m->slot[k]);
}

static weft_status new_some(weft_ctx *ctx, const struct stored *s, int n_slots, struct some *m)
{
    bool ok;

    *m = (struct some){
        .max = wf_min_i64(
            wf_max_i64(CHUNK_BYTES / (wf_max_i64(s->width, 1) * (int64_t)sizeof(float)), 1), s->n)};
    m->id = wf_alloc_n(ctx, m->max + 1, sizeof *m->id);
    m->rows = wf_alloc_n(ctx, m->max * s->width + 1, sizeof *m->rows);
    ok = m->id && m->rows;
    if (ok && s->seen >= 0) {
        m->seen = wf_alloc_n(ctx, m->max + 1, sizeof *m->seen);
        ok = m->seen;
    }
    for (int k = 0; k < n_slots && ok; k++) {
        m->slot[k] = wf_alloc_n(ctx, m->max * s->width + 1, sizeof *m->slot[k]);
        ok = m->slot[k];
    }
    return ok ? WEFT_OK : wf_err_nomem(ctx, (size_t)CHUNK_BYTES, "rows of a table");
}

/* A row of a whole table may never have been updated. */
static weft_status check_count(const struct wf_segment *seg, int64_t step, bool exists,
                               const struct wf_seen *s)
{
    if (s->last >= 0 && s->last <= step && s->count >= exists && s->count < (int64_t)1 << 60)
        return WEFT_OK;
    return wf_err(WEFT_EDATA,
                  "table '%s': the checkpoint of step %lld has a row that %lld steps have updated, "
                  "the last one step %lld",
                  seg->name, (long long)step, (long long)s->count, (long long)s->last);
}

/* The rows from `first` on. */
static weft_status read_some(const struct stored *s, const struct wf_segment *seg, int n_slots,
                             int64_t first, struct some *m)
{
    int64_t at = first * s->width, n;
    weft_status st = WEFT_OK;

    m->n = wf_min_i64(m->max, s->n - first);
    n = m->n * s->width;
    if (s->ids >= 0)
        st = weft_ckpt_read_range(s->c, s->ids, first, m->n, m->id);
    else
        for (int64_t i = 0; i < m->n; i++)
            m->id[i] = first + i;
    if (!st)
        st = weft_ckpt_read_range(s->c, s->rows, at, n, m->rows);
    if (!st && m->seen)
        st = weft_ckpt_read_range(s->c, s->seen, 2 * first, 2 * m->n, m->seen);
    for (int64_t i = 0; i < m->n && m->seen && !st; i++)
        st = check_count(seg, weft_ckpt_info(s->c)->step, s->ids >= 0, &m->seen[i]);
    for (int k = 0; k < n_slots && !st; k++)
        st = weft_ckpt_read_range(s->c, s->slot[k], at, n, m->slot[k]);
    for (int64_t i = 0; i < m->n && !st; i++)
        if (m->id[i] < 0 || m->id[i] >= seg->type.dim[0])
            st = wf_err(WEFT_ERANGE, "table '%s' has %lld rows; the checkpoint has a row %lld",
                        seg->name, (long long)seg->type.dim[0], (long long)m->id[i]);
    return st;
}

/* ---- to the strategy ------------------------------------------------------------------------- */

/* Whether row i is not as it was before its first update. */
static bool is_changed(const weft_table *t, const struct some *m, int64_t i, const float *initial)
{
    int64_t at = i * t->width;

    if (m->seen)
        return m->seen[i].count > 0;
    if (memcmp(initial, m->rows + at, (size_t)t->width * sizeof *initial) != 0)
        return true;
    for (int k = 0; k < t->n_slots; k++)
        for (int64_t j = 0; j < t->width; j++)
            if (memcmp(&m->slot[k][at + j], &t->slot_init[k], sizeof(float)) != 0)
                return true;
    return false;
}

static weft_status give_some(weft_trainer *t, struct wf_work *w, const weft_table *table,
                             const struct some *m, bool all, float *initial)
{
    const weft_dist *d = t->dist;
    const float *at[WF_OPTIM_MAX_SLOTS + 1] = {NULL};
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < (all ? 1 : m->n) && !st; i++) {
        st = all ? WEFT_OK : weft_table_init(table, 1, &m->id[i], initial);
        if (st || (!all && !is_changed(table, m, i, initial)))
            continue;
        for (int k = 0; k < table->n_slots; k++)
            at[k] = m->slot[k] + i * table->width;
        if (m->seen)
            at[table->n_slots] = (const float *)(const void *)&m->seen[i];
        st = d->kind.set_rows(d->self, w, table, weft_trainer_step(t), all ? m->n : 1, &m->id[i],
                              m->rows + i * table->width, at);
    }
    return st;
}

/* ---- values that are kept -------------------------------------------------------------------- */

/* *n -1: there are none. */
static weft_status open_kept(weft_ckpt *c, const struct wf_segment *seg, int64_t *ids,
                             int64_t *rows, int64_t *n)
{
    const weft_tensor *t, *values;

    *ids = find(c, seg->name, ":best:ids", -1);
    *rows = find(c, seg->name, ":best:rows", -1);
    *n = -1;
    if (*ids < 0 && *rows < 0)
        return WEFT_OK;
    if (*ids < 0 || *rows < 0)
        return wf_err(WEFT_ENOENT, "table '%s': the checkpoint lacks a tensor of its best values",
                      seg->name);
    t = &weft_ckpt_info(c)->tensors[*ids].tensor;
    values = &weft_ckpt_info(c)->tensors[*rows].tensor;
    if (t->dtype != WEFT_I64 || t->rank != 2 || t->dim[1] != 2 || values->dtype != WEFT_F32 ||
        values->rank != 2 || values->dim[0] != t->dim[0] || values->dim[1] != seg->type.dim[1])
        return wrong(seg->name, "best values of another width, or another number of them than ids");
    *n = t->dim[0];
    return WEFT_OK;
}

static weft_status check_kept(const struct wf_segment *seg, int64_t n, const int64_t *ids)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[2 * i] < 0 || ids[2 * i] >= seg->type.dim[0] || ids[2 * i + 1] < 0 ||
            ids[2 * i + 1] > 1)
            return wf_err(WEFT_ERANGE,
                          "table '%s' has %lld rows; the checkpoint has a best value of row %lld",
                          seg->name, (long long)seg->type.dim[0], (long long)ids[2 * i]);
    return WEFT_OK;
}

static weft_status give_kept(weft_trainer *t, struct wf_work *w, weft_ckpt *c,
                             const struct wf_segment *seg)
{
    int64_t width = seg->type.dim[1], ids_at, rows_at, n;
    int64_t max = wf_max_i64(CHUNK_BYTES / (wf_max_i64(width, 1) * (int64_t)sizeof(float)), 1);
    weft_status st = open_kept(c, seg, &ids_at, &rows_at, &n);
    int64_t *ids;
    float *rows;

    if (st || n < 0)
        return st;
    max = wf_min_i64(max, n);
    ids = wf_alloc_n(t->ctx, 2 * max + 1, sizeof *ids);
    rows = wf_alloc_n(t->ctx, max * width + 1, sizeof *rows);
    st = ids && rows ? wf_dist_set_kept(t, w, seg, 0, NULL, NULL)
                     : wf_err_nomem(t->ctx, (size_t)CHUNK_BYTES, "rows of a table");
    for (int64_t first = 0; first < n && !st; first += max) {
        int64_t some = wf_min_i64(max, n - first);

        st = weft_ckpt_read_range(c, ids_at, 2 * first, 2 * some, ids);
        if (!st)
            st = weft_ckpt_read_range(c, rows_at, first * width, some * width, rows);
        if (!st)
            st = check_kept(seg, some, ids);
        if (!st)
            st = wf_dist_set_kept(t, w, seg, some, ids, rows);
    }
    wf_free(t->ctx, ids);
    wf_free(t->ctx, rows);
    return st;
}

static weft_status give_table(weft_trainer *t, weft_ckpt *c, const struct wf_segment *seg)
{
    weft_table table = wf_table_of(t->ctx, seg);
    float *initial = wf_alloc_n(t->ctx, table.width + 1, sizeof *initial);
    struct some m = {.id = NULL};
    struct stored s;
    struct wf_work *w;
    weft_status st = open_table(c, seg, seg->n_slots, seg->evict.every > 0, &s);

    if (!st && !initial)
        st = wf_err_nomem(t->ctx, 0, "a table");
    if (!st)
        st = new_some(t->ctx, &s, seg->n_slots, &m);
    if (!st)
        st = wf_work_get(t, &w);
    for (int64_t first = 0; first < s.n && !st; first += m.n) {
        st = read_some(&s, seg, seg->n_slots, first, &m);
        if (!st)
            st = give_some(t, w, &table, &m, s.ids >= 0, initial);
    }
    if (!st && t->keeper)
        st = give_kept(t, w, c, seg);
    free_some(t->ctx, &m);
    wf_free(t->ctx, initial);
    return st;
}

/* Those that the strategy holds. */
static const struct wf_segment *remote_table(const weft_trainer *t, int i)
{
    const struct wf_segment *seg =
        wf_store_find(t->bound->fit->store, wf_model_weight(t->model, i)->name);

    return seg && seg->remote ? seg : NULL;
}

bool wf_stored_any(const struct wf_resume *r)
{
    for (int i = 0; i < wf_model_n_weights(r->t->model); i++)
        if (remote_table(r->t, i))
            return true;
    return false;
}

weft_status wf_stored_check(const struct wf_resume *r, weft_ckpt *c)
{
    int64_t ids, rows, n;
    weft_status st = WEFT_OK;
    struct stored s;

    for (int i = 0; i < wf_model_n_weights(r->t->model) && !st && wf_dist_together(r->t); i++) {
        const struct wf_segment *seg = remote_table(r->t, i);

        st = seg ? open_table(c, seg, seg->n_slots, seg->evict.every > 0, &s) : WEFT_OK;
        if (!st && seg)
            st = open_kept(c, seg, &ids, &rows, &n);
    }
    return st;
}

weft_status wf_stored_give(const struct wf_resume *r, weft_ckpt *c)
{
    weft_status st = WEFT_OK;

    wf_dist_drop_rows(r->t); /* that were loaded from elsewhere */
    for (int i = 0; i < wf_model_n_weights(r->t->model) && !st && wf_dist_together(r->t); i++) {
        const struct wf_segment *seg = remote_table(r->t, i);

        st = seg ? give_table(r->t, c, seg) : WEFT_OK;
    }
    return st;
}

/* ---- as a whole ------------------------------------------------------------------------------ */

enum { VALUES = -1, SEEN = -2 };

/* "x" and VALUES, "x:slot2" and 2, or "x:seen" and SEEN. */
static const struct wf_segment *table_of(const struct wf_store *store, const char *name, int *k)
{
    const char *end = strrchr(name, ':');
    char base[512];

    *k = VALUES;
    if (end && (strncmp(end, ":slot", 5) == 0 || strcmp(end, ":seen") == 0) &&
        end - name < (int64_t)sizeof base) {
        *k = strcmp(end, ":seen") == 0 ? SEEN : end[5] - '0';
        snprintf(base, sizeof base, "%.*s", (int)(end - name), name);
        name = base;
    }
    return *k < WF_OPTIM_MAX_SLOTS ? wf_store_find(store, name) : NULL;
}

static weft_status put_all(weft_ctx *ctx, const struct stored *s, const struct wf_segment *seg,
                           int k, float *to)
{
    struct stored one = *s;
    struct some m;
    weft_status st;

    one.rows = k < 0 ? s->rows : s->slot[k];
    st = new_some(ctx, &one, 0, &m);
    for (int64_t first = 0; first < one.n && !st; first += m.n) {
        st = read_some(&one, seg, 0, first, &m);
        for (int64_t i = 0; i < m.n && !st; i++)
            memcpy(to + m.id[i] * one.width, m.rows + i * one.width,
                   (size_t)one.width * sizeof *to);
    }
    free_some(ctx, &m);
    return st;
}

/* Of all rows. */
static weft_status load_seen(weft_ctx *ctx, const struct wf_segment *seg, weft_ckpt *c,
                             const weft_tensor *to)
{
    struct wf_seen *seen = to->data;
    struct stored s;
    struct some m;
    weft_status st = open_table(c, seg, 0, true, &s);

    if (st || !seen)
        return st;
    st = new_some(ctx, &s, 0, &m);
    memset(seen, 0, (size_t)seg->type.dim[0] * sizeof *seen);
    for (int64_t first = 0; first < s.n && !st; first += m.n) {
        st = read_some(&s, seg, 0, first, &m);
        for (int64_t i = 0; i < m.n && !st; i++)
            seen[m.id[i]] = m.seen[i];
    }
    free_some(ctx, &m);
    return st;
}

weft_status wf_stored_load(weft_ctx *ctx, const struct wf_store *store, weft_ckpt *c,
                           const char *name, const weft_tensor *to)
{
    int k;
    const struct wf_segment *seg = table_of(store, name, &k);
    struct stored s;
    weft_status st;

    if (seg && k == SEEN)
        return load_seen(ctx, seg, c, to);
    if (!seg || seg->type.rank != 2 || find(c, seg->name, ":ids", -1) < 0)
        return weft_ckpt_load(c, name, to);
    st = open_table(c, seg, k + 1, false, &s);
    if (st || !to->data)
        return st;
    if (k < 0)
        st = wf_init_variable(ctx, seg->node, &seg->type, to->data);
    for (int64_t i = 0; i < seg->count && k >= 0; i++)
        ((float *)to->data)[i] = seg->slot_init[k];
    return st ? st : put_all(ctx, &s, seg, k, to->data);
}

weft_status wf_stored_weight(weft_trainer *t, weft_ckpt *c, const char *name, const weft_tensor *to)
{
    const struct wf_bound *b = t->bound;

    return wf_stored_load(t->ctx, (b->fit ? b->fit : b->predict)->store, c, name, to);
}
