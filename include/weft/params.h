/* weft/params.h - parameter calls: variables that a strategy holds, for loops that compute what
 * they like by themselves.
 *
 *   weft_params_open(ctx, dist, WEFT_OPTS(weft_params_opts, .n_vars = 2, .vars = vars,
 *                                         .optimizer = "adam", .shard = compute), &p);
 *   for (weft_params_pull(p); weft_params_step(p) < 1000;)
 *       if (weft_params_wait(p))                  calls compute for shards of this worker
 *           break;
 *
 *   weft_status compute(void *arg, weft_params *p, int64_t shard)
 *   {
 *       weft_params_get(p, "w", &w);              the values of this step
 *       …                                         the gradient of the shard's samples, as a sum
 *       weft_params_weigh(p, shard, n_samples);
 *       return weft_params_push(p, shard, "w", &gradient);
 *   }
 *
 * A step is divided into shards, numbered from 0. What is pushed for a shard is its contribution;
 * contributions are added along one tree over shard numbers, divided by the sum of their weights,
 * and become parameters by the optimizer: the same code as for weft_fit. So with the same shards
 * the result is the same, bit for bit, in one process (`dist` NULL) and on any number of servers
 * and workers (weft_dist_open_ps), whoever is killed meanwhile.
 *
 * Every worker of a cluster runs the same program: the same variables, in the same order, and the
 * same calls of wait and set. If a worker dies, others compute its shards: that needs the function
 * `shard`. Without it a program pushes the shards of weft_params_mine before it waits, and a step
 * that needs another shard fails with WEFT_EPEER. A worker that starts late, starts again, or was
 * left behind gets the version that the job is at: weft_params_step says where.
 *
 * Asynchronous. With mode WEFT_PARAMS_ASYNC, and servers that are asynchronous or have a bound on
 * staleness (weft_ps_opts.consistency), there is no step that all wait for. weft_params_pull gives
 * a worker a shard that no other has, and values, which may be stale; weft_params_wait takes
 * what was pushed for it, or calls `shard`, sends it, and does not wait for an answer: at most two
 * shards of a worker are on their way (with a bound: one), which the next pull waits for.
 *
 *   while (!weft_params_pull(p) && weft_params_step(p) < 1000) {
 *       weft_params_mine(p, &shard, &n);          the shard of this worker
 *       weft_params_get(p, "w", &w);
 *       …
 *       weft_params_push(p, shard, "w", &gradient);
 *       weft_params_wait(p);
 *   }
 *
 * or the loop above as it is. Each shard of each step is applied once on every variable, as an
 * update of its own, divided by its own weight, in whatever order shards arrive; whoever is killed.
 * If a worker dies before its shard is applied, another one gets the shard. So "once" is about the
 * number of step and shard: every sample is used once if the number says which samples they are, as
 * it does with `shard` above, or where each worker can read all data. A program that takes samples
 * as they come to it, from a stream of its own, loses those of the shards that it had not yet
 * applied when it died; none is used twice. A pull returns with step = weft_params_opts.steps when
 * all shards of all steps are applied, and the values are the last ones. weft_dist_count tells how
 * stale values were.
 *
 * One thread at a time; not two objects on one strategy. */
#ifndef WEFT_PARAMS_H
#define WEFT_PARAMS_H

#include "weft/dist.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_params weft_params;

/* A variable, f32. */
typedef struct weft_param {
    size_t size;
    const char *name; /* without spaces, commas, slashes, stars and quotes */
    int rank;
    const int64_t *dim;
    /* A table [rows, width] of which a step pushes and reads a few rows (weft_params_push_rows,
     * weft_params_rows): servers have the rows that were ever updated, workers none. */
    bool table;
    const char *initializer; /* "glorot_uniform", …, by the context's seed; NULL: zeros */
    const char *constraint;  /* "max_norm(2)", "non_neg", …; NULL: none */
} weft_param;

/* Computes a shard of the step weft_params_step(p) from the values that weft_params_get gives, and
 * pushes what comes of it. The same shard gives the same, whoever computes it. One that pushes
 * nothing has no samples. It returns the errors of the calls it makes: if the others complete the
 * step first, get and rows fail with WEFT_ESTATE, the shard is dropped and the job continues. */
typedef weft_status weft_shard_fn(void *arg, weft_params *p, int64_t shard);

typedef enum weft_params_mode {
    WEFT_PARAMS_SYNC, /* a step is complete when all shards have been pushed */
    WEFT_PARAMS_ASYNC /* workers get shards one by one, and each is applied by itself */
} weft_params_mode;

typedef struct weft_params_opts {
    size_t size;
    int n_vars;
    const weft_param *vars; /* copied */
    /* "adam learning_rate=0.001 clipnorm=1": what is pushed are gradients. NULL: increments, which
     * are added to the values: for optimizers that run in the program. */
    const char *optimizer;
    const char *schedule; /* as in weft_compile_opts; NULL: none */
    int shards;           /* of a step; 0: one for each worker */
    /* The sum of all contributions counts, and weights do not. false: the sum divided by the sum of
     * the weights, the mean. */
    bool sum;
    weft_shard_fn *shard; /* may be NULL */
    void *shard_arg;
    weft_params_mode mode;
    /* A directory of checkpoints: values, rows of tables, the optimizer's state and the step. The
     * newest is read when the object is opened. One is written every checkpoint_steps steps (0:
     * 1000), in the background, by one worker and by the servers; the last keep_last stay (0:
     * all). Give all workers the same. NULL: none. */
    const char *checkpoint;
    int64_t checkpoint_steps;
    int keep_last;
    int64_t steps; /* of the job, asynchronous only: needed there */
} weft_params_opts;

/* d: of ctx, and it must outlive the object; NULL: everything is in this process. WEFT_ENOSUP for
 * strategies with several replicas in a process. */
WEFT_API weft_status weft_params_open(weft_ctx *ctx, weft_dist *d, const weft_params_opts *opts,
                                      weft_params **out);
/* Leaves the job: others compute this worker's shards, and when all workers have left, it ends. */
WEFT_API void weft_params_free(weft_params *p);

/* ---- values ---------------------------------------------------------------------------------- */

/* The version that the job is at comes here. The first time it returns when the variables are
 * initialized on all servers; weft_params_step is above 0 if the job had begun before.
 * Asynchronous: this worker gets a shard and values for it, unless it has one, or all steps are
 * done. */
WEFT_API weft_status weft_params_pull(weft_params *p);
/* The values of the version that is here. out->data NULL: a view, only to be read, and valid until
 * the next call of wait, pull or set; otherwise they are copied into this memory. Not of tables. */
WEFT_API weft_status weft_params_get(weft_params *p, const char *name, weft_tensor *out);
/* Rows of a table: row i of rows, [n][width], becomes row ids[i]; ids may repeat. */
WEFT_API weft_status weft_params_rows(weft_params *p, const char *name, int64_t n,
                                      const int64_t *ids, float *rows);
/* Replaces the values of n variables. Before the first pull or wait: the initial values, the same
 * in every worker. Afterwards all workers call it at the same step, and it returns when all servers
 * have the new values: those of the worker that computes shard 0. Optimizers keep their state, and
 * the step its number. Not for tables. Asynchronous: only before the first pull or wait. */
WEFT_API weft_status weft_params_set(weft_params *p, int n, const char *const *names,
                                     const weft_tensor *values);

/* ---- steps ----------------------------------------------------------------------------------- */

WEFT_API int64_t
weft_params_step(const weft_params *p);                /* updates so far, in all runs of the job */
WEFT_API int weft_params_shards(const weft_params *p); /* of a step */
/* The shards that this worker computes while all workers are there: n from *first on. Asynchronous:
 * the one that it has; n is 0 if it has none. weft_params_step is the step of that shard. */
WEFT_API void weft_params_mine(const weft_params *p, int64_t *first, int64_t *n);

/* What a shard of the current step contributes to a variable: a gradient, or an increment, of the
 * variable's shape. Pushed again, it is replaced; variables that are not pushed get 0. Copied. */
WEFT_API weft_status weft_params_push(weft_params *p, int64_t shard, const char *name,
                                      const weft_tensor *value);
/* The same for rows of a table: ids i32 or i64 of any shape, rows f32 [ids…, width]. Rows of one id
 * are added in their order. Other rows do not change. */
WEFT_API weft_status weft_params_push_rows(weft_params *p, int64_t shard, const char *name,
                                           const weft_tensor *ids, const weft_tensor *rows);
/* What the mean is divided by is the sum of these: the number of samples, if sums over samples are
 * pushed. 1, if it is not said. */
WEFT_API weft_status weft_params_weigh(weft_params *p, int64_t shard, double weight);
/* A number that is reported with the shard: its mean loss, say. */
WEFT_API weft_status weft_params_report(weft_params *p, int64_t shard, double value);

/* One step: the shards of this worker are taken from what was pushed, or computed by the function
 * `shard`; it returns when the next version is here. If the job had gone on without this worker, it
 * gets the version that the job is at instead, and what was pushed is dropped. If it fails, nothing
 * has changed, and what was pushed is dropped. If servers die with the only copy of a value, all
 * workers go back to the last checkpoint, or to the first values if there is none, and it returns
 * there: weft_params_step says where. A checkpoint that could not be written is the status of a
 * step that counts. Asynchronous: one shard, as above; if there is none yet it gets one. */
WEFT_API weft_status weft_params_wait(weft_params *p);
/* The mean of what was reported in the last step, weighted, over the shards of all workers.
 * Asynchronous: since the last checkpoint, as far as it was applied at the last pull. */
WEFT_API double weft_params_reported(const weft_params *p);

/* ---- models that workers train by themselves --------------------------------------------------
 * */

/* Variables that are the weights of a model, its layers' states included, f32; slashes in their
 * names become dots, and their first values are the trainer's. opts: neither variables nor an
 * optimizer; what is pushed are increments. The trainer is not one of the strategy's: it trains
 * where it is. A shard then is: weft_params_to_trainer, any number of steps of its own on the
 * samples of this shard, weft_params_push_trainer. The servers add the mean of what has changed
 * (with `sum`: all of it). */
WEFT_API weft_status weft_params_open_model(weft_ctx *ctx, weft_dist *d, weft_trainer *t,
                                            const weft_params_opts *opts, weft_params **out);
/* The trainer gets the values of the version that is here. Its step number and the state of its
 * optimizer stay: with dropout, schedules or momentum the result depends on which worker has
 * trained which shards; otherwise it is the same, bit for bit, whoever is killed. */
WEFT_API weft_status weft_params_to_trainer(weft_params *p, weft_trainer *t);
/* Pushes what the trainer's weights have changed by since then. */
WEFT_API weft_status weft_params_push_trainer(weft_params *p, int64_t shard, weft_trainer *t);

/* ---- files ----------------------------------------------------------------------------------- */

/* A checkpoint of the version that is here, now: all workers call it at the same step, and it
 * returns when it is written, in the worker that writes. Asynchronous: any worker may call it; no
 * new shards are given out until those that are out are applied and a checkpoint has begun. */
WEFT_API weft_status weft_params_checkpoint(weft_params *p);
/* All values as a safetensors file, not the optimizer's state; and back, before the first pull or
 * wait: in every worker. Any worker may save between two steps; tables that servers hold are read
 * as a whole, and are in memory meanwhile, as they are when they are loaded; asynchronous: when all
 * steps are done. */
WEFT_API weft_status weft_params_save(weft_params *p, const char *path);
WEFT_API weft_status weft_params_load(weft_params *p, const char *path);

#ifdef __cplusplus
}
#endif
#endif
