/* infer_shape.c - shape rules of ops that move or rearrange elements. */
#include "op/infer.h"
#include "op/shape.h"

weft_status wf_infer_fits(const struct wf_infer *r, const struct wf_type *t)
{
    return wf_type_fits(t) ? WEFT_OK : wf_infer_err(r, WEFT_ESHAPE, "the result's size overflows");
}

weft_status wf_infer_sizes(const struct wf_infer *r, weft_dtype dtype, struct wf_type *out)
{
    const struct wf_attr *shape = wf_in_attr(r, "shape");

    if (shape->n > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", shape->n,
                            WEFT_MAX_RANK);
    for (int i = 0; i < shape->n; i++)
        if (shape->ints[i] < 0)
            return wf_infer_err(r, WEFT_ESHAPE, "size %lld at axis %d: it must be known here",
                                (long long)shape->ints[i], i);
    if (dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES)
        return wf_infer_err(r, WEFT_EDTYPE, "dtype %d does not exist", (int)dtype);
    *out = wf_type_of(dtype, shape->n, shape->ints);
    return wf_infer_fits(r, out);
}

weft_status wf_infer_out(struct wf_infer *r, int i, const struct wf_type *t)
{
    weft_status st;

    if (t->rank < 0 || t->rank > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", t->rank,
                            WEFT_MAX_RANK);
    for (int k = 0; k < r->n_in; k++)
        if (!wf_type_fits(&r->in[k]))
            return wf_infer_err(r, WEFT_ESHAPE, "the size of operand %d overflows", k);
    st = wf_infer_fits(r, t);
    if (!st)
        r->out[i] = *t;
    return st;
}

weft_status wf_infer_out_like(struct wf_infer *r, int i, int like, int of)
{
    struct wf_type t = r->in[like];

    t.dtype = r->in[of].dtype;
    return wf_infer_out(r, i, &t);
}

/* Sizes a + b of two axes put together. */
static weft_status join(struct wf_infer *r, int64_t a, int64_t b, int64_t *out)
{
    *out = WEFT_ANY;
    if (a >= 0 && b >= 0 && !wf_add_i64(a, b, out))
        return wf_infer_err(r, WEFT_ESHAPE, "the result's size overflows");
    return WEFT_OK;
}

/* Whether dy (operand 0) has the shape `t` that the forward op makes of `like` (operand 1). */
static weft_status check_dy(struct wf_infer *r, const struct wf_type *t)
{
    int64_t unused;

    if (r->in[0].rank != t->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "dy has rank %d, but the op's result has %d",
                            r->in[0].rank, t->rank);
    for (int i = 0; i < t->rank; i++) {
        weft_status st = wf_same_dim(r, r->in[0].dim[i], t->dim[i],
                                     "sizes of dy and of the op's result", &unused);

        if (st)
            return st;
    }
    return wf_infer_out_like(r, 0, 1, 0);
}

/* A set of axes from an attribute; each at most once. */
static weft_status axis_set(struct wf_infer *r, const char *attr, int rank, bool set[WEFT_MAX_RANK])
{
    const struct wf_attr *axes = wf_in_attr(r, attr);
    int a;

    for (int i = 0; i < axes->n; i++) {
        weft_status st = wf_axis(r, axes->ints[i], rank, &a);

        if (st)
            return st;
        if (set[a])
            return wf_infer_err(r, WEFT_EINVAL, "axis %d is given twice", a);
        set[a] = true;
    }
    return WEFT_OK;
}

/* The size that -1 in a new shape means if the input has symbols: if the other sizes have the same
 * product on both sides, it is the input's one symbol. */
static int64_t hole_symbol(const struct wf_type *in, int64_t rest)
{
    int64_t known = 1, symbol = WEFT_ANY;
    int n_symbols = 0;

    for (int i = 0; i < in->rank; i++) {
        if (in->dim[i] < 0) {
            symbol = in->dim[i];
            n_symbols++;
        } else if (!wf_mul_i64(known, in->dim[i], &known)) {
            return WEFT_ANY;
        }
    }
    return n_symbols == 1 && known == rest && rest > 0 ? symbol : WEFT_ANY;
}

weft_status wf_infer_reshape(struct wf_infer *r)
{
    const struct wf_attr *shape = wf_in_attr(r, "shape");
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = shape->n};
    int64_t count = wf_type_count(&r->in[0]), rest = 1;
    int hole = -1;

    if (shape->n > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", shape->n,
                            WEFT_MAX_RANK);
    for (int i = 0; i < shape->n; i++) {
        t.dim[i] = shape->ints[i];
        if (shape->ints[i] < -1 || (shape->ints[i] == -1 && hole >= 0))
            return wf_infer_err(r, WEFT_ESHAPE,
                                "a new shape may have one size of -1 and no other negative size");
        if (shape->ints[i] == -1)
            hole = i;
        else if (!wf_mul_i64(rest, shape->ints[i], &rest))
            return wf_infer_err(r, WEFT_ESHAPE, "the new shape's size overflows");
    }
    if (count >= 0 && hole >= 0 && rest > 0 && count % rest == 0)
        t.dim[hole] = count / rest;
    else if (count >= 0 && (hole >= 0 || count != rest))
        return wf_infer_err(r, WEFT_ESHAPE, "%lld elements do not fill the new shape (%lld)",
                            (long long)count, (long long)rest);
    else if (count < 0 && hole >= 0)
        t.dim[hole] = hole_symbol(&r->in[0], rest);
    return wf_infer_out(r, 0, &t);
}

weft_status wf_infer_reshape_like(struct wf_infer *r)
{
    int64_t a = wf_type_count(&r->in[0]), b = wf_type_count(&r->in[1]);

    if (a >= 0 && b >= 0 && a != b)
        return wf_infer_err(r, WEFT_ESHAPE, "%lld and %lld elements", (long long)a, (long long)b);
    r->out[0] = r->in[1];
    r->out[0].dtype = r->in[0].dtype;
    return WEFT_OK;
}

weft_status wf_infer_expand_dims(struct wf_infer *r)
{
    const struct wf_attr *axes = wf_in_attr(r, "axes");
    struct wf_type t = {.dtype = r->in[0].dtype, .rank = r->in[0].rank + axes->n};
    bool is_new[WEFT_MAX_RANK] = {false};
    weft_status st;

    if (t.rank > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", t.rank,
                            WEFT_MAX_RANK);
    st = axis_set(r, "axes", t.rank, is_new);
    if (st)
        return st;
    for (int i = 0, k = 0; i < t.rank; i++)
        t.dim[i] = is_new[i] ? 1 : r->in[0].dim[k++];
    return wf_infer_out(r, 0, &t);
}

weft_status wf_infer_squeeze(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    struct wf_type t = {.dtype = x->dtype};
    bool gone[WEFT_MAX_RANK] = {false}, all = wf_in_attr(r, "axes")->n == 0;
    weft_status st = axis_set(r, "axes", x->rank, gone);

    if (st)
        return st;
    for (int i = 0; i < x->rank; i++) {
        if (all && x->dim[i] < 0)
            return wf_infer_err(r, WEFT_ESHAPE,
                                "axis %d has an unknown size: name the axes to remove", i);
        if (gone[i] && x->dim[i] >= 0 && x->dim[i] != 1)
            return wf_infer_err(r, WEFT_ESHAPE, "axis %d has size %lld, not 1", i,
                                (long long)x->dim[i]);
        if (all ? x->dim[i] != 1 : !gone[i])
            t.dim[t.rank++] = x->dim[i];
    }
    r->out[0] = t;
    return WEFT_OK;
}

weft_status wf_infer_flatten(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    int64_t axis = wf_in_int(r, "axis"), n = 1;
    struct wf_type t = {.dtype = x->dtype};

    if (axis < 0)
        axis += x->rank;
    if (axis < 0 || axis > x->rank || axis >= WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ERANGE, "axis %lld does not exist in rank %d", (long long)axis,
                            x->rank);
    for (int i = 0; i < axis; i++)
        t.dim[t.rank++] = x->dim[i];
    for (int i = (int)axis; i < x->rank; i++) {
        if (x->dim[i] < 0 || n < 0)
            n = i + 1 == x->rank && n == 1 ? x->dim[i] : WEFT_ANY;
        else if (!wf_mul_i64(n, x->dim[i], &n))
            return wf_infer_err(r, WEFT_ESHAPE, "the result's size overflows");
    }
    t.dim[t.rank++] = n;
    return wf_infer_out(r, 0, &t);
}

weft_status wf_infer_transpose(struct wf_infer *r)
{
    const struct wf_attr *perm = wf_in_attr(r, "perm");
    const struct wf_type *x = &r->in[0];
    struct wf_type t = {.dtype = x->dtype, .rank = x->rank};
    bool seen[WEFT_MAX_RANK] = {false};
    weft_status st;

    if (perm->n != 0 && perm->n != x->rank)
        return wf_infer_err(r, WEFT_EINVAL, "perm has %d axes, but the operand has %d", perm->n,
                            x->rank);
    st = axis_set(r, "perm", x->rank, seen);
    if (st)
        return st;
    for (int i = 0; i < x->rank; i++)
        t.dim[i] = x->dim[perm->n ? wf_axis_of(perm->ints[i], x->rank) : x->rank - 1 - i];
    return wf_infer_out(r, 0, &t);
}

/* All operands from `first` on have one dtype and the same sizes except at `axis` (-1:
 * everywhere); *out is their common type, with the sizes at `axis` added. */
static weft_status joined(struct wf_infer *r, int first, int axis, struct wf_type *out)
{
    struct wf_type t = r->in[first];
    weft_status st;

    for (int i = first + 1; i < r->n_in; i++) {
        const struct wf_type *x = &r->in[i];

        if (x->dtype != t.dtype)
            return wf_infer_err(r, WEFT_EDTYPE,
                                "operands must have the same type (operand %d is %s)", i,
                                weft_dtype_name(x->dtype));
        if (x->rank != t.rank)
            return wf_infer_err(r, WEFT_ESHAPE, "operand %d has rank %d, but the others have %d", i,
                                x->rank, t.rank);
        for (int a = 0; a < t.rank; a++) {
            st = a == axis ? join(r, t.dim[a], x->dim[a], &t.dim[a])
                           : wf_same_dim(r, t.dim[a], x->dim[a],
                                         "the operands' sizes along other axes", &t.dim[a]);
            if (st)
                return st;
        }
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_concat(struct wf_infer *r)
{
    struct wf_type t;
    int axis;
    weft_status st = wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank, &axis);

    if (!st)
        st = joined(r, 0, axis, &t);
    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_concat_part(struct wf_infer *r)
{
    int64_t index = wf_in_int(r, "index"), unused;
    struct wf_type t;
    int axis;
    weft_status st = wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank, &axis);

    if (!st)
        st = joined(r, 1, axis, &t);
    if (st)
        return st;
    if (index < 0 || index >= r->n_in - 1)
        return wf_infer_err(r, WEFT_ERANGE, "index %lld with %d references", (long long)index,
                            r->n_in - 1);
    if (t.rank != r->in[0].rank)
        return wf_infer_err(r, WEFT_ESHAPE, "the references have a different rank");
    for (int i = 0; i < t.rank; i++) {
        st = wf_same_dim(r, r->in[0].dim[i], t.dim[i], "sizes of y and of the joined references",
                         &unused);
        if (st)
            return st;
    }
    return wf_infer_out_like(r, 0, 1 + (int)index, 0);
}

weft_status wf_infer_stack(struct wf_infer *r)
{
    struct wf_type t, x;
    int axis;
    weft_status st = wf_axis(r, wf_in_int(r, "axis"), r->in[0].rank + 1, &axis);

    if (!st)
        st = joined(r, 0, -1, &x);
    if (st)
        return st;
    t = x;
    t.rank++;
    if (t.rank > WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "rank %d; at most %d is supported", t.rank,
                            WEFT_MAX_RANK);
    for (int i = axis; i < x.rank; i++)
        t.dim[i + 1] = x.dim[i];
    t.dim[axis] = r->n_in;
    return wf_infer_out(r, 0, &t);
}

weft_status wf_infer_split(struct wf_infer *r)
{
    const struct wf_attr *sizes = wf_in_attr(r, "sizes");
    struct wf_type t = r->in[0];
    int64_t n, sum = 0;
    int axis;
    weft_status st = wf_axis(r, wf_in_int(r, "axis"), t.rank, &axis);

    if (st)
        return st;
    n = t.dim[axis];
    if (r->n_out < 1 || (sizes->n && sizes->n != r->n_out))
        return wf_infer_err(r, WEFT_EINVAL, "%d parts with %d sizes", r->n_out, sizes->n);
    if (!sizes->n && n >= 0 && n % r->n_out)
        return wf_infer_err(r, WEFT_ESHAPE,
                            "axis %d of size %lld cannot be divided into %d equal parts", axis,
                            (long long)n, r->n_out);
    for (int i = 0; i < r->n_out; i++) {
        t.dim[axis] = sizes->n        ? sizes->ints[i]
                      : n >= 0        ? n / r->n_out
                      : r->n_out == 1 ? n
                                      : WEFT_ANY;
        if (sizes->n && (sizes->ints[i] < 0 || !wf_add_i64(sum, sizes->ints[i], &sum)))
            return wf_infer_err(r, WEFT_EINVAL, "size %lld of part %d", (long long)sizes->ints[i],
                                i);
        st = wf_infer_out(r, i, &t);
        if (st)
            return st;
    }
    if (sizes->n && n >= 0 && sum != n)
        return wf_infer_err(r, WEFT_ESHAPE,
                            "the parts' sizes add up to %lld, but axis %d has size %lld",
                            (long long)sum, axis, (long long)n);
    return WEFT_OK;
}

weft_status wf_infer_unstack(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    struct wf_type t = {.dtype = x->dtype};
    int64_t unused;
    int axis;
    weft_status st = wf_axis(r, wf_in_int(r, "axis"), x->rank, &axis);

    if (!st)
        st = wf_same_dim(r, x->dim[axis], r->n_out, "the axis' size and the number of parts",
                         &unused);
    for (int i = 0; i < x->rank && !st; i++)
        if (i != axis)
            t.dim[t.rank++] = x->dim[i];
    for (int i = 0; i < r->n_out && !st; i++)
        st = wf_infer_out(r, i, &t);
    return st;
}

/* The type of slice(x). */
static weft_status sliced(struct wf_infer *r, const struct wf_type *x, struct wf_type *out)
{
    const struct wf_attr *begin = wf_in_attr(r, "begin"), *size = wf_in_attr(r, "size");
    struct wf_type t = *x;

    if (begin->n != x->rank || size->n != x->rank)
        return wf_infer_err(r, WEFT_EINVAL, "begin and size need %d numbers; they have %d and %d",
                            x->rank, begin->n, size->n);
    for (int i = 0; i < x->rank; i++) {
        int64_t b = begin->ints[i], n = size->ints[i], d = x->dim[i], end;

        if (b < 0 || n < -1 || !wf_add_i64(b, n < 0 ? 0 : n, &end))
            return wf_infer_err(r, WEFT_ERANGE, "axis %d: begin %lld, size %lld", i, (long long)b,
                                (long long)n);
        if (d >= 0 && end > d)
            return wf_infer_err(r, WEFT_ERANGE, "axis %d: begin %lld, size %lld is outside 0..%lld",
                                i, (long long)b, (long long)n, (long long)d);
        t.dim[i] = n >= 0 ? n : d >= 0 ? d - b : b == 0 ? d : WEFT_ANY;
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_slice(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = sliced(r, &r->in[0], &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_slice_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = sliced(r, &r->in[1], &t);

    return st ? st : check_dy(r, &t);
}

static weft_status strided(struct wf_infer *r, const struct wf_type *x, struct wf_type *out)
{
    const struct wf_attr *begin = wf_in_attr(r, "begin"), *end = wf_in_attr(r, "end");
    const struct wf_attr *strides = wf_in_attr(r, "strides");
    int64_t b_mask = wf_in_int(r, "begin_mask"), e_mask = wf_in_int(r, "end_mask");
    struct wf_type t = *x;

    if (begin->n > x->rank || end->n != begin->n || (strides->n && strides->n != begin->n))
        return wf_infer_err(r, WEFT_EINVAL, "begin, end and strides have %d, %d and %d numbers",
                            begin->n, end->n, strides->n);
    for (int i = 0; i < begin->n; i++) {
        int64_t s = strides->n ? strides->ints[i] : 1;
        bool whole = (b_mask >> i & 1 || (s == 1 && begin->ints[i] == 0)) && e_mask >> i & 1;

        if (s == 0)
            return wf_infer_err(r, WEFT_EINVAL, "the stride of axis %d is 0", i);
        if (x->dim[i] >= 0)
            t.dim[i] = wf_strided_axis(r->op, r->attr, i, x->dim[i]).count;
        else if (!whole || (s != 1 && s != -1))
            t.dim[i] = WEFT_ANY;
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_strided_slice(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = strided(r, &r->in[0], &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_strided_slice_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = strided(r, &r->in[1], &t);

    return st ? st : check_dy(r, &t);
}

static weft_status padded(struct wf_infer *r, const struct wf_type *x, struct wf_type *out)
{
    const struct wf_attr *p = wf_in_attr(r, "paddings");
    const char *text = wf_attr_str(r->op, r->attr, "mode");
    enum wf_pad_mode mode;
    struct wf_type t = *x;

    if (!wf_pad_mode_parse(text, &mode))
        return wf_infer_err(r, WEFT_EINVAL, "mode '%.20s' is not constant, reflect or symmetric",
                            text);
    if (p->n != 2 * x->rank)
        return wf_infer_err(r, WEFT_EINVAL, "paddings need %d numbers; there are %d", 2 * x->rank,
                            p->n);
    for (int i = 0; i < x->rank; i++) {
        int64_t before = p->ints[2 * i], after = p->ints[2 * i + 1], both, d = x->dim[i];
        int64_t most = mode == WF_PAD_REFLECT ? d - 1 : d;

        if (before < 0 || after < 0 || !wf_add_i64(before, after, &both))
            return wf_infer_err(r, WEFT_EINVAL, "axis %d: paddings %lld and %lld", i,
                                (long long)before, (long long)after);
        if (mode != WF_PAD_CONSTANT && d >= 0 && both > 0 && (before > most || after > most))
            return wf_infer_err(r, WEFT_ERANGE,
                                "axis %d: %s padding of an axis of size %lld is at most %lld", i,
                                text, (long long)d, (long long)(most < 0 ? 0 : most));
        t.dim[i] = WEFT_ANY;
        if (both == 0)
            t.dim[i] = d;
        else if (d >= 0 && !wf_add_i64(d, both, &t.dim[i]))
            return wf_infer_err(r, WEFT_ESHAPE, "the result's size overflows");
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_pad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = padded(r, &r->in[0], &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_pad_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = padded(r, &r->in[1], &t);

    return st ? st : check_dy(r, &t);
}

static weft_status tiled(struct wf_infer *r, const struct wf_type *x, struct wf_type *out)
{
    const struct wf_attr *repeats = wf_in_attr(r, "repeats");
    struct wf_type t = *x;

    if (repeats->n != x->rank)
        return wf_infer_err(r, WEFT_EINVAL, "repeats need %d numbers; there are %d", x->rank,
                            repeats->n);
    for (int i = 0; i < x->rank; i++) {
        if (repeats->ints[i] < 0)
            return wf_infer_err(r, WEFT_EINVAL, "axis %d: %lld repeats", i,
                                (long long)repeats->ints[i]);
        if (repeats->ints[i] != 1 && x->dim[i] < 0)
            t.dim[i] = WEFT_ANY;
        else if (repeats->ints[i] != 1 && !wf_mul_i64(x->dim[i], repeats->ints[i], &t.dim[i]))
            return wf_infer_err(r, WEFT_ESHAPE, "the result's size overflows");
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_infer_tile(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = tiled(r, &r->in[0], &t);

    return st ? st : wf_infer_out(r, 0, &t);
}

weft_status wf_infer_tile_grad(struct wf_infer *r)
{
    struct wf_type t;
    weft_status st = tiled(r, &r->in[1], &t);

    return st ? st : check_dy(r, &t);
}

weft_status wf_infer_reverse(struct wf_infer *r)
{
    bool set[WEFT_MAX_RANK] = {false};
    weft_status st = axis_set(r, "axes", r->in[0].rank, set);

    return st ? st : wf_infer_out(r, 0, &r->in[0]);
}
