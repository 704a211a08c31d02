/* fit.c - the training loop: epochs, batches, validation, callbacks, history. */
#include <math.h>

#include "train/loop/fit.h"
#include "train/step/dist.h"

#define WATCH_NS 250000000

/* ---- callbacks ------------------------------------------------------------------------------- */

weft_status wf_fit_call(struct fit *f, enum wf_when when, int64_t number, const weft_logs *logs)
{
    const weft_trainer *outer = wf_calling;
    weft_status st = WEFT_OK;

    wf_calling = f->t;
    for (int i = 0; i < f->o->n_callbacks && !st; i++) {
        const weft_callback *c = &f->o->callbacks[i];

        switch (when) {
        case WF_TRAIN_BEGIN: st = c->train_begin ? c->train_begin(c->arg, f->t) : 0; break;
        case WF_TRAIN_END: st = c->train_end ? c->train_end(c->arg, f->t, logs) : 0; break;
        case WF_EPOCH_BEGIN: st = c->epoch_begin ? c->epoch_begin(c->arg, f->t, number) : 0; break;
        case WF_EPOCH_END: st = c->epoch_end ? c->epoch_end(c->arg, f->t, number, logs) : 0; break;
        case WF_BATCH_END: st = c->batch_end ? c->batch_end(c->arg, f->t, number, logs) : 0; break;
        }
        if (st)
            wf_err_wrap(st, "callback '%s'", c->name ? c->name : "?");
    }
    wf_calling = outer;
    return st;
}

static bool any_batch_callback(const struct fit *f)
{
    for (int i = 0; i < f->o->n_callbacks; i++)
        if (f->o->callbacks[i].batch_end)
            return true;
    return false;
}

/* ---- history --------------------------------------------------------------------------------- */

void weft_history_free(weft_history *h)
{
    weft_ctx *ctx;

    if (!h)
        return;
    ctx = h->inside;
    for (int i = 0; i < h->n_names && h->name; i++)
        wf_free(ctx, (char *)h->name[i]);
    wf_free(ctx, h->name);
    wf_free(ctx, h->value);
    wf_free(ctx, h);
}

static weft_status history_new(struct fit *f)
{
    weft_ctx *ctx = f->t->ctx;
    weft_history *h = wf_alloc(ctx, sizeof *h);

    if (!h)
        return wf_err_nomem(ctx, sizeof *h, "history");
    f->history = h;
    f->t->history = h;
    h->inside = ctx;
    h->first_epoch = f->o->initial_epoch;
    h->name = wf_alloc_n(ctx, f->n_logs + 1, sizeof *h->name);
    if (!h->name)
        return wf_err_nomem(ctx, 0, "history");
    for (; h->n_names < f->n_logs; h->n_names++) {
        h->name[h->n_names] = wf_strdup(ctx, f->name[h->n_names]);
        if (!h->name[h->n_names])
            return wf_err_nomem(ctx, 0, "history");
    }
    return WEFT_OK;
}

weft_status wf_fit_add_epoch(void *arg, const double *row)
{
    struct fit *f = arg;
    weft_history *h = f->history;
    weft_status st = wf_grow(f->t->ctx, &h->value, &f->cap_epochs,
                             (h->n_epochs + 1) * h->n_names + 1, sizeof *h->value);

    if (st)
        return st;
    memcpy(h->value + h->n_epochs * h->n_names, row, (size_t)h->n_names * sizeof *h->value);
    h->n_epochs++;
    return WEFT_OK;
}

/* ---- an epoch -------------------------------------------------------------------------------- */

static weft_status checkpoint(struct fit *f)
{
    weft_logs logs = wf_train_logs(f->t);

    return wf_resume_save(&f->resume, &f->at, &logs);
}

/* A checkpoint between two epochs, with the logs of the epoch that just ended. */
static weft_status checkpoint_between(struct fit *f, int64_t next_epoch, int64_t ended)
{
    struct wf_fit_state next = f->at;
    weft_logs logs = {f->n_logs, f->name, f->value};

    next.epoch = next_epoch;
    next.batch = 0;
    next.ended = ended;
    return wf_resume_save(&f->resume, &next, &logs);
}

/* ---- batches in flight: started on a device, and not waited for ------------------------------ */

/* What a batch has given is known. */
static weft_status landed(void *arg, int64_t at)
{
    struct fit *f = arg;
    struct wf_fit_state then = f->at;
    struct wf_deal deal;
    weft_status st = WEFT_OK;

    if (!isfinite(f->t->mean_sum[0]) && !f->nonfinite.looked) {
        st = wf_deal_earlier(&f->deal, f->deal.at - at, &deal);
        then.batch = at + f->shift + 1;
        then.deal = &deal;
        if (!st)
            wf_nonfinite_find(&f->nonfinite, f->t, &then, f->d);
    }
    /* the current one is committed after callbacks */
    return st || at >= f->deal.at ? st : weft_dealer_commit(f->deal.dealer, at);
}

static weft_status name_batch(const struct fit *f, weft_status st)
{
    int64_t failed = f->t->flying.failed;

    return wf_err_wrap(st, "epoch %lld, batch %lld", (long long)f->at.epoch + 1,
                       (long long)(failed < 0 ? f->at.batch : failed + f->shift));
}

/* Before somebody looks at the training. */
static weft_status settle(struct fit *f)
{
    weft_status st = f->t->flying.n ? wf_step_settle(f->t) : WEFT_OK;

    return st ? name_batch(f, st) : WEFT_OK;
}

/* ---- after a step ---------------------------------------------------------------------------- */

static bool show_due(const struct fit *f)
{
    return f->o->watch &&
           (wf_now(f->t->ctx) - f->watched >= WATCH_NS || f->at.batch == f->progress.batches);
}

/* For who watches, whichever worker decides. */
void wf_fit_show(struct fit *f)
{
    weft_logs logs;

    if (!show_due(f))
        return;
    f->watched = wf_now(f->t->ctx);
    logs = wf_train_logs(f->t);
    f->o->watch(f->o->watch_arg, f->t, f->at.epoch, &logs);
}

/* After the last batch of an epoch, validation comes first. */
weft_status wf_fit_checkpoint(struct fit *f, bool decides)
{
    weft_status st;

    if (!decides || f->t->pending || f->at.batch == f->progress.batches ||
        !wf_resume_due(&f->resume, false))
        return WEFT_OK;
    st = settle(f);
    return st ? st : checkpoint(f);
}

weft_status wf_fit_between(struct fit *f, const weft_logs *logs, bool decides)
{
    weft_status st;

    if (!f->steps)
        return WEFT_OK;
    f->t->deal = &f->deal;
    st = f->steps->between(f->steps->arg, logs, decides);
    f->t->deal = NULL;
    return st;
}

/* Everything that follows a step: callbacks (which may request a checkpoint), progress,
 * checkpoints. */
static weft_status after_step(struct fit *f, bool seen)
{
    bool paint = wf_progress_due(&f->progress), decides = true;
    weft_logs logs;
    weft_status st = f->together ? wf_fit_decides(f, &decides) : WEFT_OK, done;

    f->done++;
    if (f->t->flying.n && (seen || paint || show_due(f)))
        st = settle(f);
    if (!st)
        wf_fit_show(f);
    seen &= decides;
    if (seen && f->together)
        f->called = wf_dist_trained(f->t);
    if (!st && (seen || (paint && decides))) {
        logs = wf_train_logs(f->t);
        f->t->deal = &f->deal;
        if (seen)
            st = wf_fit_call(f, WF_BATCH_END, f->at.batch - 1, &logs);
        f->t->deal = NULL;
        if (!st && paint)
            wf_progress_step(&f->progress, f->at.batch, &logs);
    }
    done = wf_deal_done(&f->deal);
    st = st ? st : done;
    if (!st)
        st = wf_fit_checkpoint(f, decides);
    if (st || !f->steps)
        return st;
    logs = wf_train_logs(f->t);
    st = wf_fit_between(f, &logs, decides);
    return !st && wf_asked(f->t, WF_ASK_SAVE) ? wf_fit_checkpoint(f, decides) : st;
}

/* The loop ends with st; an error of a batch in flight was earlier. */
static weft_status end_flight(struct fit *f, weft_status st)
{
    f->t->flying.failed = -1;
    st = wf_step_end(f->t, st);
    return f->t->flying.failed < 0 ? st : name_batch(f, st);
}

static weft_status train_batches(struct fit *f)
{
    weft_trainer *t = f->t;
    int64_t steps = f->o->steps_per_epoch;
    bool seen = any_batch_callback(f), any;
    bool flies = wf_step_flies(t) && !seen && !f->together && !f->steps;
    struct wf_flying outer;
    weft_status st = WEFT_OK;

    wf_flying_begin(t, &outer);
    t->flying.landed = landed;
    t->flying.arg = f;
    f->shift = f->at.batch - f->deal.at;
    /* Accumulated batches belong to one step, and a started step is always finished. An epoch
     * whose epoch_begin was called trains at least one batch, so that a resumed run does not call
     * it again. */
    while (!st && (!wf_asked(t, WF_ASK_STOP) || f->together || t->pending || f->at.batch == 0) &&
           (!steps || f->at.batch < steps)) {
        bool go = true, again;

        st = wf_deal_next(&f->deal, f->at.epoch, &any);
        if (!st && any && f->together && !t->pending) {
            st = wf_fit_gate(f, &go);
            if (!st && go) /* it may have gone elsewhere */
                st = wf_deal_next(&f->deal, f->at.epoch, &any);
        }
        if (st || !go || !any)
            break;
        t->flying.on = flies;
        st = wf_step_dealt(t, &f->deal);
        t->flying.on = false;
        if (st && f->together) {
            st = wf_fit_turn(f, st, &again);
            if (!st && again)
                continue;
        }
        if (st) {
            name_batch(f, st);
            break;
        }
        f->at.batch++;
        if (!isfinite(t->mean_sum[0]) && !f->nonfinite.looked)
            wf_nonfinite_find(&f->nonfinite, t, &f->at, f->d);
        st = after_step(f, seen);
    }
    if (t->flying.n)
        st = end_flight(f, st);
    wf_flying_end(t, &outer);
    if (!st && steps && f->at.batch < steps && !wf_asked(t, WF_ASK_STOP) && !f->left)
        wf_log(t->ctx, WEFT_LOG_WARN,
               "fit: the data ended after %lld of %lld batches of epoch %lld; add weft_ds_repeat",
               (long long)f->at.batch, (long long)steps, (long long)f->at.epoch + 1);
    return st;
}

/* Records that the stages of an iterator have skipped since it was created. */
static int64_t skipped(const weft_iter *it)
{
    weft_stage_stats stats;
    int64_t n = 0;

    for (int i = 0; i < weft_iter_n_stages(it); i++)
        if (!weft_iter_stage(it, i, &stats))
            n += stats.n_skipped;
    return n;
}

/* train_batches, and how long it took. */
weft_status wf_fit_batches(struct fit *f)
{
    weft_times *times = &f->t->times;
    int64_t start = wf_now(f->t->ctx), batch = f->at.batch;
    double waited = wf_deal_waited_s(&f->deal);
    weft_status st = train_batches(f);

    *times = (weft_times){.steps = wf_max_i64(f->at.batch - batch, 0),
                          .train_s = (double)(wf_now(f->t->ctx) - start) * 1e-9,
                          .wait_s = wf_deal_waited_s(&f->deal) - waited,
                          .skipped = wf_deal_skipped(&f->deal) - f->t->all_times.skipped};
    return st;
}

/* Adds the epoch's times to those of the run. A checkpoint written between epochs counts in the
 * next epoch. */
static void sum_times(struct fit *f)
{
    weft_times *e = &f->t->times, *all = &f->t->all_times;
    weft_ckpt_stats s = {0};

    if (f->resume.writer)
        weft_ckpt_writer_stats(f->resume.writer, &s);
    e->checkpoints = s.n_saved - all->checkpoints;
    e->stall_s = (double)s.stall_ns * 1e-9 - all->stall_s;
    e->total_s = e->train_s + e->validate_s;
    all->steps += e->steps;
    all->train_s += e->train_s;
    all->validate_s += e->validate_s;
    all->wait_s += e->wait_s;
    all->checkpoints += e->checkpoints;
    all->stall_s += e->stall_s;
    all->skipped += e->skipped;
    all->val_skipped += e->val_skipped;
}

/* The logs of the epoch: training, then validation if this epoch is validated. */
static weft_status epoch_logs(struct fit *f, weft_logs *out)
{
    bool turn = wf_validation_due(f);
    weft_logs logs = wf_train_logs(f->t);
    weft_status st = WEFT_OK;

    for (int i = 0; i < f->n_logs; i++)
        f->value[i] = i < logs.n ? logs.value[i] : NAN;
    if (turn) {
        int64_t start = wf_now(f->t->ctx);

        st = wf_validate(f);
        f->t->times.validate_s = f->validate_s + (double)(wf_now(f->t->ctx) - start) * 1e-9;
        f->validate_s = 0;
        f->t->times.val_skipped = skipped(f->val_it) - f->t->all_times.val_skipped;
    }
    *out = (weft_logs){turn || !f->has_val ? f->n_logs : f->n_train, f->name, f->value};
    return st;
}

/* The run was stopped before the epoch began, or interrupted in the middle of it: the resumed run
 * trains the rest. */
weft_status wf_fit_leave(struct fit *f)
{
    const weft_trainer *t = f->t;
    weft_status st;

    f->end = wf_asked(t, WF_ASK_END) ? WF_LIFE_ENDED : WF_LIFE_PAUSED;
    sum_times(f);
    if (f->together && f->decides && f->end == WF_LIFE_PAUSED) { /* the last chance to save */
        st = wf_resume_open(&f->resume);
        if (st)
            return wf_err_wrap(st, "stopped after step %lld, and nothing was saved",
                               (long long)weft_trainer_step(t));
    }
    if (!f->resume.writer || f->end != WF_LIFE_PAUSED || !f->done || f->postponed)
        return WEFT_OK;
    if (f->at.batch == 0)
        return checkpoint_between(f, f->at.epoch, 0);
    return f->resume.last_step == weft_trainer_step(t) &&
                   f->resume.last_skipped == weft_trainer_skipped(t)
               ? WEFT_OK
               : checkpoint(f);
}

/* Warns the first time records are skipped, even when no progress is shown. */
static void warn_skipped(const struct fit *f)
{
    const weft_times *e = &f->t->times, *all = &f->t->all_times;

    if (e->skipped + e->val_skipped &&
        e->skipped + e->val_skipped == all->skipped + all->val_skipped)
        wf_log(f->t->ctx, WEFT_LOG_WARN,
               "epoch %lld: %lld training and %lld validation records could not be read and were "
               "skipped (on_error: skip)",
               (long long)f->at.epoch + 1, (long long)e->skipped, (long long)e->val_skipped);
}

weft_status wf_fit_end_epoch(struct fit *f)
{
    weft_trainer *t = f->t;
    weft_logs logs;
    weft_status st = epoch_logs(f, &logs);

    sum_times(f);
    if (st)
        return st;
    warn_skipped(f);
    f->progress.skipped = t->times.skipped;
    f->progress.val_skipped = t->times.val_skipped;
    wf_progress_epoch_end(&f->progress, f->at.batch, &logs);
    f->done++;
    st = wf_fit_add_epoch(f, f->value);
    return st ? st : wf_fit_call(f, WF_EPOCH_END, f->at.epoch, &logs);
}

/* Trains from the current batch to the end of the epoch. A stopped run leaves the state in the
 * middle of the epoch. */
static weft_status one_epoch(struct fit *f, bool resumed)
{
    weft_trainer *t = f->t;
    bool endless = wf_ds_node(f->d, f->train.ds)->count == WEFT_ENDLESS;
    weft_status st = WEFT_OK;

    if (!resumed && wf_asked(t, WF_ASK_STOP)) {
        f->at.batch = 0;
        t->times = (weft_times){0};
        return wf_fit_leave(f);
    }
    if (!resumed) {
        if (!endless || f->at.epoch == f->o->initial_epoch)
            st = wf_deal_begin(&f->deal, f->at.epoch);
        f->at.batch = 0;
        wf_pass_begin(t);
        if (!st)
            st = wf_fit_call(f, WF_EPOCH_BEGIN, f->at.epoch, NULL);
    }
    if (st)
        return st;
    if (resumed || !endless || f->at.epoch == f->o->initial_epoch) /* position known */
        wf_nonfinite_keep(&f->nonfinite, t, &f->at, resumed);
    wf_progress_epoch(&f->progress, f->at.epoch);
    st = wf_fit_batches(f);
    if (!st)
        st = wf_step_flush(t);
    if (!st)
        st = wf_deal_commit(&f->deal);
    if (st)
        return st;
    if (f->at.batch == 0)
        return wf_err(WEFT_EDATA, "fit: the dataset has no batches");
    if (wf_interrupted(t) && f->resume.writer)
        return wf_fit_leave(f);
    return wf_fit_end_epoch(f);
}

/* Decides whether the run ends here; if not, saves a checkpoint between the epochs when due. */
weft_status wf_fit_after_epoch(struct fit *f, int64_t epochs)
{
    const weft_trainer *t = f->t;
    bool last = f->at.epoch + 1 >= epochs;

    if (f->end != WF_LIFE_TRAINING)
        return WEFT_OK;
    if (wf_asked(t, WF_ASK_END))
        f->end = WF_LIFE_ENDED;
    else if (wf_asked(t, WF_ASK_INTERRUPT))
        f->end = last ? WF_LIFE_STOPPED : WF_LIFE_PAUSED;
    if (!f->resume.writer || f->end == WF_LIFE_ENDED || last ||
        !(f->end == WF_LIFE_PAUSED || wf_resume_due(&f->resume, true)))
        return WEFT_OK;
    return checkpoint_between(f, f->at.epoch + 1, 0);
}

/* ---- fit ------------------------------------------------------------------------------------- */

static weft_status open_data(struct fit *f, weft_ds s)
{
    const weft_fit_opts *o = f->o;
    weft_ds val = o->validation;
    struct wf_feeding_opts train = {
        .batch = o->batch, .shuffle = !o->no_shuffle, .with_labels = true, .seed = o->seed};
    struct wf_feeding_opts test = {.batch = o->validation_batch ? o->validation_batch : o->batch,
                                   .with_labels = true};
    weft_status st = WEFT_OK;

    if (o->validation_split != 0 && !val.id) {
        st = wf_plan_hold_out(f->d, &(struct wf_hold){.share = o->validation_split}, &s, &val);
        if (st)
            wf_err_wrap(st, "validation_split");
    }
    if (!st)
        st = wf_feeding_find(f->t, f->d, s, &train, &f->train);
    f->t->validates = val.id != 0;
    if (!st && val.id) {
        f->has_val = true;
        st = wf_feeding_find(f->t, f->d, val, &test, &f->val);
        if (!st && wf_ds_node(f->d, f->val.ds)->count == 0) /* before an epoch is spent */
            st = wf_err(WEFT_EDATA, "validation: the dataset has no batches");
    }
    return st ? wf_err_wrap(st, "fit") : WEFT_OK;
}

static weft_status open_rest(struct fit *f)
{
    weft_trainer *t = f->t;
    struct wf_type *labels = wf_arena_alloc(&f->d->arena, (size_t)t->n_out * sizeof *labels);
    weft_status st;

    if (!labels)
        return wf_err_nomem(f->t->ctx, 0, "fit");
    wf_feeding_labels(t, f->d, &f->train, labels);
    st = wf_trainer_bind(t, labels, f->train.weighted);
    if (!st && f->has_val)
        st = wf_trainer_bind_test(t, labels, f->val.weighted);
    if (st)
        return st;
    f->n_train = t->bound->n_logs + t->bound->n_extra;
    f->n_logs = f->n_train + (f->has_val ? t->bound->n_logs : 0);
    f->feeds = wf_alloc_n(t->ctx, t->bound->n_feeds_fit + 2, sizeof *f->feeds);
    f->name = wf_alloc_n(t->ctx, f->n_logs + 1, sizeof *f->name);
    f->value = wf_alloc_n(t->ctx, f->n_logs + 1, sizeof *f->value);
    if (!f->feeds || !f->name || !f->value)
        return wf_err_nomem(t->ctx, 0, "fit");
    for (int i = 0; i < f->n_train; i++)
        f->name[i] = t->bound->log_name[i];
    for (int i = 0; f->n_train + i < f->n_logs; i++)
        f->name[f->n_train + i] = t->bound->val_name[i];
    st = history_new(f);
    if (!st)
        st = wf_deal_open(&f->deal, t, f->d, &f->train,
                          &(struct wf_deal_opts){.epoch = f->o->initial_epoch,
                                                 .steps_per_epoch = f->o->steps_per_epoch,
                                                 .threads = f->o->threads});
    if (!st && f->has_val)
        st = weft_iter_new(f->d, f->val.ds,
                           WEFT_OPTS(weft_iter_opts,
                                     .threads = wf_feeding_threads(f->d, f->val.ds, f->o->threads)),
                           &f->val_it);
    return st;
}

static int64_t batches_of_epoch(const struct fit *f)
{
    int64_t n = wf_ds_node(f->d, f->train.ds)->count;

    if (f->o->steps_per_epoch)
        return f->o->steps_per_epoch;
    return n == WEFT_ENDLESS ? WEFT_UNKNOWN : n;
}

/* After the last epoch: train_end, the last checkpoint, and the state the trainer ends in. */
weft_status wf_fit_close(struct fit *f, int64_t epochs)
{
    weft_trainer *t = f->t;
    weft_logs last = {0, NULL, NULL};
    weft_status st = wf_life_move(t, WF_LIFE_CLOSING);

    if (f->end == WF_LIFE_TRAINING)
        f->end = wf_interrupted(t) ? WF_LIFE_STOPPED : WF_LIFE_COMPLETE;
    if (f->history->n_epochs)
        last = (weft_logs){f->n_logs, f->name, f->value};
    if ((f->end == WF_LIFE_COMPLETE || f->end == WF_LIFE_ENDED) && f->history->n_epochs &&
        !isfinite(f->value[0]))
        f->end = WF_LIFE_DIVERGED;
    t->pauses = f->end == WF_LIFE_PAUSED;
    if (!st)
        st = wf_fit_call(f, WF_TRAIN_END, 0, &last);
    /* after train_end, which may have changed the weights */
    if (!st && f->resume.writer && f->done && f->end != WF_LIFE_PAUSED)
        st = checkpoint_between(f, f->at.epoch, wf_asked(t, WF_ASK_END) ? epochs : 0);
    return st;
}

/* The state of the trainer after fit: how the run ended, or that it failed. */
static weft_status end_life(struct fit *f, weft_status st)
{
    weft_trainer *t = f->t;
    bool in_order =
        t->life == WF_LIFE_CLOSING && (f->end == WF_LIFE_COMPLETE || f->end == WF_LIFE_ENDED);

    if (st)
        return wf_life_move(t, in_order ? WF_LIFE_UNSAVED : WF_LIFE_FAILED) ? WEFT_EBUG : st;
    return wf_life_move(t, f->end);
}

static weft_status run(struct fit *f)
{
    const weft_fit_opts *o = f->o;
    int64_t epochs = o->epochs ? o->epochs : 1;
    int64_t start = wf_now(f->t->ctx);
    weft_status st;

    if (!o->steps_per_epoch && wf_ds_node(f->d, f->train.ds)->count == WEFT_ENDLESS)
        return wf_err(WEFT_EINVAL, "fit: the dataset is endless: steps_per_epoch is needed");
    wf_progress_init(&f->progress, f->t->ctx, o, batches_of_epoch(f));
    f->at = (struct wf_fit_state){.epoch = o->initial_epoch,
                                  .deal = &f->deal,
                                  .history = f->history,
                                  .data = f->d,
                                  .fed = &f->train};
    f->together = wf_dist_together(f->t);
    f->resume.late = f->together; /* whoever decides opens the directory for writing */
    st = wf_fit_call(f, WF_TRAIN_BEGIN, 0, NULL);
    if (!st)
        st = wf_resume_begin(&f->resume, f->t, o, &f->at, wf_fit_add_epoch, f);
    if (!st && f->history->n_epochs)
        memcpy(f->value, f->history->value + (f->history->n_epochs - 1) * f->n_logs,
               (size_t)f->n_logs * sizeof *f->value);
    if (!st && batches_of_epoch(f) > 0 && f->at.epoch < epochs)
        wf_deal_limit(&f->deal, (epochs - f->at.epoch) * batches_of_epoch(f) - f->at.batch);
    if (f->at.ended >= epochs) /* a callback ended an earlier run */
        f->end = WF_LIFE_COMPLETE;
    f->t->began_at = f->at.batch;
    f->t->stored = f->resume.resumed;
    f->together = f->together && f->at.epoch < epochs && f->end == WF_LIFE_TRAINING;
    if (!f->together && !st)
        st = wf_resume_callbacks(&f->resume);
    if (!f->together && !st && f->at.epoch < epochs && f->end == WF_LIFE_TRAINING)
        st = wf_fit_between(f, NULL, true);
    if (f->together && !st)
        st = wf_dist_leased(f->t) ? wf_fit_leased(f, epochs) : wf_fit_together(f, epochs);
    for (bool resumed = f->at.batch > 0;
         f->at.epoch < epochs && !st && f->end == WF_LIFE_TRAINING && !f->together;
         f->at.epoch++, resumed = false) {
        st = one_epoch(f, resumed);
        if (!st)
            st = wf_fit_after_epoch(f, epochs);
    }
    if (!st && !f->together)
        st = wf_fit_close(f, epochs);
    if (f->resume.t) {
        weft_ckpt_stats s;
        weft_status closed = wf_resume_end(&f->resume, &s);

        st = st ? st : closed;
        f->t->all_times.checkpoints = s.n_saved;
        f->t->all_times.stall_s = (double)s.stall_ns * 1e-9;
    }
    f->t->all_times.total_s = (double)(wf_now(f->t->ctx) - start) * 1e-9;
    return st;
}

/* Copies the options and the callbacks, which are as large as the caller's header says. */
static weft_status take_opts(weft_ctx *ctx, const weft_fit_opts *opts, weft_fit_opts *o)
{
    weft_status st = wf_opts_take(o, sizeof *o, opts, "weft_fit_opts");
    const weft_callback *theirs = o->callbacks;

    o->callbacks = NULL;
    if (st || o->n_callbacks <= 0)
        return st;
    o->callbacks = wf_alloc_n(ctx, o->n_callbacks, sizeof *o->callbacks);
    if (!o->callbacks)
        return wf_err_nomem(ctx, 0, "callbacks");
    for (int i = 0; i < o->n_callbacks && !st; i++)
        st = wf_opts_take_at(&o->callbacks[i], sizeof *o->callbacks, theirs, i, "weft_callback");
    return st;
}

weft_status weft_fit(weft_trainer *t, weft_data *d, weft_ds s, const weft_fit_opts *opts,
                     weft_history **history)
{
    return wf_fit_stepped(t, d, s, opts, NULL, history);
}

weft_status wf_fit_stepped(weft_trainer *t, weft_data *d, weft_ds s, const weft_fit_opts *opts,
                           const struct wf_fit_steps *steps, weft_history **history)
{
    weft_fit_opts o;
    struct fit f = {.t = t,
                    .d = d,
                    .o = &o,
                    .steps = steps,
                    .end = WF_LIFE_TRAINING,
                    .gated = -1,
                    .told = -1,
                    .val_at = -1};
    weft_status st = wf_life_allows(t, WF_CALL_FIT);

    if (!st)
        st = wf_life_move(t, WF_LIFE_OPENING);
    if (st)
        return st;
    st = take_opts(t->ctx, opts, &o);
    wf_ask_begin(t);
    t->times = t->all_times = (weft_times){0};
    t->nonfinite[0] = 0;
    t->n_changed = 0;
    t->keeper = NULL;
    t->round_end = steps ? steps->last : 0;
    if (!st)
        st = open_data(&f, s);
    if (!st)
        st = open_rest(&f);
    if (!st)
        st = wf_life_move(t, WF_LIFE_TRAINING);
    if (!st) {
        st = run(&f);
        t->decided = f.together ? f.decides : t->dist->first == 0;
        if (st)
            wf_step_drop(t);
    }
    st = end_life(&f, st);
    wf_ask_end(t);
    t->history = NULL;
    wf_nonfinite_free(&f.nonfinite);
    wf_deal_close(&f.deal);
    weft_iter_free(f.val_it);
    wf_free(t->ctx, f.feeds);
    wf_free(t->ctx, f.name);
    wf_free(t->ctx, f.value);
    wf_free(t->ctx, f.record);
    wf_free(t->ctx, f.origin);
    wf_free(t->ctx, o.callbacks);
    if (!st && history)
        *history = f.history;
    else
        weft_history_free(f.history);
    return st;
}
