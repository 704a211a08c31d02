/* weft/einsum.h - sums of products written with index letters. */
#ifndef WEFT_EINSUM_H
#define WEFT_EINSUM_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "bij,bjk->bik": the product of a and b, one letter per axis, summed over the letters that are not
 * after the arrow. b is WEFT_NIL if there is one operand ("ij->ji", "ij->i").
 *
 * Letters are a-z and A-Z, spaces are skipped. "..." means any further axes, which broadcast and
 * must then be in the result. Without an arrow the result has the axes of "...", then the letters
 * that occur once, in alphabetical order. A letter must have the same size in both operands; a
 * letter twice in one operand (a diagonal) is not supported. Errors name the position in the text.
 *
 * It is built from sum, transpose, reshape, matmul and mul nodes, and differentiates as they do.
 * Sizes may be symbolic. */
WEFT_API weft_val weft_einsum(weft_graph *g, const char *equation, weft_val a, weft_val b);

#ifdef __cplusplus
}
#endif
#endif
