/* link_test.c - what every transport promises: order, whole messages, backpressure, deadlines, an
 * end that names the peer; with real sockets, and with peers that do not keep to the protocol. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/link.h"
#include "net/net.h"
#include "support/counting.h"

#define SECOND 1000000000ll
#define WAIT (20 * SECOND)

/* ---- nodes that write down what happens ------------------------------------------------------ */

struct record {
    int64_t number; /* the first eight bytes of its head */
    int64_t n_payload;
    uint32_t crc, kind;
    uint64_t id;
};

struct node {
    weft_ctx *ctx;
    struct wf_net *net;
    struct wf_tls *tls;
    struct counting count;
    struct wf_link *link; /* the newest that is up */
    _Atomic int n_up, n_down, n_received, n_later;
    _Atomic int down_status;
    char why[512], address[512];
    struct record *record;
    int max_records;
    struct wf_part part[3];
    uint8_t *memory;
    int64_t room;
    _Atomic bool later;   /* payloads are not placed */
    _Atomic bool answers; /* requests are answered with their own head and payload */
    _Atomic bool refuses; /* nobody is admitted */
    bool drops;           /* links that go down are dropped at once */
};

static weft_status on_admit(void *arg, struct wf_link *l)
{
    const struct node *n = arg;

    return n->refuses ? wf_err(WEFT_EPEER, "%s is not wanted", wf_link_peer(l)->name) : WEFT_OK;
}

static void on_up(void *arg, struct wf_link *l)
{
    struct node *n = arg;

    n->link = l;
    n->n_up++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct node *n = arg;

    snprintf(n->why, sizeof n->why, "%s", why);
    n->down_status = st;
    n->n_down++;
    if (n->drops) /* otherwise with the node: another thread may be sending */
        wf_link_drop(l);
}

/* In up to three parts, one of them empty. */
static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct node *n = arg;
    int64_t half = m->n_payload / 3;

    (void)l;
    if (n->later) {
        n->n_later++;
        *n_parts = WF_PLACE_LATER;
        return WEFT_OK;
    }
    if (m->n_payload > n->room) {
        free(n->memory);
        n->memory = malloc((size_t)m->n_payload);
        n->room = m->n_payload;
    }
    n->part[0] = (struct wf_part){n->memory, half};
    n->part[1] = (struct wf_part){n->memory + half, 0};
    n->part[2] = (struct wf_part){n->memory + half, m->n_payload - half};
    *parts = n->part;
    *n_parts = 3;
    return WEFT_OK;
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct node *n = arg;
    struct record *r = &n->record[n->n_received];

    if (n->n_received == n->max_records)
        abort();
    *r = (struct record){.n_payload = m->n_payload, .kind = m->kind, .id = m->id};
    if (m->n_head >= 8)
        memcpy(&r->number, m->head, 8);
    for (int i = 0; i < m->n_parts; i++)
        r->crc = wf_crc32c(r->crc, m->part[i].p, m->part[i].n);
    n->n_received++;
    if (m->id && n->answers) {
        static uint8_t copy[1 << 16]; /* borrowed until it is sent */
        struct wf_part part = {copy, m->n_payload};
        struct wf_msg back = {.kind = m->kind,
                              .head = m->head,
                              .n_head = m->n_head,
                              .part = &part,
                              .n_parts = m->n_payload > 0};

        if (m->n_payload > (int64_t)sizeof copy)
            abort();
        if (m->n_payload)
            memcpy(copy, n->memory, (size_t)m->n_payload);
        if (m->kind == 99)
            wf_link_reply(l, m->id, WEFT_EDATA, &(struct wf_msg){.head = "not today", .n_head = 9},
                          NULL, NULL);
        else if (wf_link_reply(l, m->id, WEFT_OK, &back, NULL, NULL))
            abort();
    }
}

/* ---- certificates ---------------------------------------------------------------------------- */

static weft_ctx *pem_ctx;
static struct wf_pem authority;

static void make_authority(void)
{
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &pem_ctx), 0);
    assert_int_equal(wf_cert_authority(pem_ctx, 2, &authority), 0);
}

static void free_authority(void)
{
    wf_pem_free(pem_ctx, &authority);
    weft_ctx_free(pem_ctx);
}

static weft_status credentials(weft_ctx *ctx, const struct wf_pem *by, const char *role,
                               const char *name, int days, struct wf_tls **out)
{
    struct wf_pem pem;
    weft_status st = wf_cert_issue(pem_ctx, by, role, name, days, &pem);

    if (st)
        return st;
    st = wf_tls_new(ctx, &(struct wf_credentials){authority.certificate, pem.certificate, pem.key},
                    out);
    wf_pem_free(pem_ctx, &pem);
    return st;
}

/* Nodes over inproc have one context. */
static struct {
    bool on;
    weft_ctx *ctx;
    int n_nodes;
    struct counting count;
} common;

static weft_ctx *new_ctx(struct counting *count)
{
    weft_allocator allocator = counting_allocator(count);
    weft_ctx *ctx;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator), &ctx), 0);
    return ctx;
}

static weft_ctx *common_ctx(void)
{
    if (common.n_nodes++ == 0)
        common.ctx = new_ctx(&common.count);
    return common.ctx;
}

static void open_node(struct node *n, const char *name, struct wf_net_opts opts)
{
    *n = (struct node){.max_records = 20100};
    n->ctx = common.on ? common_ctx() : new_ctx(&n->count);
    n->record = calloc((size_t)n->max_records, sizeof *n->record);
    snprintf(opts.self.name, sizeof opts.self.name, "%s", name);
    snprintf(opts.self.role, sizeof opts.self.role, "test");
    opts.self.incarnation = 7;
    opts.calls = (struct wf_net_calls){.arg = n,
                                       .admit = on_admit,
                                       .up = on_up,
                                       .down = on_down,
                                       .place = on_place,
                                       .received = on_received};
    if (!opts.tls) {
        if (credentials(n->ctx, &authority, "test", name, 1, &n->tls))
            fail_msg("%s", weft_error());
        opts.tls = n->tls;
    }
    assert_int_equal(wf_net_new(n->ctx, &opts, &n->net), 0);
}

static void close_node(struct node *n)
{
    wf_net_free(n->net);
    wf_tls_free(n->tls);
    if (n->ctx != common.ctx || --common.n_nodes == 0) {
        weft_ctx_free(n->ctx);
        assert_int_equal(n->ctx == common.ctx ? common.count.n_live : n->count.n_live, 0);
        if (n->ctx == common.ctx) {
            common.ctx = NULL;
            common.on = false;
        }
    }
    free(n->record);
    free(n->memory);
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

#define AWAIT(node, field, n) await_at(node, &(node)->field, n, #field, __LINE__)
static void await_at(struct node *n, _Atomic int *value, int at_least, const char *what, int line)
{
    struct until u = {value, at_least};

    if (wf_net_wait(n->net, reached, &u, WAIT, what))
        fail_msg("line %d: %s is %d, not %d: %s; %s", line, what, *value, at_least, weft_error(),
                 n->why);
}

/* ---- transports ------------------------------------------------------------------------------ */

static const char *listen_address(const char *transport)
{
    static char text[128];
    static int number;

    common.on = strcmp(transport, "inproc") == 0;
    if (strcmp(transport, "uds") == 0 || strcmp(transport, "shm") == 0)
        snprintf(text, sizeof text, "%s:/tmp/weft-link-%d-%d.sock", transport, (int)getpid(),
                 number++);
    else if (common.on)
        snprintf(text, sizeof text, "inproc:node-%d", number++);
    else
        snprintf(text, sizeof text, "%s",
                 strcmp(transport, "tcp6") == 0  ? "tcp:[::1]:0"
                 : strcmp(transport, "tls") == 0 ? "tls:127.0.0.1:0"
                                                 : "tcp:127.0.0.1:0");
    return text;
}

/* a listens, b has connected. */
static void open_pair(const char *transport, struct node *a, struct node *b,
                      struct wf_net_opts opts)
{
    const char *address = listen_address(transport);
    struct wf_link *l;

    open_node(a, "server/0", opts);
    open_node(b, "worker/1", opts);
    if (wf_net_listen(a->net, address, a->address, sizeof a->address))
        fail_msg("%s", weft_error());
    assert_int_equal(wf_net_connect(b->net, a->address, WAIT, &l), 0);
    AWAIT(b, n_up, 1);
    AWAIT(a, n_up, 1);
    assert_ptr_equal(b->link, l);
    assert_string_equal(wf_link_peer(b->link)->name, "server/0");
    assert_string_equal(wf_link_peer(a->link)->name, "worker/1");
    assert_string_equal(wf_link_peer(a->link)->role, "test");
    assert_int_equal(wf_link_peer(a->link)->incarnation, 7);
}

static const char *const transports[] = {"tcp", "tcp6", "uds", "tls", "shm", "inproc"};

/* ---- sending --------------------------------------------------------------------------------- */

static void count_sent(void *arg, weft_status st)
{
    _Atomic int *n = arg;

    n[st ? 1 : 0]++;
}

static uint8_t bytes[1 << 16];

static void fill_bytes(void)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 17);
}

/* Message number k: its size and content follow from k. */
static struct wf_msg message(int64_t k, int64_t *head, struct wf_part part[2])
{
    static const int64_t sizes[] = {0, 1, 2, 100, 1000, 4096, 60000};
    int64_t n = sizes[k % 7], cut = n / 2;

    *head = k;
    part[0] = (struct wf_part){bytes + k % 16, cut};
    part[1] = (struct wf_part){bytes + k % 16 + cut, n - cut};
    return (struct wf_msg){
        .kind = (uint32_t)k, .head = head, .n_head = 8, .part = part, .n_parts = n ? 2 : 0};
}

static void check_message(const struct record *r, int64_t k)
{
    int64_t head;
    struct wf_part part[2];
    struct wf_msg m = message(k, &head, part);
    int64_t n = m.n_parts ? part[0].n + part[1].n : 0;

    assert_int_equal(r->number, k);
    assert_int_equal(r->kind, k);
    assert_int_equal(r->n_payload, n);
    assert_int_equal(r->crc, n ? wf_crc32c(0, part[0].p, n) : 0);
}

/* Sends, and waits where the queue is full. */
static void send_one(struct node *n, struct wf_link *l, int64_t k, _Atomic int *sent)
{
    int64_t head;
    struct wf_part part[2];
    struct wf_msg m = message(k, &head, part);
    weft_status st;

    while ((st = wf_link_send(l, &m, count_sent, sent)) == WEFT_ELIMIT)
        usleep(200);
    if (st)
        fail_msg("message %lld: %s; %s", (long long)k, weft_error(), n->why);
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        struct node a, b;
        _Atomic int sent[2] = {0, 0};
        int n = 10000;

        open_pair(transports[t], &a, &b, (struct wf_net_opts){.spin_us = t % 4 == 0 ? 50 : 0});
        for (int k = 0; k < n; k++)
            send_one(&b, b.link, k, sent);
        for (int k = 0; k < 50; k++)
            send_one(&a, a.link, k, sent);
        AWAIT(&a, n_received, n);
        AWAIT(&b, n_received, 50);
        for (int k = 0; k < n; k++)
            check_message(&a.record[k], k);
        for (int k = 0; k < 50; k++)
            check_message(&b.record[k], k);
        close_node(&b);
        AWAIT(&a, n_down, 1);
        assert_int_equal(a.down_status, WEFT_EPEER);
        assert_non_null(strstr(a.why, "worker/1"));
        close_node(&a);
        assert_int_equal(sent[0], n + 50);
        assert_int_equal(sent[1], 0);
    }
}

static void large_messages_arrive(void **state)
{
    int64_t n = (int64_t)96 << 20;
    uint8_t *large = malloc((size_t)n);

    (void)state;
    for (int64_t i = 0; i < n; i++)
        large[i] = (uint8_t)(i * 7 + (i >> 13));
    for (int t = 0; t < WF_COUNT(transports); t++) {
        struct node a, b;
        _Atomic int sent[2] = {0, 0};
        struct wf_part part = {large, n};
        int64_t head = 5;

        open_pair(transports[t], &a, &b, (struct wf_net_opts){.no_checksums = t == 1});
        assert_int_equal(
            wf_link_send(b.link,
                         &(struct wf_msg){.head = &head, .n_head = 8, .part = &part, .n_parts = 1},
                         count_sent, sent),
            0);
        send_one(&b, b.link, 3, sent);
        AWAIT(&a, n_received, 2);
        assert_int_equal(a.record[0].n_payload, n);
        assert_int_equal(a.record[0].crc, wf_crc32c(0, large, n));
        check_message(&a.record[1], 3);
        close_node(&a);
        close_node(&b);
        assert_int_equal(sent[0], 2);
    }
    free(large);
}

/* What a thread sends while the link is being opened follows the hello, whatever the moment. */
static void what_is_sent_at_once_follows_the_hello(void **state)
{
    struct node a, b;
    _Atomic int sent[2] = {0, 0};
    int n = 400, each = 8;

    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        const char *address = listen_address(transports[t]);

        if (strcmp(transports[t], "tls") == 0)
            n = 50;
        open_node(&a, "server/0", (struct wf_net_opts){.spin_us = 0});
        open_node(&b, "worker/1", (struct wf_net_opts){.spin_us = 50});
        if (wf_net_listen(a.net, address, a.address, sizeof a.address))
            fail_msg("%s", weft_error());
        for (int i = 0; i < n; i++) {
            struct wf_link *l;

            assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
            for (int k = 0; k < each; k++) {
                send_one(&b, l, 0, sent);
                for (int w = 0; w < i * 20; w++) /* another moment each time */
                    __asm__ volatile("");
            }
            AWAIT(&b, n_up, i + 1);
            AWAIT(&a, n_received, (i + 1) * each);
            wf_link_close(l);
        }
        assert_int_equal(a.down_status, 0);
        close_node(&b);
        close_node(&a);
    }
}

/* A seam that holds back what is sent until something is read, or for a while: several frames, or
 * the end of a handshake and what follows it, arrive in one piece. */
static struct held {
    pthread_mutex_t lock;
    struct wf_sys sys;
    uint8_t bytes[1 << 20];
    size_t n;
    int fd;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t hold(void *arg, int fd, const struct msghdr *m, int flags)
{
    struct held *h = arg;
    int64_t n = 0;

    (void)flags;
    pthread_mutex_lock(&h->lock);
    h->fd = fd;
    for (size_t i = 0; i < m->msg_iovlen; i++) {
        if (h->n + m->msg_iov[i].iov_len > sizeof h->bytes)
            abort();
        memcpy(h->bytes + h->n, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        h->n += m->msg_iov[i].iov_len;
        n += (int64_t)m->msg_iov[i].iov_len;
    }
    pthread_mutex_unlock(&h->lock);
    return n;
}

static void release(struct held *h)
{
    pthread_mutex_lock(&h->lock);
    if (h->n && send(h->fd, h->bytes, h->n, MSG_NOSIGNAL) != (ssize_t)h->n)
        abort();
    h->n = 0;
    pthread_mutex_unlock(&h->lock);
}

static int64_t release_and_read(void *arg, int fd, struct msghdr *m, int flags)
{
    release(arg);
    return wf_sys_posix.recvmsg(NULL, fd, m, flags);
}

static void several_frames_may_arrive_together(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        _Atomic int sent[2] = {0, 0};
        struct wf_link *l;
        struct node a, b;

        if (strcmp(transports[t], "shm") == 0 || strcmp(transports[t], "inproc") == 0)
            continue; /* their bytes do not go through a socket */
        open_node(&a, "server/0", (struct wf_net_opts){.silence_ns = -1});
        open_node(&b, "worker/1", (struct wf_net_opts){.silence_ns = -1});
        held.sys = wf_sys_posix;
        held.sys.sendmsg = hold;
        held.sys.recvmsg = release_and_read;
        held.sys.arg = &held;
        b.ctx->sys = &held.sys;
        if (wf_net_listen(a.net, listen_address(transports[t]), a.address, sizeof a.address))
            fail_msg("%s", weft_error());
        assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
        send_one(&b, l, 3, sent);
        send_one(&b, l, 4, sent);
        for (int i = 0; i < 500 && a.n_received < 2; i++) {
            usleep(20000);
            release(&held);
        }
        AWAIT(&a, n_received, 2);
        check_message(&a.record[0], 3);
        check_message(&a.record[1], 4);
        close_node(&b);
        close_node(&a);
    }
}

struct sender {
    struct node *n;
    int64_t first, count;
    _Atomic int sent[2];
};

static void *send_many(void *arg)
{
    struct sender *s = arg;

    for (int64_t k = 0; k < s->count; k++)
        send_one(s->n, s->n->link, s->first + k, s->sent);
    return NULL;
}

static void several_threads_may_send_over(const char *transport)
{
    enum { THREADS = 4, EACH = 1500 };
    struct sender s[THREADS];
    pthread_t thread[THREADS];
    int64_t next[THREADS] = {0};
    struct node a, b;

    open_pair(transport, &a, &b, (struct wf_net_opts){.max_queued = 50});
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct sender){&b, i * EACH, EACH, {0, 0}};
        assert_int_equal(pthread_create(&thread[i], NULL, send_many, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    AWAIT(&a, n_received, THREADS * EACH);
    for (int k = 0; k < THREADS * EACH; k++) {
        int64_t i = a.record[k].number / EACH;

        check_message(&a.record[k], i * EACH + next[i]++);
    }
    close_node(&b);
    close_node(&a);
}

static void several_threads_may_send(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        several_threads_may_send_over(transports[t]);
}

struct chain {
    struct node *n;
    _Atomic int left;
    int depth, deepest;
};

/* Each is sent when the previous one is sent. */
static void send_next(void *arg, weft_status st)
{
    struct chain *c = arg;
    struct wf_msg m = {.kind = 1};

    if (st)
        return;
    c->depth++;
    c->deepest = c->depth > c->deepest ? c->depth : c->deepest;
    if (--c->left > 0)
        while (wf_link_send(c->n->link, &m, send_next, c) == WEFT_ELIMIT)
            ;
    c->depth--;
}

static void sending_from_sent_does_not_nest_over(const char *transport)
{
    struct node a, b;
    struct chain c = {&b, 20000, 0, 0};

    open_pair(transport, &a, &b, (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(wf_link_send(b.link, &(struct wf_msg){.kind = 1}, send_next, &c), 0);
    AWAIT(&a, n_received, 20000);
    close_node(&b);
    close_node(&a);
    assert_int_equal(c.deepest, 1);
}

static void sending_from_sent_does_not_nest(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        sending_from_sent_does_not_nest_over(transports[t]);
}

/* ---- requests -------------------------------------------------------------------------------- */

struct answers {
    _Atomic int n, n_ok;
    _Atomic int status;
    int64_t number;
    uint32_t crc;
    char text[256];
};

static void on_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct answers *a = arg;

    a->status = st;
    if (st) {
        snprintf(a->text, sizeof a->text, "%s", weft_error());
    } else {
        memcpy(&a->number, m->head, 8);
        a->crc = 0;
        for (int i = 0; i < m->n_parts; i++)
            a->crc = wf_crc32c(a->crc, m->part[i].p, m->part[i].n);
        a->n_ok++;
    }
    a->n++;
}

static weft_status ask(struct node *n, int64_t k, uint32_t kind, int64_t timeout, struct answers *a,
                       uint64_t *id)
{
    int64_t head;
    struct wf_part part[2];
    struct wf_msg m = message(k, &head, part);

    if (kind)
        m.kind = kind;
    return wf_link_call(n->link, &m, timeout, NULL, on_reply, a, id);
}

static void requests_are_answered(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        struct answers got = {0};
        struct node a, b;
        int64_t start;
        uint64_t id;

        open_pair(transports[t], &a, &b, (struct wf_net_opts){.spin_us = 0});
        a.answers = true;
        for (int k = 0; k < 60; k++) {
            assert_int_equal(ask(&b, k, 0, WAIT, &got, NULL), 0);
            AWAIT(&b, n_up, 1);
            {
                struct until u = {&got.n, k + 1};

                assert_int_equal(wf_net_wait(b.net, reached, &u, WAIT, "an answer"), 0);
            }
            assert_int_equal(got.status, 0);
            assert_int_equal(got.number, k);
        }
        /* an answer that is a status, with a text */
        assert_int_equal(ask(&b, 0, 99, WAIT, &got, NULL), 0);
        assert_int_equal(
            wf_net_wait(b.net, reached, &(struct until){&got.n, 61}, WAIT, "an answer"), 0);
        assert_int_equal(got.status, WEFT_EDATA);
        assert_non_null(strstr(got.text, "not today"));
        assert_non_null(strstr(got.text, "server/0"));
        /* none in time */
        a.answers = false;
        start = wf_now(b.ctx);
        assert_int_equal(ask(&b, 0, 0, SECOND / 10, &got, NULL), 0);
        assert_int_equal(
            wf_net_wait(b.net, reached, &(struct until){&got.n, 62}, WAIT, "an answer"), 0);
        assert_int_equal(got.status, WEFT_ETIME);
        assert_non_null(strstr(got.text, "server/0"));
        assert_true(wf_now(b.ctx) - start >= SECOND / 10);
        /* cancelled */
        assert_int_equal(ask(&b, 0, 0, 0, &got, &id), 0);
        wf_link_cancel(b.link, id);
        wf_link_cancel(b.link, id + 1000);
        assert_int_equal(
            wf_net_wait(b.net, reached, &(struct until){&got.n, 63}, WAIT, "an answer"), 0);
        assert_int_equal(got.status, WEFT_ECANCEL);
        /* the link goes down */
        assert_int_equal(ask(&b, 0, 0, 0, &got, &id), 0);
        close_node(&a);
        assert_int_equal(
            wf_net_wait(b.net, reached, &(struct until){&got.n, 64}, WAIT, "an answer"), 0);
        assert_int_equal(got.status, WEFT_EPEER);
        close_node(&b);
    }
}

/* ---- backpressure ---------------------------------------------------------------------------- */

static void a_receiver_that_waits_stops_its_peer(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        struct wf_net_opts opts = {.max_queued = 20, .stall_ns = -1, .silence_ns = -1};
        _Atomic int sent[2] = {0, 0};
        struct node a, b;
        int64_t before, n = 0;
        weft_status st = WEFT_OK;

        open_pair(transports[t], &a, &b, opts);
        a.later = true;
        before = weft_ctx_memory(a.ctx);
        for (int tries = 0; tries < 200 && n < 20000; tries++) {
            int64_t head;
            struct wf_part part[2];
            struct wf_msg m = message(n * 7 + 6, &head, part); /* 60000 bytes */

            st = wf_link_send(b.link, &m, count_sent, sent);
            if (!st) {
                n++;
                tries = 0;
                continue;
            }
            assert_int_equal(st, WEFT_ELIMIT);
            usleep(1000);
        }
        assert_int_equal(st, WEFT_ELIMIT);
        assert_non_null(strstr(weft_error(), "20 messages are waiting"));
        /* over inproc that is also b's memory, with what is queued there */
        assert_true(weft_ctx_memory(a.ctx) <= before + (a.ctx == b.ctx ? 20 * 1024 : 0));
        assert_int_equal(a.n_received, 0);
        AWAIT(&a, n_later, 1);
        a.later = false;
        wf_link_resume(a.link);
        AWAIT(&a, n_received, (int)n);
        for (int64_t k = 0; k < n; k++)
            check_message(&a.record[k], k * 7 + 6);
        close_node(&a);
        close_node(&b);
        assert_int_equal(sent[0] + sent[1], n);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

static void closing_delivers_what_was_sent(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        _Atomic int sent[2] = {0, 0};
        struct node a, b;

        open_pair(transports[t], &a, &b, (struct wf_net_opts){.spin_us = 0});
        for (int k = 0; k < 500; k++)
            send_one(&b, b.link, k, sent);
        wf_link_close(b.link);
        assert_int_equal(wf_link_send(b.link, &(struct wf_msg){.kind = 1}, NULL, NULL) == 0, 0);
        AWAIT(&a, n_down, 1);
        AWAIT(&b, n_down, 1);
        assert_int_equal(a.n_received, 500);
        if (a.down_status || b.down_status)
            fail_msg("%s; %s", a.why, b.why);
        assert_int_equal(wf_link_send(b.link, &(struct wf_msg){.kind = 1}, NULL, NULL), WEFT_EPEER);
        wf_link_drop(b.link);
        close_node(&a);
        close_node(&b);
        assert_int_equal(sent[0], 500);
    }
}

static void a_link_can_be_made_again_over(const char *transport)
{
    struct wf_link *l;
    struct node a, b;

    open_pair(transport, &a, &b, (struct wf_net_opts){.spin_us = 0});
    a.drops = b.drops = true;
    for (int i = 2; i < 30; i++) {
        wf_link_close(i % 2 ? a.link : b.link);
        AWAIT(&a, n_down, i - 1);
        AWAIT(&b, n_down, i - 1);
        assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
        AWAIT(&a, n_up, i);
        AWAIT(&b, n_up, i);
    }
    close_node(&b);
    close_node(&a);
}

static void a_link_can_be_made_again(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        a_link_can_be_made_again_over(transports[t]);
}

/* Messages that were never sent are given back, once. */
static void nothing_is_kept_at_the_end(void **state)
{
    (void)state;
    for (int k = 0; k < 20; k++) {
        _Atomic int sent[2] = {0, 0};
        struct answers got = {0};
        struct node a, b;

        open_pair(transports[k % WF_COUNT(transports)], &a, &b,
                  (struct wf_net_opts){.stall_ns = -1});
        a.later = true;
        for (int i = 0; i < 100; i++)
            send_one(&b, b.link, 6, sent);
        assert_int_equal(ask(&b, 6, 0, WAIT, &got, NULL), 0);
        close_node(k % 2 ? &a : &b);
        close_node(k % 2 ? &b : &a);
        assert_int_equal(sent[0] + sent[1], 100);
        assert_true(sent[1] > 0);
        assert_int_equal(got.n, 1);
        assert_true(got.status < 0);
    }
}

static void connecting_fails_with_a_reason(void **state)
{
    struct wf_link *l;
    struct node a;

    (void)state;
    open_node(&a, "alone", (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(wf_net_connect(a.net, "tcp:127.0.0.1:1", WAIT, &l), 0);
    AWAIT(&a, n_down, 1);
    assert_int_equal(a.down_status, WEFT_EPEER);
    assert_non_null(strstr(a.why, "tcp:127.0.0.1:1: connecting: Connection refused"));
    assert_int_equal(wf_net_connect(a.net, "uds:/nowhere/at/all", WAIT, &l), 0);
    AWAIT(&a, n_down, 2);
    assert_non_null(strstr(a.why, "No such file"));
    assert_int_equal(wf_net_connect(a.net, "tcp:no-such-host.invalid:80", WAIT, &l), 0);
    AWAIT(&a, n_down, 3);
    assert_non_null(strstr(a.why, "finding the host"));
    assert_int_equal(wf_net_connect(a.net, "tcp:localhost", WAIT, &l), WEFT_EINVAL);
    assert_int_equal(wf_net_connect(a.net, "tcp:::1:80", WAIT, &l), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "in brackets"));
    assert_int_equal(wf_net_connect(a.net, "tcp:host:65536", WAIT, &l), WEFT_EINVAL);
    assert_int_equal(wf_net_connect(a.net, "carrier-pigeon:7", WAIT, &l), WEFT_EINVAL);
    assert_int_equal(wf_net_listen(a.net, "uds:/nowhere/at/all", NULL, 0), WEFT_EIO);
    close_node(&a);
}

/* ---- peers that do not keep to the protocol -------------------------------------------------- */

static int port_of(const char *address)
{
    return atoi(strrchr(address, ':') + 1);
}

static int raw_connect(const struct node *n)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port_of(n->address))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A hello, then a message of 100 bytes with its checksum. */
static int64_t good_stream(uint8_t *out)
{
    uint8_t hello[] = {7, 0, 0, 0, 0, 0, 0, 0, 1, 'r', 'r', 'a', 'w'};
    struct wf_frame f = {.type = WF_FRAME_HELLO, .n_head = sizeof hello};
    struct wf_frame m = {
        .type = WF_FRAME_MESSAGE, .flags = WF_FRAME_SUMMED, .n_head = 8, .n_payload = 100};
    uint32_t crc = wf_crc32c(0, bytes, 100);
    int64_t n = 0;

    wf_frame_encode(&f, hello, out);
    memcpy(out + 48, hello, sizeof hello);
    n = 48 + (int64_t)sizeof hello;
    wf_frame_encode(&m, bytes, out + n);
    memcpy(out + n + 48, bytes, 8);
    memcpy(out + n + 56, bytes, 100);
    n += 156;
    for (int i = 0; i < 4; i++)
        out[n++] = (uint8_t)(crc >> 8 * i);
    return n;
}

static void a_peer_may_die_at_every_byte(void **state)
{
    uint8_t stream[512];
    int64_t n = good_stream(stream), n_hello = 48 + 13;
    int n_up = 0, n_down = 0;
    struct node a;

    (void)state;
    open_node(&a, "server/0", (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(wf_net_listen(a.net, "tcp:127.0.0.1:0", a.address, sizeof a.address), 0);
    for (int64_t cut = 0; cut <= n; cut++) {
        int fd = raw_connect(&a);

        assert_int_equal(send(fd, stream, (size_t)cut, MSG_NOSIGNAL), cut);
        if (cut >= n_hello)
            AWAIT(&a, n_up, ++n_up);
        close(fd);
        if (cut < n_hello)
            continue;
        AWAIT(&a, n_down, ++n_down);
        assert_int_equal(a.down_status, WEFT_EPEER);
        assert_int_equal(a.n_received, cut == n);
        assert_non_null(strstr(a.why, "raw ("));
        if (cut < n && cut > n_hello && !strstr(a.why, "within a message") &&
            !strstr(a.why, "reset"))
            fail_msg("byte %lld: %s", (long long)cut, a.why);
    }
    close_node(&a);
}

static void garbage_ends_only_its_link(void **state)
{
    uint8_t stream[512];
    int64_t n = good_stream(stream);
    struct node a, b;
    uint64_t seed = 1;

    (void)state;
    open_pair("tcp", &a, &b, (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < 200; i++) {
        int fd = raw_connect(&a), up = a.n_up;
        uint8_t damaged[512];
        char answer;

        memcpy(damaged, stream, sizeof damaged);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = wf_hash64(&seed, sizeof seed, 3);
            damaged[seed % (uint64_t)n] ^= (uint8_t)(1 + (seed >> 20) % 255);
        }
        send(fd, damaged, (size_t)n, MSG_NOSIGNAL);
        while (recv(fd, &answer, 1, 0) > 0) /* until it is closed */
            ;
        close(fd);
        assert_true(a.n_up - up <= 1);
    }
    send_one(&b, b.link, 4, (_Atomic int[2]){0, 0});
    {
        struct until u = {&a.n_received, 1};

        assert_int_equal(wf_net_wait(a.net, reached, &u, WAIT, "a message"), 0);
    }
    check_message(&a.record[a.n_received - 1], 4);
    close_node(&a);
    close_node(&b);
}

/* Silent ones, before and after their hello; and one that takes nothing. */
static void waiting_for_a_peer_ends(void **state)
{
    struct wf_net_opts opts = {.silence_ns = SECOND / 5, .stall_ns = SECOND / 5};
    uint8_t stream[512];
    struct node a;
    int fd, small = 4096;

    (void)state;
    good_stream(stream);
    open_node(&a, "server/0", opts);
    assert_int_equal(wf_net_listen(a.net, "tcp:127.0.0.1:0", a.address, sizeof a.address), 0);
    fd = raw_connect(&a); /* says nothing: the link is closed */
    {
        char answer[64];
        int64_t start = wf_now(a.ctx);

        while (recv(fd, answer, sizeof answer, 0) > 0)
            ;
        assert_true(wf_now(a.ctx) - start < 5 * SECOND);
        close(fd);
    }
    fd = raw_connect(&a);
    assert_int_equal(send(fd, stream, 48 + 13, MSG_NOSIGNAL), 48 + 13);
    AWAIT(&a, n_up, 1);
    AWAIT(&a, n_down, 1);
    assert_int_equal(a.down_status, WEFT_ETIME);
    assert_non_null(strstr(a.why, "raw ("));
    assert_non_null(strstr(a.why, "nothing was heard for"));
    close(fd);
    close_node(&a);
    /* it says pings, but takes nothing */
    opts.silence_ns = -1;
    open_node(&a, "server/0", opts);
    assert_int_equal(wf_net_listen(a.net, "tcp:127.0.0.1:0", a.address, sizeof a.address), 0);
    fd = raw_connect(&a);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(send(fd, stream, 48 + 13, MSG_NOSIGNAL), 48 + 13);
    AWAIT(&a, n_up, 1);
    {
        int64_t n = 64 << 20;
        uint8_t *large = calloc(1, (size_t)n);
        struct wf_part part = {large, n};
        _Atomic int sent[2] = {0, 0};

        assert_int_equal(
            wf_link_send(a.link, &(struct wf_msg){.part = &part, .n_parts = 1}, count_sent, sent),
            0);
        AWAIT(&a, n_down, 1);
        assert_int_equal(a.down_status, WEFT_ETIME);
        assert_non_null(strstr(a.why, "took no byte of 1 messages"));
        assert_int_equal(sent[1], 1);
        free(large);
    }
    close(fd);
    close_node(&a);
}

/* Links that are quiet but alive stay up. */
static void quiet_links_stay_up(void **state)
{
    struct wf_net_opts opts = {.silence_ns = SECOND, .stall_ns = SECOND};
    struct node a[WF_COUNT(transports)], b[WF_COUNT(transports)];

    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        open_pair(transports[t], &a[t], &b[t], opts);
    usleep(2500000);
    for (int t = 0; t < WF_COUNT(transports); t++) {
        assert_int_equal(a[t].n_down + b[t].n_down, 0);
        close_node(&a[t]);
        close_node(&b[t]);
    }
}

/* ---- tls ------------------------------------------------------------------------------------- */

/* b connects to a with these credentials (NULL: its own), and is refused; who says why. */
static void expect_refused(struct wf_tls *tls, const char *name, const char *why, bool by_us)
{
    struct wf_link *l;
    struct node a, b;

    open_node(&a, "server/0", (struct wf_net_opts){.spin_us = 0});
    open_node(&b, name, (struct wf_net_opts){.tls = tls});
    assert_int_equal(wf_net_listen(a.net, "tls:127.0.0.1:0", a.address, sizeof a.address), 0);
    assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
    AWAIT(&b, n_down, 1);
    assert_int_equal(a.n_up, 0);
    assert_true(b.down_status < 0);
    if (by_us && !strstr(b.why, why))
        fail_msg("'%s' does not say '%s'", b.why, why);
    close_node(&b);
    close_node(&a);
}

static void strangers_are_refused(void **state)
{
    struct wf_pem other, self, expired;
    struct wf_tls *tls;

    (void)state;
    assert_int_equal(wf_cert_authority(pem_ctx, 2, &other), 0);
    /* the certificate of another authority */
    assert_int_equal(credentials(pem_ctx, &other, "test", "worker/1", 1, &tls), 0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    /* it trusts another authority than ours */
    assert_int_equal(wf_cert_issue(pem_ctx, &authority, "test", "worker/1", 1, &self), 0);
    assert_int_equal(
        wf_tls_new(pem_ctx, &(struct wf_credentials){other.certificate, self.certificate, self.key},
                   &tls),
        0);
    expect_refused(tls, "worker/1", "the peer's certificate", true);
    wf_tls_free(tls);
    wf_pem_free(pem_ctx, &self);
    /* an expired one */
    assert_int_equal(wf_cert_issue(pem_ctx, &authority, "test", "worker/1", -1, &expired), 0);
    assert_int_equal(wf_tls_new(pem_ctx,
                                &(struct wf_credentials){authority.certificate, expired.certificate,
                                                         expired.key},
                                &tls),
                     0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    wf_pem_free(pem_ctx, &expired);
    /* a name that is not in the certificate; a role that is not */
    assert_int_equal(credentials(pem_ctx, &authority, "test", "worker/2", 1, &tls), 0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    assert_int_equal(credentials(pem_ctx, &authority, "chief", "worker/1", 1, &tls), 0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    /* what it is made of is damaged, or does not belong together */
    assert_int_equal(wf_cert_issue(pem_ctx, &authority, "test", "worker/1", 1, &self), 0);
    assert_int_equal(
        wf_tls_new(pem_ctx,
                   &(struct wf_credentials){authority.certificate, self.certificate, other.key},
                   &tls),
        WEFT_EPEER);
    self.certificate[40] ^= 4;
    assert_int_equal(
        wf_tls_new(pem_ctx,
                   &(struct wf_credentials){authority.certificate, self.certificate, self.key},
                   &tls),
        WEFT_EPEER);
    assert_int_equal(wf_cert_issue(pem_ctx, &authority, "a b", "worker/1", 1, &expired),
                     WEFT_EINVAL);
    assert_int_equal(wf_cert_issue(pem_ctx, &authority, "test", "x,DNS:evil", 1, &expired),
                     WEFT_EINVAL);
    wf_pem_free(pem_ctx, &self);
    wf_pem_free(pem_ctx, &other);
}

static void those_who_are_not_admitted_are_not_up(void **state)
{
    struct wf_link *l;
    struct node a, b;

    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        const char *address = listen_address(transports[t]);

        open_node(&a, "server/0", (struct wf_net_opts){.spin_us = 0});
        open_node(&b, "worker/1", (struct wf_net_opts){.spin_us = 0});
        a.refuses = true;
        assert_int_equal(wf_net_listen(a.net, address, a.address, sizeof a.address), 0);
        assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
        AWAIT(&b, n_down, 1);
        assert_int_equal(a.n_up, 0);
        assert_int_equal(a.n_down, 0);
        close_node(&a);
        close_node(&b);
    }
}

/* A plain client at a port of TLS, and the other way round. */
static void mixed_up_transports_end(void **state)
{
    struct wf_net_opts opts = {.silence_ns = SECOND / 2};
    struct wf_link *l;
    struct node a, b;
    char address[600];

    (void)state;
    for (int i = 0; i < 2; i++) {
        open_node(&a, "server/0", opts);
        open_node(&b, "worker/1", opts);
        assert_int_equal(wf_net_listen(a.net, i ? "tcp:127.0.0.1:0" : "tls:127.0.0.1:0", a.address,
                                       sizeof a.address),
                         0);
        snprintf(address, sizeof address, "%s%s", i ? "tls" : "tcp", a.address + 3);
        assert_int_equal(wf_net_connect(b.net, address, WAIT, &l), 0);
        AWAIT(&b, n_down, 1);
        assert_true(b.down_status < 0);
        assert_int_equal(a.n_up + b.n_up, 0);
        close_node(&a);
        close_node(&b);
    }
}

static bool is_resumed(const struct wf_link *l)
{
    return wf_secure_resumed(l);
}

/* The second connection resumes the first one's session; new credentials are used from the
 * next connection on, and the present one is kept. */
static void sessions_and_renewal(void **state)
{
    _Atomic int sent[2] = {0, 0};
    struct wf_link *first, *l;
    struct wf_pem pem;
    struct node a, b;

    (void)state;
    open_pair("tls", &a, &b, (struct wf_net_opts){.spin_us = 0});
    first = b.link;
    assert_false(is_resumed(first));
    send_one(&a, a.link, 1, sent); /* tickets come with what is read */
    AWAIT(&b, n_received, 1);
    assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
    AWAIT(&b, n_up, 2);
    AWAIT(&a, n_up, 2);
    assert_true(is_resumed(l));
    assert_string_equal(wf_link_peer(a.link)->name, "worker/1");
    assert_int_equal(wf_cert_issue(pem_ctx, &authority, "test", "worker/1", 1, &pem), 0);
    assert_int_equal(wf_tls_renew(b.tls, &(struct wf_credentials){authority.certificate,
                                                                  pem.certificate, pem.key}),
                     0);
    wf_pem_free(pem_ctx, &pem);
    send_one(&b, first, 2, sent);
    AWAIT(&a, n_received, 1);
    check_message(&a.record[0], 2);
    assert_int_equal(wf_net_connect(b.net, a.address, WAIT, &l), 0);
    AWAIT(&b, n_up, 3);
    assert_false(is_resumed(l));
    assert_int_equal(a.n_down + b.n_down, 0);
    close_node(&b);
    close_node(&a);
}

int main(void)
{
    int rc;

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(large_messages_arrive),
        cmocka_unit_test(what_is_sent_at_once_follows_the_hello),
        cmocka_unit_test(several_frames_may_arrive_together),
        cmocka_unit_test(several_threads_may_send),
        cmocka_unit_test(sending_from_sent_does_not_nest),
        cmocka_unit_test(requests_are_answered),
        cmocka_unit_test(a_receiver_that_waits_stops_its_peer),
        cmocka_unit_test(closing_delivers_what_was_sent),
        cmocka_unit_test(a_link_can_be_made_again),
        cmocka_unit_test(nothing_is_kept_at_the_end),
        cmocka_unit_test(connecting_fails_with_a_reason),
        cmocka_unit_test(a_peer_may_die_at_every_byte),
        cmocka_unit_test(garbage_ends_only_its_link),
        cmocka_unit_test(waiting_for_a_peer_ends),
        cmocka_unit_test(quiet_links_stay_up),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(those_who_are_not_admitted_are_not_up),
        cmocka_unit_test(mixed_up_transports_end),
        cmocka_unit_test(sessions_and_renewal),
    };

    fill_bytes();
    make_authority();
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    free_authority();
    return rc;
}
