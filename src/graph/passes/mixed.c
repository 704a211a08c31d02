/* mixed.c - casts that a neighbor does itself.
 *
 * Where layers compute in halves, casts between them and f32 stand around ops that compute in f32
 * anyway: a cross-entropy, a normalization, the sums of a bias. A kernel that can read or write the
 * other type makes the cast unnecessary, and the value is not rounded twice. The device says which
 * ops can (struct wf_fusing); types of results here are not those of the ops' rules. */
#include "graph/graph.h"

enum { MOST_OPERANDS = 8, MOST_RESULTS = 4 };

struct mixed {
    struct wf_rewrite rw;
    const weft_graph *g;
    const struct wf_fusing *can;
    struct wf_uses uses;
    bool *done; /* per node: a cast that its producer does */
};

/* The types of a node's operands and results, to ask about. */
struct types {
    struct wf_type in[MOST_OPERANDS], out[MOST_RESULTS];
};

static bool is_half(weft_dtype t)
{
    return t == WEFT_BF16 || t == WEFT_F16;
}

/* Between a half and f32, with nothing that waits for it. */
static bool is_cast(const struct mixed *m, int64_t k)
{
    const weft_graph *g = m->g;
    const struct wf_node *n = &g->nodes[k];
    weft_dtype from, to;

    if (n->op->id != WF_OP_cast || n->n_ctrl || m->uses.awaited[k])
        return false;
    from = g->values[n->in[0]].type.dtype;
    to = g->values[n->first_out].type.dtype;
    return (is_half(from) && to == WEFT_F32) || (from == WEFT_F32 && is_half(to));
}

/* A node placed by name may run elsewhere. */
static bool may_change(const struct wf_node *n)
{
    return n->n_in <= MOST_OPERANDS && n->n_out <= MOST_RESULTS && !*n->device && !n->op->user &&
           n->op->id != WF_OP_cast;
}

static bool can_take(const struct mixed *m, const struct wf_node *n, const struct types *t)
{
    return m->can->take(n->op, n->attr, n->n_in, t->in, n->n_out, t->out);
}

static void old_types(const struct mixed *m, const struct wf_node *n, struct types *t)
{
    for (int i = 0; i < n->n_in; i++)
        t->in[i] = n->in[i] ? m->g->values[n->in[i]].type : (struct wf_type){.dtype = WEFT_NONE};
    for (int i = 0; i < n->n_out; i++)
        t->out[i] = m->g->values[n->first_out + i].type;
}

/* Whether all readers of a cast can read what it casts. */
static bool readers_take(const struct mixed *m, const struct wf_node *cast)
{
    int32_t v = cast->first_out;
    weft_dtype from = m->g->values[cast->in[0]].type.dtype;

    if (m->uses.n_fetched[v] || m->uses.first[v] == m->uses.first[v + 1])
        return false;
    for (int32_t r = m->uses.first[v]; r < m->uses.first[v + 1]; r++) {
        const struct wf_node *n = &m->g->nodes[m->uses.reader[r]];
        struct types t;

        if (!may_change(n))
            return false;
        old_types(m, n, &t);
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i] == v)
                t.in[i].dtype = from;
        if (!can_take(m, n, &t))
            return false;
    }
    return true;
}

/* Operands that a cast makes: read before it, where the node can. */
static void skip_casts(struct mixed *m, const struct wf_node *n, struct types *t)
{
    for (int i = 0; i < n->n_in; i++) {
        int32_t maker = n->in[i] ? m->g->values[n->in[i]].node : -1, before;
        weft_dtype was = t->in[i].dtype;

        if (maker < 0 || m->done[maker] || !is_cast(m, maker))
            continue;
        before = m->rw.map[m->g->nodes[maker].in[0]];
        t->in[i].dtype = m->rw.to->values[before].type.dtype;
        if (can_take(m, n, t))
            m->rw.in[i] = before;
        else
            t->in[i].dtype = was;
    }
}

/* Results that only a cast reads: written as the cast would. */
static void do_casts(struct mixed *m, const struct wf_node *n, struct types *t)
{
    for (int i = 0; i < n->n_out; i++) {
        int32_t v = n->first_out + i, reader;
        weft_dtype was = t->out[i].dtype;

        if (wf_uses_count(&m->uses, v) != 1 || m->uses.n_fetched[v])
            continue;
        reader = m->uses.reader[m->uses.first[v]];
        if (!is_cast(m, reader) || readers_take(m, &m->g->nodes[reader]))
            continue;
        t->out[i].dtype = m->g->values[m->g->nodes[reader].first_out].type.dtype;
        if (can_take(m, n, t))
            m->done[reader] = true;
        else
            t->out[i].dtype = was;
    }
}

static weft_status emit(struct mixed *m, int64_t k)
{
    const struct wf_node *n = &m->g->nodes[k];
    struct types t;
    int32_t first;
    weft_status st;

    wf_rewrite_inputs(&m->rw, k);
    if (m->done[k]) {
        m->rw.map[n->first_out] = m->rw.in[0];
        return WEFT_OK;
    }
    if (!may_change(n))
        return wf_rewrite_copy_as(&m->rw, n, false);
    old_types(m, n, &t);
    skip_casts(m, n, &t);
    do_casts(m, n, &t);
    st = wf_copy_node(m->rw.to, n, m->rw.in, t.out, &first);
    for (int i = 0; i < n->n_out && !st; i++)
        m->rw.map[n->first_out + i] = first + i;
    return st;
}

weft_status wf_pass_mixed(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                          int32_t *roots, weft_graph **out)
{
    struct mixed m = {.g = g, .can = can};
    weft_status st = wf_uses_find(&m.uses, g, n_roots, roots);

    if (!st)
        st = wf_rewrite_begin(&m.rw, g, n_roots, roots);
    m.done = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *m.done);
    if (!st && !m.done)
        st = wf_err_nomem(g->ctx, (size_t)g->n_nodes, "graph pass");
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (m.rw.live[k])
            st = emit(&m, k);
    if (m.rw.from)
        st = wf_rewrite_end(&m.rw, st, n_roots, roots, out);
    wf_uses_free(&m.uses, g->ctx);
    wf_free(g->ctx, m.done);
    return st;
}
