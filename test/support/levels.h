/* levels.h - the SIMD levels that a test tries: portable and what else this CPU has. Under the
 * thread sanitizer only the best one: which thread computes what does not depend on the level. */
#ifndef WEFT_TEST_LEVELS_H
#define WEFT_TEST_LEVELS_H

#include "weft/base.h"

static inline weft_simd first_level(void)
{
#ifdef __SANITIZE_THREAD__
    return weft_simd_best();
#else
    return WEFT_SIMD_PORTABLE;
#endif
}

#endif
