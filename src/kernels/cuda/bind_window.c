/* bind_window.c - convolution, pooling, resizing. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/conv.h"

wf_kernel_fn wfc_run_conv, wfc_run_pool, wfc_run_resize;

static int64_t volume(const int64_t n[3])
{
    return n[0] * n[1] * n[2];
}

static struct wfc_window window_of(const struct wf_window *w)
{
    struct wfc_window o;

    for (int a = 0; a < 3; a++) {
        o.in[a] = (int32_t)w->in[a];
        o.out[a] = (int32_t)w->out[a];
        o.k[a] = (int32_t)w->k[a];
        o.stride[a] = (int32_t)w->stride[a];
        o.dilation[a] = (int32_t)w->dilation[a];
        o.lo[a] = (int32_t)w->lo[a];
    }
    return o;
}

weft_status wfc_run_conv(const struct wf_call *c)
{
    const struct wf_tensor *first = &c->in[0], *second = &c->in[1], *y = &c->out[0];
    struct wf_conv_geom g;
    struct wfc_conv a = {.x_dtype = (int32_t)first->type.dtype,
                         .y_dtype = (int32_t)y->type.dtype,
                         .x = first->data,
                         .f = second->data,
                         .y = y->data};

    switch (c->op->id) {
    case WF_OP_conv:
        a.code = WFC_CONV;
        wf_conv_geom_of(c->op, c->attr, &first->type, &second->type, &y->type, &g);
        break;
    case WF_OP_conv_grad_filter:
        a.code = WFC_CONV_FILTER;
        wf_conv_geom_of(c->op, c->attr, &first->type, &y->type, &second->type, &g);
        break;
    default: /* conv_grad_input, conv_transpose */
        a.code = WFC_CONV_INPUT;
        wf_conv_geom_of(c->op, c->attr, &y->type, &second->type, &first->type, &g);
    }
    a.w = window_of(&g.w);
    a.batch = (uint32_t)g.batch;
    a.n_in = (uint32_t)volume(g.w.in);
    a.n_out = (uint32_t)volume(g.w.out);
    a.n_k = (uint32_t)volume(g.w.k);
    a.c_in = (uint32_t)g.c_in;
    a.c_out = (uint32_t)g.c_out;
    a.groups = (uint32_t)g.groups;
    return wfc_launch_each(c, WFC_K_wfc_conv + wfc_wide(c), wf_count(y), &a);
}

weft_status wfc_run_pool(const struct wf_call *c)
{
    bool back = c->op->id == WF_OP_max_pool_grad || c->op->id == WF_OP_avg_pool_grad;
    bool forward_max = c->op->id == WF_OP_max_pool;
    bool uses_arg = c->op->id == WF_OP_max_pool_grad || c->op->id == WF_OP_max_pool_pick;
    const struct wf_tensor *x = back ? &c->out[0] : &c->in[0];
    struct wf_window w;
    struct wfc_pool a = {.batch = (uint32_t)x->type.dim[0],
                         .channels = (uint32_t)x->type.dim[x->type.rank - 1],
                         .dtype = (int32_t)c->in[0].type.dtype,
                         .x = c->in[0].data,
                         .y = c->out[0].data,
                         .fault = wfc_fault(c)};

    switch (c->op->id) {
    case WF_OP_max_pool: a.code = WFC_MAX_POOL; break;
    case WF_OP_max_pool_grad: a.code = WFC_MAX_POOL_GRAD; break;
    case WF_OP_max_pool_pick: a.code = WFC_MAX_POOL_PICK; break;
    case WF_OP_avg_pool: a.code = WFC_AVG_POOL; break;
    default: a.code = WFC_AVG_POOL_GRAD;
    }
    if (forward_max || uses_arg) {
        const struct wf_tensor *arg = forward_max ? &c->out[1] : &c->in[1];

        a.arg = arg->data;
        a.arg_dtype = (int32_t)arg->type.dtype;
    }
    wf_pool_window(c->op, c->attr, &x->type, &w);
    a.w = window_of(&w);
    a.n_in = (uint32_t)volume(w.in);
    a.n_out = (uint32_t)volume(w.out);
    a.n_k = (uint32_t)volume(w.k);
    return wfc_launch_each(c, WFC_K_wfc_pool + wfc_wide(c), wf_count(&c->out[0]), &a);
}

weft_status wfc_run_resize(const struct wf_call *c)
{
    bool back = c->op->id == WF_OP_resize_grad;
    const struct wf_type *x = &c->in[0].type, *y = &c->out[0].type, *in = back ? y : x,
                         *out = back ? x : y;
    struct wfc_resize a = {.batch = (uint32_t)x->dim[0],
                           .in = {1, 1, 1},
                           .out = {1, 1, 1},
                           .channels = (uint32_t)x->dim[x->rank - 1],
                           .dtype = (int32_t)x->dtype,
                           .x = c->in[0].data,
                           .y = c->out[0].data};

    a.bilinear = !strcmp(wf_attr_str(c->op, c->attr, "method"), "bilinear");
    for (int i = 1; i < x->rank - 1; i++) {
        a.in[3 - (x->rank - 1) + i] = (uint32_t)in->dim[i];
        a.out[3 - (x->rank - 1) + i] = (uint32_t)out->dim[i];
    }
    return wfc_launch_each(c, (back ? WFC_K_wfc_resize_grad : WFC_K_wfc_resize) + wfc_wide(c),
                           wf_count(&c->out[0]), &a);
}

#endif
