/* weft/autocast.h - mixed precision: matrix products in half precision, everything that needs care
 * in f32.
 *
 * While a policy is open, builders insert casts. Products and convolutions take their f32
 * operands in half precision (that of another operand if it is a half already) and return half
 * precision; losses, softmax, normalizations, reductions and powers take halves as f32; other
 * ops with mixed operands take all of them as f32, unless what is f32 are variables, as the bias
 * that is added to a product: those are taken as halves. Variables stay f32 (the masters), and
 * so do their gradients, statistics and all sums inside kernels. Where the CPU lacks the type,
 * operands are converted while they are packed. */
#ifndef WEFT_AUTOCAST_H
#define WEFT_AUTOCAST_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dtype: WEFT_BF16 or WEFT_F16; WEFT_F32 suspends an outer policy. The gradients that weft_grad
 * builds while a policy is open are cast by the same rules; otherwise, each gradient has the type
 * of its value. */
WEFT_API void weft_autocast_push(weft_graph *g, weft_dtype dtype);
WEFT_API void weft_autocast_pop(weft_graph *g);

#ifdef __cplusplus
}
#endif
#endif
