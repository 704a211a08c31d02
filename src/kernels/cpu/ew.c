/* ew.c - the element-wise functions of each SIMD level, and their names. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/levels.h"

WF_LEVELS(wf_ew_fns, wf_ew_fns_of);

WF_LEVELS(wf_cvt_fns, wf_cvt_fns_of);

#define OP(name, ...)

const struct wf_ew_info wf_ew_info[WF_EW_COUNT] = {
#define X(name, n_in, n_param) {#name, n_in, n_param},
#define OP_EW(n_param, name, n_in_min, n_in, ...) X(name, n_in, n_param)
#include "op/ops_ew.def"
    WF_EW_MORE(X)
#undef X
};

int wf_ew_code_of(int op_id)
{
    static const int16_t codes[WF_N_OPS] = {
#define OP_EW(n_param, name, ...) [WF_OP_##name] = WF_EW_##name + 1,
#include "op/ops_ew.def"
        [WF_OP_identity] = WF_EW_copy + 1,
    };

    return op_id >= 0 && op_id < WF_N_OPS ? codes[op_id] - 1 : -1;
}
