/* rules_reduce.c - drawing reductions, softmax, normalizations, losses. */
#include "random/rules.h"

static const char *yes_no(struct gen *g)
{
    return draw_one_in(&g->d, 2) ? "true" : "false";
}

bool draw_reduce(struct gen *g, const char *op)
{
    static const char *const any_number[] = {"sum", "reduce_max", "reduce_min", "prod"};
    unsigned kinds = FLOATS;
    weft_val x;
    char a[160];

    for (int i = 0; i < WF_COUNT(any_number); i++)
        if (!strcmp(op, any_number[i]))
            kinds = NUMBERS;
    x = gen_any(g, kinds, 0, 8);
    return x.id && gen_op(g, op, 1, &x, "axes=%s keepdims=%s",
                          rule_axes(g, gen_type(g, x)->rank, a), yes_no(g))
                       .id;
}

bool draw_reduce_bool(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, BOOLS, 0, 8);
    char a[160];

    return x.id && gen_op(g, op, 1, &x, "axes=%s keepdims=%s",
                          rule_axes(g, gen_type(g, x)->rank, a), yes_no(g))
                       .id;
}

static int some_axis(struct gen *g, weft_val x)
{
    int rank = gen_type(g, x)->rank;

    return (int)draw_int(&g->d, -rank, rank - 1);
}

bool draw_arg(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, NUMBERS, 1, 8);

    return x.id && gen_op(g, op, 1, &x, "axis=%d keepdims=%s", some_axis(g, x), yes_no(g)).id;
}

bool draw_cumsum(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, NUMBERS, 1, 8);

    return x.id && gen_op(g, op, 1, &x, "axis=%d exclusive=%s reverse=%s", some_axis(g, x),
                          yes_no(g), yes_no(g))
                       .id;
}

bool draw_segment_sum(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, NUMBERS, 1, 6)};
    int64_t n = draw_int(&g->d, 1, 5);

    if (!in[0].id)
        return false;
    in[1] = gen_ids(g, 0, n - 1, 1, gen_type(g, in[0])->dim);
    return in[1].id && gen_op(g, op, 2, in, "n_segments=%lld", (long long)n).id;
}

bool draw_reduce_to_like(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, NUMBERS, 0, 6)};

    if (!in[0].id)
        return false;
    in[1] = gen_spread(g, gen_type(g, in[0])->dtype, in[0]);
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_size_of(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 0, 6);
    char a[160], t[32];

    return x.id && gen_op(g, op, 1, &x, "axes=%s dtype=%s", rule_axes(g, gen_type(g, x)->rank, a),
                          draw_word(&g->d, "f32|f32|i32|f64", t))
                       .id;
}

bool draw_softmax(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 1, 6);

    return x.id && gen_op(g, op, 1, &x, "axis=%d", some_axis(g, x)).id;
}

bool draw_masked_softmax(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 2, 4), WEFT_NIL};

    if (!in[0].id)
        return false;
    if (!draw_one_in(&g->d, 3))
        in[1] = gen_spread(g, draw_one_in(&g->d, 2) ? WEFT_BOOL : gen_type(g, in[0])->dtype, in[0]);
    return gen_op(g, op, in[1].id ? 2 : 1, in, "causal=%s", yes_no(g)).id;
}

/* batch_norm, layer_norm, rms_norm, group_norm: scale and offset may be absent. */
bool draw_norm(struct gen *g, const char *op)
{
    weft_val in[3] = {gen_any(g, FLOATS, 2, 4), WEFT_NIL, WEFT_NIL};
    struct wf_type t;
    char attrs[96] = "";
    int n_axes = 1, n_in = strcmp(op, "rms_norm") ? 3 : 2;

    if (!in[0].id || wf_type_count(gen_type(g, in[0])) == 0)
        return false;
    t = *gen_type(g, in[0]);
    if (!strcmp(op, "layer_norm") || !strcmp(op, "rms_norm")) {
        n_axes = (int)draw_int(&g->d, 1, t.rank - 1);
        snprintf(attrs, sizeof attrs, "n_axes=%d", n_axes);
    } else if (!strcmp(op, "group_norm")) {
        int64_t c = t.dim[t.rank - 1];

        snprintf(attrs, sizeof attrs, "groups=%d",
                 draw_one_in(&g->d, 3) ? -1
                 : c % 2 == 0          ? 2
                 : c % 3 == 0          ? 3
                                       : 1);
    }
    for (int i = 1; i < n_in; i++)
        if (!draw_one_in(&g->d, 3))
            in[i] = gen_typed(g, t.dtype, n_axes, t.dim + t.rank - n_axes);
    return gen_op(g, op, n_in, in, "%s epsilon=%g", attrs, draw_one_in(&g->d, 2) ? 0.01 : 0.001).id;
}

bool draw_xent(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 1, 5)};
    const struct wf_type *t;

    if (!in[0].id)
        return false;
    t = gen_type(g, in[0]);
    if (strcmp(op, "sparse_softmax_xent")) {
        in[1] = gen_like(g, in[0]);
        return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
    }
    in[1] = gen_ids(g, 0, t->dim[t->rank - 1] - 1, t->rank - 1, t->dim);
    if (!in[1].id)
        return false;
    if (draw_one_in(&g->d, 3))
        return gen_op(g, op, 2, in, "ignore=true ignore_index=%d", (int)draw_int(&g->d, 0, 2)).id;
    return gen_op(g, op, 2, in, "scale=%g", draw_one_in(&g->d, 4) ? 0.5 : 1).id;
}

bool draw_global_norm(struct gen *g, const char *op)
{
    weft_val in[4];
    int n = (int)draw_int(&g->d, 1, 4);

    for (int i = 0; i < n; i++) {
        in[i] = gen_any(g, FLOATS, 0, 6);
        if (!in[i].id)
            return false;
    }
    return gen_op(g, op, n, in, "%s", "").id;
}
