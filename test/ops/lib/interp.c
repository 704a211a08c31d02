/* interp.c - runs a graph node by node, every value in memory of its own with a guard after it.
 * No plan, no reuse, no passes: slow and hard to get wrong. */
#include "kernels/kernels.h"
#include "ops/harness.h"
#include "ops/lib/row.h"

#define GUARD 64
#define GUARD_BYTE 0xa5

static void *guarded(weft_ctx *ctx, int64_t bytes)
{
    char *p = wf_alloc(ctx, (size_t)bytes + GUARD);

    if (p)
        memset(p, GUARD_BYTE, (size_t)bytes + GUARD);
    return p;
}

static bool guard_intact(const void *data, int64_t bytes)
{
    const unsigned char *p = (const unsigned char *)data + bytes;

    for (int i = 0; i < GUARD; i++)
        if (p[i] != GUARD_BYTE)
            return false;
    return true;
}

/* The nodes to run: what the fetches need, control dependencies included. */
static void mark(const weft_graph *g, int n_fetch, const weft_val *fetch, bool *needed)
{
    for (int i = 0; i < n_fetch; i++)
        if (fetch[i].id)
            needed[g->values[fetch[i].id].node] = true;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const struct wf_node *n = &g->nodes[k];

        for (int i = 0; needed[k] && i < n->n_in; i++)
            if (n->in[i])
                needed[g->values[n->in[i]].node] = true;
        for (int i = 0; needed[k] && i < n->n_ctrl; i++)
            needed[n->ctrl[i]] = true;
    }
}

/* The rule with known sizes must agree with what it said when the graph was built. */
static weft_status check_types(const weft_graph *g, const struct wf_node *n,
                               const struct wf_type *got)
{
    char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

    for (int i = 0; i < n->n_out; i++) {
        const struct wf_type *said = &g->values[n->first_out + i].type;
        bool ok =
            said->dtype == got[i].dtype && said->rank == got[i].rank && wf_type_bytes(&got[i]) >= 0;

        for (int d = 0; ok && d < said->rank; d++)
            ok = said->dim[d] < 0 || said->dim[d] == got[i].dim[d];
        if (!ok)
            return wf_err(WEFT_EBUG, "%s: output %d was announced as %s, is %s", n->op->name, i,
                          wf_type_text(said, a), wf_type_text(&got[i], b));
    }
    return WEFT_OK;
}

static weft_status call_kernel(struct op_run *run, const struct wf_node *n,
                               const struct op_run_opts *o, struct wf_call *c,
                               const struct wf_type *in, const struct wf_type *out)
{
    struct wf_arena arena;
    struct wf_kplan p = {.ctx = run->ctx,
                         .arena = &arena,
                         .op = n->op,
                         .attr = n->attr,
                         .n_in = n->n_in,
                         .n_out = n->n_out,
                         .in = in,
                         .out = out,
                         .n_threads = weft_ctx_threads(run->ctx)};
    const struct wf_kernel *k = NULL;
    weft_status st;

    wf_arena_init(&arena, run->ctx);
    if (o->device) {
        bool fell_back;

        c->iteration = 1;
        st = op_call_on(o->device->device, &p, c, &fell_back);
        device_run_note(o->device, n->op->name, n->n_in ? in[0].dtype : out[0].dtype, fell_back);
        if (!fell_back) {
            wf_arena_free(&arena);
            return st;
        }
    }
    st = wf_kernel_choose(&p, !o->fast, &k);
    if (!st && o->impl && in[0].dtype == WEFT_F32 && !strcmp(n->op->name, o->op) &&
        strcmp(p.impl, o->impl))
        st = wf_err(WEFT_EBUG, "%s is computed by '%s', not by '%s'", o->op, p.impl, o->impl);
    if (!st) {
        int64_t used;
        uint64_t mode;

        c->state = p.state;
        c->scratch = guarded(run->ctx, (int64_t)p.scratch_bytes);
        used = weft_ctx_memory(run->ctx);
        mode = wf_fpmode_enter(run->ctx->flush_denormals);
        st = k->run(c);
        wf_fpmode_leave(mode);
        if (!st && !guard_intact(c->scratch, (int64_t)p.scratch_bytes))
            st = wf_err(WEFT_EBUG, "%s wrote beyond its scratch", p.impl);
        if (!st && weft_ctx_memory(run->ctx) != used)
            st = wf_err(WEFT_EBUG, "%s allocated while running", p.impl);
        wf_free(run->ctx, c->scratch);
        if (st)
            wf_err_wrap(st, "%s", p.impl);
    }
    wf_arena_free(&arena);
    return st;
}

static weft_status run_node(struct op_run *run, const weft_graph *g, int64_t k,
                            const struct op_run_opts *o)
{
    const struct wf_node *n = &g->nodes[k];
    struct wf_type *in = wf_alloc_n(run->ctx, n->n_in + 1, sizeof *in), out[WF_MAX_OUT] = {{0}};
    struct wf_tensor *tin = wf_alloc_n(run->ctx, n->n_in + 1, sizeof *tin),
                     *tout = &run->val[n->first_out];
    struct wf_infer r = {n->op, n->attr, n->n_in, n->n_out, in, out};
    struct wf_call c = {.ctx = run->ctx,
                        .pool = run->ctx->pool,
                        .op = n->op,
                        .attr = n->attr,
                        .n_in = n->n_in,
                        .n_out = n->n_out,
                        .in = tin,
                        .out = tout,
                        .rng = o->rng};
    weft_status st;

    for (int i = 0; i < n->n_in; i++) {
        tin[i] = run->val[n->in[i]];
        in[i] = tin[i].type;
    }
    st = n->op->infer(&r);
    if (!st)
        st = check_types(g, n, out);
    for (int i = 0; i < n->n_out && !st; i++) {
        tout[i] = (struct wf_tensor){out[i], guarded(run->ctx, wf_type_bytes(&out[i]))};
        if (!tout[i].data)
            st = wf_err_nomem(run->ctx, 0, "test");
    }
    if (!st && o->in_place && (n->op->flags & WF_INPLACE) && n->n_in &&
        in[0].dtype == out[0].dtype && wf_type_same_shape(&in[0], &out[0])) {
        memcpy(tout[0].data, tin[0].data, (size_t)wf_type_bytes(&in[0]));
        tin[0].data = tout[0].data;
    }
    c.rng.node = (uint32_t)n->uid;
    if (!st)
        st = call_kernel(run, n, o, &c, in, out);
    for (int i = 0; i < n->n_out && !st; i++)
        if (!guard_intact(tout[i].data, wf_type_bytes(&out[i])))
            st = wf_err(WEFT_EBUG, "%s wrote beyond output %d", n->op->name, i);
    wf_free(run->ctx, in);
    wf_free(run->ctx, tin);
    return st;
}

static weft_status run_leaf(struct op_run *run, const weft_graph *g, int64_t k, int n_feed,
                            const weft_val *feed, const struct wf_tensor *feeds)
{
    const struct wf_node *n = &g->nodes[k];
    struct wf_tensor from = {g->values[n->first_out].type, NULL};
    int64_t bytes;

    memcpy(&from.data, &n->data, sizeof n->data);
    for (int i = 0; i < n_feed; i++)
        if (feed[i].id == n->first_out)
            from = feeds[i];
    bytes = wf_type_bytes(&from.type);
    if (bytes < 0 || (bytes && !from.data))
        return wf_err(WEFT_EBUG, "'%s' is not fed", n->name);
    run->val[n->first_out] = (struct wf_tensor){from.type, guarded(run->ctx, bytes)};
    if (!run->val[n->first_out].data)
        return wf_err_nomem(run->ctx, (size_t)bytes, "test");
    if (bytes)
        memcpy(run->val[n->first_out].data, from.data, (size_t)bytes);
    return WEFT_OK;
}

weft_status op_run(weft_ctx *ctx, const weft_graph *g, int n_feed, const weft_val *feed,
                   const struct wf_tensor *feeds, int n_fetch, const weft_val *fetch,
                   const struct op_run_opts *opts, struct op_run *out)
{
    static const struct op_run_opts defaults = {0};
    bool *needed = wf_alloc_n(ctx, g->n_nodes + 1, sizeof *needed);
    weft_status st = WEFT_OK;

    *out = (struct op_run){ctx, wf_alloc_n(ctx, g->n_values, sizeof *out->val), g->n_values};
    mark(g, n_fetch, fetch, needed);
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (needed[k])
            st = g->nodes[k].op->flags & WF_LEAF ? run_leaf(out, g, k, n_feed, feed, feeds)
                                                 : run_node(out, g, k, opts ? opts : &defaults);
    wf_free(ctx, needed);
    return st;
}

void op_run_free(struct op_run *run)
{
    for (int64_t i = 0; i < run->n_values; i++)
        wf_free(run->ctx, run->val[i].data);
    if (run->ctx)
        wf_free(run->ctx, run->val);
    *run = (struct op_run){0};
}
