/* window.c - windows over neighboring elements, and unbatching.
 *
 * Window k has elements k * shift + j * stride, j < size. For an addressable input with known
 * length a window is computed from its number; for a stream the elements that later windows still
 * need are held. */
#include "data/data.h"
#include "data/engine/pick.h"

struct window {
    int64_t size, shift, stride;
    bool drop_remainder;
};

/* Elements from a window's first to past its last. */
static int64_t span(const struct window *o)
{
    return (o->size - 1) * o->stride + 1;
}

static weft_status named(const struct wf_ds *ds, weft_status st)
{
    return wf_err_wrap(st, "%s", ds->name);
}

/* ---- by number ------------------------------------------------------------------------------- */

static int64_t window_length(const struct window *o, int64_t first, int64_t count)
{
    return first < count ? wf_min_i64(o->size, (count - first - 1) / o->stride + 1) : 0;
}

/* Blocks of full windows and of single short ones, stacked and joined. lengths[i] elements each. */
static weft_status stack_windows(struct wf_ds *ds, struct wf_block *b, const int64_t *length,
                                 int64_t n, struct wf_block **out)
{
    struct wf_block **part = wf_alloc_n(b->env->ctx, n, sizeof *part), *slice;
    int64_t at = 0;
    int made = 0;
    weft_status st = part ? WEFT_OK : wf_env_nomem(b->env, n * 8, "windows");

    for (int64_t i = 0, j; i < n && !st; i = j) {
        for (j = i + 1; j < n && length[j] == length[i]; j++)
            ;
        st = wf_block_slice(b, at, (j - i) * length[i], &slice);
        if (!st)
            st = wf_block_stack(slice, length[i], false, ds, &part[made]);
        made += !st;
        at += (j - i) * length[i];
    }
    if (!st) {
        st = wf_block_concat(b->env, made, part, out);
        made = 0;
    }
    while (made > 0)
        wf_block_free(part[--made]);
    wf_free(b->env->ctx, part);
    wf_block_free(b);
    return st;
}

static weft_status window_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct window *o = ds->param;
    int64_t count = ds->in[0]->count, *length = wf_alloc_n(w->env->ctx, n, 8), total = 0;
    struct wf_at *id = NULL;
    struct wf_block *b = NULL;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && length; i++)
        total += length[i] = window_length(o, at[i].id * o->shift, count);
    if (length)
        id = wf_alloc_n(w->env->ctx, total, sizeof *id);
    if (!id) {
        st = wf_env_nomem(w->env, (n + 2 * total) * 8, "windows");
        goto out;
    }
    total = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < length[i]; j++)
            id[total++] = (struct wf_at){at[i].epoch, at[i].id * o->shift + j * o->stride};
    st = wf_ds_get_block(ds->in[0], w, id, total, &b);
    if (!st)
        st = named(ds, stack_windows(ds, b, length, n, out));
out:
    wf_free(w->env->ctx, id);
    wf_free(w->env->ctx, length);
    return st;
}

/* ---- over a stream --------------------------------------------------------------------------- */

struct windows {
    struct wf_cursor in;
    int64_t start;        /* number of the first element of the next window */
    int64_t base, n, cap; /* elements base .. base + n - 1 are held */
    struct wf_pick *held; /* cap of them; the first is at head */
    int64_t head;
    bool ended;
};

static weft_status window_open(struct wf_stage *s)
{
    struct windows *v = wf_alloc(s->env->ctx, sizeof *v);

    if (!v)
        return wf_env_nomem(s->env, sizeof *v, "windows");
    s->state = v;
    return wf_stage_input(s, 0, WF_IN_MADE, 0);
}

static void drop_front(struct windows *v)
{
    wf_held_unref(v->held[v->head].held);
    v->head++;
    v->base++;
    v->n--;
}

static void window_clear(struct windows *v)
{
    while (v->n)
        drop_front(v);
    v->head = v->start = v->base = 0;
    v->ended = false;
    wf_cursor_clear(&v->in);
}

static void window_close(struct wf_stage *s)
{
    struct windows *v = s->state;

    if (!v)
        return;
    window_clear(v);
    wf_free(s->env->ctx, v->held);
    wf_free(s->env->ctx, v);
}

static weft_status window_reset(struct wf_stage *s, int64_t epoch)
{
    window_clear(s->state);
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status push_back(struct wf_stage *s, struct windows *v, struct wf_held *h, int64_t i)
{
    weft_status st;

    if (v->head && v->head + v->n == v->cap) {
        memmove(v->held, v->held + v->head, (size_t)v->n * sizeof *v->held);
        v->head = 0;
    }
    st = wf_grow(s->env->ctx, &v->held, &v->cap, v->head + v->n + 1, sizeof *v->held);
    if (st)
        return st;
    v->held[v->head + v->n++] = (struct wf_pick){wf_held_ref(h), i};
    return WEFT_OK;
}

/* Holds elements start .. start + span - 1, or as many as there are. */
static weft_status gather_span(struct wf_stage *s, struct windows *v)
{
    const struct window *o = s->ds->param;
    bool more = true;
    weft_status st = WEFT_OK;

    while (v->n && v->base < v->start)
        drop_front(v);
    while (!v->ended && !st && v->base + v->n < v->start + span(o)) {
        st = wf_cursor_need(&v->in, s->in[0], INT64_MAX, &more);
        if (st)
            break;
        v->ended = !more;
        if (!more)
            break;
        if (v->n == 0 && v->base < v->start)
            v->base++; /* between two windows */
        else
            st = push_back(s, v, v->in.held, v->in.i);
        if (!st)
            v->in.i++;
    }
    return st;
}

/* Appends one window to p; *length is 0 at the end. */
static weft_status pick_window(struct wf_stage *s, struct windows *v, struct wf_picks *p,
                               int64_t *length)
{
    const struct window *o = s->ds->param;
    int64_t there;
    weft_status st = gather_span(s, v);

    *length = 0;
    if (st)
        return st;
    there = v->base == v->start ? v->n : 0;
    if (there <= 0 || (o->drop_remainder && there < span(o)))
        return WEFT_OK;
    *length = wf_min_i64(o->size, (there + o->stride - 1) / o->stride);
    if (p->n && *length < o->size) { /* a short one needs a promise of its own */
        *length = 0;
        return WEFT_OK;
    }
    for (int64_t j = 0; j < *length; j++) {
        const struct wf_pick *e = &v->held[v->head + j * o->stride];

        wf_picks_add(p, e->held, e->i);
    }
    v->start += o->shift;
    return WEFT_OK;
}

static weft_status window_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct window *o = s->ds->param;
    struct wf_picks *p = NULL;
    int64_t length = o->size, n = 0;
    weft_status st;

    *out = NULL;
    want = wf_max_i64(1, wf_min_i64(want, 65536 / o->size));
    st = wf_picks_new(s->env->ctx, want * o->size, &p);
    while (!st && n < want && length == o->size) {
        st = pick_window(s, s->state, p, &length);
        n += !st && length > 0;
    }
    if (st || !n) {
        wf_picks_free(p);
        return st;
    }
    return wf_picks_promise(s, p, n, out);
}

static weft_status window_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    int64_t n_each = ((struct wf_picks *)p->data)->n / p->n;
    struct wf_block *b = NULL;
    weft_status st = wf_picks_make(p, w, &b);

    return st ? st : named(p->stage->ds, wf_block_stack(b, n_each, false, p->stage->ds, out));
}

static weft_status window_save(struct wf_stage *s, struct wf_buf *out)
{
    struct windows *v = s->state;
    struct wf_block *b = NULL;
    weft_status st = WEFT_OK;

    wf_put_i64(out, v->start);
    wf_put_i64(out, v->base);
    wf_put_i64(out, v->ended);
    if (v->n)
        st = wf_pick_block(s->env, v->held + v->head, v->n, WF_TEXT_SHARED, &b);
    if (!st)
        st = wf_maybe_save(b, out);
    wf_block_free(b);
    return st ? st : wf_cursor_save(&v->in, out);
}

static weft_status window_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct windows *v = s->state;
    struct wf_block *b = NULL;
    struct wf_held *h = NULL;
    weft_status st;

    window_clear(v);
    v->start = wf_get_range(r, 0, WF_MANY, "a sample number");
    v->base = wf_get_range(r, 0, WF_MANY, "a sample number");
    v->ended = wf_get_range(r, 0, 1, "a flag");
    st = r->st ? r->st : wf_maybe_load(s->env, s->ds->in[0], r, &b);
    if (!st && b)
        st = wf_hold(b, &h);
    for (int64_t i = 0; !st && h && i < h->block->n; i++)
        st = push_back(s, v, h, i);
    wf_held_unref(h);
    return st ? st : wf_cursor_restore(&v->in, s->env, s->ds->in[0], r);
}

static void window_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct window *o = ds->param;

    wf_buf_printf(out, "%lld shift=%lld stride=%lld%s", (long long)o->size, (long long)o->shift,
                  (long long)o->stride, o->drop_remainder ? " drop" : "");
}

static const struct wf_ds_kind window_kind = {
    .name = "window",
    .get = window_get,
    .open = window_open,
    .close = window_close,
    .reset = window_reset,
    .pull = window_pull,
    .make = window_make,
    .drop = wf_picks_drop,
    .save = window_save,
    .restore = window_restore,
    .text = window_text,
};

static int64_t window_count(const struct window *o, int64_t count)
{
    if (count == WEFT_UNKNOWN || count == WEFT_ENDLESS)
        return count;
    if (!o->drop_remainder)
        return count / o->shift + (count % o->shift > 0);
    return count < span(o) ? 0 : (count - span(o)) / o->shift + 1;
}

static weft_status window_columns(struct wf_ds *ds)
{
    const struct window *o = ds->param;
    int64_t count = ds->count;
    bool full = o->drop_remainder || count == WEFT_ENDLESS ||
                (count >= 0 && count % o->shift == 0 && o->shift >= span(o));
    weft_column *col = wf_alloc_n(ds->data->ctx, ds->n_cols + 1, sizeof *col);
    weft_status st = WEFT_OK;

    if (!col)
        return wf_err_nomem(ds->data->ctx, (size_t)ds->n_cols * sizeof *col, "columns");
    for (int c = 0; c < ds->n_cols && !st; c++) {
        col[c] = ds->col[c];
        if (col[c].rank == WEFT_MAX_RANK)
            st = wf_err(WEFT_ESHAPE, "column '%s' has %d axes already", col[c].name, col[c].rank);
        else
            memmove(col[c].dim + 1, col[c].dim, (size_t)col[c].rank++ * sizeof col[c].dim[0]);
        col[c].dim[0] = full ? o->size : WEFT_ANY;
    }
    if (!st)
        st = wf_ds_set_columns(ds, ds->n_cols, col);
    wf_free(ds->data->ctx, col);
    return st;
}

weft_ds weft_ds_window(weft_data *d, weft_ds s, int64_t size, const weft_window_opts *opts)
{
    weft_window_opts given;
    struct window o = {size, size, 1, false};
    struct wf_ds *ds;
    int64_t last;
    weft_status st = wf_opts_take(&given, sizeof given, opts, "weft_window_opts");

    if (!st)
        o.drop_remainder = given.drop_remainder;
    if (!st && given.shift)
        o.shift = given.shift;
    if (!st && given.stride)
        o.stride = given.stride;
    if (!st && (size < 1 || o.shift < 1 || o.stride < 1 || !wf_mul_i64(size, o.stride, &last) ||
                last > (int64_t)1 << 40 || o.shift > (int64_t)1 << 40))
        st = wf_err(WEFT_EINVAL, "size %lld, shift %lld, stride %lld", (long long)size,
                    (long long)o.shift, (long long)o.stride);
    if (st)
        return wf_ds_fail(d, "window", st);
    ds = wf_ds_new(d, &window_kind, 1, &s, sizeof o);
    if (!ds)
        return (weft_ds){0};
    *(struct window *)ds->param = o;
    st = window_columns(ds);
    if (st)
        return wf_ds_fail(d, "window", st);
    ds->addressable = wf_ds_addressable(ds->in[0]) && ds->count >= 0;
    ds->count = window_count(&o, ds->count);
    ds->heavy = true;
    ds->batched = false;
    return wf_ds_handle(ds);
}

/* ---- unbatch --------------------------------------------------------------------------------- */

/* Rows of batch i in column c. */
static int64_t rows_of(const struct wf_col *c, int64_t i)
{
    return c->offset ? c->shape[i * c->type.rank] : c->type.dim[0];
}

static weft_status count_rows(struct wf_ds *ds, const struct wf_block *b, int64_t *out)
{
    int64_t total = 0;

    for (int64_t i = 0; i < b->n; i++) {
        int64_t rows = rows_of(&b->col[0], i);

        for (int c = 1; c < b->n_cols; c++)
            if (rows_of(&b->col[c], i) != rows)
                return wf_err(WEFT_ESHAPE,
                              "column '%s' has %lld rows in a batch, but column '%s' has %lld: "
                              "they cannot be unbatched together",
                              ds->col[0].name, (long long)rows, ds->col[c].name,
                              (long long)rows_of(&b->col[c], i));
        total += rows;
    }
    *out = total;
    return WEFT_OK;
}

static bool rows_alike(const struct wf_col *c, int64_t n, int64_t *dim)
{
    int rank = c->type.rank;

    memcpy(dim, (c->offset && n ? c->shape : c->type.dim) + 1, (size_t)(rank - 1) * 8);
    for (int64_t i = 1; i < n && c->offset && rank > 1; i++)
        if (memcmp(c->shape + i * rank + 1, dim, (size_t)(rank - 1) * 8) != 0)
            return false;
    for (int k = 0; k < rank - 1; k++)
        if (dim[k] < 0)
            return false;
    return true;
}

/* The rows of all batches are already contiguous: only their description changes. */
static weft_status unstack_column(const struct wf_block *b, int c, struct wf_block *v)
{
    const struct wf_col *src = &b->col[c];
    struct wf_col *dst = &v->col[c];
    int rank = src->type.rank - 1;
    int64_t dim[WEFT_MAX_RANK], at = 0;
    void *p = NULL;
    weft_status st;

    *dst = *src;
    dst->type.rank = rank;
    if (rows_alike(src, b->n, dim)) {
        memcpy(dst->type.dim, dim, (size_t)rank * 8);
        dst->data =
            (char *)src->data + (src->offset ? src->offset[0] : 0) * wf_item_bytes(src->type.dtype);
        dst->offset = dst->shape = NULL;
        return WEFT_OK;
    }
    memmove(dst->type.dim, src->type.dim + 1, (size_t)rank * 8);
    st = wf_block_alloc(v, (v->n + 1) * 8, &p);
    dst->offset = p;
    if (!st)
        st = wf_block_alloc(v, v->n * rank * 8 + 8, &p);
    dst->shape = p;
    if (st)
        return st;
    dst->offset[0] = src->offset[0];
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t r = 0; r < rows_of(src, i); r++, at++) {
            int64_t m = 1;

            for (int k = 0; k < rank; k++)
                m *= dst->shape[at * rank + k] = src->shape[i * (rank + 1) + 1 + k];
            dst->offset[at + 1] = dst->offset[at] + m;
        }
    return WEFT_OK;
}

static weft_status unbatch_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                 struct wf_block **out)
{
    struct wf_block *v = NULL;
    int64_t total = 0, at = 0;
    weft_status st = count_rows(ds, in, &total);

    if (!st)
        st = wf_block_new(w->env, in->n_cols, total, &v);
    for (int64_t i = 0; i < in->n_keep && !st; i++)
        st = wf_block_keep(v, in->keep[i]);
    for (int c = 0; c < in->n_cols && !st; c++)
        st = unstack_column(in, c, v);
    for (int64_t i = 0; i < in->n && !st; i++)
        for (int64_t r = 0; r < rows_of(&in->col[0], i); r++, at++)
            v->at[at] = in->n == 1 && in->sample && r < in->n_samples
                            ? in->sample[r]
                            : (struct wf_at){in->at[i].epoch, in->at[i].id + r};
    wf_block_free(in);
    if (st) {
        wf_block_free(v);
        return st;
    }
    *out = v;
    return WEFT_OK;
}

/* Batches of k rows each, by number: read each batch once, pick the rows. */
static weft_status unbatch_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                               int64_t n, struct wf_block **out)
{
    int64_t k = ds->in[0]->col[0].dim[0], m = 0, *pick = wf_alloc_n(w->env->ctx, n, 8);
    struct wf_at *id = wf_alloc_n(w->env->ctx, n, sizeof *id);
    struct wf_block *b = NULL, *rows = NULL;
    weft_status st = pick && id ? WEFT_OK : wf_env_nomem(w->env, n * 24, "rows of batches");

    for (int64_t i = 0; i < n && !st; i++) {
        struct wf_at batch = {at[i].epoch, at[i].id / k};

        if (!m || batch.id != id[m - 1].id || batch.epoch != id[m - 1].epoch)
            id[m++] = batch;
        pick[i] = (m - 1) * k + at[i].id % k;
    }
    if (!st)
        st = wf_ds_get_block(ds->in[0], w, id, m, &b);
    if (!st)
        st = named(ds, unbatch_apply(ds, w, b, &rows));
    if (!st)
        st = wf_block_gather(rows, pick, n, out);
    wf_block_free(rows);
    wf_free(w->env->ctx, pick);
    wf_free(w->env->ctx, id);
    return st;
}

static weft_status unbatch_open(struct wf_stage *s)
{
    return wf_stage_input(s, 0, WF_IN_ANY, 1);
}

static weft_status unbatch_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

/* One batch at a time: it usually has more rows than requested. */
static weft_status unbatch_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct wf_promise *in = NULL;
    weft_status st = wf_stage_pull(s->in[0], 1, &in);

    *out = NULL;
    if (st || !in)
        return st;
    *out = wf_promise_new(s, want, 1, &in, NULL);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status unbatch_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_promise *first = p->in[0];
    struct wf_block *in = NULL;
    weft_status st;

    p->in[0] = NULL;
    st = wf_promise_make(first, w, &in);
    return st ? st : named(p->stage->ds, unbatch_apply(p->stage->ds, w, in, out));
}

static const struct wf_ds_kind unbatch_kind = {
    .name = "unbatch",
    .get = unbatch_get,
    .open = unbatch_open,
    .reset = unbatch_reset,
    .pull = unbatch_pull,
    .make = unbatch_make,
};

weft_ds weft_ds_unbatch(weft_data *d, weft_ds s)
{
    struct wf_ds *ds = wf_ds_new(d, &unbatch_kind, 1, &s, 0);
    weft_column *col;
    int64_t k;
    bool fixed = true;
    weft_status st = WEFT_OK;

    if (!ds)
        return (weft_ds){0};
    col = wf_alloc_n(d->ctx, ds->n_cols + 1, sizeof *col);
    if (!col)
        return wf_ds_fail(d, "unbatch", wf_err_nomem(d->ctx, sizeof *col, "columns"));
    k = ds->n_cols && ds->col[0].rank ? ds->col[0].dim[0] : 0;
    for (int c = 0; c < ds->n_cols && !st; c++) {
        col[c] = ds->col[c];
        if (col[c].rank < 1) {
            st = wf_err(WEFT_ESHAPE, "column '%s' is a scalar: it has no rows", col[c].name);
            break;
        }
        fixed = fixed && col[c].dim[0] == k && k > 0;
        memmove(col[c].dim, col[c].dim + 1, (size_t)--col[c].rank * sizeof col[c].dim[0]);
    }
    if (!st)
        st = wf_ds_set_columns(ds, ds->n_cols, col);
    wf_free(d->ctx, col);
    if (st)
        return wf_ds_fail(d, "unbatch", st);
    ds->addressable = fixed && wf_ds_addressable(ds->in[0]) && ds->count >= 0;
    ds->inexact = !ds->addressable;
    if (ds->count == WEFT_ENDLESS || (ds->count >= 0 && !fixed))
        ds->count = ds->count == WEFT_ENDLESS ? WEFT_ENDLESS : WEFT_UNKNOWN;
    else if (ds->count >= 0 && !wf_mul_i64(ds->count, k, &ds->count))
        ds->count = WEFT_ENDLESS;
    ds->batched = false;
    return wf_ds_handle(ds);
}
