/* weft/program.h - a program of your own as the tasks of a job: the same binary is chief, parameter
 * server and worker.
 *
 *   static weft_status work(void *arg, weft_worker *w)
 *   {
 *       …  weft_worker_ctx(w), weft_worker_dist(w): a model, a session, or parameter calls
 *   }
 *
 *   int main(int argc, char **argv)
 *   {
 *       weft_program_open(ctx, WEFT_OPTS(weft_program_opts, .workers = 2, .ps = 1,
 *                                        .env = (const char *const *)environ,
 *                                        .argv = (const char *const *)argv, .work = work), &p);
 *       st = weft_program_run(p);
 *       weft_program_free(p);
 *   }
 *
 * Started by hand, this program starts four more processes of itself: a chief, a server and two
 * workers. Started by Slurm, mpirun or torchrun, or with TF_CONFIG, it is the task that these say.
 *
 * A program object may be used by one thread at a time; weft_program_shutdown by any. */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "weft/cluster.h"
#include "weft/dist.h"
#include "weft/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_program weft_program;
typedef struct weft_worker weft_worker;

/* What a worker or an evaluator does. In a thread of its own, if several tasks are in a process. */
typedef weft_status weft_worker_fn(void *arg, weft_worker *w);

typedef struct weft_program_opts {
    size_t size;
    int workers, ps; /* of a job that is started on this machine; 0: 1 */
    /* Variables, as in weft_cluster_opts. WEFT_TASKS (a list of tasks) and WEFT_TASK (which of
     * them) come first: started tasks get them. */
    const char *const *env;
    const weft_cluster_opts *cluster; /* how else the job is described; env in it is ignored. NULL:
                                       * by variables alone */
    weft_worker_fn *work;
    void *work_arg;
    const char *const *argv; /* of started processes, ended by NULL: they run this executable */
    bool threads;            /* started tasks are threads of this process; not with argv */
    /* Which task computes on what: "worker/0: cpu:0 threads=1; worker/1: gpu:0 memory=4G". A task
     * is ROLE/NUMBER, ROLE alone for all of them, or "all"; all entries that fit count, later ones
     * more. memory: of the device, or of the process if it computes on the cpu. Default: the cpu,
     * with as many threads as there are cores; of started tasks, cores divided by tasks. */
    const char *devices;
    const weft_ps_opts *servers; /* of all tasks; cluster, task and the calls in it are ignored */
    uint64_t seed;               /* of the workers' contexts */
    weft_log_fn *log;            /* of all contexts that are made; NULL: silent */
    void *log_arg;
    int restarts;       /* of each started process that was killed by a signal; 0: 3, -1: none */
    const char *folder; /* an existing directory for sockets of started tasks; NULL: /tmp */
    /* Evaluators measure checkpoints while the workers train (weft_worker_next_checkpoint).
     * evaluate: what they do, with work_arg; they have no strategy. */
    weft_worker_fn *evaluate;
    int evaluators; /* of a job that is started on this machine */
    /* Over which started tasks talk: "shm" (NULL), "uds", or "tls": TLS by certificates of an
     * authority that exists for this job alone, on ports of this machine. */
    const char *transport;
    /* Of tasks with addresses tls:HOST:PORT: the directory that `weft cert` has written, with
     * authority.pem, and ps-0.pem and ps-0.key for the task ps/0. */
    const char *keys;
} weft_program_opts;

/* WEFT_EPARSE, WEFT_EINVAL: a description or the device map is wrong; the text says where. Strings
 * and lists are borrowed until the program is freed. */
WEFT_API weft_status weft_program_open(weft_ctx *ctx, const weft_program_opts *opts,
                                       weft_program **out);
/* Shuts down first. */
WEFT_API void weft_program_free(weft_program *p);
/* One line: which task this process is and who said so; or that it is none. */
WEFT_API const char *weft_program_source(const weft_program *p);
WEFT_API bool weft_program_is_task(const weft_program *p);

/* The usual main: if this process is one task or more, runs them and returns when they have ended;
 * otherwise start, join and shutdown. */
WEFT_API weft_status weft_program_run(weft_program *p);

/* ---- the parts of it ------------------------------------------------------------------------- */

/* Starts a chief, all servers, workers and evaluators on this machine, as processes or threads.
 * Started processes die with this one, however it ends. */
WEFT_API weft_status weft_program_start(weft_program *p);
/* Waits until all started tasks have ended, at most so many seconds (0: as long as it takes; after
 * that WEFT_ETIME, and join may be called again). Killed processes are started again meanwhile. The
 * status of the first task that failed; a process that failed is WEFT_EPEER and named. */
WEFT_API weft_status weft_program_join(weft_program *p, double timeout_s);
/* Ends all started tasks: workers are asked to stop (weft_worker_stop; processes by SIGTERM), and
 * after grace_s seconds (0: 10) processes are killed. WEFT_ETIME: so many threads are still
 * running; they keep the program from being freed. Nothing of what was started is left behind
 * otherwise. */
WEFT_API weft_status weft_program_shutdown(weft_program *p, double grace_s);
/* A chief or a server of the job in this thread: returns when the job has ended. task: "ps/0", one
 * of this process's. */
WEFT_API weft_status weft_program_serve(weft_program *p, const char *task);
/* The process of a started task, 0: it is none, or does not run now. */
WEFT_API int64_t weft_program_pid(weft_program *p, const char *task);

/* ---- workers --------------------------------------------------------------------------------- */

/* A worker of this process, as `work` gets it: its context on its device, and its strategy. */
WEFT_API weft_status weft_worker_open(weft_program *p, const char *task, weft_worker **out);
WEFT_API void weft_worker_close(weft_worker *w);

WEFT_API const char *weft_worker_name(const weft_worker *w); /* "worker/1" */
WEFT_API int weft_worker_index(const weft_worker *w);
WEFT_API int weft_worker_count(const weft_worker *w); /* workers of the job */
WEFT_API weft_ctx *weft_worker_ctx(weft_worker *w);
WEFT_API weft_dist *weft_worker_dist(weft_worker *w); /* NULL: it is an evaluator */
/* Threads of the program that end with the worker; join is yours, with a grace of your own. */
WEFT_API weft_coord *weft_worker_coord(weft_worker *w);
/* By any thread: the coordinator is asked to stop, and with it the worker's sessions. */
WEFT_API void weft_worker_stop(weft_worker *w);
WEFT_API bool weft_worker_should_stop(const weft_worker *w);

typedef struct weft_worker_config {
    size_t size;
    char devices[64]; /* as in weft_ctx_opts */
    int threads;      /* 0: as many as there are cores */
    int64_t memory;   /* bytes; 0: no limit */
} weft_worker_config;
/* What the device map says of this worker. */
WEFT_API weft_status weft_worker_config_get(const weft_worker *w, weft_worker_config *out);

/* weft_session_open, with one hook more: it ends the session when the worker is asked to stop. */
WEFT_API weft_status weft_worker_session(weft_worker *w, weft_trainer *t, weft_data *d, weft_ds s,
                                         const weft_session_opts *opts, weft_session **out);

/* For evaluators; workers may call it, too. Waits for a checkpoint in the directory whose step is
 * not *step (-1: any), at most so many seconds (0: as long as it takes); t gets the weights of the
 * newest, and *step its step. Then measure, for example with weft_evaluate. WEFT_ECANCEL: the job
 * has ended, or the worker was asked to stop, and the last checkpoint has been read before.
 * WEFT_ETIME: there is none yet. Checkpoints that cannot be read are left out, with a warning. */
WEFT_API weft_status weft_worker_next_checkpoint(weft_worker *w, weft_trainer *t, const char *dir,
                                                 double timeout_s, int64_t *step);

#ifdef __cplusplus
}
#endif
#endif
