/* mirrored.c - several replicas in one process, each on a group of cores or on a device with memory
 * of its own.
 *
 * Each replica has a thread that lives as long as the strategy, pinned to its group, with a pool
 * and a gradient function of its own. Where a group has one thread, the threads of the context's
 * pool are the replicas: they are awake already. All read the trainer's parameters; a batch's
 * shards are taken by the replica that is free, and the tree over shard numbers makes the result
 * independent of that. The update is the trainer's, over all cores.
 *
 * On devices, each replica reads a copy of the parameters in its device's memory, and has shards
 * that follow each other, so that most sums of the tree are made where both halves are. */
#include <pthread.h>

#include "base/device.h"

#include "train/step/dist.h"

struct replica {
    struct mirrored *m;
    pthread_t thread;
    int number;
    struct wf_pool *pool;
    int64_t next, end; /* on a device: its shards that are left */
};

struct mirrored {
    weft_ctx *ctx;
    int n, n_started;
    bool on_devices;   /* with memory of their own */
    const char **name; /* theirs */
    struct replica *replica;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    uint64_t job;  /* number of the last job */
    int n_working; /* replicas that have not finished it */
    int n_ready;   /* replicas that have their pool */
    bool stop;
    weft_work *w; /* the job: shards [next, end) are left */
    int64_t next, end;
    weft_status st;
    char text[512]; /* the error of the first that failed */
};

/* ---- one replica ----------------------------------------------------------------------------- */

static void fail(struct mirrored *m, weft_status st)
{
    pthread_mutex_lock(&m->lock);
    if (st && !m->st) {
        m->st = st;
        wf_snprintf(m->text, sizeof m->text, "%s", weft_error());
    }
    pthread_mutex_unlock(&m->lock);
}

static bool take(struct mirrored *m, struct replica *r, int64_t *number)
{
    int64_t *next = m->on_devices ? &r->next : &m->next;
    bool any;

    pthread_mutex_lock(&m->lock);
    any = *next < (m->on_devices ? r->end : m->end) && !m->st;
    *number = any ? (*next)++ : 0;
    pthread_mutex_unlock(&m->lock);
    return any;
}

static void compute_shards(struct replica *r)
{
    struct mirrored *m = r->m;
    int64_t number;

    wf_fn_set_pool(m->w->replica[r->number].fn, r->pool);
    while (take(m, r, &number)) {
        weft_given given;
        weft_status st = weft_work_compute(m->w, r->number, number, &given);

        if (!st)
            st = weft_work_put(m->w, number, &given);
        fail(m, st);
    }
}

static void *live(void *arg)
{
    struct replica *r = arg;
    struct mirrored *m = r->m;
    uint64_t seen = 0;
    int threads = wf_pool_size(m->ctx->pool) / m->n;

    if (!m->on_devices)
        wf_use_group(r->number, m->n);
    fail(m, wf_pool_new(m->ctx, threads > 0 ? threads : 1, m->ctx->spin_us, &r->pool));
    pthread_mutex_lock(&m->lock);
    m->n_ready++;
    pthread_cond_signal(&m->done);
    for (;;) {
        while (m->job == seen && !m->stop)
            pthread_cond_wait(&m->start, &m->lock);
        if (m->stop)
            break;
        seen = m->job;
        pthread_mutex_unlock(&m->lock);
        compute_shards(r);
        pthread_mutex_lock(&m->lock);
        if (--m->n_working == 0)
            pthread_cond_signal(&m->done);
    }
    pthread_mutex_unlock(&m->lock);
    wf_pool_free(r->pool);
    return NULL;
}

static void compute_tile(void *arg, int64_t tile, int thread)
{
    struct mirrored *m = arg;

    (void)thread;
    compute_shards(&m->replica[tile]);
}

/* All replicas do the job that is set in m. */
static weft_status run_all(struct mirrored *m)
{
    weft_status st;

    m->st = WEFT_OK;
    if (wf_pool_size(m->ctx->pool) == m->n) {
        wf_pool_for(m->ctx->pool, m->n, compute_tile, m);
        if (m->st)
            wf_err_set(m->text);
        return m->st;
    }

    wf_pool_rest(m->ctx->pool, true); /* the cores are the replicas' now */
    pthread_mutex_lock(&m->lock);
    m->n_working = m->n;
    m->job++;
    pthread_cond_broadcast(&m->start);
    while (m->n_working > 0)
        pthread_cond_wait(&m->done, &m->lock);
    st = m->st;
    pthread_mutex_unlock(&m->lock);
    wf_pool_rest(m->ctx->pool, false);
    if (st)
        wf_err_set(m->text);
    return st;
}

/* ---- the strategy ---------------------------------------------------------------------------- */

static void close_mirrored(void *self)
{
    struct mirrored *m = self;

    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_broadcast(&m->start);
    pthread_mutex_unlock(&m->lock);
    for (int i = 0; i < m->n_started; i++)
        pthread_join(m->replica[i].thread, NULL);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->start);
    pthread_cond_destroy(&m->done);
    wf_free(m->ctx, m->replica);
    wf_free(m->ctx, m->name);
    wf_free(m->ctx, m);
}

static weft_status start(struct mirrored *m)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < m->n && !st; i++) {
        m->replica[i] = (struct replica){.m = m, .number = i};
        if (pthread_create(&m->replica[i].thread, NULL, live, &m->replica[i]))
            st = wf_err(WEFT_ENOMEM, "cannot start the thread of replica %d of %d", i, m->n);
        else
            m->n_started++;
    }
    pthread_mutex_lock(&m->lock);
    while (m->n_ready < m->n_started)
        pthread_cond_wait(&m->done, &m->lock);
    if (!st && m->st) {
        st = m->st;
        wf_err_set(m->text);
    }
    pthread_mutex_unlock(&m->lock);
    return st;
}

weft_status wf_mirrored_open(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                             int *first)
{
    struct mirrored *m = wf_alloc(ctx, sizeof *m);
    weft_status st;

    (void)arg;
    if (!m)
        return wf_err_nomem(ctx, sizeof *m, "replicas");
    m->ctx = ctx;
    m->on_devices = ctx->n_own > 1; /* a single one holds the memory of replicas on cores */
    m->n = m->on_devices ? ctx->n_own : ctx->n_groups;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->start, NULL);
    pthread_cond_init(&m->done, NULL);
    m->replica = wf_alloc_n(ctx, m->n, sizeof *m->replica);
    m->name = wf_alloc_n(ctx, m->n, sizeof *m->name);
    for (int i = 0; i < m->n && m->on_devices && m->name; i++)
        m->name[i] = ctx->own[i]->name;
    st = m->replica && m->name ? start(m) : wf_err_nomem(ctx, sizeof *m->replica, "replicas");
    if (st) {
        close_mirrored(m);
        return st;
    }
    *self = m;
    *replicas = *local = m->n;
    *first = 0;
    return WEFT_OK;
}

void wf_mirrored_close(void *self)
{
    close_mirrored(self);
}

weft_status wf_mirrored_compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    struct mirrored *m = self;
    weft_status st = wf_work_replicas(w, m->n, m->on_devices ? m->name : NULL);

    (void)t;
    if (st)
        return st;
    for (int i = 0; i < m->n; i++) {
        m->replica[i].next = first + i * n / m->n;
        m->replica[i].end = first + (i + 1) * n / m->n;
    }
    m->w = w;
    m->next = first;
    m->end = first + n;
    return run_all(m);
}
