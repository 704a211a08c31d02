/* simplify.c - constant folding, common subexpressions and algebra, in one sweep.
 *
 * Each live node is looked at once, with its inputs already simplified. A node that is not replaced is copied. */
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
    int32_t *n_uses; /* per old value: readers, fetches included */
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

/* Is v a constant all of whose elements equal x? Only scalars are looked at. */
static bool is_const(const struct simplify *s, int32_t v, double x)
{
    const struct wf_node *n = node_of(s, v);

    return n->op->id == WF_OP_constant && wf_type_count(type_of(s, v)) == 1 &&
           wf_get(n->data, type_of(s, v)->dtype, 0) == x;
}

/* a op neutral = a, when a already has the result's shape. */
static int32_t drop_neutral(const struct simplify *s, const struct wf_type *out, const int32_t *in,
                            double neutral, bool both)
{
    if (is_const(s, in[1], neutral) && wf_type_same_shape(type_of(s, in[0]), out))
        return in[0];
    if (both && is_const(s, in[0], neutral) && wf_type_same_shape(type_of(s, in[1]), out))
        return in[1];
    return 0;
}

/* The existing value that node n (with inputs in[]) equals, or 0. */
static int32_t equal_to(const struct simplify *s, const struct wf_node *n,
                        const struct wf_type *out, const int32_t *in)
{
    switch (n->op->id) {
    case WF_OP_identity:
    case WF_OP_stop_gradient: return in[0];
    case WF_OP_reduce_to_like:
    case WF_OP_broadcast_like:
    case WF_OP_reshape:
    case WF_OP_reshape_like: return wf_type_same_shape(type_of(s, in[0]), out) ? in[0] : 0;
    case WF_OP_add: return drop_neutral(s, out, in, 0, true);
    case WF_OP_mul: return drop_neutral(s, out, in, 1, true);
    default: return 0;
    }
}

/* The single element that fills all of v, when v is one element broadcast (and perhaps seen in another shape); or 0. */
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

/* An element-wise node broadcasts by itself: where one operand has the result's shape, another that is one element
 * spread out may as well be that element. Changes in[]. */
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

/* A constant times the gradient that a cross-entropy made: the cross-entropy can do it on its way, when nobody else reads
 * that gradient. Returns the gradient, or 0. */
static int32_t scale_inside(struct simplify *s, const struct wf_node *n, const struct wf_type *out,
                            const int32_t *in)
{
    for (int i = 0; i < 2; i++) {
        int32_t x = in[i], c = in[1 - i];
        struct wf_node *loss = &s->rw.to->nodes[s->rw.to->values[x].node];
        struct wf_attr *scale;

        if (loss->op->id != WF_OP_sparse_softmax_xent || s->rw.to->values[x].index != 1 ||
            s->n_uses[n->in[i]] != 1 || node_of(s, c)->op->id != WF_OP_constant ||
            wf_type_count(type_of(s, c)) != 1 || !wf_type_same_shape(type_of(s, x), out) ||
            type_of(s, x)->dtype != WEFT_F32)
            continue;
        scale = (struct wf_attr *)(uintptr_t)wf_attr(loss->op, loss->attr, "scale");
        if (scale->f != 1)
            continue;
        scale->f = wf_get(node_of(s, c)->data, WEFT_F32, 0);
        return x;
    }
    return 0;
}

/* reduce_to_like with known shapes is a sum over known axes, seen in the shape asked for. */
static int32_t as_sum(struct simplify *s, const struct wf_type *out, int32_t x)
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

    if (n)
        v = wf_build(s->rw.to, WF_OP_sum, 1, &v, 1, sum_sets);
    if (v.id && !wf_type_same_shape(type_of(s, v.id), out))
        v = wf_build(s->rw.to, WF_OP_reshape, 1, &v, 1, shape_sets);
    return v.id;
}

/* ---- constants ------------------------------------------------------------------------------- */

static bool foldable(const struct simplify *s, const struct wf_node *n, const int32_t *in)
{
    if (n->n_in == 0 || n->op->user ||
        (n->op->flags & (WF_RANDOM | WF_EFFECT | WF_LEAF | WF_STATE_IN0)))
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

/* Compute the node and map its outputs to constants. *done stays false when its kernel declines. */
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
    return n->n_ctrl == 0 && !(n->op->flags & (WF_RANDOM | WF_EFFECT | WF_STATE_IN0)) &&
           (n->op->id != WF_OP_constant || wf_attr(n->op, n->attr, "shape")->n == 0);
}

static bool same_node(const struct simplify *s, const struct wf_node *a, const struct wf_node *n,
                      const int32_t *in)
{
    if (a->op != n->op || a->n_in != n->n_in || strcmp(a->device, n->device))
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

static weft_status visit(struct simplify *s, int64_t k)
{
    const struct wf_node *n = &s->rw.from->nodes[k];
    const struct wf_type *out = &s->rw.from->values[n->first_out].type;
    int32_t *in = s->rw.in, *twin = NULL, same;
    bool done = false;
    weft_status st;

    wf_rewrite_inputs(&s->rw, k);
    if ((s->mask & WF_PASS_ALGEBRA) && (n->op->flags & WF_EW) && n->n_in > 1)
        unspread(s, n, out, in);
    if ((s->mask & WF_PASS_ALGEBRA) && n->n_ctrl == 0 && (same = equal_to(s, n, out, in)) != 0) {
        map_all(s, n, same);
        return WEFT_OK;
    }
    if ((s->mask & WF_PASS_ALGEBRA) && n->op->id == WF_OP_mul && n->n_ctrl == 0 &&
        (same = scale_inside(s, n, out, in)) != 0) {
        map_all(s, n, same);
        return WEFT_OK;
    }
    if ((s->mask & WF_PASS_ALGEBRA) && n->op->id == WF_OP_reduce_to_like && n->n_ctrl == 0) {
        map_all(s, n, as_sum(s, out, in[0]));
        return s->rw.to->st;
    }
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
    st = wf_copy_node(s->rw.to, n, in, &same);
    if (st)
        return st;
    map_all(s, n, same);
    if (n->op->id == WF_OP_placeholder)
        s->rw.to->values[same].type = *out;
    if (twin)
        *twin = (int32_t)s->rw.to->n_nodes;
    return WEFT_OK;
}

static void count_uses(struct simplify *s, int n_roots, const int32_t *roots)
{
    const weft_graph *g = s->rw.from;

    for (int64_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; s->rw.live[k] && i < g->nodes[k].n_in; i++)
            s->n_uses[g->nodes[k].in[i]]++;
    for (int i = 0; i < n_roots; i++)
        s->n_uses[roots[i]]++;
}

weft_status wf_pass_simplify(const weft_graph *g, unsigned mask, wf_eval_fn *eval, void *arg,
                             int n_roots, int32_t *roots, weft_graph **out)
{
    struct simplify s = {.mask = mask, .eval = eval, .arg = arg, .cap = 64};
    weft_status st = wf_rewrite_begin(&s.rw, g, n_roots, roots);

    while (s.cap < 4 * g->n_nodes)
        s.cap *= 2;
    if (!st) {
        s.table = wf_alloc_n(g->ctx, s.cap, sizeof *s.table);
        s.n_uses = wf_alloc_n(g->ctx, g->n_values, sizeof *s.n_uses);
        st = s.table && s.n_uses
                 ? WEFT_OK
                 : wf_err_nomem(g->ctx, (size_t)s.cap * sizeof *s.table, "simplify");
    }
    if (!st)
        count_uses(&s, n_roots, roots);
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (s.rw.live[k])
            st = visit(&s, k);
    wf_free(g->ctx, s.table);
    wf_free(g->ctx, s.n_uses);
    return wf_rewrite_end(&s.rw, st, n_roots, roots, out);
}
