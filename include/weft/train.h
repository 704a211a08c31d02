/* weft/train.h - training: compile, fit, evaluate, predict, callbacks.
 *
 *   weft_trainer *t;
 *   weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "adam",
 *                             .loss = "sparse_categorical_crossentropy from_logits=true",
 *                             .metrics = "accuracy"), &t);
 *   weft_fit(t, d, train,
 *            WEFT_OPTS(weft_fit_opts, .epochs = 5, .batch = 64, .validation = test), NULL);
 *
 * Terms have the same meaning as in Keras: epochs, steps_per_epoch, validation_split, partial
 * batches, epoch averages. Data comes from a dataset (weft/data.h): columns with the names of the
 * model's inputs are fed to them (with one input, the only feature column), label columns to the
 * losses (by the name of the output, or in order), and a weight column weights samples. A trainer
 * may be used by one thread at a time; the model must outlive it. */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include "weft/data_learned.h"
#include "weft/fn.h"
#include "weft/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_trainer weft_trainer;

typedef struct weft_compile_opts {
    size_t size;
    const char *optimizer; /* "adam learning_rate=0.001 clipnorm=1"; NULL: "rmsprop" */
    const char *schedule;  /* "cosine_decay decay_steps=1000 …" instead of a constant rate; NULL:
                            * none */
    const char *loss; /* a loss, or one per output separated by semicolons, "none" for an output
                       * that is not trained; NULL: only losses added by layers */
    const double *loss_weights; /* one per output; NULL: all 1 */
    /* Separated by commas, "accuracy, Precision thresholds=[0.3,0.6]"; semicolons between outputs.
     * Not weighted. A metric with one result per class, output or threshold (average=none, a list
     * of thresholds) is logged under several names: f1_score_0, precision_0.3. Duplicate names get
     * a number: auc, auc_1; or set name=auc_pr. */
    const char *metrics;
    const char *weighted_metrics;
    /* A sample whose label is below n_class_weights has the weight class_weights[label], only in
     * training. They apply to the output whose loss has class labels (a cross-entropy, a hinge); if
     * there are several, class_weights_output names one. */
    int n_class_weights;
    const double *class_weights;
    int shards;     /* logical shards of a step, 0: 1; results depend on it bit for bit, but not on
                     * where the shards are computed */
    int accumulate; /* batches whose gradients are accumulated before an update; 0: 1 */
    const char
        *precision;       /* "f32" (NULL), "tf32", "bf16" or "f16": the type that layers compute in;
                            * masters stay f32. tf32: f32, but matrix products on devices that have
                            * units for TF32 use them (weft_fn_opts.tf32) */
    const char *strategy; /* a name from weft/dist.h; NULL: that of the model's scope, or "local" */
    bool trap_numerics;   /* fail at the op that produces a NaN or an infinity */
    const char *class_weights_output; /* NULL: the only one with class labels */
    /* For models that compute in f16: the loss is multiplied by this power of 2 before gradients
     * are computed, so that small gradients do not vanish; they are divided by it in f32, before
     * clipping. 0: 2^15, WEFT_ZERO: none. A step with a gradient that is not finite is skipped and
     * halves the scale; this many good steps in a row (0: 2000) double it. A skipped step changes
     * nothing (weights, slots, moving averages, states) and does not count: weft_trainer_step,
     * schedules and bias corrections use the number of completed steps, as Keras'
     * LossScaleOptimizer does, and the next step draws the same random numbers as the skipped one.
     * Training logs include loss_scale and skipped_steps. */
    double loss_scale;
    int64_t loss_scale_steps;
    /* In a table that is only looked up (an Embedding's), a step updates the rows that were looked
     * up and their optimizer state, and leaves the others unchanged. true: all rows, as Keras does:
     * the other rows also move, by momentum, decaying moments and weight decay. This costs a pass
     * over the table in each step. For one layer: Embedding's sparse=false. */
    bool no_sparse;
    /* A saved model (weft_trainer_save): the optimizer with its schedule, the losses with their
     * weights and the metrics that are not given here are those it was compiled with. Losses and
     * metrics of your own must be registered first (weft/sys/loss.h). */
    const char *like;
    /* "server" (NULL): the gradients of all shards are added, and one update is made. "worker":
     * each shard is a logical worker, which trains `every` batches (0: 1) on a copy of its own,
     * with its own optimizer; then the copies are merged, and the next round begins with what comes
     * of it. A batch is divided among the logical workers, and is a step. The result depends on the
     * number of shards and on nothing else. Slots of the optimizer are averaged like moving
     * averages. Tables are copied whole. One shard gives what training without rounds gives.
     * With asynchronous training or bounded staleness (weft_ps_opts.consistency) a logical worker's
     * round begins with the parameters as they are, b, and is merged by itself into what they have
     * become, v: below, x is the copy, a its share of the round's samples. Slots and moving
     * averages become v + a (x - v). It resumes between two rounds. */
    const char *update;
    int every; /* batches of a round; the last of an epoch may have fewer */
    /* "mean" (NULL): the mean of what the copies have changed is added, by samples. "models": the
     * mean of the copies. The same but for rounding: with "mean", what no copy changes stays as it
     * is to the bit. "sum": all that has changed is added. One by one: v + a (x - b);
     * v + a (x - v), elastic averaging; v + (x - b). */
    const char *merge;
} weft_compile_opts;

/* The optimizer's state and the weights are newly initialized: a trainer has its own. To continue
 * with those of another trainer (after changing what is frozen): weft_trainer_copy_weights. */
WEFT_API weft_status weft_compile(weft_model *m, const weft_compile_opts *opts, weft_trainer **out);
WEFT_API void weft_trainer_free(weft_trainer *t);
WEFT_API weft_model *weft_trainer_model(const weft_trainer *t);

/* ---- logs and callbacks ---------------------------------------------------------------------- */

/* Names and values: loss, accuracy, val_loss, … Borrowed. */
typedef struct weft_logs {
    int n;
    const char *const *name;
    const double *value;
} weft_logs;
WEFT_API double weft_logs_get(const weft_logs *logs, const char *name); /* NaN if there is none */

/* All functions may be NULL. Epochs and batches count from 0. A failure ends training with that
 * status. A callback that has state gives it to checkpoints, so that a resumed run continues as if
 * nothing had happened. A callback may serve one fit after the other: train_begin is called first,
 * before a checkpoint's state is restored, and must forget the fit before. The built-in ones do;
 * only ModelCheckpoint remembers its best value, as the file that holds it is still there. A
 * callback may measure the model (evaluate, predict), read and set weights; fit, train_on_batch,
 * gradients and apply are WEFT_ESTATE while fit is under way. */
typedef struct weft_callback {
    size_t size;
    void *arg;
    const char *name; /* of its state in checkpoints */
    weft_status (*train_begin)(void *arg, weft_trainer *t);
    weft_status (*train_end)(void *arg, weft_trainer *t, const weft_logs *logs);
    weft_status (*epoch_begin)(void *arg, weft_trainer *t, int64_t epoch);
    weft_status (*epoch_end)(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs);
    weft_status (*batch_end)(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs);
    weft_status (*save)(void *arg, char **state, int64_t *n); /* freed with weft_text_free */
    weft_status (*restore)(void *arg, const char *state, int64_t n);
    void (*free)(void *arg);
} weft_callback;

/* The built-in ones, with Keras' names and arguments:
 *   "EarlyStopping patience=3 restore_best_weights=true"
 *   "ReduceLROnPlateau factor=0.2"
 *   "LearningRateScheduler epochs=[10,20] rates=[0.1,0.01,0.001]"
 *   "CSVLogger filename=log.csv", "TerminateOnNaN", "TensorBoard log_dir=logs"
 *   "ModelCheckpoint filepath=model-{epoch:02d}-{val_loss:.3f}.safetensors save_best_only=true" */
WEFT_API weft_status weft_callback_new_sized(weft_ctx *ctx, const char *spec, size_t size,
                                             weft_callback *out); /* size: sizeof *out */
static inline weft_status weft_callback_new(weft_ctx *ctx, const char *spec, weft_callback *out)
{
    return weft_callback_new_sized(ctx, spec, sizeof *out, out);
}
WEFT_API void weft_callback_free(weft_callback *cb);
/* LearningRateScheduler with your own function: called at the beginning of an epoch (from 0) with
 * the current rate, it returns the rate for the epoch. Not with a schedule. */
typedef double weft_rate_fn(void *arg, int64_t epoch, double rate);
WEFT_API weft_status weft_callback_rate_sized(weft_ctx *ctx, weft_rate_fn *fn, void *arg,
                                              size_t size, weft_callback *out);
static inline weft_status weft_callback_rate(weft_ctx *ctx, weft_rate_fn *fn, void *arg,
                                             weft_callback *out)
{
    return weft_callback_rate_sized(ctx, fn, arg, sizeof *out, out);
}
WEFT_API bool weft_callback_at(int i, const char **name, const char **attrs, const char **doc);

/* For callbacks: training ends for good after the current batch, as in Keras: the epoch ends with
 * validation and callbacks, and a later run with the same number of epochs has nothing to do. If
 * called from elsewhere, it does the same as interrupt. */
WEFT_API void weft_trainer_stop(weft_trainer *t);
/* For signal handlers and other threads: fit returns after the current batch. With checkpoints, one
 * is written first, and a later run resumes from it in the middle of the epoch. If no fit is
 * running, it is for the next one, which returns before its first batch. */
WEFT_API void weft_trainer_interrupt(weft_trainer *t);
WEFT_API bool weft_trainer_stopped(const weft_trainer *t); /* by either of them */
/* For both: writes a checkpoint after the current batch, in addition to those that are due. */
WEFT_API void weft_trainer_checkpoint(weft_trainer *t);
WEFT_API int64_t weft_trainer_step(const weft_trainer *t);      /* updates so far */
WEFT_API double weft_trainer_loss_scale(const weft_trainer *t); /* of the next step; 0: none */
WEFT_API int64_t weft_trainer_skipped(const weft_trainer *t);   /* steps skipped so far */
WEFT_API double weft_trainer_rate(const weft_trainer *t); /* the learning rate of the next step */
/* The learning rate of the last training step. At the end of an epoch, callbacks may already have
 * changed that of the next. */
WEFT_API double weft_trainer_used_rate(const weft_trainer *t);
WEFT_API weft_status weft_trainer_set_rate(weft_trainer *t, double rate); /* not with a schedule */
/* Since when the loss of the last fit was NaN or infinite, and the column of the data or the op
 * that caused it; NULL: it was always finite. fit continues after such a step, as in Keras, and
 * returns WEFT_OK; it writes no checkpoints with such a loss. To end training there, use the
 * callback TerminateOnNaN, or trap_numerics, with which the step fails and changes nothing.
 * Borrowed until the next fit. */
WEFT_API const char *weft_trainer_nonfinite(const weft_trainer *t);
/* Sets all states of stateful recurrent layers to zero: a new sequence begins. The number of layers
 * that were reset is written to *n (may be NULL). Otherwise states carry over from batch to batch
 * and from epoch to epoch, also in evaluation and prediction; the callback "ResetStates" does this
 * at the beginning of each epoch. */
WEFT_API weft_status weft_trainer_reset_states(weft_trainer *t, int *n);

/* How training spent its time in this process. */
typedef struct weft_times {
    int64_t steps, checkpoints;
    double train_s, validate_s;
    double total_s; /* for a run, also the time between epochs: callbacks, checkpoints */
    double wait_s;  /* the part of train_s spent waiting for data */
    double stall_s; /* time that training was paused for checkpoints */
    /* Records of the training and the validation data that could not be read and were skipped
     * (on_error: skip). */
    int64_t skipped, val_skipped;
} weft_times;
/* Of the last epoch, and of the whole fit; either may be NULL. */
WEFT_API void weft_trainer_times(const weft_trainer *t, weft_times *epoch, weft_times *run);

/* ---- values of your own in TensorBoard ------------------------------------------------------ */

/* A new event file in a directory, which is created: a run of TensorBoard. From the first step that
 * is put here on, TensorBoard ignores earlier files of the directory. One thread at a time. */
typedef struct weft_scalars weft_scalars;
WEFT_API weft_status weft_scalars_open(weft_ctx *ctx, const char *dir, weft_scalars **out);
WEFT_API weft_status weft_scalars_put(weft_scalars *s, int64_t step, const char *tag, double value);
WEFT_API weft_status weft_scalars_flush(weft_scalars *s);
WEFT_API void weft_scalars_close(weft_scalars *s);

/* ---- fit, evaluate, predict ------------------------------------------------------------------ */

/* What fit recorded: one row per epoch. */
typedef struct weft_history {
    int n_names;
    const char **name;
    int64_t n_epochs;
    double *value;       /* [n_epochs][n_names]; NaN where an epoch has no value */
    int64_t first_epoch; /* the number of the first row, from 0 */
    void *inside;
} weft_history;
WEFT_API void weft_history_free(weft_history *h);
/* The epochs of a run, from its files: a CSVLogger file, a directory with history.csv, or a
 * directory of checkpoints (the newest valid checkpoint decides; an unfinished epoch is the last
 * row, without validation). */
WEFT_API weft_status weft_history_read(weft_ctx *ctx, const char *path, weft_history **out);

typedef struct weft_fit_opts {
    size_t size;
    int64_t epochs; /* the last epoch's number + 1, as in Keras; 0: 1 */
    int64_t initial_epoch;
    int64_t batch;           /* for an unbatched dataset; 0: 32 */
    bool no_shuffle;         /* for an unbatched dataset */
    uint64_t seed;           /* for that shuffle */
    int64_t steps_per_epoch; /* 0: the dataset's. Required for an endless one */
    weft_ds validation;      /* of the same pipeline */
    /* The last part of the samples, before shuffling; the first floor(n (1 - split)) are trained
     * on. Not for a dataset whose order differs between epochs. */
    double validation_split;
    int64_t validation_batch, validation_steps, validation_freq; /* 0: as batch, all, 1 */
    int n_callbacks;
    weft_callback *callbacks; /* called in order; not freed */
    int verbose;              /* 0 silent, 1 a progress bar, 2 one line per epoch */
    void (*print)(void *arg, const char *text, bool last); /* where progress goes; NULL: nowhere */
    void *print_arg;
    int threads; /* threads that read ahead; 0: chosen from the pipeline */
    /* Checkpoints. A run that finds one in the directory resumes from it, with exactly the results
     * of an uninterrupted run; completed epochs are in the history. The last checkpoint has the
     * final weights. While the loss is not finite none is written: the earlier ones are kept. */
    const char *checkpoint;   /* the directory; NULL: none */
    int64_t checkpoint_steps; /* write one every N steps; 0 with checkpoint_seconds 0: at the end of
                               * each epoch */
    double checkpoint_seconds;
    int keep_last, keep_best;       /* as in weft/ckpt.h; best by `checkpoint_monitor` */
    const char *checkpoint_monitor; /* NULL: val_loss, or loss without validation. A checkpoint is
                                     * then also written at the end of each epoch */
    bool no_resume;    /* start a new run; checkpoints of an earlier run in the directory are an
                        * error */
    double keep_hours; /* > 0: and one every so many hours */
    /* Columns of the terminal that `print` writes to, asked for every line of a bar (print_arg is
     * passed): metrics and the bar are shortened until the line fits. NULL, or 0: lines of any
     * length. */
    int (*columns)(void *arg);
    /* May be NULL: called a few times a second after a batch, and with the last of an epoch, in
     * every worker of parameter servers (callbacks: in the one that decides). It must change
     * nothing. */
    void (*watch)(void *arg, const weft_trainer *t, int64_t epoch, const weft_logs *logs);
    void *watch_arg;
} weft_fit_opts;

/* s: batches, or samples, which are shuffled (if addressable) and batched here. *history may be
 * NULL. */
WEFT_API weft_status weft_fit(weft_trainer *t, weft_data *d, weft_ds s, const weft_fit_opts *opts,
                              weft_history **history);

typedef struct weft_eval_opts {
    size_t size;
    int64_t batch, steps; /* 0: 32, all */
    int threads;
} weft_eval_opts;
/* Loss and metrics over the dataset; *logs is borrowed from t until its next call. WEFT_EDATA: the
 * dataset gave no sample. */
WEFT_API weft_status weft_evaluate(weft_trainer *t, weft_data *d, weft_ds s,
                                   const weft_eval_opts *opts, weft_logs *logs);

/* One call per batch, in order: n_outputs tensors, borrowed for the call. WEFT_EDATA: the dataset
 * gave no sample. */
typedef weft_status weft_predict_fn(void *arg, const weft_batch *batch, int n_outputs,
                                    const weft_tensor *out);
WEFT_API weft_status weft_predict(weft_trainer *t, weft_data *d, weft_ds s,
                                  const weft_eval_opts *opts, weft_predict_fn *fn, void *arg);

/* One batch: x in the order of the inputs, y of the outputs, w NULL or weights [n]. */
WEFT_API weft_status weft_train_on_batch(weft_trainer *t, const weft_tensor *x,
                                         const weft_tensor *y, const weft_tensor *w,
                                         weft_logs *logs);
WEFT_API weft_status weft_test_on_batch(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                                        const weft_tensor *w, weft_logs *logs);
/* out[i].data NULL: a view, valid until the next call; otherwise copied there. */
WEFT_API weft_status weft_predict_on_batch(weft_trainer *t, const weft_tensor *x, weft_tensor *out);

/* ---- weights --------------------------------------------------------------------------------- */

WEFT_API int weft_trainer_n_weights(const weft_trainer *t);
WEFT_API const char *weft_trainer_weight_name(const weft_trainer *t, int i);
/* A view of the weight named "dense/kernel". */
WEFT_API weft_status weft_trainer_weight(weft_trainer *t, const char *name, weft_tensor *out);
WEFT_API weft_status weft_trainer_set_weight(weft_trainer *t, const char *name,
                                             const weft_tensor *value);
/* Rows of a table (a weight [rows, width] that is only looked up): as a step looks them up now, and
 * new values for them; the optimizer's slots stay. ids: distinct. Where parameter servers hold the
 * table, rows are set before the first step, or by callbacks of weft_fit, on the worker that
 * decides: all servers have them before the next step, also if this worker dies. Between two steps
 * at most 256 MiB; WEFT_ELIMIT says so. A callback reads rows as it has set them; WEFT_ESTATE: best
 * weights are being restored (EarlyStopping), and servers give rows after that. */
WEFT_API weft_status weft_trainer_rows(weft_trainer *t, const char *name, int64_t n,
                                       const int64_t *ids, float *rows);
WEFT_API weft_status weft_trainer_set_rows(weft_trainer *t, const char *name, int64_t n,
                                           const int64_t *ids, const float *rows);

/* ---- saved models ---------------------------------------------------------------------------- */

/* Architecture and weights in one safetensors file, which needs no code to load:
 *
 *   weft_trainer_save(t, "model.safetensors");
 *   …
 *   weft_model_load(ctx, "model.safetensors", &m);
 *   weft_compile(m, WEFT_OPTS(weft_compile_opts, .like = "model.safetensors"), &t);
 *   weft_trainer_load_weights(t, "model.safetensors", NULL, NULL);
 *
 * weft_compile(m, NULL, &t) is enough for predictions. The file appears completely or not at all.
 * It does not hold the optimizer's state: checkpoints do. */
WEFT_API weft_status weft_trainer_save(weft_trainer *t, const char *path);
/* The architecture of such a file. */
WEFT_API weft_status weft_model_load(weft_ctx *ctx, const char *path, weft_model **out);
/* The same into an empty model in which your own layers, losses and metrics are registered. */
WEFT_API weft_status weft_model_load_into(weft_model *m, const char *path);

typedef struct weft_load_opts {
    size_t size;
    bool by_name;       /* load what both have; otherwise each must have everything that the other
                         * has */
    bool skip_mismatch; /* skip weights of another shape with a warning instead of an error */
    const char *prefix; /* only weights whose names begin with this: "encoder/"; NULL: all */
} weft_load_opts;

/* Loads weights from a safetensors file by name. All are checked before the first is changed; if
 * shapes differ, WEFT_ESHAPE names both. *n_loaded (may be NULL): how many were loaded. Tables that
 * servers hold are loaded when training has been set up, before its first step: by `train_begin` of
 * a callback, or weft_session_opts.init. */
WEFT_API weft_status weft_trainer_load_weights(weft_trainer *t, const char *path,
                                               const weft_load_opts *opts, int *n_loaded);
/* The same from another trainer, of this model or another: after changing which layers are frozen,
 * compile the model again and copy. */
WEFT_API weft_status weft_trainer_copy_weights(weft_trainer *t, weft_trainer *from,
                                               const weft_load_opts *opts, int *n_copied);

/* ---- what the pipeline has learned ----------------------------------------------------------- */

/* Saved with every checkpoint and model from now on (not with files of weights only). Copied; NULL:
 * nothing. */
WEFT_API weft_status weft_trainer_set_learned(weft_trainer *t, const weft_learned *l);
/* From a saved model, a checkpoint, or a directory of checkpoints, of which the newest valid one
 * counts. WEFT_ENOENT: the file does not exist, or was saved without it. */
WEFT_API weft_status weft_learned_load(weft_ctx *ctx, const char *path, weft_learned **out);

#ifdef __cplusplus
}
#endif
#endif
