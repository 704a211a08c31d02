/* infer_ew.c - shape rules of element-wise ops. */
#include "op/infer.h"

weft_status infer_binary(struct wf_infer *r)
{
    if (r->in[0].dtype != r->in[1].dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "operands must have the same type (cast one)");
    return wf_broadcast(r, &r->in[0], &r->in[1], &r->out[0]);
}

weft_status infer_unary_float(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    r->out[0] = r->in[0];
    return WEFT_OK;
}
