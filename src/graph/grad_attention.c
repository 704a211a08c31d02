/* wf_grad_attention.c - gradient rules of scaled dot-product attention.
 *
 * The fused gradient serves the ordinary case. A gradient of the log-sum-exp or of an additive
 * mask, and second gradients, go through an expansion that holds the scores: products,
 * masked_softmax and its gradient. */
#include "graph/grad.h"
#include "graph/nn.h"

/* Everything in [batch, heads, time, depth] and in the type of the statistics. */
struct att {
    weft_val q, k, v, mask;
    weft_val scale; /* a scalar */
    bool causal, head_first;
    weft_dtype dtype; /* of the caller's values */
    weft_val p, lse;  /* weights, log-sum-exp */
};

static weft_val product(weft_graph *g, weft_val a, weft_val b, bool trans_a, bool trans_b)
{
    return weft_matmul(g, a, b,
                       WEFT_OPTS(weft_matmul_opts, .trans_a = trans_a, .trans_b = trans_b));
}

/* Between [b,t,h,d] and [b,h,t,d]. */
static weft_val swap_axes(weft_graph *g, weft_val x)
{
    struct wf_set sets[] = {WF_SET_INTS("perm", 4, ((int64_t[]){0, 2, 1, 3}))};

    return wf_build(g, WF_OP_transpose, 1, &x, 1, sets);
}

static weft_val inward(weft_graph *g, const struct att *a, weft_val x)
{
    x = wf_cast_to(g, x, a->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32);
    return a->head_first ? x : swap_axes(g, x);
}

static weft_val outward(weft_graph *g, const struct att *a, weft_val x)
{
    return wf_cast_to(g, a->head_first ? x : swap_axes(g, x), a->dtype);
}

/* scale as given, or 1/sqrt(depth). */
static weft_val scale_of(weft_graph *g, double scale, weft_val q)
{
    struct wf_set sets[] = {WF_SET_INTS("axes", 1, ((int64_t[]){3})),
                            WF_SET_DTYPE("dtype", wf_val_type_of(g, q)->dtype)};

    if (scale != 0)
        return wf_const_like(g, scale, q);
    return wf_unary(g, WF_OP_rsqrt, wf_build(g, WF_OP_size_of, 1, &q, 2, sets));
}

/* a.dtype, a.causal and a.head_first are set; q, k, v as the caller has them. */
static void scores(weft_graph *g, struct att *a, double scale, weft_val q, weft_val k, weft_val v,
                   weft_val mask)
{
    struct wf_set sets[] = {WF_SET_BOOL("causal", a->causal)};
    weft_val s;

    if (g->st)
        return;
    a->q = inward(g, a, q);
    a->k = inward(g, a, k);
    a->v = inward(g, a, v);
    a->mask =
        mask.id && wf_val_type_of(g, mask)->dtype != WEFT_BOOL ? wf_cast_like(g, mask, a->q) : mask;
    a->scale = scale_of(g, scale, a->q);
    s = wf_binary(g, WF_OP_mul, product(g, a->q, a->k, false, true), a->scale);
    a->p = wf_build(g, WF_OP_masked_softmax, 2, (weft_val[]){s, a->mask}, 1, sets);
    a->lse = weft_output(g, a->p, 1);
}

/* dq, dk, dv from dy, all as the caller has them. */
static void backward(weft_graph *g, struct att *a, weft_val dy, weft_val out[3])
{
    weft_val d = inward(g, a, dy), dp = product(g, d, a->v, false, true), ds;
    struct wf_set sets[] = {WF_SET_INT("axis", -1)};

    ds = wf_build(g, WF_OP_softmax_grad, 2, (weft_val[]){dp, a->p}, 1, sets);
    ds = wf_binary(g, WF_OP_mul, ds, a->scale);
    out[0] = outward(g, a, product(g, ds, a->k, false, false));
    out[1] = outward(g, a, product(g, ds, a->q, true, false));
    out[2] = outward(g, a, product(g, a->p, d, true, false));
}

static struct att att_of(const struct wf_grad *r, weft_val like, bool head_first)
{
    return (struct att){.causal = wf_grad_int(r, "causal"),
                        .head_first = head_first,
                        .dtype = wf_val_type_of(r->g, like)->dtype};
}

static bool heads_first(const struct wf_grad *r)
{
    return !strcmp(wf_attr_str(r->op, r->attr, "layout"), "bhtd");
}

static weft_val operand(const struct wf_grad *r, int i)
{
    return i < r->n_in ? r->in[i] : WEFT_NIL;
}

/* Does anything but y's gradient take part? */
static bool needs_scores(const struct wf_grad *r, int mask)
{
    return r->dout[1].id || (mask < r->n_in && r->need[mask] &&
                             wf_val_type_of(r->g, r->in[mask])->dtype != WEFT_BOOL);
}

weft_status wf_grad_attention(struct wf_grad *r)
{
    weft_graph *g = r->g;
    double scale = wf_grad_float(r, "scale");
    struct wf_set sets[] = {WF_SET_STR("layout", wf_attr_str(r->op, r->attr, "layout")),
                            WF_SET_BOOL("causal", wf_grad_int(r, "causal")),
                            WF_SET_FLOAT("scale", scale)};
    weft_val d;

    if (needs_scores(r, 3)) {
        struct att a = att_of(r, r->in[0], heads_first(r));
        weft_val outs[2];

        scores(g, &a, scale, r->in[0], r->in[1], r->in[2], operand(r, 3));
        outs[0] = outward(g, &a, product(g, a.p, a.v, false, false));
        outs[1] = a.lse;
        return wf_grad_expanded(r, outs);
    }
    d = wf_build(
        g, WF_OP_attention_grad, 7,
        (weft_val[]){r->dout[0], r->in[0], r->in[1], r->in[2], r->out[0], r->out[1], operand(r, 3)},
        3, sets);
    for (int i = 0; i < 3; i++)
        r->din[i] = weft_output(g, d, i);
    return g->st;
}

/* y and lse are functions of q, k and v: the expansion computes them again, and nothing flows to
 * them. */
weft_status wf_grad_attention_grad(struct wf_grad *r)
{
    struct att a = att_of(r, r->in[1], heads_first(r));
    weft_val outs[3] = {{0}};

    scores(r->g, &a, wf_grad_float(r, "scale"), r->in[1], r->in[2], r->in[3], operand(r, 6));
    backward(r->g, &a, r->in[0], outs);
    return wf_grad_expanded(r, outs);
}

/* [b,t,3,h,d] as q, k, v of [b,t,h,d]. */
static void unpack(weft_graph *g, weft_val qkv, weft_val out[3])
{
    struct wf_set sets[] = {WF_SET_INT("n", 3), WF_SET_INT("axis", 2)};
    weft_val first = wf_build(g, WF_OP_unstack, 1, &qkv, 2, sets);

    for (int i = 0; i < 3; i++)
        out[i] = weft_output(g, first, i);
}

weft_status wf_grad_attention_packed(struct wf_grad *r)
{
    weft_graph *g = r->g;
    double scale = wf_grad_float(r, "scale");
    struct wf_set sets[] = {WF_SET_BOOL("causal", wf_grad_int(r, "causal")),
                            WF_SET_FLOAT("scale", scale)};

    if (needs_scores(r, 1)) {
        struct att a = att_of(r, r->in[0], false);
        weft_val part[3], outs[2];

        unpack(g, r->in[0], part);
        scores(g, &a, scale, part[0], part[1], part[2], operand(r, 1));
        outs[0] = outward(g, &a, product(g, a.p, a.v, false, false));
        outs[1] = a.lse;
        return wf_grad_expanded(r, outs);
    }
    r->din[0] =
        wf_build(g, WF_OP_attention_packed_grad, 5,
                 (weft_val[]){r->dout[0], r->in[0], r->out[0], r->out[1], operand(r, 1)}, 2, sets);
    return g->st;
}

weft_status wf_grad_attention_packed_grad(struct wf_grad *r)
{
    weft_graph *g = r->g;
    struct att a = att_of(r, r->in[1], false);
    struct wf_set sets[] = {WF_SET_INT("axis", 2)};
    weft_val part[3], d[3] = {{0}}, out;

    unpack(g, r->in[1], part);
    scores(g, &a, wf_grad_float(r, "scale"), part[0], part[1], part[2], operand(r, 4));
    backward(g, &a, r->in[0], d);
    out = wf_build(g, WF_OP_stack, 3, d, 1, sets);
    return wf_grad_expanded(r, &out);
}
