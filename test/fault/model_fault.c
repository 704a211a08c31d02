/* model_fault.c - every allocation of making a model, its table, its JSON, reading it back and
 * building its graphs fails in turn. Whatever fails: a clear status, nothing leaked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <weft/weft.h>

#include "../support/counting.h"
#include "model/model.h"

static void add_layers(weft_model *m)
{
    weft_sym x = weft_input(m, "image", WEFT_F32, 3, (int64_t[]){8, 8, 2}), y;

    x = weft_apply(m, "Conv2D", "filters=4 kernel_size=3 activation=leaky_relu(0.1)", x);
    x = weft_apply(m, "BatchNormalization", NULL, x);
    y = weft_apply(m, "Rescaling", "scale=[1,2,3,4]", x);
    x = weft_apply_n(m, "Add", NULL, 2, (weft_sym[]){x, y});
    x = weft_apply(m, "MaxPooling2D", NULL, x);
    x = weft_apply(m, "Flatten", NULL, x);
    x = weft_apply(m, "Dense",
                   "units=3 kernel_regularizer=l2 kernel_constraint=max_norm(2) "
                   "activity_regularizer=l1(0.1)",
                   x);
    weft_model_output(m, weft_apply(m, "Dropout", "rate=0.5", x));
}

static weft_status build_both(weft_ctx *ctx, weft_model *m)
{
    weft_graph *g = NULL;
    struct wf_arena arena;
    struct wf_built b;
    weft_status st = weft_graph_new(ctx, &g);

    wf_arena_init(&arena, ctx);
    if (!st)
        st = wf_model_build(m, g, true, &arena, &b);
    if (!st)
        st = wf_model_build(m, g, false, &arena, &b);
    weft_graph_free(g);
    wf_arena_free(&arena);
    return st;
}

static weft_status whole_life(const weft_allocator *mem)
{
    weft_ctx *ctx = NULL;
    weft_model *m = NULL, *again = NULL, *part = NULL;
    char *json = NULL, *table = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = mem), &ctx);

    if (!st)
        st = weft_model_new(ctx, WEFT_OPTS(weft_model_opts, .name = "net"), &m);
    if (st)
        goto out;
    add_layers(m);
    st = weft_model_status(m);
    if (!st)
        st = weft_model_json(m, &json);
    if (!st)
        st = weft_model_summary(m, 0, &table);
    if (!st)
        st = weft_model_parse(ctx, json, (int64_t)strlen(json), &again);
    if (!st)
        st = build_both(ctx, again);
    if (!st)
        st = weft_model_cut(m, WEFT_OPTS(weft_cut_opts, .until = "flatten"), &part);
    if (!st) {
        weft_model_add(part, "Dense", "units=2");
        st = weft_model_status(part);
    }
out:
    if (ctx) {
        weft_text_free(ctx, json);
        weft_text_free(ctx, table);
    }
    weft_model_free(m);
    weft_model_free(again);
    weft_model_free(part);
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
