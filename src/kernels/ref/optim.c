/* optim.c - reference kernels of updates: the portable optimizer functions, one thread. Their
 * formulas are in op/optim.h and are tested against plain double code. */
#include <math.h>

#include "kernels/cpu/apply.h"
#include "kernels/ref/ref.h"

weft_status wf_plan_ref_apply(struct wf_kplan *p);
weft_status wf_plan_ref_apply_rows(struct wf_kplan *p);

weft_status wf_plan_ref_apply(struct wf_kplan *p)
{
    p->scratch_bytes = (size_t)wf_norm_blocks(wf_type_count(&p->in[0])) * 2 * sizeof(double);
    return WEFT_OK;
}

weft_status wf_plan_ref_apply_rows(struct wf_kplan *p)
{
    p->scratch_bytes = wf_apply_rows_scratch(wf_type_count(&p->in[1]));
    return WEFT_OK;
}

weft_status wf_ref_apply(const struct wf_call *c)
{
    struct wf_apply a;

    wf_apply_init(&a, c->op, c->attr, WEFT_SIMD_PORTABLE);
    wf_apply_run(&a, c, NULL, c->scratch);
    return WEFT_OK;
}

weft_status wf_ref_apply_rows(const struct wf_call *c)
{
    struct wf_apply a;

    wf_apply_init(&a, c->op, c->attr, WEFT_SIMD_PORTABLE);
    return wf_apply_rows_run(&a, c, NULL, c->scratch);
}

weft_status wf_ref_clip_factor(const struct wf_call *c)
{
    double limit = wf_call_float(c, "limit"), norm;
    weft_status st = wf_ref_global_norm(c);

    norm = ref_get(&c->out[0], 0);
    if (!st)
        ref_set(&c->out[0], 0, !(norm < INFINITY) ? NAN : norm > limit ? limit / norm : 1);
    return st;
}

/* The product of rows (or columns) i and j of w, and the norm of one, at least 1e-6. */
static double product(const struct wf_tensor *w, bool columns, int64_t i, int64_t j)
{
    int64_t n = w->type.dim[columns ? 0 : 1], width = w->type.dim[1];
    double sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += columns ? ref_get(w, k * width + i) * ref_get(w, k * width + j)
                       : ref_get(w, i * width + k) * ref_get(w, j * width + k);
    return sum;
}

static double norm_of(const struct wf_tensor *w, bool columns, int64_t i)
{
    return fmax(sqrt(product(w, columns, i, i)), 1e-6);
}

/* d/dw of the mean |cosine| over all pairs, at element (i, k): i the row or column, k its item. */
static double orthogonal_at(const struct wf_tensor *w, bool columns, int64_t i, int64_t k)
{
    int64_t n = w->type.dim[columns ? 1 : 0], width = w->type.dim[1];
    double norm = norm_of(w, columns, i), own, sum = 0;

    own = ref_get(w, columns ? k * width + i : i * width + k) / norm;
    for (int64_t j = 0; j < n; j++) {
        double other = norm_of(w, columns, j), cosine = product(w, columns, i, j) / norm / other;
        double item = ref_get(w, columns ? k * width + j : j * width + k) / other;

        if (j == i || cosine == 0)
            continue;
        if (norm > 1e-6) /* u = w / |w| */
            item -= cosine * own;
        sum += cosine > 0 ? item : -item;
    }
    return n > 1 ? 2 * sum / norm / ((double)n * (double)(n - 1)) : 0;
}

weft_status wf_ref_penalty_grad(const struct wf_call *c)
{
    const struct wf_tensor *w = &c->in[0];
    double l1 = wf_call_float(c, "l1"), l2 = wf_call_float(c, "l2"),
           orthogonal = wf_call_float(c, "orthogonal");
    bool columns = wf_call_int(c, "columns");

    for (int64_t i = 0; i < wf_count(w); i++) {
        double x = ref_get(w, i), g = l1 * (x > 0 ? 1 : x < 0 ? -1 : 0) + 2 * l2 * x;
        int64_t width = w->type.rank == 2 ? w->type.dim[1] : 1, r = i / width, k = i % width;

        if (orthogonal != 0)
            g += orthogonal * orthogonal_at(w, columns, columns ? k : r, columns ? r : k);
        ref_set(&c->out[0], i, g);
    }
    return WEFT_OK;
}

/* Plans of reference kernels are made without fusion. */
weft_status wf_ref_fused(const struct wf_call *c)
{
    return wf_err(WEFT_ENOSUP, "%s: a step of the program has no kernel", c->op->name);
}

weft_status wf_ref_matmul_fused(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_conv_fused(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_matmul_sums(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_matmul_apply(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_batch_norm_act(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_batch_norm_act_grad(const struct wf_call *c)
{
    return wf_ref_fused(c);
}

weft_status wf_ref_layer_norm_grad_add(const struct wf_call *c)
{
    return wf_ref_fused(c);
}
