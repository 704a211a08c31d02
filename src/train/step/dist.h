/* dist.h - the table of strategies, for the files of the train layer. */
#ifndef WF_TRAIN_STEP_DIST_H
#define WF_TRAIN_STEP_DIST_H

#include "train/step/work.h"
#include "weft/dist.h"

struct weft_dist {
    weft_ctx *ctx;
    const struct wf_dist_kind *kind;
    int n_replicas, n_local, first; /* all, those of this process, and the number of its first */
};

/* A strategy: a row of the table. */
struct wf_dist_kind {
    const char *name, *doc;
    bool fused; /* a step that is not split may be updated where it is computed */
    weft_status (*open)(weft_dist *d); /* fills in the replicas */
    void (*close)(weft_dist *d);       /* NULL: nothing to do */
    /* Computes the n shards from number `first` on of the current step: those that belong to this
     * process, in any order, by its replicas. */
    weft_status (*compute)(weft_dist *d, struct wf_work *w, int64_t first, int64_t n);
    /* All shards of the step are computed: brings the parameters to the next version. */
    weft_status (*apply)(weft_dist *d, struct wf_work *w);
};

/* One batch of the trainer's current step; `first`: the number of its first shard. If it fails, the
 * step is dropped. */
weft_status wf_dist_batch(weft_trainer *t, struct wf_work *w, const weft_tensor *feeds, int64_t n,
                          int64_t first);
weft_status wf_dist_apply(weft_trainer *t, struct wf_work *w);
/* WEFT_ENOENT with the nearest name if there is none. */
weft_status wf_dist_find(const char *name, const struct wf_dist_kind **out);

#endif
