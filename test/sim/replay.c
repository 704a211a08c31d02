/* replay.c - the truth of a simulated job with real parameters whose shards are leased. */
#include "replay.h"

#include <math.h>
#include <stdlib.h>

/* ---- moments --------------------------------------------------------------------------------- */

static void new_moment(const struct lease_truth *u, struct moment *m)
{
    int64_t n = u->u.m.rules.n_dense + 1;

    m->params = calloc((size_t)n, sizeof *m->params);
    for (int k = 0; k < u->u.n_slots; k++)
        m->slot[k] = calloc((size_t)n, sizeof *m->slot[k]);
    for (int v = 0; v < u->u.m.rules.n_vars; v++) {
        n = u->u.m.rules.var[v].count + 1;
        if (!replay_is_table(u, v))
            continue;
        m->table[v].w = calloc((size_t)n, sizeof(float));
        for (int k = 0; k < u->u.n_slots; k++)
            m->table[v].slot[k] = calloc((size_t)n, sizeof(float));
    }
    for (int p = 0; p < MAX_PIECES; p++)
        m->at[p] = -1;
}

static void free_moment(struct moment *m)
{
    free(m->params);
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        free(m->slot[k]);
    for (int v = 0; v < MAX_VARS; v++) {
        free(m->table[v].w);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            free(m->table[v].slot[k]);
    }
}

/* Calls `fn` with each range of a piece: of the parameters, then of each slot. block -1: all. */
typedef void range_fn(void *arg, const float *from, float *to, int64_t n);

static void each_range(const struct lease_truth *u, int piece, int block, const struct moment *from,
                       struct moment *to, range_fn *fn, void *arg)
{
    const struct wf_cut_piece *p = replay_cut(u, piece);
    const struct wf_rules *r = &u->u.m.rules;

    for (int k = -1; k < u->u.n_slots; k++) {
        for (int i = 0; i < p->n_runs && block <= 0; i++) {
            int64_t at = r->var[p->run[i].var].offset + p->run[i].first;

            fn(arg, (k < 0 ? from->params : from->slot[k]) + at,
               (k < 0 ? to->params : to->slot[k]) + at, p->run[i].n);
        }
        for (int v = 0; v < r->n_vars && p->tables; v++)
            for (int64_t id = 0; replay_is_table(u, v) && id < r->var[v].dim[0]; id++) {
                int64_t width = r->var[v].dim[1], at = id * width;

                if (wf_cut_piece_of(u->u.m.cut, v, id) != piece ||
                    (block >= 0 && wf_cut_block_of(u->u.m.cut, v, id, u->u.m.n_blocks) != block))
                    continue;
                fn(arg, (k < 0 ? from->table[v].w : from->table[v].slot[k]) + at,
                   (k < 0 ? to->table[v].w : to->table[v].slot[k]) + at, width);
            }
    }
}

static void copy_range(void *arg, const float *from, float *to, int64_t n)
{
    (void)arg;
    memcpy(to, from, (size_t)n * sizeof *to);
}

void replay_copy(const struct lease_truth *u, int piece, const struct moment *from,
                 struct moment *to)
{
    each_range(u, piece, -1, from, to, copy_range, NULL);
    if (replay_cut(u, piece)->state)
        memcpy(to->sums, from->sums, sizeof to->sums);
}

static void hash_range(void *arg, const float *from, float *to, int64_t n)
{
    uint64_t *h = arg;

    (void)to;
    *h = wf_hash64(from, (size_t)n * sizeof *from, *h);
}

uint64_t replay_hash(const struct lease_truth *u, int piece, int block, struct moment *m)
{
    uint64_t h = 1;

    each_range(u, piece, block, m, m, hash_range, &h);
    if (replay_cut(u, piece)->state && block <= 0)
        h = wf_hash64(m->sums, (size_t)real_kept(&u->u) * sizeof *m->sums, h);
    return h;
}

/* ---- the truth ------------------------------------------------------------------------------- */

static void new_merges(struct lease_truth *u)
{
    weft_ctx *ctx = u->u.ctx;

    u->rules = u->u.m.rules;
    u->rules.n_sums += u->u.m.n_logs;
    real_must(wf_merge_new(ctx, ctx->pool, &u->rules, 0, NULL, &u->all));
    real_must(wf_contribution_new(ctx, &u->rules, &u->mean));
    for (int p = 0; p < u->u.m.cut->n_pieces; p++) {
        const struct wf_cut_piece *cut = replay_cut(u, p);
        struct wf_piece own[256];
        int n = 0;

        for (int i = 0; i < cut->n_runs; i++) {
            own[n] = cut->run[i];
            own[n++].at = u->rules.var[cut->run[i].var].offset + cut->run[i].first;
        }
        for (int v = 0; v < u->rules.n_vars && cut->tables; v++)
            if (replay_is_table(u, v))
                own[n++] = (struct wf_piece){v, 0, u->rules.var[v].count, 0};
        real_must(wf_merge_new(ctx, ctx->pool, &u->rules, n, own, &u->merge[p]));
    }
}

void *replay_new(weft_ctx *ctx, const struct sim_case *c)
{
    struct lease_truth *u = calloc(1, sizeof *u);
    struct truth *t = &u->u;
    double *marks;
    float init[WF_OPTIM_MAX_SLOTS];

    t->ctx = ctx;
    t->c = c;
    real_model(ctx, c, &t->m);
    t->n_slots = wf_optim_slots(t->m.rules.optim, t->m.rules.attrs, NULL, init);
    rows_new_truth(t);
    new_merges(u);
    new_moment(u, &u->first);
    new_moment(u, &u->scratch);
    for (int64_t i = 0; i < t->m.rules.n_dense; i++) {
        u->first.params[i] = real_initial(i);
        for (int k = 0; k < t->n_slots; k++)
            u->first.slot[k][i] = init[k];
    }
    for (int v = 0; v < t->m.rules.n_vars; v++) {
        size_t bytes = (size_t)t->m.rules.var[v].count * sizeof(float);

        if (!replay_is_table(u, v))
            continue;
        memcpy(u->first.table[v].w, t->table[0][v].w, bytes);
        for (int k = 0; k < t->n_slots; k++)
            memcpy(u->first.table[v].slot[k], t->table[0][v].slot[k], bytes);
    }
    for (int i = 0; i < t->m.rules.n_sums; i++)
        u->first.sums[i] = i <= t->m.rules.n_groups ? 1 : (double)i / 3;
    marks = u->first.sums + u->rules.n_sums;
    marks[WF_PS_CONTROL] = -1;
    marks[WF_PS_GROWTH] = 3;
    marks[WF_PS_SCALE] = 1024;
    return u;
}

void replay_free(void *truth)
{
    struct lease_truth *u = truth;
    struct saved *s;

    for (int h = 0; h < MAX_HISTORIES; h++) {
        for (int i = 0; i < KEPT && u->kept[h]; i++)
            free_moment(&u->kept[h][i]);
        free(u->kept[h]);
    }
    while ((s = u->saved)) {
        u->saved = s->next;
        free_moment(&s->m);
        free(s);
    }
    for (int64_t i = 0; i < u->n_given; i++) {
        wf_contribution_free(u->given[i]->c);
        free(u->given[i]->lent);
        free(u->given[i]);
    }
    wf_free(u->u.ctx, u->given);
    free_moment(&u->first);
    free_moment(&u->scratch);
    wf_contribution_free(u->mean);
    wf_merge_free(u->all);
    for (int p = 0; p < MAX_PIECES; p++)
        wf_merge_free(u->merge[p]);
    rows_free_truth(&u->u);
    wf_cut_free(u->u.m.cut);
    free(u);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

const struct saved *replay_saved(const struct lease_truth *u, int piece, const uint64_t *value)
{
    struct saved *s = u->saved;
    size_t bytes = (size_t)u->u.c->plan.n_blocks * sizeof *value;

    while (s && (s->piece != piece || memcmp(s->value, value, bytes) != 0))
        s = s->next;
    return s;
}

static void save(struct lease_truth *u, int piece, struct moment *m, uint64_t *value)
{
    struct saved *s;

    for (int b = 0; b < u->u.c->plan.n_blocks; b++)
        value[b] = replay_hash(u, piece, b, m);
    if (replay_saved(u, piece, value))
        return;
    s = calloc(1, sizeof *s);
    s->piece = piece;
    memcpy(s->value, value, (size_t)u->u.c->plan.n_blocks * sizeof *value);
    new_moment(u, &s->m);
    replay_copy(u, piece, m, &s->m);
    s->next = u->saved;
    u->saved = s;
}

void replay_keep(struct world *w, uint64_t history, int piece, int64_t version)
{
    struct lease_truth *u = replay_of(w);
    struct moment *m = &u->kept[history % MAX_HISTORIES][version % KEPT];
    uint64_t value[MAX_BLOCKS];

    /* a server that was paused saves again what others have saved and gone beyond */
    if (m->at[piece] != version &&
        replay_saved(u, piece, sim_log(w, history, piece)->value[version]))
        return;
    if (m->at[piece] != version)
        sim_fail(w, "version %lld of piece %d is saved late", (long long)version, piece);
    save(u, piece, m, value);
}

static void add_noise(void *arg, const float *from, float *to, int64_t n)
{
    uint64_t *r = arg;

    for (int64_t i = 0; i < n; i++)
        to[i] = from[i] + (float)(real_pick(r, 1000)) / 4000;
}

/* What another job has left. */
void replay_resume(struct world *w, int64_t t)
{
    struct lease_truth *u = replay_of(w);
    uint64_t r = sim_mix(w->c->seed, 0x4e5);
    double *marks = u->scratch.sums + u->rules.n_sums;

    for (int p = 0; p < w->c->plan.n_pieces; p++) {
        each_range(u, p, -1, &u->first, &u->scratch, add_noise, &r);
        memcpy(u->scratch.sums, u->first.sums, sizeof u->scratch.sums);
        marks[WF_PS_STEP] = (double)(t * w->c->plan.n_shards);
        marks[WF_PS_BATCHES] = (double)(t % 3);
        save(u, p, &u->scratch, w->saved[0][t][p]);
    }
}

void replay_begin(struct world *w, uint64_t history)
{
    struct lease_truth *u = replay_of(w);
    struct moment **kept = &u->kept[history % MAX_HISTORIES];

    if (!*kept) {
        *kept = calloc(KEPT, sizeof **kept);
        for (int i = 0; i < KEPT; i++)
            new_moment(u, &(*kept)[i]);
    }
    for (int p = 0; p < w->c->plan.n_pieces; p++) {
        struct piece_log *log = sim_log(w, history, p);
        struct moment *m = &(*kept)[log->first % KEPT];
        const struct saved *s;

        for (int i = 0; i < KEPT; i++)
            (*kept)[i].at[p] = -1;
        if (log->first == 0)
            save(u, p, &u->first, log->value[0]);
        s = replay_saved(u, p, log->value[log->first]);
        if (!s) {
            sim_fail(w, "piece %d of history %llu was never saved", p, (unsigned long long)history);
            return;
        }
        replay_copy(u, p, &s->m, m);
        m->at[p] = log->first;
    }
}

/* ---- the replay ------------------------------------------------------------------------------ */

/* Only rows of this piece. */
static void choose_rows(const struct lease_truth *u, int piece, struct wf_contribution *c)
{
    for (int i = 0; i < u->rules.n_groups * u->rules.n_vars; i++) {
        int v = i % u->rules.n_vars;
        int64_t width = u->rules.var[v].dim[1], n = 0;
        struct wf_rows *r = &c->rows[i];

        for (int64_t k = 0; k < r->n && replay_is_table(u, v); k++) {
            if (wf_cut_piece_of(u->u.m.cut, v, r->id[k]) != piece)
                continue;
            r->id[n] = r->id[k];
            memmove(r->row + n++ * width, r->row + k * width, (size_t)width * sizeof *r->row);
        }
        r->n = n;
    }
}

static void update(struct lease_truth *u, const struct given *g, int piece, int64_t t,
                   const struct moment *from, struct moment *to)
{
    struct wf_merge *m = u->merge[piece];
    struct wf_step step = {.iteration = t + 1,
                           .has_rate = !isnan(g->rate),
                           .rate = isnan(g->rate) ? 0 : (float)g->rate};
    struct wf_version v = {.params = to->params, .table = to->table};

    memcpy(v.slot, to->slot, sizeof v.slot);
    real_must(wf_contribution_copy(u->mean, g->c));
    if (replay_cut(u, piece)->tables)
        choose_rows(u, piece, u->mean);
    real_must(wf_merge_mean(m, u->mean, from->params));
    real_must(wf_merge_update(m, u->mean, &step, g->scale, &v));
    wf_merge_finish(m, &step, m->n_partials, m->partial, g->scale, &v);
}

/* State is what it was, plus what the shard has changed; logs are those of the lease; totals begin
 * with the first lease after the control record that begins an epoch. */
static void next_sums(const struct lease_truth *u, const struct given *g, int64_t t,
                      const double *before, double *to)
{
    const struct wf_rules *r = &u->u.m.rules;
    double *logs = to + r->n_sums, *marks = logs + u->u.m.n_logs, *totals = marks + WF_PS_TOTALS;
    bool updates = g->mark.kind == WF_PS_UPDATE;

    memcpy(to, before, MAX_SUMS * sizeof *to);
    memset(logs, 0, (size_t)u->u.m.n_logs * sizeof *logs);
    for (int64_t i = 0; i < r->n_sums && g->c && updates; i++) {
        double n = g->c->sums[r->n_groups];

        to[i] = i <= r->n_groups ? g->c->sums[i]
                                 : n * (before[i] / before[r->n_groups] + g->c->sums[i]);
    }
    if (g->c)
        memcpy(logs, g->c->sums + r->n_sums, (size_t)u->u.m.n_logs * sizeof *logs);
    if (g->mark.fresh && (double)g->mark.control > marks[WF_PS_CONTROL]) {
        marks[WF_PS_BATCHES] = marks[WF_PS_SCALE + WF_SCALE_SKIPPED_NOW] = 0;
        memset(totals, 0, N_TOTALS * sizeof *totals);
    }
    marks[WF_PS_CONTROL] = (double)g->mark.control;
    marks[WF_PS_KIND] = g->mark.kind;
    marks[WF_PS_STEP] = (double)(t + updates);
    if (!g->c)
        return;
    if (logs[r->n_groups] > 0) {
        marks[WF_PS_BATCHES]++;
        wf_logs_add(r, &u->u.m.logs, logs, &(struct wf_log_totals){totals, totals + 2, totals + 3});
    }
    wf_scale_next(marks + WF_PS_SCALE, marks[WF_PS_GROWTH], updates);
}

void replay_lease(struct world *w, uint64_t history, int piece, int64_t t, const struct given *g,
                  uint64_t *value)
{
    struct lease_truth *u = replay_of(w);
    struct moment *kept = u->kept[history % MAX_HISTORIES], *from = &kept[t % KEPT];
    struct moment *to = &kept[(t + 1) % KEPT];

    if (!g || g->lease != sim_log(w, history, piece)->lease[t] || from->at[piece] != t) {
        sim_fail(w, "version %lld of piece %d cannot be replayed", (long long)t + 1, piece);
        return;
    }
    replay_copy(u, piece, from, to);
    to->at[piece] = t + 1;
    if (g->mark.kind == WF_PS_UPDATE && !replay_cut(u, piece)->state)
        update(u, g, piece, t, from, to);
    if (replay_cut(u, piece)->state)
        next_sums(u, g, t, from->sums, to->sums);
    for (int b = 0; b < w->c->plan.n_blocks; b++)
        value[b] = replay_hash(u, piece, b, to);
}
