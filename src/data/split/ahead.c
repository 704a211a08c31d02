/* ahead.c - shards of a dealer that are prepared before they are requested. */
#include "data/split/dealer.h"

static struct wf_task *find_task(weft_dealer *a, int64_t t, int64_t l)
{
    for (int i = 0; i < a->n_tasks; i++)
        if (a->task[i].state != WF_TASK_FREE && a->task[i].t == t && a->task[i].l == l)
            return &a->task[i];
    return NULL;
}

static struct wf_task *next_task(weft_dealer *a)
{
    struct wf_task *best = NULL;

    for (int i = 0; i < a->n_tasks; i++) {
        struct wf_task *k = &a->task[i];

        if (k->state == WF_TASK_WANTED &&
            (!best || k->t < best->t || (k->t == best->t && k->l < best->l)))
            best = k;
    }
    return best;
}

static void *prepare_main(void *arg)
{
    weft_dealer *a = arg;
    struct wf_task *k;

    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        k = next_task(a);
        if (!k) {
            pthread_cond_wait(&a->work, &a->lock);
            continue;
        }
        k->state = WF_TASK_RUNNING;
        pthread_mutex_unlock(&a->lock);
        k->batch = NULL;
        k->st = wf_dealer_compute(a, k->t, k->l, &k->batch);
        k->error = k->st ? wf_strdup(a->ctx, weft_error()) : NULL;
        pthread_mutex_lock(&a->lock);
        k->state = WF_TASK_DONE;
        pthread_cond_broadcast(&a->done);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void task_clear(weft_dealer *a, struct wf_task *k)
{
    weft_batch_free(k->batch);
    wf_free(a->ctx, k->error);
    *k = (struct wf_task){.state = WF_TASK_FREE};
}

/* A free task, or that of a shard of an earlier step which was never requested; NULL if all are
 * busy. */
static struct wf_task *room_for(weft_dealer *a, int64_t t)
{
    struct wf_task *oldest = NULL;

    for (int i = 0; i < a->n_tasks; i++) {
        struct wf_task *k = &a->task[i];

        if (k->state == WF_TASK_FREE)
            return k;
        if (k->state == WF_TASK_DONE && k->t < t && (!oldest || k->t < oldest->t))
            oldest = k;
    }
    if (a->n_tasks < WF_DEALER_PREPARED)
        return &a->task[a->n_tasks++];
    if (oldest)
        task_clear(a, oldest);
    return oldest;
}

static bool has_memory(const weft_dealer *a)
{
    return atomic_load_explicit(&a->env->bytes, memory_order_relaxed) <= a->env->budget;
}

/* false: there is no room. The lock is held. */
static bool announce(weft_dealer *a, int64_t t, int64_t l)
{
    struct wf_task *k;

    if (find_task(a, t, l))
        return true;
    k = has_memory(a) ? room_for(a, t) : NULL;
    if (!k)
        return false;
    *k = (struct wf_task){.state = WF_TASK_WANTED, .t = t, .l = l};
    pthread_cond_signal(&a->work);
    return true;
}

weft_status weft_dealer_ahead(weft_dealer *a, int64_t t, int64_t l)
{
    if (t < 0 || l < 0 || l >= a->n_shards)
        return wf_err(WEFT_ERANGE, "shard (%lld, %lld) of %lld", (long long)t, (long long)l,
                      (long long)a->n_shards);
    if (!a->n_threads)
        return WEFT_OK; /* a reader's iterator works ahead itself */
    pthread_mutex_lock(&a->lock);
    announce(a, t, l);
    pthread_mutex_unlock(&a->lock);
    return WEFT_OK;
}

/* An empty shard need not be prepared: a sample would be read for its columns. */
static bool is_empty(const weft_dealer *a, int64_t t, int64_t l)
{
    struct wf_step_at at;
    int64_t first, m;

    if (wf_dealer_locate(a, t, &at))
        return true;
    wf_dealer_cut(a, at.n, l, &first, &m);
    return m == 0;
}

/* Whoever requested shard l of step t will request that of the next steps. The lock is held. */
static void follow(weft_dealer *a, int64_t t, int64_t l)
{
    int64_t from = wf_max_i64(a->followed[l], t) + 1, to = wf_min_i64(t + a->depth, a->end - 1);

    for (int64_t s = from; s <= to && (is_empty(a, s, l) || announce(a, s, l)); s++)
        a->followed[l] = s;
}

/* Somebody waits: work further ahead. */
static void deepen(weft_dealer *a)
{
    a->depth = wf_max_i64(a->depth, wf_min_i64(2 * a->depth, WF_DEALER_PREPARED / 2 / a->n_shards));
}

weft_status wf_ahead_take(weft_dealer *a, int64_t t, int64_t l, bool *found, weft_batch **out)
{
    struct wf_task *k;
    weft_status st = WEFT_OK;

    *found = false;
    if (!a->n_threads)
        return WEFT_OK;
    pthread_mutex_lock(&a->lock);
    if (a->followed)
        follow(a, t, l);
    while ((k = find_task(a, t, l)) && k->state == WF_TASK_RUNNING) {
        deepen(a);
        pthread_cond_wait(&a->done, &a->lock);
    }
    if (k && k->state == WF_TASK_DONE) {
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

void wf_ahead_commit(weft_dealer *a, int64_t t)
{
    for (int i = 0; i < a->n_tasks; i++) {
        struct wf_task *k = &a->task[i];

        if ((k->state == WF_TASK_DONE || k->state == WF_TASK_WANTED) && k->t <= t)
            task_clear(a, k);
    }
}

void wf_ahead_clear(weft_dealer *a)
{
    for (int i = 0; i < WF_DEALER_PREPARED; i++) {
        while (a->task[i].state == WF_TASK_RUNNING)
            pthread_cond_wait(&a->done, &a->lock);
        task_clear(a, &a->task[i]);
    }
    for (int64_t l = 0; l < a->n_shards && a->followed; l++)
        a->followed[l] = -1;
}

void wf_dealer_set_end(weft_dealer *a, int64_t end)
{
    pthread_mutex_lock(&a->lock);
    a->end = end;
    pthread_mutex_unlock(&a->lock);
}

weft_status wf_ahead_start(weft_dealer *a, int threads, bool follow)
{
    a->thread = wf_alloc_n(a->ctx, threads + 1, sizeof *a->thread);
    if (follow && threads)
        a->followed = wf_alloc_n(a->ctx, a->n_shards, sizeof *a->followed);
    if (!a->thread || (follow && threads && !a->followed))
        return wf_err_nomem(a->ctx, (size_t)threads * sizeof *a->thread, "a dealer");
    for (int64_t l = 0; l < a->n_shards && a->followed; l++)
        a->followed[l] = -1;
    a->depth = (2 * threads + a->n_shards - 1) / a->n_shards;
    a->env->no_pool = threads > 0;
    while (a->n_threads < threads) {
        if (pthread_create(&a->thread[a->n_threads], NULL, prepare_main, a))
            return wf_err(WEFT_ENOMEM, "cannot start thread %d of a dealer", a->n_threads);
        a->n_threads++;
    }
    return WEFT_OK;
}

void wf_ahead_stop(weft_dealer *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->work);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_threads; i++)
        pthread_join(a->thread[i], NULL);
    for (int i = 0; i < WF_DEALER_PREPARED; i++)
        task_clear(a, &a->task[i]);
    wf_free(a->ctx, a->thread);
    wf_free(a->ctx, a->followed);
}
