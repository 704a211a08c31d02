/* real.c - real parameters in a simulated job: every optimizer, clipping, penalties, constraints,
 * groups of losses, shards without samples; through the store of a server. The truth is one process
 * that adds all contributions and updates everything. */
#include "real.h"

#include <math.h>
#include <stdlib.h>

void real_must(weft_status st)
{
    if (st) {
        fprintf(stderr, "sim: %s\n", weft_error());
        abort();
    }
}

uint64_t real_pick(uint64_t *state, uint64_t n)
{
    *state = sim_mix(*state, 0x77);
    return *state % n;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void draw_var(uint64_t *r, int i, struct wf_var *v, int64_t offset)
{
    static const char *const name[MAX_VARS] = {"a", "b", "c", "d", "e"};
    bool large = real_pick(r, 2);

    *v = (struct wf_var){.name = name[i], .rank = 2, .offset = offset};
    v->dim[0] = (int64_t)(large ? 50 + real_pick(r, 60) : 1 + real_pick(r, 9));
    v->dim[1] = (int64_t)(large ? 80 + real_pick(r, 40) : 1 + real_pick(r, 9));
    v->count = v->dim[0] * v->dim[1];
    if (real_pick(r, 3) == 0)
        v->penalty.l2 = 0.01F;
    if (real_pick(r, 4) == 0)
        v->penalty.l1 = 0.001F;
    if (real_pick(r, 5) == 0)
        v->constraint.kind = WF_CONSTRAINT_NON_NEG;
}

void real_model(weft_ctx *ctx, const struct sim_case *c, struct model *m)
{
    static const int first[] = {0, 0}, second[] = {0, 1};
    uint64_t r = sim_mix(c->seed, 0x4ea1);
    struct wf_rules *rules = &m->rules;
    int clip = (int)real_pick(&r, 3);
    int64_t bytes;

    *rules = (struct wf_rules){.optim = &wf_optim_rows[real_pick(&r, (uint64_t)wf_n_optim_rows)],
                               .n_vars = 1 + (int)real_pick(&r, MAX_VARS),
                               .var = m->var,
                               .n_groups = 1 + (int)real_pick(&r, 2)};
    wf_optim_defaults(rules->optim, rules->attrs);
    if (clip)
        rules->attrs[clip == 1 ? WF_OPTIM_ATTR_CLIPNORM : WF_OPTIM_ATTR_GLOBAL_CLIPNORM] = 0.5;
    for (int i = 0; i < rules->n_vars; i++) {
        draw_var(&r, i, &m->var[i], rules->n_dense);
        rules->n_dense += wf_round_up(m->var[i].count, 16);
    }
    bytes = wf_max_i64(rules->n_dense, 4096) * 2;
    rules->whole = c->plan.n_shards == 1 && rules->n_groups == 1;
    rules->n_sums = rules->n_groups + 1 + N_STATE;
    m->logs = (struct wf_log_rules){.n_batches = 1,
                                    .n_means = 2,
                                    .mean_group = rules->n_groups > 1 ? second : first,
                                    .n_metrics = 1,
                                    .n_slots = 2};
    m->n_logs = wf_logs_step(rules, &m->logs);
    rules->uncut = c->leased && wf_ps_rounds(rules) == 2; /* as with servers */
    rows_draw(c, m);
    real_must(wf_cut_new(ctx, rules, bytes, &m->cut));
    while (m->cut->n_pieces > MAX_PIECES) {
        bytes *= 2;
        wf_cut_free(m->cut);
        real_must(wf_cut_new(ctx, rules, bytes, &m->cut));
    }
    m->n_blocks = m->cut->n_table_pieces ? c->plan.n_blocks : 1;
}

void sim_adapt(weft_ctx *ctx, struct sim_case *c)
{
    struct model m;

    real_model(ctx, c, &m);
    c->plan.n_pieces = m.cut->n_pieces;
    c->plan.n_rounds = c->leased ? 0 : wf_ps_rounds(&m.rules);
    c->plan.n_blocks = m.n_blocks;
    c->first_table = m.cut->first_table;
    c->n_table_pieces = m.cut->n_table_pieces;
    c->real = true;
    wf_cut_free(m.cut);
}

/* ---- contributions --------------------------------------------------------------------------- */

/* What a step does: with some seeds others than updates. */
static enum wf_ps_kind kind_of(const struct sim_case *c, int64_t t)
{
    static const enum wf_ps_kind kind[] = {WF_PS_SKIPPED, WF_PS_SET, WF_PS_STILL};
    uint64_t x = sim_mix(c->seed, (uint64_t)t + 31) % 6;

    return c->seed % 3 == 1 && x < WF_COUNT(kind) ? kind[x] : WF_PS_UPDATE;
}

/* The trainer's step at version t. */
static int64_t step_at(const struct sim_case *c, int64_t t)
{
    int64_t n = 0;

    for (int64_t i = 0; i < t; i++)
        n += kind_of(c, i) == WF_PS_UPDATE;
    return n;
}

bool real_absent(const struct sim_case *c, int64_t t, int shard)
{
    if (kind_of(c, t) == WF_PS_SET)
        return shard > 0;
    return shard > 0 && sim_mix(sim_mix(c->seed, (uint64_t)t), (uint64_t)shard + 9000) % 5 == 0;
}

/* The learning rate that a step's contributions carry; NAN: that of the rules. */
static double rate_of(const struct sim_case *c, int64_t t)
{
    return c->seed % 2 ? NAN : 0.001 * (double)(1 + sim_mix(c->seed, (uint64_t)t + 5) % 9);
}

/* Every few steps an epoch begins. */
static struct wf_ps_mark mark_of(const struct sim_case *c, int64_t t)
{
    int64_t every = 1 + (int64_t)(c->seed % 4);

    return (struct wf_ps_mark){.control = t - t % every,
                               .fresh = t % every == 0,
                               .kind = kind_of(c, t),
                               .step = step_at(c, t)};
}

/* Of a contribution of several shards: one of all finds that the step is to be skipped. */
static struct wf_ps_mark mark_in(const struct sim_case *c, int64_t t, int level, int shard)
{
    int finds = (int)(sim_mix(c->seed, (uint64_t)t + 61) % (uint64_t)c->plan.n_shards);
    struct wf_ps_mark mark = mark_of(c, t);

    if (mark.kind == WF_PS_SKIPPED && finds >> level != shard >> level)
        mark.kind = WF_PS_UPDATE;
    return mark;
}

/* Gradients that depend on the parameters, the step and the shard. */
void real_contribute(const struct truth *u, int64_t t, int shard, const float *params, float *dense,
                     double *sums)
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
    for (int64_t i = r->n_groups; i < r->n_sums + u->m.n_logs; i++)
        sums[i] = (double)(sim_mix(key, (uint64_t)i + 99) % 1000) / 7;
}

/* ---- the truth ------------------------------------------------------------------------------- */

float real_initial(int64_t i)
{
    return (float)(sim_mix(5, (uint64_t)i) >> 40) / 16777216.0F - 0.4F;
}

/* Where training is, step by step. */
static void add_totals(struct truth *u, int64_t t, const double *logs)
{
    int64_t at = u->m.rules.n_sums + u->m.n_logs;
    double *to = u->sums[t + 1] + at, *totals = to + WF_PS_TOTALS;
    struct wf_ps_mark mark = mark_of(u->c, t);
    bool trains = mark.kind <= WF_PS_SKIPPED;

    memcpy(to, u->sums[t] + at, (MAX_SUMS - (size_t)at) * sizeof *to);
    if (mark.fresh && mark.kind == WF_PS_STILL) {
        to[WF_PS_ROUNDS] = to[WF_PS_VALIDATED] = 0;
        memset(totals + N_TOTALS, 0, N_TOTALS * sizeof *totals);
    } else if (mark.fresh) {
        to[WF_PS_BATCHES] = to[WF_PS_SCALE + WF_SCALE_SKIPPED_NOW] = 0;
        memset(totals, 0, N_TOTALS * sizeof *totals);
    }
    to[WF_PS_CONTROL] = (double)mark.control;
    to[WF_PS_KIND] = mark.kind;
    to[WF_PS_STEP] = (double)step_at(u->c, t + 1);
    if (trains && logs[u->m.rules.n_groups] > 0) {
        to[WF_PS_BATCHES]++;
        wf_logs_add(&u->m.rules, &u->m.logs, logs,
                    &(struct wf_log_totals){totals, totals + 2, totals + 3});
    }
    if (trains)
        wf_scale_next(to + WF_PS_SCALE, to[WF_PS_GROWTH], mark.kind == WF_PS_UPDATE);
    to[WF_PS_ROUNDS] += mark.kind == WF_PS_STILL;
    logs += wf_logs_sums(&u->m.rules, &u->m.logs);
    for (int i = 0; i < 2 * N_TOTALS && mark.kind == WF_PS_STILL; i++) {
        const double *batch = logs + i / N_TOTALS * N_TOTALS;

        to[WF_PS_VALIDATED] += i % N_TOTALS == 0 && batch[2] > 0;
        if (batch[2] > 0)
            totals[N_TOTALS + i % N_TOTALS] += logs[i];
    }
}

static struct wf_contribution *sum_of(struct truth *u, struct wf_tree *tree, int64_t t)
{
    const struct wf_rules *r = tree->rules;
    struct wf_contribution *c;

    for (int l = 0; l < u->c->plan.n_shards; l++) {
        if (real_absent(u->c, t, l)) {
            real_must(wf_tree_put(tree, 0, l, NULL));
            continue;
        }
        real_must(wf_tree_take(tree, &c));
        real_contribute(u, t, l, u->params[t], c->dense, c->sums);
        rows_contribute(u, t, l, c);
        real_must(wf_tree_put(tree, 0, l, c));
    }
    real_must(wf_tree_sum(tree, &c));
    memcpy(u->sums[t + 1], c->sums, (size_t)r->n_sums * sizeof *c->sums);
    if (kind_of(u->c, t) == WF_PS_SKIPPED || kind_of(u->c, t) == WF_PS_STILL)
        memcpy(u->sums[t + 1], u->sums[t], (size_t)u->m.rules.n_sums * sizeof *c->sums);
    add_totals(u, t, c->sums + u->m.rules.n_sums);
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
    real_model(ctx, c, &u->m);
    with_logs = u->m.rules;
    with_logs.n_sums += u->m.n_logs;
    bytes = (size_t)(u->m.rules.n_dense + 1) * sizeof(float);
    u->n_slots = wf_optim_slots(u->m.rules.optim, u->m.rules.attrs, NULL, init);
    for (int t = 0; t <= c->plan.n_steps; t++) {
        u->params[t] = calloc(1, bytes);
        for (int k = 0; k < u->n_slots; k++)
            u->slot[t][k] = calloc(1, bytes);
    }
    u->sums[0][with_logs.n_sums + WF_PS_GROWTH] = 3;
    u->sums[0][with_logs.n_sums + WF_PS_SCALE] = 1024;
    for (int64_t i = 0; i < u->m.rules.n_dense; i++) {
        u->params[0][i] = real_initial(i);
        for (int k = 0; k < u->n_slots; k++)
            u->slot[0][k][i] = init[k];
    }
    rows_new_truth(u);
    wf_tree_init(&tree, ctx, ctx->pool, &with_logs);
    real_must(wf_merge_new(ctx, ctx->pool, &with_logs, 0, NULL, &merge));
    for (int64_t t = 0; t < c->plan.n_steps; t++) {
        struct wf_contribution *sum = sum_of(u, &tree, t);
        double rate = rate_of(c, t);
        struct wf_step step = {.iteration = step_at(c, t) + 1,
                               .has_rate = !isnan(rate),
                               .rate = isnan(rate) ? 0 : (float)rate};
        struct wf_version v = {.params = u->params[t + 1]};

        memcpy(v.params, u->params[t], bytes);
        for (int k = 0; k < u->n_slots; k++)
            v.slot[k] = memcpy(u->slot[t + 1][k], u->slot[t][k], bytes);
        rows_begin(u, t, &v);
        if (kind_of(c, t) == WF_PS_SET)
            memcpy(v.params, sum->dense, bytes - sizeof(float));
        for (int k = 0; k < u->m.rules.n_vars && kind_of(c, t) == WF_PS_SET; k++) {
            const struct wf_rows *rows = &sum->rows[k];
            int64_t width = u->m.rules.var[k].table ? u->m.rules.var[k].dim[1] : 0;

            for (int64_t i = 0; i < rows->n && width; i++)
                memcpy(v.table[k].w + rows->id[i] * width, rows->row + i * width,
                       (size_t)width * sizeof(float));
        }
        if (kind_of(c, t) == WF_PS_UPDATE) {
            real_must(wf_merge_mean(merge, sum, u->params[t]));
            real_must(wf_merge_step(merge, sum, &step, &v));
        }
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
    rows_free_truth(u);
    wf_cut_free(u->m.cut);
    free(u);
}

/* ---- servers --------------------------------------------------------------------------------- */

int64_t real_kept(const struct truth *u)
{
    return u->m.rules.n_sums + u->m.n_logs + WF_PS_TOTALS + 2 * wf_logs_totals(&u->m.logs);
}

static weft_status load(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums)
{
    const struct truth *u = arg;
    const struct wf_cut_piece *p = &u->m.cut->piece[piece];

    wf_cut_gather(&u->m.rules, p, u->params[t], params);
    for (int k = 0; k < u->n_slots; k++)
        wf_cut_gather(&u->m.rules, p, u->slot[t][k], slot[k]);
    if (p->state)
        memcpy(sums, u->sums[t], (size_t)real_kept(u) * sizeof *sums);
    return WEFT_OK;
}

struct wf_ps_store_opts real_store_opts(const struct truth *u)
{
    return (struct wf_ps_store_opts){.rules = &u->m.rules,
                                     .n_shards = u->c->plan.n_shards,
                                     .cut = u->m.cut,
                                     .n_logs = u->m.n_logs,
                                     .logs = &u->m.logs,
                                     .n_blocks = u->m.n_blocks,
                                     .load = load,
                                     .load_rows = rows_load,
                                     .load_arg = (void *)(uintptr_t)u};
}

static bool records(void *arg, int piece)
{
    const struct server *s = arg;
    const struct wf_holders *h = sim_holders(s->w, s->node, piece);

    return h->backup != WF_NOBODY || h->target != WF_NOBODY;
}

static void *new_server(struct world *w, const void *truth, int node, struct wf_ps_data *data)
{
    struct server *s = calloc(1, sizeof *s);
    struct wf_ps_store_opts o = real_store_opts(truth);

    s->w = w;
    s->truth = truth;
    s->node = node;
    o.records = records;
    o.records_arg = s;
    real_must(wf_ps_store_new(s->truth->ctx, &o, &s->store));
    *data = s->data = wf_ps_store_data(s->store);
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
           type == WF_MSG_RECORD || type == WF_MSG_FILL || type == WF_MSG_ROWS;
}

static void server_payload(void *server, const struct wf_server *m, const struct wf_message *msg,
                           struct payload **out)
{
    struct server *s = server;
    struct wf_ps_bytes b = {.n_body = 0, .rate = NAN};
    int64_t n = 0;
    char *end;

    if (carries(msg->type))
        wf_ps_bytes(s->store, msg, m->piece[msg->piece].version, &b);
    for (int i = 0; i < b.n_body; i++)
        n += b.body[i].n;
    *out = sim_payload(wf_round_up(n, 8) + b.decision.n);
    end = put((*out)->mem, b.body, b.n_body);
    (*out)->real.rate = b.rate;
    (*out)->real.mark = b.mark;
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
    return memcmp(sums, u->sums[t], (size_t)real_kept(u) * sizeof(double)) == 0;
}

static bool is_true(void *server, int piece, int64_t t, bool present)
{
    struct server *s = server;
    struct wf_message m = {.type = WF_MSG_VERSION, .piece = piece, .t = t};
    struct wf_ps_bytes b;

    if (s->truth->m.cut->piece[piece].tables)
        return rows_true(s, piece, t);
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
        wf_cut_scatter(&u->m.rules, &u->m.cut->piece[piece], params, s->seen[t & 1]);
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    (void)shard;
    (void)t;
    return !((struct worker *)arg)->truth->m.cut->piece[piece].tables;
}

static void forget(void *arg, int64_t t)
{
    (void)arg;
    (void)t;
}

static enum wf_gate gate(void *arg, int64_t t, bool decides)
{
    struct worker *s = arg;

    return sim_gate(s->w, s->node, t, decides);
}

static enum wf_doing doing(void *arg)
{
    const struct worker *s = arg;

    return sim_doing(s->w, s->node);
}

static weft_status control(void *arg, int64_t t, const void *payload)
{
    struct worker *s = arg;

    return sim_control(s->w, s->node, t, payload);
}

static bool sums(void *arg, int piece)
{
    const struct worker *s = arg;

    return sim_sums(s->truth->c, s->node, piece);
}

static void *new_worker(struct world *w, const void *truth, int node, struct wf_client_data *data)
{
    struct worker *s = calloc(1, sizeof *s);
    const struct wf_rules *r;

    s->w = w;
    s->truth = truth;
    s->node = node;
    r = &s->truth->m.rules;
    for (int i = 0; i < 2; i++)
        s->seen[i] = calloc((size_t)r->n_dense + 1, sizeof *s->seen[i]);
    for (int l = 0; l < MAX_SHARDS; l++)
        s->dense[l] = calloc((size_t)(r->n_groups * r->n_dense) + 1, sizeof **s->dense);
    *data = (struct wf_client_data){.arg = s,
                                    .backup = s->truth->c->backup,
                                    .sums = sums,
                                    .follow = sim_follows(s->truth->c, node),
                                    .take = take,
                                    .needs = needs,
                                    .rows = rows_take,
                                    .restart = rows_restart,
                                    .forget = forget,
                                    .gate = s->truth->c->gate_every ? gate : NULL,
                                    .control = control,
                                    .doing = doing};
    rows_new_worker(s);
    return s;
}

static void free_worker(void *worker)
{
    struct worker *s = worker;

    rows_free_worker(s);
    free(s->seen[0]);
    free(s->seen[1]);
    for (int l = 0; l < MAX_SHARDS; l++)
        free(s->dense[l]);
    free(s);
}

static void compute(void *worker, int64_t t, int shard)
{
    struct worker *s = worker;

    s->absent[shard] = real_absent(s->truth->c, t, shard);
    real_contribute(s->truth, t, shard, s->seen[t & 1], s->dense[shard], s->sums[shard]);
    rows_compute(s, t, shard);
}

static unsigned reads(void *worker, int64_t t, int shard)
{
    return rows_read(worker, t, shard);
}

/* The sum of a subtree in `to`: dense, then sums, as they are pushed. False: none has samples. */
static bool sum_shards(const struct worker *s, int piece, int level, int first, char *to)
{
    const struct truth *u = s->truth;
    const struct wf_rules *r = &u->m.rules;
    const struct wf_cut_piece *p = &u->m.cut->piece[piece];
    struct wf_ps_store_opts o = real_store_opts(u);
    int64_t n = r->n_groups * p->count, n_sums = wf_ps_n_sums(&o, piece);
    int64_t bytes = wf_ps_push_bytes(&o, piece);
    float *dense = (float *)(void *)to;
    char *other;
    bool left, right;

    if (first >= u->c->plan.n_shards || (level == 0 && s->absent[first]))
        return false;
    if (level == 0) {
        for (int g = 0; g < r->n_groups; g++)
            wf_cut_gather(r, p, s->dense[first] + g * r->n_dense, dense + g * p->count);
        memcpy(dense + n, s->sums[first], (size_t)n_sums * sizeof(double));
        return true;
    }
    other = calloc(1, (size_t)bytes + 64);
    left = sum_shards(s, piece, level - 1, first, to);
    right = sum_shards(s, piece, level - 1, first + (1 << (level - 1)), other);
    for (int64_t i = 0; i < n && left && right; i++)
        dense[i] += ((const float *)(const void *)other)[i];
    for (int64_t i = 0; i < n_sums && left && right; i++)
        ((double *)(void *)(dense + n))[i] +=
            ((const double *)(const void *)(other + n * (int64_t)sizeof(float)))[i];
    if (right && !left)
        memcpy(to, other, (size_t)bytes);
    free(other);
    return left || right;
}

static void worker_payload(void *worker, const struct wf_message *msg, struct payload **out)
{
    struct worker *s = worker;
    struct wf_ps_store_opts o = real_store_opts(s->truth);
    bool sums_alone;
    int64_t n;

    if (msg->type != WF_MSG_READ && msg->type != WF_MSG_PUSH) {
        *out = sim_payload(0); /* its t need not be a step */
        return;
    }
    if (msg->type == WF_MSG_READ || s->truth->m.cut->piece[msg->piece].tables) {
        rows_payload(s, msg, out);
        (*out)->real.rate = rate_of(s->truth->c, msg->t);
        (*out)->real.mark = mark_in(s->truth->c, msg->t, msg->level, msg->shard);
        return;
    }
    sums_alone = kind_of(s->truth->c, msg->t) == WF_PS_STILL;
    n = !sums_alone || o.cut->piece[msg->piece].state ? wf_ps_push_bytes(&o, msg->piece) : 0;
    *out = sim_payload(n);
    (*out)->real.rate = rate_of(s->truth->c, msg->t);
    (*out)->real.mark = mark_in(s->truth->c, msg->t, msg->level, msg->shard);
    if (n && !sum_shards(s, msg->piece, msg->level, msg->shard, (*out)->mem))
        n = 0;
    (*out)->real.body = (struct wf_blob){(*out)->mem, n};
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
                                  .reads = reads,
                                  .compute = compute};
