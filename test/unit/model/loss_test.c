/* Losses: names, arguments, what fits, masks, and the logits of a softmax. Numbers are in
 * test/golden. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "weft/weft.h"

struct rig {
    weft_ctx *ctx;
    weft_graph *g;
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    *state = r;
    return weft_ctx_new(NULL, &r->ctx) || weft_graph_new(r->ctx, &r->g);
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    weft_graph_free(r->g);
    weft_ctx_free(r->ctx);
    free(r);
    return 0;
}

static weft_val input(weft_graph *g, const char *name, weft_dtype t, int rank, int64_t a, int64_t b)
{
    return weft_placeholder(g, name, t, rank, (int64_t[]){a, b});
}

static bool said(const char *part)
{
    return strstr(weft_error(), part) != NULL;
}

static void every_row_has_a_name_and_builds(void **state)
{
    struct rig *r = *state;
    const char *name, *attrs, *doc;
    int n = 0;

    for (; wf_loss_at(n, &name, &attrs, &doc); n++) {
        bool sparse = !strncmp(name, "Sparse", 6) || !strncmp(name, "CategoricalGen", 14);
        weft_val y, p, v = WEFT_NIL;
        weft_graph *g;

        assert_true(*name && *doc && attrs);
        assert_int_equal(wf_loss_check(r->ctx, NULL, name), WEFT_OK);
        assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
        y = input(g, "y", WEFT_I32, sparse ? 1 : 2, WEFT_ANY, 4);
        p = input(g, "p", WEFT_F32, 2, WEFT_ANY, 4);
        assert_int_equal(wf_loss_build(NULL, g, name, y, p, &v), WEFT_OK);
        assert_true(v.id > 0);
        weft_graph_free(g);
    }
    assert_true(n >= 19);
    assert_false(wf_loss_at(-1, &name, &attrs, &doc));
}

static void names_are_found_in_every_form(void **state)
{
    static const char *const forms[] = {
        "mse",
        "MSE",
        "MeanSquaredError",
        "mean_squared_error",
        " mse ",
        "bce from_logits=true",
        "kld",
        "KLDivergence",
        "huber_loss delta=3",
        "logcosh",
        "SparseCategoricalCrossentropy ignore_class=255",
        "sparse_categorical_crossentropy ignore_class=[-1]",
        "crossentropy",
    };
    struct rig *r = *state;

    for (int i = 0; i < WF_COUNT(forms); i++)
        if (wf_loss_check(r->ctx, NULL, forms[i]))
            fail_msg("%s: %s", forms[i], weft_error());
}

static void wrong_names_and_arguments_are_told(void **state)
{
    struct rig *r = *state;

    assert_int_equal(wf_loss_check(r->ctx, NULL, "MeanSquareError"), WEFT_ENOENT);
    assert_true(said("'MeanSquareError'") && said("did you mean 'MeanSquaredError'"));
    assert_int_equal(wf_loss_check(r->ctx, NULL, "zzz"), WEFT_ENOENT);
    assert_false(said("did you mean"));
    assert_int_equal(wf_loss_check(r->ctx, NULL, ""), WEFT_ENOENT);
    assert_int_equal(wf_loss_check(r->ctx, NULL, NULL), WEFT_ENOENT);
    assert_int_equal(wf_loss_check(r->ctx, NULL, "huber dleta=2"), WEFT_ENOENT);
    assert_true(said("did you mean 'delta'"));
    assert_int_equal(wf_loss_check(r->ctx, NULL, "huber delta=much"), WEFT_EPARSE);
    assert_int_equal(wf_loss_check(r->ctx, NULL, "mse 3"), WEFT_EPARSE);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    struct rig *r = *state;
    weft_val y = input(r->g, "y", WEFT_F32, 2, WEFT_ANY, 3);
    weft_val p = input(r->g, "p", WEFT_F32, 2, WEFT_ANY, 4), v = WEFT_NIL;

    assert_int_equal(wf_loss_build(NULL, r->g, "mse", y, p, &v), WEFT_ESHAPE);
    assert_true(said("MeanSquaredError") && said("f32[?,3]") && said("f32[?,4]"));
    assert_int_equal(v.id, 0);
    assert_int_equal(weft_graph_status(r->g), WEFT_ESHAPE);
}

static void sparse_labels_of_a_wrong_rank_are_refused(void **state)
{
    struct rig *r = *state;
    weft_val y = input(r->g, "y", WEFT_I32, 2, WEFT_ANY, 3);
    weft_val p = input(r->g, "p", WEFT_F32, 2, WEFT_ANY, 4), v;

    assert_int_equal(wf_loss_build(NULL, r->g, "scce", y, p, &v), WEFT_ESHAPE);
}

static void crossentropy_is_the_one_that_fits(void **state)
{
    struct rig *r = *state;
    weft_val ids = input(r->g, "ids", WEFT_I64, 1, WEFT_ANY, 0);
    weft_val hot = input(r->g, "hot", WEFT_F32, 2, WEFT_ANY, 4);
    weft_val p = input(r->g, "p", WEFT_F32, 2, WEFT_ANY, 4), v;
    weft_val one = input(r->g, "one", WEFT_F32, 2, WEFT_ANY, 1);

    assert_int_equal(wf_loss_build(NULL, r->g, "crossentropy", ids, p, &v), WEFT_OK);
    assert_int_equal(wf_val_node(r->g, v)->op->id, WF_OP_sparse_softmax_xent);
    assert_int_equal(wf_loss_build(NULL, r->g, "ce from_logits=true", hot, p, &v), WEFT_OK);
    assert_int_equal(wf_val_node(r->g, v)->op->id, WF_OP_softmax_xent);
    assert_int_equal(wf_loss_build(NULL, r->g, "ce label_smoothing=0.1", ids, one, &v), WEFT_OK);
}

static void logits_behind_a_softmax_are_used(void **state)
{
    struct rig *r = *state;
    weft_val y = input(r->g, "y", WEFT_I64, 1, WEFT_ANY, 0);
    weft_val z = input(r->g, "z", WEFT_F32, 2, WEFT_ANY, 4), v = WEFT_NIL;

    assert_int_equal(wf_loss_build(NULL, r->g, "scce", y, weft_softmax(r->g, z, -1), &v), WEFT_OK);
    assert_int_equal(wf_val_node(r->g, v)->op->id, WF_OP_sparse_softmax_xent);
    assert_int_equal(wf_val_node(r->g, v)->in[0], z.id);
    /* a softmax along another axis is no distribution over classes */
    assert_int_equal(wf_loss_build(NULL, r->g, "scce", y, weft_softmax(r->g, z, 0), &v), WEFT_OK);
    assert_true(wf_val_node(r->g, v)->in[0] != z.id);
}

static void logits_behind_a_sigmoid_are_used(void **state)
{
    struct rig *r = *state;
    weft_val y = input(r->g, "y", WEFT_F32, 2, WEFT_ANY, 3);
    weft_val z = input(r->g, "z", WEFT_F32, 2, WEFT_ANY, 3), v = WEFT_NIL;
    bool fused = false;

    assert_int_equal(wf_loss_build(NULL, r->g, "bce", y, weft_sigmoid(r->g, z), &v), WEFT_OK);
    for (int64_t i = 0; i < r->g->n_nodes; i++)
        fused |= r->g->nodes[i].op->id == WF_OP_sigmoid_xent && r->g->nodes[i].in[0] == z.id;
    assert_true(fused);
}

/* Sum and count of values under a weight and a mask (NULL: none). */
static void reduce(struct rig *r, int rank, const int64_t *dim, float *values, weft_tensor *weight,
                   weft_tensor *mask, float *sum, float *count)
{
    weft_tensor feeds[3] = {weft_view(WEFT_F32, values, rank, dim)}, out[2] = {0};
    weft_val in[3], s, c;
    weft_graph *g;
    weft_fn *fn;
    int n = 1;

    assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
    in[0] = weft_placeholder(g, "v", WEFT_F32, rank, dim);
    if (weight) {
        feeds[n] = *weight;
        in[n++] = weft_placeholder(g, "w", weight->dtype, weight->rank, weight->dim);
    }
    if (mask) {
        feeds[n] = *mask;
        in[n++] = weft_placeholder(g, "m", mask->dtype, mask->rank, mask->dim);
    }
    if (wf_loss_reduce(g, in[0], weight ? in[1] : WEFT_NIL, mask ? in[n - 1] : WEFT_NIL, &s, &c))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = n, .feeds = in, .n_fetches = 2,
                                           .fetches = (weft_val[]){s, c}),
                                 &fn),
                     WEFT_OK);
    if (weft_fn_run(fn, feeds, out))
        fail_msg("%s", weft_error());
    *sum = *(float *)out[0].data;
    *count = *(float *)out[1].data;
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void weights_of_samples_reach_all_their_values(void **state)
{
    float v[6] = {1, 2, 3, 4, 5, 6}, w[2] = {1, 10}, sum, count;
    weft_tensor weight = weft_view(WEFT_F32, w, 1, (int64_t[]){2});

    reduce(*state, 2, (int64_t[]){2, 3}, v, &weight, NULL, &sum, &count);
    assert_true(sum == 6 + 150 && count == 6);
    weight = weft_view(WEFT_F32, w, 2, (int64_t[]){2, 1});
    reduce(*state, 1, (int64_t[]){2}, v, &weight, NULL, &sum, &count);
    assert_true(sum == 21 && count == 2);
}

static void what_is_masked_counts_for_nothing_not_even_a_nan(void **state)
{
    float v[6] = {1, NAN, 3, INFINITY, 5, 6}, sum, count;
    uint8_t m[6] = {1, 0, 1, 0, 1, 1}, none[6] = {0};
    weft_tensor mask = weft_view(WEFT_BOOL, m, 2, (int64_t[]){2, 3});

    reduce(*state, 2, (int64_t[]){2, 3}, v, NULL, &mask, &sum, &count);
    assert_true(sum == 15 && count == 4);
    mask = weft_view(WEFT_BOOL, none, 2, (int64_t[]){2, 3});
    reduce(*state, 2, (int64_t[]){2, 3}, v, NULL, &mask, &sum, &count);
    assert_true(sum == 0 && count == 0);
}

static void a_mask_of_steps_reaches_all_their_values(void **state)
{
    float v[12] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, sum, count;
    uint8_t m[6] = {1, 0, 0, 1, 1, 0};
    weft_tensor mask = weft_view(WEFT_BOOL, m, 2, (int64_t[]){2, 3});

    reduce(*state, 3, (int64_t[]){2, 3, 2}, v, NULL, &mask, &sum, &count);
    assert_true(sum == 2 + 8 && count == 6);
}

static void ignored_labels_make_a_mask(void **state)
{
    struct rig *r = *state;
    weft_val y = input(r->g, "y", WEFT_I64, 2, WEFT_ANY, 1);
    weft_val p = input(r->g, "p", WEFT_F32, 2, WEFT_ANY, 4), m = {7};

    assert_int_equal(wf_loss_mask(NULL, r->g, "scce", y, p, &m), WEFT_OK);
    assert_int_equal(m.id, 0);
    assert_int_equal(wf_loss_mask(NULL, r->g, "scce ignore_class=-1", y, p, &m), WEFT_OK);
    assert_int_equal(wf_val_type_of(r->g, m)->dtype, WEFT_BOOL);
    assert_int_equal(wf_val_type_of(r->g, m)->rank, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_row_has_a_name_and_builds),
        TEST(names_are_found_in_every_form),
        TEST(wrong_names_and_arguments_are_told),
        TEST(shapes_that_do_not_fit_are_refused),
        TEST(sparse_labels_of_a_wrong_rank_are_refused),
        TEST(crossentropy_is_the_one_that_fits),
        TEST(logits_behind_a_softmax_are_used),
        TEST(logits_behind_a_sigmoid_are_used),
        TEST(weights_of_samples_reach_all_their_values),
        TEST(what_is_masked_counts_for_nothing_not_even_a_nan),
        TEST(a_mask_of_steps_reaches_all_their_values),
        TEST(ignored_labels_make_a_mask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
