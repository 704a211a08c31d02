/* node.c - a node: its thread and loop, and how others wait for what happens there. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "net/link.h"

#define FAST_MS 5

enum { MAX_POLLED = 4, LOOKS = 16 }; /* sockets that are polled; between two looks at the loop */

/* ---- waking ---------------------------------------------------------------------------------- */

void wf_net_wake(struct wf_net *net)
{
    if (!net->opts.manual)
        uv_async_send(&net->wake);
}

void wf_net_happened(struct wf_net *net)
{
    net->n_turns++;
    /* Who waits counts itself first, and then looks at n_turns: one of the two sees the other. */
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
            (all || !wf_inproc_visited(l))) {
            *at = l->next;
            wf_link_free(l);
        } else {
            at = &l->next;
        }
    }
}

/* Listeners that are new, or could not accept a connection, are watched. */
static void watch_listeners(struct wf_net *net)
{
    for (struct wf_listener *s = net->listeners; s; s = s->next)
        if (s->resting && s->kind != WF_ADDRESS_INPROC && wf_socket_watch_listener(s)) {
            wf_log(net->ctx, WEFT_LOG_WARN, "a listener: %s", weft_error());
            s->resting = true; /* again in the next turn */
        }
}

static void on_timer(uv_timer_t *h);

/* Ticks often while something has a deadline, otherwise for silence alone. */
static void set_timer(struct wf_net *net)
{
    int64_t silence = net->opts.silence_ns;
    uint64_t slow = silence > 0 ? (uint64_t)wf_max_i64(silence / 12000000, 1) : 1000;
    uint64_t every = net->fast && slow > FAST_MS ? FAST_MS : slow;

    if (uv_timer_get_repeat(&net->timer) != every || !uv_is_active((uv_handle_t *)&net->timer))
        uv_timer_start(&net->timer, on_timer, every, every);
}

static void serve_all(struct wf_net *net)
{
    int64_t now = wf_now(net->ctx);
    bool fast = false;

    take_orders(net);
    for (struct wf_link *l = net->links, *next; l; l = next) {
        next = l->next;
        wf_link_serve(l, now);
        fast |= l->state != WF_LINK_DOWN && wf_shm_owes(l);
        pthread_mutex_lock(&l->out);
        fast |= l->state != WF_LINK_DOWN &&
                (l->pending || l->first || l->state != WF_LINK_UP || l->closing || l->held);
        pthread_mutex_unlock(&l->out);
    }
    sweep(net, false);
    watch_listeners(net);
    net->fast = fast;
    if (!net->opts.manual)
        set_timer(net);
}

static void turn(struct wf_net *net)
{
    wf_net_enter(net);
    serve_all(net);
    wf_net_exit(net);
}

static void on_timer(uv_timer_t *h)
{
    turn(h->data);
}

static void on_wake(uv_async_t *h)
{
    turn(h->data);
}

bool wf_net_turn(struct wf_net *net)
{
    int64_t before = net->n_turns;

    turn(net);
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
    if (!net->opts.manual) {
        uv_close((uv_handle_t *)&net->timer, NULL);
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

/* Reads rings; whether the thread may sleep now. */
static bool may_sleep(struct wf_net *net, bool spinning)
{
    bool idle;

    if (net->n_rings == 0)
        return !spinning;
    wf_net_enter(net);
    idle = !wf_net_poll_rings(net, false) && !spinning;
    if (idle)
        idle = wf_net_arm(net);
    wf_net_exit(net);
    return idle;
}

/* While the thread spins, a few sockets are read without asking the loop first, which takes longer
 * than that. */
static bool poll_sockets(struct wf_net *net)
{
    int n = 0;
    bool any = false;

    wf_net_enter(net);
    for (struct wf_link *l = net->links; l && n < MAX_POLLED; l = l->next)
        if (l->wire && l->wire->announces && l->state == WF_LINK_UP) {
            any |= wf_link_read(l, false);
            n++;
        }
    wf_net_exit(net);
    return any;
}

static void *node_main(void *arg)
{
    struct wf_net *net = arg;
    int64_t spin = (int64_t)net->opts.spin_us * 1000, until = 0, seen = -1;
    int looks = 0;

    while (!is_stopping(net)) {
        bool spinning;

        if (net->n_turns != seen) {
            seen = net->n_turns;
            until = wf_now(net->ctx) + spin;
        }
        spinning = spin && !net->n_attending && wf_now(net->ctx) < until;
        if (spinning && ++looks % LOOKS && poll_sockets(net))
            continue;
        uv_run(&net->loop, may_sleep(net, spinning) ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    }
    close_all(net);
    return NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static weft_status set_defaults(weft_ctx *ctx, struct wf_net_opts *o)
{
    o->max_payload = o->max_payload ? o->max_payload : (int64_t)1 << 40;
    o->max_queued = o->max_queued ? o->max_queued : 1024;
    o->silence_ns = o->silence_ns ? o->silence_ns : 3000000000;
    o->max_regions = o->max_regions ? o->max_regions : (int64_t)4 << 30;
    o->stall_ns = o->stall_ns ? o->stall_ns : 3000000000;
    return o->self.incarnation ? WEFT_OK
                               : wf_entropy(ctx, &o->self.incarnation, sizeof o->self.incarnation);
}

static weft_status open_loop(struct wf_net *net)
{
    int rc = net->opts.manual ? 0 : uv_loop_init(&net->loop);

    if (net->opts.manual)
        return WEFT_OK;
    if (rc)
        return wf_err(WEFT_EIO, "an event loop: %s", uv_strerror(rc));
    net->loop.data = net->ctx; /* for handles that free themselves */
    uv_async_init(&net->loop, &net->wake, on_wake);
    uv_timer_init(&net->loop, &net->timer);
    net->wake.data = net->timer.data = net;
    set_timer(net);
    return WEFT_OK;
}

weft_status wf_net_new(weft_ctx *ctx, const struct wf_net_opts *opts, struct wf_net **out)
{
    struct wf_net *net = wf_alloc(ctx, sizeof *net);
    pthread_condattr_t attr;
    weft_status st;

    if (!net)
        return wf_err_nomem(ctx, sizeof *net, "a node");
    net->ctx = ctx;
    net->opts = *opts;
    st = set_defaults(ctx, &net->opts);
    if (st) {
        wf_free(ctx, net);
        return st;
    }
    pthread_mutex_init(&net->lock, NULL);
    pthread_mutex_init(&net->turn, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&net->changed, &attr);
    pthread_condattr_destroy(&attr);
    st = open_loop(net);
    if (!st && !opts->manual && pthread_create(&net->thread, NULL, node_main, net)) {
        st = wf_err(WEFT_ENOMEM, "a node: no thread can be started");
        close_all(net);
        uv_loop_close(&net->loop);
    }
    if (st) {
        pthread_cond_destroy(&net->changed);
        pthread_mutex_destroy(&net->turn);
        pthread_mutex_destroy(&net->lock);
        wf_free(ctx, net);
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
    if (net->opts.manual) {
        close_all(net);
    } else {
        wf_net_wake(net);
        pthread_join(net->thread, NULL);
        uv_loop_close(&net->loop);
    }
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
    l->connect_by = timeout_ns ? wf_now(net->ctx) + timeout_ns : 0;
    o->link = l;
    *out = l;
    wf_net_order(net, o);
    return WEFT_OK;
}
