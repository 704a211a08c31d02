/* side.c - further connections of a pair: agreed after the hello, made by the end that connected,
 * attached by a token that only the two ends know, and given to carriers.
 *
 * All of them together are used, or none is: payloads then go over the first one. Once the end that
 * connects has confirmed that it has them all, the end of one is the end of the pair. */
#define _GNU_SOURCE
#include "net/side.h"

#include <errno.h>

#define ATTACH_NS 10000000000 /* to connect, and to be greeted */
#define GRACE_NS 250000000    /* for what the first connection says when a further one has ended */

/* ---- agreeing -------------------------------------------------------------------------------- */

static bool can_have_sides(const struct wf_link *l)
{
    return l->kind == WF_ADDRESS_TCP || l->kind == WF_ADDRESS_TLS;
}

static weft_status new_sides(struct wf_link *l, const struct wf_sides_head *h)
{
    struct wf_sides *s = wf_alloc(l->net->ctx, sizeof *s);

    if (!s)
        return wf_err_nomem(l->net->ctx, sizeof *s, "further connections");
    s->head = *h;
    wf_gather_init(&s->in, l->net->ctx, h->stripe);
    pthread_mutex_lock(&l->out);
    l->sides = s;
    pthread_mutex_unlock(&l->out);
    return WEFT_OK;
}

weft_status wf_sides_offer(struct wf_link *l, uint32_t wanted)
{
    const struct wf_net_opts *opts = &l->net->opts;
    struct wf_sides_head h = {.stripe = opts->stripe_bytes};
    struct wf_frame f = {.type = WF_FRAME_SIDES, .n_head = WF_SIDES_HEAD};
    uint8_t head[WF_SIDES_HEAD];
    weft_status st;

    h.n = (int)wf_min_i64(wanted, opts->connections) - 1;
    if (h.n < 1 || !can_have_sides(l))
        return WEFT_OK;
    st = wf_entropy(l->net->ctx, h.token, sizeof h.token);
    if (!st)
        st = new_sides(l, &h);
    wf_sides_encode(&h, head);
    return st ? st : wf_sendq_control(l, &f, head);
}

static weft_status open_side(struct wf_link *l, int index)
{
    struct wf_link *conn;
    weft_status st = wf_link_new(l->net, &conn);

    if (st)
        return st;
    wf_snprintf(conn->address, sizeof conn->address, "%s", l->address);
    conn->kind = l->kind;
    conn->promised = true;
    conn->belongs = l;
    conn->index = index;
    conn->connect_by = wf_now(l->net->ctx) + ATTACH_NS;
    conn->next = l->net->links;
    l->net->links = conn;
    wf_socket_connect_as(conn, l);
    return WEFT_OK;
}

/* Whether all are there, and known to be. With the link's mutex. */
static void settle(struct wf_sides *s)
{
    s->ready = s->confirmed && !s->given_up && s->n_up == s->head.n;
}

/* The end that connects has them all: they may be used. */
static weft_status take_confirmed(struct wf_link *l, const struct wf_sides_head *h)
{
    struct wf_sides *s = l->sides;
    bool good = s && wf_token_equal(s->head.token, h->token) && s->head.n == h->n, late = false;

    if (good) {
        pthread_mutex_lock(&l->out);
        good = !s->confirmed;
        late = good && s->given_up;
        s->confirmed = true;
        settle(s);
        pthread_mutex_unlock(&l->out);
    }
    if (late && l->said_bye) { /* the peer has heard that, and left */
        l->bye = true;
        return WEFT_OK;
    }
    if (late)
        return wf_err(WEFT_EPEER, "%d further connections, of which one has ended already", h->n);
    return good ? WEFT_OK
                : wf_err(WEFT_EPEER, "%d further connections, which were not asked for", h->n);
}

weft_status wf_sides_take(struct wf_link *l, const struct wf_frame *f, const uint8_t *head)
{
    struct wf_sides_head h;
    weft_status st = wf_sides_decode(head, f->n_head, &h);

    if (st)
        return st;
    if (!l->promised)
        return take_confirmed(l, &h);
    if (l->sides || !can_have_sides(l) || h.n >= l->net->opts.connections)
        return wf_err(WEFT_EPEER, "%d further connections, which were not asked for", h.n);
    st = new_sides(l, &h);
    for (int i = 0; i < h.n && !st; i++)
        st = open_side(l, i);
    return st;
}

/* ---- attaching ------------------------------------------------------------------------------- */

int32_t wf_sides_attach_head(const struct wf_link *l, uint8_t out[WF_ATTACH_HEAD])
{
    struct wf_attach_head h = {.index = l->index, .incarnation = l->net->opts.self.incarnation};

    memcpy(h.token, l->belongs->sides->head.token, WF_TOKEN);
    wf_attach_encode(&h, out);
    return WF_ATTACH_HEAD;
}

/* What follows is read by its carrier. */
static void hand(struct wf_link *conn)
{
    wf_link_known(conn);
    conn->handing = true;
    conn->in.stop = true;
    conn->net->n_handing++;
    wf_net_wake(conn->net);
}

weft_status wf_sides_greeted(struct wf_link *conn, const struct wf_frame *f, const uint8_t *head)
{
    const struct wf_identity *peer = &conn->belongs->peer;
    struct wf_identity p;
    weft_status st = f->type == WF_FRAME_HELLO ? wf_hello_decode(conn, f, head, &p)
                                               : wf_err(WEFT_EPEER, "no hello at first");

    if (st)
        return st;
    if (strcmp(p.name, peer->name) != 0 || strcmp(p.role, peer->role) != 0 ||
        p.incarnation != peer->incarnation)
        return wf_err(WEFT_EPEER, "another process answers: %s, not %s", p.name, peer->name);
    hand(conn);
    return WEFT_OK;
}

static bool is_same_peer(const struct wf_link *conn, const struct wf_link *l,
                         const struct wf_attach_head *h)
{
    return l->kind == conn->kind && h->incarnation == l->peer.incarnation &&
           (!conn->secure || (strcmp(conn->certified.name, l->certified.name) == 0 &&
                              strcmp(conn->certified.role, l->certified.role) == 0));
}

/* Only the two ends know the token. */
static struct wf_link *find_pair(const struct wf_link *conn, const struct wf_attach_head *h)
{
    struct wf_link *found = NULL;

    for (struct wf_link *l = conn->net->links; l; l = l->next)
        if (l->sides && !l->promised && l->state == WF_LINK_UP &&
            wf_token_equal(l->sides->head.token, h->token))
            found = l;
    return found && is_same_peer(conn, found, h) ? found : NULL;
}

weft_status wf_sides_attach(struct wf_link *conn, const struct wf_frame *f, const uint8_t *head)
{
    struct wf_attach_head h;
    struct wf_link *l;
    weft_status st = wf_attach_decode(head, f->n_head, &h);

    if (st)
        return st;
    l = conn->promised ? NULL : find_pair(conn, &h);
    if (!l)
        return wf_err(WEFT_EPEER, "a further connection of no link");
    if (h.index >= l->sides->head.n || l->sides->claimed >> h.index & 1)
        return wf_err(WEFT_EPEER, "further connection %d of %d exists already, or is not allowed",
                      h.index, l->sides->head.n);
    l->sides->claimed |= 1u << h.index;
    conn->belongs = l;
    conn->index = h.index;
    hand(conn);
    return WEFT_OK;
}

/* ---- giving them to carriers ----------------------------------------------------------------- */

/* What was said first is written: nothing of this thread's is left to do with it. */
static bool is_quiet(struct wf_link *conn)
{
    bool quiet;

    pthread_mutex_lock(&conn->out);
    quiet = !conn->first && !conn->done && !conn->finishing && !conn->broken;
    pthread_mutex_unlock(&conn->out);
    return quiet;
}

/* One more is there. The end that connects says so after the last one. */
static weft_status confirm(struct wf_link *l)
{
    struct wf_sides *s = l->sides;
    struct wf_frame f = {.type = WF_FRAME_SIDES, .n_head = WF_SIDES_HEAD};
    uint8_t head[WF_SIDES_HEAD];
    bool say;

    wf_sides_encode(&s->head, head);
    pthread_mutex_lock(&l->out);
    s->n_up++;
    say = l->promised && !s->given_up && s->n_up == s->head.n;
    pthread_mutex_unlock(&l->out);
    /* Said before anything is sent in stripes. */
    if (say && wf_sendq_control(l, &f, head))
        return WEFT_OK; /* they are not used */
    pthread_mutex_lock(&l->out);
    s->confirmed |= say;
    settle(s);
    pthread_mutex_unlock(&l->out);
    return WEFT_OK;
}

static weft_status give(struct wf_link *conn)
{
    struct wf_link *l = conn->belongs;
    const struct wf_sys *sys = conn->net->ctx->sys;
    struct epoll_event e = {.events = 0};
    struct wf_side *s;
    weft_status st = wf_carrier_start(conn->net, conn->index);

    if (st)
        return st;
    s = wf_alloc(conn->net->ctx, sizeof *s);
    if (!s)
        return wf_err_nomem(conn->net->ctx, sizeof *s, "a further connection");
    pthread_mutex_init(&s->busy, NULL);
    s->link = l;
    s->conn = conn;
    s->again = true; /* what has come with its first frame */
    conn->carried = s;
    conn->in.stop = false;
    conn->in.max_payload = l->sides->head.stripe;
    wf_unwatch(conn->net, &conn->watched);
    sys->epoll_ctl(sys->arg, conn->net->set, EPOLL_CTL_DEL, conn->fd, &e);
    l->sides->side[conn->index] = s;
    l->sides->n_kept++;
    wf_carrier_add(conn->net, conn->index, s);
    return confirm(l);
}

void wf_sides_hand_over(struct wf_net *net)
{
    for (struct wf_link **at = &net->links; net->n_handing > 0 && *at;) {
        struct wf_link *conn = *at;

        if (!conn->handing || conn->state == WF_LINK_DOWN || !is_quiet(conn)) {
            at = &conn->next;
            continue;
        }
        conn->handing = false;
        net->n_handing--;
        *at = conn->next;
        if (give(conn)) {
            conn->next = *at; /* it stays where it was */
            *at = conn;
            wf_link_down(conn, WEFT_ENOMEM, weft_error());
        }
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void wf_sides_missed(struct wf_link *conn, const char *why)
{
    struct wf_link *l = conn->belongs;
    struct wf_sides *s = l->sides;

    if (conn->promised || l->state != WF_LINK_UP || !s)
        return; /* the end that connects has not confirmed it, and never will */
    pthread_mutex_lock(&l->out);
    if (s->confirmed) {
        s->n_lost++;
        s->broken = true; /* what was sent over it is not known */
        s->lost_ns = wf_now(l->net->ctx);
        wf_snprintf(s->why, sizeof s->why, "%.100s", why);
    } else {
        s->given_up = true;
    }
    pthread_mutex_unlock(&l->out);
    wf_net_tick(l->net);
    wf_net_wake(l->net);
}

/* Whether nothing has come for a while. A thread that was kept from running has not waited: what
 * it has not read yet counts first. With the link's mutex. */
static bool grace_is_over(struct wf_sides *s, int64_t since, int64_t now)
{
    if (since > s->since_ns) {
        s->since_ns = since;
        s->waited_ns = 0;
    } else {
        s->waited_ns += wf_min_i64(now - s->checked_ns, GRACE_NS / 8);
    }
    s->checked_ns = now;
    return s->waited_ns >= GRACE_NS;
}

weft_status wf_sides_check(struct wf_link *l, int64_t now)
{
    struct wf_sides *s = l->sides;
    weft_status st = WEFT_OK;

    if (!s)
        return WEFT_OK;
    pthread_mutex_lock(&l->out);
    if (s->n_lost > 0 && l->elsewhere && !s->arrived &&
        (s->broken || s->n_lost == s->n_up ||
         grace_is_over(s, wf_max_i64(wf_max_i64(s->lost_ns, l->proved_ns), l->heard_ns), now)))
        st = wf_err(WEFT_EPEER, "the connection ended within a message: %s", s->why);
    else if (s->n_lost > 0 && !l->elsewhere && !l->paused && grace_is_over(s, s->lost_ns, now))
        st = wf_err(WEFT_EPEER, "one connection of the pair has ended: %s", s->why);
    pthread_mutex_unlock(&l->out);
    return st;
}

bool wf_sides_ending(struct wf_link *l)
{
    bool any = false;

    if (l->sides) {
        pthread_mutex_lock(&l->out);
        any = l->sides->n_lost > 0;
        pthread_mutex_unlock(&l->out);
    }
    return any;
}

void wf_sides_close(struct wf_link *l)
{
    struct wf_sides *s = l->sides;

    if (l->handing) {
        l->handing = false;
        l->net->n_handing--;
    }
    if (!s)
        return;
    for (int i = 0; i < WF_MAX_SIDES; i++) {
        struct wf_side *side = s->side[i];

        if (!side)
            continue;
        pthread_mutex_lock(&side->busy); /* it uses no memory of messages now, */
        side->dead = true;               /* nor ever again */
        pthread_mutex_unlock(&side->busy);
        side->gone = true;
        s->side[i] = NULL;
        wf_carrier_wake(l->net->carrier[i]);
    }
    pthread_mutex_lock(&l->out);
    s->out = NULL;
    pthread_mutex_unlock(&l->out);
    for (struct wf_link *conn = l->net->links; conn; conn = conn->next)
        if (conn->belongs == l)
            wf_link_down(conn, WEFT_EPEER, "its link is down");
}

bool wf_sides_kept(const struct wf_link *l)
{
    return l->sides && l->sides->n_kept > 0;
}

void wf_sides_free(struct wf_link *l)
{
    if (!l->sides)
        return;
    wf_gather_free(&l->sides->in);
    wf_free(l->net->ctx, l->sides);
    l->sides = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

weft_status wf_sides_expect(struct wf_link *l, const struct wf_frame *f, const struct wf_part *part,
                            int n_parts)
{
    struct wf_sides *s = l->sides;
    weft_status st;

    pthread_mutex_lock(&l->out);
    s->arrived = false;
    st = wf_gather_open(&s->in, part, n_parts, f->n_payload);
    pthread_mutex_unlock(&l->out);
    for (int i = 0; i < WF_MAX_SIDES && !st; i++)
        if (s->side[i] && s->side[i]->waits)
            wf_carrier_wake(l->net->carrier[i]);
    return st;
}

bool wf_sides_confirmed(struct wf_link *l)
{
    bool confirmed;

    if (!l->sides)
        return false;
    pthread_mutex_lock(&l->out);
    confirmed = l->sides->confirmed;
    pthread_mutex_unlock(&l->out);
    return confirmed;
}

bool wf_sides_carry(const struct wf_link *l, int64_t n_payload)
{
    const struct wf_sides *s = l->sides;

    return s && s->ready && n_payload >= l->net->opts.striped_min;
}

void wf_sides_begin(struct wf_link *l, struct wf_outgoing *o)
{
    struct wf_sides *s = l->sides;

    s->out = o;
    s->number++;
    s->next = 0;
    s->n_writing = 0;
    s->tell = true;
}

void wf_sides_wake(struct wf_link *l)
{
    struct wf_sides *s = l->sides;
    int64_t n = 0;

    if (!s)
        return;
    pthread_mutex_lock(&l->out);
    if (s->tell && s->out)
        n = (s->out->frame.n_payload - s->next + s->head.stripe - 1) / s->head.stripe;
    s->tell = false;
    pthread_mutex_unlock(&l->out);
    for (int i = 0; i < s->head.n && i < n; i++)
        wf_carrier_wake(l->net->carrier[i]);
}

int wf_link_connections(const struct wf_link *l)
{
    const struct wf_sides *s = l->sides;

    return s && s->ready ? 1 + s->head.n : 1;
}
