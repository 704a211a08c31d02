/* order.c - the order in which the nodes of a plan run.
 *
 * Nodes run in the order they were built, except that an update of a variable waits until
 * everything that reads the old value, and everything that may fail, has run. No reader of the old
 * value depends on the update (uncross.c). */
#include "exec/exec.h"

/* Node numbers, the lowest first. */
struct heap {
    int32_t *node;
    int64_t n;
};

struct order {
    const weft_graph *g;
    int32_t *n_readers; /* per value of a variable: readers that have not run */
    bool *done;
    bool *fails;    /* may refuse the data of a step */
    bool *leads;    /* something that may fail needs its output */
    int64_t n_fail; /* nodes that may fail and have not run */
    int32_t *list;
    int64_t n;
    /* Nodes that were looked at and had to wait: for how many things each, and who waits for what.
     */
    int32_t *n_unmet;
    int32_t *after_node, *after_readers, held; /* lists of waits: number + 1, 0 is none */
    struct wait {
        int32_t node, next;
    } * waits;
    int64_t n_waits;
    struct heap ready[2]; /* those that need not wait any more: for this round, for the next */
    int64_t at;           /* the node of this round that was emitted last */
};

/* An update that nothing fallible depends on waits for everything that may fail: a failing step
 * changes nothing. */
static bool is_held(const struct order *o, int64_t k)
{
    return o->n_fail > 0 && (o->g->nodes[k].op->flags & WF_STATE_IN0) && !o->leads[k];
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void push(struct heap *h, int32_t node)
{
    int64_t i = h->n++;

    for (; i > 0 && h->node[(i - 1) / 2] > node; i = (i - 1) / 2)
        h->node[i] = h->node[(i - 1) / 2];
    h->node[i] = node;
}

static int32_t pop(struct heap *h)
{
    int32_t top = h->node[0], node = h->node[--h->n];
    int64_t i = 0;

    for (int64_t k = 1; k < h->n; k = 2 * i + 1) {
        k += k + 1 < h->n && h->node[k + 1] < h->node[k];
        if (h->node[k] >= node)
            break;
        h->node[i] = h->node[k];
        i = k;
    }
    h->node[i] = node;
    return top;
}

static void wait_for(struct order *o, int64_t k, int32_t *list)
{
    o->waits[o->n_waits] = (struct wait){(int32_t)k, *list};
    *list = (int32_t)++o->n_waits;
    o->n_unmet[k]++;
}

/* What node k has to wait for; false: nothing. */
static bool must_wait(struct order *o, int64_t k)
{
    const struct wf_node *n = &o->g->nodes[k];
    int32_t updated = wf_value_updated(o->g, n);

    if (is_held(o, k))
        wait_for(o, k, &o->held);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && !o->done[o->g->values[n->in[i]].node])
            wait_for(o, k, &o->after_node[o->g->values[n->in[i]].node]);
    for (int i = 0; i < n->n_ctrl; i++)
        if (!o->done[n->ctrl[i]])
            wait_for(o, k, &o->after_node[n->ctrl[i]]);
    if (o->n_readers[updated] > 0)
        wait_for(o, k, &o->after_readers[updated]);
    return o->n_unmet[k] > 0;
}

/* What a list waits for has happened. A round goes through those that wait in the order they were
 * built: one that lies before the round's place is left to the next. */
static void release(struct order *o, int32_t *list)
{
    for (int32_t w = *list; w; w = o->waits[w - 1].next) {
        int32_t k = o->waits[w - 1].node;

        if (--o->n_unmet[k] == 0 && !o->done[k])
            push(&o->ready[k < o->at], k);
    }
    *list = 0;
}

/* Operand i of node k: one more (or one less) reader of the old value. */
static void count_reader(struct order *o, int64_t k, int i, int by)
{
    int32_t v = wf_value_read(o->g, &o->g->nodes[k], i);

    if (!v)
        return;
    o->n_readers[v] += by;
    if (o->n_readers[v] == 0)
        release(o, &o->after_readers[v]);
}

static void emit(struct order *o, int64_t k)
{
    const struct wf_node *n = &o->g->nodes[k];

    o->done[k] = true;
    o->n_fail -= o->fails[k];
    if (o->n_fail == 0)
        release(o, &o->held);
    if (!(n->op->flags & WF_LEAF))
        o->list[o->n++] = (int32_t)k;
    for (int i = 0; i < n->n_in; i++)
        count_reader(o, k, i, -1);
    release(o, &o->after_node[k]);
}

static void count_readers(struct order *o)
{
    for (int64_t k = 0; k < o->g->n_nodes; k++)
        for (int i = 0; i < o->g->nodes[k].n_in; i++)
            count_reader(o, k, i, 1);
}

/* Which nodes may fail, and which must run before one of those. Updates that may fail do not make
 * others wait: they would wait for each other. */
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

/* One round: emits what has waited and need not any more. */
static bool emit_waiting(struct order *o)
{
    struct heap none = o->ready[0];
    bool any = o->ready[0].n > 0;

    while (o->ready[0].n > 0) {
        o->at = pop(&o->ready[0]);
        emit(o, o->at);
    }
    none.n = 0;
    o->ready[0] = o->ready[1];
    o->ready[1] = none;
    o->at = 0;
    return any;
}

static weft_status alloc_order(struct wf_plan *p, struct order *o)
{
    const weft_graph *g = o->g;
    size_t n = (size_t)g->n_nodes + 1, n_values = (size_t)g->n_values, n_waits = 2 * n;

    for (int64_t k = 0; k < g->n_nodes; k++)
        n_waits += (size_t)(g->nodes[k].n_in + g->nodes[k].n_ctrl);
    o->n_readers = wf_arena_alloc(&p->arena, n_values * sizeof *o->n_readers);
    o->done = wf_arena_alloc(&p->arena, n);
    o->fails = wf_arena_alloc(&p->arena, n);
    o->leads = wf_arena_alloc(&p->arena, n);
    o->list = wf_arena_alloc(&p->arena, n * sizeof *o->list);
    o->n_unmet = wf_arena_alloc(&p->arena, n * sizeof *o->n_unmet);
    o->after_node = wf_arena_alloc(&p->arena, n * sizeof *o->after_node);
    o->after_readers = wf_arena_alloc(&p->arena, n_values * sizeof *o->after_readers);
    o->waits = wf_arena_alloc(&p->arena, n_waits * sizeof *o->waits);
    for (int i = 0; i < 2; i++)
        o->ready[i].node = wf_arena_alloc(&p->arena, n * sizeof *o->ready[i].node);
    return o->n_readers && o->done && o->fails && o->leads && o->list && o->n_unmet &&
                   o->after_node && o->after_readers && o->waits && o->ready[0].node &&
                   o->ready[1].node
               ? WEFT_OK
               : wf_err_nomem(p->ctx, n_waits * sizeof *o->waits, "plan");
}

weft_status wf_plan_order(struct wf_plan *p, bool all_fail, int32_t **order, int64_t *n)
{
    struct order o = {.g = p->graph};
    weft_status st = alloc_order(p, &o);

    if (!st)
        st = find_fails(&o, all_fail);
    if (st)
        return st;
    count_readers(&o);
    for (int64_t k = 0; k < o.g->n_nodes; k++)
        if (!must_wait(&o, k)) {
            emit(&o, k);
            emit_waiting(&o);
        }
    /* What is left is a cycle that no order satisfies (by control dependencies); the first that
     * waits goes first. */
    for (int64_t k = 0; k < o.g->n_nodes; k++) {
        while (emit_waiting(&o))
            ;
        if (!o.done[k])
            emit(&o, k);
    }
    while (emit_waiting(&o))
        ;
    *order = o.list;
    *n = o.n;
    return WEFT_OK;
}
