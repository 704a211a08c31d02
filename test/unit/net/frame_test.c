/* frame_test.c - frames: golden bytes, every damage is found, and any division of the stream into
 * portions gives the same frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/frame.h"
#include "support/wirepage.h"

enum { MAX_STREAM = 1 << 20, MAX_FRAMES = 64, MAX_PARTS = 5, LIMIT = 1 << 18 };

static uint64_t draw(uint64_t *s, uint64_t n)
{
    *s += 0x9e3779b97f4a7c15u;
    return wf_hash64(s, sizeof *s, 5) % n;
}

/* ---- a sender -------------------------------------------------------------------------------- */

struct sent {
    struct wf_frame f;
    int64_t at_head, at_payload; /* in the stream */
};

struct stream {
    uint8_t *bytes;
    int64_t n;
    struct sent sent[MAX_FRAMES];
    int n_sent;
};

static void send_frame(struct stream *s, const struct wf_frame *f, const uint8_t *head,
                       const uint8_t *payload)
{
    struct sent *sent = &s->sent[s->n_sent++];
    uint32_t crc = wf_crc32c(0, payload, f->n_payload);

    sent->f = *f;
    wf_frame_encode(f, head, s->bytes + s->n);
    s->n += WF_FRAME_HEADER;
    sent->at_head = s->n;
    memcpy(s->bytes + s->n, head, (size_t)f->n_head);
    s->n += f->n_head;
    sent->at_payload = s->n;
    memcpy(s->bytes + s->n, payload, (size_t)f->n_payload);
    s->n += f->n_payload;
    if (f->flags & WF_FRAME_SUMMED)
        for (int i = 0; i < WF_FRAME_TAIL; i++)
            s->bytes[s->n++] = (uint8_t)(crc >> 8 * i);
}

/* A frame of any type, with everything that it may have. */
static struct wf_frame draw_frame(uint64_t *s)
{
    static const int64_t sizes[] = {0, 1, 2, 47, 48, 49, 1000, 4096, 70000};
    struct wf_frame f = {.type = (enum wf_frame_type)(1 + draw(s, WF_FRAME_TYPES - 1)),
                         .kind = (uint32_t)draw(s, 1000)};
    bool full =
        f.type == WF_FRAME_MESSAGE || f.type == WF_FRAME_REQUEST || f.type == WF_FRAME_RESPONSE;

    if (full || f.type == WF_FRAME_HELLO || f.type == WF_FRAME_REGION || f.type == WF_FRAME_SIDES ||
        f.type == WF_FRAME_ATTACH)
        f.n_head = (int32_t)(draw(s, 9) == 0 ? WF_FRAME_MAX_HEAD : draw(s, 60));
    if (full)
        f.n_payload = sizes[draw(s, WF_COUNT(sizes))];
    if (f.type == WF_FRAME_STRIPE)
        f.n_payload = sizes[1 + draw(s, WF_COUNT(sizes) - 1)];
    if (f.type != WF_FRAME_HELLO && f.type != WF_FRAME_MESSAGE && f.type != WF_FRAME_BYE &&
        f.type != WF_FRAME_SIDES && f.type != WF_FRAME_ATTACH)
        f.id = 1 + draw(s, UINT64_MAX);
    if (f.type == WF_FRAME_REQUEST || f.type == WF_FRAME_STRIPE)
        f.wait = (int64_t)draw(s, INT64_MAX);
    if (f.type == WF_FRAME_RESPONSE)
        f.wait = -(int64_t)draw(s, 503);
    if (f.n_payload && draw(s, 2))
        f.flags = WF_FRAME_SUMMED;
    return f;
}

static void draw_stream(struct stream *s, uint64_t seed, int n)
{
    static uint8_t head[WF_FRAME_MAX_HEAD], payload[70000];

    s->n = s->n_sent = 0;
    for (int i = 0; i < n; i++) {
        struct wf_frame f = draw_frame(&seed);

        for (int k = 0; k < f.n_head; k++)
            head[k] = (uint8_t)(k * 7 + i);
        for (int64_t k = 0; k < f.n_payload; k++)
            payload[k] = (uint8_t)(k * 13 + i + (k >> 8));
        if (s->n + f.n_head + f.n_payload + 64 > MAX_STREAM)
            break;
        send_frame(s, &f, head, payload);
    }
}

/* ---- a receiver ------------------------------------------------------------------------------ */

struct receiver {
    const struct stream *s;
    uint64_t seed;
    int n, n_later; /* complete frames; how often memory was refused */
    uint8_t *memory;
    struct wf_part part[MAX_PARTS];
    int n_parts;
    bool skipped;
};

static weft_status place(void *arg, const struct wf_frame *f, const void *head,
                         const struct wf_part **parts, int *n_parts)
{
    struct receiver *r = arg;
    int64_t at = 0;

    (void)head;
    assert_true(f->n_payload > 0 && f->n_payload <= LIMIT);
    if (draw(&r->seed, 4) == 0) {
        r->n_later++;
        *n_parts = WF_PLACE_LATER;
        return WEFT_OK;
    }
    r->skipped = draw(&r->seed, 6) == 0;
    r->n_parts = r->skipped ? 0 : (int)(1 + draw(&r->seed, MAX_PARTS));
    for (int i = 0; i < r->n_parts; i++) {
        int64_t left = f->n_payload - at;

        r->part[i].p = r->memory + at;
        r->part[i].n =
            i + 1 == r->n_parts ? left : (int64_t)draw(&r->seed, (uint64_t)left + 1); /* also 0 */
        at += r->part[i].n;
    }
    memset(r->memory, 0, (size_t)f->n_payload);
    *parts = r->part;
    *n_parts = r->n_parts;
    return WEFT_OK;
}

static weft_status complete(void *arg, const struct wf_frame *f, const void *head)
{
    struct receiver *r = arg;
    const struct sent *sent = &r->s->sent[r->n];

    assert_true(r->n < r->s->n_sent);
    assert_memory_equal(f, &sent->f, sizeof *f);
    assert_memory_equal(head, r->s->bytes + sent->at_head, (size_t)f->n_head);
    if (f->n_payload && !r->skipped)
        assert_memory_equal(r->memory, r->s->bytes + sent->at_payload, (size_t)f->n_payload);
    r->n++;
    return WEFT_OK;
}

/* Fills the places that the machine names from the stream, as a transport does. */
static weft_status read_direct(struct wf_unframe *u, const struct stream *s, int64_t *at,
                               uint64_t *seed)
{
    struct wf_part room[2];
    int n = wf_unframe_room(u, room, 2);
    int64_t got = 0;

    for (int i = 0; i < n && *at < s->n; i++) {
        int64_t k = wf_min_i64(room[i].n, s->n - *at);
        bool all = draw(seed, 3) > 0;

        if (!all)
            k = (int64_t)draw(seed, (uint64_t)k + 1);
        memcpy(room[i].p, s->bytes + *at, (size_t)k);
        *at += k;
        got += k;
        if (!all)
            break;
    }
    return n ? wf_unframe_got(u, got) : WEFT_OK;
}

static weft_status read_stream(weft_ctx *ctx, const struct stream *s, struct receiver *r,
                               uint64_t seed)
{
    struct wf_frame_calls calls = {r, place, complete};
    struct wf_unframe u;
    int64_t at = 0, used;
    weft_status st = wf_unframe_init(&u, ctx, LIMIT, &calls);

    for (int turn = 0; !st && (at < s->n || wf_unframe_waits(&u)); turn++) {
        int64_t most = draw(&seed, 5) ? (int64_t)draw(&seed, 300) : (int64_t)draw(&seed, 90000);
        int64_t n = wf_min_i64(s->n - at, most);

        assert_true(turn < 10000000);
        if (draw(&seed, 2))
            st = read_direct(&u, s, &at, &seed);
        if (st)
            break;
        n = wf_min_i64(n, s->n - at);
        st = wf_unframe_push(&u, s->bytes + at, n, &used);
        assert_true(used >= 0 && used <= n && (st || used == n || wf_unframe_waits(&u)));
        at += used;
    }
    if (!st) {
        assert_true(wf_unframe_between(&u));
        assert_int_equal(u.n_bytes, s->n);
        assert_int_equal(u.n_frames, r->n);
    } else { /* nothing works any more */
        assert_int_equal(wf_unframe_push(&u, s->bytes, 1, &used), WEFT_ESTATE);
        assert_int_equal(used, 0);
    }
    wf_unframe_free(&u);
    return st;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void any_division_gives_the_same_frames(void **state)
{
    struct stream s = {.bytes = malloc(MAX_STREAM)};
    uint8_t *memory = malloc(LIMIT);
    int n_later = 0;
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct receiver r = {.s = &s, .seed = seed + 1000, .memory = memory};

        draw_stream(&s, seed, 1 + (int)(seed % 20));
        if (read_stream(ctx, &s, &r, seed * 3 + 1))
            fail_msg("seed %llu: %s", (unsigned long long)seed, weft_error());
        assert_int_equal(r.n, s.n_sent);
        n_later += r.n_later;
    }
    assert_true(n_later > 100);
    free(s.bytes);
    free(memory);
    weft_ctx_free(ctx);
}

/* Every bit of headers and heads is covered by a checksum, and those of summed payloads. */
static void every_flipped_bit_is_found(void **state)
{
    struct stream s = {.bytes = malloc(MAX_STREAM)};
    uint8_t *memory = malloc(LIMIT), payload[20] = "some payload";
    struct wf_frame f = {.type = WF_FRAME_REQUEST,
                         .flags = WF_FRAME_SUMMED,
                         .kind = 3,
                         .n_head = 9,
                         .n_payload = sizeof payload,
                         .id = 77,
                         .wait = 5000};
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    send_frame(&s, &f, (const uint8_t *)"some head", payload);
    for (int64_t bit = 0; bit < 8 * s.n; bit++) {
        struct receiver r = {.s = &s, .seed = (uint64_t)bit, .memory = memory};
        weft_status st;

        s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        st = read_stream(ctx, &s, &r, (uint64_t)bit);
        s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(st, WEFT_EPEER);
        assert_int_equal(r.n, 0);
    }
    free(s.bytes);
    free(memory);
    weft_ctx_free(ctx);
}

/* A stream that ends within a frame has not ended between two. */
static void an_end_within_a_frame_is_seen(void **state)
{
    struct stream s = {.bytes = malloc(MAX_STREAM)};
    uint8_t *memory = malloc(LIMIT);
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    draw_stream(&s, 11, 3);
    for (int64_t cut = 0; cut <= s.n; cut += cut % 997 == 0 && cut ? 97 : 1) {
        struct receiver r = {.s = &s, .seed = 4, .memory = memory};
        struct wf_frame_calls calls = {&r, place, complete};
        struct wf_unframe u;
        int64_t at = 0, used;
        bool between = cut == 0;

        assert_int_equal(wf_unframe_init(&u, ctx, LIMIT, &calls), 0);
        while (at < cut || wf_unframe_waits(&u)) {
            assert_int_equal(wf_unframe_push(&u, s.bytes + at, cut - at, &used), 0);
            at += used;
        }
        for (int i = 0; i < s.n_sent; i++)
            between |= cut == s.sent[i].at_payload + s.sent[i].f.n_payload +
                                  (s.sent[i].f.flags & WF_FRAME_SUMMED ? WF_FRAME_TAIL : 0);
        assert_int_equal(wf_unframe_between(&u), between);
        wf_unframe_free(&u);
    }
    free(s.bytes);
    free(memory);
    weft_ctx_free(ctx);
}

static void expect_refused(struct wf_frame f, const char *text)
{
    uint8_t bytes[WF_FRAME_HEADER];
    static const uint8_t head[WF_FRAME_MAX_HEAD];
    struct wf_frame back;

    wf_frame_encode(&f, head, bytes);
    assert_int_equal(wf_frame_decode(bytes, LIMIT, &back), WEFT_EPEER);
    if (!strstr(weft_error(), text))
        fail_msg("'%s' does not say '%s'", weft_error(), text);
}

static void what_a_type_does_not_have_is_refused(void **state)
{
    uint8_t bytes[WF_FRAME_HEADER];
    struct wf_frame ping = {.type = WF_FRAME_PING, .id = 5}, back;

    (void)state;
    expect_refused((struct wf_frame){.type = (enum wf_frame_type)0}, "type 0");
    expect_refused((struct wf_frame){.type = WF_FRAME_TYPES}, "no frame has type");
    expect_refused((struct wf_frame){.type = WF_FRAME_PING, .n_head = 1}, "with a head");
    expect_refused((struct wf_frame){.type = WF_FRAME_HELLO, .n_payload = 1}, "with a payload");
    expect_refused((struct wf_frame){.type = WF_FRAME_MESSAGE, .id = 1}, "with a number");
    expect_refused((struct wf_frame){.type = WF_FRAME_CANCEL, .wait = 1}, "with a time");
    expect_refused((struct wf_frame){.type = WF_FRAME_REQUEST, .wait = -1}, "a negative time");
    expect_refused((struct wf_frame){.type = WF_FRAME_RESPONSE, .wait = (int64_t)1 << 40},
                   "status");
    expect_refused((struct wf_frame){.type = WF_FRAME_MESSAGE, .flags = WF_FRAME_SUMMED},
                   "nothing");
    expect_refused((struct wf_frame){.type = WF_FRAME_MESSAGE, .flags = 8}, "unknown flags 0x8");
    for (int type = 1; type < WF_FRAME_TYPES; type++)
        expect_refused((struct wf_frame){.type = (enum wf_frame_type)type,
                                         .flags = WF_FRAME_STRIPED,
                                         .id = type == WF_FRAME_STRIPE,
                                         .n_payload = type == WF_FRAME_STRIPE},
                       "with stripes");
    expect_refused((struct wf_frame){.type = WF_FRAME_MESSAGE,
                                     .flags = WF_FRAME_STRIPED | WF_FRAME_SUMMED,
                                     .n_payload = 5},
                   "with stripes");
    expect_refused((struct wf_frame){.type = WF_FRAME_STRIPE, .id = 1}, "no place in a payload");
    expect_refused((struct wf_frame){.type = WF_FRAME_STRIPE, .n_payload = 1}, "no place");
    expect_refused((struct wf_frame){.type = WF_FRAME_STRIPE, .id = 1, .n_payload = 1, .wait = -1},
                   "no place");
    expect_refused(
        (struct wf_frame){
            .type = WF_FRAME_STRIPE, .id = 1, .n_payload = 1, .flags = WF_FRAME_REGIONAL},
        "with regions");
    expect_refused((struct wf_frame){.type = WF_FRAME_PING, .flags = WF_FRAME_REGIONAL},
                   "with regions");
    expect_refused((struct wf_frame){.type = WF_FRAME_RELEASE, .n_head = 1}, "with a head");
    expect_refused((struct wf_frame){.type = WF_FRAME_MESSAGE, .n_payload = LIMIT + 1},
                   "at most 262144 are accepted");
    expect_refused((struct wf_frame){.type = WF_FRAME_MESSAGE, .n_payload = -1}, "at most");
    wf_frame_encode(&ping, NULL, bytes);
    assert_int_equal(wf_frame_decode(bytes, LIMIT, &back), 0);
    bytes[4] = 2;
    assert_int_equal(wf_frame_decode(bytes, LIMIT, &back), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "version 2 of the protocol"));
    memcpy(bytes, "GET ", 4);
    assert_int_equal(wf_frame_decode(bytes, LIMIT, &back), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "not weft's protocol"));
}

/* ---- stripes --------------------------------------------------------------------------------- */

struct elsewhere {
    struct wf_unframe u;
    struct wf_part part;
    int n_placed, n_complete;
    bool stops, later;
};

static weft_status place_elsewhere(void *arg, const struct wf_frame *f, const void *head,
                                   const struct wf_part **parts, int *n_parts)
{
    struct elsewhere *e = arg;

    (void)f;
    (void)head;
    e->n_placed++;
    *parts = &e->part;
    *n_parts = e->later ? WF_PLACE_LATER : 1;
    e->later = false;
    return WEFT_OK;
}

static weft_status complete_elsewhere(void *arg, const struct wf_frame *f, const void *head)
{
    struct elsewhere *e = arg;

    (void)f;
    (void)head;
    e->n_complete++;
    e->u.stop = e->stops;
    return WEFT_OK;
}

/* Nothing that follows is taken before its stripes are there; nor after `stop`. */
static void a_payload_in_stripes_is_awaited(void **state)
{
    struct elsewhere e = {.part = {NULL, 1000}, .later = true};
    struct wf_frame_calls calls = {&e, place_elsewhere, complete_elsewhere};
    struct wf_frame striped = {
        .type = WF_FRAME_MESSAGE, .flags = WF_FRAME_STRIPED, .n_payload = 1000};
    struct wf_frame ping = {.type = WF_FRAME_PING, .id = 1};
    struct wf_part room[4];
    uint8_t bytes[3 * WF_FRAME_HEADER];
    int64_t used;
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(wf_unframe_init(&e.u, ctx, LIMIT, &calls), 0);
    wf_frame_encode(&striped, NULL, bytes);
    wf_frame_encode(&ping, NULL, bytes + WF_FRAME_HEADER);
    wf_frame_encode(&ping, NULL, bytes + 2 * WF_FRAME_HEADER);
    assert_int_equal(wf_unframe_push(&e.u, bytes, sizeof bytes, &used), 0);
    assert_int_equal(used, WF_FRAME_HEADER);
    assert_true(wf_unframe_waits(&e.u));
    assert_int_equal(wf_unframe_arrived(&e.u), WEFT_EBUG);
    wf_unframe_free(&e.u);
    e.n_placed = 0;
    e.later = true;
    assert_int_equal(wf_unframe_init(&e.u, ctx, LIMIT, &calls), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wf_unframe_push(&e.u, bytes + (i ? WF_FRAME_HEADER : 0),
                                         (i ? 2 : 3) * WF_FRAME_HEADER, &used),
                         0);
        assert_int_equal(used, i ? 0 : WF_FRAME_HEADER);
        assert_int_equal(wf_unframe_elsewhere(&e.u), i > 0);
        assert_int_equal(wf_unframe_room(&e.u, room, 4), 0);
        assert_false(wf_unframe_between(&e.u));
        assert_int_equal(e.n_placed, wf_min_i64(i + 1, 2));
    }
    assert_int_equal(e.n_complete, 0);
    assert_int_equal(wf_unframe_arrived(&e.u), 0);
    assert_int_equal(e.n_complete, 1);
    e.stops = true;
    assert_int_equal(wf_unframe_push(&e.u, bytes + WF_FRAME_HEADER, 2 * WF_FRAME_HEADER, &used), 0);
    assert_int_equal(used, WF_FRAME_HEADER);
    assert_int_equal(e.n_complete, 2);
    assert_true(wf_unframe_between(&e.u));
    wf_unframe_free(&e.u);
    weft_ctx_free(ctx);
}

/* A head of more bytes than allowed is refused before any of it is read. */
static void a_long_head_is_refused(void **state)
{
    struct wf_frame f = {.type = WF_FRAME_MESSAGE, .n_head = 4}, back;
    uint8_t bytes[WF_FRAME_HEADER];
    uint32_t crc;

    (void)state;
    wf_frame_encode(&f, "head", bytes);
    bytes[14] = 2; /* 131076 */
    crc = wf_crc32c(0, bytes, 44);
    for (int i = 0; i < 4; i++)
        bytes[44 + i] = (uint8_t)(crc >> 8 * i);
    assert_int_equal(wf_frame_decode(bytes, LIMIT, &back), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "a head of 131076 bytes"));
}

/* The example of docs/formats/wire.md. */
static void the_documented_bytes_are_these(void **state)
{
    struct stream s = {.bytes = malloc(MAX_STREAM)};
    struct wf_frame f = {.type = WF_FRAME_REQUEST,
                         .flags = WF_FRAME_SUMMED,
                         .kind = 7,
                         .n_head = 2,
                         .n_payload = 5,
                         .id = 258,
                         .wait = 1000000};
    uint8_t bytes[128];
    int n = wirepage_bytes(WIREPAGE, WIREPAGE_REQUEST, bytes, sizeof bytes);

    (void)state;
    send_frame(&s, &f, (const uint8_t *)"hi", (const uint8_t *)"abcde");
    assert_int_equal(n, s.n);
    assert_memory_equal(bytes, s.bytes, (size_t)n);
    free(s.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_division_gives_the_same_frames),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(an_end_within_a_frame_is_seen),
        cmocka_unit_test(what_a_type_does_not_have_is_refused),
        cmocka_unit_test(a_payload_in_stripes_is_awaited),
        cmocka_unit_test(a_long_head_is_refused),
        cmocka_unit_test(the_documented_bytes_are_these),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
