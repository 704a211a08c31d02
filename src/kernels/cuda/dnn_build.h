/* dnn_build.h - how a graph of cuDNN's operations is put together: for the dnn_*.c files. */
#ifndef WF_CUDA_DNN_BUILD_H
#define WF_CUDA_DNN_BUILD_H

#include "kernels/cuda/dnn.h"

enum { WFD_MAX_MADE = 320, WFD_MAX_OPS = 32 };

/* What is being made; the first error stays, and all calls after it do nothing. */
struct wfc_cudnn_build {
    const struct wf_cuda_api *api;
    cudnnHandle_t handle;
    cudnnStatus_t r;
    int n, n_ops;
    cudnnBackendDescriptor_t made[WFD_MAX_MADE];
    cudnnBackendDescriptor_t ops[WFD_MAX_OPS]; /* of the graph, in their order */
};

cudnnBackendDescriptor_t wfc_cudnn_make(struct wfc_cudnn_build *b, enum dnn_kind kind);
void wfc_cudnn_set(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d, enum dnn_attribute name,
                   enum dnn_type type, int64_t n, const void *values);
void wfc_cudnn_set_int(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d,
                       enum dnn_attribute name, int64_t v);
void wfc_cudnn_set_enum(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d,
                        enum dnn_attribute name, enum dnn_type type, int v);
void wfc_cudnn_set_part(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d,
                        enum dnn_attribute name, cudnnBackendDescriptor_t part);
void wfc_cudnn_finish(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d);
/* Finishes an operation and adds it to the graph. */
void wfc_cudnn_add(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t op);

/* in memory; only between operations; one number that is given with the call */
enum wfc_cudnn_where { WFD_MEMORY, WFD_VIRTUAL, WFD_VALUE };

cudnnBackendDescriptor_t wfc_cudnn_tensor(struct wfc_cudnn_build *b, int64_t id, enum dnn_data type,
                                          int rank, const int64_t *dim, const int64_t *stride,
                                          enum wfc_cudnn_where where);
enum dnn_data wfc_cudnn_data_type(int dtype);

/* The operations of a convolution (dnn_conv.c), of attention and its gradient (dnn_att.c). */
void wfc_cudnn_conv(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d);
void wfc_cudnn_attention(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d);
void wfc_cudnn_attention_grad(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d);

#endif
