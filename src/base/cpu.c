/* cpu.c - which SIMD levels this CPU supports. */
#include "base/base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* The compiler options of each level (CMakeLists.txt): a CPU that lacks one of them must not run
 * it. */
unsigned wf_simd_needs(weft_simd level)
{
    const unsigned avx2 = WF_CPU_AVX2 | WF_CPU_FMA | WF_CPU_F16C;
    const unsigned avx512 =
        avx2 | WF_CPU_AVX512F | WF_CPU_AVX512BW | WF_CPU_AVX512DQ | WF_CPU_AVX512VL;

    switch (level) {
    case WEFT_SIMD_AVX512BF16: return avx512 | WF_CPU_AVX512BF16;
    case WEFT_SIMD_AVX512: return avx512;
    case WEFT_SIMD_AVX2: return avx2;
    default: return 0;
    }
}

weft_simd wf_simd_of(unsigned features)
{
    int level = WEFT_SIMD_AVX512BF16;

    while ((features & wf_simd_needs((weft_simd)level)) != wf_simd_needs((weft_simd)level))
        level--;
    return (weft_simd)level;
}

unsigned wf_cpu_features(void)
{
    unsigned has = 0;

#if defined(__x86_64__)
    unsigned a, b, c, d;

    /* This includes the operating system's support: the builtins check XCR0 too. F16C, which older
     * compilers cannot test for, needs the same support as AVX2. */
    __builtin_cpu_init();
    has |= __builtin_cpu_supports("avx2") ? WF_CPU_AVX2 : 0;
    has |= __builtin_cpu_supports("fma") ? WF_CPU_FMA : 0;
    has |= __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? WF_CPU_F16C : 0;
    has |= __builtin_cpu_supports("avx512f") ? WF_CPU_AVX512F : 0;
    has |= __builtin_cpu_supports("avx512bw") ? WF_CPU_AVX512BW : 0;
    has |= __builtin_cpu_supports("avx512dq") ? WF_CPU_AVX512DQ : 0;
    has |= __builtin_cpu_supports("avx512vl") ? WF_CPU_AVX512VL : 0;
    has |= __builtin_cpu_supports("avx512bf16") ? WF_CPU_AVX512BF16 : 0;
#endif
    return has;
}

weft_simd weft_simd_best(void)
{
    return wf_simd_of(wf_cpu_features());
}

const char *weft_simd_name(weft_simd level)
{
    static const char *const names[] = {"auto", "portable", "avx2", "avx512", "avx512bf16"};

    return level >= 0 && level <= WEFT_SIMD_AVX512BF16 ? names[level] : "unknown";
}
