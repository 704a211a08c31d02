/* grad.h - gradient rules, by the names that ops.def uses. */
#ifndef WF_GRAD_H
#define WF_GRAD_H

#include "graph/graph.h"

#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) \
    wf_grad_fn grad;
#include "op/ops.def"
#undef OP

/* The rule of a built-in op. */
wf_grad_fn *wf_grad_rule(int op_id);

#endif
