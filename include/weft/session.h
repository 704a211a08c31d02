/* weft/session.h - custom training programs: a loop that runs step by step, with hooks, and
 * what several threads of a program stop by.
 *
 *   weft_session_open(t, d, s, WEFT_OPTS(weft_session_opts, .batch = 32, .last_step = 1000,
 *                                        .checkpoint = "ckpt", .log_steps = 100), &session);
 *   while (!weft_session_should_stop(session))
 *       if (weft_session_run(session, &logs))
 *           break;
 *   st = weft_session_close(session);
 *
 * A session is a weft_fit whose steps are taken one by one: with the same data, order, checkpoints
 * and bits. It is for people who know TensorFlow's MonitoredTrainingSession. The trainer may belong
 * to parameter servers (weft/dist.h): then weft_session_open returns when parameters are
 * initialized or restored, lost tasks are waited for and replaced, and one worker, the one that
 * decides, writes checkpoints and summaries and calls the hooks that are marked so. A worker that
 * takes its time between two steps holds the others up, and is evicted as one that makes no
 * progress.
 *
 * With asynchronous servers or a bound on staleness (weft_ps_opts.consistency) no worker waits for
 * another one: weft_session_run takes one shard of a step, whichever is free, and returns when it
 * has sent what that gave. weft_session_step counts steps whose shards are applied, by any worker,
 * and this worker's last one. Weights that hooks read are those that its last shard was computed
 * from; hooks cannot set them. Where training ends, shards that are out are finished first: then
 * all workers have the same parameters. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_session weft_session;

/* Called by the thread that calls the session, in the order in which hooks are given; each may be
 * NULL. One that fails ends the session with its status: later hooks are not called, and `end` of
 * none is. A hook may read weights and, without parameter servers, set them; measure the model, ask
 * for a checkpoint (weft_trainer_checkpoint) and for the end (weft_session_request_stop). */
typedef struct weft_hook {
    size_t size;
    const char *name; /* in messages */
    void *arg;
    bool decides_only;                                /* call it in the worker that decides alone */
    weft_status (*begin)(void *arg, weft_trainer *t); /* before anything is initialized */
    /* Parameters are initialized, or restored from a checkpoint. */
    weft_status (*created)(void *arg, weft_session *s);
    weft_status (*before_run)(void *arg, weft_session *s);
    weft_status (*after_run)(void *arg, weft_session *s, const weft_logs *logs);
    weft_status (*end)(void *arg, weft_session *s); /* the session has ended in order */
} weft_hook;

typedef struct weft_session_opts {
    size_t size;
    int64_t batch;           /* for an unbatched dataset; 0: 32 */
    bool no_shuffle;         /* for an unbatched dataset */
    uint64_t seed;           /* for that shuffle */
    int64_t epochs;          /* 0: until something else ends the session */
    int64_t steps_per_epoch; /* 0: the dataset's; required for an endless one */
    /* The step to stop after, counted over all runs; or how many steps to take in this one. 0: not
     * given. A later session continues where this one stopped. A round of workers that update
     * (weft_compile_opts.every) ends with last_step, but is not cut by n_steps. Asynchronous
     * training ends at last_step exactly, and with n_steps at the first step after them that no
     * worker has begun. */
    int64_t last_step, n_steps;
    const char *checkpoint;   /* a directory; NULL: none */
    int64_t checkpoint_steps; /* one every so many; 0 with checkpoint_seconds 0: 600 seconds */
    double checkpoint_seconds;
    int keep_last;         /* checkpoints; 0: 5 */
    const char *summaries; /* a directory for TensorBoard; NULL: none */
    int64_t log_steps;     /* a line with step, logs and speed every so many; 0: none */
    /* Called first, in every worker: weights from elsewhere, say. A checkpoint replaces them. */
    weft_status (*init)(void *arg, weft_trainer *t);
    void *init_arg;
    int n_hooks;
    const weft_hook *hooks; /* copied */
    /* A directory for all of the above that is not given: checkpoints in `ckpt`, summaries in
     * `logs` below it. It is created. NULL: none */
    const char *model_dir;
    double keep_hours; /* > 0: and one checkpoint every so many hours */
    /* May be NULL. Whether training may begin: asked in every worker once parameters are
     * initialized or restored, and again every 0.2 s while *ready stays false; after ready_s
     * seconds (0: 600) weft_session_open fails with WEFT_ETIME. */
    weft_status (*ready)(void *arg, weft_trainer *t, bool *ready);
    void *ready_arg;
    double ready_s;
    /* A file for the model (weft_trainer_save), written by the worker that decides when the session
     * has ended in order, before `end` of the hooks. NULL: none */
    const char *save;
} weft_session_opts;

/* Opens the data, initializes or restores, and waits for the first step to be possible. The
 * trainer, the data and what they belong to must outlive the session, and serve nothing else
 * meanwhile. */
WEFT_API weft_status weft_session_open(weft_trainer *t, weft_data *d, weft_ds s,
                                       const weft_session_opts *opts, weft_session **out);
/* Whether there is no further step: the last one was taken, the data has ended, somebody asked for
 * the end, another worker ended the job, or a step failed. */
WEFT_API bool weft_session_should_stop(const weft_session *s);
/* One step: before_run of all hooks, the step, after_run of all. *logs (may be NULL): loss and
 * metrics as means over the epoch so far, borrowed until the next call. If the job has ended
 * instead, no step is taken, weft_session_should_stop is true, and after_run is not called. */
WEFT_API weft_status weft_session_run(weft_session *s, weft_logs *logs);
/* No further step after this one. By any thread. In the worker that decides it ends the job for
 * all; any other leaves the job, and its share is computed by those that remain. */
WEFT_API void weft_session_request_stop(weft_session *s);
/* Ends training as if a stop was requested, writes the last checkpoint, calls `end` of the hooks,
 * and frees the session. The first error of the session, if there was one: then no hook is called.
 * NULL is fine. */
WEFT_API weft_status weft_session_close(weft_session *s);

WEFT_API int64_t weft_session_step(const weft_session *s); /* steps so far, over all runs */
WEFT_API weft_trainer *weft_session_trainer(const weft_session *s);
WEFT_API bool weft_session_decides(const weft_session *s);  /* this worker, at the last step */
WEFT_API bool weft_session_restored(const weft_session *s); /* it began from a checkpoint, or joined
                                                             * a job that had begun */

/* ---- threads that end together --------------------------------------------------------------- */

/* Threads of a program ask it whether to go on; the first that fails, or wants to stop, ends all.
 * All calls by any thread. */
typedef struct weft_coord weft_coord;
WEFT_API weft_status weft_coord_new(weft_ctx *ctx, weft_coord **out);
/* Starts a thread. A status other than WEFT_OK is a request to stop, with the thread's error text.
 * */
WEFT_API weft_status weft_coord_start(weft_coord *c, weft_status (*fn)(void *arg, weft_coord *c),
                                      void *arg);
/* st: why; WEFT_OK: nothing is wrong. The first one counts. why: NULL for weft_error(). */
WEFT_API void weft_coord_request_stop(weft_coord *c, weft_status st, const char *why);
WEFT_API bool weft_coord_should_stop(const weft_coord *c);
/* Waits for a request: true; false after so many seconds. */
WEFT_API bool weft_coord_wait(weft_coord *c, double seconds);
/* Waits for all threads. Once a stop is requested they have grace_s seconds (0: 120): after that
 * WEFT_ETIME says how many are left. Otherwise the status of the first request. */
WEFT_API weft_status weft_coord_join(weft_coord *c, double grace_s);
/* Only when all threads have ended. NULL is fine. */
WEFT_API void weft_coord_free(weft_coord *c);

#ifdef __cplusplus
}
#endif
#endif
