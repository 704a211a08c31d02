/* random.c - the random arrays of each SIMD level. */
#include "kernels/cpu/random.h"

extern const struct wf_random_fns wf_random_fns_portable, wf_random_fns_avx2, wf_random_fns_avx512;

const struct wf_random_fns *wf_random_fns_of(weft_simd level)
{
#if defined(__x86_64__)
    if (level == WEFT_SIMD_AVX512)
        return &wf_random_fns_avx512;
    if (level == WEFT_SIMD_AVX2)
        return &wf_random_fns_avx2;
#endif
    (void)level;
    return &wf_random_fns_portable;
}
