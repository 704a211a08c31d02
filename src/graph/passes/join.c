/* join.c - products that do a second job on their way.
 *
 * dW = Xᵀ·dY packs dY anyway, so it also makes the bias's gradient, the column sums of dY. And when dW is read by an
 * update alone, and nobody reads the old weights any more, the update is done on each finished piece of the product. */
#include "graph/graph.h"

struct join {
    struct wf_rewrite rw;
    const weft_graph *g;
    int32_t *last_use, *n_uses; /* per value */
    int32_t *sum_of;   /* per product: the node that sums its second factor's columns, or -1 */
    int32_t *apply_of; /* per product: the update that takes it, or -1 */
    bool *gone;        /* per node: joined into a product */
    bool *fails;       /* per node: may refuse the data */
    int64_t last_fail; /* the last node that may; a variable is not updated before it */
    int32_t *
        last_read; /* per value: the last node that reads its memory, views followed, updates aside */
};

static int32_t view_root(const weft_graph *g, int32_t v)
{
    const struct wf_node *n = &g->nodes[g->values[v].node];

    while ((n->op->flags & WF_VIEW) && n->in[0]) {
        v = n->in[0];
        n = &g->nodes[g->values[v].node];
    }
    return v;
}

static void find_uses(struct join *j, int n_roots, const int32_t *roots)
{
    const weft_graph *g = j->g;

    for (int64_t v = 0; v < g->n_values; v++)
        j->last_use[v] = j->last_read[v] = -1;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];

        for (int i = 0; i < n->n_in; i++) {
            if (!n->in[i])
                continue;
            j->last_use[n->in[i]] = (int32_t)k;
            j->n_uses[n->in[i]]++;
            if (!(i == 0 && (n->op->flags & WF_STATE_IN0)) && !(n->op->flags & WF_VIEW))
                j->last_read[view_root(g, n->in[i])] = (int32_t)k;
        }
    }
    for (int i = 0; i < n_roots; i++) /* fetched: never joined away */
        if (roots[i] && !(g->nodes[g->values[roots[i]].node].op->flags & WF_EFFECT))
            j->n_uses[roots[i]] += 2;
}

static bool is_weight_gradient(const weft_graph *g, const struct wf_node *n)
{
    return n->op->id == WF_OP_matmul && n->n_ctrl == 0 && wf_node_int(n, "trans_a") &&
           !wf_node_int(n, "trans_b") && g->values[n->first_out].type.rank == 2 &&
           g->values[n->in[1]].type.rank == 2 && g->values[n->first_out].type.dtype == WEFT_F32;
}

/* A sum over all axes but the last. */
static bool sums_columns(const weft_graph *g, const struct wf_node *n)
{
    const struct wf_attr *axes = n->op->id == WF_OP_sum ? wf_attr(n->op, n->attr, "axes") : NULL;
    int rank = axes ? g->values[n->in[0]].type.rank : 0;

    if (!axes || n->n_ctrl || rank < 2 || axes->n != rank - 1 || wf_node_int(n, "keepdims"))
        return false;
    for (int i = 0; i < axes->n; i++)
        if (axes->ints[i] == rank - 1 || axes->ints[i] == -1)
            return false;
    return g->values[n->in[0]].type.dtype == WEFT_F32;
}

/* Pair each sum with a product over the same matrix that comes before the sum's readers. */
static void pair_sums(struct join *j)
{
    const weft_graph *g = j->g;

    for (int64_t s = 0; s < g->n_nodes; s++) {
        const struct wf_node *sum = &g->nodes[s];
        const struct wf_type *t;
        int32_t root;

        if (!j->rw.live[s] || !sums_columns(g, sum))
            continue;
        t = &g->values[sum->in[0]].type;
        root = view_root(g, sum->in[0]);
        for (int64_t k = 0; k < g->n_nodes && !j->gone[s]; k++) {
            const struct wf_node *m = &g->nodes[k];
            bool later = true;

            if (!j->rw.live[k] || j->sum_of[k] >= 0 || !is_weight_gradient(g, m) ||
                view_root(g, m->in[1]) != root ||
                g->values[m->in[1]].type.dim[1] != t->dim[t->rank - 1])
                continue;
            for (int64_t u = 0; u < k && later;
                 u++) /* everybody who reads the sum must come after the product */
                for (int i = 0; i < g->nodes[u].n_in; i++)
                    later &= g->nodes[u].in[i] != sum->first_out;
            if (later) {
                j->sum_of[k] = (int32_t)s;
                j->gone[s] = true;
            }
        }
    }
}

static bool can_update_inside(const struct wf_node *a)
{
    return strcmp(wf_attr_str(a->op, a->attr, "optimizer"), "lamb") !=
           0; /* it needs the whole variable's norm */
}

/* Pair each product with the update that alone reads it. */
static void pair_updates(struct join *j)
{
    const weft_graph *g = j->g;

    for (int64_t a = 0; a < g->n_nodes; a++) {
        const struct wf_node *n = &g->nodes[a];
        int32_t k;
        bool ready = true;

        if (!j->rw.live[a] || n->op->id != WF_OP_apply || n->n_ctrl || !can_update_inside(n))
            continue;
        k = g->values[n->in[1]].node;
        if (!is_weight_gradient(g, &g->nodes[k]) || j->n_uses[n->in[1]] != 1 ||
            g->nodes[g->values[n->in[0]].node].op->id != WF_OP_variable ||
            j->last_read[n->in[0]] >= k || j->last_use[n->in[0]] != a || k < j->last_fail)
            continue;
        for (int i = 2; i < n->n_in; i++)
            ready &= !n->in[i] || g->values[n->in[i]].node < k;
        if (!ready)
            continue;
        j->apply_of[k] = (int32_t)a;
        j->gone[a] = true;
    }
}

static weft_status emit_joined(struct join *j, int64_t k)
{
    const weft_graph *g = j->g;
    const struct wf_node *m = &g->nodes[k],
                         *a = j->apply_of[k] >= 0 ? &g->nodes[j->apply_of[k]] : NULL;
    const struct wf_node *sum = j->sum_of[k] >= 0 ? &g->nodes[j->sum_of[k]] : NULL;
    weft_val in[5] = {{0}}, out;
    struct wf_set sets[WF_MAX_ATTRS];
    int n = 0;

    for (int i = 0; i < m->op->n_attrs; i++)
        sets[n++] = (struct wf_set){m->op->attr[i].name, m->attr[i]};
    in[a ? 1 : 0].id = j->rw.map[m->in[0]];
    in[a ? 2 : 1].id = j->rw.map[m->in[1]];
    if (a) {
        for (int i = 0; i < a->op->n_attrs; i++)
            sets[n++] = (struct wf_set){a->op->attr[i].name, a->attr[i]};
        sets[n++] = (struct wf_set)WF_SET_INT("n", sum ? 2 : 1);
        in[0].id = j->rw.map[a->in[0]];
        for (int i = 2; i < a->n_in; i++)
            in[1 + i].id = a->in[i] ? j->rw.map[a->in[i]] : 0;
        out = wf_build(j->rw.to, WF_OP_matmul_apply, 5, in, n, sets);
        j->rw.map[a->first_out] = out.id;
    } else {
        out = wf_build(j->rw.to, WF_OP_matmul_sums, 2, in, n, sets);
        j->rw.map[m->first_out] = out.id;
    }
    weft_named(j->rw.to, out, a ? a->name : m->name);
    if (sum)
        j->rw.map[sum->first_out] = out.id + 1;
    return j->rw.to->st;
}

static weft_status alloc_tables(struct join *j)
{
    weft_ctx *ctx = j->g->ctx;
    int64_t n = j->g->n_nodes + 1, m = j->g->n_values;

    j->last_use = wf_alloc_n(ctx, m, sizeof *j->last_use);
    j->last_read = wf_alloc_n(ctx, m, sizeof *j->last_read);
    j->n_uses = wf_alloc_n(ctx, m, sizeof *j->n_uses);
    j->sum_of = wf_alloc_n(ctx, n, sizeof *j->sum_of);
    j->apply_of = wf_alloc_n(ctx, n, sizeof *j->apply_of);
    j->gone = wf_alloc_n(ctx, n, sizeof *j->gone);
    j->fails = wf_alloc_n(ctx, n, sizeof *j->fails);
    if (!j->last_use || !j->last_read || !j->n_uses || !j->sum_of || !j->apply_of || !j->gone ||
        !j->fails)
        return wf_err_nomem(ctx, (size_t)n * 4, "joining products");
    for (int64_t k = 0; k < n; k++)
        j->sum_of[k] = j->apply_of[k] = -1;
    return WEFT_OK;
}

static weft_status find_last_fail(struct join *j, bool all_fail)
{
    weft_status st = wf_find_fails(j->g, 0, NULL, j->fails);

    for (int64_t k = 0; k < j->g->n_nodes && !st; k++)
        if (j->rw.live[k] && (all_fail || j->fails[k]))
            j->last_fail = k;
    return st;
}

weft_status wf_pass_join(const weft_graph *g, bool all_fail, int n_roots, int32_t *roots,
                         weft_graph **out)
{
    struct join j = {.g = g, .last_fail = -1};
    weft_status st = wf_rewrite_begin(&j.rw, g, n_roots, roots);

    if (!st)
        st = alloc_tables(&j);
    if (!st)
        st = find_last_fail(&j, all_fail);
    if (!st) {
        find_uses(&j, n_roots, roots);
        pair_sums(&j);
        pair_updates(&j);
    }
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        if (!j.rw.live[k] || j.gone[k])
            continue;
        st =
            j.sum_of[k] >= 0 || j.apply_of[k] >= 0 ? emit_joined(&j, k) : wf_rewrite_copy(&j.rw, k);
        if (!st && g->nodes[k].op->id == WF_OP_placeholder)
            j.rw.to->values[j.rw.map[g->nodes[k].first_out]].type =
                g->values[g->nodes[k].first_out].type;
    }
    wf_free(g->ctx, j.last_use);
    wf_free(g->ctx, j.last_read);
    wf_free(g->ctx, j.n_uses);
    wf_free(g->ctx, j.sum_of);
    wf_free(g->ctx, j.apply_of);
    wf_free(g->ctx, j.gone);
    wf_free(g->ctx, j.fails);
    return wf_rewrite_end(&j.rw, st, n_roots, roots, out);
}
