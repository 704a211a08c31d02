/* program.h - programs as tasks, for the files that make them up: program.c (what this process is,
 * and its tasks), start.c (tasks of this machine), folder.c (their directory), address.c (what they
 * are told), map.c (the device map), worker.c, evaluator.c. */
#ifndef WF_TRAIN_PROGRAM_H
#define WF_TRAIN_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cluster/spec.h"
#include "train/train.h"
#include "weft/program.h"

enum { WF_MAX_PATH = 100, WF_MAX_TASK_NAME = 32 }; /* sockets have short names */
enum { WF_MAX_KEYS = 1024 };

/* The options of a task, and the names of its files for TLS. */
struct wf_task_opts {
    weft_ps_opts ps;
    char authority[WF_MAX_KEYS], certificate[WF_MAX_KEYS], key[WF_MAX_KEYS];
};

/* A started task. */
struct wf_started {
    char name[WF_MAX_TASK_NAME];
    bool runs, done; /* done: it has ended in order */
    int restarts;
    pid_t pid;        /* of a process */
    pthread_t thread; /* of a task that is a thread: to be joined */
    bool threaded;
    weft_program *p;
    weft_status st; /* how it ended */
    char why[256];
};

struct weft_program {
    weft_ctx *ctx;
    weft_program_opts o;
    weft_ps_opts ps;
    weft_cluster *cluster; /* NULL: this process is no task, and has started none */
    bool is_task;
    const char *store; /* the chief's; NULL: in memory */
    const char *keys;  /* the directory of certificates; NULL: none */
    char source[256];
    /* Of started tasks. */
    char folder[WF_MAX_PATH], store_path[WF_MAX_PATH + 8];
    pid_t janitor;
    int lifeline;
    struct wf_started *task;
    int n_tasks;
    struct wf_started *failed; /* the first that did */
    bool started;
    pthread_t keeper; /* starts, waits for and restarts processes */
    bool has_keeper;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun; /* the keeper has started all */
    bool ends;  /* the keeper ends what runs */
    int64_t kill_at;
    int64_t without;     /* since when no worker runs; 0: one does */
    atomic_bool stop;    /* workers and servers of this process are to end */
    weft_worker *worker; /* those that are open, with the lock */
};

struct weft_worker {
    weft_program *p;
    weft_worker *next;
    char name[WF_MAX_TASK_NAME];
    int index, count;
    weft_worker_config config;
    weft_ctx *ctx;
    weft_dist *dist;
    weft_coord *coord;
    struct wf_task_opts opts;
};

/* map.c: what a device map says of a task, on top of what *out has. NULL: nothing. */
weft_status wf_device_map(const char *map, const char *task, weft_worker_config *out);
/* Whether all of it can be read. */
weft_status wf_device_map_check(const char *map, const weft_cluster *c);

/* folder.c: a directory that vanishes with this process. */
weft_status wf_program_folder(weft_program *p);
void wf_program_remove(weft_program *p);

/* start.c: started tasks that run, or the workers among them. With the lock. */
int wf_program_running(const weft_program *p, bool workers);

/* program.c: runs one task of this process, until it has ended. */
weft_status wf_program_task(weft_program *p, const char *task);
/* A context of a task, as the device map says. */
weft_status wf_program_ctx(weft_program *p, const char *task, weft_worker_config *config,
                           weft_ctx **out);
weft_status wf_program_opts_of(const weft_program *p, const char *task, struct wf_task_opts *out);

/* address.c: the list of tasks that are started, with their addresses, and certificates for them;
 * and a file that says that no worker runs any more. */
weft_status wf_program_list(weft_program *p, struct wf_buf *out);
weft_status wf_program_certify(weft_program *p);
void wf_program_say_ended(weft_program *p);
bool wf_program_has_ended(const weft_program *p);

#endif
