/* params.h - parameter calls, for the files that make them up: params.c (the object, its values),
 * steps.c (pushes and steps). */
#ifndef WF_TRAIN_PARAMS_H
#define WF_TRAIN_PARAMS_H

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
    bool adds; /* increments: their negatives are gradients of sgd with the rate 1 */
    bool sum;
    bool begun; /* the variables are the strategy's */
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

#endif
