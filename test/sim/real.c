/* real.c - real parameters in a simulated job: every optimizer, clipping, penalties, constraints,
 * groups of losses, shards without samples; through the store of a server. The truth is one process
 * that adds all contributions and updates everything. */
#include "sim.h"

#include <stdlib.h>

enum { MAX_VARS = 5, N_STATE = 3, N_LOGS = 2, MAX_SUMS = 16 };

/* What the seed says of the model. */
struct model {
    struct wf_rules rules;
    struct wf_var var[MAX_VARS];
    struct wf_cut *cut;
};

struct truth {
    weft_ctx *ctx;
    const struct sim_case *c;
    struct model m;
    int n_slots;
    float *params[MAX_STEPS + 1], *slot[MAX_STEPS + 1][WF_OPTIM_MAX_SLOTS];
    double sums[MAX_STEPS + 1][MAX_SUMS];
};

struct server {
    struct world *w;
    const struct truth *truth;
    struct wf_ps_store *store;
};

struct worker {
    struct world *w;
    const struct truth *truth;
    int node;
    float *seen, *dense[MAX_SHARDS]; /* flat */
    double sums[MAX_SHARDS][MAX_SUMS];
    bool absent[MAX_SHARDS];
};

static void must(weft_status st)
{
    if (st) {
        fprintf(stderr, "sim: %s\n", weft_error());
        abort();
    }
}

static uint64_t pick(uint64_t *state, uint64_t n)
{
    *state = sim_mix(*state, 0x77);
    return *state % n;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void draw_var(uint64_t *r, int i, struct wf_var *v, int64_t offset)
{
    static const char *const name[MAX_VARS] = {"a", "b", "c", "d", "e"};
    bool large = pick(r, 2);

    *v = (struct wf_var){.name = name[i], .rank = 2, .offset = offset};
    v->dim[0] = (int64_t)(large ? 50 + pick(r, 60) : 1 + pick(r, 9));
    v->dim[1] = (int64_t)(large ? 80 + pick(r, 40) : 1 + pick(r, 9));
    v->count = v->dim[0] * v->dim[1];
    if (pick(r, 3) == 0)
        v->penalty.l2 = 0.01F;
    if (pick(r, 4) == 0)
        v->penalty.l1 = 0.001F;
    if (pick(r, 5) == 0)
        v->constraint.kind = WF_CONSTRAINT_NON_NEG;
}

static void draw_model(weft_ctx *ctx, const struct sim_case *c, struct model *m)
{
    uint64_t r = sim_mix(c->seed, 0x4ea1);
    struct wf_rules *rules = &m->rules;
    int clip = (int)pick(&r, 3);

    *rules = (struct wf_rules){.optim = &wf_optim_rows[pick(&r, (uint64_t)wf_n_optim_rows)],
                               .n_vars = 1 + (int)pick(&r, MAX_VARS),
                               .var = m->var,
                               .n_groups = 1 + (int)pick(&r, 2)};
    wf_optim_defaults(rules->optim, rules->attrs);
    if (clip)
        rules->attrs[clip == 1 ? WF_OPTIM_ATTR_CLIPNORM : WF_OPTIM_ATTR_GLOBAL_CLIPNORM] = 0.5;
    for (int i = 0; i < rules->n_vars; i++) {
        draw_var(&r, i, &m->var[i], rules->n_dense);
        rules->n_dense += wf_round_up(m->var[i].count, 16);
    }
    rules->whole = c->plan.n_shards == 1 && rules->n_groups == 1;
    rules->n_sums = rules->n_groups + 1 + N_STATE;
    must(wf_cut_new(ctx, rules, wf_max_i64(rules->n_dense, 4096) * 2, &m->cut));
    while (m->cut->n_pieces > MAX_PIECES) {
        wf_cut_free(m->cut);
        must(wf_cut_new(ctx, rules, rules->n_dense * 4, &m->cut));
    }
}

void sim_adapt(weft_ctx *ctx, struct sim_case *c)
{
    struct model m;

    draw_model(ctx, c, &m);
    c->plan.n_pieces = m.cut->n_pieces;
    c->plan.n_rounds = wf_ps_rounds(&m.rules);
    c->plan.n_blocks = 1;
    c->real = true;
    wf_cut_free(m.cut);
}

/* ---- contributions --------------------------------------------------------------------------- */

static bool is_absent(const struct sim_case *c, int64_t t, int shard)
{
    return shard > 0 && sim_mix(sim_mix(c->seed, (uint64_t)t), (uint64_t)shard + 9000) % 5 == 0;
}

/* Gradients that depend on the parameters, the step and the shard. */
static void contribute(const struct truth *u, int64_t t, int shard, const float *params,
                       float *dense, double *sums)
{
    const struct wf_rules *r = &u->m.rules;
    uint64_t key = sim_mix(sim_mix(u->c->seed, (uint64_t)t), (uint64_t)shard);

    for (int g = 0; g < r->n_groups; g++)
        for (int64_t i = 0; i < r->n_dense; i++) {
            float noise = (float)(sim_mix(key, (uint64_t)(i * 4 + g)) >> 40) / 16777216.0F - 0.5F;

            dense[g * r->n_dense + i] = noise + 0.25F * params[i];
        }
    for (int g = 0; g < r->n_groups; g++)
        sums[g] = (double)(1 + sim_mix(key, (uint64_t)g + 77) % 7);
    for (int64_t i = r->n_groups; i < r->n_sums + N_LOGS; i++)
        sums[i] = (double)(sim_mix(key, (uint64_t)i + 99) % 1000) / 7;
}

/* ---- the truth ------------------------------------------------------------------------------- */

static float initial(int64_t i)
{
    return (float)(sim_mix(5, (uint64_t)i) >> 40) / 16777216.0F - 0.4F;
}

static struct wf_contribution *sum_of(struct truth *u, struct wf_tree *tree, int64_t t)
{
    const struct wf_rules *r = tree->rules;
    struct wf_contribution *c;

    for (int l = 0; l < u->c->plan.n_shards; l++) {
        if (is_absent(u->c, t, l)) {
            must(wf_tree_put(tree, 0, l, NULL));
            continue;
        }
        must(wf_tree_take(tree, &c));
        contribute(u, t, l, u->params[t], c->dense, c->sums);
        must(wf_tree_put(tree, 0, l, c));
    }
    must(wf_tree_sum(tree, &c));
    memcpy(u->sums[t + 1], c->sums, (size_t)r->n_sums * sizeof *c->sums);
    return c;
}

static void *new_truth(weft_ctx *ctx, const struct sim_case *c)
{
    struct truth *u = calloc(1, sizeof *u);
    struct wf_rules with_logs;
    struct wf_merge *merge;
    struct wf_tree tree;
    float init[WF_OPTIM_MAX_SLOTS];
    size_t bytes;

    u->ctx = ctx;
    u->c = c;
    draw_model(ctx, c, &u->m);
    with_logs = u->m.rules;
    with_logs.n_sums += N_LOGS;
    bytes = (size_t)(u->m.rules.n_dense + 1) * sizeof(float);
    u->n_slots = wf_optim_slots(u->m.rules.optim, u->m.rules.attrs, NULL, init);
    for (int t = 0; t <= c->plan.n_steps; t++) {
        u->params[t] = calloc(1, bytes);
        for (int k = 0; k < u->n_slots; k++)
            u->slot[t][k] = calloc(1, bytes);
    }
    for (int64_t i = 0; i < u->m.rules.n_dense; i++) {
        u->params[0][i] = initial(i);
        for (int k = 0; k < u->n_slots; k++)
            u->slot[0][k][i] = init[k];
    }
    wf_tree_init(&tree, ctx, ctx->pool, &with_logs);
    must(wf_merge_new(ctx, ctx->pool, &with_logs, 0, NULL, &merge));
    for (int64_t t = 0; t < c->plan.n_steps; t++) {
        struct wf_contribution *sum = sum_of(u, &tree, t);
        struct wf_step step = {.iteration = t + 1};
        struct wf_version v = {.params = u->params[t + 1]};

        memcpy(v.params, u->params[t], bytes);
        for (int k = 0; k < u->n_slots; k++)
            v.slot[k] = memcpy(u->slot[t + 1][k], u->slot[t][k], bytes);
        must(wf_merge_mean(merge, sum, u->params[t]));
        must(wf_merge_step(merge, sum, &step, &v));
        wf_tree_give(&tree, sum);
    }
    wf_merge_free(merge);
    wf_tree_free(&tree);
    return u;
}

static void free_truth(void *truth)
{
    struct truth *u = truth;

    for (int t = 0; t <= MAX_STEPS; t++) {
        free(u->params[t]);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            free(u->slot[t][k]);
    }
    wf_cut_free(u->m.cut);
    free(u);
}

/* ---- servers --------------------------------------------------------------------------------- */

static weft_status load(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums)
{
    const struct truth *u = arg;
    const struct wf_cut_piece *p = &u->m.cut->piece[piece];

    wf_cut_gather(&u->m.rules, p, u->params[t], params);
    for (int k = 0; k < u->n_slots; k++)
        wf_cut_gather(&u->m.rules, p, u->slot[t][k], slot[k]);
    if (p->state)
        memcpy(sums, u->sums[t], (size_t)(u->m.rules.n_sums + N_LOGS) * sizeof *sums);
    return WEFT_OK;
}

static struct wf_ps_store_opts store_opts(const struct truth *u)
{
    return (struct wf_ps_store_opts){.rules = &u->m.rules,
                                     .cut = u->m.cut,
                                     .n_logs = N_LOGS,
                                     .load = load,
                                     .load_arg = (void *)(uintptr_t)u};
}

static void *new_server(struct world *w, const void *truth, int node, struct wf_ps_data *data)
{
    struct server *s = calloc(1, sizeof *s);
    struct wf_ps_store_opts o = store_opts(truth);

    (void)node;
    s->w = w;
    s->truth = truth;
    must(wf_ps_store_new(s->truth->ctx, &o, &s->store));
    *data = wf_ps_store_data(s->store);
    return s;
}

static void free_server(void *server)
{
    struct server *s = server;

    wf_ps_store_free(s->store);
    free(s);
}

static char *put(char *to, const struct wf_part *part, int n)
{
    for (int i = 0; i < n; i++) {
        memcpy(to, part[i].p, (size_t)part[i].n);
        to += part[i].n;
    }
    return to;
}

static bool carries(enum wf_message_type type)
{
    return type == WF_MSG_VERSION || type == WF_MSG_PARTIAL || type == WF_MSG_DECISION ||
           type == WF_MSG_RECORD || type == WF_MSG_FILL;
}

static void server_payload(void *server, const struct wf_server *m, const struct wf_message *msg,
                           struct payload **out)
{
    struct server *s = server;
    struct wf_ps_bytes b = {.n_body = 0};
    int64_t n = 0;
    char *end;

    if (carries(msg->type))
        wf_ps_bytes(s->store, msg, m->piece[msg->piece].version, &b);
    for (int i = 0; i < b.n_body; i++)
        n += b.body[i].n;
    *out = sim_payload(wf_round_up(n, 8) + b.decision.n);
    end = put((*out)->mem, b.body, b.n_body);
    (*out)->real.body = (struct wf_blob){(*out)->mem, end - (*out)->mem};
    end = (*out)->mem + wf_round_up(n, 8);
    (*out)->real.decision = (struct wf_blob){end, b.decision.n};
    if (b.decision.n)
        put(end, &b.decision, 1);
}

/* Compares run by run: what is between them means nothing. */
static bool same(const struct truth *u, int piece, int64_t t, const float *params)
{
    const struct wf_cut_piece *p = &u->m.cut->piece[piece];

    for (int i = 0; i < p->n_runs; i++) {
        const struct wf_piece *r = &p->run[i];

        if (memcmp(params + r->at, u->params[t] + u->m.var[r->var].offset + r->first,
                   (size_t)r->n * sizeof *params) != 0)
            return false;
    }
    return true;
}

static bool same_sums(const struct truth *u, int64_t t, const void *sums)
{
    return memcmp(sums, u->sums[t], (size_t)(u->m.rules.n_sums + N_LOGS) * sizeof(double)) == 0;
}

static bool is_true(void *server, int piece, int64_t t, bool present)
{
    struct server *s = server;
    struct wf_message m = {.type = WF_MSG_VERSION, .piece = piece, .t = t};
    struct wf_ps_bytes b;

    wf_ps_bytes(s->store, &m, present ? t : t + 1, &b);
    return s->truth->m.cut->piece[piece].state ? same_sums(s->truth, t, b.body[0].p)
                                               : same(s->truth, piece, t, b.body[0].p);
}

/* ---- workers --------------------------------------------------------------------------------- */

static weft_status take(void *arg, int piece, int64_t t, const void *payload)
{
    struct worker *s = arg;
    const struct truth *u = s->truth;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;
    const float *params = (const float *)(const void *)b->p;
    bool ok = u->m.cut->piece[piece].state ? same_sums(u, t, b->p) : same(u, piece, t, params);

    if (!ok)
        sim_fail(s->w, "worker %d: version %lld of piece %d is not that of a serial run", s->node,
                 (long long)t, piece);
    if (!u->m.cut->piece[piece].state)
        wf_cut_scatter(&u->m.rules, &u->m.cut->piece[piece], params, s->seen);
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    (void)arg;
    (void)shard;
    (void)t;
    (void)piece;
    return true;
}

static void forget(void *arg, int64_t t)
{
    (void)arg;
    (void)t;
}

static void *new_worker(struct world *w, const void *truth, int node, struct wf_client_data *data)
{
    struct worker *s = calloc(1, sizeof *s);
    const struct wf_rules *r;

    s->w = w;
    s->truth = truth;
    s->node = node;
    r = &s->truth->m.rules;
    s->seen = calloc((size_t)r->n_dense + 1, sizeof *s->seen);
    for (int l = 0; l < MAX_SHARDS; l++)
        s->dense[l] = calloc((size_t)(r->n_groups * r->n_dense) + 1, sizeof **s->dense);
    *data = (struct wf_client_data){s, take, needs, forget};
    return s;
}

static void free_worker(void *worker)
{
    struct worker *s = worker;

    free(s->seen);
    for (int l = 0; l < MAX_SHARDS; l++)
        free(s->dense[l]);
    free(s);
}

static void compute(void *worker, int64_t t, int shard)
{
    struct worker *s = worker;

    s->absent[shard] = is_absent(s->truth->c, t, shard);
    contribute(s->truth, t, shard, s->seen, s->dense[shard], s->sums[shard]);
}

static void worker_payload(void *worker, const struct wf_message *msg, struct payload **out)
{
    struct worker *s = worker;
    const struct truth *u = s->truth;
    const struct wf_rules *r = &u->m.rules;
    struct wf_ps_store_opts o = store_opts(u);
    const struct wf_cut_piece *p = &u->m.cut->piece[msg->piece];
    int64_t n =
        msg->type == WF_MSG_PUSH && !s->absent[msg->shard] ? wf_ps_push_bytes(&o, msg->piece) : 0;

    *out = sim_payload(n);
    (*out)->real.body = (struct wf_blob){(*out)->mem, n};
    if (n == 0)
        return;
    for (int g = 0; g < r->n_groups; g++)
        wf_cut_gather(r, p, s->dense[msg->shard] + g * r->n_dense,
                      (float *)(void *)(*out)->mem + g * p->count);
    memcpy((*out)->mem + r->n_groups * p->count * (int64_t)sizeof(float), s->sums[msg->shard],
           (size_t)wf_ps_n_sums(&o, msg->piece) * sizeof(double));
}

const struct sim_kind sim_real = {.new_truth = new_truth,
                                  .free_truth = free_truth,
                                  .new_server = new_server,
                                  .free_server = free_server,
                                  .new_worker = new_worker,
                                  .free_worker = free_worker,
                                  .server_payload = server_payload,
                                  .worker_payload = worker_payload,
                                  .is_true = is_true,
                                  .compute = compute};
