/* bind_reduce.c - reductions over axes, and ops along one axis. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <math.h>

#include "kernels/cuda/dev.h"
#include "op/shape.h"

weft_status wfc_plan_reduce(struct wf_kplan *p);
weft_status wfc_plan_tile_grad(struct wf_kplan *p);
wf_kernel_fn wfc_run_reduce, wfc_run_logsumexp, wfc_run_arg, wfc_run_cumsum, wfc_run_prod_grad,
    wfc_run_tile_grad;

enum { MAX_ROWS = 64 }; /* of blocks that share a result */

/* ---- which elements belong to which result --------------------------------------------------- */

struct split {
    int64_t n_out, n_each;
    struct wfc_box kept, gone;
};

static struct split split_axes(int rank, const int64_t *dim, const bool *gone)
{
    int64_t kd[2 * WEFT_MAX_RANK], ks[2 * WEFT_MAX_RANK], gd[2 * WEFT_MAX_RANK],
        gs[2 * WEFT_MAX_RANK], stride[2 * WEFT_MAX_RANK], step = 1;
    int nk = 0, ng = 0;
    struct split s = {.n_out = 1, .n_each = 1};

    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= dim[i];
    }
    for (int i = 0; i < rank; i++)
        if (gone[i]) {
            gd[ng] = dim[i];
            gs[ng++] = stride[i];
            s.n_each *= dim[i];
        } else {
            kd[nk] = dim[i];
            ks[nk++] = stride[i];
            s.n_out *= dim[i];
        }
    s.kept = wfc_box_of(nk, kd, ks);
    s.gone = wfc_box_of(ng, gd, gs);
    return s;
}

static void marked_axes(const struct wf_op *op, const struct wf_attr *attr, int rank, bool *gone)
{
    const struct wf_attr *axes = wf_attr(op, attr, "axes");

    for (int i = 0; i < WEFT_MAX_RANK; i++)
        gone[i] = axes->n == 0;
    for (int i = 0; i < axes->n; i++)
        gone[axes->ints[i] < 0 ? axes->ints[i] + rank : axes->ints[i]] = true;
}

static struct split split_of(const struct wf_op *op, const struct wf_attr *attr,
                             const struct wf_type *x, const struct wf_type *to)
{
    bool gone[WEFT_MAX_RANK] = {false};

    if (op->id == WF_OP_reduce_to_like)
        for (int i = 0, skip = x->rank - to->rank; i < x->rank; i++)
            gone[i] = i < skip || to->dim[i - skip] == 1;
    else
        marked_axes(op, attr, x->rank, gone);
    return split_axes(x->rank, x->dim, gone);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* How threads are divided: n_x results side by side, n_rows rows of blocks for each. A pure
 * function of the sizes, because it decides the order of the sums. */
struct shape {
    uint32_t n_x, n_rows, chunk;
};

static struct shape shape_of(const struct split *s)
{
    struct shape h = {1, 1, (uint32_t)s->n_each};
    bool inner_kept = s->kept.stride[0] == 1 && s->kept.dim[0] > 1;
    int64_t blocks;

    /* neighbors in memory go to neighboring threads */
    if (inner_kept)
        while (h.n_x < 32 && h.n_x < s->n_out)
            h.n_x *= 2;
    else
        while (h.n_x < WFC_THREADS && (int64_t)(WFC_THREADS / h.n_x) * 2 > s->n_each)
            h.n_x *= 2;
    blocks = (s->n_out + h.n_x - 1) / h.n_x;
    if (s->n_each >= (inner_kept ? 256 : 4096) && blocks < 528) {
        int64_t rows =
            wf_min_i64(MAX_ROWS, wf_min_i64(1056 / blocks, s->n_each / (inner_kept ? 64 : 2048)));

        h.n_rows = (uint32_t)wf_max_i64(rows, 1);
        h.chunk = (uint32_t)((s->n_each + h.n_rows - 1) / h.n_rows);
        h.n_rows = (uint32_t)((s->n_each + h.chunk - 1) / h.chunk);
    }
    return h;
}

/* ---- sums over the rows of a matrix, 8 columns a thread: dev/wide.inl ------------------------ */

/* At most as many blocks: all of them run at the same time on large GPUs. Rows of a thread, and of
 * the matrix, at least. */
enum { COLS_BLOCKS = 396, COLS_ROWS = 4, COLS_LEAST = 32 };

static bool is_cols(const struct split *s)
{
    return s->kept.rank == 1 && s->kept.stride[0] == 1 && s->gone.rank == 1 &&
           s->gone.stride[0] == (int64_t)s->kept.dim[0] && s->n_out % 8 == 0 &&
           s->n_each >= COLS_LEAST;
}

static struct wfc_cols cols_of(const struct split *s)
{
    struct wfc_cols a = {.n_rows = (uint32_t)s->n_each, .n_cols = (uint32_t)s->n_out, .cols = 1};
    int64_t pieces = a.n_cols / 8, least;

    while (a.cols < 32 && a.cols * 2 <= pieces)
        a.cols *= 2;
    least = (int64_t)WFC_THREADS / a.cols * COLS_ROWS;
    a.n_chunks = (uint32_t)wf_max_i64(1, wf_min_i64(COLS_BLOCKS / ((pieces + a.cols - 1) / a.cols),
                                                    (a.n_rows + least - 1) / least));
    return a;
}

static bool in_pieces(weft_dtype t)
{
    return t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16;
}

static weft_status run_cols(const struct wf_call *c, const struct split *s, int code,
                            const struct wf_tensor *x, const struct wf_tensor *y, void *scratch)
{
    struct wfc_cols a = cols_of(s);
    weft_status st;

    a.dtype = (int32_t)x->type.dtype;
    a.y_dtype = (int32_t)y->type.dtype;
    a.mean = code == WFC_MEAN;
    a.x = x->data;
    a.y = y->data;
    a.part = scratch;
    st = wfc_launch(c, WFC_K_wfc_cols, (a.n_cols / 8 + a.cols - 1) / a.cols, a.n_chunks,
                    WFC_THREADS, &a);
    return st ? st : wfc_launch(c, WFC_K_wfc_cols_end, a.n_cols / 8, 1, WFC_THREADS, &a);
}

/* ---- all others ------------------------------------------------------------------------------ */

static size_t scratch_of(const struct split *s)
{
    struct shape h = shape_of(s);
    size_t rows = h.n_rows > 1 ? (size_t)h.n_rows * (size_t)s->n_out * sizeof(double) : 0;
    size_t cols = is_cols(s) ? (size_t)cols_of(s).n_chunks * (size_t)s->n_out * sizeof(float) : 0;

    return rows > cols ? rows : cols;
}

static weft_status run_split(const struct wf_call *c, const struct split *s, int code,
                             const struct wf_tensor *x, const struct wf_tensor *y, void *scratch)
{
    struct shape h = shape_of(s);
    int wide = x->type.dtype == WEFT_F64 || y->type.dtype == WEFT_F64;
    struct wfc_reduce_args a = {.n_out = (uint32_t)s->n_out,
                                .n_each = (uint32_t)s->n_each,
                                .n_x = h.n_x,
                                .chunk = h.chunk,
                                .code = code,
                                .in_dtype = (int32_t)x->type.dtype,
                                .out_dtype = (int32_t)y->type.dtype,
                                .last = h.n_rows == 1,
                                .count = (double)s->n_each,
                                .in = x->data,
                                .out = y->data,
                                .part = scratch,
                                .kept = s->kept,
                                .gone = s->gone};
    weft_status st;

    if (is_cols(s) && (code == WFC_SUM || code == WFC_MEAN) && in_pieces(x->type.dtype) &&
        in_pieces(y->type.dtype) && (uintptr_t)x->data % 16 == 0)
        return run_cols(c, s, code, x, y, scratch);
    st = wfc_launch(c, WFC_K_wfc_reduce + wide, (s->n_out + h.n_x - 1) / h.n_x, h.n_rows,
                    WFC_THREADS, &a);

    if (st || h.n_rows == 1)
        return st;
    a.n_each = h.n_rows;
    return wfc_launch_each(c, WFC_K_wfc_reduce_parts + wide, s->n_out, &a);
}

weft_status wfc_column_sums(const struct wf_call *c, const struct wf_tensor *x, int64_t n_rows,
                            int64_t n_cols, const struct wf_tensor *y, void *scratch)
{
    struct split s = split_axes(2, (int64_t[]){n_rows, n_cols}, (bool[]){true, false});

    return run_split(c, &s, WFC_SUM, x, y, scratch);
}

size_t wfc_column_sums_scratch(int64_t n_rows, int64_t n_cols)
{
    struct split s = split_axes(2, (int64_t[]){n_rows, n_cols}, (bool[]){true, false});

    return scratch_of(&s);
}

/* ---- reductions ------------------------------------------------------------------------------ */

weft_status wfc_plan_reduce(struct wf_kplan *p)
{
    struct split s = split_of(p->op, p->attr, &p->in[0], &p->out[0]);

    p->scratch_bytes = wf_type_count(&p->out[0]) ? scratch_of(&s) : 0;
    return wfc_plan_any(p);
}

static int reduce_code(int op)
{
    switch (op) {
    case WF_OP_mean: return WFC_MEAN;
    case WF_OP_reduce_max:
    case WF_OP_any: return WFC_MAX;
    case WF_OP_reduce_min:
    case WF_OP_all: return WFC_MIN;
    case WF_OP_prod: return WFC_PROD;
    case WF_OP_norm_l1: return WFC_NORM_L1;
    case WF_OP_norm_l2: return WFC_NORM_L2;
    default: return WFC_SUM;
    }
}

static int64_t start_of(int op, weft_dtype t)
{
    bool small = t == WEFT_U8 || t == WEFT_I8;

    switch (op) {
    case WF_OP_prod:
    case WF_OP_all: return 1;
    case WF_OP_reduce_max:
        return t == WEFT_U8 ? 0 : small ? INT8_MIN : t == WEFT_I32 ? INT32_MIN : INT64_MIN;
    case WF_OP_reduce_min:
        return t == WEFT_U8 ? UINT8_MAX : small ? INT8_MAX : t == WEFT_I32 ? INT32_MAX : INT64_MAX;
    default: return 0;
    }
}

weft_status wfc_run_reduce(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    struct split s = split_of(c->op, c->attr, &x->type, &y->type);
    struct wfc_reduce_args a = {.n_out = (uint32_t)s.n_out,
                                .n_each = (uint32_t)s.n_each,
                                .code = reduce_code(c->op->id),
                                .in_dtype = (int32_t)x->type.dtype,
                                .out_dtype = (int32_t)y->type.dtype,
                                .start_int = start_of(c->op->id, x->type.dtype),
                                .in = x->data,
                                .out = y->data,
                                .kept = s.kept,
                                .gone = s.gone};

    if (wf_count(y) == 0)
        return WEFT_OK;
    if (wf_is_float(x->type.dtype))
        return run_split(c, &s, a.code, x, y, c->scratch);
    return wfc_launch_each(c, WFC_K_wfc_reduce_int, s.n_out, &a);
}

weft_status wfc_run_logsumexp(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    struct split s = split_of(c->op, c->attr, &x->type, &y->type);
    struct wfc_reduce_args a = {.n_out = (uint32_t)s.n_out,
                                .n_each = (uint32_t)s.n_each,
                                .in_dtype = (int32_t)x->type.dtype,
                                .out_dtype = (int32_t)y->type.dtype,
                                .in = x->data,
                                .out = y->data,
                                .kept = s.kept,
                                .gone = s.gone};

    return wfc_launch(c, WFC_K_wfc_logsumexp + wfc_wide(c), wf_min_i64(wf_count(y), 65535), 1,
                      WFC_THREADS, &a);
}

weft_status wfc_run_prod_grad(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[1];
    bool gone[WEFT_MAX_RANK];
    struct wfc_prod_grad a = {
        .dtype = (int32_t)x->type.dtype, .dy = c->in[0].data, .x = x->data, .out = c->out[0].data};
    struct split s;

    marked_axes(c->op, c->attr, x->type.rank, gone);
    s = split_axes(x->type.rank, x->type.dim, gone);
    a.n_out = (uint32_t)s.n_out;
    a.n_each = (uint32_t)s.n_each;
    a.kept = s.kept;
    a.gone = s.gone;
    return wf_count(x) ? wfc_launch_each(c, WFC_K_wfc_prod_grad + wfc_wide(c), s.n_out, &a)
                       : WEFT_OK;
}

/* ---- along one axis -------------------------------------------------------------------------- */

weft_status wfc_run_arg(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    bool gone[WEFT_MAX_RANK] = {false};
    struct wfc_reduce_args a = {.code = c->op->id == WF_OP_argmax ? WFC_ARGMAX : WFC_ARGMIN,
                                .in_dtype = (int32_t)x->type.dtype,
                                .out_dtype = (int32_t)y->type.dtype,
                                .in = x->data,
                                .out = y->data};
    struct split s;

    gone[wf_axis_of(wf_call_int(c, "axis"), x->type.rank)] = true;
    s = split_axes(x->type.rank, x->type.dim, gone);
    a.n_out = (uint32_t)s.n_out;
    a.n_each = (uint32_t)s.n_each;
    a.kept = s.kept;
    a.gone = s.gone;
    return wfc_launch_each(c, WFC_K_wfc_arg, wf_count(y), &a);
}

weft_status wfc_run_cumsum(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), x->rank);
    struct wfc_cumsum a = {.n = (uint32_t)x->dim[axis],
                           .stride = (uint32_t)wf_type_part(x, axis + 1, x->rank),
                           .dtype = (int32_t)x->dtype,
                           .exclusive = (int32_t)wf_call_int(c, "exclusive"),
                           .reverse = (int32_t)wf_call_int(c, "reverse"),
                           .in = c->in[0].data,
                           .out = c->out[0].data};

    a.n_rows = (uint32_t)(wf_type_part(x, 0, axis) * a.stride);
    return wfc_launch_each(
        c, wf_is_float(x->dtype) ? WFC_K_wfc_cumsum + wfc_wide(c) : WFC_K_wfc_cumsum_int, a.n_rows,
        &a);
}

/* ---- tile_grad: each axis of dy is copies and elements; the copies are summed ---------------- */

static struct split tile_split(const struct wf_type *dy, const struct wf_type *x)
{
    int64_t dim[2 * WEFT_MAX_RANK];
    bool gone[2 * WEFT_MAX_RANK];

    for (int a = 0; a < x->rank; a++) {
        dim[2 * a] = x->dim[a] ? dy->dim[a] / x->dim[a] : 1;
        gone[2 * a] = true;
        dim[2 * a + 1] = x->dim[a];
        gone[2 * a + 1] = false;
    }
    return split_axes(2 * x->rank, dim, gone);
}

weft_status wfc_plan_tile_grad(struct wf_kplan *p)
{
    struct split s = tile_split(&p->in[0], &p->out[0]);

    p->scratch_bytes = wf_type_count(&p->out[0]) ? scratch_of(&s) : 0;
    return wfc_plan_floats(p);
}

weft_status wfc_run_tile_grad(const struct wf_call *c)
{
    struct split s = tile_split(&c->in[0].type, &c->out[0].type);

    return wf_count(&c->out[0]) ? run_split(c, &s, WFC_SUM, &c->in[0], &c->out[0], c->scratch)
                                : WEFT_OK;
}

#endif
