/* message_test.c - messages of two nodes that behave, over every member of the family: in order,
 * whole and once, of all sizes, from any thread, and no more of them than the receiver has room
 * for. */
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
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/netnode.h"

static void messages_arrive_in_order(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct netnode a, b;
        _Atomic int sent[2] = {0, 0};
        int n = 10000;

        netnode_pair(netpeer_members[t], &a, &b,
                     (struct wf_net_opts){.spin_us = t % 4 == 0 ? 50 : 0});
        for (int k = 0; k < n; k++)
            netnode_send(&b, b.link, k, sent);
        for (int k = 0; k < 50; k++)
            netnode_send(&a, a.link, k, sent);
        NETNODE_AWAIT(&a, n_received, n);
        NETNODE_AWAIT(&b, n_received, 50);
        for (int k = 0; k < n; k++)
            netnode_check(&a.record[k], k);
        for (int k = 0; k < 50; k++)
            netnode_check(&b.record[k], k);
        netnode_close(&b);
        NETNODE_AWAIT(&a, n_down, 1);
        assert_int_equal(a.down_status, WEFT_EPEER);
        assert_non_null(strstr(a.why, "worker/1"));
        netnode_close(&a);
        assert_int_equal(sent[0], n + 50);
        assert_int_equal(sent[1], 0);
    }
}

static void large_messages_arrive(void **state)
{
    int64_t n = (int64_t)32 << 20;
    uint8_t *large = malloc((size_t)n);

    (void)state;
    for (int64_t i = 0; i < n; i++)
        large[i] = (uint8_t)(i * 7 + (i >> 13));
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct netnode a, b;
        _Atomic int sent[2] = {0, 0};
        struct wf_part part = {large, n};
        int64_t head = 5;

        netnode_pair(netpeer_members[t], &a, &b, (struct wf_net_opts){.no_checksums = t == 1});
        assert_int_equal(
            wf_link_send(b.link,
                         &(struct wf_msg){.head = &head, .n_head = 8, .part = &part, .n_parts = 1},
                         netnode_sent, sent),
            0);
        netnode_send(&b, b.link, 3, sent);
        NETNODE_AWAIT(&a, n_received, 2);
        assert_int_equal(a.record[0].n_payload, n);
        assert_int_equal(a.record[0].crc, wf_crc32c(0, large, n));
        netnode_check(&a.record[1], 3);
        netnode_close(&a);
        netnode_close(&b);
        assert_int_equal(sent[0], 2);
    }
    free(large);
}

/* What a thread sends while the link is being opened follows the hello, whatever the moment. */
static void send_while_it_opens(const char *member)
{
    const int n = strncmp(member, "tls", 3) == 0 ? 40 : 200, each = 8;
    _Atomic int sent[2] = {0, 0};
    struct netnode a, b;

    netnode_open(&a, member, "server/0", (struct wf_net_opts){.spin_us = 0});
    netnode_open(&b, member, "worker/1", (struct wf_net_opts){.spin_us = 50});
    netnode_listen(&a, member);
    for (int i = 0; i < n; i++) {
        struct wf_link *l;

        assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
        for (int k = 0; k < each; k++) {
            netnode_send(&b, l, 0, sent);
            for (int w = 0; w < i * 40; w++) /* another moment each time */
                __asm__ volatile("");
        }
        NETNODE_AWAIT(&b, n_up, i + 1);
        NETNODE_AWAIT(&a, n_received, (i + 1) * each);
        wf_link_close(l);
    }
    assert_int_equal(a.down_status, 0);
    netnode_close(&b);
    netnode_close(&a);
}

static void what_is_sent_at_once_follows_the_hello(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        send_while_it_opens(netpeer_members[t]);
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
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        _Atomic int sent[2] = {0, 0};
        struct wf_link *l;
        struct netnode a, b;

        if (strcmp(netpeer_members[t], "shm") == 0 || strcmp(netpeer_members[t], "inproc") == 0 ||
            strchr(netpeer_members[t], '-'))
            continue; /* their bytes do not go through one socket */
        netnode_open(&a, netpeer_members[t], "server/0", (struct wf_net_opts){.silence_ns = -1});
        netnode_open(&b, netpeer_members[t], "worker/1", (struct wf_net_opts){.silence_ns = -1});
        held.sys = wf_sys_posix;
        held.sys.sendmsg = hold;
        held.sys.recvmsg = release_and_read;
        held.sys.arg = &held;
        b.ctx->sys = &held.sys;
        netnode_listen(&a, netpeer_members[t]);
        assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
        netnode_send(&b, l, 3, sent);
        netnode_send(&b, l, 4, sent);
        for (int i = 0; i < 5000 && a.n_received < 2; i++) {
            usleep(2000);
            release(&held);
        }
        NETNODE_AWAIT(&a, n_received, 2);
        netnode_check(&a.record[0], 3);
        netnode_check(&a.record[1], 4);
        netnode_close(&b);
        netnode_close(&a);
    }
}

struct sender {
    struct netnode *n;
    int64_t first, count;
    _Atomic int sent[2];
};

static void *send_many(void *arg)
{
    struct sender *s = arg;

    for (int64_t k = 0; k < s->count; k++)
        netnode_send(s->n, s->n->link, s->first + k, s->sent);
    return NULL;
}

static void several_threads_may_send_over(const char *member)
{
    enum { THREADS = 4, EACH = 1500 };
    struct sender s[THREADS];
    pthread_t thread[THREADS];
    int64_t next[THREADS] = {0};
    struct netnode a, b;

    netnode_pair(member, &a, &b, (struct wf_net_opts){.max_queued = 50});
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct sender){&b, i * EACH, EACH, {0, 0}};
        assert_int_equal(pthread_create(&thread[i], NULL, send_many, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    NETNODE_AWAIT(&a, n_received, THREADS * EACH);
    for (int k = 0; k < THREADS * EACH; k++) {
        int64_t i = a.record[k].number / EACH;

        netnode_check(&a.record[k], i * EACH + next[i]++);
    }
    netnode_close(&b);
    netnode_close(&a);
}

static void several_threads_may_send(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        several_threads_may_send_over(netpeer_members[t]);
}

struct chain {
    struct netnode *n;
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

static void sending_from_sent_does_not_nest_over(const char *member)
{
    struct netnode a, b;
    struct chain c = {&b, 20000, 0, 0};

    netnode_pair(member, &a, &b, (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(wf_link_send(b.link, &(struct wf_msg){.kind = 1}, send_next, &c), 0);
    NETNODE_AWAIT(&a, n_received, 20000);
    netnode_close(&b);
    netnode_close(&a);
    assert_int_equal(c.deepest, 1);
}

static void sending_from_sent_does_not_nest(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        sending_from_sent_does_not_nest_over(netpeer_members[t]);
}

/* ---- backpressure ---------------------------------------------------------------------------- */

static void a_receiver_that_waits_stops_its_peer(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_net_opts opts = {.max_queued = 20, .stall_ns = -1, .silence_ns = -1};
        _Atomic int sent[2] = {0, 0};
        struct netnode a, b;
        int64_t before, n = 0;
        weft_status st = WEFT_OK;

        netnode_pair(netpeer_members[t], &a, &b, opts);
        a.later = true;
        before = weft_ctx_memory(a.ctx);
        for (int tries = 0; tries < 50 && n < 20000; tries++) {
            int64_t head;
            struct wf_part part[2];
            struct wf_msg m = netnode_message(n * 7 + 6, &head, part); /* 60000 bytes */

            st = wf_link_send(b.link, &m, netnode_sent, sent);
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
        NETNODE_AWAIT(&a, n_later, 1);
        a.later = false;
        wf_link_resume(a.link);
        NETNODE_AWAIT(&a, n_received, (int)n);
        for (int64_t k = 0; k < n; k++)
            netnode_check(&a.record[k], k * 7 + 6);
        netnode_close(&a);
        netnode_close(&b);
        assert_int_equal(sent[0] + sent[1], n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(large_messages_arrive),
        cmocka_unit_test(what_is_sent_at_once_follows_the_hello),
        cmocka_unit_test(several_frames_may_arrive_together),
        cmocka_unit_test(several_threads_may_send),
        cmocka_unit_test(sending_from_sent_does_not_nest),
        cmocka_unit_test(a_receiver_that_waits_stops_its_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
