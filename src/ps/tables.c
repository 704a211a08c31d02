/* tables.c - the rows of tables that a server holds of one piece: updates, reads. */
#include "ps/tables_in.h"

/* Where rows of a table are: their blocks, and their places there, -1: they are missing. row: NULL,
 * or the address of each, NULL where it is missing. */
static void find_rows(const struct wf_tables *t, int var, int64_t n, const void *ids,
                      int32_t *block, int64_t *at, const float **row)
{
    const char *p = ids;

    for (int64_t i = 0; i < n; i++) {
        block[i] = block_of(t, var, i64_at(p, i));
        wf_rowset_soon(set_of(t, var, block[i]), i64_at(p, i));
    }
    for (int64_t i = 0; i < n; i++)
        wf_rowset_next(set_of(t, var, block[i]), i64_at(p, i));
    for (int64_t i = 0; i < n; i++) {
        const struct wf_rowset *s = set_of(t, var, block[i]);

        at[i] = wf_rowset_find(s, i64_at(p, i));
        if (row)
            row[i] = at[i] < 0 ? NULL : wf_rowset_row(s, at[i]);
    }
}

/* Room for n rows that are looked for together. */
static weft_status reserve_found(struct wf_tables *t, int64_t n)
{
    struct found *f = &t->found;
    weft_status st = wf_grow(t->ctx, &f->at, &f->cap_at, n + 1, sizeof *f->at);

    if (!st)
        st = wf_grow(t->ctx, &f->block, &f->cap_block, n + 1, sizeof *f->block);
    return st ? st : wf_grow(t->ctx, &f->row, &f->cap_row, n + 1, sizeof *f->row);
}

/* ---- rows that are forgotten ----------------------------------------------------------------- */

/* What a search for rows that are gone needs to know. */
struct search {
    const struct wf_tables *t;
    int var;
    const struct wf_rowset *set;
    int64_t step;
};

static bool gone_row(void *arg, const float *row)
{
    const struct search *s = arg;

    return is_gone(s->t, s->var, s->set, row, s->step);
}

/* Rows that will be removed, as far as their values are to be kept. */
static weft_status keep_gone(struct wf_tables *t, int var, int block, struct search *search)
{
    const struct wf_rowset *s = search->set;
    int64_t n = 0;
    weft_status st;

    if (kept_of(t, var, block)->at < 0)
        return WEFT_OK;
    for (int64_t i = 0; i < s->n; i++)
        n += gone_row(search, wf_rowset_row(s, i));
    st = wf_kept_reserve(t, var, block, n);
    for (int64_t i = 0; i < s->n && !st; i++)
        if (gone_row(search, wf_rowset_row(s, i)))
            wf_kept_note(t, var, block, s->id[i], wf_rowset_row(s, i), true, s->changed[i]);
    return st;
}

static weft_status sweep(struct wf_tables *t, int var, int block)
{
    struct wf_rowset *s = set_of(t, var, block);
    struct as_of *a = as_of(t, var, block);
    struct search search = {t, var, s, a->step};
    int64_t every = rule_of(t, var)->every, due = every ? a->step / every * every : 0;
    weft_status st = WEFT_OK;

    if (due <= a->swept)
        return WEFT_OK;
    st = keep_gone(t, var, block, &search);
    if (st)
        return st;
    wf_rowset_remove(t->ctx, s, gone_row, &search);
    a->swept = due;
    return WEFT_OK;
}

weft_status wf_tables_sweep(struct wf_tables *t, int block)
{
    int first = wf_max_i64(block, 0), end = block < 0 ? t->o.n_blocks : block + 1;
    weft_status st = WEFT_OK;

    for (int b = first; b < end && !st; b++)
        for (int i = 0; i < t->o.rules->n_vars && !st; i++)
            if (t->o.rules->var[i].table)
                st = sweep(t, i, b);
    return st;
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
    t->as_of = wf_alloc_n(ctx, (int64_t)n * o->n_blocks + 1, sizeof *t->as_of);
    t->kept = wf_alloc_n(ctx, (int64_t)n * o->n_blocks + 1, sizeof *t->kept);
    t->touched = wf_alloc_n(ctx, n + 1, sizeof *t->touched);
    t->n_set = wf_alloc_n(ctx, 2 * o->n_blocks + 1, sizeof *t->n_set);
    if (!t->set || !t->as_of || !t->kept || !t->touched || !t->n_set) {
        wf_tables_free(t);
        return wf_err_nomem(ctx, (size_t)n * sizeof *t->set, "tables");
    }
    for (int64_t i = 0; i < (int64_t)n * o->n_blocks; i++) {
        wf_rowset_init(&t->set[i], o->rules->var[i % n].dim[1], t->n_slots,
                       o->rules->var[i % n].evict.every ? SEEN_FLOATS : 0);
        wf_rowset_init(&t->kept[i].rows, o->rules->var[i % n].dim[1], 0, 0);
        t->kept[i].at = -1;
    }
    *out = t;
    return WEFT_OK;
}

void wf_tables_free(struct wf_tables *t)
{
    if (!t)
        return;
    for (int64_t i = 0; t->set && i < (int64_t)t->o.rules->n_vars * t->o.n_blocks; i++)
        wf_rowset_free(t->ctx, &t->set[i]);
    for (int64_t i = 0; t->kept && i < (int64_t)t->o.rules->n_vars * t->o.n_blocks; i++)
        wf_rowset_free(t->ctx, &t->kept[i].rows);
    for (int v = 0; t->touched && v < t->o.rules->n_vars; v++) {
        struct touched *u = &t->touched[v];

        wf_free(t->ctx, u->id);
        wf_free(t->ctx, u->at);
        wf_free(t->ctx, u->block);
        wf_free(t->ctx, u->first);
        wf_free(t->ctx, u->row);
        wf_free(t->ctx, u->from);
        wf_free(t->ctx, u->order);
    }
    wf_free(t->ctx, t->set);
    wf_free(t->ctx, t->as_of);
    wf_free(t->ctx, t->kept);
    wf_free(t->ctx, t->touched);
    wf_free(t->ctx, t->n_set);
    wf_free(t->ctx, t->alone);
    wf_free(t->ctx, t->found.at);
    wf_free(t->ctx, t->found.block);
    wf_free(t->ctx, t->found.row);
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

static weft_status reserve_touched(struct wf_tables *t, struct touched *u, int64_t n)
{
    int64_t was = t->cap_alone;
    weft_status st = wf_grow(t->ctx, &t->alone, &t->cap_alone, n + 1, sizeof *t->alone);

    for (int64_t i = was; i < t->cap_alone; i++)
        t->alone[i] = -1;
    if (!st)
        st = wf_grow(t->ctx, &u->id, &u->cap_id, n + 1, sizeof *u->id);
    if (!st)
        st = wf_grow(t->ctx, &u->at, &u->cap_at, n + 1, sizeof *u->at);
    if (!st)
        st = wf_grow(t->ctx, &u->block, &u->cap_block, n + 1, sizeof *u->block);
    if (!st)
        st = wf_grow(t->ctx, &u->from, &u->cap_from, n + 1, sizeof *u->from);
    if (!st)
        st = wf_grow(t->ctx, &u->row, &u->cap_row, n + 1, sizeof *u->row);
    return st ? st : wf_grow(t->ctx, &u->order, &u->cap_order, n + 1, sizeof *u->order);
}

/* Room in the sets for the rows that a step updates, and what those that are new begin with: what
 * follows cannot fail. */
static weft_status reserve_sets(struct wf_tables *t, int var, struct touched *u)
{
    int64_t width = t->o.rules->var[var].dim[1], n_new = 0;
    weft_status st = WEFT_OK;

    memset(t->n_set, 0, (size_t)(2 * t->o.n_blocks) * sizeof *t->n_set);
    for (int64_t i = 0; i < u->n; i++) {
        t->n_set[2 * u->block[i]]++;
        t->n_set[2 * u->block[i] + 1] += u->at[i] < 0;
        n_new += u->at[i] < 0;
    }
    for (int b = 0; b < t->o.n_blocks && !st; b++)
        if (t->n_set[2 * b]) {
            st = wf_rowset_reserve(t->ctx, set_of(t, var, b), t->n_set[2 * b + 1], t->n_set[2 * b]);
            st = st ? st : wf_kept_reserve(t, var, b, t->n_set[2 * b]);
        }
    if (!st && n_new)
        st = wf_grow(t->ctx, &u->first, &u->cap_first, n_new * width + 1, sizeof *u->first);
    n_new = 0;
    for (int64_t i = 0; i < u->n && !st; i++)
        if (u->at[i] < 0)
            st = initial(t, var, u->id[i], u->first + n_new++ * width);
    return st;
}

/* The rows of one table that a step updates, of one block or of all: where they are. */
static weft_status touch(struct wf_tables *t, int var, const struct wf_rows *r, int block)
{
    struct touched *u = &t->touched[var];
    weft_status st = reserve_touched(t, u, r->n);

    u->n = 0;
    for (int64_t i = 0; i < r->n && !st; i++) {
        if (block >= 0 && block_of(t, var, r->id[i]) != block)
            continue;
        u->id[u->n] = r->id[i];
        u->from[u->n++] = (int32_t)i;
    }
    if (!st)
        find_rows(t, var, u->n, u->id, u->block, u->at, NULL);
    return st ? st : reserve_sets(t, var, u);
}

/* A new row, as it is before its first step. */
static int64_t add_new(struct wf_tables *t, struct wf_rowset *s, int64_t id, const float *first)
{
    int64_t at = wf_rowset_add(s, id);
    float *row = wf_rowset_row(s, at);

    wf_row_copy(row, first, s->width);
    for (int k = 0; k < t->n_slots; k++)
        for (int64_t c = 0; c < s->width; c++)
            row[(k + 1) * s->width + c] = t->slot_init[k];
    return at;
}

/* A row that was touched, WF_ROWS_AHEAD rows ahead of the one that changes, of this table or of a
 * later one. */
struct ahead {
    int var;
    int64_t i;
};

static void next_soon(const struct wf_tables *t, struct ahead *a)
{
    const struct touched *u;
    const struct wf_rowset *s;

    while (a->var < t->o.rules->n_vars && a->i >= t->touched[a->var].n) {
        a->var++;
        a->i = 0;
    }
    if (a->var == t->o.rules->n_vars)
        return;
    u = &t->touched[a->var];
    s = set_of(t, a->var, u->block[a->i]);
    if (u->at[a->i] >= 0)
        wf_row_soon(wf_rowset_row(s, u->at[a->i]), wf_rowset_floats(s));
    a->i++;
}

/* The rows that were touched are about to change: what they are now is kept. All of them exist
 * afterwards. */
static void change(struct wf_tables *t, int var, int64_t version, int64_t step, int64_t before,
                   struct ahead *ahead)
{
    struct touched *u = &t->touched[var];
    int64_t width = t->o.rules->var[var].dim[1], n_new = 0;

    memset(t->n_set, 0, (size_t)(2 * t->o.n_blocks) * sizeof *t->n_set);
    for (int64_t i = 0; i < u->n; i++) {
        int b = u->block[i];
        struct wf_rowset *s = set_of(t, var, b);
        bool is_new = u->at[i] < 0;
        int64_t since;
        float *row;

        next_soon(t, ahead);
        if (is_new)
            u->at[i] = add_new(t, s, u->id[i], u->first + n_new++ * width);
        row = wf_rowset_row(s, u->at[i]);
        since = is_new ? initial_since(t, var, version - 1, before) : s->changed[u->at[i]];
        if (!t->n_set[b]++)
            wf_rowset_begin(s);
        wf_kept_note(t, var, b, u->id[i], row, !is_new, is_new ? -1 : since);
        wf_rowset_keep(s, u->at[i], row, since, version);
        if (s->n_more)
            count_step(s, row, is_new, step);
    }
}

/* The rows of one table: they are updated where they are, block after block. */
static void update_rows(struct wf_tables *t, struct wf_merge *merge, int var,
                        const struct wf_rows *r, const struct wf_step *step, const float *scale)
{
    struct touched *u = &t->touched[var];
    int64_t *end = t->n_set + t->o.n_blocks, n = 0;

    for (int b = 0; b < t->o.n_blocks; b++) {
        end[b] = n;
        n += t->n_set[b];
    }
    for (int64_t i = 0; i < u->n; i++) {
        int64_t to = end[u->block[i]]++;

        u->row[to] = u->at[i];
        u->order[to] = u->from[i];
    }
    for (int b = 0; b < t->o.n_blocks; b++) {
        const struct wf_rowset *s = set_of(t, var, b);
        struct wf_optim_table rows = {.w = s->data,
                                      .width = s->width,
                                      .stride = wf_rowset_floats(s),
                                      .rows = u->row + end[b] - t->n_set[b],
                                      .n = t->n_set[b],
                                      .g = r->row,
                                      .g_stride = s->width,
                                      .first = u->order + end[b] - t->n_set[b],
                                      .next = t->alone};

        for (int k = 0; k < t->n_slots; k++)
            rows.slot[k] = s->data + (k + 1) * s->width;
        if (rows.n)
            wf_merge_update_rows(merge, var, step, scale, &rows);
    }
}

weft_status wf_tables_apply(struct wf_tables *t, struct wf_merge *merge,
                            const struct wf_contribution *mean, const struct wf_step *step,
                            const float *scale, int block, int64_t version)
{
    const struct wf_rules *r = t->o.rules;
    int first = wf_max_i64(block, 0), end = block < 0 ? t->o.n_blocks : block + 1;
    struct ahead ahead = {0, 0};
    weft_status st = wf_tables_sweep(t, block);

    for (int i = 0; i < r->n_vars && !st; i++)
        if (r->var[i].table)
            st = touch(t, i, &mean->rows[i], block);
    for (int i = 0; i < WF_ROWS_AHEAD && !st; i++)
        next_soon(t, &ahead);
    for (int i = 0; i < r->n_vars && !st; i++) { /* nothing can fail any more */
        if (r->var[i].table && t->touched[i].n) {
            change(t, i, version + 1, step->iteration, step->iteration - 1, &ahead);
            update_rows(t, merge, i, &mean->rows[i], step, scale);
        }
        for (int b = first; b < end; b++)
            set_as_of(t, i, b, version + 1, step->iteration, step->iteration - 1);
    }
    return st;
}

weft_status wf_tables_replace(struct wf_tables *t, const struct wf_contribution *rows, int block,
                              int64_t version, int64_t step)
{
    const struct wf_rules *r = t->o.rules;
    int first = wf_max_i64(block, 0), end = block < 0 ? t->o.n_blocks : block + 1;
    struct ahead ahead = {0, 0};
    weft_status st = wf_tables_sweep(t, block);

    for (int i = 0; i < r->n_vars && !st; i++)
        if (r->var[i].table)
            st = touch(t, i, &rows->rows[i], block);
    for (int i = 0; i < WF_ROWS_AHEAD && !st; i++)
        next_soon(t, &ahead);
    for (int i = 0; i < r->n_vars && !st; i++) {
        const struct touched *u = &t->touched[i];

        if (r->var[i].table)
            change(t, i, version + 1, step, step, &ahead);
        for (int64_t k = 0; k < u->n && r->var[i].table; k++) {
            struct wf_rowset *s = set_of(t, i, u->block[k]);

            wf_row_copy(wf_rowset_row(s, u->at[k]), rows->rows[i].row + u->from[k] * s->width,
                        s->width);
        }
        for (int b = first; b < end; b++)
            set_as_of(t, i, b, version + 1, step, step);
    }
    return st;
}

void wf_tables_pass(struct wf_tables *t, int block, int64_t version)
{
    int first = wf_max_i64(block, 0), end = block < 0 ? t->o.n_blocks : block + 1;

    for (int i = 0; i < t->o.rules->n_vars; i++)
        for (int b = first; b < end; b++)
            set_as_of(t, i, b, version + 1, as_of(t, i, b)->step, as_of(t, i, b)->step);
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* A list of a request: var, n, ids, the versions that the reader has of them, -1 for none. */
struct asked {
    int var;
    int64_t n;
    const char *ids, *since;
};

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

/* A row at a version, the newest one or the previous one, that is at this place, -1: none; NULL: it
 * has its initial value. */
static const float *row_at(const struct wf_tables *t, int var, int block, int64_t at,
                           int64_t version, int64_t *changed)
{
    const struct wf_rowset *s = set_of(t, var, block);
    const struct as_of *a = as_of(t, var, block);
    int64_t step = version < a->version ? a->before : a->step;

    /* One that is gone was not updated by the last step: both versions have the same counts. */
    if (at >= 0 && !is_gone(t, var, s, wf_rowset_row(s, at), step))
        return wf_rowset_at(s, at, version, changed);
    *changed = initial_since(t, var, version, step);
    return NULL;
}

/* A list of an answer. first: its first row among all that were found. */
static weft_status answer_list(struct wf_tables *t, int64_t version, const struct asked *a,
                               int64_t first, int64_t n_found, struct wf_payload *out)
{
    const struct found *f = &t->found;
    int64_t width = t->o.rules->var[a->var].dim[1], n_rows = 0, flags = wf_round_up(a->n, 8);
    int64_t most = 24 + flags + wf_round_up(a->n * width * (int64_t)sizeof(float), 8);
    int64_t head[3] = {a->var, a->n, 0};
    weft_status st = wf_payload_grow(t->ctx, out, most);
    char *start = out->p + out->n;
    float *rows = (float *)(void *)(start + 24 + flags);

    for (int64_t i = 0; i < a->n && !st; i++) {
        int64_t at = first + i, changed = 0;
        const float *row;
        bool same;

        if (at + WF_ROWS_AHEAD < n_found)
            wf_row_soon(f->row[at + WF_ROWS_AHEAD], width);
        row = row_at(t, a->var, f->block[at], f->at[at], version, &changed);
        same = i64_at(a->since, i) >= changed;
        start[24 + i] = !same;
        if (same)
            continue;
        if (row)
            wf_row_copy(rows + n_rows * width, row, width);
        else
            st = initial(t, a->var, i64_at(a->ids, i), rows + n_rows * width);
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
    struct found *f = &t->found;
    int64_t n_found = 0, first = 0;
    struct asked a;

    out->n = 0;
    if (!st)
        st = reserve_found(t, n / 16);
    for (int64_t at = 0; at < n && !st; n_found += a.n) { /* first all, so that no list is short */
        st = take_asked(&t->o, t->piece, p, n, &at, &a);
        if (!st)
            find_rows(t, a.var, a.n, a.ids, f->block + n_found, f->at + n_found, f->row + n_found);
    }
    for (int64_t at = 0; at < n && !st; first += a.n) {
        st = take_asked(&t->o, t->piece, p, n, &at, &a);
        if (!st)
            st = answer_list(t, version, &a, first, n_found, out);
    }
    return st;
}
