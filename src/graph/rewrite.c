/* rewrite.c - shared by all passes: builds a new graph from an old one, node by node.
 *
 * Nodes are identified by number: a copied node keeps its uid, its variable's and its feed's
 * number; names are for messages. Copied nodes keep their types. The result of a pass has no node
 * that its roots do not need. */
#include "graph/graph.h"

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
    rw->to->by_number = true;
    rw->map = wf_alloc_n(ctx, from->n_values, sizeof *rw->map);
    rw->in = wf_alloc_n(ctx, n_in, sizeof *rw->in);
    rw->live = wf_alloc_n(ctx, from->n_nodes + 1, sizeof *rw->live);
    if (!rw->map || !rw->in || !rw->live)
        return wf_err_nomem(ctx, (size_t)from->n_values * 4, "graph pass");
    rw->to->next_uid = from->next_uid;
    wf_live_nodes(from, n_roots, roots, rw->live);
    return WEFT_OK;
}

void wf_rewrite_inputs(struct wf_rewrite *rw, int64_t k)
{
    const struct wf_node *n = &rw->from->nodes[k];

    for (int i = 0; i < n->n_in; i++)
        rw->in[i] = n->in[i] ? rw->map[n->in[i]] : 0;
}

weft_status wf_rewrite_copy_as(struct wf_rewrite *rw, const struct wf_node *n, bool infer)
{
    struct wf_type types[WF_MAX_OUT];
    int32_t first;
    weft_status st;

    for (int i = 0; i < n->n_out && !infer; i++)
        types[i] = rw->from->values[n->first_out + i].type;
    st = wf_copy_node(rw->to, n, rw->in, infer ? NULL : types, &first);
    for (int i = 0; i < n->n_out && !st; i++)
        rw->map[n->first_out + i] = first + i;
    return st;
}

weft_status wf_rewrite_copy(struct wf_rewrite *rw, int64_t k)
{
    wf_rewrite_inputs(rw, k);
    return wf_rewrite_copy_as(rw, &rw->from->nodes[k], false);
}

void wf_rewrite_name(struct wf_rewrite *rw, int32_t made, const struct wf_node *replaced)
{
    struct wf_node *n = &rw->to->nodes[rw->to->values[made].node];
    const char *name, *device;

    if (!made)
        return;
    name = wf_arena_strdup(&rw->to->arena, replaced->name);
    device = *replaced->device ? wf_arena_strdup(&rw->to->arena, replaced->device) : NULL;
    n->name = name ? name : n->name;
    n->device = device ? device : n->device;
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* The new node that replaces old node k, or -1. */
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

/* Removes the nodes of g that are not live, and renumbers the rest. value[], node[]: scratch for
 * the new numbers. */
static void close_gaps(weft_graph *g, const bool *live, int32_t *value, int32_t *node)
{
    int64_t n_nodes = 0, n_values = 1;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        struct wf_node *n = &g->nodes[k];

        if (!live[k])
            continue;
        for (int i = 0; i < n->n_in; i++)
            n->in[i] = value[n->in[i]];
        for (int i = 0; i < n->n_ctrl; i++)
            n->ctrl[i] = node[n->ctrl[i]];
        for (int i = 0; i < n->n_out; i++) {
            value[n->first_out + i] = (int32_t)n_values + i;
            g->values[n_values + i] = g->values[n->first_out + i];
            g->values[n_values + i].node = (int32_t)n_nodes;
        }
        n->first_out = (int32_t)n_values;
        n_values += n->n_out;
        node[k] = (int32_t)n_nodes;
        g->nodes[n_nodes++] = *n;
    }
    g->n_nodes = n_nodes;
    g->n_values = n_values;
}

/* Removes nodes that lost their last reader in the pass. */
static weft_status drop_dead(weft_graph *g, int n_roots, int32_t *roots)
{
    bool *live = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *live), all = true;
    int32_t *value = wf_alloc_n(g->ctx, g->n_values + g->n_nodes + 1, sizeof *value);
    weft_status st = WEFT_OK;

    if (!live || !value) {
        st = wf_err_nomem(g->ctx, (size_t)g->n_values * sizeof *value, "graph pass");
        goto out;
    }
    wf_live_nodes(g, n_roots, roots, live);
    for (int64_t k = 0; k < g->n_nodes; k++)
        all &= live[k];
    if (all)
        goto out;
    close_gaps(g, live, value, value + g->n_values);
    for (int i = 0; i < n_roots; i++)
        roots[i] = value[roots[i]];
out:
    wf_free(g->ctx, live);
    wf_free(g->ctx, value);
    return st;
}

static weft_status list_vars(weft_graph *g)
{
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
    for (int i = 0; i < n_roots && !st; i++)
        roots[i] = rw->root && rw->root[i] ? rw->root[i] : roots[i] ? rw->map[roots[i]] : 0;
    if (!st)
        st = drop_dead(rw->to, n_roots, roots);
    if (!st)
        st = list_vars(rw->to);
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

/* ---- copies ---------------------------------------------------------------------------------- */

weft_status wf_pass_copy(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out)
{
    struct wf_rewrite rw;
    weft_status st = wf_rewrite_begin(&rw, g, n_roots, roots);

    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (rw.live[k])
            st = wf_rewrite_copy(&rw, k);
    return wf_rewrite_end(&rw, st, n_roots, roots, out);
}

weft_status wf_pass_resolve(const weft_graph *g, int n_feeds, const int32_t *feeds,
                            const struct wf_type *feed_types, int n_roots, int32_t *roots,
                            weft_graph **out)
{
    int32_t *feed_of = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *feed_of); /* number + 1 */
    struct wf_rewrite rw;
    weft_status st = wf_rewrite_begin(&rw, g, n_roots, roots);

    if (!st && !feed_of)
        st = wf_err_nomem(g->ctx, (size_t)g->n_nodes * sizeof *feed_of, "graph pass");
    for (int i = 0; i < n_feeds && !st; i++)
        feed_of[g->values[feeds[i]].node] = i + 1;
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        if (!rw.live[k])
            continue;
        wf_rewrite_inputs(&rw, k);
        st = wf_rewrite_copy_as(&rw, &g->nodes[k], true);
        if (st) {
            wf_err_wrap(st, "'%s'", g->nodes[k].name);
        } else if (feed_of[k]) {
            rw.to->nodes[rw.to->n_nodes - 1].feed = feed_of[k] - 1;
            rw.to->values[rw.to->nodes[rw.to->n_nodes - 1].first_out].type =
                feed_types[feed_of[k] - 1];
        }
    }
    wf_free(g->ctx, feed_of);
    return wf_rewrite_end(&rw, st, n_roots, roots, out);
}
