/* job.h - shared by the commands that use a job. */
#ifndef WEFT_CLI_JOB_H
#define WEFT_CLI_JOB_H

#include <weft/sys/lend.h>

#include "cli.h"

struct job {
    const char *path, *model, *data;
    const char *text; /* of the file, if it is not read from path */
    struct text_list sets;
    int threads, memory;
    const char *devices;
    bool json, quiet;
    weft_ctx *boot, *ctx; /* one to read the file with, one with the file's settings */
    weft_job *job;
    weft_job_run *run;
    bool trained;                   /* uses a trained model */
    bool fresh;                     /* move the files of the previous run aside */
    bool asks;                      /* the second argument may be data */
    int input;                      /* standard input, copied to a file; 0: not used */
    const weft_job_open_opts *with; /* as a task of a cluster; NULL: alone */
    weft_status fitted;             /* what training ended with */
    bool only_context;              /* the job is not opened: no data, no model */
    const weft_lend_opts *borrow;   /* data files that are missing here are read from others */
    weft_borrower *borrower;
    bool hush;                   /* only warnings: another worker says the rest */
    volatile bool drained;       /* `weft ctl` has given its shards to other workers, */
    volatile bool asked_to_stop; /* or stopped the job */
    void (*watch)(void *arg, const weft_trainer *t, int64_t epoch, const weft_logs *logs);
    void *watch_arg;
};

#define JOB_FLAGS(j)                                                                       \
    {"set", FLAG_LIST, "KEY=VALUE", "override a value of the file: --set train.epochs=3",  \
     &(j).sets},                                                                           \
        {"threads", FLAG_INT, "N", "same as --set resources.threads=N", &(j).threads},     \
        {"memory", FLAG_INT, "MB", "same as --set resources.memory=MB", &(j).memory},      \
    {                                                                                      \
        "devices", FLAG_TEXT, "LIST", "same as --set resources.devices=LIST", &(j).devices \
    }
#define DATA_FLAG(j)                                                        \
    {                                                                       \
        "data", FLAG_TEXT, "FILE|-", "same as the argument DATA", &(j).data \
    }
#define MODEL_FLAG(j)                                                                       \
    {                                                                                       \
        "model", FLAG_TEXT, "FILE", "use this saved model instead of the job's", &(j).model \
    }

/* Parses the flags of a command and opens its job: returns -1 after printing the help, otherwise an
 * exit code. Positional arguments: the job or the model, and data if the command takes any. */
int parse_job(const struct command *c, const struct flag *flags, struct job *j, int argc,
              char **argv);
/* The second half: j->path and the flags are set. */
int open_job(struct job *j);
/* train.c: trains the job of j->path, with progress as --log says. The job stays open. Ctrl-C
 * stops it in order after catch_signals. */
void catch_signals(void);
/* As the signals that ask for it, if training runs. */
void interrupt_training(void);
void checkpoint_training(void);
int run_training(struct job *j, const char *command, const char *log);
/* Closes the job and returns the command's exit code: rc, which parse_job may have left at -1. */
int close_job(struct job *j, int rc);
/* Prints the library's error. The exit code tells whether the file is at fault. */
int fail_job(weft_status st);
/* Whether it is a saved model or a directory of checkpoints, not a job. */
bool is_model(const char *path);
/* The data of a part, or an exit code after reporting that there is none. */
int find_part(const struct job *j, const char *command, const char *part, weft_ds *out);
/* fresh.c: moves checkpoints, log and saved model of the job aside, each with the next free number,
 * and reports it. */
int move_old_run(const weft_job *job);
/* Whether another process writes checkpoints there: it holds a lock on the directory's .lock. */
bool is_in_use(const char *dir);
void print_logs(const weft_logs *logs, bool json);
/* explain.c: what a job does on a cluster: which server will hold which bytes, how its data is
 * split, and how a step is. An exit code. */
struct explained {
    int workers, servers, replicas;
    int64_t shards; /* 0: as many as workers */
};
int explain_job(const weft_job *job, const struct explained *e);

#endif
