/* servers_back.c - a job of parameter servers goes back: servers have died with the only copy of
 * parameters. The trainer of each worker gets an earlier version, and servers get it from workers,
 * as when a job begins. */
#include "train/step/rounds.h"
#include "train/step/servers.h"

/* The version that the trainer began with. */
struct wf_servers_origin {
    int64_t step;
    float *params, *slot[WF_OPTIM_MAX_SLOTS]; /* slot NULL: zeros */
    char *state;
    double scale[WF_SCALE_STATE];
};

static struct wf_servers *servers_of(const weft_trainer *t)
{
    return t->dist->self;
}

void wf_servers_drop_origin(struct wf_servers *s)
{
    struct wf_servers_origin *o = s->origin;

    if (!o)
        return;
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        wf_free(s->ctx, o->slot[k]);
    wf_free(s->ctx, o->params);
    wf_free(s->ctx, o->state);
    wf_free(s->ctx, o);
    s->origin = NULL;
}

static bool is_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

static void *copy(weft_ctx *ctx, const void *from, int64_t bytes)
{
    void *to = wf_alloc(ctx, (size_t)bytes + 1);

    if (to && bytes)
        memcpy(to, from, (size_t)bytes);
    return to;
}

weft_status wf_servers_keep_origin(struct wf_servers *s)
{
    const struct wf_store *store = s->w->b->fit->store;
    int64_t n = s->job.rules.n_dense, bytes = n * (int64_t)sizeof(float);
    struct wf_servers_origin *o;
    bool ok;

    if (s->tables && s->tables->filled) /* rows of the user's own: they are not kept */
        return WEFT_OK;
    o = s->origin = wf_alloc(s->ctx, sizeof *o);
    if (!o)
        return wf_err_nomem(s->ctx, sizeof *o, "parameters");
    o->step = wf_servers_step_at(s, s->version);
    o->params = copy(s->ctx, wf_servers_vector(s), bytes);
    o->state = copy(s->ctx, store->state, store->n_state);
    ok = o->params && o->state;
    for (int k = 0; k < s->opts.n_slots && ok; k++)
        if (!is_zero(s->w->now.slot[k], n)) {
            o->slot[k] = copy(s->ctx, s->w->now.slot[k], bytes);
            ok = o->slot[k] != NULL;
        }
    memcpy(o->scale, s->w->t->scale.state, sizeof o->scale);
    if (ok)
        return WEFT_OK;
    wf_servers_drop_origin(s);
    return wf_err_nomem(s->ctx, (size_t)bytes, "parameters");
}

bool wf_dist_goes_back(weft_trainer *t, int64_t *step)
{
    const struct wf_servers *s = servers_of(t);

    if (!s->worker || !wf_ps_worker_restores(s->worker, step))
        return false;
    *step = wf_servers_step_at(s, *step);
    return true;
}

void wf_dist_back_begin(weft_trainer *t)
{
    struct wf_servers *s = servers_of(t);

    wf_work_drop(s->w);
    wf_servers_drop_set(s);
    t->pending = t->drawn = 0;
    s->elsewhere = s->turned = s->dropped = false;
    s->goes_back = true;
    wf_served_clear(s->tables);
}

bool wf_dist_back_origin(weft_trainer *t, int64_t step)
{
    struct wf_servers *s = servers_of(t);
    const struct wf_servers_origin *o = s->origin;
    struct wf_store *store = s->w->b->fit->store;
    size_t bytes = (size_t)s->job.rules.n_dense * sizeof(float);

    if (!o || o->step != step || wf_store_pull(store, WF_PART_ALL) ||
        wf_work_open(s->w, WF_PART_PARAMS | WF_PART_SLOTS | WF_PART_STATE))
        return false;
    wf_store_touch(store, WF_PART_ALL);
    memcpy(wf_servers_vector(s), o->params, bytes);
    if (s->w->round)
        wf_round_load(s->w->round);
    for (int k = 0; k < s->opts.n_slots; k++)
        if (o->slot[k])
            memcpy(s->w->now.slot[k], o->slot[k], bytes);
        else
            memset(s->w->now.slot[k], 0, bytes);
    if (store->n_state)
        memcpy(store->state, o->state, (size_t)store->n_state);
    memcpy(t->scale.state, o->scale, sizeof o->scale);
    weft_fn_set_step(s->w->b->fit, step);
    return true;
}

weft_status wf_dist_back_end(weft_trainer *t, int64_t step, bool *again)
{
    struct wf_servers *s = servers_of(t);
    weft_status st = wf_work_open(s->w, WF_PART_PARAMS | WF_PART_SLOTS | WF_PART_STATE);

    *again = false;
    step = wf_servers_lease_at(s, step);
    if (!st && s->w->round)
        st = wf_round_save(s->w->round);
    if (st)
        return st;
    wf_servers_put_start(s, s->w);
    wf_servers_note_frozen(s);
    s->goes_back = s->watched = false;
    s->version = step;
    return wf_ps_worker_restored(s->worker, step, again);
}

void wf_dist_saved(weft_trainer *t, int64_t step)
{
    struct wf_servers *s = servers_of(t);

    if (s->worker)
        wf_ps_worker_saved(s->worker, wf_servers_lease_at(s, step));
}

int64_t wf_dist_kept(const weft_trainer *t)
{
    const struct wf_servers *s = servers_of(t);

    int64_t at = s->worker ? wf_ps_worker_kept(s->worker) : -1;

    return at < 0 ? at : wf_servers_step_at(s, at);
}
