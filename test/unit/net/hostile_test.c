/* hostile_test.c - peers that do not keep to the protocol, over every member that carries bytes:
 * lengths that are too large, garbage, frames that are not allowed, floods. Only their own link
 * ends, with an error that names what was wrong, and no memory is requested for what they say. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/link.h"
#include "support/netpeer.h"
#include "support/rawpeer.h"

#define SECOND 1000000000ll
enum { MAX_PAYLOAD = 1 << 20 };

static uint8_t bytes[4096];

/* ---- a node, and a good peer of it ----------------------------------------------------------- */

struct scene {
    const char *member;
    weft_ctx *ctx;
    struct netpeer node, good;
    struct wf_link *link; /* the good peer's */
    _Atomic int n_said;   /* lines about connections that were dropped */
    char address[512];
    int64_t memory; /* that the context uses, with the good peer alone */
};

static void log_line(void *arg, int level, const char *line)
{
    struct scene *s = arg;

    s->n_said += level == WEFT_LOG_WARN && strstr(line, "dropped before") != NULL;
}

static void open_scene(struct scene *s, const char *member)
{
    struct wf_net_opts opts = {
        .max_payload = MAX_PAYLOAD, .silence_ns = 20 * SECOND, .stall_ns = -1};
    char address[128];

    memset(s, 0, sizeof *s);
    s->member = member;
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = log_line, .log_arg = s),
                     &s->ctx),
        0);
    netpeer_open_over(&s->node, member, s->ctx, "node", opts);
    netpeer_open_over(&s->good, member, s->ctx, "good", opts);
    s->node.fresh = true;
    if (wf_net_listen(s->node.net, netpeer_address(member, address), s->address,
                      sizeof s->address) ||
        wf_net_connect(s->good.net, s->address, 20 * SECOND, &s->link))
        fail_msg("%s: %s", member, weft_error());
    NETPEER_AWAIT(&s->node, n_up, 1);
    NETPEER_AWAIT(&s->good, n_up, 1);
    for (int i = 0;
         i < 20000 && wf_link_connections(s->node.link) < wf_net_connections(s->node.net); i++)
        usleep(1000);
    s->memory = weft_ctx_memory(s->ctx);
}

/* It has noticed nothing. */
static void close_scene(struct scene *s)
{
    struct wf_part part = {bytes, sizeof bytes};
    int before = s->node.n_received;

    assert_int_equal(s->good.n_down, 0);
    assert_int_equal(wf_link_send(s->link,
                                  &(struct wf_msg){.kind = 77, .part = &part, .n_parts = 1}, NULL,
                                  NULL),
                     0);
    NETPEER_AWAIT(&s->node, n_received, before + 1);
    assert_int_equal(s->node.message[before % NETPEER_MESSAGES].kind, 77);
    assert_memory_equal(s->node.memory, bytes, sizeof bytes);
    netpeer_close(&s->good);
    netpeer_close(&s->node);
    weft_ctx_free(s->ctx);
}

static void each_member(void (*test)(struct scene *s))
{
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        static struct scene s;

        if (strcmp(netpeer_members[t], "inproc") == 0)
            continue; /* it has no bytes: its peers are nodes */
        open_scene(&s, netpeer_members[t]);
        test(&s);
        close_scene(&s);
    }
}

/* ---- frames that are wrong ------------------------------------------------------------------- */

struct wrong {
    struct wf_frame frame;
    const char *why;
    int at; /* this byte of it becomes `value`; 0: none */
    uint8_t value;
    bool resummed; /* and the header's checksum is right again */
};

static const struct wrong wrongs[] = {
    {.frame = {.type = WF_FRAME_MESSAGE, .n_payload = MAX_PAYLOAD + 1},
     .why = "a payload of 1048577 bytes; at most 1048576 are accepted"},
    {.frame = {.type = WF_FRAME_MESSAGE, .n_payload = INT64_MAX},
     .why = "a payload of 9223372036854775807 bytes"},
    {.frame = {.type = WF_FRAME_MESSAGE, .n_payload = INT64_MIN},
     .why = "a payload of 9223372036854775808 bytes"},
    {.frame = {.type = WF_FRAME_MESSAGE, .n_payload = -1},
     .why = "a payload of 18446744073709551615 bytes"},
    {.frame = {.type = WF_FRAME_REQUEST, .id = 1, .n_payload = 1ll << 40},
     .why = "a payload of 1099511627776 bytes"},
    {.frame = {.type = WF_FRAME_RESPONSE, .id = 1, .n_payload = 1ll << 40},
     .why = "a payload of 1099511627776 bytes"},
    {.frame = {.type = WF_FRAME_MESSAGE, .flags = WF_FRAME_STRIPED, .n_payload = 1ll << 40},
     .why = "a payload of 1099511627776 bytes"},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "a head of 65537 bytes; at most 65536 are allowed",
     .at = 14,
     .value = 1,
     .resummed = true},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "a head of 2147483649 bytes",
     .at = 15,
     .value = 0x80,
     .resummed = true},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "version 9 of the protocol; this is version 1",
     .at = 4,
     .value = 9,
     .resummed = true},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "no frame has type 0",
     .at = 5,
     .value = 0,
     .resummed = true},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "no frame has type 200",
     .at = 5,
     .value = 200,
     .resummed = true},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "unknown flags 0x80",
     .at = 6,
     .value = 0x80,
     .resummed = true},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "a damaged header: its checksum is wrong",
     .at = 20,
     .value = 1},
    {.frame = {.type = WF_FRAME_MESSAGE},
     .why = "not weft's protocol",
     .at = 1,
     .value = 'X',
     .resummed = true},
    {.frame = {.type = WF_FRAME_PING, .id = 1, .n_payload = 100},
     .why = "a ping frame with a payload"},
    {.frame = {.type = WF_FRAME_REQUEST, .id = 1, .wait = -5},
     .why = "a request frame with a negative time"},
    {.frame = {.type = WF_FRAME_MESSAGE, .flags = WF_FRAME_SUMMED},
     .why = "a message frame with a sum of nothing"},
    {.frame = {.type = WF_FRAME_MESSAGE, .flags = WF_FRAME_REGIONAL, .n_payload = 100},
     .why = "in 0 places"},
    {.frame = {.type = WF_FRAME_STRIPE, .id = 1, .n_payload = 100},
     .why = "stripes, without a connection for them"},
};

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* Of the header alone: nothing of what it promises follows. */
static void wrong_header(const struct wrong *w, uint8_t out[WF_FRAME_HEADER])
{
    wf_frame_encode(&w->frame, NULL, out);
    if (w->at) {
        out[w->at] = w->value;
        if (w->at == 14 || w->at == 15)
            out[12] = 1;
    }
    if (w->resummed)
        put32(out + 44, wf_crc32c(0, out, 44));
}

static void open_raw(struct scene *s, struct rawpeer *r)
{
    int up = s->node.n_up;
    uint8_t hello[256];

    rawpeer_open(r, s->ctx, s->address, "raw");
    assert_true(rawpeer_send(r, hello, rawpeer_hello(hello, "raw", 1)));
    NETPEER_AWAIT(&s->node, n_up, up + 1);
}

static void send_wrong_frames(struct scene *s)
{
    for (int i = 0; i < WF_COUNT(wrongs); i++) {
        int before = s->node.n_down;
        uint8_t header[WF_FRAME_HEADER];
        int64_t memory;
        struct rawpeer r;

        open_raw(s, &r);
        memory = weft_ctx_memory(s->ctx);
        wrong_header(&wrongs[i], header);
        rawpeer_send(&r, header, sizeof header);
        NETPEER_AWAIT(&s->node, n_down, before + 1);
        if (s->node.down_status != WEFT_EPEER || !strstr(s->node.why, wrongs[i].why) ||
            !strstr(s->node.why, "raw ("))
            fail_msg("%s: '%s' does not say '%s'", s->member, s->node.why, wrongs[i].why);
        if (weft_ctx_memory(s->ctx) - memory > 64 * 1024)
            fail_msg("%s: %lld bytes for '%s'", s->member,
                     (long long)(weft_ctx_memory(s->ctx) - memory), wrongs[i].why);
        rawpeer_close(&r);
    }
    assert_int_equal(s->node.n_received, 0);
    assert_int_equal(s->node.n_placed, 0);
}

static void wrong_frames_are_named(void **state)
{
    (void)state;
    each_member(send_wrong_frames);
}

/* Two nodes: one sends what the other does not accept. */
static void too_large_over(const char *member)
{
    static struct scene s;
    uint8_t *large = calloc(1, MAX_PAYLOAD + 1);
    struct wf_part part = {large, MAX_PAYLOAD + 1};

    open_scene(&s, member);
    assert_int_equal(
        wf_link_send(s.link, &(struct wf_msg){.part = &part, .n_parts = 1}, netpeer_sent, &s.good),
        0);
    NETPEER_AWAIT(&s.node, n_down, 1);
    if (s.node.down_status != WEFT_EPEER || !strstr(s.node.why, "a payload of 1048577 bytes") ||
        !strstr(s.node.why, "good ("))
        fail_msg("%s: %s", member, s.node.why);
    NETPEER_AWAIT(&s.good, n_down, 1);
    assert_int_equal(s.good.n_sent + s.good.n_unsent, 1);
    assert_int_equal(s.node.n_placed, 0);
    netpeer_close(&s.good);
    netpeer_close(&s.node);
    weft_ctx_free(s.ctx);
    free(large);
}

static void payloads_that_are_too_large_are_refused(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        too_large_over(netpeer_members[t]);
}

/* ---- garbage --------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *seed)
{
    return *seed = wf_hash64(seed, sizeof *seed, 3);
}

/* A hello, then a message of 100 bytes with its checksum. */
static int64_t good_stream(uint8_t *out)
{
    struct wf_frame m = {
        .type = WF_FRAME_MESSAGE, .flags = WF_FRAME_SUMMED, .n_head = 8, .n_payload = 100};
    int64_t n = rawpeer_hello(out, "raw", 1);

    return n + rawpeer_frame(out + n, &m, bytes, bytes);
}

/* Up to three bytes of a good stream are others; or there is none of it. All of the frames are
 * summed, so that no damaged one arrives. */
static void send_garbage(struct scene *s)
{
    const int rounds = getenv("WEFT_TEST_QUICK") ? 40 : 120;
    uint64_t seed = 1;
    uint8_t stream[512];
    int64_t n = good_stream(stream);

    for (int i = 0; i < rounds; i++) {
        int up = s->node.n_up, received = s->node.n_received;
        uint8_t damaged[512];
        struct rawpeer r;

        memcpy(damaged, stream, sizeof damaged);
        for (int k = 0; k < 1 + i % 3; k++) {
            next(&seed);
            damaged[seed % (uint64_t)n] ^= (uint8_t)(1 + (seed >> 20) % 255);
        }
        for (int64_t k = 0; k < n && i % 10 == 9; k++)
            damaged[k] = (uint8_t)next(&seed);
        rawpeer_open(&r, s->ctx, s->address, "raw");
        rawpeer_send(&r, damaged, n);
        rawpeer_await_end(&r); /* the node closes it */
        rawpeer_close(&r);
        assert_true(s->node.n_up - up <= 1);
        assert_int_equal(s->node.n_received, received);
    }
    NETPEER_AWAIT(&s->node, n_down, s->node.n_up - 1);
}

static void garbage_ends_only_its_link(void **state)
{
    (void)state;
    each_member(send_garbage);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Messages in a region, without a look at the slots that are released. */
static void send_slots(struct scene *s)
{
    enum { BATCH = 500, BATCHES = 2000 };
    struct wf_frame share = {.type = WF_FRAME_REGION, .id = 1, .n_head = 9};
    struct wf_frame f = {
        .type = WF_FRAME_MESSAGE, .flags = WF_FRAME_REGIONAL, .n_head = 25, .n_payload = 1};
    uint8_t region[9] = {1}, ref[25] = {[0] = 1, [16] = 1, [24] = 1}, *out = malloc(BATCH * 128);
    int64_t n = 0, most = 0;
    int down = s->node.n_down;
    struct rawpeer r;

    open_raw(s, &r);
    n = rawpeer_frame(out, &share, region, NULL);
    assert_true(rawpeer_send(&r, out, n));
    n = 0;
    for (int i = 0; i < BATCH; i++)
        n += rawpeer_frame(out + n, &f, ref, bytes);
    for (int i = 0; i < BATCHES && s->node.n_down == down && rawpeer_send(&r, out, n); i++)
        most = wf_max_i64(most, weft_ctx_memory(s->ctx) - s->memory);
    NETPEER_AWAIT(&s->node, n_down, down + 1);
    if (!strstr(s->node.why, "takes nothing") || most > (int64_t)WF_MAX_OWED * 512)
        fail_msg("%s: %lld bytes; %s", s->member, (long long)most, s->node.why);
    rawpeer_close(&r);
    free(out);
}

static void slots_that_a_peer_does_not_hear_of_are_bounded(void **state)
{
    static struct scene s;

    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++)
        if (strcmp(netpeer_members[t], "uds") == 0 || strcmp(netpeer_members[t], "tcp") == 0) {
            open_scene(&s, netpeer_members[t]);
            send_slots(&s);
            close_scene(&s);
        }
}

/* ---- a flood --------------------------------------------------------------------------------- */

/* Where a connection can be made that says nothing at all. */
static void plain_address(const struct scene *s, char out[512])
{
    bool path = strncmp(s->address, "shm", 3) == 0 || strncmp(s->address, "uds", 3) == 0;

    snprintf(out, 512, "%s%s", path ? "uds" : "tcp", s->address + 3);
}

/* Connections that say nothing: their memory is bounded, and a good peer is served. */
static void flood(struct scene *s)
{
    enum { FLOOD = 1200 };
    static struct rawpeer peer[FLOOD];
    int64_t most = 0;
    int up = s->good.n_up;
    struct wf_link *l;
    char address[512];

    plain_address(s, address);
    for (int n = 0; n < FLOOD; n++) {
        rawpeer_open(&peer[n], s->ctx, address, "raw");
        if (n % 100 == 99)
            usleep(1000);
        most = wf_max_i64(most, weft_ctx_memory(s->ctx) - s->memory);
    }
    if (s->n_said < 1 || s->n_said > 4) /* of some hundreds that were dropped */
        fail_msg("%s: %d lines about a flood of connections", s->member, s->n_said);
    if (most > (int64_t)WF_MAX_UNKNOWN * (3 << 16))
        fail_msg("%s: %d connections that say nothing use %lld bytes", s->member, FLOOD,
                 (long long)most);
    assert_int_equal(wf_net_connect(s->good.net, s->address, 10 * SECOND, &l), 0);
    NETPEER_AWAIT(&s->good, n_up, up + 1);
    for (int n = 0; n < FLOOD; n++)
        rawpeer_close(&peer[n]);
}

static void a_flood_of_connections_is_bounded(void **state)
{
    struct rlimit limit;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 4000) {
        print_message("skipped: %lld descriptors are allowed, 4000 are needed\n",
                      (long long)limit.rlim_cur);
        skip();
    }
    each_member(flood);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_frames_are_named),
        cmocka_unit_test(payloads_that_are_too_large_are_refused),
        cmocka_unit_test(garbage_ends_only_its_link),
        cmocka_unit_test(slots_that_a_peer_does_not_hear_of_are_bounded),
        cmocka_unit_test(a_flood_of_connections_is_bounded),
    };

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 17);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
