/* layers_conv.c - convolutions and pooling of sequences, images and volumes, channels last. */
#include "model/core.h"
#include "model/layers.h"

static const char *const meaning[] = {"", "[batch, time, channels]",
                                      "[batch, height, width, channels]",
                                      "[batch, depth, height, width, channels]"};

/* What all of these check and read, for n spatial axes. */
struct window {
    int n;
    int64_t size[3], strides[3], dilations[3];
    weft_padding padding;
    int64_t n_in;
};

static weft_status positive_tuple(weft_layer_call *c, const char *attr, int n, int64_t *out)
{
    weft_status st = weft_lc_tuple(c, attr, n, out);

    for (int i = 0; i < n && !st; i++)
        st = wf_lc_positive(c, attr, out[i]);
    return st;
}

static weft_status read_padding(weft_layer_call *c, bool causal, weft_padding *out)
{
    static const char *const words[] = {"valid", "same", "causal"};
    static const weft_padding paddings[] = {WEFT_PAD_VALID, WEFT_PAD_SAME, WEFT_PAD_CAUSAL};
    int i = wf_lc_choice(c, "padding", causal ? 3 : 2, words);

    if (i < 0)
        return WEFT_EINVAL;
    *out = paddings[i];
    return WEFT_OK;
}

static weft_status read_window(weft_layer_call *c, int n, bool causal, struct window *w)
{
    weft_status st = wf_lc_need_rank(c, n + 2, meaning[n]);

    *w = (struct window){.n = n};
    if (!st)
        st = wf_lc_channels_last(c);
    if (!st)
        st = positive_tuple(c, "kernel_size", n, w->size);
    if (!st)
        st = positive_tuple(c, "strides", n, w->strides);
    if (!st)
        st = positive_tuple(c, "dilation_rate", n, w->dilations);
    if (!st)
        st = read_padding(c, causal, &w->padding);
    w->n_in = st ? 0 : weft_lc_dim(c, weft_lc_in(c, 0), -1);
    return st;
}

static weft_conv_opts conv_opts(const struct window *w)
{
    weft_conv_opts o = {.size = sizeof o, .padding = w->padding};

    memcpy(o.strides, w->strides, sizeof o.strides);
    memcpy(o.dilations, w->dilations, sizeof o.dilations);
    return o;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static weft_status conv(weft_layer_call *c, int n)
{
    struct window w;
    int64_t filters = weft_lc_int(c, "filters"), groups = weft_lc_int(c, "groups");
    int64_t dim[5];
    weft_conv_opts o;
    weft_val y;
    weft_status st = wf_lc_positive(c, "filters", filters);

    if (!st)
        st = wf_lc_positive(c, "groups", groups);
    if (!st)
        st = read_window(c, n, n == 1, &w);
    if (st)
        return st;
    if (w.n_in % groups || filters % groups)
        return weft_lc_fail(c, WEFT_EINVAL,
                            "%lld channels and %lld filters are not multiples of %lld groups",
                            (long long)w.n_in, (long long)filters, (long long)groups);
    memcpy(dim, w.size, sizeof w.size);
    dim[n] = w.n_in / groups;
    dim[n + 1] = filters;
    o = conv_opts(&w);
    o.groups = groups;
    y = weft_conv(weft_lc_graph(c), wf_lc_float_input(c, weft_lc_in(c, 0)),
                  wf_lc_param(c, "kernel", n + 2, dim), &o);
    weft_lc_out(c, 0, wf_lc_finish(c, y, filters));
    return WEFT_OK;
}

static weft_status conv_transpose(weft_layer_call *c, int n)
{
    struct window w;
    const int64_t *extra;
    int n_extra = weft_lc_ints(c, "output_padding", &extra);
    int64_t filters = weft_lc_int(c, "filters"), dim[5], pad[3];
    weft_conv_transpose_opts o = {.size = sizeof o};
    weft_val y;
    weft_status st = wf_lc_positive(c, "filters", filters);

    if (!st)
        st = read_window(c, n, false, &w);
    if (!st && n_extra)
        st = weft_lc_tuple(c, "output_padding", n, pad);
    if (st)
        return st;
    memcpy(dim, w.size, sizeof w.size);
    dim[n] = filters;
    dim[n + 1] = w.n_in;
    memcpy(o.strides, w.strides, sizeof o.strides);
    memcpy(o.dilations, w.dilations, sizeof o.dilations);
    o.padding = w.padding;
    for (int i = 0; i < n && n_extra; i++) {
        if (pad[i] < 0 || pad[i] >= w.strides[i])
            return weft_lc_fail(c, WEFT_EINVAL, "output_padding must be less than the strides");
        o.output_padding[i] = pad[i] ? pad[i] : WEFT_ZERO;
    }
    y = weft_conv_transpose(weft_lc_graph(c), wf_lc_float_input(c, weft_lc_in(c, 0)),
                            wf_lc_param(c, "kernel", n + 2, dim), &o);
    weft_lc_out(c, 0, wf_lc_finish(c, y, filters));
    return WEFT_OK;
}

static weft_status depthwise(weft_layer_call *c, int n)
{
    struct window w;
    int64_t mult = weft_lc_int(c, "depth_multiplier"), dim[5];
    weft_conv_opts o;
    weft_val y;
    weft_status st = wf_lc_positive(c, "depth_multiplier", mult);

    if (!st)
        st = read_window(c, n, n == 1, &w);
    if (st)
        return st;
    memcpy(dim, w.size, sizeof w.size);
    dim[n] = w.n_in;
    dim[n + 1] = mult;
    o = conv_opts(&w);
    y = weft_depthwise_conv(weft_lc_graph(c), wf_lc_float_input(c, weft_lc_in(c, 0)),
                            wf_lc_param_as(c, "kernel", "depthwise", n + 2, dim), &o);
    weft_lc_out(c, 0, wf_lc_finish(c, y, w.n_in * mult));
    return WEFT_OK;
}

static weft_status separable(weft_layer_call *c, int n)
{
    struct window w;
    int64_t filters = weft_lc_int(c, "filters"), mult = weft_lc_int(c, "depth_multiplier");
    int64_t dim[5], one[5] = {1, 1, 1};
    weft_conv_opts o;
    weft_val deep, point;
    weft_status st = wf_lc_positive(c, "filters", filters);

    if (!st)
        st = wf_lc_positive(c, "depth_multiplier", mult);
    if (!st)
        st = read_window(c, n, n == 1, &w);
    if (st)
        return st;
    memcpy(dim, w.size, sizeof w.size);
    dim[n] = w.n_in;
    dim[n + 1] = mult;
    one[n] = w.n_in * mult;
    one[n + 1] = filters;
    deep = wf_lc_param_as(c, "depthwise_kernel", "depthwise", n + 2, dim);
    point = wf_lc_param_as(c, "pointwise_kernel", "pointwise", n + 2, one);
    o = conv_opts(&w);
    weft_lc_out(
        c, 0,
        wf_lc_finish(c,
                     weft_separable_conv(weft_lc_graph(c), wf_lc_float_input(c, weft_lc_in(c, 0)),
                                         deep, point, &o),
                     filters));
    return WEFT_OK;
}

/* ---- pooling --------------------------------------------------------------------------------- */

typedef weft_val pool_fn(weft_graph *g, weft_val x, const weft_pool_opts *opts);
typedef weft_val global_fn(weft_graph *g, weft_val x, const weft_global_pool_opts *opts);

static weft_status pool(weft_layer_call *c, int n, pool_fn *build)
{
    weft_pool_opts o = {.size = sizeof o};
    const int64_t *strides;
    weft_status st = wf_lc_need_rank(c, n + 2, meaning[n]);

    if (!st)
        st = wf_lc_channels_last(c);
    if (!st)
        st = positive_tuple(c, "pool_size", n, o.window);
    if (!st && weft_lc_ints(c, "strides", &strides))
        st = positive_tuple(c, "strides", n, o.strides);
    if (!st)
        st = read_padding(c, false, &o.padding);
    if (st)
        return st;
    weft_lc_out(c, 0, build(weft_lc_graph(c), weft_lc_in(c, 0), &o));
    return WEFT_OK;
}

static weft_status global_pool(weft_layer_call *c, int n, global_fn *build)
{
    weft_status st = wf_lc_need_rank(c, n + 2, meaning[n]);

    if (!st)
        st = wf_lc_channels_last(c);
    if (st)
        return st;
    weft_lc_out(c, 0,
                build(weft_lc_graph(c), weft_lc_in(c, 0),
                      WEFT_OPTS(weft_global_pool_opts, .keepdims = weft_lc_bool(c, "keepdims"))));
    return WEFT_OK;
}

/* The mean of the steps that are not masked. */
static weft_status masked_mean(weft_layer_call *c, weft_val mask)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), step = weft_expand_dims(g, mask, 2);
    weft_reduce_opts time = {
        .size = sizeof time, .n_axes = 1, .axes = {1}, .keepdims = weft_lc_bool(c, "keepdims")};
    weft_val sum = weft_sum(g, weft_where(g, step, x, weft_zeros_like(g, x)), &time);
    weft_val n = weft_sum(g, weft_cast(g, step, wf_val_type_of(g, x)->dtype), &time);

    weft_lc_out(c, 0, weft_div(g, sum, n));
    return WEFT_OK;
}

weft_status wf_layer_global_avg_pool1d(weft_layer_call *c)
{
    weft_val mask = weft_lc_mask(c, 0);
    weft_status st = wf_lc_need_rank(c, 3, meaning[1]);

    if (st)
        return st;
    return mask.id ? masked_mean(c, mask) : global_pool(c, 1, weft_global_avg_pool);
}

/* One axis of size `from` as `to` windows that cover it: window i is [i * from / to, (i + 1) * from
 * / to), ends rounded outwards. Windows of means and of maxima can be taken axis by axis. */
static weft_val adapt_axis(weft_graph *g, weft_val x, int axis, int64_t from, int64_t to, bool max)
{
    weft_reduce_opts along = {.size = sizeof along, .n_axes = 1, .axes = {axis}, .keepdims = true};
    weft_val part[WF_MAX_IN];

    for (int64_t i = 0; i < to; i++) {
        int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;

        part[i] = weft_slice_axis(g, x, axis, begin, end - begin);
        part[i] = max ? weft_reduce_max(g, part[i], &along) : weft_mean(g, part[i], &along);
    }
    return to == 1 ? part[0] : weft_concat(g, (int)to, part, axis);
}

static weft_status adaptive_pool(weft_layer_call *c, int n, bool max)
{
    weft_val x = weft_lc_in(c, 0);
    int64_t to[3];
    weft_status st = wf_lc_need_rank(c, n + 2, meaning[n]);

    if (!st)
        st = wf_lc_channels_last(c);
    if (!st)
        st = positive_tuple(c, "output_size", n, to);
    for (int i = 0; i < n && !st; i++) {
        int64_t from = weft_lc_dim(c, weft_lc_in(c, 0), i + 1);

        if (to[i] > WF_MAX_IN || from < 1 || from > INT32_MAX)
            return weft_lc_fail(c, WEFT_EINVAL, "%lld windows of %lld elements", (long long)to[i],
                                (long long)from);
        x = adapt_axis(weft_lc_graph(c), x, i + 1, from, to[i], max);
    }
    if (st)
        return st;
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}

/* ---- the rows -------------------------------------------------------------------------------- */

#define ROW(name, expression)                       \
    weft_status wf_layer_##name(weft_layer_call *c) \
    {                                               \
        return expression;                          \
    }

ROW(conv1d, conv(c, 1))
ROW(conv2d, conv(c, 2))
ROW(conv3d, conv(c, 3))
ROW(conv1d_transpose, conv_transpose(c, 1))
ROW(conv2d_transpose, conv_transpose(c, 2))
ROW(conv3d_transpose, conv_transpose(c, 3))
ROW(depthwise_conv1d, depthwise(c, 1))
ROW(depthwise_conv2d, depthwise(c, 2))
ROW(separable_conv1d, separable(c, 1))
ROW(separable_conv2d, separable(c, 2))
ROW(max_pool1d, pool(c, 1, weft_max_pool))
ROW(max_pool2d, pool(c, 2, weft_max_pool))
ROW(max_pool3d, pool(c, 3, weft_max_pool))
ROW(avg_pool1d, pool(c, 1, weft_avg_pool))
ROW(avg_pool2d, pool(c, 2, weft_avg_pool))
ROW(avg_pool3d, pool(c, 3, weft_avg_pool))
ROW(global_max_pool1d, global_pool(c, 1, weft_global_max_pool))
ROW(global_max_pool2d, global_pool(c, 2, weft_global_max_pool))
ROW(global_max_pool3d, global_pool(c, 3, weft_global_max_pool))
ROW(global_avg_pool2d, global_pool(c, 2, weft_global_avg_pool))
ROW(global_avg_pool3d, global_pool(c, 3, weft_global_avg_pool))
ROW(adaptive_avg_pool1d, adaptive_pool(c, 1, false))
ROW(adaptive_avg_pool2d, adaptive_pool(c, 2, false))
ROW(adaptive_avg_pool3d, adaptive_pool(c, 3, false))
ROW(adaptive_max_pool1d, adaptive_pool(c, 1, true))
ROW(adaptive_max_pool2d, adaptive_pool(c, 2, true))
ROW(adaptive_max_pool3d, adaptive_pool(c, 3, true))
