/* metric_class.c - metrics that keep sums per class or per output: F scores, intersection over
 * union, R2. */
#include <math.h>

#include "model/metric.h"
#include "weft/ops.h"

static int64_t columns(const struct wf_type *t)
{
    return t->rank ? t->dim[t->rank - 1] : 0;
}

static weft_val fail(weft_graph *g, const char *text)
{
    if (!g->st)
        wf_graph_fail(g, wf_err(WEFT_ESHAPE, "%s", text));
    return WEFT_NIL;
}

/* Sums over the batch. */
static weft_val down(weft_graph *g, weft_val x)
{
    return wf_sum_axis(g, x, 0, false);
}

/* ---- F scores: tp, fp, fn and weight of each class ------------------------------------------- */

static bool is_none(const char *word)
{
    return !strcmp(word, "none") || !strcmp(word, "None");
}

static weft_status f_check(const struct wf_metric_kind *kind, const struct wf_args *args)
{
    static const char *const averages[] = {"none", "None", "macro", "micro", "weighted"};
    const char *average = wf_arg_text(args, "average");
    const struct wf_attr *threshold = wf_arg(args, "threshold");
    bool known = false;

    for (int i = 0; i < WF_COUNT(averages); i++)
        known |= !strcmp(average, averages[i]);
    if (!known)
        return wf_err(WEFT_EINVAL, "average=%s: must be none, macro, micro or weighted", average);
    if (strcmp(kind->name, "F1Score") && !(wf_arg_float(args, "beta") > 0))
        return wf_err(WEFT_EINVAL, "beta=%g: must be above 0", wf_arg_float(args, "beta"));
    if (threshold->n > 1)
        return wf_err(WEFT_EINVAL, "%d thresholds: only one is supported", threshold->n);
    if (threshold->n && !(threshold->floats[0] > 0 && threshold->floats[0] <= 1))
        return wf_err(WEFT_EINVAL, "threshold=%g: must be in (0, 1]", threshold->floats[0]);
    return WEFT_OK;
}

static weft_status f_init(struct wf_metric *m, const struct wf_args *args, const struct wf_type *y,
                          const struct wf_type *pred)
{
    if (pred->rank != 2 || y->rank != 2 || columns(pred) < 1)
        return wf_err(WEFT_ESHAPE, "needs labels and predictions [batch, classes]");
    m->n_state = 4 * columns(pred);
    if (is_none(wf_arg_text(args, "average")))
        m->n_results = (int)columns(pred);
    return WEFT_OK;
}

/* 1 where the class is predicted: above the threshold, or the largest of its row. */
static weft_val decided(struct wf_metric_batch *b)
{
    const struct wf_attr *threshold = wf_arg(&b->args, "threshold");
    weft_graph *g = b->g;
    weft_val p = b->pred, best, large;

    if (threshold->n)
        return wf_as(g, weft_gt(g, p, wf_const_like(g, threshold->floats[0], p)), WEFT_F32);
    best = weft_reduce_max(
        g, p, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}, .keepdims = true));
    large = weft_gt(g, weft_abs(g, p), wf_const_like(g, 1e-9, p));
    return wf_as(g, weft_logical_and(g, weft_ge(g, p, best), large), WEFT_F32);
}

static weft_val f_build(struct wf_metric_batch *b)
{
    weft_graph *g = b->g;
    weft_val p = decided(b), y = wf_as(g, b->y, WEFT_F32), w = y, sums[4];

    if (b->weight.id)
        w = weft_mul(g, y, wf_weight_like(g, b->weight, y));
    sums[0] = weft_mul(g, p, y);
    sums[1] = weft_mul(g, p, wf_affine(g, y, -1, 1));
    sums[2] = weft_mul(g, wf_affine(g, p, -1, 1), y);
    for (int i = 0; i < 3; i++) {
        if (b->weight.id)
            sums[i] = weft_mul(g, sums[i], wf_weight_like(g, b->weight, y));
        sums[i] = down(g, sums[i]);
    }
    sums[3] = down(g, w);
    return weft_stack(g, 4, sums, 0);
}

static double f_of(double tp, double fp, double fn, double beta)
{
    double precision = tp / (tp + fp + WF_EPSILON), recall = tp / (tp + fn + WF_EPSILON);

    return precision * recall / (beta * beta * precision + recall + WF_EPSILON) * (1 + beta * beta);
}

static void f_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                     double *out)
{
    const char *average = wf_arg_text(args, "average");
    double beta = strcmp(m->kind->name, "F1Score") ? wf_arg_float(args, "beta") : 1;
    double total[4] = {0}, sum = 0;
    int64_t n = m->n_state / 4;

    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < n; i++)
            total[k] += sums[k * n + i];
    if (!strcmp(average, "micro")) {
        *out = f_of(total[0], total[1], total[2], beta);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double f = f_of(sums[i], sums[n + i], sums[2 * n + i], beta);

        if (is_none(average))
            out[i] = f;
        sum += strcmp(average, "weighted") ? f / (double)n
                                           : f * sums[3 * n + i] / (total[3] + WF_EPSILON);
    }
    if (!is_none(average))
        *out = sum;
}

const struct wf_metric_family wf_metric_f_score = {f_check, f_init, f_build, f_result, NULL};

/* ---- intersection over union: the confusion matrix [label][prediction] ----------------------- */

static int64_t iou_classes(const struct wf_metric_kind *kind, const struct wf_args *args)
{
    return kind->variant == IOU_BINARY ? 2 : wf_arg_int(args, "num_classes");
}

static weft_status iou_check(const struct wf_metric_kind *kind, const struct wf_args *args)
{
    const struct wf_attr *ids = wf_arg(args, "target_class_ids");
    int64_t n = iou_classes(kind, args);

    if (n < 1 || n > 4096)
        return wf_err(WEFT_ERANGE, "num_classes=%lld: must be in [1, 4096]", (long long)n);
    for (int i = 0; i < ids->n; i++)
        if (ids->ints[i] < 0 || ids->ints[i] >= n)
            return wf_err(WEFT_ERANGE, "target_class_ids: %lld is not in [0, %lld)",
                          (long long)ids->ints[i], (long long)n);
    return WEFT_OK;
}

static weft_status iou_init(struct wf_metric *m, const struct wf_args *args,
                            const struct wf_type *y, const struct wf_type *pred)
{
    int64_t n = iou_classes(m->kind, args);

    (void)y, (void)pred;
    m->n_state = n * n;
    return WEFT_OK;
}

/* Class numbers of any shape, from one-hot values if necessary. */
static weft_val classes_of(struct wf_metric_batch *b, weft_val x, const char *sparse)
{
    bool numbers = b->m->kind->variant == IOU_BINARY || wf_arg_int(&b->args, sparse);

    if (!numbers)
        x = weft_argmax(b->g, wf_as_float(b->g, x), (int)wf_arg_int(&b->args, "axis"), NULL);
    return wf_as(b->g, x, WEFT_I64);
}

static weft_val within(weft_graph *g, weft_val x, int64_t n)
{
    return weft_logical_and(g, weft_ge(g, x, wf_const_like(g, 0, x)),
                            weft_lt(g, x, wf_const_like(g, (double)n, x)));
}

static weft_val iou_build(struct wf_metric_batch *b)
{
    weft_graph *g = b->g;
    int64_t n = iou_classes(b->m->kind, &b->args), ignored, flat = -1;
    weft_val y, p, w, good, id;

    if (b->m->kind->variant == IOU_BINARY)
        b->pred =
            weft_ge(g, b->pred, wf_const_like(g, wf_arg_float(&b->args, "threshold"), b->pred));
    y = classes_of(b, b->y, "sparse_y_true");
    p = classes_of(b, b->pred, "sparse_y_pred");
    w = b->weight.id ? wf_weight_like(g, b->weight, wf_as(g, y, WEFT_F32)) : WEFT_NIL;
    y = weft_reshape(g, y, 1, &flat);
    p = weft_reshape(g, p, 1, &flat);
    good = weft_logical_and(g, within(g, y, n), within(g, p, n));
    if (wf_arg_maybe(&b->args, "ignore_class", &ignored))
        good = weft_logical_and(g, good, weft_ne(g, y, wf_const_like(g, (double)ignored, y)));
    id = weft_add(g, weft_mul(g, y, wf_const_like(g, (double)n, y)), p);
    id = weft_where(g, good, id, wf_const_like(g, 0, id));
    good = wf_as(g, good, WEFT_F32);
    if (w.id)
        good = weft_mul(g, good, weft_reshape(g, w, 1, &flat));
    return weft_segment_sum(g, good, id, n * n);
}

static void iou_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                       double *out)
{
    const struct wf_attr *ids = wf_arg(args, "target_class_ids");
    int64_t n = iou_classes(m->kind, args), n_ids = m->kind->variant == IOU_MEAN ? n : ids->n;
    double sum = 0, n_valid = 0;

    for (int64_t i = 0; i < n_ids; i++) {
        int64_t c = m->kind->variant == IOU_MEAN ? i : ids->ints[i];
        double row = 0, column = 0, all;

        for (int64_t k = 0; k < n; k++) {
            row += sums[c * n + k];
            column += sums[k * n + c];
        }
        all = row + column - sums[c * n + c];
        if (all <= 1e-9)
            continue;
        sum += sums[c * n + c] / (all + WF_EPSILON);
        n_valid++;
    }
    *out = sum / (n_valid + WF_EPSILON);
}

const struct wf_metric_family wf_metric_iou = {iou_check, iou_init, iou_build, iou_result, NULL};

/* ---- R2: sum, squares, squared error, weight of each output, in three parts; number of labels
 * -- */

static int64_t r2_columns(const struct wf_type *pred)
{
    return pred->rank == 2 ? columns(pred) : 1;
}

static weft_status r2_check(const struct wf_metric_kind *kind, const struct wf_args *args)
{
    static const char *const ways[] = {"none", "None", "uniform_average",
                                       "variance_weighted_average"};
    const char *how = wf_arg_text(args, "class_aggregation");
    bool known = false;

    (void)kind;
    for (int i = 0; i < WF_COUNT(ways); i++)
        known |= !strcmp(how, ways[i]);
    if (!known)
        return wf_err(WEFT_EINVAL,
                      "class_aggregation=%s: must be uniform_average, variance_weighted_average or "
                      "none",
                      how);
    if (wf_arg_int(args, "num_regressors") < 0)
        return wf_err(WEFT_EINVAL, "num_regressors=%lld: must not be negative",
                      (long long)wf_arg_int(args, "num_regressors"));
    return WEFT_OK;
}

static weft_status r2_init(struct wf_metric *m, const struct wf_args *args, const struct wf_type *y,
                           const struct wf_type *pred)
{
    if (pred->rank < 1 || pred->rank > 2 || y->rank > 2 || (pred->rank == 2 && columns(pred) < 1))
        return wf_err(WEFT_ESHAPE, "needs labels and predictions [batch, outputs]");
    m->n_state = 12 * r2_columns(pred) + 1;
    if (is_none(wf_arg_text(args, "class_aggregation")))
        m->n_results = (int)r2_columns(pred);
    return WEFT_OK;
}

/* The variance is a small difference of large sums if labels are far from 0: these are computed in
 * f64 and kept as three f32 that add up to them. */
static weft_val three_floats(weft_graph *g, weft_val v)
{
    weft_val part[3];

    for (int i = 0; i < 3; i++) {
        part[i] = wf_as(g, v, WEFT_F32);
        v = weft_sub(g, v, wf_as(g, part[i], WEFT_F64));
    }
    return weft_concat(g, 3, part, 0);
}

static weft_val r2_build(struct wf_metric_batch *b)
{
    weft_graph *g = b->g;
    int64_t flat = -1;
    weft_val y = wf_as(g, b->y, WEFT_F64), p = wf_as(g, b->pred, WEFT_F64), w, wy, sums[4], all[2];

    wf_fit_ranks(g, &y, &p);
    if (g->st)
        return WEFT_NIL;
    if (wf_val_type_of(g, y)->rank != wf_val_type_of(g, p)->rank)
        return fail(g, "labels and predictions differ in rank");
    if (wf_val_type_of(g, y)->rank == 1) {
        y = weft_expand_dims(g, y, -1);
        p = weft_expand_dims(g, p, -1);
    }
    w = b->weight.id ? wf_weight_like(g, b->weight, y) : weft_ones_like(g, y);
    wy = weft_mul(g, y, w);
    sums[0] = down(g, wy);
    sums[1] = down(g, weft_mul(g, y, wy));
    sums[2] = down(g, weft_mul(g, weft_square(g, weft_sub(g, y, p)), w));
    sums[3] = down(g, w);
    all[0] = three_floats(g, weft_concat(g, 4, sums, 0));
    all[1] = weft_reshape(g, weft_size_of(g, y, NULL), 1, &flat);
    return weft_concat(g, 2, all, 0);
}

/* 1 - error / variance. If all labels are the same, 1 or 0 depending on whether they are predicted
 * exactly. */
static double r2_of(double error, double variance)
{
    if (variance > 0)
        return 1 - error / variance;
    return error > 0 ? 0 : 1;
}

static double r2_adjusted(double score, double n, double p)
{
    return p > 0 && p < n - 1 ? 1 - (1 - score) * (n - 1) / (n - p - 1) : score;
}

static void r2_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                      double *out)
{
    const char *how = wf_arg_text(args, "class_aggregation");
    int64_t n = (m->n_state - 1) / 12;
    double score = 0, weight = 0, n_seen = sums[12 * n],
           p = (double)wf_arg_int(args, "num_regressors");

    for (int64_t i = 0; i < n; i++) {
        double s[4], variance, one, w;

        for (int k = 0; k < 4; k++)
            s[k] = sums[k * n + i] + sums[(4 + k) * n + i] + sums[(8 + k) * n + i];
        variance = s[1] - s[0] * wf_ratio(s[0], s[3]);
        one = s[3] != 0 ? r2_of(s[2], variance) : 0; /* nothing seen */
        w = strcmp(how, "variance_weighted_average") ? 1 : variance;
        if (is_none(how))
            out[i] = r2_adjusted(one, n_seen, p);
        score += w * one;
        weight += w;
    }
    if (!is_none(how))
        *out = r2_adjusted(wf_ratio(score, weight), n_seen, p);
}

const struct wf_metric_family wf_metric_r2 = {r2_check, r2_init, r2_build, r2_result, NULL};
