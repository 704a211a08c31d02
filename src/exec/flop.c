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

static double matmul_flop(const weft_graph *g, const struct wf_node *n, int first)
{
    const struct wf_type *a = in_type(g, n, first);
    bool ta = wf_node_int(n, "trans_a");

    return 2 * count(&g->values[n->first_out].type) * (double)a->dim[a->rank - (ta ? 2 : 1)];
}

/* Each weight meets each output pixel once: 2 * weights * pixels. */
static double conv_flop(const struct wf_type *w, const struct wf_type *y)
{
    double out = y->rank ? (double)y->dim[y->rank - 1] : 1;

    return out > 0 ? 2 * count(w) * count(y) / out : 0;
}

/* x [B,T,I], w [I,G], r [U,G]: an input and a recurrent product at each step. */
static double rnn_flop(const weft_graph *g, const struct wf_node *n)
{
    const struct wf_type *x = in_type(g, n, 0);

    return 2 * (double)(x->dim[0] * x->dim[1]) *
           (count(in_type(g, n, 1)) + count(in_type(g, n, 2)));
}

/* Back through r at each step; through w and into the weights if requested. */
static double rnn_grad_flop(const weft_graph *g, const struct wf_node *n)
{
    const struct wf_type *x = in_type(g, n, 0);
    double dx = (double)wf_node_int(n, "need_dx"), dw = (double)wf_node_int(n, "need_dw");

    return 2 * (double)(x->dim[0] * x->dim[1]) *
           (count(in_type(g, n, 1)) * (dx + dw) + count(in_type(g, n, 2)) * (1 + dw));
}

/* Two products over the pairs of query and key that a causal mask leaves; lse is [B,H,T]. */
static double attention_flop(const weft_graph *g, const struct wf_node *n, int q,
                             const struct wf_type *lse)
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

double wf_flop(const weft_graph *g, const struct wf_node *n)
{
    const char *op = n->op->name;

    if (n->op->id == WF_OP_matmul || n->op->id == WF_OP_matmul_fused ||
        n->op->id == WF_OP_matmul_sums)
        return matmul_flop(g, n, 0);
    if (n->op->id == WF_OP_matmul_apply)
        return matmul_flop(g, n, 1);
    if (n->op->id == WF_OP_attention || n->op->id == WF_OP_attention_packed)
        return attention_flop(g, n, 0, &g->values[n->first_out + 1].type);
    if (n->op->id == WF_OP_attention_grad)
        return 2 * attention_flop(g, n, 1, in_type(g, n, 5));
    if (n->op->id == WF_OP_attention_packed_grad)
        return 2 * attention_flop(g, n, 1, in_type(g, n, 3));
    if (!strcmp(op, "conv") || !strcmp(op, "conv_fused"))
        return conv_flop(in_type(g, n, 1), &g->values[n->first_out].type);
    if (!strcmp(op, "conv_grad_input"))
        return conv_flop(in_type(g, n, 1), in_type(g, n, 0));
    if (!strcmp(op, "conv_grad_filter"))
        return conv_flop(&g->values[n->first_out].type, in_type(g, n, 1));
    if (!strcmp(op, "lstm") || !strcmp(op, "gru") || !strcmp(op, "simple_rnn"))
        return rnn_flop(g, n);
    if (!strcmp(op, "lstm_grad") || !strcmp(op, "gru_grad") || !strcmp(op, "simple_rnn_grad"))
        return rnn_grad_flop(g, n);
    return 0;
}
