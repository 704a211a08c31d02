/* random_test.c - random schedules over every member of the family, against a plain model.
 *
 * Messages and requests of random sizes and parts in both directions, answers at once, later, never
 * or with an error, deadlines, cancels, receivers without memory, full queues, and links that are
 * closed and made again. WEFT_NET_SEED=N runs that seed alone, WEFT_NET_SEEDS=N so many.
 *
 * What must hold: messages of a link arrive in order, without a gap, with their bytes; `sent` and
 * `reply` are called exactly once; a reply is one that its request can have; the messages of the
 * end that closes all arrive. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "support/netpeer.h"

#define SECOND 1000000000ll
#define WAIT (30 * SECOND)
enum { STEPS = 500, MAX_SENT = STEPS + 1, MAX_PARTS = 6, HEAD = 24, SEEDS = 2 };

/* What the receiver of a message does. */
enum manner { MESSAGE, ECHO, REFUSE, IGNORE, LATER, MANNERS };

struct end;

/* Something that was sent: its bytes follow from `key`. */
struct sending {
    struct end *end;
    uint64_t key, id;
    enum manner manner;
    int64_t n_payload;
    uint8_t *memory;
    bool in_time, cancelled; /* it may be answered with WEFT_ETIME, with WEFT_ECANCEL */
    _Atomic int n_sent, n_replies, status;
};

/* A request that is answered later. */
struct waiting {
    uint64_t id, key;
    int64_t n_payload;
};

struct end {
    struct end *other;
    struct wf_net *net;
    struct wf_tls *tls;
    struct wf_link *_Atomic link;
    _Atomic int n_up, n_down, down_status;
    _Atomic bool later; /* there is no memory now */
    /* leaving: the main thread's */
    struct sending sending[MAX_SENT];
    int n_sending;
    int64_t next, first; /* number of the next message of this link; sending[] of its first one */
    /* arriving: the thread's that has the turn */
    _Atomic int64_t expected;
    uint8_t *placed;
    struct wf_part part[MAX_PARTS];
    uint64_t shuffle;
    pthread_mutex_t lock;
    struct waiting waiting[MAX_SENT];
    int n_waiting;
};

static struct end ends[2];
static const char *member;
static uint64_t seed, state;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static int64_t draw(int64_t below)
{
    state += 0x9e3779b97f4a7c15ull;
    return (int64_t)(mix(state) % (uint64_t)below);
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

/* ---- bytes that follow from a key ------------------------------------------------------------ */

static void make_bytes(uint64_t key, uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)((key + (uint64_t)i * 0x9e3779b97f4a7c15ull) >> 48);
}

static void check_bytes(uint64_t key, const struct wf_msg *m)
{
    int64_t at = 0;

    for (int i = 0; i < m->n_parts; i++)
        for (int64_t k = 0; k < m->part[i].n; k++, at++)
            CHECK(((const uint8_t *)m->part[i].p)[k] ==
                      (uint8_t)((key + (uint64_t)at * 0x9e3779b97f4a7c15ull) >> 48),
                  "byte %lld of %lld", (long long)at, (long long)m->n_payload);
    CHECK(at == m->n_payload, "%lld of %lld bytes", (long long)at, (long long)m->n_payload);
}

/* Random parts of n bytes; some are empty. */
static int cut(uint8_t *p, int64_t n, uint64_t how, struct wf_part part[MAX_PARTS])
{
    int n_parts = 1 + (int)(mix(how) % MAX_PARTS);
    int64_t at = 0;

    for (int i = 0; i < n_parts; i++) {
        int64_t k =
            i == n_parts - 1 ? n - at : (int64_t)(mix(how + (uint64_t)i) % (uint64_t)(n - at + 1));

        part[i] = (struct wf_part){p + at, k};
        at += k;
    }
    return n_parts;
}

/* ---- what a node is told --------------------------------------------------------------------- */

static void on_up(void *arg, struct wf_link *l)
{
    struct end *e = arg;

    e->expected = 0;
    e->link = l;
    e->n_up++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct end *e = arg;

    (void)l;
    CHECK(st == WEFT_OK, "%s", why); /* nothing but closing ends a link here */
    e->down_status = st;
    e->n_down++;
}

static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct end *e = arg;

    (void)l;
    *n_parts = WF_PLACE_LATER;
    if (e->later)
        return WEFT_OK;
    free(e->placed);
    e->placed = malloc((size_t)m->n_payload);
    *parts = e->part;
    *n_parts = cut(e->placed, m->n_payload, ++e->shuffle, e->part);
    return WEFT_OK;
}

static void free_answer(void *arg, weft_status st)
{
    (void)st;
    free(arg);
}

/* The payload of the request, with bytes of another key. */
static void echo(struct wf_link *l, const struct waiting *w)
{
    uint8_t *memory = malloc((size_t)w->n_payload + 1);
    struct wf_part part = {memory, w->n_payload};
    const struct wf_msg m = {.kind = 2, .head = &w->key, .n_head = 8, .part = &part, .n_parts = 1};

    make_bytes(~w->key, memory, w->n_payload);
    if (wf_link_reply(l, w->id, WEFT_OK, &m, free_answer, memory))
        free(memory); /* the queue is full, or the link closes: it is not answered */
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct end *e = arg;
    uint64_t head[HEAD / 8];
    struct waiting w = {.id = m->id, .n_payload = m->n_payload};

    CHECK(m->n_head == HEAD, "a head of %d bytes", m->n_head);
    memcpy(head, m->head, HEAD);
    CHECK(head[0] == (uint64_t)e->expected, "message %llu, not %lld", (unsigned long long)head[0],
          (long long)e->expected);
    e->expected++;
    w.key = head[1];
    check_bytes(w.key, m);
    CHECK((m->id != 0) == (head[2] != MESSAGE), "id %llu", (unsigned long long)m->id);
    if (head[2] == ECHO)
        echo(l, &w);
    if (head[2] == REFUSE)
        wf_link_reply(l, m->id, WEFT_EDATA, &(struct wf_msg){.head = "no", .n_head = 2}, NULL,
                      NULL);
    if (head[2] == LATER) {
        pthread_mutex_lock(&e->lock);
        e->waiting[e->n_waiting++] = w;
        pthread_mutex_unlock(&e->lock);
    }
}

static void on_sent(void *arg, weft_status st)
{
    struct sending *s = arg;

    CHECK(++s->n_sent == 1, "sent %d times", s->n_sent);
    CHECK(!st || st == WEFT_EPEER, "status %d", st);
    free(s->memory);
    s->memory = NULL;
}

static void on_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct sending *s = arg;

    CHECK(++s->n_replies == 1, "%d replies", s->n_replies);
    s->status = st;
    if (!st) {
        CHECK(s->manner == ECHO || s->manner == LATER, "manner %d is answered", s->manner);
        CHECK(m->n_payload == s->n_payload && memcmp(m->head, &s->key, 8) == 0, "another answer");
        check_bytes(~s->key, m);
    } else {
        CHECK(st == WEFT_EPEER || (st == WEFT_EDATA && s->manner == REFUSE) ||
                  (st == WEFT_ETIME && s->in_time) || (st == WEFT_ECANCEL && s->cancelled),
              "status %d", st);
    }
}

/* ---- what happens ---------------------------------------------------------------------------- */

static int64_t draw_size(void)
{
    static const int64_t below[] = {1, 2, 64, 1000, 5000, 30000, 150000};

    return draw(below[draw(WF_COUNT(below))]);
}

static void send_one(struct end *e, enum manner manner)
{
    static const int64_t timeouts[] = {0, 0, 1000, SECOND / 500, WAIT};
    struct sending *s = &e->sending[e->n_sending];
    uint64_t key = mix((uint64_t)draw(INT64_MAX)),
             head[HEAD / 8] = {(uint64_t)e->next, key, manner};
    struct wf_part part[MAX_PARTS];
    int64_t n = draw_size(), timeout = timeouts[draw(WF_COUNT(timeouts))];
    struct wf_msg m = {.kind = 1, .head = head, .n_head = HEAD, .part = part};
    weft_status st;

    *s = (struct sending){.end = e,
                          .key = key,
                          .manner = manner,
                          .n_payload = n,
                          .memory = malloc((size_t)n + 1),
                          .in_time = timeout > 0,
                          .status = 1};
    make_bytes(key, s->memory, n);
    m.n_parts = cut(s->memory, n, (uint64_t)draw(INT64_MAX), part);
    st = manner == MESSAGE ? wf_link_send(e->link, &m, on_sent, s)
                           : wf_link_call(e->link, &m, timeout, NULL, on_reply, s, &s->id);
    CHECK(!st || st == WEFT_ELIMIT, "%s", weft_error());
    if (st) {
        free(s->memory);
        return;
    }
    e->next++;
    e->n_sending++;
}

static void cancel_one(struct end *e)
{
    struct sending *s = e->n_sending ? &e->sending[draw(e->n_sending)] : NULL;

    if (!s || !s->id || s - e->sending < e->first)
        return;
    s->cancelled = true;
    wf_link_cancel(e->link, s->id);
}

static void answer_some(struct end *e, int n)
{
    for (; n > 0; n--) {
        struct waiting w = {.id = 0};

        pthread_mutex_lock(&e->lock);
        if (e->n_waiting > 0)
            w = e->waiting[--e->n_waiting];
        pthread_mutex_unlock(&e->lock);
        if (w.id)
            echo(e->link, &w);
    }
}

static void resume(struct end *e)
{
    if (e->later) {
        e->later = false;
        wf_link_resume(e->link);
    }
}

struct until {
    _Atomic int *value;
    int at_least;
};

static bool reached(void *arg)
{
    const struct until *u = arg;

    return *u->value >= u->at_least;
}

static void await(struct end *e, _Atomic int *value, int at_least, const char *what)
{
    struct until u = {value, at_least};

    CHECK(wf_net_wait(e->net, reached, &u, WAIT, what) == WEFT_OK, "%s", weft_error());
}

static void connect_ends(const char *address)
{
    struct wf_link *l;
    int up = ends[0].n_up;

    CHECK(wf_net_connect(ends[1].net, address, WAIT, &l) == WEFT_OK, "%s", weft_error());
    for (int i = 0; i < 2; i++) {
        await(&ends[i], &ends[i].n_up, up + 1, "a link");
        ends[i].next = 0;
        ends[i].first = ends[i].n_sending;
    }
}

/* Either end closes. Its messages have all arrived then, and everything has ended at both. */
static void close_link(struct end *closes)
{
    struct wf_link *l[2] = {ends[0].link, ends[1].link};
    int down = ends[0].n_down;

    resume(&ends[0]);
    resume(&ends[1]);
    wf_link_close(closes->link);
    for (int i = 0; i < 2; i++)
        await(&ends[i], &ends[i].n_down, down + 1, "the end of a link");
    CHECK(closes->other->expected == closes->next, "%lld of %lld messages",
          (long long)closes->other->expected, (long long)closes->next);
    CHECK(closes->expected <= closes->other->next, "%lld of %lld messages",
          (long long)closes->expected, (long long)closes->other->next);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < ends[i].n_sending; k++) {
            struct sending *s = &ends[i].sending[k];

            CHECK(s->manner == MESSAGE ? s->n_sent == 1 : s->n_replies == 1,
                  "message %d has not ended", k);
            free(s->memory);
            s->memory = NULL;
        }
        ends[i].n_waiting = 0;
        wf_link_drop(l[i]);
    }
}

static void step(const char *address)
{
    struct end *e = &ends[draw(2)];
    int64_t k = draw(100);

    if (k < 40)
        send_one(e, MESSAGE);
    else if (k < 70)
        send_one(e, (enum manner)(1 + draw(MANNERS - 1)));
    else if (k < 76)
        cancel_one(e);
    else if (k < 79)
        e->later = true;
    else if (k < 85)
        resume(e);
    else if (k < 92)
        answer_some(e, 1 + (int)draw(4));
    else if (k < 94) {
        close_link(e);
        connect_ends(address);
    } else {
        usleep((useconds_t)draw(1500));
    }
}

/* ---- a schedule ------------------------------------------------------------------------------ */

static void open_end(weft_ctx *ctx, struct end *e, const char *name)
{
    struct wf_net_opts opts = {.self = {.role = "test"},
                               .calls = {.arg = e,
                                         .up = on_up,
                                         .down = on_down,
                                         .place = on_place,
                                         .received = on_received},
                               .silence_ns = WAIT,
                               .stall_ns = WAIT,
                               .max_queued = 32,
                               .spin_us = seed % 3 == 0 ? 20 : 0};

    snprintf(opts.self.name, sizeof opts.self.name, "%s", name);
    opts = netpeer_over(member, opts);
    if (strncmp(member, "tls", 3) == 0)
        netpeer_certify(ctx, name, &e->tls);
    opts.tls = e->tls;
    pthread_mutex_init(&e->lock, NULL);
    e->other = e == ends ? &ends[1] : &ends[0];
    CHECK(wf_net_new(ctx, &opts, &e->net) == WEFT_OK, "%s", weft_error());
}

static void run_schedule(void)
{
    char address[128], bound[512];
    weft_ctx *ctx;

    memset(ends, 0, sizeof ends);
    state = mix(seed);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    open_end(ctx, &ends[0], "server/0");
    open_end(ctx, &ends[1], "worker/1");
    CHECK(wf_net_listen(ends[0].net, netpeer_address(member, address), bound, sizeof bound) == 0,
          "%s", weft_error());
    connect_ends(bound);
    for (int i = 0; i < STEPS; i++)
        step(bound);
    close_link(&ends[draw(2)]);
    for (int i = 0; i < 2; i++) {
        wf_net_free(ends[i].net);
        wf_tls_free(ends[i].tls);
        free(ends[i].placed);
        pthread_mutex_destroy(&ends[i].lock);
    }
    weft_ctx_free(ctx);
}

static void random_schedules_keep_the_promises(void **unused)
{
    const char *one = getenv("WEFT_NET_SEED"), *many = getenv("WEFT_NET_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t n = one ? 1 : many ? strtoull(many, NULL, 10) : SEEDS;

    (void)unused;
    for (seed = first; seed < first + n; seed++)
        for (int t = 0; t < NETPEER_MEMBERS; t++) {
            member = netpeer_members[t];
            run_schedule();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules_keep_the_promises)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
