/* bind_weights.c - the weight of a label: its sample's weight, and that of its class. */
#include "train/step/bind.h"

static bool has_classes(const weft_trainer *t, int out)
{
    return t->n_class_weights > 0 && t->class_output == out;
}

/* Binary labels [batch, time] of predictions [batch, time, 1] get that axis: a loss is the mean
 * over the last one, and each label has its own weight. */
weft_val wf_bound_label(const weft_trainer *t, struct wf_bound *b, int out)
{
    weft_val y = b->label[out];
    weft_tensor type, pred;

    if (!has_classes(t, out) || weft_val_type(b->graph, y, &type) ||
        weft_val_type(b->graph, b->infer.out[out], &pred))
        return y;
    if (type.rank < 2 || pred.rank != type.rank + 1 || pred.dim[type.rank] != 1)
        return y;
    return weft_expand_dims(b->graph, y, -1);
}

/* The weights of all classes: 1 for those beyond the given ones. */
static weft_val class_table(const weft_trainer *t, weft_graph *g, int64_t n_classes)
{
    int64_t given = t->n_class_weights, rest = n_classes - given;
    weft_val part[2];

    part[0] = weft_constant(
        g, &(weft_tensor){.dtype = WEFT_F32, .rank = 1, .dim = {given}, .data = t->class_weights});
    if (rest <= 0)
        return part[0];
    part[1] = weft_broadcast_to(g, weft_scalar(g, 1), 1, &rest);
    return weft_concat(g, 2, part, 0);
}

/* Class numbers, i64, in the shape of the loss's values. */
static weft_val class_numbers(weft_graph *g, weft_val y, int pred_rank)
{
    weft_tensor type;

    if (weft_val_type(g, y, &type))
        return WEFT_NIL;
    if (type.rank > 1 && type.rank == pred_rank)
        y = type.dim[type.rank - 1] == 1 ? weft_squeeze(g, y, 1, (int64_t[]){-1})
                                         : weft_argmax(g, y, -1, NULL); /* one-hot */
    if (weft_val_type(g, y, &type))
        return WEFT_NIL;
    if (wf_is_float(type.dtype))
        y = weft_round(g, y);
    return type.dtype == WEFT_I64 ? y : weft_cast(g, y, WEFT_I64);
}

static weft_val weights_of_classes(const weft_trainer *t, struct wf_bound *b,
                                   const struct wf_built *m, int out)
{
    weft_graph *g = b->graph;
    weft_val table, y, known;
    weft_tensor pred;
    int64_t n;

    if (weft_val_type(g, m->out[out], &pred))
        return WEFT_NIL;
    n = pred.rank > 1 ? pred.dim[pred.rank - 1] : 1;
    n = n < 2 ? 2 : n; /* one output distinguishes two classes */
    n = n < t->n_class_weights ? t->n_class_weights : n;
    table = class_table(t, g, n);
    y = class_numbers(g, wf_bound_label(t, b, out), pred.rank);
    /* A label that is not a class (one that the loss ignores) has weight 1. */
    known = weft_logical_and(g, weft_ge(g, y, wf_const_like(g, 0, y)),
                             weft_lt(g, y, wf_const_like(g, (double)n, y)));
    y = weft_gather(g, table, weft_where(g, known, y, wf_const_like(g, 0, y)), NULL);
    return weft_where(g, known, y, wf_const_like(g, 1, y));
}

weft_val wf_sample_weights(const weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                           bool weighted, int out)
{
    weft_graph *g = b->graph;
    weft_val w = weighted ? b->weight : WEFT_NIL, c;

    if (m != &b->train || !has_classes(t, out))
        return w;
    c = weights_of_classes(t, b, m, out);
    return w.id && !g->st ? weft_mul(g, wf_weight_like(g, w, c), c) : c;
}
