/* dnn.c - see dnn.h. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <pthread.h>
#include <stdio.h>

#include "kernels/cuda/dnn_build.h"

enum { MAX_CONFIGS = 48, MAX_NOTES = 16 };
static const size_t MAX_WORKSPACE = (size_t)1 << 30;

/* Used under d->dnn_lock: the handle has one stream at a time. */
struct wfd {
    cudnnHandle_t handle;
    struct wfc_dnn_plan *first;
};

/* ---- descriptors ----------------------------------------------------------------------------- */

cudnnBackendDescriptor_t wfc_cudnn_make(struct wfc_cudnn_build *b, enum dnn_kind kind)
{
    cudnnBackendDescriptor_t d = NULL;

    if (b->r == DNN_OK && b->n == WFD_MAX_MADE)
        b->r = -1;
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendCreateDescriptor(kind, &d);
    if (b->r == DNN_OK)
        b->made[b->n++] = d;
    return d;
}

void wfc_cudnn_set(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d, enum dnn_attribute name,
                   enum dnn_type type, int64_t n, const void *values)
{
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendSetAttribute(d, name, type, n, values);
}

void wfc_cudnn_set_int(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d,
                       enum dnn_attribute name, int64_t v)
{
    wfc_cudnn_set(b, d, name, DNN_T_INT64, 1, &v);
}

void wfc_cudnn_set_enum(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d,
                        enum dnn_attribute name, enum dnn_type type, int v)
{
    wfc_cudnn_set(b, d, name, type, 1, &v);
}

void wfc_cudnn_set_part(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d,
                        enum dnn_attribute name, cudnnBackendDescriptor_t part)
{
    wfc_cudnn_set(b, d, name, DNN_T_DESCRIPTOR, 1, &part);
}

void wfc_cudnn_finish(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t d)
{
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendFinalize(d);
}

void wfc_cudnn_add(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t op)
{
    wfc_cudnn_finish(b, op);
    if (b->r == DNN_OK && b->n_ops == WFD_MAX_OPS)
        b->r = -1;
    if (b->r == DNN_OK)
        b->ops[b->n_ops++] = op;
}

enum dnn_data wfc_cudnn_data_type(int dtype)
{
    return dtype == (int)WEFT_F16 ? DNN_F16 : dtype == (int)WEFT_BF16 ? DNN_BF16 : DNN_F32;
}

cudnnBackendDescriptor_t wfc_cudnn_tensor(struct wfc_cudnn_build *b, int64_t id, enum dnn_data type,
                                          int rank, const int64_t *dim, const int64_t *stride,
                                          enum wfc_cudnn_where where)
{
    cudnnBackendDescriptor_t t = wfc_cudnn_make(b, DNN_TENSOR);
    bool yes = true;

    wfc_cudnn_set_int(b, t, DNN_A_TENSOR_ID, id);
    wfc_cudnn_set_enum(b, t, DNN_A_TENSOR_TYPE, DNN_T_DATA_TYPE, (int)type);
    wfc_cudnn_set(b, t, DNN_A_TENSOR_DIMS, DNN_T_INT64, rank, dim);
    wfc_cudnn_set(b, t, DNN_A_TENSOR_STRIDES, DNN_T_INT64, rank, stride);
    wfc_cudnn_set_int(b, t, DNN_A_TENSOR_ALIGNMENT, 16);
    if (where != WFD_MEMORY)
        wfc_cudnn_set(b, t, where == WFD_VIRTUAL ? DNN_A_TENSOR_VIRTUAL : DNN_A_TENSOR_BY_VALUE,
                      DNN_T_BOOL, 1, &yes);
    wfc_cudnn_finish(b, t);
    return t;
}

/* Destroys what was made after the first n. */
static void clear(struct wfc_cudnn_build *b, int n)
{
    while (b->n > n)
        b->api->cudnnBackendDestroyDescriptor(b->made[--b->n]);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* Whether the engine repeats its bits and computes in the precision asked for; its number. */
static bool suits(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d,
                  cudnnBackendDescriptor_t config, int64_t *number)
{
    bool strict = d->what <= WFD_FILTER && d->conv.dtype == (int)WEFT_F32 && !d->conv.tf32;
    cudnnBackendDescriptor_t engine = wfc_cudnn_make(b, DNN_ENGINE);
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
static cudnnBackendDescriptor_t plan_of(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t config,
                                        size_t *workspace)
{
    cudnnBackendDescriptor_t p = wfc_cudnn_make(b, DNN_PLAN);
    int64_t bytes = 0, n = 0;

    wfc_cudnn_set(b, p, DNN_A_PLAN_HANDLE, DNN_T_HANDLE, 1, &b->handle);
    wfc_cudnn_set_part(b, p, DNN_A_PLAN_CONFIG, config);
    wfc_cudnn_finish(b, p);
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
static int64_t list(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t graph,
                    enum dnn_heuristic mode, cudnnBackendDescriptor_t *config)
{
    cudnnBackendDescriptor_t h = wfc_cudnn_make(b, DNN_HEURISTIC);
    int64_t n = 0;

    wfc_cudnn_set_part(b, h, DNN_A_HEURISTIC_GRAPH, graph);
    wfc_cudnn_set_enum(b, h, DNN_A_HEURISTIC_MODE, DNN_T_HEURISTIC_MODE, mode);
    wfc_cudnn_finish(b, h);
    if (b->r == DNN_OK)
        b->r = b->api->cudnnBackendGetAttribute(h, DNN_A_HEURISTIC_RESULTS, DNN_T_DESCRIPTOR, 0, &n,
                                                NULL);
    n = wf_min_i64(n, MAX_CONFIGS);
    for (int64_t i = 0; i < n; i++)
        config[i] = wfc_cudnn_make(b, DNN_ENGINE_CONFIG);
    if (b->r == DNN_OK && n)
        b->r = b->api->cudnnBackendGetAttribute(h, DNN_A_HEURISTIC_RESULTS, DNN_T_DESCRIPTOR, n, &n,
                                                config);
    return b->r == DNN_OK ? n : 0;
}

struct row { /* of convs.def */
    const char *model;
    int what, dtype, tf32;
    int64_t batch, in, out, c_in, c_out, k, stride, pad, engine, place;
};

/* The measured engine for a convolution; NULL: none. */
static const struct row *measured(const struct wf_cuda *d, const struct wfc_dnn_desc *desc)
{
    enum { BF16 = WEFT_BF16, TF32 = WEFT_F32 };
    static const struct row rows[] = {
#define CONV(model, what, type, ...) {model, WFD_##what, type, (type) == TF32, __VA_ARGS__},
#include "kernels/cuda/convs.def"
#undef CONV
    };
    const struct wfc_dnn_conv *c = &desc->conv;

    for (int i = 0; i < WF_COUNT(rows) && desc->what <= WFD_FILTER; i++) {
        const struct row *r = &rows[i];
        bool same = desc->what == r->what && c->dtype == r->dtype && !c->tf32 == !r->tf32 &&
                    c->n_axes == 2 && c->groups == 1 && c->batch == r->batch &&
                    c->c_in == r->c_in && c->c_out == r->c_out && !strcmp(d->model, r->model);

        for (int a = 1; a < 3; a++) /* axis 0 is of volumes */
            same = same && c->in[a] == r->in && c->out[a] == r->out && c->k[a] == r->k &&
                   c->stride[a] == r->stride && c->pad[a] == r->pad && c->dilation[a] == 1;
        if (same)
            return r;
    }
    return NULL;
}

/* Makes the plan of the measured engine if the list has it at its place. */
static void choose_measured(struct wfc_cudnn_build *b, const struct row *r,
                            const cudnnBackendDescriptor_t *config, int64_t n,
                            struct wfc_dnn_plan *p)
{
    int64_t number = -1;

    if (!r || r->place > n)
        return;
    if (suits(b, &p->desc, config[r->place - 1], &number) && number == r->engine)
        p->plan = plan_of(b, config[r->place - 1], &p->workspace);
    if (p->plan)
        snprintf(p->name, sizeof p->name, "cudnn-pinned-e%lld#%lld/%lld", (long long)number,
                 (long long)r->place, (long long)n);
    b->r = DNN_OK;
}

static void choose(struct wfc_cudnn_build *b, cudnnBackendDescriptor_t graph, const struct row *r,
                   struct wfc_dnn_plan *p)
{
    static const enum dnn_heuristic modes[] = {DNN_MODE_A, DNN_MODE_FALLBACK};
    cudnnBackendDescriptor_t config[MAX_CONFIGS];

    for (int m = 0; m < WF_COUNT(modes) && !p->plan && b->r == DNN_OK; m++) {
        int before = b->n;
        int64_t n = list(b, graph, modes[m], config);

        if (m == 0)
            choose_measured(b, r, config, n, p);
        for (int64_t i = 0; i < n && !p->plan; i++) {
            int64_t number = -1;

            if (!suits(b, &p->desc, config[i], &number)) {
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
    struct wfc_cudnn_build b = {.api = &d->api, .handle = d->dnn->handle};
    cudnnBackendDescriptor_t graph;

    switch (p->desc.what) {
    case WFD_ATTENTION: wfc_cudnn_attention(&b, &p->desc); break;
    case WFD_ATTENTION_GRAD: wfc_cudnn_attention_grad(&b, &p->desc); break;
    default: wfc_cudnn_conv(&b, &p->desc);
    }
    graph = wfc_cudnn_make(&b, DNN_GRAPH);
    wfc_cudnn_set(&b, graph, DNN_A_GRAPH_HANDLE, DNN_T_HANDLE, 1, &b.handle);
    wfc_cudnn_set(&b, graph, DNN_A_GRAPH_OPS, DNN_T_DESCRIPTOR, b.n_ops, b.ops);
    wfc_cudnn_finish(&b, graph);
    if (b.r == DNN_OK)
        choose(&b, graph, measured(d, &p->desc), p);
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

static struct wfc_dnn_plan *known(const struct wfd *n, const struct wfc_dnn_desc *desc)
{
    struct wfc_dnn_plan *p = n->first;

    while (p && memcmp(&p->desc, desc, sizeof *desc))
        p = p->next;
    return p;
}

weft_status wfc_dnn_find(struct wf_cuda *d, const struct wfc_dnn_desc *desc,
                         const struct wfc_dnn_plan **out)
{
    struct wfc_dnn_plan *p;
    weft_status st = WEFT_OK;

    if (!d->api.have_dnn)
        return WEFT_ENOSUP;
    pthread_mutex_lock(&d->dnn_lock);
    st = open_dnn(d);
    p = st ? NULL : known(d->dnn, desc);
    if (!st && !p) {
        p = wf_alloc(d->ctx, sizeof *p);
        if (p) {
            p->desc = *desc;
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

weft_status wfc_dnn_run(const struct wf_call *c, const struct wfc_dnn_plan *p, int n,
                        const int64_t *ids, const void *const *at, void *workspace)
{
    struct wf_cuda *d = wfc_dev(c);
    struct wfc_cudnn_build b = {.api = &d->api, .handle = d->dnn->handle};
    cudnnBackendDescriptor_t pack;

    if (d->api.cuCtxSetCurrent(d->context))
        return wf_err(WEFT_EIO, "%s: cuCtxSetCurrent failed", c->op->name);
    wfc_other_work(d);
    pack = wfc_cudnn_make(&b, DNN_PACK);
    wfc_cudnn_set(&b, pack, DNN_A_PACK_IDS, DNN_T_INT64, n, ids);
    wfc_cudnn_set(&b, pack, DNN_A_PACK_POINTERS, DNN_T_POINTER, n, at);
    wfc_cudnn_set(&b, pack, DNN_A_PACK_WORKSPACE, DNN_T_POINTER, 1, &workspace);
    wfc_cudnn_finish(&b, pack);
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

weft_status wfc_dnn_run_conv(const struct wf_call *c, const struct wfc_dnn_plan *p, const void *x,
                             const void *filter, const void *y, void *workspace)
{
    const int64_t ids[] = {WFD_X, WFD_W, WFD_Y};
    const void *at[] = {x, filter, y};

    return wfc_dnn_run(c, p, 3, ids, at, workspace);
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
