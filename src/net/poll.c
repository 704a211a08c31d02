/* poll.c - whose turn it is, and threads that wait.
 *
 * The node's thread takes the turn for each thing that it does, and gives it back before it sleeps.
 * A thread that waits takes it to read rings by itself; it gives way when the node's thread wants
 * the turn, and leaves everything to it that touches the loop. */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "net/link.h"

#define MAX_WAIT_NS 100000000 /* of one sleep: the clock may be a test's */

enum { LOOKS = 64 }; /* between two looks at the clock while spinning */

void wf_net_enter(struct wf_net *net)
{
    net->wanted++;
    pthread_mutex_lock(&net->turn);
    net->wanted--;
}

void wf_net_exit(struct wf_net *net)
{
    pthread_mutex_unlock(&net->turn);
}

bool wf_net_poll_rings(struct wf_net *net, bool poll)
{
    bool any = false;

    for (struct wf_link *l = net->links; l; l = l->next)
        if (l->shm && wf_shm_waiting(l))
            any |= wf_link_read(l, poll);
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

void wf_net_attend(struct wf_net *net)
{
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
    any = wf_net_poll_rings(net, true);
    pthread_mutex_unlock(&net->turn);
    return any;
}

/* Sleeps until something has happened since turn `seen`, or a while. */
static void sleep_once(struct wf_net *net, int64_t seen, int64_t left)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)wf_min_i64(left, MAX_WAIT_NS);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&net->lock);
    net->n_waiting++;
    if (net->n_turns == seen)
        pthread_cond_timedwait(&net->changed, &net->lock, &until);
    net->n_waiting--;
    pthread_mutex_unlock(&net->lock);
}

/* Reads rings until done, for as long as no other thread wants the turn, and for a while only. */
static bool look(struct wf_net *net, bool (*done)(void *arg), void *arg)
{
    bool found = false;

    if (net->wanted || net->n_rings == 0 || pthread_mutex_trylock(&net->turn)) {
        if (net->wanted)
            sched_yield();
        return done(arg);
    }
    for (int i = 0; i < LOOKS && !found && !net->wanted; i++)
        found = wf_net_poll_rings(net, true) ? done(arg) : false;
    pthread_mutex_unlock(&net->turn);
    return found || done(arg);
}

/* timeout_ns from the first look at the clock on, which costs as much as a message. */
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

weft_status wf_net_wait(struct wf_net *net, bool (*done)(void *arg), void *arg, int64_t timeout_ns,
                        const char *what)
{
    int64_t start = 0, spin_ns = (int64_t)net->opts.spin_us * 1000;
    bool attended = net->n_attending > 0, found;

    if (done(arg))
        return WEFT_OK;
    if (net->opts.manual)
        return wf_err(WEFT_ESTATE, "%s: a node without a thread waits for nothing", what);
    if (attended || spin_ns) {
        bool attend = !attended && net->n_rings;

        if (attend)
            wf_net_attend(net);
        found =
            spin(net, done, arg, attended ? timeout_ns : wf_min_i64(timeout_ns, spin_ns), &start);
        if (attend)
            wf_net_leave(net);
        if (found)
            return WEFT_OK;
    } else {
        start = wf_now(net->ctx);
    }
    for (;;) {
        int64_t seen = net->n_turns, left;

        if (done(arg))
            return WEFT_OK;
        left = timeout_ns - (wf_now(net->ctx) - start);
        if (left <= 0)
            return wf_err(WEFT_ETIME, "%s: not within %.3g s", what, (double)timeout_ns * 1e-9);
        sleep_once(net, seen, left);
    }
}
