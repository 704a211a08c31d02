/* pool.c - the thread pool: one caller hands out tiles, idle threads take them.
 *
 * A ticket word holds (job number, tiles left). A thread takes a tile by lowering the count with a
 * compare-and-swap; the job's description cannot change while a taken tile is unfinished, so whoever holds a
 * tile may read it. A thread that is late or asleep simply takes none: nobody waits for it.
 * Idle threads spin for a bounded time and then sleep on a futex; no lock is ever taken. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/base.h"

/* A worker looks for about two milliseconds before it sleeps: long enough to stay awake between the steps of a training
 * loop, and to be seen by the scheduler as one that needs a core of its own. */
enum { SPINS_BEFORE_SLEEP = 100000, SPINS_BEFORE_YIELD = 2000 };

struct worker {
    struct wf_pool *pool;
    pthread_t thread;
    int index;
};

struct wf_pool {
    weft_ctx *ctx;
    int n_threads, n_started;
    struct worker *workers; /* n_threads - 1: the caller is the other one */
    /* the job: written by the caller before the ticket is published */
    wf_tile_fn *fn;
    void *arg;
    int64_t n_tiles;
    _Alignas(64) _Atomic uint64_t ticket; /* job number << 32 | tiles left */
    _Alignas(64) _Atomic int64_t n_done;
    _Alignas(64) _Atomic int n_asleep;
    _Atomic uint32_t wake; /* futex word */
    _Atomic bool stop, busy;
};

static void cpu_relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Run tiles of whatever job is current until none is left to take. */
static void take_tiles(struct wf_pool *p, int thread)
{
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);

    while ((uint32_t)t) {
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        p->fn(p->arg, p->n_tiles - (int64_t)(uint32_t)t, thread);
        atomic_fetch_add_explicit(&p->n_done, 1, memory_order_release);
        t = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
}

static bool has_work(struct wf_pool *p)
{
    return (uint32_t)atomic_load(&p->ticket) || atomic_load(&p->stop);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct wf_pool *p = w->pool;

    wf_fpmode_enter(p->ctx->flush_denormals);
    for (;;) {
        int spins = 0;

        while (!has_work(p) && spins++ < SPINS_BEFORE_SLEEP)
            cpu_relax();
        if (!has_work(p)) {
            uint32_t seen = atomic_load(&p->wake);

            /* Announce first, look again, then sleep: a caller that missed the announcement has
             * published its ticket before our second look. */
            atomic_fetch_add(&p->n_asleep, 1);
            if (!has_work(p))
                futex_wait(&p->wake, seen);
            atomic_fetch_sub(&p->n_asleep, 1);
        }
        if (atomic_load(&p->stop))
            return NULL;
        take_tiles(p, w->index);
    }
}

weft_status wf_pool_new(weft_ctx *ctx, int n_threads, struct wf_pool **out)
{
    struct wf_pool *p = wf_alloc(ctx, sizeof *p);

    if (!p)
        return wf_err_nomem(ctx, sizeof *p, "thread pool");
    p->ctx = ctx;
    p->n_threads = n_threads;
    p->workers = wf_alloc_n(ctx, n_threads, sizeof *p->workers);
    if (!p->workers) {
        wf_pool_free(p);
        return wf_err_nomem(ctx, (size_t)n_threads * sizeof *p->workers, "thread pool");
    }
    for (int i = 0; i < n_threads - 1; i++) {
        struct worker *w = &p->workers[i];

        w->pool = p;
        w->index = i + 1;
        if (pthread_create(&w->thread, NULL, work, w)) {
            wf_pool_free(p);
            return wf_err(WEFT_ENOMEM, "thread pool: cannot start thread %d of %d", i + 2, n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return WEFT_OK;
}

void wf_pool_free(struct wf_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->wake, 1);
    futex_wake_all(&p->wake);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    wf_free(p->ctx, p->workers);
    wf_free(p->ctx, p);
}

int wf_pool_size(const struct wf_pool *p)
{
    return p ? p->n_threads : 1;
}

static void publish(struct wf_pool *p, int64_t n_tiles, wf_tile_fn *fn, void *arg)
{
    uint64_t job = (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 32) + 1;

    p->fn = fn;
    p->arg = arg;
    p->n_tiles = n_tiles;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store(&p->ticket, job << 32 | (uint64_t)n_tiles);
    if (atomic_load(&p->n_asleep)) {
        atomic_fetch_add(&p->wake, 1);
        futex_wake_all(&p->wake);
    }
}

void wf_pool_for(struct wf_pool *p, int64_t n_tiles, wf_tile_fn *fn, void *arg)
{
    int spins = 0;

    if (n_tiles <= 0)
        return;
    if (n_tiles == 1 || !p || p->n_threads == 1 || n_tiles > UINT32_MAX ||
        atomic_exchange_explicit(&p->busy, true, memory_order_acquire)) {
        for (int64_t i = 0; i < n_tiles; i++)
            fn(arg, i, 0);
        return;
    }
    publish(p, n_tiles, fn, arg);
    take_tiles(p, 0);
    while (atomic_load_explicit(&p->n_done, memory_order_acquire) < n_tiles)
        if (++spins < SPINS_BEFORE_YIELD)
            cpu_relax();
        else
            sched_yield(); /* a tile's thread was taken off its core */
    atomic_store_explicit(&p->busy, false, memory_order_release);
}

/* ---- floating-point mode --------------------------------------------------------------------- */

#if defined(__x86_64__)
#define MXCSR_DEFAULT 0x1f80u   /* all exceptions masked, round to nearest */
#define MXCSR_FLUSH 0x8040u     /* flush results, denormal operands are zero */

uint64_t wf_fpmode_enter(bool flush_denormals)
{
    uint64_t saved = _mm_getcsr();

    _mm_setcsr(MXCSR_DEFAULT | (flush_denormals ? MXCSR_FLUSH : 0));
    return saved;
}

void wf_fpmode_leave(uint64_t saved)
{
    _mm_setcsr((unsigned)saved);
}
#elif defined(__aarch64__)
uint64_t wf_fpmode_enter(bool flush_denormals)
{
    uint64_t saved, mode = flush_denormals ? (uint64_t)1 << 24 : 0;

    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
    return saved;
}

void wf_fpmode_leave(uint64_t saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}
#else
uint64_t wf_fpmode_enter(bool flush_denormals)
{
    (void)flush_denormals;
    return 0;
}

void wf_fpmode_leave(uint64_t saved)
{
    (void)saved;
}
#endif
