/* tables_copies.c - the rows of a piece as bytes, for a new copy of it, and as they are in
 * checkpoints. */
#include "ps/tables_in.h"

/* ---- copies ---------------------------------------------------------------------------------- */

static void put(struct wf_payload *out, const void *p, int64_t n)
{
    if (n)
        memcpy(out->p + out->n, p, (size_t)n);
    if (n % 8)
        memset(out->p + out->n + n, 0, (size_t)(8 - n % 8));
    out->n += wf_round_up(n, 8);
}

/* Of a table that forgets rows, there is more in the head of a set: its block, and what its rows
 * are as of. */
#define MOST ((int64_t)1 << 60) /* steps */
enum { HEAD_BYTES = 24, AS_OF_BYTES = 32 };

static int64_t head_bytes(const struct wf_tables *t, int var)
{
    return HEAD_BYTES + (rule_of(t, var)->every ? AS_OF_BYTES : 0);
}

/* var, rows, rows that `version` changed; ids, versions, rows with slots; and of the changed ones
 * their positions, and versions and values from before. */
static weft_status dump_set(struct wf_tables *t, int var, int block, int64_t version,
                            struct wf_payload *out)
{
    const struct wf_rowset *s = set_of(t, var, block);
    const struct as_of *a = as_of(t, var, block);
    int64_t data = s->n * wf_rowset_floats(s) * (int64_t)sizeof(float), n_undo = 0;
    int64_t was = s->n_undo * s->width * (int64_t)sizeof(float);
    int64_t head[7] = {var, s->n, 0, block, a->version, a->step, a->before};
    weft_status st = wf_payload_grow(t->ctx, out,
                                     16 + head_bytes(t, var) + 16 * s->n + wf_round_up(data, 8) +
                                         16 * s->n_undo + wf_round_up(was, 8));
    char *start = out->p + out->n;

    if (st)
        return st;
    for (int64_t i = 0; i < s->n; i++)
        n_undo += s->changed[i] == version && s->undo[i] >= 0;
    head[2] = n_undo;
    put(out, head, head_bytes(t, var));
    put(out, s->id, 8 * s->n);
    put(out, s->changed, 8 * s->n);
    put(out, s->data, data);
    for (int part = 0; part < 3; part++) {
        for (int64_t i = 0; i < s->n; i++) {
            if (s->changed[i] != version || s->undo[i] < 0)
                continue;
            if (part == 0)
                put(out, &i, 8);
            else if (part == 1)
                put(out, &s->was_changed[s->undo[i]], 8);
            else
                memcpy(out->p + out->n, s->was + s->undo[i] * s->width,
                       (size_t)s->width * sizeof *s->was);
            out->n += part == 2 ? s->width * (int64_t)sizeof *s->was : 0;
        }
    }
    if ((out->p + out->n - start) % 8) {
        memset(out->p + out->n, 0, 4);
        out->n += 4;
    }
    return WEFT_OK;
}

/* Values that are kept: the number of variables more than var, rows, block, at; ids, whether each
 * existed, values. */
enum { KEPT_BYTES = 32 };

static weft_status dump_kept(struct wf_tables *t, int var, int block, struct wf_payload *out)
{
    const struct kept *k = kept_of(t, var, block);
    int64_t data = k->rows.n * k->rows.width * (int64_t)sizeof(float);
    int64_t head[4] = {t->o.rules->n_vars + var, k->rows.n, block, k->at};
    weft_status st =
        wf_payload_grow(t->ctx, out, KEPT_BYTES + 16 * k->rows.n + wf_round_up(data, 8));

    if (st)
        return st;
    put(out, head, sizeof head);
    put(out, k->rows.id, 8 * k->rows.n);
    put(out, k->rows.changed, 8 * k->rows.n);
    put(out, k->rows.data, data);
    return WEFT_OK;
}

weft_status wf_tables_dump(struct wf_tables *t, int block, int64_t version, bool kept,
                           struct wf_payload *out)
{
    int first = wf_max_i64(block, 0), end = block < 0 ? t->o.n_blocks : block + 1;
    weft_status st = WEFT_OK;

    for (int b = first; b < end && !st; b++)
        for (int v = 0; v < t->o.rules->n_vars && !st; v++) {
            if (set_of(t, v, b)->n || (rule_of(t, v)->every && as_of(t, v, b)->step))
                st = dump_set(t, v, b, version, out);
            if (!st && kept && kept_of(t, v, b)->at >= 0)
                st = dump_kept(t, v, b, out);
        }
    return st;
}

/* What was dumped of one set. */
struct dumped {
    int var, block; /* block -1: that of its first row */
    int64_t n, n_undo;
    struct as_of as_of;
    const char *ids, *changed, *data, *undo, *was_changed, *was;
};

static weft_status bad_dump(const struct wf_tables *t, const char *what)
{
    return wf_err(WEFT_EPEER, "piece %d: a copy of rows %s", t->piece, what);
}

static weft_status take_as_of(const struct wf_tables *t, const char *p, struct dumped *d)
{
    int64_t block = i64_at(p, 0);
    struct as_of a = {i64_at(p, 1), i64_at(p, 2), i64_at(p, 3), 0};

    if (block < 0 || block >= t->o.n_blocks)
        return bad_dump(t, "is of a block that does not exist");
    if (a.version < 0 || a.version > MOST || a.step < 0 || a.step > MOST || a.before < 0 ||
        a.before > a.step)
        return bad_dump(t, "is of a step that cannot be");
    d->block = (int)block;
    d->as_of = a;
    return WEFT_OK;
}

static weft_status take_dumped(const struct wf_tables *t, const char *p, int64_t n, int64_t *at,
                               struct dumped *d)
{
    int64_t var, width, data, left, was, head;
    weft_status st;

    if (n - *at < HEAD_BYTES)
        return bad_dump(t, "is cut off");
    p += *at;
    var = i64_at(p, 0);
    if (var < 0 || var >= t->o.rules->n_vars || !t->o.rules->var[var].table)
        return bad_dump(t, "is of a variable that is not a table");
    *d = (struct dumped){.var = (int)var, .block = -1, .n = i64_at(p, 1), .n_undo = i64_at(p, 2)};
    head = head_bytes(t, d->var);
    left = n - *at - head;
    if (left < 0)
        return bad_dump(t, "is cut off");
    st = head > HEAD_BYTES ? take_as_of(t, p + HEAD_BYTES, d) : WEFT_OK;
    if (st)
        return st;
    width = t->o.rules->var[var].dim[1];
    if (d->n < 0 || d->n > left / 16 || d->n_undo < 0 || d->n_undo > d->n)
        return bad_dump(t, "says more rows than it has");
    data = wf_round_up(d->n * wf_rowset_floats(set_of(t, d->var, 0)) * (int64_t)sizeof(float), 8);
    was = wf_round_up(d->n_undo * width * (int64_t)sizeof(float), 8);
    if (left - 16 * d->n < data || left - 16 * d->n - data < 16 * d->n_undo + was)
        return bad_dump(t, "is cut off");
    d->ids = p + head;
    d->changed = d->ids + 8 * d->n;
    d->data = d->changed + 8 * d->n;
    d->undo = d->data + data;
    d->was_changed = d->undo + 8 * d->n_undo;
    d->was = d->was_changed + 8 * d->n_undo;
    *at += head + 16 * d->n + data + 16 * d->n_undo + was;
    return WEFT_OK;
}

static int dumped_block(const struct wf_tables *t, const struct dumped *d)
{
    return d->block >= 0 ? d->block
           : d->n        ? block_of(t, d->var, wf_max_i64(i64_at(d->ids, 0), 0))
                         : 0;
}

static bool is_seen(const struct wf_rowset *s, int64_t at, int64_t step)
{
    struct wf_seen seen = seen_of(s, wf_rowset_row(s, at));

    return seen.last >= 0 && seen.last <= step && seen.count >= 1 && seen.count <= MOST;
}

static weft_status take_set(struct wf_tables *t, int block, const struct dumped *d)
{
    const struct wf_var *v = &t->o.rules->var[d->var];
    int first = dumped_block(t, d);
    int64_t floats = wf_rowset_floats(set_of(t, d->var, first));
    struct wf_rowset *s = set_of(t, d->var, first);
    weft_status st = wf_rowset_reserve(t->ctx, s, d->n, d->n_undo);

    for (int64_t i = 0; i < d->n && !st; i++) {
        int64_t id = i64_at(d->ids, i), at;

        if (id < 0 || id >= v->dim[0] || wf_cut_piece_of(t->o.cut, d->var, id) != t->piece ||
            block_of(t, d->var, id) != first || (block >= 0 && first != block))
            return bad_dump(t, "has rows of another piece or block");
        at = wf_rowset_add(s, id);
        if (at != s->n - 1)
            return bad_dump(t, "has a row twice");
        s->changed[at] = i64_at(d->changed, i);
        memcpy(wf_rowset_row(s, at), d->data + i * floats * (int64_t)sizeof(float),
               (size_t)floats * sizeof(float));
        if (s->n_more && !is_seen(s, at, d->as_of.step))
            return bad_dump(t, "has a row that was updated by steps that cannot be");
    }
    for (int64_t i = 0; i < d->n_undo && !st; i++) {
        int64_t at = i64_at(d->undo, i);

        if (at < 0 || at >= d->n || s->undo[at] >= 0)
            return bad_dump(t, "has an earlier value of no row");
        wf_rowset_keep(
            s, at, (const float *)(const void *)(d->was + i * v->dim[1] * (int64_t)sizeof(float)),
            i64_at(d->was_changed, i), s->changed[at]);
    }
    *as_of(t, d->var, first) = d->as_of;
    return st;
}

/* A list of values that are kept, at *at. */
static weft_status take_kept(struct wf_tables *t, int block, const char *p, int64_t n, int64_t *at)
{
    int64_t left = n - *at - KEPT_BYTES, var, rows, b, since, width, data;
    struct kept *k;
    weft_status st;

    if (left < 0)
        return bad_dump(t, "is cut off");
    p += *at;
    var = i64_at(p, 0) - t->o.rules->n_vars;
    rows = i64_at(p, 1);
    b = i64_at(p, 2);
    since = i64_at(p, 3);
    if (var >= t->o.rules->n_vars || !t->o.rules->var[var].table)
        return bad_dump(t, "keeps values of a variable that is not a table");
    if (b < 0 || b >= t->o.n_blocks || (block >= 0 && b != block) || since < 0 || since > MOST)
        return bad_dump(t, "keeps values of another block or version");
    width = t->o.rules->var[var].dim[1];
    if (rows < 0 || rows > left / (16 + width * (int64_t)sizeof(float)))
        return bad_dump(t, "says more rows than it has");
    data = wf_round_up(rows * width * (int64_t)sizeof(float), 8);
    if (left - 16 * rows < data)
        return bad_dump(t, "is cut off");
    p += KEPT_BYTES;
    k = kept_of(t, (int)var, (int)b);
    if (k->at >= 0)
        return bad_dump(t, "has a table twice");
    k->at = since;
    st = wf_rowset_reserve(t->ctx, &k->rows, rows, 0);
    for (int64_t i = 0; i < rows && !st; i++) {
        int64_t id = i64_at(p, i), existed = i64_at(p + 8 * rows, i), to;

        if (id < 0 || id >= t->o.rules->var[var].dim[0] ||
            wf_cut_piece_of(t->o.cut, (int)var, id) != t->piece || block_of(t, (int)var, id) != b ||
            existed < 0 || existed > 1)
            return bad_dump(t, "keeps values of rows of another piece or block");
        to = wf_rowset_add(&k->rows, id);
        if (to != k->rows.n - 1 || to != i)
            return bad_dump(t, "has a row twice");
        k->rows.changed[to] = existed;
        memcpy(wf_rowset_row(&k->rows, to), p + 16 * rows + i * width * (int64_t)sizeof(float),
               (size_t)width * sizeof(float));
    }
    *at += KEPT_BYTES + 16 * rows + data;
    return st;
}

weft_status wf_tables_take(struct wf_tables *t, int block, const char *p, int64_t n)
{
    weft_status st = WEFT_OK;
    struct dumped d = {.var = 0};

    for (int b = 0; b < t->o.n_blocks; b++)
        for (int v = 0; v < t->o.rules->n_vars; v++)
            if (block < 0 || b == block) {
                wf_rowset_free(t->ctx, set_of(t, v, b));
                *as_of(t, v, b) = (struct as_of){0, 0, 0, 0};
            }
    wf_kept_begin(t, block, -1);
    for (int64_t at = 0; at < n && !st;) {
        if (n - at >= 8 && i64_at(p + at, 0) >= t->o.rules->n_vars) {
            st = take_kept(t, block, p, n, &at);
            continue;
        }
        st = take_dumped(t, p, n, &at, &d);
        if (!st && d.n && set_of(t, d.var, dumped_block(t, &d))->n)
            st = bad_dump(t, "has a table twice");
        if (!st && d.block >= 0 && block >= 0 && d.block != block)
            st = bad_dump(t, "has rows of another piece or block");
        if (!st)
            st = take_set(t, block, &d);
    }
    return st;
}

/* ---- rows by hand ---------------------------------------------------------------------------- */

weft_status wf_tables_set(struct wf_tables *t, int var, int64_t version, int64_t n,
                          const int64_t *ids, const float *rows, const float *const *slot)
{
    int64_t width = t->o.rules->var[var].dim[1];
    size_t bytes = (size_t)width * sizeof(float);
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && !st; i++) {
        int block = block_of(t, var, ids[i]);
        struct wf_rowset *s = set_of(t, var, block);
        int64_t at;
        float *row;

        st = wf_rowset_reserve(t->ctx, s, 1, 0);
        if (st)
            break;
        at = wf_rowset_add(s, ids[i]);
        row = wf_rowset_row(s, at);
        s->changed[at] = version;
        memcpy(row, rows + i * width, bytes);
        for (int k = 0; k < t->n_slots; k++)
            memcpy(row + (k + 1) * width, slot[k] + i * width, bytes);
        if (s->n_more)
            memcpy(row + (1 + t->n_slots) * width, slot[t->n_slots] + i * SEEN_FLOATS,
                   sizeof(struct wf_seen));
        set_as_of(t, var, block, version, version, version);
    }
    return st;
}

const float *wf_tables_find(const struct wf_tables *t, int var, int64_t id)
{
    int block = block_of(t, var, id);
    const struct wf_rowset *s = set_of(t, var, block);
    int64_t at = wf_rowset_find(s, id), step = as_of(t, var, block)->step;

    return at < 0 || is_gone(t, var, s, wf_rowset_row(s, at), step) ? NULL : wf_rowset_row(s, at);
}

void wf_tables_each(const struct wf_tables *t, int var, wf_tables_fn *fn, void *arg)
{
    for (int b = 0; b < t->o.n_blocks; b++) {
        const struct wf_rowset *s = set_of(t, var, b);

        for (int64_t i = 0; i < s->n; i++)
            if (!is_gone(t, var, s, wf_rowset_row(s, i), as_of(t, var, b)->step))
                fn(arg, s->id[i], wf_rowset_row(s, i));
    }
}
