/* dnn.c - see dnn.h. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <pthread.h>
#include <stdio.h>

#include "kernels/cuda/dnn.h"

enum { ID_X = 1, ID_W, ID_Y, MAX_MADE = 160, MAX_CONFIGS = 48, MAX_NOTES = 16 };
static const size_t MAX_WORKSPACE = (size_t)1 << 30;

/* Used under d->dnn_lock: the handle has one stream at a time. */
struct wfd {
    cudnnHandle_t handle;
    struct wfc_dnn_plan *first;
};

/* ---- descriptors ----------------------------------------------------------------------------- */

/* What is being made; the first error stays, and all calls after it do nothing. */
struct build {
    const struct wf_cuda_api *api;
    cudnnHandle_t handle;
    cudnnStatus_t r;
    int n;
    cudnnBackendDescriptor_t made[MAX_MADE];
};

static cudnnBackendDescriptor_t make(struct build *b, enum dnn_kind kind)
{
    cudnnBackendDescriptor_t d = NULL;

    if (b->r == DNN_OK && b->n == MAX_MADE)
        b->r = -1;
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendCreateDescriptor(kind, &d);
    if (b->r == DNN_OK)
        b->made[b->n++] = d;
    return d;
}

static void set(struct build *b, cudnnBackendDescriptor_t d, enum dnn_attribute name,
                enum dnn_type type, int64_t n, const void *values)
{
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendSetAttribute(d, name, type, n, values);
}

static void set_int(struct build *b, cudnnBackendDescriptor_t d, enum dnn_attribute name, int64_t v)
{
    set(b, d, name, DNN_T_INT64, 1, &v);
}

static void set_enum(struct build *b, cudnnBackendDescriptor_t d, enum dnn_attribute name,
                     enum dnn_type type, int v)
{
    set(b, d, name, type, 1, &v);
}

static void set_part(struct build *b, cudnnBackendDescriptor_t d, enum dnn_attribute name,
                     cudnnBackendDescriptor_t part)
{
    set(b, d, name, DNN_T_DESCRIPTOR, 1, &part);
}

static void finish(struct build *b, cudnnBackendDescriptor_t d)
{
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendFinalize(d);
}

/* Destroys what was made after the first n. */
static void clear(struct build *b, int n)
{
    while (b->n > n)
        b->api->cudnnBackendDestroyDescriptor(b->made[--b->n]);
}

static int data_type(int dtype)
{
    return dtype == (int)WEFT_F16 ? DNN_F16 : dtype == (int)WEFT_BF16 ? DNN_BF16 : DNN_F32;
}

/* A tensor [rows][axes...][channels] in memory, in cuDNN's order of axes: rows, channels, axes. */
static cudnnBackendDescriptor_t tensor(struct build *b, int64_t id, const struct wfc_dnn_conv *c,
                                       int64_t rows, const int64_t *axes, int64_t channels)
{
    int64_t dim[5] = {rows, channels}, stride[5] = {0, 1}, step = channels;
    cudnnBackendDescriptor_t t = make(b, DNN_TENSOR);

    for (int a = c->n_axes - 1; a >= 0; a--) {
        dim[2 + a] = axes[3 - c->n_axes + a];
        stride[2 + a] = step;
        step *= dim[2 + a];
    }
    stride[0] = step;
    set_int(b, t, DNN_A_TENSOR_ID, id);
    set_enum(b, t, DNN_A_TENSOR_TYPE, DNN_T_DATA_TYPE, data_type(c->dtype));
    set(b, t, DNN_A_TENSOR_DIMS, DNN_T_INT64, 2 + c->n_axes, dim);
    set(b, t, DNN_A_TENSOR_STRIDES, DNN_T_INT64, 2 + c->n_axes, stride);
    set_int(b, t, DNN_A_TENSOR_ALIGNMENT, 16);
    finish(b, t);
    return t;
}

static cudnnBackendDescriptor_t geometry(struct build *b, const struct wfc_dnn_conv *c)
{
    cudnnBackendDescriptor_t g = make(b, DNN_CONVOLUTION);
    int skip = 3 - c->n_axes;

    set_enum(b, g, DNN_A_CONV_COMPUTE, DNN_T_DATA_TYPE, DNN_F32);
    set_enum(b, g, DNN_A_CONV_MODE, DNN_T_CONV_MODE, DNN_CROSS_CORRELATION);
    set_int(b, g, DNN_A_CONV_SPATIAL, c->n_axes);
    set(b, g, DNN_A_CONV_STRIDES, DNN_T_INT64, c->n_axes, c->stride + skip);
    set(b, g, DNN_A_CONV_DILATIONS, DNN_T_INT64, c->n_axes, c->dilation + skip);
    set(b, g, DNN_A_CONV_PRE_PADS, DNN_T_INT64, c->n_axes, c->pad + skip);
    set(b, g, DNN_A_CONV_POST_PADS, DNN_T_INT64, c->n_axes, c->pad + skip);
    finish(b, g);
    return g;
}

static cudnnBackendDescriptor_t operation(struct build *b, const struct wfc_dnn_conv *c)
{
    static const struct {
        enum dnn_kind kind;
        enum dnn_attribute x, w, y, conv, alpha, beta;
    } of[] = {{DNN_CONV_FORWARD, DNN_A_FORWARD_X, DNN_A_FORWARD_W, DNN_A_FORWARD_Y,
               DNN_A_FORWARD_CONV, DNN_A_FORWARD_ALPHA, DNN_A_FORWARD_BETA},
              {DNN_CONV_DATA, DNN_A_DATA_DX, DNN_A_DATA_W, DNN_A_DATA_DY, DNN_A_DATA_CONV,
               DNN_A_DATA_ALPHA, DNN_A_DATA_BETA},
              {DNN_CONV_FILTER, DNN_A_FILTER_X, DNN_A_FILTER_DW, DNN_A_FILTER_DY, DNN_A_FILTER_CONV,
               DNN_A_FILTER_ALPHA, DNN_A_FILTER_BETA}};
    int k = c->what;
    float one = 1, zero = 0;
    cudnnBackendDescriptor_t x = tensor(b, ID_X, c, c->batch, c->in, c->c_in),
                             w = tensor(b, ID_W, c, c->c_out, c->k, c->c_in / c->groups),
                             y = tensor(b, ID_Y, c, c->batch, c->out, c->c_out), g = geometry(b, c),
                             op = make(b, of[k].kind);

    set_part(b, op, of[k].conv, g);
    set_part(b, op, of[k].x, x);
    set_part(b, op, of[k].w, w);
    set_part(b, op, of[k].y, y);
    set(b, op, of[k].alpha, DNN_T_FLOAT, 1, &one);
    set(b, op, of[k].beta, DNN_T_FLOAT, 1, &zero);
    finish(b, op);
    return op;
}

/* ---- engines --------------------------------------------------------------------------------- */

/* Whether the engine repeats its bits and computes in the precision asked for; its number. */
static bool suits(struct build *b, const struct wfc_dnn_conv *c, cudnnBackendDescriptor_t config,
                  int64_t *number)
{
    bool strict = c->dtype == (int)WEFT_F32 && !c->tf32;
    cudnnBackendDescriptor_t engine = make(b, DNN_ENGINE);
    int notes[MAX_NOTES];
    int64_t n = 0, n_notes = 0;

    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendGetAttribute(config, DNN_A_CONFIG_ENGINE, DNN_T_DESCRIPTOR, 1,
                                                &n, &engine);
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendGetAttribute(engine, DNN_A_ENGINE_INDEX, DNN_T_INT64, 1, &n,
                                                number);
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendGetAttribute(engine, DNN_A_ENGINE_NOTES, DNN_T_NOTE, MAX_NOTES,
                                                &n_notes, notes);
    for (int64_t i = 0; i < n_notes && b->r == DNN_OK; i++)
        switch (notes[i]) {
        case DNN_NOTE_NOT_REPEATABLE:
        case DNN_NOTE_REDUCED_SUMS:
        case DNN_NOTE_FFT:
        case DNN_NOTE_WINOGRAD_4:
        case DNN_NOTE_WINOGRAD_6:
        case DNN_NOTE_WINOGRAD_13: return false;
        case DNN_NOTE_TENSOR_CORE:
        case DNN_NOTE_DOWN_CONVERT:
            if (strict)
                return false;
            break;
        default: break;
        }
    return b->r == DNN_OK;
}

/* The plan of one configuration; NULL: the engine refuses it. */
static cudnnBackendDescriptor_t plan_of(struct build *b, cudnnBackendDescriptor_t config,
                                        size_t *workspace)
{
    cudnnBackendDescriptor_t p = make(b, DNN_PLAN);
    int64_t bytes = 0, n = 0;

    set(b, p, DNN_A_PLAN_HANDLE, DNN_T_HANDLE, 1, &b->handle);
    set_part(b, p, DNN_A_PLAN_CONFIG, config);
    finish(b, p);
    if (b->r == DNN_OK)
        b->r =
            b->api->cudnnBackendGetAttribute(p, DNN_A_PLAN_WORKSPACE, DNN_T_INT64, 1, &n, &bytes);
    if (b->r != DNN_OK || bytes < 0 || (size_t)bytes > MAX_WORKSPACE) {
        b->r = DNN_OK;
        return NULL;
    }
    *workspace = (size_t)bytes;
    return p;
}

/* The heuristic's list, best first. */
static int64_t list(struct build *b, cudnnBackendDescriptor_t graph, enum dnn_heuristic mode,
                    cudnnBackendDescriptor_t *config)
{
    cudnnBackendDescriptor_t h = make(b, DNN_HEURISTIC);
    int64_t n = 0;

    set_part(b, h, DNN_A_HEURISTIC_GRAPH, graph);
    set_enum(b, h, DNN_A_HEURISTIC_MODE, DNN_T_HEURISTIC_MODE, mode);
    finish(b, h);
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendGetAttribute(h, DNN_A_HEURISTIC_RESULTS, DNN_T_DESCRIPTOR, 0, &n,
                                                NULL);
    n = wf_min_i64(n, MAX_CONFIGS);
    for (int64_t i = 0; i < n; i++)
        config[i] = make(b, DNN_ENGINE_CONFIG);
    if (b->r == DNN_OK && n)
        b->r = b->api->cudnnBackendGetAttribute(h, DNN_A_HEURISTIC_RESULTS, DNN_T_DESCRIPTOR, n, &n,
                                                config);
    return b->r == DNN_OK ? n : 0;
}

static void choose(struct build *b, cudnnBackendDescriptor_t graph, struct wfc_dnn_plan *p)
{
    static const enum dnn_heuristic modes[] = {DNN_MODE_A, DNN_MODE_FALLBACK};
    cudnnBackendDescriptor_t config[MAX_CONFIGS];

    for (int m = 0; m < WF_COUNT(modes) && !p->plan && b->r == DNN_OK; m++) {
        int before = b->n;
        int64_t n = list(b, graph, modes[m], config);

        for (int64_t i = 0; i < n && !p->plan; i++) {
            int64_t number = -1;

            if (!suits(b, &p->conv, config[i], &number)) {
                b->r = DNN_OK;
                continue;
            }
            p->plan = plan_of(b, config[i], &p->workspace);
            if (p->plan)
                snprintf(p->name, sizeof p->name, "cudnn-e%lld#%lld/%lld%s", (long long)number,
                         (long long)i + 1, (long long)n, m ? "f" : "");
        }
        if (!p->plan) { /* room for the next list */
            clear(b, before);
            b->r = DNN_OK;
        }
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The parts of a plan live as long as the plan. */
static void build_plan(struct wf_cuda *d, struct wfc_dnn_plan *p)
{
    struct build b = {.api = &d->api, .handle = d->dnn->handle};
    cudnnBackendDescriptor_t op = operation(&b, &p->conv), graph = make(&b, DNN_GRAPH);

    set(&b, graph, DNN_A_GRAPH_HANDLE, DNN_T_HANDLE, 1, &b.handle);
    set_part(&b, graph, DNN_A_GRAPH_OPS, op);
    finish(&b, graph);
    if (b.r == DNN_OK)
        choose(&b, graph, p);
    if (p->plan)
        p->held = wf_alloc(d->ctx, sizeof *p->held * (size_t)b.n);
    if (!p->held) {
        clear(&b, 0);
        p->plan = NULL;
        return;
    }
    memcpy(p->held, b.made, sizeof *p->held * (size_t)b.n);
    p->n_held = b.n;
}

static void free_plan(struct wf_cuda *d, struct wfc_dnn_plan *p)
{
    while (p->n_held > 0)
        d->api.cudnnBackendDestroyDescriptor(p->held[--p->n_held]);
    wf_free(d->ctx, p->held);
    wf_free(d->ctx, p);
}

/* Opens cuDNN when it is first needed: that takes time and memory. */
static weft_status open_dnn(struct wf_cuda *d)
{
    struct wfd *n;

    if (d->dnn)
        return d->dnn->handle ? WEFT_OK : WEFT_ENOSUP;
    n = wf_alloc(d->ctx, sizeof *n);
    if (!n)
        return wf_err_nomem(d->ctx, sizeof *n, "cuDNN");
    if (d->api.cuCtxSetCurrent(d->context) || d->api.cudnnCreate(&n->handle) != DNN_OK)
        n->handle = NULL;
    d->dnn = n;
    return n->handle ? WEFT_OK : WEFT_ENOSUP;
}

static struct wfc_dnn_plan *known(const struct wfd *n, const struct wfc_dnn_conv *c)
{
    struct wfc_dnn_plan *p = n->first;

    while (p && memcmp(&p->conv, c, sizeof *c))
        p = p->next;
    return p;
}

weft_status wfc_dnn_find(struct wf_cuda *d, const struct wfc_dnn_conv *c,
                         const struct wfc_dnn_plan **out)
{
    struct wfc_dnn_plan *p;
    weft_status st = WEFT_OK;

    if (!d->api.have_dnn)
        return WEFT_ENOSUP;
    pthread_mutex_lock(&d->dnn_lock);
    st = open_dnn(d);
    p = st ? NULL : known(d->dnn, c);
    if (!st && !p) {
        p = wf_alloc(d->ctx, sizeof *p);
        if (p) {
            p->conv = *c;
            build_plan(d, p);
            p->next = d->dnn->first;
            d->dnn->first = p;
        } else {
            st = wf_err_nomem(d->ctx, sizeof *p, "cuDNN");
        }
    }
    pthread_mutex_unlock(&d->dnn_lock);
    if (st)
        return st;
    *out = p;
    return p->plan ? WEFT_OK : WEFT_ENOSUP;
}

weft_status wfc_dnn_run(const struct wf_call *c, const struct wfc_dnn_plan *p, const void *x,
                        const void *filter, const void *y, void *workspace)
{
    struct wf_cuda *d = wfc_dev(c);
    struct build b = {.api = &d->api, .handle = d->dnn->handle};
    const int64_t id[3] = {ID_X, ID_W, ID_Y};
    const void *at[3] = {x, filter, y};
    cudnnBackendDescriptor_t pack;

    if (d->api.cuCtxSetCurrent(d->context))
        return wf_err(WEFT_EIO, "%s: cuCtxSetCurrent failed", c->op->name);
    wfc_other_work(d);
    pack = make(&b, DNN_PACK);
    set(&b, pack, DNN_A_PACK_IDS, DNN_T_INT64, 3, id);
    set(&b, pack, DNN_A_PACK_POINTERS, DNN_T_POINTER, 3, at);
    set(&b, pack, DNN_A_PACK_WORKSPACE, DNN_T_POINTER, 1, &workspace);
    finish(&b, pack);
    pthread_mutex_lock(&d->dnn_lock);
    if (b.r == DNN_OK)
        b.r = d->api.cudnnSetStream(b.handle, c->stream);
    if (b.r == DNN_OK)
        b.r = d->api.cudnnBackendExecute(b.handle, p->plan, pack);
    pthread_mutex_unlock(&d->dnn_lock);
    clear(&b, 0);
    return b.r == DNN_OK ? WEFT_OK
                         : wf_err(WEFT_EIO, "%s: %s: %s", c->op->name, p->name,
                                  d->api.cudnnGetErrorString(b.r));
}

void wfc_dnn_free(struct wf_cuda *d)
{
    struct wfd *n = d->dnn;

    if (!n)
        return;
    while (n->first) {
        struct wfc_dnn_plan *p = n->first;

        n->first = p->next;
        free_plan(d, p);
    }
    if (n->handle)
        d->api.cudnnDestroy(n->handle);
    wf_free(d->ctx, n);
    d->dnn = NULL;
}

#endif
