/* uncross.c - readers of an old value that an update cannot wait for.
 *
 * An update waits for the readers of the old value. Two updates that swap variables would wait for
 * each other, and a node that runs after an update may still read the old value. Such a reader gets
 * a copy, made before any update. */
#include "graph/graph.h"

struct uncross {
    struct wf_rewrite rw;
    const weft_graph *g;
    struct wf_uses uses;
    int32_t *copy; /* per value of g: its copy in the new graph, or 0 */
    bool *after;   /* per node of g: it runs after an update, because of an operand or a control
                    * dependency */
};

static bool comes_after(const struct uncross *x, int32_t from)
{
    return x->after[from] || (x->g->nodes[from].op->flags & WF_STATE_IN0) != 0;
}

static void find_after(struct uncross *x)
{
    const weft_graph *g = x->g;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];

        for (int i = 0; i < n->n_in; i++)
            x->after[k] |= n->in[i] && comes_after(x, g->values[n->in[i]].node);
        for (int i = 0; i < n->n_ctrl; i++)
            x->after[k] |= comes_after(x, n->ctrl[i]);
    }
}

/* Whether node k reads, as operand i, a variable that an update built before k overwrites, while
 * that update cannot wait for k: because k is an update itself, or runs after one. */
static bool crosses(const struct uncross *x, int64_t k, int i)
{
    const weft_graph *g = x->g;
    const struct wf_node *n = &g->nodes[k];
    int32_t own = wf_value_updated(g, n), v = wf_value_read(g, n, i);

    return v && v != own && (own || x->after[k]) && x->uses.first_update[v] < k;
}

/* The copy of variable v, made once. */
static int32_t copy_of(struct uncross *x, int32_t v)
{
    struct wf_set same = WF_SET_DTYPE("dtype", x->g->values[v].type.dtype);

    if (!x->copy[v]) {
        x->copy[v] = wf_build(x->rw.to, WF_OP_cast, 1, (weft_val[]){{x->rw.map[v]}}, 1, &same).id;
        wf_rewrite_name(&x->rw, x->copy[v], &x->g->nodes[x->g->values[v].node]);
    }
    return x->copy[v];
}

static weft_status emit(struct uncross *x, int64_t k)
{
    const struct wf_node *n = &x->g->nodes[k];

    wf_rewrite_inputs(&x->rw, k);
    for (int i = 0; i < n->n_in; i++) {
        const struct wf_type *t = &x->g->values[n->in[i]].type;
        weft_val v;

        if (!crosses(x, k, i))
            continue;
        v.id = copy_of(x, wf_value_read(x->g, n, i));
        if (v.id && !wf_type_same_shape(&x->rw.to->values[v.id].type, t)) {
            struct wf_set shape = WF_SET_INTS("shape", t->rank, t->dim);

            v = wf_build(x->rw.to, WF_OP_reshape, 1, &v, 1, &shape);
        }
        x->rw.in[i] = v.id;
    }
    return x->rw.to->st ? x->rw.to->st : wf_rewrite_copy_as(&x->rw, n, false);
}

weft_status wf_pass_uncross(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out)
{
    struct uncross x = {.g = g};
    weft_status st = wf_uses_find(&x.uses, g, n_roots, roots);
    bool any = false;

    *out = NULL;
    x.copy = wf_alloc_n(g->ctx, g->n_values, sizeof *x.copy);
    x.after = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *x.after);
    if (!st && (!x.copy || !x.after))
        st = wf_err_nomem(g->ctx, (size_t)g->n_values * sizeof *x.copy, "graph pass");
    if (!st)
        find_after(&x);
    for (int64_t k = 0; k < g->n_nodes && !st && !any; k++)
        for (int i = 0; i < g->nodes[k].n_in; i++)
            any |= crosses(&x, k, i);
    if (any) {
        st = wf_rewrite_begin(&x.rw, g, n_roots, roots);
        for (int64_t k = 0; k < g->n_nodes && !st; k++)
            if (x.rw.live[k])
                st = emit(&x, k);
        st = wf_rewrite_end(&x.rw, st, n_roots, roots, out);
    }
    wf_free(g->ctx, x.copy);
    wf_free(g->ctx, x.after);
    wf_uses_free(&x.uses, g->ctx);
    return st;
}
