/* infer.h - shape rules, by the names that ops.def uses. */
#ifndef WF_INFER_H
#define WF_INFER_H

#include "op/op.h"

#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, flags, doc) wf_infer_fn infer;
#include "op/ops.def"
#undef OP

#endif
