/* api.c - finds NVIDIA's libraries, and says what is missing. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <dlfcn.h>

#include "base/base.h"
#include "kernels/cuda/api.h"

static void *system_open(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static void *system_find(void *lib, const char *name)
{
    return dlsym(lib, name);
}

static void system_close(void *lib)
{
    dlclose(lib);
}

const struct wf_cuda_api wf_cuda_system = {
    .lib_open = system_open, .lib_find = system_find, .lib_close = system_close};

/* A library, the package that has it, and the functions to find in it. */
struct library {
    const char *names[3]; /* the first that opens */
    const char *package;
};

static const struct library driver = {{"libcuda.so.1", "libcuda.so"},
                                      "NVIDIA's driver (Debian: nvidia-driver, libcuda1)"};
static const struct library blas = {{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                                    "cuBLAS (Debian: libcublaslt13; NVIDIA: libcublas-13-0)"};
static const struct library dnn = {{"libcudnn.so.9"}, "cuDNN 9 (NVIDIA: libcudnn9-cuda-13)"};

static const struct library compiler = {{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
                                        "NVRTC (Debian: libnvrtc13; NVIDIA: cuda-nvrtc-13-0)"};

struct wanted {
    const char *name;
    void *to; /* the member of the table, a pointer to a function */
};

static void *open_first(const struct wf_cuda_api *api, const struct library *l)
{
    void *lib = NULL;

    for (int i = 0; i < 3 && l->names[i] && !lib; i++)
        lib = api->lib_open(l->names[i]);
    return lib;
}

static weft_status find_all(const struct wf_cuda_api *api, void *lib, const struct library *l,
                            const struct wanted *w, int n)
{
    for (int i = 0; i < n; i++) {
        void *fn = api->lib_find(lib, w[i].name);

        if (!fn)
            return wf_err(WEFT_ENOSUP, "%s has no function %s: a newer version of %s is needed",
                          l->names[0], w[i].name, l->package);
        memcpy(w[i].to, &fn, sizeof fn);
    }
    return WEFT_OK;
}

weft_status wf_cuda_api_open(struct wf_cuda_api *api, bool *have_blas)
{
#define X(name) {#name, &api->name},
    const struct wanted of_driver[] = {WF_CUDA_FNS(X)}, of_blas[] = {WF_CUBLASLT_FNS(X)},
                        of_rtc[] = {WF_NVRTC_FNS(X)}, of_dnn[] = {WF_CUDNN_FNS(X)};
#undef X
    weft_status st;

    *have_blas = false;
    api->lib[0] = open_first(api, &driver);
    if (!api->lib[0])
        return wf_err(WEFT_ENOENT, "there is no %s here: install %s", driver.names[0],
                      driver.package);
    st = find_all(api, api->lib[0], &driver, of_driver, WF_COUNT(of_driver));
    if (st)
        return st;
    api->lib[1] = open_first(api, &blas);
    *have_blas = api->lib[1] && !find_all(api, api->lib[1], &blas, of_blas, WF_COUNT(of_blas));
    api->lib[2] = open_first(api, &dnn);
    api->have_dnn = api->lib[2] && !find_all(api, api->lib[2], &dnn, of_dnn, WF_COUNT(of_dnn));
    api->rtc = open_first(api, &compiler);
    if (api->rtc && find_all(api, api->rtc, &compiler, of_rtc, WF_COUNT(of_rtc))) {
        api->lib_close(api->rtc);
        api->rtc = NULL;
    }
    return WEFT_OK;
}

void wf_cuda_api_close(struct wf_cuda_api *api)
{
    for (int i = 0; i < WF_COUNT(api->lib); i++) {
        if (api->lib[i])
            api->lib_close(api->lib[i]);
        api->lib[i] = NULL;
    }
    if (api->rtc)
        api->lib_close(api->rtc);
    api->rtc = NULL;
}

weft_status wf_cuda_check(const struct wf_cuda_api *api, CUresult r, const char *what)
{
    const char *text = NULL;

    if (r == CUDA_SUCCESS)
        return WEFT_OK;
    if (api->cuGetErrorString(r, &text) || !text)
        text = "unknown error";
    return wf_err(r == CUDA_ERROR_OUT_OF_MEMORY ? WEFT_ENOMEM : WEFT_EIO, "%s: %s (CUDA error %d)",
                  what, text, (int)r);
}

#endif
