/* grad_reduce.c - gradient rules of reductions, and of the ops that follow another value's shape. */
#include "graph/grad.h"

weft_val wf_reduce_to_like(weft_graph *g, weft_val x, weft_val like)
{
    if (g->st || wf_type_same_shape(wf_val_type_of(g, x), wf_val_type_of(g, like)))
        return x;
    return wf_binary(g, WF_OP_reduce_to_like, x, like);
}

weft_val wf_broadcast_like(weft_graph *g, weft_val x, weft_val like)
{
    if (g->st || wf_type_same_shape(wf_val_type_of(g, x), wf_val_type_of(g, like)))
        return x;
    return wf_binary(g, WF_OP_broadcast_like, x, like);
}

weft_status wf_grad_reduce_to_like(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_broadcast_like(r->g, r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status wf_grad_broadcast_like(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_reduce_to_like(r->g, r->dout[0], r->in[0]);
    return r->g->st;
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* v, a result of the reduction, with 1 at the axes that it took away: it then broadcasts against x. */
static weft_val kept(struct wf_grad *r, weft_val v)
{
    const struct wf_attr *axes = wf_attr(r->op, r->attr, "axes");
    int64_t all[WEFT_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    int rank;

    if (r->g->st || wf_grad_int(r, "keepdims"))
        return v;
    rank = wf_val_type_of(r->g, r->in[0])->rank;
    if (axes->n)
        return wf_expand_axes(r->g, v, axes->n, axes->ints, rank);
    return rank ? wf_expand_axes(r->g, v, rank, all, rank) : v;
}

static weft_val sum_axes(struct wf_grad *r, weft_val x)
{
    const struct wf_attr *axes = wf_attr(r->op, r->attr, "axes");
    struct wf_set sets[] = {WF_SET_INTS("axes", axes->n, axes->ints),
                            WF_SET_BOOL("keepdims", true)};

    return wf_build(r->g, WF_OP_sum, 1, &x, 2, sets);
}

/* How many elements of x make one result: a constant where that is known. */
static weft_val count(struct wf_grad *r, weft_dtype dtype)
{
    const struct wf_attr *axes = wf_attr(r->op, r->attr, "axes");
    const struct wf_type *x = wf_val_type_of(r->g, r->in[0]);
    struct wf_set sets[] = {WF_SET_INTS("axes", axes->n, axes->ints), WF_SET_DTYPE("dtype", dtype)};
    int64_t bits = 0;
    weft_tensor t = weft_view(dtype, &bits, 0, NULL);
    double n = 1;

    for (int i = 0; i < (axes->n ? axes->n : x->rank); i++) {
        int64_t a = axes->n ? axes->ints[i] : i, d = x->dim[a < 0 ? a + x->rank : a];

        if (d < 0)
            return wf_build(r->g, WF_OP_size_of, 1, r->in, 2, sets);
        n *= (double)d;
    }
    wf_set(&bits, dtype, 0, n);
    return weft_constant(r->g, &t);
}

static weft_val mul(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_mul, a, b);
}

static weft_val div(weft_graph *g, weft_val a, weft_val b)
{
    return wf_binary(g, WF_OP_div, a, b);
}

weft_status wf_grad_sum(struct wf_grad *r)
{
    r->din[0] = wf_broadcast_like(r->g, kept(r, r->dout[0]), r->in[0]);
    return r->g->st;
}

/* Half types cannot hold large counts: they divide in f32. */
weft_status wf_grad_mean(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_dtype t = wf_val_type_of(g, r->in[0])->dtype, wide = t == WEFT_F64 ? t : WEFT_F32;
    struct wf_set to_wide[] = {WF_SET_DTYPE("dtype", wide)}, back[] = {WF_SET_DTYPE("dtype", t)};
    weft_val dy = r->dout[0];

    if (t != wide)
        dy = wf_build(g, WF_OP_cast, 1, &dy, 1, to_wide);
    dy = div(g, dy, count(r, wide));
    if (t != wide)
        dy = wf_build(g, WF_OP_cast, 1, &dy, 1, back);
    r->din[0] = wf_broadcast_like(g, kept(r, dy), r->in[0]);
    return g->st;
}

/* Of largest and smallest: equal ones share the gradient evenly. */
weft_status wf_grad_reduce_max(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val chosen = wf_binary(g, WF_OP_eq, r->in[0], kept(r, r->out[0])), share;
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", wf_val_type_of(g, r->in[0])->dtype)};

    chosen = wf_build(g, WF_OP_cast, 1, &chosen, 1, sets);
    share = div(g, kept(r, r->dout[0]), sum_axes(r, chosen));
    r->din[0] = mul(g, chosen, share);
    return g->st;
}

weft_status wf_grad_prod(struct wf_grad *r)
{
    const struct wf_attr *axes = wf_attr(r->op, r->attr, "axes");
    struct wf_set sets[] = {WF_SET_INTS("axes", axes->n, axes->ints)};

    r->din[0] =
        wf_build(r->g, WF_OP_prod_grad, 2, (weft_val[]){kept(r, r->dout[0]), r->in[0]}, 1, sets);
    return r->g->st;
}

/* out = dy p with p_i the product of the x_j, j != i. For dy: sum of gr p. For x_k: the others' terms
 * have x_k as a factor, so (sum of gr out - gr_k out_k) / x_k; elements of 0 are not supported here. */
weft_status wf_grad_prod_grad(struct wf_grad *r)
{
    weft_graph *g = r->g;
    const struct wf_attr *axes = wf_attr(r->op, r->attr, "axes");
    struct wf_set sets[] = {WF_SET_INTS("axes", axes->n, axes->ints)};
    weft_val dy = r->in[0], x = r->in[1], gr = r->dout[0];

    if (r->need[0]) {
        weft_val one = wf_unary(g, WF_OP_ones_like, dy);
        weft_val p = wf_build(g, WF_OP_prod_grad, 2, (weft_val[]){one, x}, 1, sets);

        r->din[0] = sum_axes(r, mul(g, gr, p));
    }
    if (r->need[1]) {
        weft_val t = mul(g, gr, r->out[0]);

        r->din[1] = div(g, wf_binary(g, WF_OP_sub, sum_axes(r, t), t), x);
    }
    return g->st;
}

weft_status wf_grad_norm_l1(struct wf_grad *r)
{
    r->din[0] = mul(r->g, kept(r, r->dout[0]), wf_unary(r->g, WF_OP_sign, r->in[0]));
    return r->g->st;
}

/* x / y, and 0 at the origin. */
weft_status wf_grad_norm_l2(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val y = r->out[0], zero = wf_binary(g, WF_OP_eq, y, wf_const_like(g, 0, y)), safe;

    safe = wf_build(g, WF_OP_where, 3, (weft_val[]){zero, wf_const_like(g, 1, y), y}, 0, NULL);
    r->din[0] = mul(g, kept(r, div(g, r->dout[0], safe)), r->in[0]);
    return g->st;
}

weft_status wf_grad_logsumexp(struct wf_grad *r)
{
    weft_graph *g = r->g;
    weft_val p = wf_unary(g, WF_OP_exp, wf_binary(g, WF_OP_sub, r->in[0], kept(r, r->out[0])));

    r->din[0] = mul(g, kept(r, r->dout[0]), p);
    return g->st;
}

/* What x_i was added to is what comes after it: the same sum from the other end. */
weft_status wf_grad_cumsum(struct wf_grad *r)
{
    struct wf_set sets[] = {WF_SET_INT("axis", wf_grad_int(r, "axis")),
                            WF_SET_BOOL("exclusive", wf_grad_int(r, "exclusive")),
                            WF_SET_BOOL("reverse", !wf_grad_int(r, "reverse"))};

    r->din[0] = wf_build(r->g, WF_OP_cumsum, 1, r->dout, 3, sets);
    return r->g->st;
}

weft_status wf_grad_segment_sum(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_binary(r->g, WF_OP_gather, r->dout[0], r->in[1]);
    return r->g->st;
}
