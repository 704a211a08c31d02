/* fake_cuda.h - NVIDIA's libraries as functions of this process: memory is the host's, kernels are
 * the device code compiled as C, streams are done when a call returns. So the kernels for GPUs, and
 * all code around them, run in ordinary tests; and any call can fail. */
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include "weft/sys/device.h"

/* The driver "gpu" on the fake libraries; NULL if this build has no kernels for GPUs. */
const weft_device_driver *fake_cuda_driver(void);

/* Call number n from now (1: the next) of a function of the libraries fails; 0: none does. */
void fake_cuda_fail(int n);
/* Functions called so far. */
int fake_cuda_calls(void);
/* Libraries or functions that are not found, up to NULL; NULL: all are. */
void fake_cuda_missing(const char *name);
/* Allocations of device memory that have not been freed. */
int fake_cuda_allocations(void);

#endif
