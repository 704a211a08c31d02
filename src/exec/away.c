/* away.c - a function on a device with memory of its own: its memory there, and its runs.
 *
 * A run enqueues everything on one stream: the step block, the feeds, the instructions, copies of
 * the fetches and of the words that say what went wrong. It waits before the host reads what the
 * device wrote, before it changes what a copy may still read, and at the end. A run whose
 * instructions are all the device's is recorded the second time and replayed from then on. */
#include "exec/away.h"

_Static_assert(sizeof(struct wf_step_block) <= WF_OWN_AT,
               "kernels' own bytes follow the step block");

/* Of the step block's memory: the block, kernels' own bytes, the words of trouble. */
static int64_t words_at(const struct wf_plan *p)
{
    return wf_away_block_bytes(p);
}

static int64_t whole_block(const struct wf_plan *p)
{
    return words_at(p) + (int64_t)sizeof(uint32_t) * WF_TROUBLE_WORDS;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct wf_device *wf_away_device(const weft_fn *fn)
{
    return fn->away ? fn->away->dev : NULL;
}

struct wf_home *wf_away_home(const weft_fn *fn)
{
    return fn->away->home;
}

void *wf_away_stream(const weft_fn *fn)
{
    return fn->away->stream;
}

weft_status wf_away_new(weft_fn *fn, struct wf_device *dev)
{
    struct wf_away *a = wf_alloc(fn->ctx, sizeof *a);
    weft_status st;

    if (!a)
        return wf_err_nomem(fn->ctx, sizeof *a, "function");
    fn->away = a;
    a->dev = dev;
    st = wf_home_at(fn->store, dev, &a->home);
    if (!st)
        st = dev->ops.stream_new(dev->dev, &a->stream);
    if (!st)
        st = wf_dev_host_alloc(dev, sizeof *a->words * WF_TROUBLE_WORDS, "function",
                               (void **)&a->words);
    return st ? wf_err_wrap(st, "%s", dev->name) : WEFT_OK;
}

static int64_t flat_bytes(const weft_fn *fn)
{
    return fn->store->n_params * (int64_t)sizeof(float);
}

void wf_away_free(weft_fn *fn)
{
    struct wf_away *a = fn->away;

    if (!a)
        return;
    wf_dev_free(a->dev, fn->slab, fn->slab_bytes + 64);
    fn->slab = NULL;
    wf_dev_free(a->dev, a->block, a->block_bytes);
    wf_dev_host_free(a->dev, a->block_host, a->block_bytes);
    wf_dev_host_free(a->dev, a->ring, a->ring_bytes);
    wf_dev_host_free(a->dev, a->words, sizeof *a->words * WF_TROUBLE_WORDS);
    wf_dev_host_free(a->dev, a->host, a->host_bytes);
    wf_dev_host_free(a->dev, a->out, a->out_bytes);
    if (fn->store) {
        wf_dev_free(a->dev, a->grads, fn->n_groups * flat_bytes(fn));
        wf_dev_free(a->dev, a->params, flat_bytes(fn));
        wf_dev_free(a->dev, a->state, fn->store->n_state);
    }
    if (a->stream)
        a->dev->ops.stream_free(a->dev->dev, a->stream);
    wf_free(fn->ctx, a->check);
    wf_free(fn->ctx, a);
    fn->away = NULL;
}

weft_status wf_away_grow_host(struct wf_away *a, char **p, int64_t *have, int64_t bytes)
{
    void *more;
    weft_status st;

    if (*p && bytes <= *have)
        return WEFT_OK;
    st = wf_dev_host_alloc(a->dev, bytes, "plan's memory", &more);
    if (st)
        return st;
    wf_dev_host_free(a->dev, *p, *have);
    *p = more;
    *have = bytes;
    a->version += p != &a->ring; /* which no instruction points into */
    return WEFT_OK;
}

static weft_status grow_block(struct wf_away *a, int64_t bytes)
{
    int64_t have = a->block_bytes;
    void *more;
    weft_status st;

    if (a->block && bytes <= have)
        return WEFT_OK;
    st = wf_dev_alloc(a->dev, bytes, "step block", &more);
    if (st)
        return st;
    st = wf_away_grow_host(a, &a->block_host, &a->block_bytes, bytes);
    if (st) {
        wf_dev_free(a->dev, more, bytes);
        return st;
    }
    wf_dev_free(a->dev, a->block, have);
    a->block = more;
    return WEFT_OK;
}

weft_status wf_away_slab(weft_fn *fn, int64_t bytes)
{
    void *slab;
    weft_status st = wf_dev_alloc(fn->away->dev, bytes + 64, "plan's memory", &slab);

    if (st)
        return st;
    wf_dev_free(fn->away->dev, fn->slab, fn->slab_bytes + 64);
    fn->slab = slab;
    fn->slab_bytes = bytes;
    fn->away->version++;
    return WEFT_OK;
}

void *wf_away_host(const weft_fn *fn, int64_t offset)
{
    return fn->away->host + offset;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool updates_here(const struct wf_instr *in)
{
    return in->on_host && (in->call.op->flags & WF_STATE_IN0);
}

/* Operands of an update that are written: the variable and its slots. */
static bool is_written(const struct wf_instr *in, int i)
{
    return i == 0 || (in->is_update && i >= in->call.n_in - WF_OPTIM_MAX_SLOTS);
}

static int64_t operand_bytes(const struct wf_instr *in, int i)
{
    const struct wf_type *t = &in->call.in[i].type;

    return t->dtype == WEFT_NONE ? 0 : wf_round_up(wf_type_bytes(t), 64);
}

/* A feed of the host's memory. */
static bool reads_feed(const struct wf_plan *p, const weft_fn *fn, const struct wf_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const struct wf_loc *l = n->in[i] ? &p->loc[p->root[n->in[i]]] : NULL;

        if (l && l->place == WF_FEED && l->offset >= fn->n_feeds_away)
            return true;
    }
    return false;
}

/* Whether nothing of a run happens on the host, and a failed one has nothing to restore. */
static bool is_unattended(const weft_fn *fn, const struct wf_plan *p)
{
    if (fn->n_gradients || fn->n_feeds_away || p->undo_bytes || p->reads_feeds)
        return false;
    for (int64_t i = 0; i < p->n_instr; i++)
        if (p->instr[i].on_host)
            return false;
    for (int i = 0; i < fn->n_fetches; i++)
        if (!wf_is_away(p, p->roots[i]))
            return false;
    return true;
}

/* In flight are runs of plans whose memory must stay where it is. */
static weft_status check_landed(const weft_fn *fn)
{
    return wf_fn_in_flight(fn) ? wf_err(WEFT_EBUG, "runs of the function are in flight") : WEFT_OK;
}

/* Constants are copied once. */
static weft_status copy_constants(struct wf_plan *p)
{
    const weft_graph *g = p->graph;
    weft_status st;

    if (!p->const_bytes)
        return WEFT_OK;
    st = wf_dev_alloc(p->dev, p->const_bytes, "constants", &p->consts);
    if (st)
        return st;
    wf_dev_begin(p->dev);
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        const struct wf_node *n = &g->nodes[k];

        if (p->loc[n->first_out].place == WF_COPIED)
            st = wf_dev_copy(p->dev, WEFT_COPY_IN, (char *)p->consts + p->loc[n->first_out].offset,
                             wf_val_node(g, (weft_val){n->in[0]})->data,
                             wf_type_bytes(&g->values[n->first_out].type));
    }
    return wf_dev_end(p->dev, st);
}

weft_status wf_away_plan(weft_fn *fn, struct wf_plan *p)
{
    struct wf_away *a = fn->away;
    weft_status st = check_landed(fn);

    if (st)
        return st;
    for (int64_t i = 0; i < p->n_instr; i++) {
        struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];
        int64_t bounce = 0;

        for (int k = 0; updates_here(in) && k < in->call.n_in; k++)
            bounce += is_written(in, k) ? operand_bytes(in, k) : 0;
        p->bounce_bytes = wf_max_i64(p->bounce_bytes, bounce);
        p->may_fail |= in->fails && !in->on_host;
        in->feeds = n->op->id == WF_OP_transfer && reads_feed(p, fn, n) && i == p->n_feeds;
        p->n_feeds += in->feeds;
        p->reads_feeds |= !in->feeds && reads_feed(p, fn, n);
    }
    p->can_capture &= !p->reads_feeds;
    p->unattended = is_unattended(fn, p);
    for (int i = 0; i < fn->n_fetches; i++)
        p->fetch_bytes += wf_round_up(wf_type_bytes(&p->graph->values[p->roots[i]].type), 64);
    p->bounce_at = wf_round_up(wf_round_up(p->host_bytes, 64) + p->host_scratch, 64);
    p->host_total = p->bounce_at + p->bounce_bytes;
    p->fed = wf_arena_alloc(&p->arena, (size_t)(fn->n_feeds_away + 1) * sizeof *p->fed);
    st = p->fed ? wf_plan_calls(p) : wf_err_nomem(fn->ctx, sizeof *p->fed, "plan");
    if (!st)
        st = grow_block(a, whole_block(p));
    if (!st)
        st = wf_away_grow_host(a, &a->host, &a->host_bytes, p->host_total + 64);
    if (!st)
        st = wf_away_grow_host(a, &a->out, &a->out_bytes, p->fetch_bytes + 64);
    return st ? st : copy_constants(p);
}

static void forget_recording(struct wf_plan *p)
{
    if (p->recorded)
        p->dev->ops.recorded_free(p->dev->dev, p->recorded);
    p->recorded = NULL;
    p->n_same = 0;
    wf_repeat_forget(p);
}

void wf_away_plan_free(struct wf_plan *p)
{
    if (!p->dev)
        return;
    forget_recording(p);
    wf_dev_free(p->dev, p->blocks, p->blocks_bytes);
    wf_dev_free(p->dev, p->consts, p->const_bytes);
}

void wf_away_bind(const weft_fn *fn, const struct wf_plan *p, struct wf_instr *in)
{
    const struct wf_away *a = fn->away;
    struct wf_call *c = &in->call;
    char *bounce = a->host + p->bounce_at;

    if (!in->on_host) {
        c->device = a->dev->dev;
        c->stream = a->stream;
        c->step = (const void *)a->block;
        c->trouble = (void *)(a->block + words_at(p));
        c->own = in->own_at < 0 ? NULL : a->block + WF_OWN_AT + in->own_at;
        c->instr = (uint32_t)(in - p->instr);
        return;
    }
    c->scratch = a->host + wf_round_up(p->host_bytes, 64);
    for (int k = 0; updates_here(in) && k < c->n_in; k++)
        if (is_written(in, k) && operand_bytes(in, k)) {
            ((struct wf_tensor *)(uintptr_t)c->in)[k].data = bounce;
            if (k == 0)
                c->out[0].data = bounce;
            bounce += operand_bytes(in, k);
        }
}

/* ---- work on the stream ---------------------------------------------------------------------- */

weft_status wf_away_enqueue_copy(struct wf_away *a, weft_copy_way way, void *to, const void *from,
                                 int64_t bytes)
{
    if (bytes <= 0)
        return WEFT_OK;
    a->pending = true;
    return a->dev->ops.copy(a->dev->dev, a->stream, way, to, from, (size_t)bytes);
}

weft_status wf_away_copy(const weft_fn *fn, void *to, const void *from, int64_t bytes)
{
    return wf_away_enqueue_copy(fn->away, WEFT_COPY_WITHIN, to, from, bytes);
}

weft_status wf_away_wait(struct wf_away *a)
{
    bool pending = a->pending;

    a->pending = false;
    return pending ? a->dev->ops.stream_sync(a->dev->dev, a->stream) : WEFT_OK;
}

static int64_t two_words(const uint32_t *w)
{
    return (int64_t)((uint64_t)w[1] << 32 | w[0]);
}

weft_status wf_away_trouble(const struct wf_plan *p, const uint32_t *w)
{
    const struct wf_instr *in =
        w[WF_TROUBLE_INSTR] < p->n_instr ? &p->instr[w[WF_TROUBLE_INSTR]] : NULL;
    long long at = two_words(w + WF_TROUBLE_POSITION), value = two_words(w + WF_TROUBLE_VALUE),
              limit = two_words(w + WF_TROUBLE_LIMIT);
    weft_status st;

    switch (w[WF_TROUBLE_CODE]) {
    case WF_TROUBLE_NONE: return WEFT_OK;
    case WF_TROUBLE_INDEX:
        st = wf_err(WEFT_EDATA, "id %lld at position %lld is not in [0, %lld)", value, at, limit);
        break;
    case WF_TROUBLE_NOT_FINITE:
        st = wf_err(WEFT_ENUMERIC, "element %lld of output %lld is not finite", at, value);
        break;
    default:
        st = wf_err(WEFT_EDATA, "the device refused the data of the step (code %u, at %lld: %lld)",
                    w[WF_TROUBLE_CODE], at, value);
    }
    return in ? wf_err_wrap(st, "'%s' (%s)", in->name, in->call.op->name) : st;
}

static weft_status read_trouble(struct wf_away *a, const struct wf_plan *p)
{
    return wf_away_enqueue_copy(a, WEFT_COPY_OUT, a->words, a->block + words_at(p),
                                sizeof *a->words * WF_TROUBLE_WORDS);
}

void wf_away_fill_block(weft_fn *fn, struct wf_plan *p, char *to)
{
    struct wf_step_block block = {.seed = fn->ctx->seed,
                                  .step = (uint64_t)fn->step,
                                  .iteration = fn->step + 1,
                                  .shard = (uint32_t)fn->shard};

    memset(to, 0, WF_OWN_AT);
    memcpy(to, &block, sizeof block);
    for (int64_t i = 0; p->own_bytes && i < p->n_instr; i++) {
        struct wf_instr *in = &p->instr[i];

        if (!in->step_fill)
            continue;
        in->call.rng.step = block.step;
        in->call.rng.shard = block.shard;
        in->call.iteration = block.iteration;
        in->step_fill(&in->call, to + WF_OWN_AT + in->own_at);
    }
}

/* They, and no trouble. */
static weft_status send_block(weft_fn *fn, struct wf_plan *p)
{
    struct wf_away *a = fn->away;

    wf_away_fill_block(fn, p, a->block_host);
    memset(a->block_host + words_at(p), 0, sizeof *a->words * WF_TROUBLE_WORDS);
    return wf_away_enqueue_copy(a, WEFT_COPY_IN, a->block, a->block_host, whole_block(p));
}

/* ---- where a run reads and writes ------------------------------------------------------------ */

/* The device's copy of a vector that the caller gave; *copy is made on first use. */
static weft_status lend(struct wf_away *a, void **copy, const void *host, int64_t bytes,
                        const char *what)
{
    weft_status st = *copy ? WEFT_OK : wf_dev_alloc(a->dev, bytes, what, copy);

    return st ? st : wf_dev_set(a->dev, *copy, host, bytes);
}

static bool is_lent(const void *base, const void *own)
{
    return base && base != own;
}

static weft_status set_base(weft_fn *fn, const struct wf_base *b)
{
    struct wf_away *a = fn->away;
    struct wf_store *s = fn->store;
    bool params = b && is_lent(b->params, s->params), state = b && is_lent(b->state, s->state);
    unsigned lent = (params ? WF_PART_PARAMS : 0u) | (state ? WF_PART_STATE : 0u);
    weft_status st = WEFT_OK;

    wf_home_quiet(s, fn);
    if (a->home != s->home && !state && (fn->writes & WF_PART_STATE))
        st = wf_err(WEFT_ENOSUP, "the function changes state, which is on %s: it cannot run on %s",
                    s->home->dev->name, a->dev->name);
    if (!st)
        st = wf_home_push(s, a->home, fn->reads & ~lent);
    if (!st && params)
        st = lend(a, &a->params, b->params, flat_bytes(fn), "parameters");
    if (!st && state)
        st = lend(a, &a->state, b->state, s->n_state, "state");
    if (!st && fn->n_gradients && !a->grads) {
        st = wf_dev_alloc(a->dev, fn->n_groups * flat_bytes(fn), "gradient vector", &a->grads);
        if (!st)
            st = wf_dev_zero(a->dev, a->grads, fn->n_groups * flat_bytes(fn));
    }
    fn->base = (struct wf_base){.params = params ? a->params : a->home->params,
                                .grads = a->grads,
                                .state = state ? a->state : a->home->state};
    return st;
}

weft_status wf_away_own_base(weft_fn *fn)
{
    return set_base(fn, NULL);
}

bool wf_away_is_bound(const weft_fn *fn, const struct wf_plan *p)
{
    return p->bound_slab == fn->slab && p->bound_away == fn->away->version &&
           memcmp(&p->bound, &fn->base, sizeof p->bound) == 0;
}

static void bind(weft_fn *fn, struct wf_plan *p)
{
    if (wf_away_is_bound(fn, p))
        return;
    forget_recording(p);
    wf_plan_bind(p, fn);
    wf_plan_together(p);
    p->bound_away = fn->away->version;
}

void wf_fn_feeds_away(weft_fn *fn, int n)
{
    fn->n_feeds_away = n;
}

/* A recording has the addresses of feeds that are in the device's memory. */
static void note_feeds(weft_fn *fn, struct wf_plan *p, const weft_tensor *feeds)
{
    bool moved = false;

    for (int i = 0; i < fn->n_feeds_away; i++) {
        moved |= p->fed[i] != feeds[i].data;
        p->fed[i] = feeds[i].data;
    }
    if (moved)
        forget_recording(p);
}

weft_status wf_away_gradients(weft_fn *fn, float *to)
{
    struct wf_away *a = fn->away;
    int64_t n_params = fn->store->n_params;
    weft_status st = WEFT_OK;

    for (int i = 0; i < fn->n_gradients && !st && a->grads; i++) {
        const struct wf_grad_out *o = &fn->grad_out[i];
        const struct wf_segment *seg = &fn->store->seg[fn->store->by_number[o->segment]];
        int64_t at = o->group * n_params + seg->offset;

        st = wf_away_enqueue_copy(a, WEFT_COPY_OUT, to + at, (float *)a->grads + at,
                                  seg->count * (int64_t)sizeof *to);
    }
    return st ? st : wf_away_wait(a);
}

/* All of them, to other memory of the device. */
static weft_status give_gradients(weft_fn *fn, void *to)
{
    struct wf_away *a = fn->away;
    int64_t bytes = fn->n_groups * flat_bytes(fn);

    if (a->grads || bytes == 0)
        return wf_away_enqueue_copy(a, WEFT_COPY_WITHIN, to, a->grads, bytes);
    a->pending = true; /* no loss reaches a dense variable */
    return a->dev->ops.fill(a->dev->dev, a->stream, to, 0, (size_t)bytes);
}

/* ---- one run --------------------------------------------------------------------------------- */

/* While numerics are trapped, outputs are copied here and looked at. */
static weft_status check_outputs(weft_fn *fn, const struct wf_instr *in)
{
    struct wf_away *a = fn->away;
    weft_status st = WEFT_OK;

    for (int k = 0; k < in->call.n_out && !st; k++) {
        struct wf_tensor t = in->call.out[k];
        int64_t bytes = wf_type_bytes(&t.type);

        if (!in->on_host && wf_is_float(t.type.dtype)) {
            if (bytes > a->check_bytes || !a->check) {
                wf_free(fn->ctx, a->check);
                a->check_bytes = bytes;
                a->check = wf_alloc(fn->ctx, (size_t)bytes + 1);
                if (!a->check)
                    return wf_err_nomem(fn->ctx, (size_t)bytes, "a check of numerics");
            }
            st = wf_away_enqueue_copy(a, WEFT_COPY_OUT, a->check, t.data, bytes);
            if (!st)
                st = wf_away_wait(a);
            t.data = a->check;
        }
        if (!st)
            st = wf_check_finite(&t, k);
    }
    return st;
}

/* The variable and the slots of an update that runs here, and back. */
static weft_status bounce(weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in,
                          bool back)
{
    const struct wf_node *n = &p->graph->nodes[in->node];
    const struct wf_loc *l = &p->loc[p->root[n->in[0]]];
    weft_status st = WEFT_OK;

    for (int k = 0; k < in->call.n_in && !st; k++) {
        int slot = k - (in->call.n_in - WF_OPTIM_MAX_SLOTS);
        void *away, *here = in->call.in[k].data;

        if (!is_written(in, k) || !operand_bytes(in, k))
            continue;
        away = k == 0 ? wf_plan_address(p, fn, n->in[0])
                      : wf_home_slot(fn->store, &fn->store->seg[fn->store->by_number[l->segment]],
                                     slot);
        st = wf_away_enqueue_copy(fn->away, back ? WEFT_COPY_IN : WEFT_COPY_OUT, back ? away : here,
                                  back ? here : away, wf_type_bytes(&in->call.in[k].type));
    }
    return st;
}

static weft_status run_here(weft_fn *fn, struct wf_plan *p, struct wf_instr *in)
{
    struct wf_away *a = fn->away;
    bool writes = updates_here(in);
    weft_status st = writes ? bounce(fn, p, in, false) : WEFT_OK;

    if (!st && writes && p->may_fail)
        st = read_trouble(a, p);
    if (!st)
        st = wf_away_wait(a);
    if (!st && writes && p->may_fail)
        st = wf_away_trouble(p, a->words);
    if (st)
        return st;
    in->call.rng.step = (uint64_t)fn->step;
    in->call.rng.shard = (uint32_t)fn->shard;
    in->call.iteration = fn->step + 1;
    st = in->run(&in->call);
    if (st && !in->fails)
        st = wf_err_wrap(WEFT_EBUG, "a kernel that cannot fail has failed");
    if (!st && writes)
        st = bounce(fn, p, in, true);
    return st ? wf_err_wrap(st, "'%s' (%s)", in->name, in->call.op->name) : WEFT_OK;
}

static weft_status run_one(weft_fn *fn, struct wf_plan *p, struct wf_instr *in, bool timed)
{
    struct wf_away *a = fn->away;
    int64_t start = timed ? wf_now(fn->ctx) : 0;
    weft_status st = in->n_undo ? wf_undo_save(fn, p, in) : WEFT_OK;

    if (!st && in->on_host) {
        st = run_here(fn, p, in);
    } else if (!st) {
        a->pending = true;
        st = in->run(&in->call);
        if (st)
            wf_err_wrap(st, "'%s' (%s)", in->name, in->call.op->name);
    }
    if (!st && fn->opts.trap_numerics) {
        st = check_outputs(fn, in);
        if (st)
            wf_err_wrap(st, "'%s' (%s)", in->name, in->call.op->name);
    }
    if (timed) {
        weft_status late = wf_away_wait(a);

        st = st ? st : late;
        in->time_ns += wf_now(fn->ctx) - start;
    }
    return st;
}

weft_status wf_away_run_from(weft_fn *fn, struct wf_plan *p, int64_t first, bool timed, bool last,
                             int64_t *done)
{
    weft_status st = WEFT_OK;

    for (*done = first; *done < p->n_instr && !st; ++*done) {
        struct wf_instr *in = &p->instr[*done];

        if (!last && in->for_fetch) {
            *done += wf_max_i64(in->n_together, 1) - 1;
            continue;
        }
        if (in->n_together > 1 && !timed && !fn->opts.trap_numerics) {
            fn->away->pending = true;
            st = in->run_many(p->calls + *done, in->n_together);
            *done += in->n_together - 1;
            if (st)
                wf_err_wrap(st, "'%s' (%s)", in->name, in->call.op->name);
        } else {
            st = run_one(fn, p, in, timed);
        }
    }
    return st;
}

static weft_status record_once(weft_fn *fn, struct wf_plan *p, void **recorded)
{
    struct wf_away *a = fn->away;
    const weft_device_ops *ops = &a->dev->ops;
    int64_t done;
    weft_status st = ops->capture_begin(a->dev->dev, a->stream), ended;

    if (st)
        return st;
    st = wf_away_run_from(fn, p, p->n_feeds, false, true, &done);
    ended = ops->capture_end(a->dev->dev, a->stream, recorded);
    if (!ended && st)
        ops->recorded_free(a->dev->dev, *recorded);
    return st ? st : ended;
}

/* Records the instructions after the feeds; without success they are enqueued from now on. A device
 * may do without something in a second attempt. */
static weft_status record(weft_fn *fn, struct wf_plan *p)
{
    struct wf_away *a = fn->away;
    void *recorded = NULL;
    weft_status st = record_once(fn, p, &recorded);

    if (st)
        st = record_once(fn, p, &recorded);
    if (st) {
        wf_log(fn->ctx, WEFT_LOG_WARN, "%s: a run cannot be recorded: %s", a->dev->name,
               weft_error());
        p->can_capture = false;
    } else {
        p->recorded = recorded;
    }
    return WEFT_OK;
}

static weft_status run_all(weft_fn *fn, struct wf_plan *p, bool timed, int64_t *done)
{
    struct wf_away *a = fn->away;
    const weft_device_ops *ops = &a->dev->ops;
    bool capture = p->can_capture && ops->capture_begin && !timed && !fn->opts.trap_numerics;
    weft_status st = WEFT_OK;

    for (*done = 0; *done < p->n_feeds && !st; ++*done)
        st = run_one(fn, p, &p->instr[*done], timed);
    if (!st && capture && !p->recorded && p->n_same > 0)
        st = record(fn, p);
    p->n_same += p->n_same < 2;
    if (st)
        return st;
    if (!capture || !p->recorded)
        return wf_away_run_from(fn, p, p->n_feeds, timed, true, done);
    *done = p->n_instr;
    a->pending = true;
    return ops->replay(a->dev->dev, a->stream, p->recorded);
}

weft_status wf_away_finish(weft_fn *fn, struct wf_plan *p)
{
    struct wf_away *a = fn->away;
    weft_status st = p->may_fail ? read_trouble(a, p) : WEFT_OK;
    int64_t at = 0;

    for (int i = 0; i < fn->n_fetches && !st; i++) {
        int64_t bytes = wf_type_bytes(&p->graph->values[p->roots[i]].type);

        if (wf_is_away(p, p->roots[i]))
            st = wf_away_enqueue_copy(a, WEFT_COPY_OUT, a->out + at,
                                      wf_plan_address(p, fn, p->roots[i]), bytes);
        at += wf_round_up(bytes, 64);
    }
    if (!st)
        st = wf_away_wait(a);
    return !st && p->may_fail ? wf_away_trouble(p, a->words) : st;
}

bool wf_is_away(const struct wf_plan *p, int32_t v)
{
    enum wf_place place = p->loc[p->root[v]].place;

    return place != WF_FEED && place != WF_CONST && place != WF_HOST;
}

void *wf_away_fetch(const weft_fn *fn, const struct wf_plan *p, int i, const weft_tensor *feeds)
{
    const struct wf_loc *l = &p->loc[p->root[p->roots[i]]];
    int64_t at = 0;

    if (l->place == WF_FEED)
        return feeds[l->offset].data;
    if (!wf_is_away(p, p->roots[i]))
        return wf_plan_address(p, fn, p->roots[i]);
    for (int k = 0; k < i; k++)
        at += wf_round_up(wf_type_bytes(&p->graph->values[p->roots[k]].type), 64);
    return fn->away->out + at;
}

/* A failed run: waits, and restores what was overwritten. */
static void roll_back(weft_fn *fn, struct wf_plan *p, int64_t done)
{
    char text[512];

    wf_snprintf(text, sizeof text, "%s", weft_error());
    wf_away_wait(fn->away);
    for (int64_t i = done - 1; i >= 0; i--)
        if (p->instr[i].n_undo)
            wf_undo_restore(fn, p, &p->instr[i]);
    wf_away_wait(fn->away);
    wf_err_set(text);
}

/* Hooks are told about parameters before any is copied, and about gradients after all are. */
static weft_status tell(weft_fn *fn, const struct wf_plan *p, bool ready)
{
    const struct wf_hooks *h = fn->hooks;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; h && i < p->n_instr; i++) {
        const struct wf_instr *in = &p->instr[i];

        for (int k = 0; !ready && h->need && k < in->n_need && !st; k++)
            st = h->need(h->arg, p->needs[in->first_need + k]);
        for (int k = 0; ready && h->ready && k < in->n_ready && !st; k++)
            st = h->ready(h->arg, p->readies[2 * (in->first_ready + k)],
                          p->readies[2 * (in->first_ready + k) + 1]);
    }
    return st;
}

/* What the caller lent gets what the run has written. */
static weft_status take_results(weft_fn *fn, const struct wf_base *b)
{
    struct wf_away *a = fn->away;
    struct wf_store *s = fn->store;
    bool state = b && is_lent(b->state, s->state), params = b && is_lent(b->params, s->params);
    weft_status st = WEFT_OK;

    if (b && b->grads)
        st = wf_away_gradients(fn, b->grads);
    if (!st && state && (fn->writes & WF_PART_STATE))
        st = wf_dev_get(a->dev, b->state, a->state, s->n_state);
    if (!st && params && (fn->writes & WF_PART_PARAMS))
        st = wf_dev_get(a->dev, b->params, a->params, flat_bytes(fn));
    wf_home_wrote(s, fn->writes & ~(params ? WF_PART_PARAMS : 0u) & ~(state ? WF_PART_STATE : 0u));
    return st;
}

weft_status wf_away_run(weft_fn *fn, struct wf_plan *p, const struct wf_base *base,
                        const weft_tensor *feeds, bool timed)
{
    uint64_t mode = wf_fpmode_enter(fn->ctx->flush_denormals);
    int64_t done = 0;
    weft_status st = check_landed(fn);

    if (!st)
        st = tell(fn, p, false);
    if (!st)
        st = set_base(fn, base);
    if (!st) {
        bind(fn, p);
        wf_plan_feed(p, feeds);
        note_feeds(fn, p, feeds);
        st = send_block(fn, p);
    }
    if (!st)
        st = run_all(fn, p, timed, &done);
    if (!st && base && base->grads_away)
        st = give_gradients(fn, base->grads_away);
    if (!st)
        st = wf_away_finish(fn, p);
    if (st)
        roll_back(fn, p, done);
    else
        st = take_results(fn, base);
    if (!st)
        st = tell(fn, p, true);
    wf_fpmode_leave(mode);
    return st;
}
