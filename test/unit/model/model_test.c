/* model_test.c - models: names, shapes, errors where they are made, sharing, freezing, building
 * graphs. */
#include <time.h>

#include "fixture.h"

#include "weft/fn.h"
#include "weft/ops.h"

/* ---- names and shapes ------------------------------------------------------------------------ */

static void layers_are_named_as_keras_does(void **state)
{
    struct fixture *f = *state;
    weft_sym x = vector(f->m, 4);
    const char *const names[] = {"dense", "dense_1", "mine", "dense_2", "activation"};
    weft_layer l;

    x = weft_apply(f->m, "Dense", "units=3", x);
    assert_string_equal(weft_sym_name(f->m, x), "dense");
    x = weft_apply(f->m, "Dense", "units=3", x);
    x = weft_apply(f->m, "Dense", "units=3 name=mine", x);
    x = weft_apply(f->m, "Dense", "units=3", x);
    weft_apply(f->m, "Activation", "activation=relu", x);
    ok(f->m);
    assert_int_equal(weft_model_n_layers(f->m), 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(weft_layer_name(f->m, weft_model_layer_at(f->m, i)), names[i]);
        assert_int_equal(weft_model_layer(f->m, names[i], &l), WEFT_OK);
        assert_int_equal(l.id, weft_model_layer_at(f->m, i).id);
    }
    assert_string_equal(weft_layer_kind_name(f->m, l), "Activation");
    assert_int_equal(weft_model_layer(f->m, "dens", &l), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "did you mean 'dense'"));
    assert_int_equal(weft_model_layer(f->m, "x", &l), WEFT_ENOENT);
}

/* Twice as many layers take twice the time, not four times: seconds where it once were minutes. */
static void very_many_layers_are_named_and_listed_in_no_time(void **state)
{
    enum { N = 40000, SECONDS = 20 };
    struct fixture *f = *state;
    weft_sym x = vector(f->m, 1);
    clock_t begin = clock(); /* of this process: other programs do not count */
    char *text = NULL;
    weft_layer l;

    for (int i = 0; i < N; i++)
        x = weft_apply(f->m, "Activation", "activation=relu", x);
    ok(f->m);
    assert_string_equal(weft_sym_name(f->m, x), "activation_39999");
    assert_int_equal(weft_model_layer(f->m, "activation_20000", &l), WEFT_OK);
    assert_int_equal(weft_model_summary(f->m, 80, &text), WEFT_OK);
    weft_text_free(f->ctx, text);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < SECONDS);
}

static void shapes_are_known_at_once(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_input(f->m, NULL, WEFT_F32, 2, (int64_t[]){WEFT_ANY, 6});
    weft_tensor t;

    assert_string_equal(weft_sym_name(f->m, x), "input_layer");
    x = weft_apply(f->m, "Dense", "units=3 activation=tanh", x);
    ok(f->m);
    assert_int_equal(weft_sym_type(f->m, x, &t), WEFT_OK);
    assert_int_equal(t.rank, 3);
    assert_int_equal(t.dim[0], WEFT_ANY);
    assert_int_equal(t.dim[1], WEFT_ANY);
    assert_int_equal(t.dim[2], 3);
    assert_int_equal(weft_sym_type(f->m, (weft_sym){99}, &t), WEFT_EINVAL);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void an_unknown_kind_suggests_the_nearest(void **state)
{
    struct fixture *f = *state;

    weft_apply(f->m, "Dens", "units=3", vector(f->m, 4));
    fails_with(f->m, WEFT_ENOENT, "'Dens'", "did you mean 'Dense'", NULL);
}

static void an_unknown_argument_suggests_the_nearest(void **state)
{
    struct fixture *f = *state;

    weft_apply(f->m, "Dense", "units=3 activaton=relu", vector(f->m, 4));
    fails_with(f->m, WEFT_ENOENT, "Dense", "activaton", "did you mean 'activation'", NULL);
}

static void a_missing_argument_is_named(void **state)
{
    struct fixture *f = *state;

    weft_apply(f->m, "Dense", NULL, vector(f->m, 4));
    fails_with(f->m, WEFT_EINVAL, "Dense", "'units' must be given", NULL);
}

static void a_bad_value_is_named(void **state)
{
    struct fixture *f = *state;

    weft_apply(f->m, "Dense", "units=many", vector(f->m, 4));
    fails_with(f->m, WEFT_EPARSE, "Dense", "units", "an integer", "many", NULL);
}

static void a_bad_activation_names_the_layer_and_the_nearest(void **state)
{
    struct fixture *f = *state;

    weft_apply(f->m, "Dense", "units=3 activation=rellu", vector(f->m, 4));
    fails_with(f->m, WEFT_ENOENT, "layer 'dense'", "rellu", "did you mean 'relu'", NULL);
}

static void an_unknown_size_names_layer_and_axis(void **state)
{
    struct fixture *f = *state;
    int64_t any = WEFT_ANY;

    weft_apply(f->m, "Dense", "units=3", weft_input(f->m, "x", WEFT_F32, 1, &any));
    fails_with(f->m, WEFT_ESHAPE, "layer 'dense'", "axis -1", "must be known", NULL);
}

static void the_first_error_stays(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_apply(f->m, "Dense", "units=0", vector(f->m, 4));
    struct wf_built b;

    assert_int_equal(x.id, 0);
    assert_int_equal(weft_apply(f->m, "Nonsense", NULL, x).id, 0);
    fails_with(f->m, WEFT_EINVAL, "layer 'dense'", "units must be positive", NULL);
    assert_int_equal(wf_model_build(f->m, f->g, false, &f->arena, &b), WEFT_EINVAL);
}

static void names_are_taken_once(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_apply(f->m, "Dense", "units=3 name=a", vector(f->m, 4));

    weft_apply(f->m, "Dense", "units=3 name=a", x);
    fails_with(f->m, WEFT_EEXIST, "'a' is taken", NULL);
}

static void names_with_commas_are_refused(void **state) /* lists of names have them between */
{
    struct fixture *f = *state;

    weft_apply(f->m, "Dense", "units=3 name=\"a,b\"", vector(f->m, 4));
    fails_with(f->m, WEFT_EINVAL, "'a,b' is not a valid layer", "commas", NULL);
}

static void a_model_of_sequence_needs_an_input(void **state)
{
    struct fixture *f = *state;

    weft_model_add(f->m, "Flatten", NULL);
    fails_with(f->m, WEFT_ESTATE, "weft_input", NULL);
}

/* ---- sharing --------------------------------------------------------------------------------- */

static void a_shared_layer_has_one_set_of_weights(void **state)
{
    struct fixture *f = *state;
    weft_sym a = vector(f->m, 4), b = weft_input(f->m, "y", WEFT_F32, 1, (int64_t[]){4});
    weft_layer l = weft_layer_new(f->m, "Dense", "units=2 kernel_regularizer=l2(0.1)");
    struct wf_built built;

    weft_model_output(f->m, weft_call(f->m, l, a));
    weft_model_output(f->m, weft_call(f->m, l, b));
    ok(f->m);
    assert_int_equal(wf_model_n_weights(f->m), 2);
    assert_string_equal(wf_model_weight(f->m, 0)->name, "dense/kernel");
    assert_string_equal(wf_model_weight(f->m, 1)->name, "dense/bias");
    assert_int_equal(wf_model_build(f->m, f->g, true, &f->arena, &built), WEFT_OK);
    assert_int_equal(built.n_in, 2);
    assert_int_equal(built.n_out, 2);
    assert_int_equal(built.n_weights, 2);
    assert_int_equal(built.n_losses, 1); /* the regularizer counts once */
    assert_int_equal(f->g->n_vars, 2);
}

static void a_shared_layer_wants_inputs_of_one_width(void **state)
{
    struct fixture *f = *state;
    weft_sym a = vector(f->m, 4), b = weft_input(f->m, "y", WEFT_F32, 1, (int64_t[]){5});
    weft_layer l = weft_layer_new(f->m, "Dense", "units=2");

    weft_call(f->m, l, a);
    weft_call(f->m, l, b);
    fails_with(f->m, WEFT_ESHAPE, "layer 'dense'", "[4,2]", "[5,2]", NULL);
}

static void two_builds_in_one_graph_share_variables(void **state)
{
    struct fixture *f = *state;
    struct wf_built train, infer;

    vector(f->m, 4);
    weft_model_add(f->m, "Dense", "units=3 kernel_regularizer=l1");
    weft_model_add(f->m, "Dense", "units=2");
    ok(f->m);
    assert_int_equal(weft_model_n_outputs(f->m), 1);
    assert_int_equal(wf_model_build(f->m, f->g, true, &f->arena, &train), WEFT_OK);
    assert_int_equal(wf_model_build(f->m, f->g, false, &f->arena, &infer), WEFT_OK);
    assert_int_equal(train.in[0].id, infer.in[0].id);
    for (int i = 0; i < 4; i++)
        assert_int_equal(train.weight[i].id, infer.weight[i].id);
    assert_int_not_equal(train.out[0].id, infer.out[0].id);
    assert_int_equal(train.n_losses, 1);
    assert_int_equal(infer.n_losses, 0);
    assert_int_equal(f->g->n_vars, 4);
}

/* ---- freezing -------------------------------------------------------------------------------- */

static bool trainable(const weft_graph *g, weft_val v)
{
    return wf_node_int(wf_val_node(g, v), "trainable") != 0;
}

static void frozen_layers_are_not_trained(void **state)
{
    struct fixture *f = *state;
    struct wf_built b;

    vector(f->m, 4);
    weft_model_add(f->m, "Dense", "units=3 trainable=false kernel_regularizer=l2");
    weft_model_add(f->m, "Dense", "units=3 name=head");
    weft_model_add(f->m, "Dense", "units=3 name=hand");
    ok(f->m);
    assert_true(weft_layer_frozen(f->m, weft_model_layer_at(f->m, 0)));
    assert_int_equal(weft_model_freeze(f->m, "ha*", true), 1);
    assert_int_equal(wf_model_build(f->m, f->g, true, &f->arena, &b), WEFT_OK);
    assert_false(trainable(f->g, b.weight[0]));
    assert_true(trainable(f->g, b.weight[2]));
    assert_false(trainable(f->g, b.weight[4]));
    assert_int_equal(b.n_losses, 0); /* as in Keras, only trained weights are penalized */
    assert_int_equal(weft_model_freeze(f->m, "*", false), 3);
    assert_false(weft_layer_frozen(f->m, weft_model_layer_at(f->m, 0)));
    assert_int_equal(weft_model_freeze(f->m, "heads", true), WEFT_ENOENT);
    assert_int_equal(weft_model_freeze(f->m, "h*d", true), WEFT_EINVAL);
}

/* ---- activity -------------------------------------------------------------------------------- */

static void activity_is_penalised_per_sample(void **state)
{
    struct fixture *f = *state;
    struct wf_built b;
    weft_fn *fn;
    weft_tensor out = {.data = NULL};
    float x[] = {1, 2, 3, 4, 5, 6}; /* [3, 2] */
    weft_tensor feed = weft_view(WEFT_F32, x, 2, (int64_t[]){3, 2});

    vector(f->m, 2);
    weft_model_add(f->m, "Dense",
                   "units=2 kernel_initializer=identity activity_regularizer=l1(0.5)");
    ok(f->m);
    assert_int_equal(wf_model_build(f->m, f->g, true, &f->arena, &b), WEFT_OK);
    assert_int_equal(b.n_losses, 1);
    assert_int_equal(weft_fn_new(f->g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = b.in,
                                           .n_fetches = 1, .fetches = b.loss),
                                 &fn),
                     WEFT_OK);
    assert_int_equal(weft_fn_run(fn, &feed, &out), WEFT_OK);
    assert_float_equal(*(float *)out.data, 0.5f * 21 / 3, 1e-6f);
    weft_fn_free(fn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(layers_are_named_as_keras_does),
        TEST(very_many_layers_are_named_and_listed_in_no_time),
        TEST(shapes_are_known_at_once),
        TEST(an_unknown_kind_suggests_the_nearest),
        TEST(an_unknown_argument_suggests_the_nearest),
        TEST(a_missing_argument_is_named),
        TEST(a_bad_value_is_named),
        TEST(a_bad_activation_names_the_layer_and_the_nearest),
        TEST(an_unknown_size_names_layer_and_axis),
        TEST(the_first_error_stays),
        TEST(names_are_taken_once),
        TEST(names_with_commas_are_refused),
        TEST(a_model_of_sequence_needs_an_input),
        TEST(a_shared_layer_has_one_set_of_weights),
        TEST(a_shared_layer_wants_inputs_of_one_width),
        TEST(two_builds_in_one_graph_share_variables),
        TEST(frozen_layers_are_not_trained),
        TEST(activity_is_penalised_per_sample),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
