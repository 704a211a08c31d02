/* nonfinite.h - the cause of a loss that is not finite. */
#ifndef WF_TRAIN_LOOP_NONFINITE_H
#define WF_TRAIN_LOOP_NONFINITE_H

#include "train/loop/checkpoint.h"

/* The state at the beginning of an epoch, or of a resumed part of one. */
struct wf_nonfinite {
    struct wf_resume all; /* its list of tensors */
    char *copy;           /* their values; NULL: too many bytes, or out of memory */
    int64_t bytes;
    bool listed, kept, looked;
    int64_t epoch, batch, step;
    float rate;
    char *position; /* of the data; NULL: the beginning of the epoch */
    int64_t n_position;
};

/* Saves the state of fit; position: also that of the data, because the epoch's number is not
 * enough. Out of memory is not an error: then less can be reported later. */
void wf_nonfinite_keep(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       bool position);
/* After a step whose loss is not finite: finds the cause and reports it in t->nonfinite and in the
 * log, once per fit. at->batch includes it. Columns of the batch are checked first. Then the
 * batches since wf_nonfinite_keep are computed again by another trainer from the saved state, up to
 * the op that produces a value that is not finite. */
void wf_nonfinite_find(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       weft_data *d);
void wf_nonfinite_free(struct wf_nonfinite *n);

#endif
