/* ref.h - the reference kernels: the plain definition of every op, for every dtype, by the names that ops.def uses.
 * They compute in double through wf_get and wf_set, one element at a time, in index order. */
#ifndef WF_REF_H
#define WF_REF_H

#include "kernels/kernels.h"

#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, flags, doc) wf_kernel_fn ref;
#include "op/ops.def"
#undef OP

static inline double ref_get(const struct wf_tensor *t, int64_t i)
{
    return wf_get(t->data, t->type.dtype, i);
}
static inline void ref_set(const struct wf_tensor *t, int64_t i, double v)
{
    wf_set(t->data, t->type.dtype, i, v);
}

/* The offset in `t`, broadcast to the shape of `to`, of the element at linear index `i` of `to`. */
int64_t wf_ref_broadcast_index(const struct wf_type *t, const struct wf_type *to, int64_t i);

/* The rate of a dropout: operand `operand` when it is there, else the attribute; EDATA when it is not in 0..1. */
weft_status wf_dropout_rate(const struct wf_call *c, int operand, float *out);
/* The error of check_numerics for its element i. */
weft_status wf_numeric_error(const struct wf_call *c, int64_t i);

#endif
