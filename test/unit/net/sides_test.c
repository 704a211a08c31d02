/* sides_test.c - several connections a pair: how many there are, and payloads arrive whole and
 * in order over them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <unistd.h>

#include "support/rawpair.h"

/* A peer that was written from docs/formats/wire.md alone: stripes in any order over any
 * connection, also before the message that they belong to. */
static void stripes_arrive_in_any_order(void **state)
{
    static const char *const transports[] = {"tcp", "tls"};

    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        static struct rawpair_scene s;
        struct rawpair p;
        int before;

        rawpair_scene_open(&s, transports[t], (struct wf_net_opts){.spin_us = 0});
        rawpair_open(&s, &p, "raw");
        for (int i = 0; i < 2; i++)
            rawpair_attach(&s, &p, "raw");
        before = s.node.n_received;
        rawpair_message(&p);
        rawpair_stripe(&p, 1, 1, 2 * RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - 2 * RAWPAIR_STRIPE);
        rawpair_stripe(&p, 0, 1, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
        usleep(20000);
        assert_int_equal(s.node.n_received, before);
        rawpair_stripe(&p, 1, 1, 0, RAWPAIR_STRIPE);
        NETPEER_AWAIT(&s.node, n_received, before + 1);
        /* one connection is ahead of the other by more than a message */
        rawpair_stripe(&p, 0, 2, 0, RAWPAIR_STRIPE);
        rawpair_stripe(&p, 0, 3, 0, RAWPAIR_STRIPE);
        rawpair_stripe(&p, 0, 3, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
        rawpair_stripe(&p, 0, 3, 2 * RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - 2 * RAWPAIR_STRIPE);
        rawpair_message(&p);
        usleep(20000);
        assert_int_equal(s.node.n_received, before + 1);
        rawpair_message(&p);
        rawpair_stripe(&p, 1, 2, 2 * RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - 2 * RAWPAIR_STRIPE);
        rawpair_stripe(&p, 1, 2, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
        NETPEER_AWAIT(&s.node, n_received, before + 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(s.node.message[before + i].kind, 5);
            assert_int_equal(s.node.message[before + i].n_payload, RAWPAIR_PAYLOAD);
        }
        assert_memory_equal(s.node.memory, rawpair_bytes, RAWPAIR_PAYLOAD);
        assert_int_equal(s.node.n_down, 0);
        rawpair_close(&p);
        NETPEER_AWAIT(&s.node, n_down, 1);
        rawpair_scene_close(&s);
    }
}

/* The smaller number counts; a peer that knows nothing of this has one. */
static void the_smaller_number_counts(void **state)
{
    static const int wanted[][3] = {{1, 1, 1}, {1, 8, 1}, {8, 1, 1},
                                    {2, 3, 2}, {8, 4, 4}, {8, 8, 8}};

    (void)state;
    for (int i = 0; i < WF_COUNT(wanted); i++) {
        static struct netpeer a, b;
        struct wf_part part = {rawpair_bytes, RAWPAIR_BYTES};
        weft_ctx *ctx = rawpair_ctx();
        struct wf_link *l;
        char address[128], bound[512];

        netpeer_open(
            &a, ctx, "a",
            (struct wf_net_opts){.connections = wanted[i][0], .striped_min = RAWPAIR_STRIPE});
        netpeer_open(
            &b, ctx, "b",
            (struct wf_net_opts){.connections = wanted[i][1], .striped_min = RAWPAIR_STRIPE});
        assert_int_equal(wf_net_listen(a.net, netpeer_address("tcp", address), bound, sizeof bound),
                         0);
        assert_int_equal(wf_net_connect(b.net, bound, 20 * RAWPAIR_SECOND, &l), 0);
        NETPEER_AWAIT(&a, n_up, 1);
        NETPEER_AWAIT(&b, n_up, 1);
        rawpair_await_connections(a.link, wanted[i][2]);
        rawpair_await_connections(l, wanted[i][2]);
        for (int k = 0; k < 20; k++)
            assert_int_equal(wf_link_send(k % 2 ? l : a.link,
                                          &(struct wf_msg){.kind = 1, .part = &part, .n_parts = 1},
                                          netpeer_sent, k % 2 ? &b : &a),
                             0);
        NETPEER_AWAIT(&a, n_received, 10);
        NETPEER_AWAIT(&b, n_received, 10);
        assert_memory_equal(a.memory, rawpair_bytes, RAWPAIR_BYTES);
        assert_memory_equal(b.memory, rawpair_bytes, RAWPAIR_BYTES);
        NETPEER_AWAIT(&a, n_sent, 10);
        NETPEER_AWAIT(&b, n_sent, 10);
        assert_int_equal(a.n_down + b.n_down, 0);
        netpeer_close(&b);
        netpeer_close(&a);
        weft_ctx_free(ctx);
    }
}

static void options_are_checked(void **state)
{
    static const struct wf_net_opts wrong[] = {{.connections = -1},
                                               {.connections = WF_MAX_CONNECTIONS + 1},
                                               {.stripe_bytes = 4095},
                                               {.stripe_bytes = (16 << 20) + 1}};
    weft_ctx *ctx = rawpair_ctx();
    struct wf_net *net;

    (void)state;
    for (int i = 0; i < WF_COUNT(wrong); i++) {
        assert_int_equal(wf_net_new(ctx, &wrong[i], &net), WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "connections of a pair"));
    }
    assert_int_equal(wf_net_new(ctx, &(struct wf_net_opts){.connections = 0}, &net), 0);
    assert_in_range(wf_net_connections(net), 1, WF_MAX_CONNECTIONS);
    wf_net_free(net);
    weft_ctx_free(ctx);
}

/* Many links share the threads of their further connections. */
static void many_links_have_few_threads(void **state)
{
    enum { LINKS = 40 };
    static struct netpeer a, b;
    struct wf_part part = {rawpair_bytes, 50000};
    struct wf_link *l[LINKS];
    weft_ctx *ctx = rawpair_ctx();
    char address[128], bound[512], task[64];
    int threads = 0;
    FILE *f;

    (void)state;
    netpeer_open_over(&a, "tcp-3", ctx, "a", (struct wf_net_opts){.spin_us = 0});
    netpeer_open_over(&b, "tcp-3", ctx, "b", (struct wf_net_opts){.spin_us = 0});
    a.echoes = a.fresh = b.fresh = true;
    assert_int_equal(wf_net_listen(a.net, netpeer_address("tcp", address), bound, sizeof bound), 0);
    for (int i = 0; i < LINKS; i++)
        assert_int_equal(wf_net_connect(b.net, bound, 20 * RAWPAIR_SECOND, &l[i]), 0);
    NETPEER_AWAIT(&a, n_up, LINKS);
    NETPEER_AWAIT(&b, n_up, LINKS);
    for (int i = 0; i < LINKS; i++)
        rawpair_await_connections(l[i], 3);
    f = fopen("/proc/self/status", "r");
    while (fgets(task, sizeof task, f))
        if (sscanf(task, "Threads: %d", &threads) == 1)
            break;
    fclose(f);
    assert_in_range(threads, 7, 7 + 6); /* this one, two nodes with two carriers each, and those
                                         * of libuv and of sanitizers */
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < LINKS; i++)
            assert_int_equal(wf_link_call(l[i], &(struct wf_msg){.part = &part, .n_parts = 1},
                                          20 * RAWPAIR_SECOND, NULL, netpeer_replied, &b, NULL),
                             0);
        NETPEER_AWAIT(&b, n_replies, (k + 1) * LINKS);
    }
    assert_int_equal(a.n_down + b.n_down, 0);
    netpeer_close(&b);
    netpeer_close(&a);
    weft_ctx_free(ctx);
}

/* ---- further connections that cannot be made
 * -------------------------------------------------- */

static struct wf_sys few;
static _Atomic int n_sockets;

static int few_sockets(void *arg, int family, int type, int protocol)
{
    (void)arg;
    return ++n_sockets > 2 ? -EMFILE : wf_sys_posix.socket(NULL, family, type, protocol);
}

/* The link is up, and has one connection. */
static void a_link_does_without(void **state)
{
    static struct netpeer a, b;
    struct wf_part part = {rawpair_bytes, 100000};
    weft_ctx *ctx = rawpair_ctx(), *poor = rawpair_ctx();
    struct wf_link *l;
    char address[128], bound[512];

    (void)state;
    few = wf_sys_posix;
    few.socket = few_sockets;
    n_sockets = 0;
    poor->sys = &few;
    netpeer_open_over(&a, "tcp-4", ctx, "a", (struct wf_net_opts){.spin_us = 0});
    netpeer_open_over(&b, "tcp-4", poor, "b", (struct wf_net_opts){.spin_us = 0});
    a.echoes = a.fresh = b.fresh = true;
    assert_int_equal(wf_net_listen(a.net, netpeer_address("tcp", address), bound, sizeof bound), 0);
    assert_int_equal(wf_net_connect(b.net, bound, 20 * RAWPAIR_SECOND, &l), 0);
    NETPEER_AWAIT(&b, n_up, 1);
    for (int i = 0; i < 5000 && n_sockets < 4; i++)
        usleep(1000);
    for (int k = 0; k < 20; k++) {
        assert_int_equal(wf_link_call(l, &(struct wf_msg){.part = &part, .n_parts = 1},
                                      20 * RAWPAIR_SECOND, NULL, netpeer_replied, &b, NULL),
                         0);
        NETPEER_AWAIT(&b, n_replies, k + 1);
        assert_int_equal(b.reply_status, 0);
    }
    assert_int_equal(wf_link_connections(l), 1);
    assert_int_equal(a.n_down + b.n_down, 0);
    netpeer_close(&b);
    netpeer_close(&a);
    weft_ctx_free(poor);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stripes_arrive_in_any_order),
        cmocka_unit_test(the_smaller_number_counts),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(many_links_have_few_threads),
        cmocka_unit_test(a_link_does_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
