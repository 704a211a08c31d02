/* What a step in parts has to get right: denominators under masks and weights, rows that were
 * looked up, penalties, class weights, several outputs, clipping. Each case is trained whole and in
 * parts, and must end at the same weights and the same logged loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/ckpt_sample.h"
#include "weft/weft.h"

#define N 24
#define T 6

static int32_t ids[N][T], next_id[N][T], class_of[N];
static float target[N], weight[N];

typedef weft_sym build_fn(weft_model *m, weft_sym x);

struct test {
    const char *name;
    build_fn *build;
    const char *loss, *metrics, *optimizer;
    int n_out;
    const double *loss_weights;
    bool weighted, classed; /* sample weights, class weights */
};

struct setting {
    int shards, accumulate;
    int64_t batch;
};

struct result {
    float w[4096];
    int64_t n;
    double loss[3], metric[3]; /* of each epoch */
};

/* ---- training -------------------------------------------------------------------------------- */

static int columns(const struct test *c, weft_column *col, weft_tensor *rows)
{
    int n = 0;

    col[n] = (weft_column){.name = "ids"};
    rows[n++] = weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T});
    col[n] = (weft_column){.name = "tokens", .role = WEFT_LABEL};
    rows[n++] = weft_view(WEFT_I32, next_id, 2, (int64_t[]){N, T});
    if (c->n_out == 0) { /* a class for each sample */
        col[n - 1].name = "classes";
        rows[n - 1] = weft_view(WEFT_I32, class_of, 1, (int64_t[]){N});
    }
    if (c->n_out == 2) {
        col[n] = (weft_column){.name = "value", .role = WEFT_LABEL};
        rows[n++] = weft_view(WEFT_F32, target, 2, (int64_t[]){N, 1});
    }
    if (c->weighted) {
        col[n] = (weft_column){.name = "w", .role = WEFT_WEIGHT};
        rows[n++] = weft_view(WEFT_F32, weight, 1, (int64_t[]){N});
    }
    return n;
}

static void keep(weft_trainer *t, const weft_history *h, struct result *r)
{
    r->n = 0;
    for (int i = 0; i < weft_trainer_n_weights(t); i++) {
        weft_tensor w;

        assert_int_equal(weft_trainer_weight(t, weft_trainer_weight_name(t, i), &w), 0);
        assert_true(r->n + weft_tensor_count(&w) <= 4096);
        memcpy(r->w + r->n, w.data, (size_t)weft_tensor_bytes(&w));
        r->n += weft_tensor_count(&w);
    }
    for (int e = 0; e < 3; e++) {
        r->loss[e] = h->value[e * h->n_names];
        r->metric[e] = h->value[e * h->n_names + h->n_names - 1];
    }
}

static void train(const struct test *c, struct setting s, struct result *r)
{
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_history *h = NULL;
    weft_column col[5];
    weft_tensor rows[5];
    int n = columns(c, col, rows);

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 3), &ctx), 0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    c->build(m, weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}));
    if (weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = c->optimizer, .loss = c->loss,
                               .metrics = c->metrics, .loss_weights = c->loss_weights,
                               .n_class_weights = c->classed ? 3 : 0,
                               .class_weights = (double[]){0.2, 1, 3}, .shards = s.shards,
                               .accumulate = s.accumulate),
                     &t))
        fail_msg("%s: %s", c->name, weft_error());
    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (weft_fit(t, d, weft_ds_tensors(d, n, col, rows),
                 WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = s.batch, .no_shuffle = true), &h))
        fail_msg("%s: %s", c->name, weft_error());
    keep(t, h, r);
    weft_history_free(h);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
}

/* ---- models ---------------------------------------------------------------------------------- */

static weft_sym out(weft_model *m, weft_sym x)
{
    weft_model_output(m, x);
    return x;
}

/* A value for each time step, masked. */
static weft_sym tagger(weft_model *m, weft_sym x)
{
    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5 mask_zero=true", x);
    x = weft_apply(m, "LSTM", "units=6 return_sequences=true", x);
    return out(m, weft_apply(m, "Dense", "units=12 name=tokens", x));
}

/* A class for each sample; the mask ends in the LSTM. */
static weft_sym reader(weft_model *m, weft_sym x)
{
    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5 mask_zero=true", x);
    x = weft_apply(m, "LSTM", "units=6", x);
    return out(m, weft_apply(m, "Dense", "units=3 name=classes", x));
}

/* A masked output and one that has no mask. */
static weft_sym both(weft_model *m, weft_sym x)
{
    weft_sym y;

    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5 mask_zero=true", x);
    x = weft_apply(m, "LSTM", "units=6 return_sequences=true", x);
    out(m, weft_apply(m, "Dense", "units=12 name=tokens", x));
    y = weft_apply(m, "LSTM", "units=3", x);
    return out(m, weft_apply(m, "Dense", "units=1 name=value kernel_regularizer=l2(0.1)", y));
}

static weft_sym penalised(weft_model *m, weft_sym x)
{
    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5 embeddings_regularizer=l2(0.02)", x);
    x = weft_apply(m, "Flatten", NULL, x);
    x = weft_apply(m, "Dense",
                   "units=6 activation=tanh kernel_regularizer=l1_l2(0.01,0.02) "
                   "activity_regularizer=l2(0.1)",
                   x);
    return out(m, weft_apply(m, "Dense", "units=3 name=classes bias_regularizer=l2(0.3)", x));
}

static weft_sym table(weft_model *m, weft_sym x)
{
    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5", x);
    x = weft_apply(m, "Flatten", NULL, x);
    return out(m, weft_apply(m, "Dense", "units=3 name=classes", x));
}

/* The same table with a gradient that is dense: a penalty of next to nothing. */
static weft_sym dense_table(weft_model *m, weft_sym x)
{
    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5 embeddings_regularizer=l2(1e-20)", x);
    x = weft_apply(m, "Flatten", NULL, x);
    return out(m, weft_apply(m, "Dense", "units=3 name=classes", x));
}

#define XENT "sparse_categorical_crossentropy from_logits=true"
#define SGD "sgd learning_rate=0.3 momentum=0.5"

static const struct test tests_of_parts[] = {
    {"masked", tagger, XENT, "accuracy", SGD, .n_out = 1},
    {"masked, weighted", tagger, XENT, "accuracy", SGD, .n_out = 1, .weighted = true},
    {"masked, ignored", tagger, XENT " ignore_class=4", "accuracy", SGD, .n_out = 1},
    {"weighted", reader, XENT, "accuracy", SGD, .weighted = true},
    {"class weights", reader, XENT, "accuracy", SGD, .classed = true},
    {"class and sample weights", reader, XENT, "accuracy", SGD, .weighted = true, .classed = true},
    {"two outputs", both, XENT "; mse", NULL, SGD, .n_out = 2,
     .loss_weights = (const double[]){0.7, 2}},
    {"two outputs, weighted", both, XENT "; mse", NULL, SGD, .n_out = 2, .weighted = true},
    {"penalties", penalised, XENT, "accuracy", SGD, .n_out = 0},
    {"rows", table, XENT, "accuracy", SGD, .n_out = 0},
    {"rows, clipped", table, XENT, "accuracy", "sgd learning_rate=1 clipnorm=0.05", .n_out = 0},
    {"rows, clipped together", table, XENT, "accuracy", "sgd learning_rate=1 global_clipnorm=0.1",
     .n_out = 0},
    {"rows, momentum", table, XENT, "accuracy", "sgd learning_rate=0.1 momentum=0.9 nesterov=1",
     .n_out = 0},
    {"rows, adagrad", table, XENT, "accuracy", "adagrad learning_rate=0.1", .n_out = 0},
    {"masked, clipped", tagger, XENT, "accuracy", "sgd learning_rate=1 global_clipnorm=0.2",
     .n_out = 1},
};

static void compare(const struct test *c, struct setting s, const struct result *whole)
{
    static struct result parts;
    double most = 0;

    train(c, s, &parts);
    assert_int_equal(whole->n, parts.n);
    for (int64_t i = 0; i < whole->n; i++) {
        double d = fabs((double)whole->w[i] - (double)parts.w[i]);

        most = d <= most ? most : d;
    }
    if (!(most < 5e-6))
        fail_msg("%s, %d shards, %d batches: weights differ by %g", c->name, s.shards, s.accumulate,
                 most);
    for (int e = 0; e < 3 && s.accumulate == 1; e++)
        if (!(fabs(whole->loss[e] - parts.loss[e]) < 1e-5) ||
            !(fabs(whole->metric[e] - parts.metric[e]) < 1e-5))
            fail_msg("%s, %d shards: epoch %d logs %.8g and %.8g, not %.8g and %.8g", c->name,
                     s.shards, e, parts.loss[e], parts.metric[e], whole->loss[e], whole->metric[e]);
}

/* Shards of unequal sizes, and with unequal numbers of valid values in them; some have none. */
static void parts_end_where_whole_steps_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tests_of_parts / sizeof *tests_of_parts; i++) {
        static struct result whole;
        const struct test *c = &tests_of_parts[i];

        train(c, (struct setting){1, 1, 12}, &whole);
        for (int l = 2; l <= 5; l++)
            compare(c, (struct setting){l, 1, 12}, &whole);
        compare(c, (struct setting){12, 1, 12}, &whole);
        compare(c, (struct setting){1, 3, 4}, &whole);
        compare(c, (struct setting){3, 2, 6}, &whole);
    }
}

/* A momentum is kept for rows that are looked up and rests for the others; without one, rows and a
 * whole table are the same. */
static void rows_in_parts_are_what_a_dense_gradient_is(void **state)
{
    static struct result sparse, dense;
    struct test c = {"rows", table, XENT, "accuracy", "sgd learning_rate=0.5", .n_out = 0};
    static const struct setting s[] = {{1, 1, 12}, {3, 1, 12}, {1, 4, 3}, {2, 2, 6}};

    (void)state;
    for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
        c.build = table;
        train(&c, s[i], &sparse);
        c.build = dense_table;
        train(&c, s[i], &dense);
        for (int64_t k = 0; k < sparse.n; k++)
            if (!(fabs((double)sparse.w[k] - (double)dense.w[k]) < 2e-6))
                fail_msg("setting %d: weight %d is %g, dense %g", (int)i, (int)k,
                         (double)sparse.w[k], (double)dense.w[k]);
    }
}

/* ---- interrupted runs ------------------------------------------------------------------------ */

static weft_status interrupt_at(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    int *left = arg;

    (void)batch;
    (void)logs;
    if (--*left == 0)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

/* Rows, a momentum for each, dropout and moving averages. */
static weft_sym mixture(weft_model *m, weft_sym x)
{
    x = weft_apply(m, "Embedding", "input_dim=12 output_dim=5 mask_zero=true", x);
    x = weft_apply(m, "LSTM", "units=6", x);
    x = weft_apply(m, "BatchNormalization", NULL, x);
    x = weft_apply(m, "Dropout", "rate=0.3", x);
    return out(m, weft_apply(m, "Dense", "units=3 name=classes kernel_regularizer=l2", x));
}

/* Two epochs, interrupted after so many batches and started again; all weights. */
static void run_interrupted(const char *dir, int batches, struct result *r)
{
    for (bool done = false; !done; batches = 0) {
        struct test c = {"", mixture, XENT, NULL, "adam", .n_out = 0};
        weft_callback cb = {
            .size = sizeof cb, .arg = &batches, .name = "stop", .batch_end = interrupt_at};
        weft_column col[5];
        weft_tensor rows[5];
        weft_ctx *ctx;
        weft_model *m;
        weft_trainer *t;
        weft_data *d;
        int n = columns(&c, col, rows);

        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1 + (batches == 0)), &ctx), 0);
        assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
        c.build(m, weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}));
        assert_int_equal(weft_compile(m,
                                      WEFT_OPTS(weft_compile_opts, .optimizer = c.optimizer,
                                                .loss = c.loss, .shards = 3, .accumulate = 2),
                                      &t),
                         0);
        assert_int_equal(weft_data_new(ctx, &d), 0);
        if (weft_fit(t, d, weft_ds_tensors(d, n, col, rows),
                     WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 5, .seed = 8, .n_callbacks = 1,
                               .callbacks = &cb, .checkpoint = dir),
                     NULL))
            fail_msg("%s", weft_error());
        done = !weft_trainer_stopped(t);
        r->n = 0;
        for (int i = 0; i < weft_trainer_n_weights(t); i++) {
            weft_tensor w;

            assert_int_equal(weft_trainer_weight(t, weft_trainer_weight_name(t, i), &w), 0);
            memcpy(r->w + r->n, w.data, (size_t)weft_tensor_bytes(&w));
            r->n += weft_tensor_count(&w);
        }
        weft_trainer_free(t);
        weft_model_free(m);
        weft_data_free(d);
        weft_ctx_free(ctx);
    }
}

/* Steps of two batches in three shards each: an interruption in the middle of one waits for its
 * end. */
static void interrupted_runs_in_parts_end_with_the_same_bits(void **state)
{
    static struct result whole, again;

    (void)state;
    for (int batches = 0; batches < 10; batches++) {
        char dir[64];

        temp_make(dir);
        run_interrupted(dir, batches, batches ? &again : &whole);
        temp_remove(dir);
        if (batches && memcmp(whole.w, again.w, (size_t)whole.n * sizeof *whole.w) != 0)
            fail_msg("interrupted after %d batches", batches);
    }
}

static int set_up(void **state)
{
    (void)state;
    srand(21);
    for (int i = 0; i < N; i++) {
        int length = i == 4 ? 0 : 1 + rand() % T; /* a sample without anything */

        for (int k = 0; k < T; k++) {
            ids[i][k] = k < length ? 1 + rand() % 10 : 0; /* row 11 is never looked up */
            next_id[i][k] = rand() % 12;
        }
        class_of[i] = rand() % 3;
        target[i] = (float)rand() / (float)RAND_MAX;
        weight[i] = i % 4 ? 0.5f * (float)(i % 5) : 0;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_end_where_whole_steps_end),
        cmocka_unit_test(rows_in_parts_are_what_a_dense_gradient_is),
        cmocka_unit_test(interrupted_runs_in_parts_end_with_the_same_bits),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
