/* layers_merge.c - layers that combine several values into one. */
#include "model/core.h"
#include "model/layers.h"

/* ---- element by element ---------------------------------------------------------------------- */

/* Keras' mask of a merge: the union, but none if an input has none. */
static void merge_masks(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val mask = weft_lc_mask(c, 0);

    for (int i = 0; i < weft_lc_n_in(c); i++)
        if (!weft_lc_mask(c, i).id)
            return;
    for (int i = 1; i < weft_lc_n_in(c); i++)
        mask = weft_logical_or(g, mask, weft_lc_mask(c, i));
    weft_lc_out_mask(c, 0, mask);
}

/* Input i with the rank of the largest: axes of 1 follow the batch. */
static weft_val raised(weft_layer_call *c, int i, int rank)
{
    weft_val x = weft_lc_in(c, i);

    for (int r = weft_lc_rank(c, x); r < rank && r > 0; r++)
        x = weft_expand_dims(weft_lc_graph(c), x, 1);
    return x;
}

typedef weft_val pair_fn(weft_graph *g, weft_val a, weft_val b);

static weft_status fold(weft_layer_call *c, pair_fn *pair, weft_val *out)
{
    int n = weft_lc_n_in(c), rank = 0;
    weft_val y;

    for (int i = 0; i < n; i++)
        rank = weft_lc_rank(c, weft_lc_in(c, i)) > rank ? weft_lc_rank(c, weft_lc_in(c, i)) : rank;
    y = raised(c, 0, rank);
    for (int i = 1; i < n; i++)
        y = pair(weft_lc_graph(c), y, raised(c, i, rank));
    merge_masks(c);
    *out = y;
    weft_lc_out(c, 0, y);
    return WEFT_OK;
}

#define MERGE(name, pair)                           \
    weft_status wf_layer_##name(weft_layer_call *c) \
    {                                               \
        weft_val y;                                 \
                                                    \
        return fold(c, pair, &y);                   \
    }

MERGE(add, weft_add)
MERGE(subtract, weft_sub)
MERGE(multiply, weft_mul)
MERGE(maximum, weft_max)
MERGE(minimum, weft_min)

weft_status wf_layer_average(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val y;
    weft_status st = fold(c, weft_add, &y);

    if (!st && !g->st)
        weft_lc_out(c, 0, weft_mul(g, y, wf_const_like(g, 1.0 / weft_lc_n_in(c), y)));
    return st;
}

/* ---- concatenation --------------------------------------------------------------------------- */

/* Masks in the shape of their inputs, joined; then whether any element of the last axis counts. */
static void join_masks(weft_layer_call *c, int axis)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val masks[WF_MAX_IN];
    int n = weft_lc_n_in(c), n_masks = 0;

    for (int i = 0; i < n; i++)
        n_masks += weft_lc_mask(c, i).id != 0;
    if (!n_masks)
        return;
    for (int i = 0; i < n; i++) {
        weft_val m = weft_lc_mask(c, i), x = weft_lc_in(c, i);

        if (!m.id)
            masks[i] = weft_cast(g, weft_ones_like(g, x), WEFT_BOOL);
        else if (weft_lc_rank(c, m) < weft_lc_rank(c, x))
            masks[i] = weft_broadcast_like(g, weft_expand_dims(g, m, -1), x);
        else
            masks[i] = m;
    }
    weft_lc_out_mask(c, 0,
                     weft_any(g, weft_concat(g, n, masks, axis),
                              WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1})));
}

weft_status wf_layer_concatenate(weft_layer_call *c)
{
    weft_val in[WF_MAX_IN];
    int n = weft_lc_n_in(c), axis = (int)weft_lc_int(c, "axis");

    for (int i = 0; i < n; i++)
        in[i] = weft_lc_in(c, i);
    weft_lc_out(c, 0, weft_concat(weft_lc_graph(c), n, in, axis));
    join_masks(c, axis);
    return WEFT_OK;
}

/* ---- dot ------------------------------------------------------------------------------------- */

static weft_val unit(weft_graph *g, weft_val x, int axis)
{
    weft_val norm = weft_norm_l2(
        g, x, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {axis}, .keepdims = true));

    return weft_div(g, x, weft_max(g, norm, wf_const_like(g, 1e-12, norm)));
}

/* Letters for the axes of an operand: the batch, the axis that is summed over, and separate ones
 * for the others. */
static char *letters(char *to, int rank, int summed, char first)
{
    for (int i = 0; i < rank; i++)
        *to++ = i == 0 ? 'a' : i == summed ? 'z' : first++;
    return to;
}

weft_status wf_layer_dot(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x[2] = {weft_lc_in(c, 0), weft_lc_in(c, 1)}, y;
    int64_t axes[2];
    int rank[2], axis[2];
    char equation[64] = "", *p = equation;
    weft_status st = weft_lc_tuple(c, "axes", 2, axes);

    for (int i = 0; i < 2 && !st; i++) {
        rank[i] = weft_lc_rank(c, x[i]);
        axis[i] = wf_lc_axis(c, "axes", axes[i], rank[i]);
        if (axis[i] == 0)
            st = weft_lc_fail(c, WEFT_EINVAL, "cannot sum over the batch");
        else if (axis[i] < 0)
            st = WEFT_ERANGE;
        else if (weft_lc_bool(c, "normalize"))
            x[i] = unit(g, x[i], axis[i]);
    }
    if (st)
        return st;
    p = letters(p, rank[0], axis[0], 'b');
    *p++ = ',';
    p = letters(p, rank[1], axis[1], 'm');
    *p++ = '-';
    *p++ = '>';
    *p++ = 'a';
    for (int i = 0; i < rank[0] - 2; i++)
        *p++ = (char)('b' + i);
    for (int i = 0; i < rank[1] - 2; i++)
        *p++ = (char)('m' + i);
    *p = '\0';
    y = weft_einsum(g, equation, x[0], x[1]);
    if (rank[0] == 2 && rank[1] == 2)
        y = weft_expand_dims(g, y, 1); /* [batch, 1], as in Keras */
    weft_lc_out(c, 0, y);
    return WEFT_OK;
}
