/* control_test.c - whether a worker that waits for a control record keeps the version that is here,
 * or goes on to a later one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ps/worker.h"

enum { STEP = 589, N_SUMS = 32 };

/* A worker at the step STEP, with all of the version after it. */
struct scene {
    struct wf_ps_worker w;
    struct wf_cut_piece piece;
    struct wf_cut cut;
    struct wf_rules rules;
    struct wf_log_rules logs;
    struct wf_client_piece at;
    double sums[2 * N_SUMS];
};

/* mark: the step of the record that the version follows. */
static void open_scene(struct scene *s, int64_t mark)
{
    *s = (struct scene){
        .piece = {.state = true}, .cut = {.n_pieces = 1}, .at = {.at = STEP + 1, .have = {-1, -1}}};
    s->cut.piece = &s->piece;
    s->at.have[(STEP + 1) & 1] = STEP + 1;
    s->w.cut = &s->cut;
    s->w.sizes = (struct wf_ps_store_opts){.rules = &s->rules, .cut = &s->cut, .logs = &s->logs};
    s->w.m.piece = &s->at;
    s->w.m.t = STEP + 1;
    s->w.m.view.belongs = true;
    s->w.sums = s->sums;
    s->w.n_sums = N_SUMS;
    s->sums[((STEP + 1) & 1) * N_SUMS + WF_PS_CONTROL] = (double)mark;
    s->w.at = STEP;
    s->w.begun = true;
    s->w.taken = STEP - 31;
    s->w.record.t = STEP - 31;
}

static enum wf_gate gate(struct scene *s)
{
    return wf_ps_worker_gate(&s->w, STEP + 1, false);
}

static void the_next_version_stays_until_the_step_ends_with_it(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s, STEP - 31);
    assert_int_equal(gate(&s), WF_GATE_HOLD);
    s.w.record.t = STEP + 62; /* others are further; this step can still end */
    assert_int_equal(gate(&s), WF_GATE_HOLD);
}

static void the_next_version_stays_until_its_record_comes(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s, STEP);
    s.w.expects = true;
    assert_int_equal(gate(&s), WF_GATE_HOLD);
    s.w.record.t = STEP;
    assert_int_equal(gate(&s), WF_GATE_HOLD);
    s.w.taken = STEP;
    assert_int_equal(gate(&s), WF_GATE_HOLD);
}

/* The worker was stopped while records came, of which it has the last one alone. */
static void a_worker_that_missed_a_record_goes_on_to_a_later_version(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s, STEP);
    s.w.expects = true;
    s.w.record.t = STEP + 62;
    assert_false(wf_ps_worker_moved(&s.w));
    assert_int_equal(gate(&s), WF_GATE_IDLE);

    s.w.m.t = s.at.at = STEP + 62; /* the machine has gone on */
    s.at.have[(STEP + 62) & 1] = STEP + 62;
    s.sums[((STEP + 62) & 1) * N_SUMS + WF_PS_CONTROL] = STEP + 31;
    assert_true(wf_ps_worker_moved(&s.w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_version_stays_until_the_step_ends_with_it),
        cmocka_unit_test(the_next_version_stays_until_its_record_comes),
        cmocka_unit_test(a_worker_that_missed_a_record_goes_on_to_a_later_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
