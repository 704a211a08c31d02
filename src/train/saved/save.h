/* save.h - saved models, for callbacks. */
#ifndef WF_TRAIN_SAVED_SAVE_H
#define WF_TRAIN_SAVED_SAVE_H

#include "train/train.h"

#define WF_SAVE_MODEL "weft.model"     /* the key of the architecture */
#define WF_SAVE_LEARNED "weft.learned" /* the tensor with what the pipeline has learned: u8 */

/* Stores the arguments of weft_compile (said.c). */
weft_status wf_said_keep(weft_trainer *t, const weft_compile_opts *o);
/* Fills settings missing in o with those the model at o->like was compiled with; texts live in
 * arena. */
weft_status wf_said_fill(weft_ctx *ctx, struct wf_arena *arena, int n_out, weft_compile_opts *o);
/* The metadata key of a setting: "weft.loss". */
const char *wf_said_key(enum wf_said which);

/* weft_trainer_save, with or without the architecture. */
weft_status wf_trainer_save(weft_trainer *t, const char *path, bool weights_only);

#endif
