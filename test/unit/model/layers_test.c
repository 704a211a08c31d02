/* layers_test.c - what golden numbers do not cover: training with randomness, frozen statistics,
 * masks on their way, state that comes from outside, arguments that make no sense, initializers. */
#include <math.h>
#include <stdio.h>

#include "fixture.h"

#include "weft/fn.h"
#include "weft/ops.h"

/* ---- running --------------------------------------------------------------------------------- */

struct run {
    struct wf_built built;
    weft_fn *fn;
    weft_tensor out[4];
};

/* The model in a graph of its own, run once on feeds. Its outputs and masks (as f32) are
 * fetched. */
static void run(struct fixture *f, bool training, const weft_tensor *feeds, struct run *r)
{
    weft_val fetch[4];
    int n = 0;

    memset(r, 0, sizeof *r);
    ok(f->m);
    if (wf_model_build(f->m, f->g, training, &f->arena, &r->built))
        fail_msg("%s", weft_error());
    fetch[n++] = r->built.out[0];
    if (r->built.out_mask[0].id)
        fetch[n++] = weft_cast(f->g, r->built.out_mask[0], WEFT_F32);
    if (weft_fn_new(f->g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = r->built.n_in, .feeds = r->built.in,
                              .n_fetches = n, .fetches = fetch, .n_updates = r->built.n_updates,
                              .updates = r->built.update),
                    &r->fn) ||
        weft_fn_run(r->fn, feeds, r->out))
        fail_msg("%s", weft_error());
}

static const float *data_of(const struct run *r)
{
    return r->out[0].data;
}

/* ---- noise ----------------------------------------------------------------------------------- */

enum { BATCH = 50, STEPS = 20, CHANNELS = 10, COUNT = BATCH * STEPS * CHANNELS };

static weft_tensor ones(float *x)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    return weft_view(WEFT_F32, x, 3, (int64_t[]){BATCH, STEPS, CHANNELS});
}

static void noisy(struct fixture *f, const char *kind, const char *attrs, struct run *r)
{
    static float x[COUNT];
    weft_tensor feed = ones(x);

    weft_input(f->m, "x", WEFT_F32, 2, (int64_t[]){STEPS, CHANNELS});
    weft_model_add(f->m, kind, attrs);
    run(f, true, &feed, r);
}

static void moments(const float *x, double *mean, double *variance)
{
    double s = 0, q = 0;

    for (int i = 0; i < COUNT; i++) {
        s += x[i];
        q += (double)x[i] * x[i];
    }
    *mean = s / COUNT;
    *variance = q / COUNT - *mean * *mean;
}

static void dropout_drops_and_scales(void **state)
{
    struct run r;
    int n_dropped = 0;

    noisy(*state, "Dropout", "rate=0.25", &r);
    for (int i = 0; i < COUNT; i++) {
        float v = data_of(&r)[i];

        assert_true(v == 0 || fabsf(v - 1 / 0.75f) < 1e-6f);
        n_dropped += v == 0;
    }
    assert_true(abs(n_dropped - COUNT / 4) < 300);
    weft_fn_free(r.fn);
}

static void spatial_dropout_drops_whole_channels(void **state)
{
    struct run r;
    int n_dropped = 0;

    noisy(*state, "SpatialDropout1D", "rate=0.5", &r);
    for (int b = 0; b < BATCH; b++)
        for (int c = 0; c < CHANNELS; c++) {
            float first = data_of(&r)[b * STEPS * CHANNELS + c];

            n_dropped += first == 0;
            for (int t = 1; t < STEPS; t++)
                assert_true(data_of(&r)[(b * STEPS + t) * CHANNELS + c] == first);
        }
    assert_in_range(n_dropped, 180, 320);
    weft_fn_free(r.fn);
}

static void noise_shape_shares_the_fate(void **state)
{
    struct run r;

    noisy(*state, "Dropout", "rate=0.5 noise_shape=[1,-1,10]", &r);
    for (int i = 0; i < STEPS * CHANNELS; i++)
        for (int b = 1; b < BATCH; b++)
            assert_true(data_of(&r)[b * STEPS * CHANNELS + i] == data_of(&r)[i]);
    weft_fn_free(r.fn);
}

static void gaussian_noise_has_its_moments(void **state)
{
    struct run r;
    double mean, variance;

    noisy(*state, "GaussianNoise", "stddev=0.5", &r);
    moments(data_of(&r), &mean, &variance);
    assert_true(fabs(mean - 1) < 0.03 && fabs(variance - 0.25) < 0.03);
    weft_fn_free(r.fn);
}

static void gaussian_dropout_has_its_moments(void **state)
{
    struct run r;
    double mean, variance;

    noisy(*state, "GaussianDropout", "rate=0.2", &r);
    moments(data_of(&r), &mean, &variance);
    assert_true(fabs(mean - 1) < 0.03 && fabs(variance - 0.25) < 0.03);
    weft_fn_free(r.fn);
}

static void alpha_dropout_has_two_values(void **state)
{
    struct run r;
    double low = -1.7580993408473766, a = 1 / sqrt(0.8 * (1 + 0.2 * low * low));
    int n_dropped = 0;

    noisy(*state, "AlphaDropout", "rate=0.2", &r);
    for (int i = 0; i < COUNT; i++) {
        double v = data_of(&r)[i], kept = a * 1 - a * low * 0.2, dropped = a * low - a * low * 0.2;

        assert_true(fabs(v - kept) < 1e-5 || fabs(v - dropped) < 1e-5);
        n_dropped += v < 0;
    }
    assert_true(abs(n_dropped - COUNT / 5) < 300);
    weft_fn_free(r.fn);
}

static void a_frozen_dropout_still_drops(void **state)
{
    struct run r;
    int n_dropped = 0;

    noisy(*state, "Dropout", "rate=0.5 trainable=false", &r);
    for (int i = 0; i < COUNT; i++)
        n_dropped += data_of(&r)[i] == 0;
    assert_true(n_dropped > COUNT / 3);
    weft_fn_free(r.fn);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void a_frozen_batch_norm_keeps_its_averages(void **state)
{
    struct fixture *f = *state;
    float x[] = {1, 2, 3, 4};
    weft_tensor feed = weft_view(WEFT_F32, x, 2, (int64_t[]){4, 1}), t;
    struct run r;

    vector(f->m, 1);
    weft_model_add(f->m, "BatchNormalization", "epsilon=0");
    assert_int_equal(weft_model_freeze(f->m, "*", true), 1);
    run(f, true, &feed, &r);
    assert_int_equal(r.built.n_updates, 0);
    for (int i = 0; i < 4; i++) /* by the moving averages, which are 0 and 1 */
        assert_true(data_of(&r)[i] == x[i]);
    assert_int_equal(weft_fn_view(r.fn, "batch_normalization/moving_mean", &t), WEFT_OK);
    assert_true(*(float *)t.data == 0);
    weft_fn_free(r.fn);
}

static void batch_norm_moves_its_averages(void **state)
{
    struct fixture *f = *state;
    float x[] = {1, 2, 3, 4};
    weft_tensor feed = weft_view(WEFT_F32, x, 2, (int64_t[]){4, 1}), t;
    struct run r;

    vector(f->m, 1);
    weft_model_add(f->m, "BatchNormalization", "momentum=0.5");
    run(f, true, &feed, &r);
    assert_int_equal(r.built.n_updates, 2);
    assert_int_equal(weft_fn_view(r.fn, "batch_normalization/moving_mean", &t), WEFT_OK);
    assert_float_equal(*(float *)t.data, 1.25f, 1e-6f);
    assert_int_equal(weft_fn_view(r.fn, "batch_normalization/moving_variance", &t), WEFT_OK);
    assert_float_equal(*(float *)t.data, 0.5f + 0.625f, 1e-6f); /* biased */
    weft_fn_free(r.fn);
}

static void normalization_may_keep_its_statistics_as_state(void **state)
{
    struct fixture *f = *state;
    float x[] = {3, 8}, mean[] = {1, 2}, variance[] = {4, 9};
    weft_tensor feed = weft_view(WEFT_F32, x, 2, (int64_t[]){1, 2}), out = {.data = NULL};
    weft_tensor m = weft_view(WEFT_F32, mean, 1, (int64_t[]){2});
    weft_tensor v = weft_view(WEFT_F32, variance, 1, (int64_t[]){2});
    struct run r;

    vector(f->m, 2);
    weft_model_add(f->m, "Normalization", NULL);
    run(f, false, &feed, &r);
    assert_true(wf_model_weight(f->m, 0)->state);
    assert_true(data_of(&r)[0] == 3 && data_of(&r)[1] == 8);
    assert_int_equal(weft_fn_set(r.fn, "normalization/mean", &m), WEFT_OK);
    assert_int_equal(weft_fn_set(r.fn, "normalization/variance", &v), WEFT_OK);
    assert_int_equal(weft_fn_run(r.fn, &feed, &out), WEFT_OK);
    assert_true(((float *)out.data)[0] == 1 && ((float *)out.data)[1] == 2);
    weft_fn_free(r.fn);
}

static void bytes_are_rescaled_to_numbers(void **state)
{
    struct fixture *f = *state;
    uint8_t x[] = {0, 51, 255};
    weft_tensor feed = weft_view(WEFT_U8, x, 2, (int64_t[]){1, 3});
    struct run r;

    weft_input(f->m, "x", WEFT_U8, 1, (int64_t[]){3});
    weft_model_add(f->m, "Rescaling", "scale=0.00392156862745098");
    run(f, false, &feed, &r);
    assert_float_equal(data_of(&r)[1], 0.2f, 1e-6f);
    assert_float_equal(data_of(&r)[2], 1.0f, 1e-6f);
    weft_fn_free(r.fn);
}

static void products_take_bytes_as_numbers(void **state)
{
    struct fixture *f = *state;
    uint8_t x[] = {1, 2, 3, 4};
    weft_tensor feed = weft_view(WEFT_U8, x, 4, (int64_t[]){1, 2, 2, 1});
    struct run r;

    weft_input(f->m, "x", WEFT_U8, 3, (int64_t[]){2, 2, 1});
    weft_model_add(f->m, "Conv2D", "filters=1 kernel_size=2 kernel_initializer=ones");
    run(f, false, &feed, &r);
    assert_float_equal(data_of(&r)[0], 10.0f, 1e-6f);
    weft_fn_free(r.fn);
}

static void sparsemax_sums_to_one_and_has_zeros(void **state)
{
    struct fixture *f = *state;
    float x[] = {0.1f, 1.1f, 0.9f, -3, 2, 2, 2, 2};
    const float want[] = {0, 0.6f, 0.4f, 0, 0.25f, 0.25f, 0.25f, 0.25f};
    weft_tensor feed = weft_view(WEFT_F32, x, 2, (int64_t[]){2, 4});
    struct run r;

    vector(f->m, 4);
    weft_model_add(f->m, "Activation", "activation=sparsemax");
    run(f, false, &feed, &r);
    for (int i = 0; i < 8; i++)
        assert_float_equal(data_of(&r)[i], want[i], 1e-6f);
    weft_fn_free(r.fn);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* A mask: true where the first feature is not 0. */
static weft_status build_mask(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), first = weft_slice_axis(g, x, -1, 0, 1);

    first = weft_squeeze(g, first, 1, (int64_t[]){-1});
    weft_lc_out(c, 0, x);
    weft_lc_out_mask(c, 0, weft_ne(g, first, weft_zeros_like(g, first)));
    return WEFT_OK;
}

static const weft_layer_kind masks = {sizeof masks,          "Masks",    1,      1, "",
                                      WEFT_LAYER_TAKES_MASK, build_mask, "masks"};

/* [2, 3, 2]: step 2 of the first sample and step 1 of the second are empty. */
static float steps_a[] = {1, 2, 3, 4, 0, 0, 5, 6, 0, 0, 7, 8};
/* Step 1 of both are empty. */
static float steps_b[] = {1, 2, 0, 0, 5, 6, 1, 2, 0, 0, 5, 6};

static weft_sym masked_input(struct fixture *f, const char *name)
{
    return weft_apply(f->m, "Masks", NULL, weft_input(f->m, name, WEFT_F32, 2, (int64_t[]){3, 2}));
}

static void expect_mask(struct fixture *f, const weft_tensor *feeds, const float *want, int n)
{
    struct run r;

    run(f, false, feeds, &r);
    if (!want) {
        assert_int_equal(r.built.out_mask[0].id, 0);
    } else {
        assert_true(r.built.out_mask[0].id > 0);
        assert_int_equal(weft_tensor_count(&r.out[1]), n);
        for (int i = 0; i < n; i++)
            assert_true(((float *)r.out[1].data)[i] == want[i]);
    }
    weft_fn_free(r.fn);
}

static weft_tensor feeds_ab[2];

static int setup_masks(void **state)
{
    struct fixture *f;

    setup(state);
    f = *state;
    feeds_ab[0] = weft_view(WEFT_F32, steps_a, 3, (int64_t[]){2, 3, 2});
    feeds_ab[1] = weft_view(WEFT_F32, steps_b, 3, (int64_t[]){2, 3, 2});
    return weft_layer_register(f->m, &masks);
}

static void masks_pass_layers_that_pass_them(void **state)
{
    struct fixture *f = *state;
    weft_sym x = masked_input(f, "a");

    x = weft_apply(f->m, "Dense", "units=4 activation=relu", x);
    x = weft_apply(f->m, "LayerNormalization", NULL, x);
    weft_model_output(f->m, weft_apply(f->m, "Dropout", "rate=0.5", x));
    expect_mask(f, feeds_ab, (float[]){1, 1, 0, 1, 0, 1}, 6);
}

static void masks_end_at_layers_that_know_none(void **state)
{
    struct fixture *f = *state;

    weft_model_output(f->m,
                      weft_apply(f->m, "Conv1D", "filters=2 kernel_size=1", masked_input(f, "a")));
    expect_mask(f, feeds_ab, NULL, 0);
}

static void merged_masks_are_united(void **state)
{
    struct fixture *f = *state;
    weft_sym x[] = {masked_input(f, "a"), masked_input(f, "b")};

    weft_model_output(f->m, weft_apply_n(f->m, "Add", NULL, 2, x));
    expect_mask(f, feeds_ab, (float[]){1, 1, 1, 1, 0, 1}, 6);
}

static void a_merge_with_an_unmasked_value_is_unmasked(void **state)
{
    struct fixture *f = *state;
    weft_sym x[] = {masked_input(f, "a"), weft_input(f->m, "b", WEFT_F32, 2, (int64_t[]){3, 2})};

    weft_model_output(f->m, weft_apply_n(f->m, "Add", NULL, 2, x));
    expect_mask(f, feeds_ab, NULL, 0);
}

static void concatenated_masks_are_joined(void **state)
{
    struct fixture *f = *state;
    weft_sym x[] = {masked_input(f, "a"), weft_input(f->m, "b", WEFT_F32, 2, (int64_t[]){3, 2})};

    weft_model_output(f->m, weft_apply_n(f->m, "Concatenate", "axis=1", 2, x));
    expect_mask(f, feeds_ab, (float[]){1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1}, 12);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void arguments_that_make_no_sense_are_named(void **state)
{
    static const struct {
        int rank;
        const char *kind, *attrs;
        const char *word;
    } rows[] = {
        {3, "Conv2D", "filters=0 kernel_size=3", "filters must be positive"},
        {3, "Conv2D", "filters=1 kernel_size=[1,2,3]", "kernel_size needs one number or 2, got 3"},
        {3, "Conv2D", "filters=1 kernel_size=3 padding=full",
         "padding 'full' is not one of valid, same"},
        {3, "Conv2D", "filters=1 kernel_size=3 padding=causal", "not one of valid, same"},
        {3, "Conv2D", "filters=1 kernel_size=3 data_format=channels_first",
         "channels must be last"},
        {3, "Conv2D", "filters=3 kernel_size=3 groups=2", "multiples of 2 groups"},
        {3, "Conv2D", "filters=3 kernel_size=9", "conv"},
        {2, "Conv2D", "filters=3 kernel_size=3", "needs an input of rank 4"},
        {3, "Conv2DTranspose", "filters=1 kernel_size=3 output_padding=1", "less than the strides"},
        {3, "MaxPooling2D", "pool_size=0", "pool_size must be positive"},
        {3, "MaxPooling2D", "strides=-1", "strides must be positive"},
        {3, "AdaptiveMaxPooling2D", "output_size=1000", "1000 windows"},
        {2, "Dropout", "rate=1.5", "between 0 and 1"},
        {2, "Dropout", "rate=0.5 noise_shape=[1]", "noise_shape needs 3 numbers"},
        {2, "GaussianNoise", "stddev=2", "between 0 and 1"},
        {2, "Reshape", "target_shape=[5,-1]", "do not fit"},
        {2, "Reshape", "target_shape=[-1,-1]", "size -1"},
        {2, "Permute", "dims=[1,1]", "in some order"},
        {2, "RepeatVector", "n=2", "needs an input of rank 2"},
        {2, "Cropping1D", "cropping=4", "nothing is left"},
        {3, "ZeroPadding2D", "padding=[1,2,3]", "needs 1, 2 or 4 numbers"},
        {3, "UpSampling2D", "interpolation=cubic", "not one of nearest, bilinear"},
        {2, "GroupNormalization", "groups=5", "cannot be divided into 5 groups"},
        {2, "LayerNormalization", "axis=7", "axis 7 does not exist"},
        {2, "BatchNormalization", "axis=-4", "axis -4 does not exist"},
        {2, "Add", "axis=1", "has no attribute 'axis'"},
        {2, "Normalization", "mean=1", "given together"},
        {2, "Rescaling", "scale=[1,2]", "one per channel"},
        {2, "EinsumDense", "equation=abc output_shape=3", "does not have the form"},
        {2, "EinsumDense", "equation=abc,cd->abd output_shape=[-1,-1]", "size of 'd'"},
        {2, "PReLU", "shared_axes=0", "batch axis is always shared"},
        {2, "ReLU", "max_value=-1", "must not be negative"},
        {2, "Activation", "activation=relu(1,2,3,4)", "takes 3 arguments"},
        {2, "Activation", "activation=relu(slope=1)", "has no attribute 'slope'"},
        {2, "Dense", "units=2 kernel_initializer=glorot", "no initializer 'glorot'"},
        {2, "Dense", "units=2 kernel_initializer=variance_scaling(1,fan)", "fan_avg"},
        {2, "Dense", "units=2 kernel_regularizer=l3", "no regularizer 'l3'"},
        {2, "Dense", "units=2 kernel_constraint=max_nrm", "did you mean 'max_norm'"},
        {2, "Dense", "units=2 activity_regularizer=l3", "no regularizer 'l3'"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_model *m;

        assert_int_equal(weft_model_new(f->ctx, NULL, &m), WEFT_OK);
        weft_apply(m, rows[i].kind, rows[i].attrs,
                   weft_input(m, "x", WEFT_F32, rows[i].rank, (int64_t[]){4, 4, 4}));
        if (!weft_model_status(m) || !strstr(weft_error(), rows[i].word))
            fail_msg("%s %s: '%s' is not in '%s'", rows[i].kind, rows[i].attrs, rows[i].word,
                     weft_model_status(m) ? weft_error() : "");
        weft_model_free(m);
    }
}

/* ---- initializers ---------------------------------------------------------------------------- */

static void initializers_have_their_moments(void **state)
{
    static const struct {
        const char *word;
        double mean, deviation;
    } rows[] = {
        {"zeros", 0, 0},
        {"Ones", 1, 0},
        {"constant(0.5)", 0.5, 0},
        {"uniform", 0, 0.05 / 1.7320508},
        {"random_uniform(minval=0,maxval=1)", 0.5, 1 / 3.4641016},
        {"RandomNormal(1,0.1)", 1, 0.1},
        {"truncated_normal(stddev=1)", 0, 0.87962566},
        {"glorot_uniform", 0, 0.08164966}, /* sqrt(2 / (100 + 200)) */
        {"he_normal", 0, 0.14142136},
        {"LecunUniform", 0, 0.1},
        {"variance_scaling(2,fan_out,untruncated_normal)", 0, 0.1},
        {"variance_scaling(scale=3,mode=fan_avg,distribution=uniform)", 0, 0.14142136},
        {"VarianceScaling", 0, 0.1},
        {"orthogonal(2)", 0, 0.14142136}, /* rows of length 2 in 200 columns */
    };
    struct fixture *f = *state;
    char attrs[128];
    weft_sym x = vector(f->m, 100);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(attrs, sizeof attrs, "units=200 use_bias=false name=d%zu kernel_initializer=%s", i,
                 rows[i].word);
        weft_model_output(f->m, weft_apply(f->m, "Dense", attrs, x));
    }
    struct run r;
    weft_val sum = WEFT_NIL;

    ok(f->m);
    assert_int_equal(wf_model_build(f->m, f->g, false, &f->arena, &r.built), WEFT_OK);
    sum = weft_add_n(f->g, r.built.n_out, r.built.out);
    assert_int_equal(weft_fn_new(f->g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = r.built.in,
                                           .n_fetches = 1, .fetches = &sum),
                                 &r.fn),
                     WEFT_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_tensor t;
        double s = 0, q = 0;

        assert_int_equal(weft_fn_view(r.fn, wf_model_weight(f->m, (int)i)->name, &t), WEFT_OK);
        for (int k = 0; k < 20000; k++) {
            s += ((float *)t.data)[k];
            q += (double)((float *)t.data)[k] * ((float *)t.data)[k];
        }
        s /= 20000;
        q = sqrt(fmax(q / 20000 - s * s, 0));
        if (fabs(s - rows[i].mean) > 0.02 || fabs(q - rows[i].deviation) > 0.03 * (q + 1e-6))
            fail_msg("%s: mean %g, deviation %g", rows[i].word, s, q);
    }
    weft_fn_free(r.fn);
}

/* The fans of an einsum's kernel are what is summed over and what is not. */
static void einsum_kernels_have_fans_of_their_own(void **state)
{
    struct fixture *f = *state;
    struct run r;
    weft_tensor t;
    double q = 0;
    float x[20] = {0};
    weft_tensor feed = weft_view(WEFT_F32, x, 3, (int64_t[]){1, 1, 20});

    weft_input(f->m, "x", WEFT_F32, 2, (int64_t[]){1, 20});
    weft_model_add(f->m, "EinsumDense", "equation=abc,cde->abde output_shape=[-1,8,35]");
    run(f, false, &feed, &r);
    assert_int_equal(weft_fn_view(r.fn, "einsum_dense/kernel", &t), WEFT_OK);
    for (int k = 0; k < 5600; k++)
        q += (double)((float *)t.data)[k] * ((float *)t.data)[k] / 5600;
    assert_true(fabs(sqrt(q) - sqrt(2 / (20.0 + 280))) < 0.003);
    weft_fn_free(r.fn);
}

int main(void)
{
#define MASKS(name) cmocka_unit_test_setup_teardown(name, setup_masks, teardown)
    const struct CMUnitTest tests[] = {
        TEST(dropout_drops_and_scales),
        TEST(spatial_dropout_drops_whole_channels),
        TEST(noise_shape_shares_the_fate),
        TEST(gaussian_noise_has_its_moments),
        TEST(gaussian_dropout_has_its_moments),
        TEST(alpha_dropout_has_two_values),
        TEST(a_frozen_dropout_still_drops),
        TEST(a_frozen_batch_norm_keeps_its_averages),
        TEST(batch_norm_moves_its_averages),
        TEST(normalization_may_keep_its_statistics_as_state),
        TEST(bytes_are_rescaled_to_numbers),
        TEST(products_take_bytes_as_numbers),
        TEST(sparsemax_sums_to_one_and_has_zeros),
        MASKS(masks_pass_layers_that_pass_them),
        MASKS(masks_end_at_layers_that_know_none),
        MASKS(merged_masks_are_united),
        MASKS(a_merge_with_an_unmasked_value_is_unmasked),
        MASKS(concatenated_masks_are_joined),
        TEST(arguments_that_make_no_sense_are_named),
        TEST(initializers_have_their_moments),
        TEST(einsum_kernels_have_fans_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
