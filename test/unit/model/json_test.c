/* json_test.c - architectures as JSON: what is written reads back, custom kinds too; what does not
 * fit is named. */
#include "fixture.h"

#include "weft/ops.h"

/* y = x * factor, with a learned factor per feature: a layer as a user writes one. */
static weft_status build_scale(weft_layer_call *c)
{
    weft_val x = weft_lc_in(c, 0), s;
    int64_t n = weft_lc_dim(c, x, -1);

    if (weft_lc_float(c, "by") == 0)
        return weft_lc_fail(c, WEFT_EINVAL, "by must not be 0");
    s = weft_lc_weight(c, "factor", 1, &n, WEFT_OPTS(weft_weight_opts, .initializer = "ones"));
    s = weft_mul(weft_lc_graph(c), s, weft_scalar(weft_lc_graph(c), weft_lc_float(c, "by")));
    weft_lc_out(c, 0, weft_mul(weft_lc_graph(c), x, s));
    return WEFT_OK;
}

/* The wrapped layer on both halves of the batch's features: shared weights, then a second set. */
static weft_status build_twice(weft_layer_call *c)
{
    weft_val x = weft_lc_in(c, 0), a, b;
    weft_status st = weft_lc_inner(c, 0, 1, &x, NULL, 1, &a);

    if (!st)
        st = weft_lc_inner(c, weft_lc_bool(c, "shared") ? 0 : 1, 1, &x, NULL, 1, &b);
    if (st)
        return st;
    weft_lc_out(c, 0, weft_add(weft_lc_graph(c), a, b));
    return WEFT_OK;
}

static const weft_layer_kind scale = {sizeof scale,           "MyScale",   1,           1, "by:f=1",
                                      WEFT_LAYER_PASSES_MASK, build_scale, "x * factor"};
static const weft_layer_kind twice = {sizeof twice, "Twice",          1,           1,
                                      "shared:b=1", WEFT_LAYER_WRAPS, build_twice, "f(x) + g(x)"};

static char *json_of(const weft_model *m)
{
    char *text = NULL;

    if (weft_model_json(m, &text))
        fail_msg("%s", weft_error());
    return text;
}

/* Reads, writes and compares; the new model is returned. */
static weft_model *again(struct fixture *f, const weft_layer_kind *kind)
{
    char *text = json_of(f->m), *twin;
    weft_model *m = NULL;

    assert_int_equal(weft_model_new(f->ctx, NULL, &m), WEFT_OK);
    if (kind)
        assert_int_equal(weft_layer_register(m, kind), WEFT_OK);
    if (weft_model_read(m, text, (int64_t)strlen(text)))
        fail_msg("%s\n%s", weft_error(), text);
    twin = json_of(m);
    assert_string_equal(text, twin);
    weft_text_free(f->ctx, text);
    weft_text_free(f->ctx, twin);
    return m;
}

static void a_chain_reads_back(void **state)
{
    struct fixture *f = *state;
    weft_model *m;

    weft_input(f->m, "image", WEFT_F32, 3, (int64_t[]){8, WEFT_ANY, 1});
    weft_model_add(f->m, "Conv2D",
                   "filters=4 kernel_size=3 activation=leaky_relu(0.1) "
                   "kernel_initializer=random_normal(stddev=0.1) name=\"first\"");
    weft_model_add(f->m, "GlobalMaxPooling2D", NULL);
    weft_model_add(f->m, "Dense", "units=10 trainable=false kernel_regularizer=l2(0.5)");
    ok(f->m);
    m = again(f, NULL);
    assert_int_equal(weft_model_n_layers(m), 3);
    assert_int_equal(weft_model_n_outputs(m), 1);
    assert_string_equal(weft_layer_name(m, weft_model_layer_at(m, 0)), "first");
    assert_true(weft_layer_frozen(m, weft_model_layer_at(m, 2)));
    assert_int_equal(wf_model_n_weights(m), 4);
    assert_string_equal(wf_model_weight(m, 2)->regularizer, "l2(0.5)");
    weft_model_free(m);
}

static void several_inputs_outputs_and_shared_layers_read_back(void **state)
{
    struct fixture *f = *state;
    weft_sym a = vector(f->m, 4), b = weft_input(f->m, "ids", WEFT_F32, 1, (int64_t[]){4}), p, q;
    weft_layer shared = weft_layer_new(f->m, "Dense", "units=3");
    weft_model *m;

    p = weft_call(f->m, shared, a);
    q = weft_call(f->m, shared, b);
    weft_model_output(f->m, weft_apply_n(f->m, "Concatenate", NULL, 2, (weft_sym[]){p, q}));
    weft_model_output(f->m, p);
    ok(f->m);
    m = again(f, NULL);
    assert_int_equal(weft_model_n_inputs(m), 2);
    assert_int_equal(weft_model_n_outputs(m), 2);
    assert_string_equal(weft_sym_name(m, weft_model_output_at(m, 1)), "dense");
    assert_string_equal(weft_sym_name(m, weft_model_input_at(m, 1)), "ids");
    assert_int_equal(wf_model_n_weights(m), 2);
    weft_model_free(m);
}

static void a_custom_layer_reads_back_where_it_is_registered(void **state)
{
    struct fixture *f = *state;
    weft_model *m = NULL;
    char *text;

    assert_int_equal(weft_layer_register(f->m, &scale), WEFT_OK);
    vector(f->m, 3);
    weft_model_add(f->m, "MyScale", "by=2.5");
    weft_model_add(f->m, "Dense", "units=2");
    ok(f->m);
    assert_string_equal(weft_sym_name(f->m, weft_model_output_at(f->m, 0)), "dense");
    assert_string_equal(wf_model_weight(f->m, 0)->name, "my_scale/factor");
    weft_model_free(again(f, &scale));

    text = json_of(f->m);
    assert_int_equal(weft_model_parse(f->ctx, text, (int64_t)strlen(text), &m), WEFT_ENOENT);
    says("MyScale");
    says("weft_layer_register");
    assert_null(m);
    weft_text_free(f->ctx, text);
}

static void a_custom_layer_fails_in_its_own_name(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(weft_layer_register(f->m, &scale), WEFT_OK);
    vector(f->m, 3);
    weft_model_add(f->m, "MyScale", "by=0");
    fails_with(f->m, WEFT_EINVAL, "layer 'my_scale'", "by must not be 0", NULL);
}

static void kinds_are_registered_once_and_whole(void **state)
{
    struct fixture *f = *state;
    weft_layer_kind k = scale;

    k.size = 1;
    assert_int_equal(weft_layer_register(f->m, &k), WEFT_EINVAL);
    k = scale;
    k.build = NULL;
    assert_int_equal(weft_layer_register(f->m, &k), WEFT_EINVAL);
    k = scale;
    k.name = "Dense";
    assert_int_equal(weft_layer_register(f->m, &k), WEFT_EEXIST);
    assert_int_equal(weft_layer_register(f->m, &scale), WEFT_OK);
    assert_int_equal(weft_layer_register(f->m, &scale), WEFT_EEXIST);
}

static void wrapped_layers_share_or_copy_their_weights(void **state)
{
    struct fixture *f = *state;
    weft_sym x = vector(f->m, 4);
    weft_layer inner, outer;

    assert_int_equal(weft_layer_register(f->m, &twice), WEFT_OK);
    inner = weft_layer_new(f->m, "Dense", "units=2 use_bias=false");
    outer = weft_layer_wrap(f->m, "Twice", NULL, inner);
    weft_call(f->m, outer, x);
    ok(f->m);
    assert_int_equal(wf_model_n_weights(f->m), 1);
    assert_string_equal(wf_model_weight(f->m, 0)->name, "dense/kernel");
    inner = weft_layer_new(f->m, "Dense", "units=2 use_bias=false");
    outer = weft_layer_wrap(f->m, "Twice", "shared=false name=both", inner);
    weft_model_output(f->m, weft_call(f->m, outer, x));
    ok(f->m);
    assert_int_equal(wf_model_n_weights(f->m), 3);
    assert_string_equal(wf_model_weight(f->m, 1)->name, "dense_1/kernel");
    assert_string_equal(wf_model_weight(f->m, 2)->name, "dense_1/copy_1/kernel");
    weft_model_free(again(f, &twice));
    assert_int_equal(weft_model_freeze(f->m, "both", true), 1);
    assert_true(weft_layer_frozen(f->m, inner));
}

static void wrappers_are_made_around_something(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(weft_layer_register(f->m, &twice), WEFT_OK);
    weft_layer_new(f->m, "Twice", NULL);
    fails_with(f->m, WEFT_EINVAL, "weft_layer_wrap", NULL);
}

static void plain_layers_wrap_nothing(void **state)
{
    struct fixture *f = *state;

    weft_layer_wrap(f->m, "Dense", "units=2", weft_layer_new(f->m, "Dense", "units=2"));
    fails_with(f->m, WEFT_EINVAL, "cannot wrap", NULL);
}

/* ---- malformed ------------------------------------------------------------------------------- */

#define HEAD "{\"format\": \"weft-model\", \"version\": 1, \"name\": \"m\", "

static void malformed_text_is_refused(void **state)
{
    static const struct {
        const char *json;
        weft_status st;
        const char *word;
    } rows[] = {
        {"", WEFT_EPARSE, "line 1"},
        {"[]", WEFT_EPARSE, "not an object"},
        {"{\"format\": \"weft-model\", \"format\": 1}", WEFT_EPARSE, "duplicate"},
        {"{\"format\": \"onnx\"}", WEFT_EPARSE, "weft-model"},
        {"{\"format\": \"weft-model\", \"version\": 2}", WEFT_ENOSUP, "version 2"},
        {HEAD "\"layers\": [], \"nods\": [], \"outputs\": []}", WEFT_EPARSE,
         "did you mean 'nodes'"},
        {HEAD "\"layers\": {}, \"nodes\": [], \"outputs\": []}", WEFT_EPARSE,
         "'layers' must be a list"},
        {HEAD "\"layers\": [{\"name\": \"a\", \"kind\": \"Dense\", \"attrs\": 3}], \"nodes\": [], "
              "\"outputs\": []}",
         WEFT_EPARSE, "'attrs' must be a string"},
        {HEAD
         "\"layers\": [{\"name\": \"a\", \"kind\": \"Dens\", \"attrs\": \"\"}], \"nodes\": [], "
         "\"outputs\": []}",
         WEFT_ENOENT, "did you mean 'Dense'"},
        {HEAD
         "\"layers\": [{\"name\": \"a\", \"kind\": \"Dense\", \"attrs\": \"units=3 name=b\"}], "
         "\"nodes\": [], \"outputs\": []}",
         WEFT_EPARSE, "given twice"},
        {HEAD "\"layers\": [], \"nodes\": [{\"input\": \"x\", \"dtype\": \"f33\", \"dim\": [2]}], "
              "\"outputs\": []}",
         WEFT_EPARSE, "input 'x'"},
        {HEAD "\"layers\": [], \"nodes\": [{\"input\": \"x\", \"dtype\": \"f32\", \"dim\": [-2]}], "
              "\"outputs\": []}",
         WEFT_EPARSE, "input 'x'"},
        {HEAD "\"layers\": [], \"nodes\": [{\"layer\": \"x\", \"in\": [[0, 0]]}], \"outputs\": []}",
         WEFT_ENOENT, "no layer 'x'"},
        {HEAD "\"layers\": [{\"name\": \"a\", \"kind\": \"Flatten\", \"attrs\": \"\"}], "
              "\"nodes\": [{\"layer\": \"a\", \"in\": [[0, 0]]}], \"outputs\": []}",
         WEFT_ERANGE, "[0, 0]"},
        {HEAD "\"layers\": [], \"nodes\": [{\"input\": \"x\", \"dtype\": \"f32\", \"dim\": [2]}], "
              "\"outputs\": [[0, 1]]}",
         WEFT_ERANGE, "outputs"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_model *m = NULL;
        weft_status st = weft_model_parse(f->ctx, rows[i].json, (int64_t)strlen(rows[i].json), &m);

        if (st != rows[i].st || !strstr(weft_error(), rows[i].word))
            fail_msg("%s: %s: %s", rows[i].json, weft_status_name(st), weft_error());
        assert_null(m);
    }
}

static void a_model_is_read_into_an_empty_one(void **state)
{
    struct fixture *f = *state;

    vector(f->m, 3);
    assert_int_equal(weft_model_read(f->m, "{}", 2), WEFT_ESTATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_chain_reads_back),
        TEST(several_inputs_outputs_and_shared_layers_read_back),
        TEST(a_custom_layer_reads_back_where_it_is_registered),
        TEST(a_custom_layer_fails_in_its_own_name),
        TEST(kinds_are_registered_once_and_whole),
        TEST(wrapped_layers_share_or_copy_their_weights),
        TEST(wrappers_are_made_around_something),
        TEST(plain_layers_wrap_nothing),
        TEST(malformed_text_is_refused),
        TEST(a_model_is_read_into_an_empty_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
