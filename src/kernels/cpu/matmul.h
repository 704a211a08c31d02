/* matmul.h - how a matmul node becomes a wf_gemm: shapes, transposes and batch strides. */
#ifndef WF_KERNELS_CPU_MATMUL_H
#define WF_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/gemm.h"
#include "kernels/kernels.h"

/* Fills d from the operand types; WEFT_ENOSUP if the leading axes broadcast in a way that is not a
 * single stride. */
weft_status wf_matmul_desc(const struct wf_type *a, const struct wf_type *b,
                           const struct wf_type *y, bool trans_a, bool trans_b,
                           struct wf_gemm_desc *d);
/* The product of the first two operands as p's state; sums: with those of its columns. */
weft_status wf_matmul_plan(struct wf_kplan *p, bool sums);

#endif
