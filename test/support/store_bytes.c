/* store_bytes.c - everything a store holds, as bytes to compare. */
#include "support/store_bytes.h"

#include <stdlib.h>

#include "train/step/dist.h"

static size_t put(char *to, const void *from, size_t n)
{
    if (to && n)
        memcpy(to, from, n);
    return n;
}

/* A table that the trainer's strategy holds. */
static void put_table(weft_trainer *t, const struct wf_segment *seg, char *to)
{
    size_t bytes = (size_t)wf_type_bytes(&seg->type);
    float *slot[WF_OPTIM_MAX_SLOTS] = {NULL};

    for (int k = 0; k < seg->n_slots; k++)
        slot[k] = (float *)(void *)(to + (size_t)(k + 1) * bytes);
    if (wf_table_dense(t, seg, (float *)(void *)to, slot,
                       (struct wf_seen *)(void *)(to + (size_t)(seg->n_slots + 1) * bytes)))
        abort();
}

/* What is known of the rows of a table that forgets some. */
static size_t seen_bytes(const struct wf_segment *seg)
{
    return seg->evict.every ? (size_t)seg->type.dim[0] * sizeof *seg->seen : 0;
}

static size_t put_all(const struct wf_store *s, weft_trainer *t, char *to)
{
    size_t n = 0;

    for (int64_t i = 0; i < s->n_seg; i++) {
        const struct wf_segment *seg = &s->seg[i];
        size_t bytes = (size_t)wf_type_bytes(&seg->type);

        if (t && seg->remote) {
            if (to)
                put_table(t, seg, to + n);
            n += bytes * (size_t)(1 + seg->n_slots) + seen_bytes(seg);
            continue;
        }
        n += put(to ? to + n : NULL, wf_store_data(s, seg), bytes);
        for (int k = 0; k < seg->n_slots; k++)
            n += put(to ? to + n : NULL, wf_store_slot(s, seg, k), bytes);
        n += put(to ? to + n : NULL, seg->seen, seg->seen ? seen_bytes(seg) : 0);
    }
    return n;
}

static char *all_bytes(const struct wf_store *s, weft_trainer *t, size_t *n)
{
    char *bytes = malloc(put_all(s, t, NULL) + 1);

    if (wf_store_pull((struct wf_store *)(uintptr_t)s, WF_PART_ALL)) { /* a copy of the device's */
        free(bytes);
        return NULL;
    }
    *n = bytes ? put_all(s, t, bytes) : 0;
    return bytes;
}

char *store_bytes(const struct wf_store *s, size_t *n)
{
    return all_bytes(s, NULL, n);
}

char *trainer_bytes(weft_trainer *t, size_t *n)
{
    return all_bytes(t->bound->fit->store, t, n);
}
