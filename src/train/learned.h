/* learned.h - what a pipeline has learned, in trainers, checkpoints and saved models. */
#ifndef WF_TRAIN_LEARNED_H
#define WF_TRAIN_LEARNED_H

#include "train/train.h"
#include "weft/ckpt.h"
#include "weft/data_learned.h"

/* Does the checkpoint hold other learned values than the trainer? One without any does not. */
bool wf_learned_differ(const weft_trainer *t, weft_ckpt *c);

#endif
