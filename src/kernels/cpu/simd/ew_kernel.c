/* ew_kernel.c - the loops over blocks around the functions of ew_inl.h, one table per level. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/simd/ew_inl.h"

/* The number of operands and parameters is known at compile time: absent ones are not read. */
#define LOAD(x, k, n_in) ((n_in) > (k) ? vf_load((x) + i) : vf_zero())
#define LOADN(x, k, n_in) ((n_in) > (k) ? vf_loadn((x) + i, n - i) : vf_zero())

#define X(name, n_in, n_param)                                                                    \
    static void run_##name(float *dst, const float *a, const float *b, const float *c, int64_t n, \
                           const float *param)                                                    \
    {                                                                                             \
        vf p = (n_param) > 0 ? vf_set1(param[0]) : vf_zero();                                     \
        vf q = (n_param) > 1 ? vf_set1(param[1]) : vf_zero();                                     \
        int64_t i = 0;                                                                            \
                                                                                                  \
        (void)a, (void)b, (void)c, (void)param;                                                   \
        for (; i + VF_N <= n; i += VF_N)                                                          \
            vf_store(dst + i,                                                                     \
                     ew_##name(LOAD(a, 0, n_in), LOAD(b, 1, n_in), LOAD(c, 2, n_in), p, q));      \
        if (i < n)                                                                                \
            vf_storen(dst + i,                                                                    \
                      ew_##name(LOADN(a, 0, n_in), LOADN(b, 1, n_in), LOADN(c, 2, n_in), p, q),   \
                      n - i);                                                                     \
    }
#define OP(name, ...)
#define OP_EW(n_param, name, n_in_min, n_in, ...) X(name, n_in, n_param)
#include "op/ops_ew.def"
WF_EW_MORE(X)
#undef X

const struct wf_ew_fns WF_LEVELED(wf_ew_fns) = {
    .fn =
        {
#define X(name, n_in, n_param) run_##name,
#define OP_EW(n_param, name, n_in_min, n_in, ...) X(name, n_in, n_param)
#include "op/ops_ew.def"
            WF_EW_MORE(X)
#undef X
        },
};
