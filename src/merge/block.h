/* block.h - what the files of the merge layer share: blocks of 4096 elements, the unit of all its
 * passes. */
#ifndef WF_MERGE_BLOCK_H
#define WF_MERGE_BLOCK_H

#include "merge/merge.h"

struct wf_merge_block {
    int32_t piece, n;
    int64_t first; /* element of the variable */
};

/* Where a block begins in the vectors of its owner. */
static inline int64_t wf_block_place(const struct wf_merge *m, const struct wf_merge_block *b)
{
    const struct wf_piece *p = &m->piece[b->piece];

    return p->at + b->first - p->first;
}

/* By group: what its sum is multiplied with. WEFT_ELIMIT if there are more than `room`. */
weft_status wf_merge_factors(const struct wf_rules *r, const double *sums, int room, float *factor);
/* The optimizer's scalars of a step, for gradients that are multiplied with `scale`. */
void wf_step_scalars(const struct wf_rules *r, const struct wf_step *step, float scale,
                     struct wf_optim_scalars *out);
/* The optimizer and the constraints of single elements, for one block; not for LAMB. k: its scalars
 * for scale 1. g: the block's gradient. */
void wf_block_update(struct wf_merge *m, const struct wf_merge_block *b, const struct wf_step *step,
                     const struct wf_optim_scalars *k, const float *g, const struct wf_version *v);
/* A copy that leaves the caches as they are. wf_stream_end: after the last one, before others
 * are told that it is there. */
void wf_stream(float *to, const float *from, int64_t n);
void wf_stream_end(void);

#endif
