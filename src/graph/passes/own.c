/* own.c - gives every gradient a value of its own.
 *
 * A gradient that a function leaves in a flat vector, at the offset of its variable, must be a
 * value that an instruction computes, and can be the gradient of only one variable. One that two
 * variables share (two biases added to the same sum), or that is a constant, is copied. */
#include "graph/graph.h"

/* Whether root v needs a copy. taken[]: values that are already a gradient. */
static bool needs_own(const weft_graph *g, int32_t v, bool *taken)
{
    int32_t root = wf_view_root(g, v);
    const struct wf_node *maker = &g->nodes[g->values[root].node];
    bool own = (maker->op->flags & (WF_LEAF | WF_STATE_IN0)) || taken[root];

    taken[root] = true;
    return own;
}

weft_status wf_pass_own(const weft_graph *g, int n_roots, int32_t *roots, int first,
                        weft_graph **out)
{
    struct wf_rewrite rw;
    struct wf_set f32 = WF_SET_DTYPE("dtype", WEFT_F32);
    bool *taken = wf_alloc_n(g->ctx, g->n_values, sizeof *taken);
    bool *copy = wf_alloc_n(g->ctx, n_roots + 1, sizeof *copy);
    weft_status st = wf_rewrite_begin(&rw, g, n_roots, roots);

    rw.root = wf_alloc_n(g->ctx, n_roots + 1, sizeof *rw.root);
    if (!st && (!taken || !copy || !rw.root))
        st = wf_err_nomem(g->ctx, (size_t)g->n_values, "graph pass");
    for (int i = first; i < n_roots && !st; i++)
        copy[i] = needs_own(g, roots[i], taken);
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (rw.live[k])
            st = wf_rewrite_copy(&rw, k);
    for (int i = first; i < n_roots && !st; i++) {
        weft_val own;

        if (!copy[i])
            continue;
        own = wf_build(rw.to, WF_OP_cast, 1, (weft_val[]){{rw.map[roots[i]]}}, 1, &f32);
        st = rw.to->st;
        if (!st)
            wf_rewrite_name(&rw, own.id, &g->nodes[g->values[roots[i]].node]);
        rw.root[i] = own.id;
    }
    st = wf_rewrite_end(&rw, st, n_roots, roots, out);
    wf_free(g->ctx, taken);
    wf_free(g->ctx, copy);
    wf_free(g->ctx, rw.root);
    return st;
}
