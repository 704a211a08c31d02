/* npy.c - the reader of .npy files, on anything. What reads must be written and read back as
 * itself. */
#include <stdint.h>
#include <stdlib.h>

#include "data/array/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_array_head h, again;
    char head[WF_HEAD_MAX];
    weft_tensor t;
    int n;

    if (wf_npy_head((const char *)data, (int64_t)size, (int64_t)size, &h))
        return 0;
    if (h.bytes > (int64_t)size - h.at || h.type.rank > WEFT_MAX_RANK)
        abort();
    t = weft_view(h.type.dtype, malloc((size_t)wf_type_bytes(&h.type) + 1), h.type.rank,
                  h.type.dim);
    if (!t.data)
        return 0;
    wf_array_convert_all(&h, (const char *)data + h.at, t.data);
    if (wf_npy_head_write(&t, head, &n) || wf_npy_head(head, n, -1, &again) ||
        again.type.dtype != h.type.dtype || !wf_type_same_shape(&again.type, &h.type) ||
        !wf_array_native(&again) || again.bytes != weft_tensor_bytes(&t) || again.at != n)
        abort();
    free(t.data);
    return 0;
}
