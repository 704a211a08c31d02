/* fake_cudnn_graph.inl - graphs of products, sums, element-wise operations and reshapes: computed
 * one operation after another in doubles, each result rounded to its type. */

enum { DNN_TENSORS = 48, DNN_GIVEN = 16 };

/* What Execute is called with; the numbers that are given by value are taken then. */
struct dnn_graph {
    const struct dnn_desc *graph;
    int n;
    int64_t id[DNN_GIVEN];
    void *at[DNN_GIVEN];
    float value[DNN_GIVEN];
};

/* A tensor's values in the order of its axes, the last one fastest. */
struct dnn_values {
    int64_t id, n, dim[4];
    double *v;
};

struct dnn_env {
    const struct dnn_graph *g;
    int n;
    struct dnn_values t[DNN_TENSORS];
};

static bool dnn_flag(const struct dnn_desc *d, int name)
{
    const struct dnn_attr *a = dnn_find(d, name);
    bool yes = false;

    if (a)
        memcpy(&yes, a->value, sizeof yes);
    return yes;
}

static int dnn_given(const struct dnn_graph *g, int64_t id)
{
    for (int i = 0; i < g->n; i++)
        if (g->id[i] == id)
            return i;
    return -1;
}

/* The place in memory of element i. */
static int64_t dnn_at(const struct dnn_tensor *t, const int64_t *dim, int64_t i)
{
    int64_t at = 0;

    for (int a = 3; a >= 0; a--) {
        at += i % dim[a] * t->stride[a];
        i /= dim[a];
    }
    return at;
}

static struct dnn_values dnn_empty(const struct dnn_tensor *t)
{
    struct dnn_values v = {.id = t->id, .n = 1};

    for (int a = 0; a < 4; a++) {
        v.dim[a] = t->dim[a];
        v.n *= v.dim[a];
    }
    v.v = calloc((size_t)v.n, sizeof *v.v);
    return v;
}

static struct dnn_values dnn_read(struct dnn_env *e, const struct dnn_desc *d)
{
    struct dnn_tensor t = dnn_tensor_of(d);
    struct dnn_values v;
    int k = dnn_given(e->g, t.id);

    for (int i = 0; i < e->n; i++)
        if (e->t[i].id == t.id)
            return e->t[i];
    v = dnn_empty(&t);
    for (int64_t i = 0; i < v.n && k >= 0; i++)
        v.v[i] = dnn_flag(d, DNN_A_TENSOR_BY_VALUE)
                     ? e->g->value[k]
                     : wf_get(e->g->at[k], t.dtype, dnn_at(&t, v.dim, i));
    e->t[e->n++] = v;
    return v;
}

static void dnn_write(struct dnn_env *e, const struct dnn_desc *d, struct dnn_values v)
{
    struct dnn_tensor t = dnn_tensor_of(d);
    int k = dnn_flag(d, DNN_A_TENSOR_VIRTUAL) ? -1 : dnn_given(e->g, t.id);
    int type = dnn_enum(d, DNN_A_TENSOR_TYPE);

    for (int64_t i = 0; i < v.n; i++) {
        if (type == DNN_BF16)
            v.v[i] = wf_bf16_to_f32(wf_f32_to_bf16((float)v.v[i]));
        else if (type == DNN_F16)
            v.v[i] = wf_f16_to_f32(wf_f32_to_f16((float)v.v[i]));
        if (k >= 0)
            wf_set(e->g->at[k], t.dtype, dnn_at(&t, v.dim, i), v.v[i]);
    }
    e->t[e->n++] = v;
}

/* Element i of a result, of an operand whose axes of 1 are repeated. */
static double dnn_pick(const struct dnn_values *v, const int64_t *dim, int64_t i)
{
    int64_t at = 0, step = 1;

    for (int a = 3; a >= 0; a--) {
        at += v->dim[a] == 1 ? 0 : i % dim[a] * step;
        step *= v->dim[a];
        i /= dim[a];
    }
    return v->v[at];
}

static void dnn_product(struct dnn_env *e, const struct dnn_desc *op)
{
    const struct dnn_desc *to = dnn_part(op, DNN_A_PRODUCT_C);
    struct dnn_values a = dnn_read(e, dnn_part(op, DNN_A_PRODUCT_A)),
                      b = dnn_read(e, dnn_part(op, DNN_A_PRODUCT_B)), c;
    struct dnn_tensor t = dnn_tensor_of(to);

    c = dnn_empty(&t);
    assert(a.dim[3] == b.dim[2] && a.dim[2] == c.dim[2] && b.dim[3] == c.dim[3]);
    for (int64_t i = 0; i < c.n; i++) {
        int64_t col = i % c.dim[3], row = i / c.dim[3] % c.dim[2], s = i / c.dim[3] / c.dim[2];
        const double *x = a.v + (s * a.dim[2] + row) * a.dim[3],
                     *y = b.v + s * b.dim[2] * b.dim[3] + col;

        for (int64_t k = 0; k < a.dim[3]; k++)
            c.v[i] += x[k] * y[k * b.dim[3]];
    }
    dnn_write(e, to, c);
}

static double dnn_one(int mode, double x, double b, double t, int64_t index)
{
    switch (mode) {
    case DNN_P_ADD: return x + b;
    case DNN_P_MUL: return x * b;
    case DNN_P_DIV: return x / b;
    case DNN_P_SUB: return x - b;
    case DNN_P_EXP: return exp(x);
    case DNN_P_LOG: return log(x);
    case DNN_P_GREATER_EQUAL: return x >= b;
    case DNN_P_INDEX: return (double)index;
    default: return t != 0 ? x : b; /* select */
    }
}

static void dnn_each(struct dnn_env *e, const struct dnn_desc *op)
{
    const struct dnn_desc *of = dnn_part(op, DNN_A_ELEMENTS_OF),
                          *to = dnn_part(op, DNN_A_ELEMENTS_Y),
                          *other = dnn_part(op, DNN_A_ELEMENTS_B),
                          *third = dnn_part(op, DNN_A_ELEMENTS_T);
    const struct dnn_attr *axis = dnn_find(of, DNN_A_POINTWISE_AXIS);
    struct dnn_values x = dnn_read(e, dnn_part(op, DNN_A_ELEMENTS_X)), b = {0}, s = {0}, y;
    struct dnn_tensor t = dnn_tensor_of(to);
    int mode = dnn_enum(of, DNN_A_POINTWISE_MODE);

    if (other)
        b = dnn_read(e, other);
    if (third)
        s = dnn_read(e, third);
    y = dnn_empty(&t);
    for (int64_t i = 0; i < y.n; i++) {
        int64_t index = i;

        for (int a = 3; axis && a > axis->value[0]; a--)
            index /= y.dim[a];
        y.v[i] =
            dnn_one(mode, dnn_pick(&x, y.dim, i), other ? dnn_pick(&b, y.dim, i) : 0,
                    third ? dnn_pick(&s, y.dim, i) : 0, axis ? index % y.dim[axis->value[0]] : 0);
    }
    dnn_write(e, to, y);
}

static void dnn_reduce(struct dnn_env *e, const struct dnn_desc *op)
{
    const struct dnn_desc *to = dnn_part(op, DNN_A_SUM_Y);
    struct dnn_values x = dnn_read(e, dnn_part(op, DNN_A_SUM_X)), y;
    struct dnn_tensor t = dnn_tensor_of(to);
    int how = dnn_enum(dnn_part(op, DNN_A_SUM_OF), DNN_A_REDUCTION_OPERATOR);
    int64_t n = x.dim[3];

    y = dnn_empty(&t);
    assert(y.dim[3] == 1 && y.n * n == x.n);
    for (int64_t i = 0; i < y.n; i++) {
        y.v[i] = x.v[i * n];
        for (int64_t k = 1; k < n; k++)
            y.v[i] = how == DNN_MAXIMUM ? fmax(y.v[i], x.v[i * n + k]) : y.v[i] + x.v[i * n + k];
    }
    dnn_write(e, to, y);
}

/* The last two axes exchanged. */
static void dnn_turn(struct dnn_env *e, const struct dnn_desc *op)
{
    const struct dnn_desc *to = dnn_part(op, DNN_A_RESHAPE_Y);
    struct dnn_values x = dnn_read(e, dnn_part(op, DNN_A_RESHAPE_X)), y;
    struct dnn_tensor t = dnn_tensor_of(to);

    y = dnn_empty(&t);
    assert(y.dim[2] == x.dim[3] && y.dim[3] == x.dim[2]);
    for (int64_t i = 0; i < y.n; i++) {
        int64_t col = i % y.dim[3], row = i / y.dim[3] % y.dim[2], s = i / y.dim[3] / y.dim[2];

        y.v[i] = x.v[(s * x.dim[2] + col) * x.dim[3] + row];
    }
    dnn_write(e, to, y);
}

static void compute_graph(const struct dnn_graph *g)
{
    const struct dnn_attr *ops = dnn_find(g->graph, DNN_A_GRAPH_OPS);
    struct dnn_env e = {.g = g};

    for (int64_t i = 0; i < ops->n; i++) {
        struct dnn_desc *op;

        memcpy(&op, &ops->value[i], sizeof op);
        switch (op->kind) {
        case DNN_OP_MATMUL: dnn_product(&e, op); break;
        case DNN_OP_POINTWISE: dnn_each(&e, op); break;
        case DNN_OP_REDUCTION: dnn_reduce(&e, op); break;
        default: dnn_turn(&e, op);
        }
    }
    for (int i = 0; i < e.n; i++)
        free(e.t[i].v);
}

/* Every tensor in memory is given. */
static bool dnn_all_given(const struct dnn_graph *g, const struct dnn_desc *op)
{
    for (int i = 0; i < op->n; i++) {
        const struct dnn_desc *part = dnn_part(op, op->attr[i].name);

        if (op->attr[i].type == DNN_T_DESCRIPTOR && part->kind == DNN_TENSOR &&
            !dnn_flag(part, DNN_A_TENSOR_VIRTUAL) &&
            dnn_given(g, dnn_find(part, DNN_A_TENSOR_ID)->value[0]) < 0)
            return false;
    }
    return true;
}

static bool dnn_has(const struct dnn_desc *op, int64_t id)
{
    for (int i = 0; i < op->n; i++) {
        const struct dnn_desc *part = dnn_part(op, op->attr[i].name);

        if (op->attr[i].type == DNN_T_DESCRIPTOR && part->kind == DNN_TENSOR &&
            dnn_find(part, DNN_A_TENSOR_ID)->value[0] == id)
            return true;
    }
    return false;
}

/* The library refuses to run with a tensor that the graph does not have. */
static bool dnn_none_too_many(const struct dnn_graph *g, const struct dnn_attr *ops)
{
    for (int i = 0; i < g->n; i++) {
        bool found = false;

        for (int64_t k = 0; k < ops->n && !found; k++) {
            struct dnn_desc *op;

            memcpy(&op, &ops->value[k], sizeof op);
            found = dnn_has(op, g->id[i]);
        }
        if (!found)
            return false;
    }
    return true;
}

static cudnnStatus_t run_graph(const struct dnn_desc *graph, const struct dnn_desc *pack,
                               CUstream s)
{
    const struct dnn_attr *ops = dnn_find(graph, DNN_A_GRAPH_OPS),
                          *ids = dnn_find(pack, DNN_A_PACK_IDS);
    struct work w = {.what = GRAPH};
    struct dnn_graph *g = (struct dnn_graph *)(void *)w.args;

    _Static_assert(sizeof *g <= sizeof w.args, "fits");
    g->graph = graph;
    if (ids->n > DNN_GIVEN)
        return 2000;
    g->n = (int)ids->n;
    for (int i = 0; i < g->n; i++) {
        g->id[i] = ids->value[i];
        g->at[i] = dnn_data_of(pack, ids->value[i]);
    }
    if (!dnn_none_too_many(g, ops))
        return 2001;
    for (int64_t k = 0; k < ops->n; k++) {
        struct dnn_desc *op;

        memcpy(&op, &ops->value[k], sizeof op);
        if (!dnn_all_given(g, op))
            return 2000;
        for (int i = 0; i < op->n; i++) {
            const struct dnn_desc *part = dnn_part(op, op->attr[i].name);

            if (op->attr[i].type == DNN_T_DESCRIPTOR && part->kind == DNN_TENSOR &&
                dnn_flag(part, DNN_A_TENSOR_BY_VALUE)) {
                int at = dnn_given(g, dnn_find(part, DNN_A_TENSOR_ID)->value[0]);

                memcpy(&g->value[at], g->at[at], sizeof(float));
            }
        }
    }
    enqueue(s, &w);
    return DNN_OK;
}
