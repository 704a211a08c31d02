/* build_shape.c - builders of the ops that move or rearrange elements. */
#include "graph/shape.h"
#include "op/shape.h"
#include "weft/ops_shape.h"

#define CONCAT_GROUP 256 /* inputs of one concat node; more are joined in two steps */

static weft_val fail(weft_graph *g, weft_status st)
{
    wf_graph_fail(g, st);
    return WEFT_NIL;
}

/* An op with one list of integers. */
static weft_val with_ints(weft_graph *g, int op_id, weft_val x, const char *name, int n,
                          const int64_t *ints)
{
    struct wf_set sets[] = {WF_SET_INTS(name, n, ints)};

    if (n < 0 || (n > 0 && !ints) || n > 2 * WEFT_MAX_RANK)
        return fail(g, wf_err(WEFT_EINVAL, "%s: %d numbers for '%s'",
                              wf_op_row(g->ctx, op_id)->name, n, name));
    return wf_build(g, op_id, 1, &x, 1, sets);
}

weft_val weft_reshape(weft_graph *g, weft_val x, int rank, const int64_t *shape)
{
    return with_ints(g, WF_OP_reshape, x, "shape", rank, shape);
}

weft_val weft_reshape_like(weft_graph *g, weft_val x, weft_val like)
{
    return wf_binary(g, WF_OP_reshape_like, x, like);
}

weft_val weft_expand_dims(weft_graph *g, weft_val x, int axis)
{
    return with_ints(g, WF_OP_expand_dims, x, "axes", 1, (int64_t[]){axis});
}

weft_val weft_squeeze(weft_graph *g, weft_val x, int n_axes, const int64_t *axes)
{
    return with_ints(g, WF_OP_squeeze, x, "axes", n_axes, axes);
}

weft_val weft_flatten(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_flatten, x);
}

weft_val weft_transpose(weft_graph *g, weft_val x, int n, const int64_t *perm)
{
    return with_ints(g, WF_OP_transpose, x, "perm", n, perm);
}

weft_val wf_transpose(weft_graph *g, weft_val x, const int *perm, int n)
{
    int64_t p[WEFT_MAX_RANK] = {0};
    bool moves = false;

    for (int i = 0; i < n && i < WEFT_MAX_RANK; i++) {
        p[i] = perm[i];
        moves |= perm[i] != i;
    }
    return moves ? weft_transpose(g, x, n, p) : x;
}

weft_val weft_reverse(weft_graph *g, weft_val x, int n_axes, const int64_t *axes)
{
    return with_ints(g, WF_OP_reverse, x, "axes", n_axes, axes);
}

/* ---- joining and parting --------------------------------------------------------------------- */

static weft_val concat_node(weft_graph *g, int n, const weft_val *xs, int axis)
{
    struct wf_set sets[] = {WF_SET_INT("axis", axis)};

    return wf_build(g, WF_OP_concat, n, xs, 1, sets);
}

static bool count_ok(weft_graph *g, const char *what, int n, int64_t most)
{
    if (n < 1 || n > most)
        fail(g, wf_err(WEFT_EINVAL, "%s: %d values; 1 to %lld are supported", what, n,
                       (long long)most));
    return !g->st;
}

weft_val weft_concat(weft_graph *g, int n, const weft_val *xs, int axis)
{
    weft_val groups[CONCAT_GROUP];
    int n_groups = 0;

    if (!count_ok(g, "concat", n, CONCAT_GROUP * CONCAT_GROUP))
        return WEFT_NIL;
    if (n <= CONCAT_GROUP)
        return concat_node(g, n, xs, axis);
    for (int i = 0; i < n; i += CONCAT_GROUP)
        groups[n_groups++] =
            concat_node(g, n - i < CONCAT_GROUP ? n - i : CONCAT_GROUP, xs + i, axis);
    return concat_node(g, n_groups, groups, axis);
}

weft_val weft_stack(weft_graph *g, int n, const weft_val *xs, int axis)
{
    weft_val groups[CONCAT_GROUP];
    int n_groups = 0, rank;

    if (!count_ok(g, "stack", n, CONCAT_GROUP * CONCAT_GROUP) || !wf_check_val(g, xs[0], "stack"))
        return WEFT_NIL;
    rank = wf_val_type_of(g, xs[0])->rank;
    struct wf_set sets[] = {WF_SET_INT("axis", axis)};
    for (int i = 0; i < n; i += CONCAT_GROUP)
        groups[n_groups++] =
            wf_build(g, WF_OP_stack, n - i < CONCAT_GROUP ? n - i : CONCAT_GROUP, xs + i, 1, sets);
    return n_groups == 1 ? groups[0]
                         : concat_node(g, n_groups, groups, axis < 0 ? axis + rank + 1 : axis);
}

static weft_status outputs(weft_graph *g, weft_val first, int n, weft_val *out)
{
    for (int i = 0; i < n; i++)
        out[i] = first.id ? (weft_val){first.id + i} : WEFT_NIL;
    return weft_graph_status(g);
}

static weft_status split_node(weft_graph *g, weft_val x, int n, const int64_t *sizes, int axis,
                              weft_val *out)
{
    struct wf_set sets[] = {WF_SET_INT("n", n), WF_SET_INT("axis", axis),
                            WF_SET_INTS("sizes", sizes ? n : 0, sizes)};

    return outputs(g, wf_build(g, WF_OP_split, 1, &x, 3, sets), n, out);
}

weft_status wf_split_all(weft_graph *g, weft_val x, int n, const int64_t *sizes, int axis,
                         weft_val *out)
{
    weft_val groups[WF_MAX_OUT];
    int64_t sums[WF_MAX_OUT] = {0};
    int n_groups = (n + WF_MAX_OUT - 1) / WF_MAX_OUT;
    weft_status st;

    if (n <= WF_MAX_OUT)
        return split_node(g, x, n, sizes, axis, out);
    for (int i = 0; i < n; i++) {
        out[i] = WEFT_NIL;
        if (sizes[i] < 0 || !wf_add_i64(sums[i / WF_MAX_OUT], sizes[i], &sums[i / WF_MAX_OUT]))
            return wf_graph_fail(
                g, wf_err(WEFT_EINVAL, "split: size %lld of part %d", (long long)sizes[i], i));
    }
    st = split_node(g, x, n_groups, sums, axis, groups);
    for (int i = 0; i < n_groups && !st; i++) {
        int at = i * WF_MAX_OUT, k = n - at < WF_MAX_OUT ? n - at : WF_MAX_OUT;

        st = split_node(g, groups[i], k, sizes + at, axis, out + at);
    }
    return st;
}

weft_status wf_unstack_all(weft_graph *g, weft_val x, int n, int axis, weft_val *out)
{
    weft_val groups[WF_MAX_OUT];
    int64_t sizes[WF_MAX_OUT];
    int n_groups = (n + WF_MAX_OUT - 1) / WF_MAX_OUT;
    weft_status st = WEFT_OK;

    for (int i = 0; i < n_groups; i++)
        sizes[i] = i + 1 < n_groups ? WF_MAX_OUT : n - i * WF_MAX_OUT;
    groups[0] = x;
    if (n_groups > 1)
        st = split_node(g, x, n_groups, sizes, axis, groups);
    for (int i = 0; i < n; i++)
        out[i] = WEFT_NIL;
    for (int i = 0; i < n_groups && !st; i++) {
        struct wf_set sets[] = {WF_SET_INT("n", sizes[i]), WF_SET_INT("axis", axis)};

        st = outputs(g, wf_build(g, WF_OP_unstack, 1, &groups[i], 2, sets), (int)sizes[i],
                     out + i * WF_MAX_OUT);
    }
    return st;
}

static weft_status no_outputs(weft_graph *g, int n, weft_val *out)
{
    for (int i = 0; i < n; i++)
        out[i] = WEFT_NIL;
    return weft_graph_status(g);
}

weft_status weft_split(weft_graph *g, weft_val x, int n, int axis, weft_val *out)
{
    int64_t *sizes, size;
    const struct wf_type *t;
    weft_status st;

    if (!wf_check_val(g, x, "split") || !count_ok(g, "split", n, WF_MAX_OUT * WF_MAX_OUT))
        return no_outputs(g, n, out);
    if (n <= WF_MAX_OUT)
        return split_node(g, x, n, NULL, axis, out);
    t = wf_val_type_of(g, x);
    size = axis >= -t->rank && axis < t->rank ? t->dim[wf_axis_of(axis, t->rank)] : -1;
    if (size < 0 || size % n) {
        fail(g, wf_err(WEFT_ESHAPE,
                       "split: %d parts of axis %d need a known size that is a multiple of it", n,
                       axis));
        return no_outputs(g, n, out);
    }
    sizes = wf_alloc_n(g->ctx, n, sizeof *sizes);
    if (!sizes) {
        fail(g, wf_err_nomem(g->ctx, (size_t)n * sizeof *sizes, "split"));
        return no_outputs(g, n, out);
    }
    for (int i = 0; i < n; i++)
        sizes[i] = size / n;
    st = wf_split_all(g, x, n, sizes, axis, out);
    wf_free(g->ctx, sizes);
    return st;
}

weft_status weft_split_sizes(weft_graph *g, weft_val x, int n, const int64_t *sizes, int axis,
                             weft_val *out)
{
    if (!wf_check_val(g, x, "split") || !count_ok(g, "split", n, WF_MAX_OUT * WF_MAX_OUT))
        return no_outputs(g, n, out);
    return wf_split_all(g, x, n, sizes, axis, out);
}

weft_status weft_unstack(weft_graph *g, weft_val x, int n, int axis, weft_val *out)
{
    if (!wf_check_val(g, x, "unstack") || !count_ok(g, "unstack", n, WF_MAX_OUT * WF_MAX_OUT))
        return no_outputs(g, n, out);
    return wf_unstack_all(g, x, n, axis, out);
}

/* ---- slices, copies, borders ----------------------------------------------------------------- */

weft_val weft_slice(weft_graph *g, weft_val x, int rank, const int64_t *begin, const int64_t *size)
{
    struct wf_set sets[] = {WF_SET_INTS("begin", rank, begin), WF_SET_INTS("size", rank, size)};

    if (rank < 0 || rank > WEFT_MAX_RANK)
        return fail(g, wf_err(WEFT_EINVAL, "slice: rank %d is not in 0..%d", rank, WEFT_MAX_RANK));
    return wf_build(g, WF_OP_slice, 1, &x, 2, sets);
}

weft_val wf_slice_axis(weft_graph *g, weft_val x, int axis, int64_t begin, int64_t size)
{
    int64_t b[WEFT_MAX_RANK] = {0}, n[WEFT_MAX_RANK];

    if (!wf_check_val(g, x, "slice"))
        return WEFT_NIL;
    for (int i = 0; i < WEFT_MAX_RANK; i++)
        n[i] = -1;
    b[axis] = begin;
    n[axis] = size;
    return weft_slice(g, x, wf_val_type_of(g, x)->rank, b, n);
}

weft_val weft_slice_axis(weft_graph *g, weft_val x, int axis, int64_t begin, int64_t size)
{
    int rank;

    if (!wf_check_val(g, x, "slice"))
        return WEFT_NIL;
    rank = wf_val_type_of(g, x)->rank;
    if (axis < -rank || axis >= rank)
        return fail(g, wf_err(WEFT_ERANGE, "slice: axis %d does not exist in rank %d", axis, rank));
    return wf_slice_axis(g, x, wf_axis_of(axis, rank), begin, size);
}

weft_val weft_strided_slice(weft_graph *g, weft_val x, int n, const int64_t *begin,
                            const int64_t *end, const int64_t *strides)
{
    int64_t b[WEFT_MAX_RANK], e[WEFT_MAX_RANK], b_mask = 0, e_mask = 0;

    if (n < 0 || n > WEFT_MAX_RANK)
        return fail(g, wf_err(WEFT_EINVAL, "strided_slice: %d axes; at most %d are supported", n,
                              WEFT_MAX_RANK));
    for (int i = 0; i < n; i++) {
        b_mask |= (int64_t)(begin[i] == WEFT_OMIT) << i;
        e_mask |= (int64_t)(end[i] == WEFT_OMIT) << i;
        b[i] = begin[i] == WEFT_OMIT ? 0 : begin[i];
        e[i] = end[i] == WEFT_OMIT ? 0 : end[i];
    }
    struct wf_set sets[] = {WF_SET_INTS("begin", n, b), WF_SET_INTS("end", n, e),
                            WF_SET_INTS("strides", strides ? n : 0, strides),
                            WF_SET_INT("begin_mask", b_mask), WF_SET_INT("end_mask", e_mask)};

    return wf_build(g, WF_OP_strided_slice, 1, &x, WF_COUNT(sets), sets);
}

weft_val weft_pad(weft_graph *g, weft_val x, int rank, const int64_t *paddings,
                  const weft_pad_opts *opts)
{
    static const char *const modes[] = {"constant", "reflect", "symmetric"};
    weft_pad_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_pad_opts"))
        return WEFT_NIL;
    if (rank < 0 || rank > WEFT_MAX_RANK || (unsigned)o.mode >= WF_COUNT(modes))
        return fail(
            g, wf_err(WEFT_EINVAL, "pad: rank %d or mode %d does not exist", rank, (int)o.mode));
    struct wf_set sets[] = {WF_SET_INTS("paddings", 2 * rank, paddings),
                            WF_SET_STR("mode", modes[o.mode]), WF_SET_FLOAT("value", o.value)};

    return wf_build(g, WF_OP_pad, 1, &x, WF_COUNT(sets), sets);
}

weft_val weft_tile(weft_graph *g, weft_val x, int rank, const int64_t *repeats)
{
    return with_ints(g, WF_OP_tile, x, "repeats", rank, repeats);
}
