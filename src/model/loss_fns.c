/* loss_fns.c - the formulas of the losses, as Keras has them.
 *
 * Each gets matching labels and predictions and returns one value per sample (and leading axes).
 * Cross-entropies of the result of a softmax or sigmoid node use its logits, as Keras does: then
 * nothing is clipped, and the fused op runs. */
#include "model/loss.h"
#include "weft/ops.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static weft_val last_mean(struct wf_loss *l, weft_val x)
{
    return wf_mean_axis(l->g, x, -1, false);
}

static weft_val floor_at(struct wf_loss *l, weft_val x, double low)
{
    return weft_max(l->g, x, wf_const_like(l->g, low, x));
}

/* The operand of `op` if x is its result along the last axis; nil otherwise. */
static weft_val logits_behind(weft_graph *g, weft_val x, int op)
{
    const struct wf_node *n;

    if (g->st || !x.id)
        return WEFT_NIL;
    n = wf_val_node(g, x);
    if (n->op->id != op)
        return WEFT_NIL;
    if (op == WF_OP_softmax) {
        int64_t axis = wf_node_int(n, "axis");

        if (axis != -1 && axis != wf_val_type_of(g, x)->rank - 1)
            return WEFT_NIL;
    }
    return (weft_val){n->in[0]};
}

/* Whether the loss gets logits. If so, they are in l->pred. */
static bool has_logits(struct wf_loss *l, int op)
{
    weft_val behind = logits_behind(l->g, l->pred, op);

    if (behind.id)
        l->pred = behind;
    return behind.id || wf_arg_int(&l->args, "from_logits");
}

static weft_val clipped(struct wf_loss *l, weft_val p)
{
    return weft_clip(l->g, p, WF_EPSILON, 1 - WF_EPSILON);
}

/* p / sum(p), clipped. */
static weft_val distribution(struct wf_loss *l, weft_val p, int64_t axis)
{
    return clipped(l, weft_div(l->g, p, wf_sum_axis(l->g, p, axis, true)));
}

/* Moves the class axis to the end, where the fused ops need it. */
static weft_val axis_last(struct wf_loss *l, weft_val x, int64_t axis)
{
    int64_t perm[WEFT_MAX_RANK];
    int rank, n = 0;

    if (l->g->st)
        return WEFT_NIL;
    rank = wf_val_type_of(l->g, x)->rank;
    axis = axis < 0 ? axis + rank : axis;
    if (axis == rank - 1 || axis < 0 || axis >= rank)
        return x;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            perm[n++] = i;
    perm[n++] = axis;
    return weft_transpose(l->g, x, n, perm);
}

/* ---- regression ------------------------------------------------------------------------------ */

weft_val wf_loss_mean_squared_error(struct wf_loss *l)
{
    return last_mean(l, weft_square(l->g, weft_sub(l->g, l->y, l->pred)));
}

weft_val wf_loss_mean_absolute_error(struct wf_loss *l)
{
    return last_mean(l, weft_abs(l->g, weft_sub(l->g, l->y, l->pred)));
}

weft_val wf_loss_mean_absolute_percentage_error(struct wf_loss *l)
{
    weft_val scale = floor_at(l, weft_abs(l->g, l->y), WF_EPSILON);
    weft_val diff = weft_abs(l->g, weft_div(l->g, weft_sub(l->g, l->y, l->pred), scale));

    return wf_affine(l->g, last_mean(l, diff), 100, 0);
}

weft_val wf_loss_mean_squared_logarithmic_error(struct wf_loss *l)
{
    weft_val p = weft_log(l->g, wf_affine(l->g, floor_at(l, l->pred, WF_EPSILON), 1, 1));
    weft_val y = weft_log(l->g, wf_affine(l->g, floor_at(l, l->y, WF_EPSILON), 1, 1));

    return last_mean(l, weft_square(l->g, weft_sub(l->g, p, y)));
}

weft_val wf_loss_huber(struct wf_loss *l)
{
    double delta = wf_arg_float(&l->args, "delta");
    weft_val error = weft_sub(l->g, l->pred, l->y), size = weft_abs(l->g, error);
    weft_val square = wf_affine(l->g, weft_square(l->g, error), 0.5, 0);
    weft_val line = wf_affine(l->g, size, delta, -0.5 * delta * delta);
    weft_val small = weft_le(l->g, size, wf_const_like(l->g, delta, size));

    return last_mean(l, weft_where(l->g, small, square, line));
}

weft_val wf_loss_log_cosh(struct wf_loss *l)
{
    weft_val x = weft_sub(l->g, l->pred, l->y);
    weft_val soft = weft_softplus(l->g, wf_affine(l->g, x, -2, 0));

    return last_mean(l, wf_affine(l->g, weft_add(l->g, x, soft), 1, -0.69314718055994530942));
}

weft_val wf_loss_cosine_similarity(struct wf_loss *l)
{
    int64_t axis = wf_arg_int(&l->args, "axis");
    weft_val y = wf_normalize(l->g, l->y, axis), p = wf_normalize(l->g, l->pred, axis);

    return weft_neg(l->g, wf_sum_axis(l->g, weft_mul(l->g, y, p), axis, false));
}

/* ---- two classes ----------------------------------------------------------------------------- */

static weft_val smooth_binary(struct wf_loss *l)
{
    double s = wf_arg_float(&l->args, "label_smoothing");

    return s != 0 ? wf_affine(l->g, l->y, 1 - s, 0.5 * s) : l->y;
}

/* -y ln p - (1 - y) ln(1 - p), p clipped. */
static weft_val binary_entropy(struct wf_loss *l, weft_val y, weft_val p)
{
    weft_graph *g = l->g;
    weft_val c = clipped(l, p);
    weft_val a = weft_mul(g, y, weft_log(g, c));
    weft_val b = weft_mul(g, wf_affine(g, y, -1, 1), weft_log(g, wf_affine(g, c, -1, 1)));

    return weft_neg(g, weft_add(g, a, b));
}

weft_val wf_loss_binary_crossentropy(struct wf_loss *l)
{
    int64_t axis = wf_arg_int(&l->args, "axis");
    weft_val y = smooth_binary(l);
    weft_val v = has_logits(l, WF_OP_sigmoid) ? weft_sigmoid_xent(l->g, l->pred, y)
                                              : binary_entropy(l, y, l->pred);

    return wf_mean_axis(l->g, v, axis, false);
}

weft_val wf_loss_binary_focal_crossentropy(struct wf_loss *l)
{
    weft_graph *g = l->g;
    double alpha = wf_arg_float(&l->args, "alpha"), gamma = wf_arg_float(&l->args, "gamma");
    weft_val y = smooth_binary(l), not_y = wf_affine(g, y, -1, 1);
    weft_val p = wf_arg_int(&l->args, "from_logits") ? weft_sigmoid(g, l->pred) : l->pred;
    weft_val right = weft_add(g, weft_mul(g, y, p), weft_mul(g, not_y, wf_affine(g, p, -1, 1)));
    weft_val factor = wf_affine(g, right, -1, 1), v;

    factor = weft_pow(g, factor, wf_const_like(g, gamma, factor));
    v = weft_mul(g, factor, binary_entropy(l, y, p));
    if (wf_arg_int(&l->args, "apply_class_balancing"))
        v = weft_mul(g, v, wf_affine(g, y, 2 * alpha - 1, 1 - alpha));
    return wf_mean_axis(g, v, wf_arg_int(&l->args, "axis"), false);
}

/* ---- several classes ------------------------------------------------------------------------- */

/* Keras takes the number of classes from the last axis, regardless of `axis`. */
static weft_val smooth_categorical(struct wf_loss *l)
{
    double s = wf_arg_float(&l->args, "label_smoothing");
    weft_graph *g = l->g;
    weft_val n;

    if (s == 0 || g->st)
        return l->y;
    n = weft_size_of(g, l->y,
                     WEFT_OPTS(weft_size_of_opts, .n_axes = 1, .axes = {-1},
                               .dtype = wf_val_type_of(g, l->y)->dtype));
    return weft_add(g, wf_affine(g, l->y, 1 - s, 0), weft_div(g, wf_const_like(g, s, l->y), n));
}

weft_val wf_loss_categorical_crossentropy(struct wf_loss *l)
{
    weft_graph *g = l->g;
    int64_t axis = wf_arg_int(&l->args, "axis");
    weft_val y = smooth_categorical(l), p;

    if (has_logits(l, WF_OP_softmax))
        return weft_softmax_xent(g, axis_last(l, l->pred, axis), axis_last(l, y, axis));
    p = distribution(l, l->pred, axis);
    return weft_neg(g, wf_sum_axis(g, weft_mul(g, y, weft_log(g, p)), axis, false));
}

weft_val wf_loss_categorical_focal_crossentropy(struct wf_loss *l)
{
    weft_graph *g = l->g;
    int64_t axis = wf_arg_int(&l->args, "axis");
    double alpha = wf_arg_float(&l->args, "alpha"), gamma = wf_arg_float(&l->args, "gamma");
    weft_val y = smooth_categorical(l), p = l->pred, factor;

    if (wf_arg_int(&l->args, "from_logits"))
        p = weft_softmax(g, p, (int)axis);
    p = distribution(l, p, axis);
    factor = wf_affine(g, p, -1, 1);
    factor = wf_affine(g, weft_pow(g, factor, wf_const_like(g, gamma, factor)), -alpha, 0);
    p = weft_mul(g, factor, weft_mul(g, y, weft_log(g, p)));
    return wf_sum_axis(g, p, axis, false);
}

weft_val wf_loss_sparse_categorical_crossentropy(struct wf_loss *l)
{
    weft_sparse_softmax_xent_opts opts = {.size = sizeof opts};
    int64_t axis = wf_arg_int(&l->args, "axis");

    if (l->g->st)
        return WEFT_NIL;
    if (axis != -1 && axis != wf_val_type_of(l->g, l->pred)->rank - 1) {
        wf_graph_fail(l->g, wf_err(WEFT_ENOSUP, "axis=%lld: classes must be on the last axis",
                                   (long long)axis));
        return WEFT_NIL;
    }
    opts.ignore = wf_arg_maybe(&l->args, "ignore_class", &opts.ignore_index);
    if (!has_logits(l, WF_OP_softmax))
        l->pred = weft_log(l->g, clipped(l, l->pred)); /* the op then divides by the sum */
    return weft_sparse_softmax_xent(l->g, l->pred, l->y, &opts);
}

weft_val wf_loss_categorical_generalized_cross_entropy(struct wf_loss *l)
{
    weft_graph *g = l->g;
    double q = wf_arg_float(&l->args, "q");
    weft_val p = weft_take_along(g, l->pred, weft_expand_dims(g, l->y, -1), -1);

    if (!(q > 0 && q < 1)) {
        wf_graph_fail(g, wf_err(WEFT_EINVAL, "q=%g: must be between 0 and 1", q));
        return WEFT_NIL;
    }
    p = weft_squeeze(g, p, 1, (int64_t[]){-1});
    return wf_affine(g, weft_pow(g, p, wf_const_like(g, q, p)), -1 / q, 1 / q);
}

/* ---- distributions and margins --------------------------------------------------------------- */

weft_val wf_loss_kl_divergence(struct wf_loss *l)
{
    weft_graph *g = l->g;
    weft_val y = weft_clip(g, l->y, WF_EPSILON, 1), p = weft_clip(g, l->pred, WF_EPSILON, 1);

    return wf_sum_axis(g, weft_mul(g, y, weft_log(g, weft_div(g, y, p))), -1, false);
}

weft_val wf_loss_poisson(struct wf_loss *l)
{
    weft_graph *g = l->g;
    weft_val log_p = weft_log(g, wf_affine(g, l->pred, 1, WF_EPSILON));

    return last_mean(l, weft_sub(g, l->pred, weft_mul(g, l->y, log_p)));
}

/* max(1 - y p, 0); labels that are all 0 or 1 become -1 and 1. */
static weft_val margin(struct wf_loss *l)
{
    weft_graph *g = l->g;
    weft_val zero = weft_eq(g, l->y, wf_const_like(g, 0, l->y));
    weft_val one = weft_eq(g, l->y, wf_const_like(g, 1, l->y));
    weft_val binary = weft_all(g, weft_logical_or(g, zero, one), NULL);
    weft_val y = weft_where(g, binary, wf_affine(g, l->y, 2, -1), l->y);

    return floor_at(l, wf_affine(g, weft_mul(g, y, l->pred), -1, 1), 0);
}

weft_val wf_loss_hinge(struct wf_loss *l)
{
    return last_mean(l, margin(l));
}

weft_val wf_loss_squared_hinge(struct wf_loss *l)
{
    return last_mean(l, weft_square(l->g, margin(l)));
}

weft_val wf_loss_categorical_hinge(struct wf_loss *l)
{
    weft_graph *g = l->g;
    weft_val right = wf_sum_axis(g, weft_mul(g, l->y, l->pred), -1, false);
    weft_val wrong = weft_mul(g, wf_affine(g, l->y, -1, 1), l->pred);

    wrong = weft_reduce_max(g, wrong, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
    return floor_at(l, wf_affine(g, weft_sub(g, wrong, right), 1, 1), 0);
}

/* ---- areas ----------------------------------------------------------------------------------- */

/* The sum over the axes of the argument "axis", or over all if there are none. */
static weft_val area(struct wf_loss *l, weft_val x)
{
    const struct wf_attr *axes = wf_arg(&l->args, "axis");
    weft_reduce_opts o = {.size = sizeof o};

    for (; o.n_axes < axes->n && o.n_axes < WEFT_MAX_RANK; o.n_axes++)
        o.axes[o.n_axes] = axes->ints[o.n_axes];
    return weft_sum(l->g, x, &o);
}

weft_val wf_loss_dice(struct wf_loss *l)
{
    weft_graph *g = l->g;
    weft_val both = area(l, weft_mul(g, l->y, l->pred));
    weft_val all = wf_affine(g, weft_add(g, area(l, l->y), area(l, l->pred)), 1, WF_EPSILON);

    return wf_affine(g, weft_div(g, both, all), -2, 1);
}

weft_val wf_loss_tversky(struct wf_loss *l)
{
    weft_graph *g = l->g;
    weft_val both = area(l, weft_mul(g, l->y, l->pred));
    weft_val only_y = area(l, weft_mul(g, wf_affine(g, l->pred, -1, 1), l->y));
    weft_val only_p = area(l, weft_mul(g, l->pred, wf_affine(g, l->y, -1, 1)));
    weft_val all = weft_add(g, wf_affine(g, only_y, wf_arg_float(&l->args, "alpha"), WF_EPSILON),
                            wf_affine(g, only_p, wf_arg_float(&l->args, "beta"), 0));

    return wf_affine(g, weft_div(g, both, weft_add(g, both, all)), -1, 1);
}
