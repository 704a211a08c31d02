/* dist.h - strategies, for the files of the train layer. */
#ifndef WF_TRAIN_STEP_DIST_H
#define WF_TRAIN_STEP_DIST_H

#include "train/step/work.h"
#include "weft/dist.h"

struct weft_dist {
    weft_ctx *ctx;
    weft_strategy kind;
    void *self;
    int n_replicas, n_local, first; /* all, those of this process, and the number of its first */
};

/* mirrored.c: replicas on groups of cores. */
weft_status wf_mirrored_open(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                             int *first);
void wf_mirrored_close(void *self);
weft_status wf_mirrored_compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n);

/* How many replicas a strategy of the table has with these devices (weft_ctx_opts). */
int wf_dist_count(const char *strategy, const char *devices);

/* A row of the table; WEFT_ENOENT with the nearest name if there is none. */
weft_status wf_dist_find(const char *name, const weft_strategy **out);

/* One batch of the trainer's current step; `first`: the number of its first shard. If it fails, the
 * step is dropped. */
weft_status wf_dist_batch(weft_trainer *t, struct wf_work *w, const struct wf_samples *batch,
                          int64_t first);
/* The end of the step: apply and commit. */
weft_status wf_dist_apply(weft_trainer *t, struct wf_work *w);

#endif
