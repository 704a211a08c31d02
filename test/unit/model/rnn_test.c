/* Recurrent layers, cells, wrappers, attention, embeddings: weights, shapes, masks, kept states,
 * dropout, errors. Numbers are in test/golden. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>

#include "weft/weft.h"

static weft_sym sequence(weft_model *m, int64_t time, int64_t n)
{
    return weft_input(m, "x", WEFT_F32, 2, (int64_t[]){time, n});
}

static struct wf_built built(struct fixture *f, bool training)
{
    struct wf_built b;

    ok(f->m);
    if (wf_model_build(f->m, f->g, training, &f->arena, &b))
        fail_msg("%s", weft_error());
    return b;
}

static void has_weights(const weft_model *m, int n, const char *const *names)
{
    assert_int_equal(wf_model_n_weights(m), n);
    for (int i = 0; i < n; i++)
        assert_string_equal(wf_model_weight(m, i)->name, names[i]);
}

static void has_shape(const weft_model *m, weft_sym x, int rank, int64_t a, int64_t b, int64_t c)
{
    int64_t want[3] = {a, b, c};
    weft_tensor t;

    assert_int_equal(weft_sym_type(m, x, &t), WEFT_OK);
    assert_int_equal(t.rank, rank);
    for (int i = 0; i < rank; i++)
        if (want[i] >= 0)
            assert_int_equal(t.dim[i], want[i]);
        else
            assert_true(t.dim[i] < 0);
}

static int count_ops(const weft_graph *g, const char *op)
{
    int n = 0;

    for (int64_t i = 0; i < g->n_nodes; i++)
        n += !strcmp(g->nodes[i].op->name, op);
    return n;
}

/* ---- weights and shapes ---------------------------------------------------------------------- */

static void weights_have_keras_names_and_order(void **state)
{
    static const char *const lstm[] = {"lstm/kernel", "lstm/recurrent_kernel", "lstm/bias"};
    struct fixture *f = *state;
    weft_sym y = weft_apply(f->m, "LSTM", "units=3", sequence(f->m, 5, 2));

    weft_model_output(f->m, y);
    ok(f->m);
    has_weights(f->m, 3, lstm);
    assert_int_equal(wf_model_weight(f->m, 1)->dim[1], 12);
    has_shape(f->m, y, 2, -1, 3, 0);
}

static void both_directions_have_weights_of_their_own(void **state)
{
    static const char *const names[] = {
        "gru/kernel",        "gru/recurrent_kernel",        "gru/bias",
        "gru/copy_1/kernel", "gru/copy_1/recurrent_kernel", "gru/copy_1/bias"};
    struct fixture *f = *state;
    weft_layer gru = weft_layer_new(f->m, "GRU", "units=3 return_sequences=true");
    weft_sym y = weft_call(f->m, weft_layer_wrap(f->m, "Bidirectional", NULL, gru),
                           sequence(f->m, WEFT_ANY, 2));

    ok(f->m);
    has_weights(f->m, 6, names);
    has_shape(f->m, y, 3, -1, -1, 6);
    assert_int_equal(wf_model_weight(f->m, 2)->rank, 2);
}

static void attention_weights_have_keras_names_and_order(void **state)
{
    static const char *const names[] = {"mha/query/kernel",
                                        "mha/query/bias",
                                        "mha/key/kernel",
                                        "mha/key/bias",
                                        "mha/value/kernel",
                                        "mha/value/bias",
                                        "mha/attention_output/kernel",
                                        "mha/attention_output/bias"};
    struct fixture *f = *state;
    weft_sym y = weft_apply(f->m, "MultiHeadAttention", "num_heads=2 key_dim=3 name=mha",
                            sequence(f->m, WEFT_ANY, 4));

    ok(f->m);
    has_weights(f->m, 8, names);
    has_shape(f->m, y, 3, -1, -1, 4);
}

static void states_are_returned_when_asked_for(void **state)
{
    struct fixture *f = *state;
    weft_sym x = sequence(f->m, 5, 2);
    weft_sym y = weft_apply(f->m, "LSTM", "units=3 return_sequences=true return_state=true", x);

    ok(f->m);
    has_shape(f->m, y, 3, -1, 5, 3);
    has_shape(f->m, weft_sym_part(f->m, y, 1), 2, -1, 3, 0);
    has_shape(f->m, weft_sym_part(f->m, y, 2), 2, -1, 3, 0);
    ok(f->m);
    weft_sym_part(f->m, y, 3);
    assert_true(weft_model_status(f->m) != WEFT_OK);
}

static weft_fn *fn_of(struct fixture *f, const struct wf_built *b, int n_updates,
                      const weft_val *updates)
{
    weft_fn *fn = NULL;

    if (weft_fn_new(f->g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = b->n_in, .feeds = b->in,
                              .n_fetches = b->n_out, .fetches = b->out, .n_updates = n_updates,
                              .updates = updates),
                    &fn))
        fail_msg("%s", weft_error());
    return fn;
}

static void the_forget_gate_begins_open(void **state)
{
    struct fixture *f = *state;
    struct wf_built b;
    weft_tensor t;
    weft_fn *fn;

    weft_model_output(f->m, weft_apply(f->m, "LSTM", "units=3", sequence(f->m, 5, 2)));
    b = built(f, false);
    fn = fn_of(f, &b, 0, NULL);
    assert_int_equal(weft_fn_view(fn, "lstm/bias", &t), WEFT_OK);
    for (int i = 0; i < 12; i++)
        assert_true(((float *)t.data)[i] == (i >= 3 && i < 6 ? 1.0f : 0.0f));
    weft_fn_free(fn);
}

static void an_embedding_updates_the_rows_looked_up(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_input(f->m, "ids", WEFT_I32, 1, (int64_t[]){4});
    weft_val updates[4];
    struct wf_built b;
    weft_optim sgd;
    int n = 0;

    weft_model_output(f->m, weft_apply(f->m, "Embedding", "input_dim=9 output_dim=4", x));
    b = built(f, true);
    assert_int_equal(weft_optim_init(&sgd, "sgd", NULL), WEFT_OK);
    assert_int_equal(
        weft_minimize(f->g, weft_mean(f->g, b.out[0], NULL), &sgd, 0, NULL, 4, updates, &n),
        WEFT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(count_ops(f->g, "apply_rows"), 1);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void masks_go_as_far_as_in_keras(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_input(f->m, "ids", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    weft_sym e = weft_apply(f->m, "Embedding", "input_dim=9 output_dim=4 mask_zero=true", x);
    weft_sym d = weft_apply(f->m, "Dense", "units=3", e);
    weft_sym r = weft_apply(f->m, "GRU", "units=3 return_sequences=true", d);
    struct wf_built b;

    weft_model_output(f->m, e);
    weft_model_output(f->m, d);
    weft_model_output(f->m, r);
    weft_model_output(f->m, weft_apply(f->m, "MultiHeadAttention", "num_heads=1 key_dim=2", r));
    weft_model_output(f->m, weft_apply(f->m, "LSTM", "units=3", r));
    b = built(f, false);
    for (int i = 0; i < 4; i++) {
        assert_true(b.out_mask[i].id > 0);
        assert_int_equal(wf_val_type_of(f->g, b.out_mask[i])->dtype, WEFT_BOOL);
        assert_int_equal(wf_val_type_of(f->g, b.out_mask[i])->rank, 2);
    }
    assert_int_equal(b.out_mask[4].id, 0);
}

/* ---- kept states ----------------------------------------------------------------------------- */

static void run_part(weft_fn *fn, const float *x, int64_t time, float *out)
{
    weft_tensor feed = weft_view(WEFT_F32, (void *)(uintptr_t)x, 3, (int64_t[]){1, time, 2});
    weft_tensor got = {.data = NULL};

    if (weft_fn_run(fn, &feed, &got))
        fail_msg("%s", weft_error());
    memcpy(out, got.data, 3 * sizeof *out);
}

static void a_stateful_layer_goes_on_where_it_stopped(void **state)
{
    static const float x[12] = {.1f, -.4f, .9f, .3f, -.7f, .2f, .5f, -.1f, .8f, -.6f, .4f, .7f};
    struct fixture *f = *state;
    float whole[3], first[3], second[3], zeros[3] = {0};
    int64_t dim[2] = {1, 3};
    weft_tensor zero = weft_view(WEFT_F32, zeros, 2, dim);
    struct wf_built b;
    weft_fn *fn;
    int n = 0;

    weft_model_output(f->m, weft_apply(f->m, "LSTM", "units=3 stateful=true batch_size=1",
                                       sequence(f->m, WEFT_ANY, 2)));
    b = built(f, false);
    assert_int_equal(b.n_carries, 2);
    fn = fn_of(f, &b, b.n_carries, b.carry);
    run_part(fn, x, 6, whole);
    for (int i = wf_model_next_state(f->m, 0); i >= 0; i = wf_model_next_state(f->m, i + 1), n++)
        assert_int_equal(weft_fn_set(fn, wf_model_weight(f->m, i)->name, &zero), WEFT_OK);
    assert_int_equal(n, 2);
    run_part(fn, x, 2, first);
    run_part(fn, x + 4, 4, second);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(second[i] - whole[i]) < 1e-6f);
    run_part(fn, x + 4, 4, first); /* and it is not the same from another state */
    assert_true(fabsf(second[0] - first[0]) > 1e-4f);
    weft_fn_free(fn);
}

static void training_updates_kept_states(void **state)
{
    struct fixture *f = *state;
    weft_layer cell = weft_layer_new(f->m, "GRUCell", "units=3");
    weft_layer rnn = weft_layer_wrap(f->m, "RNN", "stateful=true batch_size=4", cell);
    struct wf_built b;

    weft_model_output(f->m, weft_call(f->m, rnn, sequence(f->m, 3, 2)));
    b = built(f, true);
    assert_int_equal(b.n_updates, 1);
    assert_int_equal(b.n_carries, 0);
    assert_true(wf_model_weight(f->m, wf_model_next_state(f->m, 0))->state);
}

/* ---- dropout --------------------------------------------------------------------------------- */

static void steps_share_their_dropout(void **state)
{
    static const char *const kinds[] = {"LSTM", "GRU", "SimpleRNN"};
    struct fixture *f = *state;

    for (int i = 0; i < 3; i++) {
        weft_sym x = i ? weft_model_input_at(f->m, 0) : sequence(f->m, 4, 2);

        weft_model_output(
            f->m, weft_apply(f->m, kinds[i], "units=3 dropout=0.5 recurrent_dropout=0.5", x));
    }
    built(f, true);
    assert_int_equal(count_ops(f->g, "dropout"), 6);
    weft_graph_free(f->g);
    assert_int_equal(weft_graph_new(f->ctx, &f->g), WEFT_OK);
    built(f, false);
    assert_int_equal(count_ops(f->g, "dropout"), 0);
}

static void steps_of_a_cell_share_their_dropout(void **state)
{
    struct fixture *f = *state;
    weft_layer cells;

    weft_layer_new(f->m, "LSTMCell", "units=3 dropout=0.5 recurrent_dropout=0.2 name=a");
    weft_layer_new(f->m, "GRUCell", "units=2 dropout=0.5 name=b");
    cells = weft_layer_new(f->m, "StackedRNNCells", "cells=\"a b\"");
    weft_model_output(
        f->m, weft_call(f->m, weft_layer_wrap(f->m, "RNN", NULL, cells), sequence(f->m, 4, 2)));
    built(f, true);
    assert_int_equal(count_ops(f->g, "dropout"), 3);
}

static void a_frozen_layer_still_drops(void **state)
{
    struct fixture *f = *state;

    weft_model_output(f->m, weft_apply(f->m, "LSTM", "units=3 dropout=0.5 trainable=false",
                                       sequence(f->m, 4, 2)));
    built(f, true);
    assert_int_equal(count_ops(f->g, "dropout"), 1);
}

static void attention_drops_scores_in_training_only(void **state)
{
    struct fixture *f = *state;
    weft_sym x = sequence(f->m, WEFT_ANY, 4);

    weft_model_output(
        f->m, weft_apply(f->m, "MultiHeadAttention", "num_heads=2 key_dim=2 dropout=0.1", x));
    weft_model_output(f->m, weft_apply_n(f->m, "Attention", "dropout=0.1", 2, (weft_sym[]){x, x}));
    built(f, false);
    assert_int_equal(count_ops(f->g, "dropout"), 0);
    assert_int_equal(count_ops(f->g, "attention"), 1);
    built(f, true);
    assert_int_equal(count_ops(f->g, "dropout"), 2);
}

/* ---- one op or many -------------------------------------------------------------------------- */

static void usual_layers_are_one_op(void **state)
{
    struct fixture *f = *state;
    weft_sym x = sequence(f->m, WEFT_ANY, 2);

    x = weft_apply(f->m, "LSTM", "units=3 dropout=0.2 return_sequences=true go_backwards=true", x);
    x = weft_apply(f->m, "GRU", "units=3 reset_after=false return_sequences=true", x);
    x = weft_apply(f->m, "SimpleRNN", "units=3 activation=relu", x);
    weft_model_output(f->m, x);
    built(f, true);
    assert_int_equal(count_ops(f->g, "lstm"), 1);
    assert_int_equal(count_ops(f->g, "gru"), 1);
    assert_int_equal(count_ops(f->g, "simple_rnn"), 1);
    assert_int_equal(count_ops(f->g, "tanh"), 0);
}

static void every_step_alike_at_any_number_of_steps(void **state)
{
    struct fixture *f = *state;
    weft_layer dense = weft_layer_new(f->m, "Dense", "units=3 kernel_initializer=ones");
    weft_sym y = weft_call(f->m, weft_layer_wrap(f->m, "TimeDistributed", NULL, dense),
                           sequence(f->m, WEFT_ANY, 2));
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    weft_tensor feed = weft_view(WEFT_F32, x, 3, (int64_t[]){2, 2, 2}), got = {0};
    struct wf_built b;
    weft_fn *fn;

    weft_model_output(f->m, y);
    has_shape(f->m, y, 3, -1, -1, 3);
    b = built(f, false);
    fn = fn_of(f, &b, 0, NULL);
    assert_int_equal(weft_fn_run(fn, &feed, &got), WEFT_OK);
    assert_int_equal(got.dim[0], 2);
    assert_int_equal(got.dim[1], 2);
    for (int i = 0; i < 12; i++)
        assert_true(((float *)got.data)[i] == x[i / 3 * 2] + x[i / 3 * 2 + 1]);
    weft_fn_free(fn);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void wrappers_and_cells_read_back(void **state)
{
    struct fixture *f = *state;
    weft_layer cells, rnn;
    weft_model *again = NULL;
    char *json = NULL, *twice = NULL;

    weft_layer_new(f->m, "LSTMCell", "units=3 name=a");
    weft_layer_new(f->m, "GRUCell", "units=2 name=b");
    cells = weft_layer_new(f->m, "StackedRNNCells", "cells=\"a b\"");
    rnn = weft_layer_wrap(f->m, "RNN", "return_sequences=true", cells);
    weft_model_output(f->m,
                      weft_call(f->m, weft_layer_wrap(f->m, "Bidirectional", "merge_mode=sum", rnn),
                                sequence(f->m, 4, 2)));
    ok(f->m);
    assert_int_equal(weft_model_json(f->m, &json), WEFT_OK);
    if (weft_model_parse(f->ctx, json, (int64_t)strlen(json), &again))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_model_json(again, &twice), WEFT_OK);
    assert_string_equal(json, twice);
    assert_int_equal(wf_model_n_weights(again), 12);
    weft_text_free(f->ctx, json);
    weft_text_free(f->ctx, twice);
    weft_model_free(again);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void wrong_arguments_are_told(void **state)
{
    static const struct {
        const char *kind, *attrs;
        weft_status st;
        const char *part;
    } cases[] = {
        {"LSTM", "units=0", WEFT_EINVAL, "units must be positive"},
        {"GRU", "units=3 dropout=1.5", WEFT_EINVAL, "[0, 1]"},
        {"LSTM", "units=3 stateful=true", WEFT_EINVAL, "batch_size"},
        {"LSTM", "units=3 bias_initializer=he_normal", WEFT_ENOSUP, "unit_forget_bias"},
        {"LSTM", "units=3 activation=relu", WEFT_ESHAPE, "must be known"},
        {"SimpleRNN", "units=3 activation=tnah", WEFT_ENOENT, "did you mean 'tanh'"},
        {"RNN", "", WEFT_EINVAL, "wrap"},
        {"Embedding", "input_dim=0 output_dim=3", WEFT_EINVAL, "positive"},
        {"MultiHeadAttention", "num_heads=0 key_dim=2", WEFT_EINVAL, "num_heads"},
        {"MultiHeadAttention", "num_heads=2 key_dim=2 dropout=-1", WEFT_EINVAL, "dropout"},
        {"GroupQueryAttention", "head_dim=2 num_query_heads=3 num_key_value_heads=2", WEFT_EINVAL,
         "multiple"},
        {"MultiHeadAttention", "num_heads=2 key_dim=2 sliding_window=-1", WEFT_EINVAL,
         "sliding_window"},
    };
    struct fixture *f = *state;

    for (int i = 0; i < WF_COUNT(cases); i++) {
        weft_model *m = NULL;

        assert_int_equal(weft_model_new(f->ctx, NULL, &m), WEFT_OK);
        weft_apply(m, cases[i].kind, cases[i].attrs, sequence(m, WEFT_ANY, 2));
        if (weft_model_status(m) != cases[i].st || !strstr(weft_error(), cases[i].part))
            fail_msg("%s %s: status %d, '%s'", cases[i].kind, cases[i].attrs,
                     (int)weft_model_status(m), weft_error());
        weft_model_free(m);
    }
}

static void wrong_inputs_are_told(void **state)
{
    struct fixture *f = *state;
    weft_sym x = vector(f->m, 3);

    weft_apply(f->m, "LSTM", "units=3", x);
    fails_with(f->m, WEFT_ESHAPE, "lstm", "rank", NULL);
}

static void half_of_the_states_is_not_enough(void **state)
{
    struct fixture *f = *state;
    weft_sym x = sequence(f->m, 4, 2), h = weft_input(f->m, "h", WEFT_F32, 1, (int64_t[]){3});

    weft_apply_n(f->m, "LSTM", "units=3", 2, (weft_sym[]){x, h});
    fails_with(f->m, WEFT_EINVAL, "2 states", NULL);
}

static void only_recurrent_layers_run_both_ways(void **state)
{
    struct fixture *f = *state;
    weft_layer dense = weft_layer_new(f->m, "Dense", "units=3");

    weft_call(f->m, weft_layer_wrap(f->m, "Bidirectional", NULL, dense), sequence(f->m, 4, 2));
    fails_with(f->m, WEFT_EINVAL, "SimpleRNN, LSTM, GRU or RNN", "Dense", NULL);
}

static void both_ways_and_backwards_is_refused(void **state)
{
    struct fixture *f = *state;
    weft_layer l = weft_layer_new(f->m, "LSTM", "units=3 go_backwards=true");

    weft_call(f->m, weft_layer_wrap(f->m, "Bidirectional", NULL, l), sequence(f->m, 4, 2));
    fails_with(f->m, WEFT_EINVAL, "go_backwards", NULL);
}

static void what_is_no_cell_is_named(void **state)
{
    struct fixture *f = *state;
    weft_layer l = weft_layer_new(f->m, "Flatten", NULL);

    weft_call(f->m, weft_layer_wrap(f->m, "RNN", NULL, l), sequence(f->m, 4, 2));
    fails_with(f->m, WEFT_EINVAL, "'flatten' is not a cell", NULL);
}

static void cells_that_do_not_exist_are_named(void **state)
{
    struct fixture *f = *state;
    weft_layer l = weft_layer_new(f->m, "StackedRNNCells", "cells=\"one two\"");

    weft_call(f->m, weft_layer_wrap(f->m, "RNN", NULL, l), sequence(f->m, 4, 2));
    fails_with(f->m, WEFT_ENOENT, "no layer 'one'", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(weights_have_keras_names_and_order),
        TEST(both_directions_have_weights_of_their_own),
        TEST(attention_weights_have_keras_names_and_order),
        TEST(states_are_returned_when_asked_for),
        TEST(the_forget_gate_begins_open),
        TEST(an_embedding_updates_the_rows_looked_up),
        TEST(masks_go_as_far_as_in_keras),
        TEST(a_stateful_layer_goes_on_where_it_stopped),
        TEST(training_updates_kept_states),
        TEST(steps_share_their_dropout),
        TEST(steps_of_a_cell_share_their_dropout),
        TEST(a_frozen_layer_still_drops),
        TEST(attention_drops_scores_in_training_only),
        TEST(usual_layers_are_one_op),
        TEST(every_step_alike_at_any_number_of_steps),
        TEST(wrappers_and_cells_read_back),
        TEST(wrong_arguments_are_told),
        TEST(wrong_inputs_are_told),
        TEST(half_of_the_states_is_not_enough),
        TEST(only_recurrent_layers_run_both_ways),
        TEST(both_ways_and_backwards_is_refused),
        TEST(what_is_no_cell_is_named),
        TEST(cells_that_do_not_exist_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
