/* rewrite_test.c - what every pass keeps: numbers of variables and feeds, types; and what it leaves
 * behind: no dead node, no name that could be taken. And who reads what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "weft/ops.h"

static weft_ctx *ctx;
static weft_graph *g;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return 0;
}

static weft_val placeholder(const char *name, int64_t rows)
{
    return weft_placeholder(g, name, WEFT_F32, 2, (int64_t[]){rows, 4});
}

static weft_val variable(const char *name)
{
    return weft_variable(g, name, 2, (int64_t[]){3, 4}, NULL);
}

static weft_status no_eval(void *arg, const struct wf_node *n, const struct wf_tensor *in,
                           struct wf_tensor *out)
{
    (void)arg;
    (void)n;
    (void)in;
    (void)out;
    return WEFT_ENOSUP;
}

/* ---- uses ------------------------------------------------------------------------------------ */

static void uses_are_those_of_live_nodes_and_fetches(void **state)
{
    weft_val x = placeholder("x", 3), y = weft_relu(g, x), z = weft_mul(g, y, y);
    weft_val dead = weft_exp(g, y), last = weft_add(g, z, y);
    struct wf_uses u;

    (void)state;
    (void)dead;
    assert_int_equal(wf_uses_find(&u, g, 2, (int32_t[]){last.id, y.id}), WEFT_OK);
    assert_int_equal(wf_uses_count(&u, x.id), 1);
    assert_int_equal(wf_uses_count(&u, y.id), 4); /* twice by mul, once by add, fetched */
    assert_int_equal(wf_uses_count(&u, last.id), 1);
    assert_int_equal(u.first[y.id + 1] - u.first[y.id], 3);
    assert_int_equal(u.reader[u.first[y.id]], g->values[z.id].node);
    assert_int_equal(u.reader[u.first[y.id + 1] - 1], g->values[last.id].node);
    wf_uses_free(&u, ctx);
}

static void views_are_followed_to_the_bytes(void **state)
{
    weft_val w = variable("w"), v = weft_reshape(g, weft_identity(g, w), 1, (int64_t[]){12});
    weft_val r = weft_exp(g, v), up = weft_assign(g, w, weft_mul(g, w, w)), late = weft_tanh(g, r);
    struct wf_uses u;

    (void)state;
    weft_control(g, late, up);
    assert_int_equal(wf_view_root(g, v.id), w.id);
    assert_int_equal(wf_value_read(g, wf_val_node(g, r), 0), w.id);
    assert_int_equal(wf_value_read(g, wf_val_node(g, v), 0), 0);
    assert_int_equal(wf_value_read(g, wf_val_node(g, up), 0), 0);
    assert_int_equal(wf_value_updated(g, wf_val_node(g, up)), w.id);
    assert_int_equal(wf_value_updated(g, wf_val_node(g, r)), 0);
    assert_int_equal(wf_uses_find(&u, g, 1, &late.id), WEFT_OK);
    assert_true(u.awaited[g->values[up.id].node]);
    assert_false(u.awaited[g->values[r.id].node]);
    assert_int_equal(u.first_update[w.id], g->values[up.id].node);
    assert_int_equal(u.first_update[r.id], INT32_MAX);
    wf_uses_free(&u, ctx);
}

/* ---- what passes keep ------------------------------------------------------------------------ */

static const struct wf_node *find_op(const weft_graph *in, int op)
{
    for (int64_t k = 0; k < in->n_nodes; k++)
        if (in->nodes[k].op->id == op)
            return &in->nodes[k];
    return NULL;
}

static void dead_nodes_are_gone_after_a_pass(void **state)
{
    weft_val x = placeholder("x", 3), like = weft_exp(g, placeholder("like", 3));
    weft_val y = weft_add(g, wf_broadcast_like(g, x, weft_tanh(g, like)), weft_scalar(g, 0));
    weft_val same = wf_build(g, WF_OP_broadcast_like, 2, (weft_val[]){y, like}, 0, NULL);
    weft_val out = weft_square(g, same);
    int32_t root = out.id;
    weft_graph *to = NULL;

    (void)state;
    assert_int_equal(wf_pass_simplify(g, WF_PASS_ALL, no_eval, NULL, 1, &root, &to), WEFT_OK);
    assert_int_equal(to->n_nodes, 2);  /* the placeholder and the square */
    assert_int_equal(to->n_values, 3); /* none, and theirs */
    assert_int_equal(to->values[root].node, 1);
    assert_int_equal(to->nodes[1].in[0], to->nodes[0].first_out);
    assert_string_equal(to->nodes[0].name, "x");
    weft_graph_free(to);
}

/* Numbers stay with variables and feeds, whatever is left out before them. */
static void variables_and_feeds_keep_their_numbers(void **state)
{
    weft_val feeds[3], vars[3], root;
    struct wf_type types[3];
    int32_t feed_ids[3], r;
    weft_graph *a = NULL, *b = NULL;

    (void)state;
    for (int i = 0; i < 3; i++) {
        feeds[i] = placeholder((const char *[]){"f0", "f1", "f2"}[i], WEFT_ANY);
        vars[i] = variable((const char *[]){"v0", "v1", "v2"}[i]);
        types[i] = wf_type_of(WEFT_F32, 2, (int64_t[]){3, 4});
    }
    for (int i = 0; i < 3; i++)
        feed_ids[i] = feeds[2 - i].id; /* fed in another order */
    root = weft_mul(g, weft_add(g, feeds[1], vars[2]), weft_scalar(g, 1));
    r = root.id;
    assert_int_equal(wf_pass_resolve(g, 3, feed_ids, types, 1, &r, &a), WEFT_OK);
    assert_int_equal(find_op(a, WF_OP_placeholder)->feed, 1);
    assert_int_equal(find_op(a, WF_OP_variable)->var, 2);
    assert_int_equal(find_op(a, WF_OP_variable)->feed, -1);
    assert_int_equal(wf_pass_simplify(a, WF_PASS_ALL, no_eval, NULL, 1, &r, &b), WEFT_OK);
    assert_int_equal(find_op(b, WF_OP_placeholder)->feed, 1);
    assert_int_equal(find_op(b, WF_OP_variable)->var, 2);
    assert_int_equal(b->values[find_op(b, WF_OP_placeholder)->first_out].type.dim[0], 3);
    assert_int_equal(b->n_vars, 1);
    weft_graph_free(a);
    weft_graph_free(b);
}

/* Symbols included: where two sizes are known to be the same, they stay so. */
static void types_travel_with_copies(void **state)
{
    weft_val x = placeholder("x", WEFT_ANY), y = weft_relu(g, x);
    int32_t r = y.id;
    weft_graph *to = NULL;

    (void)state;
    assert_int_equal(wf_pass_copy(g, 1, &r, &to), WEFT_OK);
    assert_int_equal(to->values[r].type.dim[0], wf_val_type_of(g, x)->dim[0]);
    assert_true(to->values[r].type.dim[0] < -1);
    assert_int_equal(to->nodes[0].uid, g->nodes[0].uid);
    weft_graph_free(to);
}

static void names_of_passes_are_for_messages(void **state)
{
    weft_val x = placeholder("sum", 3), b = weft_scalar(g, 0);
    weft_val s =
        weft_named(g, wf_build(g, WF_OP_reduce_to_like, 2, (weft_val[]){x, b}, 0, NULL), "total");
    int32_t r = s.id;
    weft_graph *to = NULL;
    weft_val v;

    (void)state;
    assert_int_equal(wf_pass_simplify(g, WF_PASS_ALL, no_eval, NULL, 1, &r, &to), WEFT_OK);
    assert_string_equal(find_op(to, WF_OP_placeholder)->name, "sum");
    assert_string_equal(find_op(to, WF_OP_sum)->name, "total"); /* of the node it replaces */
    assert_int_equal(weft_find(to, "sum", &v), WEFT_ENOENT);
    assert_int_equal(weft_find(to, "total", &v), WEFT_ENOENT);
    weft_graph_free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(uses_are_those_of_live_nodes_and_fetches, setup, teardown),
        cmocka_unit_test_setup_teardown(views_are_followed_to_the_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(dead_nodes_are_gone_after_a_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(variables_and_feeds_keep_their_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(types_travel_with_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_passes_are_for_messages, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
