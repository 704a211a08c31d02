/* cut_test.c - a part of a model as a model of its own: what leads to a layer stays, with its
 * names; the rest goes; mistakes are named. */
#include "fixture.h"

#include "weft/ops.h"

static weft_sym apply(struct fixture *f, const char *kind, const char *attrs, weft_sym x)
{
    return weft_apply(f->m, kind, attrs, x);
}

/* x -> body -> norm -> Dropout -> head */
static void chain(struct fixture *f)
{
    weft_sym x = vector(f->m, 6);

    x = apply(f, "Dense", "units=4 activation=relu kernel_regularizer=l2(0.5) name=body", x);
    x = apply(f, "BatchNormalization", "name=norm trainable=false", x);
    x = apply(f, "Dropout", "rate=0.25", x);
    weft_model_output(f->m, apply(f, "Dense", "units=3", x));
    ok(f->m);
}

static weft_model *cut(const weft_model *m, const char *until, int drop)
{
    weft_model *out = NULL;

    if (weft_model_cut(m, WEFT_OPTS(weft_cut_opts, .until = until, .drop = drop), &out))
        fail_msg("%s", weft_error());
    return out;
}

static bool has(const weft_model *m, const char *name)
{
    weft_layer l;

    return weft_model_layer(m, name, &l) == WEFT_OK;
}

static void part_ends_at_the_named_layer_and_keeps_names_weights_and_freezing(void **state)
{
    struct fixture *f = *state;
    weft_model *m;
    weft_layer l = {0};
    weft_tensor type;

    chain(f);
    m = cut(f->m, "norm", 0);
    assert_int_equal(weft_model_n_layers(m), 2);
    assert_true(has(m, "body") && has(m, "norm") && !has(m, "dense") && !has(m, "dropout"));
    assert_int_equal(weft_model_layer(m, "norm", &l), WEFT_OK);
    assert_true(weft_layer_frozen(m, l));
    assert_int_equal(weft_model_n_inputs(m), 1);
    assert_int_equal(weft_model_n_outputs(m), 1);
    assert_string_equal(weft_sym_name(m, weft_model_output_at(m, 0)), "norm");
    assert_int_equal(weft_sym_type(m, weft_model_output_at(m, 0), &type), WEFT_OK);
    assert_int_equal(type.dim[1], 4);
    assert_int_equal(wf_model_n_weights(m), 6);
    assert_string_equal(wf_model_weight(m, 0)->name, "body/kernel");
    assert_string_equal(wf_model_weight(m, 0)->regularizer, "l2(0.5)");
    assert_int_equal(weft_model_n_layers(f->m), 4); /* the whole one is as it was */
    weft_model_free(m);
}

static void dropping_counts_from_the_output(void **state)
{
    struct fixture *f = *state;
    weft_model *m;

    chain(f);
    m = cut(f->m, NULL, 1);
    assert_string_equal(weft_sym_name(m, weft_model_output_at(m, 0)), "dropout");
    weft_model_free(m);
    m = cut(f->m, NULL, 3);
    assert_string_equal(weft_sym_name(m, weft_model_output_at(m, 0)), "body");
    weft_model_free(m);
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .drop = 4), &m), WEFT_ERANGE);
    assert_non_null(strstr(weft_error(), "only the input is left"));
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .drop = 9), &m), WEFT_ERANGE);
    assert_non_null(strstr(weft_error(), "only 4 lead"));
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .drop = 1, .until = "norm"), &m),
                     WEFT_EINVAL);
}

static void new_head_never_gets_the_name_of_a_layer_that_went(void **state)
{
    struct fixture *f = *state;
    weft_model *m;

    chain(f);
    m = cut(f->m, NULL, 1);
    assert_string_equal(weft_sym_name(m, weft_model_add(m, "Dense", "units=5")), "dense_1");
    assert_string_equal(weft_sym_name(m, weft_model_add(m, "Dense", "units=5 name=dense")),
                        "dense"); /* given on purpose */
    assert_int_equal(weft_model_status(m), WEFT_OK);
    assert_int_equal(weft_model_n_outputs(m), 1);
    weft_model_add(m, "Dense", "units=5 name=dense");
    assert_int_equal(weft_model_status(m), WEFT_EEXIST);
    weft_model_free(m);
}

static void branches_that_lead_elsewhere_go_with_their_inputs(void **state)
{
    struct fixture *f = *state;
    weft_sym a = vector(f->m, 4), b = weft_input(f->m, "z", WEFT_F32, 1, (int64_t[]){4}), s;
    weft_layer shared = weft_layer_new(f->m, "Dense", "units=4 name=shared");
    weft_model *m;

    s = apply(f, "Dense", "units=2 name=left", weft_call(f->m, shared, a));
    b = weft_call(f->m, shared, b);
    weft_model_output(f->m, s);
    weft_model_output(f->m, weft_apply_n(f->m, "Concatenate", "name=both", 2, (weft_sym[]){s, b}));
    ok(f->m);
    m = cut(f->m, "left", 0);
    assert_int_equal(weft_model_n_inputs(m), 1);
    assert_int_equal(wf_model_n_weights(m), 4);
    weft_model_free(m);
    m = cut(f->m, "both, left", 0);
    assert_int_equal(weft_model_n_inputs(m), 2);
    assert_int_equal(weft_model_n_outputs(m), 2);
    assert_string_equal(weft_sym_name(m, weft_model_output_at(m, 1)), "left");
    weft_model_free(m);
    m = cut(f->m, NULL, 0); /* a copy */
    assert_int_equal(weft_model_n_outputs(m), 2);
    weft_model_free(m);
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .drop = 1), &m), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "2 outputs"));
}

static void wrapped_layers_go_and_stay_with_their_wrappers(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_input(f->m, "x", WEFT_F32, 2, (int64_t[]){5, 4});
    weft_layer one = weft_layer_new(f->m, "LSTM", "units=3 return_sequences=true name=one"), two;
    weft_model *m;

    x = weft_call(f->m, weft_layer_wrap(f->m, "Bidirectional", "name=first", one), x);
    two = weft_layer_new(f->m, "GRU", "units=2 name=two");
    x = weft_call(f->m, weft_layer_wrap(f->m, "Bidirectional", "name=second", two), x);
    weft_model_output(f->m, x);
    ok(f->m);
    assert_true(weft_model_freeze(f->m, "first", true) > 0);
    m = cut(f->m, "first", 0);
    assert_true(has(m, "one") && !has(m, "two") && !has(m, "second"));
    assert_int_equal(weft_model_layer(m, "one", &one), WEFT_OK);
    assert_true(weft_layer_frozen(m, one));
    weft_model_free(m);
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .until = "two"), &m),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "inside another"));
}

static weft_status double_it(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_add(weft_lc_graph(c), weft_lc_in(c, 0), weft_lc_in(c, 0)));
    return WEFT_OK;
}

static void own_kinds_of_layers_come_along(void **state)
{
    static const weft_layer_kind kind = {
        .size = sizeof kind, .name = "Twofold", .n_in_min = 1, .n_in_max = 1, .build = double_it};
    struct fixture *f = *state;
    weft_model *m;

    assert_int_equal(weft_layer_register(f->m, &kind), WEFT_OK);
    weft_model_output(
        f->m, apply(f, "Dense", "units=2", apply(f, "Twofold", "name=mine", vector(f->m, 2))));
    ok(f->m);
    m = cut(f->m, "mine", 0);
    weft_model_add(m, "Twofold", NULL);
    ok(m);
    weft_model_free(m);
}

static void a_layer_that_is_not_there_is_named_with_the_nearest(void **state)
{
    struct fixture *f = *state;
    weft_model *m = NULL;

    chain(f);
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .until = "bodi"), &m),
                     WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "no layer 'bodi', did you mean 'body'?"));
    assert_int_equal(weft_model_cut(f->m, WEFT_OPTS(weft_cut_opts, .until = " ,"), &m),
                     WEFT_EINVAL);
    assert_null(m);
}

static void what_a_call_of_a_layer_returned_can_be_gone_on_from(void **state)
{
    struct fixture *f = *state;
    weft_layer l = {0};
    weft_sym x;

    chain(f);
    assert_int_equal(weft_model_layer(f->m, "norm", &l), WEFT_OK);
    x = apply(f, "Dense", "units=7 name=second_head", weft_layer_output(f->m, l, 0));
    weft_model_output(f->m, x);
    ok(f->m);
    assert_int_equal(weft_model_n_outputs(f->m), 2);
    assert_int_equal(weft_layer_output(f->m, l, 1).id, 0);
    assert_int_equal(weft_model_status(f->m), WEFT_ERANGE);
    assert_non_null(strstr(weft_error(), "'norm' has 1 calls;"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(part_ends_at_the_named_layer_and_keeps_names_weights_and_freezing),
        TEST(dropping_counts_from_the_output),
        TEST(new_head_never_gets_the_name_of_a_layer_that_went),
        TEST(branches_that_lead_elsewhere_go_with_their_inputs),
        TEST(wrapped_layers_go_and_stay_with_their_wrappers),
        TEST(own_kinds_of_layers_come_along),
        TEST(a_layer_that_is_not_there_is_named_with_the_nearest),
        TEST(what_a_call_of_a_layer_returned_can_be_gone_on_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
