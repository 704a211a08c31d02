/* weft/cluster.h - the tasks of a job: who takes part, where each is found, and which of them this
 * process is.
 *
 *   weft_cluster *c;
 *   weft_cluster_find(ctx, WEFT_OPTS(weft_cluster_opts, .env = (const char **)environ), &c);
 *   puts(weft_cluster_source(c));           TF_CONFIG: worker/1 of 1 chief, 2 ps, 4 workers
 *
 * A description comes from the first of these that is there: the text `tasks`, a file, TF_CONFIG,
 * torchrun, Open MPI, Slurm. The library does not read the environment: the program passes it.
 *
 * A job has tasks of four roles. A chief says who belongs to the job, servers (ps) hold parameters,
 * workers compute, evaluators follow checkpoints. One process may be several tasks: tasks with the
 * same `process` are one. Tasks are listed by role, in this order, and then by index; every process
 * of a job gets the same list. Workers and evaluators connect to the others and need no address. */
#ifndef WEFT_CLUSTER_H
#define WEFT_CLUSTER_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_task_role {
    WEFT_TASK_CHIEF,
    WEFT_TASK_PS,
    WEFT_TASK_WORKER,
    WEFT_TASK_EVALUATOR
} weft_task_role;

typedef struct weft_cluster weft_cluster;

typedef struct weft_cluster_opts {
    size_t size;
    /* "chief=ADDRESS;ps=ADDRESS,ADDRESS;worker=2": addresses of the tasks of a role, or, of workers
     * and evaluators, how many there are. An address is tls:HOST:PORT, tcp:HOST:PORT, uds:PATH or
     * shm:PATH; HOST:PORT alone has the transport below. */
    const char *tasks;
    const char *file;       /* the same as YAML: "ps: [tls:a:7001, tls:b:7001]", "worker: 4" */
    const char *task;       /* which of them this process is, "ps/1"; NULL: as the source says */
    const char *const *env; /* variables, "NAME=VALUE", ended by NULL; NULL: none */
    /* For sources that number processes and give them no roles: Open MPI, torchrun, Slurm. The
     * first `ps` processes are servers, the last `evaluators` evaluators, all others workers. */
    int ps;            /* 0: one for each four processes */
    int evaluators;    /* 0: none */
    bool own_chief;    /* process 0 is the chief and nothing else; false: it is also ps/0 */
    const char *hosts; /* in the order of processes, "a,b[1-3]", where the source has no names */
    const char *transport; /* of addresses without one: "tls" or "tcp"; NULL: tls */
    int port;              /* the chief's; servers have the next ones. 0: chosen by the source */
    /* `task` may be beyond the list: it is added to the job, which runs. A server has an
     * address. */
    bool extra;
    const char *address;
} weft_cluster_opts;

/* WEFT_ENOENT: there is no description anywhere. WEFT_EPARSE, WEFT_EINVAL: one is there, and wrong:
 * the text says which and where. */
WEFT_API weft_status weft_cluster_find(weft_ctx *ctx, const weft_cluster_opts *opts,
                                       weft_cluster **out);
WEFT_API void weft_cluster_free(weft_cluster *c);

typedef struct weft_task {
    size_t size;
    weft_task_role role;
    int index;           /* within the role */
    int process;         /* tasks of one process have the same */
    bool here;           /* it is this process's */
    const char *name;    /* "ps/1" */
    const char *address; /* "": it has none */
} weft_task;

WEFT_API int weft_cluster_tasks(const weft_cluster *c); /* how many */
WEFT_API weft_status weft_cluster_task(const weft_cluster *c, int i, weft_task *out);
WEFT_API int weft_cluster_count(const weft_cluster *c, weft_task_role role);
WEFT_API int weft_cluster_processes(const weft_cluster *c);
WEFT_API int weft_cluster_process(const weft_cluster *c); /* this one's; -1: not known */
/* One line: which source was used, and what this process is. */
WEFT_API const char *weft_cluster_source(const weft_cluster *c);
/* All tasks in the form of weft_cluster_opts.tasks, as weft_ps_opts.cluster takes it. */
WEFT_API const char *weft_cluster_text(const weft_cluster *c);
/* A table for people: each process, its tasks, their addresses. Freed with weft_text_free. */
WEFT_API weft_status weft_cluster_explain(const weft_cluster *c, char **out);

WEFT_API const char *weft_task_role_name(weft_task_role role); /* "ps" */

#ifdef __cplusplus
}
#endif
#endif
