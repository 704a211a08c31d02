/* device.h - where ops run: the devices of a context by name, and their pools. */
#ifndef WF_BASE_DEVICE_H
#define WF_BASE_DEVICE_H

#include "base/base.h"

#define WF_DEVICE_DEFAULT (-1)

/* The number of a device: "cpu:1", "/cpu:1", "/device:CPU:1", "/job:localhost/task:0/cpu:1". A name
 * without a device, and cpu:0 where there is only one, is the default. WEFT_ENOENT lists those that
 * exist. */
weft_status wf_device_find(const weft_ctx *ctx, const char *name, int *out);
/* Its pool, which belongs to the context; made on first use. */
weft_status wf_device_pool(weft_ctx *ctx, int device, struct wf_pool **out);
void wf_devices_free(weft_ctx *ctx);

#endif
