/* ew.c - how fast are the element-wise functions? Nanoseconds per element of each code at each
 * level, on blocks that stay in the first-level cache. One JSON line per code and level.
 *
 *   bench/ew [NAME...]     only these codes */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/ew.h"

enum { N = 1024, REPEATS = 9 };
static const double SPAN_NS = 2e6;

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

/* Nanoseconds per call: the median over REPEATS spans. */
static double time_fn(wf_ew_fn *fn, float *y, const float *a, const float *b, const float *c)
{
    static const float param[2] = {0.5f, 1.5f};
    double took[REPEATS];
    long n_calls = 1;

    for (int r = -3; r < REPEATS; r++) {
        double t = now_ns();

        for (long i = 0; i < n_calls; i++)
            fn(y, a, b, c, N, param);
        t = now_ns() - t;
        if (r < 0)
            n_calls = (long)((double)n_calls * SPAN_NS / (t + 1)) + 1;
        else
            took[r] = t / (double)n_calls;
    }
    qsort(took, REPEATS, sizeof took[0], by_size);
    return took[REPEATS / 2];
}

int main(int argc, char **argv)
{
    float *mem = aligned_alloc(64, 4 * N * sizeof(float)), *a = mem, *b = a + N, *c = b + N,
          *y = c + N;

    if (!mem)
        return 1;
    for (int i = 0; i < N; i++) {
        a[i] = (float)(i * 37 % N) / N * 8 - 3.99f;
        b[i] = (float)(i * 91 % N) / N * 6 - 2.99f;
        c[i] = (float)(i & 1);
    }
    for (int code = 0; code < WF_EW_COUNT; code++) {
        bool wanted = argc == 1;

        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], wf_ew_info[code].name) == 0;
        for (weft_simd level = WEFT_SIMD_PORTABLE; wanted && level <= weft_simd_best(); level++) {
            double ns = time_fn(wf_ew_fns_of(level)->fn[code], y, a, b, c);
            double bytes = (wf_ew_info[code].n_in + 1) * 4.0 * N;

            printf("{\"bench\":\"ew\",\"code\":\"%s\",\"level\":\"%s\",\"ns_element\":%.4f,\"gb_"
                   "s\":%.1f}\n",
                   wf_ew_info[code].name, weft_simd_name(level), ns / N, bytes / ns);
        }
    }
    free(mem);
    return 0;
}
