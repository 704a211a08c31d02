/* checkpoint.h - resumable training: the contents of a checkpoint of fit, written and read. */
#ifndef WF_TRAIN_LOOP_CHECKPOINT_H
#define WF_TRAIN_LOOP_CHECKPOINT_H

#include "train/loop/fingerprint.h"
#include "train/step/deal.h"

#define WF_MAX_EPOCH ((int64_t)1 << 60) /* a larger value in a file means damage */
#define WF_CKPT_BASE "base.json" /* the architecture of the file that a job's model started from */

/* The position of fit, besides weights and data position. */
struct wf_resume {
    weft_trainer *t;
    const weft_fit_opts *o;
    weft_ckpt_writer *writer; /* NULL: no checkpoints */
    bool back;                /* the same run goes back: its settings and data are what they were */
    bool late;  /* it is opened later: wf_resume_open, and callbacks are restored later */
    char *kept; /* until then: their states */
    int64_t n_kept;
    bool highest; /* the best is the highest */
    int64_t last_step, last_skipped, last_ns;
    bool resumed;
    float given_rate;    /* learning rate when fit started, as given by the user */
    const char *monitor; /* the value that decides what is best; NULL: not needed */
    bool warned;         /* that nothing is saved while the loss is not finite */
    /* tensors of a snapshot, named once */
    int64_t n_tensors;
    weft_ckpt_tensor *tensor;
    struct wf_whole_table *tables; /* that the strategy holds */
    int64_t table_bytes;
    struct wf_later *later; /* a checkpoint that waits for the servers; NULL: none */
    char *model;            /* its JSON */
    struct wf_fprint print;
    char *print_text;
    struct wf_arena arena;
};

/* The state of a fit in the middle of an epoch. */
struct wf_fit_state {
    int64_t epoch, batch; /* completed batches of this epoch; 0: it has not started */
    int64_t ended; /* 0, or the requested number of epochs when a callback ended the run for good */
    struct wf_deal *deal; /* the data: its position is a step */
    weft_history *history;
    const weft_data *data; /* what is trained on */
    const struct wf_feeding *fed;
};

/* The addresses of all tensors of r->t: they do not move while the trainer is bound to its
 * labels. */
weft_status wf_resume_list(struct wf_resume *r);
weft_status wf_resume_add(struct wf_resume *r, int64_t *cap, const char *name, const char *section,
                          const weft_tensor *tensor);
/* whole_tables.c: a table that the strategy holds gets memory here, and becomes tensors of the
 * checkpoint; its rows come here before one is written; and go there after one was read. */
weft_status wf_whole_add(struct wf_resume *r, int64_t *cap, const struct wf_segment *seg);
weft_status wf_whole_bring(const struct wf_resume *r);
weft_status wf_whole_give(const struct wf_resume *r);
void wf_whole_free(struct wf_resume *r);
/* table_rows.c: tables that parameter servers hold; whether there are any. */
bool wf_stored_any(const struct wf_resume *r);
/* Whether a checkpoint has them; their rows, to
 * the servers. And one of the model's tensors, in memory, also where it is a table that has rows
 * only. */
weft_status wf_stored_check(const struct wf_resume *r, weft_ckpt *c);
weft_status wf_stored_give(const struct wf_resume *r, weft_ckpt *c);
weft_status wf_stored_load(weft_ctx *ctx, const struct wf_store *store, weft_ckpt *c,
                           const char *name, const weft_tensor *to);
/* The same of a weight: weft_trainer_weight has given `to`. */
weft_status wf_stored_weight(weft_trainer *t, weft_ckpt *c, const char *name,
                             const weft_tensor *to);
/* served_save.c: servers write what they hold. data: all but the tensors, which are those of r. A
 * version that cannot be saved is reported in the log. */
weft_status wf_served_save(struct wf_resume *r, const weft_ckpt_data *data);
/* later.c: of a job whose tables servers hold, a checkpoint of what callbacks have just set. All of
 * it but the tensors is copied now, in place of the one that was kept before; it is saved when the
 * servers have the rest, or dropped. */
weft_status wf_later_keep(struct wf_resume *r, const weft_ckpt_data *data);
weft_status wf_resume_save_later(struct wf_resume *r);
void wf_resume_drop_later(struct wf_resume *r);
/* Opens the directory and, if it has a checkpoint, restores from it: state->epoch and batch are
 * set, the rest is put in place. Without a directory: nothing. */
weft_status wf_resume_begin(struct wf_resume *r, weft_trainer *t, const weft_fit_opts *o,
                            struct wf_fit_state *state,
                            weft_status (*add_epoch)(void *arg, const double *row), void *arg);
/* Goes back to the checkpoint of this step, in the directory: as wf_resume_begin does, but for the
 * position of the data. WEFT_ENOENT: there is none. Callbacks get their states by
 * wf_resume_callbacks. */
weft_status wf_resume_back(struct wf_resume *r, int64_t step, struct wf_fit_state *s,
                           weft_status (*add_epoch)(void *arg, const double *row), void *arg);
/* The same to what wf_resume_put has given; tensors are not in it. */
weft_status wf_resume_back_to(struct wf_resume *r, struct wf_fit_state *s, const char *p, int64_t n,
                              weft_status (*add_epoch)(void *arg, const double *row), void *arg);
/* Of one that is late: callbacks get the states of the checkpoint, which may cut files back to it.
 * Nothing, if they have them already or there is none. */
weft_status wf_resume_callbacks(struct wf_resume *r);
/* changes.c: reports what has changed since c was written; complete: nothing is left to train. An
 * error if the weights of a complete run would get another meaning. t->recorded becomes the run's
 * file with all changes so far. */
weft_status wf_resume_changes(weft_trainer *t, weft_ckpt *c, const struct wf_fprint *here,
                              bool complete);
/* The same for commands that use a trained run: only what affects the meaning of the weights,
 * t->n_changed of them. */
weft_status wf_changes_seen(weft_trainer *t, weft_ckpt *c);
/* Whether nothing is left to train after this checkpoint, in a run of so many epochs. */
bool wf_resume_complete(weft_ctx *ctx, weft_ckpt *c, int64_t epochs);
/* Whether a checkpoint is due after this step. */
bool wf_resume_due(struct wf_resume *r, bool epoch_done);
/* Nothing is written while the loss is not finite. */
weft_status wf_resume_save(struct wf_resume *r, const struct wf_fit_state *state,
                           const weft_logs *logs);
/* The completed epochs of a checkpoint of fit; one more could be added to ->value. batch: of the
 * next epoch, as in wf_fit_state. */
weft_status wf_resume_parse(weft_ctx *ctx, const char *blob, int64_t n, int64_t *batch,
                            weft_history **out);
weft_status wf_resume_history(weft_ctx *ctx, weft_ckpt *c, int64_t *batch, weft_history **out);
/* Gives a callback the state that one of its name left in a checkpoint, if there is one. */
weft_status wf_resume_callback(weft_ctx *ctx, weft_ckpt *c, const weft_callback *cb);
/* The same of a CSV file's text, which is cut up; name: in messages (history.c). */
weft_status wf_history_parse(weft_ctx *ctx, const char *name, char *text, weft_history **out);
/* Opens the directory for writing, if it is not and there is one. */
weft_status wf_resume_open(struct wf_resume *r);
/* Closes it: another process writes. */
weft_status wf_resume_shut(struct wf_resume *r);
/* The loop as bytes: what a checkpoint has besides tensors and the position of the data. */
weft_status wf_resume_put(const struct wf_resume *r, const struct wf_fit_state *s,
                          struct wf_buf *out);
/* And back: position, learning rate and history; with `callbacks` also their states. The sums of
 * the epoch stay as they are. */
weft_status wf_resume_take(const struct wf_resume *r, struct wf_fit_state *s, const char *p,
                           int64_t n, bool callbacks,
                           weft_status (*add_epoch)(void *arg, const double *row), void *arg);
/* Waits for pending writes. *stats: of all checkpoints of this run. */
weft_status wf_resume_end(struct wf_resume *r, weft_ckpt_stats *stats);

#endif
