/* store_bytes.c - everything a store holds, as bytes to compare. */
#include "support/store_bytes.h"

#include <stdlib.h>

static size_t put(char *to, const void *from, size_t n)
{
    if (to && n)
        memcpy(to, from, n);
    return n;
}

static size_t put_all(const struct wf_store *s, char *to)
{
    size_t n = 0;

    for (int64_t i = 0; i < s->n_seg; i++) {
        const struct wf_segment *seg = &s->seg[i];
        size_t bytes = (size_t)wf_type_bytes(&seg->type);

        n += put(to ? to + n : NULL, wf_store_data(s, seg), bytes);
        for (int k = 0; k < seg->n_slots; k++)
            n += put(to ? to + n : NULL, wf_store_slot(s, seg, k), bytes);
    }
    return n;
}

char *store_bytes(const struct wf_store *s, size_t *n)
{
    char *bytes = malloc(put_all(s, NULL) + 1);

    if (wf_store_pull((struct wf_store *)(uintptr_t)s, WF_PART_ALL)) { /* a copy of the device's */
        free(bytes);
        return NULL;
    }
    *n = bytes ? put_all(s, bytes) : 0;
    return bytes;
}
