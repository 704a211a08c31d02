/* standby_test.c - a chief that does not act takes the term when the one that acts is gone, and not
 * when it is cut off itself; a chief that hears few waits for a moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/standby.h"

#define MS ((int64_t)1000000)

/* Nodes: two chiefs, of which this is the second; two servers; three workers. */
enum { LEADER, SELF, FIRST, N_SERVERS = 2, NODES = 7, ALL = 0x7c };

struct job {
    weft_ctx *ctx;
    struct wf_chief chief;
    struct wf_actions acts;
    struct wf_epoch *stored;
    uint64_t term, pulse, own_pulse;
    int64_t now, leader_ns; /* when tasks last heard of the leader */
    bool leads;             /* the leader runs: it beats and reaches the store */
    bool hears;             /* and this chief hears it */
    unsigned reached;       /* tasks that this chief reaches, as bits */
    unsigned led;           /* those that hear the leader */
    bool out;               /* the store does not answer */
    int n_seeks;
};

static void answer(struct job *j, const struct wf_action *a)
{
    struct wf_store_answer s = {.to = a->type,
                                .ok = true,
                                .term = j->term,
                                .epoch = j->stored,
                                .pulse = j->pulse,
                                .control_t = -1};

    if (a->type == WF_ACT_READ && a->pulse)
        s.pulse = j->pulse = j->own_pulse = a->pulse;
    if (a->type == WF_ACT_CREATE_TERM)
        s.term = j->term = a->number;
    if (a->type == WF_ACT_CREATE_EPOCH) {
        s.term = a->record->term;
        s.epoch = NULL;
        wf_epoch_free(j->ctx, j->stored);
        assert_int_equal(wf_epoch_copy(j->ctx, a->record, &j->stored), WEFT_OK);
    }
    assert_int_equal(wf_chief_answer(&j->chief, j->now, &s, &j->acts), WEFT_OK);
}

static void step(struct job *j, const struct wf_message *m)
{
    assert_int_equal(wf_chief_step(&j->chief, j->now, m, &j->acts), WEFT_OK);
}

/* What a task says of the leader. */
static void say_seen(struct job *j, int node)
{
    step(j, &(struct wf_message){.type = WF_MSG_SEEN,
                                 .from = node,
                                 .role = node < FIRST + N_SERVERS ? WF_ROLE_SERVER : WF_ROLE_WORKER,
                                 .incarnation = (uint64_t)node,
                                 .term = 1,
                                 .shard = LEADER,
                                 .piece = -1,
                                 .t = j->now - j->leader_ns});
}

static void carry_out(struct job *j)
{
    while (j->acts.n) {
        struct wf_action a = j->acts.act[0];

        memmove(j->acts.act, j->acts.act + 1, (size_t)--j->acts.n * sizeof a);
        if (a.type == WF_ACT_SEND && a.msg.type == WF_MSG_SEEK) {
            j->n_seeks++;
            if (a.msg.to >= FIRST && j->reached >> a.msg.to & 1)
                say_seen(j, a.msg.to);
        } else if (a.type != WF_ACT_SEND && !j->out) {
            answer(j, &a);
        }
    }
}

static void beat(struct job *j, int node)
{
    step(j, &(struct wf_message){.type = WF_MSG_BEAT,
                                 .from = node,
                                 .role = node < FIRST + N_SERVERS ? WF_ROLE_SERVER : WF_ROLE_WORKER,
                                 .incarnation = (uint64_t)node,
                                 .epoch = j->stored ? j->stored->number : 0,
                                 .piece = -1});
}

/* Ticks of 50 ms; this chief is heard by those that it reaches once it acts. */
static void pass(struct job *j, int64_t ns)
{
    for (int64_t end = j->now + ns; j->now < end;) {
        j->now += 50 * MS;
        if (j->leads && j->led)
            j->leader_ns = j->now;
        if (j->leads && j->now % (250 * MS) == 0)
            j->pulse++;
        if (j->leads && j->hears)
            step(j, &(struct wf_message){.type = WF_MSG_TERM,
                                         .from = LEADER,
                                         .role = WF_ROLE_CHIEF,
                                         .term = 1,
                                         .piece = -1});
        assert_int_equal(wf_chief_tick(&j->chief, j->now, &j->acts), WEFT_OK);
        carry_out(j);
        for (int n = FIRST; n < NODES && j->chief.state == WF_CHIEF_ACTS; n++)
            if (j->reached >> n & 1)
                beat(j, n);
        carry_out(j);
    }
}

/* An epoch of the leader with these members. */
static void store_epoch(struct job *j, uint64_t number, unsigned members)
{
    struct wf_epoch *e;
    int n = 0, primary = WF_NOBODY, worker = WF_NOBODY;

    assert_int_equal(wf_epoch_new(j->ctx, NODES, 1, 1, &e), WEFT_OK);
    for (int i = FIRST; i < NODES; i++)
        if (members >> i & 1) {
            bool server = i < FIRST + N_SERVERS;

            e->member[n++] =
                (struct wf_member){i, server ? WF_ROLE_SERVER : WF_ROLE_WORKER, (uint64_t)i, false};
            primary = server ? i : primary;
            worker = server ? worker : i;
        }
    e->n_members = n;
    e->term = e->history = 1;
    e->number = number;
    e->chief = LEADER;
    e->holders[0] = (struct wf_holders){primary, WF_NOBODY, WF_NOBODY, false};
    e->worker[0] = worker;
    wf_epoch_free(j->ctx, j->stored);
    j->stored = e;
}

/* A job that another chief leads, with all members; this chief has watched for a while. */
static void start(struct job *j)
{
    struct wf_chief_plan plan = {.n_nodes = NODES,
                                 .n_pieces = 1,
                                 .n_shards = 1,
                                 .n_servers = 1,
                                 .n_workers = 1,
                                 .timeout_ns = 1000 * MS,
                                 .tick_ns = 50 * MS};

    *j = (struct job){.now = 10000 * MS,
                      .term = 1,
                      .pulse = 7,
                      .leads = true,
                      .hears = true,
                      .reached = ALL,
                      .led = ALL};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->ctx), WEFT_OK);
    wf_actions_init(&j->acts, j->ctx);
    store_epoch(j, 1, ALL);
    assert_int_equal(wf_chief_init(&j->chief, j->ctx, &plan, SELF), WEFT_OK);
    pass(j, 3000 * MS);
    assert_int_equal(j->chief.state, WF_CHIEF_STANDBY);
    assert_int_equal(j->n_seeks, 0);
}

static void end(struct job *j)
{
    wf_chief_free(&j->chief);
    wf_actions_free(&j->acts);
    wf_epoch_free(j->ctx, j->stored);
    weft_ctx_free(j->ctx);
}

/* How long it takes from now on until this chief acts. */
static int64_t takeover(struct job *j)
{
    int64_t from = j->now;

    while (j->chief.state != WF_CHIEF_ACTS && j->now < from + 20000 * MS)
        pass(j, 50 * MS);
    return (j->now - from) / MS;
}

static void a_chief_that_hangs_is_replaced_after_the_timeout(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.leads = false;
    assert_in_range(takeover(&j), 1000, 1100);
    assert_int_equal(j.term, 2);
    assert_int_equal(j.stored->n_members, 5); /* they have answered */
    pass(&j, 3000 * MS);
    assert_int_equal(j.stored->n_members, 5);
    end(&j);
}

/* Its machine had a server and a worker: they are left out without another timeout. */
static void a_machine_with_the_chief_is_lost(void **state)
{
    struct job j;
    int64_t from;

    (void)state;
    start(&j);
    from = j.now;
    j.leads = false;
    j.reached = ALL & ~(1u << FIRST | 1u << (NODES - 1));
    assert_in_range(takeover(&j), 1000, 1100);
    while (j.stored->n_members > 3 && j.now < from + 5000 * MS)
        pass(&j, 50 * MS);
    assert_in_range((j.now - from) / MS, 1000, 1400);
    assert_true(wf_epoch_member(j.stored, FIRST + 1));
    end(&j);
}

/* Everybody but this chief is gone: somebody has to lead those that come back. */
static void all_others_are_lost(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.leads = false;
    j.reached = 0;
    assert_in_range(takeover(&j), 1000, 1200);
    end(&j);
}

static void a_standby_that_is_cut_off_alone_takes_no_term(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.hears = false;
    j.reached = 0;
    pass(&j, 30000 * MS);
    assert_int_equal(j.term, 1);
    assert_true(j.n_seeks > 0);
    j.leads = false; /* and then the chief is lost */
    assert_in_range(takeover(&j), 500, 1100);
    end(&j);
}

/* With it a server, which the chief leaves out. */
static void a_standby_that_is_cut_off_with_a_server_takes_no_term(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.hears = false;
    j.reached = 1u << (FIRST + 1);
    j.led = ALL & ~j.reached;
    for (int k = 0; k < 20; k++) { /* the server hears nobody */
        int64_t heard = j.leader_ns;

        j.leads = false;
        pass(&j, 50 * MS);
        j.leader_ns = heard;
        j.pulse += k % 5 == 0;
    }
    store_epoch(&j, 2, ALL & ~j.reached);
    for (int k = 0; k < 400; k++) {
        int64_t heard = j.leader_ns;

        pass(&j, 50 * MS);
        j.leader_ns = heard;
        j.pulse += k % 5 == 0;
    }
    assert_int_equal(j.term, 1);
    end(&j);
}

/* The link between the chiefs is down, and nothing else: tasks say that the chief is there. */
static void what_tasks_hear_of_the_chief_counts(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.hears = false;
    j.reached = 1u << (NODES - 1); /* one is enough */
    pass(&j, 10000 * MS);
    assert_int_equal(j.term, 1);
    j.pulse = 1; /* also if the chief does not reach the store */
    j.leads = true;
    for (int k = 0; k < 100; k++) {
        j.leader_ns = j.now;
        pass(&j, 50 * MS);
        j.pulse = 1;
    }
    assert_int_equal(j.term, 1);
    end(&j);
}

/* A chief that reaches the store and one server, and is cut off from the others, is replaced by one
 * that reaches these, though it shows that it is alive. */
static void a_chief_that_is_cut_off_with_few_is_replaced(void **state)
{
    struct job j;
    int64_t heard;

    (void)state;
    start(&j);
    j.hears = false;
    j.reached = ALL & ~(1u << FIRST);
    heard = j.leader_ns;
    for (int k = 0; k < 23 && j.chief.state != WF_CHIEF_ACTS; k++) {
        j.led = 0; /* of those that this chief reaches */
        j.leader_ns = heard;
        pass(&j, 50 * MS);
    }
    assert_int_equal(j.chief.state, WF_CHIEF_ACTS);
    assert_int_equal(j.term, 2);
    end(&j);
}

/* Nobody reaches the store: no term is taken, and none of what was asked is forgotten. */
static void without_the_store_nobody_takes_over(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.out = true;
    j.leads = false;
    pass(&j, 5000 * MS);
    assert_int_equal(j.chief.state, WF_CHIEF_READING);
    j.out = false;
    answer(&j, &(struct wf_action){.type = WF_ACT_READ});
    carry_out(&j);
    assert_in_range(takeover(&j), 0, 100);
    end(&j);
}

/* It leaves a sign of life twice in a timeout, each another one. */
static void a_chief_that_acts_shows_it(void **state)
{
    struct job j;
    uint64_t last = 0;
    int n = 0;

    (void)state;
    start(&j);
    j.leads = false;
    takeover(&j);
    for (int k = 0; k < 200; k++) {
        pass(&j, 50 * MS);
        n += j.own_pulse != last;
        last = j.own_pulse;
    }
    assert_in_range(n, 16, 21);
    end(&j);
}

/* A chief that hears one of five waits before it leaves out the others; those whose connections
 * were closed are not waited for. */
static void a_chief_that_hears_few_waits(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.leads = false;
    takeover(&j);
    pass(&j, 1000 * MS);
    assert_int_equal(j.stored->n_members, 5);
    j.reached = 1u << FIRST;
    pass(&j, 1150 * MS);
    assert_int_equal(j.stored->n_members, 5);
    pass(&j, 200 * MS);
    assert_int_equal(j.stored->n_members, 1);
    j.reached = ALL;
    pass(&j, 500 * MS);
    assert_int_equal(j.stored->n_members, 5);
    for (int n = FIRST + 1; n < NODES; n++)
        assert_int_equal(wf_chief_lost(&j.chief, j.now, n, (uint64_t)n, &j.acts), WEFT_OK);
    carry_out(&j);
    assert_int_equal(j.stored->n_members, 1);
    end(&j);
}

/* A chief that was displaced by one that nobody hears is back after a timeout, once. */
static void a_chief_that_was_displaced_comes_back(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    j.leads = false;
    takeover(&j);
    j.term = 3;
    pass(&j, 600 * MS);
    assert_int_equal(j.chief.state, WF_CHIEF_STANDBY);
    for (int k = 0; k < 25 && j.chief.state != WF_CHIEF_ACTS; k++) {
        j.pulse++;
        pass(&j, 50 * MS);
    }
    assert_int_equal(j.chief.state, WF_CHIEF_ACTS);
    assert_int_equal(j.term, 4);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chief_that_hangs_is_replaced_after_the_timeout),
        cmocka_unit_test(a_machine_with_the_chief_is_lost),
        cmocka_unit_test(all_others_are_lost),
        cmocka_unit_test(a_standby_that_is_cut_off_alone_takes_no_term),
        cmocka_unit_test(a_standby_that_is_cut_off_with_a_server_takes_no_term),
        cmocka_unit_test(what_tasks_hear_of_the_chief_counts),
        cmocka_unit_test(a_chief_that_is_cut_off_with_few_is_replaced),
        cmocka_unit_test(without_the_store_nobody_takes_over),
        cmocka_unit_test(a_chief_that_acts_shows_it),
        cmocka_unit_test(a_chief_that_hears_few_waits),
        cmocka_unit_test(a_chief_that_was_displaced_comes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
