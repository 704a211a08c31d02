/* gradients.c - the gradients that updates of a graph take, as outputs of a function. */
#include "support/gradients.h"

#include "graph/graph.h"

int gradients_of_updates(weft_graph *g, int n, const weft_val *updates, int cap, weft_gradient *out)
{
    int found = 0;

    for (int i = 0; i < n && found < cap; i++) {
        const struct wf_node *u = wf_val_node(g, updates[i]);
        weft_val var = {u->n_in > 0 ? u->in[0] : 0};
        bool seen = false;

        if (u->op->id != WF_OP_apply || wf_val_node(g, var)->op->id != WF_OP_variable)
            continue;
        for (int k = 0; k < found; k++)
            seen |= out[k].var.id == var.id;
        if (!seen)
            out[found++] = (weft_gradient){var, {u->in[1]}, 0};
    }
    return found;
}
