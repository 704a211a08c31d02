/* carrier.c - threads that read and write stripes: one for each number of a side connection, shared
 * by all links of a node, so that a node has few of them however many peers it has.
 *
 * Who has stripes to write takes the next one that no one has taken: a slow connection carries
 * fewer. Stripes are read directly to where the payload was placed. The thread that completes a
 * message takes the turn and passes it on. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/eventfd.h>

#include "net/side.h"

enum {
    MAX_IOV = 32,
    MAX_ROOM = 8,
    BETWEEN = WF_FRAME_TAIL + WF_FRAME_HEADER, /* bytes that are not of a payload, at most */
    BUDGET = 4 << 20,                          /* bytes of one side before others of the carrier */
    PORTION = 1 << 20,                         /* bytes while `busy` is held */
    REST_MS = 200                              /* a wake-up that failed is not missed for longer */
};

struct wf_carrier {
    struct wf_net *net;
    pthread_t thread;
    int set, bell; /* of epoll; an eventfd in it */
    bool started;
    struct wf_side *sides; /* the thread's alone */
    _Atomic bool rung;     /* the bell, and no one has looked since */
    pthread_mutex_t lock;  /* of all below */
    struct wf_side *added;
    bool stop;
};

/* What has to be done without `busy`. */
struct result {
    bool arrived, sent;
    weft_status st; /* the peer does not keep to the protocol */
};

/* ---- arriving -------------------------------------------------------------------------------- */

static weft_status make_room(struct wf_side *s, int n)
{
    weft_ctx *ctx = s->conn->net->ctx;
    struct wf_part *more;

    if (n <= s->max_parts)
        return WEFT_OK;
    more = wf_alloc_raw(ctx, 2 * (size_t)n * sizeof *more);
    if (!more)
        return wf_err_nomem(ctx, 2 * (size_t)n * sizeof *more, "a stripe");
    wf_free(ctx, s->part);
    s->part = more;
    s->max_parts = 2 * n;
    return WEFT_OK;
}

weft_status wf_side_place(struct wf_side *s, const struct wf_frame *f, const struct wf_part **parts,
                          int *n_parts)
{
    struct wf_gather *g = &s->link->sides->in;
    bool later = false;
    weft_status st;

    if (f->type != WF_FRAME_STRIPE)
        return wf_err(WEFT_EPEER, "a %s on a connection for stripes", wf_frame_name(f->type));
    pthread_mutex_lock(&s->link->out);
    st = wf_gather_begin(g, f, &later);
    s->waits = later;
    pthread_mutex_unlock(&s->link->out);
    *n_parts = WF_PLACE_LATER;
    if (st || later)
        return st;
    /* The message is not complete without this stripe: its memory stays. */
    *n_parts = wf_part_range(g->part, g->n_parts, f->wait, f->n_payload, NULL, 0);
    st = make_room(s, *n_parts);
    if (!st)
        wf_part_range(g->part, g->n_parts, f->wait, f->n_payload, s->part, *n_parts);
    *parts = s->part;
    return st;
}

weft_status wf_side_complete(struct wf_side *s, const struct wf_frame *f)
{
    struct wf_link *l = s->link;
    bool last;

    if (f->type != WF_FRAME_STRIPE)
        return wf_err(WEFT_EPEER, "a %s on a connection for stripes", wf_frame_name(f->type));
    pthread_mutex_lock(&l->out);
    l->proved_ns = wf_now(l->net->ctx);
    last = wf_gather_end(&l->sides->in);
    l->sides->arrived |= last;
    pthread_mutex_unlock(&l->out);
    s->arrived |= last;
    return WEFT_OK;
}

/* The connection ends; whether that is the end of the pair is decided by who has the turn. */
static void lose(struct wf_side *s, const char *what, int64_t rc)
{
    struct wf_sides *all = s->link->sides;
    bool within = !wf_unframe_between(&s->conn->in) || s->o;

    s->lost = true;
    pthread_mutex_lock(&s->link->out);
    if (!all->confirmed) { /* then the link does without */
        all->given_up = true;
        all->n_up--;
        pthread_mutex_unlock(&s->link->out);
        return;
    }
    all->n_lost++;
    all->broken |= within;
    all->lost_ns = wf_now(s->link->net->ctx);
    wf_snprintf(all->why, sizeof all->why, "%s: %.80s", what,
                rc == 0         ? "the peer closed it"
                : rc == -EPROTO ? s->conn->wire_error
                                : wf_errno_text((int)-rc));
    pthread_mutex_unlock(&s->link->out);
    wf_net_tick(s->link->net);
    wf_net_wake(s->link->net);
}

/* What has been read, but belongs to no payload that is being read; false: not now. */
static bool take_staged(struct wf_side *s, struct result *r)
{
    struct wf_link *c = s->conn;
    int64_t used;

    r->st = wf_unframe_push(&c->in, c->staging + c->taken, c->staged - c->taken, &used);
    c->taken += used;
    return !r->st && !wf_unframe_waits(&c->in);
}

/* Bytes that were read; 0: there are none now, or it waits, or it has ended. */
static int64_t read_once(struct wf_side *s, struct result *r)
{
    struct wf_link *c = s->conn;
    struct wf_part room[MAX_ROOM];
    struct iovec v[MAX_ROOM + 1];
    int n_room, n_v = 0;
    int64_t direct = 0, n;

    if ((c->staged > c->taken || wf_unframe_waits(&c->in)) && !take_staged(s, r))
        return 0;
    n_room = wf_unframe_room(&c->in, room, MAX_ROOM);
    for (; n_v < n_room; n_v++) {
        v[n_v] = (struct iovec){room[n_v].p, (size_t)room[n_v].n};
        direct += room[n_v].n;
    }
    c->staged = c->taken = 0;
    if (n_room < MAX_ROOM) /* the checksum, and the next header, but no payload: it has a place */
        v[n_v++] = (struct iovec){c->staging, BETWEEN};
    do
        n = c->wire->read(c, v, n_v);
    while (n == -EINTR);
    if (n == -EAGAIN || n == -EWOULDBLOCK)
        return 0;
    if (n <= 0) {
        lose(s, "reading", n);
        return 0;
    }
    direct = wf_min_i64(direct, n);
    c->staged = n - direct;
    if (direct)
        r->st = wf_unframe_got(&c->in, direct);
    if (!r->st)
        take_staged(s, r);
    return r->st ? 0 : n;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void put_crc(uint8_t out[WF_FRAME_TAIL], uint32_t crc)
{
    for (int i = 0; i < WF_FRAME_TAIL; i++)
        out[i] = (uint8_t)(crc >> 8 * i);
}

static uint32_t sum_stripe(const struct wf_side *s)
{
    int64_t at = s->from, left = s->n;
    uint32_t crc = 0;

    for (int i = 0; i < s->o->n_parts && left > 0; i++) {
        int64_t k = wf_min_i64(left, s->o->part[i].n - at);

        if (k > 0) {
            crc = wf_crc32c(crc, (const char *)s->o->part[i].p + at, k);
            left -= k;
        }
        at = wf_max_i64(at - s->o->part[i].n, 0);
    }
    return crc;
}

/* The next stripe that no one has taken; false: there is none. */
static bool take_stripe(struct wf_side *s)
{
    struct wf_link *l = s->link;
    struct wf_sides *all = l->sides;
    struct wf_frame f = {.type = WF_FRAME_STRIPE};

    pthread_mutex_lock(&l->out);
    s->o = all->out && all->next < all->out->frame.n_payload ? all->out : NULL;
    if (s->o) {
        s->from = f.wait = all->next;
        s->n = f.n_payload = wf_min_i64(all->head.stripe, s->o->frame.n_payload - all->next);
        f.id = all->number;
        all->next += s->n;
        all->n_writing++;
    }
    pthread_mutex_unlock(&l->out);
    if (!s->o)
        return false;
    if (l->kind == WF_ADDRESS_TCP && !l->net->opts.no_checksums) {
        f.flags = WF_FRAME_SUMMED;
        put_crc(s->tail, sum_stripe(s));
    }
    wf_frame_encode(&f, NULL, s->header);
    s->at = 0;
    s->n_frame = WF_FRAME_HEADER + s->n + (f.flags ? WF_FRAME_TAIL : 0);
    return true;
}

/* What is left of the stripe. */
static int fill(const struct wf_side *s, struct iovec v[MAX_IOV])
{
    struct wf_part part[MAX_IOV - 2];
    int64_t at = wf_max_i64(s->at - WF_FRAME_HEADER, 0), tail = s->at - WF_FRAME_HEADER - s->n;
    int n = 0, n_parts;

    if (s->at < WF_FRAME_HEADER)
        v[n++] = (struct iovec){(void *)(uintptr_t)(s->header + s->at),
                                (size_t)(WF_FRAME_HEADER - s->at)};
    n_parts = at < s->n ? wf_part_range(s->o->part, s->o->n_parts, s->from + at, s->n - at, part,
                                        WF_COUNT(part))
                        : 0;
    for (int i = 0; i < n_parts && i < WF_COUNT(part); i++)
        v[n++] = (struct iovec){part[i].p, (size_t)part[i].n};
    if (n_parts <= WF_COUNT(part) && s->n_frame > WF_FRAME_HEADER + s->n)
        v[n++] = (struct iovec){(void *)(uintptr_t)(s->tail + wf_max_i64(tail, 0)),
                                (size_t)(WF_FRAME_TAIL - wf_max_i64(tail, 0))};
    return n;
}

/* n bytes were taken by the system; whether that was the end of the message. */
static bool advance(struct wf_side *s, int64_t n)
{
    struct wf_link *l = s->link;
    struct wf_sides *all = l->sides;
    bool last = false;

    s->at += n;
    pthread_mutex_lock(&l->out);
    l->moved_ns = wf_now(l->net->ctx);
    if (s->at == s->n_frame) {
        all->n_writing--;
        last = all->n_writing == 0 && all->next >= s->o->frame.n_payload;
        if (last) {
            s->o->striped_done = true;
            all->out = NULL;
        }
        s->o = NULL;
    }
    pthread_mutex_unlock(&l->out);
    return last;
}

/* Bytes that were written; 0: there are none, or the socket is full, or it has ended. */
static int64_t write_once(struct wf_side *s, struct result *r)
{
    struct iovec v[MAX_IOV];
    int64_t n;

    if (s->blocked || (!s->o && !take_stripe(s)))
        return 0;
    do
        n = s->conn->wire->write(s->conn, v, fill(s, v));
    while (n == -EINTR);
    s->blocked = n == -EAGAIN || n == -EWOULDBLOCK;
    if (s->blocked)
        return 0;
    if (n < 0) {
        lose(s, "writing", n);
        return 0;
    }
    r->sent |= advance(s, n);
    return n;
}

/* ---- one side -------------------------------------------------------------------------------- */

/* A while of reading and writing; whether there may be more. */
static int64_t work(struct wf_side *s, struct result *r)
{
    int64_t n = 0, k = 1;

    pthread_mutex_lock(&s->busy);
    s->arrived = false;
    while (k > 0 && n < PORTION && !s->dead && !s->lost && !r->st && !r->sent && !s->arrived) {
        k = write_once(s, r);
        if (!s->lost && !r->sent)
            k += read_once(s, r);
        n += k;
    }
    r->arrived = s->arrived;
    pthread_mutex_unlock(&s->busy);
    return n;
}

/* The link stays, whatever happens to it, until its sides are freed. */
static void pass_on(struct wf_side *s, const struct result *r)
{
    struct wf_link *l = s->link;
    char why[sizeof l->why];

    if (r->st)
        wf_snprintf(why, sizeof why, "%s", weft_error());
    if (r->sent)
        wf_sendq_write(l);
    if (!r->arrived && !r->st)
        return;
    wf_net_enter(l->net);
    if (!s->dead && r->st)
        wf_link_down(l, r->st, why);
    else if (!s->dead)
        wf_link_arrived(l);
    wf_net_exit(l->net);
}

/* What the carrier waits for at the socket. */
static void watch(struct wf_side *s)
{
    const struct wf_sys *sys = s->conn->net->ctx->sys;
    int events = s->waits ? 0 : EPOLLIN, rc, op = EPOLL_CTL_MOD;
    struct epoll_event e = {.data.ptr = s};

    events |= s->blocked ? EPOLLOUT : 0;
    if (s->lost || !events) { /* its end would be announced for ever */
        if (s->watched)
            sys->epoll_ctl(sys->arg, s->carrier->set, EPOLL_CTL_DEL, s->conn->fd, &e);
        s->watched = 0;
        return;
    }
    if (events == s->watched)
        return;
    if (!s->watched)
        op = EPOLL_CTL_ADD;
    e.events = (uint32_t)events;
    rc = sys->epoll_ctl(sys->arg, s->carrier->set, op, s->conn->fd, &e);
    if (rc < 0)
        lose(s, "waiting", rc);
    else
        s->watched = events;
}

static void serve(struct wf_side *s, uint32_t events)
{
    int64_t left = BUDGET, n = 1;

    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR) && s->blocked) {
        pthread_mutex_lock(&s->link->out);
        s->link->proved_ns = wf_now(s->link->net->ctx); /* the peer has taken bytes */
        pthread_mutex_unlock(&s->link->out);
        s->blocked = false;
    }
    s->again = false;
    while (n > 0 && left > 0 && !s->dead) {
        struct result r = {.arrived = false};

        n = work(s, &r);
        left -= n;
        pass_on(s, &r);
    }
    s->again = n > 0 && !s->dead && !s->lost;
    if (!s->dead)
        watch(s);
}

/* Its link is down: no one else has it any more. */
static void free_side(struct wf_side *s)
{
    const struct wf_sys *sys = s->conn->net->ctx->sys;
    struct wf_net *net = s->conn->net;
    struct wf_link *l = s->link;

    sys->close(sys->arg, s->conn->fd);
    s->conn->fd = -1;
    wf_link_free(s->conn);
    pthread_mutex_destroy(&s->busy);
    wf_free(net->ctx, s->part);
    wf_free(net->ctx, s);
    l->sides->n_kept--; /* from here on the link may be freed */
    wf_net_wake(net);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool take_added(struct wf_carrier *c)
{
    struct wf_side *s;
    bool stop;

    pthread_mutex_lock(&c->lock);
    while ((s = c->added)) {
        c->added = s->next;
        s->next = c->sides;
        c->sides = s;
    }
    stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return !stop;
}

static void free_sides(struct wf_carrier *c, bool all)
{
    for (struct wf_side **at = &c->sides; *at;) {
        struct wf_side *s = *at;

        if (s->gone || all) {
            *at = s->next;
            free_side(s);
        } else {
            at = &s->next;
        }
    }
}

static void hear_bell(struct wf_carrier *c)
{
    const struct wf_sys *sys = c->net->ctx->sys;
    uint64_t n;

    sys->read(sys->arg, c->bell, &n, sizeof n);
}

static void *carrier_main(void *arg)
{
    struct wf_carrier *c = arg;
    const struct wf_sys *sys = c->net->ctx->sys;
    bool again = false;

    for (;;) {
        struct epoll_event e[16];
        int n;

        c->rung = false; /* who rings from here on is heard in the next round */
        if (!take_added(c))
            break;
        /* Who was told to look at its links, and where nothing announces what there is. */
        for (struct wf_side *s = c->sides; s; s = s->next)
            if (!s->dead && !s->lost)
                serve(s, 0);
        free_sides(c, false);
        for (bool bell = false; !bell;) {
            again = false;
            for (struct wf_side *s = c->sides; s; s = s->next)
                again |= s->again;
            n = sys->epoll_wait(sys->arg, c->set, e, WF_COUNT(e), again ? 0 : REST_MS);
            bell = n <= 0;
            for (int i = 0; i < n; i++)
                if (!e[i].data.ptr) {
                    hear_bell(c);
                    bell = true;
                } else if (((const struct wf_side *)e[i].data.ptr)->dead) {
                    bell = true; /* its end is announced until it is freed */
                } else {
                    serve(e[i].data.ptr, e[i].events);
                }
        }
    }
    free_sides(c, true);
    return NULL;
}

static void free_carrier(struct wf_carrier *c)
{
    const struct wf_sys *sys = c->net->ctx->sys;

    if (c->set >= 0)
        sys->close(sys->arg, c->set);
    if (c->bell >= 0)
        sys->close(sys->arg, c->bell);
    pthread_mutex_destroy(&c->lock);
    wf_free(c->net->ctx, c);
}

static weft_status open_carrier(struct wf_carrier *c)
{
    const struct wf_sys *sys = c->net->ctx->sys;
    struct epoll_event e = {.events = EPOLLIN};
    int rc = c->set = sys->epoll_create(sys->arg);

    if (rc >= 0)
        rc = c->bell = sys->eventfd(sys->arg, 0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (rc >= 0)
        rc = sys->epoll_ctl(sys->arg, c->set, EPOLL_CTL_ADD, c->bell, &e);
    if (rc < 0)
        return wf_err(WEFT_EIO, "a thread for further connections: %s", wf_errno_text(-rc));
    if (pthread_create(&c->thread, NULL, carrier_main, c))
        return wf_err(WEFT_ENOMEM, "no thread for further connections can be started");
    return WEFT_OK;
}

weft_status wf_carrier_start(struct wf_net *net, int index)
{
    struct wf_carrier *c;
    weft_status st;

    if (net->carrier[index])
        return WEFT_OK;
    c = wf_alloc(net->ctx, sizeof *c);
    if (!c)
        return wf_err_nomem(net->ctx, sizeof *c, "a thread for further connections");
    c->net = net;
    c->set = c->bell = -1;
    pthread_mutex_init(&c->lock, NULL);
    st = open_carrier(c);
    if (st)
        free_carrier(c);
    else
        net->carrier[index] = c;
    return st;
}

void wf_carrier_wake(struct wf_carrier *c)
{
    const struct wf_sys *sys = c->net->ctx->sys;
    const uint64_t one = 1;
    int64_t rc = 0;

    if (atomic_exchange(&c->rung, true))
        return;
    do
        rc = sys->write(sys->arg, c->bell, &one, sizeof one);
    while (rc == -EINTR);
    if (rc < 0)
        c->rung = false; /* who comes next tries again; the carrier looks now and then */
}

void wf_carrier_add(struct wf_net *net, int index, struct wf_side *s)
{
    struct wf_carrier *c = net->carrier[index];

    s->carrier = c;
    pthread_mutex_lock(&c->lock);
    s->next = c->added;
    c->added = s;
    pthread_mutex_unlock(&c->lock);
    wf_carrier_wake(c);
}

void wf_carriers_stop(struct wf_net *net)
{
    for (int i = 0; i < WF_MAX_SIDES; i++) {
        struct wf_carrier *c = net->carrier[i];

        if (!c)
            continue;
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_mutex_unlock(&c->lock);
        wf_carrier_wake(c);
        pthread_join(c->thread, NULL);
        net->carrier[i] = NULL;
        free_carrier(c);
    }
}
