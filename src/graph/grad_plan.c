/* grad_plan.c - ops without a gradient by their nature. */
#include "graph/grad.h"

weft_status wf_no_grad_update(struct wf_grad *r)
{
    return wf_err(WEFT_ENOSUP, "%s changes a variable: take gradients of the value before it",
                  r->op->name);
}

weft_status wf_no_grad_step(struct wf_grad *r)
{
    return wf_err(WEFT_ENOSUP, "%s is a part of updates and has no gradient", r->op->name);
}

weft_status wf_no_grad_plan(struct wf_grad *r)
{
    return wf_err(WEFT_ENOSUP, "%s exists only in plans, after differentiation", r->op->name);
}
