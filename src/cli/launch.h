/* launch.h - weft launch: a job's tasks as processes of this machine, watched and started again.
 *
 * Everything happens in one thread: a loop that waits for signals, for lines of tasks, and for the
 * time. Nothing outlives the launcher, however it ends: tasks die with it, and a process that does
 * nothing else (the keeper) removes its directory. */
#ifndef WEFT_CLI_LAUNCH_H
#define WEFT_CLI_LAUNCH_H

#include <stdarg.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <weft/sys/net.h>

#include "job.h"
#include "procs.h"
#include "store.h"
#include "tasks.h"

enum {
    MAX_LAUNCHED = 260,
    MAX_FOLDER = 100, /* a Unix socket in it needs a short path */
    MAX_CLUSTER = 1 << 16,
    LINE_BYTES = 8192,
    N_RECENT = 8 /* events on the screen, at most */
};

/* Lines that arrive in parts. */
struct lines {
    int fd; /* -1: closed */
    size_t n;
    char text[LINE_BYTES];
};

enum task_state {
    TASK_WAITS, /* it is started at `start_at` */
    TASK_RUNS,
    TASK_REMOTE, /* it joins from elsewhere, and is not this machine's */
    TASK_DONE,   /* ended with exit code 0 */
    TASK_OUT,    /* cannot come back: the others do its work */
    TASK_DRAINED /* has handed its work to the others, and ended */
};

struct launched {
    char name[TASK_NAME], role[TASK_NAME];
    int number, threads;
    enum task_state state;
    bool extra, drains; /* it was added while the job ran; `weft ctl` drains it */
    bool hangs;         /* its program: the chief has left it out */
    char address[256];  /* of an extra server */
    pid_t pid;          /* 0: none */
    int starts, quick_deaths;
    double started, start_at;
    struct lines out, err, report;
    struct task_stat stat, middle, before; /* the last report, and two from a second or two ago */
    double stat_at, middle_at, before_at;  /* when; 0: not yet */
};

enum phase {
    PHASE_RUNS,
    PHASE_ENDS,   /* a worker is done: the others follow, */
    PHASE_RATES,  /* and evaluators measure the last checkpoint */
    PHASE_STOPS,  /* Ctrl-C: workers end, and the one that decides writes a checkpoint */
    PHASE_LEAVES, /* those that did not are killed, */
    PHASE_CLOSES  /* and then the rest, are asked to go; what does not is killed */
};

struct screen {
    bool live;   /* a terminal: a table is repainted */
    bool colors; /* NO_COLOR is not set */
    int height;  /* of what is painted now */
    double opened, painted;
};

struct metrics;
struct doorway;

struct launch {
    struct job j;
    /* Flags, and what the job says where they do not. */
    int servers, workers, evaluators, replicas, standby, metrics_port;
    const char *consistency; /* NULL: as the job says */
    int remote, join_port, token_uses, token_minutes;
    const char *store_said[STORE_KEYS];
    char store_text[STORE_KEYS][STORE_TEXT];
    const char *transport, *log, *events, *metrics_host, *host, *token;
    bool insecure, explain;
    double timeout_s;
    int64_t max_restarts, shards, epochs;
    double shard_samples; /* of a shard; on average */
    /* The plan. */
    int n_cores, n_tasks;
    bool crowded; /* more tasks than cores */
    struct launched task[MAX_LAUNCHED];
    char folder[MAX_FOLDER], cluster[MAX_CLUSTER], store[STORE_TEXT + 16];
    char set[8][64]; /* settings that tasks get in addition */
    int n_sets;
    /* The run. */
    weft_ctx *boot;
    weft_job *job;
    int signals;
    struct keeper keeper;
    enum phase phase;
    double deadline; /* of the phase; 0: none */
    int64_t restarts;
    bool wrote;                    /* what a run leaves at its end is there */
    const struct launched *failed; /* a worker, at the end of the job: it could not write that */
    int failed_rc;
    int round, rc;
    char why[512];
    bool unread; /* standard output was closed */
    FILE *event_file;
    char recent[N_RECENT][200];
    struct screen screen;
    weft_authority *authority;
    double certified; /* when the certificates were issued */
    const char *cert_text;
    int64_t cert_seconds;
    weft_scalars *board;
    double board_at; /* when it was written last */
    bool board_off;  /* it cannot be written */
    struct metrics *metrics;
    struct doorway *doorway;
    weft_lender *lender; /* for tasks that join without the data files */
    char lends_at[300];
    atomic_int next_worker, next_server; /* numbers of tasks that are added; also by the door */
    char control[2][512];                /* files of launch_ctl.c; "": none */
    int control_fd[2];                   /* … locked while this launcher lives */
};

/* launch_plan.c */
int make_plan(struct launch *l);
int explain_plan(struct launch *l);
void print_plan(const struct launch *l); /* in a line */
/* Addresses, in the directory of the run or on this machine. */
int make_addresses(struct launch *l);

/* launch_run.c: starts everything, and returns the exit code when nothing runs any more. Signals
 * are blocked before any thread is started: one that does not block them would end the process. */
int open_signals(struct launch *l);
int run_tasks(struct launch *l);

/* launch_folder.c: the directory, and the process that removes it when the launcher is killed. */
int open_folder(struct launch *l);
void close_folder(struct launch *l);

/* launch_store.c: where chiefs write who belongs to the job. Whether it answers; a place for a
 * chief that starts with nothing; and what is left of all of them is removed. */
int store_check(struct launch *l);
int store_new(struct launch *l);
void store_close(struct launch *l);

/* launch_show.c */
void show_open(struct launch *l);
void show_close(struct launch *l);
void show_paint(struct launch *l, bool now);
/* A line of a task, or of the launcher (NULL). */
void show_line(struct launch *l, const struct launched *t, const char *line, bool error);
/* Something happened to a task: to the event log and the screen. */
void show_event(struct launch *l, const char *task, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, but not as a line where there is no screen. */
void show_note(struct launch *l, const char *task, const char *what);
const char *state_word(const struct launched *t);
/* Over the last second or two; 0: not known. */
double steps_a_second(const struct launched *t);
double samples_a_second(const struct launch *l, const struct launched *t);
double bytes_a_second(const struct launched *t);
double waiting_share(const struct launched *t);
/* Whether the job trains asynchronously, or with a bound on staleness. */
bool is_stale(const struct launch *l);
double busy_share(const struct launched *t); /* of a server */

/* launch_board.c: counters in TensorBoard, every few seconds or now. */
void board_tend(struct launch *l, bool now);
void board_close(struct launch *l);

/* launch_door.c: tasks that join from other machines. */
int door_open(struct launch *l);
void door_close(struct launch *l);
/* The certificate of what lends data files to them: again, before it expires. */
int door_certify(struct launch *l);
/* Of the context that the door and the lender use: from any thread. */
void door_log(void *arg, int level, const char *line);
/* Lines that the door has said meanwhile; and whose place is free again. */
void door_tend(struct launch *l);
void door_is_gone(struct launch *l, const char *task);

/* launch_ctl.c: files that tell `weft ctl` where the chief is, in the directories of the job. */
int ctl_open(struct launch *l);
void ctl_close(struct launch *l);
/* n further tasks of a role are started. */
void ctl_add(struct launch *l, const char *role, int n);
/* launch_plan.c: a task more; and a port that is free now, 0: none. */
struct launched *add_task(struct launch *l, const char *role, int number);
int free_port(int *fd);
const char *wire(const struct launch *l);

/* launch_metrics.c: counters of all tasks as Prometheus text, over HTTP. */
int metrics_open(struct launch *l);
void metrics_close(struct launch *l);
void metrics_tend(struct launch *l);
/* The text; returns how many bytes it needs. */
size_t metrics_text(const struct launch *l, char *to, size_t size);

#endif
