/* learned.h - what a pipeline has learned, in trainers, checkpoints and saved models. */
#ifndef WF_TRAIN_SAVED_LEARNED_H
#define WF_TRAIN_SAVED_LEARNED_H

#include "train/saved/load.h"

/* Whether the model was saved with other learned values than the trainer's. False if it was saved
 * without any. */
bool wf_learned_differ(const weft_trainer *t, const struct wf_saved *s);
/* The same as an error: weights are correct only with the values they were trained with. */
weft_status wf_learned_check(const weft_trainer *t, const struct wf_saved *s, const char *path);

#endif
