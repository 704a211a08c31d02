/* weft/base.h - status codes, error text, and the context that everything else lives in.
 *
 * Every call that can fail returns a weft_status: 0, or a negative code. weft_error() then gives
 * one line that says what happened, with the numbers, and what to do. Outputs are written only on
 * success. A returned pointer is borrowed; an out-pointer is owned by the caller; free(NULL) is
 * fine.
 *
 * The library never aborts, exits, prints or reads the environment. Its only mutable global is the
 * thread-local error text. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(WEFT_API)
#define WEFT_API __attribute__((visibility("default")))
#elif !defined(WEFT_API)
#define WEFT_API
#endif

#if defined(__GNUC__)
#define WEFT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WEFT_PRINTF(fmt, args)
#endif

/* Codes are grouped by what failed, so that a program can decide what to do. */
typedef int weft_status;
enum {
    WEFT_OK = 0,
    /* the call: nothing has changed, the arguments were invalid */
    WEFT_EINVAL = -101, /* an argument is invalid */
    WEFT_ESHAPE = -102, /* shapes do not match */
    WEFT_EDTYPE = -103, /* dtypes do not match */
    WEFT_ENOENT = -104, /* no such name, file, op, variable */
    WEFT_EEXIST = -105, /* the name is taken */
    WEFT_EPARSE = -106, /* malformed text or file */
    WEFT_ENOSUP = -107, /* valid, but this build or op cannot do it */
    WEFT_ERANGE = -108, /* an index or a size is out of range */
    WEFT_ESTATE = -109, /* not possible in the object's current state */
    /* a resource: retry after freeing some */
    WEFT_ENOMEM = -201, /* allocation failed */
    WEFT_ELIMIT = -202, /* exceeds a limit of the context */
    WEFT_EIO = -203,    /* reading or writing failed */
    WEFT_ENOSPC = -204, /* the disk is full */
    /* the step: its results are invalid, parameters are as before it */
    WEFT_ENUMERIC = -301, /* NaN or infinity where it was forbidden */
    WEFT_EDATA = -302,    /* a label, id or index in the data is out of range */
    WEFT_ECANCEL = -303,  /* a callback asked to stop */
    /* a peer */
    WEFT_EPEER = -401,
    WEFT_ETIME = -402, /* a deadline passed */
    /* the job */
    WEFT_EFENCED = -501, /* a newer generation has taken over */
    WEFT_EBUG = -502     /* internal error, an invariant does not hold: please report it */
};

/* The name of a code, e.g. "WEFT_ESHAPE". Never NULL. */
WEFT_API const char *weft_status_name(weft_status st);

/* The text of the calling thread's last error; "" if there was none. Valid until its next failing
 * call. It is one line of printable text (weft_printable), even if it quotes names and values from
 * files. */
WEFT_API const char *weft_error(void);

/* Makes text from a file safe to show on a terminal: control characters (also those above 0x80)
 * and bytes that are not UTF-8 become \n, \t, \r or \xNN; printable text is unchanged. n < 0: up
 * to a NUL. Writes at most room - 1 bytes and a NUL, never part of a character or escape. Returns
 * `out`. */
WEFT_API const char *weft_printable(const char *text, int64_t n, char *out, size_t room);

/* The one of `words` that is closest to `word` by edit distance ("did you mean"); NULL if none is
 * close. */
WEFT_API const char *weft_nearest(const char *word, const char *const *words, int n_words);

/* The version of the library, e.g. "0.1.0". */
WEFT_API const char *weft_version(void);

/* Options read like keywords: weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx). An
 * omitted field is zero, and zero means the default; NULL means all defaults. WEFT_ZERO is an
 * explicit zero for the fields whose comment names it. C++: T o = {}; o.size = sizeof o;
 *
 * Structs that begin with their size only grow at their end. A program that was compiled against an
 * older header works with a newer library: the fields that its structs lack have their defaults,
 * and results are written as far as they fit. A struct that is larger than the library's, from a
 * newer header, is WEFT_EINVAL. The elements of an array of such structs all have the same size. */
#define WEFT_OPTS(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#define WEFT_ZERO (-0x7fff0000)

/* The memory seam. There is no resize: weft allocates before the first step and never during
 * one. */
typedef struct weft_allocator {
    /* At least `bytes`, aligned to `align` (a power of two up to 2 MiB), contents undefined; NULL
     * on failure. */
    void *(*alloc)(void *arg, size_t bytes, size_t align);
    void (*free)(void *arg, void *p, size_t bytes);
    void *arg;
} weft_allocator;

enum weft_log_level { WEFT_LOG_DEBUG = -1, WEFT_LOG_INFO, WEFT_LOG_WARN, WEFT_LOG_ERROR };
typedef void weft_log_fn(void *arg, int level, const char *line);

/* Which family of CPU kernels. Portable kernels give identical results on every machine. */
typedef enum weft_kernels { WEFT_KERNELS_BEST, WEFT_KERNELS_PORTABLE } weft_kernels;

/* The SIMD level of our own kernels. Asking for more than the CPU has is an error. AVX512BF16 is
 * AVX512 with products of bf16 by the CPU's own instruction, which takes denormals as zeros and
 * rounds sums in another order: with operands in bf16 its results differ from those of AVX512. */
typedef enum weft_simd {
    WEFT_SIMD_AUTO,
    WEFT_SIMD_PORTABLE,
    WEFT_SIMD_AVX2,
    WEFT_SIMD_AVX512,
    WEFT_SIMD_AVX512BF16
} weft_simd;

typedef struct weft_ctx weft_ctx;
struct weft_device_driver; /* weft/sys/device.h */

typedef struct weft_ctx_opts {
    size_t size;
    int threads;          /* in the pool, including the caller; 0: as many as the process may use */
    int64_t memory_limit; /* bytes; 0: none. Calls beyond it fail with WEFT_ELIMIT and name what was
                           * to be allocated */
    weft_kernels kernels;
    weft_simd simd;
    uint64_t seed;                   /* for initializers and random ops */
    const weft_allocator *allocator; /* copied; NULL: the C library's */
    weft_log_fn *log;                /* NULL: silent */
    void *log_arg;
    int64_t (*now_ns)(void *arg); /* a monotonic clock; NULL: the system's */
    void *now_arg;
    bool flush_denormals; /* treat denormals as zero in all kernels, on every thread */
    const char *devices; /* to compute on, with commas: "cpu", or groups of its cores for strategies
                           * that use several devices: "cpu:0, cpu:1"; or a device with memory of
                           * its own: "gpu:0". Then functions keep their variables there and
                           * compute there; ops that the device has no kernel for run on the cpu,
                           * unless the word strict is in the list: "gpu:0, strict". With
                           * several ("gpu:0, gpu:1") they do so on the first, and strategies use
                           * all; "gpu:0*2" is one used as two, gpu:0 and gpu:0.1. NULL: the cpu.
                           * WEFT_ENOENT names one that does not exist */
    int spin_us; /* how long an idle thread of the pool, or a caller that waits for one, looks for
                  * work before it sleeps, in microseconds. 0: 2000. WEFT_ZERO: it sleeps at once,
                  * which is right where several processes share the cores */
    bool soft_placement; /* ops in the scope of a device that does not exist (weft_device_push) run
                          * on the default device, and the log says so once; otherwise weft_fn_new
                          * refuses them */
    int64_t device_memory; /* bytes that may be used of each device with memory of its own; 0: all.
                            * Calls beyond it fail with WEFT_ELIMIT */
    bool device_preallocate; /* take that memory now; otherwise as it is needed */
    int n_drivers;
    const struct weft_device_driver *const *drivers; /* of devices besides those built in
                                               * (weft/sys/device.h); borrowed */
    const char *device_cache; /* an existing directory for kernels that devices compile, so that the
                               * next process need not compile them; NULL: they are not kept */
} weft_ctx_opts;

/* A context owns a thread pool and the seams. Several threads may use it at the same time. Free
 * whatever was created in it first. */
WEFT_API weft_status weft_ctx_new(const weft_ctx_opts *opts, weft_ctx **out);
WEFT_API void weft_ctx_free(weft_ctx *ctx);

WEFT_API int weft_ctx_threads(const weft_ctx *ctx);
WEFT_API weft_simd weft_ctx_simd(const weft_ctx *ctx); /* the level in use, never AUTO */
WEFT_API int64_t weft_ctx_memory(const weft_ctx *ctx); /* bytes in use now */
WEFT_API int64_t weft_ctx_memory_peak(const weft_ctx *ctx);

/* The devices that ops can be placed on. What is not placed runs on the default device: the first
 * with memory of its own in the list of devices, otherwise the pool of the context, over all
 * cores. */
typedef struct weft_device {
    size_t size;
    char name[24];    /* "cpu:0": for weft_device_push */
    const char *kind; /* "cpu": a group of cores; or a driver's: "gpu" */
    int cores;
    int threads;                      /* of cpus: that compute there, the caller's included */
    char model[96];                   /* "" for cpus */
    int64_t memory_bytes;             /* of devices with memory of their own; 0: unknown */
    int64_t memory_used, memory_peak; /* by this context */
} weft_device;
WEFT_API int weft_ctx_n_devices(const weft_ctx *ctx);
WEFT_API weft_status weft_ctx_device(const weft_ctx *ctx, int i, weft_device *out);

/* Frees text or bytes returned by a call of this library. NULL is fine. */
WEFT_API void weft_text_free(weft_ctx *ctx, char *text);

/* The best level this CPU supports, and the name of a level ("avx512"). */
WEFT_API weft_simd weft_simd_best(void);
WEFT_API const char *weft_simd_name(weft_simd level);

#ifdef __cplusplus
}
#endif
#endif
