/* back.c - a fit of several workers goes back: servers have died with the only copy of parameters.
 * Every worker goes to the last checkpoint that the job knows of, or to where the fit began;
 * callbacks and what they write go back with it.
 *
 * Kept true: whatever happened after that step is as if it had not; the callbacks' states are
 * taken by the worker that decides next. */
#include "train/callback/callback.h"
#include "train/loop/fit.h"
#include "train/step/dist.h"

enum { MAX_TRIES = 8 }; /* servers that die again and again */

weft_status wf_fit_keep_origin(struct fit *f)
{
    struct wf_buf b;
    weft_status st;

    if (f->resume.resumed)
        return WEFT_OK;
    wf_buf_init(&b, f->t->ctx, (int64_t)1 << 30);
    st = wf_resume_put(&f->resume, &f->at, &b);
    f->origin = st ? NULL : wf_alloc(f->t->ctx, (size_t)b.len + 1);
    if (!st && !f->origin)
        st = wf_err_nomem(f->t->ctx, (size_t)b.len, "fit");
    if (!st) {
        memcpy(f->origin, b.data, (size_t)b.len);
        f->n_origin = b.len;
    }
    wf_buf_free(&b);
    return st;
}

/* Nothing is under way, and no decision is known. */
static weft_status forget(struct fit *f)
{
    weft_status st = WEFT_OK;

    (void)wf_resume_shut(&f->resume); /* what could not be written is in the log */
    if (f->t->life == WF_LIFE_CLOSING)
        st = wf_life_move(f->t, WF_LIFE_TRAINING);
    if (!st && f->took)
        st = wf_fit_call(f, WF_TRAIN_BEGIN, 0, NULL);
    wf_free(f->t->ctx, f->record);
    f->record = NULL;
    f->values = NULL;
    f->decides = f->took = f->left = f->cut = f->postponed = f->warned = false;
    f->end = WF_LIFE_TRAINING;
    f->gated = f->called = f->told = f->val_at = -1;
    f->tried = f->refused = 0;
    f->validate_s = 0;
    return st;
}

/* The trainer and the loop, but for the data. */
static weft_status restore(struct fit *f, int64_t step)
{
    weft_status st;

    wf_dist_back_begin(f->t);
    if (f->origin && wf_dist_back_origin(f->t, step)) {
        wf_log(f->t->ctx, WEFT_LOG_WARN,
               "servers died with the only copy of parameters, before the first checkpoint: "
               "training begins again, with step %lld, and so do callbacks, CSV files and "
               "TensorBoard",
               (long long)step);
        return wf_resume_back_to(&f->resume, &f->at, f->origin, f->n_origin, wf_fit_add_epoch, f);
    }
    st = wf_resume_back(&f->resume, step, &f->at, wf_fit_add_epoch, f);
    if (st)
        return wf_err_wrap(WEFT_EPEER,
                           "servers died with the only copy of parameters, and the job cannot go "
                           "back to step %lld",
                           (long long)step);
    wf_log(f->t->ctx, WEFT_LOG_WARN,
           "servers died with the only copy of parameters: training goes back to the checkpoint of "
           "step %lld, epoch %lld, batch %lld, and so do callbacks, CSV files and TensorBoard",
           (long long)step, (long long)f->at.epoch + 1, (long long)f->at.batch);
    return WEFT_OK;
}

static weft_status go_back(struct fit *f, int64_t step, bool *again)
{
    weft_trainer *t = f->t;
    weft_status st = forget(f);

    if (!st)
        st = restore(f, step);
    if (st)
        return st;
    if (f->history->n_epochs)
        memcpy(f->value, f->history->value + (f->history->n_epochs - 1) * f->n_logs,
               (size_t)f->n_logs * sizeof *f->value);
    t->began_at = f->at.batch;
    f->resume.last_step = step;
    f->resume.last_skipped = weft_trainer_skipped(t);
    f->resume.last_ns = wf_now(t->ctx);
    if (f->at.batch == 0)
        wf_pass_begin(t);
    st = wf_fit_seek(f);
    return st ? st : wf_dist_back_end(t, step, again);
}

weft_status wf_fit_go_back(struct fit *f, weft_status st, bool *back)
{
    int64_t step;
    bool again = true;

    *back = false;
    if (!st && (f->left || f->end != WF_LIFE_TRAINING)) /* it is done */
        return WEFT_OK;
    for (int i = 0; again && i < MAX_TRIES && wf_dist_goes_back(f->t, &step); i++) {
        *back = true;
        again = false;
        st = go_back(f, step, &again);
        if (st)
            return st;
    }
    return st;
}
