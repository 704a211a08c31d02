/* save.h - saved models, for callbacks. */
#ifndef WF_TRAIN_SAVED_SAVE_H
#define WF_TRAIN_SAVED_SAVE_H

#include "train/train.h"

#define WF_SAVE_MODEL "weft.model"     /* the key of the architecture */
#define WF_SAVE_LEARNED "weft.learned" /* the tensor with what the pipeline has learned: u8 */

/* weft_trainer_save, with or without the architecture. */
weft_status wf_trainer_save(weft_trainer *t, const char *path, bool weights_only);

#endif
