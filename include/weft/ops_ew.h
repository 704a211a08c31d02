/* weft/ops_ew.h - element-wise ops.
 *
 * Binary ops broadcast as in NumPy: shapes are aligned at their last axes, and a size of 1 (or a
 * missing axis) repeats. Operands must have the same dtype; use weft_cast if they do not. Errors:
 * WEFT_EDTYPE, WEFT_ESHAPE. Unless stated otherwise, an op takes any float type, is computed in at
 * least f32 and rounded once, and propagates NaN. "Numbers" are floats and i8, u8, i32, i64;
 * integers wrap around. */
#ifndef WEFT_OPS_EW_H
#define WEFT_OPS_EW_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- unary ----------------------------------------------------------------------------------- */

WEFT_API weft_val weft_neg(weft_graph *g, weft_val x);    /* -x, numbers */
WEFT_API weft_val weft_abs(weft_graph *g, weft_val x);    /* |x|, numbers; gradient 0 at 0 */
WEFT_API weft_val weft_sign(weft_graph *g, weft_val x);   /* -1, 0, 1, numbers; gradient 0 */
WEFT_API weft_val weft_square(weft_graph *g, weft_val x); /* x², numbers */
WEFT_API weft_val weft_exp(weft_graph *g, weft_val x);
WEFT_API weft_val weft_expm1(weft_graph *g, weft_val x); /* e^x - 1, exact near 0 */
WEFT_API weft_val weft_log(weft_graph *g, weft_val x);   /* natural; -infinity at 0, NaN below */
WEFT_API weft_val weft_log1p(weft_graph *g, weft_val x); /* ln(1 + x), exact near 0 */
WEFT_API weft_val weft_sqrt(weft_graph *g, weft_val x);
WEFT_API weft_val weft_rsqrt(weft_graph *g, weft_val x);      /* 1 / sqrt(x) */
WEFT_API weft_val weft_reciprocal(weft_graph *g, weft_val x); /* 1 / x */
WEFT_API weft_val weft_sin(weft_graph *g, weft_val x);
WEFT_API weft_val weft_cos(weft_graph *g, weft_val x);
WEFT_API weft_val weft_erf(weft_graph *g, weft_val x);
WEFT_API weft_val weft_floor(weft_graph *g, weft_val x); /* gradient 0, as for ceil and round */
WEFT_API weft_val weft_ceil(weft_graph *g, weft_val x);
WEFT_API weft_val weft_round(weft_graph *g, weft_val x); /* halves to even */
/* min(max(x, min), max), numbers; min <= max. The gradient passes through where min <= x <= max. */
WEFT_API weft_val weft_clip(weft_graph *g, weft_val x, double min, double max);
WEFT_API weft_val weft_logical_not(weft_graph *g, weft_val x); /* bool -> bool */
WEFT_API weft_val weft_is_finite(weft_graph *g, weft_val x);   /* float -> bool */
/* Any type to any other. Floats to integers: rounded towards zero and clamped to the range, NaN
 * becomes 0. Integers to narrower ones wrap around, as in NumPy and Keras (weft_ds_cast of
 * pipelines clamps them). To f16 and bf16 by way of f32. To bool: x != 0. Between floats the
 * gradient is cast back; other casts have none. */
WEFT_API weft_val weft_cast(weft_graph *g, weft_val x, weft_dtype dtype);

/* ---- activations ----------------------------------------------------------------------------- */

WEFT_API weft_val weft_tanh(weft_graph *g, weft_val x);
WEFT_API weft_val weft_sigmoid(weft_graph *g, weft_val x); /* 1 / (1 + e^-x) */
WEFT_API weft_val weft_relu(weft_graph *g, weft_val x);    /* max(x, 0); gradient 0 at 0 */
WEFT_API weft_val weft_relu6(weft_graph *g,
                             weft_val x); /* min(max(x, 0), 6); gradient 0 at 0 and 6 */

typedef struct weft_leaky_relu_opts {
    size_t size;
    double alpha; /* slope below 0; 0: 0.2 (WEFT_ZERO for 0) */
} weft_leaky_relu_opts;
/* x where x > 0, else alpha x. */
WEFT_API weft_val weft_leaky_relu(weft_graph *g, weft_val x, const weft_leaky_relu_opts *opts);
/* x where x > 0, else slope x; the slope is a value, broadcast to the shape of x. */
WEFT_API weft_val weft_prelu(weft_graph *g, weft_val x, weft_val slope);

typedef struct weft_elu_opts {
    size_t size;
    double alpha; /* not negative; 0: 1 (WEFT_ZERO for 0) */
} weft_elu_opts;
/* x where x > 0, else alpha (e^x - 1). */
WEFT_API weft_val weft_elu(weft_graph *g, weft_val x, const weft_elu_opts *opts);
WEFT_API weft_val weft_selu(weft_graph *g,
                            weft_val x); /* 1.0507 (x where x > 0, else 1.6733 (e^x - 1)) */

typedef struct weft_gelu_opts {
    size_t size;
    bool approximate; /* by tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))) */
} weft_gelu_opts;
/* x/2 (1 + erf(x / sqrt 2)). */
WEFT_API weft_val weft_gelu(weft_graph *g, weft_val x, const weft_gelu_opts *opts);
WEFT_API weft_val weft_silu(weft_graph *g, weft_val x);     /* x sigmoid(x), also called swish */
WEFT_API weft_val weft_mish(weft_graph *g, weft_val x);     /* x tanh(softplus(x)) */
WEFT_API weft_val weft_softplus(weft_graph *g, weft_val x); /* ln(1 + e^x) */
WEFT_API weft_val weft_softsign(weft_graph *g, weft_val x); /* x / (1 + |x|) */
WEFT_API weft_val weft_hard_sigmoid(weft_graph *g, weft_val x); /* relu6(x + 3) / 6 */
WEFT_API weft_val weft_hard_swish(weft_graph *g, weft_val x);   /* x relu6(x + 3) / 6 */

/* ---- binary ---------------------------------------------------------------------------------- */

WEFT_API weft_val weft_add(weft_graph *g, weft_val a, weft_val b); /* numbers */
WEFT_API weft_val weft_sub(weft_graph *g, weft_val a, weft_val b); /* numbers */
WEFT_API weft_val weft_mul(weft_graph *g, weft_val a, weft_val b); /* numbers */
WEFT_API weft_val weft_div(weft_graph *g, weft_val a, weft_val b); /* floats */
/* a^b, floats. The gradient for b treats ln a as 0 where a is not positive. */
WEFT_API weft_val weft_pow(weft_graph *g, weft_val a, weft_val b);
/* a - b floor(a / b), numbers: the result has the sign of b. An integer divisor of 0 is
 * WEFT_EDATA. */
WEFT_API weft_val weft_mod(weft_graph *g, weft_val a, weft_val b);
/* Keras' minimum and maximum; numbers; NaN if either is NaN. At a tie the gradient goes to the
 * first operand, as in TensorFlow. */
WEFT_API weft_val weft_min(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_max(weft_graph *g, weft_val a, weft_val b);
/* Comparisons take any type and return bool; they have no gradient. */
WEFT_API weft_val weft_eq(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_ne(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_lt(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_le(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_gt(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_ge(weft_graph *g, weft_val a, weft_val b);
/* bool -> bool */
WEFT_API weft_val weft_logical_and(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_logical_or(weft_graph *g, weft_val a, weft_val b);
WEFT_API weft_val weft_logical_xor(weft_graph *g, weft_val a, weft_val b);
/* a where cond (bool) is true, otherwise b; any type; all three broadcast. What is not selected is
 * ignored, also in the gradient. */
WEFT_API weft_val weft_where(weft_graph *g, weft_val cond, weft_val a, weft_val b);
/* x[0] + x[1] + … in this order; numbers, equal shapes, 1 to 512 values. */
WEFT_API weft_val weft_add_n(weft_graph *g, int n, const weft_val *x);

#ifdef __cplusplus
}
#endif
#endif
