/* node.h - shared by the files of weft node. */
#ifndef WEFT_CLI_NODE_H
#define WEFT_CLI_NODE_H

#include <limits.h>
#include <pthread.h>

#include <weft/cluster.h>
#include <weft/sys/join.h>

#include "job.h"
#include "procs.h"
#include "store.h"
#include "tasks.h"

enum { MAX_MINE = 8 };

struct node;

/* A task that this process is. */
struct mine {
    struct node *n;
    char name[TASK_NAME * 2];
    bool worker, evaluator, chief, started;
    int number, rc;
    pthread_t thread;
    char pem[3][PATH_MAX];
    weft_ps_opts ps;
    weft_lend_opts lend; /* or what it borrows */
    weft_job *lent;
    weft_lender *lender;
    struct task_stat stat;
    int64_t checkpoints; /* that were reported */
};

struct node {
    struct job j;
    const char *role, *task, *cluster, *keys, *log, *report, *lifeline, *hosts, *join, *token,
        *part, *lend, *borrow;
    int ps_count, evaluators, port, minutes, renew_seconds, wait_minutes, replicas, report_fd;
    double timeout_s, balance_s, stall_s;
    bool insecure, own_chief, explain, extra;
    const char *address; /* of a server that is added */
    const char *store[STORE_KEYS];
    char store_text[STORE_KEYS][STORE_TEXT];
    char name[TASK_NAME * 2];
    weft_cluster *cluster_found;
    const char *cluster_text;
    int n_mine;
    struct mine mine[MAX_MINE];
    /* Of a process that has joined. */
    struct keeper keeper;
    char folder[128], door[256], joined[WEFT_TASK_NAME];
    char *description; /* cut up: settings, and the job file */
    weft_ctx *boot;
    bool renews, leaves; /* leaves: with the lock */
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    pthread_t renewer;
};

/* node_eval.c: an evaluator, until the run is complete. */
void node_evaluate(struct mine *m);

/* node.c: what a task needs to lend data files at an address, or to borrow them from some. */
void node_lending(struct mine *m, const char *address);

/* node_join.c: gets a certificate, the list of tasks and the job. */
int node_join(struct node *n, weft_ctx *boot);
/* Removes what node_join has made. */
void node_leave(struct node *n);

#endif
