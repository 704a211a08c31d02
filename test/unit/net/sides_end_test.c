/* sides_end_test.c - several connections a pair: one of them dies at every byte, falls silent,
 * or takes nothing. */
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

#include "support/rawpair.h"

static const char *const transports[] = {"tcp", "tls"};

/* Every byte; where a test is to be quick, over tls, whose handshakes take long, some of them. */
static int step_of(const char *transport)
{
    return strcmp(transport, "tls") == 0 && getenv("WEFT_TEST_QUICK") ? 13 : 1;
}

/* One of the further connections is cut at every byte of the frames, and some of the payloads. */
static void side_dies_over(const char *transport)
{
    static uint8_t stream[4 * RAWPAIR_STRIPE + 1024];
    static struct rawpair_scene s;
    int64_t n = 0, ends[4] = {0}, step = step_of(transport);

    for (int k = 0; k < 3; k++) {
        n += rawpair_stripe_frame(stream + n, 1, k * RAWPAIR_STRIPE,
                                  wf_min_i64(RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - k * RAWPAIR_STRIPE));
        ends[k + 1] = n;
    }
    rawpair_scene_open(&s, transport, (struct wf_net_opts){.spin_us = 0});
    for (int64_t cut = 0; cut <= n; cut += step) {
        int before = s.node.n_down, received = s.node.n_received;
        struct rawpair p;

        for (int k = 0; k < 3; k++) /* within a payload */
            if (cut > ends[k] + 60 && cut < ends[k + 1] - 8 && cut % 397)
                cut += wf_min_i64(397 - cut % 397, ends[k + 1] - 8 - cut);
        rawpair_open(&s, &p, "raw");
        for (int k = 0; k < 2; k++)
            rawpair_attach(&s, &p, "raw");
        rawpair_message(&p);
        rawpeer_send(&p.side[cut % 2], stream, cut);
        if (cut == n) /* a message of several connections may be lost with one of them */
            NETPEER_AWAIT(&s.node, n_received, received + 1);
        rawpeer_close(&p.side[cut % 2]);
        if (cut % 3) /* the process dies, or one connection alone */
            rawpair_close(&p);
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        assert_int_equal(s.node.down_status, WEFT_EPEER);
        assert_non_null(strstr(s.node.why, "raw ("));
        assert_int_equal(s.node.n_received - received, cut == n);
        rawpair_close(&p);
    }
    rawpair_scene_close(&s);
}

static void a_side_may_die_at_every_byte(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        side_dies_over(transports[t]);
}

/* And the first connection, while all stripes are there. */
static void first_dies_over(const char *transport)
{
    uint8_t stream[1024];
    static struct rawpair_scene s;
    int64_t first = rawpair_striped_frame(stream, RAWPAIR_PAYLOAD), n = first,
            step = step_of(transport);

    n += rawpeer_frame(
        stream + n,
        &(struct wf_frame){.type = WF_FRAME_MESSAGE, .flags = WF_FRAME_SUMMED, .n_payload = 100},
        NULL, rawpair_bytes);
    rawpair_scene_open(&s, transport, (struct wf_net_opts){.spin_us = 0});
    for (int64_t cut = 0; cut <= n; cut += step) {
        int before = s.node.n_down, received = s.node.n_received;
        struct rawpair p;

        rawpair_open(&s, &p, "raw");
        for (int k = 0; k < 2; k++)
            rawpair_attach(&s, &p, "raw");
        for (int k = 0; k < 3; k++)
            rawpair_stripe(&p, k % 2, 1, k * RAWPAIR_STRIPE,
                           wf_min_i64(RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - k * RAWPAIR_STRIPE));
        rawpeer_send(&p.main, stream, cut);
        NETPEER_AWAIT(&s.node, n_received, received + (cut >= first) + (cut == n));
        rawpeer_close(&p.main);
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        assert_int_equal(s.node.down_status, WEFT_EPEER);
        assert_int_equal(s.node.n_received - received, (cut >= first) + (cut == n));
        rawpair_close(&p);
    }
    rawpair_scene_close(&s);
}

static void the_first_may_die_at_every_byte(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        first_dies_over(transports[t]);
}

/* Silent within a message, without an end. */
static void silent_over(const char *transport)
{
    static struct rawpair_scene s;
    struct rawpair p;
    int before;

    rawpair_scene_open(
        &s, transport,
        (struct wf_net_opts){.silence_ns = RAWPAIR_SECOND / 2, .stall_ns = RAWPAIR_SECOND / 2});
    for (int k = 0; k < 2; k++) {
        before = s.node.n_down;
        rawpair_open(&s, &p, "raw");
        for (int i = 0; i < 2; i++)
            rawpair_attach(&s, &p, "raw");
        if (k == 1) {
            rawpair_message(&p);
            rawpair_stripe(&p, 0, 1, 0, RAWPAIR_STRIPE);
        }
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        assert_int_equal(s.node.down_status, WEFT_ETIME);
        assert_non_null(strstr(s.node.why, "raw ("));
        assert_non_null(strstr(s.node.why, "nothing was heard for"));
        rawpair_close(&p);
    }
    rawpair_scene_close(&s);
}

static void half_open_pairs_are_noticed(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        silent_over(transports[t]);
}

/* It takes what comes over the first connection, and nothing of the others. */
static void stalled_over(const char *transport)
{
    static struct rawpair_scene s;
    struct rawpair p;
    int before, n = 0;
    uint8_t *large = calloc(1, 64 << 20), pong[64];
    struct wf_part part = {large, 64 << 20};

    rawpair_scene_open(&s, transport, (struct wf_net_opts){.stall_ns = RAWPAIR_SECOND / 2});
    before = s.node.n_down;
    rawpair_open(&s, &p, "raw");
    for (int i = 0; i < 2; i++)
        rawpair_attach(&s, &p, "raw");
    rawpair_await_connections(s.node.link, 3);
    assert_int_equal(wf_link_send(s.node.link, &(struct wf_msg){.part = &part, .n_parts = 1},
                                  netpeer_sent, &s.node),
                     0);
    while (s.node.n_down == before && n++ < 4000) {
        int64_t k =
            rawpeer_frame(pong, &(struct wf_frame){.type = WF_FRAME_PONG, .id = 1}, NULL, NULL);

        rawpeer_send(&p.main, pong, k);
        usleep(5000);
    }
    assert_int_equal(s.node.n_down, before + 1);
    assert_int_equal(s.node.down_status, WEFT_ETIME);
    assert_non_null(strstr(s.node.why, "took no byte of 1 messages"));
    assert_int_equal(s.node.n_unsent, 1);
    free(large);
    rawpair_close(&p);
    rawpair_scene_close(&s);
}

static void a_peer_that_takes_no_stripe_is_stalled(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        stalled_over(transports[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_side_may_die_at_every_byte),
        cmocka_unit_test(the_first_may_die_at_every_byte),
        cmocka_unit_test(half_open_pairs_are_noticed),
        cmocka_unit_test(a_peer_that_takes_no_stripe_is_stalled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
