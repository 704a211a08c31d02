/* servers_aside.c - steps of the servers that update nothing: batches of validation data are
 * evaluated, by all workers, on one version; or parameters are replaced, by those of a control
 * record. Who computes which shard, and what happens if a worker dies, is as in any step.
 *
 * Kept true: the trainer's step stays what it is; a shard gives the same whoever computes it. */
#include <math.h>

#include "train/step/servers.h"

static struct wf_servers *servers_of(const weft_trainer *t)
{
    return t->dist->self;
}

static const double *marks_of(const struct wf_servers *s)
{
    return wf_ps_worker_sums(s->worker) + wf_servers_marks(s);
}

/* ---- where the job is ------------------------------------------------------------------------ */

int64_t wf_dist_at(const weft_trainer *t)
{
    return servers_of(t)->version;
}

struct wf_dist_validation wf_dist_validation(const weft_trainer *t)
{
    const struct wf_servers *s = servers_of(t);
    struct wf_dist_validation v = {.n_slots = s->worker ? s->job.logs.n_slots : 0};
    const double *marks;

    if (v.n_slots == 0)
        return v;
    marks = marks_of(s);
    v.begun = marks[WF_PS_KIND] == WF_PS_STILL;
    if (!v.begun)
        return v;
    v.rounds = (int64_t)marks[WF_PS_ROUNDS];
    v.batches = (int64_t)marks[WF_PS_VALIDATED];
    v.totals = marks + WF_PS_TOTALS + wf_logs_totals(&s->job.logs);
    return v;
}

bool wf_dist_was_set(const weft_trainer *t)
{
    const struct wf_servers *s = servers_of(t);

    return s->worker && marks_of(s)[WF_PS_KIND] == WF_PS_SET;
}

int64_t wf_dist_trained(const weft_trainer *t)
{
    return wf_dist_at(t) - wf_dist_validation(t).rounds;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What a shard gives, in s->sums, which are 0; *g: or gradients, too. */
typedef weft_status shard_fn(void *arg, struct wf_servers *s, int shard, struct wf_ps_given *what);

/* A shard, or the reason why it is not needed any more: then the next turn says so. */
static weft_status give(struct wf_servers *s, int shard, shard_fn *fn, void *arg,
                        const struct wf_ps_mark *mark, int *failed)
{
    struct wf_ps_given what = {.rate = NAN, .mark = *mark};
    weft_status st;

    memset(s->sums, 0, (size_t)(s->w->rules.n_sums + s->job.n_logs) * sizeof *s->sums);
    st = fn(arg, s, shard, &what);
    if (st == WEFT_ESTATE && *failed != shard) { /* the version may be gone: others computed it */
        *failed = shard;
        return WEFT_OK;
    }
    return st ? st : wf_ps_worker_give(s->worker, s->version, shard, &what);
}

static weft_status run(weft_trainer *t, struct wf_ps_mark mark, shard_fn *fn, void *arg)
{
    struct wf_servers *s = servers_of(t);
    struct wf_ps_ask ask = {.t = s->version};
    enum wf_ps_next next = WF_PS_COMPUTE;
    int shard, failed = -1;
    weft_status st = wf_ps_worker_turn(s->worker, &ask, &next);

    mark.control = wf_ps_worker_taken(s->worker);
    mark.step = weft_trainer_step(t);
    s->turned = false;
    while (!st) {
        st = wf_servers_next(s, s->version, &next, &shard);
        if (st || next == WF_PS_COMPLETE)
            break;
        st = give(s, shard, fn, arg, &mark, &failed);
    }
    if (st)
        return st;
    st = wf_servers_have(s, s->version + 1);
    return st == WEFT_ESTATE ? wf_servers_give_up(s, s->version - 1, WF_PS_REJOIN) : st;
}

/* ---- validation ------------------------------------------------------------------------------ */

struct evaluation {
    const struct wf_dist_validation *v;
    wf_evaluate_fn *fn;
    void *arg;
};

/* The shard's batches: a run of those of this step, so that their order is that of the data. */
static weft_status evaluate(void *arg, struct wf_servers *s, int shard, struct wf_ps_given *what)
{
    const struct evaluation *e = arg;
    const struct wf_log_rules *l = &s->job.logs;
    int64_t first = e->v->rounds * l->n_slots, shards = s->job.plan.n_shards, n = wf_logs_totals(l);
    int64_t from = shard * l->n_slots / shards, to = (shard + 1) * l->n_slots / shards;
    double *sums = s->sums + s->w->rules.n_sums + l->n_batches * wf_logs_sums(&s->w->rules, l);
    bool end = false;
    weft_status st = WEFT_OK;

    for (int64_t b = from; b < to && !st && !end; b++)
        st = e->fn(e->arg, first + b, sums + b * n, &end);
    what->sums = s->sums;
    return st;
}

weft_status wf_dist_evaluate(weft_trainer *t, wf_evaluate_fn *fn, void *arg)
{
    struct wf_dist_validation v = wf_dist_validation(t);
    struct evaluation e = {&v, fn, arg};

    return run(t, (struct wf_ps_mark){.kind = WF_PS_STILL, .fresh = !v.begun}, evaluate, &e);
}

/* ---- other parameters ------------------------------------------------------------------------ */

bool wf_dist_changed(weft_trainer *t)
{
    return wf_servers_changed(servers_of(t));
}

/* Of parameters that are not trained: servers do not have them. */
static uint32_t frozen_sum(const struct wf_servers *s)
{
    struct wf_store *store = s->w->b->fit->store;
    const weft_model *m = s->w->t->model;
    uint32_t sum = 0;

    for (int i = 0; i < wf_model_n_weights(m); i++) {
        const struct wf_weight *weight = wf_model_weight(m, i);
        const struct wf_segment *seg = weight->state ? NULL : wf_store_find(store, weight->name);
        bool held =
            seg && (seg->remote || seg->table || (seg->flat && s->w->var_of[seg->number] >= 0));

        if (seg && !held)
            sum = wf_crc32c(sum, wf_store_data(store, seg), wf_type_bytes(&seg->type));
    }
    return sum;
}

void wf_servers_note_frozen(struct wf_servers *s)
{
    s->frozen = frozen_sum(s);
}

weft_status wf_dist_put_values(weft_trainer *t, struct wf_buf *out)
{
    struct wf_servers *s = servers_of(t);
    const struct wf_store *store = s->w->b->fit->store;
    weft_status st = wf_store_pull(s->w->b->fit->store, WF_PART_PARAMS | WF_PART_STATE);

    if (!st && frozen_sum(s) != s->frozen)
        st = wf_err(WEFT_ENOSUP,
                    "a callback has changed parameters that are not trained: servers do not hold "
                    "them, so that other workers cannot get them");
    if (st)
        return st;
    wf_put_bytes(out, (const char *)s->w->now.params, s->w->rules.n_dense * (int64_t)sizeof(float));
    wf_put_bytes(out, store->state, store->n_state);
    return out->st;
}

/* The first shard gives all: parameters as gradients of the first group, and the state. */
static weft_status give_values(void *arg, struct wf_servers *s, int shard, struct wf_ps_given *what)
{
    const struct wf_rules *r = &s->w->rules;
    double *totals = s->start + wf_servers_marks(s) + WF_PS_TOTALS; /* not needed here */
    struct wf_given *g;
    weft_status st;

    (void)arg;
    if (shard > 0)
        return WEFT_OK;
    st = wf_servers_room(s, &g);
    if (st)
        return st;
    memset(g->given.gradients->dense, 0, (size_t)(r->n_groups * r->n_dense) * sizeof(float));
    memcpy(g->given.gradients->dense, s->w->now.params, (size_t)r->n_dense * sizeof(float));
    wf_work_put_sums(s->w, s->sums, totals);
    what->dense = g->given.gradients->dense;
    what->rows = g->given.gradients->rows;
    what->sums = s->sums;
    what->given = g;
    return WEFT_OK;
}

weft_status wf_dist_set(weft_trainer *t, const char *p, int64_t n, bool fresh)
{
    struct wf_servers *s = servers_of(t);
    struct wf_store *store = s->w->b->fit->store;
    struct wf_reader in = {p, p + n, WEFT_OK};
    int64_t n_params = 0, n_state = 0;
    const char *params = wf_get_bytes(&in, &n_params), *state = wf_get_bytes(&in, &n_state);
    weft_status st = in.st;

    if (!st &&
        (n_params != s->w->rules.n_dense * (int64_t)sizeof(float) || n_state != store->n_state))
        st = wf_err(WEFT_EPEER, "%lld bytes of parameters and %lld of state; %lld and %lld here",
                    (long long)n_params, (long long)n_state,
                    (long long)s->w->rules.n_dense * (long long)sizeof(float),
                    (long long)store->n_state);
    if (!st)
        st = wf_work_open(s->w, WF_PART_PARAMS | WF_PART_STATE);
    if (st)
        return st;
    s->elsewhere = false;
    memcpy(s->w->now.params, params, (size_t)n_params);
    if (n_state)
        memcpy(store->state, state, (size_t)n_state);
    st = run(t, (struct wf_ps_mark){.kind = WF_PS_SET, .fresh = fresh}, give_values, NULL);
    s->watched = false;
    return st;
}
