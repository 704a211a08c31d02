/* dealer.c - the samples of training steps: shard (t, l) of every global batch.
 *
 * For an addressable dataset a shard is a pure function of its numbers; threads may prepare
 * announced shards, which only saves time. For a stream an iterator is the only reader; what it
 * dealt is kept until it is committed. */
#include <pthread.h>

#include "data/data.h"
#include "weft/data_split.h"

#define MAX_BATCH ((int64_t)1 << 32)
#define MAX_SHARDS ((int64_t)1 << 24)
#define MAX_STATE ((int64_t)4 << 30)
#define PREPARED 64
#define DEFAULT_MEMORY ((int64_t)256 << 20)

enum task_state { TASK_FREE, TASK_WANTED, TASK_RUNNING, TASK_DONE };

/* A shard that was announced. */
struct task {
    enum task_state state;
    int64_t t, l;
    weft_batch *batch;
    weft_status st;
    char *error;
};

/* A step that a stream's reader has dealt. */
struct dealt {
    int64_t epoch, number;
    weft_batch *batch;
};

struct weft_dealer {
    weft_data *data;
    weft_ctx *ctx;
    struct wf_ds *samples, *batches;
    int64_t n, n_shards, epoch, max_open;
    bool drop_remainder;
    pthread_mutex_t lock;
    int64_t committed;  /* steps below it are done */
    struct wf_env *env; /* for shards computed, or restored */
    /* addressable */
    pthread_cond_t work, done;
    struct task task[PREPARED];
    bool stop;
    int n_threads;
    pthread_t *thread;
    /* a stream */
    weft_iter *it;
    int64_t next; /* the step that the reader deals next; those from `committed` on are kept */
    int64_t next_epoch, next_number;
    struct dealt *kept; /* step t is at t % max_open */
};

/* ---- numbers --------------------------------------------------------------------------------- */

static bool by_number(const weft_dealer *a)
{
    return !a->it;
}

int64_t weft_dealer_steps(const weft_dealer *a)
{
    int64_t count = a->samples->count;

    if (!by_number(a))
        return count == WEFT_ENDLESS ? WEFT_ENDLESS : WEFT_UNKNOWN;
    if (count == WEFT_ENDLESS)
        return WEFT_ENDLESS;
    return count / a->n + (!a->drop_remainder && count % a->n > 0);
}

/* Epoch, number and size of step t of an addressable dataset. */
static weft_status locate(const weft_dealer *a, int64_t t, struct dealt *at, int64_t *n)
{
    int64_t steps = weft_dealer_steps(a);

    if (t < 0)
        return wf_err(WEFT_ERANGE, "step %lld", (long long)t);
    if (steps == 0)
        return wf_err(WEFT_ERANGE, "step %lld of a dataset of %lld samples, in batches of %lld",
                      (long long)t, (long long)a->samples->count, (long long)a->n);
    at->epoch = a->epoch + (steps == WEFT_ENDLESS ? 0 : t / steps);
    at->number = steps == WEFT_ENDLESS ? t : t % steps;
    if (at->number > (INT64_MAX - a->n) / a->n)
        return wf_err(WEFT_ERANGE, "step %lld is too large", (long long)t);
    *n = wf_min_i64(a->n, a->samples->count - at->number * a->n);
    return WEFT_OK;
}

/* Samples [*first, *first + *m) of a batch of n: below 2^56, so the product fits. */
static void cut(const weft_dealer *a, int64_t n, int64_t l, int64_t *first, int64_t *m)
{
    *first = l * n / a->n_shards;
    *m = (l + 1) * n / a->n_shards - *first;
}

/* ---- addressable ----------------------------------------------------------------------------- */

/* m consecutive samples; if there are none, the first one is read for its columns. */
static weft_status read_samples(weft_dealer *a, int64_t epoch, int64_t first, int64_t m,
                                struct wf_block **out)
{
    struct wf_worker *w = wf_worker_take(a->env);
    int64_t n = wf_max_i64(m, 1);
    struct wf_chunk *room = wf_chunk_new(a->env, n * (int64_t)sizeof(struct wf_at));
    struct wf_block *b = NULL;
    struct wf_at *at;
    weft_status st = WEFT_OK;

    if (!w || !room) {
        st = wf_env_nomem(a->env, n * (int64_t)sizeof *at, "a shard");
        goto out;
    }
    at = (void *)room->data;
    for (int64_t i = 0; i < n; i++)
        at[i] = (struct wf_at){epoch, first + i};
    st = wf_ds_get_block(a->samples, w, at, n, &b);
    if (!st && m == 0)
        st = wf_block_slice(b, 0, 0, out);
    else if (!st)
        *out = b;
    if (m == 0)
        wf_block_free(b);
out:
    wf_chunk_unref(room);
    if (w)
        wf_worker_give(w);
    return st;
}

static weft_status compute(weft_dealer *a, int64_t t, int64_t l, weft_batch **out)
{
    struct wf_block *b = NULL, *stacked = NULL;
    struct dealt at = {0};
    int64_t n = 0, first, m;
    weft_status st = locate(a, t, &at, &n);

    if (st)
        return st;
    cut(a, n, l, &first, &m);
    /* An empty shard may be after the last sample. */
    first = wf_min_i64(first, n - 1) + at.number * a->n;
    st = read_samples(a, at.epoch, first, m, &b);
    if (!st)
        st = wf_block_stack(b, wf_max_i64(m, 1), true, a->batches, &stacked);
    if (!st && m == 0)
        stacked->at[0].epoch = at.epoch;
    if (!st)
        st = wf_batch_of(stacked, a->batches, out);
    if (st)
        wf_block_free(stacked);
    return st;
}

/* ---- announced shards ------------------------------------------------------------------------ */

static struct task *find_task(weft_dealer *a, int64_t t, int64_t l)
{
    for (int i = 0; i < PREPARED; i++)
        if (a->task[i].state != TASK_FREE && a->task[i].t == t && a->task[i].l == l)
            return &a->task[i];
    return NULL;
}

static struct task *next_task(weft_dealer *a)
{
    struct task *best = NULL;

    for (int i = 0; i < PREPARED; i++) {
        struct task *k = &a->task[i];

        if (k->state == TASK_WANTED &&
            (!best || k->t < best->t || (k->t == best->t && k->l < best->l)))
            best = k;
    }
    return best;
}

static void *prepare_main(void *arg)
{
    weft_dealer *a = arg;
    struct task *k;

    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        k = next_task(a);
        if (!k) {
            pthread_cond_wait(&a->work, &a->lock);
            continue;
        }
        k->state = TASK_RUNNING;
        pthread_mutex_unlock(&a->lock);
        k->batch = NULL;
        k->st = compute(a, k->t, k->l, &k->batch);
        k->error = k->st ? wf_strdup(a->ctx, weft_error()) : NULL;
        pthread_mutex_lock(&a->lock);
        k->state = TASK_DONE;
        pthread_cond_broadcast(&a->done);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void task_clear(weft_dealer *a, struct task *k)
{
    weft_batch_free(k->batch);
    wf_free(a->ctx, k->error);
    *k = (struct task){.state = TASK_FREE};
}

/* A free task, or that of a shard of an earlier step which was never requested; NULL if all are
 * busy. */
static struct task *room_for(weft_dealer *a, int64_t t)
{
    struct task *oldest = NULL;

    for (int i = 0; i < PREPARED; i++) {
        struct task *k = &a->task[i];

        if (k->state == TASK_FREE)
            return k;
        if (k->state == TASK_DONE && k->t < t && (!oldest || k->t < oldest->t))
            oldest = k;
    }
    if (oldest)
        task_clear(a, oldest);
    return oldest;
}

weft_status weft_dealer_ahead(weft_dealer *a, int64_t t, int64_t l)
{
    struct task *k;

    if (t < 0 || l < 0 || l >= a->n_shards)
        return wf_err(WEFT_ERANGE, "shard (%lld, %lld) of %lld", (long long)t, (long long)l,
                      (long long)a->n_shards);
    if (!a->n_threads ||
        atomic_load_explicit(&a->env->bytes, memory_order_relaxed) > a->env->budget)
        return WEFT_OK; /* a stream's iterator works ahead itself */
    pthread_mutex_lock(&a->lock);
    k = find_task(a, t, l) ? NULL : room_for(a, t);
    if (k) {
        *k = (struct task){.state = TASK_WANTED, .t = t, .l = l};
        pthread_cond_signal(&a->work);
    }
    pthread_mutex_unlock(&a->lock);
    return WEFT_OK;
}

/* What was prepared for a shard, if anything: *found. */
static weft_status take_prepared(weft_dealer *a, int64_t t, int64_t l, bool *found,
                                 weft_batch **out)
{
    struct task *k;
    weft_status st = WEFT_OK;

    *found = false;
    if (!a->n_threads)
        return WEFT_OK;
    pthread_mutex_lock(&a->lock);
    while ((k = find_task(a, t, l)) && k->state == TASK_RUNNING)
        pthread_cond_wait(&a->done, &a->lock);
    if (k && k->state == TASK_DONE) {
        *found = true;
        st = k->st;
        if (st)
            wf_err_set(k->error ? k->error : "out of memory");
        else
            *out = k->batch;
        k->batch = NULL;
    }
    if (k)
        task_clear(a, k);
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* ---- streams --------------------------------------------------------------------------------- */

static struct dealt *kept_at(weft_dealer *a, int64_t t)
{
    return &a->kept[t % a->max_open];
}

/* The reader deals one more step. The lock is held. */
static weft_status deal(weft_dealer *a)
{
    weft_batch *b = NULL;
    weft_status st = weft_iter_next(a->it, &b);

    if (!st && !b) {
        if (a->next_number == 0)
            return wf_err(WEFT_ERANGE, "step %lld: epoch %lld has no batch", (long long)a->next,
                          (long long)a->next_epoch);
        a->next_epoch++;
        a->next_number = 0;
        st = weft_iter_reset(a->it, a->next_epoch);
        if (!st)
            st = weft_iter_next(a->it, &b);
        if (!st && !b)
            return wf_err(WEFT_ERANGE, "step %lld: epoch %lld has no batch", (long long)a->next,
                          (long long)a->next_epoch);
    }
    if (st)
        return st;
    *kept_at(a, a->next) = (struct dealt){a->next_epoch, a->next_number, b};
    a->next++;
    a->next_number++;
    return WEFT_OK;
}

/* Rows [first, first + m) of a column of a batch; for a ragged one also its offsets, from 0. */
static weft_status cut_column(struct wf_block *v, const struct wf_block *b, int c, bool ragged,
                              int64_t first, int64_t m)
{
    struct wf_col *col = &v->col[c];
    int64_t row = wf_item_bytes(b->col[c].type.dtype), *o;
    void *p = NULL;
    weft_status st;

    *col = b->col[c];
    for (int k = 1; k < col->type.rank; k++)
        row *= col->type.dim[k];
    if (!ragged) {
        col->data = (char *)col->data + first * row;
        col->type.dim[0] = m;
        return WEFT_OK;
    }
    o = (int64_t *)b->col[c + 1].data + first;
    col->data = (char *)col->data + o[0] * row;
    col->type.dim[0] = o[m] - o[0];
    st = wf_block_alloc(v, (m + 1) * 8, &p);
    for (int64_t i = 0; i <= m && !st; i++)
        ((int64_t *)p)[i] = o[i] - o[0];
    v->col[c + 1] = b->col[c + 1];
    v->col[c + 1].data = p;
    v->col[c + 1].type.dim[0] = m + 1;
    return st;
}

static bool is_ragged(const weft_column *c)
{
    for (int k = 0; k < c->rank; k++)
        if (c->dim[k] < 0)
            return true;
    return false;
}

/* Shard l of a kept batch, as a view. */
static weft_status cut_batch(weft_dealer *a, const weft_batch *whole, int64_t l, weft_batch **out)
{
    struct wf_block *b = (void *)whole->inside, *v = NULL;
    int64_t first, m;
    int c = 0;
    weft_status st = wf_block_new(b->env, b->n_cols, 1, &v);

    cut(a, whole->n, l, &first, &m);
    if (!st)
        st = wf_block_keep_all(v, 1, &b);
    for (int i = 0; i < a->samples->n_cols && !st; i++) {
        bool ragged = is_ragged(&a->samples->col[i]);

        st = cut_column(v, b, c, ragged, first, m);
        c += 1 + ragged;
    }
    if (!st) {
        v->at[0] = b->sample && m ? b->sample[first] : b->at[0];
        v->sample = b->sample ? b->sample + first : NULL;
        v->n_samples = m;
        st = wf_batch_of(v, a->batches, out);
    }
    if (st)
        wf_block_free(v);
    return st;
}

static weft_status from_stream(weft_dealer *a, int64_t t, int64_t l, weft_batch **out)
{
    weft_status st = WEFT_OK;

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
    while (a->next <= t && !st)
        st = deal(a);
    return st ? st : cut_batch(a, kept_at(a, t)->batch, l, out);
}

/* ---- what a trainer calls -------------------------------------------------------------------- */

weft_status weft_dealer_get(weft_dealer *a, int64_t t, int64_t l, weft_batch **out)
{
    bool found;
    weft_status st;

    if (t < 0 || l < 0 || l >= a->n_shards)
        return wf_err(WEFT_ERANGE, "shard (%lld, %lld) of %lld", (long long)t, (long long)l,
                      (long long)a->n_shards);
    if (by_number(a)) {
        st = take_prepared(a, t, l, &found, out);
        return found ? st : compute(a, t, l, out);
    }
    pthread_mutex_lock(&a->lock);
    st = from_stream(a, t, l, out);
    pthread_mutex_unlock(&a->lock);
    return st;
}

weft_status weft_dealer_step(weft_dealer *a, int64_t t, int64_t *epoch, int64_t *number,
                             int64_t *n_samples)
{
    struct dealt at = {0};
    int64_t n = 0;
    weft_status st = WEFT_OK;

    if (by_number(a)) {
        st = locate(a, t, &at, &n);
    } else {
        pthread_mutex_lock(&a->lock);
        if (t < a->committed || t >= a->next)
            st = wf_err(WEFT_ESTATE, "step %lld is not kept; steps %lld to %lld are", (long long)t,
                        (long long)a->committed, (long long)a->next - 1);
        else
            at = *kept_at(a, t);
        n = st ? 0 : at.batch->n;
        pthread_mutex_unlock(&a->lock);
    }
    if (st)
        return st;
    *epoch = at.epoch;
    *number = at.number;
    *n_samples = n;
    return WEFT_OK;
}

static void let_go(weft_dealer *a, int64_t upto)
{
    for (int64_t t = a->committed; t < upto && t < a->next && a->kept; t++) {
        weft_batch_free(kept_at(a, t)->batch);
        kept_at(a, t)->batch = NULL;
    }
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
        let_go(a, t + 1);
        a->committed = t + 1;
        for (int i = 0; i < PREPARED; i++)
            if (a->task[i].state == TASK_DONE && a->task[i].t <= t)
                task_clear(a, &a->task[i]);
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* ---- position -------------------------------------------------------------------------------- */

static const char magic[] = "weft dealer position 1\n";

static weft_status save_stream(weft_dealer *a, struct wf_buf *out)
{
    char *state = NULL;
    int64_t n = 0;
    weft_status st = weft_iter_save(a->it, &state, &n);

    if (st)
        return st;
    wf_put_bytes(out, state, n);
    wf_free(a->ctx, state);
    wf_put_i64(out, a->next);
    wf_put_i64(out, a->next_epoch);
    wf_put_i64(out, a->next_number);
    for (int64_t t = a->committed; t < a->next && !st; t++) {
        struct dealt *k = kept_at(a, t);

        wf_put_i64(out, k->epoch);
        wf_put_i64(out, k->number);
        st = wf_block_save((const struct wf_block *)(const void *)k->batch->inside, out);
    }
    return st ? st : out->st;
}

weft_status weft_dealer_save(weft_dealer *a, char **state, int64_t *n)
{
    struct wf_buf b;
    char *text = NULL;
    weft_status st = weft_ds_text(a->data, wf_ds_handle(a->samples), &text);

    if (st)
        return st;
    wf_buf_init(&b, a->ctx, MAX_STATE);
    wf_buf_add(&b, magic, sizeof magic - 1);
    wf_put_bytes(&b, text, (int64_t)strlen(text));
    wf_free(a->ctx, text);
    pthread_mutex_lock(&a->lock);
    wf_put_i64(&b, a->n);
    wf_put_i64(&b, a->n_shards);
    wf_put_i64(&b, a->drop_remainder);
    wf_put_i64(&b, a->epoch);
    wf_put_i64(&b, a->committed);
    st = b.st ? b.st : by_number(a) ? WEFT_OK : save_stream(a, &b);
    pthread_mutex_unlock(&a->lock);
    if (!st) {
        *state = b.data;
        *n = b.len;
        b.data = NULL;
    }
    wf_buf_free(&b);
    return st;
}

/* Numbers that must match the saved ones. */
static weft_status check_same(struct wf_reader *r, int64_t here, const char *what)
{
    int64_t there = wf_get_i64(r);

    if (r->st || there == here)
        return r->st;
    return wf_err(WEFT_EINVAL, "the saved position has %s %lld, but this dealer has %lld", what,
                  (long long)there, (long long)here);
}

static weft_status check_text(weft_dealer *a, struct wf_reader *r)
{
    char *text = NULL;
    const char *saved;
    int64_t n;
    weft_status st = weft_ds_text(a->data, wf_ds_handle(a->samples), &text);

    if (st)
        return st;
    saved = wf_get_bytes(r, &n);
    st = r->st;
    if (!st && (n != (int64_t)strlen(text) || memcmp(saved, text, (size_t)n) != 0))
        st = wf_err(WEFT_EINVAL, "the saved position belongs to another pipeline");
    wf_free(a->ctx, text);
    return st;
}

/* Whether a kept batch has as many rows as samples, in every column. */
static bool check_rows(const weft_dealer *a, const struct wf_block *b)
{
    int c = 0;
    bool ok = b->n == 1 && b->sample && b->n_samples <= a->n;

    for (int i = 0; i < a->samples->n_cols && ok; i++) {
        weft_tensor t = wf_col_element(&b->col[c++], 0), o;
        int64_t at = 0;

        ok = !b->col[c - 1].offset;
        if (!is_ragged(&a->samples->col[i])) {
            ok = ok && t.dim[0] == b->n_samples;
            continue;
        }
        o = wf_col_element(&b->col[c++], 0);
        ok = ok && !b->col[c - 1].offset && o.dim[0] == b->n_samples + 1;
        for (int64_t k = 0; k <= b->n_samples && ok; k++) {
            int64_t next = ((const int64_t *)o.data)[k];

            ok = k == 0 ? next == 0 : next >= at && next <= t.dim[0];
            at = next;
        }
    }
    return ok;
}

static weft_status restore_kept(weft_dealer *a, struct wf_reader *r)
{
    struct dealt k;
    struct wf_block *b = NULL;
    weft_status st;

    k.epoch = wf_get_i64(r);
    k.number = wf_get_range(r, 0, INT64_MAX, "a number of a step");
    st = r->st ? r->st : wf_block_load(a->env, a->batches, r, &b);
    if (st)
        return st;
    st = check_rows(a, b) ? WEFT_OK
                          : wf_err(WEFT_EPARSE, "saved position: a batch whose columns differ");
    if (!st)
        st = wf_batch_of(b, a->batches, &k.batch);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *kept_at(a, a->next++) = k;
    return WEFT_OK;
}

static weft_status restore_stream(weft_dealer *a, struct wf_reader *r)
{
    const char *state;
    int64_t n, next;
    weft_status st;

    state = wf_get_bytes(r, &n);
    st = r->st ? r->st : weft_iter_restore(a->it, state, n);
    if (st)
        return st;
    next = wf_get_range(r, a->committed, INT64_MAX, "a step");
    a->next_epoch = wf_get_i64(r);
    a->next_number = wf_get_range(r, 0, INT64_MAX, "a number of a step");
    if (!r->st && next - a->committed > a->max_open)
        return wf_err(WEFT_EINVAL,
                      "the saved position keeps %lld steps; this dealer keeps at most %lld",
                      (long long)(next - a->committed), (long long)a->max_open);
    a->next = a->committed;
    while (!r->st && !st && a->next < next)
        st = restore_kept(a, r);
    return st ? st : r->st;
}

weft_status weft_dealer_restore(weft_dealer *a, const char *state, int64_t n)
{
    struct wf_reader r = {state, state + n, WEFT_OK};
    weft_status st;

    if (n < (int64_t)sizeof magic - 1 || memcmp(state, magic, sizeof magic - 1) != 0)
        return wf_err(WEFT_EPARSE, "not a saved position of a dealer");
    r.p += sizeof magic - 1;
    st = check_text(a, &r);
    if (!st)
        st = check_same(&r, a->n, "batches of");
    if (!st)
        st = check_same(&r, a->n_shards, "shards:");
    if (!st)
        st = check_same(&r, a->drop_remainder, "drop_remainder");
    if (!st)
        st = check_same(&r, a->epoch, "first epoch");
    if (st)
        return st;
    pthread_mutex_lock(&a->lock);
    let_go(a, a->next);
    a->committed = wf_get_range(&r, 0, INT64_MAX, "a step");
    a->next = a->committed;
    st = r.st ? r.st : by_number(a) ? WEFT_OK : restore_stream(a, &r);
    pthread_mutex_unlock(&a->lock);
    if (!st && r.p != r.end)
        st = wf_err(WEFT_EPARSE, "saved position: %lld bytes too many", (long long)(r.end - r.p));
    return st;
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static weft_status start_threads(weft_dealer *a, int threads)
{
    a->thread = wf_alloc_n(a->ctx, threads + 1, sizeof *a->thread);
    if (!a->thread)
        return wf_err_nomem(a->ctx, (size_t)threads * sizeof *a->thread, "a dealer");
    while (a->n_threads < threads) {
        if (pthread_create(&a->thread[a->n_threads], NULL, prepare_main, a))
            return wf_err(WEFT_ENOMEM, "cannot start thread %d of a dealer", a->n_threads);
        a->n_threads++;
    }
    return WEFT_OK;
}

static weft_status start_reader(weft_dealer *a, const weft_dealer_opts *o)
{
    a->next_epoch = o->epoch;
    a->max_open = o->max_open ? o->max_open : 16;
    a->kept = wf_alloc_n(a->ctx, a->max_open, sizeof *a->kept);
    if (!a->kept)
        return wf_err_nomem(a->ctx, (size_t)a->max_open * sizeof *a->kept, "a dealer");
    return weft_iter_new(
        a->data, wf_ds_handle(a->batches),
        WEFT_OPTS(weft_iter_opts, .threads = o->threads, .memory = o->memory, .epoch = o->epoch),
        &a->it);
}

static weft_status check_opts(const weft_dealer_opts *o)
{
    if (o->batch < 1 || o->batch > MAX_BATCH)
        return wf_err(WEFT_EINVAL, "dealer: batches of %lld samples", (long long)o->batch);
    if (o->shards < 0 || o->shards > MAX_SHARDS || o->memory < 0 || o->max_open < 0 ||
        o->max_open > 1 << 20 || (o->threads < 0 && o->threads != WEFT_ZERO) || o->threads > 1024)
        return wf_err(WEFT_EINVAL, "dealer: %lld shards, %d threads, %lld bytes, %lld steps",
                      (long long)o->shards, o->threads, (long long)o->memory,
                      (long long)o->max_open);
    return WEFT_OK;
}

weft_status weft_dealer_new(weft_data *d, weft_ds s, const weft_dealer_opts *opts,
                            weft_dealer **out)
{
    weft_dealer_opts o;
    weft_ds batches;
    weft_dealer *a;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_dealer_opts");

    if (!st)
        st = check_opts(&o);
    if (st)
        return st;
    batches = weft_ds_batch(
        d, s, o.batch,
        WEFT_OPTS(weft_batch_opts, .drop_remainder = o.drop_remainder, .ragged = true));
    st = weft_data_status(d);
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
    a->samples = wf_ds_node(d, s);
    a->batches = wf_ds_node(d, batches);
    a->n = o.batch;
    a->n_shards = o.shards ? o.shards : 1;
    a->drop_remainder = o.drop_remainder;
    a->epoch = o.epoch;
    st = wf_env_new(d, o.memory ? o.memory : DEFAULT_MEMORY, NULL, &a->env);
    if (!st && wf_ds_addressable(a->samples))
        st = start_threads(a, o.threads == WEFT_ZERO ? 0
                              : o.threads            ? o.threads
                                                     : weft_ctx_threads(d->ctx));
    else if (!st)
        st = start_reader(a, &o);
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
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->work);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_threads; i++)
        pthread_join(a->thread[i], NULL);
    for (int i = 0; i < PREPARED; i++)
        task_clear(a, &a->task[i]);
    let_go(a, a->next);
    weft_iter_free(a->it);
    wf_env_close(a->env);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->work);
    pthread_cond_destroy(&a->done);
    wf_free(a->ctx, a->kept);
    wf_free(a->ctx, a->thread);
    wf_free(a->ctx, a);
}
