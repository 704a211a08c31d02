/* dnn_conv.c - a convolution, or the gradient of one of its operands, as an operation of cuDNN. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dnn_build.h"

/* A tensor [rows][axes...][channels] in memory, in cuDNN's order of axes: rows, channels, axes. */
static cudnnBackendDescriptor_t tensor(struct wfc_cudnn_build *b, int64_t id,
                                       const struct wfc_dnn_conv *c, int64_t rows,
                                       const int64_t *axes, int64_t channels)
{
    int64_t dim[5] = {rows, channels}, stride[5] = {0, 1}, step = channels;

    for (int a = c->n_axes - 1; a >= 0; a--) {
        dim[2 + a] = axes[3 - c->n_axes + a];
        stride[2 + a] = step;
        step *= dim[2 + a];
    }
    stride[0] = step;
    return wfc_cudnn_tensor(b, id, wfc_cudnn_data_type(c->dtype), 2 + c->n_axes, dim, stride,
                            WFD_MEMORY);
}

static cudnnBackendDescriptor_t geometry(struct wfc_cudnn_build *b, const struct wfc_dnn_conv *c)
{
    cudnnBackendDescriptor_t g = wfc_cudnn_make(b, DNN_CONVOLUTION);
    int skip = 3 - c->n_axes;

    wfc_cudnn_set_enum(b, g, DNN_A_CONV_COMPUTE, DNN_T_DATA_TYPE, DNN_F32);
    wfc_cudnn_set_enum(b, g, DNN_A_CONV_MODE, DNN_T_CONV_MODE, DNN_CROSS_CORRELATION);
    wfc_cudnn_set_int(b, g, DNN_A_CONV_SPATIAL, c->n_axes);
    wfc_cudnn_set(b, g, DNN_A_CONV_STRIDES, DNN_T_INT64, c->n_axes, c->stride + skip);
    wfc_cudnn_set(b, g, DNN_A_CONV_DILATIONS, DNN_T_INT64, c->n_axes, c->dilation + skip);
    wfc_cudnn_set(b, g, DNN_A_CONV_PRE_PADS, DNN_T_INT64, c->n_axes, c->pad + skip);
    wfc_cudnn_set(b, g, DNN_A_CONV_POST_PADS, DNN_T_INT64, c->n_axes, c->pad + skip);
    wfc_cudnn_finish(b, g);
    return g;
}

void wfc_cudnn_conv(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d)
{
    static const struct {
        enum dnn_kind kind;
        enum dnn_attribute x, w, y, conv, alpha, beta;
    } of[] = {{DNN_CONV_FORWARD, DNN_A_FORWARD_X, DNN_A_FORWARD_W, DNN_A_FORWARD_Y,
               DNN_A_FORWARD_CONV, DNN_A_FORWARD_ALPHA, DNN_A_FORWARD_BETA},
              {DNN_CONV_DATA, DNN_A_DATA_DX, DNN_A_DATA_W, DNN_A_DATA_DY, DNN_A_DATA_CONV,
               DNN_A_DATA_ALPHA, DNN_A_DATA_BETA},
              {DNN_CONV_FILTER, DNN_A_FILTER_X, DNN_A_FILTER_DW, DNN_A_FILTER_DY, DNN_A_FILTER_CONV,
               DNN_A_FILTER_ALPHA, DNN_A_FILTER_BETA}};
    const struct wfc_dnn_conv *c = &d->conv;
    int k = (int)d->what;
    float one = 1, zero = 0;
    cudnnBackendDescriptor_t x = tensor(b, WFD_X, c, c->batch, c->in, c->c_in),
                             w = tensor(b, WFD_W, c, c->c_out, c->k, c->c_in / c->groups),
                             y = tensor(b, WFD_Y, c, c->batch, c->out, c->c_out),
                             g = geometry(b, c), op = wfc_cudnn_make(b, of[k].kind);

    wfc_cudnn_set_part(b, op, of[k].conv, g);
    wfc_cudnn_set_part(b, op, of[k].x, x);
    wfc_cudnn_set_part(b, op, of[k].w, w);
    wfc_cudnn_set_part(b, op, of[k].y, y);
    wfc_cudnn_set(b, op, of[k].alpha, DNN_T_FLOAT, 1, &one);
    wfc_cudnn_set(b, op, of[k].beta, DNN_T_FLOAT, 1, &zero);
    wfc_cudnn_add(b, op);
}

#endif
