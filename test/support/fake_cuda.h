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
/* Allocations of device memory, and descriptors of cuDNN, that have not been freed. */
int fake_cuda_allocations(void);
/* Whether there is an NVRTC: generated kernels are compiled by the host's compiler. At first there
 * is none, and programs are interpreted. */
void fake_cuda_compile(bool on);
int fake_cuda_compiled(void); /* sources compiled so far */
/* Kernels launched so far while the previous one may still run. */
int fake_cuda_overlapped(void);
/* Recordings launched so far. */
int fake_cuda_launches(void);
/* Whether what was compiled stays after it was loaded, for caches. The files are generated-*.so in
 * the working directory. */
void fake_cuda_keep(bool on);
/* Whether cuBLASLt refuses products with an epilogue. */
void fake_cuda_plain_products(bool on);
/* The name of the GPU from the next opening on; NULL: "emulated GPU". */
void fake_cuda_model(const char *name);
/* Whether nvcc compiled a kernel of this name into the library; loading any other one fails. */
bool fake_cuda_has_kernel(const char *name);
/* The number of the first engine of cuDNN's list; the others follow. */
void fake_cuda_engines(int first);
/* Whether a recording refuses launches that overlap. */
void fake_cuda_no_overlap(bool on);
/* seen is told of each piece of work as it is done: the kernel's name, "copy", "fill" or "product";
 * NULL: nobody is. */
void fake_cuda_watch(void (*seen)(void *arg, const char *work), void *arg);

#endif
