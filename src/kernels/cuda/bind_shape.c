/* bind_shape.c - ops that move elements: copies between strided boxes, and parts of an axis. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/shape.h"

weft_status wfc_plan_tile(struct wf_kplan *p);
wf_kernel_fn wfc_run_same, wfc_run_broadcast, wfc_run_transpose, wfc_run_reverse, wfc_run_tile,
    wfc_run_slice, wfc_run_slice_grad, wfc_run_pad, wfc_run_pad_grad, wfc_run_concat, wfc_run_stack,
    wfc_run_split, wfc_run_unstack, wfc_run_concat_part, wfc_run_assign;

static int size_of(const struct wf_tensor *t)
{
    return (int)weft_dtype_size(t->type.dtype);
}

static void strides_of(const struct wf_type *t, int64_t stride[WEFT_MAX_RANK])
{
    int64_t step = 1;

    for (int a = t->rank - 1; a >= 0; a--) {
        stride[a] = step;
        step *= t->dim[a];
    }
}

static weft_status copy_whole(const struct wf_call *c, const struct wf_tensor *to,
                              const struct wf_tensor *from, bool update)
{
    struct wfc_copy a = {
        .count = (uint32_t)wf_count(to), .size = size_of(to), .from = from->data, .to = to->data};

    if (update)
        a.fault = wfc_fault(c);
    return to->data == from->data ? WEFT_OK : wfc_launch_each(c, WFC_K_wfc_copy, a.count, &a);
}

weft_status wfc_run_same(const struct wf_call *c)
{
    return copy_whole(c, &c->out[0], &c->in[0], false);
}

weft_status wfc_run_assign(const struct wf_call *c)
{
    return copy_whole(c, &c->out[0], &c->in[1], true);
}

/* out[i] = in[from_at + box(i)] with the strides, outermost first, of the result's shape. */
static weft_status read_box(const struct wf_call *c, int rank, const int64_t *dim,
                            const int64_t *stride, int64_t at)
{
    struct wfc_copy a = {.count = (uint32_t)wf_count(&c->out[0]),
                         .size = size_of(&c->out[0]),
                         .from = c->in[0].data,
                         .to = c->out[0].data,
                         .from_at = at,
                         .from_box = wfc_box_of(rank, dim, stride)};

    return wfc_launch_each(c, WFC_K_wfc_copy, a.count, &a);
}

weft_status wfc_run_broadcast(const struct wf_call *c)
{
    struct wfc_copy a = {.count = (uint32_t)wf_count(&c->out[0]),
                         .size = size_of(&c->out[0]),
                         .from = c->in[0].data,
                         .to = c->out[0].data,
                         .from_box = wfc_broadcast_box(&c->in[0].type, &c->out[0].type)};

    return wfc_launch_each(c, WFC_K_wfc_copy, a.count, &a);
}

weft_status wfc_run_transpose(const struct wf_call *c)
{
    const struct wf_attr *perm = wf_call_attr(c, "perm");
    const struct wf_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t of_x[WEFT_MAX_RANK] = {0}, stride[WEFT_MAX_RANK] = {0};

    strides_of(x, of_x);
    for (int a = 0; a < y->rank; a++)
        stride[a] = of_x[perm->n ? wf_axis_of(perm->ints[a], x->rank) : x->rank - 1 - a];
    return read_box(c, y->rank, y->dim, stride, 0);
}

weft_status wfc_run_reverse(const struct wf_call *c)
{
    const struct wf_attr *axes = wf_call_attr(c, "axes");
    const struct wf_type *y = &c->out[0].type;
    int64_t stride[WEFT_MAX_RANK] = {0}, at = 0;

    strides_of(y, stride);
    for (int k = 0; k < axes->n; k++) {
        int a = wf_axis_of(axes->ints[k], y->rank);

        at += (y->dim[a] - 1) * stride[a];
        stride[a] = -stride[a];
    }
    return read_box(c, y->rank, y->dim, stride, at);
}

/* Each axis becomes two: copies, and the elements of one. */
weft_status wfc_plan_tile(struct wf_kplan *p)
{
    int n = 0;

    for (int a = 0; a < p->in[0].rank; a++)
        n += (p->in[0].dim[a] != 1) + (p->out[0].dim[a] != p->in[0].dim[a]);
    return n <= WFC_RANK ? wfc_plan_any(p) : WEFT_ENOSUP;
}

weft_status wfc_run_tile(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t of_x[WEFT_MAX_RANK] = {0}, dim[2 * WEFT_MAX_RANK], stride[2 * WEFT_MAX_RANK];

    strides_of(x, of_x);
    for (int a = 0; a < x->rank; a++) {
        dim[2 * a] = x->dim[a] ? y->dim[a] / x->dim[a] : 0;
        stride[2 * a] = 0;
        dim[2 * a + 1] = x->dim[a];
        stride[2 * a + 1] = of_x[a];
    }
    return wf_count(&c->out[0]) ? read_box(c, 2 * x->rank, dim, stride, 0) : WEFT_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* First element and strides of what a slice takes from `whole`. */
static int64_t slice_box(const struct wf_call *c, const struct wf_type *whole,
                         int64_t stride[WEFT_MAX_RANK])
{
    bool strided = c->op->id == WF_OP_strided_slice || c->op->id == WF_OP_strided_slice_grad;
    int64_t at = 0;

    strides_of(whole, stride);
    for (int a = 0; a < whole->rank; a++) {
        struct wf_range r = {strided ? 0 : wf_call_attr(c, "begin")->ints[a], 1, 0};

        if (strided)
            r = wf_strided_axis(c->op, c->attr, a, whole->dim[a]);
        at += r.first * stride[a];
        stride[a] *= r.stride;
    }
    return at;
}

weft_status wfc_run_slice(const struct wf_call *c)
{
    int64_t stride[WEFT_MAX_RANK] = {0}, at = slice_box(c, &c->in[0].type, stride);

    return read_box(c, c->out[0].type.rank, c->out[0].type.dim, stride, at);
}

weft_status wfc_run_slice_grad(const struct wf_call *c)
{
    int64_t stride[WEFT_MAX_RANK] = {0}, at = slice_box(c, &c->out[0].type, stride);
    struct wfc_copy a = {
        .count = (uint32_t)wf_count(&c->in[0]),
        .size = size_of(&c->out[0]),
        .from = c->in[0].data,
        .to = c->out[0].data,
        .to_at = at,
        .to_box = wfc_box_of(c->in[0].type.rank, c->in[0].type.dim, stride),
    };
    weft_status st = wfc_zero(c, &c->out[0]);

    return st ? st : wfc_launch_each(c, WFC_K_wfc_copy, a.count, &a);
}

/* ---- borders --------------------------------------------------------------------------------- */

/* in_dim: without the border; out_dim: with it. */
static struct wfc_pad pad_args(const struct wf_call *c, const struct wf_type *inner,
                               const struct wf_type *padded)
{
    const struct wf_attr *p = wf_call_attr(c, "paddings");
    enum wf_pad_mode mode = WF_PAD_CONSTANT;
    struct wfc_pad a = {.count = (uint32_t)wf_count(&c->out[0]),
                        .dtype = (int32_t)c->out[0].type.dtype,
                        .rank = inner->rank,
                        .size = size_of(&c->out[0]),
                        .in = c->in[0].data,
                        .out = c->out[0].data};

    wf_pad_mode_parse(wf_attr_str(c->op, c->attr, "mode"), &mode);
    a.mode = (int32_t)mode;
    for (int i = 0; i < inner->rank; i++) {
        a.in_dim[i] = (uint32_t)inner->dim[i];
        a.out_dim[i] = (uint32_t)padded->dim[i];
        a.before[i] = (int32_t)p->ints[2 * i];
        a.after[i] = (int32_t)p->ints[2 * i + 1];
    }
    return a;
}

weft_status wfc_run_pad(const struct wf_call *c)
{
    struct wfc_pad a = pad_args(c, &c->in[0].type, &c->out[0].type);

    a.value = wf_call_float(c, "value");
    return wfc_launch_each(c, WFC_K_wfc_pad, a.count, &a);
}

weft_status wfc_run_pad_grad(const struct wf_call *c)
{
    struct wfc_pad a = pad_args(c, &c->out[0].type, &c->in[0].type);

    return wfc_launch_each(c, WFC_K_wfc_pad_grad, a.count, &a);
}

/* ---- parts of an axis ------------------------------------------------------------------------ */

/* The parts are n tensors; unit: each has size 1 on an axis that its type lacks. */
static weft_status move_parts(const struct wf_call *c, const struct wf_tensor *whole,
                              const struct wf_tensor *part, int n, int axis, bool unit,
                              bool to_whole)
{
    int64_t at = 0;
    weft_status st = WEFT_OK;

    for (int from = 0; from < n && !st; from += WFC_MANY) {
        struct wfc_parts a = {.outer = (uint32_t)wf_type_part(&whole->type, 0, axis),
                              .total = (uint32_t)whole->type.dim[axis],
                              .inner =
                                  (uint32_t)wf_type_part(&whole->type, axis + 1, whole->type.rank),
                              .size = size_of(whole),
                              .to_whole = to_whole,
                              .whole = whole->data};
        int64_t most = 0;

        for (int i = from; i < n && a.n < WFC_MANY; i++, a.n++) {
            int64_t size = unit ? 1 : part[i].type.dim[axis];

            a.part[a.n].data = part[i].data;
            a.part[a.n].at = (uint32_t)at;
            a.part[a.n].n = (uint32_t)size;
            at += size;
            most = wf_max_i64(most, wf_count(&part[i]));
        }
        st =
            wfc_launch(c, WFC_K_wfc_parts, wf_min_i64((most + WFC_THREADS - 1) / WFC_THREADS, 1024),
                       a.n, WFC_THREADS, &a);
    }
    return st;
}

weft_status wfc_run_concat(const struct wf_call *c)
{
    return move_parts(c, &c->out[0], c->in, c->n_in,
                      wf_axis_of(wf_call_int(c, "axis"), c->out[0].type.rank), false, true);
}

weft_status wfc_run_stack(const struct wf_call *c)
{
    return move_parts(c, &c->out[0], c->in, c->n_in,
                      wf_axis_of(wf_call_int(c, "axis"), c->out[0].type.rank), true, true);
}

weft_status wfc_run_split(const struct wf_call *c)
{
    return move_parts(c, &c->in[0], c->out, c->n_out,
                      wf_axis_of(wf_call_int(c, "axis"), c->in[0].type.rank), false, false);
}

weft_status wfc_run_unstack(const struct wf_call *c)
{
    return move_parts(c, &c->in[0], c->out, c->n_out,
                      wf_axis_of(wf_call_int(c, "axis"), c->in[0].type.rank), true, false);
}

weft_status wfc_run_concat_part(const struct wf_call *c)
{
    const struct wf_type *y = &c->in[0].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), y->rank);
    int64_t index = wf_call_int(c, "index"), at = 0, stride[WEFT_MAX_RANK] = {0};

    for (int64_t i = 0; i < index; i++)
        at += c->in[1 + i].type.dim[axis];
    strides_of(y, stride);
    return read_box(c, y->rank, c->out[0].type.dim, stride, at * stride[axis]);
}

#endif
