/* memory.c - sources that need no file: tensors, numbers, callbacks. */
#include "data/stage/callback.h"
#include "data/data.h"

/* ---- tensors --------------------------------------------------------------------------------- */

struct tensors {
    weft_tensor *tensor;
};

static bool consecutive(const struct wf_at *at, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (at[i].id != at[0].id + i)
            return false;
    return true;
}

weft_status wf_rows_get(struct wf_ds *ds, struct wf_worker *w, const weft_tensor *rows,
                        const struct wf_at *at, int64_t n, struct wf_block **out)
{
    struct wf_block *b = NULL;
    bool view = consecutive(at, n);
    weft_status st = wf_block_new(w->env, ds->n_cols, n, &b);

    for (int c = 0; c < ds->n_cols && !st; c++) {
        struct wf_type t = wf_column_type(&ds->col[c]);
        const char *base = rows[c].data;
        size_t row = (size_t)(wf_type_count(&t) * wf_item_bytes(t.dtype));

        if (view) {
            b->col[c] = (struct wf_col){.type = t, .data = (char *)base + (size_t)at[0].id * row};
            continue;
        }
        st = wf_block_col(b, c, &t, 0);
        if (!st && row)
            wf_rows_gather(w->env, &(struct wf_gather){.base = base,
                                                       .row = (int64_t)row,
                                                       .out = (int64_t)row,
                                                       .at = at,
                                                       .n = n,
                                                       .to = b->col[c].data});
    }
    if (st) {
        wf_block_free(b);
        return st;
    }
    memcpy(b->at, at, (size_t)n * sizeof *at);
    *out = b;
    return WEFT_OK;
}

static weft_status tensors_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                               int64_t n, struct wf_block **out)
{
    struct tensors *p = ds->param;

    return wf_rows_get(ds, w, p->tensor, at, n, out);
}

static void count_text(const struct wf_ds *ds, struct wf_buf *out)
{
    wf_buf_printf(out, "n=%lld", (long long)ds->count);
}

static const struct wf_ds_kind tensors_kind = {
    .name = "tensors",
    .get = tensors_get,
    .text = count_text,
};

static weft_status tensors_fill(struct wf_ds *ds, int n, const weft_column *columns,
                                const weft_tensor *tensors)
{
    struct tensors *p = ds->param;
    weft_column *col;

    if (n <= 0)
        return wf_err(WEFT_EINVAL, "no tensors");
    p->tensor = wf_arena_alloc(&ds->data->arena, (size_t)n * sizeof *p->tensor);
    col = wf_arena_alloc(&ds->data->arena, (size_t)n * sizeof *col);
    if (!p->tensor || !col)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int i = 0; i < n; i++) {
        const weft_tensor *t = &tensors[i];

        if (t->rank < 1 || weft_tensor_count(t) < 0)
            return wf_err(WEFT_ESHAPE, "tensor %d has no first axis to cut along", i);
        if (t->dim[0] != tensors[0].dim[0])
            return wf_err(WEFT_ESHAPE, "tensor %d has %lld rows, but tensor 0 has %lld", i,
                          (long long)t->dim[0], (long long)tensors[0].dim[0]);
        p->tensor[i] = *t;
        col[i] = wf_column_of(columns[i].name, t->dtype, t->rank - 1, t->dim + 1);
        col[i].role = columns[i].role;
    }
    ds->count = tensors[0].dim[0];
    ds->addressable = true;
    return wf_ds_set_columns(ds, n, col);
}

weft_ds weft_ds_tensors(weft_data *d, int n, const weft_column *columns, const weft_tensor *tensors)
{
    struct wf_ds *ds = wf_ds_new(d, &tensors_kind, 0, NULL, sizeof(struct tensors));
    weft_status st = ds ? tensors_fill(ds, n, columns, tensors) : WEFT_OK;

    return st ? wf_ds_fail(d, "tensors", st) : wf_ds_handle(ds);
}

/* ---- numbers --------------------------------------------------------------------------------- */

struct numbers {
    int64_t first, step;
    uint64_t seed;
    bool random;
};

static weft_status numbers_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                               int64_t n, struct wf_block **out)
{
    const struct numbers *p = ds->param;
    struct wf_type t = wf_type_of(WEFT_I64, 0, NULL);
    struct wf_block *b = NULL;
    int64_t *v;
    weft_status st = wf_block_new(w->env, 1, n, &b);

    if (!st)
        st = wf_block_col(b, 0, &t, 0);
    if (st) {
        wf_block_free(b);
        return st;
    }
    v = b->col[0].data;
    for (int64_t i = 0; i < n; i++)
        v[i] = p->random ? (int64_t)(wf_random_word(p->seed, at[i].epoch, at[i].id, 1) >> 1)
                         : p->first + at[i].id * p->step;
    memcpy(b->at, at, (size_t)n * sizeof *at);
    *out = b;
    return WEFT_OK;
}

static void numbers_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct numbers *p = ds->param;

    if (p->random)
        wf_buf_printf(out, "seed=%llu n=%lld", (unsigned long long)p->seed, (long long)ds->count);
    else
        wf_buf_printf(out, "first=%lld step=%lld n=%lld", (long long)p->first, (long long)p->step,
                      (long long)ds->count);
}

static const struct wf_ds_kind range_kind = {
    .name = "range",
    .get = numbers_get,
    .text = numbers_text,
};
static const struct wf_ds_kind random_kind = {
    .name = "random",
    .get = numbers_get,
    .text = numbers_text,
};

static weft_ds numbers_new(weft_data *d, const struct wf_ds_kind *kind, struct numbers param,
                           int64_t count)
{
    struct wf_ds *ds = wf_ds_new(d, kind, 0, NULL, sizeof param);
    weft_column col = wf_column_of("value", WEFT_I64, 0, NULL);
    weft_status st = WEFT_OK;

    if (ds) {
        *(struct numbers *)ds->param = param;
        ds->count = count;
        ds->addressable = true;
        st = wf_ds_set_columns(ds, 1, &col);
    }
    return st ? wf_ds_fail(d, kind->name, st) : wf_ds_handle(ds);
}

weft_ds weft_ds_range(weft_data *d, int64_t first, int64_t last, int64_t step)
{
    int64_t span, count = 0;

    if (step == 0 || __builtin_sub_overflow(last, first, &span) || step == INT64_MIN)
        return wf_ds_fail(d, "range",
                          wf_err(WEFT_EINVAL, "%lld to %lld in steps of %lld", (long long)first,
                                 (long long)last, (long long)step));
    if (step > 0 && span > 0)
        count = (span - 1) / step + 1;
    if (step < 0 && span < 0)
        count = (-(span + 1)) / -step + 1;
    return numbers_new(d, &range_kind, (struct numbers){.first = first, .step = step}, count);
}

weft_ds weft_ds_random(weft_data *d, uint64_t seed, int64_t count)
{
    if (count < 0)
        return wf_ds_fail(d, "random", wf_err(WEFT_EINVAL, "%lld numbers", (long long)count));
    return numbers_new(d, &random_kind, (struct numbers){.seed = seed, .random = true},
                       count ? count : WEFT_ENDLESS);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

struct callback {
    weft_get_fn *get;
    weft_stream_fn *next;
    void *arg;
};

static weft_status callback_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                                int64_t n, struct wf_block **out)
{
    const struct callback *p = ds->param;
    struct wf_filling f;
    weft_status st = wf_filling_begin(&f, w->env, ds, n);

    for (int64_t i = 0; i < n && !st; i++) {
        st = wf_filling_next(&f, at[i]);
        if (!st)
            st = p->get(p->arg, at[i].id, &f.sample);
        if (st)
            wf_err_wrap(st, "sample %lld", (long long)at[i].id);
    }
    return wf_filling_end(&f, st, out);
}

static const struct wf_ds_kind get_kind = {
    .name = "get",
    .get = callback_get,
    .text = count_text,
};

weft_ds weft_ds_get(weft_data *d, int n, const weft_column *columns, int64_t count,
                    weft_get_fn *get, void *arg)
{
    struct wf_ds *ds = wf_ds_new(d, &get_kind, 0, NULL, sizeof(struct callback));
    weft_status st = WEFT_OK;

    if (ds) {
        *(struct callback *)ds->param = (struct callback){.get = get, .arg = arg};
        ds->addressable = true;
        ds->count = count;
        st = count < 0 || !get ? wf_err(WEFT_EINVAL, "%lld elements", (long long)count)
                               : wf_ds_set_columns(ds, n, columns);
    }
    return st ? wf_ds_fail(d, "get", st) : wf_ds_handle(ds);
}

struct stream_state {
    int64_t epoch, at;
    bool ended;
};

static weft_status stream_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(struct stream_state));
    return s->state ? WEFT_OK : wf_env_nomem(s->env, sizeof(struct stream_state), s->ds->name);
}

static void stream_close(struct wf_stage *s)
{
    wf_free(s->env->ctx, s->state);
}

static weft_status stream_reset(struct wf_stage *s, int64_t epoch)
{
    *(struct stream_state *)s->state = (struct stream_state){.epoch = epoch};
    return WEFT_OK;
}

static weft_status stream_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct stream_state *at = s->state;
    const struct callback *p = s->ds->param;
    struct wf_filling f;
    struct wf_block *b = NULL;
    int64_t n = 0;
    weft_status st;

    *out = NULL;
    if (at->ended)
        return WEFT_OK;
    st = wf_filling_begin(&f, s->env, s->ds, want);
    while (n < want && !st && !at->ended) {
        st = wf_filling_next(&f, (struct wf_at){at->epoch, at->at});
        if (!st)
            st = p->next(p->arg, at->at, &f.sample, &at->ended);
        if (st)
            wf_err_wrap(st, "sample %lld", (long long)at->at);
        else if (!at->ended) {
            n++;
            at->at++;
        }
    }
    f.n = n;
    st = wf_filling_end(&f, st, &b);
    if (st)
        return st;
    if (n == 0) {
        wf_block_free(b);
        return WEFT_OK;
    }
    *out = wf_promise_made(s, b);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status stream_save(struct wf_stage *s, struct wf_buf *out)
{
    const struct stream_state *at = s->state;

    wf_put_i64(out, at->epoch);
    wf_put_i64(out, at->at);
    wf_put_i64(out, at->ended);
    return WEFT_OK;
}

static weft_status stream_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct stream_state *at = s->state;

    at->epoch = wf_get_i64(r);
    at->at = wf_get_range(r, 0, INT64_MAX, "a sample number");
    at->ended = wf_get_range(r, 0, 1, "a flag");
    return r->st;
}

static const struct wf_ds_kind stream_kind = {
    .name = "stream",
    .open = stream_open,
    .close = stream_close,
    .reset = stream_reset,
    .pull = stream_pull,
    .save = stream_save,
    .restore = stream_restore,
};

weft_ds weft_ds_stream(weft_data *d, int n, const weft_column *columns, weft_stream_fn *next,
                       void *arg)
{
    struct wf_ds *ds = wf_ds_new(d, &stream_kind, 0, NULL, sizeof(struct callback));
    weft_status st = WEFT_OK;

    if (ds) {
        *(struct callback *)ds->param = (struct callback){.next = next, .arg = arg};
        st = next ? wf_ds_set_columns(ds, n, columns) : wf_err(WEFT_EINVAL, "no callback");
    }
    return st ? wf_ds_fail(d, "stream", st) : wf_ds_handle(ds);
}
