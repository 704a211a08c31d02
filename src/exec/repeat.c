/* repeat.c - runs of a function that follow each other on its device, without the host in between
 * (weft_fn_repeat).
 *
 * Each run is a launch of the recorded run. Where runs are short, several are recorded as one
 * launch: they differ in nothing but the addresses of their step blocks, and all but the last leave
 * out what only fetches need. */
#include "exec/away.h"

enum { RING = 64, MOST_NODES = 512, MOST_RUNS = 32 };

void wf_repeat_forget(struct wf_plan *p)
{
    if (p->recorded_many)
        p->dev->ops.recorded_free(p->dev->dev, p->recorded_many);
    p->recorded_many = NULL;
    p->n_many = 0;
}

bool wf_away_repeats(const weft_fn *fn, const struct wf_plan *p)
{
    return fn->away && p->recorded;
}

/* ---- what only fetches need ------------------------------------------------------------------ */

static bool is_needed(const struct wf_plan *p, const struct wf_instr *in, const bool *needed)
{
    const struct wf_node *n = &p->graph->nodes[in->node];

    if (in->fails || (n->op->flags & (WF_STATE_IN0 | WF_EFFECT)))
        return true;
    for (int i = 0; i < n->n_out; i++) {
        int32_t r = p->root[n->first_out + i];

        if (needed[r] || p->loc[r].place != WF_SLAB)
            return true;
    }
    return false;
}

/* Instructions that run together are left out together. */
static void level_groups(struct wf_plan *p)
{
    for (int64_t i = 0, n; i < p->n_instr; i += n) {
        bool all = true;

        n = wf_max_i64(p->instr[i].n_together, 1);
        for (int64_t k = i; k < i + n; k++)
            all = all && p->instr[k].for_fetch;
        for (int64_t k = i; k < i + n; k++)
            p->instr[k].for_fetch = all;
    }
}

static weft_status find_for_fetch(struct wf_plan *p)
{
    bool *needed = wf_alloc_n(p->ctx, p->graph->n_values, sizeof *needed);

    if (!needed)
        return wf_err_nomem(p->ctx, (size_t)p->graph->n_values, "plan");
    for (int64_t i = p->n_instr - 1; i >= 0; i--) {
        struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];

        in->for_fetch = !is_needed(p, in, needed);
        for (int k = 0; k < n->n_in && !in->for_fetch; k++)
            if (n->in[k])
                needed[p->root[n->in[k]]] = true;
    }
    wf_free(p->ctx, needed);
    level_groups(p);
    return WEFT_OK;
}

/* ---- several runs as one launch -------------------------------------------------------------- */

/* The step blocks of all instructions: at `block`. */
static void use_block(struct wf_plan *p, char *block)
{
    for (int64_t i = 0; i < p->n_instr; i++) {
        struct wf_instr *in = &p->instr[i];

        in->call.step = (const void *)block;
        in->call.own = in->own_at < 0 ? NULL : block + WF_OWN_AT + in->own_at;
    }
}

static weft_status enqueue_runs(weft_fn *fn, struct wf_plan *p, int n)
{
    weft_status st = WEFT_OK;
    int64_t done;

    for (int k = 0; k < n && !st; k++) {
        use_block(p, p->blocks + k * wf_away_block_bytes(p));
        st = wf_away_run_from(fn, p, p->n_feeds, false, k + 1 == n, &done);
    }
    use_block(p, fn->away->block);
    return st;
}

static weft_status record_runs(weft_fn *fn, struct wf_plan *p, int n)
{
    struct wf_away *a = fn->away;
    const weft_device_ops *ops = &a->dev->ops;
    int64_t bytes = n * wf_away_block_bytes(p);
    void *recorded = NULL;
    weft_status st = find_for_fetch(p), ended;

    if (!st && p->blocks_bytes < bytes) {
        wf_dev_free(a->dev, p->blocks, p->blocks_bytes);
        p->blocks = NULL;
        p->blocks_bytes = 0;
        st = wf_dev_alloc(a->dev, bytes, "step blocks", (void **)&p->blocks);
        p->blocks_bytes = st ? 0 : bytes;
    }
    if (!st)
        st = ops->capture_begin(a->dev->dev, a->stream);
    if (st)
        return st;
    st = enqueue_runs(fn, p, n);
    ended = ops->capture_end(a->dev->dev, a->stream, &recorded);
    if (!ended && st)
        ops->recorded_free(a->dev->dev, recorded);
    st = st ? st : ended;
    if (!st) {
        p->recorded_many = recorded;
        p->n_many = n;
    }
    return st;
}

/* Records several runs if they are short and n of them are worth it. */
static void try_many(weft_fn *fn, struct wf_plan *p, int64_t n)
{
    int64_t many = wf_min_i64(MOST_RUNS, MOST_NODES / wf_max_i64(p->n_instr, 1));

    if (p->n_many != 0 || many < 2 || n < 2 * many || !p->can_capture)
        return;
    if (record_runs(fn, p, (int)many)) {
        wf_log(fn->ctx, WEFT_LOG_WARN, "%s: several runs cannot be recorded: %s",
               fn->away->dev->name, weft_error());
        p->n_many = -1;
    }
}

/* Enqueues k runs, as one launch if they are as many as were recorded. Their blocks wait in the
 * ring until they are copied. */
static weft_status enqueue(weft_fn *fn, struct wf_plan *p, char *ring, int64_t k)
{
    struct wf_away *a = fn->away;
    int64_t bytes = wf_away_block_bytes(p);
    weft_status st;

    for (int64_t i = 0; i < k; i++) {
        wf_away_fill_block(fn, p, ring + i * bytes);
        fn->step += fn->updates;
    }
    st = wf_away_enqueue_copy(a, WEFT_COPY_IN, k > 1 ? p->blocks : a->block, ring, k * bytes);
    a->pending = true;
    if (!st)
        st = a->dev->ops.replay(a->dev->dev, a->stream, k > 1 ? p->recorded_many : p->recorded);
    if (st && fn->updates)
        fn->step -= k;
    return st;
}

weft_status wf_away_repeat(weft_fn *fn, struct wf_plan *p, int64_t n)
{
    struct wf_away *a = fn->away;
    int64_t bytes = wf_away_block_bytes(p), used = 0;
    weft_status st = wf_away_grow_host(a, &a->ring, &a->ring_bytes, bytes * RING);

    if (!st)
        try_many(fn, p, n);
    /* words of trouble stay as they are */
    for (int64_t k; n > 0 && !st; n -= k) {
        k = p->n_many > 1 && n >= p->n_many ? p->n_many : 1;
        if (used + k > RING) {
            st = wf_away_wait(a);
            used = 0;
        }
        if (!st)
            st = enqueue(fn, p, a->ring + used * bytes, k);
        used += k;
    }
    if (!st)
        st = wf_away_finish(fn, p);
    else
        wf_away_wait(a);
    wf_home_wrote(fn->store, fn->writes);
    return st;
}
