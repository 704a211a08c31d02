/* What a trainer measures: lists of metrics, their names in logs, weights of samples and
 * classes. */
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

enum { N = 60, D = 3, T = 4, C = 3 };

static weft_ctx *ctx;
static float x[N][D], hot[N][C], value[N], weight[N], bits[N];
static int32_t id[N], seq[N][T];

static int set_up(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX * 2 - 1;
        id[i] = rand() % 7 % C;
        for (int k = 0; k < C; k++)
            hot[i][k] = id[i] == k;
        for (int k = 0; k < T; k++)
            seq[i][k] = rand() % C;
        bits[i] = (float)(rand() % 2);
        value[i] = (float)(rand() % 100) / 10;
        weight[i] = (float)(rand() % 4) / 2;
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

static bool said(const char *part)
{
    if (!strstr(weft_error(), part))
        print_error("'%s' is not in: %s\n", part, weft_error());
    return strstr(weft_error(), part) != NULL;
}

/* A model of one layer; act "softmax" with C units, "sigmoid" with 1, or any. */
static weft_model *one_layer(const char *layer)
{
    weft_model *m;
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_output(m, weft_apply(m, "Dense", layer, s));
    return m;
}

/* Predictions of all samples. */
static void predict(weft_trainer *t, float *out)
{
    weft_tensor in = weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}), p = {.data = NULL};

    ok(weft_predict_on_batch(t, &in, &p));
    memcpy(out, p.data, (size_t)weft_tensor_bytes(&p));
}

static weft_tensor xs(void)
{
    return weft_view(WEFT_F32, x, 2, (int64_t[]){N, D});
}

/* ---- lists and names ------------------------------------------------------------------------- */

static void a_list_of_thresholds_is_one_argument_and_several_results(void **state)
{
    weft_model *m = one_layer("units=1 activation=sigmoid");
    weft_tensor in = xs(), y = weft_view(WEFT_F32, bits, 2, (int64_t[]){N, 1});
    static const double at[] = {0.3, 0.5, 0.62};
    float p[N];
    weft_trainer *t;
    weft_logs logs;

    (void)state;
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .loss = "bce",
                              .metrics = "Precision thresholds=[0.5,0.3, 0.62] , recall"),
                    &t));
    ok(weft_test_on_batch(t, &in, &y, NULL, &logs));
    predict(t, p);
    assert_int_equal(logs.n, 5);
    for (int k = 0; k < 3; k++) {
        double tp = 0, fp = 0;
        char name[32];

        for (int i = 0; i < N; i++) {
            tp += (double)p[i] > at[k] && bits[i] == 1;
            fp += (double)p[i] > at[k] && bits[i] == 0;
        }
        snprintf(name, sizeof name, "precision_%g", at[k]);
        assert_string_equal(logs.name[1 + k], name);
        assert_true(fabs(logs.value[1 + k] - (tp + fp > 0 ? tp / (tp + fp) : 0)) < 1e-12);
    }
    assert_string_equal(logs.name[4], "recall");
    weft_trainer_free(t);
    weft_model_free(m);
}

static void without_an_average_every_class_is_logged(void **state)
{
    weft_model *m = one_layer("units=3 activation=softmax");
    weft_tensor in = xs(), y = weft_view(WEFT_F32, hot, 2, (int64_t[]){N, C});
    float p[N][C];
    weft_trainer *t;
    weft_logs logs;
    double mean = 0;

    (void)state;
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .loss = "categorical_crossentropy",
                              .metrics = "F1Score, F1Score average=macro"),
                    &t));
    ok(weft_test_on_batch(t, &in, &y, NULL, &logs));
    predict(t, &p[0][0]);
    assert_int_equal(logs.n, 1 + C + 1);
    for (int k = 0; k < C; k++) {
        double tp = 0, fp = 0, fn = 0, f;
        char name[32];

        for (int i = 0; i < N; i++) {
            int best = 0;

            for (int c = 1; c < C; c++)
                best = p[i][c] > p[i][best] ? c : best;
            tp += best == k && id[i] == k;
            fp += best == k && id[i] != k;
            fn += best != k && id[i] == k;
        }
        f = 2 * tp / (2 * tp + fp + fn);
        mean += f / C;
        snprintf(name, sizeof name, "f1_score_%d", k);
        assert_string_equal(logs.name[1 + k], name);
        assert_true(fabs(logs.value[1 + k] - f) < 1e-6);
    }
    assert_string_equal(logs.name[1 + C], "f1_score");
    assert_true(fabs(logs.value[1 + C] - mean) < 1e-6);
    weft_trainer_free(t);
    weft_model_free(m);
}

static weft_ds samples(weft_data *d, bool weighted)
{
    weft_column col[3] = {
        {.name = "x"}, {.name = "y", .role = WEFT_LABEL}, {.name = "w", .role = WEFT_WEIGHT}};
    weft_tensor t[3] = {xs(), weft_view(WEFT_F32, bits, 2, (int64_t[]){N, 1}),
                        weft_view(WEFT_F32, weight, 1, (int64_t[]){N})};

    return weft_ds_tensors(d, weighted ? 3 : 2, col, t);
}

static void two_metrics_of_one_kind_have_names_of_their_own(void **state)
{
    static const char *const want[] = {"loss",      "auc",       "auc_1",   "auc_2",
                                       "loss_1",    "val_loss",  "val_auc", "val_auc_1",
                                       "val_auc_2", "val_loss_1"};
    weft_model *m = one_layer("units=1 activation=sigmoid");
    weft_trainer *t;
    weft_data *d;
    weft_history *h = NULL;
    weft_callback csv;
    char path[] = "/tmp/weft-measure-XXXXXX.csv", spec[64], line[512] = "";
    FILE *f;

    (void)state;
    close(mkstemps(path, 4));
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .loss = "bce", .metrics = "AUC, AUC curve=PR",
                              .weighted_metrics = "AUC, mse name=loss"),
                    &t));
    ok(weft_data_new(ctx, &d));
    snprintf(spec, sizeof spec, "CSVLogger filename=%s", path);
    ok(weft_callback_new(ctx, spec, &csv));
    ok(weft_fit(t, d, samples(d, true),
                WEFT_OPTS(weft_fit_opts, .epochs = 3, .validation_split = 0.2, .n_callbacks = 1,
                          .callbacks = &csv),
                &h));
    assert_int_equal(h->n_epochs, 3);
    assert_int_equal(h->n_names, 10);
    for (int i = 0; i < 10; i++)
        assert_string_equal(h->name[i], want[i]);
    weft_callback_free(&csv);
    f = fopen(path, "r");
    assert_non_null(fgets(line, sizeof line, f));
    assert_non_null(strstr(line, "auc_1"));
    fclose(f);
    remove(path);
    weft_history_free(h);
    weft_data_free(d);
    weft_trainer_free(t);
    weft_model_free(m);
}

static void wrong_metrics_are_told_by_compile(void **state)
{
    static const char *const cases[][2] = {
        {"accuracy, Precisoin", "did you mean 'Precision'"},
        {"Precision tresholds=[0.1,0.2]", "did you mean 'thresholds'"},
        {"Precision thresholds=[0.1,1.2]", "1.2"},
        {"F1Score average=most", "average=most"},
        {"AUC curve=XY", "curve=XY"},
        {"AUC num_thresholds=1", "num_thresholds=1"},
        {"TopKCategoricalAccuracy k=0", "k=0"},
        {"MeanIoU num_classes=0", "num_classes=0"},
        {"MeanIoU", "num_classes"},
        {"accuracy treshold=0.4", "did you mean 'threshold'"},
        {"mse name=\"a,b\"", "'a,b'"},
    };
    weft_model *m = one_layer("units=3 activation=softmax");

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int weighted = 0; weighted < 2; weighted++) {
            weft_trainer *t = NULL;

            assert_true(weft_compile(m,
                                     WEFT_OPTS(weft_compile_opts, .loss = "cce",
                                               .metrics = weighted ? NULL : cases[i][0],
                                               .weighted_metrics = weighted ? cases[i][0] : NULL),
                                     &t) < 0);
            assert_null(t);
            assert_true(said(cases[i][1]));
        }
    weft_model_free(m);
}

/* ---- weights of classes ---------------------------------------------------------------------- */

static const double class_weight[] = {0.5, 3};

static double weight_of(int c)
{
    return c < 2 ? class_weight[c] : 1;
}

/* Labels [n, T] against predictions [n, T, C]: each label weighs what its class does. */
static void classes_of_sequences_weigh_label_by_label(void **state)
{
    float p[N][T * C];
    double want[2] = {0};
    weft_model *m;
    weft_sym s;
    weft_tensor in = xs(), y = weft_view(WEFT_I32, seq, 2, (int64_t[]){N, T}),
                w = weft_view(WEFT_F32, weight, 1, (int64_t[]){N});

    (void)state;
    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(m, "Dense", "units=12", s);
    s = weft_apply(m, "Reshape", "target_shape=[4,3]", s);
    weft_model_output(m, weft_apply(m, "Softmax", "", s));
    for (int weighted = 0; weighted < 2; weighted++) {
        weft_trainer *t;
        weft_logs logs;

        ok(weft_compile(m,
                        WEFT_OPTS(weft_compile_opts, .loss = "sparse_categorical_crossentropy",
                                  .weighted_metrics = "accuracy", .n_class_weights = 2,
                                  .class_weights = class_weight),
                        &t));
        predict(t, &p[0][0]);
        for (int i = 0; i < N; i++)
            for (int k = 0; k < T; k++)
                want[weighted] += weight_of(seq[i][k]) * (weighted ? (double)weight[i] : 1) *
                                  -log((double)p[i][k * C + seq[i][k]]) / (N * T);
        ok(weft_train_on_batch(t, &in, &y, weighted ? &w : NULL, &logs));
        if (fabs(weft_logs_get(&logs, "loss") - want[weighted]) > 1e-5 * want[weighted])
            fail_msg("loss %.9g, not %.9g", weft_logs_get(&logs, "loss"), want[weighted]);
        weft_trainer_free(t);
    }
    weft_model_free(m);
}

/* The same for one output a step: labels [n, T] against [n, T, 1]. */
static void binary_classes_of_sequences_weigh_label_by_label(void **state)
{
    float p[N][T];
    int32_t bit[N][T];
    double want = 0, right = 0, all = 0;
    weft_model *m;
    weft_sym s;
    weft_trainer *t;
    weft_logs logs;
    weft_tensor in = xs(), y = weft_view(WEFT_I32, bit, 2, (int64_t[]){N, T});

    (void)state;
    for (int i = 0; i < N * T; i++)
        bit[i / T][i % T] = seq[i / T][i % T] % 2;
    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(m, "Dense", "units=4 activation=sigmoid", s);
    weft_model_output(m, weft_apply(m, "Reshape", "target_shape=[4,1]", s));
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .loss = "bce", .weighted_metrics = "accuracy",
                              .n_class_weights = 2, .class_weights = class_weight),
                    &t));
    predict(t, &p[0][0]);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < T; k++) {
            double q = (double)p[i][k], w = weight_of(bit[i][k]);

            want -= w * log(bit[i][k] ? q : 1 - q) / (N * T);
            right += w * ((q > 0.5) == bit[i][k]);
            all += w;
        }
    ok(weft_train_on_batch(t, &in, &y, NULL, &logs));
    assert_true(fabs(weft_logs_get(&logs, "loss") - want) < 1e-5 * want);
    assert_true(fabs(weft_logs_get(&logs, "accuracy") - right / all) < 1e-5);
    weft_trainer_free(t);
    weft_model_free(m);
}

/* Labels that are left out may be any number. */
static void ignored_labels_have_no_class(void **state)
{
    weft_model *m = one_layer("units=3 activation=softmax");
    int32_t some[N];
    float p[N][C];
    double want = 0, n = 0;
    weft_trainer *t;
    weft_logs logs;
    weft_tensor in = xs(), y = weft_view(WEFT_I32, some, 1, (int64_t[]){N});

    (void)state;
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts,
                              .loss = "sparse_categorical_crossentropy ignore_class=-1",
                              .n_class_weights = 2, .class_weights = class_weight),
                    &t));
    predict(t, &p[0][0]);
    for (int i = 0; i < N; i++) {
        some[i] = i % 5 ? id[i] : -1;
        if (some[i] < 0)
            continue;
        want -= weight_of(some[i]) * log((double)p[i][some[i]]);
        n++;
    }
    ok(weft_train_on_batch(t, &in, &y, NULL, &logs));
    assert_true(fabs(weft_logs_get(&logs, "loss") - want / n) < 1e-5 * want / n);
    weft_trainer_free(t);
    weft_model_free(m);
}

/* "class" of C classes, "value" of numbers, and a second one of classes where asked for. */
static weft_model *several(bool twice)
{
    weft_model *m;
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_output(m, weft_apply(m, "Dense", "name=value units=1", s));
    weft_model_output(m, weft_apply(m, "Dense", "name=class units=3 activation=softmax", s));
    if (twice)
        weft_model_output(m, weft_apply(m, "Dense", "name=other units=3 activation=softmax", s));
    return m;
}

static void class_weights_are_for_the_output_of_classes_alone(void **state)
{
    static const char *const loss[] = {"mse; scce", "mse; scce; scce"};

    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        weft_model *m = several(twice);
        weft_tensor in = xs(), y[3] = {weft_view(WEFT_F32, value, 2, (int64_t[]){N, 1}),
                                       weft_view(WEFT_I32, id, 1, (int64_t[]){N}),
                                       weft_view(WEFT_I32, id, 1, (int64_t[]){N})};
        weft_logs logs;
        double plain[3], weighed[3], want = 0;
        weft_tensor p[3] = {{.data = NULL}, {.data = NULL}, {.data = NULL}};
        weft_trainer *t;

        ok(weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = loss[twice]), &t));
        ok(weft_train_on_batch(t, &in, y, NULL, &logs));
        plain[0] = weft_logs_get(&logs, "value_loss");
        plain[1] = weft_logs_get(&logs, "class_loss");
        plain[2] = twice ? weft_logs_get(&logs, "other_loss") : 0;
        weft_trainer_free(t);
        ok(weft_compile(m,
                        WEFT_OPTS(weft_compile_opts, .loss = loss[twice], .n_class_weights = 2,
                                  .class_weights = class_weight,
                                  .class_weights_output = twice ? "class" : NULL),
                        &t));
        ok(weft_predict_on_batch(t, &in, p));
        for (int i = 0; i < N; i++)
            want -= weight_of(id[i]) * log((double)((float *)p[1].data)[i * C + id[i]]) / N;
        ok(weft_train_on_batch(t, &in, y, NULL, &logs));
        weighed[0] = weft_logs_get(&logs, "value_loss");
        weighed[1] = weft_logs_get(&logs, "class_loss");
        weighed[2] = twice ? weft_logs_get(&logs, "other_loss") : 0;
        assert_true(weighed[0] == plain[0] && weighed[2] == plain[2]);
        assert_true(fabs(weighed[1] - want) < 1e-5 && fabs(weighed[1] - plain[1]) > 1e-3);
        weft_trainer_free(t);
        weft_model_free(m);
    }
}

static void class_weights_that_fit_no_output_are_told(void **state)
{
    static const struct {
        const char *loss, *output, *part;
    } cases[] = {
        {"mse; mae; huber", NULL, "of values, not of classes"},
        {"mse; scce; scce", NULL, "class_weights_output"},
        {"mse; scce; scce", "value", "values, not classes"},
        {"mse; scce; scce", "klass", "no output 'klass'"},
    };
    weft_model *m = several(true);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_trainer *t = NULL;

        assert_true(weft_compile(m,
                                 WEFT_OPTS(weft_compile_opts, .loss = cases[i].loss,
                                           .n_class_weights = 2, .class_weights = class_weight,
                                           .class_weights_output = cases[i].output),
                                 &t) < 0);
        assert_null(t);
        assert_true(said(cases[i].part));
    }
    weft_model_free(m);
}

/* ---- weights of samples ---------------------------------------------------------------------- */

/* Training, validation and evaluation each have weights or none, and the numbers are those of that
 * data. */
static void data_to_measure_with_may_have_weights_or_none(void **state)
{
    weft_model *m = one_layer("units=1 activation=sigmoid");

    (void)state;
    for (int how = 0; how < 4; how++) {
        bool fit_weighted = how & 1, val_weighted = how & 2;
        weft_trainer *t;
        weft_data *d;
        weft_history *h = NULL;
        weft_logs logs;
        float p[N];
        double want[2] = {0}, right[2] = {0}, all[2] = {0};

        ok(weft_compile(
            m, WEFT_OPTS(weft_compile_opts, .loss = "bce", .weighted_metrics = "accuracy"), &t));
        ok(weft_data_new(ctx, &d));
        ok(weft_fit(t, d, samples(d, fit_weighted),
                    WEFT_OPTS(weft_fit_opts, .epochs = 2, .validation = samples(d, val_weighted)),
                    &h));
        predict(t, p);
        for (int i = 0; i < N; i++)
            for (int w = 0; w < 2; w++) {
                double v = w ? (double)weight[i] : 1, q = (double)p[i];

                want[w] -= v * log(bits[i] == 1 ? q : 1 - q) / N;
                right[w] += v * ((q > 0.5) == (bits[i] == 1));
                all[w] += v;
            }
        assert_true(fabs(h->value[h->n_names + 2] - want[val_weighted]) < 1e-5);
        for (int w = 0; w < 2; w++) {
            ok(weft_evaluate(t, d, samples(d, w), NULL, &logs));
            assert_true(fabs(weft_logs_get(&logs, "loss") - want[w]) < 1e-5);
            assert_true(fabs(weft_logs_get(&logs, "accuracy") - right[w] / all[w]) < 1e-5);
        }
        weft_history_free(h);
        weft_trainer_free(t);
        weft_data_free(d);
    }
    weft_model_free(m);
}

struct watcher {
    weft_data *d;
    weft_ds s;
    int n;
};

static weft_status measure(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct watcher *w = arg;
    double before = weft_logs_get(logs, "loss");
    weft_tensor in = xs(), y = weft_view(WEFT_F32, bits, 2, (int64_t[]){N, 1});
    weft_logs own;

    (void)batch;
    w->n++;
    ok(weft_evaluate(t, w->d, w->s, NULL, &own));
    assert_true(weft_logs_get(&own, "loss") != before);
    ok(weft_test_on_batch(t, &in, &y, NULL, NULL));
    assert_true(weft_logs_get(logs, "loss") == before);
    return WEFT_OK;
}

/* What a callback measures is not part of the epoch that it looks at. */
static void measuring_in_a_callback_leaves_the_epoch_alone(void **state)
{
    weft_model *m = one_layer("units=1 activation=sigmoid");
    weft_history *h[2];

    (void)state;
    for (int watched = 0; watched < 2; watched++) {
        struct watcher w = {.n = 0};
        weft_callback cb = {.size = sizeof cb, .arg = &w, .name = "watch", .batch_end = measure};
        weft_trainer *t;

        ok(weft_data_new(ctx, &w.d));
        w.s = samples(w.d, true);
        ok(weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "bce", .metrics = "accuracy, AUC"),
                        &t));
        ok(weft_fit(t, w.d, samples(w.d, false),
                    WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 16, .n_callbacks = watched,
                              .callbacks = &cb),
                    &h[watched]));
        assert_int_equal(w.n, watched ? 8 : 0);
        weft_trainer_free(t);
        weft_data_free(w.d);
    }
    assert_memory_equal(h[0]->value, h[1]->value, 2 * 3 * sizeof(double));
    weft_history_free(h[0]);
    weft_history_free(h[1]);
    weft_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_thresholds_is_one_argument_and_several_results),
        cmocka_unit_test(without_an_average_every_class_is_logged),
        cmocka_unit_test(two_metrics_of_one_kind_have_names_of_their_own),
        cmocka_unit_test(wrong_metrics_are_told_by_compile),
        cmocka_unit_test(classes_of_sequences_weigh_label_by_label),
        cmocka_unit_test(binary_classes_of_sequences_weigh_label_by_label),
        cmocka_unit_test(ignored_labels_have_no_class),
        cmocka_unit_test(class_weights_are_for_the_output_of_classes_alone),
        cmocka_unit_test(class_weights_that_fit_no_output_are_told),
        cmocka_unit_test(data_to_measure_with_may_have_weights_or_none),
        cmocka_unit_test(measuring_in_a_callback_leaves_the_epoch_alone),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
