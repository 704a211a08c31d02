/* ties.c - decisions that rounding may change, such as comparisons of values that are equal except
 * for rounding.
 *
 * The noisy runs of a case are computed node by node in lockstep. If an op decides by a number (is
 * x > 0, is a = b, which integer is below x) and the runs show that the number is no farther from
 * the decision's threshold than its own error, the element is undecided: some runs put it on one
 * side, some on the other, some exactly on the threshold. A number without error (the same in all
 * runs) is decided, however close it is. */
#include <float.h>
#include <math.h>

#include "random/random.h"

enum tie_kind {
    AT,       /* operand `operand` at one of the numbers of `at` */
    PAIR,     /* operand 0 at operand 1 */
    WHOLE,    /* operand 0 at integers */
    HALF,     /* operand 0 halfway between integers */
    QUOTIENT, /* operand 0 at multiples of operand 1 */
    LIMITS,   /* operand 1 at the attributes min and max */
    TO_TYPE,  /* operand 0: at 0 for a bool result, at integers for an integer result */
};

static const struct tie {
    const char *op;
    enum tie_kind kind;
    int operand, n_at;
    double at[2];
} ties[] = {
    {"eq", PAIR, 0, 0, {0}},
    {"ne", PAIR, 0, 0, {0}},
    {"lt", PAIR, 0, 0, {0}},
    {"le", PAIR, 0, 0, {0}},
    {"gt", PAIR, 0, 0, {0}},
    {"ge", PAIR, 0, 0, {0}},
    {"cast", TO_TYPE, 0, 0, {0}},
    {"floor", WHOLE, 0, 0, {0}},
    {"ceil", WHOLE, 0, 0, {0}},
    {"round", HALF, 0, 0, {0}},
    {"mod", QUOTIENT, 0, 0, {0}},
    {"clip_grad", LIMITS, 1, 0, {0}},
    {"sign", AT, 0, 1, {0}},
    {"div", AT, 1, 1, {0}},
    {"pow", AT, 0, 1, {0}},
    {"reciprocal", AT, 0, 1, {0}},
    {"rsqrt", AT, 0, 1, {0}},
    {"sqrt", AT, 0, 1, {0}},
    {"log", AT, 0, 1, {0}},
    {"log1p", AT, 0, 1, {-1}},
    {"relu_grad", AT, 1, 1, {0}},
    {"relu6_grad", AT, 1, 2, {0, 6}},
    {"leaky_relu_grad", AT, 1, 1, {0}},
    {"elu_grad", AT, 1, 1, {0}},
    {"selu_grad", AT, 1, 1, {0}},
    {"hard_sigmoid_grad", AT, 1, 2, {-3, 3}},
    {"hard_swish_grad", AT, 1, 2, {-3, 3}},
    {"apply", AT, 1, 1, {0}}, /* some optimizers use the sign of the gradient */
    {"apply_rows", AT, 1, 1, {0}},
};

static const struct tie *tie_of(const struct wf_op *op)
{
    static signed char known[WF_N_OPS]; /* 0: not looked up yet, -1: none, else its number + 1 */

    if (op->id >= WF_N_OPS)
        return NULL;
    for (int i = 0; i < WF_COUNT(ties) && !known[op->id]; i++)
        if (!strcmp(op->name, ties[i].op))
            known[op->id] = (signed char)(i + 1);
    if (!known[op->id])
        known[op->id] = -1;
    return known[op->id] > 0 ? &ties[known[op->id] - 1] : NULL;
}

int64_t tie_index(const struct wf_type *t, const struct wf_type *to, int64_t e)
{
    int64_t at = 0, stride = 1;

    for (int i = to->rank - 1; i >= 0; i--) {
        int64_t k = to->dim[i] ? e % to->dim[i] : 0;
        int own = i - (to->rank - t->rank);

        e = to->dim[i] ? e / to->dim[i] : 0;
        if (own < 0)
            continue;
        at += t->dim[own] == 1 ? 0 : k * stride;
        stride *= t->dim[own];
    }
    return at;
}

static double element(const struct wf_tensor *t, int64_t e)
{
    return wf_get(t->data, t->type.dtype, e);
}

/* The threshold nearest to x; other: the second operand's element. */
static double turn(const struct tie *t, const double *at, int n_at, double x, double other)
{
    double best = at[0];

    switch (t->kind) {
    case PAIR: return other;
    case WHOLE: return rint(x);
    case HALF: return floor(x) + 0.5;
    case QUOTIENT: return rint(x / other) * other;
    default:
        for (int i = 1; i < n_at; i++)
            if (fabs(x - at[i]) < fabs(x - best))
                best = at[i];
        return best;
    }
}

/* Which side run p takes: -1, 0 (exactly there) or 1. Some runs take one for all elements, the
 * others one by chance: whatever is regular, elements that are summed with weights which cancel may
 * have in common. */
static int side(struct plain *p)
{
    switch (p->choice) {
    case BELOW: return -1;
    case EXACTLY: return 0;
    case ABOVE: return 1;
    default: return (int)draw_int(&p->chance, -1, 1);
    }
}

struct decision {
    const struct tie *tie;
    struct tie as; /* TO_TYPE and LIMITS as one of the others */
    double at[2];
    int n_at;
    bool spread;   /* the second operand broadcasts with the first */
    bool is_float; /* the result */
};

static bool find_decision(const struct wf_node *n, weft_dtype out, struct decision *d)
{
    const struct tie *t = tie_of(n->op);

    if (!t || !n->in[t->operand])
        return false;
    *d = (struct decision){.as = *t, .at = {t->at[0], t->at[1]}, .n_at = t->n_at};
    d->tie = &d->as;
    if (t->kind == TO_TYPE) {
        if (wf_is_float(out))
            return false;
        d->as.kind = out == WEFT_BOOL ? AT : WHOLE;
        d->n_at = 1;
    } else if (t->kind == LIMITS) {
        d->as.kind = AT;
        d->at[0] = wf_node_float(n, "min");
        d->at[1] = wf_node_float(n, "max");
        d->n_at = 2;
    }
    d->spread = t->kind == PAIR || t->kind == QUOTIENT;
    d->is_float = wf_is_float(out);
    return true;
}

/* The distance of operand x of run p from the threshold. */
static double distance(const struct plain *p, const struct wf_node *n, const struct decision *d,
                       int64_t e, int64_t e_other)
{
    double x = element(&p->val[n->in[d->tie->operand]], e);
    double other = d->spread ? element(&p->val[n->in[1]], e_other) : 0;

    return x - turn(d->tie, d->at, d->n_at, x, other);
}

/* Whether the element is undecided; if so, *width is the spread of the runs around the threshold.
 * Where some runs are infinite, those are on their side of it. NaN is on both sides if the result
 * cannot be NaN; otherwise it is not a decision. */
static bool undecided(const struct plain *p, const struct wf_node *n, const struct decision *d,
                      int64_t e, int64_t e_other, double *width)
{
    double lo = INFINITY, hi = -INFINITY, beyond = p->choice == CAUTIOUS ? 0 : 3;
    bool nan = false, below = false, above = false;

    for (int k = 0; k < p->peers->n_noisy; k++) {
        double x = distance(&p->peers->run[k], n, d, e, e_other);

        nan |= isnan(x) && !d->is_float;
        below |= isinf(x) && x < 0;
        above |= isinf(x) && x > 0;
        if (isfinite(x)) {
            lo = fmin(lo, x);
            hi = fmax(hi, x);
        }
    }
    if (lo > hi && nan) /* the noisy runs have lost the number; perhaps this one has not */
        lo = hi = distance(p, n, d, e, e_other);
    if (!isfinite(lo)) /* nothing was rounded */
        return false;
    *width = fmax(fabs(lo), fabs(hi));
    return nan || (below && hi >= 0) || (above && lo <= 0) ||
           (lo < hi && lo - beyond * (hi - lo) <= 0 && hi + beyond * (hi - lo) >= 0);
}

/* Operands of different shapes: the first is broadcast, so that each element of the result can be
 * decided by itself. */
static struct wf_tensor spread_out(struct plain *p, const struct wf_tensor *x,
                                   const struct wf_type *to)
{
    struct wf_tensor t = {*to, NULL};
    int64_t n;

    t.type.dtype = WEFT_F64;
    n = wf_count(&t);
    t.data = wf_arena_alloc(&p->arena, (size_t)n * sizeof(double) + 8);
    for (int64_t e = 0; e < n; e++)
        ((double *)t.data)[e] = element(x, tie_index(&x->type, to, e));
    return t;
}

/* argmin and argmax: an element whose difference from the best one, which is that of the first run,
 * is no larger than the difference's error may be the best as well. */
static void arg_ties(struct plain *p, int64_t k, struct wf_tensor *in)
{
    const struct wf_node *n = &p->g->nodes[k];
    const struct wf_tensor *first = &p->peers->run[0].val[n->in[0]];
    int axis = (int)wf_node_int(n, "axis");
    int64_t inner = 1, size;
    bool min = !strcmp(n->op->name, "argmin");
    struct wf_tensor x = {.data = NULL};

    axis += axis < 0 ? first->type.rank : 0;
    size = first->type.dim[axis];
    for (int i = axis + 1; i < first->type.rank; i++)
        inner *= first->type.dim[i];
    for (int64_t e = 0; e < wf_count(first); e++) {
        int64_t row = e / inner / size * size * inner + e % inner, best = row;
        double lo = INFINITY, hi = -INFINITY;

        for (int64_t i = 1; i < size; i++) {
            double a = element(first, row + i * inner), b = element(first, best);

            best = (min ? a < b : a > b) ? row + i * inner : best;
        }
        for (int j = 0; j < p->peers->n_noisy; j++) {
            const struct wf_tensor *t = &p->peers->run[j].val[n->in[0]];

            lo = fmin(lo, element(t, e) - element(t, best));
            hi = fmax(hi, element(t, e) - element(t, best));
        }
        if (e == best || !(lo < hi && lo - 3 * (hi - lo) <= 0 && hi + 3 * (hi - lo) >= 0))
            continue;
        p->peers->varies = true;
        if (p->choice == AS_IT_IS)
            continue;
        if (!x.data)
            x = spread_out(p, &in[0], &in[0].type);
        ((double *)x.data)[e] =
            ((double *)x.data)[best] + side(p) * fmax(fmax(fabs(lo), fabs(hi)), DBL_MIN);
    }
    if (x.data)
        in[0] = x;
}

bool plain_ties(struct plain *p, int64_t k, const struct wf_type *out, struct wf_tensor *in)
{
    const struct wf_node *n = &p->g->nodes[k];
    struct wf_tensor x = {.data = NULL};
    struct decision d;
    struct wf_type shape;
    int64_t count;

    if (!p->peers)
        return false;
    if ((n->op->id == WF_OP_argmin || n->op->id == WF_OP_argmax) && in[0].type.dtype == WEFT_F64)
        arg_ties(p, k, in);
    if (!find_decision(n, p->g->values[n->first_out].type.dtype, &d))
        return false;
    if (in[d.tie->operand].type.dtype != WEFT_F64)
        return false;
    shape = d.spread ? *out : in[d.tie->operand].type;
    count = wf_type_count(&shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t a = d.spread ? tie_index(&in[0].type, &shape, e) : e;
        int64_t b = d.spread ? tie_index(&in[1].type, &shape, e) : 0;
        double width, v, at;

        if (!undecided(p, n, &d, a, b, &width))
            continue;
        if (!x.data)
            x = spread_out(p, &in[d.tie->operand], &shape);
        v = ((double *)x.data)[e];
        p->peers->varies = true;
        at = turn(d.tie, d.at, d.n_at, v, d.spread ? element(&in[1], b) : 0);
        if (p->choice != AS_IT_IS && isfinite(at) && !isinf(v) && !(isnan(v) && d.is_float))
            ((double *)x.data)[e] = at + side(p) * fmax(width, DBL_MIN);
    }
    if (x.data)
        in[d.tie->operand] = x;
    return x.data;
}
