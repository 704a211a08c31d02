/* Every metric and every loss against its plain definition, written once more here in f64: random data, options, weights, masks,
 * batches of different sizes, ties, scores that equal a threshold, classes that do not occur. Gradients of losses against
 * differences of the plain definition. */
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

enum { MAX_ROWS = 40, MAX_ITEMS = 2048, MAX_OUT = 16 };

static weft_ctx *ctx;
static uint64_t seed;

static int set_up(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static int below(int n)
{
    return (int)(draw() % (uint32_t)n);
}

static double real(void) /* in [0, 1), exact in f32 */
{
    return (double)(draw() >> 7 & 0xfffff) / (1 << 20);
}

/* ---- data -------------------------------------------------------------------------------------- */

/* Labels and predictions [n, …] as numbers, and what a label weighs. */
struct data {
    int64_t n, t, c; /* rows, steps of a row (1: no such axis), columns */
    bool seq;        /* is there an axis of steps? */
    int64_t y_row, p_row;
    int y_rank, p_rank;
    int64_t y_dim[4], p_dim[4];
    weft_dtype y_type;
    double y[MAX_ITEMS], p[MAX_ITEMS];
    int weights;         /* 0 none, 1 one a row, 2 one a step */
    double w[MAX_ITEMS]; /* a step each, whatever is fed */
};

/* Sizes; labels of one number a step (numbers), or of one a column. */
static void shape(struct data *d, bool seq, int64_t c, bool numbers)
{
    d->n = 1 + below(MAX_ROWS - 1);
    d->seq = seq;
    d->t = seq ? 1 + below(4) : 1;
    d->c = c;
    d->p_rank = 2 + seq;
    d->y_rank = d->p_rank - numbers;
    d->p_dim[0] = d->y_dim[0] = d->n;
    d->p_dim[1] = d->y_dim[1] = seq ? d->t : c;
    d->p_dim[2] = d->y_dim[2] = c;
    d->y_row = d->t * (numbers ? 1 : c);
    d->p_row = d->t * c;
    d->y_type = WEFT_F32;
    assert_true(d->n * d->p_row <= MAX_ITEMS);
    d->weights = below(seq ? 3 : 2);
    for (int64_t i = 0; i < d->n; i++)
        for (int64_t k = 0; k < d->t; k++) {
            double *at = &d->w[i * d->t + k];

            *at = d->weights == 0            ? 1
                  : d->weights == 1 && k > 0 ? d->w[i * d->t]
                                             : (below(4) ? (double)below(9) / 4 : 0);
        }
}

static int64_t n_labels(const struct data *d)
{
    return d->n * d->y_row;
}

static int64_t n_scores(const struct data *d)
{
    return d->n * d->p_row;
}

/* ---- running a metric -------------------------------------------------------------------------- */

static void *as_type(weft_dtype t, const double *v, int64_t n)
{
    char *out = malloc((size_t)(n * 8 + 8));

    for (int64_t i = 0; i < n; i++)
        wf_set(out, t, i, v[i]);
    return out;
}

/* Adds rows [first, first + n) to the sums. */
static void add_rows(const struct wf_metric *m, const struct data *d, int64_t first, int64_t n,
                     double *sums)
{
    int64_t y_dim[4], p_dim[4], w_dim[2] = {n, d->t}, any[4];
    double w[MAX_ITEMS];
    weft_tensor feeds[3], out = {.data = NULL};
    weft_val in[3], v = WEFT_NIL;
    weft_graph *g;
    weft_fn *fn;
    int n_in = 2;

    memcpy(y_dim, d->y_dim, sizeof y_dim);
    memcpy(p_dim, d->p_dim, sizeof p_dim);
    y_dim[0] = p_dim[0] = n;
    for (int64_t i = 0; i < n * (d->weights == 2 ? d->t : 1); i++)
        w[i] = d->weights == 2 ? d->w[first * d->t + i] : d->w[(first + i) * d->t];
    feeds[0] = weft_view(d->y_type, as_type(d->y_type, d->y + first * d->y_row, n * d->y_row),
                         d->y_rank, y_dim);
    feeds[1] = weft_view(WEFT_F32, as_type(WEFT_F32, d->p + first * d->p_row, n * d->p_row),
                         d->p_rank, p_dim);
    assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
    memcpy(any, y_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[0] = weft_placeholder(g, "y", d->y_type, d->y_rank, any);
    memcpy(any, p_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[1] = weft_placeholder(g, "p", WEFT_F32, d->p_rank, any);
    if (d->weights) {
        int64_t dims[2] = {WEFT_ANY, d->t};
        int rank = d->weights == 2 ? 2 : 1;

        feeds[2] =
            weft_view(WEFT_F32, as_type(WEFT_F32, w, n * (rank == 2 ? d->t : 1)), rank, w_dim);
        in[n_in++] = weft_placeholder(g, "w", WEFT_F32, rank, dims);
    }
    if (wf_metric_build(g, m, in[0], in[1], d->weights ? in[2] : WEFT_NIL, &v) ||
        weft_fn_new(
            g, WEFT_OPTS(weft_fn_opts, .n_feeds = n_in, .feeds = in, .n_fetches = 1, .fetches = &v),
            &fn) ||
        weft_fn_run(fn, feeds, &out))
        fail_msg("%s", weft_error());
    for (int64_t i = 0; i < m->n_state; i++)
        sums[i] += (double)((float *)out.data)[i];
    for (int i = 0; i < n_in; i++)
        free(feeds[i].data);
    weft_fn_free(fn);
    weft_graph_free(g);
}

/* The results of the metric over all rows, in batches of random sizes. */
static int measure(const char *spec, const struct data *d, double *out)
{
    struct wf_type y = wf_type_of(d->y_type, d->y_rank, d->y_dim),
                   p = wf_type_of(WEFT_F32, d->p_rank, d->p_dim);
    struct wf_arena arena;
    struct wf_metric m;
    double *sums;
    int n_results;

    y.dim[0] = p.dim[0] = WEFT_ANY;
    wf_arena_init(&arena, ctx);
    if (wf_metric_check(ctx, spec) || wf_metric_init(&m, &arena, spec, NULL, &y, &p))
        fail_msg("%s", weft_error());
    sums = calloc((size_t)m.n_state, sizeof *sums);
    for (int64_t at = 0; at < d->n;) {
        int64_t n = 1 + below((int)(d->n - at));

        add_rows(&m, d, at, n, sums);
        at += n;
    }
    assert_true(m.n_results <= MAX_OUT);
    wf_metric_result(&m, sums, out);
    n_results = m.n_results;
    free(sums);
    wf_arena_free(&arena);
    return n_results;
}

static void check(const char *spec, const struct data *d, int n, const double *want)
{
    double got[MAX_OUT];
    uint64_t began = seed;

    if (measure(spec, d, got) != n)
        fail_msg("%s: not %d results", spec, n);
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 3e-6 + 3e-6 * fabs(want[i])))
            fail_msg("%s on [%d,%d,%d], weights %d, seed %llu: result %d is %.9g, plainly %.9g",
                     spec, (int)d->n, (int)d->t, (int)d->c, d->weights, (unsigned long long)began,
                     i, got[i], want[i]);
}

static double ratio(double a, double b)
{
    return b != 0 ? a / b : 0;
}

/* ---- accuracies -------------------------------------------------------------------------------- */

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
    snprintf(spec, sizeof spec, "%s k=%d", top[hot], k);
    check(spec, &d, 1, (double[]){ratio(in_top, all)});
}

/* ---- decisions at thresholds ------------------------------------------------------------------- */

struct counts {
    double tp, fp, tn, fn;
};

/* Of scores above a threshold; class: of one column (-1: all); used: which scores count (NULL: all). */
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
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%g", i ? "," : "", at[i]);
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
        snprintf(more, sizeof more, " class_id=%d", (int)class);
    }
    for (int i = 0; i < n; i++)
        want[i] = quantity(which, count(&d, at[i], class, NULL));
    snprintf(spec, sizeof spec, "%s thresholds=[%s]%s", names[which], list, more);
    check(spec, &d, n, want);
    snprintf(spec, sizeof spec, "%s%s", names[which], more);
    want[0] = quantity(which, count(&d, 0.5, class, NULL));
    check(spec, &d, 1, want);
    for (int64_t i = 0; i < n_scores(&d); i++) {
        right += d.w[i / d.c] * ((d.p[i] > at[0]) == (d.y[i] != 0));
        all += d.w[i / d.c];
    }
    snprintf(spec, sizeof spec, "BinaryAccuracy threshold=%g", at[0]);
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
    snprintf(spec, sizeof spec, "%s top_k=%d", which == 4 ? "Precision" : "Recall", k);
    if (class >= 0)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), " class_id=%d", (int)class);
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
    snprintf(spec, sizeof spec, "%s=%g num_thresholds=%d", names[which], limit, n);
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
    snprintf(spec, sizeof spec, "AUC curve=%s summation_method=%s num_thresholds=%d multi_label=%s",
             curves[curve], ways[how], n, labels ? "true" : "false");
    check(spec, &d, 1, &want);
}

/* ---- F scores ---------------------------------------------------------------------------------- */

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
    snprintf(spec, sizeof spec, "FBetaScore beta=%g average=%s", beta, averages[average]);
    if (by_threshold)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), " threshold=%g", threshold);
    check(spec, &d, average ? 1 : (int)d.c, want);
}

/* ---- intersection over union ------------------------------------------------------------------- */

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
        snprintf(ignore, sizeof ignore, " ignore_class=%d", ignored);
    snprintf(spec, sizeof spec, "MeanIoU num_classes=%d%s", n, ignore);
    check(spec, &d, 1, (double[]){ratio(sum, valid)});
    snprintf(spec, sizeof spec, "IoU num_classes=%d target_class_ids=[%d]%s", n, target, ignore);
    check(spec, &d, 1, &one);
}

/* ---- regression -------------------------------------------------------------------------------- */

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
        if (n == 0 || total < 1e-3) /* too little to compare */
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
    snprintf(spec, sizeof spec, "R2Score class_aggregation=%s num_regressors=%d", ways[how], p);
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

/* ---- losses ------------------------------------------------------------------------------------ */

enum form { NUMBERS, POSITIVE, BITS, SIGNS, HOT, SPREAD, CLASS };

/* What one row of c values loses; y[0] is the class where labels are classes. */
typedef double plain_loss(const double *y, const double *p, int64_t c, const double *arg);

static double clip(double p)
{
    return fmin(fmax(p, 1e-7), 1 - 1e-7);
}

static double mse(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += (y[i] - p[i]) * (y[i] - p[i]);
    return s / (double)c;
}

static double mae(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += fabs(y[i] - p[i]);
    return s / (double)c;
}

static double mape(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += fabs(y[i] - p[i]) / fmax(fabs(y[i]), 1e-7);
    return 100 * s / (double)c;
}

static double msle(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        double e = log1p(fmax(y[i], 1e-7)) - log1p(fmax(p[i], 1e-7));

        s += e * e;
    }
    return s / (double)c;
}

static double huber(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double e = fabs(y[i] - p[i]);

        s += e <= arg[0] ? e * e / 2 : arg[0] * (e - arg[0] / 2);
    }
    return s / (double)c;
}

static double log_cosh(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += log(cosh(p[i] - y[i]));
    return s / (double)c;
}

static double cosine(const double *y, const double *p, int64_t c, const double *arg)
{
    double yy = 0, pp = 0, yp = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        yy += y[i] * y[i];
        pp += p[i] * p[i];
        yp += y[i] * p[i];
    }
    return -yp / sqrt(yy * pp);
}

static double poisson(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += p[i] - y[i] * log(p[i] + 1e-7);
    return s / (double)c;
}

static double kld(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        double a = fmin(fmax(y[i], 1e-7), 1), b = fmin(fmax(p[i], 1e-7), 1);

        s += a * log(a / b);
    }
    return s;
}

static double hinge_of(const double *y, const double *p, int64_t c, int power)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++)
        s += pow(fmax(1 - y[i] * p[i], 0), power);
    return s / (double)c;
}

static double hinge(const double *y, const double *p, int64_t c, const double *arg)
{
    (void)arg;
    return hinge_of(y, p, c, 1);
}

static double squared_hinge(const double *y, const double *p, int64_t c, const double *arg)
{
    (void)arg;
    return hinge_of(y, p, c, 2);
}

static double categorical_hinge(const double *y, const double *p, int64_t c, const double *arg)
{
    double right = 0, wrong = -INFINITY;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        right += y[i] * p[i];
        wrong = fmax(wrong, (1 - y[i]) * p[i]);
    }
    return fmax(wrong - right + 1, 0);
}

/* arg: label smoothing, are predictions logits */
static double bce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double t = y[i] * (1 - arg[0]) + arg[0] / 2,
               q = arg[1] != 0 ? 1 / (1 + exp(-p[i])) : clip(p[i]);

        s -= t * log(q) + (1 - t) * log(1 - q);
    }
    return s / (double)c;
}

/* arg: smoothing, logits, alpha, gamma, are classes balanced */
static double bfce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double t = y[i] * (1 - arg[0]) + arg[0] / 2, q = arg[1] != 0 ? 1 / (1 + exp(-p[i])) : p[i],
               right = t * q + (1 - t) * (1 - q), one;

        one = -(t * log(clip(q)) + (1 - t) * log(1 - clip(q))) * pow(1 - right, arg[3]);
        s += arg[4] != 0 ? one * (t * arg[2] + (1 - t) * (1 - arg[2])) : one;
    }
    return s / (double)c;
}

/* p / sum p, or the softmax. */
static double share(const double *p, int64_t c, int64_t i, bool logits)
{
    double sum = 0;

    for (int64_t k = 0; k < c; k++)
        sum += logits ? exp(p[k]) : p[k];
    return (logits ? exp(p[i]) : p[i]) / sum;
}

/* arg: smoothing, logits */
static double cce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++)
        s -= (y[i] * (1 - arg[0]) + arg[0] / (double)c) * log(share(p, c, i, arg[1] != 0));
    return s;
}

/* arg: smoothing, logits, alpha, gamma */
static double cfce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double q = share(p, c, i, arg[1] != 0);

        s -= arg[2] * pow(1 - q, arg[3]) * (y[i] * (1 - arg[0]) + arg[0] / (double)c) * log(q);
    }
    return s;
}

static double scce(const double *y, const double *p, int64_t c, const double *arg)
{
    return -log(share(p, c, (int64_t)y[0], arg[1] != 0));
}

static double gce(const double *y, const double *p, int64_t c, const double *arg)
{
    (void)c;
    return (1 - pow(p[(int64_t)y[0]], arg[0])) / arg[0];
}

static const struct loss_case {
    const char *text;
    enum form labels;
    bool scores; /* predictions in (0, 1); otherwise any number */
    plain_loss *plain;
    double arg[5];
    bool positive; /* predictions above 0 */
} loss_cases[] = {
    {"mse", NUMBERS, false, mse, {0}, false},
    {"mae", NUMBERS, false, mae, {0}, false},
    {"mape", POSITIVE, false, mape, {0}, false},
    {"msle", POSITIVE, false, msle, {0}, true},
    {"huber", NUMBERS, false, huber, {1}, false},
    {"huber delta=0.25", NUMBERS, false, huber, {0.25}, false},
    {"log_cosh", NUMBERS, false, log_cosh, {0}, false},
    {"cosine_similarity", NUMBERS, false, cosine, {0}, false},
    {"poisson", POSITIVE, false, poisson, {0}, true},
    {"kl_divergence", SPREAD, true, kld, {0}, false},
    {"hinge", SIGNS, false, hinge, {0}, false},
    {"squared_hinge", SIGNS, false, squared_hinge, {0}, false},
    {"categorical_hinge", HOT, false, categorical_hinge, {0}, false},
    {"bce", BITS, true, bce, {0, 0}, false},
    {"bce from_logits=true", BITS, false, bce, {0, 1}, false},
    {"bce label_smoothing=0.2", BITS, true, bce, {0.2, 0}, false},
    {"bce label_smoothing=0.2 from_logits=true", BITS, false, bce, {0.2, 1}, false},
    {"binary_focal_crossentropy", BITS, true, bfce, {0, 0, 0.25, 2, 0}, false},
    {"binary_focal_crossentropy apply_class_balancing=true alpha=0.3 gamma=1.5 from_logits=true "
     "label_smoothing=0.1",
     BITS,
     false,
     bfce,
     {0.1, 1, 0.3, 1.5, 1},
     false},
    {"categorical_crossentropy", HOT, true, cce, {0, 0}, false},
    {"categorical_crossentropy label_smoothing=0.3", SPREAD, true, cce, {0.3, 0}, false},
    {"categorical_crossentropy from_logits=true", SPREAD, false, cce, {0, 1}, false},
    {"categorical_crossentropy from_logits=true label_smoothing=0.1",
     HOT,
     false,
     cce,
     {0.1, 1},
     false},
    {"categorical_focal_crossentropy", HOT, true, cfce, {0, 0, 0.25, 2}, false},
    {"categorical_focal_crossentropy alpha=0.6 gamma=1.5 from_logits=true label_smoothing=0.1",
     HOT,
     false,
     cfce,
     {0.1, 1, 0.6, 1.5},
     false},
    {"sparse_categorical_crossentropy", CLASS, true, scce, {0, 0}, false},
    {"sparse_categorical_crossentropy from_logits=true", CLASS, false, scce, {0, 1}, false},
    {"CategoricalGeneralizedCrossEntropy q=0.7", CLASS, true, gce, {0.7}, false},
};

static void fill(struct data *d, const struct loss_case *l)
{
    for (int64_t i = 0; i < n_scores(d); i++) {
        double r = real();

        d->p[i] = l->scores ? 0.02 + 0.95 * r : l->positive ? 0.1 + 2 * r : 4 * r - 2;
    }
    for (int64_t i = 0; i < d->n * d->t; i++) {
        int64_t class = below((int)d->c);
        double sum = 0;

        if (l->labels == CLASS)
            d->y[i] = (double)class;
        for (int64_t k = 0; k < d->c && l->labels != CLASS; k++) {
            double r = real(), *y = &d->y[i * d->c + k];

            switch (l->labels) {
            case NUMBERS: *y = 3 * r - 1.5; break;
            case POSITIVE: *y = 0.2 + r; break;
            case BITS: *y = r < 0.4; break;
            case SIGNS: *y = r < 0.4 ? 1 : -1; break;
            case HOT: *y = k == class; break;
            default: *y = 0.05 + r; break;
            }
            sum += *y;
        }
        for (int64_t k = 0; k < d->c && l->labels == SPREAD; k++)
            d->y[i * d->c + k] = (double)(float)(d->y[i * d->c + k] / sum);
    }
    if (l->labels == SIGNS) /* all 1 would be read as bits */
        d->y[0] = -1;
    d->y_type = l->labels == CLASS ? (below(2) ? WEFT_I32 : WEFT_I64) : WEFT_F64;
}

/* The weighted mean over what the mask lets through. */
static double plain_mean(const struct data *d, const struct loss_case *l, const bool *mask)
{
    int64_t y_wide = d->y_row / d->t;
    double sum = 0, n = 0;

    for (int64_t i = 0; i < d->n * d->t; i++) {
        if (mask && !mask[i])
            continue;
        sum += d->w[i] * l->plain(d->y + i * y_wide, d->p + i * d->c, d->c, l->arg);
        n++;
    }
    return ratio(sum, n);
}

struct loss_run {
    weft_graph *g;
    weft_fn *fn;
    weft_tensor feeds[4], out[3];
    int n_in;
};

/* Values, mean and gradient in f64. */
static void run_loss(struct data *d, const struct loss_case *l, const bool *mask,
                     struct loss_run *r)
{
    weft_val in[4], w = WEFT_NIL, m = WEFT_NIL, values = WEFT_NIL, sum, n, grad = WEFT_NIL, mean;
    int64_t any[4], w_dim[2] = {d->n, d->t}, w_any[2] = {WEFT_ANY, d->t};
    double rows[MAX_ITEMS];
    int rank = d->weights == 2 ? 2 : 1;

    assert_int_equal(weft_graph_new(ctx, &r->g), WEFT_OK);
    memcpy(any, d->y_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[0] = weft_placeholder(r->g, "y", d->y_type, d->y_rank, any);
    memcpy(any, d->p_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[1] = weft_placeholder(r->g, "p", WEFT_F64, d->p_rank, any);
    r->feeds[0] = weft_view(d->y_type, as_type(d->y_type, d->y, n_labels(d)), d->y_rank, d->y_dim);
    r->feeds[1] = weft_view(WEFT_F64, as_type(WEFT_F64, d->p, n_scores(d)), d->p_rank, d->p_dim);
    r->n_in = 2;
    for (int64_t i = 0; i < d->n; i++)
        rows[i] = d->w[i * d->t];
    if (d->weights) {
        r->feeds[r->n_in] = weft_view(
            WEFT_F32, as_type(WEFT_F32, rank == 2 ? d->w : rows, d->n * (rank == 2 ? d->t : 1)),
            rank, w_dim);
        w = in[r->n_in++] = weft_placeholder(r->g, "w", WEFT_F32, rank, w_any);
    }
    if (mask) {
        bool *copy = malloc(MAX_ITEMS);

        memcpy(copy, mask, MAX_ITEMS);
        r->feeds[r->n_in] = weft_view(WEFT_BOOL, copy, d->seq ? 2 : 1, w_dim);
        m = in[r->n_in++] = weft_placeholder(r->g, "m", WEFT_BOOL, d->seq ? 2 : 1, w_any);
    }
    memset(r->out, 0, sizeof r->out);
    if (wf_loss_build(r->g, l->text, in[0], in[1], &values) ||
        wf_loss_reduce(r->g, values, w, m, &sum, &n))
        fail_msg("%s: %s", l->text, weft_error());
    mean = weft_div(r->g, sum, weft_max(r->g, n, weft_scalar(r->g, 1)));
    if (weft_grad(r->g, mean, 1, &in[1], &grad) ||
        weft_fn_new(r->g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = r->n_in, .feeds = in, .n_fetches = 3,
                              .fetches = (weft_val[]){values, mean, grad}),
                    &r->fn) ||
        weft_fn_run(r->fn, r->feeds, r->out))
        fail_msg("%s: %s", l->text, weft_error());
}

static void end_loss(struct loss_run *r)
{
    for (int i = 0; i < r->n_in; i++)
        free(r->feeds[i].data);
    weft_fn_free(r->fn);
    weft_graph_free(r->g);
}

static void check_loss(const struct loss_case *l)
{
    struct data d = {0};
    struct loss_run r;
    bool mask[MAX_ITEMS], masked = below(2);
    int64_t y_wide;
    double mean, want;

    shape(&d, below(2), 2 + below(4), l->labels == CLASS);
    fill(&d, l);
    y_wide = d.y_row / d.t;
    for (int64_t i = 0; i < MAX_ITEMS; i++)
        mask[i] = below(3) > 0;
    run_loss(&d, l, masked ? mask : NULL, &r);
    assert_int_equal(weft_tensor_count(&r.out[0]), d.n * d.t);
    for (int64_t i = 0; i < d.n * d.t; i++) {
        double got = ((double *)r.out[0].data)[i];

        want = l->plain(d.y + i * y_wide, d.p + i * d.c, d.c, l->arg);
        if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
            fail_msg("%s: value %d is %.12g, plainly %.12g", l->text, (int)i, got, want);
    }
    mean = (double)((float *)r.out[1].data)[0];
    want = plain_mean(&d, l, masked ? mask : NULL);
    if (!(fabs(mean - want) <= 2e-6 * (1 + fabs(want))))
        fail_msg("%s, weights %d, mask %d: the mean is %.9g, plainly %.9g", l->text, d.weights,
                 masked, mean, want);
    for (int k = 0; k < 6; k++) { /* some of the gradient */
        int64_t i = below((int)n_scores(&d));
        double p = d.p[i], h = 1e-6, up, down, got = ((double *)r.out[2].data)[i];

        d.p[i] = p + h;
        up = plain_mean(&d, l, masked ? mask : NULL);
        d.p[i] = p - h;
        down = plain_mean(&d, l, masked ? mask : NULL);
        d.p[i] = p;
        want = (up - down) / (2 * h);
        if (!(fabs(got - want) <= 1e-6 + 1e-4 * fabs(want)))
            fail_msg("%s, weights %d, mask %d: the gradient is %.9g, by differences %.9g", l->text,
                     d.weights, masked, got, want);
    }
    end_loss(&r);
}

/* The losses that are metrics, too: means of their values, weighted. */
static void losses_as_metrics(void)
{
    const struct loss_case *l = &loss_cases[below(WF_COUNT(loss_cases))];
    struct data d = {0};
    double sum = 0, all = 0;
    int64_t y_wide;

    if (!strncmp(l->text, "CategoricalG", 12) || l->plain == cosine)
        return; /* no metric; the metric has the other sign */
    shape(&d, below(2), 2 + below(4), l->labels == CLASS);
    fill(&d, l);
    /* the margin's "are all labels bits" is asked for each batch */
    for (int64_t i = 0; i < n_labels(&d) && l->labels == SIGNS; i += d.y_row)
        d.y[i] = -1;
    y_wide = d.y_row / d.t;
    d.y_type = l->labels == CLASS ? WEFT_I32 : WEFT_F32;
    for (int64_t i = 0; i < n_labels(&d); i++)
        d.y[i] = (double)(float)d.y[i];
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = (double)(float)d.p[i];
    for (int64_t i = 0; i < d.n * d.t; i++) {
        sum += d.w[i] * l->plain(d.y + i * y_wide, d.p + i * d.c, d.c, l->arg);
        all += d.w[i];
    }
    check(l->text, &d, 1, (double[]){ratio(sum, all)});
    if (l->plain == scce) {
        char spec[96];

        snprintf(spec, sizeof spec, "Perplexity%s", l->arg[1] != 0 ? " from_logits=true" : "");
        check(spec, &d, 1, (double[]){exp(ratio(sum, all))});
    }
}

/* Labels that a metric of a loss leaves out count neither above nor below the line. */
static void ignored_classes(void)
{
    struct data d = {0};
    double sum = 0, all = 0;

    shape(&d, below(2), 3, true);
    d.y_type = WEFT_I32;
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = 0.05 + 0.9 * real();
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = (double)(float)d.p[i];
    for (int64_t i = 0; i < n_labels(&d); i++) {
        d.y[i] = below(4) - 1;
        if (d.y[i] < 0)
            continue;
        sum += d.w[i] * scce(d.y + i, d.p + i * d.c, d.c, (double[]){0, 0});
        all += d.w[i];
    }
    check("SparseCategoricalCrossentropy ignore_class=-1", &d, 1, (double[]){ratio(sum, all)});
    check("Perplexity ignore_class=-1", &d, 1, (double[]){exp(ratio(sum, all))});
}

/* ---- all of it --------------------------------------------------------------------------------- */

static int rounds(void)
{
    return getenv("WEFT_TEST_QUICK") ? 12 : 120;
}

#define METRIC_TEST(name, one)             \
    static void name(void **state)         \
    {                                      \
        (void)state;                       \
        seed = 99;                         \
        for (int i = 0; i < rounds(); i++) \
            one();                         \
    }
METRIC_TEST(accuracies_are_shares_of_right_answers, accuracies)
METRIC_TEST(counts_and_rates_are_those_of_each_threshold, at_thresholds)
METRIC_TEST(the_k_largest_scores_of_a_row_decide, with_top_k)
METRIC_TEST(best_rates_are_found_over_all_thresholds, one_at_the_other)
METRIC_TEST(areas_are_sums_between_thresholds, areas)
METRIC_TEST(f_scores_follow_from_counts_by_class, f_scores)
METRIC_TEST(overlaps_follow_from_the_confusion_matrix, overlaps)
METRIC_TEST(explained_variance_is_right_far_from_zero, explained)
METRIC_TEST(correlations_and_means_are_weighted, correlations)
METRIC_TEST(metrics_of_losses_are_weighted_means, losses_as_metrics)
METRIC_TEST(ignored_classes_do_not_count, ignored_classes)

static void losses_and_gradients_follow_their_formulas(void **state)
{
    (void)state;
    seed = 7;
    for (int i = 0; i < rounds() / 6; i++)
        for (int k = 0; k < WF_COUNT(loss_cases); k++)
            check_loss(&loss_cases[k]);
}

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
        cmocka_unit_test(metrics_of_losses_are_weighted_means),
        cmocka_unit_test(ignored_classes_do_not_count),
        cmocka_unit_test(losses_and_gradients_follow_their_formulas),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
