/* versions_test.c - where a worker has the two versions of the parameters: one is never changed
 * while it is read, wherever the pieces are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ps/slots.h"
#include "ps/versions.h"
#include "weft/weft.h"

enum { DENSE = 20016 };

static struct wf_var vars[2] = {
    {.name = "a", .rank = 1, .dim = {16384}, .count = 16384},
    {.name = "b", .rank = 1, .dim = {3600}, .count = 3600, .offset = 16384}};
static struct wf_rules rules = {.n_vars = 2, .var = vars, .n_dense = DENSE, .n_groups = 1};
static weft_ctx *ctx;
static struct wf_cut *cut; /* a, a, b, state */
static struct wf_versions *v;

static int setup(void **state)
{
    (void)state;
    return weft_ctx_new(NULL, &ctx) || wf_cut_new(ctx, &rules, 8192 * 4, &cut) ||
           wf_versions_new(ctx, &rules, cut, &v);
}

static int teardown(void **state)
{
    (void)state;
    wf_versions_free(v);
    wf_cut_free(cut);
    weft_ctx_free(ctx);
    return 0;
}

/* A whole vector, as version t of a server has it. */
static float *make(int64_t t)
{
    float *x = malloc(DENSE * sizeof *x);

    for (int i = 0; i < DENSE; i++)
        x[i] = (float)(t * 100000 + i);
    return x;
}

static void copy(int piece, int64_t t, const float *flat)
{
    assert_int_equal(wf_versions_copy(v, piece, t, flat + cut->piece[piece].first), 0);
}

static void check(int64_t t, int var)
{
    const float *x = wf_versions_var(v, t, var);

    assert_non_null(x);
    for (int i = 0; i < vars[var].count; i++)
        assert_true(x[i] == (float)(t * 100000 + vars[var].offset + i));
}

static void a_mapped_variable_is_read_where_it_is(void **state)
{
    _Atomic int64_t begun[8] = {4, 5, 4, 5, 4, 5, 4, 5};
    float *even = make(4), *odd = make(5);

    (void)state;
    assert_int_equal(cut->n_pieces, 4);
    for (int p = 0; p < 3; p++) {
        wf_versions_map(v, p, 4, even, begun);
        wf_versions_map(v, p, 5, odd, begun);
    }
    assert_ptr_equal(wf_versions_var(v, 4, 0), even);
    assert_ptr_equal(wf_versions_var(v, 5, 1), odd + 16384);
    check(4, 0);
    check(5, 1);
    assert_true(wf_versions_kept(v, 4));
    begun[2] = 6; /* version 6 is being written over version 4 of piece 1 */
    assert_false(wf_versions_kept(v, 4));
    assert_true(wf_versions_kept(v, 5));
    free(even);
    free(odd);
}

/* One half is mapped, the other one came as bytes. */
static void parts_of_a_variable_are_put_together(void **state)
{
    _Atomic int64_t begun[8] = {4, 0, 4, 0, 4, 0, 4, 0};
    float *even = make(4);

    (void)state;
    wf_versions_map(v, 0, 4, even, begun);
    copy(1, 4, even);
    check(4, 0);
    assert_true(wf_versions_var(v, 4, 0) != even);
    for (int i = 0; i < DENSE; i++)
        assert_true(even[i] == (float)(400000 + i)); /* nothing that a server has is written */
    free(even);
}

static void a_message_that_is_late_does_not_write_over_a_version(void **state)
{
    void *late, *other;
    float *to, *x = make(6), *y = make(4);

    (void)state;
    to = wf_versions_place(v, 2, 4, &late); /* of a server that is slow */
    assert_non_null(to);
    assert_null(wf_versions_place(v, 2, 6, &other)); /* of one that has its place now */
    copy(2, 6, x);
    memcpy(to, y + 16384, 100 * sizeof *to);
    check(6, 1);
    wf_versions_unplace(v, late);
    to = wf_versions_place(v, 2, 8, &late);
    assert_non_null(to);
    for (int i = 0; i < cut->piece[2].count; i++)
        to[i] = (float)(800000 + 16384 + i);
    wf_versions_took(v, late);
    wf_versions_unplace(v, late);
    check(8, 1);
    free(x);
    free(y);
}

static void a_slot_that_is_taken_back_has_another_stamp(void **state)
{
    struct wf_ps_slots *s;
    const struct wf_dense_memory *m;
    uint64_t first, again;
    float *a, *b;

    (void)state;
    assert_int_equal(wf_ps_slots_new(ctx, &rules, &s), 0);
    m = wf_ps_slots_memory(s);
    a = m->get(m->arg, DENSE);
    b = m->get(m->arg, DENSE);
    assert_int_equal(wf_ps_slots_find(s, a, &first), 1);
    assert_int_equal(wf_ps_slots_find(s, b, &again), 2);
    assert_int_equal(wf_ps_slots_find(s, a + 1, &again), 0);
    wf_ps_slots_take_back(s, a);
    assert_int_equal(wf_ps_slots_find(s, a, &again), 1);
    assert_true(again != first);
    m->put(m->arg, b);
    assert_ptr_equal(m->get(m->arg, DENSE), b); /* the same number, for ever */
    assert_null(m->get(m->arg, DENSE + 1));
    wf_ps_slots_abandon(s);
    wf_ps_slots_find(s, a, &first);
    wf_ps_slots_take_back(s, a); /* what was handed over stays */
    wf_ps_slots_find(s, a, &again);
    assert_true(again == first);
    wf_ps_slots_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mapped_variable_is_read_where_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_of_a_variable_are_put_together, setup, teardown),
        cmocka_unit_test_setup_teardown(a_message_that_is_late_does_not_write_over_a_version, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_slot_that_is_taken_back_has_another_stamp, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
