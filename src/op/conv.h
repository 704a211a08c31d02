/* conv.h - the geometry of windows that slide over an image: convolution, pooling; and of resizing.
 *
 * One description covers 1, 2 and 3 spatial axes: sizes are right-aligned in arrays of three, and a
 * missing axis has the size 1. Output o of an axis sees the inputs o * stride - lo + k
 * * dilation for its taps k; those outside [0, in) are padding. */
#ifndef WF_OP_CONV_H
#define WF_OP_CONV_H

#include "op/op.h"

struct wf_window {
    int n; /* spatial axes, 1 to 3 */
    int64_t in[3], out[3], k[3], stride[3], dilation[3], lo[3];
};

/* The window of an op with the attributes strides, padding, pads and perhaps dilations, over an
 * input of type x, with k[0..n) taps along its axes. Sizes and taps may be symbolic; then `out` is
 * symbolic, and `lo` is not set. Returns NULL, or what is wrong. */
const char *wf_window_make(const struct wf_op *op, const struct wf_attr *attr,
                           const struct wf_type *x, const int64_t *k, struct wf_window *w);
/* The same for a pooling op, whose taps are the attribute `window`. */
const char *wf_pool_window(const struct wf_op *op, const struct wf_attr *attr,
                           const struct wf_type *x, struct wf_window *w);

/* A convolution of known sizes. */
struct wf_conv_geom {
    struct wf_window w;
    int64_t batch, c_in, c_out, groups;
};

/* The convolution of x with w to y that a call of conv, its gradients or conv_transpose refers to.
 * All sizes are known and have been checked by the op's shape rule. */
void wf_conv_geom_of(const struct wf_op *op, const struct wf_attr *attr, const struct wf_type *x,
                     const struct wf_type *w, const struct wf_type *y, struct wf_conv_geom *g);

/* Where resizing reads along one axis: elements a and b, the second with weight f (0 for
 * nearest). */
struct wf_resize_at {
    int64_t a, b;
    double f;
};
struct wf_resize_at wf_resize_source(bool bilinear, int64_t n_in, int64_t n_out, int64_t i);

#endif
