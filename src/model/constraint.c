/* constraint.c - constraints on weights, applied after an update, by Keras' names. */
#include "model/core.h"
#include "weft/ops.h"

static const struct wf_word constraints[] = {
    {"max_norm", "max_value:f=2 axis:l=0"},
    {"min_max_norm", "min_value:f=0 max_value:f=1 rate:f=1 axis:l=0"},
    {"unit_norm", "axis:l=0"},
    {"non_neg", ""},
};
const struct wf_words wf_constraints = {"constraint", constraints, sizeof constraints[0],
                                        WF_COUNT(constraints)};

static weft_status parse(struct wf_arena *arena, const char *text, struct wf_word_args *a)
{
    weft_status st = wf_word_parse(&wf_constraints, arena, text, a);

    if (!st && wf_word_arg(a, "axis")->n > WEFT_MAX_RANK)
        st = wf_err(WEFT_EINVAL, "constraint: more than %d axes", WEFT_MAX_RANK);
    return st;
}

weft_status wf_constraint_check(struct wf_arena *arena, const char *text)
{
    struct wf_word_args a;

    return parse(arena, text, &a);
}

/* w scaled to the norm `wanted` along `axis`, within 1e-7. */
static weft_val with_norm(weft_graph *g, weft_val w, weft_val norm, weft_val wanted)
{
    return weft_mul(g, w, weft_div(g, wanted, weft_add(g, norm, wf_const_like(g, 1e-7, norm))));
}

weft_status wf_constraint_build(weft_graph *g, const char *constraint, weft_val w, weft_val *out)
{
    struct wf_word_args a;
    weft_reduce_opts along = {.size = sizeof along, .keepdims = true};
    const struct wf_attr *axis;
    weft_val norm, kept;
    double min, max, rate;
    weft_status st = weft_graph_status(g);

    if (!st)
        st = parse(&g->arena, constraint, &a);
    if (st)
        return st;
    axis = wf_word_arg(&a, "axis");
    if (a.row == &constraints[3]) {
        *out = weft_relu(g, w);
        return weft_graph_status(g);
    }
    along.n_axes = axis->n;
    for (int i = 0; i < axis->n; i++)
        along.axes[i] = axis->ints[i];
    norm = weft_sqrt(g, weft_sum(g, weft_square(g, w), &along));
    if (a.row == &constraints[2]) {
        *out = with_norm(g, w, norm, weft_ones_like(g, norm));
        return weft_graph_status(g);
    }
    min = a.row == &constraints[1] ? wf_word_arg(&a, "min_value")->f : 0;
    rate = a.row == &constraints[1] ? wf_word_arg(&a, "rate")->f : 1;
    max = wf_word_arg(&a, "max_value")->f;
    kept = weft_clip(g, norm, min, max);
    if (rate != 1)
        kept = weft_add(g, weft_mul(g, kept, wf_const_like(g, rate, kept)),
                        weft_mul(g, norm, wf_const_like(g, 1 - rate, norm)));
    *out = with_norm(g, w, norm, kept);
    return weft_graph_status(g);
}
