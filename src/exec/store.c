/* store.c - the flat vectors: parameters, gradients, optimizer slots, and other state.
 *
 * Segments are in the order the graph's variables were built: variable number i is segment i. They
 * start at multiples of 64 bytes. The gaps between them stay zero under every optimizer. */
#include "exec/exec.h"

#define ALIGN_ELEMS 16

static weft_status layout(struct wf_store *s, const weft_graph *g)
{
    int32_t n_flat = 0;
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
        bytes = wf_type_bytes(&seg->type);
        if (bytes < 0 || !wf_add_i64(total, wf_round_up(bytes, 64), &total))
            return wf_err(WEFT_ESHAPE, "variable '%s': its size overflows", n->name);
        if (seg->flat) {
            seg->number = n_flat++;
            seg->offset = s->n_params;
            s->n_params += wf_round_up(seg->count, ALIGN_ELEMS);
        } else {
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
    return WEFT_OK;
}

weft_status wf_store_new(const weft_graph *g, struct wf_store **out)
{
    weft_ctx *ctx = g->ctx;
    struct wf_store *s = wf_alloc(ctx, sizeof *s);
    int32_t *roots = wf_alloc_n(ctx, g->n_vars + 1, sizeof *roots);
    weft_status st;

    if (s) {
        s->ctx = ctx;
        s->n_refs = 1;
        wf_map_init(&s->by_name, ctx);
    }
    if (!s || !roots) {
        st = wf_err_nomem(ctx, sizeof *s, "variables");
        goto out;
    }
    if (g->n_vars)
        memcpy(roots, g->vars, (size_t)g->n_vars * sizeof *roots);
    st = wf_pass_copy(g, (int)g->n_vars, roots, &s->graph);
    if (st)
        goto out;
    s->seg = wf_alloc_n(ctx, g->n_vars + 1, sizeof *s->seg);
    if (!s->seg) {
        st = wf_err_nomem(ctx, (size_t)g->n_vars * sizeof *s->seg, "variables");
        goto out;
    }
    st = layout(s, s->graph);
    if (st)
        goto out;
    s->params = wf_alloc_n(ctx, s->n_params + 1, sizeof *s->params);
    s->state = wf_alloc(ctx, (size_t)s->n_state + 1);
    if (!s->params || !s->state) {
        st = wf_err_nomem(ctx, (size_t)s->n_params * sizeof *s->params, "variables");
        goto out;
    }
    st = wf_store_reset(s);
    if (st)
        goto out;
    *out = s;
    s = NULL;
out:
    wf_free(ctx, roots);
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
    wf_map_free(&s->by_name);
    weft_graph_free(s->graph);
    wf_free(s->ctx, s->seg);
    wf_free(s->ctx, s->params);
    wf_free(s->ctx, s->grads);
    wf_free(s->ctx, s->state);
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        wf_free(s->ctx, s->slot[k]);
    wf_free(s->ctx, s);
}

static void fill_slot(struct wf_store *s, const struct wf_segment *seg, int k)
{
    for (int64_t i = 0; i < seg->count; i++)
        s->slot[k][seg->offset + i] = seg->slot_init[k];
}

weft_status wf_store_reset(struct wf_store *s)
{
    for (int64_t i = 0; i < s->n_seg; i++) {
        weft_status st =
            wf_init_variable(s->ctx, s->seg[i].node, &s->seg[i].type, wf_store_data(s, &s->seg[i]));

        if (st)
            return wf_err_wrap(st, "variable '%s'", s->seg[i].name);
        for (int k = 0; k < s->seg[i].n_slots; k++)
            fill_slot(s, &s->seg[i], k);
    }
    s->step = 0;
    return WEFT_OK;
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
    return seg->flat ? (void *)(s->params + seg->offset) : (void *)(s->state + seg->offset);
}

weft_status wf_store_slots(struct wf_store *s, struct wf_segment *seg, int n, const float *init)
{
    for (int k = seg->n_slots; k < n; k++) {
        if (!s->slot[k])
            s->slot[k] = wf_alloc_n(s->ctx, s->n_params + 1, sizeof *s->slot[k]);
        if (!s->slot[k])
            return wf_err_nomem(s->ctx, (size_t)s->n_params * sizeof(float), "optimizer slots");
        seg->slot_init[k] = init[k];
        seg->n_slots = k + 1;
        fill_slot(s, seg, k);
    }
    return WEFT_OK;
}

weft_status wf_store_grads(struct wf_store *s)
{
    if (s->grads)
        return WEFT_OK;
    s->grads = wf_alloc_n(s->ctx, s->n_params + 1, sizeof *s->grads);
    return s->grads ? WEFT_OK
                    : wf_err_nomem(s->ctx, (size_t)s->n_params * sizeof(float), "gradient vector");
}
