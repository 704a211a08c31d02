/* bind_nn.c - softmax and the losses on it, normalizations. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/shape.h"

weft_status wfc_plan_norm_grad(struct wf_kplan *p);
wf_kernel_fn wfc_run_softmax, wfc_run_softmax_grad, wfc_run_xent, wfc_run_masked_softmax,
    wfc_run_norm, wfc_run_norm_grad;

/* Threads that share n elements: a power of two, each with at least a few of them. */
static int lanes_for(int64_t n)
{
    int lanes = 1;

    while (lanes < WFC_THREADS && lanes * 4 < n)
        lanes *= 2;
    return lanes;
}

static weft_status launch_rows(const struct wf_call *c, int kernel, struct wfc_rows_args *a)
{
    int64_t per_block;

    a->lanes = lanes_for(a->n);
    a->fault = wfc_fault(c);
    per_block = WFC_THREADS / a->lanes;
    return wfc_launch(c, kernel + wfc_wide(c), (a->n_rows + per_block - 1) / per_block, 1,
                      WFC_THREADS, a);
}

/* Rows along the attribute "axis". */
static struct wfc_rows_args rows_of(const struct wf_call *c)
{
    const struct wf_type *t = &c->out[0].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), t->rank);
    struct wfc_rows_args a = {.n = (uint32_t)t->dim[axis],
                              .stride = (uint32_t)wf_type_part(t, axis + 1, t->rank),
                              .x_dtype = (int32_t)c->in[0].type.dtype,
                              .y_dtype = (int32_t)t->dtype,
                              .x = c->in[0].data,
                              .y = c->out[0].data};

    a.n_rows = a.n ? (uint32_t)(wf_type_part(t, 0, axis) * a.stride) : 0;
    return a;
}

weft_status wfc_run_softmax(const struct wf_call *c)
{
    struct wfc_rows_args a = rows_of(c);

    a.code = c->op->id == WF_OP_softmax ? WFC_SOFTMAX : WFC_LOG_SOFTMAX;
    return launch_rows(c, WFC_K_wfc_softmax, &a);
}

weft_status wfc_run_softmax_grad(const struct wf_call *c)
{
    struct wfc_rows_args a = rows_of(c);

    a.code = c->op->id == WF_OP_softmax_grad ? WFC_SOFTMAX_GRAD : WFC_LOG_SOFTMAX_GRAD;
    a.b = c->in[1].data;
    a.b_dtype = (int32_t)c->in[1].type.dtype;
    return launch_rows(c, WFC_K_wfc_softmax_grad, &a);
}

weft_status wfc_run_xent(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type;
    bool sparse = c->op->id == WF_OP_sparse_softmax_xent;
    struct wfc_rows_args a = {.n = (uint32_t)x->dim[x->rank - 1],
                              .n_rows = (uint32_t)wf_type_part(x, 0, x->rank - 1),
                              .stride = 1,
                              .code = sparse ? WFC_SPARSE_XENT : WFC_DENSE_XENT,
                              .x_dtype = (int32_t)x->dtype,
                              .y_dtype = (int32_t)c->out[1].type.dtype,
                              .b_dtype = (int32_t)c->in[1].type.dtype,
                              .loss_dtype = (int32_t)c->out[0].type.dtype,
                              .x = c->in[0].data,
                              .b = c->in[1].data,
                              .y = c->out[1].data,
                              .loss = c->out[0].data};

    if (sparse) {
        a.ignore = (int32_t)wf_call_int(c, "ignore");
        a.ignored = wf_call_int(c, "ignore_index");
        a.scale = wf_call_float(c, "scale");
    }
    return launch_rows(c, WFC_K_wfc_softmax, &a);
}

weft_status wfc_run_masked_softmax(const struct wf_call *c)
{
    const struct wf_type *t = &c->in[0].type;
    bool masked = c->n_in > 1 && c->in[1].data;
    struct wfc_rows_args a = {.n = (uint32_t)t->dim[t->rank - 1],
                              .n_rows = (uint32_t)wf_count(&c->out[1]),
                              .stride = 1,
                              .code = WFC_MASKED_SOFTMAX,
                              .x_dtype = (int32_t)t->dtype,
                              .y_dtype = (int32_t)c->out[0].type.dtype,
                              .loss_dtype = (int32_t)c->out[1].type.dtype,
                              .causal = (int32_t)wf_call_int(c, "causal"),
                              .n_q = (int32_t)t->dim[t->rank - 2],
                              .x = c->in[0].data,
                              .y = c->out[0].data,
                              .loss = c->out[1].data};

    if (masked) {
        a.b = c->in[1].data;
        a.b_dtype = (int32_t)c->in[1].type.dtype;
        a.mask = wfc_broadcast_box(&c->in[1].type, t);
    }
    return launch_rows(c, WFC_K_wfc_softmax, &a);
}

/* ---- normalizations -------------------------------------------------------------------------- */

/* Which elements of x are normalized together: dev/both.inl. */
static struct wfc_norm sets_of(const struct wf_op *op, const struct wf_attr *attr,
                               const struct wf_type *x)
{
    uint32_t channels = (uint32_t)x->dim[x->rank - 1];
    struct wfc_norm a = {.centered = 1, .dtype = (int32_t)x->dtype};

    switch (op->id) {
    case WF_OP_batch_norm:
    case WF_OP_batch_norm_grad:
        a.n_outer = 1;
        a.n_space = (uint32_t)wf_type_part(x, 0, x->rank - 1);
        a.n_groups = channels;
        a.n_in_group = 1;
        a.n_channels = channels;
        a.want_var = 1;
        break;
    case WF_OP_group_norm:
    case WF_OP_group_norm_grad: {
        int64_t groups = wf_attr_int(op, attr, "groups");

        a.n_outer = (uint32_t)x->dim[0];
        a.n_space = (uint32_t)wf_type_part(x, 1, x->rank - 1);
        a.n_groups = groups < 0 ? channels : (uint32_t)groups;
        a.n_in_group = a.n_groups ? channels / a.n_groups : 0;
        a.n_channels = channels;
        a.want_var = 1;
        break;
    }
    default: {
        int cut = x->rank - (int)wf_attr_int(op, attr, "n_axes");

        a.n_outer = (uint32_t)wf_type_part(x, 0, cut);
        a.n_space = 1;
        a.n_groups = 1;
        a.n_in_group = (uint32_t)wf_type_part(x, cut, x->rank);
        a.n_channels = a.n_in_group;
        a.centered = op->id == WF_OP_layer_norm || op->id == WF_OP_layer_norm_grad;
    }
    }
    a.lanes = lanes_for((int64_t)a.n_space * a.n_in_group);
    return a;
}

static const void *optional(const struct wf_call *c, int i)
{
    return i < c->n_in ? c->in[i].data : NULL;
}

static int64_t blocks_of(const struct wfc_norm *a)
{
    int64_t per_block = WFC_THREADS / a->lanes;

    return ((int64_t)a->n_outer * a->n_groups + per_block - 1) / per_block;
}

weft_status wfc_run_norm(const struct wf_call *c)
{
    struct wfc_norm a = sets_of(c->op, c->attr, &c->in[0].type);

    a.epsilon = wf_call_float(c, "epsilon");
    a.x = c->in[0].data;
    a.gamma = optional(c, 1);
    a.beta = a.centered ? optional(c, 2) : NULL;
    a.param_dtype = (int32_t)(a.gamma  ? c->in[1].type.dtype
                              : a.beta ? c->in[2].type.dtype
                                       : c->in[0].type.dtype);
    a.stat_dtype = (int32_t)c->out[1].type.dtype;
    a.y = c->out[0].data;
    a.mean = a.centered ? c->out[1].data : NULL;
    a.spread = c->out[a.centered ? 2 : 1].data;
    return wfc_launch(c, WFC_K_wfc_norm + wfc_wide(c), blocks_of(&a), 1, WFC_THREADS, &a);
}

/* Rows of [n_rows][n_channels] in chunks for the gradients of the parameters. */
static void set_chunks(struct wfc_norm *a, const struct wf_type *x)
{
    int64_t n = wf_type_count(x), most;

    a->n_rows = a->n_channels ? (uint32_t)(n / a->n_channels) : 0;
    most = wf_max_i64(1, wf_min_i64(128, a->n_rows / 64));
    a->chunk = (uint32_t)wf_max_i64(1, (a->n_rows + most - 1) / most);
    a->n_chunks = (uint32_t)wf_max_i64(1, (a->n_rows + a->chunk - 1) / a->chunk);
}

weft_status wfc_plan_norm_grad(struct wf_kplan *p)
{
    struct wfc_norm a = sets_of(p->op, p->attr, &p->in[1]);

    set_chunks(&a, &p->in[1]);
    p->scratch_bytes = (size_t)a.n_chunks * 2 * a.n_channels * sizeof(double);
    return wfc_plan_floats(p);
}

weft_status wfc_run_norm_grad(const struct wf_call *c)
{
    struct wfc_norm a = sets_of(c->op, c->attr, &c->in[1].type);
    int gamma = a.centered ? 4 : 3, wide = wfc_wide(c);
    weft_status st;

    set_chunks(&a, &c->in[1].type);
    a.epsilon = a.want_var ? wf_call_float(c, "epsilon") : 0;
    a.dy = c->in[0].data;
    a.x = c->in[1].data;
    a.mean_in = a.centered ? c->in[2].data : NULL;
    a.spread_in = c->in[a.centered ? 3 : 2].data;
    a.stat_dtype = (int32_t)c->in[2].type.dtype;
    a.gamma = optional(c, gamma);
    a.param_dtype = (int32_t)c->out[1].type.dtype;
    a.y = c->out[0].data;
    a.dgamma = c->out[1].data;
    a.dbeta = c->n_out > 2 ? c->out[2].data : NULL;
    a.part = c->scratch;
    st = wf_count(&c->in[1])
             ? wfc_launch(c, WFC_K_wfc_norm_grad + wide, blocks_of(&a), 1, WFC_THREADS, &a)
             : WEFT_OK;
    if (!st)
        st = wfc_launch(c, WFC_K_wfc_norm_params + wide, (a.n_channels + 31) / 32, a.n_chunks,
                        WFC_THREADS, &a);
    if (!st)
        st = wfc_launch_each(c, WFC_K_wfc_norm_params_end + wide, a.n_channels, &a);
    return st;
}

#endif
