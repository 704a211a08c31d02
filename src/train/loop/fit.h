/* fit.h - the state of a fit, for the files that make it: fit.c (epochs, batches, validation,
 * callbacks), validation.c, together.c (workers that train together: one of them decides). */
#ifndef WF_TRAIN_LOOP_FIT_H
#define WF_TRAIN_LOOP_FIT_H

#include "train/loop/checkpoint.h"
#include "train/loop/nonfinite.h"
#include "train/loop/progress.h"
#include "train/train.h"

/* A fit whose steps somebody takes one by one. between: by the thread of the fit, when all is ready
 * for the first step (logs NULL), and after each; decides: this worker. Training waits for it; a
 * status other than WEFT_OK ends the fit. */
struct wf_fit_steps {
    weft_status (*between)(void *arg, const weft_logs *logs, bool decides);
    void *arg;
    int64_t last; /* a run that begins at this step takes none; 0: not given */
};

struct fit {
    weft_trainer *t;
    weft_data *d;
    const weft_fit_opts *o;
    struct wf_feeding train, val;
    bool has_val;
    struct wf_deal deal; /* the training data */
    weft_iter *val_it;
    int64_t val_at;      /* the next batch of validation data; -1: not known */
    double validate_s;   /* of this epoch, with other workers */
    weft_tensor *feeds;  /* of a batch of validation data */
    int n_logs, n_train; /* of an epoch: the training ones, then the validation ones */
    const char **name;
    double *value;
    weft_history *history;
    int64_t cap_epochs;
    struct wf_progress progress;
    struct wf_resume resume;
    struct wf_nonfinite nonfinite;
    struct wf_fit_state at;
    const struct wf_fit_steps *steps; /* may be NULL */
    int64_t watched;                  /* when o->watch was called last, ns */
    int64_t shift; /* between the numbers of a batch: in its epoch, and as a step of the dealer */
    int64_t done;  /* steps and epochs of this run; 0: the newest checkpoint is current */
    enum wf_life end; /* how the run ended; WF_LIFE_TRAINING: it is still running */
    /* Workers that train together (together.c). */
    bool together;
    bool decides;   /* it has the callbacks' states: it decided last, or took over */
    bool each_step; /* a callback may change training after each batch: every step is a boundary */
    bool left;      /* it follows no more: another worker has ended the fit, or it leaves */
    bool cut;       /* the deciding worker ends the epoch before its end */
    bool sudden; /* at a boundary that the others do not expect: they may be computing the step */
    bool postponed;  /* for the second time: its checkpoint is written */
    int64_t tried;   /* when the directory of checkpoints was opened last, ns; 0: never */
    int64_t refused; /* when it could not be for the first time */
    bool warned;     /* that it could not be */
    int64_t called;  /* batch_end was called at this step; of each_step */
    bool took;       /* it has decided before: its callbacks are not as they were made */
    int64_t told;    /* the last checkpoint that the job knows of, as a step; -1: none */
    char *origin;    /* the loop as it began, as bytes; NULL: with a checkpoint */
    int64_t n_origin;
    int64_t gated; /* the step whose control record it has; -1: none */
    char *record;  /* the last one that another worker made */
    int64_t n_record;
    const char *values; /* in it: parameters that replace those of its step; NULL: none */
    int64_t n_values;
    int64_t values_at; /* the step of that record */
    /* With leases (leased.c): a step, its batch of the epoch, and where the data is then; steps
     * below `low` are done; halts: a boundary was requested; shown: the trainer's step, for who
     * takes the steps. */
    struct {
        int64_t step, batch, deal, low, shown;
        bool halts;
    } base;
    int64_t epoch_steps;
};

/* ---- fit.c ----------------------------------------------------------------------------------- */

/* weft_fit, step by step. */
weft_status wf_fit_stepped(weft_trainer *t, weft_data *d, weft_ds s, const weft_fit_opts *opts,
                           const struct wf_fit_steps *steps, weft_history **history);
/* Whoever takes the steps, if there is somebody. */
weft_status wf_fit_between(struct fit *f, const weft_logs *logs, bool decides);

enum wf_when { WF_TRAIN_BEGIN, WF_TRAIN_END, WF_EPOCH_BEGIN, WF_EPOCH_END, WF_BATCH_END };
weft_status wf_fit_call(struct fit *f, enum wf_when when, int64_t number, const weft_logs *logs);
weft_status wf_fit_add_epoch(void *arg, const double *row);
/* A checkpoint, if one is due or requested; for who watches: where training is. */
weft_status wf_fit_checkpoint(struct fit *f, bool decides);
void wf_fit_show(struct fit *f);
/* The batches from the current one to the end of the epoch; a stopped run leaves the rest. */
weft_status wf_fit_batches(struct fit *f);
/* The end of an epoch: validation, history, callbacks. */
weft_status wf_fit_end_epoch(struct fit *f);
/* What a run does that is interrupted in the middle of an epoch. */
weft_status wf_fit_leave(struct fit *f);
weft_status wf_fit_after_epoch(struct fit *f, int64_t epochs);
weft_status wf_fit_close(struct fit *f, int64_t epochs);

/* ---- validation.c ---------------------------------------------------------------------------- */

/* Whether this epoch ends with one. */
bool wf_validation_due(const struct fit *f);
/* Into the logs of the epoch: what all workers have found, or by this process alone. */
weft_status wf_validate(struct fit *f);
/* All workers evaluate. *again: it was given up, and the worker has followed the job elsewhere. */
weft_status wf_validate_dealt(struct fit *f, bool *again);
/* Whether they have done so, after the last update. */
bool wf_validation_done(const struct fit *f);

/* Another worker has decided. *at: the step that the record is for. */
weft_status wf_fit_follow(struct fit *f, int64_t *at);
/* This worker decides: what a run does between two epochs, or where it is stopped (ended); or
 * after a batch. */
weft_status wf_fit_decide_boundary(struct fit *f, int64_t epochs, bool ended);
weft_status wf_fit_decide_batch(struct fit *f);
/* Whether a callback of the user's is called after each batch. */
bool wf_fit_has_user_batches(const struct fit *f);

/* ---- leased.c -------------------------------------------------------------------------------- */

/* The epochs of a worker whose shards are leased one by one. */
weft_status wf_fit_leased(struct fit *f, int64_t epochs);

/* ---- back.c ---------------------------------------------------------------------------------- */

/* How fit began, for a job that has no checkpoint yet when it has to go back. */
weft_status wf_fit_keep_origin(struct fit *f);
/* Something has failed with st. If that is because the job goes back, so does the fit: to the
 * checkpoint, or to where it began. *back: it has, and is between two steps. */
weft_status wf_fit_go_back(struct fit *f, weft_status st, bool *back);

/* ---- together.c ------------------------------------------------------------------------------ */

/* The epochs of a worker among others, and their end. */
weft_status wf_fit_together(struct fit *f, int64_t epochs);
/* Before each step but the first of an epoch: whether it may be computed. *go false: the epoch is
 * left as f says. */
weft_status wf_fit_gate(struct fit *f, bool *go);
/* The data is at the batch that f->at names. */
weft_status wf_fit_seek(struct fit *f);
/* Whether this worker calls callbacks, and writes; it takes over if it has just become the one. */
weft_status wf_fit_decides(struct fit *f, bool *decides);
/* A step has failed with st. *again: it was given up because the job goes on elsewhere, and the
 * worker has followed. */
weft_status wf_fit_turn(struct fit *f, weft_status st, bool *again);

#endif
