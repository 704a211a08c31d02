/* own.c - gives every update a gradient of its own.
 *
 * If gradients are in one flat vector, each at the offset of its variable, a value can be the
 * gradient of only one variable, and an instruction must compute it. One that two variables share
 * (two biases added to the same sum), or that is a constant, is copied. */
#include "graph/graph.h"

/* An update that reads a copy of its gradient. */
static weft_status copy_with_own(struct wf_rewrite *rw, int64_t k)
{
    const struct wf_node *n = &rw->from->nodes[k];
    struct wf_set f32 = WF_SET_DTYPE("dtype", WEFT_F32);
    weft_val grad = wf_build(rw->to, WF_OP_cast, 1, (weft_val[]){{rw->map[n->in[1]]}}, 1, &f32);

    if (rw->to->st)
        return rw->to->st;
    wf_rewrite_name(rw, grad.id, n);
    wf_rewrite_inputs(rw, k);
    rw->in[1] = grad.id;
    return wf_rewrite_copy_as(rw, n, false);
}

/* Whether the gradient of update n needs a copy. taken[]: values that are already a gradient. */
static bool needs_own(const weft_graph *g, const struct wf_node *n, bool *taken)
{
    int32_t root = wf_view_root(g, n->in[1]);
    const struct wf_node *maker = &g->nodes[g->values[root].node];
    bool own = (maker->op->flags & (WF_LEAF | WF_STATE_IN0)) || taken[root];

    taken[root] = true;
    return own;
}

weft_status wf_pass_own(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out)
{
    struct wf_rewrite rw;
    bool *taken = wf_alloc_n(g->ctx, g->n_values, sizeof *taken);
    weft_status st = wf_rewrite_begin(&rw, g, n_roots, roots);

    if (!st && !taken)
        st = wf_err_nomem(g->ctx, (size_t)g->n_values, "graph pass");
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        const struct wf_node *n = &g->nodes[k];

        if (!rw.live[k])
            continue;
        st = n->op->id == WF_OP_apply && needs_own(g, n, taken) ? copy_with_own(&rw, k)
                                                                : wf_rewrite_copy(&rw, k);
    }
    wf_free(g->ctx, taken);
    return wf_rewrite_end(&rw, st, n_roots, roots, out);
}
