/* guarded.h - memory for tests that ends at a protected page. */
#ifndef WEFT_TEST_GUARDED_H
#define WEFT_TEST_GUARDED_H

#include <stddef.h>

struct guarded {
    char *map;
    size_t map_bytes;
    void *p; /* the memory; a byte past it ends the test */
};

/* Zeroed. It ends at the page whatever its size, so p is aligned as `bytes` is. */
struct guarded guarded_new(size_t bytes);
void guarded_free(struct guarded *g);

#endif
