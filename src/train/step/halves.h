/* halves.h - a step in two halves: functions that compute gradients, and functions that apply
 * them. */
#ifndef WF_TRAIN_STEP_HALVES_H
#define WF_TRAIN_STEP_HALVES_H

#include "train/step/grads.h"

enum { WF_MAX_UPDATES = 16 };

/* The gradient of one group of losses, those with the same denominator. */
struct wf_half {
    weft_fn *fn;
    int loss, weight; /* fetches: the group's mean, and the weight of a part */
    int *at; /* by entry: its fetch (ids and rows of a sparse one are adjacent); -1: none */
    int n_fetches;
};

/* The optimizer over some of the entries. */
struct wf_update {
    bool *chosen;            /* by entry */
    weft_fn *fn, *constrain; /* NULL: not created; there are none */
};

struct wf_halves {
    weft_ctx *ctx;
    struct wf_arena arena;
    bool whole;     /* one part per step: the gradient of the mean; otherwise of the sums */
    weft_val scale; /* fed after the others: of the loss; nil: it is not scaled */
    int n;
    struct wf_grad_entry *entry;
    weft_val *grad, *ids, *rows; /* by entry: placeholders of updates, if it has them */
    int n_groups;
    struct wf_half *half;      /* the first runs metrics and the layers' own updates, too */
    struct wf_half regularize; /* parts: regularizers of weights, which count once; fn may be
                                * NULL */
    weft_tensor *fetch;        /* scratch for the longest */
    weft_tensor *feeds;        /* of updates */
    bool *chosen;              /* scratch for entries */
    struct wf_update update[WF_MAX_UPDATES];
    int next_update;
};

/* Those of the bound trainer, created on first use. */
weft_status wf_halves_get(weft_trainer *t, struct wf_halves **out);
void wf_halves_free(struct wf_halves *h);
/* Runs a half as logical shard `shard` of the current step, whose number does not change. */
weft_status wf_half_run(struct wf_halves *h, struct wf_half *half, int shard,
                        const weft_tensor *feeds);
/* Puts what it fetched into g, which is cleared first. scale != 0: divided by it, and checked for
 * finite values. */
weft_status wf_half_take(struct wf_halves *h, const struct wf_half *half, float scale,
                         weft_grads *g);
/* One step over the chosen entries, NULL: all. Skipped if the loss is scaled and a gradient is not
 * finite. */
weft_status wf_halves_apply(weft_trainer *t, struct wf_halves *h, const weft_grads *g,
                            const bool *chosen);

#endif
