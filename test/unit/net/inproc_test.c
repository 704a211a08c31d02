/* inproc_test.c - nodes of one context, and the network of a simulation: nodes without threads, a
 * clock that the test owns, and frames that are delayed, held and cut. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

#include "support/counting.h"
#include "support/netpeer.h"

#define SECOND 1000000000ll
#define MS 1000000ll

/* ---- a world --------------------------------------------------------------------------------- */

enum { NODES = 4 };

struct world {
    weft_ctx *ctx;
    struct counting count;
    int64_t now;
    struct netpeer node[NODES];
    int n_nodes;
    /* the network */
    int64_t delay_ns;  /* of every frame */
    uint64_t jitter;   /* seed of a further delay, up to delay_ns; 0: none */
    int apart;         /* bits: nodes that nothing goes to or comes from */
    bool cut;          /* every link that carries something */
    uint64_t trace;    /* hash of all that passed, and when */
    int64_t n_passing; /* frames that were let through */
};

static int64_t world_now(void *arg)
{
    return ((struct world *)arg)->now;
}

static int number_of(const struct wf_identity *who)
{
    return who->name[0] - '0';
}

static int64_t pass(void *arg, const struct wf_transit *t)
{
    struct world *w = arg;
    int from = number_of(t->from), to = number_of(t->to);
    int64_t due = t->queued_ns + w->delay_ns;

    if (w->cut)
        return WF_TRANSIT_CUT;
    if (w->apart >> from & 1 || w->apart >> to & 1)
        return t->now_ns + 1;
    if (w->jitter) {
        uint64_t key[3] = {w->jitter, (uint64_t)t->queued_ns, (uint64_t)(from * 16 + to)};

        due += (int64_t)(wf_hash64(key, sizeof key, 1) % (uint64_t)w->delay_ns);
    }
    if (due <= t->now_ns) {
        uint64_t key[4] = {w->trace, (uint64_t)t->now_ns, (uint64_t)(from * 16 + to),
                           (uint64_t)t->frame->type << 32 | t->frame->kind};

        w->trace = wf_hash64(key, sizeof key, 2);
        w->n_passing++;
    }
    return due;
}

static void open_world(struct world *w, int n_nodes, struct wf_net_opts opts)
{
    weft_allocator allocator;

    memset(w, 0, sizeof *w);
    w->now = SECOND;
    w->n_nodes = n_nodes;
    allocator = counting_allocator(&w->count);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator,
                                            .now_ns = world_now, .now_arg = w),
                                  &w->ctx),
                     0);
    assert_int_equal(wf_inproc_transit(w->ctx, pass, w), 0);
    opts.manual = true;
    for (int i = 0; i < n_nodes; i++) {
        char name[8] = {(char)('0' + i), 0}, address[32];

        opts.self.incarnation = (uint64_t)i + 1;
        netpeer_open(&w->node[i], w->ctx, name, opts);
        snprintf(address, sizeof address, "inproc:%d", i);
        assert_int_equal(wf_net_listen(w->node[i].net, address, NULL, 0), 0);
    }
}

static void close_world(struct world *w)
{
    for (int i = 0; i < w->n_nodes; i++)
        netpeer_close(&w->node[i]);
    weft_ctx_free(w->ctx);
    assert_int_equal(w->count.n_live, 0);
}

/* Until no node has anything to do; then the clock advances. */
static void run_for(struct world *w, int64_t ns, int64_t step)
{
    for (int64_t end = w->now + ns; w->now < end; w->now += step) {
        bool any = true;

        for (int turns = 0; any && turns < 1000; turns++) {
            any = false;
            for (int i = 0; i < w->n_nodes; i++)
                any |= wf_net_turn(w->node[i].net);
        }
        assert_false(any);
    }
}

static struct wf_link *join(struct world *w, int from, int to)
{
    struct wf_link *l;
    char address[32];

    snprintf(address, sizeof address, "inproc:%d", to);
    assert_int_equal(wf_net_connect(w->node[from].net, address, 10 * SECOND, &l), 0);
    return l;
}

static void send_number(struct world *w, struct wf_link *l, int from, uint32_t kind)
{
    static const uint64_t payload = 12345;
    struct wf_part part = {(void *)(uintptr_t)&payload, 8};

    assert_int_equal(wf_link_send(l, &(struct wf_msg){.kind = kind, .part = &part, .n_parts = 1},
                                  netpeer_sent, &w->node[from]),
                     0);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void a_frame_takes_as_long_as_the_network_says(void **state)
{
    static struct world w;
    struct wf_link *l;

    (void)state;
    open_world(&w, 2, (struct wf_net_opts){.silence_ns = -1, .stall_ns = -1});
    l = join(&w, 0, 1);
    run_for(&w, 10 * MS, MS);
    assert_int_equal(w.node[0].n_up + w.node[1].n_up, 2);
    w.delay_ns = 30 * MS;
    send_number(&w, l, 0, 7);
    run_for(&w, 29 * MS, MS);
    assert_int_equal(w.node[1].n_received, 0);
    assert_int_equal(w.node[0].n_sent, 0);
    run_for(&w, 2 * MS, MS);
    assert_int_equal(w.node[1].n_received, 1);
    assert_int_equal(w.node[1].message[0].kind, 7);
    assert_int_equal(w.node[0].n_sent, 1);
    close_world(&w);
}

/* Frames keep their order, however different their delays are. */
static void order_is_kept(void **state)
{
    static struct world w;
    struct wf_link *l;

    (void)state;
    open_world(&w, 2, (struct wf_net_opts){.silence_ns = -1, .stall_ns = -1});
    l = join(&w, 0, 1);
    w.delay_ns = 5 * MS;
    w.jitter = 99;
    run_for(&w, 50 * MS, MS);
    for (uint32_t k = 0; k < 500; k++) {
        send_number(&w, l, 0, k);
        run_for(&w, MS, MS);
    }
    run_for(&w, 100 * MS, MS);
    assert_int_equal(w.node[1].n_received, 500);
    for (uint32_t k = 0; k < 500; k++)
        assert_int_equal(w.node[1].message[k].kind, k);
    close_world(&w);
}

static void deadlines_are_of_the_same_clock(void **state)
{
    static struct world w;
    struct wf_link *l;

    (void)state;
    open_world(&w, 2, (struct wf_net_opts){.silence_ns = -1, .stall_ns = -1});
    w.node[1].echoes = true;
    l = join(&w, 0, 1);
    run_for(&w, 10 * MS, MS);
    w.delay_ns = 60 * MS; /* there and back: 120 */
    for (int late = 0; late < 2; late++) {
        assert_int_equal(wf_link_call(l, &(struct wf_msg){.kind = 1}, (late ? 100 : 150) * MS, NULL,
                                      netpeer_replied, &w.node[0], NULL),
                         0);
        run_for(&w, 200 * MS, MS);
        assert_int_equal(w.node[0].n_replies, late + 1);
        assert_int_equal(w.node[0].reply_status, late ? WEFT_ETIME : WEFT_OK);
    }
    assert_int_equal(w.node[0].n_down, 0);
    close_world(&w);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A partition that ends in time delays; one that does not is silence. */
static void partitions(void **state)
{
    static struct world w;
    struct wf_link *l;

    (void)state;
    open_world(&w, 3, (struct wf_net_opts){.silence_ns = 3 * SECOND, .stall_ns = 3 * SECOND});
    l = join(&w, 0, 1);
    join(&w, 0, 2);
    run_for(&w, SECOND, 10 * MS);
    assert_int_equal(w.node[0].n_up, 2);
    w.apart = 1 << 1;
    send_number(&w, l, 0, 1);
    run_for(&w, 2 * SECOND, 10 * MS);
    assert_int_equal(w.node[1].n_received, 0);
    w.apart = 0;
    run_for(&w, 10 * MS, 10 * MS);
    assert_int_equal(w.node[1].n_received, 1);
    w.apart = 1 << 1;
    run_for(&w, 4 * SECOND, 10 * MS);
    assert_int_equal(w.node[0].n_down, 1);
    assert_int_equal(w.node[0].down_status, WEFT_ETIME);
    assert_non_null(strstr(w.node[0].why, "1 (inproc:1)"));
    assert_int_equal(w.node[1].n_down, 1);
    assert_int_equal(w.node[1].down_status, WEFT_ETIME);
    assert_int_equal(w.node[2].n_down, 0); /* the others are not touched */
    /* and after it, a new link */
    w.apart = 0;
    l = join(&w, 0, 1);
    run_for(&w, SECOND, 10 * MS);
    assert_int_equal(w.node[0].n_up, 3);
    send_number(&w, l, 0, 2);
    run_for(&w, 10 * MS, 10 * MS);
    assert_int_equal(w.node[1].n_received, 2);
    close_world(&w);
}

/* A node that does not take its turns is silent to the others. */
static void a_node_may_pause(void **state)
{
    static struct world w;

    (void)state;
    open_world(&w, 3, (struct wf_net_opts){.silence_ns = 3 * SECOND});
    join(&w, 0, 2);
    join(&w, 0, 1);
    run_for(&w, SECOND, 10 * MS);
    w.n_nodes = 2; /* node 2 stops */
    run_for(&w, 4 * SECOND, 10 * MS);
    w.n_nodes = 3;
    assert_int_equal(w.node[0].n_down, 1);
    assert_int_equal(w.node[0].down_status, WEFT_ETIME);
    assert_int_equal(w.node[2].n_down, 0);
    run_for(&w, 10 * MS, 10 * MS); /* it finds its link ended */
    assert_int_equal(w.node[2].n_down, 1);
    close_world(&w);
}

static void a_link_may_be_cut(void **state)
{
    static struct world w;
    struct wf_link *l;

    (void)state;
    open_world(&w, 2, (struct wf_net_opts){.silence_ns = -1});
    l = join(&w, 0, 1);
    run_for(&w, 10 * MS, MS);
    w.cut = true;
    send_number(&w, l, 0, 1);
    run_for(&w, 10 * MS, MS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.node[i].n_down, 1);
        assert_int_equal(w.node[i].down_status, WEFT_EPEER);
    }
    assert_int_equal(w.node[1].n_received, 0);
    assert_int_equal(w.node[0].n_unsent, 1);
    close_world(&w);
}

/* ---- the same again -------------------------------------------------------------------------- */

static uint64_t play(uint64_t seed, int64_t *n_passing)
{
    static struct world w;
    struct wf_link *l[NODES] = {NULL};
    uint64_t s = seed, trace;

    open_world(&w, NODES, (struct wf_net_opts){.silence_ns = SECOND / 5, .stall_ns = SECOND / 5});
    w.delay_ns = 3 * MS;
    w.jitter = seed;
    for (int i = 1; i < NODES; i++)
        w.node[i].echoes = true;
    for (int k = 0; k < 2000; k++) {
        int to;

        s = wf_hash64(&s, sizeof s, 4);
        to = 1 + (int)(s % (NODES - 1));
        if (k % 400 == 300)
            w.apart = 1 << to;
        if (k % 400 == 399)
            w.apart = 0;
        if (!l[to] || wf_link_call(l[to], &(struct wf_msg){.kind = (uint32_t)k}, 20 * MS, NULL,
                                   netpeer_replied, &w.node[0], NULL))
            l[to] = join(&w, 0, to);
        run_for(&w, 5 * MS, MS);
    }
    for (int i = 0; i < NODES; i++) {
        uint64_t key[5] = {w.trace, (uint64_t)w.node[i].n_received, (uint64_t)w.node[i].n_down,
                           (uint64_t)w.node[i].n_replies, (uint64_t)w.node[i].n_up};

        w.trace = wf_hash64(key, sizeof key, 5);
    }
    assert_true(w.node[0].n_replies > 1000);
    assert_true(w.node[0].n_down > 0);
    trace = w.trace;
    *n_passing = w.n_passing;
    close_world(&w);
    return trace;
}

static void a_simulation_can_be_repeated(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        int64_t n[3];
        uint64_t first = play(seed, &n[0]), again = play(seed, &n[1]),
                 other = play(seed + 10, &n[2]);

        assert_true(n[0] > 3000);
        assert_int_equal(n[0], n[1]);
        assert_true(first == again);
        assert_true(first != other);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void names_belong_to_the_context(void **state)
{
    static struct world w, other;
    struct wf_link *l;
    char bound[64];

    (void)state;
    open_world(&w, 2, (struct wf_net_opts){.silence_ns = -1});
    open_world(&other, 2, (struct wf_net_opts){.silence_ns = -1}); /* the same names again */
    assert_int_equal(wf_net_listen(w.node[0].net, "inproc:1", NULL, 0), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "another node of this process listens there"));
    assert_int_equal(wf_net_listen(w.node[0].net, "inproc:", NULL, 0), WEFT_EINVAL);
    assert_int_equal(wf_net_listen(w.node[0].net, "inproc:x", bound, sizeof bound), 0);
    assert_string_equal(bound, "inproc:x");
    assert_int_equal(wf_net_connect(other.node[0].net, "inproc:x", SECOND, &l), 0);
    run_for(&other, 10 * MS, MS);
    assert_int_equal(other.node[0].n_down, 1);
    assert_non_null(strstr(other.node[0].why, "nobody listens there"));
    /* a node without a thread has no sockets, and nothing to wait for */
    assert_int_equal(wf_net_listen(w.node[0].net, "tcp:127.0.0.1:0", NULL, 0), WEFT_EINVAL);
    assert_int_equal(wf_net_connect(w.node[0].net, "shm:/tmp/x", SECOND, &l), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "inproc alone"));
    assert_int_equal(wf_net_wait(w.node[0].net, never, NULL, SECOND, "rain"), WEFT_ESTATE);
    /* names are free again */
    netpeer_close(&w.node[1]);
    w.n_nodes = 1;
    assert_int_equal(wf_net_listen(w.node[0].net, "inproc:1", NULL, 0), 0);
    close_world(&other);
    close_world(&w);
}

/* Delays hold for nodes with threads, too, by the real clock. */
static int64_t slow(void *arg, const struct wf_transit *t)
{
    (void)arg;
    return t->frame->type == WF_FRAME_MESSAGE ? t->queued_ns + 50 * MS : t->now_ns;
}

static void threads_are_delayed(void **state)
{
    static struct netpeer a, b;
    struct wf_link *l;
    weft_ctx *ctx;
    int64_t start;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(wf_inproc_transit(ctx, slow, NULL), 0);
    netpeer_open(&a, ctx, "a", (struct wf_net_opts){.spin_us = 0});
    netpeer_open(&b, ctx, "b", (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(wf_net_listen(a.net, "inproc:a", NULL, 0), 0);
    assert_int_equal(wf_net_connect(b.net, "inproc:a", SECOND, &l), 0);
    NETPEER_AWAIT(&b, n_up, 1);
    start = wf_now(ctx);
    assert_int_equal(wf_link_send(l, &(struct wf_msg){.kind = 1}, netpeer_sent, &b), 0);
    NETPEER_AWAIT(&a, n_received, 1);
    assert_true(wf_now(ctx) - start >= 50 * MS);
    netpeer_close(&b);
    netpeer_close(&a);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_takes_as_long_as_the_network_says),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(deadlines_are_of_the_same_clock),
        cmocka_unit_test(partitions),
        cmocka_unit_test(a_node_may_pause),
        cmocka_unit_test(a_link_may_be_cut),
        cmocka_unit_test(a_simulation_can_be_repeated),
        cmocka_unit_test(names_belong_to_the_context),
        cmocka_unit_test(threads_are_delayed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
