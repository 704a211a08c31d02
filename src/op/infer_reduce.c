/* infer_reduce.c - shape rules of reductions and of ops that follow another value's shape. */
#include "op/infer.h"

weft_status infer_reduce(struct wf_infer *r)
{
    const struct wf_attr *axes = wf_in_attr(r, "axes");
    bool keep = wf_in_int(r, "keepdims"), gone[WEFT_MAX_RANK] = {false};
    struct wf_type t = {.dtype = r->in[0].dtype};
    int a;

    for (int i = 0; i < r->in[0].rank; i++)
        gone[i] = axes->n == 0;
    for (int i = 0; i < axes->n; i++) {
        weft_status st = wf_axis(r, axes->ints[i], r->in[0].rank, &a);

        if (st)
            return st;
        gone[a] = true;
    }
    for (int i = 0; i < r->in[0].rank; i++)
        if (!gone[i] || keep)
            t.dim[t.rank++] = gone[i] ? 1 : r->in[0].dim[i];
    r->out[0] = t;
    return WEFT_OK;
}

weft_status infer_like(struct wf_infer *r)
{
    r->out[0] = r->in[1];
    r->out[0].dtype = r->in[0].dtype;
    return WEFT_OK;
}
