/* grad_norm.c - gradient rules of the normalisations.
 *
 * The fused *_grad ops give the gradients of y. Gradients of the statistics, and of the fused
 * gradients themselves, go through an expansion into primitives, which is the same for all
 * normalisations but for the axes: struct view says how x is cut and over which axes its sets
 * extend. */
#include "graph/grad.h"
#include "graph/nn.h"

struct view {
    bool split;     /* the last axis is cut into groups first */
    int64_t groups; /* -1: one per channel */
    int n;          /* axes that are normalised together, of x or of the cut x */
    int64_t axes[WEFT_MAX_RANK];
    int rank;             /* of x or of the cut x */
    int n_lead;           /* axes of x that scale and offset do not have */
    bool centred, is_var; /* a mean is subtracted; the spread is a variance, not 1/deviation */
    double epsilon;
};

static weft_val bin(weft_graph *g, int op_id, weft_val a, weft_val b)
{
    return wf_binary(g, op_id, a, b);
}

static weft_val over_axes(weft_graph *g, int op_id, weft_val x, int n, const int64_t *axes)
{
    struct wf_set sets[] = {WF_SET_INTS("axes", n, axes)};

    return n ? wf_build(g, op_id, 1, &x, 1, sets) : x;
}

/* ---- views ----------------------------------------------------------------------------------- */

static struct view batch_view(int rank, double epsilon)
{
    struct view v = {.n = rank - 1,
                     .rank = rank,
                     .n_lead = rank - 1,
                     .centred = true,
                     .is_var = true,
                     .epsilon = epsilon};

    for (int i = 0; i < v.n; i++)
        v.axes[i] = i;
    return v;
}

static struct view last_view(int rank, int n_axes, bool centred, double epsilon)
{
    struct view v = {
        .n = n_axes, .rank = rank, .n_lead = rank - n_axes, .centred = centred, .epsilon = epsilon};

    for (int i = 0; i < n_axes; i++)
        v.axes[i] = rank - n_axes + i;
    return v;
}

static struct view group_view(int rank, int64_t groups, double epsilon)
{
    struct view v = {.split = true,
                     .groups = groups,
                     .rank = rank + 1,
                     .n_lead = rank - 1,
                     .centred = true,
                     .is_var = true,
                     .epsilon = epsilon};

    for (int i = 1; i < rank - 1; i++)
        v.axes[v.n++] = i;
    v.axes[v.n++] = rank;
    return v;
}

static weft_val cut(weft_graph *g, const struct view *v, weft_val x)
{
    struct wf_set sets[] = {WF_SET_INT("parts", v->groups > 0 ? v->groups : 0),
                            WF_SET_INT("size", v->groups > 0 ? 0 : 1)};

    return v->split ? wf_build(g, WF_OP_split_last, 1, &x, 2, sets) : x;
}

static weft_val join(weft_graph *g, const struct view *v, weft_val x, weft_val like)
{
    return v->split ? bin(g, WF_OP_reshape_like, x, like) : x;
}

/* A statistic (one number per set) in a shape that goes with the cut x. */
static weft_val spread_out(weft_graph *g, const struct view *v, weft_val stat)
{
    return wf_expand_axes(g, stat, v->n, v->axes, v->rank);
}

static weft_val mean_of(weft_graph *g, const struct view *v, weft_val x)
{
    return over_axes(g, WF_OP_mean, x, v->n, v->axes);
}

static weft_val rstd_of(weft_graph *g, const struct view *v, weft_val var)
{
    return wf_unary(g, WF_OP_rsqrt, bin(g, WF_OP_add, var, wf_const_like(g, v->epsilon, var)));
}

/* ---- expansions ------------------------------------------------------------------------------ */

/* outs: y, [mean,] spread. `like` has the type in which statistics are kept. */
static void expand_forward(weft_graph *g, const struct view *v, weft_val x, weft_val gamma,
                           weft_val beta, weft_val like, weft_val *outs)
{
    weft_val xs = cut(g, v, wf_cast_like(g, x, like)), mean = WEFT_NIL, spread, rstd, y;

    if (v->centred) {
        mean = mean_of(g, v, xs);
        xs = bin(g, WF_OP_sub, xs, spread_out(g, v, mean));
        outs[1] = mean;
    }
    spread = mean_of(g, v, bin(g, WF_OP_mul, xs, xs));
    rstd = rstd_of(g, v, spread);
    if (!v->is_var)
        spread = rstd;
    y = join(g, v, bin(g, WF_OP_mul, xs, spread_out(g, v, rstd)), x);
    if (gamma.id)
        y = bin(g, WF_OP_mul, y, wf_cast_like(g, gamma, like));
    if (beta.id)
        y = bin(g, WF_OP_add, y, wf_cast_like(g, beta, like));
    outs[0] = wf_cast_like(g, y, x);
    outs[v->centred ? 2 : 1] = spread;
}

/* outs: dx, dgamma, dbeta (see the reference kernel for the formula). */
static void expand_backward(weft_graph *g, const struct view *v, weft_val dy, weft_val x,
                            weft_val mean, weft_val spread, weft_val gamma, weft_val *outs)
{
    int64_t lead[WEFT_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    weft_val dys = wf_cast_like(g, dy, spread), xs = cut(g, v, wf_cast_like(g, x, spread));
    weft_val rstd = spread_out(g, v, v->is_var ? rstd_of(g, v, spread) : spread), h, d = dys, gh;

    if (v->centred)
        xs = bin(g, WF_OP_sub, xs, spread_out(g, v, mean));
    h = bin(g, WF_OP_mul, xs, rstd);
    outs[1] = over_axes(g, WF_OP_sum, bin(g, WF_OP_mul, dys, join(g, v, h, x)), v->n_lead, lead);
    outs[2] = over_axes(g, WF_OP_sum, dys, v->n_lead, lead);
    if (gamma.id) {
        outs[1] = wf_cast_like(g, outs[1], gamma);
        outs[2] = wf_cast_like(g, outs[2], gamma);
        d = bin(g, WF_OP_mul, d, wf_cast_like(g, gamma, spread));
    }
    d = cut(g, v, d);
    gh = spread_out(g, v, mean_of(g, v, bin(g, WF_OP_mul, d, h)));
    if (v->centred)
        d = bin(g, WF_OP_sub, d, spread_out(g, v, mean_of(g, v, d)));
    d = bin(g, WF_OP_sub, d, bin(g, WF_OP_mul, h, gh));
    outs[0] = wf_cast_like(g, join(g, v, bin(g, WF_OP_mul, rstd, d), x), x);
}

/* ---- the rules ------------------------------------------------------------------------------- */

static weft_val operand(const struct wf_grad *r, int i)
{
    return i < r->n_in ? r->in[i] : WEFT_NIL;
}

/* The gradient of a norm with the fused op `grad_op`, or through the expansion when a statistic
 * has one. */
static weft_status norm_rule(struct wf_grad *r, const struct view *v, int grad_op, int n_sets,
                             const struct wf_set *sets)
{
    weft_graph *g = r->g;
    weft_val gamma = operand(r, 1), beta = operand(r, 2), outs[3] = {{0}}, in[5], d;
    bool stats = r->dout[1].id || (v->centred && r->dout[2].id);
    int n = 0;

    if (stats) {
        expand_forward(g, v, r->in[0], gamma, beta, r->out[1], outs);
        return wf_grad_expanded(r, outs);
    }
    in[n++] = r->dout[0];
    in[n++] = r->in[0];
    in[n++] = r->out[1];
    if (v->centred)
        in[n++] = r->out[2];
    in[n++] = gamma;
    d = wf_build(g, grad_op, n, in, n_sets, sets);
    r->din[0] = d;
    if (r->n_in > 1 && r->need[1])
        r->din[1] = wf_cast_like(g, weft_output(g, d, 1), gamma);
    if (r->n_in > 2 && r->need[2])
        r->din[2] = wf_cast_like(g, weft_output(g, d, 2), beta);
    return g->st;
}

static weft_status norm_grad_rule(struct wf_grad *r, const struct view *v)
{
    weft_val outs[3] = {{0}}, mean = v->centred ? r->in[2] : WEFT_NIL;
    int spread = v->centred ? 3 : 2;

    expand_backward(r->g, v, r->in[0], r->in[1], mean, r->in[spread], operand(r, spread + 1), outs);
    return wf_grad_expanded(r, outs);
}

static int rank_of(const struct wf_grad *r, int i)
{
    return wf_val_type_of(r->g, r->in[i])->rank;
}

weft_status wf_grad_batch_norm(struct wf_grad *r)
{
    double epsilon = wf_grad_float(r, "epsilon");
    struct view v = batch_view(rank_of(r, 0), epsilon);
    struct wf_set sets[] = {WF_SET_FLOAT("epsilon", epsilon)};

    return norm_rule(r, &v, WF_OP_batch_norm_grad, 1, sets);
}

weft_status wf_grad_batch_norm_grad(struct wf_grad *r)
{
    struct view v = batch_view(rank_of(r, 1), wf_grad_float(r, "epsilon"));

    return norm_grad_rule(r, &v);
}

weft_status wf_grad_layer_norm(struct wf_grad *r)
{
    int64_t n_axes = wf_grad_int(r, "n_axes");
    struct view v = last_view(rank_of(r, 0), (int)n_axes, true, wf_grad_float(r, "epsilon"));
    struct wf_set sets[] = {WF_SET_INT("n_axes", n_axes)};

    return norm_rule(r, &v, WF_OP_layer_norm_grad, 1, sets);
}

weft_status wf_grad_layer_norm_grad(struct wf_grad *r)
{
    struct view v = last_view(rank_of(r, 1), (int)wf_grad_int(r, "n_axes"), true, 0);

    return norm_grad_rule(r, &v);
}

weft_status wf_grad_rms_norm(struct wf_grad *r)
{
    int64_t n_axes = wf_grad_int(r, "n_axes");
    struct view v = last_view(rank_of(r, 0), (int)n_axes, false, wf_grad_float(r, "epsilon"));
    struct wf_set sets[] = {WF_SET_INT("n_axes", n_axes)};

    return norm_rule(r, &v, WF_OP_rms_norm_grad, 1, sets);
}

weft_status wf_grad_rms_norm_grad(struct wf_grad *r)
{
    struct view v = last_view(rank_of(r, 1), (int)wf_grad_int(r, "n_axes"), false, 0);

    return norm_grad_rule(r, &v);
}

weft_status wf_grad_group_norm(struct wf_grad *r)
{
    int64_t groups = wf_grad_int(r, "groups");
    double epsilon = wf_grad_float(r, "epsilon");
    struct view v = group_view(rank_of(r, 0), groups, epsilon);
    struct wf_set sets[] = {WF_SET_INT("groups", groups), WF_SET_FLOAT("epsilon", epsilon)};

    return norm_rule(r, &v, WF_OP_group_norm_grad, 2, sets);
}

weft_status wf_grad_group_norm_grad(struct wf_grad *r)
{
    struct view v =
        group_view(rank_of(r, 1), wf_grad_int(r, "groups"), wf_grad_float(r, "epsilon"));

    return norm_grad_rule(r, &v);
}
