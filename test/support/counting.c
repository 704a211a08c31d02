/* counting.c - an allocator for tests: counts, and fails on demand. */
#define _GNU_SOURCE
#include "counting.h"

#include <stdlib.h>

static void *count_alloc(void *arg, size_t bytes, size_t align)
{
    struct counting *c = arg;
    void *p = NULL;

    c->n_allocs++;
    if (c->fail_at && (c->n_allocs == c->fail_at || (c->sticky && c->n_allocs > c->fail_at)))
        return NULL;
    if (posix_memalign(&p, align, bytes))
        return NULL;
    c->n_live++;
    return p;
}

static void count_free(void *arg, void *p, size_t bytes)
{
    struct counting *c = arg;

    (void)bytes;
    c->n_live--;
    free(p);
}

weft_allocator counting_allocator(struct counting *c)
{
    return (weft_allocator){count_alloc, count_free, c};
}
