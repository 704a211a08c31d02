/* two_updates_test.c - several updates of one variable in one run: they are applied in the order in
 * which they were built, each to the value that the previous one left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "weft/weft.h"

/* The variable, at first 0, after one run with two of the updates v = 1, v = 2, v += 10, v += 20,
 * listed in this order. checked: check_numerics reads the new value of the second one in the
 * list; control: which waits for the first. */
static float after(int first, int second, bool checked, bool control)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_val v, update[4], listed[2], fetch[2];
    weft_tensor out[2] = {{0}};
    float result;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    v = weft_variable(g, "v", 0, NULL, NULL);
    update[0] = weft_assign(g, v, weft_scalar(g, 1));
    update[1] = weft_assign(g, v, weft_scalar(g, 2));
    update[2] = weft_assign_add(g, v, weft_scalar(g, 10));
    update[3] = weft_assign_add(g, v, weft_scalar(g, 20));
    listed[0] = update[first];
    listed[1] = update[second];
    if (control)
        weft_control(g, listed[1], listed[0]);
    fetch[0] = v;
    fetch[1] = checked ? weft_check_numerics(g, listed[1], NULL) : v;
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_updates = 2, .updates = listed,
                                           .n_fetches = 2, .fetches = fetch),
                                 &fn),
                     0);
    assert_int_equal(weft_fn_run(fn, NULL, out), 0);
    result = *(const float *)out[0].data;
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return result;
}

static void they_are_applied_in_the_order_they_were_built(void **state)
{
    (void)state;
    assert_true(after(0, 1, false, false) == 2);
    assert_true(after(0, 2, false, false) == 11);
    assert_true(after(1, 2, false, false) == 12);
    assert_true(after(2, 3, false, false) == 30);
}

static void the_order_in_the_list_does_not_matter(void **state)
{
    (void)state;
    assert_true(after(1, 0, false, false) == 2);
    assert_true(after(2, 0, false, false) == 11);
    assert_true(after(2, 1, false, false) == 12);
    assert_true(after(3, 2, false, false) == 30);
}

static void control_sets_the_order_even_if_a_node_that_may_fail_reads_one(void **state)
{
    (void)state;
    assert_true(after(0, 1, true, true) == 2);
    assert_true(after(0, 2, true, true) == 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_applied_in_the_order_they_were_built),
        cmocka_unit_test(the_order_in_the_list_does_not_matter),
        cmocka_unit_test(control_sets_the_order_even_if_a_node_that_may_fail_reads_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
