/* weft/sys/machine.h - for measuring machines and builds. */
#ifndef WEFT_SYS_MACHINE_H
#define WEFT_SYS_MACHINE_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Multiply-adds in registers on all threads of the context for about `seconds`: the most
 * floating-point operations per second that any kernel at the context's SIMD level could reach
 * now. */
WEFT_API double weft_fma_peak(weft_ctx *ctx, double seconds);

/* The name of the processor as the system gives it, otherwise "unknown". */
WEFT_API void weft_cpu_name(weft_ctx *ctx, char *out, size_t size);

/* What is built in, one "name version" per index, NULL after the last: "compiler gcc 12.2.0". */
WEFT_API const char *weft_build_feature(int i);

#ifdef __cplusplus
}
#endif
#endif
