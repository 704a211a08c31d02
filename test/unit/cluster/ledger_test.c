/* ledger_test.c - the chief's ledger: who gets which leases, and when they are done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/chief.h"

enum { ME, SERVER, A, B, N_NODES, WINDOW = 16 };

/* A chief, and what it wanted last. */
struct job {
    weft_ctx *ctx;
    struct wf_chief c;
    struct wf_actions acts;
    int64_t now;
};

static const struct wf_message *sent(const struct job *j, enum wf_message_type type, int to)
{
    for (int64_t i = 0; i < j->acts.n; i++)
        if (j->acts.act[i].type == WF_ACT_SEND && j->acts.act[i].msg.type == type &&
            j->acts.act[i].msg.to == to)
            return &j->acts.act[i].msg;
    return NULL;
}

static bool has(const struct wf_message *m, int64_t lease)
{
    int64_t i = lease - m->t;

    return i >= 0 && i < m->n_words * 64 && m->bits[i / 64] >> (i % 64) & 1;
}

static int n_granted(const struct wf_message *m)
{
    int n = 0;

    for (int i = 0; m && i < m->n_words; i++)
        n += __builtin_popcountll(m->bits[i]);
    return n;
}

static void answer(struct job *j, struct wf_store_answer a)
{
    j->acts.n = 0;
    assert_int_equal(wf_chief_answer(&j->c, j->now, &a, &j->acts), WEFT_OK);
}

static void hear(struct job *j, struct wf_message m)
{
    m.role = m.from == SERVER ? WF_ROLE_SERVER : WF_ROLE_WORKER;
    m.incarnation = m.incarnation ? m.incarnation : (uint64_t)m.from;
    m.term = m.term ? m.term : j->c.term;
    m.epoch = j->c.epoch ? j->c.epoch->number : 0;
    m.history = j->c.epoch ? j->c.epoch->history : 0;
    j->acts.n = 0;
    assert_int_equal(wf_chief_step(&j->c, j->now, &m, &j->acts), WEFT_OK);
}

/* The epoch that the chief has proposed is in the store. */
static void create_epoch(struct job *j)
{
    assert_non_null(j->c.next);
    answer(j, (struct wf_store_answer){
                  .to = WF_ACT_CREATE_EPOCH, .ok = true, .term = j->c.term, .control_t = -1});
}

/* What a worker holds, after a grant. */
static void report(struct job *j, int worker, int grant, uint64_t held)
{
    uint64_t bits[2] = {held, 0};

    hear(j, (struct wf_message){
                .type = WF_MSG_LEASES, .from = worker, .block = grant, .bits = bits, .n_words = 2});
}

static void take_term(struct job *j, uint64_t term, const struct wf_epoch *e)
{
    struct wf_store_answer read = {
        .to = WF_ACT_READ, .ok = true, .term = term - 1, .epoch = e, .control_t = -1};

    j->now += 1000;
    j->acts.n = 0;
    assert_int_equal(wf_chief_tick(&j->c, j->now, &j->acts), WEFT_OK);
    answer(j, read);
    answer(j, (struct wf_store_answer){
                  .to = WF_ACT_CREATE_TERM, .ok = true, .term = term, .control_t = -1});
}

static void start(struct job *j, const struct wf_ledger_plan *ledger)
{
    struct wf_chief_plan plan = {.n_nodes = N_NODES,
                                 .n_pieces = 2,
                                 .n_servers = 1,
                                 .n_workers = 2,
                                 .timeout_ns = 500,
                                 .tick_ns = 1000000,
                                 .ledger = *ledger};

    memset(j, 0, sizeof *j);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->ctx), WEFT_OK);
    wf_actions_init(&j->acts, j->ctx);
    assert_int_equal(wf_chief_init(&j->c, j->ctx, &plan, ME), WEFT_OK);
}

/* A chief of term 1 with a server and two workers. */
static void begin(struct job *j, const struct wf_ledger_plan *ledger)
{
    start(j, ledger);
    take_term(j, 1, NULL);
    for (int n = SERVER; n < N_NODES; n++)
        hear(j, (struct wf_message){.type = WF_MSG_BEAT, .from = n});
    create_epoch(j);
}

static void end(struct job *j)
{
    wf_chief_free(&j->c);
    wf_actions_free(&j->acts);
    weft_ctx_free(j->ctx);
}

static const struct wf_ledger_plan plain = {
    .window = WINDOW, .n_shards = 4, .n_steps = 100, .ahead = 4};

/* ---- sets ------------------------------------------------------------------------------------ */

static void a_set_of_applied_leases_is_bounded_and_moves_up(void **state)
{
    struct wf_leases s, copy;
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    assert_int_equal(wf_leases_init(&s, ctx, 64), WEFT_OK);
    assert_int_equal(wf_leases_init(&copy, ctx, 64), WEFT_OK);
    wf_leases_start(&s, 70);
    assert_true(s.base == 64 && wf_leases_low(&s) == 70 && wf_leases_count(&s) == 70);
    assert_true(wf_leases_bit(&s, 3, true) && !wf_leases_bit(&s, 3, false));
    assert_false(wf_leases_apply(&s, 64 + 128));
    assert_true(wf_leases_apply(&s, 191));
    assert_true(wf_leases_low(&s) == 70 && wf_leases_count(&s) == 71);
    for (int64_t n = 70; n < 128; n++)
        assert_true(wf_leases_apply(&s, n));
    assert_true(s.base == 128 && wf_leases_low(&s) == 128 && wf_leases_count(&s) == 129);
    assert_true(wf_leases_bit(&s, 191, true) && !wf_leases_bit(&s, 190, true));
    assert_true(wf_leases_take(&copy, s.base, s.bits, s.n_words));
    assert_int_equal(wf_leases_count(&copy), 129);
    assert_false(wf_leases_take(&copy, 1, s.bits, s.n_words));
    assert_false(wf_leases_take(&copy, -64, s.bits, s.n_words));
    assert_false(wf_leases_take(&copy, 0, s.bits, s.n_words + 1));
    assert_false(wf_leases_take(&copy, 0, NULL, s.n_words));
    wf_leases_free(&s, ctx);
    wf_leases_free(&copy, ctx);
    weft_ctx_free(ctx);
}

/* ---- grants ---------------------------------------------------------------------------------- */

static void leases_are_granted_in_order_and_within_the_window(void **state)
{
    struct job j;
    const struct wf_message *a, *b;

    (void)state;
    begin(&j, &plain);
    report(&j, A, 0, 0);
    a = sent(&j, WF_MSG_GRANT, A);
    b = sent(&j, WF_MSG_GRANT, B);
    if (!a) { /* it came with the epoch */
        assert_int_equal(wf_chief_tick(&j.c, ++j.now, &j.acts), WEFT_OK);
        a = sent(&j, WF_MSG_GRANT, A);
        b = sent(&j, WF_MSG_GRANT, B);
    }
    assert_true(a && b && a->block == 1 && b->block == 1);
    for (int64_t n = 0; n < 4; n++)
        assert_true(has(a, n));
    assert_true(n_granted(a) == 4 && has(b, 4));
    /* A does all that it gets; B keeps lease 4, so nothing from 20 on is granted */
    for (int grant = 1; grant < 20; grant++)
        report(&j, A, grant, 0);
    report(&j, B, 1, 0xf0 & (((uint64_t)1 << (4 + n_granted(b))) - 1));
    assert_int_equal(j.c.ledger.low, 4);
    for (int i = 0; i < WINDOW; i++)
        assert_true(j.c.ledger.lease[i].state != WF_LEASE_FREE);
    assert_null(sent(&j, WF_MSG_GRANT, A));
    end(&j);
}

static void what_a_worker_was_not_yet_granted_is_not_done(void **state)
{
    struct job j;

    (void)state;
    begin(&j, &plain);
    report(&j, A, 0, 0); /* it has not seen grant 1, and holds nothing */
    assert_int_equal(j.c.ledger.low, 0);
    assert_int_equal(j.c.ledger.lease[0].state, WF_LEASE_HELD);
    report(&j, A, 1, 0xe);
    assert_int_equal(j.c.ledger.low, 1);
    end(&j);
}

static void leases_of_a_worker_that_is_gone_are_granted_again(void **state)
{
    struct job j;
    const struct wf_message *b;

    (void)state;
    begin(&j, &plain);
    report(&j, A, 1, 0xf);
    report(&j, B, 1, 0);
    j.acts.n = 0;
    assert_int_equal(wf_chief_lost(&j.c, j.now, A, A, &j.acts), WEFT_OK);
    assert_int_equal(j.c.ledger.lease[0].node, A); /* until the epoch is in the store */
    create_epoch(&j);
    report(&j, B, 2, 0);
    b = sent(&j, WF_MSG_GRANT, B);
    assert_non_null(b);
    assert_true(has(b, 0) && has(b, 1) && j.c.ledger.low == 0);
    end(&j);
}

static void without_workers_leases_wait(void **state)
{
    struct job j;

    (void)state;
    begin(&j, &plain);
    report(&j, A, 1, 0xf);
    j.acts.n = 0;
    assert_int_equal(wf_chief_lost(&j.c, j.now, A, A, &j.acts), WEFT_OK);
    assert_int_equal(wf_chief_lost(&j.c, j.now, B, B, &j.acts), WEFT_OK);
    create_epoch(&j);
    while (j.c.next)
        create_epoch(&j);
    assert_int_equal(j.c.epoch->n_members, 1);
    j.acts.n = 0;
    assert_int_equal(wf_chief_tick(&j.c, j.now, &j.acts), WEFT_OK);
    assert_null(sent(&j, WF_MSG_GRANT, A));
    for (int i = 0; i < WINDOW; i++)
        assert_int_equal(j.c.ledger.lease[i].state, WF_LEASE_FREE);
    hear(&j, (struct wf_message){.type = WF_MSG_BEAT, .from = A, .incarnation = 77});
    create_epoch(&j);
    assert_int_equal(wf_chief_tick(&j.c, j.now, &j.acts), WEFT_OK);
    assert_true(sent(&j, WF_MSG_GRANT, A) && has(sent(&j, WF_MSG_GRANT, A), 0));
    end(&j);
}

static void nothing_beyond_a_boundary_is_granted_before_its_control_record(void **state)
{
    struct wf_ledger_plan p = plain;
    struct job j;

    (void)state;
    p.gate_every = 1;
    p.ahead = 8;
    begin(&j, &p);
    assert_null(sent(&j, WF_MSG_GRANT, A));
    assert_non_null(sent(&j, WF_MSG_DRAINED, A));
    hear(&j, (struct wf_message){.type = WF_MSG_CONTROL, .from = A, .t = 0, .payload = &p});
    answer(&j, (struct wf_store_answer){
                   .to = WF_ACT_CREATE_CONTROL, .ok = true, .history = 1, .control_t = 0});
    for (int grant = 1; grant < 4; grant++) {
        report(&j, A, grant, 0);
        report(&j, B, grant, 0);
    }
    assert_int_equal(j.c.ledger.low, 4);
    assert_int_equal(sent(&j, WF_MSG_DRAINED, A) ? sent(&j, WF_MSG_DRAINED, A)->t : 1, 1);
    for (int i = 0; i < WINDOW; i++)
        assert_int_equal(j.c.ledger.lease[i].state, WF_LEASE_FREE);
    end(&j);
}

/* ---- takeover -------------------------------------------------------------------------------- */

static void ledger_of(struct job *j, int piece, uint64_t applied)
{
    uint64_t bits[2] = {applied, 0};

    hear(j, (struct wf_message){
                .type = WF_MSG_LEDGER, .from = SERVER, .piece = piece, .bits = bits, .n_words = 2});
}

static void pass(struct job *j)
{
    j->acts.n = 0;
    assert_int_equal(wf_chief_tick(&j->c, ++j->now, &j->acts), WEFT_OK);
}

static void a_new_chief_learns_what_is_done_and_held(void **state)
{
    struct job old, j;
    const struct wf_message *m;

    (void)state;
    begin(&old, &plain);
    start(&j, &plain);
    take_term(&j, 2, old.c.epoch);
    pass(&j); /* in an epoch of a former chief, leases may still become done */
    assert_true(j.c.ledger.learns && !sent(&j, WF_MSG_REPORT, SERVER));
    create_epoch(&j);
    pass(&j);
    assert_true(sent(&j, WF_MSG_REPORT, SERVER) && sent(&j, WF_MSG_REPORT, A));
    report(&j, A, 0, 0x2);                  /* lease 1 */
    ledger_of(&j, 0, 0x1d);                 /* 0, 2, 3, 4 */
    ledger_of(&j, 1, 0x15);                 /* 0, 2, 4 */
    assert_null(sent(&j, WF_MSG_GRANT, A)); /* B has said nothing */
    assert_true(j.c.ledger.learns);
    report(&j, B, 0, 0);
    assert_false(j.c.ledger.learns);
    assert_int_equal(j.c.ledger.low, 1);
    assert_int_equal(j.c.ledger.lease[1].node, A);
    assert_int_equal(j.c.ledger.lease[2].state, WF_LEASE_DONE);
    assert_int_equal(j.c.ledger.lease[4].state, WF_LEASE_DONE);
    m = sent(&j, WF_MSG_GRANT, A); /* what one piece lacks is to be completed */
    m = m ? m : sent(&j, WF_MSG_GRANT, B);
    assert_true(m && has(m, 3) && !has(m, 1) && !has(m, 2) && !has(m, 4));
    end(&j);
    end(&old);
}

static void what_was_said_to_a_former_chief_does_not_count(void **state)
{
    struct job old, j;
    uint64_t bits[2] = {0, 0};

    (void)state;
    begin(&old, &plain);
    start(&j, &plain);
    take_term(&j, 2, old.c.epoch);
    create_epoch(&j);
    ledger_of(&j, 0, 0);
    ledger_of(&j, 1, 0);
    report(&j, A, 0, 0x2);
    hear(&j,
         (struct wf_message){
             .type = WF_MSG_LEASES, .from = B, .term = 1, .block = 3, .bits = bits, .n_words = 2});
    assert_true(j.c.ledger.learns);
    end(&j);
    end(&old);
}

/* ---- control records that nobody planned ----------------------------------------------------- */

static void halt_after(struct job *j, int worker, int64_t t)
{
    hear(j, (struct wf_message){.type = WF_MSG_HALT, .from = worker, .t = t});
}

static void record_is_there(struct job *j, int64_t t)
{
    answer(j, (struct wf_store_answer){
                  .to = WF_ACT_CREATE_CONTROL, .ok = true, .history = 1, .control_t = t});
}

/* A and B do whatever they are granted, as long as there is anything. */
static void do_all(struct job *j)
{
    for (int64_t low = -1; j->c.ledger.low != low;) {
        low = j->c.ledger.low;
        report(j, A, j->c.ledger.node[A].grant, 0);
        report(j, B, j->c.ledger.node[B].grant, 0);
    }
}

static void a_job_halts_at_the_first_step_of_which_nothing_was_granted(void **state)
{
    struct job j;

    (void)state;
    begin(&j, &plain);
    report(&j, A, 0, 0); /* up to 6 leases are granted: of steps 0 and 1 */
    halt_after(&j, B, -1);
    assert_true(j.c.next && j.c.next->halt == 2);
    do_all(&j); /* it is not in the store yet, and counts already */
    assert_int_equal(j.c.ledger.low, 8);
    assert_null(sent(&j, WF_MSG_DRAINED, A));
    create_epoch(&j);
    assert_int_equal(j.c.epoch->halt, 2);
    pass(&j);
    assert_true(sent(&j, WF_MSG_DRAINED, A) && sent(&j, WF_MSG_DRAINED, A)->t == 2);
    do_all(&j);
    assert_int_equal(j.c.ledger.low, 8);
    hear(&j, (struct wf_message){.type = WF_MSG_CONTROL, .from = A, .t = 2, .payload = &j});
    halt_after(&j, B, -1); /* late, or again: there will be one */
    assert_null(j.c.next);
    record_is_there(&j, 2);
    assert_true(sent(&j, WF_MSG_GRANT, A) && has(sent(&j, WF_MSG_GRANT, A), 8));
    assert_int_equal(sent(&j, WF_MSG_GRANT, A)->lease, 3); /* they need the record of step 2 */
    halt_after(&j, B, -1);
    assert_null(j.c.next);
    end(&j);
}

static void a_planned_record_that_comes_first_will_do(void **state)
{
    struct wf_ledger_plan p = plain;
    struct job j;

    (void)state;
    p.gate_every = 5;
    begin(&j, &p);
    halt_after(&j, A, -1); /* that of step 0, which everything waits for */
    assert_null(j.c.next);
    hear(&j, (struct wf_message){.type = WF_MSG_CONTROL, .from = A, .t = 0, .payload = &p});
    record_is_there(&j, 0);
    while (j.c.ledger.top <= 16) {
        report(&j, A, j.c.ledger.node[A].grant, 0);
        report(&j, B, j.c.ledger.node[B].grant, 0);
    }
    halt_after(&j, A, 0); /* step 4 has begun; step 5 has one anyway */
    assert_null(j.c.next);
    end(&j);
}

/* One that is under way is not replaced by a later one, which comes after it. */
static void a_second_halt_comes_after_the_first(void **state)
{
    struct job j;

    (void)state;
    begin(&j, &plain);
    halt_after(&j, B, -1);
    create_epoch(&j);
    halt_after(&j, B, 2);
    assert_true(!j.c.next && j.c.epoch->halt == 2);
    do_all(&j);
    hear(&j, (struct wf_message){.type = WF_MSG_CONTROL, .from = A, .t = 2, .payload = &j});
    record_is_there(&j, 2);
    assert_true(j.c.next &&
                j.c.next->halt == 4); /* leases of step 3 were granted with the record */
    end(&j);
}

/* What a worker had done in time may be applied, though it is gone and its leases are free. */
static void a_halt_comes_after_leases_of_the_dead(void **state)
{
    struct job j;

    (void)state;
    begin(&j, &plain);
    report(&j, A, 1, 0xf);
    report(&j, B, 1, 0x30);
    report(&j, B, 2, 0);
    report(&j, B, j.c.ledger.node[B].grant, 0x300); /* it has the others up to lease 9 */
    assert_true(j.c.ledger.top > 8);
    j.acts.n = 0;
    assert_int_equal(wf_chief_lost(&j.c, j.now, B, B, &j.acts), WEFT_OK);
    create_epoch(&j);
    halt_after(&j, A, -1);
    assert_true(j.c.next && j.c.next->halt * 4 >= j.c.ledger.top && j.c.next->halt > 2);
    end(&j);
}

static void a_new_chief_knows_where_the_job_is_to_halt(void **state)
{
    struct job old, j;

    (void)state;
    begin(&old, &plain);
    halt_after(&old, B, -1);
    create_epoch(&old);
    start(&j, &plain);
    take_term(&j, 2, old.c.epoch);
    create_epoch(&j);
    report(&j, A, 0, 0);
    report(&j, B, 0, 0);
    ledger_of(&j, 0, 0);
    ledger_of(&j, 1, 0);
    assert_int_equal(j.c.epoch->halt, 2);
    do_all(&j);
    assert_int_equal(j.c.ledger.low, 8);
    pass(&j);
    assert_true(sent(&j, WF_MSG_DRAINED, A) && sent(&j, WF_MSG_DRAINED, A)->t == 2);
    end(&j);
    end(&old);
}

/* A worker that was left out meanwhile may come back with leases of the former chief, of which this
 * one has heard nothing. */
static void a_new_chief_halts_beyond_what_the_former_one_may_have_granted(void **state)
{
    struct job old, j;

    (void)state;
    begin(&old, &plain);
    start(&j, &plain);
    take_term(&j, 2, old.c.epoch);
    create_epoch(&j);
    report(&j, A, 0, 0);
    report(&j, B, 0, 0);
    ledger_of(&j, 0, 0x7);
    ledger_of(&j, 1, 0x7);
    halt_after(&j, A, -1);
    assert_true(j.c.next && j.c.next->halt * 4 >= 3 + WINDOW);
    end(&j);
    end(&old);
}

/* The former chief has seen its record, and has granted more, when this one has read the store. */
static void a_record_that_is_late_is_waited_for(void **state)
{
    struct job old, j;

    (void)state;
    begin(&old, &plain);
    halt_after(&old, B, -1);
    create_epoch(&old);
    start(&j, &plain);
    take_term(&j, 2, old.c.epoch);
    create_epoch(&j);
    report(&j, A, 0, 0);
    report(&j, B, 0, 0);
    ledger_of(&j, 0, 0x3ff); /* leases 8 and 9 are of step 2 */
    ledger_of(&j, 1, 0x3ff);
    assert_int_equal(j.c.ledger.low, 10);
    pass(&j);
    assert_true(!sent(&j, WF_MSG_GRANT, A) && !sent(&j, WF_MSG_DRAINED, A));
    answer(&j, (struct wf_store_answer){
                   .to = WF_ACT_READ, .ok = true, .term = 2, .epoch = j.c.epoch, .control_t = 2});
    assert_non_null(sent(&j, WF_MSG_GRANT, A));
    end(&j);
    end(&old);
}

/* The chief has read the store before the record of step 0 was in it; leases beyond are done. */
static void whoever_decides_hears_of_records_that_came_after_the_chief_read_the_store(void **state)
{
    struct wf_ledger_plan p = plain;
    struct job old, j;

    (void)state;
    p.gate_every = 2;
    begin(&old, &p);
    start(&j, &p);
    take_term(&j, 2, old.c.epoch);
    create_epoch(&j);
    report(&j, A, 0, 0);
    report(&j, B, 0, 0);
    ledger_of(&j, 0, 0xff);
    ledger_of(&j, 1, 0xff);
    assert_int_equal(j.c.ledger.low, 8);
    assert_int_equal(j.c.control, -1);
    for (int n = A; n <= B; n++) {
        const struct wf_message *m = sent(&j, WF_MSG_DRAINED, n);

        assert_non_null(m);
        assert_int_equal(m->t, 2);
        assert_int_equal(m->lease - 1, 0); /* the record that it needs first */
    }
    end(&j);
    end(&old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_of_applied_leases_is_bounded_and_moves_up),
        cmocka_unit_test(leases_are_granted_in_order_and_within_the_window),
        cmocka_unit_test(what_a_worker_was_not_yet_granted_is_not_done),
        cmocka_unit_test(leases_of_a_worker_that_is_gone_are_granted_again),
        cmocka_unit_test(without_workers_leases_wait),
        cmocka_unit_test(nothing_beyond_a_boundary_is_granted_before_its_control_record),
        cmocka_unit_test(a_new_chief_learns_what_is_done_and_held),
        cmocka_unit_test(what_was_said_to_a_former_chief_does_not_count),
        cmocka_unit_test(a_job_halts_at_the_first_step_of_which_nothing_was_granted),
        cmocka_unit_test(a_planned_record_that_comes_first_will_do),
        cmocka_unit_test(a_second_halt_comes_after_the_first),
        cmocka_unit_test(a_halt_comes_after_leases_of_the_dead),
        cmocka_unit_test(a_new_chief_knows_where_the_job_is_to_halt),
        cmocka_unit_test(a_new_chief_halts_beyond_what_the_former_one_may_have_granted),
        cmocka_unit_test(whoever_decides_hears_of_records_that_came_after_the_chief_read_the_store),
        cmocka_unit_test(a_record_that_is_late_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
