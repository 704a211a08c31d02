/* batch.c - elements stacked into batches. */
#include <stdio.h>

#include "data/data.h"

struct batch {
    int64_t n;
    bool drop_remainder, ragged;
};

/* Batches [at.id], each of one epoch. A run of consecutive full batches is read together. */
static weft_status batch_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                             int64_t n, struct wf_block **out)
{
    const struct batch *p = ds->param;
    struct wf_ds *in = ds->in[0];
    struct wf_block *samples = NULL, **parts = NULL;
    struct wf_chunk *chunk = NULL;
    struct wf_at *each;
    int made = 0;
    weft_status st = WEFT_OK;

    chunk = wf_chunk_new(w->env, p->n * (int64_t)sizeof *each + n * (int64_t)sizeof *parts);
    if (!chunk)
        return wf_env_nomem(w->env, p->n * (int64_t)sizeof *each, "batch");
    each = (void *)chunk->data;
    parts = (void *)(each + p->n);
    for (int64_t i = 0; i < n && !st; i++) {
        int64_t first = at[i].id * p->n, m = wf_min_i64(p->n, in->count - first);

        for (int64_t k = 0; k < m; k++)
            each[k] = (struct wf_at){at[i].epoch, first + k};
        st = wf_ds_get_block(in, w, each, m, &samples);
        if (!st)
            st = wf_block_stack(samples, p->n, p->ragged, ds, &parts[made]);
        made += !st;
    }
    if (!st) {
        st = wf_block_concat(w->env, made, parts, out);
        made = 0;
    }
    while (made > 0)
        wf_block_free(parts[--made]);
    wf_chunk_unref(chunk);
    return st;
}

static weft_status batch_open(struct wf_stage *s)
{
    const struct batch *p = s->ds->param;

    return wf_stage_input(s, 0, WF_IN_EXACT, p->n);
}

static weft_status batch_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status batch_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct batch *p = s->ds->param;
    struct wf_promise *promise;
    int64_t n = 0;
    weft_status st;

    (void)want;
    *out = NULL;
    st = wf_promise_gather(s, p->n, &promise, &n);
    if (st || !promise)
        return st;
    if (n < p->n && p->drop_remainder) {
        wf_promise_drop(promise);
        return WEFT_OK;
    }
    promise->n = 1;
    *out = promise;
    return WEFT_OK;
}

static weft_status batch_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    const struct batch *b = p->stage->ds->param;
    struct wf_block *samples = NULL;
    weft_status st = wf_promise_make_inputs(p, w, &samples);

    return st ? st : wf_block_stack(samples, b->n, b->ragged, p->stage->ds, out);
}

static struct wf_batching batch_batching(const struct wf_ds *ds)
{
    const struct batch *p = ds->param;

    return (struct wf_batching){p->n, p->drop_remainder, p->ragged};
}

static weft_status batch_stack(struct wf_ds *ds, struct wf_block *samples, struct wf_block **out)
{
    const struct batch *p = ds->param;

    return wf_block_stack(samples, wf_max_i64(samples->n, 1), p->ragged, ds, out);
}

static void batch_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct batch *p = ds->param;

    wf_buf_printf(out, "n=%lld%s%s", (long long)p->n, p->drop_remainder ? " drop_remainder" : "",
                  p->ragged ? " ragged" : "");
}

static const struct wf_ds_kind batch_kind = {
    .name = "batch",
    .get = batch_get,
    .open = batch_open,
    .reset = batch_reset,
    .pull = batch_pull,
    .make = batch_make,
    .batching = batch_batching,
    .stack = batch_stack,
    .text = batch_text,
};

static bool varies(const weft_column *c)
{
    for (int k = 0; k < c->rank; k++)
        if (c->dim[k] < 0)
            return true;
    return false;
}

/* The columns of a batch: one more axis; a ragged one is followed by its offsets. */
static weft_status batch_columns(struct wf_ds *ds, const struct batch *p)
{
    struct wf_arena *a = &ds->data->arena;
    weft_column *col = wf_arena_alloc(a, (size_t)(2 * ds->n_cols + 1) * sizeof *col);
    bool full = p->drop_remainder || ds->in[0]->count == WEFT_ENDLESS;
    int n = 0;

    if (!col)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int c = 0; c < ds->n_cols; c++) {
        weft_column x = ds->in[0]->col[c];

        if (p->ragged && x.rank > 0 && varies(&x)) {
            size_t len = strlen(x.name) + sizeof ":offsets";
            char *name = wf_arena_alloc(a, len);
            int64_t m = full ? p->n + 1 : WEFT_ANY;

            if (!name)
                return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
            snprintf(name, len, "%s:offsets", x.name);
            x.dim[0] = WEFT_ANY;
            col[n++] = x;
            col[n] = wf_column_of(name, WEFT_I64, 1, &m);
            col[n++].role = x.role;
            continue;
        }
        if (x.rank == WEFT_MAX_RANK)
            return wf_err(WEFT_ESHAPE, "column '%s' has %d axes already", x.name, x.rank);
        memmove(x.dim + 1, x.dim, (size_t)x.rank * sizeof x.dim[0]);
        x.dim[0] = full ? p->n : WEFT_ANY;
        x.rank++;
        col[n++] = x;
    }
    return wf_ds_set_columns(ds, n, col);
}

weft_ds weft_ds_batch(weft_data *d, weft_ds s, int64_t n, const weft_batch_opts *opts)
{
    weft_batch_opts o;
    struct wf_ds *ds = wf_ds_new(d, &batch_kind, 1, &s, sizeof(struct batch));
    struct batch *p;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_batch_opts");

    if (!ds)
        return (weft_ds){0};
    if (!st && (n <= 0 || n > (int64_t)1 << 40))
        st = wf_err(WEFT_EINVAL, "%lld elements a batch", (long long)n);
    if (st)
        return wf_ds_fail(d, "batch", st);
    p = ds->param;
    p->n = n;
    p->drop_remainder = o.drop_remainder;
    p->ragged = o.ragged;
    ds->batched = true;
    if (ds->count != WEFT_UNKNOWN && ds->count != WEFT_ENDLESS)
        ds->count = p->drop_remainder ? ds->count / n : (ds->count + n - 1) / n;
    st = batch_columns(ds, p);
    return st ? wf_ds_fail(d, "batch", st) : wf_ds_handle(ds);
}
