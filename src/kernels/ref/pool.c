/* pool.c - reference kernels of pooling and resizing. */
#include "kernels/ref/ref.h"
#include "kernels/ref/window.h"

/* A pooling call: x and y are [batch, spatial, channels]. */
struct pool {
    struct wf_window w;
    int64_t batch, n_in, n_out, n_k, channels;
};

static struct pool pool_of(const struct wf_call *c, const struct wf_tensor *x)
{
    struct pool p = {.batch = x->type.dim[0], .channels = x->type.dim[x->type.rank - 1]};

    wf_pool_window(c->op, c->attr, &x->type, &p.w);
    p.n_in = ref_volume(p.w.in);
    p.n_out = ref_volume(p.w.out);
    p.n_k = ref_volume(p.w.k);
    return p;
}

weft_status wf_ref_max_pool(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    struct pool p = pool_of(c, x);

    for (int64_t j = 0; j < p.batch * p.n_out * p.channels; j++) {
        int64_t ch = j % p.channels, o = j / p.channels % p.n_out, n = j / p.channels / p.n_out,
                best = -1;
        double most = 0;

        for (int64_t k = 0; k < p.n_k; k++) {
            int64_t i = ref_meets(&p.w, o, k);
            double v;

            if (i < 0)
                continue;
            v = ref_get(x, (n * p.n_in + i) * p.channels + ch);
            if (best < 0 || v > most || (v != v && most == most)) {
                best = k;
                most = v;
            }
        }
        ref_set(y, j, most);
        wf_set_int(c->out[1].data, c->out[1].type.dtype, j, best);
    }
    return WEFT_OK;
}

/* The input element that the argmax at j names. */
static weft_status picked(const struct wf_call *c, const struct pool *p,
                          const struct wf_tensor *argmax, int64_t j, int64_t *out)
{
    int64_t k = wf_get_int(argmax->data, argmax->type.dtype, j);
    int64_t i = k < 0 || k >= p->n_k ? -1 : ref_meets(&p->w, j / p->channels % p->n_out, k);

    if (i < 0)
        return wf_err(WEFT_EDATA, "%s: argmax[%lld] is %lld: no element of its window", c->op->name,
                      (long long)j, (long long)k);
    *out = (j / p->channels / p->n_out * p->n_in + i) * p->channels + j % p->channels;
    return WEFT_OK;
}

weft_status wf_ref_max_pool_grad(const struct wf_call *c)
{
    const struct wf_tensor *dy = &c->in[0], *argmax = &c->in[1], *dx = &c->out[0];
    struct pool p = pool_of(c, dx);
    int64_t n_y = wf_count(dy), unused;

    for (int64_t j = 0; j < n_y; j++) {
        weft_status st = picked(c, &p, argmax, j, &unused);

        if (st)
            return st;
    }
    for (int64_t j = 0; j < p.batch * p.n_in * p.channels; j++) {
        int64_t ch = j % p.channels, i = j / p.channels % p.n_in, n = j / p.channels / p.n_in;
        double sum = 0;

        for (int64_t k = 0; k < p.n_k; k++) {
            int64_t o = ref_met_by(&p.w, i, k), at = (n * p.n_out + o) * p.channels + ch;

            if (o >= 0 && wf_get_int(argmax->data, argmax->type.dtype, at) == k)
                sum += ref_get(dy, at);
        }
        ref_set(dx, j, sum);
    }
    return WEFT_OK;
}

weft_status wf_ref_max_pool_pick(const struct wf_call *c)
{
    const struct wf_tensor *y = &c->out[0];
    struct pool p = pool_of(c, &c->in[0]);
    int64_t m = wf_count(y), i;

    for (int64_t j = 0; j < m; j++) {
        weft_status st = picked(c, &p, &c->in[1], j, &i);

        if (st)
            return st;
        ref_set(y, j, ref_get(&c->in[0], i));
    }
    return WEFT_OK;
}

static int64_t count_in_window(const struct pool *p, int64_t o)
{
    int64_t n = 0;

    for (int64_t k = 0; k < p->n_k; k++)
        n += ref_meets(&p->w, o, k) >= 0;
    return n;
}

weft_status wf_ref_avg_pool(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    struct pool p = pool_of(c, x);

    for (int64_t j = 0; j < p.batch * p.n_out * p.channels; j++) {
        int64_t ch = j % p.channels, o = j / p.channels % p.n_out, n = j / p.channels / p.n_out;
        double sum = 0;

        for (int64_t k = 0; k < p.n_k; k++) {
            int64_t i = ref_meets(&p.w, o, k);

            if (i >= 0)
                sum += ref_get(x, (n * p.n_in + i) * p.channels + ch);
        }
        ref_set(y, j, sum / (double)count_in_window(&p, o));
    }
    return WEFT_OK;
}

weft_status wf_ref_avg_pool_grad(const struct wf_call *c)
{
    const struct wf_tensor *dy = &c->in[0], *dx = &c->out[0];
    struct pool p = pool_of(c, dx);

    for (int64_t j = 0; j < p.batch * p.n_in * p.channels; j++) {
        int64_t ch = j % p.channels, i = j / p.channels % p.n_in, n = j / p.channels / p.n_in;
        double sum = 0;

        for (int64_t k = 0; k < p.n_k; k++) {
            int64_t o = ref_met_by(&p.w, i, k);

            if (o >= 0)
                sum += ref_get(dy, (n * p.n_out + o) * p.channels + ch) /
                       (double)count_in_window(&p, o);
        }
        ref_set(dx, j, sum);
    }
    return WEFT_OK;
}

/* ---- resizing -------------------------------------------------------------------------------- */

/* x [batch, in, channels] against y [batch, out, channels], spatial sizes right-aligned. */
struct resize {
    int64_t batch, in[3], out[3], channels;
    bool bilinear;
};

static struct resize resize_of(const struct wf_call *c, const struct wf_type *x,
                               const struct wf_type *y)
{
    struct resize r = {
        .batch = x->dim[0], .channels = x->dim[x->rank - 1], .in = {1, 1, 1}, .out = {1, 1, 1}};

    r.bilinear = !strcmp(wf_attr_str(c->op, c->attr, "method"), "bilinear");
    for (int i = 1; i < x->rank - 1; i++) {
        r.in[3 - (x->rank - 1) + i] = x->dim[i];
        r.out[3 - (x->rank - 1) + i] = y->dim[i];
    }
    return r;
}

/* The weight of input element i in output element o along one axis. */
static double share(const struct resize *r, int a, int64_t o, int64_t i)
{
    struct wf_resize_at s = wf_resize_source(r->bilinear, r->in[a], r->out[a], o);

    return (s.a == i ? 1 - s.f : 0) + (s.b == i ? s.f : 0);
}

weft_status wf_ref_resize(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    struct resize r = resize_of(c, &x->type, &y->type);
    int64_t n_in = ref_volume(r.in), n_out = ref_volume(r.out);

    for (int64_t j = 0; j < r.batch * n_out * r.channels; j++) {
        int64_t ch = j % r.channels, o = j / r.channels % n_out, n = j / r.channels / n_out;
        double sum = 0;

        for (int k = 0; k < 8; k++) { /* corners: bit a takes the second element along axis a */
            double weight = 1;
            int64_t i = 0;

            for (int a = 0; a < 3; a++) {
                struct wf_resize_at s =
                    wf_resize_source(r.bilinear, r.in[a], r.out[a], ref_index(o, r.out, a));
                bool second = k >> a & 1;

                weight *= second ? s.f : 1 - s.f;
                i = i * r.in[a] + (second ? s.b : s.a);
            }
            if (weight != 0)
                sum += weight * ref_get(x, (n * n_in + i) * r.channels + ch);
        }
        ref_set(y, j, sum);
    }
    return WEFT_OK;
}

/* Outputs outside [first, last] do not read input element i. */
static void readers(const struct resize *r, int a, int64_t i, int64_t *first, int64_t *last)
{
    double ratio = (double)r->out[a] / (double)r->in[a];

    *first = wf_max_i64((int64_t)((double)(i - 1) * ratio) - 1, 0);
    *last = wf_min_i64((int64_t)((double)(i + 2) * ratio) + 1, r->out[a] - 1);
}

weft_status wf_ref_resize_grad(const struct wf_call *c)
{
    const struct wf_tensor *dy = &c->in[0], *dx = &c->out[0];
    struct resize r = resize_of(c, &dx->type, &dy->type);
    int64_t n_in = ref_volume(r.in), n_out = ref_volume(r.out);

    for (int64_t j = 0; j < r.batch * n_in * r.channels; j++) {
        int64_t ch = j % r.channels, i = j / r.channels % n_in, n = j / r.channels / n_in, from[3],
                to[3];
        double sum = 0;

        for (int a = 0; a < 3; a++)
            readers(&r, a, ref_index(i, r.in, a), &from[a], &to[a]);
        for (int64_t d = from[0]; d <= to[0]; d++)
            for (int64_t h = from[1]; h <= to[1]; h++)
                for (int64_t w = from[2]; w <= to[2]; w++) {
                    double weight = share(&r, 0, d, ref_index(i, r.in, 0)) *
                                    share(&r, 1, h, ref_index(i, r.in, 1)) *
                                    share(&r, 2, w, ref_index(i, r.in, 2));
                    int64_t o = (d * r.out[1] + h) * r.out[2] + w;

                    if (weight != 0)
                        sum += weight * ref_get(dy, (n * n_out + o) * r.channels + ch);
                }
        ref_set(dx, j, sum);
    }
    return WEFT_OK;
}
