/* leased_procs.h - for tests of asynchronous training and bounded staleness in processes: a job
 * whose weights say how often each sample was applied.
 *
 * What is trained adds up exactly in any order: a sample has an input and a row of a table of its
 * own, and the gradient of its loss is a constant. Tasks are forked processes of the test, which
 * leave their results in shared memory. Failures end the program. */
#ifndef WF_TEST_LEASED_PROCS_H
#define WF_TEST_LEASED_PROCS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 512, UNITS = 16, BATCH = 16, MAX_TASKS = 12 };
#define LEASED_RATE 0x1p-12

struct setting {
    const char *consistency, *transport;
    int servers, workers, replicas, shards, epochs;
    const char *checkpoints; /* NULL: none */
    bool restarts;           /* those that are killed */
    int every; /* workers update, and are merged after so many batches; 0: they do not */
    const char *merge;
    bool session; /* steps are taken one by one, to the last of all epochs, */
    int extra;    /* and so many more, fewer than an epoch has */
};

struct result {
    bool has;
    weft_status st;
    int64_t step;
    double least, most; /* of how often a sample was applied, over all weights and rows */
    double total;       /* of all samples, by any of their weights */
    double loss[2];     /* of the first and the last epoch */
    int n_epochs, staleness;
    int64_t sent, received; /* bytes, by a worker */
    char why[300];
};

extern struct shared {
    atomic_int epochs;       /* that have ended */
    atomic_bool is_attacked; /* the job must not end yet: epochs take longer, */
    atomic_int hold;         /* and this one does not end; 0: none */
    struct result result[MAX_TASKS];
} * leased_shared;

struct run {
    struct setting s;
    char folder[64], cluster[1024], store[96];
    int n_tasks;
    char task[MAX_TASKS][16];
    pid_t pid[MAX_TASKS];
};

int leased_setup(void **state);
void leased_pause(int64_t ms);
void leased_begin(struct run *r, const struct setting *s);
/* Until this many epochs have ended. */
void leased_await(struct run *r, int epoch);
/* The task is started again, if the setting says so. */
void leased_kill(struct run *r, const char *name);
/* The task does nothing for a while. */
void leased_stop(struct run *r, const char *name, int64_t ms);
/* Waits for all, and looks at what they have found: every sample was applied once an epoch. */
void leased_finish(struct run *r);
/* Kills what is left. */
void leased_end(struct run *r);
/* A job, while one task after the other is killed. */
void leased_torture(const struct setting *s, const char *const *victims);

#endif
