/* there.h - the update of a step in the memory of the trainer's device (there.c). */
#ifndef WF_TRAIN_STEP_THERE_H
#define WF_TRAIN_STEP_THERE_H

#include "train/step/work.h"

/* Whether sums that are there can be applied there: everything that the rules say has an op. */
bool wf_there_can(const struct wf_work *w);
/* Whether this sum can be. */
bool wf_there_takes(const struct wf_work *w, const struct wf_contribution *sum);
/* New parameters by the sum of a step, which may be on any device; *sum: another one if it was. */
weft_status wf_there_step(struct wf_work *w, struct wf_contribution **sum);
void wf_there_free(struct wf_work *w);

#endif
