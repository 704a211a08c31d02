/* index.c - indices that are checked against a size. */
#include "kernels/cpu/index.h"

/* Blocks without a branch for each index, so that the compiler can vectorize. */
enum { BLOCK = 256 };

int64_t wf_find_bad(const void *ids, bool wide, int64_t n, int64_t size)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = wf_min_i64(at + BLOCK, n);
        int bad = 0;

        if (wide)
            for (int64_t i = at; i < end; i++)
                bad |= (uint64_t)((const int64_t *)ids)[i] >= (uint64_t)size;
        else
            for (int64_t i = at; i < end; i++)
                bad |= ((const int32_t *)ids)[i] < 0 || ((const int32_t *)ids)[i] >= size;
        for (int64_t i = at; bad && i < end; i++)
            if (wf_id_at(ids, wide, i) < 0 || wf_id_at(ids, wide, i) >= size)
                return i;
    }
    return -1;
}

weft_status wf_bad_index(const struct wf_call *c, const struct wf_tensor *ids, int64_t position,
                         int64_t size)
{
    return wf_err(WEFT_EDATA, "%s: index %lld at position %lld is not in 0..%lld", c->op->name,
                  (long long)wf_get_int(ids->data, ids->type.dtype, position), (long long)position,
                  (long long)size - 1);
}
