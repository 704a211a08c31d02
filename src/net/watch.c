/* watch.c - what a node waits for: the sockets of its links and listeners, its ticks, and libuv's
 * loop.
 *
 * All of them are in one epoll set, which any thread may wait at without the turn; what it was told
 * it handles with the turn. Sockets of links are edge-triggered: of several threads that wait, one
 * is told of each arrival, the one that began to wait last (the kernel's order; nothing depends on
 * it but speed). An event names its socket by a number that is not used twice, because the link may
 * be gone by the time the turn is there.
 *
 * libuv has the wake-ups and the threads that look up names. Its descriptor is in the set like any
 * other, and uv_run is called with the turn, never to sleep. The timer is a descriptor, too: a
 * thread may set it while another one sleeps, which need not know until when. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>

#include "net/link.h"

#define LOOP_KEY UINT64_MAX
#define TICK_KEY (UINT64_MAX - 1)

/* ---- the table ------------------------------------------------------------------------------- */

struct wf_watch_slot {
    uint32_t generation;
    struct wf_watched *w; /* NULL: free */
};

static weft_status find_slot(struct wf_net *net, uint32_t *out)
{
    struct wf_watch_slot *more;
    uint32_t n = net->n_slots;

    for (uint32_t i = 0; i < n; i++)
        if (!net->slot[i].w) {
            *out = i;
            return WEFT_OK;
        }
    more = wf_alloc(net->ctx, (2 * (size_t)n + 8) * sizeof *more);
    if (!more)
        return wf_err_nomem(net->ctx, sizeof *more, "a connection");
    if (n)
        memcpy(more, net->slot, n * sizeof *more);
    wf_free(net->ctx, net->slot);
    net->slot = more;
    net->n_slots = 2 * n + 8;
    *out = n;
    return WEFT_OK;
}

static struct wf_watched *find(struct wf_net *net, uint64_t key)
{
    uint32_t i = (uint32_t)key;

    return i < net->n_slots && net->slot[i].generation == key >> 32 ? net->slot[i].w : NULL;
}

/* ---- the set --------------------------------------------------------------------------------- */

weft_status wf_watch_open(struct wf_net *net)
{
    const struct wf_sys *sys = net->sys = net->ctx->sys;
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = LOOP_KEY};
    struct epoll_event tick = {.events = EPOLLIN | EPOLLET, .data.u64 = TICK_KEY};
    int rc = net->set = sys->epoll_create(sys->arg);

    if (rc >= 0)
        rc = sys->epoll_ctl(sys->arg, net->set, EPOLL_CTL_ADD, uv_backend_fd(&net->loop), &e);
    if (rc >= 0)
        rc = net->timer =
            sys->timerfd_create(sys->arg, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (rc >= 0)
        rc = sys->epoll_ctl(sys->arg, net->set, EPOLL_CTL_ADD, net->timer, &tick);
    return rc < 0 ? wf_err(WEFT_EIO, "an event loop: %s", wf_errno_text(-rc)) : WEFT_OK;
}

void wf_watch_close(struct wf_net *net)
{
    const struct wf_sys *sys = net->sys;

    if (net->set >= 0)
        sys->close(sys->arg, net->set);
    if (net->timer >= 0)
        sys->close(sys->arg, net->timer);
    net->set = net->timer = -1;
    wf_free(net->ctx, net->slot);
    net->slot = NULL;
    net->n_slots = 0;
}

weft_status wf_watch(struct wf_net *net, struct wf_watched *w, int fd, int events, bool again)
{
    const struct wf_sys *sys = net->sys;
    struct epoll_event e = {.events = w->listener ? 0 : EPOLLET | EPOLLRDHUP};
    uint32_t i = (uint32_t)w->key;
    bool add = !w->key;
    int rc;

    if (!add && w->events == events && !again)
        return WEFT_OK;
    if (add) {
        weft_status st = find_slot(net, &i);

        if (st)
            return st;
        w->key = (uint64_t)++net->slot[i].generation << 32 | i;
        net->slot[i].w = w;
    }
    e.events |= (events & WF_READABLE ? EPOLLIN : 0) | (events & WF_WRITABLE ? EPOLLOUT : 0);
    if (!events)
        e.events = EPOLLET; /* errors alone, and once */
    e.data.u64 = w->key;
    rc = sys->epoll_ctl(sys->arg, net->set, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e);
    if (rc < 0 && add)
        wf_unwatch(net, w);
    if (rc < 0)
        return wf_err(rc == -ENOMEM ? WEFT_ENOMEM : WEFT_EIO, "waiting for a socket: %s",
                      wf_errno_text(-rc));
    w->events = events;
    return WEFT_OK;
}

void wf_watch_tick(struct wf_net *net, int ms)
{
    const struct wf_sys *sys = net->sys;
    struct itimerspec when = {.it_value = {ms / 1000, ms % 1000 * 1000000l}};

    if (net->tick_ms != ms && sys->timerfd_settime(sys->arg, net->timer, &when) == 0)
        net->tick_ms = ms;
}

/* The descriptor leaves the set when it is closed. */
void wf_unwatch(struct wf_net *net, struct wf_watched *w)
{
    if (w->key)
        net->slot[(uint32_t)w->key].w = NULL;
    w->key = 0;
    w->events = 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int wf_watch_wait(struct wf_net *net, struct wf_events *out, int timeout_ms)
{
    const struct wf_sys *sys = net->sys;
    int n = sys->epoll_wait(sys->arg, net->set, out->e, WF_COUNT(out->e), timeout_ms);

    out->n = n < 0 ? 0 : n; /* interrupted: nothing has happened */
    return out->n;
}

static int decode(uint32_t events)
{
    bool failed = events & (EPOLLERR | EPOLLHUP);

    return (events & EPOLLIN || failed ? WF_READABLE : 0) |
           (events & EPOLLOUT || failed ? WF_WRITABLE : 0) |
           (events & EPOLLRDHUP || failed ? WF_ENDED | WF_READABLE : 0);
}

void wf_watch_handle(struct wf_net *net, const struct wf_events *ev)
{
    bool loop = false, tick = false;

    for (int i = 0; i < ev->n; i++) {
        uint64_t key = ev->e[i].data.u64;
        struct wf_watched *w = key == LOOP_KEY || key == TICK_KEY ? NULL : find(net, key);

        loop |= key == LOOP_KEY;
        tick |= key == TICK_KEY;
        if (w && w->listener)
            wf_socket_accept(w->listener);
        else if (w && w->events)
            wf_link_ready(w->link, decode(ev->e[i].events));
    }
    if (loop)
        wf_net_run_loop(net);
    if (tick) {
        net->tick_ms = 0;
        wf_net_serve(net);
    }
    if (loop && net->nudged) /* that was meant for the thread that sleeps here */
        uv_async_send(&net->wake);
}
