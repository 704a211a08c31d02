/* join.c - products that do a second job as well.
 *
 * dW = Xᵀ·dY packs dY anyway, so it also computes the bias's gradient, the column sums of dY. And
 * if only an update reads dW, and the old weights are no longer read, the update is applied to each
 * finished piece of the product. */
#include "graph/graph.h"

struct join {
    struct wf_rewrite rw;
    const weft_graph *g;
    struct wf_uses uses;
    int32_t *last_read; /* per value: the last node that reads its bytes, following views, without
                         * updates */
    int32_t *product;  /* per value: the first product whose second factor shows its bytes, or -1 */
    int32_t *next;     /* per product: the next one with the same bytes, or -1 */
    int32_t *sum_of;   /* per product: the node that sums its second factor's columns, or -1 */
    int32_t *apply_of; /* per product: the update that takes it, or -1 */
    bool *gone;        /* per node: joined into a product */
    bool *late;        /* per node: depends on one that overwrites a variable */
    bool *fails;       /* per node: may refuse the data */
    int64_t last_fail; /* the last node that may fail; a variable is not updated before it */
};

static bool is_weight_gradient(const struct join *j, int64_t k)
{
    const weft_graph *g = j->g;
    const struct wf_node *n = &g->nodes[k];

    return n->op->id == WF_OP_matmul && j->rw.live[k] && n->n_ctrl == 0 && !j->uses.awaited[k] &&
           wf_node_int(n, "trans_a") && !wf_node_int(n, "trans_b") &&
           g->values[n->first_out].type.rank == 2 && g->values[n->in[1]].type.rank == 2 &&
           g->values[n->first_out].type.dtype == WEFT_F32;
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
    return true;
}

static void find_readers(struct join *j)
{
    const weft_graph *g = j->g;

    for (int64_t v = 0; v < g->n_values; v++)
        j->last_read[v] = j->product[v] = -1;
    for (int64_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; j->rw.live[k] && i < g->nodes[k].n_in; i++)
            j->last_read[wf_value_read(g, &g->nodes[k], i)] = (int32_t)k;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--)
        if (is_weight_gradient(j, k)) {
            int32_t *first = &j->product[wf_view_root(g, g->nodes[k].in[1])];

            j->next[k] = *first;
            *first = (int32_t)k;
        }
}

/* Pairs each sum with a product over the same matrix that comes before the sum's readers. Not one
 * that waits for an update: the readers would wait, too, and they may want the old value. */
static void pair_sums(struct join *j)
{
    const weft_graph *g = j->g;

    for (int64_t s = 0; s < g->n_nodes; s++) {
        const struct wf_node *sum = &g->nodes[s];
        const struct wf_type *t;
        int32_t v = sum->first_out;

        if (!j->rw.live[s] || j->uses.awaited[s] || !sums_columns(g, sum))
            continue;
        t = &g->values[sum->in[0]].type;
        for (int32_t k = j->product[wf_view_root(g, sum->in[0])]; k >= 0; k = j->next[k]) {
            bool later =
                j->uses.first[v] == j->uses.first[v + 1] || j->uses.reader[j->uses.first[v]] > k;

            if (j->sum_of[k] >= 0 || !later || j->late[k] ||
                g->values[g->nodes[k].in[1]].type.dim[1] != t->dim[t->rank - 1])
                continue;
            j->sum_of[k] = (int32_t)s;
            j->gone[s] = true;
            break;
        }
    }
}

static bool can_update_inside(const struct wf_node *a)
{
    return strcmp(wf_attr_str(a->op, a->attr, "optimizer"), "lamb") !=
           0; /* it needs the whole variable's norm */
}

/* Whether update `a` may run at product k, its gradient. The product has no other reader; the
 * variable is not read from there on, and nothing else overwrites it before; everything else the
 * update reads is available. No update built before the product overwrites what it reads: such an
 * update waits for it, and it would wait, as an update, for what may fail after that one. */
static bool can_move_update(const struct join *j, const struct wf_node *n, int32_t a, int32_t k)
{
    const weft_graph *g = j->g;
    int32_t var = n->in[0];

    if (wf_uses_count(&j->uses, n->in[1]) != 1 || j->last_read[var] >= k ||
        j->uses.first_update[var] != a || j->uses.reader[j->uses.first[var + 1] - 1] != a)
        return false;
    for (int i = 2; i < n->n_in; i++)
        if (n->in[i] && g->values[n->in[i]].node >= k)
            return false;
    for (int i = 0; i < 2; i++)
        if (j->uses.first_update[wf_value_read(g, &g->nodes[k], i)] < k)
            return false;
    return true;
}

/* Pairs each product with the update that is its only reader. */
static void pair_updates(struct join *j)
{
    const weft_graph *g = j->g;

    for (int32_t a = 0; a < g->n_nodes; a++) {
        const struct wf_node *n = &g->nodes[a];
        int32_t k;

        if (!j->rw.live[a] || n->op->id != WF_OP_apply || n->n_ctrl || !can_update_inside(n))
            continue;
        k = g->values[n->in[1]].node;
        if (!is_weight_gradient(j, k) || k < j->last_fail || !can_move_update(j, n, a, k))
            continue;
        j->apply_of[k] = a;
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
    wf_rewrite_name(&j->rw, out.id, a ? a : m);
    if (sum)
        j->rw.map[sum->first_out] = out.id + 1;
    return j->rw.to->st;
}

static weft_status alloc_tables(struct join *j)
{
    weft_ctx *ctx = j->g->ctx;
    int64_t n = j->g->n_nodes + 1, m = j->g->n_values;

    j->last_read = wf_alloc_n(ctx, m, sizeof *j->last_read);
    j->product = wf_alloc_n(ctx, m, sizeof *j->product);
    j->next = wf_alloc_n(ctx, n, sizeof *j->next);
    j->sum_of = wf_alloc_n(ctx, n, sizeof *j->sum_of);
    j->apply_of = wf_alloc_n(ctx, n, sizeof *j->apply_of);
    j->gone = wf_alloc_n(ctx, n, sizeof *j->gone);
    j->late = wf_alloc_n(ctx, n, sizeof *j->late);
    j->fails = wf_alloc_n(ctx, n, sizeof *j->fails);
    if (!j->last_read || !j->product || !j->next || !j->sum_of || !j->apply_of || !j->gone ||
        !j->late || !j->fails)
        return wf_err_nomem(ctx, (size_t)n * 4, "joining products");
    for (int64_t k = 0; k < n; k++)
        j->sum_of[k] = j->apply_of[k] = -1;
    return WEFT_OK;
}

static void free_tables(struct join *j)
{
    weft_ctx *ctx = j->g->ctx;

    wf_uses_free(&j->uses, ctx);
    wf_free(ctx, j->last_read);
    wf_free(ctx, j->product);
    wf_free(ctx, j->next);
    wf_free(ctx, j->sum_of);
    wf_free(ctx, j->apply_of);
    wf_free(ctx, j->gone);
    wf_free(ctx, j->late);
    wf_free(ctx, j->fails);
}

static weft_status find_last_fail(struct join *j, bool all_fail)
{
    weft_status st = wf_find_fails(j->g, 0, NULL, j->fails);

    for (int64_t k = 0; k < j->g->n_nodes && !st; k++)
        if (j->rw.live[k] && (all_fail || j->fails[k]))
            j->last_fail = k;
    return st;
}

weft_status wf_pass_join(const weft_graph *g, bool updates, bool all_fail, int n_roots,
                         int32_t *roots, weft_graph **out)
{
    struct join j = {.g = g, .last_fail = -1};
    weft_status st = wf_rewrite_begin(&j.rw, g, n_roots, roots);

    if (!st)
        st = alloc_tables(&j);
    if (!st)
        st = find_last_fail(&j, all_fail);
    if (!st)
        st = wf_uses_find(&j.uses, g, n_roots, roots);
    if (!st) {
        find_readers(&j);
        wf_find_late(g, j.late);
        pair_sums(&j);
        if (updates)
            pair_updates(&j);
    }
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        if (!j.rw.live[k] || j.gone[k])
            continue;
        st =
            j.sum_of[k] >= 0 || j.apply_of[k] >= 0 ? emit_joined(&j, k) : wf_rewrite_copy(&j.rw, k);
    }
    free_tables(&j);
    return wf_rewrite_end(&j.rw, st, n_roots, roots, out);
}
