/* build_random.c - builders of random ops. */
#include "graph/graph.h"
#include "weft/ops_random.h"

static bool rank_ok(weft_graph *g, int rank, const char *what)
{
    if (rank >= 0 && rank <= WEFT_MAX_RANK)
        return true;
    wf_graph_fail(
        g, wf_err(WEFT_EINVAL, "%s: %d axes; at most %d are supported", what, rank, WEFT_MAX_RANK));
    return false;
}

/* n of the two numbers are attributes. */
static weft_val random_op(weft_graph *g, int op_id, int n, const char *name_a, double a,
                          const char *name_b, double b, const weft_random_opts *opts)
{
    weft_random_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_random_opts") ||
        !rank_ok(g, o.rank, "weft_random_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", o.dtype ? o.dtype : WEFT_F32),
                            WF_SET_FLOAT(name_a, a), WF_SET_FLOAT(name_b, b),
                            WF_SET_INTS("shape", o.rank, o.dim)};
    if (o.like.id)
        return wf_build(g, op_id, 1, &o.like, 1 + n, sets);
    sets[1 + n] = sets[3];
    return wf_build(g, op_id, 0, NULL, 2 + n, sets);
}

weft_val weft_random_uniform(weft_graph *g, double lo, double hi, const weft_random_opts *opts)
{
    return random_op(g, WF_OP_random_uniform, 2, "lo", lo, "hi", hi, opts);
}

weft_val weft_random_normal(weft_graph *g, double mean, double stddev, const weft_random_opts *opts)
{
    return random_op(g, WF_OP_random_normal, 2, "mean", mean, "stddev", stddev, opts);
}

weft_val weft_random_truncated_normal(weft_graph *g, double mean, double stddev,
                                      const weft_random_opts *opts)
{
    return random_op(g, WF_OP_random_truncated_normal, 2, "mean", mean, "stddev", stddev, opts);
}

weft_val weft_random_bernoulli(weft_graph *g, double p, const weft_random_opts *opts)
{
    return random_op(g, WF_OP_random_bernoulli, 1, "p", p, NULL, 0, opts);
}

weft_val weft_dropout(weft_graph *g, weft_val x, double rate, const weft_dropout_opts *opts)
{
    weft_dropout_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_dropout_opts") ||
        !rank_ok(g, o.n_shared, "weft_dropout_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_FLOAT("rate", rate),
                            WF_SET_INTS("shared_axes", o.n_shared, o.shared_axes)};
    return wf_build(g, WF_OP_dropout, 2, (weft_val[]){x, o.rate}, 2, sets);
}
