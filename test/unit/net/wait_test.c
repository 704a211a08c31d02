/* wait_test.c - threads that wait: they see to what arrives themselves, over every transport; alone
 * and side by side, asleep, spinning and attending; and every wait ends. */
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

struct pair {
    weft_ctx *ctx;
    struct netpeer server, client;
    struct wf_link *link; /* the client's */
};

static void open_pair(struct pair *p, const char *transport, struct wf_net_opts opts)
{
    char address[128], bound[512];

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &p->ctx), 0);
    netpeer_open_over(&p->server, transport, p->ctx, "server/0", opts);
    netpeer_open_over(&p->client, transport, p->ctx, "worker/1", opts);
    p->server.echoes = true;
    assert_int_equal(
        wf_net_listen(p->server.net, netpeer_address(transport, address), bound, sizeof bound), 0);
    assert_int_equal(wf_net_connect(p->client.net, bound, 20 * SECOND, &p->link), 0);
    NETPEER_AWAIT(&p->client, n_up, 1);
    NETPEER_AWAIT(&p->server, n_up, 1);
}

static void close_pair(struct pair *p)
{
    netpeer_close(&p->client);
    netpeer_close(&p->server);
    weft_ctx_free(p->ctx);
}

/* ---- one request ----------------------------------------------------------------------------- */

struct call {
    _Atomic int status; /* 1: it waits */
    uint32_t kind;      /* of the answer */
};

static void on_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct call *c = arg;

    c->kind = m ? m->kind : 0;
    c->status = st;
}

static bool is_answered(void *arg)
{
    const struct call *c = arg;

    return c->status != 1;
}

static void ask(struct wf_net *net, struct wf_link *l, uint32_t kind)
{
    struct call c = {.status = 1};

    if (wf_link_call(l, &(struct wf_msg){.kind = kind}, 20 * SECOND, NULL, on_reply, &c, NULL) ||
        wf_net_wait(net, is_answered, &c, 30 * SECOND, "an answer") || c.status || c.kind != kind) {
        fprintf(stderr, "request %u: %d, kind %u: %s\n", (unsigned)kind, c.status, (unsigned)c.kind,
                weft_error());
        abort();
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void answers_come_to_a_thread_that_sleeps_spins_or_attends(void **state)
{
    static struct pair p;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        for (int spin = 0; spin <= 50; spin += 50) {
            open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = spin});
            for (uint32_t i = 1; i <= 300; i++) {
                if (i == 100)
                    wf_net_attend(p.client.net);
                if (i == 200)
                    wf_net_leave(p.client.net);
                ask(p.client.net, p.link, i);
            }
            close_pair(&p);
        }
}

struct asker {
    struct pair *p;
    uint32_t first;
    bool attends;
};

static void *ask_many(void *arg)
{
    const struct asker *a = arg;

    if (a->attends)
        wf_net_attend(a->p->client.net);
    for (uint32_t i = 0; i < 150; i++)
        ask(a->p->client.net, a->p->link, a->first + i);
    if (a->attends)
        wf_net_leave(a->p->client.net);
    return NULL;
}

/* Whoever of them is told of an arrival, the one that waits for it learns it. */
static void several_threads_wait_side_by_side(void **state)
{
    static struct pair p;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        for (int attend = 0; attend < 2; attend++) {
            pthread_t thread[4];
            struct asker asker[4];

            open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
            for (int i = 0; i < 4; i++) {
                asker[i] = (struct asker){&p, 1000 * (uint32_t)(i + 1), attend && i == 0};
                assert_int_equal(pthread_create(&thread[i], NULL, ask_many, &asker[i]), 0);
            }
            for (int i = 0; i < 4; i++)
                pthread_join(thread[i], NULL);
            NETPEER_AWAIT(&p.server, n_received, 600);
            close_pair(&p);
        }
}

struct waiter {
    struct pair *p;
    struct call call;
    weft_status st;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;

    w->st = wf_net_wait(w->p->client.net, is_answered, &w->call, 20 * SECOND, "an answer");
    return NULL;
}

enum end { DEADLINE, CANCEL, CLOSE, PEER_GONE };

/* A request that nobody answers, while a thread sleeps for it. */
static void end_by(const char *transport, enum end end, int spin_us)
{
    static struct pair p;
    struct waiter w = {.p = &p, .call = {.status = 1}, .st = 1};
    pthread_t thread;
    uint64_t id;

    open_pair(&p, transport, (struct wf_net_opts){.spin_us = spin_us});
    p.server.echoes = false;
    assert_int_equal(wf_link_call(p.link, &(struct wf_msg){.kind = 7},
                                  end == DEADLINE ? SECOND / 20 : 0, NULL, on_reply, &w.call, &id),
                     0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &w), 0);
    usleep(20000);
    if (end == CANCEL)
        wf_link_cancel(p.link, id);
    else if (end == CLOSE)
        wf_link_close(p.link);
    else if (end == PEER_GONE)
        netpeer_close(&p.server);
    pthread_join(thread, NULL);
    assert_int_equal(w.st, 0);
    if (end == DEADLINE)
        assert_int_equal(w.call.status, WEFT_ETIME);
    else if (end == CANCEL)
        assert_int_equal(w.call.status, WEFT_ECANCEL);
    else
        assert_int_equal(w.call.status, WEFT_EPEER);
    if (end == PEER_GONE)
        netpeer_open(&p.server, p.ctx, "server/1", (struct wf_net_opts){.spin_us = 0});
    close_pair(&p);
}

static void every_wait_ends(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        for (int end = DEADLINE; end <= PEER_GONE; end++)
            for (int spin = 0; spin <= 100000; spin += 100000)
                end_by(netpeer_members[t], (enum end)end, spin);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void a_wait_that_takes_too_long_says_so(void **state)
{
    static struct pair p;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        assert_int_equal(wf_net_wait(p.client.net, never, NULL, SECOND / 50, "the moon"),
                         WEFT_ETIME);
        assert_non_null(strstr(weft_error(), "the moon"));
        close_pair(&p);
    }
}

/* ---- deadlines ------------------------------------------------------------------------------- */

enum { IN_TIME = 3, TRIES = 12, DUE_IN = 21000000, MAX_LATE = 50000000 };
enum manner { ASLEEP, ATTENDING, POLLING_ONCE, LEAVING, BESIDE, N_MANNERS };
static const char *const manners[N_MANNERS] = {"asleep", "attending", "polling once", "leaving",
                                               "beside another thread"};

/* Until the deadline has been told, by whichever thread. */
static void await_deadline(struct pair *p, struct call *c, enum manner manner)
{
    if (manner == ASLEEP || manner == ATTENDING || manner == BESIDE)
        assert_int_equal(wf_net_wait(p->client.net, is_answered, c, 20 * SECOND, "the end"), 0);
    if (manner == POLLING_ONCE)
        for (int i = 0; i < 3000; i++)
            wf_net_poll(p->client.net);
    if (manner == LEAVING)
        assert_int_equal(wf_net_wait(p->client.net, never, NULL, SECOND / 500, "the moon"),
                         WEFT_ETIME);
    for (int i = 0; i < 20000 && c->status == 1; i++) /* no thread of the test sees to anything */
        usleep(1000);
    assert_int_equal(c->status, WEFT_ETIME);
}

/* How late the deadline of a request is that is set while the node's thread sleeps; not a multiple
 * of the ticks, which begin with it. */
static int64_t measure_lateness(struct pair *p, enum manner manner)
{
    struct call c = {.status = 1};
    int64_t due;

    if (manner == ATTENDING || manner == POLLING_ONCE)
        wf_net_attend(p->client.net);
    usleep(20000); /* until the node's thread sleeps */
    due = wf_now(p->ctx) + DUE_IN;
    assert_int_equal(
        wf_link_call(p->link, &(struct wf_msg){.kind = 7}, DUE_IN, NULL, on_reply, &c, NULL), 0);
    await_deadline(p, &c, manner);
    due = wf_now(p->ctx) - due;
    if (manner == ATTENDING || manner == POLLING_ONCE)
        wf_net_leave(p->client.net);
    return due;
}

static void check_lateness(struct pair *p, const char *member, enum manner manner)
{
    struct waiter other = {.p = p, .call = {.status = 1}};
    pthread_t thread;
    int n_in_time = 0, n = 0;

    if (manner == BESIDE)
        assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &other), 0);
    for (; n < TRIES && n_in_time < IN_TIME; n++) {
        int64_t late = measure_lateness(p, manner);

        assert_true(late >= 0);
        n_in_time += late < MAX_LATE;
    }
    other.call.status = 0;
    if (manner == BESIDE)
        pthread_join(thread, NULL);
    if (n_in_time < IN_TIME)
        fail_msg("%s, %s: %d of %d deadlines were late by less than 0.05 s", member,
                 manners[manner], n_in_time, n);
}

/* Whoever takes the node's work from its thread takes care of the time, too. The machine may be
 * busy: then more are tried. */
static void deadlines_fire_in_time(void **state)
{
    static struct pair p;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.silence_ns = 240 * SECOND});
        p.server.echoes = false;
        for (int m = 0; m < N_MANNERS; m++)
            check_lateness(&p, netpeer_members[t], (enum manner)m);
        close_pair(&p);
    }
}

/* Who attends and does not look keeps nobody from being served. */
static void an_attended_node_serves_others(void **state)
{
    static struct pair p;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        /* read with the tick, a 12th of silence */
        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.silence_ns = 6 * SECOND / 5});
        ask(p.client.net, p.link, 1);
        wf_net_attend(p.server.net);
        for (uint32_t i = 2; i < 6; i++)
            ask(p.client.net, p.link, i);
        wf_net_leave(p.server.net);
        ask(p.client.net, p.link, 6);
        close_pair(&p);
    }
}

/* A thread that polls in between its own work. */
static void polling_reads_what_has_arrived(void **state)
{
    static struct pair p;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct call c = {.status = 1};
        int64_t n = 0;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        wf_net_attend(p.client.net);
        assert_int_equal(
            wf_link_call(p.link, &(struct wf_msg){.kind = 3}, 0, NULL, on_reply, &c, NULL), 0);
        while (c.status == 1 && n++ < 100000000)
            wf_net_poll(p.client.net);
        assert_int_equal(c.status, 0);
        wf_net_leave(p.client.net);
        close_pair(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_to_a_thread_that_sleeps_spins_or_attends),
        cmocka_unit_test(several_threads_wait_side_by_side),
        cmocka_unit_test(every_wait_ends),
        cmocka_unit_test(a_wait_that_takes_too_long_says_so),
        cmocka_unit_test(deadlines_fire_in_time),
        cmocka_unit_test(an_attended_node_serves_others),
        cmocka_unit_test(polling_reads_what_has_arrived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
