/* servers_leases.c - parameter servers as a strategy, with leases: bounded staleness, asynchronous
 * training. A shard is computed from whatever parameters the servers have, and applied by itself.
 * With updates in the workers a lease is the round of a logical worker, and a step is a round.
 *
 * Kept true: a shard has the samples and the random numbers that it has in synchronous training;
 * the trainer's own vector is what a lease is computed from, and at a boundary what all leases
 * before it gave. */
#include "base/number.h"
#include "train/step/rounds.h"
#include "train/step/servers.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_STALE = 1 << 20 };
#define MAX_LEASES (INT64_MAX / 4)
#define EARLY_BYTES (1 << 20) /* of gradients, from which on parts of them are sent as they come */

static struct wf_servers *servers_of(const weft_trainer *t)
{
    return t->dist->self;
}

weft_status wf_consistency_read(const char *text, bool *leased, int *stale)
{
    int64_t length = text ? (int64_t)strlen(text) : 0, n;

    *stale = -1;
    *leased = text && strcmp(text, "sync") != 0;
    if (!*leased)
        return WEFT_OK;
    if (strcmp(text, "async") == 0)
        return WEFT_OK;
    if (length > 7 && strncmp(text, "stale(", 6) == 0 && text[length - 1] == ')' &&
        wf_parse_i64(text + 6, length - 7, &n) && n >= 1 && n <= MAX_STALE) {
        *stale = (int)n;
        return WEFT_OK;
    }
    return wf_err(WEFT_EINVAL,
                  "consistency '%.40s': it is sync, async, or stale(S) with S from 1 to %d", text,
                  MAX_STALE);
}

int64_t wf_servers_leases(const struct wf_servers *s)
{
    return s->leased ? s->job.plan.n_shards : 1;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* State that is not added up would be that of whichever worker came last. */
static weft_status check_state(const struct wf_servers *s, const weft_work *w)
{
    const weft_model *m = w->t->model;

    for (int i = 0; i < wf_model_n_weights(m) && s->n_workers > 1; i++) {
        const struct wf_weight *weight = wf_model_weight(m, i);

        if (weight->state && weight->dtype != WEFT_F32 && wf_model_next_state(m, i) != i)
            return wf_err(WEFT_ENOSUP,
                          "the state '%s' is %s, which cannot be added up: asynchronous training "
                          "with %d workers is not possible; use consistency \"sync\"",
                          weight->name, weft_dtype_name(weight->dtype), s->n_workers);
    }
    return WEFT_OK;
}

static weft_status check_trainer(const struct wf_servers *s, const weft_work *w)
{
    const weft_trainer *t = w->t;

    if (t->accumulate > 1 && !w->round)
        return wf_err(WEFT_ENOSUP,
                      "%d batches are accumulated for a step, but asynchronous training applies "
                      "each shard by itself: use larger batches, or consistency \"sync\"",
                      (int)t->accumulate);
    if (t->stateful)
        return wf_err(WEFT_ENOSUP,
                      "layer '%s' is stateful: its batches follow each other, which they do not "
                      "in asynchronous training",
                      t->stateful);
    if (s->backup || s->spec.balance_ns)
        return wf_err(WEFT_ENOSUP, "asynchronous training needs neither backup computation nor "
                                   "balance_s: a slow worker gets fewer shards");
    return check_state(s, w);
}

weft_status wf_servers_plan_leases(struct wf_servers *s, weft_work *w)
{
    struct wf_ps_plan *p = &s->job.plan;
    weft_status st = check_trainer(s, w);

    if (st)
        return st;
    p->n_rounds = 0; /* workers take the norms */
    p->n_steps = MAX_LEASES / p->n_shards;
    p->window = WF_LEASE_WINDOW;
    p->stale = s->stale;
    p->inflight = s->stale < 0 ? WF_LEASE_INFLIGHT : 1;
    p->gate_every = s->gate_every;
    p->gate_first = s->gate_first;
    s->job.rules.uncut = wf_ps_rounds(&s->job.rules) == 2;
    s->scale = wf_alloc_n(s->ctx, w->rules.n_vars + 1, sizeof *s->scale);
    s->before = wf_alloc_n(s->ctx, w->rules.n_sums + 1, sizeof *s->before);
    return s->scale && s->before ? WEFT_OK : wf_err_nomem(s->ctx, sizeof *s->scale, "leases");
}

void wf_servers_free_leases(struct wf_servers *s)
{
    wf_free(s->ctx, s->scale);
    wf_free(s->ctx, s->before);
}

bool wf_dist_leased(const weft_trainer *t)
{
    return wf_dist_together(t) && servers_of(t)->leased;
}

/* A round ends with its epoch: the first step of the next one has a number that all workers can
 * tell, wherever they begin. */
weft_status wf_dist_gates(weft_trainer *t, int64_t epoch_steps, int64_t batch, bool each_step,
                          int64_t last)
{
    struct wf_servers *s = servers_of(t);
    int64_t first = weft_trainer_step(t) - batch;

    if (s->worker)
        return wf_err(WEFT_ENOSUP, "asynchronous training is one fit: this trainer has had one");
    s->every = t->rounds ? t->accumulate : 1;
    if (batch < epoch_steps && batch % s->every)
        return wf_err(WEFT_ENOSUP,
                      "update=worker, every=%lld: training resumes after batch %lld of an epoch, "
                      "in the middle of a round; asynchronous rounds resume between two: give the "
                      "`every` of that run, or use consistency \"sync\"",
                      (long long)s->every, (long long)batch);
    s->epoch_steps = epoch_steps;
    s->first_step = (first % epoch_steps + epoch_steps) % epoch_steps;
    s->gate_every = each_step ? 1 : (epoch_steps + s->every - 1) / s->every;
    s->gate_first = s->first_step % s->gate_every;
    s->ends_at = last;
    return WEFT_OK;
}

int64_t wf_servers_step_at(const struct wf_servers *s, int64_t at)
{
    int64_t n = at - s->first_step, rounds;

    if (s->every > 1 && n >= 0) {
        rounds = (s->epoch_steps + s->every - 1) / s->every;
        at = s->first_step + n / rounds * s->epoch_steps + n % rounds * s->every;
    }
    return s->ends_at ? wf_min_i64(at, s->ends_at) : at;
}

int64_t wf_servers_lease_at(const struct wf_servers *s, int64_t step)
{
    int64_t n = step - s->first_step, rounds;

    if (s->every <= 1 || n < 0)
        return step;
    rounds = (s->epoch_steps + s->every - 1) / s->every;
    return s->first_step + n / s->epoch_steps * rounds + n % s->epoch_steps / s->every;
}

int64_t wf_dist_lease_step(const weft_trainer *t, int64_t at)
{
    return wf_servers_step_at(servers_of(t), at);
}

/* ---- boundaries ------------------------------------------------------------------------------ */

/* State, totals and the loss scale, as they have been read. */
static void take_sums(struct wf_servers *s)
{
    weft_work *w = s->w;
    weft_trainer *t = w->t;
    double *sums = wf_ps_worker_sums(s->worker), *marks = sums + wf_servers_marks(s);
    struct wf_contribution c = {.rules = &w->rules, .finite = true, .sums = sums};
    const double *totals = marks + WF_PS_TOTALS;
    int n_means = w->logged.n_means;

    s->own = 0;
    memcpy(t->mean_sum, totals, (size_t)n_means * sizeof *totals);
    t->mean_weight = totals[n_means];
    if (w->logged.n_metrics)
        memcpy(t->sums, totals + n_means + 1, (size_t)w->logged.n_metrics * sizeof *totals);
    memcpy(t->scale.state, marks + WF_PS_SCALE, sizeof t->scale.state);
    wf_work_take_state(w, &c);
}

/* The trainer's own vector was written. */
static void touch(struct wf_servers *s)
{
    struct wf_store *store = s->w->b->fit->store;

    s->watched = true; /* this is training's own change */
    if (store->home)
        wf_store_touch(store, WF_PART_PARAMS);
    s->watched = false;
}

/* *next stays as it is, unless they have not come: WF_PS_REJOIN, WF_PS_RESTORE, WF_PS_NEWS. */
static weft_status take_boundary(struct wf_servers *s, int64_t step, bool exact,
                                 enum wf_ps_next *next)
{
    enum wf_ps_next came;
    weft_status st;

    s->lease = -1;
    st = wf_ps_lease_read(s->worker, step, exact, &came);
    if (!st && came != WF_PS_COMPLETE)
        *next = came;
    if (st || came != WF_PS_COMPLETE)
        return st;
    wf_work_drop(s->w); /* state is as before the last shard, and then what was read */
    take_sums(s);
    if (s->w->round)
        wf_round_load(s->w->round);
    else
        touch(s);
    weft_fn_set_step(s->w->b->fit, wf_servers_step_at(s, step));
    s->version = step;
    return WEFT_OK;
}

weft_status wf_servers_lease_turn(struct wf_servers *s, enum wf_ps_next *next)
{
    int64_t step = s->version;
    weft_status st = wf_ps_lease_turn(s->worker, &step, next);

    if (!st && *next == WF_PS_ASKED)
        st = take_boundary(s, step, true, next);
    return st;
}

/* What training has ended with; if the job has gone on without this worker, it joins again. */
static weft_status take_end(struct wf_servers *s, int64_t step)
{
    enum wf_ps_next next;
    enum wf_turn turn;
    weft_status st;

    do {
        next = WF_PS_COMPLETE;
        st = take_boundary(s, step, false, &next);
        if (!st && next != WF_PS_COMPLETE)
            st = wf_servers_turn_of(s, step, next, &turn);
    } while (!st && next != WF_PS_COMPLETE);
    return st;
}

weft_status wf_dist_lease_begin(weft_trainer *t, int64_t step, bool fresh, bool ends)
{
    struct wf_servers *s = servers_of(t);

    if (s->set_here && !ends)
        return wf_err(WEFT_ENOSUP,
                      "a callback has changed parameters or state: servers do not take them in "
                      "asynchronous training, except at its end");
    s->fresh = fresh;
    if (fresh || step < s->epoch_at)
        s->epoch_at = fresh ? step : -1;
    s->version = step;
    weft_fn_set_step(s->w->b->fit, wf_servers_step_at(s, step));
    if (s->tables)
        wf_served_clear(s->tables); /* the servers have them */
    return ends && !s->set_here ? take_end(s, step) : WEFT_OK;
}

weft_status wf_dist_lease_kept(weft_trainer *t)
{
    if (wf_dist_changed(t))
        return wf_err(WEFT_ENOSUP,
                      "parameters were changed between two steps: servers hold them, and take no "
                      "new values in asynchronous training");
    servers_of(t)->watched = false;
    return WEFT_OK;
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* State travels as what the shard has changed. */
static void note_before(struct wf_servers *s)
{
    int64_t samples = wf_rules_samples(&s->w->rules);
    const double *sums = wf_ps_worker_sums(s->worker);

    for (int64_t i = samples + 1; i < s->w->rules.n_sums; i++)
        s->before[i] = (double)(float)(sums[i] / sums[samples]);
}

/* Totals begin again with the first lease that is applied in an epoch: until then what is read
 * belongs to the previous one. */
static void drop_old_totals(struct wf_servers *s)
{
    const double *marks = wf_ps_worker_sums(s->worker) + wf_servers_marks(s);

    s->before_epoch = marks[WF_PS_CONTROL] < (double)s->epoch_at;
    if (s->before_epoch)
        wf_pass_begin(s->w->t);
}

weft_status wf_dist_lease(weft_trainer *t, enum wf_turn *turn, int64_t *step, int *shard)
{
    struct wf_servers *s = servers_of(t);
    int64_t number = 0;
    enum wf_ps_next next;
    weft_status st = wf_ps_lease_next(s->worker, &next, &number);

    if (st)
        return st;
    *turn = WF_TURN_FOLLOW;
    if (next == WF_PS_COMPUTE) {
        *turn = WF_TURN_GO;
        *step = number / s->job.plan.n_shards;
        *shard = (int)(number % s->job.plan.n_shards);
        s->lease = number;
        take_sums(s);
        drop_old_totals(s);
        if (!s->w->round) {
            note_before(s);
            touch(s);
        }
        weft_fn_set_step(s->w->b->fit, wf_servers_step_at(s, *step));
    } else if (next == WF_PS_COMPLETE) {
        *turn = WF_TURN_DECIDE;
        *step = number;
    } else if (next != WF_PS_NEWS) {
        st = wf_servers_turn_of(s, s->version, next, turn);
    }
    return st;
}

weft_status wf_dist_halt(weft_trainer *t)
{
    return wf_ps_lease_halt(servers_of(t)->worker);
}

int wf_dist_lease_queue(weft_trainer *t, int64_t *lease, int n, int64_t *low)
{
    return wf_ps_lease_queue(servers_of(t)->worker, lease, n, low);
}

int64_t wf_dist_lease_batches(weft_trainer *t)
{
    struct wf_servers *s = servers_of(t);
    double n = wf_ps_lease_sum(s->worker, wf_servers_marks(s) + WF_PS_BATCHES);

    return ((s->before_epoch ? 0 : (int64_t)n) + s->own) / wf_servers_leases(s);
}

weft_status wf_servers_lease_ready(struct wf_servers *s, int var, const struct wf_ps_given *what)
{
    if (s->w->rules.n_dense * (int64_t)sizeof(float) < EARLY_BYTES)
        return WEFT_OK; /* a message more costs more than it saves */
    return wf_ps_lease_ready(s->worker, s->lease, var, s->w->reached, what);
}

/* What clipping by norms makes of the whole gradient: factors by variable. The norms are those of
 * the mean with penalties, at the parameters that it was computed from. */
static weft_status find_scale(struct wf_servers *s, weft_work *w,
                              const struct wf_contribution *given)
{
    struct wf_step step = {.iteration = weft_trainer_step(w->t) + 1,
                           .has_rate = w->b->rate.id != 0,
                           .rate = w->t->rate};
    struct wf_contribution *mean;
    uint64_t mode;
    weft_status st = wf_tree_take(&w->tree, &mean);

    if (st)
        return st;
    mode = wf_fpmode_enter(s->ctx->flush_denormals);
    st = wf_contribution_copy(mean, given);
    if (!st)
        st = wf_merge_mean(w->merge, mean, w->now.params);
    if (!st)
        st = wf_merge_norms(w->merge, mean, &step);
    for (int i = 0; i < w->rules.n_vars; i++)
        s->scale[i] = 1;
    if (!st)
        wf_merge_scales(&w->rules, w->merge->first_block, w->merge->n_partials, w->merge->partial,
                        s->scale);
    wf_fpmode_leave(mode);
    wf_tree_give(&w->tree, mean);
    return st;
}

/* The pass as it was when the lease was begun, and what this one adds: for who watches. */
static void add_logs(struct wf_servers *s, const weft_given *given)
{
    const weft_work *w = s->w;
    const struct wf_rules *r = w->round ? &w->round->rules : &w->rules;
    const double *logs =
        w->round ? given->gradients->sums + w->round->job.n_sums : given->logs->sums;
    int n = w->round ? w->round->n_batches : 1;

    for (int i = 0; i < n; i++, logs += wf_logs_sums(r, &w->logged))
        if (logs[wf_rules_samples(r)] > 0) {
            s->own++;
            wf_logs_add(r, &w->logged, logs,
                        &(struct wf_log_totals){w->t->mean_sum, &w->t->mean_weight, w->t->sums});
        }
}

static void put_sums(struct wf_servers *s, const weft_given *given)
{
    const weft_work *w = s->w;
    int64_t n = w->rules.n_sums, samples = wf_rules_samples(&w->rules);
    const double *from = given->gradients->sums;

    if (w->round) { /* state as the copy has it, and logs */
        memcpy(s->sums, from, (size_t)w->round->rules.n_sums * sizeof *s->sums);
        return;
    }
    memcpy(s->sums, from, (size_t)n * sizeof *s->sums);
    for (int64_t i = samples + 1; i < n; i++)
        s->sums[i] = from[i] / from[samples] - s->before[i];
    memcpy(s->sums + n, given->logs->sums, (size_t)w->log_rules.n_sums * sizeof *s->sums);
}

/* Gives what a shard has; nothing, if it has no samples. */
static weft_status give(struct wf_servers *s, weft_work *w, struct wf_given *g,
                        struct wf_ps_given *what)
{
    bool clips = !w->round && wf_rules_clip(&w->rules) != WF_CLIP_NONE;
    weft_status st = WEFT_OK;

    if (!g->given.gradients) {
        wf_free(s->ctx, g);
        what->mark.kind = WF_PS_SKIPPED;
        return wf_ps_lease_give(s->worker, s->lease, what, NULL);
    }
    if (!g->given.gradients->finite)
        what->mark.kind = WF_PS_SKIPPED;
    else if (clips)
        st = find_scale(s, w, g->given.gradients);
    if (st) {
        weft_work_give(w, &g->given);
        wf_free(s->ctx, g);
        return st;
    }
    put_sums(s, &g->given);
    add_logs(s, &g->given);
    what->dense = g->given.gradients->dense;
    what->sums = s->sums;
    what->rows = g->given.gradients->rows;
    what->given = g;
    return wf_ps_lease_give(s->worker, s->lease, what,
                            clips && what->mark.kind == WF_PS_UPDATE ? s->scale : NULL);
}

/* A shard of a batch, from the trainer's own vector; without deal: what a program gives. */
static weft_status compute_shard(struct wf_servers *s, int shard, const struct wf_deal *deal,
                                 struct wf_ps_given *what, weft_given *out)
{
    struct wf_samples batch = {.n = deal ? deal->n : 1, .deal = deal};
    weft_work *w = s->w;
    weft_status st;

    st = wf_work_batch(w, &batch, 0, 0);
    s->runs = &w->replica[0];
    s->what = what;
    if (!st)
        st = weft_work_compute(w, 0, shard, out);
    s->runs = NULL;
    return st;
}

weft_status wf_dist_lease_skip(weft_trainer *t, int64_t step)
{
    struct wf_servers *s = servers_of(t);
    struct wf_ps_given what = {.rate = s->w->b->rate.id && !s->w->round ? (double)t->rate : NAN,
                               .mark = {.control = wf_ps_worker_taken(s->worker),
                                        .fresh = s->fresh,
                                        .kind = WF_PS_SKIPPED,
                                        .step = step}};

    s->dropped = false;
    return wf_ps_lease_give(s->worker, s->lease, &what, NULL);
}

weft_status wf_dist_lease_compute(weft_trainer *t, int64_t step, int shard,
                                  const struct wf_deal *last, int n_batches)
{
    struct wf_servers *s = servers_of(t);
    weft_work *w = s->w;
    bool models = w->round && t->merging == WF_MERGE_MODELS;
    struct wf_ps_given what = {.rate = w->b->rate.id && !w->round ? (double)t->rate : NAN,
                               .mark = {.control = wf_ps_worker_taken(s->worker),
                                        .fresh = s->fresh,
                                        .kind = models ? WF_PS_MODELS : WF_PS_UPDATE,
                                        .step = step}};
    struct wf_given *g = wf_alloc(s->ctx, sizeof *g);
    weft_status st;

    if (!g)
        return wf_err_nomem(s->ctx, sizeof *g, "contribution");
    g->s = s;
    s->dropped = false;
    st = w->round ? wf_round_lease(w, last, n_batches, shard, &g->given)
                  : compute_shard(s, shard, last, &what, &g->given);
    if (st) {
        bool dropped = s->dropped;

        s->dropped = false;
        wf_free(s->ctx, g);
        /* dropped: the next turn says why */
        return dropped ? wf_ps_lease_cancel(s->worker, s->lease) : st;
    }
    s->computed++;
    return give(s, w, g, &what);
}
