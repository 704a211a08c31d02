/* sums.c - what long sums and products lose that noise on their operands does not show: digits,
 * always on the same side, and numbers that leave the range of their type on the way. */
#include <float.h>
#include <math.h>

#include "random/random.h"

/* ---- sums in order --------------------------------------------------------------------------- */

/* A product of two f32 matrices with its sums in f32, in order: what a long sum of numbers of one
 * sign loses is not like noise on its operands, but always on the same side. */
static void product_in_order(const struct wf_node *n, const struct wf_tensor *in,
                             struct wf_tensor *out)
{
    bool ta = wf_node_int(n, "trans_a"), tb = wf_node_int(n, "trans_b");
    int64_t m = out->type.dim[0], cols = out->type.dim[1], inner = in[0].type.dim[ta ? 0 : 1];
    const double *a = in[0].data, *b = in[1].data;

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0;

            for (int64_t k = 0; k < inner; k++)
                sum = fmaf((float)a[ta ? k * m + i : i * inner + k],
                           (float)b[tb ? j * inner + k : k * cols + j], sum);
            ((double *)out->data)[i * cols + j] = (double)sum;
        }
}

/* Whether a sum reduces axis i of its operand. */
static bool reduces(const struct wf_node *n, const struct wf_type *t, const struct wf_type *to,
                    int i)
{
    const struct wf_attr *axes =
        n->op->id != WF_OP_reduce_to_like ? wf_attr(n->op, n->attr, "axes") : NULL;
    int lead = t->rank - to->rank;

    if (!axes) /* reduce_to_like */
        return i < lead || (to->dim[i - lead] == 1 && t->dim[i] != 1);
    for (int k = 0; k < axes->n; k++)
        if (axes->ints[k] == i || axes->ints[k] == i - t->rank)
            return true;
    return axes->n == 0;
}

/* A sum of f32 in f32, in order, for the same reason. */
static void sum_in_order(const struct wf_node *n, const struct wf_tensor *in, struct wf_tensor *out)
{
    const struct wf_type *t = &in->type;
    const double *x = in->data;
    double *sum = out->data;

    memset(sum, 0, sizeof *sum * (size_t)wf_count(out));
    for (int64_t e = 0; e < wf_count(in); e++) {
        int64_t rest = e, at = 0, stride = 1;

        for (int i = t->rank - 1; i >= 0; rest /= t->dim[i--])
            if (!reduces(n, t, &out->type, i)) {
                at += rest % t->dim[i] * stride;
                stride *= t->dim[i];
            }
        sum[at] = (double)((float)sum[at] + (float)x[e]);
    }
}

/* Sums along an axis, up to each element. */
static void cumsum_in_order(const struct wf_node *n, const struct wf_tensor *in,
                            struct wf_tensor *out)
{
    bool exclusive = wf_node_int(n, "exclusive"), reverse = wf_node_int(n, "reverse");
    int axis = (int)wf_node_int(n, "axis");
    int64_t inner = 1, size, count = wf_count(in);

    axis += axis < 0 ? in->type.rank : 0;
    size = in->type.dim[axis];
    for (int i = axis + 1; i < in->type.rank; i++)
        inner *= in->type.dim[i];
    for (int64_t row = 0; size > 0 && row < count / size; row++) {
        int64_t first = row / inner * size * inner + row % inner;
        float sum = 0;

        for (int64_t k = 0; k < size; k++) {
            int64_t at = first + (reverse ? size - 1 - k : k) * inner;
            float before = sum;

            sum += (float)((double *)in->data)[at];
            ((double *)out->data)[at] = (double)(exclusive ? before : sum);
        }
    }
}

/* Rows [n, …] added up by their segments. */
static void segments_in_order(const struct wf_tensor *in, struct wf_tensor *out)
{
    int64_t rows = in[0].type.dim[0], width = rows ? wf_count(&in[0]) / rows : 0;
    int64_t n = out->type.dim[0];
    const double *x = in[0].data, *id = in[1].data;
    double *sum = out->data;

    memset(sum, 0, sizeof *sum * (size_t)wf_count(out));
    for (int64_t e = 0; e < rows * width; e++) {
        int64_t at = (int64_t)id[e / width];

        if (at >= 0 && at < n)
            sum[at * width + e % width] =
                (double)((float)sum[at * width + e % width] + (float)x[e]);
    }
}

/* The means of columns in the same way, and the variances around them. */
static void means_in_order(const struct wf_tensor *in, struct wf_tensor *mean,
                           struct wf_tensor *var)
{
    int64_t cols = wf_count(mean), n = cols ? wf_count(in) / cols : 0;
    const double *x = in->data;

    for (int64_t c = 0; c < cols && n > 0; c++) {
        float sum = 0;
        double square = 0;

        for (int64_t i = 0; i < n; i++)
            sum += (float)x[i * cols + c];
        sum /= (float)n;
        for (int64_t i = 0; i < n; i++)
            square += (x[i * cols + c] - (double)sum) * (x[i * cols + c] - (double)sum);
        ((double *)mean->data)[c] = (double)sum;
        ((double *)var->data)[c] = square / (double)n;
    }
}

void sums_in_order(const struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                   struct wf_tensor *out)
{
    if (p->g->values[n->first_out].type.dtype != WEFT_F32)
        return;
    if (n->op->id == WF_OP_matmul && in[0].type.rank == 2 && in[1].type.rank == 2)
        product_in_order(n, in, out);
    else if (n->op->id == WF_OP_sum || n->op->id == WF_OP_reduce_to_like)
        sum_in_order(n, in, out);
    else if (n->op->id == WF_OP_cumsum)
        cumsum_in_order(n, in, out);
    else if (n->op->id == WF_OP_segment_sum)
        segments_in_order(in, out);
    else if (n->op->id == WF_OP_batch_norm)
        means_in_order(&in[0], &out[1], &out[2]);
}

/* ---- numbers out of range -------------------------------------------------------------------- */

/* Sums of products: none of their terms, in any order, is larger than the result for absolute
 * values. */
static const char *const linear_ops[] = {
    "sum",           "mean",           "reduce_to_like",  "norm_l1",          "cumsum",
    "matmul",        "conv",           "conv_grad_input", "conv_grad_filter", "conv_transpose",
    "avg_pool",      "avg_pool_grad",  "add_n",           "segment_sum",      "scatter_add",
    "gather_grad",   "embedding_grad", "take_along_grad", "tile_grad",        "max_pool_grad",
    "embedding_bag", "bag_reduce",
};

/* Ops that add squares of their first operand. */
static const char *const square_ops[] = {
    "norm_l2", "batch_norm", "layer_norm", "group_norm", "rms_norm",
};

static bool is_among(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

/* The largest absolute value that each element of operand i has in any of the runs, or the
 * least. */
static struct wf_tensor bound(struct plain *p, const struct wf_node *n, int i,
                              const struct wf_tensor *x, bool least)
{
    struct wf_tensor t = *x;

    if (!x->data || x->type.dtype != WEFT_F64)
        return t;
    t.data = plain_room(p, &t.type);
    for (int64_t e = 0; e < wf_count(&t); e++) {
        double all = fabs(((double *)x->data)[e]);

        for (int j = 0; j < p->peers->n; j++) {
            double one = fabs(((double *)p->peers->run[j].val[n->in[i]].data)[e]);

            all = least ? fmin(all, one) : fmax(all, one);
        }
        ((double *)t.data)[e] = all;
    }
    return t;
}

static weft_status narrow_linear(struct plain *p, const struct wf_node *n,
                                 const struct wf_attr *attr, const struct wf_tensor *in,
                                 struct wf_tensor *out)
{
    struct wf_tensor a[WF_MAX_IN], all = out[0];
    double times = 1;
    weft_status st;

    for (int i = 0; i < n->n_in; i++)
        a[i] = bound(p, n, i, &in[i], false);
    if (n->op->id == WF_OP_mean && wf_count(&all))
        times = (double)wf_count(&in[0]) / (double)wf_count(&all);
    all.data = plain_room(p, &all.type);
    st = plain_call(p, n, attr, n->n_in, a, &all);
    for (int64_t e = 0; e < wf_count(&all) && !st; e++)
        if (((double *)all.data)[e] * times > (double)FLT_MAX)
            ((double *)out[0].data)[e] = NAN;
    return st;
}

static void narrow_squares(struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                           struct wf_tensor *out)
{
    struct wf_tensor x = bound(p, n, 0, in, false);
    double sum = 0;

    for (int64_t e = 0; e < wf_count(&x); e++)
        sum += ((double *)x.data)[e] * ((double *)x.data)[e];
    for (int i = 0; i < n->n_out && sum > (double)FLT_MAX; i++)
        for (int64_t e = 0; e < wf_count(&out[i]) && out[i].type.dtype == WEFT_F64; e++)
            ((double *)out[i].data)[e] = NAN;
}

/* The element of a reduction's result that element e of its operand is part of. */
static int64_t reduced_index(const struct wf_node *n, const struct wf_type *t, int64_t e)
{
    int64_t at = 0, stride = 1;

    for (int i = t->rank - 1; i >= 0; e /= t->dim[i--])
        if (!reduces(n, t, t, i)) {
            at += e % t->dim[i] * stride;
            stride *= t->dim[i];
        }
    return at;
}

/* prod, and prod_grad, whose result has the shape of its operand x. In some order all factors above
 * 1 come first, or all below: the product then overflows, or is a denormal number whose error the
 * others enlarge. */
static void narrow_product(struct plain *p, const struct wf_node *n, const struct wf_tensor *x,
                           struct wf_tensor *out)
{
    int i = n->op->id == WF_OP_prod ? 0 : 1;
    struct wf_tensor most = bound(p, n, i, x, false), least = bound(p, n, i, x, true);
    int64_t count = wf_count(x);
    double *up = wf_arena_alloc(&p->arena, sizeof *up * (size_t)(count + 1));
    double *down = wf_arena_alloc(&p->arena, sizeof *down * (size_t)(count + 1));

    for (int64_t e = 0; e < count; e++) {
        double hi = ((double *)most.data)[e], lo = ((double *)least.data)[e];
        int64_t at = reduced_index(n, &x->type, e);

        up[at] += hi > 1 ? log2(hi) : 0;
        down[at] += lo < 1 && lo > 0 ? log2(lo) : 0;
    }
    for (int64_t e = 0; e < wf_count(out); e++) {
        int64_t at = n->op->id == WF_OP_prod ? e : reduced_index(n, &x->type, e);

        if (up[at] > 127 || (down[at] < -125 && up[at] > 9))
            ((double *)out->data)[e] = NAN;
    }
}

bool sums_may_be_narrow(const struct plain *p, const struct wf_node *n, const struct wf_tensor *in)
{
    weft_dtype t = p->g->values[n->first_out].type.dtype;

    if (!wf_is_float(t) || t == WEFT_F64)
        return false;
    if (n->op->id == WF_OP_prod || n->op->id == WF_OP_prod_grad)
        return true;
    for (int i = 0; i < n->n_in; i++) {
        int64_t count = in[i].type.dtype == WEFT_F64 ? wf_count(&in[i]) : 0;

        for (int64_t e = 0; e < count; e++)
            if (!(fabs(((double *)in[i].data)[e]) < 0x1p40)) /* products of so many are in range */
                return true;
    }
    return false;
}

weft_status sums_narrow(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                        const struct wf_tensor *in, struct wf_tensor *out)
{
    if (in[0].type.dtype != WEFT_F64)
        return WEFT_OK;
    if (is_among(n->op->name, linear_ops, WF_COUNT(linear_ops)))
        return narrow_linear(p, n, attr, in, out);
    if (is_among(n->op->name, square_ops, WF_COUNT(square_ops)))
        narrow_squares(p, n, &in[0], out);
    if (n->op->id == WF_OP_prod || n->op->id == WF_OP_prod_grad)
        narrow_product(p, n, &in[n->op->id == WF_OP_prod ? 0 : 1], out);
    return WEFT_OK;
}
