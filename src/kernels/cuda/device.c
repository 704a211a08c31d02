/* device.c - a GPU as a device of weft: memory, copies, streams, events, recordings. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <stdio.h>

#include "kernels/cuda/dnn.h"

extern const unsigned char wf_cuda_fatbin[]; /* bin.c */

#define CHECK(d, call) wf_cuda_check(&(d)->api, (d)->api.call, #call)

/* Every function of the driver needs the context in its thread. */
static weft_status enter(struct wf_cuda *d)
{
    return wf_cuda_check(&d->api, d->api.cuCtxSetCurrent(d->context), "cuCtxSetCurrent");
}

/* The same, before work on a stream that is not a kernel of ours. */
static weft_status enter_other(struct wf_cuda *d)
{
    atomic_store(&d->last_kernel, NULL);
    return enter(d);
}

static CUdeviceptr address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

/* ---- opening --------------------------------------------------------------------------------- */

weft_status wf_cuda_count(void *arg, weft_ctx *ctx, int *n)
{
    struct wf_cuda_api api = arg ? *(const struct wf_cuda_api *)arg : wf_cuda_system;
    bool blas;
    weft_status st = wf_cuda_api_open(&api, &blas);

    (void)ctx;
    *n = 0;
    if (!st)
        st = wf_cuda_check(&api, api.cuInit(0), "cuInit");
    if (!st)
        st = wf_cuda_check(&api, api.cuDeviceGetCount(n), "cuDeviceGetCount");
    wf_cuda_api_close(&api);
    return st;
}

static int attribute(struct wf_cuda *d, CUdevice_attribute a)
{
    int v = 0;

    return d->api.cuDeviceGetAttribute(&v, a, d->device) ? 0 : v;
}

static weft_status load_kernels(struct wf_cuda *d)
{
    static const char *const names[] = {
#define K(name) #name,
#define K2(name) #name "_f", #name "_d",
#include "kernels/cuda/names.def"
#undef K
#undef K2
    };
    weft_status st = wf_cuda_check(&d->api, d->api.cuModuleLoadData(&d->module, wf_cuda_fatbin),
                                   "loading weft's kernels");

    for (int i = 0; i < WFC_N_KERNELS && !st; i++)
        st = wf_cuda_check(&d->api, d->api.cuModuleGetFunction(&d->fn[i], d->module, names[i]),
                           names[i]);
    if (!st)
        st =
            wf_cuda_check(&d->api,
                          d->api.cuFuncSetAttribute(d->fn[WFC_K_wfc_xent_wide],
                                                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                    WFC_XENT_KEPT * (int)sizeof(uint16_t)),
                          "cuFuncSetAttribute");
    return st;
}

static void cuda_close(void *dev)
{
    struct wf_cuda *d = dev;

    if (!d)
        return;
    if (d->context) {
        d->api.cuCtxSetCurrent(d->context);
        wfc_dnn_free(d);
        wfc_rtc_free(d);
        if (d->blas)
            d->api.cublasLtDestroy(d->blas);
        if (d->module)
            d->api.cuModuleUnload(d->module);
        d->api.cuDevicePrimaryCtxRelease_v2(d->device);
    }
    wf_cuda_api_close(&d->api);
    pthread_mutex_destroy(&d->dnn_lock);
    pthread_mutex_destroy(&d->rtc_lock);
    wf_free(d->ctx, d->cache);
    wf_free(d->ctx, d);
}

static weft_status open_device(struct wf_cuda *d, int number)
{
    bool have_blas;
    weft_status st = wf_cuda_api_open(&d->api, &have_blas);

    if (!st)
        st = CHECK(d, cuInit(0));
    if (!st)
        st = CHECK(d, cuDeviceGet(&d->device, number));
    if (!st)
        st = CHECK(d, cuDevicePrimaryCtxRetain(&d->context, d->device));
    if (!st)
        st = enter(d);
    if (!st)
        st = CHECK(d, cuDeviceGetName(d->model, (int)sizeof d->model, d->device));
    if (!st)
        st = load_kernels(d);
    if (!st && have_blas && d->api.cublasLtCreate(&d->blas) != CUBLAS_STATUS_SUCCESS)
        st = wf_err(WEFT_EIO, "cublasLtCreate failed");
    d->cores = attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    d->capability = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                    attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return st;
}

/* ---- what it is ------------------------------------------------------------------------------ */

static weft_status cuda_info(void *dev, weft_device_info *out)
{
    struct wf_cuda *d = dev;
    size_t bytes = 0;
    weft_status st = CHECK(d, cuDeviceTotalMem_v2(&bytes, d->device));

    snprintf(out->model, sizeof out->model, "%s", d->model);
    out->memory_bytes = (int64_t)bytes;
    out->align = 256;
    out->cores = d->cores;
    out->joins = true;
    out->groups_updates = true;
    return st;
}

static weft_status cuda_describe(void *dev, void (*add)(void *, const char *, const char *),
                                 void *arg)
{
    struct wf_cuda *d = dev;
    char text[64];

    add(arg, "the GPU", d->model);
    if (d->blas) {
        snprintf(text, sizeof text, "%zu", d->api.cublasLtGetVersion());
        add(arg, "the version of cuBLASLt", text);
    }
    if (d->api.have_dnn) {
        snprintf(text, sizeof text, "%zu", d->api.cudnnGetVersion());
        add(arg, "the version of cuDNN", text);
    }
    if (d->api.rtc) {
        int major = 0, minor = 0;

        d->api.nvrtcVersion(&major, &minor);
        snprintf(text, sizeof text, "%d.%d", major, minor);
        add(arg, "the version of NVRTC", text);
    }
    return WEFT_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static weft_status cuda_alloc(void *dev, size_t bytes, void **out)
{
    struct wf_cuda *d = dev;
    CUdeviceptr p = 0;
    weft_status st = enter(d);

    if (!st)
        st = CHECK(d, cuMemAlloc_v2(&p, bytes));
    if (!st)
        *out = (void *)(uintptr_t)p;
    return st;
}

static void cuda_free(void *dev, void *p, size_t bytes)
{
    struct wf_cuda *d = dev;

    (void)bytes;
    if (!enter(d))
        d->api.cuMemFree_v2(address(p));
}

static weft_status cuda_host_alloc(void *dev, size_t bytes, void **out)
{
    struct wf_cuda *d = dev;
    weft_status st = enter(d);

    return st ? st : CHECK(d, cuMemHostAlloc(out, bytes, 0));
}

static void cuda_host_free(void *dev, void *p, size_t bytes)
{
    struct wf_cuda *d = dev;

    (void)bytes;
    if (!enter(d))
        d->api.cuMemFreeHost(p);
}

/* ---- streams --------------------------------------------------------------------------------- */

static weft_status cuda_stream_new(void *dev, void **stream)
{
    struct wf_cuda *d = dev;
    CUstream s = NULL;
    weft_status st = enter(d);

    if (!st)
        st = CHECK(d, cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    if (!st)
        *stream = s;
    return st;
}

static void cuda_stream_free(void *dev, void *stream)
{
    struct wf_cuda *d = dev;

    if (!enter_other(d))
        d->api.cuStreamDestroy_v2(stream);
}

static weft_status cuda_stream_sync(void *dev, void *stream)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    return st ? st : CHECK(d, cuStreamSynchronize(stream));
}

static weft_status cuda_copy(void *dev, void *stream, weft_copy_way way, void *to, const void *from,
                             size_t bytes)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    if (st)
        return st;
    switch (way) {
    case WEFT_COPY_IN: return CHECK(d, cuMemcpyHtoDAsync_v2(address(to), from, bytes, stream));
    case WEFT_COPY_OUT: return CHECK(d, cuMemcpyDtoHAsync_v2(to, address(from), bytes, stream));
    default: return CHECK(d, cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream));
    }
}

static weft_status cuda_fill(void *dev, void *stream, void *to, int byte, size_t bytes)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    return st ? st : CHECK(d, cuMemsetD8Async(address(to), (unsigned char)byte, bytes, stream));
}

static weft_status cuda_copy_peer(void *dev, void *stream, void *to, void *other, const void *from,
                                  size_t bytes)
{
    struct wf_cuda *d = dev;
    const struct wf_cuda *o = other;
    weft_status st = enter_other(d);

    return st ? st
              : CHECK(d, cuMemcpyPeerAsync(address(to), d->context, address(from), o->context,
                                           bytes, stream));
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status cuda_event_new(void *dev, void **event)
{
    struct wf_cuda *d = dev;
    CUevent e = NULL;
    weft_status st = enter(d);

    if (!st)
        st = CHECK(d, cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    if (!st)
        *event = e;
    return st;
}

static void cuda_event_free(void *dev, void *event)
{
    struct wf_cuda *d = dev;

    if (!enter(d))
        d->api.cuEventDestroy_v2(event);
}

static weft_status cuda_event_record(void *dev, void *event, void *stream)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    return st ? st : CHECK(d, cuEventRecord(event, stream));
}

static weft_status cuda_event_query(void *dev, void *event, bool *passed)
{
    struct wf_cuda *d = dev;
    weft_status st = enter(d);
    CUresult r;

    if (st)
        return st;
    r = d->api.cuEventQuery(event);
    *passed = r == CUDA_SUCCESS;
    return r == CUDA_ERROR_NOT_READY ? WEFT_OK : wf_cuda_check(&d->api, r, "cuEventQuery");
}

static weft_status cuda_event_sync(void *dev, void *event)
{
    struct wf_cuda *d = dev;
    weft_status st = enter(d);

    return st ? st : CHECK(d, cuEventSynchronize(event));
}

static weft_status cuda_stream_wait(void *dev, void *stream, void *event)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    return st ? st : CHECK(d, cuStreamWaitEvent(stream, event, 0));
}

/* ---- recordings ------------------------------------------------------------------------------ */

static weft_status cuda_capture_begin(void *dev, void *stream)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    return st ? st : CHECK(d, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static weft_status cuda_capture_end(void *dev, void *stream, void **recorded)
{
    struct wf_cuda *d = dev;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    weft_status st = enter_other(d);

    if (!st)
        st = CHECK(d, cuStreamEndCapture(stream, &graph));
    if (!st)
        st = CHECK(d, cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (graph)
        d->api.cuGraphDestroy(graph);
    if (!st)
        *recorded = exec;
    else /* a driver that cannot record overlapping launches: the next attempt has none */
        atomic_store(&d->no_overlap, true);
    return st;
}

static weft_status cuda_replay(void *dev, void *stream, void *recorded)
{
    struct wf_cuda *d = dev;
    weft_status st = enter_other(d);

    return st ? st : CHECK(d, cuGraphLaunch(recorded, stream));
}

static void cuda_recorded_free(void *dev, void *recorded)
{
    struct wf_cuda *d = dev;

    if (!enter(d))
        d->api.cuGraphExecDestroy(recorded);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Launches may overlap: where the last work on the stream is a kernel of ours, the next is launched
 * while it still runs, and waits inside (gpu_begin in dev/gpu.h). */
static weft_status launch(const struct wf_call *c, CUfunction fn, unsigned gx, unsigned gy,
                          unsigned threads, size_t shared, const void *args)
{
    struct wf_cuda *d = wfc_dev(c);
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig config = {.gridDimX = gx,
                             .gridDimY = gy,
                             .gridDimZ = 1,
                             .blockDimX = threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)shared,
                             .hStream = c->stream,
                             .attrs = &early};
    void *params[1];
    weft_status st = enter(d);

    early.value.programmaticStreamSerializationAllowed = 1;
    if (c->overlap && WF_CUDA_OVERLAP && d->capability >= 90 && !atomic_load(&d->no_overlap) &&
        atomic_load(&d->last_kernel) == c->stream)
        config.numAttrs = 1;
    memcpy(params, &args, sizeof args);
    if (!st)
        st =
            wf_cuda_check(&d->api, d->api.cuLaunchKernelEx(&config, fn, params, NULL), c->op->name);
    atomic_store(&d->last_kernel, st ? NULL : c->stream);
    if (st && config.numAttrs)
        atomic_store(&d->no_overlap, true);
    return st;
}

weft_status wfc_launch_with(const struct wf_call *c, int kernel, int64_t gx, int64_t gy,
                            int threads, size_t shared, const void *args)
{
    if (gx <= 0 || gy <= 0)
        return WEFT_OK;
    return launch(c, wfc_dev(c)->fn[kernel], (unsigned)gx, (unsigned)gy, (unsigned)threads, shared,
                  args);
}

weft_status wfc_launch(const struct wf_call *c, int kernel, int64_t gx, int64_t gy, int threads,
                       const void *args)
{
    return wfc_launch_with(c, kernel, gx, gy, threads, 0, args);
}

weft_status wfc_launch_made(const struct wf_call *c, const struct wfc_made *made,
                            const struct wfc_made_args *args)
{
    return launch(c, made->fn, (unsigned)made->n_blocks, 1, WFC_MADE_THREADS, 0, args);
}

weft_status wfc_launch_each(const struct wf_call *c, int kernel, int64_t n, const void *args)
{
    int64_t blocks = (n + WFC_THREADS - 1) / WFC_THREADS;
    int64_t most = (int64_t)wfc_dev(c)->cores * 64;

    return wfc_launch(c, kernel, wf_min_i64(blocks, most > 0 ? most : 64), 1, WFC_THREADS, args);
}

weft_status wfc_zero(const struct wf_call *c, const struct wf_tensor *t)
{
    int64_t bytes = wf_type_bytes(&t->type);

    return bytes ? cuda_fill(wfc_dev(c), c->stream, t->data, 0, (size_t)bytes) : WEFT_OK;
}

weft_status wfc_clear(const struct wf_call *c, void *to, size_t bytes)
{
    return bytes ? cuda_fill(wfc_dev(c), c->stream, to, 0, bytes) : WEFT_OK;
}

weft_status wfc_move(const struct wf_call *c, void *to, const void *from, size_t bytes)
{
    return bytes ? cuda_copy(wfc_dev(c), c->stream, WEFT_COPY_WITHIN, to, from, bytes) : WEFT_OK;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static const weft_device_ops cuda_ops = {
    .size = sizeof cuda_ops,
    .close = cuda_close,
    .info = cuda_info,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_sync = cuda_stream_sync,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_sync = cuda_event_sync,
    .stream_wait = cuda_stream_wait,
    .choose = wf_cuda_choose,
    .can_step = wf_cuda_can_step,
    .can_anchor = wf_cuda_can_anchor,
    .can_take = wf_cuda_can_take,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .recorded_free = cuda_recorded_free,
    .copy_peer = cuda_copy_peer,
};

weft_status wf_cuda_open(void *arg, weft_ctx *ctx, int number, const weft_device_opts *opts,
                         const weft_device_ops **ops, void **dev)
{
    struct wf_cuda *d = wf_alloc(ctx, sizeof *d);
    weft_status st;

    if (!d)
        return wf_err_nomem(ctx, sizeof *d, "GPU");
    d->ctx = ctx;
    pthread_mutex_init(&d->dnn_lock, NULL);
    pthread_mutex_init(&d->rtc_lock, NULL);
    d->api = arg ? *(const struct wf_cuda_api *)arg : wf_cuda_system;
    st = open_device(d, number);
    if (!st && opts->cache) {
        d->cache = wf_strdup(ctx, opts->cache);
        st = d->cache ? WEFT_OK : wf_err_nomem(ctx, 0, "GPU");
    }
    if (st) {
        cuda_close(d);
        return st;
    }
    *ops = &cuda_ops;
    *dev = d;
    return WEFT_OK;
}

#else

#include "kernels/cuda/driver.h"

weft_status wf_cuda_count(void *arg, weft_ctx *ctx, int *n)
{
    (void)arg, (void)ctx;
    *n = 0;
    return weft_device_error(WEFT_ENOSUP,
                             "this build of weft has no kernels for GPUs: build it where CUDA's "
                             "nvcc is installed (package cuda-toolkit)");
}

weft_status wf_cuda_open(void *arg, weft_ctx *ctx, int number, const weft_device_opts *opts,
                         const weft_device_ops **ops, void **dev)
{
    int n;

    (void)number, (void)opts, (void)ops, (void)dev;
    return wf_cuda_count(arg, ctx, &n);
}

#endif

/* One row for the table of drivers, in every build. */
const weft_device_driver wf_cuda_driver = {
    .size = sizeof wf_cuda_driver, .kind = "gpu", .count = wf_cuda_count, .open = wf_cuda_open};
