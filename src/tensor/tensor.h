/* tensor.h - the door of the tensor layer: types, shapes, element access, printing. */
#ifndef WF_TENSOR_H
#define WF_TENSOR_H

#include "base/base.h"
#include "weft/tensor.h"

/* What is known about a value before it exists. A negative size is a symbol: WEFT_ANY, or one
 * introduced by a placeholder (two equal negative sizes below WEFT_ANY are the same number at run
 * time). */
struct wf_type {
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_MAX_RANK];
};

struct wf_type wf_type_of(weft_dtype dtype, int rank, const int64_t *dim);
bool wf_type_known(const struct wf_type *t);                               /* no symbolic size */
bool wf_type_same_shape(const struct wf_type *a, const struct wf_type *b); /* certainly equal */
int64_t wf_type_count(const struct wf_type *t); /* elements; -1 on overflow or a symbol */
int64_t wf_type_bytes(const struct wf_type *t); /* likewise */
/* Whether the known sizes are small enough to compute with. Empty axes count as 1 and any dtype as
 * 8 bytes: an empty axis must not hide an overflow, since kernels multiply some sizes without the
 * others. The limit is far beyond any memory, and far enough from the end of int64 for rounding up,
 * padding and adding. */
bool wf_type_fits(const struct wf_type *t);
/* "f32[32,784]"; a symbolic size prints as "?". Returns buf. */
#define WF_TYPE_TEXT 128
char *wf_type_text(const struct wf_type *t, char buf[WF_TYPE_TEXT]);

static inline bool wf_is_float(weft_dtype t)
{
    return t == WEFT_F32 || t == WEFT_F64 || t == WEFT_F16 || t == WEFT_BF16;
}
static inline bool wf_is_int(weft_dtype t)
{
    return t == WEFT_I8 || t == WEFT_U8 || t == WEFT_I32 || t == WEFT_I64;
}

/* A typed pointer, as kernels see it. */
struct wf_tensor {
    struct wf_type type;
    void *data;
};

/* One element as a double (exact except for large i64) or as an int64, for any dtype. */
double wf_get(const void *data, weft_dtype t, int64_t i);
void wf_set(void *data, weft_dtype t, int64_t i,
            double v); /* rounds to nearest; to integers: truncates, saturates */
int64_t wf_get_int(const void *data, weft_dtype t, int64_t i);
void wf_set_int(void *data, weft_dtype t, int64_t i, int64_t v);     /* to integers: wraps around */
void wf_set_clipped(void *data, weft_dtype t, int64_t i, int64_t v); /* to integers: saturates */
/* n integers or bools of type t as those of type to_type, saturated. */
void wf_convert_ints(const void *from, weft_dtype t, int64_t n, void *to, weft_dtype to_type);

float wf_f16_to_f32(uint16_t h);
uint16_t wf_f32_to_f16(float f); /* to nearest even */
static inline float wf_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}
uint16_t wf_f32_to_bf16(float f);

#endif
