/* coord.c - threads of a program that end together: the first request to stop counts. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/base.h"
#include "weft/session.h"

#define GRACE_S 120

struct weft_coord {
    weft_ctx *ctx;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_threads; /* that have not ended */
    bool stop;
    weft_status st; /* of the first request */
    char why[512];
};

struct thread {
    weft_coord *c;
    weft_status (*fn)(void *arg, weft_coord *c);
    void *arg;
};

weft_status weft_coord_new(weft_ctx *ctx, weft_coord **out)
{
    weft_coord *c = wf_alloc_n(ctx, 1, sizeof *c);
    pthread_condattr_t a;

    if (!c)
        return wf_err_nomem(ctx, sizeof *c, "a coordinator");
    *c = (weft_coord){.ctx = ctx};
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &a);
    pthread_condattr_destroy(&a);
    *out = c;
    return WEFT_OK;
}

void weft_coord_free(weft_coord *c)
{
    if (!c)
        return;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    wf_free(c->ctx, c);
}

void weft_coord_request_stop(weft_coord *c, weft_status st, const char *why)
{
    pthread_mutex_lock(&c->lock);
    if (!c->stop) {
        c->stop = true;
        c->st = st;
        wf_snprintf(c->why, sizeof c->why, "%s", why ? why : st ? weft_error() : "");
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
}

bool weft_coord_should_stop(const weft_coord *c)
{
    weft_coord *m = (weft_coord *)c;
    bool stop;

    pthread_mutex_lock(&m->lock);
    stop = m->stop;
    pthread_mutex_unlock(&m->lock);
    return stop;
}

static void *run(void *arg)
{
    struct thread t = *(struct thread *)arg;
    weft_status st;

    wf_free(t.c->ctx, arg);
    st = t.fn(t.arg, t.c);
    if (st)
        weft_coord_request_stop(t.c, st, NULL);
    pthread_mutex_lock(&t.c->lock);
    t.c->n_threads--;
    pthread_cond_broadcast(&t.c->changed);
    pthread_mutex_unlock(&t.c->lock);
    return NULL;
}

weft_status weft_coord_start(weft_coord *c, weft_status (*fn)(void *arg, weft_coord *c), void *arg)
{
    struct thread *t = wf_alloc_n(c->ctx, 1, sizeof *t);
    pthread_attr_t a;
    pthread_t id;
    int e;

    if (!t)
        return wf_err_nomem(c->ctx, sizeof *t, "a thread");
    *t = (struct thread){c, fn, arg};
    pthread_mutex_lock(&c->lock);
    c->n_threads++;
    pthread_mutex_unlock(&c->lock);
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    e = pthread_create(&id, &a, run, t);
    pthread_attr_destroy(&a);
    if (!e)
        return WEFT_OK;
    pthread_mutex_lock(&c->lock);
    c->n_threads--;
    pthread_mutex_unlock(&c->lock);
    wf_free(c->ctx, t);
    return wf_err(WEFT_ENOMEM, "no thread can be started: %s", wf_errno_text(e));
}

static struct timespec after(double seconds)
{
    struct timespec t;
    double whole;

    seconds = seconds < 0 ? 0 : seconds < 1e9 ? seconds : 1e9;
    whole = (double)(time_t)seconds;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((seconds - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

bool weft_coord_wait(weft_coord *c, double seconds)
{
    struct timespec end = after(seconds);
    bool stop;

    pthread_mutex_lock(&c->lock);
    while (!c->stop && pthread_cond_timedwait(&c->changed, &c->lock, &end) != ETIMEDOUT)
        ;
    stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

weft_status weft_coord_join(weft_coord *c, double grace_s)
{
    struct timespec end;
    weft_status st;
    int left;

    pthread_mutex_lock(&c->lock);
    while (c->n_threads && !c->stop)
        pthread_cond_wait(&c->changed, &c->lock);
    end = after(grace_s > 0 ? grace_s : GRACE_S);
    while (c->n_threads && pthread_cond_timedwait(&c->changed, &c->lock, &end) != ETIMEDOUT)
        ;
    left = c->n_threads;
    st = c->st;
    if (st)
        wf_err(st, "%s", c->why);
    pthread_mutex_unlock(&c->lock);
    if (left)
        return wf_err(WEFT_ETIME, "%d threads did not end within %g s of the request to stop%s%s",
                      left, grace_s > 0 ? grace_s : GRACE_S, st ? ": " : "",
                      st ? weft_error() : "");
    return st;
}
