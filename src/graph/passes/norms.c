/* norms.c - batch normalization with the addition and the ReLU that follow it, and its gradient
 * with that of the ReLU.
 *
 * The normalized values are then written once, and the gradient's kernel finds out by itself where
 * the ReLU let dy pass: the values before it are computed again from x. */
#include "graph/graph.h"

struct norms {
    struct wf_rewrite rw;
    const weft_graph *g;
    const struct wf_fusing *can;
    struct wf_uses uses;
    bool *late;       /* per node: depends on one that overwrites a variable */
    int32_t *relu_of; /* per node: of a normalization, the ReLU that it does; or -1 */
    int32_t *skip_of; /* per node: of a normalization, the value that it adds; or 0 */
    int32_t *stands;  /* per node: of a ReLU or addition, the normalization that does it; or -1 */
};

static bool is_free(const struct norms *s, int64_t k)
{
    const struct wf_node *n = &s->g->nodes[k];

    return s->rw.live[k] && !n->n_ctrl && !s->uses.awaited[k] && !*n->device;
}

/* The only reader of value v, a node that nothing waits for; -1: there is none. */
static int32_t only_reader(const struct norms *s, int32_t v)
{
    int32_t r;

    if (wf_uses_count(&s->uses, v) != 1 || s->uses.n_fetched[v])
        return -1;
    r = s->uses.reader[s->uses.first[v]];
    return is_free(s, r) ? r : -1;
}

static bool same_type(const struct norms *s, int32_t a, int32_t b)
{
    const struct wf_type *x = &s->g->values[a].type, *y = &s->g->values[b].type;

    return x->dtype == y->dtype && wf_type_same_shape(x, y);
}

/* Whether the kernels have it with an addition, or without. */
static bool can_take(const struct norms *s, const struct wf_node *n, int32_t skip)
{
    struct wf_type in[4], out[3];

    for (int i = 0; i < 3; i++) {
        in[i] = s->g->values[n->in[i]].type;
        out[i] = s->g->values[n->first_out + i].type;
    }
    if (skip)
        in[3] = s->g->values[skip].type;
    return s->can->take(wf_op_row(s->g->ctx, WF_OP_batch_norm_act), n->attr, skip ? 4 : 3, in, 3,
                        out);
}

static bool has_all(const struct wf_node *n, int n_in)
{
    if (n->n_in < n_in)
        return false;
    for (int i = 0; i < n_in; i++)
        if (!n->in[i])
            return false;
    return true;
}

/* What follows normalization k: a ReLU, or an addition of something that is there already and a
 * ReLU. */
static void find_after(struct norms *s, int32_t k)
{
    const weft_graph *g = s->g;
    const struct wf_node *n = &g->nodes[k];
    int32_t y = n->first_out, r = only_reader(s, y), sum = -1, skip = 0;

    if (r >= 0 && g->nodes[r].op->id == WF_OP_add) {
        const struct wf_node *a = &g->nodes[r];

        skip = a->in[0] == y ? a->in[1] : a->in[0];
        if (skip == y || !same_type(s, skip, y) || g->values[skip].node >= k)
            return;
        sum = r;
        r = only_reader(s, a->first_out);
    }
    if (r < 0 || g->nodes[r].op->id != WF_OP_relu || !same_type(s, g->nodes[r].first_out, y) ||
        !can_take(s, n, skip))
        return;
    s->relu_of[k] = r;
    s->skip_of[k] = skip;
    s->stands[r] = k;
    if (sum >= 0)
        s->stands[sum] = k;
}

/* The ReLU's gradient that normalization gradient n reads, if n is the gradient of a normalization
 * with that ReLU; -1: it is not. */
static int32_t relu_before(const struct norms *s, const struct wf_node *n)
{
    const weft_graph *g = s->g;
    const struct wf_node *bn, *r;
    int32_t k = g->values[n->in[0]].node, b;

    r = &g->nodes[k];
    if (r->op->id != WF_OP_relu_grad || wf_uses_count(&s->uses, n->in[0]) != 1 ||
        s->uses.n_fetched[n->in[0]] || !is_free(s, k))
        return -1;
    b = s->stands[g->values[r->in[1]].node];
    if (b < 0 || s->skip_of[b] || g->values[r->in[1]].node != s->relu_of[b] ||
        !same_type(s, r->in[0], n->in[1]))
        return -1;
    bn = &g->nodes[b];
    return n->in[1] == bn->in[0] && n->in[2] == bn->first_out + 1 &&
                   n->in[3] == bn->first_out + 2 && n->in[4] == bn->in[1] &&
                   wf_node_float(n, "epsilon") == wf_node_float(bn, "epsilon")
               ? k
               : -1;
}

/* An op with one attribute, in place of node k. */
static weft_status build(struct norms *s, int64_t k, int op, int n_in, const int32_t *in)
{
    const struct wf_node *n = &s->g->nodes[k];
    struct wf_set epsilon = WF_SET_FLOAT("epsilon", wf_node_float(n, "epsilon"));
    weft_val of[6], made;

    for (int i = 0; i < n_in; i++)
        of[i] = (weft_val){in[i]};
    made = wf_build(s->rw.to, op, n_in, of, 1, &epsilon);
    if (s->rw.to->st)
        return s->rw.to->st;
    wf_rewrite_name(&s->rw, made.id, n);
    for (int i = 0; i < n->n_out; i++)
        s->rw.map[n->first_out + i] = made.id + i;
    return WEFT_OK;
}

static weft_status emit(struct norms *s, int64_t k)
{
    const weft_graph *g = s->g;
    const struct wf_node *n = &g->nodes[k];
    int32_t *map = s->rw.map;

    if (s->relu_of[k] >= 0) {
        int32_t in[4] = {map[n->in[0]], map[n->in[1]], map[n->in[2]],
                         s->skip_of[k] ? map[s->skip_of[k]] : 0};

        return build(s, k, WF_OP_batch_norm_act, s->skip_of[k] ? 4 : 3, in);
    }
    if (s->stands[k] >= 0) { /* the ReLU and the addition are the normalization's result */
        map[n->first_out] = map[g->nodes[s->stands[k]].first_out];
        return WEFT_OK;
    }
    if (n->op->id == WF_OP_batch_norm_grad && has_all(n, 5) && is_free(s, k) && !s->late[k]) {
        int32_t r = relu_before(s, n);

        if (r >= 0) {
            const struct wf_node *bn = &g->nodes[s->stands[g->values[g->nodes[r].in[1]].node]];
            int32_t in[6] = {map[g->nodes[r].in[0]], map[n->in[1]], map[n->in[2]],
                             map[n->in[3]],          map[n->in[4]], map[bn->in[2]]};

            return build(s, k, WF_OP_batch_norm_act_grad, 6, in);
        }
    }
    return wf_rewrite_copy(&s->rw, k);
}

static weft_status begin(struct norms *s, int n_roots, const int32_t *roots)
{
    weft_ctx *ctx = s->g->ctx;
    int64_t n = s->g->n_nodes + 1;
    weft_status st = wf_uses_find(&s->uses, s->g, n_roots, roots);

    if (!st)
        st = wf_rewrite_begin(&s->rw, s->g, n_roots, roots);
    s->late = wf_alloc_n(ctx, n, sizeof *s->late);
    s->relu_of = wf_alloc_n(ctx, n, sizeof *s->relu_of);
    s->skip_of = wf_alloc_n(ctx, n, sizeof *s->skip_of);
    s->stands = wf_alloc_n(ctx, n, sizeof *s->stands);
    if (!st && (!s->late || !s->relu_of || !s->skip_of || !s->stands))
        st = wf_err_nomem(ctx, (size_t)n * sizeof *s->stands, "graph pass");
    for (int64_t k = 0; k < n && !st; k++)
        s->relu_of[k] = s->stands[k] = -1;
    if (!st)
        wf_find_late(s->g, s->late);
    return st;
}

weft_status wf_pass_norms(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                          int32_t *roots, weft_graph **out)
{
    struct norms s = {.g = g, .can = can};
    weft_status st = begin(&s, n_roots, roots);

    for (int32_t k = 0; k < g->n_nodes && !st; k++)
        if (g->nodes[k].op->id == WF_OP_batch_norm && is_free(&s, k) && !s.late[k] &&
            has_all(&g->nodes[k], 3))
            find_after(&s, k);
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (s.rw.live[k])
            st = emit(&s, k);
    if (s.rw.from)
        st = wf_rewrite_end(&s.rw, st, n_roots, roots, out);
    wf_uses_free(&s.uses, g->ctx);
    wf_free(g->ctx, s.late);
    wf_free(g->ctx, s.relu_of);
    wf_free(g->ctx, s.skip_of);
    wf_free(g->ctx, s.stands);
    return st;
}
