/* tables.c - the rows of tables that a server holds of one piece: updates, reads, copies. */
#include "ps/tables.h"

/* The rows of one table that a step updates. */
struct touched {
    int64_t n, cap;
    int64_t *position; /* 0, 1, 2, … */
    int64_t *id, *at;  /* at: in its set, -1: it is new */
    float *w, *slot[WF_OPTIM_MAX_SLOTS], *gradient;
    int64_t cap_w, cap_slot[WF_OPTIM_MAX_SLOTS], cap_gradient, cap_id, cap_at;
};

struct wf_tables {
    weft_ctx *ctx;
    struct wf_tables_opts o;
    int piece, n_slots;
    float slot_init[WF_OPTIM_MAX_SLOTS];
    struct wf_rowset *set;   /* [n_blocks][n_vars] */
    struct touched *touched; /* by variable */
    struct wf_rows *moved;   /* by variable: rows by position */
    struct wf_table_data *data;
    int64_t *n_set; /* by set: rows that a step updates, and those that are new */
};

static struct wf_rowset *set_of(const struct wf_tables *t, int var, int block)
{
    return &t->set[(int64_t)block * t->o.rules->n_vars + var];
}

static int block_of(const struct wf_tables *t, int var, int64_t id)
{
    return wf_cut_block_of(t->o.cut, var, id, t->o.n_blocks);
}

static weft_status initial(const struct wf_tables *t, int var, int64_t id, float *row)
{
    const struct wf_var *v = &t->o.rules->var[var];
    struct wf_type type = wf_type_of(WEFT_F32, 2, v->dim);

    return wf_initial_rows(t->ctx, &v->init, &type, 1, &id, row);
}

/* ---- creation -------------------------------------------------------------------------------- */

weft_status wf_tables_new(weft_ctx *ctx, const struct wf_tables_opts *o, int piece,
                          struct wf_tables **out)
{
    struct wf_tables *t = wf_alloc(ctx, sizeof *t);
    int n = o->rules->n_vars;

    if (!t)
        return wf_err_nomem(ctx, sizeof *t, "tables");
    *t = (struct wf_tables){.ctx = ctx, .o = *o, .piece = piece};
    t->n_slots = wf_optim_slots(o->rules->optim, o->rules->attrs, NULL, t->slot_init);
    t->set = wf_alloc_n(ctx, (int64_t)n * o->n_blocks + 1, sizeof *t->set);
    t->touched = wf_alloc_n(ctx, n + 1, sizeof *t->touched);
    t->moved = wf_alloc_n(ctx, n + 1, sizeof *t->moved);
    t->data = wf_alloc_n(ctx, n + 1, sizeof *t->data);
    t->n_set = wf_alloc_n(ctx, 2 * o->n_blocks + 1, sizeof *t->n_set);
    if (!t->set || !t->touched || !t->moved || !t->data || !t->n_set) {
        wf_tables_free(t);
        return wf_err_nomem(ctx, (size_t)n * sizeof *t->set, "tables");
    }
    for (int64_t i = 0; i < (int64_t)n * o->n_blocks; i++)
        wf_rowset_init(&t->set[i], o->rules->var[i % n].dim[1], t->n_slots);
    *out = t;
    return WEFT_OK;
}

void wf_tables_free(struct wf_tables *t)
{
    if (!t)
        return;
    for (int64_t i = 0; t->set && i < (int64_t)t->o.rules->n_vars * t->o.n_blocks; i++)
        wf_rowset_free(t->ctx, &t->set[i]);
    for (int v = 0; t->touched && v < t->o.rules->n_vars; v++) {
        struct touched *u = &t->touched[v];

        wf_free(t->ctx, u->position);
        wf_free(t->ctx, u->id);
        wf_free(t->ctx, u->at);
        wf_free(t->ctx, u->w);
        wf_free(t->ctx, u->gradient);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            wf_free(t->ctx, u->slot[k]);
    }
    wf_free(t->ctx, t->set);
    wf_free(t->ctx, t->touched);
    wf_free(t->ctx, t->moved);
    wf_free(t->ctx, t->data);
    wf_free(t->ctx, t->n_set);
    wf_free(t->ctx, t);
}

int64_t wf_tables_count(const struct wf_tables *t)
{
    int64_t n = 0;

    for (int64_t i = 0; i < (int64_t)t->o.rules->n_vars * t->o.n_blocks; i++)
        n += t->set[i].n;
    return n;
}

/* ---- updates --------------------------------------------------------------------------------- */

static weft_status reserve_touched(struct wf_tables *t, struct touched *u, int64_t n, int64_t width)
{
    int64_t was = u->cap;
    weft_status st = wf_grow(t->ctx, &u->position, &u->cap, n + 1, sizeof *u->position);

    for (int64_t i = was; i < u->cap; i++)
        u->position[i] = i;
    if (!st)
        st = wf_grow(t->ctx, &u->id, &u->cap_id, n + 1, sizeof *u->id);
    if (!st)
        st = wf_grow(t->ctx, &u->at, &u->cap_at, n + 1, sizeof *u->at);
    if (!st)
        st = wf_grow(t->ctx, &u->w, &u->cap_w, n * width + 1, sizeof *u->w);
    for (int k = 0; k < t->n_slots && !st; k++)
        st = wf_grow(t->ctx, &u->slot[k], &u->cap_slot[k], n * width + 1, sizeof *u->slot[k]);
    return st;
}

/* The value and slots of row i, as they are before the step. */
static weft_status gather(struct wf_tables *t, int var, struct touched *u, int64_t i)
{
    const struct wf_rowset *s = set_of(t, var, block_of(t, var, u->id[i]));
    int64_t width = s->width;
    size_t bytes = (size_t)width * sizeof(float);
    const float *row;

    if (u->at[i] < 0) {
        for (int k = 0; k < t->n_slots; k++)
            for (int64_t c = 0; c < width; c++)
                u->slot[k][i * width + c] = t->slot_init[k];
        return initial(t, var, u->id[i], u->w + i * width);
    }
    row = wf_rowset_row(s, u->at[i]);
    memcpy(u->w + i * width, row, bytes);
    for (int k = 0; k < t->n_slots; k++)
        memcpy(u->slot[k] + i * width, row + (k + 1) * width, bytes);
    return WEFT_OK;
}

/* Room in the sets for the rows that a step updates. */
static weft_status reserve_sets(struct wf_tables *t, int var, const struct touched *u)
{
    weft_status st = WEFT_OK;

    memset(t->n_set, 0, (size_t)(2 * t->o.n_blocks) * sizeof *t->n_set);
    for (int64_t i = 0; i < u->n; i++) {
        int b = block_of(t, var, u->id[i]);

        t->n_set[2 * b]++;
        t->n_set[2 * b + 1] += u->at[i] < 0;
    }
    for (int b = 0; b < t->o.n_blocks && !st; b++)
        if (t->n_set[2 * b])
            st = wf_rowset_reserve(t->ctx, set_of(t, var, b), t->n_set[2 * b + 1], t->n_set[2 * b]);
    return st;
}

/* The rows of one table: where they are, and copies of them that are updated. */
static weft_status touch(struct wf_tables *t, int var, const struct wf_rows *r, int block)
{
    struct touched *u = &t->touched[var];
    int64_t width = t->o.rules->var[var].dim[1];
    weft_status st = reserve_touched(t, u, r->n, width);

    u->n = 0;
    if (!st && block >= 0)
        st = wf_grow(t->ctx, &u->gradient, &u->cap_gradient, r->n * width + 1, sizeof *u->gradient);
    for (int64_t i = 0; i < r->n && !st; i++) {
        int b = block_of(t, var, r->id[i]);

        if (block >= 0 && b != block)
            continue;
        if (block >= 0)
            memcpy(u->gradient + u->n * width, r->row + i * width, (size_t)width * sizeof(float));
        u->id[u->n] = r->id[i];
        u->at[u->n] = wf_rowset_find(set_of(t, var, b), r->id[i]);
        u->n++;
    }
    if (!st)
        st = reserve_sets(t, var, u);
    for (int64_t i = 0; i < u->n && !st; i++)
        st = gather(t, var, u, i);
    t->moved[var] =
        (struct wf_rows){.n = u->n, .id = u->position, .row = block >= 0 ? u->gradient : r->row};
    t->data[var].w = u->w;
    memcpy(t->data[var].slot, u->slot, sizeof u->slot);
    return st;
}

/* The updated copies become the rows; nothing can fail any more. */
static void put_back(struct wf_tables *t, int var, int64_t version)
{
    struct touched *u = &t->touched[var];
    int64_t width = t->o.rules->var[var].dim[1];
    size_t bytes = (size_t)width * sizeof(float);

    memset(t->n_set, 0, (size_t)(2 * t->o.n_blocks) * sizeof *t->n_set);
    for (int64_t i = 0; i < u->n; i++) {
        int b = block_of(t, var, u->id[i]);
        struct wf_rowset *s = set_of(t, var, b);
        bool is_new = u->at[i] < 0;
        int64_t at = is_new ? wf_rowset_add(s, u->id[i]) : u->at[i];
        float *row = wf_rowset_row(s, at);

        if (!t->n_set[b]++)
            wf_rowset_begin(s);
        if (is_new && initial(t, var, u->id[i], row))
            memset(row, 0, bytes); /* it was computed before: this does not happen */
        wf_rowset_keep(s, at, row, is_new ? 0 : s->changed[at], version);
        memcpy(row, u->w + i * width, bytes);
        for (int k = 0; k < t->n_slots; k++)
            memcpy(row + (k + 1) * width, u->slot[k] + i * width, bytes);
    }
}

weft_status wf_tables_apply(struct wf_tables *t, struct wf_merge *merge,
                            const struct wf_contribution *mean, const struct wf_step *step,
                            const float *scale, int block, int64_t version)
{
    const struct wf_rules *r = t->o.rules;
    struct wf_contribution by_position = *mean;
    struct wf_version v = {.table = t->data};
    weft_status st = WEFT_OK;

    memset(t->moved, 0, (size_t)r->n_vars * sizeof *t->moved);
    for (int i = 0; i < r->n_vars && !st; i++)
        if (r->var[i].table)
            st = touch(t, i, &mean->rows[i], block);
    by_position.rows = t->moved;
    if (!st)
        st = wf_merge_update(merge, &by_position, step, scale, &v);
    for (int i = 0; i < r->n_vars && !st; i++)
        if (r->var[i].table)
            put_back(t, i, version + 1);
    return st;
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* A list of a request: var, n, ids, the versions that the reader has of them, -1 for none. */
struct asked {
    int var;
    int64_t n;
    const char *ids, *since;
};

static int64_t i64_at(const char *p, int64_t i)
{
    int64_t v;

    memcpy(&v, p + 8 * i, sizeof v);
    return v;
}

static weft_status check_ids(const struct wf_tables_opts *o, int piece, const struct asked *a)
{
    const struct wf_var *v = &o->rules->var[a->var];
    int64_t last = -1;

    for (int64_t i = 0; i < a->n; i++) {
        int64_t id = i64_at(a->ids, i);

        if (id <= last || id >= v->dim[0] || wf_cut_piece_of(o->cut, a->var, id) != piece)
            return wf_err(WEFT_EPEER, "piece %d: row %lld of table '%s' is requested, which is %s",
                          piece, (long long)id, v->name,
                          id < 0 || id >= v->dim[0] ? "not in the table"
                          : id <= last              ? "not in order"
                                                    : "in another piece");
        last = id;
    }
    return WEFT_OK;
}

/* The list at *at; n is checked, ids are not. */
static weft_status take_asked(const struct wf_tables_opts *o, int piece, const char *p, int64_t n,
                              int64_t *at, struct asked *a)
{
    int64_t var, rows;

    if (n - *at < 16)
        return wf_err(WEFT_EPEER, "piece %d: a request for rows is cut off", piece);
    var = i64_at(p + *at, 0);
    rows = i64_at(p + *at, 1);
    *at += 16;
    if (var < 0 || var >= o->rules->n_vars || !o->rules->var[var].table)
        return wf_err(WEFT_EPEER,
                      "piece %d: a request for rows of variable %lld, which is not a "
                      "table",
                      piece, (long long)var);
    if (rows < 0 || rows > (n - *at) / 16)
        return wf_err(WEFT_EPEER, "piece %d: a request for %lld rows in %lld bytes", piece,
                      (long long)rows, (long long)(n - *at));
    *a = (struct asked){(int)var, rows, p + *at, p + *at + 8 * rows};
    *at += 16 * rows;
    return WEFT_OK;
}

weft_status wf_tables_check(const struct wf_tables_opts *o, int piece, const char *p, int64_t n)
{
    weft_status st = WEFT_OK;
    struct asked a;

    for (int64_t at = 0; at < n && !st;) {
        st = take_asked(o, piece, p, n, &at, &a);
        if (!st)
            st = check_ids(o, piece, &a);
    }
    return st;
}

static weft_status answer_list(struct wf_tables *t, int64_t version, const struct asked *a,
                               struct wf_payload *out)
{
    int64_t width = t->o.rules->var[a->var].dim[1], n_rows = 0, flags = wf_round_up(a->n, 8);
    int64_t most = 24 + flags + wf_round_up(a->n * width * (int64_t)sizeof(float), 8);
    int64_t head[3] = {a->var, a->n, 0};
    weft_status st = wf_payload_grow(t->ctx, out, most);
    char *start = out->p + out->n;
    float *rows = (float *)(void *)(start + 24 + flags);

    for (int64_t i = 0; i < a->n && !st; i++) {
        int64_t id = i64_at(a->ids, i), changed = 0;
        const struct wf_rowset *s = set_of(t, a->var, block_of(t, a->var, id));
        int64_t at = wf_rowset_find(s, id);
        const float *row = at >= 0 ? wf_rowset_at(s, at, version, &changed) : NULL;
        bool same = i64_at(a->since, i) >= changed;

        start[24 + i] = !same;
        if (same)
            continue;
        if (row)
            memcpy(rows + n_rows * width, row, (size_t)width * sizeof *row);
        else
            st = initial(t, a->var, id, rows + n_rows * width);
        n_rows++;
    }
    if (st)
        return st;
    head[2] = n_rows;
    memcpy(start, head, sizeof head);
    memset(start + 24 + a->n, 0, (size_t)(flags - a->n));
    if (n_rows * width % 2)
        rows[n_rows * width] = 0;
    out->n += 24 + flags + wf_round_up(n_rows * width * (int64_t)sizeof(float), 8);
    return WEFT_OK;
}

weft_status wf_tables_answer(struct wf_tables *t, int64_t version, const char *p, int64_t n,
                             struct wf_payload *out)
{
    weft_status st = wf_tables_check(&t->o, t->piece, p, n);
    struct asked a;

    out->n = 0;
    for (int64_t at = 0; at < n && !st;) {
        st = take_asked(&t->o, t->piece, p, n, &at, &a);
        if (!st)
            st = answer_list(t, version, &a, out);
    }
    return st;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void put(struct wf_payload *out, const void *p, int64_t n)
{
    if (n)
        memcpy(out->p + out->n, p, (size_t)n);
    if (n % 8)
        memset(out->p + out->n + n, 0, (size_t)(8 - n % 8));
    out->n += wf_round_up(n, 8);
}

/* var, rows, rows that `version` changed; ids, versions, rows with slots; and of the changed ones
 * their positions, and versions and values from before. */
static weft_status dump_set(struct wf_tables *t, int var, const struct wf_rowset *s,
                            int64_t version, struct wf_payload *out)
{
    int64_t data = s->n * (1 + s->n_slots) * s->width * (int64_t)sizeof(float), n_undo = 0;
    int64_t was = s->n_undo * s->width * (int64_t)sizeof(float);
    int64_t head[3] = {var, s->n, 0};
    weft_status st = wf_payload_grow(
        t->ctx, out, 40 + 16 * s->n + wf_round_up(data, 8) + 16 * s->n_undo + wf_round_up(was, 8));
    char *start = out->p + out->n;

    if (st)
        return st;
    for (int64_t i = 0; i < s->n; i++)
        n_undo += s->changed[i] == version && s->undo[i] >= 0;
    head[2] = n_undo;
    put(out, head, sizeof head);
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

weft_status wf_tables_dump(struct wf_tables *t, int block, int64_t version, struct wf_payload *out)
{
    weft_status st = WEFT_OK;

    for (int b = 0; b < t->o.n_blocks && !st; b++)
        for (int v = 0; v < t->o.rules->n_vars && !st; v++)
            if ((block < 0 || b == block) && set_of(t, v, b)->n)
                st = dump_set(t, v, set_of(t, v, b), version, out);
    return st;
}

/* What was dumped of one set. */
struct dumped {
    int var;
    int64_t n, n_undo;
    const char *ids, *changed, *data, *undo, *was_changed, *was;
};

static weft_status bad_dump(const struct wf_tables *t, const char *what)
{
    return wf_err(WEFT_EPEER, "piece %d: a copy of rows %s", t->piece, what);
}

static weft_status take_dumped(const struct wf_tables *t, const char *p, int64_t n, int64_t *at,
                               struct dumped *d)
{
    int64_t var, width, data, left, was;

    if (n - *at < 24)
        return bad_dump(t, "is cut off");
    p += *at;
    left = n - *at - 24;
    var = i64_at(p, 0);
    if (var < 0 || var >= t->o.rules->n_vars || !t->o.rules->var[var].table)
        return bad_dump(t, "is of a variable that is not a table");
    *d = (struct dumped){.var = (int)var, .n = i64_at(p, 1), .n_undo = i64_at(p, 2)};
    width = t->o.rules->var[var].dim[1];
    if (d->n < 0 || d->n > left / 16 || d->n_undo < 0 || d->n_undo > d->n)
        return bad_dump(t, "says more rows than it has");
    data = wf_round_up((1 + t->n_slots) * d->n * width * (int64_t)sizeof(float), 8);
    was = wf_round_up(d->n_undo * width * (int64_t)sizeof(float), 8);
    if (left - 16 * d->n < data || left - 16 * d->n - data < 16 * d->n_undo + was)
        return bad_dump(t, "is cut off");
    d->ids = p + 24;
    d->changed = d->ids + 8 * d->n;
    d->data = d->changed + 8 * d->n;
    d->undo = d->data + data;
    d->was_changed = d->undo + 8 * d->n_undo;
    d->was = d->was_changed + 8 * d->n_undo;
    *at += 24 + 16 * d->n + data + 16 * d->n_undo + was;
    return WEFT_OK;
}

static weft_status take_set(struct wf_tables *t, int block, const struct dumped *d)
{
    const struct wf_var *v = &t->o.rules->var[d->var];
    int64_t floats = (1 + t->n_slots) * v->dim[1];
    int first = d->n ? block_of(t, d->var, wf_max_i64(i64_at(d->ids, 0), 0)) : 0;
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
    }
    for (int64_t i = 0; i < d->n_undo && !st; i++) {
        int64_t at = i64_at(d->undo, i);

        if (at < 0 || at >= d->n || s->undo[at] >= 0)
            return bad_dump(t, "has an earlier value of no row");
        wf_rowset_keep(
            s, at, (const float *)(const void *)(d->was + i * v->dim[1] * (int64_t)sizeof(float)),
            i64_at(d->was_changed, i), s->changed[at]);
    }
    return st;
}

weft_status wf_tables_take(struct wf_tables *t, int block, const char *p, int64_t n)
{
    weft_status st = WEFT_OK;
    struct dumped d = {.var = 0};

    for (int b = 0; b < t->o.n_blocks; b++)
        for (int v = 0; v < t->o.rules->n_vars; v++)
            if (block < 0 || b == block)
                wf_rowset_free(t->ctx, set_of(t, v, b));
    for (int64_t at = 0; at < n && !st;) {
        st = take_dumped(t, p, n, &at, &d);
        if (!st && d.n && set_of(t, d.var, block_of(t, d.var, wf_max_i64(i64_at(d.ids, 0), 0)))->n)
            st = bad_dump(t, "has a table twice");
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
        struct wf_rowset *s = set_of(t, var, block_of(t, var, ids[i]));
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
    }
    return st;
}

const float *wf_tables_find(const struct wf_tables *t, int var, int64_t id)
{
    const struct wf_rowset *s = set_of(t, var, block_of(t, var, id));
    int64_t at = wf_rowset_find(s, id);

    return at < 0 ? NULL : wf_rowset_row(s, at);
}

void wf_tables_each(const struct wf_tables *t, int var, wf_tables_fn *fn, void *arg)
{
    for (int b = 0; b < t->o.n_blocks; b++) {
        const struct wf_rowset *s = set_of(t, var, b);

        for (int64_t i = 0; i < s->n; i++)
            fn(arg, s->id[i], wf_rowset_row(s, i));
    }
}
