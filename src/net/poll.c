/* poll.c - whose turn it is, and threads that wait.
 *
 * Whoever has the turn has the node: its links, its listeners and libuv's loop. The node's thread
 * takes the turn for what it was told at the set (watch.c), and gives it back before it sleeps. A
 * thread that waits for something does the same in its place, so that an answer wakes up one thread
 * only, the one that wants it: it keeps the set. While others keep it, the node's thread parks when
 * it wakes up: it comes back for every tick, and when the last of them leaves. */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "net/link.h"

#define MAX_WAIT_NS 100000000 /* of one sleep: the clock may be a test's */

enum {
    LOOKS = 64,      /* between two looks at the clock while spinning */
    MAX_SOCKETS = 4, /* that are read without asking the set first, which takes longer */
    PER_SET = 16,    /* looks at sockets for one at the set; a power of two, as the next */
    PER_SOCKETS = 64 /* looks at rings, which cost next to nothing, for one at sockets */
};

void wf_net_enter(struct wf_net *net)
{
    net->wanted++;
    pthread_mutex_lock(&net->turn);
    net->wanted--;
}

void wf_net_exit(struct wf_net *net)
{
    wf_net_measure(net);
    pthread_mutex_unlock(&net->turn);
}

/* ---- looking --------------------------------------------------------------------------------- */

bool wf_net_poll_rings(struct wf_net *net)
{
    bool any = false;

    if (net->n_rings == 0)
        return false;
    for (struct wf_link *l = net->links; l; l = l->next)
        if (l->shm && wf_shm_waiting(l))
            any |= wf_link_read(l);
    return any;
}

/* How many sockets were read; *any: there was something. */
static int poll_sockets(struct wf_net *net, bool *any)
{
    int n = 0;

    for (struct wf_link *l = net->links; l && n < MAX_SOCKETS; l = l->next)
        if (l->wire && l->wire->announces && l->state == WF_LINK_UP) {
            *any |= wf_link_read(l);
            n++;
        }
    return n;
}

bool wf_net_look(struct wf_net *net)
{
    bool any = wf_net_poll_rings(net);
    unsigned per = net->n_rings ? PER_SOCKETS : 1, looks = ++net->n_looks;
    int n;

    if (looks & (per - 1))
        return any;
    n = poll_sockets(net, &any);
    /* Also if there always is something: time passes, and others want to be heard. */
    if ((n == 0 && !any) || !(looks & (per * PER_SET - 1))) {
        struct wf_events ev;

        any |= wf_watch_wait(net, &ev, 0) > 0;
        wf_watch_handle(net, &ev);
    }
    return any;
}

bool wf_net_arm(struct wf_net *net)
{
    bool quiet = true;

    if (net->n_attending)
        return true;
    for (struct wf_link *l = net->links; l; l = l->next)
        if (l->shm && !l->paused && (l->state == WF_LINK_HELLO || l->state == WF_LINK_UP))
            quiet &= wf_shm_arm(l);
    return quiet;
}

/* ---- who keeps the set ----------------------------------------------------------------------- */

static struct timespec deadline(int64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec += (long)(ns % 1000000000);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

void wf_net_park(struct wf_net *net, int64_t woken, int timeout_ms)
{
    struct timespec until = deadline(timeout_ms * 1000000ll);

    pthread_mutex_lock(&net->lock);
    net->parked = true;
    /* Who leaves or wakes changes these first, and then looks at `parked`. */
    if (net->n_keepers > 0 && net->n_wakes == woken && !net->stop)
        pthread_cond_timedwait(&net->unparked, &net->lock, &until);
    net->parked = false;
    pthread_mutex_unlock(&net->lock);
}

static void stop_keeping(struct wf_net *net)
{
    if (--net->n_keepers > 0 || !net->parked)
        return;
    pthread_mutex_lock(&net->lock);
    pthread_cond_signal(&net->unparked);
    pthread_mutex_unlock(&net->lock);
}

void wf_net_attend(struct wf_net *net)
{
    net->n_keepers++;
    wf_net_enter(net);
    if (net->n_attending++ == 0)
        for (struct wf_link *l = net->links; l; l = l->next)
            if (l->shm)
                wf_shm_disarm(l);
    wf_net_exit(net);
}

void wf_net_leave(struct wf_net *net)
{
    bool quiet;

    wf_net_enter(net);
    net->n_attending--;
    quiet = wf_net_arm(net);
    wf_net_exit(net);
    stop_keeping(net);
    if (!quiet)
        wf_net_wake(net);
}

bool wf_net_poll(struct wf_net *net)
{
    bool any;

    if (net->wanted) { /* the node's thread first: it may not be kept from a deadline */
        sched_yield();
        return false;
    }
    if (pthread_mutex_trylock(&net->turn))
        return false;
    any = wf_net_look(net);
    wf_net_exit(net);
    return any;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Looks until done, for as long as no other thread wants the turn, and for a while only. */
static bool look(struct wf_net *net, bool (*done)(void *arg), void *arg)
{
    bool found = false;

    if (net->wanted || pthread_mutex_trylock(&net->turn)) {
        if (net->wanted)
            sched_yield();
        return done(arg);
    }
    for (int i = 0; i < LOOKS && !found && !net->wanted; i++)
        found = wf_net_look(net) ? done(arg) : false;
    wf_net_exit(net);
    return found || done(arg);
}

/* timeout_ns from the first look at the clock on, which costs as much as a message over shm. */
static bool spin(struct wf_net *net, bool (*done)(void *arg), void *arg, int64_t timeout_ns,
                 int64_t *start)
{
    if (look(net, done, arg))
        return true;
    for (*start = wf_now(net->ctx); !look(net, done, arg);)
        if (wf_now(net->ctx) - *start >= timeout_ns)
            return false;
    return true;
}

/* Sleeps at the set until something arrives, or has happened since turn `seen`, or a while; and
 * does what there is to do. */
static void keep(struct wf_net *net, int64_t seen, int64_t left)
{
    struct wf_events ev;
    int timeout = (int)(wf_min_i64(left, MAX_WAIT_NS) / 1000000) + 1;
    bool quiet = true;

    if (net->n_rings) {
        wf_net_enter(net);
        quiet = wf_net_arm(net);
        wf_net_exit(net);
    }
    net->nudged = false;
    net->asleep = true;
    if (!quiet || net->n_turns != seen)
        timeout = 0;
    wf_watch_wait(net, &ev, timeout);
    net->asleep = false;
    net->nudged = false;
    if (ev.n == 0 && quiet)
        return;
    wf_net_enter(net);
    wf_watch_handle(net, &ev);
    wf_net_poll_rings(net);
    wf_net_exit(net);
}

/* Sleeps until another thread says that something has happened since turn `seen`, or a while. */
static void sleep_once(struct wf_net *net, int64_t seen, int64_t left)
{
    struct timespec until = deadline(wf_min_i64(left, MAX_WAIT_NS));

    pthread_mutex_lock(&net->lock);
    net->n_waiting++;
    if (net->n_turns == seen)
        pthread_cond_timedwait(&net->changed, &net->lock, &until);
    net->n_waiting--;
    pthread_mutex_unlock(&net->lock);
}

/* One thread keeps the set; others are told by it. */
static bool sleep_until(struct wf_net *net, bool (*done)(void *arg), void *arg, int64_t until)
{
    bool keeps = false, found;

    for (;;) {
        int64_t seen = net->n_turns, left;

        found = done(arg);
        left = found ? 0 : until - wf_now(net->ctx);
        if (left <= 0)
            break;
        if (!keeps) {
            keeps = !atomic_exchange(&net->keeping, true);
            net->n_keepers += keeps;
        }
        if (keeps)
            keep(net, seen, left);
        else
            sleep_once(net, seen, left);
    }
    if (keeps) {
        net->keeping = false;
        stop_keeping(net);
    }
    return found;
}

weft_status wf_net_wait(struct wf_net *net, bool (*done)(void *arg), void *arg, int64_t timeout_ns,
                        const char *what)
{
    int64_t start = 0, spin_ns = (int64_t)net->opts.spin_us * 1000;
    bool attended = net->n_attending > 0, found = done(arg);

    if (found)
        return WEFT_OK;
    if (net->opts.manual)
        return wf_err(WEFT_ESTATE, "%s: a node without a thread waits for nothing", what);
    if (attended || spin_ns) {
        if (!attended)
            wf_net_attend(net);
        found =
            spin(net, done, arg, attended ? timeout_ns : wf_min_i64(timeout_ns, spin_ns), &start);
        if (!attended)
            wf_net_leave(net);
    } else {
        start = wf_now(net->ctx);
    }
    if (found || sleep_until(net, done, arg, wf_net_after(start, timeout_ns)))
        return WEFT_OK;
    return wf_err(WEFT_ETIME, "%s: not within %.3g s", what, (double)timeout_ns * 1e-9);
}
