/* fake_cuda.c - see fake_cuda.h. */
#include "support/fake_cuda.h"

#ifdef WF_HAVE_CUDA

#include <stdlib.h>

#include "kernels/cuda/api.h"
#include "kernels/cuda/driver.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#include "kernels/cuda/dev/all.inl"

static int n_calls, fail_in, n_allocations;
static const char *missing;

void fake_cuda_fail(int n)
{
    fail_in = n;
}

int fake_cuda_calls(void)
{
    return n_calls;
}

void fake_cuda_missing(const char *name)
{
    missing = name;
}

int fake_cuda_allocations(void)
{
    return n_allocations;
}

static bool fails(void)
{
    n_calls++;
    return fail_in > 0 && --fail_in == 0;
}

/* ---- work: done at once, or recorded --------------------------------------------------------- */

enum what { LAUNCH, COPY, FILL, PRODUCT };

struct matrix { /* what cublasLtMatrixLayoutOpaque_t holds here */
    int32_t type, batch;
    uint64_t rows, cols;
    int64_t ld, step;
};

struct product { /* and cublasLtMatmulDescOpaque_t */
    int32_t compute, scale, trans_a, trans_b, epilogue;
    const void *bias;
};

struct work {
    struct work *next;
    enum what what;
    void (*kernel)(const void *);
    unsigned gx, gy, nt;
    void *to;
    const void *from, *other;
    size_t bytes;
    int byte;
    double alpha, beta;
    struct matrix a, b, d;
    struct product p;
    char args[4096];
};

struct stream {
    bool recording;
    struct work *first, **last;
};

static float half_at(const void *p, int32_t type, int64_t i)
{
    return type == CUDA_R_16F ? wf_f16_to_f32(((const uint16_t *)p)[i])
                              : wf_bf16_to_f32(((const uint16_t *)p)[i]);
}

static double read_at(const void *p, const struct matrix *m, int64_t i)
{
    return m->type == CUDA_R_64F   ? ((const double *)p)[i]
           : m->type == CUDA_R_32F ? ((const float *)p)[i]
                                   : half_at(p, m->type, i);
}

static void write_at(void *p, const struct matrix *m, int64_t i, double v)
{
    wf_set(p,
           m->type == CUDA_R_64F   ? WEFT_F64
           : m->type == CUDA_R_32F ? WEFT_F32
           : m->type == CUDA_R_16F ? WEFT_F16
                                   : WEFT_BF16,
           i, v);
}

/* Columns first: d[i + j ld] = op(a) op(b). */
static void multiply(const struct work *w)
{
    int64_t m = (int64_t)w->d.rows, n = (int64_t)w->d.cols;
    int64_t k = (int64_t)(w->p.trans_a ? w->a.rows : w->a.cols);
    int64_t batch = w->d.batch > 1 ? w->d.batch : 1;

    for (int64_t s = 0; s < batch; s++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                int64_t at = s * w->d.step + i + j * w->d.ld;
                double sum = 0;

                for (int64_t p = 0; p < k; p++)
                    sum +=
                        read_at(w->from, &w->a,
                                s * w->a.step +
                                    (w->p.trans_a ? p + i * w->a.ld : i + p * w->a.ld)) *
                        read_at(w->other, &w->b,
                                s * w->b.step + (w->p.trans_b ? j + p * w->b.ld : p + j * w->b.ld));
                sum *= w->alpha;
                if (w->p.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                    w->p.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
                    sum += read_at(w->p.bias, &w->d, i);
                if (w->p.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS && sum < 0)
                    sum = 0;
                write_at(w->to, &w->d, at, sum);
            }
}

static void perform(const struct work *w)
{
    switch (w->what) {
    case LAUNCH:
        gpu_at = (struct gpu_place){0, 0, w->gx, w->gy, (int)w->nt};
        for (gpu_at.by = 0; gpu_at.by < w->gy; gpu_at.by++)
            for (gpu_at.bx = 0; gpu_at.bx < w->gx; gpu_at.bx++)
                w->kernel(w->args);
        break;
    case COPY: memmove(w->to, w->from, w->bytes); break;
    case FILL: memset(w->to, w->byte, w->bytes); break;
    case PRODUCT: multiply(w); break;
    }
}

static CUresult enqueue(CUstream stream, const struct work *w)
{
    struct stream *s = (struct stream *)stream;

    if (!s->recording) {
        perform(w);
        return CUDA_SUCCESS;
    }
    *s->last = malloc(sizeof *w);
    **s->last = *w;
    (*s->last)->next = NULL;
    s->last = &(*s->last)->next;
    return CUDA_SUCCESS;
}

/* ---- libcuda --------------------------------------------------------------------------------- */

#define MAY_FAIL(error)   \
    do {                  \
        if (fails())      \
            return error; \
    } while (0)

static CUresult fake_cuInit(unsigned flags)
{
    (void)flags;
    MAY_FAIL(CUDA_ERROR_NO_DEVICE);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDriverGetVersion(int *v)
{
    MAY_FAIL(CUDA_ERROR_UNKNOWN);
    *v = 13000;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetCount(int *n)
{
    MAY_FAIL(CUDA_ERROR_UNKNOWN);
    *n = 2;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGet(CUdevice *d, int i)
{
    MAY_FAIL(CUDA_ERROR_INVALID_DEVICE);
    *d = i;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetName(char *name, int n, CUdevice d)
{
    (void)d;
    MAY_FAIL(CUDA_ERROR_UNKNOWN);
    strncpy(name, "emulated GPU", (size_t)n);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceTotalMem_v2(size_t *bytes, CUdevice d)
{
    (void)d;
    MAY_FAIL(CUDA_ERROR_UNKNOWN);
    *bytes = (size_t)1 << 34;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    (void)d;
    MAY_FAIL(CUDA_ERROR_UNKNOWN);
    *v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4 : 9;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    static char contexts[2];

    MAY_FAIL(CUDA_ERROR_OUT_OF_MEMORY);
    *c = (CUcontext)(void *)&contexts[d];
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
    (void)d;
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxSetCurrent(CUcontext c)
{
    (void)c;
    MAY_FAIL(CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    void *mem;

    MAY_FAIL(CUDA_ERROR_OUT_OF_MEMORY);
    mem = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(mem, 0xa5, bytes);
    n_allocations++;
    *p = (CUdeviceptr)(uintptr_t)mem;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemFree_v2(CUdeviceptr p)
{
    n_allocations--;
    free((void *)(uintptr_t)p);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    MAY_FAIL(CUDA_ERROR_OUT_OF_MEMORY);
    *p = malloc(bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemFreeHost(void *p)
{
    free(p);
    return CUDA_SUCCESS;
}

static CUresult copy(CUstream s, void *to, const void *from, size_t n)
{
    MAY_FAIL(CUDA_ERROR_INVALID_VALUE);
    return enqueue(s, &(struct work){.what = COPY, .to = to, .from = from, .bytes = n});
}

static CUresult fake_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return copy(s, (void *)(uintptr_t)to, from, n);
}

static CUresult fake_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    return copy(s, to, (const void *)(uintptr_t)from, n);
}

static CUresult fake_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    return copy(s, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, n);
}

static CUresult fake_cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t n, CUstream s)
{
    MAY_FAIL(CUDA_ERROR_INVALID_VALUE);
    return enqueue(
        s, &(struct work){.what = FILL, .to = (void *)(uintptr_t)to, .byte = byte, .bytes = n});
}

static CUresult fake_cuStreamCreate(CUstream *s, unsigned flags)
{
    (void)flags;
    MAY_FAIL(CUDA_ERROR_OUT_OF_MEMORY);
    *s = (CUstream)calloc(1, sizeof(struct stream));
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamDestroy_v2(CUstream s)
{
    free(s);
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamSynchronize(CUstream s)
{
    (void)s;
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    struct stream *s = (struct stream *)stream;

    (void)mode;
    MAY_FAIL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    s->recording = true;
    s->first = NULL;
    s->last = &s->first;
    return CUDA_SUCCESS;
}

static void free_works(struct work *w)
{
    while (w) {
        struct work *next = w->next;

        free(w);
        w = next;
    }
}

static CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph *g)
{
    struct stream *s = (struct stream *)stream;

    s->recording = false;
    if (fails()) {
        free_works(s->first);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *g = (CUgraph)s->first;
    return CUDA_SUCCESS;
}

/* The graph's works pass to the executable one. */
static CUgraph instantiated;

static CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g,
                                                 unsigned long long flags)
{
    (void)flags;
    MAY_FAIL(CUDA_ERROR_OUT_OF_MEMORY);
    *e = (CUgraphExec)g;
    instantiated = g;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphLaunch(CUgraphExec e, CUstream s)
{
    (void)s;
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    for (const struct work *w = (const struct work *)e; w; w = w->next)
        perform(w);
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphExecDestroy(CUgraphExec e)
{
    free_works((struct work *)e);
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphDestroy(CUgraph g)
{
    if (g != instantiated)
        free_works((struct work *)g);
    instantiated = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    MAY_FAIL(CUDA_ERROR_OUT_OF_MEMORY);
    *e = (CUevent)malloc(1);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventDestroy_v2(CUevent e)
{
    free(e);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventRecord(CUevent e, CUstream s)
{
    (void)e, (void)s;
    MAY_FAIL(CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventQuery(CUevent e)
{
    (void)e;
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventSynchronize(CUevent e)
{
    return fake_cuEventQuery(e);
}

static CUresult fake_cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    (void)s, (void)flags;
    return fake_cuEventQuery(e);
}

/* ---- kernels --------------------------------------------------------------------------------- */

struct kernel {
    const char *name;
    void (*run)(const void *);
    size_t bytes;
};

static const struct kernel kernels[] = {
#define K(name) {#name, name, name##_bytes},
#define K2(name) K(name##_f) K(name##_d)
#include "kernels/cuda/names.def"
#undef K
#undef K2
};

static CUresult fake_cuModuleLoadData(CUmodule *m, const void *image)
{
    MAY_FAIL(CUDA_ERROR_INVALID_IMAGE);
    memcpy(m, &image, sizeof image);
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleUnload(CUmodule m)
{
    (void)m;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    (void)m;
    MAY_FAIL(CUDA_ERROR_NOT_FOUND);
    for (int i = 0; i < WF_COUNT(kernels); i++)
        if (!strcmp(kernels[i].name, name)) {
            const struct kernel *k = &kernels[i];

            memcpy(f, &k, sizeof k);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                    CUstream s, void **params, void **extra)
{
    const struct kernel *k = (const struct kernel *)f;
    struct work w = {.what = LAUNCH, .kernel = k->run, .gx = gx, .gy = gy, .nt = bx};

    (void)by, (void)bz, (void)shared, (void)extra;
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    if (!gx || !gy || gy > 65535 || gz != 1 || !bx || bx > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(w.args, params[0], k->bytes);
    return enqueue(s, &w);
}

static CUresult fake_cuGetErrorString(CUresult r, const char **text)
{
    *text = r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "a fault of the test";
    return CUDA_SUCCESS;
}

/* ---- cuBLASLt -------------------------------------------------------------------------------- */

static cublasStatus_t fake_cublasLtCreate(cublasLtHandle_t *h)
{
    MAY_FAIL(CUBLAS_STATUS_NOT_INITIALIZED);
    *h = (cublasLtHandle_t)(void *)&n_calls;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtDestroy(cublasLtHandle_t h)
{
    (void)h;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t fake_cublasLtGetVersion(void)
{
    return 130100;
}

static const char *fake_cublasLtGetStatusString(cublasStatus_t r)
{
    (void)r;
    return "a fault of the test";
}

static cublasStatus_t fake_cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                             cudaDataType t, uint64_t rows,
                                                             uint64_t cols, int64_t ld)
{
    struct matrix m = {(int32_t)t, 1, rows, cols, ld, 0};

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    if (size < sizeof m)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(l, &m, sizeof m);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                            cublasLtMatrixLayoutAttribute_t a,
                                                            const void *v, size_t size)
{
    struct matrix *m = (struct matrix *)l;

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    memcpy(a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? (void *)&m->batch : (void *)&m->step, v, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t size,
                                                           cublasComputeType_t compute,
                                                           cudaDataType_t scale)
{
    struct product p = {.compute = (int32_t)compute,
                        .scale = (int32_t)scale,
                        .epilogue = CUBLASLT_EPILOGUE_DEFAULT};

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    if (size < sizeof p)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(d, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                                          cublasLtMatmulDescAttributes_t a,
                                                          const void *v, size_t size)
{
    struct product *p = (struct product *)d;

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&p->trans_a, v, size); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&p->trans_b, v, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&p->epilogue, v, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&p->bias, v, size); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p,
                                                                 size_t size)
{
    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    memset(p, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *v,
    size_t size)
{
    (void)p, (void)a, (void)v, (void)size;
    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p, int n,
    cublasLtMatmulHeuristicResult_t out[], int *found)
{
    (void)h, (void)d, (void)a, (void)b, (void)c, (void)y, (void)p, (void)n;
    MAY_FAIL(CUBLAS_STATUS_NOT_SUPPORTED);
    memset(out, 0, sizeof *out);
    out->workspaceSize = 1000;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmul(
    cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
    cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
    const void *C, cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t s)
{
    struct work w = {.what = PRODUCT, .from = A, .other = B, .to = D};

    (void)h, (void)beta, (void)C, (void)Cdesc, (void)algo;
    MAY_FAIL(CUBLAS_STATUS_EXECUTION_FAILED);
    if (workspace_bytes) /* whoever asked for it may write it */
        memset(workspace, 0x5a, workspace_bytes);
    memcpy(&w.p, desc, sizeof w.p);
    memcpy(&w.a, Adesc, sizeof w.a);
    memcpy(&w.b, Bdesc, sizeof w.b);
    memcpy(&w.d, Ddesc, sizeof w.d);
    w.alpha = w.p.scale == CUDA_R_64F ? *(const double *)alpha : *(const float *)alpha;
    enqueue((CUstream)s, &w);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the libraries --------------------------------------------------------------------------- */

static char libraries[2];

static void *fake_open(const char *name)
{
    if (missing && !strncmp(name, missing, strlen(missing)))
        return NULL;
    return strstr(name, "cublas") ? &libraries[1] : &libraries[0];
}

static void fake_close(void *lib)
{
    (void)lib;
}

static void *fake_find(void *lib, const char *name)
{
    void *fn = NULL;

    (void)lib;
    if (missing && !strcmp(name, missing))
        return NULL;
#define X(f)                         \
    if (!strcmp(name, #f)) {         \
        __typeof__(f) *p = fake_##f; \
        memcpy(&fn, &p, sizeof fn);  \
    }
    WF_CUDA_FNS(X)
    WF_CUBLASLT_FNS(X)
#undef X
    return fn;
}

const weft_device_driver *fake_cuda_driver(void)
{
    static const struct wf_cuda_api api = {
        .lib_open = fake_open, .lib_find = fake_find, .lib_close = fake_close};
    static weft_device_driver driver = {
        .size = sizeof driver, .kind = "gpu", .count = wf_cuda_count, .open = wf_cuda_open};

    memcpy(&driver.arg, &(const struct wf_cuda_api *){&api}, sizeof driver.arg);
    return &driver;
}

#else

void fake_cuda_fail(int n)
{
    (void)n;
}

int fake_cuda_calls(void)
{
    return 0;
}

void fake_cuda_missing(const char *name)
{
    (void)name;
}

int fake_cuda_allocations(void)
{
    return 0;
}

const weft_device_driver *fake_cuda_driver(void)
{
    return NULL;
}

#endif
