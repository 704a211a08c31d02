/* weft/autocast.h - mixed precision: products in half precision, everything that needs care in f32.
 *
 * While a policy is open, builders insert casts: products and convolutions get their f32 operands as halves and give
 * halves; losses, softmax, normalisations, reductions and powers get halves as f32; other ops of mixed operands get
 * all of them as f32. Variables stay f32 (the masters), so do their gradients, statistics and all sums inside
 * kernels; where the CPU lacks the type operands are converted while they are packed. */
#ifndef WEFT_AUTOCAST_H
#define WEFT_AUTOCAST_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dtype: WEFT_BF16 or WEFT_F16; WEFT_F32 closes an outer policy for a while. Gradients are cast by the same rule while
 * weft_grad runs inside; outside, each gradient has its value's type. */
WEFT_API void weft_autocast_push(weft_graph *g, weft_dtype dtype);
WEFT_API void weft_autocast_pop(weft_graph *g);

#ifdef __cplusplus
}
#endif
#endif
