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

/* The optimizer's scalars of a step, for gradients that are multiplied with `scale`. */
void wf_step_scalars(const struct wf_rules *r, const struct wf_step *step, float scale,
                     struct wf_optim_scalars *out);
/* The optimizer and the constraints of single elements, for one block; not for LAMB. k: its scalars
 * for scale 1. g: the block's gradient. */
void wf_block_update(struct wf_merge *m, const struct wf_merge_block *b, const struct wf_step *step,
                     const struct wf_optim_scalars *k, const float *g, const struct wf_version *v);

#endif
