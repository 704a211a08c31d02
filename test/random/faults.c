/* faults.c - measures whether the check detects faults: known faults are put into single ops of
 * random graphs.
 *
 * The faulty program is the plain definition with one op whose result is slightly wrong. Faults
 * whose effect on every result is no larger than a few roundings are not counted: no check could
 * tell them from rounding. Graphs with halves are not counted either, because their rounding errors
 * are as large as most of the faults. If WEFT_TEST_MISSED is set in the environment, each
 * undetected fault is printed. */
#include <math.h>
#include <stdlib.h>

#include "random/random.h"

static const struct {
    const char *name;
    int kind;
    double by;
} kinds[] = {
    {"one element, 1e-2", ELEMENT, 1e-2}, {"one element, 1e-3", ELEMENT, 1e-3},
    {"one element, 1e-4", ELEMENT, 1e-4}, {"all elements, 1e-3", FACTOR, 1e-3},
    {"all elements, twice", FACTOR, 1},   {"one operand's element missing", DROPPED, 0},
};

static const struct config plain_config = {.name = "plain", .threads = 1};

struct count {
    int64_t n, noticed, excused;
};

static bool can_spoil(const struct wf_tensor *t)
{
    return t->data && wf_is_float(t->type.dtype) && wf_count(t) > 0;
}

/* Picks a random element of one result or operand of a random node; false: this node cannot have
 * the fault. */
static bool draw_fault(const struct graph_case *c, struct draw *d, int kind, struct fault *f)
{
    int64_t k = draw_int(d, 0, c->g->n_nodes - 1);
    const struct wf_node *n = &c->g->nodes[k];
    const struct wf_tensor *t;

    if (n->op->flags & (WF_LEAF | WF_VIEW | WF_STATE_IN0 | WF_RANDOM))
        return false;
    *f = (struct fault){.kind = kinds[kind].kind, .node = k, .by = kinds[kind].by};
    if (f->kind == DROPPED) {
        f->at = n->n_in ? (int)draw_int(d, 0, n->n_in - 1) : 0;
        if (!n->n_in || !n->in[f->at])
            return false;
        t = &c->first.val[n->in[f->at]];
    } else {
        f->at = (int)draw_int(d, 0, n->n_out - 1);
        t = &c->first.val[n->first_out + f->at];
    }
    if (!can_spoil(t))
        return false;
    f->element = draw_int(d, 0, wf_count(t) - 1);
    return wf_get(t->data, t->type.dtype, f->element) != 0;
}

static bool has_halves(const weft_graph *g)
{
    for (int64_t v = 1; v < g->n_values; v++)
        if (g->values[v].type.dtype == WEFT_F16 || g->values[v].type.dtype == WEFT_BF16)
            return true;
    return false;
}

static void one_seed(int64_t seed, struct count *by_kind, struct count *by_op)
{
    struct graph_case c;

    if (case_draw(&c, config_ctx(&plain_config), (uint64_t)seed, false) || has_halves(c.g)) {
        case_free(&c);
        return;
    }
    for (int kind = 0; kind < WF_COUNT(kinds); kind++) {
        struct draw d = draw_from((uint64_t)seed, 40 + (uint64_t)kind);
        struct fault f;
        struct report r;
        bool changed = false, found = false;

        for (int i = 0; i < 20 && !found; i++)
            found = draw_fault(&c, &d, kind, &f);
        if (!found || check_fault(&c, &f, &changed, &r) || !changed)
            continue;
        by_kind[kind].n++;
        by_kind[kind].noticed += r.failed;
        by_kind[kind].excused += r.excused;
        if (c.g->nodes[f.node].op->id < WF_N_OPS) {
            by_op[c.g->nodes[f.node].op->id].n++;
            by_op[c.g->nodes[f.node].op->id].noticed += r.failed;
        }
        if (!r.failed && getenv("WEFT_TEST_MISSED"))
            printf("missed: seed %lld, %s in '%s' (%s), element %lld%s\n", (long long)seed,
                   kinds[kind].name, c.g->nodes[f.node].name, c.g->nodes[f.node].op->name,
                   (long long)f.element, r.excused ? ", excused" : "");
    }
    case_free(&c);
}

bool faults_noticed(int64_t from, int64_t to)
{
    struct count by_kind[WF_COUNT(kinds)] = {{0}}, by_op[WF_N_OPS] = {{0}}, all = {0};

    for (int64_t s = from; s < to; s++)
        one_seed(s, by_kind, by_op);
    for (int i = 0; i < WF_N_OPS; i++)
        if (by_op[i].n >= 5 && by_op[i].noticed < by_op[i].n)
            printf("  %5lld of %5lld in %s\n", (long long)by_op[i].noticed, (long long)by_op[i].n,
                   wf_op_row(config_ctx(&plain_config), i)->name);
    for (int i = 0; i < WF_COUNT(kinds); i++) {
        printf("noticed: %lld of %lld, %s; excused by undecided decisions: %lld\n",
               (long long)by_kind[i].noticed, (long long)by_kind[i].n, kinds[i].name,
               (long long)by_kind[i].excused);
        all.n += by_kind[i].n;
        all.noticed += by_kind[i].noticed;
    }
    return all.n > 0 && all.noticed * 100 >= all.n * 90;
}
