/* Metrics: names, arguments, what "accuracy" is, merging of sums. Numbers are in test/golden. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "weft/weft.h"

struct rig {
    weft_ctx *ctx;
    struct wf_arena arena;
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    *state = r;
    if (weft_ctx_new(NULL, &r->ctx))
        return -1;
    wf_arena_init(&r->arena, r->ctx);
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    wf_arena_free(&r->arena);
    weft_ctx_free(r->ctx);
    free(r);
    return 0;
}

static struct wf_type type(weft_dtype t, int rank, int64_t last)
{
    return wf_type_of(t, rank, (int64_t[]){WEFT_ANY, rank == 2 ? last : 7, last});
}

static weft_status init(struct rig *r, const char *spec, struct wf_metric *m)
{
    struct wf_type y = type(WEFT_F32, 2, 4), p = type(WEFT_F32, 2, 4);

    return wf_metric_init(NULL, m, &r->arena, spec, &y, &p);
}

static double one_result(const struct wf_metric *m, const double *sums)
{
    double out[4] = {0};

    assert_true(m->n_results <= 4);
    wf_metric_result(m, sums, out);
    return out[0];
}

static bool said(const char *part)
{
    return strstr(weft_error(), part) != NULL;
}

static const char *required(const char *name)
{
    return strstr(name, "PrecisionAt")     ? "recall=0.5"
           : strstr(name, "RecallAt")      ? "precision=0.5"
           : strstr(name, "SensitivityAt") ? "specificity=0.5"
           : strstr(name, "SpecificityAt") ? "sensitivity=0.5"
           : strstr(name, "MeanIoU")       ? "num_classes=4"
           : strstr(name, "OneHotIoU") || !strcmp(name, "IoU")
               ? "num_classes=4 target_class_ids=[0]"
               : "";
}

static void every_row_builds(void **state)
{
    struct rig *r = *state;
    const char *name, *attrs, *doc;
    int n = 0;

    for (; wf_metric_at(n, &name, &attrs, &doc); n++) {
        bool sparse = !strncmp(name, "Sparse", 6) || !strcmp(name, "Perplexity"),
             flat = !strcmp(name, "Accuracy");
        struct wf_type y = type(sparse ? WEFT_I32 : WEFT_F32, sparse ? 1 : 2, 4),
                       p = type(flat ? WEFT_I32 : WEFT_F32, 2, 4);
        weft_val vy, vp, v = WEFT_NIL;
        struct wf_metric m;
        weft_graph *g;
        char spec[128];

        assert_true(*name && *doc && attrs);
        snprintf(spec, sizeof spec, "%s %s", name, required(name));
        if (wf_metric_init(NULL, &m, &r->arena, spec, &y, &p))
            fail_msg("%s: %s", spec, weft_error());
        assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
        vy = weft_placeholder(g, "y", y.dtype, y.rank, y.dim);
        vp = weft_placeholder(g, "p", p.dtype, p.rank, p.dim);
        if (wf_metric_build(g, &m, vy, vp, WEFT_NIL, &v))
            fail_msg("%s: %s", spec, weft_error());
        assert_int_equal(wf_val_type_of(g, v)->dtype, WEFT_F32);
        assert_int_equal(wf_val_type_of(g, v)->dim[0], m.n_state);
        weft_graph_free(g);
    }
    assert_true(n >= 48);
}

static void accuracy_is_the_one_that_fits(void **state)
{
    static const struct {
        int y_rank, p_rank;
        int64_t y_last, p_last;
        const char *want;
    } cases[] = {
        {2, 2, 1, 1, "BinaryAccuracy"},
        {1, 2, 0, 1, "BinaryAccuracy"},
        {1, 2, 0, 10, "SparseCategoricalAccuracy"},
        {2, 2, 1, 10, "SparseCategoricalAccuracy"},
        {2, 3, 7, 10, "SparseCategoricalAccuracy"},
        {2, 2, 10, 10, "CategoricalAccuracy"},
    };
    struct rig *r = *state;

    for (int i = 0; i < WF_COUNT(cases); i++) {
        struct wf_type y = type(WEFT_F32, cases[i].y_rank, cases[i].y_last),
                       p = type(WEFT_F32, cases[i].p_rank, cases[i].p_last);
        const char *name, *attrs, *doc;
        struct wf_metric m;

        assert_int_equal(wf_metric_init(NULL, &m, &r->arena, i % 2 ? "acc" : "accuracy", &y, &p),
                         WEFT_OK);
        assert_string_equal(m.name, i % 2 ? "acc" : "accuracy");
        assert_int_equal(wf_metric_direction(&m), 1);
        for (int k = 0; wf_metric_at(k, &name, &attrs, &doc); k++)
            if (!strcmp(name, cases[i].want)) {
                struct wf_metric named;

                assert_int_equal(wf_metric_init(NULL, &named, &r->arena, name, &y, &p), WEFT_OK);
                assert_ptr_equal(named.kind, m.kind);
            }
    }
}

static void names_in_logs_are_as_in_keras_or_as_given(void **state)
{
    static const char *const cases[][2] = {
        {"AUC num_thresholds=20", "auc"},           {"AUC curve=PR name=auc_pr", "auc_pr"},
        {"MeanIoU num_classes=3", "mean_io_u"},     {"mse", "mse"},
        {"MeanSquaredError", "mean_squared_error"}, {"mean_squared_error", "mean_squared_error"},
    };
    struct rig *r = *state;

    for (int i = 0; i < WF_COUNT(cases); i++) {
        struct wf_metric m;

        assert_int_equal(init(r, cases[i][0], &m), WEFT_OK);
        assert_string_equal(m.name, cases[i][1]);
    }
}

static void wrong_names_and_arguments_are_told(void **state)
{
    static const struct {
        const char *spec;
        weft_status st;
        const char *part;
    } cases[] = {
        {"Precisoin", WEFT_ENOENT, "did you mean 'Precision'"},
        {"mse name=\"a,b\"", WEFT_EINVAL, "'a,b' is not a name"},
        {"mse name=\"a\\22b\"", WEFT_EINVAL, "is not a name"},
        {"mse name=\"a\\0ab\"", WEFT_EINVAL, "is not a name"},
        {"", WEFT_ENOENT, "no metric"},
        {"Precision treshold=0.3", WEFT_ENOENT, "did you mean 'thresholds'"},
        {"Precision thresholds=[0.2,1.5]", WEFT_EINVAL, "1.5"},
        {"Precision class_id=4", WEFT_ERANGE, "class_id=4"},
        {"Recall top_k=5", WEFT_ERANGE, "top_k=5"},
        {"AUC num_thresholds=1", WEFT_ERANGE, "num_thresholds=1"},
        {"AUC num_thresholds=-3", WEFT_ERANGE, "num_thresholds=-3"},
        {"AUC curve=XY", WEFT_EINVAL, "curve=XY"},
        {"AUC summation_method=all", WEFT_EINVAL, "summation_method=all"},
        {"AUC num_labels=4", WEFT_EINVAL, "multi_label"},
        {"AUC multi_label=true label_weights=[1]", WEFT_EINVAL, "4 labels"},
        {"PrecisionAtRecall", WEFT_EINVAL, "recall"},
        {"PrecisionAtRecall recall=2", WEFT_EINVAL, "recall=2"},
        {"PrecisionAtRecall recall=0.5 num_thresholds=0", WEFT_ERANGE, "num_thresholds=0"},
        {"F1Score average=most", WEFT_EINVAL, "average=most"},
        {"FBetaScore beta=0", WEFT_EINVAL, "beta=0"},
        {"F1Score threshold=0", WEFT_EINVAL, "threshold=0"},
        {"MeanIoU num_classes=0", WEFT_ERANGE, "num_classes=0"},
        {"IoU num_classes=3 target_class_ids=[3]", WEFT_ERANGE, "3 is not in"},
        {"TopKCategoricalAccuracy k=0", WEFT_EINVAL, "k=0"},
        {"R2Score class_aggregation=no", WEFT_EINVAL, "class_aggregation=no"},
        {"R2Score num_regressors=-1", WEFT_EINVAL, "num_regressors=-1"},
    };
    struct rig *r = *state;

    for (int i = 0; i < WF_COUNT(cases); i++) {
        struct wf_metric m = {.n_state = 99};

        if (init(r, cases[i].spec, &m) != cases[i].st || !said(cases[i].part))
            fail_msg("%s: \"%s\"", cases[i].spec, weft_error());
        assert_int_equal(m.n_state, 99);
    }
}

static void nothing_seen_is_zero_not_nan(void **state)
{
    static const char *const specs[] = {
        "mse", "Precision", "Recall", "AUC", "F1Score", "AUC curve=PR", "MeanIoU num_classes=3"};
    struct rig *r = *state;

    for (int i = 0; i < WF_COUNT(specs); i++) {
        struct wf_metric m;
        double *sums;

        assert_int_equal(init(r, specs[i], &m), WEFT_OK);
        sums = calloc((size_t)m.n_state, sizeof *sums);
        assert_true(one_result(&m, sums) == 0);
        free(sums);
    }
}

/* Sums of the metric over n rows of scores. */
static void add_rows(struct rig *r, const struct wf_metric *m, int64_t n, float *y, float *p,
                     double *sums)
{
    weft_tensor feeds[2] = {weft_view(WEFT_F32, y, 1, &n), weft_view(WEFT_F32, p, 1, &n)},
                out = {0};
    int64_t any = WEFT_ANY;
    weft_val in[2], v;
    weft_graph *g;
    weft_fn *fn;

    assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
    in[0] = weft_placeholder(g, "y", WEFT_F32, 1, &any);
    in[1] = weft_placeholder(g, "p", WEFT_F32, 1, &any);
    assert_int_equal(wf_metric_build(g, m, in[0], in[1], WEFT_NIL, &v), WEFT_OK);
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in, .n_fetches = 1,
                                           .fetches = &v),
                                 &fn),
                     WEFT_OK);
    if (weft_fn_run(fn, feeds, &out))
        fail_msg("%s", weft_error());
    for (int64_t i = 0; i < m->n_state; i++)
        sums[i] += (double)((float *)out.data)[i];
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void parts_of_a_batch_merge_to_the_whole(void **state)
{
    static const char *const specs[] = {"AUC", "AUC curve=PR", "Precision",
                                        "RecallAtPrecision precision=0.6"};
    float y[8] = {0, 1, 1, 0, 1, 0, 1, 1}, p[8] = {.1f, .9f, .4f, .35f, .8f, .7f, .55f, .5f};
    struct wf_type t = wf_type_of(WEFT_F32, 1, (int64_t[]){WEFT_ANY});
    struct rig *r = *state;

    for (int i = 0; i < WF_COUNT(specs); i++) {
        struct wf_metric m;
        double *whole, *parts;

        assert_int_equal(wf_metric_init(NULL, &m, &r->arena, specs[i], &t, &t), WEFT_OK);
        whole = calloc((size_t)m.n_state, sizeof *whole);
        parts = calloc((size_t)m.n_state, sizeof *parts);
        add_rows(r, &m, 8, y, p, whole);
        add_rows(r, &m, 3, y, p, parts);
        add_rows(r, &m, 5, y + 3, p + 3, parts);
        assert_memory_equal(whole, parts, (size_t)m.n_state * sizeof *whole);
        assert_true(one_result(&m, whole) > 0.4);
        free(whole);
        free(parts);
    }
}

static void masks_weigh_means_and_nothing_else(void **state)
{
    struct wf_type t = wf_type_of(WEFT_F32, 3, (int64_t[]){WEFT_ANY, 4, 2});
    struct rig *r = *state;
    struct wf_metric mean, curve;
    weft_graph *g = NULL;
    weft_val mask, weight, v;

    assert_int_equal(wf_metric_init(NULL, &mean, &r->arena, "mse", &t, &t), WEFT_OK);
    assert_int_equal(wf_metric_init(NULL, &curve, &r->arena, "Precision", &t, &t), WEFT_OK);
    assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
    mask = weft_placeholder(g, "m", WEFT_BOOL, 2, (int64_t[]){WEFT_ANY, 4});
    weight = weft_placeholder(g, "w", WEFT_F32, 1, (int64_t[]){WEFT_ANY});
    assert_int_equal(wf_metric_weight(g, &mean, weight, WEFT_NIL).id, weight.id);
    assert_int_equal(wf_metric_weight(g, &curve, weight, mask).id, weight.id);
    v = wf_metric_weight(g, &mean, weight, mask);
    assert_int_equal(wf_val_type_of(g, v)->rank, 2);
    assert_int_equal(wf_val_type_of(g, v)->dtype, WEFT_F32);
    v = wf_metric_weight(g, &mean, WEFT_NIL, mask);
    assert_int_equal(wf_val_type_of(g, v)->dtype, WEFT_F32);
    assert_int_equal(weft_graph_status(g), WEFT_OK);
    weft_graph_free(g);
}

/* The area under the ROC curve is the share of pairs in the right order. */
static void auc_is_the_share_of_ordered_pairs(void **state)
{
    float y[100], p[100];
    struct wf_type t = wf_type_of(WEFT_F32, 1, (int64_t[]){WEFT_ANY});
    struct rig *r = *state;
    double pairs = 0, right = 0, *sums;
    struct wf_metric m;

    for (int i = 0; i < 100; i++) {
        y[i] = (float)((i * 7) % 3 == 0);
        p[i] = (float)((i * 37) % 100) / 100 * 0.8f + 0.2f * y[i];
    }
    for (int i = 0; i < 100; i++)
        for (int k = 0; k < 100; k++)
            if (y[i] > y[k]) {
                pairs++;
                right += p[i] > p[k] ? 1 : p[i] == p[k] ? 0.5 : 0;
            }
    assert_int_equal(wf_metric_init(NULL, &m, &r->arena, "AUC num_thresholds=2000", &t, &t),
                     WEFT_OK);
    sums = calloc((size_t)m.n_state, sizeof *sums);
    add_rows(r, &m, 100, y, p, sums);
    assert_true(fabs(one_result(&m, sums) - right / pairs) < 1e-3);
    free(sums);
}

/* Six million weights of 0.3: one by one in f32 they would be 0.25 or 0.375 by then. */
static void counts_of_many_labels_are_right(void **state)
{
    static const char *const specs[] = {"TruePositives", "MeanIoU num_classes=3"};
    enum { MANY = 6000000 };
    int64_t n = MANY, any = WEFT_ANY;
    float *y = malloc(MANY * sizeof *y), *p = malloc(MANY * sizeof *p),
          *w = malloc(MANY * sizeof *w);
    struct wf_type t = wf_type_of(WEFT_F32, 1, &any);
    struct rig *r = *state;

    for (int i = 0; i < MANY; i++) {
        y[i] = 1;
        p[i] = i % 4 ? 1 : 2;
        w[i] = 0.3f;
    }
    for (int i = 0; i < 2; i++) {
        weft_tensor feeds[3] = {weft_view(WEFT_F32, y, 1, &n), weft_view(WEFT_F32, p, 1, &n),
                                weft_view(WEFT_F32, w, 1, &n)},
                    out = {0};
        weft_val in[3], v;
        struct wf_metric m;
        weft_graph *g;
        weft_fn *fn;
        double sum = 0;

        assert_int_equal(wf_metric_init(NULL, &m, &r->arena, specs[i], &t, &t), WEFT_OK);
        assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
        in[0] = weft_placeholder(g, "y", WEFT_F32, 1, &any);
        in[1] = weft_placeholder(g, "p", WEFT_F32, 1, &any);
        in[2] = weft_placeholder(g, "w", WEFT_F32, 1, &any);
        assert_int_equal(wf_metric_build(g, &m, in[0], in[1], in[2], &v), WEFT_OK);
        assert_int_equal(weft_fn_new(g,
                                     WEFT_OPTS(weft_fn_opts, .n_feeds = 3, .feeds = in,
                                               .n_fetches = 1, .fetches = &v),
                                     &fn),
                         WEFT_OK);
        assert_int_equal(weft_fn_run(fn, feeds, &out), WEFT_OK);
        for (int64_t k = 0; k < m.n_state; k++)
            sum += (double)((float *)out.data)[k];
        if (fabs(sum / ((double)0.3f * MANY) - 1) > 1e-5)
            fail_msg("%s: the weights add up to %.9g", specs[i], sum);
        weft_fn_free(fn);
        weft_graph_free(g);
    }
    free(y);
    free(p);
    free(w);
}

/* e to the cross-entropy: 4 when all of four classes are alike, 1 / p of the geometric mean
 * else. */
static void perplexity_is_the_number_of_classes_in_doubt(void **state)
{
    struct wf_type ty = wf_type_of(WEFT_I32, 1, (int64_t[]){WEFT_ANY}),
                   tp = wf_type_of(WEFT_F32, 2, (int64_t[]){WEFT_ANY, 4});
    int32_t y[3] = {0, 2, 3};
    float even[12] = {0},
          p[12] = {.5f, .25f, .125f, .125f, .25f, .25f, .25f, .25f, .125f, .125f, .25f, .5f};
    struct rig *r = *state;
    struct wf_metric m;

    for (int i = 0; i < 2; i++) {
        double sums[2] = {0}, want = i ? cbrt(2 * 4 * 2) : 4;
        weft_graph *g = NULL;
        weft_fn *fn = NULL;
        weft_val in[2], v = WEFT_NIL;
        weft_tensor out = {0}, feeds[2] = {weft_view(WEFT_I32, y, 1, (int64_t[]){3}),
                                           weft_view(WEFT_F32, i ? p : even, 2, (int64_t[]){3, 4})};

        assert_int_equal(wf_metric_init(NULL, &m, &r->arena,
                                        i ? "Perplexity" : "perplexity from_logits=true", &ty, &tp),
                         WEFT_OK);
        assert_string_equal(m.name, "perplexity");
        assert_int_equal(wf_metric_direction(&m), -1);
        assert_int_equal(weft_graph_new(r->ctx, &g), WEFT_OK);
        in[0] = weft_placeholder(g, "y", WEFT_I32, 1, ty.dim);
        in[1] = weft_placeholder(g, "p", WEFT_F32, 2, tp.dim);
        assert_int_equal(wf_metric_build(g, &m, in[0], in[1], WEFT_NIL, &v), WEFT_OK);
        assert_int_equal(weft_fn_new(g,
                                     WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in,
                                               .n_fetches = 1, .fetches = &v),
                                     &fn),
                         WEFT_OK);
        assert_int_equal(weft_fn_run(fn, feeds, &out), WEFT_OK);
        sums[0] = (double)((float *)out.data)[0];
        sums[1] = (double)((float *)out.data)[1];
        assert_true(fabs(one_result(&m, sums) - want) < 1e-5);
        weft_fn_free(fn);
        weft_graph_free(g);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_row_builds),
        TEST(accuracy_is_the_one_that_fits),
        TEST(names_in_logs_are_as_in_keras_or_as_given),
        TEST(wrong_names_and_arguments_are_told),
        TEST(nothing_seen_is_zero_not_nan),
        TEST(parts_of_a_batch_merge_to_the_whole),
        TEST(masks_weigh_means_and_nothing_else),
        TEST(auc_is_the_share_of_ordered_pairs),
        TEST(counts_of_many_labels_are_right),
        TEST(perplexity_is_the_number_of_classes_in_doubt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
