/* bind_window.c - convolution, pooling, resizing. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dnn.h"
#include "op/conv.h"

weft_status wfc_plan_conv_dnn(struct wf_kplan *p);
weft_status wfc_plan_conv_mm(struct wf_kplan *p);
wf_kernel_fn wfc_run_conv, wfc_run_conv_dnn, wfc_run_conv_mm, wfc_run_pool, wfc_run_resize;

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

/* The convolution that a call refers to; second: the filter, or (of its gradient) dy. */
static struct wfc_conv conv_args(const struct wf_op *op, const struct wf_attr *attr,
                                 const struct wf_type *first, const struct wf_type *second,
                                 const struct wf_type *y)
{
    struct wf_conv_geom g;
    struct wfc_conv a = {.x_dtype = (int32_t)first->dtype,
                         .y_dtype = (int32_t)y->dtype,
                         .size = (int32_t)weft_dtype_size(first->dtype)};

    switch (op->id) {
    case WF_OP_conv:
        a.code = WFC_CONV;
        wf_conv_geom_of(op, attr, first, second, y, &g);
        break;
    case WF_OP_conv_grad_filter:
        a.code = WFC_CONV_FILTER;
        wf_conv_geom_of(op, attr, first, y, second, &g);
        break;
    default: /* conv_grad_input, conv_transpose */
        a.code = WFC_CONV_INPUT;
        wf_conv_geom_of(op, attr, y, second, first, &g);
    }
    a.w = window_of(&g.w);
    a.batch = (uint32_t)g.batch;
    a.n_in = (uint32_t)volume(g.w.in);
    a.n_out = (uint32_t)volume(g.w.out);
    a.n_k = (uint32_t)volume(g.w.k);
    a.c_in = (uint32_t)g.c_in;
    a.c_out = (uint32_t)g.c_out;
    a.groups = (uint32_t)g.groups;
    return a;
}

static struct wfc_conv call_args(const struct wf_call *c)
{
    struct wfc_conv a = conv_args(c->op, c->attr, &c->in[0].type, &c->in[1].type, &c->out[0].type);

    a.x = c->in[0].data;
    a.f = c->in[1].data;
    a.y = c->out[0].data;
    return a;
}

weft_status wfc_run_conv(const struct wf_call *c)
{
    struct wfc_conv a = call_args(c);

    return wfc_launch_each(c, WFC_K_wfc_conv + wfc_wide(c), wf_count(&c->out[0]), &a);
}

/* Whether the result has a type that kernels write: that of the operands, or of a filter's gradient
 * f32 as well. */
static bool type_fits(const struct wf_kplan *p)
{
    return p->out[0].dtype == p->in[0].dtype ||
           (p->op->id == WF_OP_conv_grad_filter && p->out[0].dtype == WEFT_F32 &&
            weft_dtype_size(p->in[0].dtype) == 2);
}

/* ---- as a product: with the matrix of what each window reads --------------------------------- */

struct conv_mm {
    const struct wfc_mm *mm;
    size_t col_at;    /* the matrix, in scratch */
    bool plain;       /* x is that matrix: one tap, no border, no stride */
    int64_t width;    /* of the matrix of halves with few channels, a multiple of 8; or 0 */
    size_t filter_at; /* then: the filter with as many rows */
};

/* Halves of which a tap has less than 16 bytes, with windows that are worth a matrix. cuDNN would
 * add channels of zeros. */
static bool has_few_channels(const struct wfc_conv *a)
{
    return a->size == 2 && a->groups == 1 && a->c_in < 8 && a->n_k * a->c_in >= 64 &&
           a->w.dilation[2] == 1 && a->code != WFC_CONV_INPUT && a->c_out % 8 == 0;
}

static bool is_plain(const struct wfc_conv *a)
{
    for (int i = 0; i < 3; i++)
        if (a->w.k[i] != 1 || a->w.stride[i] != 1 || a->w.lo[i] != 0 || a->w.in[i] != a->w.out[i])
            return false;
    return true;
}

weft_status wfc_plan_conv_mm(struct wf_kplan *p)
{
    struct wfc_conv a = conv_args(p->op, p->attr, &p->in[0], &p->in[1], &p->out[0]);
    int64_t rows = (int64_t)a.batch * a.n_out, width = (int64_t)a.n_k * a.c_in;
    struct wfc_mm_sizes z = {.m = rows, .n = a.c_out, .k = width};
    struct conv_mm *s = wf_arena_alloc(p->arena, sizeof *s);
    weft_status st = wfc_plan_floats(p);

    if (!s)
        return wf_kplan_nomem(p);
    if (st || a.groups != 1 || p->in[0].dtype != p->in[1].dtype || rows * width >= UINT32_MAX ||
        !type_fits(p))
        return WEFT_ENOSUP;
    if (has_few_channels(&a))
        z.k = s->width = width = wf_round_up(width, 8);
    if (a.code == WFC_CONV_FILTER)
        z = (struct wfc_mm_sizes){.m = width, .n = a.c_out, .k = rows, .ta = true};
    else if (a.code == WFC_CONV_INPUT)
        z = (struct wfc_mm_sizes){.m = rows, .n = width, .k = a.c_out, .tb = true};
    st = wfc_plan_mm(p, &z, p->in[0].dtype, p->out[0].dtype, &s->mm);
    if (st)
        return st;
    s->plain = is_plain(&a);
    s->col_at = p->scratch_bytes;
    if (!s->plain)
        p->scratch_bytes += (size_t)(rows * width * a.size);
    s->filter_at = (size_t)wf_round_up((int64_t)p->scratch_bytes, 256);
    if (s->width)
        p->scratch_bytes =
            s->filter_at + (size_t)(width * a.c_out) * weft_dtype_size(p->out[0].dtype);
    p->state = s;
    return WEFT_OK;
}

/* Whether a block can have a line of outputs, with all lines that it reads in shared memory. */
static bool has_short_lines(const struct wfc_conv *a, struct wfc_im2col8 *m)
{
    int64_t c = a->c_in, length = a->w.in[2] * c, before = a->w.lo[2] * c, reach;

    if (a->w.in[0] != 1 || a->w.out[0] != 1 || a->w.k[0] != 1 || a->w.lo[0] != 0 || length % 8 ||
        before < 0 || m->width / 8 > WFC_THREADS)
        return false;
    m->left = (int32_t)wf_round_up(before, 8);
    reach = m->left - before + ((a->w.out[2] - 1) * a->w.stride[2] + a->w.k[2]) * c;
    m->pitch = (int32_t)wf_round_up(wf_max_i64(reach, m->left + length), 8);
    return a->w.k[1] * (int64_t)m->pitch <= WFC_LINE_HALVES;
}

static weft_status run_im2col8(const struct wf_call *c, const struct wfc_conv *a,
                               struct wfc_im2col8 *m)
{
    if (has_short_lines(a, m) && (uintptr_t)m->x % 16 == 0)
        return wfc_launch(c, WFC_K_wfc_im2col_line, (int64_t)a->batch * a->w.out[1], 1, WFC_THREADS,
                          m);
    return wfc_launch_each(c, WFC_K_wfc_im2col8, (int64_t)m->n_rows * (m->width / 8), m);
}

/* With the matrix of s->width columns: the filter gets rows of zeros after its own, its gradient
 * loses them. */
static weft_status run_few_channels(const struct wf_call *c, const struct wfc_conv *a)
{
    const struct conv_mm *s = c->state;
    size_t size = weft_dtype_size(c->out[0].type.dtype);
    size_t bytes = (size_t)a->n_k * a->c_in * a->c_out * size,
           all = (size_t)(s->width * a->c_out) * size;
    char *filter = (char *)c->scratch + s->filter_at;
    struct wfc_im2col8 m = {.w = a->w,
                            .n_rows = a->batch * a->n_out,
                            .n_out = a->n_out,
                            .c_in = a->c_in,
                            .width = (uint32_t)s->width,
                            .x = a->x,
                            .y = (void *)((char *)c->scratch + s->col_at)};
    weft_status st = run_im2col8(c, a, &m);

    if (!st && a->code == WFC_CONV_FILTER) { /* a->f is dy */
        st = wfc_run_mm(c, s->mm, m.y, a->f, filter);
        return st ? st : wfc_move(c, a->y, filter, bytes);
    }
    if (!st)
        st = wfc_clear(c, filter + bytes, all - bytes);
    if (!st)
        st = wfc_move(c, filter, a->f, bytes);
    return st ? st : wfc_run_mm(c, s->mm, m.y, filter, a->y);
}

weft_status wfc_run_conv_mm(const struct wf_call *c)
{
    const struct conv_mm *s = c->state;
    struct wfc_conv a = call_args(c);
    int64_t n = (int64_t)a.batch * a.n_out * a.n_k * a.c_in;
    void *col = (char *)c->scratch + s->col_at;
    weft_status st = WEFT_OK;

    if (s->width)
        return run_few_channels(c, &a);

    if (a.code == WFC_CONV_INPUT) { /* in[0] is dy, in[1] the filter */
        st = wfc_run_mm(c, s->mm, a.x, a.f, s->plain ? a.y : col);
        a.x = col;
        return st || s->plain
                   ? st
                   : wfc_launch_each(c, WFC_K_wfc_col2im + wfc_wide(c), wf_count(&c->out[0]), &a);
    }
    if (!s->plain) {
        struct wfc_conv m = a;

        m.y = col;
        m.y_dtype = a.x_dtype;
        st = wfc_launch_each(c, WFC_K_wfc_im2col, n, &m);
    }
    return st ? st : wfc_run_mm(c, s->mm, s->plain ? a.x : col, a.f, a.y);
}

/* ---- through cuDNN --------------------------------------------------------------------------- */

/* cuDNN's filters are [c_out][taps][c_in], ours [taps][c_in][c_out]: the filter is turned before
 * the convolution, its gradient after it. */
struct conv_dnn {
    const struct wfc_dnn_plan *plan;
    size_t filter_at; /* in scratch, after the workspace */
};

/* Whether the same padding on both sides gives the sizes. cuDNN 9.14 accepts others and computes
 * some of them wrongly. */
static bool pads_agree(const struct wfc_window *w, int a)
{
    int64_t reach = (int64_t)w->dilation[a] * (w->k[a] - 1) + 1;
    int64_t need = (int64_t)(w->out[a] - 1) * w->stride[a] + reach - w->in[a] - w->lo[a];

    return w->lo[a] >= 0 && need <= w->lo[a] && w->lo[a] < need + w->stride[a];
}

static bool describe(bool tf32, const struct wfc_conv *a, struct wfc_dnn_desc *desc)
{
    static const enum wfc_dnn_what what[] = {
        [WFC_CONV] = WFD_FORWARD, [WFC_CONV_INPUT] = WFD_DATA, [WFC_CONV_FILTER] = WFD_FILTER};

    struct wfc_dnn_conv *o = &desc->conv;

    memset(desc, 0, sizeof *desc);
    desc->what = what[a->code];
    o->dtype = a->x_dtype;
    o->tf32 = a->x_dtype == WFC_F32 && tf32;
    o->n_axes = a->w.in[0] == 1 && a->w.k[0] == 1 && a->w.out[0] == 1 ? 2 : 3;
    o->batch = a->batch;
    o->c_in = a->c_in;
    o->c_out = a->c_out;
    o->groups = a->groups;
    for (int i = 0; i < 3; i++) {
        o->in[i] = a->w.in[i];
        o->out[i] = a->w.out[i];
        o->k[i] = a->w.k[i];
        o->stride[i] = a->w.stride[i];
        o->dilation[i] = a->w.dilation[i];
        o->pad[i] = a->w.lo[i];
        if (!pads_agree(&a->w, i))
            return false;
    }
    return true;
}

weft_status wfc_plan_conv_dnn(struct wf_kplan *p)
{
    struct wfc_conv a = conv_args(p->op, p->attr, &p->in[0], &p->in[1], &p->out[0]);
    struct conv_dnn *s = wf_kplan_state(p, sizeof *s);
    struct wfc_dnn_desc key;
    weft_status st = wfc_plan_floats(p);

    if (!s)
        return wf_kplan_nomem(p);
    if (st || p->in[0].dtype != p->in[1].dtype || !type_fits(p) || p->in[0].dtype == WEFT_F64 ||
        (a.groups == 1 && is_plain(&a)))
        return WEFT_ENOSUP;
    if (has_few_channels(&a)) /* our matrix is faster than its zeros */
        return WEFT_ENOSUP;
    if (a.code == WFC_CONV_FILTER && a.c_in == 1) /* it takes this for a depthwise one: slow */
        return WEFT_ENOSUP;
    if (!a.batch || !a.n_in || !a.n_out || !a.n_k || !a.c_in || !a.c_out ||
        (int64_t)a.n_k * a.c_in / a.groups > 32 * 65535 || a.c_out > 32 * 65535)
        return WEFT_ENOSUP;
    if (!describe(p->tf32, &a, &key))
        return WEFT_ENOSUP;
    st = wfc_dnn_find(p->device, &key, &s->plan);
    if (st)
        return st;
    p->impl = s->plan->name;
    s->filter_at = (size_t)wf_round_up((int64_t)s->plan->workspace, 256);
    p->scratch_bytes = s->filter_at + (size_t)a.n_k * a.c_in / a.groups * a.c_out * (size_t)a.size;
    return WEFT_OK;
}

/* half: the type of halves that become f32, or 0. */
static weft_status turn(const struct wf_call *c, int64_t n_rows, int64_t n_cols, int32_t size,
                        int32_t half, const void *from, void *to)
{
    struct wfc_turn t = {(uint32_t)n_rows, (uint32_t)n_cols, size, half, from, to};

    return wfc_launch(c, WFC_K_wfc_turn, (n_cols + 31) / 32, (n_rows + 31) / 32, WFC_THREADS, &t);
}

weft_status wfc_run_conv_dnn(const struct wf_call *c)
{
    const struct conv_dnn *s = c->state;
    struct wfc_conv a = call_args(c);
    int64_t taps = (int64_t)a.n_k * a.c_in / a.groups;
    void *filter = (char *)c->scratch + s->filter_at;
    weft_status st;

    if (a.code == WFC_CONV_FILTER) { /* in[0] is x, in[1] dy */
        st = wfc_dnn_run_conv(c, s->plan, a.x, filter, a.f, c->scratch);
        return st ? st
                  : turn(c, a.c_out, taps, a.size, a.y_dtype == a.x_dtype ? 0 : a.x_dtype, filter,
                         a.y);
    }
    st = turn(c, taps, a.c_out, a.size, 0, a.f, filter);
    if (st)
        return st;
    return a.code == WFC_CONV ? wfc_dnn_run_conv(c, s->plan, a.x, filter, a.y, c->scratch)
                              : wfc_dnn_run_conv(c, s->plan, a.y, filter, a.x, c->scratch);
}

/* Whether 8 channels are computed together: dev/wide.inl. */
static bool in_pieces(const struct wfc_pool *a)
{
    bool of_max = a->code == WFC_MAX_POOL || a->code == WFC_MAX_POOL_GRAD;

    return a->channels % 8 == 0 && a->dtype != WFC_F64 && a->code != WFC_MAX_POOL_PICK &&
           (!of_max || a->arg_dtype == WFC_U8);
}

/* Maxima of windows of 2 x 2 or (bf16) 3 x 3 with step 2, each of which has an element of the
 * input. */
static bool is_square(const struct wfc_pool *a)
{
    const struct wfc_window *w = &a->w;

    if ((a->code != WFC_MAX_POOL && a->code != WFC_MAX_POOL_GRAD) || a->arg_dtype != WFC_U8 ||
        a->channels % 8 || w->in[0] != 1 || w->out[0] != 1 || w->k[0] != 1 || w->lo[0] != 0 ||
        w->k[1] != w->k[2] ||
        !(w->k[1] == 2 ? a->dtype == WFC_BF16 || a->dtype == WFC_F32
                       : w->k[1] == 3 && a->dtype == WFC_BF16))
        return false;
    for (int i = 1; i < 3; i++)
        if (w->stride[i] != 2 || w->dilation[i] != 1 || w->lo[i] < 0 || w->lo[i] >= w->k[i] ||
            (w->out[i] - 1) * 2 - w->lo[i] >= w->in[i])
            return false;
    return true;
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
    if (is_square(&a) && !back)
        return wfc_launch_each(c, WFC_K_wfc_pool_square, wf_count(&c->out[0]) / 8, &a);
    if (is_square(&a)) {
        a.n_down = (uint32_t)(a.w.in[1] + a.w.lo[1] + 1) / 2;
        a.n_across = (uint32_t)(a.w.in[2] + a.w.lo[2] + 1) / 2;
        return wfc_launch_each(c, WFC_K_wfc_pool_squares,
                               (int64_t)a.batch * a.n_down * a.n_across * a.channels / 8, &a);
    }
    if (a.code == WFC_MAX_POOL_GRAD) {
        weft_status st = wfc_launch_each(
            c, WFC_K_wfc_pool_check,
            wf_count(&c->in[1]) / (a.arg_dtype == WFC_U8 && a.channels % 8 == 0 ? 8 : 1), &a);

        if (st)
            return st;
    }
    if (in_pieces(&a))
        return wfc_launch_each(c, WFC_K_wfc_pool8, wf_count(&c->out[0]) / 8, &a);
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
