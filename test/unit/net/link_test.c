/* link_test.c - the life of a link over every member of the family: admitted or not, quiet,
 * closed in order, made again, and nothing is kept of it. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/netnode.h"

static void closing_delivers_what_was_sent(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        _Atomic int sent[2] = {0, 0};
        struct netnode a, b;

        netnode_pair(netpeer_members[t], &a, &b, (struct wf_net_opts){.spin_us = 0});
        for (int k = 0; k < 500; k++)
            netnode_send(&b, b.link, k, sent);
        wf_link_close(b.link);
        assert_int_equal(wf_link_send(b.link, &(struct wf_msg){.kind = 1}, NULL, NULL) == 0, 0);
        NETNODE_AWAIT(&a, n_down, 1);
        NETNODE_AWAIT(&b, n_down, 1);
        assert_int_equal(a.n_received, 500);
        if (a.down_status || b.down_status)
            fail_msg("%s; %s", a.why, b.why);
        assert_int_equal(wf_link_send(b.link, &(struct wf_msg){.kind = 1}, NULL, NULL), WEFT_EPEER);
        wf_link_drop(b.link);
        netnode_close(&a);
        netnode_close(&b);
        assert_int_equal(sent[0], 500);
    }
}

static void a_link_can_be_made_again_over(const char *member)
{
    struct wf_link *l;
    struct netnode a, b;

    netnode_pair(member, &a, &b, (struct wf_net_opts){.spin_us = 0});
    a.drops = b.drops = true;
    for (int i = 2; i < 30; i++) {
        wf_link_close(i % 2 ? a.link : b.link);
        NETNODE_AWAIT(&a, n_down, i - 1);
        NETNODE_AWAIT(&b, n_down, i - 1);
        assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
        NETNODE_AWAIT(&a, n_up, i);
        NETNODE_AWAIT(&b, n_up, i);
    }
    netnode_close(&b);
    netnode_close(&a);
}

static void a_link_can_be_made_again(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        a_link_can_be_made_again_over(netpeer_members[t]);
}

static void count_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    _Atomic int *n = arg; /* answers, and the last status */

    (void)m;
    n[1] = st;
    n[0]++;
}

/* Messages that were never sent are given back, once. */
static void nothing_is_kept_at_the_end(void **state)
{
    const int n = 1000; /* 60 MB: more than the system keeps for a connection */

    (void)state;
    for (int k = 0; k < 2 * NETPEER_MEMBERS; k++) {
        _Atomic int sent[2] = {0, 0};
        _Atomic int got[2] = {0, 0};
        struct netnode a, b;

        netnode_pair(netpeer_members[k / 2], &a, &b, (struct wf_net_opts){.stall_ns = -1});
        a.later = true;
        for (int i = 0; i < n; i++)
            netnode_send(&b, b.link, 6, sent);
        assert_int_equal(wf_link_call(b.link, &(struct wf_msg){.kind = 1}, NETNODE_WAIT, NULL,
                                      count_reply, got, NULL),
                         0);
        netnode_close(k % 2 ? &a : &b);
        netnode_close(k % 2 ? &b : &a);
        assert_int_equal(sent[0] + sent[1], n);
        assert_true(sent[1] > 0);
        assert_int_equal(got[0], 1);
        assert_true(got[1] < 0);
    }
}

static void reply_slowly(void *arg, weft_status st, const struct wf_msg *m)
{
    _Atomic int *called = arg;

    (void)st;
    (void)m;
    *called = 1;
    usleep(100000);
}

/* Also if its thread is in the middle of a tick: the end is not put off until the next one. */
static void a_node_ends_at_once(void **state)
{
    struct wf_net_opts opts = {.silence_ns = 240 * NETNODE_SECOND}; /* it ticks every 20 s */

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        _Atomic int called = 0;
        struct netnode a, b;
        time_t start;

        netnode_pair(netpeer_members[t], &a, &b, opts);
        assert_int_equal(wf_link_call(b.link, &(struct wf_msg){.kind = 1}, NETNODE_SECOND / 100,
                                      NULL, reply_slowly, &called, NULL),
                         0);
        for (int i = 0; i < 20000 && !called; i++) /* by its own thread: no one waits */
            usleep(1000);
        assert_int_equal(called, 1);
        start = time(NULL);
        netnode_close(&b);
        netnode_close(&a);
        assert_true(time(NULL) - start < 10);
    }
}

static void connecting_fails_with_a_reason(void **state)
{
    struct wf_link *l;
    struct netnode a;

    (void)state;
    netnode_open(&a, "tcp", "alone", (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(wf_net_connect(a.net, "tcp:127.0.0.1:1", NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&a, n_down, 1);
    assert_int_equal(a.down_status, WEFT_EPEER);
    assert_non_null(strstr(a.why, "tcp:127.0.0.1:1: connecting: Connection refused"));
    assert_int_equal(wf_net_connect(a.net, "uds:/nowhere/at/all", NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&a, n_down, 2);
    assert_non_null(strstr(a.why, "No such file"));
    assert_int_equal(wf_net_connect(a.net, "tcp:no-such-host.invalid:80", NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&a, n_down, 3);
    assert_non_null(strstr(a.why, "finding the host"));
    assert_int_equal(wf_net_connect(a.net, "tcp:localhost", NETNODE_WAIT, &l), WEFT_EINVAL);
    assert_int_equal(wf_net_connect(a.net, "tcp:::1:80", NETNODE_WAIT, &l), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "in brackets"));
    assert_int_equal(wf_net_connect(a.net, "tcp:host:65536", NETNODE_WAIT, &l), WEFT_EINVAL);
    assert_int_equal(wf_net_connect(a.net, "carrier-pigeon:7", NETNODE_WAIT, &l), WEFT_EINVAL);
    assert_int_equal(wf_net_listen(a.net, "uds:/nowhere/at/all", NULL, 0), WEFT_EIO);
    netnode_close(&a);
}

static struct sockaddr_in two[2];
static struct addrinfo both[2];

/* A name with two addresses, of which this machine has the second. */
static int two_addresses(void *arg, const char *host, const char *port,
                         const struct addrinfo *hints, struct addrinfo **out)
{
    static const char *const text[2] = {"192.0.2.1", "127.0.0.1"};

    (void)arg;
    (void)hints;
    if (strcmp(host, "two") != 0)
        return EAI_NONAME;
    for (int i = 0; i < 2; i++) {
        two[i] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
        inet_pton(AF_INET, text[i], &two[i].sin_addr);
        both[i] = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_addr = (struct sockaddr *)&two[i],
                                    .ai_addrlen = sizeof two[i],
                                    .ai_next = i ? NULL : &both[1]};
    }
    *out = both;
    return 0;
}

static void keep_addresses(void *arg, struct addrinfo *found)
{
    (void)arg;
    assert_ptr_equal(found, both);
}

/* Another listener at an address of this machine is an error, and not a reason for the next one. */
static void a_name_may_have_several_addresses(void **state)
{
    static struct wf_sys sys;
    char bound[128], again[128];
    struct wf_link *l;
    struct netnode a, b;

    (void)state;
    sys = wf_sys_posix;
    sys.getaddrinfo = two_addresses;
    sys.freeaddrinfo = keep_addresses;
    netnode_open(&a, "tcp", "server/0", (struct wf_net_opts){.spin_us = 0});
    netnode_open(&b, "tcp", "worker/1", (struct wf_net_opts){.spin_us = 0});
    a.ctx->sys = &sys;
    if (wf_net_listen(a.net, "tcp:two:0", bound, sizeof bound))
        fail_msg("%s", weft_error());
    assert_int_equal(wf_net_listen(a.net, bound, again, sizeof again), WEFT_EIO);
    assert_non_null(strstr(weft_error(), bound));
    assert_non_null(strstr(weft_error(), "in use"));
    snprintf(again, sizeof again, "tcp:127.0.0.1%s", strrchr(bound, ':'));
    assert_int_equal(wf_net_connect(b.net, again, NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&b, n_up, 1);
    netnode_close(&b);
    netnode_close(&a);
}

/* Links that are quiet but alive stay up. */
static void quiet_links_stay_up(void **state)
{
    struct wf_net_opts opts = {.silence_ns = NETNODE_SECOND, .stall_ns = NETNODE_SECOND};
    struct netnode a[NETPEER_MEMBERS], b[NETPEER_MEMBERS];

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        netnode_pair(netpeer_members[t], &a[t], &b[t], opts);
    usleep(1500000);
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        assert_int_equal(a[t].n_down + b[t].n_down, 0);
        netnode_close(&a[t]);
        netnode_close(&b[t]);
    }
}

static void those_who_are_not_admitted_are_not_up(void **state)
{
    struct wf_link *l;
    struct netnode a, b;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        const char *member = netpeer_members[t];

        netnode_open(&a, member, "server/0", (struct wf_net_opts){.spin_us = 0});
        netnode_open(&b, member, "worker/1", (struct wf_net_opts){.spin_us = 0});
        a.refuses = true;
        netnode_listen(&a, member);
        assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
        NETNODE_AWAIT(&b, n_down, 1);
        assert_int_equal(a.n_up, 0);
        assert_int_equal(a.n_down, 0);
        netnode_close(&a);
        netnode_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_delivers_what_was_sent),
        cmocka_unit_test(a_link_can_be_made_again),
        cmocka_unit_test(nothing_is_kept_at_the_end),
        cmocka_unit_test(a_node_ends_at_once),
        cmocka_unit_test(connecting_fails_with_a_reason),
        cmocka_unit_test(a_name_may_have_several_addresses),
        cmocka_unit_test(quiet_links_stay_up),
        cmocka_unit_test(those_who_are_not_admitted_are_not_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
