/* api.h - the functions of NVIDIA's libraries that weft calls, found at run time.
 *
 * One table has them all, so that a test can put its own in their place: it runs the kernels on the
 * host, and lets any call fail. */
#ifndef WF_CUDA_API_H
#define WF_CUDA_API_H

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include "kernels/cuda/cudnn.h"
#include "weft/base.h"

/* clang-format off */
#define WF_CUDA_FNS(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
    X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) \
    X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent) X(cuMemAlloc_v2) X(cuMemFree_v2) \
    X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) \
    X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeerAsync) X(cuMemsetD8Async) X(cuStreamCreate) \
    X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) \
    X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) \
    X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
    X(cuStreamWaitEvent) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) \
    X(cuFuncSetAttribute) X(cuLaunchKernelEx) X(cuGetErrorString)

#define WF_CUBLASLT_FNS(X) \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul) \
    X(cublasLtMatmulDescInit_internal) X(cublasLtMatmulDescSetAttribute) \
    X(cublasLtMatrixLayoutInit_internal) X(cublasLtMatrixLayoutSetAttribute) \
    X(cublasLtMatmulPreferenceInit_internal) X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoConfigGetAttribute) \
    X(cublasLtGetStatusString)

#define WF_CUDNN_FNS(X) \
    X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) \
    X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendFinalize) \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendExecute)

#define WF_NVRTC_FNS(X) \
    X(nvrtcVersion) X(nvrtcCreateProgram) X(nvrtcCompileProgram) X(nvrtcDestroyProgram) \
    X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)
/* clang-format on */

struct wf_cuda_api {
#define X(name) __typeof__(name) *name;
    WF_CUDA_FNS(X)
    WF_CUBLASLT_FNS(X)
    WF_CUDNN_FNS(X)
    WF_NVRTC_FNS(X)
#undef X
    bool have_dnn; /* cuDNN was found */
    /* How the libraries are opened and searched: dlopen, dlsym, dlclose, or a test's. */
    void *(*lib_open)(const char *name);
    void *(*lib_find)(void *lib, const char *name);
    void (*lib_close)(void *lib);
    void *lib[3], *rtc; /* rtc: NULL without NVRTC */
};

/* Opens the libraries and finds the functions. The error names what is missing and the package that
 * has it; without cuBLASLt everything but its products works, and `have_blas` is false; without
 * cuDNN convolutions are products. */
weft_status wf_cuda_api_open(struct wf_cuda_api *api, bool *have_blas);
void wf_cuda_api_close(struct wf_cuda_api *api);
/* dlopen and its neighbors. */
extern const struct wf_cuda_api wf_cuda_system;

/* WEFT_OK, or the error of a driver call: "cuMemAlloc: out of memory". */
weft_status wf_cuda_check(const struct wf_cuda_api *api, CUresult r, const char *what);

#endif
