/* autocast.c - the policy that inserts casts while a graph is built. */
#include "graph/graph.h"
#include "weft/autocast.h"

static bool is_half(weft_dtype t)
{
    return t == WEFT_BF16 || t == WEFT_F16;
}

static weft_val cast_to(weft_graph *g, weft_val x, weft_dtype t)
{
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", t)};

    return wf_build(g, WF_OP_cast, 1, &x, 1, sets);
}

/* A variable of f32, or its result in another shape: a bias. */
static bool is_variable(const weft_graph *g, weft_val v)
{
    const struct wf_node *n = wf_val_node(g, v);

    while (n->op->flags & WF_VIEW)
        n = wf_val_node(g, (weft_val){n->in[0]});
    return n->var >= 0;
}

/* Operands of an op that computes in the type of its operands, halves and f32: variables are cast
 * to the halves' type, as a bias is, so that what a layer computes stays a half; other values of
 * f32 have been computed in it for a reason, and halves are cast to f32. */
static bool halves_win(const weft_graph *g, int n_in, const weft_val *in)
{
    for (int i = 0; i < n_in; i++)
        if (wf_val_type_of(g, in[i])->dtype == WEFT_F32 && !is_variable(g, in[i]))
            return false;
    return true;
}

void wf_autocast(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in, weft_val *out)
{
    enum wf_cast class = op->cast;
    weft_dtype half = g->autocast; /* for products: that of an operand which is a half already */
    bool any_half = false, any_full = false, to_half;

    for (int i = 0; i < n_in; i++) {
        weft_dtype t = wf_val_type_of(g, in[i])->dtype;

        out[i] = in[i];
        if (is_half(t))
            half = t;
        any_half |= is_half(t);
        any_full |= t == WEFT_F32;
    }
    to_half = class == WF_CAST_HALF ||
              (class == WF_CAST_FOLLOW && any_half && any_full && halves_win(g, n_in, in));
    for (int i = 0; i < n_in && class != WF_CAST_LEAVE; i++) {
        weft_dtype t = wf_val_type_of(g, in[i])->dtype;

        if (to_half && t == WEFT_F32)
            out[i] = cast_to(g, in[i], half);
        else if (is_half(t) && !to_half &&
                 (class == WF_CAST_FULL || (class == WF_CAST_FOLLOW && any_half && any_full)))
            out[i] = cast_to(g, in[i], WEFT_F32);
    }
}

void weft_autocast_push(weft_graph *g, weft_dtype dtype)
{
    if (dtype != WEFT_F32 && !is_half(dtype)) {
        wf_graph_fail(
            g, wf_err(WEFT_EDTYPE, "autocast: %s is not f32, f16 or bf16", weft_dtype_name(dtype)));
        return;
    }
    if (g->n_autocast == WF_COUNT(g->autocasts)) {
        wf_graph_fail(g, wf_err(WEFT_ELIMIT, "autocast: more than %d policies are open",
                                WF_COUNT(g->autocasts)));
        return;
    }
    g->autocasts[g->n_autocast++] = g->autocast;
    g->autocast = dtype;
}

void weft_autocast_pop(weft_graph *g)
{
    if (!g->n_autocast) {
        wf_graph_fail(g, wf_err(WEFT_ESTATE, "weft_autocast_pop: no policy is open"));
        return;
    }
    g->autocast = g->autocasts[--g->n_autocast];
}
