/* order.c - the order in which the nodes of a plan run.
 *
 * Nodes run in the order they were built, except that an update of a variable waits until everything that reads the
 * old value, and everything that may fail, has run. */
#include "exec/exec.h"

struct order {
    const weft_graph *g;
    int32_t *n_readers; /* per value of a variable: readers that have not run */
    bool *done;
    bool *fails;    /* may refuse the data of a step */
    bool *leads;    /* something that may fail needs its output */
    int64_t n_fail; /* nodes that may fail and have not run */
    int32_t *list;
    int64_t n;
    int32_t *wait; /* nodes that were looked at and had to wait, in the order they were built */
    int64_t n_wait;
    int64_t *first_operand; /* per node: the number of its first operand among all */
    bool *
        late; /* per operand: its node depends on the update of what it reads, and reads the new value */
};

/* An update that nothing fallible depends on waits for all that may fail: a step that fails changes nothing. */
static bool is_held(const struct order *o, int64_t k)
{
    return o->n_fail > 0 && (o->g->nodes[k].op->flags & WF_STATE_IN0) && !o->leads[k];
}

static bool is_ready(const struct order *o, int64_t k)
{
    const struct wf_node *n = &o->g->nodes[k];

    if (is_held(o, k))
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && !o->done[o->g->values[n->in[i]].node])
            return false;
    for (int i = 0; i < n->n_ctrl; i++)
        if (!o->done[n->ctrl[i]])
            return false;
    return o->n_readers[wf_value_updated(o->g, n)] == 0;
}

/* Operand i of node k: one reader more or less of the old value. */
static void count_reader(struct order *o, int64_t k, int i, int by)
{
    int32_t v = wf_value_read(o->g, &o->g->nodes[k], i);

    if (v && !o->late[o->first_operand[k] + i])
        o->n_readers[v] += by;
}

static void emit(struct order *o, int64_t k)
{
    const struct wf_node *n = &o->g->nodes[k];

    o->done[k] = true;
    o->n_fail -= o->fails[k];
    if (!(n->op->flags & WF_LEAF))
        o->list[o->n++] = (int32_t)k;
    for (int i = 0; i < n->n_in; i++)
        count_reader(o, k, i, -1);
}

/* Does node k depend on one that is marked? */
static bool follows(const struct order *o, int64_t k, const bool *marked)
{
    const struct wf_node *n = &o->g->nodes[k];

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && marked[o->g->values[n->in[i]].node])
            return true;
    for (int i = 0; i < n->n_ctrl; i++)
        if (marked[n->ctrl[i]])
            return true;
    return false;
}

/* The readers of v, up to node `last`, that depend on update u. marked[]: room. */
static void mark_late(struct order *o, int64_t u, int32_t v, int64_t last, bool *marked)
{
    memset(marked, 0, (size_t)o->g->n_nodes);
    marked[u] = true;
    for (int64_t k = u + 1; k <= last; k++) {
        marked[k] = follows(o, k, marked);
        for (int i = 0; i < o->g->nodes[k].n_in; i++)
            o->late[o->first_operand[k] + i] |=
                marked[k] && wf_value_read(o->g, &o->g->nodes[k], i) == v;
    }
}

/* What depends on an update reads the new value; the update does not wait for it. There are hardly any such readers. */
static weft_status find_late(struct wf_plan *p, struct order *o)
{
    const weft_graph *g = o->g;
    bool *after = wf_arena_alloc(&p->arena, 2 * (size_t)g->n_nodes + 1);
    int64_t *last = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *last), n = 0;

    o->first_operand = wf_arena_alloc(&p->arena, (size_t)(g->n_nodes + 1) * sizeof n);
    for (int64_t k = 0; o->first_operand && k < g->n_nodes; k++) {
        o->first_operand[k] = n;
        n += g->nodes[k].n_in;
    }
    o->late = wf_arena_alloc(&p->arena, (size_t)n + 1);
    if (!after || !last || !o->first_operand || !o->late)
        return wf_err_nomem(p->ctx, (size_t)g->n_values * sizeof *last, "plan");
    for (int64_t k = 0; k < g->n_nodes; k++) {
        bool follow = follows(o, k, after);

        after[k] = follow || (g->nodes[k].op->flags & WF_STATE_IN0);
        for (int i = 0; follow && i < g->nodes[k].n_in; i++)
            last[wf_value_read(g, &g->nodes[k], i)] = k;
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        int32_t v = wf_value_updated(g, &g->nodes[k]);

        if (v && last[v] > k)
            mark_late(o, k, v, last[v], after + g->n_nodes);
    }
    return WEFT_OK;
}

static void count_readers(struct order *o)
{
    for (int64_t k = 0; k < o->g->n_nodes; k++)
        for (int i = 0; i < o->g->nodes[k].n_in; i++)
            count_reader(o, k, i, 1);
}

/* Which nodes may fail, and which must run before one of those. Updates that may fail are no reason for others to wait:
 * they would wait for each other. */
static weft_status find_fails(struct order *o, bool all_fail)
{
    const weft_graph *g = o->g;
    weft_status st = wf_find_fails(g, 0, NULL, o->fails);

    for (int64_t k = g->n_nodes - 1; k >= 0 && !st; k--) {
        const struct wf_node *n = &g->nodes[k];

        o->fails[k] |= all_fail && !(n->op->flags & (WF_LEAF | WF_VIEW));
        o->fails[k] &= !(n->op->flags & WF_STATE_IN0);
        o->n_fail += o->fails[k];
        if (!o->fails[k] && !o->leads[k])
            continue;
        for (int i = 0; i < n->n_in; i++)
            o->leads[g->values[n->in[i]].node] |= n->in[i] != 0;
        for (int i = 0; i < n->n_ctrl; i++)
            o->leads[n->ctrl[i]] = true;
    }
    return st;
}

/* Emits what has waited and need not any more. */
static bool emit_waiting(struct order *o)
{
    int64_t kept = 0, n = o->n_wait;

    for (int64_t i = 0; i < n; i++)
        if (is_ready(o, o->wait[i]))
            emit(o, o->wait[i]);
        else
            o->wait[kept++] = o->wait[i];
    o->n_wait = kept;
    return kept < n;
}

static weft_status alloc_order(struct wf_plan *p, struct order *o)
{
    size_t n = (size_t)o->g->n_nodes + 1;

    o->n_readers = wf_arena_alloc(&p->arena, (size_t)o->g->n_values * sizeof *o->n_readers);
    o->done = wf_arena_alloc(&p->arena, n);
    o->fails = wf_arena_alloc(&p->arena, n);
    o->leads = wf_arena_alloc(&p->arena, n);
    o->list = wf_arena_alloc(&p->arena, n * sizeof *o->list);
    o->wait = wf_arena_alloc(&p->arena, n * sizeof *o->wait);
    return o->n_readers && o->done && o->fails && o->leads && o->list && o->wait
               ? WEFT_OK
               : wf_err_nomem(p->ctx, n * sizeof *o->list, "plan");
}

weft_status wf_plan_order(struct wf_plan *p, bool all_fail, int32_t **order, int64_t *n)
{
    struct order o = {.g = p->graph};
    weft_status st = alloc_order(p, &o);

    if (!st)
        st = find_fails(&o, all_fail);
    if (!st)
        st = find_late(p, &o);
    if (st)
        return st;
    count_readers(&o);
    for (int64_t k = 0; k < o.g->n_nodes; k++) {
        if (!is_ready(&o, k)) {
            o.wait[o.n_wait++] = (int32_t)k;
            continue;
        }
        emit(&o, k);
        emit_waiting(&o);
    }
    /* What is left is a cycle that no order satisfies (by control dependencies); the first that waits goes first. */
    while (o.n_wait > 0)
        if (!emit_waiting(&o)) {
            emit(&o, o.wait[0]);
            memmove(o.wait, o.wait + 1, (size_t)--o.n_wait * sizeof *o.wait);
        }
    *order = o.list;
    *n = o.n;
    return WEFT_OK;
}
