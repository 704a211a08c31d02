/* grad_index.c - gradient rules of ops that find elements by index.
 *
 * Reading by index and adding by index are each other's gradient; the indices have none. The
 * gradient of a table always is an embedding_grad (or a sum of them), from which an optimizer can
 * take ids and rows. */
#include "graph/grad.h"
#include "op/shape.h"

/* The indices are integers: nothing flows back. */
weft_status wf_no_grad_index(struct wf_grad *r)
{
    (void)r;
    return WEFT_OK;
}

weft_status wf_no_grad_one_hot(struct wf_grad *r)
{
    return wf_no_grad_index(r);
}

static weft_val three(weft_graph *g, int op_id, weft_val a, weft_val b, weft_val c)
{
    return wf_build(g, op_id, 3, (weft_val[]){a, b, c}, 0, NULL);
}

/* ---- gather, scatter ------------------------------------------------------------------------- */

static weft_val with_gather_attrs(struct wf_grad *r, int op_id, int n_in, const weft_val *in)
{
    struct wf_set sets[] = {WF_SET_INT("axis", wf_grad_int(r, "axis")),
                            WF_SET_INT("batch_dims", wf_grad_int(r, "batch_dims"))};

    return wf_build(r->g, op_id, n_in, in, 2, sets);
}

weft_status wf_grad_gather(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = with_gather_attrs(r, WF_OP_gather_grad, 3,
                                      (weft_val[]){r->dout[0], r->in[1], r->in[0]});
    return r->g->st;
}

weft_status wf_grad_gather_grad(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = with_gather_attrs(r, WF_OP_gather, 2, (weft_val[]){r->dout[0], r->in[1]});
    return r->g->st;
}

weft_status wf_grad_gather_nd(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = three(r->g, WF_OP_scatter_nd_add, r->in[1], r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status wf_grad_scatter_nd_add(struct wf_grad *r)
{
    if (r->need[1])
        r->din[1] = wf_binary(r->g, WF_OP_gather_nd, r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status wf_grad_scatter_add(struct wf_grad *r)
{
    if (r->need[1])
        r->din[1] = wf_binary(r->g, WF_OP_gather, r->dout[0], r->in[0]);
    return r->g->st;
}

/* dx of y = take_along(x, indices): also the gradient of ops that hand out the indices they
 * used. */
static weft_val take_back(weft_graph *g, weft_val dy, weft_val indices, weft_val x, int64_t axis)
{
    struct wf_set sets[] = {WF_SET_INT("axis", axis)};

    return wf_build(g, WF_OP_take_along_grad, 3, (weft_val[]){dy, indices, x}, 1, sets);
}

weft_status wf_grad_take_along(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = take_back(r->g, r->dout[0], r->in[1], r->in[0], wf_grad_int(r, "axis"));
    return r->g->st;
}

weft_status wf_grad_take_along_grad(struct wf_grad *r)
{
    struct wf_set sets[] = {WF_SET_INT("axis", wf_grad_int(r, "axis"))};

    if (r->need[0])
        r->din[0] =
            wf_build(r->g, WF_OP_take_along, 2, (weft_val[]){r->dout[0], r->in[1]}, 1, sets);
    return r->g->st;
}

weft_status wf_grad_top_k(struct wf_grad *r)
{
    if (r->dout[0].id)
        r->din[0] = take_back(r->g, r->dout[0], r->out[1], r->in[0], -1);
    return r->g->st;
}

weft_status wf_grad_sort(struct wf_grad *r)
{
    if (r->dout[0].id)
        r->din[0] = take_back(r->g, r->dout[0], r->out[1], r->in[0], wf_grad_int(r, "axis"));
    return r->g->st;
}

/* ---- embeddings ------------------------------------------------------------------------------ */

weft_status wf_grad_embedding(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = three(r->g, WF_OP_embedding_grad, r->in[1], r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status wf_grad_embedding_grad(struct wf_grad *r)
{
    if (r->need[1])
        r->din[1] = wf_binary(r->g, WF_OP_embedding, r->dout[0], r->in[0]);
    return r->g->st;
}

static const char *combiner(const struct wf_grad *r)
{
    return wf_attr_str(r->op, r->attr, "combiner");
}

static weft_val with_combiner(struct wf_grad *r, int op_id, int n_in, const weft_val *in)
{
    struct wf_set sets[] = {WF_SET_STR("combiner", combiner(r))};

    return wf_build(r->g, op_id, n_in, in, 1, sets);
}

/* [n] -> [n, 1] */
static weft_val column(weft_graph *g, weft_val v)
{
    return wf_expand_axes(g, v, 1, (int64_t[]){1}, 2);
}

/* y[b] = inverse[b] · Σ w[j]·rows[j], in ops that have gradients in rows and w. */
static weft_val expand_reduce(struct wf_grad *r, weft_val rows, weft_val offsets, weft_val w)
{
    weft_val segments = wf_binary(r->g, WF_OP_bag_segments, offsets, w);
    weft_val inverse = with_combiner(r, WF_OP_bag_inverse, 2, (weft_val[]){offsets, w});
    weft_val y = three(r->g, WF_OP_scatter_add, segments,
                       wf_binary(r->g, WF_OP_mul, rows, column(r->g, w)), r->out[0]);

    return wf_binary(r->g, WF_OP_mul, y, column(r->g, inverse));
}

/* The gradient of the weights alone (operand w) through an expansion of output 0. */
static weft_status grad_weights(struct wf_grad *r, int w, weft_val expanded)
{
    bool need[4] = {false};
    struct wf_grad q = *r;

    need[w] = true;
    q.need = need;
    return wf_grad_expanded(&q, &expanded);
}

static bool wants_weights(const struct wf_grad *r, int w)
{
    return r->n_in > w && r->in[w].id && r->need[w];
}

weft_status wf_grad_bag_reduce(struct wf_grad *r)
{
    weft_val w = r->n_in > 2 ? r->in[2] : WEFT_NIL;

    if (r->need[0])
        r->din[0] =
            with_combiner(r, WF_OP_bag_spread, 4, (weft_val[]){r->dout[0], r->in[1], r->in[0], w});
    if (!wants_weights(r, 2))
        return r->g->st;
    return grad_weights(r, 2, expand_reduce(r, r->in[0], r->in[1], w));
}

weft_status wf_grad_embedding_bag(struct wf_grad *r)
{
    weft_val w = r->n_in > 3 ? r->in[3] : WEFT_NIL, rows;

    if (r->need[0]) {
        rows =
            with_combiner(r, WF_OP_bag_spread, 4, (weft_val[]){r->dout[0], r->in[2], r->in[1], w});
        r->din[0] = three(r->g, WF_OP_embedding_grad, r->in[1], rows, r->in[0]);
    }
    if (!wants_weights(r, 3))
        return r->g->st;
    rows = wf_binary(r->g, WF_OP_embedding, r->in[0], r->in[1]);
    return grad_weights(r, 3, expand_reduce(r, rows, r->in[2], w));
}

/* x[j] = w[j] · (inverse·y)[bag of j] */
weft_status wf_grad_bag_spread(struct wf_grad *r)
{
    weft_val w = r->n_in > 3 ? r->in[3] : WEFT_NIL, inverse, rows;

    if (r->need[0])
        r->din[0] = with_combiner(r, WF_OP_bag_reduce, 3, (weft_val[]){r->dout[0], r->in[1], w});
    if (!wants_weights(r, 3))
        return r->g->st;
    inverse = with_combiner(r, WF_OP_bag_inverse, 2, (weft_val[]){r->in[1], w});
    rows =
        wf_binary(r->g, WF_OP_gather, wf_binary(r->g, WF_OP_mul, r->in[0], column(r->g, inverse)),
                  wf_binary(r->g, WF_OP_bag_segments, r->in[1], w));
    return grad_weights(r, 3, wf_binary(r->g, WF_OP_mul, rows, column(r->g, w)));
}

/* v = 1/Σw: dw[j] = -v²·dv;  v = 1/√Σw²: dw[j] = -w[j]·v³·dv, of the bag that j lies in. */
weft_status wf_grad_bag_inverse(struct wf_grad *r)
{
    weft_val v = r->out[0], d = r->dout[0], offsets = r->in[0], w = r->in[1];
    enum wf_combiner c = WF_BAG_SUM;

    wf_combiner_parse(combiner(r), &c);
    if (!r->need[1] || c == WF_BAG_SUM)
        return WEFT_OK;
    d = wf_binary(r->g, WF_OP_mul, d, wf_const_like(r->g, -1, v));
    for (int i = 0; i < (c == WF_BAG_MEAN ? 2 : 3); i++)
        d = wf_binary(r->g, WF_OP_mul, d, v);
    d = wf_binary(r->g, WF_OP_gather, d, wf_binary(r->g, WF_OP_bag_segments, offsets, w));
    r->din[1] = c == WF_BAG_MEAN ? d : wf_binary(r->g, WF_OP_mul, d, w);
    return r->g->st;
}
