/* ctx.c - the context: seams, limits and the pool. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/device.h"
#include "base/sys.h"

#define HUGE_PAGE ((size_t)2 << 20)

static void *libc_alloc(void *arg, size_t bytes, size_t align)
{
    void *p = NULL;

    (void)arg;
    if (posix_memalign(&p, align, bytes))
        return NULL;
#ifdef MADV_HUGEPAGE
    if (align >= HUGE_PAGE)
        madvise(p, bytes, MADV_HUGEPAGE); /* advice only: failing is fine */
#endif
    return p;
}

static void libc_free(void *arg, void *p, size_t bytes)
{
    (void)arg;
    (void)bytes;
    free(p);
}

static int64_t system_now(void *arg)
{
    struct timespec t;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int wf_usable_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    return 1;
}

void wf_use_group(int k, int n)
{
    cpu_set_t all, group;
    int count, at = 0;

    CPU_ZERO(&group);
    if (sched_getaffinity(0, sizeof all, &all) || (count = CPU_COUNT(&all)) < n)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            if (at >= k * count / n && at < (k + 1) * count / n)
                CPU_SET(cpu, &group);
            at++;
        }
    sched_setaffinity(0, sizeof group, &group); /* a hint: training works anywhere */
}

static weft_status choose_simd(const weft_ctx_opts *o, weft_simd *out)
{
    weft_simd best = weft_simd_best(), want = o->simd;

    if (want < WEFT_SIMD_AUTO || want > WEFT_SIMD_AVX512BF16)
        return wf_err(WEFT_EINVAL, "context: simd level %d does not exist", (int)want);
    if (o->kernels == WEFT_KERNELS_PORTABLE && want == WEFT_SIMD_AUTO)
        want = WEFT_SIMD_PORTABLE;
    if (want > best)
        return wf_err(WEFT_ENOSUP, "context: this CPU has no %s, the best level is %s",
                      weft_simd_name(want), weft_simd_name(best));
    *out = want == WEFT_SIMD_AUTO ? best : want;
    return WEFT_OK;
}

weft_status weft_ctx_new(const weft_ctx_opts *opts, weft_ctx **out)
{
    weft_ctx_opts o;
    weft_allocator mem = {libc_alloc, libc_free, NULL};
    weft_ctx *ctx;
    weft_simd simd = WEFT_SIMD_PORTABLE;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ctx_opts");

    if (st)
        return st;
    if (o.threads < 0 || o.threads > 1024)
        return wf_err(WEFT_EINVAL, "context: threads %d is not in 0..1024", o.threads);
    if (o.spin_us != WEFT_ZERO && (o.spin_us < 0 || o.spin_us > 1000000))
        return wf_err(WEFT_EINVAL, "context: spin_us %d is not in 0..1000000", o.spin_us);
    st = choose_simd(&o, &simd);
    if (st)
        return st;
    if (o.allocator)
        mem = *o.allocator;
    ctx = mem.alloc(mem.arg, sizeof *ctx, 64);
    if (!ctx)
        return wf_err(WEFT_ENOMEM, "context: out of memory");
    memset(ctx, 0, sizeof *ctx);
    ctx->mem = mem;
    ctx->mem_limit = o.memory_limit;
    ctx->simd = simd;
    ctx->n_groups = 1;
    ctx->soft_placement = o.soft_placement;
    ctx->spin_us = o.spin_us == WEFT_ZERO ? 0 : o.spin_us ? o.spin_us : -1;
    ctx->kernels = o.kernels;
    ctx->seed = o.seed;
    ctx->flush_denormals = o.flush_denormals;
    ctx->log = o.log;
    ctx->log_arg = o.log_arg;
    ctx->now_ns = o.now_ns ? o.now_ns : system_now;
    ctx->now_arg = o.now_arg;
    ctx->fs = &wf_fs_posix;
    ctx->sys = &wf_sys_posix;
    st = wf_devices_open(ctx, &o);
    if (!st)
        st = wf_pool_new(ctx, o.threads ? o.threads : wf_usable_cpus(), ctx->spin_us, &ctx->pool);
    if (st) {
        weft_ctx_free(ctx);
        return st;
    }
    *out = ctx;
    return WEFT_OK;
}

void weft_ctx_free(weft_ctx *ctx)
{
    weft_allocator mem;
    void (*ops_free)(weft_ctx * ctx), (*inproc_free)(weft_ctx * ctx);

    if (!ctx)
        return;
    ops_free = atomic_load(&ctx->ops_free);
    inproc_free = atomic_load(&ctx->inproc_free);
    wf_devices_free(ctx);
    wf_pool_free(ctx->pool);
    if (ops_free)
        ops_free(ctx);
    if (inproc_free)
        inproc_free(ctx);
    mem = ctx->mem;
    mem.free(mem.arg, ctx, sizeof *ctx);
}

int weft_ctx_threads(const weft_ctx *ctx)
{
    return wf_pool_size(ctx->pool);
}

weft_simd weft_ctx_simd(const weft_ctx *ctx)
{
    return ctx->simd;
}

int64_t weft_ctx_memory(const weft_ctx *ctx)
{
    return atomic_load_explicit(&ctx->mem_used, memory_order_relaxed);
}

int64_t weft_ctx_memory_peak(const weft_ctx *ctx)
{
    return atomic_load_explicit(&ctx->mem_peak, memory_order_relaxed);
}

void weft_text_free(weft_ctx *ctx, char *text)
{
    wf_free(ctx, text);
}

int64_t wf_now(const weft_ctx *ctx)
{
    return ctx->now_ns(ctx->now_arg);
}

void wf_log(const weft_ctx *ctx, int level, const char *fmt, ...)
{
    char raw[1024], line[1024];
    va_list args;

    if (!ctx->log)
        return;
    va_start(args, fmt);
    wf_vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    ctx->log(ctx->log_arg, level, weft_printable(raw, -1, line, sizeof line));
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Each block stores its size in the 64 bytes before it, for the free function of the seam and the
 * count. */
struct head {
    size_t bytes;
};
#define HEAD 64

bool wf_mem_charge(weft_ctx *ctx, int64_t bytes)
{
    int64_t used = atomic_fetch_add_explicit(&ctx->mem_used, bytes, memory_order_relaxed) + bytes;
    int64_t peak = atomic_load_explicit(&ctx->mem_peak, memory_order_relaxed);

    if (ctx->mem_limit > 0 && used > ctx->mem_limit) {
        atomic_fetch_sub_explicit(&ctx->mem_used, bytes, memory_order_relaxed);
        return false;
    }
    while (used > peak &&
           !atomic_compare_exchange_weak_explicit(&ctx->mem_peak, &peak, used, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    return true;
}

void wf_mem_release(weft_ctx *ctx, int64_t bytes)
{
    atomic_fetch_sub_explicit(&ctx->mem_used, bytes, memory_order_relaxed);
}

static void *refuse(weft_ctx *ctx, size_t bytes)
{
    int64_t n = bytes > (size_t)PTRDIFF_MAX ? PTRDIFF_MAX : (int64_t)bytes;

    atomic_store_explicit(&ctx->mem_refused, n, memory_order_relaxed);
    return NULL;
}

void *wf_alloc_raw(weft_ctx *ctx, size_t bytes)
{
    /* The head of a huge block takes a whole huge page before it, so that the data is aligned. */
    size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : HEAD;
    size_t total = bytes + HEAD;
    char *p;

    if (bytes > (size_t)PTRDIFF_MAX - HUGE_PAGE || !wf_mem_charge(ctx, (int64_t)total))
        return refuse(ctx, bytes);
    p = ctx->mem.alloc(ctx->mem.arg, total, align);
    if (!p) {
        atomic_fetch_sub_explicit(&ctx->mem_used, (int64_t)total, memory_order_relaxed);
        return refuse(ctx, bytes);
    }
    memset(p, 0, HEAD);
    ((struct head *)(void *)p)->bytes = total;
    return p + HEAD;
}

void *wf_alloc(weft_ctx *ctx, size_t bytes)
{
    void *p = wf_alloc_raw(ctx, bytes);

    if (p)
        memset(p, 0, bytes);
    return p;
}

void wf_free(weft_ctx *ctx, void *p)
{
    char *block;
    size_t total;

    if (!p)
        return;
    block = (char *)p - HEAD;
    total = ((struct head *)(void *)block)->bytes;
    atomic_fetch_sub_explicit(&ctx->mem_used, (int64_t)total, memory_order_relaxed);
    ctx->mem.free(ctx->mem.arg, block, total);
}

void *wf_alloc_n(weft_ctx *ctx, int64_t n, size_t size)
{
    int64_t bytes;

    if (!wf_mul_i64(n, (int64_t)size, &bytes))
        return refuse(ctx, SIZE_MAX);
    return wf_alloc(ctx, (size_t)bytes);
}

char *wf_strdup(weft_ctx *ctx, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = wf_alloc(ctx, n);

    if (p)
        memcpy(p, s, n);
    return p;
}

weft_status wf_grow(weft_ctx *ctx, void *array_ptr, int64_t *cap, int64_t need, size_t size)
{
    void *old, *p;
    int64_t n = *cap ? *cap : 8;

    if (need <= *cap)
        return WEFT_OK;
    while (n < need)
        n *= 2;
    p = wf_alloc_n(ctx, n, size);
    if (!p)
        return wf_err_nomem(ctx, (size_t)n * size, "growing a table");
    memcpy(&old, array_ptr, sizeof old);
    if (old)
        memcpy(p, old, (size_t)*cap * size);
    memcpy(array_ptr, &p, sizeof p);
    wf_free(ctx, old);
    *cap = n;
    return WEFT_OK;
}

weft_status wf_err_nomem(weft_ctx *ctx, size_t bytes, const char *what)
{
    if (!bytes)
        bytes = (size_t)atomic_load_explicit(&ctx->mem_refused, memory_order_relaxed);
    if (ctx->mem_limit > 0 && (int64_t)bytes > ctx->mem_limit - weft_ctx_memory(ctx))
        return wf_err(WEFT_ELIMIT,
                      "%s: %zu bytes exceed the context's memory limit (%lld of %lld in use)", what,
                      bytes, (long long)weft_ctx_memory(ctx), (long long)ctx->mem_limit);
    return wf_err(WEFT_ENOMEM, "%s: out of memory (%zu bytes)", what, bytes);
}

bool wf_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && *out >= 0;
}

bool wf_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out) && *out >= 0;
}
