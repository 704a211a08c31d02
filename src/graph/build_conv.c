/* build_conv.c - builders of convolution, pooling and resizing. */
#include "graph/graph.h"
#include "weft/ops_conv.h"

static const char *const padding_names[] = {
    [WEFT_PAD_VALID] = "valid",
    [WEFT_PAD_SAME] = "same",
    [WEFT_PAD_EXPLICIT] = "explicit",
    [WEFT_PAD_CAUSAL] = "explicit",
};

static weft_val refuse(weft_graph *g, const char *what, const char *why)
{
    wf_graph_fail(g, wf_err(WEFT_EINVAL, "%s: %s", what, why));
    return WEFT_NIL;
}

/* Whether x is a value with 1 to 3 spatial sizes; sets n to their number. */
static bool spatial(weft_graph *g, weft_val x, const char *what, int *n)
{
    if (!wf_check_val(g, x, what))
        return false;
    *n = wf_val_type_of(g, x)->rank - 2;
    if (*n >= 1 && *n <= 3)
        return true;
    char text[WF_TYPE_TEXT];

    wf_graph_fail(g,
                  wf_err(WEFT_ESHAPE, "%s: %s: the input must be [batch, 1 to 3 sizes, channels]",
                         what, wf_type_text(wf_val_type_of(g, x), text)));
    return false;
}

/* One value per axis: the first applies to omitted ones, `otherwise` if there is none. */
static void spread(const int64_t from[3], int n, int64_t otherwise, int64_t to[3])
{
    for (int i = 0; i < n; i++)
        to[i] = from[i] ? from[i] : from[0] ? from[0] : otherwise;
}

/* The pads of the options; for causal padding, from the kernel's sizes. */
static const char *pads_of(weft_graph *g, weft_padding padding, const int64_t given[6], weft_val w,
                           int n, const int64_t *dilations, int64_t pads[6])
{
    const struct wf_type *t = wf_val_type_of(g, w);

    for (int i = 0; i < 2 * n; i++) {
        pads[i] = given[i];
        if (given[i] && padding != WEFT_PAD_EXPLICIT)
            return "pads need WEFT_PAD_EXPLICIT";
    }
    for (int i = 0; i < n && padding == WEFT_PAD_CAUSAL; i++) {
        if (t->rank != n + 2 || t->dim[i] < 1)
            return "causal padding needs a kernel of known size";
        if (!wf_mul_i64(t->dim[i] - 1, dilations[i], &pads[2 * i]))
            return "dilations must not be negative";
    }
    return NULL;
}

static int n_pads(weft_padding padding, int n)
{
    return padding == WEFT_PAD_EXPLICIT || padding == WEFT_PAD_CAUSAL ? 2 * n : 0;
}

weft_val weft_conv(weft_graph *g, weft_val x, weft_val w, const weft_conv_opts *opts)
{
    weft_conv_opts o;
    int64_t strides[3], dilations[3], pads[6];
    const char *wrong;
    int n;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_conv_opts") || !spatial(g, x, "conv", &n) ||
        !wf_check_val(g, w, "conv"))
        return WEFT_NIL;
    if (o.padding < 0 || o.padding >= WF_COUNT(padding_names))
        return refuse(g, "conv", "this padding does not exist");
    spread(o.strides, n, 1, strides);
    spread(o.dilations, n, 1, dilations);
    wrong = pads_of(g, o.padding, o.pads, w, n, dilations, pads);
    if (wrong)
        return refuse(g, "conv", wrong);
    struct wf_set sets[] = {
        WF_SET_INTS("strides", n, strides),
        WF_SET_INTS("dilations", n, dilations),
        WF_SET_STR("padding", padding_names[o.padding]),
        WF_SET_INTS("pads", n_pads(o.padding, n), pads),
        WF_SET_INT("groups", o.groups ? o.groups : 1),
    };

    return wf_build(g, WF_OP_conv, 2, (weft_val[]){x, w}, WF_COUNT(sets), sets);
}

weft_val weft_depthwise_conv(weft_graph *g, weft_val x, weft_val w, const weft_conv_opts *opts)
{
    weft_conv_opts o;
    const struct wf_type *t;
    int64_t shape[5];
    int n;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_conv_opts") ||
        !spatial(g, x, "depthwise_conv", &n) || !wf_check_val(g, w, "depthwise_conv"))
        return WEFT_NIL;
    t = wf_val_type_of(g, w);
    if (o.groups)
        return refuse(g, "depthwise_conv", "groups cannot be set: each channel is a group");
    if (t->rank != n + 2 || !wf_type_known(t) ||
        !wf_mul_i64(t->dim[n], t->dim[n + 1], &shape[n + 1]))
        return refuse(g, "depthwise_conv", "needs a kernel [taps, in, mult] of known sizes");
    for (int i = 0; i < n; i++)
        shape[i] = t->dim[i];
    shape[n] = 1;
    o.groups = t->dim[n];
    struct wf_set sets[] = {WF_SET_INTS("shape", n + 2, shape)};

    return weft_conv(g, x, wf_build(g, WF_OP_reshape, 1, &w, 1, sets), &o);
}

weft_val weft_separable_conv(weft_graph *g, weft_val x, weft_val depthwise, weft_val pointwise,
                             const weft_conv_opts *opts)
{
    return weft_conv(g, weft_depthwise_conv(g, x, depthwise, opts), pointwise, NULL);
}

weft_val weft_conv_transpose(weft_graph *g, weft_val x, weft_val w,
                             const weft_conv_transpose_opts *opts)
{
    weft_conv_transpose_opts o;
    int64_t strides[3], dilations[3], pads[6], extra[3] = {0};
    const char *wrong;
    int n, n_extra = 0;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_conv_transpose_opts") ||
        !spatial(g, x, "conv_transpose", &n) || !wf_check_val(g, w, "conv_transpose"))
        return WEFT_NIL;
    if (o.padding < 0 || o.padding >= WEFT_PAD_CAUSAL)
        return refuse(g, "conv_transpose", "the padding must be valid, same or explicit");
    spread(o.strides, n, 1, strides);
    spread(o.dilations, n, 1, dilations);
    spread(o.output_padding, n, 0, extra);
    for (int i = 0; i < n; i++) {
        n_extra = extra[i] ? n : n_extra;
        extra[i] = extra[i] == WEFT_ZERO ? 0 : extra[i];
    }
    wrong = pads_of(g, o.padding, o.pads, w, n, dilations, pads);
    if (wrong)
        return refuse(g, "conv_transpose", wrong);
    struct wf_set sets[] = {
        WF_SET_INTS("strides", n, strides),
        WF_SET_INTS("dilations", n, dilations),
        WF_SET_STR("padding", padding_names[o.padding]),
        WF_SET_INTS("pads", n_pads(o.padding, n), pads),
        WF_SET_INTS("output_padding", n_extra, extra),
        WF_SET_INT("groups", o.groups ? o.groups : 1),
    };

    return wf_build(g, WF_OP_conv_transpose, 2, (weft_val[]){x, w}, WF_COUNT(sets), sets);
}

static weft_val pool(weft_graph *g, int op_id, weft_val x, const weft_pool_opts *opts)
{
    weft_pool_opts o;
    const char *name = op_id == WF_OP_max_pool ? "max_pool" : "avg_pool", *wrong;
    int64_t window[3], strides[3], pads[6];
    int n;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_pool_opts") || !spatial(g, x, name, &n))
        return WEFT_NIL;
    if (o.padding < 0 || o.padding >= WEFT_PAD_CAUSAL)
        return refuse(g, name, "the padding must be valid, same or explicit");
    spread(o.window, n, 2, window);
    for (int i = 0; i < n; i++)
        strides[i] = o.strides[i] ? o.strides[i] : o.strides[0] ? o.strides[0] : window[i];
    wrong = pads_of(g, o.padding, o.pads, x, n, NULL, pads);
    if (wrong)
        return refuse(g, name, wrong);
    struct wf_set sets[] = {
        WF_SET_INTS("window", n, window),
        WF_SET_INTS("strides", n, strides),
        WF_SET_STR("padding", padding_names[o.padding]),
        WF_SET_INTS("pads", n_pads(o.padding, n), pads),
    };

    return wf_build(g, op_id, 1, &x, WF_COUNT(sets), sets);
}

weft_val weft_max_pool(weft_graph *g, weft_val x, const weft_pool_opts *opts)
{
    return pool(g, WF_OP_max_pool, x, opts);
}

weft_val weft_avg_pool(weft_graph *g, weft_val x, const weft_pool_opts *opts)
{
    return pool(g, WF_OP_avg_pool, x, opts);
}

static weft_val global_pool(weft_graph *g, int op_id, weft_val x, const weft_global_pool_opts *opts)
{
    weft_global_pool_opts o;
    static const int64_t axes[] = {1, 2, 3};
    int n;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_global_pool_opts") ||
        !spatial(g, x, "global pooling", &n))
        return WEFT_NIL;
    struct wf_set sets[] = {
        WF_SET_INTS("axes", n, axes),
        WF_SET_BOOL("keepdims", o.keepdims),
    };

    return wf_build(g, op_id, 1, &x, WF_COUNT(sets), sets);
}

weft_val weft_global_max_pool(weft_graph *g, weft_val x, const weft_global_pool_opts *opts)
{
    return global_pool(g, WF_OP_reduce_max, x, opts);
}

weft_val weft_global_avg_pool(weft_graph *g, weft_val x, const weft_global_pool_opts *opts)
{
    return global_pool(g, WF_OP_mean, x, opts);
}

weft_val weft_resize(weft_graph *g, weft_val x, const weft_resize_opts *opts)
{
    weft_resize_opts o;
    int64_t list[3];
    int n;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_resize_opts") || !spatial(g, x, "resize", &n))
        return WEFT_NIL;
    if (o.method < 0 || o.method > WEFT_RESIZE_BILINEAR)
        return refuse(g, "resize", "the method must be nearest or bilinear");
    if ((o.to[0] != 0) == (o.scale[0] != 0))
        return refuse(g, "resize", "give the new sizes or a scale");
    spread(o.to[0] ? o.to : o.scale, n, 1, list);
    struct wf_set sets[] = {
        WF_SET_INTS(o.to[0] ? "size" : "scale", n, list),
        WF_SET_STR("method", o.method == WEFT_RESIZE_BILINEAR ? "bilinear" : "nearest"),
    };

    return wf_build(g, WF_OP_resize, 1, &x, WF_COUNT(sets), sets);
}
