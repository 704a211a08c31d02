/* save.c - the graph of a row with its gradients as a file: corpora for the fuzzers of saved
 * graphs. */
#include <stdio.h>
#include <string.h>

#include "ops/lib/row.h"

#define MAX_ELEMENTS 400
#define MAX_BYTES 4000

static bool is_small(const struct op_case *c)
{
    for (int i = 0; i < c->n_in; i++) {
        struct wf_type t = wf_type_of(c->in[i].dtype, c->in[i].rank, c->in[i].dim);

        if (wf_type_count(&t) > MAX_ELEMENTS)
            return false;
    }
    return !c->fails;
}

/* Gradients of the sum of the float outputs; a row without any is saved as it is. */
static void differentiate(const struct op_case *c, struct built *b)
{
    weft_val x[OP_MAX_IN], d[OP_MAX_IN], loss = WEFT_NIL;
    int n = 0;

    for (int i = 0; i < b->n_out; i++)
        if (wf_is_float(wf_val_type_of(b->g, b->out[i])->dtype)) {
            weft_val term = wf_unary(b->g, WF_OP_sum, b->out[i]);

            loss = loss.id ? wf_binary(b->g, WF_OP_add, loss, term) : term;
        }
    for (int i = 0; i < c->n_in; i++)
        if (wf_is_float(c->in[i].dtype) && !(c->no_grad >> i & 1))
            x[n++] = b->in[i];
    if (loss.id && n && !(c->flags & OP_NO_GRAD))
        (void)weft_grad(b->g, loss, n, x, d);
}

void row_save(const struct row *r, const char *folder)
{
    struct built b;
    char path[512], *text = NULL;

    if (!is_small(r->c))
        return;
    if (!row_build(r, r->b->base, WEFT_F32, false, &b)) {
        differentiate(r->c, &b);
        if (!weft_graph_text(b.g, &text) && strlen(text) < MAX_BYTES) {
            snprintf(path, sizeof path, "%s/%016llx", folder,
                     (unsigned long long)wf_hash64(text, strlen(text), 1));
            if (weft_graph_save(b.g, path))
                fprintf(stderr, "%s\n", weft_error());
        }
        weft_text_free(r->b->base, text);
    }
    weft_graph_free(b.g);
}
