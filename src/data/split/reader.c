/* reader.c - a dealer whose batches come from an iterator, in order: streams, and pipelines whose
 * stages work on whole batches. What was dealt is kept until it is committed, and cut on request.
 *
 * Where every sample of a batch has the same shape, rows of the batch are the shard. Otherwise the
 * iterator reads samples in groups as large as a batch, and each shard is stacked or padded by
 * itself. */
#include "data/split/dealer.h"

/* ---- groups: the samples of a batch, not stacked --------------------------------------------- */

static weft_status group_open(struct wf_stage *s)
{
    return wf_stage_input(s, 0, WF_IN_EXACT, *(const int64_t *)s->ds->param);
}

static weft_status group_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status group_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    int64_t got;

    (void)want;
    return wf_promise_gather(s, *(const int64_t *)s->ds->param, out, &got);
}

static weft_status group_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    return wf_promise_make_inputs(p, w, out);
}

static void group_text(const struct wf_ds *ds, struct wf_buf *out)
{
    wf_buf_printf(out, "n=%lld", (long long)*(const int64_t *)ds->param);
}

static const struct wf_ds_kind group_kind = {
    .name = "group",
    .open = group_open,
    .reset = group_reset,
    .pull = group_pull,
    .make = group_make,
    .text = group_text,
};

static weft_ds group(weft_data *d, weft_ds s, int64_t n)
{
    struct wf_ds *ds = wf_ds_new(d, &group_kind, 1, &s, sizeof n);

    if (!ds)
        return (weft_ds){0};
    *(int64_t *)ds->param = n;
    ds->addressable = false;
    return wf_ds_handle(ds);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The reader deals one more step of its epoch, unless the epoch ends here. */
static weft_status read_next(weft_dealer *a, bool *end)
{
    struct wf_dealt k = {.epoch = a->next_epoch, .number = a->next_number};
    weft_status st;

    *end = a->at_end || (a->steps_per_epoch && a->next_number >= a->steps_per_epoch);
    if (*end)
        return WEFT_OK;
    st = a->grouped ? wf_iter_block(a->it, a->n, &k.samples) : weft_iter_next(a->it, &k.batch);
    if (st)
        return st;
    if (k.samples && k.samples->n < a->n && a->drop_remainder) {
        wf_block_free(k.samples);
        k.samples = NULL;
    }
    if (!k.batch && !k.samples) {
        *end = a->at_end = true;
        return WEFT_OK;
    }
    k.n = k.samples ? k.samples->n : k.batch->n;
    *wf_kept_at(a, a->next) = k;
    a->next++;
    a->next_number++;
    return WEFT_OK;
}

static weft_status err_empty(const weft_dealer *a)
{
    return wf_err(WEFT_ERANGE, "step %lld: epoch %lld has no batch", (long long)a->next,
                  (long long)a->next_epoch);
}

/* The next step, of this epoch or of the next one. */
static weft_status deal(weft_dealer *a)
{
    bool end;
    weft_status st = read_next(a, &end);

    if (st || !end)
        return st;
    if (a->next_number == 0)
        return err_empty(a);
    st = weft_iter_reset(a->it, a->next_epoch + 1);
    if (st)
        return st;
    a->next_epoch++;
    a->next_number = 0;
    a->at_end = false;
    st = read_next(a, &end);
    return !st && end ? err_empty(a) : st;
}

static weft_status check_open(const weft_dealer *a, int64_t t)
{
    if (t < a->committed)
        return wf_err(
            WEFT_ESTATE,
            "step %lld is committed already (up to %lld): a stream returns each step once",
            (long long)t, (long long)a->committed - 1);
    if (t - a->committed >= a->max_open)
        return wf_err(WEFT_ESTATE,
                      "step %lld: the %lld steps from %lld on are not committed, and no more are "
                      "kept: commit, or allow more (weft_dealer_opts.max_open)",
                      (long long)t, (long long)a->max_open, (long long)a->committed);
    return WEFT_OK;
}

weft_status wf_reader_has(weft_dealer *a, int64_t epoch, int64_t t, bool *has)
{
    bool end = false;
    weft_status st = check_open(a, t);

    while (!st && a->next <= t && a->next_epoch == epoch && !end)
        st = read_next(a, &end);
    *has = !st && t < a->next && wf_kept_at(a, t)->epoch == epoch;
    return st;
}

weft_status wf_reader_begin(weft_dealer *a, int64_t epoch)
{
    weft_status st = weft_iter_reset(a->it, epoch);

    if (st)
        return st;
    wf_reader_let_go(a, a->next);
    a->next = a->committed;
    a->next_epoch = epoch;
    a->next_number = 0;
    a->at_end = false;
    return WEFT_OK;
}

void wf_reader_let_go(weft_dealer *a, int64_t upto)
{
    for (int64_t t = a->committed; t < upto && t < a->next && a->kept; t++) {
        struct wf_dealt *k = wf_kept_at(a, t);

        weft_batch_free(k->batch);
        wf_block_free(k->samples);
        *k = (struct wf_dealt){0};
    }
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* Whether column c holds values of all samples end to end, and column c + 1 where each begins. */
static bool is_ragged(const weft_dealer *a, int c)
{
    const weft_column *col = a->ds->col;
    size_t n = strlen(col[c].name);

    return c + 1 < a->ds->n_cols && strncmp(col[c + 1].name, col[c].name, n) == 0 &&
           strcmp(col[c + 1].name + n, ":offsets") == 0;
}

/* Rows [first, first + m) of a column, in place. */
static void cut_rows(struct wf_col *col, int64_t first, int64_t m)
{
    int64_t row = wf_item_bytes(col->type.dtype);

    for (int k = 1; k < col->type.rank; k++)
        row *= col->type.dim[k];
    col->data = (char *)col->data + first * row;
    col->type.dim[0] = m;
}

/* The same of a ragged column and of its offsets, which start at 0. */
static weft_status cut_ragged(struct wf_block *v, struct wf_col *col, struct wf_col *offsets,
                              int64_t first, int64_t m)
{
    const int64_t *o = (const int64_t *)offsets->data + first;
    void *p = NULL;
    weft_status st = wf_block_alloc(v, (m + 1) * 8, &p);

    if (st)
        return st;
    cut_rows(col, o[0], o[m] - o[0]);
    for (int64_t i = 0; i <= m; i++)
        ((int64_t *)p)[i] = o[i] - o[0];
    offsets->data = p;
    offsets->type.dim[0] = m + 1;
    return WEFT_OK;
}

/* Rows [first, first + m) of a kept batch, as a view. A column that has no row for each sample
 * stays whole. */
static weft_status cut_batch(weft_dealer *a, const weft_batch *whole, int64_t first, int64_t m,
                             weft_batch **out)
{
    struct wf_block *b = (void *)whole->inside, *v = NULL;
    weft_status st = wf_block_new(b->env, b->n_cols, 1, &v);

    if (!st)
        st = wf_block_keep_all(v, 1, &b);
    for (int c = 0; c < b->n_cols && !st; c++) {
        weft_tensor t = wf_col_element(&b->col[c], 0);

        v->col[c] = (struct wf_col){.type = wf_type_of(t.dtype, t.rank, t.dim), .data = t.data};
    }
    for (int c = 0; c < b->n_cols && !st; c++) {
        struct wf_col *col = &v->col[c];

        if (is_ragged(a, c) && v->col[c + 1].type.dim[0] == whole->n + 1)
            st = cut_ragged(v, col, &v->col[++c], first, m);
        else if (col->type.rank > 0 && col->type.dim[0] == whole->n)
            cut_rows(col, first, m);
    }
    if (!st) {
        v->at[0] = b->sample && m ? b->sample[first] : b->at[0];
        v->sample = b->sample ? b->sample + first : NULL;
        v->n_samples = m;
        st = wf_batch_of(v, a->ds, out);
    }
    if (st)
        wf_block_free(v);
    else if (!b->sample)
        (*out)->n = m;
    return st;
}

static weft_status cut_samples(weft_dealer *a, struct wf_block *b, int64_t first, int64_t m,
                               weft_batch **out)
{
    struct wf_block *v = NULL;
    weft_status st = wf_block_slice(b, wf_min_i64(first, b->n - 1), wf_max_i64(m, 1), &v);

    return st ? st : wf_dealer_stack(a, v, m, out);
}

weft_status wf_reader_get(weft_dealer *a, int64_t t, int64_t l, weft_batch **out)
{
    const struct wf_dealt *k;
    int64_t first, m;
    weft_status st = check_open(a, t);

    while (!st && a->next <= t)
        st = deal(a);
    if (st)
        return st;
    k = wf_kept_at(a, t);
    if (a->n_shards == 1 && k->batch && wf_block_share((void *)k->batch->inside)) {
        *out = k->batch;
        return WEFT_OK;
    }
    wf_dealer_cut(a, k->n, l, &first, &m);
    return k->samples ? cut_samples(a, k->samples, first, m, out)
                      : cut_batch(a, k->batch, first, m, out);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

/* Whether the rows of a batch are what stacking a shard's samples would give. */
static bool rows_are_shards(const weft_dealer *a)
{
    for (int c = 0; c < a->samples->n_cols; c++) {
        struct wf_type t = wf_column_type(&a->samples->col[c]);

        if (!wf_type_fixed(&t))
            return a->batch->kind->batching(a->batch).ragged;
    }
    return true;
}

weft_status wf_reader_start(weft_dealer *a, const weft_dealer_opts *o)
{
    weft_ds s = wf_ds_handle(a->ds);
    weft_status st;

    a->next_epoch = o->epoch;
    a->max_open = o->max_open ? o->max_open : 16;
    a->kept = wf_alloc_n(a->ctx, a->max_open, sizeof *a->kept);
    if (!a->kept)
        return wf_err_nomem(a->ctx, (size_t)a->max_open * sizeof *a->kept, "a dealer");
    a->grouped = a->n_shards > 1 && a->batch && !rows_are_shards(a);
    if (a->grouped)
        s = group(a->data, wf_ds_handle(a->samples), a->n);
    st = weft_data_status(a->data);
    return st ? st
              : weft_iter_new(a->data, s,
                              WEFT_OPTS(weft_iter_opts, .threads = o->threads, .memory = o->memory,
                                        .epoch = o->epoch),
                              &a->it);
}

void wf_reader_stop(weft_dealer *a)
{
    wf_reader_let_go(a, a->next);
    weft_iter_free(a->it);
    wf_free(a->ctx, a->kept);
}
