/* busy_test.c - servers that are overloaded hand pieces over, get them back, and do not pass them
 * to and fro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/chief.h"

#define MS ((int64_t)1000000)

enum { WORKER = 1, FIRST = 2, N_SERVERS = 3, NODES = FIRST + N_SERVERS, PIECES = 12 };

/* A chief, a store that answers at once, targets that are full at once, and servers that take so
 * many ms of a second for each piece. */
struct job {
    weft_ctx *ctx;
    struct wf_chief chief;
    struct wf_actions acts;
    struct wf_epoch *stored;
    uint64_t term;
    int64_t now;
    int takes[N_SERVERS], n_moves;
};

static int n_primaries(const struct job *j, int server)
{
    int n = 0;

    for (int i = 0; i < PIECES; i++)
        n += j->stored->holders[i].primary == FIRST + server;
    return n;
}

static int n_copies(const struct job *j, int server)
{
    int n = 0;

    for (int i = 0; j->stored && i < PIECES; i++)
        n += j->stored->holders[i].primary == FIRST + server ||
             j->stored->holders[i].backup == FIRST + server;
    return n;
}

static void answer(struct job *j, const struct wf_action *a)
{
    struct wf_store_answer s = {
        .to = a->type, .ok = true, .term = j->term, .epoch = j->stored, .control_t = -1};

    if (a->type == WF_ACT_CREATE_TERM)
        s.term = j->term = a->number;
    if (a->type == WF_ACT_CREATE_EPOCH) {
        for (int i = 0; j->stored && i < PIECES; i++)
            j->n_moves += a->record->holders[i].primary != j->stored->holders[i].primary;
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
        if (a.type == WF_ACT_READ || a.type == WF_ACT_CREATE_TERM || a.type == WF_ACT_CREATE_EPOCH)
            answer(j, &a);
    }
}

static void hear(struct job *j, struct wf_message m)
{
    m.role = m.from == WORKER ? WF_ROLE_WORKER : WF_ROLE_SERVER;
    m.incarnation = (uint64_t)m.from;
    m.epoch = j->stored ? j->stored->number : 0;
    assert_int_equal(wf_chief_step(&j->chief, j->now, &m, &j->acts), WEFT_OK);
    carry_out(j);
}

static void pass(struct job *j, int64_t ns)
{
    for (int64_t end = j->now + ns; j->now < end;) {
        j->now += 50 * MS;
        assert_int_equal(wf_chief_tick(&j->chief, j->now, &j->acts), WEFT_OK);
        carry_out(j);
        hear(j, (struct wf_message){.type = WF_MSG_BEAT, .from = WORKER, .piece = -1});
        for (int s = 0; s < N_SERVERS; s++) {
            int64_t busy = 1 + n_copies(j, s) * j->takes[s] * MS;

            hear(j, (struct wf_message){.type = WF_MSG_BEAT,
                                        .from = FIRST + s,
                                        .piece = -1,
                                        .pace_ns = wf_min_i64(busy, 1000 * MS)});
        }
        for (int i = 0; j->stored && i < PIECES; i++)
            if (j->stored->holders[i].target != WF_NOBODY)
                hear(j, (struct wf_message){.type = WF_MSG_FILLED,
                                            .from = j->stored->holders[i].primary,
                                            .piece = i});
    }
}

static void start_chief(struct job *j, int64_t balance_ns)
{
    struct wf_chief_plan plan = {.n_nodes = NODES,
                                 .n_pieces = PIECES,
                                 .n_shards = 1,
                                 .n_copies = 1,
                                 .n_servers = N_SERVERS,
                                 .n_workers = 1,
                                 .timeout_ns = 500 * MS,
                                 .tick_ns = 50 * MS,
                                 .balance_ns = balance_ns};

    assert_int_equal(wf_chief_init(&j->chief, j->ctx, &plan, 0), WEFT_OK);
}

static void start(struct job *j, int64_t balance_ns)
{
    *j = (struct job){.now = 1000 * MS, .takes = {30, 30, 30}};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->ctx), WEFT_OK);
    wf_actions_init(&j->acts, j->ctx);
    start_chief(j, balance_ns);
    pass(j, 1000 * MS);
    for (int s = 0; s < N_SERVERS; s++)
        assert_int_equal(n_primaries(j, s), PIECES / N_SERVERS);
}

static void end(struct job *j)
{
    wf_chief_free(&j->chief);
    wf_actions_free(&j->acts);
    wf_epoch_free(j->ctx, j->stored);
    weft_ctx_free(j->ctx);
}

static void an_overloaded_server_hands_pieces_over_and_gets_them_back(void **state)
{
    struct job j;
    int n;

    (void)state;
    start(&j, 200 * MS);
    j.takes[1] = 120; /* 960 ms of a second; the others 240 */
    pass(&j, 10000 * MS);
    n = n_primaries(&j, 1);
    assert_in_range(n, 1, 2);
    assert_in_range(j.n_moves, 2, 3);
    pass(&j, 60000 * MS); /* it stays so */
    assert_int_equal(n_primaries(&j, 1), n);
    assert_in_range(j.n_moves, 2, 3);
    j.takes[1] = 30;
    pass(&j, 30000 * MS);
    for (int s = 0; s < N_SERVERS; s++)
        assert_int_equal(n_primaries(&j, s), PIECES / N_SERVERS);
    assert_in_range(j.n_moves, 4, 6);
    end(&j);
}

static void without_an_overload_nothing_moves(void **state)
{
    struct job j;

    (void)state;
    start(&j, 200 * MS);
    j.takes[1] = 60; /* twice as slow, and idle half of the time */
    pass(&j, 30000 * MS);
    assert_int_equal(j.n_moves, 0);
    for (int s = 0; s < N_SERVERS; s++) /* all are overloaded alike */
        j.takes[s] = 120;
    pass(&j, 30000 * MS);
    assert_int_equal(j.n_moves, 0);
    end(&j);
}

static void without_balance_nothing_moves(void **state)
{
    struct job j;

    (void)state;
    start(&j, 0);
    j.takes[1] = 120;
    pass(&j, 30000 * MS);
    assert_int_equal(j.n_moves, 0);
    end(&j);
}

/* Its speed changes all the time: the chief looks less and less often. */
static void pieces_do_not_go_to_and_fro(void **state)
{
    struct job j;
    int early;

    (void)state;
    start(&j, 200 * MS);
    for (int i = 0; i < 60; i++) {
        j.takes[1] = i % 2 ? 30 : 120;
        pass(&j, 2000 * MS);
    }
    early = j.n_moves;
    for (int i = 0; i < 60; i++) {
        j.takes[1] = i % 2 ? 30 : 120;
        pass(&j, 2000 * MS);
    }
    assert_in_range(early, 2, 40);
    assert_in_range(j.n_moves - early, 0, early / 2 + 1);
    end(&j);
}

/* It does not know yet who is overloaded, so it leaves everything where it is for a while. */
static void a_new_chief_does_not_move_pieces_back(void **state)
{
    struct job j;
    int moves;

    (void)state;
    start(&j, 200 * MS);
    j.takes[1] = 120;
    pass(&j, 10000 * MS);
    moves = j.n_moves;
    wf_chief_free(&j.chief);
    start_chief(&j, 200 * MS);
    pass(&j, 20000 * MS);
    assert_int_equal(j.term, 2);
    assert_in_range(n_primaries(&j, 1), 1, 2);
    assert_in_range(j.n_moves - moves, 0, 1);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overloaded_server_hands_pieces_over_and_gets_them_back),
        cmocka_unit_test(without_an_overload_nothing_moves),
        cmocka_unit_test(without_balance_nothing_moves),
        cmocka_unit_test(pieces_do_not_go_to_and_fro),
        cmocka_unit_test(a_new_chief_does_not_move_pieces_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
