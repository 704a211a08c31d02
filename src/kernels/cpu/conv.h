/* conv.h - convolution on the CPU, channels last: forward and both gradients. In f32; as PRODUCT
 * also in halves.
 *
 * wf_conv_plan picks an algorithm and divides the work; wf_conv_run does it on a pool. The choice
 * depends only on the geometry and the direction, and the division on these and the SIMD level;
 * results depend on nothing else. The rules, tried in this order:
 *   PRODUCT    1 x 1, stride 1, no padding, no groups: a matrix product over all pixels
 *   WINOGRAD   2 axes, 3 x 3, stride 1, no dilation, no groups, at least 8 channels on both sides,
 *              at most 1024 outputs along a row, and tiles of 4 x 4 that together cover less than
 *              one and a half times the output
 *   DEPTHWISE  as many groups as input channels, more than one
 *   FEW        forward and filter gradient: at most 4 channels in, 1024 products a sum, no groups
 *   GENERAL    pixels are gathered into rows of a matrix that is multiplied with the filters; if
 *              a group has few channels on the result's side, the product is transposed
 *
 * Sums: each element adds its products in an order fixed by the shape, filter gradients in chunks
 * of pixels whose sums are added in order. Winograd's rounding error is about three times that of
 * the others. */
#ifndef WF_KERNELS_CPU_CONV_H
#define WF_KERNELS_CPU_CONV_H

#include "kernels/cpu/gemm.h"
#include "op/conv.h"

enum wf_conv_dir {
    WF_CONV_FORWARD,    /* (x, w) -> y */
    WF_CONV_GRAD_INPUT, /* (dy, w) -> dx */
    WF_CONV_GRAD_FILTER /* (x, dy) -> dw */
};

enum wf_conv_algo {
    WF_CONV_AUTO,
    WF_CONV_PRODUCT,
    WF_CONV_WINOGRAD,
    WF_CONV_DEPTHWISE,
    WF_CONV_FEW,
    WF_CONV_GENERAL
};

struct wf_conv_desc {
    struct wf_conv_geom geom;
    enum wf_conv_dir dir;
    enum wf_conv_algo algo; /* AUTO: by the rules. Another one is refused if it does not apply */
    int type_a, type_b, type_out; /* enum wf_gemm_type; halves are refused if it is no PRODUCT */
    /* Forward only, may be NULL: called once for each finished piece of y, seen as a matrix of
     * batch * out pixels by c_out channels: b is 0, row the first pixel. See gemm.h. */
    wf_gemm_epilogue *epilogue;
    void *epilogue_arg;
};

/* A planned convolution. It is in the arena it was planned in, and refers to nothing but the
 * epilogue. */
struct wf_conv;

/* n_threads limits the pool that runs it and determines the size of the scratch memory, nothing
 * else. WEFT_ENOSUP if d->algo or the types do not apply. */
weft_status wf_conv_plan(const struct wf_conv_desc *d, weft_simd level, int n_threads,
                         struct wf_arena *arena, struct wf_conv **out, size_t *scratch_bytes);

/* a, b and out depend on the direction. scratch is 64-byte aligned. Allocates and locks nothing. */
void wf_conv_run(const struct wf_conv *c, struct wf_pool *pool, const void *a, const void *b,
                 void *out, void *scratch);

/* "winograd", "general", … */
const char *wf_conv_algo_name(const struct wf_conv *c);

#endif
