/* bind.h - what the files that make a trainer's graph share. */
#ifndef WF_TRAIN_STEP_BIND_H
#define WF_TRAIN_STEP_BIND_H

#include "train/train.h"

const char *wf_output_name(const weft_trainer *t, int out);
/* x and y in one text, or NULL. */
char *wf_join(struct wf_arena *a, const char *x, const char *y);

/* ---- bind_logs.c ----------------------------------------------------------------------------- */

/* The rows of the logs, each with a name of its own: losses, then metrics, whose places in the sums are decided. */
weft_status wf_make_logs(weft_trainer *t, struct wf_bound *b);
/* The sums of all metrics as one vector. */
weft_status wf_build_metrics(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                             bool weighted, weft_val *sums);

/* ---- bind_weights.c -------------------------------------------------------------------------- */

/* The labels of an output, in the shape that its weights need. */
weft_val wf_bound_label(const weft_trainer *t, struct wf_bound *b, int out);
/* The weight of each label: that of its sample, where it has one, and in training the class's as well; nil: all weigh 1. As in
 * Keras, classes weigh alike when a model is measured. */
weft_val wf_sample_weights(const weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                           bool weighted, int out);

#endif
