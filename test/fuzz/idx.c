/* idx.c - the head of IDX files, on anything: what it accepts lies within the file and converts. */
#include <stdint.h>
#include <stdlib.h>

#include "data/array/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_array_head h;
    void *to;

    if (wf_idx_head((const char *)data, (int64_t)size, (int64_t)size, &h))
        return 0;
    if (h.at + h.bytes > (int64_t)size || h.type.rank < 1 || h.type.rank > WEFT_MAX_RANK)
        abort();
    to = malloc((size_t)wf_type_bytes(&h.type) + 1);
    if (to)
        wf_array_convert_all(&h, (const char *)data + h.at, to);
    free(to);
    return 0;
}
