/* leased.c - a fit whose shards are leased one by one: bounded staleness, asynchronous training.
 *
 * Between two boundaries (the ends of epochs, with some callbacks every step) every worker
 * computes the leases that the chief grants it. At a boundary all that came before is applied; then
 * one worker decides what comes next, and all follow its control record, as in together.c.
 *
 * Kept true: a lease is a shard of one batch, or of the batches of a round, found by its number
 * alone; f->at is where the last boundary was. */
#include "train/loop/fit.h"
#include "train/step/dist.h"

#define WATCH_NS 250000000
enum { ANNOUNCED = 8 }; /* leases whose samples are read in advance */

/* How many batches an epoch has: boundaries are planned by that. */
static weft_status count_steps(struct fit *f)
{
    int64_t n = wf_ds_node(f->d, f->train.ds)->count;

    f->epoch_steps = n == WEFT_ENDLESS ? f->o->steps_per_epoch : weft_dealer_steps(f->deal.dealer);
    if (f->epoch_steps > 0)
        return WEFT_OK;
    return f->epoch_steps == 0 && n != WEFT_ENDLESS
               ? wf_err(WEFT_EDATA, "fit: the dataset has no batches")
               : wf_err(WEFT_ENOSUP,
                        "how many batches an epoch has is not known before it has been read: "
                        "asynchronous training needs data with a known number of samples; or "
                        "repeat it without end, and give steps_per_epoch");
}

/* f->at is at this step, and the data is there. */
static void set_base(struct fit *f, int64_t step)
{
    f->base.step = step;
    f->base.batch = f->at.batch;
    f->base.shown = wf_dist_lease_step(f->t, step);
    f->base.deal = f->deal.at;
}

/* Somebody who takes the steps one by one has said where they end; a step of the leases that comes
 * then or later has nothing to train. */
static bool is_past(const struct fit *f, int64_t step)
{
    return f->steps && f->steps->last && wf_dist_lease_step(f->t, step) >= f->steps->last;
}

/* The batch of the epoch that a step begins with; the last round of an epoch may have fewer. */
static int64_t batch_of(const struct fit *f, int64_t step)
{
    int64_t every = f->t->rounds ? f->t->accumulate : 1, last = f->steps ? f->steps->last : 0;
    int64_t batch = wf_min_i64(f->base.batch + (step - f->base.step) * every, f->epoch_steps);

    if (last)
        last += f->base.batch - wf_dist_lease_step(f->t, f->base.step);
    return last ? wf_min_i64(batch, wf_max_i64(last, f->base.batch)) : batch;
}

static int64_t deal_of(const struct fit *f, int64_t step)
{
    return f->base.deal + (batch_of(f, step) - f->base.batch);
}

/* Everything before this step of the epoch is done. */
static weft_status reach(struct fit *f, int64_t step)
{
    int64_t batch = batch_of(f, step);

    f->done += wf_max_i64(batch - f->at.batch, 0);
    wf_progress_count(&f->progress, batch - f->base.batch);
    f->at.batch = batch;
    return wf_deal_commit_to(&f->deal, f->at.epoch, deal_of(f, step));
}

/* ---- boundaries ------------------------------------------------------------------------------ */

/* A run that is to stop ends its epoch here. */
static bool is_end(const struct fit *f)
{
    return f->at.batch >= f->epoch_steps ||
           (f->at.batch > 0 && f->done && wf_asked(f->t, WF_ASK_STOP));
}

static weft_status decide(struct fit *f, int64_t epochs)
{
    int64_t step = wf_dist_at(f->t);
    weft_status st = f->base.step >= 0 ? reach(f, step) : WEFT_OK;
    bool mid;

    if (st)
        return st;
    if (is_past(f, step))
        wf_ask(f->t, WF_ASK_INTERRUPT);
    mid = f->base.step >= 0 && !is_end(f) && f->at.batch > 0;
    if (mid)
        st = wf_fit_checkpoint(f, true);
    if (!st)
        st = mid ? wf_fit_decide_batch(f) : wf_fit_decide_boundary(f, epochs, is_end(f));
    if (st || f->end != WF_LIFE_TRAINING || f->left)
        return st;
    if (!f->decides) { /* another one was first: its record counts */
        st = wf_fit_seek(f);
        set_base(f, f->gated);
    } else if (f->at.batch == 0 || f->base.step < 0) {
        set_base(f, step);
    }
    return st;
}

/* Another worker has decided; its record may be far from where this one was. */
static weft_status follow(struct fit *f)
{
    int64_t at, epoch = f->at.epoch;
    bool next, endless = wf_ds_node(f->d, f->train.ds)->count == WEFT_ENDLESS;
    weft_status st = wf_fit_follow(f, &at);

    if (st)
        return st;
    if (f->values)
        st = wf_dist_set(f->t, f->values, f->n_values, 0, false);
    f->values = NULL;
    f->gated = at;
    next = f->base.step >= 0 && f->at.batch == 0 && f->at.epoch == epoch + 1;
    if (st || f->left)
        return st;
    if (f->base.step >= 0 && f->at.batch > 0 && f->at.epoch == epoch &&
        f->at.batch == batch_of(f, at)) /* where this worker is, too */
        return wf_deal_commit_to(&f->deal, epoch, deal_of(f, at));
    if (next)
        st = wf_deal_commit_to(&f->deal, epoch, deal_of(f, at));
    if (!st && next && !endless)
        st = wf_deal_begin(&f->deal, f->at.epoch);
    else if (!st && !next)
        st = wf_fit_seek(f);
    if (f->at.batch == 0)
        wf_pass_begin(f->t);
    if (!st)
        set_base(f, at);
    return st;
}

/* *go: leases come next. */
static weft_status boundary(struct fit *f, int64_t epochs, bool *go)
{
    enum wf_turn turn;
    weft_status st = wf_dist_turn(f->t, true, false, &turn);
    bool ends;

    *go = false;
    if (st)
        return st;
    st = turn == WF_TURN_DECIDE ? decide(f, epochs) : follow(f);
    if (st)
        return st;
    ends = f->left || f->end != WF_LIFE_TRAINING;
    *go = !ends;
    return wf_dist_lease_begin(f->t, f->gated, f->at.batch == 0, ends);
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* For those who watch, a few times a second: the totals are those of the servers. */
static weft_status watch(struct fit *f)
{
    int64_t now = wf_now(f->t->ctx), batch = f->at.batch;
    bool decides;
    weft_logs logs;
    weft_status st;

    if (now - f->watched < WATCH_NS)
        return WEFT_OK;
    f->at.batch = wf_max_i64(wf_min_i64(wf_dist_lease_batches(f->t), f->epoch_steps), batch);
    st = wf_fit_decides(f, &decides);
    if (!st && decides && wf_progress_due(&f->progress)) {
        logs = wf_train_logs(f->t);
        wf_progress_count(&f->progress, f->at.batch - f->base.batch);
        wf_progress_step(&f->progress, f->at.batch, &logs);
    }
    wf_fit_show(f);
    f->watched = now;
    f->at.batch = batch;
    return st;
}

/* The samples of the leases that come next; what is done is let go. */
static weft_status announce(struct fit *f)
{
    int64_t lease[ANNOUNCED], low, shards = f->t->shards;
    int n = wf_dist_lease_queue(f->t, lease, ANNOUNCED, &low);
    weft_status st = WEFT_OK;

    for (int i = 0; i < n; i++) {
        int64_t at = deal_of(f, lease[i] / shards), end = deal_of(f, lease[i] / shards + 1);

        for (end = wf_min_i64(end, at + ANNOUNCED); at < end && !st; at++)
            st = wf_deal_announce(&f->deal, at, lease[i] % shards);
    }
    f->base.low = wf_max_i64(low / shards, f->base.step);
    if (!st && low / shards > f->base.step)
        st = wf_deal_commit_to(&f->deal, f->at.epoch, deal_of(f, low / shards));
    return st;
}

static weft_status compute(struct fit *f, int64_t step, int shard)
{
    int64_t end = deal_of(f, step + 1);
    struct wf_deal last;
    weft_status st = announce(f);

    if (!st)
        st = wf_deal_at(&f->deal, f->at.epoch, end - 1, &last);
    if (!st)
        st = wf_dist_lease_compute(f->t, step, shard, &last, (int)(end - deal_of(f, step)));
    return st ? wf_err_wrap(st, "epoch %lld, batch %lld", (long long)f->at.epoch + 1,
                            (long long)batch_of(f, step))
              : WEFT_OK;
}

/* A worker that is interrupted leaves: others get its leases. */
static bool leaves(struct fit *f)
{
    bool decides;

    if (!wf_interrupted(f->t) || wf_fit_decides(f, &decides) || decides)
        return false;
    f->end = WF_LIFE_PAUSED;
    f->left = true;
    return true;
}

/* Whether a boundary is wanted that is not planned: to stop, or for a checkpoint. */
static bool wants_halt(const struct fit *f)
{
    const struct wf_resume *r = &f->resume;
    int64_t steps = f->o->checkpoint_steps, now;

    if (wf_asked(f->t, WF_ASK_STOP | WF_ASK_SAVE))
        return true;
    if (!r->writer || (steps == 0 && f->o->checkpoint_seconds == 0))
        return false;
    if (steps > 0 && wf_dist_lease_step(f->t, f->base.low) - r->last_step >= steps)
        return true;
    now = wf_now(f->t->ctx);
    return f->o->checkpoint_seconds > 0 &&
           (double)(now - r->last_ns) * 1e-9 >= f->o->checkpoint_seconds;
}

/* Whoever decides asks for it, once. */
static weft_status halt(struct fit *f)
{
    if (f->base.halts || !wants_halt(f) || !wf_dist_decides(f->t))
        return WEFT_OK;
    f->base.halts = true;
    return wf_dist_halt(f->t);
}

/* Whoever takes the steps one by one: after each lease of this worker. Steps count as they are
 * done, whoever has computed them. */
static weft_status between(struct fit *f)
{
    int64_t none, low, batch, step;
    bool decides;
    weft_logs logs;
    weft_status st;

    if (!f->steps)
        return WEFT_OK;
    wf_dist_lease_queue(f->t, &none, 0, &low);
    batch = batch_of(f, wf_max_i64(low / f->t->shards, f->base.step));
    batch = wf_min_i64(wf_max_i64(batch, wf_dist_lease_batches(f->t)), f->epoch_steps);
    step = wf_dist_lease_step(f->t, f->base.step) + batch - f->base.batch;
    f->base.shown = wf_max_i64(f->base.shown, step);
    weft_fn_set_step(f->t->bound->fit, f->base.shown);
    st = wf_fit_decides(f, &decides);
    logs = wf_train_logs(f->t);
    if (!st && decides && f->base.shown > f->called) {
        f->called = f->base.shown;
        f->t->deal = &f->deal;
        st = wf_fit_call(f, WF_BATCH_END, wf_max_i64(batch - 1, 0), &logs);
        f->t->deal = NULL;
    }
    if (!st)
        st = wf_fit_between(f, &logs, decides);
    return st ? st : wf_dist_lease_kept(f->t);
}

/* Training ends before this lease: nothing beyond the step at which it can be stopped is leased. */
static weft_status skip(struct fit *f, int64_t step)
{
    weft_status st = wf_dist_lease_skip(f->t, step);

    if (!st && !f->base.halts)
        st = wf_dist_halt(f->t);
    f->base.halts = true;
    return st;
}

/* Leases up to the next boundary. */
static weft_status interval(struct fit *f)
{
    enum wf_turn turn = WF_TURN_GO;
    const int64_t begin = f->gated, start = wf_now(f->t->ctx);
    int64_t step = begin;
    double waited = wf_deal_waited_s(&f->deal);
    int shard;
    weft_status st = WEFT_OK;

    if (f->at.batch == f->base.batch && f->decides)
        wf_progress_epoch(&f->progress, f->at.epoch);
    else if (f->at.batch == f->base.batch)
        wf_progress_clock(&f->progress);
    while (!st && turn == WF_TURN_GO && !leaves(f)) {
        st = wf_dist_lease(f->t, &turn, &step, &shard);
        if (!st && turn == WF_TURN_GO && is_past(f, step)) {
            st = skip(f, step);
            continue;
        }
        if (!st && turn == WF_TURN_GO)
            st = compute(f, step, shard);
        if (!st)
            st = watch(f);
        if (!st && turn == WF_TURN_GO)
            st = between(f);
        if (!st)
            st = halt(f);
    }
    f->base.halts = false;
    f->t->times =
        (weft_times){.steps = turn == WF_TURN_DECIDE ? batch_of(f, step) - batch_of(f, begin) : 0,
                     .train_s = (double)(wf_now(f->t->ctx) - start) * 1e-9,
                     .wait_s = wf_deal_waited_s(&f->deal) - waited,
                     .skipped = wf_deal_skipped(&f->deal) - f->t->all_times.skipped};
    return st;
}

weft_status wf_fit_leased(struct fit *f, int64_t epochs)
{
    bool go = false, begun = false, back;
    weft_status st = wf_fit_keep_origin(f);

    if (!st)
        st = count_steps(f);
    f->each_step = wf_fit_has_user_batches(f);
    f->called = f->base.step = -1;
    if (!st)
        st = wf_dist_gates(f->t, f->epoch_steps, f->at.batch, f->each_step,
                           f->steps ? f->steps->last : 0);
    while (!st && !f->left && f->end == WF_LIFE_TRAINING) {
        st = boundary(f, epochs, &go);
        if (!st && go && !begun) {
            st = wf_fit_between(f, NULL, f->decides);
            if (!st && f->steps)
                st = wf_dist_lease_kept(f->t);
            begun = true;
        }
        if (!st && go)
            st = interval(f);
        st = wf_fit_go_back(f, st, &back);
        if (back)
            f->base.step = -1;
    }
    wf_dist_led(f->t, f->left && f->end == WF_LIFE_PAUSED && wf_asked(f->t, WF_ASK_INTERRUPT));
    if (!st && f->t->life == WF_LIFE_TRAINING)
        st = wf_life_move(f->t, WF_LIFE_CLOSING);
    return st;
}
