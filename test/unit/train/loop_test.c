/* Custom loops: gradients and apply are train_on_batch, bit for bit, whatever the model, the
 * optimizer and the precision; averages of micro-batches are the gradient of the whole; chosen
 * weights move and the others keep weights and slots. */
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
#define T 5
#define CLASSES 3

static float wx[N][6];
static int32_t ids[N][T], label[N];

/* ---- models ---------------------------------------------------------------------------------- */

enum kind { PLAIN, NORMED, EMBEDDED, TIED, ACTIVE, LIMITED, TWO_SUMS, N_KINDS };

static weft_sym words(weft_model *m)
{
    return weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});
}

static weft_sym numbers(weft_model *m)
{
    return weft_input(m, "x", WEFT_F32, 1, (int64_t[]){6});
}

/* Whatever is in a step besides products: dropout, moving averages, regularizers of weights and of
 * outputs, rows that were looked up, with and without masks, a table that is used twice,
 * constraints, biases whose gradients are the same value. */
static weft_model *build(weft_ctx *ctx, enum kind kind)
{
    weft_model *m;
    weft_sym x, a, b;
    weft_layer table;

    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    switch (kind) {
    case PLAIN:
        x = weft_apply(m, "Dense", "units=8 activation=tanh name=body kernel_regularizer=l2(0.02)",
                       numbers(m));
        x = weft_apply(m, "Dropout", "rate=0.4", x);
        break;
    case NORMED:
        x = weft_apply(m, "Dense", "units=8 name=body", numbers(m));
        x = weft_apply(m, "BatchNormalization", NULL, x);
        x = weft_apply(m, "ReLU", NULL, x);
        break;
    case EMBEDDED:
        x = weft_apply(m, "Embedding", "input_dim=20 output_dim=4 mask_zero=true name=body",
                       words(m));
        x = weft_apply(m, "LSTM", "units=4", x);
        break;
    case TIED: /* one table, looked up twice */
        table = weft_layer_new(m, "Embedding", "input_dim=20 output_dim=4 name=body");
        a = words(m);
        b = weft_input(m, "more", WEFT_I32, 1, (int64_t[]){T});
        a = weft_call(m, table, a);
        b = weft_call(m, table, b);
        x = weft_apply_n(m, "Add", NULL, 2, (weft_sym[]){a, b});
        x = weft_apply(m, "Flatten", NULL, x);
        break;
    case ACTIVE: /* a table with a regularizer is dense; a penalty on outputs depends on the data */
        x = weft_apply(m, "Embedding",
                       "input_dim=20 output_dim=4 embeddings_regularizer=l2(0.01) name=body",
                       words(m));
        x = weft_apply(m, "Flatten", NULL, x);
        x = weft_apply(m, "Dense", "units=4 activity_regularizer=l2(0.05)", x);
        break;
    case LIMITED:
        x = weft_apply(m, "Dense",
                       "units=8 kernel_constraint=max_norm(0.7) bias_constraint=non_neg name=body",
                       numbers(m));
        break;
    default:
        a = numbers(m);
        b = weft_apply(m, "Dense", "units=4 name=body", a);
        a = weft_apply(m, "Dense", "units=4 bias_regularizer=l2(0.1)", a);
        x = weft_apply_n(m, "Add", NULL, 2, (weft_sym[]){a, b});
        x = weft_apply(m, "ReLU", NULL, x);
    }
    weft_model_output(m, weft_apply(m, "Dense", "units=3 name=head", x));
    if (weft_model_status(m))
        fail_msg("%s", weft_error());
    return m;
}

static const char *const loss = "sparse_categorical_crossentropy from_logits=true";

struct world {
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
    enum kind kind;
};

static struct world open_world(enum kind kind, weft_compile_opts o)
{
    struct world w = {.kind = kind};

    o.size = sizeof o;
    o.loss = loss;
    o.metrics = "accuracy";
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 7), &w.ctx), 0);
    w.m = build(w.ctx, kind);
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

/* Samples [first, first + n) as the model takes them. */
static void batch(const struct world *w, int64_t first, int64_t n, weft_tensor x[2], weft_tensor *y)
{
    bool tokens = w->kind == EMBEDDED || w->kind == TIED || w->kind == ACTIVE;

    x[0] = tokens ? weft_view(WEFT_I32, ids[first], 2, (int64_t[]){n, T})
                  : weft_view(WEFT_F32, wx[first], 2, (int64_t[]){n, 6});
    x[1] = weft_view(WEFT_I32, ids[(first + 3) % (N - 8)], 2, (int64_t[]){n, T});
    *y = weft_view(WEFT_I32, label + first, 1, &n);
}

static void train(struct world *w, int64_t first, int64_t n, double *logged)
{
    weft_tensor x[2], y;
    weft_logs logs;

    batch(w, first, n, x, &y);
    if (weft_train_on_batch(w->t, x, &y, NULL, &logs))
        fail_msg("%s", weft_error());
    *logged = weft_logs_get(&logs, "loss");
}

static void gradients(struct world *w, int64_t first, int64_t n, weft_grads **g, double *logged)
{
    weft_tensor x[2], y;
    weft_logs logs;

    batch(w, first, n, x, &y);
    if (weft_trainer_gradients(w->t, x, &y, NULL, g, &logs))
        fail_msg("%s", weft_error());
    if (logged)
        *logged = weft_logs_get(&logs, "loss");
}

static void apply(struct world *w, const weft_grads *g, const char *only)
{
    if (weft_trainer_apply(w->t, g, WEFT_OPTS(weft_apply_opts, .only = only)))
        fail_msg("%s", weft_error());
}

/* All weights of two trainers: the largest difference, NaN counting as one. */
static double distance(struct world *a, struct world *b)
{
    double most = 0;

    for (int i = 0; i < weft_trainer_n_weights(a->t); i++) {
        weft_tensor u, v;

        assert_int_equal(weft_trainer_weight(a->t, weft_trainer_weight_name(a->t, i), &u), 0);
        assert_int_equal(weft_trainer_weight(b->t, weft_trainer_weight_name(b->t, i), &v), 0);
        for (int64_t k = 0; k < weft_tensor_count(&u); k++) {
            double d = fabs((double)((float *)u.data)[k] - (double)((float *)v.data)[k]);

            most = d <= most ? most : d;
        }
    }
    return most;
}

static bool same_bits(struct world *a, struct world *b)
{
    for (int i = 0; i < weft_trainer_n_weights(a->t); i++) {
        weft_tensor u, v;

        assert_int_equal(weft_trainer_weight(a->t, weft_trainer_weight_name(a->t, i), &u), 0);
        assert_int_equal(weft_trainer_weight(b->t, weft_trainer_weight_name(b->t, i), &v), 0);
        if (memcmp(u.data, v.data, (size_t)weft_tensor_bytes(&u)) != 0) {
            print_error("'%s' differs\n", weft_trainer_weight_name(a->t, i));
            return false;
        }
    }
    return true;
}

/* ---- used plainly ---------------------------------------------------------------------------- */

static void compare_steps(enum kind kind, weft_compile_opts o)
{
    struct world a = open_world(kind, o), b = open_world(kind, o);
    weft_grads *g = NULL;

    for (int step = 0; step < 5; step++) {
        double one, two;

        train(&a, step % 2 * 8, 8, &one);
        gradients(&b, step % 2 * 8, 8, &g, &two);
        apply(&b, g, NULL);
        if (!same_bits(&a, &b) || fabs(one - two) > 1e-6 * fabs(one))
            fail_msg("kind %d, %s, step %d: losses %.9g %.9g", (int)kind, o.optimizer, step, one,
                     two);
        assert_int_equal(weft_trainer_step(a.t), weft_trainer_step(b.t));
    }
    weft_grads_free(g);
    close_world(&a);
    close_world(&b);
}

static void gradients_and_apply_are_a_step(void **state)
{
    static const char *const optimizers[] = {
        "sgd learning_rate=0.1 momentum=0.9",
        "adam learning_rate=0.01",
        "rmsprop",
        "adamw learning_rate=0.01 weight_decay=0.1",
        "adagrad",
        "ftrl",
        "lamb",
        "nadam",
        "adam clipnorm=0.1",
        "sgd learning_rate=1 global_clipnorm=0.3",
        "adam clipvalue=0.01",
    };

    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
            compare_steps((enum kind)k, (weft_compile_opts){.optimizer = optimizers[i]});
}

static void they_are_in_shards_mixed_precision_and_under_schedules(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        compare_steps((enum kind)k, (weft_compile_opts){.optimizer = "adam", .shards = 3});
        compare_steps((enum kind)k,
                      (weft_compile_opts){.optimizer = "sgd global_clipnorm=0.5", .shards = 20});
        compare_steps((enum kind)k, (weft_compile_opts){.optimizer = "adam", .precision = "bf16"});
        compare_steps(
            (enum kind)k,
            (weft_compile_opts){.optimizer = "adam",
                                .schedule = "exponential_decay decay_steps=2 decay_rate=0.5"});
    }
}

/* ---- averages -------------------------------------------------------------------------------- */

/* Without layers that look across the batch or draw: parts of a batch average to the whole,
 * whatever their sizes. */
static void an_average_of_parts_is_the_whole(void **state)
{
    static const enum kind kinds[] = {EMBEDDED, TIED, ACTIVE, LIMITED, TWO_SUMS};

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        weft_compile_opts o = {.optimizer = "sgd learning_rate=0.5"};
        struct world a = open_world(kinds[k], o), b = open_world(kinds[k], o);
        weft_grads *part[3] = {NULL, NULL, NULL}, *mean = NULL;

        for (int step = 0; step < 3; step++) {
            double unused;

            train(&a, 0, 12, &unused);
            gradients(&b, 0, 2, &part[0], NULL);
            gradients(&b, 2, 7, &part[1], NULL);
            gradients(&b, 9, 3, &part[2], NULL);
            assert_int_equal(weft_grads_average(3, (const weft_grads *const *)part, &mean), 0);
            assert_float_equal(weft_grads_weight(mean), 12, 0);
            apply(&b, mean, NULL);
        }
        if (!(distance(&a, &b) < 2e-6))
            fail_msg("kind %d: %g", (int)kinds[k], distance(&a, &b));
        for (int i = 0; i < 3; i++)
            weft_grads_free(part[i]);
        weft_grads_free(mean);
        close_world(&a);
        close_world(&b);
    }
}

/* Different ids of the first samples: each has one row. */
static int64_t n_distinct(int samples)
{
    int64_t n = 0;

    for (int i = 0; i < samples * T; i++) {
        bool seen = false;

        for (int k = 0; k < i; k++)
            seen |= ids[k / T][k % T] == ids[i / T][i % T];
        n += !seen;
    }
    return n;
}

static void sums_and_factors_do_what_they_say(void **state)
{
    struct world w = open_world(EMBEDDED, (weft_compile_opts){.optimizer = "sgd"});
    struct world other = open_world(PLAIN, (weft_compile_opts){.optimizer = "sgd"});
    weft_grads *g = NULL, *h = NULL, *foreign = NULL;
    weft_tensor v, i, r;
    float before, row;

    (void)state;
    gradients(&w, 0, 6, &g, NULL);
    gradients(&w, 0, 6, &h, NULL);
    gradients(&other, 0, 6, &foreign, NULL);
    assert_int_equal(weft_grads_view(g, "head/kernel", &v), 0);
    assert_int_equal(v.dim[1], CLASSES);
    before = ((float *)v.data)[1];
    assert_true(weft_grads_sparse(g, "body/embeddings"));
    assert_false(weft_grads_sparse(g, "head/kernel"));
    assert_int_equal(weft_grads_rows(g, "body/embeddings", &i, &r), 0);
    assert_int_equal(i.dim[0], n_distinct(6));
    assert_memory_equal(&((int64_t *)i.data)[1], &(int64_t){ids[0][1]}, 8);
    row = ((float *)r.data)[4];
    assert_int_equal(weft_grads_add(g, h), 0);
    assert_int_equal(weft_grads_scale(g, 0.25), 0);
    assert_float_equal(weft_grads_weight(g), 12, 0);
    assert_float_equal(((float *)v.data)[1], before / 2, 0);
    assert_int_equal(weft_grads_rows(g, "body/embeddings", &i, &r), 0);
    assert_int_equal(i.dim[0], n_distinct(6));
    assert_float_equal(((float *)r.data)[4], row / 2, 0);
    assert_int_equal(weft_grads_n(g), 6);
    assert_string_equal(weft_grads_name(g, 0), "body/embeddings");
    assert_null(weft_grads_name(g, 6));
    /* and what cannot be */
    assert_int_equal(weft_grads_view(g, "body/embeddings", &v), WEFT_ESTATE);
    assert_int_equal(weft_grads_rows(g, "head/kernel", &i, &r), WEFT_ESTATE);
    assert_int_equal(weft_grads_view(g, "head/kernal", &v), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "did you mean 'head/kernel'"));
    assert_int_equal(weft_grads_add(g, foreign), WEFT_EINVAL);
    assert_int_equal(weft_grads_scale(g, NAN), WEFT_EINVAL);
    assert_int_equal(weft_grads_average(0, NULL, &h), WEFT_EINVAL);
    assert_int_equal(weft_grads_average(1, (const weft_grads *const *)&h, &h), WEFT_EINVAL);
    assert_int_equal(weft_trainer_apply(w.t, foreign, NULL), WEFT_EINVAL);
    weft_grads_free(g);
    weft_grads_free(h);
    weft_grads_free(foreign);
    close_world(&w);
    close_world(&other);
}

/* ---- chosen weights -------------------------------------------------------------------------- */

/* Steps that leave a weight out do not move it, and it continues afterwards as if its optimizer's
 * state had waited. */
static void chosen_weights_move_alone(void **state)
{
    weft_compile_opts o = {.optimizer = "sgd learning_rate=0.1 momentum=0.9"};
    struct world a = open_world(LIMITED, o), b = open_world(LIMITED, o);
    weft_grads *first = NULL, *g = NULL;
    float kernel[48];
    weft_tensor v;

    (void)state;
    gradients(&b, 0, 8, &first, NULL);
    gradients(&a, 0, 8, &first, NULL);
    apply(&a, first, NULL);
    apply(&b, first, NULL); /* another trainer with the same weights */
    assert_true(same_bits(&a, &b));
    assert_int_equal(weft_trainer_weight(b.t, "body/kernel", &v), 0);
    memcpy(kernel, v.data, sizeof kernel);
    for (int i = 0; i < 4; i++) {
        gradients(&b, 8, 8, &g, NULL);
        apply(&b, g, i % 2 ? "head/kernel, head/bias" : "head*");
    }
    assert_memory_equal(kernel, v.data, sizeof kernel);
    assert_false(same_bits(&a, &b));
    /* the body's momentum is that of the first step alone */
    apply(&a, first, "body*");
    apply(&b, first, "body*");
    assert_int_equal(weft_trainer_weight(a.t, "body/kernel", &v), 0);
    memcpy(kernel, v.data, sizeof kernel);
    assert_int_equal(weft_trainer_weight(b.t, "body/kernel", &v), 0);
    assert_memory_equal(kernel, v.data, sizeof kernel);
    assert_int_equal(weft_trainer_apply(b.t, g, WEFT_OPTS(weft_apply_opts, .only = "heap*")),
                     WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "'heap*'"));
    assert_int_equal(weft_trainer_apply(b.t, g, WEFT_OPTS(weft_apply_opts, .only = " ,")),
                     WEFT_EINVAL);
    weft_grads_free(first);
    weft_grads_free(g);
    close_world(&a);
    close_world(&b);
}

/* More choices than are kept: the result is the same as one weight after the other. */
static void many_choices_are_made_and_forgotten(void **state)
{
    struct world a = open_world(PLAIN, (weft_compile_opts){.optimizer = "sgd"});
    static const char *const name[] = {"body/kernel", "body/bias", "head/kernel", "head/bias"};
    weft_grads *g = NULL;

    (void)state;
    gradients(&a, 0, 8, &g, NULL);
    for (int round = 0; round < 3; round++)
        for (int mask = 1; mask < 16; mask++) {
            char only[128] = "";

            for (int i = 0; i < 4; i++)
                if (mask >> i & 1)
                    strcat(strcat(only, name[i]), " ");
            apply(&a, g, only);
        }
    assert_int_equal(weft_trainer_step(a.t), 45);
    weft_grads_free(g);
    close_world(&a);
}

/* ---- what is random or kept ------------------------------------------------------------------ */

/* Each call draws new numbers, and a program that begins again draws the same. */
static void dropout_differs_between_calls(void **state)
{
    weft_compile_opts o = {.optimizer = "sgd"};
    struct world a = open_world(PLAIN, o), b = open_world(PLAIN, o);
    weft_grads *g[3] = {NULL, NULL, NULL}, *h = NULL;
    weft_tensor u, v;

    (void)state;
    for (int i = 0; i < 3; i++)
        gradients(&a, 0, 8, &g[i], NULL);
    assert_int_equal(weft_grads_view(g[0], "body/kernel", &u), 0);
    assert_int_equal(weft_grads_view(g[1], "body/kernel", &v), 0);
    assert_memory_not_equal(u.data, v.data, (size_t)weft_tensor_bytes(&u));
    gradients(&b, 0, 8, &h, NULL);
    assert_int_equal(weft_grads_view(h, "body/kernel", &v), 0);
    assert_memory_equal(u.data, v.data, (size_t)weft_tensor_bytes(&u));
    apply(&b, h, "head*"); /* a step: the first draw of the next one is another */
    gradients(&b, 0, 8, &h, NULL);
    assert_int_equal(weft_grads_view(h, "body/kernel", &v), 0);
    assert_memory_not_equal(u.data, v.data, (size_t)weft_tensor_bytes(&u));
    for (int i = 0; i < 3; i++)
        weft_grads_free(g[i]);
    weft_grads_free(h);
    close_world(&a);
    close_world(&b);
}

static void moving_averages_move_with_gradients(void **state)
{
    struct world a = open_world(NORMED, (weft_compile_opts){.optimizer = "sgd"});
    weft_grads *g = NULL;
    weft_tensor v;
    float before[8], kernel[48];

    (void)state;
    assert_int_equal(weft_trainer_weight(a.t, "batch_normalization/moving_mean", &v), 0);
    memcpy(before, v.data, sizeof before);
    gradients(&a, 0, 8, &g, NULL);
    assert_int_equal(weft_trainer_weight(a.t, "batch_normalization/moving_mean", &v), 0);
    assert_memory_not_equal(before, v.data, sizeof before);
    memcpy(before, v.data, sizeof before);
    assert_int_equal(weft_trainer_weight(a.t, "body/kernel", &v), 0);
    memcpy(kernel, v.data, sizeof kernel);
    apply(&a, g, "body/bias");
    assert_memory_equal(kernel, v.data, sizeof kernel);
    assert_int_equal(weft_trainer_weight(a.t, "batch_normalization/moving_mean", &v), 0);
    assert_memory_equal(before, v.data, sizeof before);
    weft_grads_free(g);
    close_world(&a);
}

static void what_does_not_belong_together_is_refused(void **state)
{
    struct world a = open_world(PLAIN, (weft_compile_opts){.optimizer = "sgd", .accumulate = 2});
    struct world b = open_world(PLAIN, (weft_compile_opts){.optimizer = "sgd", .shards = 2});
    weft_grads *g = NULL;
    weft_tensor x[2], y;
    double unused;

    (void)state;
    train(&a, 0, 8, &unused);
    batch(&a, 0, 8, x, &y);
    assert_int_equal(weft_trainer_gradients(a.t, x, &y, NULL, &g, NULL), WEFT_ESTATE);
    assert_non_null(strstr(weft_error(), "1 of 2 batches"));
    assert_null(g);
    train(&a, 0, 8, &unused);
    gradients(&a, 0, 8, &g, NULL);
    apply(&a, g, NULL);
    /* a trainer that has seen no labels, and a batch whose rows do not fit */
    assert_int_equal(weft_trainer_apply(b.t, g, NULL), WEFT_ESTATE);
    y.dim[0] = 5;
    assert_int_equal(weft_trainer_gradients(b.t, x, &y, NULL, &g, NULL), WEFT_ESHAPE);
    assert_int_equal(weft_train_on_batch(b.t, x, &y, NULL, NULL), WEFT_ESHAPE);
    weft_grads_free(g);
    close_world(&a);
    close_world(&b);
}

/* ---- steps that stay what they are ----------------------------------------------------------- */

/* A batch without samples is a step of the gradient 0, not of the previous one. */
static void a_batch_without_samples_moves_nothing(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 3; shards++) {
        weft_compile_opts o = {.optimizer = "sgd learning_rate=0.2", .shards = shards};
        struct world a = open_world(TIED, o), b = open_world(TIED, o);
        double unused;

        train(&a, 0, 8, &unused);
        train(&b, 0, 8, &unused);
        train(&b, 0, 0, &unused);
        assert_int_equal(weft_trainer_step(b.t), 2);
        assert_true(same_bits(&a, &b));
        close_world(&a);
        close_world(&b);
    }
}

static void looking_at_gradients_changes_no_step(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 2; shards++) {
        weft_compile_opts o = {.optimizer = "adam", .shards = shards, .accumulate = shards};
        struct world a = open_world(PLAIN, o), b = open_world(PLAIN, o);
        weft_grads *g = NULL;
        double unused;

        for (int i = 0; i < 4; i++) {
            if (i % shards == 0)
                gradients(&b, 0, 8, &g, NULL);
            train(&a, 0, 8, &unused);
            train(&b, 0, 8, &unused);
        }
        assert_true(same_bits(&a, &b));
        weft_grads_free(g);
        close_world(&a);
        close_world(&b);
    }
}

static weft_status fail_at(void *arg, weft_trainer *t, int64_t number, const weft_logs *logs)
{
    (void)t;
    (void)logs;
    return number == *(int64_t *)arg ? WEFT_EIO : WEFT_OK;
}

/* Batches that were waiting for a step when fit failed do not get into the next one, and moving
 * averages are as before them. */
static void a_fit_that_fails_leaves_no_batches_behind(void **state)
{
    weft_compile_opts o = {.optimizer = "adam", .accumulate = 3};
    struct world a = open_world(NORMED, o), b = open_world(NORMED, o);
    int64_t at = 1;
    weft_callback cb = {.size = sizeof cb, .arg = &at, .name = "failing", .batch_end = fail_at};
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2], x[2];
    weft_data *d;
    double unused;

    (void)state;
    batch(&b, 0, N, x, &rows[1]);
    rows[0] = x[0];
    assert_int_equal(weft_data_new(b.ctx, &d), 0);
    assert_int_equal(
        weft_fit(b.t, d, weft_ds_tensors(d, 2, col, rows),
                 WEFT_OPTS(weft_fit_opts, .batch = 4, .n_callbacks = 1, .callbacks = &cb), NULL),
        WEFT_EIO);
    assert_int_equal(weft_trainer_step(b.t), 0);
    assert_true(same_bits(&a, &b));
    for (int i = 0; i < 3; i++) {
        train(&a, 4 * i, 4, &unused);
        train(&b, 4 * i, 4, &unused);
    }
    assert_int_equal(weft_trainer_step(b.t), 1);
    assert_true(same_bits(&a, &b));
    weft_data_free(d);
    close_world(&a);
    close_world(&b);
}

struct changing {
    weft_data *d;
    weft_ds weighted, wide; /* the second's labels are of another type */
    weft_status st[2];
};

static weft_status evaluate_others(void *arg, weft_trainer *t)
{
    struct changing *c = arg;

    c->st[0] = weft_evaluate(t, c->d, c->weighted, NULL, NULL);
    c->st[1] = weft_evaluate(t, c->d, c->wide, NULL, NULL);
    return WEFT_OK;
}

/* The graph of a step under way, or of fit, is not taken from under it. */
static void labels_do_not_change_their_types_in_between(void **state)
{
    struct world a = open_world(PLAIN, (weft_compile_opts){.optimizer = "sgd", .accumulate = 2});
    struct world b = open_world(PLAIN, (weft_compile_opts){.optimizer = "sgd"});
    struct changing c = {.st = {1, 1}};
    weft_callback cb = {
        .size = sizeof cb, .arg = &c, .name = "evaluate", .train_begin = evaluate_others};
    weft_column col[3] = {
        {.name = "x"}, {.name = "y", .role = WEFT_LABEL}, {.name = "w", .role = WEFT_WEIGHT}};
    weft_tensor rows[3], x[2];
    int64_t wide[N];
    double unused;

    (void)state;
    for (int i = 0; i < N; i++)
        wide[i] = label[i];
    batch(&a, 0, N, x, &rows[1]);
    rows[0] = x[0];
    rows[2] = weft_view(WEFT_F32, wx, 1, (int64_t[]){N});
    train(&a, 0, 8, &unused);
    assert_int_equal(weft_train_on_batch(a.t, rows, &rows[1], &rows[2], NULL), WEFT_ESTATE);
    assert_non_null(strstr(weft_error(), "pending"));
    train(&a, 0, 8, &unused);
    assert_int_equal(weft_trainer_step(a.t), 1);
    assert_int_equal(weft_data_new(b.ctx, &c.d), 0);
    c.weighted = weft_ds_tensors(c.d, 3, col, rows);
    c.wide = weft_ds_tensors(
        c.d, 2, col, (weft_tensor[]){rows[0], weft_view(WEFT_I64, wide, 1, (int64_t[]){N})});
    if (weft_fit(b.t, c.d, weft_ds_tensors(c.d, 2, col, rows),
                 WEFT_OPTS(weft_fit_opts, .n_callbacks = 1, .callbacks = &cb), NULL))
        fail_msg("%s", weft_error());
    assert_int_equal(c.st[0], WEFT_OK);
    assert_int_equal(c.st[1], WEFT_ESTATE);
    weft_data_free(c.d);
    close_world(&a);
    close_world(&b);
}

static int set_up(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 6; k++)
            wx[i][k] = (float)rand() / (float)RAND_MAX - 0.5f;
        for (int k = 0; k < T; k++)
            ids[i][k] = k > i % T ? 0 : 1 + rand() % 19;
        label[i] = rand() % CLASSES;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_and_apply_are_a_step),
        cmocka_unit_test(they_are_in_shards_mixed_precision_and_under_schedules),
        cmocka_unit_test(an_average_of_parts_is_the_whole),
        cmocka_unit_test(sums_and_factors_do_what_they_say),
        cmocka_unit_test(chosen_weights_move_alone),
        cmocka_unit_test(many_choices_are_made_and_forgotten),
        cmocka_unit_test(dropout_differs_between_calls),
        cmocka_unit_test(moving_averages_move_with_gradients),
        cmocka_unit_test(what_does_not_belong_together_is_refused),
        cmocka_unit_test(a_batch_without_samples_moves_nothing),
        cmocka_unit_test(looking_at_gradients_changes_no_step),
        cmocka_unit_test(a_fit_that_fails_leaves_no_batches_behind),
        cmocka_unit_test(labels_do_not_change_their_types_in_between),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
