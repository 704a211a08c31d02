/* ew.h - element-wise functions over blocks of floats, and conversions between dtypes.
 *
 * The building blocks of element-wise kernels, fused programs and epilogues: each function handles
 * n contiguous floats, reads and writes nothing beyond them, allocates nothing and has no state.
 * Element i of the result depends only on element i of the operands, so any division into blocks
 * gives the same bits; those of the portable level are the same on every machine. Truth values are
 * 1.0f and 0.0f; anything that is not zero is true. A NaN operand gives NaN, except for
 * comparisons, logic and masked gradients. */
#ifndef WF_KERNELS_CPU_EW_H
#define WF_KERNELS_CPU_EW_H

#include "tensor/tensor.h"

/* X(name, operands, parameters): operands a, b, c are arrays, parameters p, q are scalars. */
#define WF_EW_LIST(X)                                                                             \
    X(fill, 0, 1)         /* p */                                                                 \
    X(copy, 1, 0)         /* a */                                                                 \
    X(neg, 1, 0)          /* -a */                                                                \
    X(abs, 1, 0)          /* |a| */                                                               \
    X(sign, 1, 0)         /* -1, 0 or 1 */                                                        \
    X(exp, 1, 0)          /* e^a */                                                               \
    X(log, 1, 0)          /* ln a */                                                              \
    X(log1p, 1, 0)        /* ln(1 + a) */                                                         \
    X(expm1, 1, 0)        /* e^a - 1 */                                                           \
    X(sqrt, 1, 0)         /* square root */                                                       \
    X(rsqrt, 1, 0)        /* 1 / sqrt(a) */                                                       \
    X(square, 1, 0)       /* a a */                                                               \
    X(reciprocal, 1, 0)   /* 1 / a */                                                             \
    X(sin, 1, 0)          /* sin a */                                                             \
    X(cos, 1, 0)          /* cos a */                                                             \
    X(tanh, 1, 0)         /* tanh a */                                                            \
    X(sigmoid, 1, 0)      /* 1 / (1 + e^-a) */                                                    \
    X(erf, 1, 0)          /* the error function */                                                \
    X(relu, 1, 0)         /* max(a, 0) */                                                         \
    X(relu6, 1, 0)        /* min(max(a, 0), 6) */                                                 \
    X(leaky_relu, 1, 1)   /* a > 0 ? a : p a */                                                   \
    X(elu, 1, 1)          /* a > 0 ? a : p (e^a - 1) */                                           \
    X(selu, 1, 0)         /* 1.0507 (a > 0 ? a : 1.6733 (e^a - 1)) */                             \
    X(gelu, 1, 0)         /* a (1 + erf(a / sqrt 2)) / 2 */                                       \
    X(gelu_tanh, 1, 0)    /* a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2 */                   \
    X(silu, 1, 0)         /* a sigmoid(a); -0 below -88.7 */                                      \
    X(mish, 1, 0)         /* a tanh(softplus(a)) */                                               \
    X(softplus, 1, 0)     /* ln(1 + e^a) */                                                       \
    X(softsign, 1, 0)     /* a / (1 + |a|) */                                                     \
    X(hard_sigmoid, 1, 0) /* relu6(a + 3) / 6 */                                                  \
    X(hard_swish, 1, 0)   /* a hard_sigmoid(a) */                                                 \
    X(floor, 1, 0)        /* down */                                                              \
    X(ceil, 1, 0)         /* up */                                                                \
    X(round, 1, 0)        /* to nearest, halves to even */                                        \
    X(trunc, 1, 0)        /* toward zero */                                                       \
    X(clip, 1, 2)         /* min(max(a, p), q) */                                                 \
    X(is_finite, 1, 0)    /* neither infinite nor NaN */                                          \
    X(is_nan, 1, 0)                                                                               \
    X(is_inf, 1, 0)                                                                               \
    X(logical_not, 1, 0)    /* a == 0 */                                                          \
    X(add, 2, 0)            /* a + b */                                                           \
    X(sub, 2, 0)            /* a - b */                                                           \
    X(mul, 2, 0)            /* a b */                                                             \
    X(div, 2, 0)            /* a / b */                                                           \
    X(pow, 2, 0)            /* a^b */                                                             \
    X(min, 2, 0)            /* NaN if either is NaN */                                            \
    X(max, 2, 0)            /* NaN if either is NaN */                                            \
    X(mod, 2, 0)            /* a - b floor(a / b), exact except for one rounding; has b's sign */ \
    X(sqdiff, 2, 0)         /* (a - b)^2 */                                                       \
    X(eq, 2, 0)             /* a == b */                                                          \
    X(ne, 2, 0)             /* a != b */                                                          \
    X(lt, 2, 0)             /* a < b */                                                           \
    X(le, 2, 0)             /* a <= b */                                                          \
    X(gt, 2, 0)             /* a > b */                                                           \
    X(ge, 2, 0)             /* a >= b */                                                          \
    X(and, 2, 0)            /* both */                                                            \
    X(or, 2, 0)             /* either */                                                          \
    X(xor, 2, 0)            /* one, not both */                                                   \
    X(prelu, 2, 0)          /* a > 0 ? a : b a */                                                 \
    X(where, 3, 0)          /* a ? b : c */                                                       \
    X(mul_add, 3, 0)        /* a b + c, rounded once with FMA */                                  \
    X(scale, 1, 1)          /* p a */                                                             \
    X(add_scalar, 1, 1)     /* a + p */                                                           \
    X(mul_scalar_add, 1, 2) /* a p + q, rounded as mul_add */                                     \
    X(axpy, 2, 1)           /* p a + b, rounded as mul_add */                                     \
    X(rsub_scalar, 1, 1)    /* p - a */                                                           \
    X(div_scalar, 1, 1)     /* a / p */                                                           \
    X(rdiv_scalar, 1, 1)    /* p / a */                                                           \
    X(pow_scalar, 1, 1)     /* a^p */                                                             \
    X(min_scalar, 1, 1)     /* min(a, p) */                                                       \
    X(max_scalar, 1, 1)     /* max(a, p) */                                                       \
    X(eq_scalar, 1, 1)      /* a == p, and so on */                                               \
    X(ne_scalar, 1, 1)                                                                            \
    X(lt_scalar, 1, 1)                                                                            \
    X(le_scalar, 1, 1)                                                                            \
    X(gt_scalar, 1, 1)                                                                            \
    X(ge_scalar, 1, 1)                                                                            \
    /* Gradients: a is the gradient of the result, b the operand x or the result y, as named. */  \
    X(relu_grad, 2, 0)       /* y (or x) > 0 ? a : 0 */                                           \
    X(relu6_grad, 2, 0)      /* 0 < y (or x) < 6 ? a : 0 */                                       \
    X(leaky_relu_grad, 2, 1) /* x > 0 ? a : p a */                                                \
    X(elu_grad, 2, 1)        /* y > 0 ? a : a (y + p); p >= 0 */                                  \
    X(selu_grad, 2, 0)       /* of y */                                                           \
    X(gelu_grad, 2, 0)       /* of x, like all that follow unless they say y */                   \
    X(gelu_tanh_grad, 2, 0)                                                                       \
    X(silu_grad, 2, 0)                                                                            \
    X(mish_grad, 2, 0)                                                                            \
    X(softplus_grad, 2, 0)     /* a sigmoid(x) */                                                 \
    X(softsign_grad, 2, 0)     /* a / (1 + |x|)^2 */                                              \
    X(hard_sigmoid_grad, 2, 0) /* -3 < x < 3 ? a / 6 : 0 */                                       \
    X(hard_swish_grad, 2, 0)                                                                      \
    X(tanh_grad, 2, 0)    /* a (1 - y^2) */                                                       \
    X(sigmoid_grad, 2, 0) /* a y (1 - y) */                                                       \
    X(clip_grad, 2, 2)    /* p <= x <= q ? a : 0 */

enum wf_ew_code {
#define X(name, n_in, n_param) WF_EW_##name,
    WF_EW_LIST(X)
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

/* n elements from one dtype to another; source and destination do not overlap (they may be the same
 * memory if the dtypes are the same). To a narrower float: nearest even, NaN stays NaN, too large
 * becomes infinity. To integers: toward zero, saturating, NaN gives 0. To bool: value != 0. */
typedef void wf_cvt_fn(void *dst, const void *src, int64_t n);

struct wf_cvt_fns {
    wf_cvt_fn *to_f32[WEFT_N_DTYPES], *from_f32[WEFT_N_DTYPES]; /* NULL for WEFT_NONE */
};
const struct wf_cvt_fns *wf_cvt_fns_of(weft_simd level);

#endif
