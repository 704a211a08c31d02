/* weft/tensor.h - element types and views of host memory. */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_dtype {
    WEFT_NONE, /* no type: an absent optional operand */
    WEFT_F32,
    WEFT_F64,
    WEFT_F16,
    WEFT_BF16,
    WEFT_I8,
    WEFT_U8,
    WEFT_I32,
    WEFT_I64,
    WEFT_BOOL, /* one byte, 0 or 1 */
    WEFT_N_DTYPES
} weft_dtype;

#define WEFT_MAX_RANK 8

/* In a shape: a size that is known only when a plan is made. */
#define WEFT_ANY (-1)

WEFT_API const char *weft_dtype_name(weft_dtype t); /* "f32" */
WEFT_API weft_status weft_dtype_parse(const char *name, weft_dtype *out);
WEFT_API int64_t weft_dtype_size(weft_dtype t); /* bytes of an element */

/* A row-major, contiguous view of memory. It owns nothing. */
typedef struct weft_tensor {
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    void *data;
} weft_tensor;

/* A view with `rank` sizes: weft_view(WEFT_F32, x, 2, (int64_t[]){32, 784}). */
WEFT_API weft_tensor weft_view(weft_dtype dtype, const void *data, int rank, const int64_t *dim);
WEFT_API int64_t
weft_tensor_count(const weft_tensor *t); /* elements; -1 if the product overflows */
WEFT_API int64_t weft_tensor_bytes(const weft_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
