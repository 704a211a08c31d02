/* weft/ops_conv.h - convolution, pooling and resizing of sequences, images and volumes.
 *
 * Values are channels-last, as in Keras: x is [batch, sizes, channels] with one to three sizes
 * (rank 3, 4 or 5). All float types are supported; all operands of a call must have the same one.
 * Shape errors name op and shapes.
 *
 * Options with three elements have one per axis; if only the first is set, it applies to all
 * axes. */
#ifndef WEFT_OPS_CONV_H
#define WEFT_OPS_CONV_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an axis of `in` elements is padded with zeros (pooling: with nothing), where a window of k
 * taps spans span = (k - 1) * dilation + 1:
 *   VALID     not at all:                          out = (in - span) / stride + 1
 *   SAME      so that out = ceil(in / stride), the odd element after the axis
 *   EXPLICIT  by opts.pads:                        out = (in + before + after - span) / stride + 1
 *   CAUSAL    (span - 1) before the axis, nothing after it; convolution only */
typedef enum weft_padding {
    WEFT_PAD_VALID,
    WEFT_PAD_SAME,
    WEFT_PAD_EXPLICIT,
    WEFT_PAD_CAUSAL
} weft_padding;

typedef struct weft_conv_opts {
    size_t size;
    int64_t strides[3];   /* 0: 1 */
    int64_t dilations[3]; /* 0: 1 */
    weft_padding padding;
    int64_t pads[6]; /* EXPLICIT: before and after each axis */
    int64_t groups;  /* 0: 1. Channels are divided into this many groups, each convolved
                      * separately */
} weft_conv_opts;

/* y[n, o, c] = sum over taps k and input channels i of
 *              x[n, o * stride - before + k * dilation, i] * w[k, i, c].
 * w is [taps of each axis, in / groups, out]; y is [batch, out sizes, out]. */
WEFT_API weft_val weft_conv(weft_graph *g, weft_val x, weft_val w, const weft_conv_opts *opts);

/* Each channel separately, giving `mult` channels: w is [taps, in, mult], y has in * mult channels,
 * those of channel i starting at i * mult. opts.groups must be 0. The sizes of w must be known. */
WEFT_API weft_val weft_depthwise_conv(weft_graph *g, weft_val x, weft_val w,
                                      const weft_conv_opts *opts);

/* Depthwise by `depthwise`, with opts, then 1 x 1 by `pointwise` ([1, …, in * mult, out]). */
WEFT_API weft_val weft_separable_conv(weft_graph *g, weft_val x, weft_val depthwise,
                                      weft_val pointwise, const weft_conv_opts *opts);

typedef struct weft_conv_transpose_opts {
    size_t size;
    int64_t strides[3];        /* 0: 1 */
    int64_t dilations[3];      /* 0: 1 */
    weft_padding padding;      /* not CAUSAL */
    int64_t pads[6];           /* EXPLICIT: how much is cut off before and after each axis */
    int64_t output_padding[3]; /* added to each size, less than the stride; 0: by the padding.
                                * WEFT_ZERO counts */
    int64_t groups;            /* 0: 1 */
} weft_conv_transpose_opts;

/* Transposed convolution (Keras' Conv2DTranspose): the gradient of a convolution with respect to
 * its input, as a layer that enlarges images. w is [taps, out / groups, in]. A size becomes
 *   SAME      in * stride
 *   VALID     in * stride + max(span - stride, 0)
 *   EXPLICIT  the same minus the pads
 * and with an output_padding p (in - 1) * stride + span - cut + p, where `cut` is 2 * (span / 2)
 * for SAME, 0 for VALID and the pads for EXPLICIT. */
WEFT_API weft_val weft_conv_transpose(weft_graph *g, weft_val x, weft_val w,
                                      const weft_conv_transpose_opts *opts);

typedef struct weft_pool_opts {
    size_t size;
    int64_t window[3];  /* 0: 2 */
    int64_t strides[3]; /* 0: the window */
    weft_padding padding;
    int64_t pads[6]; /* EXPLICIT: smaller than the window */
} weft_pool_opts;

/* The largest element of each window; padding is never the maximum, NaN always is. The first of
 * equal elements gets the gradient. weft_output(g, y, 1) is its position in the window, counted row
 * by row (u8; i32 for windows over 256). */
WEFT_API weft_val weft_max_pool(weft_graph *g, weft_val x, const weft_pool_opts *opts);
/* The mean of each window; padding does not count. */
WEFT_API weft_val weft_avg_pool(weft_graph *g, weft_val x, const weft_pool_opts *opts);

typedef struct weft_global_pool_opts {
    size_t size;
    bool keepdims; /* keep the axes with size 1 */
} weft_global_pool_opts;

/* The largest element, and the mean, of each channel of each item: [batch, channels]. */
WEFT_API weft_val weft_global_max_pool(weft_graph *g, weft_val x,
                                       const weft_global_pool_opts *opts);
WEFT_API weft_val weft_global_avg_pool(weft_graph *g, weft_val x,
                                       const weft_global_pool_opts *opts);

typedef enum weft_resize_method { WEFT_RESIZE_NEAREST, WEFT_RESIZE_BILINEAR } weft_resize_method;

typedef struct weft_resize_opts {
    size_t size;
    int64_t to[3];    /* new sizes */
    int64_t scale[3]; /* or scale factors (Keras' UpSampling) */
    weft_resize_method method;
} weft_resize_opts;

/* Resamples with half-pixel centers, as tf.image.resize does: element i of an axis is read at (i +
 * 1/2) * in / out - 1/2, from the nearest element or linearly from the two around it. */
WEFT_API weft_val weft_resize(weft_graph *g, weft_val x, const weft_resize_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
