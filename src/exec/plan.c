/* plan.c - from a graph and feed shapes to an instruction array.
 *
 * Everything is decided here: types, passes, order, memory, kernels, scratch. The choices depend
 * only on the graph, the shapes and the SIMD level; the plan has a fingerprint of the chosen
 * kernels, their types, and the context's settings that affect results. */
#include "exec/exec.h"

/* ---- passes ---------------------------------------------------------------------------------- */

/* Computes a node of constants with the reference kernel. */
static weft_status eval_ref(void *arg, const struct wf_node *n, const struct wf_tensor *in,
                            struct wf_tensor *out)
{
    weft_ctx *ctx = arg;
    struct wf_call c = {.ctx = ctx,
                        .op = n->op,
                        .attr = n->attr,
                        .n_in = n->n_in,
                        .n_out = n->n_out,
                        .in = in,
                        .out = out};

    return wf_kernel_ref(n->op)->run(&c);
}

/* One pass: replaces *g. */
static weft_status next_graph(weft_graph **g, weft_status st, weft_graph *to)
{
    if (st)
        return st;
    weft_graph_free(*g);
    *g = to;
    return WEFT_OK;
}

/* What a device's kernels do besides the work of their op. */
static weft_status take_passes(struct wf_plan *p, const struct wf_fusing *can, int n_roots)
{
    weft_graph *to = NULL;
    weft_status st = WEFT_OK;

    if (!(p->without & WF_WITHOUT_MIXED)) {
        st = wf_pass_mixed(p->graph, can, n_roots, p->roots, &to);
        st = next_graph(&p->graph, st, to);
    }
    if (!st && !(p->without & WF_WITHOUT_NORMS)) {
        st = wf_pass_norms(p->graph, can, n_roots, p->roots, &to);
        st = next_graph(&p->graph, st, to);
    }
    return st;
}

/* The same for the neighbors of products and programs. */
static weft_status late_passes(struct wf_plan *p, const struct wf_fusing *can, int n_roots)
{
    weft_graph *to = NULL;
    weft_status st = WEFT_OK;

    if (!(p->without & WF_WITHOUT_RESIDUALS)) {
        st = wf_pass_residuals(p->graph, can, n_roots, p->roots, &to);
        st = next_graph(&p->graph, st, to);
    }
    return st;
}

static weft_status uncross(struct wf_plan *p, int n_roots)
{
    weft_graph *to = NULL;
    weft_status st = wf_pass_uncross(p->graph, n_roots, p->roots, &to);

    return to ? next_graph(&p->graph, st, to) : st;
}

static weft_status run_passes(struct wf_plan *p, weft_fn *fn, int n_roots)
{
    static const struct wf_fusing cpu = {wf_kernel_can_step, wf_kernel_can_anchor, NULL};
    struct wf_fusing can = cpu;
    unsigned mask = WF_PASS_ALL & ~fn->opts.passes_off;
    bool join = true, updates = true;
    weft_graph *to = NULL;
    weft_status st = wf_pass_resolve(fn->graph, fn->n_feeds, fn->feeds, p->feed_types, n_roots,
                                     p->roots, &p->graph);

    if (st)
        return st;
    if (p->dev) {
        can =
            (struct wf_fusing){p->dev->ops.can_step, p->dev->ops.can_anchor, p->dev->ops.can_take};
        join = p->dev->info.joins;
        updates = !p->dev->info.groups_updates;
        mask &= can.step ? ~0u : ~(unsigned)WF_PASS_FUSE;
    }
    st = wf_pass_simplify(p->graph, mask, eval_ref, p->ctx, n_roots, p->roots, &to);
    st = next_graph(&p->graph, st, to);
    if (!st)
        st = uncross(p, n_roots);
    if (!st && join && (mask & WF_PASS_FUSE) && !fn->opts.reference_kernels) {
        st = wf_pass_join(p->graph, updates, fn->opts.trap_numerics, n_roots, p->roots, &to);
        st = next_graph(&p->graph, st, to);
    }
    if (!st && can.take && (mask & WF_PASS_FUSE) && !fn->opts.reference_kernels)
        st = take_passes(p, &can, n_roots);
    if (!st && (mask & WF_PASS_FUSE) && !fn->opts.reference_kernels) {
        st = wf_pass_fuse(p->graph, &can, n_roots, p->roots, &to);
        st = next_graph(&p->graph, st, to);
    }
    if (!st && can.take && (mask & WF_PASS_FUSE) && !fn->opts.reference_kernels)
        st = late_passes(p, &can, n_roots);
    /* What was joined with a node that comes after an update comes after it, too. */
    if (!st)
        st = uncross(p, n_roots);
    if (!st && fn->n_gradients) {
        st = wf_pass_own(p->graph, n_roots, p->roots, n_roots - fn->n_gradients, &to);
        st = next_graph(&p->graph, st, to);
    }
    if (!st && p->dev)
        st = wf_plan_spaces(p, fn, n_roots);
    return st;
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* How many slots an update keeps, and their initial values. */
static int kept_slots(const struct wf_node *n, float init[WF_OPTIM_MAX_SLOTS])
{
    const struct wf_optim_row *row = wf_optim_find(wf_attr_str(n->op, n->attr, "optimizer"));

    return wf_optim_slots(row, wf_attr(n->op, n->attr, "params")->floats, NULL, init);
}

/* The variable's slots follow the operands, absent where the optimizer keeps fewer. */
static void add_slots(const struct wf_node *n, struct wf_type *in)
{
    float init[WF_OPTIM_MAX_SLOTS];
    int kept = kept_slots(n, init);

    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        in[n->op->n_in_max + k] = k < kept ? in[0] : (struct wf_type){.dtype = WEFT_NONE};
}

bool wf_is_update(const struct wf_node *n)
{
    return n->op->flags & WF_OPTIMIZER;
}

/* Operands of the call: the node's, or for an update its fixed positions and the slots. */
int wf_n_operands(const struct wf_node *n)
{
    return wf_is_update(n) ? n->op->n_in_max + WF_OPTIM_MAX_SLOTS : n->n_in;
}

static uint64_t hash_type(const struct wf_type *t, uint64_t h)
{
    return wf_hash64(t->dim, sizeof *t->dim * (size_t)t->rank,
                     h ^ ((uint64_t)t->dtype << 8 | (uint64_t)t->rank));
}

weft_status wf_plan_choose(struct wf_plan *p, const struct wf_node *n, bool on_host, int n_threads,
                           bool ref_only, struct wf_choice *c)
{
    static const struct wf_kernel transfer = {WF_OP_transfer, "copy", NULL, wf_run_transfer};
    const weft_graph *g = p->graph;
    int n_in = wf_n_operands(n);
    struct wf_type *in = wf_arena_alloc(&p->arena, sizeof *in * (size_t)(n_in + n->n_out + 1)), *to;

    if (!in)
        return wf_err_nomem(p->ctx, sizeof *in * (size_t)n_in, "plan");
    to = in + n_in;
    for (int i = 0; i < n->n_in; i++)
        in[i] = g->values[n->in[i]].type;
    for (int i = 0; i < n->n_out; i++)
        to[i] = g->values[n->first_out + i].type;
    if (wf_is_update(n))
        add_slots(n, in);
    *c = (struct wf_choice){.plan = {.ctx = p->ctx,
                                     .arena = &p->arena,
                                     .op = n->op,
                                     .attr = n->attr,
                                     .n_in = n_in,
                                     .n_out = n->n_out,
                                     .in = in,
                                     .out = to,
                                     .n_threads = n_threads,
                                     .tf32 = p->tf32,
                                     .without = p->without}};
    if (p->dev && n->op->id == WF_OP_transfer) {
        c->kernel = &transfer;
        c->plan.impl = transfer.impl;
        c->plan.state = p->dev;
        return WEFT_OK;
    }
    if (on_host)
        return wf_kernel_choose(&c->plan, ref_only, &c->kernel);
    c->plan.device = p->dev->dev;
    return p->dev->ops.choose(p->dev->dev, &c->plan, &c->kernel);
}

/* The kernel of a node, chosen before or now. */
static weft_status find_choice(struct wf_plan *p, const struct wf_node *n, bool on_host,
                               int n_threads, bool ref_only, struct wf_choice *c)
{
    if (!on_host && n->uid >= 0 && n->uid < p->n_choices && p->choice[n->uid]) {
        *c = *p->choice[n->uid];
        return WEFT_OK;
    }
    return wf_plan_choose(p, n, on_host, n_threads, ref_only, c);
}

/* What an instruction needs of the scratch memory and of the step block. Those that may run
 * together (in a row, with the same run_many) each have scratch memory of their own. */
static void note_needs(struct wf_plan *p, const struct wf_kplan *kp, struct wf_instr *in)
{
    int64_t *scratch = p->dev && in->on_host ? &p->host_scratch : &p->scratch_bytes;
    const struct wf_instr *before = p->n_instr > 0 ? in - 1 : NULL;

    if (in->run_many && before && before->run_many == in->run_many)
        in->scratch_at = wf_round_up(before->scratch_at + before->scratch_bytes, 256);
    in->scratch_bytes = (int64_t)kp->scratch_bytes;
    *scratch = wf_max_i64(*scratch, in->scratch_at + in->scratch_bytes);
    in->own_at = -1;
    if (!kp->step_bytes || in->on_host)
        return;
    in->own_at = p->own_bytes;
    in->step_fill = kp->step_fill;
    in->step_bytes = kp->step_bytes;
    p->own_bytes += wf_round_up((int64_t)kp->step_bytes, 16);
}

static weft_status new_instr(struct wf_plan *p, int32_t k, bool ref_only, struct wf_instr *out)
{
    const struct wf_node *n = &p->graph->nodes[k];
    int n_in = wf_n_operands(n);
    struct wf_tensor *tin = wf_arena_alloc(&p->arena, sizeof *tin * (size_t)(n_in + n->n_out + 1)),
                     *tout;
    bool on_host = wf_runs_on_host(p, n) && !(p->dev && n->op->id == WF_OP_transfer);
    struct wf_choice c;
    struct wf_pool *pool;
    int device;
    weft_status st = wf_place_node(p, n, &pool, &device);

    if (!st && !tin)
        st = wf_err_nomem(p->ctx, sizeof *tin * (size_t)n_in, "plan");
    if (!st)
        st = find_choice(p, n, on_host, wf_pool_size(pool), ref_only, &c);
    if (st)
        return wf_err_wrap(st, "'%s' (%s)", n->name, n->op->name);
    tout = tin + n_in;
    for (int i = 0; i < n_in; i++)
        tin[i].type = c.plan.in[i];
    for (int i = 0; i < n->n_out; i++)
        tout[i].type = c.plan.out[i];
    *out = (struct wf_instr){.run = c.kernel->run,
                             .run_many = on_host ? NULL : c.plan.run_many,
                             .name = n->name,
                             .impl = c.plan.impl,
                             .node = k,
                             .device = device,
                             .flop = wf_flop(p->graph, n),
                             .is_update = wf_is_update(n),
                             .on_host = on_host};
    out->call = (struct wf_call){.ctx = p->ctx,
                                 .pool = pool,
                                 .op = n->op,
                                 .attr = n->attr,
                                 .n_in = n_in,
                                 .n_out = n->n_out,
                                 .in = tin,
                                 .out = tout,
                                 .state = c.plan.state,
                                 .overlap = !(p->without & WF_WITHOUT_OVERLAP),
                                 .rng = {.seed = p->ctx->seed, .node = (uint32_t)n->uid}};
    note_needs(p, &c.plan, out);
    p->can_capture &= !on_host && !c.plan.not_captured;
    p->flop += out->flop;
    p->has_random |= (n->op->flags & WF_RANDOM) != 0;
    p->fingerprint =
        wf_hash64(c.plan.impl, strlen(c.plan.impl), p->fingerprint ^ (uint64_t)n->op->id);
    for (int i = 0; i < n_in + n->n_out; i++)
        p->fingerprint = hash_type(&c.plan.in[i], p->fingerprint);
    return WEFT_OK;
}

/* A view that is already in the right place needs no instruction, nor does a constant that is
 * copied once. */
static bool is_free(const struct wf_plan *p, const struct wf_node *n)
{
    return (n->op->flags & WF_VIEW) || p->loc[n->first_out].place == WF_COPIED;
}

/* No output has elements, so there is nothing to compute. Kernels are not made for doing nothing
 * 2^40 times. */
static bool is_empty(const struct wf_plan *p, const struct wf_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (wf_type_count(&p->graph->values[n->first_out + i].type) != 0 ||
            p->loc[p->root[n->first_out + i]].place == WF_GRAD) /* hooks are told about it */
            return false;
    return !(n->op->flags & (WF_EFFECT | WF_STATE_IN0));
}

static weft_status new_instrs(struct wf_plan *p, weft_fn *fn, const int32_t *order, int64_t n)
{
    p->instr = wf_arena_alloc(&p->arena, sizeof *p->instr * (size_t)(n + 1));
    if (!p->instr)
        return wf_err_nomem(p->ctx, sizeof *p->instr * (size_t)n, "plan");
    for (int64_t i = 0; i < n; i++) {
        weft_status st;

        if (is_free(p, &p->graph->nodes[order[i]]) || is_empty(p, &p->graph->nodes[order[i]]))
            continue;
        st = new_instr(p, order[i], fn->opts.reference_kernels, &p->instr[p->n_instr]);
        if (st)
            return st;
        p->n_instr++;
    }
    return WEFT_OK;
}

/* The slots of updated variables; root: the value whose memory a value is in, NULL: each has its
 * own. */
static weft_status ensure_slots(const weft_graph *g, const int32_t *root, struct wf_store *store)
{
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        struct wf_segment *seg;
        float init[WF_OPTIM_MAX_SLOTS];
        weft_status st;

        if (!wf_is_update(n))
            continue;
        seg = wf_store_segment(store, wf_val_node(g, (weft_val){root ? root[n->in[0]] : n->in[0]}));
        if (!seg || !seg->flat)
            return wf_err(WEFT_EINVAL,
                          "'%s': only trainable f32 variables can be updated by an optimizer",
                          n->name);
        st = wf_store_slots(store, seg, kept_slots(n, init), init);
        if (st)
            return st;
    }
    return WEFT_OK;
}

weft_status wf_fn_slots(weft_fn *fn)
{
    return ensure_slots(fn->graph, NULL, fn->store);
}

/* ---- points for hooks ------------------------------------------------------------------------ */

/* For each segment: the first instruction that reads it, and the one that completes its
 * gradient. */
static weft_status find_points(struct wf_plan *p, weft_fn *fn)
{
    int64_t n_seg = fn->store->n_seg, n_need = 0, n_ready = 0;
    bool *seen = wf_arena_alloc(&p->arena, (size_t)n_seg + 1);

    p->needs = wf_arena_alloc(&p->arena, sizeof *p->needs * (size_t)(n_seg + 1));
    p->readies = wf_arena_alloc(&p->arena, sizeof *p->readies * 2 * (size_t)(fn->n_gradients + 1));
    if (!seen || !p->needs || !p->readies)
        return wf_err_nomem(p->ctx, (size_t)n_seg, "plan");
    for (int64_t i = 0; i < p->n_instr; i++) {
        struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];

        in->first_need = (int)n_need;
        in->first_ready = (int)n_ready;
        for (int k = 0; k < n->n_in; k++) {
            struct wf_loc l = n->in[k] ? p->loc[p->root[n->in[k]]] : (struct wf_loc){0};
            int64_t s = l.place == WF_PARAM || l.place == WF_TABLE ? l.segment : -1;

            if (s >= 0 && !seen[s] && !wf_is_update(n)) {
                seen[s] = true;
                p->needs[n_need++] = (int32_t)s;
            }
        }
        for (int k = 0; k < n->n_out; k++) {
            struct wf_loc l = p->loc[p->root[n->first_out + k]];

            if (l.place != WF_GRAD)
                continue;
            p->readies[2 * n_ready] = l.segment;
            p->readies[2 * n_ready++ + 1] = l.group;
        }
        in->n_need = (int)n_need - in->first_need;
        in->n_ready = (int)n_ready - in->first_ready;
    }
    return WEFT_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void flatten_roots(struct wf_plan *p)
{
    for (int32_t v = 0; v < p->graph->n_values; v++)
        while (p->root[p->root[v]] != p->root[v])
            p->root[v] = p->root[p->root[v]];
}

static bool copies_feed(const struct wf_plan *p, const struct wf_node *n)
{
    return n->op->id == WF_OP_transfer && wf_val_node(p->graph, (weft_val){n->in[0]})->feed >= 0;
}

/* A cast of a variable's old value, by a kernel that does many of them. */
static bool casts_variable(const struct wf_plan *p, const struct wf_node *n)
{
    const struct wf_node *from = n->n_in == 1 ? wf_val_node(p->graph, (weft_val){n->in[0]}) : NULL;

    return n->op->id == WF_OP_fused && from && from->op->id == WF_OP_variable && !n->n_ctrl &&
           n->uid >= 0 && n->uid < p->n_choices && p->choice[n->uid] &&
           p->choice[n->uid]->plan.run_many;
}

/* Feeds are copied to the device before everything else. Then a step casts its variables: all that
 * layers compute with, in one piece of work. They are needed until the gradients are done, so that
 * the memory is about the same. */
static weft_status feeds_first(struct wf_plan *p, bool casts, int32_t *order, int64_t n)
{
    int32_t *was = wf_arena_alloc(&p->arena, (size_t)(n + 1) * sizeof *was);
    int64_t at = 0;

    if (!was)
        return wf_err_nomem(p->ctx, (size_t)n * sizeof *was, "plan");
    memcpy(was, order, (size_t)n * sizeof *was);
    for (int pass = 0; pass < 3; pass++)
        for (int64_t i = 0; i < n; i++) {
            const struct wf_node *k = &p->graph->nodes[was[i]];
            int turn = copies_feed(p, k) ? 0 : casts && casts_variable(p, k) ? 1 : 2;

            if (turn == pass)
                order[at++] = was[i];
        }
    return WEFT_OK;
}

static weft_status plan_all(struct wf_plan *p, weft_fn *fn, const weft_tensor *feeds)
{
    int n_roots = fn->n_fetches + fn->n_updates + fn->n_gradients;
    int32_t *order;
    int64_t n;
    weft_status st;

    p->feed_types = wf_arena_alloc(&p->arena, sizeof *p->feed_types * (size_t)(fn->n_feeds + 1));
    p->roots = wf_arena_alloc(&p->arena, sizeof *p->roots * (size_t)(n_roots + 1));
    if (!p->feed_types || !p->roots)
        return wf_err_nomem(p->ctx, sizeof *p->feed_types, "plan");
    for (int i = 0; i < fn->n_feeds; i++)
        p->feed_types[i] = wf_type_of(feeds[i].dtype, feeds[i].rank, feeds[i].dim);
    memcpy(p->roots, fn->roots, sizeof *p->roots * (size_t)n_roots);
    st = run_passes(p, fn, n_roots);
    if (st)
        return st;
    p->loc = wf_arena_alloc(&p->arena, sizeof *p->loc * (size_t)p->graph->n_values);
    p->root = wf_arena_alloc(&p->arena, sizeof *p->root * (size_t)p->graph->n_values);
    if (!p->loc || !p->root)
        return wf_err_nomem(p->ctx, sizeof *p->loc * (size_t)p->graph->n_values, "plan");
    for (int32_t v = 0; v < p->graph->n_values; v++)
        p->root[v] = v;
    st = wf_plan_order(p, fn->opts.trap_numerics, &order, &n);
    if (!st && p->dev)
        st = feeds_first(p, fn->updates && !(p->without & WF_WITHOUT_CASTS), order, n);
    if (!st)
        st = wf_plan_memory(p, fn, order, n);
    if (!st) {
        flatten_roots(p);
        st = ensure_slots(p->graph, p->root, fn->store);
    }
    if (!st)
        st = new_instrs(p, fn, order, n);
    if (!st)
        st = wf_plan_undo(p, fn->opts.trap_numerics);
    if (!st)
        st = find_points(p, fn);
    if (!st)
        st = wf_plan_remote(p, fn);
    p->undo_at = wf_round_up(wf_scratch_at(p) + p->scratch_bytes, 64);
    p->bytes = p->undo_at + p->undo_bytes;
    if (!st && p->dev)
        st = wf_away_plan(fn, p);
    return st;
}

weft_status wf_plan_new(weft_fn *fn, const weft_tensor *feeds, struct wf_plan **out)
{
    weft_ctx *ctx = fn->ctx;
    int64_t start = wf_now(ctx);
    struct wf_plan *p = wf_alloc(ctx, sizeof *p);
    weft_status st;

    if (!p)
        return wf_err_nomem(ctx, sizeof *p, "plan");
    p->ctx = ctx;
    p->pool = fn->pool;
    p->dev = wf_away_device(fn);
    p->tf32 = fn->opts.tf32;
    p->without = fn->without;
    p->can_capture = p->dev != NULL;
    wf_arena_init(&p->arena, ctx);
    p->fingerprint =
        wf_hash64(weft_version(), strlen(weft_version()),
                  (uint64_t)ctx->simd << 2 | (uint64_t)(ctx->kernels != 0) << 1 |
                      (uint64_t)ctx->flush_denormals | (uint64_t)(p->dev && p->tf32) << 8);
    st = plan_all(p, fn, feeds);
    if (st) {
        wf_plan_free(p);
        return st;
    }
    p->plan_ms = (double)(wf_now(ctx) - start) / 1e6;
    *out = p;
    return WEFT_OK;
}

void wf_plan_free(struct wf_plan *p)
{
    if (!p)
        return;
    wf_away_plan_free(p);
    weft_graph_free(p->chosen);
    weft_graph_free(p->graph);
    wf_arena_free(&p->arena);
    wf_free(p->ctx, p);
}

/* ---- binding --------------------------------------------------------------------------------- */

static void *table_at(const struct wf_plan *p, const weft_fn *fn, const struct wf_segment *seg)
{
    return p->dev ? wf_home_table(fn->store, wf_away_home(fn), seg) : seg->data;
}

void *wf_plan_address(const struct wf_plan *p, const weft_fn *fn, int32_t v)
{
    struct wf_loc l = p->loc[p->root[v]];

    switch (l.place) {
    case WF_SLAB: return fn->slab + l.offset;
    case WF_PARAM:
        return fn->base.at ? (char *)(uintptr_t)fn->base.at[l.segment]
                           : (char *)fn->base.params + l.offset;
    case WF_TABLE: return table_at(p, fn, &fn->store->seg[fn->store->by_number[l.segment]]);
    case WF_STATE: return fn->base.state + l.offset;
    case WF_GRAD: return (char *)(fn->base.grads + l.group * fn->store->n_params) + l.offset;
    case WF_CONST: return (void *)(uintptr_t)l.data;
    case WF_HOST: return wf_away_host(fn, l.offset);
    case WF_COPIED: return (char *)p->consts + l.offset;
    default: return NULL; /* feeds come with each run */
    }
}

static void bind_slots(const struct wf_plan *p, weft_fn *fn, const struct wf_node *n,
                       struct wf_tensor *in)
{
    const struct wf_store *s = fn->store;
    const struct wf_segment *seg = &s->seg[s->by_number[p->loc[p->root[n->in[0]]].segment]];

    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++) {
        struct wf_tensor *t = &in[n->op->n_in_max + k];

        t->data = t->type.dtype == WEFT_NONE ? NULL
                  : p->dev                   ? wf_home_slot(s, seg, k)
                                             : wf_store_slot(s, seg, k);
    }
}

void wf_plan_bind(struct wf_plan *p, weft_fn *fn)
{
    for (int64_t i = 0; i < p->n_instr; i++) {
        struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];
        struct wf_tensor *tin = (struct wf_tensor *)(uintptr_t)in->call.in;

        for (int k = 0; k < n->n_in; k++)
            tin[k].data = n->in[k] ? wf_plan_address(p, fn, n->in[k]) : NULL;
        for (int k = 0; k < n->n_out; k++)
            in->call.out[k].data = wf_plan_address(p, fn, n->first_out + k);
        if (wf_is_update(n))
            bind_slots(p, fn, n, tin);
        in->call.scratch = fn->slab + wf_scratch_at(p) + in->scratch_at;
        if (p->dev)
            wf_away_bind(fn, p, in);
    }
    p->bound_slab = fn->slab;
    p->bound = fn->base;
}

void wf_plan_feed(struct wf_plan *p, const weft_tensor *feeds)
{
    for (int64_t i = 0; i < p->n_instr; i++) {
        struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];

        for (int k = 0; k < n->n_in; k++) {
            const struct wf_loc *l = n->in[k] ? &p->loc[p->root[n->in[k]]] : NULL;

            if (l && l->place == WF_FEED)
                ((struct wf_tensor *)(uintptr_t)in->call.in)[k].data = feeds[l->offset].data;
        }
    }
}
