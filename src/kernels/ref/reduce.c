/* reduce.c - reference kernels of reductions and of ops that follow another value's shape.
 * Floats are accumulated in double, integers in int64; elements are taken in index order. */
#include <math.h>

#include "kernels/ref/ref.h"

/* ---- which elements belong to which result ------------------------------------------------------ */

/* Axes of x that stay and axes that are reduced, with their strides. */
struct walk {
    int n_kept, n_gone;
    int64_t kept_dim[WEFT_MAX_RANK], kept_stride[WEFT_MAX_RANK];
    int64_t gone_dim[WEFT_MAX_RANK], gone_stride[WEFT_MAX_RANK];
    int64_t n_out, n_each; /* results, elements of each */
};

static struct walk walk_over(const struct wf_type *x, const bool gone[WEFT_MAX_RANK])
{
    struct walk w = {.n_out = 1};
    int64_t stride[WEFT_MAX_RANK] = {0}, at = wf_type_count(x) ? 1 : 0;

    for (int i = x->rank - 1; i >= 0; i--) {
        stride[i] = at;
        at *= at ? x->dim[i] : 1; /* of an empty x no element is reached */
    }
    for (int i = 0; i < x->rank; i++)
        if (gone[i]) {
            w.gone_dim[w.n_gone] = x->dim[i];
            w.gone_stride[w.n_gone++] = stride[i];
        } else {
            w.kept_dim[w.n_kept] = x->dim[i];
            w.kept_stride[w.n_kept++] = stride[i];
            w.n_out *= x->dim[i];
        }
    w.n_each = w.n_out ? wf_type_count(x) / w.n_out : 0;
    return w;
}

static int64_t offset(int n, const int64_t *dim, const int64_t *stride, int64_t i)
{
    int64_t at = 0;

    for (int a = n - 1; a >= 0; a--) {
        at += i % dim[a] * stride[a];
        i /= dim[a];
    }
    return at;
}

/* The offset in x of element `k` of result `i`. */
static int64_t walk_at(const struct walk *w, int64_t i, int64_t k)
{
    return offset(w->n_kept, w->kept_dim, w->kept_stride, i) +
           offset(w->n_gone, w->gone_dim, w->gone_stride, k);
}

static void marked_axes(const struct wf_call *c, int rank, bool gone[WEFT_MAX_RANK])
{
    const struct wf_attr *axes = wf_call_attr(c, "axes");

    for (int i = 0; i < WEFT_MAX_RANK; i++)
        gone[i] = axes->n == 0;
    for (int i = 0; i < axes->n; i++)
        gone[axes->ints[i] < 0 ? axes->ints[i] + rank : axes->ints[i]] = true;
}

static struct walk walk_axes(const struct wf_call *c)
{
    bool gone[WEFT_MAX_RANK];

    marked_axes(c, c->in[0].type.rank, gone);
    return walk_over(&c->in[0].type, gone);
}

static int64_t get_int(const struct wf_tensor *t, int64_t i)
{
    return wf_get_int(t->data, t->type.dtype, i);
}

/* ---- reductions ------------------------------------------------------------------------------ */

typedef double step_fn(double acc, double x);
typedef int64_t step_int_fn(int64_t acc, int64_t x);

static double reduce_one(const struct wf_tensor *x, const struct walk *w, int64_t i, double start,
                         step_fn *step)
{
    double acc = start;

    for (int64_t k = 0; k < w->n_each; k++)
        acc = step(acc, ref_get(x, walk_at(w, i, k)));
    return acc;
}

static weft_status reduce_walk(const struct wf_call *c, const struct walk *w, double start,
                               step_fn *step, int64_t start_int, step_int_fn *step_int)
{
    for (int64_t i = 0; i < w->n_out; i++)
        if (wf_is_float(c->in[0].type.dtype)) {
            ref_set(&c->out[0], i, reduce_one(&c->in[0], w, i, start, step));
        } else {
            int64_t acc = start_int;

            for (int64_t k = 0; k < w->n_each; k++)
                acc = step_int(acc, get_int(&c->in[0], walk_at(w, i, k)));
            wf_set_int(c->out[0].data, c->out[0].type.dtype, i, acc);
        }
    return WEFT_OK;
}

static weft_status reduce(const struct wf_call *c, double start, step_fn *step, int64_t start_int,
                          step_int_fn *step_int)
{
    struct walk w = walk_axes(c);

    return reduce_walk(c, &w, start, step, start_int, step_int);
}

static double plus(double a, double x)
{
    return a + x;
}

static double times(double a, double x)
{
    return a * x;
}

static double larger(double a, double x)
{
    return isnan(a) || a > x ? a : x;
}

static double smaller(double a, double x)
{
    return isnan(a) || a < x ? a : x;
}

static double plus_abs(double a, double x)
{
    return a + fabs(x);
}

static double plus_square(double a, double x)
{
    return a + x * x;
}

static int64_t plus_int(int64_t a, int64_t x)
{
    uint64_t s = (uint64_t)a + (uint64_t)x; /* wraps around */

    memcpy(&a, &s, sizeof a);
    return a;
}

static int64_t times_int(int64_t a, int64_t x)
{
    uint64_t p = (uint64_t)a * (uint64_t)x;

    memcpy(&a, &p, sizeof a);
    return a;
}

static int64_t larger_int(int64_t a, int64_t x)
{
    return a > x ? a : x;
}

static int64_t smaller_int(int64_t a, int64_t x)
{
    return a < x ? a : x;
}

static int64_t lowest(weft_dtype t)
{
    return t == WEFT_U8 ? 0 : t == WEFT_I8 ? INT8_MIN : t == WEFT_I32 ? INT32_MIN : INT64_MIN;
}

static int64_t highest(weft_dtype t)
{
    return t == WEFT_U8    ? UINT8_MAX
           : t == WEFT_I8  ? INT8_MAX
           : t == WEFT_I32 ? INT32_MAX
                           : INT64_MAX;
}

weft_status wf_ref_sum(const struct wf_call *c)
{
    return reduce(c, 0, plus, 0, plus_int);
}

weft_status wf_ref_prod(const struct wf_call *c)
{
    return reduce(c, 1, times, 1, times_int);
}

weft_status wf_ref_reduce_max(const struct wf_call *c)
{
    return reduce(c, -INFINITY, larger, lowest(c->in[0].type.dtype), larger_int);
}

weft_status wf_ref_reduce_min(const struct wf_call *c)
{
    return reduce(c, INFINITY, smaller, highest(c->in[0].type.dtype), smaller_int);
}

weft_status wf_ref_any(const struct wf_call *c)
{
    return reduce(c, 0, larger, 0, larger_int);
}

weft_status wf_ref_all(const struct wf_call *c)
{
    return reduce(c, 1, smaller, 1, smaller_int);
}

weft_status wf_ref_norm_l1(const struct wf_call *c)
{
    return reduce(c, 0, plus_abs, 0, NULL);
}

weft_status wf_ref_mean(const struct wf_call *c)
{
    struct walk w = walk_axes(c);

    for (int64_t i = 0; i < w.n_out; i++)
        ref_set(&c->out[0], i, reduce_one(&c->in[0], &w, i, 0, plus) / (double)w.n_each);
    return WEFT_OK;
}

weft_status wf_ref_norm_l2(const struct wf_call *c)
{
    struct walk w = walk_axes(c);

    for (int64_t i = 0; i < w.n_out; i++)
        ref_set(&c->out[0], i, sqrt(reduce_one(&c->in[0], &w, i, 0, plus_square)));
    return WEFT_OK;
}

weft_status wf_ref_logsumexp(const struct wf_call *c)
{
    struct walk w = walk_axes(c);

    for (int64_t i = 0; i < w.n_out; i++) {
        double m = reduce_one(&c->in[0], &w, i, -INFINITY, larger), sum = 0;

        for (int64_t k = 0; k < w.n_each && isfinite(m); k++)
            sum += exp(ref_get(&c->in[0], walk_at(&w, i, k)) - m);
        ref_set(&c->out[0], i, isfinite(m) ? m + log(sum) : m);
    }
    return WEFT_OK;
}

/* The product of the others is that of all divided by x, but for zeros: beside one zero all others are 0. */
weft_status wf_ref_prod_grad(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[1];
    bool gone[WEFT_MAX_RANK];
    struct walk w;

    marked_axes(c, x->type.rank, gone);
    w = walk_over(&x->type, gone);
    for (int64_t i = 0; i < w.n_out; i++) {
        double rest = ref_get(&c->in[0], i);
        int64_t n_zeros = 0;

        for (int64_t k = 0; k < w.n_each; k++) {
            double v = ref_get(x, walk_at(&w, i, k));

            n_zeros += v == 0;
            rest *= v == 0 ? 1 : v;
        }
        for (int64_t k = 0; k < w.n_each; k++) {
            int64_t at = walk_at(&w, i, k);
            double v = ref_get(x, at);

            ref_set(&c->out[0], at, n_zeros > (v == 0) ? 0 : v == 0 ? rest : rest / v);
        }
    }
    return WEFT_OK;
}

/* ---- along one axis --------------------------------------------------------------------------- */

static struct walk walk_axis(const struct wf_call *c)
{
    bool gone[WEFT_MAX_RANK] = {false};
    int64_t axis = wf_call_int(c, "axis");

    gone[axis < 0 ? axis + c->in[0].type.rank : axis] = true;
    return walk_over(&c->in[0].type, gone);
}

static weft_status arg(const struct wf_call *c, bool max)
{
    struct walk w = walk_axis(c);
    const struct wf_tensor *x = &c->in[0];
    bool floats = wf_is_float(x->type.dtype);

    for (int64_t i = 0; i < w.n_out; i++) {
        int64_t best = 0;

        for (int64_t k = 1; k < w.n_each; k++) {
            int64_t ib = walk_at(&w, i, best), ik = walk_at(&w, i, k);
            bool better;

            if (floats) {
                double b = ref_get(x, ib), v = ref_get(x, ik);

                better = !isnan(b) && (isnan(v) || (max ? v > b : v < b));
            } else {
                better = max ? get_int(x, ik) > get_int(x, ib) : get_int(x, ik) < get_int(x, ib);
            }
            best = better ? k : best;
        }
        wf_set_int(c->out[0].data, c->out[0].type.dtype, i, best);
    }
    return WEFT_OK;
}

weft_status wf_ref_argmax(const struct wf_call *c)
{
    return arg(c, true);
}

weft_status wf_ref_argmin(const struct wf_call *c)
{
    return arg(c, false);
}

weft_status wf_ref_cumsum(const struct wf_call *c)
{
    struct walk w = walk_axis(c);
    bool exclusive = wf_call_int(c, "exclusive"), reverse = wf_call_int(c, "reverse");
    bool floats = wf_is_float(c->in[0].type.dtype);

    for (int64_t i = 0; i < w.n_out; i++) {
        double sum = 0;
        int64_t whole = 0;

        for (int64_t k = 0; k < w.n_each; k++) {
            int64_t at = walk_at(&w, i, reverse ? w.n_each - 1 - k : k);
            double before = sum, x = floats ? ref_get(&c->in[0], at) : 0;
            int64_t whole_before = whole;

            sum += x;
            whole = floats ? 0 : plus_int(whole, get_int(&c->in[0], at));
            if (floats)
                ref_set(&c->out[0], at, exclusive ? before : sum);
            else
                wf_set_int(c->out[0].data, c->out[0].type.dtype, at,
                           exclusive ? whole_before : whole);
        }
    }
    return WEFT_OK;
}

weft_status wf_ref_segment_sum(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *ids = &c->in[1], *y = &c->out[0];
    int64_t n = x->type.dim[0], m = y->type.dim[0], width = m ? wf_count(y) / m : 0;

    for (int64_t i = 0; i < n; i++)
        if (get_int(ids, i) < 0 || get_int(ids, i) >= m)
            return wf_err(WEFT_EDATA, "segment_sum: ids[%lld] is %lld, there are %lld segments",
                          (long long)i, (long long)get_int(ids, i), (long long)m);
    for (int64_t s = 0; s < m; s++)
        for (int64_t k = 0; k < width; k++) {
            double sum = 0;
            int64_t whole = 0;

            for (int64_t i = 0; i < n; i++)
                if (get_int(ids, i) != s)
                    continue;
                else if (wf_is_float(x->type.dtype))
                    sum += ref_get(x, i * width + k);
                else
                    whole = plus_int(whole, get_int(x, i * width + k));
            if (wf_is_float(x->type.dtype))
                ref_set(y, s * width + k, sum);
            else
                wf_set_int(y->data, y->type.dtype, s * width + k, whole);
        }
    return WEFT_OK;
}

/* ---- following a shape ------------------------------------------------------------------------ */

weft_status wf_ref_reduce_to_like(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *to = &c->out[0].type;
    bool gone[WEFT_MAX_RANK] = {false};
    struct walk w;

    for (int i = 0, skip = x->rank - to->rank; i < x->rank; i++)
        gone[i] = i < skip || to->dim[i - skip] == 1;
    w = walk_over(x, gone);
    return reduce_walk(c, &w, 0, plus, 0, plus_int);
}

weft_status wf_ref_broadcast(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]), size = weft_dtype_size(c->out[0].type.dtype);

    for (int64_t i = 0; i < n; i++)
        memcpy((char *)c->out[0].data + i * size,
               (const char *)c->in[0].data +
                   wf_ref_broadcast_index(&c->in[0].type, &c->out[0].type, i) * size,
               (size_t)size);
    return WEFT_OK;
}

weft_status wf_ref_size_of(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type;
    bool gone[WEFT_MAX_RANK];
    double n = 1;

    marked_axes(c, x->rank, gone);
    for (int i = 0; i < x->rank; i++)
        n *= gone[i] ? (double)x->dim[i] : 1;
    ref_set(&c->out[0], 0, n);
    return WEFT_OK;
}

static weft_status set_all(const struct wf_call *c, double v)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, v);
    return WEFT_OK;
}

weft_status wf_ref_zeros(const struct wf_call *c)
{
    return set_all(c, 0);
}

weft_status wf_ref_ones(const struct wf_call *c)
{
    return set_all(c, 1);
}

weft_status wf_ref_full(const struct wf_call *c)
{
    return set_all(c, wf_call_float(c, "value"));
}
