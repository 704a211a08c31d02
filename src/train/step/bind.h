/* bind.h - shared by the files that build a trainer's graph. */
#ifndef WF_TRAIN_STEP_BIND_H
#define WF_TRAIN_STEP_BIND_H

#include "train/train.h"

const char *wf_output_name(const weft_trainer *t, int out);
/* x and y in one text, or NULL. */
char *wf_join(struct wf_arena *a, const char *x, const char *y);

/* The gradient of a penalty on variable w, which an update adds to that of the data. */
weft_val wf_penalty_gradient(weft_graph *g, weft_val w, const struct wf_penalty *p);

/* ---- bind_logs.c ----------------------------------------------------------------------------- */

/* The rows of the logs, each with a unique name: losses, then metrics, whose positions in the sums
 * are set. */
weft_status wf_make_logs(weft_trainer *t, struct wf_bound *b);
/* The sums of all metrics as one vector. */
weft_status wf_build_metrics(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                             bool weighted, weft_val *sums);

/* ---- bind_weights.c -------------------------------------------------------------------------- */

/* The labels of an output, in the shape that its weights need. */
weft_val wf_bound_label(const weft_trainer *t, struct wf_bound *b, int out);
/* The weight of each label: that of its sample, if it has one, and in training also that of its
 * class; nil: all are 1. As in Keras, class weights are not used in evaluation. */
weft_val wf_sample_weights(const weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                           bool weighted, int out);

#endif
