/* bind_pool.c - pooling and resizing on the CPU: f32, vectors over channels.
 *
 * A task is some rows of pixels of the result. Average pooling, resizing and their gradients are
 * weighted sums of pixels: for each axis and each place along it, a plan lists which places of the
 * other side count, and how much; the weights of a pixel are products of three. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/pool_kernel.h"
#include "kernels/kernels.h"
#include "op/conv.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels_conv.def"
#undef KERNEL

enum { TASK_FLOATS = 16384, MAX_BLEND = 512 };

WF_LEVELS(wf_pool_fns, wf_pool_fns_of);

/* Rows of pixels (the last spatial axis) per task: as many as make TASK_FLOATS elements. */
static int64_t rows_of_task(int64_t row_floats)
{
    return wf_max_i64(TASK_FLOATS / wf_max_i64(row_floats, 1), 1);
}

static int64_t n_tasks(int64_t n_rows, int64_t rows)
{
    return (n_rows + rows - 1) / rows;
}

/* ---- maximum --------------------------------------------------------------------------------- */

struct max_pool {
    const struct wf_pool_fns *fns;
    struct wf_window w;
    int64_t batch, channels;
    int64_t n_rows, rows; /* of pixels of the result: in all, in a task */
    bool apart;           /* gradient: windows do not overlap and begin at the edge */
};

struct max_run {
    const struct max_pool *p;
    const float *in;
    float *out;
    uint8_t *arg_out;
    const uint8_t *arg;
};

static weft_status plan_max(struct wf_kplan *p, const struct wf_type *x,
                            const struct wf_type *argmax, bool back)
{
    struct max_pool *s;

    if (x->dtype != WEFT_F32 || argmax->dtype != WEFT_U8)
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, "max_pool");
    s->fns = wf_pool_fns_of(p->ctx->simd);
    wf_pool_window(p->op, p->attr, x, &s->w);
    s->batch = x->dim[0];
    s->channels = x->dim[x->rank - 1];
    const int64_t *size = back ? s->w.in : s->w.out;

    s->n_rows = s->batch * size[0] * size[1];
    s->rows = rows_of_task(size[2] * s->channels);
    s->apart = true;
    for (int a = 0; a < 3; a++)
        s->apart = s->apart && s->w.stride[a] == s->w.k[a] && s->w.lo[a] == 0 &&
                   s->w.out[a] * s->w.k[a] <= s->w.in[a];
    if (back && !s->apart) {
        /* At most this many windows see one pixel. */
        int64_t n = 1;

        for (int a = 0; a < 3; a++)
            n *= (s->w.k[a] + s->w.stride[a] - 1) / s->w.stride[a];
        if (n > MAX_BLEND)
            return WEFT_ENOSUP;
    }
    p->state = s;
    return WEFT_OK;
}

weft_status wf_plan_max_pool(struct wf_kplan *p)
{
    return plan_max(p, &p->in[0], &p->out[1], false);
}

weft_status wf_plan_max_pool_grad(struct wf_kplan *p)
{
    return plan_max(p, &p->out[0], &p->in[1], true);
}

/* The taps of window o along axis a that are not padding. */
static void clip(const struct wf_window *w, int a, int64_t o, int64_t *from, int64_t *to)
{
    int64_t first = o * w->stride[a] - w->lo[a];

    *from = wf_max_i64(0, -first);
    *to = wf_min_i64(w->k[a], w->in[a] - first);
}

/* Windows of one row, those without padding along the row in one call. */
static void max_row(const struct max_run *r, int64_t row)
{
    const struct max_pool *p = r->p;
    const struct wf_window *w = &p->w;
    int64_t h = row % w->out[1], d = row / w->out[1] % w->out[0], n = row / w->out[1] / w->out[0];
    struct wf_max_row m = {.x = r->in,
                           .x_step = w->stride[2] * p->channels,
                           .line = w->in[2] * p->channels,
                           .k = {w->k[0], w->k[1], w->k[2]},
                           .channels = p->channels};
    int64_t line =
        (n * w->in[0] + d * w->stride[0] - w->lo[0]) * w->in[1] + h * w->stride[1] - w->lo[1];

    m.plane = w->in[1] * m.line;
    clip(w, 0, d, &m.from[0], &m.to[0]);
    clip(w, 1, h, &m.from[1], &m.to[1]);
    for (int64_t o = 0; o < w->out[2]; o += m.n) {
        clip(w, 2, o, &m.from[2], &m.to[2]);
        m.n = 1;
        if (m.from[2] == 0 && m.to[2] == w->k[2])
            m.n = wf_min_i64(w->out[2] - o, (w->in[2] + w->lo[2] - w->k[2]) / w->stride[2] - o + 1);
        m.at = (line * w->in[2] + o * w->stride[2] - w->lo[2]) * p->channels;
        m.y = r->out + (row * w->out[2] + o) * p->channels;
        m.arg = r->arg_out ? r->arg_out + (row * w->out[2] + o) * p->channels : NULL;
        p->fns->max(&m);
    }
}

static void max_task(void *arg, int64_t task, int thread)
{
    const struct max_run *r = arg;
    int64_t to = wf_min_i64((task + 1) * r->p->rows, r->p->n_rows);

    (void)thread;
    for (int64_t row = task * r->p->rows; row < to; row++)
        max_row(r, row);
}

weft_status wf_run_max_pool(const struct wf_call *c)
{
    const struct max_pool *p = c->state;
    struct max_run r = {
        .p = p, .in = c->in[0].data, .out = c->out[0].data, .arg_out = c->out[1].data};

    if (p->channels)
        wf_pool_for(c->pool, n_tasks(p->n_rows, p->rows), max_task, &r);
    return WEFT_OK;
}

/* The windows that see position i of axis a: outputs [from, to). */
static void seen_by(const struct wf_window *w, int a, int64_t i, int64_t *from, int64_t *to)
{
    int64_t last = i + w->lo[a];

    *from = last < w->k[a] ? 0 : (last - w->k[a]) / w->stride[a] + 1;
    *to = wf_min_i64(w->out[a], last / w->stride[a] + 1);
}

/* One row of dx, summed over the windows that see each pixel. */
static void collect_row(const struct max_run *r, int64_t row)
{
    const struct max_pool *p = r->p;
    const struct wf_window *w = &p->w;
    int64_t h = row % w->in[1], d = row / w->in[1] % w->in[0], n = row / w->in[1] / w->in[0];
    int64_t from[3], to[3], offset[MAX_BLEND];
    int32_t tap[MAX_BLEND];

    seen_by(w, 0, d, &from[0], &to[0]);
    seen_by(w, 1, h, &from[1], &to[1]);
    for (int64_t i = 0; i < w->in[2]; i++) {
        int64_t m = 0;

        seen_by(w, 2, i, &from[2], &to[2]);
        for (int64_t od = from[0]; od < to[0]; od++)
            for (int64_t oh = from[1]; oh < to[1]; oh++)
                for (int64_t ow = from[2]; ow < to[2]; ow++, m++) {
                    int64_t kd = d + w->lo[0] - od * w->stride[0],
                            kh = h + w->lo[1] - oh * w->stride[1];
                    int64_t kw = i + w->lo[2] - ow * w->stride[2];

                    offset[m] =
                        (((n * w->out[0] + od) * w->out[1] + oh) * w->out[2] + ow) * p->channels;
                    tap[m] = (int32_t)((kd * w->k[1] + kh) * w->k[2] + kw);
                }
        p->fns->max_collect(r->out + (row * w->in[2] + i) * p->channels, r->in, r->arg, m, offset,
                            tap, p->channels);
    }
}

/* Rows of dx covered by the windows of one output row; positions that no window covers are
 * cleared. */
static void spread_rows(const struct max_run *r, int64_t n, int64_t d, int64_t h)
{
    const struct max_pool *p = r->p;
    const struct wf_window *w = &p->w;
    int64_t line = w->in[2] * p->channels, plane = w->in[1] * line,
            o = ((n * w->out[0] + d) * w->out[1] + h);
    int64_t covered = w->out[2] * w->k[2] * p->channels;
    float *dx = r->out + (n * w->in[0] + d * w->k[0]) * plane + h * w->k[1] * line;
    struct wf_max_spread s = {.dx = dx,
                              .plane = plane,
                              .line = line,
                              .k = {w->k[0], w->k[1], w->k[2]},
                              .n = w->out[2],
                              .channels = p->channels,
                              .dy = r->in + o * w->out[2] * p->channels,
                              .arg = r->arg + o * w->out[2] * p->channels};

    p->fns->max_spread(&s);
    for (int64_t i = 0; i < w->k[0] * w->k[1] && covered < line; i++)
        memset(dx + i / w->k[1] * plane + i % w->k[1] * line + covered, 0,
               (size_t)(line - covered) * sizeof *dx);
}

/* A row of dx: the first of its window handles all of them; rows beyond the windows are cleared. */
static void spread_row(const struct max_run *r, int64_t row)
{
    const struct max_pool *p = r->p;
    const struct wf_window *w = &p->w;
    int64_t h = row % w->in[1], d = row / w->in[1] % w->in[0], n = row / w->in[1] / w->in[0];

    if (d >= w->out[0] * w->k[0] || h >= w->out[1] * w->k[1])
        memset(r->out + row * w->in[2] * p->channels, 0,
               (size_t)(w->in[2] * p->channels) * sizeof *r->out);
    else if (d % w->k[0] == 0 && h % w->k[1] == 0)
        spread_rows(r, n, d / w->k[0], h / w->k[1]);
}

static void max_grad_task(void *arg, int64_t task, int thread)
{
    const struct max_run *r = arg;
    int64_t to = wf_min_i64((task + 1) * r->p->rows, r->p->n_rows);

    (void)thread;
    for (int64_t row = task * r->p->rows; row < to; row++)
        if (r->p->apart)
            spread_row(r, row);
        else
            collect_row(r, row);
}

static weft_status bad_arg(const struct wf_call *c, int64_t at)
{
    return wf_err(WEFT_EDATA, "%s: argmax[%lld] is %d, which is outside its window", c->op->name,
                  (long long)at, ((const uint8_t *)c->in[1].data)[at]);
}

/* Every position must be that of a tap, and not of one in the padding. */
static weft_status check_args(const struct wf_call *c, const struct max_pool *p)
{
    const struct wf_window *w = &p->w;
    const uint8_t *arg = c->in[1].data;
    int64_t n = wf_count(&c->in[1]), n_k = w->k[0] * w->k[1] * w->k[2],
            n_o = w->out[0] * w->out[1] * w->out[2];
    uint8_t most = 0;

    for (int64_t i = 0; i < n; i++)
        most = arg[i] > most ? arg[i] : most;
    for (int64_t i = 0; i < n && most >= n_k; i++)
        if (arg[i] >= n_k)
            return bad_arg(c, i);
    for (int64_t o = 0; o < n_o; o++) {
        int64_t at[3] = {o / w->out[2] / w->out[1], o / w->out[2] % w->out[1], o % w->out[2]};
        int64_t from[3], to[3];
        bool whole = true;

        for (int a = 0; a < 3; a++) {
            clip(w, a, at[a], &from[a], &to[a]);
            whole = whole && from[a] == 0 && to[a] == w->k[a];
        }
        for (int64_t i = 0; i < p->batch * p->channels && !whole; i++) {
            int64_t j = (i / p->channels * n_o + o) * p->channels + i % p->channels,
                    tap[3] = {arg[j] / w->k[2] / w->k[1], arg[j] / w->k[2] % w->k[1],
                              arg[j] % w->k[2]};

            for (int a = 0; a < 3; a++)
                if (tap[a] < from[a] || tap[a] >= to[a])
                    return bad_arg(c, j);
        }
    }
    return WEFT_OK;
}

weft_status wf_run_max_pool_grad(const struct wf_call *c)
{
    const struct max_pool *p = c->state;
    struct max_run r = {.p = p, .in = c->in[0].data, .arg = c->in[1].data, .out = c->out[0].data};
    weft_status st = p->channels ? check_args(c, p) : WEFT_OK;

    if (st)
        return st;
    if (p->channels)
        wf_pool_for(c->pool, n_tasks(p->n_rows, p->rows), max_grad_task, &r);
    return WEFT_OK;
}

/* ---- weighted sums: averages, resizing ------------------------------------------------------- */

/* The contributions to each position along one axis: entries [start[i], start[i + 1]). */
struct axis {
    int64_t *start, *at;
    double *weight;
};

struct blend {
    const struct wf_pool_fns *fns;
    struct axis axis[3];
    int64_t src[3], dst[3], batch, channels;
    int64_t n_rows, rows;
};

struct blend_run {
    const struct blend *b;
    const float *src;
    float *dst;
};

/* The weight of source place j in destination place i along an axis, and which j can have one. */
typedef double weigh_fn(const struct wf_window *w, const char *method, int a, int64_t i, int64_t j);
typedef void range_fn(const struct wf_window *w, const char *method, int a, int64_t i,
                      int64_t *from, int64_t *to);

static weft_status make_axis(struct wf_kplan *p, struct axis *x, const struct wf_window *w,
                             const char *method, int a, int64_t n, range_fn *range, weigh_fn *weigh)
{
    int64_t total = 0, from, to;

    x->start = wf_arena_alloc(p->arena, (size_t)(n + 1) * sizeof *x->start);
    if (!x->start)
        return wf_err_nomem(p->ctx, 0, p->op->name);
    for (int64_t i = 0; i < n; i++) {
        range(w, method, a, i, &from, &to);
        total += to - from;
    }
    x->at = wf_arena_alloc(p->arena, (size_t)(total + 1) * sizeof *x->at);
    x->weight = wf_arena_alloc(p->arena, (size_t)(total + 1) * sizeof *x->weight);
    if (!x->at || !x->weight)
        return wf_err_nomem(p->ctx, 0, p->op->name);
    total = 0;
    for (int64_t i = 0; i < n; i++) {
        range(w, method, a, i, &from, &to);
        for (int64_t j = from; j < to; j++) {
            double f = weigh(w, method, a, i, j);

            if (f == 0)
                continue;
            x->at[total] = j;
            x->weight[total++] = f;
        }
        x->start[i + 1] = total;
    }
    return WEFT_OK;
}

static int64_t most_entries(const struct axis *x, int64_t n)
{
    int64_t most = 0;

    for (int64_t i = 0; i < n; i++)
        most = wf_max_i64(most, x->start[i + 1] - x->start[i]);
    return most;
}

static weft_status plan_blend(struct wf_kplan *p, const struct wf_window *w, bool back,
                              range_fn *range, weigh_fn *weigh)
{
    const struct wf_type *src = &p->in[0], *dst = &p->out[0];
    const char *method = p->op->id == WF_OP_resize || p->op->id == WF_OP_resize_grad
                             ? wf_attr_str(p->op, p->attr, "method")
                             : "";
    struct blend *b;
    int64_t most = 1;

    if (src->dtype != WEFT_F32 || dst->dtype != WEFT_F32)
        return WEFT_ENOSUP;
    b = wf_arena_alloc(p->arena, sizeof *b);
    if (!b)
        return wf_err_nomem(p->ctx, sizeof *b, p->op->name);
    b->fns = wf_pool_fns_of(p->ctx->simd);
    b->batch = src->dim[0];
    b->channels = src->dim[src->rank - 1];
    for (int a = 0; a < 3; a++) {
        b->src[a] = back ? w->out[a] : w->in[a];
        b->dst[a] = back ? w->in[a] : w->out[a];
        weft_status st = make_axis(p, &b->axis[a], w, method, a, b->dst[a], range, weigh);

        if (st)
            return st;
        most *= wf_min_i64(most_entries(&b->axis[a], b->dst[a]), MAX_BLEND + 1);
    }
    if (most > MAX_BLEND)
        return WEFT_ENOSUP;
    b->n_rows = b->batch * b->dst[0] * b->dst[1];
    b->rows = rows_of_task(b->dst[2] * b->channels);
    p->state = b;
    return WEFT_OK;
}

static void blend_row(const struct blend_run *r, int64_t row)
{
    const struct blend *b = r->b;
    const struct axis *x = b->axis;
    int64_t h = row % b->dst[1], d = row / b->dst[1] % b->dst[0], n = row / b->dst[1] / b->dst[0];
    int64_t offset[MAX_BLEND];
    float weight[MAX_BLEND];

    for (int64_t i = 0; i < b->dst[2]; i++) {
        int64_t m = 0;

        for (int64_t e = x[0].start[d]; e < x[0].start[d + 1]; e++)
            for (int64_t f = x[1].start[h]; f < x[1].start[h + 1]; f++) {
                int64_t line = ((n * b->src[0] + x[0].at[e]) * b->src[1] + x[1].at[f]) * b->src[2];
                double share = x[0].weight[e] * x[1].weight[f];

                for (int64_t g = x[2].start[i]; g < x[2].start[i + 1]; g++, m++) {
                    offset[m] = (line + x[2].at[g]) * b->channels;
                    weight[m] = (float)(share * x[2].weight[g]);
                }
            }
        b->fns->blend(r->dst + (row * b->dst[2] + i) * b->channels, r->src, m, offset, weight,
                      b->channels);
    }
}

static void blend_task(void *arg, int64_t task, int thread)
{
    const struct blend_run *r = arg;
    int64_t to = wf_min_i64((task + 1) * r->b->rows, r->b->n_rows);

    (void)thread;
    for (int64_t row = task * r->b->rows; row < to; row++)
        blend_row(r, row);
}

weft_status wf_run_blend(const struct wf_call *c)
{
    const struct blend *b = c->state;
    struct blend_run r = {.b = b, .src = c->in[0].data, .dst = c->out[0].data};

    if (b->channels)
        wf_pool_for(c->pool, n_tasks(b->n_rows, b->rows), blend_task, &r);
    return WEFT_OK;
}

/* Average: window i contributes 1 / (number of its taps that are not padding) to each of them. */
static void avg_range(const struct wf_window *w, const char *method, int a, int64_t i,
                      int64_t *from, int64_t *to)
{
    int64_t first = i * w->stride[a] - w->lo[a];

    (void)method;
    *from = wf_max_i64(first, 0);
    *to = wf_min_i64(first + w->k[a], w->in[a]);
}

static double avg_weight(const struct wf_window *w, const char *method, int a, int64_t i, int64_t j)
{
    int64_t from, to;

    (void)j;
    avg_range(w, method, a, i, &from, &to);
    return 1.0 / (double)(to - from);
}

static void avg_grad_range(const struct wf_window *w, const char *method, int a, int64_t i,
                           int64_t *from, int64_t *to)
{
    (void)method;
    seen_by(w, a, i, from, to);
    *to = wf_max_i64(*from, *to);
}

static double avg_grad_weight(const struct wf_window *w, const char *method, int a, int64_t i,
                              int64_t j)
{
    return avg_weight(w, method, a, j, i);
}

weft_status wf_plan_avg_pool(struct wf_kplan *p)
{
    struct wf_window w;

    wf_pool_window(p->op, p->attr, &p->in[0], &w);
    return plan_blend(p, &w, false, avg_range, avg_weight);
}

weft_status wf_plan_avg_pool_grad(struct wf_kplan *p)
{
    struct wf_window w;

    wf_pool_window(p->op, p->attr, &p->out[0], &w);
    return plan_blend(p, &w, true, avg_grad_range, avg_grad_weight);
}

/* Resizing: the window has only the sizes. */
static double resize_weight(const struct wf_window *w, const char *method, int a, int64_t i,
                            int64_t j)
{
    struct wf_resize_at s = wf_resize_source(!strcmp(method, "bilinear"), w->in[a], w->out[a], i);

    return (s.a == j ? 1 - s.f : 0) + (s.b == j ? s.f : 0);
}

static void resize_range(const struct wf_window *w, const char *method, int a, int64_t i,
                         int64_t *from, int64_t *to)
{
    struct wf_resize_at s = wf_resize_source(!strcmp(method, "bilinear"), w->in[a], w->out[a], i);

    *from = s.a;
    *to = s.b + 1;
}

static double resize_grad_weight(const struct wf_window *w, const char *method, int a, int64_t i,
                                 int64_t j)
{
    return resize_weight(w, method, a, j, i);
}

static void resize_grad_range(const struct wf_window *w, const char *method, int a, int64_t i,
                              int64_t *from, int64_t *to)
{
    double ratio = (double)w->out[a] / (double)w->in[a];

    (void)method;
    *from = wf_max_i64((int64_t)((double)(i - 1) * ratio) - 1, 0);
    *to = wf_min_i64((int64_t)((double)(i + 2) * ratio) + 2, w->out[a]);
}

static struct wf_window sizes(const struct wf_type *x, const struct wf_type *y)
{
    struct wf_window w = {.n = x->rank - 2, .in = {1, 1, 1}, .out = {1, 1, 1}};

    for (int i = 1; i < x->rank - 1; i++) {
        w.in[3 - (x->rank - 1) + i] = x->dim[i];
        w.out[3 - (x->rank - 1) + i] = y->dim[i];
    }
    return w;
}

weft_status wf_plan_resize(struct wf_kplan *p)
{
    struct wf_window w = sizes(&p->in[0], &p->out[0]);

    return plan_blend(p, &w, false, resize_range, resize_weight);
}

weft_status wf_plan_resize_grad(struct wf_kplan *p)
{
    struct wf_window w = sizes(&p->out[0], &p->in[0]);

    return plan_blend(p, &w, true, resize_grad_range, resize_grad_weight);
}
