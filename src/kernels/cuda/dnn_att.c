/* dnn_att.c - attention and its gradient as graphs of cuDNN's operations.
 *
 * cuDNN knows the graphs written here and runs each as a few kernels that never store the scores.
 * Keys come transposed, [b, h, d, n_k], as do the values of the gradient. The gradient of the
 * queries is the result of its product: with sums in f32 between them, cuDNN would add blocks with
 * atomics, in any order. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dnn_build.h"

typedef cudnnBackendDescriptor_t tensor;

/* What is being built, and the number of the next tensor between operations. */
struct att {
    struct wfc_cudnn_build *b;
    const struct wfc_dnn_att *a;
    enum dnn_data half;
    int64_t next;
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* Rows of a tensor in memory, [b, h, rows, cols]; turned: [b, h, cols, rows]. */
static tensor rows(struct att *s, int64_t id, const int64_t *stride, int64_t n_rows, int64_t n_cols,
                   bool turned)
{
    int64_t dim[4] = {s->a->n_b, s->a->n_h, n_rows, n_cols};
    int64_t step[4] = {stride[0], stride[1], stride[2], 1};

    if (turned) {
        dim[2] = n_cols, dim[3] = n_rows;
        step[2] = 1, step[3] = stride[2];
    }
    return wfc_cudnn_tensor(s->b, id, s->half, 4, dim, step,
                            id < WFD_FIRST_BETWEEN ? WFD_MEMORY : WFD_VIRTUAL);
}

/* [b, h, n_q, n_cols] packed; id 0: between operations. */
static tensor packed(struct att *s, int64_t id, enum dnn_data type, int64_t n_cols)
{
    int64_t q = s->a->n_q, dim[4] = {s->a->n_b, s->a->n_h, q, n_cols};
    int64_t step[4] = {s->a->n_h * q * n_cols, q * n_cols, n_cols, 1};

    return wfc_cudnn_tensor(s->b, id ? id : s->next++, type, 4, dim, step,
                            id ? WFD_MEMORY : WFD_VIRTUAL);
}

static tensor scores(struct att *s, enum dnn_data type)
{
    return packed(s, 0, type, s->a->n_k);
}

/* Scores with keys as rows, the same numbers in memory. */
static tensor turned_scores(struct att *s)
{
    int64_t q = s->a->n_q, k = s->a->n_k, dim[4] = {s->a->n_b, s->a->n_h, k, q};
    int64_t step[4] = {s->a->n_h * q * k, q * k, 1, k};

    return wfc_cudnn_tensor(s->b, s->next++, s->half, 4, dim, step, WFD_VIRTUAL);
}

static tensor number(struct att *s, int64_t id)
{
    const int64_t one[4] = {1, 1, 1, 1};

    return wfc_cudnn_tensor(s->b, id, DNN_F32, 4, one, one, WFD_VALUE);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void product(struct att *s, tensor a, tensor b, tensor c)
{
    tensor of = wfc_cudnn_make(s->b, DNN_MATMUL), op;

    wfc_cudnn_set_enum(s->b, of, DNN_A_MATMUL_COMPUTE, DNN_T_DATA_TYPE, DNN_F32);
    wfc_cudnn_finish(s->b, of);
    op = wfc_cudnn_make(s->b, DNN_OP_MATMUL);
    wfc_cudnn_set_part(s->b, op, DNN_A_PRODUCT_A, a);
    wfc_cudnn_set_part(s->b, op, DNN_A_PRODUCT_B, b);
    wfc_cudnn_set_part(s->b, op, DNN_A_PRODUCT_C, c);
    wfc_cudnn_set_part(s->b, op, DNN_A_PRODUCT_OF, of);
    wfc_cudnn_add(s->b, op);
}

/* y of x, b and t; these may be absent. */
static tensor each(struct att *s, enum dnn_pointwise mode, enum dnn_data type, int axis, tensor x,
                   tensor b, tensor t, tensor y)
{
    tensor of = wfc_cudnn_make(s->b, DNN_POINTWISE), op;

    wfc_cudnn_set_enum(s->b, of, DNN_A_POINTWISE_MODE, DNN_T_POINTWISE_MODE, (int)mode);
    wfc_cudnn_set_enum(s->b, of, DNN_A_POINTWISE_COMPUTE, DNN_T_DATA_TYPE, (int)type);
    if (axis >= 0)
        wfc_cudnn_set_int(s->b, of, DNN_A_POINTWISE_AXIS, axis);
    wfc_cudnn_finish(s->b, of);
    op = wfc_cudnn_make(s->b, DNN_OP_POINTWISE);
    wfc_cudnn_set_part(s->b, op, DNN_A_ELEMENTS_OF, of);
    wfc_cudnn_set_part(s->b, op, DNN_A_ELEMENTS_X, x);
    if (b)
        wfc_cudnn_set_part(s->b, op, DNN_A_ELEMENTS_B, b);
    if (t)
        wfc_cudnn_set_part(s->b, op, DNN_A_ELEMENTS_T, t);
    wfc_cudnn_set_part(s->b, op, DNN_A_ELEMENTS_Y, y);
    wfc_cudnn_add(s->b, op);
    return y;
}

static tensor pair(struct att *s, enum dnn_pointwise mode, tensor x, tensor b, tensor y)
{
    return each(s, mode, DNN_F32, -1, x, b, NULL, y);
}

/* Over the last axis. */
static tensor reduce(struct att *s, enum dnn_reduce how, tensor x)
{
    tensor of = wfc_cudnn_make(s->b, DNN_REDUCTION), op, y = packed(s, 0, DNN_F32, 1);

    wfc_cudnn_set_enum(s->b, of, DNN_A_REDUCTION_COMPUTE, DNN_T_DATA_TYPE, DNN_F32);
    wfc_cudnn_set_enum(s->b, of, DNN_A_REDUCTION_OPERATOR, DNN_T_REDUCTION, (int)how);
    wfc_cudnn_finish(s->b, of);
    op = wfc_cudnn_make(s->b, DNN_OP_REDUCTION);
    wfc_cudnn_set_part(s->b, op, DNN_A_SUM_X, x);
    wfc_cudnn_set_part(s->b, op, DNN_A_SUM_Y, y);
    wfc_cudnn_set_part(s->b, op, DNN_A_SUM_OF, of);
    wfc_cudnn_add(s->b, op);
    return y;
}

static tensor reshape(struct att *s, tensor x, tensor y)
{
    tensor op = wfc_cudnn_make(s->b, DNN_OP_RESHAPE);

    wfc_cudnn_set_part(s->b, op, DNN_A_RESHAPE_X, x);
    wfc_cudnn_set_part(s->b, op, DNN_A_RESHAPE_Y, y);
    wfc_cudnn_add(s->b, op);
    return y;
}

/* Keys after the query count nothing. */
static tensor masked(struct att *s, tensor x)
{
    tensor row, col, in;

    if (!s->a->causal)
        return x;
    row = each(s, DNN_P_INDEX, DNN_I32, 2, x, NULL, NULL, scores(s, DNN_I32));
    col = each(s, DNN_P_INDEX, DNN_I32, 3, x, NULL, NULL, scores(s, DNN_I32));
    in = each(s, DNN_P_GREATER_EQUAL, DNN_BOOLEAN, -1, row, col, NULL, scores(s, DNN_BOOLEAN));
    return each(s, DNN_P_SELECT, DNN_F32, -1, x, number(s, WFD_NEVER), in, scores(s, DNN_F32));
}

static struct att begin(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d)
{
    return (struct att){b, &d->att, wfc_cudnn_data_type(d->att.dtype), WFD_FIRST_BETWEEN};
}

/* q k' times the scale. */
static tensor scaled_scores(struct att *s, tensor q, tensor keys)
{
    tensor plain = scores(s, DNN_F32);

    product(s, q, keys, plain);
    return pair(s, DNN_P_MUL, plain, number(s, WFD_SCALE), scores(s, DNN_F32));
}

void wfc_cudnn_attention(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d)
{
    struct att s = begin(b, d);
    const struct wfc_dnn_att *a = &d->att;
    tensor x = scaled_scores(&s, rows(&s, WFD_Q, a->q, a->n_q, a->d, false),
                             rows(&s, WFD_K, a->k, a->n_k, a->d, true)),
           top, e, sum, p;

    x = masked(&s, x);
    top = reduce(&s, DNN_MAXIMUM, x);
    e = pair(&s, DNN_P_SUB, x, top, scores(&s, DNN_F32));
    e = each(&s, DNN_P_EXP, DNN_F32, -1, e, NULL, NULL, scores(&s, DNN_F32));
    sum = reduce(&s, DNN_SUM, e);
    x = each(&s, DNN_P_LOG, DNN_F32, -1, sum, NULL, NULL, packed(&s, 0, DNN_F32, 1));
    pair(&s, DNN_P_ADD, top, x, packed(&s, WFD_LSE, DNN_F32, 1));
    p = pair(&s, DNN_P_DIV, e, sum, scores(&s, s.half));
    product(&s, p, rows(&s, WFD_V, a->v, a->n_k, a->dv, false),
            rows(&s, WFD_Y, a->y, a->n_q, a->dv, false));
}

/* The sum of y dy of each query. */
static tensor delta(struct att *s, tensor dy)
{
    tensor y = rows(s, WFD_Y, s->a->y, s->a->n_q, s->a->dv, false);
    tensor x = pair(s, DNN_P_MUL, dy, y, packed(s, 0, DNN_F32, s->a->dv));

    x = reduce(s, DNN_SUM, x);
    return pair(s, DNN_P_MUL, x, number(s, WFD_ONE), packed(s, WFD_DELTA, DNN_F32, 1));
}

void wfc_cudnn_attention_grad(struct wfc_cudnn_build *b, const struct wfc_dnn_desc *d)
{
    struct att s = begin(b, d);
    const struct wfc_dnn_att *a = &d->att;
    tensor q = rows(&s, WFD_Q, a->q, a->n_q, a->d, false),
           keys = rows(&s, WFD_K, a->k, a->n_k, a->d, true),
           dy = rows(&s, WFD_DY, a->dy, a->n_q, a->dv, false), sums = delta(&s, dy), x, p, dp, ds;

    x = scaled_scores(&s, q, keys);
    x = pair(&s, DNN_P_SUB, x, packed(&s, WFD_LSE, DNN_F32, 1), scores(&s, DNN_F32));
    x = masked(&s, x);
    p = each(&s, DNN_P_EXP, DNN_F32, -1, x, NULL, NULL, scores(&s, DNN_F32));
    product(&s, reshape(&s, p, turned_scores(&s)), dy,
            rows(&s, WFD_DV, a->dv_out, a->n_k, a->dv, false));
    dp = scores(&s, DNN_F32);
    product(&s, dy, rows(&s, WFD_V, a->v, a->n_k, a->dv, true), dp);
    dp = pair(&s, DNN_P_SUB, dp, sums, scores(&s, DNN_F32));
    dp = pair(&s, DNN_P_MUL, dp, p, scores(&s, DNN_F32));
    ds = pair(&s, DNN_P_MUL, dp, number(&s, WFD_SCALE), scores(&s, s.half));
    product(&s, reshape(&s, ds, turned_scores(&s)), q,
            rows(&s, WFD_DK, a->dk, a->n_k, a->d, false));
    product(&s, ds, reshape(&s, keys, rows(&s, s.next++, a->k, a->n_k, a->d, false)),
            rows(&s, WFD_DQ, a->dq, a->n_q, a->d, false));
}

#endif
