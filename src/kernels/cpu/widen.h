/* widen.h - half-precision calls on f32 kernels: operands are widened into scratch, results rounded
 * from it. */
#ifndef WF_KERNELS_CPU_WIDEN_H
#define WF_KERNELS_CPU_WIDEN_H

#include "kernels/kernels.h"

typedef weft_status wf_choose_fn(struct wf_kplan *p, const struct wf_kernel **out);

/* If p has f16 or bf16 operands and `choose` finds a kernel for the same call in f32: *out runs
 * that one. */
weft_status wf_plan_widened(struct wf_kplan *p, wf_choose_fn *choose, const struct wf_kernel **out);

#endif
