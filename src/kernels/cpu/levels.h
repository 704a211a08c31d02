/* levels.h - the one choice among the kernels of a family that are compiled once per SIMD level
 * (cpu/simd).
 *
 * WF_LEVELS(wf_gemm_fns, wf_gemm_fns_of) defines wf_gemm_fns_of(level), which returns the level's
 * table struct wf_gemm_fns, the portable one where the build has no better. */
#ifndef WF_KERNELS_CPU_LEVELS_H
#define WF_KERNELS_CPU_LEVELS_H

#include "base/base.h"

#if defined(__x86_64__)
#define WF_LEVELS(fns, pick)                                          \
    extern const struct fns fns##_portable, fns##_avx2, fns##_avx512; \
    const struct fns *pick(weft_simd level)                           \
    {                                                                 \
        return level >= WEFT_SIMD_AVX512 ? &fns##_avx512              \
               : level == WEFT_SIMD_AVX2 ? &fns##_avx2                \
                                         : &fns##_portable;           \
    }                                                                 \
    _Static_assert(sizeof(struct fns) > 0, "the family's header comes first")
#else
#define WF_LEVELS(fns, pick)                \
    extern const struct fns fns##_portable; \
    const struct fns *pick(weft_simd level) \
    {                                       \
        (void)level;                        \
        return &fns##_portable;             \
    }                                       \
    _Static_assert(sizeof(struct fns) > 0, "the family's header comes first")
#endif

#endif
