/* What explain prints about where values are: each kind of place by its own name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "weft/weft.h"

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static void places_have_their_names(void **state)
{
    static const char *const places[] = {"@slab+",  "@feed+",  "@const+", "@param+",
                                         "@table+", "@state+", "@grad+"};
    weft_tensor feed = {.dtype = WEFT_I32, .rank = 1, .dim = {4}};
    weft_val ids, table, w, s, h, loss, vars[2], grads[2], update;
    weft_graph *g;
    weft_ctx *ctx;
    weft_fn *fn;
    char *text;

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
    ok(weft_graph_new(ctx, &g));
    ids = weft_placeholder(g, "ids", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    table = vars[0] = weft_variable(g, "table", 2, (int64_t[]){9, 3}, NULL);
    w = vars[1] = weft_variable(g, "w", 2, (int64_t[]){3, 3}, NULL);
    s = weft_variable(g, "s", 1, (int64_t[]){3},
                      WEFT_OPTS(weft_variable_opts, .not_trainable = true));
    h = weft_matmul(g, weft_embedding(g, table, ids), w, NULL);
    h = weft_sub(g, h,
                 weft_constant(
                     g, &(weft_tensor){
                            .dtype = WEFT_F32, .data = (float[]){1, 2, 3}, .rank = 1, .dim = {3}}));
    loss = weft_mean(g, weft_square(g, weft_mul(g, h, s)), NULL);
    ok(weft_grad(g, loss, 2, vars, grads));
    update =
        weft_assign(g, s, weft_mean(g, h, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {0})));
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &ids, .n_fetches = 1,
                             .fetches = &loss, .n_updates = 1, .updates = &update, .n_gradients = 1,
                             .gradients = &(weft_gradient){w, grads[1], 0}),
                   &fn));
    ok(weft_fn_explain(fn, &feed, NULL, &text));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!strstr(text, places[i]))
            print_error("no %s in\n%s", places[i], text);
        assert_non_null(strstr(text, places[i]));
    }
    weft_text_free(ctx, text);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_have_their_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
