/* bind_optim.c - updates of variables on the optimizer kernels. */
#include "kernels/cpu/apply.h"
#include "kernels/cpu/weight.h"

weft_status wf_plan_apply(struct wf_kplan *p);
weft_status wf_plan_apply_rows(struct wf_kplan *p);
weft_status wf_plan_clip_factor(struct wf_kplan *p);
weft_status wf_plan_penalty_grad(struct wf_kplan *p);
wf_kernel_fn wf_run_apply, wf_run_apply_rows, wf_run_clip_factor, wf_run_penalty_grad;

void wf_apply_init(struct wf_apply *a, const struct wf_op *op, const struct wf_attr *attr,
                   weft_simd level)
{
    const struct wf_attr *s = wf_attr(op, attr, "schedule_params");

    *a = (struct wf_apply){
        .row = wf_optim_find(wf_attr_str(op, attr, "optimizer")),
        .attrs = wf_attr(op, attr, "params")->floats,
        .schedule = wf_schedule_find(wf_attr_str(op, attr, "schedule")),
        .schedule_attrs = s->floats,
        .n_schedule = s->n,
        .fns = wf_optim_fns_at(level),
    };
}

void wf_apply_scalars(const struct wf_apply *a, const struct wf_call *c, int first,
                      struct wf_optim_scalars *out)
{
    const float *given_rate = c->in[first].data, *scale = c->in[first + 1].data;
    double rate = a->attrs[WF_OPTIM_ATTR_LR];

    if (given_rate)
        rate = *given_rate;
    else if (a->schedule)
        rate = wf_schedule_rate(a->schedule, a->schedule_attrs,
                                a->schedule_attrs + a->schedule->n_attrs,
                                a->n_schedule - a->schedule->n_attrs, c->iteration - 1);
    wf_optim_prepare(a->row, a->attrs, rate, c->iteration, scale ? *scale : 1, out);
}

void wf_apply_run(const struct wf_apply *a, const struct wf_call *c, struct wf_pool *pool,
                  double *lamb_sums)
{
    struct wf_optim_scalars k;
    float *w = c->in[0].data, *slot[WF_OPTIM_MAX_SLOTS];
    const float *g = c->in[1].data;
    int64_t n = wf_count(&c->in[0]);

    wf_apply_scalars(a, c, 2, &k);
    for (int i = 0; i < WF_OPTIM_MAX_SLOTS; i++)
        slot[i] = c->in[c->n_in - WF_OPTIM_MAX_SLOTS + i].data;
    if (k.form != WF_OPTIM_LAMB) {
        wf_optim_update(a->fns, pool, &k, n, w, g, slot);
        return;
    }
    wf_lamb_slots(a->fns, pool, &k, n, w, g, slot[0], slot[1], lamb_sums);
    wf_lamb_apply(a->fns, pool, &k, wf_lamb_ratio(lamb_sums, wf_norm_blocks(n)), n, w, slot[0],
                  slot[1]);
}

size_t wf_apply_rows_scratch(int64_t n)
{
    return (size_t)(wf_round_up(n * 8, 64) + 2 * wf_round_up(n * 4, 64) +
                    wf_round_up(wf_dedupe_scratch(n), 64));
}

weft_status wf_apply_rows_run(const struct wf_apply *a, const struct wf_call *c,
                              struct wf_pool *pool, void *scratch)
{
    int64_t n = wf_count(&c->in[1]), width = c->in[0].type.dim[1];
    struct wf_dedupe d = {.ids = c->in[1].data,
                          .wide = c->in[1].type.dtype == WEFT_I64,
                          .id_stride = 1,
                          .n = n,
                          .n_rows = c->in[0].type.dim[0]};
    struct wf_optim_table t = {
        .w = c->in[0].data, .width = width, .g = c->in[2].data, .g_stride = width};
    struct wf_optim_scalars k;
    char *mem = scratch;

    wf_apply_scalars(a, c, 3, &k);
    d.rows = (int64_t *)(void *)mem;
    d.first = (int32_t *)(void *)(mem += wf_round_up(n * 8, 64));
    d.next = (int32_t *)(void *)(mem += wf_round_up(n * 4, 64));
    d.scratch = mem + wf_round_up(n * 4, 64);
    if (wf_dedupe_run(pool, &d, 1) >= 0)
        return wf_err(WEFT_EDATA, "id %lld at position %lld is not in [0, %lld)",
                      (long long)wf_get_int(d.ids, c->in[1].type.dtype, d.bad), (long long)d.bad,
                      (long long)d.n_rows);
    for (int i = 0; i < WF_OPTIM_MAX_SLOTS; i++)
        t.slot[i] = c->in[c->n_in - WF_OPTIM_MAX_SLOTS + i].data;
    t.rows = d.rows;
    t.n = d.n_distinct;
    t.first = d.first;
    t.next = d.next;
    wf_optim_update_tables(a->fns, pool, &k, &t, 1);
    return WEFT_OK;
}

static weft_status plan_update(struct wf_kplan *p)
{
    struct wf_apply *a = wf_arena_alloc(p->arena, sizeof *a);

    if (!a)
        return wf_err_nomem(p->ctx, sizeof *a, "update");
    wf_apply_init(a, p->op, p->attr, p->ctx->simd);
    p->state = a;
    p->impl = a->row->name;
    return WEFT_OK;
}

weft_status wf_plan_apply(struct wf_kplan *p)
{
    p->scratch_bytes = (size_t)wf_norm_blocks(wf_type_count(&p->in[0])) * 2 * sizeof(double);
    return plan_update(p);
}

weft_status wf_plan_apply_rows(struct wf_kplan *p)
{
    p->scratch_bytes = wf_apply_rows_scratch(wf_type_count(&p->in[1]));
    return plan_update(p);
}

weft_status wf_run_apply(const struct wf_call *c)
{
    wf_apply_run(c->state, c, c->pool, c->scratch);
    return WEFT_OK;
}

weft_status wf_run_apply_rows(const struct wf_call *c)
{
    return wf_apply_rows_run(c->state, c, c->pool, c->scratch);
}

/* ---- what updates need besides --------------------------------------------------------------- */

weft_status wf_plan_clip_factor(struct wf_kplan *p)
{
    int64_t n_blocks = 0;

    if (!wf_kplan_all(p, WEFT_F32))
        return WEFT_ENOSUP;
    for (int i = 0; i < p->n_in; i++)
        n_blocks += wf_norm_blocks(wf_type_count(&p->in[i]));
    p->scratch_bytes =
        (size_t)(n_blocks + p->n_in) * sizeof(double) + (size_t)p->n_in * sizeof(struct wf_span);
    return WEFT_OK;
}

weft_status wf_run_clip_factor(const struct wf_call *c)
{
    double *sq = c->scratch;
    struct wf_span *spans = (struct wf_span *)(void *)(sq + c->n_in);

    for (int i = 0; i < c->n_in; i++)
        spans[i] = (struct wf_span){c->in[i].data, wf_count(&c->in[i])};
    wf_span_sumsq(wf_optim_fns_at(c->ctx->simd), c->pool, spans, c->n_in,
                  (double *)(void *)(spans + c->n_in), sq);
    *(float *)c->out[0].data =
        (float)wf_clip_scale(wf_global_norm(sq, c->n_in), wf_call_float(c, "limit"));
    return WEFT_OK;
}

weft_status wf_plan_penalty_grad(struct wf_kplan *p)
{
    const struct wf_type *t = &p->in[0];

    if (!wf_kplan_all(p, WEFT_F32))
        return WEFT_ENOSUP;
    if (wf_kplan_float(p, "orthogonal") != 0)
        p->scratch_bytes = (size_t)wf_orthogonal_scratch(t->dim[0], t->dim[1]) * sizeof(float);
    return WEFT_OK;
}

weft_status wf_run_penalty_grad(const struct wf_call *c)
{
    struct wf_penalty p = {wf_call_float(c, "l1"), wf_call_float(c, "l2"),
                           wf_call_float(c, "orthogonal"), wf_call_int(c, "columns") != 0};
    const struct wf_type *t = &c->in[0].type;
    int64_t n = wf_count(&c->in[0]);
    float *g = c->out[0].data;

    for (int64_t i = 0; i < n; i++)
        g[i] = 0;
    wf_penalty_add(wf_optim_fns_at(c->ctx->simd), &p, n, c->in[0].data, g);
    if (p.orthogonal != 0)
        wf_orthogonal_add(c->pool, &p, t->dim[0], t->dim[1], c->in[0].data, g, c->scratch);
    return WEFT_OK;
}
