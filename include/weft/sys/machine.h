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

/* What is built in, one "name version" per index, NULL past the end: "compiler gcc 12.2.0", "oneDNN
 * 2.6.3 (loaded on demand)", … */
WEFT_API const char *weft_build_feature(int i);

/* A library that is loaded on demand, when a plan first needs it. weft works without it. */
typedef struct weft_library {
    const char *name;    /* "oneDNN" */
    const char *file;    /* the file name; NULL if weft was built without its headers */
    const char *version; /* of the one found; NULL if it is missing or cannot be used */
    const char *why;     /* why it is missing or cannot be used; NULL otherwise */
    const char *package; /* the Debian package that provides it */
} weft_library;

/* The i-th library; tries to load it. False past the end. The texts are valid as long as the
 * context. */
WEFT_API bool weft_library_find(weft_ctx *ctx, int i, weft_library *out);

#ifdef __cplusplus
}
#endif
#endif
