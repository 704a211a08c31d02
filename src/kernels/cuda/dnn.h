/* dnn.h - convolutions and attention through cuDNN's graphs of operations.
 *
 * A description becomes a plan of cuDNN: tensors, operations, and the first of the engines that the
 * library's heuristic lists which repeats its bits, keeps the precision asked for and accepts the
 * sizes. Plans belong to the device and are shared by all calls of the same description. */
#ifndef WF_CUDA_DNN_H
#define WF_CUDA_DNN_H

#include "kernels/cuda/dev.h"

struct wfd; /* a device's handle of cuDNN, and its plans */

enum wfc_dnn_what { WFD_FORWARD, WFD_DATA, WFD_FILTER, WFD_ATTENTION, WFD_ATTENTION_GRAD };

/* Numbers of tensors in a graph: of a convolution X, W and Y; of attention the others and Y. */
enum wfc_dnn_id {
    WFD_X = 1,
    WFD_W,
    WFD_Y,
    WFD_Q,
    WFD_K,
    WFD_V,
    WFD_LSE,
    WFD_DY,
    WFD_DQ,
    WFD_DK,
    WFD_DV,
    WFD_DELTA,        /* the sum of y dy of each query, in scratch memory */
    WFD_SCALE,        /* numbers: of the scores, */
    WFD_NEVER,        /* minus infinity, */
    WFD_ONE,          /* one */
    WFD_FIRST_BETWEEN /* those between two operations */
};

/* Channels last; the filter is [c_out][taps][c_in / groups]. */
struct wfc_dnn_conv {
    int32_t dtype, tf32;
    int64_t n_axes; /* 2 or 3 spatial axes */
    int64_t batch, c_in, c_out, groups;
    int64_t in[3], out[3], k[3], stride[3], dilation[3], pad[3];
};

/* Heads of d (q, k) and dv (v, y) halves; strides of batch, head and time; each row is together. */
struct wfc_dnn_att {
    int32_t dtype, causal;
    int64_t n_b, n_h, n_q, n_k, d, dv;
    int64_t q[3], k[3], v[3], y[3], dy[3], dq[3], dk[3], dv_out[3];
};

/* All bytes are compared: begin with {0}. */
struct wfc_dnn_desc {
    int64_t what;
    union {
        struct wfc_dnn_conv conv;
        struct wfc_dnn_att att;
    };
};

struct wfc_dnn_plan {
    struct wfc_dnn_plan *next;
    struct wfc_dnn_desc desc;
    cudnnBackendDescriptor_t plan;  /* NULL: cuDNN does not do it */
    cudnnBackendDescriptor_t *held; /* it and what it is made of */
    int n_held;
    size_t workspace;
    char name[40]; /* for explain: "cudnn-e38#1/12", the engine and its place in the list */
};

/* The plan of a description. WEFT_ENOSUP: cuDNN is missing or does not do it. */
weft_status wfc_dnn_find(struct wf_cuda *d, const struct wfc_dnn_desc *desc,
                         const struct wfc_dnn_plan **out);
/* The tensors of the graph in memory and its numbers: ids and where they are. */
weft_status wfc_dnn_run(const struct wf_call *c, const struct wfc_dnn_plan *p, int n,
                        const int64_t *ids, const void *const *at, void *workspace);
/* x, filter, y: of the convolution, whichever of them is the result. */
weft_status wfc_dnn_run_conv(const struct wf_call *c, const struct wfc_dnn_plan *p, const void *x,
                             const void *filter, const void *y, void *workspace);
void wfc_dnn_free(struct wf_cuda *d);

#endif
