/* conform_test.c - what a peer may do to a node, over every member of the family: it dies at every
 * byte, falls silent without closing, takes nothing, reads slowly, asks and takes no answer. What
 * needs two nodes that behave is in link_test.c; both run over every member. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "net/link.h"
#include "support/netpeer.h"
#include "support/rawpeer.h"

#define SECOND 1000000000ll
#define MS 1000000ll

static uint8_t bytes[1 << 16];

/* ---- a node, and peers of it ----------------------------------------------------------------- */

/* Frames over inproc: from the cut-th on (counted over both directions of the link) they do not
 * pass, or the link ends there. */
struct network {
    _Atomic int n_passed, limit;
    _Atomic bool holds;
};

struct scene {
    weft_ctx *ctx;
    struct netpeer node;
    const char *member;
    char address[512];
    struct network network;
};

static int64_t transit(void *arg, const struct wf_transit *t)
{
    struct network *n = arg;

    if (n->n_passed >= n->limit)
        return n->holds ? t->now_ns + SECOND : WF_TRANSIT_CUT;
    n->n_passed++;
    return t->now_ns;
}

static bool is_inproc(const struct scene *s)
{
    return strcmp(s->member, "inproc") == 0;
}

static void open_scene(struct scene *s, const char *member, struct wf_net_opts opts)
{
    char address[128];

    memset(s, 0, sizeof *s);
    s->member = member;
    s->network.limit = 1 << 30;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &s->ctx))
        abort();
    if (is_inproc(s))
        assert_int_equal(wf_inproc_transit(s->ctx, transit, &s->network), 0);
    netpeer_open_over(&s->node, member, s->ctx, "node", opts);
    s->node.echoes = s->node.fresh = true;
    if (wf_net_listen(s->node.net, netpeer_address(member, address), s->address, sizeof s->address))
        fail_msg("%s: %s", member, weft_error());
}

/* A peer that is a node, too: its link is up. */
static struct wf_link *join(struct scene *s, struct netpeer *p, struct wf_net_opts opts)
{
    int up = s->node.n_up;
    struct wf_link *l;

    netpeer_open_over(p, s->member, s->ctx, "peer", opts);
    p->fresh = true;
    if (wf_net_connect(p->net, s->address, 20 * SECOND, &l))
        fail_msg("%s: %s", s->member, weft_error());
    NETPEER_AWAIT(p, n_up, 1);
    NETPEER_AWAIT(&s->node, n_up, up + 1);
    for (int i = 0; i < 20000 && wf_link_connections(l) < wf_net_connections(p->net) &&
                    strncmp(s->member, "t", 1) == 0;
         i++)
        usleep(1000);
    return l;
}

/* Whatever has happened before, a good peer is served. */
static void check_served(struct scene *s)
{
    static struct netpeer p;
    struct wf_link *l = join(s, &p, (struct wf_net_opts){.spin_us = 0});
    struct wf_part part = {bytes, sizeof bytes};

    assert_int_equal(wf_link_call(l, &(struct wf_msg){.kind = 9, .part = &part, .n_parts = 1},
                                  20 * SECOND, NULL, netpeer_replied, &p, NULL),
                     0);
    NETPEER_AWAIT(&p, n_replies, 1);
    assert_int_equal(p.reply_status, 0);
    assert_memory_equal(p.reply_part.p, bytes, sizeof bytes);
    netpeer_close(&p);
}

static void close_scene(struct scene *s)
{
    netpeer_close(&s->node);
    weft_ctx_free(s->ctx);
}

/* ---- it dies --------------------------------------------------------------------------------- */

/* A hello, a message of 100 bytes with its checksum, an empty one, and one of a byte. */
static int64_t good_stream(uint8_t *out, int64_t *n_hello, int64_t ends[3])
{
    static const int64_t sizes[] = {100, 0, 1};
    int64_t n = *n_hello = rawpeer_hello(out, "raw", 1);

    for (int i = 0; i < 3; i++) {
        struct wf_frame f = {.type = WF_FRAME_MESSAGE,
                             .flags = sizes[i] ? WF_FRAME_SUMMED : 0,
                             .kind = (uint32_t)i,
                             .n_head = 5,
                             .n_payload = sizes[i]};

        ends[i] = n += rawpeer_frame(out + n, &f, "headX", bytes);
    }
    return n;
}

static void die_at_every_byte(struct scene *s)
{
    uint8_t stream[1024];
    int64_t n_hello, ends[3], n = good_stream(stream, &n_hello, ends);

    for (int64_t cut = 0; cut <= n; cut++) {
        int up = s->node.n_up, down = s->node.n_down, received = s->node.n_received, whole = 0;
        struct rawpeer r;

        rawpeer_open(&r, s->ctx, s->address, "raw");
        if (!rawpeer_send(&r, stream, cut))
            abort();
        if (cut >= n_hello)
            NETPEER_AWAIT(&s->node, n_up, up + 1);
        rawpeer_close(&r);
        if (cut < n_hello)
            continue;
        NETPEER_AWAIT(&s->node, n_down, down + 1);
        for (int i = 0; i < 3; i++)
            whole += cut >= ends[i];
        if (s->node.down_status != WEFT_EPEER || !strstr(s->node.why, "raw (") ||
            s->node.n_received - received != whole)
            fail_msg("%s, byte %lld: %d messages; %s", s->member, (long long)cut,
                     s->node.n_received - received, s->node.why);
    }
}

/* Over inproc nothing is on its way: a frame has arrived, or it has not. */
static void die_at_every_frame(struct scene *s)
{
    for (int cut = 2; cut < 12; cut++) { /* after both hellos */
        static struct netpeer p;
        int down = s->node.n_down, received = s->node.n_received;
        struct wf_link *l;

        s->network.n_passed = 0;
        s->network.limit = 2;
        l = join(s, &p, (struct wf_net_opts){.silence_ns = -1});
        s->network.holds = true;
        s->network.limit = cut;
        for (int i = 0; i < 8; i++)
            assert_int_equal(wf_link_send(l, &(struct wf_msg){.kind = 1}, netpeer_sent, &p), 0);
        NETPEER_AWAIT(&s->node, n_received, received + (int)wf_min_i64(cut - 2, 8));
        s->network.holds = false;
        if (cut == 11) /* all of them have passed */
            wf_link_send(l, &(struct wf_msg){.kind = 1}, NULL, NULL);
        if (cut >= 10)
            wf_link_send(l, &(struct wf_msg){.kind = 1}, NULL, NULL);
        NETPEER_AWAIT(&s->node, n_down, down + 1);
        NETPEER_AWAIT(&p, n_down, 1);
        assert_int_equal(s->node.down_status, WEFT_EPEER);
        assert_int_equal(s->node.n_received - received, cut - 2);
        netpeer_close(&p);
    }
    s->network.limit = 1 << 30;
}

static void a_peer_may_die_at_every_byte(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct scene s;

        open_scene(&s, netpeer_members[t], (struct wf_net_opts){.silence_ns = 20 * SECOND});
        if (is_inproc(&s))
            die_at_every_frame(&s);
        else
            die_at_every_byte(&s);
        check_served(&s);
        close_scene(&s);
    }
}

/* Requests, a piece of what would have followed, and the end, all of which the node reads at once:
 * it answers to nobody. */
static void ask_and_die(struct scene *s)
{
    enum { ASKED = 20 };
    static const char record[] = "\x17\x03\x03\x40";
    uint8_t stream[ASKED * WF_FRAME_HEADER], hello[256];
    int64_t n = 0, n_hello = rawpeer_hello(hello, "raw", 1);
    int up = s->node.n_up, down = s->node.n_down, received = s->node.n_received;
    struct rawpeer r;

    for (int i = 0; i < ASKED; i++)
        n += rawpeer_frame(stream + n, &(struct wf_frame){.type = WF_FRAME_REQUEST, .id = 1}, NULL,
                           NULL);
    rawpeer_open(&r, s->ctx, s->address, "raw");
    rawpeer_send(&r, hello, n_hello);
    NETPEER_AWAIT(&s->node, n_up, up + 1);
    while (!r.memory && recv(r.fd, hello, sizeof hello, MSG_DONTWAIT) > 0)
        ;                  /* so that its end is in order for the system */
    if (*s->member == 't') /* all of it in one segment, with the end */
        setsockopt(r.fd, IPPROTO_TCP, TCP_CORK, &(int){1}, sizeof(int));
    wf_net_enter(s->node.net);
    rawpeer_send(&r, stream, n);
    if (r.ssl)
        send(r.fd, record, sizeof record, MSG_NOSIGNAL);
    else
        rawpeer_send(&r, stream, 10);
    rawpeer_close(&r);
    wf_net_exit(s->node.net);
    for (int i = 0; i < 20000 && s->node.n_down == down; i++) /* its thread may hang */
        usleep(1000);
    if (s->node.n_down != down + 1) {
        fprintf(stderr, "%s: the link of a peer that is dead does not end\n", s->member);
        abort();
    }
    if (s->node.down_status != WEFT_EPEER || s->node.n_received - received > ASKED)
        fail_msg("%s: %d messages; %s", s->member, s->node.n_received - received, s->node.why);
}

static void peers_may_die_before_they_are_answered(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct scene s;

        if (strcmp(netpeer_members[t], "inproc") == 0)
            continue; /* it has no bytes */
        open_scene(&s, netpeer_members[t], (struct wf_net_opts){.silence_ns = 20 * SECOND});
        for (int i = 0; i < 10; i++)
            ask_and_die(&s);
        check_served(&s);
        close_scene(&s);
    }
}

/* ---- it falls silent ------------------------------------------------------------------------- */

static void expect_silence(struct scene *s, int down, int64_t start, const char *where)
{
    NETPEER_AWAIT(&s->node, n_down, down + 1);
    if (s->node.down_status != WEFT_ETIME || !strstr(s->node.why, "nothing was heard for") ||
        wf_now(s->ctx) - start > 10 * SECOND)
        fail_msg("%s, %s: %s", s->member, where, s->node.why);
}

static void silent_raw(struct scene *s)
{
    uint8_t stream[1024];
    int64_t n_hello, ends[3], n = good_stream(stream, &n_hello, ends);
    const int64_t cuts[] = {n_hello, n_hello + 1, n_hello + 30, n_hello + 50, n_hello + 90, n};

    struct rawpeer r[WF_COUNT(cuts)], nobody;
    int64_t start = wf_now(s->ctx);

    rawpeer_open(&nobody, s->ctx, s->address, "raw"); /* does not even say who it is */
    for (int i = 0; i < WF_COUNT(cuts); i++) {
        rawpeer_open(&r[i], s->ctx, s->address, "raw");
        if (!rawpeer_send(&r[i], stream, cuts[i]))
            abort();
    }
    for (int i = 0; i < WF_COUNT(cuts); i++)
        expect_silence(s, i, start, "after some bytes");
    rawpeer_await_end(&nobody);
    rawpeer_close(&nobody);
    assert_true(wf_now(s->ctx) - start < 10 * SECOND);
    assert_int_equal(s->node.n_up, s->node.n_down);
    for (int i = 0; i < WF_COUNT(cuts); i++)
        rawpeer_close(&r[i]);
}

static void silent_inproc(struct scene *s)
{
    static struct netpeer p;
    int64_t start;

    join(s, &p, (struct wf_net_opts){.silence_ns = -1});
    start = wf_now(s->ctx);
    s->network.holds = true;
    s->network.limit = 0;
    expect_silence(s, 0, start, "held");
    s->network.limit = 1 << 30;
    netpeer_close(&p);
}

static void half_open_peers_are_noticed(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct scene s;

        open_scene(&s, netpeer_members[t],
                   (struct wf_net_opts){.silence_ns = 1000 * MS, .stall_ns = 1000 * MS});
        if (is_inproc(&s)) {
            silent_inproc(&s);
        } else {
            silent_raw(&s);
        }
        close_scene(&s);
    }
}

/* ---- it takes nothing, or little ------------------------------------------------------------- */

/* Places nothing until it is told to. */
struct reader {
    struct netpeer *p;
    _Atomic bool later;
    _Atomic int n_later, n_received, n_wrong;
    uint8_t memory[sizeof bytes];
    struct wf_part part;
    struct wf_link *link;
    _Atomic int n_up, n_down;
};

static void reader_up(void *arg, struct wf_link *l)
{
    struct reader *r = arg;

    r->link = l;
    r->n_up++;
}

static void reader_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct reader *r = arg;

    (void)l;
    (void)st;
    (void)why;
    r->n_down++;
}

static weft_status reader_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                                const struct wf_part **parts, int *n_parts)
{
    struct reader *r = arg;

    (void)l;
    if (r->later) {
        r->n_later++;
        *n_parts = WF_PLACE_LATER;
        return WEFT_OK;
    }
    r->later = true; /* the next one waits again */
    r->part = (struct wf_part){r->memory, m->n_payload};
    *parts = &r->part;
    *n_parts = 1;
    return WEFT_OK;
}

static void reader_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct reader *r = arg;

    (void)l;
    r->n_wrong += (int)m->kind != r->n_received || m->n_payload != sizeof bytes ||
                  memcmp(r->memory, bytes, sizeof bytes) != 0;
    r->n_received++;
}

static struct wf_net *open_reader(struct scene *s, struct reader *r, struct wf_tls **tls,
                                  const char *member, char *bound, size_t size)
{
    struct wf_net_opts opts = {
        .self = {.name = "reader", .role = "test"},
        .calls = {r, NULL, reader_up, reader_down, reader_place, reader_received},
        .silence_ns = -1,
        .stall_ns = -1,
        .connections = strchr(member, '-') ? 3 : 1,
        .striped_min = 4096,
        .stripe_bytes = 4096};
    struct wf_net *net;
    char address[128];

    *tls = NULL;
    if (strncmp(member, "tls", 3) == 0)
        netpeer_certify(s->ctx, "reader", tls);
    opts.tls = *tls;
    assert_int_equal(wf_net_new(s->ctx, &opts, &net), 0);
    assert_int_equal(wf_net_listen(net, netpeer_address(member, address), bound, size), 0);
    return net;
}

/* The node of a scene sends to a reader. */
struct reading {
    struct scene s;
    struct reader r;
    struct wf_tls *tls;
    struct wf_net *net;
    struct wf_link *link;
};

static void open_reading(struct reading *g, const char *member, struct wf_net_opts opts)
{
    char bound[512];

    memset(&g->r, 0, sizeof g->r);
    open_scene(&g->s, member, opts);
    g->r.later = true;
    g->net = open_reader(&g->s, &g->r, &g->tls, member, bound, sizeof bound);
    assert_int_equal(wf_net_connect(g->s.node.net, bound, 20 * SECOND, &g->link), 0);
    NETPEER_AWAIT(&g->s.node, n_up, 1);
    for (int i = 0; i < 20000 && (g->r.n_up == 0 ||
                                  wf_link_connections(g->link) < (strchr(member, '-') ? 3 : 1));
         i++)
        usleep(1000);
}

static void close_reading(struct reading *g)
{
    wf_net_free(g->net);
    wf_tls_free(g->tls);
    close_scene(&g->s);
}

static weft_status send_bytes(struct reading *g, int k)
{
    struct wf_part part = {bytes, sizeof bytes};

    return wf_link_send(g->link, &(struct wf_msg){.kind = (uint32_t)k, .part = &part, .n_parts = 1},
                        netpeer_sent, &g->s.node);
}

/* Each message waits for its memory; all of them arrive, in order, and the sender's queue is
 * bounded all the time. */
static void slow_readers_get_everything(void **state)
{
    enum { MESSAGES = 150 };

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct reading g;
        int64_t before, most = 0;
        int sent = 0;

        open_reading(&g, netpeer_members[t],
                     (struct wf_net_opts){.max_queued = 8, .silence_ns = -1, .stall_ns = -1});
        before = weft_ctx_memory(g.s.ctx);
        for (int i = 0; i < 200000 && g.r.n_received < MESSAGES; i++) {
            weft_status st = sent < MESSAGES ? send_bytes(&g, sent) : WEFT_ELIMIT;

            sent += st == WEFT_OK;
            assert_true(st == WEFT_OK || st == WEFT_ELIMIT);
            most = wf_max_i64(most, weft_ctx_memory(g.s.ctx) - before);
            if (g.r.later && i % 3 == 0) {
                g.r.later = false;
                wf_link_resume(g.r.link);
            }
            usleep(200);
        }
        if (g.r.n_received != MESSAGES || g.r.n_wrong || g.s.node.n_down)
            fail_msg("%s: %d of %d messages, %d are wrong; %s", netpeer_members[t], g.r.n_received,
                     MESSAGES, g.r.n_wrong, g.s.node.why);
        assert_true(most < 64 * 1024);
        NETPEER_AWAIT(&g.s.node, n_sent, MESSAGES);
        close_reading(&g);
    }
}

/* It takes no byte: the sender gives up in time, and gets all its messages back. */
static void peers_that_take_nothing_are_given_up(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct reading g;
        int sent = 0;
        weft_status st = WEFT_OK;

        open_reading(
            &g, netpeer_members[t],
            (struct wf_net_opts){.max_queued = 20, .silence_ns = -1, .stall_ns = 300 * MS});
        for (int i = 0; i < 20000 && !g.s.node.n_down; i++) {
            st = send_bytes(&g, sent);
            sent += st == WEFT_OK;
            if (st)
                usleep(1000);
        }
        NETPEER_AWAIT(&g.s.node, n_down, 1);
        if (g.s.node.down_status != WEFT_ETIME || !strstr(g.s.node.why, "took no byte of") ||
            !strstr(g.s.node.why, "reader ("))
            fail_msg("%s: %s", netpeer_members[t], g.s.node.why);
        assert_int_equal(g.s.node.n_sent + g.s.node.n_unsent, sent);
        assert_true(g.s.node.n_unsent > 0);
        assert_int_equal(g.r.n_received, 0);
        close_reading(&g);
    }
}

/* ---- it asks, and takes no answer ------------------------------------------------------------ */

/* A hundred thousand pings and requests, whose answers no one reads. */
static void unread_answers_are_bounded(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct scene s;
        static uint8_t many[1000 * 2 * WF_FRAME_HEADER];
        uint8_t hello[256];
        struct rawpeer r;
        int64_t before, n = 0, most = 0;

        if (strcmp(netpeer_members[t], "inproc") == 0 || strchr(netpeer_members[t], '-'))
            continue; /* there is no peer but a node; no other than over tcp */
        open_scene(&s, netpeer_members[t],
                   (struct wf_net_opts){.max_queued = 100, .silence_ns = -1, .stall_ns = -1});
        rawpeer_open(&r, s.ctx, s.address, "raw");
        rawpeer_send(&r, hello, rawpeer_hello(hello, "raw", 1));
        NETPEER_AWAIT(&s.node, n_up, 1);
        before = weft_ctx_memory(s.ctx);
        for (int i = 0; i < 1000; i++) {
            n += rawpeer_frame(many + n, &(struct wf_frame){.type = WF_FRAME_PING, .id = 1}, NULL,
                               NULL);
            n += rawpeer_frame(many + n, &(struct wf_frame){.type = WF_FRAME_REQUEST, .id = 1},
                               NULL, NULL);
        }
        for (int i = 0; i < 100; i++) {
            assert_true(rawpeer_send(&r, many, n));
            most = wf_max_i64(most, weft_ctx_memory(s.ctx) - before);
        }
        NETPEER_AWAIT(&s.node, n_received, 100000);
        most = wf_max_i64(most, weft_ctx_memory(s.ctx) - before);
        if (most > 256 * 1024)
            fail_msg("%s: %lld bytes", netpeer_members[t], (long long)most);
        assert_int_equal(s.node.n_down, 0);
        rawpeer_close(&r);
        NETPEER_AWAIT(&s.node, n_down, 1);
        check_served(&s);
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_may_die_at_every_byte),
        cmocka_unit_test(peers_may_die_before_they_are_answered),
        cmocka_unit_test(half_open_peers_are_noticed),
        cmocka_unit_test(slow_readers_get_everything),
        cmocka_unit_test(peers_that_take_nothing_are_given_up),
        cmocka_unit_test(unread_answers_are_bounded),
    };

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 17);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
