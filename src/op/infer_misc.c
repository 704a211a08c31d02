/* infer_misc.c - shape rules of ops that look at values. */
#include "op/infer.h"

weft_status wf_infer_print(struct wf_infer *r)
{
    if (wf_in_int(r, "every") < 1 || wf_in_int(r, "limit") < 0)
        return wf_infer_err(r, WEFT_EINVAL, "every %lld must be positive, limit %lld not negative",
                            (long long)wf_in_int(r, "every"), (long long)wf_in_int(r, "limit"));
    return wf_infer_same(r);
}

weft_status wf_infer_check_numerics(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type");
    return wf_infer_same(r);
}
