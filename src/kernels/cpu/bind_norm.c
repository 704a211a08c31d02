/* bind_norm.c - the normalisations on their row and channel kernels, f32. */
#include "kernels/cpu/norm.h"
#include "kernels/kernels.h"

weft_status wf_plan_layer_norm(struct wf_kplan *p);
weft_status wf_plan_layer_norm_grad(struct wf_kplan *p);
weft_status wf_plan_batch_norm(struct wf_kplan *p);
weft_status wf_plan_batch_norm_grad(struct wf_kplan *p);
weft_status wf_plan_group_norm(struct wf_kplan *p);
weft_status wf_plan_group_norm_grad(struct wf_kplan *p);
wf_kernel_fn wf_run_layer_norm, wf_run_layer_norm_grad, wf_run_rms_norm, wf_run_rms_norm_grad,
    wf_run_chan_norm, wf_run_chan_norm_grad;

struct norm {
    const struct wf_norm_fns *fns;
    int64_t n_rows, width;      /* layer and RMS norm */
    struct wf_chan_shape shape; /* batch and group norm */
    float eps;
};

static weft_status new_norm(struct wf_kplan *p, struct norm **out)
{
    struct norm *s;

    if (!wf_kplan_all(p, WEFT_F32))
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, p->op->name);
    s->fns = wf_norm_fns_at(p->ctx->simd);
    p->state = s;
    *out = s;
    return WEFT_OK;
}

static float *operand(const struct wf_call *c, int i)
{
    return i < c->n_in ? c->in[i].data : NULL;
}

static int64_t product(const struct wf_type *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

/* ---- layer and RMS norm ---------------------------------------------------------------------- */

static weft_status plan_rows(struct wf_kplan *p, const struct wf_type *x, struct norm **out)
{
    int cut = x->rank - (int)wf_kplan_int(p, "n_axes");
    weft_status st = new_norm(p, out);

    if (st)
        return st;
    (*out)->n_rows = product(x, 0, cut);
    (*out)->width = product(x, cut, x->rank);
    return WEFT_OK;
}

weft_status wf_plan_layer_norm(struct wf_kplan *p)
{
    struct norm *s;
    weft_status st = plan_rows(p, &p->in[0], &s);

    if (!st)
        s->eps = (float)wf_kplan_float(p, "epsilon");
    return st;
}

weft_status wf_plan_layer_norm_grad(struct wf_kplan *p)
{
    struct norm *s;
    weft_status st = plan_rows(p, &p->in[1], &s);

    if (!st)
        p->scratch_bytes = (size_t)wf_layer_norm_scratch(s->n_rows, s->width) * sizeof(float);
    return st;
}

weft_status wf_run_layer_norm(const struct wf_call *c)
{
    const struct norm *s = c->state;

    wf_layer_norm(s->fns, c->pool,
                  &(struct wf_layer_norm){.n_rows = s->n_rows,
                                          .width = s->width,
                                          .eps = s->eps,
                                          .x = c->in[0].data,
                                          .gamma = operand(c, 1),
                                          .beta = operand(c, 2),
                                          .y = c->out[0].data,
                                          .mean = c->out[1].data,
                                          .rstd = c->out[2].data});
    return WEFT_OK;
}

weft_status wf_run_rms_norm(const struct wf_call *c)
{
    const struct norm *s = c->state;

    wf_layer_norm(s->fns, c->pool,
                  &(struct wf_layer_norm){.n_rows = s->n_rows,
                                          .width = s->width,
                                          .rms = true,
                                          .eps = s->eps,
                                          .x = c->in[0].data,
                                          .gamma = operand(c, 1),
                                          .y = c->out[0].data,
                                          .rstd = c->out[1].data});
    return WEFT_OK;
}

weft_status wf_run_layer_norm_grad(const struct wf_call *c)
{
    const struct norm *s = c->state;

    wf_layer_norm_grad(s->fns, c->pool,
                       &(struct wf_layer_norm_grad){.n_rows = s->n_rows,
                                                    .width = s->width,
                                                    .dy = c->in[0].data,
                                                    .x = c->in[1].data,
                                                    .mean = c->in[2].data,
                                                    .rstd = c->in[3].data,
                                                    .gamma = operand(c, 4),
                                                    .dx = c->out[0].data,
                                                    .dgamma = c->out[1].data,
                                                    .dbeta = c->out[2].data,
                                                    .scratch = c->scratch});
    return WEFT_OK;
}

weft_status wf_run_rms_norm_grad(const struct wf_call *c)
{
    const struct norm *s = c->state;

    wf_layer_norm_grad(s->fns, c->pool,
                       &(struct wf_layer_norm_grad){.n_rows = s->n_rows,
                                                    .width = s->width,
                                                    .rms = true,
                                                    .dy = c->in[0].data,
                                                    .x = c->in[1].data,
                                                    .rstd = c->in[2].data,
                                                    .gamma = operand(c, 3),
                                                    .dx = c->out[0].data,
                                                    .dgamma = c->out[1].data,
                                                    .scratch = c->scratch});
    return WEFT_OK;
}

/* ---- batch and group norm -------------------------------------------------------------------- */

static weft_status plan_channels(struct wf_kplan *p, const struct wf_type *x, bool batch)
{
    int64_t channels = x->dim[x->rank - 1], groups = batch ? channels : wf_kplan_int(p, "groups");
    struct norm *s;
    weft_status st = new_norm(p, &s);

    if (st)
        return st;
    s->eps = (float)wf_kplan_float(p, "epsilon");
    s->shape = (struct wf_chan_shape){batch ? 1 : x->dim[0], product(x, batch ? 0 : 1, x->rank - 1),
                                      channels, groups < 0 ? channels : groups};
    p->scratch_bytes = (size_t)wf_chan_scratch(&s->shape) * sizeof(float);
    return WEFT_OK;
}

weft_status wf_plan_batch_norm(struct wf_kplan *p)
{
    return plan_channels(p, &p->in[0], true);
}

weft_status wf_plan_batch_norm_grad(struct wf_kplan *p)
{
    return plan_channels(p, &p->in[1], true);
}

weft_status wf_plan_group_norm(struct wf_kplan *p)
{
    return plan_channels(p, &p->in[0], false);
}

weft_status wf_plan_group_norm_grad(struct wf_kplan *p)
{
    return plan_channels(p, &p->in[1], false);
}

weft_status wf_run_chan_norm(const struct wf_call *c)
{
    const struct norm *s = c->state;
    float *mean = c->out[1].data, *var = c->out[2].data;

    wf_chan_stats(s->fns, c->pool, &s->shape, c->in[0].data, mean, var, c->scratch);
    wf_chan_norm(s->fns, c->pool,
                 &(struct wf_chan_norm){.shape = s->shape,
                                        .x = c->in[0].data,
                                        .mean = mean,
                                        .var = var,
                                        .eps = s->eps,
                                        .gamma = operand(c, 1),
                                        .beta = operand(c, 2),
                                        .y = c->out[0].data,
                                        .scratch = c->scratch});
    return WEFT_OK;
}

weft_status wf_run_chan_norm_grad(const struct wf_call *c)
{
    const struct norm *s = c->state;

    wf_chan_grad(s->fns, c->pool,
                 &(struct wf_chan_grad){.shape = s->shape,
                                        .dy = c->in[0].data,
                                        .x = c->in[1].data,
                                        .mean = c->in[2].data,
                                        .var = c->in[3].data,
                                        .eps = s->eps,
                                        .gamma = operand(c, 4),
                                        .dx = c->out[0].data,
                                        .dgamma = c->out[1].data,
                                        .dbeta = c->out[2].data,
                                        .scratch = c->scratch});
    return WEFT_OK;
}
