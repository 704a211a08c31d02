/* scramble.h - a strategy for tests: computes shards in random order on several threads, each with
 * its own copy of the parameters, some of them twice, and updates the parameters in pieces that are
 * spread over several updaters. Whatever it does, the bits must be those of `local`. */
#ifndef WF_TEST_SCRAMBLE_H
#define WF_TEST_SCRAMBLE_H

#include "weft/sys/strategy.h"

struct scramble {
    uint64_t seed;
    int n_stores, n_updaters;
    int fail_at; /* the k-th call of need, ready or apply fails; 0: none */
    /* what it has seen */
    _Atomic int n_calls, n_ready, n_twice;
    _Atomic bool bad; /* a range was told twice, or changed after it was ready */
};

extern const weft_strategy scramble_strategy;
/* `local` without fused updates. */
extern const weft_strategy unfused_strategy;

#endif
