/* stage.c - nodes running in an iterator: opening, pulling, promises. The engine's own kinds:
 * `index` walks an addressable node by number, `apply` passes promises on and changes their content
 * when they are made. */
#include "data/data.h"

/* ---- workers --------------------------------------------------------------------------------- */

struct wf_worker *wf_worker_take(struct wf_env *env)
{
    struct wf_worker *w;

    pthread_mutex_lock(&env->lock);
    w = env->workers;
    if (w)
        env->workers = w->next;
    pthread_mutex_unlock(&env->lock);
    if (w)
        return w;
    w = wf_alloc(env->ctx, sizeof *w);
    if (w)
        w->scratch = wf_alloc_n(env->ctx, env->n_nodes + 1, sizeof(void *));
    if (!w || !w->scratch) {
        wf_free(env->ctx, w);
        return NULL;
    }
    w->env = env;
    return w;
}

void wf_worker_give(struct wf_worker *w)
{
    pthread_mutex_lock(&w->env->lock);
    w->next = w->env->workers;
    w->env->workers = w;
    pthread_mutex_unlock(&w->env->lock);
}

void *wf_scratch(struct wf_worker *w, const struct wf_ds *ds)
{
    return w->scratch[ds->id];
}

void wf_scratch_set(struct wf_worker *w, const struct wf_ds *ds, void *scratch)
{
    w->scratch[ds->id] = scratch;
}

/* ---- pure work, timed ------------------------------------------------------------------------ */

/* A node's busy time excludes that of the nodes it calls. */
struct timing {
    int64_t start, outer_nested;
};

static struct timing time_begin(struct wf_worker *w)
{
    struct timing t = {wf_now(w->env->ctx), w->nested_ns};

    w->nested_ns = 0;
    return t;
}

static void time_end(struct wf_worker *w, struct timing t, const struct wf_ds *ds,
                     const struct wf_block *made)
{
    int64_t spent = wf_now(w->env->ctx) - t.start;
    struct wf_stats *stats = wf_stats_of(w->env, ds);

    atomic_fetch_add_explicit(&stats->busy_ns, spent - w->nested_ns, memory_order_relaxed);
    if (made)
        atomic_fetch_add_explicit(&stats->n_elements, made->n, memory_order_relaxed);
    w->nested_ns = t.outer_nested + spent;
}

weft_status wf_ds_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                        struct wf_block **out)
{
    struct timing t = time_begin(w);
    weft_status st = ds->kind->apply(ds, w, in, out);

    time_end(w, t, ds, st ? NULL : *out);
    return st ? wf_err_wrap(st, "%s", ds->name) : WEFT_OK;
}

weft_status wf_ds_get_block(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                            int64_t n, struct wf_block **out)
{
    struct wf_block *in = NULL;
    struct timing t;
    weft_status st;

    if (!ds->kind->get) {
        st = wf_ds_get_block(ds->in[0], w, at, n, &in);
        return st ? st : wf_ds_apply(ds, w, in, out);
    }
    t = time_begin(w);
    st = ds->kind->get(ds, w, at, n, out);
    time_end(w, t, ds, st ? NULL : *out);
    return st && ds->n_in == 0 ? wf_err_wrap(st, "%s", ds->name) : st;
}

/* ---- promises -------------------------------------------------------------------------------- */

/* Made already: p->data is the block. */
static weft_status made_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    (void)w;
    *out = p->data;
    return WEFT_OK;
}

static void made_drop(struct wf_promise *p)
{
    wf_block_free(p->data);
}

static const struct wf_ds_kind made_kind = {.name = "made", .make = made_make, .drop = made_drop};

struct wf_promise *wf_promise_new(struct wf_stage *s, int64_t n, int n_in, struct wf_promise **in,
                                  void *data)
{
    struct wf_promise *p =
        wf_alloc(s->env->ctx, sizeof *p + (size_t)n_in * sizeof(struct wf_promise *));

    if (!p) {
        wf_env_nomem(s->env, sizeof *p, "a promise");
        for (int i = 0; i < n_in; i++)
            wf_promise_drop(in[i]);
        return NULL;
    }
    p->stage = s;
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    p->n = n;
    p->n_in = n_in;
    p->in = (void *)(p + 1);
    for (int i = 0; i < n_in; i++)
        p->in[i] = in[i];
    p->data = data;
    return p;
}

weft_status wf_promise_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_stage *s = p->stage;
    struct wf_block *made = NULL;
    struct timing t = time_begin(w);
    weft_status st = s->kind->make(p, w, &made);

    time_end(w, t, s->ds, s->kind == s->ds->kind && !st ? made : NULL);
    p->data = NULL; /* consumed by make */
    wf_promise_drop(p);
    if (!st)
        *out = made;
    return st;
}

static void stage_unref(struct wf_stage *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
        wf_free(s->env->ctx, s);
}

void wf_promise_drop(struct wf_promise *p)
{
    struct wf_stage *s;

    if (!p)
        return;
    s = p->stage;
    if (p->data && s->kind->drop)
        s->kind->drop(p);
    for (int i = 0; i < p->n_in; i++)
        wf_promise_drop(p->in[i]);
    if (s->kind == &made_kind) { /* the stage is a part of the promise */
        wf_free(s->env->ctx, p);
        return;
    }
    wf_free(s->env->ctx, p);
    stage_unref(s);
}

weft_status wf_promise_gather_from(struct wf_stage *s, struct wf_stage *in, int64_t n,
                                   struct wf_promise **out, int64_t *got)
{
    struct wf_promise *few[16], **parts = few, *part;
    int64_t cap = WF_COUNT(few), n_parts = 0, have = 0;
    weft_status st = WEFT_OK;

    *out = NULL;
    while (have < n) {
        st = wf_stage_pull(in, n - have, &part);
        if (st || !part)
            break;
        if (n_parts == cap) {
            struct wf_promise **more = wf_alloc_n(s->env->ctx, cap * 2, sizeof *more);

            if (!more) {
                st = wf_env_nomem(s->env, cap * 16, s->ds->name);
                wf_promise_drop(part);
                break;
            }
            memcpy(more, parts, (size_t)n_parts * sizeof *more);
            if (parts != few)
                wf_free(s->env->ctx, parts);
            parts = more;
            cap *= 2;
        }
        parts[n_parts++] = part;
        have += part->n;
    }
    if (!st && n_parts) {
        *out = wf_promise_new(s, have, (int)n_parts, parts, NULL);
        n_parts = 0; /* taken over, or dropped */
        st = *out ? WEFT_OK : WEFT_ENOMEM;
        *got = have;
    }
    while (n_parts > 0)
        wf_promise_drop(parts[--n_parts]);
    if (parts != few)
        wf_free(s->env->ctx, parts);
    return st;
}

weft_status wf_promise_gather(struct wf_stage *s, int64_t n, struct wf_promise **out, int64_t *got)
{
    return wf_promise_gather_from(s, s->in[0], n, out, got);
}

weft_status wf_promise_make_inputs(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_block *few[16], **parts = few;
    int made = 0;
    weft_status st = WEFT_OK;

    if (p->n_in > WF_COUNT(few)) {
        parts = wf_alloc_n(w->env->ctx, p->n_in, sizeof *parts);
        if (!parts)
            return wf_env_nomem(w->env, p->n_in * 8, p->stage->ds->name);
    }
    while (made < p->n_in && !st) {
        struct wf_promise *one = p->in[made];

        p->in[made] = NULL;
        st = wf_promise_make(one, w, &parts[made]);
        made += !st;
    }
    if (!st) {
        st = wf_block_concat(w->env, made, parts, out);
        made = 0;
    }
    while (made > 0)
        wf_block_free(parts[--made]);
    if (parts != few)
        wf_free(w->env->ctx, parts);
    return st;
}

/* The promise of a made block needs a stage of its own kind, which follows the promise in
 * memory. */
struct made_promise {
    struct wf_promise promise;
    struct wf_stage stage;
};

struct wf_promise *wf_promise_made(struct wf_stage *s, struct wf_block *b)
{
    struct made_promise *p = wf_alloc(s->env->ctx, sizeof *p);

    if (!p) {
        wf_env_nomem(s->env, sizeof *p, "a promise");
        wf_block_free(b);
        return NULL;
    }
    p->stage = (struct wf_stage){.kind = &made_kind, .ds = s->ds, .env = s->env};
    p->promise = (struct wf_promise){.stage = &p->stage, .n = b->n, .data = b};
    return &p->promise;
}

/* ---- index: an addressable node by number ---------------------------------------------------- */

struct index_state {
    int64_t epoch, at;
};

struct index_range {
    int64_t epoch, first;
};

static weft_status index_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(struct index_state));
    return s->state ? WEFT_OK : wf_env_nomem(s->env, sizeof(struct index_state), s->ds->name);
}

static weft_status index_reset(struct wf_stage *s, int64_t epoch)
{
    *(struct index_state *)s->state = (struct index_state){.epoch = epoch};
    return WEFT_OK;
}

static weft_status index_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct index_state *at = s->state;
    struct index_range *r;
    int64_t n = wf_min_i64(want, s->ds->count - at->at);

    *out = NULL;
    if (n <= 0)
        return WEFT_OK;
    r = wf_alloc(s->env->ctx, sizeof *r);
    if (!r)
        return wf_env_nomem(s->env, sizeof *r, s->ds->name);
    *r = (struct index_range){at->epoch, at->at};
    *out = wf_promise_new(s, n, 0, NULL, r);
    if (!*out) {
        wf_free(s->env->ctx, r);
        return WEFT_ENOMEM;
    }
    at->at += n;
    return WEFT_OK;
}

static weft_status index_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    enum { FEW = 64 };
    struct index_range *r = p->data;
    struct wf_at few[FEW], *at = few;
    struct wf_chunk *chunk = NULL;
    weft_status st;

    if (p->n > FEW) {
        chunk = wf_chunk_new(w->env, p->n * (int64_t)sizeof *at);
        if (!chunk) {
            wf_free(w->env->ctx, r);
            return wf_env_nomem(w->env, p->n * (int64_t)sizeof *at, p->stage->ds->name);
        }
        at = (void *)chunk->data;
    }
    for (int64_t i = 0; i < p->n; i++)
        at[i] = (struct wf_at){r->epoch, r->first + i};
    wf_free(w->env->ctx, r);
    st = wf_ds_get_block(p->stage->ds, w, at, p->n, out);
    wf_chunk_unref(chunk);
    return st;
}

static void index_drop(struct wf_promise *p)
{
    wf_free(p->stage->env->ctx, p->data);
}

static void index_close(struct wf_stage *s)
{
    wf_free(s->env->ctx, s->state);
}

static weft_status index_save(struct wf_stage *s, struct wf_buf *out)
{
    struct index_state *at = s->state;

    wf_put_i64(out, at->epoch);
    wf_put_i64(out, at->at);
    return WEFT_OK;
}

static weft_status index_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct index_state *at = s->state;

    at->epoch = wf_get_i64(r);
    at->at = wf_get_range(r, 0, s->ds->count, "a sample number");
    return r->st;
}

static const struct wf_ds_kind index_kind = {
    .name = "index",
    .open = index_open,
    .close = index_close,
    .reset = index_reset,
    .pull = index_pull,
    .make = index_make,
    .drop = index_drop,
    .save = index_save,
    .restore = index_restore,
};

weft_status wf_stage_seek(struct wf_stage *s, int64_t epoch, int64_t number)
{
    if (s->kind != &index_kind)
        return wf_err(WEFT_EBUG, "%s is not addressable", s->ds->name);
    *(struct index_state *)s->state = (struct index_state){epoch, wf_min_i64(number, s->ds->count)};
    return WEFT_OK;
}

bool wf_stage_place(const struct wf_stage *s, int64_t *epoch, int64_t *number)
{
    const struct index_state *at = s->state;

    if (s->kind != &index_kind)
        return false;
    *epoch = at->epoch;
    *number = at->at;
    return true;
}

/* ---- apply: content only --------------------------------------------------------------------- */

static weft_status apply_open(struct wf_stage *s)
{
    s->inexact = s->ds->inexact;
    return wf_stage_input(s, 0, WF_IN_ANY, s->want);
}

static weft_status apply_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status apply_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct wf_promise *in = NULL;
    weft_status st = wf_stage_pull(s->in[0], want, &in);

    *out = NULL;
    if (st || !in)
        return st;
    *out = wf_promise_new(s, in->n, 1, &in, NULL);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status apply_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_block *in = NULL;
    struct wf_promise *first = p->in[0];
    weft_status st;

    p->n_in = 0;
    st = wf_promise_make(first, w, &in);
    return st ? st : wf_ds_apply(p->stage->ds, w, in, out);
}

static const struct wf_ds_kind apply_kind = {
    .name = "apply",
    .open = apply_open,
    .reset = apply_reset,
    .pull = apply_pull,
    .make = apply_make,
};

/* ---- stages ---------------------------------------------------------------------------------- */

static weft_status stage_new(struct wf_env *env, const struct wf_ds_kind *kind, struct wf_ds *ds,
                             int n_in, int64_t want, struct wf_stage **out)
{
    struct wf_stage *s = wf_alloc(env->ctx, sizeof *s + (size_t)n_in * sizeof(struct wf_stage *));

    if (!s)
        return wf_env_nomem(env, sizeof *s, ds->name);
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->kind = kind;
    s->ds = ds;
    s->env = env;
    s->n_in = n_in;
    s->in = (void *)(s + 1);
    s->want = want;
    *out = s;
    return WEFT_OK;
}

/* The stage itself, before a queue may be put after it. */
static weft_status open_plain(struct wf_env *env, struct wf_ds *ds, int64_t want,
                              struct wf_stage **out)
{
    const struct wf_ds_kind *kind = wf_ds_addressable(ds) ? &index_kind
                                    : ds->kind->pull      ? ds->kind
                                                          : &apply_kind;
    struct wf_stage *s = NULL;
    weft_status st;

    if (kind == &apply_kind && !ds->kind->apply)
        return wf_err(WEFT_ENOSUP, "%s: its input must be addressable", ds->name);
    st = stage_new(env, kind, ds, kind == &index_kind ? 0 : ds->n_in, want, &s);
    if (st)
        return st;
    if (kind != &index_kind) {
        s->inexact = ds->inexact;
        s->heavy = ds->heavy;
        s->unordered = ds->unordered;
    }
    st = kind->open ? kind->open(s) : WEFT_OK;
    if (st) {
        wf_stage_close(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

weft_status wf_stage_open(struct wf_env *env, struct wf_ds *ds, enum wf_in how, int64_t want,
                          struct wf_stage **out)
{
    struct wf_stage *s = NULL, *q = NULL;
    weft_status st = open_plain(env, ds, want, &s);

    if (st)
        return st;
    if ((how == WF_IN_MADE && s->kind != &wf_queue_kind) || (how == WF_IN_EXACT && s->inexact)) {
        st = stage_new(env, &wf_queue_kind, ds, 1, want, &q);
        if (st) {
            wf_stage_close(s);
            return st;
        }
        q->in[0] = s;
        q->heavy = s->heavy;
        q->unordered = s->unordered;
        st = wf_queue_kind.open(q);
        if (st) {
            wf_stage_close(q);
            return st;
        }
        s = q;
    }
    *out = s;
    return WEFT_OK;
}

weft_status wf_stage_input(struct wf_stage *s, int i, enum wf_in how, int64_t want)
{
    weft_status st = wf_stage_open(s->env, s->ds->in[i], how, want, &s->in[i]);

    if (st)
        return st;
    s->heavy = s->heavy || s->in[i]->heavy;
    if (how == WF_IN_ANY) {
        s->inexact = s->inexact || s->in[i]->inexact;
        s->unordered = s->unordered || s->in[i]->unordered;
    }
    return WEFT_OK;
}

void wf_stage_close(struct wf_stage *s)
{
    if (!s)
        return;
    if (s->kind->close)
        s->kind->close(s);
    for (int i = 0; i < s->n_in; i++)
        wf_stage_close(s->in[i]);
    stage_unref(s);
}

weft_status wf_stage_reset(struct wf_stage *s, int64_t epoch)
{
    return s->kind->reset(s, epoch);
}

weft_status wf_stage_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    weft_status st = s->kind->pull(s, want > 0 ? want : 1, out);

    return st && s->kind == s->ds->kind ? wf_err_wrap(st, "%s", s->ds->name) : st;
}

weft_status wf_stage_next(struct wf_stage *s, int64_t want, struct wf_block **out)
{
    struct wf_promise *p = NULL;
    struct wf_worker *w;
    weft_status st = wf_stage_pull(s, want, &p);

    *out = NULL;
    if (st || !p)
        return st;
    if (p->stage->kind == &made_kind) {
        *out = p->data;
        p->data = NULL;
        wf_promise_drop(p);
        return WEFT_OK;
    }
    w = wf_worker_take(s->env);
    if (!w) {
        wf_promise_drop(p);
        return wf_env_nomem(s->env, sizeof *w, "a worker");
    }
    st = wf_promise_make(p, w, out);
    wf_worker_give(w);
    return st;
}

/* A stage writes its own part, then its inputs theirs. A queue writes its input's position for the
 * oldest element not yet delivered, so it does that itself. */
weft_status wf_stage_save(struct wf_stage *s, struct wf_buf *out)
{
    weft_status st = s->kind->save ? s->kind->save(s, out) : WEFT_OK;

    for (int i = 0; i < s->n_in && !st && s->kind != &wf_queue_kind; i++)
        st = wf_stage_save(s->in[i], out);
    return st ? st : out->st;
}

weft_status wf_stage_restore(struct wf_stage *s, struct wf_reader *r)
{
    weft_status st = s->kind->restore ? s->kind->restore(s, r) : WEFT_OK;

    for (int i = 0; i < s->n_in && !st && s->kind != &wf_queue_kind; i++)
        st = wf_stage_restore(s->in[i], r);
    return st ? st : r->st;
}
