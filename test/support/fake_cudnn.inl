/* fake_cudnn.inl - cuDNN's graphs of operations for fake_cuda.c: descriptors are lists of
 * attributes. A plan computes its convolution with plain loops over dims and strides; other graphs
 * are computed operation by operation (fake_cudnn_graph.inl).
 *
 * It offers five engines: the first does not repeat its bits, the second uses tensor cores, the
 * third refuses every plan, the fourth convolves plainly, the fifth is never needed. */

enum { DNN_ENGINES = 5, DNN_MAX_ATTR = 12, DNN_MAX_VALUES = 32, DNN_WORKSPACE = 777 };

struct dnn_attr {
    int name, type;
    int64_t n;
    int64_t value[DNN_MAX_VALUES]; /* or pointers, or one int or float */
};

struct dnn_desc {
    int kind, engine, n;
    bool done;
    struct dnn_desc *from; /* of configurations and engines: the graph */
    struct dnn_attr attr[DNN_MAX_ATTR];
};

static size_t dnn_size(int type)
{
    switch (type) {
    case DNN_T_INT64:
    case DNN_T_POINTER:
    case DNN_T_HANDLE:
    case DNN_T_DESCRIPTOR: return 8;
    case DNN_T_BOOL: return 1;
    default: return 4;
    }
}

static const struct dnn_attr *dnn_find(const struct dnn_desc *d, int name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attr[i].name == name)
            return &d->attr[i];
    return NULL;
}

static struct dnn_desc *dnn_part(const struct dnn_desc *d, int name)
{
    const struct dnn_attr *a = d ? dnn_find(d, name) : NULL;
    struct dnn_desc *part = NULL;

    if (a)
        memcpy(&part, a->value, sizeof part);
    return part;
}

static int dnn_enum(const struct dnn_desc *d, int name)
{
    int v;

    memcpy(&v, dnn_find(d, name)->value, sizeof v);
    return v;
}

static size_t fake_cudnnGetVersion(void)
{
    return 91400;
}

static const char *fake_cudnnGetErrorString(cudnnStatus_t r)
{
    (void)r;
    return "a fault of the test";
}

static cudnnStatus_t fake_cudnnCreate(cudnnHandle_t *h)
{
    MAY_FAIL(1001);
    *h = calloc(1, sizeof(void *));
    return DNN_OK;
}

static cudnnStatus_t fake_cudnnDestroy(cudnnHandle_t h)
{
    free(h);
    return DNN_OK;
}

static cudnnStatus_t fake_cudnnSetStream(cudnnHandle_t h, struct CUstream_st *s)
{
    MAY_FAIL(2000);
    memcpy(h, &s, sizeof(void *));
    return DNN_OK;
}

static cudnnStatus_t fake_cudnnBackendCreateDescriptor(int kind, cudnnBackendDescriptor_t *out)
{
    struct dnn_desc *d;

    MAY_FAIL(4003);
    d = calloc(1, sizeof *d);
    d->kind = kind;
    *out = d;
    n_descriptors++;
    return DNN_OK;
}

static cudnnStatus_t fake_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    n_descriptors--;
    memset(d, 0xee, sizeof(struct dnn_desc)); /* whoever still uses it */
    free(d);
    return DNN_OK;
}

static cudnnStatus_t fake_cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc, int name,
                                                   int type, int64_t n, const void *values)
{
    struct dnn_desc *d = desc;
    struct dnn_attr *a = &d->attr[d->n];

    MAY_FAIL(2000);
    if (d->done || d->n == DNN_MAX_ATTR || n < 1 || n > DNN_MAX_VALUES || dnn_find(d, name))
        return 2000;
    if (type == DNN_T_DESCRIPTOR) { /* parts are complete */
        const struct dnn_desc *part;

        memcpy(&part, values, sizeof part);
        if (!part->done)
            return 2004;
    }
    *a = (struct dnn_attr){.name = name, .type = type, .n = n};
    memcpy(a->value, values, dnn_size(type) * (size_t)n);
    d->n++;
    return DNN_OK;
}

/* What a descriptor must have before it is complete. */
static bool dnn_complete(const struct dnn_desc *d)
{
    static const struct {
        int kind, names[8];
    } of[] = {
        {DNN_TENSOR,
         {DNN_A_TENSOR_ID, DNN_A_TENSOR_TYPE, DNN_A_TENSOR_DIMS, DNN_A_TENSOR_STRIDES,
          DNN_A_TENSOR_ALIGNMENT}},
        {DNN_CONVOLUTION,
         {DNN_A_CONV_COMPUTE, DNN_A_CONV_MODE, DNN_A_CONV_SPATIAL, DNN_A_CONV_STRIDES,
          DNN_A_CONV_DILATIONS, DNN_A_CONV_PRE_PADS, DNN_A_CONV_POST_PADS}},
        {DNN_CONV_FORWARD,
         {DNN_A_FORWARD_X, DNN_A_FORWARD_W, DNN_A_FORWARD_Y, DNN_A_FORWARD_CONV,
          DNN_A_FORWARD_ALPHA, DNN_A_FORWARD_BETA}},
        {DNN_CONV_DATA,
         {DNN_A_DATA_DX, DNN_A_DATA_W, DNN_A_DATA_DY, DNN_A_DATA_CONV, DNN_A_DATA_ALPHA,
          DNN_A_DATA_BETA}},
        {DNN_CONV_FILTER,
         {DNN_A_FILTER_X, DNN_A_FILTER_DW, DNN_A_FILTER_DY, DNN_A_FILTER_CONV, DNN_A_FILTER_ALPHA,
          DNN_A_FILTER_BETA}},
        {DNN_POINTWISE, {DNN_A_POINTWISE_COMPUTE}},
        {DNN_OP_POINTWISE, {DNN_A_ELEMENTS_OF, DNN_A_ELEMENTS_X, DNN_A_ELEMENTS_Y}},
        {DNN_MATMUL, {DNN_A_MATMUL_COMPUTE}},
        {DNN_OP_MATMUL, {DNN_A_PRODUCT_A, DNN_A_PRODUCT_B, DNN_A_PRODUCT_C, DNN_A_PRODUCT_OF}},
        {DNN_REDUCTION, {DNN_A_REDUCTION_OPERATOR, DNN_A_REDUCTION_COMPUTE}},
        {DNN_OP_REDUCTION, {DNN_A_SUM_X, DNN_A_SUM_Y, DNN_A_SUM_OF}},
        {DNN_OP_RESHAPE, {DNN_A_RESHAPE_X, DNN_A_RESHAPE_Y}},
        {DNN_GRAPH, {DNN_A_GRAPH_HANDLE, DNN_A_GRAPH_OPS}},
        {DNN_HEURISTIC, {DNN_A_HEURISTIC_GRAPH, DNN_A_HEURISTIC_MODE}},
        {DNN_PLAN, {DNN_A_PLAN_HANDLE, DNN_A_PLAN_CONFIG}},
        {DNN_PACK, {DNN_A_PACK_IDS, DNN_A_PACK_POINTERS, DNN_A_PACK_WORKSPACE}}};

    for (int i = 0; i < WF_COUNT(of); i++)
        for (int k = 0; of[i].kind == d->kind && k < 8 && of[i].names[k]; k++)
            if (!dnn_find(d, of[i].names[k]))
                return false;
    return true;
}

static cudnnStatus_t fake_cudnnBackendFinalize(cudnnBackendDescriptor_t desc)
{
    struct dnn_desc *d = desc;

    MAY_FAIL(3000);
    if (d->done || !dnn_complete(d))
        return 2000;
    if (d->kind == DNN_PLAN && dnn_part(d, DNN_A_PLAN_CONFIG)->engine == 2)
        return 3000;
    d->done = true;
    return DNN_OK;
}

static int first_engine;

void fake_cuda_engines(int first)
{
    first_engine = first;
}

/* The heuristic's configurations, into descriptors that the caller made. */
static int64_t dnn_list(const struct dnn_desc *h, int64_t room, void *values)
{
    struct dnn_desc **to = values;
    int64_t n = dnn_enum(h, DNN_A_HEURISTIC_MODE) == DNN_MODE_A ? DNN_ENGINES : 1;

    for (int64_t i = 0; i < n && i < room; i++) {
        to[i]->done = true;
        to[i]->engine = n == 1 ? 3 : (int)i;
        to[i]->from = dnn_part(h, DNN_A_HEURISTIC_GRAPH);
    }
    return n;
}

/* A graph of many operations needs none here. */
static int64_t dnn_workspace(struct dnn_desc *plan)
{
    const struct dnn_desc *config = dnn_part(plan, DNN_A_PLAN_CONFIG);

    return dnn_find(config->from, DNN_A_GRAPH_OPS)->n == 1 ? DNN_WORKSPACE : 0;
}

static cudnnStatus_t fake_cudnnBackendGetAttribute(cudnnBackendDescriptor_t desc, int name,
                                                   int type, int64_t room, int64_t *n, void *values)
{
    struct dnn_desc *d = desc, *engine;

    (void)type;
    MAY_FAIL(2000);
    if (!d->done)
        return 2004;
    *n = 1;
    switch (name) {
    case DNN_A_HEURISTIC_RESULTS: *n = dnn_list(d, room, values); break;
    case DNN_A_CONFIG_ENGINE:
        memcpy(&engine, values, sizeof engine);
        engine->engine = d->engine;
        engine->done = true;
        break;
    case DNN_A_ENGINE_INDEX: *(int64_t *)values = first_engine + d->engine; break;
    case DNN_A_ENGINE_NOTES:
        *n = d->engine < 2 ? 1 : 0;
        if (*n)
            *(int *)values = d->engine == 0 ? DNN_NOTE_NOT_REPEATABLE : DNN_NOTE_TENSOR_CORE;
        break;
    case DNN_A_PLAN_WORKSPACE: *(int64_t *)values = dnn_workspace(d); break;
    default: return 2000;
    }
    return DNN_OK;
}

/* ---- a convolution --------------------------------------------------------------------------- */

struct dnn_tensor {
    weft_dtype dtype;
    int64_t id, dim[5], stride[5];
    void *data;
};

struct dnn_conv {
    int kind, n_axes;
    int64_t stride[3], dilation[3], pre[3];
    struct dnn_tensor x, w, y;
};

static struct dnn_tensor dnn_tensor_of(const struct dnn_desc *d)
{
    struct dnn_tensor t = {.id = dnn_find(d, DNN_A_TENSOR_ID)->value[0]};
    int type = dnn_enum(d, DNN_A_TENSOR_TYPE);
    const struct dnn_attr *dim = dnn_find(d, DNN_A_TENSOR_DIMS);

    t.dtype = type == DNN_F16 ? WEFT_F16 : type == DNN_BF16 ? WEFT_BF16 : WEFT_F32;
    for (int i = 0; i < 5; i++)
        t.dim[i] = 1;
    memcpy(t.dim, dim->value, sizeof(int64_t) * (size_t)dim->n);
    memcpy(t.stride, dnn_find(d, DNN_A_TENSOR_STRIDES)->value, sizeof(int64_t) * (size_t)dim->n);
    return t;
}

static int64_t dnn_place(const struct dnn_tensor *t, int64_t a, int64_t b, const int64_t *s)
{
    return a * t->stride[0] + b * t->stride[1] + s[0] * t->stride[2] + s[1] * t->stride[3] +
           s[2] * t->stride[4];
}

/* The next place of a box of three axes; false past the end. */
static bool dnn_next(int64_t *s, const int64_t *dim)
{
    for (int a = 2; a >= 0; a--) {
        if (++s[a] < dim[a])
            return true;
        s[a] = 0;
    }
    return false;
}

/* Adds one product of every tap to the result; sums: as many doubles as it has elements. */
static void dnn_taps(const struct dnn_conv *c, int64_t n, int64_t k, const int64_t *o, double *sums)
{
    int64_t per_group = c->w.dim[1], group = k / (c->w.dim[0] / (c->x.dim[1] / per_group));
    int64_t r[3] = {0};

    do {
        int64_t i[3] = {0}, y = dnn_place(&c->y, n, k, o);
        bool inside = true;

        for (int a = 0; a < c->n_axes; a++) {
            i[a] = o[a] * c->stride[a] - c->pre[a] + r[a] * c->dilation[a];
            inside = inside && i[a] >= 0 && i[a] < c->x.dim[2 + a];
        }
        for (int64_t ch = 0; inside && ch < per_group; ch++) {
            int64_t x = dnn_place(&c->x, n, group * per_group + ch, i),
                    w = dnn_place(&c->w, k, ch, r);

            if (c->kind == DNN_CONV_FORWARD)
                sums[y] += wf_get(c->x.data, c->x.dtype, x) * wf_get(c->w.data, c->w.dtype, w);
            else if (c->kind == DNN_CONV_DATA)
                sums[x] += wf_get(c->y.data, c->y.dtype, y) * wf_get(c->w.data, c->w.dtype, w);
            else
                sums[w] += wf_get(c->y.data, c->y.dtype, y) * wf_get(c->x.data, c->x.dtype, x);
        }
    } while (dnn_next(r, c->w.dim + 2));
}

static void convolve(const struct dnn_conv *c)
{
    const struct dnn_tensor *to = c->kind == DNN_CONV_FORWARD ? &c->y
                                  : c->kind == DNN_CONV_DATA  ? &c->x
                                                              : &c->w;
    int64_t count = to->dim[0] * to->dim[1] * to->dim[2] * to->dim[3] * to->dim[4];
    double *sums = calloc((size_t)count, sizeof *sums);

    for (int64_t n = 0; n < c->y.dim[0]; n++)
        for (int64_t k = 0; k < c->y.dim[1]; k++) {
            int64_t o[3] = {0};

            do {
                dnn_taps(c, n, k, o, sums);
            } while (dnn_next(o, c->y.dim + 2));
        }
    for (int64_t i = 0; i < count; i++)
        wf_set(to->data, to->dtype, i, sums[i]);
    free(sums);
}

static void *dnn_data_of(const struct dnn_desc *pack, int64_t id)
{
    const struct dnn_attr *ids = dnn_find(pack, DNN_A_PACK_IDS),
                          *at = dnn_find(pack, DNN_A_PACK_POINTERS);
    void *p = NULL;

    for (int64_t i = 0; i < ids->n; i++)
        if (ids->value[i] == id)
            memcpy(&p, &at->value[i], sizeof p);
    return p;
}

static bool dnn_sizes_agree(const struct dnn_conv *c, const int64_t *post)
{
    for (int a = 0; a < c->n_axes; a++) {
        int64_t reach = c->dilation[a] * (c->w.dim[2 + a] - 1) + 1;

        if (c->y.dim[2 + a] != (c->x.dim[2 + a] + c->pre[a] + post[a] - reach) / c->stride[a] + 1)
            return false;
    }
    return c->x.dim[0] == c->y.dim[0] && c->w.dim[0] == c->y.dim[1] &&
           c->x.dim[1] % c->w.dim[1] == 0;
}

static cudnnStatus_t run_conv(const struct dnn_desc *op, const struct dnn_desc *p, CUstream s)
{
    struct work w = {.what = CONVOLUTION};
    struct dnn_conv *c = (struct dnn_conv *)(void *)w.args;
    const struct dnn_desc *g;
    int at = op->kind == DNN_CONV_FORWARD ? 0 : op->kind == DNN_CONV_DATA ? 1 : 2;
    static const int of[3][4] = {
        {DNN_A_FORWARD_X, DNN_A_FORWARD_W, DNN_A_FORWARD_Y, DNN_A_FORWARD_CONV},
        {DNN_A_DATA_DX, DNN_A_DATA_W, DNN_A_DATA_DY, DNN_A_DATA_CONV},
        {DNN_A_FILTER_X, DNN_A_FILTER_DW, DNN_A_FILTER_DY, DNN_A_FILTER_CONV}};

    *c = (struct dnn_conv){.kind = op->kind,
                           .x = dnn_tensor_of(dnn_part(op, of[at][0])),
                           .w = dnn_tensor_of(dnn_part(op, of[at][1])),
                           .y = dnn_tensor_of(dnn_part(op, of[at][2]))};
    g = dnn_part(op, of[at][3]);
    c->n_axes = (int)dnn_find(g, DNN_A_CONV_SPATIAL)->value[0];
    memcpy(c->stride, dnn_find(g, DNN_A_CONV_STRIDES)->value, sizeof c->stride);
    memcpy(c->dilation, dnn_find(g, DNN_A_CONV_DILATIONS)->value, sizeof c->dilation);
    memcpy(c->pre, dnn_find(g, DNN_A_CONV_PRE_PADS)->value, sizeof c->pre);
    if (!dnn_sizes_agree(c, dnn_find(g, DNN_A_CONV_POST_PADS)->value))
        return 2008;
    c->x.data = dnn_data_of(p, c->x.id);
    c->w.data = dnn_data_of(p, c->w.id);
    c->y.data = dnn_data_of(p, c->y.id);
    enqueue(s, &w);
    return DNN_OK;
}

#include "support/fake_cudnn_graph.inl"

static cudnnStatus_t fake_cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack)
{
    const struct dnn_desc *config = dnn_part(plan, DNN_A_PLAN_CONFIG), *p = pack,
                          *op = dnn_part(config->from, DNN_A_GRAPH_OPS);
    void *workspace;
    CUstream s;

    MAY_FAIL(5000);
    if (!p->done || config->engine < 1 || config->engine == 2)
        return 2004;
    memcpy(&workspace, dnn_find(p, DNN_A_PACK_WORKSPACE)->value, sizeof workspace);
    if (!workspace && dnn_workspace(plan))
        return 2001;
    if (workspace)
        memset(workspace, 0x5a, (size_t)dnn_workspace(plan));
    memcpy(&s, h, sizeof s);
    return dnn_find(config->from, DNN_A_GRAPH_OPS)->n == 1 ? run_conv(op, p, s)
                                                           : run_graph(config->from, p, s);
}
