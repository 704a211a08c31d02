/* driver.h - the driver of NVIDIA's GPUs. */
#ifndef WF_CUDA_DRIVER_H
#define WF_CUDA_DRIVER_H

#include "weft/sys/device.h"

/* arg: a table of functions (struct wf_cuda_api) instead of the system's libraries; or NULL. */
extern const weft_device_driver wf_cuda_driver;
weft_status wf_cuda_count(void *arg, weft_ctx *ctx, int *n);
weft_status wf_cuda_open(void *arg, weft_ctx *ctx, int number, const weft_device_opts *opts,
                         const weft_device_ops **ops, void **dev);

#endif
