/* cut.c - part of a dataset by numbers: take, skip, shard. Over an addressable dataset each is
 * arithmetic on numbers; over a stream it passes promises on. */
#include "data/stage/counted.h"

struct cut {
    int64_t n, i; /* take and skip: n; shard: every n-th from the i-th */
};

/* Element k is element first + k * step of the input. */
static weft_status strided_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                               int64_t n, int64_t first, int64_t step, struct wf_block **out)
{
    struct wf_chunk *chunk;
    struct wf_at *to = wf_at_copy(w, at, n, &chunk);
    weft_status st;

    if (!to)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *at, ds->name);
    for (int64_t i = 0; i < n; i++)
        to[i].id = first + at[i].id * step;
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(chunk);
    return st;
}

static weft_status take_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                            int64_t n, struct wf_block **out)
{
    return wf_ds_get_block(ds->in[0], w, at, n, out);
}

static weft_status skip_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                            int64_t n, struct wf_block **out)
{
    return strided_get(ds, w, at, n, ((const struct cut *)ds->param)->n, 1, out);
}

static weft_status shard_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                             int64_t n, struct wf_block **out)
{
    const struct cut *p = ds->param;

    return strided_get(ds, w, at, n, p->i, p->n, out);
}

static void cut_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct cut *p = ds->param;

    wf_buf_printf(out, "n=%lld", (long long)p->n);
    if (p->i)
        wf_buf_printf(out, " i=%lld", (long long)p->i);
}

static weft_status take_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    int64_t *passed = s->state, left = ((const struct cut *)s->ds->param)->n - *passed;
    weft_status st;

    *out = NULL;
    if (left <= 0)
        return WEFT_OK;
    st = wf_stage_pull(s->in[0], wf_min_i64(want, left), out);
    if (!st && *out)
        *passed += (*out)->n;
    return st;
}

static weft_status skip_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    enum { AT_ONCE = 4096 };
    int64_t *passed = s->state, n = ((const struct cut *)s->ds->param)->n;
    weft_status st;

    while (*passed < n) { /* promises that are never made */
        st = wf_stage_pull(s->in[0], wf_min_i64(n - *passed, AT_ONCE), out);
        if (st || !*out)
            return st;
        *passed += (*out)->n;
        wf_promise_drop(*out);
        *out = NULL;
    }
    return wf_stage_pull(s->in[0], want, out);
}

/* data: the position of the first element within the round of n. */
static weft_status shard_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct cut *p = s->ds->param;
    int64_t *passed = s->state, ask, phase, mine, *data;
    struct wf_promise *in;
    weft_status st;

    *out = NULL;
    if (!wf_mul_i64(want, p->n, &ask))
        ask = p->n;
    for (;;) {
        st = wf_stage_pull(s->in[0], ask, &in);
        if (st || !in)
            return st;
        phase = *passed % p->n;
        *passed += in->n;
        mine = p->i >= phase ? p->i - phase : p->i - phase + p->n; /* my first */
        if (mine < in->n)
            break;
        wf_promise_drop(in);
    }
    data = wf_alloc(s->env->ctx, sizeof *data);
    if (!data) {
        wf_promise_drop(in);
        return wf_env_nomem(s->env, sizeof *data, "shard");
    }
    *data = mine;
    *out = wf_promise_new(s, (in->n - mine - 1) / p->n + 1, 1, &in, data);
    if (!*out)
        wf_free(s->env->ctx, data);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status shard_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    const struct cut *c = p->stage->ds->param;
    int64_t first = *(int64_t *)p->data, *pick;
    struct wf_block *in = NULL;
    void *room = NULL;
    weft_status st;

    wf_free(w->env->ctx, p->data);
    st = wf_promise_make_inputs(p, w, &in);
    if (st)
        return st;
    st = wf_block_alloc(in, p->n * 8, &room);
    pick = room;
    for (int64_t k = 0; k < p->n && !st; k++)
        pick[k] = first + k * c->n;
    if (!st)
        st = wf_block_gather(in, pick, p->n, out);
    wf_block_free(in);
    return st;
}

#define CUT_KIND(kind_name)                                                                       \
    .name = #kind_name, .get = kind_name##_get, .open = wf_counted_open, .close = wf_state_close, \
    .reset = wf_counted_reset, .pull = kind_name##_pull, .save = wf_counted_save,                 \
    .restore = wf_counted_restore, .text = cut_text

/* take and skip hand their input's promises on, so they make none of their own. */
static const struct wf_ds_kind take_kind = {CUT_KIND(take)};
static const struct wf_ds_kind skip_kind = {CUT_KIND(skip)};
static const struct wf_ds_kind shard_kind = {CUT_KIND(shard), .make = shard_make,
                                             .drop = wf_data_drop};

static struct wf_ds *cut_new(weft_data *d, const struct wf_ds_kind *kind, weft_ds s, struct cut p)
{
    struct wf_ds *ds = wf_ds_new(d, kind, 1, &s, sizeof p);

    if (!ds)
        return NULL;
    if (p.n < 0 || p.i < 0) {
        wf_ds_fail(d, kind->name, wf_err(WEFT_EINVAL, "%lld is negative", (long long)p.n));
        return NULL;
    }
    *(struct cut *)ds->param = p;
    return ds;
}

static bool counted(const struct wf_ds *ds)
{
    return ds->count != WEFT_UNKNOWN && ds->count != WEFT_ENDLESS;
}

weft_ds weft_ds_take(weft_data *d, weft_ds s, int64_t n)
{
    struct wf_ds *ds = cut_new(d, &take_kind, s, (struct cut){.n = n});

    if (ds && ds->count != WEFT_UNKNOWN)
        ds->count = wf_min_i64(ds->count, n);
    return wf_ds_handle(ds);
}

weft_ds weft_ds_skip(weft_data *d, weft_ds s, int64_t n)
{
    struct wf_ds *ds = cut_new(d, &skip_kind, s, (struct cut){.n = n});

    if (ds && counted(ds))
        ds->count = wf_max_i64(0, ds->count - n);
    return wf_ds_handle(ds);
}

weft_ds weft_ds_shard(weft_data *d, weft_ds s, int64_t n, int64_t i)
{
    struct wf_ds *ds;

    if (n <= 0 || i < 0 || i >= n)
        return wf_ds_fail(d, "shard",
                          wf_err(WEFT_EINVAL, "shard %lld of %lld", (long long)i, (long long)n));
    ds = cut_new(d, &shard_kind, s, (struct cut){.n = n, .i = i});
    if (ds && counted(ds))
        ds->count = ds->count > i ? (ds->count - i - 1) / n + 1 : 0;
    return wf_ds_handle(ds);
}
