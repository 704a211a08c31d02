/* index.h - indices for kernels: i32 or i64, checked against a size. */
#ifndef WF_KERNELS_CPU_INDEX_H
#define WF_KERNELS_CPU_INDEX_H

#include "kernels/kernels.h"

static inline bool wf_fast_ids(weft_dtype t)
{
    return t == WEFT_I32 || t == WEFT_I64;
}

static inline int64_t wf_id_at(const void *ids, bool wide, int64_t i)
{
    return wide ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}

/* The position of the first index outside 0..size-1 of n, or -1. */
int64_t wf_find_bad(const void *ids, bool wide, int64_t n, int64_t size);

/* Atomic minimum: the smaller value wins, whichever tile comes first. */
static inline void wf_lower(_Atomic int64_t *to, int64_t value)
{
    int64_t seen = atomic_load(to);

    while (value < seen && !atomic_compare_exchange_weak(to, &seen, value))
        ;
}

/* WEFT_EDATA, with the op, the position and the index there. */
weft_status wf_bad_index(const struct wf_call *c, const struct wf_tensor *ids, int64_t position,
                         int64_t size);

#endif
