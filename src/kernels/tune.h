/* tune.h - shapes for which `make tune` measured another implementation to be faster than ours. */
#ifndef WF_KERNELS_TUNE_H
#define WF_KERNELS_TUNE_H

#include "weft/base.h"

struct wf_tune_row {
    int op_id;
    weft_simd level;
    int64_t m, n, k;
    bool trans_a, trans_b;
    const char *impl;
};

/* The table: tune.def, then a row with op_id -1. */
extern const struct wf_tune_row wf_tune_rows[];

/* The implementation that `rows` name for a product of this shape at this level, or NULL: ours. A
 * pure function. m, n, k are those of one product, for any batch size. */
const char *wf_tune_matmul(const struct wf_tune_row *rows, weft_simd level, int64_t m, int64_t n,
                           int64_t k, bool trans_a, bool trans_b);

#endif
