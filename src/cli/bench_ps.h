/* bench_ps.h - what the parts of `weft bench ps` share: what is trained, measured and started. */
#ifndef WEFT_CLI_BENCH_PS_H
#define WEFT_CLI_BENCH_PS_H

#include "cli.h"
#include "procs.h"

enum { MAX_TABLES = 26, MAX_BLOCKS = 101, WARM_UP = 5 };

/* What is measured: flags of the command, given to all processes. */
struct setting {
    const char *workload, *transport, *json, *against;
    int bytes, servers, workers, replicas, threads, blocks, steps;
    int batch; /* samples of a step; 0: by the workload */
    /* Tables: rows and columns of each, how many, 0: by the workload; rows unused for `forget`
     * steps are forgotten, 0: none are; and the memory of each server, NULL: no limit. */
    int rows, width_of_row, tables, forget;
    const char *limit;
    int shards; /* of a step */
    const char *consistency;
    const char *prefix; /* of addresses: two jobs may run at the same time */
    /* Of the processes that the command starts. */
    const char *task, *cluster, *folder;
};

struct shape {
    const char *name;
    int n_sizes, batch, steps;
    int64_t size[5];
    const char *optimizer;
    int n_tables; /* each looked up once a sample, besides the other inputs */
    int n_layers; /* side by side, of size[0] inputs and outputs; 0: one after the other */
    int n_rows, row_width, forget; /* of a table */
    bool fresh;                    /* every step looks up other rows */
};

struct training {
    weft_ctx *ctx;
    weft_dist *dist;
    weft_model *model;
    weft_trainer *trainer;
    float *x, *target; /* target: of one output, otherwise y */
    int32_t *y, *id[MAX_TABLES];
    int64_t width;
    int batch, n_tables, n_layers, n_rows;
    int64_t n_steps; /* so far */
    bool fresh;
};

/* ---- workloads (bench_ps_work.c) ------------------------------------------------------------- */

/* The i-th name; NULL past the last. */
const char *shape_name(int i);
/* Of a workload, or of a model of so many bytes. */
struct shape shape_of(const struct setting *s);
/* Of its parameters, without tables. */
int64_t shape_bytes(const struct shape *shape);
/* ps NULL: local, with the threads of all workers. */
weft_status open_training(const struct setting *s, const struct shape *shape,
                          const weft_ps_opts *ps, struct training *t);
weft_status run_steps(struct training *t, int n);
/* A fit of blocks of so many steps, after one that is not measured: for asynchronous training. end:
 * called by the worker that decides, after each block and before the first one, which is -1. */
typedef weft_status block_fn(void *arg, int block);
weft_status run_fit(struct training *t, int blocks, int steps, block_fn *end, void *arg);
void close_training(struct training *t);

/* ---- measuring ------------------------------------------------------------------------------- */

struct figures {
    double steps_s, waited, bytes_step; /* waited: a fraction of the time */
    double busy_s, messages;            /* of all servers, for a step; if the job has one side */
    double staleness;                   /* the mean of this worker's leases, and the most */
    int64_t staleness_most;
    double memory; /* bytes that the largest server had at most; 0: unknown */
};

/* Runs the job alone. One after the other, with prefixes of their own. */
weft_status bench_ps_alone(struct setting *s, const struct shape *shape, struct procs *p,
                           struct figures *f);

/* bench_ps_model.c: predictions, from costs that are measured here. svg: a file for a picture, or
 * NULL. */
int bench_ps_simulate(const struct setting *s, const char *svg);

#endif
