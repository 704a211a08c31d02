/* dnn.h - convolutions through cuDNN's graphs of operations.
 *
 * A description of a convolution becomes a plan of cuDNN: tensors, one operation, and the first of
 * the engines that the library's heuristic lists which repeats its bits, keeps the precision asked
 * for and accepts the sizes. Plans belong to the device and are shared by all calls of the same
 * description. */
#ifndef WF_CUDA_DNN_H
#define WF_CUDA_DNN_H

#include "kernels/cuda/dev.h"

struct wfd; /* a device's handle of cuDNN, and its plans */

enum wfc_dnn_what { WFD_FORWARD, WFD_DATA, WFD_FILTER };

/* Channels last; the filter is [c_out][taps][c_in / groups]. All bytes are compared: begin with
 * {0}. */
struct wfc_dnn_conv {
    int32_t what, dtype, tf32, n_axes; /* 2 or 3 spatial axes */
    int64_t batch, c_in, c_out, groups;
    int64_t in[3], out[3], k[3], stride[3], dilation[3], pad[3];
};

struct wfc_dnn_plan {
    struct wfc_dnn_plan *next;
    struct wfc_dnn_conv conv;
    cudnnBackendDescriptor_t plan;  /* NULL: cuDNN does not do it */
    cudnnBackendDescriptor_t *held; /* it and what it is made of */
    int n_held;
    size_t workspace;
    char name[40]; /* for explain: "cudnn-e38#1/12", the engine and its place in the list */
};

/* The plan of a convolution. WEFT_ENOSUP: cuDNN is missing or does not do it. */
weft_status wfc_dnn_find(struct wf_cuda *d, const struct wfc_dnn_conv *c,
                         const struct wfc_dnn_plan **out);
/* x, filter, y: of the convolution, whichever of them is the result. */
weft_status wfc_dnn_run(const struct wf_call *c, const struct wfc_dnn_plan *p, const void *x,
                        const void *filter, const void *y, void *workspace);
void wfc_dnn_free(struct wf_cuda *d);

#endif
