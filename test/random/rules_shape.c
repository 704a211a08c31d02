/* rules_shape.c - draws ops that move elements or change the shape. */
#include "random/rules.h"

const char *rule_axes(struct gen *g, int rank, char buf[160])
{
    int64_t axes[WEFT_MAX_RANK];
    int n = 0;

    for (int i = 0; i < rank; i++)
        if (draw_one_in(&g->d, 2))
            axes[n++] = draw_one_in(&g->d, 4) ? i - rank : i;
    if (n > 1 && draw_one_in(&g->d, 4)) {
        int64_t t = axes[0];

        axes[0] = axes[n - 1];
        axes[n - 1] = t;
    }
    return rule_list(n, axes, buf);
}

bool draw_view(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 0, 8);

    return x.id && gen_op(g, op, 1, &x, "%s", "").id;
}

static bool starts_with_batch(const struct gen *g, const struct wf_type *t)
{
    return g->batch[0] && t->rank > 0 && t->dim[0] == g->batch[0];
}

/* The prime factors of the sizes, redistributed. */
static int reshaped(struct gen *g, const struct wf_type *t, int64_t *dim)
{
    int from = starts_with_batch(g, t) ? 1 : 0, rank = (int)draw_int(&g->d, from, 4 + from);
    int64_t n = 1;

    for (int i = from; i < t->rank; i++)
        n *= t->dim[i];
    if (from)
        dim[0] = -1;
    for (int i = from; i < rank; i++)
        dim[i] = 1;
    if (rank == from)
        return n == 1 ? rank : -1;
    for (int64_t f = 2; n > 1; f++)
        while (n % f == 0) {
            dim[draw_int(&g->d, from, rank - 1)] *= f;
            n /= f;
        }
    if (n == 0)
        dim[draw_int(&g->d, from, rank - 1)] = 0;
    else if (!from && draw_one_in(&g->d, 3))
        dim[draw_int(&g->d, 0, rank - 1)] = -1;
    return rank;
}

bool draw_reshape(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, ANYTHING, 0, 8)};
    int64_t dim[WEFT_MAX_RANK];
    char buf[160];
    int rank = in[0].id ? reshaped(g, gen_type(g, in[0]), dim) : -1;

    if (rank < 0)
        return false;
    if (!strcmp(op, "reshape"))
        return gen_op(g, op, 1, in, "shape=%s", rule_list(rank, dim, buf)).id;
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0)
            return false;
    in[1] = gen_typed(g, WEFT_F32, rank, dim);
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_flatten(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 8);

    return x.id &&
           gen_op(g, op, 1, &x, "axis=%d", (int)draw_int(&g->d, 0, gen_type(g, x)->rank - 1)).id;
}

bool draw_expand(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 0, 5);
    int64_t axes[2];
    char buf[160];

    if (!x.id)
        return false;
    if (!strcmp(op, "squeeze")) {
        int n = 0;

        for (int i = 0; i < gen_type(g, x)->rank && n < 2; i++)
            if (gen_type(g, x)->dim[i] == 1)
                axes[n++] = i;
        if (draw_one_in(&g->d, 4) && !starts_with_batch(g, gen_type(g, x)))
            return gen_op(g, op, 1, &x, "%s", "").id;
        return n && gen_op(g, op, 1, &x, "axes=%s", rule_list(n, axes, buf)).id;
    }
    axes[0] = draw_int(&g->d, 0, gen_type(g, x)->rank);
    axes[1] = -1;
    return gen_op(g, op, 1, &x, "axes=%s",
                  rule_list(axes[0] < gen_type(g, x)->rank && draw_one_in(&g->d, 3) ? 2 : 1, axes,
                            buf))
        .id;
}

bool draw_transpose(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 0, 6);
    int64_t perm[WEFT_MAX_RANK];
    char buf[160];
    int rank;

    if (!x.id)
        return false;
    rank = gen_type(g, x)->rank;
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int64_t k = draw_int(&g->d, 0, i), t = perm[i];

        perm[i] = perm[k];
        perm[k] = t;
    }
    return gen_op(g, op, 1, &x, "perm=%s", rule_list(draw_one_in(&g->d, 6) ? 0 : rank, perm, buf))
        .id;
}

bool draw_concat(struct gen *g, const char *op)
{
    weft_val in[5] = {gen_any(g, ANYTHING, 1, 6)};
    int n = (int)draw_int(&g->d, 1, 4), axis;
    struct wf_type t;

    if (!in[0].id)
        return false;
    t = *gen_type(g, in[0]);
    axis = (int)draw_int(&g->d, 0, t.rank - 1);
    for (int i = 1; i < n; i++) {
        if (!strcmp(op, "concat") && draw_one_in(&g->d, 2) &&
            !(axis == 0 && starts_with_batch(g, &t)))
            t.dim[axis] = gen_size(g);
        in[i] = draw_one_in(&g->d, 6) && t.dim[axis] == gen_type(g, in[0])->dim[axis]
                    ? in[0]
                    : gen_typed(g, t.dtype, t.rank, t.dim);
        if (!in[i].id)
            return false;
    }
    return gen_op(g, op, n, in, "axis=%d", draw_one_in(&g->d, 4) ? axis - t.rank : axis).id;
}

/* (the result of joining two values, those values) */
bool draw_concat_part(struct gen *g, const char *op)
{
    weft_val in[3] = {WEFT_NIL, gen_any(g, ANYTHING, 1, 5), WEFT_NIL};
    struct wf_type t;
    int axis;

    if (!in[1].id)
        return false;
    t = *gen_type(g, in[1]);
    axis = (int)draw_int(&g->d, 0, t.rank - 1);
    if (axis == 0 && starts_with_batch(g, &t))
        return false;
    in[2] = gen_like(g, in[1]);
    t.dim[axis] *= 2;
    in[0] = gen_typed(g, t.dtype, t.rank, t.dim);
    return in[0].id && in[2].id &&
           gen_op(g, op, 3, in, "index=%d axis=%d", (int)draw_int(&g->d, 0, 1), axis).id;
}

bool draw_split(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 6);
    const struct wf_type *t;
    int64_t a, sizes[2];
    char buf[160];
    int axis;

    if (!x.id)
        return false;
    t = gen_type(g, x);
    axis = (int)draw_int(&g->d, 0, t->rank - 1);
    a = t->dim[axis];
    if (!strcmp(op, "unstack"))
        return a > 0 && a <= 9 && gen_op(g, op, 1, &x, "n=%lld axis=%d", (long long)a, axis).id;
    if (a > 1 && draw_one_in(&g->d, 2)) {
        sizes[0] = draw_int(&g->d, 0, a);
        sizes[1] = a - sizes[0];
        return gen_op(g, op, 1, &x, "n=2 axis=%d sizes=%s", axis, rule_list(2, sizes, buf)).id;
    }
    return gen_op(g, op, 1, &x, "n=%d axis=%d", a % 2 ? a % 3 ? 1 : 3 : 2, axis).id;
}

bool draw_slice(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 6);
    int64_t begin[WEFT_MAX_RANK], size[WEFT_MAX_RANK];
    char a[160], b[160];
    const struct wf_type *t;

    if (!x.id)
        return false;
    t = gen_type(g, x);
    for (int i = 0; i < t->rank; i++) {
        begin[i] = draw_one_in(&g->d, 2) ? 0 : draw_int(&g->d, 0, t->dim[i]);
        size[i] = draw_one_in(&g->d, 2)
                      ? -1
                      : draw_int(&g->d, t->dim[i] > begin[i] ? 1 : 0, t->dim[i] - begin[i]);
        if (i == 0 && starts_with_batch(g, t)) {
            begin[i] = 0;
            size[i] = -1;
        }
    }
    return gen_op(g, op, 1, &x, "begin=%s size=%s", rule_list(t->rank, begin, a),
                  rule_list(t->rank, size, b))
        .id;
}

bool draw_strided(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 6);
    int64_t begin[WEFT_MAX_RANK], end[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
    char a[160], b[160], c[160];
    const struct wf_type *t;
    int n;

    if (!x.id)
        return false;
    t = gen_type(g, x);
    n = (int)draw_int(&g->d, 1, t->rank);
    for (int i = 0; i < n; i++) {
        begin[i] = draw_int(&g->d, -t->dim[i] - 1, t->dim[i]);
        end[i] = draw_int(&g->d, -t->dim[i] - 1, t->dim[i] + 1);
        stride[i] = draw_one_in(&g->d, 3) ? draw_int(&g->d, -3, -1) : draw_int(&g->d, 1, 3);
    }
    return gen_op(g, op, 1, &x, "begin=%s end=%s strides=%s begin_mask=%d end_mask=%d",
                  rule_list(n, begin, a), rule_list(n, end, b),
                  rule_list(draw_one_in(&g->d, 4) ? 0 : n, stride, c), (int)draw_int(&g->d, 0, 7),
                  (int)draw_int(&g->d, 0, 7))
        .id;
}

bool draw_pad(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 5);
    int64_t pad[2 * WEFT_MAX_RANK];
    char a[160], mode[32];
    int64_t most = 1;

    if (!x.id)
        return false;
    for (int i = 0; i < gen_type(g, x)->rank; i++) {
        if (i == 0 && starts_with_batch(g, gen_type(g, x)))
            most = 0;
        else
            most = draw_one_in(&g->d, 3) ? 0 : gen_type(g, x)->dim[i] > 2 ? 2 : 1;
        pad[2 * i] = draw_int(&g->d, 0, most);
        pad[2 * i + 1] = draw_int(&g->d, 0, most);
    }
    draw_word(&g->d, "constant|constant|reflect|symmetric", mode);
    return gen_op(g, op, 1, &x, "paddings=%s mode=%s value=%d",
                  rule_list(2 * gen_type(g, x)->rank, pad, a), mode,
                  strcmp(mode, "constant") ? 0 : (int)draw_int(&g->d, 0, 2))
        .id;
}

bool draw_tile(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 5);
    int64_t n[WEFT_MAX_RANK];
    char a[160];

    if (!x.id || wf_type_count(gen_type(g, x)) > 500)
        return false;
    for (int i = 0; i < gen_type(g, x)->rank; i++)
        n[i] = draw_one_in(&g->d, 2) ? 1 : draw_int(&g->d, 1, 3);
    if (starts_with_batch(g, gen_type(g, x)))
        n[0] = 1;
    return gen_op(g, op, 1, &x, "repeats=%s", rule_list(gen_type(g, x)->rank, n, a)).id;
}

bool draw_axes(struct gen *g, const char *op) /* reverse */
{
    weft_val x = gen_any(g, ANYTHING, 1, 6);
    char a[160];

    return x.id && gen_op(g, op, 1, &x, "axes=%s", rule_axes(g, gen_type(g, x)->rank, a)).id;
}

/* x with some sizes of 1, and the shape it broadcasts to. */
bool draw_broadcast(struct gen *g, const char *op)
{
    weft_val in[2] = {WEFT_NIL, gen_any(g, ANYTHING, 0, 6)};
    char a[160];

    if (!in[1].id)
        return false;
    in[0] = gen_spread(g, gen_type(g, in[1])->dtype, in[1]);
    if (!in[0].id)
        return false;
    if (!strcmp(op, "broadcast_like"))
        return gen_op(g, op, 2, in, "%s", "").id;
    return !starts_with_batch(g, gen_type(g, in[1])) &&
           gen_op(g, op, 1, in, "shape=%s",
                  rule_list(gen_type(g, in[1])->rank, gen_type(g, in[1])->dim, a))
               .id;
}

bool draw_like(struct gen *g, const char *op) /* zeros_like, ones_like */
{
    weft_val x = gen_any(g, ANYTHING, 0, 8);

    return x.id && gen_op(g, op, 1, &x, "%s", "").id;
}

bool draw_full(struct gen *g, const char *op)
{
    int64_t dim[3] = {gen_size(g), gen_size(g), gen_size(g)};
    char a[160];

    return gen_op(g, op, 0, NULL, "shape=%s value=%g dtype=%s",
                  rule_list((int)draw_int(&g->d, 0, 3), dim, a), (double)draw_int(&g->d, -1, 2),
                  weft_dtype_name(gen_float(g)))
        .id;
}

bool draw_split_last(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, ANYTHING, 1, 5);
    int64_t n;

    if (!x.id)
        return false;
    n = gen_type(g, x)->dim[gen_type(g, x)->rank - 1];
    if (n == 0)
        return false;
    n = n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : n;
    return gen_op(g, op, 1, &x, "%s=%lld", draw_one_in(&g->d, 2) ? "parts" : "size", (long long)n)
        .id;
}
