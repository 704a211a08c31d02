/* cache.c - cache and snapshot: elements are produced once and kept (cache_store.h).
 *
 * The stages before the node always run as for epoch 0, so that an element does not depend on when
 * it was stored; its sample has the epoch in which it is read. For an addressable input each
 * element is stored when it is first requested. For a stream a whole pass fills the store in order,
 * and only a complete one is read from. */
#include <stdio.h>

#include "data/data.h"
#include "data/stage/cache_row.h"
#include "data/stage/cache_store.h"

static weft_status named(const struct wf_ds *ds, weft_status st)
{
    return wf_err_wrap(st, "%s", ds->name);
}

/* The current state of the store. */
struct view {
    bool complete;
    enum wf_cache_in in;
    int64_t n;
    const void *filler;
};

static struct view look(struct wf_cache_store *s)
{
    struct view v;

    pthread_mutex_lock(&s->lock);
    v = (struct view){s->complete, s->in, s->n, s->filler};
    pthread_mutex_unlock(&s->lock);
    return v;
}

/* ---- by number ------------------------------------------------------------------------------- */

struct wanted {
    int64_t n;
    int64_t *id;          /* of the elements, which may repeat */
    struct wf_pick *pick; /* held is NULL until found */
    struct wf_at *at;     /* scratch for n */
    int64_t *missing;     /* scratch for n */
};

static weft_status wanted_new(struct wf_env *env, const struct wf_at *at, int64_t n,
                              struct wanted *q)
{
    *q = (struct wanted){.n = n};
    q->id = wf_alloc_n(env->ctx, n, 8);
    q->pick = wf_alloc_n(env->ctx, n, sizeof *q->pick);
    q->at = wf_alloc_n(env->ctx, n, sizeof *q->at);
    q->missing = wf_alloc_n(env->ctx, n, 8);
    if (!q->id || !q->pick || !q->at || !q->missing)
        return wf_env_nomem(env, 48 * n, "elements to keep");
    for (int64_t i = 0; i < n; i++)
        q->id[i] = at[i].id;
    return WEFT_OK;
}

static void wanted_free(struct wf_env *env, struct wanted *q)
{
    for (int64_t i = 0; i < q->n && q->pick; i++)
        wf_held_unref(q->pick[i].held);
    wf_free(env->ctx, q->id);
    wf_free(env->ctx, q->pick);
    wf_free(env->ctx, q->at);
    wf_free(env->ctx, q->missing);
}

/* Elements [i, i + m) of the list are those of block b; takes ownership of b, also on failure. */
static weft_status found(struct wanted *q, int64_t i, int64_t m, struct wf_block *b)
{
    struct wf_held *h = NULL;
    weft_status st = wf_hold(b, &h);

    for (int64_t k = 0; k < m && !st; k++)
        q->pick[i + k] = (struct wf_pick){wf_held_ref(h), k};
    wf_held_unref(h);
    return st;
}

/* Runs of adjacent elements from the file. */
static weft_status find_in_file(struct wf_ds *ds, struct wf_env *env, struct wanted *q)
{
    struct wf_cache_store *store = ds->param;
    struct wf_chunk *chunk = NULL;
    struct wf_block *b = NULL;
    int64_t bytes, got, run;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < q->n && !st; i += wf_max_i64(got, 1)) {
        for (run = 1; i + run < q->n && q->id[i + run] == q->id[i] + run; run++)
            ;
        st = wf_cache_read(store, env, q->id[i], ds->batched ? 1 : run, &chunk, &bytes, &got);
        if (st || !got)
            continue;
        st = wf_rows_block(env, ds, chunk, chunk->data, bytes, got, &b);
        wf_chunk_unref(chunk);
        if (!st)
            st = found(q, i, got, b);
    }
    return st;
}

/* The rest from the input, as for epoch 0, and stored. */
static weft_status find_missing(struct wf_ds *ds, struct wf_worker *w, struct wanted *q)
{
    struct wf_cache_store *store = ds->param;
    struct wf_block *b = NULL;
    struct wf_held *h = NULL;
    int64_t m = 0, k = 0;
    weft_status st;

    for (int64_t i = 0; i < q->n; i++)
        if (!q->pick[i].held) {
            q->at[m] = (struct wf_at){0, q->id[i]};
            q->missing[m++] = q->id[i];
        }
    if (!m)
        return WEFT_OK;
    st = wf_ds_get_block(ds->in[0], w, q->at, m, &b);
    if (st)
        return st;
    st = named(ds, wf_cache_put(store, w->env, ds->count, b, q->missing));
    if (st) {
        wf_block_free(b);
        return st;
    }
    st = wf_hold(b, &h);
    for (int64_t i = 0; i < q->n && !st; i++)
        if (!q->pick[i].held)
            q->pick[i] = (struct wf_pick){wf_held_ref(h), k++};
    wf_held_unref(h);
    return st;
}

static bool all_there(struct wf_cache_store *s, int64_t count)
{
    struct view v = look(s);

    return !v.complete && v.n == count && v.in != WF_CACHE_NONE;
}

static weft_status cache_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                             int64_t n, struct wf_block **out)
{
    struct wf_cache_store *store = ds->param;
    struct wanted q = {0};
    weft_status st = wf_cache_prepare(store, ds->count);

    if (!st)
        st = wanted_new(w->env, at, n, &q);
    if (!st) {
        wf_cache_pick(store, q.id, n, q.pick);
        st = find_in_file(ds, w->env, &q);
    }
    if (!st)
        st = find_missing(ds, w, &q);
    if (!st)
        st = wf_pick_block(w->env, q.pick, n, WF_TEXT_SHARED, out);
    for (int64_t i = 0; i < n && !st; i++)
        (*out)->at[i].epoch = at[i].epoch;
    wanted_free(w->env, &q);
    if (!st && all_there(store, ds->count))
        wf_cache_complete(store);
    return st;
}

/* ---- in passes ------------------------------------------------------------------------------- */

struct pass {
    struct wf_stage *in; /* ours only: the engine neither saves nor closes it */
    int64_t epoch, at;   /* the next element */
    int64_t read;        /* elements read from the input in this pass */
    bool kept;           /* read from the store, not from the input */
    bool filling;
};

static struct wf_cache_store *store_of(const struct wf_stage *s)
{
    return s->ds->param;
}

static weft_status pass_open(struct wf_stage *s)
{
    struct pass *v = wf_alloc(s->env->ctx, sizeof *v);
    weft_status st;

    if (!v)
        return wf_env_nomem(s->env, sizeof *v, "a cache");
    s->state = v;
    st = wf_cache_prepare(store_of(s), s->ds->in[0]->inexact ? -1 : s->ds->count);
    if (!st)
        st = wf_stage_input(s, 0, WF_IN_MADE, s->want);
    if (!st) {
        v->in = s->in[0];
        s->n_in = 0;
    }
    return st;
}

/* What this pass has stored so far is of no use to others. */
static void stop_filling(struct wf_stage *s, struct pass *v)
{
    struct wf_cache_store *store = store_of(s);
    bool mine;

    pthread_mutex_lock(&store->lock);
    mine = store->filler == s && !store->complete;
    if (store->filler == s)
        store->filler = NULL;
    pthread_mutex_unlock(&store->lock);
    if (mine && v->filling)
        wf_cache_clear(store);
    v->filling = false;
}

static void pass_close(struct wf_stage *s)
{
    struct pass *v = s->state;

    if (!v)
        return;
    stop_filling(s, v);
    wf_stage_close(v->in);
    wf_free(s->env->ctx, v);
}

/* From the first element: from a complete store, otherwise from the input, filling the store if no
 * one else does. */
static weft_status begin(struct wf_stage *s, struct pass *v)
{
    struct wf_cache_store *store = store_of(s);

    stop_filling(s, v);
    v->read = 0;
    pthread_mutex_lock(&store->lock);
    v->kept = store->complete;
    v->filling = !store->complete && !store->filler && store->in != WF_CACHE_NONE;
    if (v->filling)
        store->filler = s;
    pthread_mutex_unlock(&store->lock);
    if (v->filling)
        wf_cache_clear(store);
    return v->kept ? WEFT_OK : wf_stage_reset(v->in, 0);
}

static weft_status pass_reset(struct wf_stage *s, int64_t epoch)
{
    struct pass *v = s->state;

    v->epoch = epoch;
    v->at = 0;
    return begin(s, v);
}

static weft_status deliver(struct wf_stage *s, struct pass *v, struct wf_block *b,
                           struct wf_promise **out)
{
    for (int64_t i = 0; i < b->n; i++)
        b->at[i].epoch = v->epoch;
    v->at += b->n;
    *out = wf_promise_made(s, b);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

struct kept_rows {
    struct wf_chunk *chunk;
    int64_t bytes, epoch;
};

/* Rows of the file: read and verified here, decoded when the promise is made. */
static weft_status pull_rows(struct wf_stage *s, struct pass *v, int64_t want,
                             struct wf_promise **out)
{
    struct wf_chunk *chunk = NULL;
    struct kept_rows *k;
    int64_t bytes, got;
    weft_status st =
        wf_cache_read(store_of(s), s->env, v->at, s->ds->batched ? 1 : want, &chunk, &bytes, &got);

    if (st)
        return st;
    if (!got) { /* damaged: read the input again, discarding everything up to here */
        st = begin(s, v);
        return st;
    }
    k = wf_alloc(s->env->ctx, sizeof *k);
    if (!k) {
        wf_chunk_unref(chunk);
        return wf_env_nomem(s->env, sizeof *k, "a cache");
    }
    *k = (struct kept_rows){chunk, bytes, v->epoch};
    *out = wf_promise_new(s, got, 0, NULL, k);
    if (!*out) {
        wf_chunk_unref(chunk);
        wf_free(s->env->ctx, k);
        return WEFT_ENOMEM;
    }
    v->at += got;
    atomic_fetch_add_explicit(&wf_stats_of(s->env, s->ds)->n_bytes, bytes, memory_order_relaxed);
    return WEFT_OK;
}

static weft_status pass_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct kept_rows *k = p->data;
    weft_status st =
        wf_rows_block(w->env, p->stage->ds, k->chunk, k->chunk->data, k->bytes, p->n, out);

    for (int64_t i = 0; i < p->n && !st; i++)
        (*out)->at[i].epoch = k->epoch;
    wf_chunk_unref(k->chunk);
    wf_free(w->env->ctx, k);
    return st ? named(p->stage->ds, st) : WEFT_OK;
}

static void pass_drop(struct wf_promise *p)
{
    struct kept_rows *k = p->data;

    wf_chunk_unref(k->chunk);
    wf_free(p->stage->env->ctx, k);
}

static weft_status pull_memory(struct wf_stage *s, struct pass *v, int64_t want,
                               struct wf_promise **out)
{
    enum { MOST = 1024 };
    struct wf_pick pick[MOST];
    int64_t id[MOST], n = wf_min_i64(wf_min_i64(want, MOST), look(store_of(s)).n - v->at), m = 0;
    struct wf_block *b = NULL;
    weft_status st;

    if (s->ds->batched)
        n = wf_min_i64(n, 1);
    for (int64_t i = 0; i < n; i++)
        id[i] = v->at + i;
    wf_cache_pick(store_of(s), id, n, pick);
    while (m < n && pick[m].held && pick[m].held == pick[0].held)
        m++; /* a view of one block: nothing is copied */
    st = m ? wf_pick_block(s->env, pick, m, WF_TEXT_SHARED, &b)
           : wf_err(WEFT_EBUG, "the complete cache has no element %lld", (long long)v->at);
    for (int64_t i = 0; i < n; i++)
        wf_held_unref(pick[i].held);
    return st ? st : deliver(s, v, b, out);
}

/* The next block of the input, stored if this pass fills the store; *out is NULL if all of it was
 * skipped. */
static weft_status pull_input(struct wf_stage *s, struct pass *v, int64_t want, bool *end,
                              struct wf_promise **out)
{
    struct wf_block *b = NULL, *rest = NULL;
    int64_t skip;
    weft_status st = wf_stage_next(v->in, want, &b);

    *end = !st && !b;
    if (st)
        return st;
    if (!b) {
        if (v->filling)
            wf_cache_complete(store_of(s));
        return WEFT_OK;
    }
    if (v->filling)
        st = wf_cache_put(store_of(s), s->env, s->ds->count, b, NULL);
    v->filling = v->filling && look(store_of(s)).filler == s;
    skip = wf_max_i64(0, wf_min_i64(v->at - v->read, b->n));
    v->read += b->n;
    if (!st && skip < b->n)
        st = wf_block_slice(b, skip, b->n - skip, &rest);
    wf_block_free(b);
    return st || !rest ? st : deliver(s, v, rest, out);
}

static weft_status pass_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct pass *v = s->state;
    bool end = false;
    weft_status st = WEFT_OK;

    *out = NULL;
    while (!*out && !end && !st) {
        struct view store = look(store_of(s));

        if (!v->kept)
            st = pull_input(s, v, want, &end, out);
        else if (v->at >= store.n && store.complete)
            end = true;
        else if (store.in == WF_CACHE_FILE || !store.complete)
            st = pull_rows(s, v, want, out);
        else
            st = pull_memory(s, v, want, out);
    }
    return st;
}

static weft_status pass_save(struct wf_stage *s, struct wf_buf *out)
{
    struct pass *v = s->state;
    struct wf_buf in;
    weft_status st = WEFT_OK;

    wf_put_i64(out, v->epoch);
    wf_put_i64(out, v->at);
    wf_put_i64(out, v->kept);
    wf_put_i64(out, v->read);
    if (v->kept)
        return out->st;
    wf_buf_init(&in, s->env->ctx, out->max);
    st = wf_stage_save(v->in, &in);
    if (!st)
        wf_put_bytes(out, in.data, in.len);
    wf_buf_free(&in);
    return st ? st : out->st;
}

static weft_status pass_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct pass *v = s->state;
    struct wf_reader in = {0};
    int64_t n = 0, read;
    bool kept;

    stop_filling(s, v);
    v->epoch = wf_get_i64(r);
    v->at = wf_get_range(r, 0, WF_MANY, "a sample number");
    kept = wf_get_range(r, 0, 1, "a flag");
    read = wf_get_range(r, 0, WF_MANY, "a sample number");
    if (!kept)
        in.p = wf_get_bytes(r, &n);
    if (r->st)
        return r->st;
    in.end = in.p ? in.p + n : NULL;
    v->kept = look(store_of(s)).complete;
    if (v->kept)
        return WEFT_OK;
    if (kept) /* there is no store here: read the input up to the reader's position */
        return begin(s, v);
    v->read = read;
    return wf_stage_restore(v->in, &in);
}

static void cache_text(const struct wf_ds *ds, struct wf_buf *out)
{
    static const char *const in[] = {"auto", "memory", "file", "none"};
    const struct wf_cache_store *s = ds->param;

    wf_buf_printf(out, "%s%s%s", s->stays ? "" : in[s->asked], s->path && !s->stays ? " " : "",
                  s->path ? s->path : "");
}

static void cache_free(struct wf_ds *ds)
{
    wf_cache_free(ds->param);
}

static const struct wf_ds_kind cache_kind = {
    .name = "cache",
    .get = cache_get,
    .open = pass_open,
    .close = pass_close,
    .reset = pass_reset,
    .pull = pass_pull,
    .make = pass_make,
    .drop = pass_drop,
    .save = pass_save,
    .restore = pass_restore,
    .free = cache_free,
    .text = cache_text,
};
static const struct wf_ds_kind snapshot_kind = {
    .name = "snapshot",
    .get = cache_get,
    .open = pass_open,
    .close = pass_close,
    .reset = pass_reset,
    .pull = pass_pull,
    .make = pass_make,
    .drop = pass_drop,
    .save = pass_save,
    .restore = pass_restore,
    .free = cache_free,
    .text = cache_text,
};

/* ---- builders -------------------------------------------------------------------------------- */

/* The beginning of a file: magic, version, the text of the stages before the node, and a key. */
static weft_status set_head(weft_data *d, weft_ds s, const char *key, struct wf_cache_store *store)
{
    struct wf_buf b;
    char *text = NULL, *copy;
    weft_status st = weft_ds_text(d, s, &text);

    if (st)
        return st;
    wf_buf_init(&b, d->ctx, 64 << 20);
    wf_buf_add(&b, "weftrows", 8);
    wf_put_i64(&b, 1);
    wf_put_i64(&b, (int64_t)(strlen(text) + strlen(key)) + 1);
    wf_buf_add(&b, text, (int64_t)strlen(text));
    wf_buf_add(&b, "\n", 1);
    wf_buf_add(&b, key, (int64_t)strlen(key));
    wf_free(d->ctx, text);
    copy = b.st ? NULL : wf_arena_alloc(&d->arena, (size_t)b.len);
    if (copy) {
        memcpy(copy, b.data, (size_t)b.len);
        store->head = copy;
        store->n_head = b.len;
    }
    wf_buf_free(&b);
    return copy ? WEFT_OK : wf_err_nomem(d->ctx, 0, "the pipeline");
}

static weft_ds store_node(weft_data *d, weft_ds s, const struct wf_ds_kind *kind,
                          const struct wf_cache_store *param, const char *path, const char *key)
{
    struct wf_ds *ds = wf_ds_new(d, kind, 1, &s, sizeof(struct wf_cache_store));
    struct wf_cache_store *store;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    store = ds->param;
    *store = *param;
    st = wf_cache_init(store, ds);
    if (!st)
        st = set_head(d, s, key, store);
    if (!st && path) {
        store->path = wf_arena_strdup(&d->arena, path);
        st = store->path ? WEFT_OK : wf_err_nomem(d->ctx, 0, "the pipeline");
    }
    if (st)
        return wf_ds_fail(d, kind->name, st);
    ds->addressable = wf_ds_addressable(ds->in[0]) && ds->count != WEFT_ENDLESS;
    ds->heavy = !ds->addressable;
    ds->reordered = false; /* what is before it runs as for epoch 0 */
    return wf_ds_handle(ds);
}

weft_ds weft_ds_cache(weft_data *d, weft_ds s, const weft_cache_opts *opts)
{
    weft_cache_opts o;
    static const enum wf_cache_in in[] = {WF_CACHE_UNDECIDED, WF_CACHE_MEMORY, WF_CACHE_FILE};
    struct wf_cache_store store = {0};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_cache_opts");

    if (!st && (o.in < WEFT_CACHE_AUTO || o.in > WEFT_CACHE_FILE))
        st = wf_err(WEFT_EINVAL, "cache location %d does not exist", (int)o.in);
    if (!st && o.in == WEFT_CACHE_FILE && !o.path)
        st = wf_err(WEFT_EINVAL, "a file needs a path");
    if (st)
        return wf_ds_fail(d, "cache", st);
    store.asked = in[o.in];
    store.strict = o.in == WEFT_CACHE_MEMORY;
    return store_node(d, s, &cache_kind, &store, o.path, "");
}

weft_ds weft_ds_snapshot(weft_data *d, weft_ds s, const char *path, const weft_snapshot_opts *opts)
{
    weft_snapshot_opts o;
    struct wf_cache_store store = {.asked = WF_CACHE_FILE, .stays = true};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_snapshot_opts");

    if (!st && (!path || !*path))
        st = wf_err(WEFT_EINVAL, "no path");
    if (st)
        return wf_ds_fail(d, "snapshot", st);
    return store_node(d, s, &snapshot_kind, &store, path, o.key ? o.key : "");
}
