/* weft/sys/machine.h - for people who measure machines and builds. */
#ifndef WEFT_SYS_MACHINE_H
#define WEFT_SYS_MACHINE_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Multiply-adds in registers on all threads of the context for about `seconds`: the most floating-point operations
 * per second that any kernel of the context's SIMD level could do now. */
WEFT_API double weft_fma_peak(weft_ctx *ctx, double seconds);

/* What is built in, one "name version" per index, NULL after the last: "compiler gcc 12.2.0",
 * "oneDNN 2.6.3 (loaded on demand)", … */
WEFT_API const char *weft_build_feature(int i);

/* A library that is loaded on demand, when a plan first wants it. weft works without it. */
typedef struct weft_library {
    const char *name;    /* "oneDNN" */
    const char *file;    /* what is looked for; NULL when weft was built without its headers */
    const char *version; /* of the one found; NULL when it is missing or cannot be used */
    const char *why;     /* then the reason, in words; NULL otherwise */
    const char *package; /* the Debian package that brings it */
} weft_library;

/* The i-th of them, trying to load it. False after the last. The texts live as long as the context. */
WEFT_API bool weft_library_find(weft_ctx *ctx, int i, weft_library *out);

#ifdef __cplusplus
}
#endif
#endif
