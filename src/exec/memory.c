/* memory.c - where every value of a plan lies.
 *
 * Constants and feeds where they are, variables in the store, the rest in one slab, where two
 * values share bytes when they are never alive together. A function on a device with memory of its
 * own has a second slab, for values in the host's memory. Everything is decided before the first
 * run. */
#include "exec/exec.h"

static int32_t root_of(const struct wf_plan *p, int32_t v)
{
    while (p->root[v] != v)
        v = p->root[v];
    return v;
}

/* May the output of node n live where its input i does? Only if nothing reads that memory
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
         k++) /* another operand over the same bytes would be read after being overwritten */
        if (k != i && n->in[k] && root_of(p, n->in[k]) == r && n->in[k] != in)
            return false;
    return true;
}

/* Where leaves are, and which values share memory by being views. */
static weft_status place_leaves(struct wf_plan *p, weft_fn *fn)
{
    const weft_graph *g = p->graph;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        struct wf_loc *l = &p->loc[n->first_out];

        if (n->op->id == WF_OP_constant) {
            *l = (struct wf_loc){WF_CONST, 0, n->data, -1, 0};
        } else if (n->op->id == WF_OP_variable) {
            const struct wf_segment *seg = wf_store_segment(fn->store, n);

            if (!seg)
                return wf_err(WEFT_EBUG, "variable '%s' has no number", n->name);
            if (seg->table)
                *l = (struct wf_loc){WF_TABLE, 0, NULL, seg->number, 0};
            else if (seg->flat)
                *l = (struct wf_loc){WF_PARAM, seg->offset * (int64_t)sizeof(float), NULL,
                                     seg->number, 0};
            else
                *l = (struct wf_loc){WF_STATE, seg->offset, NULL, -1, 0};
        } else if (n->feed >= 0) {
            *l = (struct wf_loc){WF_FEED, n->feed, NULL, -1, 0};
        } else if (n->op->id == WF_OP_transfer && !wf_node_int(n, "host") &&
                   wf_val_node(g, (weft_val){n->in[0]})->op->id == WF_OP_constant) {
            *l = (struct wf_loc){WF_COPIED, p->const_bytes, NULL, -1, 0};
            p->const_bytes += wf_round_up(wf_type_bytes(&g->values[n->in[0]].type), 64);
        } else if ((n->op->flags & (WF_VIEW | WF_STATE_IN0)) && n->in[0]) {
            p->root[n->first_out] = root_of(p, n->in[0]);
        }
    }
    return WEFT_OK;
}

/* A gradient of opts.gradients lives at its variable's offset; wf_pass_own has given each a value
 * of its own. */
static weft_status place_gradients(struct wf_plan *p, const weft_fn *fn)
{
    const int32_t *grad = p->roots + fn->n_fetches + fn->n_updates;

    for (int i = 0; i < fn->n_gradients; i++) {
        const struct wf_grad_out *o = &fn->grad_out[i];
        const struct wf_segment *seg = &fn->store->seg[fn->store->by_number[o->segment]];
        int32_t r = root_of(p, grad[i]);

        if (p->loc[r].place != WF_NOWHERE)
            return wf_err(WEFT_EBUG, "the gradient of '%s' is not a value of its own", seg->name);
        p->loc[r] = (struct wf_loc){WF_GRAD, seg->offset * (int64_t)sizeof(float), NULL, o->segment,
                                    o->group};
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
    /* Feeds in a device's memory stay for the next run (weft_fn_repeat). */
    for (int64_t at = 0; at < n; at++) {
        const struct wf_node *k = &g->nodes[order[at]];

        if (k->op->id == WF_OP_transfer && !wf_node_int(k, "host") &&
            p->loc[p->root[k->in[0]]].place == WF_FEED) {
            first[k->first_out] = 0;
            last[k->first_out] = n;
        }
    }
}

/* Let outputs take over the memory of operands that die with the instruction. */
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

/* Offsets of the values in one of the slabs; *end: its bytes. */
static weft_status place_slab(struct wf_plan *p, enum wf_place place, const int64_t *first,
                              const int64_t *last, struct wf_lifetime *lives, int64_t *end)
{
    const weft_graph *g = p->graph;
    int64_t n_lives = 0, total = 0;
    weft_status st;

    for (int32_t v = 1; v < g->n_values; v++)
        if (p->root[v] == v && p->loc[v].place == place && first[v] >= 0) {
            int64_t bytes = wf_type_bytes(&g->values[v].type);

            if (bytes < 0 || !wf_add_i64(total, wf_round_up(bytes, 64), &total))
                return wf_err(WEFT_ESHAPE, "'%s': its size overflows",
                              g->nodes[g->values[v].node].name);
            lives[n_lives++] = (struct wf_lifetime){
                .value = v, .first = first[v], .last = last[v], .bytes = wf_round_up(bytes, 64)};
        }
    st = wf_place(p->ctx, lives, n_lives, end);
    for (int64_t i = 0; i < n_lives && !st; i++)
        p->loc[lives[i].value].offset = lives[i].offset;
    return st;
}

weft_status wf_plan_memory(struct wf_plan *p, weft_fn *fn, const int32_t *order, int64_t n)
{
    const weft_graph *g = p->graph;
    int64_t *first = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *first);
    int64_t *last = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *last);
    struct wf_lifetime *lives = wf_arena_alloc(&p->arena, (size_t)g->n_values * sizeof *lives);
    weft_status st;

    if (!first || !last || !lives)
        return wf_err_nomem(p->ctx, (size_t)g->n_values * sizeof *lives, "plan");
    st = place_leaves(p, fn);
    if (st)
        return st;
    st = place_gradients(p, fn);
    if (st)
        return st;
    for (int32_t v = 1; v < g->n_values; v++)
        if (p->root[v] == v && p->loc[v].place == WF_NOWHERE)
            p->loc[v].place = p->on_host && p->on_host[v] ? WF_HOST : WF_SLAB;
    find_lives(p, order, n, first, last, fn->n_fetches + fn->n_updates + fn->n_gradients);
    share_in_place(p, order, n, first, last);
    st = place_slab(p, WF_SLAB, first, last, lives, &p->slab_bytes);
    if (!st && p->dev)
        st = place_slab(p, WF_HOST, first, last, lives, &p->host_bytes);
    return st;
}
