/* events_graph.c - a model as the graph TensorBoard draws: one node for each op of its inference
 * graph, in the scope of its layer, so that layers can be collapsed and expanded. */
#include <stdio.h>

#include "train/callback/events.h"
#include "train/callback/proto.h"

enum { EVENT_GRAPH = 4 };
enum { GRAPH_NODE = 1, GRAPH_VERSIONS = 4 };
enum { NODE_NAME = 1, NODE_OP, NODE_INPUT, NODE_DEVICE, NODE_ATTR };
enum { ATTR_LIST = 1, ATTR_SHAPE = 7 };

/* attr { "_output_shapes": list { shape … } } */
static void put_shapes(struct wf_buf *b, const weft_graph *g, const struct wf_node *n)
{
    int64_t attr = wf_pb_open(b, NODE_ATTR), value, list;

    wf_pb_text(b, 1, "_output_shapes");
    value = wf_pb_open(b, 2);
    list = wf_pb_open(b, ATTR_LIST);
    for (int i = 0; i < n->n_out; i++) {
        const struct wf_type *t = &g->values[n->first_out + i].type;
        int64_t shape = wf_pb_open(b, ATTR_SHAPE);

        for (int k = 0; k < t->rank; k++) {
            int64_t dim = wf_pb_open(b, 2);

            wf_pb_int(b, 1, t->dim[k] < 0 ? -1 : t->dim[k]);
            wf_pb_close(b, dim);
        }
        wf_pb_close(b, shape);
    }
    wf_pb_close(b, list);
    wf_pb_close(b, value);
    wf_pb_close(b, attr);
}

static void put_node(struct wf_buf *b, const weft_graph *g, const struct wf_node *n)
{
    int64_t node = wf_pb_open(b, GRAPH_NODE);

    wf_pb_text(b, NODE_NAME, n->name);
    wf_pb_text(b, NODE_OP, n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        const struct wf_value *v = &g->values[n->in[i]];
        char input[1024];

        if (!n->in[i])
            continue;
        if (v->index)
            snprintf(input, sizeof input, "%s:%d", g->nodes[v->node].name, (int)v->index);
        else
            snprintf(input, sizeof input, "%s", g->nodes[v->node].name);
        wf_pb_text(b, NODE_INPUT, input);
    }
    for (int i = 0; i < n->n_ctrl; i++) {
        char input[1024];

        snprintf(input, sizeof input, "^%s", g->nodes[n->ctrl[i]].name);
        wf_pb_text(b, NODE_INPUT, input);
    }
    if (*n->device)
        wf_pb_text(b, NODE_DEVICE, n->device);
    put_shapes(b, g, n);
    wf_pb_close(b, node);
}

weft_status wf_events_model(struct wf_events *e, weft_model *m)
{
    struct wf_buf *b = &e->event;
    weft_graph *g = NULL;
    struct wf_arena arena;
    struct wf_built built;
    int64_t def, versions;
    weft_status st = weft_graph_new(e->ctx, &g);

    wf_arena_init(&arena, e->ctx);
    if (!st)
        st = wf_model_build(m, g, false, &arena, &built);
    if (!st) {
        wf_event_begin(e, 0);
        def = wf_pb_open(b, EVENT_GRAPH);
        for (int64_t i = 0; i < g->n_nodes; i++)
            put_node(b, g, &g->nodes[i]);
        versions = wf_pb_open(b, GRAPH_VERSIONS);
        wf_pb_int(b, 1, 22);
        wf_pb_close(b, versions);
        wf_pb_close(b, def);
        st = wf_event_write(e);
    }
    wf_arena_free(&arena);
    weft_graph_free(g);
    return st;
}
