/* queues_test.c - what waits at a node, over every member of the family: a slow receiver has a
 * queue, and so has who sends to it; when it has read all, there is none. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support/netnode.h"

/* More than the buffers of any system hold. */
enum { N = 900, LARGE = 60000, MAX_FRAME = LARGE + 400 };

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static int64_t number_of(int i)
{
    return 7 * (int64_t)i + 6; /* each of LARGE bytes */
}

static bool is_empty(const struct wf_queues *q)
{
    return !q->send_messages && !q->send_bytes && !q->receive_messages && !q->receive_bytes;
}

static void await_empty(struct netnode *n, const char *member)
{
    struct wf_queues q;

    for (int i = 0; i < 2000; i++) {
        wf_net_queues(n->net, &q);
        if (is_empty(&q))
            return;
        pause_ms(10);
    }
    fail_msg("%s: %lld messages of %lld bytes to send, %lld of %lld to read", member,
             (long long)q.send_messages, (long long)q.send_bytes, (long long)q.receive_messages,
             (long long)q.receive_bytes);
}

/* Over inproc there is no system that takes anything. */
static void await_send(struct netnode *n, const char *member, struct wf_queues *q)
{
    int64_t least = strcmp(member, "inproc") == 0 ? N : 1;

    for (int i = 0; i < 2000; i++) {
        wf_net_queues(n->net, q);
        if (q->send_messages >= least)
            return;
        pause_ms(10);
    }
    fail_msg("%s: %lld messages wait to be sent", member, (long long)q->send_messages);
}

/* The receiver sleeps: something is known of its queue once the node has looked. */
static void await_receive(struct netnode *n, const char *member, struct wf_queues *q)
{
    bool bytes = strcmp(member, "inproc") != 0 && !strstr(member, "-3"); /* those are elsewhere */

    for (int i = 0; i < 2000; i++) {
        wf_net_queues(n->net, q);
        if (q->receive_messages == 1 && (q->receive_bytes > 0 || !bytes))
            return;
        pause_ms(10);
    }
    fail_msg("%s: nothing waits to be read", member);
}

static void slow_receivers_have_queues(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        const char *member = netpeer_members[t];
        struct netnode a, b;
        _Atomic int sent[2] = {0, 0};
        struct wf_queues q;

        netnode_pair(member, &a, &b, (struct wf_net_opts){.stall_ns = -1, .silence_ns = -1});
        await_empty(&a, member);
        await_empty(&b, member);
        a.later = true;
        for (int i = 0; i < N; i++)
            netnode_send(&b, b.link, number_of(i), sent);
        NETNODE_AWAIT(&a, n_later, 1);
        await_send(&b, member, &q);
        assert_true(q.send_messages <= N);
        assert_true(q.send_bytes > (q.send_messages - 1) * LARGE);
        assert_true(q.send_bytes < q.send_messages * MAX_FRAME);
        await_receive(&a, member, &q);
        assert_int_equal(q.send_messages, 0);
        assert_true(q.receive_bytes < (int64_t)N * MAX_FRAME);
        a.later = false;
        wf_link_resume(a.link);
        NETNODE_AWAIT(&a, n_received, N);
        for (int i = 0; i < N; i++)
            netnode_check(&a.record[i], number_of(i));
        await_empty(&a, member);
        await_empty(&b, member);
        netnode_close(&b);
        netnode_close(&a);
    }
}

/* While another thread is within a call, who asks is not kept waiting, and hears of it later. */
static void who_asks_never_waits(void **state)
{
    struct netnode a, b;
    _Atomic int sent[2] = {0, 0};
    struct wf_queues q;

    (void)state;
    netnode_pair("uds", &a, &b, (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < 20000; i++) {
        if (i % 4 == 0)
            netnode_send(&b, b.link, i, sent);
        wf_net_queues(a.net, &q);
        assert_true(q.receive_messages >= 0 && q.receive_messages <= 1 && q.receive_bytes >= 0);
        wf_net_queues(b.net, &q);
        assert_true(q.send_messages >= 0 && q.send_messages <= i && q.send_bytes >= 0);
    }
    NETNODE_AWAIT(&a, n_received, 5000);
    await_empty(&a, "uds");
    await_empty(&b, "uds");
    netnode_close(&b);
    netnode_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slow_receivers_have_queues),
                                       cmocka_unit_test(who_asks_never_waits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
