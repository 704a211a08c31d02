/* together.c - workers that train together: one of them decides, all follow.
 *
 * At a boundary (the beginning of training, the end of an epoch, with some callbacks every step)
 * the deciding worker validates, calls the callbacks and writes checkpoints; what comes of it
 * (position, learning rate, history, the callbacks' states, whether training ends) is the control
 * record of the next step. All workers wait for it. If the deciding worker dies, the next one
 * continues from the last record. A worker that was left behind, or has just started, takes the
 * record and the version that the job is at.
 *
 * Kept true: callbacks are called, and files written, by the deciding worker alone; a step is
 * computed with the learning rate of the last record. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "ckpt/ckpt.h"
#include "train/callback/callback.h"
#include "train/loop/fit.h"
#include "train/step/dist.h"

enum { RECORD_VERSION = 3, AGAIN = 100 };
#define MAX_RECORD ((int64_t)1 << 30)
#define TRY_NS 1000000000
#define PATIENCE_NS 5000000000

/* ---- records --------------------------------------------------------------------------------- */

/* steps: there is a step after it in any case. */
static weft_status put_record(const struct fit *f, bool steps, struct wf_buf *b)
{
    struct wf_buf values;
    weft_status st = WEFT_OK;

    wf_buf_init(&values, f->t->ctx, MAX_RECORD);
    if (steps || wf_dist_changed(f->t)) /* by a callback */
        st = wf_dist_put_values(f->t, f->sudden && f->end != WF_LIFE_TRAINING, &values);
    wf_put_i64(b, RECORD_VERSION);
    wf_put_i64(b, f->end);
    wf_put_bytes(b, values.data, values.len);
    wf_buf_free(&values);
    st = st ? st : b->st;
    return st ? st : wf_resume_put(&f->resume, &f->at, b);
}

static weft_status take_record(struct fit *f, const char *p, int64_t n, bool callbacks)
{
    struct wf_reader r = {p, p + n, WEFT_OK};
    weft_status st;

    if (wf_get_i64(&r) != RECORD_VERSION && !r.st)
        r.st = wf_err(WEFT_EPEER, "it was written by another version of weft");
    f->end = (enum wf_life)wf_get_range(&r, WF_LIFE_TRAINING, WF_N_LIVES - 1, "a state");
    f->values = wf_get_bytes(&r, &f->n_values);
    if (f->n_values == 0)
        f->values = NULL;
    st = r.st
             ? r.st
             : wf_resume_take(&f->resume, &f->at, r.p, r.end - r.p, callbacks, wf_fit_add_epoch, f);
    return st ? wf_err_wrap(st, "control record") : WEFT_OK;
}

/* Another worker decides, and needs the directory of checkpoints. What this one could not write any
 * more, because servers took it for dead or the disk is full, is in the log: the job does not end
 * for it. */
static void hand_over(struct fit *f)
{
    (void)wf_resume_shut(&f->resume);
}

/* Another worker has decided. *at: the step that the record is for. */
weft_status wf_fit_follow(struct fit *f, int64_t *at)
{
    char *p = NULL;
    int64_t n = 0;
    weft_status st = wf_dist_record(f->t, &p, &n, at);

    if (!st)
        st = take_record(f, p, n, false);
    if (st) {
        wf_free(f->t->ctx, p);
        return st;
    }
    wf_free(f->t->ctx, f->record);
    f->record = p;
    f->n_record = n;
    f->gated = f->values_at = *at;
    f->left = f->end != WF_LIFE_TRAINING;
    if (f->decides)
        hand_over(f);
    f->decides = false;
    return WEFT_OK;
}

/* The directory of checkpoints may still be open in the worker that decided before, until it has
 * heard that it does no more: it is tried again. */
static void try_writing(struct fit *f, bool at_once)
{
    int64_t now = wf_now(f->t->ctx);
    weft_status st;

    if (!f->decides || f->resume.writer || (!at_once && now - f->tried < TRY_NS))
        return;
    f->tried = now;
    st = wf_resume_open(&f->resume);
    if (st == WEFT_OK) {
        f->refused = 0;
        f->warned = false;
        return;
    }
    if (!f->refused)
        f->refused = now;
    if ((st != WEFT_ESTATE || now - f->refused > PATIENCE_NS) && !f->warned) {
        wf_log(f->t->ctx, WEFT_LOG_WARN, "%s; training continues without checkpoints",
               weft_error());
        f->warned = true;
    }
}

/* The run ends, or stops: its last checkpoint is worth waiting for. */
static void await_writing(struct fit *f)
{
    if (!f->o->checkpoint)
        return;
    try_writing(f, true);
    for (int i = 0; i < AGAIN && f->decides && !f->resume.writer && !f->warned; i++) {
        nanosleep(&(struct timespec){.tv_nsec = PATIENCE_NS / AGAIN}, NULL);
        try_writing(f, true);
    }
    if (f->decides && !f->resume.writer)
        wf_log(f->t->ctx, WEFT_LOG_WARN,
               "%s: no checkpoint of step %lld, with which this run ends: another process, perhaps "
               "a worker that hangs, has the directory open",
               f->o->checkpoint, (long long)weft_trainer_step(f->t));
}

/* A directory that cannot be written is an error when a run begins; one that is in use may be free
 * in a moment. */
static weft_status begin_writing(struct fit *f)
{
    weft_status st = wf_resume_open(&f->resume);

    return st == WEFT_ESTATE ? WEFT_OK : st;
}

/* Callbacks continue where the worker that decided before left them. */
static weft_status take_over(struct fit *f)
{
    struct wf_fit_state at = f->at;
    weft_status st = WEFT_OK;

    if (f->decides)
        return WEFT_OK;
    if (f->record) {
        wf_log(f->t->ctx, WEFT_LOG_INFO, "step %lld: this worker decides from now on",
               (long long)weft_trainer_step(f->t));
        st = wf_fit_call(f, WF_TRAIN_BEGIN, 0, NULL);
        if (!st)
            st = take_record(f, f->record, f->n_record, true);
        f->values = NULL; /* they have taken effect */
        f->at = at;
    } else { /* no one has decided since the checkpoint */
        st = begin_writing(f);
        if (!st)
            st = wf_resume_callbacks(&f->resume);
    }
    f->decides = !st;
    f->took |= f->decides;
    if (!st)
        try_writing(f, true);
    return st;
}

/* The job may go back to a checkpoint once it is complete. */
static void tell_saved(struct fit *f)
{
    weft_ckpt_stats s;

    if (!f->resume.writer)
        return;
    wf_ckpt_writer_hold(f->resume.writer, wf_dist_kept(f->t));
    weft_ckpt_writer_stats(f->resume.writer, &s);
    if (s.n_saved == 0 || s.last_step == f->told)
        return;
    f->told = s.last_step;
    wf_dist_saved(f->t, s.last_step);
}

weft_status wf_fit_decides(struct fit *f, bool *decides)
{
    *decides = !f->left && wf_dist_decides(f->t);
    if (!*decides && f->decides) /* before the record of the one that decides now */
        hand_over(f);
    if (*decides)
        try_writing(f, false);
    if (*decides)
        tell_saved(f);
    return *decides ? take_over(f) : WEFT_OK;
}

/* ---- the position ---------------------------------------------------------------------------- */

static bool is_endless(const struct fit *f)
{
    return wf_ds_node(f->d, f->train.ds)->count == WEFT_ENDLESS;
}

weft_status wf_fit_seek(struct fit *f)
{
    int64_t first = f->o->initial_epoch;

    if (!is_endless(f))
        return wf_deal_seek(&f->deal, f->at.epoch, f->at.batch);
    return wf_deal_seek(&f->deal, first,
                        (f->at.epoch - first) * f->o->steps_per_epoch + f->at.batch);
}

/* The record says where to go on: usually with the next epoch, or where this worker is. */
static weft_status place(struct fit *f, const struct wf_fit_state *was)
{
    bool next = f->at.batch == 0 && f->at.epoch == was->epoch + 1;

    if (f->left)
        return WEFT_OK;
    if (f->at.batch == 0)
        wf_pass_begin(f->t);
    if (f->at.batch == 0 && !is_endless(f))
        return wf_deal_begin(&f->deal, f->at.epoch);
    if (next || (f->at.epoch == was->epoch && f->at.batch == was->batch))
        return WEFT_OK;
    return wf_fit_seek(f);
}

/* How many of the steps that the last record asks for are not complete. */
static int64_t steps_left(const struct fit *f)
{
    return f->values ? wf_max_i64(wf_dist_set_steps(f->t, f->values, f->n_values) -
                                      (wf_dist_at(f->t) - f->values_at),
                                  0)
                     : 0;
}

/* The last record has parameters: all workers replace those of the servers, which takes a step or
 * some. Then the record has taken effect. */
static weft_status replace(struct fit *f)
{
    bool again;
    weft_status st;

    if (!f->values)
        return WEFT_OK;
    st = wf_dist_set(f->t, f->values, f->n_values, wf_dist_at(f->t) - f->values_at,
                     f->at.batch == 0 && f->end == WF_LIFE_TRAINING);
    if (st)
        return wf_fit_turn(f, st, &again);
    f->values = NULL;
    f->gated = wf_dist_at(f->t);
    return WEFT_OK;
}

static weft_status follow_here(struct fit *f)
{
    struct wf_fit_state was = f->at;
    int64_t at;
    weft_status st = wf_fit_follow(f, &at);

    if (!st)
        st = place(f, &was);
    return st ? st : replace(f);
}

/* The job is at another step. */
static weft_status follow_there(struct fit *f)
{
    int64_t at, batch;
    bool again;
    weft_status st = wf_fit_follow(f, &at);

    if (!st)
        st = wf_dist_seek(f->t, &batch);
    f->gated = -1; /* the strategy does not know yet that this worker is there */
    if (st)
        return wf_fit_turn(f, st, &again);
    if (wf_dist_at(f->t) != at && !steps_left(f)) {
        f->values = NULL; /* the servers have them */
        f->at.batch = batch;
    } else if (f->at.batch == 0 && !f->left) {
        wf_pass_begin(f->t);
    }
    st = replace(f);
    f->values = NULL;
    if (st || f->left)
        return st;
    wf_log(f->t->ctx, WEFT_LOG_INFO, "following the job from step %lld: epoch %lld, batch %lld",
           (long long)weft_trainer_step(f->t), (long long)f->at.epoch + 1, (long long)f->at.batch);
    return wf_fit_seek(f);
}

/* What a turn says, but to decide. */
static weft_status obey(struct fit *f, enum wf_turn turn)
{
    return turn == WF_TURN_FOLLOW  ? follow_here(f)
           : turn == WF_TURN_MOVED ? follow_there(f)
                                   : WEFT_OK;
}

/* In the worker's own record. */
static void find_values(struct fit *f, const char *p, int64_t n)
{
    struct wf_reader r = {p, p + n, WEFT_OK};

    (void)wf_get_i64(&r);
    (void)wf_get_i64(&r);
    f->values = wf_get_bytes(&r, &f->n_values);
    if (f->n_values == 0)
        f->values = NULL;
}

/* The checkpoint that waited for what callbacks have set: the servers have it now, if the job is
 * where this worker is. */
static weft_status save_later(struct fit *f)
{
    if (f->decides && f->gated == wf_dist_at(f->t) && f->resume.writer)
        return wf_resume_save_later(&f->resume);
    wf_resume_drop_later(&f->resume);
    return WEFT_OK;
}

/* Gives the others what f says. */
static weft_status decide(struct fit *f, bool steps)
{
    struct wf_buf b;
    enum wf_turn turn;
    weft_status st;

    wf_buf_init(&b, f->t->ctx, MAX_RECORD);
    st = put_record(f, steps, &b);
    if (!st)
        st = wf_dist_decide(f->t, b.data, b.len, &turn);
    if (!st && turn == WF_TURN_GO) {
        f->gated = f->values_at = wf_dist_at(f->t);
        find_values(f, b.data, b.len);
        st = replace(f);
        f->values = NULL;
        if (!st)
            st = save_later(f);
    } else if (!st) {
        st = obey(f, turn);
    }
    wf_buf_free(&b);
    return st;
}

/* ---- boundaries ------------------------------------------------------------------------------ */

/* The batch that the last worker trained, and that died before it called the callbacks. */
static weft_status end_batch(struct fit *f)
{
    weft_logs logs;

    if (!f->each_step || f->at.batch == 0 || f->called == wf_dist_trained(f->t) ||
        wf_dist_was_set(f->t) || wf_validation_done(f)) /* there was a record after that step */
        return WEFT_OK;
    f->called = wf_dist_trained(f->t);
    logs = wf_train_logs(f->t);
    return wf_fit_call(f, WF_BATCH_END, f->at.batch - 1, &logs);
}

static weft_status end_epoch(struct fit *f, int64_t epochs)
{
    weft_status st = end_batch(f);
    bool leaves =
        wf_interrupted(f->t) && (f->at.batch == 0 || (f->resume.writer && !wf_validation_done(f)));

    if (!st && leaves)
        st = wf_fit_leave(f);
    else if (!st)
        st = wf_fit_end_epoch(f);
    if (!st)
        st = wf_fit_after_epoch(f, epochs);
    if (leaves && f->resume.later) /* see postpones */
        return st;
    f->at.epoch++;
    f->at.batch = 0;
    return st;
}

/* A run that is to stop, and whose checkpoint waits for what callbacks have set: the servers get
 * that first, and the checkpoint is written, as if training continued. Then it ends: train_end may
 * set other values, which are not in that checkpoint. */
static bool postpones(struct fit *f)
{
    if (f->end != WF_LIFE_PAUSED || !f->resume.later)
        return false;
    f->end = WF_LIFE_TRAINING;
    f->cut = f->postponed = true;
    return true;
}

static weft_status begin_epoch(struct fit *f)
{
    if (wf_asked(f->t, WF_ASK_STOP) && (f->at.batch == 0 || !f->done))
        return wf_fit_leave(f);
    if (f->at.batch > 0) /* it resumes */
        return WEFT_OK;
    wf_pass_begin(f->t);
    return wf_fit_call(f, WF_EPOCH_BEGIN, f->at.epoch, NULL);
}

/* Whether a run that has just begun resumes after the last batch of an epoch. */
static weft_status is_after_epoch(struct fit *f, bool *after)
{
    bool any = true;
    weft_status st = WEFT_OK;

    if (f->at.batch > 0 && !f->done)
        st = wf_deal_next(&f->deal, f->at.epoch, &any);
    *after = !any || (f->o->steps_per_epoch && f->at.batch >= f->o->steps_per_epoch);
    return st;
}

/* This worker decides: what a run does between two steps. */
weft_status wf_fit_decide_boundary(struct fit *f, int64_t epochs, bool ended)
{
    struct wf_fit_state was = f->at;
    weft_status st = take_over(f);

    if (wf_interrupted(f->t))
        await_writing(f);
    else
        try_writing(f, true);
    if (!st && !ended)
        st = is_after_epoch(f, &ended);
    if (!st && ended)
        st = end_epoch(f, epochs);
    if (!st && f->end == WF_LIFE_TRAINING && f->at.epoch < epochs)
        st = begin_epoch(f);
    if (!st && !postpones(f) && (f->end != WF_LIFE_TRAINING || f->at.epoch >= epochs)) {
        await_writing(f);
        st = wf_fit_close(f, epochs);
    }
    if (!st)
        st = decide(f, false);
    if (st || f->end != WF_LIFE_TRAINING || f->gated != wf_dist_at(f->t))
        return st;
    return f->decides ? place(f, &was) : WEFT_OK;
}

weft_status wf_fit_decide_batch(struct fit *f)
{
    weft_status st = take_over(f);

    try_writing(f, true);
    if (!st)
        st = end_batch(f);
    return st ? st : decide(f, false);
}

/* Between two epochs, or at the end. *go_on: batches can be trained. */
static weft_status boundary(struct fit *f, int64_t epochs, bool ended)
{
    bool cut = f->cut;
    enum wf_turn turn;
    weft_status st = WEFT_OK;

    f->sudden = cut && (!f->each_step || wf_dist_was_set(f->t));
    st = wf_dist_turn(f->t, !cut, cut, &turn);

    f->cut = false;
    if (st)
        return st;
    if (turn == WF_TURN_DECIDE)
        return wf_fit_decide_boundary(f, epochs, ended);
    if (turn != WF_TURN_GO || cut)
        return obey(f, turn);
    /* a fit that begins where another one ended: every worker begins by itself */
    f->gated = wf_dist_at(f->t);
    st = begin_epoch(f);
    return st || f->at.batch > 0 ? st : wf_deal_begin(&f->deal, f->at.epoch);
}

/* Best weights of tables are restored by a step of all workers, who have to expect it: a run that a
 * callback has ended in the middle of an epoch ends after it. */
static bool waits_for_epoch(const struct fit *f)
{
    return f->t->keeper && !f->each_step && !wf_interrupted(f->t);
}

weft_status wf_fit_gate(struct fit *f, bool *go)
{
    enum wf_turn turn = WF_TURN_GO;
    bool decides;
    weft_status st = WEFT_OK;

    *go = !f->left && !f->cut;
    if (!*go)
        return WEFT_OK;
    if (f->gated == wf_dist_at(f->t)) { /* the servers do not know yet what comes after a set */
        if (wf_dist_was_set(f->t))
            st = wf_dist_turn(f->t, false, false, &turn);
        if (!st)
            st = obey(f, turn);
        *go = !f->left;
        return st;
    }
    if (wf_asked(f->t, WF_ASK_STOP)) {
        st = wf_fit_decides(f, &decides);
        if (!st && decides && !waits_for_epoch(f)) { /* the others do not expect this boundary */
            f->cut = true;
            *go = false;
            return WEFT_OK;
        }
        if (!st && wf_interrupted(f->t)) { /* the others compute its shards */
            f->end = WF_LIFE_PAUSED;
            f->left = true;
            *go = false;
            return WEFT_OK;
        }
    }
    if (!st)
        st = wf_dist_turn(f->t, f->each_step && !wf_dist_was_set(f->t), false, &turn);
    if (!st && turn == WF_TURN_DECIDE) {
        st = take_over(f);
        if (!st)
            st = end_batch(f);
        if (!st && wf_asked(f->t, WF_ASK_STOP) && !waits_for_epoch(f)) {
            f->cut = true;
            *go = false;
            return WEFT_OK;
        }
        if (!st)
            st = decide(f, false);
    } else if (!st) {
        st = obey(f, turn);
    }
    *go = !f->left;
    return st;
}

/* Before all workers validate: a callback may have changed training after the last batch, and the
 * others do not know. So there is a record, with a step after it: the end of the epoch has one,
 * too. */
static weft_status gate_validation(struct fit *f)
{
    enum wf_turn turn = WF_TURN_GO;
    weft_status st;

    if (!f->each_step || wf_dist_was_set(f->t) || wf_dist_validation(f->t).begun)
        return WEFT_OK;
    st = wf_dist_turn(f->t, true, false, &turn);
    if (st || turn != WF_TURN_DECIDE)
        return st ? st : obey(f, turn);
    st = take_over(f);
    if (!st)
        st = end_batch(f);
    return st ? st : decide(f, true);
}

weft_status wf_fit_turn(struct fit *f, weft_status st, bool *again)
{
    enum wf_turn turn;

    *again = wf_dist_turned(f->t, &turn);
    return *again ? obey(f, turn) : st;
}

/* ---- the run --------------------------------------------------------------------------------- */

bool wf_fit_has_user_batches(const struct fit *f)
{
    for (int i = 0; i < f->o->n_callbacks; i++)
        if (f->o->callbacks[i].batch_end && !wf_callback_is_own(&f->o->callbacks[i]))
            return true;
    return false;
}

/* The batches of an epoch, and the step that they may leave unfinished. *ended: the end of the
 * epoch is due. */
static weft_status train(struct fit *f, bool *ended)
{
    bool again = false;
    weft_status st;

    wf_nonfinite_keep(&f->nonfinite, f->t, &f->at, f->at.batch > 0);
    if (f->decides)
        wf_progress_epoch(&f->progress, f->at.epoch);
    else
        wf_progress_clock(&f->progress);
    st = wf_fit_batches(f);
    if (!st && !f->left) {
        st = wf_step_flush(f->t);
        if (st)
            st = wf_fit_turn(f, st, &again);
    }
    if (!st && !again && !f->left) {
        st = wf_deal_commit(&f->deal);
        if (!st && f->at.batch == 0 && !f->cut)
            st = wf_err(WEFT_EDATA, "fit: the dataset has no batches");
    }
    *ended = !again && !f->left;
    return st;
}

/* The validation of an epoch that has ended. One that decides and is to stop leaves it to the run
 * that resumes. *ended false: the worker is elsewhere now. */
static weft_status validate(struct fit *f, bool *ended)
{
    bool again = false, stops = f->decides && wf_interrupted(f->t) && f->resume.writer;
    int64_t epoch = f->at.epoch, batch = f->at.batch;
    weft_status st = WEFT_OK;

    if (!*ended || f->cut || stops || !wf_validation_due(f))
        return WEFT_OK;
    st = gate_validation(f);
    again = f->at.epoch != epoch || f->at.batch != batch;
    if (!st && !again && !f->left)
        st = wf_validate_dealt(f, &again);
    *ended = *ended && !again && !f->left;
    return st;
}

weft_status wf_fit_together(struct fit *f, int64_t epochs)
{
    bool ended = false, due = true, begun = false, back;
    weft_status st = wf_fit_keep_origin(f);

    f->each_step = wf_fit_has_user_batches(f);
    f->called = f->at.batch > 0 ? weft_trainer_step(f->t) : -1; /* before the checkpoint */
    if (f->steps && f->steps->last && weft_trainer_step(f->t) >= f->steps->last)
        wf_ask(f->t, WF_ASK_INTERRUPT);
    while (!st && !f->left && f->end == WF_LIFE_TRAINING) {
        if (due)
            st = boundary(f, epochs, ended);
        if (!st && !f->left && f->end == WF_LIFE_TRAINING) {
            if (!begun)
                st = wf_fit_between(f, NULL, f->decides);
            begun = true;
            if (!st)
                st = train(f, &ended);
            if (!st)
                st = validate(f, &ended);
            due = ended;
        }
        st = wf_fit_go_back(f, st, &back);
        due |= back;
        ended = ended && !back;
    }
    wf_dist_led(f->t, f->left && f->end == WF_LIFE_PAUSED && wf_asked(f->t, WF_ASK_INTERRUPT));
    if (!st && f->t->life == WF_LIFE_TRAINING)
        st = wf_life_move(f->t, WF_LIFE_CLOSING);
    return st;
}
