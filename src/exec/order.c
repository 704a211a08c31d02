/* order.c - the order of execution and the memory of a plan.
 *
 * Nodes run in the order they were built, except that an update of a variable waits until
 * everything that reads the old value, and everything that may fail, has run. Every value gets its
 * memory before the first run: constants and feeds stay where they are, variables are in the
 * store, the rest is in one slab, where two values share bytes if they are never alive at the same
 * time. */
#include <stdlib.h>

#include "exec/exec.h"

/* ---- order ----------------------------------------------------------------------------------- */

struct order {
    const weft_graph *g;
    int32_t *n_readers; /* per value of a variable: readers that have not run */
    bool *done;
    bool *fails;    /* may refuse the data of a step */
    bool *leads;    /* something that may fail needs its output */
    int64_t n_fail; /* nodes that may fail and have not run */
    int32_t *list;
    int64_t n;
    int32_t *wait; /* nodes that were visited and had to wait, in the order they were built */
    int64_t n_wait;
    int64_t *first_operand; /* per node: the number of its first operand among all */
    bool *late; /* per operand: its node depends on the update of what it reads, and reads the new
                 * value */
};

/* An update that nothing fallible depends on waits for everything that may fail: a failing step
 * changes nothing. */
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

/* Operand i of node k: one more (or one less) reader of the old value. */
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

/* Whether node k depends on a marked one. */
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

/* The readers of v, up to node `last`, that depend on update u. marked[]: scratch. */
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

/* Whatever depends on an update reads the new value; the update does not wait for it. Such readers
 * are rare. */
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

/* Emits nodes that no longer need to wait. */
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
    /* What is left is a cycle that no order satisfies (by control dependencies); the first one that
     * waits goes first. */
    while (o.n_wait > 0)
        if (!emit_waiting(&o)) {
            emit(&o, o.wait[0]);
            memmove(o.wait, o.wait + 1, (size_t)--o.n_wait * sizeof *o.wait);
        }
    *order = o.list;
    *n = o.n;
    return WEFT_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct life {
    int32_t value;
    int64_t first, last; /* positions in the order */
    int64_t bytes, offset;
};

static int by_size(const void *a, const void *b)
{
    const struct life *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* The lowest offset that is free during this lifetime; by_offset: those placed, the lowest
 * first. */
static int64_t lowest_gap(const struct life *l, const int64_t *by_offset, int64_t i)
{
    int64_t at = 0;

    for (int64_t k = 0; k < i; k++) {
        const struct life *o = &l[by_offset[k]];

        if (l[i].first > o->last || o->first > l[i].last)
            continue;
        if (o->offset >= at + l[i].bytes)
            break;
        at = wf_max_i64(at, o->offset + o->bytes);
    }
    return at;
}

/* Largest first, each at the lowest offset that is free during its lifetime. by_offset: scratch for
 * n numbers. */
static int64_t place_all(struct life *l, int64_t n, int64_t *by_offset)
{
    int64_t top = 0;

    qsort(l, (size_t)n, sizeof *l, by_size);
    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = i;

        l[i].offset = lowest_gap(l, by_offset, i);
        while (low < high) {
            int64_t mid = (low + high) / 2;

            if (l[by_offset[mid]].offset <= l[i].offset)
                low = mid + 1;
            else
                high = mid;
        }
        memmove(by_offset + low + 1, by_offset + low, (size_t)(i - low) * sizeof *by_offset);
        by_offset[low] = i;
        top = wf_max_i64(top, l[i].offset + l[i].bytes);
    }
    return top;
}

static int32_t root_of(const struct wf_plan *p, int32_t v)
{
    while (p->root[v] != v)
        v = p->root[v];
    return v;
}

/* Whether the output of node n may use the memory of its input i: only if that memory is not read
 * afterwards. */
static bool can_overwrite(const struct wf_plan *p, const struct wf_node *n, int i, int64_t at,
                          const int64_t *last)
{
    const weft_graph *g = p->graph;
    int32_t in = n->in[i], r;

    if (!in || g->values[in].type.dtype != g->values[n->first_out].type.dtype ||
        wf_type_bytes(&g->values[in].type) != wf_type_bytes(&g->values[n->first_out].type))
        return false;
    r = root_of(p, in);
    if (p->loc[r].place != WF_SLAB || last[r] != at)
        return false;
    for (int k = 0; k < n->n_in;
         k++) /* another operand in the same bytes would be read after being overwritten */
        if (k != i && n->in[k] && root_of(p, n->in[k]) == r && n->in[k] != in)
            return false;
    return true;
}

/* Places leaves, and finds values that share memory because they are views. */
static weft_status place_leaves(struct wf_plan *p, weft_fn *fn)
{
    const weft_graph *g = p->graph;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        struct wf_loc *l = &p->loc[n->first_out];

        if (n->op->id == WF_OP_constant) {
            *l = (struct wf_loc){WF_CONST, 0, n->data, -1};
        } else if (n->op->id == WF_OP_variable) {
            const struct wf_segment *seg = wf_store_segment(fn->store, n);

            if (!seg)
                return wf_err(WEFT_EBUG, "variable '%s' has no id", n->name);
            *l = seg->flat ? (struct wf_loc){WF_PARAM, seg->offset * (int64_t)sizeof(float), NULL,
                                             seg->number}
                           : (struct wf_loc){WF_STATE, seg->offset, NULL, -1};
        } else if (n->feed >= 0) {
            *l = (struct wf_loc){WF_FEED, n->feed, NULL, -1};
        } else if ((n->op->flags & (WF_VIEW | WF_STATE_IN0)) && n->in[0]) {
            p->root[n->first_out] = root_of(p, n->in[0]);
        }
    }
    return WEFT_OK;
}

/* A gradient that an update of a flat variable takes as a whole is placed in the flat gradient
 * vector: that of the variable's first update, if it has several. */
static weft_status place_gradients(struct wf_plan *p, weft_fn *fn)
{
    const weft_graph *g = p->graph;
    bool *taken = wf_arena_alloc(&p->arena, (size_t)g->n_values);

    if (!taken)
        return wf_err_nomem(p->ctx, (size_t)g->n_values, "plan");
    for (int64_t k = 0; fn->opts.flat_gradients && k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        int32_t r, var;

        if (n->op->id != WF_OP_apply)
            continue;
        var = root_of(p, n->in[0]);
        r = root_of(p, n->in[1]);
        if (p->loc[var].place == WF_PARAM && p->loc[r].place == WF_NOWHERE && !taken[var])
            p->loc[r] = (struct wf_loc){WF_GRAD, p->loc[var].offset, NULL, p->loc[var].segment};
        taken[var] = true;
    }
    return WEFT_OK;
}

static void find_lives(struct wf_plan *p, const int32_t *order, int64_t n, int64_t *first,
                       int64_t *last, int n_roots)
{
    const weft_graph *g = p->graph;

    for (int64_t v = 0; v < g->n_values; v++)
        first[v] = last[v] = -1;
    for (int64_t at = 0; at < n; at++) {
        const struct wf_node *k = &g->nodes[order[at]];

        for (int i = 0; i < k->n_out; i++) {
            int32_t r = root_of(p, k->first_out + i);

            if (first[r] < 0)
                first[r] = at;
            last[r] = wf_max_i64(last[r], at);
        }
        for (int i = 0; i < k->n_in; i++)
            if (k->in[i])
                last[root_of(p, k->in[i])] = wf_max_i64(last[root_of(p, k->in[i])], at);
    }
    for (int i = 0; i < n_roots; i++)
        if (p->roots[i])
            last[root_of(p, p->roots[i])] = n;
}

/* Lets outputs reuse the memory of operands that die with the instruction. */
static void share_in_place(struct wf_plan *p, const int32_t *order, int64_t n, int64_t *first,
                           int64_t *last)
{
    for (int64_t at = 0; at < n; at++) {
        const struct wf_node *k = &p->graph->nodes[order[at]];
        int32_t out = k->first_out, r;
        bool any_operand = k->op->id == WF_OP_fused;

        if (!(k->op->flags & WF_INPLACE) || p->root[out] != out || p->loc[out].place != WF_SLAB)
            continue;
        for (int i = 0; i < (any_operand ? k->n_in : 1); i++)
            if (can_overwrite(p, k, i, at, last)) {
                r = root_of(p, k->in[i]);
                p->root[out] = r;
                last[r] = wf_max_i64(last[r], last[out]);
                first[out] = last[out] = -1;
                break;
            }
    }
}

weft_status wf_plan_memory(struct wf_plan *p, weft_fn *fn, const int32_t *order, int64_t n)
{
    const weft_graph *g = p->graph;
    int64_t *first = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *first);
    int64_t *last = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *last);
    struct life *lives = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *lives);
    int64_t *by_offset = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *by_offset);
    int64_t n_lives = 0, total = 0;
    weft_status st;

    if (!first || !last || !lives || !by_offset)
        return wf_err_nomem(p->ctx, (size_t)g->n_values * sizeof *lives, "plan");
    st = place_leaves(p, fn);
    if (st)
        return st;
    st = place_gradients(p, fn);
    if (st)
        return st;
    for (int32_t v = 1; v < g->n_values; v++)
        if (p->root[v] == v && p->loc[v].place == WF_NOWHERE)
            p->loc[v].place = WF_SLAB;
    find_lives(p, order, n, first, last, fn->n_fetches + fn->n_updates);
    share_in_place(p, order, n, first, last);
    for (int32_t v = 1; v < g->n_values; v++)
        if (p->root[v] == v && p->loc[v].place == WF_SLAB && first[v] >= 0) {
            int64_t bytes = wf_type_bytes(&g->values[v].type);

            if (bytes < 0 || !wf_add_i64(total, wf_round_up(bytes, 64), &total))
                return wf_err(WEFT_ESHAPE, "'%s': its size overflows",
                              g->nodes[g->values[v].node].name);
            lives[n_lives++] = (struct life){v, first[v], last[v], wf_round_up(bytes, 64), 0};
        }
    p->slab_bytes = place_all(lives, n_lives, by_offset);
    for (int64_t i = 0; i < n_lives; i++)
        p->loc[lives[i].value].offset = lives[i].offset;
    return WEFT_OK;
}
