/* storm_test.c - several threads do everything at once, over every member of the family: messages
 * and requests on the same links, payloads in memory and in regions, slots that are kept, answers
 * where the request lies, cancels, deadlines, receivers without memory, attending and polling, new
 * certificates, links that close, and nodes that end in the middle of all this and come back. Half
 * of the schedules have a storm, too: calls of the system and allocations fail now and then.
 * WEFT_NET_SEED=N runs that seed alone, WEFT_NET_SEEDS=N so many. The threads take turns as the
 * system wants, so that a seed does not give the same run again.
 *
 * What must hold, whatever happens: what one thread sends on a link arrives in order, without a
 * gap, with its bytes, at the peer and nowhere else; `sent` and `reply` are called exactly once,
 * with a status that they can have; a slot's bytes stay until it is released, and after the end of
 * its link; the messages of an end that closes arrive; nothing is left at the end. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/sys.h"
#include "net/link.h"
#include "support/netpeer.h"

#define SECOND 1000000000ll
enum { NODES = 3, LINKS = 4, THREADS = 3, MAX_SESSIONS = 512, MAX_LIVE = 16 };
enum {
    SLOTS = 6,
    SLOT = 8192,
    REGION = SLOTS * SLOT,
    BOARD = 32768,
    BOARD_KEY = 7,
    MAX_WAITING = 64
};
enum { OPS = 900, QUICK_OPS = 250, SEEDS = 2 };

/* What the receiver of a message does. */
enum manner { MESSAGE, GIVE_BACK, REFUSE, IGNORE, LATER, IN_PLACE, MANNERS };

struct session;

/* What every message says about itself, in its head. */
struct label {
    uint64_t uid; /* of the session that sends it */
    uint64_t key; /* its bytes follow from that */
    int64_t number, n;
    int32_t thread, manner;
};

struct sending {
    struct sending *next;
    struct session *from;
    struct label label;
    uint8_t *memory; /* of its payload, or NULL */
    int slot;        /* of the region that it is in, or -1 */
    bool asks, in_time;
    _Atomic bool cancelled;
    uint64_t id;
    _Atomic int n_sent, n_replies;
};

/* A request that is to be answered, or a slot that is to be released. */
struct waiting {
    struct label label;
    uint64_t id, slot;
    struct wf_part part[4];
    int n_parts;
};

/* One end of a link, from `up` to its end. */
struct session {
    struct node *node;
    struct wf_link *link;
    uint64_t uid, peer;                   /* 0: nothing has come yet */
    _Atomic bool closed_here, down, gone; /* its end was told; its link is freed */
    _Atomic int status;
    _Atomic int64_t n_accepted[THREADS], n_arrived[THREADS];
    _Atomic int n_due, n_done; /* calls of `sent` and `reply` */
    _Atomic bool later;        /* there is no memory now */
    uint8_t *placed;
    struct wf_part part[2];
    struct wf_region *own, *board, *theirs[4];
    int n_theirs;
    bool shared; /* both */
    _Atomic bool busy[SLOTS];
    pthread_mutex_t lock; /* of all below */
    struct sending *sendings;
    struct waiting waiting[MAX_WAITING], held[MAX_WAITING];
    int n_waiting, n_held;
};

struct node {
    struct wf_net *net;
    struct wf_tls *tls;
    char name[16];
};

static struct node nodes[NODES];
static struct session *sessions[MAX_SESSIONS];
static _Atomic int n_sessions;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t world; /* written by who takes links or nodes away */
static weft_ctx *ctx;
static struct wf_region *board; /* memory that all links share */
static const char *member;
static uint64_t seed;
static char address[512];
static int n_ops;
static _Atomic int n_running, n_connecting, n_ended;
static _Atomic int64_t n_blocks, n_bytes;
static int64_t tally[16];

/* ---- chance ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static int64_t draw(uint64_t *state, int64_t below)
{
    *state += 0x9e3779b97f4a7c15ull;
    return (int64_t)(mix(*state) % (uint64_t)below);
}

/* For callbacks, which any thread may run. */
static int64_t chance(int64_t below)
{
    static _Atomic uint64_t state = 1;

    return (int64_t)(mix((state += 0x9e3779b97f4a7c15ull) ^ seed << 32) % (uint64_t)below);
}

#define CHECK(condition, ...)                                                                 \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s, seed %llu, line %d: %s: ", member, (unsigned long long)seed, \
                    __LINE__, #condition);                                                    \
            fprintf(stderr, __VA_ARGS__);                                                     \
            fprintf(stderr, "\n");                                                            \
            abort();                                                                          \
        }                                                                                     \
    } while (0)

/* ---- faults ---------------------------------------------------------------------------------- */

static _Atomic bool storm; /* now */
static bool wild;          /* in this schedule */
static struct wf_sys sys;

static bool strikes(int64_t one_in)
{
    return storm && chance(one_in) == 0;
}

static int64_t s_sendmsg(void *arg, int fd, const struct msghdr *m, int flags)
{
    if (strikes(30))
        return strikes(60) ? -ECONNRESET : -EINTR;
    return wf_sys_posix.sendmsg(arg, fd, m, flags);
}

static int64_t s_recvmsg(void *arg, int fd, struct msghdr *m, int flags)
{
    if (strikes(30))
        return strikes(60) ? -ETIMEDOUT : -EINTR;
    return wf_sys_posix.recvmsg(arg, fd, m, flags);
}

static int s_epoll_ctl(void *arg, int set, int op, int fd, struct epoll_event *e)
{
    if (op != EPOLL_CTL_DEL && strikes(400))
        return -ENOMEM;
    return wf_sys_posix.epoll_ctl(arg, set, op, fd, e);
}

static int s_accept4(void *arg, int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    if (strikes(20))
        return strikes(2) ? -EMFILE : -ECONNABORTED;
    return wf_sys_posix.accept4(arg, fd, from, n, flags);
}

static int s_connect(void *arg, int fd, const struct sockaddr *to, socklen_t n)
{
    return strikes(20) ? -ENETUNREACH : wf_sys_posix.connect(arg, fd, to, n);
}

static int s_memfd_create(void *arg, const char *name, unsigned flags)
{
    return strikes(20) ? -EMFILE : wf_sys_posix.memfd_create(arg, name, flags);
}

static int s_mmap(void *arg, int64_t bytes, int protection, int flags, int fd, void **out)
{
    return strikes(20) ? -ENOMEM : wf_sys_posix.mmap(arg, bytes, protection, flags, fd, out);
}

static int s_fcntl(void *arg, int fd, int command, int value)
{
    return strikes(30) ? -EBUSY : wf_sys_posix.fcntl(arg, fd, command, value);
}

static void *s_alloc(void *arg, size_t bytes, size_t align)
{
    void *p = NULL;

    (void)arg;
    if (strikes(1000) || posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes))
        return NULL;
    n_blocks++;
    n_bytes += (int64_t)bytes;
    return p;
}

static void s_free(void *arg, void *p, size_t bytes)
{
    (void)arg;
    n_blocks -= p != NULL;
    n_bytes -= p ? (int64_t)bytes : 0;
    free(p);
}

static void make_sys(void)
{
    sys = wf_sys_posix;
    sys.sendmsg = s_sendmsg;
    sys.recvmsg = s_recvmsg;
    sys.epoll_ctl = s_epoll_ctl;
    sys.accept4 = s_accept4;
    sys.connect = s_connect;
    sys.memfd_create = s_memfd_create;
    sys.mmap = s_mmap;
    sys.fcntl = s_fcntl;
}

/* ---- bytes that follow from a key ------------------------------------------------------------ */

static uint8_t byte_at(uint64_t key, int64_t i)
{
    return (uint8_t)((key + (uint64_t)i * 0x9e3779b97f4a7c15ull) >> 48);
}

static void make_bytes(uint64_t key, uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = byte_at(key, i);
}

static void check_bytes(uint64_t key, const struct wf_part *part, int n_parts, int64_t n,
                        const char *what)
{
    int64_t at = 0;

    for (int i = 0; i < n_parts; i++)
        for (int64_t k = 0; k < part[i].n; k++, at++)
            CHECK(((const uint8_t *)part[i].p)[k] == byte_at(key, at), "%s: byte %lld of %lld",
                  what, (long long)at, (long long)n);
    CHECK(at == n, "%s: %lld of %lld bytes", what, (long long)at, (long long)n);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static struct session *find_session(const struct node *node, const struct wf_link *l)
{
    struct session *found = NULL;

    pthread_mutex_lock(&table);
    for (int i = 0; i < n_sessions; i++)
        if (sessions[i]->node == node && sessions[i]->link == l && !sessions[i]->gone)
            found = sessions[i];
    pthread_mutex_unlock(&table);
    return found;
}

/* It is down, or a thread that sent has found that it will be. */
static bool is_over(const struct session *s)
{
    bool over = true;

    if (!s->gone) {
        pthread_mutex_lock(&s->link->out);
        over = s->link->state == WF_LINK_DOWN || s->link->broken;
        pthread_mutex_unlock(&s->link->out);
    }
    return over;
}

/* A region of this end's, and the memory that all links have. */
static void share_regions(struct session *s)
{
    struct wf_link *l = s->link;
    weft_status st = wf_region_new(l, REGION, chance(2), &s->own);

    if (!st)
        st = wf_region_share(l, s->own);
    if (!st)
        st = wf_region_alias(l, board, &s->board);
    if (!st)
        st = wf_region_share(l, s->board);
    CHECK(!st || wild || is_over(s), "%s", weft_error());
    s->shared = !st;
}

static void on_up(void *arg, struct wf_link *l)
{
    struct session *s = calloc(1, sizeof *s);

    s->node = arg;
    s->link = l;
    s->uid = mix((uint64_t)chance(INT64_MAX)) | 1;
    pthread_mutex_init(&s->lock, NULL);
    share_regions(s);
    n_connecting -= s->node != &nodes[0];
    pthread_mutex_lock(&table);
    CHECK(n_sessions < MAX_SESSIONS, "%d sessions", n_sessions);
    sessions[n_sessions] = s;
    n_sessions++;
    pthread_mutex_unlock(&table);
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct session *s = find_session(arg, l);

    CHECK(*why && strstr(why, ": "), "'%s'", why);
    if (!s) { /* never up: another one is made */
        n_connecting--;
        wf_link_drop(l);
        return;
    }
    CHECK(!s->down, "a second end: %s", why);
    /* Closed, or the other end's node has gone; and this end's. */
    CHECK(st == WEFT_OK || st == WEFT_EPEER || st == WEFT_ECANCEL || wild, "%d: %s", st, why);
    s->status = st;
    s->down = true;
}

static void on_region(void *arg, struct wf_link *l, struct wf_region *r)
{
    struct session *s = find_session(arg, l);

    CHECK(s->n_theirs < 4, "%d regions", s->n_theirs);
    s->theirs[s->n_theirs++] = r;
}

static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct session *s = find_session(arg, l);
    int64_t k = m->n_payload ? chance(m->n_payload) : 0;

    *n_parts = WF_PLACE_LATER;
    if (s->later)
        return WEFT_OK;
    free(s->placed);
    s->placed = malloc((size_t)m->n_payload + 1);
    s->part[0] = (struct wf_part){s->placed, k};
    s->part[1] = (struct wf_part){s->placed + k, m->n_payload - k};
    *parts = s->part;
    *n_parts = 2;
    return WEFT_OK;
}

/* ---- what arrives ---------------------------------------------------------------------------- */

static void free_answer(void *arg, weft_status st)
{
    (void)st;
    free(arg);
}

static void echo(struct session *s, const struct waiting *w)
{
    uint8_t *memory = malloc((size_t)w->label.n + 1);
    struct wf_part part = {memory, w->label.n};
    const struct wf_msg m = {.kind = 2,
                             .head = &w->label,
                             .n_head = sizeof w->label,
                             .part = &part,
                             .n_parts = w->label.n > 0};

    make_bytes(~w->label.key, memory, w->label.n);
    if (wf_link_reply(s->link, w->id, WEFT_OK, &m, free_answer, memory))
        free(memory); /* the queue is full, or the link is down: it is not answered */
}

/* A slot is kept for a while: a thread releases it later, or its link ends before. What lies in the
 * board comes again while it is kept, and over sockets it is then written once more. */
static void keep(struct session *s, const struct waiting *w)
{
    bool kept = false;

    pthread_mutex_lock(&s->lock);
    if (w->label.key != BOARD_KEY && s->n_held < MAX_WAITING && chance(3)) {
        s->held[s->n_held++] = *w;
        kept = true;
    }
    pthread_mutex_unlock(&s->lock);
    if (!kept)
        wf_link_release(s->link, w->slot);
}

struct in_place {
    struct session *s;
    uint64_t slot;
};

static void release_after_answer(void *arg, weft_status st)
{
    struct in_place *p = arg;

    if (!st)
        wf_link_release(p->s->link, p->slot);
    free(p);
}

/* The answer is the request's own payload, where that lies: in the region of who has asked. */
static bool answer_in_place(struct session *s, const struct waiting *w)
{
    struct in_place *p = malloc(sizeof *p);
    const struct wf_msg m = {.kind = 3,
                             .head = &w->label,
                             .n_head = sizeof w->label,
                             .part = w->part,
                             .n_parts = w->n_parts};

    *p = (struct in_place){s, w->slot};
    if (wf_link_reply(s->link, w->id, WEFT_OK, &m, release_after_answer, p) == WEFT_OK)
        return true;
    free(p);
    return false;
}

static void answer(struct session *s, const struct waiting *w)
{
    switch (w->label.manner) {
    case GIVE_BACK: echo(s, w); break;
    case REFUSE:
        wf_link_reply(s->link, w->id, WEFT_EDATA, &(struct wf_msg){.head = "no", .n_head = 2}, NULL,
                      NULL);
        break;
    case LATER:
        pthread_mutex_lock(&s->lock);
        if (s->n_waiting < MAX_WAITING)
            s->waiting[s->n_waiting++] = *w;
        pthread_mutex_unlock(&s->lock);
        break;
    default: break;
    }
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct session *s = find_session(arg, l);
    struct waiting w = {.id = m->id, .slot = m->slot, .n_parts = m->n_parts};

    CHECK(m->n_head == sizeof w.label, "a head of %d bytes", m->n_head);
    memcpy(&w.label, m->head, sizeof w.label);
    CHECK(!s->peer || s->peer == w.label.uid, "a message of another link");
    s->peer = w.label.uid;
    CHECK(w.label.number == s->n_arrived[w.label.thread], "thread %d: message %lld, not %lld",
          w.label.thread, (long long)w.label.number, (long long)s->n_arrived[w.label.thread]);
    s->n_arrived[w.label.thread]++;
    CHECK((m->id != 0) == (w.label.manner != MESSAGE), "manner %d", w.label.manner);
    CHECK(m->n_parts <= WF_COUNT(w.part) && m->n_payload == w.label.n, "%d parts of %lld bytes",
          m->n_parts, (long long)m->n_payload);
    check_bytes(w.label.key, m->part, m->n_parts, w.label.n, "a message");
    if (m->n_parts)
        memcpy(w.part, m->part, (size_t)m->n_parts * sizeof *w.part);
    if (w.slot && w.label.manner == IN_PLACE && answer_in_place(s, &w))
        return;
    answer(s, &w);
    if (w.slot)
        keep(s, &w);
}

/* ---- what was sent --------------------------------------------------------------------------- */

static void end_sending(struct sending *o, weft_status st)
{
    struct session *s = o->from;

    free(o->memory);
    o->memory = NULL;
    if (o->slot >= 0 && !st) { /* it has been read; after the end of a link it may still be */
        memset((uint8_t *)s->own->p + o->slot * SLOT, 0xee, SLOT);
        s->busy[o->slot] = false;
    }
    s->n_done++;
}

static void on_sent(void *arg, weft_status st)
{
    struct sending *o = arg;

    CHECK(++o->n_sent == 1, "sent %d times", o->n_sent);
    CHECK(!st || wild || (is_over(o->from) && (st == WEFT_EPEER || st == WEFT_ECANCEL)),
          "status %d", st);
    end_sending(o, st);
}

static void on_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct sending *o = arg;

    CHECK(++o->n_replies == 1, "%d replies", o->n_replies);
    if (!st) {
        bool as_it_was = m->kind == 3;

        CHECK(o->label.manner == GIVE_BACK || o->label.manner == LATER ||
                  o->label.manner == IN_PLACE,
              "manner %d is answered", o->label.manner);
        CHECK(m->n_head == sizeof o->label && memcmp(m->head, &o->label, sizeof o->label) == 0,
              "another answer");
        check_bytes(as_it_was ? o->label.key : ~o->label.key, m->part, m->n_parts, o->label.n,
                    "an answer");
        if (m->slot)
            wf_link_release(o->from->link, m->slot);
    } else {
        CHECK((st == WEFT_EDATA && o->label.manner == REFUSE) || (st == WEFT_ETIME && o->in_time) ||
                  (st == WEFT_ECANCEL && (o->cancelled || is_over(o->from))) ||
                  (st == WEFT_EPEER && is_over(o->from)) || wild,
              "status %d", st);
    }
    o->from->n_done++;
}

/* ---- what threads do ------------------------------------------------------------------------- */

struct actor {
    int number;
    uint64_t state;
    int64_t tally[16];
};

static int64_t draw_size(uint64_t *state)
{
    static const int64_t below[] = {1, 2, 64, 1000, 5000, 20000, 70000};

    return draw(state, below[draw(state, WF_COUNT(below))]);
}

static int take_slot(struct session *s)
{
    for (int i = 0; i < SLOTS && s->shared; i++)
        if (!atomic_exchange(&s->busy[i], true))
            return i;
    return -1;
}

/* Where the payload is, and its parts. */
static int choose_memory(struct actor *a, struct session *s, struct sending *o,
                         struct wf_part part[4])
{
    int64_t k = draw(&a->state, 10), n = draw_size(&a->state), cut;
    uint8_t *p;

    o->slot = k < 4 ? take_slot(s) : -1;
    if (o->slot >= 0) {
        n = wf_min_i64(n, SLOT);
        p = (uint8_t *)s->own->p + o->slot * SLOT;
        make_bytes(o->label.key, p, n);
    } else if (k == 4 && s->shared) { /* of the memory that everybody has, and nobody changes */
        o->label.key = BOARD_KEY;
        n = wf_min_i64(n, BOARD);
        p = s->board->p;
    } else {
        p = o->memory = malloc((size_t)n + 1);
        make_bytes(o->label.key, p, n);
    }
    o->label.n = n;
    cut = n ? draw(&a->state, n) : 0;
    part[0] = (struct wf_part){p, cut};
    part[1] = (struct wf_part){p + cut, n - cut};
    return n ? 2 : 0;
}

static void send_one(struct actor *a, struct session *s)
{
    static const int64_t timeouts[] = {0, 0, 1000, SECOND / 500, 60 * SECOND};
    struct sending *o = calloc(1, sizeof *o);
    struct wf_part part[4];
    struct wf_msg m = {.kind = 1, .head = &o->label, .n_head = sizeof o->label, .part = part};
    int64_t timeout = timeouts[draw(&a->state, WF_COUNT(timeouts))];
    int64_t number = s->n_accepted[a->number];
    weft_status st;

    o->from = s;
    o->label = (struct label){.uid = s->uid,
                              .key = mix((uint64_t)draw(&a->state, INT64_MAX)),
                              .number = number,
                              .thread = a->number};
    o->label.manner = draw(&a->state, 5) < 3 ? MESSAGE : 1 + (int)draw(&a->state, MANNERS - 1);
    o->asks = o->label.manner != MESSAGE;
    o->in_time = timeout > 0;
    m.n_parts = choose_memory(a, s, o, part);
    s->n_due += 1 + o->asks;
    pthread_mutex_lock(&s->lock); /* who cancels needs its id */
    st = o->asks ? wf_link_call(s->link, &m, timeout, on_sent, on_reply, o, &o->id)
                 : wf_link_send(s->link, &m, on_sent, o);
    if (!st) {
        o->next = s->sendings;
        s->sendings = o;
    }
    pthread_mutex_unlock(&s->lock);
    a->tally[st ? 0 : 1 + o->label.manner]++;
    if (!st) {
        s->n_accepted[a->number]++;
        return;
    }
    CHECK(st == WEFT_ELIMIT || s->closed_here || is_over(s) || wild, "%d: %s", st, weft_error());
    CHECK(o->n_sent + o->n_replies == 0, "refused, and told so");
    s->n_due -= 1 + o->asks;
    if (o->slot >= 0)
        s->busy[o->slot] = false;
    free(o->memory);
    free(o);
}

static void cancel_one(struct actor *a, struct session *s)
{
    uint64_t id = 0;

    pthread_mutex_lock(&s->lock);
    for (struct sending *o = s->sendings; o; o = o->next)
        if (o->asks && !o->n_replies && draw(&a->state, 4) == 0) {
            o->cancelled = true;
            id = o->id;
            break;
        }
    pthread_mutex_unlock(&s->lock);
    if (id)
        wf_link_cancel(s->link, id);
}

static bool pop(struct session *s, struct waiting *from, int *n, struct waiting *out)
{
    bool any;

    pthread_mutex_lock(&s->lock);
    any = *n > 0;
    if (any)
        *out = from[--*n];
    pthread_mutex_unlock(&s->lock);
    return any;
}

static void answer_later(struct session *s)
{
    struct waiting w;

    while (pop(s, s->waiting, &s->n_waiting, &w))
        echo(s, &w);
}

static void release_held(struct session *s, int most)
{
    struct waiting w;

    for (int i = 0; i < most && pop(s, s->held, &s->n_held, &w); i++) {
        check_bytes(w.label.key, w.part, w.n_parts, w.label.n, "a slot that was kept");
        wf_link_release(s->link, w.slot);
    }
}

static void resume(struct session *s)
{
    if (atomic_exchange(&s->later, false))
        wf_link_resume(s->link);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Sees to what arrives, in one way or another. */
static void attend(struct actor *a, struct wf_net *net)
{
    struct wf_queues q;

    switch (draw(&a->state, 4)) {
    case 0:
        wf_net_attend(net);
        for (int i = 0; i < 50; i++)
            wf_net_poll(net);
        wf_net_leave(net);
        break;
    case 1:
        wf_net_attend(net);
        wf_net_wait(net, never, NULL, SECOND / 2000, "nothing");
        wf_net_leave(net);
        break;
    case 2: wf_net_wait(net, never, NULL, SECOND / 1000, "nothing"); break;
    default:
        wf_net_queues(net, &q);
        CHECK(q.send_messages >= 0 && q.send_bytes >= 0 && q.receive_bytes >= 0, "queues");
    }
}

static void renew(struct node *n)
{
    const struct wf_pem *by = netpeer_authority();
    struct wf_pem pem;

    if (!n->tls || wf_cert_issue(ctx, by, "test", n->name, 1, &pem))
        return;
    wf_tls_renew(n->tls, &(struct wf_credentials){by->certificate, pem.certificate, pem.key});
    wf_pem_free(ctx, &pem);
}

static struct session *choose_session(struct actor *a)
{
    struct session *live[MAX_LIVE];
    int n = 0;

    pthread_mutex_lock(&table);
    for (int i = 0; i < n_sessions && n < MAX_LIVE; i++)
        if (!sessions[i]->gone)
            live[n++] = sessions[i];
    pthread_mutex_unlock(&table);
    return n ? live[draw(&a->state, n)] : NULL;
}

static void act(struct actor *a)
{
    struct session *s = choose_session(a);
    int64_t k = draw(&a->state, 1000);

    if (!s)
        usleep(500);
    else if (k < 550)
        send_one(a, s);
    else if (k < 600)
        cancel_one(a, s);
    else if (k < 630)
        s->later = true;
    else if (k < 730)
        resume(s);
    else if (k < 800)
        answer_later(s);
    else if (k < 900)
        release_held(s, 1 + (int)draw(&a->state, 4));
    else if (k < 960)
        attend(a, s->node->net);
    else if (k < 965)
        renew(s->node);
    else if (k < 970) {
        s->closed_here = true;
        wf_link_close(s->link);
        a->tally[12]++;
    } else
        usleep((useconds_t)draw(&a->state, 1000));
}

static void *actor_main(void *arg)
{
    struct actor *a = arg;

    for (int i = 0; i < n_ops; i++) {
        pthread_rwlock_rdlock(&world);
        act(a);
        pthread_rwlock_unlock(&world);
    }
    n_running--;
    return NULL;
}

/* ---- links that end, and nodes --------------------------------------------------------------- */

static void drop_region(struct wf_region **r)
{
    wf_region_drop(*r);
    *r = NULL;
}

/* Everything has been told; what the peer had handed over is as it was. */
static void check_ended(struct session *s)
{
    for (int i = 0; i < 30000 && s->n_done < s->n_due; i++)
        usleep(1000);
    CHECK(s->n_done == s->n_due, "%d of %d calls", s->n_done, s->n_due);
    for (int i = 0; i < s->n_held; i++)
        check_bytes(s->held[i].label.key, s->held[i].part, s->held[i].n_parts, s->held[i].label.n,
                    "a slot of a link that is down");
    for (struct sending *o = s->sendings, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    s->sendings = NULL;
    s->n_held = s->n_waiting = 0;
    drop_region(&s->own);
    drop_region(&s->board);
    for (int i = 0; i < s->n_theirs; i++)
        drop_region(&s->theirs[i]);
    free(s->placed);
    s->placed = NULL;
}

/* freed: with its node. The world is this thread's. */
static void bury(struct session *s, bool freed)
{
    if (s->gone || !s->down)
        return;
    check_ended(s);
    if (!freed)
        wf_link_drop(s->link);
    s->gone = true;
}

static void open_node(int i)
{
    struct node *n = &nodes[i];
    struct wf_net_opts opts = {.self = {.role = "test"},
                               .calls = {.arg = n,
                                         .up = on_up,
                                         .down = on_down,
                                         .place = on_place,
                                         .received = on_received,
                                         .region = on_region},
                               .silence_ns = 60 * SECOND,
                               .stall_ns = 60 * SECOND,
                               .max_queued = 24,
                               .key_records = 40,
                               .spin_us = (int)chance(2) * 20};
    char where[128];

    snprintf(n->name, sizeof n->name, "node/%d", i);
    snprintf(opts.self.name, sizeof opts.self.name, "%s", n->name);
    opts = netpeer_over(member, opts);
    if (strncmp(member, "tls", 3) == 0)
        netpeer_certify(ctx, n->name, &n->tls);
    opts.tls = n->tls;
    CHECK(wf_net_new(ctx, &opts, &n->net) == WEFT_OK, "%s", weft_error());
    if (i == 0)
        CHECK(wf_net_listen(n->net, netpeer_address(member, where), address, sizeof address) == 0,
              "%s", weft_error());
}

static void close_node(int i)
{
    struct node *n = &nodes[i];

    wf_net_free(n->net);
    for (int k = 0; k < n_sessions; k++)
        if (sessions[k]->node == n && !sessions[k]->gone) {
            CHECK(sessions[k]->down, "a link of a node that is gone is up");
            bury(sessions[k], true);
        }
    wf_tls_free(n->tls);
    n->net = NULL;
    n->tls = NULL;
}

/* Links that are not down, or are being made, by the end that connects. */
static int count_links(void)
{
    int n = n_connecting;

    pthread_mutex_lock(&table);
    for (int i = 0; i < n_sessions; i++)
        n += !sessions[i]->down && sessions[i]->node != &nodes[0];
    pthread_mutex_unlock(&table);
    return n;
}

/* Buries what is down, and connects again; now and then a node ends, whatever it is doing. */
static void manage(uint64_t *state)
{
    bool calm;

    pthread_rwlock_wrlock(&world);
    for (int i = 0; i < n_sessions; i++)
        bury(sessions[i], false);
    calm = atomic_exchange(&storm, false);
    if (draw(state, 150) == 0) {
        int i = (int)draw(state, NODES);

        close_node(i);
        open_node(i);
        n_ended++;
        tally[13]++;
    }
    storm = calm;
    for (int n = count_links(); n < LINKS && n_sessions < MAX_SESSIONS - 20; n++) {
        struct wf_link *l;

        n_connecting++;
        if (wf_net_connect(nodes[1 + n % (NODES - 1)].net, address, 60 * SECOND, &l)) {
            CHECK(wild, "%s", weft_error());
            n_connecting--;
        }
        tally[14]++;
    }
    pthread_rwlock_unlock(&world);
}

/* ---- a schedule ------------------------------------------------------------------------------ */

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Of an end that closed, and nothing else ended its link: all its messages have arrived. */
static void check_closed(void)
{
    for (int i = 0; i < n_sessions; i++) {
        const struct session *s = sessions[i], *peer = NULL;
        int64_t n = 0;

        for (int k = 0; k < n_sessions; k++)
            peer = sessions[k]->peer == s->uid ? sessions[k] : peer;
        for (int k = 0; k < THREADS; k++)
            n += s->n_accepted[k];
        if (!s->closed_here || s->status != WEFT_OK || (peer && peer->closed_here) || n == 0)
            continue;
        CHECK(peer || n_ended || wild, "nothing of %lld messages has arrived", (long long)n);
        for (int k = 0; k < THREADS && peer && peer->status == WEFT_OK; k++)
            CHECK(peer->n_arrived[k] == s->n_accepted[k], "thread %d: %lld of %lld messages", k,
                  (long long)peer->n_arrived[k], (long long)s->n_accepted[k]);
    }
}

static void forget_sessions(void)
{
    for (int i = 0; i < n_sessions; i++) {
        pthread_mutex_destroy(&sessions[i]->lock);
        free(sessions[i]);
    }
    n_sessions = 0;
}

static void run_schedule(void)
{
    struct actor actor[THREADS] = {{0}};
    pthread_t thread[THREADS];
    const weft_allocator allocator = {s_alloc, s_free, NULL};
    uint64_t state = mix(seed);
    int n_fds;

    CHECK(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator), &ctx) == 0,
          "%s", weft_error());
    ctx->sys = &sys;
    open_node(1); /* what libuv and OpenSSL open for the process stays open */
    close_node(1);
    n_fds = count_fds();
    CHECK(wf_region_memory(ctx, BOARD, true, &board) == 0, "%s", weft_error());
    make_bytes(BOARD_KEY, board->p, BOARD);
    for (int i = 0; i < NODES; i++)
        open_node(i);
    n_ended = 0;
    storm = wild = seed % 2 == 0;
    n_running = THREADS;
    for (int i = 0; i < THREADS; i++) {
        actor[i] = (struct actor){.number = i, .state = mix(seed * 31 + (uint64_t)i)};
        CHECK(pthread_create(&thread[i], NULL, actor_main, &actor[i]) == 0, "no thread");
    }
    while (n_running > 0) {
        manage(&state);
        usleep(1000);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        for (int k = 0; k < WF_COUNT(tally); k++)
            tally[k] += actor[i].tally[k];
    }
    for (int i = 0; i < NODES; i++)
        close_node((i + (int)seed) % NODES);
    check_closed();
    storm = false;
    forget_sessions();
    drop_region(&board);
    weft_ctx_free(ctx);
    CHECK(n_blocks == 0, "%lld blocks, %lld bytes are left", (long long)n_blocks,
          (long long)n_bytes);
    CHECK(count_fds() == n_fds, "%d descriptors, not %d", count_fds(), n_fds);
}

static void nothing_is_lost_mixed_up_or_left(void **unused)
{
    const char *one = getenv("WEFT_NET_SEED"), *many = getenv("WEFT_NET_SEEDS");
    const char *only = getenv("WEFT_NET_MEMBER");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t n = one ? 1 : many ? strtoull(many, NULL, 10) : SEEDS;
    pthread_rwlockattr_t attr;

    (void)unused;
    make_sys();
    netpeer_authority();
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&world, &attr);
    pthread_rwlockattr_destroy(&attr);
    n_ops = getenv("WEFT_TEST_QUICK") ? QUICK_OPS : OPS;
    for (seed = first; seed < first + n; seed++)
        for (int t = 0; t < NETPEER_MEMBERS; t++) {
            member = netpeer_members[t];
            if (!only || strcmp(only, member) == 0)
                run_schedule();
        }
    pthread_rwlock_destroy(&world);
    print_message("refused %lld, messages %lld, requests %lld %lld %lld %lld %lld, closed %lld, "
                  "nodes ended %lld, links %lld\n",
                  (long long)tally[0], (long long)tally[1], (long long)tally[2],
                  (long long)tally[3], (long long)tally[4], (long long)tally[5],
                  (long long)tally[6], (long long)tally[12], (long long)tally[13],
                  (long long)tally[14]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_mixed_up_or_left)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
