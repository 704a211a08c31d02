/* random.h - random arrays with vectors: the same bits as base/random.h at every level. */
#ifndef WF_KERNELS_CPU_RANDOM_H
#define WF_KERNELS_CPU_RANDOM_H

#include "base/random.h"
#include "weft/base.h"

struct wf_random_fns {
    /* wf_random_fill. Whole groups of 64 elements, aligned, are the fastest. */
    void (*fill)(enum wf_random_kind kind, float *dst, int64_t first, int64_t n,
                 const struct wf_rng_key *key, const float *params);
    /* Element first + i of a dropout: x[i] / (1 - rate) where the key's uniform number is >= rate,
     * otherwise 0. dst may be x. The gradient is the same call on dy. */
    void (*dropout)(float *dst, const float *x, int64_t first, int64_t n,
                    const struct wf_rng_key *key, float rate);
};
const struct wf_random_fns *wf_random_fns_of(weft_simd level);

#endif
