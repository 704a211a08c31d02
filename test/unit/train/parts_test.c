/* Steps in parts: logical shards and accumulated batches give what whole steps give, regularizers
 * count once, moving averages are merged, and results depend only on the number of parts. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

#define N 120
#define D 6

static float x[N][D], y[N];

struct setting {
    int threads, shards, accumulate;
    int64_t batch;
    const char *layer; /* between the two dense ones */
    const char *dense; /* arguments */
};

/* Trains two epochs; final kernel, moving mean (if any) and loss. */
static double train(struct setting s, float *kernel, float *mean)
{
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_history *h = NULL;
    weft_tensor w;
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                           weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1})};
    weft_sym v;
    double loss;
    weft_status st;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = s.threads, .seed = 2), &ctx),
                     0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    v = weft_apply(m, "Dense", s.dense, v);
    if (s.layer)
        v = weft_apply(m, s.layer, strcmp(s.layer, "Dropout") ? "name=middle" : "rate=0.3", v);
    v = weft_apply(m, "Dense", "units=1", v);
    weft_model_output(m, v);
    assert_int_equal(
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0.05",
                               .loss = "mse", .shards = s.shards, .accumulate = s.accumulate),
                     &t),
        0);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    st = weft_fit(t, d, weft_ds_tensors(d, 2, col, rows),
                  WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = s.batch, .no_shuffle = true), &h);
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, 0);
    loss = h->value[h->n_names];
    assert_int_equal(weft_trainer_weight(t, "dense/kernel", &w), 0);
    memcpy(kernel, w.data, (size_t)weft_tensor_bytes(&w));
    if (mean) {
        assert_int_equal(weft_trainer_weight(t, "middle/moving_mean", &w), 0);
        memcpy(mean, w.data, (size_t)weft_tensor_bytes(&w));
    }
    weft_history_free(h);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return loss;
}

static double distance(const float *a, const float *b, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

#define PLAIN "units=5 activation=tanh"

static void shards_give_what_a_whole_step_gives(void **state)
{
    static const int shards[] = {2, 3, 7, 40};
    float whole[D * 5], parts[D * 5];
    double loss = train((struct setting){2, 1, 1, 30, NULL, PLAIN}, whole, NULL);

    (void)state;
    for (int i = 0; i < 4; i++) { /* more shards than samples: some are empty */
        double other = train((struct setting){2, shards[i], 1, 30, NULL, PLAIN}, parts, NULL);

        assert_true(distance(whole, parts, D * 5) < 2e-6);
        assert_float_equal(loss, other, 1e-5);
    }
}

static void the_bits_depend_on_the_shards_alone(void **state)
{
    float one[D * 5], more[D * 5];

    (void)state;
    train((struct setting){1, 4, 1, 30, NULL, PLAIN}, one, NULL);
    train((struct setting){3, 4, 1, 30, NULL, PLAIN}, more, NULL);
    assert_memory_equal(one, more, sizeof one);
}

static void accumulated_batches_give_what_a_large_one_gives(void **state)
{
    float whole[D * 5], parts[D * 5];

    (void)state;
    train((struct setting){2, 1, 1, 40, NULL, PLAIN}, whole, NULL);
    train((struct setting){2, 1, 4, 10, NULL, PLAIN}, parts, NULL);
    assert_true(distance(whole, parts, D * 5) < 2e-6);
}

static void regularizers_count_once(void **state)
{
    static const char *const l2 = "units=5 kernel_regularizer=l2(0.3)";
    float whole[D * 5], parts[D * 5], none[D * 5];

    (void)state;
    train((struct setting){2, 1, 1, 30, NULL, l2}, whole, NULL);
    train((struct setting){2, 4, 1, 30, NULL, l2}, parts, NULL);
    train((struct setting){2, 4, 1, 30, NULL, "units=5"}, none, NULL);
    assert_true(distance(whole, parts, D * 5) < 2e-6);
    assert_true(distance(none, parts, D * 5) > 1e-2);
}

static void dropout_differs_between_shards_and_repeats(void **state)
{
    float a[D * 5], b[D * 5];

    (void)state;
    train((struct setting){2, 4, 1, 30, "Dropout", "units=5 activation=relu"}, a, NULL);
    train((struct setting){1, 4, 1, 30, "Dropout", "units=5 activation=relu"}, b, NULL);
    assert_memory_equal(a, b, sizeof a);
}

/* With one batch of all samples in equal shards, the mean of the shards' means is the batch's
 * mean. */
static void moving_averages_are_merged(void **state)
{
    float k[D * 5], whole[5], parts[5];

    (void)state;
    train((struct setting){2, 1, 1, N, "BatchNormalization", "units=5"}, k, whole);
    train((struct setting){2, 4, 1, N, "BatchNormalization", "units=5"}, k, parts);
    assert_true(distance(whole, parts, 5) < 1e-3); /* the second step's weights differ a little */
    assert_true(fabs((double)parts[0]) + fabs((double)parts[1]) > 1e-4);
}

static int set_up(void **state)
{
    (void)state;
    srand(5);
    for (int i = 0; i < N; i++) {
        y[i] = 0.2f;
        for (int k = 0; k < D; k++) {
            x[i][k] = (float)rand() / (float)RAND_MAX;
            y[i] += x[i][k] * (float)(k - 2);
        }
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_give_what_a_whole_step_gives),
        cmocka_unit_test(the_bits_depend_on_the_shards_alone),
        cmocka_unit_test(accumulated_batches_give_what_a_large_one_gives),
        cmocka_unit_test(regularizers_count_once),
        cmocka_unit_test(dropout_differs_between_shards_and_repeats),
        cmocka_unit_test(moving_averages_are_merged),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
