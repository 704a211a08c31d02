/* leased.c - parameter calls in asynchronous training: a worker gets one shard after the other, and
 * what it pushes for a shard is applied by itself.
 *
 * A shard of a step is a lease, as in fit (train/loop/leased.c). In one process shards are taken in
 * their order, and each is a step of the trainer.
 *
 * Kept true: the values that a program reads stay as they are until it asks for the next shard; at
 * a boundary everything before it is applied. */
#include "train/params/params.h"

static bool is_local(const weft_params *p)
{
    return !wf_dist_together(p->t);
}

weft_status wf_params_leased_open(weft_params *p, const weft_params_opts *o)
{
    bool leased = wf_dist_leased(p->t);

    if (leased && !p->leased)
        return wf_err(WEFT_ENOSUP, "the strategy is asynchronous, and steps are not: give "
                                   "mode = WEFT_PARAMS_ASYNC, or consistency \"sync\"");
    if (!p->leased)
        return o->steps ? wf_err(WEFT_EINVAL,
                                 "steps %lld: only asynchronous jobs say where they "
                                 "end",
                                 (long long)o->steps)
                        : WEFT_OK;
    if (!leased && !is_local(p))
        return wf_err(WEFT_ENOSUP, "mode WEFT_PARAMS_ASYNC needs a strategy that is asynchronous: "
                                   "give weft_ps_opts.consistency \"async\" or \"stale(S)\"");
    if (o->steps < 1)
        return wf_err(WEFT_EINVAL,
                      "steps %lld: an asynchronous job says how many it has: then all shards are "
                      "applied, and no worker waits for others that have left",
                      (long long)o->steps);
    p->steps = o->steps;
    p->shards = leased ? p->t->shards : wf_max_i64(o->shards, 1);
    p->turns = leased;
    wf_pass_begin(p->t);
    return leased ? wf_dist_gates(p->t, p->steps, weft_trainer_step(p->t), false, 0) : WEFT_OK;
}

/* The trainer is at the beginning of this step. */
void wf_params_leased_at(weft_params *p, int64_t step)
{
    p->at = step;
    p->holds = p->ended = p->halts = false;
    p->turns = !is_local(p);
    if (is_local(p))
        weft_fn_set_step(p->t->bound->fit, step * p->shards);
}

/* ---- one process ----------------------------------------------------------------------------- */

static void next_here(weft_params *p)
{
    int64_t lease = weft_trainer_step(p->t);

    p->begun = true;
    p->at = lease / p->shards;
    p->held = lease % p->shards;
    p->ended = p->at >= p->steps;
}

static weft_status compute_here(weft_params *p)
{
    const struct wf_samples one = {.n = 1};
    weft_status st;

    p->t->used_rate = p->t->rate;
    p->t->drawn = 0;
    p->gave = false;
    st = wf_dist_batch(p->t, p->w, &one, 0);
    if (!st && p->gave)
        st = wf_dist_apply(p->t, p->w);
    if (st)
        return st;
    if (!p->gave) { /* a skip counts as applied */
        wf_work_drop(p->w);
        weft_fn_set_step(p->t->bound->fit, weft_trainer_step(p->t) + 1);
    }
    next_here(p);
    return p->held ? WEFT_OK : wf_params_files_boundary(p);
}

/* ---- boundaries ------------------------------------------------------------------------------ */

static weft_status follow(weft_params *p)
{
    char *text = NULL;
    int64_t n;
    weft_status st = wf_dist_record(p->t, &text, &n, &p->at);

    wf_free(p->ctx, text); /* it says nothing */
    return st;
}

/* Whoever decides writes a checkpoint first: everything before this step is applied. */
static weft_status decide(weft_params *p, enum wf_turn *turn, weft_status *saved)
{
    weft_status st = WEFT_OK;

    p->at = wf_dist_at(p->t);
    *saved = wf_params_files_boundary(p);
    while (!st && *turn == WF_TURN_DECIDE) {
        st = wf_dist_decide(p->t, "", 0, turn);
        p->at = wf_dist_at(p->t);
    }
    return st;
}

static weft_status boundary(weft_params *p, weft_status *saved)
{
    enum wf_turn turn;
    weft_status st = wf_dist_turn(p->t, true, false, &turn);

    p->begun = true;
    p->halts = false;
    if (!st && turn == WF_TURN_DECIDE)
        st = decide(p, &turn, saved);
    if (!st && turn != WF_TURN_GO)
        st = follow(p);
    if (!st)
        st = wf_dist_lease_begin(p->t, p->at, true, p->at >= p->steps);
    if (st)
        return st;
    p->turns = false;
    p->ended = p->at >= p->steps;
    return WEFT_OK;
}

/* A checkpoint is due: whoever decides asks for a boundary, once. */
static weft_status halt(weft_params *p)
{
    int64_t none, low;

    if (!p->folder || p->halts || !wf_dist_decides(p->t))
        return WEFT_OK;
    wf_dist_lease_queue(p->t, &none, 0, &low);
    if (low / p->shards - p->resume.last_step < p->saving.checkpoint_steps)
        return WEFT_OK;
    p->halts = true;
    return wf_dist_halt(p->t);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void note_reported(weft_params *p)
{
    p->reported = p->t->mean_weight > 0 ? p->t->mean_sum[0] / p->t->mean_weight : 0;
}

static weft_status next(weft_params *p)
{
    enum wf_turn turn;
    int64_t step;
    int shard;
    weft_status st = halt(p);

    if (!st)
        st = wf_dist_lease(p->t, &turn, &step, &shard);
    if (st)
        return st;
    p->holds = turn == WF_TURN_GO;
    p->turns = !p->holds;
    if (!p->holds)
        return WEFT_OK;
    p->at = step;
    p->held = shard;
    note_reported(p);
    return WEFT_OK;
}

/* Something has failed: the job may go back, and this worker with it. */
static weft_status go_back(weft_params *p, weft_status st)
{
    bool back;

    st = wf_params_go_back(p, st, &back);
    if (back)
        wf_params_leased_at(p, weft_trainer_step(p->t));
    return st;
}

weft_status wf_params_lease(weft_params *p)
{
    weft_status st = WEFT_OK, saved = WEFT_OK;

    if (is_local(p)) {
        next_here(p);
        p->holds = !p->ended;
        return WEFT_OK;
    }
    while (!st && !saved && !p->holds && !p->ended) {
        st = p->turns ? boundary(p, &saved) : next(p);
        if (st)
            st = go_back(p, st);
    }
    return st ? st : saved;
}

weft_status wf_params_lease_wait(weft_params *p)
{
    weft_status st = p->holds ? WEFT_OK : wf_params_lease(p);

    if (!st && p->holds) {
        p->computes = p->held;
        st = is_local(p) ? compute_here(p)
                         : wf_dist_lease_compute(p->t, p->at, (int)p->held, NULL, 1);
        p->computes = -1;
        p->holds = st != WEFT_OK;
        if (st && !is_local(p))
            st = go_back(p, st);
        if (is_local(p))
            note_reported(p);
    }
    wf_params_drop(p);
    wf_params_files_watch(p);
    return st;
}

weft_status wf_params_lease_checkpoint(weft_params *p)
{
    if (is_local(p))
        return p->held ? wf_err(WEFT_ESTATE,
                                "parameter calls: a checkpoint at shard %lld of step %lld: "
                                "checkpoints are of whole steps",
                                (long long)p->held, (long long)p->at)
                       : WEFT_OK;
    return wf_dist_halt(p->t);
}
