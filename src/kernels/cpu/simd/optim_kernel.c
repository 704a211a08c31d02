/* optim_kernel.c - optimizer updates of one range, at one SIMD level.
 *
 * Each form is a step on one vector of elements; two drivers run a step over a flat range and over
 * the looked-up rows of a table. A step handles each lane separately, so ranges may be divided
 * anywhere. */
#include "kernels/cpu/optim.h"
#include "kernels/cpu/simd/cols_inl.h"
#include "kernels/cpu/simd/math_inl.h"
#include "kernels/cpu/simd/sum64_inl.h"

/* The scalars in every lane. What a form does not use costs nothing: the drivers are inlined. */
struct consts {
    vf lr, inv_lr, momentum, b1, b2, c1, c2, eps, k1, k2, k3, l1, l2, shrink, power;
    vf scale, clip, decay;
    int has_clip, has_decay;
};

/* A vector of elements: the parameter and its slots. */
struct elem {
    vf w, s0, s1, s2;
};

typedef void step_fn(const struct consts *k, vf g, struct elem *e);

WF_SIMD_INLINE void consts_set(struct consts *c, const struct wf_optim_scalars *k)
{
    c->lr = vf_set1(k->lr);
    c->inv_lr = vf_set1(k->inv_lr);
    c->momentum = vf_set1(k->momentum);
    c->b1 = vf_set1(k->b1);
    c->b2 = vf_set1(k->b2);
    c->c1 = vf_set1(k->c1);
    c->c2 = vf_set1(k->c2);
    c->eps = vf_set1(k->eps);
    c->k1 = vf_set1(k->k1);
    c->k2 = vf_set1(k->k2);
    c->k3 = vf_set1(k->k3);
    c->l1 = vf_set1(k->l1);
    c->l2 = vf_set1(k->l2);
    c->shrink = vf_set1(k->shrink);
    c->power = vf_set1(k->power);
    c->scale = vf_set1(k->grad_scale);
    c->clip = vf_set1(k->clip);
    c->decay = vf_set1(k->decay);
    c->has_clip = k->clip > 0;
    c->has_decay = k->decay != 0;
}

/* Between -limit and limit; a NaN stays. */
WF_SIMD_INLINE vf clip(vf x, vf limit)
{
    return vf_min2(limit, vf_max2(vf_neg(limit), x));
}

/* Unscale, clip, decay: what precedes every step. */
WF_SIMD_INLINE vf before(const struct consts *k, vf g, struct elem *e)
{
    g = g * k->scale;
    if (k->has_clip)
        g = clip(g, k->clip);
    if (k->has_decay)
        e->w = vf_fnma(e->w, k->decay, e->w);
    return g;
}

/* ---- the steps --------------------------------------------------------------------------- */

WF_SIMD_INLINE void step_sgd(const struct consts *k, vf g, struct elem *e)
{
    e->w = vf_fnma(g, k->lr, e->w);
}

WF_SIMD_INLINE void step_momentum(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = vf_fms(e->s0, k->momentum, g * k->lr);
    e->w = e->w + e->s0;
}

WF_SIMD_INLINE void step_nesterov(const struct consts *k, vf g, struct elem *e)
{
    vf d = g * k->lr;

    e->s0 = vf_fms(e->s0, k->momentum, d);
    e->w = e->w + vf_fms(e->s0, k->momentum, d);
}

WF_SIMD_INLINE vf decayed(vf average, vf x, vf keep, vf take)
{
    return vf_fma(average, keep, x * take);
}

WF_SIMD_INLINE void step_rmsprop(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = decayed(e->s0, g * g, k->b2, k->c2);
    e->w = e->w - g * k->lr / vf_sqrt(e->s0 + k->eps);
}

WF_SIMD_INLINE void step_rmsprop_mom(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = decayed(e->s0, g * g, k->b2, k->c2);
    e->s1 = vf_fma(e->s1, k->momentum, g * k->lr / vf_sqrt(e->s0 + k->eps));
    e->w = e->w - e->s1;
}

WF_SIMD_INLINE void step_rmsprop_centered(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = decayed(e->s0, g * g, k->b2, k->c2);
    e->s1 = decayed(e->s1, g, k->b2, k->c2);
    e->w = e->w - g * k->lr / vf_sqrt(vf_fnma(e->s1, e->s1, e->s0) + k->eps);
}

WF_SIMD_INLINE void step_rmsprop_centered_mom(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = decayed(e->s0, g * g, k->b2, k->c2);
    e->s2 = decayed(e->s2, g, k->b2, k->c2);
    e->s1 = vf_fma(e->s1, k->momentum, g * k->lr / vf_sqrt(vf_fnma(e->s2, e->s2, e->s0) + k->eps));
    e->w = e->w - e->s1;
}

/* Adam's two averages, shared by its relatives. */
WF_SIMD_INLINE void adam_slots(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = vf_fma(g - e->s0, k->c1, e->s0);
    e->s1 = vf_fma(g * g - e->s1, k->c2, e->s1);
}

WF_SIMD_INLINE void step_adam(const struct consts *k, vf g, struct elem *e)
{
    adam_slots(k, g, e);
    e->w = e->w - e->s0 * k->lr / (vf_sqrt(e->s1) + k->eps);
}

WF_SIMD_INLINE void step_amsgrad(const struct consts *k, vf g, struct elem *e)
{
    adam_slots(k, g, e);
    e->s2 = vf_max(e->s2, e->s1);
    e->w = e->w - e->s0 * k->lr / (vf_sqrt(e->s2) + k->eps);
}

WF_SIMD_INLINE void step_adamax(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = vf_fma(g - e->s0, k->c1, e->s0);
    e->s1 = vf_max(e->s1 * k->b2, vf_abs(g));
    e->w = e->w - e->s0 * k->lr / (e->s1 + k->eps);
}

WF_SIMD_INLINE void step_nadam(const struct consts *k, vf g, struct elem *e)
{
    adam_slots(k, g, e);
    e->w = e->w - vf_fma(e->s0, k->k1, g * k->k2) * k->lr / (vf_sqrt(e->s1 * k->k3) + k->eps);
}

WF_SIMD_INLINE void step_adagrad(const struct consts *k, vf g, struct elem *e)
{
    e->s0 = vf_fma(g, g, e->s0);
    e->w = e->w - g * k->lr / vf_sqrt(e->s0 + k->eps);
}

WF_SIMD_INLINE void step_adadelta(const struct consts *k, vf g, struct elem *e)
{
    vf d;

    e->s0 = decayed(e->s0, g * g, k->b2, k->c2);
    d = vf_sqrt(e->s1 + k->eps) * g / vf_sqrt(e->s0 + k->eps);
    e->s1 = decayed(e->s1, d * d, k->b2, k->c2);
    e->w = vf_fnma(d, k->lr, e->w);
}

/* The part of FTRL that follows the powers of the old and the new accumulator. */
WF_SIMD_INLINE void ftrl(const struct consts *k, vf g, vf accumulator, vf p_old, vf p_new,
                         struct elem *e)
{
    vf z = e->s1 + (vf_fma(k->shrink, e->w, g) - (p_new - p_old) * k->inv_lr * e->w);

    e->w = (clip(z, k->l1) - z) / vf_fma(p_new, k->inv_lr, k->l2);
    e->s0 = accumulator;
    e->s1 = z;
}

WF_SIMD_INLINE void step_ftrl(const struct consts *k, vf g, struct elem *e)
{
    vf sum = vf_fma(g, g, e->s0);

    ftrl(k, g, sum, vf_sqrt(e->s0), vf_sqrt(sum), e);
}

WF_SIMD_INLINE void step_ftrl_power(const struct consts *k, vf g, struct elem *e)
{
    vf sum = vf_fma(g, g, e->s0);

    ftrl(k, g, sum, vpow(e->s0, k->power), vpow(sum, k->power), e);
}

WF_SIMD_INLINE void step_lion(const struct consts *k, vf g, struct elem *e)
{
    vf c = vf_fma(e->s0, k->b1, g * k->c1);
    vf sign = vf_select(vm_eq(c, vf_zero()), c, vf_copysign(vf_set1(1.0f), c));

    sign = vf_select(vm_isnan(c), c, sign);
    e->w = vf_fnma(sign, k->lr, e->w);
    e->s0 = vf_fma(e->s0, k->b2, g * k->c2);
}

/* ---- the drivers ------------------------------------------------------------------------- */

#define LOAD_ELEM(load, ...)                                       \
    do {                                                           \
        e.w = load(w + i __VA_ARGS__);                             \
        e.s0 = n_slots > 0 ? load(s0 + i __VA_ARGS__) : vf_zero(); \
        e.s1 = n_slots > 1 ? load(s1 + i __VA_ARGS__) : vf_zero(); \
        e.s2 = n_slots > 2 ? load(s2 + i __VA_ARGS__) : vf_zero(); \
    } while (0)

#define STORE_SLOTS(store, ...)              \
    do {                                     \
        if (n_slots > 0)                     \
            store(s0 + i, e.s0 __VA_ARGS__); \
        if (n_slots > 1)                     \
            store(s1 + i, e.s1 __VA_ARGS__); \
        if (n_slots > 2)                     \
            store(s2 + i, e.s2 __VA_ARGS__); \
    } while (0)

#define STORE_ELEM(store, ...)           \
    do {                                 \
        store(w + i, e.w __VA_ARGS__);   \
        STORE_SLOTS(store, __VA_ARGS__); \
    } while (0)

#define COMMA_TAIL , n - i
#define COMMA_LEFT , left

WF_SIMD_INLINE void drive_flat(step_fn *step, int n_slots, const struct wf_optim_scalars *scalars,
                               int64_t n, float *w, const float *g, float *s0, float *s1, float *s2)
{
    struct consts k;
    struct elem e;
    int64_t i = 0;

    consts_set(&k, scalars);
    for (; i + VF_N <= n; i += VF_N) {
        vf x;

        LOAD_ELEM(vf_load, );
        x = before(&k, vf_load(g + i), &e);
        step(&k, x, &e);
        STORE_ELEM(vf_store, );
    }
    if (i < n) {
        vf x;

        LOAD_ELEM(vf_loadn, COMMA_TAIL);
        x = before(&k, vf_loadn(g + i, n - i), &e);
        step(&k, x, &e);
        STORE_ELEM(vf_storen, COMMA_TAIL);
    }
}

/* From w into `to`, past the caches; the slots stay. Elements before the first whole vector of
 * `to` are done as a short one. */
WF_SIMD_INLINE void drive_to(step_fn *step, int n_slots, const struct wf_optim_scalars *scalars,
                             int64_t n, float *to, const float *w, const float *g, float *s0,
                             float *s1, float *s2)
{
    int64_t off = (int64_t)((uintptr_t)to / sizeof(float) % VF_N);
    int64_t first = off ? VF_N - off : 0, i = 0;
    struct consts k;

    consts_set(&k, scalars);
    while (i < n) {
        int64_t left = i < first ? first : n - i;
        struct elem e;
        vf x;

        if (left > n - i)
            left = n - i;
        if (left >= VF_N) {
            LOAD_ELEM(vf_load, );
            x = before(&k, vf_load(g + i), &e);
            step(&k, x, &e);
            vf_stream(to + i, e.w);
            STORE_SLOTS(vf_store, );
            i += VF_N;
        } else {
            LOAD_ELEM(vf_loadn, COMMA_LEFT);
            x = before(&k, vf_loadn(g + i, left), &e);
            step(&k, x, &e);
            vf_storen(to + i, e.w, left);
            STORE_SLOTS(vf_storen, COMMA_LEFT);
            i += left;
        }
    }
    wf_stream_end();
}

enum { ROWS_AHEAD = 16, LINE_FLOATS = 16, MAX_LINES_AHEAD = 8 };

WF_SIMD_INLINE int64_t row_stride(const struct wf_optim_table *t)
{
    return t->stride ? t->stride : t->width;
}

/* Prefetches a row that is needed ROWS_AHEAD rows later. */
WF_SIMD_INLINE void prefetch_row(const struct wf_optim_table *t, int n_slots, int64_t i)
{
    int64_t width =
        t->width > LINE_FLOATS * MAX_LINES_AHEAD ? LINE_FLOATS * MAX_LINES_AHEAD : t->width;
    int64_t at = t->rows[i] * row_stride(t);
    const float *g = t->g + (t->first ? t->first[i] : i) * t->g_stride;

    for (int64_t c = 0; c < width; c += LINE_FLOATS) {
        wf_prefetch_write(t->w + at + c);
        for (int s = 0; s < n_slots; s++)
            wf_prefetch_write(t->slot[s] + at + c);
        wf_prefetch(g + c);
    }
}

/* Column c of the gradient of distinct row i: duplicates are added in sample order. */
WF_SIMD_INLINE vf chain_load(const float *g, int64_t stride, int32_t j, const int32_t *next,
                             int64_t c)
{
    vf x = vf_load(g + j * stride + c);

    while ((j = next[j]) >= 0)
        x = x + vf_load(g + j * stride + c);
    return x;
}
WF_SIMD_INLINE vf chain_loadn(const float *g, int64_t stride, int32_t j, const int32_t *next,
                              int64_t c, int64_t n)
{
    vf x = vf_loadn(g + j * stride + c, n);

    while ((j = next[j]) >= 0)
        x = x + vf_loadn(g + j * stride + c, n);
    return x;
}

WF_SIMD_INLINE vf row_load(const struct wf_optim_table *t, int64_t r, int64_t c)
{
    return t->first ? chain_load(t->g, t->g_stride, t->first[r], t->next, c)
                    : vf_load(t->g + r * t->g_stride + c);
}
WF_SIMD_INLINE vf row_loadn(const struct wf_optim_table *t, int64_t r, int64_t c, int64_t n)
{
    return t->first ? chain_loadn(t->g, t->g_stride, t->first[r], t->next, c, n)
                    : vf_loadn(t->g + r * t->g_stride + c, n);
}

WF_SIMD_INLINE void drive_rows(step_fn *step, int n_slots, const struct wf_optim_scalars *scalars,
                               const struct wf_optim_table *t, int64_t begin, int64_t end)
{
    struct consts k;
    struct elem e;
    int64_t n = t->width, ahead = begin + ROWS_AHEAD < end ? begin + ROWS_AHEAD : end;

    consts_set(&k, scalars);
    for (int64_t r = begin; r < ahead; r++)
        prefetch_row(t, n_slots, r);
    for (int64_t r = begin; r < end; r++) {
        int64_t at = t->rows[r] * row_stride(t), i = 0;
        float *w = t->w + at, *s0 = n_slots > 0 ? t->slot[0] + at : NULL;
        float *s1 = n_slots > 1 ? t->slot[1] + at : NULL,
              *s2 = n_slots > 2 ? t->slot[2] + at : NULL;

        if (r + ROWS_AHEAD < end)
            prefetch_row(t, n_slots, r + ROWS_AHEAD);
        for (; i + VF_N <= n; i += VF_N) {
            vf x;

            LOAD_ELEM(vf_load, );
            x = before(&k, row_load(t, r, i), &e);
            step(&k, x, &e);
            STORE_ELEM(vf_store, );
        }
        if (i < n) {
            vf x;

            LOAD_ELEM(vf_loadn, COMMA_TAIL);
            x = before(&k, row_loadn(t, r, i, n - i), &e);
            step(&k, x, &e);
            STORE_ELEM(vf_storen, COMMA_TAIL);
        }
    }
}

/* ---- LAMB -------------------------------------------------------------------------------- */

WF_SIMD_INLINE vf lamb_direction(const struct consts *k, vf m, vf v)
{
    return m * k->k1 / (vf_sqrt(v * k->k3) + k->eps);
}

/* Slots and decay, with w and the direction of up to 16 elements left in w_out and q_out. */
WF_SIMD_INLINE void lamb_slots16(const struct consts *k, int64_t n, float *w, const float *g,
                                 float *m, float *v, float *w_out, float *q_out)
{
    for (int64_t i = 0; i < WF_SUM64_LANES; i += VF_N) {
        int64_t left = n - i < 0 ? 0 : n - i < VF_N ? n - i : VF_N;
        struct elem e = {vf_load_to(w + i, left), vf_load_to(m + i, left), vf_load_to(v + i, left),
                         vf_zero()};
        vm in = vm_first(left);
        vf x = before(k, vf_load_to(g + i, left), &e);

        adam_slots(k, x, &e);
        vf_store_to(w + i, e.w, left);
        vf_store_to(m + i, e.s0, left);
        vf_store_to(v + i, e.s1, left);
        vf_store(w_out + i, vf_keep(in, e.w));
        vf_store(q_out + i, vf_keep(in, lamb_direction(k, e.s0, e.s1)));
    }
}

static void lamb_slots(const struct wf_optim_scalars *scalars, int64_t n, float *w, const float *g,
                       float *m, float *v, double *w_sq, double *q_sq)
{
    struct consts k;
    struct wf_sum64 ws, qs;

    consts_set(&k, scalars);
    wf_sum64_zero(&ws);
    wf_sum64_zero(&qs);
    for (int64_t i = 0; i < n; i += WF_SUM64_LANES) {
        float w_out[WF_SUM64_LANES], q_out[WF_SUM64_LANES];

        lamb_slots16(&k, n - i, w + i, g + i, m + i, v + i, w_out, q_out);
        wf_sum64_add_sq(&ws, w_out);
        wf_sum64_add_sq(&qs, q_out);
    }
    *w_sq = wf_sum64_fold(&ws);
    *q_sq = wf_sum64_fold(&qs);
}

static void lamb_apply(const struct wf_optim_scalars *scalars, float step, int64_t n, float *w,
                       const float *m, const float *v)
{
    struct consts k;
    vf s = vf_set1(step);

    consts_set(&k, scalars);
    for (int64_t i = 0; i < n; i += VF_N) {
        int64_t left = n - i;
        vf q = lamb_direction(&k, vf_load_to(m + i, left), vf_load_to(v + i, left));

        vf_store_to(w + i, vf_fnma(q, s, vf_load_to(w + i, left)), left);
    }
}

static void sum_chain(int64_t width, const float *g, int64_t stride, int32_t first,
                      const int32_t *next, float *out)
{
    int64_t c = 0;

    for (; c + VF_N <= width; c += VF_N)
        vf_store(out + c, chain_load(g, stride, first, next, c));
    if (c < width)
        vf_storen(out + c, chain_loadn(g, stride, first, next, c, width - c), width - c);
}

static void add_to(int64_t n, float *to, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i += VF_N)
        vf_store_to(to + i, vf_load_to(a + i, n - i) + vf_load_to(b + i, n - i), n - i);
}

static void add(int64_t n, float *to, const float *from)
{
    add_to(n, to, to, from);
}

static void scale_to(int64_t n, float *to, const float *from, float factor)
{
    vf f = vf_set1(factor);

    for (int64_t i = 0; i < n; i += VF_N)
        vf_store_to(to + i, vf_load_to(from + i, n - i) * f, n - i);
}

static void scale(int64_t n, float *to, float factor)
{
    scale_to(n, to, to, factor);
}

static void add_scaled(int64_t n, float *to, const float *from, float factor)
{
    vf f = vf_set1(factor);

    for (int64_t i = 0; i < n; i += VF_N)
        vf_store_to(to + i, vf_load_to(to + i, n - i) + vf_load_to(from + i, n - i) * f, n - i);
}

static void add_penalty(int64_t n, float l1, float l2, const float *w, float *g)
{
    vf a = vf_set1(l1), b = vf_set1(l2);

    for (int64_t i = 0; i < n; i += VF_N) {
        vf x = vf_load_to(w + i, n - i);
        vf sign = vf_select(vm_eq(x, vf_zero()), vf_zero(), vf_copysign(vf_set1(1.0f), x));

        vf_store_to(g + i, vf_load_to(g + i, n - i) + (sign * a + x * b), n - i);
    }
}

static void add_chain(int64_t width, const float *g, int64_t stride, int32_t first,
                      const int32_t *next, float *out)
{
    for (int64_t c = 0; c < width; c += VF_N) {
        vf x = vf_load_to(out + c, width - c);

        for (int32_t j = first; j >= 0; j = next[j])
            x = x + vf_load_to(g + j * stride + c, width - c);
        vf_store_to(out + c, x, width - c);
    }
}

/* LAMB row by row, each with its own ratio. A summed gradient goes through a small buffer. */
static void rows_lamb(const struct wf_optim_scalars *scalars, const struct wf_optim_table *t,
                      int64_t begin, int64_t end)
{
    struct consts k;
    int64_t n = t->width;

    consts_set(&k, scalars);
    for (int64_t r = begin; r < end; r++) {
        int64_t at = t->rows[r] * row_stride(t);
        float *w = t->w + at, *m = t->slot[0] + at, *v = t->slot[1] + at;
        struct wf_sum64 ws, qs;
        double w_sq, q_sq;

        wf_sum64_zero(&ws);
        wf_sum64_zero(&qs);
        if (r + ROWS_AHEAD < end)
            prefetch_row(t, 2, r + ROWS_AHEAD);
        for (int64_t i = 0; i < n; i += WF_SUM64_LANES) {
            float w_out[WF_SUM64_LANES], q_out[WF_SUM64_LANES], g[WF_SUM64_LANES];
            int64_t left = n - i < WF_SUM64_LANES ? n - i : WF_SUM64_LANES;
            const float *gi = t->g + r * t->g_stride + i;

            if (t->first) {
                sum_chain(left, t->g + i, t->g_stride, t->first[r], t->next, g);
                gi = g;
            }
            lamb_slots16(&k, left, w + i, gi, m + i, v + i, w_out, q_out);
            wf_sum64_add_sq(&ws, w_out);
            wf_sum64_add_sq(&qs, q_out);
        }
        w_sq = wf_sum64_fold(&ws);
        q_sq = wf_sum64_fold(&qs);
        lamb_apply(
            scalars,
            (float)(scalars->lr * (w_sq > 0 && q_sq > 0 ? __builtin_sqrt(w_sq / q_sq) : 1.0)), n, w,
            m, v);
    }
}

/* ---- sums -------------------------------------------------------------------------------- */

static double sumsq(int64_t n, const float *x)
{
    struct wf_sum64 s;
    int64_t i = 0;
    float buf[WF_SUM64_LANES];

    wf_sum64_zero(&s);
    for (; i + WF_SUM64_LANES <= n; i += WF_SUM64_LANES)
        wf_sum64_add_sq(&s, x + i);
    if (i < n)
        wf_sum64_add_sq(&s, wf_sum64_tail(buf, x + i, n - i));
    return wf_sum64_fold(&s);
}

/* ---- one function of each kind a form ---------------------------------------------------- */

#define FORM(name, n_slots)                                                                        \
    static void flat_##name(const struct wf_optim_scalars *k, int64_t n, float *w, const float *g, \
                            float *s0, float *s1, float *s2)                                       \
    {                                                                                              \
        drive_flat(step_##name, n_slots, k, n, w, g, s0, s1, s2);                                  \
    }                                                                                              \
    static void to_##name(const struct wf_optim_scalars *k, int64_t n, float *to, const float *w,  \
                          const float *g, float *s0, float *s1, float *s2)                         \
    {                                                                                              \
        drive_to(step_##name, n_slots, k, n, to, w, g, s0, s1, s2);                                \
    }                                                                                              \
    static void rows_##name(const struct wf_optim_scalars *k, const struct wf_optim_table *t,      \
                            int64_t begin, int64_t end)                                            \
    {                                                                                              \
        drive_rows(step_##name, n_slots, k, t, begin, end);                                        \
    }

FORM(sgd, 0)
FORM(momentum, 1)
FORM(nesterov, 1)
FORM(rmsprop, 1)
FORM(rmsprop_mom, 2)
FORM(rmsprop_centered, 2)
FORM(rmsprop_centered_mom, 3)
FORM(adam, 2)
FORM(amsgrad, 3)
FORM(adamax, 2)
FORM(nadam, 2)
FORM(adagrad, 1)
FORM(adadelta, 2)
FORM(ftrl, 2)
FORM(ftrl_power, 2)
FORM(lion, 1)

#define EACH_FORM(prefix)                                                               \
    {                                                                                   \
        [WF_OPTIM_SGD] = prefix##_sgd, [WF_OPTIM_MOMENTUM] = prefix##_momentum,         \
        [WF_OPTIM_NESTEROV] = prefix##_nesterov, [WF_OPTIM_RMSPROP] = prefix##_rmsprop, \
        [WF_OPTIM_RMSPROP_MOM] = prefix##_rmsprop_mom,                                  \
        [WF_OPTIM_RMSPROP_CENTERED] = prefix##_rmsprop_centered,                        \
        [WF_OPTIM_RMSPROP_CENTERED_MOM] = prefix##_rmsprop_centered_mom,                \
        [WF_OPTIM_ADAM] = prefix##_adam, [WF_OPTIM_AMSGRAD] = prefix##_amsgrad,         \
        [WF_OPTIM_ADAMAX] = prefix##_adamax, [WF_OPTIM_NADAM] = prefix##_nadam,         \
        [WF_OPTIM_ADAGRAD] = prefix##_adagrad, [WF_OPTIM_ADADELTA] = prefix##_adadelta, \
        [WF_OPTIM_FTRL] = prefix##_ftrl, [WF_OPTIM_FTRL_POWER] = prefix##_ftrl_power,   \
        [WF_OPTIM_LION] = prefix##_lion, [WF_OPTIM_LAMB] = prefix##_lamb,               \
    }

/* LAMB needs norms of the whole variable: wf_optim_update refuses it, rows have their own. */
#define flat_lamb NULL
#define to_lamb NULL

const struct wf_optim_fns WF_LEVELED(wf_optim_fns) = {
    .update = EACH_FORM(flat),
    .update_to = EACH_FORM(to),
    .update_rows = EACH_FORM(rows),
    .lamb_slots = lamb_slots,
    .lamb_apply = lamb_apply,
    .sumsq = sumsq,
    .sum_chain = sum_chain,
    .add_to = add_to,
    .scale_to = scale_to,
    .add = add,
    .scale = scale,
    .add_scaled = add_scaled,
    .add_penalty = add_penalty,
    .add_chain = add_chain,
};
