/* rounds.h - updates in the workers: each logical worker trains some steps on its own copy of the
 * parameters, with its own optimizer, and then the copies are merged. */
#ifndef WF_TRAIN_STEP_ROUNDS_H
#define WF_TRAIN_STEP_ROUNDS_H

#include "train/step/work.h"

/* A round is a step of the strategy: `accumulate` batches, of which logical worker l trains on its
 * shard l, one after the other. What it gives is a contribution whose variables are the parameters
 * and, as further variables, the slots of the optimizer. */
struct wf_round {
    struct wf_work *w;
    int n_slots;
    bool leased;           /* logical workers are leased one by one (wf_round_lease) */
    struct wf_rules rules; /* of contributions: sums, then the logs of each batch */
    struct wf_rules job;   /* the same without logs: what servers are told */
    struct wf_log_rules logged;
    int64_t log_sums;
    float **at; /* by variable: where the trainer has it, */
    int *of;    /* the trainer's variable that it belongs to, */
    int *slot;  /* and which of its slots it is; -1: its values */
    struct wf_tree tree;
    struct wf_merge *merge;
    float *base;               /* [n_dense]: the version that the round begins with */
    struct wf_snapshot *start; /* and its state */
    /* The round under way. */
    bool began, filled, inside; /* inside: a logical worker trains */
    int n_batches;
    int64_t samples, step;
    struct wf_samples last; /* its last batch so far */
    struct wf_deal dealt;
};

weft_status wf_round_new(struct wf_work *w);
void wf_round_free(struct wf_round *r);
/* Variables are on the servers that the trainer's are placed on. */
void wf_round_place(struct wf_round *r);
/* A batch of the round; it is computed when the round is complete. */
weft_status wf_round_note(struct wf_work *w, const struct wf_samples *batch);
/* What logical worker l gives. As weft_work_compute; no logs of its own. */
weft_status wf_round_compute(struct wf_round *r, int64_t l, weft_given *out);
/* With leases, the round of logical worker l alone: its last batch is dealt so, and it has
 * n_batches. It begins with `base`, and with the trainer's state and step; afterwards these are as
 * before, while parameters and slots are those of the copy. */
weft_status wf_round_lease(struct wf_work *w, const struct wf_deal *last, int n_batches, int64_t l,
                           weft_given *out);
/* All of them were put: the trainer gets the next version. */
weft_status wf_round_update(struct wf_round *r);
/* The round was merged elsewhere. The trainer's parameters are not changed; as wf_work_took. */
weft_status wf_round_took(struct wf_round *r, double *sums, const double *totals, int64_t step);
/* The round is given up: the trainer is as before it. */
void wf_round_drop(struct wf_round *r);
/* The trainer's parameters and slots into base, and back. */
weft_status wf_round_save(struct wf_round *r);
void wf_round_load(struct wf_round *r);

#endif
