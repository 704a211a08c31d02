/* grad_misc.c - gradient rules of ops that look at values. */
#include <stdio.h>

#include "graph/grad.h"

/* The gradient is looked at as well. */
weft_status wf_grad_check_numerics(struct wf_grad *r)
{
    char text[256];
    struct wf_set sets[] = {WF_SET_STR("message", text)};

    snprintf(text, sizeof text, "gradient of %s", wf_attr_str(r->op, r->attr, "message"));
    r->din[0] = wf_build(r->g, WF_OP_check_numerics, 1, r->dout, 1, sets);
    return r->g->st;
}
