/* tune.c - looks up shapes in tune.def. A pure function: nothing is timed here. */
#include "kernels/tune.h"

#include "op/op.h"

const struct wf_tune_row wf_tune_rows[] = {
#define TUNE(op, level, m, n, k, trans_a, trans_b, impl) \
    {WF_OP_##op, WEFT_SIMD_##level, m, n, k, trans_a, trans_b, impl},
#include "kernels/tune.def"
#undef TUNE
    {-1, WEFT_SIMD_AUTO, 0, 0, 0, false, false, NULL},
};

const char *wf_tune_matmul(const struct wf_tune_row *rows, weft_simd level, int64_t m, int64_t n,
                           int64_t k, bool trans_a, bool trans_b)
{
    for (const struct wf_tune_row *r = rows; r->op_id >= 0; r++)
        if (r->op_id == WF_OP_matmul && r->level == level && r->m == m && r->n == n && r->k == k &&
            r->trans_a == trans_a && r->trans_b == trans_b)
            return r->impl;
    return NULL;
}
