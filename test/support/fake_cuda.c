/* fake_cuda.c - see fake_cuda.h. */
#define _GNU_SOURCE
#include "support/fake_cuda.h"

#ifdef WF_HAVE_CUDA

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cuda/api.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/driver.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#include "kernels/cuda/dev/all.inl"

static int n_calls, fail_in, n_allocations, n_descriptors;
static const char *missing;
static bool compiles, keeps, plain_products, no_overlap;
static int n_compiled, n_overlapped, n_launches;
static void (*watcher)(void *, const char *);
static void *watcher_arg;

void fake_cuda_watch(void (*seen)(void *arg, const char *work), void *arg)
{
    watcher = seen;
    watcher_arg = arg;
}

void fake_cuda_compile(bool on)
{
    compiles = on;
}

int fake_cuda_compiled(void)
{
    return n_compiled;
}

int fake_cuda_overlapped(void)
{
    return n_overlapped;
}

int fake_cuda_launches(void)
{
    return n_launches;
}

void fake_cuda_keep(bool on)
{
    keeps = on;
}

void fake_cuda_plain_products(bool on)
{
    plain_products = on;
}

void fake_cuda_no_overlap(bool on)
{
    no_overlap = on;
}

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
    return n_allocations + n_descriptors;
}

static bool fails(void)
{
    n_calls++;
    return fail_in > 0 && --fail_in == 0;
}

/* ---- work: done at once, or recorded --------------------------------------------------------- */

enum what { LAUNCH, COPY, FILL, PRODUCT, CONVOLUTION, GRAPH };

struct matrix { /* what cublasLtMatrixLayoutOpaque_t holds here */
    int32_t type, batch;
    uint64_t rows, cols;
    int64_t ld, step;
};

struct product { /* and cublasLtMatmulDescOpaque_t */
    int32_t compute, scale, trans_a, trans_b, epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
};

struct work {
    struct work *next;
    enum what what;
    const char *name;
    void (*kernel)(const void *);
    unsigned gx, gy, nt;
    bool whole; /* a generated kernel: one call does the work of all blocks */
    void *to;
    const void *from, *other;
    size_t bytes;
    int byte;
    double alpha, beta;
    struct matrix a, b, d;
    struct product p;
    _Alignas(16) char args[4096];
};

struct stream {
    bool recording, after_kernel; /* its last work is a kernel */
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

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* What the epilogue makes of element i, j. */
static double finish_sum(const struct work *w, int64_t i, int64_t j, double sum)
{
    switch (w->p.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS: return sum + read_at(w->p.bias, &w->d, i);
    case CUBLASLT_EPILOGUE_RELU_BIAS: return fmax(sum + read_at(w->p.bias, &w->d, i), 0);
    case CUBLASLT_EPILOGUE_GELU_BIAS: return gelu(sum + read_at(w->p.bias, &w->d, i));
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        sum += read_at(w->p.bias, &w->d, i);
        write_at(w->p.aux, &w->d, i + j * w->p.aux_ld, sum);
        return gelu(sum);
    case CUBLASLT_EPILOGUE_DGELU:
        return sum * gelu_slope(read_at(w->p.aux, &w->d, i + j * w->p.aux_ld));
    default: return sum;
    }
}

/* Columns first: d[i + j ld] = op(a) op(b). */
static void multiply(const struct work *w)
{
    int64_t m = (int64_t)w->d.rows, n = (int64_t)w->d.cols;
    int64_t k = (int64_t)(w->p.trans_a ? w->a.rows : w->a.cols);
    int64_t batch = w->d.batch > 1 ? w->d.batch : 1;

    /* the gradient of a bias: a's sums along k, a result of the rows of d */
    for (int64_t i = 0; i < m && w->p.epilogue == CUBLASLT_EPILOGUE_BGRADA; i++) {
        double sum = 0;

        for (int64_t p = 0; p < k; p++)
            sum += read_at(w->from, &w->a, w->p.trans_a ? p + i * w->a.ld : i + p * w->a.ld);
        write_at((void *)(uintptr_t)w->p.bias, &w->d, i, sum);
    }
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
                write_at(w->to, &w->d, at, finish_sum(w, i, j, sum));
            }
}

struct dnn_conv;
static void convolve(const struct dnn_conv *c); /* fake_cudnn.inl */
struct dnn_graph;
static void compute_graph(const struct dnn_graph *g); /* fake_cudnn_graph.inl */

static void perform(const struct work *w)
{
    static const char *const names[] = {NULL, "copy", "fill", "product", "convolution", "graph"};

    if (watcher)
        watcher(watcher_arg, w->what == LAUNCH ? w->name : names[w->what]);
    switch (w->what) {
    case LAUNCH:
        if (w->whole) {
            w->kernel(w->args);
            break;
        }
        gpu_at = (struct gpu_place){0, 0, w->gx, w->gy, (int)w->nt};
        for (gpu_at.by = 0; gpu_at.by < w->gy; gpu_at.by++)
            for (gpu_at.bx = 0; gpu_at.bx < w->gx; gpu_at.bx++)
                w->kernel(w->args);
        break;
    case COPY: memmove(w->to, w->from, w->bytes); break;
    case FILL: memset(w->to, w->byte, w->bytes); break;
    case PRODUCT: multiply(w); break;
    case CONVOLUTION: convolve((const struct dnn_conv *)(const void *)w->args); break;
    case GRAPH: compute_graph((const struct dnn_graph *)(const void *)w->args); break;
    }
}

static CUresult enqueue(CUstream stream, const struct work *w)
{
    struct stream *s = (struct stream *)stream;

    s->after_kernel = w->what == LAUNCH;
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

static const char *model = "emulated GPU";

void fake_cuda_model(const char *name)
{
    model = name ? name : "emulated GPU";
}

static CUresult fake_cuDeviceGetName(char *name, int n, CUdevice d)
{
    (void)d;
    MAY_FAIL(CUDA_ERROR_UNKNOWN);
    strncpy(name, model, (size_t)n);
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

static CUresult fake_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext c, CUdeviceptr from, CUcontext o,
                                       size_t n, CUstream s)
{
    if (!c || !o)
        return CUDA_ERROR_INVALID_CONTEXT;
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
    s->after_kernel = false;
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
    n_launches++;
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
    void *lib; /* of generated ones: what dlopen returned */
};

static const struct kernel kernels[] = {
#define K(name) {#name, name, name##_bytes, NULL},
#define K2(name) K(name##_f) K(name##_d)
#include "kernels/cuda/names.def"
#undef K
#undef K2
};

static CUmodule own_kernels;

/* As bin.c has it: a line for each kernel that nvcc compiled. */
extern const char wf_cuda_kernel_names[];

bool fake_cuda_has_kernel(const char *name)
{
    size_t n = strlen(name);

    for (const char *at = wf_cuda_kernel_names; (at = strchr(at, '\n')) != NULL;)
        if (!strncmp(++at, name, n) && at[n] == '\n')
            return true;
    return false;
}

/* What "NVRTC" makes: the path of a shared library. */
static const char made_by[] = "generated:";

static CUresult load_generated(CUmodule *m, const char *path)
{
    struct kernel *k = calloc(1, sizeof *k);
    void *fn;

    k->name = "generated";
    k->bytes = sizeof(struct wfc_made_args);
    k->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!keeps)
        unlink(path);
    fn = k->lib ? dlsym(k->lib, "wf_program") : NULL;
    if (!fn) {
        free(k);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    memcpy(&k->run, &fn, sizeof fn);
    memcpy(m, &k, sizeof k);
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleLoadData(CUmodule *m, const void *image)
{
    MAY_FAIL(CUDA_ERROR_INVALID_IMAGE);
    if (!memcmp(image, made_by, sizeof made_by - 1))
        return load_generated(m, (const char *)image + sizeof made_by - 1);
    memcpy(m, &image, sizeof image);
    own_kernels = *m;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleUnload(CUmodule m)
{
    struct kernel *k = (struct kernel *)m;

    if (m != own_kernels) {
        dlclose(k->lib);
        free(k);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    MAY_FAIL(CUDA_ERROR_NOT_FOUND);
    if (m != own_kernels) {
        memcpy(f, &m, sizeof m);
        return CUDA_SUCCESS;
    }
    for (int i = 0; i < WF_COUNT(kernels) && fake_cuda_has_kernel(name); i++)
        if (!strcmp(kernels[i].name, name)) {
            const struct kernel *k = &kernels[i];

            memcpy(f, &k, sizeof k);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

/* Of one kernel; the others have 48 KB. */
static const void *big_kernel;
static unsigned big_bytes;

static CUresult fake_cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    MAY_FAIL(CUDA_ERROR_INVALID_VALUE);
    if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v < 0 || v > 227 * 1024)
        return CUDA_ERROR_INVALID_VALUE;
    big_kernel = f;
    big_bytes = (unsigned)v;
    return CUDA_SUCCESS;
}

static CUresult fake_cuLaunchKernelEx(const CUlaunchConfig *l, CUfunction f, void **params,
                                      void **extra)
{
    const struct kernel *k = (const struct kernel *)f;
    struct stream *s = (struct stream *)l->hStream;
    struct work w = {.what = LAUNCH,
                     .name = k->name,
                     .kernel = k->run,
                     .whole = k->lib != NULL,
                     .gx = l->gridDimX,
                     .gy = l->gridDimY,
                     .nt = l->blockDimX};

    (void)extra;
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    if (!w.gx || !w.gy || w.gy > 65535 || l->gridDimZ != 1 || !w.nt || w.nt > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (l->sharedMemBytes > (f == big_kernel ? big_bytes : 48 * 1024))
        return CUDA_ERROR_INVALID_VALUE;
    /* only after a kernel, which the next one waits for inside */
    if (l->numAttrs > 0 && !s->after_kernel)
        return CUDA_ERROR_INVALID_VALUE;
    if (l->numAttrs > 0 && no_overlap && s->recording)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    n_overlapped += l->numAttrs > 0;
    memcpy(w.args, params[0], k->bytes);
    return enqueue(l->hStream, &w);
}

static CUresult fake_cuGetErrorString(CUresult r, const char **text)
{
    *text = r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "a fault of the test";
    return CUDA_SUCCESS;
}

/* ---- cuBLASLt -------------------------------------------------------------------------------- */

#include "support/fake_cublaslt.inl"

/* ---- cuDNN ----------------------------------------------------------------------------------- */

#include "support/fake_cudnn.inl"

/* ---- NVRTC: the host's compiler -------------------------------------------------------------- */

struct fake_program {
    char *source;
    char path[64];
};

static nvrtcResult fake_nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

static nvrtcResult fake_nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name,
                                           int n, const char *const *headers,
                                           const char *const *names)
{
    struct fake_program *f = calloc(1, sizeof *f);

    (void)name, (void)n, (void)headers, (void)names;
    f->source = strdup(source);
    *p = (nvrtcProgram)f;
    return NVRTC_SUCCESS;
}

/* Where the real NVRTC is installed, which needs no GPU: it must accept the source, too. */
static bool real_accepts(const char *source, int n, const char *const *options)
{
    static const char *const names[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so"};
    __typeof__(nvrtcCreateProgram) *create;
    __typeof__(nvrtcCompileProgram) *compile;
    __typeof__(nvrtcGetProgramLog) *get_log;
    __typeof__(nvrtcDestroyProgram) *destroy;
    static char log[65536];
    void *lib = NULL, *fn[4];
    nvrtcProgram p = NULL;
    bool good;

    for (int i = 0; i < WF_COUNT(names) && !lib; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return true;
    fn[0] = dlsym(lib, "nvrtcCreateProgram");
    fn[1] = dlsym(lib, "nvrtcCompileProgram");
    fn[2] = dlsym(lib, "nvrtcGetProgramLog");
    fn[3] = dlsym(lib, "nvrtcDestroyProgram");
    memcpy(&create, &fn[0], sizeof create);
    memcpy(&compile, &fn[1], sizeof compile);
    memcpy(&get_log, &fn[2], sizeof get_log);
    memcpy(&destroy, &fn[3], sizeof destroy);
    good = !create(&p, source, "program.cu", 0, NULL, NULL) && !compile(p, n, options);
    if (!good && !get_log(p, log))
        fprintf(stderr, "NVRTC: %s\n", log);
    destroy(&p);
    return good;
}

static nvrtcResult fake_nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
    struct fake_program *f = (struct fake_program *)p;
    char command[256];
    FILE *to;

    MAY_FAIL(NVRTC_ERROR_COMPILATION);
    if (n < 1 || strncmp(options[0], "--gpu-architecture=sm_", 22) != 0)
        return NVRTC_ERROR_INVALID_OPTION;
    if (!real_accepts(f->source, 2, (const char *[]){"--gpu-architecture=sm_90", "--fmad=false"}))
        return NVRTC_ERROR_COMPILATION;
    snprintf(f->path, sizeof f->path, "./generated-%d-%d.so", (int)getpid(), n_compiled++);
    snprintf(command, sizeof command,
             "cc -x c -std=c11 -O1 -ffp-contract=off -fPIC -shared -w -o %s - -lm", f->path);
    to = popen(command, "w");
    if (!to)
        return NVRTC_ERROR_COMPILATION;
    fputs(f->source, to);
    return pclose(to) ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}

static nvrtcResult fake_nvrtcGetCUBINSize(nvrtcProgram p, size_t *n)
{
    MAY_FAIL(NVRTC_ERROR_INTERNAL_ERROR);
    *n = sizeof made_by + strlen(((struct fake_program *)p)->path);
    return NVRTC_SUCCESS;
}

static nvrtcResult fake_nvrtcGetCUBIN(nvrtcProgram p, char *to)
{
    MAY_FAIL(NVRTC_ERROR_INTERNAL_ERROR);
    memcpy(to, made_by, sizeof made_by);
    strcpy(to + sizeof made_by - 1, ((struct fake_program *)p)->path);
    return NVRTC_SUCCESS;
}

static nvrtcResult fake_nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n)
{
    (void)p;
    *n = 1;
    return NVRTC_SUCCESS;
}

static nvrtcResult fake_nvrtcGetProgramLog(nvrtcProgram p, char *to)
{
    (void)p;
    *to = 0;
    return NVRTC_SUCCESS;
}

static nvrtcResult fake_nvrtcDestroyProgram(nvrtcProgram *p)
{
    struct fake_program *f = (struct fake_program *)*p;

    free(f->source);
    free(f);
    return NVRTC_SUCCESS;
}

/* ---- the libraries --------------------------------------------------------------------------- */

static char libraries[4];

static void *fake_open(const char *name)
{
    if (missing && !strncmp(name, missing, strlen(missing)))
        return NULL;
    if (strstr(name, "nvrtc"))
        return compiles ? &libraries[2] : NULL;
    return strstr(name, "cudnn")    ? &libraries[3]
           : strstr(name, "cublas") ? &libraries[1]
                                    : &libraries[0];
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
    WF_CUDNN_FNS(X)
    WF_NVRTC_FNS(X)
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

void fake_cuda_watch(void (*seen)(void *arg, const char *work), void *arg)
{
    (void)seen, (void)arg;
}

void fake_cuda_compile(bool on)
{
    (void)on;
}

int fake_cuda_compiled(void)
{
    return 0;
}

int fake_cuda_overlapped(void)
{
    return 0;
}

int fake_cuda_launches(void)
{
    return 0;
}

void fake_cuda_keep(bool on)
{
    (void)on;
}

void fake_cuda_plain_products(bool on)
{
    (void)on;
}

void fake_cuda_no_overlap(bool on)
{
    (void)on;
}

void fake_cuda_model(const char *name)
{
    (void)name;
}

bool fake_cuda_has_kernel(const char *name)
{
    (void)name;
    return false;
}

void fake_cuda_engines(int first)
{
    (void)first;
}

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
