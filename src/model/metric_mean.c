/* metric_mean.c - metrics that are a weighted mean (or sum) of values per sample: accuracies,
 * errors, losses. */
#include <math.h>

#include "model/metric.h"
#include "weft/ops.h"

static int rank_of(const weft_graph *g, weft_val v)
{
    return wf_val_type_of(g, v)->rank;
}

/* The mean over the axes from `first` on. */
static weft_val mean_from(weft_graph *g, weft_val x, int first)
{
    weft_reduce_opts o = {.size = sizeof o};

    if (g->st || rank_of(g, x) <= first)
        return x;
    for (int i = first; i < rank_of(g, x); i++)
        o.axes[o.n_axes++] = i;
    return weft_mean(g, x, &o);
}

weft_val wf_metric_mean_of(weft_graph *g, weft_val values, weft_val weight)
{
    weft_val count, sum;

    if (g->st)
        return WEFT_NIL;
    if (weight.id) {
        weight = wf_as(g, weight, wf_val_type_of(g, values)->dtype);
        wf_fit_ranks(g, &values, &weight);
        if (g->st)
            return WEFT_NIL;
        values = mean_from(g, values, rank_of(g, weight));
        weight = wf_weight_like(g, weight, values);
        values = mean_from(g, weft_mul(g, values, weight), 1);
        count = weft_sum(g, mean_from(g, weight, 1), NULL);
    } else {
        values = mean_from(g, values, 1);
        if (g->st)
            return WEFT_NIL;
        count = weft_size_of(
            g, values, WEFT_OPTS(weft_size_of_opts, .dtype = wf_val_type_of(g, values)->dtype));
    }
    sum = weft_sum(g, values, NULL);
    return weft_stack(g, 2, (weft_val[]){sum, count}, 0);
}

/* ---- right or wrong -------------------------------------------------------------------------- */

static weft_val misfit(struct wf_metric_batch *b)
{
    char y[WF_TYPE_TEXT], p[WF_TYPE_TEXT];

    wf_graph_fail(b->g, wf_err(WEFT_ESHAPE, "labels %s do not fit predictions %s",
                               wf_type_text(wf_val_type_of(b->g, b->y), y),
                               wf_type_text(wf_val_type_of(b->g, b->pred), p)));
    return WEFT_NIL;
}

/* Labels as floats of the predictions' type and rank. */
static void same_form(struct wf_metric_batch *b)
{
    b->y = wf_as(b->g, b->y, wf_val_type_of(b->g, b->pred)->dtype);
    wf_fit_ranks(b->g, &b->y, &b->pred);
    if (!b->g->st && rank_of(b->g, b->y) != rank_of(b->g, b->pred))
        misfit(b);
}

/* Class numbers without the class axis, i64. */
static weft_val class_numbers(struct wf_metric_batch *b)
{
    const struct wf_type *y = wf_val_type_of(b->g, b->y);
    weft_val v = b->y;

    if (y->rank == rank_of(b->g, b->pred) && y->rank && y->dim[y->rank - 1] == 1)
        v = weft_squeeze(b->g, v, 1, (int64_t[]){-1});
    if (!b->g->st && rank_of(b->g, v) != rank_of(b->g, b->pred) - 1)
        return misfit(b);
    return wf_as(b->g, v, WEFT_I64);
}

static weft_val one_hot_numbers(struct wf_metric_batch *b)
{
    if (rank_of(b->g, b->y) != rank_of(b->g, b->pred) || !rank_of(b->g, b->y))
        return misfit(b);
    return weft_argmax(b->g, wf_as_float(b->g, b->y), -1, NULL);
}

static weft_val equal_to_best(struct wf_metric_batch *b, weft_val classes)
{
    return weft_eq(b->g, classes, weft_argmax(b->g, b->pred, -1, NULL));
}

/* Whether the label's prediction is among the k largest: fewer than k others are larger, and it is
 * finite. */
static weft_val in_top_k(struct wf_metric_batch *b, weft_val classes)
{
    weft_graph *g = b->g;
    int64_t k = wf_arg_int(&b->args, "k");
    weft_val own = weft_take_along(g, b->pred, weft_expand_dims(g, classes, -1), -1);
    weft_val larger = wf_as(g, weft_gt(g, b->pred, own), WEFT_F32);
    weft_val n = wf_sum_axis(g, larger, -1, false);
    weft_val found = weft_lt(g, n, wf_const_like(g, (double)k, n));
    weft_val sane = weft_is_finite(g, weft_squeeze(g, own, 1, (int64_t[]){-1}));

    return weft_logical_and(g, found, sane);
}

/* Predictions are the classes themselves, best first. */
static weft_val in_sorted_ids(struct wf_metric_batch *b, weft_val classes)
{
    weft_graph *g = b->g;
    const struct wf_type *p = wf_val_type_of(g, b->pred);
    int64_t k = wf_arg_int(&b->args, "k"), n = p->dim[p->rank - 1];
    weft_val ids = wf_as(g, b->pred, WEFT_I64);

    ids = weft_slice_axis(g, ids, -1, 0, n >= 0 && n < k ? n : k);
    return weft_any(g, weft_eq(g, ids, weft_expand_dims(g, classes, -1)),
                    WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
}

/* ---- correlations ---------------------------------------------------------------------------- */

static weft_val centred(weft_graph *g, weft_val x, int64_t axis)
{
    return weft_sub(g, x, wf_mean_axis(g, x, axis, true));
}

static weft_val pearson(struct wf_metric_batch *b, int64_t axis)
{
    weft_graph *g = b->g;
    weft_val y = centred(g, b->y, axis), p = centred(g, b->pred, axis);
    weft_val vy = wf_mean_axis(g, weft_square(g, y), axis, true);
    weft_val vp = wf_mean_axis(g, weft_square(g, p), axis, true);

    y = weft_div(g, y, weft_sqrt(g, vy));
    p = weft_div(g, p, weft_sqrt(g, vp));
    return wf_mean_axis(g, weft_mul(g, y, p), axis, false);
}

/* The first factor of Keras' covariance is the label minus the mean of the predictions: kept, so
 * that numbers agree. */
static weft_val concordance(struct wf_metric_batch *b, int64_t axis)
{
    weft_graph *g = b->g;
    weft_val my = wf_mean_axis(g, b->y, axis, true), mp = wf_mean_axis(g, b->pred, axis, true);
    weft_val vy = wf_mean_axis(g, weft_square(g, weft_sub(g, b->y, my)), axis, true);
    weft_val vp = wf_mean_axis(g, weft_square(g, weft_sub(g, b->pred, mp)), axis, true);
    weft_val covar = weft_mul(g, weft_sub(g, b->y, mp), weft_sub(g, b->pred, mp));
    weft_val norm = weft_add(g, weft_add(g, vy, vp), weft_square(g, weft_sub(g, my, mp)));
    weft_val v = weft_div(g, wf_affine(g, covar, 2, 0), wf_affine(g, norm, 1, WF_EPSILON));

    return wf_mean_axis(g, v, axis, false);
}

/* ---- the family ------------------------------------------------------------------------------ */

static weft_val values_of(struct wf_metric_batch *b)
{
    weft_graph *g = b->g;
    weft_val v;

    switch (b->m->kind->variant) {
    case MEAN_CATEGORICAL: return equal_to_best(b, one_hot_numbers(b));
    case MEAN_SPARSE: return equal_to_best(b, class_numbers(b));
    case MEAN_TOP_K: return in_top_k(b, one_hot_numbers(b));
    case MEAN_SPARSE_TOP_K:
        v = class_numbers(b);
        if (g->st)
            return WEFT_NIL;
        return wf_arg_int(&b->args, "from_sorted_ids") ? in_sorted_ids(b, v) : in_top_k(b, v);
    case MEAN_VALUES:
    case MEAN_SUM: return b->pred;
    default: break;
    }
    same_form(b);
    if (g->st)
        return WEFT_NIL;
    switch (b->m->kind->variant) {
    case MEAN_EQUAL: return weft_eq(g, b->y, b->pred);
    case MEAN_BINARY:
        v = weft_gt(g, b->pred, wf_const_like(g, wf_arg_float(&b->args, "threshold"), b->pred));
        return weft_eq(g, b->y, wf_as(g, v, wf_val_type_of(g, b->y)->dtype));
    case MEAN_COSINE:
        v = weft_mul(g, wf_normalize(g, b->y, wf_arg_int(&b->args, "axis")),
                     wf_normalize(g, b->pred, wf_arg_int(&b->args, "axis")));
        return wf_sum_axis(g, v, wf_arg_int(&b->args, "axis"), false);
    case MEAN_PEARSON: return pearson(b, wf_arg_int(&b->args, "axis"));
    case MEAN_CONCORDANCE: return concordance(b, wf_arg_int(&b->args, "axis"));
    default: return weft_square(g, weft_sub(g, b->pred, b->y)); /* MEAN_ROOT */
    }
}

static weft_status mean_check(const struct wf_metric_kind *kind, const struct wf_args *args)
{
    if ((kind->variant == MEAN_TOP_K || kind->variant == MEAN_SPARSE_TOP_K) &&
        wf_arg_int(args, "k") < 1)
        return wf_err(WEFT_EINVAL, "k=%lld: must be at least 1", (long long)wf_arg_int(args, "k"));
    return WEFT_OK;
}

static weft_status mean_init(struct wf_metric *m, const struct wf_args *args,
                             const struct wf_type *y, const struct wf_type *pred)
{
    (void)args, (void)y, (void)pred;
    m->n_state = m->kind->variant == MEAN_SUM ? 1 : 2;
    return WEFT_OK;
}

static weft_val mean_build(struct wf_metric_batch *b)
{
    weft_graph *g = b->g;
    weft_val v = values_of(b);

    if (g->st)
        return WEFT_NIL;
    v = wf_as_float(g, v);
    if (b->m->kind->variant != MEAN_SUM)
        return wf_metric_mean_of(g, v, b->weight);
    if (b->weight.id)
        v = weft_mul(g, v, wf_weight_like(g, b->weight, v));
    return weft_sum(g, v, NULL);
}

static void mean_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                        double *out)
{
    (void)args;
    *out = m->kind->variant == MEAN_SUM ? sums[0] : wf_ratio(sums[0], sums[1]);
    if (m->kind->variant == MEAN_ROOT)
        *out = sqrt(*out);
}

const struct wf_metric_family wf_metric_mean = {mean_check, mean_init, mean_build, mean_result,
                                                NULL};

/* ---- means of losses ------------------------------------------------------------------------- */

static weft_status loss_init(struct wf_metric *m, const struct wf_args *args,
                             const struct wf_type *y, const struct wf_type *pred)
{
    (void)args, (void)y, (void)pred;
    m->n_state = 2;
    return WEFT_OK;
}

static weft_val loss_build(struct wf_metric_batch *b)
{
    const struct wf_loss_kind *kind = wf_metric_loss_of(b->m->kind);
    weft_val v = WEFT_NIL, mask = WEFT_NIL, w = b->weight;

    if (wf_loss_values(b->g, kind, b->m->attr, b->y, b->pred, &v) ||
        wf_loss_ignored(b->g, kind, b->m->attr, b->y, b->pred, &mask))
        return WEFT_NIL;
    if (mask.id) { /* what the loss ignores does not count */
        mask = wf_as(b->g, mask, WEFT_F32);
        w = w.id ? weft_mul(b->g, mask, wf_weight_like(b->g, w, mask)) : mask;
    }
    return wf_metric_mean_of(b->g, wf_as_float(b->g, v), w);
}

static void loss_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                        double *out)
{
    double mean = wf_ratio(sums[0], sums[1]);

    (void)args;
    *out = m->kind->variant == LOSS_EXP ? exp(mean) : mean;
}

const struct wf_metric_family wf_metric_loss = {NULL, loss_init, loss_build, loss_result, NULL};
