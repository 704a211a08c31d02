/* random.c - how fast are random arrays? Nanoseconds per element of each kind at each level, on a
 * block of 4096 elements. One JSON line per kind and level. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/random.h"

enum { N = 4096, CALLS = 200, REPEATS = 9 };

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other programs do not count */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* kind WF_RANDOM_N_KINDS: dropout */
static double time_kind(const struct wf_random_fns *fns, int kind, float *x)
{
    const struct wf_rng_key key = {.seed = 1};
    const float params[2] = {0.25f, 1.0f};
    double took[REPEATS];

    for (int r = -1; r < REPEATS; r++) {
        double t = now_ns();

        for (int i = 0; i < CALLS; i++) {
            if (kind == WF_RANDOM_N_KINDS)
                fns->dropout(x, x, 0, N, &key, 0.1f);
            else
                fns->fill((enum wf_random_kind)kind, x, 0, N, &key, params);
        }
        if (r >= 0)
            took[r] = (now_ns() - t) / CALLS / N;
    }
    qsort(took, REPEATS, sizeof took[0], by_size);
    return took[REPEATS / 2];
}

int main(void)
{
    static const char *const names[] = {"uniform", "normal", "truncated_normal", "bernoulli",
                                        "dropout"};
    static float x[N];

    for (int kind = 0; kind <= WF_RANDOM_N_KINDS; kind++)
        for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++)
            printf("{\"bench\":\"random\",\"kind\":\"%s\",\"level\":\"%s\",\"ns_element\":%.3f}\n",
                   names[kind], weft_simd_name(level), time_kind(wf_random_fns_of(level), kind, x));
    return 0;
}
