/* fn.c - functions: feeds, fetches and updates of a graph, their plans, and the run loop. */
#include <math.h>

#include "exec/exec.h"

#define DEFAULT_PLANS 8

/* ---- creation -------------------------------------------------------------------------------- */

static weft_status check_values(const weft_graph *g, int n, const weft_val *v, const char *what,
                                bool placeholders)
{
    if (n < 0 || (n && !v))
        return wf_err(WEFT_EINVAL, "function: %d %s", n, what);
    for (int i = 0; i < n; i++) {
        if (v[i].id <= 0 || v[i].id >= g->n_values)
            return wf_err(WEFT_EINVAL, "function: %s %d is not a value of the graph", what, i);
        if (placeholders && wf_val_node(g, v[i])->op->id != WF_OP_placeholder)
            return wf_err(WEFT_EINVAL, "function: '%s' is fed but is not a placeholder",
                          weft_val_name(g, v[i]));
    }
    return WEFT_OK;
}

static weft_status check_feeds_complete(const weft_fn *fn)
{
    for (int64_t k = 0; k < fn->graph->n_nodes; k++) {
        const struct wf_node *n = &fn->graph->nodes[k];
        bool fed = n->op->id != WF_OP_placeholder;

        for (int i = 0; i < fn->n_feeds && !fed; i++)
            fed = fn->feeds[i] == n->first_out;
        if (!fed)
            return wf_err(
                WEFT_EINVAL,
                "function: the fetches need placeholder '%s', which is not among the feeds",
                n->name);
    }
    return WEFT_OK;
}

static weft_status check_opts(weft_graph *g, const weft_fn_opts *o)
{
    weft_status st = weft_graph_status(g);

    if (!st)
        st = check_values(g, o->n_feeds, o->feeds, "feeds", true);
    if (!st)
        st = check_values(g, o->n_fetches, o->fetches, "fetches", false);
    if (!st)
        st = check_values(g, o->n_updates, o->updates, "updates", false);
    for (int i = 0; i < o->n_gradients && !st; i++) {
        const weft_gradient *r = &o->gradients[i];

        st = check_values(g, 2, (weft_val[]){r->var, r->grad}, "gradients", false);
        if (!st && r->group < 0)
            st = wf_err(WEFT_EINVAL, "function: a gradient of group %d", r->group);
    }
    return st;
}

/* The function's own copy of the part of the graph it needs; feeds are kept even if nothing reads
 * them. */
static weft_status copy_graph(weft_fn *fn, weft_graph *g, const weft_fn_opts *o)
{
    int n = o->n_fetches + o->n_updates + o->n_gradients, all = n + o->n_feeds;
    int32_t *roots = wf_alloc_n(fn->ctx, all + 1, sizeof *roots);
    weft_status st;

    fn->roots = roots;
    fn->feeds = wf_alloc_n(fn->ctx, o->n_feeds + 1, sizeof *fn->feeds);
    if (!roots || !fn->feeds)
        return wf_err_nomem(fn->ctx, (size_t)all * sizeof *roots, "function");
    for (int i = 0; i < o->n_fetches; i++)
        roots[i] = o->fetches[i].id;
    for (int i = 0; i < o->n_updates; i++)
        roots[o->n_fetches + i] = o->updates[i].id;
    for (int i = 0; i < o->n_gradients; i++)
        roots[o->n_fetches + o->n_updates + i] = o->gradients[i].grad.id;
    for (int i = 0; i < o->n_feeds; i++)
        roots[n + i] = o->feeds[i].id;
    st = wf_pass_copy(g, all, roots, &fn->graph);
    if (st)
        return st;
    for (int i = 0; i < o->n_feeds; i++)
        fn->feeds[i] = roots[n + i];
    return WEFT_OK;
}

/* The variables of a function that shares parameters get the ids they have there. Only here two
 * graphs meet, and names decide: usually it is the same graph, and the ids are the same. */
static weft_status number_variables(weft_fn *fn)
{
    const weft_graph *g = fn->graph;

    for (int64_t i = 0; i < g->n_vars; i++) {
        struct wf_node *n = &g->nodes[g->values[g->vars[i]].node];
        const struct wf_type *t = &g->values[g->vars[i]].type;
        const struct wf_segment *seg = wf_store_segment(fn->store, n);
        char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

        if (!seg || strcmp(seg->name, n->name) != 0)
            seg = wf_store_find(fn->store, n->name);
        if (!seg)
            return wf_err(WEFT_ENOENT, "variable '%s' is not among the shared parameters", n->name);
        if (seg->type.dtype != t->dtype || !wf_type_same_shape(&seg->type, t))
            return wf_err(WEFT_ESHAPE, "variable '%s' is %s, but it is %s in the shared parameters",
                          n->name, wf_type_text(t, a), wf_type_text(&seg->type, b));
        n->var = (int32_t)(seg - fn->store->seg);
    }
    return WEFT_OK;
}

/* Which segment each gradient belongs to. */
static weft_status place_gradients(weft_fn *fn, const weft_graph *g, const weft_fn_opts *o)
{
    const struct wf_store *s = fn->store;
    bool *taken;

    for (int i = 0; i < o->n_gradients; i++)
        fn->n_groups = (int)wf_max_i64(fn->n_groups, o->gradients[i].group + 1);
    fn->grad_out = wf_alloc_n(fn->ctx, o->n_gradients + 1, sizeof *fn->grad_out);
    taken = wf_alloc_n(fn->ctx, (int64_t)fn->n_groups * s->n_flat + 1, sizeof *taken);
    for (int i = 0; i < o->n_gradients && fn->grad_out && taken; i++) {
        const weft_gradient *r = &o->gradients[i];
        const struct wf_node *var = wf_val_node(g, r->var);
        const struct wf_type *t = &g->values[r->grad.id].type;
        const struct wf_segment *seg =
            var->op->id == WF_OP_variable ? wf_store_find(s, var->name) : NULL;
        weft_status st = WEFT_OK;

        if (!seg || !seg->flat || seg->table)
            st = wf_err(WEFT_EINVAL, "gradient %d: '%s' is not in the flat vectors", i, var->name);
        else if (t->dtype != WEFT_F32 || t->rank != seg->type.rank)
            st = wf_err(WEFT_ESHAPE, "the gradient of '%s' does not have its type", var->name);
        else if (taken[r->group * s->n_flat + seg->number])
            st = wf_err(WEFT_EEXIST, "two gradients of '%s' in group %d", var->name, r->group);
        if (st) {
            wf_free(fn->ctx, taken);
            return st;
        }
        taken[r->group * s->n_flat + seg->number] = true;
        fn->grad_out[i] = (struct wf_grad_out){seg->number, r->group};
    }
    wf_free(fn->ctx, taken);
    return taken && fn->grad_out ? WEFT_OK
                                 : wf_err_nomem(fn->ctx, sizeof *fn->grad_out, "function");
}

/* Which parts of the store a run uses. */
static void find_reads(weft_fn *fn)
{
    const weft_graph *g = fn->graph;

    for (int64_t i = 0; i < g->n_vars; i++) {
        const struct wf_segment *seg =
            wf_store_segment(fn->store, &g->nodes[g->values[g->vars[i]].node]);

        fn->reads |= seg ? wf_segment_part(seg) : WF_PART_ALL;
    }
    fn->reads |= fn->writes;
}

/* Whether a run changes variables; and which parts of the store. */
static bool changes_state(weft_fn *fn)
{
    const weft_graph *g = fn->graph;
    bool any = false;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        const struct wf_segment *seg;

        if (!(n->op->flags & WF_STATE_IN0))
            continue;
        any = true;
        seg = wf_store_segment(fn->store, &g->nodes[g->values[wf_value_updated(g, n)].node]);
        fn->writes |= seg ? wf_segment_part(seg) : WF_PART_ALL;
        fn->writes |= wf_is_update(n) ? WF_PART_SLOTS : 0;
    }
    return any;
}

/* Where the function lives: the named device, that of the function whose parameters it shares, or
 * the context's. NULL: the host. */
static weft_status find_home(weft_ctx *ctx, const weft_fn_opts *o, struct wf_device **out)
{
    const struct wf_home *shared = o->share ? o->share->store->home : NULL;
    int device = WF_DEVICE_DEFAULT;
    weft_status st = o->device ? wf_device_find(ctx, o->device, &device) : WEFT_OK;

    *out = st || (o->share && !o->device) ? NULL : wf_device_own(ctx, device);
    if (o->share && !o->device && shared)
        *out = shared->dev;
    if (!st && o->share && *out && !shared)
        st = wf_err(WEFT_ENOSUP,
                    "the function is to run on %s, but the parameters it shares are in the host's "
                    "memory",
                    (*out)->name);
    return st;
}

/* A function on another device than its variables only reads their copies there. */
static weft_status check_mirror(const weft_fn *fn)
{
    const struct wf_home *home = fn->store->home;

    if (!fn->away || wf_away_home(fn) == home || !(fn->writes & ~(unsigned)WF_PART_STATE))
        return WEFT_OK;
    return wf_err(WEFT_ENOSUP,
                  "the function is to run on %s, but the parameters it updates are "
                  "on %s",
                  wf_away_device(fn)->name, home->dev->name);
}

weft_status wf_fn_new(weft_graph *g, const weft_fn_opts *opts, const struct wf_remote *remote,
                      weft_fn **out)
{
    weft_fn_opts copy;
    const weft_fn_opts *o = &copy;
    struct wf_device *home = NULL;
    unsigned without;
    weft_status st = opts ? wf_opts_take(&copy, sizeof copy, opts, "weft_fn_opts")
                          : wf_err(WEFT_EINVAL, "weft_fn_opts: must be given");
    weft_fn *fn;

    if (!st)
        st = check_opts(g, o);
    if (!st)
        st = wf_without_parse(o->without, &without);
    if (st)
        return st;
    fn = wf_alloc(g->ctx, sizeof *fn);
    if (!fn)
        return wf_err_nomem(g->ctx, sizeof *fn, "function");
    pthread_mutex_init(&fn->lock, NULL);
    fn->ctx = g->ctx;
    fn->opts = *o;
    fn->opts.without = NULL; /* the caller's text */
    fn->without = without;
    fn->n_feeds = o->n_feeds;
    fn->n_fetches = o->n_fetches;
    fn->n_updates = o->n_updates;
    fn->n_gradients = o->n_gradients;
    fn->pool = g->ctx->pool;
    fn->max_plans = o->max_plans > 0 ? o->max_plans : DEFAULT_PLANS;
    fn->plans = wf_alloc_n(g->ctx, fn->max_plans, sizeof *fn->plans);
    st = fn->plans ? copy_graph(fn, g, o) : wf_err_nomem(g->ctx, sizeof *fn->plans, "function");
    if (!st)
        st = check_feeds_complete(fn);
    if (!st)
        st = wf_check_devices(fn->graph);
    if (!st)
        st = find_home(g->ctx, o, &home);
    if (!st && o->share)
        fn->store = wf_store_ref(o->share->store);
    else if (!st)
        st = wf_store_new(g, remote, home, &fn->store);
    if (!st && home)
        st = wf_away_new(fn, home);
    if (!st && o->share)
        st = number_variables(fn);
    if (!st)
        st = place_gradients(fn, g, o);
    if (!st) {
        fn->updates = changes_state(fn);
        find_reads(fn);
        st = check_mirror(fn);
    }
    if (st) {
        weft_fn_free(fn);
        return st;
    }
    *out = fn;
    return WEFT_OK;
}

weft_status weft_fn_new(weft_graph *g, const weft_fn_opts *opts, weft_fn **out)
{
    return wf_fn_new(g, opts, NULL, out);
}

void weft_fn_free(weft_fn *fn)
{
    if (!fn)
        return;
    wf_flight_free(fn);
    for (int i = 0; i < fn->n_plans; i++)
        wf_plan_free(fn->plans[i]);
    wf_away_free(fn);
    wf_free(fn->ctx, fn->plans);
    weft_graph_free(fn->graph);
    wf_store_free(fn->store);
    wf_free(fn->ctx, fn->feeds);
    wf_free(fn->ctx, fn->roots);
    wf_free(fn->ctx, fn->slab);
    wf_free(fn->ctx, fn->grad_out);
    wf_free(fn->ctx, fn->grads);
    pthread_mutex_destroy(&fn->lock);
    wf_free(fn->ctx, fn);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static weft_status check_feed(const weft_fn *fn, int i, const weft_tensor *t)
{
    const struct wf_value *v = &fn->graph->values[fn->feeds[i]];
    struct wf_type given =
        wf_type_of(t->dtype, t->rank < 0 || t->rank > WEFT_MAX_RANK ? 0 : t->rank, t->dim);
    char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];
    bool ok = t->dtype == v->type.dtype && t->rank == v->type.rank;

    for (int k = 0; ok && k < v->type.rank; k++)
        ok = t->dim[k] >= 0 && (v->type.dim[k] < 0 || v->type.dim[k] == t->dim[k]);
    if (!ok)
        return wf_err(t->dtype == v->type.dtype ? WEFT_ESHAPE : WEFT_EDTYPE,
                      "feed '%s': expected %s, got %s", fn->graph->nodes[v->node].name,
                      wf_type_text(&v->type, a), wf_type_text(&given, b));
    if (!wf_type_fits(&given))
        return wf_err(WEFT_ESHAPE, "feed '%s': the size of %s overflows",
                      fn->graph->nodes[v->node].name, wf_type_text(&given, b));
    return WEFT_OK;
}

static bool plan_fits(const weft_fn *fn, const struct wf_plan *p, const weft_tensor *feeds)
{
    for (int i = 0; i < fn->n_feeds; i++)
        for (int k = 0; k < p->feed_types[i].rank; k++)
            if (p->feed_types[i].dim[k] != feeds[i].dim[k])
                return false;
    return true;
}

static weft_status new_slab(weft_fn *fn, int64_t bytes)
{
    char *slab;

    if (fn->away)
        return wf_away_slab(fn, bytes);
    slab = wf_alloc(fn->ctx, (size_t)bytes + 64);
    if (!slab)
        return wf_err_nomem(fn->ctx, (size_t)bytes, "plan's memory");
    wf_free(fn->ctx, fn->slab);
    fn->slab = slab;
    fn->slab_bytes = bytes;
    return WEFT_OK;
}

static weft_status ensure_slab(weft_fn *fn, const struct wf_plan *p)
{
    weft_status st = p->bytes <= fn->slab_bytes && fn->slab ? WEFT_OK : new_slab(fn, p->bytes);
    int64_t most = 0;
    const char *name = "";

    if (!st)
        return WEFT_OK;
    for (int32_t v = 1; v < p->graph->n_values; v++)
        if (p->loc[v].place == WF_SLAB && wf_type_bytes(&p->graph->values[v].type) > most) {
            most = wf_type_bytes(&p->graph->values[v].type);
            name = p->graph->nodes[p->graph->values[v].node].name;
        }
    return wf_err_wrap(st, "largest tensor '%s' (%lld bytes)", name, (long long)most);
}

/* A free slot in the cache, or that of the least recently used plan. */
static int cache_place(weft_fn *fn)
{
    int oldest = 0;

    if (fn->n_plans < fn->max_plans)
        return fn->n_plans;
    for (int i = 1; i < fn->n_plans; i++)
        if (fn->plans[i]->last_used < fn->plans[oldest]->last_used)
            oldest = i;
    return oldest;
}

/* The bases of the next run: the given ones, otherwise the store's and the function's own. */
static weft_status set_base(weft_fn *fn, const struct wf_base *b)
{
    struct wf_base base = {.params = b && b->params ? b->params : fn->store->params,
                           .at = b ? b->at : NULL,
                           .binding = b ? b->binding : 0,
                           .grads = b && b->grads ? b->grads : fn->grads,
                           .state = b && b->state ? b->state : fn->store->state};

    if (fn->n_gradients && !base.grads) {
        int64_t n = fn->n_groups * fn->store->n_params;

        base.grads = fn->grads = wf_alloc_n(fn->ctx, n + 1, sizeof *fn->grads);
        if (!fn->grads)
            return wf_err_nomem(fn->ctx, (size_t)n * sizeof *fn->grads, "gradient vector");
    }
    fn->base = base;
    return WEFT_OK;
}

weft_status wf_fn_plan(weft_fn *fn, const weft_tensor *feeds, struct wf_plan **out)
{
    struct wf_plan *p = NULL;
    weft_status st;
    int at;

    for (int i = 0; i < fn->n_feeds; i++) {
        st = check_feed(fn, i, &feeds[i]);
        if (st)
            return st;
    }
    for (int i = 0; i < fn->n_plans && !p; i++)
        if (plan_fits(fn, fn->plans[i], feeds))
            p = fn->plans[i];
    if (!p) {
        st = wf_plan_new(fn, feeds, &p);
        if (st)
            return st;
        st = ensure_slab(fn, p);
        if (st) {
            wf_plan_free(p);
            return st;
        }
        at = cache_place(fn);
        if (at < fn->n_plans)
            wf_plan_free(fn->plans[at]);
        else
            fn->n_plans++;
        fn->plans[at] = p;
    }
    p->last_used = ++fn->clock;
    st = fn->away ? WEFT_OK : set_base(fn, NULL);
    *out = p;
    return st;
}

struct wf_plan *wf_fn_planned(weft_fn *fn, const weft_tensor *feeds)
{
    struct wf_plan *p = NULL;

    for (int i = 0; i < fn->n_feeds; i++)
        if (check_feed(fn, i, &feeds[i]) || (!feeds[i].data && weft_tensor_count(&feeds[i]) > 0))
            return NULL;
    for (int i = 0; i < fn->n_plans && !p; i++)
        if (plan_fits(fn, fn->plans[i], feeds))
            p = fn->plans[i];
    if (p)
        p->last_used = ++fn->clock;
    return p;
}

static void bind(weft_fn *fn, struct wf_plan *p)
{
    if (p->bound_slab != fn->slab || memcmp(&p->bound, &fn->base, sizeof p->bound) != 0)
        wf_plan_bind(p, fn);
}

weft_status weft_fn_prepare(weft_fn *fn, const weft_tensor *feeds)
{
    struct wf_plan *p;

    return wf_fn_plan(fn, feeds, &p);
}

/* ---- running --------------------------------------------------------------------------------- */

weft_status wf_check_finite(const struct wf_tensor *t, int k)
{
    int64_t n = wf_is_float(t->type.dtype) ? wf_count(t) : 0;

    for (int64_t i = 0; i < n; i++) {
        double v = wf_get(t->data, t->type.dtype, i);
        char text[WF_TYPE_TEXT];

        if (!isfinite(v))
            return wf_err(WEFT_ENUMERIC, "produced %g at element %lld of output %d, %s", v,
                          (long long)i, k, wf_type_text(&t->type, text));
    }
    return WEFT_OK;
}

static weft_status trap(const struct wf_instr *in)
{
    weft_status st = WEFT_OK;

    for (int k = 0; k < in->call.n_out && !st; k++)
        st = wf_check_finite(&in->call.out[k], k);
    return st;
}

void wf_fn_trap(weft_fn *fn, bool on)
{
    fn->opts.trap_numerics = on;
}

/* Tells hooks before an instruction reads parameters, and after it has completed gradients. */
static weft_status ask(weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in)
{
    const struct wf_hooks *h = fn->hooks;
    weft_status st = WEFT_OK;

    for (int i = 0; h->need && i < in->n_need && !st; i++)
        st = h->need(h->arg, p->needs[in->first_need + i]);
    return st;
}

static weft_status tell(weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in)
{
    const struct wf_hooks *h = fn->hooks;
    weft_status st = WEFT_OK;

    for (int i = 0; h->ready && i < in->n_ready && !st; i++) {
        const int32_t *ready = &p->readies[2 * (in->first_ready + i)];

        st = h->ready(h->arg, ready[0], ready[1]);
    }
    return st;
}

static weft_status run_instr(weft_fn *fn, struct wf_plan *p, struct wf_instr *in)
{
    weft_status st = fn->hooks ? ask(fn, p, in) : WEFT_OK;

    if (st)
        return st;
    in->call.rng.step = (uint64_t)fn->step;
    in->call.rng.shard = (uint32_t)fn->shard;
    in->call.iteration = fn->step + 1;
    st = in->run(&in->call);
    if (st && !in->fails) /* what it has written cannot be restored */
        st = wf_err_wrap(WEFT_EBUG, "a kernel that cannot fail has failed");
    if (!st && fn->opts.trap_numerics)
        st = trap(in);
    if (st)
        return wf_err_wrap(st, "'%s' (%s)", in->name, in->call.op->name);
    return fn->hooks ? tell(fn, p, in) : WEFT_OK;
}

/* Instruction `failed` failed: restores what it and those before it have overwritten. */
static void roll_back(weft_fn *fn, const struct wf_plan *p, int64_t failed)
{
    for (int64_t i = failed; i >= 0; i--)
        if (p->instr[i].n_undo)
            wf_undo_restore(fn, p, &p->instr[i]);
}

static weft_status run_instrs(weft_fn *fn, struct wf_plan *p, const weft_tensor *feeds, bool timed)
{
    uint64_t mode = wf_fpmode_enter(fn->ctx->flush_denormals);
    weft_status st = WEFT_OK;
    int64_t i;

    bind(fn, p);
    fn->running = p;
    wf_plan_feed(p, feeds);
    for (i = 0; i < p->n_instr && !st; i++) {
        struct wf_instr *in = &p->instr[i];
        int64_t start = timed ? wf_now(fn->ctx) : 0;

        if (in->n_undo)
            wf_undo_save(fn, p, in); /* in memory: it cannot fail */
        fn->ran = i;
        st = run_instr(fn, p, in);
        if (timed)
            in->time_ns += wf_now(fn->ctx) - start;
    }
    if (st)
        roll_back(fn, p, i - 1);
    fn->running = NULL;
    wf_fpmode_leave(mode);
    return st;
}

const void *wf_fn_fetched(const weft_fn *fn, int fetch)
{
    const struct wf_plan *p = fn->running;
    int32_t v = p ? p->roots[fetch] : 0;
    bool computed = false;

    if (!p || wf_type_count(&p->graph->values[v].type) != 1)
        return NULL;
    if (p->loc[p->root[v]].place == WF_CONST)
        return wf_plan_address(p, fn, v);
    for (int64_t i = 0; i <= fn->ran && !computed; i++)
        computed = p->instr[i].node == p->graph->values[v].node;
    return computed && p->loc[p->root[v]].place == WF_SLAB ? wf_plan_address(p, fn, v) : NULL;
}

/* A run in the host's memory on variables whose home is a device: they are brought here, and marked
 * as changed. */
static weft_status borrow(weft_fn *fn)
{
    weft_status st = wf_store_pull(fn->store, WF_PART_ALL);

    if (!st)
        wf_store_touch(fn->store, fn->writes);
    return st;
}

static weft_status run_where_it_lives(weft_fn *fn, struct wf_plan *p, const struct wf_base *base,
                                      const weft_tensor *feeds, bool timed)
{
    weft_status st = WEFT_OK;

    if (fn->away)
        return wf_away_run(fn, p, base, feeds, timed);
    if (fn->store->home)
        st = borrow(fn);
    else if (fn->store->bring && !(base && base->at))
        st = fn->store->bring(fn->store->watch_arg, WF_PART_PARAMS);
    return st ? st : run_instrs(fn, p, feeds, timed);
}

weft_status wf_fn_run_plan(weft_fn *fn, struct wf_plan *p, const weft_tensor *feeds, bool timed)
{
    weft_status st;

    fn->step = fn->store->step;
    fn->hooks = NULL;
    st = run_where_it_lives(fn, p, NULL, feeds, timed);
    if (!st && fn->updates)
        fn->store->step++;
    return st;
}

static weft_status hand_out(weft_fn *fn, struct wf_plan *p, const weft_tensor *feeds,
                            weft_tensor *fetches)
{
    for (int i = 0; i < fn->n_fetches; i++) {
        const struct wf_type *t = &p->graph->values[p->roots[i]].type;
        const struct wf_loc *l = &p->loc[p->root[p->roots[i]]];
        void *data = fn->away              ? wf_away_fetch(fn, p, i, feeds)
                     : l->place == WF_FEED ? feeds[l->offset].data
                                           : wf_plan_address(p, fn, p->roots[i]);
        weft_tensor v = weft_view(t->dtype, data, t->rank, t->dim);

        if (fetches[i].data)
            memcpy(fetches[i].data, v.data, (size_t)wf_type_bytes(t));
        else
            fetches[i] = v;
    }
    return WEFT_OK;
}

static weft_status check_fetches(weft_fn *fn, struct wf_plan *p, const weft_tensor *fetches)
{
    for (int i = 0; i < fn->n_fetches; i++) {
        const struct wf_type *t = &p->graph->values[p->roots[i]].type;
        struct wf_type given = wf_type_of(fetches[i].dtype, fetches[i].rank, fetches[i].dim);
        char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

        if (fetches[i].data &&
            (given.dtype != t->dtype || wf_type_count(&given) != wf_type_count(t)))
            return wf_err(WEFT_ESHAPE, "fetch %d: is %s, but the caller's memory is %s", i,
                          wf_type_text(t, a), wf_type_text(&given, b));
    }
    return WEFT_OK;
}

static weft_status prepare_run(weft_fn *fn, const weft_tensor *feeds, const weft_tensor *fetches,
                               struct wf_plan **p)
{
    weft_status st = wf_fn_plan(fn, feeds, p);

    for (int i = 0; i < fn->n_feeds && !st; i++)
        if (!feeds[i].data && weft_tensor_count(&feeds[i]) > 0)
            st = wf_err(WEFT_EINVAL, "feed '%s' has no data",
                        wf_val_node(fn->graph, (weft_val){fn->feeds[i]})->name);
    return st ? st : check_fetches(fn, *p, fetches);
}

weft_status weft_fn_run(weft_fn *fn, const weft_tensor *feeds, weft_tensor *fetches)
{
    struct wf_plan *p;
    weft_status st = prepare_run(fn, feeds, fetches, &p);

    if (!st)
        st = wf_fn_run_plan(fn, p, feeds, false);
    return st ? st : hand_out(fn, p, feeds, fetches);
}

weft_status weft_fn_repeat(weft_fn *fn, int64_t n, const weft_tensor *feeds, weft_tensor *fetches)
{
    struct wf_plan *p;
    weft_status st = prepare_run(fn, feeds, fetches, &p);

    if (!st && n < 1)
        st = wf_err(WEFT_EINVAL, "%lld runs: at least one is needed", (long long)n);
    for (int64_t i = 0; i < n && !st;) {
        if (i > 0 && wf_away_repeats(fn, p)) {
            fn->step = fn->store->step;
            st = wf_away_repeat(fn, p, n - i);
            fn->store->step = fn->step;
            i = n;
        } else {
            st = wf_fn_run_plan(fn, p, feeds, false);
            i++;
        }
    }
    return st ? st : hand_out(fn, p, feeds, fetches);
}

weft_status wf_fn_run_at(weft_fn *fn, const struct wf_run *at, const weft_tensor *feeds,
                         weft_tensor *fetches)
{
    int shard = fn->shard;
    struct wf_plan *p;
    weft_status st = prepare_run(fn, feeds, fetches, &p);

    if (!st && !fn->away)
        st = set_base(fn, &at->base);
    if (st)
        return st;
    fn->step = at->step;
    fn->shard = at->shard;
    fn->hooks = at->hooks;
    st = run_where_it_lives(fn, p, &at->base, feeds, false);
    if (!st)
        st = hand_out(fn, p, feeds, fetches);
    fn->shard = shard;
    fn->hooks = NULL;
    return st;
}

void wf_fn_set_pool(weft_fn *fn, struct wf_pool *pool)
{
    fn->pool = pool;
}

int64_t weft_fn_step(const weft_fn *fn)
{
    return fn->store->step;
}

void weft_fn_set_step(weft_fn *fn, int64_t step)
{
    fn->store->step = step;
}

void weft_fn_set_shard(weft_fn *fn, int shard)
{
    fn->shard = shard;
}

/* ---- variables ------------------------------------------------------------------------------- */

static weft_status find_var(weft_fn *fn, const char *name, const struct wf_segment **out)
{
    *out = wf_store_find(fn->store, name);
    if (*out && (*out)->remote)
        return wf_err(WEFT_ENOSUP, "table '%s' is not in this process's memory", name);
    return *out ? WEFT_OK : wf_err(WEFT_ENOENT, "no variable '%s'", name);
}

static weft_status same_type(const struct wf_segment *s, const weft_tensor *t)
{
    struct wf_type given = wf_type_of(t->dtype, t->rank, t->dim);
    char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

    if (given.dtype == s->type.dtype && wf_type_same_shape(&given, &s->type) && t->data)
        return WEFT_OK;
    return wf_err(WEFT_ESHAPE, "variable '%s': expected %s, got %s%s", s->name,
                  wf_type_text(&s->type, a), wf_type_text(&given, b),
                  t->data ? "" : " without data");
}

/* The host's vectors may be read and written until the next run. */
static weft_status open_part(weft_fn *fn, unsigned part)
{
    weft_status st = wf_store_pull(fn->store, part);

    if (!st)
        wf_store_touch(fn->store, part);
    return st;
}

weft_status weft_fn_view(weft_fn *fn, const char *name, weft_tensor *out)
{
    const struct wf_segment *s;
    weft_status st = find_var(fn, name, &s);

    if (!st)
        st = open_part(fn, wf_segment_part(s));
    if (!st)
        *out = weft_view(s->type.dtype, wf_store_data(fn->store, s), s->type.rank, s->type.dim);
    return st;
}

weft_status weft_fn_get(weft_fn *fn, const char *name, weft_tensor *out)
{
    const struct wf_segment *s;
    weft_status st = find_var(fn, name, &s);

    if (!st)
        st = same_type(s, out);
    if (!st)
        st = wf_store_pull(fn->store, wf_segment_part(s));
    if (!st)
        memcpy(out->data, wf_store_data(fn->store, s), (size_t)wf_type_bytes(&s->type));
    return st;
}

weft_status weft_fn_set(weft_fn *fn, const char *name, const weft_tensor *value)
{
    const struct wf_segment *s;
    weft_status st = find_var(fn, name, &s);

    if (!st)
        st = same_type(s, value);
    if (!st)
        st = open_part(fn, wf_segment_part(s));
    if (!st)
        memcpy(wf_store_data(fn->store, s), value->data, (size_t)wf_type_bytes(&s->type));
    return st;
}

weft_status weft_fn_reset(weft_fn *fn)
{
    return wf_store_reset(fn->store);
}

int64_t weft_fn_n_segments(const weft_fn *fn)
{
    return fn->store->n_flat;
}

static weft_status find_segment(const weft_fn *fn, int64_t i, const struct wf_segment **out)
{
    if (i < 0 || i >= fn->store->n_flat)
        return wf_err(WEFT_ERANGE, "segment %lld does not exist; there are %d", (long long)i,
                      fn->store->n_flat);
    *out = &fn->store->seg[fn->store->by_number[i]];
    return WEFT_OK;
}

weft_status weft_fn_segment(const weft_fn *fn, int64_t i, weft_segment *out)
{
    const struct wf_segment *g = NULL;
    weft_status st = find_segment(fn, i, &g);

    if (st)
        return st;
    *out = (weft_segment){
        .name = g->name, .offset = g->offset, .count = g->count, .rank = g->type.rank};
    memcpy(out->dim, g->type.dim, sizeof out->dim);
    return WEFT_OK;
}

float *weft_fn_params(weft_fn *fn, int64_t *count)
{
    *count = fn->store->n_params;
    return open_part(fn, WF_PART_PARAMS) ? NULL : fn->store->params;
}

weft_status weft_fn_slot(weft_fn *fn, int64_t i, int k, weft_tensor *out)
{
    const struct wf_segment *g = NULL;
    weft_status st = find_segment(fn, i, &g);
    float *slot = st ? NULL : wf_store_slot(fn->store, g, k);

    if (st)
        return st;
    if (!slot)
        return wf_err(WEFT_ENOENT, "'%s' has no slot %d", g->name, k);
    st = open_part(fn, WF_PART_SLOTS);
    if (st)
        return st;
    *out = weft_view(WEFT_F32, slot, g->type.rank, g->type.dim);
    return WEFT_OK;
}

float *weft_fn_gradients(weft_fn *fn, int64_t *count)
{
    *count = fn->n_groups * fn->store->n_params;
    if (set_base(fn, NULL))
        return NULL;
    return fn->away && wf_away_gradients(fn, fn->grads) ? NULL : fn->grads;
}
