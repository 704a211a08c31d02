/* cpu.c - which SIMD levels this CPU has. */
#include "base/base.h"

weft_simd weft_simd_best(void)
{
#if defined(__x86_64__)
    /* The operating system's support is part of these answers: the builtins look at XCR0 too. */
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return WEFT_SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return WEFT_SIMD_AVX2;
#endif
    return WEFT_SIMD_PORTABLE;
}

const char *weft_simd_name(weft_simd level)
{
    static const char *const names[] = {"auto", "portable", "avx2", "avx512"};

    return level >= 0 && level <= WEFT_SIMD_AVX512 ? names[level] : "unknown";
}
