/* bucket.c - batches of elements of similar length. Bucket b takes lengths in [bound[b - 1],
 * bound[b]); a batch comes when its bucket is full, and at the end what is left, in the order of
 * buckets. Which element goes where depends only on the order of the input. */
#include "data/stage/pad.h"
#include "data/engine/pick.h"

struct bucket {
    int column, n_bounds;
    int64_t *bound, *size; /* n_bounds, n_bounds + 1 */
    int64_t *first;        /* first slot of each bucket */
    int64_t n_slots;
    bool drop_remainder;
    struct wf_padding pad;
};

struct buckets {
    struct wf_slots slots;
    struct wf_cursor in;
    int64_t *n; /* elements in each bucket */
    bool ended;
};

static weft_status bucket_open(struct wf_stage *s)
{
    const struct bucket *o = s->ds->param;
    struct buckets *v = wf_alloc(s->env->ctx, sizeof *v);
    weft_status st;

    if (!v)
        return wf_env_nomem(s->env, sizeof *v, "buckets");
    s->state = v;
    v->n = wf_alloc_n(s->env->ctx, o->n_bounds + 1, sizeof *v->n);
    if (!v->n)
        return wf_env_nomem(s->env, (o->n_bounds + 1) * 8, "buckets");
    st = wf_slots_init(&v->slots, s->env, o->n_slots);
    return st ? st : wf_stage_input(s, 0, WF_IN_MADE, 0);
}

static void bucket_clear(const struct bucket *o, struct buckets *v)
{
    if (v->slots.slot)
        wf_slots_clear_all(&v->slots);
    wf_cursor_clear(&v->in);
    for (int b = 0; b <= o->n_bounds && v->n; b++)
        v->n[b] = 0;
    v->ended = false;
}

static void bucket_close(struct wf_stage *s)
{
    struct buckets *v = s->state;

    if (!v)
        return;
    bucket_clear(s->ds->param, v);
    wf_slots_free(&v->slots);
    wf_free(s->env->ctx, v->n);
    wf_free(s->env->ctx, v);
}

static weft_status bucket_reset(struct wf_stage *s, int64_t epoch)
{
    bucket_clear(s->ds->param, s->state);
    return wf_stage_reset(s->in[0], epoch);
}

/* The first size of an element; for a scalar its value, for text its bytes. */
static int64_t length_of(const struct wf_col *c, int64_t i)
{
    weft_tensor t = wf_col_element(c, i);

    if (t.rank > 0)
        return t.dim[0];
    return t.dtype == WEFT_STR ? ((const weft_str *)t.data)->n : wf_get_int(t.data, t.dtype, 0);
}

static int bucket_of(const struct bucket *o, int64_t length)
{
    int lo = 0, hi = o->n_bounds;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (length < o->bound[mid])
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static weft_status emit(struct wf_stage *s, struct buckets *v, int b, struct wf_promise **out)
{
    const struct bucket *o = s->ds->param;
    struct wf_picks *p = NULL;
    weft_status st = wf_picks_new(s->env->ctx, v->n[b], &p);

    if (st)
        return st;
    for (int64_t j = 0; j < v->n[b]; j++) {
        const struct wf_pick *e = &v->slots.slot[o->first[b] + j];

        wf_picks_add(p, e->held, e->i);
        wf_slots_clear(&v->slots, o->first[b] + j);
    }
    v->n[b] = 0;
    return wf_picks_promise(s, p, 1, out);
}

static weft_status bucket_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct bucket *o = s->ds->param;
    struct buckets *v = s->state;
    bool more;
    weft_status st;

    (void)want;
    *out = NULL;
    while (!v->ended) {
        int b;

        st = wf_cursor_need(&v->in, s->in[0], INT64_MAX, &more);
        if (st)
            return st;
        if (!more) {
            v->ended = true;
            break;
        }
        b = bucket_of(o, length_of(&v->in.held->block->col[o->column], v->in.i));
        wf_slots_set(&v->slots, o->first[b] + v->n[b]++, v->in.held, v->in.i);
        v->in.i++;
        if (v->n[b] == o->size[b]) {
            st = wf_slots_tidy(&v->slots);
            return st ? st : emit(s, v, b, out);
        }
    }
    for (int b = 0; b <= o->n_bounds && !o->drop_remainder; b++)
        if (v->n[b])
            return emit(s, v, b, out);
    return WEFT_OK;
}

static weft_status bucket_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    const struct bucket *o = p->stage->ds->param;
    struct wf_block *b = NULL;
    weft_status st = wf_picks_make(p, w, &b);

    return st ? st : wf_block_pad(p->stage->ds, &o->pad, b, out);
}

static weft_status bucket_save(struct wf_stage *s, struct wf_buf *out)
{
    const struct bucket *o = s->ds->param;
    struct buckets *v = s->state;
    weft_status st = WEFT_OK;

    wf_put_i64(out, v->ended);
    for (int b = 0; b <= o->n_bounds && !st; b++) {
        wf_put_i64(out, v->n[b]);
        st = wf_slots_save(&v->slots, o->first[b], v->n[b], out);
    }
    return st ? st : wf_cursor_save(&v->in, out);
}

static weft_status bucket_restore(struct wf_stage *s, struct wf_reader *r)
{
    const struct bucket *o = s->ds->param;
    struct buckets *v = s->state;
    weft_status st = WEFT_OK;

    bucket_clear(o, v);
    v->ended = wf_get_range(r, 0, 1, "a flag");
    for (int b = 0; b <= o->n_bounds && !st; b++) {
        int64_t n = wf_get_range(r, 0, o->size[b] - 1, "elements in a bucket");

        st = r->st ? r->st : wf_slots_restore(&v->slots, s->ds->in[0], o->first[b], n, r);
        v->n[b] = st ? 0 : n;
    }
    return st ? st : wf_cursor_restore(&v->in, s->env, s->ds->in[0], r);
}

static void bucket_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct bucket *o = ds->param;

    wf_buf_printf(out, "'%s'%s", ds->in[0]->col[o->column].name, o->drop_remainder ? " drop" : "");
    for (int b = 0; b <= o->n_bounds; b++)
        wf_buf_printf(out, " %lld<%lld", (long long)o->size[b],
                      b < o->n_bounds ? (long long)o->bound[b] : -1);
    wf_padding_text(&o->pad, out);
}

static const struct wf_ds_kind bucket_kind = {
    .name = "bucket_by_length",
    .open = bucket_open,
    .close = bucket_close,
    .reset = bucket_reset,
    .pull = bucket_pull,
    .make = bucket_make,
    .drop = wf_picks_drop,
    .save = bucket_save,
    .restore = bucket_restore,
    .text = bucket_text,
};

static weft_status set_bounds(struct wf_ds *ds, struct bucket *o, int n, const int64_t *bounds,
                              const int64_t *sizes)
{
    struct wf_arena *a = &ds->data->arena;

    o->n_bounds = n;
    o->bound = wf_arena_alloc(a, (size_t)(n + 1) * 8);
    o->size = wf_arena_alloc(a, (size_t)(n + 1) * 8);
    o->first = wf_arena_alloc(a, (size_t)(n + 1) * 8);
    if (!o->bound || !o->size || !o->first)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int b = 0; b <= n; b++) {
        if (sizes[b] < 1 || sizes[b] > 1 << 24)
            return wf_err(WEFT_EINVAL, "batch size %d is %lld", b, (long long)sizes[b]);
        if (b > 0 && b < n && bounds[b] <= bounds[b - 1])
            return wf_err(WEFT_EINVAL, "boundaries %lld, %lld must ascend",
                          (long long)bounds[b - 1], (long long)bounds[b]);
        if (b < n)
            o->bound[b] = bounds[b];
        o->size[b] = sizes[b];
        o->first[b] = o->n_slots;
        o->n_slots += sizes[b];
    }
    return WEFT_OK;
}

static weft_status set_length_column(struct wf_ds *ds, struct bucket *o, const char *name)
{
    const weft_column *c;

    o->column = wf_ds_find(ds->in[0], name ? name : "");
    if (o->column < 0)
        return wf_ds_err_column(ds->in[0], name ? name : "");
    c = &ds->in[0]->col[o->column];
    if (c->rank == 0 && c->dtype != WEFT_STR && !wf_is_int(c->dtype))
        return wf_err(WEFT_EDTYPE, "column '%s' is not an integer and has no length", name);
    return WEFT_OK;
}

weft_ds weft_ds_bucket_by_length(weft_data *d, weft_ds s, const char *column, int n_bounds,
                                 const int64_t *bounds, const int64_t *batch_sizes,
                                 const weft_padded_batch_opts *opts)
{
    weft_padded_batch_opts o;
    struct wf_ds *ds;
    struct bucket *p;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_padded_batch_opts");

    if (!st && (n_bounds < 0 || n_bounds > 65536))
        st = wf_err(WEFT_EINVAL, "%d boundaries", n_bounds);
    if (st)
        return wf_ds_fail(d, "bucket_by_length", st);
    ds = wf_ds_new(d, &bucket_kind, 1, &s, sizeof *p);
    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    p->drop_remainder = o.drop_remainder;
    st = set_length_column(ds, p, column);
    if (!st)
        st = set_bounds(ds, p, n_bounds, bounds, batch_sizes);
    if (!st)
        st = wf_padding_init(ds, o.n_pads, o.pads, o.lengths, WEFT_ANY, &p->pad);
    if (st)
        return wf_ds_fail(d, "bucket_by_length", st);
    ds->addressable = false;
    ds->heavy = true;
    if (ds->count != WEFT_ENDLESS)
        ds->count = WEFT_UNKNOWN;
    ds->batched = true;
    return wf_ds_handle(ds);
}
