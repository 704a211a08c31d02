/* real_leases.c - real parameters in a simulated job whose shards are leased: servers and workers.
 * replay.h has the truth. */
#include "replay.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_PUSHES = 64 };

struct lease_server {
    struct server s;
    uint64_t record[MAX_PIECES]; /* the contribution that it has: 1 + its number */
    struct {
        int64_t lease;
        int node;
        uint64_t given;
    } push[MAX_PIECES][MAX_PUSHES];
    int n_push[MAX_PIECES];
};

struct lease_worker {
    struct world *w;
    int node;
    uint64_t incarnation;
    float *seen;
    double sums[MAX_SUMS]; /* of the last piece */
    struct wf_lookup *lookup;
    int64_t stamp; /* of rows: they are kept for one lease */
};

static const struct payload *payload_of(const void *real)
{
    return (const struct payload *)(const void *)((const char *)real -
                                                  offsetof(struct payload, real));
}

/* ---- what a server has ----------------------------------------------------------------------- */

static const struct given *given_of(const struct world *w, int node, int piece)
{
    const struct lease_truth *u = replay_of(w);
    const struct lease_server *s = w->node[node].values;

    return s->record[piece] ? u->given[s->record[piece] - 1] : NULL;
}

static void replay(struct world *w, int node, int piece, uint64_t history, int64_t t,
                   uint64_t *value)
{
    replay_lease(w, history, piece, t, given_of(w, node, piece), value);
}

/* From the server's own vectors into flat ones. */
static void read_piece(struct lease_server *s, int piece, int64_t t, struct moment *to)
{
    const struct lease_truth *u = replay_of(s->s.w);
    const struct wf_rules *r = &u->u.m.rules;
    const struct wf_cut_piece *p = replay_cut(u, piece);
    struct wf_message m = {.type = WF_MSG_VERSION, .piece = piece, .t = t};
    struct wf_tables *tables = NULL;
    struct wf_blob rows = {.p = NULL};
    struct wf_ps_bytes b;
    float *slots = calloc((size_t)(p->count * u->u.n_slots) + 1, sizeof *slots);

    if (p->tables) {
        replay_copy(u, piece, &u->first, to);
        real_must(wf_ps_store_rows(s->s.store, piece, &rows));
        real_must(wf_tables_new(u->u.ctx, &u->u.tables, piece, &tables));
        real_must(wf_tables_take(tables, -1, rows.p, rows.n));
    } else {
        wf_ps_bytes(s->s.store, &m, t, &b);
        wf_ps_store_slots(s->s.store, piece, slots);
    }
    if (p->n_runs)
        wf_cut_scatter(r, p, b.body[0].p, to->params);
    for (int k = 0; k < u->u.n_slots && p->n_runs; k++)
        wf_cut_scatter(r, p, slots + k * p->count, to->slot[k]);
    if (p->state)
        memcpy(to->sums, b.body[b.n_body - 1].p, (size_t)real_kept(&u->u) * sizeof *to->sums);
    for (int v = 0; v < r->n_vars && p->tables; v++)
        for (int64_t id = 0; replay_is_table(u, v) && id < r->var[v].dim[0]; id++) {
            int64_t width = r->var[v].dim[1];
            const float *row =
                wf_cut_piece_of(u->u.m.cut, v, id) == piece ? wf_tables_find(tables, v, id) : NULL;

            for (int k = -1; k < u->u.n_slots && row; k++)
                memcpy((k < 0 ? to->table[v].w : to->table[v].slot[k]) + id * width,
                       row + (k + 1) * width, (size_t)width * sizeof *row);
        }
    wf_tables_free(tables);
    free(slots);
}

static uint64_t value_of(struct lease_server *s, int piece, int block, int64_t t)
{
    struct lease_truth *u = replay_of(s->s.w);

    read_piece(s, piece, t, &u->scratch);
    s->s.w->result->n.compared++;
    return replay_hash(u, piece, block, &u->scratch);
}

/* Whether a block is what the log says; block -1: all. What the log does not know counts as true:
 * the server does not belong to the job any more. */
static bool is_logged(struct lease_server *s, int piece, int block, int64_t t)
{
    struct world *w = s->s.w;
    const struct wf_epoch *e = w->node[s->s.node].m.server.view.epoch;
    const struct piece_log *log = sim_log(w, e->history, piece);

    for (int b = 0; b < w->c->plan.n_blocks; b++)
        if ((block < 0 || b == block) && t <= log->n && log->known[t][b] &&
            log->value[t][b] != value_of(s, piece, b, t))
            return false;
    return true;
}

static bool is_true(void *server, int piece, int64_t t, bool present)
{
    (void)present;
    return is_logged(server, piece, -1, t);
}

/* ---- the functions of a server --------------------------------------------------------------- */

static int find_push(const struct lease_server *s, int piece, int64_t lease, int node)
{
    int i = 0;

    while (i < s->n_push[piece] &&
           (s->push[piece][i].lease != lease || s->push[piece][i].node != node))
        i++;
    return i;
}

static weft_status hold(void *arg, int piece, int64_t lease, int node, const struct wf_message *m)
{
    struct lease_server *s = arg;
    struct wf_message as_read = *m;
    struct wf_ps_payload p = *(const struct wf_ps_payload *)m->payload;
    int i = find_push(s, piece, lease, node);
    weft_status st = wf_ps_store_closes(s->s.store, piece, &p, m->type == WF_MSG_CLOSE, m->whole);

    if (st)
        return st;
    if (i == MAX_PUSHES) {
        sim_fail(s->s.w, "server %d holds %d pushes to piece %d", s->s.node, i, piece);
        return WEFT_OK;
    }
    s->n_push[piece] += i == s->n_push[piece];
    s->push[piece][i].lease = lease;
    s->push[piece][i].node = node;
    s->push[piece][i].given = payload_of(m->payload)->v[0];
    as_read.payload = &p;
    st = s->s.data.hold(s->s.data.arg, piece, lease, node, &as_read);
    if (p.given)
        wf_ps_store_give(s->s.store, piece, p.given);
    return st;
}

static void release(void *arg, int piece, int64_t lease, int node)
{
    struct lease_server *s = arg;
    int i = find_push(s, piece, lease, node);

    if (i < s->n_push[piece])
        s->push[piece][i] = s->push[piece][--s->n_push[piece]];
    s->s.data.release(s->s.data.arg, piece, lease, node);
}

static weft_status close_push(void *arg, int piece, int64_t t, int64_t lease, int node)
{
    struct lease_server *s = arg;
    int i = find_push(s, piece, lease, node);

    s->record[piece] = i < s->n_push[piece] ? s->push[piece][i].given : 0;
    return s->s.data.close(s->s.data.arg, piece, t, lease, node);
}

static void clear(void *arg, int piece)
{
    struct lease_server *s = arg;

    s->s.data.clear(s->s.data.arg, piece);
}

static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    struct lease_server *s = arg;

    s->record[piece] = payload_of(payload)->v[0];
    return s->s.data.record(s->s.data.arg, piece, t, payload);
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct lease_server *s = arg;
    struct world *w = s->s.w;
    const struct given *g = given_of(w, s->s.node, piece);
    weft_status st = s->s.data.apply(s->s.data.arg, piece, block, t);

    if (!g)
        sim_fail(w, "server %d applies to piece %d what nobody gave", s->s.node, piece);
    /* the worker has used its memory again: others have acknowledged all of it, in an epoch that
     * does not have this server any more */
    if (g && g->lent && g->forgotten &&
        w->node[s->s.node].m.server.view.epoch->number < w->epoch->number)
        return st;
    for (int b = 0; b < w->c->plan.n_blocks && g && !st; b++)
        if (block < 0 || b == block)
            sim_log_apply(w, s->s.node, piece, b, t, g->lease, value_of(s, piece, b, t + 1));
    return st;
}

static weft_status fill(void *arg, int piece, int block, int64_t t, const void *payload)
{
    struct lease_server *s = arg;
    weft_status st = s->s.data.fill(s->s.data.arg, piece, block, t, payload);

    if (!st && !is_logged(s, piece, block, t))
        sim_fail(s->s.w, "server %d is filled with another version %lld of piece %d", s->s.node,
                 (long long)t, piece);
    return st;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    struct lease_server *s = arg;

    return s->s.data.load(s->s.data.arg, piece, t);
}

static weft_status read(void *arg, int piece, int64_t t, const void *payload)
{
    struct lease_server *s = arg;

    return s->s.data.read(s->s.data.arg, piece, t, payload);
}

static void drop(void *arg, int piece)
{
    struct lease_server *s = arg;

    s->n_push[piece] = 0;
    s->s.data.drop(s->s.data.arg, piece);
}

/* What a history begins with. */
static const struct saved *loaded(const struct lease_server *s, int piece, int64_t t)
{
    const struct world *w = s->s.w;
    const struct wf_epoch *e = w->node[s->s.node].m.server.view.epoch;
    const struct piece_log *log = &w->log[e->history % MAX_HISTORIES][piece];

    return replay_saved(replay_of(w), piece, log->value[t * w->c->plan.n_shards]);
}

static weft_status load_piece(void *arg, int piece, int64_t t, float *params, float *const *slot,
                              double *sums)
{
    const struct lease_server *s = arg;
    const struct lease_truth *u = replay_of(s->s.w);
    const struct saved *from = loaded(s, piece, t);
    const struct wf_cut_piece *p = replay_cut(u, piece);

    if (!from)
        return wf_err(WEFT_EBUG, "piece %d of step %lld was never saved", piece, (long long)t);
    wf_cut_gather(&u->u.m.rules, p, from->m.params, params);
    for (int k = 0; k < u->u.n_slots; k++)
        wf_cut_gather(&u->u.m.rules, p, from->m.slot[k], slot[k]);
    if (p->state)
        memcpy(sums, from->m.sums, (size_t)real_kept(&u->u) * sizeof *sums);
    return WEFT_OK;
}

static weft_status load_rows(void *arg, int piece, int64_t t, struct wf_blob *out)
{
    const struct lease_server *s = arg;
    struct lease_truth *u = replay_of(s->s.w);
    const struct saved *from = loaded(s, piece, t);

    if (!from)
        return wf_err(WEFT_EBUG, "piece %d of step %lld was never saved", piece, (long long)t);
    rows_dump(&u->u, piece, t * u->u.c->plan.n_shards, from->m.table, out);
    return WEFT_OK;
}

static bool records(void *arg, int piece)
{
    const struct lease_server *s = arg;
    const struct wf_holders *h = sim_holders(s->s.w, s->s.node, piece);

    return h->backup != WF_NOBODY || h->target != WF_NOBODY;
}

static void *new_server(struct world *w, const void *truth, int node, struct wf_ps_data *data)
{
    struct lease_server *s = calloc(1, sizeof *s);
    const struct lease_truth *u = truth;
    struct wf_ps_store_opts o = real_store_opts(&u->u);

    s->s.w = w;
    s->s.truth = &u->u;
    s->s.node = node;
    o.leased = true;
    o.load = load_piece;
    o.load_rows = load_rows;
    o.load_arg = o.records_arg = s;
    o.records = records;
    real_must(wf_ps_store_new(u->u.ctx, &o, &s->s.store));
    s->s.data = wf_ps_store_data(s->s.store);
    *data = (struct wf_ps_data){.arg = s,
                                .clear = clear,
                                .record = record,
                                .apply = apply,
                                .fill = fill,
                                .load = load,
                                .read = read,
                                .drop = drop,
                                .hold = hold,
                                .release = release,
                                .close = close_push};
    return s;
}

static void server_payload(void *server, const struct wf_server *m, const struct wf_message *msg,
                           struct payload **out)
{
    struct lease_server *s = server;
    int64_t version = msg->piece < 0 ? -1 : m->piece[msg->piece].version;
    bool shows = msg->type == WF_MSG_VERSION || msg->type == WF_MSG_ROWS;

    if ((shows || msg->type == WF_MSG_FILL) &&
        !is_logged(s, msg->piece, shows ? -1 : msg->block, version))
        sim_fail(s->s.w, "server %d: version %lld of piece %d is not that of a replay", s->s.node,
                 (long long)version, msg->piece);
    sim_real.server_payload(&s->s, m, msg, out);
    if (msg->type == WF_MSG_RECORD)
        (*out)->v[0] = s->record[msg->piece];
}

/* ---- workers --------------------------------------------------------------------------------- */

static struct given *find_given(const struct lease_worker *s, int64_t lease)
{
    const struct lease_truth *u = replay_of(s->w);

    for (int64_t i = u->n_given - 1; i >= 0; i--) {
        struct given *g = u->given[i];

        if (g->lease == lease && g->node == s->node && g->incarnation == s->incarnation &&
            !g->forgotten)
            return g;
    }
    return NULL;
}

/* Its memory is used for something else. */
static void reuse(const struct lease_worker *s, struct given *g)
{
    const struct wf_rules *r = &replay_of(s->w)->rules;

    g->forgotten = true;
    g->stamp++;
    for (int64_t i = 0; i < r->n_groups * r->n_dense && g->lent; i++)
        g->lent[i] = 1e9F;
}

static void forget(void *arg, int64_t lease)
{
    struct lease_worker *s = arg;
    struct given *g = find_given(s, lease);

    if (g)
        reuse(s, g);
    else
        sim_fail(s->w, "worker %d forgets lease %lld, which it does not have", s->node,
                 (long long)lease);
}

static void restart(void *arg)
{
    struct lease_worker *s = arg;
    const struct lease_truth *u = replay_of(s->w);

    for (int64_t i = 0; i < u->n_given; i++)
        if (u->given[i]->node == s->node && u->given[i]->incarnation == s->incarnation &&
            !u->given[i]->forgotten)
            reuse(s, u->given[i]);
}

static bool needs(void *arg, int64_t lease, int piece)
{
    const struct lease_worker *s = arg;

    (void)lease;
    return !replay_cut(replay_of(s->w), piece)->tables || s->w->c->plan.stale >= 0;
}

static weft_status take(void *arg, int piece, int64_t lease, const void *payload)
{
    struct lease_worker *s = arg;
    const struct lease_truth *u = replay_of(s->w);
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;
    const struct wf_cut_piece *p = replay_cut(u, piece);

    if (lease != s->w->node[s->node].m.lessee.lease)
        sim_fail(s->w, "worker %d takes a piece that it pulled for lease %lld", s->node,
                 (long long)lease);
    if (p->state)
        memcpy(s->sums, b->p, (size_t)real_kept(&u->u) * sizeof *s->sums);
    else if (!p->tables)
        wf_cut_scatter(&u->u.m.rules, p, (const float *)(const void *)b->p, s->seen);
    return WEFT_OK;
}

static weft_status rows(void *arg, int piece, int64_t lease, const void *payload)
{
    struct lease_worker *s = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;

    (void)lease;
    return wf_lookup_take(s->lookup, piece - replay_of(s->w)->u.m.cut->first_table, s->stamp, b->p,
                          b->n);
}

static unsigned reads(void *worker, int64_t lease, int shard)
{
    struct lease_worker *s = worker;
    const struct lease_truth *u = replay_of(s->w);
    int n_shards = s->w->c->plan.n_shards;
    const struct wf_payload *body;
    int64_t ids[LOOKUPS];
    unsigned pieces = 0;

    (void)shard;
    if (!s->lookup)
        return 0;
    s->stamp++;
    wf_lookup_forget(s->lookup);
    for (int v = 0; v < u->rules.n_vars; v++)
        if (replay_is_table(u, v))
            real_must(wf_lookup_want(
                s->lookup, s->stamp, v,
                rows_list(&u->u, lease / n_shards, (int)(lease % n_shards), v, ids), ids));
    real_must(wf_lookup_request(s->lookup, &body));
    for (int k = 0; k < u->u.m.cut->n_table_pieces; k++)
        pieces |= body[k].n ? 1u << (u->u.m.cut->first_table + k) : 0;
    return pieces;
}

static void add_table_rows(struct lease_worker *s, int64_t t, int shard, struct wf_contribution *c)
{
    const struct lease_truth *u = replay_of(s->w);

    for (int v = 0; v < u->rules.n_vars; v++) {
        float values[LOOKUPS * MAX_WIDTH];
        int64_t ids[LOOKUPS], n;

        if (!replay_is_table(u, v))
            continue;
        n = rows_list(&u->u, t, shard, v, ids);
        if (!wf_lookup_copy(s->lookup, s->stamp, v, n, ids, values))
            sim_fail(s->w, "worker %d computes shard %d of step %lld without its rows", s->node,
                     shard, (long long)t);
        rows_add(&u->u, t, shard, v, n, ids, values, c);
    }
}

/* Clipping looks at the mean of the whole gradient, at the parameters that were pulled. */
static void find_scale(struct lease_worker *s, struct given *g)
{
    struct lease_truth *u = replay_of(s->w);
    struct wf_step step = {.iteration = 1};

    real_must(wf_contribution_copy(u->mean, g->c));
    real_must(wf_merge_mean(u->all, u->mean, s->seen));
    real_must(wf_merge_norms(u->all, u->mean, &step));
    wf_merge_scales(&u->rules, u->all->first_block, u->all->n_partials, u->all->partial, g->scale);
}

/* What the shard has; state as what it has changed. */
static void contribute(struct lease_worker *s, struct given *g, int64_t t, int shard)
{
    struct lease_truth *u = replay_of(s->w);
    int64_t samples = u->rules.n_groups, n = u->u.m.rules.n_sums;
    size_t bytes = (size_t)(u->rules.n_groups * u->rules.n_dense) * sizeof(float);

    real_must(wf_contribution_new(u->u.ctx, &u->rules, &g->c));
    real_contribute(&u->u, t, shard, s->seen, g->c->dense, g->c->sums);
    for (int64_t i = samples + 1; i < n; i++)
        g->c->sums[i] = g->c->sums[i] / 100 - 0.01 * (s->sums[i] / s->sums[samples]);
    add_table_rows(s, t, shard, g->c);
    if (g->mark.kind == WF_PS_UPDATE)
        find_scale(s, g);
    if (!sim_shares(s->w->c, s->node))
        return;
    g->lent = calloc(1, bytes + sizeof(float));
    memcpy(g->lent, g->c->dense, bytes);
}

static void compute(void *worker, int64_t lease, int shard)
{
    struct lease_worker *s = worker;
    struct lease_truth *u = replay_of(s->w);
    const struct node *n = &s->w->node[s->node];
    uint64_t h = sim_mix(sim_mix(s->w->c->seed, 0x5c1b), (uint64_t)lease);
    uint64_t seen =
        wf_hash64(s->seen, (size_t)u->rules.n_dense * sizeof *s->seen, (uint64_t)s->stamp);
    struct given *g = find_given(s, lease);

    (void)shard;
    if (n->m.lessee.lease != lease) /* it was lost meanwhile */
        return;
    if (g && g->seen != seen)
        sim_fail(s->w, "worker %d: what it computes lease %lld from has changed", s->node,
                 (long long)lease);
    if (g)
        return;
    g = calloc(1, sizeof *g);
    *g = (struct given){.node = s->node,
                        .incarnation = s->incarnation,
                        .lease = lease,
                        .seen = seen,
                        .rate = s->w->c->seed % 2 ? NAN : 0.001 * (double)(1 + h / 64 % 9),
                        .mark = {.control = n->record_t,
                                 .fresh = n->record_t % 2 == 0,
                                 .kind = h % 8 < 2 ? WF_PS_SKIPPED : WF_PS_UPDATE,
                                 .step = lease / s->w->c->plan.n_shards}};
    for (int v = 0; v < MAX_VARS; v++)
        g->scale[v] = 1;
    real_must(wf_grow(u->u.ctx, &u->given, &u->cap_given, u->n_given + 1, sizeof(struct given *)));
    u->given[u->n_given++] = g;
    if (h % 8 != 0) /* otherwise the shard has no samples */
        contribute(s, g, g->mark.step, (int)(lease % s->w->c->plan.n_shards));
}

static weft_status control(void *arg, int64_t t, const void *payload)
{
    struct lease_worker *s = arg;

    return sim_control(s->w, s->node, t, payload);
}

static void *new_lessee(struct world *w, int node, struct wf_lessee_data *data)
{
    struct lease_worker *s = calloc(1, sizeof *s);
    const struct lease_truth *u = replay_of(w);

    s->w = w;
    s->node = node;
    s->incarnation = w->node[node].incarnation;
    s->seen = calloc((size_t)u->rules.n_dense + 1, sizeof *s->seen);
    if (u->u.m.cut->n_table_pieces)
        real_must(wf_lookup_new(u->u.ctx, &u->u.tables, 0, &s->lookup));
    *data = (struct wf_lessee_data){.arg = s,
                                    .take = take,
                                    .needs = needs,
                                    .rows = rows,
                                    .restart = restart,
                                    .forget = forget,
                                    .control = w->c->gate_every || w->c->halts ? control : NULL};
    return s;
}

static void free_worker(void *worker)
{
    struct lease_worker *s = worker;

    wf_lookup_free(s->lookup);
    free(s->seen);
    free(s);
}

/* The gradient of a piece, then sums; of tables, ids and rows. */
static int64_t write_body(const struct lease_truth *u, const struct given *g, int piece, char **out)
{
    const struct wf_cut_piece *p = replay_cut(u, piece);
    struct wf_ps_store_opts o = real_store_opts(&u->u);
    struct wf_payload part[WF_MAX_TABLE_PIECES] = {{.p = NULL}};
    struct wf_tables_sort sort = {.key = NULL};
    int64_t dense = g->lent ? 0 : u->rules.n_groups * p->count * (int64_t)sizeof(float);
    int64_t sums = wf_ps_n_sums(&o, piece) * (int64_t)sizeof(double), n = dense + sums;
    int k = piece - u->u.m.cut->first_table;

    if (!p->tables) {
        *out = calloc(1, (size_t)n);
        for (int q = 0; q < u->rules.n_groups && dense; q++)
            wf_cut_gather(&u->u.m.rules, p, g->c->dense + q * u->rules.n_dense,
                          (float *)(void *)*out + q * p->count);
        memcpy(*out + dense, g->c->sums, (size_t)sums);
        return n;
    }
    real_must(wf_tables_split(u->u.ctx, &u->u.tables, -1, u->rules.n_groups, g->c->rows, g->c->sums,
                              u->rules.n_groups + 1, &sort, part));
    n = part[k].n;
    *out = calloc(1, (size_t)n + 1);
    memcpy(*out, part[k].p, (size_t)n);
    wf_tables_sort_free(u->u.ctx, &sort);
    for (int i = 0; i < u->u.m.cut->n_table_pieces; i++)
        wf_free(u->u.ctx, part[i].p);
    return n;
}

static void push_payload(struct lease_worker *s, const struct wf_message *m, struct payload **out)
{
    const struct lease_truth *u = replay_of(s->w);
    struct given *g = find_given(s, m->lease);
    bool gives = m->type == WF_MSG_PUSH || m->whole, closes = m->type == WF_MSG_CLOSE;
    char *body = NULL;
    int64_t n, scale = wf_ps_scale_bytes(&u->rules);
    struct wf_ps_payload *p;

    if (!g) {
        sim_fail(s->w, "worker %d pushes lease %lld, which it does not have", s->node,
                 (long long)m->lease);
        *out = sim_payload(0);
        return;
    }
    n = g->c && gives ? write_body(u, g, m->piece, &body) : 0;
    *out = sim_payload(wf_round_up(n, 8) + scale);
    p = &(*out)->real;
    if (n)
        memcpy((*out)->mem, body, (size_t)n);
    free(body);
    p->rate = g->rate;
    p->mark = g->mark;
    p->body = (struct wf_blob){(*out)->mem, n};
    if (n && g->lent && replay_cut(u, m->piece)->count) {
        p->lent = g->lent + replay_cut(u, m->piece)->first;
        p->lent_stride = u->rules.n_dense;
        p->stamp = &g->stamp;
        p->stamped = g->stamp;
    }
    if (closes && g->c && wf_rules_clip(&u->rules) != WF_CLIP_NONE &&
        g->mark.kind == WF_PS_UPDATE) {
        wf_ps_scale_write(&u->rules, g->scale, (*out)->mem + wf_round_up(n, 8));
        p->decision = (struct wf_blob){(*out)->mem + wf_round_up(n, 8), scale};
    }
    for (int64_t i = 0; i < u->n_given; i++)
        if (u->given[i] == g)
            (*out)->v[0] = (uint64_t)i + 1;
}

static void worker_payload(void *worker, const struct wf_message *m, struct payload **out)
{
    struct lease_worker *s = worker;
    const struct wf_payload *asked;

    if (m->type == WF_MSG_PUSH || m->type == WF_MSG_CLOSE) {
        push_payload(s, m, out);
        return;
    }
    if (m->type != WF_MSG_READ) {
        *out = sim_payload(0);
        return;
    }
    asked = wf_lookup_asked(s->lookup, m->piece - replay_of(s->w)->u.m.cut->first_table);
    *out = sim_payload(asked->n);
    memcpy((*out)->mem, asked->p, (size_t)asked->n);
    (*out)->real.body = (struct wf_blob){(*out)->mem, asked->n};
}

static void free_server(void *server)
{
    sim_real.free_server(server);
}

const struct sim_kind sim_real_leases = {.new_truth = replay_new,
                                         .free_truth = replay_free,
                                         .new_server = new_server,
                                         .free_server = free_server,
                                         .new_lessee = new_lessee,
                                         .free_worker = free_worker,
                                         .server_payload = server_payload,
                                         .worker_payload = worker_payload,
                                         .is_true = is_true,
                                         .reads = reads,
                                         .compute = compute,
                                         .begin = replay_begin,
                                         .replay = replay,
                                         .keep = replay_keep,
                                         .resume = replay_resume};
