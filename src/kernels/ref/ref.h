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
int64_t ref_broadcast_index(const struct wf_type *t, const struct wf_type *to, int64_t i);

#endif
