/* weft/job.h - jobs: data, model, training, checkpoints and logging in one YAML file.
 *
 *   weft_job *job;
 *   weft_job_load(ctx, "job.yaml", 0, NULL, &job);
 *   weft_job_context(job, log, NULL, &run_ctx);
 *   weft_job_open(job, run_ctx, &run);            data, model and trainer, all checked
 *   weft_job_fit(run, NULL, &history);
 *
 * docs/guide/job.md explains the file; weft_job_key_at lists every key with its meaning. Errors in
 * a file are reported with line and column, and with the nearest valid word. */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include "weft/dist.h"
#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_job weft_job;

/* sets: "train.epochs=3", applied in order before anything is checked. */
WEFT_API weft_status weft_job_load(weft_ctx *ctx, const char *path, int n_sets,
                                   const char *const *sets, weft_job **out);
/* The same from memory; name appears in messages, and relative paths start from its directory. */
WEFT_API weft_status weft_job_parse(weft_ctx *ctx, const char *name, const char *text, int64_t n,
                                    int n_sets, const char *const *sets, weft_job **out);
/* The job that a saved model or a directory of checkpoints contains, with that model: how its data
 * is read, its pipeline, loss and metrics. With this the file alone is enough for predictions, with
 * "data.test=new.csv" among the sets; relative paths start from the current directory. WEFT_ENOENT:
 * it contains none. */
WEFT_API weft_status weft_job_of_model(weft_ctx *ctx, const char *path, int n_sets,
                                       const char *const *sets, weft_job **out);
WEFT_API void weft_job_free(weft_job *job);
/* The value of a key that is text, a word or a path (as the process sees it): "log.dir"; NULL if it
 * is not given. Borrowed. */
WEFT_API const char *weft_job_text(const weft_job *job, const char *key);

/* The value of a key that is a number, or true (1) or false (0); WEFT_ENOENT: there is no such
 * key. */
WEFT_API weft_status weft_job_number(const weft_job *job, const char *key, double *out);
/* Whether the file, or one of the sets, has the key. */
WEFT_API bool weft_job_given(const weft_job *job, const char *key);

/* A context with the job's threads, memory limit, kernels and seed. */
WEFT_API weft_status weft_job_context(const weft_job *job, weft_log_fn *log, void *log_arg,
                                      weft_ctx **out);

/* A job that is ready to run in a context. */
typedef struct weft_job_run weft_job_run;
/* For training: all data is opened. The validation part is held out first; then vocabularies and
 * statistics are learned from the rest of the training data, unless the run resumes from a
 * checkpoint, which contains them. */
WEFT_API weft_status weft_job_open(const weft_job *job, weft_ctx *ctx, weft_job_run **out);
/* The same as a task of a cluster. */
typedef struct weft_job_open_opts {
    size_t size;
    /* This process is a worker of parameter servers (weft/dist.h); NULL: as the job says. */
    const weft_ps_opts *ps;
} weft_job_open_opts;
WEFT_API weft_status weft_job_open_with(const weft_job *job, weft_ctx *ctx,
                                        const weft_job_open_opts *opts, weft_job_run **out);
/* The strategy of such a task, or of a job with `train.strategy: ps`; otherwise NULL. */
WEFT_API weft_dist *weft_job_dist(const weft_job_run *run);
/* For evaluation and prediction: what the pipeline has learned is read from where
 * weft_job_load_weights takes the weights, and no data is opened before weft_job_open_part: the
 * training data may have changed or be gone. In the test part, labels may then be missing. If the
 * model does not contain it (written by an earlier version) or nothing was trained yet, this is
 * weft_job_open. */
WEFT_API weft_status weft_job_open_trained(const weft_job *job, weft_ctx *ctx, weft_job_run **out);
WEFT_API void weft_job_close(weft_job_run *run);
WEFT_API weft_model *weft_job_model(const weft_job_run *run);
WEFT_API weft_trainer *weft_job_trainer(const weft_job_run *run);
WEFT_API weft_data *weft_job_data(const weft_job_run *run);
/* "train", "validation" or "test", opened at the first call; {0} if the job has none. "train" is
 * what is trained on, without the validation part. */
WEFT_API weft_status weft_job_open_part(weft_job_run *run, const char *part, weft_ds *out);
/* The same, but also returns {0} on failure. */
WEFT_API weft_ds weft_job_dataset(const weft_job_run *run, const char *part);
/* What the pipeline has learned, borrowed: vocabularies ("lookup city"), statistics ("standardize
 * length,width"), the columns of the training data ("data.train") and those that the model sees
 * ("columns"). Checkpoints and saved models of the run contain it. */
WEFT_API const weft_learned *weft_job_learned(const weft_job_run *run);

typedef struct weft_job_fit_opts {
    size_t size;
    int verbose; /* as in weft_fit_opts */
    void (*print)(void *arg, const char *text, bool last);
    void *print_arg;
    int n_callbacks; /* in addition to the job's own */
    const weft_callback *callbacks;
    int (*columns)(void *arg); /* as weft_fit_opts */
    void (*watch)(void *arg, const weft_trainer *t, int64_t epoch, const weft_logs *logs);
    void *watch_arg;
} weft_job_fit_opts;
/* Trains, and writes the files that the job asks for. WEFT_ENUMERIC: the loss of the last epoch is
 * not finite; the text says why, and no model was written. */
WEFT_API weft_status weft_job_fit(weft_job_run *run, const weft_job_fit_opts *opts,
                                  weft_history **history);
/* After weft_job_fit: whether this process wrote the files of the run. Of several workers one does:
 * the first that lives. */
WEFT_API bool weft_job_decides(const weft_job_run *run);
WEFT_API bool weft_job_has_checkpoints(const weft_job_run *run); /* whether the job has written
                                                                  * any */
/* Loads the weights of the job's newest checkpoint; if it has none, those of the file named by
 * `save`, or of the model file that the job is based on. */
WEFT_API weft_status weft_job_load_weights(weft_job_run *run);
/* What an output of the model means. The loss says what kind it is: a cross-entropy makes classes,
 * a squared or absolute error, Huber and the like make quantities. Names of classes are those of
 * log.classes, of the folders of images, or the words that a `lookup` of the label has learned. */
typedef enum weft_output_kind {
    WEFT_OUTPUT_VALUES,  /* nothing is known of it */
    WEFT_OUTPUT_CLASSES, /* one class a sample: n_classes values, or one, which is about class 1 of
                          * two */
    WEFT_OUTPUT_PROBABILITIES, /* independent ones, or one class for each step of a sequence */
    WEFT_OUTPUT_QUANTITIES
} weft_output_kind;
typedef struct weft_job_output {
    size_t size;
    weft_output_kind kind;
    bool logits, binary; /* the model gives logits; of a binary loss */
    int n_classes;
    const char *const *class_name; /* n_classes of them, or NULL; borrowed from the run */
    const char *label;             /* the column that it predicts, or NULL; borrowed */
    /* Of quantities: prediction * scale + offset is in the label's own units, where the pipeline
     * standardizes or rescales the label. */
    double scale, offset;
} weft_job_output;
WEFT_API weft_status weft_job_output_at_sized(const weft_job_run *run, int i, size_t size,
                                              weft_job_output *out); /* size: sizeof *out */
static inline weft_status weft_job_output_at(const weft_job_run *run, int i, weft_job_output *out)
{
    return weft_job_output_at_sized(run, i, sizeof *out, out);
}
/* n values of an output (of whole samples) as people read them: probabilities for logits,
 * quantities in the label's own units. */
WEFT_API void weft_job_output_read(const weft_job_output *o, int64_t n, const float *values,
                                   double *out);
/* The samples of a part as its source has them, before the pipeline, in the source's order: sample
 * i is the one whose number a batch of the part has in its id. {0}: the job has no such data. */
WEFT_API weft_status weft_job_open_source(weft_job_run *run, const char *part, weft_ds *out);
/* Writes the page about a run (curves, mistakes, timings, configuration) that weft_job_fit leaves
 * in log.dir, from the current state: the epochs of h, the current weights. */
WEFT_API weft_status weft_job_report(weft_job_run *run, const weft_history *h, const char *path);

/* ---- evaluators ------------------------------------------------------------------------------ */

/* Measures loss and metrics of the checkpoints of a run, while other processes train it. */
typedef struct weft_follow weft_follow;
/* part: "validation" or "test"; NULL: the first of them that the job has. job and ctx must outlive
 * it. */
WEFT_API weft_status weft_follow_open(const weft_job *job, weft_ctx *ctx, const char *part,
                                      weft_follow **out);
typedef struct weft_follow_result {
    size_t size;
    bool measured; /* there was a new checkpoint: the rest but `complete` is about it */
    int64_t step, epoch;
    const char *part;
    weft_logs logs; /* borrowed until the next call */
    bool complete;  /* the newest checkpoint is the last one of the run */
} weft_follow_result;
/* Measures the newest checkpoint, if there is one that was not measured before; does not wait. If
 * the job has log.dir, a row of evaluations.csv there and event files in evaluator/ have the
 * result; one that is started again continues after the last row. A checkpoint that cannot be read
 * is skipped with a warning. */
WEFT_API weft_status weft_follow_next(weft_follow *f, weft_follow_result *out);
WEFT_API void weft_follow_free(weft_follow *f);

/* ---- runs that have been --------------------------------------------------------------------- */

/* What a run left: read from its checkpoints or its log. */
typedef struct weft_run {
    const char *path;
    const weft_history *history;
    int64_t steps;  /* -1: not known */
    double seconds; /* of training and validation; NaN: not known */
    int n_settings; /* 0: not known */
    const char *const *key, *const *value;
} weft_run;
/* path: a folder of checkpoints (the newest valid one counts), a folder with history.csv, or such a
 * file. Times are known where the job wrote a report. */
WEFT_API weft_status weft_run_read(weft_ctx *ctx, const char *path, weft_run **out);
WEFT_API void weft_run_free(weft_run *r);
/* Calls fn for each setting that is not the same in all runs, with a value for each: the default
 * where a run does not say, NULL where its settings are not known. Left out: name, save, log and
 * checkpoint, which change no result. */
typedef void weft_differ_fn(void *arg, const char *key, const char *const *values);
WEFT_API weft_status weft_runs_differ(weft_ctx *ctx, int n, const weft_run *const *runs,
                                      weft_differ_fn *fn, void *arg);
/* One page about several runs: what differs, the last and best values, and their curves in the same
 * axes. names: for each run; NULL: their paths. At most 12. */
WEFT_API weft_status weft_runs_report(weft_ctx *ctx, int n, const weft_run *const *runs,
                                      const char *const *names, const char *path);
/* Is more of a logged value better (1), or less (-1)? 0: unknown. "val_accuracy": 1. */
WEFT_API int weft_log_direction(const char *name);

/* ---- tables ---------------------------------------------------------------------------------- */

/* Row i of the table of keys: "train.epochs", "int", "1", what it means; false past the end. */
WEFT_API bool weft_job_key_at(int i, const char **path, const char **kind, const char **standard,
                              const char **help);
/* Row i of the keys of a source, below data.train, data.validation and data.test. */
WEFT_API bool weft_job_source_key_at(int i, const char **name, const char **kind,
                                     const char **help);
/* Row i of the stages that data.pipeline takes, with their arguments. */
WEFT_API bool weft_job_stage_at(int i, const char **name, const char **attrs, const char **doc);

/* Row i of the losses and metrics: the name, short names between spaces (" mse "), arguments as
 * weft_layer_kind_at has them
 * ("delta:f=1"), one line of documentation; false past the end. */
WEFT_API bool weft_loss_at(int i, const char **name, const char **shorts, const char **attrs,
                           const char **doc);
WEFT_API bool weft_metric_at(int i, const char **name, const char **shorts, const char **attrs,
                             const char **doc);
/* Row i of the optimizers and schedules, and its argument k with the default; false past the
 * end. */
WEFT_API bool weft_optimizer_at(int i, const char **name, const char **doc);
WEFT_API bool weft_optimizer_attr_at(int i, int k, const char **name, double *value);
WEFT_API bool weft_schedule_at(int i, const char **name, const char **doc);
WEFT_API bool weft_schedule_attr_at(int i, int k, const char **name, double *value);

#ifdef __cplusplus
}
#endif
#endif
