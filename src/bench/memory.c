/* memory.c - how long a cache line takes from one core to another, and a mapped
 * region from one process to another. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"

enum { ROUNDS = 20000, LOOKS = 1 << 16, TIMEOUT_S = 20 };

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

/* ---- a mapped region ------------------------------------------------------------------------- */

enum { LINES = 4096 };

struct wf_bench_lines {
    _Alignas(128) _Atomic int64_t filled;
    _Alignas(128) _Atomic int64_t taken;
    _Alignas(128) uint64_t sum; /* so that reading is not left out */
};

void wf_bench_fill(void *p, int64_t n, uint64_t seed)
{
    uint64_t *v = p;

    for (int64_t i = 0; i < n / 8; i++)
        v[i] = seed + (uint64_t)i;
    memset((char *)p + (n & ~7ll), (int)seed, (size_t)(n & 7));
}

uint64_t wf_bench_sum(const void *p, int64_t n)
{
    const uint64_t *v = p;
    uint64_t sum = 0;

    for (int64_t i = 0; i < n / 8; i++)
        sum += v[i];
    for (int64_t i = n & ~7ll; i < n; i++)
        sum += ((const uint8_t *)p)[i];
    return sum;
}

/* The reader may be on the other thread of the same core. */
static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static weft_status map(struct wf_bench_mapped *m, int64_t n)
{
    void *p = m->fd < 0
                  ? MAP_FAILED
                  : mmap(NULL, (size_t)(LINES + n), PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);

    if (p == MAP_FAILED)
        return wf_err(WEFT_EIO, "a raw region: %s", wf_errno_text(errno));
    m->lines = p;
    m->data = (uint8_t *)p + LINES;
    m->n = n;
    m->n_handed = 0;
    return WEFT_OK;
}

weft_status wf_bench_map_new(struct wf_bench_mapped *m, int64_t n, char *name, size_t size)
{
    m->fd = memfd_create("weft-bench", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, LINES + n))
        return wf_err(WEFT_EIO, "a raw region: %s", wf_errno_text(errno));
    wf_snprintf(name, size, "/proc/%d/fd/%d", (int)getpid(), m->fd);
    return map(m, n);
}

weft_status wf_bench_map_open(struct wf_bench_mapped *m, int64_t n, const char *name)
{
    m->fd = open(name, O_RDWR | O_CLOEXEC);
    return map(m, n);
}

void wf_bench_map_close(struct wf_bench_mapped *m)
{
    if (m->lines)
        munmap(m->lines, (size_t)(LINES + m->n));
    if (m->fd >= 0)
        close(m->fd);
    *m = (struct wf_bench_mapped){.fd = -1};
}

/* Until the other process has written k; it may have ended. */
static weft_status await(const _Atomic int64_t *line, int64_t k, bool pauses)
{
    double start = 0;

    for (int64_t n = 1; atomic_load_explicit(line, memory_order_acquire) != k; n++) {
        if (pauses)
            pause_core();
        if (n % LOOKS)
            continue;
        start = start > 0 ? start : seconds();
        if (seconds() - start > TIMEOUT_S)
            return wf_err(WEFT_ETIME, "the other process has not answered for %d s", TIMEOUT_S);
    }
    return WEFT_OK;
}

weft_status wf_bench_map_write(struct wf_bench_mapped *m)
{
    int64_t k = ++m->n_handed;

    wf_bench_fill(m->data, m->n, (uint64_t)k);
    atomic_store_explicit(&m->lines->filled, k, memory_order_release);
    return await(&m->lines->taken, k, true);
}

weft_status wf_bench_map_read(struct wf_bench_mapped *m)
{
    int64_t k = ++m->n_handed;
    weft_status st = await(&m->lines->filled, k, true);

    if (st)
        return st;
    m->lines->sum += wf_bench_sum(m->data, m->n);
    atomic_store_explicit(&m->lines->taken, k, memory_order_release);
    return WEFT_OK;
}

weft_status wf_bench_line_send(struct wf_bench_mapped *m, int64_t rounds)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < rounds && !st; i++) {
        int64_t k = ++m->n_handed;

        atomic_store_explicit(&m->lines->filled, k, memory_order_release);
        st = await(&m->lines->taken, k, false);
    }
    return st;
}

weft_status wf_bench_line_return(struct wf_bench_mapped *m, int64_t rounds)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < rounds && !st; i++) {
        int64_t k = ++m->n_handed;

        st = await(&m->lines->filled, k, false);
        if (!st)
            atomic_store_explicit(&m->lines->taken, k, memory_order_release);
    }
    return st;
}
