/* ew.h - element-wise functions over blocks of floats, and conversions between dtypes.
 *
 * The building blocks of element-wise kernels, fused programs and epilogues: each function handles
 * n contiguous floats, reads and writes nothing beyond them, allocates nothing and has no state.
 * Element i of the result depends only on element i of the operands, so any division into blocks
 * gives the same bits; those of the portable level are the same on every machine. Truth values are
 * 1.0f and 0.0f; anything that is not zero is true. A NaN operand gives NaN, except for
 * comparisons, logic and masked gradients. The formulas are those of the ops. */
#ifndef WF_KERNELS_CPU_EW_H
#define WF_KERNELS_CPU_EW_H

#include "op/op.h"

/* The OP_EW rows of op/ops_ew.def, and what else kernels need: X(name, operands, parameters), where
 * operands a, b, c are arrays, parameters p, q are scalars. */
#define WF_EW_MORE(X)                                        \
    X(fill, 0, 1)       /* p */                              \
    X(copy, 1, 0)       /* a */                              \
    X(scale, 1, 1)      /* p a */                            \
    X(axpy, 2, 1)       /* p a + b, rounded once with FMA */ \
    X(div_scalar, 1, 1) /* a / p */                          \
    X(eq_scalar, 1, 1)  /* a == p */

enum wf_ew_code {
#define OP(name, ...)
#define OP_EW(n_param, name, ...) WF_EW_##name,
#include "op/ops_ew.def"
#undef OP
#define X(name, n_in, n_param) WF_EW_##name,
    WF_EW_MORE(X)
#undef X
        WF_EW_COUNT
};

/* dst may be exactly a, b or c, but not overlap them otherwise. Operands and parameters that the
 * code does not have are not read and may be NULL. n may be 0. */
typedef void wf_ew_fn(float *dst, const float *a, const float *b, const float *c, int64_t n,
                      const float *param);

struct wf_ew_fns {
    wf_ew_fn *fn[WF_EW_COUNT];
};
const struct wf_ew_fns *wf_ew_fns_of(weft_simd level);

struct wf_ew_info {
    const char *name;
    int n_in, n_param;
};
extern const struct wf_ew_info wf_ew_info[WF_EW_COUNT];
/* The code of an op; -1 if it has no block function. */
int wf_ew_code_of(int op_id);

/* n elements from one dtype to another; source and destination do not overlap (they may be the same
 * memory if the dtypes are the same). To a narrower float: nearest even, NaN stays NaN, too large
 * becomes infinity. To integers: toward zero, saturating, NaN gives 0. To bool: value != 0. */
typedef void wf_cvt_fn(void *dst, const void *src, int64_t n);

struct wf_cvt_fns {
    wf_cvt_fn *to_f32[WEFT_N_DTYPES], *from_f32[WEFT_N_DTYPES]; /* NULL for WEFT_NONE */
};
const struct wf_cvt_fns *wf_cvt_fns_of(weft_simd level);

#endif
