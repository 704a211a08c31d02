/* block_inl.h - what kernels with register blocks share: how many rows a block has at this level,
 * code for each number of rows, and parts of vectors. */
#ifndef WF_KERNELS_CPU_SIMD_BLOCK_INL_H
#define WF_KERNELS_CPU_SIMD_BLOCK_INL_H

#include "kernels/cpu/simd.h"

/* Rows of a register block of two vectors of columns. */
#define UP_TO_4(f) f(1) f(2) f(3) f(4)
#define UP_TO_6(f) UP_TO_4(f) f(5) f(6)
#define UP_TO_14(f) UP_TO_6(f) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14)
#if defined(WF_LEVEL_AVX512)
#define MR 14
#define FOR_EACH_MR(f) UP_TO_14(f)
#elif defined(WF_LEVEL_AVX2)
#define MR 6
#define FOR_EACH_MR(f) UP_TO_6(f)
#else
#define MR 4
#define FOR_EACH_MR(f) UP_TO_4(f)
#endif

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The first n elements, at most VF_N; the others are 0, or not written. */
WF_SIMD_INLINE vf vf_load_part(const float *p, int64_t n)
{
    return n == VF_N ? vf_load(p) : vf_loadn(p, n);
}

WF_SIMD_INLINE void vf_store_part(float *p, vf x, int64_t n)
{
    if (n == VF_N)
        vf_store(p, x);
    else
        vf_storen(p, x, n);
}

#endif
