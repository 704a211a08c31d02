/* memory.c - how long a cache line takes from one core to another. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "bench/bench.h"

enum { ROUNDS = 20000 };

struct pair {
    _Alignas(128) _Atomic int64_t there;
    _Alignas(128) _Atomic int64_t back;
    _Atomic bool stop;
};

static void *answer(void *arg)
{
    struct pair *p = arg;
    int64_t seen = 0;

    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        int64_t now = atomic_load_explicit(&p->there, memory_order_acquire);

        if (now != seen)
            atomic_store_explicit(&p->back, seen = now, memory_order_release);
    }
    return NULL;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

weft_status wf_bench_cache_line(double *out)
{
    struct pair p = {.there = 0};
    pthread_t thread;
    double start;

    if (pthread_create(&thread, NULL, answer, &p))
        return wf_err(WEFT_ENOMEM, "no thread can be started");
    start = seconds();
    for (int64_t i = 1; i <= ROUNDS; i++) {
        atomic_store_explicit(&p.there, i, memory_order_release);
        while (atomic_load_explicit(&p.back, memory_order_acquire) != i)
            ;
    }
    *out = (seconds() - start) / (2 * ROUNDS);
    p.stop = true;
    pthread_join(thread, NULL);
    return WEFT_OK;
}
