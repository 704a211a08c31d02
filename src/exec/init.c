/* init.c - initial values of variables, as Keras defines them. */
#include <math.h>

#include "exec/exec.h"
#include "kernels/cpu/random.h"

/* Fan-in and fan-out: dense [in, out], convolutions [space…, in, out]. */
static void fans(const struct wf_type *t, double *fan_in, double *fan_out)
{
    double space = 1;

    for (int i = 0; i < t->rank - 2; i++)
        space *= (double)t->dim[i];
    *fan_in = t->rank == 0   ? 1
              : t->rank == 1 ? (double)t->dim[0]
                             : space * (double)t->dim[t->rank - 2];
    *fan_out = t->rank == 0   ? 1
               : t->rank == 1 ? (double)t->dim[0]
                              : space * (double)t->dim[t->rank - 1];
}

static void fill(const struct wf_type *t, void *data, double v)
{
    for (int64_t i = 0, n = wf_type_count(t); i < n; i++)
        wf_set(data, t->dtype, i, v);
}

static weft_status identity(const struct wf_type *t, void *data, double gain)
{
    if (t->rank != 2)
        return wf_err(WEFT_ESHAPE, "identity: needs rank 2, has %d", t->rank);
    fill(t, data, 0);
    for (int64_t i = 0; i < t->dim[0] && i < t->dim[1]; i++)
        wf_set(data, t->dtype, i * t->dim[1] + i, gain);
    return WEFT_OK;
}

static void band(const struct wf_type *t, void *data, double from, double to)
{
    int64_t n = wf_type_count(t), cols = t->rank ? t->dim[t->rank - 1] : 1;

    for (int64_t i = 0; i < n; i++) {
        double at = (double)(i % cols);

        wf_set(data, t->dtype, i, at >= from * (double)cols && at < to * (double)cols);
    }
}

/* ---- random ---------------------------------------------------------------------------------- */

enum { TILE = 1 << 16 };

struct draw {
    const struct wf_random_fns *fns;
    enum wf_random_kind kind;
    struct wf_rng_key key;
    float params[2];
    float *to;
    int64_t n;
};

static void draw_tile(void *arg, int64_t tile, int thread)
{
    const struct draw *d = arg;
    int64_t first = tile * TILE;

    (void)thread;
    d->fns->fill(d->kind, d->to + first, first, wf_min_i64(TILE, d->n - first), &d->key, d->params);
}

/* Element i depends only on the seed, the variable's name and i. */
static weft_status draw(weft_ctx *ctx, const char *name, enum wf_random_kind kind, double a,
                        double b, const struct wf_type *t, void *data)
{
    uint64_t h = wf_hash64(name, strlen(name), 0);
    struct draw d = {.fns = wf_random_fns_of(ctx->simd),
                     .kind = kind,
                     .key = {.seed = ctx->seed, .step = h, .node = (uint32_t)-1},
                     .params = {(float)a, (float)b},
                     .n = wf_type_count(t)};
    float *mem = NULL;

    if (t->dtype != WEFT_F32) {
        mem = wf_alloc_n(ctx, d.n + 1, sizeof *mem);
        if (!mem)
            return wf_err_nomem(ctx, (size_t)d.n * sizeof *mem, "initial values");
    }
    d.to = mem ? mem : data;
    wf_pool_for(ctx->pool, (d.n + TILE - 1) / TILE, draw_tile, &d);
    for (int64_t i = 0; mem && i < d.n; i++)
        wf_set(data, t->dtype, i, mem[i]);
    wf_free(ctx, mem);
    return WEFT_OK;
}

/* Columns of a tall matrix [rows, cols] made orthonormal, one after the other, twice for accuracy.
 * The diagonal of R is positive, as in Keras. */
static void orthonormalise(double *m, int64_t rows, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++) {
        double norm = 0;

        for (int64_t p = 0; p < 2 * c; p++) {
            double dot = 0;

            for (int64_t r = 0; r < rows; r++)
                dot += m[r * cols + p % c] * m[r * cols + c];
            for (int64_t r = 0; r < rows; r++)
                m[r * cols + c] -= dot * m[r * cols + p % c];
        }
        for (int64_t r = 0; r < rows; r++)
            norm += m[r * cols + c] * m[r * cols + c];
        norm = sqrt(norm);
        for (int64_t r = 0; r < rows; r++)
            m[r * cols + c] = norm > 0 ? m[r * cols + c] / norm : 0;
    }
}

static weft_status orthogonal(weft_ctx *ctx, const char *name, double gain, const struct wf_type *t,
                              void *data)
{
    int64_t n = wf_type_count(t), cols = t->rank ? t->dim[t->rank - 1] : 1,
            rows = cols ? n / cols : 0;
    bool wide = rows < cols;
    int64_t tall = wide ? cols : rows, thin = wide ? rows : cols;
    struct wf_type flat = wf_type_of(WEFT_F32, 1, &n);
    float *z = wf_alloc_n(ctx, n + 1, sizeof *z);
    double *m = wf_alloc_n(ctx, n + 1, sizeof *m);
    weft_status st = WEFT_OK;

    if (t->rank < 2)
        st = wf_err(WEFT_ESHAPE, "orthogonal: needs rank 2 or more, has %d", t->rank);
    else if (!z || !m)
        st = wf_err_nomem(ctx, (size_t)n * sizeof *m, "initial values");
    if (!st)
        st = draw(ctx, name, WF_RANDOM_NORMAL, 0, 1, &flat, z);
    for (int64_t i = 0; i < n && !st; i++)
        m[i] = z[i];
    if (!st)
        orthonormalise(m, tall, thin);
    for (int64_t r = 0; r < rows && !st; r++)
        for (int64_t c = 0; c < cols; c++)
            wf_set(data, t->dtype, r * cols + c, gain * (wide ? m[c * thin + r] : m[r * thin + c]));
    wf_free(ctx, z);
    wf_free(ctx, m);
    return st;
}

/* Keras' VarianceScaling: a variance of scale / fan, uniform, or normal truncated at two standard
 * deviations. */
static weft_status scaled(weft_ctx *ctx, const char *name, bool is_uniform, double scale,
                          double fan, const struct wf_type *t, void *data)
{
    double variance = scale / (fan < 1 ? 1 : fan), limit = sqrt(3 * variance);
    double cut = 0.87962566103423978; /* the standard deviation of a standard normal truncated at
                                       * two */

    return is_uniform
               ? draw(ctx, name, WF_RANDOM_UNIFORM, -limit, limit, t, data)
               : draw(ctx, name, WF_RANDOM_TRUNCATED_NORMAL, 0, sqrt(variance) / cut, t, data);
}

weft_status wf_init_variable(weft_ctx *ctx, const struct wf_node *n, const struct wf_type *t,
                             void *data)
{
    const char *init = wf_attr_str(n->op, n->attr, "init");
    const struct wf_attr *p = wf_attr(n->op, n->attr, "init_params");
    double a = p->n > 0 ? p->floats[0] : 0, b = p->n > 1 ? p->floats[1] : 0, in, out;

    fans(t, &in, &out);
    if (!strcmp(init, "zeros"))
        fill(t, data, 0);
    else if (!strcmp(init, "ones"))
        fill(t, data, 1);
    else if (!strcmp(init, "constant"))
        fill(t, data, a);
    else if (!strcmp(init, "identity"))
        return identity(t, data, a ? a : 1);
    else if (!strcmp(init, "band"))
        band(t, data, a, b);
    else if (!strcmp(init, "uniform"))
        return draw(ctx, n->name, WF_RANDOM_UNIFORM, a, b, t, data);
    else if (!strcmp(init, "normal"))
        return draw(ctx, n->name, WF_RANDOM_NORMAL, a, b, t, data);
    else if (!strcmp(init, "truncated_normal"))
        return draw(ctx, n->name, WF_RANDOM_TRUNCATED_NORMAL, a, b, t, data);
    else if (!strcmp(init, "glorot_uniform") || !strcmp(init, "glorot_normal"))
        return scaled(ctx, n->name, init[7] == 'u', 1, (in + out) / 2, t, data);
    else if (!strcmp(init, "he_uniform") || !strcmp(init, "he_normal"))
        return scaled(ctx, n->name, init[3] == 'u', 2, in, t, data);
    else if (!strcmp(init, "lecun_uniform") || !strcmp(init, "lecun_normal"))
        return scaled(ctx, n->name, init[6] == 'u', 1, in, t, data);
    else if (!strcmp(init, "orthogonal"))
        return orthogonal(ctx, n->name, a ? a : 1, t, data);
    else
        return wf_err(WEFT_ENOENT, "no initializer '%s'", init);
    return WEFT_OK;
}
