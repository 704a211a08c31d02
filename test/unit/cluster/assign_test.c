/* assign_test.c - who computes which shards: runs, moved for deaths, newcomers and slow workers,
 * and for nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/chief.h"

#define MS ((int64_t)1000000)

enum { SERVER = 1, FIRST = 2, NODES = 12 }; /* node 0 is the chief */

/* A chief, and a store that answers at once. */
struct job {
    weft_ctx *ctx;
    struct wf_chief chief;
    struct wf_actions acts;
    struct wf_epoch *stored;
    uint64_t term;
    int64_t now;
    int n_epochs;
};

static void answer(struct job *j, const struct wf_action *a)
{
    struct wf_store_answer s = {.to = a->type, .ok = true, .term = j->term, .epoch = j->stored};

    if (a->type == WF_ACT_CREATE_TERM)
        s.term = j->term = a->number;
    if (a->type == WF_ACT_CREATE_EPOCH) {
        wf_epoch_free(j->ctx, j->stored);
        assert_int_equal(wf_epoch_copy(j->ctx, a->record, &j->stored), WEFT_OK);
        s.epoch = NULL;
        j->n_epochs++;
    }
    assert_int_equal(wf_chief_answer(&j->chief, j->now, &s, &j->acts), WEFT_OK);
}

static void carry_out(struct job *j)
{
    while (j->acts.n) {
        struct wf_action a = j->acts.act[0];

        memmove(j->acts.act, j->acts.act + 1, (size_t)--j->acts.n * sizeof a);
        if (a.type == WF_ACT_READ || a.type == WF_ACT_CREATE_TERM || a.type == WF_ACT_CREATE_EPOCH)
            answer(j, &a);
    }
}

static void beat(struct job *j, int node, int64_t pace_ns)
{
    struct wf_message m = {.type = WF_MSG_BEAT,
                           .from = node,
                           .role = node == SERVER ? WF_ROLE_SERVER : WF_ROLE_WORKER,
                           .incarnation = (uint64_t)node,
                           .epoch = j->stored ? j->stored->number : 0,
                           .pace_ns = pace_ns,
                           .piece = -1};

    assert_int_equal(wf_chief_step(&j->chief, j->now, &m, &j->acts), WEFT_OK);
    carry_out(j);
}

/* A while passes, in which these workers and the server are heard; pace[i] of node FIRST + i, 0 for
 * one that is silent. */
static void pass(struct job *j, int64_t ns, int n, const int64_t *pace)
{
    for (int64_t end = j->now + ns; j->now < end;) {
        j->now += 50 * MS;
        assert_int_equal(wf_chief_tick(&j->chief, j->now, &j->acts), WEFT_OK);
        carry_out(j);
        beat(j, SERVER, 0);
        for (int i = 0; i < n; i++)
            if (pace[i])
                beat(j, FIRST + i, pace[i]);
    }
}

static void start(struct job *j, int n_shards, int n_workers, int64_t balance_ns)
{
    struct wf_chief_plan plan = {.n_nodes = NODES,
                                 .n_pieces = 1,
                                 .n_shards = n_shards,
                                 .n_servers = 1,
                                 .n_workers = n_workers,
                                 .timeout_ns = 500 * MS,
                                 .tick_ns = 50 * MS,
                                 .balance_ns = balance_ns};

    *j = (struct job){.now = 1000 * MS};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->ctx), WEFT_OK);
    wf_actions_init(&j->acts, j->ctx);
    assert_int_equal(wf_chief_init(&j->chief, j->ctx, &plan, 0), WEFT_OK);
}

static void end(struct job *j)
{
    wf_chief_free(&j->chief);
    wf_actions_free(&j->acts);
    wf_epoch_free(j->ctx, j->stored);
    weft_ctx_free(j->ctx);
}

/* Runs of these lengths, in the order of shards: node, length, …, 0. */
static void expect(const struct job *j, const int *runs)
{
    int l = 0;

    assert_non_null(j->stored);
    for (; *runs; runs += 2)
        for (int k = 0; k < runs[1]; k++, l++)
            if (l >= j->stored->n_shards || j->stored->worker[l] != runs[0])
                fail_msg("shard %d is not computed by node %d", l, runs[0]);
    assert_int_equal(l, j->stored->n_shards);
}

#define EXPECT(j, ...) expect(j, (const int[]){__VA_ARGS__, 0})

static void every_worker_gets_a_run(void **state)
{
    struct job j;

    (void)state;
    start(&j, 8, 3, 0);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 3, 3, 3, 4, 2);
    assert_int_equal(j.n_epochs, 1);
    pass(&j, 5000 * MS, 3, (const int64_t[]){MS, 9 * MS, MS}); /* it does not look at paces */
    assert_int_equal(j.n_epochs, 1);
    end(&j);
}

static void the_shards_of_a_dead_worker_go_to_its_neighbors(void **state)
{
    struct job j;

    (void)state;
    start(&j, 9, 3, 0);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 3, 3, 3, 4, 3);
    pass(&j, 1000 * MS, 3, (const int64_t[]){MS, 0, MS});
    EXPECT(&j, 2, 5, 4, 4);
    pass(&j, 1000 * MS, 3, (const int64_t[]){0, 0, MS});
    EXPECT(&j, 4, 9);
    pass(&j, 1000 * MS, 3, (const int64_t[]){MS, 0, MS}); /* it is back */
    EXPECT(&j, 4, 5, 2, 4);
    assert_int_equal(j.n_epochs, 4);
    end(&j);
}

/* Others close their connections to a chief that was stopped: they are not dead. One that stays
 * away is. */
static void a_chief_that_was_stopped_loses_nobody(void **state)
{
    struct job j;

    (void)state;
    start(&j, 9, 3, 0);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    j.now += 3000 * MS;
    for (int node = SERVER; node < FIRST + 3; node++)
        assert_int_equal(wf_chief_lost(&j.chief, j.now, node, (uint64_t)node, &j.acts), WEFT_OK);
    carry_out(&j);
    pass(&j, 2000 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 3, 3, 3, 4, 3);
    assert_int_equal(j.n_epochs, 1);
    assert_int_equal(wf_chief_lost(&j.chief, j.now, 3, 3, &j.acts), WEFT_OK); /* at once */
    carry_out(&j);
    EXPECT(&j, 2, 5, 4, 4);
    end(&j);
}

static void without_workers_nobody_computes(void **state)
{
    struct job j;

    (void)state;
    start(&j, 4, 1, 1000 * MS);
    pass(&j, 300 * MS, 1, (const int64_t[]){MS});
    pass(&j, 2000 * MS, 1, (const int64_t[]){0});
    EXPECT(&j, WF_NOBODY, 4);
    pass(&j, 2000 * MS, 1, (const int64_t[]){MS});
    EXPECT(&j, 2, 4);
    end(&j);
}

static void a_slow_worker_gets_fewer(void **state)
{
    struct job j;

    (void)state;
    start(&j, 16, 3, 2000 * MS);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 6, 3, 5, 4, 5);
    pass(&j, 5000 * MS, 3, (const int64_t[]){MS, 3 * MS, MS});
    EXPECT(&j, 2, 7, 3, 2, 4, 7);
    assert_int_equal(j.n_epochs, 2);
    pass(&j, 5000 * MS, 3, (const int64_t[]){MS, MS, MS}); /* 7 or 6 to do: not worth an epoch */
    assert_int_equal(j.n_epochs, 2);
    pass(&j, 5000 * MS, 3, (const int64_t[]){3 * MS, MS, 3 * MS});
    EXPECT(&j, 2, 3, 3, 10, 4, 3);
    assert_int_equal(j.n_epochs, 3);
    end(&j);
}

static void small_differences_move_nothing(void **state)
{
    struct job j;

    (void)state;
    start(&j, 16, 2, 500 * MS);
    pass(&j, 300 * MS, 2, (const int64_t[]){10 * MS, 10 * MS});
    for (int i = 0; i < 20; i++)
        pass(&j, 600 * MS, 2, (const int64_t[]){(10 + i % 3) * MS, (10 + i % 2) * MS});
    EXPECT(&j, 2, 8, 3, 8);
    assert_int_equal(j.n_epochs, 1);
    end(&j);
}

/* Nobody is left without a shard, however slow; but with fewer shards than workers, the slow
 * wait. */
static void everybody_gets_one_if_there_are_enough(void **state)
{
    struct job j;

    (void)state;
    start(&j, 4, 2, 500 * MS);
    pass(&j, 3000 * MS, 2, (const int64_t[]){MS, 100 * MS});
    EXPECT(&j, 2, 3, 3, 1);
    end(&j);
    start(&j, 2, 3, 500 * MS);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 1, 3, 1);
    pass(&j, 3000 * MS, 3, (const int64_t[]){9 * MS, MS, MS});
    EXPECT(&j, 2, 1, 3, 1); /* however slow: the one that decides has a shard */
    end(&j);
    start(&j, 2, 3, 500 * MS);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    pass(&j, 3000 * MS, 3, (const int64_t[]){MS, 9 * MS, MS});
    EXPECT(&j, 2, 1, 4, 1);
    end(&j);
}

static void a_newcomer_gets_its_share(void **state)
{
    struct job j;

    (void)state;
    start(&j, 12, 2, 60000 * MS);
    pass(&j, 300 * MS, 2, (const int64_t[]){MS, MS});
    EXPECT(&j, 2, 6, 3, 6);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 4, 3, 4, 4, 4);
    end(&j);
}

/* It is not taken back, although it is heard; another process of it is. */
static void one_that_is_drained_has_nothing(void **state)
{
    struct wf_message m = {
        .type = WF_MSG_BEAT, .from = 2, .role = WF_ROLE_WORKER, .incarnation = 99, .piece = -1};
    struct job j;

    (void)state;
    start(&j, 12, 3, 0);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    EXPECT(&j, 2, 4, 3, 4, 4, 4);
    assert_int_equal(wf_chief_drain(&j.chief, j.now, 2, &j.acts), WEFT_OK);
    carry_out(&j);
    EXPECT(&j, 3, 6, 4, 6);
    assert_true(wf_epoch_member(j.stored, 2)->leaves); /* the store has it before it is outside */
    assert_int_equal(wf_epoch_decider(j.stored), 3);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS}); /* it has seen that record */
    EXPECT(&j, 3, 6, 4, 6);
    assert_null(wf_epoch_member(j.stored, 2));
    assert_int_equal(wf_chief_step(&j.chief, j.now, &m, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_non_null(wf_epoch_member(j.stored, 2));
    end(&j);
}

/* The next chief reads the epoch, and lets it go. */
static void a_drain_survives_the_chief(void **state)
{
    struct wf_chief_plan plan;
    struct job j;

    (void)state;
    start(&j, 12, 3, 0);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    assert_int_equal(wf_chief_drain(&j.chief, j.now, 2, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_true(wf_epoch_member(j.stored, 2)->leaves);
    plan = j.chief.plan;
    wf_chief_free(&j.chief);
    assert_int_equal(wf_chief_init(&j.chief, j.ctx, &plan, 0), WEFT_OK);
    pass(&j, 1000 * MS, 3, (const int64_t[]){MS, MS, MS});
    assert_int_equal(j.term, 2);
    EXPECT(&j, 3, 6, 4, 6);
    assert_null(wf_epoch_member(j.stored, 2));
    end(&j);
}

/* A chief has read the store and takes the next term; before it has it, the former one takes in
 * worker 4. That one was never heard here: it gets the whole timeout to say that it is alive. */
static void members_of_an_epoch_that_was_late_get_the_timeout(void **state)
{
    struct wf_store_answer a = {.to = WF_ACT_READ, .ok = true, .term = 2, .control_t = -1};
    struct wf_chief_plan plan;
    struct wf_epoch *late, *old;
    struct job j;

    (void)state;
    start(&j, 12, 2, 0);
    pass(&j, 300 * MS, 2, (const int64_t[]){MS, MS});
    assert_int_equal(wf_epoch_copy(j.ctx, j.stored, &old), WEFT_OK);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    assert_true(wf_epoch_has(j.stored, 4, 4));
    late = j.stored;
    a.epoch = late;
    j.stored = old;
    plan = j.chief.plan;
    wf_chief_free(&j.chief);
    assert_int_equal(wf_chief_init(&j.chief, j.ctx, &plan, 0), WEFT_OK);
    pass(&j, 1000 * MS, 2, (const int64_t[]){MS, MS});
    assert_int_equal(j.term, 2);
    assert_null(wf_epoch_member(j.chief.epoch, 4));
    j.stored = late;
    wf_epoch_free(j.ctx, old);
    assert_int_equal(wf_chief_answer(&j.chief, j.now, &a, &j.acts), WEFT_OK);
    carry_out(&j);
    pass(&j, 400 * MS, 2, (const int64_t[]){MS, MS});
    assert_true(wf_epoch_has(j.stored, 4, 4));
    pass(&j, 200 * MS, 2, (const int64_t[]){MS, MS});
    assert_null(wf_epoch_member(j.stored, 4));
    end(&j);
}

/* Numbers beyond those that the chief knew count once it is told; the record says who they are. */
static void a_node_that_is_added_gets_its_share(void **state)
{
    struct wf_message m = {
        .type = WF_MSG_BEAT, .from = NODES, .role = WF_ROLE_WORKER, .incarnation = 5, .piece = -1};
    struct wf_chief_plan plan;
    struct job j;

    (void)state;
    start(&j, 12, 2, 0);
    plan = j.chief.plan;
    wf_chief_free(&j.chief);
    plan.max_nodes = NODES + 4;
    assert_int_equal(wf_chief_init(&j.chief, j.ctx, &plan, 0), WEFT_OK);
    pass(&j, 300 * MS, 2, (const int64_t[]){MS, MS});
    assert_int_equal(wf_chief_step(&j.chief, j.now, &m, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_null(wf_epoch_member(j.stored, NODES));
    assert_null(j.stored->list);
    assert_int_equal(wf_chief_extend(&j.chief, NODES + 1, "worker/10\n"), WEFT_OK);
    assert_int_equal(wf_chief_step(&j.chief, j.now, &m, &j.acts), WEFT_OK);
    carry_out(&j);
    EXPECT(&j, 2, 4, 3, 4, NODES, 4);
    assert_string_equal(j.stored->list, "worker/10\n");
    end(&j);
}

/* Another process of the server: what the first one held is lost. */
static void lose_server(struct job *j, uint64_t incarnation)
{
    struct wf_message m = {.type = WF_MSG_BEAT,
                           .from = SERVER,
                           .role = WF_ROLE_SERVER,
                           .incarnation = incarnation,
                           .piece = -1};

    assert_int_equal(wf_chief_step(&j->chief, j->now, &m, &j->acts), WEFT_OK);
    carry_out(j);
}

static void saved(struct job *j, uint64_t history, int64_t t)
{
    struct wf_store_answer a = {
        .to = WF_ACT_CREATE_MANIFEST, .ok = true, .history = history, .t = t, .control_t = -1};

    assert_int_equal(wf_chief_answer(&j->chief, j->now, &a, &j->acts), WEFT_OK);
    carry_out(j);
}

/* It was cut off when the record was made: it reads it when it is back. */
static void a_drain_that_nobody_saw_is_not_forgotten(void **state)
{
    struct job j;

    (void)state;
    start(&j, 12, 3, 0);
    pass(&j, 300 * MS, 3, (const int64_t[]){MS, MS, MS});
    assert_int_equal(wf_chief_drain(&j.chief, j.now, 2, &j.acts), WEFT_OK);
    carry_out(&j);
    pass(&j, 800 * MS, 3, (const int64_t[]){0, MS, MS});
    assert_null(wf_epoch_member(j.stored, 2));
    beat(&j, 2, MS);
    assert_true(wf_epoch_has(j.stored, 2, 2));
    assert_true(wf_epoch_member(j.stored, 2)->leaves);
    EXPECT(&j, 3, 6, 4, 6);
    for (int i = 0; i < 5; i++) { /* it has seen it; more beats may be on their way */
        beat(&j, 2, MS);
        assert_null(wf_epoch_member(j.stored, 2));
    }
    end(&j);
}

/* The other one dies before it has gone. */
static void a_server_that_is_drained_takes_over_if_it_is_the_last(void **state)
{
    enum { SECOND = NODES - 1 };
    const struct wf_message m = {
        .type = WF_MSG_BEAT, .from = SECOND, .role = WF_ROLE_SERVER, .incarnation = 9, .piece = -1};
    struct job j;

    (void)state;
    start(&j, 4, 1, 0);
    pass(&j, 300 * MS, 1, (const int64_t[]){MS});
    assert_int_equal(wf_chief_step(&j.chief, j.now, &m, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_true(wf_epoch_has(j.stored, SECOND, 9));
    assert_int_equal(j.stored->holders[0].primary, SERVER);
    assert_int_equal(wf_chief_drain(&j.chief, j.now, SECOND, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_true(wf_epoch_member(j.stored, SECOND)->leaves);
    assert_int_equal(wf_chief_lost(&j.chief, j.now, SERVER, SERVER, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_int_equal(j.stored->holders[0].primary, SECOND);
    assert_int_equal(j.stored->history, 2);
    end(&j);
}

/* The store is slow: it has the checkpoint of step 27 when a history has begun with step 24. Files
 * that workers write have been cut at step 24. */
static void a_checkpoint_of_undone_steps_is_not_restored(void **state)
{
    struct job j;

    (void)state;
    start(&j, 4, 1, 0);
    pass(&j, 300 * MS, 1, (const int64_t[]){MS});
    assert_int_equal(j.stored->history, 1);
    assert_int_equal(wf_chief_restart(&j.chief), 0);
    saved(&j, 1, 24);
    assert_int_equal(wf_chief_restart(&j.chief), 24);
    lose_server(&j, 100);
    assert_int_equal(j.stored->history, 2);
    assert_int_equal(j.stored->start, 24);
    saved(&j, 1, 27);
    assert_int_equal(wf_chief_restart(&j.chief), 24);
    lose_server(&j, 101);
    assert_int_equal(j.stored->history, 3);
    assert_int_equal(j.stored->start, 24);
    saved(&j, 3, 27); /* it was computed again */
    lose_server(&j, 102);
    assert_int_equal(j.stored->start, 27);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_gets_a_run),
        cmocka_unit_test(the_shards_of_a_dead_worker_go_to_its_neighbors),
        cmocka_unit_test(a_chief_that_was_stopped_loses_nobody),
        cmocka_unit_test(without_workers_nobody_computes),
        cmocka_unit_test(a_slow_worker_gets_fewer),
        cmocka_unit_test(small_differences_move_nothing),
        cmocka_unit_test(everybody_gets_one_if_there_are_enough),
        cmocka_unit_test(a_newcomer_gets_its_share),
        cmocka_unit_test(one_that_is_drained_has_nothing),
        cmocka_unit_test(a_drain_survives_the_chief),
        cmocka_unit_test(members_of_an_epoch_that_was_late_get_the_timeout),
        cmocka_unit_test(a_drain_that_nobody_saw_is_not_forgotten),
        cmocka_unit_test(a_server_that_is_drained_takes_over_if_it_is_the_last),
        cmocka_unit_test(a_node_that_is_added_gets_its_share),
        cmocka_unit_test(a_checkpoint_of_undone_steps_is_not_restored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
