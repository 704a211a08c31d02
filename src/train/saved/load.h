/* load.h - sources of a model and its weights: a saved model, a checkpoint, another trainer. */
#ifndef WF_TRAIN_SAVED_LOAD_H
#define WF_TRAIN_SAVED_LOAD_H

#include "ckpt/ckpt.h"
#include "train/train.h"

/* One of the three is set. */
struct wf_saved {
    weft_ctx *ctx;
    weft_st *file;
    weft_ckpt *ckpt;
    weft_trainer *trainer;
};

/* A safetensors file, a checkpoint, or a directory of checkpoints, of which the newest valid one is
 * used. */
weft_status wf_saved_open(weft_ctx *ctx, const char *path, struct wf_saved *out);
void wf_saved_close(struct wf_saved *s);
/* The architecture as JSON; freed with weft_text_free. */
weft_status wf_saved_model(const struct wf_saved *s, char **json);
/* What the pipeline has learned, as text; WEFT_ENOENT: it was saved without. Freed with
 * weft_text_free. */
weft_status wf_saved_learned(const struct wf_saved *s, char **text, int64_t *n);
/* Weights by name, as weft_trainer_load_weights. n_layers >= 0: only those of the model's first
 * n_layers layers, each of which must be present; anything else is ignored. */
weft_status wf_saved_weights(const struct wf_saved *s, weft_trainer *t, const weft_load_opts *opts,
                             int64_t n_layers, int *n_loaded);

#endif
