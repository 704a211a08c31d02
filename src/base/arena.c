/* arena.c - blocks of memory that are freed together. */
#include "base/base.h"

struct wf_arena_block {
    struct wf_arena_block *before;
    size_t used, size;
    _Alignas(16) char data[];
};

#define BLOCK_BYTES ((size_t)16 << 10)

void wf_arena_init(struct wf_arena *a, weft_ctx *ctx)
{
    a->ctx = ctx;
    a->last = NULL;
}

void *wf_arena_alloc(struct wf_arena *a, size_t bytes)
{
    struct wf_arena_block *b = a->last;
    void *p;

    bytes = (bytes + 15) & ~(size_t)15;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

        b = wf_alloc(a->ctx, sizeof *b + size);
        if (!b)
            return NULL;
        b->size = size;
        b->before = a->last;
        a->last = b;
    }
    p = b->data + b->used;
    b->used += bytes;
    return p;
}

char *wf_arena_strdup(struct wf_arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = wf_arena_alloc(a, n);

    if (p)
        memcpy(p, s, n);
    return p;
}

void wf_arena_free(struct wf_arena *a)
{
    while (a->last) {
        struct wf_arena_block *b = a->last;

        a->last = b->before;
        wf_free(a->ctx, b);
    }
}
