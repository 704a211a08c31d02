/* dealer.c - the samples of training steps: shard (t, l) of every global batch.
 *
 * If samples can be read by number, a shard is a pure function of its numbers, and only its samples
 * are read; threads may prepare announced shards, which only saves time (ahead.c). Otherwise an
 * iterator reads batches in order; what it dealt is kept until it is committed (reader.c). */
#include "data/split/dealer.h"

#define MAX_BATCH ((int64_t)1 << 32)
#define MAX_SHARDS ((int64_t)1 << 24)
#define DEFAULT_MEMORY ((int64_t)256 << 20)
#define FEW 64 /* samples whose numbers fit on the stack */

/* ---- numbers --------------------------------------------------------------------------------- */

static bool by_number(const weft_dealer *a)
{
    return !a->it;
}

int64_t weft_dealer_steps(const weft_dealer *a)
{
    int64_t count = a->ds->inexact ? WEFT_UNKNOWN : a->ds->count;

    if (count < 0 || count == WEFT_ENDLESS)
        return count;
    return a->steps_per_epoch ? wf_min_i64(count, a->steps_per_epoch) : count;
}

weft_status wf_dealer_locate(const weft_dealer *a, int64_t t, struct wf_step_at *out)
{
    int64_t steps = weft_dealer_steps(a), since = t - a->first_step, epochs;

    if (t < 0)
        return wf_err(WEFT_ERANGE, "step %lld", (long long)t);
    if (steps == 0)
        return wf_err(WEFT_ERANGE, "step %lld of a dataset of %lld samples, in batches of %lld",
                      (long long)t, (long long)a->samples->count, (long long)a->n);
    epochs = steps == WEFT_ENDLESS ? 0 : since / steps - (since % steps < 0);
    out->epoch = a->first_epoch + epochs;
    out->number = steps == WEFT_ENDLESS ? since : since - epochs * steps;
    if (out->number > (INT64_MAX - a->n) / a->n)
        return wf_err(WEFT_ERANGE, "step %lld is too large", (long long)t);
    out->n = wf_min_i64(a->n, a->samples->count - out->number * a->n);
    return WEFT_OK;
}

/* Batches have less than 2^32 samples where there are several shards, so the product fits. */
void wf_dealer_cut(const weft_dealer *a, int64_t n, int64_t l, int64_t *first, int64_t *m)
{
    *first = a->n_shards == 1 ? 0 : l * n / a->n_shards;
    *m = a->n_shards == 1 ? n : (l + 1) * n / a->n_shards - *first;
}

/* ---- by number ------------------------------------------------------------------------------- */

/* n consecutive samples. */
static weft_status read_samples(weft_dealer *a, struct wf_worker *w, int64_t epoch, int64_t first,
                                int64_t n, struct wf_block **out)
{
    struct wf_at few[FEW], *at = few;
    struct wf_chunk *room = NULL;
    weft_status st;

    if (n > FEW) {
        room = wf_chunk_new(a->env, n * (int64_t)sizeof *at);
        if (!room)
            return wf_env_nomem(a->env, n * (int64_t)sizeof *at, "a shard");
        at = (void *)room->data;
    }
    for (int64_t i = 0; i < n; i++)
        at[i] = (struct wf_at){epoch, first + i};
    st = wf_ds_get_block(a->samples, w, at, n, out);
    wf_chunk_unref(room);
    return st;
}

/* The batch node's work, and that of the nodes after it. */
static weft_status stack_with(weft_dealer *a, struct wf_worker *w, struct wf_block *b,
                              weft_batch **out)
{
    struct wf_block *stacked = NULL, *changed = NULL;
    weft_status st = a->batch->kind->stack(a->batch, b, &stacked);

    for (int i = a->n_after - 1; i >= 0 && !st; i--) {
        if (!a->after[i]->kind->apply)
            continue;
        st = wf_ds_apply(a->after[i], w, stacked, &changed);
        stacked = changed;
    }
    if (st)
        return st;
    st = wf_batch_of(stacked, a->ds, out);
    if (st)
        wf_block_free(stacked);
    return st;
}

weft_status wf_dealer_stack(weft_dealer *a, struct wf_block *b, int64_t m, weft_batch **out)
{
    struct wf_worker *w = wf_worker_take(a->env);
    int64_t epoch = b->n ? b->at[0].epoch : 0;
    struct wf_block *none = NULL;
    weft_status st = w ? WEFT_OK : wf_env_nomem(a->env, sizeof *w, "a shard");

    if (!st && m == 0) {
        st = wf_block_slice(b, 0, 0, &none);
        wf_block_free(b);
        b = none;
    }
    if (!st)
        st = stack_with(a, w, b, out);
    else
        wf_block_free(b);
    if (!st && m == 0)
        (*out)->epoch = epoch;
    if (w)
        wf_worker_give(w);
    return st;
}

weft_status wf_dealer_compute(weft_dealer *a, int64_t t, int64_t l, weft_batch **out)
{
    struct wf_step_at at;
    struct wf_worker *w;
    struct wf_block *b = NULL;
    int64_t first, m;
    weft_status st = wf_dealer_locate(a, t, &at);

    if (st)
        return st;
    wf_dealer_cut(a, at.n, l, &first, &m);
    /* An empty shard may be after the last sample; one sample is read for its columns. */
    first = wf_min_i64(first, at.n - 1) + at.number * a->n;
    w = wf_worker_take(a->env);
    if (!w)
        return wf_env_nomem(a->env, sizeof *w, "a shard");
    st = read_samples(a, w, at.epoch, first, wf_max_i64(m, 1), &b);
    if (!st && m > 0)
        st = stack_with(a, w, b, out);
    wf_worker_give(w);
    return st || m > 0 ? st : wf_dealer_stack(a, b, 0, out);
}

/* ---- what a trainer calls -------------------------------------------------------------------- */

static void count_wait(weft_dealer *a, int64_t start)
{
    int64_t now = wf_now(a->ctx), none = 0;
    int64_t waited = atomic_fetch_add_explicit(&a->waited_ns, now - start, memory_order_relaxed);

    atomic_compare_exchange_strong_explicit(&a->first_ns, &none, start, memory_order_relaxed,
                                            memory_order_relaxed);
    wf_warn_starved(a->env, a->ds, none ? none : start, now, waited + now - start, &a->warned);
}

weft_status weft_dealer_get(weft_dealer *a, int64_t t, int64_t l, weft_batch **out)
{
    int64_t start;
    bool found;
    weft_status st;

    if (t < 0 || l < 0 || l >= a->n_shards)
        return wf_err(WEFT_ERANGE, "shard (%lld, %lld) of %lld", (long long)t, (long long)l,
                      (long long)a->n_shards);
    if (by_number(a)) {
        start = wf_now(a->ctx);
        st = wf_ahead_take(a, t, l, &found, out);
        if (!found)
            st = wf_dealer_compute(a, t, l, out);
        count_wait(a, start);
        return st;
    }
    pthread_mutex_lock(&a->lock);
    st = wf_reader_get(a, t, l, out);
    pthread_mutex_unlock(&a->lock);
    return st;
}

weft_status weft_dealer_has(weft_dealer *a, int64_t epoch, int64_t t, bool *has)
{
    struct wf_step_at at;
    bool endless = a->ds->count == WEFT_ENDLESS;
    weft_status st;

    if (!by_number(a)) {
        pthread_mutex_lock(&a->lock);
        st = wf_reader_has(a, endless ? a->next_epoch : epoch, t, has);
        pthread_mutex_unlock(&a->lock);
        return st;
    }
    *has = false;
    if (weft_dealer_steps(a) == 0)
        return WEFT_OK;
    st = wf_dealer_locate(a, t, &at);
    *has = !st && (endless || at.epoch == epoch);
    return st;
}

weft_status weft_dealer_begin(weft_dealer *a, int64_t epoch)
{
    struct wf_step_at at;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&a->lock);
    if (!by_number(a)) {
        st = wf_reader_begin(a, epoch);
    } else if (weft_dealer_steps(a) == 0 || wf_dealer_locate(a, a->committed, &at) ||
               at.epoch != epoch || at.number != 0) {
        wf_ahead_clear(a);
        a->first_step = a->committed;
        a->first_epoch = epoch;
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

weft_status weft_dealer_step(weft_dealer *a, int64_t t, int64_t *epoch, int64_t *number,
                             int64_t *n_samples)
{
    struct wf_step_at at = {0};
    weft_status st = WEFT_OK;

    if (by_number(a)) {
        st = wf_dealer_locate(a, t, &at);
    } else {
        pthread_mutex_lock(&a->lock);
        if (t < a->committed || t >= a->next)
            st = wf_err(WEFT_ESTATE, "step %lld is not kept; steps %lld to %lld are", (long long)t,
                        (long long)a->committed, (long long)a->next - 1);
        else
            at = (struct wf_step_at){wf_kept_at(a, t)->epoch, wf_kept_at(a, t)->number,
                                     wf_kept_at(a, t)->n};
        pthread_mutex_unlock(&a->lock);
    }
    if (st)
        return st;
    *epoch = at.epoch;
    *number = at.number;
    *n_samples = at.n;
    return WEFT_OK;
}

weft_status weft_dealer_commit(weft_dealer *a, int64_t t)
{
    weft_status st = WEFT_OK;

    if (t < 0 || t == INT64_MAX)
        return wf_err(WEFT_ERANGE, "step %lld", (long long)t);
    pthread_mutex_lock(&a->lock);
    if (!by_number(a) && t >= a->next) {
        st = wf_err(WEFT_ESTATE, "step %lld has not been dealt yet", (long long)t);
    } else if (t >= a->committed) {
        if (!by_number(a))
            wf_reader_let_go(a, t + 1);
        a->committed = t + 1;
        wf_ahead_commit(a, t);
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

int64_t weft_dealer_committed(weft_dealer *a)
{
    int64_t t;

    pthread_mutex_lock(&a->lock);
    t = a->committed;
    pthread_mutex_unlock(&a->lock);
    return t;
}

void wf_dealer_share(weft_dealer *a)
{
    a->env->no_pool = true;
}

double wf_dealer_waited_s(const weft_dealer *a)
{
    double seconds, share;

    if (by_number(a))
        return (double)atomic_load_explicit(&a->waited_ns, memory_order_relaxed) * 1e-9;
    weft_iter_waited(a->it, &seconds, &share);
    return seconds;
}

int64_t wf_dealer_skipped(const weft_dealer *a)
{
    int64_t n = wf_env_skipped(a->env, a->ds);
    weft_stage_stats stats;

    for (int i = 0; a->it && i < weft_iter_n_stages(a->it); i++)
        if (!weft_iter_stage(a->it, i, &stats))
            n += stats.n_skipped;
    return n;
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static weft_status check_opts(const weft_dealer_opts *o)
{
    if (o->batch < 0 || o->batch > MAX_BATCH)
        return wf_err(WEFT_EINVAL, "dealer: batches of %lld samples", (long long)o->batch);
    if (o->shards < 0 || o->shards > MAX_SHARDS || o->memory < 0 || o->max_open < 0 ||
        o->max_open > 1 << 20 || (o->threads < 0 && o->threads != WEFT_ZERO) || o->threads > 1024 ||
        o->steps_per_epoch < 0)
        return wf_err(WEFT_EINVAL,
                      "dealer: %lld shards, %d threads, %lld bytes, %lld steps, %lld in an epoch",
                      (long long)o->shards, o->threads, (long long)o->memory,
                      (long long)o->max_open, (long long)o->steps_per_epoch);
    return WEFT_OK;
}

/* The dataset of batches. */
static weft_status find_batches(weft_data *d, weft_ds s, const weft_dealer_opts *o,
                                struct wf_ds **out)
{
    const struct wf_ds *ds = wf_ds_node(d, s);

    if (!ds)
        return weft_data_status(d) ? weft_data_status(d)
                                   : wf_err(WEFT_EINVAL, "dealer: not a dataset of this pipeline");
    if (o->batch == 0 && !ds->batched)
        return wf_err(WEFT_EINVAL, "dealer: the dataset has no batches: give their size (batch)");
    if (o->batch > 0)
        s = weft_ds_batch(
            d, s, o->batch,
            WEFT_OPTS(weft_batch_opts, .drop_remainder = o->drop_remainder, .ragged = true));
    *out = wf_ds_node(d, s);
    return weft_data_status(d);
}

/* The node that makes the batches, if what comes after it changes rows alone. */
static weft_status find_samples(weft_dealer *a)
{
    struct wf_ds *ds = a->ds;
    struct wf_batching how;

    while (!ds->kind->stack && ds->kind->row_wise && ds->n_in == 1 && !ds->inexact) {
        a->n_after++;
        ds = ds->in[0];
    }
    if (!ds->kind->stack || (a->n_shards > 1 && ds->kind->batching(ds).n > MAX_BATCH)) {
        a->n_after = 0;
        return WEFT_OK;
    }
    a->after = wf_alloc_n(a->ctx, a->n_after + 1, sizeof *a->after);
    if (!a->after)
        return wf_err_nomem(a->ctx, 0, "a dealer");
    ds = a->ds;
    for (int i = 0; i < a->n_after; i++) {
        a->after[i] = ds;
        ds = ds->in[0];
    }
    how = ds->kind->batching(ds);
    a->batch = ds;
    a->samples = ds->in[0];
    a->n = how.n;
    a->drop_remainder = how.drop_remainder;
    return WEFT_OK;
}

static weft_status start(weft_dealer *a, const weft_dealer_opts *o)
{
    int threads = o->threads == WEFT_ZERO ? 0 : o->threads;
    weft_status st = find_samples(a);

    if (!st && !(a->batch && wf_ds_addressable(a->ds) && wf_ds_addressable(a->samples)))
        st = wf_reader_start(a, o); /* before env, which knows the nodes that exist */
    if (!st)
        st = wf_env_new(a->data, o->memory ? o->memory : DEFAULT_MEMORY, NULL, &a->env);
    if (st || a->it)
        return st;
    return wf_ahead_start(a, o->threads ? threads : weft_ctx_threads(a->ctx), o->follow);
}

weft_status weft_dealer_new(weft_data *d, weft_ds s, const weft_dealer_opts *opts,
                            weft_dealer **out)
{
    weft_dealer_opts o;
    struct wf_ds *batches = NULL;
    weft_dealer *a;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_dealer_opts");

    if (!st)
        st = check_opts(&o);
    if (!st)
        st = find_batches(d, s, &o, &batches);
    if (st)
        return st;
    a = wf_alloc(d->ctx, sizeof *a);
    if (!a)
        return wf_err_nomem(d->ctx, sizeof *a, "a dealer");
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->done, NULL);
    a->data = d;
    a->ctx = d->ctx;
    a->ds = batches;
    a->n_shards = o.shards ? o.shards : 1;
    a->steps_per_epoch = batches->count == WEFT_ENDLESS ? 0 : o.steps_per_epoch;
    a->first_epoch = o.epoch;
    a->end = INT64_MAX;
    st = start(a, &o);
    if (st) {
        weft_dealer_free(a);
        return st;
    }
    *out = a;
    return WEFT_OK;
}

void weft_dealer_free(weft_dealer *a)
{
    if (!a)
        return;
    wf_ahead_stop(a);
    wf_reader_stop(a);
    wf_env_close(a->env);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->work);
    pthread_cond_destroy(&a->done);
    wf_free(a->ctx, a->after);
    wf_free(a->ctx, a);
}
