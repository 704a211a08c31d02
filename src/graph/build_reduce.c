/* build_reduce.c - builders of reductions and of ops shaped like another value. */
#include "graph/graph.h"
#include "weft/ops_reduce.h"

static bool axes_ok(weft_graph *g, int n, const char *what)
{
    if (n >= 0 && n <= WEFT_MAX_RANK)
        return true;
    wf_graph_fail(
        g, wf_err(WEFT_EINVAL, "%s: %d axes; at most %d are supported", what, n, WEFT_MAX_RANK));
    return false;
}

static weft_val reduce(weft_graph *g, int op_id, weft_val x, const weft_reduce_opts *opts)
{
    weft_reduce_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_reduce_opts") ||
        !axes_ok(g, o.n_axes, "weft_reduce_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INTS("axes", o.n_axes, o.axes),
                            WF_SET_BOOL("keepdims", o.keepdims)};
    return wf_build(g, op_id, 1, &x, 2, sets);
}

#define REDUCE(name)                                                              \
    weft_val weft_##name(weft_graph *g, weft_val x, const weft_reduce_opts *opts) \
    {                                                                             \
        return reduce(g, WF_OP_##name, x, opts);                                  \
    }

REDUCE(sum)
REDUCE(mean)
REDUCE(reduce_max)
REDUCE(reduce_min)
REDUCE(prod)
REDUCE(any)
REDUCE(all)
REDUCE(norm_l1)
REDUCE(norm_l2)
REDUCE(logsumexp)

static weft_val arg(weft_graph *g, int op_id, weft_val x, int axis, const weft_arg_opts *opts)
{
    weft_arg_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_arg_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("axis", axis), WF_SET_BOOL("keepdims", o.keepdims)};
    return wf_build(g, op_id, 1, &x, 2, sets);
}

weft_val weft_argmax(weft_graph *g, weft_val x, int axis, const weft_arg_opts *opts)
{
    return arg(g, WF_OP_argmax, x, axis, opts);
}

weft_val weft_argmin(weft_graph *g, weft_val x, int axis, const weft_arg_opts *opts)
{
    return arg(g, WF_OP_argmin, x, axis, opts);
}

weft_val weft_cumsum(weft_graph *g, weft_val x, int axis, const weft_cumsum_opts *opts)
{
    weft_cumsum_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_cumsum_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("axis", axis), WF_SET_BOOL("exclusive", o.exclusive),
                            WF_SET_BOOL("reverse", o.reverse)};
    return wf_build(g, WF_OP_cumsum, 1, &x, 3, sets);
}

weft_val weft_segment_sum(weft_graph *g, weft_val x, weft_val ids, int64_t n_segments)
{
    struct wf_set sets[] = {WF_SET_INT("n_segments", n_segments)};

    return wf_build(g, WF_OP_segment_sum, 2, (weft_val[]){x, ids}, 1, sets);
}

weft_val weft_broadcast_to(weft_graph *g, weft_val x, int rank, const int64_t *dim)
{
    struct wf_set sets[] = {WF_SET_INTS("shape", rank, dim)};

    return axes_ok(g, rank, "weft_broadcast_to") ? wf_build(g, WF_OP_broadcast_to, 1, &x, 1, sets)
                                                 : WEFT_NIL;
}

weft_val weft_broadcast_like(weft_graph *g, weft_val x, weft_val like)
{
    return wf_binary(g, WF_OP_broadcast_like, x, like);
}

weft_val weft_reduce_to_like(weft_graph *g, weft_val x, weft_val like)
{
    return wf_binary(g, WF_OP_reduce_to_like, x, like);
}

weft_val weft_size_of(weft_graph *g, weft_val x, const weft_size_of_opts *opts)
{
    weft_size_of_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_size_of_opts") ||
        !axes_ok(g, o.n_axes, "weft_size_of_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INTS("axes", o.n_axes, o.axes),
                            WF_SET_DTYPE("dtype", o.dtype ? o.dtype : WEFT_F32)};
    return wf_build(g, WF_OP_size_of, 1, &x, 2, sets);
}

weft_val weft_zeros_like(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_zeros_like, x);
}

weft_val weft_ones_like(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_ones_like, x);
}

weft_val weft_full(weft_graph *g, double value, weft_dtype dtype, int rank, const int64_t *dim)
{
    struct wf_set sets[] = {WF_SET_INTS("shape", rank, dim), WF_SET_FLOAT("value", value),
                            WF_SET_DTYPE("dtype", dtype ? dtype : WEFT_F32)};

    return axes_ok(g, rank, "weft_full") ? wf_build(g, WF_OP_full, 0, NULL, 3, sets) : WEFT_NIL;
}
