/* counting.h - an allocator for tests: counts, and fails on demand. */
#ifndef WEFT_TEST_COUNTING_H
#define WEFT_TEST_COUNTING_H

#include <weft/base.h>

struct counting {
    int64_t n_allocs, n_live; /* calls so far, blocks not yet freed */
    _Atomic int64_t fail_at;  /* the call (1, 2, …) that fails; 0: none */
    bool sticky;              /* and all that follow */
};
weft_allocator counting_allocator(struct counting *c);

#endif
