/* bind_nn.c - softmax, its losses, norms of many tensors and small updates on the row kernels. */
#include "kernels/cpu/optim.h"
#include "kernels/cpu/rowops.h"
#include "kernels/kernels.h"

weft_status wf_plan_softmax(struct wf_kplan *p);
weft_status wf_plan_sparse_xent(struct wf_kplan *p);
weft_status wf_plan_dense_xent(struct wf_kplan *p);
weft_status wf_plan_sigmoid_xent(struct wf_kplan *p);
weft_status wf_plan_assign(struct wf_kplan *p);
weft_status wf_plan_assign_f32(struct wf_kplan *p);
weft_status wf_plan_global_norm(struct wf_kplan *p);
wf_kernel_fn wf_run_softmax, wf_run_softmax_grad, wf_run_log_softmax, wf_run_log_softmax_grad,
    wf_run_sparse_xent, wf_run_dense_xent, wf_run_sigmoid_xent, wf_run_assign, wf_run_assign_add,
    wf_run_assign_ema, wf_run_global_norm;

/* A state in the plan's arena; NULL when memory is out, with the status in *st. */
static void *new_state(struct wf_kplan *p, size_t bytes, weft_status *st)
{
    void *s = wf_arena_alloc(p->arena, bytes);

    *st = s ? WEFT_OK : wf_err_nomem(p->ctx, bytes, p->op->name);
    p->state = s;
    return s;
}

/* ---- softmax --------------------------------------------------------------------------------- */

struct rows {
    const struct wf_row_fns *fns;
    int64_t n_rows, width;
};

/* Rows along the last axis that has more than one element behind it. */
weft_status wf_plan_softmax(struct wf_kplan *p)
{
    const struct wf_type *t = &p->out[0];
    int64_t axis = wf_kplan_int(p, "axis");
    struct rows *r;
    weft_status st;

    if (axis < 0)
        axis += t->rank;
    for (int i = (int)axis + 1; i < t->rank; i++)
        if (t->dim[i] != 1)
            return WEFT_ENOSUP;
    if (!wf_kplan_all(p, WEFT_F32))
        return WEFT_ENOSUP;
    r = new_state(p, sizeof *r, &st);
    if (st)
        return st;
    *r = (struct rows){wf_row_fns_at(p->ctx->simd), 1, t->dim[axis]};
    for (int i = 0; i < axis; i++)
        r->n_rows *= t->dim[i];
    return WEFT_OK;
}

weft_status wf_run_softmax(const struct wf_call *c)
{
    const struct rows *r = c->state;

    wf_softmax(r->fns, c->pool, r->n_rows, r->width, c->in[0].data, c->out[0].data);
    return WEFT_OK;
}

weft_status wf_run_log_softmax(const struct wf_call *c)
{
    const struct rows *r = c->state;

    wf_log_softmax(r->fns, c->pool, r->n_rows, r->width, c->in[0].data, c->out[0].data);
    return WEFT_OK;
}

weft_status wf_run_softmax_grad(const struct wf_call *c)
{
    const struct rows *r = c->state;

    wf_softmax_grad(r->fns, c->pool, r->n_rows, r->width, c->in[1].data, c->in[0].data,
                    c->out[0].data);
    return WEFT_OK;
}

weft_status wf_run_log_softmax_grad(const struct wf_call *c)
{
    const struct rows *r = c->state;

    wf_log_softmax_grad(r->fns, c->pool, r->n_rows, r->width, c->in[1].data, c->in[0].data,
                        c->out[0].data);
    return WEFT_OK;
}

/* ---- losses ---------------------------------------------------------------------------------- */

struct xent {
    const struct wf_row_fns *fns;
    struct wf_xent call; /* without its pointers */
};

static weft_status plan_xent(struct wf_kplan *p, struct xent **out)
{
    weft_status st;
    struct xent *x = new_state(p, sizeof *x, &st);

    if (st)
        return st;
    x->fns = wf_row_fns_at(p->ctx->simd);
    x->call.n_rows = wf_type_count(&p->out[0]);
    x->call.width = p->in[0].dim[p->in[0].rank - 1];
    x->call.scale = 1;
    *out = x;
    return WEFT_OK;
}

weft_status wf_plan_sparse_xent(struct wf_kplan *p)
{
    struct xent *x;
    weft_status st;

    if (p->in[0].dtype != WEFT_F32 || (p->in[1].dtype != WEFT_I32 && p->in[1].dtype != WEFT_I64))
        return WEFT_ENOSUP;
    st = plan_xent(p, &x);
    if (st)
        return st;
    x->call.wide = p->in[1].dtype == WEFT_I64;
    x->call.has_ignore = wf_kplan_int(p, "ignore");
    x->call.ignore = wf_kplan_int(p, "ignore_index");
    x->call.scale = (float)wf_kplan_float(p, "scale");
    return WEFT_OK;
}

weft_status wf_plan_dense_xent(struct wf_kplan *p)
{
    bool no_class = p->in[0].dim[p->in[0].rank - 1] == 0; /* the loss is a sum of nothing */
    struct xent *x;

    return wf_kplan_all(p, WEFT_F32) && !no_class ? plan_xent(p, &x) : WEFT_ENOSUP;
}

weft_status wf_run_sparse_xent(const struct wf_call *c)
{
    const struct xent *x = c->state;
    struct wf_xent call = x->call;
    int64_t bad;

    call.x = c->in[0].data;
    call.labels = c->in[1].data;
    call.loss = c->out[0].data;
    call.dx = c->out[1].data;
    bad = wf_xent_sparse(x->fns, c->pool, &call);
    if (bad < 0)
        return WEFT_OK;
    return wf_err(WEFT_EDATA, "%s: label %lld at position %lld is not in 0..%lld", c->op->name,
                  (long long)wf_get_int(c->in[1].data, c->in[1].type.dtype, bad), (long long)bad,
                  (long long)call.width - 1);
}

weft_status wf_run_dense_xent(const struct wf_call *c)
{
    const struct xent *x = c->state;
    struct wf_xent call = x->call;

    call.x = c->in[0].data;
    call.targets = c->in[1].data;
    call.loss = c->out[0].data;
    call.dx = c->out[1].data;
    wf_xent_dense(x->fns, c->pool, &call);
    return WEFT_OK;
}

weft_status wf_plan_sigmoid_xent(struct wf_kplan *p)
{
    weft_status st;
    struct rows *r;

    if (!wf_kplan_all(p, WEFT_F32) || !wf_type_same_shape(&p->in[0], &p->in[1]))
        return WEFT_ENOSUP;
    r = new_state(p, sizeof *r, &st);
    if (st)
        return st;
    *r = (struct rows){wf_row_fns_at(p->ctx->simd), 1, wf_type_count(&p->out[0])};
    return WEFT_OK;
}

weft_status wf_run_sigmoid_xent(const struct wf_call *c)
{
    const struct rows *r = c->state;
    struct wf_sigmoid_xent call = {.n = r->width,
                                   .x = c->in[0].data,
                                   .targets = c->in[1].data,
                                   .scale = 1,
                                   .loss = c->out[0].data};

    wf_xent_sigmoid(r->fns, c->pool, &call);
    return WEFT_OK;
}

/* ---- updates of variables -------------------------------------------------------------------- */

/* These serve moving averages and counters: short, hence one thread and plain loops. */
enum { COPY_BYTES = 1 << 18 };

struct copy {
    char *to;
    const char *from;
    int64_t n;
};

static void copy_tile(void *arg, int64_t tile, int thread)
{
    const struct copy *c = arg;
    int64_t at = tile * COPY_BYTES;

    (void)thread;
    memcpy(c->to + at, c->from + at, (size_t)wf_min_i64(COPY_BYTES, c->n - at));
}

weft_status wf_plan_assign(struct wf_kplan *p)
{
    (void)p;
    return WEFT_OK;
}

weft_status wf_run_assign(const struct wf_call *c)
{
    struct copy copy = {c->out[0].data, c->in[1].data, wf_type_bytes(&c->out[0].type)};

    if (copy.to != copy.from)
        wf_pool_for(c->pool, (copy.n + COPY_BYTES - 1) / COPY_BYTES, copy_tile, &copy);
    return WEFT_OK;
}

weft_status wf_plan_assign_f32(struct wf_kplan *p)
{
    return wf_kplan_all(p, WEFT_F32) ? WEFT_OK : WEFT_ENOSUP;
}

weft_status wf_run_assign_add(const struct wf_call *c)
{
    const float *v = c->in[0].data, *x = c->in[1].data;
    float *out = c->out[0].data;
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        out[i] = v[i] + x[i];
    return WEFT_OK;
}

weft_status wf_run_assign_ema(const struct wf_call *c)
{
    const float *v = c->in[0].data, *x = c->in[1].data;
    double momentum = wf_call_float(c, "momentum");
    float keep = (float)momentum, take = (float)(1 - momentum), *out = c->out[0].data;
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        out[i] = v[i] * keep + x[i] * take;
    return WEFT_OK;
}

/* ---- norms of many tensors ------------------------------------------------------------------- */

struct norm {
    const struct wf_optim_fns *fns;
    int64_t n_blocks;
};

weft_status wf_plan_global_norm(struct wf_kplan *p)
{
    struct norm *s;
    int64_t n_blocks = 0;
    weft_status st;

    if (!wf_kplan_all(p, WEFT_F32))
        return WEFT_ENOSUP;
    s = new_state(p, sizeof *s, &st);
    if (st)
        return st;
    for (int i = 0; i < p->n_in; i++)
        n_blocks += wf_norm_blocks(wf_type_count(&p->in[i]));
    *s = (struct norm){wf_optim_fns_at(p->ctx->simd), n_blocks};
    p->scratch_bytes =
        (size_t)(n_blocks + p->n_in) * sizeof(double) + (size_t)p->n_in * sizeof(struct wf_span);
    return WEFT_OK;
}

weft_status wf_run_global_norm(const struct wf_call *c)
{
    const struct norm *s = c->state;
    double *blocks = c->scratch, *sq = blocks + s->n_blocks;
    struct wf_span *spans = (struct wf_span *)(void *)(sq + c->n_in);

    for (int i = 0; i < c->n_in; i++)
        spans[i] = (struct wf_span){c->in[i].data, wf_count(&c->in[i])};
    wf_span_sumsq(s->fns, c->pool, spans, c->n_in, blocks, sq);
    *(float *)c->out[0].data = (float)wf_global_norm(sq, c->n_in);
    return WEFT_OK;
}
