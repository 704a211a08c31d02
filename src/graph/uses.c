/* uses.c - which nodes read which values, for passes and plans.
 *
 * Uses are counted in the current graph: only live nodes, including fetches. A view has no bytes of
 * its own; what reads it reads its root. */
#include "graph/graph.h"

void wf_live_nodes(const weft_graph *g, int n_roots, const int32_t *roots, bool *live)
{
    for (int i = 0; i < n_roots; i++)
        if (roots[i])
            live[g->values[roots[i]].node] = true;
    for (int64_t k = 0; g->by_number && k < g->n_nodes; k++)
        live[k] |= (g->nodes[k].op->flags & (WF_EFFECT | WF_LEAF)) == WF_EFFECT;
    /* One backward sweep: a node's inputs and control dependencies come before it. */
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const struct wf_node *n = &g->nodes[k];

        if (!live[k])
            continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i])
                live[g->values[n->in[i]].node] = true;
        for (int i = 0; i < n->n_ctrl; i++)
            live[n->ctrl[i]] = true;
    }
}

void wf_find_late(const weft_graph *g, bool *late)
{
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        bool after = n->op->flags & WF_STATE_IN0;

        for (int i = 0; i < n->n_in && !after; i++)
            after = n->in[i] && late[g->values[n->in[i]].node];
        for (int i = 0; i < n->n_ctrl && !after; i++)
            after = late[n->ctrl[i]];
        late[k] = after;
    }
}

int32_t wf_view_root(const weft_graph *g, int32_t v)
{
    const struct wf_node *n = &g->nodes[g->values[v].node];

    while ((n->op->flags & WF_VIEW) && n->in[0]) {
        v = n->in[0];
        n = &g->nodes[g->values[v].node];
    }
    return v;
}

int32_t wf_value_read(const weft_graph *g, const struct wf_node *n, int i)
{
    if (!n->in[i] || (n->op->flags & WF_VIEW) || (i == 0 && (n->op->flags & WF_STATE_IN0)))
        return 0;
    return wf_view_root(g, n->in[i]);
}

int32_t wf_value_updated(const weft_graph *g, const struct wf_node *n)
{
    return (n->op->flags & WF_STATE_IN0) && n->in[0] ? wf_view_root(g, n->in[0]) : 0;
}

/* Counting sort of the operands of live nodes by value. */
static void list_readers(struct wf_uses *u, const weft_graph *g, const bool *live)
{
    for (int64_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; live[k] && i < g->nodes[k].n_in; i++)
            u->first[g->nodes[k].in[i] + 2]++;
    u->first[2] = 0; /* absent operands */
    for (int64_t v = 1; v <= g->n_values; v++)
        u->first[v + 1] += u->first[v];
    for (int64_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; live[k] && i < g->nodes[k].n_in; i++)
            if (g->nodes[k].in[i])
                u->reader[u->first[g->nodes[k].in[i] + 1]++] = (int32_t)k;
}

weft_status wf_uses_find(struct wf_uses *u, const weft_graph *g, int n_roots, const int32_t *roots)
{
    bool *live = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *live);
    int64_t n = 0;

    for (int64_t k = 0; k < g->n_nodes; k++)
        n += g->nodes[k].n_in;
    *u = (struct wf_uses){
        .first = wf_alloc_n(g->ctx, g->n_values + 2, sizeof *u->first),
        .reader = wf_alloc_n(g->ctx, n + 1, sizeof *u->reader),
        .n_fetched = wf_alloc_n(g->ctx, g->n_values, sizeof *u->n_fetched),
        .awaited = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *u->awaited),
        .first_update = wf_alloc_n(g->ctx, g->n_values, sizeof *u->first_update),
    };
    if (!live || !u->first || !u->reader || !u->n_fetched || !u->awaited || !u->first_update) {
        wf_free(g->ctx, live);
        return wf_err_nomem(g->ctx, (size_t)n * sizeof *u->reader, "graph pass");
    }
    wf_live_nodes(g, n_roots, roots, live);
    list_readers(u, g, live);
    for (int64_t v = 0; v < g->n_values; v++)
        u->first_update[v] = INT32_MAX;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        for (int i = 0; live[k] && i < g->nodes[k].n_ctrl; i++)
            u->awaited[g->nodes[k].ctrl[i]] = true;
        if (live[k])
            u->first_update[wf_value_updated(g, &g->nodes[k])] = (int32_t)k;
    }
    u->first_update[0] = INT32_MAX;
    for (int i = 0; i < n_roots; i++)
        u->n_fetched[roots[i]]++;
    wf_free(g->ctx, live);
    return WEFT_OK;
}

void wf_uses_free(struct wf_uses *u, weft_ctx *ctx)
{
    wf_free(ctx, u->first);
    wf_free(ctx, u->reader);
    wf_free(ctx, u->n_fetched);
    wf_free(ctx, u->awaited);
    wf_free(ctx, u->first_update);
}
