/* link.c - one link: hello, messages, requests, silence, and the end. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/uio.h>

#include "net/side.h"

#define STRANGERS_NS ((int64_t)10 * 1000000000)

enum {
    BUDGET = 4 << 20, /* bytes read in a turn, so that links take turns */
    SUMMED = 1 << 18, /* of a payload with a checksum: what is summed is still in the cache */
    MAX_ROOM = 8
};

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status on_place(void *arg, const struct wf_frame *f, const void *head,
                            const struct wf_part **parts, int *n_parts);
static weft_status on_frame(void *arg, const struct wf_frame *f, const void *head);

weft_status wf_link_new(struct wf_net *net, struct wf_link **out)
{
    struct wf_link *l = wf_alloc(net->ctx, sizeof *l);
    struct wf_frame_calls calls = {l, on_place, on_frame};
    weft_status st = l ? WEFT_OK : wf_err_nomem(net->ctx, sizeof *l, "a link");

    if (st)
        return st;
    l->net = net;
    l->number = ++net->n_links;
    l->name = l->address;
    l->fd = -1;
    wf_sendq_init(l);
    l->next_id = 1;
    l->heard_ns = l->moved_ns = wf_now(net->ctx);
    pthread_mutex_init(&l->out, NULL);
    l->staging = wf_alloc_raw(net->ctx, WF_STAGING);
    st = l->staging ? wf_unframe_init(&l->in, net->ctx, net->opts.max_payload, &calls)
                    : wf_err_nomem(net->ctx, WF_STAGING, "a link");
    if (st) {
        wf_link_free(l);
        return st;
    }
    *out = l;
    return WEFT_OK;
}

void wf_link_free(struct wf_link *l)
{
    wf_inproc_free(l);
    wf_sides_free(l);
    wf_regions_free(l);
    wf_shm_free(l);
    wf_unframe_free(&l->in);
    wf_secure_free(l);
    wf_free(l->net->ctx, l->staging);
    pthread_mutex_destroy(&l->out);
    wf_free(l->net->ctx, l);
}

/* What the thread that is told learns beyond the status. */
static void say_why(const struct wf_link *l, const struct wf_pending *p, weft_status st)
{
    if (st == WEFT_ETIME)
        wf_err(st, "%s: no answer to a request of kind %u within %.3g s", l->name,
               (unsigned)p->kind, (double)(p->timeout_ns / 1000) * 1e-6);
    else if (st == WEFT_ECANCEL && l->state != WF_LINK_DOWN)
        wf_err(st, "%s: a request of kind %u was cancelled", l->name, (unsigned)p->kind);
}

/* All requests that wait, or only those that `due` is true for, answered with a status. */
static void end_requests(struct wf_link *l, bool (*due)(const struct wf_pending *p, int64_t now),
                         int64_t now, weft_status st)
{
    struct wf_pending *ended = NULL, **at;

    pthread_mutex_lock(&l->out);
    for (at = &l->pending; *at;) {
        struct wf_pending *p = *at;

        if (due && !due(p, now)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = ended;
        ended = p;
    }
    pthread_mutex_unlock(&l->out);
    while (ended) {
        struct wf_pending *p = ended;

        ended = p->next;
        say_why(l, p, st);
        if (l->state == WF_LINK_UP)
            wf_sendq_control(l, &(struct wf_frame){.type = WF_FRAME_CANCEL, .id = p->id}, NULL);
        p->reply(p->arg, st, NULL);
        wf_free(l->net->ctx, p);
    }
}

void wf_link_known(struct wf_link *l)
{
    l->net->n_unknown -= l->unknown;
    l->unknown = false;
}

/* Who connected and went down before it was known: one line, and of many one line now and then. */
static void say_stranger(struct wf_net *net, const char *text)
{
    int64_t now = wf_now(net->ctx);

    net->n_strangers++;
    if (net->strangers_ns && now - net->strangers_ns < STRANGERS_NS)
        return;
    net->strangers_ns = now;
    if (net->n_strangers == 1)
        wf_log(net->ctx, WEFT_LOG_WARN, "a connection was dropped before its peer was known: %s",
               text);
    else
        wf_log(net->ctx, WEFT_LOG_WARN,
               "%lld more connections were dropped before their peers were known, the last one: %s",
               (long long)net->n_strangers, text);
    net->n_strangers = 0;
}

void wf_link_down(struct wf_link *l, weft_status st, const char *why)
{
    const struct wf_net_calls *calls = &l->net->opts.calls;
    bool tell = (l->promised || l->told_up) && !l->belongs;
    char text[sizeof l->why + WF_MAX_LINK_NAME];

    if (l->state == WF_LINK_DOWN)
        return;
    wf_snprintf(text, sizeof text, "%s: %s", l->name, why);
    pthread_mutex_lock(&l->out);
    l->state = WF_LINK_DOWN;
    wf_snprintf(l->why, sizeof l->why, "%s", why);
    pthread_mutex_unlock(&l->out);
    if (l->unknown && st != WEFT_ECANCEL)
        say_stranger(l->net, text);
    wf_link_known(l);
    wf_sides_close(l);
    wf_socket_close(l);
    wf_sendq_clear(l, st);
    wf_err_set(text);
    end_requests(l, NULL, 0, st ? st : WEFT_EPEER);
    if (tell)
        calls->down(calls->arg, l, st, text);
    else
        l->dropped = true;
    if (l->belongs)
        wf_sides_missed(l, text);
    if (l->belongs && l->belongs->state == WF_LINK_UP)
        wf_log(l->net->ctx, WEFT_LOG_INFO, "a further connection is not used: %s", text);
    wf_net_happened(l->net);
}

/* ---- hello ----------------------------------------------------------------------------------- */

enum { MAX_HELLO = 8 + 1 + sizeof((struct wf_identity *)0)->role + 64 };

static int32_t encode_hello(const struct wf_identity *self, uint8_t head[MAX_HELLO])
{
    size_t n_role = strlen(self->role), n_name = strlen(self->name);

    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(self->incarnation >> 8 * i);
    head[8] = (uint8_t)n_role;
    memcpy(head + 9, self->role, n_role);
    memcpy(head + 9 + n_role, self->name, n_name);
    return (int32_t)(9 + n_role + n_name);
}

static void say_hello(struct wf_link *l)
{
    struct wf_frame f = {.type = l->belongs ? WF_FRAME_ATTACH : WF_FRAME_HELLO};
    uint8_t head[MAX_HELLO];

    if (l->belongs) {
        f.n_head = wf_sides_attach_head(l, head);
    } else {
        f.n_head = encode_hello(&l->net->opts.self, head);
        f.kind = (uint32_t)l->net->opts.connections;
    }
    l->heard_ns = wf_now(l->net->ctx);
    wf_socket_watch(l, WF_READABLE, true);
    if (l->state != WF_LINK_DOWN && wf_sendq_hello(l, &f, head))
        wf_link_down(l, WEFT_ENOMEM, "out of memory");
}

/* One step of the handshake of TLS, or waiting for shared memory. */
static void secure(struct wf_link *l)
{
    int events;
    weft_status st =
        l->kind == WF_ADDRESS_SHM ? wf_shm_step(l, &events) : wf_secure_step(l, &events);

    if (st)
        wf_link_down(l, st, weft_error());
    else if (events)
        wf_socket_watch(l, events, true);
    else
        say_hello(l);
    if (!st && !events && l->state == WF_LINK_HELLO && l->wire->pending && l->wire->pending(l)) {
        l->more = true; /* the peer's hello has come with the end of the handshake */
        wf_net_wake(l->net);
    }
}

void wf_link_start(struct wf_link *l)
{
    weft_status st = WEFT_OK;

    l->wire = l->kind == WF_ADDRESS_TLS      ? &wf_wire_tls
              : l->kind == WF_ADDRESS_SHM    ? &wf_wire_shm
              : l->kind == WF_ADDRESS_INPROC ? &wf_wire_inproc
                                             : &wf_wire_plain;
    if (l->kind == WF_ADDRESS_TLS)
        st = l->net->opts.tls
                 ? wf_secure_new(l, l->net->opts.tls)
                 : wf_err(WEFT_ESTATE, "this node has no certificate, which tls needs");
    else if (l->kind == WF_ADDRESS_SHM)
        st = wf_shm_new(l);
    else if (l->kind == WF_ADDRESS_UDS)
        st = wf_link_check_user(l);
    if (st) {
        wf_link_down(l, st, weft_error());
        return;
    }
    if (l->kind != WF_ADDRESS_TLS && l->kind != WF_ADDRESS_SHM) {
        say_hello(l);
        return;
    }
    l->heard_ns = wf_now(l->net->ctx);
    l->state = WF_LINK_SECURING;
    secure(l);
}

weft_status wf_hello_decode(const struct wf_link *l, const struct wf_frame *f, const uint8_t *head,
                            struct wf_identity *out)
{
    struct wf_identity p = {.incarnation = 0};
    int n_role = f->n_head > 8 ? head[8] : 0, n_name = f->n_head - 9 - n_role;

    if (f->n_head < 9 || n_name < 0 || n_role >= (int)sizeof p.role || n_name >= (int)sizeof p.name)
        return wf_err(WEFT_EPEER, "a hello that names nobody");
    for (int i = 0; i < 8; i++)
        p.incarnation |= (uint64_t)head[i] << 8 * i;
    memcpy(p.role, head + 9, (size_t)n_role);
    memcpy(p.name, head + 9 + n_role, (size_t)n_name);
    for (int i = 9; i < f->n_head; i++)
        if (head[i] < 32 || head[i] > 126)
            return wf_err(WEFT_EPEER, "a hello with a name that cannot be printed");
    if (l->secure &&
        (strcmp(p.name, l->certified.name) != 0 || strcmp(p.role, l->certified.role) != 0))
        return wf_err(WEFT_EPEER, "says that it is %s (%s), but its certificate is that of %s (%s)",
                      p.name, p.role, l->certified.name, l->certified.role);
    *out = p;
    return WEFT_OK;
}

static weft_status take_hello(struct wf_link *l, const struct wf_frame *f, const uint8_t *head)
{
    const struct wf_net_calls *calls = &l->net->opts.calls;
    weft_status st = wf_hello_decode(l, f, head, &l->peer);

    if (!st && calls->admit)
        st = calls->admit(calls->arg, l);
    if (!st && !l->promised)
        st = wf_sides_offer(l, f->kind);
    if (st)
        return st;
    wf_snprintf(l->full_name, sizeof l->full_name, "%s (%.160s)", l->peer.name, l->address);
    l->name = l->full_name;
    l->told_up = true;
    wf_link_known(l);
    l->state = WF_LINK_UP;
    if (calls->up)
        calls->up(calls->arg, l);
    return WEFT_OK;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Each message with a slot is answered with its release: a peer has to take them. */
static weft_status check_owed(struct wf_link *l)
{
    int64_t n;

    pthread_mutex_lock(&l->out);
    n = l->n_queued;
    pthread_mutex_unlock(&l->out);
    return n > l->net->opts.max_queued + WF_MAX_OWED
               ? wf_err(WEFT_EPEER,
                        "it sends messages in regions, but takes nothing: %lld frames are waiting",
                        (long long)n)
               : WEFT_OK;
}

/* A message whose payload lies in regions: `ref` of the link says where. */
static weft_status locate(struct wf_link *l, const struct wf_frame *f, const void *head,
                          struct wf_msg *m)
{
    weft_status st = wf_region_parts(l, f, head, &m->n_parts, &m->n_payload, &m->n_head);

    if (!st)
        st = check_owed(l);
    if (st)
        return st;
    m->part = l->ref;
    m->slot = ++l->n_slots_in;
    return WEFT_OK;
}

static struct wf_msg message_of(const struct wf_link *l, const struct wf_frame *f, const void *head)
{
    bool placed = f->n_payload > 0;

    return (struct wf_msg){.kind = f->kind,
                           .head = head,
                           .n_head = f->n_head,
                           .part = placed ? l->placed : NULL,
                           .n_parts = placed ? l->n_placed : 0,
                           .n_payload = f->n_payload,
                           .id = f->id,
                           .response = f->type == WF_FRAME_RESPONSE};
}

static weft_status on_place(void *arg, const struct wf_frame *f, const void *head,
                            const struct wf_part **parts, int *n_parts)
{
    struct wf_link *l = arg;
    const struct wf_net_calls *calls = &l->net->opts.calls;
    weft_status st = WEFT_OK;

    if (l->carried)
        return wf_side_place(l->carried, f, parts, n_parts);
    l->placed = NULL;
    l->n_placed = 0;
    *n_parts = 0;
    if (l->state != WF_LINK_UP)
        return wf_err(WEFT_EPEER, "a %s before its hello", wf_frame_name(f->type));
    if (f->type == WF_FRAME_STRIPE || (f->flags & WF_FRAME_STRIPED && !wf_sides_confirmed(l)))
        return wf_err(WEFT_EPEER, "stripes, without a connection for them");
    if (f->flags & WF_FRAME_REGIONAL) { /* copied to where it lies at the other end */
        int64_t n_payload;
        int32_t n_head;

        st = wf_region_parts(l, f, head, n_parts, &n_payload, &n_head);
        *parts = l->ref;
    } else if (calls->place) {
        struct wf_msg m = message_of(l, f, head);

        st = calls->place(calls->arg, l, &m, parts, n_parts);
    }
    if (*n_parts > 0 && !(f->flags & WF_FRAME_REGIONAL)) {
        l->placed = *parts;
        l->n_placed = *n_parts;
    }
    if (!st && f->flags & WF_FRAME_STRIPED && *n_parts != WF_PLACE_LATER)
        st = wf_sides_expect(l, f, *parts, *n_parts);
    return st;
}

static weft_status take_response(struct wf_link *l, const struct wf_frame *f,
                                 const struct wf_msg *m)
{
    struct wf_pending **at, *p = NULL;

    pthread_mutex_lock(&l->out);
    for (at = &l->pending; *at && (*at)->id != f->id; at = &(*at)->next)
        ;
    if (*at) {
        p = *at;
        *at = p->next;
    }
    pthread_mutex_unlock(&l->out);
    if (m->slot && (!p || f->wait)) /* nobody will read it */
        wf_link_release(l, m->slot);
    if (!p) /* too late, or cancelled */
        return WEFT_OK;
    if (f->wait)
        wf_err((weft_status)f->wait, "%s: %.*s", l->name, m->n_head, (const char *)m->head);
    p->reply(p->arg, (weft_status)f->wait, f->wait ? NULL : m);
    wf_free(l->net->ctx, p);
    return WEFT_OK;
}

/* A peer that asks and takes no answer gets none. */
static weft_status answer_ping(struct wf_link *l, const struct wf_frame *f)
{
    bool full;

    pthread_mutex_lock(&l->out);
    full = l->n_queued >= l->net->opts.max_queued;
    pthread_mutex_unlock(&l->out);
    return full ? WEFT_OK
                : wf_sendq_control(l, &(struct wf_frame){.type = WF_FRAME_PONG, .id = f->id}, NULL);
}

static weft_status on_frame(void *arg, const struct wf_frame *f, const void *head)
{
    struct wf_link *l = arg;
    const struct wf_net_calls *calls = &l->net->opts.calls;
    struct wf_msg m = message_of(l, f, head);
    weft_status st = WEFT_OK;

    if (l->carried)
        return wf_side_complete(l->carried, f);
    if (l->belongs)
        return wf_sides_greeted(l, f, head);
    if (f->type == WF_FRAME_ATTACH && l->state == WF_LINK_HELLO)
        return wf_sides_attach(l, f, head);
    if ((f->type == WF_FRAME_HELLO) != (l->state == WF_LINK_HELLO))
        return wf_err(WEFT_EPEER, "%s",
                      f->type == WF_FRAME_HELLO ? "a second hello" : "no hello at first");
    if (f->flags & WF_FRAME_REGIONAL)
        st = locate(l, f, head, &m);
    if (st)
        return st;
    switch (f->type) {
    case WF_FRAME_HELLO: return take_hello(l, f, head);
    case WF_FRAME_MESSAGE:
    case WF_FRAME_REQUEST: calls->received(calls->arg, l, &m); return WEFT_OK;
    case WF_FRAME_RESPONSE: return take_response(l, f, &m);
    case WF_FRAME_REGION: return wf_region_take(l, f, head);
    case WF_FRAME_RELEASE: return wf_sendq_released(l, f->id);
    case WF_FRAME_PING: return answer_ping(l, f);
    case WF_FRAME_SIDES: return wf_sides_take(l, f, head);
    case WF_FRAME_ATTACH:
    case WF_FRAME_STRIPE:
        return wf_err(WEFT_EPEER, "a frame of type %s on the first connection",
                      wf_frame_name(f->type));
    case WF_FRAME_BYE: l->bye = true; return WEFT_OK;
    default: return WEFT_OK; /* pong: it was heard; cancel: the answer will be ignored */
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What is in the staging memory; false if the link has to wait, or is down. */
static bool take_staged(struct wf_link *l)
{
    int64_t used;
    weft_status st = wf_unframe_push(&l->in, l->staging + l->taken, l->staged - l->taken, &used);

    l->taken += used;
    if (st) {
        wf_link_down(l, st, weft_error());
        return false;
    }
    l->paused = wf_unframe_waits(&l->in);
    l->elsewhere = wf_unframe_elsewhere(&l->in);
    return !l->paused && !l->elsewhere && !l->handing;
}

static void ended(struct wf_link *l)
{
    if (l->bye || l->said_bye)
        wf_link_down(l, WEFT_OK, "closed");
    else
        wf_link_down(l, WEFT_EPEER,
                     wf_unframe_between(&l->in) ? "the peer closed the connection"
                                                : "the connection ended within a message");
}

/* One read, directly to where a payload goes, and beyond that to the staging memory. *drained: it
 * took all that the socket has; what comes later is announced. */
static bool read_once(struct wf_link *l, int64_t *budget, bool *drained)
{
    struct wf_part room[MAX_ROOM];
    struct iovec v[MAX_ROOM + 1];
    int n_room = wf_unframe_room(&l->in, room, MAX_ROOM), n_v = 0;
    int64_t direct = 0, limit = wf_unframe_summed(&l->in) ? SUMMED : INT64_MAX, n;
    int64_t wanted;

    for (; n_v < n_room && direct < limit; n_v++) {
        int64_t k = wf_min_i64(room[n_v].n, limit - direct);

        v[n_v] = (struct iovec){room[n_v].p, (size_t)k};
        direct += k;
    }
    wanted = direct;
    /* More than is read in one call: what follows is not for the staging memory. */
    if (n_room < MAX_ROOM && direct < limit) {
        v[n_v++] = (struct iovec){l->staging, WF_STAGING};
        wanted += WF_STAGING;
    }
    n = l->wire->read(l, v, n_v);
    if (n == -EINTR)
        return true;
    if (n == -EAGAIN || n == -EWOULDBLOCK)
        return false;
    if (n < 0 && !(l->said_bye && n == -ECONNRESET)) {
        char text[128];

        wf_snprintf(text, sizeof text, "reading: %s",
                    n == -EPROTO ? l->wire_error : wf_errno_text((int)-n));
        wf_link_down(l, WEFT_EPEER, text);
        return false;
    }
    if (n <= 0) {
        ended(l);
        return false;
    }
    l->heard = true;
    *budget -= n;
    *drained =
        l->wire->announces && !l->ends && (l->wire->pending ? !l->wire->pending(l) : n < wanted);
    direct = wf_min_i64(direct, n);
    l->staged = n - direct;
    l->taken = 0;
    if (direct) {
        weft_status st = wf_unframe_got(&l->in, direct);

        if (st) {
            wf_link_down(l, st, weft_error());
            return false;
        }
    }
    return true;
}

/* Whether anything was read. */
static bool read_some(struct wf_link *l)
{
    int64_t budget = BUDGET;
    bool drained = false;

    while (l->state != WF_LINK_DOWN && budget > 0) {
        if ((l->staged > l->taken || wf_unframe_waits(&l->in)) && !take_staged(l))
            break;
        l->staged = l->taken = 0;
        if (l->bye) { /* nothing follows */
            wf_link_down(l, WEFT_OK, "closed by the peer");
            break;
        }
        if (l->shm && budget < BUDGET && wf_shm_idle(l))
            break;
        if (drained || !read_once(l, &budget, &drained))
            break;
    }
    l->more = budget <= 0 && l->state != WF_LINK_DOWN;
    if (l->more)
        wf_net_wake(l->net);
    return budget < BUDGET || l->state == WF_LINK_DOWN;
}

bool wf_link_read(struct wf_link *l)
{
    bool any;

    if (l->paused || l->elsewhere || l->handing ||
        (l->state != WF_LINK_HELLO && l->state != WF_LINK_UP))
        return false;
    any = read_some(l);
    if (l->paused && l->more)
        l->more = false;
    if (any)
        wf_net_happened(l->net);
    return any;
}

static void watch(struct wf_link *l)
{
    bool blocked;

    if (l->state != WF_LINK_HELLO && l->state != WF_LINK_UP)
        return;
    pthread_mutex_lock(&l->out);
    blocked = l->blocked;
    pthread_mutex_unlock(&l->out);
    wf_socket_watch(l,
                    l->shm ? wf_shm_events(l, blocked)
                           : (l->paused ? 0 : WF_READABLE) | (blocked ? WF_WRITABLE : 0),
                    false);
}

void wf_link_arrived(struct wf_link *l)
{
    bool arrived;

    pthread_mutex_lock(&l->out);
    arrived = l->state == WF_LINK_UP && l->elsewhere && l->sides->arrived;
    if (arrived)
        l->sides->arrived = false;
    pthread_mutex_unlock(&l->out);
    if (!arrived)
        return;
    l->elsewhere = false;
    l->heard = true;
    if (wf_unframe_arrived(&l->in))
        wf_link_down(l, WEFT_EPEER, weft_error());
    else
        read_some(l); /* what followed was not read, and not announced again */
    watch(l);
    wf_net_happened(l->net);
}

void wf_link_ready(struct wf_link *l, int events)
{
    l->ends |= events & WF_ENDED;
    if (l->state == WF_LINK_OPENING) {
        wf_socket_connected(l);
        return;
    }
    if (l->state == WF_LINK_SECURING) {
        secure(l);
        return;
    }
    if (l->shm) { /* somebody is there; perhaps there is space in the ring */
        wf_shm_woken(l, events);
        events |= WF_READABLE | WF_WRITABLE;
    }
    if (events & WF_WRITABLE) { /* the peer has taken bytes: it is alive */
        l->heard_ns = wf_now(l->net->ctx);
        pthread_mutex_lock(&l->out);
        l->blocked = false;
        pthread_mutex_unlock(&l->out);
        wf_sendq_write(l);
    }
    if (events & WF_READABLE && !l->paused && !l->elsewhere && !l->handing)
        read_some(l);
    watch(l);
    wf_net_happened(l->net);
}

/* ---- once a turn ----------------------------------------------------------------------------- */

static bool is_late(const struct wf_pending *p, int64_t now)
{
    return p->deadline && now >= p->deadline;
}

static bool is_cancelled(const struct wf_pending *p, int64_t now)
{
    (void)now;
    return p->cancelled;
}

static void check_silence(struct wf_link *l, int64_t now)
{
    int64_t silence = l->net->opts.silence_ns, quiet;
    char text[128];

    if (l->heard) {
        l->heard = false;
        l->heard_ns = now;
    }
    pthread_mutex_lock(&l->out);
    quiet = now - wf_max_i64(l->heard_ns, l->proved_ns);
    pthread_mutex_unlock(&l->out);
    if (silence < 0 || l->paused || l->handing)
        return;
    if (quiet >= silence) {
        wf_snprintf(text, sizeof text, "%s for %.1f s",
                    l->state == WF_LINK_UP ? "nothing was heard" : "no hello from the peer",
                    (double)quiet * 1e-9);
        wf_link_down(l, WEFT_ETIME, text);
    } else if (quiet >= silence / 3 && now - l->pinged_ns >= silence / 3 &&
               l->state == WF_LINK_UP) {
        l->pinged_ns = now;
        wf_sendq_control(l, &(struct wf_frame){.type = WF_FRAME_PING, .id = 1}, NULL);
    }
}

static void check_stall(struct wf_link *l, int64_t now)
{
    int64_t stall = l->net->opts.stall_ns, n, moved;
    char text[128];

    pthread_mutex_lock(&l->out);
    n = l->n_queued;
    moved = l->moved_ns;
    pthread_mutex_unlock(&l->out);
    if (stall < 0 || n == 0 || now - moved < stall)
        return;
    wf_snprintf(text, sizeof text, "the peer took no byte of %lld messages for %.1f s",
                (long long)n, (double)(now - moved) * 1e-9);
    wf_link_down(l, WEFT_ETIME, text);
}

/* All that was queued is sent: says goodbye, once. */
static void check_closing(struct wf_link *l)
{
    bool say;

    pthread_mutex_lock(&l->out);
    say = l->closing && !l->first && !l->said_bye && l->state == WF_LINK_UP;
    pthread_mutex_unlock(&l->out);
    if (say)
        wf_sendq_control(l, &(struct wf_frame){.type = WF_FRAME_BYE}, NULL);
    if (l->closing && l->state == WF_LINK_OPENING)
        wf_link_down(l, WEFT_OK, "closed before it was connected");
}

void wf_link_serve(struct wf_link *l, int64_t now)
{
    char why[sizeof l->why];
    bool resume;
    weft_status broken;

    if (l->state == WF_LINK_DOWN)
        return;
    pthread_mutex_lock(&l->out);
    broken = l->broken;
    wf_snprintf(why, sizeof why, "%s", l->why);
    resume = l->resume;
    l->resume = false;
    pthread_mutex_unlock(&l->out);
    if (broken) {
        if (l->said_bye)
            wf_link_down(l, WEFT_OK, "closed");
        else
            wf_link_down(l, broken, why);
        return;
    }
    if (l->state == WF_LINK_OPENING && l->connect_by && now >= l->connect_by) {
        wf_link_down(l, WEFT_ETIME, "connecting took too long");
        return;
    }
    broken = wf_sides_check(l, now);
    if (broken) {
        wf_link_down(l, l->said_bye ? WEFT_OK : broken, l->said_bye ? "closed" : weft_error());
        return;
    }
    end_requests(l, is_late, now, WEFT_ETIME);
    end_requests(l, is_cancelled, now, WEFT_ECANCEL);
    if (l->state != WF_LINK_OPENING) {
        if (resume && l->paused) {
            l->paused = false;
            l->more = true;
            l->heard_ns = now;
        }
        if (l->more || l->pipe || (l->shm && wf_shm_waiting(l))) {
            l->more = false;
            wf_link_read(l);
        }
        check_silence(l, now);
        check_stall(l, now);
    }
    check_closing(l);
    watch(l);
}

/* ---- what any thread calls ------------------------------------------------------------------- */

weft_status wf_link_send(struct wf_link *l, const struct wf_msg *m, wf_sent_fn *sent, void *arg)
{
    return wf_sendq_add(l, &(struct wf_frame){.type = WF_FRAME_MESSAGE}, m, sent, arg, NULL);
}

weft_status wf_link_call(struct wf_link *l, const struct wf_msg *m, int64_t timeout_ns,
                         wf_sent_fn *sent, wf_reply_fn *reply, void *arg, uint64_t *id)
{
    struct wf_pending *p = wf_alloc(l->net->ctx, sizeof *p);
    struct wf_frame f = {.type = WF_FRAME_REQUEST};
    weft_status st;

    if (!p)
        return wf_err_nomem(l->net->ctx, sizeof *p, "a request");
    if (timeout_ns < 0) /* its time is over: it is told so as any other */
        timeout_ns = 1;
    f.wait = timeout_ns / 1000;
    pthread_mutex_lock(&l->out);
    f.id = l->next_id++;
    pthread_mutex_unlock(&l->out);
    *p = (struct wf_pending){.id = f.id,
                             .kind = m->kind,
                             .timeout_ns = timeout_ns,
                             .deadline =
                                 timeout_ns ? wf_net_after(wf_now(l->net->ctx), timeout_ns) : 0,
                             .reply = reply,
                             .arg = arg};
    if (id)
        *id = f.id;
    st = wf_sendq_add(l, &f, m, sent, arg, p);
    if (st)
        wf_free(l->net->ctx, p);
    else if (timeout_ns)
        wf_net_tick(l->net);
    return st;
}

weft_status wf_link_reply(struct wf_link *l, uint64_t id, weft_status st, const struct wf_msg *m,
                          wf_sent_fn *sent, void *arg)
{
    struct wf_frame f = {.type = WF_FRAME_RESPONSE, .id = id, .wait = st};
    struct wf_msg none = {.kind = 0};

    if (st > 0 || (st && m && m->n_parts))
        return wf_err(WEFT_EINVAL, "%s: an answer with status %d and a payload", l->name, st);
    return wf_sendq_add(l, &f, m ? m : &none, sent, arg, NULL);
}

void wf_link_cancel(struct wf_link *l, uint64_t id)
{
    pthread_mutex_lock(&l->out);
    for (struct wf_pending *p = l->pending; p; p = p->next)
        p->cancelled |= p->id == id;
    pthread_mutex_unlock(&l->out);
    wf_net_wake(l->net);
}

void wf_link_resume(struct wf_link *l)
{
    pthread_mutex_lock(&l->out);
    l->resume = true;
    pthread_mutex_unlock(&l->out);
    wf_net_wake(l->net);
}

/* The peer waits for the release: without it the link has to end. */
void wf_link_release(struct wf_link *l, uint64_t slot)
{
    const struct wf_frame f = {.type = WF_FRAME_RELEASE, .id = slot};
    weft_status st = wf_sendq_control(l, &f, NULL);

    if (!st)
        return;
    pthread_mutex_lock(&l->out);
    if (l->state == WF_LINK_UP && !l->broken) {
        l->broken = st;
        wf_snprintf(l->why, sizeof l->why, "releasing what has arrived: %s", weft_error());
    }
    pthread_mutex_unlock(&l->out);
    wf_net_wake(l->net);
}

void wf_link_close(struct wf_link *l)
{
    pthread_mutex_lock(&l->out);
    l->closing = true;
    pthread_mutex_unlock(&l->out);
    wf_net_wake(l->net);
}

void wf_link_drop(struct wf_link *l)
{
    struct wf_net *net = l->net;

    l->dropped = true;
    wf_net_wake(net);
}

const struct wf_identity *wf_link_peer(const struct wf_link *l)
{
    return &l->peer;
}

const char *wf_link_name(const struct wf_link *l)
{
    return l->name;
}
