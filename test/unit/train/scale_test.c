/* Loss scaling in f16: what vanishes without it, what is skipped and stays as it was, and how the
 * scale moves. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft/weft.h"

enum { N = 64, D = 16 };

static weft_ctx *ctx;
static float x[N][D], y[N];
static int32_t id[N][2];
static char text[1 << 16];

static int set_up(void **state)
{
    (void)state;
    srand(3);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX - 0.5f;
        y[i] = (float)rand() / (float)RAND_MAX;
        id[i][0] = rand() % 10;
        id[i][1] = rand() % 10;
    }
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

/* A net with moving averages and a table that is looked up. */
static weft_model *net(void)
{
    weft_model *m;
    weft_sym s, e;

    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    e = weft_input(m, "id", WEFT_I32, 1, (int64_t[]){2});
    s = weft_apply(m, "Dense", "name=a units=32 kernel_regularizer=l2(1e-6)", s);
    s = weft_apply(m, "BatchNormalization", "name=norm", s);
    s = weft_apply(m, "Activation", "activation=relu", s);
    e = weft_apply(m, "Embedding", "name=table input_dim=10 output_dim=4", e);
    e = weft_apply(m, "Flatten", "", e);
    s = weft_apply_n(m, "Concatenate", "", 2, (weft_sym[]){s, e});
    s = weft_apply(m, "Dense", "name=b units=32 activation=tanh", s);
    weft_model_output(m, weft_apply(m, "Dense", "name=c units=1", s));
    return m;
}

struct world {
    weft_model *m;
    weft_trainer *t;
};

/* The loss is multiplied by `weight`: a small one makes small gradients, a large one large ones. */
static struct world open_world(double weight, weft_compile_opts o)
{
    struct world w = {.m = net()};

    o.size = sizeof o;
    o.loss = "mse";
    o.loss_weights = &weight;
    ok(weft_compile(w.m, &o, &w.t));
    return w;
}

static void close_world(struct world *w)
{
    weft_trainer_free(w->t);
    weft_model_free(w->m);
}

static void batch(int first, int n, weft_tensor in[2], weft_tensor *label)
{
    in[0] = weft_view(WEFT_F32, x[first], 2, (int64_t[]){n, D});
    in[1] = weft_view(WEFT_I32, id[first], 2, (int64_t[]){n, 2});
    *label = weft_view(WEFT_F32, y + first, 2, (int64_t[]){n, 1});
}

static weft_status step(struct world *w, int first, int n, weft_logs *logs)
{
    weft_tensor in[2], label;

    batch(first, n, in, &label);
    return weft_train_on_batch(w->t, in, &label, NULL, logs);
}

/* ---- small gradients ------------------------------------------------------------------------- */

static weft_grads *gradients(struct world *w)
{
    weft_tensor in[2], label;
    weft_grads *g = NULL;

    batch(0, N, in, &label);
    ok(weft_trainer_gradients(w->t, in, &label, NULL, &g, NULL));
    return g;
}

/* How many elements are 0 that are none in f32; and the largest difference, by the largest element
 * of each weight. */
static void compare(weft_grads *g, weft_grads *exact, double *lost, double *apart)
{
    int64_t n = 0, gone = 0;

    *apart = 0;
    for (int i = 0; i < weft_grads_n(g); i++) {
        const char *name = weft_grads_name(g, i);
        weft_tensor a, b, ids;
        double most = 0, worst = 0;

        if (weft_grads_sparse(g, name)) {
            ok(weft_grads_rows(g, name, &ids, &a));
            ok(weft_grads_rows(exact, name, &ids, &b));
        } else {
            ok(weft_grads_view(g, name, &a));
            ok(weft_grads_view(exact, name, &b));
        }
        /* BatchNorm takes means away: the bias before it has none but rounding for a gradient */
        if (strcmp(name, "a/bias") == 0)
            continue;
        for (int64_t k = 0; k < weft_tensor_count(&a); k++) {
            double p = (double)((float *)a.data)[k], q = (double)((float *)b.data)[k];

            n += q != 0;
            gone += q != 0 && p == 0;
            most = fmax(most, fabs(q));
            worst = fmax(worst, fabs(p - q));
        }
        *apart = fmax(*apart, worst / most);
    }
    *lost = (double)gone / (double)n;
}

static void small_gradients_survive(void **state)
{
    const double weight = 1e-6;

    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        struct world exact = open_world(weight, (weft_compile_opts){.shards = 1 + 3 * parts}),
                     plain = open_world(weight, (weft_compile_opts){.precision = "f16",
                                                                    .shards = 1 + 3 * parts,
                                                                    .loss_scale = WEFT_ZERO}),
                     scaled = open_world(
                         weight, (weft_compile_opts){.precision = "f16", .shards = 1 + 3 * parts});
        weft_grads *a = gradients(&exact), *b = gradients(&plain), *c = gradients(&scaled);
        double lost, apart;

        compare(b, a, &lost, &apart);
        if (!parts) /* parts are sums, not means: larger */
            assert_true(lost > 0.5);
        compare(c, a, &lost, &apart);
        if (lost > 0.001 || apart > 0x1p-8)
            fail_msg("%g of all elements are lost, the largest difference is %g", lost, apart);
        assert_true(weft_grads_finite(a) && weft_grads_finite(c));
        assert_true(weft_trainer_loss_scale(scaled.t) == 32768);
        assert_true(weft_trainer_loss_scale(plain.t) == 0);
        weft_grads_free(a);
        weft_grads_free(b);
        weft_grads_free(c);
        close_world(&exact);
        close_world(&plain);
        close_world(&scaled);
    }
}

static void nothing_changes_for_f32_and_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world w = open_world(1, (weft_compile_opts){.precision = i ? "bf16" : "f32"});
        weft_logs logs;

        ok(step(&w, 0, N, &logs));
        assert_int_equal(logs.n, 1);
        assert_true(weft_trainer_loss_scale(w.t) == 0);
        assert_int_equal(weft_trainer_skipped(w.t), 0);
        close_world(&w);
    }
}

static void wrong_scales_are_told(void **state)
{
    static const double bad[] = {1000, -2, 0x1p41, 0x1p-25, NAN};
    weft_model *m = net();
    weft_trainer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(weft_compile(m,
                                      WEFT_OPTS(weft_compile_opts, .loss = "mse",
                                                .precision = "f16", .loss_scale = bad[i]),
                                      &t),
                         WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "loss_scale"));
    }
    assert_int_equal(weft_compile(m,
                                  WEFT_OPTS(weft_compile_opts, .loss = "mse", .precision = "f16",
                                            .loss_scale_steps = -1),
                                  &t),
                     WEFT_EINVAL);
    weft_model_free(m);
}

/* ---- skipped steps --------------------------------------------------------------------------- */

/* The bits of all weights and states. */
static size_t snapshot(struct world *w, char *out)
{
    size_t at = 0;

    for (int i = 0; i < weft_trainer_n_weights(w->t); i++) {
        weft_tensor v;

        ok(weft_trainer_weight(w->t, weft_trainer_weight_name(w->t, i), &v));
        memcpy(out + at, v.data, (size_t)weft_tensor_bytes(&v));
        at += (size_t)weft_tensor_bytes(&v);
    }
    return at;
}

/* A run whose first step is skipped ends as one that begins with the scale after it: neither
 * weights, slots, averages nor the step's number remember it. */
static void a_skipped_step_changes_nothing(void **state)
{
    static char before[1 << 20], after[1 << 20];

    (void)state;
    for (int how = 0; how < 3; how++) {
        weft_compile_opts o = {.optimizer = "adam", .precision = "f16", .loss_scale = 0x1p20};
        struct world a, b;
        weft_logs logs;
        size_t n;
        int skipped = 0, batches;

        o.shards = how == 1 ? 4 : 1;
        o.accumulate = how == 2 ? 2 : 1;
        batches = o.accumulate;
        a = open_world(40, o);
        for (int i = 0; i < 25; i++) {
            snapshot(&a, before);
            for (int k = 0; k < batches; k++)
                ok(step(&a, 32 * k, 32, &logs));
            n = snapshot(&a, after);
            if (weft_trainer_skipped(a.t) == skipped)
                break;
            skipped++;
            assert_int_equal(weft_trainer_skipped(a.t), skipped);
            assert_int_equal(weft_trainer_step(a.t), 0);
            assert_true(weft_logs_get(&logs, "skipped_steps") == 1);
            assert_true(weft_logs_get(&logs, "loss_scale") == ldexp(1, 20 - skipped));
            assert_true(isfinite(weft_logs_get(&logs, "loss")));
            assert_memory_equal(before, after, n);
        }
        assert_true(skipped > 0 && skipped < 20);
        assert_true(weft_logs_get(&logs, "skipped_steps") == 0);
        assert_int_equal(weft_trainer_step(a.t), 1);
        o.loss_scale = ldexp(1, 20 - skipped);
        b = open_world(40, o);
        for (int k = 0; k < batches; k++)
            ok(step(&b, 32 * k, 32, &logs));
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < batches; k++) {
                ok(step(&a, 32 * k, 32, NULL));
                ok(step(&b, 32 * k, 32, NULL));
            }
        n = snapshot(&a, before);
        snapshot(&b, after);
        assert_memory_equal(before, after, n);
        assert_int_equal(weft_trainer_skipped(b.t), 0);
        close_world(&a);
        close_world(&b);
    }
}

static void states_of_recurrent_layers_stay_too(void **state)
{
    weft_model *m;
    weft_trainer *t;
    weft_sym s;
    weft_tensor in = weft_view(WEFT_F32, x, 3, (int64_t[]){4, 8, 2}),
                label = weft_view(WEFT_F32, y, 2, (int64_t[]){4, 1}), v;
    float before[4 * 8];
    const char *name = NULL;

    (void)state;
    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 2, (int64_t[]){8, 2});
    s = weft_apply(m, "GRU", "units=8 stateful=true batch_size=4", s);
    weft_model_output(m, weft_apply(m, "Dense", "units=1", s));
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .loss = "mse", .precision = "f16",
                              .loss_scale = 0x1p34, .accumulate = 2),
                    &t));
    ok(weft_predict_on_batch(t, &in, &(weft_tensor){.data = NULL})); /* a state that is not 0 */
    for (int i = 0; i < weft_trainer_n_weights(t); i++)
        if (strstr(weft_trainer_weight_name(t, i), "rnn_state"))
            name = weft_trainer_weight_name(t, i);
    assert_non_null(name);
    ok(weft_trainer_weight(t, name, &v));
    assert_int_equal(weft_tensor_bytes(&v), sizeof before);
    memcpy(before, v.data, sizeof before);
    ok(weft_train_on_batch(t, &in, &label, NULL, NULL));
    ok(weft_trainer_weight(t, name, &v));
    assert_memory_not_equal(before, v.data, sizeof before);
    ok(weft_train_on_batch(t, &in, &label, NULL, NULL));
    assert_int_equal(weft_trainer_skipped(t), 1);
    ok(weft_trainer_weight(t, name, &v));
    assert_memory_equal(before, v.data, sizeof before);
    weft_trainer_free(t);
    weft_model_free(m);
}

/* Gradients that are no numbers at any scale are an error in the end, not steps that are skipped
 * for ever. */
static void gradients_that_no_scale_helps_are_an_error(void **state)
{
    struct world w = open_world(1, (weft_compile_opts){.precision = "f16"});
    float kept = x[3][3];
    weft_status st = WEFT_OK;
    int n = 0;

    (void)state;
    x[3][3] = INFINITY;
    for (; n < 60 && !st; n++)
        st = step(&w, 0, N, NULL);
    x[3][3] = kept;
    assert_int_equal(st, WEFT_ENUMERIC);
    assert_int_equal(n, 15 + 24 + 1);
    assert_non_null(strstr(weft_error(), "at any loss scale"));
    assert_int_equal(weft_trainer_step(w.t), 0);
    close_world(&w);
}

static void good_steps_double_the_scale(void **state)
{
    struct world w = open_world(
        1e-3, (weft_compile_opts){.precision = "f16", .loss_scale = 256, .loss_scale_steps = 3});

    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_true(weft_trainer_loss_scale(w.t) == (i ? ldexp(256, i / 3) : 0));
        ok(step(&w, 0, N, NULL));
    }
    assert_int_equal(weft_trainer_skipped(w.t), 0);
    close_world(&w);
}

/* Clipping sees gradients that are divided already: the same steps as in f32, within rounding. */
static void clipping_comes_after_dividing(void **state)
{
    static const char *const optim[] = {"sgd learning_rate=0.1 global_clipnorm=0.01",
                                        "sgd learning_rate=0.1 clipnorm=0.01",
                                        "sgd learning_rate=0.1 clipvalue=0.001"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct world a = open_world(1, (weft_compile_opts){.optimizer = optim[i]}),
                     b = open_world(1,
                                    (weft_compile_opts){.optimizer = optim[i], .precision = "f16"});
        weft_tensor first, p, q;
        double moved = 0, apart = 0;
        float start[32 * 36];

        ok(weft_trainer_weight(a.t, "b/kernel", &first));
        memcpy(start, first.data, sizeof start);
        ok(step(&a, 0, N, NULL));
        ok(step(&b, 0, N, NULL));
        ok(weft_trainer_weight(a.t, "b/kernel", &p));
        ok(weft_trainer_weight(b.t, "b/kernel", &q));
        assert_int_equal(weft_tensor_count(&p), 40 * 32);
        for (int k = 0; k < 32 * 36; k++) {
            moved = fmax(moved, fabs((double)(((float *)p.data)[k] - start[k])));
            apart = fmax(apart, fabs((double)(((float *)p.data)[k] - ((float *)q.data)[k])));
        }
        if (!(moved > 1e-6 && apart < 0.02 * moved))
            fail_msg("%s: moved %g, apart %g", optim[i], moved, apart);
        close_world(&a);
        close_world(&b);
    }
}

/* ---- custom loops ---------------------------------------------------------------------------- */

static void own_loops_skip_as_steps_do(void **state)
{
    weft_compile_opts o = {.optimizer = "adam", .precision = "f16", .loss_scale = 0x1p16};
    struct world a = open_world(40, o), b = open_world(40, o);
    static char bits_a[1 << 20], bits_b[1 << 20];
    weft_grads *g = NULL, *sum = NULL;
    weft_tensor in[2], label;
    bool seen[2] = {false, false};
    size_t n;

    (void)state;
    batch(0, N, in, &label);
    for (int i = 0; i < 14; i++) {
        ok(step(&a, 0, N, NULL));
        n = snapshot(&b, bits_a);
        ok(weft_trainer_gradients(b.t, in, &label, NULL, &g, NULL));
        seen[weft_grads_finite(g)] = true;
        if (!weft_grads_finite(g)) {
            snapshot(&b, bits_b);
            assert_memory_equal(bits_a, bits_b, n); /* the moving averages, too */
            if (!sum)
                ok(weft_grads_average(1, (const weft_grads *[]){g}, &sum));
            assert_false(weft_grads_finite(sum));
        }
        ok(weft_trainer_apply(b.t, g, NULL));
        assert_true(weft_trainer_loss_scale(a.t) == weft_trainer_loss_scale(b.t));
        assert_int_equal(weft_trainer_step(a.t), weft_trainer_step(b.t));
    }
    assert_true(seen[0] && seen[1]);
    n = snapshot(&a, bits_a);
    snapshot(&b, bits_b);
    assert_memory_equal(bits_a, bits_b, n);
    weft_grads_free(g);
    weft_grads_free(sum);
    close_world(&a);
    close_world(&b);
}

/* ---- fit and checkpoints --------------------------------------------------------------------- */

static void print(void *arg, const char *line, bool last)
{
    (void)arg;
    (void)last;
    strncat(text, line, sizeof text - strlen(text) - 1);
}

static weft_ds samples(weft_data *d)
{
    weft_column col[3] = {{.name = "x"}, {.name = "id"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[3] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, id, 2, (int64_t[]){N, 2}),
                        weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1})};

    return weft_ds_tensors(d, 3, col, t);
}

static weft_status interrupt(void *arg, weft_trainer *t, int64_t n, const weft_logs *logs)
{
    int *left = arg;

    (void)n;
    (void)logs;
    if (--*left == 0)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

/* A run that is interrupted after every few batches, steps that are skipped among them, ends with
 * the bits of one that is not. */
static void the_scale_resumes(void **state)
{
    static char bits[2][1 << 20];
    weft_compile_opts o = {
        .optimizer = "adam", .precision = "f16", .loss_scale = 0x1p16, .loss_scale_steps = 5};
    char dir[] = "/tmp/weft-scale-XXXXXX", command[64];
    weft_history *h[2] = {NULL, NULL};
    double scale[2];
    int64_t skipped[2], steps[2];
    size_t n = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int cut = 0; cut < 2; cut++) {
        for (int run = 0; run < (cut ? 20 : 1); run++) {
            struct world w = open_world(40, o);
            weft_data *d;
            int left = cut ? 3 : -1;
            weft_callback cb = {
                .size = sizeof cb, .arg = &left, .name = "cut", .batch_end = interrupt};

            weft_history_free(h[cut]);
            h[cut] = NULL;
            ok(weft_data_new(ctx, &d));
            text[0] = 0;
            ok(weft_fit(w.t, d, samples(d),
                        WEFT_OPTS(weft_fit_opts, .epochs = 5, .batch = 8, .n_callbacks = 1,
                                  .callbacks = &cb, .verbose = cut ? 0 : 2, .print = print,
                                  .validation_split = 0.25, .checkpoint = cut ? dir : NULL),
                        &h[cut]));
            n = snapshot(&w, bits[cut]);
            scale[cut] = weft_trainer_loss_scale(w.t);
            skipped[cut] = weft_trainer_skipped(w.t);
            steps[cut] = weft_trainer_step(w.t);
            weft_data_free(d);
            close_world(&w);
        }
        if (!cut)
            assert_non_null(strstr(text, "skipped_steps: "));
    }
    assert_true(skipped[0] > 2);
    assert_int_equal(steps[0] + skipped[0], 5 * 6);
    assert_true(scale[0] == scale[1] && skipped[0] == skipped[1] && steps[0] == steps[1]);
    assert_memory_equal(bits[0], bits[1], n);
    assert_int_equal(h[0]->n_names, 4);
    assert_string_equal(h[0]->name[1], "loss_scale");
    assert_string_equal(h[0]->name[2], "skipped_steps");
    assert_string_equal(h[0]->name[3], "val_loss");
    assert_int_equal(h[1]->n_epochs, 5);
    assert_memory_equal(h[0]->value, h[1]->value, 5 * 4 * sizeof(double));
    for (int e = 0; e < 5; e++)
        skipped[1] -= (int64_t)h[0]->value[e * 4 + 2];
    assert_int_equal(skipped[1], 0);
    weft_history_free(h[0]);
    weft_history_free(h[1]);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_gradients_survive),
        cmocka_unit_test(nothing_changes_for_f32_and_bf16),
        cmocka_unit_test(wrong_scales_are_told),
        cmocka_unit_test(a_skipped_step_changes_nothing),
        cmocka_unit_test(states_of_recurrent_layers_stay_too),
        cmocka_unit_test(gradients_that_no_scale_helps_are_an_error),
        cmocka_unit_test(good_steps_double_the_scale),
        cmocka_unit_test(clipping_comes_after_dividing),
        cmocka_unit_test(own_loops_skip_as_steps_do),
        cmocka_unit_test(the_scale_resumes),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
