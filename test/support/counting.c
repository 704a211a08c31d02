/* counting.c - an allocator for tests: counts, and fails on demand. Any number of threads may use
 * it. */
#define _GNU_SOURCE
#include "counting.h"

#include <stdlib.h>

static void *count_alloc(void *arg, size_t bytes, size_t align)
{
    struct counting *c = arg;
    int64_t n = __atomic_add_fetch(&c->n_allocs, 1, __ATOMIC_RELAXED);
    void *p = NULL;

    if (c->fail_at && (n == c->fail_at || (c->sticky && n > c->fail_at)))
        return NULL;
    if (posix_memalign(&p, align, bytes))
        return NULL;
    __atomic_add_fetch(&c->n_live, 1, __ATOMIC_RELAXED);
    return p;
}

static void count_free(void *arg, void *p, size_t bytes)
{
    struct counting *c = arg;

    (void)bytes;
    __atomic_sub_fetch(&c->n_live, 1, __ATOMIC_RELAXED);
    free(p);
}

weft_allocator counting_allocator(struct counting *c)
{
    return (weft_allocator){count_alloc, count_free, c};
}
