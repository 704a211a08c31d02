/* pool.c - the thread pool: a caller submits tiles, each thread takes its share, then helps the
 * others.
 *
 * A job's tiles are cut into one share per thread, the same tiles for the same thread each time, so
 * that what a thread worked on in one step is in its own cache in the next. A share's ticket holds
 * (job number, tiles left); a tile is taken by lowering the count with a compare-and-swap, by the
 * share's owner or by a thread that has finished its own. The job's description cannot change while
 * a taken tile is unfinished, so the thread that holds a tile may read it. A thread that is late or
 * asleep takes none, and no one waits for it. Idle threads, and a caller that waits for the last
 * tiles, spin for a bounded time and then sleep on a futex; no lock is ever taken. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/base.h"

/* Long enough to stay awake between the steps of a training loop, and to be seen by the scheduler
 * as a thread that needs a core of its own. Where processes share cores it only burns their time:
 * spin_us 0. */
#define DEFAULT_SPIN_US 2000
enum { SPINS_BEFORE_CLOCK = 200, SPINS_BETWEEN_CLOCK = 16, SPINS_BEFORE_YIELD = 1000 };

struct worker {
    struct wf_pool *pool;
    pthread_t thread;
    int index;
};

struct share {
    _Alignas(64) _Atomic uint64_t ticket; /* job number << 32 | tiles left */
};

struct wf_pool {
    weft_ctx *ctx;
    int n_threads, n_started;
    int64_t spin_ns;
    struct share *shares;   /* one per thread */
    struct worker *workers; /* n_threads - 1: the caller is one more */
    /* the job: written by the caller before the ticket is published */
    wf_tile_fn *fn;
    void *arg;
    int64_t n_tiles;
    _Alignas(64) _Atomic uint32_t job; /* number of the last job published */
    _Alignas(64) _Atomic int64_t n_done;
    _Atomic uint32_t caller_sleeps; /* futex word: 1 while the caller sleeps, or is about to */
    cpu_set_t cpus;                 /* where the process may run */
    _Atomic int caller_cpu;
    _Alignas(64) _Atomic int n_asleep;
    _Atomic uint32_t wake; /* futex word */
    _Atomic bool stop, busy;
    _Atomic bool rests; /* idle threads sleep at once */
};

/* Waits for about 60 ns. A hypervisor takes a core away from a guest that does nothing but pause,
 * which makes every wait as expensive as a sleep; so there is one pause, and then enough work not
 * to look like a loop of pauses. */
static void cpu_relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
    for (int i = 0; i < 100; i++)
        __asm__ volatile("nop; nop; nop; nop");
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

/* A bounded spin: for about spin_ns from the first call on. The clock is asked only after a while,
 * since most waits are short. */
struct spin {
    int n;
    int64_t until;
};

static int64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits a moment; false when the time is over. */
static bool spin_once(const struct wf_pool *p, struct spin *s, bool yield)
{
    if (p->spin_ns == 0)
        return false;
    if (++s->n >= SPINS_BEFORE_CLOCK && s->n % SPINS_BETWEEN_CLOCK == 0) {
        int64_t now = clock_ns();

        if (!s->until)
            s->until = now + p->spin_ns;
        if (now >= s->until)
            return false;
    }
    if (yield && s->n >= SPINS_BEFORE_YIELD)
        sched_yield(); /* a tile's thread was taken off its core */
    else
        cpu_relax();
    return true;
}

/* The first tile of a thread's share. */
static int64_t share_begin(const struct wf_pool *p, int owner)
{
    return p->n_tiles * owner / p->n_threads;
}

/* Counts a finished tile of a job of n_tiles. The job may be over as soon as it is counted, so
 * nothing of its description is read afterwards. */
static void finish_tile(struct wf_pool *p, int64_t n_tiles)
{
    if (atomic_fetch_add(&p->n_done, 1) + 1 == n_tiles && atomic_load(&p->caller_sleeps)) {
        atomic_store(&p->caller_sleeps, 0);
        futex_wake_all(&p->caller_sleeps);
    }
}

/* Run tiles of one share until none is left to take. */
static void take_share(struct wf_pool *p, int owner, int thread)
{
    _Atomic uint64_t *ticket = &p->shares[owner].ticket;
    uint64_t t = atomic_load_explicit(ticket, memory_order_acquire);

    while ((uint32_t)t) {
        int64_t n_tiles;

        if (!atomic_compare_exchange_weak_explicit(ticket, &t, t - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        n_tiles = p->n_tiles;
        p->fn(p->arg, share_begin(p, owner + 1) - (int64_t)(uint32_t)t, thread);
        finish_tile(p, n_tiles);
        t = atomic_load_explicit(ticket, memory_order_acquire);
    }
}

static void take_tiles(struct wf_pool *p, int thread)
{
    for (int i = 0; i < p->n_threads; i++)
        take_share(p, (thread + i) % p->n_threads, thread);
}

/* Whether anything has happened since job `seen`. */
static bool has_work(struct wf_pool *p, uint32_t seen)
{
    return atomic_load(&p->job) != seen || atomic_load(&p->stop);
}

/* A kernel that is not aware of shared caches may wake a thread on the same core as its caller,
 * where the two then take turns while another core idles. Such a thread moves off once; afterwards
 * it may use every allowed core again. */
static void leave_callers_cpu(struct wf_pool *p)
{
    int cpu = atomic_load_explicit(&p->caller_cpu, memory_order_relaxed);
    cpu_set_t others = p->cpus;

    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getcpu() != cpu ||
        CPU_COUNT(&p->cpus) < p->n_threads || CPU_COUNT(&p->cpus) < 2)
        return;
    CPU_CLR(cpu, &others);
    if (sched_setaffinity(0, sizeof others, &others) == 0) /* 0: this thread */
        sched_setaffinity(0, sizeof p->cpus, &p->cpus);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct wf_pool *p = w->pool;
    uint32_t seen = 0;

    wf_fpmode_enter(p->ctx->flush_denormals);
    for (;;) {
        struct spin spin = {0};

        while (!has_work(p, seen) && !atomic_load_explicit(&p->rests, memory_order_relaxed) &&
               spin_once(p, &spin, false))
            ;
        if (!has_work(p, seen)) {
            uint32_t wake = atomic_load(&p->wake);

            /* Announce first, check again, then sleep: a caller that missed the announcement has
             * published its job before our second check. */
            atomic_fetch_add(&p->n_asleep, 1);
            if (!has_work(p, seen))
                futex_wait(&p->wake, wake);
            atomic_fetch_sub(&p->n_asleep, 1);
            leave_callers_cpu(p);
        }
        if (atomic_load(&p->stop))
            return NULL;
        seen = atomic_load(&p->job);
        take_tiles(p, w->index);
    }
}

weft_status wf_pool_new(weft_ctx *ctx, int n_threads, int spin_us, struct wf_pool **out)
{
    struct wf_pool *p = wf_alloc(ctx, sizeof *p);

    if (!p)
        return wf_err_nomem(ctx, sizeof *p, "thread pool");
    p->ctx = ctx;
    p->n_threads = n_threads;
    p->spin_ns = (spin_us < 0 ? DEFAULT_SPIN_US : spin_us) * (int64_t)1000;
    atomic_store(&p->caller_cpu, -1);
    if (sched_getaffinity(0, sizeof p->cpus, &p->cpus))
        CPU_ZERO(&p->cpus);
    p->workers = wf_alloc_n(ctx, n_threads, sizeof *p->workers);
    p->shares = wf_alloc_n(ctx, n_threads, sizeof *p->shares);
    if (!p->workers || !p->shares) {
        wf_pool_free(p);
        return wf_err_nomem(ctx, (size_t)n_threads * sizeof *p->workers, "thread pool");
    }
    for (int i = 0; i < n_threads - 1; i++) {
        struct worker *w = &p->workers[i];

        w->pool = p;
        w->index = i + 1;
        if (pthread_create(&w->thread, NULL, work, w)) {
            wf_pool_free(p);
            return wf_err(WEFT_ENOMEM, "thread pool: cannot start thread %d of %d", i + 2,
                          n_threads);
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
    wf_free(p->ctx, p->shares);
    wf_free(p->ctx, p);
}

int wf_pool_size(const struct wf_pool *p)
{
    return p ? p->n_threads : 1;
}

static void publish(struct wf_pool *p, int64_t n_tiles, wf_tile_fn *fn, void *arg)
{
    uint32_t job = atomic_load_explicit(&p->job, memory_order_relaxed) + 1;

    p->fn = fn;
    p->arg = arg;
    p->n_tiles = n_tiles;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    for (int i = 0; i < p->n_threads; i++)
        atomic_store_explicit(&p->shares[i].ticket,
                              (uint64_t)job << 32 |
                                  (uint64_t)(share_begin(p, i + 1) - share_begin(p, i)),
                              memory_order_release);
    atomic_store(&p->job, job);
    if (atomic_load(&p->n_asleep)) {
        atomic_store_explicit(&p->caller_cpu, sched_getcpu(), memory_order_relaxed);
        atomic_fetch_add(&p->wake, 1);
        futex_wake_all(&p->wake);
    }
}

static bool is_done(struct wf_pool *p, int64_t n_tiles)
{
    return atomic_load(&p->n_done) >= n_tiles;
}

/* Until other threads have finished their tiles. As workers do: announce, look again, then
 * sleep. */
static void wait_for_tiles(struct wf_pool *p, int64_t n_tiles)
{
    struct spin spin = {0};

    while (!is_done(p, n_tiles)) {
        if (spin_once(p, &spin, true))
            continue;
        atomic_store(&p->caller_sleeps, 1);
        while (!is_done(p, n_tiles) && atomic_load(&p->caller_sleeps))
            futex_wait(&p->caller_sleeps, 1);
    }
    atomic_store_explicit(&p->caller_sleeps, 0, memory_order_relaxed);
}

void wf_pool_for(struct wf_pool *p, int64_t n_tiles, wf_tile_fn *fn, void *arg)
{
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
    wait_for_tiles(p, n_tiles);
    atomic_store_explicit(&p->busy, false, memory_order_release);
}

void wf_pool_rest(struct wf_pool *p, bool on)
{
    atomic_store_explicit(&p->rests, on, memory_order_relaxed);
}

/* ---- floating-point mode --------------------------------------------------------------------- */

#if defined(__x86_64__)
#define MXCSR_DEFAULT 0x1f80u /* all exceptions masked, round to nearest */
#define MXCSR_FLUSH 0x8040u   /* flush results, denormal operands are zero */

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
