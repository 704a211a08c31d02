/* train.h - shared by the files of the train layer. */
#ifndef WF_TRAIN_H
#define WF_TRAIN_H

#include "data/data.h"
#include "exec/exec.h"
#include "merge/merge.h"
#include "model/model.h"
#include "train/loop/life.h"
#include "weft/autocast.h"
#include "weft/ops.h"
#include "weft/optim.h"
#include "weft/train.h"

struct wf_deal;

/* One value that is logged: the loss, a loss of an output, a metric. */
struct wf_log_slot {
    const char *name;
    const struct wf_metric *metric; /* NULL: a mean, weighted by samples */
    int64_t at;                     /* metrics: position in the sums. Means: fetch number */
    int result;                     /* metrics: which of its results; they are adjacent */
};

/* A metric as requested. */
struct wf_metric_spec {
    int out;
    bool weighted;
    const char *text;
};

/* The graph of a trainer and its functions; built when the labels' types are known. */
struct wf_bound {
    struct wf_arena arena;
    weft_graph *graph;
    struct wf_built train, infer;
    bool labelled, weighted;    /* weighted: in training */
    bool scaled;                /* it computes in f16, and the loss is scaled (scale.c) */
    struct wf_type *label_type; /* one for each output that has a loss or a metric */
    weft_val *label, weight, rate;
    weft_fn *fit, *predict;
    weft_fn *test[2];        /* for data without and with weights; NULL: not needed yet */
    struct wf_work *work;    /* steps as contributions; NULL: not needed yet */
    int n_trained, *trained; /* weights that are trained: their numbers in the model */
    weft_val *gradient;      /* of each: that of `data`, nil: none */
    /* The loss of training: all of it, without penalties on weights, by groups with the same
     * denominator, and the penalties (nil: none). */
    weft_val total, data, penalty;
    int n_groups;
    struct wf_group {
        weft_val loss, weight; /* the mean, and the weight of the batch */
        bool samples;          /* that is how many samples it has */
    } * group;
    int *mean_group;     /* by mean: the group of that output */
    weft_val *fetch_fit; /* means and sums of training */
    int n_feeds_fit, n_feeds_test;
    int n_means;    /* the first fetches: the loss, then the outputs' if there are several */
    int64_t n_sums; /* of the fetch after them */
    struct wf_metric *metric; /* those of the trainer */
    int n_logs, n_extra;      /* of each pass; in training also: names after the others */
    struct wf_log_slot *log;
    const char **log_name, **val_name;
};

/* Settings of weft_compile that saved models keep, as text. */
enum wf_said {
    WF_SAID_OPTIMIZER,
    WF_SAID_SCHEDULE,
    WF_SAID_LOSS,
    WF_SAID_LOSS_WEIGHTS,
    WF_SAID_METRICS,
    WF_SAID_WEIGHTED_METRICS,
    WF_N_SAID
};

/* Batches that were started on a device and not waited for (flight.c): what they give is added to
 * the pass when they land, in their order. */
struct wf_flying {
    bool on;     /* whoever trains or tests the next batch lands it some time later */
    int64_t at;  /* the number of that batch */
    weft_fn *fn; /* whose runs are in flight */
    int n;
    struct {
        int64_t at, n; /* their numbers and samples */
    } batch[WF_FLIGHT];
    /* NULL, or called when what a batch has given was added to the pass. */
    weft_status (*landed)(void *arg, int64_t at);
    void *arg;
    int64_t failed; /* the number of the batch that the last error was about; -1: the next one */
};

/* What becomes of the copies that workers have trained (weft_compile_opts.merge). */
enum wf_merging { WF_MERGE_MEAN, WF_MERGE_MODELS, WF_MERGE_SUM };

struct weft_trainer {
    weft_ctx *ctx;
    weft_model *model;
    struct weft_dist *dist; /* the strategy: of the model's scope, or the trainer's own */
    bool owns_dist;
    bool decided; /* the last fit's decisions and files were made here, not in another worker */
    struct wf_arena arena;
    weft_optim optim;
    bool scheduled;
    float rate, used_rate; /* of the next step; of the last one. Both without a schedule */
    int n_out;
    const char *said[WF_N_SAID]; /* what weft_compile was told, for saved models; NULL: nothing */
    const char **loss;           /* by output; NULL: none */
    double *loss_weight;
    int n_metrics;
    struct wf_metric_spec *metric;     /* by output, the weighted ones after the others */
    int n_class_weights, class_output; /* and the output they apply to */
    float *class_weights;
    int shards, accumulate;
    bool rounds; /* workers update: `accumulate` batches are a round (rounds.h) */
    enum wf_merging merging;
    int64_t round_end;    /* a round ends with this step, if it comes first; 0: none */
    int pending;          /* batches accumulated since the last update, or of the round */
    const char *stateful; /* a layer whose states carry over from batch to batch; NULL: none */
    int64_t state_batch;  /* the samples of each batch in this case */
    int drawn;            /* shards since the last update: random numbers depend on it */
    weft_dtype precision;
    bool tf32;        /* products of f32 may be in TF32, with precision f32 */
    bool validates;   /* a fit has validation data */
    bool trap, dense; /* dense: all rows of all tables are updated */
    struct {
        bool off;
        int64_t growth;               /* good steps in a row after which it doubles */
        double state[WF_SCALE_STATE]; /* what checkpoints keep */
    } scale;
    struct wf_bound *bound;
    enum wf_life life;      /* of its fit; the caller's thread alone looks at it */
    _Atomic unsigned asked; /* of its fit: bits of wf_ask */
    /* sums of the pass under way */
    double *mean_sum, mean_weight, *sums;
    double *log_value;
    struct wf_sums { /* the same for a pass within it (wf_pass_swap) */
        double *mean_sum, mean_weight, *sums, *log_value, skipped;
    } aside;
    weft_tensor *fetch;
    struct wf_flying flying;
    /* for callbacks: the batch that was trained on, while batch_end runs; the times at epoch_end */
    const struct wf_deal *deal;
    int64_t began_at;            /* the batch of the epoch that the fit began with */
    bool stored;                 /* the fit began with a checkpoint, which is in its directory */
    const weft_history *history; /* of the current fit, the epochs of its checkpoint first */
    weft_times times, all_times;
    char nonfinite[384]; /* of the last fit: since when its loss is not finite, and why; "": it is
                          * finite */
    /* of a job, for checkpoints: its settings and its file (settings.h); NULL: none */
    const char *settings, *job_text;
    char *recorded; /* the file as it was trained with, later changes included; NULL: job_text */
    const void *keeper; /* the callback whose best values servers keep; NULL: none */
    bool pauses;        /* train_end is called, and a later run resumes */
    int n_changed;      /* settings that are not those of the checkpoint it began with */
    const char *base;   /* for checkpoints: the architecture that the model began with, or NULL */
    char *
        learned; /* what the pipeline learned, as JSON, for checkpoints and saved models; or NULL */
    int64_t n_learned;
    bool data_changed; /* since the checkpoint that the run resumes from; a warning said so */
};

/* The trainer whose callback this thread is in, or NULL (compile.c). */
extern _Thread_local const weft_trainer *wf_calling;

/* ---- bind.c ---------------------------------------------------------------------------------- */

/* Builds the graph and the functions for labels of these types (sizes after the batch axis may be
 * symbolic); n_out of them, dtype WEFT_NONE if an output needs none. Does nothing if they exist
 * already; a change of types keeps the weights. */
weft_status wf_trainer_bind(weft_trainer *t, const struct wf_type *labels, bool weighted);
/* The same for evaluation data: it may have weights, or none, independently of the training
 * data. */
weft_status wf_trainer_bind_test(weft_trainer *t, const struct wf_type *labels, bool weighted);
/* Only what prediction needs. */
weft_status wf_trainer_bind_predict(weft_trainer *t);
void wf_bound_free(struct wf_bound *b);
bool wf_output_needs_label(const weft_trainer *t, int out);
/* Feeds in the common order: inputs, labels, weight, rate. */
int wf_list_feeds(weft_trainer *t, struct wf_bound *b, weft_val *feeds, bool rate);
/* Whether all rows of a table are updated, not only those that were looked up. */
bool wf_weight_dense(const weft_trainer *t, int weight);

/* ---- step.c, flight.c ------------------------------------------------------------------------ */

/* Sums of a pass: cleared, accumulated by steps, and turned into logs. */
void wf_pass_begin(weft_trainer *t);
/* Switches between a pass and a nested one: a callback of fit may evaluate the model during an
 * epoch. */
void wf_pass_swap(weft_trainer *t);
/* One batch of n samples. feeds: inputs, labels, [weight], and room for the rate, which is added
 * here. */
weft_status wf_step_fit(weft_trainer *t, weft_tensor *feeds, int64_t n);
/* The same for the batch under way of a deal: each shard reads its own samples. */
weft_status wf_step_dealt(weft_trainer *t, struct wf_deal *d);
weft_status wf_step_test(weft_trainer *t, weft_tensor *feeds, int64_t n, bool weighted);
/* Runs a function that may change state (constraints, states of stateful layers) but is not a
 * training step. */
weft_status wf_run_aside(weft_fn *fn, const weft_tensor *feeds, weft_tensor *out);
/* Whether steps of fit may be started without waiting for them. */
bool wf_step_flies(const weft_trainer *t);
/* A loop over batches begins, which calls wf_step_land and wf_step_settle; *outer keeps what an
 * outer loop has, until wf_flying_end. */
void wf_flying_begin(weft_trainer *t, struct wf_flying *outer);
void wf_flying_end(weft_trainer *t, const struct wf_flying *outer);
/* Waits for the oldest batch in flight; for all of them. */
weft_status wf_step_land(weft_trainer *t);
weft_status wf_step_settle(weft_trainer *t);
/* At the end of a loop with st: an earlier batch's error comes first. */
weft_status wf_step_end(weft_trainer *t, weft_status st);
/* Starts a batch of n samples; *started false: it is to be run, and all before it have landed. */
weft_status wf_step_start(weft_trainer *t, weft_fn *fn, const weft_tensor *feeds, int64_t n,
                          bool counts, bool *started);
/* Parts of wf_step_fit. */
void wf_step_clear(weft_trainer *t);
void wf_step_add_up(weft_trainer *t, int64_t n);
/* The end of an epoch: applies what was accumulated and not applied. */
weft_status wf_step_flush(weft_trainer *t);
/* Training failed between two batches: discards what was accumulated and not applied. */
void wf_step_drop(weft_trainer *t);
/* The logs so far, borrowed from t; those of training include the loss scale, if there is one. */
weft_logs wf_pass_logs(weft_trainer *t);
weft_logs wf_train_logs(weft_trainer *t);

/* ---- scale.c --------------------------------------------------------------------------------- */

weft_status wf_scale_init(weft_trainer *t, const weft_compile_opts *o);
/* Whether the graph computes in f16, and the loss may be scaled. */
bool wf_scale_needed(const weft_trainer *t, const weft_graph *g);
float wf_scale_now(const weft_trainer *t);
/* A step was done; a step was skipped, because a gradient is not finite: an error if no scale would
 * help. */
void wf_scale_good(weft_trainer *t);
weft_status wf_scale_skip(weft_trainer *t);
/* to = factor · from; returns whether all are finite. */
bool wf_scale_take(float *to, const float *from, int64_t n, float factor);

/* ---- states.c -------------------------------------------------------------------------------- */

/* Finds stateful layers, and checks whether they can be trained as compiled. */
weft_status wf_states_init(weft_trainer *t);
/* Checks whether a batch may have n samples. */
weft_status wf_states_check(const weft_trainer *t, int64_t n);

/* ---- evaluate.c ------------------------------------------------------------------------------ */

/* A single batch as feeds (with room for the rate), checked and with the trainer bound to it; freed
 * with wf_free. */
weft_status wf_batch_feeds(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                           const weft_tensor *w, bool fit, weft_tensor **out);

/* ---- feed.c ---------------------------------------------------------------------------------- */

/* Which columns of a dataset feed what. */
struct wf_feeding {
    int n_in, n_labels;
    int *column; /* inputs, labels (-1: none), weight (-1: none) */
    bool weighted;
    weft_ds ds;    /* with casts if dtypes differ, and batched */
    int64_t batch; /* samples of a batch; 0: the dataset was batched before */
};
/* Finds the columns, casts and batches (and shuffles, if requested and possible) what is not
 * batched. with_labels: an error if one is missing. */
struct wf_feeding_opts {
    int64_t batch;
    bool shuffle, with_labels;
    uint64_t seed;
};
weft_status wf_feeding_find(weft_trainer *t, weft_data *d, weft_ds s,
                            const struct wf_feeding_opts *opts, struct wf_feeding *out);
/* Types of the labels, for binding. */
void wf_feeding_labels(const weft_trainer *t, const weft_data *d, const struct wf_feeding *f,
                       struct wf_type *out);
/* The tensors of a batch in feed order; axes of size 1 are added or removed to match the model. */
weft_status wf_feeding_batch(const weft_trainer *t, const struct wf_feeding *f, const weft_batch *b,
                             weft_tensor *feeds);
/* Threads that should read ahead: none if batches are rows of memory. */
int wf_feeding_threads(const weft_data *d, weft_ds s, int asked);

#endif
