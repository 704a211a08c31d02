/* Stateful recurrent layers in training: states carry over from batch to batch, over accumulated
 * ones too, until they are reset; a batch of another size and logical shards are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

#define N 24
#define B 4
#define T 3

static float x[N][T][2], y[N];

struct world {
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
};

static struct world open_world(const char *layer, const char *attrs, weft_compile_opts o)
{
    struct world w;
    weft_sym s;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 2), &w.ctx), 0);
    assert_int_equal(weft_model_new(w.ctx, NULL, &w.m), 0);
    s = weft_input(w.m, "x", WEFT_F32, 2, (int64_t[]){T, 2});
    s = weft_apply(w.m, layer, attrs, s);
    weft_model_output(w.m, weft_apply(w.m, "Dense", "units=1 name=head", s));
    o.size = sizeof o;
    o.loss = "mse";
    if (weft_compile(w.m, &o, &w.t))
        fail_msg("%s", weft_error());
    return w;
}

static void close_world(struct world *w)
{
    weft_trainer_free(w->t);
    weft_model_free(w->m);
    weft_ctx_free(w->ctx);
}

#define LSTM "units=3 stateful=true batch_size=4 name=rnn"

static weft_tensor rows_x(int first, int64_t n)
{
    return weft_view(WEFT_F32, x[first], 3, (int64_t[]){n, T, 2});
}

static weft_tensor rows_y(int first, int64_t n)
{
    return weft_view(WEFT_F32, y + first, 2, (int64_t[]){n, 1});
}

static void predict(struct world *w, int first, float *out)
{
    weft_tensor in = rows_x(first, B), v = {.data = NULL};

    if (weft_predict_on_batch(w->t, &in, &v))
        fail_msg("%s", weft_error());
    memcpy(out, v.data, B * sizeof *out);
}

static void states_go_on_until_they_are_reset(void **state)
{
    static const char *const kinds[] = {"LSTM", "GRU", "SimpleRNN"};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct world w = open_world(kinds[k], LSTM, (weft_compile_opts){.optimizer = "sgd"});
        float first[B], second[B], third[B];
        int n = -1;

        predict(&w, 0, first);
        predict(&w, 0, second);
        assert_memory_not_equal(first, second, sizeof first);
        assert_int_equal(weft_trainer_reset_states(w.t, &n), 0);
        assert_int_equal(n, k == 0 ? 2 : 1);
        predict(&w, 0, third);
        assert_memory_equal(first, third, sizeof first);
        close_world(&w);
    }
}

/* A trainer that has never run, and a model without states: nothing to do is not an error. */
static void a_reset_needs_nothing(void **state)
{
    struct world w = open_world("LSTM", LSTM, (weft_compile_opts){.optimizer = "sgd"});
    struct world plain = open_world("LSTM", "units=3", (weft_compile_opts){.optimizer = "sgd"});
    weft_callback cb;
    weft_data *d;
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2] = {rows_x(0, N), rows_y(0, N)};
    int n = -1;

    (void)state;
    assert_int_equal(weft_trainer_reset_states(w.t, NULL), 0);
    assert_int_equal(weft_trainer_reset_states(plain.t, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(weft_callback_new(plain.ctx, "ResetStates", &cb), 0);
    assert_int_equal(weft_data_new(plain.ctx, &d), 0);
    assert_int_equal(weft_fit(plain.t, d, weft_ds_tensors(d, 2, col, rows),
                              WEFT_OPTS(weft_fit_opts, .n_callbacks = 1, .callbacks = &cb), NULL),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "no stateful layer"));
    weft_callback_free(&cb);
    weft_data_free(d);
    close_world(&w);
    close_world(&plain);
}

/* Epochs over frozen weights log the same loss when each begins with zeros, and another when states
 * go on. */
static void a_callback_resets_them_each_epoch(void **state)
{
    double loss[2][2];

    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        struct world w =
            open_world("LSTM", LSTM, (weft_compile_opts){.optimizer = "sgd learning_rate=0"});
        weft_callback cb = {.size = sizeof cb};
        weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
        weft_tensor rows[2] = {rows_x(0, N), rows_y(0, N)};
        weft_history *h = NULL;
        weft_data *d;

        assert_int_equal(weft_data_new(w.ctx, &d), 0);
        assert_int_equal(weft_callback_new(w.ctx, "ResetStates", &cb), 0);
        if (weft_fit(w.t, d, weft_ds_tensors(d, 2, col, rows),
                     WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = B, .no_shuffle = true,
                               .n_callbacks = reset, .callbacks = &cb),
                     &h))
            fail_msg("%s", weft_error());
        loss[reset][0] = h->value[0];
        loss[reset][1] = h->value[h->n_names];
        weft_history_free(h);
        weft_callback_free(&cb);
        weft_data_free(d);
        close_world(&w);
    }
    assert_true(loss[1][0] == loss[1][1]);
    assert_true(loss[0][0] != loss[0][1]);
    assert_true(loss[0][0] == loss[1][0]);
}

/* Accumulated batches: the states of the second are those that the first left, and the update is
 * that of the average gradient. */
static void accumulated_batches_follow_each_other(void **state)
{
    struct world a = open_world(
        "LSTM", LSTM, (weft_compile_opts){.optimizer = "sgd learning_rate=0.2", .accumulate = 3});
    struct world b =
        open_world("LSTM", LSTM, (weft_compile_opts){.optimizer = "sgd learning_rate=0.2"});
    weft_grads *g[3] = {NULL, NULL, NULL}, *mean = NULL;

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            weft_tensor in = rows_x((3 * round + i) * B, B), out = rows_y((3 * round + i) * B, B);

            if (weft_train_on_batch(a.t, &in, &out, NULL, NULL) ||
                weft_trainer_gradients(b.t, &in, &out, NULL, &g[i], NULL))
                fail_msg("%s", weft_error());
        }
        assert_int_equal(weft_grads_average(3, (const weft_grads *const *)g, &mean), 0);
        assert_int_equal(weft_trainer_apply(b.t, mean, NULL), 0);
    }
    for (int i = 0; i < weft_trainer_n_weights(a.t); i++) {
        const char *name = weft_trainer_weight_name(a.t, i);
        weft_tensor u, v;

        assert_int_equal(weft_trainer_weight(a.t, name, &u), 0);
        assert_int_equal(weft_trainer_weight(b.t, name, &v), 0);
        for (int64_t k = 0; k < weft_tensor_count(&u); k++)
            if (!(fabsf(((float *)u.data)[k] - ((float *)v.data)[k]) < 1e-6f))
                fail_msg("'%s'[%d]: %g and %g", name, (int)k, (double)((float *)u.data)[k],
                         (double)((float *)v.data)[k]);
    }
    for (int i = 0; i < 3; i++)
        weft_grads_free(g[i]);
    weft_grads_free(mean);
    close_world(&a);
    close_world(&b);
}

static void what_cannot_be_is_refused(void **state)
{
    struct world w = open_world("LSTM", LSTM, (weft_compile_opts){.optimizer = "sgd"});
    weft_tensor in = rows_x(0, 3), label = rows_y(0, 3), v = {.data = NULL};
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2] = {rows_x(0, 10), rows_y(0, 10)};
    weft_trainer *t = NULL;
    weft_grads *g = NULL;
    weft_data *d;
    float before[B], after[B];

    (void)state;
    predict(&w, 0, before);
    assert_int_equal(weft_trainer_reset_states(w.t, NULL), 0);
    assert_int_equal(weft_predict_on_batch(w.t, &in, &v), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "'rnn' is stateful with batch_size=4"));
    assert_non_null(strstr(weft_error(), "3 samples"));
    assert_int_equal(weft_train_on_batch(w.t, &in, &label, NULL, NULL), WEFT_ESHAPE);
    assert_int_equal(weft_test_on_batch(w.t, &in, &label, NULL, NULL), WEFT_ESHAPE);
    assert_int_equal(weft_trainer_gradients(w.t, &in, &label, NULL, &g, NULL), WEFT_ESHAPE);
    assert_null(g);
    assert_int_equal(weft_data_new(w.ctx, &d), 0);
    assert_int_equal(weft_fit(w.t, d, weft_ds_tensors(d, 2, col, rows),
                              WEFT_OPTS(weft_fit_opts, .batch = B), NULL),
                     WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "drop_remainder"));
    weft_data_free(d);
    assert_int_equal(weft_trainer_reset_states(w.t, NULL), 0);
    predict(&w, 0, after);
    assert_memory_not_equal(before, after, sizeof before); /* two batches of four were trained on */
    assert_int_equal(
        weft_compile(w.m, WEFT_OPTS(weft_compile_opts, .loss = "mse", .shards = 2), &t),
        WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "'rnn' is stateful"));
    assert_null(t);
    close_world(&w);
}

static int set_up(void **state)
{
    (void)state;
    srand(4);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < T; k++)
            for (int c = 0; c < 2; c++)
                x[i][k][c] = (float)rand() / (float)RAND_MAX * 2 - 1;
        y[i] = (float)rand() / (float)RAND_MAX;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_go_on_until_they_are_reset),
        cmocka_unit_test(a_reset_needs_nothing),
        cmocka_unit_test(a_callback_resets_them_each_epoch),
        cmocka_unit_test(accumulated_batches_follow_each_other),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
