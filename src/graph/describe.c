/* describe.c - a graph's part of a fingerprint: what determines the numbers it computes.
 *
 * One item per node, in the order in which they were built: op, operands, attributes and types.
 * Sizes that are not known stay so. Names matter for variables alone, whose initial values depend
 * on them, and uids for random ops alone. Devices and the addresses of anything do not matter. */
#include "base/fprint.h"
#include "graph/graph.h"

static void put_value(struct wf_buf *b, const weft_graph *g, int32_t v)
{
    if (!v)
        wf_buf_printf(b, "-");
    else if (g->values[v].index)
        wf_buf_printf(b, "%%%d:%d", g->values[v].node, g->values[v].index);
    else
        wf_buf_printf(b, "%%%d", g->values[v].node);
}

static void put_node(struct wf_buf *b, const weft_graph *g, const struct wf_node *n)
{
    char type[WF_TYPE_TEXT];

    wf_buf_printf(b, "%s(", n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        wf_buf_printf(b, "%s", i ? ", " : "");
        put_value(b, g, n->in[i]);
    }
    wf_buf_printf(b, ")");
    if (n->op->id == WF_OP_variable)
        wf_buf_printf(b, " '%s'", n->name);
    for (int i = 0; i < n->op->n_attrs; i++)
        if (!wf_attr_is_default(&n->attr[i], &n->op->attr[i].value))
            wf_attr_write(b, n->op->attr[i].name, &n->attr[i], true);
    for (int i = 0; i < n->n_out; i++)
        wf_buf_printf(b, "%s%s", i ? ", " : " -> ",
                      wf_type_text(&g->values[n->first_out + i].type, type));
    for (int i = 0; i < n->n_ctrl; i++)
        wf_buf_printf(b, " after %%%d", n->ctrl[i]);
    if (n->op->flags & WF_RANDOM)
        wf_buf_printf(b, " random %d", n->uid);
    if (n->data)
        wf_buf_printf(b, " {%016llx}",
                      (unsigned long long)wf_hash64(
                          n->data, (size_t)wf_type_bytes(&g->values[n->first_out].type), 0));
}

void wf_graph_describe(const weft_graph *g, struct wf_fprint *f)
{
    struct wf_buf b;

    wf_buf_init(&b, g->ctx, (int64_t)1 << 30);
    for (int64_t k = 0; k < g->n_nodes && !f->st; k++) {
        const struct wf_node *n = &g->nodes[k];
        char key[32], note[128];

        b.len = 0;
        put_node(&b, g, n);
        wf_snprintf(key, sizeof key, "node %lld", (long long)k);
        wf_snprintf(note, sizeof note, "('%.100s')", n->name);
        if (b.st)
            f->st = wf_err_nomem(g->ctx, 0, "fingerprint");
        else
            wf_fp_add(f, WF_FP_GRAPH, key, note, "%s", b.data);
    }
    wf_buf_free(&b);
}

void wf_values_describe(const weft_graph *g, const char *what, int64_t n, const int32_t *values,
                        struct wf_fprint *f)
{
    for (int64_t i = 0; i < n && !f->st; i++) {
        const struct wf_value *v = &g->values[values[i]];
        char key[64], note[128];

        wf_snprintf(key, sizeof key, "%s %lld", what, (long long)i);
        wf_snprintf(note, sizeof note, "('%.100s')", g->nodes[v->node].name);
        wf_fp_add(f, WF_FP_GRAPH, key, note, "%%%d:%d", v->node, v->index);
    }
}
