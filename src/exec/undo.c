/* undo.c - a step that fails changes nothing.
 *
 * Updates run after everything that may fail (order.c), so most plans have nothing to undo. What is
 * overwritten before an instruction that may still fail (a fallible op reads the new value; every
 * op may fail while numerics are trapped) is copied first and restored. Snapshots do the same for
 * steps of several runs. */
#include "exec/exec.h"

/* Bytes of a store that an update writes. */
struct wf_range {
    enum wf_place place; /* WF_PARAM, WF_TABLE or WF_STATE */
    int slot;            /* of a parameter's optimizer state; -1: the variable itself */
    int32_t segment;     /* of a parameter: its number */
    int64_t offset, bytes;
    int64_t at; /* of their copy */
};

/* In the memory that the base is in: `home` is that of the store's device. */
static char *range_data(const struct wf_store *s, const struct wf_base *b, const struct wf_range *r,
                        bool home)
{
    const struct wf_segment *seg;

    if (r->place == WF_STATE)
        return b->state + r->offset;
    if (r->place == WF_PARAM && r->slot < 0)
        return (char *)b->params + r->offset;
    seg = &s->seg[s->by_number[r->segment]];
    if (home)
        return r->slot < 0 ? seg->home : wf_home_slot(s, seg, r->slot);
    return r->slot < 0 ? (char *)seg->data : (char *)wf_store_slot(s, seg, r->slot);
}

static void save(const struct wf_store *s, const struct wf_base *b, const struct wf_range *r,
                 char *copy)
{
    memcpy(copy + r->at, range_data(s, b, r, false), (size_t)r->bytes);
}

static void restore(const struct wf_store *s, const struct wf_base *b, const struct wf_range *r,
                    const char *copy)
{
    memcpy(range_data(s, b, r, false), copy + r->at, (size_t)r->bytes);
}

/* ---- one run --------------------------------------------------------------------------------- */

static bool writes(const struct wf_plan *p, const struct wf_instr *in)
{
    return p->graph->nodes[in->node].op->flags & WF_STATE_IN0;
}

static weft_status find_fails(struct wf_plan *p, bool all_fail)
{
    int32_t *order = wf_arena_alloc(&p->arena, (size_t)(p->n_instr + 1) * sizeof *order);
    bool *fails = wf_arena_alloc(&p->arena, (size_t)p->graph->n_nodes + 1);
    weft_status st;

    if (!order || !fails)
        return wf_err_nomem(p->ctx, (size_t)p->n_instr * sizeof *order, "plan");
    for (int64_t i = 0; i < p->n_instr; i++)
        order[i] = p->instr[i].node;
    st = wf_find_fails(p->graph, p->n_instr, order, fails);
    for (int64_t i = 0; i < p->n_instr && !st; i++)
        p->instr[i].fails = all_fail || fails[p->instr[i].node];
    return st;
}

static void add_range(struct wf_plan *p, struct wf_instr *in, struct wf_loc l, int slot,
                      int64_t bytes)
{
    p->undo[in->first_undo + in->n_undo++] =
        (struct wf_range){l.place, slot, l.segment, l.offset, bytes, p->undo_bytes};
    p->undo_bytes += wf_round_up(bytes, 64);
}

/* The variable that an instruction updates, and its slots. */
static void add_ranges(struct wf_plan *p, struct wf_instr *in, int first)
{
    const struct wf_node *n = &p->graph->nodes[in->node];
    struct wf_loc l = p->loc[p->root[n->in[0]]];
    int64_t bytes = wf_type_bytes(&p->graph->values[n->in[0]].type);

    in->first_undo = first;
    add_range(p, in, l, -1, bytes);
    for (int k = 0; in->is_update && k < WF_OPTIM_MAX_SLOTS; k++)
        if (in->call.in[n->op->n_in_max + k].type.dtype != WEFT_NONE)
            add_range(p, in, l, k, bytes);
}

weft_status wf_plan_undo(struct wf_plan *p, bool all_fail)
{
    int64_t last_fail = -1, n = 0;
    weft_status st = find_fails(p, all_fail);

    if (st)
        return st;
    for (int64_t i = 0; i < p->n_instr; i++)
        if (p->instr[i].fails)
            last_fail = i;
    /* A kernel that may refuse its data does so before it writes; trapped numerics are detected
     * afterwards. */
    if (all_fail)
        last_fail = p->n_instr;
    for (int64_t i = 0; i < last_fail; i++)
        n += writes(p, &p->instr[i]);
    p->undo =
        wf_arena_alloc(&p->arena, sizeof *p->undo * (size_t)(n * (1 + WF_OPTIM_MAX_SLOTS) + 1));
    if (!p->undo)
        return wf_err_nomem(p->ctx, sizeof *p->undo * (size_t)n, "plan");
    n = 0;
    for (int64_t i = 0; i < last_fail; i++)
        if (writes(p, &p->instr[i])) {
            add_ranges(p, &p->instr[i], (int)n);
            n += p->instr[i].n_undo;
        }
    return WEFT_OK;
}

/* Functions on a device copy within its memory, in the order of its stream. */
static weft_status copy_away(const weft_fn *fn, const struct wf_plan *p, const struct wf_range *r,
                             bool back)
{
    char *data = range_data(fn->store, &fn->base, r, true), *copy = fn->slab + p->undo_at + r->at;

    return wf_away_copy(fn, back ? data : copy, back ? copy : data, r->bytes);
}

weft_status wf_undo_save(const weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in)
{
    weft_status st = WEFT_OK;

    for (int u = 0; u < in->n_undo && !st; u++) {
        const struct wf_range *r = &p->undo[in->first_undo + u];

        if (p->dev)
            st = copy_away(fn, p, r, false);
        else
            save(fn->store, &fn->base, r, fn->slab + p->undo_at);
    }
    return st;
}

weft_status wf_undo_restore(const weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in)
{
    weft_status st = WEFT_OK;

    for (int u = in->n_undo - 1; u >= 0 && !st; u--) {
        const struct wf_range *r = &p->undo[in->first_undo + u];

        if (p->dev)
            st = copy_away(fn, p, r, true);
        else
            restore(fn->store, &fn->base, r, fn->slab + p->undo_at);
    }
    return st;
}

/* ---- several runs ---------------------------------------------------------------------------- */

struct wf_snapshot {
    struct wf_store *store;
    struct wf_range *range;
    bool *noted; /* per segment, the variable itself and each slot: it has a range */
    int64_t n, bytes, step;
    unsigned parts; /* of the store that the ranges are in */
    char *copy;
};

static void note_segment(struct wf_snapshot *s, const struct wf_segment *seg, int slot)
{
    enum wf_place place = seg->table ? WF_TABLE : seg->flat ? WF_PARAM : WF_STATE;
    int64_t offset = seg->flat ? seg->offset * (int64_t)sizeof(float) : seg->offset;

    bool *noted = &s->noted[(seg - s->store->seg) * (1 + WF_OPTIM_MAX_SLOTS) + 1 + slot];

    if (*noted)
        return;
    *noted = true;
    s->parts |= slot < 0 ? wf_segment_part(seg) : WF_PART_SLOTS;
    s->range[s->n++] =
        (struct wf_range){place, slot, seg->number, offset, wf_type_bytes(&seg->type), s->bytes};
    s->bytes += wf_round_up(wf_type_bytes(&seg->type), 64);
}

/* What the updates of fn write: everything, or without `params` only what optimizers do not. */
static void note_writes(struct wf_snapshot *s, const weft_fn *fn, bool params)
{
    const weft_graph *g = fn->graph;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        const struct wf_segment *seg;

        if (!(n->op->flags & WF_STATE_IN0) || (wf_is_update(n) && !params))
            continue;
        seg = wf_store_segment(fn->store, &g->nodes[g->values[wf_value_updated(g, n)].node]);
        for (int slot = -1; seg && slot < (wf_is_update(n) ? seg->n_slots : 0); slot++)
            if (!seg->remote)
                note_segment(s, seg, slot);
    }
}

static int64_t count_writes(const weft_fn *fn)
{
    int64_t n = 0;

    for (int64_t k = 0; k < fn->graph->n_nodes; k++)
        n += (fn->graph->nodes[k].op->flags & WF_STATE_IN0) != 0;
    return n;
}

weft_status wf_snapshot_new(int n_fns, weft_fn *const *fns, bool params, struct wf_snapshot **out)
{
    weft_ctx *ctx = fns[0]->ctx;
    struct wf_snapshot *s = wf_alloc(ctx, sizeof *s);
    int64_t n = 0;
    weft_status st = WEFT_OK;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "snapshot");
    s->store = wf_store_ref(fns[0]->store);
    for (int i = 0; i < n_fns && !st; i++) {
        n += count_writes(fns[i]);
        st = params ? wf_fn_slots(fns[i]) : WEFT_OK;
    }
    if (!st) {
        s->range = wf_alloc_n(ctx, n * (1 + WF_OPTIM_MAX_SLOTS) + 1, sizeof *s->range);
        s->noted =
            wf_alloc_n(ctx, s->store->n_seg * (1 + WF_OPTIM_MAX_SLOTS) + 1, sizeof *s->noted);
        st = s->range && s->noted ? WEFT_OK : wf_err_nomem(ctx, sizeof *s->range, "snapshot");
    }
    for (int i = 0; i < n_fns && !st; i++)
        note_writes(s, fns[i], params);
    if (!st) {
        s->copy = wf_alloc(ctx, (size_t)s->bytes + 1);
        st = s->copy ? WEFT_OK : wf_err_nomem(ctx, (size_t)s->bytes, "snapshot");
    }
    if (st) {
        wf_snapshot_free(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

static struct wf_base own_base(const struct wf_store *s)
{
    return (struct wf_base){.params = s->params, .state = s->state};
}

void wf_snapshot_save(struct wf_snapshot *s)
{
    struct wf_base base = own_base(s->store);

    wf_store_pull(s->store, s->parts);
    for (int64_t i = 0; i < s->n; i++)
        save(s->store, &base, &s->range[i], s->copy);
    s->step = s->store->step;
}

void wf_snapshot_restore(const struct wf_snapshot *s)
{
    struct wf_base base = own_base(s->store);

    wf_store_pull(s->store, s->parts);
    wf_store_touch(s->store, s->parts);
    for (int64_t i = 0; i < s->n; i++)
        restore(s->store, &base, &s->range[i], s->copy);
    s->store->step = s->step;
}

void wf_snapshot_load(const struct wf_snapshot *s, int64_t offset)
{
    struct wf_base base = own_base(s->store);

    wf_store_pull(s->store, WF_PART_STATE);
    wf_store_touch(s->store, WF_PART_STATE);
    for (int64_t i = 0; i < s->n; i++)
        if (s->range[i].place == WF_STATE && s->range[i].offset == offset)
            restore(s->store, &base, &s->range[i], s->copy);
}

void wf_snapshot_free(struct wf_snapshot *s)
{
    weft_ctx *ctx;

    if (!s)
        return;
    ctx = s->store->ctx;
    wf_free(ctx, s->range);
    wf_free(ctx, s->noted);
    wf_free(ctx, s->copy);
    wf_store_free(s->store);
    wf_free(ctx, s);
}
