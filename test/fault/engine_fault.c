/* engine_fault.c - every allocation of building, differentiating, planning and running fails in
 * turn. Whatever fails: a clear status, nothing leaked, and the next try with enough memory
 * works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

#include "../support/counting.h"

static weft_status whole_life(const weft_allocator *mem)
{
    weft_ctx *ctx = NULL;
    weft_graph *g = NULL;
    weft_fn *fn = NULL;
    weft_val x, w, b, y, loss, updates[4];
    float data[3 * 5] = {1, 2, 3};
    weft_tensor feed = weft_view(WEFT_F32, data, 2, (int64_t[]){3, 5}), out = {.data = NULL};
    weft_optim o;
    char *text = NULL;
    int n = 0;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .allocator = mem), &ctx);

    if (!st)
        st = weft_graph_new(ctx, &g);
    if (st)
        goto out;
    weft_scope_push(g, "layer");
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 5});
    w = weft_variable(g, "w", 2, (int64_t[]){5, 4}, NULL);
    b = weft_variable(g, "b", 1, (int64_t[]){4}, NULL);
    weft_scope_pop(g);
    y = weft_relu(g, weft_add(g, weft_matmul(g, x, w, NULL), b));
    loss = weft_op(g, "sum", 1, (weft_val[]){weft_mul(g, y, y)}, NULL);
    st = weft_optim_init(&o, "adam", NULL);
    if (!st)
        st = weft_minimize(g, loss, &o, 0, NULL, 4, updates, &n);
    if (!st)
        st = weft_fn_new(g,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                                   .fetches = &loss, .n_updates = n, .updates = updates),
                         &fn);
    if (!st)
        st = weft_fn_run(fn, &feed, &out);
    if (!st)
        st = weft_fn_explain(fn, &feed, NULL, &text);
out:
    if (ctx)
        weft_text_free(ctx, text);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return st;
}

static void fail_each(bool sticky)
{
    int64_t total;
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);

    assert_int_equal(whole_life(&mem), WEFT_OK);
    assert_int_equal(c.n_live, 0);
    total = c.n_allocs;
    assert_true(total > 50);
    for (int64_t i = 1; i <= total; i++) {
        c = (struct counting){.fail_at = i, .sticky = sticky};
        weft_status st = whole_life(&mem);

        if (st != WEFT_ENOMEM)
            fail_msg("allocation %lld of %lld failed: got %s (%s)", (long long)i, (long long)total,
                     weft_status_name(st), weft_error());
        assert_non_null(strstr(weft_error(), "out of memory"));
        assert_int_equal(c.n_live, 0);
    }
}

static void each_allocation_may_fail_once(void **state)
{
    (void)state;
    fail_each(false);
}

static void each_allocation_may_be_the_last(void **state)
{
    (void)state;
    fail_each(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail_once),
        cmocka_unit_test(each_allocation_may_be_the_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
