/* stall_test.c - workers that are alive, and hold up the others without progress: who is left out,
 * when, and who is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/chief.h"

#define MS ((int64_t)1000000)
#define STALL (1000 * MS)

enum { SERVER = 1, A = 2, B = 3, NODES = 4 }; /* node 0 is the chief */

/* What a worker says of itself. */
struct says {
    uint64_t incarnation;
    enum wf_doing doing;
    int64_t step, pace_ns;
    int moves;
    bool works; /* it does something with every beat */
};

/* A chief, and a store that answers at once. */
struct job {
    weft_ctx *ctx;
    struct wf_chief chief;
    struct wf_actions acts;
    struct wf_epoch *stored;
    uint64_t term;
    int64_t now;
    struct says a, b;
    bool is_out, b_is_silent; /* the store takes no epochs; B's beats are lost */
};

static void answer(struct job *j, const struct wf_action *a)
{
    struct wf_store_answer s = {.to = a->type, .ok = true, .term = j->term, .epoch = j->stored};

    s.control_t = -1;
    if (a->type == WF_ACT_CREATE_TERM)
        s.term = j->term = a->number;
    if (a->type == WF_ACT_CREATE_EPOCH) {
        wf_epoch_free(j->ctx, j->stored);
        assert_int_equal(wf_epoch_copy(j->ctx, a->record, &j->stored), WEFT_OK);
        s.epoch = NULL;
    }
    assert_int_equal(wf_chief_answer(&j->chief, j->now, &s, &j->acts), WEFT_OK);
}

static void carry_out(struct job *j)
{
    while (j->acts.n) {
        struct wf_action a = j->acts.act[0];

        memmove(j->acts.act, j->acts.act + 1, (size_t)--j->acts.n * sizeof a);
        if (a.type == WF_ACT_READ || a.type == WF_ACT_CREATE_TERM ||
            (a.type == WF_ACT_CREATE_EPOCH && !j->is_out))
            answer(j, &a);
    }
}

static void beat(struct job *j, int node, struct says *s)
{
    struct wf_message m = {.type = WF_MSG_BEAT,
                           .from = node,
                           .role = node == SERVER ? WF_ROLE_SERVER : WF_ROLE_WORKER,
                           .incarnation = s ? s->incarnation : 1,
                           .epoch = j->stored ? j->stored->number : 0,
                           .history = j->stored ? j->stored->history : 0,
                           .piece = -1};

    if (s) {
        s->moves += s->works;
        m.round = (int)s->doing;
        m.t = s->step;
        m.block = s->moves;
        m.pace_ns = s->pace_ns;
    }
    assert_int_equal(wf_chief_step(&j->chief, j->now, &m, &j->acts), WEFT_OK);
    carry_out(j);
}

static void pass(struct job *j, int64_t ns)
{
    for (int64_t end = j->now + ns; j->now < end;) {
        j->now += 50 * MS;
        assert_int_equal(wf_chief_tick(&j->chief, j->now, &j->acts), WEFT_OK);
        carry_out(j);
        beat(j, SERVER, NULL);
        beat(j, A, &j->a);
        if (!j->b_is_silent)
            beat(j, B, &j->b);
    }
}

static void start(struct job *j, int64_t stall_ns)
{
    struct wf_chief_plan plan = {.n_nodes = NODES,
                                 .n_pieces = 1,
                                 .n_shards = 4,
                                 .n_servers = 1,
                                 .n_workers = 2,
                                 .timeout_ns = 500 * MS,
                                 .tick_ns = 50 * MS,
                                 .stall_ns = stall_ns};

    *j = (struct job){.now = 1000 * MS};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->ctx), WEFT_OK);
    wf_actions_init(&j->acts, j->ctx);
    assert_int_equal(wf_chief_init(&j->chief, j->ctx, &plan, 0), WEFT_OK);
    j->a = j->b = (struct says){.incarnation = 1, .works = true, .doing = WF_DOES_COMPUTE};
    pass(j, 300 * MS);
    assert_true(wf_epoch_has(j->stored, A, 1) && wf_epoch_has(j->stored, B, 1));
    j->a.step = j->b.step = 5;
}

static void end(struct job *j)
{
    wf_chief_free(&j->chief);
    wf_actions_free(&j->acts);
    wf_epoch_free(j->ctx, j->stored);
    weft_ctx_free(j->ctx);
}

/* A waits; B does this, and nothing new. */
static void hang(struct job *j, enum wf_doing doing)
{
    j->a = (struct says){.incarnation = 1, .doing = WF_DOES_WAIT, .step = 5};
    j->b = (struct says){.incarnation = 1, .doing = doing, .step = 5, .moves = 7};
}

static void who_hangs_is_told_and_left_out(void **state)
{
    static const enum wf_doing doings[] = {WF_DOES_COMPUTE, WF_DOES_READ};
    struct job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        start(&j, STALL);
        hang(&j, doings[i]);
        pass(&j, STALL / 2 - 200 * MS);
        assert_false(j.chief.known[B].straggles);
        pass(&j, 400 * MS);
        assert_true(j.chief.known[B].straggles);
        assert_true(wf_epoch_has(j.stored, B, 1));
        pass(&j, STALL / 2);
        assert_null(wf_epoch_member(j.stored, B));
        assert_true(wf_epoch_has(j.stored, A, 1));
        for (int l = 0; l < 4; l++)
            assert_int_equal(j.stored->worker[l], A);
        pass(&j, 5 * STALL); /* it still beats, and is not let in */
        assert_null(wf_epoch_member(j.stored, B));
        j.b = (struct says){.incarnation = 2, .works = true, .doing = WF_DOES_COMPUTE, .step = 9};
        pass(&j, 200 * MS); /* it has found itself outside, and joins again */
        assert_true(wf_epoch_has(j.stored, B, 2));
        end(&j);
    }
}

static void the_one_that_decides_is_left_out_later(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_DECIDE);
    j.a.doing = WF_DOES_DECIDE; /* A has the lowest number */
    j.b.doing = WF_DOES_WAIT;
    pass(&j, 9 * STALL);
    assert_true(wf_epoch_has(j.stored, A, 1));
    pass(&j, 2 * STALL);
    assert_null(wf_epoch_member(j.stored, A));
    assert_int_equal(wf_epoch_decider(j.stored), B);
    end(&j);
}

/* Others compute its shards (backup), and are steps ahead. */
static void who_is_left_behind_is_left_out(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    j.a.doing = WF_DOES_COMPUTE;
    j.a.works = true;
    for (int i = 0; i < 12; i++) {
        j.a.step++;
        pass(&j, 100 * MS);
    }
    assert_null(wf_epoch_member(j.stored, B));
    end(&j);
}

static void who_makes_progress_stays(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    for (int i = 0; i < 20; i++) { /* a long step, of many shards */
        pass(&j, 800 * MS);
        assert_true(wf_epoch_has(j.stored, B, 1));
        j.b.moves++;
    }
    end(&j);
}

static void while_all_are_slow_nobody_is_left_out(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    j.a.doing = WF_DOES_COMPUTE;
    pass(&j, 20 * STALL);
    assert_true(wf_epoch_has(j.stored, A, 1) && wf_epoch_has(j.stored, B, 1));
    j.a.doing = WF_DOES_WAIT; /* A is done: now B has its time */
    pass(&j, STALL / 2);
    assert_true(wf_epoch_has(j.stored, B, 1));
    hang(&j, WF_DOES_WAIT); /* both wait: for servers, say */
    pass(&j, 20 * STALL);
    assert_true(wf_epoch_has(j.stored, A, 1) && wf_epoch_has(j.stored, B, 1));
    end(&j);
}

static void a_shard_that_takes_long_has_its_time(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    j.b.pace_ns = 3 * STALL;
    pass(&j, 11 * STALL);
    assert_true(wf_epoch_has(j.stored, B, 1));
    pass(&j, 2 * STALL);
    assert_null(wf_epoch_member(j.stored, B));
    end(&j);
}

static void a_chief_that_did_not_run_leaves_out_nobody(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    pass(&j, 300 * MS);
    j.now += 100 * STALL; /* it was stopped */
    pass(&j, 300 * MS);
    assert_true(wf_epoch_has(j.stored, B, 1));
    end(&j);
}

/* A chief and A are cut off from B and the store: B may have done much meanwhile. */
static void silence_is_not_a_lack_of_progress(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    j.is_out = j.b_is_silent = true;
    pass(&j, 5 * STALL);
    assert_true(wf_epoch_has(j.chief.epoch, B, 1));
    assert_false(j.chief.known[B].stalled || j.chief.known[B].straggles);
    j.b_is_silent = false; /* it hangs: from now on its time counts */
    pass(&j, STALL - 200 * MS);
    assert_false(j.chief.known[B].stalled);
    pass(&j, 400 * MS);
    assert_true(j.chief.known[B].stalled);
    end(&j);
}

static void without_a_limit_nobody_is_left_out(void **state)
{
    struct job j;

    (void)state;
    start(&j, 0);
    hang(&j, WF_DOES_COMPUTE);
    pass(&j, 100 * STALL);
    assert_true(wf_epoch_has(j.stored, B, 1));
    end(&j);
}

/* The store was late, and A has died meanwhile. */
static void the_last_worker_stays(void **state)
{
    struct job j;

    (void)state;
    start(&j, STALL);
    hang(&j, WF_DOES_COMPUTE);
    pass(&j, 300 * MS);
    j.chief.known[B].stalled = true; /* its time is over, and no epoch could be made yet */
    assert_int_equal(wf_chief_lost(&j.chief, j.now, A, 1, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_null(wf_epoch_member(j.stored, A));
    assert_true(wf_epoch_has(j.stored, B, 1));
    j.a.incarnation = 2;
    pass(&j, STALL / 2); /* A is back: B has its time anew */
    assert_true(wf_epoch_has(j.stored, A, 2) && wf_epoch_has(j.stored, B, 1));
    pass(&j, STALL);
    assert_null(wf_epoch_member(j.stored, B));
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_hangs_is_told_and_left_out),
        cmocka_unit_test(the_one_that_decides_is_left_out_later),
        cmocka_unit_test(who_is_left_behind_is_left_out),
        cmocka_unit_test(who_makes_progress_stays),
        cmocka_unit_test(while_all_are_slow_nobody_is_left_out),
        cmocka_unit_test(a_shard_that_takes_long_has_its_time),
        cmocka_unit_test(a_chief_that_did_not_run_leaves_out_nobody),
        cmocka_unit_test(silence_is_not_a_lack_of_progress),
        cmocka_unit_test(without_a_limit_nobody_is_left_out),
        cmocka_unit_test(the_last_worker_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
