/* rewrite.c - the frame that passes share: a new graph built from an old one, node by node. */
#include "graph/graph.h"

static void mark(struct wf_rewrite *rw, int64_t node)
{
    rw->live[node] = true;
}

/* One backward sweep: a node's inputs and control dependencies stand before it. */
static void mark_live(struct wf_rewrite *rw, int n_roots, const int32_t *roots)
{
    const weft_graph *g = rw->from;

    for (int i = 0; i < n_roots; i++)
        if (roots[i])
            mark(rw, g->values[roots[i]].node);
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const struct wf_node *n = &g->nodes[k];

        if (!rw->live[k])
            continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i])
                mark(rw, g->values[n->in[i]].node);
        for (int i = 0; i < n->n_ctrl; i++)
            mark(rw, n->ctrl[i]);
    }
}

weft_status wf_rewrite_begin(struct wf_rewrite *rw, const weft_graph *from, int n_roots,
                             const int32_t *roots)
{
    weft_ctx *ctx = from->ctx;
    int n_in = 1;
    weft_status st;

    *rw = (struct wf_rewrite){.from = from};
    for (int64_t k = 0; k < from->n_nodes; k++)
        if (from->nodes[k].n_in > n_in)
            n_in = from->nodes[k].n_in;
    st = weft_graph_new(ctx, &rw->to);
    if (st)
        return st;
    rw->map = wf_alloc_n(ctx, from->n_values, sizeof *rw->map);
    rw->in = wf_alloc_n(ctx, n_in, sizeof *rw->in);
    rw->live = wf_alloc_n(ctx, from->n_nodes + 1, sizeof *rw->live);
    if (!rw->map || !rw->in || !rw->live)
        return wf_err_nomem(ctx, (size_t)from->n_values * 4, "graph pass");
    rw->to->next_uid = from->next_uid;
    mark_live(rw, n_roots, roots);
    return WEFT_OK;
}

void wf_rewrite_inputs(struct wf_rewrite *rw, int64_t k)
{
    const struct wf_node *n = &rw->from->nodes[k];

    for (int i = 0; i < n->n_in; i++)
        rw->in[i] = n->in[i] ? rw->map[n->in[i]] : 0;
}

weft_status wf_rewrite_copy(struct wf_rewrite *rw, int64_t k)
{
    const struct wf_node *n = &rw->from->nodes[k];
    int32_t first;
    weft_status st;

    wf_rewrite_inputs(rw, k);
    st = wf_copy_node(rw->to, n, rw->in, &first);
    for (int i = 0; i < n->n_out && !st; i++)
        rw->map[n->first_out + i] = first + i;
    return st;
}

/* The new node that does the work of old node k, or -1. */
static int32_t new_node(const struct wf_rewrite *rw, int64_t k)
{
    const struct wf_node *n = &rw->from->nodes[k];

    for (int i = 0; i < n->n_out; i++)
        if (rw->map[n->first_out + i])
            return rw->to->values[rw->map[n->first_out + i]].node;
    return -1;
}

static weft_status copy_control(struct wf_rewrite *rw)
{
    for (int64_t k = 0; k < rw->from->n_nodes; k++) {
        const struct wf_node *n = &rw->from->nodes[k];
        int32_t to = rw->live[k] && n->n_ctrl ? new_node(rw, k) : -1;

        for (int i = 0; i < n->n_ctrl && to >= 0; i++) {
            int32_t before = new_node(rw, n->ctrl[i]);

            if (before >= 0 && before < to)
                weft_control(rw->to, (weft_val){rw->to->nodes[to].first_out},
                             (weft_val){rw->to->nodes[before].first_out});
        }
    }
    return rw->to->st;
}

static weft_status copy_vars(struct wf_rewrite *rw)
{
    weft_graph *g = rw->to;

    for (int64_t k = 0; k < g->n_nodes; k++)
        if (g->nodes[k].var >= 0) {
            weft_status st =
                wf_grow(g->ctx, &g->vars, &g->cap_vars, g->n_vars + 1, sizeof *g->vars);

            if (st)
                return st;
            g->vars[g->n_vars++] = g->nodes[k].first_out;
        }
    return WEFT_OK;
}

weft_status wf_rewrite_end(struct wf_rewrite *rw, weft_status st, int n_roots, int32_t *roots,
                           weft_graph **out)
{
    weft_ctx *ctx = rw->from->ctx;

    if (!st)
        st = copy_control(rw);
    if (!st)
        st = copy_vars(rw);
    for (int i = 0; i < n_roots && !st; i++)
        roots[i] = roots[i] ? rw->map[roots[i]] : 0;
    if (!st) {
        *out = rw->to;
        rw->to = NULL;
    }
    weft_graph_free(rw->to);
    wf_free(ctx, rw->map);
    wf_free(ctx, rw->in);
    wf_free(ctx, rw->live);
    return st;
}

weft_status wf_pass_resolve(const weft_graph *g, int n_feeds, const int32_t *feeds,
                            const struct wf_type *feed_types, int n_roots, int32_t *roots,
                            weft_graph **out)
{
    struct wf_rewrite rw;
    weft_status st = wf_rewrite_begin(&rw, g, n_roots, roots);

    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        if (!rw.live[k])
            continue;
        st = wf_rewrite_copy(&rw, k);
        for (int i = 0; i < n_feeds && !st; i++)
            if (g->values[feeds[i]].node == k)
                rw.to->values[rw.map[feeds[i]]].type = feed_types[i];
        if (st)
            wf_err_wrap(st, "'%s'", g->nodes[k].name);
    }
    return wf_rewrite_end(&rw, st, n_roots, roots, out);
}
