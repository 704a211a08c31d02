/* nn.c - reference kernels of softmax, its losses, updates of variables and the global norm. */
#include <math.h>

#include "kernels/ref/ref.h"

/* ---- softmax --------------------------------------------------------------------------------- */

/* Rows along an axis: element i of row (o, s) stands at (o * n + i) * stride + s. */
struct rows {
    int64_t n_outer, n, stride;
};

static struct rows rows_of(const struct wf_call *c)
{
    const struct wf_type *t = &c->out[0].type;
    int64_t axis = wf_call_int(c, "axis");
    struct rows r = {1, 0, 1};

    if (axis < 0)
        axis += t->rank;
    for (int i = 0; i < axis; i++)
        r.n_outer *= t->dim[i];
    for (int i = (int)axis + 1; i < t->rank; i++)
        r.stride *= t->dim[i];
    r.n = t->dim[axis];
    return r;
}

/* max and log(sum(exp(x - max))) of n elements from `at`, `stride` apart. A row of -inf has a
 * sum of NaN. */
static double log_sum(const struct wf_tensor *x, int64_t at, int64_t n, int64_t stride, double *max)
{
    double m = -INFINITY, sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double v = ref_get(x, at + i * stride);

        m = v > m || isnan(v) ? v : m;
    }
    for (int64_t i = 0; i < n; i++)
        sum += exp(ref_get(x, at + i * stride) - m);
    *max = m;
    return log(sum); /* cppcheck-suppress invalidFunctionArg ; of no elements: -inf, as wanted */
}

weft_status wf_ref_log_softmax(const struct wf_call *c)
{
    struct rows r = rows_of(c);
    bool take_exp = c->op->id == WF_OP_softmax;

    for (int64_t row = 0; row < r.n_outer * r.stride; row++) {
        int64_t at = row / r.stride * r.n * r.stride + row % r.stride;
        double max, sum = log_sum(&c->in[0], at, r.n, r.stride, &max);

        for (int64_t i = 0; i < r.n; i++) {
            double v = ref_get(&c->in[0], at + i * r.stride) - max - sum;

            ref_set(&c->out[0], at + i * r.stride, take_exp ? exp(v) : v);
        }
    }
    return WEFT_OK;
}

weft_status wf_ref_softmax(const struct wf_call *c)
{
    return wf_ref_log_softmax(c);
}

weft_status wf_ref_softmax_grad(const struct wf_call *c)
{
    struct rows r = rows_of(c);

    for (int64_t row = 0; row < r.n_outer * r.stride; row++) {
        int64_t at = row / r.stride * r.n * r.stride + row % r.stride;
        double sum = 0;

        for (int64_t i = 0; i < r.n; i++)
            sum += ref_get(&c->in[0], at + i * r.stride) * ref_get(&c->in[1], at + i * r.stride);
        for (int64_t i = 0; i < r.n; i++)
            ref_set(&c->out[0], at + i * r.stride,
                    ref_get(&c->in[1], at + i * r.stride) *
                        (ref_get(&c->in[0], at + i * r.stride) - sum));
    }
    return WEFT_OK;
}

weft_status wf_ref_log_softmax_grad(const struct wf_call *c)
{
    struct rows r = rows_of(c);

    for (int64_t row = 0; row < r.n_outer * r.stride; row++) {
        int64_t at = row / r.stride * r.n * r.stride + row % r.stride;
        double sum = 0;

        for (int64_t i = 0; i < r.n; i++)
            sum += ref_get(&c->in[0], at + i * r.stride);
        for (int64_t i = 0; i < r.n; i++)
            ref_set(&c->out[0], at + i * r.stride,
                    ref_get(&c->in[0], at + i * r.stride) -
                        exp(ref_get(&c->in[1], at + i * r.stride)) * sum);
    }
    return WEFT_OK;
}

/* ---- losses ---------------------------------------------------------------------------------- */

weft_status wf_ref_sparse_softmax_xent(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *labels = &c->in[1];
    int64_t n_classes = x->type.dim[x->type.rank - 1], n_rows = wf_count(labels);
    int64_t ignored = wf_call_int(c, "ignore_index");
    bool ignore = wf_call_int(c, "ignore");
    double scale = wf_call_float(c, "scale");

    for (int64_t row = 0; row < n_rows; row++) {
        int64_t label = wf_get_int(labels->data, labels->type.dtype, row), at = row * n_classes;
        bool skip = ignore && label == ignored;
        double max, sum;

        if (!skip && (label < 0 || label >= n_classes))
            return wf_err(WEFT_EDATA, "%s: label %lld at position %lld is not in 0..%lld",
                          c->op->name, (long long)label, (long long)row, (long long)n_classes - 1);
        sum = log_sum(x, at, n_classes, 1, &max);
        ref_set(&c->out[0], row, skip ? 0 : max + sum - ref_get(x, at + label));
        for (int64_t i = 0; i < n_classes; i++) {
            double p = exp(ref_get(x, at + i) - max - sum);

            ref_set(&c->out[1], at + i, skip ? 0 : scale * (p - (i == label)));
        }
    }
    return WEFT_OK;
}

weft_status wf_ref_softmax_xent(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *t = &c->in[1];
    int64_t n_classes = x->type.dim[x->type.rank - 1], n_rows = wf_count(&c->out[0]);

    for (int64_t row = 0; row < n_rows; row++) {
        int64_t at = row * n_classes;
        double max, sum = log_sum(x, at, n_classes, 1, &max), loss = 0, total = 0;

        for (int64_t i = 0; i < n_classes; i++) {
            double v = ref_get(t, at + i);

            total += v;
            if (v != 0) /* a class of no weight may have a logit of -inf */
                loss += v * (max + sum - ref_get(x, at + i));
        }
        ref_set(&c->out[0], row, loss);
        for (int64_t i = 0; i < n_classes; i++)
            ref_set(&c->out[1], at + i,
                    exp(ref_get(x, at + i) - max - sum) * total - ref_get(t, at + i));
    }
    return WEFT_OK;
}

weft_status wf_ref_sigmoid_xent(const struct wf_call *c)
{
    const struct wf_type *to = &c->out[0].type;
    int64_t n = wf_type_count(to);

    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(&c->in[0], wf_ref_broadcast_index(&c->in[0].type, to, i));
        double t = ref_get(&c->in[1], wf_ref_broadcast_index(&c->in[1].type, to, i));

        ref_set(&c->out[0], i, (x > 0 ? x : 0) - x * t + log1p(exp(-fabs(x))));
    }
    return WEFT_OK;
}

/* ---- updates of variables, norms ------------------------------------------------------------- */

/* Inputs may be the output's own memory: each element is read before it is written. */
weft_status wf_ref_assign(const struct wf_call *c)
{
    if (c->out[0].data != c->in[1].data && wf_type_bytes(&c->out[0].type))
        memmove(c->out[0].data, c->in[1].data, (size_t)wf_type_bytes(&c->out[0].type));
    return WEFT_OK;
}

weft_status wf_ref_assign_add(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);
    weft_dtype t = c->out[0].type.dtype;

    for (int64_t i = 0; i < n; i++)
        if (wf_is_float(t))
            ref_set(&c->out[0], i, ref_get(&c->in[0], i) + ref_get(&c->in[1], i));
        else /* whole numbers wrap */
            wf_set_int(c->out[0].data, t, i,
                       (int64_t)((uint64_t)wf_get_int(c->in[0].data, t, i) +
                                 (uint64_t)wf_get_int(c->in[1].data, t, i)));
    return WEFT_OK;
}

weft_status wf_ref_assign_ema(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);
    double m = wf_call_float(c, "momentum");

    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, ref_get(&c->in[0], i) * m + ref_get(&c->in[1], i) * (1 - m));
    return WEFT_OK;
}

/* Blocks of 4096 elements from each tensor's start, added in order: a split over servers at
 * multiples of 4096 gives the same bits. */
weft_status wf_ref_global_norm(const struct wf_call *c)
{
    double total = 0;

    for (int k = 0; k < c->n_in; k++) {
        int64_t n = wf_count(&c->in[k]);

        for (int64_t from = 0; from < n; from += 4096) {
            int64_t end = wf_min_i64(n, from + 4096);
            double sum = 0;

            for (int64_t i = from; i < end; i++)
                sum += ref_get(&c->in[k], i) * ref_get(&c->in[k], i);
            total += sum;
        }
    }
    ref_set(&c->out[0], 0, sqrt(total));
    return WEFT_OK;
}
