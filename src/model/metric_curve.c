/* metric_curve.c - metrics of decisions at thresholds: counts, precision, recall, areas, and one
 * quantity at a given value of another.
 *
 * The sums are a histogram: of the labels that are positive, and of those that are not, how much
 * weight passes exactly s of the n sorted thresholds, s = 0 … n, for each label. [s][label][2],
 * positives second. So a batch takes one pass for any n; a count at threshold j is the sum over s >
 * j. With several thresholds there is a result for each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/metric.h"
#include "weft/ops.h"

enum { MAX_THRESHOLDS = 1 << 20, MAX_SUMS = 1 << 24 };

/* The thresholds, n in all. `even`: they are j / (n - 1), with the outer ones moved outwards by
 * epsilon if `wide`. Otherwise those of the list, and if `wide` also -epsilon and 1 + epsilon
 * around them. */
struct cut {
    int64_t n, n_labels;
    bool even, wide;
    int64_t n_list;
    const double *list;
    double one; /* what list points to if none was given */
};

/* Whether there is a result for each threshold. */
static bool is_count(int variant)
{
    return variant < CURVE_AUC;
}

static void cut_of(const struct wf_metric *m, const struct wf_args *args, struct cut *c)
{
    const struct wf_attr *list = wf_arg(args, "thresholds");
    int64_t k;

    *c = (struct cut){.n_labels = 1};
    c->wide = m->kind->variant == CURVE_AUC;
    if (m->kind->variant >= CURVE_AUC && !list->n) {
        c->n = wf_arg_int(args, "num_thresholds");
        c->even = c->n > 1 || c->wide;
    } else {
        c->n_list = list->n;
        c->n = list->n + (c->wide ? 2 : 0);
        c->list = list->floats;
    }
    if (m->kind->variant == CURVE_AUC && wf_arg_int(args, "multi_label"))
        c->n_labels = m->n_state / (2 * (c->n + 1));
    if (!c->even && !c->n_list && (m->kind->variant < CURVE_AUC || c->n == 1)) {
        c->n = c->n_list = 1;
        c->one = wf_arg_maybe(args, "top_k", &k) ? -1e10 : 0.5;
        c->list = &c->one;
    }
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

static weft_status check_range(const char *name, double v)
{
    return v >= 0 && v <= 1 ? WEFT_OK : wf_err(WEFT_EINVAL, "%s=%g: must be in [0, 1]", name, v);
}

static const char *limit_name(int variant)
{
    switch (variant) {
    case CURVE_PRECISION_AT: return "recall";
    case CURVE_RECALL_AT: return "precision";
    case CURVE_SENSITIVITY_AT: return "specificity";
    case CURVE_SPECIFICITY_AT: return "sensitivity";
    default: return NULL;
    }
}

/* The list belongs to this metric: it is sorted in place. */
static weft_status sort_thresholds(const struct wf_attr *list)
{
    double *t = (double *)(uintptr_t)list->floats;

    for (int i = 0; i < list->n; i++) {
        weft_status st = check_range("thresholds", t[i]);

        if (st)
            return st;
    }
    if (list->n)
        qsort(t, (size_t)list->n, sizeof *t, ascending);
    return WEFT_OK;
}

static weft_status check_auc(const struct wf_args *args)
{
    const char *curve = wf_arg_text(args, "curve"), *how = wf_arg_text(args, "summation_method");

    if (!one_of(curve, "ROC", "PR", "PRGAIN") && !one_of(curve, "roc", "pr", "prgain"))
        return wf_err(WEFT_EINVAL, "curve=%s: must be ROC, PR or PRGAIN", curve);
    if (!one_of(how, "interpolation", "minoring", "majoring"))
        return wf_err(WEFT_EINVAL,
                      "summation_method=%s: must be interpolation, minoring or majoring", how);
    if (!wf_arg_int(args, "multi_label") && wf_arg_int(args, "num_labels"))
        return wf_err(WEFT_EINVAL, "num_labels needs multi_label=true");
    return WEFT_OK;
}

static weft_status count_labels(const struct wf_args *args, const struct wf_type *pred,
                                int64_t *n_labels)
{
    int64_t given = wf_arg_int(args, "num_labels"), n = pred->rank ? pred->dim[pred->rank - 1] : 0;
    const struct wf_attr *weights = wf_arg(args, "label_weights");

    if (!wf_arg_int(args, "multi_label"))
        return WEFT_OK;
    if (pred->rank != 2 || n < 1 || (given && given != n))
        return wf_err(WEFT_ESHAPE, "multi_label=true needs predictions [batch, labels]");
    if (weights->n && weights->n != n)
        return wf_err(WEFT_EINVAL, "%d label_weights for %lld labels", weights->n, (long long)n);
    *n_labels = n;
    return WEFT_OK;
}

static weft_status check_columns(const struct wf_args *args, const struct wf_type *pred)
{
    int64_t n = pred->rank ? pred->dim[pred->rank - 1] : 0, id, k;

    if (wf_arg_maybe(args, "class_id", &id) && (pred->rank < 2 || id < 0 || (n >= 0 && id >= n)))
        return wf_err(WEFT_ERANGE, "class_id=%lld: predictions have no such column", (long long)id);
    if (wf_arg_maybe(args, "top_k", &k) && (pred->rank < 2 || n < 0 || k < 1 || k > n))
        return wf_err(WEFT_ERANGE, "top_k=%lld: predictions have fewer columns", (long long)k);
    return WEFT_OK;
}

static weft_status curve_check(const struct wf_metric_kind *kind, const struct wf_args *args)
{
    const char *limit = limit_name(kind->variant);
    const struct wf_attr *list = wf_arg(args, "thresholds");
    int64_t n = kind->variant >= CURVE_AUC && !list->n ? wf_arg_int(args, "num_thresholds") : 2,
            least = kind->variant == CURVE_AUC ? 2 : 1;
    weft_status st = sort_thresholds(list);

    if (!st && limit)
        st = check_range(limit, wf_arg_float(args, limit));
    if (!st && kind->variant == CURVE_AUC)
        st = check_auc(args);
    if (!st && (n < least || n > MAX_THRESHOLDS))
        st = wf_err(WEFT_ERANGE, "num_thresholds=%lld: must be in [%lld, %d]", (long long)n,
                    (long long)least, MAX_THRESHOLDS);
    return st;
}

static weft_status curve_init(struct wf_metric *m, const struct wf_args *args,
                              const struct wf_type *y, const struct wf_type *pred)
{
    int64_t n_labels = 1;
    struct cut c;
    weft_status st = check_columns(args, pred);

    (void)y;
    if (!st && m->kind->variant == CURVE_AUC)
        st = count_labels(args, pred, &n_labels);
    if (st)
        return st;
    cut_of(m, args, &c);
    if (c.n + 1 > MAX_SUMS / n_labels)
        return wf_err(WEFT_ELIMIT, "%lld thresholds for %lld labels are too many", (long long)c.n,
                      (long long)n_labels);
    m->n_state = 2 * (c.n + 1) * n_labels;
    if (is_count(m->kind->variant))
        m->n_results = (int)c.n;
    return WEFT_OK;
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* All but the k largest of a row become -1e10. */
static weft_val keep_top(weft_graph *g, weft_val x, int64_t k)
{
    const struct wf_type *t = wf_val_type_of(g, x);
    int64_t n = t->dim[t->rank - 1];
    weft_val at = WEFT_NIL, hot;

    weft_top_k(g, x, k, &at);
    hot = weft_one_hot(g, at, n, NULL);
    hot = wf_sum_axis(g, hot, -2, false);
    return weft_where(g, wf_as(g, hot, WEFT_BOOL), x, wf_const_like(g, -1e10, x));
}

static weft_val above(weft_graph *g, weft_val p, double threshold)
{
    return wf_as(g, weft_gt(g, p, wf_const_like(g, threshold, p)), WEFT_F32);
}

/* The number of sorted thresholds that each prediction is above, f32 in its shape. */
static weft_val passed(weft_graph *g, const struct cut *c, weft_val p)
{
    weft_val s, list;
    weft_tensor t;

    if (c->even) {
        s = weft_ceil(g, wf_affine(g, weft_clip(g, p, 0, 1), (double)(c->n - 1), 0));
        return c->wide ? weft_max(g, s, wf_const_like(g, 1, s)) : s;
    }
    if (c->n_list == 1 && !c->wide)
        return above(g, p, c->list[0]);
    t = weft_view(WEFT_F64, (void *)(uintptr_t)c->list, 1, &c->n_list);
    list = wf_as(g, weft_constant(g, &t), WEFT_F32);
    s = weft_gt(g, weft_expand_dims(g, p, -1), list);
    s = wf_sum_axis(g, wf_as(g, s, WEFT_F32), -1, false);
    if (!c->wide)
        return s;
    return weft_add(g, s, weft_add(g, above(g, p, -WF_EPSILON), above(g, p, 1 + WF_EPSILON)));
}

/* Which segment of the histogram each element adds to. */
static weft_val segments(weft_graph *g, const struct cut *c, weft_val p)
{
    int64_t n = c->n_labels;
    weft_val s = wf_as(g, passed(g, c, p), WEFT_I32), k;
    int32_t *label;
    weft_tensor t;

    if (n == 1 || g->st)
        return s;
    label = wf_arena_alloc(&g->arena, (size_t)n * sizeof *label);
    if (!label) {
        wf_graph_fail(g, wf_err_nomem(g->ctx, (size_t)n * sizeof *label, "labels"));
        return WEFT_NIL;
    }
    for (int64_t i = 0; i < n; i++)
        label[i] = (int32_t)i;
    t = weft_view(WEFT_I32, label, 1, &n);
    k = weft_mul(g, s, wf_const_like(g, (double)n, s));
    return weft_add(g, k, weft_constant(g, &t));
}

static weft_val label_weights(struct wf_metric_batch *b, weft_val w)
{
    const struct wf_attr *list = wf_arg(&b->args, "label_weights");
    int64_t n = list->n;
    weft_tensor t;

    if (!n || wf_arg_int(&b->args, "multi_label"))
        return w;
    t = weft_view(WEFT_F64, (void *)(uintptr_t)list->floats, 1, &n);
    return weft_mul(b->g, w, wf_as(b->g, weft_constant(b->g, &t), WEFT_F32));
}

static weft_val curve_build(struct wf_metric_batch *b)
{
    weft_graph *g = b->g;
    struct cut c;
    int64_t k, flat = -1;
    weft_val w, pos, s;

    cut_of(b->m, &b->args, &c);
    if (b->m->kind->variant == CURVE_AUC && wf_arg_int(&b->args, "from_logits"))
        b->pred = weft_sigmoid(g, b->pred);
    b->pred = wf_as(g, b->pred, WEFT_F32);
    b->y = wf_as(g, b->y, WEFT_F32);
    wf_fit_ranks(g, &b->pred, &b->y);
    if (!g->st && wf_val_type_of(g, b->pred)->rank != wf_val_type_of(g, b->y)->rank)
        wf_graph_fail(g, wf_err(WEFT_ESHAPE, "labels and predictions differ in rank"));
    if (wf_arg_maybe(&b->args, "top_k", &k) && !g->st)
        b->pred = keep_top(g, b->pred, k);
    if (wf_arg_maybe(&b->args, "class_id", &k)) {
        b->y = weft_slice_axis(g, b->y, -1, k, 1);
        b->pred = weft_slice_axis(g, b->pred, -1, k, 1);
    }
    pos = wf_as(g, weft_ne(g, b->y, wf_const_like(g, 0, b->y)), WEFT_F32);
    w = b->weight.id ? wf_weight_like(g, b->weight, pos) : weft_ones_like(g, pos);
    w = label_weights(b, w);
    s = weft_reshape(g, segments(g, &c, b->pred), 1, &flat);
    pos = weft_mul(g, pos, w);
    w = weft_reshape(g, weft_sub(g, w, pos), 1, &flat);
    pos = weft_reshape(g, pos, 1, &flat);
    return weft_segment_sum(g, weft_stack(g, 2, (weft_val[]){w, pos}, 1), s,
                            (c.n + 1) * c.n_labels);
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Counts of one label, walked from the highest threshold down. */
struct walk {
    const double *sums;
    int64_t n, n_labels, label, at; /* tp and fp are those of threshold `at` */
    double tp, fp, pos, neg;
};

static void walk_start(struct walk *w, const struct cut *c, const double *sums, int64_t label)
{
    *w = (struct walk){sums, c->n, c->n_labels, label, c->n, 0, 0, 0, 0};
    for (int64_t s = 0; s <= c->n; s++) {
        w->neg += sums[(s * c->n_labels + label) * 2];
        w->pos += sums[(s * c->n_labels + label) * 2 + 1];
    }
}

static bool walk_next(struct walk *w)
{
    if (!w->at)
        return false;
    w->fp += w->sums[(w->at * w->n_labels + w->label) * 2];
    w->tp += w->sums[(w->at * w->n_labels + w->label) * 2 + 1];
    w->at--;
    return true;
}

/* What f64 sums of f32 increments leave of an exact zero is treated as zero. */
static double rest(double whole, double part)
{
    double d = whole - part;

    return fabs(d) < 1e-9 * fabs(whole) ? 0 : d;
}

static double count_of(int variant, const struct walk *w)
{
    double fn = rest(w->pos, w->tp);

    switch (variant) {
    case CURVE_TP: return w->tp;
    case CURVE_FP: return w->fp;
    case CURVE_FN: return fn;
    case CURVE_TN: return rest(w->neg, w->fp);
    case CURVE_PRECISION: return wf_ratio(w->tp, w->tp + w->fp);
    default: return wf_ratio(w->tp, w->tp + fn); /* CURVE_RECALL */
    }
}

static double best_at(int variant, double limit, struct walk *w)
{
    double best = 0;

    while (walk_next(w)) {
        double recall = wf_ratio(w->tp, w->pos), precision = wf_ratio(w->tp, w->tp + w->fp);
        double specificity = wf_ratio(rest(w->neg, w->fp), w->neg);
        double given = variant == CURVE_PRECISION_AT || variant == CURVE_SPECIFICITY_AT ? recall
                       : variant == CURVE_RECALL_AT                                     ? precision
                                                    : specificity;
        double wanted = variant == CURVE_PRECISION_AT     ? precision
                        : variant == CURVE_SPECIFICITY_AT ? specificity
                                                          : recall;

        /* Keras compares in f32. */
        if ((float)given >= (float)limit && wanted > best)
            best = wanted;
    }
    return best;
}

static void point_of(const char *curve, const struct walk *w, double *x, double *y)
{
    double fn = rest(w->pos, w->tp);

    if (!strcmp(curve, "ROC") || !strcmp(curve, "roc")) {
        *x = wf_ratio(w->fp, w->neg);
        *y = wf_ratio(w->tp, w->pos);
    } else if (!strcmp(curve, "PR") || !strcmp(curve, "pr")) {
        *x = wf_ratio(w->tp, w->pos);
        *y = wf_ratio(w->tp, w->tp + w->fp);
    } else {
        double scale = wf_ratio(w->pos, w->neg);

        *x = w->tp == 0 ? 0 : fmax(1 - scale * fn / w->tp, 0);
        *y = w->tp == 0 ? 1 : 1 - scale * w->fp / w->tp;
    }
}

/* Between two points of a PR curve true positives grow in proportion to all positives, not the
 * precision (Davis and Goadrich). */
static double pr_piece(double tp, double all, double tp_above, double all_above, double pos)
{
    double dtp = tp - tp_above, slope = wf_ratio(dtp, fmax(all - all_above, 0));
    double intercept = tp_above - slope * all_above;
    double ratio = all > 0 && all_above > 0 ? all / all_above : 1;

    return wf_ratio(slope * (dtp + intercept * log(ratio)), fmax(pos, 0));
}

static double area_of(const struct wf_args *args, struct walk *w)
{
    const char *curve = wf_arg_text(args, "curve"), *how = wf_arg_text(args, "summation_method");
    bool pr = !strcmp(curve, "PR") || !strcmp(curve, "pr");
    double area = 0, x0, y0, tp0, all0;

    if (!walk_next(w))
        return 0;
    point_of(curve, w, &x0, &y0);
    tp0 = w->tp;
    all0 = w->tp + w->fp;
    while (walk_next(w)) {
        double x, y, height;

        point_of(curve, w, &x, &y);
        height = !strcmp(how, "interpolation") ? (y + y0) / 2
                 : !strcmp(how, "minoring")    ? fmin(y, y0)
                                               : fmax(y, y0);
        area += pr && !strcmp(how, "interpolation")
                    ? pr_piece(w->tp, w->tp + w->fp, tp0, all0, w->pos)
                    : (x - x0) * height;
        x0 = x;
        y0 = y;
        tp0 = w->tp;
        all0 = w->tp + w->fp;
    }
    return area;
}

/* The mean over labels, weighted if there are weights. */
static double auc_result(const struct wf_args *args, const struct cut *c, const double *sums)
{
    const struct wf_attr *weights = wf_arg(args, "label_weights");
    double sum = 0, total = 0;

    for (int64_t i = 0; i < c->n_labels; i++) {
        double weight = weights->n && c->n_labels > 1 ? weights->floats[i] : 1;
        struct walk w;

        walk_start(&w, c, sums, i);
        sum += weight * area_of(args, &w);
        total += weight;
    }
    return wf_ratio(sum, total);
}

static void curve_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                         double *out)
{
    const char *limit = limit_name(m->kind->variant);
    struct walk w;
    struct cut c;

    cut_of(m, args, &c);
    walk_start(&w, &c, sums, 0);
    if (m->kind->variant == CURVE_AUC)
        *out = auc_result(args, &c, sums);
    else if (limit)
        *out = best_at(m->kind->variant, wf_arg_float(args, limit), &w);
    else
        while (walk_next(&w)) /* from the highest threshold down: w.at is its number */
            out[w.at] = count_of(m->kind->variant, &w);
}

static void curve_suffix(const struct wf_metric *m, const struct wf_args *args, int i,
                         char out[WF_METRIC_SUFFIX])
{
    struct cut c;

    cut_of(m, args, &c);
    wf_snprintf(out, WF_METRIC_SUFFIX, "_%g", c.list[i]);
}

const struct wf_metric_family wf_metric_curve = {curve_check, curve_init, curve_build, curve_result,
                                                 curve_suffix};
