/* residuals.c - the gradient of a layer normalization with the addition that follows it.
 *
 * Where a net adds what a normalized branch computes to its input, the gradient of the input is
 * that of the normalization and another one. The kernel adds them as it writes, and may write the
 * sum rounded to halves as well, for the product that reads it next. Runs after programs have been
 * fused. */
#include "graph/graph.h"

enum { MOST_OUT = 4 };

struct residuals {
    struct wf_rewrite rw;
    const weft_graph *g;
    const struct wf_fusing *can;
    struct wf_uses uses;
    bool *late;      /* per node: depends on one that overwrites a variable */
    int32_t *sum_of; /* per node: of a normalization, the addition that it does; or -1 */
    int32_t *stands; /* per node: of an addition, the normalization that does it; or -1 */
};

static bool is_free(const struct residuals *s, int64_t k)
{
    const struct wf_node *n = &s->g->nodes[k];

    return s->rw.live[k] && !n->n_ctrl && !s->uses.awaited[k] && !*n->device && !s->late[k];
}

/* Which result of a program is the sum of its two operands, and which is that in another type: 0 if
 * it has none. False: the program does something else. */
static bool find_results(const struct wf_node *n, int *sum, int *rounded)
{
    const struct wf_attr *prog = wf_attr(n->op, n->attr, "prog"),
                         *outs = wf_attr(n->op, n->attr, "outs");
    const int64_t *i = prog->ints;

    *sum = *rounded = -1;
    if (n->op->id != WF_OP_fused || n->n_in != 2 || (prog->n != 5 && prog->n != 10) ||
        i[0] != WF_OP_add || i[1] + i[2] != 1 || i[1] * i[2] != 0 ||
        (prog->n == 10 && (i[5] != WF_OP_identity || i[6] != 2)) || outs->n != prog->n / 5)
        return false;
    for (int k = 0; k < outs->n; k++) {
        *sum = outs->ints[k] == 2 ? k : *sum;
        *rounded = outs->ints[k] == 3 ? k : *rounded;
    }
    return *sum >= 0 && (outs->n == 1 || *rounded >= 0);
}

/* The types of the node that does both: normalization k, and addition r of what is at `other`. */
static void set_types(const struct residuals *s, const struct wf_node *n, const struct wf_node *r,
                      struct wf_type *out)
{
    int sum, rounded;

    find_results(r, &sum, &rounded);
    out[0] = s->g->values[r->first_out + sum].type;
    out[1] = s->g->values[n->first_out + 1].type;
    out[2] = s->g->values[n->first_out + 2].type;
    if (rounded >= 0)
        out[3] = s->g->values[r->first_out + rounded].type;
}

static int32_t other_of(const struct wf_node *n, const struct wf_node *r)
{
    return r->in[0] == n->first_out ? r->in[1] : r->in[0];
}

static void find(struct residuals *s, int32_t k)
{
    const weft_graph *g = s->g;
    const struct wf_node *n = &g->nodes[k], *r;
    int32_t v = n->first_out, add, other;
    struct wf_type in[6], out[MOST_OUT];
    int sum, rounded;

    if (n->op->id != WF_OP_layer_norm_grad || n->n_in != 5 || !n->in[4] || !is_free(s, k) ||
        wf_uses_count(&s->uses, v) != 1 || s->uses.n_fetched[v])
        return;
    add = s->uses.reader[s->uses.first[v]];
    r = &g->nodes[add];
    if (!is_free(s, add) || !find_results(r, &sum, &rounded))
        return;
    other = other_of(n, r);
    if (other == v || g->values[other].node >= k)
        return;
    for (int i = 0; i < 5; i++)
        in[i] = g->values[n->in[i]].type;
    in[5] = g->values[other].type;
    set_types(s, n, r, out);
    if (!wf_type_same_shape(&in[5], &in[1]) || !wf_type_same_shape(&out[0], &in[1]) ||
        !s->can->take(wf_op_row(g->ctx, WF_OP_layer_norm_grad_add), n->attr, 6, in,
                      rounded >= 0 ? 4 : 3, out))
        return;
    s->sum_of[k] = add;
    s->stands[add] = k;
}

/* The node's types are not those of a rule: it reads and writes halves where the normalization
 * did. */
static weft_status emit_both(struct residuals *s, const struct wf_node *n, const struct wf_node *r)
{
    int32_t *map = s->rw.map, in[6], first;
    struct wf_type out[MOST_OUT];
    struct wf_attr attr[2] = {n->attr[0], {.kind = WF_INT}};
    struct wf_node both = *n;
    int sum, rounded;
    weft_status st;

    find_results(r, &sum, &rounded);
    set_types(s, n, r, out);
    for (int i = 0; i < 5; i++)
        in[i] = map[n->in[i]];
    in[5] = map[other_of(n, r)];
    attr[1].i = rounded >= 0 ? 4 : 3;
    both.op = wf_op_row(s->g->ctx, WF_OP_layer_norm_grad_add);
    both.attr = attr;
    both.n_in = 6;
    both.n_out = (int)attr[1].i;
    st = wf_copy_node(s->rw.to, &both, in, out, &first);
    if (st)
        return st;
    map[n->first_out] = map[r->first_out + sum] = first;
    map[n->first_out + 1] = first + 1;
    map[n->first_out + 2] = first + 2;
    if (rounded >= 0)
        map[r->first_out + rounded] = first + 3;
    return WEFT_OK;
}

static weft_status begin(struct residuals *s, int n_roots, const int32_t *roots)
{
    weft_ctx *ctx = s->g->ctx;
    int64_t n = s->g->n_nodes + 1;
    weft_status st = wf_uses_find(&s->uses, s->g, n_roots, roots);

    if (!st)
        st = wf_rewrite_begin(&s->rw, s->g, n_roots, roots);
    s->late = wf_alloc_n(ctx, n, sizeof *s->late);
    s->sum_of = wf_alloc_n(ctx, n, sizeof *s->sum_of);
    s->stands = wf_alloc_n(ctx, n, sizeof *s->stands);
    if (!st && (!s->late || !s->sum_of || !s->stands))
        st = wf_err_nomem(ctx, (size_t)n * sizeof *s->stands, "graph pass");
    for (int64_t k = 0; k < n && !st; k++)
        s->sum_of[k] = s->stands[k] = -1;
    if (!st)
        wf_find_late(s->g, s->late);
    return st;
}

weft_status wf_pass_residuals(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                              int32_t *roots, weft_graph **out)
{
    struct residuals s = {.g = g, .can = can};
    weft_status st = begin(&s, n_roots, roots);

    for (int32_t k = 0; k < g->n_nodes && !st; k++)
        find(&s, k);
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        if (!s.rw.live[k] || s.stands[k] >= 0)
            continue;
        st = s.sum_of[k] < 0 ? wf_rewrite_copy(&s.rw, k)
                             : emit_both(&s, &g->nodes[k], &g->nodes[s.sum_of[k]]);
    }
    if (s.rw.from)
        st = wf_rewrite_end(&s.rw, st, n_roots, roots, out);
    wf_uses_free(&s.uses, g->ctx);
    wf_free(g->ctx, s.late);
    wf_free(g->ctx, s.sum_of);
    wf_free(g->ctx, s.stands);
    return st;
}
