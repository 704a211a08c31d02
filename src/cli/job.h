/* job.h - what the commands about a job share. */
#ifndef WEFT_CLI_JOB_H
#define WEFT_CLI_JOB_H

#include "cli.h"

struct job {
    const char *path, *model, *data;
    struct text_list sets;
    int threads, memory;
    const char *devices;
    bool json, quiet;
    weft_ctx *boot, *ctx; /* one to read the file with, one as the file wants it */
    weft_job *job;
    weft_job_run *run;
    bool trained; /* a model that was trained is looked at or asked */
    bool fresh;   /* move what the run before left aside */
    bool asks;    /* data may be the second argument */
    int input;    /* standard input, kept in a file; 0: it is not asked for */
};

#define JOB_FLAGS(j)                                                                    \
    {"set", FLAG_LIST, "KEY=VALUE", "change a value of the file: --set train.epochs=3", \
     &(j).sets},                                                                        \
        {"threads", FLAG_INT, "N", "as --set resources.threads=N", &(j).threads},       \
        {"memory", FLAG_INT, "MB", "as --set resources.memory=MB", &(j).memory},        \
    {                                                                                   \
        "devices", FLAG_TEXT, "LIST", "as --set resources.devices=LIST", &(j).devices   \
    }
#define DATA_FLAG(j)                                                            \
    {                                                                           \
        "data", FLAG_TEXT, "FILE|-", "the same as the argument DATA", &(j).data \
    }
#define MODEL_FLAG(j)                                                                 \
    {                                                                                 \
        "model", FLAG_TEXT, "FILE", "use this saved model, not the job's", &(j).model \
    }

/* Parses the flags of a command and opens its job: -1 after the help, otherwise an exit code. Positional arguments: the job or
 * the model, and data where the command takes some. */
int parse_job(const struct command *c, const struct flag *flags, struct job *j, int argc,
              char **argv);
/* The second half: j->path and flags are set. */
int open_job(struct job *j);
/* Closes the job and returns the command's exit code: rc, which parse_job may have left at -1. */
int close_job(struct job *j, int rc);
/* Prints the library's error. Where the file is at fault, the exit code says so. */
int fail_job(weft_status st);
/* A saved model or a folder of checkpoints, not a job. */
bool is_model(const char *path);
/* The data of a part, or an exit code after saying why there is none. */
int find_part(const struct job *j, const char *command, const char *part, weft_ds *out);
/* fresh.c: moves checkpoints, log and saved model of the job aside, each with the next free number, and says so. */
int move_old_run(const weft_job *job);
void print_logs(const weft_logs *logs, bool json);

#endif
