/* params.h - parameter calls, for the files that make them up: params.c (the object, its values),
 * steps.c (pushes and steps), leased.c (shards that come one by one), files.c (checkpoints, and
 * going back). */
#ifndef WF_TRAIN_PARAMS_H
#define WF_TRAIN_PARAMS_H

#include "train/loop/checkpoint.h"
#include "train/step/dist.h"
#include "weft/params.h"

/* What was pushed for a shard. */
struct wf_pushed {
    int64_t shard; /* -1: free */
    double weight, value;
    struct wf_contribution *c; /* its sums are not used */
};

struct weft_params {
    weft_ctx *ctx;
    weft_dist *own; /* NULL: the caller's */
    weft_model *m;
    weft_trainer *t;
    struct wf_work *w;
    weft_shard_fn *shard;
    void *shard_arg;
    int64_t computes; /* the shard that `shard` computes now; -1: none */
    bool adds;        /* increments: their negatives are gradients of sgd with the rate 1 */
    bool sum;
    bool begun;   /* the variables are the strategy's */
    bool expects; /* a control record comes before the next step: the job has gone back */
    /* Asynchronous (leased.c). */
    bool leased;
    int64_t steps, shards; /* of the job; of a step */
    bool turns;            /* a control record comes before the next shard */
    bool holds, ended;     /* a shard is to be computed; all steps are done */
    bool halts;            /* a boundary is requested */
    bool gave;             /* the shard has samples */
    int64_t at, held;      /* the step of the shard, or where this worker was last; the shard */
    /* Checkpoints. */
    char *folder; /* NULL: none */
    weft_fit_opts saving;
    struct wf_resume resume;
    int64_t told; /* the last that the job knows of; -1: none */
    bool warned;  /* that the folder could not be opened */
    struct wf_pushed *pushed;
    int64_t n_pushed, cap_pushed;
    double reported;
    struct { /* of ids */
        int64_t n, *id;
        float *row;
    } asked;
};

/* params.c: the number of a variable in the rules; WEFT_ENOENT with the nearest name. */
weft_status wf_params_find(const weft_params *p, const char *name, int *var);
/* Its name without the part that models add. */
int wf_params_name_length(const char *weight);

/* steps.c: of a strategy of several processes: whatever it wants before the next step. *moved: the
 * job is at another step, and this worker is there now. */
weft_status wf_params_turn(weft_params *p, bool *moved);
/* A step has failed: whether it can be taken again, or the worker has moved; otherwise its status.
 * */
weft_status wf_params_turned(weft_params *p, weft_status st, bool *again, bool *moved);
/* For struct wf_work: what was pushed, as a contribution. */
weft_status wf_params_give(void *arg, int64_t shard, weft_given *out);
void wf_params_drop(weft_params *p);

/* leased.c: after all else is open; the trainer is at a step, of a checkpoint. */
weft_status wf_params_leased_open(weft_params *p, const weft_params_opts *o);
void wf_params_leased_at(weft_params *p, int64_t step);
/* Returns when this worker has a shard to compute, with values for it, or all steps are done. */
weft_status wf_params_lease(weft_params *p);
/* A shard is computed, or what was pushed for it is taken; and sent. */
weft_status wf_params_lease_wait(weft_params *p);
/* A boundary for a checkpoint, as soon as may be. */
weft_status wf_params_lease_checkpoint(weft_params *p);

/* files.c: after all else is open, the newest checkpoint is read. */
weft_status wf_params_files_open(weft_params *p, const weft_params_opts *o);
void wf_params_files_close(weft_params *p);
/* After a step: a checkpoint, if one is due and this worker writes them. */
weft_status wf_params_files_step(weft_params *p);
/* The same at a boundary, for which it may have been asked; and in between. */
weft_status wf_params_files_boundary(weft_params *p);
void wf_params_files_watch(weft_params *p);
/* Something has failed with st. If that is because the only copy of a piece is lost, the job goes
 * back to a checkpoint or to its beginning. *back: this worker is there. */
weft_status wf_params_go_back(weft_params *p, weft_status st, bool *back);

#endif
