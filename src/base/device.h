/* device.h - where ops run: the devices of a context by name, the pools of groups of cores, and
 * devices with memory of their own, which drivers open (weft/sys/device.h).
 *
 * Devices are numbered: first the groups of cores, then those with memory of their own, in the
 * order of the list. */
#ifndef WF_BASE_DEVICE_H
#define WF_BASE_DEVICE_H

#include <pthread.h>

#include "base/base.h"
#include "weft/sys/device.h"

#define WF_DEVICE_DEFAULT (-1)

/* An open device with memory of its own. */
struct wf_device {
    char name[24];
    const char *kind;
    weft_ctx *ctx;
    weft_device_ops ops; /* a copy: what an older driver lacks is NULL */
    void *dev;
    weft_device_info info;
    int64_t limit; /* bytes; 0: none */
    _Atomic int64_t used, peak;
    pthread_mutex_t lock; /* of `stream`, which get and set use */
    void *stream;
};

/* The drivers that are built in, up to NULL: defined by the kernels layer (drivers.c). */
extern const weft_device_driver *const wf_builtin_drivers[];

/* Opens what weft_ctx_opts.devices lists. */
weft_status wf_devices_open(weft_ctx *ctx, const weft_ctx_opts *o);
void wf_devices_free(weft_ctx *ctx);

/* How many devices an item of the list is, n bytes of text: 3 for "gpu:0*3". */
int wf_device_times(const char *item, size_t n);
/* The number of a device: "cpu:1", "/cpu:1", "/device:CPU:1", "/job:localhost/task:0/cpu:1". A name
 * without a device is the default; so is cpu:0 if the default is a single group of cores.
 * WEFT_ENOENT lists those that exist. */
weft_status wf_device_find(const weft_ctx *ctx, const char *name, int *out);
/* "/job:ps/task:1": a parameter server. What is placed there are variables; ops of such a scope run
 * on the default device of this process. */
bool wf_device_server(const char *name, int *server);
/* The pool of a group of cores, which belongs to the context; made on first use. */
weft_status wf_device_pool(weft_ctx *ctx, int device, struct wf_pool **out);
/* The device of this number if it has memory of its own, otherwise NULL. The default device's is
 * that of ctx->home. */
struct wf_device *wf_device_own(const weft_ctx *ctx, int device);
/* Its name in `text`, of at least 24 bytes; returns it. */
const char *wf_device_name(const weft_ctx *ctx, int device, char *text);

/* ---- memory of a device (devmem.c) ----------------------------------------------------------- */

/* Counted against the device's limit; `what` is for the error. At least one byte. */
weft_status wf_dev_alloc(struct wf_device *d, int64_t bytes, const char *what, void **out);
void wf_dev_free(struct wf_device *d, void *p, int64_t bytes); /* NULL is fine */
/* Host memory for fast copies. */
weft_status wf_dev_host_alloc(struct wf_device *d, int64_t bytes, const char *what, void **out);
void wf_dev_host_free(struct wf_device *d, void *p, int64_t bytes);
/* Copies that are finished when they return. */
weft_status wf_dev_get(struct wf_device *d, void *host, const void *from, int64_t bytes);
weft_status wf_dev_set(struct wf_device *d, void *to, const void *host, int64_t bytes);
weft_status wf_dev_zero(struct wf_device *d, void *to, int64_t bytes);
/* A copy from another device's memory, in the order of `stream`, which is one of d's; what is to be
 * done before it has been waited for on that stream (wf_dev_after). */
weft_status wf_dev_peer(struct wf_device *d, void *stream, void *to, struct wf_device *other,
                        const void *from, int64_t bytes);
/* Work on a stream of d from now on waits for an event of `other`, which may be d. */
weft_status wf_dev_after(struct wf_device *d, void *stream, struct wf_device *other, void *event);
/* Several copies, of which the last call waits for all; st: of what was enqueued. */
void wf_dev_begin(struct wf_device *d);
weft_status wf_dev_copy(struct wf_device *d, weft_copy_way way, void *to, const void *from,
                        int64_t bytes);
weft_status wf_dev_end(struct wf_device *d, weft_status st);

#endif
