/* rnn_grad_test.c - what the gradient rules of recurrent nets build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "op/rnn.h"
#include "weft/ops_rnn.h"

static weft_ctx *ctx;

struct net {
    weft_graph *g;
    weft_val x, w, r, h0, y, loss;
};

static struct net build(int64_t n_time)
{
    struct net n = {0};

    assert_int_equal(weft_graph_new(ctx, &n.g), 0);
    n.x = weft_placeholder(n.g, "x", WEFT_F32, 3, (int64_t[]){WEFT_ANY, n_time, 4});
    n.h0 = weft_placeholder(n.g, "h0", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 5});
    n.w = weft_variable(n.g, "w", 2, (int64_t[]){4, 20}, NULL);
    n.r = weft_variable(n.g, "r", 2, (int64_t[]){5, 20}, NULL);
    n.y = weft_lstm(n.g, n.x, n.w, n.r, WEFT_OPTS(weft_lstm_opts, .h0 = n.h0));
    n.loss = wf_unary(n.g, WF_OP_sum, weft_output(n.g, n.y, 1));
    assert_int_equal(weft_graph_status(n.g), 0);
    return n;
}

static void only_what_is_wanted_is_asked_for(void **state)
{
    struct net n = build(WEFT_ANY);
    weft_val d[2];
    const struct wf_node *node;

    (void)state;
    assert_int_equal(weft_grad(n.g, n.loss, 2, (weft_val[]){n.w, n.r}, d), 0);
    node = wf_val_node(n.g, d[0]);
    assert_string_equal(node->op->name, "lstm_grad");
    assert_ptr_equal(node, wf_val_node(n.g, d[1]));
    assert_int_equal(wf_node_int(node, "need_dx"), 0);
    assert_int_equal(wf_node_int(node, "need_dh0"), 0);
    assert_int_equal(wf_node_int(node, "need_dw"), 1);
    assert_int_equal(node->in[WF_RNN_DY], 0);
    assert_true(node->in[WF_RNN_DH] != 0);
    assert_int_equal(wf_type_count(&n.g->values[node->first_out + WF_RNN_DX].type), 0);
    weft_graph_free(n.g);
}

static void last_states_are_outputs_one_and_two(void **state)
{
    struct net n = build(7);
    weft_tensor t;

    (void)state;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(weft_val_type(n.g, weft_output(n.g, n.y, i), &t), 0);
        assert_int_equal(t.rank, 2);
        assert_int_equal(t.dim[1], 5);
    }
    assert_int_equal(weft_val_type(n.g, n.y, &t), 0);
    assert_int_equal(t.dim[1], 7);
    weft_graph_free(n.g);
}

static void second_gradients_need_a_known_time(void **state)
{
    for (int known = 0; known < 2; known++) {
        struct net n = build(known ? 3 : WEFT_ANY);
        weft_val d, d2, again;
        weft_status st;

        (void)state;
        assert_int_equal(weft_grad(n.g, n.loss, 1, &n.w, &d), 0);
        again = wf_unary(n.g, WF_OP_sum, wf_binary(n.g, WF_OP_mul, d, d));
        st = weft_grad(n.g, again, 1, &n.w, &d2);
        assert_int_equal(st, known ? WEFT_OK : WEFT_ENOSUP);
        if (!known)
            assert_non_null(strstr(weft_error(), "need a time size that is known"));
        weft_graph_free(n.g);
    }
}

static int set_up(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_wanted_is_asked_for),
        cmocka_unit_test(last_states_are_outputs_one_and_two),
        cmocka_unit_test(second_gradients_need_a_known_time),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
