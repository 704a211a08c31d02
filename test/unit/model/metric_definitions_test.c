/* Every metric against its plain definition, written once more here in f64: random data, options,
 * weights, batches of different sizes, ties, scores that equal a threshold, classes that do not
 * occur. Those that are means of losses: loss_definitions_test.c. */
#include "plain.h"

/* ---- accuracies ------------------------------------------------------------------------------ */

static int64_t best(const double *v, int64_t n)
{
    int64_t at = 0;

    for (int64_t i = 1; i < n; i++)
        at = v[i] > v[at] ? i : at;
    return at;
}

static bool among_best(const double *v, int64_t n, int64_t class, int64_t k)
{
    int64_t larger = 0;

    for (int64_t i = 0; i < n; i++)
        larger += v[i] > v[class];
    return larger < k;
}

static void accuracies(void)
{
    static const char *const plain[] = {"SparseCategoricalAccuracy", "CategoricalAccuracy"};
    static const char *const top[] = {"SparseTopKCategoricalAccuracy", "TopKCategoricalAccuracy"};
    bool hot = below(2);
    int k = 1 + below(4);
    double right = 0, in_top = 0, all = 0;
    struct data d = {0};
    char spec[64];

    shape(&d, below(2), 2 + below(4), !hot);
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = (double)below(6) / 8; /* ties */
    for (int64_t i = 0; i < d.n * d.t; i++) {
        int64_t class = below((int)d.c - (d.c > 2 && below(2)));

        if (hot)
            d.y[i * d.c + class] = 1;
        else
            d.y[i] = (double)class;
        right += d.w[i] * (best(d.p + i * d.c, d.c) == class);
        in_top += d.w[i] * among_best(d.p + i * d.c, d.c, class, k);
        all += d.w[i];
    }
    d.y_type = hot || below(2) ? WEFT_F32 : below(2) ? WEFT_I32 : WEFT_I64;
    check(plain[hot], &d, 1, (double[]){ratio(right, all)});
    check("accuracy", &d, 1, (double[]){ratio(right, all)});
    wf_snprintf(spec, sizeof spec, "%s k=%d", top[hot], k);
    check(spec, &d, 1, (double[]){ratio(in_top, all)});
}

/* ---- decisions at thresholds ----------------------------------------------------------------- */

struct counts {
    double tp, fp, tn, fn;
};

/* Of scores above a threshold; class: of one column (-1: all); used: which scores count (NULL:
 * all). */
static struct counts count(const struct data *d, double threshold, int64_t class, const bool *used)
{
    struct counts c = {0};

    for (int64_t i = 0; i < n_scores(d); i++) {
        double w = d->w[i / d->c];
        bool yes = d->p[i] > threshold && (!used || used[i]);

        if (class >= 0 && i % d->c != class)
            continue;
        c.tp += w * (yes && d->y[i] != 0);
        c.fp += w * (yes && d->y[i] == 0);
        c.fn += w * (!yes && d->y[i] != 0);
        c.tn += w * (!yes && d->y[i] == 0);
    }
    return c;
}

static void bits_and_scores(struct data *d, bool seq, int64_t c, bool grid)
{
    int rare = 1 + below(6);

    shape(d, seq, c, false);
    for (int64_t i = 0; i < n_scores(d); i++) {
        d->y[i] = below(rare) == 0;
        d->p[i] = grid ? (double)below(17) / 16 : real();
    }
    d->y_type = below(2) ? WEFT_F32 : below(2) ? WEFT_I32 : WEFT_BOOL;
}

static double quantity(int which, struct counts c)
{
    switch (which) {
    case 0: return c.tp;
    case 1: return c.tn;
    case 2: return c.fp;
    case 3: return c.fn;
    case 4: return ratio(c.tp, c.tp + c.fp);
    default: return ratio(c.tp, c.tp + c.fn);
    }
}

static void at_thresholds(void)
{
    static const char *const names[] = {"TruePositives",  "TrueNegatives", "FalsePositives",
                                        "FalseNegatives", "Precision",     "Recall"};
    int which = below(6), n = 1 + below(4);
    int64_t class = -1;
    double at[4], want[4], right = 0, all = 0;
    struct data d = {0};
    char spec[160], list[64] = "", more[32] = "";

    bits_and_scores(&d, below(2), 1 + below(4), true);
    for (int i = 0; i < n; i++) { /* all different, in no order */
        bool again = true;

        while (again) {
            at[i] = (double)below(17) / 16;
            again = false;
            for (int k = 0; k < i; k++)
                again |= at[k] == at[i];
        }
        wf_snprintf(list + strlen(list), sizeof list - strlen(list), "%s%g", i ? "," : "", at[i]);
    }
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++)
            if (at[k] < at[i]) {
                double swap = at[i];

                at[i] = at[k];
                at[k] = swap;
            }
    if (which >= 4 && below(2)) {
        class = below((int)d.c);
        wf_snprintf(more, sizeof more, " class_id=%d", (int)class);
    }
    for (int i = 0; i < n; i++)
        want[i] = quantity(which, count(&d, at[i], class, NULL));
    wf_snprintf(spec, sizeof spec, "%s thresholds=[%s]%s", names[which], list, more);
    check(spec, &d, n, want);
    wf_snprintf(spec, sizeof spec, "%s%s", names[which], more);
    want[0] = quantity(which, count(&d, 0.5, class, NULL));
    check(spec, &d, 1, want);
    for (int64_t i = 0; i < n_scores(&d); i++) {
        right += d.w[i / d.c] * ((d.p[i] > at[0]) == (d.y[i] != 0));
        all += d.w[i / d.c];
    }
    wf_snprintf(spec, sizeof spec, "BinaryAccuracy threshold=%g", at[0]);
    check(spec, &d, 1, (double[]){ratio(right, all)});
}

/* The k largest scores of each row count, the first ones of equals. */
static void with_top_k(void)
{
    bool used[MAX_ITEMS] = {false};
    struct data d = {0};
    char spec[64];
    int which = 4 + below(2), k;
    int64_t class;

    bits_and_scores(&d, false, 2 + below(4), true);
    k = 1 + below((int)d.c);
    class = below(2) ? below((int)d.c) : -1;
    for (int64_t r = 0; r < d.n; r++)
        for (int i = 0; i < k; i++) {
            int64_t at = -1;

            for (int64_t c = 0; c < d.c; c++)
                if (!used[r * d.c + c] && (at < 0 || d.p[r * d.c + c] > d.p[r * d.c + at]))
                    at = c;
            used[r * d.c + at] = true;
        }
    wf_snprintf(spec, sizeof spec, "%s top_k=%d", which == 4 ? "Precision" : "Recall", k);
    if (class >= 0)
        wf_snprintf(spec + strlen(spec), sizeof spec - strlen(spec), " class_id=%d", (int)class);
    check(spec, &d, 1, (double[]){quantity(which, count(&d, -1, class, used))});
}

/* One rate where another is at least so large, the best over evenly spaced thresholds. */
static void one_at_the_other(void)
{
    static const char *const names[] = {"PrecisionAtRecall recall", "RecallAtPrecision precision",
                                        "SensitivityAtSpecificity specificity",
                                        "SpecificityAtSensitivity sensitivity"};
    int which = below(4), n = 2 + below(40);
    double limit = (double)below(9) / 8, most = 0;
    struct data d = {0};
    char spec[96];

    bits_and_scores(&d, below(2), 1 + below(3), false);
    for (int i = 0; i < n; i++) {
        struct counts c = count(&d, (double)i / (n - 1), -1, NULL);
        double recall = ratio(c.tp, c.tp + c.fn), precision = ratio(c.tp, c.tp + c.fp),
               specificity = ratio(c.tn, c.tn + c.fp);
        double given = which == 1   ? precision
                       : which == 2 ? specificity
                                    : recall,
               got = which == 0   ? precision
                     : which == 3 ? specificity
                                  : recall;

        if (given >= limit - 1e-9)
            most = fmax(most, got);
    }
    wf_snprintf(spec, sizeof spec, "%s=%g num_thresholds=%d", names[which], limit, n);
    check(spec, &d, 1, &most);
}

/* The area under points at thresholds, from the highest down; of PR by Davis and Goadrich. */
static double area(const struct data *d, int64_t class, int curve, int how, int n, const double *at)
{
    double sum = 0, x0 = 0, y0 = 0;
    struct counts above = {0};

    for (int i = n - 1; i >= 0; i--) {
        struct counts c = count(d, at[i], class, NULL);
        double pos = c.tp + c.fn, x, y;

        x = curve == 0 ? ratio(c.fp, c.fp + c.tn) : ratio(c.tp, pos);
        y = curve == 0 ? ratio(c.tp, pos) : ratio(c.tp, c.tp + c.fp);
        if (i < n - 1 && curve == 1 && how == 0) {
            double dtp = c.tp - above.tp, dp = c.tp + c.fp - above.tp - above.fp,
                   slope = dp > 0 ? dtp / dp : 0, from = above.tp + above.fp,
                   intercept = above.tp - slope * from,
                   grown = from > 0 && c.tp + c.fp > 0 ? log((c.tp + c.fp) / from) : 0;

            sum += ratio(slope * (dtp + intercept * grown), pos);
        } else if (i < n - 1) {
            sum += (x - x0) * (how == 0 ? (y + y0) / 2 : how == 1 ? fmin(y, y0) : fmax(y, y0));
        }
        x0 = x;
        y0 = y;
        above = c;
    }
    return sum;
}

static void areas(void)
{
    static const char *const curves[] = {"ROC", "PR"}, *const ways[] = {"interpolation", "minoring",
                                                                        "majoring"};
    int curve = below(2), how = below(3), n = 3 + below(30);
    bool labels = below(2);
    double at[40], want = 0;
    struct data d = {0};
    char spec[128];

    bits_and_scores(&d, false, 1 + below(3), false);
    for (int i = 0; i < n; i++)
        at[i] = i == 0 ? -1e-7 : i == n - 1 ? 1 + 1e-7 : (double)i / (n - 1);
    if (labels)
        for (int64_t c = 0; c < d.c; c++)
            want += area(&d, c, curve, how, n, at) / (double)d.c;
    else
        want = area(&d, -1, curve, how, n, at);
    wf_snprintf(spec, sizeof spec,
                "AUC curve=%s summation_method=%s num_thresholds=%d multi_label=%s", curves[curve],
                ways[how], n, labels ? "true" : "false");
    check(spec, &d, 1, &want);
}

/* ---- F scores -------------------------------------------------------------------------------- */

static double f_of(double tp, double fp, double fn, double beta)
{
    double b = beta * beta;

    return ratio((1 + b) * tp, (1 + b) * tp + b * fn + fp);
}

static void f_scores(void)
{
    static const char *const averages[] = {"none", "macro", "micro", "weighted"};
    int average = below(4), by_threshold = below(2);
    double beta = (double)(1 + below(8)) / 4, threshold = (double)(1 + below(15)) / 16;
    double tp[8] = {0}, fp[8] = {0}, fn[8] = {0}, pos[8] = {0}, all[4] = {0}, want[8] = {0};
    struct data d = {0};
    char spec[128];

    shape(&d, false, 1 + below(5), false);
    for (int64_t i = 0; i < d.n; i++) {
        int64_t class = below((int)d.c - (d.c > 1 && below(2))); /* the last may not occur */
        double most = 0;

        for (int64_t c = 0; c < d.c; c++) {
            d.y[i * d.c + c] = by_threshold ? below(2) : c == class;
            d.p[i * d.c + c] = (double)below(17) / 16;
            most = fmax(most, d.p[i * d.c + c]);
        }
        for (int64_t c = 0; c < d.c; c++) {
            double p = d.p[i * d.c + c], y = d.y[i * d.c + c], w = d.w[i];
            bool yes = by_threshold ? p > threshold : p >= most && p > 0;

            tp[c] += w * (yes && y != 0);
            fp[c] += w * (yes && y == 0);
            fn[c] += w * (!yes && y != 0);
            pos[c] += w * y;
        }
    }
    for (int64_t c = 0; c < d.c; c++) {
        all[0] += tp[c];
        all[1] += fp[c];
        all[2] += fn[c];
        all[3] += pos[c];
    }
    for (int64_t c = 0; c < d.c; c++) {
        double f = f_of(tp[c], fp[c], fn[c], beta);

        if (average == 0)
            want[c] = f;
        else
            want[0] += average == 1 ? f / (double)d.c : ratio(f * pos[c], all[3]);
    }
    if (average == 2)
        want[0] = f_of(all[0], all[1], all[2], beta);
    wf_snprintf(spec, sizeof spec, "FBetaScore beta=%g average=%s", beta, averages[average]);
    if (by_threshold)
        wf_snprintf(spec + strlen(spec), sizeof spec - strlen(spec), " threshold=%g", threshold);
    check(spec, &d, average ? 1 : (int)d.c, want);
}

/* ---- intersection over union ----------------------------------------------------------------- */

static void overlaps(void)
{
    int n = 2 + below(3), ignored = below(2) ? below(n) : -1, target = below(n);
    double m[4][4] = {{0}}, sum = 0, valid = 0, one = 0;
    struct data d = {0};
    char spec[128], ignore[32] = "";

    shape(&d, true, 1 + below(4), false);
    d.y_type = WEFT_I32;
    for (int64_t i = 0; i < n_scores(&d); i++) {
        d.y[i] = below(n);
        d.p[i] = below(3) ? d.y[i] : below(n);
        if ((int)d.y[i] != ignored)
            m[(int)d.y[i]][(int)d.p[i]] += d.w[i / d.c];
    }
    for (int c = 0; c < n; c++) {
        double all = -m[c][c];

        for (int k = 0; k < n; k++)
            all += m[c][k] + m[k][c];
        if (all > 0) {
            sum += m[c][c] / all;
            valid++;
        }
        if (c == target)
            one = ratio(m[c][c], all);
    }
    if (ignored >= 0)
        wf_snprintf(ignore, sizeof ignore, " ignore_class=%d", ignored);
    wf_snprintf(spec, sizeof spec, "MeanIoU num_classes=%d%s", n, ignore);
    check(spec, &d, 1, (double[]){ratio(sum, valid)});
    wf_snprintf(spec, sizeof spec, "IoU num_classes=%d target_class_ids=[%d]%s", n, target, ignore);
    check(spec, &d, 1, &one);
}

/* ---- regression ------------------------------------------------------------------------------ */

static void explained(void)
{
    static const char *const ways[] = {"uniform_average", "variance_weighted_average", "none"};
    int how = below(3), p = below(3);
    double far = below(2) ? 0 : 1e4 * (1 + real()), want[4] = {0}, weight = 0;
    struct data d = {0};
    char spec[96];

    shape(&d, false, 1 + below(4), false);
    for (int64_t i = 0; i < n_scores(&d); i++) {
        d.y[i] = (double)(float)(far + 4 * real());
        d.p[i] = (double)(float)(d.y[i] + real() - 0.5);
    }
    for (int64_t c = 0; c < d.c; c++) {
        double sum = 0, n = 0, total = 0, error = 0, one, v;

        for (int64_t i = 0; i < d.n; i++) {
            sum += d.w[i] * d.y[i * d.c + c];
            n += d.w[i];
        }
        for (int64_t i = 0; i < d.n; i++) {
            double y = d.y[i * d.c + c], e = y - d.p[i * d.c + c], m = ratio(sum, n);

            total += d.w[i] * (y - m) * (y - m);
            error += d.w[i] * e * e;
        }
        if (n == 0 || total < 1e-3 || total < 1e-9 * n * far * far) /* what f64 sums can tell */
            return;
        one = 1 - error / total;
        v = how == 1 ? total : 1;
        want[how == 2 ? c : 0] += how == 2 ? one : v * one;
        weight += v;
    }
    for (int64_t c = 0; c < (how == 2 ? d.c : 1); c++) {
        double n = (double)(d.n * d.c); /* as Keras counts them */

        want[c] /= how == 2 ? 1 : weight;
        if (p > 0 && p < n - 1)
            want[c] = 1 - (1 - want[c]) * (n - 1) / (n - p - 1);
        if (fabs(want[c]) > 50)
            return;
    }
    wf_snprintf(spec, sizeof spec, "R2Score class_aggregation=%s num_regressors=%d", ways[how], p);
    check(spec, &d, how == 2 ? (int)d.c : 1, want);
}

static void correlations(void)
{
    double sum[3] = {0}, all = 0, mean = 0, squares = 0, total = 0;
    struct data d = {0};

    shape(&d, below(2), 2 + below(6), false);
    for (int64_t i = 0; i < n_scores(&d); i++) {
        d.y[i] = real() - 0.3;
        d.p[i] = 0.5 * d.y[i] + real() - 0.5;
    }
    for (int64_t i = 0; i < d.n * d.t; i++) {
        const double *y = d.y + i * d.c, *p = d.p + i * d.c;
        double my = 0, mp = 0, vy = 0, vp = 0, cov = 0, yy = 0, pp = 0, yp = 0;

        for (int64_t k = 0; k < d.c; k++) {
            my += y[k] / (double)d.c;
            mp += p[k] / (double)d.c;
            yy += y[k] * y[k];
            pp += p[k] * p[k];
            yp += y[k] * p[k];
            mean += d.w[i] * p[k] / (double)d.c;
            total += d.w[i] * p[k];
            squares += d.w[i] * (y[k] - p[k]) * (y[k] - p[k]) / (double)d.c;
        }
        for (int64_t k = 0; k < d.c; k++) {
            vy += (y[k] - my) * (y[k] - my) / (double)d.c;
            vp += (p[k] - mp) * (p[k] - mp) / (double)d.c;
            cov += (y[k] - my) * (p[k] - mp) / (double)d.c;
        }
        sum[0] += d.w[i] * yp / sqrt(yy * pp);
        sum[1] += d.w[i] * cov / sqrt(vy * vp);
        sum[2] += d.w[i] * 2 * cov / (vy + vp + (my - mp) * (my - mp) + 1e-7);
        all += d.w[i];
        if (vy < 1e-3 || vp < 1e-3)
            return;
    }
    check("CosineSimilarity", &d, 1, (double[]){ratio(sum[0], all)});
    check("PearsonCorrelation", &d, 1, (double[]){ratio(sum[1], all)});
    check("ConcordanceCorrelation", &d, 1, (double[]){ratio(sum[2], all)});
    check("RootMeanSquaredError", &d, 1, (double[]){sqrt(ratio(squares, all))});
    check("Mean", &d, 1, (double[]){ratio(mean, all)});
    check("Sum", &d, 1, &total);
}

/* ---- all of it ------------------------------------------------------------------------------- */

RANDOM_TEST(accuracies_are_shares_of_right_answers, accuracies)
RANDOM_TEST(counts_and_rates_are_those_of_each_threshold, at_thresholds)
RANDOM_TEST(the_k_largest_scores_of_a_row_decide, with_top_k)
RANDOM_TEST(best_rates_are_found_over_all_thresholds, one_at_the_other)
RANDOM_TEST(areas_are_sums_between_thresholds, areas)
RANDOM_TEST(f_scores_follow_from_counts_by_class, f_scores)
RANDOM_TEST(overlaps_follow_from_the_confusion_matrix, overlaps)
RANDOM_TEST(explained_variance_is_right_far_from_zero, explained)
RANDOM_TEST(correlations_and_means_are_weighted, correlations)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracies_are_shares_of_right_answers),
        cmocka_unit_test(counts_and_rates_are_those_of_each_threshold),
        cmocka_unit_test(the_k_largest_scores_of_a_row_decide),
        cmocka_unit_test(best_rates_are_found_over_all_thresholds),
        cmocka_unit_test(areas_are_sums_between_thresholds),
        cmocka_unit_test(f_scores_follow_from_counts_by_class),
        cmocka_unit_test(overlaps_follow_from_the_confusion_matrix),
        cmocka_unit_test(explained_variance_is_right_far_from_zero),
        cmocka_unit_test(correlations_and_means_are_weighted),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
