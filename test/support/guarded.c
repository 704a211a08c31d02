/* guarded.c - memory for tests that ends at a protected page. */
#define _GNU_SOURCE
#include "support/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct guarded guarded_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    struct guarded g = {.map_bytes = body + page};

    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + body, page, PROT_NONE)) {
        perror("guarded memory");
        abort();
    }
    g.p = g.map + body - bytes;
    return g;
}

void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}
