/* nonfinite.h - where a loss that is not finite comes from. */
#ifndef WF_TRAIN_LOOP_NONFINITE_H
#define WF_TRAIN_LOOP_NONFINITE_H

#include "train/loop/checkpoint.h"

/* The state with which an epoch began, or a resumed part of one. */
struct wf_nonfinite {
    struct wf_resume all; /* its list of tensors */
    char *copy;           /* their values; NULL: too many bytes, or no memory */
    int64_t bytes;
    bool listed, kept, looked;
    int64_t epoch, batch, step;
    float rate;
    char *position; /* of the data; NULL: the beginning of the epoch */
    int64_t n_position;
};

/* Notes where fit stands. `it` gives its position where the epoch's number does not say it; NULL otherwise. No memory for it is not
 * an error: then less can be said later. */
void wf_nonfinite_keep(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       weft_iter *it);
/* After a step whose loss is not finite: what made it so, as t->nonfinite and in the log, once for each fit. at->batch counts it.
 * Columns of the batch are looked at first. Then the batches since wf_nonfinite_keep are computed again by another trainer from the
 * state kept, up to the op that makes a number that is not finite. */
void wf_nonfinite_find(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       weft_data *d, const struct wf_feeding *f, const weft_batch *b);
void wf_nonfinite_free(struct wf_nonfinite *n);

#endif
