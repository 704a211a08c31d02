/* node.c - a node: its thread and loop, and how others wait for what happens there. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "net/link.h"

#define FAST_MS 5   /* between ticks while something has a deadline, */
#define SLOW_MS 250 /* and otherwise at most */
#define SLEEP_MS (4 * SLOW_MS)

enum {
    LOOKS = 64, /* between two looks at the clock while spinning */
    MANY_CORES = 8,
    STRIPED_MIN = 1 << 20 /* bytes of a payload that is worth waking other threads up */
};

/* ---- waking ---------------------------------------------------------------------------------- */

void wf_net_wake(struct wf_net *net)
{
    if (net->opts.manual)
        return;
    net->n_wakes++;
    uv_async_send(&net->wake);
    if (net->parked) { /* then perhaps no thread is at the set */
        pthread_mutex_lock(&net->lock);
        pthread_cond_signal(&net->unparked);
        pthread_mutex_unlock(&net->lock);
    }
}

void wf_net_happened(struct wf_net *net)
{
    net->n_turns++;
    /* Who waits says so first, and then looks at n_turns: one of the two sees the other. */
    if (net->asleep && atomic_exchange(&net->asleep, false)) {
        net->nudged = true;
        uv_async_send(&net->wake);
    }
    if (net->n_waiting == 0)
        return;
    pthread_mutex_lock(&net->lock);
    pthread_cond_broadcast(&net->changed);
    pthread_mutex_unlock(&net->lock);
}

void wf_net_tick(struct wf_net *net)
{
    if (!atomic_exchange(&net->fast, true))
        wf_net_wake(net);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void take_orders(struct wf_net *net)
{
    struct wf_order *all, *next;

    pthread_mutex_lock(&net->lock);
    all = net->orders;
    net->orders = NULL;
    pthread_mutex_unlock(&net->lock);
    for (; all; all = next) {
        next = all->next;
        if (all->listener) {
            all->listener->next = net->listeners;
            net->listeners = all->listener;
            all->listener->resting = true; /* watched at the end of this turn */
        } else {
            all->link->next = net->links;
            net->links = all->link;
            if (all->accepted)
                wf_link_start(all->link);
            else
                wf_socket_connect(all->link);
        }
        wf_free(net->ctx, all);
    }
}

/* Frees links that are down and that nobody uses any more. */
static void sweep(struct wf_net *net, bool all)
{
    for (struct wf_link **at = &net->links; *at;) {
        struct wf_link *l = *at;

        if (l->state == WF_LINK_DOWN && !l->resolving && (l->dropped || all) &&
            (all || (!wf_inproc_visited(l) && !wf_sides_kept(l)))) {
            *at = l->next;
            wf_link_free(l);
        } else {
            at = &l->next;
        }
    }
}

/* Listeners that are new, or could not accept a connection, are watched. Whether all are. */
static bool watch_listeners(struct wf_net *net)
{
    bool all = true;

    for (struct wf_listener *s = net->listeners; s; s = s->next)
        if (s->resting && s->kind != WF_ADDRESS_INPROC && wf_socket_watch_listener(s)) {
            wf_log(net->ctx, WEFT_LOG_WARN, "a listener: %s", weft_error());
            s->resting = true; /* again with the next tick */
            all = false;
        }
    return all;
}

/* Often while something has a deadline, otherwise for silence alone. */
static int tick_ms(const struct wf_net *net)
{
    int64_t silence = net->opts.silence_ns;
    int64_t slow = silence > 0 ? wf_max_i64(silence / 12000000, 1) : SLOW_MS;

    return (int)wf_min_i64(slow, net->fast ? FAST_MS : SLOW_MS);
}

void wf_net_soon(struct wf_net *net)
{
    net->fast = true;
    wf_watch_tick(net, tick_ms(net));
}

void wf_net_serve(struct wf_net *net)
{
    int64_t now = wf_now(net->ctx);
    bool fast = false;

    net->fast = false; /* who asks for fast ticks from here on is heard, or wakes this thread up */
    take_orders(net);
    for (struct wf_link *l = net->links, *next; l; l = next) {
        next = l->next;
        wf_link_serve(l, now);
        fast |= l->state != WF_LINK_DOWN && (wf_shm_owes(l) || wf_sides_ending(l));
        pthread_mutex_lock(&l->out);
        fast |= l->state != WF_LINK_DOWN &&
                (l->pending || l->first || l->state != WF_LINK_UP || l->closing || l->held);
        pthread_mutex_unlock(&l->out);
    }
    wf_sides_hand_over(net);
    sweep(net, false);
    fast |= !watch_listeners(net);
    if (fast)
        net->fast = true;
    if (!net->opts.manual)
        wf_watch_tick(net, tick_ms(net));
}

static void on_wake(uv_async_t *h)
{
    wf_net_serve(h->data);
}

void wf_net_run_loop(struct wf_net *net)
{
    uv_run(&net->loop, UV_RUN_NOWAIT);
}

bool wf_net_turn(struct wf_net *net)
{
    int64_t before = net->n_turns;

    wf_net_enter(net);
    wf_net_serve(net);
    wf_net_exit(net);
    return net->n_turns != before;
}

/* Everything goes down, and the loop ends when its handles are closed. */
static void close_all(struct wf_net *net)
{
    wf_net_enter(net);
    take_orders(net);
    for (struct wf_listener *s = net->listeners; s; s = s->next)
        wf_inproc_unlisten(s); /* nobody connects any more, */
    /* and who has connected is among the links. */
    take_orders(net);
    for (struct wf_link *l = net->links; l; l = l->next)
        wf_link_down(l, WEFT_ECANCEL, "the node is closing");
    wf_net_exit(net);
    for (struct wf_listener *s = net->listeners, *next; s; s = next) {
        next = s->next;
        wf_socket_close_listener(s);
    }
    net->listeners = NULL;
    wf_carriers_stop(net);
    if (net->opened) {
        uv_close((uv_handle_t *)&net->wake, NULL);
        while (uv_run(&net->loop, UV_RUN_DEFAULT))
            ;
    }
    sweep(net, true);
}

static bool is_stopping(struct wf_net *net)
{
    bool stop;

    pthread_mutex_lock(&net->lock);
    stop = net->stop;
    pthread_mutex_unlock(&net->lock);
    return stop;
}

/* Whether the thread may sleep at the set, which tells of all that happens. With the turn. */
static bool may_sleep(struct wf_net *net)
{
    bool idle = uv_backend_timeout(&net->loop) != 0;

    if (!idle)
        wf_net_run_loop(net);
    wf_net_poll_rings(net);
    return wf_net_arm(net) && idle;
}

/* Looks without sleeping, for as long as no other thread wants the turn. With the turn. */
static bool look_often(struct wf_net *net)
{
    for (int i = 0; i < LOOKS && !net->wanted; i++)
        if (wf_net_look(net))
            return true;
    return false;
}

/* Whether the thread spins: for spin_us after something has happened. */
struct spin {
    int64_t seen, until;
};

static bool is_spinning(struct wf_net *net, struct spin *s)
{
    if (net->opts.spin_us <= 0)
        return false;
    if (net->n_turns != s->seen) {
        s->seen = net->n_turns;
        s->until = wf_now(net->ctx) + (int64_t)net->opts.spin_us * 1000;
        return true;
    }
    return wf_now(net->ctx) < s->until;
}

static void *node_main(void *arg)
{
    struct wf_net *net = arg;
    struct spin spin = {.seen = -1};
    struct wf_events ev = {.n = 0};
    int64_t woken = 0;

    for (;;) {
        bool kept, spinning, sleeps;
        int ms;

        wf_net_enter(net);
        wf_watch_handle(net, &ev);
        ev.n = 0;
        kept = net->n_keepers > 0;
        spinning = !kept && is_spinning(net, &spin);
        if (spinning)
            look_often(net);
        sleeps = !spinning && may_sleep(net);
        ms = tick_ms(net);
        wf_net_exit(net);
        if (is_stopping(net)) /* its wake-up may have been taken just now, with others */
            break;
        if (spinning)
            continue;
        if (kept && sleeps)
            wf_net_park(net, woken, ms);
        woken = net->n_wakes;
        wf_watch_wait(net, &ev, kept || !sleeps ? 0 : SLEEP_MS);
    }
    close_all(net);
    return NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Further connections pay where cores are idle: their threads copy, sum and encrypt. */
static int choose_connections(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);

    return n >= MANY_CORES ? 3 : 1;
}

static weft_status set_defaults(weft_ctx *ctx, struct wf_net_opts *o)
{
    if (o->connections < 0 || o->connections > WF_MAX_CONNECTIONS ||
        (o->stripe_bytes && (o->stripe_bytes < WF_STRIPE_MIN || o->stripe_bytes > WF_STRIPE_MAX)))
        return wf_err(WEFT_EINVAL,
                      "a node with %d connections of a pair and stripes of %lld bytes: at most %d, "
                      "and %d to %d, are allowed",
                      o->connections, (long long)o->stripe_bytes, WF_MAX_CONNECTIONS, WF_STRIPE_MIN,
                      WF_STRIPE_MAX);
    o->connections = o->connections ? o->connections : choose_connections();
    o->stripe_bytes = o->stripe_bytes ? o->stripe_bytes : WF_STRIPE;
    o->striped_min = o->striped_min ? wf_max_i64(o->striped_min, WF_STRIPE_MIN) : STRIPED_MIN;
    o->max_payload = o->max_payload ? o->max_payload : (int64_t)1 << 40;
    o->max_queued = o->max_queued ? o->max_queued : 1024;
    o->silence_ns = o->silence_ns ? o->silence_ns : 3000000000;
    o->max_regions = o->max_regions ? o->max_regions : (int64_t)4 << 30;
    o->stall_ns = o->stall_ns ? o->stall_ns : 3000000000;
    return o->self.incarnation ? WEFT_OK
                               : wf_entropy(ctx, &o->self.incarnation, sizeof o->self.incarnation);
}

int wf_net_connections(const struct wf_net *net)
{
    return net->opts.connections;
}

static weft_status open_loop(struct wf_net *net)
{
    int rc = uv_loop_init(&net->loop);
    weft_status st;

    if (rc)
        return wf_err(WEFT_EIO, "an event loop: %s", uv_strerror(rc));
    uv_async_init(&net->loop, &net->wake, on_wake);
    net->wake.data = net;
    net->opened = true;
    st = wf_watch_open(net);
    if (!st)
        wf_watch_tick(net, tick_ms(net));
    return st;
}

static weft_status start(struct wf_net *net)
{
    weft_status st = set_defaults(net->ctx, &net->opts);

    if (!st && !net->opts.manual)
        st = open_loop(net);
    if (st || net->opts.manual)
        return st;
    net->started = pthread_create(&net->thread, NULL, node_main, net) == 0;
    return net->started ? WEFT_OK : wf_err(WEFT_ENOMEM, "a node: no thread can be started");
}

weft_status wf_net_new(weft_ctx *ctx, const struct wf_net_opts *opts, struct wf_net **out)
{
    struct wf_net *net = wf_alloc(ctx, sizeof *net);
    pthread_condattr_t attr;
    weft_status st;

    if (!net)
        return wf_err_nomem(ctx, sizeof *net, "a node");
    net->ctx = ctx;
    net->set = net->timer = -1;
    net->opts = *opts;
    pthread_mutex_init(&net->lock, NULL);
    pthread_mutex_init(&net->turn, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&net->changed, &attr);
    pthread_cond_init(&net->unparked, &attr);
    pthread_condattr_destroy(&attr);
    st = start(net);
    if (st) {
        wf_net_free(net);
        return st;
    }
    *out = net;
    return WEFT_OK;
}

void wf_net_free(struct wf_net *net)
{
    if (!net)
        return;
    pthread_mutex_lock(&net->lock);
    net->stop = true;
    pthread_mutex_unlock(&net->lock);
    if (net->started) {
        wf_net_wake(net);
        pthread_join(net->thread, NULL);
    } else {
        close_all(net);
    }
    if (net->opened)
        uv_loop_close(&net->loop);
    wf_watch_close(net);
    pthread_cond_destroy(&net->unparked);
    pthread_cond_destroy(&net->changed);
    pthread_mutex_destroy(&net->turn);
    pthread_mutex_destroy(&net->lock);
    wf_free(net->ctx, net);
}

void wf_net_order(struct wf_net *net, struct wf_order *o)
{
    pthread_mutex_lock(&net->lock);
    o->next = net->orders;
    net->orders = o;
    pthread_mutex_unlock(&net->lock);
    wf_net_wake(net);
}

static weft_status parse(const struct wf_net *net, const char *address, struct wf_address *out)
{
    weft_status st = wf_address_parse(address, out);

    if (!st && net->opts.manual && out->kind != WF_ADDRESS_INPROC)
        st = wf_err(WEFT_EINVAL, "address '%s': a node without a thread has inproc alone", address);
    return st;
}

weft_status wf_net_listen(struct wf_net *net, const char *address, char *bound, size_t size)
{
    struct wf_order *o = wf_alloc(net->ctx, sizeof *o);
    struct wf_address a;
    weft_status st = o ? parse(net, address, &a) : wf_err_nomem(net->ctx, sizeof *o, "a listener");

    if (!st) {
        st = wf_socket_listen(net, &a, bound, size, &o->listener);
        if (st)
            wf_err_wrap(st, "address '%s'", address);
    }
    if (st) {
        wf_free(net->ctx, o);
        return st;
    }
    wf_net_order(net, o);
    return WEFT_OK;
}

weft_status wf_net_connect(struct wf_net *net, const char *address, int64_t timeout_ns,
                           struct wf_link **out)
{
    struct wf_order *o = wf_alloc(net->ctx, sizeof *o);
    struct wf_address a;
    struct wf_link *l;
    weft_status st = o ? parse(net, address, &a) : wf_err_nomem(net->ctx, sizeof *o, "a link");

    if (!st)
        st = wf_link_new(net, &l);
    if (st) {
        wf_free(net->ctx, o);
        return st;
    }
    wf_address_format(&a, l->address, sizeof l->address);
    l->kind = a.kind;
    l->promised = true;
    l->connect_by = timeout_ns ? wf_net_after(wf_now(net->ctx), timeout_ns) : 0;
    o->link = l;
    *out = l;
    wf_net_order(net, o);
    return WEFT_OK;
}
