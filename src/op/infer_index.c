/* infer_index.c - shape rules of ops that find elements by index. */
#include "op/infer.h"
#include "op/shape.h"

static weft_status check_index_type(const struct wf_infer *r, int operand, const char *what)
{
    if (!wf_is_int(r->in[operand].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "%s must be integers, not %s", what,
                            weft_dtype_name(r->in[operand].dtype));
    return WEFT_OK;
}

/* Whether sizes [from, from + n) of a and [at, at + n) of b are equal. */
static weft_status check_same(const struct wf_infer *r, const struct wf_type *a, int from,
                              const struct wf_type *b, int at, int n, const char *what)
{
    int64_t unused;

    for (int i = 0; i < n; i++) {
        weft_status st = wf_same_dim(r, a->dim[from + i], b->dim[at + i], what, &unused);

        if (st)
            return st;
    }
    return WEFT_OK;
}

/* A value to be summed must be numeric. */
static weft_status check_number(const struct wf_infer *r, int operand)
{
    weft_dtype t = r->in[operand].dtype;

    if (!wf_is_float(t) && !wf_is_int(t))
        return wf_infer_err(r, WEFT_EDTYPE, "%s values cannot be summed", weft_dtype_name(t));
    return WEFT_OK;
}

static weft_status check_dy(struct wf_infer *r, int dy, const struct wf_type *t)
{
    if (r->in[dy].rank != t->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "operand %d must have rank %d", dy, t->rank);
    return check_same(r, &r->in[dy], 0, t, 0, t->rank,
                      "sizes of the addends and of their target positions");
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* x[:axis] + indices[batch_dims:] + x[axis+1:] */
static weft_status gathered(struct wf_infer *r, int x_at, int i_at, struct wf_type *out)
{
    const struct wf_type *x = &r->in[x_at], *ix = &r->in[i_at];
    int64_t b = wf_in_int(r, "batch_dims");
    struct wf_type t = {.dtype = x->dtype};
    int axis;
    weft_status st = check_index_type(r, i_at, "the indices");

    if (!st)
        st = wf_axis(r, wf_in_int(r, "axis"), x->rank, &axis);
    if (st)
        return st;
    if (b < 0 || b > axis || b > ix->rank)
        return wf_infer_err(r, WEFT_ERANGE, "batch_dims %lld with axis %d and indices of rank %d",
                            (long long)b, axis, ix->rank);
    st = check_same(r, x, 0, ix, 0, (int)b, "batch sizes");
    if (st)
        return st;
    if (x->rank - 1 + ix->rank - (int)b > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "the result's rank is above %d", WEFT_MAX_RANK);
    for (int i = 0; i < axis; i++)
        t.dim[t.rank++] = x->dim[i];
    for (int i = (int)b; i < ix->rank; i++)
        t.dim[t.rank++] = ix->dim[i];
    for (int i = axis + 1; i < x->rank; i++)
        t.dim[t.rank++] = x->dim[i];
    *out = t;
    return WEFT_OK;
}

/* dx of (dy, indices, like x), where y has type t. */
static weft_status grad_of_rows(struct wf_infer *r, const struct wf_type *t)
{
    weft_status st = check_dy(r, 0, t);

    if (!st)
        st = check_number(r, 0);
    return st ? st : wf_infer_out_like(r, 0, 2, 0);
}

weft_status wf_infer_gather(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = gathered(r, 0, 1, &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_gather_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = gathered(r, 2, 1, &t);

    return st ? st : grad_of_rows(r, &t);
}

/* indices[:-1] + x[depth:] */
static weft_status gathered_nd(struct wf_infer *r, const struct wf_type *x, int i_at,
                               struct wf_type *out)
{
    const struct wf_type *ix = &r->in[i_at];
    struct wf_type t = {.dtype = x->dtype};
    int64_t depth;
    weft_status st = check_index_type(r, i_at, "the indices");

    if (st)
        return st;
    if (ix->rank < 1)
        return wf_infer_err(r, WEFT_ESHAPE,
                            "the indices need a last axis with one number per indexed axis");
    depth = ix->dim[ix->rank - 1];
    if (depth < 0 || depth > x->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "the indices' last size must be known and at most %d",
                            x->rank);
    if (ix->rank - 1 + x->rank - depth > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "the result's rank is above %d", WEFT_MAX_RANK);
    for (int i = 0; i < ix->rank - 1; i++)
        t.dim[t.rank++] = ix->dim[i];
    for (int i = (int)depth; i < x->rank; i++)
        t.dim[t.rank++] = x->dim[i];
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_gather_nd(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = gathered_nd(r, &r->in[0], 1, &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

/* ---- scatter --------------------------------------------------------------------------------- */

static bool has_like(const struct wf_infer *r)
{
    return r->n_in > 2 && r->in[2].dtype != WEFT_NONE;
}

weft_status wf_infer_scatter_nd_add(struct wf_infer *r)
{
    struct wf_type to, t;
    weft_status st = check_number(r, 1);

    if (st)
        return st;
    if (has_like(r)) {
        to = r->in[2];
    } else {
        st = wf_infer_sizes(r, r->in[1].dtype, &to);
        if (st)
            return st;
    }
    to.dtype = r->in[1].dtype;
    st = gathered_nd(r, &to, 0, &t);
    if (!st)
        st = check_dy(r, 1, &t);
    return st ? st : wf_infer_out(r, 0, &to);
}

weft_status wf_infer_scatter_add(struct wf_infer *r)
{
    const struct wf_type *ids = &r->in[0], *x = &r->in[1];
    struct wf_type to = {.dtype = x->dtype};
    int64_t rows = wf_in_int(r, "rows");
    weft_status st = check_index_type(r, 0, "the ids");

    if (!st)
        st = check_number(r, 1);
    if (st)
        return st;
    if (x->rank < ids->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "needs one row per id");
    st = check_same(r, ids, 0, x, 0, ids->rank, "sizes of ids and rows");
    if (st)
        return st;
    to.rank = x->rank - ids->rank + 1;
    if (to.rank > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "the result's rank is above %d", WEFT_MAX_RANK);
    for (int i = 1; i < to.rank; i++)
        to.dim[i] = x->dim[ids->rank + i - 1];
    to.dim[0] = rows;
    if (has_like(r)) {
        if (r->in[2].rank != to.rank)
            return wf_infer_err(r, WEFT_ESHAPE, "the result has rank %d, but `like` has %d",
                                to.rank, r->in[2].rank);
        st = check_same(r, &to, 1, &r->in[2], 1, to.rank - 1, "sizes of a row");
        return st ? st : wf_infer_out_like(r, 0, 2, 1);
    }
    if (rows < 0)
        return wf_infer_err(r, WEFT_EINVAL, "the number of rows, or `like`, must be given");
    return wf_infer_out(r, 0, &to);
}

/* ---- take_along ------------------------------------------------------------------------------ */

static weft_status taken(struct wf_infer *r, int x_at, int i_at, struct wf_type *out)
{
    const struct wf_type *x = &r->in[x_at], *ix = &r->in[i_at];
    struct wf_type t = *ix;
    int axis;
    weft_status st = check_index_type(r, i_at, "the indices");

    if (!st)
        st = wf_axis(r, wf_in_int(r, "axis"), x->rank, &axis);
    if (st)
        return st;
    if (x->rank != ix->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "the indices must have the operand's rank");
    for (int i = 0; i < x->rank && !st; i++)
        if (i != axis)
            st = wf_same_dim(r, x->dim[i], ix->dim[i], "sizes of the other axes", &t.dim[i]);
    t.dtype = x->dtype;
    *out = t;
    return st;
}

weft_status wf_infer_take_along(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = taken(r, 0, 1, &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_take_along_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = taken(r, 2, 1, &t);

    return st ? st : grad_of_rows(r, &t);
}

/* ---- one_hot, top_k, sort -------------------------------------------------------------------- */

weft_status wf_infer_one_hot(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    int64_t depth = wf_in_int(r, "depth");
    struct wf_type t = {.dtype = (weft_dtype)wf_in_int(r, "dtype"), .rank = x->rank + 1};
    int axis;
    weft_status st = check_index_type(r, 0, "the ids");

    if (!st)
        st = wf_axis(r, wf_in_int(r, "axis"), x->rank + 1, &axis);
    if (st)
        return st;
    if (depth < 0 || t.dtype <= WEFT_NONE || t.dtype >= WEFT_N_DTYPES)
        return wf_infer_err(r, WEFT_EINVAL, "depth %lld, dtype %s", (long long)depth,
                            weft_dtype_name(t.dtype));
    if (t.rank > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", t.rank,
                            WEFT_MAX_RANK);
    for (int i = 0, k = 0; i < t.rank; i++)
        t.dim[i] = i == axis ? depth : x->dim[k++];
    return wf_infer_out(r, 0, &t);
}

/* Values and their positions, which are i32. */
static weft_status ordered(struct wf_infer *r, const struct wf_type *t, int64_t n)
{
    struct wf_type places = *t;
    weft_status st;

    if (n > INT32_MAX)
        return wf_infer_err(r, WEFT_ERANGE, "at most %d elements can be sorted along an axis",
                            INT32_MAX);
    places.dtype = WEFT_I32;
    st = wf_infer_out(r, 0, t);
    return st ? st : wf_infer_out(r, 1, &places);
}

weft_status wf_infer_top_k(struct wf_infer *r)
{
    struct wf_type t = r->in[0];
    int64_t k = wf_in_int(r, "k"), n;

    if (t.rank < 1)
        return wf_infer_err(r, WEFT_ESHAPE, "needs a rank of at least 1");
    n = t.dim[t.rank - 1];
    if (k < 0 || (n >= 0 && k > n))
        return wf_infer_err(r, WEFT_ERANGE, "cannot take the %lld largest of %lld elements",
                            (long long)k, (long long)n);
    t.dim[t.rank - 1] = k;
    return ordered(r, &t, n);
}

weft_status wf_infer_sort(struct wf_infer *r)
{
    int axis;
    weft_status st = wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank, &axis);

    return st ? st : ordered(r, &r->in[0], r->in[0].dim[axis]);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static weft_status check_table(const struct wf_infer *r, int table)
{
    if (r->in[table].rank != 2)
        return wf_infer_err(r, WEFT_ESHAPE, "a table must have rank 2 [rows, width], not %d",
                            r->in[table].rank);
    if (!wf_is_float(r->in[table].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "a table must hold floats, not %s",
                            weft_dtype_name(r->in[table].dtype));
    return WEFT_OK;
}

static weft_status looked_up(struct wf_infer *r, int table, int ids, struct wf_type *out)
{
    struct wf_type t = r->in[ids];
    weft_status st = check_table(r, table);

    if (!st)
        st = check_index_type(r, ids, "the ids");
    if (st)
        return st;
    if (t.rank == WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "the result's rank is above %d", WEFT_MAX_RANK);
    t.dim[t.rank++] = r->in[table].dim[1];
    t.dtype = r->in[table].dtype;
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_embedding(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = looked_up(r, 0, 1, &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_embedding_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = looked_up(r, 2, 0, &t);

    if (!st)
        st = check_dy(r, 1, &t);
    return st ? st : wf_infer_out_like(r, 0, 2, 1);
}

/* offsets [bags + 1]; *bags is the number of bags, or WEFT_ANY. */
static weft_status check_offsets(const struct wf_infer *r, int offsets, int64_t *bags)
{
    const struct wf_type *t = &r->in[offsets];

    if (t->dtype != WEFT_I32 && t->dtype != WEFT_I64)
        return wf_infer_err(r, WEFT_EDTYPE, "offsets must be i32 or i64");
    if (t->rank != 1 || t->dim[0] == 0)
        return wf_infer_err(r, WEFT_ESHAPE, "offsets must have the shape [bags + 1]");
    *bags = t->dim[0] < 0 ? WEFT_ANY : t->dim[0] - 1;
    return WEFT_OK;
}

/* The combiner, and weights [n] of the rows' type if given. */
static weft_status check_weights(const struct wf_infer *r, int weights, int64_t n, weft_dtype dtype)
{
    const char *text = wf_attr_str(r->op, r->attr, "combiner");
    enum wf_combiner combiner;
    int64_t unused;

    if (!wf_combiner_parse(text, &combiner))
        return wf_infer_err(r, WEFT_EINVAL, "combiner '%.20s' is not sum, mean or sqrtn", text);
    if (weights >= r->n_in || r->in[weights].dtype == WEFT_NONE)
        return WEFT_OK;
    if (r->in[weights].dtype != dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "weights must have the type of the rows");
    if (r->in[weights].rank != 1)
        return wf_infer_err(r, WEFT_ESHAPE, "needs one weight per id");
    return wf_same_dim(r, r->in[weights].dim[0], n, "numbers of weights and ids", &unused);
}

weft_status wf_infer_embedding_bag(struct wf_infer *r)
{
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = 2};
    weft_status st = check_table(r, 0);

    if (!st)
        st = check_index_type(r, 1, "the ids");
    if (!st && r->in[1].rank != 1)
        st = wf_infer_err(r, WEFT_ESHAPE, "the ids of all bags must be in one axis");
    if (!st)
        st = check_offsets(r, 2, &t.dim[0]);
    if (!st)
        st = check_weights(r, 3, r->in[1].dim[0], t.dtype);
    t.dim[1] = r->in[0].dim[1];
    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_bag_reduce(struct wf_infer *r)
{
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = 2};
    weft_status st = check_table(r, 0);

    if (!st)
        st = check_offsets(r, 1, &t.dim[0]);
    if (!st)
        st = check_weights(r, 2, r->in[0].dim[0], t.dtype);
    t.dim[1] = r->in[0].dim[1];
    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_bag_spread(struct wf_infer *r)
{
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = 2};
    int64_t bags, unused;
    weft_status st = check_table(r, 0);

    if (!st)
        st = check_offsets(r, 1, &bags);
    if (!st)
        st = wf_same_dim(r, r->in[0].dim[0], bags, "numbers of rows and bags", &unused);
    if (!st && r->in[2].rank < 1)
        st = wf_infer_err(r, WEFT_ESHAPE, "`like` needs an axis");
    if (!st)
        st = check_weights(r, 3, r->in[2].dim[0], t.dtype);
    t.dim[0] = r->in[2].dim[0];
    t.dim[1] = r->in[0].dim[1];
    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_bag_inverse(struct wf_infer *r)
{
    struct wf_type t = {.dtype = r->in[1].dtype, .rank = 1};
    weft_status st = check_offsets(r, 0, &t.dim[0]);

    if (!st && !wf_is_float(t.dtype))
        st = wf_infer_err(r, WEFT_EDTYPE, "weights must be floats");
    if (!st)
        st = check_weights(r, 1, r->in[1].dim[0], t.dtype);
    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_bag_segments(struct wf_infer *r)
{
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = 1};
    int64_t bags;
    weft_status st = check_offsets(r, 0, &bags);

    if (!st && r->in[1].rank < 1)
        st = wf_infer_err(r, WEFT_ESHAPE, "`like` needs an axis");
    t.dim[0] = r->in[1].dim[0];
    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_segment_offsets(struct wf_infer *r)
{
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = 1};
    bool like = r->n_in > 1 && r->in[1].dtype != WEFT_NONE;
    int64_t bags = wf_in_int(r, "bags");

    if (t.dtype != WEFT_I32 && t.dtype != WEFT_I64)
        return wf_infer_err(r, WEFT_EDTYPE, "bag numbers must be i32 or i64");
    if (r->in[0].rank != 1 || (like && r->in[1].rank < 1))
        return wf_infer_err(r, WEFT_ESHAPE,
                            "bag numbers must be in one axis, and `like` needs one");
    if (like)
        bags = r->in[1].dim[0];
    else if (bags < 0)
        return wf_infer_err(r, WEFT_EINVAL, "the number of bags, or `like`, must be given");
    t.dim[0] = WEFT_ANY;
    if (bags >= 0 && !wf_add_i64(bags, 1, &t.dim[0]))
        return wf_infer_err(r, WEFT_ESHAPE, "the result's size overflows");
    return wf_infer_out(r, 0, &t);
}
