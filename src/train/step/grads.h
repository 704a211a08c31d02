/* grads.h - gradients as values: the mean of a step's contributions, with rules of their own. */
#ifndef WF_TRAIN_STEP_GRADS_H
#define WF_TRAIN_STEP_GRADS_H

#include "merge/merge.h"
#include "train/train.h"
#include "weft/loop.h"

struct weft_grads {
    weft_ctx *ctx;
    struct wf_arena arena;
    struct wf_rules rules; /* variables and sizes alone, one group */
    struct wf_contribution *c;
    double weight;
};

/* Zero gradients of the rules' variables. */
weft_status wf_grads_new(weft_ctx *ctx, const struct wf_rules *rules, weft_grads **out);
/* The same weights, of the same shapes and kinds. */
bool wf_grads_fit(const weft_grads *g, const struct wf_rules *rules);
/* The mean of a step's contributions. */
weft_status wf_grads_take(weft_grads *g, const struct wf_contribution *mean);

#endif
