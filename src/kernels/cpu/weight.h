/* weight.h - gradients of penalties, and constraints, on the CPU. */
#ifndef WF_KERNELS_CPU_WEIGHT_H
#define WF_KERNELS_CPU_WEIGHT_H

#include "kernels/cpu/optim.h"
#include "op/weight.h"

/* g += the gradient of l1 and l2, over n elements of a weight. */
void wf_penalty_add(const struct wf_optim_fns *f, const struct wf_penalty *p, int64_t n,
                    const float *w, float *g);
/* g += the gradient of the orthogonal penalty of the matrix w [rows, columns]. scratch:
 * wf_orthogonal_scratch floats. */
int64_t wf_orthogonal_scratch(int64_t rows, int64_t columns);
void wf_orthogonal_add(struct wf_pool *pool, const struct wf_penalty *p, int64_t rows,
                       int64_t columns, const float *w, float *g, float *scratch);

/* A constraint on n elements that stand for themselves: non_neg. */
void wf_constrain_each(const struct wf_constraint *c, int64_t n, float *w);
/* A constraint on a whole weight. */
void wf_constrain_whole(struct wf_pool *pool, const struct wf_constraint *c, int rank,
                        const int64_t *dim, float *w);

#endif
