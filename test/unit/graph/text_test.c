/* text_test.c - graphs as text: what is written reads back, what is malformed is named with its
 * line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "op/op.h"

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static weft_graph *example(weft_ctx *ctx, weft_val *loss)
{
    weft_graph *g;
    weft_val x, w, y, grads[1];
    weft_optim o;
    weft_val up[2];
    int n;

    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 4});
    weft_scope_push(g, "layer");
    w = weft_variable(g, "w", 2, (int64_t[]){4, 3}, NULL);
    weft_scope_pop(g);
    weft_device_push(g, "/job:worker/task:0/device:GPU:1");
    y = weft_leaky_relu(g, weft_matmul(g, x, w, NULL), NULL);
    weft_device_pop(g);
    y = weft_mul(g, y, weft_scalar(g, 0.1));
    y = weft_named(g, y, "scaled");
    *loss = weft_op(g, "sum", 1, &y, NULL);
    weft_control(g, *loss, w);
    ok(weft_grad(g, *loss, 1, &w, grads));
    ok(weft_optim_init(&o, "adam", "learning_rate=0.25"));
    ok(weft_apply_gradients(g, &o, 1, &w, grads, up));
    (void)n;
    ok(weft_graph_status(g));
    return g;
}

static void a_graph_reads_back_as_itself(void **state)
{
    weft_ctx *ctx;
    weft_graph *g, *h;
    weft_val loss, again;
    char *a, *b;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    g = example(ctx, &loss);
    ok(weft_graph_text(g, &a));
    ok(weft_graph_parse(ctx, a, (int64_t)strlen(a), &h));
    ok(weft_graph_text(h, &b));
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "@/job:worker/task:0/device:GPU:1"));
    ok(weft_find(h, weft_val_name(g, loss), &again));
    assert_int_equal(again.id, loss.id);
    weft_text_free(ctx, a);
    weft_text_free(ctx, b);
    weft_graph_free(g);
    weft_graph_free(h);
    weft_ctx_free(ctx);
}

static void a_loaded_graph_computes_the_same(void **state)
{
    weft_ctx *ctx;
    weft_graph *g[2];
    weft_val loss, x;
    float v[8] = {1, 2, 3, 4, -1, -2, -3, -4}, got[2];
    char path[64];

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 5, .soft_placement = true), &ctx));
    snprintf(path, sizeof path, "text_test.%d.graph", (int)getpid());
    g[0] = example(ctx, &loss);
    ok(weft_graph_save(g[0], path));
    ok(weft_graph_load(ctx, path, &g[1]));
    unlink(path);
    for (int i = 0; i < 2; i++) {
        weft_tensor feed = weft_view(WEFT_F32, v, 2, (int64_t[]){2, 4}), out = {.data = NULL};
        weft_fn *fn;

        ok(weft_find(g[i], "x", &x));
        ok(weft_fn_new(
            g[i],
            WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1, .fetches = &loss),
            &fn));
        ok(weft_fn_run(fn, &feed, &out));
        got[i] = *(const float *)out.data;
        weft_fn_free(fn);
        weft_graph_free(g[i]);
    }
    assert_true(got[0] == got[1]);
    weft_ctx_free(ctx);
}

static void malformed_text_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "graph, line 1: expected 'weft graph 1"},
        {"weft graph 2\n", "line 1: expected"},
        {"weft graph 1\n%1 = relu()", "line 2: found node 1, expected 0"},
        {"weft graph 1\n%0 = relu(%0) \"a\"", "line 2: %0:0 does not exist before this line"},
        {"weft graph 1\n%0 = wobble() \"a\"",
         "needs the op 'wobble', which this context does not have"},
        {"weft graph 1\n%0 = placeholder() dtype=f32 shape=[2] \"x\"\n%1 = relu(%0) \"x\"",
         "line 3: the name 'x' is taken"},
        {"weft graph 1\n%0 = placeholder() dtype=f99 shape=[2] \"x\"", "'f99' is not a dtype"},
        {"weft graph 1\n%0 = placeholder() dtype=f32 shape=[2,] \"x\" @/job:", "device '/job:'"},
        {"weft graph 1\n%0 = constant() dtype=f32 shape=[1000000000000] \"x\" {00}",
         "needs 4000000000000 bytes"},
        {"weft graph 1\n%0 = constant() dtype=f32 shape=[1] \"x\"", "a constant without data"},
        {"weft graph 1\n%0 = variable() dtype=f32 shape=[99999999999,99999999999,99999999999] "
         "\"x\"",
         "overflows"},
        {"weft graph 1\n%0 = placeholder() dtype=f32 shape=[2] color=3 \"x\"",
         "has no attribute 'color'"},
        {"weft graph 1\n%0 = placeholder() dtype=f32 shape=[1,2,3,4,5,6,7,8,9] \"x\"", "rank 9"},
    };
    weft_ctx *ctx;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_graph *g = NULL;

        if (!weft_graph_parse(ctx, cases[i].text, (int64_t)strlen(cases[i].text), &g))
            fail_msg("'%s' was read", cases[i].text);
        if (!strstr(weft_error(), cases[i].error))
            fail_msg("'%s': the error is '%s'", cases[i].text, weft_error());
    }
    weft_ctx_free(ctx);
}

/* Files are data from strangers: what only passes make is not read, nor built by name; nor do ops
 * change what is not a variable. */
static void what_only_plans_contain_is_not_read(void **state)
{
    weft_ctx *ctx;
    weft_graph *g = NULL;
    char text[512];
    int n = 0;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    ok(wf_ops_ensure(ctx));
    for (int i = 0; i < wf_op_count(ctx); i++) {
        const struct wf_op *op = wf_op_row(ctx, i);
        weft_val in[3];

        if (!(op->flags & WF_PLANNER))
            continue;
        n++;
        snprintf(text, sizeof text,
                 "weft graph 1\n%%0 = variable() dtype=f32 shape=[2,2] \"v\" #0\n"
                 "%%1 = %s(%%0, %%0, %%0) \"y\" #1\n",
                 op->name);
        assert_int_equal(weft_graph_parse(ctx, text, (int64_t)strlen(text), &g), WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "line 3"));
        assert_non_null(strstr(weft_error(), "created by planning only"));
        ok(weft_graph_new(ctx, &g));
        in[0] = in[1] = in[2] = weft_variable(g, "v", 2, (int64_t[]){2, 2}, NULL);
        (void)weft_op(g, op->name, 3, in, NULL);
        assert_int_equal(weft_graph_status(g), WEFT_EINVAL);
        weft_graph_free(g);
    }
    assert_int_equal(n, 9);
    weft_ctx_free(ctx);
}

static void updates_of_what_is_no_variable_are_not_read(void **state)
{
    static const char *const ops[] = {"assign(%0, %1)", "assign_add(%0, %1)", "assign_ema(%0, %1)",
                                      "apply(%0, %1) optimizer=\"sgd\" params=[0.01,0,0,0,0,0,0]"};
    weft_ctx *ctx;
    weft_graph *g = NULL;
    char text[512];

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int fed = 0; fed < 2; fed++) {
            snprintf(text, sizeof text,
                     "weft graph 1\n%%0 = %s \"v\" #0%s\n"
                     "%%1 = placeholder() dtype=f32 shape=[1] \"x\" #1\n%%2 = %s \"y\" #2\n",
                     fed ? "placeholder() dtype=f32 shape=[1]" : "constant() dtype=f32 shape=[1]",
                     fed ? "" : " {00000000}", ops[i]);
            assert_int_equal(weft_graph_parse(ctx, text, (int64_t)strlen(text), &g), WEFT_EINVAL);
            assert_non_null(strstr(weft_error(), "'v' is not a variable"));
        }
    weft_ctx_free(ctx);
}

static void a_drawing_has_every_node(void **state)
{
    weft_ctx *ctx;
    weft_val loss;
    weft_graph *g;
    char *dot;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    g = example(ctx, &loss);
    ok(weft_graph_dot(g, &dot));
    assert_non_null(strstr(dot, "layer/w"));
    assert_non_null(strstr(dot, "->"));
    assert_non_null(strstr(dot, "dashed"));
    weft_text_free(ctx, dot);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_reads_back_as_itself),
        cmocka_unit_test(a_loaded_graph_computes_the_same),
        cmocka_unit_test(malformed_text_is_named_with_its_line),
        cmocka_unit_test(what_only_plans_contain_is_not_read),
        cmocka_unit_test(updates_of_what_is_no_variable_are_not_read),
        cmocka_unit_test(a_drawing_has_every_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
