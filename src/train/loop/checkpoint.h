/* checkpoint.h - training that survives: what a checkpoint of fit holds, written and read back. */
#ifndef WF_TRAIN_LOOP_CHECKPOINT_H
#define WF_TRAIN_LOOP_CHECKPOINT_H

#include "train/train.h"
#include "weft/ckpt.h"

#define WF_MAX_EPOCH ((int64_t)1 << 60) /* a larger one in a file is damage */
#define WF_CKPT_BASE "base.json" /* the architecture of the file that a job's model began with */

/* Where fit stands, besides weights and data position. */
struct wf_resume {
    weft_trainer *t;
    const weft_fit_opts *o;
    weft_ckpt_writer *writer; /* NULL: no checkpoints */
    int64_t last_step, last_skipped, last_ns;
    bool resumed;
    float given_rate;    /* of learning, as it was when fit began: by the user */
    const char *monitor; /* what is best; NULL: nobody asks */
    bool warned;         /* that nothing is saved while the loss is no number */
    /* tensors of a snapshot, named once */
    int64_t n_tensors;
    weft_ckpt_tensor *tensor;
    char *model; /* its JSON */
    struct wf_arena arena;
};

/* The state of a fit in the middle of an epoch. */
struct wf_fit_state {
    int64_t epoch, batch; /* batches done of this epoch; 0: it has not begun */
    int64_t ended; /* 0, or how many epochs were asked for when a callback ended the run for good */
    weft_iter *it;
    weft_history *history;
};

/* The places of all tensors of r->t: they do not move while the trainer is bound to its labels. */
weft_status wf_resume_list(struct wf_resume *r);
/* Opens the folder and, where it has a checkpoint, restores from it: state->epoch and batch are set, the rest is put in
 * place. Without a folder: nothing. */
weft_status wf_resume_begin(struct wf_resume *r, weft_trainer *t, const weft_fit_opts *o,
                            struct wf_fit_state *state,
                            weft_status (*add_epoch)(void *arg, const double *row), void *arg);
/* changes.c: what a checkpoint says of its trainer, beside tensors. */
#define WF_N_DESCRIBED 5
void wf_resume_describe(const weft_trainer *t, char (*text)[256], weft_ckpt_pair *pair);
/* Says what is not as it was when c was written; complete: nothing is left to train. An error where the weights of a complete run
 * would get another meaning. t->recorded becomes the run's file with all changes so far. */
weft_status wf_resume_changes(weft_trainer *t, weft_ckpt *c, bool complete);
/* The same for commands that look at a trained run: only of what the weights mean, t->n_changed of them. */
weft_status wf_changes_seen(weft_trainer *t, weft_ckpt *c);
/* Is a checkpoint due after this step? */
bool wf_resume_due(struct wf_resume *r, bool epoch_done);
/* Nothing is written while the loss is no number. */
weft_status wf_resume_save(struct wf_resume *r, const struct wf_fit_state *state,
                           const weft_logs *logs);
/* The epochs that a checkpoint of fit has behind it; one more could be added to ->value. batch: of the next epoch, as in
 * wf_fit_state. */
weft_status wf_resume_parse(weft_ctx *ctx, const char *blob, int64_t n, int64_t *batch,
                            weft_history **out);
weft_status wf_resume_history(weft_ctx *ctx, weft_ckpt *c, int64_t *batch, weft_history **out);
/* Gives a callback the state that one of its name left in a checkpoint, if there is one. */
weft_status wf_resume_callback(weft_ctx *ctx, weft_ckpt *c, const weft_callback *cb);
/* The same of a CSV file's text, which is cut up; name: in messages (history.c). */
weft_status wf_history_parse(weft_ctx *ctx, const char *name, char *text, weft_history **out);
/* Waits for what is being written. *stats: of all checkpoints of this run. */
weft_status wf_resume_end(struct wf_resume *r, weft_ckpt_stats *stats);

#endif
