/* infer.h - shape rules, by the names that ops.def uses. */
#ifndef WF_INFER_H
#define WF_INFER_H

#include "op/op.h"

#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) \
    wf_infer_fn infer;
#include "op/ops.def"
#undef OP

/* The attribute `shape` as a type: no size may be unknown. ESHAPE or EDTYPE names what is wrong. */
weft_status wf_infer_sizes(const struct wf_infer *r, weft_dtype dtype, struct wf_type *out);
/* ESHAPE if a value of type t would be too large (unknown sizes count as 1). */
weft_status wf_infer_fits(const struct wf_infer *r, const struct wf_type *t);
/* Output i has type t; ESHAPE if its rank or size is out of bounds (unknown sizes count as 1). */
weft_status wf_infer_out(struct wf_infer *r, int i, const struct wf_type *t);
/* Output i is like operand `like`, with the dtype of operand `of`. */
weft_status wf_infer_out_like(struct wf_infer *r, int i, int like, int of);

#endif
