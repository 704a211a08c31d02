/* tensorboard.h - what a job adds to the callback TensorBoard. */
#ifndef WF_TRAIN_CALLBACK_TENSORBOARD_H
#define WF_TRAIN_CALLBACK_TENSORBOARD_H

#include "train/callback/callback.h"

/* The job's text and settings to show; borrowed until training ends. cb: created as "TensorBoard
 * ...". */
weft_status wf_tensorboard_describe(weft_callback *cb, const char *job_text, int64_t batch,
                                    int64_t epochs);

#endif
