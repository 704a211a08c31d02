/* undecided.c - what depends on decisions that rounding may turn.
 *
 * A dozen noisy runs do not show all that an undecided decision may lead to: ten in a row that must
 * all go one way, or one of sixteen equal numbers that is picked. When a result is outside of what
 * the noisy runs explain, each of these is repeated several times, with the same noise: only
 * decisions vary that the noisy runs have found undecided. Some take each by chance. Some go for
 * the extremes: wherever a result depends on an undecided condition, it becomes as far from 0 as it
 * may be, as large, or as small. Where nothing is undecided, they are equal to the noisy runs. */
#include <math.h>

#include "kernels/ref/window.h"
#include "random/random.h"

static bool goes_for_extremes(const struct plain *p)
{
    return p->choice == FARTHEST || p->choice == LARGEST || p->choice == SMALLEST;
}

/* Which of two numbers this run wants. */
static double wanted(const struct plain *p, double a, double b)
{
    bool first = p->choice == FARTHEST  ? fabs(a) >= fabs(b)
                 : p->choice == LARGEST ? a >= b
                                        : a <= b;

    return first || isnan(b) ? a : b;
}

static double element(const struct wf_tensor *t, int64_t e)
{
    return wf_get(t->data, t->type.dtype, e);
}

/* Whether the runs disagree on element e of value v. */
static bool is_open(const struct plain *p, int32_t v, int64_t e)
{
    const struct plain *run = p->peers->run;
    double first = element(&run[0].val[v], e);

    for (int j = 1; j < p->peers->n; j++)
        if (element(&run[j].val[v], e) != first)
            return true;
    return false;
}

static void choose_where(struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                         struct wf_tensor *out)
{
    for (int64_t e = 0; e < wf_count(out); e++)
        if (is_open(p, n->in[0], tie_index(&in[0].type, &out->type, e)))
            ((double *)out->data)[e] =
                wanted(p, element(&in[1], tie_index(&in[1].type, &out->type, e)),
                       element(&in[2], tie_index(&in[2].type, &out->type, e)));
}

static void choose_cast(struct plain *p, const struct wf_node *n, struct wf_tensor *out)
{
    for (int64_t e = 0; e < wf_count(out); e++)
        if (is_open(p, n->in[0], e))
            ((double *)out->data)[e] = wanted(p, 0, 1);
}

/* Element-wise ops that decide by a number: the best of the results for all sides. */
static weft_status choose_side(struct plain *p, int64_t k, const struct wf_attr *attr,
                               const struct wf_tensor *in, struct wf_tensor *out)
{
    static const enum choice sides[] = {BELOW, EXACTLY, ABOVE};
    const struct wf_node *n = &p->g->nodes[k];
    enum choice choice = p->choice;
    struct wf_tensor side = out[0];
    weft_status st = WEFT_OK;

    side.data = plain_room(p, &side.type);
    for (int i = 0; i < WF_COUNT(sides) && !st; i++) {
        struct wf_tensor moved[WF_MAX_IN];

        memcpy(moved, in, sizeof *moved * (size_t)n->n_in);
        p->choice = sides[i];
        plain_ties(p, k, &out->type, moved);
        p->choice = choice;
        st = plain_call(p, n, attr, n->n_in, moved, &side);
        for (int64_t e = 0; e < wf_count(out) && !st; e++) {
            double *to = &((double *)out->data)[e];

            *to = i ? wanted(p, *to, ((double *)side.data)[e]) : ((double *)side.data)[e];
        }
    }
    return st;
}

/* Ops that also return indices into their operand: those of another order of elements that are
 * equal but for their error. */
static weft_status reorder(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                           const struct wf_tensor *in, struct wf_tensor *out)
{
    struct wf_tensor moved = in[0], other[2] = {out[0], out[1]};
    weft_status st;

    moved.data = plain_room(p, &moved.type);
    other[0].data = plain_room(p, &other[0].type);
    for (int64_t e = 0; e < wf_count(&moved); e++) {
        double lo = INFINITY, hi = -INFINITY;

        for (int j = 0; j < p->peers->n_noisy; j++) {
            lo = fmin(lo, element(&p->peers->run[j].val[n->in[0]], e));
            hi = fmax(hi, element(&p->peers->run[j].val[n->in[0]], e));
        }
        ((double *)moved.data)[e] =
            element(&in[0], e) + (lo < hi ? draw_real(&p->chance, -2, 2) * (hi - lo) : 0);
    }
    st = plain_call(p, n, attr, 1, &moved, other); /* the indices stay */
    other[0] = out[0];
    other[1].data = plain_room(p, &other[1].type);
    return st ? st : plain_call(p, n, attr, 1, (struct wf_tensor *)in, other);
}

/* Whether all runs, or at least one, pick tap k of the window at `at`. */
static void who_picks(const struct plain *p, int32_t argmax, int64_t at, int64_t k, bool *all,
                      bool *any)
{
    *all = true;
    *any = false;
    for (int j = 0; j < p->peers->n; j++) {
        const struct wf_tensor *t = &p->peers->run[j].val[argmax];
        bool picks = wf_get_int(t->data, t->type.dtype, at) == k;

        *all &= picks;
        *any |= picks;
    }
}

static void choose_pool_grad(struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                             struct wf_tensor *out)
{
    struct wf_window w;
    int64_t channels = out->type.dim[out->type.rank - 1], n_in, n_out;

    wf_pool_window(n->op, n->attr, &out->type, &w);
    n_in = ref_volume(w.in);
    n_out = ref_volume(w.out);
    for (int64_t j = 0; j < wf_count(out); j++) {
        int64_t ch = j % channels, i = j / channels % n_in, batch = j / channels / n_in;
        double lo = 0, hi = 0;

        for (int64_t k = 0; k < ref_volume(w.k); k++) {
            int64_t o = ref_met_by(&w, i, k), at = (batch * n_out + o) * channels + ch;
            bool all, any;

            if (o < 0)
                continue;
            who_picks(p, n->in[1], at, k, &all, &any);
            lo += all ? element(&in[0], at) : any ? fmin(element(&in[0], at), 0) : 0;
            hi += all ? element(&in[0], at) : any ? fmax(element(&in[0], at), 0) : 0;
        }
        ((double *)out->data)[j] = wanted(p, lo, hi);
    }
}

static void choose_pool_pick(struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                             struct wf_tensor *out)
{
    struct wf_window w;
    int64_t channels = out->type.dim[out->type.rank - 1], n_in, n_out;

    wf_pool_window(n->op, n->attr, &in[0].type, &w);
    n_in = ref_volume(w.in);
    n_out = ref_volume(w.out);
    for (int64_t at = 0; at < wf_count(out); at++) {
        int64_t o = at / channels % n_out, batch = at / channels / n_out;

        for (int j = 0; j < p->peers->n; j++) {
            const struct wf_tensor *t = &p->peers->run[j].val[n->in[1]];
            int64_t i = ref_meets(&w, o, wf_get_int(t->data, t->type.dtype, at));
            double *to = &((double *)out->data)[at];

            if (i >= 0)
                *to =
                    wanted(p, *to, element(&in[0], (batch * n_in + i) * channels + at % channels));
        }
    }
}

/* The extremes, for ops whose float result an undecided operand selects. */
static void go_far(struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                   struct wf_tensor *out)
{
    if (n->op->id == WF_OP_where)
        choose_where(p, n, in, out);
    else if (n->op->id == WF_OP_cast && in[0].type.dtype == WEFT_BOOL)
        choose_cast(p, n, out);
    else if (n->op->id == WF_OP_max_pool_grad)
        choose_pool_grad(p, n, in, out);
    else if (n->op->id == WF_OP_max_pool_pick)
        choose_pool_pick(p, n, in, out);
}

static bool orders(const struct wf_node *n)
{
    return n->op->id == WF_OP_max_pool || n->op->id == WF_OP_top_k || n->op->id == WF_OP_sort;
}

weft_status plain_decide(struct plain *p, int64_t k, const struct wf_attr *attr,
                         struct wf_tensor *in, struct wf_tensor *out)
{
    const struct wf_node *n = &p->g->nodes[k];
    bool deciding = p->number >= p->peers->n_noisy, is_float = out[0].type.dtype == WEFT_F64;
    struct wf_tensor before[WF_MAX_IN];
    weft_status st;

    memcpy(before, in, sizeof *before * (size_t)n->n_in);
    if (plain_ties(p, k, &out->type, in) && goes_for_extremes(p) && is_float)
        return choose_side(p, k, attr, before, out);
    p->peers->varies |= is_float && (orders(n) || sums_may_be_narrow(p, n, in));
    if (deciding && is_float && orders(n) && p->choice != AS_IT_IS)
        return reorder(p, n, attr, in, out);
    st = plain_call(p, n, attr, n->n_in, in, out);
    if (!st && goes_for_extremes(p) && is_float)
        go_far(p, n, in, out);
    if (!st && p->choice == NARROW && sums_may_be_narrow(p, n, in))
        st = sums_narrow(p, n, attr, in, out);
    return st;
}
