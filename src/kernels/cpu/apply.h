/* apply.h - the steps of an update, shared by the fast and the reference kernel. */
#ifndef WF_KERNELS_CPU_APPLY_H
#define WF_KERNELS_CPU_APPLY_H

#include "kernels/cpu/optim.h"
#include "kernels/kernels.h"
#include "op/schedule.h"

struct wf_apply {
    const struct wf_optim_row *row;
    const double *attrs;
    const struct wf_schedule_row *schedule; /* NULL: constant rate */
    const double *schedule_attrs;
    int n_schedule;
    const struct wf_optim_fns *fns;
};

void wf_apply_init(struct wf_apply *a, const struct wf_op *op, const struct wf_attr *attr,
                   weft_simd level);
/* The scalars of this step: operands `first` and `first` + 1 are the optional rate and gradient
 * scale. */
void wf_apply_scalars(const struct wf_apply *a, const struct wf_call *c, int first,
                      struct wf_optim_scalars *out);
/* lamb_sums: 2 * wf_norm_blocks(n) doubles, only for LAMB. */
void wf_apply_run(const struct wf_apply *a, const struct wf_call *c, struct wf_pool *pool,
                  double *lamb_sums);
/* scratch: wf_apply_rows_scratch bytes. */
size_t wf_apply_rows_scratch(int64_t n_ids);
weft_status wf_apply_rows_run(const struct wf_apply *a, const struct wf_call *c,
                              struct wf_pool *pool, void *scratch);

#endif
