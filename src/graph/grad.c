/* grad.c - reverse-mode differentiation: gradients as nodes of the same graph.
 *
 * One sweep from the outputs back to the requested values. Contributions to a value are added in
 * the order in which the sweep finds them, which depends only on the graph. */
#include "graph/grad.h"
#include "weft/sys/op.h"

static wf_grad_fn *const rules[WF_N_OPS] = {
#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) grad,
#include "op/ops.def"
#undef OP
};

wf_grad_fn *wf_grad_rule(int op_id)
{
    return rules[op_id];
}

/* The state of the sweep: per node whether it is between values and outputs, per value its gradient
 * so far. */
struct sweep {
    weft_graph *g;
    int64_t n_nodes, n_values; /* of the graph when the sweep began */
    int64_t first_node;        /* nodes before it are not differentiated */
    bool *on_path;             /* node depends on a requested value */
    weft_val *grad;
};

static weft_status add_grad(struct sweep *s, int32_t value, weft_val d)
{
    if (!d.id)
        return WEFT_OK;
    if (value >= s->n_values)
        return wf_err(WEFT_EBUG, "a gradient for a value built during differentiation");
    s->grad[value] = s->grad[value].id ? wf_binary(s->g, WF_OP_add, s->grad[value], d) : d;
    return s->g->st;
}

static void mark_path(struct sweep *s, int n, const weft_val *values, bool *wanted)
{
    for (int i = 0; i < n; i++)
        wanted[values[i].id] = true;
    for (int64_t k = s->first_node; k < s->n_nodes; k++) {
        const struct wf_node *node = &s->g->nodes[k];
        bool on = false;

        for (int i = 0; i < node->n_in && !on; i++)
            on = wanted[node->in[i]];
        s->on_path[k] = on;
        for (int i = 0; on && i < node->n_out; i++)
            wanted[node->first_out + i] = true;
    }
}

struct step {
    weft_val *in, *out, *dout, *din;
    bool *need;
};

/* Applies one node's rule and passes its results to its inputs. */
static weft_status step_back(struct sweep *s, int64_t k, const bool *wanted, struct step *b)
{
    const struct wf_node node = s->g->nodes[k]; /* a copy: rules build nodes */
    struct wf_grad r = {s->g,   node.op, node.attr, node.n_in, node.n_out,   b->in,
                        b->out, b->dout, b->need,   b->din,    s->g->n_nodes};
    const char *device = s->g->device;
    bool any = false;
    weft_status st;

    for (int i = 0; i < node.n_out; i++) {
        b->out[i].id = node.first_out + i;
        b->dout[i] = s->grad[node.first_out + i];
        any |= b->dout[i].id != 0;
    }
    if (!any)
        return WEFT_OK;
    for (int i = 0; i < node.n_in; i++) {
        b->in[i].id = node.in[i];
        b->need[i] = node.in[i] && wanted[node.in[i]];
        b->din[i] = WEFT_NIL;
    }
    if (*node.device) /* its gradient runs where it does */
        s->g->device = node.device;
    if (node.op->user)
        st = node.op->user->grad ? node.op->user->grad(s->g, b->in, b->out, b->dout, b->din)
                                 : wf_err(WEFT_ENOSUP, "this user op has no gradient");
    else
        st = wf_grad_rule(node.op->id)(&r);
    s->g->device = device;
    if (!st)
        st = s->g->st;
    if (st)
        return wf_err_wrap(st, "gradient of '%s' (%s)", node.name, node.op->name);
    for (int i = 0; i < node.n_in; i++)
        if (b->need[i]) {
            st = add_grad(s, node.in[i], b->din[i]);
            if (st)
                return st;
        }
    return WEFT_OK;
}

static weft_status run_sweep(struct sweep *s, const bool *wanted)
{
    int n_in = 1;
    struct step b = {0};
    char *mem;
    weft_status st = WEFT_OK;

    for (int64_t k = s->first_node; k < s->n_nodes; k++)
        if (s->g->nodes[k].n_in > n_in)
            n_in = s->g->nodes[k].n_in;
    mem =
        wf_alloc(s->g->ctx, sizeof(weft_val) * (size_t)(2 * n_in + 2 * WF_MAX_OUT) + (size_t)n_in);
    if (!mem)
        return wf_err_nomem(s->g->ctx, 0, "gradient");
    b.in = (weft_val *)(void *)mem;
    b.din = b.in + n_in;
    b.out = b.din + n_in;
    b.dout = b.out + WF_MAX_OUT;
    b.need = (bool *)(b.dout + WF_MAX_OUT);
    for (int64_t k = s->n_nodes - 1; k >= s->first_node && !st; k--)
        if (s->on_path[k])
            st = step_back(s, k, wanted, &b);
    wf_free(s->g->ctx, mem);
    return st;
}

static weft_status vjp(weft_graph *g, int64_t first_node, int n_out, const weft_val *outputs,
                       const weft_val *cotangents, int n, const weft_val *values, weft_val *out)
{
    struct sweep s = {
        .g = g, .n_nodes = g->n_nodes, .n_values = g->n_values, .first_node = first_node};
    bool *wanted = NULL;
    weft_status st = weft_graph_status(g);

    for (int i = 0; i < n_out && !st; i++)
        if (!wf_check_val(g, outputs[i], "weft_grad"))
            st = weft_graph_status(g);
    for (int i = 0; i < n && !st; i++)
        if (!wf_check_val(g, values[i], "weft_grad"))
            st = weft_graph_status(g);
    if (st)
        return st;
    s.on_path = wf_alloc_n(g->ctx, s.n_nodes + 1, sizeof *s.on_path);
    s.grad = wf_alloc_n(g->ctx, s.n_values, sizeof *s.grad);
    wanted = wf_alloc_n(g->ctx, s.n_values, sizeof *wanted);
    if (!s.on_path || !s.grad || !wanted) {
        st = wf_err_nomem(g->ctx, (size_t)s.n_values, "gradient");
        goto out;
    }
    mark_path(&s, n, values, wanted);
    for (int i = 0; i < n_out && !st; i++)
        st = add_grad(&s, outputs[i].id, cotangents[i]);
    if (!st)
        st = run_sweep(&s, wanted);
    for (int i = 0; i < n && !st; i++)
        out[i] = s.grad[values[i].id];
out:
    wf_free(g->ctx, s.on_path);
    wf_free(g->ctx, s.grad);
    wf_free(g->ctx, wanted);
    return wf_graph_fail(g, st);
}

weft_status weft_vjp(weft_graph *g, int n_out, const weft_val *outputs, const weft_val *cotangents,
                     int n, const weft_val *values, weft_val *out)
{
    return vjp(g, 0, n_out, outputs, cotangents, n, values, out);
}

weft_status weft_grad(weft_graph *g, weft_val loss, int n, const weft_val *values, weft_val *out)
{
    const struct wf_type *t;
    weft_val one;

    if (!wf_check_val(g, loss, "weft_grad"))
        return weft_graph_status(g);
    t = wf_val_type_of(g, loss);
    if (t->rank != 0 || !wf_is_float(t->dtype)) {
        char text[WF_TYPE_TEXT];

        return wf_err(
            WEFT_ESHAPE,
            "weft_grad: the loss must be a float scalar, '%s' is %s: take its mean or sum",
            weft_val_name(g, loss), wf_type_text(t, text));
    }
    one = wf_const_like(g, 1, loss);
    return weft_vjp(g, 1, &loss, &one, n, values, out);
}

/* Whether operand i is the first one with this value. The expansion gives one gradient for all
 * operands with the same value. */
static bool first_of_its_value(const struct wf_grad *r, int i)
{
    for (int k = 0; k < i; k++)
        if (r->need[k] && r->in[k].id == r->in[i].id)
            return false;
    return true;
}

weft_status wf_grad_expanded(struct wf_grad *r, const weft_val *expanded_outputs)
{
    weft_val outs[WF_MAX_OUT], cots[WF_MAX_OUT], ins[16], dins[16];
    int n = 0, m = 0;
    weft_status st;

    for (int i = 0; i < r->n_out; i++)
        if (r->dout[i].id && expanded_outputs[i].id) {
            outs[n] = expanded_outputs[i];
            cots[n++] = r->dout[i];
        }
    for (int i = 0; i < r->n_in && m < WF_COUNT(ins); i++)
        if (r->need[i] && first_of_its_value(r, i))
            ins[m++] = r->in[i];
    if (r->g->st)
        return r->g->st;
    st = vjp(r->g, r->first_node, n, outs, cots, m, ins, dins);
    for (int i = 0, k = 0; i < r->n_in && k < m && !st; i++)
        if (r->need[i] && first_of_its_value(r, i))
            r->din[i] = dins[k++];
    return st;
}

/* ---- rules of the core ops ------------------------------------------------------------------- */

weft_status wf_no_grad_leaf(struct wf_grad *r)
{
    (void)r;
    return WEFT_OK;
}

weft_status wf_no_grad_stop(struct wf_grad *r)
{
    (void)r;
    return WEFT_OK; /* that is its purpose */
}

weft_status wf_grad_identity(struct wf_grad *r)
{
    r->din[0] = r->dout[0];
    return WEFT_OK;
}

/* The rows of a value of rank 3 or more as one matrix: […, n] -> [-1, n]. */
static weft_val as_matrix(weft_graph *g, weft_val x)
{
    const struct wf_type *t = wf_val_type_of(g, x);
    struct wf_set sets[] = {WF_SET_INTS("shape", 2, ((int64_t[]){-1, t->dim[t->rank - 1]}))};

    return wf_build(g, WF_OP_reshape, 1, &x, 1, sets);
}

/* A weight matrix shared by all leading axes: its gradient is one tall product, not a sum of
 * many. */
static bool is_shared_weight(const weft_graph *g, weft_val a, weft_val b)
{
    const struct wf_type *ta = wf_val_type_of(g, a), *tb = wf_val_type_of(g, b);

    return ta->rank > 2 && tb->rank == 2 && ta->dim[ta->rank - 1] > 0 && tb->dim[0] > 0 &&
           tb->dim[1] > 0;
}

/* Y = op(A)·op(B): dA = dY·op(B)ᵀ and dB = op(A)ᵀ·dY, each transposed back if A or B was; axes that
 * were broadcast are summed over. */
weft_status wf_grad_matmul(struct wf_grad *r)
{
    bool ta = wf_grad_int(r, "trans_a"), tb = wf_grad_int(r, "trans_b");
    weft_val a = r->in[0], b = r->in[1], dy = r->dout[0];

    if (r->need[0]) {
        weft_val d = ta ? weft_matmul(r->g, b, dy,
                                      WEFT_OPTS(weft_matmul_opts, .trans_a = tb, .trans_b = true))
                        : weft_matmul(r->g, dy, b, WEFT_OPTS(weft_matmul_opts, .trans_b = !tb));
        r->din[0] = wf_reduce_to_like(r->g, d, a);
    }
    if (r->need[1]) {
        weft_val d;

        if (!ta && is_shared_weight(r->g, a, b)) {
            a = as_matrix(r->g, a);
            dy = as_matrix(r->g, dy);
        }
        d = tb ? weft_matmul(r->g, dy, a,
                             WEFT_OPTS(weft_matmul_opts, .trans_a = true, .trans_b = ta))
               : weft_matmul(r->g, a, dy, WEFT_OPTS(weft_matmul_opts, .trans_a = !ta));
        r->din[1] = wf_reduce_to_like(r->g, d, b);
    }
    return r->g->st;
}
