/* cudnn.h - the part of cuDNN 9's interface that weft calls: functions, types and the numbers of
 * its constants. They are written down here so that weft builds where cuDNN's headers are
 * missing; the library itself is found at run time (api.c). */
#ifndef WF_CUDA_CUDNN_H
#define WF_CUDA_CUDNN_H

#include <stddef.h>
#include <stdint.h>

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
typedef int cudnnStatus_t;
struct CUstream_st;

enum { DNN_OK = 0 };

/* kinds of descriptors */
enum dnn_kind {
    DNN_POINTWISE = 0,
    DNN_CONVOLUTION = 1,
    DNN_ENGINE = 2,
    DNN_ENGINE_CONFIG = 3,
    DNN_HEURISTIC = 4,
    DNN_PLAN = 5,
    DNN_CONV_FORWARD = 10,
    DNN_CONV_FILTER = 11,
    DNN_CONV_DATA = 12,
    DNN_OP_POINTWISE = 13,
    DNN_GRAPH = 15,
    DNN_PACK = 16,
    DNN_TENSOR = 17,
    DNN_MATMUL = 18,
    DNN_OP_MATMUL = 19,
    DNN_REDUCTION = 21,
    DNN_OP_REDUCTION = 22,
    DNN_OP_RESHAPE = 31
};

/* types of attributes' values */
enum dnn_type {
    DNN_T_HANDLE = 0,
    DNN_T_DATA_TYPE = 1,
    DNN_T_BOOL = 2,
    DNN_T_INT64 = 3,
    DNN_T_FLOAT = 4,
    DNN_T_POINTER = 6,
    DNN_T_CONV_MODE = 7,
    DNN_T_HEURISTIC_MODE = 8,
    DNN_T_NOTE = 11,
    DNN_T_POINTWISE_MODE = 14,
    DNN_T_DESCRIPTOR = 15,
    DNN_T_REDUCTION = 18
};

enum dnn_attribute {
    DNN_A_POINTWISE_MODE = 0,
    DNN_A_POINTWISE_COMPUTE = 1,
    DNN_A_POINTWISE_AXIS = 9,
    DNN_A_CONV_COMPUTE = 100,
    DNN_A_CONV_MODE = 101,
    DNN_A_CONV_DILATIONS = 102,
    DNN_A_CONV_STRIDES = 103,
    DNN_A_CONV_POST_PADS = 104,
    DNN_A_CONV_PRE_PADS = 105,
    DNN_A_CONV_SPATIAL = 106,
    DNN_A_HEURISTIC_MODE = 200,
    DNN_A_HEURISTIC_GRAPH = 201,
    DNN_A_HEURISTIC_RESULTS = 202,
    DNN_A_CONFIG_ENGINE = 300,
    DNN_A_PLAN_HANDLE = 400,
    DNN_A_PLAN_CONFIG = 401,
    DNN_A_PLAN_WORKSPACE = 402,
    DNN_A_FORWARD_ALPHA = 700,
    DNN_A_FORWARD_BETA = 701,
    DNN_A_FORWARD_CONV = 702,
    DNN_A_FORWARD_W = 703,
    DNN_A_FORWARD_X = 704,
    DNN_A_FORWARD_Y = 705,
    DNN_A_DATA_ALPHA = 706,
    DNN_A_DATA_BETA = 707,
    DNN_A_DATA_CONV = 708,
    DNN_A_DATA_W = 709,
    DNN_A_DATA_DX = 710,
    DNN_A_DATA_DY = 711,
    DNN_A_FILTER_ALPHA = 712,
    DNN_A_FILTER_BETA = 713,
    DNN_A_FILTER_CONV = 714,
    DNN_A_FILTER_DW = 715,
    DNN_A_FILTER_X = 716,
    DNN_A_FILTER_DY = 717,
    DNN_A_ELEMENTS_OF = 750, /* of a pointwise operation: its descriptor, x, b, y, t */
    DNN_A_ELEMENTS_X = 751,
    DNN_A_ELEMENTS_B = 752,
    DNN_A_ELEMENTS_Y = 753,
    DNN_A_ELEMENTS_T = 758,
    DNN_A_GRAPH_HANDLE = 800,
    DNN_A_GRAPH_OPS = 801,
    DNN_A_TENSOR_ALIGNMENT = 900,
    DNN_A_TENSOR_TYPE = 901,
    DNN_A_TENSOR_DIMS = 902,
    DNN_A_TENSOR_STRIDES = 903,
    DNN_A_TENSOR_ID = 906,
    DNN_A_TENSOR_VIRTUAL = 907,
    DNN_A_TENSOR_BY_VALUE = 908,
    DNN_A_PACK_IDS = 1000,
    DNN_A_PACK_POINTERS = 1001,
    DNN_A_PACK_WORKSPACE = 1003,
    DNN_A_ENGINE_INDEX = 1301,
    DNN_A_ENGINE_NOTES = 1303,
    DNN_A_MATMUL_COMPUTE = 1500,
    DNN_A_PRODUCT_A = 1520,
    DNN_A_PRODUCT_B = 1521,
    DNN_A_PRODUCT_C = 1522,
    DNN_A_PRODUCT_OF = 1523,
    DNN_A_REDUCTION_OPERATOR = 1600,
    DNN_A_REDUCTION_COMPUTE = 1601,
    DNN_A_SUM_X = 1610,
    DNN_A_SUM_Y = 1611,
    DNN_A_SUM_OF = 1612,
    DNN_A_RESHAPE_X = 2200,
    DNN_A_RESHAPE_Y = 2201
};

enum dnn_data { DNN_F32 = 0, DNN_F16 = 2, DNN_I32 = 4, DNN_BF16 = 9, DNN_BOOLEAN = 11 };
enum dnn_reduce { DNN_SUM = 0, DNN_MAXIMUM = 3 };
enum dnn_pointwise {
    DNN_P_ADD = 0,
    DNN_P_MUL = 1,
    DNN_P_DIV = 6,
    DNN_P_SUB = 9,
    DNN_P_EXP = 13,
    DNN_P_LOG = 15,
    DNN_P_GREATER_EQUAL = 303,
    DNN_P_INDEX = 501,
    DNN_P_SELECT = 601
};
enum dnn_conv_mode { DNN_CROSS_CORRELATION = 1 };
enum dnn_heuristic { DNN_MODE_FALLBACK = 2, DNN_MODE_A = 3 };
/* what an engine says of its numbers */
enum dnn_note {
    DNN_NOTE_TENSOR_CORE = 0,
    DNN_NOTE_DOWN_CONVERT = 1,
    DNN_NOTE_REDUCED_SUMS = 2,
    DNN_NOTE_FFT = 3,
    DNN_NOTE_NOT_REPEATABLE = 4,
    DNN_NOTE_WINOGRAD_4 = 6,
    DNN_NOTE_WINOGRAD_6 = 7,
    DNN_NOTE_WINOGRAD_13 = 8
};

size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, struct CUstream_st *stream);
cudnnStatus_t cudnnBackendCreateDescriptor(int kind, cudnnBackendDescriptor_t *out);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, int name, int type, int64_t n,
                                       const void *values);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, int name, int type, int64_t room,
                                       int64_t *n, void *values);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack);

#endif
