/* bind_random.c - random ops in f32 on the vector generators, dropout, and check_numerics.
 * Element i of a result depends on the call's key and i alone; tiles are whole groups of the generator. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/random.h"
#include "kernels/ref/ref.h"

enum { TILE = 16384, BLOCK = 1024 };

weft_status wf_plan_random(struct wf_kplan *p);
weft_status wf_plan_dropout(struct wf_kplan *p);
weft_status wf_plan_dropout_grad(struct wf_kplan *p);
weft_status wf_plan_check_numerics(struct wf_kplan *p);
wf_kernel_fn wf_run_random, wf_run_dropout, wf_run_dropout_grad, wf_run_check_numerics;

struct random {
    const struct wf_random_fns *f;
    const struct wf_ew_fns *ew;
    enum wf_random_kind kind;
    float params[2];
    wf_cvt_fn *from_f32, *to_f32; /* of the result's dtype; of bool */
    int64_t count, size;
};

/* A call with the rate it turned out to have. */
struct job {
    const struct wf_call *c;
    float rate;
};

static int64_t n_tiles(int64_t count)
{
    return (count + TILE - 1) / TILE;
}

static weft_status new_state(struct wf_kplan *p, struct random **out)
{
    struct random *s = wf_arena_alloc(p->arena, sizeof *s);

    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, p->op->name);
    s->f = wf_random_fns_of(p->ctx->simd);
    s->ew = wf_ew_fns_of(p->ctx->simd);
    s->count = wf_type_count(&p->out[0]);
    s->size = weft_dtype_size(p->out[0].dtype);
    p->state = s;
    *out = s;
    return WEFT_OK;
}

/* ---- random values --------------------------------------------------------------------------- */

weft_status wf_plan_random(struct wf_kplan *p)
{
    struct random *s;
    weft_status st = new_state(p, &s);

    if (st)
        return st;
    switch (p->op->id) {
    case WF_OP_random_uniform:
        s->kind = WF_RANDOM_UNIFORM;
        s->params[0] = (float)wf_kplan_float(p, "lo");
        s->params[1] = (float)wf_kplan_float(p, "hi");
        break;
    case WF_OP_random_bernoulli:
        s->kind = WF_RANDOM_BERNOULLI;
        s->params[0] = (float)wf_kplan_float(p, "p");
        break;
    default:
        s->kind = p->op->id == WF_OP_random_normal ? WF_RANDOM_NORMAL : WF_RANDOM_TRUNCATED_NORMAL;
        s->params[0] = (float)wf_kplan_float(p, "mean");
        s->params[1] = (float)wf_kplan_float(p, "stddev");
    }
    if (p->out[0].dtype != WEFT_F32)
        s->from_f32 = wf_cvt_fns_of(p->ctx->simd)->from_f32[p->out[0].dtype];
    return WEFT_OK;
}

static void random_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_call *c = arg;
    const struct random *s = c->state;
    int64_t first = tile * TILE, end = wf_min_i64(first + TILE, s->count);
    float x[BLOCK];

    (void)thread;
    if (!s->from_f32) {
        s->f->fill(s->kind, (float *)c->out[0].data + first, first, end - first, &c->rng,
                   s->params);
        return;
    }
    for (int64_t at = first; at < end; at += BLOCK) {
        int64_t n = wf_min_i64(BLOCK, end - at);

        s->f->fill(s->kind, x, at, n, &c->rng, s->params);
        s->from_f32((char *)c->out[0].data + at * s->size, x, n);
    }
}

weft_status wf_run_random(const struct wf_call *c)
{
    const struct random *s = c->state;

    wf_pool_for(c->pool, n_tiles(s->count), random_tile, (void *)(uintptr_t)c);
    return WEFT_OK;
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* y = x / (1 - rate) where keep is 1, else 0. */
static void drop_block(const struct random *s, float *y, const float *x, const float *keep,
                       int64_t n, float rate)
{
    float scaled[BLOCK], zero[BLOCK];
    float left = 1 - rate, nothing = 0;

    s->ew->fn[WF_EW_fill](zero, NULL, NULL, NULL, n, &nothing);
    if (left > 0)
        s->ew->fn[WF_EW_div_scalar](scaled, x, NULL, NULL, n, &left);
    s->ew->fn[WF_EW_where](y, keep, left > 0 ? scaled : zero, zero, n, NULL);
}

weft_status wf_plan_dropout(struct wf_kplan *p)
{
    struct random *s;
    weft_status st;

    if (p->in[0].dtype != WEFT_F32 || !wf_type_same_shape(&p->out[0], &p->out[1]))
        return WEFT_ENOSUP;
    st = new_state(p, &s);
    if (!st)
        s->from_f32 = wf_cvt_fns_of(p->ctx->simd)->from_f32[WEFT_BOOL];
    return st;
}

static void dropout_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    const struct random *s = j->c->state;
    int64_t first = tile * TILE, end = wf_min_i64(first + TILE, s->count);
    float keep[BLOCK], none = 0;

    (void)thread;
    for (int64_t at = first; at < end; at += BLOCK) {
        int64_t n = wf_min_i64(BLOCK, end - at);

        s->f->fill(WF_RANDOM_BERNOULLI, keep, at, n, &j->c->rng, &j->rate);
        s->ew->fn[WF_EW_eq_scalar](keep, keep, NULL, NULL, n, &none);
        s->from_f32((uint8_t *)j->c->out[1].data + at, keep, n);
        drop_block(s, (float *)j->c->out[0].data + at, (const float *)j->c->in[0].data + at, keep,
                   n, j->rate);
    }
}

weft_status wf_run_dropout(const struct wf_call *c)
{
    const struct random *s = c->state;
    struct job j = {c, 0};
    weft_status st = wf_dropout_rate(c, 1, &j.rate);

    if (!st)
        wf_pool_for(c->pool, n_tiles(s->count), dropout_tile, &j);
    return st;
}

weft_status wf_plan_dropout_grad(struct wf_kplan *p)
{
    struct random *s;
    weft_status st;

    if (p->in[0].dtype != WEFT_F32 || !wf_type_same_shape(&p->in[0], &p->in[1]))
        return WEFT_ENOSUP;
    st = new_state(p, &s);
    if (!st)
        s->to_f32 = wf_cvt_fns_of(p->ctx->simd)->to_f32[WEFT_BOOL];
    return st;
}

static void dropout_grad_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    const struct random *s = j->c->state;
    int64_t first = tile * TILE, end = wf_min_i64(first + TILE, s->count);
    float keep[BLOCK];

    (void)thread;
    for (int64_t at = first; at < end; at += BLOCK) {
        int64_t n = wf_min_i64(BLOCK, end - at);

        s->to_f32(keep, (const uint8_t *)j->c->in[1].data + at, n);
        drop_block(s, (float *)j->c->out[0].data + at, (const float *)j->c->in[0].data + at, keep,
                   n, j->rate);
    }
}

weft_status wf_run_dropout_grad(const struct wf_call *c)
{
    const struct random *s = c->state;
    struct job j = {c, 0};
    weft_status st = wf_dropout_rate(c, 2, &j.rate);

    if (!st)
        wf_pool_for(c->pool, n_tiles(s->count), dropout_grad_tile, &j);
    return st;
}

/* ---- check_numerics -------------------------------------------------------------------------- */

struct check {
    int64_t count;
};

weft_status wf_plan_check_numerics(struct wf_kplan *p)
{
    struct check *s;

    if (p->in[0].dtype != WEFT_F32)
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, "check_numerics");
    s->count = wf_type_count(&p->in[0]);
    p->state = s;
    p->scratch_bytes = (size_t)n_tiles(s->count);
    return WEFT_OK;
}

/* Copies, and says in a byte of scratch whether all exponents were below the highest. */
static void check_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_call *c = arg;
    const struct check *s = c->state;
    int64_t first = tile * TILE, n = wf_min_i64(TILE, s->count - first);
    const uint32_t *x = (const uint32_t *)c->in[0].data + first;
    uint32_t bad = 0;

    (void)thread;
    for (int64_t i = 0; i < n; i++)
        bad |= (x[i] & 0x7f800000u) == 0x7f800000u;
    if (c->out[0].data != c->in[0].data)
        memcpy((uint32_t *)c->out[0].data + first, x, (size_t)n * sizeof *x);
    ((uint8_t *)c->scratch)[tile] = bad != 0;
}

weft_status wf_run_check_numerics(const struct wf_call *c)
{
    const struct check *s = c->state;
    const uint32_t *x = c->in[0].data;

    wf_pool_for(c->pool, n_tiles(s->count), check_tile, (void *)(uintptr_t)c);
    for (int64_t t = 0; t < n_tiles(s->count); t++)
        for (int64_t i = t * TILE; ((const uint8_t *)c->scratch)[t] && i < s->count; i++)
            if ((x[i] & 0x7f800000u) == 0x7f800000u)
                return wf_numeric_error(c, i);
    return WEFT_OK;
}
