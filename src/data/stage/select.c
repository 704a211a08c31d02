/* select.c - which elements, in which order: shuffle_all, repeat, take, skip, shard, enumerate,
 * prefetch. For an addressable dataset each is arithmetic on numbers; for a stream it passes
 * promises on. */
#include "data/stage/select.h"

struct wf_at *wf_at_copy(struct wf_worker *w, const struct wf_at *at, int64_t n,
                         struct wf_chunk **chunk)
{
    *chunk = wf_chunk_new(w->env, n * (int64_t)sizeof *at);
    if (!*chunk)
        return NULL;
    memcpy((*chunk)->data, at, (size_t)n * sizeof *at);
    return (void *)(*chunk)->data;
}

static weft_status input_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

/* ---- shuffle_all ----------------------------------------------------------------------------- */

struct shuffle {
    uint64_t seed;
    bool same;
};

static weft_status shuffle_all_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                                   int64_t n, struct wf_block **out)
{
    const struct shuffle *p = ds->param;
    struct wf_permutation perm;
    struct wf_chunk *chunk;
    struct wf_at *to = wf_at_copy(w, at, n, &chunk);
    weft_status st;

    if (!to)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *at, "shuffle_all");
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || at[i].epoch != at[i - 1].epoch)
            wf_permutation_init(&perm, ds->count, p->seed, p->same ? 0 : at[i].epoch);
        to[i].id = wf_permutation_at(&perm, at[i].id);
    }
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(chunk);
    return st;
}

static void shuffle_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct shuffle *p = ds->param;

    wf_buf_printf(out, "seed=%llu%s", (unsigned long long)p->seed, p->same ? " same" : "");
}

static const struct wf_ds_kind shuffle_all_kind = {
    .name = "shuffle_all",
    .get = shuffle_all_get,
    .text = shuffle_text,
};

weft_ds weft_ds_shuffle_all(weft_data *d, weft_ds s, const weft_shuffle_opts *opts)
{
    struct wf_ds *ds = wf_ds_new(d, &shuffle_all_kind, 1, &s, sizeof(struct shuffle));
    weft_status st = wf_opts_check(opts, sizeof *opts, "weft_shuffle_opts");

    if (!ds)
        return (weft_ds){0};
    if (!st && !ds->addressable)
        st = wf_err(WEFT_ENOSUP, "%s has no random access: use shuffle with a buffer, or an index",
                    ds->in[0]->name);
    if (!st && ds->count == WEFT_ENDLESS)
        st = wf_err(WEFT_EINVAL, "the dataset is endless: shuffle before repeat");
    if (st)
        return wf_ds_fail(d, "shuffle_all", st);
    if (opts)
        *(struct shuffle *)ds->param = (struct shuffle){opts->seed, opts->same_each_epoch};
    return wf_ds_handle(ds);
}

/* ---- repeat ---------------------------------------------------------------------------------- */

struct repeat {
    int64_t times; /* 0: endless */
};

/* The input's epoch in round `round` of epoch `epoch`. It only affects random draws; a restored
 * position may contain any number, so it wraps around. */
static int64_t inner_epoch(const struct repeat *p, int64_t epoch, int64_t round)
{
    uint64_t first = p->times ? (uint64_t)epoch * (uint64_t)p->times : (uint64_t)epoch;

    return (int64_t)(first + (uint64_t)round);
}

static weft_status repeat_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct repeat *p = ds->param;
    int64_t size = ds->in[0]->count;
    struct wf_chunk *chunk;
    struct wf_at *to = wf_at_copy(w, at, n, &chunk);
    weft_status st;

    if (!to)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *at, "repeat");
    for (int64_t i = 0; i < n; i++) {
        to[i].epoch = inner_epoch(p, at[i].epoch, at[i].id / size);
        to[i].id = at[i].id % size;
    }
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(chunk);
    return st;
}

struct repeat_state {
    int64_t epoch, round, given; /* given: elements of this round */
};

static weft_status repeat_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(struct repeat_state));
    /* Exact, so that an empty round is detected. */
    return s->state ? wf_stage_input(s, 0, WF_IN_EXACT, s->want)
                    : wf_env_nomem(s->env, sizeof(struct repeat_state), "repeat");
}

void wf_state_close(struct wf_stage *s)
{
    wf_free(s->env->ctx, s->state);
}

static weft_status repeat_reset(struct wf_stage *s, int64_t epoch)
{
    *(struct repeat_state *)s->state = (struct repeat_state){.epoch = epoch};
    return wf_stage_reset(s->in[0], inner_epoch(s->ds->param, epoch, 0));
}

static weft_status repeat_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct repeat *p = s->ds->param;
    struct repeat_state *at = s->state;
    weft_status st;

    for (;;) {
        st = wf_stage_pull(s->in[0], want, out);
        if (st || *out) {
            if (!st)
                at->given += (*out)->n;
            return st;
        }
        /* An empty round would be followed by empty rounds forever. */
        if (at->given == 0 || (p->times && at->round + 1 >= p->times))
            return WEFT_OK;
        at->round++;
        at->given = 0;
        st = wf_stage_reset(s->in[0], inner_epoch(p, at->epoch, at->round));
        if (st)
            return st;
    }
}

static weft_status repeat_save(struct wf_stage *s, struct wf_buf *out)
{
    const struct repeat_state *at = s->state;

    wf_put_i64(out, at->epoch);
    wf_put_i64(out, at->round);
    wf_put_i64(out, at->given);
    return WEFT_OK;
}

static weft_status repeat_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct repeat_state *at = s->state;

    at->epoch = wf_get_i64(r);
    at->round = wf_get_range(r, 0, INT64_MAX, "a round");
    at->given = wf_get_range(r, 0, INT64_MAX, "a number of elements");
    return r->st;
}

static void repeat_text(const struct wf_ds *ds, struct wf_buf *out)
{
    wf_buf_printf(out, "times=%lld", (long long)((const struct repeat *)ds->param)->times);
}

static const struct wf_ds_kind repeat_kind = {
    .name = "repeat",
    .get = repeat_get,
    .open = repeat_open,
    .close = wf_state_close,
    .reset = repeat_reset,
    .pull = repeat_pull,
    .save = repeat_save,
    .restore = repeat_restore,
    .text = repeat_text,
};

weft_ds weft_ds_repeat(weft_data *d, weft_ds s, int64_t times)
{
    struct wf_ds *ds = wf_ds_new(d, &repeat_kind, 1, &s, sizeof(struct repeat));

    if (!ds)
        return (weft_ds){0};
    if (times < 0)
        return wf_ds_fail(d, "repeat", wf_err(WEFT_EINVAL, "%lld times", (long long)times));
    ((struct repeat *)ds->param)->times = times;
    if (ds->count == 0 || ds->count == WEFT_ENDLESS)
        return wf_ds_handle(ds);
    if (times == 0)
        ds->count = WEFT_ENDLESS;
    else if (ds->count != WEFT_UNKNOWN && !wf_mul_i64(ds->count, times, &ds->count))
        ds->count = WEFT_ENDLESS;
    return wf_ds_handle(ds);
}

/* ---- take, skip, shard ----------------------------------------------------------------------- */

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

/* Streams: how many elements of the input have passed. */
static weft_status cut_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(int64_t));
    return s->state ? wf_stage_input(s, 0, WF_IN_EXACT, s->want)
                    : wf_env_nomem(s->env, sizeof(int64_t), s->ds->name);
}

static weft_status cut_reset(struct wf_stage *s, int64_t epoch)
{
    *(int64_t *)s->state = 0;
    return wf_stage_reset(s->in[0], epoch);
}

weft_status wf_counted_save(struct wf_stage *s, struct wf_buf *out)
{
    wf_put_i64(out, *(int64_t *)s->state);
    return WEFT_OK;
}

static weft_status cut_restore(struct wf_stage *s, struct wf_reader *r)
{
    *(int64_t *)s->state = wf_get_range(r, 0, INT64_MAX, "a number of elements");
    return r->st;
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

static void data_drop(struct wf_promise *p)
{
    wf_free(p->stage->env->ctx, p->data);
}

#define CUT_KIND(kind_name)                                                                        \
    .name = #kind_name, .get = kind_name##_get, .open = cut_open, .close = wf_state_close,         \
    .reset = cut_reset, .pull = kind_name##_pull, .save = wf_counted_save, .restore = cut_restore, \
    .text = cut_text

/* take and skip pass on their input's promises, so they make none of their own. */
static const struct wf_ds_kind take_kind = {CUT_KIND(take)};
static const struct wf_ds_kind skip_kind = {CUT_KIND(skip)};
static const struct wf_ds_kind shard_kind = {CUT_KIND(shard), .make = shard_make,
                                             .drop = data_drop};

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

/* ---- enumerate ------------------------------------------------------------------------------- */

struct enumerate {
    int64_t first;
};

/* Adds a column before b's: first, first + 1, … or one number for each `at`. Consumes b. */
static weft_status number(struct wf_ds *ds, struct wf_block *b, int64_t first,
                          const struct wf_at *at, struct wf_block **out)
{
    struct wf_type t = wf_type_of(WEFT_I64, 0, NULL);
    struct wf_block *v = NULL;
    weft_status st = wf_block_new(b->env, ds->n_cols, b->n, &v);

    for (int64_t k = 0; k < b->n_keep && !st; k++)
        st = wf_block_keep(v, b->keep[k]);
    if (!st)
        st = wf_block_col(v, 0, &t, 0);
    if (st) {
        wf_block_free(v);
        wf_block_free(b);
        return st;
    }
    for (int64_t i = 0; i < b->n; i++)
        ((int64_t *)v->col[0].data)[i] = first + (at ? at[i].id : i);
    memcpy(v->col + 1, b->col, (size_t)b->n_cols * sizeof *b->col);
    memcpy(v->at, b->at, (size_t)b->n * sizeof *b->at);
    v->from = b->from;
    v->sample = b->sample;
    v->n_samples = b->n_samples;
    wf_block_free(b);
    *out = v;
    return WEFT_OK;
}

static weft_status enumerate_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                                 int64_t n, struct wf_block **out)
{
    struct wf_block *b = NULL;
    weft_status st = wf_ds_get_block(ds->in[0], w, at, n, &b);

    return st ? st : number(ds, b, ((const struct enumerate *)ds->param)->first, at, out);
}

static weft_status enumerate_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    int64_t *passed = s->state, *data;
    struct wf_promise *in = NULL;
    weft_status st = wf_stage_pull(s->in[0], want, &in);

    *out = NULL;
    if (st || !in)
        return st;
    data = wf_alloc(s->env->ctx, sizeof *data);
    if (!data) {
        wf_promise_drop(in);
        return wf_env_nomem(s->env, sizeof *data, "enumerate");
    }
    *data = *passed;
    *passed += in->n;
    *out = wf_promise_new(s, in->n, 1, &in, data);
    if (!*out)
        wf_free(s->env->ctx, data);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status enumerate_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    int64_t first = *(int64_t *)p->data + ((const struct enumerate *)p->stage->ds->param)->first;
    struct wf_block *in = NULL;
    weft_status st;

    wf_free(w->env->ctx, p->data);
    st = wf_promise_make_inputs(p, w, &in);
    return st ? st : number(p->stage->ds, in, first, NULL, out);
}

static void enumerate_text(const struct wf_ds *ds, struct wf_buf *out)
{
    wf_buf_printf(out, "first=%lld", (long long)((const struct enumerate *)ds->param)->first);
}

static const struct wf_ds_kind enumerate_kind = {
    .name = "enumerate",
    .get = enumerate_get,
    .open = cut_open,
    .close = wf_state_close,
    .reset = cut_reset,
    .pull = enumerate_pull,
    .make = enumerate_make,
    .drop = data_drop,
    .save = wf_counted_save,
    .restore = cut_restore,
    .text = enumerate_text,
};

weft_ds weft_ds_enumerate(weft_data *d, weft_ds s, int64_t first)
{
    struct wf_ds *ds = wf_ds_new(d, &enumerate_kind, 1, &s, sizeof(struct enumerate));
    weft_column *col;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    ((struct enumerate *)ds->param)->first = first;
    col = wf_arena_alloc(&d->arena, (size_t)(ds->n_cols + 1) * sizeof *col);
    if (!col)
        return wf_ds_fail(d, "enumerate", wf_err(WEFT_ENOMEM, "out of memory"));
    col[0] = wf_column_of("index", WEFT_I64, 0, NULL);
    memcpy(col + 1, ds->col, (size_t)ds->n_cols * sizeof *col);
    st = wf_ds_set_columns(ds, ds->n_cols + 1, col);
    return st ? wf_ds_fail(d, "enumerate", st) : wf_ds_handle(ds);
}

/* ---- prefetch -------------------------------------------------------------------------------- */

struct prefetch {
    int64_t n;
};

static weft_status prefetch_open(struct wf_stage *s)
{
    weft_status st = wf_stage_input(s, 0, WF_IN_MADE, s->want);

    if (!st)
        wf_queue_set_ahead(s->in[0], ((const struct prefetch *)s->ds->param)->n);
    return st;
}

static weft_status prefetch_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    return wf_stage_pull(s->in[0], want, out);
}

/* How far ahead does not change what is read, so it is not part of the text. */
static const struct wf_ds_kind prefetch_kind = {
    .name = "prefetch",
    .get = take_get,
    .open = prefetch_open,
    .reset = input_reset,
    .pull = prefetch_pull,
};

weft_ds weft_ds_prefetch(weft_data *d, weft_ds s, int64_t n)
{
    struct wf_ds *ds = wf_ds_new(d, &prefetch_kind, 1, &s, sizeof(struct prefetch));

    if (!ds)
        return (weft_ds){0};
    if (n < 0)
        return wf_ds_fail(d, "prefetch", wf_err(WEFT_EINVAL, "%lld elements", (long long)n));
    ((struct prefetch *)ds->param)->n = n;
    return wf_ds_handle(ds);
}
