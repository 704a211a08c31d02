/* build_index.c - builders of the ops that find elements by index. */
#include "graph/graph.h"
#include "weft/ops_index.h"

static weft_val fail(weft_graph *g, weft_status st)
{
    wf_graph_fail(g, st);
    return WEFT_NIL;
}

/* Axes whose default is the last one. */
static int64_t axis_or_last(int axis)
{
    return axis == 0 ? -1 : axis == WEFT_ZERO ? 0 : axis;
}

weft_val weft_gather(weft_graph *g, weft_val x, weft_val indices, const weft_gather_opts *opts)
{
    weft_gather_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_gather_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("axis", o.axis), WF_SET_INT("batch_dims", o.batch_dims)};

    return wf_build(g, WF_OP_gather, 2, (weft_val[]){x, indices}, 2, sets);
}

weft_val weft_gather_nd(weft_graph *g, weft_val x, weft_val indices)
{
    return wf_binary(g, WF_OP_gather_nd, x, indices);
}

weft_val weft_take_along(weft_graph *g, weft_val x, weft_val indices, int axis)
{
    struct wf_set sets[] = {WF_SET_INT("axis", axis)};

    return wf_build(g, WF_OP_take_along, 2, (weft_val[]){x, indices}, 1, sets);
}

weft_val weft_scatter_add(weft_graph *g, weft_val ids, weft_val rows, int64_t n_rows)
{
    struct wf_set sets[] = {WF_SET_INT("rows", n_rows)};

    return wf_build(g, WF_OP_scatter_add, 2, (weft_val[]){ids, rows}, 1, sets);
}

weft_val weft_scatter_add_like(weft_graph *g, weft_val ids, weft_val rows, weft_val like)
{
    return wf_build(g, WF_OP_scatter_add, 3, (weft_val[]){ids, rows, like}, 0, NULL);
}

weft_val weft_scatter_nd_add(weft_graph *g, weft_val indices, weft_val updates, int rank,
                             const int64_t *shape)
{
    struct wf_set sets[] = {WF_SET_INTS("shape", rank, shape)};

    if (rank < 0 || rank > WEFT_MAX_RANK)
        return fail(
            g, wf_err(WEFT_EINVAL, "scatter_nd_add: rank %d is not in 0..%d", rank, WEFT_MAX_RANK));
    return wf_build(g, WF_OP_scatter_nd_add, 2, (weft_val[]){indices, updates}, 1, sets);
}

weft_val weft_scatter_nd_add_like(weft_graph *g, weft_val indices, weft_val updates, weft_val like)
{
    return wf_build(g, WF_OP_scatter_nd_add, 3, (weft_val[]){indices, updates, like}, 0, NULL);
}

weft_val weft_one_hot(weft_graph *g, weft_val ids, int64_t depth, const weft_one_hot_opts *opts)
{
    weft_one_hot_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_one_hot_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {
        WF_SET_INT("depth", depth),
        WF_SET_INT("axis", axis_or_last(o.axis)),
        WF_SET_DTYPE("dtype", o.dtype ? o.dtype : WEFT_F32),
        WF_SET_FLOAT("on", o.on == 0 ? 1 : o.on),
        WF_SET_FLOAT("off", o.off),
        WF_SET_BOOL("allow_outside", o.allow_outside),
    };

    return wf_build(g, WF_OP_one_hot, 1, &ids, WF_COUNT(sets), sets);
}

weft_val weft_top_k(weft_graph *g, weft_val x, int64_t k, weft_val *indices)
{
    struct wf_set sets[] = {WF_SET_INT("k", k)};
    weft_val v = wf_build(g, WF_OP_top_k, 1, &x, 1, sets);

    if (indices)
        *indices = weft_output(g, v, 1);
    return v;
}

weft_val weft_sort(weft_graph *g, weft_val x, const weft_sort_opts *opts)
{
    weft_sort_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_sort_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_INT("axis", axis_or_last(o.axis)),
                            WF_SET_BOOL("descending", o.descending)};

    return wf_build(g, WF_OP_sort, 1, &x, 2, sets);
}

weft_val weft_argsort(weft_graph *g, weft_val x, const weft_sort_opts *opts)
{
    return weft_output(g, weft_sort(g, x, opts), 1);
}

weft_val weft_embedding(weft_graph *g, weft_val table, weft_val ids)
{
    return wf_binary(g, WF_OP_embedding, table, ids);
}

weft_val weft_embedding_bag(weft_graph *g, weft_val table, weft_val ids, weft_val offsets,
                            const weft_embedding_bag_opts *opts)
{
    static const char *const names[] = {
        [WEFT_COMBINER_MEAN] = "mean",
        [WEFT_COMBINER_SUM] = "sum",
        [WEFT_COMBINER_SQRTN] = "sqrtn",
    };
    weft_embedding_bag_opts o;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_embedding_bag_opts"))
        return WEFT_NIL;
    if ((unsigned)o.combiner >= WF_COUNT(names))
        return fail(
            g, wf_err(WEFT_EINVAL, "embedding_bag: combiner %d does not exist", (int)o.combiner));
    struct wf_set sets[] = {WF_SET_STR("combiner", names[o.combiner])};

    return wf_build(g, WF_OP_embedding_bag, 4, (weft_val[]){table, ids, offsets, o.weights}, 1,
                    sets);
}

weft_val weft_segment_offsets(weft_graph *g, weft_val segments, int64_t n_bags)
{
    struct wf_set sets[] = {WF_SET_INT("bags", n_bags)};

    return wf_build(g, WF_OP_segment_offsets, 1, &segments, 1, sets);
}

weft_val weft_segment_offsets_like(weft_graph *g, weft_val segments, weft_val like)
{
    return wf_build(g, WF_OP_segment_offsets, 2, (weft_val[]){segments, like}, 0, NULL);
}
