/* sides_hostile_test.c - several connections a pair: strangers attach to nothing, and whatever
 * comes over a further connection, the worst is the end of its pair. */
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

/* A connection that is refused ends, and the pair that it named does not. */
static void expect_refused(struct rawpair_scene *s, const void *frame, int64_t n, const char *name)
{
    int down = s->node.n_down, up = s->node.n_up;
    struct rawpeer r;

    rawpeer_open(&r, s->ctx, s->address, name);
    rawpeer_send(&r, frame, n);
    rawpeer_await_end(&r);
    rawpeer_close(&r);
    assert_int_equal(s->node.n_down, down);
    assert_int_equal(s->node.n_up, up);
}

static void strangers_attach_to_nothing(void **state)
{
    static const char *const transports[] = {"tcp", "tls"};

    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++) {
        static struct rawpair_scene s;
        struct wf_attach_head h;
        struct rawpair p, other;
        uint8_t frame[256];
        int before;

        rawpair_scene_open(&s, transports[t], (struct wf_net_opts){.spin_us = 0});
        rawpair_open(&s, &p, "raw");
        rawpair_open(&s, &other, "raw");
        assert_memory_not_equal(p.head.token, other.head.token, WF_TOKEN);
        /* a guess; one bit is wrong */
        h = (struct wf_attach_head){.incarnation = RAWPEER_INCARNATION};
        expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "raw");
        for (int i = 0; i < 8 * WF_TOKEN; i += 13) {
            h = rawpair_head(&p, 0);
            h.token[i / 8] ^= (uint8_t)(1 << i % 8);
            expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "raw");
        }
        /* a stolen token: another incarnation, and over tls another certificate */
        h = rawpair_head(&p, 0);
        h.incarnation++;
        expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "raw");
        h = rawpair_head(&p, 0);
        if (t == 1)
            expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "thief");
        /* numbers that do not exist; a head that is cut off */
        for (int i = 2; i < 256; i += 127) {
            h = rawpair_head(&p, i);
            expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "raw");
        }
        expect_refused(&s, frame,
                       rawpeer_frame(frame,
                                     &(struct wf_frame){.type = WF_FRAME_ATTACH, .n_head = 3},
                                     "abc", NULL),
                       "raw");
        /* one that is attached already */
        rawpair_attach(&s, &p, "raw");
        for (int i = 0; i < 20000 && !s.node.link->sides; i++)
            usleep(1000);
        usleep(50000);
        h = rawpair_head(&p, 0);
        expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "raw");
        /* after its link is down */
        before = s.node.n_down;
        h = rawpair_head(&other, 0);
        rawpair_close(&other);
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        expect_refused(&s, frame, rawpair_attach_frame(frame, &h), "raw");
        /* the pair is as it was */
        before = s.node.n_received;
        rawpair_attach(&s, &p, "raw");
        rawpair_message(&p);
        for (int64_t at = 0; at < RAWPAIR_PAYLOAD; at += RAWPAIR_STRIPE)
            rawpair_stripe(&p, (int)(at / RAWPAIR_STRIPE) % 2, 1, at,
                           wf_min_i64(RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - at));
        NETPEER_AWAIT(&s.node, n_received, before + 1);
        rawpair_close(&p);
        NETPEER_AWAIT(&s.node, n_down, 2);
        rawpair_scene_close(&s);
    }
}

/* ---- peers that do not keep to the protocol -------------------------------------------------- */

struct wrong {
    const char *why;
    void (*send)(struct rawpair *p);
};

static void stripe_at_odd_place(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 0, 1, 100, RAWPAIR_STRIPE);
}

static void stripe_beyond_the_end(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 0, 1, 3 * RAWPAIR_STRIPE, 1);
}

static void stripe_too_long(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 1, 1, 2 * RAWPAIR_STRIPE, RAWPAIR_STRIPE);
}

static void stripe_too_short(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 1, 1, RAWPAIR_STRIPE, RAWPAIR_STRIPE - 1);
}

static void stripe_larger_than_agreed(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 0, 1, 0, 2 * RAWPAIR_STRIPE);
}

static void stripe_twice(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 0, 1, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
    rawpair_stripe(p, 0, 1, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
}

static void stripe_twice_over_both(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 0, 1, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
    rawpair_stripe(p, 1, 1, RAWPAIR_STRIPE, RAWPAIR_STRIPE);
}

static void stripe_of_the_past(struct rawpair *p)
{
    rawpair_message(p);
    for (int64_t at = 0; at < RAWPAIR_PAYLOAD; at += RAWPAIR_STRIPE)
        rawpair_stripe(p, 0, 1, at, wf_min_i64(RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - at));
    rawpair_stripe(p, 0, 1, 0, RAWPAIR_STRIPE);
}

static void damaged_stripe(struct rawpair *p)
{
    static uint8_t frame[2 * RAWPAIR_STRIPE];
    int64_t n = rawpair_stripe_frame(frame, 1, 0, RAWPAIR_STRIPE);

    frame[1000] ^= 4;
    rawpair_message(p);
    rawpeer_send(&p->side[0], frame, n);
}

static void message_on_a_side(struct rawpair *p)
{
    uint8_t frame[256];

    rawpeer_send(
        &p->side[0], frame,
        rawpeer_frame(frame, &(struct wf_frame){.type = WF_FRAME_PING, .id = 1}, NULL, NULL));
}

static void payload_on_a_side(struct rawpair *p)
{
    uint8_t frame[256];

    rawpeer_send(&p->side[0], frame,
                 rawpeer_frame(frame,
                               &(struct wf_frame){.type = WF_FRAME_MESSAGE, .n_payload = 100}, NULL,
                               rawpair_bytes));
}

static void garbage_on_a_side(struct rawpair *p)
{
    const char text[] = "GET / HTTP/1.1\r\nHost: somebody.example.org\r\nAccept: */*\r\n";

    rawpeer_send(&p->side[1], text, sizeof text);
}

static void stripe_on_the_first(struct rawpair *p)
{
    static uint8_t frame[2 * RAWPAIR_STRIPE];

    rawpeer_send(&p->main, frame, rawpair_stripe_frame(frame, 1, 0, RAWPAIR_STRIPE));
}

static void attach_on_the_first(struct rawpair *p)
{
    uint8_t frame[256];
    struct wf_attach_head h = rawpair_head(p, 1);

    rawpeer_send(&p->main, frame, rawpair_attach_frame(frame, &h));
}

static void confirmed_twice(struct rawpair *p)
{
    rawpair_confirm(p);
}

static void confirmed_with_another_token(struct rawpair *p)
{
    p->head.token[3]++;
    rawpair_confirm(p);
}

static void side_closed(struct rawpair *p)
{
    rawpeer_close(&p->side[1]);
}

static void side_closed_within_a_message(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 1, 1, 0, RAWPAIR_STRIPE);
    rawpeer_send(&p->side[0], "weft", 4);
    rawpeer_close(&p->side[0]);
}

static void all_closed_within_a_message(struct rawpair *p)
{
    rawpair_message(p);
    rawpair_stripe(p, 1, 1, 0, RAWPAIR_STRIPE);
    for (int i = 0; i < 2; i++)
        rawpeer_close(&p->side[i]);
}

static const struct wrong wrongs[] = {
    {"a stripe of 4096 bytes at 100", stripe_at_odd_place},
    {"a stripe of 1 bytes at 12288, of a payload of 10000", stripe_beyond_the_end},
    {"a stripe of 4096 bytes at 8192", stripe_too_long},
    {"a stripe of 4095 bytes at 4096", stripe_too_short},
    {"at most 4096 are accepted", stripe_larger_than_agreed},
    {"the stripe at 4096 has come twice", stripe_twice},
    {"the stripe at 4096 has come twice", stripe_twice_over_both},
    {"a stripe of message 1, after message 1", stripe_of_the_past},
    {"a damaged payload of a stripe frame", damaged_stripe},
    {"a ping on a connection for stripes", message_on_a_side},
    {"a message on a connection for stripes", payload_on_a_side},
    {"not weft's protocol", garbage_on_a_side},
    {"stripes, without a connection for them", stripe_on_the_first},
    {"a frame of type attach on the first connection", attach_on_the_first},
    {"which were not asked for", confirmed_twice},
    {"which were not asked for", confirmed_with_another_token},
    {"one connection of the pair has ended: reading: ", side_closed},
    {"the connection ended within a message", side_closed_within_a_message},
    {"the connection ended within a message", all_closed_within_a_message},
};

static void broken_rules_are_named(void **state)
{
    static struct rawpair_scene s;

    (void)state;
    rawpair_scene_open(&s, "tcp", (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < WF_COUNT(wrongs); i++) {
        int before = s.node.n_down;
        struct rawpair p;

        rawpair_open(&s, &p, "raw");
        for (int k = 0; k < 2; k++)
            rawpair_attach(&s, &p, "raw");
        rawpair_await_connections(s.node.link, 3);
        wrongs[i].send(&p);
        rawpair_expect_down(&s, before, wrongs[i].why);
        rawpair_close(&p);
    }
    rawpair_scene_close(&s);
}

/* A further connection that ends before they are confirmed is given up, and the link does without;
 * it is too late to confirm them then, and stripes are not allowed. */
static void what_was_not_confirmed_is_given_up(void **state)
{
    static struct rawpair_scene s;

    (void)state;
    rawpair_scene_open(&s, "tcp", (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < 3; i++) {
        int before = s.node.n_down, received = s.node.n_received;
        uint8_t frame[256];
        struct rawpair p;

        rawpair_open(&s, &p, "raw");
        rawpair_attach(&s, &p, "raw");
        if (i < 2) {
            for (int k = 0; k < 2000 && s.node.link->sides->n_up == 0; k++)
                usleep(1000);
            rawpeer_close(&p.side[0]);
            for (int k = 0; k < 2000 && s.node.link->sides->n_up == 1; k++)
                usleep(1000);
            usleep(300000);
            assert_int_equal(s.node.n_down, before);
        }
        rawpeer_send(
            &p.main, frame,
            rawpeer_frame(frame, &(struct wf_frame){.type = WF_FRAME_MESSAGE}, NULL, NULL));
        NETPEER_AWAIT(&s.node, n_received, received + 1);
        if (i == 0)
            rawpair_confirm(&p);
        else
            rawpair_message(&p);
        rawpair_expect_down(&s, before,
                            i == 0 ? "of which one has ended already"
                                   : "stripes, without a connection for them");
        rawpair_close(&p);
    }
    rawpair_scene_close(&s);
}

/* Stripes, for a peer that has no connection for them. */
static void stripes_need_connections(void **state)
{
    static struct rawpair_scene s;
    uint8_t frame[256];
    struct wf_frame f;
    struct rawpeer r;
    int before, up;

    (void)state;
    rawpair_scene_open(&s, "tcp", (struct wf_net_opts){.spin_us = 0});
    before = s.node.n_down;
    up = s.node.n_up;
    rawpeer_open(&r, s.ctx, s.address, "raw");
    rawpeer_send(&r, frame, rawpeer_hello(frame, "raw", 0));
    assert_true(rawpeer_take(&r, &f, frame));
    NETPEER_AWAIT(&s.node, n_up, up + 1);
    rawpeer_send(&r, frame, rawpair_striped_frame(frame, RAWPAIR_PAYLOAD));
    rawpair_expect_down(&s, before, "stripes, without a connection for them");
    rawpeer_close(&r);
    rawpair_scene_close(&s);
}

static void garbage_ends_only_its_pair(void **state)
{
    static struct rawpair_scene s;
    static uint8_t stream[4 * RAWPAIR_STRIPE + 1024];
    uint64_t seed = 1;

    (void)state;
    rawpair_scene_open(&s, "tcp", (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < 60; i++) {
        int before = s.node.n_down;
        struct rawpair p;
        int64_t n = 0;

        rawpair_open(&s, &p, "raw");
        for (int k = 0; k < 2; k++)
            rawpair_attach(&s, &p, "raw");
        for (int64_t at = 0; at < RAWPAIR_PAYLOAD; at += RAWPAIR_STRIPE)
            n += rawpair_stripe_frame(stream + n, 1, at,
                                      wf_min_i64(RAWPAIR_STRIPE, RAWPAIR_PAYLOAD - at));
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = wf_hash64(&seed, sizeof seed, 3);
            stream[seed % (uint64_t)n] ^= (uint8_t)(1 + (seed >> 20) % 255);
        }
        rawpair_message(&p);
        rawpeer_send(&p.side[i % 2], stream, n);
        for (int k = 0; k < 2; k++)
            rawpeer_close(&p.side[k]); /* at the latest */
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        assert_int_equal(s.node.n_received, 0);
        rawpair_close(&p);
    }
    rawpair_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_attach_to_nothing),
        cmocka_unit_test(broken_rules_are_named),
        cmocka_unit_test(what_was_not_confirmed_is_given_up),
        cmocka_unit_test(stripes_need_connections),
        cmocka_unit_test(garbage_ends_only_its_pair),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
