/* absorb.c - moves a constant factor into the node whose result it scales.
 *
 * The cross-entropy can scale its gradient itself. It may do so if the product is the gradient's
 * only reader in the current graph, after equal nodes have been merged: another reader would see
 * the scaled gradient, too. */
#include "graph/graph.h"

struct absorb {
    struct wf_rewrite rw;
    const weft_graph *g;
    struct wf_uses uses;
    double *factor;  /* per node: the factor of its gradient, 0: none */
    int32_t *stands; /* per node: the value that replaces its result, or 0 */
};

static bool is_scalar_constant(const weft_graph *g, int32_t v)
{
    return g->nodes[g->values[v].node].op->id == WF_OP_constant &&
           wf_type_count(&g->values[v].type) == 1;
}

/* Whether v is the gradient of a cross-entropy that has one reader and no factor. */
static bool can_scale(const struct absorb *a, int32_t v)
{
    const struct wf_value *x = &a->g->values[v];
    const struct wf_node *loss = &a->g->nodes[x->node];

    return loss->op->id == WF_OP_sparse_softmax_xent && x->index == 1 &&
           x->type.dtype == WEFT_F32 && wf_uses_count(&a->uses, v) == 1 &&
           wf_node_float(loss, "scale") == 1;
}

static void find_factors(struct absorb *a)
{
    const weft_graph *g = a->g;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];

        if (!a->rw.live[k] || n->op->id != WF_OP_mul || n->n_ctrl)
            continue;
        for (int i = 0; i < 2 && !a->stands[k]; i++) {
            int32_t x = n->in[i], c = n->in[1 - i];
            double f;

            if (!is_scalar_constant(g, c) || !can_scale(a, x) ||
                !wf_type_same_shape(&g->values[x].type, &g->values[n->first_out].type))
                continue;
            f = wf_get(g->nodes[g->values[c].node].data, WEFT_F32, 0);
            if (f == 0)
                continue;
            a->factor[g->values[x].node] = f;
            a->stands[k] = x;
        }
    }
}

static weft_status emit(struct absorb *a, int64_t k)
{
    const struct wf_node *n = &a->g->nodes[k];
    struct wf_attr attr[WF_MAX_ATTRS];
    struct wf_node scaled = *n;

    if (a->stands[k]) {
        a->rw.map[n->first_out] = a->rw.map[a->stands[k]];
        return WEFT_OK;
    }
    wf_rewrite_inputs(&a->rw, k);
    for (int i = 0; i < n->op->n_attrs; i++) {
        attr[i] = n->attr[i];
        if (a->factor[k] != 0 && !strcmp(n->op->attr[i].name, "scale"))
            attr[i].f = a->factor[k];
    }
    scaled.attr = attr;
    return wf_rewrite_copy_as(&a->rw, &scaled, false);
}

weft_status wf_pass_absorb(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out)
{
    struct absorb a = {.g = g};
    weft_status st = wf_rewrite_begin(&a.rw, g, n_roots, roots);

    if (!st)
        st = wf_uses_find(&a.uses, g, n_roots, roots);
    a.factor = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *a.factor);
    a.stands = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *a.stands);
    if (!st && (!a.factor || !a.stands))
        st = wf_err_nomem(g->ctx, (size_t)g->n_nodes * sizeof *a.factor, "graph pass");
    if (!st)
        find_factors(&a);
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (a.rw.live[k])
            st = emit(&a, k);
    wf_free(g->ctx, a.factor);
    wf_free(g->ctx, a.stands);
    wf_uses_free(&a.uses, g->ctx);
    return wf_rewrite_end(&a.rw, st, n_roots, roots, out);
}
