/* random.c - the random arrays of each SIMD level. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/random.h"

WF_LEVELS(wf_random_fns, wf_random_fns_of);
