/* servers.c - parameter servers as a strategy: this process is a worker, which computes the shards
 * that are its own and pushes what they give; servers add, update, and give the next version. */
#include "train/step/servers.h"
#include "train/step/rounds.h"

#include <math.h>

enum { MAX_SLOTS = 64, SLOT_NUMBERS = 1 << 14 }; /* of batches of validation data, in a step */

static void release(void *arg, void *p)
{
    struct wf_servers *s = arg;
    struct wf_given *g = p;

    if (s->slots) /* before anybody writes to it */
        wf_ps_slots_take_back(s->slots, g->given.gradients->dense);
    weft_work_give(s->w, &g->given);
    wf_free(s->ctx, g);
}

weft_status wf_servers_room(struct wf_servers *s, struct wf_given **out)
{
    struct wf_given *g = wf_alloc(s->ctx, sizeof *g);
    weft_status st;

    if (!g)
        return wf_err_nomem(s->ctx, sizeof *g, "contribution");
    g->s = s;
    st = wf_work_room(s->w, NULL, &g->given);
    if (st) {
        wf_free(s->ctx, g);
        return st;
    }
    *out = g;
    return WEFT_OK;
}

/* ---- parameters that somebody changes between steps ------------------------------------------ */

float *wf_servers_vector(const struct wf_servers *s)
{
    return s->w->round ? s->w->round->base : s->w->now.params;
}

weft_status wf_servers_params(struct wf_servers *s)
{
    weft_status st;

    if (!s->elsewhere)
        return WEFT_OK;
    st = wf_ps_worker_read(s->worker, s->version, wf_servers_vector(s));
    s->elsewhere = st != WEFT_OK;
    if (!st && s->w->round)
        wf_round_load(s->w->round);
    return st;
}

/* The trainer's own vector is read. */
static weft_status bring_params(void *arg, unsigned parts)
{
    struct wf_servers *s = arg;
    unsigned held = WF_PART_PARAMS;

    if (s->w->round)
        held |= WF_PART_SLOTS | WF_PART_TABLES;
    return parts & held ? wf_servers_params(s) : WEFT_OK;
}

static uint32_t checksum(struct wf_servers *s)
{
    const struct wf_store *store = s->w->b->fit->store;
    uint32_t sum;

    wf_servers_params(s);
    sum = wf_crc32c(0, s->w->now.params, s->w->rules.n_dense * (int64_t)sizeof(float));
    return wf_crc32c(sum, store->state, store->n_state);
}

/* Before a caller may write: afterwards the values are compared. State is written by steps, too: it
 * is watched while callbacks are called. */
static void watch(void *arg, unsigned parts)
{
    struct wf_servers *s = arg;
    unsigned watched = wf_calling == s->w->t ? WF_PART_PARAMS | WF_PART_STATE : WF_PART_PARAMS;

    if (s->watched || !(parts & watched) || (s->w->round && s->w->round->inside))
        return;
    s->watched = true;
    s->was = checksum(s);
}

bool wf_servers_changed(struct wf_servers *s)
{
    return s->watched && checksum(s) != s->was;
}

static weft_status check_unchanged(struct wf_servers *s)
{
    if (wf_servers_changed(s))
        return wf_err(WEFT_ENOSUP,
                      "parameters were changed between two steps: servers hold them, and take new "
                      "values only from callbacks of fit, on the worker that decides");
    s->watched = false;
    return WEFT_OK;
}

/* ---- the first step -------------------------------------------------------------------------- */

int64_t wf_servers_marks(const struct wf_servers *s)
{
    return s->job.rules.n_sums + s->job.n_logs;
}

/* How many batches of validation data a step evaluates: their sums are small, or none. */
static int slots_of(const weft_work *w)
{
    int64_t n = SLOT_NUMBERS / wf_logs_totals(&w->logged);

    return !w->t->validates || w->t->dist->n_replicas < 2 || n < 2 ? 0
                                                                   : (int)wf_min_i64(n, MAX_SLOTS);
}

static weft_status set_job(struct wf_servers *s, weft_work *w)
{
    struct wf_ps_job *job = &s->job;
    struct wf_cut *cut;
    weft_status st;

    st = wf_servers_place(w, wf_spec_count(&s->spec, WF_ROLE_SERVER), &s->place);
    if (w->round)
        wf_round_place(w->round);
    job->rules = w->round ? w->round->job : w->rules;
    job->cut_bytes = s->piece_bytes;
    job->logs = w->logged;
    job->logs.n_slots = s->leased ? 0 : slots_of(w);
    job->n_logs = wf_logs_step(&job->rules, &job->logs);
    job->plan = (struct wf_ps_plan){.n_shards = w->t->shards * (w->round ? 1 : w->t->accumulate),
                                    .n_rounds = wf_ps_rounds(&job->rules),
                                    .n_blocks = wf_cut_blocks(&job->rules),
                                    .retry_ns = s->spec.retry_ns,
                                    .n_steps = INT64_MAX / 4};
    if (!st && s->leased)
        st = wf_servers_plan_leases(s, w);
    if (!st)
        st = wf_cut_new(s->ctx, &job->rules, job->cut_bytes, &cut);
    if (st)
        return st;
    job->plan.n_pieces = cut->n_pieces;
    wf_cut_free(cut);
    s->sums = wf_alloc_n(s->ctx, job->rules.n_sums + job->n_logs + 1, sizeof *s->sums);
    s->start =
        wf_alloc_n(s->ctx, wf_servers_marks(s) + WF_PS_TOTALS + 2 * wf_logs_totals(&job->logs) + 1,
                   sizeof *s->start);
    return s->sums && s->start ? WEFT_OK : wf_err_nomem(s->ctx, sizeof *s->sums, "contribution");
}

void wf_servers_put_start(struct wf_servers *s, const weft_work *w)
{
    double *marks = s->start + wf_servers_marks(s);

    wf_work_put_sums(w, s->start, marks + WF_PS_TOTALS);
    marks[WF_PS_BATCHES] = (double)(w->t->began_at * wf_servers_leases(s));
    marks[WF_PS_CONTROL] = -1;
    marks[WF_PS_STEP] = (double)weft_trainer_step(w->t);
    marks[WF_PS_GROWTH] = w->b->scaled ? (double)w->t->scale.growth : 0;
    memcpy(marks + WF_PS_SCALE, w->t->scale.state, sizeof w->t->scale.state);
}

/* Where a function reads the parameters of version t. */
static weft_status bind_version(struct wf_servers *s, int64_t t, struct wf_replica *r)
{
    const float **at = s->at[t & 1];
    bool changed = false;

    for (int v = 0; v < s->w->rules.n_vars; v++) {
        const float *x;

        if (s->w->rules.var[v].table)
            continue;
        x = wf_ps_worker_var(s->worker, t, v);
        if (!x)
            return wf_err_nomem(s->ctx, 0, "parameters");
        changed |= at[s->w->segment[v]] != x;
        at[s->w->segment[v]] = x;
    }
    r->at = at;
    r->binding += changed;
    return WEFT_OK;
}

/* Segments that are not trained stay where they are. */
static weft_status list_segments(struct wf_servers *s, struct wf_store *store)
{
    for (int i = 0; i < 2; i++) {
        s->at[i] = wf_alloc_n(s->ctx, store->n_flat + 1, sizeof *s->at[i]);
        if (!s->at[i])
            return wf_err_nomem(s->ctx, sizeof *s->at[i], "parameters");
        for (int32_t k = 0; k < store->n_flat; k++)
            if (store->seg[store->by_number[k]].flat)
                s->at[i][k] = store->params + store->seg[store->by_number[k]].offset;
    }
    return WEFT_OK;
}

/* Whether a server may be on this host. */
static bool may_map(const struct wf_servers *s)
{
    for (int i = 0; i < s->spec.n_tasks; i++)
        if (s->task[i].role == WF_ROLE_SERVER && (strncmp(s->task[i].address, "shm:", 4) == 0 ||
                                                  strncmp(s->task[i].address, "inproc:", 7) == 0))
            return true;
    return false;
}

/* That contributions are taken from. */
static struct wf_tree *tree_of(const struct wf_servers *s)
{
    return s->w->round ? &s->w->round->tree : &s->w->tree;
}

/* Memory for contributions, if a server may be on this host. */
static weft_status open_slots(struct wf_servers *s)
{
    weft_status st = may_map(s) ? wf_ps_slots_new(s->ctx, &s->job.rules, &s->slots) : WEFT_OK;

    tree_of(s)->memory = s->slots ? wf_ps_slots_memory(s->slots) : NULL;
    return st;
}

/* What this incarnation has handed over stays as it is: a new one has other memory. */
weft_status wf_servers_renew(struct wf_servers *s)
{
    if (!s->slots)
        return WEFT_OK;
    wf_tree_trim(tree_of(s));
    wf_ps_slots_chain(s->slots, s->old);
    s->old = s->slots;
    s->slots = NULL;
    return open_slots(s);
}

/* Room for rows that are not initial ones: those of a checkpoint. */
static weft_status open_tables(struct wf_servers *s, weft_work *w)
{
    if (s->lost)
        return wf_err(WEFT_ESTATE,
                      "parameter servers: the model was compiled again after its tables "
                      "were read from a checkpoint; read it again");
    if (s->tables_of == w)
        return WEFT_OK;
    s->tables_of = w;
    return w->round ? WEFT_OK : wf_served_new(s->ctx, &w->rules, s->piece_bytes, &s->tables);
}

static void is_asked(void *arg, enum wf_ps_asked what)
{
    const struct wf_servers *s = arg;

    if (s->asked)
        s->asked(s->call_arg, (weft_ps_asked)what);
}

static bool is_interrupted(void *arg)
{
    return wf_interrupted(((const struct wf_servers *)arg)->w->t);
}

weft_status wf_servers_begin(struct wf_servers *s, weft_work *w, int64_t t)
{
    struct wf_ps_worker_opts o = {.job = &s->job,
                                  .print = s->print,
                                  .backup = s->backup,
                                  .cache_bytes = (s->row_cache_bytes + 1) / 2, /* generations */
                                  .asked = is_asked,
                                  .interrupted = is_interrupted,
                                  .asked_arg = s,
                                  .release = release,
                                  .arg = s};
    struct wf_store *store = w->b->fit->store;
    weft_status st;

    if (s->ended || (s->worker && s->w != w))
        return wf_err(WEFT_ESTATE, "parameter servers: they train another model, or the model was "
                                   "compiled again");
    if (s->worker)
        return WEFT_OK;
    s->w = w;
    o.start = t = wf_servers_lease_at(s, t);
    st = weft_work_replicas(w, 1);
    if (!st)
        st = open_tables(s, w);
    if (!st)
        st = set_job(s, w);
    if (!st)
        st = wf_work_open(w, WF_PART_PARAMS | WF_PART_SLOTS | WF_PART_STATE);
    if (!st && w->round)
        st = wf_round_save(w->round);
    if (!st)
        st = list_segments(s, store);
    if (!st)
        st = open_slots(s);
    if (st)
        return st;
    o.slots = s->slots;
    o.params = wf_servers_vector(s);
    o.n_slots = wf_optim_slots(s->job.rules.optim, s->job.rules.attrs, NULL,
                               (float[WF_OPTIM_MAX_SLOTS]){0});
    memcpy(o.slot, w->now.slot, sizeof o.slot);
    wf_servers_put_start(s, w);
    o.sums = s->start;
    o.tables = s->tables ? s->tables->tables : NULL;
    s->opts = o;
    st = wf_ps_worker_start(s->ctx, &s->spec, s->self, &o, &s->worker);
    if (st)
        return st;
    wf_servers_note_frozen(s);
    store->watch = watch;
    store->bring = bring_params;
    store->watch_arg = s;
    s->version = t;
    return WEFT_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Version t is complete. The trainer's own vector gets it when it is read; at once if it is copied
 * from there, or if others may continue without this worker. */
weft_status wf_servers_have(struct wf_servers *s, int64_t t)
{
    struct wf_store *store = s->w->b->fit->store;
    weft_status st = WEFT_OK;

    s->version = t;
    s->elsewhere = true;
    if (store->home || !wf_ps_worker_owns(s->worker))
        st = wf_servers_params(s);
    if (st || !store->home)
        return st;
    s->watched = true; /* this is the step's own change */
    wf_store_touch(store, WF_PART_PARAMS);
    s->watched = false;
    return WEFT_OK;
}

/* A shard of a batch of this step before the current one: of a worker that died. */
static weft_status compute_earlier(weft_work *w, int shard, weft_given *out)
{
    int64_t back = (w->first - shard + w->t->shards - 1) / w->t->shards;
    struct wf_samples now = w->batch;
    struct wf_deal earlier;
    weft_status st;

    if (now.feeds)
        return wf_err(WEFT_ENOSUP,
                      "a worker died, and shard %d of an earlier batch of this step is to be "
                      "computed again: with batches by hand this is not possible",
                      shard);
    st = wf_deal_earlier(now.deal, back, &earlier);
    if (st)
        return st;
    w->batch.deal = &earlier;
    w->batch.n = earlier.n;
    w->first -= back * w->t->shards;
    w->key -= back * w->t->shards;
    st = weft_work_compute(w, 0, shard, out);
    w->batch = now;
    w->first += back * w->t->shards;
    w->key += back * w->t->shards;
    return st;
}

/* A shard from version t, wherever that is. */
static weft_status compute_at(struct wf_servers *s, weft_work *w, int64_t t, int shard,
                              struct wf_ps_given *what, weft_given *out)
{
    struct wf_replica *r = &w->replica[0];
    weft_status st;

    if (w->round) /* on a copy */
        return weft_work_compute(w, 0, shard, out);
    st = w->b->fit->store->home ? WEFT_OK : bind_version(s, t, r);
    if (st)
        return st;
    s->runs = r;
    s->what = what;
    st = shard < w->first ? compute_earlier(w, shard, out) : weft_work_compute(w, 0, shard, out);
    s->runs = NULL;
    r->at = NULL;
    return st;
}

/* What the contributions to a step say of it. */
static void put_mark(const struct wf_servers *s, const weft_work *w, struct wf_ps_given *what)
{
    const struct wf_round *r = w->round;

    what->rate = w->b->rate.id && !r ? (double)w->t->rate : NAN;
    what->mark = (struct wf_ps_mark){.control = wf_ps_worker_taken(s->worker),
                                     .fresh = w->t->mean_weight == 0,
                                     .step = weft_trainer_step(w->t)};
    if (!r)
        return;
    what->mark.kind = w->t->merging == WF_MERGE_MODELS ? WF_PS_MODELS : WF_PS_UPDATE;
    what->mark.step += r->n_batches - 1;
}

/* Sums of a contribution, then its logs. */
static void put_sums(struct wf_servers *s, const weft_work *w, int shard, const weft_given *given)
{
    int64_t n = s->job.rules.n_sums, batch = shard / w->t->shards;

    memset(s->sums, 0, (size_t)(n + s->job.n_logs) * sizeof *s->sums);
    if (w->round)
        n = w->round->rules.n_sums;
    memcpy(s->sums, given->gradients->sums, (size_t)n * sizeof *s->sums);
    if (!w->round)
        memcpy(s->sums + n + batch * w->log_rules.n_sums, given->logs->sums,
               (size_t)w->log_rules.n_sums * sizeof *s->sums);
}

static weft_status compute_one(struct wf_servers *s, weft_work *w, int64_t t, int shard)
{
    struct wf_given *g = wf_alloc(s->ctx, sizeof *g);
    struct wf_ps_given what = {.dense = NULL};
    weft_status st;

    put_mark(s, w, &what);
    if (!w->round && shard >= w->first + w->t->shards) { /* the last step may have fewer batches */
        wf_free(s->ctx, g);
        return wf_ps_worker_give(s->worker, t, shard, &what);
    }
    if (!g)
        return wf_err_nomem(s->ctx, sizeof *g, "contribution");
    g->s = s;
    s->dropped = false;
    st = compute_at(s, w, t, shard, &what, &g->given);
    if (st) {
        /* A program read parameters too late: all shards of this step are there. */
        bool late = st == WEFT_ESTATE &&
                    (w->round || (w->by_hand.give && wf_ps_worker_version(s->worker) > t)),
             dropped = s->dropped || late;

        s->dropped = false;
        if (!dropped)
            wf_ps_worker_failed(s->worker, t, shard, st);
        wf_free(s->ctx, g);
        return dropped ? WEFT_OK : st;
    }
    s->computed++;
    if (!g->given.gradients) {
        wf_free(s->ctx, g);
        return wf_ps_worker_give(s->worker, t, shard, &what);
    }
    if (!g->given.gradients->finite)
        what.mark.kind = WF_PS_SKIPPED;
    put_sums(s, w, shard, &g->given);
    what.dense = g->given.gradients->dense;
    what.sums = s->sums;
    what.rows = g->given.gradients->rows;
    what.given = g;
    return wf_ps_worker_give(s->worker, t, shard, &what);
}

weft_status wf_servers_ready(void *self, const weft_range *range, int64_t t, int64_t number,
                             const float *gradients, void *event)
{
    struct wf_servers *s = self;
    weft_work *w = s->w;
    struct wf_ps_given what;
    double sums[16];
    int var = 0;

    (void)t;
    if (w->b->scaled) /* whether all of it is finite is known at the end */
        return WEFT_OK;
    if (event || !s->runs || w->rules.n_groups + 1 > WF_COUNT(sums) ||
        !wf_work_denominators(w, s->runs, sums))
        return WEFT_OK; /* it is sent with the others */
    while (var < w->rules.n_vars && w->rules.var[var].offset != range->offset)
        var++;
    if (var == w->rules.n_vars)
        return WEFT_OK;
    what = *s->what;
    what.dense = gradients;
    what.sums = sums;
    if (s->leased)
        return wf_servers_lease_ready(s, var, &what);
    return wf_ps_worker_ready(s->worker, s->version, (int)number, var, w->reached, &what);
}

weft_status wf_servers_compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    struct wf_servers *s = self;
    weft_status st =
        s->leased ? wf_err(WEFT_ENOSUP, "asynchronous training needs fit, or parameter calls: "
                                        "steps by hand need consistency 'sync'")
                  : wf_servers_begin(s, w, t);

    if (!st)
        st = check_unchanged(s);
    t = s->version;
    if (!st && first == 0)
        st = wf_servers_begin_alone(s, t);
    while (!st && wf_ps_worker_left(s->worker, t, (int)first, (int)n)) {
        enum wf_ps_next next;
        int shard;

        st = wf_servers_next(s, t, &next, &shard);
        if (st || next == WF_PS_COMPLETE || shard >= first + n)
            break;
        st = compute_one(s, w, t, shard);
    }
    return st;
}

/* While numerics are trapped: the first parameter of a version that is not finite. Every worker
 * looks at all of them, so all of them say the same. */
static weft_status check_finite(struct wf_servers *s, int64_t t)
{
    const struct wf_rules *r = &s->job.rules;

    for (int v = 0; v < r->n_vars; v++) {
        const float *x = r->var[v].table ? NULL : wf_ps_worker_var(s->worker, t, v);

        for (int64_t i = 0; x && i < r->var[v].count; i++)
            if (!(x[i] - x[i] == 0))
                return wf_err(WEFT_ENUMERIC, "after the update, '%s' is %g at element %lld",
                              r->var[v].name, (double)x[i], (long long)i);
    }
    return WEFT_OK;
}

weft_status wf_servers_apply(void *self, weft_work *w, int64_t t)
{
    struct wf_servers *s = self;
    enum wf_ps_next next = WF_PS_COMPUTE;
    double *sums, *marks;
    weft_status st = WEFT_OK;

    t = s->version;
    while (!st) {
        int shard;

        st = wf_servers_next(s, t, &next, &shard);
        if (st || next == WF_PS_COMPLETE)
            break;
        st = compute_one(s, w, t, shard);
    }
    if (st)
        return st;
    wf_served_clear(s->tables); /* the servers have them */
    st = w->t->trap ? check_finite(s, t + 1) : WEFT_OK;
    if (st) {
        wf_servers_params(s); /* as they were before the step */
        return st;
    }
    st = wf_servers_have(s, t + 1);
    if (st) /* servers are already too far ahead */
        return st == WEFT_ESTATE ? wf_servers_give_up(s, t, WF_PS_REJOIN) : st;
    sums = wf_ps_worker_sums(s->worker);
    marks = sums + wf_servers_marks(s);
    if (w->round)
        return wf_round_took(w->round, sums, marks + WF_PS_TOTALS, (int64_t)marks[WF_PS_STEP]);
    return wf_work_took(w, sums, marks + WF_PS_TOTALS, marks[WF_PS_KIND] == WF_PS_UPDATE);
}

weft_status wf_servers_bring(void *self, weft_work *w, int64_t t)
{
    struct wf_servers *s = self;

    if (!s->worker || s->w != w)
        return WEFT_OK;
    if (s->tables)
        s->tables->filled = true;
    (void)t;
    if (w->round)
        return wf_servers_params(s);
    return wf_ps_worker_slots(s->worker, s->version * wf_servers_leases(s));
}

/* ---- tables ---------------------------------------------------------------------------------- */

weft_status wf_servers_need_rows(void *self, const weft_table *table, int64_t t, int64_t number,
                                 int64_t n, const int64_t *ids, float *rows)
{
    struct wf_servers *s = self;
    int var = s->tables_of ? wf_served_var(&s->tables_of->rules, table->name) : -1;
    bool all = true;
    weft_status st;

    if (!s->worker || var < 0)
        return wf_served_rows(s->tables, var, table, n, ids, rows);
    st = wf_ps_worker_rows(s->worker, s->version, var, n, ids, rows, &all);
    /* What a model computes from missing rows does not count; a program is told instead. */
    if (!st && !all && (number < 0 || s->w->by_hand.give))
        st = wf_err(WEFT_ESTATE,
                    "the parameters of step %lld are gone: the job has continued "
                    "without this worker",
                    (long long)t);
    s->dropped = st == WEFT_ESTATE && number >= 0; /* the shard; or the worker rejoins */
    return st;
}

weft_status wf_servers_want_rows(void *self, const weft_table *table, int64_t t, int64_t number,
                                 int64_t n, const int64_t *ids)
{
    struct wf_servers *s = self;
    int var = s->tables_of ? wf_served_var(&s->tables_of->rules, table->name) : -1;

    (void)number;
    (void)t;
    return s->worker && var >= 0 ? wf_ps_worker_want(s->worker, s->version, var, n, ids) : WEFT_OK;
}

weft_status wf_servers_each_row(void *self, const weft_table *table,
                                void (*fn)(void *arg, int64_t id, const float *row), void *arg)
{
    struct wf_servers *s = self;
    int var = s->tables_of ? wf_served_var(&s->tables_of->rules, table->name) : -1;

    if (s->tables && var >= 0)
        wf_served_each(s->tables, var, fn, arg);
    return WEFT_OK;
}

weft_status wf_servers_set_rows(void *self, weft_work *w, const weft_table *table, int64_t t,
                                int64_t n, const int64_t *ids, const float *rows,
                                const float *const *slot)
{
    struct wf_servers *s = self;
    int var = wf_served_var(&w->rules, table->name);
    weft_status st;

    if (s->worker && !s->goes_back)
        return wf_err(WEFT_ENOSUP,
                      "table '%s': servers hold it, and do not take new values while they train",
                      table->name);
    st = open_tables(s, w);
    if (st || var < 0)
        return st;
    return wf_served_set(s->tables, var, t, n, ids, rows, slot);
}

void wf_dist_drop_rows(weft_trainer *t)
{
    struct wf_servers *s = t->dist->self;

    if (wf_dist_together(t) && !s->worker)
        wf_served_clear(s->tables);
}

weft_status wf_dist_set_kept(weft_trainer *t, weft_work *w, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, const float *rows)
{
    struct wf_servers *s = t->dist->self;
    int var = wf_served_var(&w->rules, seg->name);
    weft_status st = open_tables(s, w);

    if (st || var < 0)
        return st;
    return wf_served_set_kept(s->tables, var, weft_trainer_step(t), n, ids, rows);
}

void wf_servers_leave(void *self, weft_work *w)
{
    struct wf_servers *s = self;

    if (s->tables_of == w && s->w != w) {
        s->lost = s->tables != NULL;
        wf_served_free(s->tables);
        s->tables = NULL;
        s->tables_of = NULL;
    }
    if (s->w != w)
        return;
    if (s->worker)
        wf_servers_params(s); /* of the last step that is complete */
    s->elsewhere = false;
    wf_servers_drop_origin(s);
    wf_servers_drop_set(s);
    wf_ps_worker_stop(s->worker);
    s->worker = NULL;
    s->w->b->fit->store->watch = NULL;
    s->w->b->fit->store->bring = NULL;
    s->ended = true;
    s->w = s->tables_of = NULL;
    wf_served_free(s->tables);
    s->tables = NULL;
}
