/* fuse.c - joins element-wise nodes into programs, and programs into the product that feeds them.
 *
 * Nodes are visited in order and collected in clusters. A node joins the clusters of its producers
 * if the shapes agree and every outside reader of a member comes after the node: the cluster runs
 * at the position of its last member. A cluster has at most one anchor, a matrix product, whose
 * epilogue the program becomes. The kernels say which ops and types a program may contain (struct
 * wf_fusing). */
#include "graph/graph.h"

enum { MAX_MEMBERS = 32, MAX_OPERANDS = 14 };

struct cluster {
    int32_t member[MAX_MEMBERS]; /* node numbers, ascending */
    int n;
    int32_t anchor; /* node number or -1 */
    const struct wf_type *shape;
};

struct fuse {
    struct wf_rewrite rw;
    const weft_graph *g;
    const struct wf_fusing *can;
    struct wf_uses uses;
    int32_t *of;        /* per node: cluster number, or -1 */
    bool *after_update; /* per node: depends on one that overwrites a variable */
    struct cluster *clusters;
    int64_t n_clusters, cap_clusters;
};

/* ---- clusters -------------------------------------------------------------------------------- */

/* Operands of a node that a program reads: all, or only the first of broadcast_like, whose second
 * only gives a shape. */
static int n_read(const struct wf_node *n)
{
    return n->op->id == WF_OP_broadcast_like ? 1 : n->n_in;
}

static bool fusable(const struct fuse *f, int64_t k)
{
    const weft_graph *g = f->g;
    const struct wf_node *n = &g->nodes[k];
    struct wf_type in[3];

    if (n->n_ctrl || f->uses.awaited[k] || n->n_out != 1 || n_read(n) < 1 || n_read(n) > 3)
        return false;
    for (int i = 0; i < n_read(n); i++) {
        if (!n->in[i])
            return false;
        in[i] = g->values[n->in[i]].type;
    }
    return f->can->step(n->op, n_read(n), in, &g->values[n->first_out].type);
}

/* Whether a program whose last step has dtype `last` can run after node k. */
static bool can_anchor(const struct fuse *f, int64_t k, weft_dtype last)
{
    const weft_graph *g = f->g;
    const struct wf_node *n = &g->nodes[k];
    struct wf_type in[2];

    if (n->n_ctrl || f->uses.awaited[k] || n->n_in != 2 || n->n_out != 1)
        return false;
    for (int i = 0; i < 2; i++)
        in[i] = g->values[n->in[i]].type;
    return f->can->anchor(n->op, n->attr, in, &g->values[n->first_out].type, last);
}

static struct cluster *cluster_of(struct fuse *f, int64_t node)
{
    return f->of[node] >= 0 ? &f->clusters[f->of[node]] : NULL;
}

/* An update waits for the readers of the old value. If it would wait for `c` at node k, and c for
 * an update, c would have to read copies (uncross.c). */
static bool waits_both_ways(const struct fuse *f, const struct cluster *c, int64_t k)
{
    bool after = false, before = false;

    for (int m = 0; m < c->n; m++) {
        const struct wf_node *n = &f->g->nodes[c->member[m]];

        after |= f->after_update[c->member[m]];
        for (int i = 0; i < n->n_in; i++)
            before |= f->uses.first_update[wf_value_read(f->g, n, i)] < k;
    }
    return after && before;
}

/* Whether every reader of a member of `c` outside of it comes after node k. */
static bool readers_come_later(const struct fuse *f, const struct cluster *c, int32_t id, int64_t k)
{
    for (int m = 0; m < c->n; m++) {
        int32_t v = f->g->nodes[c->member[m]].first_out;

        /* Readers are in order: no more than those before k. */
        for (int32_t u = f->uses.first[v]; u < f->uses.first[v + 1] && f->uses.reader[u] < k; u++)
            if (f->of[f->uses.reader[u]] != id)
                return false;
    }
    return true;
}

static int64_t new_cluster(struct fuse *f, int64_t k, int32_t anchor, weft_status *st)
{
    struct cluster *c;

    *st =
        wf_grow(f->g->ctx, &f->clusters, &f->cap_clusters, f->n_clusters + 1, sizeof *f->clusters);
    if (*st)
        return -1;
    c = &f->clusters[f->n_clusters];
    *c = (struct cluster){
        .n = 1, .anchor = anchor, .shape = &f->g->values[f->g->nodes[k].first_out].type};
    c->member[0] = (int32_t)k;
    f->of[k] = (int32_t)f->n_clusters;
    return f->n_clusters++;
}

/* Operands from outside that a cluster would read: a bound, duplicates counted once each. */
static int count_operands(const struct fuse *f, const struct cluster *c, int32_t id)
{
    int32_t seen[MAX_OPERANDS + 1];
    int n = 0;

    for (int m = 0; m < c->n; m++) {
        const struct wf_node *node = &f->g->nodes[c->member[m]];

        for (int i = 0; i < n_read(node) && c->member[m] != c->anchor; i++) {
            bool known = f->of[f->g->values[node->in[i]].node] == id;

            for (int s = 0; s < n && !known; s++)
                known = seen[s] == node->in[i];
            if (!known) {
                if (n == MAX_OPERANDS)
                    return n + 1;
                seen[n++] = node->in[i];
            }
        }
    }
    return n;
}

/* Whether a member computes what the anchor reads. If so, the program cannot run after it. */
static bool feeds_anchor(const struct fuse *f, const struct cluster *c, int32_t id)
{
    const struct wf_node *n = c->anchor >= 0 ? &f->g->nodes[c->anchor] : NULL;

    for (int i = 0; n && i < n->n_in; i++)
        if (n->in[i] && f->of[f->g->values[n->in[i]].node] == id)
            return true;
    return false;
}

/* Tries to merge cluster `from` into cluster `to`, whose last member is node k; undone if it does
 * not fit. The last member's result becomes the first output, for which an anchor has its own
 * rule. */
static void try_merge(struct fuse *f, int32_t to, int32_t from, int64_t k)
{
    struct cluster *a = &f->clusters[to], *b = &f->clusters[from], merged = *a;

    if (a->n + b->n > MAX_MEMBERS || (a->anchor >= 0 && b->anchor >= 0) ||
        !wf_type_same_shape(a->shape, b->shape))
        return;
    for (int m = 0; m < b->n; m++)
        f->of[b->member[m]] = to;
    merged.n = 0;
    for (int i = 0, j = 0; i < a->n || j < b->n;)
        merged.member[merged.n++] = j == b->n || (i < a->n && a->member[i] < b->member[j])
                                        ? a->member[i++]
                                        : b->member[j++];
    merged.anchor = a->anchor >= 0 ? a->anchor : b->anchor;
    if ((merged.anchor < 0 ||
         can_anchor(f, merged.anchor, f->g->values[f->g->nodes[k].first_out].type.dtype)) &&
        !waits_both_ways(f, &merged, k) && !feeds_anchor(f, &merged, to) &&
        readers_come_later(f, &merged, to, k) && count_operands(f, &merged, to) <= MAX_OPERANDS) {
        *a = merged;
        b->n = 0;
        return;
    }
    for (int m = 0; m < b->n; m++)
        f->of[b->member[m]] = from;
}

static weft_status collect(struct fuse *f)
{
    const weft_graph *g = f->g;
    weft_status st = WEFT_OK;

    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        const struct wf_node *n = &g->nodes[k];
        int64_t id;

        if (!f->rw.live[k])
            continue;
        if (can_anchor(f, k, g->values[n->first_out].type.dtype)) {
            new_cluster(f, k, (int32_t)k, &st);
            continue;
        }
        if (!fusable(f, k))
            continue;
        id = new_cluster(f, k, -1, &st);
        for (int i = 0; i < n_read(n) && !st; i++) {
            int32_t from = f->of[g->values[n->in[i]].node];

            if (from >= 0 && from != id)
                try_merge(f, (int32_t)id, from, k);
        }
    }
    return st;
}

/* ---- emitting -------------------------------------------------------------------------------- */

struct program {
    int64_t prog[5 * MAX_MEMBERS], outs[MAX_MEMBERS], out_types[MAX_MEMBERS];
    double params[4 * MAX_MEMBERS];
    int32_t operand[MAX_OPERANDS + 2]; /* values of the old graph */
    int32_t out_value[MAX_MEMBERS];    /* likewise */
    int n_steps, n_params, n_operands, n_outs;
};

/* The register of a value: that of an operand (added if it is new), or of the step that computes
 * it. Steps are numbered from MAX_OPERANDS on until the number of operands is known. */
static int register_of(struct fuse *f, struct program *p, const struct cluster *c, int32_t id,
                       int32_t v)
{
    int32_t node = f->g->values[v].node;

    if (f->of[node] == id) {
        int step = 0;

        if (node == c->anchor)
            return 0;
        for (int m = 0; c->member[m] != node; m++)
            step += c->member[m] != c->anchor;
        return MAX_OPERANDS + 1 + step;
    }
    for (int i = 0; i < p->n_operands; i++)
        if (p->operand[i] == v) /* never the first one of an anchor, which is 0 */
            return i;
    p->operand[p->n_operands] = v;
    return p->n_operands++;
}

static void add_step(struct fuse *f, struct program *p, const struct cluster *c, int32_t id,
                     const struct wf_node *n)
{
    int64_t *s = &p->prog[5 * p->n_steps++];

    s[0] =
        n->op->id == WF_OP_broadcast_like || n->op->id == WF_OP_cast ? WF_OP_identity : n->op->id;
    for (int i = 0; i < 3; i++)
        s[1 + i] = i < n_read(n) ? register_of(f, p, c, id, n->in[i]) : -1;
    s[4] = p->n_params;
    for (int i = 0; i < n->op->n_attrs; i++)
        if (n->attr[i].kind == WF_FLOAT)
            p->params[p->n_params++] = n->attr[i].f;
}

/* Whether the member's value is read outside the cluster. */
static bool leaves_cluster(const struct fuse *f, int32_t v, int32_t id)
{
    if (f->uses.n_fetched[v])
        return true;
    for (int32_t u = f->uses.first[v]; u < f->uses.first[v + 1]; u++)
        if (f->of[f->uses.reader[u]] != id)
            return true;
    return false;
}

/* Step numbers become registers after the operands. */
static int64_t settle(int64_t reg, int n_operands)
{
    return reg > MAX_OPERANDS ? reg - (MAX_OPERANDS + 1) + n_operands : reg;
}

static void make_program(struct fuse *f, struct program *p, const struct cluster *c, int32_t id)
{
    p->n_operands = c->anchor >= 0 ? 1 : 0; /* register 0 is the product */
    for (int m = 0; m < c->n; m++)
        if (c->member[m] != c->anchor)
            add_step(f, p, c, id, &f->g->nodes[c->member[m]]);
    /* The last member first: a product's memory is that of its first output. */
    for (int m = c->n - 1; m >= 0; m--) {
        int32_t v = f->g->nodes[c->member[m]].first_out;

        if (!leaves_cluster(f, v, id))
            continue;
        p->out_value[p->n_outs] = v;
        p->out_types[p->n_outs] = f->g->values[v].type.dtype;
        p->outs[p->n_outs++] = register_of(f, p, c, id, v);
    }
    for (int s = 0; s < p->n_steps; s++)
        for (int i = 1; i <= 3; i++)
            p->prog[5 * s + i] = settle(p->prog[5 * s + i], p->n_operands);
    for (int i = 0; i < p->n_outs; i++)
        p->outs[i] = settle(p->outs[i], p->n_operands);
}

/* The anchor's op followed by a program, with the anchor's own attributes. */
static weft_val build_anchored(struct fuse *f, const struct wf_node *anchor, int n_in,
                               const weft_val *in, int n_common, const struct wf_set *common)
{
    int id = anchor->op->id == WF_OP_matmul ? WF_OP_matmul_fused : WF_OP_conv_fused;
    struct wf_set sets[WF_MAX_ATTRS];
    int n = 0;

    for (int i = 0; i < anchor->op->n_attrs; i++)
        sets[n++] = (struct wf_set){anchor->op->attr[i].name, anchor->attr[i]};
    for (int i = 0; i < n_common; i++)
        sets[n++] = common[i];
    return wf_build(f->rw.to, id, n_in, in, n, sets);
}

static weft_status emit_cluster(struct fuse *f, const struct cluster *c, int32_t id)
{
    const weft_graph *g = f->g;
    const struct wf_node *last = &g->nodes[c->member[c->n - 1]];
    struct program p = {.n_steps = 0};
    weft_val in[MAX_OPERANDS + 4], out;
    int n_in = 0;

    make_program(f, &p, c, id);
    if (c->anchor >= 0)
        for (int i = 0; i < 2; i++)
            in[n_in++].id = f->rw.map[g->nodes[c->anchor].in[i]];
    for (int i = c->anchor >= 0 ? 1 : 0; i < p.n_operands; i++)
        in[n_in++].id = f->rw.map[p.operand[i]];
    struct wf_set common[] = {
        WF_SET_INTS("prog", 5 * p.n_steps, p.prog),
        WF_SET_FLOATS("params", p.n_params, p.params),
        WF_SET_INTS("outs", p.n_outs, p.outs),
        WF_SET_INTS("out_types", p.n_outs, p.out_types),
        WF_SET_INT("n", p.n_outs),
        WF_SET_INTS("shape", c->shape->rank, c->shape->dim),
    };
    out = c->anchor >= 0 ? build_anchored(f, &g->nodes[c->anchor], n_in, in, 5, common)
                         : wf_build(f->rw.to, WF_OP_fused, n_in, in, 6, common);
    wf_rewrite_name(&f->rw, out.id, last);
    for (int i = 0; i < p.n_outs && out.id; i++)
        f->rw.map[p.out_value[i]] = out.id + i;
    return f->rw.to->st;
}

static weft_status emit(struct fuse *f, int64_t k)
{
    struct cluster *c = cluster_of(f, k);

    if (c && (c->n > 1 || c->anchor < 0)) /* an element-wise node alone is a short program */
        return c->member[c->n - 1] == k ? emit_cluster(f, c, f->of[k]) : WEFT_OK;
    return wf_rewrite_copy(&f->rw, k);
}

weft_status wf_pass_fuse(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                         int32_t *roots, weft_graph **out)
{
    struct fuse f = {.g = g, .can = can};
    weft_status st = wf_rewrite_begin(&f.rw, g, n_roots, roots);

    if (!st)
        st = wf_uses_find(&f.uses, g, n_roots, roots);
    f.of = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *f.of);
    f.after_update = wf_alloc_n(g->ctx, g->n_nodes + 1, sizeof *f.after_update);
    if (!st && (!f.of || !f.after_update))
        st = wf_err_nomem(g->ctx, (size_t)g->n_nodes * sizeof *f.of, "fusion");
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        f.of[k] = -1;
    if (!st) {
        wf_find_late(g, f.after_update);
        st = collect(&f);
    }
    for (int64_t k = 0; k < g->n_nodes && !st; k++)
        if (f.rw.live[k])
            st = emit(&f, k);
    wf_free(g->ctx, f.of);
    wf_free(g->ctx, f.after_update);
    wf_free(g->ctx, f.clusters);
    wf_uses_free(&f.uses, g->ctx);
    return wf_rewrite_end(&f.rw, st, n_roots, roots, out);
}
