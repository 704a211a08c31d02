/* uncross.c - readers that an update cannot wait for, and several updates of one variable.
 *
 * An update waits for the readers of the old value. Two updates that swap variables would wait for
 * each other, and a node that runs after an update may still read the old value. Such a reader gets
 * a copy, made before any update.
 *
 * Updates of one variable run in the order in which they were built. The next one waits, by control
 * dependencies, for the previous one and for readers of its result that were built in between;
 * those that were built later get a copy. */
#include "graph/graph.h"

struct uncross {
    struct wf_rewrite rw;
    const weft_graph *g;
    struct wf_uses uses;
    int32_t *copy; /* per value of g: its copy in the new graph, or 0 */
    bool *after;   /* per node of g: it runs after an update, because of an operand or a control
                    * dependency */
    int32_t *prev, *next; /* per update: the previous and next update of its variable, or -1 */
    bool *read_late;      /* per value: a node needs a copy of it */
    bool *mark;           /* per node: scratch */
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

/* Links the updates of each variable. Returns whether one has several. */
static bool link_updates(struct uncross *x)
{
    const weft_graph *g = x->g;
    int32_t *last = x->copy; /* per value: its last update so far, plus 1; cleared below */
    bool any = false;

    for (int32_t k = 0; k < g->n_nodes; k++) {
        int32_t v = wf_value_updated(g, &g->nodes[k]);

        x->prev[k] = x->next[k] = -1;
        if (!v)
            continue;
        x->prev[k] = last[v] - 1;
        if (last[v]) {
            x->next[last[v] - 1] = k;
            any = true;
        }
        last[v] = k + 1;
    }
    memset(last, 0, (size_t)g->n_values * sizeof *last);
    return any;
}

/* Whether node k reads, as operand i, bytes that an update built before k overwrites, while that
 * update cannot wait for k: because k is an update itself, or runs after one. */
static bool crosses(const struct uncross *x, int64_t k, int i)
{
    const weft_graph *g = x->g;
    const struct wf_node *n = &g->nodes[k];
    int32_t v = wf_value_read(g, n, i);
    bool after = x->after[k] || wf_value_updated(g, n);

    return v && after &&
           (x->uses.first_update[v] < k ||
            (x->next[g->values[v].node] >= 0 && x->next[g->values[v].node] < k));
}

/* The copy of v, made once. */
static int32_t copy_of(struct uncross *x, int32_t v)
{
    struct wf_set same = WF_SET_DTYPE("dtype", x->g->values[v].type.dtype);

    if (!x->copy[v]) {
        x->copy[v] = wf_build(x->rw.to, WF_OP_cast, 1, (weft_val[]){{x->rw.map[v]}}, 1, &same).id;
        wf_rewrite_name(&x->rw, x->copy[v], &x->g->nodes[x->g->values[v].node]);
    }
    return x->copy[v];
}

static void wait_for(struct uncross *x, int64_t k, int32_t value)
{
    weft_control(x->rw.to, (weft_val){x->rw.map[x->g->nodes[k].first_out]}, (weft_val){value});
}

/* mark[]: the nodes from `from` to k that k depends on. */
static void mark_needed(struct uncross *x, int64_t k, int64_t from)
{
    const weft_graph *g = x->g;

    memset(x->mark + from, 0, (size_t)(k - from));
    x->mark[k] = true;
    for (int64_t m = k; m > from; m--) {
        const struct wf_node *n = &g->nodes[m];

        for (int i = 0; x->mark[m] && i < n->n_in; i++)
            if (n->in[i] && g->values[n->in[i]].node >= from)
                x->mark[g->values[n->in[i]].node] = true;
        for (int i = 0; x->mark[m] && i < n->n_ctrl; i++)
            if (n->ctrl[i] >= from)
                x->mark[n->ctrl[i]] = true;
    }
}

/* Makes update k, which follows update `prev` of the same variable, wait for it and its readers. */
static void wait_for_previous(struct uncross *x, int64_t k, int32_t prev)
{
    const weft_graph *g = x->g;
    int32_t old = g->nodes[prev].first_out;

    mark_needed(x, k, prev);
    if (!x->mark[prev])
        wait_for(x, k, x->rw.map[old]);
    if (x->copy[old])
        wait_for(x, k, x->copy[old]);
    for (int64_t m = prev + 1; m < k; m++) {
        bool reads = false;

        for (int i = 0; i < g->nodes[m].n_in; i++)
            reads |= wf_value_read(g, &g->nodes[m], i) == old;
        if (reads && !x->mark[m])
            wait_for(x, k, x->rw.map[g->nodes[m].first_out]);
    }
}

static weft_status emit(struct uncross *x, int64_t k)
{
    const struct wf_node *n = &x->g->nodes[k];
    int32_t prev = x->prev[k];
    weft_status st;

    if (prev >= 0 && x->read_late[x->g->nodes[prev].first_out])
        copy_of(x, x->g->nodes[prev].first_out);
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
    st = x->rw.to->st ? x->rw.to->st : wf_rewrite_copy_as(&x->rw, n, false);
    if (!st && prev >= 0)
        wait_for_previous(x, k, prev);
    return st ? st : x->rw.to->st;
}

static weft_status alloc_tables(struct uncross *x)
{
    weft_ctx *ctx = x->g->ctx;
    int64_t n = x->g->n_nodes + 1, m = x->g->n_values;

    x->copy = wf_alloc_n(ctx, m, sizeof *x->copy);
    x->read_late = wf_alloc_n(ctx, m, sizeof *x->read_late);
    x->after = wf_alloc_n(ctx, n, sizeof *x->after);
    x->mark = wf_alloc_n(ctx, n, sizeof *x->mark);
    x->prev = wf_alloc_n(ctx, n, sizeof *x->prev);
    x->next = wf_alloc_n(ctx, n, sizeof *x->next);
    return x->copy && x->read_late && x->after && x->mark && x->prev && x->next
               ? WEFT_OK
               : wf_err_nomem(ctx, (size_t)m * sizeof *x->copy, "graph pass");
}

static void free_tables(struct uncross *x)
{
    weft_ctx *ctx = x->g->ctx;

    wf_free(ctx, x->copy);
    wf_free(ctx, x->read_late);
    wf_free(ctx, x->after);
    wf_free(ctx, x->mark);
    wf_free(ctx, x->prev);
    wf_free(ctx, x->next);
    wf_uses_free(&x->uses, ctx);
}

weft_status wf_pass_uncross(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out)
{
    struct uncross x = {.g = g};
    weft_status st = alloc_tables(&x);
    bool any = false;

    *out = NULL;
    if (!st)
        st = wf_uses_find(&x.uses, g, n_roots, roots);
    if (!st) {
        any = link_updates(&x);
        find_after(&x);
    }
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        for (int i = 0; i < g->nodes[k].n_in; i++)
            if (crosses(&x, k, i))
                any = x.read_late[wf_value_read(g, &g->nodes[k], i)] = true;
    if (any && !st) {
        st = wf_rewrite_begin(&x.rw, g, n_roots, roots);
        for (int64_t k = 0; k < g->n_nodes && !st; k++)
            if (x.rw.live[k])
                st = emit(&x, k);
        st = wf_rewrite_end(&x.rw, st, n_roots, roots, out);
    }
    free_tables(&x);
    return st;
}
