/* real_rows.c - tables in a simulated job with real parameters. The truth has all rows of all
 * versions; servers have those that were updated, and workers read those that they need. */
#include "real.h"

#include <stdlib.h>

enum { MAX_ROWS = 160 };

static const struct wf_var *var_of(const struct truth *u, int v)
{
    return &u->m.rules.var[v];
}

/* ---- the model ------------------------------------------------------------------------------- */

void rows_draw(const struct sim_case *c, struct model *m)
{
    static const int64_t widths[] = {1, 5, 64, MAX_WIDTH}; /* units of 4096, 4096, 64, 32 rows */
    uint64_t r = sim_mix(c->seed, 0x7ab1e);
    int n = (int)real_pick(&r, 4) - 1;

    for (int i = 0; i < n && i < m->rules.n_vars; i++) {
        struct wf_var *v = &m->var[real_pick(&r, (uint64_t)m->rules.n_vars)];

        v->table = true;
        v->dim[0] = 1 + (int64_t)real_pick(&r, MAX_ROWS);
        v->dim[1] = widths[real_pick(&r, WF_COUNT(widths))];
        v->count = v->dim[0] * v->dim[1];
        v->penalty = (struct wf_penalty){.l1 = 0};
        v->constraint = (struct wf_constraint){.kind = WF_CONSTRAINT_NONE};
        v->init = (struct wf_initial){"uniform", -0.4, 0.4, v->name, c->seed};
    }
    /* a piece of few bytes: the tables are in several */
    m->rules.n_dense = 0;
    for (int i = 0; i < m->rules.n_vars; i++) {
        m->var[i].offset = m->rules.n_dense;
        m->rules.n_dense += m->var[i].table ? 0 : wf_round_up(m->var[i].count, 16);
    }
}

/* ---- the truth ------------------------------------------------------------------------------- */

void rows_new_truth(struct truth *u)
{
    float init[WF_OPTIM_MAX_SLOTS];

    u->tables = (struct wf_tables_opts){&u->m.rules, u->m.cut, u->m.n_blocks};
    u->row_rules = u->m.rules;
    u->row_rules.n_dense = 0;
    u->row_rules.n_sums = u->m.rules.n_groups + 1;
    wf_optim_slots(u->m.rules.optim, u->m.rules.attrs, NULL, init);
    for (int v = 0; v < u->m.rules.n_vars; v++) {
        const struct wf_var *var = var_of(u, v);
        struct wf_type type = wf_type_of(WEFT_F32, 2, var->dim);

        if (!var->table)
            continue;
        for (int t = 0; t <= u->c->plan.n_steps; t++) {
            u->table[t][v].w = calloc((size_t)var->count + 1, sizeof(float));
            for (int k = 0; k < u->n_slots; k++)
                u->table[t][v].slot[k] = calloc((size_t)var->count + 1, sizeof(float));
        }
        real_must(wf_initial_all(u->ctx, &var->init, &type, u->table[0][v].w));
        for (int k = 0; k < u->n_slots; k++)
            for (int64_t i = 0; i < var->count; i++)
                u->table[0][v].slot[k][i] = init[k];
    }
}

void rows_free_truth(struct truth *u)
{
    for (int t = 0; t <= MAX_STEPS; t++)
        for (int v = 0; v < MAX_VARS; v++) {
            free(u->table[t][v].w);
            for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
                free(u->table[t][v].slot[k]);
        }
    wf_free(u->ctx, u->loaded.p);
}

void rows_begin(struct truth *u, int64_t t, struct wf_version *v)
{
    v->table = u->table[t + 1];
    for (int i = 0; i < u->m.rules.n_vars; i++) {
        size_t bytes = (size_t)var_of(u, i)->count * sizeof(float);

        if (!var_of(u, i)->table)
            continue;
        memcpy(u->table[t + 1][i].w, u->table[t][i].w, bytes);
        for (int k = 0; k < u->n_slots; k++)
            memcpy(u->table[t + 1][i].slot[k], u->table[t][i].slot[k], bytes);
    }
}

/* Distinct ids that a shard looks up: some that all look up, and its own. */
int64_t rows_list(const struct truth *u, int64_t t, int shard, int v, int64_t *ids)
{
    uint64_t key = sim_mix(sim_mix(u->c->seed, (uint64_t)t), (uint64_t)(shard * 8 + v));
    int64_t n = 0, rows = var_of(u, v)->dim[0];

    for (int i = 0; i < (int)(key % LOOKUPS); i++) {
        int64_t id = (int64_t)(sim_mix(key, (uint64_t)i) % (uint64_t)(i % 2 ? rows : 1 + rows / 8));
        bool seen = false;

        for (int64_t k = 0; k < n; k++)
            seen |= ids[k] == id;
        if (!seen)
            ids[n++] = id;
    }
    return n;
}

/* rows: of these ids. */
void rows_add(const struct truth *u, int64_t t, int shard, int v, int64_t n, const int64_t *ids,
              const float *rows, struct wf_contribution *to)
{
    int64_t width = var_of(u, v)->dim[1];
    uint64_t key = sim_mix(sim_mix(u->c->seed, (uint64_t)t), (uint64_t)(shard * 8 + v));

    for (int g = 0; g < u->m.rules.n_groups; g++) {
        struct wf_rows *r = &to->rows[g * u->m.rules.n_vars + v];

        real_must(wf_rows_reserve(u->ctx, r, n + 1, width));
        r->n = 0;
        for (int64_t i = 0; i < n; i++) {
            if (g == 1 && i % 3 == 0) /* a group need not reach all of them */
                continue;
            r->id[r->n] = ids[i];
            for (int64_t c = 0; c < width; c++) {
                uint64_t h = sim_mix(key, (uint64_t)((i * width + c) * 4 + g));

                r->row[r->n * width + c] =
                    (float)(h >> 40) / 16777216.0F - 0.5F + 0.25F * rows[i * width + c];
            }
            r->n++;
        }
    }
}

static void gather(const struct truth *u, int64_t t, int v, int64_t n, const int64_t *ids,
                   float *rows)
{
    int64_t width = var_of(u, v)->dim[1];

    for (int64_t i = 0; i < n; i++)
        memcpy(rows + i * width, u->table[t][v].w + ids[i] * width, (size_t)width * sizeof *rows);
}

void rows_contribute(const struct truth *u, int64_t t, int shard, struct wf_contribution *to)
{
    float rows[LOOKUPS * MAX_WIDTH];
    int64_t ids[LOOKUPS];

    for (int v = 0; v < u->m.rules.n_vars; v++) {
        int64_t n;

        if (!var_of(u, v)->table)
            continue;
        n = rows_list(u, t, shard, v, ids);
        gather(u, t, v, n, ids, rows);
        rows_add(u, t, shard, v, n, ids, rows, to);
    }
}

/* ---- servers --------------------------------------------------------------------------------- */

/* Rows that are not as in the beginning. */
void rows_dump(struct truth *u, int piece, int64_t version, const struct wf_table_data *table,
               struct wf_blob *out)
{
    struct wf_tables *tables;

    real_must(wf_tables_new(u->ctx, &u->tables, piece, &tables));
    for (int v = 0; v < u->m.rules.n_vars; v++) {
        int64_t width = var_of(u, v)->dim[1];

        for (int64_t id = 0; var_of(u, v)->table && id < var_of(u, v)->dim[0]; id++) {
            const float *slot[WF_OPTIM_MAX_SLOTS], *row = table[v].w + id * width;
            bool changed = memcmp(row, u->table[0][v].w + id * width, (size_t)width * 4) != 0;

            for (int k = 0; k < u->n_slots; k++) {
                slot[k] = table[v].slot[k] + id * width;
                changed |=
                    memcmp(slot[k], u->table[0][v].slot[k] + id * width, (size_t)width * 4) != 0;
            }
            if (changed && wf_cut_piece_of(u->m.cut, v, id) == piece)
                real_must(wf_tables_set(tables, v, version, 1, &id, row, slot));
        }
    }
    u->loaded.n = 0;
    real_must(wf_tables_dump(tables, -1, -1, true, &u->loaded));
    wf_tables_free(tables);
    *out = (struct wf_blob){u->loaded.p, u->loaded.n};
}

weft_status rows_load(void *arg, int piece, int64_t t, struct wf_blob *out)
{
    struct truth *u = arg;

    rows_dump(u, piece, t, u->table[t], out);
    return WEFT_OK;
}

/* Asks for all rows of the piece, as a worker would. */
static bool same_rows(struct server *s, int piece, int64_t t, int v)
{
    const struct truth *u = s->truth;
    int64_t width = var_of(u, v)->dim[1], ask[2 + 2 * MAX_ROWS] = {v, 0}, n = 0;
    struct wf_ps_payload p = {.body = {(const char *)ask, 0}};
    struct wf_message m = {.type = WF_MSG_ROWS, .piece = piece, .t = t};
    struct wf_ps_bytes b;
    const float *rows;

    for (int64_t id = 0; id < var_of(u, v)->dim[0]; id++)
        if (wf_cut_piece_of(u->m.cut, v, id) == piece)
            ask[2 + n++] = id;
    for (int64_t i = 0; i < n; i++)
        ask[2 + n + i] = -1;
    ask[1] = n;
    p.body.n = (2 + 2 * n) * 8;
    if (s->data.read(s->data.arg, piece, t, &p))
        return false;
    wf_ps_bytes(s->store, &m, t, &b);
    rows = (const float *)(const void *)((const char *)b.body[0].p + 24 + wf_round_up(n, 8));
    for (int64_t i = 0; i < n; i++)
        if (memcmp(rows + i * width, u->table[t][v].w + ask[2 + i] * width, (size_t)width * 4) != 0)
            return false;
    return true;
}

bool rows_true(struct server *s, int piece, int64_t t)
{
    for (int v = 0; v < s->truth->m.rules.n_vars; v++)
        if (var_of(s->truth, v)->table && !same_rows(s, piece, t, v))
            return false;
    return true;
}

/* ---- workers --------------------------------------------------------------------------------- */

void rows_new_worker(struct worker *s)
{
    const struct truth *u = s->truth;

    for (int l = 0; l < MAX_SHARDS; l++)
        s->missing[l] = -1;
    if (!u->m.cut->n_table_pieces)
        return;
    real_must(wf_lookup_new(u->ctx, &u->tables, 1 + (int64_t)(u->c->seed % 3) * 8000, &s->lookup));
    for (int l = 0; l < MAX_SHARDS; l++)
        real_must(wf_contribution_new(u->ctx, &u->row_rules, &s->rows[l]));
}

void rows_free_worker(struct worker *s)
{
    for (int l = 0; l < MAX_SHARDS; l++)
        wf_contribution_free(s->rows[l]);
    wf_lookup_free(s->lookup);
}

void rows_restart(void *arg)
{
    struct worker *s = arg;

    if (s->lookup)
        wf_lookup_forget(s->lookup);
}

unsigned rows_read(struct worker *s, int64_t t, int shard)
{
    const struct truth *u = s->truth;
    const struct wf_payload *body;
    int64_t ids[LOOKUPS];
    unsigned pieces = 0;

    if (!s->lookup)
        return 0;
    for (int v = 0; v < u->m.rules.n_vars; v++)
        if (var_of(u, v)->table)
            real_must(wf_lookup_want(s->lookup, t, v, rows_list(u, t, shard, v, ids), ids));
    real_must(wf_lookup_request(s->lookup, &body));
    for (int k = 0; k < u->m.cut->n_table_pieces; k++)
        pieces |= body[k].n ? 1u << (u->m.cut->first_table + k) : 0;
    return pieces;
}

weft_status rows_take(void *arg, int piece, int64_t t, const void *payload)
{
    struct worker *s = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;

    return wf_lookup_take(s->lookup, piece - s->truth->m.cut->first_table, t, b->p, b->n);
}

void rows_compute(struct worker *s, int64_t t, int shard)
{
    const struct truth *u = s->truth;
    float rows[LOOKUPS * MAX_WIDTH], want[LOOKUPS * MAX_WIDTH];
    int64_t ids[LOOKUPS];
    bool all = true;

    if (!s->lookup)
        return;
    wf_contribution_clear(s->rows[shard]);
    memcpy(s->rows[shard]->sums, s->sums[shard], (size_t)u->row_rules.n_sums * sizeof(double));
    for (int v = 0; v < u->m.rules.n_vars; v++) {
        int64_t n, width = var_of(u, v)->dim[1];

        if (!var_of(u, v)->table)
            continue;
        n = rows_list(u, t, shard, v, ids);
        all &= wf_lookup_copy(s->lookup, t, v, n, ids, rows);
        gather(u, t, v, n, ids, want);
        if (all && memcmp(rows, want, (size_t)(n * width) * sizeof *rows) != 0)
            sim_fail(s->w,
                     "worker %d: rows of table %d at version %lld are not those of a serial run",
                     s->node, v, (long long)t);
        rows_add(u, t, shard, v, n, ids, rows, s->rows[shard]);
    }
    s->missing[shard] = all ? -1 : t;
    if (!all) /* the step is complete: no one needs this */
        wf_lookup_forget(s->lookup);
}

/* The sum of a subtree; NULL: none of it has samples. */
static struct wf_contribution *sum_shards(const struct worker *s, int level, int first)
{
    const struct truth *u = s->truth;
    struct wf_contribution *left, *right, *c;

    if (first >= u->c->plan.n_shards || (level == 0 && s->absent[first]))
        return NULL;
    if (level == 0) {
        real_must(wf_contribution_new(u->ctx, &u->row_rules, &c));
        real_must(wf_contribution_copy(c, s->rows[first]));
        return c;
    }
    left = sum_shards(s, level - 1, first);
    right = sum_shards(s, level - 1, first + (1 << (level - 1)));
    if (left && right)
        real_must(wf_contribution_add(u->ctx->pool, left, right));
    if (!left)
        return right;
    wf_contribution_free(right);
    return left;
}

void rows_payload(struct worker *s, const struct wf_message *m, struct payload **out)
{
    const struct truth *u = s->truth;
    int k = m->piece - u->m.cut->first_table;
    struct wf_payload part[WF_MAX_TABLE_PIECES] = {{.p = NULL}};
    struct wf_tables_sort sort = {.key = NULL};
    struct wf_contribution *c;

    if (m->type == WF_MSG_READ) {
        part[k] = *wf_lookup_asked(s->lookup, k);
        *out = sim_payload(part[k].n);
        memcpy((*out)->mem, part[k].p, (size_t)part[k].n);
        (*out)->real.body = (struct wf_blob){(*out)->mem, part[k].n};
        return;
    }
    for (int l = m->shard; l < m->shard + (1 << m->level) && l < MAX_SHARDS; l++)
        if (s->missing[l] == m->t)
            sim_fail(s->w, "worker %d pushes to step %lld what it computed without rows", s->node,
                     (long long)m->t);
    c = sum_shards(s, m->level, m->shard);
    if (c)
        real_must(wf_tables_split(u->ctx, &u->tables, -1, u->m.rules.n_groups, c->rows, c->sums,
                                  u->row_rules.n_sums, &sort, part));
    *out = sim_payload(part[k].n);
    if (c)
        memcpy((*out)->mem, part[k].p, (size_t)part[k].n);
    (*out)->real.body = (struct wf_blob){(*out)->mem, part[k].n};
    wf_contribution_free(c);
    wf_tables_sort_free(u->ctx, &sort);
    for (int i = 0; i < u->m.cut->n_table_pieces; i++)
        wf_free(u->ctx, part[i].p);
}
