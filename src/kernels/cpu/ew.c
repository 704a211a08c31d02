/* ew.c - the element-wise functions of each SIMD level, and their names. */
#include "kernels/cpu/ew.h"

extern const struct wf_ew_fns wf_ew_fns_portable, wf_ew_fns_avx2, wf_ew_fns_avx512;
extern const struct wf_cvt_fns wf_cvt_fns_portable, wf_cvt_fns_avx2, wf_cvt_fns_avx512;

const struct wf_ew_fns *wf_ew_fns_of(weft_simd level)
{
#if defined(__x86_64__)
    if (level == WEFT_SIMD_AVX512)
        return &wf_ew_fns_avx512;
    if (level == WEFT_SIMD_AVX2)
        return &wf_ew_fns_avx2;
#endif
    (void)level;
    return &wf_ew_fns_portable;
}

const struct wf_cvt_fns *wf_cvt_fns_of(weft_simd level)
{
#if defined(__x86_64__)
    if (level == WEFT_SIMD_AVX512)
        return &wf_cvt_fns_avx512;
    if (level == WEFT_SIMD_AVX2)
        return &wf_cvt_fns_avx2;
#endif
    (void)level;
    return &wf_cvt_fns_portable;
}

const struct wf_ew_info wf_ew_info[WF_EW_COUNT] = {
#define X(name, n_in, n_param) {#name, n_in, n_param},
    WF_EW_LIST(X)
#undef X
};
