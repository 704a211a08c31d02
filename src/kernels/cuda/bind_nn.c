/* bind_nn.c - softmax and the losses on it, normalizations. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/shape.h"

weft_status wfc_plan_norm_grad(struct wf_kplan *p);
weft_status wfc_plan_bn(struct wf_kplan *p);
weft_status wfc_plan_ln(struct wf_kplan *p);
wf_kernel_fn wfc_run_softmax, wfc_run_softmax_grad, wfc_run_xent, wfc_run_masked_softmax,
    wfc_run_norm, wfc_run_norm_grad, wfc_run_bn, wfc_run_ln;

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

enum { XENT_WIDE = 512 }; /* classes from which on a block has one row */

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
    if (sparse && a.n >= XENT_WIDE && a.n % 8 == 0 && !wfc_wide(c)) {
        a.fault = wfc_fault(c);
        a.kept = weft_dtype_size(x->dtype) == 2 && a.n <= WFC_XENT_KEPT;
        return wfc_launch_with(c, WFC_K_wfc_xent_wide, a.n_rows, 1, WFC_XENT_THREADS,
                               a.kept ? a.n * sizeof(uint16_t) : 0, &a);
    }
    if (sparse && a.n <= WFC_SHORT_ROW && a.x_dtype == WFC_F32 && a.y_dtype == WFC_F32 &&
        a.loss_dtype == WFC_F32) {
        a.fault = wfc_fault(c);
        return wfc_launch(c, WFC_K_wfc_xent_small, (a.n_rows + 31) / 32, 1, 32, &a);
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

static bool in_pieces(weft_dtype t)
{
    return t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16;
}

/* ---- batch normalization in pieces of 8 channels: dev/wide.inl ------------------------------- */

/* At most as many blocks: all of them run at the same time on large GPUs. Rows of a thread at
 * least. */
enum { BN_BLOCKS = 264, BN_ROWS = 16 };

/* Blocks side by side, for all channels. */
static int64_t bn_across(const struct wfc_bn *a)
{
    return (a->channels / 8 + a->cols - 1) / a->cols;
}

/* x is operand 0, of the gradient 1. */
static struct wfc_bn bn_sizes(const struct wf_type *x)
{
    struct wfc_bn a = {.channels = (uint32_t)x->dim[x->rank - 1],
                       .n_rows = (uint32_t)wf_type_part(x, 0, x->rank - 1),
                       .cols = 1,
                       .dtype = (int32_t)x->dtype};
    int64_t least;

    while (a.cols < 32 && (uint32_t)a.cols * 16 <= a.channels)
        a.cols *= 2;
    least = (int64_t)WFC_THREADS / a.cols * BN_ROWS;
    a.n_chunks = (uint32_t)wf_max_i64(
        1, wf_min_i64(BN_BLOCKS / bn_across(&a), (a.n_rows + least - 1) / least));
    return a;
}

static bool is_bn_grad(const struct wf_op *op)
{
    return op->id == WF_OP_batch_norm_grad || op->id == WF_OP_batch_norm_act_grad;
}

bool wfc_takes_bn(const struct wf_type *x, const struct wf_type *gamma, const struct wf_type *beta)
{
    return in_pieces(x->dtype) && x->dim[x->rank - 1] % 8 == 0 && wf_type_count(x) &&
           (!gamma || !beta || !gamma->dtype || !beta->dtype || gamma->dtype == beta->dtype);
}

weft_status wfc_plan_bn(struct wf_kplan *p)
{
    bool grad = is_bn_grad(p->op);
    const struct wf_type *x = &p->in[grad ? 1 : 0];
    const struct wf_type *gamma = p->n_in > 1 ? &p->in[1] : NULL,
                         *beta = p->n_in > 2 ? &p->in[2] : NULL;
    struct wfc_bn a;
    weft_status st = wfc_plan_floats(p);

    if (st || !wfc_takes_bn(x, grad ? NULL : gamma, grad ? NULL : beta))
        return WEFT_ENOSUP;
    a = bn_sizes(x);
    p->scratch_bytes = (size_t)(a.n_chunks + 1) * 2 * a.channels * sizeof(float);
    return WEFT_OK;
}

weft_status wfc_run_bn(const struct wf_call *c)
{
    bool grad = is_bn_grad(c->op);
    struct wfc_bn a = bn_sizes(&c->in[grad ? 1 : 0].type);
    int64_t gx = bn_across(&a);
    int gamma = grad ? 4 : 1;
    weft_status st;

    a.epsilon = wf_call_float(c, "epsilon");
    a.part = c->scratch;
    a.coef = a.part + (size_t)a.n_chunks * 2 * a.channels;
    a.x = c->in[grad ? 1 : 0].data;
    a.gamma = optional(c, gamma);
    a.y = c->out[0].data;
    a.relu = c->op->id == WF_OP_batch_norm_act || c->op->id == WF_OP_batch_norm_act_grad;
    if (grad) {
        a.beta = a.relu ? c->in[5].data : NULL;
        a.dy = c->in[0].data;
        a.mean = c->in[2].data;
        a.var = c->in[3].data;
        a.param_dtype = (int32_t)c->out[1].type.dtype;
        a.dgamma = c->out[1].data;
        a.dbeta = c->out[2].data;
    } else {
        a.beta = optional(c, 2);
        a.skip = a.relu ? optional(c, 3) : NULL;
        a.mean = c->out[1].data;
        a.var = c->out[2].data;
        a.param_dtype = (int32_t)(a.gamma  ? c->in[1].type.dtype
                                  : a.beta ? c->in[2].type.dtype
                                           : c->in[0].type.dtype);
    }
    st = wfc_launch(c, WFC_K_wfc_bn_sums, gx, a.n_chunks, WFC_THREADS, &a);
    if (!st)
        st = wfc_launch(c, WFC_K_wfc_bn_end, a.channels / 8, 1, WFC_THREADS, &a);
    return st ? st : wfc_launch(c, WFC_K_wfc_bn_apply, gx, a.n_chunks, WFC_THREADS, &a);
}

/* ---- layer normalization, a warp for each row: dev/wide.inl ---------------------------------- */

/* Up to LN_NARROW values of a gradient are a warp's. */
enum { LN_BLOCKS = 528, LN_ROWS = WFC_THREADS / 32, LN_NARROW = 256 };

static bool of_rows(const struct wf_op *op, bool *grad)
{
    *grad = op->id == WF_OP_layer_norm_grad || op->id == WF_OP_rms_norm_grad ||
            op->id == WF_OP_layer_norm_grad_add;
    return op->id == WF_OP_layer_norm || op->id == WF_OP_layer_norm_grad ||
           op->id == WF_OP_layer_norm_grad_add;
}

static struct wfc_ln ln_sizes(const struct wf_op *op, const struct wf_attr *attr,
                              const struct wf_type *x)
{
    int cut = x->rank - (int)wf_attr_int(op, attr, "n_axes");
    struct wfc_ln a = {.n_rows = (uint32_t)wf_type_part(x, 0, cut),
                       .width = (uint32_t)wf_type_part(x, cut, x->rank),
                       .dtype = (int32_t)x->dtype};
    int64_t rows = (a.n_rows + LN_BLOCKS - 1) / LN_BLOCKS;

    a.chunk = (uint32_t)wf_round_up(wf_max_i64(rows, 1), LN_ROWS);
    a.n_chunks = (a.n_rows + a.chunk - 1) / a.chunk;
    return a;
}

bool wfc_takes_ln(const struct wf_op *op, const struct wf_attr *attr, const struct wf_type *x)
{
    struct wfc_ln a = ln_sizes(op, attr, x);

    return in_pieces(x->dtype) && a.n_rows && a.width && a.width % 8 == 0 &&
           a.width <= WFC_LN_WIDTH;
}

weft_status wfc_plan_ln(struct wf_kplan *p)
{
    bool grad, centered = of_rows(p->op, &grad);
    const struct wf_type *x = &p->in[grad ? 1 : 0];
    struct wfc_ln a = ln_sizes(p->op, p->attr, x);
    weft_status st = wfc_plan_floats(p);

    if (st || !wfc_takes_ln(p->op, p->attr, x))
        return WEFT_ENOSUP;
    if (!grad && centered && p->n_in > 2 && p->in[1].dtype && p->in[2].dtype &&
        p->in[1].dtype != p->in[2].dtype)
        return WEFT_ENOSUP;
    if (grad)
        p->scratch_bytes = (size_t)a.n_chunks * 2 * a.width * sizeof(float);
    return WEFT_OK;
}

static weft_status run_ln_grad(const struct wf_call *c, struct wfc_ln *a)
{
    weft_status st;

    a->dy = c->in[0].data;
    a->x = c->in[1].data;
    a->mean = a->centered ? c->in[2].data : NULL;
    a->rate = c->in[a->centered ? 3 : 2].data;
    a->gamma = optional(c, a->centered ? 4 : 3);
    a->param_dtype = (int32_t)c->out[1].type.dtype;
    a->dy_dtype = (int32_t)c->in[0].type.dtype;
    a->y = c->out[0].data;
    a->y_dtype = (int32_t)c->out[0].type.dtype;
    a->dgamma = c->out[1].data;
    a->dbeta = c->n_out > 2 ? c->out[2].data : NULL;
    if (c->op->id == WF_OP_layer_norm_grad_add)
        a->other = c->in[5].data;
    if (c->n_out > 3) {
        a->rounded = c->out[3].data;
        a->round_dtype = (int32_t)c->out[3].type.dtype;
    }
    a->part = c->scratch;
    st = a->width > LN_NARROW
             ? wfc_launch(c, WFC_K_wfc_ln_back_wide, a->n_chunks, 1, WFC_LN_BACK_THREADS, a)
             : wfc_launch(c, WFC_K_wfc_ln_back, a->n_chunks, 1, WFC_THREADS, a);
    return st ? st : wfc_launch(c, WFC_K_wfc_ln_end, a->width / 8, 1, WFC_THREADS, a);
}

weft_status wfc_run_ln(const struct wf_call *c)
{
    bool grad, centered = of_rows(c->op, &grad);
    struct wfc_ln a = ln_sizes(c->op, c->attr, &c->in[grad ? 1 : 0].type);

    a.centered = centered;
    if (grad)
        return run_ln_grad(c, &a);
    a.epsilon = wf_call_float(c, "epsilon");
    a.x = c->in[0].data;
    a.gamma = optional(c, 1);
    a.beta = centered ? optional(c, 2) : NULL;
    a.param_dtype = (int32_t)(a.gamma  ? c->in[1].type.dtype
                              : a.beta ? c->in[2].type.dtype
                                       : c->in[0].type.dtype);
    a.y = c->out[0].data;
    a.y_dtype = (int32_t)c->out[0].type.dtype;
    a.mean = centered ? c->out[1].data : NULL;
    a.rate = c->out[centered ? 2 : 1].data;
    return wfc_launch(c, WFC_K_wfc_ln, (a.n_rows + LN_ROWS - 1) / LN_ROWS, 1, WFC_THREADS, &a);
}

#endif
