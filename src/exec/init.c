/* init.c - initial values of the variables of a graph. */
#include "exec/exec.h"

struct wf_initial wf_initial_of(weft_ctx *ctx, const struct wf_node *n)
{
    const struct wf_attr *p = wf_attr(n->op, n->attr, "init_params");

    return (struct wf_initial){.kind = wf_attr_str(n->op, n->attr, "init"),
                               .a = p->n > 0 ? p->floats[0] : 0,
                               .b = p->n > 1 ? p->floats[1] : 0,
                               .name = n->name,
                               .seed = ctx->seed};
}

weft_status wf_init_variable(weft_ctx *ctx, const struct wf_node *n, const struct wf_type *t,
                             void *data)
{
    struct wf_initial by = wf_initial_of(ctx, n);

    return wf_initial_all(ctx, &by, t, data);
}

weft_status wf_init_rows(weft_ctx *ctx, const struct wf_node *n, const struct wf_type *t,
                         int64_t n_rows, const int64_t *ids, float *rows)
{
    struct wf_initial by = wf_initial_of(ctx, n);

    return wf_initial_rows(ctx, &by, t, n_rows, ids, rows);
}
