/* spaces.c - plans of functions on a device with memory of its own: where each node runs, and
 * copies between the two memories.
 *
 * Variables, gradients and what the device computes are in its memory; feeds, constants and what
 * the host computes are in the host's. A node runs on the device unless a device scope names a cpu,
 * the device has no kernel for it, or it looks up rows that somebody else holds. An operand in the
 * other memory is copied by a node of its own (transfer), once, whoever reads it. A node that
 * updates a variable leaves it where it is: if it runs on the host, away.c copies the variable
 * there and back. */
#include "exec/exec.h"

static struct wf_segment *segment_of(const weft_fn *fn, const weft_graph *g, int32_t v)
{
    const struct wf_node *n = v ? &g->nodes[g->values[v].node] : NULL;

    return n && n->op->id == WF_OP_variable ? wf_store_segment(fn->store, n) : NULL;
}

static bool is_remote(const weft_fn *fn, const weft_graph *g, int32_t v)
{
    const struct wf_segment *seg = segment_of(fn, g, v);

    return seg && seg->remote;
}

/* Whether a leaf of the graph is in the host's memory. */
static bool leaf_is_here(const weft_fn *fn, const struct wf_node *n)
{
    return n->op->id != WF_OP_variable && !(n->feed >= 0 && n->feed < fn->n_feeds_away);
}

bool wf_runs_on_host(const struct wf_plan *p, const struct wf_node *n)
{
    int device = WF_DEVICE_DEFAULT;

    if (!p->dev)
        return true;
    return *n->device && !wf_device_find(p->ctx, n->device, &device) &&
           device != WF_DEVICE_DEFAULT && device < p->ctx->n_groups;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static weft_status keep(struct wf_plan *p, const struct wf_node *n, const struct wf_choice *c)
{
    struct wf_choice *copy;

    if (n->uid < 0 || n->uid >= p->n_choices)
        return WEFT_OK;
    copy = wf_arena_alloc(&p->arena, sizeof *copy);
    if (!copy)
        return wf_err_nomem(p->ctx, sizeof *copy, "plan");
    *copy = *c;
    p->choice[n->uid] = copy;
    return WEFT_OK;
}

/* Where node n runs: *host. */
static weft_status decide(struct wf_plan *p, weft_fn *fn, const struct wf_node *n, bool *host)
{
    struct wf_choice c;
    int device;
    weft_status st;

    *host = wf_runs_on_host(p, n);
    if (*host)
        return WEFT_OK;
    if (*n->device && !wf_device_find(p->ctx, n->device, &device) &&
        wf_device_own(p->ctx, device) != p->dev)
        return wf_err(WEFT_ENOSUP,
                      "'%s' (%s) is placed on %s, but its function is on %s: one function computes "
                      "on one device and on the cpu",
                      n->name, n->op->name, n->device, p->dev->name);
    for (int i = 0; i < n->n_in; i++)
        if (is_remote(fn, p->graph, n->in[i]) && n->op->id != WF_OP_embedding_grad) {
            *host = true;
            return WEFT_OK;
        }
    st = n->op->user ? WEFT_ENOSUP : wf_plan_choose(p, n, false, 1, fn->opts.reference_kernels, &c);
    if (!st)
        return keep(p, n, &c);
    if (st != WEFT_ENOSUP)
        return wf_err_wrap(st, "'%s' (%s)", n->name, n->op->name);
    if (p->ctx->strict_devices)
        return wf_err(WEFT_ENOSUP,
                      "'%s' (%s): %s has no kernel for it; without the word strict in the devices "
                      "it would run on the cpu",
                      n->name, n->op->name, p->dev->name);
    *host = true;
    return WEFT_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct spaces {
    struct wf_rewrite rw;
    struct wf_plan *p;
    weft_fn *fn;
    bool *on_host;  /* by old value: in the host's memory */
    int32_t *other; /* by old value: its copy in the other memory, a new value; 0: none yet */
};

/* The copy of old value v in the other memory. */
static weft_status transfer(struct spaces *s, int32_t v, int32_t *out)
{
    struct wf_set to_host = WF_SET_BOOL("host", !s->on_host[v]);
    weft_val made;

    if (!s->other[v]) {
        made = wf_build(s->rw.to, WF_OP_transfer, 1, (weft_val[]){{s->rw.map[v]}}, 1, &to_host);
        if (s->rw.to->st)
            return s->rw.to->st;
        wf_rewrite_name(&s->rw, made.id, &s->rw.from->nodes[s->rw.from->values[v].node]);
        s->rw.to->nodes[s->rw.to->values[made.id].node].device = "";
        s->other[v] = made.id;
    }
    *out = s->other[v];
    return WEFT_OK;
}

static bool is_leaf_of_host(const weft_graph *g, int32_t v)
{
    int id = g->nodes[g->values[v].node].op->id;

    return id == WF_OP_constant || id == WF_OP_placeholder;
}

/* Copies node k, with its operands in the memory where it runs. */
static weft_status rewrite_node(struct spaces *s, int64_t k)
{
    const weft_graph *g = s->rw.from;
    const struct wf_node *n = &g->nodes[k];
    bool host = false, leaf = n->op->flags & WF_LEAF, view = n->op->flags & WF_VIEW;
    weft_status st = WEFT_OK;

    wf_rewrite_inputs(&s->rw, k);
    if (leaf)
        host = leaf_is_here(s->fn, n);
    else if (view && n->in[0]) /* views of feeds are views of their copies */
        host = s->on_host[n->in[0]] && (!is_leaf_of_host(g, n->in[0]) || wf_runs_on_host(s->p, n));
    else
        st = decide(s->p, s->fn, n, &host);
    for (int i = 0; i < n->n_in && !st; i++)
        if (n->in[i] && s->on_host[n->in[i]] != host && !is_remote(s->fn, g, n->in[i]) &&
            !(i == 0 && (n->op->flags & WF_STATE_IN0)))
            st = transfer(s, n->in[i], &s->rw.in[i]);
    if (!st)
        st = wf_rewrite_copy_as(&s->rw, n, false);
    if (st)
        return st;
    if (host && !leaf && !view && !wf_runs_on_host(s->p, n))
        s->rw.to->nodes[s->rw.to->values[s->rw.map[n->first_out]].node].device = "cpu:0";
    for (int i = 0; i < n->n_out; i++)
        s->on_host[n->first_out + i] = host && !(i == 0 && (n->op->flags & WF_STATE_IN0));
    return WEFT_OK;
}

/* Where the values of the new graph are. */
static weft_status find_spaces(struct wf_plan *p, const weft_fn *fn)
{
    const weft_graph *g = p->graph;

    p->on_host = wf_arena_alloc(&p->arena, (size_t)g->n_values);
    if (!p->on_host)
        return wf_err_nomem(p->ctx, (size_t)g->n_values, "plan");
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        bool host = wf_runs_on_host(p, n);

        if (n->op->flags & WF_LEAF)
            host = leaf_is_here(fn, n);
        else if (n->op->id == WF_OP_transfer)
            host = wf_node_int(n, "host");
        else if ((n->op->flags & WF_VIEW) && n->in[0])
            host = p->on_host[n->in[0]];
        for (int i = 0; i < n->n_out; i++)
            p->on_host[n->first_out + i] = host && !(i == 0 && (n->op->flags & WF_STATE_IN0));
    }
    return WEFT_OK;
}

weft_status wf_plan_spaces(struct wf_plan *p, weft_fn *fn, int n_roots)
{
    struct spaces s = {.p = p, .fn = fn};
    weft_graph *to = NULL;
    int first_gradient = fn->n_fetches + fn->n_updates;
    weft_status st = wf_rewrite_begin(&s.rw, p->graph, n_roots, p->roots);

    s.on_host = wf_alloc_n(p->ctx, p->graph->n_values, sizeof *s.on_host);
    s.other = wf_alloc_n(p->ctx, p->graph->n_values, sizeof *s.other);
    s.rw.root = wf_alloc_n(p->ctx, n_roots + 1, sizeof *s.rw.root);
    p->n_choices = p->graph->next_uid;
    p->choice = wf_arena_alloc(&p->arena, (size_t)(p->n_choices + 1) * sizeof *p->choice);
    if (!st && (!s.on_host || !s.other || !s.rw.root || !p->choice))
        st = wf_err_nomem(p->ctx, (size_t)p->graph->n_values, "plan");
    for (int64_t k = 0; k < p->graph->n_nodes && !st; k++)
        if (s.rw.live[k])
            st = rewrite_node(&s, k);
    for (int i = first_gradient; i < n_roots && !st; i++)
        if (s.on_host[p->roots[i]])
            st = transfer(&s, p->roots[i], &s.rw.root[i]);
    st = wf_rewrite_end(&s.rw, st, n_roots, p->roots, &to);
    wf_free(p->ctx, s.on_host);
    wf_free(p->ctx, s.other);
    wf_free(p->ctx, s.rw.root);
    if (st)
        return st;
    p->chosen = p->graph; /* kernels' states may point to its attributes */
    p->graph = to;
    return find_spaces(p, fn);
}

weft_status wf_run_transfer(const struct wf_call *c)
{
    const struct wf_device *d = c->state;
    int64_t bytes = wf_type_bytes(&c->out[0].type);

    if (bytes == 0)
        return WEFT_OK;
    return d->ops.copy(d->dev, c->stream, wf_call_int(c, "host") ? WEFT_COPY_OUT : WEFT_COPY_IN,
                       c->out[0].data, c->in[0].data, (size_t)bytes);
}
