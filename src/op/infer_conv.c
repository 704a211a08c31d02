/* wf_infer_conv.c - shape rules of convolution, pooling and resizing. */
#include "op/conv.h"
#include "op/infer.h"

/* ---- convolution ----------------------------------------------------------------------------- */

/* The type of conv(x, w), fully checked. */
static weft_status conv_type(struct wf_infer *r, const struct wf_type *x, const struct wf_type *w,
                             struct wf_type *y)
{
    int64_t groups = wf_in_int(r, "groups"), c;
    struct wf_window win;
    const char *wrong;
    weft_status st;

    if (x->dtype != w->dtype || !wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "all operands must have the same float type");
    if (x->rank < 3 || x->rank > 5 || w->rank != x->rank)
        return wf_infer_err(r, WEFT_ESHAPE,
                            "expected input [batch, 1 to 3 sizes, in] and kernel [as many sizes, "
                            "in / groups, out]");
    wrong = wf_window_make(r->op, r->attr, x, w->dim, &win);
    if (wrong)
        return wf_infer_err(r, WEFT_ESHAPE, "%s", wrong);
    if (groups < 1)
        return wf_infer_err(r, WEFT_EINVAL, "%lld groups", (long long)groups);
    c = x->dim[x->rank - 1];
    if ((c >= 0 && c % groups) || (w->dim[w->rank - 1] >= 0 && w->dim[w->rank - 1] % groups))
        return wf_infer_err(r, WEFT_ESHAPE, "%lld groups do not divide the channels",
                            (long long)groups);
    st = wf_same_dim(r, c >= 0 ? c / groups : c, w->dim[w->rank - 2], "input channels of a group",
                     &c);
    if (st)
        return st;
    *y = *x;
    for (int i = 0; i < x->rank - 2; i++)
        y->dim[1 + i] = win.out[3 - (x->rank - 2) + i];
    y->dim[y->rank - 1] = w->dim[w->rank - 1];
    return WEFT_OK;
}

/* y must have the type of conv(x, w). */
static weft_status check_conv(struct wf_infer *r, const struct wf_type *x, const struct wf_type *w,
                              const struct wf_type *y)
{
    struct wf_type want;
    int64_t d;
    weft_status st = conv_type(r, x, w, &want);

    if (!st && y->dtype != x->dtype)
        st = wf_infer_err(r, WEFT_EDTYPE, "all operands must have the same float type");
    if (!st && y->rank != x->rank)
        st = wf_infer_err(r, WEFT_ESHAPE, "the output's gradient must have rank %d", x->rank);
    for (int i = 0; !st && i < want.rank; i++)
        st = wf_same_dim(r, want.dim[i], y->dim[i], "sizes of the convolution's output", &d);
    return st;
}

weft_status wf_infer_conv(struct wf_infer *r)
{
    return conv_type(r, &r->in[0], &r->in[1], &r->out[0]);
}

weft_status wf_infer_conv_grad_input(struct wf_infer *r)
{
    r->out[0] = r->in[2];
    return check_conv(r, &r->in[2], &r->in[1], &r->in[0]);
}

weft_status wf_infer_conv_grad_filter(struct wf_infer *r)
{
    r->out[0] = r->in[2];
    return check_conv(r, &r->in[0], &r->in[2], &r->in[1]);
}

/* The size of one axis of a transposed convolution's output, by Keras' rule. `extra` is the output
 * padding, negative if it is not given. */
static bool transposed_size(const char *padding, int64_t in, int64_t span, int64_t stride,
                            int64_t pads, int64_t extra, int64_t *out)
{
    int64_t n;

    if (!wf_mul_i64(in, stride, &n) || !wf_add_i64(n, span, out))
        return false;
    if (!strcmp(padding, "same"))
        *out = extra < 0 ? n : n - stride + span - span / 2 * 2 + extra;
    else if (extra < 0)
        *out = n + (span > stride ? span - stride : 0) - pads;
    else
        *out = n - stride + span - pads + extra;
    if (in == 0)
        *out = 0;
    return *out >= 0;
}

weft_status wf_infer_conv_transpose(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0], *w = &r->in[1];
    const struct wf_attr *extra = wf_in_attr(r, "output_padding"), *pads = wf_in_attr(r, "pads");
    const char *padding = wf_attr_str(r->op, r->attr, "padding");
    struct wf_type y = *x;
    struct wf_window v;
    int n = x->rank - 2;

    if (x->rank < 3 || x->rank > 5 || w->rank != x->rank)
        return wf_infer_err(r, WEFT_ESHAPE,
                            "expected input [batch, 1 to 3 sizes, in] and kernel [as many sizes, "
                            "out / groups, in]");
    if (extra->n != 0 && extra->n != 1 && extra->n != n)
        return wf_infer_err(r, WEFT_EINVAL,
                            "output_padding takes one number per axis, or one for all");
    /* Only for strides and dilations: y is not known yet. */
    for (int i = 0; i < n; i++)
        y.dim[1 + i] = WEFT_ANY;
    y.dim[y.rank - 1] = WEFT_ANY;
    const char *wrong = wf_window_make(r->op, r->attr, &y, w->dim, &v);

    if (wrong)
        return wf_infer_err(r, WEFT_ESHAPE, "%s", wrong);
    for (int i = 0, a = 3 - n; i < n; i++, a++) {
        int64_t more = extra->n ? extra->ints[extra->n == 1 ? 0 : i] : -1, span;
        int64_t cut = pads->n ? pads->ints[2 * i] + pads->ints[2 * i + 1] : 0;

        if (extra->n && (more < 0 || more >= v.stride[a]))
            return wf_infer_err(r, WEFT_EINVAL, "output_padding must be less than the stride");
        if (x->dim[1 + i] < 0 || v.k[a] < 0)
            continue;
        if (!wf_mul_i64(v.k[a] - 1, v.dilation[a], &span) || !wf_add_i64(span, 1, &span) ||
            !transposed_size(padding, x->dim[1 + i], span, v.stride[a], cut, more, &y.dim[1 + i]))
            return wf_infer_err(r, WEFT_ESHAPE, "the output's size overflows or is negative");
    }
    if (w->dim[w->rank - 2] >= 0 &&
        !wf_mul_i64(w->dim[w->rank - 2], wf_in_int(r, "groups"), &y.dim[y.rank - 1]))
        return wf_infer_err(r, WEFT_ESHAPE, "the output's channels overflow");
    r->out[0] = y;
    return check_conv(r, &y, w, x);
}

/* ---- pooling --------------------------------------------------------------------------------- */

static weft_status pool_type(struct wf_infer *r, const struct wf_type *x, struct wf_type *y)
{
    struct wf_window win;
    const char *wrong = wf_pool_window(r->op, r->attr, x, &win);

    if (!wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    if (wrong)
        return wf_infer_err(r, WEFT_ESHAPE, "%s", wrong);
    *y = *x;
    for (int i = 0; i < x->rank - 2; i++)
        y->dim[1 + i] = win.out[3 - (x->rank - 2) + i];
    return WEFT_OK;
}

/* A position in a window fits in a byte, or otherwise in 32 bits. */
static weft_status argmax_dtype(struct wf_infer *r, weft_dtype *out)
{
    const struct wf_attr *window = wf_in_attr(r, "window");
    int n = r->in[0].rank - 2;
    int64_t count = 1;

    for (int i = 0; i < n; i++)
        if (!wf_mul_i64(count, window->ints[window->n == 1 ? 0 : i], &count) || count > INT32_MAX)
            return wf_infer_err(r, WEFT_ESHAPE, "the window is too large");
    *out = count <= 256 ? WEFT_U8 : WEFT_I32;
    return WEFT_OK;
}

static weft_status check_pooled(struct wf_infer *r, const struct wf_type *x,
                                const struct wf_type *y, const char *what)
{
    struct wf_type want;
    int64_t d;
    weft_status st = pool_type(r, x, &want);

    if (!st && y->rank != x->rank)
        st = wf_infer_err(r, WEFT_ESHAPE, "%s must have rank %d", what, x->rank);
    for (int i = 0; !st && i < want.rank; i++)
        st = wf_same_dim(r, want.dim[i], y->dim[i], what, &d);
    return st;
}

static weft_status check_argmax(struct wf_infer *r, const struct wf_type *x,
                                const struct wf_type *argmax)
{
    weft_dtype t;
    weft_status st = check_pooled(r, x, argmax, "sizes of the pooled output and the argmax");

    if (!st)
        st = argmax_dtype(r, &t);
    if (!st && argmax->dtype != t)
        st = wf_infer_err(r, WEFT_EDTYPE, "the argmax must be %s", weft_dtype_name(t));
    return st;
}

weft_status wf_infer_max_pool(struct wf_infer *r)
{
    weft_status st = pool_type(r, &r->in[0], &r->out[0]);
    weft_dtype t = WEFT_U8;

    if (!st)
        st = argmax_dtype(r, &t);
    if (st)
        return st;
    r->out[1] = r->out[0];
    r->out[1].dtype = t;
    return WEFT_OK;
}

weft_status wf_infer_max_pool_grad(struct wf_infer *r)
{
    weft_status st = check_argmax(r, &r->in[2], &r->in[1]);

    if (!st)
        st = check_pooled(r, &r->in[2], &r->in[0], "sizes of the pooled output");
    if (!st && r->in[0].dtype != r->in[2].dtype)
        st = wf_infer_err(r, WEFT_EDTYPE, "dy and like must have the same type");
    r->out[0] = r->in[2];
    return st;
}

weft_status wf_infer_max_pool_pick(struct wf_infer *r)
{
    r->out[0] = r->in[1];
    r->out[0].dtype = r->in[0].dtype;
    return check_argmax(r, &r->in[0], &r->in[1]);
}

weft_status wf_infer_avg_pool(struct wf_infer *r)
{
    return pool_type(r, &r->in[0], &r->out[0]);
}

weft_status wf_infer_avg_pool_grad(struct wf_infer *r)
{
    r->out[0] = r->in[1];
    if (r->in[0].dtype != r->in[1].dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "dy and like must have the same type");
    return check_pooled(r, &r->in[1], &r->in[0], "sizes of the pooled output");
}

/* ---- resizing -------------------------------------------------------------------------------- */

static weft_status resize_type(struct wf_infer *r, const struct wf_type *x, struct wf_type *y)
{
    const struct wf_attr *size = wf_in_attr(r, "size"), *scale = wf_in_attr(r, "scale");
    const struct wf_attr *list = size->n ? size : scale;
    const char *method = wf_attr_str(r->op, r->attr, "method");
    int n = x->rank - 2;

    if (!wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    if (n < 1 || n > 3)
        return wf_infer_err(r, WEFT_ESHAPE, "the input must be [batch, 1 to 3 sizes, channels]");
    if (strcmp(method, "nearest") && strcmp(method, "bilinear"))
        return wf_infer_err(r, WEFT_EINVAL, "method must be nearest or bilinear");
    if ((size->n != 0) == (scale->n != 0) || (list->n != 1 && list->n != n))
        return wf_infer_err(r, WEFT_EINVAL,
                            "size or scale must be given: one per axis, or one for all");
    *y = *x;
    for (int i = 0; i < n; i++) {
        int64_t v = list->ints[list->n == 1 ? 0 : i], in = x->dim[1 + i];

        if (v < 1)
            return wf_infer_err(r, WEFT_EINVAL, "sizes and scales must be 1 or more");
        if (in == 0)
            return wf_infer_err(r, WEFT_ESHAPE, "axis %d is empty: nothing to sample", 1 + i);
        if (list == size)
            y->dim[1 + i] = v;
        else if (in < 0)
            y->dim[1 + i] = v == 1 ? in : WEFT_ANY;
        else if (!wf_mul_i64(in, v, &y->dim[1 + i]))
            return wf_infer_err(r, WEFT_ESHAPE, "the output's size overflows");
    }
    return WEFT_OK;
}

weft_status wf_infer_resize(struct wf_infer *r)
{
    return resize_type(r, &r->in[0], &r->out[0]);
}

weft_status wf_infer_resize_grad(struct wf_infer *r)
{
    struct wf_type want;
    int64_t d;
    weft_status st = resize_type(r, &r->in[1], &want);

    if (!st && (r->in[0].dtype != r->in[1].dtype || r->in[0].rank != r->in[1].rank))
        st = wf_infer_err(r, WEFT_ESHAPE, "dy and like must have the same type and rank");
    for (int i = 0; !st && i < want.rank; i++)
        st = wf_same_dim(r, want.dim[i], r->in[0].dim[i], "sizes of the resized output", &d);
    r->out[0] = r->in[1];
    return st;
}
