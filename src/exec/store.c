/* store.c - the flat vectors: parameters, optimizer slots, and other state.
 *
 * Variable number i of the graph is segment i. In the vectors, parameters are ordered by first use
 * and start at multiples of 64 bytes; the gaps between them stay zero under every optimizer. A
 * parameter that is only looked up is a table, with memory of its own, or held by somebody else. */
#include "exec/exec.h"

#define ALIGN_ELEMS 16

/* How the graph uses its variables. */
struct use {
    int64_t first; /* the first node that reads it */
    bool looked_up, otherwise;
};

static bool only_looks_up(const struct wf_node *n, int operand)
{
    return (operand == 0 && (n->op->id == WF_OP_embedding || n->op->id == WF_OP_embedding_bag ||
                             n->op->id == WF_OP_apply_rows)) ||
           (operand == 2 && n->op->id == WF_OP_embedding_grad);
}

static void find_uses(const weft_graph *g, struct use *use)
{
    for (int64_t i = 0; i < g->n_vars; i++)
        use[i].first = g->n_nodes;
    for (int64_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; i < g->nodes[k].n_in; i++) {
            const struct wf_node *n = &g->nodes[k];
            const struct wf_node *var = n->in[i] ? &g->nodes[g->values[n->in[i]].node] : NULL;
            struct use *u;

            if (!var || var->op->id != WF_OP_variable || var->var < 0 || var->var >= g->n_vars)
                continue;
            u = &use[var->var];
            u->first = wf_min_i64(u->first, k);
            *(only_looks_up(n, i) ? &u->looked_up : &u->otherwise) = true;
        }
}

/* The parameters' numbers and offsets, by first use; those that nothing uses come last. */
static void number_params(struct wf_store *s, const struct use *use)
{
    for (int64_t i = 0; i < s->n_seg; i++)
        if (s->seg[i].flat) {
            int32_t at = s->n_flat++;

            for (; at > 0 && use[s->by_number[at - 1]].first > use[i].first; at--)
                s->by_number[at] = s->by_number[at - 1];
            s->by_number[at] = (int32_t)i;
        }
    for (int32_t k = 0; k < s->n_flat; k++) {
        struct wf_segment *seg = &s->seg[s->by_number[k]];

        seg->number = k;
        seg->offset = seg->table ? -1 : s->n_params;
        s->n_params += seg->table ? 0 : wf_round_up(seg->count, ALIGN_ELEMS);
    }
}

static weft_status layout(struct wf_store *s, const weft_graph *g, const struct use *use)
{
    int64_t total = 0; /* bytes of all: no sum below can overflow */

    for (int64_t i = 0; i < g->n_vars; i++) {
        struct wf_segment *seg = &s->seg[i];
        const struct wf_node *n = wf_val_node(g, (weft_val){g->vars[i]});
        int64_t bytes, other;
        weft_status st;

        seg->type = g->values[g->vars[i]].type;
        seg->node = n;
        seg->name = n->name;
        seg->count = wf_type_count(&seg->type);
        seg->flat = wf_node_int(n, "trainable") && seg->type.dtype == WEFT_F32;
        seg->table = seg->flat && seg->type.rank == 2 && use[i].looked_up && !use[i].otherwise;
        seg->remote = seg->table && s->remote.holds && s->remote.holds(s->remote.arg, seg->name);
        bytes = wf_type_bytes(&seg->type);
        if (bytes < 0 || !wf_add_i64(total, wf_round_up(bytes, 64), &total))
            return wf_err(WEFT_ESHAPE, "variable '%s': its size overflows", n->name);
        if (!seg->flat) {
            seg->offset = s->n_state;
            s->n_state += wf_round_up(bytes, 64);
        }
        if (wf_map_get(&s->by_name, seg->name, &other)) /* the first of a name */
            continue;
        st = wf_map_put(&s->by_name, seg->name, i);
        if (st)
            return st;
    }
    s->n_seg = g->n_vars;
    number_params(s, use);
    return WEFT_OK;
}

static weft_status alloc_values(struct wf_store *s)
{
    s->params = wf_alloc_n(s->ctx, s->n_params + 1, sizeof *s->params);
    s->state = wf_alloc(s->ctx, (size_t)s->n_state + 1);
    for (int64_t i = 0; i < s->n_seg; i++)
        if (s->seg[i].table && !s->seg[i].remote) {
            size_t bytes = (size_t)(s->seg[i].count + 1) * sizeof(float);

            s->seg[i].data = wf_alloc_raw(s->ctx, bytes);
            if (!s->seg[i].data)
                return wf_err_wrap(wf_err_nomem(s->ctx, bytes, "a table"), "variable '%s'",
                                   s->seg[i].name);
        }
    return s->params && s->state
               ? WEFT_OK
               : wf_err_nomem(s->ctx, (size_t)s->n_params * sizeof *s->params, "variables");
}

weft_status wf_store_new(const weft_graph *g, const struct wf_remote *remote, struct wf_device *dev,
                         struct wf_store **out)
{
    weft_ctx *ctx = g->ctx;
    struct wf_store *s = wf_alloc(ctx, sizeof *s);
    int32_t *roots = wf_alloc_n(ctx, g->n_vars + 1, sizeof *roots);
    struct use *use = wf_alloc_n(ctx, g->n_vars + 1, sizeof *use);
    weft_status st;

    if (s) {
        s->ctx = ctx;
        s->n_refs = 1;
        if (remote)
            s->remote = *remote;
        wf_map_init(&s->by_name, ctx);
    }
    if (!s || !roots || !use) {
        st = wf_err_nomem(ctx, sizeof *s, "variables");
        goto out;
    }
    find_uses(g, use);
    if (g->n_vars)
        memcpy(roots, g->vars, (size_t)g->n_vars * sizeof *roots);
    st = wf_pass_copy(g, (int)g->n_vars, roots, &s->graph);
    if (st)
        goto out;
    s->seg = wf_alloc_n(ctx, g->n_vars + 1, sizeof *s->seg);
    s->by_number = wf_alloc_n(ctx, g->n_vars + 1, sizeof *s->by_number);
    if (!s->seg || !s->by_number) {
        st = wf_err_nomem(ctx, (size_t)g->n_vars * sizeof *s->seg, "variables");
        goto out;
    }
    st = layout(s, s->graph, use);
    if (!st)
        st = alloc_values(s);
    if (!st && dev)
        st = wf_home_new(s, dev);
    if (!st)
        st = wf_store_reset(s);
    if (st)
        goto out;
    *out = s;
    s = NULL;
out:
    wf_free(ctx, roots);
    wf_free(ctx, use);
    wf_store_free(s);
    return st;
}

struct wf_store *wf_store_ref(struct wf_store *s)
{
    s->n_refs++;
    return s;
}

void wf_store_free(struct wf_store *s)
{
    if (!s || --s->n_refs > 0)
        return;
    wf_home_free(s);
    wf_map_free(&s->by_name);
    weft_graph_free(s->graph);
    for (int64_t i = 0; s->seg && i < s->n_seg; i++) {
        wf_free(s->ctx, s->seg[i].data);
        wf_free(s->ctx, s->seg[i].seen);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            wf_free(s->ctx, s->seg[i].slot[k]);
    }
    wf_free(s->ctx, s->seg);
    wf_free(s->ctx, s->by_number);
    wf_free(s->ctx, s->params);
    wf_free(s->ctx, s->state);
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        wf_free(s->ctx, s->slot[k]);
    wf_free(s->ctx, s);
}

static void fill_slot(struct wf_store *s, const struct wf_segment *seg, int k)
{
    float *slot = seg->table ? seg->slot[k] : s->slot[k] + seg->offset;

    for (int64_t i = 0; i < seg->count; i++)
        slot[i] = seg->slot_init[k];
}

float *wf_store_slot(const struct wf_store *s, const struct wf_segment *seg, int k)
{
    if (!seg->flat || seg->remote || k < 0 || k >= seg->n_slots)
        return NULL;
    return seg->table ? seg->slot[k] : s->slot[k] + seg->offset;
}

weft_status wf_store_reset(struct wf_store *s)
{
    wf_store_touch(s, WF_PART_ALL);
    for (int64_t i = 0; i < s->n_seg; i++) {
        weft_status st;

        if (s->seg[i].remote)
            continue;
        st =
            wf_init_variable(s->ctx, s->seg[i].node, &s->seg[i].type, wf_store_data(s, &s->seg[i]));
        if (st)
            return wf_err_wrap(st, "variable '%s'", s->seg[i].name);
        for (int k = 0; k < s->seg[i].n_slots; k++)
            fill_slot(s, &s->seg[i], k);
        if (s->seg[i].seen)
            memset(s->seg[i].seen, 0, (size_t)s->seg[i].type.dim[0] * sizeof *s->seg[i].seen);
    }
    s->step = 0;
    return WEFT_OK;
}

int64_t wf_store_bytes(const struct wf_store *s)
{
    int64_t n = s->n_params;

    for (int64_t i = 0; i < s->n_seg; i++)
        n += s->seg[i].table ? s->seg[i].count : 0;
    return n * (int64_t)sizeof(float);
}

struct wf_segment *wf_store_find(const struct wf_store *s, const char *name)
{
    int64_t i;

    return wf_map_get(&s->by_name, name, &i) ? &s->seg[i] : NULL;
}

struct wf_segment *wf_store_segment(const struct wf_store *s, const struct wf_node *n)
{
    return n->var >= 0 && n->var < s->n_seg ? &s->seg[n->var] : NULL;
}

void *wf_store_data(const struct wf_store *s, const struct wf_segment *seg)
{
    if (seg->table)
        return seg->data;
    return seg->flat ? (void *)(s->params + seg->offset) : (void *)(s->state + seg->offset);
}

weft_status wf_store_slots(struct wf_store *s, struct wf_segment *seg, int n, const float *init)
{
    weft_status st = seg->n_slots < n ? wf_store_pull(s, WF_PART_SLOTS) : WEFT_OK;

    for (int k = seg->n_slots; k < n && !st; k++) {
        float **slot = seg->table ? &seg->slot[k] : &s->slot[k];
        int64_t count = seg->table ? seg->count : s->n_params;

        if (!*slot && !seg->remote)
            *slot = wf_alloc_n(s->ctx, count + 1, sizeof **slot);
        if (!*slot && !seg->remote)
            return wf_err_nomem(s->ctx, (size_t)count * sizeof **slot, "optimizer slots");
        if (s->home)
            st = wf_home_slot_new(s, seg, k);
        if (st)
            return st;
        seg->slot_init[k] = init[k];
        seg->n_slots = k + 1;
        wf_store_touch(s, WF_PART_SLOTS);
        if (!seg->remote)
            fill_slot(s, seg, k);
    }
    return st;
}
