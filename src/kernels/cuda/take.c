/* take.c - which ops have kernels for types other than those of their rules: a half written where
 * the rule says f32, or read where it says f32. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"

static bool is_half(weft_dtype t)
{
    return t == WEFT_BF16 || t == WEFT_F16;
}

static bool is_small(weft_dtype t)
{
    return t == WEFT_F32 || is_half(t);
}

static weft_dtype dtype_of(int i, int n, const struct wf_type *t)
{
    return i < n ? t[i].dtype : WEFT_NONE;
}

/* x, gamma?, beta?: y, statistics */
static bool takes_norm(const struct wf_op *op, const struct wf_attr *attr, int n_in,
                       const struct wf_type *in, int n_out, const struct wf_type *out)
{
    weft_dtype gamma = dtype_of(1, n_in, in), beta = dtype_of(2, n_in, in);

    for (int i = 1; i < n_out; i++)
        if (out[i].dtype != WEFT_F32)
            return false;
    return wfc_takes_ln(op, attr, &in[0]) && is_small(out[0].dtype) &&
           (!gamma || is_small(gamma)) && (!beta || is_small(beta)) &&
           (!gamma || !beta || gamma == beta);
}

/* dy, x, statistics, gamma?: dx, gradients of the parameters */
static bool takes_norm_grad(const struct wf_op *op, const struct wf_attr *attr, int n_in,
                            const struct wf_type *in, int n_out, const struct wf_type *out)
{
    int gamma = op->id == WF_OP_rms_norm_grad ? 3 : 4;

    for (int i = 2; i < gamma; i++)
        if (in[i].dtype != WEFT_F32)
            return false;
    for (int i = 1; i < n_out; i++)
        if (!is_small(out[i].dtype) || out[i].dtype != out[1].dtype)
            return false;
    return wfc_takes_ln(op, attr, &in[1]) && is_small(in[0].dtype) && out[0].dtype == in[1].dtype &&
           (gamma >= n_in || !in[gamma].dtype || in[gamma].dtype == out[1].dtype);
}

/* The same with an addition: dy, x, statistics, gamma, other: dx + other, gradients of the
 * parameters, and dx + other again. */
static bool takes_norm_sum(const struct wf_op *op, const struct wf_attr *attr,
                           const struct wf_type *in, int n_out, const struct wf_type *out)
{
    return takes_norm_grad(op, attr, 5, in, 3, out) && in[1].dtype == WEFT_F32 &&
           in[5].dtype == WEFT_F32 && (n_out < 4 || is_small(out[3].dtype));
}

/* Gradients of weights, from halves: sums are f32 anyway. */
static bool takes_product(const struct wf_op *op, const struct wf_attr *attr,
                          const struct wf_type *in, const struct wf_type *out)
{
    return is_half(in[0].dtype) && in[0].dtype == in[1].dtype && out->dtype == WEFT_F32 &&
           in[0].rank == 2 && in[1].rank == 2 && wf_attr_int(op, attr, "trans_a") &&
           !wf_attr_int(op, attr, "trans_b");
}

/* Gradients of filters, likewise. */
static bool takes_filter(const struct wf_type *in, const struct wf_type *out)
{
    return is_half(in[0].dtype) && in[0].dtype == in[1].dtype && out->dtype == WEFT_F32;
}

bool wf_cuda_can_take(const struct wf_op *op, const struct wf_attr *attr, int n_in,
                      const struct wf_type *in, int n_out, const struct wf_type *out)
{
    for (int i = 0; i < n_in; i++)
        if (!wfc_type_fits(&in[i]))
            return false;
    for (int i = 0; i < n_out; i++)
        if (!wfc_type_fits(&out[i]))
            return false;
    switch (op->id) {
    case WF_OP_batch_norm_act:
        return wfc_takes_bn(&in[0], &in[1], &in[2]) && is_small(in[1].dtype) &&
               (n_in < 4 || in[3].dtype == in[0].dtype);
    case WF_OP_layer_norm:
    case WF_OP_rms_norm: return takes_norm(op, attr, n_in, in, n_out, out);
    case WF_OP_layer_norm_grad:
    case WF_OP_rms_norm_grad: return takes_norm_grad(op, attr, n_in, in, n_out, out);
    case WF_OP_sparse_softmax_xent:
        return is_small(in[0].dtype) && out[0].dtype == WEFT_F32 && is_small(out[1].dtype);
    case WF_OP_sum: return is_half(in[0].dtype) && is_small(out[0].dtype);
    case WF_OP_layer_norm_grad_add: return takes_norm_sum(op, attr, in, n_out, out);
    case WF_OP_matmul: return takes_product(op, attr, in, out);
    case WF_OP_conv_grad_filter: return takes_filter(in, out);
    default: return false;
    }
}

#endif
