/* rules_index.c - drawing ops that find elements by index. */
#include "random/rules.h"

bool draw_gather(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, ANYTHING, 1, 5)};
    const struct wf_type *t;
    int64_t dim[3];
    int axis, batch_dims = 0, rank;

    if (!in[0].id)
        return false;
    t = gen_type(g, in[0]);
    axis = (int)draw_int(&g->d, 0, t->rank - 1);
    if (axis > 0 && draw_one_in(&g->d, 3)) {
        batch_dims = 1;
        dim[0] = t->dim[0];
    }
    rank = batch_dims + (int)draw_int(&g->d, 0, 2);
    for (int i = batch_dims; i < rank; i++)
        dim[i] = draw_int(&g->d, 1, 4);
    in[1] = gen_ids(g, 0, t->dim[axis] - 1, rank, dim);
    return in[1].id && gen_op(g, op, 2, in, "axis=%d batch_dims=%d", axis, batch_dims).id;
}

bool draw_gather_nd(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, ANYTHING, 1, 5)};
    int64_t dim[2] = {draw_int(&g->d, 1, 5), 0}, least = 1000;

    if (!in[0].id)
        return false;
    dim[1] = draw_int(&g->d, 1, gen_type(g, in[0])->rank);
    for (int i = 0; i < dim[1]; i++)
        if (gen_type(g, in[0])->dim[i] < least)
            least = gen_type(g, in[0])->dim[i];
    in[1] = gen_ids(g, 0, least - 1, 2, dim);
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_scatter_nd(struct gen *g, const char *op)
{
    int64_t n = draw_int(&g->d, 1, 6), a = draw_int(&g->d, 1, 4), b = draw_int(&g->d, 1, 4);
    weft_val in[3] = {gen_ids(g, 0, a - 1, 2, (int64_t[]){n, 1}),
                      gen_typed(g, gen_float(g), 2, (int64_t[]){n, b}), WEFT_NIL};

    if (!in[0].id || !in[1].id)
        return false;
    if (draw_one_in(&g->d, 2))
        in[2] = gen_typed(g, gen_type(g, in[1])->dtype, 2, (int64_t[]){a, b});
    if (in[2].id)
        return gen_op(g, op, 3, in, "%s", "").id;
    return gen_op(g, op, 2, in, "shape=[%lld,%lld]", (long long)a, (long long)b).id;
}

bool draw_scatter(struct gen *g, const char *op)
{
    int64_t rows = draw_int(&g->d, 1, 6), dim[5];
    weft_val in[3] = {WEFT_NIL, gen_any(g, NUMBERS, 1, 4), WEFT_NIL};
    struct wf_type t;

    if (!in[1].id)
        return false;
    t = *gen_type(g, in[1]);
    in[0] = gen_ids(g, 0, rows - 1, 1, t.dim);
    if (draw_one_in(&g->d, 2)) {
        memcpy(dim, t.dim, sizeof dim);
        dim[0] = rows;
        in[2] = gen_typed(g, t.dtype, t.rank, dim);
    }
    if (!in[0].id)
        return false;
    if (in[2].id)
        return gen_op(g, op, 3, in, "%s", "").id;
    return gen_op(g, op, 2, in, "rows=%lld", (long long)rows).id;
}

bool draw_take_along(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, ANYTHING, 1, 4)};
    struct wf_type t;
    int64_t n;
    int axis;

    if (!in[0].id)
        return false;
    t = *gen_type(g, in[0]);
    axis = (int)draw_int(&g->d, 0, t.rank - 1);
    n = t.dim[axis];
    t.dim[axis] = draw_int(&g->d, 1, 5);
    in[1] = gen_ids(g, 0, n - 1, t.rank, t.dim);
    return in[1].id &&
           gen_op(g, op, 2, in, "axis=%d", draw_one_in(&g->d, 2) ? axis : axis - t.rank).id;
}

bool draw_one_hot(struct gen *g, const char *op)
{
    int64_t depth = draw_int(&g->d, 1, 6), dim[2] = {gen_size(g), gen_size(g)};
    int rank = (int)draw_int(&g->d, 0, 2);
    bool outside = draw_one_in(&g->d, 3);
    weft_val ids = gen_ids(g, outside ? -2 : 0, depth - (outside ? 0 : 1), rank, dim);

    return ids.id &&
           gen_op(g, op, 1, &ids, "depth=%lld on=%g off=%g axis=%d dtype=%s allow_outside=%s",
                  (long long)depth, draw_one_in(&g->d, 3) ? 0.75 : 1.0,
                  draw_one_in(&g->d, 3) ? -0.5 : 0.0, (int)draw_int(&g->d, -1, rank),
                  weft_dtype_name(gen_float(g)), outside ? "true" : "false")
               .id;
}

bool draw_sorted(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, NUMBERS, 1, 4);
    int rank = x.id ? gen_type(g, x)->rank : 0;

    if (!rank)
        return false;
    if (!strcmp(op, "sort"))
        return gen_op(g, op, 1, &x, "axis=%d descending=%s", (int)draw_int(&g->d, -rank, rank - 1),
                      draw_one_in(&g->d, 2) ? "true" : "false")
            .id;
    if (gen_type(g, x)->dim[rank - 1] == 0)
        return false;
    return gen_op(g, op, 1, &x, "k=%lld sorted=%s",
                  (long long)draw_int(&g->d, 1, gen_type(g, x)->dim[rank - 1]),
                  draw_one_in(&g->d, 2) ? "true" : "false")
        .id;
}

/* A table: mostly a variable that is only looked up. */
static weft_val table(struct gen *g)
{
    int64_t dim[2] = {draw_int(&g->d, 1, 9), draw_int(&g->d, 1, 6)};
    weft_val v = gen_any(g, FLOATS, 2, 2);

    if (v.id && gen_type(g, v)->dim[0] > 0 && draw_one_in(&g->d, 2))
        return v;
    v = gen_variable(g, WEFT_F32, 2, dim, false);
    return v.id && gen_take(g, v) ? v : WEFT_NIL;
}

bool draw_embedding(struct gen *g, const char *op)
{
    weft_val in[2] = {table(g)};
    int64_t dim[2] = {gen_size(g), draw_int(&g->d, 1, 3)};

    if (!in[0].id)
        return false;
    in[1] = gen_ids(g, 0, gen_type(g, in[0])->dim[0] - 1, (int)draw_int(&g->d, 0, 2), dim);
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

/* Offsets of bags over n elements: ascending, from 0 to n. */
static weft_val offsets(struct gen *g, int64_t n)
{
    int64_t bags = draw_int(&g->d, 1, 4), dim = bags + 1;
    weft_val v = gen_ids_typed(g, WEFT_I64, 0, n, true, 1, &dim);
    struct graph_case *c = g->c;

    if (!v.id)
        return v;
    for (int s = 0; s < c->n_sets; s++)
        for (int i = 0; i < c->n_feeds; i++)
            if (c->feed[i].id == v.id)
                for (int64_t k = 0; k <= bags; k++)
                    ((int64_t *)c->feeds[s][i].data)[k] =
                        k == 0      ? 0
                        : k == bags ? n
                                    : ((int64_t *)c->feeds[s][i].data)[k] % (n + 1);
    return v;
}

bool draw_bag(struct gen *g, const char *op)
{
    int64_t n = draw_int(&g->d, 0, 6);
    weft_val in[4] = {table(g)};
    char word[32];

    if (!in[0].id)
        return false;
    in[1] = gen_ids(g, 0, gen_type(g, in[0])->dim[0] - 1, 1, &n);
    in[2] = offsets(g, n);
    if (draw_one_in(&g->d, 2))
        in[3] = gen_typed(g, gen_type(g, in[0])->dtype, 1, &n);
    if (!in[1].id || !in[2].id)
        return false;
    return gen_op(g, op, in[3].id ? 4 : 3, in, "combiner=%s",
                  draw_word(&g->d, "sum|mean|sqrtn", word))
        .id;
}

bool draw_bag_part(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 1, 3), in[4] = {{0}};
    int64_t n, dim[4];
    weft_dtype t;
    char word[32];
    int rank;

    if (!x.id)
        return false;
    rank = gen_type(g, x)->rank;
    n = gen_type(g, x)->dim[0];
    t = gen_type(g, x)->dtype;
    memcpy(dim, gen_type(g, x)->dim, sizeof dim);
    in[1] = offsets(g, n);
    if (!in[1].id)
        return false;
    draw_word(&g->d, "sum|mean|sqrtn", word);
    if (!strcmp(op, "bag_reduce")) {
        in[0] = x;
        in[2] = draw_one_in(&g->d, 2) ? gen_typed(g, t, 1, &n) : WEFT_NIL;
        return gen_op(g, op, in[2].id ? 3 : 2, in, "combiner=%s", word).id;
    }
    if (!strcmp(op, "bag_spread")) {
        dim[0] = gen_type(g, in[1])->dim[0] - 1;
        in[0] = gen_typed(g, t, rank, dim);
        in[2] = x;
        in[3] = draw_one_in(&g->d, 2) ? gen_typed(g, t, 1, &n) : WEFT_NIL;
        return in[0].id && gen_op(g, op, in[3].id ? 4 : 3, in, "combiner=%s", word).id;
    }
    in[0] = in[1];
    in[1] = gen_typed(g, t, 1, &n);
    if (!in[1].id)
        return false;
    if (!strcmp(op, "bag_inverse"))
        return gen_op(g, op, 2, in, "combiner=%s", word).id;
    return gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_offsets(struct gen *g, const char *op)
{
    int64_t n = draw_int(&g->d, 1, 6), bags = draw_int(&g->d, 1, 5);
    weft_val in[2] = {
        gen_ids_typed(g, draw_one_in(&g->d, 2) ? WEFT_I32 : WEFT_I64, 0, bags - 1, true, 1, &n),
        WEFT_NIL};

    if (!in[0].id)
        return false;
    if (draw_one_in(&g->d, 2))
        in[1] = gen_typed(g, WEFT_F32, 1, &bags);
    if (in[1].id)
        return gen_op(g, op, 2, in, "%s", "").id;
    return gen_op(g, op, 1, in, "bags=%lld", (long long)bags).id;
}
