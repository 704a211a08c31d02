/* request_test.c - requests over every member of the family: an answer, an error that names the
 * peer, a deadline that fires, cancel, and the end of the link. */
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

#include "support/netnode.h"

/* b asks a. */
struct asking {
    struct netnode a, b;
    _Atomic int n, status;
    int64_t number; /* of the last answer */
    uint32_t crc;
    char text[256];
};

static void on_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct asking *q = arg;

    q->status = st;
    if (st) {
        snprintf(q->text, sizeof q->text, "%s", weft_error());
    } else {
        memcpy(&q->number, m->head, 8);
        q->crc = 0;
        for (int i = 0; i < m->n_parts; i++)
            q->crc = wf_crc32c(q->crc, m->part[i].p, m->part[i].n);
    }
    q->n++;
}

static uint64_t ask(struct asking *q, int64_t k, uint32_t kind, int64_t timeout)
{
    int64_t head;
    struct wf_part part[2];
    struct wf_msg m = netnode_message(k, &head, part);
    uint64_t id;

    m.kind = kind ? kind : m.kind;
    if (wf_link_call(q->b.link, &m, timeout, NULL, on_reply, q, &id))
        fail_msg("%s", weft_error());
    return id;
}

static void await_answer(struct asking *q, int n, weft_status st)
{
    netnode_await(&q->b, &q->n, n, "an answer", __LINE__);
    if (q->status != st)
        fail_msg("the answer is %d, not %d: %s", q->status, st, q->text);
}

static void each_member(void (*test)(struct asking *q))
{
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct asking q;

        memset(&q, 0, sizeof q);
        netnode_pair(netpeer_members[t], &q.a, &q.b, (struct wf_net_opts){.spin_us = 0});
        test(&q);
        netnode_close(&q.b);
    }
}

static void answered(struct asking *q)
{
    q->a.answers = true;
    for (int k = 0; k < 60; k++) {
        int64_t head;
        struct wf_part part[2];
        struct wf_msg m = netnode_message(k, &head, part);

        ask(q, k, 0, NETNODE_WAIT);
        await_answer(q, k + 1, WEFT_OK);
        assert_int_equal(q->number, k);
        assert_int_equal(q->crc, m.n_parts ? wf_crc32c(0, part[0].p, part[0].n + part[1].n) : 0);
    }
    netnode_close(&q->a);
}

static void requests_are_answered(void **state)
{
    (void)state;
    each_member(answered);
}

static void answered_with_an_error(struct asking *q)
{
    q->a.answers = true;
    ask(q, 0, 99, NETNODE_WAIT);
    await_answer(q, 1, WEFT_EDATA);
    assert_non_null(strstr(q->text, "not today"));
    assert_non_null(strstr(q->text, "server/0"));
    netnode_close(&q->a);
}

static void errors_name_who_answered(void **state)
{
    (void)state;
    each_member(answered_with_an_error);
}

/* The link is as it was: what comes next is answered. */
static void not_in_time(struct asking *q)
{
    int64_t start = wf_now(q->b.ctx);

    ask(q, 0, 0, NETNODE_SECOND / 20);
    await_answer(q, 1, WEFT_ETIME);
    assert_non_null(strstr(q->text, "server/0"));
    assert_non_null(strstr(q->text, "no answer to a request of kind 0 within 0.05 s"));
    assert_true(wf_now(q->b.ctx) - start >= NETNODE_SECOND / 20);
    q->a.answers = true;
    ask(q, 5, 0, NETNODE_WAIT);
    await_answer(q, 2, WEFT_OK);
    netnode_close(&q->a);
}

/* Of one that is over, and of one that never comes. */
static void out_of_range(struct asking *q)
{
    ask(q, 0, 0, -5 * NETNODE_SECOND);
    await_answer(q, 1, WEFT_ETIME);
    q->a.answers = true;
    ask(q, 5, 0, INT64_MAX);
    await_answer(q, 2, WEFT_OK);
    netnode_close(&q->a);
}

static void deadlines_may_be_over_or_never_come(void **state)
{
    (void)state;
    each_member(out_of_range);
}

static void deadlines_fire(void **state)
{
    (void)state;
    each_member(not_in_time);
}

static void canceled(struct asking *q)
{
    uint64_t id = ask(q, 0, 0, 0);

    wf_link_cancel(q->b.link, id);
    wf_link_cancel(q->b.link, id + 1000);
    await_answer(q, 1, WEFT_ECANCEL);
    assert_non_null(strstr(q->text, "was cancelled"));
    NETNODE_AWAIT(&q->a, n_received, 1);
    /* an answer that comes nevertheless is told to nobody */
    wf_link_reply(q->a.link, q->a.record[0].id, WEFT_OK, &(struct wf_msg){.kind = 1}, NULL, NULL);
    q->a.answers = true;
    ask(q, 5, 0, NETNODE_WAIT);
    await_answer(q, 2, WEFT_OK);
    assert_int_equal(q->number, 5);
    netnode_close(&q->a);
}

static void requests_can_be_canceled(void **state)
{
    (void)state;
    each_member(canceled);
}

static void link_ends(struct asking *q)
{
    ask(q, 0, 0, 0);
    netnode_close(&q->a);
    await_answer(q, 1, WEFT_EPEER);
    assert_non_null(strstr(q->text, "server/0"));
}

static void requests_end_with_their_link(void **state)
{
    (void)state;
    each_member(link_ends);
}

/* Asked in the moment the link is up, while its node is about to tick slowly. */
static void deadlines_do_not_wait_for_silence(void **state)
{
    struct wf_net_opts opts = {.silence_ns = 240 * NETNODE_SECOND};

    (void)state;
    for (int k = 0; k < 4 * NETPEER_MEMBERS; k++) {
        static struct asking q;
        int64_t start;

        memset(&q, 0, sizeof q);
        netnode_pair(netpeer_members[k % NETPEER_MEMBERS], &q.a, &q.b, opts);
        start = wf_now(q.b.ctx);
        ask(&q, 0, 0, NETNODE_SECOND / 1000);
        for (int i = 0; i < 15000 && !q.n; i++) /* no one waits, and so no one looks at the clock */
            usleep(1000);
        assert_true(wf_now(q.b.ctx) - start < 5 * NETNODE_SECOND);
        await_answer(&q, 1, WEFT_ETIME);
        netnode_close(&q.b);
        netnode_close(&q.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered),
        cmocka_unit_test(errors_name_who_answered),
        cmocka_unit_test(deadlines_fire),
        cmocka_unit_test(deadlines_may_be_over_or_never_come),
        cmocka_unit_test(requests_can_be_canceled),
        cmocka_unit_test(requests_end_with_their_link),
        cmocka_unit_test(deadlines_do_not_wait_for_silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
