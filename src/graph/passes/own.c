/* own.c - a gradient of its own for every update.
 *
 * Where gradients live in one flat vector, each in the place of its variable, a value can be the gradient of one variable only,
 * and it must be made by an instruction. One that two variables share (two biases added to the same sum), or that is a
 * constant, is copied. */
#include "graph/graph.h"

static const struct wf_node *maker(const weft_graph *g, int32_t v, int32_t *root)
{
    const struct wf_node *n = &g->nodes[g->values[v].node];

    while ((n->op->flags & WF_VIEW) && n->in[0]) {
        v = n->in[0];
        n = &g->nodes[g->values[v].node];
    }
    *root = v;
    return n;
}

/* An update that reads a copy of its gradient. */
static weft_status copy_with_own(struct wf_rewrite *rw, int64_t k)
{
    const struct wf_node *n = &rw->from->nodes[k];
    struct wf_set f32 = WF_SET_DTYPE("dtype", WEFT_F32);
    weft_val grad = wf_build(rw->to, WF_OP_cast, 1, (weft_val[]){{rw->map[n->in[1]]}}, 1, &f32);
    int32_t first;
    weft_status st = rw->to->st;

    wf_rewrite_inputs(rw, k);
    rw->in[1] = grad.id;
    if (!st)
        st = wf_copy_node(rw->to, n, rw->in, &first);
    for (int i = 0; i < n->n_out && !st; i++)
        rw->map[n->first_out + i] = first + i;
    return st;
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
        int32_t root = 0;
        bool own = false;

        if (!rw.live[k])
            continue;
        if (n->op->id == WF_OP_apply) {
            own = (maker(g, n->in[1], &root)->op->flags & WF_LEAF) || taken[root];
            taken[root] = true;
        }
        st = own ? copy_with_own(&rw, k) : wf_rewrite_copy(&rw, k);
        if (!st && n->op->id == WF_OP_placeholder)
            rw.to->values[rw.map[n->first_out]].type = g->values[n->first_out].type;
    }
    wf_free(g->ctx, taken);
    return wf_rewrite_end(&rw, st, n_roots, roots, out);
}
