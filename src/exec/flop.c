/* flop.c - how many floating-point operations the products of a node take, by the direct algorithm.
 * Element-wise work is not counted: the number is for comparing with the multiply-add peak. */
#include "exec/exec.h"

static double count(const struct wf_type *t)
{
    int64_t n = wf_type_count(t);

    return n < 0 ? 0 : (double)n;
}

static const struct wf_type *in_type(const weft_graph *g, const struct wf_node *n, int i)
{
    return &g->values[i < n->n_in ? n->in[i] : 0].type;
}

/* ---- the rules, by the names that ops.def uses ------------------------------------------------
 */

typedef double flop_fn(const weft_graph *g, const struct wf_node *n);

static double flop_none(const weft_graph *g, const struct wf_node *n)
{
    (void)g;
    (void)n;
    return 0;
}

static double product(const weft_graph *g, const struct wf_node *n, int first)
{
    const struct wf_type *a = in_type(g, n, first);
    bool ta = wf_node_int(n, "trans_a");

    return 2 * count(&g->values[n->first_out].type) * (double)a->dim[a->rank - (ta ? 2 : 1)];
}

static double flop_matmul(const weft_graph *g, const struct wf_node *n)
{
    return product(g, n, 0);
}

static double flop_matmul_apply(const weft_graph *g, const struct wf_node *n)
{
    return product(g, n, 1);
}

/* Each weight meets each pixel of the smaller image once: 2 * weights * pixels. */
static double taps(const struct wf_type *w, const struct wf_type *y)
{
    double channels = y->rank ? (double)y->dim[y->rank - 1] : 1;

    return channels > 0 ? 2 * count(w) * count(y) / channels : 0;
}

static double flop_conv(const weft_graph *g, const struct wf_node *n)
{
    return taps(in_type(g, n, 1), &g->values[n->first_out].type);
}

/* Of dy and w, or of x and w. */
static double flop_conv_grad_input(const weft_graph *g, const struct wf_node *n)
{
    return taps(in_type(g, n, 1), in_type(g, n, 0));
}

static double flop_conv_transpose(const weft_graph *g, const struct wf_node *n)
{
    return taps(in_type(g, n, 1), in_type(g, n, 0));
}

static double flop_conv_grad_filter(const weft_graph *g, const struct wf_node *n)
{
    return taps(&g->values[n->first_out].type, in_type(g, n, 1));
}

/* x [B,T,I], w [I,G], r [U,G]: an input and a recurrent product at each step. */
static double flop_rnn(const weft_graph *g, const struct wf_node *n)
{
    const struct wf_type *x = in_type(g, n, 0);

    return 2 * (double)(x->dim[0] * x->dim[1]) *
           (count(in_type(g, n, 1)) + count(in_type(g, n, 2)));
}

/* Back through r at each step; through w and into the weights where that is wanted. */
static double flop_rnn_grad(const weft_graph *g, const struct wf_node *n)
{
    const struct wf_type *x = in_type(g, n, 0);
    double dx = (double)wf_node_int(n, "need_dx"), dw = (double)wf_node_int(n, "need_dw");

    return 2 * (double)(x->dim[0] * x->dim[1]) *
           (count(in_type(g, n, 1)) * (dx + dw) + count(in_type(g, n, 2)) * (1 + dw));
}

/* Two products over the pairs of query and key that a causal mask leaves; lse is [B,H,T]. */
static double pairs(const weft_graph *g, const struct wf_node *n, int q, const struct wf_type *lse)
{
    bool packed = n->op->id == WF_OP_attention_packed || n->op->id == WF_OP_attention_packed_grad;
    const struct wf_type *k = in_type(g, n, packed ? q : q + 1),
                         *v = in_type(g, n, packed ? q : q + 2);
    double rows = count(lse), tq = (double)lse->dim[2], tk, depth;

    if (rows == 0)
        return 0;
    depth = (double)(k->dim[k->rank - 1] + v->dim[v->rank - 1]);
    tk =
        packed ? tq : (double)k->dim[strcmp(wf_attr_str(n->op, n->attr, "layout"), "bhtd") ? 1 : 2];
    if (wf_node_int(n, "causal"))
        tk = tk < tq ? tk - tk * (tk - 1) / (2 * tq) : (tq + 1) / 2;
    return 2 * rows * tk * depth;
}

static double flop_attention(const weft_graph *g, const struct wf_node *n)
{
    return pairs(g, n, 0, &g->values[n->first_out + 1].type);
}

static double flop_attention_grad(const weft_graph *g, const struct wf_node *n)
{
    return 2 * pairs(g, n, 1, in_type(g, n, 5));
}

static double flop_attention_packed_grad(const weft_graph *g, const struct wf_node *n)
{
    return 2 * pairs(g, n, 1, in_type(g, n, 3));
}

static flop_fn *const rules[WF_N_OPS] = {
#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) \
    flop_##flop,
#include "op/ops.def"
#undef OP
};

double wf_flop(const weft_graph *g, const struct wf_node *n)
{
    return n->op->user ? 0 : rules[n->op->id](g, n);
}
