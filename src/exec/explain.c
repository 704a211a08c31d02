/* explain.c - a plan as text, and a run as a trace. */
#include "base/device.h"
#include "exec/exec.h"

#define MAX_TEXT ((int64_t)64 << 20)

static void print_loc(struct wf_buf *b, const struct wf_plan *p, int32_t v)
{
    static const char *const names[] = {"?",     "slab",  "feed", "const", "param",
                                        "table", "state", "grad", "host",  "const"};
    struct wf_loc l = p->loc[p->root[v]];

    wf_buf_printf(b, "%s+%lld", names[l.place], (long long)l.offset);
}

static void print_instr(struct wf_buf *b, const struct wf_plan *p, int64_t i, int runs)
{
    const struct wf_instr *in = &p->instr[i];
    const struct wf_node *n = &p->graph->nodes[in->node];
    char text[WF_TYPE_TEXT], name[24];

    wf_buf_printf(b, "%4lld  ", (long long)i);
    if (runs)
        wf_buf_printf(b, "%9.1f us  ", (double)in->time_ns / 1e3 / runs);
    wf_buf_printf(b, "%-18s %-14s", n->op->name, in->impl);
    for (int k = 0; k < n->n_out; k++) {
        wf_buf_printf(b, " %s @", wf_type_text(&p->graph->values[n->first_out + k].type, text));
        print_loc(b, p, n->first_out + k);
    }
    wf_buf_printf(b, " <-");
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k])
            continue;
        wf_buf_printf(b, " %s @", wf_type_text(&p->graph->values[n->in[k]].type, text));
        print_loc(b, p, n->in[k]);
    }
    if (n->op->user && n->op->flags == 0)
        wf_buf_printf(b, "  (user op)");
    wf_buf_printf(b, "  %s", in->name);
    if (p->dev && n->op->id == WF_OP_transfer)
        wf_buf_printf(b, "  to %s", wf_node_int(n, "host") ? "the host" : p->dev->name);
    else if (in->device != WF_DEVICE_DEFAULT)
        wf_buf_printf(b, "  on %s", wf_device_name(p->ctx, in->device, name));
    wf_buf_printf(b, "\n");
}

/* Where the plan computes, and what it copies. */
static void print_device(struct wf_buf *b, const struct wf_plan *p)
{
    int64_t in_bytes = 0, out_bytes = 0, n_host = 0;

    for (int64_t i = 0; i < p->n_instr; i++) {
        const struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];
        int64_t bytes = wf_type_bytes(&p->graph->values[n->first_out].type);

        n_host += in->on_host;
        if (n->op->id == WF_OP_transfer)
            *(wf_node_int(n, "host") ? &out_bytes : &in_bytes) += bytes;
    }
    wf_buf_printf(b,
                  "device: on %s (%s), %lld instructions on the host; a run copies %lld bytes to "
                  "it and %lld back, fetches %lld%s\n",
                  p->dev->name, p->dev->info.model, (long long)n_host, (long long)in_bytes,
                  (long long)out_bytes, (long long)p->fetch_bytes,
                  p->can_capture && p->dev->ops.capture_begin ? "; it becomes one launch" : "");
}

/* Memory for feeds without data, so that a timed run has something to read. */
static weft_status fill_feeds(weft_fn *fn, const weft_tensor *feeds, weft_tensor **out)
{
    weft_tensor *copy = wf_alloc_n(fn->ctx, fn->n_feeds + 1, sizeof *copy);

    if (!copy)
        return wf_err_nomem(fn->ctx, sizeof *copy, "explain");
    for (int i = 0; i < fn->n_feeds; i++) {
        copy[i] = feeds[i];
        if (!feeds[i].data)
            copy[i].data = wf_alloc(fn->ctx, (size_t)weft_tensor_bytes(&feeds[i]) + 1);
        if (!copy[i].data) {
            for (int k = 0; k < i; k++)
                if (!feeds[k].data)
                    wf_free(fn->ctx, copy[k].data);
            wf_free(fn->ctx, copy);
            return wf_err_nomem(fn->ctx, (size_t)weft_tensor_bytes(&feeds[i]), "explain");
        }
    }
    *out = copy;
    return WEFT_OK;
}

static void free_feeds(weft_fn *fn, const weft_tensor *feeds, weft_tensor *copy)
{
    for (int i = 0; i < fn->n_feeds; i++)
        if (!feeds[i].data)
            wf_free(fn->ctx, copy[i].data);
    wf_free(fn->ctx, copy);
}

/* Explaining does not train: variables, slots and the step number are restored. */
static weft_status timed_runs(weft_fn *fn, struct wf_plan *p, const weft_tensor *feeds, int runs)
{
    struct wf_snapshot *before = NULL;
    weft_tensor *full = NULL;
    weft_status st = fill_feeds(fn, feeds, &full);

    if (st)
        return st;
    st = wf_snapshot_new(1, &fn, true, &before);
    if (st) {
        free_feeds(fn, feeds, full);
        return st;
    }
    wf_snapshot_save(before);
    st = wf_fn_run_plan(fn, p, full, false); /* warm up */
    for (int64_t i = 0; i < p->n_instr; i++)
        p->instr[i].time_ns = 0;
    for (int r = 0; r < runs && !st; r++)
        st = wf_fn_run_plan(fn, p, full, true);
    wf_snapshot_restore(before);
    wf_snapshot_free(before);
    free_feeds(fn, feeds, full);
    return st;
}

weft_status weft_fn_explain(weft_fn *fn, const weft_tensor *feeds, const weft_explain_opts *opts,
                            char **out)
{
    int runs = 0;
    struct wf_plan *p;
    struct wf_buf b;
    int64_t total = 0;
    weft_explain_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_explain_opts");

    if (!st)
        st = wf_fn_plan(fn, feeds, &p);
    if (!st)
        runs = o.time_runs;
    if (!st && runs > 0)
        st = timed_runs(fn, p, feeds, runs);
    if (st)
        return st;
    wf_buf_init(&b, fn->ctx, MAX_TEXT);
    wf_buf_printf(&b, "plan: %lld instructions, simd %s, %d threads, fingerprint %016llx\n",
                  (long long)p->n_instr, weft_simd_name(fn->ctx->simd), wf_pool_size(fn->ctx->pool),
                  (unsigned long long)p->fingerprint);
    if (p->dev)
        print_device(&b, p);
    for (int64_t i = 0; i < p->n_instr; i++) {
        print_instr(&b, p, i, runs);
        total += p->instr[i].time_ns;
    }
    wf_buf_printf(&b, "memory: slab %lld, scratch %lld, parameters %lld, state %lld bytes\n",
                  (long long)p->slab_bytes, (long long)p->scratch_bytes,
                  (long long)wf_store_bytes(fn->store), (long long)fn->store->n_state);
    wf_buf_printf(&b, "work: %.6g Mflop in products; planned in %.3f ms\n", p->flop / 1e6,
                  p->plan_ms);
    if (runs)
        wf_buf_printf(&b, "time: %.1f us per run, mean of %d\n", (double)total / 1e3 / runs, runs);
    if (b.st) {
        wf_buf_free(&b);
        return b.st;
    }
    *out = b.data;
    return WEFT_OK;
}

weft_status weft_fn_trace(weft_fn *fn, const weft_tensor *feeds, char **out)
{
    struct wf_plan *p;
    struct wf_buf b;
    int64_t at = 0;
    weft_status st = wf_fn_plan(fn, feeds, &p);

    if (!st)
        st = timed_runs(fn, p, feeds, 1);
    if (st)
        return st;
    wf_buf_init(&b, fn->ctx, MAX_TEXT);
    wf_buf_printf(&b, "{\"traceEvents\":[\n");
    for (int64_t i = 0; i < p->n_instr; i++) {
        const struct wf_instr *in = &p->instr[i];

        /* Names contain no quotes, backslashes or control characters: the builders ensure that. */
        wf_buf_printf(&b,
                      "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":%."
                      "3f,\"dur\":%.3f,"
                      "\"args\":{\"kernel\":\"%s\",\"flop\":%.0f}}",
                      i ? ",\n" : "", in->name, in->call.op->name, (double)at / 1e3,
                      (double)in->time_ns / 1e3, in->impl, in->flop);
        at += in->time_ns;
    }
    wf_buf_printf(&b, "\n],\"displayTimeUnit\":\"ms\"}\n");
    if (b.st) {
        wf_buf_free(&b);
        return b.st;
    }
    *out = b.data;
    return WEFT_OK;
}

weft_status weft_fn_plan_info(weft_fn *fn, const weft_tensor *feeds, weft_plan_info *out)
{
    weft_plan_info info;
    struct wf_plan *p;
    weft_status st = wf_fn_plan(fn, feeds, &p);

    if (st)
        return st;
    info = (weft_plan_info){.n_instructions = p->n_instr,
                            .slab_bytes = p->slab_bytes,
                            .scratch_bytes = p->scratch_bytes,
                            .param_bytes = wf_store_bytes(fn->store),
                            .flop = p->flop,
                            .plan_ms = p->plan_ms,
                            .fingerprint = p->fingerprint};
    return wf_opts_give(out, out->size, &info, sizeof info, "weft_plan_info");
}
