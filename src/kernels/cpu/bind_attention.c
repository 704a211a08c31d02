/* bind_attention.c - attention and the softmax under a mask on their kernels, f32. */
#include <math.h>

#include "kernels/cpu/attention.h"
#include "kernels/kernels.h"

weft_status wf_plan_attention(struct wf_kplan *p);
weft_status wf_plan_attention_grad(struct wf_kplan *p);
weft_status wf_plan_attention_packed(struct wf_kplan *p);
weft_status wf_plan_attention_packed_grad(struct wf_kplan *p);
weft_status wf_plan_masked_softmax(struct wf_kplan *p);
wf_kernel_fn wf_run_attention, wf_run_attention_grad, wf_run_attention_packed,
    wf_run_attention_packed_grad, wf_run_masked_softmax;

/* ---- descriptions ---------------------------------------------------------------------------- */

static bool all_f32(const struct wf_kplan *p, int mask)
{
    for (int i = 0; i < p->n_in; i++)
        if (i != mask && p->in[i].dtype != WEFT_F32)
            return false;
    return p->out[0].dtype == WEFT_F32;
}

/* Which mask there is, and its steps over the last `n` axes of the scores. */
static int mask_kind(const struct wf_kplan *p, int i, int n, int64_t *step)
{
    int64_t stride = 1;

    if (i >= p->n_in || p->in[i].dtype == WEFT_NONE)
        return WF_MASK_NONE;
    for (int k = n - 1, a = p->in[i].rank - 1; a >= 0; a--, k--) {
        step[k] = p->in[i].dim[a] == 1 ? 0 : stride;
        stride *= p->in[i].dim[a];
    }
    return p->in[i].dtype == WEFT_BOOL ? WF_MASK_BOOL : WF_MASK_F32;
}

static struct wf_attention_strides plain_strides(const struct wf_type *t, bool head_first)
{
    const int64_t *d = t->dim;

    return (struct wf_attention_strides){d[1] * d[2] * d[3], d[3] * (head_first ? d[2] : 1),
                                         d[3] * (head_first ? 1 : d[2])};
}

static weft_status plan_desc(struct wf_kplan *p, struct wf_attention_desc *d, int mask,
                             bool backward)
{
    struct wf_attention *a;

    if (!all_f32(p, mask) || (mask < p->n_in && p->in[mask].dtype != WEFT_NONE &&
                              p->in[mask].dtype != WEFT_BOOL && p->in[mask].dtype != WEFT_F32))
        return WEFT_ENOSUP;
    a = wf_arena_alloc(p->arena, sizeof *a);
    if (!a)
        return wf_err_nomem(p->ctx, sizeof *a, p->op->name);
    d->causal = wf_kplan_int(p, "causal");
    d->scale = (float)wf_kplan_float(p, "scale");
    if (d->scale == 0)
        d->scale = (float)(1 / sqrt((double)d->d));
    d->mask = mask_kind(p, mask, 4, d->mask_step);
    wf_attention_plan(a, d, p->ctx->simd, backward, p->n_threads, &p->scratch_bytes);
    p->state = a;
    return WEFT_OK;
}

static weft_status plan_plain(struct wf_kplan *p, int first, int mask, bool backward)
{
    const struct wf_type *q = &p->in[first], *k = q + 1, *v = q + 2;
    bool head_first = !strcmp(wf_attr_str(p->op, p->attr, "layout"), "bhtd");
    int h = head_first ? 1 : 2;
    struct wf_attention_desc d = {.n_b = q->dim[0],
                                  .n_h = q->dim[h],
                                  .n_q = q->dim[3 - h],
                                  .n_k = k->dim[3 - h],
                                  .d = q->dim[3],
                                  .dv = v->dim[3]};

    d.q = plain_strides(q, head_first);
    d.k = plain_strides(k, head_first);
    d.v = plain_strides(v, head_first);
    d.y = plain_strides(backward ? &p->in[0] : &p->out[0], head_first);
    return plan_desc(p, &d, mask, backward);
}

static weft_status plan_packed(struct wf_kplan *p, const struct wf_type *qkv, int mask,
                               bool backward)
{
    int64_t t = qkv->dim[1], h = qkv->dim[3], depth = qkv->dim[4], row = h * depth;
    struct wf_attention_desc d = {
        .n_b = qkv->dim[0], .n_h = h, .n_q = t, .n_k = t, .d = depth, .dv = depth};

    d.q = d.k = d.v = (struct wf_attention_strides){t * 3 * row, depth, 3 * row};
    d.y = (struct wf_attention_strides){t * row, depth, row};
    return plan_desc(p, &d, mask, backward);
}

weft_status wf_plan_attention(struct wf_kplan *p)
{
    return plan_plain(p, 0, 3, false);
}

weft_status wf_plan_attention_grad(struct wf_kplan *p)
{
    return plan_plain(p, 1, 6, true);
}

weft_status wf_plan_attention_packed(struct wf_kplan *p)
{
    return plan_packed(p, &p->in[0], 1, false);
}

weft_status wf_plan_attention_packed_grad(struct wf_kplan *p)
{
    return plan_packed(p, &p->in[1], 4, true);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const void *mask_of(const struct wf_call *c, int i)
{
    return i < c->n_in ? c->in[i].data : NULL;
}

weft_status wf_run_attention(const struct wf_call *c)
{
    wf_attention_run(c->state, c->pool, c->in[0].data, c->in[1].data, c->in[2].data, mask_of(c, 3),
                     c->out[0].data, c->out[1].data, c->scratch);
    return WEFT_OK;
}

weft_status wf_run_attention_grad(const struct wf_call *c)
{
    struct wf_attention_grad t = {c->in[0].data,  c->in[1].data, c->in[2].data, c->in[3].data,
                                  c->in[4].data,  c->in[5].data, mask_of(c, 6), c->out[0].data,
                                  c->out[1].data, c->out[2].data};

    wf_attention_grad_run(c->state, c->pool, &t, c->scratch);
    return WEFT_OK;
}

weft_status wf_run_attention_packed(const struct wf_call *c)
{
    const struct wf_attention *a = c->state;
    const float *q = c->in[0].data;
    int64_t part = a->d.n_h * a->d.d;

    wf_attention_run(a, c->pool, q, q + part, q + 2 * part, mask_of(c, 1), c->out[0].data,
                     c->out[1].data, c->scratch);
    return WEFT_OK;
}

weft_status wf_run_attention_packed_grad(const struct wf_call *c)
{
    const struct wf_attention *a = c->state;
    const float *q = c->in[1].data;
    float *dq = c->out[0].data;
    int64_t part = a->d.n_h * a->d.d;
    struct wf_attention_grad t = {
        c->in[0].data, q,  q + part,  q + 2 * part, c->in[2].data, c->in[3].data,
        mask_of(c, 4), dq, dq + part, dq + 2 * part};

    wf_attention_grad_run(a, c->pool, &t, c->scratch);
    return WEFT_OK;
}

/* ---- softmax under a mask -------------------------------------------------------------------- */

enum { TILE_ROWS = 16 };

struct masked {
    const struct wf_attention_fns *fns;
    int64_t n_rows, n_q, n_k; /* rows in all, rows of one matrix, columns */
    bool causal;
    int mask;
    struct wf_type x, mask_type;
    size_t thread_bytes;
    /* one run */
    const float *from;
    const void *mask_data;
    float *p, *lse;
    char *scratch;
};

weft_status wf_plan_masked_softmax(struct wf_kplan *p)
{
    const struct wf_type *x = &p->in[0];
    int64_t step[WEFT_MAX_RANK];
    struct masked *m;

    if (x->dtype != WEFT_F32)
        return WEFT_ENOSUP;
    m = wf_arena_alloc(p->arena, sizeof *m);
    if (!m)
        return wf_err_nomem(p->ctx, sizeof *m, p->op->name);
    *m = (struct masked){.fns = wf_attention_fns_of(p->ctx->simd),
                         .n_rows = wf_type_count(&p->out[1]),
                         .n_q = x->dim[x->rank - 2],
                         .n_k = x->dim[x->rank - 1],
                         .x = *x,
                         .causal = wf_kplan_int(p, "causal"),
                         .mask = mask_kind(p, 1, x->rank, step)};
    if (m->mask != WF_MASK_NONE) {
        m->mask_type = p->in[1];
        m->thread_bytes = (size_t)wf_round_up(m->n_k * (int64_t)sizeof(float), 64);
    }
    p->scratch_bytes = m->thread_bytes * (size_t)p->n_threads;
    p->state = m;
    return WEFT_OK;
}

/* The mask's row for row `row` of the scores, as numbers that are added. */
static const float *mask_row(const struct masked *m, int64_t row, float *buf)
{
    int64_t at = 0, stride = 1, rest = row, step = 0;

    if (m->mask == WF_MASK_NONE)
        return NULL;
    for (int a = m->x.rank - 1, b = m->mask_type.rank - 1; b >= 0; a--, b--) {
        int64_t size = m->mask_type.dim[b];

        if (a == m->x.rank - 1)
            step = size == 1 ? 0 : 1;
        else {
            at += size == 1 ? 0 : rest % m->x.dim[a] * stride;
            rest /= m->x.dim[a];
        }
        stride *= size;
    }
    for (int64_t j = 0; j < m->n_k; j++)
        if (m->mask == WF_MASK_BOOL)
            buf[j] = ((const uint8_t *)m->mask_data)[at + j * step] ? 0.0f : -INFINITY;
        else
            buf[j] = ((const float *)m->mask_data)[at + j * step];
    return buf;
}

static void masked_tile(void *arg, int64_t tile, int thread)
{
    const struct masked *m = arg;
    float *buf = (float *)(void *)(m->scratch + (size_t)thread * m->thread_bytes);
    int64_t end = wf_min_i64(m->n_rows, (tile + 1) * TILE_ROWS);

    for (int64_t row = tile * TILE_ROWS; row < end; row++) {
        float *p = m->p + row * m->n_k, max, sum;
        struct wf_attention_rows r = {.n_rows = 1,
                                      .n = m->n_k,
                                      .n_valid = m->causal ? row % m->n_q + 1 : m->n_k,
                                      .scale = 1,
                                      .s = p,
                                      .ld = m->n_k,
                                      .bias = mask_row(m, row, buf),
                                      .max = &max,
                                      .sum = &sum,
                                      .first = true,
                                      .y = p,
                                      .y_ld = m->n_k,
                                      .dv = m->n_k};

        memcpy(p, m->from + row * m->n_k, sizeof *p * (size_t)m->n_k);
        m->fns->softmax(&r);
        m->fns->finish(&r, m->lse + row);
    }
}

weft_status wf_run_masked_softmax(const struct wf_call *c)
{
    struct masked m = *(const struct masked *)c->state;

    m.from = c->in[0].data;
    m.mask_data = mask_of(c, 1);
    m.p = c->out[0].data;
    m.lse = c->out[1].data;
    m.scratch = c->scratch;
    wf_pool_for(c->pool, (m.n_rows + TILE_ROWS - 1) / TILE_ROWS, masked_tile, &m);
    return WEFT_OK;
}
