/* generic.c - any op by name, with attributes as text: "axis=-1 keepdims=true perm=[1,0]
 * dtype=f32". */
#include "graph/graph.h"

weft_val weft_op(weft_graph *g, const char *name, int n_in, const weft_val *in, const char *attrs)
{
    const struct wf_op *op;
    struct wf_set sets[WF_MAX_ATTRS];
    const char *end;
    int n_sets = 0;
    weft_status st = WEFT_OK;

    if (g->st)
        return WEFT_NIL;
    op = wf_op_find(g->ctx, name);
    if (!op)
        st = wf_err(WEFT_ENOENT, "no op '%s' (a user op must be registered in this context)", name);
    else if (op->flags & WF_LEAF)
        st = wf_err(WEFT_EINVAL, "'%s' has a builder function of its own", name);
    else
        st = wf_check_named(g, op, n_in, in);
    if (!st && attrs)
        st = wf_attr_parse(&g->arena, name, op->attr, op->n_attrs, attrs, "", &end, sets, &n_sets);
    if (st) {
        wf_graph_fail(g, st);
        return WEFT_NIL;
    }
    return wf_build_row(g, op, n_in, in, n_sets, sets);
}
