/* simplify.c - constant folding, common subexpressions and algebra, in one sweep.
 *
 * Each live node is visited once, with its inputs already simplified. A node that is not replaced
 * is copied. How often a value is used is not known until the sweep is over: what depends on it is
 * done afterwards (absorb.c). */
#include <math.h>

#include "graph/graph.h"

/* Folded constants stay small: a large one would only move memory from the slab to the plan. */
#define FOLD_MAX_BYTES 65536

struct simplify {
    struct wf_rewrite rw;
    unsigned mask;
    wf_eval_fn *eval;
    void *arg;
    int32_t *table; /* hash table of new node numbers + 1 */
    int64_t cap;
    bool *updated; /* per variable: a node of the graph overwrites it */
};

static const struct wf_type *type_of(const struct simplify *s, int32_t v)
{
    return &s->rw.to->values[v].type;
}

static const struct wf_node *node_of(const struct simplify *s, int32_t v)
{
    return &s->rw.to->nodes[s->rw.to->values[v].node];
}

/* ---- algebra --------------------------------------------------------------------------------- */

/* Whether v is a constant whose elements all equal x. Only scalars are checked. */
static bool is_const(const struct simplify *s, int32_t v, double x)
{
    const struct wf_node *n = node_of(s, v);

    return n->op->id == WF_OP_constant && wf_type_count(type_of(s, v)) == 1 &&
           wf_get(n->data, type_of(s, v)->dtype, 0) == x;
}

/* a op neutral = a, if a already has the result's shape. */
static int32_t drop_neutral(const struct simplify *s, const struct wf_type *out, const int32_t *in,
                            double neutral)
{
    if (is_const(s, in[1], neutral) && wf_type_same_shape(type_of(s, in[0]), out))
        return in[0];
    if (is_const(s, in[0], neutral) && wf_type_same_shape(type_of(s, in[1]), out))
        return in[1];
    return 0;
}

/* Whether v shows the bytes of a variable that changes in the run. Such a value must not replace
 * one that was computed from it: a fetch, or another update, would see the new bytes. */
static bool shows_updated(const struct simplify *s, int32_t v)
{
    const struct wf_node *n = v ? node_of(s, wf_view_root(s->rw.to, v)) : NULL;

    return n && ((n->op->flags & WF_STATE_IN0) || (n->var >= 0 && s->updated[n->var]));
}

/* The existing value that node n (with inputs in[]) equals, or 0. Views always show their operand's
 * bytes; other nodes have bytes of their own. */
static int32_t equal_to(const struct simplify *s, const struct wf_node *n,
                        const struct wf_type *out, const int32_t *in)
{
    bool same_shape = n->n_in && wf_type_same_shape(type_of(s, in[0]), out);
    int32_t same;

    switch (n->op->id) {
    case WF_OP_identity:
    case WF_OP_stop_gradient: return in[0];
    case WF_OP_reshape:
    case WF_OP_reshape_like: return same_shape ? in[0] : 0;
    case WF_OP_reduce_to_like:
    case WF_OP_broadcast_like: same = same_shape ? in[0] : 0; break;
    case WF_OP_add: same = drop_neutral(s, out, in, 0); break;
    case WF_OP_mul: same = drop_neutral(s, out, in, 1); break;
    default: return 0;
    }
    return shows_updated(s, same) ? 0 : same;
}

/* The single element that fills all of v, if v is one element broadcast (and possibly reshaped); or
 * 0. */
static int32_t splat_of(const struct simplify *s, int32_t v)
{
    const struct wf_node *n = node_of(s, v);

    while ((n->op->flags & WF_VIEW) && n->in[0] && n->op->id != WF_OP_identity) {
        v = n->in[0];
        n = node_of(s, v);
    }
    if (n->op->id == WF_OP_broadcast_like && wf_type_count(type_of(s, n->in[0])) == 1)
        return n->in[0];
    return 0;
}

/* The op broadcasts its operands itself (WF_SPREAD): if one operand has the result's shape, another
 * that is one broadcast element can be replaced by that element. Changes in[]. */
static void unspread(const struct simplify *s, const struct wf_node *n, const struct wf_type *out,
                     int32_t *in)
{
    for (int i = 0; i < n->n_in; i++) {
        int32_t one = in[i] ? splat_of(s, in[i]) : 0;
        bool other = false;

        for (int k = 0; k < n->n_in; k++)
            other |= k != i && in[k] && wf_type_same_shape(type_of(s, in[k]), out);
        if (one && other && type_of(s, one)->rank <= out->rank)
            in[i] = one;
    }
}

/* reduce_to_like with known shapes is a sum over known axes, in the requested shape. */
static int32_t as_sum(struct simplify *s, const struct wf_node *replaced, const struct wf_type *out,
                      int32_t x)
{
    const struct wf_type *t = type_of(s, x);
    int64_t axes[WEFT_MAX_RANK];
    int n = 0, lead = t->rank - out->rank;
    weft_val v = {x};

    for (int i = 0; i < t->rank; i++)
        if (i < lead || (out->dim[i - lead] == 1 && t->dim[i] != 1))
            axes[n++] = i;
    struct wf_set sum_sets[] = {WF_SET_INTS("axes", n, axes)};
    struct wf_set shape_sets[] = {WF_SET_INTS("shape", out->rank, out->dim)};

    if (!n && shows_updated(s, x))
        return 0;
    if (n) {
        v = wf_build(s->rw.to, WF_OP_sum, 1, &v, 1, sum_sets);
        wf_rewrite_name(&s->rw, v.id, replaced);
    }
    if (v.id && !wf_type_same_shape(type_of(s, v.id), out)) {
        v = wf_build(s->rw.to, WF_OP_reshape, 1, &v, 1, shape_sets);
        wf_rewrite_name(&s->rw, v.id, replaced);
    }
    return v.id;
}

/* ---- constants ------------------------------------------------------------------------------- */

static bool foldable(const struct simplify *s, const struct wf_node *n, const int32_t *in)
{
    if (n->n_in == 0 || n->op->user || (n->op->flags & (WF_RANDOM | WF_EFFECT)))
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (in[i] && node_of(s, in[i])->op->id != WF_OP_constant)
            return false;
    for (int i = 0; i < n->n_out; i++) {
        int64_t bytes = wf_type_bytes(&s->rw.from->values[n->first_out + i].type);

        if (bytes < 0 || bytes > FOLD_MAX_BYTES)
            return false;
    }
    return true;
}

/* Computes the node and maps its outputs to constants. *done stays false if its kernel fails. */
static weft_status fold(struct simplify *s, const struct wf_node *n, const int32_t *in_vals,
                        bool *done)
{
    weft_graph *to = s->rw.to;
    struct wf_tensor few[16], out[WF_MAX_OUT], *in = few;
    weft_status st = WEFT_OK;

    if (n->n_in > WF_COUNT(few))
        return WEFT_OK;
    for (int i = 0; i < n->n_in; i++)
        in[i] = in_vals[i] ? (struct wf_tensor){*type_of(s, in_vals[i]),
                                                (void *)(uintptr_t)node_of(s, in_vals[i])->data}
                           : (struct wf_tensor){.type = {.dtype = WEFT_NONE}};
    for (int i = 0; i < n->n_out && !st; i++) {
        out[i].type = s->rw.from->values[n->first_out + i].type;
        out[i].data = wf_arena_alloc(&to->arena, (size_t)wf_type_bytes(&out[i].type) + 1);
        st = out[i].data ? WEFT_OK : wf_err_nomem(to->ctx, 0, "folding a constant");
    }
    if (st)
        return st;
    if (s->eval(s->arg, n, in, out))
        return WEFT_OK; /* the error will come at run time, from the node itself */
    for (int i = 0; i < n->n_out; i++) {
        weft_tensor t =
            weft_view(out[i].type.dtype, out[i].data, out[i].type.rank, out[i].type.dim);

        s->rw.map[n->first_out + i] = weft_constant(to, &t).id;
        wf_rewrite_name(&s->rw, s->rw.map[n->first_out + i], n);
    }
    *done = true;
    return to->st;
}

/* ---- common subexpressions ------------------------------------------------------------------- */

static uint64_t hash_attr(const struct wf_attr *a, uint64_t h)
{
    h = wf_hash64(&a->i, sizeof a->i, h);
    h = wf_hash64(&a->f, sizeof a->f, h);
    if (a->kind == WF_STR && a->s)
        h = wf_hash64(a->s, strlen(a->s), h);
    if (a->kind == WF_INTS && a->n)
        h = wf_hash64(a->ints, (size_t)a->n * sizeof *a->ints, h);
    if (a->kind == WF_FLOATS && a->n)
        h = wf_hash64(a->floats, (size_t)a->n * sizeof *a->floats, h);
    return h;
}

static bool same_attr(const struct wf_attr *a, const struct wf_attr *b)
{
    return a->i == b->i && !memcmp(&a->f, &b->f, sizeof a->f) && a->n == b->n &&
           (a->kind != WF_STR || !strcmp(a->s ? a->s : "", b->s ? b->s : "")) &&
           (a->kind != WF_INTS || !a->n ||
            !memcmp(a->ints, b->ints, (size_t)a->n * sizeof *a->ints)) &&
           (a->kind != WF_FLOATS || !a->n ||
            !memcmp(a->floats, b->floats, (size_t)a->n * sizeof *a->floats));
}

static bool mergeable(const struct wf_node *n)
{
    return n->n_ctrl == 0 && !(n->op->flags & (WF_RANDOM | WF_EFFECT)) &&
           (n->op->id != WF_OP_constant || wf_attr(n->op, n->attr, "shape")->n == 0);
}

static bool same_node(const struct simplify *s, const struct wf_node *a, const struct wf_node *n,
                      const int32_t *in)
{
    if (a->op != n->op || a->n_in != n->n_in)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (a->in[i] != in[i])
            return false;
    for (int i = 0; i < n->op->n_attrs; i++)
        if (!same_attr(&a->attr[i], &n->attr[i]))
            return false;
    if (n->op->id == WF_OP_constant)
        return !memcmp(a->data, n->data, (size_t)wf_type_bytes(type_of(s, a->first_out)));
    return true;
}

/* The slot of a node equal to n, or the empty slot where it would go. */
static int32_t *find_twin(const struct simplify *s, const struct wf_node *n, const int32_t *in)
{
    uint64_t h = wf_hash64(&n->op->id, sizeof n->op->id, 1);

    h = wf_hash64(in, (size_t)n->n_in * sizeof *in, h);
    for (int i = 0; i < n->op->n_attrs; i++)
        h = hash_attr(&n->attr[i], h);
    if (n->op->id == WF_OP_constant)
        h = wf_hash64(n->data, (size_t)wf_type_bytes(&s->rw.from->values[n->first_out].type), h);
    for (uint64_t i = h & (uint64_t)(s->cap - 1);; i = (i + 1) & (uint64_t)(s->cap - 1))
        if (!s->table[i] || same_node(s, &s->rw.to->nodes[s->table[i] - 1], n, in))
            return &s->table[i];
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static void map_all(struct simplify *s, const struct wf_node *n, int32_t first)
{
    for (int i = 0; i < n->n_out; i++)
        s->rw.map[n->first_out + i] = first + i;
}

/* Applies algebra to a node: *same is the value that replaces it, or 0; in[] may change. */
static weft_status rewrite(struct simplify *s, const struct wf_node *n, int32_t *in, int32_t *same)
{
    const struct wf_type *out = &s->rw.from->values[n->first_out].type;

    *same = 0;
    if (n->op->flags & WF_SPREAD)
        unspread(s, n, out, in);
    if (n->n_ctrl == 0)
        *same = equal_to(s, n, out, in);
    if (!*same && n->op->id == WF_OP_reduce_to_like && n->n_ctrl == 0)
        *same = as_sum(s, n, out, in[0]);
    return s->rw.to->st;
}

static weft_status visit(struct simplify *s, int64_t k)
{
    const struct wf_node *n = &s->rw.from->nodes[k];
    int32_t *in = s->rw.in, *twin = NULL, same = 0;
    bool done = false;
    weft_status st = WEFT_OK;

    wf_rewrite_inputs(&s->rw, k);
    if (s->mask & WF_PASS_ALGEBRA)
        st = rewrite(s, n, in, &same);
    if (same)
        map_all(s, n, same);
    if (st || same)
        return st;
    if ((s->mask & WF_PASS_FOLD) && foldable(s, n, in)) {
        st = fold(s, n, in, &done);
        if (st || done)
            return st;
    }
    if ((s->mask & WF_PASS_CSE) && mergeable(n)) {
        twin = find_twin(s, n, in);
        if (*twin) {
            map_all(s, n, s->rw.to->nodes[*twin - 1].first_out);
            return WEFT_OK;
        }
    }
    st = wf_rewrite_copy_as(&s->rw, n, false);
    if (!st && twin)
        *twin = (int32_t)s->rw.to->n_nodes;
    return st;
}

static weft_status alloc_tables(struct simplify *s)
{
    const weft_graph *g = s->rw.from;
    int64_t n_vars = 0;

    while (s->cap < 4 * g->n_nodes)
        s->cap *= 2;
    for (int64_t k = 0; k < g->n_nodes; k++)
        n_vars = wf_max_i64(n_vars, g->nodes[k].var + 1);
    s->table = wf_alloc_n(g->ctx, s->cap, sizeof *s->table);
    s->updated = wf_alloc_n(g->ctx, n_vars + 1, sizeof *s->updated);
    if (!s->table || !s->updated)
        return wf_err_nomem(g->ctx, (size_t)s->cap * sizeof *s->table, "simplify");
    for (int64_t k = 0; k < g->n_nodes; k++) {
        int32_t v = s->rw.live[k] ? wf_value_updated(g, &g->nodes[k]) : 0;
        int32_t var = v ? g->nodes[g->values[v].node].var : -1;

        if (var >= 0)
            s->updated[var] = true;
    }
    return WEFT_OK;
}

static weft_status sweep(const weft_graph *g, unsigned mask, wf_eval_fn *eval, void *arg,
                         int n_roots, int32_t *roots, weft_graph **out)
{
    struct simplify s = {.mask = mask, .eval = eval, .arg = arg, .cap = 64};
    weft_status st = wf_rewrite_begin(&s.rw, g, n_roots, roots);

    if (!st)
        st = alloc_tables(&s);
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (s.rw.live[k])
            st = visit(&s, k);
    wf_free(g->ctx, s.table);
    wf_free(g->ctx, s.updated);
    return wf_rewrite_end(&s.rw, st, n_roots, roots, out);
}

weft_status wf_pass_simplify(const weft_graph *g, unsigned mask, wf_eval_fn *eval, void *arg,
                             int n_roots, int32_t *roots, weft_graph **out)
{
    weft_graph *swept = NULL;
    weft_status st = sweep(g, mask, eval, arg, n_roots, roots, &swept);

    if (st || !(mask & WF_PASS_ALGEBRA)) {
        *out = swept;
        return st;
    }
    st = wf_pass_absorb(swept, n_roots, roots, out);
    weft_graph_free(swept);
    return st;
}
