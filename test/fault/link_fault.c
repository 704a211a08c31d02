/* link_fault.c - links and regions while calls of the system and allocations fail, each in turn:
 * they are made, shared, sent, answered in and released. Whatever fails, each message that was
 * accepted ends (with its slot released, or with its link), nothing leaks or hangs, and the errors
 * say what was wrong. */
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

#include "../support/counting.h"
#include "../support/faultsys.h"
#include "../support/netpeer.h"

#define SECOND 1000000000ll
enum { BYTES = 20000, MESSAGES = 3 };

struct pair {
    weft_ctx *ctx;
    struct counting count;
    struct faultsys sys;
    struct netpeer a, b;
    struct wf_region *memory;
    int n_accepted, n_asked;
    int64_t timeout; /* of the request: without memory nobody answers it */
};

static void open_nodes(struct pair *p, const char *member, int64_t timeout, char bound[512])
{
    struct wf_net_opts opts = {.silence_ns = 12 * SECOND / 5, .stall_ns = 5 * SECOND};
    weft_allocator allocator;
    char address[128];

    memset(p, 0, sizeof *p);
    p->timeout = timeout;
    allocator = counting_allocator(&p->count);
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator), &p->ctx), 0);
    faultsys_init(&p->sys);
    p->ctx->sys = &p->sys.sys;
    netpeer_open_over(&p->a, member, p->ctx, "server/0", opts);
    netpeer_open_over(&p->b, member, p->ctx, "worker/1", opts);
    p->b.echoes = true;
    assert_int_equal(wf_net_listen(p->a.net, netpeer_address(member, address), bound, 512), 0);
}

static void open_pair(struct pair *p, const char *member, int64_t timeout)
{
    struct wf_link *l;
    char bound[512];

    open_nodes(p, member, timeout, bound);
    assert_int_equal(wf_net_connect(p->b.net, bound, 20 * SECOND, &l), 0);
    NETPEER_AWAIT(&p->a, n_up, 1);
    NETPEER_AWAIT(&p->b, n_up, 1);
    for (int i = 0; i < 20000 && wf_link_connections(l) < wf_net_connections(p->b.net); i++)
        usleep(1000);
}

static void close_pair(struct pair *p, const char *when)
{
    netpeer_close(&p->b);
    netpeer_close(&p->a);
    wf_region_drop(p->memory);
    weft_ctx_free(p->ctx);
    if (p->count.n_live || p->sys.n_open)
        fail_msg("%s: %lld blocks and %lld descriptors are left", when, (long long)p->count.n_live,
                 (long long)p->sys.n_open);
}

/* One thing fails in a run, so that the second try succeeds, or the link has ended. */
static bool did(struct pair *p, weft_status st, const char *when)
{
    if (st && !*weft_error())
        fail_msg("%s: no reason is given", when);
    return st == WEFT_OK || p->a.n_down > 0 || strstr(weft_error(), "the link is down") ||
           strstr(weft_error(), "not up");
}

static struct wf_region *make_region(struct pair *p, const char *when)
{
    struct wf_region *r = NULL;

    if (!did(p, wf_region_new(p->a.link, BYTES, true, &r), when) &&
        !did(p, wf_region_new(p->a.link, BYTES, true, &r), when))
        fail_msg("%s: no region: %s", when, weft_error());
    return r;
}

static struct wf_region *make_alias(struct pair *p, const char *when)
{
    struct wf_region *r = NULL;

    if (!did(p, wf_region_memory(p->ctx, BYTES, true, &p->memory), when) &&
        !did(p, wf_region_memory(p->ctx, BYTES, true, &p->memory), when))
        fail_msg("%s: no memory: %s", when, weft_error());
    if (p->memory && !did(p, wf_region_alias(p->a.link, p->memory, &r), when) &&
        !did(p, wf_region_alias(p->a.link, p->memory, &r), when))
        fail_msg("%s: no other region of it: %s", when, weft_error());
    return r;
}

static void share(struct pair *p, struct wf_region *r, const char *when)
{
    if (r && !did(p, wf_region_share(p->a.link, r), when) &&
        !did(p, wf_region_share(p->a.link, r), when))
        fail_msg("%s: a region cannot be shared: %s", when, weft_error());
}

static void send_in(struct pair *p, const struct wf_region *r, bool asks, const char *when)
{
    struct wf_part part = {r ? r->p : NULL, BYTES};
    const struct wf_msg m = {.kind = 5, .part = &part, .n_parts = 1};

    for (int i = 0; i < 2 && r; i++) {
        weft_status st = asks ? wf_link_call(p->a.link, &m, p->timeout, netpeer_sent,
                                             netpeer_replied, &p->a, NULL)
                              : wf_link_send(p->a.link, &m, netpeer_sent, &p->a);

        p->n_accepted += st == WEFT_OK;
        p->n_asked += asks && st == WEFT_OK;
        if (st == WEFT_OK)
            return;
        assert_true(*weft_error());
    }
    if (r && !did(p, WEFT_ENOMEM, when))
        fail_msg("%s: a message is refused: %s", when, weft_error());
}

static void await_end(struct pair *p, const char *when)
{
    int n = 0;

    for (int i = 0; i < 25000; i++) {
        n = p->a.n_sent + p->a.n_unsent;
        if (n == p->n_accepted && p->a.n_replies == p->n_asked)
            break;
        usleep(1000);
    }
    if (n != p->n_accepted || p->a.n_replies != p->n_asked)
        fail_msg("%s: %d of %d messages have ended, %d of %d requests", when, n, p->n_accepted,
                 p->a.n_replies, p->n_asked);
}

/* What has arrived is what was sent. */
static void check_bytes(struct pair *p, const struct wf_region *r, const char *when)
{
    for (int i = 0; i < p->b.n_received; i++)
        if (p->b.message[i].n_payload != BYTES)
            fail_msg("%s: %lld bytes", when, (long long)p->b.message[i].n_payload);
    if (r && p->b.n_regions && memcmp(p->b.region[0]->p, r->p, BYTES) != 0)
        fail_msg("%s: other bytes", when);
}

static void run(struct pair *p, const char *when)
{
    struct wf_region *r = make_region(p, when), *alias = NULL;
    struct wf_queues q;

    for (int i = 0; r && i < BYTES; i++)
        ((uint8_t *)r->p)[i] = (uint8_t)(i * 7 + (i >> 8));
    share(p, r, when);
    for (int i = 0; i < MESSAGES; i++)
        send_in(p, r, false, when);
    send_in(p, r, true, when);
    alias = p->a.n_down ? NULL : make_alias(p, when);
    share(p, alias, when);
    send_in(p, alias, false, when);
    wf_net_queues(p->b.net, &q);
    assert_true(q.receive_bytes >= 0 && q.receive_messages >= 0);
    await_end(p, when);
    if (p->a.n_sent == MESSAGES + 2) /* the link has not ended before all were sent */
        check_bytes(p, r, when);
    if (p->a.n_down && (!strstr(p->a.why, "worker/1 (") || !strstr(p->a.why, "): ")))
        fail_msg("%s: the error is '%s'", when, p->a.why);
    wf_region_drop(r);
    wf_region_drop(alias);
}

/* ---- the loops ------------------------------------------------------------------------------- */

static void no_fault(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct pair p;

        open_pair(&p, netpeer_members[t], 20 * SECOND);
        run(&p, netpeer_members[t]);
        assert_int_equal(p.a.n_sent, MESSAGES + 2);
        assert_int_equal(p.a.reply_status, 0);
        assert_int_equal(p.a.n_down + p.b.n_down, 0);
        close_pair(&p, netpeer_members[t]);
    }
}

static void every_call_may_fail(void **state)
{
    static const char *const members[] = {"shm", "tcp"};

    (void)state;
    for (int t = 0; t < WF_COUNT(members); t++)
        for (int64_t n = 1, any = 1; any; n++)
            for (int which = 0, failed = 1; which < faultsys_max_errors() && failed; which++) {
                static struct pair p;
                char when[128];

                open_pair(&p, members[t], SECOND / 2);
                p.sys.which = which;
                p.sys.fail_at = p.sys.n_calls + n;
                snprintf(when, sizeof when, "%s, call %lld fails with error %d", members[t],
                         (long long)n, which);
                run(&p, when);
                any = p.sys.n_calls >= p.sys.fail_at;
                failed = p.sys.happened;
                if (failed)
                    snprintf(when, sizeof when, "%s, call %lld (%s) fails with error %d",
                             members[t], (long long)n, p.sys.what, p.sys.error);
                close_pair(&p, when);
            }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        for (int64_t n = 1, any = 1; any; n++) {
            static struct pair p;
            char when[128];

            open_pair(&p, netpeer_members[t], SECOND / 2);
            p.count.fail_at = __atomic_load_n(&p.count.n_allocs, __ATOMIC_RELAXED) + n;
            snprintf(when, sizeof when, "%s, allocation %lld fails", netpeer_members[t],
                     (long long)n);
            run(&p, when);
            any = __atomic_load_n(&p.count.n_allocs, __ATOMIC_RELAXED) >= p.count.fail_at;
            close_pair(&p, when);
        }
}

/* One link, or why there is none. */
static bool connect_once(struct pair *p, const char *bound, const char *when)
{
    int up = p->b.n_up, down = p->b.n_down;
    struct wf_link *l;

    if (wf_net_connect(p->b.net, bound, 20 * SECOND, &l)) {
        assert_true(*weft_error());
        return false;
    }
    for (int i = 0; i < 25000 && p->b.n_up == up && p->b.n_down == down; i++)
        usleep(1000);
    if (p->b.n_up == up && p->b.n_down == down)
        fail_msg("%s: nobody says what became of a link", when);
    if (p->b.n_down > down && !strstr(p->b.why, ": "))
        fail_msg("%s: the error is '%s'", when, p->b.why);
    return p->b.n_up > up;
}

/* Of three links one may fail, at either end, and perhaps after it is up. */
static void every_allocation_of_a_new_link_may_fail(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        for (int64_t n = 1, any = 1; any; n++) {
            char bound[512], when[128];
            static struct pair p;
            int made = 0;

            open_nodes(&p, netpeer_members[t], SECOND, bound);
            p.count.fail_at = __atomic_load_n(&p.count.n_allocs, __ATOMIC_RELAXED) + n;
            snprintf(when, sizeof when, "%s, allocation %lld of new links fails",
                     netpeer_members[t], (long long)n);
            for (int i = 0; i < 3; i++)
                made += connect_once(&p, bound, when);
            if (made < 2)
                fail_msg("%s: %d of 3 links: %s", when, made, p.b.why);
            any = __atomic_load_n(&p.count.n_allocs, __ATOMIC_RELAXED) >= p.count.fail_at;
            close_pair(&p, when);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fault),
        cmocka_unit_test(every_allocation_of_a_new_link_may_fail),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
