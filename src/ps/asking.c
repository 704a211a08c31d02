/* asking.c - a chief's requests to its store, by a thread of their own.
 *
 * A store that cannot be reached is tried again, in the same order, for PATIENCE: training
 * continues meanwhile, but nobody joins, leaves or is given up. */
#define _GNU_SOURCE
#include "ps/asking.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "cluster/codec.h"

#define SECOND INT64_C(1000000000)
#define FIRST_PAUSE (SECOND / 20)
#define LONGEST_PAUSE SECOND
#define PATIENCE (600 * SECOND)
#define REMIND (30 * SECOND)

enum { MAX_WAITING = 64 };

struct request {
    struct request *next;
    struct wf_action act;
    struct wf_epoch *record;
    struct wf_control_bytes payload;
};

struct wf_asking {
    weft_ctx *ctx;
    struct wf_chief_store *store;
    wf_asked_fn *fn;
    wf_asking_say_fn *say;
    void *arg;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    /* With the lock: */
    struct request *first, **last;
    int n;
    bool stop;
};

static void drop(struct wf_asking *k, struct request *q)
{
    if (!q)
        return;
    wf_epoch_free(k->ctx, q->record);
    wf_free(k->ctx, (void *)(uintptr_t)q->payload.p);
    wf_free(k->ctx, q);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Waits for so long, or until the end; whether that has come. */
static bool pause_for(struct wf_asking *k, int64_t ns)
{
    struct timespec until;
    bool stop;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)((until.tv_nsec + ns) / SECOND);
    until.tv_nsec = (long)((until.tv_nsec + ns) % SECOND);
    pthread_mutex_lock(&k->lock);
    while (!k->stop && pthread_cond_timedwait(&k->woken, &k->lock, &until) != ETIMEDOUT)
        ;
    stop = k->stop;
    pthread_mutex_unlock(&k->lock);
    return stop;
}

/* Why it does not answer, from time to time. */
static void complain(struct wf_asking *k, int64_t *told)
{
    char what[400];

    if (*told && wf_now(k->ctx) - *told < REMIND)
        return;
    *told = wf_now(k->ctx);
    wf_snprintf(what, sizeof what,
                "cannot reach the store, and tries again; until then nobody joins or leaves: %s",
                weft_error());
    k->say(k->arg, what);
}

/* Until there is an answer; false: it is over. */
static bool carry_out(struct wf_asking *k, const struct wf_action *act, weft_status *st,
                      struct wf_store_answer *a)
{
    int64_t began = wf_now(k->ctx), told = 0, pause = FIRST_PAUSE;

    for (;;) {
        *st = wf_chief_store_do(k->store, act, a);
        if (*st != WEFT_EPEER)
            break;
        if (wf_now(k->ctx) - began > PATIENCE) {
            wf_err_wrap(*st, "the store did not answer for %d minutes",
                        (int)(PATIENCE / SECOND / 60));
            return true;
        }
        complain(k, &told);
        if (pause_for(k, pause))
            return false;
        pause = wf_min_i64(2 * pause, LONGEST_PAUSE);
    }
    if (told && !*st)
        k->say(k->arg, "reaches the store again");
    return true;
}

static void *run(void *arg)
{
    struct wf_asking *k = arg;
    sigset_t all;

    sigfillset(&all); /* signals are for the threads of the program */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        struct request *q = k->first;
        struct wf_store_answer a;
        weft_status st;

        if (!q) {
            pthread_cond_wait(&k->woken, &k->lock);
            continue;
        }
        k->first = q->next;
        if (!k->first)
            k->last = &k->first;
        k->n--;
        pthread_mutex_unlock(&k->lock);
        if (carry_out(k, &q->act, &st, &a))
            k->fn(k->arg, &q->act, st, &a);
        drop(k, q);
        pthread_mutex_lock(&k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- its users ------------------------------------------------------------------------------- */

static weft_status copy(struct wf_asking *k, const struct wf_action *act, struct request **out)
{
    const struct wf_control_bytes *from = act->payload;
    struct request *q = wf_alloc(k->ctx, sizeof *q);
    weft_status st = WEFT_OK;

    if (!q)
        return wf_err_nomem(k->ctx, sizeof *q, "store");
    q->act = *act;
    if (act->type == WF_ACT_CREATE_EPOCH) {
        st = wf_epoch_copy(k->ctx, act->record, &q->record);
        q->act.record = q->record;
    }
    if (act->type == WF_ACT_CREATE_CONTROL) {
        char *p = wf_alloc(k->ctx, (size_t)from->n + 1);

        if (p && from->n)
            memcpy(p, from->p, (size_t)from->n);
        q->payload = (struct wf_control_bytes){p, from->n};
        q->act.payload = &q->payload;
        st = p ? WEFT_OK : wf_err_nomem(k->ctx, (size_t)from->n, "control record");
    }
    if (st) {
        drop(k, q);
        return st;
    }
    *out = q;
    return WEFT_OK;
}

static bool waits_to_read(const struct wf_asking *k)
{
    for (const struct request *q = k->first; q; q = q->next)
        if (q->act.type == WF_ACT_READ)
            return true;
    return false;
}

weft_status wf_asking_add(struct wf_asking *k, const struct wf_action *act)
{
    struct request *q = NULL;
    weft_status st = copy(k, act, &q);
    bool left_out;

    if (st)
        return st;
    pthread_mutex_lock(&k->lock);
    left_out = k->stop || (act->type == WF_ACT_READ && waits_to_read(k));
    if (!left_out && k->n == MAX_WAITING)
        st = wf_err(WEFT_EBUG, "%d requests wait for the store", k->n);
    if (!left_out && !st) {
        *k->last = q;
        k->last = &q->next;
        k->n++;
        q = NULL;
        pthread_cond_signal(&k->woken);
    }
    pthread_mutex_unlock(&k->lock);
    drop(k, q);
    return st;
}

weft_status wf_asking_start(weft_ctx *ctx, struct wf_chief_store *store, wf_asked_fn *fn,
                            wf_asking_say_fn *say, void *arg, struct wf_asking **out)
{
    struct wf_asking *k = wf_alloc(ctx, sizeof *k);
    pthread_condattr_t attr;

    if (!k) {
        wf_chief_store_close(store);
        return wf_err_nomem(ctx, sizeof *k, "store");
    }
    *k = (struct wf_asking){
        .ctx = ctx, .store = store, .fn = fn, .say = say, .arg = arg, .last = &k->first};
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->woken, &attr);
    pthread_condattr_destroy(&attr);
    k->runs = pthread_create(&k->thread, NULL, run, k) == 0;
    if (!k->runs) {
        wf_asking_free(k);
        return wf_err(WEFT_ENOMEM, "cannot start the thread of the store");
    }
    *out = k;
    return WEFT_OK;
}

void wf_asking_stop(struct wf_asking *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->woken);
    pthread_mutex_unlock(&k->lock);
    wf_chief_store_stop(k->store);
    if (k->runs)
        pthread_join(k->thread, NULL);
    k->runs = false;
}

void wf_asking_free(struct wf_asking *k)
{
    if (!k)
        return;
    while (k->first) {
        struct request *q = k->first;

        k->first = q->next;
        drop(k, q);
    }
    wf_chief_store_close(k->store);
    pthread_cond_destroy(&k->woken);
    pthread_mutex_destroy(&k->lock);
    wf_free(k->ctx, k);
}
