/* codec_test.c - messages and epoch records as bytes: what is written is read again, golden bytes,
 * and nothing that is out of range gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "cluster/codec.h"
#include "support/counting.h"
#include "support/wirepage.h"

enum { WORDS = 4 };

static uint64_t draw(uint64_t *s, uint64_t n)
{
    *s += 0x9e3779b97f4a7c15u;
    return wf_hash64(s, sizeof *s, 5) % n;
}

static weft_ctx *new_ctx(void)
{
    weft_ctx *ctx;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    return ctx;
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct wf_message draw_message(uint64_t *s, const uint64_t *bits)
{
    struct wf_message m = {.type = (enum wf_message_type)(1 + draw(s, WF_MSG_TYPES - 1)),
                           .from = (int)draw(s, WF_MAX_NODES),
                           .to = (int)draw(s, WF_MAX_NODES),
                           .role = (enum wf_role)draw(s, 3),
                           .incarnation = draw(s, UINT64_MAX),
                           .term = draw(s, (uint64_t)1 << 62),
                           .epoch = draw(s, (uint64_t)1 << 62),
                           .history = draw(s, (uint64_t)1 << 62),
                           .piece = (int)draw(s, 1 << 20) - 1,
                           .shard = (int)draw(s, 1 << 20) - 1,
                           .block = (int)draw(s, 1 << 20) - 1,
                           .round = (int)draw(s, 2),
                           .decided = draw(s, 2),
                           .t = (int64_t)draw(s, (uint64_t)1 << 62) - 1,
                           .pace_ns = (int64_t)draw(s, 1 << 30)};

    m.follow = m.type == WF_MSG_PULL && draw(s, 2);
    if (m.type == WF_MSG_PUSH && draw(s, 2)) {
        m.level = (int)draw(s, 10);
        m.shard = (int)draw(s, 1000) << m.level;
    }
    if (m.type == WF_MSG_AT || m.type == WF_MSG_FILL || m.type == WF_MSG_GRANT ||
        m.type == WF_MSG_LEASES || m.type == WF_MSG_LEDGER) {
        m.n_words = 1 + (int)draw(s, WORDS);
        m.bits = bits;
    }
    switch (m.type) {
    case WF_MSG_CLOSE: m.whole = draw(s, 2); /* fall through */
    case WF_MSG_PULL:
    case WF_MSG_VERSION:
    case WF_MSG_PUSH:
    case WF_MSG_RECORD:
    case WF_MSG_FILL:
    case WF_MSG_APPLIED:
    case WF_MSG_GRANT:
    case WF_MSG_DRAINED:
        m.lease = (int64_t)draw(s, (uint64_t)1 << 40);
        m.pace_ns = 0;
        break;
    default: break;
    }
    return m;
}

static void a_message_is_read_as_it_was_written(void **state)
{
    uint64_t seed = 1, bits[WORDS] = {1, UINT64_MAX, 7, (uint64_t)1 << 63}, got[WORDS];
    uint8_t bytes[WF_MESSAGE_HEAD + 8 * WORDS], again[sizeof bytes];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct wf_message m = draw_message(&seed, bits), r;
        int32_t n = wf_message_write(&m, bytes, sizeof bytes);

        assert_int_equal(n, WF_MESSAGE_HEAD + 8 * m.n_words);
        assert_int_equal(wf_message_write(&m, again, n - 1), -1);
        assert_int_equal(wf_message_read(bytes, n, &r, got, WORDS), WEFT_OK);
        assert_int_equal(r.type, m.type);
        assert_int_equal(r.role, m.role);
        assert_true(r.from == m.from && r.to == m.to && r.piece == m.piece && r.shard == m.shard);
        assert_true(r.block == m.block && r.round == m.round && r.level == m.level && r.t == m.t);
        assert_true(r.decided == m.decided && r.term == m.term && r.epoch == m.epoch);
        assert_true(r.follow == m.follow && r.whole == m.whole && r.lease == m.lease);
        assert_true(r.incarnation == m.incarnation && r.history == m.history);
        assert_true(r.n_words == m.n_words && !r.record && !r.payload && r.pace_ns == m.pace_ns);
        assert_ptr_equal(r.bits, m.bits ? got : NULL);
        if (m.bits)
            assert_memory_equal(got, bits, (size_t)m.n_words * 8);
        assert_int_equal(wf_message_write(&r, again, sizeof again), n);
        assert_memory_equal(bytes, again, (size_t)n);
    }
}

/* One number of a valid message is replaced: 1 byte, or 4, or 8. */
static void what_is_out_of_range_in_a_message_is_refused(void **state)
{
    static const struct {
        int at, size;
        uint64_t value;
        const char *text;
    } row[] = {
        {0, 1, 2, "version 2; this is version 1"},
        {1, 1, 0, "no message has type 0"},
        {1, 1, WF_MSG_TYPES, "no message has type"},
        {2, 1, 3, "role 3 is out of range"},
        {3, 1, 2, "unknown flags"},
        {4, 4, (uint32_t)-1, "from -1 is out of range"},
        {4, 4, WF_MAX_NODES, "from 65536 is out of range"},
        {8, 4, 0x80000000u, "to -2147483648 is out of range"},
        {12, 4, (uint32_t)-2, "piece -2 is out of range"},
        {24, 8, ((uint64_t)1 << 62) + 1, "term"},
        {32, 8, UINT64_MAX, "epoch"},
        {40, 8, UINT64_MAX, "history"},
        {48, 8, (uint64_t)-2, "version -2 is out of range"},
        {48, 8, INT64_MAX, "version"},
        {56, 4, (uint32_t)-2, "shard -2 is out of range"},
        {60, 4, (uint32_t)-2, "block -2 is out of range"},
        {64, 1, WF_MAX_LEVEL + 1, "level 31 is out of range"},
        {64, 1, 3, "it must begin at a multiple"},
        {65, 1, 2, "round 2 is out of range"},
        {67, 1, 1, "unknown flags"},
        {68, 4, 1, "80 bytes with 1 words"},
        {3, 1, 4, "unknown flags"},
        {3, 1, 8, "unknown flags"},
        {72, 8, UINT64_MAX, "lease -1 is out of range"},
        {68, 4, UINT32_MAX, "words of bits"},
    };
    struct wf_message m = {.type = WF_MSG_PUSH, .from = 3, .to = 1, .shard = 12, .level = 2}, r;
    uint8_t bytes[WF_MESSAGE_HEAD], bad[WF_MESSAGE_HEAD];
    uint64_t bits[WORDS];

    (void)state;
    assert_int_equal(wf_message_write(&m, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(wf_message_read(bytes, sizeof bytes, &r, bits, WORDS), WEFT_OK);
    for (int i = 0; i < WF_COUNT(row); i++) {
        memcpy(bad, bytes, sizeof bad);
        for (int k = 0; k < row[i].size; k++)
            bad[row[i].at + k] = (uint8_t)(row[i].value >> 8 * k);
        assert_int_equal(wf_message_read(bad, sizeof bad, &r, bits, WORDS), WEFT_EPEER);
        if (!strstr(weft_error(), row[i].text))
            fail_msg("row %d: '%s'", i, weft_error());
    }
    for (int n = 0; n < (int)sizeof bytes; n++)
        assert_int_equal(wf_message_read(bytes, n, &r, bits, WORDS), WEFT_EPEER);
}

static void bits_fit_where_they_go(void **state)
{
    uint64_t bits[WORDS] = {1, 2, 3, 4}, got[WORDS];
    struct wf_message m = {.type = WF_MSG_AT, .bits = bits, .n_words = 3}, r;
    uint8_t bytes[WF_MESSAGE_HEAD + 8 * WORDS];
    int32_t n = wf_message_write(&m, bytes, sizeof bytes);

    (void)state;
    assert_int_equal(wf_message_read(bytes, n, &r, got, 3), WEFT_OK);
    assert_int_equal(wf_message_read(bytes, n, &r, got, 2), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "3 words of bits; 2 are expected"));
    assert_int_equal(wf_message_read(bytes, n - 8, &r, got, 3), WEFT_EPEER);
    assert_int_equal(wf_message_read(bytes, n + 8, &r, got, 3), WEFT_EPEER);
    bytes[1] = WF_MSG_PUSH;
    assert_int_equal(wf_message_read(bytes, n, &r, got, 3), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "0 are expected"));
}

/* The examples of docs/formats/ps.md. */
static void the_documented_messages_are_these(void **state)
{
    uint64_t bits = 0x8000000000000005u, leases[2] = {0x8000000000000003u, 1};
    const struct wf_message m[4] = {{.type = WF_MSG_PUSH,
                                     .from = 5,
                                     .to = 2,
                                     .role = WF_ROLE_WORKER,
                                     .incarnation = 77,
                                     .term = 3,
                                     .epoch = 9,
                                     .history = 1,
                                     .piece = 4,
                                     .shard = 6,
                                     .level = 1,
                                     .t = 258},
                                    {.type = WF_MSG_AT,
                                     .from = 2,
                                     .to = 5,
                                     .role = WF_ROLE_SERVER,
                                     .incarnation = 78,
                                     .term = 3,
                                     .epoch = 9,
                                     .history = 1,
                                     .piece = 4,
                                     .t = 259,
                                     .bits = &bits,
                                     .n_words = 1},
                                    {.type = WF_MSG_CLOSE,
                                     .from = 5,
                                     .to = 2,
                                     .role = WF_ROLE_WORKER,
                                     .incarnation = 77,
                                     .term = 3,
                                     .epoch = 9,
                                     .history = 1,
                                     .piece = 4,
                                     .t = 40,
                                     .lease = 300,
                                     .whole = true},
                                    {.type = WF_MSG_GRANT,
                                     .from = 0,
                                     .to = 5,
                                     .role = WF_ROLE_CHIEF,
                                     .term = 3,
                                     .epoch = 9,
                                     .history = 1,
                                     .t = 320,
                                     .block = 7,
                                     .bits = leases,
                                     .n_words = 2}};
    uint8_t want[256], bytes[256];

    (void)state;
    for (int i = 0; i < 4; i++) {
        int n = wirepage_bytes(PSPAGE, PSPAGE_PUSH + i, want, sizeof want);

        assert_int_equal(wf_message_write(&m[i], bytes, sizeof bytes), n);
        assert_memory_equal(bytes, want, (size_t)n);
    }
}

/* ---- epochs ---------------------------------------------------------------------------------- */

/* Members 0 … n_servers - 1 are servers, the others workers. */
static struct wf_epoch *draw_epoch(weft_ctx *ctx, uint64_t *s)
{
    int n_servers = 3 + (int)draw(s, 3), n_workers = 1 + (int)draw(s, 4);
    struct wf_epoch *e;

    assert_int_equal(wf_epoch_new(ctx, n_servers + n_workers, (int)draw(s, 6), (int)draw(s, 9), &e),
                     WEFT_OK);
    e->term = 1 + draw(s, 1000);
    e->history = 1 + draw(s, 1000);
    e->number = 1 + draw(s, 1000);
    e->start = (int64_t)draw(s, 1000);
    e->halt = (int64_t)draw(s, 1000) - 1;
    e->chief = (int)draw(s, 100);
    for (int i = 0; i < e->n_members; i++)
        e->member[i] = (struct wf_member){i * 7, i < n_servers ? WF_ROLE_SERVER : WF_ROLE_WORKER,
                                          draw(s, UINT64_MAX), draw(s, 2)};
    for (int i = 0; i < e->n_pieces; i++) {
        bool target = draw(s, 2);

        e->holders[i] = (struct wf_holders){7 * (int)draw(s, 1), draw(s, 2) ? 7 : WF_NOBODY,
                                            target ? 14 : WF_NOBODY, target && draw(s, 2)};
    }
    for (int i = 0; i < e->n_shards; i++)
        e->worker[i] = draw(s, 5) ? 7 * (n_servers + (int)draw(s, (uint64_t)n_workers)) : WF_NOBODY;
    e->list = draw(s, 2) ? wf_strdup(ctx, "ps/2 uds:/a\nworker/3\n") : NULL;
    return e;
}

static void same_epoch(const struct wf_epoch *a, const struct wf_epoch *b)
{
    assert_true(a->term == b->term && a->history == b->history && a->number == b->number);
    assert_true(a->start == b->start && a->halt == b->halt && a->chief == b->chief &&
                a->n_members == b->n_members);
    assert_true(a->n_pieces == b->n_pieces && a->n_shards == b->n_shards);
    assert_string_equal(a->list ? a->list : "none", b->list ? b->list : "none");
    for (int i = 0; i < a->n_members; i++)
        assert_true(a->member[i].node == b->member[i].node &&
                    a->member[i].role == b->member[i].role &&
                    a->member[i].incarnation == b->member[i].incarnation &&
                    a->member[i].leaves == b->member[i].leaves);
    for (int i = 0; i < a->n_pieces; i++)
        assert_true(a->holders[i].primary == b->holders[i].primary &&
                    a->holders[i].backup == b->holders[i].backup &&
                    a->holders[i].target == b->holders[i].target &&
                    a->holders[i].moves == b->holders[i].moves);
    for (int i = 0; i < a->n_shards; i++)
        assert_int_equal(a->worker[i], b->worker[i]);
}

static void an_epoch_is_read_as_it_was_written(void **state)
{
    weft_ctx *ctx = new_ctx();
    uint64_t seed = 4;

    (void)state;
    for (int i = 0; i < 300; i++) {
        struct wf_epoch *e = draw_epoch(ctx, &seed), *r = NULL;
        struct wf_buf b, small;

        wf_buf_init(&b, ctx, 1 << 16);
        wf_buf_add(&b, "before", 6); /* it is appended */
        assert_int_equal(wf_epoch_write(e, &b), WEFT_OK);
        assert_int_equal(wf_epoch_read(ctx, b.data + 6, b.len - 6, &r), WEFT_OK);
        same_epoch(e, r);
        wf_buf_init(&small, ctx, b.len - 7);
        assert_int_equal(wf_epoch_write(e, &small), WEFT_ELIMIT);
        wf_buf_free(&small);
        wf_buf_free(&b);
        wf_epoch_free(ctx, e);
        wf_epoch_free(ctx, r);
    }
    weft_ctx_free(ctx);
}

static void damage_of_an_epoch_is_found(void **state)
{
    weft_ctx *ctx = new_ctx();
    uint64_t seed = 9;
    struct wf_epoch *e = draw_epoch(ctx, &seed), *r;
    struct wf_buf b;

    (void)state;
    wf_buf_init(&b, ctx, 1 << 16);
    assert_int_equal(wf_epoch_write(e, &b), WEFT_OK);
    for (int64_t i = 0; i < b.len * 8; i++) {
        b.data[i / 8] ^= (char)(1 << i % 8);
        assert_int_equal(wf_epoch_read(ctx, b.data, b.len, &r), WEFT_EDATA);
        b.data[i / 8] ^= (char)(1 << i % 8);
    }
    for (int64_t n = 0; n < b.len; n++)
        assert_int_equal(wf_epoch_read(ctx, b.data, n, &r), WEFT_EDATA);
    wf_buf_free(&b);
    wf_epoch_free(ctx, e);
    weft_ctx_free(ctx);
}

/* Two servers, one worker, a piece, a shard; one number is replaced, and the checksum is right. */
static struct wf_epoch *small_epoch(weft_ctx *ctx)
{
    struct wf_epoch *e;

    assert_int_equal(wf_epoch_new(ctx, 3, 1, 2, &e), WEFT_OK);
    e->term = 3;
    e->history = 1;
    e->number = 9;
    e->start = 40;
    e->halt = 43;
    e->chief = 0;
    e->member[0] = (struct wf_member){1, WF_ROLE_SERVER, 76, false};
    e->member[1] = (struct wf_member){2, WF_ROLE_SERVER, 78, true};
    e->member[2] = (struct wf_member){5, WF_ROLE_WORKER, 77, false};
    e->holders[0] = (struct wf_holders){2, WF_NOBODY, 1, true};
    e->worker[0] = 5;
    e->worker[1] = WF_NOBODY;
    return e;
}

static void an_epoch_that_cannot_be_is_refused(void **state)
{
    enum { MEMBERS = 72, HOLDERS = MEMBERS + 48, SHARDS = HOLDERS + 16 };
    static const struct {
        int at;
        uint32_t value;
        const char *text;
    } row[] = {
        {0, 1, "not an epoch record"},
        {4, 1, "of version 1; this is version 3"},
        {12, WF_MAX_NODES, "chief of epoch 9: 65536 is out of range"},
        {16, 4, "with 4 members, 1 pieces and 2 shards"},
        {16, UINT32_MAX, "with 4294967295 members"},
        {20, 1 << 28, "pieces"},
        {24, 0x40000000, "shards"},
        {28, 1, "members"},
        {32, 0, "term of epoch 9: 0"},
        {36, 0x80000000u, "term of epoch"},
        {40, 0, "history of epoch 9: 0"},
        {48, 0, "number of epoch 0: 0"},
        {60, 0x80000000u, "start of epoch"},
        {68, 0x80000000u, "halt of epoch"},
        {MEMBERS, WF_MAX_NODES, "node of member 0: 65536"},
        {MEMBERS, 2, "names node 2 twice"},
        {MEMBERS + 4, WF_ROLE_CHIEF, "role of member 0"},
        {MEMBERS + 4, 3, "role of member 0"},
        {MEMBERS + 4, 513, "role of member 0"},
        {HOLDERS, (uint32_t)WF_NOBODY, "primary of piece 0: -1"},
        {HOLDERS, 5, "primary of piece 0: 5"},
        {HOLDERS, 3, "primary of piece 0: 3"},
        {HOLDERS + 4, 2, "backup of piece 0: 2"},
        {HOLDERS + 4, 5, "backup of piece 0: 5"},
        {HOLDERS + 4, (uint32_t)-2, "backup of piece 0: -2"},
        {HOLDERS + 4, 1, "target of piece 0: 1"},
        {HOLDERS + 8, 2, "target of piece 0: 2"},
        {HOLDERS + 8, 60000, "target of piece 0: 60000"},
        {HOLDERS + 8, (uint32_t)WF_NOBODY, "moves of piece 0: 1"},
        {HOLDERS + 12, 2, "moves of piece 0: 2"},
        {SHARDS, 1, "worker of shard 0: 1"},
        {SHARDS + 4, 6, "worker of shard 1: 6"},
    };
    weft_ctx *ctx = new_ctx();
    struct wf_epoch *e = small_epoch(ctx), *r;
    struct wf_buf b;
    uint8_t bad[256];

    (void)state;
    wf_buf_init(&b, ctx, sizeof bad);
    assert_int_equal(wf_epoch_write(e, &b), WEFT_OK);
    assert_int_equal(b.len, SHARDS + 8);
    for (int i = 0; i < WF_COUNT(row); i++) {
        memcpy(bad, b.data, (size_t)b.len);
        wf_put_le32(bad + row[i].at, row[i].value);
        wf_put_le32(bad + 8, wf_crc32c(0, bad + 12, b.len - 12));
        assert_int_equal(wf_epoch_read(ctx, bad, b.len, &r), WEFT_EDATA);
        if (!strstr(weft_error(), row[i].text))
            fail_msg("row %d: '%s'", i, weft_error());
    }
    wf_buf_free(&b);
    wf_epoch_free(ctx, e);
    weft_ctx_free(ctx);
}

static void the_documented_epoch_is_this(void **state)
{
    weft_ctx *ctx = new_ctx();
    struct wf_epoch *e = small_epoch(ctx);
    uint8_t want[256];
    int n = wirepage_bytes(PSPAGE, PSPAGE_EPOCH, want, sizeof want);
    struct wf_buf b;

    (void)state;
    wf_buf_init(&b, ctx, sizeof want);
    assert_int_equal(wf_epoch_write(e, &b), WEFT_OK);
    assert_int_equal(b.len, n);
    assert_memory_equal(b.data, want, (size_t)n);
    wf_buf_free(&b);
    wf_epoch_free(ctx, e);
    weft_ctx_free(ctx);
}

/* Every allocation fails in turn. */
static void an_epoch_without_memory_leaks_nothing(void **state)
{
    weft_ctx *calm = new_ctx();
    struct wf_epoch *e = small_epoch(calm);
    struct wf_buf b;

    (void)state;
    wf_buf_init(&b, calm, 1 << 16);
    assert_int_equal(wf_epoch_write(e, &b), WEFT_OK);
    for (int64_t i = 0;; i++) {
        struct counting c = {0};
        weft_allocator mem = counting_allocator(&c);
        struct wf_epoch *r = NULL;
        int64_t live;
        weft_ctx *ctx;
        weft_status st;

        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &mem), &ctx), WEFT_OK);
        live = c.n_live;
        c.fail_at = c.n_allocs + 1 + i;
        st = wf_epoch_read(ctx, b.data, b.len, &r);
        c.fail_at = 0;
        wf_epoch_free(ctx, r);
        assert_int_equal(c.n_live, live);
        weft_ctx_free(ctx);
        if (!st)
            break;
        assert_int_equal(st, WEFT_ENOMEM);
        assert_true(i < 20);
    }
    wf_buf_free(&b);
    wf_epoch_free(calm, e);
    weft_ctx_free(calm);
}

/* What a worker does has more values than rounds. */
static void a_beat_says_what_a_worker_does(void **state)
{
    struct wf_message m = {.type = WF_MSG_BEAT, .from = 3, .role = WF_ROLE_WORKER, .t = 9}, r;
    uint8_t bytes[WF_MESSAGE_HEAD];

    (void)state;
    for (m.round = 0; m.round <= WF_N_DOINGS; m.round++) {
        bool good = m.round < WF_N_DOINGS;

        assert_int_equal(wf_message_write(&m, bytes, sizeof bytes), sizeof bytes);
        assert_int_equal(wf_message_read(bytes, sizeof bytes, &r, NULL, 0),
                         good ? WEFT_OK : WEFT_EPEER);
        if (good)
            assert_int_equal(r.round, m.round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_says_what_a_worker_does),
        cmocka_unit_test(a_message_is_read_as_it_was_written),
        cmocka_unit_test(what_is_out_of_range_in_a_message_is_refused),
        cmocka_unit_test(bits_fit_where_they_go),
        cmocka_unit_test(the_documented_messages_are_these),
        cmocka_unit_test(an_epoch_is_read_as_it_was_written),
        cmocka_unit_test(damage_of_an_epoch_is_found),
        cmocka_unit_test(an_epoch_that_cannot_be_is_refused),
        cmocka_unit_test(the_documented_epoch_is_this),
        cmocka_unit_test(an_epoch_without_memory_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
