/* weft/sys/device.h - for authors of devices with memory of their own.
 *
 * A driver finds and opens the devices of one kind ("gpu": gpu:0, gpu:1, …). An open device is a
 * pointer of the driver's and a table of functions: memory, copies, streams, events, kernels, and
 * optionally capture and replay of a whole run. The executor places parameters, optimizer slots,
 * state, gradients and intermediate values in the device's memory, and never reads or writes that
 * memory itself: everything goes through these functions.
 *
 * The CPU needs none of this: its memory is the host's, and its kernels have finished when they
 * return.
 *
 * The contract, for all functions below:
 * - They return WEFT_OK or an error whose text is set in the calling thread (weft_device_error).
 * - Pointers to device memory are plain addresses: weft adds offsets to them, and nothing else.
 * - Several threads may call functions of a device at the same time, each with streams and
 *   events of its own; alloc and free may be called by any thread at any time.
 * - Work on one stream runs in the order in which it was enqueued; work on different streams is
 *   ordered only by events. An error of enqueued work is reported by the next synchronization.
 * - Nothing is allocated by copy, fill, record, wait, and by kernels: they are called in every
 *   step. */
#ifndef WEFT_SYS_DEVICE_H
#define WEFT_SYS_DEVICE_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reports an error with a text: return weft_device_error(WEFT_EIO, "cuMemAlloc: %s", …). */
WEFT_API weft_status weft_device_error(weft_status st, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* What is asked of a device when it is opened. */
typedef struct weft_device_opts {
    size_t size;
    int64_t memory_limit; /* bytes that weft may use there; 0: all. alloc need not check it */
    bool preallocate;     /* take the memory now (all of it, or the limit) and divide it later;
                           * otherwise it is taken when needed */
    const char *cache;    /* a directory for compiled kernels; NULL: none. Copied by open */
} weft_device_opts;

/* What a device is. */
typedef struct weft_device_info {
    size_t size;
    char model[96];       /* "NVIDIA H200" */
    int64_t memory_bytes; /* in all; 0: unknown */
    size_t align;         /* of every allocation: a power of two, at least 64 */
    int cores;            /* multiprocessors */
    bool joins; /* has kernels for products that do a second job (matmul_sums, matmul_apply) */
    bool groups_updates; /* runs many updates as one kernel (wf_kplan.run_many): they stay apart
                          * from products, and matmul_apply is not asked for */
} weft_device_info;

typedef enum weft_copy_way { WEFT_COPY_IN, WEFT_COPY_OUT, WEFT_COPY_WITHIN } weft_copy_way;

/* weft's own types, for kernels: src/kernels/kernels.h and src/op/op.h. */
struct wf_kplan;
struct wf_kernel;
struct wf_op;
struct wf_attr;
struct wf_type;

/* The functions of an open device. `dev` is the driver's pointer. Optional ones may be NULL. */
typedef struct weft_device_ops {
    size_t size;
    void (*close)(void *dev);
    weft_status (*info)(void *dev, weft_device_info *out);
    /* Optional, for fingerprints: calls add for everything that the bits of results depend on
     * ("the GPU", "NVIDIA H200"; "the version of cuBLASLt", "13.1.0"). */
    weft_status (*describe)(void *dev, void (*add)(void *arg, const char *key, const char *value),
                            void *arg);

    /* ---- memory ---- */
    /* At least `bytes` (> 0) at a multiple of info.align, contents undefined. WEFT_ENOMEM. */
    weft_status (*alloc)(void *dev, size_t bytes, void **out);
    void (*free)(void *dev, void *p, size_t bytes); /* no work that uses it is under way */
    /* Optional: host memory from and to which copies run at full speed (pinned). Without it:
     * ordinary memory. */
    weft_status (*host_alloc)(void *dev, size_t bytes, void **out);
    void (*host_free)(void *dev, void *p, size_t bytes);

    /* ---- work, in the order of a stream ---- */
    weft_status (*stream_new)(void *dev, void **stream);
    void (*stream_free)(void *dev, void *stream); /* nothing is under way */
    /* Waits until everything enqueued so far is done; reports its errors. */
    weft_status (*stream_sync)(void *dev, void *stream);
    /* IN: host to device; OUT: device to host; WITHIN the device, where the two do not overlap.
     * bytes > 0. Host memory stays as it is until the copy is done: weft waits before it reads or
     * changes it. */
    weft_status (*copy)(void *dev, void *stream, weft_copy_way way, void *to, const void *from,
                        size_t bytes);
    weft_status (*fill)(void *dev, void *stream, void *to, int byte, size_t bytes);

    /* ---- events: a point in a stream. One that was never recorded counts as passed. ---- */
    weft_status (*event_new)(void *dev, void **event);
    void (*event_free)(void *dev, void *event);
    weft_status (*event_record)(void *dev, void *event, void *stream);
    weft_status (*event_query)(void *dev, void *event, bool *passed);
    weft_status (*event_sync)(void *dev, void *event); /* the host waits; reports errors up to it */
    weft_status (*stream_wait)(void *dev, void *stream, void *event); /* later work waits */

    /* ---- kernels ---- */
    /* The kernel of a call, as wf_kernel_choose does it for the CPU; WEFT_ENOSUP: there is none,
     * and the op runs on the host. The kernel's run enqueues its work on the call's stream and
     * returns. */
    weft_status (*choose)(void *dev, struct wf_kplan *plan, const struct wf_kernel **out);
    /* Optional: what can be a step of a fused program, and which products can be followed by one
     * (wf_kernel_can_step, wf_kernel_can_anchor). Without can_step nothing is fused. */
    bool (*can_step)(const struct wf_op *op, int n_in, const struct wf_type *in,
                     const struct wf_type *out);
    bool (*can_anchor)(const struct wf_op *op, const struct wf_attr *attr, const struct wf_type *in,
                       const struct wf_type *product, weft_dtype last);
    /* Optional: whether there is a kernel for operands and results of these types, which need
     * not be those that the op's rule gives: a half written where the rule says f32, read where
     * it says f32. Casts are then left out. It also answers for batch_norm_act
     * and layer_norm_grad_add, which only plans contain. */
    bool (*can_take)(const struct wf_op *op, const struct wf_attr *attr, int n_in,
                     const struct wf_type *in, int n_out, const struct wf_type *out);

    /* ---- optional: a whole run as one launch ---- */
    /* Between the two, work enqueued on the stream is recorded and not done. The recording keeps
     * addresses, not contents. A failing begin or end leaves the stream usable, and weft enqueues
     * the run piece by piece from then on. */
    weft_status (*capture_begin)(void *dev, void *stream);
    weft_status (*capture_end)(void *dev, void *stream, void **recorded);
    weft_status (*replay)(void *dev, void *stream, void *recorded);
    void (*recorded_free)(void *dev, void *recorded);

    /* ---- optional: several devices of this driver ---- */
    /* Copies from the memory of `other`, an open device of this driver, in the order of dev's
     * stream. WEFT_ENOSUP: there is no way from that one to this one. Then, and without this
     * function, weft copies through the host's memory. A driver that has it accepts events of its
     * other devices in stream_wait, too. */
    weft_status (*copy_peer)(void *dev, void *stream, void *to, void *other, const void *from,
                             size_t bytes);
} weft_device_ops;

/* Finds and opens devices of one kind. */
typedef struct weft_device_driver {
    size_t size;
    const char *kind; /* lower-case letters, not "cpu" */
    void *arg;
    /* How many there are here. An error says what is missing, and which package has it. */
    weft_status (*count)(void *arg, weft_ctx *ctx, int *n);
    /* Opens device `number`, below count's. A context opens it once, or several times if it uses
     * it as several devices ("gpu:0*2"). */
    weft_status (*open)(void *arg, weft_ctx *ctx, int number, const weft_device_opts *opts,
                        const weft_device_ops **ops, void **dev);
} weft_device_driver;

/* Driver i of a context (the caller's first, then those built in), and how many devices it finds
 * here; its error says what is missing. WEFT_ERANGE after the last; kind is then unchanged. */
WEFT_API weft_status weft_ctx_driver(weft_ctx *ctx, int i, const char **kind, int *n);

#ifdef __cplusplus
}
#endif
#endif
