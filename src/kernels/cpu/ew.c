/* ew.c - the element-wise functions of each SIMD level, and their names. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/levels.h"

WF_LEVELS(wf_ew_fns, wf_ew_fns_of);

WF_LEVELS(wf_cvt_fns, wf_cvt_fns_of);

const struct wf_ew_info wf_ew_info[WF_EW_COUNT] = {
#define X(name, n_in, n_param) {#name, n_in, n_param},
    WF_EW_LIST(X)
#undef X
};
