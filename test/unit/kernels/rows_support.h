/* rows_support.h - what the tests of row, reduction, movement and optimizer kernels share:
 * random data, contexts of several thread counts, every SIMD level the CPU has, comparison. */
#ifndef WF_TEST_ROWS_SUPPORT_H
#define WF_TEST_ROWS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "support/levels.h"

static const int thread_counts[] = {1, 2, 3, 7};
enum { N_COUNTS = 4 };
static weft_ctx *contexts[N_COUNTS];

static inline int contexts_open(void **state)
{
    (void)state;
    for (int i = 0; i < N_COUNTS; i++)
        if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = thread_counts[i]), &contexts[i]))
            return -1;
    return 0;
}

static inline int contexts_close(void **state)
{
    (void)state;
    for (int i = 0; i < N_COUNTS; i++)
        weft_ctx_free(contexts[i]);
    return 0;
}

/* for (EACH_LEVEL(level)): portable and what else this CPU has. */
#define EACH_LEVEL(level)            \
    weft_simd level = first_level(); \
    level <= weft_simd_best();       \
    level = (weft_simd)(level + 1)

static uint64_t random_state = 1;

static inline double random_unit(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t z = (random_state ^ (random_state >> 30)) * 0xbf58476d1ce4e5b9u;

    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static inline float *random_floats(int64_t n, double low, double high)
{
    float *x = malloc(((size_t)n + 1) * sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(low + (high - low) * random_unit());
    return x;
}

static inline float *copy_floats(const float *x, int64_t n)
{
    float *y = malloc(((size_t)n + 1) * sizeof *y);

    if (n)
        memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

static inline void *zeros(int64_t n, size_t size)
{
    return calloc((size_t)n + 1, size);
}

/* |got - want| <= tol * max(1, |want|), or both NaN, or equal infinities. */
static inline void check_near(double got, double want, double tol, const char *what, int64_t i)
{
    double scale = fabs(want) > 1 ? fabs(want) : 1;

    if (got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= tol * scale)
        return;
    fail_msg("%s[%lld]: got %.9g, expected %.9g", what, (long long)i, got, want);
}

static inline void check_same(const void *a, const void *b, size_t bytes, const char *what)
{
    if (bytes && memcmp(a, b, bytes))
        fail_msg("%s: bits differ", what);
}

#endif
