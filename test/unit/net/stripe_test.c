/* stripe_test.c - stripes without a socket: each is taken once, in any order, and nothing else is;
 * the parts of any range of a payload; and the documented bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/stripe.h"
#include "support/counting.h"
#include "support/wirepage.h"

static struct counting count;

static weft_ctx *new_ctx(void)
{
    weft_allocator allocator = counting_allocator(&count);
    weft_ctx *ctx;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator), &ctx), 0);
    return ctx;
}

static uint64_t draw(uint64_t *s, uint64_t n)
{
    *s += 0x9e3779b97f4a7c15u;
    return wf_hash64(s, sizeof *s, 5) % n;
}

static weft_status begin(struct wf_gather *g, uint64_t id, int64_t at, int64_t n, bool *later)
{
    return wf_gather_begin(
        g, &(struct wf_frame){.type = WF_FRAME_STRIPE, .id = id, .wait = at, .n_payload = n},
        later);
}

static int64_t length(int64_t stripe, int64_t n, int64_t k)
{
    return wf_min_i64(stripe, n - k * stripe);
}

static void each_stripe_is_taken_once_in_any_order(void **state)
{
    static const int64_t sizes[] = {1, 4095, 4096, 4097, 8192, 40000, 1000000};
    struct wf_part part = {NULL, 0};
    struct wf_gather g;
    uint64_t seed = 1;
    weft_ctx *ctx = new_ctx();

    (void)state;
    wf_gather_init(&g, ctx, 4096);
    for (uint64_t m = 1; m <= 200; m++) {
        int64_t n = sizes[draw(&seed, WF_COUNT(sizes))], order[256];
        int n_stripes = (int)((n + 4095) / 4096);
        bool later;

        assert_int_equal(wf_gather_open(&g, &part, 1, n), 0);
        for (int i = 0; i < n_stripes; i++) {
            int k = (int)draw(&seed, (uint64_t)i + 1);

            order[i] = order[k];
            order[k] = i;
        }
        for (int i = 0; i < n_stripes; i++) {
            int64_t at = order[i] * 4096;

            assert_int_equal(begin(&g, m, at, length(4096, n, order[i]), &later), 0);
            assert_false(later);
            assert_int_equal(begin(&g, m, at, length(4096, n, order[i]), &later), WEFT_EPEER);
            assert_non_null(strstr(weft_error(), "twice"));
            assert_int_equal(wf_gather_end(&g), i == n_stripes - 1);
        }
        assert_false(g.open);
    }
    wf_gather_free(&g);
    weft_ctx_free(ctx);
    assert_int_equal(count.n_live, 0);
}

static void what_is_not_missing_is_refused(void **state)
{
    static const struct {
        int64_t at, n;
    } wrong[] = {{1, 4096},    {4096, 4095}, {4096, 4097},   {8192, 4096},
                 {8192, 1807}, {8192, 1809}, {12288, 1},     {-4096, 4096},
                 {0, 10000},   {0, 0},       {INT64_MAX, 1}, {INT64_MAX / 4096 * 4096, 4096}};
    struct wf_part part = {NULL, 0};
    struct wf_gather g;
    weft_ctx *ctx = new_ctx();
    bool later;

    (void)state;
    wf_gather_init(&g, ctx, 4096);
    assert_int_equal(begin(&g, 0, 0, 4096, &later), WEFT_EPEER); /* messages begin with 1 */
    assert_int_equal(begin(&g, 1, 0, 4096, &later), 0);
    assert_true(later);
    assert_int_equal(wf_gather_open(&g, &part, 1, 10000), 0);
    for (int i = 0; i < WF_COUNT(wrong); i++)
        if (wrong[i].at >= 0 && begin(&g, 1, wrong[i].at, wrong[i].n, &later) != WEFT_EPEER)
            fail_msg("%lld bytes at %lld are taken", (long long)wrong[i].n, (long long)wrong[i].at);
    assert_int_equal(begin(&g, 1, 8192, 1808, &later), 0);
    assert_false(later);
    assert_int_equal(begin(&g, 2, 0, 4096, &later), 0); /* of a message that follows */
    assert_true(later);
    assert_int_equal(begin(&g, UINT64_MAX, 0, 4096, &later), 0);
    assert_true(later);
    assert_int_equal(wf_gather_open(&g, &part, 1, 10), WEFT_EBUG);
    assert_false(wf_gather_end(&g));
    for (int k = 0; k < 2; k++) {
        assert_int_equal(begin(&g, 1, k * 4096, 4096, &later), 0);
        assert_int_equal(wf_gather_end(&g), k == 1);
    }
    assert_int_equal(begin(&g, 1, 0, 4096, &later), WEFT_EPEER); /* it is complete */
    assert_non_null(strstr(weft_error(), "after message 1"));
    wf_gather_free(&g);
    weft_ctx_free(ctx);
}

static void without_memory_nothing_is_open(void **state)
{
    struct wf_part part = {NULL, 0};
    struct wf_gather g;
    weft_ctx *ctx = new_ctx();

    (void)state;
    wf_gather_init(&g, ctx, 4096);
    count.fail_at = count.n_allocs + 1;
    assert_int_equal(wf_gather_open(&g, &part, 1, 10000), WEFT_ENOMEM);
    count.fail_at = 0;
    assert_false(g.open);
    assert_int_equal(g.number, 0);
    assert_int_equal(wf_gather_open(&g, &part, 1, 10000), 0);
    wf_gather_free(&g);
    weft_ctx_free(ctx);
    assert_int_equal(count.n_live, 0);
}

/* Against a byte at a time. */
static void parts_of_a_range(void **state)
{
    uint8_t memory[64];
    struct wf_part part[6], out[6];
    uint64_t seed = 7;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        int n_parts = 1 + (int)draw(&seed, 6), n, k = 0;
        uint8_t *expected[64];
        int64_t total = 0, at, length_wanted, i = 0;

        for (int p = 0; p < n_parts; p++) { /* some of them are empty */
            int64_t bytes = (int64_t)draw(&seed, 8);

            part[p] = (struct wf_part){memory + 10 * p, bytes};
            for (int64_t b = 0; b < bytes; b++)
                expected[total++] = memory + 10 * p + b;
        }
        at = (int64_t)draw(&seed, (uint64_t)total + 1);
        length_wanted = (int64_t)draw(&seed, (uint64_t)(total - at) + 1);
        n = wf_part_range(part, n_parts, at, length_wanted, out, 6);
        for (k = 0; k < n; k++) {
            assert_true(out[k].n > 0);
            for (int64_t b = 0; b < out[k].n; b++)
                assert_ptr_equal((uint8_t *)out[k].p + b, expected[at + i++]);
        }
        assert_int_equal(i, length_wanted);
        assert_int_equal(wf_part_range(part, n_parts, at, length_wanted, NULL, 0), n);
    }
}

static void heads_are_checked(void **state)
{
    struct wf_sides_head s = {.n = 2, .stripe = WF_STRIPE}, s2;
    struct wf_attach_head a = {.index = 1, .incarnation = 0x1122334455667788u}, a2;
    uint8_t sides[WF_SIDES_HEAD], attach[WF_ATTACH_HEAD];

    (void)state;
    for (int i = 0; i < WF_TOKEN; i++)
        s.token[i] = a.token[i] = (uint8_t)(i * 17);
    wf_sides_encode(&s, sides);
    wf_attach_encode(&a, attach);
    assert_int_equal(wf_sides_decode(sides, sizeof sides, &s2), 0);
    assert_int_equal(s2.n, 2);
    assert_int_equal(s2.stripe, WF_STRIPE);
    assert_memory_equal(s2.token, s.token, WF_TOKEN);
    assert_int_equal(wf_attach_decode(attach, sizeof attach, &a2), 0);
    assert_int_equal(a2.index, 1);
    assert_true(a2.incarnation == a.incarnation);
    assert_true(wf_token_equal(a2.token, s.token));
    for (int i = 0; i < WF_TOKEN; i++) {
        a2.token[i] ^= 1;
        assert_false(wf_token_equal(a2.token, s.token));
        a2.token[i] ^= 1;
    }
    for (int64_t n = 0; n < 40; n++) {
        uint8_t bytes[40] = {0};

        if (n != WF_SIDES_HEAD)
            assert_int_equal(wf_sides_decode(bytes, n, &s2), WEFT_EPEER);
        if (n != WF_ATTACH_HEAD)
            assert_int_equal(wf_attach_decode(bytes, n, &a2), WEFT_EPEER);
    }
    sides[WF_TOKEN] = 0;
    assert_int_equal(wf_sides_decode(sides, sizeof sides, &s2), WEFT_EPEER);
    sides[WF_TOKEN] = WF_MAX_SIDES + 1;
    assert_int_equal(wf_sides_decode(sides, sizeof sides, &s2), WEFT_EPEER);
    sides[WF_TOKEN] = WF_MAX_SIDES;
    assert_int_equal(wf_sides_decode(sides, sizeof sides, &s2), 0);
    for (int i = 0; i < 4; i++)
        sides[WF_TOKEN + 1 + i] = 0;
    assert_int_equal(wf_sides_decode(sides, sizeof sides, &s2), WEFT_EPEER);
    sides[WF_TOKEN + 4] = 0xff;
    assert_int_equal(wf_sides_decode(sides, sizeof sides, &s2), WEFT_EPEER);
}

/* ---- docs/formats/wire.md
 * --------------------------------------------------------------------- */

static void expect_bytes(int example, const struct wf_frame *f, const void *head,
                         const uint8_t *payload)
{
    uint8_t page[256], bytes[256];
    int n = wirepage_bytes(WIREPAGE, example, page, sizeof page), at = WF_FRAME_HEADER;

    wf_frame_encode(f, head, bytes);
    memcpy(bytes + at, head, (size_t)f->n_head);
    at += f->n_head;
    if (f->flags & WF_FRAME_SUMMED) {
        uint32_t crc = wf_crc32c(0, payload, f->n_payload);

        memcpy(bytes + at, payload, (size_t)f->n_payload);
        at += (int)f->n_payload;
        for (int i = 0; i < 4; i++)
            bytes[at++] = (uint8_t)(crc >> 8 * i);
    }
    if (n != at || memcmp(page, bytes, (size_t)n) != 0) {
        for (int i = 0; i < at; i++)
            fprintf(stderr, "%02x%s", bytes[i], i % 16 == 15 ? "\n" : " ");
        fail_msg("example %d of the page has %d bytes, and others", example, n);
    }
}

static void the_documented_bytes_are_sent(void **state)
{
    struct wf_sides_head s = {.n = 2, .stripe = WF_STRIPE};
    struct wf_attach_head a = {.index = 1, .incarnation = 7};
    uint8_t sides[WF_SIDES_HEAD], attach[WF_ATTACH_HEAD];

    (void)state;
    for (int i = 0; i < WF_TOKEN; i++)
        s.token[i] = a.token[i] = (uint8_t)(i + 1);
    wf_sides_encode(&s, sides);
    wf_attach_encode(&a, attach);
    expect_bytes(WIREPAGE_SIDES, &(struct wf_frame){.type = WF_FRAME_SIDES, .n_head = sizeof sides},
                 sides, NULL);
    expect_bytes(WIREPAGE_ATTACH,
                 &(struct wf_frame){.type = WF_FRAME_ATTACH, .n_head = sizeof attach}, attach,
                 NULL);
    expect_bytes(WIREPAGE_STRIPED,
                 &(struct wf_frame){.type = WF_FRAME_MESSAGE,
                                    .flags = WF_FRAME_STRIPED,
                                    .kind = 7,
                                    .n_head = 2,
                                    .n_payload = 524293},
                 "hi", NULL);
    expect_bytes(WIREPAGE_STRIPE,
                 &(struct wf_frame){.type = WF_FRAME_STRIPE,
                                    .flags = WF_FRAME_SUMMED,
                                    .id = 1,
                                    .wait = 524288,
                                    .n_payload = 5},
                 "", (const uint8_t *)"abcde");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stripe_is_taken_once_in_any_order),
        cmocka_unit_test(what_is_not_missing_is_refused),
        cmocka_unit_test(without_memory_nothing_is_open),
        cmocka_unit_test(parts_of_a_range),
        cmocka_unit_test(heads_are_checked),
        cmocka_unit_test(the_documented_bytes_are_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
