/* infer.h - shape rules, by the names that ops.def uses. */
#ifndef WF_INFER_H
#define WF_INFER_H

#include "op/op.h"

#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) \
    wf_infer_fn infer;
#include "op/ops.def"
#undef OP

/* Output i has type t; ESHAPE if its rank or size is out of bounds (unknown sizes count as 1). */
weft_status wf_infer_out(struct wf_infer *r, int i, const struct wf_type *t);
/* Output i is like operand `like`, with the dtype of operand `of`. */
weft_status wf_infer_out_like(struct wf_infer *r, int i, int like, int of);

#endif
