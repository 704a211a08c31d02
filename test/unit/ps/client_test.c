/* client_test.c - a worker as a machine: what it sends together, what it sends again, and when it
 * computes what is not its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ps/ps.h"

#define MS ((int64_t)1000000)

enum { CHIEF, SERVER, ME, OTHER, SHARDS = 8 };

struct worker {
    weft_ctx *ctx;
    struct wf_client m;
    struct wf_actions acts;
    struct wf_epoch *epoch;
    int64_t now;
};

static weft_status take(void *arg, int piece, int64_t t, const void *payload)
{
    (void)arg;
    (void)piece;
    (void)t;
    (void)payload;
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    (void)arg;
    (void)shard;
    (void)t;
    return piece >= 0;
}

static bool yes(void *arg, int piece)
{
    (void)arg;
    return piece >= 0;
}

static void forget(void *arg, int64_t t)
{
    (void)arg;
    (void)t;
}

static void hear(struct worker *w, struct wf_message m)
{
    m.from = m.type == WF_MSG_EPOCH ? CHIEF : SERVER;
    m.role = m.type == WF_MSG_EPOCH ? WF_ROLE_CHIEF : WF_ROLE_SERVER;
    m.to = ME;
    m.term = m.history = 1;
    m.epoch = w->epoch->number;
    m.incarnation = SERVER;
    m.record = m.type == WF_MSG_EPOCH ? w->epoch : NULL;
    w->acts.n = 0;
    assert_int_equal(wf_client_step(&w->m, w->now, &m, &w->acts), WEFT_OK);
}

/* Shards [first, end) are this worker's, the others another one's. */
static void begin_epoch(struct worker *w, int first, int end)
{
    w->epoch->number++;
    for (int l = 0; l < w->epoch->n_shards; l++)
        w->epoch->worker[l] = l >= first && l < end ? ME : OTHER;
    hear(w, (struct wf_message){.type = WF_MSG_EPOCH});
}

static void start(struct worker *w, int n_shards, bool sums, int backup)
{
    struct wf_ps_plan plan = {
        .n_pieces = 1, .n_shards = n_shards, .n_blocks = 1, .retry_ns = 100 * MS, .n_steps = 10};
    struct wf_client_data data = {.backup = backup,
                                  .sums = sums ? yes : NULL,
                                  .take = take,
                                  .needs = needs,
                                  .forget = forget};

    *w = (struct worker){.now = 1000 * MS};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &w->ctx), WEFT_OK);
    wf_actions_init(&w->acts, w->ctx);
    assert_int_equal(wf_client_init(&w->m, w->ctx, &plan, &data, ME, ME, CHIEF), WEFT_OK);
    assert_int_equal(wf_epoch_new(w->ctx, 3, 1, n_shards, &w->epoch), WEFT_OK);
    w->epoch->term = w->epoch->history = 1;
    w->epoch->member[0] = (struct wf_member){SERVER, WF_ROLE_SERVER, SERVER, false};
    w->epoch->member[1] = (struct wf_member){ME, WF_ROLE_WORKER, ME, false};
    w->epoch->member[2] = (struct wf_member){OTHER, WF_ROLE_WORKER, OTHER, false};
    w->epoch->holders[0] = (struct wf_holders){SERVER, WF_NOBODY, WF_NOBODY, false};
}

static void end(struct worker *w)
{
    wf_client_free(&w->m);
    wf_actions_free(&w->acts);
    wf_epoch_free(w->ctx, w->epoch);
    weft_ctx_free(w->ctx);
}

static void announce(struct worker *w, int64_t t, uint64_t bits)
{
    hear(w, (struct wf_message){.type = WF_MSG_AT, .t = t, .bits = &bits, .n_words = 1});
}

static void bring(struct worker *w, int64_t t)
{
    hear(w, (struct wf_message){.type = WF_MSG_VERSION, .t = t});
}

static void computed(struct worker *w, int shard)
{
    w->now += 10 * MS;
    w->acts.n = 0;
    assert_int_equal(wf_client_computed(&w->m, w->now, w->m.t, shard, &w->acts), WEFT_OK);
}

/* Exactly these pushes: first shard, level, …, -1. */
static void expect(const struct worker *w, const int *push)
{
    for (int64_t i = 0; i < w->acts.n; i++) {
        const struct wf_message *m = &w->acts.act[i].msg;

        if (w->acts.act[i].type != WF_ACT_SEND || m->type != WF_MSG_PUSH)
            continue;
        if (m->shard != push[0] || m->level != push[1])
            fail_msg("a push of shard %d, level %d", m->shard, m->level);
        push += 2;
    }
    if (*push >= 0)
        fail_msg("no push of shard %d, level %d", push[0], push[1]);
}

#define EXPECT(w, ...) expect(w, (const int[]){__VA_ARGS__})

/* The shard that is to be computed; -1: none. */
static int task(const struct worker *w)
{
    for (int64_t i = 0; i < w->acts.n; i++)
        if (w->acts.act[i].type == WF_ACT_COMPUTE)
            return w->acts.act[i].shard;
    return -1;
}

static void a_run_is_sent_as_its_largest_subtrees(void **state)
{
    struct worker w;

    (void)state;
    start(&w, SHARDS, true, 0);
    begin_epoch(&w, 1, 7);
    bring(&w, 0);
    assert_int_equal(task(&w), 1);
    computed(&w, 1);
    EXPECT(&w, 1, 0, -1);
    computed(&w, 2);
    EXPECT(&w, -1);
    computed(&w, 3);
    EXPECT(&w, 2, 1, -1);
    computed(&w, 4);
    EXPECT(&w, -1);
    computed(&w, 5);
    EXPECT(&w, 4, 1, -1);
    computed(&w, 6);
    EXPECT(&w, 6, 0, -1);
    end(&w);
}

static void all_shards_are_one_sum_whatever_their_number(void **state)
{
    static const int level[] = {0, 0, 1, 2, 2, 3, 3, 3, 3};

    (void)state;
    for (int n = 1; n <= SHARDS; n++) {
        struct worker w;

        start(&w, n, true, 0);
        begin_epoch(&w, 0, n);
        bring(&w, 0);
        for (int l = 0; l < n - 1; l++) {
            computed(&w, l);
            EXPECT(&w, -1);
        }
        computed(&w, n - 1);
        EXPECT(&w, 0, level[n], -1);
        end(&w);
    }
}

static void without_sums_each_shard_is_sent_by_itself(void **state)
{
    struct worker w;

    (void)state;
    start(&w, SHARDS, false, 0);
    begin_epoch(&w, 0, 2);
    bring(&w, 0);
    computed(&w, 0);
    EXPECT(&w, 0, 0, -1);
    computed(&w, 1);
    EXPECT(&w, 1, 0, -1);
    announce(&w, 0, 0);
    EXPECT(&w, 0, 0, 1, 0, -1);
    end(&w);
}

static void what_is_missing_is_sent_in_smaller_subtrees(void **state)
{
    struct worker w;

    (void)state;
    start(&w, SHARDS, true, 0);
    begin_epoch(&w, 0, 4);
    bring(&w, 0);
    for (int l = 0; l < 4; l++)
        computed(&w, l);
    EXPECT(&w, 0, 2, -1);
    announce(&w, 0, 1 << 1); /* another one had computed shard 1 */
    EXPECT(&w, 0, 0, 2, 1, -1);
    announce(&w, 0, 1 << 0 | 1 << 1);
    EXPECT(&w, 2, 1, -1);
    announce(&w, 0, 15);
    EXPECT(&w, -1);
    end(&w);
}

/* Half of a subtree is there: the other half does not wait for a shard that will be elsewhere. */
static void a_new_epoch_makes_other_subtrees(void **state)
{
    struct worker w;

    (void)state;
    start(&w, SHARDS, true, 0);
    begin_epoch(&w, 0, 4);
    bring(&w, 0);
    computed(&w, 0);
    computed(&w, 1);
    EXPECT(&w, -1);
    begin_epoch(&w, 0, 3); /* shard 3 is another one's */
    computed(&w, 2);
    EXPECT(&w, 2, 0, -1);
    announce(&w, 0, 0);
    EXPECT(&w, 0, 1, 2, 0, -1);
    end(&w);
}

static void a_late_shard_is_computed_by_whoever_waits(void **state)
{
    struct worker w;

    (void)state;
    start(&w, SHARDS, true, 3);
    begin_epoch(&w, 0, 2);
    bring(&w, 0);
    computed(&w, 0); /* 10 ms */
    computed(&w, 1);
    EXPECT(&w, 0, 1, -1);
    w.now += 25 * MS;
    announce(&w, 0, 0xfb); /* shard 2 is missing, and not late */
    assert_int_equal(task(&w), -1);
    w.now += 25 * MS;
    announce(&w, 0, 0xfb);
    assert_int_equal(task(&w), 2);
    computed(&w, 2);
    EXPECT(&w, 2, 0, -1);
    w.now += 1000 * MS;
    announce(&w, 0, 0xff);
    assert_int_equal(task(&w), -1);
    end(&w);
}

static void nobody_helps_if_that_is_off(void **state)
{
    struct worker w;

    (void)state;
    start(&w, SHARDS, true, 0);
    begin_epoch(&w, 0, 2);
    bring(&w, 0);
    computed(&w, 0);
    computed(&w, 1);
    w.now += 60000 * MS;
    announce(&w, 0, 0xfb);
    assert_int_equal(task(&w), -1);
    end(&w);
}

/* The next beat. */
static struct wf_message beat(struct worker *w)
{
    struct wf_message m = {.type = WF_MSG_TYPES};

    w->now += 200 * MS;
    w->acts.n = 0;
    assert_int_equal(wf_client_tick(&w->m, w->now, &w->acts), WEFT_OK);
    for (int64_t i = 0; i < w->acts.n; i++)
        if (w->acts.act[i].type == WF_ACT_SEND && w->acts.act[i].msg.type == WF_MSG_BEAT)
            m = w->acts.act[i].msg;
    assert_int_equal(m.type, WF_MSG_BEAT);
    return m;
}

static enum wf_doing reads_data(void *arg)
{
    (void)arg;
    return WF_DOES_READ;
}

/* Of a worker whose program hangs, the count stays the same. */
static void a_beat_says_what_is_done_and_how_often(void **state)
{
    struct wf_message before, now;
    struct worker w;

    (void)state;
    start(&w, 4, false, 0);
    assert_int_equal(beat(&w).round, WF_DOES_WAIT); /* it does not belong to the job yet */
    begin_epoch(&w, 1, 3);
    assert_int_equal(beat(&w).round, WF_DOES_WAIT); /* for the first version */
    bring(&w, 0);
    assert_int_equal(task(&w), 1);
    before = beat(&w);
    now = beat(&w);
    assert_true(now.round == WF_DOES_COMPUTE && now.shard == 1 && now.t == 0);
    assert_int_equal(now.block, before.block);
    computed(&w, 1);
    now = beat(&w);
    assert_true(now.round == WF_DOES_COMPUTE && now.shard == 2);
    assert_int_not_equal(now.block, before.block);
    assert_int_equal(wf_client_read(&w.m, w.now, 0, 0, &w.acts), WEFT_OK);
    assert_int_equal(beat(&w).round, WF_DOES_WAIT); /* for rows */
    w.m.piece[0].reads = false;
    computed(&w, 2);
    now = beat(&w);
    assert_true(now.round == WF_DOES_WAIT && now.shard == WF_NO_SHARD && now.t == 0);
    w.m.data.doing = reads_data;
    assert_int_equal(beat(&w).round, WF_DOES_READ);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_says_what_is_done_and_how_often),
        cmocka_unit_test(a_run_is_sent_as_its_largest_subtrees),
        cmocka_unit_test(all_shards_are_one_sum_whatever_their_number),
        cmocka_unit_test(without_sums_each_shard_is_sent_by_itself),
        cmocka_unit_test(what_is_missing_is_sent_in_smaller_subtrees),
        cmocka_unit_test(a_new_epoch_makes_other_subtrees),
        cmocka_unit_test(a_late_shard_is_computed_by_whoever_waits),
        cmocka_unit_test(nobody_helps_if_that_is_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
