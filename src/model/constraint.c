/* constraint.c - constraints on weights, applied after an update, by Keras' names. */
#include "model/core.h"

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

weft_status wf_constraint_parse(struct wf_arena *arena, const char *constraint, int rank,
                                struct wf_constraint *out)
{
    struct wf_word_args a;
    const struct wf_attr *axis;
    weft_status st = parse(arena, constraint, &a);

    if (st)
        return st;
    *out = (struct wf_constraint){.kind = WF_CONSTRAINT_NORM, .max = 1, .rate = 1};
    if (a.row == &constraints[3]) {
        out->kind = WF_CONSTRAINT_NON_NEG;
        return WEFT_OK;
    }
    if (a.row == &constraints[2])
        out->kind = WF_CONSTRAINT_UNIT;
    else
        out->max = wf_word_arg(&a, "max_value")->f;
    if (a.row == &constraints[1]) {
        out->min = wf_word_arg(&a, "min_value")->f;
        out->rate = wf_word_arg(&a, "rate")->f;
    }
    axis = wf_word_arg(&a, "axis");
    for (int i = 0; i < axis->n; i++) {
        int64_t k = axis->ints[i] < 0 ? axis->ints[i] + rank : axis->ints[i];

        if (k < 0 || k >= rank)
            return wf_err(WEFT_ERANGE, "constraint: axis %lld of a weight of rank %d",
                          (long long)axis->ints[i], rank);
        out->axes[out->n_axes++] = k;
    }
    return WEFT_OK;
}
