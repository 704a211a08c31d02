/* fails.c - which nodes may refuse the data of a step.
 *
 * Most kernels cannot fail. Those of WF_FAILS rows check what they read: ids and labels against a
 * size, lengths, rates, divisors, offsets. A node cannot fail if an earlier node has checked its
 * operand against the same size: the gradient of a lookup reads the ids that the lookup has
 * checked. */
#include "graph/graph.h"
#include "op/rnn.h"

/* What is checked. */
enum what {
    IDS,     /* each in 0 .. size - 1: what is valid for a size is valid for every larger one */
    LENGTHS, /* each in 0 .. size */
    OFFSETS, /* ascending from 0 to exactly size */
    RATE,    /* in 0 .. 1; the size is not used */
    N_WHATS
};

/* One check of an op: of `operand`, against the size of an axis of operand `size_of`, or against an
 * attribute. */
struct check {
    int op;
    enum what what;
    int operand;
    int size_of, axis;   /* size_of < 0: no operand */
    const char *axis_in; /* the attribute that has the axis, or NULL */
    const char *size_in; /* the attribute that has the size, or NULL */
};

static const struct check checks[] = {
    {WF_OP_gather, IDS, 1, 0, 0, "axis", NULL},
    {WF_OP_gather_grad, IDS, 1, 2, 0, "axis", NULL},
    {WF_OP_take_along, IDS, 1, 0, 0, "axis", NULL},
    {WF_OP_take_along_grad, IDS, 1, 2, 0, "axis", NULL},
    {WF_OP_embedding, IDS, 1, 0, 0, NULL, NULL},
    {WF_OP_embedding_grad, IDS, 0, 2, 0, NULL, NULL},
    {WF_OP_embedding_bag, IDS, 1, 0, 0, NULL, NULL},
    {WF_OP_embedding_bag, OFFSETS, 2, 1, 0, NULL, NULL},
    {WF_OP_bag_reduce, OFFSETS, 1, 0, 0, NULL, NULL},
    {WF_OP_bag_spread, OFFSETS, 1, 2, 0, NULL, NULL},
    {WF_OP_bag_inverse, OFFSETS, 0, 1, 0, NULL, NULL},
    {WF_OP_bag_segments, OFFSETS, 0, 1, 0, NULL, NULL},
    {WF_OP_apply_rows, IDS, 1, 0, 0, NULL, NULL},
    {WF_OP_one_hot, IDS, 0, -1, 0, NULL, "depth"},
    {WF_OP_segment_sum, IDS, 1, -1, 0, NULL, "n_segments"},
    {WF_OP_lstm, LENGTHS, WF_RNN_STEPS, WF_RNN_X, 1, NULL, NULL},
    {WF_OP_gru, LENGTHS, WF_RNN_STEPS, WF_RNN_X, 1, NULL, NULL},
    {WF_OP_simple_rnn, LENGTHS, WF_RNN_STEPS, WF_RNN_X, 1, NULL, NULL},
    {WF_OP_lstm_grad, LENGTHS, WF_RNN_STEPS, WF_RNN_X, 1, NULL, NULL},
    {WF_OP_gru_grad, LENGTHS, WF_RNN_STEPS, WF_RNN_X, 1, NULL, NULL},
    {WF_OP_simple_rnn_grad, LENGTHS, WF_RNN_STEPS, WF_RNN_X, 1, NULL, NULL},
    {WF_OP_dropout, RATE, 1, -1, 0, NULL, NULL},
    {WF_OP_dropout_grad, RATE, 2, -1, 0, NULL, NULL},
};

/* The size that the check compares with; 0 if it is not used, -1 if it is not known. */
static int64_t size_of(const weft_graph *g, const struct wf_node *n, const struct check *c)
{
    const struct wf_type *t;
    int64_t axis = c->axis_in ? wf_node_int(n, c->axis_in) : c->axis;

    if (c->size_in)
        return wf_node_int(n, c->size_in);
    if (c->size_of < 0)
        return 0;
    t = &g->values[n->in[c->size_of]].type;
    if (axis < 0)
        axis += t->rank;
    return axis >= 0 && axis < t->rank && t->dim[axis] >= 0 ? t->dim[axis] : -1;
}

struct fails {
    const weft_graph *g;
    int64_t *size[N_WHATS]; /* per value: the smallest size it was checked against, plus 1; 0: never
                             * checked */
};

static bool passed(const struct fails *f, enum what what, int32_t v, int64_t size)
{
    int64_t had = f->size[what][v] - 1;

    return had >= 0 && (what == OFFSETS ? had == size : had <= size);
}

/* Whether v was checked against `size`. Looks through views, widening casts and concatenated
 * ids. */
static bool is_checked(const struct fails *f, enum what what, int32_t v, int64_t size)
{
    const weft_graph *g = f->g;

    while (!passed(f, what, v, size)) {
        const struct wf_node *n = &g->nodes[g->values[v].node];
        bool widened = n->op->id == WF_OP_cast && g->values[n->in[0]].type.dtype == WEFT_I32 &&
                       g->values[v].type.dtype == WEFT_I64;

        if (n->op->id == WF_OP_concat && what == IDS) {
            for (int i = 0; i < n->n_in; i++)
                if (!is_checked(f, what, n->in[i], size))
                    return false;
            return true;
        }
        if (!n->n_in || !n->in[0] || !((n->op->flags & WF_VIEW) || widened))
            return false;
        v = n->in[0];
    }
    return true;
}

/* Records that v, and what it is a view of, has passed the check. */
static void set_checked(struct fails *f, enum what what, int32_t v, int64_t size)
{
    const weft_graph *g = f->g;
    const struct wf_node *n;

    do {
        int64_t *s = &f->size[what][v];

        if (!*s || what == OFFSETS || *s > size + 1)
            *s = size + 1;
        n = &g->nodes[g->values[v].node];
        v = n->n_in && (n->op->flags & WF_VIEW) ? n->in[0] : 0;
    } while (v);
}

/* Whether this check of node n can fail. If so, later nodes need not repeat it. */
static bool check_fails(struct fails *f, const struct wf_node *n, const struct check *c)
{
    const weft_graph *g = f->g;
    int32_t v = c->operand < n->n_in ? n->in[c->operand] : 0;
    int64_t size;

    if (!v) /* an optional operand that is absent; a fixed rate was checked when the node was
             * built */
        return false;
    if (c->what == LENGTHS && g->values[v].type.dtype == WEFT_BOOL) /* a mask */
        return false;
    size = size_of(g, n, c);
    if (size >= 0 && is_checked(f, c->what, v, size))
        return false;
    /* A kernel without output elements may not check its operands. */
    if (size >= 0 && wf_type_count(&g->values[n->first_out].type) > 0)
        set_checked(f, c->what, v, size);
    return true;
}

/* Whether the positions of maxima come from a pooling op, so that they are inside their windows. */
static bool own_maxima(const weft_graph *g, const struct wf_node *n)
{
    const struct wf_value *v;

    if (n->op->id != WF_OP_max_pool_grad && n->op->id != WF_OP_max_pool_pick)
        return false;
    v = &g->values[n->in[1]];
    return g->nodes[v->node].op->id == WF_OP_max_pool && v->index == 1;
}

static bool may_fail(struct fails *f, const struct wf_node *n)
{
    bool known = false, fails = false;

    if (n->op->user)
        return true;
    if (!(n->op->flags & WF_FAILS) || own_maxima(f->g, n))
        return false;
    if (n->op->id == WF_OP_mod)
        return !wf_is_float(f->g->values[n->in[1]].type.dtype);
    if (n->op->id == WF_OP_one_hot && wf_node_int(n, "allow_outside"))
        return false;
    for (int i = 0; i < WF_COUNT(checks); i++)
        if (checks[i].op == n->op->id) {
            known = true;
            fails |= check_fails(f, n, &checks[i]);
        }
    return fails || !known;
}

weft_status wf_find_fails(const weft_graph *g, int64_t n_order, const int32_t *order, bool *fails)
{
    struct fails f = {.g = g};
    int64_t n = order ? n_order : g->n_nodes;
    int64_t *mem = wf_alloc_n(g->ctx, N_WHATS * g->n_values + 1, sizeof *mem);

    if (!mem)
        return wf_err_nomem(g->ctx, (size_t)g->n_values * sizeof *mem, "plan");
    for (int i = 0; i < N_WHATS; i++)
        f.size[i] = mem + i * g->n_values;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = order ? order[i] : i;

        fails[k] = may_fail(&f, &g->nodes[k]);
    }
    wf_free(g->ctx, mem);
    return WEFT_OK;
}
