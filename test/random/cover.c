/* cover.c - which ops and attributes were drawn. Shared between processes: workers count, the
 * parent reports. */
#define _DEFAULT_SOURCE
#include <sys/mman.h>

#include "random/random.h"

struct op_cover {
    int64_t drawn, planned;
    bool first_seen[WF_MAX_ATTRS], varied[WF_MAX_ATTRS];
    uint64_t first[WF_MAX_ATTRS];
};

static struct op_cover *cover;

void cover_begin(void)
{
    cover = mmap(NULL, sizeof *cover * WF_N_OPS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
}

static uint64_t digest(const struct wf_attr *a)
{
    uint64_t h = wf_hash64(&a->i, sizeof a->i, 1);

    h = wf_hash64(&a->f, sizeof a->f, h);
    if (a->s)
        h = wf_hash64(a->s, strlen(a->s), h);
    if (a->n && a->kind == WF_INTS)
        h = wf_hash64(a->ints, (size_t)a->n * sizeof *a->ints, h);
    if (a->n && a->kind == WF_FLOATS)
        h = wf_hash64(a->floats, (size_t)a->n * sizeof *a->floats, h);
    return h;
}

void cover_graph(const weft_graph *g, bool planned)
{
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        struct op_cover *c = &cover[n->op->user ? 0 : n->op->id];

        if (n->op->user)
            continue;
        if (planned) {
            c->planned++;
            continue;
        }
        c->drawn++;
        for (int i = 0; i < n->op->n_attrs; i++) {
            uint64_t h = digest(&n->attr[i]);

            if (!c->first_seen[i]) {
                c->first_seen[i] = true;
                c->first[i] = h;
            }
            c->varied[i] |= h != c->first[i];
        }
    }
}

/* Attributes that this test's graphs cannot vary. */
static bool is_excused(const char *op, const char *attr)
{
    static const char *const excused[][2] = {
        {"variable", "init_params"}, /* the test sets the values of variables */
        {"variable", "seed"},
        {"max_pool_pick", "pads"},
        {"max_pool_pick", "strides"},
        /* its rule builds simple windows */ {"variable", "merge"}, /* for several workers */
        {"apply_rows", "schedule"},
        {"apply_rows", "schedule_params"}, /* as in apply, and rare */
    };

    for (int i = 0; i < WF_COUNT(excused); i++)
        if (!strcmp(excused[i][0], op) && !strcmp(excused[i][1], attr))
            return true;
    return false;
}

int cover_report(weft_ctx *ctx, FILE *out)
{
    int missing = 0;

    wf_ops_ensure(ctx);
    for (int id = 0; id < WF_N_OPS; id++) {
        const struct wf_op *op = wf_op_row(ctx, id);
        const struct rule *r = rule_find(op->name);
        const struct op_cover *c = &cover[id];
        bool device = r && r->made_by && !strcmp(r->made_by, "devices"),
             plan = device || (r && r->made_by && !strcmp(r->made_by, "plans")),
             unused = r && r->made_by &&
                      (!strcmp(r->made_by, "nothing yet") || (device && !configs_of_device()));

        if (!device && configs_of_device()) /* the cpu's tests look for the others */
            continue;
        if (!r)
            fprintf(out, "op '%s' is not covered: give it a row in test/random/rules.c\n",
                    op->name);
        else if (!unused && (plan ? c->planned : c->drawn) == 0)
            fprintf(out, "op '%s' never occurred in a %s\n", op->name, plan ? "plan" : "graph");
        missing += !r || (!unused && (plan ? c->planned : c->drawn) == 0);
        /* Ops made by gradients have the attributes of the op that was drawn. */
        for (int i = 0; r && r->draw && i < op->n_attrs; i++)
            if (c->drawn && !c->varied[i] && !is_excused(op->name, op->attr[i].name)) {
                fprintf(out, "op '%s': attribute '%s' always had the same value\n", op->name,
                        op->attr[i].name);
                missing++;
            }
    }
    return missing;
}
